//! Tasks and entrypoints of async functions, and the policies of tasks, on both backends and under both drivers.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::Map;
use annals_graph::Durability;
use annals_graph::block_on;
use annals_graph::graph::{CachePolicy, Entry, Entrypoint, Final, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use macro_rules_attribute::apply;

use crate::backends::place;

fn thread() -> Thread {
    place().thread("t").unwrap()
}

/// Waits until so many wait here.
#[derive(Clone)]
struct Meeting(Arc<Mutex<(usize, Vec<Waker>)>>);

impl Meeting {
    fn of(count: usize) -> Self {
        Self(Arc::new(Mutex::new((count, Vec::new()))))
    }

    async fn wait(self) {
        let mut came = false;
        poll_fn(move |waiting| {
            let mut meeting = self.0.lock().unwrap();
            if !std::mem::replace(&mut came, true) {
                meeting.0 -= 1;
            }
            if meeting.0 == 0 {
                meeting.1.drain(..).for_each(Waker::wake);
                return Poll::Ready(());
            }
            meeting.1.push(waiting.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Polls two futures on this thread until the first one ends.
fn beside<T>(first: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
    let (mut first, mut other) = (pin!(first), pin!(other));
    let mut ended = false;
    block_on(poll_fn(move |waiting: &mut Waiting<'_>| {
        ended = ended || other.as_mut().poll(waiting).is_ready();
        first.as_mut().poll(waiting)
    }))
}

async fn plain(n: i64) -> NodeResult<i64> {
    Ok(n * 2)
}

async fn borrows(n: i64, context: &Context) -> NodeResult<String> {
    Ok(format!("{} {n}", context.node()))
}

#[apply(each_backend)]
fn every_form_of_task_runs_under_both_drivers() {
    let (plain, borrows) = (Task::new("plain", plain), Task::new("borrows", borrows));
    let owns = Task::new("owns", |n: i64, context: Context| async move { Ok(format!("{} {n}", context.node())) });
    let blocking = Task::new("blocking", |n: i64| Ok(n + 1));
    let (a, b, c, d) = (plain.clone(), borrows.clone(), owns.clone(), blocking.clone());
    let awaits = Entrypoint::new("awaits", move |n: i64, context: Context| {
        let (plain, borrows, owns, blocking) = (a.clone(), b.clone(), c.clone(), d.clone());
        async move {
            let doubled = plain.call(&context, n).await?;
            let more = blocking.start(&context, doubled).await?;
            Ok(vec![borrows.call(&context, more).await?, owns.call(&context, more).await?])
        }
    })
    .compile()
    .unwrap();
    let waits = Entrypoint::new("waits", move |n: i64, context: &Context| {
        let doubled = plain.call(context, n).wait()?;
        let more = blocking.call(context, doubled)?;
        Ok(vec![borrows.start(context, more).wait()?, owns.call(context, more).wait()?])
    })
    .compile()
    .unwrap();
    let want = vec!["borrows 7".to_string(), "owns 7".to_string()];
    let thread = thread();
    for graph in [&awaits, &waits] {
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            for tasks in [1, usize::MAX] {
                let run = || graph.run(&thread).durability(durability).concurrency_max(tasks);
                assert_eq!(run().invoke(3).unwrap().value(), Some(&want), "{durability:?} {tasks}");
                assert_eq!(block_on(run().ainvoke(3)).unwrap().value(), Some(&want), "{durability:?} {tasks}");
            }
        }
    }
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn awaited_tasks_go_on_together_on_the_one_thread_of_their_run() {
    let meeting = Meeting::of(4);
    let here = std::thread::current().id();
    let inner = meeting.clone();
    let meet = Task::new("meet", move |n: i64| {
        let meeting = inner.clone();
        async move {
            meeting.wait().await;
            assert_eq!(std::thread::current().id(), here);
            Ok(n)
        }
    });
    let graph = Entrypoint::new("all", move |_: (), context: Context| {
        let (meet, meeting) = (meet.clone(), meeting.clone());
        async move {
            let first = meet.start(&context, 1);
            let _unread = meet.start(&context, 2);
            let third = meet.start(&context, 3);
            // The calls continue although the caller does not await them.
            meeting.wait().await;
            Ok(vec![third.await?, first.await?])
        }
    })
    .compile()
    .unwrap();
    let done = block_on(graph.ainvoke(&thread(), ())).unwrap();
    assert_eq!(done.value(), Some(&vec![3, 1]));
}

#[apply(each_backend)]
fn a_blocking_task_stalls_neither_its_awaiting_caller_nor_the_executor() {
    for tasks in [1, usize::MAX] {
        let (sender, receiver) = mpsc::channel::<i64>();
        let receiver = Mutex::new(receiver);
        let hear = Task::new("hear", move |_: ()| Ok(receiver.lock().unwrap().recv()?));
        let graph = Entrypoint::new("main", move |awaited: bool, context: Context| {
            let hear = hear.clone();
            async move {
                let heard = hear.start(&context, ());
                if awaited { heard.await } else { Ok(0) }
            }
        })
        .compile()
        .unwrap();
        for (awaited, want) in [(true, 7), (false, 0)] {
            let sender = sender.clone();
            let mut polls = 0;
            let sends = poll_fn(move |waiting| {
                polls += 1;
                waiting.waker().wake_by_ref();
                if polls < 5 {
                    return Poll::Pending;
                }
                sender.send(7).unwrap();
                Poll::Ready(())
            });
            let thread = thread();
            let run = graph.run(&thread).concurrency_max(tasks).ainvoke(awaited);
            let done = beside(run, sends).unwrap();
            assert_eq!(done.value(), Some(&want));
        }
    }
}

#[apply(each_backend)]
fn an_awaited_result_is_kept_over_a_question() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let draft = Task::new("draft", move |topic: String| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(format!("about {topic}")) }
    });
    let ask = Task::new("ask", |question: String, context: Context| async move {
        Ok(context.interrupt(question)?.as_str().unwrap_or_default().to_owned())
    });
    let graph = Entrypoint::new("essay", move |topic: String, context: Context| {
        let (draft, ask) = (draft.clone(), ask.clone());
        async move {
            let text = draft.call(&context, topic).await?;
            let title = ask.call(&context, "title?".into()).await?;
            Ok(Final::with(format!("{title}: {text}"), &title)?)
        }
    })
    .compile()
    .unwrap();
    let thread = thread();
    let waiting = block_on(graph.ainvoke(&thread, "cats".to_string())).unwrap();
    assert_eq!(waiting.interrupts()[0].value, Value::from("title?"));
    let done = block_on(graph.ainvoke(&thread, Command::resume("Cats"))).unwrap();
    assert_eq!(done.value().map(String::as_str), Some("Cats: about cats"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[apply(each_backend)]
fn a_run_that_is_dropped_drops_its_tasks() {
    let held = Arc::new(());
    let inner = Arc::clone(&held);
    let never = Task::new("never", move |_: ()| {
        let held = Arc::clone(&inner);
        async move {
            let _held = held;
            std::future::pending::<NodeResult<()>>().await
        }
    });
    let graph = Entrypoint::new("main", move |_: (), context: Context| {
        let never = never.clone();
        async move {
            let first = never.start(&context, ());
            let second = never.start(&context, ());
            first.await?;
            second.await
        }
    })
    .compile()
    .unwrap();
    let thread = thread();
    {
        let run = graph.run(&thread).durability(Durability::Sync);
        let mut run = Box::pin(run.ainvoke(())) as Pin<Box<dyn Future<Output = _> + '_>>;
        block_on(poll_fn(|waiting| {
            // Until both have begun, however long a commit takes.
            while Arc::strong_count(&held) < 4 {
                assert!(run.as_mut().poll(waiting).is_pending());
                std::thread::yield_now();
            }
            Poll::Ready(())
        }));
    }
    assert_eq!(Arc::strong_count(&held), 2, "the task and this test have it");
    assert_eq!(graph.get_state(&thread).unwrap().next, ["main"]);
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false)
}

#[apply(each_backend)]
fn another_attempt_keeps_its_answers_and_the_results_of_its_calls() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let leaf = Task::new("leaf", move |n: i64| Ok(n + counted.fetch_add(1, Ordering::SeqCst) as i64));
    let fragile = Task::new("fragile", move |n: i64, context: &Context| {
        let answer = context.interrupt("how many?")?.as_int().unwrap_or(0);
        let from_leaf = leaf.call(context, n)?;
        if context.attempt() < 3 { Err("busy".into()) } else { Ok(vec![answer, from_leaf]) }
    })
    .retry(quick());
    let graph = Entrypoint::new("main", move |n: i64, context: &Context| fragile.call(context, n)).compile().unwrap();
    for awaited in [false, true] {
        runs.store(0, Ordering::SeqCst);
        let thread = thread();
        assert_eq!(graph.invoke(&thread, 10).unwrap().interrupts().len(), 1);
        let answer = Command::resume(5);
        let done = if awaited { block_on(graph.ainvoke(&thread, answer)) } else { graph.invoke(&thread, answer) };
        assert_eq!(done.unwrap().value(), Some(&vec![5, 10]), "the leaf ran once");
    }
}

#[test]
fn a_task_without_a_policy_takes_that_of_its_entrypoint_and_a_panic_is_not_tried_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let attempts = |tries: &Arc<AtomicUsize>| {
        let tries = Arc::clone(tries);
        move |panics: bool, context: Context| {
            tries.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(!panics, "out of cheese");
                if context.attempt() == 1 { Err("busy".into()) } else { Ok(context.attempt()) }
            }
        }
    };
    let task = Task::new("task", attempts(&tries));
    let make = |policy: Option<RetryPolicy>| {
        let task = task.clone();
        let entrypoint = Entrypoint::new("main", move |panics: bool, context: Context| {
            let task = task.clone();
            async move { Ok(task.call(&context, panics).await.map_err(|error| error.to_string())) }
        });
        let entrypoint = policy.into_iter().fold(entrypoint, Entrypoint::retry);
        entrypoint.compile().unwrap()
    };
    let run = |graph: &CompiledGraph<Entry<bool, Result<u32, String>>>, panics: bool| {
        tries.store(0, Ordering::SeqCst);
        let value = block_on(graph.ainvoke((), panics)).unwrap().value().cloned().unwrap();
        (value, tries.load(Ordering::SeqCst))
    };
    assert_eq!(run(&make(None), false), (Err("busy".into()), 1));
    assert_eq!(run(&make(Some(quick())), false), (Ok(2), 2));
    let (panicked, tries) = run(&make(Some(quick())), true);
    assert!(panicked.unwrap_err().contains("out of cheese"));
    assert_eq!(tries, 1);
}

#[apply(each_backend)]
fn a_cached_task_runs_once_for_an_input_whoever_calls_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let count = Task::new("count", move |of: Map| {
        let counted = Arc::clone(&counted);
        async move { Ok((of.len(), counted.fetch_add(1, Ordering::SeqCst))) }
    })
    .cache_policy(CachePolicy::new());
    let store = place();
    let make = |name: &str| {
        let count = count.clone();
        Entrypoint::new(name, move |of: Map, context: Context| {
            let count = count.clone();
            async move { count.call(&context, of).await }
        })
        .cache(&store.cache())
        .compile()
        .unwrap()
    };
    let input = |names: [&str; 2]| names.map(|name| (name.to_string(), Value::from(1))).into_iter().collect::<Map>();
    let thread = store.thread("t").unwrap();
    for graph in [make("one"), make("two")] {
        let done = block_on(graph.ainvoke(&thread, input(["a", "b"]))).unwrap();
        assert_eq!(done.value(), Some(&(2, 0)));
        assert_eq!(graph.invoke((), input(["b", "a"])).unwrap().value(), Some(&(2, 0)), "the order does not count");
    }
    assert_eq!(make("one").invoke((), input(["a", "c"])).unwrap().value(), Some(&(2, 1)));
    count.clear_cache(&store.cache()).unwrap();
    assert_eq!(make("one").invoke((), input(["a", "b"])).unwrap().value(), Some(&(2, 2)));
}
