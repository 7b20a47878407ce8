//! Tests the time limits of called tasks, on both drivers and both backends.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::Clock;
use annals_graph::graph::{Entry, Entrypoint, RefreshOn, RetryPolicy, TimeoutPolicy};
use annals_graph::prelude::*;
use annals_graph::task::{AsyncTask, Task};
use annals_graph::{RunError, TimeoutKind, Timer, block_on};
use macro_rules_attribute::apply;

use crate::backends::new_thread;
use crate::clock::{SimClock, by_the_clock, ms};

fn thread() -> Thread {
    new_thread()
}

/// An entrypoint that awaits a task, and one that waits for it on its thread.
fn callers<R>(task: &AsyncTask<i64, R>) -> [CompiledGraph<Entry<i64, R>>; 2]
where
    R: Clone + serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (awaited, waited) = (task.clone(), task.clone());
    let awaits = Entrypoint::new("main", move |n: i64, context: Context| {
        let task = awaited.clone();
        async move { task.call(&context, n).await }
    });
    let waits = Entrypoint::new("main", move |n: i64, context: &Context| waited.call(context, n).wait());
    [awaits.compile().unwrap(), waits.compile().unwrap()]
}

/// Looks at the error of the task that a node called.
fn of_task<T: std::fmt::Debug, C>(outcome: Result<T>, check: impl FnOnce(&RunError) -> C) -> C {
    let error = outcome.unwrap_err();
    let Some(RunError::Node { source, .. }) = error.as_run() else { panic!("{error}") };
    check(source.downcast_ref::<RunError>().unwrap())
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false)
}

#[apply(each_backend)]
fn a_task_that_takes_too_long_is_dropped_and_its_caller_gets_the_error() {
    let held = Arc::new(());
    let inner = Arc::clone(&held);
    let never = Task::new("never", move |_: i64| {
        let held = Arc::clone(&inner);
        async move {
            let _held = held;
            pending::<NodeResult<i64>>().await
        }
    })
    .timeout(ms(20));
    for graph in callers(&never) {
        let thread = thread();
        for outcome in [graph.invoke(&thread, 1), block_on(graph.ainvoke(&thread, 2))] {
            of_task(outcome, |error| match error {
                RunError::NodeTimeout { node, kind, after_ms, run_timeout_ms, idle_timeout_ms } => {
                    assert_eq!((node.as_str(), *kind), ("never", TimeoutKind::Run));
                    assert_eq!((*run_timeout_ms, *idle_timeout_ms), (Some(20), None));
                    assert!(*after_ms >= 20, "{after_ms}");
                }
                other => panic!("{other}"),
            });
            let error = graph.get_state(&thread).unwrap().tasks[0].error.clone().unwrap();
            assert!(error.contains("node \"never\" was stopped after"), "{error}");
        }
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
    assert_eq!(Arc::strong_count(&held), 2, "the task and this test have it");
}

#[apply(each_backend)]
fn a_caller_can_go_on_without_a_task_that_took_too_long() {
    let sleepy =
        Task::new("sleepy", |n: i64| async move { if n == 0 { pending().await } else { Ok(n) } }).timeout(ms(10));
    let graph = Entrypoint::new("main", move |_: (), context: Context| {
        let sleepy = sleepy.clone();
        async move {
            let _unread = sleepy.start(&context, 0);
            let (late, early) = (sleepy.start(&context, 0), sleepy.start(&context, 7));
            let timed_out = matches!(late.await.unwrap_err().downcast_ref(), Some(RunError::NodeTimeout { .. }));
            Ok((timed_out, early.await?))
        }
    })
    .compile()
    .unwrap();
    for tasks in [1, usize::MAX] {
        let run = || graph.run(&thread()).concurrency_max(tasks);
        assert_eq!(run().invoke(()).unwrap().value(), Some(&(true, 7)));
        assert_eq!(block_on(run().ainvoke(())).unwrap().value(), Some(&(true, 7)));
    }
}

#[test]
fn each_attempt_has_the_whole_time_and_a_timeout_is_worth_another_one() {
    let hour = ms(3_600_000);
    let tries = || RetryPolicy::new().initial_interval(hour).max_interval(hour * 9).jitter(false);
    let slow = |_: i64, context: Context| async move {
        if context.attempt() < 3 { pending().await } else { Ok(context.attempt()) }
    };
    for own in [true, false] {
        let build = |_: &SimClock| {
            let slow = Task::new("slow", slow).timeout(hour * 2);
            let slow = if own { slow.retry(tries()) } else { slow };
            let main = Entrypoint::new("main", move |n: i64, context: Context| {
                let slow = slow.clone();
                async move { slow.call(&context, n).await }
            });
            let main = if own { main } else { main.retry(tries().max_attempts(3)) }.compile().unwrap();
            // A run that stores its steps would end before a pause of an hour.
            main.with_config(|run| run.durability(annals_graph::Durability::Exit))
        };
        by_the_clock(1, build, 5, |_, _, elapsed, outcome| {
            assert_eq!(outcome.unwrap().value(), Some(&3));
            // Two attempts of two hours, and pauses of one and of two.
            assert_eq!(elapsed, hour * 7);
        });
    }
}

/// A task that rests eight times for 30 ms, and gives a sign of life after each.
fn resting(
    clock: &SimClock,
    sign: fn(&Context),
) -> impl Fn(i64, Context) -> Pin<Box<dyn Future<Output = NodeResult<i64>> + Send>> + use<> {
    let clock = clock.clone();
    move |n, context| {
        let clock = clock.clone();
        Box::pin(async move {
            for _ in 0..8 {
                clock.sleep(ms(30)).await;
                sign(&context);
            }
            Ok(n)
        })
    }
}

#[test]
fn signs_of_life_put_the_idle_timeout_of_a_task_off() {
    let idle = || TimeoutPolicy::new().idle_timeout(ms(100));
    let strict = || idle().refresh_on(RefreshOn::Heartbeat);
    let calls = |context: &Context| _ = Task::new("leaf", |n: i64| Ok(n)).call(context, 1);
    let cases: [(&str, fn(&Context), TimeoutPolicy, Option<TimeoutKind>); 7] = [
        ("heartbeat", Context::heartbeat, idle(), None),
        ("emit", |context| context.emit("here"), idle(), None),
        ("call", calls, idle(), None),
        ("strict heartbeat", Context::heartbeat, strict(), None),
        ("silent", |_| (), idle(), Some(TimeoutKind::Idle)),
        ("strict emit", |context| context.emit("here"), strict(), Some(TimeoutKind::Idle)),
        ("run", Context::heartbeat, idle().run_timeout(ms(100)), Some(TimeoutKind::Run)),
    ];
    for (name, sign, limits, want) in cases {
        for caller in 0..2 {
            let build = |clock: &SimClock| {
                let rests = Task::new("rests", resting(clock, sign)).timeout(limits);
                let [awaits, waits] = callers(&rests);
                if caller == 0 { awaits } else { waits }
            };
            by_the_clock(2, build, 5, |_, _, elapsed, outcome| match want {
                None => assert_eq!((outcome.unwrap().value(), elapsed), (Some(&5), ms(240)), "{name}"),
                Some(want) => of_task(outcome, |error| {
                    assert!(matches!(error, RunError::NodeTimeout { kind, .. } if *kind == want), "{name}: {error}");
                }),
            });
        }
    }
}

#[apply(each_backend)]
fn what_a_stopped_task_still_does_is_dropped_and_its_calls_are_not_kept() {
    let left = Arc::new(Mutex::new(None::<Context>));
    let (leaves, takes) = (Arc::clone(&left), Arc::clone(&left));
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let leaf = Task::new("leaf", move |n: i64| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(n)
    });
    let late = leaf.clone();
    let slow = Task::new("slow", move |n: i64, context: Context| {
        *leaves.lock().unwrap() = Some(context.clone());
        let leaf = leaf.clone();
        async move {
            leaf.start(&context, n).await?;
            pending::<NodeResult<i64>>().await
        }
    })
    .timeout(ms(10));
    let graph = Entrypoint::new("main", move |n: i64, context: Context| {
        let (slow, late, takes) = (slow.clone(), late.clone(), Arc::clone(&takes));
        async move {
            let failed = slow.call(&context, n).await.is_err();
            let stopped = takes.lock().unwrap().take().unwrap();
            stopped.emit("too late");
            let called = late.start(&stopped, 1).await.is_ok();
            Ok((failed, called, stopped.is_cancelled(), context.is_cancelled()))
        }
    })
    .compile()
    .unwrap();
    let want = (true, false, true, false);
    let mut stream = graph.run(&thread()).stream(1, &[StreamMode::Custom]).unwrap();
    assert_eq!(stream.by_ref().count(), 0);
    assert_eq!(stream.outcome().unwrap().value(), Some(&want));
    assert_eq!(block_on(graph.ainvoke(&thread(), 1)).unwrap().value(), Some(&want));
    assert!(runs.load(Ordering::Relaxed) <= 2, "a stopped task calls no other");
}

#[test]
fn a_timeout_that_cannot_be_kept_fails_the_task_before_it_runs() {
    let runs = Arc::new(AtomicU32::new(0));
    let task = |limit: Duration| {
        let counted = Arc::clone(&runs);
        let task = Task::new("task", move |n: i64| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move { Ok(n) }
        });
        task.timeout(limit).retry(quick())
    };
    for graph in callers(&task(Duration::ZERO)) {
        for outcome in [graph.invoke((), 1), block_on(graph.ainvoke((), 1))] {
            of_task(outcome, |error| {
                assert!(matches!(error, RunError::BadTimeout { node } if node == "task"), "{error}");
                assert_eq!(error.class(), "ValueError");
            });
        }
    }
    let [awaits, _] = callers(&task(ms(10)));
    let mut run = pin!(awaits.ainvoke((), 1));
    let Poll::Ready(outcome) = run.as_mut().poll(&mut Waiting::from_waker(Waker::noop())) else {
        panic!("it waits for something")
    };
    of_task(outcome, |error| assert!(matches!(error, RunError::NoTimer { node } if node == "task"), "{error}"));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[test]
fn a_task_with_a_timeout_is_cancelled_with_its_run() {
    let clock = SimClock::default();
    let store =
        Store::with_backend(Arc::new(annals::store::MemoryBackend::new()), OpenOptions::new().clock(clock.clone()));
    let waits = Task::new("waits", |n: i64, context: Context| async move {
        if context.value::<&str>() == Some(&"impatient") {
            context.control().cancel("enough");
            pending::<()>().await;
        }
        Ok(n)
    })
    .timeout(ms(1_000))
    .retry(quick());
    for (at, graph) in callers(&waits).into_iter().enumerate() {
        for awaited in [false, true] {
            let thread = store.thread(format!("{at} {awaited}")).unwrap();
            let run = graph.run(&thread).context("impatient").timer(clock.clone());
            let outcome = if awaited { block_on(run.ainvoke(7)) } else { run.invoke(7) };
            assert!(matches!(outcome.unwrap(), Outcome::Cancelled { reason, .. } if reason == "enough"));
            assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().value(), Some(&7));
        }
    }
    assert_eq!(clock.elapsed(), Duration::ZERO);
}

#[test]
fn a_heartbeat_of_a_task_is_none_of_its_caller() {
    let idle = || TimeoutPolicy::new().idle_timeout(ms(100));
    let cases: [(&str, fn(&Context), bool); 3] = [
        ("heartbeat", Context::heartbeat, false),
        ("emit", |context| context.emit("here"), true),
        ("silent", |_| (), false),
    ];
    for (name, sign, lives) in cases {
        for of_task in [false, true] {
            let build = |clock: &SimClock| {
                let rests = Task::new("rests", resting(clock, sign));
                let rests = if of_task { rests.timeout(idle().run_timeout(ms(1_000))) } else { rests };
                let main = Entrypoint::new("main", move |n: i64, context: Context| {
                    let rests = rests.clone();
                    async move { rests.call(&context, n).await }
                });
                main.timeout(idle()).compile().unwrap()
            };
            let alarms = if of_task { 3 } else { 2 };
            by_the_clock(alarms, build, 5, |_, _, elapsed, outcome| match (outcome, lives) {
                (Ok(done), true) => assert_eq!((done.value(), elapsed), (Some(&5), ms(240)), "{name}"),
                (Err(error), false) => match error.as_run() {
                    Some(RunError::NodeTimeout { node, kind: TimeoutKind::Idle, .. })
                        if !of_task || name != "silent" =>
                    {
                        assert_eq!((node.as_str(), elapsed), ("main", ms(100)), "{name}");
                    }
                    // Both are out of time at once.
                    Some(RunError::NodeTimeout { .. } | RunError::Node { .. }) => assert_eq!(elapsed, ms(100)),
                    _ => panic!("{name}: {error}"),
                },
                (outcome, _) => panic!("{name}: {outcome:?}"),
            });
        }
    }
}

/// Counts the calls that have begun and those that are still alive.
#[derive(Clone, Default)]
struct Alive(Arc<[AtomicU32; 2]>);

impl Alive {
    fn begin(&self) -> Self {
        self.0.iter().for_each(|count| _ = count.fetch_add(1, Ordering::SeqCst));
        self.clone()
    }

    fn counts(&self) -> (u32, u32) {
        (self.0[0].load(Ordering::SeqCst), self.0[1].load(Ordering::SeqCst))
    }
}

struct Ends(Alive);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.0[1].fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn what_a_stopped_attempt_called_is_dropped_with_it() {
    for how in ["awaited", "held", "not awaited"] {
        let build = |clock: &SimClock| {
            let (clock, alive) = (clock.clone(), Alive::default());
            let begins = alive.clone();
            let never = Task::new("never", move |n: i64| {
                let (clock, alive) = (clock.clone(), begins.clone());
                async move {
                    let _ends = Ends(alive.begin());
                    clock.sleep(ms(1_000_000)).await;
                    Ok((n as u32, 0))
                }
            });
            let main = Entrypoint::new("main", move |n: i64, context: Context| {
                let (never, alive) = (never.clone(), alive.clone());
                async move {
                    if context.attempt() > 1 {
                        // One on a thread of its own is told, and ends soon.
                        (0..200_000).take_while(|_| alive.counts().1 > 0).for_each(|_| std::thread::sleep(ms(1)));
                        return Ok(alive.counts());
                    }
                    let started = never.start(&context, n);
                    match how {
                        "awaited" => started.await,
                        "held" => {
                            let _started = started;
                            pending().await
                        }
                        _ => {
                            drop(started);
                            Ok((0, 0))
                        }
                    }
                }
            });
            let again = RetryPolicy::new().initial_interval(Duration::ZERO).jitter(false);
            main.timeout(ms(100)).retry(again).compile().unwrap()
        };
        by_the_clock(2, build, 5, |_, _, elapsed, outcome| {
            assert_eq!((outcome.unwrap().value(), elapsed), (Some(&(1, 0)), ms(100)), "{how}");
        });
    }
}
