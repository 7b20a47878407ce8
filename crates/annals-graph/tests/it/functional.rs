//! Tests entrypoints and tasks, on both backends: calls that run again and calls that do not.

use annals::store::log::LogExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use annals_graph::Durability;
use annals_graph::RunError;
use annals_graph::graph::NodeResult;
use annals_graph::graph::{Entrypoint, Final, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use macro_rules_attribute::apply;

use crate::backends::place;

fn thread() -> Thread {
    place().thread("t").unwrap()
}

/// The log of the calls that ran.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn double(log: &Log) -> Task<i64, i64> {
    let log = log.clone();
    Task::new("double", move |n: i64| {
        log.add(format!("double {n}"));
        Ok(n * 2)
    })
}

#[apply(each_backend)]
fn a_finished_task_is_not_run_again_after_a_question() {
    let (log, thread) = (Log::default(), thread());
    let (double, inner) = (double(&log), log.clone());
    let graph = Entrypoint::new("ask", move |n: i64, context: &Context| {
        inner.add("top");
        let doubled = double.call(context, n)?;
        let answer = context.interrupt(doubled)?;
        Ok((doubled, answer.as_int()))
    })
    .compile()
    .unwrap();
    let waiting = graph.invoke(&thread, 2).unwrap();
    assert_eq!(waiting.interrupts()[0].value, Value::from(4));
    assert_eq!(waiting.value(), None);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((state.next, state.step), (vec!["ask".to_string()], Some(-1)));
    assert_eq!(log.take(), ["top", "double 2"]);

    let done = graph.invoke(&thread, Command::resume(7)).unwrap();
    assert_eq!(done.value(), Some(&(4, Some(7))));
    assert_eq!(log.take(), ["top"]);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((state.values.value(), state.step), (Some(&(4, Some(7))), Some(0)));
    assert_eq!(thread.history().unwrap().count(), 2);
}

#[apply(each_backend)]
fn a_failed_task_runs_again_and_the_finished_one_before_it_does_not() {
    let (log, thread, tries) = (Log::default(), thread(), Arc::new(AtomicUsize::new(0)));
    let double = double(&log);
    let fragile = Task::new("fragile", move |n: i64| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => Err("not yet".into()),
        _ => Ok(n + 1),
    });
    let graph = Entrypoint::new("sum", move |n: i64, context: &Context| {
        let doubled = double.call(context, n)?;
        fragile.call(context, doubled)
    })
    .compile()
    .unwrap();
    let error = graph.invoke(&thread, 3).unwrap_err();
    assert!(error.to_string().contains("not yet"), "{error}");
    assert_eq!(log.take(), ["double 3"]);
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().value(), Some(&7));
    assert_eq!(log.take(), Vec::<String>::new());
}

#[apply(each_backend)]
fn a_result_is_in_the_store_before_its_caller_goes_on() {
    let thread = thread();
    let (log, seen) = (Log::default(), thread.clone());
    let double = double(&log);
    let graph = Entrypoint::new("durable", move |n: i64, context: &Context| {
        let doubled = double.call(context, n)?;
        let point = seen.head()?.ok_or("no head")?;
        let writes = seen.store().backend().writes(point.point())?;
        let stored = writes.iter().filter(|write| &*write.channel == "__call__").count();
        Ok((doubled, stored as i64))
    })
    .compile()
    .unwrap();
    let done = graph.run(&thread).durability(Durability::Sync).invoke(1).unwrap();
    assert_eq!(done.value(), Some(&(2, 1)));
}

#[test]
fn started_tasks_run_at_the_same_time_and_wait_in_any_order() {
    let together = Arc::new(Barrier::new(3));
    let meet = Task::new("meet", move |n: i64| {
        // Passes only if all three run at once.
        together.wait();
        Ok(n)
    });
    let graph = Entrypoint::new("all", move |_: (), context: &Context| {
        let started: Vec<_> = (0..3).map(|n| meet.start(context, n)).collect();
        started.into_iter().rev().map(|task| task.wait()).collect::<NodeResult<Vec<i64>>>()
    })
    .compile()
    .unwrap();
    assert_eq!(graph.invoke((), ()).unwrap().value(), Some(&vec![2, 1, 0]));
}

#[test]
fn nested_tasks_by_the_hundred_need_no_thread_of_their_own() {
    let leaf = Task::new("leaf", |n: i64| Ok(n));
    let branch = Task::new("branch", move |n: i64, context: &Context| {
        let started: Vec<_> = (0..10).map(|i| leaf.start(context, n * 10 + i)).collect();
        started.into_iter().map(|task| task.wait()).sum::<NodeResult<i64>>()
    });
    let graph = Entrypoint::new("tree", move |n: i64, context: &Context| {
        let started: Vec<_> = (0..n).map(|i| branch.start(context, i)).collect();
        started.into_iter().map(|task| task.wait()).sum::<NodeResult<i64>>()
    })
    .compile()
    .unwrap();
    assert_eq!(graph.invoke((), 50).unwrap().value(), Some(&(0..500).sum()));
}

#[test]
fn started_tasks_keep_to_the_concurrency_of_the_run() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let nap = Task::new("nap", move |n: i64| {
        seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(2));
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(n)
    });
    let graph = Entrypoint::new("all", move |n: i64, context: &Context| {
        let started: Vec<_> = (0..n).map(|i| nap.start(context, i)).collect();
        started.into_iter().map(|task| task.wait()).sum::<NodeResult<i64>>()
    })
    .compile()
    .unwrap();
    assert_eq!(graph.run(()).concurrency_max(3).invoke(20).unwrap().value(), Some(&190));
    assert!(most.load(Ordering::SeqCst) <= 3);
}

#[apply(each_backend)]
fn a_task_nobody_waits_for_is_finished_with_the_superstep() {
    let (log, thread) = (Log::default(), thread());
    let double = double(&log);
    let graph = Entrypoint::new("leave", move |n: i64, context: &Context| {
        let _unread = double.start(context, n);
        Ok(n)
    })
    .compile()
    .unwrap();
    graph.invoke(&thread, 4).unwrap();
    assert_eq!(log.take(), ["double 4"]);
}

#[apply(each_backend)]
fn a_question_in_a_task_is_one_of_its_caller() {
    let (log, thread) = (Log::default(), thread());
    let inner = log.clone();
    let ask = Task::new("ask", move |name: String, context: &Context| {
        inner.add(format!("ask {name}"));
        Ok(context.interrupt(name)?.as_str().unwrap_or_default().to_owned())
    });
    let graph = Entrypoint::new("form", move |_: (), context: &Context| {
        let first = ask.call(context, "first".to_string())?;
        let last = ask.call(context, "last".to_string())?;
        Ok(format!("{first} {last}"))
    })
    .compile()
    .unwrap();
    let waiting = graph.invoke(&thread, ()).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().interrupts, waiting.interrupts());
    let waiting = graph.invoke(&thread, Command::resume("Ada")).unwrap();
    assert_eq!(waiting.interrupts()[0].value, Value::from("last"));
    let done = graph.invoke(&thread, Command::resume("Lovelace")).unwrap();
    assert_eq!(done.value().map(String::as_str), Some("Ada Lovelace"));
    assert_eq!(log.take(), ["ask first", "ask first", "ask last", "ask last"]);
}

#[apply(each_backend)]
fn tasks_that_ask_at_once_are_answered_one_after_another() {
    let ask = Task::new("ask", |name: String, context: &Context| {
        Ok(format!("{name} {}", context.interrupt(&*name)?.as_str().unwrap_or_default()))
    });
    let graph = Entrypoint::new("form", move |_: (), context: &Context| {
        let (first, last) = (ask.start(context, "first".to_string()), ask.start(context, "last".to_string()));
        Ok(format!("{}, {}", first.wait()?, last.wait()?))
    })
    .compile()
    .unwrap();
    let store = thread().store().clone();
    let by_ids = |ids: &[String]| {
        let answers = ids.iter().map(|id| (id.clone(), Value::from("by id")));
        Command::resume(Value::Map(answers.collect()))
    };
    let ask_both = |name: &str| {
        let thread = store.thread(name).unwrap();
        let waiting = graph.invoke(&thread, ()).unwrap();
        let [shown] = waiting.interrupts() else { panic!("{waiting:?}") };
        assert_eq!(shown.value, Value::from("first"), "as in the reference, the one that its caller came to");
        let error = graph.invoke(&thread, Command::resume("which?")).unwrap_err();
        let Some(RunError::SeveralInterrupts { ids }) = error.as_run() else { panic!("{error}") };
        assert!(ids.len() == 2 && ids.contains(&shown.id), "{error}");
        (thread, shown.id.clone(), ids.clone())
    };
    let (thread, shown, _) = ask_both("one by one");
    let waiting = graph.invoke(&thread, by_ids(&[shown])).unwrap();
    assert_eq!(waiting.interrupts()[0].value, Value::from("last"));
    let done = graph.invoke(&thread, Command::resume("by itself")).unwrap();
    assert_eq!(done.value().map(String::as_str), Some("first by id, last by itself"));
    let (thread, _, ids) = ask_both("all at once");
    let done = graph.invoke(&thread, by_ids(&ids)).unwrap();
    assert_eq!(done.value().map(String::as_str), Some("first by id, last by id"));
}

#[apply(each_backend)]
fn tasks_of_nodes_keep_their_results_too() {
    #[derive(State, Clone, Default)]
    struct Sum {
        #[channel(last)]
        total: i64,
    }
    let (log, thread) = (Log::default(), thread());
    let double = double(&log);
    let graph = StateGraph::<Sum>::new()
        .node("sum", move |s: &Sum, context: &Context| {
            let doubled = double.call(context, s.total)?;
            let more = context.interrupt("how much more?")?.as_int().unwrap_or(0);
            Ok(Sum::update().total(doubled + more))
        })
        .edge(START, "sum")
        .compile()
        .unwrap();
    graph.invoke(&thread, Sum::update().total(5)).unwrap();
    assert_eq!(graph.invoke(&thread, Command::resume(1)).unwrap().state().total, 11);
    assert_eq!(log.take(), ["double 5"]);
}

#[apply(each_backend)]
fn what_is_kept_and_what_is_returned_can_be_set_from_outside() {
    let thread = thread();
    let graph = Entrypoint::new("count", |n: i64, context: &Context| {
        let total = context.previous::<i64>()?.unwrap_or(0) + n;
        Ok(Final::new(-total, total))
    })
    .compile()
    .unwrap();
    assert_eq!(graph.invoke(&thread, 2).unwrap().value(), Some(&-2));
    graph.update_state(&thread, Final::new(0, 40), None).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().values.value(), Some(&0));
    assert_eq!(graph.invoke(&thread, 2).unwrap().value(), Some(&-42));
}

#[test]
fn updates_of_tasks_come_before_those_of_their_caller() {
    let double = double(&Log::default());
    let graph = Entrypoint::new("all", move |n: i64, context: &Context| {
        for i in 0..n {
            double.call(context, i)?;
        }
        Ok(n)
    })
    .compile()
    .unwrap();
    // More than the stream holds at once: a reader that is slow is waited for.
    let parts = graph.stream((), 600, &[StreamMode::Updates]).unwrap();
    let names: Vec<_> = parts
        .map(|part| match part.unwrap().data {
            StreamData::Updates(update) => (update.node.to_string(), update.writes.to_update().unwrap()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names.len(), 601);
    assert_eq!(names[599], ("double".to_string(), Value::from(1198)));
    assert_eq!(names[600], ("all".to_string(), Value::from(600)));
}

#[apply(each_backend)]
fn a_task_that_panics_fails_and_a_bad_name_is_refused() {
    let broken = Task::new("broken", |n: i64| -> NodeResult<i64> { panic!("no {n}") });
    let graph = Entrypoint::new("all", move |n: i64, context: &Context| {
        let error = broken.call(context, n).unwrap_err().to_string();
        Ok(error)
    })
    .compile()
    .unwrap();
    let done = graph.invoke(&thread(), 3).unwrap();
    assert_eq!(done.value().map(String::as_str), Some("task \"broken\" panicked: no 3"));
    let error = Entrypoint::new("a|b", |n: i64| Ok(n)).compile().unwrap_err();
    assert_eq!(error.problems.len(), 1);
}

#[apply(each_backend)]
fn the_next_run_finds_each_result_at_its_call_whatever_attempts_there_were() {
    let (thread, log) = (thread(), Log::default());
    let double = double(&log);
    let tries = Arc::new(AtomicUsize::new(0));
    let policy = RetryPolicy::new().initial_interval(std::time::Duration::ZERO);
    let graph = Entrypoint::new("main", move |n: i64, context: &Context| {
        let first = double.call(context, n)?;
        if tries.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err("the first attempt fails".into());
        }
        let second = double.call(context, n + 1)?;
        context.interrupt("?")?;
        Ok((first, second))
    })
    .retry(policy)
    .compile()
    .unwrap();
    graph.invoke(&thread, 1).unwrap();
    assert_eq!(log.take(), ["double 1", "double 2"]);
    let done = graph.invoke(&thread, Command::resume("go")).unwrap();
    assert_eq!(done.value(), Some(&(2, 4)), "each call is given its own result, whichever attempt made it");
    assert_eq!(log.take(), [""; 0], "all calls had ended");
}

/// A call that is stored with its caller is stored if the run interrupts, if it fails and if it ends, and runs once.
#[apply(each_backend)]
fn a_call_that_is_stored_with_its_caller_does_not_run_again() {
    for stops in ["interrupt", "failure", "nothing"] {
        let (log, fails) = (Log::default(), Arc::new(AtomicUsize::new(0)));
        let task = double(&log).store_with_caller();
        let main = Entrypoint::new("main", move |n: i64, context: &Context| {
            let doubled = task.call(context, n)?;
            match stops {
                "interrupt" => _ = context.interrupt("go on?")?,
                "failure" if fails.fetch_add(1, Ordering::SeqCst) == 0 => return Err("no luck".into()),
                _ => {}
            }
            Ok(doubled)
        })
        .compile()
        .unwrap();
        let thread = thread();
        let first = main.invoke(&thread, 4);
        let done = match stops {
            "interrupt" => main.invoke(&thread, Command::resume(true)).unwrap(),
            "failure" => main.run(&thread).invoke(annals_graph::Input::Continue).unwrap(),
            _ => first.unwrap(),
        };
        assert_eq!((done.value(), log.take()), (Some(&8), vec!["double 4".to_owned()]), "{stops}");
        let names: Vec<_> = thread.steps().unwrap().map(|step| step.unwrap().name.to_string()).collect();
        assert!(names.contains(&"double".to_owned()), "{stops}: {names:?}");
    }
}

/// A store in memory counts no commits.
#[test]
fn a_call_that_is_stored_with_its_caller_costs_no_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("threads.annals")).unwrap();
    let commits = |task: Task<i64, i64>, thread: &str| {
        let main = Entrypoint::new("main", move |n: i64, context: &Context| task.call(context, n)).compile().unwrap();
        let before = store.stats().unwrap().commits.commits;
        main.invoke(&store.thread(thread).unwrap(), 1).unwrap();
        store.stats().unwrap().commits.commits - before
    };
    let own = commits(double(&Log::default()), "own");
    assert_eq!(commits(double(&Log::default()).store_with_caller(), "with"), own - 1);
}
