//! Tests the time limits of supersteps, on both drivers and both backends.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::Clock;
use annals_graph::graph::{Entry, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{ErrorKind, IntoInput, Run, RunError, Timer, block_on};
use macro_rules_attribute::apply;

use crate::backends::{new_thread, place_with, same_after_reload};
use crate::clock::{SimClock, beside, by_the_clock, ms, pass_when};
use crate::line_state::{EVERY_WAY, Log, LogUpdate, line, run_on, start};

fn thread() -> Thread {
    new_thread()
}

/// A count that nodes share with their test.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn up(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns true if the nodes of a run take too long. Only those of the first run do.
fn is_slow(context: &Context) -> bool {
    context.value::<&str>() == Some(&"slow")
}

/// An async node that waits for ever in a slow run.
async fn waits(_: Arc<Log>, context: Context) -> NodeResult<LogUpdate> {
    if is_slow(&context) {
        pending::<()>().await;
    }
    Ok(line("waited"))
}

/// A node that counts its runs.
fn counts(count: &Count) -> impl Fn(&Log) -> NodeResult<LogUpdate> + use<> {
    let count = count.clone();
    move |_| {
        count.up();
        Ok(line("counted"))
    }
}

/// A store whose time passes when its clock is told to.
fn by(clock: &SimClock) -> Thread {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let store = place_with(OpenOptions::new().clock(clock.clone()));
    store.thread(format!("by the clock {}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

/// Reads the stream of a run to its end, and counts its parts as they come.
fn read(driver: usize, run: Run<'_, Log>, parts: &Count) -> Result<Outcome<Log>> {
    if driver == 0 {
        let mut stream = run.stream(start(), &[StreamMode::Updates])?;
        for part in &mut stream {
            part.inspect(|_| parts.up())?;
        }
        return Ok(stream.outcome().unwrap().clone());
    }
    block_on(async {
        let mut stream = run.astream(start(), &[StreamMode::Updates]).await?;
        while let Some(part) = stream.next().await {
            part.inspect(|_| parts.up())?;
        }
        Ok(stream.outcome().unwrap().clone())
    })
}

/// Looks at the nodes that a superstep had no time for.
fn late<S: std::fmt::Debug>(outcome: Result<Outcome<S>>) -> Vec<String> {
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.as_run().unwrap().class()), (ErrorKind::Limit, "TimeoutError"));
    match error.as_run() {
        Some(RunError::StepTimeout { nodes, .. }) => nodes.clone(),
        _ => panic!("{error}"),
    }
}

#[apply(each_backend)]
fn a_superstep_that_takes_too_long_is_stopped_and_what_has_ended_is_kept() {
    for (driver, durability) in EVERY_WAY {
        let (clock, count, parts) = (SimClock::default(), Count::default(), Count::default());
        let graph = StateGraph::<Log>::new()
            .node("first", |_: &Log| Ok(line("first")))
            .node("quick", counts(&count))
            .node("slow", waits)
            .node("slower", waits)
            .edge(START, "first")
            .edge("first", "quick")
            .edge("first", "slow")
            .edge("first", "slower")
            .step_timeout(ms(30))
            .compile()
            .unwrap();
        let thread = by(&clock);
        let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
        // The first node was shown, and the quick one.
        let outcome = beside(&clock, 2, || parts.get() == 2, || read(driver, run, &parts));
        let wanted = "superstep 2 was stopped as it may take 30 ms, in which [\"slow\", \"slower\"] had not ended";
        assert_eq!(outcome.as_ref().unwrap_err().to_string(), wanted);
        assert_eq!(late(outcome), ["slow", "slower"]);
        assert_eq!(clock.elapsed(), ms(30));
        let state = graph.get_state(&thread).unwrap();
        assert_eq!(
            (state.next, state.values.lines.to_vec()),
            (names(&["slow", "slower"]), names(&["first", "counted"]))
        );
        assert!(state.tasks.iter().any(|task| task.error.as_deref().is_some_and(|error| error.contains("30 ms"))));
        same_after_reload(&graph, &thread);
        let run = graph.run(&thread).durability(durability).step_timeout(Duration::ZERO);
        let done = run_on(driver, run, Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["first", "counted", "waited", "waited"]);
        assert_eq!(count.get(), 1, "what has ended is not run again: {driver} {durability:?}");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// A node that rests for 30 ms, and fails if it is to.
fn rests(clock: &SimClock, fails: bool) -> impl AsyncNode + use<> {
    let clock = clock.clone();
    move |_: Arc<Log>, _: Context| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(ms(30)).await;
            if fails { Err("busy".into()) } else { Ok(line("rested")) }
        })
    }
}

/// The type of the node that `rests` returns.
trait AsyncNode:
    Fn(Arc<Log>, Context) -> std::pin::Pin<Box<dyn Future<Output = NodeResult<LogUpdate>> + Send>> + Send + Sync + 'static
{
}

impl<F> AsyncNode for F where
    F: Fn(Arc<Log>, Context) -> std::pin::Pin<Box<dyn Future<Output = NodeResult<LogUpdate>> + Send>>
        + Send
        + Sync
        + 'static
{
}

#[apply(each_backend)]
fn each_superstep_has_the_whole_time_and_all_attempts_share_it() {
    let two = |clock: &SimClock| {
        let graph = StateGraph::<Log>::new().node("a", rests(clock, false)).node("b", rests(clock, false));
        graph.edge(START, "a").edge("a", "b").step_timeout(ms(50)).compile().unwrap()
    };
    by_the_clock(2, two, start(), |_, _, elapsed, outcome| {
        assert_eq!(outcome.unwrap().state().lines.to_vec(), ["rested", "rested"]);
        assert_eq!(elapsed, ms(60));
    });
    let again = |clock: &SimClock, pause| {
        let always = RetryPolicy::new().initial_interval(ms(pause)).jitter(false).max_attempts(9).on_if(|_| true);
        let handled = NodeOptions::new().retry(always).error_handler(|_: &Log| Ok(line("handled")));
        let graph = StateGraph::<Log>::new().node_with("a", rests(clock, true), handled);
        graph.edge(START, "a").step_timeout(ms(50)).compile().unwrap()
    };
    by_the_clock(
        2,
        |clock| again(clock, 0),
        start(),
        |_, _, elapsed, outcome| {
            assert_eq!(late(outcome), ["a"], "neither tried again nor handled");
            assert_eq!(elapsed, ms(50));
        },
    );
    let clock = SimClock::default();
    let (graph, thread) = (again(&clock, 90), by(&clock));
    let mut run = pin!(graph.run(&thread).timer(clock.clone()).ainvoke(start()));
    let outcome = loop {
        match run.as_mut().poll(&mut Waiting::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => break outcome,
            Poll::Pending => _ = clock.go_on(),
        }
    };
    assert_eq!((late(outcome), clock.elapsed()), (names(&["a"]), ms(50)), "a pause ends with the superstep");
}

#[apply(each_backend)]
fn a_node_on_a_thread_is_told_and_waited_for_and_what_it_wrote_is_kept() {
    for (driver, durability) in EVERY_WAY {
        let (clock, count, runs) = (SimClock::default(), Count::default(), Count::default());
        let (counted, passes) = (runs.clone(), clock.clone());
        let graph = StateGraph::<Log>::new()
            .node("works", move |_: &Log, context: &Context| {
                counted.up();
                if is_slow(context) {
                    passes.pass(ms(5));
                }
                while is_slow(context) && !context.is_cancelled() {
                    std::thread::yield_now();
                }
                Ok(line("worked"))
            })
            .node("last", counts(&count))
            .edge(START, "works")
            .edge("works", "last")
            .step_timeout(ms(5))
            .compile()
            .unwrap();
        // Without a store the time is that of the system, in which the node may not even begin.
        assert_eq!(late(run_on(driver, graph.run(()).context("slow"), start())), ["works"]);
        let (before, thread) = (runs.get(), by(&clock));
        let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
        assert_eq!(late(run_on(driver, run, start())), ["works"]);
        assert_eq!(count.get(), 0, "the superstep after it is not begun");
        same_after_reload(&graph, &thread);
        let run = graph.run(&thread).durability(durability).step_timeout(Duration::ZERO);
        let done = run_on(driver, run, Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["worked", "counted"]);
        assert_eq!((runs.get() - before, count.get()), (1, 1), "{driver} {durability:?}");
    }
}

/// A graph of a node that ends, and then of one that ends beside one that waits.
fn inner(once: &Count, limit: Duration) -> CompiledGraph<Log> {
    let once = once.clone();
    StateGraph::<Log>::new()
        .node("once", move |_: Arc<Log>| {
            once.up();
            async { Ok(line("once")) }
        })
        .node("beside", |_: Arc<Log>| async { Ok(line("beside")) })
        .node("waits", waits)
        .edge(START, "once")
        .edge("once", "waits")
        .edge("once", "beside")
        .step_timeout(limit)
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_graph_inside_keeps_to_its_own_time_and_goes_with_that_of_the_graph_around_it() {
    let none = Duration::ZERO;
    let quick = || RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false);
    for (driver, durability) in EVERY_WAY {
        for (own, around) in [(ms(20), none), (none, ms(20))] {
            let (clock, once) = (SimClock::default(), Count::default());
            let graph = StateGraph::<Log>::new()
                .node_with("inner", inner(&once, own), NodeOptions::new().retry(quick()))
                .edge(START, "inner")
                .step_timeout(around)
                .compile()
                .unwrap();
            let thread = by(&clock);
            let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
            let alarms = if own.is_zero() { 2 } else { 1 };
            let outcome = beside(&clock, alarms, || true, || run_on(driver, run, start()));
            if own.is_zero() {
                assert_eq!(late(outcome), ["inner"]);
            } else {
                let error = outcome.unwrap_err();
                assert!(matches!(error.as_run(), Some(RunError::Node { node, .. }) if node == "inner"), "{error}");
                assert!(error.to_string().contains("in which [\"waits\"] had not ended"), "{error}");
            }
            assert_eq!((once.get(), clock.elapsed()), (1, ms(20)), "it is not tried again");
            let done = run_on(driver, graph.run(&thread).durability(durability), Input::Continue).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["once", "beside", "waited"], "{driver} {durability:?}");
            same_after_reload(&graph, &thread);
        }
    }
}

#[apply(each_backend)]
fn a_graph_inside_that_ran_out_of_time_can_be_handled() {
    for driver in 0..2 {
        let graph = StateGraph::<Log>::new()
            .node_with(
                "inner",
                inner(&Count::default(), ms(5)),
                NodeOptions::new().error_handler(|_: &Log| Ok(line("handled"))),
            )
            .edge(START, "inner")
            .compile()
            .unwrap();
        let done = run_on(driver, graph.run(&thread()).context("slow"), start()).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["handled"]);
    }
}

#[apply(each_backend)]
fn a_graph_inside_starts_no_handler_when_the_graph_around_it_ran_out_of_time() {
    for (driver, durability) in EVERY_WAY {
        let clock = SimClock::default();
        let handled = NodeOptions::new().error_handler(|_: &Log| Ok(line("handled")));
        let inner = StateGraph::<Log>::new().node_with("waits", waits, handled).edge(START, "waits").compile().unwrap();
        let graph =
            StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").step_timeout(ms(20)).compile().unwrap();
        let thread = by(&clock);
        let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
        assert_eq!(late(beside(&clock, 2, || true, || run_on(driver, run, start()))), ["inner"]);
        let done = run_on(driver, graph.run(&thread).durability(durability), Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["waited"], "the node runs again, not its handler");
    }
}

#[apply(each_backend)]
fn graphs_and_tasks_that_a_node_on_a_thread_calls_are_stopped_with_its_superstep() {
    let inner = StateGraph::<Log>::new().node("waits", waits).edge(START, "waits").compile().unwrap();
    let never = Task::new("never", |_: i64| pending::<NodeResult<i64>>());
    let graph = StateGraph::<Log>::new()
        .node("graph", move |_: &Log, context: &Context| {
            let done = inner.invoke(context, Log::update())?;
            Ok(Log::update().lines(done.state().lines.to_vec()))
        })
        .node("task", move |_: &Log, context: &Context| {
            if !is_slow(context) {
                return Ok(line("no task"));
            }
            let first = never.call(context, 1).wait();
            assert!(matches!(first.unwrap_err().downcast_ref(), Some(RunError::StepTimeout { .. })));
            never.call(context, 2).wait().map(|n| line(n.to_string()))
        })
        .edge(START, "graph")
        .edge(START, "task")
        .step_timeout(ms(20))
        .compile()
        .unwrap();
    for (driver, durability) in EVERY_WAY {
        let clock = SimClock::default();
        let thread = by(&clock);
        let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
        // The node of the graph and the task.
        let outcome = pass_when(&clock, ms(20), 2, || run_on(driver, run, start()));
        assert_eq!(late(outcome), ["graph", "task"]);
        let run = graph.run(&thread).durability(durability).step_timeout(Duration::ZERO);
        let done = run_on(driver, run, Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["waited", "no task"]);
    }
}

#[apply(each_backend)]
fn a_node_that_failed_by_itself_is_the_error_of_the_run() {
    for (driver, durability) in EVERY_WAY {
        let (clock, begun) = (SimClock::default(), Count::default());
        let counted = begun.clone();
        let graph = StateGraph::<Log>::new()
            .node("slow", waits)
            .node("other", move |_: &Log, context: &Context| {
                counted.up();
                if is_slow(context) { Err("it broke".into()) } else { Ok(line("whole")) }
            })
            .edge(START, "slow")
            .edge(START, "other")
            .step_timeout(ms(20))
            .compile()
            .unwrap();
        let thread = by(&clock);
        let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
        let error = beside(&clock, 1, || begun.get() == 1, || run_on(driver, run, start())).unwrap_err();
        assert!(matches!(error.as_run(), Some(RunError::Node { node, .. }) if node == "other"), "{error}");
        let run = graph.run(&thread).durability(durability).step_timeout(Duration::ZERO);
        let done = run_on(driver, run, Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["whole", "waited"]);
    }
}

#[apply(each_backend)]
fn a_question_beside_a_node_without_time_stays_open() {
    for (driver, durability) in EVERY_WAY {
        let (clock, begun) = (SimClock::default(), Count::default());
        let counted = begun.clone();
        let graph = StateGraph::<Log>::new()
            .node("slow", waits)
            .node("asks", move |_: &Log, context: &Context| {
                counted.up();
                Ok(line(context.interrupt("why?")?.as_str().unwrap_or_default()))
            })
            .edge(START, "slow")
            .edge(START, "asks")
            .step_timeout(ms(20))
            .compile()
            .unwrap();
        let thread = by(&clock);
        let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
        let outcome = beside(&clock, 1, || begun.get() == 1, || run_on(driver, run, start()));
        assert!(late(outcome).contains(&"slow".to_owned()));
        assert_eq!(graph.get_state(&thread).unwrap().interrupts[0].value, Value::from("why?"));
        let run = graph.run(&thread).durability(durability).step_timeout(Duration::ZERO);
        let done = run_on(driver, run, Input::Command(Command::resume("so"))).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["so", "waited"]);
    }
}

#[apply(each_backend)]
fn only_what_can_be_stopped_needs_a_timer() {
    let on_threads = StateGraph::<Log>::new().node("plain", |_: &Log| Ok(line("plain"))).edge(START, "plain");
    let inner = StateGraph::<Log>::new().node("waits", waits).edge(START, "waits").compile().unwrap();
    let around = StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = thread();
    let mut run = pin!(around.run(&thread).step_timeout(ms(10)).ainvoke(start()));
    let Poll::Ready(outcome) = run.as_mut().poll(&mut Waiting::from_waker(Waker::noop())) else {
        panic!("it has begun")
    };
    let error = outcome.unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::NoTimer { node }) if node == "inner"), "{error}");
    assert!(thread.head().unwrap().is_none(), "nothing was stored");
    let plain = on_threads.compile().unwrap().with_config(|run| run.step_timeout(ms(60_000)));
    let mut run = pin!(plain.ainvoke((), Log::update()));
    let done = loop {
        match run.as_mut().poll(&mut Waiting::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => break outcome.unwrap(),
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(done.state().lines.to_vec(), ["plain"]);
}

#[apply(each_backend)]
fn an_entrypoint_has_a_limit_for_all_of_its_attempts() {
    let busy = Entrypoint::new("busy", |_: i64, context: Context| async move {
        if context.attempt() < 3 { Err::<i64, _>("busy".into()) } else { pending().await }
    });
    let quick = RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false);
    let busy = busy.retry(quick).step_timeout(ms(300)).compile().unwrap();
    for driver in 0..2 {
        let clock = SimClock::default();
        let thread = by(&clock);
        let run = busy.run(&thread).timer(clock.clone());
        let input = IntoInput::<Entry<i64, i64>, _>::into_input(1);
        // The pauses, and the last attempt.
        let outcome = beside(&clock, 1, || true, || run_on(driver, run, input));
        assert_eq!((late(outcome), clock.elapsed()), (names(&["busy"]), ms(300)));
    }
}

#[apply(each_backend)]
fn an_awaited_path_that_takes_too_long_is_stopped_with_its_superstep() {
    let path = |_: Arc<Log>, context: Context| async move {
        if is_slow(&context) {
            pending::<()>().await;
        }
        "last"
    };
    for (driver, durability) in EVERY_WAY {
        for (from, runs) in [("first", 2), (START, 0)] {
            let (clock, count) = (SimClock::default(), Count::default());
            let graph = StateGraph::<Log>::new()
                .node("first", counts(&count))
                .node("last", |_: &Log| Ok(line("last")))
                .branch(from, path)
                .step_timeout(ms(30));
            let graph = if from == START { graph } else { graph.edge(START, "first") }.compile().unwrap();
            let thread = by(&clock);
            let run = graph.run(&thread).timer(clock.clone()).context("slow").durability(durability);
            let outcome = beside(&clock, 1, || true, || run_on(driver, run, start()));
            assert_eq!((late(outcome), clock.elapsed()), (names(&[from]), ms(30)));
            assert_eq!(graph.get_state(&thread).unwrap().next, [from], "it did not end");
            same_after_reload(&graph, &thread);
            let run = graph.run(&thread).durability(durability).step_timeout(Duration::ZERO);
            let done = run_on(driver, run, Input::Continue).unwrap();
            assert_eq!(done.state().lines.to_vec().last().unwrap(), "last");
            assert_eq!(count.get(), runs, "{driver} {durability:?}");
        }
    }
}
