//! Signals: values that are sent to a thread from outside, and that its tasks receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals::base::Timestamp;
use annals::store::batch::Batch;
use annals::store::log::{CommitHandle, Layer, Log};
use annals::store::{MemoryBackend, OpenOptions, StoreError};
use annals_graph::Worker;
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use macro_rules_attribute::apply;

use crate::backends::{GUARD, place, place_with};
use crate::thread_control::{DAY, Hands, Parts, beside, listener, received, until};

#[apply(each_backend)]
fn a_signal_that_came_before_the_run_is_received_by_it() {
    let store = place();
    store.signal("a", "x", 1).unwrap();
    store.signal("a", "x", 2).unwrap();
    store.signal("a", "y", 3).unwrap();
    let (graph, thread) = (listener(&["x", "y", "x"]), store.thread("a").unwrap());
    let done = graph.invoke(&thread, 0).unwrap();
    assert_eq!(done.value(), Some(&vec![Some(1), Some(3), Some(2)]), "by name, in the order in which they were sent");
    assert_eq!(thread.signals().unwrap(), [], "each is received once");
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Done);
    assert!(store.timers(None).unwrap().is_empty());
}

#[apply(each_backend)]
fn a_run_that_waits_for_a_signal_sleeps_until_its_timeout() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let (graph, thread) = (listener(&["x", "y"]), store.thread("a").unwrap());
    let asleep = graph.invoke(&thread, 0).unwrap();
    let wake_at = Timestamp::from_micros(0).saturating_add(DAY);
    assert_eq!(asleep.wake_at(), Some(wake_at));
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Sleeping(wake_at));
    let open = thread.open_interrupts().unwrap();
    assert_eq!((open.len(), open[0].signal.as_deref(), open[0].wake_at), (1, Some("x"), Some(wake_at)));

    store.signal("a", "z", 9).unwrap();
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 0, "a signal of another name wakes nobody");
    hands.0.store(24 * 60 * 60, Ordering::SeqCst);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(thread.open_interrupts().unwrap()[0].signal.as_deref(), Some("y"));

    store.signal("a", "x", 1).unwrap();
    store.signal("a", "y", 2).unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(received(&graph, &thread), Some(vec![None, Some(2)]), "the timeout of the first is stored");
    let left: Vec<_> = thread.signals().unwrap().into_iter().map(|signal| signal.name).collect();
    assert_eq!(left, ["x", "z"]);
}

#[apply(each_backend)]
fn a_worker_continues_a_thread_as_soon_as_its_signal_comes() {
    let store = place();
    let (graph, thread) = (listener(&["x", "x"]), store.thread("a").unwrap());
    graph.enqueue(&thread, 0).unwrap();
    beside(&Worker::new(&store).register(&graph), || {
        until("it waits", || matches!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Sleeping(_)));
        store.signal("a", "x", 7).unwrap();
        until("it waits again", || {
            thread.signals().unwrap().is_empty() && thread.open_interrupts().unwrap().len() == 1
        });
        store.signal("a", "x", 8).unwrap();
        until("it ends", || ThreadStatus::of(&thread.info().unwrap()) == ThreadStatus::Done);
    });
    assert_eq!(received(&graph, &thread), Some(vec![Some(7), Some(8)]));
}

/// Counts the commits of a log in memory.
#[derive(Debug)]
struct CountedCommits(MemoryBackend, AtomicUsize);

impl Layer for CountedCommits {
    fn below(&self) -> &dyn Log {
        &self.0
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.submit(batch)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.commit(batch)
    }
}

#[test]
fn a_signal_is_one_commit_with_the_task_that_waits_for_it() {
    let counted = Arc::new(CountedCommits(MemoryBackend::new(), AtomicUsize::new(0)));
    let store = Store::with_backend(Arc::clone(&counted) as Arc<dyn Log>, OpenOptions::new());
    let (graph, thread) = (listener(&["x", "y"]), store.thread("a").unwrap());
    graph.invoke(&thread, 1).unwrap();
    let commits = |act: &dyn Fn()| {
        let before = counted.1.load(Ordering::Relaxed);
        act();
        counted.1.load(Ordering::Relaxed) - before
    };
    // Nobody waits for it: it lies in the mailbox.
    assert_eq!(commits(&|| _ = thread.signal("y", 8).unwrap()), 1);
    assert_eq!(thread.signals().unwrap().len(), 1);
    assert_eq!(commits(&|| _ = thread.signal("x", 7).unwrap()), 1);
    assert_eq!(thread.signals().unwrap().len(), 1, "the task has it");
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(received(&graph, &thread), Some(vec![Some(7), Some(8)]));
}

#[apply(each_backend)]
fn parallel_tasks_receive_a_signal_each_and_one_of_them_does_not_wait_for_the_other() {
    let store = place();
    let node =
        |_: &Parts, context: &Context| Ok(Parts::update().got([context.receive::<i64>("x", DAY)?.unwrap_or(-1)]));
    let graph = StateGraph::<Parts>::new()
        .name("parts")
        .node("a", node)
        .node("b", node)
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    let thread = store.thread("p").unwrap();
    assert_eq!(graph.invoke(&thread, Parts::update()).unwrap().interrupts().len(), 2);
    let worker = Worker::new(&store).register(&graph);
    store.signal("p", "x", 1).unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(thread.open_interrupts().unwrap().len(), 1, "one of them has ended");
    assert_eq!(worker.run_until_idle().unwrap().continued, 0, "the other one goes on waiting");
    store.signal("p", "x", 2).unwrap();
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    let mut got: Vec<i64> = graph.get_state(&thread).unwrap().values.got.iter().copied().collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
    assert!(store.timers(None).unwrap().is_empty());
}

#[apply(each_backend)]
fn a_task_that_fails_after_it_received_gets_the_same_signal_again() {
    let store = place();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let body = move |_: i64, context: &Context| {
        let value = context.receive::<i64>("x", DAY)?;
        if count.fetch_add(1, Ordering::SeqCst) == 0 { Err("the line is busy".into()) } else { Ok(value) }
    };
    let graph = Entrypoint::new("once", body).compile().unwrap();
    let thread = store.thread("a").unwrap();
    store.signal("a", "x", 1).unwrap();
    graph.invoke(&thread, 0).unwrap_err();
    store.signal("a", "x", 2).unwrap();
    assert!(matches!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Failed(_)));

    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 0);
    assert!(store.thread("a").unwrap().retry().unwrap());
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    assert!(!store.thread("a").unwrap().retry().unwrap(), "nothing has failed any more");
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(received(&graph, &thread), Some(Some(1)));
    assert_eq!(thread.signals().unwrap().len(), 1);
}

#[apply(each_backend)]
fn a_signal_for_a_task_that_went_past_its_timeout_and_failed_stays() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let fails = Arc::new(AtomicUsize::new(1));
    let count = Arc::clone(&fails);
    let body = move |_: i64, context: &Context| {
        let value = context.receive::<i64>("x", DAY)?;
        let left = count.load(Ordering::SeqCst);
        count.store(left.saturating_sub(1), Ordering::SeqCst);
        if left > 0 { Err("the line is busy".into()) } else { Ok(value) }
    };
    let (graph, thread) = (Entrypoint::new("once", body).compile().unwrap(), store.thread("a").unwrap());
    graph.invoke(&thread, 0).unwrap();
    hands.0.store(24 * 60 * 60, Ordering::SeqCst);
    graph.invoke(&thread, Input::Continue).unwrap_err();
    assert_eq!(thread.open_interrupts().unwrap(), [], "a failed task waits at no interrupt");
    store.signal("a", "x", 1).unwrap();
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 0);
    assert_eq!(thread.signals().unwrap().len(), 1);
    assert!(store.thread("a").unwrap().retry().unwrap());
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(received(&graph, &thread), Some(None), "its timeout had passed");
    assert_eq!(thread.signals().unwrap().len(), 1, "no task has received it");
}

#[apply(each_backend)]
fn a_signal_that_comes_after_a_timeout_stays_though_its_task_still_runs() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let sender = store.clone();
    let body = move |_: i64, context: &Context| {
        let value = context.receive::<i64>("x", DAY)?;
        sender.signal("a", "x", 7)?;
        assert!(!sender.thread("a")?.deliver_signals()?, "the receive has ended");
        Ok(value)
    };
    let (graph, thread) = (Entrypoint::new("late", body).compile().unwrap(), store.thread("a").unwrap());
    graph.invoke(&thread, 0).unwrap();
    hands.0.store(24 * 60 * 60, Ordering::SeqCst);
    assert_eq!(Worker::new(&store).register(&graph).run_until_idle().unwrap().continued, 1);
    assert_eq!(received(&graph, &thread), Some(None), "its timeout had passed");
    assert_eq!(thread.signals().unwrap().len(), 1, "no task has received it");
}

#[apply(each_backend)]
fn a_receive_whose_timeout_passes_while_its_run_is_under_way_ends_in_it() {
    let store = place();
    let graph = Entrypoint::new("poll", |_: i64, context: &Context| context.receive::<i64>("x", Duration::ZERO));
    let (graph, thread) = (graph.compile().unwrap(), store.thread("a").unwrap());
    assert_eq!(graph.invoke(&thread, 0).unwrap().value(), Some(&None));
    assert!(store.timers(None).unwrap().is_empty() && store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn resume_values_that_are_given_at_once_are_all_kept() {
    let node = |_: &Parts, context: &Context| {
        Ok(Parts::update().got([context.interrupt("a number?")?.as_int().unwrap_or_default()]))
    };
    let graph = StateGraph::<Parts>::new().node("a", node).node("b", node).edge(START, "a").edge(START, "b");
    let (store, graph) = (place(), graph.compile().unwrap());
    for round in 0..20 {
        let thread = store.thread(format!("t{round}")).unwrap();
        graph.invoke(&thread, Parts::update()).unwrap();
        let open = thread.open_interrupts().unwrap();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (interrupt, value) in open.iter().zip([1, 2]) {
                let (thread, start) = (&thread, &start);
                scope.spawn(move || {
                    start.wait();
                    thread.resume_interrupt(&interrupt.id, value).unwrap();
                });
            }
        });
        let done = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(done.interrupts(), [], "round {round}");
        assert_eq!(graph.get_state(&thread).unwrap().values.got.iter().sum::<i64>(), 3);
    }
}

#[apply(each_backend)]
fn the_resume_value_of_a_command_leaves_the_signals_that_were_given() {
    let store = place();
    let reader = store.clone();
    let receives =
        |_: &Parts, context: &Context| Ok(Parts::update().got([context.receive::<i64>("x", DAY)?.unwrap_or(-1)]));
    let asks = move |_: &Parts, context: &Context| {
        let value = context.interrupt("a number?")?.as_int().unwrap_or_default();
        let writes = reader.thread("p")?.at("@")?.writes()?;
        assert!(writes.iter().any(|write| &*write.channel == "__given__"), "a crash here would lose the signal");
        Ok(Parts::update().got([value]))
    };
    let graph = StateGraph::<Parts>::new().node("a", receives).node("b", asks).edge(START, "a").edge(START, "b");
    let (graph, thread) = (graph.compile().unwrap(), store.thread("p").unwrap());
    graph.invoke(&thread, Parts::update()).unwrap();
    store.signal("p", "x", 1).unwrap();
    assert!(!thread.deliver_signals().unwrap(), "it was delivered when it was sent");
    assert_eq!(graph.invoke(&thread, Command::resume(2)).unwrap().interrupts(), []);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(state.values.got.iter().sum::<i64>(), 3);
}

#[apply(each_backend)]
fn a_worker_gives_a_signal_that_came_before_it_to_a_thread_that_asks_as_well() {
    let store = place();
    let receives =
        |_: &Parts, context: &Context| Ok(Parts::update().got([context.receive::<i64>("x", DAY)?.unwrap_or(-1)]));
    let asks = |_: &Parts, context: &Context| {
        Ok(Parts::update().got([context.interrupt("a number?")?.as_int().unwrap_or_default()]))
    };
    let graph = StateGraph::<Parts>::new().name("both").node("a", receives).node("b", asks);
    let (graph, thread) = (graph.edge(START, "a").edge(START, "b").compile().unwrap(), store.thread("p").unwrap());
    graph.invoke(&thread, Parts::update()).unwrap();
    store.signal("p", "x", 1).unwrap();
    assert_eq!(Worker::new(&store).register(&graph).run_until_idle().unwrap().continued, 1);
    assert_eq!((thread.open_interrupts().unwrap().len(), thread.signals().unwrap().len()), (1, 0));
}

#[apply(each_backend)]
fn a_task_that_failed_and_sleeps_now_has_not_failed() {
    let store = place();
    let fails = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fails);
    let body = move |_: i64, context: &Context| -> NodeResult<Option<i64>> {
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => Err("the line is busy".into()),
            _ => context.receive::<i64>("x", DAY),
        }
    };
    let (graph, thread) = (Entrypoint::new("late", body).compile().unwrap(), store.thread("a").unwrap());
    graph.invoke(&thread, 0).unwrap_err();
    assert!(matches!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Failed(_)));
    assert!(graph.invoke(&thread, Input::Continue).unwrap().wake_at().is_some());
    assert!(matches!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Sleeping(_)));
    assert!(store.check().unwrap().problems.is_empty());
    store.signal("a", "x", 1).unwrap();
    assert_eq!(Worker::new(&store).register(&graph).run_until_idle().unwrap().continued, 1);
    assert_eq!(received(&graph, &thread), Some(Some(1)));
}

#[apply(each_backend)]
fn an_asynchronous_run_receives() {
    let store = place();
    let body =
        |_: i64, context: Context| async move { Ok(context.receive::<String>("name", DAY)?.unwrap_or_default()) };
    let graph = Entrypoint::new("greet", body).compile().unwrap();
    let thread = store.thread("a").unwrap();
    let asleep = annals_graph::block_on(graph.ainvoke(&thread, 0)).unwrap();
    assert_eq!(asleep.interrupts()[0].signal.as_deref(), Some("name"));
    store.signal("a", "name", "ann").unwrap();
    let done = annals_graph::block_on(graph.ainvoke(&thread, Input::Continue)).unwrap();
    assert_eq!(done.value().map(String::as_str), Some("ann"));

    let refused = graph.invoke((), 0).unwrap_err();
    assert!(refused.to_string().contains("no store records this run"), "{refused}");
}

#[apply(each_backend)]
fn a_signal_is_refused_if_nobody_can_receive_it() {
    let store = place();
    assert!(matches!(
        store.signal("a", "", 1).unwrap_err().as_store(),
        Some(StoreError::Invalid { field: "signal name", .. })
    ));
    let (graph, thread) = (listener(&["x"]), store.thread("a").unwrap());
    graph.invoke(&thread, 0).unwrap();
    assert!(store.thread("a").unwrap().cancel("too late").unwrap());
    let refused = store.signal("a", "x", 1).unwrap_err();
    assert!(matches!(refused.as_store(), Some(StoreError::ThreadEnded { status: "cancelled", .. })), "{refused}");
}

/// A workflow that asks, and returns the answer.
#[test]
fn a_worker_hears_of_the_signals_of_another_handle_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // One of them may stand still while it writes.
    let open = || Store::open_with(&path, OpenOptions::new().busy_timeout_ms(GUARD.as_millis() as u64)).unwrap();
    let (store, other) = (open(), open());
    let (graph, thread) = (listener(&["x", "x", "x"]), store.thread("a").unwrap());
    graph.enqueue(&thread, 0).unwrap();
    beside(&Worker::new(&store).register(&graph), || {
        for value in 1..=3 {
            until("it waits", || other.thread("a").unwrap().open_interrupts().unwrap().len() == 1);
            other.signal("a", "x", value).unwrap();
            until("it goes on", || {
                let thread = other.thread("a").unwrap();
                let is_done = ThreadStatus::of(&thread.info().unwrap()) == ThreadStatus::Done;
                thread.signals().unwrap().is_empty() && is_done == (value == 3)
            });
        }
    });
    assert_eq!(received(&graph, &thread), Some(vec![Some(1), Some(2), Some(3)]));
    assert!(store.check().unwrap().problems.is_empty());
}
