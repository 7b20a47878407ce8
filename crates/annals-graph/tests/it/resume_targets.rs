//! Tests the task that takes a resume value, the retries after it, and resume values that would be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use annals::base::{Map, Namespace};
use annals_graph::graph::{Entrypoint, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{ResumeProblem, RunError};
use macro_rules_attribute::apply;

use crate::backends::new_thread;
use crate::line_state::{EVERY_WAY, Log, LogUpdate, line, run_on, start};

fn asking(name: &'static str) -> impl Fn(&Log, &Context) -> NodeResult<LogUpdate> {
    move |_: &Log, context: &Context| {
        let answer = context.interrupt(format!("ask {name}"))?;
        Ok(line(format!("{name}={}", answer.as_str().unwrap_or("?"))))
    }
}

fn resume(value: &str) -> Input {
    Input::Command(Command::resume(value))
}

fn questions(outcome: &Outcome<Log>) -> Vec<String> {
    outcome.interrupts().iter().map(|interrupt| interrupt.value.as_str().unwrap().to_owned()).collect()
}

#[apply(each_backend)]
fn the_only_open_interrupt_takes_the_resume_value_whoever_runs_first() {
    let graph =
        StateGraph::<Log>::new().node("b", asking("b")).node("A", asking("A")).edge(START, "b").compile().unwrap();
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run_on(driver, run(), start()).unwrap();
        // The command makes another task due, which begins first and asks as well.
        let input = Input::Command(Command::resume("yes").and_goto("A"));
        let asked = run_on(driver, run(), input).unwrap();
        assert_eq!((asked.state().lines.to_vec(), questions(&asked)), (vec!["b=yes".to_owned()], vec!["ask A".into()]));
        let done = run_on(driver, run(), resume("no")).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["A=no", "b=yes"]);
    }
}

#[apply(each_backend)]
fn a_question_in_a_subgraph_takes_the_resume_value_though_a_sibling_of_its_node_asks_first() {
    let inner = StateGraph::<Log>::new().node("deep", asking("deep")).edge(START, "deep").compile().unwrap();
    let graph =
        StateGraph::<Log>::new().node("inner", inner).node("A", asking("A")).edge(START, "inner").compile().unwrap();
    let thread = new_thread();
    assert_eq!(questions(&graph.invoke(&thread, start()).unwrap()), ["ask deep"]);
    let asked = graph.invoke(&thread, Input::Command(Command::resume("yes").and_goto("A"))).unwrap();
    assert_eq!((asked.state().lines.to_vec(), questions(&asked)), (vec!["deep=yes".to_owned()], vec!["ask A".into()]));
}

/// Fails in its first attempt, asks in the second, and fails `after` times once it has its resume value.
fn failing(policy: RetryPolicy, after: u32) -> (CompiledGraph<Log>, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let node = move |_: &Log, context: &Context| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        if call == 0 {
            return Err("busy".into());
        }
        let answer = context.interrupt("go on?")?;
        if call < 2 + after {
            return Err("still busy".into());
        }
        Ok(line(format!("{} at {}", answer.as_str().unwrap_or("?"), context.attempt())))
    };
    let graph = StateGraph::<Log>::new().node_with("a", node, NodeOptions::new().retry(policy)).edge(START, "a");
    (graph.compile().unwrap(), calls)
}

fn quick(attempts: u32) -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_millis(1)).max_attempts(attempts).jitter(false)
}

#[apply(each_backend)]
fn a_resume_value_allows_as_many_attempts_as_at_first() {
    for (driver, durability) in EVERY_WAY {
        let (graph, calls) = failing(quick(2), 1);
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        let asked = run_on(driver, run(), start()).unwrap();
        assert_eq!((questions(&asked), calls.load(Ordering::SeqCst)), (vec!["go on?".to_owned()], 2));
        thread.store().clear_head_cache();
        let done = run_on(driver, run(), resume("yes")).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["yes at 2"], "{durability:?}");
    }
    // The budget is not larger than at first.
    let (graph, calls) = failing(quick(2), 2);
    let thread = new_thread();
    graph.invoke(&thread, start()).unwrap();
    let failed = graph.invoke(&thread, resume("yes")).unwrap_err();
    assert_eq!((failed.to_string(), calls.load(Ordering::SeqCst)), ("node \"a\" failed: still busy".to_owned(), 4));
}

#[apply(each_backend)]
fn a_resume_value_by_id_allows_a_called_task_as_many_attempts_as_at_first() {
    for by_id in [false, true] {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let work = Task::new("work", move |n: i64, context: &Context| {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            if call == 0 {
                return Err("busy".into());
            }
            let answer = context.interrupt("how many?")?.as_int().unwrap_or_default();
            if call == 2 { Err("still busy".into()) } else { Ok(n + answer) }
        })
        .retry(quick(2));
        let flow = Entrypoint::new("flow", move |n: i64, context: &Context| work.call(context, n)).compile().unwrap();
        let thread = new_thread();
        let asked = flow.invoke(&thread, 1_i64).unwrap();
        let id = asked.interrupts()[0].id.clone();
        thread.store().clear_head_cache();
        let command = if by_id { Command::resume_by_id([(id, 5)]) } else { Command::resume(5) };
        let done = flow.invoke(&thread, command).unwrap();
        assert_eq!((done.state().value(), calls.load(Ordering::SeqCst)), (Some(&6), 4));
    }
}

/// START -> two sends to a subgraph that keeps its state and asks.
#[apply(each_backend)]
fn a_second_task_of_a_subgraph_that_keeps_its_state_waits_for_its_turn() {
    let inner = StateGraph::<Log>::new()
        .node("ask", asking("ask"))
        .edge(START, "ask")
        .persistence(Persistence::PerThread)
        .name("memory")
        .compile()
        .unwrap();
    let called = inner.clone();
    let calling = move |log: &Log, context: &Context| {
        let done = called.invoke(context, Log::update().lines(log.lines.to_vec()))?;
        Ok(line(format!("called: {}", done.state().lines.len())))
    };
    for node_calls in [false, true] {
        let graph = StateGraph::<Log>::new();
        let graph = match node_calls {
            true => graph.node("k", calling.clone()),
            false => graph.node("k", inner.clone()),
        };
        let send =
            |text: &str| SendTo::new("k", Map::from_iter([("lines".to_owned(), Value::List(vec![text.into()]))]));
        let graph = graph.branch(START, move |_: &Log| vec![send("1"), send("2")]).compile().unwrap();
        let thread = new_thread();
        let run = || graph.run(&thread).concurrency_max(1);
        let error = run().invoke(start()).unwrap_err();
        let is_shared = |error: &annals_graph::Error| match error.as_run() {
            Some(RunError::SharedSubgraph { graph, node }) => (graph.as_str(), node.as_str()) == ("memory", "k"),
            _ => false,
        };
        assert!(is_shared(&error) || error.to_string().contains("subgraph \"memory\" keeps its state"), "{error}");
        // The interrupt of the first task is open; its resume value is not lost, and then the other one asks.
        assert_eq!(thread.open_interrupts().unwrap().len(), 1);
        let asked = run().invoke(resume("one")).unwrap();
        assert_eq!(questions(&asked), ["ask ask"]);
        let done = run().invoke(resume("two")).unwrap();
        assert!(done.interrupts().is_empty());
        let memory = inner.get_state(&thread.in_namespace(Namespace::new("k").unwrap()).unwrap()).unwrap();
        assert_eq!(memory.values.lines.to_vec(), ["1", "ask=one", "2", "ask=two"]);
    }
}

#[apply(each_backend)]
fn a_strict_run_refuses_another_resume_value_where_one_was_given_before() {
    let graph = StateGraph::<Log>::new().node("pay", asking("pay")).edge(START, "pay").compile().unwrap();
    let thread = new_thread();
    let asked = graph.invoke(&thread, start()).unwrap();
    let id = asked.interrupts()[0].id.clone();
    let point = thread.head().unwrap().unwrap();
    graph.invoke(&thread, resume("yes")).unwrap();
    let commands = [Command::resume("no"), Command::resume_by_id([(id.clone(), "no")])];
    for command in commands {
        let error = graph.run(&point).strict_resume(true).invoke(command).unwrap_err();
        let Some(RunError::UnknownInterrupt { problem, .. }) = error.as_run() else { panic!("{error}") };
        assert_eq!(*problem, ResumeProblem::Resumed { ids: vec![id.clone()] });
        assert_eq!(problem.reason(), "resumed");
        assert!(error.to_string().contains("fork_to") && error.to_string().contains("restart_from"), "{error}");
    }
    assert_eq!(thread.branches().unwrap().len(), 1, "nothing was stored");
    // Without it, the stored value counts, as in the reference.
    let again = graph.invoke(&point, Command::resume("no")).unwrap();
    assert_eq!(again.state().lines.to_vec(), ["pay=yes"]);
    // The calls that the error names take the other value.
    let fork = point.fork_to("other").unwrap();
    let other = graph.run(&fork).strict_resume(true).invoke(Input::Continue).unwrap();
    let other = match other.interrupts().len() {
        1 => graph.run(&fork).strict_resume(true).invoke(Command::resume("no")).unwrap(),
        _ => other,
    };
    assert_eq!(other.state().lines.to_vec(), ["pay=no"]);
}

/// The refusal needs an interrupt that was resumed: this one is open.
#[apply(each_backend)]
fn a_strict_run_takes_a_first_resume_value_at_an_older_checkpoint() {
    let graph = StateGraph::<Log>::new().node("pay", asking("pay")).edge(START, "pay").compile().unwrap();
    let thread = new_thread();
    graph.invoke(&thread, start()).unwrap();
    let point = thread.head().unwrap().unwrap();
    graph.invoke(&thread, start()).unwrap();
    let done = graph.run(&point).strict_resume(true).invoke(Command::resume("yes")).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["pay=yes"]);
}

/// An entrypoint that has started three tasks waits for the first one.
#[apply(each_backend)]
fn the_interrupts_of_all_started_tasks_are_open_and_can_be_resumed_at_once() {
    let ask = Task::new("ask", |n: i64, context: &Context| Ok(n * context.interrupt(n)?.as_int().unwrap_or_default()));
    let flow = Entrypoint::new("flow", move |_: i64, context: &Context| {
        let started: Vec<_> = (1..=3).map(|n| ask.start(context, n)).collect();
        let mut sum = 0;
        for task in started {
            sum += task.wait()?;
        }
        Ok(sum)
    });
    let flow = flow.compile().unwrap();
    let thread = new_thread();
    let asked = flow.invoke(&thread, 0_i64).unwrap();
    assert_eq!(asked.interrupts().len(), 1);
    let open = thread.open_interrupts().unwrap();
    let values: Vec<_> = open.iter().map(|open| open.value.as_int().unwrap()).collect();
    assert_eq!(values.iter().sum::<i64>(), 6, "{values:?}");
    let answers = open.iter().map(|open| (open.id.clone(), 10));
    let done = flow.invoke(&thread, Command::resume_by_id(answers)).unwrap();
    assert_eq!(done.state().value(), Some(&60));
}

/// START -> a, which routes by a command to b.
#[apply(each_backend)]
fn an_update_as_a_node_that_routed_by_a_command_leaves_nothing_due_and_thread_update_leaves_it_due() {
    let graph = StateGraph::<Log>::new()
        .node("a", |_: &Log| Ok(Command::goto("b")))
        .node("b", |log: &Log| Ok(line(format!("b after {}", log.lines.len()))))
        .edge(START, "a")
        .interrupt_before(["b"])
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, start()).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["b"]);
    let fork = thread.head().unwrap().unwrap().fork_to("fork").unwrap();
    graph.update_state(&fork, line("edit"), None).unwrap();
    assert!(graph.get_state(&fork).unwrap().next.is_empty());
    thread.update::<Log>(line("edit")).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["b"]);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["edit", "b after 1"]);
}
