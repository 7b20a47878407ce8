//! Tests the building of graphs: sequences, options of nodes, and the problems of an invalid graph.

use std::time::Duration;

use annals_graph::graph::GraphProblem as P;
use annals_graph::graph::{Named, NodeDefaults};
use annals_graph::prelude::*;

#[derive(State, Clone, Default)]
struct Log {
    #[channel(append)]
    log: List<String>,
}

fn say(word: &'static str) -> impl Fn(&Log) -> NodeResult<LogUpdate> + Clone {
    move |_| Ok(Log::update().log([word.to_string()]))
}

#[test]
fn every_problem_is_reported_at_once() {
    let second = Duration::from_secs(1);
    let error = StateGraph::<Log>::new()
        .node("a", say("a"))
        .node("a", say("a"))
        .node_with("goes", say("goes"), NodeOptions::new().destinations(["nowhere", END]))
        .node_with("slow", say("slow"), NodeOptions::new().timeout(second))
        .node_with("never", |_: std::sync::Arc<Log>| async { Ok(()) }, NodeOptions::new().timeout(Duration::ZERO))
        .node_with("b", say("b"), NodeOptions::new().error_handler(say("b failed")))
        .node("__error_handler__b", say("b"))
        .node("__default_error_handler__", say("b"))
        .node_defaults(NodeDefaults::new().error_handler(say("failed")))
        .sequence(Vec::<(String, fn(&Log) -> NodeResult<()>)>::new())
        .branch("a", Named("way", |_: &Log| "b"))
        .branch("a", Named("way", |_: &Log| "b"))
        .branch_to("a", |_: &Log| "x", [("x", "missing")])
        .join(["a", START], "b")
        .interrupt_before(["no", "nor"])
        .interrupt_after(["that"])
        .compile()
        .unwrap_err();
    assert_eq!(error.class(), "ValueError");
    let has = |what: fn(&P) -> bool| error.problems.iter().filter(|problem| what(problem)).count();
    assert_eq!(has(|p| matches!(p, P::DuplicateNode { node } if node == "a")), 1);
    assert_eq!(has(|p| matches!(p, P::DuplicateNode { node } if node.starts_with("__"))), 2);
    assert_eq!(has(|p| matches!(p, P::UnknownTarget { node, .. } if node == "nowhere")), 1);
    assert_eq!(has(|p| matches!(p, P::SyncTimeout { node } if node == "slow")), 1);
    assert_eq!(has(|p| matches!(p, P::BadTimeout { node } if node == "never")), 1);
    assert_eq!(has(|p| matches!(p, P::EmptySequence)), 1);
    assert_eq!(has(|p| matches!(p, P::DuplicateBranch { branch, .. } if branch == "way")), 1);
    assert_eq!(has(|p| matches!(p, P::UnknownBranchTarget { node, .. } if node == "missing")), 1);
    assert_eq!(has(|p| matches!(p, P::UnknownSource { node } if node == START)), 1);
    assert_eq!(has(|p| matches!(p, P::UnknownBreakpoint { .. })), 3);
    assert_eq!(has(|p| matches!(p, P::NoEntry)), 1);
    assert_eq!(error.problems.len(), 14, "{error}");
}

#[test]
fn a_channel_with_two_colons_is_refused() {
    let schema = DynSchema::new().last("one:colon").last("a:b:c").build();
    let node = |_: &annals::state::DynState| Ok(());
    let error = StateGraph::with_schema(schema).node("a", node).edge(START, "a").compile().unwrap_err();
    match &error.problems[..] {
        [P::BadName { what: "channel", name, reason }] => assert!(name == "a:b:c" && reason.contains("two colons")),
        _ => panic!("{error}"),
    }
}

#[test]
fn closures_as_conditional_edges_do_not_clash() {
    let graph = StateGraph::<Log>::new()
        .sequence((("a", say("a")), ("b", say("b"))))
        .node("c", say("c"))
        .node("d", say("d"))
        .entry("a")
        .finish("b")
        .branch("b", |_: &Log| "c")
        .branch("b", |_: &Log| Some("d"))
        .compile()
        .unwrap();
    let done = graph.invoke((), Log::update()).unwrap();
    assert_eq!(done.state().log.to_vec(), ["a", "b", "c", "d"]);
}

#[test]
fn a_default_timeout_holds_for_nodes_and_handlers_alike() {
    let limit = NodeDefaults::new().timeout(Duration::from_secs(1));
    let quick = |_: std::sync::Arc<Log>| async { Ok(()) };
    let graph = |handler: NodeOptions<Log>| {
        StateGraph::<Log>::new()
            .node_with("a", quick, handler)
            .node_defaults(NodeDefaults::new().timeout(Duration::from_secs(1)))
            .entry("a")
            .compile()
            .map(|_| ())
            .map_err(|error| error.problems)
    };
    assert_eq!(graph(NodeOptions::new()), Ok(()));
    let slow = graph(NodeOptions::new().error_handler(say("handled")));
    assert_eq!(slow, Err(vec![P::SyncTimeout { node: "a".into() }]));
    let blocking = StateGraph::<Log>::new().node("a", say("a")).node_defaults(limit).entry("a").compile();
    assert_eq!(blocking.unwrap_err().problems, [P::SyncTimeout { node: "a".into() }]);
}
