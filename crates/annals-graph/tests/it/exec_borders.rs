//! Runs at their borders: the stored part of a superstep that is not over, and a later run that continues it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use annals::store::Source;
use annals::store::batch::WriteValue;
use annals::store::log::LogExt;
use annals_graph::graph::{Entrypoint, Own, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{Durability, ResumeProblem, RunError};
use macro_rules_attribute::apply;

use crate::backends::{GUARD, new_thread, same_after_reload};
use crate::line_state::{EVERY_WAY, Log, LogUpdate, line, run_on, start};
use crate::test_clock::{at, timed};

fn ask(_: &Log, context: &Context) -> NodeResult<LogUpdate> {
    Ok(line(context.interrupt("?")?.as_str().unwrap_or_default()))
}

fn says(name: &'static str) -> impl Fn(&Log) -> NodeResult<LogUpdate> + Clone {
    move |_| Ok(line(name))
}

/// The stored writes of the head: the node, the channel and the index of each, with a dash behind one that is null.
fn stored(thread: &Thread) -> Vec<String> {
    let Some(head) = thread.head().unwrap() else { return Vec::new() };
    let writes = thread.store().backend().writes(head.point()).unwrap();
    let name = |task| head.record().tasks.iter().find(|of| of.id == task).map(|of| of.name.to_string());
    let of = |write: &annals::store::record::WriteRecord| {
        let null = if write.value == WriteValue::Null { " -" } else { "" };
        let name = name(write.task).unwrap_or_else(|| write.path.to_string());
        format!("{name} {} {}{null}", write.channel, write.index)
    };
    let mut shown: Vec<_> = writes.iter().map(of).collect();
    shown.sort();
    shown
}

fn by_id(id: &str, value: &str) -> Command {
    Command::resume(Value::Map([(id.to_owned(), Value::from(value))].into_iter().collect()))
}

#[apply(each_backend)]
fn what_has_ended_is_stored_while_its_siblings_run() {
    for (driver, durability) in EVERY_WAY.into_iter().filter(|(_, durability)| *durability != Durability::Exit) {
        let thread = new_thread();
        let seen = thread.clone();
        let slow = move |_: &Log| {
            let begun = Instant::now();
            while !stored(&seen).contains(&"quick lines 0".to_owned()) {
                if begun.elapsed() > GUARD {
                    return Err("the result of its sibling is not stored".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(line("slow"))
        };
        let graph = StateGraph::<Log>::new()
            .node("quick", says("quick"))
            .node("slow", slow)
            .edge(START, "quick")
            .edge(START, "slow")
            .compile()
            .unwrap();
        let done = run_on(driver, graph.run(&thread).durability(durability), start()).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["quick", "slow"], "{driver} {durability:?}");
        assert_eq!(done.branch(), None);
        same_after_reload(&graph, &thread);
    }
}

/// ask, quick and a node that writes nothing, beside each other
fn three() -> CompiledGraph<Log> {
    StateGraph::<Log>::new()
        .node("ask", ask)
        .node("idle", |_: &Log| Ok(()))
        .node("quick", says("quick"))
        .edge(START, "ask")
        .edge(START, "idle")
        .edge(START, "quick")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn an_open_superstep_stores_each_task_with_what_it_has_come_to() {
    let (graph, ends) = (three(), ["idle __ended__ -18", "quick __ended__ -18"]);
    for (driver, durability) in EVERY_WAY {
        for records in [false, true] {
            let thread = new_thread();
            let run = || graph.run(&thread).durability(durability).record_ends(records);
            let asked = run_on(driver, run(), start()).unwrap();
            assert_eq!(asked.state().lines.to_vec(), ["quick"]);
            let mut wanted = vec!["ask __interrupt__ -3", "idle __no_writes__ 0 -", "quick lines 0"];
            wanted.extend(ends.iter().filter(|_| records));
            wanted.sort_unstable();
            assert_eq!(stored(&thread), wanted, "{driver} {durability:?} {records}");
            same_after_reload(&graph, &thread);
            let done = run_on(driver, run(), Input::Command(Command::resume("yes"))).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["yes", "quick"]);
            same_after_reload(&graph, &thread);
        }
    }
}

#[apply(each_backend)]
fn a_task_at_a_breakpoint_of_its_subgraph_stores_nothing() {
    let inner = StateGraph::<Log>::new()
        .node("one", says("one"))
        .node("two", says("two"))
        .edge(START, "one")
        .edge("one", "two")
        .interrupt_before(["two"])
        .compile()
        .unwrap();
    let graph = StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        let stopped = run_on(driver, run(), start()).unwrap();
        assert!(!stopped.is_done() && stopped.interrupts().is_empty(), "{stopped:?}");
        assert_eq!(stored(&thread), Vec::<String>::new(), "{driver} {durability:?}");
        let done = run_on(driver, run(), Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["one", "two"]);
    }
}

#[apply(each_backend)]
fn a_task_that_fails_before_it_asks_keeps_its_error_as_an_earlier_one() {
    let tries = Arc::new(AtomicUsize::new(0));
    let node = move |_: &Log, context: &Context| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => Err("not yet".into()),
        _ => ask(&Log::default(), context),
    };
    let graph = StateGraph::<Log>::new()
        .node("node", node)
        .node("other", ask)
        .edge(START, "node")
        .edge(START, "other")
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap_err();
    assert_eq!(stored(&thread), ["node __error__ -1", "other __interrupt__ -3"]);
    let asked = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(asked.interrupts().len(), 2);
    let wanted =
        ["node __earlier_error__ -15", "node __error__ -1 -", "node __interrupt__ -3", "other __interrupt__ -3"];
    assert_eq!(stored(&thread), wanted);
    let tasks = graph.get_state(&thread).unwrap().tasks;
    let errors: Vec<_> = tasks.iter().map(|task| task.error.as_deref()).collect();
    assert_eq!(errors, [Some("node \"node\" failed: not yet"), None]);
}

#[apply(each_backend)]
fn a_cancelled_task_asks_again_though_it_was_answered() {
    let graph = StateGraph::<Log>::new()
        .node("node", |_: Arc<Log>, context: Context| async move {
            let answer = context.interrupt("?")?;
            if context.value::<&str>() == Some(&"impatient") {
                context.control().cancel("the window was closed");
                std::future::pending::<()>().await;
            }
            Ok(line(answer.as_str().unwrap_or_default()))
        })
        .edge(START, "node")
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let id = graph.get_state(&thread).unwrap().interrupts[0].id.clone();
    let run = graph.run(&thread).context("impatient");
    let cancelled = annals_graph::block_on(run.ainvoke(by_id(&id, "first"))).unwrap();
    assert!(matches!(cancelled, Outcome::Cancelled { .. }), "{cancelled:?}");
    thread.store().clear_head_cache();
    let asked = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(asked.interrupts().len(), 1, "{asked:?}");
    let done = graph.invoke(&thread, by_id(&id, "second")).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["second"]);
}

#[apply(each_backend)]
fn the_tasks_of_a_checkpoint_come_in_the_order_in_which_they_run() {
    let graph = StateGraph::<Log>::new()
        .node("first", says("first"))
        .node("z", says("z"))
        .node("a", says("a"))
        .edge(START, "first")
        .edge("first", "z")
        .edge("first", "a")
        .compile()
        .unwrap();
    let starts = |thread: &Thread| -> Vec<String> {
        let parts = graph.stream(thread, Input::Continue, &[StreamMode::Tasks]).unwrap();
        let started = parts.filter_map(|part| match part.unwrap().data {
            StreamData::TaskStart(start) => Some(start.task.node().to_owned()),
            _ => None,
        });
        started.collect()
    };
    for durability in [Durability::Sync, Durability::Exit] {
        for reloaded in [false, true] {
            let thread = new_thread();
            let run = || graph.run(&thread).durability(durability);
            run().interrupt_before(["z"]).invoke(Log::update()).unwrap();
            let head = thread.head().unwrap().unwrap();
            assert_eq!(head.next().collect::<Vec<_>>(), ["a", "z"], "a superstep goes by name");
            if reloaded {
                thread.store().clear_head_cache();
            }
            assert_eq!(graph.get_state(&thread).unwrap().next, ["z", "a"], "a snapshot lists them as the graph does");
            assert_eq!(starts(&thread), ["a", "z"], "{durability:?} {reloaded}");
            // An edit does not tell what made them due.
            let edited = graph.update_state(&head, line("edit"), "first").unwrap();
            if reloaded {
                thread.store().clear_head_cache();
            }
            assert_eq!(edited.source(), Source::Update);
            assert_eq!(starts(&thread), ["z", "a"], "{durability:?} {reloaded}");
            // A fork for a run that is stored at its end has them in the order in which they run.
            run().interrupt_before(["z"]).invoke(Log::update()).unwrap();
            let due = thread.head().unwrap().unwrap();
            let drained = annals_graph::task::RunControl::new();
            drained.request_drain("enough");
            run().control(&drained).invoke(Input::Continue).unwrap();
            let forked = graph.run(&due).control(&drained).durability(durability).invoke(Input::Continue).unwrap();
            assert!(matches!(forked, Outcome::Drained { .. }), "{forked:?}");
            let fork = thread.head().unwrap().unwrap();
            let order = if durability == Durability::Exit { ["a", "z"] } else { ["z", "a"] };
            assert_eq!((fork.source(), fork.next().collect::<Vec<_>>()), (Source::Fork, order.to_vec()));
        }
    }
}

#[apply(each_backend)]
fn an_edit_without_a_node_is_made_as_the_one_that_wrote_last() {
    let graph = StateGraph::<Log>::new()
        .node("a", says("a"))
        .node("b", says("b"))
        .node("c", says("c"))
        .edge(START, "a")
        .edge("a", "b")
        .edge("b", "c")
        .compile()
        .unwrap();
    for reloaded in [false, true] {
        for (before, next) in [("a", "a"), ("b", "b"), ("c", "c")] {
            let thread = new_thread();
            graph.run(&thread).interrupt_before([before]).invoke(Log::update()).unwrap();
            if reloaded {
                thread.store().clear_head_cache();
            }
            graph.update_state(&thread, line("edit"), None).unwrap();
            let state = graph.get_state(&thread).unwrap();
            assert_eq!(state.next, [next], "{before} {reloaded}");
            same_after_reload(&graph, &thread);
        }
        let twice = new_thread();
        graph.invoke(&twice, Log::update()).unwrap();
        graph.run(&twice).interrupt_before(["a"]).invoke(Log::update()).unwrap();
        if reloaded {
            twice.store().clear_head_cache();
        }
        graph.update_state(&twice, line("edit"), None).unwrap();
        assert_eq!(graph.get_state(&twice).unwrap().next, ["a"], "the second input was the last to write");
        let fresh = new_thread();
        graph.update_state(&fresh, line("edit"), None).unwrap();
        assert_eq!(graph.get_state(&fresh).unwrap().next, ["a"], "as the input");
        let edited = new_thread();
        graph.run(&edited).interrupt_before(["b"]).invoke(Log::update()).unwrap();
        for (node, next) in [(Some("b"), "c"), (None, "b")] {
            graph.update_state(&edited, line("edit"), node).unwrap();
            assert_eq!(graph.get_state(&edited).unwrap().next, [next], "an edit is not a run of its node");
        }
    }
}

#[apply(each_backend)]
fn a_run_that_is_stored_at_its_end_builds_on_the_one_before() {
    let graph = StateGraph::<Log>::new()
        .node("a", says("a"))
        .node("b", says("b"))
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Exit] {
        let thread = new_thread();
        let mut ends = Vec::new();
        for turn in 0..3 {
            let run = graph.run(&thread).durability(durability);
            let parts = run.stream(Log::update(), &[StreamMode::Checkpoints]).unwrap();
            let parents: Vec<_> = parts
                .map(|part| match part.unwrap().data {
                    StreamData::Checkpoint(part) => part.parent,
                    other => panic!("{other:?}"),
                })
                .collect();
            let head = thread.head().unwrap().unwrap();
            let state = graph.get_state(&thread).unwrap();
            assert_eq!((state.checkpoint, state.parent), (Some(head.id()), head.record().parent));
            // Each part names the checkpoint before the one that the run began on.
            if durability == Durability::Exit {
                assert_eq!(head.record().parent, ends.last().copied(), "turn {turn}");
                let before: Option<annals::base::CheckpointId> = ends.iter().rev().nth(1).copied();
                assert_eq!(parents, [before; 4], "turn {turn}");
            } else {
                assert_eq!(parents[0], ends.last().copied());
                assert_eq!(parents[3], head.record().parent);
            }
            ends.push(head.id());
        }
    }
}

#[apply(each_backend)]
fn the_version_of_a_graph_is_stored_where_a_run_begins_and_at_each_64th_superstep() {
    let graph = StateGraph::<Log>::new()
        .node("again", |log: &Log| Ok(line(format!("{}", log.lines.len()))))
        .edge(START, "again")
        .branch("again", |log: &Log| if log.lines.len() < 70 { "again" } else { END })
        .version("1")
        .compile()
        .unwrap();
    let marked = |thread: &Thread| -> Vec<i64> {
        let history = thread.history().unwrap().map(Result::unwrap);
        let mut steps: Vec<i64> = history.filter(|at| at.record().metadata.is_some()).map(|at| at.step()).collect();
        steps.sort_unstable();
        steps
    };
    let thread = new_thread();
    graph.run(&thread).recursion_limit(5).invoke(Log::update()).unwrap_err();
    assert_eq!(marked(&thread), [-1, 0]);
    graph.run(&thread).recursion_limit(100).invoke(Input::Continue).unwrap();
    assert_eq!(marked(&thread), [-1, 0, 6, 64], "the first checkpoint of each run");
    let at_end = new_thread();
    graph.run(&at_end).durability(Durability::Exit).recursion_limit(100).invoke(Log::update()).unwrap();
    assert_eq!(marked(&at_end), [70]);
}

#[apply(each_backend)]
fn a_handler_that_asks_twice_keeps_its_first_answer() {
    let bad = |_: &Log| -> NodeResult<()> { Err("no".into()) };
    let handler = |_: &Log, context: &Context| {
        let answers = [context.interrupt("first?")?, context.interrupt("second?")?];
        Ok(line(answers.map(|answer| answer.as_str().unwrap_or_default().to_owned()).join(" ")))
    };
    let graph = StateGraph::<Log>::new()
        .node_with("bad", bad, NodeOptions::new().error_handler(handler))
        .edge(START, "bad")
        .compile()
        .unwrap();
    let thread = new_thread();
    let mut asked = graph.invoke(&thread, Log::update()).unwrap();
    for (question, answer) in [("first?", "one"), ("second?", "two")] {
        thread.store().clear_head_cache();
        let open = asked.interrupts();
        assert_eq!((open.len(), &open[0].value), (1, &Value::from(question)));
        asked = graph.invoke(&thread, by_id(&open[0].id, answer)).unwrap();
    }
    assert_eq!(asked.state().lines.to_vec(), ["one two"]);
}

#[apply(each_backend)]
fn tasks_that_sleep_before_another_attempt_are_woken_one_by_one() {
    let (hands, store) = timed();
    let node = |_: &Log, context: &Context| match context.attempt() {
        1 => Err("busy".into()),
        attempt => Ok(line(format!("attempt {attempt}"))),
    };
    let policy = |jitter: bool| RetryPolicy::new().initial_interval(Duration::from_secs(60)).jitter(jitter);
    let graph = StateGraph::<Log>::new()
        .node_with("a", node, NodeOptions::new().retry(policy(false)))
        .node_with("b", node, NodeOptions::new().retry(policy(true)))
        .node_with("c", node, NodeOptions::new().retry(policy(true)))
        .edge(START, "a")
        .edge(START, "b")
        .edge(START, "c")
        .compile()
        .unwrap();
    let thread = store.thread("t").unwrap();
    let asleep = graph.invoke(&thread, Log::update()).unwrap();
    let [a, b, c] = asleep.interrupts() else { panic!("{asleep:?}") };
    assert!(a.id != b.id && b.id != c.id && a.id != c.id);
    assert_eq!(a.wake_at, Some(at(60)));
    let jittered = [b, c].map(|asked| asked.wake_at.unwrap());
    assert!(jittered.iter().all(|wake| (at(60)..=at(61)).contains(wake)), "{jittered:?}");
    assert_ne!(jittered[0], jittered[1]);
    let rest = graph.invoke(&thread, Command::resume(Value::Map([(a.id.clone(), Value::Null)].into_iter().collect())));
    let rest = rest.unwrap();
    assert_eq!(rest.interrupts().iter().map(|asked| &asked.id).collect::<Vec<_>>(), [&b.id, &c.id]);
    hands.set(62);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["attempt 2", "attempt 2", "attempt 2"]);
    assert_eq!(store.next_timer().unwrap(), None);
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_task_that_slept_and_failed_is_tried_again_without_its_sleep() {
    let (hands, store) = timed();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let node = move |_: &Log, _: &Context| match counted.fetch_add(1, Ordering::SeqCst) {
        3.. => Ok(line("done")),
        _ => Err("busy".into()),
    };
    let policy = RetryPolicy::new().initial_interval(Duration::from_secs(60)).max_attempts(2).jitter(false);
    let graph = |policy: &RetryPolicy| {
        StateGraph::<Log>::new()
            .node_with("a", node.clone(), NodeOptions::new().retry(policy.clone()))
            .edge(START, "a")
            .compile()
            .unwrap()
    };
    let thread = store.thread("t").unwrap();
    graph(&policy).invoke(&thread, Log::update()).unwrap();
    hands.set(60);
    graph(&policy).invoke(&thread, Input::Continue).unwrap_err();
    // Another policy, without pauses: the task fails once more, and is tried again in the same run.
    let done = graph(&policy.initial_interval(Duration::ZERO)).invoke(&thread, Input::Continue).unwrap();
    assert_eq!((done.state().lines.to_vec(), tries.load(Ordering::SeqCst)), (vec!["done".to_owned()], 4));
    assert_eq!(store.next_timer().unwrap(), None);
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_superstep_that_is_made_again_at_an_edit_has_its_new_results() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let graph = StateGraph::<Log>::new()
        .node("first", says("first"))
        .node("ask", |_: &Log, context: &Context| match context.value::<&str>() {
            Some(&"tell") => Ok(line("told")),
            _ => ask(&Log::default(), context),
        })
        .node("count", move |_: &Log| Ok(line(format!("run {}", counted.fetch_add(1, Ordering::SeqCst)))))
        .node("last", says("last"))
        .edge(START, "first")
        .edge("first", "ask")
        .edge("first", "count")
        .edge("count", "last")
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        runs.store(0, Ordering::SeqCst);
        let thread = new_thread();
        graph.update_state(&thread, line("edit"), "first").unwrap();
        let run = || graph.run(&thread).durability(durability);
        assert_eq!(run().invoke(Input::Continue).unwrap().state().lines.to_vec(), ["edit", "run 0"]);
        // Named by the caller, the head of the edit is replayed in its place: all its tasks run again.
        let head = thread.head().unwrap().unwrap();
        assert_eq!(head.source(), Source::Update);
        let again = graph.run(&head).durability(durability).invoke(Input::Continue).unwrap();
        assert_eq!((again.interrupts().len(), runs.load(Ordering::SeqCst)), (1, 2), "{durability:?}");
        let told = graph.run(&head).durability(durability).context("tell").invoke(Input::Continue).unwrap();
        assert_eq!(told.state().lines.to_vec(), ["edit", "told", "run 2", "last"], "{durability:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn a_list_that_a_run_gave_to_a_subgraph_is_stored_whenever_the_run_is() {
    let inner = StateGraph::<Log>::new()
        .node("inside", |log: &Log| Ok(line(format!("inside {}", log.lines.len()))))
        .edge(START, "inside")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = StateGraph::<Log>::new()
        .node("a", says("a"))
        .node("inner", inner.clone())
        .edge(START, "a")
        .edge("a", "inner")
        .compile()
        .unwrap();
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        for turn in 1..=2 {
            run_on(driver, graph.run(&thread).durability(durability), start()).unwrap();
            thread.store().clear_head_cache();
            let inside = thread.in_namespace("inner").unwrap();
            let kept = inner.get_state(&inside).unwrap().values.lines.len();
            assert!(kept >= 2 * turn, "{driver} {durability:?}: {kept}");
            assert_eq!(thread.store().check().unwrap().problems, []);
        }
    }
}

#[apply(each_backend)]
fn an_entrypoint_shows_its_value_and_its_calls_and_nothing_else() {
    let twice = Task::new("twice", |n: i64| Ok(n * 2));
    let flow = Entrypoint::new("flow", move |n: i64, context: &Context| {
        let doubled = twice.call(context, n)?;
        Ok(doubled + context.interrupt("more?")?.as_int().unwrap_or_default())
    });
    let flow = flow.compile().unwrap();
    let modes =
        [StreamMode::Values, StreamMode::Updates, StreamMode::Tasks, StreamMode::Checkpoints, StreamMode::Debug];
    let thread = new_thread();
    let shown = |input: Input| -> Vec<String> {
        let parts = flow.run(&thread).stream(input, &modes).unwrap().map(Result::unwrap);
        let short = parts.map(|part| match &part.data {
            StreamData::Values(values) => {
                let shown = values.view.to_value().unwrap().to_json();
                format!("values {shown} {}", values.interrupts.len())
            }
            StreamData::Updates(update) => {
                let writes = update.writes.to_update().unwrap().to_json();
                format!("{} {writes}{}", update.node, if update.cached { " cached" } else { "" })
            }
            StreamData::Interrupts(open) => format!("asks {}", open.len()),
            StreamData::TaskStart(start) => {
                format!("{} starts {}", start.task.node(), start.input().unwrap().to_json())
            }
            StreamData::TaskEnd(end) => {
                format!("{} ends {} {}", end.task.node(), end.result.to_result().unwrap().len(), end.interrupts.len())
            }
            StreamData::Checkpoint(part) => {
                let results: Vec<_> = part.tasks.iter().map(|task| (&*task.name, task.result.is_some())).collect();
                format!("checkpoint {} {} {results:?}", part.step, part.values.to_value().unwrap().to_json())
            }
            StreamData::Debug(line) => format!("debug {}", line.step),
            other => panic!("{other:?}"),
        });
        short.collect()
    };
    let asked = shown(annals_graph::IntoInput::<annals_graph::graph::Entry<i64, i64>, _>::into_input(4));
    let wanted = [
        "checkpoint -1 null [(\"flow\", false)]",
        "debug -1",
        "flow starts 4",
        "debug 0",
        "twice starts 4",
        "debug 0",
        "twice 8",
        "twice ends 1 0",
        "debug 0",
        "asks 1",
        "values null 1",
        "flow ends 0 1",
        "debug 0",
    ];
    assert_eq!(asked, wanted);
    let done = shown(Input::Command(Command::resume(1)));
    let of = |start: &str| done.iter().filter(|part| part.starts_with(start)).map(|part| &**part).collect::<Vec<_>>();
    assert_eq!(of("flow"), ["flow starts 4", "flow 9", "flow ends 1 0"], "{done:?}");
    assert_eq!(of("values").last(), Some(&"values 9 0"), "{done:?}");
    assert_eq!(of("checkpoint"), ["checkpoint -1 null [(\"flow\", false)]", "checkpoint 0 9 []"], "{done:?}");
}

#[test]
fn a_send_is_given_its_argument_and_no_other_channel() {
    let graph = StateGraph::with_schema(DynSchema::new().last("a").append("seen").build())
        .node("fan", |_: &annals::state::DynState| Ok(()))
        .node(
            "take",
            Own(|given: Value, _: &Context| {
                Ok(DynUpdate::new().set("seen", vec![Value::from(given.to_json().to_string())]))
            }),
        )
        .edge(START, "fan")
        .branch("fan", |_: &annals::state::DynState| {
            [1, 2]
                .map(|n| SendTo::new("take", Value::Map([("a".to_owned(), Value::from(n))].into_iter().collect())))
                .to_vec()
        })
        .compile()
        .unwrap();
    let done = graph.invoke((), DynUpdate::new().set("a", 9)).unwrap();
    let seen: Vec<_> = done.state().list("seen").unwrap().iter().map(|seen| seen.as_str().unwrap()).collect();
    assert_eq!(seen, ["{\"a\":1}", "{\"a\":2}"]);
}

#[apply(each_backend)]
fn a_strict_run_at_the_named_head_takes_no_value_for_another_interrupt() {
    let (graph, thread) = (three(), new_thread());
    graph.invoke(&thread, Log::update()).unwrap();
    let head = thread.head().unwrap().unwrap();
    let unknown = "0".repeat(32);
    let refused = graph.run(&head).strict_resume(true).invoke(by_id(&unknown, "no")).unwrap_err();
    let problem = ResumeProblem::NotPending { ids: vec![unknown] };
    assert!(matches!(refused.as_run(), Some(RunError::UnknownInterrupt { problem: of, .. }) if *of == problem));
    let asked = graph.run(&head).invoke(by_id(&"0".repeat(32), "no")).unwrap();
    assert_eq!(asked.interrupts().len(), 1);
}
