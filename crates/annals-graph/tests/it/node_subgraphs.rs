//! Tests subgraphs in nodes, on both backends: their input, their persisted state, and the commands, interrupts and
//! events that reach the parent graph.

use annals::store::log::LogExt;
use annals_graph::Durability;
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;
use macro_rules_attribute::apply;

use crate::backends::place;

#[derive(State, Clone, Default, Debug)]
struct Outer {
    #[channel(last)]
    topic: String,
    #[channel(reduce = add)]
    total: i64,
    #[channel(last)]
    left: String,
}

/// It shares `topic` and `total` with [`Outer`].
#[derive(State, Clone, Default, Debug)]
struct Inner {
    #[channel(last)]
    topic: String,
    #[channel(last)]
    total: i64,
    #[channel(last)]
    own: i64,
}

fn add(old: i64, new: i64) -> i64 {
    old + new
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn around(inner: CompiledGraph<Inner>) -> CompiledGraph<Outer> {
    StateGraph::<Outer>::new()
        .node("inner", inner)
        .node("after", |s: &Outer| Ok(Outer::update().topic(format!("{}!", s.topic))))
        .edge(START, "inner")
        .edge("inner", "after")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_graph_is_a_node_and_gives_back_the_channels_that_both_have() {
    let inner = StateGraph::<Inner>::new()
        .node("work", |s: &Inner| Ok(Inner::update().own(1).total(s.total + 5).topic(s.topic.to_uppercase())))
        .edge(START, "work")
        .compile()
        .unwrap();
    let graph = around(inner);
    assert_eq!(graph.get_subgraphs(false), [("inner".to_owned(), "LangGraph".to_owned())]);
    let thread = thread();
    let done = graph.invoke(&thread, Outer::update().topic("boats").total(1)).unwrap();
    assert_eq!((done.state().topic.as_str(), done.state().total), ("BOATS!", 7));
    let namespaces = thread.store().backend().namespaces(thread.id()).unwrap();
    assert_eq!(namespaces.len(), 2, "{namespaces:?}");
    assert!(namespaces[1].as_str().starts_with("inner:"));
    let without = graph.invoke((), Outer::update().topic("boats").total(1)).unwrap();
    assert_eq!(without.state().total, 7);
}

#[apply(each_backend)]
fn a_question_inside_is_the_runs_and_the_graph_inside_goes_on_where_it_was() {
    for persistence in [Persistence::PerInvocation, Persistence::PerThread] {
        let inner = StateGraph::<Inner>::new()
            .node("first", |s: &Inner| Ok(Inner::update().own(s.own + 1)))
            .node("ask", |s: &Inner, context: &Context| {
                let answer = context.interrupt(s.topic.as_str())?;
                Ok(Inner::update().topic(format!("{} {} {}", s.topic, answer.as_str().unwrap_or("?"), s.own)))
            })
            .edge(START, "first")
            .edge("first", "ask")
            .persistence(persistence)
            .compile()
            .unwrap();
        let graph = around(inner);
        let thread = thread().store().thread(format!("{persistence:?}")).unwrap();
        let asked = graph.invoke(&thread, Outer::update().topic("red")).unwrap();
        assert_eq!(asked.interrupts().len(), 1);
        assert_eq!(asked.interrupts()[0].value, Value::from("red"));
        let done = graph.invoke(&thread, Command::resume("or blue")).unwrap();
        assert!(done.is_done());
        assert_eq!(done.state().topic, "red or blue 1!", "the first node ran once");
        graph.invoke(&thread, Outer::update().topic("x")).unwrap();
        let id = graph.get_state(&thread).unwrap().interrupts[0].id.clone();
        let by_id: Value = serde_json::json!({ id: "y" }).into();
        let again = graph.invoke(&thread, Command::resume(by_id)).unwrap();
        let kept = if persistence == Persistence::PerThread { 2 } else { 1 };
        assert_eq!(again.state().topic, format!("x y {kept}!"));
    }
}

#[apply(each_backend)]
fn a_node_calls_graphs_and_each_call_has_its_own_place() {
    let inner = StateGraph::<Inner>::new()
        .node("work", |s: &Inner| Ok(Inner::update().total(s.total * 2)))
        .edge(START, "work")
        .compile()
        .unwrap();
    let graph = StateGraph::<Outer>::new()
        .node("caller", move |s: &Outer, context: &Context| {
            let once = inner.invoke(context, Inner::update().total(s.total))?;
            let twice = inner.invoke(context, Inner::update().total(once.state().total))?;
            Ok(Outer::update().total(twice.state().total))
        })
        .edge(START, "caller")
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Outer::update().total(3)).unwrap();
    assert_eq!(done.state().total, 15);
    let namespaces = thread.store().backend().namespaces(thread.id()).unwrap();
    assert_eq!(namespaces.len(), 3);
    assert!(namespaces[2].as_str().ends_with("|1"));
}

#[apply(each_backend)]
fn a_command_to_the_parent_is_the_nodes_own_there_and_nobodys_at_the_top() {
    let inner = StateGraph::<Inner>::new()
        .node("leave", |_: &Inner| Ok(Command::update(Outer::update().left("yes")).and_goto("last").to_parent()))
        .node("never", |_: &Inner| Ok(Inner::update().own(9)))
        .edge(START, "leave")
        .edge("leave", "never")
        .compile()
        .unwrap();
    let error = inner.invoke((), Inner::update().own(1)).unwrap_err();
    assert!(matches!(error.as_run(), Some(annals_graph::RunError::ParentCommand)));
    let graph = StateGraph::<Outer>::new()
        .node("inner", inner)
        .node("last", |s: &Outer| Ok(Outer::update().left(format!("{} last", s.left))))
        .edge(START, "inner")
        .compile()
        .unwrap();
    let done = graph.invoke(&thread(), Outer::update().total(1)).unwrap();
    assert_eq!(done.state().left, "yes last");
}

#[apply(each_backend)]
fn a_drain_inside_stops_all_around_and_can_be_continued() {
    let inner = StateGraph::<Inner>::new()
        .node("one", |s: &Inner, context: &Context| {
            context.control().request_drain("update");
            Ok(Inner::update().own(s.own + 1))
        })
        .node("two", |s: &Inner| Ok(Inner::update().total(s.own)))
        .edge(START, "one")
        .edge("one", "two")
        .compile()
        .unwrap();
    let graph = around(inner);
    let thread = thread();
    let stopped = graph.invoke(&thread, Outer::update().topic("a")).unwrap();
    assert!(matches!(stopped, Outcome::Drained { ref reason, .. } if reason == "update"), "{stopped:?}");
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!((done.state().total, done.state().topic.as_str()), (1, "a!"));
}

#[apply(each_backend)]
fn what_a_node_emits_is_streamed_before_the_node_has_ended() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let graph = StateGraph::<Outer>::new()
        .node("talk", move |_: &Outer, context: &Context| {
            context.emit(1);
            wait.lock().unwrap().recv()?;
            context.emit(context.value::<String>().cloned().unwrap_or_default());
            Ok(Outer::update().total(1))
        })
        .edge(START, "talk")
        .compile()
        .unwrap();
    let thread = thread();
    let run = graph.run(&thread).context("ann".to_string());
    let mut stream = run.stream(Outer::update().total(1), &[StreamMode::Custom]).unwrap();
    let part = stream.next().unwrap().unwrap();
    assert!(matches!(part.data, StreamData::Custom(ref value) if *value == 1), "{part:?}");
    go.send(()).unwrap();
    let part = stream.next().unwrap().unwrap();
    assert!(matches!(part.data, StreamData::Custom(ref value) if *value == "ann"), "{part:?}");
    assert!(stream.next().is_none());
}

#[apply(each_backend)]
fn a_stateless_subgraph_has_no_state_to_look_at() {
    let inner = StateGraph::<Inner>::new()
        .node("ask", |_: &Inner, context: &Context| {
            let answer = context.interrupt("which?")?;
            Ok(Inner::update().topic(answer.as_str().unwrap_or("?")))
        })
        .edge(START, "ask")
        .persistence(Persistence::Stateless)
        .compile()
        .unwrap();
    let graph = around(inner);
    let thread = thread();
    graph.invoke(&thread, Outer::update().topic("red")).unwrap();
    for state in [graph.get_state(&thread).unwrap(), graph.state_with_subgraphs(&thread).unwrap()] {
        assert_eq!((state.tasks[0].name.as_str(), &state.tasks[0].state), ("inner", &None));
    }
    assert!(graph.get_subgraphs(true).is_empty());
    let drawing = graph.get_graph(9);
    assert!(drawing.nodes.iter().any(|node| node.id == "inner"), "it is drawn as a node: {drawing:?}");
    let done = graph.invoke(&thread, Command::resume("blue")).unwrap();
    assert_eq!(done.state().topic, "blue!");
}

#[apply(each_backend)]
fn a_subgraph_that_keeps_its_state_keeps_it_inside_a_stateless_one() {
    let counts = StateGraph::<Inner>::new()
        .node("count", |s: &Inner| Ok(Inner::update().own(s.own + 1).total(s.own + 1)))
        .edge(START, "count")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let stateless = StateGraph::<Inner>::new()
        .node("counts", counts)
        .edge(START, "counts")
        .persistence(Persistence::Stateless)
        .compile()
        .unwrap();
    let (graph, store) = (around(stateless), place());
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let thread = store.thread(format!("{durability:?}")).unwrap();
        for expected in [1, 1 + 2, 1 + 2 + 3] {
            let done = graph.run(&thread).durability(durability).invoke(Outer::update().topic("red")).unwrap();
            assert_eq!(done.state().total, expected, "{durability:?}");
            thread.store().clear_head_cache();
        }
        let namespaces = store.backend().namespaces(thread.id()).unwrap();
        assert_eq!(namespaces.iter().map(|of| of.as_str()).collect::<Vec<_>>(), ["", "inner|counts"]);
        // A branch of the parent graph takes that state along.
        let second = thread.history().unwrap().map(Result::unwrap).filter(|s| s.next().eq(["inner"])).nth(1);
        if let Some(second) = second {
            let again = graph.run(&second).durability(durability).invoke(Input::Continue).unwrap();
            assert_eq!(again.state().total, 1 + 2, "{durability:?}");
        }
        assert!(store.check().unwrap().problems.is_empty());
    }
    assert_eq!(graph.invoke((), Outer::update().topic("red")).unwrap().state().total, 1, "nothing is stored");
}

#[apply(each_backend)]
fn a_subgraph_continues_at_an_update_made_before_its_first_run() {
    let inner = StateGraph::<Inner>::new()
        .node("work", |s: &Inner| Ok(Inner::update().total(s.total + 5)))
        .edge(START, "work")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = StateGraph::<Outer>::new()
        .node("inner", inner.clone())
        .edge(START, "inner")
        .interrupt_before(["inner"])
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Outer::update().topic("boats").total(1)).unwrap();

    let inside = thread.in_namespace("inner").unwrap();
    inner.update_state(&inside, Inner::update().topic("trains").total(10), None).unwrap();
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!((done.state().topic.as_str(), done.state().total), ("trains", 16));
    assert_eq!(inner.get_state(&inside).unwrap().values.total, 15);
}
