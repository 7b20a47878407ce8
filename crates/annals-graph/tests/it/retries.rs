//! Tests retries that outlast a run: stored attempts, long pauses as timers, and the steps of a thread that show them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Waiting, Waker};
use std::time::Duration;

use annals::base::Map;
use annals::store::OpenOptions;
use annals_graph::Worker;
use annals_graph::graph::{Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::runs::{StepInfo, StepState};
use annals_graph::task::Task;
use macro_rules_attribute::apply;

use crate::backends::place_with;
use crate::clock::SimClock;
use crate::line_state::{Log, line};
use crate::test_clock::{at, timed};

fn minutes(attempts: u32) -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_secs(60)).max_attempts(attempts).jitter(false)
}

fn steps(thread: &Thread) -> Vec<StepInfo> {
    thread.steps().unwrap().map(Result::unwrap).collect()
}

/// The attempts that ran.
#[derive(Clone, Default)]
struct Tried(Arc<AtomicUsize>);

impl Tried {
    fn fails_before(&self, attempt: u32, context: &Context) -> NodeResult<u32> {
        self.0.fetch_add(1, Ordering::SeqCst);
        match context.attempt() {
            tried if tried < attempt => Err(format!("busy at {tried}").into()),
            tried => Ok(tried),
        }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// START -> fetch
fn node(tried: &Tried, succeeds: u32, policy: RetryPolicy) -> CompiledGraph<Log> {
    let tried = tried.clone();
    let fetch =
        move |_: &Log, context: &Context| Ok(line(format!("attempt {}", tried.fails_before(succeeds, context)?)));
    let graph = StateGraph::<Log>::new().name("fetching");
    graph.node_with("fetch", fetch, NodeOptions::new().retry(policy)).edge(START, "fetch").compile().unwrap()
}

#[apply(each_backend)]
fn a_long_pause_ends_the_run_and_a_worker_makes_the_next_attempt() {
    let ((hands, store), tried) = (timed(), Tried::default());
    let (graph, thread) = (node(&tried, 3, minutes(3)), store.thread("t").unwrap());
    let asleep = graph.invoke(&thread, line("begin")).unwrap();
    assert_eq!((asleep.wake_at(), tried.count()), (Some(at(60)), 1));
    let step = &steps(&thread)[0];
    assert_eq!((&*step.name, step.state, step.wake_at), ("fetch", StepState::Sleeping, Some(at(60))));
    assert_eq!((step.attempts.len(), step.error_text()), (1, "node \"fetch\" failed: busy at 1"));

    hands.set(59);
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().wake_at(), Some(at(60)));
    assert_eq!(tried.count(), 1, "it is not tried early");
    hands.set(60);
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(store.next_timer().unwrap().map(|timer| timer.wake_at), Some(at(180)), "the backoff goes on");
    hands.set(180);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(graph.get_state(&thread).unwrap().values.lines.to_vec(), ["begin", "attempt 3"]);
    assert_eq!((tried.count(), store.next_timer().unwrap()), (3, None));

    let step = &steps(&thread)[0];
    let errors: Vec<_> = step.attempts.iter().map(|attempt| attempt.error.as_deref().unwrap_or("none")).collect();
    assert_eq!(errors, ["node \"fetch\" failed: busy at 1", "node \"fetch\" failed: busy at 2", "none"]);
    assert_eq!(step.attempts[1].started_at, Some(at(60)));
    assert_eq!((step.state, step.duration()), (StepState::Done, Some(Duration::from_secs(180))));
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_called_task_sleeps_between_its_attempts_and_its_caller_with_it() {
    let ((hands, store), tried) = (timed(), Tried::default());
    let inner = tried.clone();
    let charge = Task::new("charge", move |n: i64, context: &Context| {
        inner.fails_before(3, context)?;
        Ok(n * 2)
    })
    .retry(minutes(5));
    let book = Entrypoint::new("book", move |n: i64, context: &Context| charge.call(context, n)).compile().unwrap();
    let thread = store.thread("t").unwrap();
    assert_eq!(book.invoke(&thread, 4).unwrap().wake_at(), Some(at(60)));
    let listed = steps(&thread);
    assert_eq!(
        listed.iter().map(|step| (&*step.name, step.is_call, step.state)).collect::<Vec<_>>(),
        [("book", false, StepState::Sleeping), ("charge", true, StepState::Sleeping),]
    );
    assert_eq!(book.invoke(&thread, Input::Continue).unwrap().wake_at(), Some(at(60)));
    assert_eq!(tried.count(), 1);
    hands.set(61);
    assert_eq!(book.invoke(&thread, Input::Continue).unwrap().wake_at(), Some(at(181)));
    assert_eq!(tried.count(), 2);

    // A resume value for the interrupt wakes it early, as a sleep.
    let open = book.get_state(&thread).unwrap().interrupts;
    let woken = Map::from_iter([(open[0].id.clone(), Value::Null)]);
    let done = book.invoke(&thread, Command::resume(Value::Map(woken))).unwrap();
    assert_eq!((done.value(), tried.count()), (Some(&8), 3));
    let call = &steps(&thread)[1];
    assert_eq!((call.attempts.len(), call.result.clone(), call.state), (3, Some(Value::from(8)), StepState::Done));
    assert_eq!(call.ended_at, Some(at(61)));
    let head = thread.head().unwrap().unwrap();
    assert_eq!((head.input().unwrap(), head.result().unwrap()), (Some(Value::from(4)), Some(Value::from(8))));
}

#[apply(each_backend)]
fn after_the_last_attempt_the_next_run_begins_with_the_first() {
    let ((hands, store), tried) = (timed(), Tried::default());
    let (graph, thread) = (node(&tried, 9, minutes(2)), store.thread("t").unwrap());
    graph.invoke(&thread, line("begin")).unwrap();
    hands.set(60);
    let error = graph.invoke(&thread, Input::Continue).unwrap_err();
    assert!(error.to_string().contains("busy at 2"), "{error}");
    let step = &steps(&thread)[0];
    assert_eq!(
        (step.state, step.attempts.len(), step.error_text()),
        (StepState::Failed, 2, "node \"fetch\" failed: busy at 2")
    );
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().wake_at(), Some(at(120)));
    assert_eq!(tried.count(), 3);
    assert_eq!(steps(&thread)[0].error_text(), "node \"fetch\" failed: busy at 1");
}

#[apply(each_backend)]
fn a_run_that_was_dropped_in_a_short_pause_goes_on_with_the_next_attempt() {
    let (clock, tried) = (SimClock::default(), Tried::default());
    let thread = place_with(OpenOptions::new().clock(clock.clone())).thread("t").unwrap();
    let inner = tried.clone();
    let fetch = move |_: Arc<Log>, context: Context| {
        let tried = inner.fails_before(2, &context);
        async move { Ok(line(format!("attempt {}", tried?))) }
    };
    let policy = RetryPolicy::new().initial_interval(Duration::from_secs(1)).max_attempts(2).jitter(false);
    let graph = StateGraph::<Log>::new().node_with("fetch", fetch, NodeOptions::new().retry(policy));
    let graph = graph.edge(START, "fetch").compile().unwrap();
    {
        let mut run = pin!(graph.run(&thread).timer(clock.clone()).ainvoke(line("begin")));
        let mut polls = 0;
        while clock.awaited() == 0 {
            assert!(run.as_mut().poll(&mut Waiting::from_waker(Waker::noop())).is_pending());
            std::thread::sleep(Duration::from_millis(1));
            polls += 1;
            assert!(polls < 200_000, "the node fails and waits");
        }
    }
    let step = &steps(&thread)[0];
    assert_eq!((step.state, step.attempts.len()), (StepState::Running, 1));
    clock.set(at(60));
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["begin", "attempt 2"]);
    assert_eq!(tried.count(), 2);
}

#[test]
fn a_run_without_a_store_waits_for_its_attempts() {
    let (clock, tried) = (SimClock::default(), Tried::default());
    let inner = tried.clone();
    let fetch = move |_: Arc<Log>, context: Context| {
        let tried = inner.fails_before(2, &context);
        async move { Ok(line(format!("attempt {}", tried?))) }
    };
    // A run with a store would end before such a pause. The clock of a run without one is that of the system.
    let policy = RetryPolicy::new().initial_interval(Duration::from_secs(6)).max_attempts(2).jitter(false);
    let graph = StateGraph::<Log>::new().node_with("fetch", fetch, NodeOptions::new().retry(policy));
    let graph = graph.edge(START, "fetch").compile().unwrap();
    let mut run = pin!(graph.run(()).timer(clock.clone()).ainvoke(line("begin")));
    let done = loop {
        if let std::task::Poll::Ready(done) = run.as_mut().poll(&mut Waiting::from_waker(Waker::noop())) {
            break done.unwrap();
        }
        clock.go_on();
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(done.state().lines.to_vec(), ["begin", "attempt 2"]);
}

#[apply(each_backend)]
fn the_steps_of_a_thread_tell_names_times_and_results() {
    let (hands, store) = timed();
    let moved = hands.clone();
    let reserve = Task::new("reserve", move |n: i64| {
        moved.set(7);
        Ok(format!("room {n}"))
    });
    let book = Entrypoint::new("book", move |n: i64, context: &Context| {
        let first = reserve.call(context, n)?;
        let second = reserve.call(context, n + 1)?;
        context.interrupt("which?")?;
        Ok(vec![first, second])
    })
    .compile()
    .unwrap();
    let thread = store.thread("t").unwrap();
    hands.set(5);
    book.invoke(&thread, 1).unwrap();
    let told = |thread: &Thread| -> Vec<(String, &'static str, Option<Value>)> {
        steps(thread).into_iter().map(|step| (step.name.to_string(), step.state.as_str(), step.result)).collect()
    };
    let calls = |state: &'static str, result: Option<Value>| {
        let room = |n: i64| Some(Value::from(format!("room {n}")));
        vec![
            ("book".to_string(), state, result),
            ("reserve".into(), "done", room(1)),
            ("reserve".into(), "done", room(2)),
        ]
    };
    assert_eq!(told(&thread), calls("interrupted", None));
    let listed = steps(&thread);
    assert_eq!((listed[1].started_at, listed[1].ended_at), (at(5), Some(at(7))));
    assert_eq!(thread.head().unwrap().unwrap().input().unwrap(), Some(Value::from(1)));
    assert_eq!(thread.head().unwrap().unwrap().result().unwrap(), None);

    book.invoke(&thread, Command::resume("both")).unwrap();
    let rooms = Value::List(vec!["room 1".into(), "room 2".into()]);
    assert_eq!(told(&thread), calls("done", Some(rooms.clone())));
    assert_eq!(thread.head().unwrap().unwrap().result().unwrap(), Some(rooms));
    // A new input leaves an unfinished superstep behind.
    book.invoke(&thread, 3).unwrap();
    book.invoke(&thread, 4).unwrap();
    assert_eq!(told(&thread)[3].1, "abandoned");
}
