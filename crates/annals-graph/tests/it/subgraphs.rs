//! Looking into graphs inside nodes, changing them, and going back in time with them, on both backends.

use std::sync::Mutex;

use annals::store::Source;
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;
use annals_graph::{Durability, TaskState};
use macro_rules_attribute::apply;

use crate::backends::{place, same_after_reload};

#[derive(State, Clone, Default, Debug, PartialEq)]
pub(crate) struct Outer {
    #[channel(last)]
    pub(crate) topic: String,
    #[channel(append)]
    pub(crate) log: List<String>,
}

/// It shares `topic` with [`Outer`].
#[derive(State, Clone, Default, Debug, PartialEq)]
pub(crate) struct Inner {
    #[channel(last)]
    pub(crate) topic: String,
    #[channel(last)]
    pub(crate) visits: i64,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn asking(name: &str) -> CompiledGraph<Inner> {
    let question = format!("{name}?");
    StateGraph::<Inner>::new()
        .node("count", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .node("ask", move |s: &Inner, context: &Context| {
            let answer = context.interrupt(question.as_str())?;
            Ok(Inner::update().topic(format!("{} {} {}", s.topic, answer.as_str().unwrap_or("?"), s.visits)))
        })
        .edge(START, "count")
        .edge("count", "ask")
        .compile()
        .unwrap()
}

fn around(inner: CompiledGraph<Inner>) -> CompiledGraph<Outer> {
    let before = |s: &Outer| Ok(Outer::update().log([format!("before {}", s.topic)]));
    let after = |s: &Outer| Ok(Outer::update().log([format!("after {}", s.topic)]));
    StateGraph::<Outer>::new()
        .node("before", before)
        .node("inner", inner)
        .node("after", after)
        .edge(START, "before")
        .edge("before", "inner")
        .edge("inner", "after")
        .compile()
        .unwrap()
}

/// Counts its visits in a state that lasts as long as the thread, and says how many there were.
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

#[apply(each_backend)]
fn a_graph_inside_is_looked_at_and_changed_where_it_stands() {
    let inner = asking("inner");
    let graph = around(inner.clone());
    let thread = thread();
    graph.invoke(&thread, Outer::update().topic("red")).unwrap();
    let state = graph.get_state(&thread).unwrap();
    let Some(TaskState::Namespace(path)) = &state.tasks[0].state else { panic!("{state:?}") };
    assert_eq!(path.as_str(), format!("inner:{}", state.tasks[0].id));
    let deep = graph.state_with_subgraphs(&thread).unwrap();
    let Some(TaskState::Snapshot(shown)) = &deep.tasks[0].state else { panic!("{deep:?}") };
    assert_eq!((shown.values["visits"].as_int(), shown.next.as_slice()), (Some(1), ["ask".to_string()].as_slice()));
    assert_eq!(*shown.parents, [(state.namespace.clone(), state.checkpoint.unwrap())]);

    let inside = thread.in_namespace(path).unwrap();
    assert_eq!(inside.history().unwrap().count(), 3);
    let seen = inner.get_state(&inside).unwrap();
    assert_eq!((seen.values.visits, seen.interrupts.len()), (1, 1));
    assert_eq!(graph.subgraph::<Inner>(path.as_str()).unwrap().get_state(&inside).unwrap(), seen);
    let changed = inner.update_state(&inside, Inner::update().visits(7), "count").unwrap();
    assert_eq!(changed.point().namespace, *path);
    assert_eq!(changed.record().parents, shown.parents);
    same_after_reload(&inner, &inside);

    let done = graph.invoke(&thread, Command::resume("blue")).unwrap();
    assert_eq!(done.state().log.to_vec(), ["before red", "after red blue 7"]);
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn questions_of_parallel_and_nested_graphs_are_answered_by_their_ids() {
    let middle = StateGraph::<Inner>::new().node("deep", asking("deep")).edge(START, "deep").compile().unwrap();
    let take = |s: &Inner| Ok(Outer::update().log([s.topic.clone()]));
    let graph = StateGraph::<Outer>::new()
        .node("a", {
            let (inner, take) = (asking("a"), take);
            move |s: &Outer, context: &Context| {
                let done = inner.invoke(context, Inner::update().topic(s.topic.clone()))?;
                take(done.state())
            }
        })
        .node("b", {
            let middle = middle.clone();
            move |s: &Outer, context: &Context| {
                let done = middle.invoke(context, Inner::update().topic(s.topic.clone()))?;
                take(done.state())
            }
        })
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    let thread = thread();
    let asked = graph.invoke(&thread, Outer::update().topic("x")).unwrap();
    let ids: Vec<String> = asked.interrupts().iter().map(|interrupt| interrupt.id.clone()).collect();
    assert_eq!(ids.len(), 2);
    let refused = graph.invoke(&thread, Command::resume("both")).unwrap_err();
    assert!(matches!(refused.as_run(), Some(annals_graph::RunError::SeveralInterrupts { .. })));
    let one: Value = serde_json::json!({ ids[1].as_str(): "second" }).into();
    let rest = graph.invoke(&thread, Command::resume(one)).unwrap();
    assert_eq!(rest.interrupts().len(), 1);
    assert_eq!(rest.interrupts()[0].id, ids[0]);
    let done = graph.invoke(&thread, Command::resume("first")).unwrap();
    assert_eq!(done.state().log.to_vec(), ["x first 1", "x second 1"]);
}

#[apply(each_backend)]
fn going_back_takes_the_memory_of_graphs_inside_along() {
    let graph = around(counting());
    let thread = thread();
    for topic in ["a", "b", "c"] {
        graph.invoke(&thread, Outer::update().topic(topic)).unwrap();
    }
    let second = thread.history().unwrap().map(Result::unwrap).filter(|s| s.next().eq(["inner"])).nth(1).unwrap();
    let again = graph.invoke(&second, Input::Continue).unwrap();
    assert_eq!(again.state().log.to_vec().last().unwrap(), "after b 2", "as at its first time");
    let next = graph.invoke(&thread, Outer::update().topic("d")).unwrap();
    assert_eq!(next.state().log.to_vec().last().unwrap(), "after d 3", "on from there");

    // An update at an old checkpoint opens a branch, to which later checkpoints of the subgraph do not belong.
    let fork = graph.update_state(&second, Outer::update().topic("e"), "before").unwrap();
    assert_eq!(fork.source(), Source::Update);
    let branched = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(branched.state().log.to_vec().last().unwrap(), "after e 2");
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_forked_thread_takes_the_memory_of_graphs_inside_along() {
    let graph = around(counting());
    let thread = thread();
    for topic in ["a", "b", "c"] {
        graph.invoke(&thread, Outer::update().topic(topic)).unwrap();
    }
    let last = |outcome: Outcome<Outer>| outcome.state().log.to_vec().last().cloned().unwrap();
    // A fork of the head has the subgraph's last state. In a fork of a checkpoint at which the subgraph was due, it
    // runs once more.
    let head = thread.head().unwrap().unwrap().fork_to("of the head").unwrap();
    assert_eq!(last(graph.invoke(&head, Outer::update().topic("d")).unwrap()), "after d 4");
    let second = thread.history().unwrap().map(Result::unwrap).filter(|s| s.next().eq(["inner"])).nth(1).unwrap();
    let fork = second.fork_to("of the second").unwrap();
    assert_eq!(last(graph.invoke(&fork, Input::Continue).unwrap()), "after b 2");
    assert_eq!(last(graph.invoke(&fork, Outer::update().topic("e")).unwrap()), "after e 3");
    // Also through a thread in which it never ran, with runs that are saved at their end, and from the file alone.
    let between = second.fork_to("between").unwrap().head().unwrap().unwrap().fork_to("end").unwrap();
    thread.store().clear_head_cache();
    let run = || graph.run(&between).durability(Durability::Exit);
    assert_eq!(last(run().invoke(Input::Continue).unwrap()), "after b 2");
    thread.store().clear_head_cache();
    assert_eq!(last(run().invoke(Outer::update().topic("f")).unwrap()), "after f 3");
    // The first thread is as it was.
    assert_eq!(last(graph.invoke(&thread, Outer::update().topic("g")).unwrap()), "after g 4");
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_run_at_the_checkpoint_of_a_graph_inside_goes_on_there() {
    let work = |s: &Inner| Ok(Inner::update().visits(s.visits + 1));
    let last = |s: &Inner| Ok(Inner::update().visits(s.visits * 10).topic(format!("{}", s.visits * 10)));
    let inner = StateGraph::<Inner>::new()
        .node("one", work)
        .node("two", work)
        .node("three", last)
        .edge(START, "one")
        .edge("one", "two")
        .edge("two", "three")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = around(inner.clone());
    let thread = thread();
    graph.invoke(&thread, Outer::update().topic("a")).unwrap();
    let inside = thread.in_namespace("inner").unwrap();
    let before_two = inside.history().unwrap().map(Result::unwrap).find(|s| s.next().eq(["two"])).unwrap();
    let changed = inner.update_state(&before_two, Inner::update().visits(5), "one").unwrap();
    let done = graph.invoke(&changed, Input::Continue).unwrap();
    assert_eq!(done.state().log.to_vec().last().unwrap(), "after 60");
    let again = graph.invoke(&before_two, Input::Continue).unwrap();
    assert_eq!(again.state().log.to_vec().last().unwrap(), "after 20");
    let head = graph.get_state(&thread).unwrap();
    assert_eq!(head.parents.len(), 2, "it says where it was started: {:?}", head.parents);
}

#[apply(each_backend)]
fn a_graph_inside_takes_its_input_though_the_run_continues() {
    let graph = around(counting());
    let thread = thread();
    graph.invoke(&thread, Outer::update().topic("a")).unwrap();
    graph.run(&thread).interrupt_before(["inner"]).invoke(Outer::update().topic("b")).unwrap();
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().log.to_vec().last().unwrap(), "after b 2");
}

#[apply(each_backend)]
fn a_graph_inside_a_run_that_was_overtaken_writes_nothing_more() {
    let store = place();
    let thread = store.thread("t").unwrap();
    let meddler = Mutex::new(None::<CompiledGraph<Outer>>);
    let meddler: &'static Mutex<Option<CompiledGraph<Outer>>> = Box::leak(Box::new(meddler));
    let other = thread.clone();
    let inner = StateGraph::<Inner>::new()
        .node("one", move |s: &Inner| {
            if let Some(graph) = meddler.lock().unwrap().take() {
                graph.update_state(&other, Outer::update().topic("meanwhile"), "after")?;
            }
            Ok(Inner::update().visits(s.visits + 1))
        })
        .edge(START, "one")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = around(inner.clone());
    graph.invoke(&thread, Outer::update().topic("a")).unwrap();
    let inside = thread.in_namespace("inner").unwrap();
    let made = inside.history().unwrap().count();
    *meddler.lock().unwrap() = Some(graph.clone());
    let run = graph.run(&thread).durability(Durability::Sync);
    let lost = run.invoke(Outer::update().topic("b")).unwrap_err();
    assert!(lost.is_conflict(), "{lost}");
    // Its input was committed before; the superstep that built on the old head was not.
    assert_eq!(inside.history().unwrap().count(), made + 2);
    assert_eq!(graph.get_state(&thread).unwrap().values.topic, "meanwhile");
    let next = graph.invoke(&thread, Outer::update().topic("c")).unwrap();
    assert!(next.is_done());
}

#[test]
fn subgraphs_are_listed_at_all_depths() {
    let middle = StateGraph::<Inner>::new().node("deep", asking("x")).edge(START, "deep").name("middle");
    let graph = around(middle.compile().unwrap());
    assert_eq!(graph.get_subgraphs(false), [("inner".to_owned(), "middle".to_owned())]);
    let all = graph.get_subgraphs(true);
    assert_eq!(all, [("inner".into(), "middle".into()), ("inner|deep".into(), "LangGraph".into())]);
    assert!(graph.subgraph::<Inner>("inner|deep").is_some() && graph.subgraph::<Inner>("inner|no").is_none());
}

/// START -> a -> kid, a subgraph that has a state for each task.
#[apply(each_backend)]
fn a_run_at_an_edit_that_was_made_before_the_subgraph_first_ran_continues_there() {
    let kid = StateGraph::<Outer>::new()
        .node("k", |s: &Outer| Ok(Outer::update().log([format!("k after {}", s.log.len())])))
        .edge(START, "k")
        .compile()
        .unwrap();
    let graph = StateGraph::<Outer>::new()
        .node("a", |_: &Outer| Ok(Outer::update().log(["a".to_owned()])))
        .node("kid", kid.clone())
        .edge(START, "a")
        .edge("a", "kid")
        .interrupt_before(["kid"])
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for edits in [1, 2] {
            let thread = place().thread(format!("{durability:?} {edits}")).unwrap();
            let run = |on: &Snapshot| graph.run(on).durability(durability).invoke(Input::Continue).unwrap();
            graph.run(&thread).durability(durability).invoke(Outer::update()).unwrap();
            let before = thread.head().unwrap().unwrap();
            let state = graph.get_state(&thread).unwrap();
            let Some(TaskState::Namespace(path)) = &state.tasks[0].state else { panic!("{state:?}") };
            let inside = thread.in_namespace(path).unwrap();
            let first = kid.update_state(&inside, Outer::update().log(["edit".to_owned()]), START).unwrap();
            if edits > 1 {
                kid.update_state(&inside, Outer::update().log(["later".to_owned()]), START).unwrap();
            }
            let done = run(&first);
            assert_eq!(done.state().log.to_vec(), ["a", "edit", "k after 1"], "{durability:?} {edits}");
            same_after_reload(&graph, &thread);
            // The outermost graph went on where it stood: it was not forked.
            let head = thread.head().unwrap().unwrap();
            assert_eq!(head.record().parent, Some(before.point().checkpoint));
            assert!(head.record().parents.is_empty());
        }
    }
}
