//! Drawings of small graphs as text.

use annals::state::{DynSchema, DynState};
use annals_graph::graph::{CompiledGraph, END, START, StateGraph};

use super::text;

type DynGraph = StateGraph<DynState>;

/// Returns a graph with empty nodes.
fn nodes(names: &[&str]) -> DynGraph {
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build());
    names.iter().fold(graph, |graph, name| graph.node(*name, |_: &DynState| Ok(())))
}

fn branch(graph: DynGraph, from: &str, map: &[(&str, &str)]) -> DynGraph {
    let map: Vec<(String, String)> =
        map.iter().map(|(label, node)| ((*label).to_owned(), (*node).to_owned())).collect();
    graph.branch_to(from, |_: &DynState| "x", map)
}

fn compiled(graph: DynGraph) -> CompiledGraph<DynState> {
    graph.compile().expect("the graph is sound")
}

#[test]
fn a_terminal_shows_layers_labels_and_ways_back() {
    let graph = nodes(&["a", "b", "c"]).edge(START, "a").edge("b", "c");
    let graph = branch(graph, "a", &[("b", "b")]);
    let graph = branch(graph, "c", &[("again", "a"), (END, END)]);
    let shown = text(&compiled(graph).get_graph(0));
    let wanted = "
┌───────────┐
│ __start__ │
└─────┬─────┘
      │
      ▼
  ┌───────┐
  │   a   │
  └─┬─────┘
    ┊   ▲
  ┌┄┘   └┄┐
  ▼       ┊
┌───┐     ┊
│ b │   again
└─┬─┘     ┊
  │       ┊
  └─┐   ┌┄┘
    ▼   ┊
  ┌───────┐
  │   c   │
  └───┬───┘
      ┊
      ▼
 ┌─────────┐
 │ __end__ │
 └─────────┘
";
    assert_eq!(shown, wanted.trim_start_matches('\n'), "\n{shown}");
}

#[test]
fn a_node_that_follows_itself_is_marked_in_its_box() {
    let graph = nodes(&["ask", "answer"]).edge(START, "ask").edge("answer", END);
    let graph = branch(graph, "ask", &[("clear", "answer"), ("unclear", "ask")]);
    let wanted = "
  ┌───────────┐
  │ __start__ │
  └─────┬─────┘
        │
        ▼
┌───────────────┐
│ ask ↺ unclear │
└───────┬───────┘
        ┊
        ┊
      clear
        ┊
        ▼
   ┌─────────┐
   │ answer  │
   └────┬────┘
        │
        ▼
   ┌─────────┐
   │ __end__ │
   └─────────┘
";
    let shown = text(&compiled(graph).get_graph(0));
    assert_eq!(shown, wanted.trim_start_matches('\n'), "\n{shown}");
}

#[test]
fn metadata_stands_in_the_box_of_its_node() {
    let mut drawing = compiled(nodes(&["a"]).edge(START, "a")).get_graph(0);
    drawing.nodes[1].metadata.insert("text".into(), "<b>\"#1\"".into());
    let shown = text(&drawing);
    assert!(shown.contains("│ text = <b>\"#1\"  │"), "\n{shown}");
}
