//! One lost commit at a time, on small programs.

use std::sync::Arc;

use annals::Durability;
use annals::prelude::*;
use annals::store::Backend;

use super::disk::{Crash, Disk};

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

/// Runs the program until it has ended, whatever happens. Returns what it came to and how many commits there were.
fn end(durability: Durability, faults: Vec<u64>, crash: Option<Crash>) -> (Vec<i64>, u64) {
    let disk = Disk::new(crash, faults);
    let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Backend>, OpenOptions::new());
    let (program, thread) = (program(), store.thread("t").unwrap());
    for _ in 0..10 {
        let input = match program.get_state(&thread) {
            Ok(state) if state.step.is_none() => annals::IntoInput::<Entry<i64, Vec<i64>>>::into_input(1),
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
    for durability in [Durability::Sync, Durability::Async] {
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
