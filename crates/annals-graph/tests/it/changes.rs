//! Tests programs that were changed between two runs of a thread: calls that were added in front, other arguments,
//! graphs with another version, and parts with versions of their own.

use annals::base::{Encoded, TaskId, WriteValue};
use annals::store::batch::{Batch, NewWrite, NewWrites};
use annals_graph::RunError;
use annals_graph::graph::{Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::{CallError, Task};
use macro_rules_attribute::apply;
use xxhash_rust::xxh3::xxh3_128;

use crate::backends::place;
use crate::functional::Log;

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn noted(log: &Log, name: &'static str) -> Task<i64, i64> {
    let log = log.clone();
    Task::new(name, move |n: i64| {
        log.add(format!("{name} {n}"));
        Ok(n * 10)
    })
}

/// The error of a call, as a node returned it.
fn call_error(error: &annals_graph::Error) -> &CallError {
    match error.as_run() {
        Some(RunError::Node { source, .. }) => source.downcast_ref().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[apply(each_backend)]
fn a_call_that_is_added_in_front_repeats_nothing() {
    let (log, thread) = (Log::default(), thread());
    let flow = |is_new: bool| {
        let tasks = ["audit", "reserve", "charge"].map(|name| noted(&log, name));
        let body = move |n: i64, context: &Context| {
            let [audit, reserve, charge] = &tasks;
            if is_new {
                audit.call(context, n)?;
            }
            let reserved = reserve.call(context, n)?;
            let charged = charge.call(context, reserved)?;
            let again = reserve.call(context, n + 1)?;
            context.interrupt("ship?")?;
            Ok(charged + again)
        };
        Entrypoint::new("order", body).compile().unwrap()
    };
    flow(false).invoke(&thread, 1).unwrap();
    assert_eq!(log.take(), ["reserve 1", "charge 10", "reserve 2"]);
    let done = flow(true).invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(log.take(), ["audit 1"]);
    assert_eq!(done.value(), Some(&120));
}

#[apply(each_backend)]
fn a_call_inside_a_called_task_is_found_behind_one_that_was_added() {
    let (log, thread) = (Log::default(), thread());
    let flow = |is_new: bool| {
        let (audit, inner) = (noted(&log, "audit"), noted(&log, "inner"));
        let outer = Task::new("outer", move |n: i64, context: &Context| {
            let result = inner.call(context, n)?;
            context.interrupt("go on?")?;
            Ok(result)
        });
        let body = move |n: i64, context: &Context| {
            if is_new {
                audit.call(context, n)?;
            }
            outer.call(context, n)
        };
        Entrypoint::new("order", body).compile().unwrap()
    };
    flow(false).invoke(&thread, 1).unwrap();
    assert_eq!(log.take(), ["inner 1"]);
    assert_eq!(flow(true).invoke(&thread, Command::resume("yes")).unwrap().value(), Some(&10));
    assert_eq!(log.take(), ["audit 1"]);
}

#[apply(each_backend)]
fn changed_arguments_of_a_stored_result_are_an_error_unless_they_are_allowed() {
    let (log, thread) = (Log::default(), thread());
    let flow = |n: i64, allowed: bool| {
        let charge = noted(&log, "charge");
        let charge = if allowed { charge.allow_changed_arguments() } else { charge };
        let body = move |_: i64, context: &Context| {
            let charged = charge.call(context, n)?;
            context.interrupt("ship?")?;
            Ok(charged)
        };
        // The error is not retried.
        Entrypoint::new("order", body).retry(RetryPolicy::new()).compile().unwrap()
    };
    flow(5, false).invoke(&thread, 0).unwrap();
    let error = flow(7, false).invoke(&thread, Command::resume("yes")).unwrap_err();
    assert_eq!(call_error(&error), &CallError::ChangedArguments { task: "charge".into(), number: 1 });
    let error = flow(7, false).invoke(&thread, Input::Continue).unwrap_err();
    assert!(error.to_string().contains("task \"charge\" was given other arguments in call 1"), "{error}");
    let done = flow(7, false).run(&thread).allow_changed_graph(true).invoke(Command::resume("yes")).unwrap();
    assert_eq!(done.value(), Some(&50));
    assert_eq!(log.take(), ["charge 5"]);
}

#[apply(each_backend)]
fn a_task_that_failed_may_be_given_other_arguments() {
    let (log, thread) = (Log::default(), thread());
    let flow = |n: i64| {
        let log = log.clone();
        let charge = Task::new("charge", move |n: i64| {
            log.add(format!("charge {n}"));
            if n < 0 { Err("nothing to charge".into()) } else { Ok(n) }
        });
        Entrypoint::new("order", move |_: i64, context: &Context| charge.call(context, n)).compile().unwrap()
    };
    flow(-5).invoke(&thread, 0).unwrap_err();
    assert_eq!(flow(5).invoke(&thread, Input::Continue).unwrap().value(), Some(&5));
    assert_eq!(log.take(), ["charge -5", "charge 5"]);
}

#[apply(each_backend)]
fn a_result_under_the_id_of_an_earlier_version_is_found() {
    let (log, thread) = (Log::default(), thread());
    let ids = std::sync::Arc::new(std::sync::Mutex::new(None));
    let flow = |calls: bool| {
        let (double, ids) = (noted(&log, "double"), std::sync::Arc::clone(&ids));
        let body = move |n: i64, context: &Context| {
            *ids.lock().unwrap() = Some((context.checkpoint().unwrap(), context.namespace(), context.step()));
            let doubled = if calls { double.call(context, n)? } else { 0 };
            context.interrupt("?")?;
            Ok(doubled)
        };
        Entrypoint::new("main", body).compile().unwrap()
    };
    flow(false).invoke(&thread, 1).unwrap();
    // The record of the first call as an older version stored it: its id is a hash of the place of its caller and its
    // number.
    let (checkpoint, around, step) = ids.lock().unwrap().take().unwrap();
    let mut place = checkpoint.as_bytes().to_vec();
    for part in [&*around, "|double", &step.to_string(), "double__pregel_push~__pregel_pull, main0"] {
        place.extend_from_slice(part.as_bytes());
    }
    let path = "~__pregel_push, ~__pregel_pull, main, 0000000000, 0000000001";
    let result = NewWrite::new(0, "__return__", WriteValue::One(Encoded::encode(&42).unwrap().into()));
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(checkpoint));
    batch.writes =
        vec![NewWrites::new(checkpoint, TaskId::from_bytes(xxh3_128(&place).to_be_bytes()), path).with(vec![result])];
    thread.store().commit(&batch).unwrap();

    assert_eq!(flow(true).invoke(&thread, Command::resume("yes")).unwrap().value(), Some(&42));
    assert_eq!(log.take(), Vec::<String>::new());
}

#[apply(each_backend)]
fn an_unfinished_run_is_not_continued_by_a_graph_with_another_version_or_shape() {
    let thread = thread();
    let flow = |version: Option<&str>, more: &str| {
        let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
            .name("order")
            .node("ask", |_: &annals::state::DynState, context: &Context| {
                Ok(DynUpdate::new().set("n", context.interrupt("?")?))
            })
            .node(more, |_: &annals::state::DynState| Ok(()))
            .edge(START, "ask")
            .edge("ask", more);
        match version {
            Some(version) => graph.version(version),
            None => graph,
        }
        .compile()
        .unwrap()
    };
    let input = || DynUpdate::new().set("n", 1);
    flow(Some("1"), "ship").invoke(&thread, input()).unwrap();
    let parts_of = |graph: &CompiledGraph<_>| {
        let error = graph.invoke(&thread, Command::resume(2)).unwrap_err();
        match error.as_run() {
            Some(RunError::GraphChanged { stored, parts, .. }) => (stored.clone(), parts.clone()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(parts_of(&flow(Some("2"), "ship")), ("1".into(), vec!["version"]));
    assert_eq!(parts_of(&flow(Some("1"), "send")), ("1".into(), vec!["nodes", "edges"]));
    // A graph without a version continues anything, and a new input begins a new run.
    let state = flow(None, "ship").get_state(&thread).unwrap();
    assert_eq!(state.next, ["ask"]);
    flow(Some("2"), "ship").invoke(&thread, input()).unwrap();
    assert_eq!(parts_of(&flow(Some("1"), "ship")), ("2".into(), vec!["version"]));
    flow(None, "ship").invoke(&thread, Command::resume(3)).unwrap();
    assert_eq!(thread.head().unwrap().unwrap().get("n").unwrap(), Some(Value::from(3)));
}

#[apply(each_backend)]
fn the_version_of_a_long_run_is_found() {
    let thread = thread();
    let flow = |version: &str| {
        StateGraph::with_schema(DynSchema::new().last("n").build())
            .version(version)
            .node("add", |state: &annals::state::DynState, context: &Context| {
                let n = state.get("n").as_int().unwrap_or(0);
                if n == 100 {
                    context.interrupt("?")?;
                }
                Ok(DynUpdate::new().set("n", n + 1))
            })
            .edge(START, "add")
            .branch(
                "add",
                |state: &annals::state::DynState| if state.get("n").as_int() < Some(105) { "add" } else { END },
            )
            .compile()
            .unwrap()
    };
    flow("1").invoke(&thread, DynUpdate::new().set("n", 0)).unwrap();
    let marked = thread.history().unwrap().filter(|at| {
        let metadata = at.as_ref().unwrap().record().metadata.clone();
        metadata.is_some_and(|metadata| metadata.contains("graph_code"))
    });
    assert_eq!(marked.count(), 3, "the first checkpoint and each 64th");
    assert!(matches!(
        flow("2").invoke(&thread, Command::resume(1)).unwrap_err().as_run(),
        Some(RunError::GraphChanged { .. })
    ));
    let done = flow("2").run(&thread).allow_changed_graph(true).invoke(Command::resume(1)).unwrap();
    assert_eq!(done.state().get("n"), &Value::from(105));
}

#[apply(each_backend)]
fn a_task_gets_the_version_that_it_began_with() {
    let store = place();
    let flow = |versions: Option<std::ops::RangeInclusive<u32>>| {
        let reserve = noted(&Log::default(), "reserve");
        let body = move |n: i64, context: &Context| {
            let mut seen = Vec::new();
            if let Some(versions) = &versions {
                seen.push(context.version("before", versions.clone())?);
            }
            reserve.call(context, n)?;
            if let Some(versions) = &versions {
                seen.push(context.version("between", versions.clone())?);
            }
            context.interrupt("?")?;
            if let Some(versions) = &versions {
                seen.push(context.version("after", versions.clone())?);
                seen.push(context.version("before", versions.clone())?);
            }
            Ok(seen)
        };
        Entrypoint::new("main", body).compile().unwrap()
    };
    let (old, new) = (store.thread("old").unwrap(), store.thread("new").unwrap());
    flow(None).invoke(&old, 1).unwrap();
    flow(Some(1..=2)).invoke(&new, 1).unwrap();
    // The run of the old program had stored its call and its interrupt.
    let done = flow(Some(1..=2)).invoke(&old, Command::resume("yes")).unwrap();
    assert_eq!(done.value(), Some(&vec![1, 1, 2, 1]));
    // A third version of the program: the run of the second one stays with it.
    let done = flow(Some(1..=3)).invoke(&new, Command::resume("yes")).unwrap();
    assert_eq!(done.value(), Some(&vec![2, 2, 3, 2]));

    let third = store.thread("third").unwrap();
    flow(Some(1..=1)).invoke(&third, 1).unwrap();
    let error = flow(Some(2..=3)).invoke(&third, Command::resume("yes")).unwrap_err();
    let CallError::UnsupportedVersion { stored, oldest, .. } = call_error(&error) else { panic!("{error}") };
    assert_eq!((*stored, *oldest), (1, 2));
}

/// Returns the bytes of a file after `write`, and how many of them each of `count` things takes.
fn bytes_each(count: usize, write: impl FnOnce(&Store)) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let empty = {
        drop(Store::open(&path).unwrap());
        std::fs::metadata(&path).unwrap().len()
    };
    let store = Store::open(&path).unwrap();
    write(&store);
    store.compact().unwrap();
    drop(store);
    (std::fs::metadata(&path).unwrap().len() - empty) as usize / count
}

#[test]
fn a_version_takes_at_most_three_percent_of_a_turn() {
    const TURNS: usize = 150;
    let turns = |version: Option<&str>| {
        let graph = StateGraph::with_schema(DynSchema::new().messages("messages").build())
            .node("model", |_: &annals::state::DynState| {
                Ok(DynUpdate::new().set("messages", Message::ai("a word ".repeat(71)).to_map()))
            })
            .edge(START, "model");
        let graph = match version {
            Some(version) => graph.version(version),
            None => graph,
        };
        let graph = graph.compile().unwrap();
        bytes_each(TURNS, |store| {
            let thread = store.thread("t").unwrap();
            for _ in 0..TURNS {
                graph.invoke(&thread, DynUpdate::new().set("messages", Message::human("go on").to_map())).unwrap();
            }
        })
    };
    let (without, with) = (turns(None), turns(Some("2026-11")));
    println!("bytes of a turn: {without} without a version, {with} with one");
    assert!(with * 100 <= without * 103, "{with} bytes of a turn, and {without} without a version");
}

#[test]
fn a_workflow_of_five_steps_takes_less_than_two_kilobytes() {
    const FLOWS: usize = 100;
    let step = noted(&Log::default(), "step");
    let flow = Entrypoint::new("flow", move |n: i64, context: &Context| {
        (0..5).try_fold(n, |n, _| step.call(context, n % 100))
    })
    .compile()
    .unwrap();
    let bytes = bytes_each(FLOWS, |store| {
        for n in 0..FLOWS {
            flow.invoke(&store.thread(format!("flow-{n}")).unwrap(), 1).unwrap();
        }
    });
    println!("bytes of a workflow of five steps: {bytes}");
    assert!(bytes <= 2_155, "{bytes} bytes");
}
