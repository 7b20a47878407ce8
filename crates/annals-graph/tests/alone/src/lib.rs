//! A program that depends on `annals-graph` and not on `annals`: `#[derive(State)]` finds the engine through it.

#![cfg(test)]

use annals_graph::prelude::*;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    lines: List<String>,
    topic: Option<String>,
}

#[derive(State, Clone, Default)]
#[state(part_of = Chat)]
struct Topic {
    topic: Option<String>,
}

mod renamed {
    pub(crate) use annals_graph::annals as engine;
}

#[derive(State, Clone, Default)]
#[state(crate = renamed::engine)]
struct Count {
    n: i64,
}

#[test]
fn derived_states_run_without_a_dependency_on_annals() {
    let graph = StateGraph::<Chat>::new()
        .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")]).lines(["said".to_string()])))
        .node("name", |_: &Chat| Ok(Topic { topic: Some("greetings".into()) }))
        .edge(START, "answer")
        .edge("answer", "name")
        .compile()
        .expect("a graph");
    let done = graph.invoke((), Chat::update().messages([Message::human("hi")])).expect("a run");
    let state = done.state();
    assert_eq!((state.messages.len(), state.lines.len(), state.topic.as_deref()), (2, 1, Some("greetings")));
}

#[test]
fn the_engine_may_be_named_by_a_path() {
    let graph = StateGraph::<Count>::new()
        .node("next", |count: &Count| Ok(Count::update().n(count.n + 1)))
        .edge(START, "next")
        .compile()
        .expect("a graph");
    assert_eq!(graph.invoke((), Count::update().n(1)).expect("a run").state().n, 2);
}
