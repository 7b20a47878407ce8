//! Changes of a thread from outside: resume values, cancel, pause, retry and restart, without the types of its
//! graph.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals::base::{Clock, SystemClock, Timestamp};
use annals::store::StoreError;
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::RunControl;
use annals_graph::{Durability, Worker};
use macro_rules_attribute::apply;
use serde_json::json;

use crate::backends::{GUARD, place};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LEASE: Duration = Duration::from_secs(5);

/// A clock that the test sets, in seconds.
#[derive(Clone, Default)]
pub(crate) struct Hands(pub(crate) Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

#[derive(State, Clone, Default)]
pub(crate) struct Parts {
    #[channel(append)]
    pub(crate) got: List<i64>,
}

/// A workflow that waits for a signal of each of its names in turn, and returns the values that it received.
pub(crate) fn listener(names: &'static [&'static str]) -> CompiledGraph<Entry<i64, Vec<Option<i64>>>> {
    let body = move |_: i64, context: &Context| {
        names.iter().map(|name| context.receive::<i64>(name, DAY)).collect::<NodeResult<Vec<_>>>()
    };
    Entrypoint::new("listener", body).compile().unwrap()
}

pub(crate) fn received<I, O: Clone>(graph: &CompiledGraph<Entry<I, O>>, thread: &Thread) -> Option<O>
where
    Entry<I, O>: Clone + Send + Sync + 'static,
{
    graph.get_state(thread).unwrap().values.value().cloned()
}

pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let begin = SystemClock.elapsed();
    while !so() {
        assert!(SystemClock.elapsed() - begin < GUARD, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a worker beside `act`, and drains it at the end, also when `act` panics.
pub(crate) fn beside(worker: &Worker, act: impl FnOnce()) {
    let control = RunControl::new();
    let acted = std::thread::scope(|scope| {
        let works = scope.spawn(|| worker.run_until(&control).unwrap());
        let acted = catch_unwind(AssertUnwindSafe(act));
        control.request_drain("the end");
        works.join().unwrap();
        acted
    });
    acted.unwrap_or_else(|panic| resume_unwind(panic));
}

fn asking() -> CompiledGraph<Entry<i64, i64>> {
    let schema = json!({"type": "integer"});
    let body = move |_: i64, context: &Context| {
        let first = context.interrupt_with("how many?", schema.clone())?;
        let second = context.interrupt("sure?")?;
        Ok(if second == "yes" { first.as_int().unwrap_or_default() } else { 0 })
    };
    Entrypoint::new("asking", body).compile().unwrap()
}

#[apply(each_backend)]
fn interrupts_get_their_resume_values_from_outside() {
    let store = place();
    let (graph, thread) = (asking(), store.thread("a").unwrap());
    let missing = thread.resume_interrupt("f", 1).unwrap_err();
    assert!(matches!(missing, StoreError::ThreadNotFound { .. }), "{missing}");
    graph.enqueue(&thread, 0).unwrap();
    let worker = Worker::new(&store).register(&graph);
    worker.run_until_idle().unwrap();
    let [first] = &thread.open_interrupts().unwrap()[..] else { panic!("one interrupt is open") };
    assert_eq!((&first.value, first.response_schema.is_some()), (&Value::from("how many?"), true));

    let unknown = thread.resume_interrupt("0", 1).unwrap_err();
    assert!(matches!(&unknown, StoreError::InterruptNotOpen { open, .. } if *open == [first.id.clone()]), "{unknown}");
    let misfit = thread.resume_interrupt(&first.id, "many").unwrap_err();
    assert!(matches!(misfit, StoreError::Invalid { field: "resume value", .. }), "{misfit}");
    thread.resume_interrupt(&first.id, 3).unwrap();
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    let twice = thread.resume_interrupt(&first.id, 4).unwrap_err();
    assert!(matches!(twice, StoreError::InterruptNotOpen { .. }), "{twice}");

    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    let [second] = &thread.open_interrupts().unwrap()[..] else { panic!("one interrupt is open") };
    assert_eq!(second.value, Value::from("sure?"));
    thread.resume_interrupt(&second.id, "yes").unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(received(&graph, &thread), Some(3));
    let ended = thread.resume_interrupt(&second.id, "no").unwrap_err();
    assert!(matches!(ended, StoreError::ThreadEnded { status: "done", .. }), "{ended}");
}

#[apply(each_backend)]
fn a_cancelled_thread_is_left_alone_until_the_cancel_is_undone() {
    let store = place();
    let (graph, thread) = (asking(), store.thread("a").unwrap());
    graph.enqueue(&thread, 0).unwrap();
    assert!(store.thread("a").unwrap().cancel("the customer asked").unwrap());
    assert!(!store.thread("a").unwrap().cancel("again").unwrap());
    let cancelled = ThreadStatus::Cancelled(Some("the customer asked".into()));
    let info = thread.info().unwrap();
    assert_eq!((ThreadStatus::of(&info), info.graph.as_deref()), (cancelled, Some("asking")));
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 0);
    for refused in [graph.invoke(&thread, Input::Continue), graph.invoke(&thread, Command::resume(1))] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused.as_store(), Some(StoreError::ThreadEnded { status: "cancelled", .. })), "{refused}");
    }
    thread.undo().unwrap().expect("the cancel is undone");
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(thread.open_interrupts().unwrap().len(), 1);

    thread.cancel("for good").unwrap();
    assert_eq!(graph.invoke(&thread, 1).unwrap().interrupts().len(), 1, "a new input begins anew");
}

#[apply(each_backend)]
fn a_run_under_way_ends_as_cancelled() {
    let store = place();
    let other = store.thread("a").unwrap();
    let body = move |_: i64, context: &Context| {
        other.cancel("stop it")?;
        until("the run hears of it", || context.is_cancelled());
        Err::<i64, _>("it was told".into())
    };
    let graph = Entrypoint::new("long", body).compile().unwrap();
    let thread = store.thread("a").unwrap();
    let ended = graph.run(&thread).lease(LEASE).invoke(0).unwrap();
    assert!(matches!(&ended, Outcome::Cancelled { reason, .. } if reason == "stop it"), "{ended:?}");
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()).as_str(), "cancelled");
    assert_eq!(thread.last_lease().unwrap().unwrap().expires_at, None, "the lease is released");
}

#[apply(each_backend)]
fn a_run_without_a_lease_ends_as_cancelled_at_its_next_commit() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let store = place();
        let other = store.thread("a").unwrap();
        let graph = StateGraph::<Parts>::new()
            .node("a", move |_: &Parts| {
                if other.head()?.is_some() {
                    other.cancel("stop it")?;
                }
                Ok(Parts::update().got([1]))
            })
            .node("b", |_: &Parts| Ok(Parts::update().got([2])))
            .edge(START, "a")
            .edge("a", "b")
            .compile()
            .unwrap();
        let thread = store.thread("a").unwrap();
        graph.run(&thread).interrupt_before(["a"]).invoke(Parts::update()).unwrap();
        let run = || graph.run(&thread).durability(durability);
        let ended = run().invoke(Input::Continue).unwrap();
        assert!(matches!(&ended, Outcome::Cancelled { reason, .. } if reason == "stop it"), "{durability:?} {ended:?}");
        let head = thread.head().unwrap().unwrap();
        assert_eq!((head.next().count(), head.len("got").unwrap()), (0, 0), "{durability:?}: nothing of it is stored");
    }
}

#[apply(each_backend)]
fn a_paused_thread_is_passed_over_until_it_is_resumed() {
    let store = place();
    let (graph, thread) = (listener(&[]), store.thread("a").unwrap());
    graph.enqueue(&thread, 0).unwrap();
    store.thread("a").unwrap().pause().unwrap();
    beside(&Worker::new(&store).register(&graph), || {
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
        store.thread("a").unwrap().resume().unwrap();
        let ended = thread.wait_for_end(GUARD).unwrap().expect("a worker hears of it");
        assert_eq!(ThreadStatus::of(&ended), ThreadStatus::Done);
    });
    assert_eq!(received(&graph, &thread), Some(Vec::new()));
}

#[apply(each_backend)]
fn a_run_on_a_paused_thread_stops_at_the_end_of_its_superstep() {
    let store = place();
    let other = store.thread("a").unwrap();
    let graph = StateGraph::<Parts>::new()
        .name("parts")
        .node("a", move |_: &Parts, context: &Context| {
            other.pause()?;
            until("the run hears of it", || context.control().drain_reason().is_some());
            Ok(Parts::update().got([1]))
        })
        .node("b", |_: &Parts| Ok(Parts::update().got([2])))
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    let thread = store.thread("a").unwrap();
    graph.enqueue(&thread, Parts::update()).unwrap();
    let worker = Worker::new(&store).register(&graph);
    worker.run_until_idle().unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().values.got.len(), 1);
    store.thread("a").unwrap().resume().unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1, "the control of the worker was not drained");
    assert_eq!(graph.get_state(&thread).unwrap().values.got.len(), 2);
}

#[apply(each_backend)]
fn a_thread_is_restarted_from_an_older_checkpoint() {
    let store = place();
    let runs = Arc::new(AtomicI64::new(0));
    let count = Arc::clone(&runs);
    let graph = StateGraph::<Parts>::new()
        .name("parts")
        .node("a", |_: &Parts| Ok(Parts::update().got([1])))
        .node("b", move |_: &Parts| Ok(Parts::update().got([10 + count.fetch_add(1, Ordering::SeqCst)])))
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    let thread = store.thread("a").unwrap();
    graph.invoke(&thread, Parts::update()).unwrap();
    let due_b = thread.history().unwrap().map(Result::unwrap).find(|snapshot| snapshot.next().eq(["b"])).unwrap();
    let end = thread.head().unwrap().unwrap();
    let refused = thread.restart_from(&end).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "snapshot", .. }), "{refused}");

    thread.restart_from(&due_b).unwrap();
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    assert_eq!(Worker::new(&store).register(&graph).run_until_idle().unwrap().continued, 1);
    let got: Vec<i64> = graph.get_state(&thread).unwrap().values.got.iter().copied().collect();
    assert_eq!(got, [1, 11]);
    assert_eq!(end.len("got").unwrap(), 2, "the past is as it was");
}

#[apply(each_backend)]
fn a_call_with_a_key_finds_the_end_of_its_thread() {
    let store = place();
    let (graph, thread) = (asking(), store.thread("a").unwrap());
    let call = || graph.run(&thread).idempotency_key("order-17").invoke(0).unwrap();
    let id = call().interrupts()[0].id.clone();
    thread.resume_interrupt(&id, 5).unwrap();
    assert_eq!(call().interrupts()[0].value, Value::from("sure?"), "a repeated call takes the value along");
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(call().value(), Some(&5));
    graph.invoke(&thread, 1).unwrap();
    assert_eq!(call().value(), Some(&5), "a later input is not part of it");

    let thread = store.thread("b").unwrap();
    let call = || graph.run(&thread).idempotency_key("order-18").invoke(0).unwrap();
    call();
    thread.cancel("too late").unwrap();
    let ended = call();
    assert!(matches!(&ended, Outcome::Cancelled { reason, .. } if reason == "too late"), "{ended:?}");
}

#[apply(each_backend)]
fn a_resume_value_for_a_thread_that_has_ended_is_refused() {
    let store = place();
    let (graph, thread) = (asking(), store.thread("a").unwrap());
    graph.invoke(&thread, 0).unwrap();
    graph.invoke(&thread, Command::resume(1)).unwrap();
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    let before = thread.head().unwrap();
    let refused = graph.invoke(&thread, Command::resume("again")).unwrap_err();
    assert!(matches!(refused.as_store(), Some(StoreError::ThreadEnded { status: "done", .. })), "{refused}");
    assert_eq!(thread.head().unwrap(), before);
    assert!(graph.invoke(&thread, Input::Continue).unwrap().is_done(), "without a value it shows the end");
}

#[apply(each_backend)]
fn the_end_of_a_run_is_waited_for() {
    let store = place();
    let (graph, thread) = (asking(), store.thread("a").unwrap());
    assert!(thread.wait_for_end(Duration::from_millis(5)).unwrap().is_none(), "it does not exist");
    graph.enqueue(&thread, 0).unwrap();
    assert!(thread.wait_for_end(Duration::from_millis(5)).unwrap().is_none(), "no worker runs it");
    beside(&Worker::new(&store).register(&graph), || {
        let asks = thread.wait_for_end(GUARD).unwrap().expect("it waits for a resume value");
        assert_eq!(ThreadStatus::of(&asks), ThreadStatus::Interrupted(vec!["how many?".into()]));
        thread.resume_interrupt(&thread.open_interrupts().unwrap()[0].id, 2).unwrap();
        let asks = thread.wait_for_end(GUARD).unwrap().expect("it waits for another one");
        assert_eq!(ThreadStatus::of(&asks), ThreadStatus::Interrupted(vec!["sure?".into()]));
        thread.resume_interrupt(&thread.open_interrupts().unwrap()[0].id, "yes").unwrap();
        let done = thread.wait_for_end(GUARD).unwrap().expect("it ends");
        assert_eq!(ThreadStatus::of(&done), ThreadStatus::Done);
    });
    let result = graph.result(&thread, GUARD).unwrap().expect("it has ended");
    assert!(result.values.value().is_some() && result.next.is_empty());
    let failing = Entrypoint::new("fails", |_: i64, _: &Context| Err::<i64, _>("no room".into())).compile().unwrap();
    let thread = store.thread("b").unwrap();
    failing.enqueue(&thread, 1).unwrap();
    assert!(failing.result(&thread, Duration::from_millis(5)).unwrap().is_none(), "no worker runs it");
    beside(&Worker::new(&store).register(&failing), || {
        let result = failing.result(&thread, GUARD).unwrap().expect("it has failed");
        let error = result.tasks[0].error.as_deref().unwrap_or_default();
        assert!(result.values.value().is_none() && error.contains("no room"), "{error:?}");
    });
}

#[apply(each_backend)]
fn an_asynchronous_node_is_dropped_where_it_waits_and_a_stream_ends() {
    let store = place();
    let other = store.thread("a").unwrap();
    let body = move |_: i64, _: Context| {
        let cancelled = other.cancel("stop it");
        async move {
            assert!(cancelled?);
            std::future::pending::<()>().await;
            Ok(1)
        }
    };
    let graph = Entrypoint::new("long", body).compile().unwrap();
    let thread = store.thread("a").unwrap();
    let ended = annals_graph::block_on(graph.run(&thread).lease(LEASE).ainvoke(0)).unwrap();
    assert!(matches!(&ended, Outcome::Cancelled { reason, .. } if reason == "stop it"), "{ended:?}");

    let mut stream = graph.run(&thread).lease(LEASE).stream(1, &[StreamMode::Values]).unwrap();
    assert!(stream.all(|part| part.is_ok()), "a cancel does not fail the stream");
    let ended = stream.outcome().expect("the stream has ended");
    assert!(matches!(ended, Outcome::Cancelled { reason, .. } if reason == "stop it"), "{ended:?}");
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()).as_str(), "cancelled");
}
