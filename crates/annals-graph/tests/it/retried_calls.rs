//! Tests that a retry repeats no call that has ended, whichever policy makes it: of the entrypoint, of a node, or of a
//! task in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals::state::DynState;
use annals_graph::graph::{Entry, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::{CallError, Task};
use annals_graph::{Durability, RunError, block_on};
use macro_rules_attribute::apply;
use parking_lot::Mutex;

use crate::backends::new_thread;

fn quick(attempts: u32) -> RetryPolicy {
    RetryPolicy::new().max_attempts(attempts).initial_interval(Duration::from_micros(10)).jitter(false)
}

/// The calls of tasks that ran: their names, their arguments and their keys.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Vec<(String, i64, String)>>>);

impl Ran {
    fn note(&self, context: &Context, n: i64) {
        self.0.lock().push((context.node().to_owned(), n, context.step_key()));
    }

    fn task(&self, name: &'static str) -> Task<i64, i64> {
        let ran = self.clone();
        Task::new(name, move |n: i64, context: &Context| {
            ran.note(context, n);
            Ok(n * 10)
        })
    }

    /// Returns the names and arguments, in the order of the names.
    fn take(&self) -> Vec<(String, i64)> {
        let mut ran: Vec<_> = std::mem::take(&mut *self.0.lock()).into_iter().map(|(name, n, _)| (name, n)).collect();
        ran.sort();
        ran
    }
}

/// Counts down: returns an error until it is at zero.
#[derive(Clone, Default)]
struct Fails(Arc<AtomicUsize>);

impl Fails {
    fn times(times: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(times)))
    }

    fn fail(&self) -> NodeResult<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map_or(Ok(()), |left| Err(format!("{left} failures are left").into()))
    }
}

type Flow = CompiledGraph<Entry<i64, i64>>;

fn run(flow: &Flow, thread: Option<&Thread>, durability: Durability, awaited: bool) -> Option<i64> {
    let run = match thread {
        Some(thread) => flow.run(thread),
        None => flow.run(()),
    };
    let run = run.durability(durability);
    let done = if awaited { block_on(run.ainvoke(1)) } else { run.invoke(1) };
    done.unwrap().value().copied()
}

#[apply(each_backend)]
fn an_entrypoint_that_is_tried_again_repeats_no_call_that_ended() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for (awaited, is_stored) in [(false, true), (true, true), (false, false), (true, false)] {
            let (ran, fails) = (Ran::default(), Fails::times(2));
            let (charge, ship) = (ran.task("charge"), ran.task("ship"));
            let body = move |n: i64, context: &Context| {
                let charged = charge.call(context, n)?;
                let started = [ship.start(context, 7), ship.start(context, 8)];
                fails.fail()?;
                let [first, second] = started.map(|started| started.wait());
                Ok(charged + first? + second?)
            };
            let flow = Entrypoint::new("book", body).retry(quick(4)).compile().unwrap();
            let thread = is_stored.then(new_thread);
            assert_eq!(run(&flow, thread.as_ref(), durability, awaited), Some(160));
            let want = [("charge", 1), ("ship", 7), ("ship", 8)].map(|(name, n)| (name.to_owned(), n));
            assert_eq!(ran.take(), want, "{durability:?} {awaited} {is_stored}");
        }
    }
}

#[apply(each_backend)]
fn a_node_that_is_tried_again_repeats_no_call_that_ended() {
    let (ran, fails, thread) = (Ran::default(), Fails::times(2), new_thread());
    let (left, right) = (ran.task("left"), ran.task("right"));
    let node = move |_: &DynState, context: &Context| {
        let started = [left.start(context, 1), right.start(context, 2)];
        let [left, right] = started.map(|started| started.wait());
        fails.fail()?;
        Ok(DynUpdate::new().set("n", left? + right?))
    };
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .node_with("both", node, NodeOptions::new().retry(quick(4)))
        .edge(START, "both")
        .compile()
        .unwrap();
    let done = graph.invoke(&thread, DynUpdate::new().set("n", 0)).unwrap();
    assert_eq!(done.state().get("n"), &Value::from(30));
    assert_eq!(ran.take(), [("left".to_owned(), 1), ("right".to_owned(), 2)]);
}

#[apply(each_backend)]
fn a_call_that_failed_runs_again_under_its_key_and_repeats_nothing_below_it() {
    for awaited in [false, true] {
        let (ran, thread) = (Ran::default(), new_thread());
        let (leaf, fails) = (ran.task("leaf"), Fails::times(2));
        let noted = ran.clone();
        // It has no policy of its own: `around` tries it again.
        let middle = Task::new("middle", move |n: i64, context: &Context| {
            noted.note(context, n);
            let below = leaf.call(context, n)?;
            fails.fail()?;
            Ok(below + 1)
        });
        let around = Task::new("around", move |n: i64, context: &Context| middle.call(context, n)).retry(quick(5));
        let body = move |n: i64, context: &Context| around.call(context, n);
        let flow = Entrypoint::new("book", body).compile().unwrap();
        assert_eq!(run(&flow, Some(&thread), Durability::Sync, awaited), Some(11));
        let keys: Vec<String> = ran.0.lock().iter().filter(|ran| ran.0 == "middle").map(|ran| ran.2.clone()).collect();
        assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(ran.take().iter().filter(|ran| ran.0 == "leaf").count(), 1);
        // The results of other calls stay those of their own.
        let steps = thread.head().unwrap().unwrap();
        assert_eq!(steps.next().count(), 0);
    }
}

#[apply(each_backend)]
fn a_later_run_repeats_no_call_of_any_attempt() {
    let (ran, fails, thread) = (Ran::default(), Fails::times(2), new_thread());
    let (charge, ship, thanks) = (ran.task("charge"), ran.task("ship"), ran.task("thanks"));
    let tries = fails.clone();
    let body = move |n: i64, context: &Context| {
        let charged = charge.call(context, n)?;
        // The first attempt ends here, the second one after the next call.
        if tries.0.load(Ordering::SeqCst) == 2 {
            tries.fail()?;
        }
        let shipped = ship.call(context, charged)?;
        tries.fail()?;
        thanks.call(context, shipped)
    };
    let flow = Entrypoint::new("book", body).retry(quick(2)).compile().unwrap();
    flow.invoke(&thread, 1).unwrap_err();
    assert_eq!(ran.take(), [("charge".to_owned(), 1), ("ship".to_owned(), 10)]);
    thread.store().clear_head_cache();
    assert_eq!(flow.invoke(&thread, Input::Continue).unwrap().value(), Some(&1_000));
    assert_eq!(ran.take(), [("thanks".to_owned(), 100)]);
}

#[apply(each_backend)]
fn a_retry_with_other_arguments_is_noticed() {
    for is_allowed in [false, true] {
        let (ran, thread) = (Ran::default(), new_thread());
        let charge = ran.task("charge");
        let charge = if is_allowed { charge.allow_changed_arguments() } else { charge };
        let body = move |n: i64, context: &Context| {
            let charged = charge.call(context, n + i64::from(context.attempt()))?;
            if context.attempt() == 1 { Err("busy".into()) } else { Ok(charged) }
        };
        let flow = Entrypoint::new("book", body).retry(quick(2)).compile().unwrap();
        for run in [flow.run(()), flow.run(&thread)] {
            match (run.invoke(1), is_allowed) {
                (Ok(done), true) => assert_eq!(done.value(), Some(&20), "the result of the first attempt"),
                (Err(error), false) => {
                    let Some(RunError::Node { source, .. }) = error.as_run() else { panic!("{error}") };
                    let changed = source.downcast_ref::<CallError>();
                    assert!(matches!(changed, Some(CallError::ChangedArguments { number: 1, .. })), "{error}");
                }
                (result, _) => panic!("{result:?}"),
            }
            assert_eq!(ran.take(), [("charge".to_owned(), 2)]);
        }
    }
}

#[apply(each_backend)]
fn the_writes_of_a_call_count_once_over_the_attempts_of_its_caller() {
    let (fails, thread) = (Fails::times(2), new_thread());
    let say = Task::new("say", |n: i64, context: &Context| {
        context.push_message(Message::ai(format!("call {n}")).with_id(format!("id {n}")))?;
        Ok(n)
    });
    let node = move |_: &DynState, context: &Context| {
        say.call(context, 1)?;
        say.call(context, 2)?;
        fails.fail()?;
        Ok(DynUpdate::new())
    };
    let graph = StateGraph::with_schema(DynSchema::new().messages("messages").build())
        .node_with("talk", node, NodeOptions::new().retry(quick(4)))
        .edge(START, "talk")
        .compile()
        .unwrap();
    let mut shown = 0;
    let mut stream = graph.stream(&thread, DynUpdate::new(), &[StreamMode::Messages]).unwrap();
    (&mut stream).for_each(|part| shown += usize::from(matches!(part.unwrap().data, StreamData::Message(_))));
    let messages = stream.outcome().unwrap().state().to_map()["messages"].as_list().unwrap().len();
    assert_eq!((messages, shown), (2, 2));
}

#[apply(each_backend)]
fn a_loop_and_other_runs_make_calls_of_their_own() {
    let (ran, thread) = (Ran::default(), new_thread());
    let (add, fails) = (ran.task("add"), Fails::default());
    let trips = fails.clone();
    let node = move |state: &DynState, context: &Context| {
        let n = state.get("n").as_int().unwrap_or(0);
        add.call(context, n)?;
        trips.fail()?;
        Ok(DynUpdate::new().set("n", n + 1))
    };
    let again = |state: &DynState| if state.get("n").as_int() < Some(3) { "add" } else { END };
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .node_with("add", node, NodeOptions::new().retry(quick(4)))
        .edge(START, "add")
        .branch("add", again)
        .compile()
        .unwrap();
    for run in [graph.run(()), graph.run(&thread), graph.run(&thread)] {
        fails.0.store(2, Ordering::SeqCst);
        run.invoke(DynUpdate::new().set("n", 0)).unwrap();
        assert_eq!(ran.take(), [0, 1, 2].map(|n| ("add".to_owned(), n)));
    }
}

#[apply(each_backend)]
fn a_call_that_is_made_again_begins_its_subgraph_as_before() {
    for awaited in [false, true] {
        let (ran, fails, thread) = (Ran::default(), Fails::times(2), new_thread());
        let (first, noted) = (ran.task("first"), ran.clone());
        let double = move |state: &DynState, context: &Context| {
            noted.note(context, 0);
            Ok(DynUpdate::new().set("n", state.get("n").as_int().unwrap_or(0) * 2))
        };
        let inside = StateGraph::with_schema(DynSchema::new().last("n").build())
            .node("double", double)
            .node("trip", move |_: &DynState| fails.fail())
            .edge(START, "double")
            .edge("double", "trip")
            .compile()
            .unwrap();
        let called = Task::new("called", move |n: i64, context: &Context| {
            let done = inside.invoke(context, DynUpdate::new().set("n", n))?;
            Ok(done.state().get("n").as_int().unwrap_or(0))
        });
        let node = move |_: &DynState, context: &Context| {
            let n = first.call(context, 1)?;
            Ok(DynUpdate::new().set("n", called.call(context, n)?))
        };
        let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
            .node_with("around", node, NodeOptions::new().retry(quick(4)))
            .edge(START, "around")
            .compile()
            .unwrap();
        let input = DynUpdate::new().set("n", 0);
        let done = if awaited { block_on(graph.ainvoke(&thread, input)) } else { graph.invoke(&thread, input) };
        assert_eq!(done.unwrap().state().get("n"), &Value::from(20));
        let count = |name: &str| ran.0.lock().iter().filter(|ran| ran.0 == name).count();
        assert_eq!((count("first"), count("double")), (1, 3));
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}
