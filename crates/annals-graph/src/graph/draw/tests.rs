//! Drawings of small graphs, as the reference draws them.

use super::*;
use crate::graph::{CompiledGraph, START, StateGraph};
use crate::state::{DynSchema, DynState};

type Graph = StateGraph<DynState>;

/// A graph with nodes that do nothing.
fn nodes(names: &[&str]) -> Graph {
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build());
    names.iter().fold(graph, |graph, name| graph.node(*name, |_: &DynState| Ok(())))
}

fn branch(graph: Graph, from: &str, map: &[(&str, &str)]) -> Graph {
    let map: Vec<(String, String)> =
        map.iter().map(|(label, node)| ((*label).to_owned(), (*node).to_owned())).collect();
    graph.branch_to(from, |_: &DynState| "x", map)
}

fn compiled(graph: Graph) -> CompiledGraph<DynState> {
    graph.compile().expect("the graph is sound")
}

/// The edges as `from>to`, conditional ones as `from~to`, with labels.
fn edges(drawing: &Drawing) -> Vec<String> {
    let shown = drawing.edges.iter().map(|edge| {
        let arrow = if edge.conditional { '~' } else { '>' };
        let label = edge.label.as_ref().map(|label| format!(" {label}")).unwrap_or_default();
        format!("{}{arrow}{}{label}", edge.source, edge.target)
    });
    shown.collect()
}

#[test]
fn edges_are_those_that_can_be_taken() {
    let chain = nodes(&["a", "b"]).edge(START, "a").edge("a", "b").edge("b", END);
    assert_eq!(edges(&compiled(chain).get_graph(0)), ["__start__>a", "a>b", "b>__end__"]);

    let join = nodes(&["a", "b", "c"]).edge(START, "a").edge(START, "b").join(["a", "b"], "c");
    assert_eq!(
        edges(&compiled(join).get_graph(0)),
        ["__start__>a", "__start__>b", "a>c", "b>c", "c>__end__"],
        "a join is drawn from each of its sources"
    );

    let mapped = branch(nodes(&["a", "b", "c"]).edge(START, "a"), "a", &[("go", "b"), ("c", "c"), ("stop", END)]);
    assert_eq!(
        edges(&compiled(mapped).get_graph(0)),
        ["__start__>a", "a~__end__ stop", "a~b go", "a~c", "b>__end__", "c>__end__"]
    );

    let open = nodes(&["a", "b"]).edge(START, "a").branch("a", |_: &DynState| "b");
    let drawing = compiled(open).get_graph(0);
    assert_eq!(edges(&drawing), ["__start__>a", "a>__end__"], "nobody knows where it leads");
    assert!(drawing.nodes.iter().any(|node| node.id == "b"));
}

#[test]
fn destinations_and_deferred_nodes_have_their_edges() {
    use crate::graph::NodeOptions;
    let go = |_: &DynState| Ok(());
    let options = NodeOptions::new().destinations(["b", END]).labeled_destinations([("c", "later")]);
    let graph = nodes(&["b", "c"]).node_with("a", go, options).edge(START, "a");
    assert_eq!(
        edges(&compiled(graph).get_graph(0)),
        ["__start__>a", "a~__end__", "a~b", "a~c later", "b>__end__", "c>__end__"]
    );

    let graph = nodes(&["a", "b", "long"]).node_with("last", go, NodeOptions::new().defer(true));
    let graph = graph.edge(START, "a").edge(START, "b").edge("a", "last").edge("b", "long");
    let drawing = compiled(graph).get_graph(0);
    // It hangs on what ends before it, too.
    assert_eq!(edges(&drawing), ["__start__>a", "__start__>b", "a>last", "b>long", "long~last", "last>__end__"]);
    assert_eq!(drawing.nodes[4].metadata["defer"], json!(true));

    let graph = nodes(&["a"]).node_with("b", go, NodeOptions::new().error_handler(go)).edge(START, "a").edge("a", "b");
    let drawing = compiled(graph).get_graph(0);
    let ids: Vec<&str> = drawing.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!(ids, ["__start__", "a", "__error_handler__b", "b", "__end__"], "a handler has no edges");
}

#[test]
fn loops_end_and_keep_their_edges() {
    let plain = nodes(&["a", "b"]).edge(START, "a").edge("a", "b").edge("b", "a");
    assert_eq!(edges(&compiled(plain).get_graph(0)), ["__start__>a", "a>b", "b>a", "b~__end__"]);

    let own = branch(nodes(&["a"]).edge(START, "a"), "a", &[("again", "a")]);
    assert_eq!(edges(&compiled(own).get_graph(0)), ["__start__>a", "a~a again", "a~__end__"]);
}

#[test]
fn subgraphs_unfold_as_deep_as_asked() {
    let inner = compiled(nodes(&["c1", "c2"]).name("Inner").edge(START, "c1").edge("c1", "c2"));
    let middle = compiled(nodes(&["m"]).name("Middle").node("deep", inner).edge(START, "m").edge("m", "deep"));
    let graph = compiled(nodes(&["a"]).node("sub", middle).edge(START, "a").edge("a", "sub"));
    assert_eq!(edges(&graph.get_graph(0)), ["__start__>a", "a>sub", "sub>__end__"]);
    assert_eq!(edges(&graph.get_graph(1)), ["__start__>a", "a>sub:m", "sub:deep>__end__", "sub:m>sub:deep"]);
    let all = graph.get_graph(usize::MAX);
    assert_eq!(
        edges(&all),
        ["__start__>a", "a>sub:m", "sub:deep:c2>__end__", "sub:m>sub:deep:c1", "sub:deep:c1>sub:deep:c2"]
    );
    assert!(all.to_mermaid(true).contains("\tsubgraph deep\n\tsub\\3adeep\\3ac1(c1)\n"));
    let dot = all.to_dot();
    assert!(dot.contains("  subgraph \"cluster_sub\" {\n    label=\"sub\";\n    \"sub:m\" [label=\"m\"];\n"), "{dot}");
    assert!(dot.contains("    subgraph \"cluster_sub:deep\" {\n"), "{dot}");
    let found = graph.get_subgraphs(true);
    let found: Vec<(&str, &str)> = found.iter().map(|(at, name)| (at.as_str(), name.as_str())).collect();
    assert_eq!(found, [("sub", "Middle"), ("sub|deep", "Inner")]);
    assert_eq!(graph.get_subgraphs(false).len(), 1);
}

#[test]
fn two_subgraphs_of_one_name_get_two_ids() {
    let inner = || compiled(nodes(&["x", "y"]).edge(START, "x").edge("x", "y"));
    let outer = || compiled(nodes(&["a"]).node("same", inner()).edge(START, "a").edge("a", "same"));
    let graph = compiled(nodes(&[]).node("p", outer()).node("q", outer()).edge(START, "p").edge("p", "q"));
    let text = graph.get_graph(usize::MAX).to_mermaid(false);
    assert_eq!(text.matches("subgraph same\n").count(), 1, "{text}");
    assert_eq!(text.matches("subgraph q\\3asame [same]\n").count(), 1, "{text}");
}

#[test]
fn breakpoints_and_metadata_are_shown_with_their_signs_escaped() {
    let graph = nodes(&["a", "b", "c"]).edge(START, "a").edge("a", "b").edge("b", "c");
    let graph = compiled(graph.interrupt_before(["a", "b"]).interrupt_after(["b", "c"]));
    let mut drawing = graph.get_graph(0);
    let shown: Vec<_> = drawing.nodes.iter().filter_map(|node| node.metadata.get("__interrupt")?.as_str()).collect();
    assert_eq!(shown, ["before", "before,after", "after"]);
    drawing.nodes[1].metadata = [
        ("text", json!("<b>\"#1\"")),
        ("list", json!([1, true, 0.5])),
        ("nested", json!({"a": 1})),
        ("tiny", json!(1e-7)),
        ("huge", json!(1e22)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    let text = drawing.to_mermaid(true);
    let label = "a(a<hr/><small><em>text = #60;b#62;#quot;#35;1#quot;\nlist = 1, True, 0.5\ntiny = 1e-07\nhuge = 1e+22</em></small>)";
    assert!(text.contains(label), "{text}");
}

#[test]
fn json_is_in_the_form_of_the_reference() {
    let graph = compiled(branch(nodes(&["a"]).edge(START, "a"), "a", &[("done", END)]).interrupt_before(["a"]));
    let drawing = graph.get_graph(0);
    let shown = json!({
        "nodes": [
            {"id": "__start__", "type": "runnable", "data": {"name": "__start__"}},
            {"id": "a", "type": "runnable", "data": {"name": "a"}, "metadata": {"__interrupt": "before"}},
            {"id": "__end__"},
        ],
        "edges": [
            {"source": "__start__", "target": "a"},
            {"source": "a", "target": "__end__", "data": "done", "conditional": true},
        ],
    });
    assert_eq!(drawing.to_json(), shown);
    assert_eq!(serde_json::to_value(&drawing).expect("it is plain"), shown);
}
