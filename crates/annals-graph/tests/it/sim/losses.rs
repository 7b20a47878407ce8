//! One lost commit at a time, on small programs.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use annals::base::ThreadId;
use annals::state::DynState;
use annals::store::log::{Log, LogExt};
use annals_graph::graph::{Entry, Entrypoint, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{Durability, Run, block_on};

use super::disk::{Crash, Disk};
use crate::line_state::EVERY_WAY;

/// A program that calls a task three times. A graph inside it keeps its state: it counts. Between the calls the program
/// asks.
fn program() -> CompiledGraph<Entry<i64, Vec<i64>>> {
    let add = |old: Value, new: Value| Ok::<_, String>((old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)).into());
    let inner = StateGraph::with_schema(DynSchema::new().reduce("n", add).build())
        .node("one", |_: &DynState| Ok(DynUpdate::new().set("n", 10)))
        .node("two", |_: &DynState| Ok(DynUpdate::new().set("n", 100)))
        .edge(START, "one")
        .edge("one", "two")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let count = Task::new("count", move |n: i64, context: &Context| {
        let done = inner.invoke(context, DynUpdate::new().set("n", n))?;
        Ok(done.state().get("n").as_int().unwrap_or(0))
    });
    let main = move |n: i64, context: &Context| {
        let mut counts = vec![count.call(context, n)?, count.call(context, n)?];
        context.interrupt("go on?")?;
        counts.push(count.call(context, n)?);
        Ok(counts)
    };
    Entrypoint::new("main", main).compile().unwrap()
}

/// Runs the program until it has ended, through all faults. Returns its result and the number of commits.
fn end(durability: Durability, faults: Vec<u64>, crash: Option<Crash>) -> (Vec<i64>, u64) {
    let disk = Disk::new(crash, faults);
    let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, OpenOptions::new());
    let (program, thread) = (program(), store.thread("t").unwrap());
    for _ in 0..10 {
        let input = match program.get_state(&thread) {
            Ok(state) if state.step.is_none() => annals_graph::IntoInput::<Entry<i64, Vec<i64>>, _>::into_input(1),
            Ok(state) if !state.interrupts.is_empty() => Input::Command(Command::resume("yes")),
            _ => Input::Continue,
        };
        let outcome = program.run(&thread).durability(durability).invoke(input);
        if disk.revive() {
            store.clear_head_cache();
        } else if let Ok(outcome) = outcome
            && let (true, Some(value)) = (outcome.is_done(), outcome.value())
        {
            return (value.clone(), disk.writes());
        }
    }
    panic!("it comes to no end");
}

#[test]
fn what_a_task_returned_counts_only_with_what_a_graph_inside_it_stored() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let (calm, writes) = end(durability, Vec::new(), None);
        assert_eq!(calm, [111, 222, 333]);
        for at in 0..writes {
            assert_eq!(end(durability, vec![at], None).0, calm, "{durability:?}: commit {at} was refused");
            for kept in [false, true] {
                let crash = Some(Crash { at, kept });
                assert_eq!(end(durability, Vec::new(), crash).0, calm, "{durability:?}: a crash at {at} ({kept})");
                assert_eq!(
                    end(durability, vec![at + 1], crash).0,
                    calm,
                    "{durability:?}: a crash at {at}, and a refusal"
                );
            }
        }
    }
}

/// A graph that calls another one three times, which has a third one as a node; both of these keep their state and
/// count. The innermost one asks in the second lap. In the second and the third lap the node that calls fails
/// afterwards, once.
fn turns() -> CompiledGraph<DynState> {
    let add = |old: Value, new: Value| Ok::<_, String>((old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)).into());
    let counting = || StateGraph::with_schema(DynSchema::new().reduce("n", add).last("lap").build());
    let innermost = counting()
        .node("ask", |state: &DynState, context: &Context| {
            let asks = state.get("lap").as_int() == Some(1);
            let answer = if asks { context.interrupt("go on?")?.as_int().unwrap_or(0) } else { 0 };
            Ok(DynUpdate::new().set("n", 1 + answer))
        })
        .edge(START, "ask")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let middle = counting()
        .node("ten", |_: &DynState| Ok(DynUpdate::new().set("n", 10)))
        .node("innermost", innermost)
        .edge(START, "ten")
        .edge("ten", "innermost")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let failed = AtomicU32::new(0);
    let turn = move |state: &DynState, context: &Context| {
        let lap = state.get("laps").as_int().unwrap_or(0);
        let done = middle.invoke(context, DynUpdate::new().set("lap", lap).set("n", 100))?;
        if failed.load(Ordering::Relaxed) < lap as u32 {
            failed.fetch_add(1, Ordering::Relaxed);
            return Err("not yet".into());
        }
        Ok(DynUpdate::new().set("laps", 1).set("counts", Value::List(vec![done.state().get("n").clone()])))
    };
    StateGraph::with_schema(DynSchema::new().reduce("laps", add).append("counts").build())
        .node_with(
            "turn",
            turn,
            NodeOptions::new().retry(RetryPolicy::new().initial_interval(Duration::ZERO).jitter(false)),
        )
        .branch("turn", |state: &DynState| if state.get("laps").as_int() == Some(3) { END } else { "turn" })
        .edge(START, "turn")
        .compile()
        .unwrap()
}

/// Runs on one of the drivers. One that only awaits its commits waits for the disk to write.
fn run_on(driver: usize, disk: &Disk, run: Run<'_, DynState>, input: Input) -> Result<Outcome<DynState>> {
    if driver == 0 {
        return run.invoke(input);
    }
    let mut run = pin!(run.ainvoke(input));
    block_on(poll_fn(|waiting| {
        let polled = run.as_mut().poll(waiting);
        if polled.is_pending() {
            disk.flush();
        }
        polled
    }))
}

#[test]
fn a_run_that_stores_nothing_before_it_ends_makes_one_commit() {
    let mut ends = Vec::new();
    for (way, head_cache_bytes) in EVERY_WAY.into_iter().flat_map(|way| [(way, 64 << 20), (way, 0)]) {
        let (driver, durability) = way;
        let disk = Disk::new(None, Vec::new());
        let options = OpenOptions::new().head_cache_bytes(head_cache_bytes);
        let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, options);
        let (graph, thread) = (turns(), store.thread("t").unwrap());
        let run = |input| run_on(driver, &disk, graph.run(&thread).durability(durability), input).unwrap();
        let asked = run(annals_graph::IntoInput::<DynState, _>::into_input(DynUpdate::new().set("laps", 0)));
        assert_eq!((asked.is_done(), asked.interrupts().len()), (false, 1), "{way:?}");
        if durability == Durability::Exit {
            assert_eq!(disk.writes(), 1, "{way:?}: the run that asks");
        }
        let done = run(Input::Command(Command::resume(1000)));
        assert!(done.is_done(), "{way:?}");
        if durability == Durability::Exit {
            assert_eq!(disk.writes(), 2, "{way:?}: the run that is answered");
        }
        assert!(store.check().unwrap().problems.is_empty());
        ends.push((way, head_cache_bytes, done.state().to_map()));
    }
    let (_, _, first) = &ends[0];
    assert!(ends.iter().all(|(_, _, end)| end == first), "{ends:#?}");
}

#[test]
fn a_run_that_is_refused_or_dropped_stores_nothing_of_the_graphs_inside() {
    let empty = |disk: &Disk| {
        assert_eq!((disk.waiting(), disk.namespaces(&ThreadId::new("t").unwrap()).unwrap()), (0, Vec::new()));
    };
    for driver in [0, 1] {
        let disk = Disk::new(None, vec![0]);
        let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, OpenOptions::new());
        let (graph, thread) = (turns(), store.thread("t").unwrap());
        let run = || graph.run(&thread).durability(Durability::Exit);
        let input = || annals_graph::IntoInput::<DynState, _>::into_input(DynUpdate::new().set("laps", 0));
        run_on(driver, &disk, run(), input()).unwrap_err();
        empty(&disk);
        let mut stream = run().stream(input(), &[StreamMode::Updates]).unwrap();
        assert!(stream.next().is_some(), "the first turn has ended");
        drop(stream);
        empty(&disk);
        assert_eq!(run_on(driver, &disk, run(), input()).unwrap().interrupts().len(), 1);
        assert_eq!(disk.writes(), 2, "one was refused");
    }
}

#[test]
fn a_graph_that_was_answered_does_not_ask_again_when_its_task_does() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let inner = StateGraph::with_schema(DynSchema::new().last("heard").build())
            .node("ask", |_: &DynState, context: &Context| {
                Ok(DynUpdate::new().set("heard", context.interrupt("inside?")?))
            })
            .edge(START, "ask")
            .compile()
            .unwrap();
        let both = move |_: &DynState, context: &Context| {
            let heard = inner.invoke(context, DynUpdate::new())?.state().get("heard").clone();
            Ok(DynUpdate::new().set("heard", Value::List(vec![heard, context.interrupt("outside?")?])))
        };
        let graph = StateGraph::with_schema(DynSchema::new().last("heard").build());
        let graph = graph.node("both", both).edge(START, "both").compile().unwrap();
        let thread = Store::memory().thread("t").unwrap();
        let run = |input| graph.run(&thread).durability(durability).invoke(input).unwrap();
        let asked =
            |outcome: &Outcome<DynState>| outcome.interrupts().iter().map(|q| q.value.clone()).collect::<Vec<_>>();
        let first = run(annals_graph::IntoInput::<DynState, _>::into_input(DynUpdate::new()));
        assert_eq!(asked(&first), [Value::from("inside?")], "{durability:?}");
        assert_eq!(asked(&run(Input::Command(Command::resume("a")))), [Value::from("outside?")], "{durability:?}");
        let done = run(Input::Command(Command::resume("b")));
        assert!(done.is_done(), "{durability:?}: {:?}", asked(&done));
        assert_eq!(done.state().get("heard"), &Value::List(vec!["a".into(), "b".into()]), "{durability:?}");
    }
}

#[test]
fn a_graph_that_comes_to_the_place_of_another_one_finds_what_that_has_left() {
    let add = |old: Value, new: Value| Ok::<_, String>((old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)).into());
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let counting = |by: i64| {
            StateGraph::with_schema(DynSchema::new().reduce("n", add).build())
                .node("count", move |_: &DynState| Ok(DynUpdate::new().set("n", by)))
                .edge(START, "count")
                .persistence(Persistence::PerThread)
                .compile()
                .unwrap()
        };
        let graphs = [counting(1), counting(10)];
        let turn = move |state: &DynState, context: &Context| {
            let lap = state.get("laps").as_int().unwrap_or(0);
            let done = graphs[lap as usize % 2].invoke(context, DynUpdate::new().set("n", 100))?;
            Ok(DynUpdate::new().set("laps", 1).set("counts", Value::List(vec![done.state().get("n").clone()])))
        };
        let graph = StateGraph::with_schema(DynSchema::new().reduce("laps", add).append("counts").build())
            .node("turn", turn)
            .branch("turn", |state: &DynState| if state.get("laps").as_int() == Some(3) { END } else { "turn" })
            .edge(START, "turn")
            .compile()
            .unwrap();
        let store = Store::memory();
        let thread = store.thread("t").unwrap();
        let done = graph.run(&thread).durability(durability).invoke(DynUpdate::new().set("laps", 0)).unwrap();
        let counts: Vec<_> = done.state().list("counts").unwrap().iter().cloned().collect();
        assert_eq!(counts, [Value::from(101), 211.into(), 312.into()], "{durability:?}");
        assert!(store.check().unwrap().problems.is_empty());
    }
}

#[test]
fn a_run_with_a_key_finds_the_commits_of_a_dropped_run_with_that_key() {
    let add = |old: Value, new: Value| Ok::<_, String>((old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)).into());
    for durability in [Durability::Sync, Durability::Async] {
        let disk = Disk::new(None, Vec::new());
        let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, OpenOptions::new());
        let waits = Arc::new(AtomicBool::new(true));
        let waiting = Arc::clone(&waits);
        let graph = StateGraph::with_schema(DynSchema::new().reduce("n", add).build())
            .node("wait", move |_: Arc<DynState>, _: Context| {
                let waits = waiting.load(Ordering::Relaxed);
                async move {
                    if waits {
                        std::future::pending::<()>().await;
                    }
                    Ok(DynUpdate::new())
                }
            })
            .edge(START, "wait")
            .compile()
            .unwrap();
        let thread = store.thread("t").unwrap();
        let run = || graph.run(&thread).durability(durability).idempotency_key("pay");
        let input = || annals_graph::IntoInput::<DynState, _>::into_input(DynUpdate::new().set("n", 1));
        let mut dropped = Box::pin(run().ainvoke(input()));
        assert!(dropped.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        assert_eq!(disk.waiting(), 1, "the input is on its way to the disk");
        drop(dropped);
        waits.store(false, Ordering::Relaxed);
        let done = run_on(0, &disk, run(), input()).unwrap();
        assert_eq!(done.state().get("n").as_int(), Some(1), "{durability:?}: the input is given once");
    }
}
