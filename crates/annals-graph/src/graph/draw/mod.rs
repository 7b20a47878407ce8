//! Drawings of a compiled graph: nodes and possible edges, found without running it.
//!
//! *Absent:* colours, pictures, the network: a drawing is plain data and text.

mod assemble;
mod dot;
mod mermaid;
mod walk;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use super::END;

/// A graph as nodes and edges, for display: the result of
/// [`CompiledGraph::get_graph`](super::CompiledGraph::get_graph).
///
/// The targets of a conditional edge without a map are unknown, so a node that only such an edge reaches stands alone.
///
/// # Example
/// ```
/// use annals::state::DynState;
/// use annals_graph::prelude::*;
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
///     .node("ask", |_: &DynState| Ok(()))
///     .node("answer", |_: &DynState| Ok(()))
///     .edge(START, "ask")
///     .branch_to("ask", |_: &DynState| "clear", [("clear", "answer"), ("unclear", "ask")])
///     .edge("answer", END)
///     .compile()?;
/// let drawing = graph.get_graph(0);
/// assert_eq!(drawing.edges.len(), 4);
/// assert_eq!(drawing.edges[1].label.as_deref(), Some("clear"));
/// assert!(drawing.to_mermaid(false).contains("ask -. &nbsp;clear&nbsp; .-> answer;"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Drawing {
    /// The nodes: the start, those of the graph in the order in which they were added, the end. The nodes of an
    /// unfolded subgraph come last.
    pub nodes: Vec<DrawingNode>,
    /// The edges, sorted by source and target, at most one from a node to another. Edges to the end that are implied
    /// by the lack of others, and those of unfolded subgraphs, come last.
    pub edges: Vec<DrawingEdge>,
}

/// A node of a [`Drawing`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DrawingNode {
    /// The name; in an unfolded subgraph with the names of its parent nodes, as in `outer:inner`.
    pub id: String,
    /// The metadata of the node, then `defer` and `__interrupt` (`before`, `after` or `before,after`) if they are set.
    pub metadata: Map<String, Json>,
}

/// An edge of a [`Drawing`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrawingEdge {
    /// The source.
    pub source: String,
    /// The target.
    pub target: String,
    /// True if a conditional edge or a command of the node leads there.
    pub conditional: bool,
    /// The label of the target, if it differs from the name of the target.
    pub label: Option<String>,
}

impl DrawingNode {
    /// Returns the name within its own graph.
    pub(crate) fn name(&self) -> &str {
        self.id.rsplit(':').next().unwrap_or_default()
    }

    /// Returns the metadata as lines of text. A value that is not a text, a number, a boolean or a list of these is
    /// left out.
    pub fn notes(&self) -> Vec<String> {
        let shown = self.metadata.iter().filter_map(|(name, value)| Some(format!("{name} = {}", plain(value)?)));
        shown.collect()
    }
}

/// Returns the text of a plain value, as Python writes it.
fn plain(value: &Json) -> Option<String> {
    match value {
        Json::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>().map(|items| items.join(", ")),
        one => scalar(one),
    }
}

fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::Bool(true) => Some("True".into()),
        Json::Bool(false) => Some("False".into()),
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => python_float(float),
            None => number.to_string(),
        }),
        _ => None,
    }
}

/// Writes a float as Python does: shortest digits, an exponent from 1e16 up and below 1e-4, of two digits at least.
fn python_float(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let text = float.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

impl Drawing {
    /// Returns the node without an edge to it, if there is exactly one.
    fn first(&self, without: Option<&str>) -> Option<&DrawingNode> {
        let reached = |id: &str| self.edges.iter().any(|edge| edge.target == id && Some(&*edge.source) != without);
        only(self.nodes.iter().filter(|node| Some(&*node.id) != without && !reached(&node.id)))
    }

    /// Returns the node without an edge from it, if there is exactly one.
    fn last(&self, without: Option<&str>) -> Option<&DrawingNode> {
        let left = |id: &str| self.edges.iter().any(|edge| edge.source == id && Some(&*edge.target) != without);
        only(self.nodes.iter().filter(|node| Some(&*node.id) != without && !left(&node.id)))
    }

    /// Returns the drawing as JSON: `{"nodes": [{"id", "type", "data", "metadata"?}], "edges": [{"source", "target",
    /// "data"?, "conditional"?}]}`. The end has neither type nor data.
    pub fn to_json(&self) -> Json {
        let node = |node: &DrawingNode| {
            let mut shown = json!({"id": node.id});
            if node.name() != END {
                shown["type"] = "runnable".into();
                shown["data"] = json!({"name": node.id});
            }
            if !node.metadata.is_empty() {
                shown["metadata"] = node.metadata.clone().into();
            }
            shown
        };
        let edge = |edge: &DrawingEdge| {
            let mut shown = json!({"source": edge.source, "target": edge.target});
            if let Some(label) = &edge.label {
                shown["data"] = label.as_str().into();
            }
            if edge.conditional {
                shown["conditional"] = true.into();
            }
            shown
        };
        json!({
            "nodes": self.nodes.iter().map(node).collect::<Json>(),
            "edges": self.edges.iter().map(edge).collect::<Json>(),
        })
    }
}

/// Serializes as [`Drawing::to_json`].
impl Serialize for Drawing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

fn only<'a>(mut found: impl Iterator<Item = &'a DrawingNode>) -> Option<&'a DrawingNode> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests;
