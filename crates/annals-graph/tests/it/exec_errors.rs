//! The errors of runs: the class that LangGraph raises in place of each, the codes, and the texts that depend on a
//! field.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::{CodecError, Encoded, WriteValue};
use annals::state::StateError;
use annals_graph::graph::{Entrypoint, GraphProblem, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::{RunControl, Task};
use annals_graph::{Durability, EditProblem, ResumeProblem, RunError, TimeoutKind, block_on};
use macro_rules_attribute::apply;

use crate::backends::{GUARD, new_thread};
use crate::line_state::{EVERY_WAY, Log, LogUpdate, line, run_on, start};
use crate::test_clock::timed;

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
    // The stored values count at an older checkpoint, so a strict run refuses others there.
    let done = graph.run(&thread).strict_resume(true).invoke(by_id([(&a, "one"), (&b, "two")])).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["one", "two"]);
    let older = thread.head().unwrap().unwrap().parent().unwrap().unwrap();
    let others = || by_id([(&a, "three"), (&b, "four")]);
    let refused = graph.run(&older).strict_resume(true).invoke(others()).unwrap_err();
    let Some(RunError::UnknownInterrupt { problem: ResumeProblem::Resumed { ids }, .. }) = refused.as_run() else {
        panic!("{refused:?}");
    };
    assert!(ids.contains(&a) && ids.contains(&b), "{ids:?}");
    let again = graph.invoke(&older, others()).unwrap();
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
        let begun = run(crate::line_state::start());
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
    crate::backends::same_after_reload(&graph, &thread);
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
    crate::backends::same_after_reload(&graph, &thread);
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

#[apply(each_backend)]
fn a_repeated_run_takes_the_resume_value_of_its_command_again() {
    let (thread, holds) = (new_thread(), Arc::new(AtomicBool::new(true)));
    let (held, reached) = (Arc::clone(&holds), Arc::new(AtomicBool::new(false)));
    let reaches = Arc::clone(&reached);
    let graph = StateGraph::<Log>::new()
        .node("ask", move |_: Arc<Log>, context: Context| {
            let (held, reaches) = (Arc::clone(&held), Arc::clone(&reaches));
            async move {
                let answer = context.interrupt("?")?;
                reaches.store(true, Ordering::SeqCst);
                if held.load(Ordering::SeqCst) {
                    pending::<()>().await;
                }
                Ok(line(answer.as_str().unwrap_or_default()))
            }
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    graph.invoke(&thread, Log::update()).unwrap();
    let run = || graph.run(&thread).durability(Durability::Sync).idempotency_key("k");
    {
        // The run is dropped behind its command.
        let mut run = pin!(run().ainvoke(Command::resume("yes")));
        let mut waiting = Waiting::from_waker(Waker::noop());
        while !reached.load(Ordering::SeqCst) {
            assert!(run.as_mut().poll(&mut waiting).is_pending());
            std::thread::yield_now();
        }
    }
    holds.store(false, Ordering::SeqCst);
    thread.store().clear_head_cache();
    let done = block_on(run().ainvoke(Command::resume("yes"))).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["yes"]);
}

#[apply(each_backend)]
fn nothing_inside_a_graph_that_ran_out_of_time_is_handled_or_tried_again() {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let quick = RetryPolicy::new().initial_interval(Duration::ZERO).jitter(false).on_if(|_| true);
    let options = NodeOptions::new().retry(quick).error_handler(move |_: &Log| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(line("handled"))
    });
    let waits = |_: Arc<Log>| async { pending::<NodeResult<LogUpdate>>().await };
    let inner = StateGraph::<Log>::new().node_with("waits", waits, options).edge(START, "waits").compile().unwrap();
    let graph = StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    for (driver, durability) in EVERY_WAY {
        let run = graph.run(&new_thread()).durability(durability).step_timeout(Duration::from_millis(10));
        let error = run_on(driver, run, start()).unwrap_err();
        assert!(matches!(error.as_run(), Some(RunError::StepTimeout { .. })), "{error}");
        assert_eq!(handled.load(Ordering::SeqCst), 0, "{driver} {durability:?}");
    }
}

/// Returns once a flag is set.
async fn until(flag: &AtomicBool) {
    poll_fn(|waiting| {
        if flag.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        waiting.waker().wake_by_ref();
        std::thread::yield_now();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_task_that_waits_for_its_deadline_holds_up_no_attempt_of_another() {
    let flag = Arc::new(AtomicBool::new(false));
    let (seen, sets) = (Arc::clone(&flag), Arc::clone(&flag));
    let quick = RetryPolicy::new().initial_interval(Duration::ZERO).jitter(false);
    let both = StateGraph::<Log>::new()
        .node("a", move |_: Arc<Log>| {
            let seen = Arc::clone(&seen);
            async move {
                until(&seen).await;
                Ok(line("a"))
            }
        })
        .node_with(
            "b",
            move |_: &Log, context: &Context| {
                if context.attempt() == 1 {
                    return Err("busy".into());
                }
                sets.store(true, Ordering::SeqCst);
                Ok(line("b"))
            },
            NodeOptions::new().retry(quick),
        )
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    // An attempt that was held up would come after it.
    let limit = GUARD;
    let done = both.run(()).step_timeout(limit).invoke(Log::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["a", "b"]);
    // The deadline of the graph around counts as well.
    flag.store(false, Ordering::SeqCst);
    let inner = both.clone();
    let around = StateGraph::<Log>::new()
        .node("around", move |_: Arc<Log>, context: Context| {
            let inner = inner.clone();
            async move { Ok(Log::update().lines(inner.invoke(&context, Log::update())?.state().lines.to_vec())) }
        })
        .edge(START, "around")
        .compile()
        .unwrap();
    let done = run_on(1, around.run(()).step_timeout(limit), start()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["a", "b"]);
}

#[apply(each_backend)]
fn an_attempt_after_a_failure_that_had_slept_leaves_no_sleep_without_a_timer() {
    let (hands, store) = timed();
    let thread = store.thread("t").unwrap();
    let (tried, problems) = (AtomicUsize::new(0), Arc::new(Mutex::new(Vec::new())));
    let (found, checked) = (Arc::clone(&problems), thread.clone());
    let pause = |word: &'static str, pause| {
        let is_of = move |error: &(dyn std::error::Error + 'static)| error.to_string().contains(word);
        RetryPolicy::new().initial_interval(pause).max_attempts(2).jitter(false).on_if(is_of)
    };
    let fetch = move |_: &Log| match tried.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Err("long".into()),
        2 => Err("short".into()),
        _ => {
            found.lock().unwrap().extend(checked.store().check()?.problems);
            let stored = checked.head()?.ok_or("no head")?.writes()?;
            let asleep = stored.iter().any(|of| &*of.channel == "__interrupt__" && of.value != WriteValue::Null);
            assert!(!asleep, "it runs and does not sleep: {stored:?}");
            Ok(line("fetched")) as NodeResult<_>
        }
    };
    let options =
        NodeOptions::new().retry(pause("long", Duration::from_secs(3_600))).retry(pause("short", Duration::ZERO));
    let graph = StateGraph::<Log>::new().node_with("fetch", fetch, options).edge(START, "fetch").compile().unwrap();
    assert!(graph.invoke(&thread, Log::update()).unwrap().wake_at().is_some());
    hands.set(3_600);
    assert!(graph.invoke(&thread, Input::Continue).unwrap_err().to_string().contains("long"));
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().state().lines.to_vec(), ["fetched"]);
    let problems = problems.lock().unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    assert!(store.check().unwrap().problems.is_empty());
}

/// A value that may not be stored.
#[derive(Clone, Default, Debug, PartialEq, serde::Deserialize)]
struct Secretive(bool);

impl serde::Serialize for Secretive {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.0 {
            return Err(serde::ser::Error::custom("it is not to be stored"));
        }
        serializer.serialize_bool(false)
    }
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Vault {
    #[channel(last)]
    secretive: Secretive,
}

#[apply(each_backend)]
fn an_input_that_cannot_be_stored_is_the_error_of_a_run_that_was_drained() {
    let graph = StateGraph::<Vault>::new().node("a", |_: &Vault| Ok(())).edge(START, "a").compile().unwrap();
    let control = RunControl::new();
    control.request_drain("shutdown");
    let thread = new_thread();
    let run = graph.run(&thread).durability(Durability::Exit).control(&control);
    let error = run.invoke(Vault::update().secretive(Secretive(true))).unwrap_err();
    assert!(error.to_string().contains("it is not to be stored"), "{error}");
}

#[apply(each_backend)]
fn after_the_last_attempt_the_next_run_finds_the_results_of_its_calls() {
    let (thread, called) = (new_thread(), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&called);
    let double = Task::new("double", move |n: i64| {
        note.lock().unwrap().push(n);
        Ok(n * 2)
    });
    let tried = AtomicUsize::new(0);
    let flow = Entrypoint::new("flow", move |n: i64, context: &Context| {
        let first = double.call(context, n)?;
        let at = tried.fetch_add(1, Ordering::SeqCst);
        if at == 0 {
            return Err("the first attempt fails".into());
        }
        let second = double.call(context, n + 1)?;
        if at == 1 { Err("the last attempt fails".into()) } else { Ok(first + second) }
    });
    let policy = RetryPolicy::new().initial_interval(Duration::ZERO).max_attempts(2);
    let flow = flow.retry(policy).compile().unwrap();
    assert!(flow.invoke(&thread, 1).unwrap_err().to_string().contains("the last"));
    assert_eq!(std::mem::take(&mut *called.lock().unwrap()), [1, 2]);
    thread.store().clear_head_cache();
    assert_eq!(flow.invoke(&thread, Input::Continue).unwrap().value(), Some(&6));
    assert_eq!(*called.lock().unwrap(), [0_i64; 0], "all calls had ended");
}

#[apply(each_backend)]
fn a_resume_value_is_not_given_twice_when_a_graph_stops_at_a_breakpoint() {
    let inner = StateGraph::<Log>::new().node("last", |_: &Log| Ok(line("last"))).edge(START, "last");
    let inner = inner.interrupt_before(["last"]).compile().unwrap();
    let node = move |_: &Log, context: &Context| {
        let first = context.interrupt("first?")?;
        inner.invoke(context, Log::update())?;
        let second = context.interrupt("second?")?;
        Ok(Log::update().lines([first, second].map(|given| given.as_str().unwrap_or_default().to_owned())))
    };
    let graph = StateGraph::<Log>::new().node("around", node).edge(START, "around").compile().unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap();
    assert!(graph.invoke(&thread, Command::resume("yes")).unwrap().interrupts().is_empty(), "a breakpoint");
    thread.store().clear_head_cache();
    let asked = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(asked.interrupts()[0].value, Value::from("second?"));
    assert_eq!(graph.invoke(&thread, Command::resume("no")).unwrap().state().lines.to_vec(), ["yes", "no"]);
}

#[apply(each_backend)]
fn an_input_that_waits_is_stored_with_all_its_writes_and_targets() {
    let graph = StateGraph::<Log>::new()
        .node("a", |_: &Log| Ok(line("a")))
        .node("b", |_: &Log| Ok(line("b")))
        .edge(START, "a")
        .compile()
        .unwrap();
    let twice = || Command::update(line("u")).and_update(line("v"));
    let sends = || Command::update(line("u")).and_goto("b");
    for durability in [Durability::Sync, Durability::Exit] {
        for (command, sent) in [(twice(), false), (sends(), true)] {
            let (thread, control) = (new_thread(), RunControl::new());
            control.request_drain("shutdown");
            let run = graph.run(&thread).durability(durability).control(&control);
            assert!(matches!(run.invoke(command).unwrap(), Outcome::Drained { .. }));
            thread.store().clear_head_cache();
            let done = graph.invoke(&thread, Input::Continue).unwrap().state().lines.to_vec();
            // A command on a new thread is applied as such and is its input as well.
            let expected: &[&str] = if sent { &["u", "u", "a", "b"] } else { &["u", "v", "u", "v", "a"] };
            assert_eq!(done, expected, "{durability:?}");
        }
    }
}

#[apply(each_backend)]
fn a_run_with_a_key_shows_its_questions_also_after_a_later_input() {
    let (graph, thread) = (asking(), new_thread());
    let run = || graph.run(&thread).idempotency_key("k").invoke(Log::update()).unwrap();
    let ids = |asked: &Outcome<Log>| -> std::collections::BTreeSet<_> {
        asked.interrupts().iter().map(|interrupt| interrupt.id.clone()).collect()
    };
    let first = run();
    let later = graph.invoke(&thread, line("later")).unwrap();
    assert_ne!(later.interrupts()[0].id, first.interrupts()[0].id);
    for reloaded in [false, true] {
        if reloaded {
            thread.store().clear_head_cache();
        }
        let again = run();
        assert_eq!((ids(&again), ids(&again).len()), (ids(&first), 2), "{reloaded}");
    }
}
