//! Queues: a call without types stores the same as a graph; delays, priorities, keys and limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use annals::base::{Clock, Timestamp, Value};
use annals::history::ThreadQuery;
use annals::store::log::LogExt;
use annals::store::record::TaskRecord;
use annals::store::{OpenOptions, StoreError};
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::{QueueLimit, Worker};
use macro_rules_attribute::apply;
use parking_lot::Mutex;

use crate::backends::{place, place_with};

#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

#[derive(State, Clone, Default)]
struct Sum {
    #[channel(last)]
    n: i64,
    #[channel(append)]
    log: List<String>,
}

type Flow = CompiledGraph<Entry<i64, i64>>;

fn doubles() -> Flow {
    Entrypoint::new("double", |n: i64| Ok(n * 2)).compile().unwrap()
}

fn sums() -> CompiledGraph<Sum> {
    StateGraph::<Sum>::new()
        .name("sum")
        .node("add", |sum: &Sum| Ok(Sum::update().n(sum.n + 1).log([format!("was {}", sum.n)])))
        .edge(START, "add")
        .compile()
        .unwrap()
}

/// The parts of a checkpoint that must not depend on who stored it.
fn stored(store: &Store, thread: &str) -> (i64, String, Option<String>, Vec<TaskRecord>, Vec<(String, u64, Value)>) {
    let head = store.thread(thread).unwrap().head().unwrap().unwrap();
    let record = head.record();
    let state = store.backend().state(&record.point).unwrap();
    let channels = state.channels.iter().map(|channel| {
        let value = head.get(&channel.channel).unwrap().unwrap_or_default();
        (channel.channel.to_string(), channel.version, value)
    });
    let tasks = record.tasks.iter().map(|task| TaskRecord::new(Default::default(), &*task.name, task.kind.clone()));
    let (step, source) = (record.step, record.source.as_str().to_owned());
    (step, source, record.metadata.clone(), tasks.collect(), channels.collect())
}

#[apply(each_backend)]
fn an_argument_without_types_is_stored_as_the_graph_stores_it() {
    let (store, graph) = (place(), doubles());
    graph.enqueue(&store.thread("graph").unwrap(), 4).unwrap();
    store.queue("double").enqueue("queue", 4).unwrap();
    graph.enqueue_with(&store.thread("typed").unwrap(), 4, |queue| queue).unwrap();
    assert_eq!(stored(&store, "graph"), stored(&store, "queue"));
    assert_eq!(stored(&store, "graph"), stored(&store, "typed"));
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 3);
    let value = |thread: &str| graph.get_state(&store.thread(thread).unwrap()).unwrap().values.value().copied();
    assert_eq!(["graph", "queue", "typed"].map(value), [Some(8); 3]);

    // The next input of a thread whose run has ended.
    graph.enqueue(&store.thread("graph").unwrap(), 5).unwrap();
    store.queue("double").enqueue("queue", 5).unwrap();
    assert_eq!(stored(&store, "graph"), stored(&store, "queue"));
    let refused = store.queue("double").enqueue("queue", 6).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "thread", .. }), "{refused}");
    assert_eq!(worker.run_until_idle().unwrap().continued, 2);
    assert_eq!(["graph", "queue"].map(value), [Some(10); 2]);
    let tasks = store.thread("queue").unwrap().history().unwrap().count();
    assert_eq!(tasks, 4, "an input and a result, twice");
}

#[apply(each_backend)]
fn an_update_without_types_is_continued_as_one_of_the_graph() {
    let (store, graph) = (place(), sums());
    store.queue("sum").enqueue_update("queue", [("n", 4)]).unwrap();
    graph.enqueue_with(&store.thread("typed").unwrap(), Sum::update().n(4), |queue| queue).unwrap();
    assert_eq!(stored(&store, "typed"), stored(&store, "queue"));
    let worker = Worker::new(&store).register(&graph);
    for round in 1..3 {
        assert_eq!(worker.run_until_idle().unwrap().continued, 2);
        for thread in ["queue", "typed"] {
            let state = graph.get_state(&store.thread(thread).unwrap()).unwrap().values;
            assert_eq!((state.n, state.log.len()), (5, round));
        }
        store.queue("sum").enqueue_update("queue", [("n", 4)]).unwrap();
        graph.enqueue_with(&store.thread("typed").unwrap(), Sum::update().n(4), |queue| queue).unwrap();
    }
}

#[apply(each_backend)]
fn an_input_of_the_wrong_kind_fails_with_a_message() {
    let store = place();
    store.queue("sum").enqueue("a", 4).unwrap();
    store.queue("double").enqueue_update("b", [("n", 4)]).unwrap();
    let report = Worker::new(&store).register(&sums()).register(&doubles()).run_until_idle().unwrap();
    assert_eq!((report.continued, report.stuck), (0, 2));
    for thread in ["a", "b"] {
        match ThreadStatus::of(&store.thread(thread).unwrap().info().unwrap()) {
            ThreadStatus::Stuck(message) => assert!(message.contains("entrypoint"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[apply(each_backend)]
fn a_delayed_run_sleeps_until_it_is_due() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let (graph, other) = (doubles(), sums());
    store.queue("double").delay(Duration::from_secs(100)).enqueue("later", 4).unwrap();
    store.queue("sum").at(Timestamp::from_micros(50_000_000)).enqueue_update("update", [("n", 4)]).unwrap();
    let info = store.thread("later").unwrap().info().unwrap();
    assert_eq!(ThreadStatus::of(&info), ThreadStatus::Sleeping(Timestamp::from_micros(100_000_000)));
    assert_eq!(store.timers(None).unwrap().len(), 2);
    let worker = Worker::new(&store).register(&graph).register(&other);
    for (second, continued) in [(49, 0), (50, 1), (99, 0), (100, 1)] {
        hands.0.store(second, Ordering::SeqCst);
        assert_eq!(worker.run_until_idle().unwrap().continued, continued, "after {second} s");
    }
    assert_eq!(graph.get_state(&store.thread("later").unwrap()).unwrap().values.value(), Some(&8));
    assert_eq!(other.get_state(&store.thread("update").unwrap()).unwrap().values.n, 5);
    assert_eq!(store.timers(None).unwrap(), []);
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_delayed_run_that_sleeps_and_fails_has_the_state_of_its_own() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let nap = |n: i64, context: &Context| {
        context.sleep_for(Duration::from_secs(10))?;
        if n == 1 { Err("no".into()) } else { Ok(n) }
    };
    let graph = Entrypoint::new("nap", nap).compile().unwrap();
    for n in 0..2 {
        store.queue("nap").delay(Duration::from_secs(5)).enqueue(format!("t{n}"), n).unwrap();
    }
    let status = |n: i64| ThreadStatus::of(&store.thread(format!("t{n}")).unwrap().info().unwrap());
    let worker = Worker::new(&store).register(&graph);
    hands.0.store(5, Ordering::SeqCst);
    assert_eq!(worker.run_until_idle().unwrap().continued, 2);
    assert_eq!(status(0), ThreadStatus::Sleeping(Timestamp::from_micros(15_000_000)), "its own sleep");
    hands.0.store(15, Ordering::SeqCst);
    let report = worker.run_until_idle().unwrap();
    assert_eq!((report.continued, report.failed), (1, 1));
    assert_eq!(status(0), ThreadStatus::Done);
    assert!(matches!(status(1), ThreadStatus::Failed(_)));
}

#[apply(each_backend)]
fn the_greatest_priority_is_claimed_first_then_the_oldest() {
    let store = place();
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let work = move |n: i64| {
        seen.lock().push(n);
        Ok(n)
    };
    let graph = Entrypoint::new("work", work).compile().unwrap();
    for (n, priority) in [(0, 0), (1, 9), (2, 0), (3, 5), (4, 9)] {
        store.queue("work").priority(priority).enqueue(format!("t{n}"), n).unwrap();
    }
    let due = store.queue("work").due(10).unwrap();
    assert_eq!(due.iter().map(|run| run.priority).collect::<Vec<_>>(), [9, 9, 5, 0, 0]);
    let page = store.threads_with(ThreadQuery::new().queue("work").limit(2)).unwrap();
    let rest = store.threads_with(ThreadQuery::new().queue("work").after(&page[1])).unwrap();
    assert_eq!(rest.iter().map(|run| run.id().as_str()).collect::<Vec<_>>(), ["t3", "t0", "t2"]);
    Worker::new(&store).register(&graph).run_until_idle().unwrap();
    assert_eq!(*order.lock(), [1, 4, 3, 0, 2]);
    let refused = store.queue("work").priority(10).enqueue("t", 1).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "priority", .. }), "{refused}");
}

#[apply(each_backend)]
fn a_long_queue_keeps_its_order_while_the_table_of_threads_follows() {
    let store = place();
    for n in 0..600_i64 {
        store.queue("work").priority(u8::try_from(n % 3).unwrap()).enqueue(format!("t{n}"), n).unwrap();
    }
    let expected: Vec<String> =
        (0..3).rev().flat_map(|priority| (0..200).map(move |n| format!("t{}", 3 * n + priority))).collect();
    let (mut listed, mut query) = (Vec::new(), ThreadQuery::new().queue("work").limit(64));
    loop {
        let page = store.threads_with(query.clone()).unwrap();
        let Some(last) = page.last() else { break };
        query = query.after(last);
        listed.extend(page.iter().map(|run| run.id().to_string()));
    }
    assert_eq!(listed, expected);
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_key_is_enqueued_once_on_its_thread() {
    let (store, graph) = (place(), doubles());
    let enqueue = || store.queue("double").dedup("order-17").enqueue("t", 4).unwrap().is_new;
    let news: usize = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(enqueue)).collect();
        calls.into_iter().map(|call| usize::from(call.join().unwrap())).sum()
    });
    assert_eq!(news, 1);
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert!(!enqueue(), "also after its end");
    let other = graph.enqueue_with(&store.thread("t").unwrap(), 9, |queue| queue.dedup("order-17")).unwrap();
    assert!(!other.is_new);
    assert_eq!(graph.get_state(&store.thread("t").unwrap()).unwrap().values.value(), Some(&8));
    assert!(store.queue("double").dedup("order-18").enqueue("t", 5).unwrap().is_new);
}

/// Counts the runs at the same time, and the most of them.
#[derive(Default)]
struct Gauge(AtomicUsize, AtomicUsize);

impl Gauge {
    fn during(&self, takes: Duration) {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(takes);
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[apply(each_backend)]
fn the_limits_of_a_queue_hold_over_workers() {
    let store = place();
    let (all, ann) = (Arc::new(Gauge::default()), Arc::new(Gauge::default()));
    let gauges = (Arc::clone(&all), Arc::clone(&ann));
    let work = move |n: i64| {
        match n % 2 {
            0 => gauges.0.during(Duration::from_millis(10)),
            _ => gauges.1.during(Duration::from_millis(10)),
        }
        Ok(n)
    };
    let graph = Entrypoint::new("work", work).compile().unwrap();
    for n in 0..24 {
        let queue = store.queue("work");
        let queue = if n % 2 == 1 { queue.metadata([("customer", "ann")]) } else { queue };
        queue.enqueue(format!("t{n}"), n).unwrap();
    }
    let limit = || QueueLimit::new("work").concurrency(3).per_key("customer", 1);
    let worker = || Worker::new(&store).register(&graph).concurrency(4).queue(limit());
    let continued: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| worker().run_until_idle().unwrap())).collect();
        workers.into_iter().map(|worker| worker.join().unwrap().continued).sum()
    });
    assert_eq!(continued, 24);
    assert!(all.most() <= 3 && ann.most() == 1, "{} and {} at the same time", all.most(), ann.most());
    let metadata = store.thread("t1").unwrap().head().unwrap().unwrap().record().metadata.clone().unwrap();
    assert!(metadata.contains("ann"), "a run passes its metadata on: {metadata}");
}

#[apply(each_backend)]
fn the_rate_of_a_queue_holds() {
    let (store, graph) = (place(), doubles());
    for n in 0..7 {
        store.queue("double").enqueue(format!("t{n}"), n).unwrap();
    }
    let begin = store.elapsed();
    let limit = QueueLimit::new("double").rate(3, Duration::from_millis(200));
    let worker = Worker::new(&store).register(&graph).concurrency(4).queue(limit);
    assert_eq!(worker.run_until_idle().unwrap().continued, 7);
    assert!(store.elapsed() - begin >= Duration::from_millis(400), "three, three and one");
}
