//! Tests the status of a thread and of its steps where several facts are stored about one task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_graph::graph::{Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::runs::{StepState, ThreadStatus};
use annals_graph::task::Task;
use annals_graph::{Worker, block_on};
use macro_rules_attribute::apply;

use crate::line_state::{Log, LogUpdate, line};
use crate::test_clock::{at, timed};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The end of the second attempt of a task; the first one fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    Sleeps,
    Asks,
    /// It fails with an error that the policy retries a day later.
    IsRetried,
}

fn second(attempts: &AtomicUsize, second: Second, context: &Context) -> NodeResult<String> {
    match (attempts.fetch_add(1, Ordering::SeqCst), second) {
        (0, _) => Err("the card was refused".into()),
        (_, Second::Sleeps) => {
            context.sleep_for(DAY)?;
            Ok("slept".to_owned())
        }
        (_, Second::Asks) => Ok(context.interrupt("which card?")?.to_string()),
        (1, Second::IsRetried) => Err("busy".into()),
        (_, Second::IsRetried) => Ok("tried".to_owned()),
    }
}

fn daily() -> RetryPolicy {
    let policy = RetryPolicy::new().initial_interval(DAY).max_interval(DAY).max_attempts(9).jitter(false);
    policy.on_if(|error| error.to_string().contains("busy"))
}

/// A graph of one node.
fn node(way: Second) -> CompiledGraph<Log> {
    let attempts = AtomicUsize::new(0);
    let charge = move |_: &Log, context: &Context| Ok(line(second(&attempts, way, context)?));
    let graph = StateGraph::<Log>::new().name("orders");
    let graph = graph.node_with("charge", charge, NodeOptions::new().retry(daily()));
    graph.edge(START, "charge").compile().unwrap()
}

/// Returns the states of the steps of a thread, the called tasks after their callers.
fn states(thread: &Thread) -> Vec<(String, StepState)> {
    let steps = thread.steps().unwrap().map(Result::unwrap);
    steps.map(|step| (step.name.to_string(), step.state)).collect()
}

#[apply(each_backend)]
fn a_task_that_failed_and_sleeps_since_has_the_status_sleeping() {
    for (name, way) in [("a", Second::Sleeps), ("b", Second::IsRetried)] {
        let (hands, store) = timed();
        let (graph, thread) = (node(way), store.thread(name).unwrap());
        graph.invoke(&thread, line("begin")).unwrap_err();
        assert!(matches!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Failed(_)));
        assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().wake_at(), Some(at(0).saturating_add(DAY)));
        let wake_at = at(0).saturating_add(DAY);
        assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Sleeping(wake_at));
        assert_eq!(states(&thread), [("charge".to_owned(), StepState::Sleeping)]);
        assert!(store.check().unwrap().problems.is_empty());

        hands.set(24 * 60 * 60);
        assert_eq!(
            Worker::new(&store).register(&graph).run_until_idle().unwrap().continued,
            1,
            "a worker continues it"
        );
        assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Done);
        assert!(store.timers(None).unwrap().is_empty());
    }
}

#[apply(each_backend)]
fn a_task_that_failed_and_asks_since_has_the_status_interrupted() {
    let (_hands, store) = timed();
    let (graph, thread) = (node(Second::Asks), store.thread("a").unwrap());
    graph.invoke(&thread, line("begin")).unwrap_err();
    block_on(graph.ainvoke(&thread, Input::Continue)).unwrap();
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Interrupted(vec!["which card?".into()]));
    let open = thread.open_interrupts().unwrap();
    thread.resume_interrupt(&open[0].id, "the other one").unwrap();
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    assert_eq!(Worker::new(&store).register(&graph).run_until_idle().unwrap().continued, 1, "a worker continues it");
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Done);
}

#[apply(each_backend)]
fn a_called_task_that_failed_and_sleeps_since_is_shown_as_sleeping() {
    for (name, way) in [("a", Second::Sleeps), ("b", Second::IsRetried)] {
        let (_hands, store) = timed();
        let attempts = Arc::new(AtomicUsize::new(0));
        let body = move |(): (), context: &Context| second(&attempts, way, context);
        let charge = Task::new("charge", body).retry(daily());
        let orders = move |_: i64, context: &Context| charge.call(context, ());
        let graph = Entrypoint::new("orders", orders).compile().unwrap();
        let thread = store.thread(name).unwrap();
        graph.invoke(&thread, 1).unwrap_err();
        let both = |state| [("orders".to_owned(), state), ("charge".to_owned(), state)];
        assert_eq!(states(&thread), both(StepState::Failed));
        graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(states(&thread), both(StepState::Sleeping));
        assert_eq!(ThreadStatus::of(&thread.info().unwrap()).as_str(), "sleeping");
    }
}

/// An entrypoint that calls tasks in parallel, each of which does as its name says.
fn called(names: &'static [&'static str]) -> CompiledGraph<annals_graph::graph::Entry<i64, i64>> {
    let body = move |_: i64, context: &Context| {
        let calls = names.iter().map(|name| {
            let act = move |(): (), context: &Context| {
                match *name {
                    "sleeps" => context.sleep_for(DAY)?,
                    "fails" => return Err("no money".into()),
                    "ends" => {}
                    name => _ = context.interrupt(name)?,
                }
                Ok(7)
            };
            Task::<(), i64>::new(*name, act).start(context, ())
        });
        let started: Vec<_> = calls.collect();
        let ended: Vec<_> = started.into_iter().map(|call| call.wait()).collect();
        ended.into_iter().sum::<NodeResult<i64>>()
    };
    Entrypoint::new("flow", body).compile().unwrap()
}

/// A graph whose one node is a graph of two parallel nodes: each asks what its name says, or sleeps.
fn asking(names: [&'static str; 2]) -> CompiledGraph<Log> {
    let part = |name: &'static str| {
        move |_: &Log, context: &Context| {
            if name == "sleeps" {
                context.sleep_for(DAY)?;
            } else {
                context.interrupt(name)?;
            }
            Ok(line(name))
        }
    };
    let [first, second] = names;
    let inside = StateGraph::<Log>::new().node(first, part(first)).node(second, part(second));
    let inside = inside.edge(START, first).edge(START, second).compile().unwrap();
    StateGraph::<Log>::new().node("ask", inside).edge(START, "ask").compile().unwrap()
}

#[apply(each_backend)]
fn a_task_with_one_of_two_resume_values_is_interrupted() {
    let (_hands, store) = timed();
    for (name, names, given) in [("both", ["a", "b"], 2), ("half", ["a", "sleeps"], 0), ("one", ["a", "b"], 1)] {
        let thread = store.thread(name).unwrap();
        asking(names).invoke(&thread, line("begin")).unwrap();
        let open = thread.open_interrupts().unwrap();
        assert_eq!(open.len(), 2, "{name}");
        for interrupt in open.iter().take(given) {
            thread.resume_interrupt(&interrupt.id, "yes").unwrap();
        }
        let expected = if name == "both" { "running" } else { "interrupted" };
        assert_eq!(ThreadStatus::of(&thread.info().unwrap()).as_str(), expected, "{name}");
    }
}

#[apply(each_backend)]
fn called_tasks_are_steps_of_their_own() {
    let (hands, store) = timed();
    let mut open = Vec::new();
    for (name, names) in
        [("a", &["ends", "sleeps"][..]), ("b", &["ends", "fails"]), ("c", &["ends"]), ("d", &["what, 7?"])]
    {
        let thread = store.thread(name).unwrap();
        _ = called(names).invoke(&thread, 1);
        hands.set(1_000_000_010);
        let steps = states(&thread);
        assert_eq!(steps.len(), 1 + names.len(), "{name}");
        open.extend(steps.into_iter().skip(1).filter(|(_, state)| *state != StepState::Done));
    }
    let expected = [
        ("sleeps".to_owned(), StepState::Sleeping),
        ("fails".to_owned(), StepState::Failed),
        ("what, 7?".to_owned(), StepState::Interrupted),
    ];
    assert_eq!(open, expected);
}

#[apply(each_backend)]
fn a_cancelled_task_is_shown_until_it_fails() {
    let (_hands, store) = timed();
    for (name, fails) in [("a", false), ("b", true)] {
        let control = annals_graph::task::RunControl::new();
        let (first, of_run) = (Arc::new(AtomicUsize::new(0)), control.clone());
        let body = move |_: &Log, _: &Context| {
            if first.fetch_add(1, Ordering::SeqCst) > 0 {
                return Err("no money".into());
            }
            of_run.cancel("stop it");
            Err::<LogUpdate, _>(annals_graph::task::Cancelled::new().into())
        };
        let graph = StateGraph::<Log>::new().node("work", body).edge(START, "work").compile().unwrap();
        let thread = store.thread(name).unwrap();
        graph.run(&thread).control(&control).invoke(line("begin")).unwrap();
        if fails {
            graph.invoke(&thread, Input::Continue).unwrap_err();
        }
        let expected = if fails { StepState::Failed } else { StepState::Cancelled };
        assert_eq!(states(&thread), [("work".to_owned(), expected)]);
    }
}

/// Runs two parallel nodes, of which one ends when the writes of the other one are stored and 5 s have passed. Returns
/// the names, durations and own ends of the steps.
fn parallel(records: bool) -> Vec<(String, Option<Duration>, bool)> {
    let (hands, store) = timed();
    hands.set(1);
    let thread = store.thread(if records { "recorded" } else { "plain" }).unwrap();
    let watched = thread.clone();
    let slow = move |_: &Log| {
        while watched.head()?.expect("a head").writes()?.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        hands.set(6);
        Ok(line("slow"))
    };
    let graph = StateGraph::<Log>::new().node("fast", |_: &Log| Ok(line("fast"))).node("slow", slow);
    let graph = graph.edge(START, "fast").edge(START, "slow").compile().unwrap();
    graph.run(&thread).record_ends(records).invoke(line("begin")).unwrap();
    assert!(store.check().unwrap().problems.is_empty());
    let steps = thread.steps().unwrap().map(Result::unwrap);
    steps.map(|step| (step.name.to_string(), step.duration(), step.has_own_end)).collect()
}

#[apply(each_backend)]
fn the_end_of_each_parallel_task_is_recorded_if_the_run_asks_for_it() {
    let of = |name: &str, seconds, own| (name.to_owned(), Some(Duration::from_secs(seconds)), own);
    assert_eq!(parallel(true), [of("fast", 0, true), of("slow", 5, true)]);
    assert_eq!(parallel(false), [of("fast", 5, false), of("slow", 5, false)], "the superstep ends with the slowest");
}

#[apply(each_backend)]
fn the_end_of_an_attempt_that_failed_is_not_that_of_the_next_one() {
    let (hands, store) = timed();
    let (thread, attempts) = (store.thread("trip").unwrap(), AtomicUsize::new(0));
    let charge = move |_: &Log| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => Err("the card was refused".into()),
        _ => Ok(line("charged")),
    };
    let graph = StateGraph::<Log>::new().node("charge", charge).edge(START, "charge").compile().unwrap();
    let step = || {
        let step = thread.steps().unwrap().next().unwrap().unwrap();
        (step.state, step.duration(), step.has_own_end)
    };
    hands.set(1);
    graph.run(&thread).record_ends(true).invoke(line("begin")).unwrap_err();
    assert_eq!(step(), (StepState::Failed, Some(Duration::ZERO), true));
    hands.set(10);
    graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(step(), (StepState::Done, Some(Duration::from_secs(9)), false));
    assert!(store.check().unwrap().problems.is_empty());
}
