//! Runs of graphs in graphs at their borders: lineages, the point where a subgraph begins, and handovers.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use annals::history::Snapshot;
use annals_graph::graph::{Entrypoint, IntoNode, NodeResult, Own, Persistence, RetryPolicy, Target};
use annals_graph::prelude::*;
use annals_graph::task::RunControl;
use annals_graph::{Durability, IntoInput, Run, TaskState};
use macro_rules_attribute::apply;

use crate::backends::{new_thread, same_after_reload};
use crate::subgraphs::{Inner, InnerUpdate, Outer, OuterUpdate};

const DURABILITIES: [Durability; 3] = [Durability::Sync, Durability::Async, Durability::Exit];

fn log(text: impl Into<String>) -> OuterUpdate {
    Outer::update().log([text.into()])
}

fn topic(text: &str) -> OuterUpdate {
    Outer::update().topic(text.to_owned())
}

fn count(s: &Inner) -> NodeResult<InnerUpdate> {
    Ok(Inner::update().visits(s.visits + 1))
}

/// Counts its visits in a state that lasts as long as the thread.
fn counting() -> CompiledGraph<Inner> {
    let graph = StateGraph::<Inner>::new().node("count", count).edge(START, "count");
    graph.persistence(Persistence::PerThread).compile().unwrap()
}

/// Counts its visits, then asks.
fn asking(persistence: Persistence) -> CompiledGraph<Inner> {
    StateGraph::<Inner>::new()
        .node("count", count)
        .node("ask", |s: &Inner, context: &Context| {
            let answer = context.interrupt(s.topic.as_str())?;
            let answer = answer.as_str().unwrap_or_default().to_owned();
            Ok(Inner::update().topic(format!("{} {answer} {}", s.topic, s.visits)))
        })
        .edge(START, "count")
        .edge("count", "ask")
        .persistence(persistence)
        .compile()
        .unwrap()
}

fn parent<M>(inner: impl IntoNode<Outer, M>) -> StateGraph<Outer> {
    StateGraph::<Outer>::new()
        .node("inner", inner)
        .node("after", |s: &Outer| Ok(log(format!("after {}", s.topic))))
        .edge(START, "inner")
        .edge("inner", "after")
}

/// Calls a graph, or only says that it does not, as the plan of its visits says.
fn planned(
    inner: &CompiledGraph<Inner>,
    name: &'static str,
    plan: &Arc<Mutex<VecDeque<bool>>>,
) -> impl Fn(&Outer, &Context) -> NodeResult<OuterUpdate> + Clone + use<> {
    let (inner, plan) = (inner.clone(), Arc::clone(plan));
    move |_, context| {
        if !plan.lock().unwrap().pop_front().unwrap() {
            return Ok(log(format!("{name} rests")));
        }
        let done = inner.invoke(context, Inner::update().topic("x"))?;
        Ok(log(format!("{name} {}", done.state().visits)))
    }
}

fn last(outcome: &Outcome<Outer>) -> String {
    outcome.state().log.to_vec().last().cloned().unwrap_or_default()
}

/// Leaves the fork with which a run at a checkpoint begins.
pub(crate) fn drained(graph: &CompiledGraph<Outer>, at: &Snapshot, durability: Durability) {
    let control = RunControl::new();
    control.request_drain("the process ends");
    let outcome = graph.run(at).control(&control).durability(durability).invoke(Input::Continue).unwrap();
    assert!(matches!(outcome, Outcome::Drained { .. }), "{outcome:?}");
}

/// The namespace of the graph in the first task that is due.
fn inside(graph: &CompiledGraph<Outer>, thread: &Thread) -> Thread {
    let state = graph.get_state(thread).unwrap();
    let Some(TaskState::Namespace(path)) = &state.tasks[0].state else { panic!("{state:?}") };
    thread.in_namespace(path.as_str()).unwrap()
}

/// A node that calls a graph, and fails after that if it is told so. It is tried again.
pub(crate) fn calls_then_fails(inner: &CompiledGraph<Inner>, fails: &Arc<AtomicBool>) -> CompiledGraph<Outer> {
    let (inner, fails) = (inner.clone(), Arc::clone(fails));
    let node = move |_: &Outer, context: &Context| {
        let done = inner.invoke(context, Inner::update().topic("x"))?;
        if fails.swap(false, Ordering::SeqCst) {
            return Err("not yet".into());
        }
        Ok(log(format!("{}", done.state().visits)))
    };
    let retry = RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false);
    StateGraph::<Outer>::new()
        .node_with("calls", node, NodeOptions::new().retry(retry))
        .edge(START, "calls")
        .compile()
        .unwrap()
}

/// A node to which two topics are sent.
fn sends_to<M>(node: impl IntoNode<Outer, M>, topics: [&'static str; 2]) -> CompiledGraph<Outer> {
    let send = |topic: &str| {
        let given = [("topic".to_owned(), Value::from(topic))].into_iter().collect();
        Target::Send(SendTo::new("call", Value::Map(given)))
    };
    StateGraph::<Outer>::new()
        .node("call", node)
        .branch(START, move |_: &Outer| topics.map(send).to_vec())
        .compile()
        .unwrap()
}

pub(crate) fn snapshot_before(thread: &Thread, node: &str) -> Snapshot {
    thread.history().unwrap().map(Result::unwrap).find(|at| at.next().any(|next| next == node)).unwrap()
}

#[apply(each_backend)]
fn an_edit_made_before_a_run_at_the_checkpoint_that_it_edits_does_not_take_its_place() {
    let inner = asking(Persistence::PerThread);
    let graph = parent(inner.clone()).compile().unwrap();
    for durability in DURABILITIES {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let asked = inside.head().unwrap().unwrap();
        inner.update_state(&inside, Inner::update().topic("blue").visits(7), "count").unwrap();
        drained(&graph, &asked, durability);
        assert_eq!(run().invoke(Input::Continue).unwrap().interrupts()[0].value, Value::from("red"), "{durability:?}");
        assert_eq!(last(&run().invoke(Command::resume("yes")).unwrap()), "after red yes 1", "{durability:?}");
    }
}

#[apply(each_backend)]
fn a_run_saved_at_its_end_that_was_left_for_another_does_not_count() {
    let plan = Arc::new(Mutex::new(VecDeque::from([true, true, false, true])));
    let graph = parent(planned(&counting(), "inner", &plan)).compile().unwrap();
    let thread = new_thread();
    let exit = |on: &Thread| graph.run(on).durability(Durability::Exit).invoke(Outer::update()).unwrap();
    exit(&thread);
    let first = thread.head().unwrap().unwrap();
    exit(&thread);
    // From the end of the first run on, without a visit; then with one.
    graph.invoke(&first, Outer::update()).unwrap();
    let done = graph.invoke(&thread, Outer::update()).unwrap();
    let log = done.state().log.to_vec();
    assert_eq!(log, ["inner 1", "after ", "inner rests", "after ", "inner 2", "after "]);
}

#[apply(each_backend)]
fn a_visit_in_a_superstep_that_was_made_again_without_one_does_not_count() {
    for durability in [Durability::Sync, Durability::Async] {
        let plan = Arc::new(Mutex::new(VecDeque::from([true, false, true])));
        let graph = parent(planned(&counting(), "inner", &plan)).compile().unwrap();
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(Outer::update()).unwrap();
        let due = snapshot_before(&thread, "inner");
        let replayed = graph.run(&due).durability(durability).invoke(Input::Continue).unwrap();
        assert_eq!(replayed.state().log.to_vec()[0], "inner rests", "{durability:?}");
        let done = run().invoke(Outer::update()).unwrap();
        assert_eq!(done.state().log.to_vec()[2], "inner 1", "{durability:?}");
    }
}

#[apply(each_backend)]
fn a_visit_counts_though_an_edit_took_the_place_of_its_end() {
    let graph = parent(asking(Persistence::PerThread)).compile().unwrap();
    for durability in DURABILITIES {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(topic("red")).unwrap();
        graph.update_state(&thread, topic("blue"), "inner").unwrap();
        assert_eq!(last(&run().invoke(Input::Continue).unwrap()), "after blue", "{durability:?}");
        run().invoke(topic("green")).unwrap();
        assert_eq!(last(&run().invoke(Command::resume("yes")).unwrap()), "after green yes 2", "{durability:?}");
    }
}

/// Two nodes of one superstep that call a graph each; the second is due once more after it.
fn siblings(left: VecDeque<bool>, right: VecDeque<bool>) -> CompiledGraph<Outer> {
    let [left, right] = [left, right].map(|plan| Arc::new(Mutex::new(plan)));
    let inner = counting();
    StateGraph::<Outer>::new()
        .node("left", planned(&inner, "left", &left))
        .node("right", planned(&inner, "right", &right))
        .edge(START, "left")
        .edge(START, "right")
        .edge("left", "right")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_run_at_the_checkpoint_of_a_graph_makes_the_superstep_of_those_beside_it_again() {
    for in_second_run in [false, true] {
        let right = [true, false, false, in_second_run, true, false];
        let graph = siblings([true, true, true].into(), right.into());
        let thread = new_thread();
        let sync = |on: Run<'_, Outer>, input: Input| {
            on.durability(Durability::Sync).invoke(input).unwrap().state().log.to_vec()
        };
        let input = || IntoInput::<Outer, _>::into_input(Outer::update());
        assert_eq!(sync(graph.run(&thread), input()), ["left 1", "right 1", "right rests"]);
        let inside = thread.in_namespace("left").unwrap();
        let begun = snapshot_before(&inside, "count");
        let log = sync(graph.run(&begun), Input::Continue);
        if in_second_run {
            assert_eq!(log, ["left 1", "right rests", "right 1"]);
            continue;
        }
        assert_eq!(log, ["left 1", "right rests", "right rests"]);
        let log = sync(graph.run(&thread), input());
        assert_eq!(log[3..], ["left 2", "right 1", "right rests"]);
    }
}

#[apply(each_backend)]
fn a_graph_that_a_replay_visits_later_than_another_begins_as_before() {
    let graph = siblings([true, true].into(), [true, false, false, true].into());
    let thread = new_thread();
    graph.invoke(&thread, Outer::update()).unwrap();
    let due = snapshot_before(&thread, "left");
    let done = graph.invoke(&due, Input::Continue).unwrap();
    assert_eq!(done.state().log.to_vec(), ["left 1", "right rests", "right 1"]);
}

#[apply(each_backend)]
fn a_run_at_the_fork_that_names_an_edit_begins_with_the_edit() {
    let inner = asking(Persistence::PerThread);
    let graph = parent(inner.clone()).compile().unwrap();
    for durability in DURABILITIES {
        let thread = new_thread();
        graph.run(&thread).durability(durability).invoke(topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let edited = inner.update_state(&inside, Inner::update().topic("blue").visits(7), "count").unwrap();
        drained(&graph, &edited, durability);
        let fork = thread.head().unwrap().unwrap();
        thread.store().clear_head_cache();
        let asked = graph.run(&fork).durability(durability).invoke(Input::Continue).unwrap();
        assert_eq!(asked.interrupts()[0].value, Value::from("blue"), "{durability:?}");
        let done = graph.run(&thread).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert_eq!(last(&done), "after blue yes 7", "{durability:?}");
    }
}

#[apply(each_backend)]
fn a_run_at_a_fork_that_names_nothing_names_nothing() {
    let graph = parent(asking(Persistence::PerThread)).compile().unwrap();
    let thread = new_thread();
    graph.invoke(&thread, topic("red")).unwrap();
    let due = snapshot_before(&thread, "inner");
    drained(&graph, &due, Durability::Sync);
    let fork = thread.head().unwrap().unwrap();
    for _ in 0..2 {
        graph.invoke(&fork, Input::Continue).unwrap();
        let head = thread.head().unwrap().unwrap();
        assert!(head.next().eq(["inner"]) && head.record().parents.is_empty(), "{head:?}");
        assert_eq!(last(&graph.invoke(&thread, Command::resume("yes")).unwrap()), "after red yes 1");
    }
}

#[apply(each_backend)]
fn a_replay_after_a_fork_that_names_an_edit_begins_with_what_came_of_it() {
    let inner = StateGraph::<Inner>::new()
        .node("count", count)
        .node("say", |s: &Inner| Ok(Inner::update().topic(s.visits.to_string())))
        .edge(START, "count")
        .edge("count", "say")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = parent(inner.clone());
    let graph = graph.branch("after", |s: &Outer| if s.log.len() < 2 { "inner" } else { END }).compile().unwrap();
    for durability in [Durability::Sync, Durability::Async] {
        let thread = new_thread();
        let run = |on: &Snapshot| graph.run(on).durability(durability).invoke(Input::Continue).unwrap();
        graph.run(&thread).durability(durability).invoke(topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let first = inside.history().unwrap().map(Result::unwrap).filter(|at| at.next().eq(["say"])).last().unwrap();
        let edited = inner.update_state(&first, Inner::update().visits(7), "count").unwrap();
        assert_eq!(run(&edited).state().log.to_vec(), ["after 7", "after 8"], "{durability:?}");
        let second = snapshot_before(&thread, "inner");
        assert_eq!(second.record().parents.len(), 2, "it says where its run began");
        assert_eq!(run(&second).state().log.to_vec(), ["after 7", "after 8"], "{durability:?}");
    }
}

#[apply(each_backend)]
fn a_run_at_the_newest_checkpoint_goes_on_with_an_answer_or_an_input() {
    for persistence in [Persistence::PerThread, Persistence::PerInvocation] {
        let inner = asking(persistence);
        let graph = parent(inner.clone()).compile().unwrap();
        for durability in DURABILITIES {
            let thread = new_thread();
            let at_head = |input: Input| {
                let head = thread.head().unwrap().unwrap();
                graph.run(&head).durability(durability).invoke(input).unwrap()
            };
            graph.run(&thread).durability(durability).invoke(topic("red")).unwrap();
            inner.update_state(&inside(&graph, &thread), Inner::update().visits(7), "count").unwrap();
            let done = at_head(Input::Command(Command::resume("yes")));
            assert_eq!(last(&done), "after red yes 7", "{persistence:?} {durability:?}");
            graph.run(&thread).durability(durability).invoke(topic("green")).unwrap();
            // An input at a question: the visit counts.
            at_head(IntoInput::<Outer, _>::into_input(topic("blue")));
            let done = at_head(Input::Command(Command::resume("yes")));
            let visits = if persistence == Persistence::PerThread { 9 } else { 1 };
            assert_eq!(last(&done), format!("after blue yes {visits}"), "{persistence:?} {durability:?}");
        }
    }
}

#[apply(each_backend)]
fn an_answer_at_an_older_edit_of_a_graph_is_given_to_it_there() {
    for persistence in [Persistence::PerThread, Persistence::PerInvocation] {
        let inner = asking(persistence);
        let graph = parent(inner.clone()).compile().unwrap();
        for durability in DURABILITIES {
            let thread = new_thread();
            graph.run(&thread).durability(durability).invoke(topic("red")).unwrap();
            let inside = inside(&graph, &thread);
            let older = inner.update_state(&inside, Inner::update().visits(7), "count").unwrap();
            inner.update_state(&inside, Inner::update().visits(8), "count").unwrap();
            let done = graph.run(&older).durability(durability).invoke(Command::resume("yes")).unwrap();
            assert_eq!(last(&done), "after red yes 7", "{persistence:?} {durability:?}");
        }
    }
}

#[apply(each_backend)]
fn a_node_that_fails_after_a_graph_that_was_answered_where_it_was_named_does_not_go_back_there() {
    let works = Arc::new(AtomicUsize::new(0));
    let fails = Arc::new(AtomicBool::new(false));
    let worked = Arc::clone(&works);
    let inner = StateGraph::<Inner>::new()
        .node("count", count)
        .node("ask", move |s: &Inner, context: &Context| {
            context.interrupt(s.topic.as_str())?;
            worked.fetch_add(1, Ordering::SeqCst);
            Ok(Inner::update().visits(s.visits * 10))
        })
        .edge(START, "count")
        .edge("count", "ask")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = calls_then_fails(&inner, &fails);
    for durability in [Durability::Sync, Durability::Async] {
        let thread = new_thread();
        graph.run(&thread).durability(durability).invoke(Outer::update()).unwrap();
        let inside = thread.in_namespace("calls").unwrap();
        let edited = inner.update_state(&inside, Inner::update().visits(7), "count").unwrap();
        works.store(0, Ordering::SeqCst);
        fails.store(true, Ordering::SeqCst);
        let done = graph.run(&edited).durability(durability).invoke(Command::resume("yes")).unwrap();
        assert!(!fails.load(Ordering::SeqCst), "{durability:?}: one attempt");
        assert_eq!((last(&done).as_str(), works.load(Ordering::SeqCst)), ("70", 1), "{durability:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn what_a_graph_did_before_its_task_dropped_it_counts_for_the_next_task() {
    let waits = Arc::new(AtomicBool::new(true));
    let has_come = Arc::clone(&waits);
    let inner = StateGraph::<Inner>::new()
        .node("count", count)
        .node("wait", move |s: Arc<Inner>, _: Context| {
            let waits = has_come.swap(false, Ordering::SeqCst);
            async move {
                if waits {
                    std::future::pending::<()>().await;
                }
                Ok(Inner::update().topic(format!("{} waited", s.topic)))
            }
        })
        .edge(START, "count")
        .edge("count", "wait")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let gone = Arc::clone(&waits);
    let call = move |given: Value, context: Context| {
        let (inner, waits) = (inner.clone(), Arc::clone(&gone));
        async move {
            let name = given.get("topic").and_then(Value::as_str).unwrap_or_default().to_owned();
            let mut visit = pin!(inner.ainvoke(&context, Inner::update().topic(&*name)));
            let done = poll_fn(|polling| match visit.as_mut().poll(polling) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending if name == "drops" && !waits.load(Ordering::SeqCst) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            })
            .await;
            let Some(done) = done else { return Ok(log("dropped")) };
            let done = done?;
            Ok(log(format!("{} {}", done.state().topic, done.state().visits)))
        }
    };
    let graph = sends_to(Own(call), ["drops", "ends"]);
    let thread = new_thread();
    for visits in [2, 4] {
        waits.store(true, Ordering::SeqCst);
        let run = graph.run(&thread).concurrency_max(1).durability(Durability::Sync);
        let done = annals_graph::block_on(run.ainvoke(Outer::update())).unwrap();
        let log = done.state().log.to_vec();
        assert_eq!(log[log.len() - 2..], ["dropped".to_owned(), format!("ends waited {visits}")]);
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn a_task_that_asked_before_it_called_a_graph_begins_it_after_the_visit_of_another() {
    let inner = counting();
    let call = move |given: Value, context: &Context| {
        let name = given.get("topic").and_then(Value::as_str).unwrap_or_default().to_owned();
        if name == "asks" {
            context.interrupt("go on?")?;
        }
        let done = inner.invoke(context, Inner::update().topic(&*name))?;
        Ok(log(format!("{name} {}", done.state().visits)))
    };
    let graph = sends_to(Own(call), ["ends", "asks"]);
    for durability in [Durability::Sync, Durability::Async] {
        let thread = new_thread();
        let run = || graph.run(&thread).concurrency_max(1).durability(durability);
        assert_eq!(run().invoke(Outer::update()).unwrap().interrupts().len(), 1, "{durability:?}");
        thread.store().clear_head_cache();
        let done = run().invoke(Command::resume("yes")).unwrap();
        assert_eq!(done.state().log.to_vec(), ["ends 1", "asks 2"], "{durability:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn a_run_that_begins_a_graph_for_a_task_which_another_run_has_ended_is_refused() {
    let inner = asking(Persistence::PerThread);
    let calls = |name: &'static str| {
        let inner = inner.clone();
        move |s: &Outer, context: &Context| {
            let done = inner.invoke(context, Inner::update().topic(s.topic.clone()))?;
            Ok(log(format!("{name} {}", done.state().topic)))
        }
    };
    let graph = StateGraph::<Outer>::new()
        .node("left", calls("left"))
        .node("right", calls("right"))
        .edge(START, "left")
        .edge(START, "right")
        .compile()
        .unwrap();
    let thread = new_thread();
    let asked = graph.invoke(&thread, topic("red")).unwrap();
    let id = asked.interrupts()[0].id.clone();
    let answer = |text: &str| Command::resume(Value::Map([(id.clone(), Value::from(text))].into_iter().collect()));
    // Another run answers the question while this one begins.
    let (other, rival, rivals) = (graph.clone(), thread.clone(), answer("rival"));
    let listened = AtomicUsize::new(0);
    let run = graph.run(&thread).concurrency_max(1).on_event(move |_| {
        if listened.fetch_add(1, Ordering::SeqCst) == 0 {
            let rest = other.invoke(&rival, rivals.clone()).unwrap();
            assert_eq!(rest.interrupts().len(), 1);
        }
    });
    let lost = run.invoke(answer("late"));
    assert!(lost.as_ref().is_err_and(|error| error.is_conflict()), "{lost:?}");
    let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(done.state().log.to_vec(), ["left red rival 1", "right red yes 1"]);
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn an_edit_of_a_graph_before_its_task_is_stored_is_a_conflict_and_later_it_is_none() {
    let inner = counting();
    for at_once in [true, false] {
        let thread = new_thread();
        let edit = {
            let (inner, thread) = (inner.clone(), thread.clone());
            move || inner.update_state(&thread.in_namespace("call").unwrap(), Inner::update().visits(7), "count")
        };
        let (called, first, second) = (inner.clone(), edit.clone(), edit);
        let graph = StateGraph::<Outer>::new()
            .node("call", move |_: &Outer, context: &Context| {
                let done = called.invoke(context, Inner::update().topic("x"))?;
                if at_once {
                    first()?;
                }
                Ok(log(format!("{}", done.state().visits)))
            })
            .node("pass", |_: &Outer| Ok(log("passed")))
            .node("edit", move |_: &Outer| {
                if !at_once {
                    second()?;
                }
                Ok(log("edited"))
            })
            .edge(START, "call")
            .edge("call", "pass")
            .edge("pass", "edit")
            .compile()
            .unwrap();
        let ended = graph.run(&thread).durability(Durability::Sync).invoke(Outer::update());
        match ended {
            Err(error) if at_once => assert!(error.is_conflict(), "{error}"),
            ended => assert_eq!((last(&ended.unwrap()).as_str(), at_once), ("edited", false)),
        }
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn a_second_visit_in_a_run_at_the_end_of_the_first_goes_on_from_there() {
    let inner = counting();
    let graph = parent(inner.clone());
    let graph = graph.branch("after", |s: &Outer| if s.log.len() % 2 == 1 { "inner" } else { END }).compile().unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(Durability::Sync);
        run().invoke(topic("red")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        assert_eq!(inner.get_state(&inside).unwrap().values.visits, 2);
        let ends = inside.history().unwrap().map(Result::unwrap).filter(|at| at.next().count() == 0);
        let first = ends.last().unwrap();
        if reloaded {
            thread.store().clear_head_cache();
        }
        let done = graph.run(&first).durability(Durability::Sync).invoke(Input::Continue).unwrap();
        assert_eq!(done.state().log.to_vec(), ["after red", "after red"], "{reloaded}");
        assert_eq!(inner.get_state(&inside).unwrap().values.visits, 2, "{reloaded}");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn an_entrypoint_as_a_node_returns_an_object_or_nothing() {
    let value = |value: Value| {
        let entry = Entrypoint::new("entry", move |given: Value, _: &Context| {
            assert_eq!(given.get("topic"), Some(&Value::from("red")));
            Ok(value.clone())
        });
        let graph = parent(entry.compile().unwrap()).compile().unwrap();
        graph.invoke(&new_thread(), topic("red"))
    };
    let map = Value::Map([("topic".to_owned(), Value::from("blue"))].into_iter().collect());
    assert_eq!(last(&value(map).unwrap()), "after blue");
    assert_eq!(last(&value(Value::Null).unwrap()), "after red");
    let error = value(Value::from(1)).unwrap_err();
    assert!(error.to_string().contains("graph \"entry\" is a node, and the value it returned is not a map"), "{error}");
}
