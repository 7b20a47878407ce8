//! A lock of another program while a run is under way: the run waits, tells it, and repeats no step that has ended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::base::{Clock, ThreadId, Timestamp};
use annals::rusqlite::Connection;
use annals::store::batch::Batch;
use annals::store::lease::NewLease;
use annals::store::{OpenOptions, StoreError};
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use annals_graph::task::{RunControl, Task};
use annals_graph::{RunEvent, RunEventKind, Worker};

use crate::backends::GUARD;
use crate::line_state::{EVERY_WAY, Log, line, run_on, start};

const LEASE: Duration = Duration::from_secs(30);

/// A clock that the test sets, in seconds.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

/// Another program that uses the file of a store.
#[derive(Clone)]
struct Program(Arc<Mutex<Connection>>);

impl Program {
    /// Takes the write lock.
    fn lock(&self) {
        self.0.lock().unwrap().execute_batch("BEGIN IMMEDIATE").unwrap();
    }

    /// Releases the write lock.
    fn end(&self) {
        self.0.lock().unwrap().execute_batch("ROLLBACK").unwrap();
    }
}

/// A file with two handles whose clock is set by hand, and another program on it.
struct Bench {
    store: Store,
    program: Program,
    hands: Hands,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(busy_timeout_ms: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, hands) = (folder.path().join("store.db"), Hands::default());
        let options = OpenOptions::new().busy_timeout_ms(busy_timeout_ms).clock(hands.clone());
        let store = Store::open_with(&path, options).unwrap();
        let program = Connection::open(&path).unwrap();
        // The store may stand still while it writes.
        program.busy_timeout(GUARD).unwrap();
        let program = Program(Arc::new(Mutex::new(program)));
        Self { store, program, hands, path, _folder: folder }
    }

    /// A listener that ends the other program when a run waits for its lock, and the names of all events.
    fn listener(&self) -> (impl Fn(&RunEvent) + Send + Sync + 'static, Arc<Mutex<Vec<&'static str>>>) {
        let (program, seen) = (self.program.clone(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        let listener = move |event: &RunEvent| {
            log.lock().unwrap().push(event.kind.as_str());
            if let RunEventKind::LockWait { since, .. } = event.kind {
                assert!(since < event.at, "{since} {}", event.at);
                program.end();
            }
        };
        (listener, seen)
    }
}

/// A graph of two nodes that count how often they run. The first one calls `held` before it ends.
fn graph(held: impl Fn() + Send + Sync + 'static) -> (CompiledGraph<Log>, Arc<[AtomicUsize; 2]>) {
    let ran = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counts = [Arc::clone(&ran), Arc::clone(&ran)];
    let graph = StateGraph::<Log>::new()
        .node("first", {
            let [ran, _] = counts.clone();
            move |_: &Log| {
                ran[0].fetch_add(1, Ordering::SeqCst);
                held();
                Ok(line("first"))
            }
        })
        .node("second", {
            let [_, ran] = counts;
            move |_: &Log| {
                ran[1].fetch_add(1, Ordering::SeqCst);
                Ok(line("second"))
            }
        })
        .edge(START, "first")
        .edge("first", "second")
        .compile()
        .unwrap();
    (graph, ran)
}

fn counts(ran: &[AtomicUsize; 2]) -> [usize; 2] {
    [ran[0].load(Ordering::SeqCst), ran[1].load(Ordering::SeqCst)]
}

#[test]
fn a_run_outwaits_a_lock_and_repeats_no_node() {
    let bench = Bench::new(500);
    for (n, (driver, durability)) in EVERY_WAY.into_iter().enumerate() {
        let program = bench.program.clone();
        let (graph, ran) = graph(move || program.lock());
        let (listener, seen) = bench.listener();
        let thread = bench.store.thread(n.to_string()).unwrap();
        let run = graph.run(&thread).durability(durability).on_event(listener);
        let done = run_on(driver, run, start()).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["first", "second"], "{driver} {durability:?}");
        assert_eq!(counts(&ran), [1, 1], "{driver} {durability:?}");
        assert_eq!(*seen.lock().unwrap(), ["started", "lock_wait", "done"], "{driver} {durability:?}");
    }
}

#[test]
fn a_called_task_that_ended_before_a_lock_runs_once() {
    let bench = Bench::new(500);
    for driver in [0, 1] {
        let ran = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let task = |n: usize, program: Option<Program>| {
            let ran = Arc::clone(&ran);
            Task::new(format!("task {n}"), move |value: i64| {
                ran[n].fetch_add(1, Ordering::SeqCst);
                program.iter().for_each(Program::lock);
                Ok(value + 1)
            })
        };
        let (first, second) = (task(0, Some(bench.program.clone())), task(1, None));
        let steps = move |value: i64, context: &Context| {
            let value = first.call(context, value)?;
            second.call(context, value)
        };
        let graph = Entrypoint::new("steps", steps).compile().unwrap();
        let (listener, seen) = bench.listener();
        let thread = bench.store.thread(format!("calls {driver}")).unwrap();
        let run = graph.run(&thread).on_event(listener);
        let done = if driver == 0 { run.invoke(1) } else { annals_graph::block_on(run.ainvoke(1)) };
        assert_eq!(done.unwrap().value(), Some(&3));
        assert_eq!(counts(&ran), [1, 1]);
        assert_eq!(*seen.lock().unwrap(), ["started", "lock_wait", "done"]);
    }
}

#[test]
fn a_run_whose_lease_expired_at_a_lock_goes_on_if_nobody_took_it() {
    let bench = Bench::new(500);
    let (program, hands) = (bench.program.clone(), bench.hands.clone());
    let (graph, ran) = graph(move || {
        program.lock();
        hands.0.fetch_add(60, Ordering::SeqCst);
    });
    let (listener, seen) = bench.listener();
    let thread = bench.store.thread("a").unwrap();
    graph.run(&thread).lease(LEASE).on_event(listener).invoke(Log::update()).unwrap();
    assert_eq!((counts(&ran), seen.lock().unwrap().last().copied()), ([1, 1], Some("done")));
    let lease = thread.last_lease().unwrap().unwrap();
    assert_eq!((lease.epoch, lease.expires_at), (1, None));
}

#[test]
fn a_run_whose_lease_was_taken_before_a_lock_stops_and_names_the_owner() {
    let bench = Bench::new(500);
    let (program, hands) = (bench.program.clone(), bench.hands.clone());
    let options = OpenOptions::new().busy_timeout_ms(GUARD.as_millis() as u64).clock(hands.clone());
    let other = Store::open_with(&bench.path, options).unwrap();
    let owner = other.mint_owner();
    let named = owner.to_string();
    let (graph, ran) = graph(move || {
        hands.0.fetch_add(60, Ordering::SeqCst);
        let claim = NewLease::claim(owner.clone(), other.now(), other.now().saturating_add(LEASE));
        other.commit(&Batch::of_lease(ThreadId::new("a").unwrap(), claim)).unwrap();
        program.lock();
    });
    let (listener, seen) = bench.listener();
    let thread = bench.store.thread("a").unwrap();
    let refused = graph.run(&thread).lease(LEASE).on_event(listener).invoke(Log::update()).unwrap_err();
    match refused.as_store() {
        Some(StoreError::LeaseLost { owner, .. }) => assert_eq!(*owner, named),
        _ => panic!("{refused}"),
    }
    assert_eq!((counts(&ran), seen.lock().unwrap().as_slice()), ([1, 0], &["started", "lock_wait", "stopped"][..]));
    assert_eq!(thread.last_lease().unwrap().unwrap().epoch, 2);
}

/// The lease of a run that has ended with the error of a lock is released once the lock is gone: the clock stands
/// still, so it would never expire.
#[test]
fn a_worker_does_not_wait_for_its_own_lease() {
    // The release of the lease is given up after twelve waits: the listener may stand still for some seconds.
    let bench = Bench::new(750);
    let (program, tries) = (bench.program.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&tries);
    let body = move |n: i64| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            program.lock();
        }
        Ok(n + 1)
    };
    let graph = Entrypoint::new("next", body).compile().unwrap();
    let thread = bench.store.thread("a").unwrap();
    graph.enqueue(&thread, 1).unwrap();
    let (control, program) = (RunControl::new(), bench.program.clone());
    let (drains, seen) = (control.clone(), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&seen);
    let worker = Worker::new(&bench.store).register(&graph).lease(Duration::from_secs(3)).on_event(move |event| {
        log.lock().unwrap().push(event.kind.as_str());
        match event.kind.as_str() {
            "stopped" => program.end(),
            "done" => drains.request_drain("the test is over"),
            _ => {}
        }
    });
    let report = worker.run_until(&control).unwrap();
    assert_eq!((report.continued, report.failed), (1, 0));
    assert_eq!(*seen.lock().unwrap(), ["continued", "lock_wait", "stopped", "continued", "done"]);
    assert_eq!(graph.get_state(&thread).unwrap().values.value(), Some(&2));
}
