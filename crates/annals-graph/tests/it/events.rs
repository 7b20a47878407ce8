//! Tests the events of runs: their order, errors and interrupts, from runs and from workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_graph::graph::{Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{RunEvent, RunEventKind, Worker};
use macro_rules_attribute::apply;

use crate::backends::place;
use crate::test_clock::{at, timed};

/// The events that were reported, as lines.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn listener(&self) -> impl Fn(&RunEvent) + Send + Sync + 'static {
        let seen = self.clone();
        move |event| {
            let more = match &event.kind {
                RunEventKind::AttemptFailed { node, attempt, error, .. } => format!(" {node} {attempt}: {error}"),
                RunEventKind::Waiting { interrupts, wake_at } => {
                    let values: Vec<_> = interrupts.iter().map(|interrupt| interrupt.value.to_string()).collect();
                    format!(" {} {}", values.join(","), wake_at.map_or(0, |at| at.as_micros() / 1_000_000))
                }
                RunEventKind::Ended { error: Some(error), .. } | RunEventKind::Stuck { error } => format!(": {error}"),
                _ => String::new(),
            };
            let thread = event.thread.as_ref().unwrap().as_str();
            seen.0.lock().unwrap().push(format!("{thread} {} {}{more}", event.graph, event.kind.as_str()));
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[apply(each_backend)]
fn the_events_of_a_workflow_come_in_their_order() {
    let ((hands, store), seen) = (timed(), Seen::default());
    let body = |n: i64, ctx: &Context| {
        ctx.sleep_until(at(100))?;
        match ctx.interrupt("go on?")?.as_str() {
            Some("yes") => Ok(n),
            _ => Err("nobody knows".into()),
        }
    };
    let graph = Entrypoint::new("flow", body).compile().unwrap().with_config(|run| run.on_event(seen.listener()));
    let thread = store.thread("a").unwrap();
    graph.invoke(&thread, 7).unwrap();
    assert_eq!(seen.take(), ["a flow started", "a flow waiting null 100"]);
    hands.set(100);
    graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(seen.take(), ["a flow woken", "a flow waiting go on? 0"]);
    graph.invoke(&thread, Command::resume("what?")).unwrap_err();
    let failed = seen.take();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert_eq!(failed[0], "a flow resumed");
    assert!(
        failed[1].starts_with("a flow attempt_failed flow 1: ") && failed[1].contains("nobody knows"),
        "{failed:?}"
    );
    assert!(failed[2].starts_with("a flow failed: ") && failed[2].contains("nobody knows"), "{failed:?}");
}

#[apply(each_backend)]
fn each_attempt_that_fails_is_reported_with_its_error() {
    let (store, seen) = (place(), Seen::default());
    let fetch = Task::new("fetch", |_: i64, ctx: &Context| match ctx.attempt() {
        attempt @ 1..=2 => Err(format!("busy {attempt}").into()),
        _ => Ok(1),
    });
    let policy = RetryPolicy::new().initial_interval(Duration::from_millis(1)).max_attempts(3).jitter(false);
    let fetch = fetch.retry(policy);
    let graph = Entrypoint::new("flow", move |n: i64, ctx: &Context| fetch.call(ctx, n)).compile().unwrap();
    let graph = graph.with_config(|run| run.on_event(seen.listener()));
    graph.invoke(&store.thread("a").unwrap(), 7).unwrap();
    let seen = seen.take();
    assert_eq!(seen.len(), 4, "{seen:?}");
    for attempt in 1..=2 {
        let begin = format!("a flow attempt_failed fetch {attempt}: ");
        let of_attempt = &seen[attempt];
        assert!(of_attempt.starts_with(&begin) && of_attempt.contains(&format!("busy {attempt}")), "{seen:?}");
    }
    assert_eq!((&*seen[0], &*seen[3]), ("a flow started", "a flow done"));
}

#[apply(each_backend)]
fn a_worker_reports_its_runs_and_those_that_are_stuck() {
    let (store, of_graph, of_worker) = (place(), Seen::default(), Seen::default());
    let ask = Entrypoint::new("ask", |_: i64, ctx: &Context| Ok(ctx.interrupt("how many?")?.as_int().unwrap_or(0)));
    let ask = ask.compile().unwrap().with_config(|run| run.on_event(of_graph.listener()));
    let worker = Worker::new(&store).register(&ask).on_event(of_worker.listener());
    store.queue("ask").enqueue("a", 1).unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    let thread = store.thread("a").unwrap();
    thread.resume_interrupt(&thread.open_interrupts().unwrap()[0].id, 3).unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    let ends = ["a ask continued", "a ask waiting how many? 0", "a ask continued", "a ask done"];
    assert_eq!(of_worker.take(), ends);
    assert_eq!(of_graph.take(), ends, "the listener of the graph is called as well");
    // An update in place of an argument.
    store.queue("ask").enqueue_update("b", [("n", 4)]).unwrap();
    assert_eq!(worker.run_until_idle().unwrap().stuck, 1);
    let stuck = of_worker.take();
    assert_eq!(stuck.len(), 1, "{stuck:?}");
    assert!(stuck[0].starts_with("b ask stuck: the graph is an entrypoint"), "{stuck:?}");
}

#[apply(each_backend)]
fn a_listener_that_panics_does_not_end_the_run() {
    let store = place();
    let double = Entrypoint::new("double", |n: i64| Ok(2 * n)).compile().unwrap();
    let double = double.with_config(|run| run.on_event(|_| panic!("the disk of the log is full")));
    let done = double.invoke(&store.thread("a").unwrap(), 4).unwrap();
    assert_eq!(done.value(), Some(&8));
    store.queue("double").enqueue("b", 4).unwrap();
    let worker = Worker::new(&store).register(&double).on_event(|_| panic!("and so is the other"));
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
}
