//! Tests the time limits of nodes, on both drivers and both backends: timeouts, heartbeats, timers.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::Clock;
use annals_graph::graph::{Own, RefreshOn, RetryPolicy, TimeoutPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{RunError, Sleep, TimeoutKind, Timer, block_on};
use macro_rules_attribute::apply;

use crate::backends::{new_thread, place_with, same_after_reload};
use crate::clock::{SimClock, beside, by_the_clock, ms};
use crate::line_state::{Log, LogUpdate, line, start};

/// A new thread.
fn thread() -> Thread {
    new_thread()
}

/// A timer that spends a thread on each pause.
#[derive(Clone, Copy)]
struct Threads;

impl Timer for Threads {
    fn sleep(&self, pause: Duration) -> Sleep {
        let (woken, done) = (Arc::new(Mutex::new(None::<Waker>)), Arc::new(Mutex::new(false)));
        let (waker, ended) = (Arc::clone(&woken), Arc::clone(&done));
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            *ended.lock().unwrap() = true;
            waker.lock().unwrap().take().into_iter().for_each(Waker::wake);
        });
        Box::pin(std::future::poll_fn(move |waiting| {
            *woken.lock().unwrap() = Some(waiting.waker().clone());
            if *done.lock().unwrap() { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

/// Runs a graph on both drivers, the asynchronous one also with a timer that is given.
fn everywhere<S>(graph: &CompiledGraph<S>, mut check: impl FnMut(Result<Outcome<S>>), input: impl Fn() -> Input)
where
    S: Clone + Send + Sync + 'static,
{
    check(graph.invoke(&thread(), input()));
    check(block_on(graph.ainvoke(&thread(), input())));
    check(block_on(graph.run(&thread()).timer(Threads).ainvoke(input())));
}

fn options(limits: impl Into<TimeoutPolicy>) -> NodeOptions<Log> {
    NodeOptions::new().timeout(limits)
}

#[apply(each_backend)]
fn a_node_that_takes_too_long_is_stopped_and_its_siblings_are_kept() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let graph = StateGraph::<Log>::new()
        .node_with("slow", |_: Arc<Log>| pending::<NodeResult<()>>(), options(ms(20)))
        .node("quick", move |_: &Log| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(line("quick"))
        })
        .edge(START, "slow")
        .edge(START, "quick")
        .compile()
        .unwrap();
    let check = |outcome: Result<Outcome<Log>>| {
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.kind(), error.as_run().unwrap().class()),
            (annals_graph::ErrorKind::Limit, "NodeTimeoutError")
        );
        let Some(RunError::NodeTimeout { node, kind, after_ms, run_timeout_ms, idle_timeout_ms }) = error.as_run()
        else {
            panic!("{error}")
        };
        assert_eq!(
            (node.as_str(), *kind, *run_timeout_ms, *idle_timeout_ms),
            ("slow", TimeoutKind::Run, Some(20), None)
        );
        assert!(*after_ms >= 20, "{after_ms}");
        let wanted = format!("node \"slow\" was stopped after {after_ms} ms: it may take 20 ms");
        assert_eq!(error.to_string(), wanted);
    };
    everywhere(&graph, check, start);
    // The sibling has ended when the time passes.
    let (clock, before) = (SimClock::default(), runs.load(Ordering::Relaxed));
    let thread = place_with(OpenOptions::new().clock(clock.clone())).thread("siblings").unwrap();
    let run = |input: Input| {
        let ready = || runs.load(Ordering::Relaxed) > before;
        beside(&clock, 1, ready, || graph.run(&thread).timer(clock.clone()).invoke(input))
    };
    assert!(run(start()).is_err());
    assert!(run(Input::Continue).is_err());
    assert_eq!(runs.load(Ordering::Relaxed), before + 1, "what has ended is not run again");
    let state = graph.get_state(&thread).unwrap();
    assert!(state.tasks.iter().any(|task| task.error.as_deref().is_some_and(|error| error.contains("stopped after"))));
    same_after_reload(&graph, &thread);
}

/// A node that rests eight times for 30 ms, and gives a sign of life after each.
fn resting(
    clock: &SimClock,
    sign: fn(&Context),
) -> impl Fn(Arc<Log>, Context) -> Pin<Box<dyn Future<Output = NodeResult<LogUpdate>> + Send>> + use<> {
    let clock = clock.clone();
    move |_, context| {
        let clock = clock.clone();
        Box::pin(async move {
            for _ in 0..8 {
                clock.sleep(ms(30)).await;
                sign(&context);
            }
            Ok(line("rested"))
        })
    }
}

fn kind_of(outcome: Result<Outcome<Log>>) -> Option<TimeoutKind> {
    match outcome {
        Ok(done) => {
            assert_eq!(done.state().lines.to_vec(), ["rested"]);
            None
        }
        Err(error) => match error.as_run() {
            Some(RunError::NodeTimeout { kind, .. }) => Some(*kind),
            _ => panic!("{error}"),
        },
    }
}

#[test]
fn signs_of_life_put_the_idle_timeout_off() {
    let idle = || TimeoutPolicy::new().idle_timeout(ms(100));
    let strict = || idle().refresh_on(RefreshOn::Heartbeat);
    let cases: [(&str, fn(&Context), TimeoutPolicy, Option<TimeoutKind>); 6] = [
        ("heartbeat", Context::heartbeat, idle(), None),
        ("emit", |context| context.emit("here"), idle(), None),
        ("strict heartbeat", Context::heartbeat, strict(), None),
        ("silent", |_| (), idle(), Some(TimeoutKind::Idle)),
        ("strict emit", |context| context.emit("here"), strict(), Some(TimeoutKind::Idle)),
        ("run", Context::heartbeat, idle().run_timeout(ms(100)), Some(TimeoutKind::Run)),
    ];
    for (name, sign, limits, want) in cases {
        let build = |clock: &SimClock| {
            let graph = StateGraph::<Log>::new().node_with("rests", resting(clock, sign), options(limits));
            graph.edge(START, "rests").compile().unwrap()
        };
        by_the_clock(2, build, start(), |_, _, _, outcome| assert_eq!(kind_of(outcome), want, "{name}"));
    }
}

#[test]
fn a_graph_inside_keeps_the_node_around_it_alive_and_goes_with_it() {
    for (sign, want) in [(Context::heartbeat as fn(&Context), None), (|_| (), Some(TimeoutKind::Idle))] {
        let build = |clock: &SimClock| {
            let inner = StateGraph::<Log>::new().node("rests", resting(clock, sign));
            let inner = inner.edge(START, "rests").compile().unwrap();
            let limits = TimeoutPolicy::new().idle_timeout(ms(100));
            let outer = StateGraph::<Log>::new().node_with("graph", inner, options(limits));
            outer.edge(START, "graph").compile().unwrap()
        };
        by_the_clock(2, build, start(), |_, _, _, outcome| assert_eq!(kind_of(outcome), want));
    }
}

#[apply(each_backend)]
fn a_timeout_is_worth_another_attempt_and_can_be_handled() {
    let slow_at_first = |_: Arc<Log>, context: Context| async move {
        match context.attempt() {
            1 => pending().await,
            attempt => Ok(line(format!("attempt {attempt}"))),
        }
    };
    let quick = || RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false);
    let again = StateGraph::<Log>::new()
        .node_with("a", slow_at_first, options(ms(10)).retry(quick()))
        .edge(START, "a")
        .compile()
        .unwrap();
    everywhere(&again, |outcome| assert_eq!(outcome.unwrap().state().lines.to_vec(), ["attempt 2"]), start);

    let handler = |_: &Log, context: &Context| {
        let error = context.error().unwrap();
        let timed_out = matches!(error.find::<RunError>(), Some(RunError::NodeTimeout { kind: TimeoutKind::Run, .. }));
        Ok(line(format!("{} {timed_out} {}", error.node, context.attempt())))
    };
    let handled = StateGraph::<Log>::new()
        .node_with(
            "a",
            |_: Arc<Log>| pending::<NodeResult<()>>(),
            options(ms(5)).retry(quick().max_attempts(2)).error_handler(handler),
        )
        .edge(START, "a")
        .compile()
        .unwrap();
    everywhere(&handled, |outcome| assert_eq!(outcome.unwrap().state().lines.to_vec(), ["a true 1"]), start);
}

#[apply(each_backend)]
fn tasks_that_a_node_has_started_and_awaits_no_more_are_within_its_limits() {
    let hangs = Task::new("hangs", |_: i64, _: Context| pending::<NodeResult<i64>>());
    let node = move |_: Arc<Log>, context: Context| {
        drop(hangs.start(&context, 1));
        async { Ok(line("the node itself has ended")) }
    };
    let graph = StateGraph::<Log>::new().node_with("a", node, options(ms(10))).edge(START, "a").compile().unwrap();
    let outcome = block_on(graph.run(&thread()).timer(Threads).ainvoke(start()));
    assert_eq!(kind_of(outcome), Some(TimeoutKind::Run));
}

#[apply(each_backend)]
fn a_send_has_a_timeout_of_its_own_that_is_stored_with_it() {
    let work = |n: i64, _: Context| async move { if n == 0 { pending().await } else { Ok(line(format!("did {n}"))) } };
    let handler = |n: i64, _: &Context| Ok(line(format!("handled {n}")));
    let graph = |first: fn() -> SendTo| {
        StateGraph::<Log>::new()
            .node_with(
                "work",
                Own(work),
                NodeOptions::new().timeout(Duration::from_secs(60)).error_handler(Own(handler)),
            )
            .branch(START, move |_: &Log| vec![first(), SendTo::new("work", 1)])
            .compile()
            .unwrap()
    };
    let timed = graph(|| SendTo::new("work", 0).timeout(ms(20)));
    everywhere(&timed, |outcome| assert_eq!(outcome.unwrap().state().lines.to_vec(), ["handled 0", "did 1"]), start);
    let thread = thread();
    let stopped = timed.run(&thread).interrupt_before(["work"]).invoke(Log::update()).unwrap();
    assert!(!stopped.is_done());
    same_after_reload(&timed, &thread);
    let done = timed.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["handled 0", "did 1"]);

    let zero = graph(|| SendTo::new("work", 0).timeout(Duration::ZERO));
    let error = zero.invoke((), Log::update()).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::BadTimeout { node }) if node == "work"), "{error}");
}

#[apply(each_backend)]
fn a_send_with_a_timeout_to_a_node_on_a_thread_fails() {
    let graph = StateGraph::<Log>::new()
        .node("work", Own(|n: i64| Ok(line(format!("did {n}")))))
        .branch(START, |_: &Log| SendTo::new("work", 1).timeout(ms(20)))
        .compile()
        .unwrap();
    let check = |outcome: Result<Outcome<Log>>| {
        let error = outcome.unwrap_err();
        assert!(matches!(error.as_run(), Some(RunError::SyncTimeout { node }) if node == "work"), "{error}");
        assert_eq!(error.as_run().unwrap().class(), "ValueError");
    };
    everywhere(&graph, check, start);
}

#[apply(each_backend)]
fn what_a_stopped_node_still_does_is_dropped() {
    let left = Arc::new(Mutex::new(None::<Context>));
    let (leaves, takes) = (Arc::clone(&left), Arc::clone(&left));
    let late = Task::new("late", |n: i64| Ok(n));
    let graph = StateGraph::<Log>::new()
        .node_with(
            "slow",
            move |_: Arc<Log>, context: Context| {
                *leaves.lock().unwrap() = Some(context);
                pending::<NodeResult<()>>()
            },
            options(ms(10)).error_handler(|_: &Log| Ok(Command::goto("next"))),
        )
        .node("next", move |_: &Log, context: &Context| {
            let stopped = takes.lock().unwrap().take().unwrap();
            stopped.emit("too late");
            let called = late.call(&stopped, 1).is_ok();
            Ok(line(format!("{} {called} {}", stopped.is_cancelled(), context.is_cancelled())))
        })
        .edge(START, "slow")
        .compile()
        .unwrap();
    let mut stream = graph.run(&thread()).stream(Log::update(), &[StreamMode::Custom]).unwrap();
    assert_eq!(stream.by_ref().count(), 0);
    assert_eq!(stream.outcome().unwrap().state().lines.to_vec(), ["true false false"]);
}

#[apply(each_backend)]
fn without_a_timer_a_timeout_is_an_error_before_the_run_starts() {
    let inner = StateGraph::<Log>::new()
        .node_with("slow", |_: Arc<Log>| pending::<NodeResult<()>>(), options(ms(10)))
        .edge(START, "slow")
        .compile()
        .unwrap();
    let graph = StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = thread();
    let mut waiting = Waiting::from_waker(Waker::noop());
    let mut run = pin!(graph.ainvoke(&thread, Log::update()));
    let Poll::Ready(outcome) = run.as_mut().poll(&mut waiting) else { panic!("it has begun") };
    let error = outcome.unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::NoTimer { node }) if node == "slow"), "{error}");
    assert!(thread.head().unwrap().is_none(), "nothing was stored");
}

#[test]
fn deadlines_and_pauses_go_by_the_clock_of_the_store_and_the_timer_of_the_run() {
    let clock = SimClock::default();
    let by_the_clock = OpenOptions::new().clock(clock.clone());
    let store = Store::with_backend(Arc::new(annals::store::MemoryBackend::new()), by_the_clock);
    let hour = Duration::from_secs(3600);
    let tried = RetryPolicy::new().initial_interval(hour).max_interval(hour * 100).jitter(false).max_attempts(3);
    let graph = StateGraph::<Log>::new()
        .node_with("slow", |_: Arc<Log>| pending::<NodeResult<()>>(), options(hour * 2).retry(tried))
        .edge(START, "slow")
        .compile()
        .unwrap();
    let thread = store.thread("t").unwrap();
    // A run that stores its steps would end before a pause of an hour.
    let run = graph.run(&thread).timer(clock.clone()).durability(annals_graph::Durability::Exit);
    let mut run = pin!(run.ainvoke(Log::update()));
    let mut waiting = Waiting::from_waker(Waker::noop());
    let error = loop {
        match run.as_mut().poll(&mut waiting) {
            Poll::Ready(outcome) => break outcome.unwrap_err(),
            Poll::Pending => {
                assert!(clock.awaited() > 0, "nothing is waited for");
                clock.go_on();
            }
        }
    };
    assert!(matches!(error.as_run(), Some(RunError::NodeTimeout { after_ms: 7_200_000, .. })), "{error}");
    // Three attempts of two hours, and pauses of one and of two.
    assert_eq!(clock.elapsed(), hour * 9);
}

#[apply(each_backend)]
fn pauses_between_attempts_need_no_timer() {
    let busy = |_: Arc<Log>, context: Context| async move {
        if context.attempt() < 3 { Err("busy".into()) } else { Ok(line("done")) }
    };
    let on_a_thread =
        |_: &Log, context: &Context| if context.attempt() < 2 { Err("busy".into()) } else { Ok(line("done")) };
    let quick = || NodeOptions::new().retry(RetryPolicy::new().initial_interval(ms(1)).jitter(false));
    let graph = StateGraph::<Log>::new()
        .node_with("a", busy, quick())
        .node_with("b", on_a_thread, quick())
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    let thread = thread();
    let mut run = pin!(graph.ainvoke(&thread, Log::update()));
    let mut waiting = Waiting::from_waker(Waker::noop());
    let done = loop {
        match run.as_mut().poll(&mut waiting) {
            Poll::Ready(outcome) => break outcome.unwrap(),
            Poll::Pending => std::thread::sleep(ms(1)),
        }
    };
    assert_eq!(done.state().lines.to_vec(), ["done", "done"]);
}

#[cfg(feature = "tokio")]
#[apply(each_backend)]
fn a_run_on_tokio_waits_by_the_timer_of_its_runtime() {
    let graph = StateGraph::<Log>::new()
        .node_with("slow", |_: Arc<Log>| pending::<NodeResult<()>>(), options(Duration::from_secs(3600)))
        .edge(START, "slow")
        .compile()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let thread = thread();
    let short = StateGraph::<Log>::new()
        .node_with("slow", |_: Arc<Log>| pending::<NodeResult<()>>(), options(ms(20)))
        .edge(START, "slow")
        .compile()
        .unwrap();
    let error = runtime.block_on(async { short.ainvoke(&thread, Log::update()).await }).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::NodeTimeout { .. })), "{error}");
    // A runtime without a timer of its own: the node fails, and says why.
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = bare.block_on(async { graph.ainvoke((), Log::update()).await }).unwrap_err();
    assert!(error.to_string().contains("timers are disabled"), "{error}");
    assert!(annals_graph::TokioTimer::current().is_none());
}
