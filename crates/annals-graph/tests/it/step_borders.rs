//! Supersteps at their borders: states that are loaded and edited, plans, events, and timers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::base::WriteValue;
use annals::history::OnConflict;
use annals::state::DynState;
use annals::store::record::WriteRecord;
use annals_graph::graph::{Entrypoint, Final};
use annals_graph::prelude::*;
use annals_graph::{Durability, StateUpdate, UpdateAs, block_on};
use macro_rules_attribute::apply;

use crate::backends::{new_thread, same_after_reload};
use crate::line_state::{Log, LogUpdate, line, run_on, start};
use crate::test_clock::{at, timed};

const HOUR: Duration = Duration::from_secs(3_600);

fn idle(_: &Log) -> NodeResult<()> {
    Ok(())
}

fn ask(_: &Log, context: &Context) -> NodeResult<LogUpdate> {
    Ok(line(context.interrupt("?")?.as_str().unwrap_or_default()))
}

fn lines(state: &Log) -> Vec<String> {
    state.lines.to_vec()
}

fn now(graph: &CompiledGraph<Log>, thread: &Thread) -> Vec<String> {
    lines(&graph.get_state(thread).unwrap().values)
}

fn sound(thread: &Thread) {
    let problems = thread.store().check().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// Two nodes beside each other.
fn pair() -> CompiledGraph<Log> {
    let node = |name: &'static str| move |_: &Log| Ok(line(name));
    let graph = StateGraph::<Log>::new().node("a", node("a")).node("b", node("b"));
    graph.edge(START, "a").edge(START, "b").compile().unwrap()
}

fn before_pair(graph: &CompiledGraph<Log>, thread: &Thread) -> Snapshot {
    graph.run(thread).interrupt_before(["a"]).invoke(Log::update()).unwrap();
    thread.head().unwrap().unwrap()
}

fn text(mut writes: Vec<WriteRecord>) -> String {
    writes.sort_by_key(|write| (write.task, write.index));
    format!("{writes:?}")
}

#[apply(each_backend)]
fn each_update_of_a_superstep_is_stored_with_the_task_of_its_node() {
    let (graph, thread) = (pair(), new_thread());
    let base = before_pair(&graph, &thread);
    let due: BTreeSet<_> = graph.get_state(&thread).unwrap().tasks.iter().map(|task| task.id).collect();
    let updates = [StateUpdate::new(line("x"), "a"), StateUpdate::new(line("y"), "b")];
    graph.bulk_update_state(&thread, [updates]).unwrap();
    let stored: BTreeSet<_> = base.writes().unwrap().iter().map(|write| write.task).collect();
    assert_eq!((stored, due.len()), (due, 2));
    // One task has one update.
    let thread = new_thread();
    let base = before_pair(&graph, &thread);
    let task = graph.get_state(&thread).unwrap().tasks[0].id;
    let both = || StateUpdate::new(line("x"), "a").task(task);
    graph.bulk_update_state(&thread, [[both(), both()]]).unwrap();
    let stored: BTreeSet<_> = base.writes().unwrap().iter().map(|write| write.task).collect();
    assert_eq!((stored.len(), stored.contains(&task)), (2, true));
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn an_update_leaves_an_older_checkpoint_and_the_results_of_its_tasks_as_they_are() {
    let (graph, thread) = (pair(), new_thread());
    let base = before_pair(&graph, &thread);
    graph.update_state(&thread, line("x"), "b").unwrap();
    let stored = text(base.writes().unwrap());
    graph.update_state(&base, line("y"), "a").unwrap();
    assert_eq!(text(base.writes().unwrap()), stored, "the past does not change");
    assert_eq!(now(&graph, &thread), ["y"]);
    let graph = StateGraph::<Log>::new()
        .node("ask", ask)
        .node("work", |_: &Log| Ok(line("work")))
        .edge(START, "ask")
        .edge(START, "work")
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let base = thread.head().unwrap().unwrap();
    let stored = text(base.writes().unwrap());
    graph.update_state(&thread, line("edit"), "work").unwrap();
    assert_eq!(text(base.writes().unwrap()), stored, "the task had ended");
    assert_eq!(now(&graph, &thread), ["edit"]);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn an_update_records_its_parent_and_the_tasks_that_are_due_after_it() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&left);
    let graph = StateGraph::<Log>::new()
        .node("a", |_: &Log| Ok(line("a")))
        .node("b", |_: &Log| Ok(line("b")))
        .edge(START, "a")
        .branch("a", move |_: &Log, context: &Context| {
            note.lock().unwrap().push(context.remaining_steps());
            "b"
        })
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.run(&thread).interrupt_before(["a"]).invoke(Log::update()).unwrap();
    for (reloaded, text) in [(false, "x"), (true, "y")] {
        let base = thread.head().unwrap().unwrap();
        let made = graph.update_state(&thread, line(text), "a").unwrap();
        assert_eq!(made.record().parent, Some(base.id()));
        let recorded: Vec<_> = made.record().tasks.iter().map(|task| task.id).collect();
        let due: Vec<_> = graph.get_state(&thread).unwrap().tasks.iter().map(|task| task.id).collect();
        assert_eq!((recorded.len(), recorded), (1, due));
        if reloaded {
            thread.store().clear_head_cache();
        }
        let run = graph.run(&thread).interrupt_before(["b"]);
        let parts = run.stream(Input::Continue, &[StreamMode::Checkpoints]).unwrap();
        let parents: Vec<_> = parts
            .filter_map(|part| match part.unwrap().data {
                StreamData::Checkpoint(part) => Some((part.checkpoint, part.parent)),
                _ => None,
            })
            .collect();
        assert_eq!(parents[0], (made.id(), Some(base.id())), "{reloaded}");
    }
    assert_eq!(*left.lock().unwrap(), [2, 2], "a conditional edge sees two supersteps left");
}

#[apply(each_backend)]
fn a_list_that_was_stored_as_one_value_is_stored_by_items_once_it_grows() {
    let whole = StateGraph::with_schema(DynSchema::new().last("lines").build())
        .node("node", |_: &DynState| Ok(DynUpdate::new()))
        .edge(START, "node")
        .compile()
        .unwrap();
    let thread = new_thread();
    whole.invoke(&thread, DynUpdate::new().set("lines", vec!["one", "two"])).unwrap();
    let graph =
        StateGraph::<Log>::new().node("node", |_: &Log| Ok(line("node"))).edge(START, "node").compile().unwrap();
    for _ in 0..2 {
        graph.invoke(&thread, Log::update()).unwrap();
        thread.store().clear_head_cache();
    }
    assert_eq!(now(&graph, &thread), ["one", "two", "node", "node"]);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_graph_inside_returns_the_changes_of_a_list_that_it_was_given_also_after_a_reload() {
    #[derive(State, Clone, Default, Debug, PartialEq)]
    struct Talk {
        #[channel(last)]
        n: i64,
        #[channel(messages)]
        messages: Messages,
    }
    let inner = StateGraph::<Talk>::new()
        .node("say", |_: &Talk| Ok(Talk::update().messages([Message::ai("m").with_id("m")])))
        .node("ask", |_: &Talk, context: &Context| Ok(context.interrupt("?").map(|_| Talk::update().n(2))?))
        .edge(START, "say")
        .edge("say", "ask")
        .compile()
        .unwrap();
    let graph = StateGraph::<Talk>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        graph.invoke(&thread, Talk::update().messages([Message::human("h").with_id("h")])).unwrap();
        let base = thread.head().unwrap().unwrap();
        if reloaded {
            thread.store().clear_head_cache();
        }
        let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
        assert_eq!((done.state().n, done.state().messages.len()), (2, 2));
        let writes = base.writes().unwrap();
        let write = writes.iter().find(|write| write.index >= 0 && &*write.channel == "messages").unwrap();
        assert!(matches!(write.value, WriteValue::Delta(_)), "{reloaded}: {write:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn tasks_that_a_fork_left_due_run_after_a_reload() {
    let flow = Entrypoint::new("flow", |n: i64, context: &Context| {
        Ok(format!("{n} {}", context.interrupt("?")?.as_str().unwrap_or_default()))
    });
    let flow = flow.compile().unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        flow.invoke(&thread, 7).unwrap();
        let waits = thread.head().unwrap().unwrap();
        flow.invoke(&waits, Input::Continue).unwrap();
        assert_ne!(thread.head().unwrap().unwrap().id(), waits.id(), "the replay made a fork");
        if reloaded {
            thread.store().clear_head_cache();
        }
        let done = flow.invoke(&thread, Command::resume("yes")).unwrap();
        assert_eq!(done.value().map(String::as_str), Some("7 yes"), "{reloaded}");
    }
    // A run that is saved when it ends records them in the order in which they ran.
    let graph =
        StateGraph::<Log>::new().node("z", ask).node("a", ask).edge(START, "z").edge(START, "a").compile().unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        graph.invoke(&thread, Log::update()).unwrap();
        let head = thread.head().unwrap().unwrap();
        graph.run(&head).durability(Durability::Exit).invoke(Input::Continue).unwrap();
        if reloaded {
            thread.store().clear_head_cache();
        }
        let parts = graph.run(&thread).stream(Input::Continue, &[StreamMode::Tasks]).unwrap();
        let names: Vec<_> = parts
            .filter_map(|part| match part.unwrap().data {
                StreamData::TaskStart(start) => Some(start.task.node().to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["a", "z"], "{reloaded}");
    }
}

#[apply(each_backend)]
fn an_update_of_a_new_thread_is_made_as_the_entrypoint() {
    let thread = new_thread();
    let graph = Entrypoint::new("count", |n: i64, context: &Context| {
        let total = context.previous::<i64>()?.unwrap_or(0) + n;
        Ok(Final::new(-total, total))
    })
    .compile()
    .unwrap();
    let made = graph.update_state(&thread, Final::new(1, 40), UpdateAs::Last).unwrap();
    assert_eq!(
        (made.source(), graph.get_state(&thread).unwrap().values.value()),
        (annals::store::Source::Update, Some(&1))
    );
    assert_eq!(graph.invoke(&thread, 2).unwrap().value(), Some(&-42));
}

#[apply(each_backend)]
fn a_handler_that_runs_again_stores_its_writes_behind_those_of_the_first_time() {
    let fails = |_: &Log| -> NodeResult<()> { Err("no".into()) };
    let graph = StateGraph::<Log>::new()
        .node("ask", ask)
        .node_with("bad", fails, NodeOptions::new().error_handler(|_: &Log| Ok(line("handled"))))
        .edge(START, "ask")
        .edge(START, "bad")
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let base = thread.head().unwrap().unwrap();
    let stored = || {
        let writes = base.writes().unwrap().into_iter();
        writes.filter(|write| write.path.contains("node_error_handler") && &*write.channel == "lines").count()
    };
    assert_eq!(stored(), 1);
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!((stored(), now(&graph, &thread)), (2, vec!["yes".to_owned(), "handled".to_owned()]));
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_run_that_is_saved_when_it_ends_has_the_step_keys_of_any_other() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let (note, fails) = (Arc::clone(&keys), Arc::new(AtomicBool::new(true)));
    let once = Arc::clone(&fails);
    let graph = StateGraph::<Log>::new()
        .node("first", idle)
        .node("pay", move |_: &Log, context: &Context| {
            note.lock().unwrap().push(context.step_key());
            if once.load(Ordering::SeqCst) { Err("it fails".into()) } else { Ok(line("paid")) }
        })
        .edge(START, "first")
        .edge("first", "pay")
        .compile()
        .unwrap();
    for driver in 0..2 {
        for again in [Durability::Exit, Durability::Sync] {
            let thread = new_thread();
            fails.store(true, Ordering::SeqCst);
            run_on(driver, graph.run(&thread).durability(Durability::Exit), start()).unwrap_err();
            fails.store(false, Ordering::SeqCst);
            run_on(driver, graph.run(&thread).durability(again), Input::Continue).unwrap();
            let keys = std::mem::take(&mut *keys.lock().unwrap());
            assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "{driver} {again:?}");
        }
    }
    // A forked thread goes on in place.
    let thread = new_thread();
    fails.store(true, Ordering::SeqCst);
    graph.invoke(&thread, Log::update()).unwrap_err();
    let fork = thread.head().unwrap().unwrap().fork_to(format!("{} forked", thread.id())).unwrap();
    keys.lock().unwrap().clear();
    graph.invoke(&fork, Input::Continue).unwrap_err();
    graph.invoke(&fork, Input::Continue).unwrap_err();
    let keys = keys.lock().unwrap();
    assert_eq!(keys[0], keys[1]);
}

/// A store in memory counts no commits.
#[test]
fn an_input_shares_the_commit_of_its_first_superstep() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store.db")).unwrap();
    let graph = pair();
    for (name, durability, commits) in [("sync", Durability::Sync, 3), ("exit", Durability::Exit, 1)] {
        let thread = store.thread(name).unwrap();
        let count = || thread.store().stats().unwrap().commits.commits;
        let before = count();
        graph.run(&thread).durability(durability).concurrency_max(1).invoke(Log::update()).unwrap();
        assert!(count() - before <= commits, "{durability:?}: {}", count() - before);
    }
}

#[apply(each_backend)]
fn an_awaited_commit_is_stored_before_the_tasks_behind_it_start() {
    let thread = new_thread();
    let (store, id) = (thread.store().clone(), thread.id().clone());
    let graph = StateGraph::<Log>::new()
        .node("a", |_: &Log| Ok(line("a")))
        .node("b", move |_: Arc<Log>, context: Context| {
            let step = store.thread(id.clone()).unwrap().head().unwrap().map(|head| head.step());
            let is_stored = step == Some(context.step() - 1);
            async move { Ok(line(format!("{is_stored}"))) }
        })
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    for driver in 0..2 {
        let done = run_on(driver, graph.run(&thread).durability(Durability::Sync), start()).unwrap();
        assert_eq!(done.state().lines.iter().next_back().map(String::as_str), Some("true"), "{driver}");
    }
}

#[apply(each_backend)]
fn a_conditional_edge_sees_the_first_write_of_a_channel_as_the_state_will_have_it() {
    #[derive(State, Clone, Default, Debug, PartialEq)]
    struct FirstText {
        #[channel(reduce = joined, starts_empty)]
        text: String,
    }
    fn joined(old: String, new: String) -> String {
        format!("{old}+{new}")
    }
    let graph = StateGraph::<FirstText>::new()
        .node("node", |_: &FirstText| Ok(FirstText::update().text("x")))
        .node("first", |_: &FirstText| Ok(FirstText::update().text("first")))
        .node("other", |_: &FirstText| Ok(FirstText::update().text("other")))
        .edge(START, "node")
        .branch("node", |sum: &FirstText| if sum.text == "x" { "first" } else { "other" })
        .compile()
        .unwrap();
    let thread = new_thread();
    for expected in ["x+first", "x+first+x+other"] {
        assert_eq!(graph.invoke(&thread, FirstText::update()).unwrap().state().text, expected);
    }
}

#[apply(each_backend)]
fn a_plain_node_in_a_run_that_a_node_awaits_runs_on_the_thread_of_that_node() {
    let here = |_: &Log| Ok(line(format!("{:?}", std::thread::current().id())));
    let inner = StateGraph::<Log>::new().node("inner", here).edge(START, "inner").compile().unwrap();
    let outer = move |log: &Log, context: &Context| {
        let done = block_on(inner.ainvoke(context, Log::update()))?;
        Ok(here(log)?.lines(done.state().lines.to_vec())) as NodeResult<LogUpdate>
    };
    let graph = StateGraph::<Log>::new().node("outer", outer).edge(START, "outer").compile().unwrap();
    for driver in 0..2 {
        let done = lines(run_on(driver, graph.run(&new_thread()), start()).unwrap().state());
        assert_eq!((done.len(), &done[0]), (2, &done[1]), "{driver}");
    }
}

#[apply(each_backend)]
fn a_path_behind_a_plain_node_is_awaited_by_the_run() {
    let here = std::thread::current().id();
    let graph = StateGraph::<Log>::new()
        .node("a", idle)
        .node("here", |_: &Log| Ok(line("here")))
        .node("elsewhere", |_: &Log| Ok(line("elsewhere")))
        .edge(START, "a")
        .branch("a", move |_: Arc<Log>| async move {
            if std::thread::current().id() == here { "here" } else { "elsewhere" }
        })
        .compile()
        .unwrap();
    let done = block_on(graph.ainvoke(&new_thread(), Log::update())).unwrap();
    assert_eq!(lines(done.state()), ["here"]);
}

#[apply(each_backend)]
fn the_end_of_a_run_is_told_by_the_clock_of_its_store_and_has_a_seed_of_its_own() {
    let (hands, store) = timed();
    hands.set(100);
    let graph = pair();
    let seeds = ["one", "two"].map(|name| {
        let done = graph.invoke(&store.thread(name).unwrap(), Log::update()).unwrap();
        assert_eq!(done.ended_at(), at(100));
        done.id_seed()
    });
    assert!(seeds[0] != seeds[1] && seeds.iter().all(|seed| *seed > 1), "{seeds:?}");
}

#[apply(each_backend)]
fn a_checkpoint_is_shown_with_the_id_under_which_it_is_stored() {
    let (hands, store) = timed();
    hands.set(1);
    let thread = store.thread("t").unwrap();
    thread.update(line("seed")).unwrap();
    // A run that lost the race leaves a branch, at a later time.
    let (fast, other, clock) = (pair(), thread.clone(), hands.clone());
    let loses = StateGraph::<Log>::new()
        .node("slow", move |_: &Log| {
            fast.invoke(&other, Log::update())?;
            clock.set(1_000);
            Ok(line("slow"))
        })
        .edge(START, "slow")
        .compile()
        .unwrap();
    let lost = loses.run(&thread).durability(Durability::Sync).on_conflict(OnConflict::Branch);
    assert!(lost.invoke(Log::update()).unwrap().branch().is_some());
    hands.set(2);
    let graph = pair();
    let modes = [StreamMode::Checkpoints, StreamMode::Debug];
    let parts = graph.run(&thread).durability(Durability::Sync).stream(Log::update(), &modes).unwrap();
    let mut shown = Vec::new();
    for part in parts {
        match part.unwrap().data {
            StreamData::Checkpoint(part) => shown.push((part.checkpoint, part.parent)),
            StreamData::Debug(line) => {
                if let annals_graph::DebugPayload::Checkpoint(part) = line.payload {
                    shown.push((part.checkpoint, part.parent));
                }
            }
            _ => {}
        }
    }
    let stored: BTreeSet<_> =
        thread.history().unwrap().map(|at| at.unwrap()).map(|at| (at.id(), at.record().parent)).collect();
    let missing = shown.iter().filter(|part| !stored.contains(part)).count();
    assert_eq!((missing, shown.len()), (0, 6), "{shown:?} {stored:?}");
}

/// A node that asks and then calls a graph.
fn asks_around(inner: CompiledGraph<Log>, before: impl Fn(&Context) + Send + Sync + 'static) -> CompiledGraph<Log> {
    let node = move |_: &Log, context: &Context| {
        context.interrupt("?")?;
        before(context);
        let done = inner.invoke(context, Log::update())?;
        Ok(Log::update().lines(done.state().lines.to_vec()))
    };
    StateGraph::<Log>::new().node("around", node).edge(START, "around").compile().unwrap()
}

fn naps(_: &Log, context: &Context) -> NodeResult<LogUpdate> {
    context.sleep_for(HOUR)?;
    Ok(line("awake"))
}

#[apply(each_backend)]
fn a_task_whose_graph_was_drained_before_it_slept_again_keeps_its_timer() {
    let drains = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&drains);
    let inner = StateGraph::<Log>::new().node("nap", naps).edge(START, "nap").compile().unwrap();
    let graph = asks_around(inner, move |context| {
        if seen.load(Ordering::SeqCst) {
            context.control().request_drain("shutdown");
        }
    });
    let (hands, store) = timed();
    let thread = store.thread("t").unwrap();
    graph.invoke(&thread, Log::update()).unwrap();
    assert_eq!(graph.invoke(&thread, Command::resume("yes")).unwrap().wake_at(), Some(at(3_600)));
    drains.store(true, Ordering::SeqCst);
    for reloaded in [false, true] {
        if reloaded {
            store.clear_head_cache();
        }
        let drained = graph.invoke(&thread, Input::Continue).unwrap();
        assert!(matches!(drained, Outcome::Drained { .. }), "{drained:?}");
        assert_eq!(store.next_timer().unwrap().map(|timer| timer.wake_at), Some(at(3_600)));
        sound(&thread);
    }
    drains.store(false, Ordering::SeqCst);
    hands.set(3_600);
    assert_eq!(lines(graph.invoke(&thread, Input::Continue).unwrap().state()), ["awake"]);
    assert_eq!(store.next_timer().unwrap(), None);
}

#[apply(each_backend)]
fn a_task_whose_graph_stopped_at_a_breakpoint_keeps_its_interrupt_and_its_timer() {
    let inner = StateGraph::<Log>::new().node("last", |_: &Log| Ok(line("last"))).edge(START, "last");
    let inner = inner.interrupt_before(["last"]).compile().unwrap();
    let node = move |_: &Log, context: &Context| {
        context.sleep_for(HOUR)?;
        let done = inner.invoke(context, Log::update())?;
        Ok(Log::update().lines(done.state().lines.to_vec()))
    };
    let graph = StateGraph::<Log>::new().node("around", node).edge(START, "around").compile().unwrap();
    let (hands, store) = timed();
    let thread = store.thread("t").unwrap();
    assert_eq!(graph.invoke(&thread, Log::update()).unwrap().wake_at(), Some(at(3_600)));
    hands.set(3_600);
    assert!(!graph.invoke(&thread, Input::Continue).unwrap().is_done());
    assert_eq!(store.next_timer().unwrap().map(|timer| timer.wake_at), Some(at(3_600)));
    sound(&thread);
    assert_eq!(lines(graph.invoke(&thread, Input::Continue).unwrap().state()), ["last"]);
    assert_eq!(store.next_timer().unwrap(), None);
}

/// A node that first runs its graph as a rival does, in which it sleeps, and then goes on.
fn overtaken<F>(thread: &Thread, goes_on: F) -> CompiledGraph<Log>
where
    F: Fn(&Context) -> NodeResult<LogUpdate> + Send + Sync + 'static,
{
    let (runs, slot) = (AtomicUsize::new(0), Arc::new(Mutex::new(None::<CompiledGraph<Log>>)));
    let (rival, thread) = (Arc::clone(&slot), thread.clone());
    let graph = StateGraph::<Log>::new()
        .node("rests", move |_: &Log, context: &Context| match runs.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let rival = rival.lock().unwrap().clone().unwrap();
                assert!(!rival.invoke(&thread, Input::Continue)?.is_done());
                goes_on(context)
            }
            1 => {
                context.sleep_for(HOUR)?;
                Ok(line("slept"))
            }
            _ => goes_on(context),
        })
        .node("asks", ask)
        .edge(START, "rests")
        .edge(START, "asks")
        .compile()
        .unwrap();
    *slot.lock().unwrap() = Some(graph.clone());
    graph
}

#[apply(each_backend)]
fn a_task_that_a_rival_run_put_to_sleep_has_no_timer_once_it_asks() {
    let (_hands, store) = timed();
    let thread = store.thread("t").unwrap();
    let graph = overtaken(&thread, |context| Ok(line(context.interrupt("really?")?.as_str().unwrap_or_default())));
    let asked = graph.run(&thread).durability(Durability::Sync).concurrency_max(1).invoke(Log::update()).unwrap();
    assert_eq!((asked.interrupts().len(), asked.wake_at()), (2, None));
    assert_eq!(store.next_timer().unwrap(), None);
    sound(&thread);
}

#[apply(each_backend)]
fn a_task_that_ended_and_that_a_rival_run_put_to_sleep_wakes_its_thread_no_more() {
    let (hands, store) = timed();
    let thread = store.thread("t").unwrap();
    let graph = overtaken(&thread, |_| Ok(line("rested")));
    graph.run(&thread).durability(Durability::Sync).concurrency_max(1).invoke(Log::update()).unwrap();
    store.clear_head_cache();
    hands.set(10);
    graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(store.next_timer().unwrap(), None);
    sound(&thread);
    store.clear_head_cache();
    let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(lines(done.state()), ["yes", "rested"]);
    same_after_reload(&graph, &thread);
}
