//! A worker finds the due runs, in one process and in several; processes that are killed lose nothing.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::base::{Clock, SystemClock, ThreadId, Timestamp};
use annals::history::ThreadQuery;
use annals::store::batch::Batch;
use annals::store::log::{
    Capabilities, ChangePage, ClaimQuery, Claims, CommitHandle, Follow, HeadParts, Layer, Log, LogPosition, LogWatch,
    NamespaceRef, Queues, RecordQuery, StateQuery, ThreadParts, ThreadRow, ThreadRows, VisitState,
};
use annals::store::record::{CheckpointRecord, StoredHead};
use annals::store::{CheckpointRef, MemoryBackend, OpenOptions, StoreError};
use annals_graph::Worker;
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::{RunControl, Task};
use macro_rules_attribute::apply;

use crate::backends::{GUARD, place, place_with};
use crate::cases;

type Flow = CompiledGraph<Entry<i64, i64>>;

const NAMES: [&str; 5] = ["one", "two", "three", "four", "five"];
const LEASE: Duration = Duration::from_secs(2);

/// A clock that the test sets, in seconds.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

/// A workflow of five tasks, each of which calls `effect` with its input and its name.
fn flow(effect: impl Fn(i64, &str) + Send + Sync + 'static) -> Flow {
    flow_with(move |order, name, _| {
        effect(order, name);
        Ok(())
    })
}

fn flow_with(effect: impl Fn(i64, &str, &Context) -> NodeResult<()> + Send + Sync + 'static) -> Flow {
    let effect = Arc::new(effect);
    let tasks = NAMES.map(|name| {
        let effect = Arc::clone(&effect);
        Task::new(name, move |(order, n): (i64, i64), context: &Context| {
            effect(order, name, context)?;
            Ok(n * 2 + 1)
        })
    });
    let steps = move |order: i64, context: &Context| {
        let mut n = order;
        for task in &tasks {
            n = task.call(context, (order, n))?;
        }
        Ok(n)
    };
    Entrypoint::new("flow", steps).compile().unwrap()
}

fn result(order: i64) -> i64 {
    NAMES.iter().fold(order, |n, _| n * 2 + 1)
}

fn thread(store: &Store, order: i64) -> Thread {
    store.thread(format!("order-{order}")).unwrap()
}

fn value(flow: &Flow, store: &Store, order: i64) -> Option<i64> {
    flow.get_state(&thread(store, order)).unwrap().values.value().copied()
}

#[apply(each_backend)]
fn a_worker_runs_what_was_enqueued() {
    let store = place();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let flow = flow(move |_, _| _ = count.fetch_add(1, Ordering::SeqCst));
    let other = Entrypoint::new("other", |n: i64| Ok(n)).compile().unwrap();
    for order in 0..5 {
        flow.enqueue(&thread(&store, order), order).unwrap();
    }
    other.enqueue(&store.thread("other").unwrap(), 1).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 0, "nothing runs before a worker does");
    let named = |name: &str| store.threads_with(ThreadQuery::new().graph(name)).unwrap().len();
    assert_eq!((named("flow"), named("other")), (5, 1));

    let report = Worker::new(&store).register(&flow).concurrency(3).run_until_idle().unwrap();
    assert_eq!((report.continued, report.failed, report.stuck), (5, 0, 0));
    assert_eq!(ran.load(Ordering::SeqCst), 25);
    for order in 0..5 {
        assert_eq!(value(&flow, &store, order), Some(result(order)));
        let lease = thread(&store, order).last_lease().unwrap().unwrap();
        assert_eq!((lease.epoch, lease.expires_at), (1, None));
    }
    let rest = store.thread("other").unwrap().info().unwrap();
    assert_eq!(ThreadStatus::of(&rest), ThreadStatus::Running, "its graph is not registered");
    assert_eq!(Worker::new(&store).register(&flow).run_until_idle().unwrap().continued, 0);
}

/// A layer that notes the calls that reach its log, but for its timers, which a claim in memory reads itself.
#[derive(Debug, Default)]
struct NotedCalls {
    below: MemoryBackend,
    calls: Mutex<Vec<&'static str>>,
}

impl NotedCalls {
    /// Notes a call, unless it is one of the thread that renews leases: that one also looks whether somebody controls a
    /// run, as soon as the run takes long.
    fn note(&self, call: &'static str) -> &MemoryBackend {
        if std::thread::current().name() != Some("annals-lease") {
            self.calls.lock().unwrap().push(call);
        }
        &self.below
    }
}

impl Layer for NotedCalls {
    fn below(&self) -> &dyn Log {
        &self.below
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        self.note("commit").submit(batch)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.note("commit").commit(batch)
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        self.note("heads").heads(of, parts)
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        self.note("records").records(query)
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        self.note("read").read(at, query, visit)
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        self.note("threads").thread_rows(of, parts)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let mut parts = self.below.capabilities();
        parts.queues = Some(self);
        parts.follow = Some(self);
        parts
    }
}

impl Queues for NotedCalls {
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        self.note("claim").claim(query)
    }
}

impl Follow for NotedCalls {
    fn changes_after(&self, at: &LogPosition, of: Option<&ThreadId>, limit: usize) -> Result<ChangePage, StoreError> {
        self.note("follow").changes_after(at, of, limit)
    }

    fn position(&self, newest: u64) -> Result<LogPosition, StoreError> {
        self.note("follow").position(newest)
    }

    fn watch(&self) -> Result<LogWatch, StoreError> {
        self.below.watch()
    }
}

#[test]
fn a_worker_reads_the_threads_that_it_has_claimed_alone() {
    let noted = Arc::new(NotedCalls::default());
    let store = Store::with_backend(Arc::clone(&noted) as Arc<dyn Log>, OpenOptions::new());
    let echo = Entrypoint::new("echo", |n: i64| Ok(n)).compile().unwrap();
    for order in 0..3 {
        store.thread(format!("chat-{order}")).unwrap().append("messages", ["hi"]).unwrap();
        store.queue("echo").enqueue(format!("order-{order}"), order).unwrap();
    }
    noted.calls.lock().unwrap().clear();
    assert_eq!(Worker::new(&store).register(&echo).concurrency(3).run_until_idle().unwrap().continued, 3);
    let calls = std::mem::take(&mut *noted.calls.lock().unwrap());
    let count = |call: &str| calls.iter().filter(|noted| **noted == call).count();
    assert_eq!((count("follow"), count("records")), (0, 0), "{calls:?}");
    assert_eq!(count("threads"), 2, "the threads that wait for signals, when it begins: {calls:?}");
    assert_eq!((count("heads"), count("read"), count("commit")), (3, 3, 3), "one of each for a run: {calls:?}");
}

#[apply(each_backend)]
fn a_worker_that_runs_hears_of_new_work_and_of_the_request_to_stop() {
    let store = place();
    let flow = flow(|_, _| ());
    let (worker, control) = (Worker::new(&store).register(&flow), RunControl::new());
    std::thread::scope(|scope| {
        let works = scope.spawn(|| worker.run_until(&control).unwrap());
        for order in 0..3 {
            flow.enqueue(&thread(&store, order), order).unwrap();
            let begin = SystemClock.elapsed();
            while value(&flow, &store, order).is_none() {
                assert!(SystemClock.elapsed() - begin < GUARD, "the worker does not hear of it");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        control.request_drain("the end");
        assert_eq!(works.join().unwrap().continued, 3);
    });
}

#[apply(each_backend)]
fn a_worker_wakes_sleeping_tasks() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let nap = |n: i64, context: &Context| {
        context.sleep_for(Duration::from_secs(100))?;
        Ok(n + 1)
    };
    let graph = Entrypoint::new("nap", nap).compile().unwrap();
    graph.enqueue(&thread(&store, 1), 1).unwrap();
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    hands.0.store(99, Ordering::SeqCst);
    assert_eq!(worker.run_until_idle().unwrap().continued, 0);
    hands.0.store(100, Ordering::SeqCst);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1);
    assert_eq!(value(&graph, &store, 1), Some(2));
}

#[apply(each_backend)]
fn a_run_that_was_continued_too_often_is_stuck_until_a_person_continues_it() {
    let hands = Hands::default();
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let flow = flow(|_, _| ());
    let thread = thread(&store, 1);
    flow.enqueue(&thread, 1).unwrap();
    let worker = Worker::new(&store).register(&flow).max_recoveries(2);
    for recoveries in 0..3 {
        // A process that claims the thread and dies.
        std::mem::forget(thread.lease(LEASE).unwrap());
        assert_eq!(thread.last_lease().unwrap().unwrap().recoveries, recoveries);
        assert_eq!(worker.run_until_idle().unwrap().continued, 0, "its lease is live");
        hands.0.fetch_add(60, Ordering::SeqCst);
    }
    assert_eq!(worker.run_until_idle().unwrap().stuck, 1);
    let stuck = ThreadStatus::Stuck("the run was continued 3 times and did not end".into());
    let listed = || {
        let found = store.threads_with(ThreadQuery::new().status(&ThreadStatus::Stuck(String::new()))).unwrap();
        found.iter().map(ThreadStatus::of).collect::<Vec<_>>()
    };
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), stuck);
    assert_eq!(listed(), [stuck]);
    assert_eq!(worker.run_until_idle().unwrap(), annals_graph::WorkerReport::default());
    assert!(thread.retry().unwrap());
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);
    assert_eq!(listed(), []);
    assert_eq!(worker.run_until_idle().unwrap().continued, 1, "its recoveries are counted anew");
    assert_eq!(value(&flow, &store, 1), Some(result(1)));
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_run_that_fails_is_left_as_it_is() {
    let store = place();
    let graph =
        Entrypoint::new("fails", |n: i64| -> NodeResult<i64> { Err(format!("no {n}").into()) }).compile().unwrap();
    graph.enqueue(&thread(&store, 1), 1).unwrap();
    let worker = Worker::new(&store).register(&graph);
    assert_eq!(worker.run_until_idle().unwrap().failed, 1);
    assert!(matches!(ThreadStatus::of(&thread(&store, 1).info().unwrap()), ThreadStatus::Failed(_)));
    assert_eq!(worker.run_until_idle().unwrap().failed, 0);
}

/// Number of worker processes.
const PROCESSES: usize = 8;
/// The numbers of processes that are killed, and of workflows, unless the environment names another one: in the test
/// command, and in all.
const KILLS: (u64, u64) = (5, 100);
/// Names the number of kills, and of workflows: 1,000 for a long run.
const KILLS_VARIABLE: &str = "ANNALS_WORKER_KILLS";
/// Threads on which a process runs workflows.
const CONCURRENCY: usize = 2;
/// Tells the child where to work.
const FOLDER: &str = "ANNALS_WORKER_FOLDER";

/// The table of the workflow: a row for each task, and no constraint that hides a second one.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS app_steps (step TEXT NOT NULL)";

/// The workflow of the processes: each task notes that it ran, with its key, takes its time, and adds a row in a
/// transaction.
fn noted(folder: &Path, takes: Duration) -> Flow {
    let effects = folder.join("effects");
    flow_with(move |order, name, context| {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&effects).unwrap();
        // One system call, or the lines of two processes would mix.
        file.write_all(format!("{order} {name} {}\n", context.step_key()).as_bytes()).unwrap();
        std::thread::sleep(takes);
        let step = format!("{order} {name}");
        context.transaction(|tx| tx.execute("INSERT INTO app_steps VALUES (?1)", [&step]))?;
        Ok(())
    })
}

/// Opens the store of the processes, with the table of their workflow.
fn opened(folder: &Path) -> Store {
    // Eight processes write at the same time, perhaps on a machine that is busy with something else.
    let options = OpenOptions::new().busy_timeout_ms(GUARD.as_millis() as u64);
    let store = Store::open_with(folder.join("store.db"), options).unwrap();
    store.transaction(|tx| tx.execute_batch(TABLE)).unwrap();
    store
}

/// Checks that each step of so many orders has one row and one key. Returns how many effects there were above one for
/// each.
fn verify_steps(folder: &Path, store: &Store, orders: i64) -> usize {
    let mut rows: Vec<String> =
        store.transaction(|tx| tx.query("SELECT step FROM app_steps", (), |row| row.get(0))).unwrap();
    let mut expected: Vec<String> = (0..orders).flat_map(|order| NAMES.map(|name| format!("{order} {name}"))).collect();
    rows.sort_unstable();
    expected.sort_unstable();
    assert!(rows == expected, "{} rows for {} steps", rows.len(), expected.len());
    let effects = effects(folder);
    let steps: HashSet<&str> = effects.keys().filter_map(|line| line.rsplit_once(' ')).map(|(step, _)| step).collect();
    assert_eq!((steps.len(), effects.len()), (expected.len(), expected.len()), "each step has one key");
    effects.values().map(|runs| runs - 1).sum()
}

fn work(folder: &Path, takes: Duration, control: &RunControl) {
    let store = opened(folder);
    let flow = noted(folder, takes);
    let worker = Worker::new(&store).register(&flow).concurrency(CONCURRENCY).lease(LEASE).max_recoveries(10_000);
    worker.run_until(control).unwrap();
}

/// The child of the test below, which ends when the file `stop` is there. On its own it works until nothing is due.
#[test]
fn a_worker_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(folder.path());
        let flow = noted(folder.path(), Duration::ZERO);
        (0..3).for_each(|order| _ = flow.enqueue(&thread(&store, order), order).unwrap());
        assert_eq!(Worker::new(&store).register(&flow).run_until_idle().unwrap().continued, 3);
        assert_eq!(verify_steps(folder.path(), &store, 3), 0);
        return;
    };
    let (control, stop) = (RunControl::new(), folder.join("stop"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.exists() {
                std::thread::sleep(Duration::from_millis(20));
            }
            control.request_drain("stop");
        });
        work(&folder, Duration::from_millis(20), &control);
    });
}

fn effects(folder: &Path) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in std::fs::read_to_string(folder.join("effects")).unwrap_or_default().lines() {
        *counts.entry(line.to_owned()).or_insert(0) += 1;
    }
    counts
}

fn child(folder: &Path) -> Child {
    Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "workers::a_worker_process", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn workflows_of_killed_workers_are_finished_by_the_others() {
    let kills: usize =
        std::env::var(KILLS_VARIABLE).map_or(cases(KILLS.0, KILLS.1) as usize, |kills| kills.parse().unwrap());
    let orders = kills as i64;
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let flow = noted(folder.path(), Duration::ZERO);
    (0..orders).for_each(|order| _ = flow.enqueue(&thread(&store, order), order).unwrap());
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| child(folder.path())).collect();
    let mut seed = 0x5eed_u64;
    let mut random = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let done = || store.threads_with(ThreadQuery::new().status(&ThreadStatus::Done).limit(10_000)).unwrap().len();
    let mut killed_processes = HashSet::new();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(20 + random(100)));
        let killed = &mut children[random(PROCESSES as u64) as usize];
        killed.kill().unwrap();
        killed.wait().unwrap();
        killed_processes.insert(killed.id());
        *killed = child(folder.path());
    }
    let begin = SystemClock.elapsed();
    while done() < kills {
        let left = || {
            let all = store.threads_with(ThreadQuery::new().limit(10_000)).unwrap();
            all.into_iter().filter(|info| ThreadStatus::of(info) != ThreadStatus::Done).map(|info| {
                let thread = store.thread(info.id()).unwrap();
                format!(
                    "{} {:?} {:?} {:?}",
                    info.id(),
                    ThreadStatus::of(&info),
                    thread.last_lease().unwrap(),
                    thread.timers().unwrap()
                )
            })
        };
        let in_time = SystemClock.elapsed() - begin < GUARD;
        assert!(in_time, "not done: {:#?}", left().collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(folder.path().join("stop"), "").unwrap();
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    let (mut unreleased, mut continued) = (0, 0);
    for order in 0..orders {
        assert_eq!(value(&flow, &store, order), Some(result(order)));
        // A worker that came too late may have been killed between its claim and its release; nothing else leaves a
        // lease.
        let lease = thread(&store, order).last_lease().unwrap().unwrap();
        continued += lease.epoch as usize - 1;
        if lease.expires_at.is_some() {
            unreleased += 1;
            assert!(killed_processes.contains(&lease.owner.process_id()), "order {order}: {lease:?}");
        }
    }
    let repeated = verify_steps(folder.path(), &store, orders);
    println!("{kills} kills: {repeated} effects repeated, {unreleased} leases of ended runs unreleased");
    // A process that does not get a processor for longer than its lease loses runs as one that is killed.
    assert!(repeated <= continued, "a run repeats the task that ran when it was continued: {repeated}, {continued}");
    assert!(store.check().unwrap().problems.is_empty());
}
