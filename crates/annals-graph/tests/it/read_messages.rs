//! The stream of messages leaves out those that a node of the run has read.

use annals_graph::graph::{CachePolicy, Own};
use annals_graph::prelude::*;
use annals_graph::{Run, StreamPart, block_on};
use macro_rules_attribute::apply;

use crate::backends::new_thread;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    topic: String,
}

/// The nodes of the messages that a run streams, and the ids.
fn streamed(run: Run<'_, Chat>, input: Input, modes: &[StreamMode]) -> Vec<String> {
    let parts: Vec<_> = run.stream(input, modes).unwrap().map(Result::unwrap).collect();
    let message = |part: &StreamPart<Chat>| match &part.data {
        StreamData::Message(part) => Some(format!("{} {}", part.task.node(), part.message.id.as_deref().unwrap())),
        _ => None,
    };
    parts.iter().filter_map(message).collect()
}

fn asked(messages: impl IntoIterator<Item = Message>) -> Input {
    annals_graph::IntoInput::<Chat, _>::into_input(Chat::update().messages(messages))
}

fn ai(id: &str) -> Message {
    Message::ai(format!("text of {id}")).with_id(id)
}

/// START -> route, which sends a value to rewrite, which knows no messages and writes `old` and `new`.
fn rewriting() -> CompiledGraph<Chat> {
    StateGraph::<Chat>::new()
        .node("route", |_: &Chat| Ok(Command::goto_all([SendTo::new("rewrite", "now")])))
        .node(
            "rewrite",
            Own(|_: String| Ok(Chat::update().messages([Message::ai("changed").with_id("old"), ai("new")]))),
        )
        .edge(START, "route")
        .compile()
        .unwrap()
}

#[test]
fn a_message_that_another_node_has_read_is_not_streamed_again() {
    let graph = rewriting();
    for modes in [&[StreamMode::Messages][..], &[StreamMode::Updates, StreamMode::Messages, StreamMode::Values]] {
        assert_eq!(streamed(graph.run(()), asked([ai("old")]), modes), ["rewrite new"]);
    }
    // A later superstep changes a message that the first one read and its sibling did not.
    let streamed = block_on(async {
        let mut ids = Vec::new();
        let mut stream = graph.run(()).astream(asked([ai("old")]), &[StreamMode::Messages]).await.unwrap();
        while let Some(part) = stream.next().await {
            let StreamData::Message(part) = part.unwrap().data else { panic!("only messages are shown") };
            ids.push(part.message.id.clone().unwrap());
        }
        ids
    });
    assert_eq!(streamed, ["new"]);
}

#[test]
fn a_message_in_a_long_history_is_found_as_one_that_was_read() {
    let history: Vec<Message> = (0..600).map(|n| ai(&format!("m{n}"))).chain([ai("old")]).collect();
    assert_eq!(streamed(rewriting().run(()), asked(history), &[StreamMode::Messages]), ["rewrite new"]);
}

/// The message `old` is read by no node of this run: the one node gets the topic alone.
#[test]
fn a_message_that_no_node_of_the_run_has_read_is_streamed() {
    let change = |_: &Chat| Ok(Chat::update().messages([Message::ai("changed").with_id("old")]));
    let graph = StateGraph::<Chat>::new()
        .node_with("change", change, NodeOptions::new().input(["topic"]))
        .edge(START, "change")
        .compile()
        .unwrap();
    assert_eq!(streamed(graph.run(()), asked([ai("old")]), &[StreamMode::Messages]), ["change old"]);
}

/// START -> agent(think -> ask -> act) -> close. `act` and `close` write one message each.
fn agent() -> CompiledGraph<Chat> {
    let inner = StateGraph::<Chat>::new()
        .node("think", |_: &Chat| Ok(Chat::update().messages([ai("thought")])))
        .node("ask", |_: &Chat, context: &Context| {
            context.interrupt("may I?")?;
            Ok(())
        })
        .node("act", |_: &Chat| Ok(Chat::update().messages([ai("deed")])))
        .edge(START, "think")
        .edge("think", "ask")
        .edge("ask", "act")
        .compile()
        .unwrap();
    StateGraph::<Chat>::new()
        .node("agent", inner)
        .node("close", |_: &Chat| Ok(Chat::update().messages([ai("bye")])))
        .edge(START, "agent")
        .edge("agent", "close")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn after_a_resume_value_a_nested_agent_shows_its_new_messages_alone() {
    let graph = agent();
    let thread = new_thread();
    let run = || graph.run(&thread).subgraphs(true);
    assert_eq!(streamed(run(), asked([Message::human("hi").with_id("q")]), &[StreamMode::Messages]), ["think thought"]);
    thread.store().clear_head_cache();
    let rest = streamed(run(), Input::Command(Command::resume("yes")), &[StreamMode::Messages]);
    assert_eq!(rest, ["act deed", "close bye"]);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(state.values.messages.len(), 4);
    // Without subgraphs the stream knows the outermost graph alone: its node hands all of them up.
    let thread = new_thread();
    let run = || graph.run(&thread);
    let begun = streamed(run(), asked([Message::human("hi").with_id("q")]), &[StreamMode::Messages]);
    assert!(begun.is_empty(), "{begun:?}");
    let rest = streamed(run(), Input::Command(Command::resume("yes")), &[StreamMode::Messages]);
    assert_eq!(rest, ["agent thought", "agent deed", "close bye"]);
}

/// A cached result is not shown; who reads it has read its messages.
#[apply(each_backend)]
fn messages_that_came_from_a_cache_count_as_read_once_a_node_has_read_them() {
    let thread = new_thread();
    let say = |_: &Chat| Ok(Chat::update().messages([ai("cached")]));
    let graph = StateGraph::<Chat>::new()
        .node("look", |_: &Chat| Ok(()))
        .node_with("say", say, NodeOptions::new().input(["topic"]).cache(CachePolicy::new()))
        .node("read", |_: &Chat| Ok(()))
        .node("change", Own(|_: String| Ok(Chat::update().messages([Message::ai("other").with_id("cached")]))))
        .edge(START, "look")
        .edge("look", "say")
        .edge("say", "read")
        .branch("read", |_: &Chat| vec![SendTo::new("change", "it")])
        .cache(&thread.store().cache())
        .compile()
        .unwrap();
    let modes = [StreamMode::Messages];
    assert_eq!(streamed(graph.run(()), asked([]), &modes), ["say cached"]);
    assert!(streamed(graph.run(&thread), asked([]), &modes).is_empty(), "the result is cached, and `read` has read it");
}
