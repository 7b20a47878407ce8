//! Tests the policies for failures, on both backends: retries, error handlers, and the state that a later run takes up.

use annals::store::log::LogExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use annals_graph::Durability;
use annals_graph::graph::{NodeDefaults, Own, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{IntoInput, RunError, block_on};
use macro_rules_attribute::apply;

use crate::backends::{place, same_after_reload};
use crate::line_state::{Log, LogUpdate, line};

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false)
}

#[derive(Debug, thiserror::Error)]
#[error("busy: {0}")]
struct Busy(u32);

/// A node that fails until an attempt.
fn until(last: u32) -> impl Fn(&Log, &Context) -> NodeResult<LogUpdate> + Clone {
    move |_, context| match context.attempt() {
        attempt if attempt < last => Err(Busy(attempt).into()),
        attempt => Ok(line(format!("attempt {attempt}"))),
    }
}

#[apply(each_backend)]
fn a_node_is_tried_until_it_succeeds_on_both_drivers() {
    let graph = StateGraph::<Log>::new()
        .node_with("a", until(3), NodeOptions::new().retry(quick()))
        .node("b", |_: &Log| Ok(line("b")))
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Log::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["attempt 3", "b"]);
    let done = block_on(graph.ainvoke(&thread, Log::update())).unwrap();
    assert_eq!(done.state().lines.to_vec()[2..], ["attempt 3", "b"]);
    same_after_reload(&graph, &thread);
}

#[test]
fn an_async_node_is_tried_again_without_blocking() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let node = move |_: Arc<Log>, context: Context| {
        let calls = Arc::clone(&counted);
        async move {
            calls.fetch_add(1, Ordering::Relaxed);
            match context.attempt() {
                1 => Err(Busy(1).into()),
                attempt => Ok(line(format!("attempt {attempt}"))),
            }
        }
    };
    let graph = StateGraph::<Log>::new()
        .node_with("a", node, NodeOptions::new().retry(quick()))
        .edge(START, "a")
        .compile()
        .unwrap();
    let done = block_on(graph.ainvoke((), Log::update())).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["attempt 2"]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn the_first_policy_that_fits_decides_and_attempts_count_across_policies() {
    let graph = |policies: &[RetryPolicy]| {
        let options = policies.iter().cloned().fold(NodeOptions::new(), NodeOptions::retry);
        StateGraph::<Log>::new().node_with("a", until(4), options).edge(START, "a").compile().unwrap()
    };
    let twice = quick().on_if(|error| error.downcast_ref::<Busy>().is_some_and(|busy| busy.0 == 1)).max_attempts(2);
    let four = quick().on::<Busy>().max_attempts(4);
    assert!(graph(&[twice.clone(), four.clone()]).invoke((), Log::update()).is_ok());
    let none = graph(&[quick().on::<std::io::Error>(), twice]).invoke((), Log::update()).unwrap_err();
    assert_eq!(none.to_string(), "node \"a\" failed: busy: 2");
    let three = graph(&[four.max_attempts(3)]).invoke((), Log::update()).unwrap_err();
    assert_eq!(three.to_string(), "node \"a\" failed: busy: 3");
}

#[apply(each_backend)]
fn an_answered_question_is_not_asked_again_by_another_attempt() {
    let node = |_: &Log, context: &Context| {
        let answer = context.interrupt("name?")?;
        match context.attempt() {
            1 => Err(Busy(1).into()),
            _ => Ok(line(answer.as_str().unwrap_or_default())),
        }
    };
    let graph = StateGraph::<Log>::new()
        .node_with("a", node, NodeOptions::new().retry(quick()))
        .edge(START, "a")
        .compile()
        .unwrap();
    let thread = thread();
    assert_eq!(graph.invoke(&thread, Log::update()).unwrap().interrupts().len(), 1);
    let done = graph.invoke(&thread, Command::resume("Ada")).unwrap();
    assert!(done.is_done());
    assert_eq!(done.state().lines.to_vec(), ["Ada"]);
}

#[apply(each_backend)]
fn a_panic_is_not_retried_but_handled_and_the_thread_stays_usable() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let bad = move |_: &Log| -> NodeResult<()> {
        counted.fetch_add(1, Ordering::Relaxed);
        panic!("out of cheese")
    };
    let handler = |_: &Log, context: &Context| {
        let error = context.error().unwrap();
        let panicked = matches!(error.find::<RunError>(), Some(RunError::NodePanicked { .. }));
        Ok(Command::goto("z").and_update(line(format!("{} {panicked}", error.node))))
    };
    let graph = StateGraph::<Log>::new()
        .node_with("a", bad, NodeOptions::new().retry(quick()).error_handler(handler))
        .node("never", |_: &Log| Ok(line("never")))
        .node("z", |_: &Log| Ok(line("z")))
        .edge(START, "a")
        .edge("a", "never")
        .compile()
        .unwrap();
    let thread = thread();
    for durability in [Durability::Sync, Durability::Exit] {
        let done = graph.run(&thread).durability(durability).invoke(Log::update()).unwrap();
        assert_eq!(done.state().lines.to_vec().last().unwrap(), "z");
        same_after_reload(&graph, &thread);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(state.values.lines.to_vec(), ["a true", "z", "a true", "z"]);
}

#[apply(each_backend)]
fn a_failed_handler_runs_again_and_its_node_does_not() {
    let runs = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let (of_node, of_handler) = (Arc::clone(&runs), Arc::clone(&runs));
    let node = move |_: &Log| -> NodeResult<()> { Err(Busy(of_node.0.fetch_add(1, Ordering::Relaxed)).into()) };
    let handler = move |_: &Log, context: &Context| match of_handler.1.fetch_add(1, Ordering::Relaxed) {
        0 => Err("not now".into()),
        run => {
            let error = context.error().unwrap();
            Ok(line(format!("run {run}: {} ({})", error.message, error.source.is_some())))
        }
    };
    let graph = StateGraph::<Log>::new()
        .node_with("a", node, NodeOptions::new().error_handler(handler))
        .edge(START, "a")
        .compile()
        .unwrap();
    let thread = thread();
    let failed = graph.invoke(&thread, Log::update()).unwrap_err();
    assert_eq!(failed.to_string(), "node \"__error_handler__a\" failed: not now");
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(state.next, ["a"]);
    assert_eq!(state.tasks[0].error.as_deref(), Some("node \"a\" failed: busy: 0"));
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["run 1: busy: 0 (false)"]);
    assert_eq!(runs.0.load(Ordering::Relaxed), 1);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_handler_is_given_the_input_of_the_node_that_failed() {
    let bad = |_: Value, _: &Context| -> NodeResult<()> { Err(Busy(0).into()) };
    let handler = |given: Value, _: &Context| {
        let names: Vec<String> = given.as_map().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        Ok(DynUpdate::new().set("c", names.join(" ")))
    };
    for own in [false, true] {
        let mut options = NodeOptions::new().input(["a", "b"]);
        let mut defaults = NodeDefaults::new();
        match own {
            true => options = options.error_handler(Own(handler)),
            false => defaults = defaults.error_handler(Own(handler)),
        }
        let graph = StateGraph::with_schema(DynSchema::new().last("a").last("b").last("c").build())
            .node_defaults(defaults)
            .node_with("bad", Own(bad), options)
            .edge(START, "bad")
            .compile()
            .unwrap();
        let given = ["a", "b", "c"].iter().fold(DynUpdate::new(), |update, name| update.set(*name, *name));
        let done = graph.invoke(&thread(), given).unwrap();
        assert_eq!(done.state().get("c"), &Value::from("a b"));
    }
}

#[apply(each_backend)]
fn a_handler_that_has_to_run_again_may_say_something_else() {
    let runs = Arc::new(AtomicU32::new(0));
    let handler = move |_: &Log| Ok(line(format!("handled {}", runs.fetch_add(1, Ordering::Relaxed))));
    let graph = StateGraph::<Log>::new()
        .node_with("a", |_: &Log| -> NodeResult<()> { Err(Busy(0).into()) }, NodeOptions::new().error_handler(handler))
        .node("b", |_: &Log, context: &Context| Ok(line(context.interrupt("b?")?.as_str().unwrap_or_default())))
        .edge(START, "a")
        .edge(START, "b")
        .compile()
        .unwrap();
    let thread = thread();
    let asked = graph.invoke(&thread, Log::update()).unwrap();
    assert_eq!(asked.state().lines.to_vec(), ["handled 0"]);
    let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["handled 1", "yes"]);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_question_of_a_handler_can_be_answered_by_id_too() {
    let handler = |_: &Log, context: &Context| Ok(line(context.interrupt("go on?")?.as_str().unwrap_or_default()));
    let graph = StateGraph::<Log>::new()
        .node_with("a", |_: &Log| -> NodeResult<()> { Err(Busy(0).into()) }, NodeOptions::new().error_handler(handler))
        .edge(START, "a")
        .compile()
        .unwrap();
    let thread = thread();
    let asked = graph.invoke(&thread, Log::update()).unwrap();
    let id = asked.interrupts()[0].id.clone();
    let answers: annals::base::Map = [(id, Value::from("yes"))].into_iter().collect();
    let done = graph.invoke(&thread, Command::resume(Value::Map(answers))).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["yes"]);
}

#[apply(each_backend)]
fn each_failed_send_is_handled_with_its_own_argument() {
    let work = |n: i64, _: &Context| match n {
        2 => Err(Busy(2).into()),
        n => Ok(line(format!("did {n}"))),
    };
    let handler = |n: i64, _: &Context| Ok(line(format!("handled {n}")));
    let graph = StateGraph::<Log>::new()
        .node_with("work", Own(work), NodeOptions::new().error_handler(Own(handler)))
        .branch(START, |_: &Log| (1..=3).map(|n| SendTo::new("work", n)).collect::<Vec<_>>())
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Log::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["did 1", "handled 2", "did 3"]);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_graph_inside_starts_anew_in_another_attempt_and_its_failure_is_handled_outside() {
    let calls = Arc::new(AtomicU32::new(0));
    let inner = |fails: u32| {
        let calls = Arc::clone(&calls);
        StateGraph::<Log>::new()
            .node("c1", |_: &Log| Ok(line("c1")))
            .node("c2", move |_: &Log| match calls.fetch_add(1, Ordering::Relaxed) {
                call if call < fails => Err(Busy(call).into()),
                _ => Ok(line("c2")),
            })
            .sequence((("c3", |_: &Log| Ok(())),))
            .edge(START, "c1")
            .edge("c1", "c2")
            .compile()
            .unwrap()
    };
    let handler = |_: &Log, context: &Context| {
        let busy = context.error().and_then(|error| error.find::<Busy>()).map(|busy| busy.0);
        Ok(line(format!("handled {busy:?}")))
    };
    let outer = |child: CompiledGraph<Log>| {
        let options = NodeOptions::new().retry(quick().on::<Busy>().max_attempts(2)).error_handler(handler);
        StateGraph::<Log>::new().node_with("sub", child, options).edge(START, "sub").compile().unwrap()
    };
    let thread = thread();
    let done = outer(inner(1)).invoke(&thread, Log::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["c1", "c2"]);
    calls.store(0, Ordering::Relaxed);
    let done = outer(inner(9)).invoke((), Log::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["handled Some(1)"]);
}

/// A graph that records its input, its resume values and the number of its calls.
fn asking(persistence: Persistence) -> CompiledGraph<Log> {
    StateGraph::<Log>::new()
        .node("ask", |log: &Log, context: &Context| match log.lines.to_vec().last().map(String::as_str) {
            Some("plain") => Ok(line(format!("turn {}", log.lines.len()))),
            _ => Ok(line(context.interrupt("?")?.as_str().unwrap_or_default())),
        })
        .edge(START, "ask")
        .persistence(persistence)
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_graph_that_is_called_in_another_attempt_begins_where_it_did_in_the_first() {
    let all = [Durability::Sync, Durability::Async, Durability::Exit];
    for (persistence, of_task) in
        [Persistence::PerInvocation, Persistence::PerThread].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let inner = asking(persistence);
        // The first attempt fails if it is to, after it has called the graph.
        let call = move |given: &str, context: &Context| {
            let given = if context.attempt() == 1 { given } else { "asks" };
            let done = inner.invoke(context, line(given))?;
            let fails = context.attempt() == 1 && context.value::<&str>() == Some(&"fails");
            if fails { Err(Busy(1).into()) } else { Ok(done.state().lines.to_vec().join(" ")) }
        };
        let task = Task::new("task", {
            let call = call.clone();
            move |given: String, context: &Context| call(&given, context)
        })
        .retry(quick());
        let node = move |log: &Log, context: &Context| {
            let given = log.lines.to_vec().last().cloned().unwrap_or_default();
            let said = if of_task { task.call(context, given)? } else { call(&given, context)? };
            Ok(line(said))
        };
        let options = NodeOptions::new().retry(quick());
        let graph =
            StateGraph::<Log>::new().node_with("caller", node, options).edge(START, "caller").compile().unwrap();
        for (durability, awaited) in all.into_iter().flat_map(|durability| [(durability, false), (durability, true)]) {
            let name = format!("{persistence:?} {of_task} {durability:?} {awaited}");
            let thread = thread().store().thread(&name).unwrap();
            let run = |value: &'static str, input: Input| {
                let run = graph.run(&thread).context(value).durability(durability);
                if awaited { block_on(run.ainvoke(input)).unwrap() } else { run.invoke(input).unwrap() }
            };
            let last = |outcome: &Outcome<Log>| outcome.state().lines.to_vec().last().cloned().unwrap();
            let input = |text: &str| IntoInput::<Log, _>::into_input(line(text));
            let turn = run("", input("plain"));
            assert_eq!(last(&turn), "plain turn 1", "{name}");
            let waiting = run("fails", input("plain"));
            assert_eq!(waiting.interrupts().len(), 1, "{name}");
            let answered = run("", Input::Command(Command::resume("answered")));
            let before = if persistence == Persistence::PerThread { "plain turn 1 " } else { "" };
            assert_eq!(last(&answered), format!("{before}asks answered"), "{name}");
            let namespaces = thread.store().backend().namespaces(thread.id()).unwrap();
            assert!(namespaces.iter().all(|namespace| !namespace.as_str().ends_with("|1")), "{namespaces:?}");
            assert!(thread.store().check().unwrap().problems.is_empty());
        }
    }
}

#[test]
fn defaults_reach_nodes_without_their_own_and_handlers_are_retried() {
    let handler = |_: &Log, context: &Context| match context.attempt() {
        1 => Err(Busy(1).into()),
        attempt => Ok(line(format!("{} handled in attempt {attempt}", context.error().unwrap().node))),
    };
    let graph = StateGraph::<Log>::new()
        .node("a", until(9))
        .node_with(
            "b",
            until(2),
            NodeOptions::new().retry(quick().max_attempts(1)).error_handler(|_: &Log| Ok(line("own"))),
        )
        .node("c", until(2))
        .node_defaults(NodeDefaults::new().retry(quick().max_attempts(2)).error_handler(handler))
        .edge(START, "a")
        .edge(START, "b")
        .edge(START, "c")
        .compile()
        .unwrap();
    let done = graph.invoke((), Log::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["a handled in attempt 2", "own", "attempt 2"]);
}
