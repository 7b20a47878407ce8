//! Channels, schemas and deferred nodes, typed and dynamic, in memory and in a file.

use annals::channel::ChannelError;
use annals::state::DynState;
use annals::state::StateError;
use annals_graph::graph::Own;
use annals_graph::prelude::*;
use annals_graph::{ErrorKind, RunError};
use macro_rules_attribute::apply;

use crate::backends::place;

fn add(old: i64, new: i64) -> i64 {
    old + new
}

fn longest(old: String, new: String) -> String {
    if new.len() > old.len() { new } else { old }
}

fn fails(_: i64, _: i64) -> i64 {
    panic!("no sum today")
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct All {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    lines: List<String>,
    #[channel(reduce = add)]
    total: i64,
    #[channel(reduce = longest, starts_empty)]
    longest: String,
    #[channel(any)]
    any: Option<i64>,
    #[channel(ephemeral)]
    once: Option<i64>,
    #[channel(untracked, unguarded)]
    loose: Option<i64>,
    #[channel(topic)]
    words: Vec<String>,
    #[channel(topic, accumulate)]
    all_words: Vec<String>,
    #[channel(reduce = fails)]
    bad: i64,
    #[channel(last, private)]
    note: String,
    #[channel(remaining_steps)]
    left: i64,
    #[channel(is_last_step)]
    last: bool,
    n: i64,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

/// A graph of nodes that run one after another.
fn chain(nodes: Vec<fn(&All) -> NodeResult<AllUpdate>>) -> CompiledGraph<All> {
    let mut graph = StateGraph::<All>::new();
    let mut before = START.to_string();
    for (at, node) in nodes.into_iter().enumerate() {
        let name = format!("n{at}");
        graph = graph.node(name.as_str(), node).edge(before.as_str(), name.as_str());
        before = name;
    }
    graph.compile().unwrap()
}

/// A graph of nodes that run side by side.
fn abreast(nodes: Vec<fn(&All) -> NodeResult<AllUpdate>>) -> CompiledGraph<All> {
    let mut graph = StateGraph::<All>::new();
    for (at, node) in nodes.into_iter().enumerate() {
        let name = format!("n{at}");
        graph = graph.node(name.as_str(), node).edge(START, name.as_str());
    }
    graph.compile().unwrap()
}

fn again(graph: &CompiledGraph<All>, thread: &Thread) -> All {
    thread.store().clear_head_cache();
    graph.get_state(thread).unwrap().values.as_ref().clone()
}

#[apply(each_backend)]
fn what_lasts_for_one_superstep_is_gone_after_it() {
    let graph = chain(vec![
        |_| Ok(All::update().any(1).once(2).words(["a".into()]).all_words(["a".into()])),
        |s| {
            assert_eq!((s.any, s.once, s.words.as_slice()), (Some(1), Some(2), ["a".to_string()].as_slice()));
            Ok(All::update().all_words(["b".into()]))
        },
        |s| {
            assert_eq!((s.any, s.once, s.words.len(), s.all_words.len()), (None, None, 0, 2));
            Ok(All::update())
        },
    ]);
    let thread = thread();
    let done = graph.invoke(&thread, All::update().n(1)).unwrap();
    assert_eq!(again(&graph, &thread), *done.state());
}

#[apply(each_backend)]
fn a_reducer_that_starts_empty_takes_the_first_write_as_it_is() {
    let graph = chain(vec![|_| Ok(All::update().longest("bb").total(2)), |_| Ok(All::update().longest("a").total(3))]);
    let thread = thread();
    assert_eq!(graph.invoke(&thread, All::update()).unwrap().state().longest, "bb");
    let state = again(&graph, &thread);
    assert_eq!((state.longest.as_str(), state.total), ("bb", 5));
}

#[apply(each_backend)]
fn an_overwrite_replaces_reducers_lists_and_messages_and_is_stored() {
    let graph = chain(vec![
        |_| Ok(All::update().total(5).lines(["a".into(), "b".into()]).messages([Message::human("old")])),
        |_| {
            let new = All::update().overwrite_total(1).overwrite_lines(["new".into(), "er".into()]);
            Ok(new.overwrite_messages([Message::ai("fresh"), Message::ai("er")]))
        },
        |_| Ok(All::update().total(1).lines(["end".into()]).messages([Message::human("bye")])),
    ]);
    let thread = thread();
    graph.invoke(&thread, All::update().lines(["i".into()])).unwrap();
    let state = again(&graph, &thread);
    let texts: Vec<_> = state.messages.iter().map(Message::text).map(|text| text.to_string()).collect();
    assert_eq!((state.total, state.lines.to_vec()), (2, vec!["new".into(), "er".into(), "end".to_string()]));
    assert_eq!(texts, ["fresh", "er", "bye"]);
    let before = graph.get_state(&thread.history().unwrap().nth(2).unwrap().unwrap()).unwrap();
    assert_eq!(before.values.lines.to_vec(), ["i", "a", "b"]);
    let shown = before.tasks[0].result.as_ref().unwrap();
    assert_eq!(shown["total"].get("__overwrite__"), Some(&Value::from(1)));
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[test]
fn an_overwrite_hides_its_siblings_and_is_alone() {
    let one = abreast(vec![|_| Ok(All::update().total(7).lines(["x".into()])), |_| {
        Ok(All::update().overwrite_total(1).overwrite_lines(["y".into()]))
    }]);
    let done = one.invoke((), All::update().total(100)).unwrap();
    assert_eq!((done.state().total, done.state().lines.to_vec()), (1, vec!["y".to_string()]));
    for update in [|_: &All| Ok(All::update().overwrite_total(1)), |_: &All| Ok(All::update().overwrite_lines([]))] {
        let error = abreast(vec![update, update]).invoke((), All::update()).unwrap_err();
        assert_eq!(error.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"), "{error}");
    }
}

#[apply(each_backend)]
fn guards_refuse_two_writes_without_a_code_and_last_values_with_one() {
    let thread = thread();
    let guarded = abreast(vec![|_| Ok(All::update().once(1)), |_| Ok(All::update().once(2))]);
    let error = guarded.invoke(&thread, All::update()).unwrap_err();
    let is_guard = |error: &annals_graph::Error| {
        matches!(
            error.as_run(),
            Some(RunError::State(StateError::Channel { source: ChannelError::Guarded { writes: 2 }, .. }))
        )
    };
    assert!(is_guard(&error) && error.code().is_none(), "{error}");
    let last = abreast(vec![|_| Ok(All::update().n(1)), |_| Ok(All::update().n(2))]);
    assert_eq!(last.invoke(&thread, All::update()).unwrap_err().code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
    let loose = abreast(vec![|_| Ok(All::update().loose(1)), |_| Ok(All::update().loose(2))]);
    let done = loose.invoke(&thread, All::update()).unwrap();
    assert_eq!(done.state().loose, Some(2));
    assert_eq!(again(&loose, &thread).loose, None, "it is not stored");
}

#[apply(each_backend)]
fn a_reducer_that_panics_fails_the_run_and_not_the_store() {
    let graph = chain(vec![|_| Ok(All::update().bad(1).total(1))]);
    let thread = thread();
    let error = graph.invoke(&thread, All::update().total(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.to_string().contains("no sum today") && error.to_string().contains("bad"), "{error}");
    let fine = chain(vec![|_| Ok(All::update().total(1))]);
    assert_eq!(fine.invoke(&thread, All::update().total(1)).unwrap().state().total, 3);
}

#[test]
fn managed_values_tell_how_far_the_run_may_go() {
    let graph = StateGraph::<All>::new()
        .node("n", |s: &All, ctx: &Context| {
            assert_eq!((s.left, s.last), (ctx.remaining_steps(), ctx.remaining_steps() == 1));
            Ok(All::update().lines([format!("{} {}", s.left, s.last)]))
        })
        .edge(START, "n")
        .branch("n", |s: &All| if s.last { END } else { "n" })
        .compile()
        .unwrap();
    let done = graph.run(()).recursion_limit(4).invoke(All::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["3 false", "2 false", "1 true"]);
}

#[apply(each_backend)]
fn deferred_nodes_wait_also_over_a_restart() {
    let log = |name: &'static str| move |_: &DynState| Ok(DynUpdate::new().set("log", name));
    let graph = || {
        StateGraph::with_schema(DynSchema::new().append("log").build())
            .node("a", log("a"))
            .node("b", log("b"))
            .node("b2", log("b2"))
            .node_with("join", log("join"), NodeOptions::new().defer(true))
            .node_with("z", log("z"), NodeOptions::new().defer(true))
            .node("after", log("after"))
            .edge(START, "a")
            .edge(START, "b")
            .edge("b", "b2")
            .edge("a", "z")
            .join(["a", "b"], "join")
            .edge("z", "after")
            .interrupt_before(["b2"])
            .compile()
            .unwrap()
    };
    let thread = thread();
    let first = graph();
    first.invoke(&thread, DynUpdate::new()).unwrap();
    assert_eq!(first.get_state(&thread).unwrap().next, ["b2"], "z and join are held");
    thread.store().clear_head_cache();
    let done = graph().invoke(&thread, Input::Continue).unwrap();
    let names: Vec<_> =
        done.state().list("log").unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["a", "b", "b2", "join", "z", "after"]);
    thread.store().clear_head_cache();
    assert!(graph().get_state(&thread).unwrap().next.is_empty());
}

#[apply(each_backend)]
fn a_dynamic_state_tells_null_from_nothing_and_shows_writes_as_they_were_made() {
    let schema = || DynSchema::new().last("x").last("y").append("l").topic("t", true).messages("m");
    let graph = StateGraph::with_schema(schema().build())
        .node("n", |s: &DynState| {
            assert!(s.is_set("x") && s.get("x").is_null() && !s.is_set("y"));
            let update =
                DynUpdate::new().set("l", "one").set("t", "word").set("t", Value::List(vec![1.into(), 2.into()]));
            Ok(update.set("m", Value::from_serialize(&Message::ai("hi")).map_err(|error| error.to_string())?))
        })
        .edge(START, "n")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, DynUpdate::new().set("x", Value::Null)).unwrap();
    thread.store().clear_head_cache();
    let now = graph.get_state(&thread).unwrap();
    let map = now.values.to_map();
    assert_eq!(map.keys().collect::<Vec<_>>(), ["x", "l", "t", "m"]);
    assert_eq!(map["t"], Value::List(vec!["word".into(), 1.into(), 2.into()]));
    assert_eq!(map["l"], Value::List(vec!["one".into()]));
    let before = graph.get_state(&thread.history().unwrap().nth(1).unwrap().unwrap()).unwrap();
    let result = before.tasks[0].result.as_ref().unwrap();
    assert_eq!(result["l"], Value::from("one"));
    assert_eq!(result["m"].get("content"), Some(&Value::from("hi")));
}

#[apply(each_backend)]
fn schemas_say_what_goes_in_and_out_and_what_a_node_reads() {
    let schema = DynSchema::new().last("x").last("y").last("z").last("p").private().build();
    let graph = StateGraph::with_schema(schema)
        .node("write", |s: &DynState| {
            assert_eq!(s.to_map().keys().collect::<Vec<_>>(), ["x"], "z is no input, p was not written");
            Ok(DynUpdate::new().set("p", "secret").set("y", 1))
        })
        .node_with(
            "read",
            Own(|given: Value| {
                let keys: Vec<_> = given.as_map().unwrap().keys().cloned().collect();
                Ok(DynUpdate::new().set("z", keys.join(",")))
            }),
            NodeOptions::new().input(["p", "x"]),
        )
        .node("last", |s: &DynState| {
            assert!(!s.is_set("p"), "nobody told it of p");
            Ok(())
        })
        .edge(START, "write")
        .edge("write", "read")
        .edge("read", "last")
        .input_channels(["x"])
        .output_channels(["z"])
        .compile()
        .unwrap();
    let done = graph.invoke(&thread(), DynUpdate::new().set("x", 0).set("z", 9)).unwrap();
    assert_eq!(done.state().get("z"), &Value::from("x,p"));
    assert_eq!(done.state().get("p"), &Value::from("secret"));
}

#[test]
fn problems_with_schemas_are_found_when_compiling() {
    let plain = || StateGraph::with_schema(DynSchema::new().last("x").is_last_step("end").build());
    let problems = |graph: StateGraph<DynState>| {
        let graph = graph.node("n", |_: &DynState| Ok(())).edge(START, "n");
        graph.compile().unwrap_err().to_string()
    };
    let unknown = plain().input_channels(["nope"]).output_channels(["end"]);
    let text = problems(unknown);
    assert!(text.contains("the input names channel \"nope\"") && text.contains("\"end\", which is a managed value"));
    let root = StateGraph::with_schema(DynSchema::new().last("__root__").last("x").build());
    assert!(problems(root).contains("has no other channels"));
    let reserved = StateGraph::with_schema(DynSchema::new().last("__pregel_tasks").last("checkpoint_ns").build());
    assert!(problems(reserved).contains("2 reasons"));
}

#[apply(each_backend)]
fn a_state_can_be_one_value() {
    let sum = |old: Value, new: Value| Ok(Value::from(old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0)));
    let graph = StateGraph::with_schema(DynSchema::new().reduce_from("__root__", 0, sum).build())
        .node("double", Own(|n: i64| Ok(DynUpdate::root(n))))
        .node("state", |s: &DynState| Ok(DynUpdate::root(s.root().into_owned())))
        .edge(START, "double")
        .edge("double", "state")
        .compile()
        .unwrap();
    let thread = thread();
    assert_eq!(graph.invoke(&thread, DynUpdate::root(3)).unwrap().state().root().as_ref(), &Value::from(12));
    thread.store().clear_head_cache();
    assert_eq!(graph.invoke(&thread, DynUpdate::root(1)).unwrap().state().root().as_ref(), &Value::from(52));
}

#[derive(State, Clone, Default, Debug)]
struct Narrow {
    total: String,
    n: i64,
}

#[apply(each_backend)]
fn a_stored_value_of_another_type_names_channel_and_types_and_the_others_stay_readable() {
    let thread = thread();
    chain(vec![|_| Ok(All::update().total(41).n(7))]).invoke(&thread, All::update()).unwrap();
    let build = |schema: Schema<Narrow>| {
        let node = |s: &Narrow| Ok(Narrow::update().total(format!("{}!", s.total)));
        StateGraph::with_schema(schema).node("n0", node).edge(START, "n0").compile().unwrap()
    };
    let error = build(Schema::of()).get_state(&thread).unwrap_err();
    match error.as_run() {
        Some(RunError::State(StateError::Misfit { channel, expected, stored, .. })) => {
            assert_eq!((&**channel, *stored), ("total", "int"));
            assert!(expected.contains("String"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(thread.head().unwrap().unwrap().get("n").unwrap(), Some(Value::from(7)));
    let wrong = Schema::of().migrate("total", |_| Err("I do not know how".to_string()));
    assert!(build(wrong).get_state(&thread).unwrap_err().to_string().contains("I do not know how"));
    let right = Schema::of().migrate("total", |old| Ok(Value::from(old.as_int().unwrap_or(0).to_string())));
    let graph = build(right);
    assert_eq!(graph.get_state(&thread).unwrap().values.total, "41");
    let done = graph.invoke(&thread, Narrow::update().n(8)).unwrap();
    assert_eq!((done.state().total.as_str(), done.state().n), ("41!", 8));
}

#[derive(State, Clone, Default)]
#[state(part_of = All)]
struct Asked {
    n: i64,
    #[channel(append)]
    lines: List<String>,
}

#[derive(State, Clone, Default)]
#[state(part_of = All)]
struct Answered {
    note: String,
    #[channel(append)]
    lines: List<String>,
}

#[apply(each_backend)]
fn parts_of_a_state_are_inputs_outputs_and_updates() {
    let graph = StateGraph::<All>::new()
        .node("ask", |asked: &Asked, ctx: &Context| {
            let lines = [format!("{} {}", ctx.node(), asked.n)].into_iter().collect();
            Ok(Answered { note: format!("{} lines", asked.lines.len()), lines })
        })
        .node("more", |_: &Asked| Ok(Answered::update().lines(["more".to_string()])))
        .edge(START, "ask")
        .edge("ask", "more")
        .input::<Asked>()
        .output::<Answered>()
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Asked::update().n(3).lines(["in".to_string()])).unwrap();
    let answered: Answered = done.output();
    assert_eq!(answered.note, "1 lines");
    assert_eq!(answered.lines.to_vec(), ["in", "ask 3", "more"]);
    graph.update_state(&thread, Answered { note: "edited".into(), lines: List::new() }, Some("more")).unwrap();
    assert_eq!(again(&graph, &thread).note, "edited");
}
