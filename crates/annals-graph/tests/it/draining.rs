//! Runs that are asked to stop before a superstep, on both backends: the input that was accepted is not lost.

use annals_graph::Durability;
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;
use annals_graph::task::RunControl;
use macro_rules_attribute::apply;

use crate::backends::place;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Work {
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    topic: String,
}

const DURABILITIES: [Durability; 3] = [Durability::Sync, Durability::Async, Durability::Exit];

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn input() -> WorkUpdate {
    Work::update().log(["input".to_owned()]).topic("boats")
}

fn work(name: &'static str) -> impl Fn(&Work, &Context) -> NodeResult<WorkUpdate> {
    move |state: &Work, _: &Context| Ok(Work::update().log([format!("{name} {} {}", state.topic, state.log.len())]))
}

fn log(outcome: &Outcome<Work>) -> Vec<String> {
    outcome.state().log.to_vec()
}

/// Two nodes, one after the other.
fn two_steps(persistence: Persistence) -> CompiledGraph<Work> {
    StateGraph::<Work>::new()
        .node("one", work("one"))
        .node("two", work("two"))
        .edge(START, "one")
        .edge("one", "two")
        .persistence(persistence)
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_run_that_is_drained_before_its_first_step_keeps_its_input() {
    let branched = StateGraph::<Work>::new()
        .node("one", work("one"))
        .node("two", work("two"))
        .branch(START, |state: &Work| if state.topic == "boats" { "one" } else { "two" })
        .edge("one", "two")
        .compile()
        .unwrap();
    for graph in [two_steps(Persistence::PerInvocation), branched] {
        for durability in DURABILITIES {
            let thread = thread().store().thread(format!("{durability:?}")).unwrap();
            let control = RunControl::new();
            control.request_drain("shutdown");
            let drained = graph.run(&thread).durability(durability).control(&control).invoke(input()).unwrap();
            assert!(matches!(drained, Outcome::Drained { .. }), "{drained:?}");
            // The next process has an empty cache and finds the content of the file.
            thread.store().clear_head_cache();
            let done = graph.run(&thread).durability(durability).invoke(Input::Continue).unwrap();
            assert_eq!(log(&done), ["input", "one boats 1", "two boats 2"], "{durability:?}");
            assert!(thread.store().check().unwrap().problems.is_empty());
            assert!(thread.store().delete_thread(thread.id()).unwrap().is_erased());
        }
    }
}

#[apply(each_backend)]
fn a_subgraph_beside_a_task_that_drains_the_run_keeps_its_input() {
    for persistence in [Persistence::PerInvocation, Persistence::PerThread, Persistence::Stateless] {
        let graph = StateGraph::<Work>::new()
            .node("drains", |_: &Work, context: &Context| {
                context.control().request_drain("shutdown");
                Ok(Work::update().log(["drains".to_owned()]))
            })
            .node("inner", two_steps(persistence))
            .edge(START, "drains")
            .edge(START, "inner")
            .compile()
            .unwrap();
        for durability in DURABILITIES {
            let thread = thread().store().thread(format!("{persistence:?} {durability:?}")).unwrap();
            let run = || graph.run(&thread).durability(durability).concurrency_max(1);
            let drained = run().invoke(input()).unwrap();
            assert!(matches!(drained, Outcome::Drained { .. }), "{drained:?}");
            thread.store().clear_head_cache();
            let done = run().invoke(Input::Continue).unwrap();
            let expected = ["input", "drains", "input", "one boats 1", "two boats 2"];
            assert_eq!(log(&done), expected, "{persistence:?} {durability:?}");
            assert!(thread.store().check().unwrap().problems.is_empty());
        }
    }
}

#[apply(each_backend)]
fn a_subgraph_that_is_sent_an_argument_keeps_it_when_the_run_is_drained() {
    let graph = StateGraph::<Work>::new()
        .node("sends", |_: &Work, _: &Context| {
            let argument = Value::from(serde_json::json!({ "topic": "trains", "log": ["sent"] }));
            Ok(Command::goto(SendTo::new("drains", Value::Null)).and_goto(SendTo::new("inner", argument)))
        })
        .node("drains", |_: &Work, context: &Context| {
            context.control().request_drain("shutdown");
            Ok(Work::update())
        })
        .node("inner", two_steps(Persistence::PerInvocation))
        .edge(START, "sends")
        .compile()
        .unwrap();
    for durability in DURABILITIES {
        let thread = thread().store().thread(format!("{durability:?}")).unwrap();
        let run = || graph.run(&thread).durability(durability).concurrency_max(1);
        let drained = run().invoke(input()).unwrap();
        assert!(matches!(drained, Outcome::Drained { .. }), "{drained:?}");
        thread.store().clear_head_cache();
        let done = run().invoke(Input::Continue).unwrap();
        assert_eq!(log(&done), ["input", "sent", "one trains 1", "two trains 2"], "{durability:?}");
        assert_eq!(done.state().topic, "trains");
    }
}
