//! Text for Graphviz.

use std::fmt::Write as _;

use super::super::{END, START};
use super::Drawing;

impl Drawing {
    /// Returns the drawing in the DOT language: conditional edges are dashed, and unfolded subgraphs are clusters.
    ///
    /// # Example
    /// ```
    /// use annals::state::DynState;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let schema = DynSchema::new().last("n").build();
    /// let graph =
    ///     StateGraph::with_schema(schema).node("a", |_: &DynState| Ok(())).edge(START, "a").edge("a", END).compile()?;
    /// let text = graph.get_graph(0).to_dot();
    /// assert!(text.starts_with("digraph {\n") && text.contains("\"__start__\" -> \"a\";"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_dot(&self) -> String {
        let mut text = "digraph {\n  node [shape=box, style=rounded];\n".to_owned();
        self.cluster("", 1, &mut text);
        for edge in &self.edges {
            let mut looks = Vec::new();
            if edge.conditional {
                looks.push("style=dashed".to_owned());
            }
            looks.extend(edge.label.as_ref().map(|label| format!("label={}", quoted(label))));
            let looks = if looks.is_empty() { String::new() } else { format!(" [{}]", looks.join(", ")) };
            _ = writeln!(text, "  {} -> {}{looks};", quoted(&edge.source), quoted(&edge.target));
        }
        text + "}\n"
    }

    /// Writes the nodes whose ids begin with a prefix, and the clusters within.
    fn cluster(&self, prefix: &str, level: usize, text: &mut String) {
        let indent = "  ".repeat(level);
        let mut clusters: Vec<&str> = Vec::new();
        for node in &self.nodes {
            let Some(rest) = node.id.strip_prefix(prefix) else { continue };
            if let Some((inner, _)) = rest.split_once(':') {
                if !clusters.contains(&inner) {
                    clusters.push(inner);
                }
                continue;
            }
            let label = [vec![rest.to_owned()], node.notes()].concat().join("\n");
            let shape = if rest == START || rest == END { ", shape=ellipse" } else { "" };
            _ = writeln!(text, "{indent}{} [label={}{shape}];", quoted(&node.id), quoted(&label));
        }
        for inner in clusters {
            let whole = format!("{prefix}{inner}");
            _ = writeln!(text, "{indent}subgraph {} {{", quoted(&format!("cluster_{whole}")));
            _ = writeln!(text, "{indent}  label={};", quoted(inner));
            self.cluster(&format!("{whole}:"), level + 1, text);
            _ = writeln!(text, "{indent}}}");
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
