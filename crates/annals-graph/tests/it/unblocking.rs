//! Tests on one thread of a runtime: a call that waits for the lock of another program holds up no other task. Each
//! lock ends when another task has run, so a call that blocks the thread fails at the limit of its wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use annals::base::limits::PENDING_COMMITS_MAX;
use annals::rusqlite::Connection;
use annals::store::OpenOptions;
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use annals_graph::{Durability, RunEventKind, StreamMode};
use tokio::runtime::Builder;

use crate::line_state::{Log, line, start};

/// A file, and another program on it.
struct Bench {
    store: Store,
    program: Connection,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Store::open_with(&path, OpenOptions::new().busy_timeout_ms(60_000)).unwrap();
        Self { store, program: Connection::open(&path).unwrap(), _folder: folder }
    }

    /// Takes the write lock, as the other program.
    fn lock(&self) {
        self.program.execute_batch("BEGIN IMMEDIATE").unwrap();
    }

    /// Releases the write lock.
    fn release(&self) {
        self.program.execute_batch("ROLLBACK").unwrap();
    }
}

/// Runs a future on the one thread of a runtime.
fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A graph that adds a line.
fn speaker() -> CompiledGraph<Log> {
    let node = |_: &Log| Ok(line("from the graph"));
    StateGraph::<Log>::new().node("speak", node).edge(START, "speak").edge("speak", END).compile().unwrap()
}

#[test]
fn reads_and_other_tasks_go_on_while_200_requests_wait_for_a_lock() {
    let bench = Bench::new();
    let (graph, known) = (speaker(), bench.store.thread("known").unwrap());
    on_one_thread(async {
        graph.ainvoke(&known, start()).await.unwrap();
        bench.lock();
        let ended = Arc::new(AtomicUsize::new(0));
        let requests: Vec<_> = (0..200)
            .map(|n| {
                let (graph, ended) = (graph.clone(), Arc::clone(&ended));
                let thread = bench.store.thread(format!("thread {n}")).unwrap();
                tokio::spawn(async move {
                    if n % 2 == 0 {
                        graph.ainvoke(&thread, start()).await.unwrap();
                    } else {
                        thread.unblock(|thread| thread.append("lines", ["by hand"])).await.unwrap();
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                    graph.aget_state(&thread).await.unwrap().values.lines.len()
                })
            })
            .collect();
        for _ in 0..20 {
            tokio::spawn(async {}).await.unwrap();
            assert_eq!(graph.aget_state(&known).await.unwrap().values.lines.len(), 1);
            assert_eq!(bench.store.unblock(|store| store.threads()).await.unwrap().len(), 1);
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0, "no request has ended");
        bench.release();
        for request in requests {
            assert_eq!(request.await.unwrap(), 1);
        }
    });
    assert_eq!(bench.store.threads().unwrap().len(), 201);
}

#[test]
fn a_signal_that_comes_at_the_end_of_a_run_is_delivered_without_blocking() {
    for streams in [false, true] {
        let bench = Arc::new(Mutex::new(Bench::new()));
        let (store, is_locked) = (bench.lock().unwrap().store.clone(), Arc::new(AtomicBool::new(false)));
        let body = |_: i64, context: &Context| context.receive::<i64>("x", Duration::from_secs(3_600));
        let graph = Entrypoint::new("listener", body).compile().unwrap();
        let thread = store.thread("a").unwrap();
        let (program, sender, locked) = (Arc::clone(&bench), store.clone(), Arc::clone(&is_locked));
        let run = graph.run(&thread).on_event(move |event| {
            if matches!(event.kind, RunEventKind::Waiting { .. }) && !locked.load(Ordering::SeqCst) {
                sender.signal("a", "x", 7).unwrap();
                program.lock().unwrap().lock();
                locked.store(true, Ordering::SeqCst);
            }
        });
        on_one_thread(async {
            let other = Arc::clone(&bench);
            let releases = tokio::spawn(async move {
                while !is_locked.load(Ordering::SeqCst) {
                    tokio::task::yield_now().await;
                }
                other.lock().unwrap().release();
            });
            if streams {
                let mut stream = run.astream(0, &[StreamMode::Values]).await.unwrap();
                while let Some(part) = stream.next().await {
                    part.unwrap();
                }
                assert_eq!(stream.outcome().unwrap().interrupts().len(), 1);
                graph.ainvoke(&thread, Input::Continue).await.unwrap();
            } else {
                run.ainvoke(0).await.unwrap();
            }
            releases.await.unwrap();
        });
        assert_eq!(thread.signals().unwrap(), []);
        assert_eq!(graph.get_state(&thread).unwrap().values.value(), Some(&Some(7)));
    }
}

#[test]
fn a_run_that_does_not_await_its_commits_waits_when_too_many_are_pending() {
    const STEPS: usize = PENDING_COMMITS_MAX + 40;
    let (bench, ran) = (Bench::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&ran);
    let step = move |_: &Log| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Log::update())
        }
    };
    let path = |_: &Log| -> &str { "step" };
    let graph = StateGraph::<Log>::new().node("step", step).edge(START, "step").branch("step", path).compile().unwrap();
    let thread = bench.store.thread("a").unwrap();
    bench.lock();
    let run = graph.run(&thread).durability(Durability::Async).recursion_limit(STEPS as u64).ainvoke(start());
    let error = on_one_thread(async {
        let mut run = pin!(run);
        poll_fn(|waiting| {
            let polled = run.as_mut().poll(waiting);
            assert!(polled.is_pending(), "the run cannot end while another program holds the lock");
            // Before its first task it loads its head, after that it awaits commits alone.
            if ran.load(Ordering::SeqCst) > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let pending = ran.load(Ordering::SeqCst);
        assert!((PENDING_COMMITS_MAX..STEPS).contains(&pending), "{pending} tasks have run");
        bench.release();
        run.await.unwrap_err()
    });
    assert_eq!(error.code(), Some("GRAPH_RECURSION_LIMIT"));
    assert_eq!(ran.load(Ordering::SeqCst), STEPS);
}

#[test]
fn a_history_is_read_beside_the_task_that_awaits_it() {
    let bench = Bench::new();
    let (graph, thread) = (speaker(), bench.store.thread("a").unwrap());
    on_one_thread(async {
        for _ in 0..3 {
            graph.ainvoke(&thread, start()).await.unwrap();
        }
        let shown: Vec<_> = graph.get_state_history(&thread).unwrap().map(|state| state.unwrap().checkpoint).collect();
        let mut history = graph.aget_state_history(&thread).await.unwrap();
        let mut read = Vec::new();
        loop {
            // A future that is dropped loses no state.
            let polled = poll_fn(|waiting| Poll::Ready(pin!(history.next()).poll(waiting))).await;
            let state = match polled {
                Poll::Ready(state) => state,
                Poll::Pending => history.next().await,
            };
            let Some(state) = state else { break };
            read.push(state.unwrap().checkpoint);
        }
        assert_eq!((read.len(), &read), (9, &shown));
        assert!(history.next().await.is_none());

        bench.lock();
        let before = thread.head().unwrap().unwrap();
        let mut update = pin!(graph.aupdate_state(&thread, line("edited"), "speak"));
        let polled = poll_fn(|waiting| Poll::Ready(update.as_mut().poll(waiting).is_pending())).await;
        assert!(polled, "the update waits for the lock");
        assert_eq!(thread.head().unwrap().unwrap().id(), before.id());
        bench.release();
        let updated = update.await.unwrap();
        assert_eq!(thread.head().unwrap().unwrap().id(), updated.id());
        assert_eq!(graph.aget_state(&before).await.unwrap().values.lines.len(), 3);
        assert_eq!(graph.aget_state(()).await.unwrap_err().to_string(), graph.get_state(()).unwrap_err().to_string());
    });
}
