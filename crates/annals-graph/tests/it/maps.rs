//! Graphs with map and text channels, and threads whose reducers became channels that store their changes.

use annals::store::log::LogExt;
use std::collections::BTreeMap;

use annals::state::{KeyMap, Text};
use annals::store::ItemRange;
use annals_graph::Durability;
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;
use macro_rules_attribute::apply;

use crate::backends::{place, same_after_reload};

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Agent {
    #[channel(map)]
    files: KeyMap<i64>,
    #[channel(text)]
    log: Text,
    turn: i64,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn files(state: &Agent) -> Vec<(String, i64)> {
    state.files.to_btree_map().into_iter().collect()
}

fn pairs(entries: &[(&str, i64)]) -> Vec<(String, i64)> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

/// Two nodes side by side that write one map and one text, and one after them that removes a key.
fn abreast() -> CompiledGraph<Agent> {
    StateGraph::<Agent>::new()
        .node("a", |s: &Agent| Ok(Agent::update().files([("a", s.turn), ("both", 1)]).log("a")))
        .node("b", |s: &Agent| Ok(Agent::update().files([("b", s.turn), ("both", 2)]).log("b")))
        .node("c", |s: &Agent| {
            let seen = s.files.len() as i64;
            Ok(Agent::update()
                .remove_files(["a"])
                .files([("seen", seen), ("gone", 0)])
                .remove_files(["gone"])
                .log("c;"))
        })
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", "c")
        .edge("b", "c")
        .edge("c", END)
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn tasks_of_a_superstep_write_one_map_and_one_text_in_their_order() {
    let (graph, thread) = (abreast(), thread());
    for turn in 1..4 {
        let done = graph.invoke(&thread, Agent::update().turn(turn)).unwrap();
        assert_eq!(files(done.state()), pairs(&[("b", turn), ("both", 2), ("seen", if turn == 1 { 3 } else { 4 })]));
        same_after_reload(&graph, &thread);
    }
    assert_eq!(graph.get_state(&thread).unwrap().values.log, *"abc;abc;abc;");
    let head = thread.at("@").unwrap();
    assert_eq!(head.blame("files").entry("both").unwrap().unwrap().node.as_deref(), Some("b"));
    assert_eq!(head.blame("files").entry("seen").unwrap().unwrap().node.as_deref(), Some("c"));
    assert_eq!(head.text_tail("log", 3).unwrap(), "bc;");
}

#[apply(each_backend)]
fn a_run_that_is_stored_at_its_end_holds_the_same_map() {
    let (graph, thread) = (abreast(), thread());
    for turn in 1..4 {
        graph.run(&thread).durability(Durability::Exit).invoke(Agent::update().turn(turn)).unwrap();
        same_after_reload(&graph, &thread);
    }
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(
        (files(&state.values), state.values.log == *"abc;abc;abc;"),
        (pairs(&[("b", 3), ("both", 2), ("seen", 4)]), true)
    );
}

#[apply(each_backend)]
fn an_edit_and_a_replay_go_on_from_the_map_of_their_checkpoint() {
    let (graph, thread) = (abreast(), thread());
    graph.invoke(&thread, Agent::update().turn(1)).unwrap();
    graph.update_state(&thread, Agent::update().overwrite_files([("new", 7)]).overwrite_log("edited"), "c").unwrap();
    graph.invoke(&thread, Agent::update().turn(2)).unwrap();
    same_after_reload(&graph, &thread);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(files(&state.values), pairs(&[("b", 2), ("both", 2), ("new", 7), ("seen", 4)]));
    assert_eq!(state.values.log, *"editedabc;");
    let first = thread.at("{step:0}").unwrap();
    let fork = first.fork_to("fork").unwrap();
    graph.invoke(&fork, Input::Continue).unwrap();
    assert_eq!(files(&graph.get_state(&fork).unwrap().values), pairs(&[("b", 1), ("both", 2), ("seen", 3)]));
}

#[apply(each_backend)]
fn a_subgraph_shares_the_map_and_the_text_of_its_parent_graph() {
    let ways = [Persistence::Stateless, Persistence::PerInvocation];
    for (persistence, durability) in ways.into_iter().flat_map(|way| [(way, Durability::Sync), (way, Durability::Exit)])
    {
        let inner = StateGraph::<Agent>::new()
            .node("inside", |s: &Agent| {
                Ok(Agent::update().files([("inside", s.files.len() as i64), ("a", 10)]).log("inside;"))
            })
            .edge(START, "inside")
            .edge("inside", END)
            .persistence(persistence)
            .compile()
            .unwrap();
        let graph = StateGraph::<Agent>::new()
            .node("before", |_: &Agent| {
                Ok(Agent::update().files((0..50).map(|n| (n.to_string(), n))).files([("a", 1)]))
            })
            .node("inner", inner)
            .edge(START, "before")
            .edge("before", "inner")
            .edge("inner", END)
            .compile()
            .unwrap();
        let thread = place().thread(format!("{persistence:?} {durability:?}")).unwrap();
        graph.run(&thread).durability(durability).invoke(Agent::update().log("start;")).unwrap();
        same_after_reload(&graph, &thread);
        let state = graph.get_state(&thread).unwrap();
        assert_eq!(
            (state.values.files.len(), state.values.files.get("inside"), state.values.files.get("a")),
            (52, Some(&51), Some(&10))
        );
        let (head, mut put) = (thread.at("@").unwrap(), 0);
        let visit = &mut |row: annals::store::record::ItemRow<'_>| {
            put += usize::from(row.ordinal == head.record().ordinal);
            Ok(())
        };
        thread.store().backend().items(head.point(), "files", ItemRange::All, visit).unwrap();
        let expected = if durability == Durability::Exit { 52 } else { 2 };
        assert_eq!(put, expected, "only the entries come back that differ");
    }
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
}

#[apply(each_backend)]
fn a_stateless_subgraph_of_a_run_that_is_stored_at_its_end_returns_the_messages_that_differ() {
    let inner = StateGraph::<Chat>::new()
        .node("inside", |_: &Chat| Ok(Chat::update().messages([Message::ai("new").with_id("new")])))
        .edge(START, "inside")
        .persistence(Persistence::Stateless)
        .compile()
        .unwrap();
    let graph = StateGraph::<Chat>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = thread();
    let before = ["1", "2", "3"].map(|id| Message::human(id).with_id(id));
    graph.run(&thread).durability(Durability::Exit).invoke(Chat::update().messages(before)).unwrap();
    same_after_reload(&graph, &thread);
    let texts = ["1", "2", "3", "new"];
    assert!(graph.get_state(&thread).unwrap().values.messages.iter().map(|message| message.text()).eq(texts));
}

fn joined(mut old: Vec<String>, new: Vec<String>) -> Vec<String> {
    old.extend(new);
    old
}

fn merged(mut old: BTreeMap<String, i64>, new: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    old.extend(new);
    old
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Reduced {
    #[channel(reduce = joined)]
    lines: Vec<String>,
    #[channel(reduce = merged)]
    files: BTreeMap<String, i64>,
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Grown {
    #[channel(append)]
    lines: List<String>,
    #[channel(map)]
    files: KeyMap<i64>,
}

fn reduced() -> CompiledGraph<Reduced> {
    let write = |s: &Reduced| {
        let key = s.lines.len().to_string();
        Ok(Reduced::update().lines(vec![format!("line {key}")]).files(BTreeMap::from([(key, 0)])))
    };
    StateGraph::<Reduced>::new().node("write", write).edge(START, "write").edge("write", END).compile().unwrap()
}

fn grown(persistence: Persistence) -> CompiledGraph<Grown> {
    let write = |s: &Grown| {
        let key = s.lines.len().to_string();
        Ok(Grown::update().lines([format!("line {key}")]).files([(key, 1)]))
    };
    let idle = |_: &Grown| Ok(Grown::update());
    StateGraph::<Grown>::new()
        .node("idle", idle)
        .node("write", write)
        .edge(START, "idle")
        .edge("idle", "write")
        .edge("write", END)
        .persistence(persistence)
        .compile()
        .unwrap()
}

fn lines(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("line {n}")).collect()
}

#[apply(each_backend)]
fn a_graph_goes_on_with_a_list_where_one_with_a_reducer_ended() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let (before, after) = (reduced(), grown(Persistence::default()));
        let thread = place().thread(format!("{durability:?}")).unwrap();
        for _ in 0..3 {
            before.invoke(&thread, Reduced::update()).unwrap();
        }
        let past = thread.at("@").unwrap();
        for count in 4..7 {
            let done = after.run(&thread).durability(durability).invoke(Grown::update()).unwrap();
            assert_eq!(done.state().lines.to_vec(), lines(count));
            same_after_reload(&after, &thread);
        }
        let state = after.get_state(&thread).unwrap();
        let written: Vec<i64> = state.values.files.iter().map(|(_, value)| *value).collect();
        assert_eq!(written, [0, 0, 0, 1, 1, 1]);
        assert_eq!(past.state::<Reduced>().unwrap().lines, lines(3));

        // A fork of the past goes on by itself, and an edit is the first change as well as a run.
        let fork = past.fork_to(format!("fork {durability:?}")).unwrap();
        after.update_state(&fork, Grown::update().lines(["edited".to_string()]).remove_files(["0"]), "write").unwrap();
        same_after_reload(&after, &fork);
        after.invoke(&fork, Grown::update()).unwrap();
        let state = after.get_state(&fork).unwrap();
        assert_eq!((state.values.lines.len(), state.values.files.len()), (5, 3));
        same_after_reload(&after, &fork);
        let error = before.get_state(&thread).unwrap_err();
        assert!(error.to_string().contains("not a list of items"), "{error}");
    }
}

#[apply(each_backend)]
fn a_reduced_list_is_given_to_a_subgraph_before_it_is_stored_as_a_list() {
    let thread = thread();
    reduced().invoke(&thread, Reduced::update()).unwrap();
    for persistence in [Persistence::PerInvocation, Persistence::Stateless] {
        let graph = StateGraph::<Grown>::new()
            .node("inner", grown(persistence))
            .edge(START, "inner")
            .edge("inner", END)
            .compile()
            .unwrap();
        let fork = thread.at("@").unwrap().fork_to(format!("{persistence:?}")).unwrap();
        let done = graph.invoke(&fork, Grown::update()).unwrap();
        assert!(done.state().lines.iter().any(|line| line == "line 1"), "{:?}", done.state().lines);
        assert_eq!(done.state().files.len(), 2);
        same_after_reload(&graph, &fork);
    }
}
