//! Supersteps as they are stored: the nodes and triggers of a checkpoint, cached results, and deferred nodes.

use annals::store::log::LogExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals::base::decode_bytes;
use annals::state::DynState;
use annals::store::record::ChannelValue;
use annals_graph::graph::{CachePolicy, Entrypoint, IntoNode, Own, Persistence};
use annals_graph::prelude::*;
use serde_json::json;

/// A graph with three nodes that do nothing.
fn three() -> StateGraph<DynState> {
    let nothing = |_: &DynState| Ok(());
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build());
    graph.node("a", nothing).node("b", nothing).node("c", nothing)
}

fn texts(state: &DynState, name: &str) -> Vec<String> {
    state.list(name).unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_that_a_command_started_is_no_task_of_the_checkpoint() {
    let graph = StateGraph::with_schema(DynSchema::new().last("a").last("b").last("c").build())
        .node("a", |_: &DynState, context: &Context| Ok(DynUpdate::new().set("a", context.interrupt("?")?)))
        .node("b", |_: &DynState| Ok(DynUpdate::new().set("b", 1)))
        .node("c", |_: &DynState| Ok(DynUpdate::new().set("c", 1)))
        .edge(START, "a")
        .edge(START, "c")
        .compile()
        .unwrap();
    let thread = Store::memory().thread("t").unwrap();
    graph.invoke(&thread, DynUpdate::new()).unwrap();
    graph.invoke(&thread, Command::resume("yes").and_goto("b")).unwrap();
    let head = thread.head().unwrap().unwrap();
    let node = |channel: &str| head.blame(channel).value().unwrap().unwrap().node;
    assert_eq!(["a", "b", "c"].map(node), [Some("a".to_owned()), None, Some("c".to_owned())]);
}

#[test]
fn a_node_has_seen_the_triggers_that_were_written() {
    let graph = three()
        .edge(START, "c")
        .join(["a", "b"], "c")
        .branch(START, |_: &DynState| if false { vec!["a", "b"] } else { vec![END] })
        .compile()
        .unwrap();
    let seen = |thread: &Thread| -> Vec<(String, Vec<String>)> {
        let state = thread.store().backend().state(thread.head().unwrap().unwrap().point()).unwrap();
        assert!(state.seen.iter().flat_map(|seen| &seen.versions).all(|(_, version)| *version > 0));
        let names = |versions: &[(Arc<str>, u64)]| versions.iter().map(|(name, _)| name.to_string()).collect();
        state.seen.iter().map(|seen| (seen.node.to_string(), names(&seen.versions))).collect()
    };
    let [ran, edited] = ["ran", "edited"].map(|name| Store::memory().thread(name).unwrap());
    graph.invoke(&ran, DynUpdate::new().set("n", 1)).unwrap();
    let c = ("c".to_owned(), vec!["branch:to:c".to_owned()]);
    assert!(seen(&ran).contains(&c), "{:?}", seen(&ran));
    graph.update_state(&edited, DynUpdate::new().set("n", 1), START).unwrap();
    assert_eq!(seen(&edited), [(START.to_owned(), vec![])]);
}

/// A graph of one node, which writes to a channel.
fn writes(schema: DynSchema, channel: &'static str, value: Value) -> CompiledGraph<DynState> {
    StateGraph::with_schema(schema.build())
        .node("node", move |_: &DynState| Ok(DynUpdate::new().set(channel, value.clone())))
        .edge(START, "node")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

#[test]
fn a_list_that_an_earlier_graph_stored_as_one_value_keeps_its_items() {
    let thread = Store::memory().thread("t").unwrap();
    for channel in ["x", "y"] {
        let graph = writes(DynSchema::new().last("x").last("y"), channel, vec![Value::from("old")].into());
        graph.invoke(&thread, DynUpdate::new()).unwrap();
    }
    for (channel, x, y) in [("x", 2, 1), ("y", 2, 2), ("x", 3, 2)] {
        let graph = writes(DynSchema::new().append("x").append("y"), channel, "new".into());
        graph.invoke(&thread, DynUpdate::new()).unwrap();
        thread.store().clear_head_cache();
        let state = graph.get_state(&thread).unwrap().values;
        assert_eq!(texts(&state, "x"), [&["old"][..], &["new"; 2][..x - 1]].concat());
        assert_eq!(texts(&state, "y"), [&["old"][..], &["new"; 1][..y - 1]].concat());
    }
}

#[test]
fn a_list_of_the_parent_graph_changes_no_other_list() {
    let thread = Store::memory().thread("t").unwrap();
    let around = |inner: CompiledGraph<DynState>| {
        let schema = DynSchema::new().append("given").build();
        StateGraph::with_schema(schema).node("inner", inner).edge(START, "inner").compile().unwrap()
    };
    let old = writes(DynSchema::new().append("given").last("own"), "own", vec![Value::from("old")].into());
    around(old).invoke(&thread, DynUpdate::new()).unwrap();
    thread.store().clear_head_cache();
    let inner = writes(DynSchema::new().append("given").append("own"), "own", "new".into());
    around(inner.clone()).invoke(&thread, DynUpdate::new().set("given", "in")).unwrap();
    thread.store().clear_head_cache();
    let state = inner.get_state(&thread.in_namespace("inner").unwrap()).unwrap().values;
    assert_eq!((texts(&state, "given"), texts(&state, "own")), (vec!["in".into()], vec!["old".into(), "new".into()]));
    assert_eq!(thread.store().check().unwrap().problems, []);
}

/// A graph whose node is cached, and the number of its runs.
fn kept<S, M>(graph: StateGraph<S>, store: &Store, node: impl IntoNode<S, M>) -> StateGraph<S>
where
    S: Clone + Send + Sync + 'static,
{
    graph
        .node_with("kept", node, NodeOptions::new().cache(CachePolicy::new()))
        .edge(START, "kept")
        .cache(&store.cache())
}

#[test]
fn an_entrypoint_is_cached_by_its_input() {
    let (store, runs) = (Store::memory(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let double = Entrypoint::new("double", move |n: i64| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(n * 2)
    });
    let double = double.cache_policy(CachePolicy::new()).cache(&store.cache()).compile().unwrap();
    let thread = store.thread("t").unwrap();
    for (n, ran) in [(1, 1), (2, 2), (1, 2), (2, 2), (3, 3)] {
        assert_eq!(double.invoke(&thread, n).unwrap().value(), Some(&(n * 2)));
        assert_eq!(runs.load(Ordering::SeqCst), ran, "{n}");
    }
}

#[test]
fn a_cached_send_has_its_whole_argument() {
    let store = Store::memory();
    let schema = DynSchema::new().last("n").untracked("loose", true).append("taken").build();
    let arg = Value::from(json!({"n": 1, "loose": 2}));
    let node = move |_: &DynState, _: &Context| Ok(Command::goto(SendTo::new("take", arg.clone())));
    let take = |given: Value, _: &Context| Ok(DynUpdate::new().set("taken", given.to_json().to_string()));
    let graph = kept(StateGraph::with_schema(schema), &store, node).node("take", Own(take)).compile().unwrap();
    let runs = [0, 1].map(|run| {
        let done = graph.invoke(&store.thread(format!("{run}")).unwrap(), DynUpdate::new()).unwrap();
        done.state().list("taken").unwrap().to_vec()
    });
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0][0].as_str().unwrap().contains("loose"), "{runs:?}");
}

#[test]
fn a_list_that_a_subgraph_gives_back_is_cached() {
    let (store, runs) = (Store::memory(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let schema = || DynSchema::new().messages("messages").build();
    let says = |id: &str| Value::from_serialize(&Message::ai(id).with_id(id)).unwrap();
    let inner = StateGraph::with_schema(schema())
        .node("in", move |_: &DynState| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(DynUpdate::new().set("messages", says("in")))
        })
        .edge(START, "in")
        .compile()
        .unwrap();
    let graph = kept(StateGraph::with_schema(schema()), &store, inner).compile().unwrap();
    let [first, second] = ["a", "b"].map(|name| {
        let thread = store.thread(name).unwrap();
        let done = graph.invoke(&thread, DynUpdate::new().set("messages", says("start"))).unwrap();
        done.state().messages("messages").unwrap().to_vec()
    });
    assert_eq!((first.len(), &first), (2, &second));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_cached_null_is_null() {
    let store = Store::memory();
    let schema = DynSchema::new().last("value").last("runs").build();
    let node = |_: &DynState| Ok(DynUpdate::new().set("value", Value::Null));
    let graph = kept(StateGraph::with_schema(schema), &store, node).compile().unwrap();
    for name in ["a", "b"] {
        let thread = store.thread(name).unwrap();
        let done = graph.invoke(&thread, DynUpdate::new().set("value", 1)).unwrap();
        assert!(done.state().is_set("value") && done.state().get("value").is_null(), "{name}");
    }
    let parts = graph.stream((), DynUpdate::new().set("value", 1), &[StreamMode::Updates]).unwrap();
    let cached = parts.map(|part| matches!(part.unwrap().data, StreamData::Updates(update) if update.cached));
    assert_eq!(cached.collect::<Vec<_>>(), [true]);
}

type Answer = NodeResult<DynUpdate>;

fn says(name: &'static str) -> impl Fn(&DynState) -> Answer + Clone {
    move |_| Ok(DynUpdate::new().set("said", name))
}

/// Two nodes in a row, and one that waits for them.
fn waiting() -> CompiledGraph<DynState> {
    StateGraph::with_schema(DynSchema::new().append("said").build())
        .node("a", says("a"))
        .node("b", says("b"))
        .node_with("last", says("last"), NodeOptions::new().defer(true))
        .edge(START, "a")
        .edge("a", "b")
        .edge("a", "last")
        .compile()
        .unwrap()
}

fn said(state: &DynState) -> Vec<&str> {
    state.list("said").unwrap().iter().map(|said| said.as_str().unwrap()).collect()
}

#[test]
fn a_held_trigger_is_stored_with_its_release_until_its_node_has_run() {
    let (graph, thread) = (waiting(), Store::memory().thread("t").unwrap());
    graph.invoke(&thread, DynUpdate::new()).unwrap();
    let mut shown = Vec::new();
    for at in thread.history().unwrap() {
        let state = thread.store().backend().state(at.unwrap().point()).unwrap();
        let trigger = state.channels.into_iter().find(|channel| &*channel.channel == "branch:to:last");
        shown.push(match trigger.map(|trigger| trigger.value) {
            Some(ChannelValue::Value(payload)) => {
                decode_bytes::<Value>(payload.codec, &payload.data).unwrap().to_json().to_string()
            }
            Some(ChannelValue::Empty) => "empty".to_owned(),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(shown, ["empty", "[null,true]", "[null,false]", "None", "None"], "the newest comes first");
}

#[test]
fn a_released_node_is_due_in_this_run_and_in_a_later_one() {
    let (graph, store) = (waiting(), Store::memory());
    let done = graph.invoke(&store.thread("at once").unwrap(), DynUpdate::new()).unwrap();
    assert_eq!(said(done.state()), ["a", "b", "last"]);
    let thread = store.thread("later").unwrap();
    graph.run(&thread).interrupt_before(["last"]).invoke(DynUpdate::new()).unwrap();
    store.clear_head_cache();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["last"]);
    assert_eq!(said(graph.invoke(&thread, Input::Continue).unwrap().state()), ["a", "b", "last"]);
}

#[test]
fn a_released_node_is_held_again_by_a_node_that_becomes_due() {
    let (graph, thread) = (waiting(), Store::memory().thread("t").unwrap());
    graph.run(&thread).interrupt_before(["last"]).invoke(DynUpdate::new()).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["last"]);
    graph.update_state(&thread, DynUpdate::new().set("said", "edit"), "a").unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["b"]);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(said(done.state()), ["a", "b", "edit", "b", "last"]);
}

#[test]
fn a_join_that_is_not_complete_holds_no_deferred_node() {
    let graph = StateGraph::with_schema(DynSchema::new().append("said").build())
        .node("a", says("a"))
        .node("never", says("never"))
        .node("join", says("join"))
        .node_with("last", says("last"), NodeOptions::new().defer(true))
        .edge(START, "a")
        .edge("a", "last")
        .join(["a", "never"], "join")
        .branch("last", |_: &DynState| if false { "never" } else { END })
        .compile()
        .unwrap();
    assert_eq!(said(graph.invoke((), DynUpdate::new()).unwrap().state()), ["a", "last"]);
}

#[test]
fn a_superstep_that_failed_as_a_whole_is_made_again_by_each_run() {
    let node = |n: i64| move |_: &DynState| Ok(DynUpdate::new().set("n", n));
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .node("a", node(1))
        .node("b", node(2))
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    let thread = Store::memory().thread("t").unwrap();
    let first = graph.invoke(&thread, DynUpdate::new()).unwrap_err().to_string();
    assert!(first.contains("one value per superstep and got 2"), "{first}");
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap_err().to_string(), first);
    thread.store().clear_head_cache();
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap_err().to_string(), first);
}
