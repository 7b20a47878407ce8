//! Looking back and changing states from outside: histories, updates as nodes, inputs, ends and copies.

use annals::history::{HistoryFilter, PrunePolicy};
use annals::store::Source;
use annals::store::record::TaskKind;
use annals_graph::graph::Own;
use annals_graph::prelude::*;
use annals_graph::{EditProblem, RunError};
use annals_graph::{StateUpdate, UpdateAs};
use macro_rules_attribute::apply;

use crate::backends::{place, same_after_reload};

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Log {
    #[channel(append)]
    lines: List<String>,
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    n: i64,
}

fn line(text: &str) -> LogUpdate {
    Log::update().lines([text.to_string()])
}

fn lines(state: &Log) -> Vec<String> {
    state.lines.to_vec()
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

/// a -> b -> c
fn chain() -> CompiledGraph<Log> {
    let node = |name: &'static str| move |_: &Log| Ok(line(name));
    let graph = StateGraph::<Log>::new().node("a", node("a")).node("b", node("b")).node("c", node("c"));
    graph.edge(START, "a").edge("a", "b").edge("b", "c").compile().unwrap()
}

fn stopped_before_b(graph: &CompiledGraph<Log>, thread: &Thread) {
    graph.run(thread).interrupt_before(["b"]).invoke(Log::update().n(1)).unwrap();
}

fn problem(error: annals_graph::Error) -> EditProblem {
    match error.as_run() {
        Some(RunError::Edit(problem)) => problem.clone(),
        _ => panic!("{error}"),
    }
}

#[apply(each_backend)]
fn an_update_as_end_leaves_nothing_due_and_keeps_what_has_ended() {
    let graph = StateGraph::<Log>::new()
        .node("ask", |_: &Log, ctx: &Context| Ok(ctx.interrupt("?").map(|_| line("answered"))?))
        .node("work", |_: &Log| Ok(line("worked")))
        .edge(START, "ask")
        .edge(START, "work")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let end = graph.update_state(&thread, (), END).unwrap();
    assert_eq!((end.source(), end.step(), end.next().count()), (Source::Update, 1, 0));
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((lines(&state.values), state.next.len(), state.interrupts.len()), (vec!["worked".into()], 0, 0));
    let refused = graph.update_state(&thread, line("x"), END).unwrap_err();
    assert!(matches!(refused.as_run(), Some(RunError::UnknownNode { .. })), "{refused}");
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn an_update_as_input_waits_to_be_taken_and_what_was_due_stays_due() {
    let (graph, thread) = (chain(), thread());
    stopped_before_b(&graph, &thread);
    let input = graph.update_state(&thread, Log::update().n(9), UpdateAs::Input).unwrap();
    assert_eq!((input.source(), input.step()), (Source::Input, 2));
    assert_eq!(graph.get_state(&thread).unwrap().next, [START, "b"]);
    same_after_reload(&graph, &thread);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    // The input starts the graph again beside the node that was due.
    assert_eq!(
        (done.state().n, lines(done.state())),
        (9, vec!["a".into(), "b".into(), "a".into(), "c".into(), "b".into(), "c".into()])
    );
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_copy_stands_beside_its_original_and_can_be_updated_at_once() {
    let (graph, thread) = (chain(), thread());
    graph.invoke(&thread, Log::update().messages([Message::human("hi")])).unwrap();
    let before_b = thread.history_with(HistoryFilter::new().step(1)).unwrap().next().unwrap().unwrap();
    assert_eq!(before_b.next().collect::<Vec<_>>(), ["b"]);

    let copy = graph.update_state(&before_b, (), UpdateAs::Copy).unwrap();
    assert_eq!((copy.source(), copy.step(), copy.record().parent), (Source::Fork, 2, before_b.record().parent));
    assert_eq!(copy.values().unwrap(), before_b.values().unwrap());
    same_after_reload(&graph, &thread);

    let both = StateUpdate::copy_with([StateUpdate::new(line("edited"), "b")]);
    let edited = graph.bulk_update_state(&before_b, [[both]]).unwrap();
    assert_eq!((edited.source(), edited.step(), edited.next().collect::<Vec<_>>()), (Source::Update, 3, vec!["c"]));
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(lines(done.state()), ["a", "edited", "c"]);
    // The copy shows the update as the result of its task; the original keeps its own.
    let result = |at: &Snapshot| graph.get_state(at).unwrap().tasks[0].result.clone().unwrap()["lines"].clone();
    assert_eq!(result(&edited.parent().unwrap().unwrap()), Value::from(vec!["edited"]));
    assert_eq!(result(&before_b), Value::from(vec!["b"]));
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_copy_of_an_input_can_be_run_and_a_copy_in_bulk_copies_what_was_just_made() {
    let (graph, thread) = (chain(), thread());
    graph.invoke(&thread, Log::update().n(7)).unwrap();
    let input = thread.history().unwrap().last().unwrap().unwrap();
    let copy = graph.update_state(&input, (), "__copy__").unwrap();
    assert_eq!((copy.step(), copy.record().parent), (0, None));
    thread.store().clear_head_cache();
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!((done.state().n, lines(done.state()).len()), (7, 3));

    let made = graph.bulk_update_state(
        &thread,
        [vec![StateUpdate::new(line("x"), "a")], vec![StateUpdate::new((), UpdateAs::Copy)]],
    );
    let made = made.unwrap();
    assert_eq!((made.source(), made.next().collect::<Vec<_>>()), (Source::Fork, vec!["b"]));
    same_after_reload(&graph, &thread);
    let fresh = thread.store().thread("fresh").unwrap();
    let nothing = graph.update_state(&fresh, (), UpdateAs::Copy).unwrap_err();
    assert_eq!(problem(nothing), EditProblem::NothingToCopy);
}

#[apply(each_backend)]
fn updates_in_bulk_make_all_supersteps_or_none() {
    let (graph, thread) = (chain(), thread());
    stopped_before_b(&graph, &thread);
    let update = |text, node: &str| StateUpdate::new(line(text), node);
    graph.bulk_update_state(&thread, [vec![update("B", "b"), update("A", "a")], vec![update("C", "c")]]).unwrap();
    let history: Vec<_> = graph.get_state_history(&thread).unwrap().map(Result::unwrap).collect();
    assert_eq!(lines(&history[0].values), ["a", "B", "A", "C"]);
    assert_eq!(history[1].next, ["b", "c"], "the edges of both were followed");
    assert_eq!(
        history[2].tasks[0].result.as_ref().unwrap()["lines"],
        Value::from(vec!["B"]),
        "the task of b has ended"
    );
    same_after_reload(&graph, &thread);

    let before = thread.head().unwrap();
    let fails =
        |supersteps: Vec<Vec<StateUpdate<Log>>>| problem(graph.bulk_update_state(&thread, supersteps).unwrap_err());
    assert_eq!(fails(vec![]), EditProblem::NoSupersteps);
    assert_eq!(fails(vec![vec![update("x", "a")], vec![]]), EditProblem::NoUpdates { superstep: 1 });
    assert_eq!(fails(vec![vec![update("x", "a"), StateUpdate::new((), None)]]), EditProblem::NeedsNode);
    assert_eq!(
        fails(vec![vec![update("x", "a")], vec![update("x", "a"), update("y", "__input__")]]),
        EditProblem::NotAlone { as_node: "__input__" }
    );
    assert_eq!(fails(vec![vec![update("x", "__copy__")]]), EditProblem::Unexpected { as_node: "__copy__" });
    assert_eq!(thread.head().unwrap(), before);
}

#[apply(each_backend)]
fn an_old_checkpoint_keeps_its_results_when_it_is_updated() {
    let (graph, thread) = (chain(), thread());
    stopped_before_b(&graph, &thread);
    let at_break = thread.head().unwrap().unwrap();
    graph.update_state(&at_break, line("B1"), "b").unwrap();
    graph.update_state(&at_break, line("B2"), "b").unwrap();
    let first = graph.get_state(&at_break).unwrap().tasks[0].result.clone().unwrap();
    assert_eq!(first["lines"], Value::from(vec!["B1"]));
    assert_eq!(lines(&graph.get_state(&thread).unwrap().values), ["a", "B2"]);
    same_after_reload(&graph, &thread);
}

/// Updates without a graph leave the input due that a fork of its checkpoint found.
#[apply(each_backend)]
fn an_input_that_waits_below_updates_survives_prunings() {
    let (graph, thread) = (chain(), thread());
    graph.invoke(&thread, Log::update().n(7)).unwrap();
    let input = thread.history().unwrap().last().unwrap().unwrap();
    let last = PrunePolicy::new().keep_last(1);
    let shown = |of: &Thread| of.history().unwrap().count();

    let fork = input.fork_to("fork").unwrap();
    fork.update(line("one")).unwrap();
    fork.copy_to("whole").unwrap();
    fork.copy_to("pruned").unwrap();
    let names = ["fork", "whole", "pruned"].map(|name| thread.store().thread(name).unwrap());
    for text in ["two", "three"] {
        for (of, kept) in names.iter().zip([1, 0, 1]) {
            of.update(line(text)).unwrap();
            if kept > 0 {
                of.prune(&last).unwrap();
                assert_eq!(shown(of), kept, "{}", of.id());
            }
        }
        thread.prune(&last).unwrap();
        assert_eq!(shown(&thread), 2, "the fork rests on the input");
    }
    thread.store().clear_head_cache();
    for of in &names {
        let done = graph.invoke(of, Input::Continue).unwrap();
        let expected = ["one", "two", "three", "a", "b", "c"];
        assert_eq!((done.state().n, lines(done.state())), (7, expected.map(String::from).to_vec()), "{}", of.id());
    }
}

#[apply(each_backend)]
fn the_node_that_wrote_last_is_found_or_asked_for() {
    let node = |name: &'static str| move |_: &Log| Ok(line(name));
    let graph = StateGraph::<Log>::new().node("a", node("a")).node("b", node("b")).node("c", node("c"));
    let graph = graph.edge(START, "a").edge(START, "b").join(["a", "b"], "c").compile().unwrap();
    let thread = thread();
    graph.run(&thread).interrupt_before(["a"]).invoke(Log::update()).unwrap();
    // Only the input has run.
    let as_input = graph.update_state(&thread, line("in"), None).unwrap();
    assert_eq!(as_input.next().collect::<Vec<_>>(), ["a", "b"]);
    graph.run(&thread).interrupt_before(["c"]).invoke(Input::Continue).unwrap();
    let ambiguous = graph.update_state(&thread, line("x"), None).unwrap_err();
    assert!(matches!(ambiguous.as_run(), Some(RunError::AmbiguousUpdate { candidates }) if candidates.len() == 3));
}

#[apply(each_backend)]
fn histories_are_filtered_without_reading_states() {
    let (graph, thread) = (chain(), thread());
    for user in ["ann", "bob"] {
        let metadata = serde_json::json!({"user": user});
        graph.run(&thread).metadata(metadata.as_object().unwrap().clone()).invoke(Log::update().n(1)).unwrap();
    }
    let steps = |filter: HistoryFilter| -> Vec<i64> {
        graph.state_history(&thread, filter).unwrap().map(|state| state.unwrap().step.unwrap()).collect()
    };
    assert_eq!(steps(HistoryFilter::new()), [8, 7, 6, 5, 4, 3, 2, 1, 0, -1]);
    assert_eq!(steps(HistoryFilter::new().source(Source::Input)), [4, -1]);
    assert_eq!(steps(HistoryFilter::new().metadata("user", "ann").limit(2)), [3, 2]);
    assert_eq!(steps(HistoryFilter::new().step(2)), [2]);
    assert_eq!(steps(HistoryFilter::new().limit(0)), [0; 0]);
    let second = thread.history_with(HistoryFilter::new().step(2)).unwrap().next().unwrap().unwrap();
    assert_eq!(steps(HistoryFilter::new().before(second.id())), [1, 0, -1]);
    let alone: Vec<_> = graph.get_state_history(&second).unwrap().collect();
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].as_ref().unwrap().checkpoint, Some(second.id()));
}

#[apply(each_backend)]
fn tasks_show_what_made_them_due_and_every_write() {
    let graph = StateGraph::<Log>::new()
        .node("split", |_: &Log| {
            let sends = [SendTo::new("work", 1), SendTo::new("work", 2)].map(Command::goto);
            Ok(sends.into_iter().chain([Command::update(line("x")), Command::update(line("y"))]).collect::<Vec<_>>())
        })
        .node("work", Own(|n: i64| Ok(line(&format!("work {n}")))))
        .edge(START, "split")
        .compile()
        .unwrap();
    let thread = thread();
    let mut updates = Vec::new();
    for part in graph.stream(&thread, Log::update(), &[StreamMode::Updates]).unwrap() {
        if let StreamData::Updates(update) = part.unwrap().data {
            updates.push(update.writes.to_update().unwrap().to_json());
        }
    }
    assert_eq!(updates[0], serde_json::json!([{"lines": ["x"]}, {"lines": ["y"]}]));
    let history: Vec<_> = graph.get_state_history(&thread).unwrap().map(Result::unwrap).collect();
    let kinds: Vec<_> = history[1].tasks.iter().map(|task| task.kind.clone()).collect();
    assert_eq!(kinds, [TaskKind::Push { index: 0 }, TaskKind::Push { index: 1 }]);
    let result = history[2].tasks[0].result.clone().unwrap();
    assert_eq!(Value::Map(result).to_json(), serde_json::json!({"lines": {"$writes": [["x"], ["y"]]}}));
}

#[test]
fn there_is_no_state_without_a_thread() {
    let graph = chain();
    let shown = graph.get_state(()).unwrap_err();
    assert!(matches!(shown.as_run(), Some(RunError::NoThread)), "{shown}");
    let listed = graph.get_state_history(()).unwrap_err();
    let updated = graph.update_state((), line("x"), "a").unwrap_err();
    assert_eq!([shown.class(), listed.class(), updated.class()], ["ValueError"; 3]);
}

#[apply(each_backend)]
fn what_a_store_does_not_have_has_class_and_code() {
    let (graph, thread) = (chain(), thread());
    let of = |error: annals_graph::Error| (error.class(), error.code());
    let unknown = of(thread.at("1f0d").unwrap_err().into());
    assert_eq!(unknown, ("EmptyInputError", Some("THREAD_NOT_FOUND")));
    graph.invoke(&thread, line("x")).unwrap();
    let unknown = of(thread.at("ffff").unwrap_err().into());
    assert_eq!(unknown, ("EmptyInputError", Some("CHECKPOINT_NOT_FOUND")));
    let invalid = of(thread.store().thread("").unwrap_err().into());
    assert_eq!(invalid, ("ValueError", Some("INVALID_ID")));
}
