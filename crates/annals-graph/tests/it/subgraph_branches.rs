//! Branches of a run with subgraphs that keep their state, on both backends: an edit inside a subgraph, and forks of
//! runs that are saved at their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::history::{PrunePolicy, Snapshot};
use annals::store::Source;
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;
use annals_graph::task::RunControl;
use annals_graph::{Durability, TaskState};
use macro_rules_attribute::apply;

use crate::backends::place;
use crate::subgraphs::{Inner, Outer};

/// It shares `topic` with [`Outer`] and [`Inner`].
#[derive(State, Clone, Default, Debug, PartialEq)]
struct Middle {
    #[channel(last)]
    topic: String,
    #[channel(append)]
    marks: List<String>,
}

const DURABILITIES: [Durability; 3] = [Durability::Sync, Durability::Async, Durability::Exit];

fn new_thread(name: &str) -> Thread {
    place().thread(name).unwrap()
}

/// Counts its visits, then interrupts.
fn asking() -> CompiledGraph<Inner> {
    StateGraph::<Inner>::new()
        .node("count", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .node("ask", |s: &Inner, context: &Context| {
            let answer = context.interrupt("which?")?;
            Ok(Inner::update().topic(format!("{} {} {}", s.topic, answer.as_str().unwrap_or("?"), s.visits)))
        })
        .edge(START, "count")
        .edge("count", "ask")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

/// Counts its visits, and says how many there were.
fn counting() -> CompiledGraph<Inner> {
    StateGraph::<Inner>::new()
        .node("count", |s: &Inner| {
            Ok(Inner::update().visits(s.visits + 1).topic(format!("{} {}", s.topic, s.visits + 1)))
        })
        .edge(START, "count")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

fn parent<S: Clone + Send + Sync + 'static>(inner: CompiledGraph<S>) -> CompiledGraph<Outer> {
    StateGraph::<Outer>::new()
        .node("before", |s: &Outer| Ok(Outer::update().log([format!("before {}", s.topic)])))
        .node("inner", inner)
        .node("after", |s: &Outer| Ok(Outer::update().log([format!("after {}", s.topic)])))
        .edge(START, "before")
        .edge("before", "inner")
        .edge("inner", "after")
        .compile()
        .unwrap()
}

fn last(outcome: &Outcome<Outer>) -> String {
    outcome.state().log.to_vec().last().cloned().unwrap_or_default()
}

/// Runs at a checkpoint. If the run is `drained` before it begins, it leaves a fork, and the next run continues there.
fn run_at(graph: &CompiledGraph<Outer>, at: &Snapshot, durability: Durability, drained: bool) -> Outcome<Outer> {
    let control = RunControl::new();
    if !drained {
        return graph.run(at).durability(durability).invoke(Input::Continue).unwrap();
    }
    control.request_drain("the process ends");
    let outcome = graph.run(at).control(&control).durability(durability).invoke(Input::Continue).unwrap();
    assert!(matches!(outcome, Outcome::Drained { .. }), "{outcome:?}");
    let store = at.store();
    store.clear_head_cache();
    let thread = store.thread(at.point().thread.as_str()).unwrap();
    graph.run(&thread).durability(durability).invoke(Input::Continue).unwrap()
}

/// Runs a test with each durability, at once and in a run that is drained before it begins.
fn each_run(store: &Store, test: impl Fn(&Thread, Durability, bool)) {
    for durability in DURABILITIES {
        for drained in [false, true] {
            let thread = store.thread(format!("{durability:?} {drained}")).unwrap();
            test(&thread, durability, drained);
            assert!(store.check().unwrap().problems.is_empty());
        }
    }
}

/// Marks its visit, then runs a subgraph.
fn middle(inmost: CompiledGraph<Inner>, persistence: Persistence) -> CompiledGraph<Middle> {
    StateGraph::<Middle>::new()
        .node("mark", |_: &Middle| Ok(Middle::update().marks(["visit".to_string()])))
        .node("inmost", inmost)
        .edge(START, "mark")
        .edge("mark", "inmost")
        .persistence(persistence)
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn an_edit_inside_a_subgraph_that_keeps_its_state_lasts_until_its_interrupt_is_resumed() {
    let (inner, store) = (asking(), place());
    let graph = parent(inner.clone());
    for durability in DURABILITIES {
        let thread = store.thread(format!("{durability:?}")).unwrap();
        let run = |on: &Snapshot| graph.run(on).durability(durability).invoke(Input::Continue).unwrap();
        graph.run(&thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let edited = inner.update_state(&inside, Inner::update().topic("blue"), "count").unwrap();
        // Run twice at the edit: each run opens a branch of the parent graph, and interrupts there.
        for _ in 0..2 {
            let asked = run(&edited);
            assert_eq!(asked.interrupts().len(), 1, "{asked:?}");
            thread.store().clear_head_cache();
        }
        let done = graph.run(&thread).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after blue yes 1", "{durability:?}: the edit counts, and no node runs again");
        // The next turn of the subgraph goes on from there.
        graph.run(&thread).durability(durability).invoke(Outer::update().topic("green")).unwrap();
        let done = graph.run(&thread).durability(durability).invoke(Command::resume("no")).unwrap();
        assert_eq!(last(&done), "after green no 2", "{durability:?}");
        assert!(store.check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn an_edit_on_an_edit_at_which_a_run_has_interrupted_lasts() {
    let (inner, store) = (asking(), place());
    let graph = parent(inner.clone());
    for durability in DURABILITIES {
        let thread = store.thread(format!("{durability:?}")).unwrap();
        graph.run(&thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let edited = inner.update_state(&inside, Inner::update().topic("blue"), "count").unwrap();
        // The run opens a branch of the parent graph, and makes no checkpoint of the subgraph.
        graph.run(&edited).durability(durability).invoke(Input::Continue).unwrap();
        inner.update_state(&inside, Inner::update().topic("green").visits(7), "count").unwrap();
        let done = graph.run(&thread).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after green yes 7", "{durability:?}");
        assert!(store.check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn an_edit_two_subgraphs_deep_lasts_until_its_interrupt_is_resumed() {
    let (inner, store) = (asking(), place());
    let graph = parent(middle(inner.clone(), Persistence::PerThread));
    for durability in DURABILITIES {
        let thread = store.thread(format!("{durability:?}")).unwrap();
        graph.run(&thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner|inmost").unwrap();
        let edited = inner.update_state(&inside, Inner::update().topic("blue").visits(7), "count").unwrap();
        let asked = graph.run(&edited).durability(durability).invoke(Input::Continue).unwrap();
        assert_eq!(asked.interrupts().len(), 1, "{asked:?}");
        thread.store().clear_head_cache();
        let done = graph.run(&thread).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after blue yes 7", "{durability:?}");
        assert!(store.check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn an_edit_lasts_though_the_run_at_it_fails_before_its_subgraph_begins() {
    let (inner, store) = (asking(), place());
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    // The subgraph that keeps its state is inside one that keeps none, and so begins anew.
    let middle =
        StateGraph::<Inner>::new()
            .node("work", move |_: &Inner| {
                if failing.swap(false, Ordering::Relaxed) { Err("not yet".into()) } else { Ok(Inner::update()) }
            })
            .node("inmost", inner.clone())
            .edge(START, "work")
            .edge("work", "inmost")
            .compile()
            .unwrap();
    let graph = parent(middle);
    for durability in DURABILITIES {
        let thread = store.thread(format!("{durability:?}")).unwrap();
        graph.run(&thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner|inmost").unwrap();
        let edited = inner.update_state(&inside, Inner::update().topic("blue").visits(7), "count").unwrap();
        fails.store(true, Ordering::Relaxed);
        graph.run(&edited).durability(durability).invoke(Input::Continue).unwrap_err();
        let asked = graph.run(&thread).durability(durability).invoke(Input::Continue).unwrap();
        assert_eq!(asked.interrupts().len(), 1, "{durability:?}: {asked:?}");
        let done = graph.run(&thread).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after blue yes 7", "{durability:?}: no node runs again");
        assert!(store.check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn an_edit_on_an_edit_two_subgraphs_deep_lasts() {
    for persistence in [Persistence::PerThread, Persistence::PerInvocation] {
        let (inner, store) = (asking(), place());
        let graph = parent(middle(inner.clone(), persistence));
        each_run(&store, |thread, durability, drained| {
            graph.run(thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
            let inside = thread.in_namespace("inner|inmost").unwrap();
            let edited = inner.update_state(&inside, Inner::update().topic("blue").visits(7), "count").unwrap();
            run_at(&graph, &edited, durability, drained);
            inner.update_state(&inside, Inner::update().topic("green").visits(8), "count").unwrap();
            let done = graph.run(thread).durability(durability).invoke(Command::resume("yes")).unwrap();
            assert_eq!(last(&done), "after green yes 8", "{durability:?} {drained}: no node runs again");
        });
    }
}

#[apply(each_backend)]
fn an_edit_of_a_subgraph_lasts_after_a_run_at_an_edit_of_the_one_below_it() {
    let (inner, store) = (asking(), place());
    let middle = middle(inner.clone(), Persistence::PerThread);
    let graph = parent(middle.clone());
    each_run(&store, |thread, durability, drained| {
        graph.run(thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
        let [inside, below] = ["inner", "inner|inmost"].map(|path| thread.in_namespace(path).unwrap());
        let edited = inner.update_state(&below, Inner::update().topic("blue").visits(7), "count").unwrap();
        run_at(&graph, &edited, durability, drained);
        middle.update_state(&inside, Middle::update().marks(["edit".to_string()]), "mark").unwrap();
        let done = graph.run(thread).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after blue yes 7", "{durability:?} {drained}");
        let marks = middle.get_state(&inside).unwrap().values.marks.to_vec();
        assert_eq!(marks, ["visit", "edit"], "{durability:?} {drained}");
    });
}

/// Runs a subgraph that counts its visits, then interrupts.
fn asking_below() -> CompiledGraph<Middle> {
    StateGraph::<Middle>::new()
        .node("deep", counting())
        .node("ask", |s: &Middle, context: &Context| {
            let answer = context.interrupt("which?")?;
            Ok(Middle::update().topic(format!("{} {}", s.topic, answer.as_str().unwrap_or("?"))))
        })
        .edge(START, "deep")
        .edge("deep", "ask")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_subgraph_below_an_edited_one_keeps_its_state() {
    let (middle, store) = (asking_below(), place());
    let graph = parent(middle.clone());
    each_run(&store, |thread, durability, drained| {
        let run = || graph.run(thread).durability(durability);
        run().invoke(Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let edited = middle.update_state(&inside, Middle::update().topic("blue"), "ask").unwrap();
        let done = run_at(&graph, &edited, durability, drained);
        assert_eq!(last(&done), "after blue", "{durability:?} {drained}");
        // The subgraph below did not run at the edit. It goes on from its visit before.
        run().invoke(Outer::update().topic("green")).unwrap();
        let done = run().invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after green 2 yes", "{durability:?} {drained}");
    });
}

#[apply(each_backend)]
fn a_subgraph_below_an_edited_one_keeps_its_state_in_the_run_at_the_edit() {
    let (middle, store) = (asking_below(), place());
    let graph = StateGraph::<Outer>::new()
        .node("inner", middle.clone())
        .node("after", |s: &Outer| Ok(Outer::update().log([format!("after {}", s.topic)])))
        .edge(START, "inner")
        .edge("inner", "after")
        .branch("after", |s: &Outer| if s.log.len() < 2 { "inner" } else { END })
        .compile()
        .unwrap();
    each_run(&store, |thread, durability, drained| {
        let run = || graph.run(thread).durability(durability);
        run().invoke(Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let edited = middle.update_state(&inside, Middle::update().topic("blue"), "ask").unwrap();
        run_at(&graph, &edited, durability, drained);
        let done = run().invoke(Command::resume("yes")).unwrap();
        assert_eq!(done.state().log.to_vec(), ["after blue", "after blue 2 yes"], "{durability:?} {drained}");
    });
}

#[apply(each_backend)]
fn a_replay_of_an_edit_begins_the_subgraph_as_before_though_it_is_drained() {
    let (graph, store) = (parent(asking()), place());
    each_run(&store, |thread, durability, drained| {
        let run = || graph.run(thread).durability(durability);
        run().invoke(Outer::update().topic("red")).unwrap();
        let edited = graph.update_state(thread, Outer::update().topic("blue"), "before").unwrap();
        run().invoke(Input::Continue).unwrap();
        run().invoke(Outer::update().topic("green")).unwrap();
        // The visit before the edit was made in the superstep that the edit makes again.
        run_at(&graph, &edited, durability, drained);
        let done = run().invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after blue yes 1", "{durability:?} {drained}");
    });
}

#[apply(each_backend)]
fn a_run_at_an_edit_retains_the_edit_of_another_subgraph_of_the_superstep() {
    let (inner, store) = (asking(), place());
    let calls = |name: &'static str| {
        let inner = inner.clone();
        move |s: &Outer, context: &Context| {
            let done = inner.invoke(context, Inner::update().topic(s.topic.clone()))?;
            Ok(Outer::update().log([format!("{name} {}", done.state().topic)]))
        }
    };
    let graph = StateGraph::<Outer>::new()
        .node("left", calls("left"))
        .node("right", calls("right"))
        .edge(START, "left")
        .edge(START, "right")
        .compile()
        .unwrap();
    each_run(&store, |thread, durability, drained| {
        graph.run(thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
        let mut asked = Vec::new();
        for (path, topic) in [("left", "blue"), ("right", "green")] {
            let inside = thread.in_namespace(path).unwrap();
            let edited = inner.update_state(&inside, Inner::update().topic(topic), "count").unwrap();
            asked = run_at(&graph, &edited, durability, drained && path == "left").interrupts().to_vec();
        }
        let values = asked.iter().map(|interrupt| (interrupt.id.clone(), Value::from("yes")));
        let resume = Command::resume(Value::Map(values.collect()));
        let done = graph.run(thread).durability(durability).invoke(resume).unwrap();
        assert_eq!(done.state().log.to_vec(), ["left blue yes 1", "right green yes 1"], "{durability:?} {drained}");
    });
}

#[apply(each_backend)]
fn a_replay_that_names_no_edit_begins_the_subgraph_as_before() {
    let inner = asking();
    let (graph, thread) = (parent(inner.clone()), new_thread("t"));
    graph.invoke(&thread, Outer::update().topic("red")).unwrap();
    let parent_head = thread.head().unwrap().unwrap();
    let inside = thread.in_namespace("inner").unwrap();
    inner.update_state(&inside, Inner::update().topic("blue"), "count").unwrap();
    // The parent graph is named, not the edit: the step that runs the subgraph is made again from its beginning.
    graph.invoke(&parent_head, Input::Continue).unwrap();
    let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(last(&done), "after red yes 1");
}

#[apply(each_backend)]
fn a_fork_of_a_run_that_was_saved_at_its_end_finds_the_state_of_its_subgraphs() {
    for first in DURABILITIES {
        for second in DURABILITIES {
            let (graph, thread) = (parent(counting()), new_thread("t"));
            let run = |durability| graph.run(&thread).durability(durability);
            run(first).invoke(Outer::update().topic("a")).unwrap();
            // An edit at the end of the run: the subgraph runs again, and remembers that run.
            graph.update_state(&thread, Outer::update().topic("b"), "before").unwrap();
            let done = run(second).invoke(Input::Continue).unwrap();
            assert_eq!(last(&done), "after b 2", "{first:?} {second:?}");
            // An edit at the end of an earlier run: that run is remembered, and not the one after it.
            let end = thread.history().unwrap().map(Result::unwrap).find(|s| s.source() == Source::Update).unwrap();
            let end = end.parent().unwrap().unwrap();
            graph.update_state(&end, Outer::update().topic("c"), "before").unwrap();
            let done = run(second).invoke(Input::Continue).unwrap();
            assert_eq!(last(&done), "after c 2", "{first:?} {second:?}");
            let done = run(second).invoke(Outer::update().topic("d")).unwrap();
            assert_eq!(last(&done), "after d 3", "{first:?} {second:?}");
            assert!(thread.store().check().unwrap().problems.is_empty());
            assert!(thread.store().delete_thread(thread.id()).unwrap().is_erased());
        }
    }
}

#[apply(each_backend)]
fn a_pruned_thread_goes_on_from_each_kept_checkpoint_with_the_state_of_its_subgraphs() {
    let graph = parent(counting());
    let thread = new_thread("whole");
    for topic in ["a", "b", "c"] {
        graph.invoke(&thread, Outer::update().topic(topic)).unwrap();
    }
    let end = |thread: &Thread| last(&graph.invoke(thread, Input::Continue).unwrap());
    // Back to the middle of the second turn.
    for kept in 2..=8 {
        let at = thread.history().unwrap().nth(kept - 1).unwrap().unwrap();
        if at.next().count() == 0 {
            continue;
        }
        let expected = end(&at.fork_to(format!("of whole {kept}")).unwrap());
        assert_eq!(expected, if kept > 5 { "after b 2" } else { "after c 3" });

        thread.copy_to(format!("pruned {kept}")).unwrap();
        let pruned = thread.store().thread(format!("pruned {kept}")).unwrap();
        pruned.prune(&PrunePolicy::new().keep_last(kept as u64)).unwrap();
        assert_eq!(pruned.history().unwrap().count(), kept);
        thread.store().clear_head_cache();
        let oldest = pruned.history().unwrap().last().unwrap().unwrap();
        assert_eq!(end(&oldest.fork_to(format!("of pruned {kept}")).unwrap()), expected, "{kept} kept");
        pruned.rewind_to(&oldest).unwrap();
        assert_eq!(end(&pruned), expected, "{kept} kept");
    }
}

#[apply(each_backend)]
fn a_fork_that_names_a_checkpoint_of_a_subgraph_survives_prunings() {
    let (inner, store) = (asking(), place());
    let graph = parent(inner.clone());
    let end = |prunes: bool| {
        let thread = store.thread(format!("pruned: {prunes}")).unwrap();
        graph.invoke(&thread, Outer::update().topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let edited = inner.update_state(&inside, Inner::update().topic("blue").visits(7), "count").unwrap();
        // The run leaves a fork, and makes no checkpoint of the subgraph.
        graph.invoke(&edited, Input::Continue).unwrap();
        graph.update_state(&thread, Outer::update().topic("green"), "before").unwrap();
        if prunes {
            assert!(thread.prune(&PrunePolicy::new().keep_last(1)).unwrap().checkpoints > 0);
        }
        store.clear_head_cache();
        graph.invoke(&thread, Input::Continue).unwrap();
        last(&graph.invoke(&thread, Command::resume("yes")).unwrap())
    };
    assert_eq!((&*end(false), &*end(true)), ("after green yes 8", "after green yes 8"));
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_replay_of_the_end_of_a_run_that_was_saved_there_finds_the_state_of_its_subgraphs() {
    let (graph, thread) = (parent(counting()), new_thread("t"));
    let run = || graph.run(&thread).durability(Durability::Exit);
    for topic in ["a", "b", "c"] {
        run().invoke(Outer::update().topic(topic)).unwrap();
    }
    // The end of the second run: a fork there knows two visits, a forked thread too.
    let second = thread.history().unwrap().map(Result::unwrap).nth(1).unwrap();
    let fork = second.fork_to("fork").unwrap();
    graph.update_state(&second, Outer::update().topic("d"), "before").unwrap();
    assert_eq!(last(&run().invoke(Input::Continue).unwrap()), "after d 3");
    let forked = graph.run(&fork).durability(Durability::Exit).invoke(Outer::update().topic("e")).unwrap();
    assert_eq!(last(&forked), "after e 3");
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_streamed_checkpoint_names_the_parents_that_are_stored_with_it() {
    let inner = StateGraph::<Inner>::new()
        .node("one", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .node("two", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .edge(START, "one")
        .edge("one", "two")
        .interrupt_after(["one"])
        .compile()
        .unwrap();
    let (graph, thread) = (parent(inner), new_thread("t"));
    graph.invoke(&thread, Outer::update().topic("a")).unwrap();
    let tasks = graph.get_state(&thread).unwrap().tasks;
    let Some(TaskState::Namespace(path)) = &tasks[0].state else { panic!("{tasks:?}") };
    let inside = thread.in_namespace(path.as_str()).unwrap().head().unwrap().unwrap();
    let mut shown = 0;
    for _ in 0..2 {
        // The first run replays the subgraph on a branch of the parent graph, the second goes on.
        let run = if shown == 0 { graph.run(&inside) } else { graph.run(&thread) };
        for part in run
            .durability(Durability::Sync)
            .subgraphs(true)
            .stream(Input::Continue, &[StreamMode::Checkpoints])
            .unwrap()
        {
            let StreamData::Checkpoint(part) = part.unwrap().data else { continue };
            let stored = thread.in_namespace(part.namespace.as_str()).unwrap().at(part.checkpoint).unwrap();
            assert_eq!(part.parents, stored.record().parents, "{part:?}");
            shown += 1;
        }
    }
    assert!(shown > 4, "{shown}");
}

#[apply(each_backend)]
fn a_cancelled_run_stores_no_subgraph_below_one_that_it_drops_and_does_not_store() {
    for durability in DURABILITIES {
        let waits = Arc::new(AtomicBool::new(true));
        let middle = StateGraph::<Inner>::new()
            .node("deep", counting())
            .node("wait", move |_: Arc<Inner>, context: Context| {
                let waits = waits.swap(false, Ordering::Relaxed);
                async move {
                    if waits {
                        context.control().cancel("the window was closed");
                        std::future::pending::<()>().await;
                    }
                    Ok(Inner::update())
                }
            })
            .edge(START, "deep")
            .edge("deep", "wait")
            .compile()
            .unwrap();
        let (graph, thread) = (parent(middle), new_thread(&format!("{durability:?}")));
        let run = || graph.run(&thread).durability(durability);
        let cancelled = annals_graph::block_on(run().ainvoke(Outer::update().topic("a"))).unwrap();
        assert!(matches!(cancelled, Outcome::Cancelled { .. }), "{durability:?}: {cancelled:?}");
        thread.store().clear_head_cache();
        let done = run().invoke(Input::Continue).unwrap();
        assert_eq!(last(&done), "after a 1", "{durability:?}: one visit");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}
