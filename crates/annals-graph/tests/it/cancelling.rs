//! Runs that are cancelled or dropped, on both drivers and both backends: what has ended is kept, and the thread goes
//! on.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::Timestamp;
use annals::store::OpenOptions;
use annals_graph::Durability;
use annals_graph::graph::RetryPolicy;
use annals_graph::prelude::*;
use annals_graph::task::Cancelled;
use annals_graph::task::{RunControl, Task};
use annals_graph::{RunError, block_on};
use macro_rules_attribute::apply;

use crate::backends::{new_thread, place_with, same_after_reload};
use crate::clock::SimClock;
use crate::line_state::{self, EVERY_WAY, Log, LogUpdate, line, start};

/// A new thread.
fn thread() -> Thread {
    new_thread()
}

/// Counts the dropped values.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicU32>, Arc<AtomicU32>);

impl Drops {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until so many nodes have begun.
    fn wait_for(&self, begun: u32) {
        while self.1.load(Ordering::SeqCst) < begun {
            std::thread::yield_now();
        }
    }
}

struct Dropped(Drops);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns true if the run is to be cancelled by its own nodes. Only the first run is.
fn impatient(context: &Context) -> bool {
    context.value::<&str>() == Some(&"impatient")
}

/// A node that waits for ever in a run that is to be cancelled.
fn waits(
    drops: &Drops,
) -> impl Fn(Arc<Log>, Context) -> std::pin::Pin<Box<dyn Future<Output = NodeResult<LogUpdate>> + Send>> + use<> {
    let drops = drops.clone();
    move |_, context| {
        let guard = Dropped(drops.clone());
        drops.1.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if impatient(&context) {
                pending::<()>().await;
            }
            std::mem::forget(guard);
            Ok(line("waited"))
        })
    }
}

fn reason(outcome: &Outcome<Log>) -> &str {
    match outcome {
        Outcome::Cancelled { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// Runs on one of the drivers.
fn run_on(
    driver: usize,
    graph: &CompiledGraph<Log>,
    thread: &Thread,
    input: Input,
    value: &'static str,
    durability: Durability,
) -> Result<Outcome<Log>> {
    line_state::run_on(driver, graph.run(thread).context(value).durability(durability), input)
}

#[apply(each_backend)]
fn a_cancelled_run_drops_what_waits_keeps_what_has_ended_and_goes_on_where_it_was() {
    for (driver, durability) in EVERY_WAY {
        let (drops, ended) = (Drops::default(), Drops::default());
        let counted = ended.clone();
        let graph = StateGraph::<Log>::new()
            .node("first", |_: &Log| Ok(line("first")))
            .node("ends", move |_: &Log, context: &Context| {
                counted.0.fetch_add(1, Ordering::SeqCst);
                if impatient(context) {
                    context.control().cancel("enough");
                    assert!(context.is_cancelled());
                }
                Ok(line("ended"))
            })
            .node("waits", waits(&drops))
            .node("last", |_: &Log| Ok(line("last")))
            .edge(START, "first")
            .edge("first", "ends")
            .edge("first", "waits")
            .join(["ends", "waits"], "last")
            .compile()
            .unwrap();
        let thread = thread();
        let outcome = run_on(driver, &graph, &thread, start(), "impatient", durability).unwrap();
        assert_eq!(reason(&outcome), "enough");
        assert_eq!((outcome.state().lines.to_vec(), outcome.is_done()), (vec!["first".to_string()], false));
        let state = graph.get_state(&thread).unwrap();
        assert_eq!(state.next, ["waits"], "{driver} {durability:?}");
        same_after_reload(&graph, &thread);
        let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["first", "ended", "waited", "last"]);
        // A node that waited was dropped, unless it had not begun.
        assert!(drops.count() <= 1);
        assert_eq!(ended.count(), 1, "what has ended is not run again: {driver} {durability:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn a_run_is_cancelled_from_outside_while_all_of_its_nodes_wait() {
    for (driver, durability) in EVERY_WAY {
        let drops = Drops::default();
        let graph = StateGraph::<Log>::new()
            .node("one", waits(&drops))
            .node("two", waits(&drops))
            .edge(START, "one")
            .edge(START, "two")
            .compile()
            .unwrap();
        let (thread, control) = (thread(), RunControl::new());
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                drops.wait_for(2);
                control.cancel("from outside");
                control.cancel("again");
            });
            let run = graph.run(&thread).context("impatient").control(&control).durability(durability);
            if driver == 0 { run.invoke(start()) } else { block_on(run.ainvoke(start())) }
        });
        assert_eq!(reason(&outcome.unwrap()), "from outside", "the first reason stays");
        assert_eq!(drops.count(), 2);
        let state = graph.get_state(&thread).unwrap();
        assert_eq!(state.next, ["one", "two"]);
        assert_eq!(state.tasks[0].error.as_deref(), Some("the run was cancelled: from outside"));
        // A control stays cancelled: it serves one run.
        let again = graph.run(&thread).control(&control).invoke(Input::Continue).unwrap();
        assert_eq!(reason(&again), "from outside");
        let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["waited", "waited"]);
    }
}

#[apply(each_backend)]
fn no_other_task_starts_and_none_is_tried_again_or_handled() {
    for (driver, durability) in EVERY_WAY {
        let runs = Arc::new(Mutex::new(Vec::new()));
        let node = |name: &'static str, fails: bool| {
            let runs = Arc::clone(&runs);
            move |_: &Log, context: &Context| {
                runs.lock().unwrap().push(name);
                if impatient(context) {
                    context.control().cancel("enough");
                    if fails {
                        return Err("it gave up".into());
                    }
                }
                Ok(line(name))
            }
        };
        let options = || {
            NodeOptions::new()
                .retry(RetryPolicy::new().initial_interval(Duration::from_secs(3600)))
                .error_handler(|_: &Log| Ok(line("handled")))
        };
        let graph = StateGraph::<Log>::new()
            .node_with("a", node("a", true), options())
            .node("b", node("b", false))
            .edge(START, "a")
            .edge(START, "b")
            .compile()
            .unwrap();
        let thread = thread();
        let run = graph.run(&thread).context("impatient").durability(durability).concurrency_max(1);
        let outcome = if driver == 0 { run.invoke(start()) } else { block_on(run.ainvoke(start())) };
        assert_eq!(reason(&outcome.unwrap()), "enough");
        assert_eq!(*runs.lock().unwrap(), ["a"]);
        let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["a", "b"]);
    }
}

#[apply(each_backend)]
fn a_pause_before_another_attempt_ends_when_the_run_is_cancelled() {
    for (driver, durability) in EVERY_WAY {
        // The clock stands still: the pause does not end by itself.
        let (control, clock) = (RunControl::new(), SimClock::default());
        let fails = |_: &Log, context: &Context| {
            if context.attempt() == 1 && impatient(context) { Err("busy".into()) } else { Ok(line("done")) }
        };
        let patient = RetryPolicy::new().initial_interval(Duration::from_secs(4)).jitter(false);
        let graph = StateGraph::<Log>::new()
            .node_with("a", fails, NodeOptions::new().retry(patient))
            .edge(START, "a")
            .compile()
            .unwrap();
        let thread =
            place_with(OpenOptions::new().clock(clock.clone())).thread(format!("{driver} {durability:?}")).unwrap();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while clock.awaited() == 0 {
                    std::thread::yield_now();
                }
                control.cancel("enough");
            });
            let run = graph.run(&thread).timer(clock.clone()).context("impatient");
            let run = run.control(&control).durability(durability);
            if driver == 0 { run.invoke(start()) } else { block_on(run.ainvoke(start())) }
        });
        assert_eq!(reason(&outcome.unwrap()), "enough");
        clock.set(Timestamp::from_micros(60_000_000));
        let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["done"]);
    }
}

#[apply(each_backend)]
fn a_graph_inside_is_cancelled_with_the_run_and_goes_on_where_it_was() {
    for (driver, durability) in EVERY_WAY {
        let (drops, once) = (Drops::default(), Drops::default());
        let counted = once.clone();
        let inner = StateGraph::<Log>::new()
            .node("once", move |_: &Log| {
                counted.0.fetch_add(1, Ordering::SeqCst);
                Ok(line("once"))
            })
            .node("stops", |_: &Log, context: &Context| {
                if impatient(context) {
                    context.control().cancel("inside");
                }
                Ok(line("stops"))
            })
            .node("waits", waits(&drops))
            .edge(START, "once")
            .edge("once", "stops")
            .edge("stops", "waits")
            .compile()
            .unwrap();
        let called = inner.clone();
        let as_node = StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
        let by_call = StateGraph::<Log>::new()
            .node("calls", move |_: &Log, context: &Context| {
                let done = called.invoke(context, Log::update())?;
                Ok(Log::update().lines(done.state().lines.to_vec()))
            })
            .edge(START, "calls")
            .compile()
            .unwrap();
        for graph in [as_node, by_call] {
            let thread = thread();
            let before = once.count();
            let outcome = run_on(driver, &graph, &thread, start(), "impatient", durability).unwrap();
            assert_eq!(reason(&outcome), "inside");
            let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["once", "stops", "waited"], "{driver} {durability:?}");
            assert_eq!(once.count() - before, 1, "{driver} {durability:?}");
        }
    }
}

#[apply(each_backend)]
fn tasks_are_not_called_any_more_and_finished_ones_keep_their_results() {
    for (driver, durability) in EVERY_WAY {
        let runs = Drops::default();
        let counted = runs.clone();
        let task = Task::new("task", move |n: i64| {
            counted.0.fetch_add(1, Ordering::SeqCst);
            Ok(n)
        });
        let graph = StateGraph::<Log>::new()
            .node("calls", move |_: &Log, context: &Context| {
                let one = task.call(context, 1)?;
                if impatient(context) {
                    context.control().cancel("enough");
                }
                let two = task.call(context, 2)?;
                Ok(line(format!("{one} {two}")))
            })
            .edge(START, "calls")
            .compile()
            .unwrap();
        let thread = thread();
        let outcome = run_on(driver, &graph, &thread, start(), "impatient", durability).unwrap();
        assert_eq!((reason(&outcome), runs.count()), ("enough", 1));
        let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
        assert_eq!((done.state().lines.to_vec(), runs.count()), (vec!["1 2".to_string()], 2));
    }
}

#[apply(each_backend)]
fn an_async_task_that_waits_is_dropped_with_its_run() {
    for (driver, durability) in EVERY_WAY {
        let drops = Drops::default();
        let counted = drops.clone();
        let task = Task::new("waits", move |n: i64, context: Context| {
            let guard = Dropped(counted.clone());
            async move {
                if impatient(&context) {
                    context.control().cancel("enough");
                    pending::<()>().await;
                }
                std::mem::forget(guard);
                Ok(n)
            }
        });
        let graph = StateGraph::<Log>::new()
            .node("calls", move |_: &Log, context: &Context| Ok(line(task.start(context, 7).wait()?.to_string())))
            .edge(START, "calls")
            .compile()
            .unwrap();
        let thread = thread();
        let outcome = run_on(driver, &graph, &thread, start(), "impatient", durability).unwrap();
        assert_eq!((reason(&outcome), drops.count()), ("enough", 1));
        let done = run_on(driver, &graph, &thread, Input::Continue, "patient", durability).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["7"]);
    }
}

#[apply(each_backend)]
fn a_node_that_stops_because_of_the_cancel_has_not_failed_and_one_that_says_so_by_itself_has() {
    for (driver, durability) in EVERY_WAY {
        let stops = |_: &Log, context: &Context| {
            if impatient(context) {
                context.control().cancel("enough");
            }
            context.check_cancelled()?;
            Ok(line("whole"))
        };
        let graph = StateGraph::<Log>::new().node("a", stops).edge(START, "a").compile().unwrap();
        let on = thread();
        let outcome = run_on(driver, &graph, &on, start(), "impatient", durability).unwrap();
        assert_eq!(reason(&outcome), "enough");
        let done = run_on(driver, &graph, &on, Input::Continue, "patient", durability).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["whole"]);

        let runs = Drops::default();
        let counted = runs.clone();
        let gives_up = move |_: &Log| -> NodeResult<()> {
            counted.0.fetch_add(1, Ordering::SeqCst);
            Err(Cancelled::new().into())
        };
        let tried = NodeOptions::new().retry(RetryPolicy::new().on_if(|_| true));
        let graph = StateGraph::<Log>::new().node_with("a", gives_up, tried).edge(START, "a").compile().unwrap();
        let error = run_on(driver, &graph, &thread(), start(), "", durability).unwrap_err();
        assert!(matches!(error.as_run(), Some(RunError::NodeCancelled { node }) if node == "a"), "{error}");
        assert_eq!((error.as_run().unwrap().class(), runs.count()), ("NodeCancelledError", 1));
    }
}

/// A graph of a node that ends and one that waits, in two supersteps.
fn two_steps(drops: &Drops) -> CompiledGraph<Log> {
    StateGraph::<Log>::new()
        .node("ends", |_: Arc<Log>, _: Context| async { Ok(line("ended")) })
        .node("waits", waits(drops))
        .edge(START, "ends")
        .edge("ends", "waits")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_thread_goes_on_at_once_after_the_future_of_its_run_was_dropped() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for polls in 0..12 {
            let drops = Drops::default();
            let graph = two_steps(&drops);
            let thread = thread();
            let mut polled = 0;
            {
                let mut run = pin!(graph.run(&thread).context("impatient").durability(durability).ainvoke(start()));
                block_on(poll_fn(|waiting| {
                    if polled == polls {
                        return Poll::Ready(());
                    }
                    polled += 1;
                    assert!(run.as_mut().poll(waiting).is_pending());
                    waiting.waker().wake_by_ref();
                    Poll::Pending
                }));
            }
            let begun = block_on(graph.ainvoke(&thread, Input::Continue));
            let done = match begun {
                Err(error) => {
                    assert!(matches!(error.as_run(), Some(RunError::EmptyInput)), "{durability:?} {polls}: {error}");
                    graph.invoke(&thread, start()).unwrap()
                }
                Ok(done) => done,
            };
            assert_eq!(done.state().lines.to_vec(), ["ended", "waited"], "{durability:?} {polls}");
            same_after_reload(&graph, &thread);
        }
    }
}

#[apply(each_backend)]
fn a_thread_goes_on_at_once_after_its_stream_was_abandoned() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for read in 0..3 {
            for driver in 0..2 {
                let drops = Drops::default();
                let graph = two_steps(&drops);
                let thread = thread();
                let run = graph.run(&thread).durability(durability);
                if driver == 0 {
                    let mut stream = run.stream(start(), &[StreamMode::Updates]).unwrap();
                    assert_eq!(stream.by_ref().take(read).count(), read.min(2));
                } else {
                    block_on(async {
                        let mut stream = run.astream(start(), &[StreamMode::Updates]).await.unwrap();
                        for _ in 0..read {
                            stream.next().await.unwrap().unwrap();
                        }
                    });
                }
                let state = graph.get_state(&thread).unwrap();
                let done = match state.checkpoint {
                    None => graph.invoke(&thread, start()).unwrap(),
                    Some(_) => graph.invoke(&thread, Input::Continue).unwrap(),
                };
                assert_eq!(done.state().lines.to_vec(), ["ended", "waited"], "{durability:?} {read} {driver}");
                same_after_reload(&graph, &thread);
            }
        }
    }
}

#[apply(each_backend)]
fn a_node_on_a_thread_is_told_that_its_run_was_dropped() {
    let (told, tells) = std::sync::mpsc::channel();
    let (begun, begins) = std::sync::mpsc::channel();
    let (told, begun) = (Mutex::new(told), Mutex::new(begun));
    let graph = StateGraph::<Log>::new()
        .node("works", move |_: &Log, context: &Context| {
            begun.lock().unwrap().send(()).unwrap();
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            context.emit("nobody hears this");
            told.lock().unwrap().send(context.check_cancelled().is_err()).unwrap();
            Ok(line("too late"))
        })
        .edge(START, "works")
        .compile()
        .unwrap();
    let thread = thread();
    {
        let mut run = pin!(graph.ainvoke(&thread, Log::update()));
        let mut waiting = Waiting::from_waker(Waker::noop());
        // Polled until the node has begun.
        while begins.try_recv().is_err() {
            assert!(run.as_mut().poll(&mut waiting).is_pending());
        }
    }
    assert!(tells.recv().unwrap());
    assert_eq!(graph.get_state(&thread).unwrap().next, ["works"], "what it returned is dropped");
}

#[apply(each_backend)]
fn a_stream_ends_with_the_cancel_and_says_so() {
    let drops = Drops::default();
    let graph = StateGraph::<Log>::new()
        .node("ends", |_: &Log, context: &Context| {
            context.control().cancel("enough");
            Ok(line("ended"))
        })
        .node("waits", waits(&drops))
        .edge(START, "ends")
        .edge(START, "waits")
        .compile()
        .unwrap();
    let thread = thread();
    let mut stream = graph.run(&thread).context("impatient").stream(Log::update(), &[StreamMode::Updates]).unwrap();
    let parts: Vec<_> = stream.by_ref().map(|part| part.unwrap()).collect();
    assert_eq!(parts.len(), 1, "{parts:?}");
    assert_eq!(reason(stream.outcome().unwrap()), "enough");
    let control = RunControl::new();
    control.cancel("too late");
    let output = graph.run(&thread).control(&control).output(Input::Continue).unwrap();
    assert_eq!((output.cancelled.as_deref(), output.drained), (Some("too late"), None));
}
