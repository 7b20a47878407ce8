//! Makes the drawing of a graph from the edges that a walk found, and unfolds subgraphs in it.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::super::compiled::{CompiledGraph, Graph};
use super::super::{END, START};
use super::walk::walk;
use super::{Drawing, DrawingEdge, DrawingNode};

impl<S> CompiledGraph<S> {
    /// Returns a drawing of the graph, with its subgraphs unfolded `depth` levels deep: 0 for none, `usize::MAX` for
    /// all (`get_graph`).
    ///
    /// Edges are found by a walk through the graph: a loop of plain edges costs some hundred supersteps without user
    /// code.
    #[doc(alias = "draw_mermaid")]
    #[doc(alias = "xray")]
    pub fn get_graph(&self, depth: usize) -> Drawing {
        self.graph.drawing(depth)
    }

    /// Returns the subgraphs, each as the name of its node and its own name, in the order in which the nodes were
    /// added.
    ///
    /// With `recurse` the subgraphs of a subgraph follow it, as `outer|inner`.
    ///
    /// # Example
    /// ```
    /// use annals::state::DynState;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let schema = || DynSchema::new().last("n").build();
    /// let inner = StateGraph::with_schema(schema())
    ///     .name("Inner")
    ///     .node("work", |_: &DynState| Ok(()))
    ///     .edge(START, "work")
    ///     .compile()?;
    /// let graph = StateGraph::with_schema(schema()).node("sub", inner).edge(START, "sub").compile()?;
    /// assert_eq!(graph.get_subgraphs(true), [("sub".to_owned(), "Inner".to_owned())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_subgraphs(&self, recurse: bool) -> Vec<(String, String)> {
        subgraphs(&self.graph, recurse)
    }
}

fn subgraphs(graph: &Graph, recurse: bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, child) in children(graph) {
        found.push((name.to_owned(), child.name.clone()));
        if recurse {
            found.extend(subgraphs(child, true).into_iter().map(|(inner, of)| (format!("{name}|{inner}"), of)));
        }
    }
    found
}

/// Returns the graphs that are nodes and store checkpoints, by the names of the nodes. A stateless graph is not shown
/// as a subgraph, as in the reference.
fn children(graph: &Graph) -> impl Iterator<Item = (&str, &Arc<Graph>)> {
    graph.nodes.iter().filter_map(|node| Some((&*node.name, node.stored_child()?)))
}

fn draw(graph: &Graph, depth: usize) -> Drawing {
    let found = walk(graph);
    let mut drawing = Drawing::default();
    let start = DrawingNode { id: START.into(), metadata: Map::new() };
    drawing.nodes.extend(
        (0..graph.nodes.len())
            .map(|node| DrawingNode { id: graph.nodes[node].name.to_string(), metadata: graph.metadata_shown(node) }),
    );
    drawing.nodes.insert(if graph.entry { graph.nodes.len() } else { 0 }, start);
    for node in graph.nodes.iter().filter(|_| graph.entry) {
        connect(&mut drawing, START, &node.name, false, None);
    }
    for (source, target, conditional, label) in &found.edges {
        let label = label.as_ref().filter(|label| *label != target).map(ToString::to_string);
        connect(&mut drawing, source, target, *conditional, label);
    }
    let mut ends: Vec<&Arc<str>> =
        found.edges.iter().map(|(_, target, ..)| target).filter(|to| &***to != END).collect();
    ends.retain(|end| !found.edges.iter().any(|(source, ..)| source == *end));
    ends.sort_unstable();
    ends.dedup();
    for end in &ends {
        connect(&mut drawing, end, END, false, None);
    }
    let reaches_end = found.edges.iter().any(|(_, target, ..)| &**target == END);
    if let ([last], true, false) = (found.last.as_slice(), ends.is_empty(), reaches_end) {
        connect(&mut drawing, last, END, true, None);
    }
    if depth > 0 {
        for (name, child) in children(graph) {
            unfold(&mut drawing, name, draw(child, depth - 1));
        }
    }
    drawing
}

/// Adds an edge unless there is one between the two.
fn connect(drawing: &mut Drawing, source: &str, target: &str, conditional: bool, label: Option<String>) {
    if drawing.edges.iter().any(|edge| edge.source == source && edge.target == target) {
        return;
    }
    if target == END && !drawing.nodes.iter().any(|node| node.id == END) {
        drawing.nodes.push(DrawingNode { id: END.into(), metadata: Map::new() });
    }
    drawing.edges.push(DrawingEdge { source: source.into(), target: target.into(), conditional, label });
}

/// Replaces the node of a subgraph by the drawing of the subgraph, without its start and end where one node remains
/// there.
fn unfold(drawing: &mut Drawing, name: &str, mut inner: Drawing) {
    if inner.nodes.len() < 2 || inner.first(None).is_none() || inner.last(None).is_none() {
        return;
    }
    let first = inner.first(None).map(|node| node.id.clone());
    trim(&mut inner, first, |drawing, without| drawing.first(without).is_some(), |edge| &edge.source);
    let last = inner.last(None).map(|node| node.id.clone());
    trim(&mut inner, last, |drawing, without| drawing.last(without).is_some(), |edge| &edge.target);
    let inside = |id: &str| format!("{name}:{id}");
    let (Some(first), Some(last)) =
        (inner.first(None).map(|node| inside(&node.id)), inner.last(None).map(|node| inside(&node.id)))
    else {
        return;
    };
    debug_assert!(drawing.nodes.iter().filter(|node| node.id == name).count() == 1, "a subgraph is one node");
    drawing.nodes.retain(|node| node.id != name);
    drawing.nodes.extend(inner.nodes.into_iter().map(|node| DrawingNode { id: inside(&node.id), ..node }));
    for edge in &mut drawing.edges {
        if edge.source == name {
            edge.source.clone_from(&last);
        }
        if edge.target == name {
            edge.target.clone_from(&first);
        }
    }
    let edges = inner.edges.into_iter();
    drawing.edges.extend(edges.map(|edge| DrawingEdge {
        source: inside(&edge.source),
        target: inside(&edge.target),
        ..edge
    }));
}

/// Removes the node at one side of a drawing if it has one edge, and another node is then the only one at that side.
fn trim(
    drawing: &mut Drawing,
    node: Option<String>,
    leaves_one: impl Fn(&Drawing, Option<&str>) -> bool,
    side: impl Fn(&DrawingEdge) -> &String,
) {
    let Some(node) = node else { return };
    if leaves_one(drawing, Some(&node)) && drawing.edges.iter().filter(|edge| *side(edge) == node).count() == 1 {
        drawing.nodes.retain(|other| other.id != node);
        drawing.edges.retain(|edge| edge.source != node && edge.target != node);
    }
}

impl Graph {
    /// Returns a drawing, as [`CompiledGraph::get_graph`].
    pub(crate) fn drawing(&self, depth: usize) -> Drawing {
        draw(self, depth)
    }

    /// Returns the declared targets of the conditional edges and commands of a node, with their labels; `None` is the
    /// start.
    pub(super) fn known_targets(&self, node: Option<usize>) -> Vec<(Option<Arc<str>>, Arc<str>)> {
        let out = node.map_or(&self.start, |node| &self.nodes[node].out);
        let own = node.map(|node| &self.nodes[node].settings.destinations).into_iter().flatten();
        let own = own.map(|(target, label)| (label.clone(), Arc::clone(target)));
        let maps = out.branches.iter().filter_map(|branch| branch.map.as_ref()).flatten();
        own.chain(maps.map(|(label, target)| (Some(Arc::clone(label)), Arc::clone(target)))).collect()
    }

    /// Returns whether a trigger fires only when no other task is left: that of a deferred node.
    pub(super) fn waits_for_the_end(&self, channel: u32) -> bool {
        self.nodes.iter().any(|node| node.settings.defer && node.triggers.contains(&channel))
    }

    /// Returns the metadata of a node for a drawing.
    fn metadata_shown(&self, node: usize) -> Map<String, Json> {
        let settings = &self.nodes[node].settings;
        let mut shown = settings.metadata.as_deref().cloned().unwrap_or_default();
        if settings.defer {
            shown.insert("defer".into(), true.into());
        }
        let before = self.interrupt_before.nodes.contains(&node);
        let after = self.interrupt_after.nodes.contains(&node);
        let stops = match (before, after) {
            (true, true) => "before,after",
            (true, false) => "before",
            (false, true) => "after",
            (false, false) => return shown,
        };
        shown.insert("__interrupt".into(), stops.into());
        shown
    }
}
