//! The errors of runs: the class that LangGraph raises in place of each, the codes, and the texts that depend on a
//! field.

use annals::base::{CodecError, Encoded};
use annals::state::StateError;
use annals_graph::graph::GraphProblem;
use annals_graph::prelude::*;
use annals_graph::{EditProblem, ResumeProblem, RunError, TimeoutKind};
use macro_rules_attribute::apply;

use crate::lines::{Log, line};
use crate::places::new_thread;

fn x() -> String {
    "x".into()
}

fn codec() -> CodecError {
    Encoded::encode("x").unwrap().decode::<i64>().unwrap_err()
}

fn timed_out(kind: TimeoutKind) -> RunError {
    RunError::NodeTimeout { node: x(), kind, after_ms: 7, run_timeout_ms: Some(5), idle_timeout_ms: Some(3) }
}

#[test]
fn each_error_has_the_class_of_the_reference() {
    let unknown = RunError::UnknownInterrupt { problem: ResumeProblem::EmptyMap, pending: Vec::new() };
    let classes = [
        (RunError::Node { node: x(), source: "busy".into() }, "Exception"),
        (RunError::NodePanicked { node: x(), reason: x() }, "Exception"),
        (RunError::NotAnUpdate { graph: x() }, "Exception"),
        (timed_out(TimeoutKind::Run), "NodeTimeoutError"),
        (RunError::NodeCancelled { node: x() }, "NodeCancelledError"),
        (RunError::SyncTimeout { node: x() }, "ValueError"),
        (RunError::BadTimeout { node: x() }, "ValueError"),
        (RunError::NoTimer { node: x() }, "RuntimeError"),
        (RunError::NoStore, "RuntimeError"),
        (RunError::SeveralInterrupts { ids: Vec::new() }, "RuntimeError"),
        (RunError::State(StateError::UnknownChannel { channel: x(), known: Vec::new() }), "InvalidUpdateError"),
        (RunError::State(StateError::NoList { channel: "c".into(), expected: "text" }), "TypeError"),
        (RunError::Codec(codec()), "TypeError"),
        (RunError::NoContext { graph: x(), expected: "i64", found: false }, "TypeError"),
        (RunError::EmptyInput, "EmptyInputError"),
        (RunError::NoParentGraph, "InvalidUpdateError"),
        (RunError::SendToEnd, "InvalidUpdateError"),
        (RunError::AmbiguousUpdate { candidates: Vec::new() }, "InvalidUpdateError"),
        (RunError::UnknownNode { node: x(), known: Vec::new() }, "InvalidUpdateError"),
        (RunError::RecursionLimit { limit: 3 }, "GraphRecursionError"),
        (unknown, "UnknownInterruptError"),
        (RunError::UnknownLabel { label: x() }, "KeyError"),
        (RunError::BadDestination { name: x() }, "ValueError"),
        (RunError::BadRecursionLimit { limit: 0 }, "ValueError"),
        (RunError::BadKey { reason: x() }, "ValueError"),
        (RunError::NoCache, "ValueError"),
        (RunError::NoThread, "ValueError"),
        (RunError::UnknownOutput { channel: x(), known: Vec::new() }, "ValueError"),
        (RunError::Breakpoint(GraphProblem::DuplicateNode { node: x() }), "ValueError"),
        (RunError::Edit(EditProblem::NoSupersteps), "ValueError"),
        (RunError::Edit(EditProblem::NoUpdates { superstep: 1 }), "ValueError"),
        (RunError::Edit(EditProblem::NeedsNode), "InvalidUpdateError"),
        (RunError::Edit(EditProblem::NothingToCopy), "InvalidUpdateError"),
        (RunError::ParentCommand, "ParentCommand"),
    ];
    for (error, class) in classes {
        assert_eq!(error.class(), class, "{error:?}");
    }
    let changed = RunError::GraphChanged { graph: x(), stored: x(), present: x(), parts: vec!["nodes", "edges"] };
    assert_eq!(changed.class(), "ValueError");
    assert!(changed.to_string().contains(": nodes, edges differ"), "{changed}");
}

#[test]
fn an_error_has_the_code_of_the_reference_if_there_is_one() {
    assert_eq!(RunError::RecursionLimit { limit: 3 }.code(), Some("GRAPH_RECURSION_LIMIT"));
    assert_eq!(RunError::NotAnUpdate { graph: x() }.code(), Some("INVALID_GRAPH_NODE_RETURN_VALUE"));
    assert_eq!(RunError::NoStore.code(), None);
    assert_eq!(RunError::State(StateError::NoList { channel: "c".into(), expected: "text" }).code(), None);
}

#[test]
fn an_error_names_the_limit_and_what_was_given() {
    let of_run = timed_out(TimeoutKind::Run).to_string();
    assert_eq!(of_run, "node \"x\" was stopped after 7 ms: it may take 5 ms");
    let idle = timed_out(TimeoutKind::Idle).to_string();
    assert_eq!(idle, "node \"x\" was stopped after 7 ms: it may take 3 ms without a sign of life");
    assert_eq!([TimeoutKind::Run, TimeoutKind::Idle].map(|kind| kind.to_string()), ["run", "idle"]);
    let given = |found| RunError::NoContext { graph: x(), expected: "i64", found }.to_string();
    assert!(given(false).ends_with("was given none"), "{}", given(false));
    assert!(given(true).ends_with("was given one of another type"), "{}", given(true));
}

#[test]
fn a_refused_resume_value_has_the_reason_of_the_field() {
    let ids = || vec![x()];
    let reasons = [
        (ResumeProblem::NotPending { ids: ids() }, "not_pending"),
        (ResumeProblem::Changed { ids: ids() }, "changed"),
        (ResumeProblem::EmptyMap, "empty_map"),
        (ResumeProblem::Ambiguous, "ambiguous"),
    ];
    for (problem, reason) in reasons {
        assert_eq!(problem.reason(), reason);
    }
}

/// Two nodes that ask beside each other.
fn asking() -> CompiledGraph<Log> {
    let ask = |_: &Log, context: &Context| Ok(line(context.interrupt("?")?.as_str().unwrap_or_default()));
    StateGraph::<Log>::new().node("a", ask).node("b", ask).edge(START, "a").edge(START, "b").compile().unwrap()
}

fn by_id<const N: usize>(values: [(&str, &str); N]) -> Command {
    Command::resume(Value::Map(values.map(|(id, value)| (id.to_owned(), Value::from(value))).into_iter().collect()))
}

#[apply(each_backend)]
fn a_resume_value_is_compared_with_the_open_interrupts_if_the_run_is_strict() {
    let (graph, thread) = (asking(), new_thread());
    let asked = graph.invoke(&thread, Log::update()).unwrap();
    let [a, b] = [0, 1].map(|at: usize| asked.interrupts()[at].id.clone());
    let refused = |strict: bool, command: Command| {
        let error = graph.run(&thread).strict_resume(strict).invoke(command).unwrap_err();
        match error.as_run() {
            Some(RunError::UnknownInterrupt { problem, pending }) => {
                let mut pending = pending.clone();
                pending.sort_unstable();
                let mut open = vec![a.clone(), b.clone()];
                open.sort_unstable();
                assert_eq!(pending, open);
                problem.clone()
            }
            Some(RunError::SeveralInterrupts { ids }) => {
                assert_eq!(ids.len(), 2);
                ResumeProblem::Ambiguous
            }
            _ => panic!("{error:?}"),
        }
    };
    assert_eq!(refused(true, Command::resume("one")), ResumeProblem::Ambiguous);
    assert_eq!(refused(false, Command::resume("one")), ResumeProblem::Ambiguous);
    assert_eq!(refused(true, by_id([])), ResumeProblem::EmptyMap);
    let unknown = "0".repeat(32);
    let problem = refused(true, by_id([(&a, "one"), (&unknown, "two")]));
    assert_eq!(problem, ResumeProblem::NotPending { ids: vec![unknown] });
    // An older checkpoint may ask again, so a run there is not strict. The stored values are taken first.
    let done = graph.run(&thread).strict_resume(true).invoke(by_id([(&a, "one"), (&b, "two")])).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["one", "two"]);
    let older = thread.head().unwrap().unwrap().parent().unwrap().unwrap();
    let again = graph.run(&older).strict_resume(true).invoke(by_id([(&a, "three"), (&b, "four")])).unwrap();
    assert_eq!(again.state().lines.to_vec(), ["one", "two"]);
}

#[apply(each_backend)]
fn a_run_ends_at_its_recursion_limit_and_goes_on_from_there() {
    let graph = ["a", "b", "c"]
        .into_iter()
        .fold(StateGraph::<Log>::new(), |graph, name| graph.node(name, move |_: &Log| Ok(line(name))));
    let graph = graph.edge(START, "a").edge("a", "b").edge("b", "c").compile().unwrap();
    for limit in 1..=4 {
        let thread = new_thread();
        let run = |input: Input| graph.run(&thread).recursion_limit(limit).invoke(input);
        let begun = run(crate::lines::start());
        if limit == 4 {
            assert!(begun.unwrap().is_done(), "the superstep after the last node finds nothing to run");
            continue;
        }
        let error = begun.unwrap_err();
        assert!(
            matches!(error.as_run(), Some(RunError::RecursionLimit { limit: found }) if *found == limit),
            "{error}"
        );
        let stored = graph.get_state(&thread).unwrap();
        assert_eq!((stored.values.lines.len() as u64, stored.next.len()), (limit, usize::from(limit < 3)));
        assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().state().lines.to_vec(), ["a", "b", "c"]);
    }
    let error = graph.run(()).recursion_limit(0).invoke(Log::update()).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::BadRecursionLimit { limit: 0 })), "{error}");
}

#[test]
fn a_conditional_edge_cannot_lead_to_the_start_nor_send_to_the_end() {
    let run = |target: fn() -> annals_graph::graph::Target| {
        let graph = StateGraph::<Log>::new()
            .node("a", |_: &Log| Ok(line("a")))
            .edge(START, "a")
            .branch("a", move |_: &Log| vec![target()])
            .compile()
            .unwrap();
        graph.invoke((), Log::update())
    };
    let start = run(|| START.into()).unwrap_err();
    assert!(matches!(start.as_run(), Some(RunError::BadDestination { name }) if name == START), "{start}");
    let end = run(|| annals_graph::graph::Target::Send(SendTo::new(END, 1))).unwrap_err();
    assert!(matches!(end.as_run(), Some(RunError::SendToEnd)), "{end}");
    assert!(run(|| END.into()).unwrap().is_done());
    let timeless = run(|| {
        let send = SendTo::new("a", Value::Map(Default::default())).timeout(std::time::Duration::ZERO);
        annals_graph::graph::Target::Send(send)
    });
    let timeless = timeless.unwrap_err();
    assert!(matches!(timeless.as_run(), Some(RunError::BadTimeout { node }) if node == "a"), "{timeless}");
    let timed = run(|| {
        let send = SendTo::new("a", Value::Map(Default::default())).timeout(std::time::Duration::from_secs(1));
        annals_graph::graph::Target::Send(send)
    });
    let timed = timed.unwrap_err();
    assert!(matches!(timed.as_run(), Some(RunError::SyncTimeout { node }) if node == "a"), "{timed}");
}

#[apply(each_backend)]
fn a_run_with_a_key_that_asked_shows_its_question_again() {
    let (graph, thread) = (asking(), new_thread());
    let run = || graph.run(&thread).idempotency_key("k").invoke(Log::update());
    let first = run().unwrap();
    thread.store().clear_head_cache();
    let again = run().unwrap();
    assert_eq!((again.interrupts(), again.interrupts().len()), (first.interrupts(), 2));
}

#[apply(each_backend)]
fn a_second_command_in_an_open_superstep_is_stored_behind_the_first() {
    let (graph, thread) = (asking(), new_thread());
    graph.invoke(&thread, Log::update()).unwrap();
    for text in ["first", "second"] {
        graph.invoke(&thread, Command::update(line(text))).unwrap();
        thread.store().clear_head_cache();
    }
    let asked = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(asked.state().lines.to_vec(), ["first", "second"]);
    let [a, b] = [0, 1].map(|at: usize| asked.interrupts()[at].id.clone());
    let done = graph.invoke(&thread, by_id([(&a, "one"), (&b, "two")])).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["first", "second", "one", "two"]);
    crate::places::same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_command_at_an_older_checkpoint_is_stored_with_its_fork() {
    let graph = ["a", "b"]
        .into_iter()
        .fold(StateGraph::<Log>::new(), |graph, name| graph.node(name, move |_: &Log| Ok(line(name))));
    let graph = graph.edge(START, "a").edge("a", "b").compile().unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let before = thread.head().unwrap().unwrap().parent().unwrap().unwrap();
    let writes = before.writes().unwrap();
    let done = graph.invoke(&before, Command::update(line("changed"))).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["a", "changed", "b"]);
    let now = before.writes().unwrap();
    assert!(writes.iter().all(|write| now.contains(write)), "the past does not change: {now:?}");
    crate::places::same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_repeated_run_stays_at_the_breakpoint_of_the_first_one() {
    let graph = ["a", "b"]
        .into_iter()
        .fold(StateGraph::<Log>::new(), |graph, name| graph.node(name, move |_: &Log| Ok(line(name))));
    let graph = graph.edge(START, "a").edge("a", "b").compile().unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        let run = || graph.run(&thread).interrupt_before(["b"]).idempotency_key("k").invoke(Log::update()).unwrap();
        for _ in 0..2 {
            assert_eq!(run().state().lines.to_vec(), ["a"], "{reloaded}");
            assert_eq!(graph.get_state(&thread).unwrap().next, ["b"]);
            if reloaded {
                thread.store().clear_head_cache();
            }
        }
        assert!(graph.invoke(&thread, Input::Continue).unwrap().is_done());
    }
}

#[apply(each_backend)]
fn a_map_whose_names_are_no_ids_is_a_resume_value_itself() {
    let ask = |_: &Log, context: &Context| Ok(line(context.interrupt("?")?.to_json().to_string()));
    let graph = StateGraph::<Log>::new().node("ask", ask).edge(START, "ask").compile().unwrap();
    for name in ["abc", "x234567890123456789012345678901y"] {
        let thread = new_thread();
        graph.invoke(&thread, Log::update()).unwrap();
        let value = Value::Map([(name.to_owned(), Value::from(1))].into_iter().collect());
        let done = graph.invoke(&thread, Command::resume(value)).unwrap();
        assert_eq!(done.state().lines.to_vec(), [format!("{{\"{name}\":1}}")]);
    }
}
