//! Tests cached results, on both backends: nodes that do not run again, cache keys, and results that are not cached.

use std::sync::Arc;
use std::time::Duration;

use annals::store::MemoryBackend;
use annals_graph::graph::{CachePolicy, NodeDefaults, Own, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{RunError, block_on};
use macro_rules_attribute::apply;

use crate::backends::{place, same_after_reload};
use crate::functional::Log;
use crate::kv::Hand;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Work {
    #[channel(last)]
    n: i64,
    #[channel(append)]
    lines: List<String>,
    #[channel(messages)]
    messages: Messages,
}

fn lines(text: impl Into<String>) -> WorkUpdate {
    Work::update().lines([text.into()])
}

fn by_n() -> CachePolicy {
    CachePolicy::new().key(|input| input.get("n").and_then(Value::as_int).unwrap_or(0).to_string())
}

fn cached(policy: CachePolicy) -> NodeOptions<Work> {
    NodeOptions::new().cache(policy)
}

/// A graph of one node that is kept.
fn one(log: &Log, policy: CachePolicy) -> StateGraph<Work> {
    let log = log.clone();
    let node = move |work: &Work| {
        log.add(format!("one {}", work.n));
        Ok(lines(format!("result {}", work.n)))
    };
    StateGraph::<Work>::new().name("one").node_with("one", node, cached(policy)).edge(START, "one")
}

#[apply(each_backend)]
fn what_a_node_wrote_and_where_it_led_is_known_on_another_thread() {
    let (log, store) = (Log::default(), place());
    let (first, worker) = (log.clone(), log.clone());
    let graph = StateGraph::<Work>::new()
        .node_with(
            "first",
            move |work: &Work, _: &Context| {
                first.add("first");
                let update = lines("first").messages([Message::ai("a word that is said once")]);
                Ok(vec![Command::update(update).and_goto(SendTo::new("worker", work.n)), Command::goto("after")])
            },
            cached(by_n()),
        )
        .node(
            "worker",
            Own(move |n: i64| {
                worker.add("worker");
                Ok(lines(format!("worker {n}")))
            }),
        )
        .node("after", |work: &Work| Ok(lines(format!("after {}", work.messages.len()))))
        .edge(START, "first")
        .cache(&store.cache())
        .compile()
        .unwrap();
    let run = |id: &str, awaited: bool| {
        let thread = store.thread(id).unwrap();
        let input = Work::update().n(3);
        let done = if awaited { block_on(graph.ainvoke(&thread, input)) } else { graph.invoke(&thread, input) };
        same_after_reload(&graph, &thread);
        done.unwrap().state().clone()
    };
    let ran = run("a", false);
    assert_eq!(log.take(), ["first", "worker"]);
    assert_eq!(ran.lines.to_vec(), ["first", "after 1", "worker 3"]);
    for (id, awaited) in [("b", false), ("c", true)] {
        assert_eq!(run(id, awaited), ran, "also the id of the message");
        assert_eq!(log.take(), ["worker"]);
    }
    let parts = graph.stream((), Work::update().n(3), &[StreamMode::Updates]).unwrap();
    let shown: Vec<_> = parts
        .map(|part| match part.unwrap().data {
            StreamData::Updates(update) => (update.node.to_string(), update.cached),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shown[0], ("first".to_string(), true));
    assert!(shown[1..].iter().all(|(_, cached)| !cached));
}

#[test]
fn an_entry_counts_for_its_input_until_it_expires_or_is_cleared() {
    let (log, hand) = (Log::default(), Hand::default());
    let store = Store::with_backend(Arc::new(MemoryBackend::new()), OpenOptions::new().clock(hand.clone()));
    let graph = one(&log, CachePolicy::new().ttl(Duration::from_secs(10))).cache(&store.cache()).compile().unwrap();
    let run = |n: i64| {
        graph.invoke((), Work::update().n(n)).unwrap();
        log.take().len()
    };
    hand.set(1);
    assert_eq!([run(1), run(1), run(2), run(2)], [1, 0, 1, 0]);
    hand.set(10);
    assert_eq!(run(1), 0);
    hand.set(12);
    assert_eq!([run(1), run(1)], [1, 0]);
    graph.clear_cache(["other"]).unwrap();
    assert_eq!(run(1), 0);
    graph.clear_cache(["other", "one"]).unwrap();
    assert_eq!([run(1), run(1)], [1, 0]);
    graph.clear_cache([] as [&str; 0]).unwrap();
    assert_eq!(run(1), 1);
    let without = one(&log, CachePolicy::new()).compile().unwrap();
    assert_eq!(without.clear_cache(["one"]).unwrap_err().to_string(), RunError::NoCache.to_string());
}

#[apply(each_backend)]
fn graphs_of_another_shape_or_function_have_entries_of_their_own() {
    let (log, store) = (Log::default(), place());
    let run = |graph: StateGraph<Work>| {
        let done = graph.cache(&store.cache()).compile().unwrap().invoke((), Work::update().n(1)).unwrap();
        (done.state().lines.to_vec(), log.take().len())
    };
    let one = || one(&log, by_n());
    assert_eq!(run(one()), (vec!["result 1".to_string()], 1));
    assert_eq!(run(one()), (vec!["result 1".to_string()], 0));
    // The edges of the current graph decide the next node, not those of the graph that cached the result.
    let longer = || one().node("two", |_: &Work| Ok(lines("two"))).edge("one", "two");
    assert_eq!(run(longer()), (vec!["result 1".to_string(), "two".to_string()], 1));
    assert_eq!(run(longer()), (vec!["result 1".to_string(), "two".to_string()], 0));
    let other =
        || StateGraph::<Work>::new().name("one").node_with("one", |_: &Work| Ok(lines("other")), cached(by_n()));
    assert_eq!(run(other().edge(START, "one")).0, ["other"]);
    assert_eq!(run(one().name("another name")).1, 1);
    // A graph as a node, and nodes of a sequence.
    let inner = |node: &str| {
        let inner = StateGraph::<Work>::new().name("inner").node(node, |_: &Work| Ok(lines("inner"))).edge(START, node);
        let inner = inner.edge(node, "end").node("end", |work: &Work| Ok(lines(format!("{}", work.lines.len()))));
        StateGraph::<Work>::new().name("outer").node_with("inner", inner.compile().unwrap(), cached(by_n()))
    };
    let chunks = |graph: StateGraph<Work>| {
        let graph = graph.cache(&store.cache()).compile().unwrap();
        let parts = graph.stream((), Work::update().n(1), &[StreamMode::Updates]).unwrap();
        let cached = parts.map(|part| match part.unwrap().data {
            StreamData::Updates(update) => update.cached,
            other => panic!("{other:?}"),
        });
        cached.collect::<Vec<_>>()
    };
    assert_eq!(chunks(inner("a").edge(START, "inner")), [false]);
    assert_eq!(chunks(inner("a").edge(START, "inner")), [true]);
    assert_eq!(chunks(inner("b").edge(START, "inner")), [false]);
    let sequence = |other: bool| {
        let graph = StateGraph::<Work>::new().name("sequence").node_defaults(NodeDefaults::new().cache(by_n()));
        let graph = match other {
            false => graph.sequence((("a", |_: &Work| Ok(lines("a"))), ("b", |_: &Work| Ok(lines("b"))))),
            true => graph.sequence((("a", of_another_function), ("b", of_another_function))),
        };
        graph.entry("a")
    };
    assert_eq!(chunks(sequence(false)), [false, false]);
    assert_eq!(chunks(sequence(true)), [false, false]);
    assert_eq!([chunks(sequence(false)), chunks(sequence(true))].concat(), [true; 4]);
}

fn of_another_function(_: &Work) -> NodeResult<WorkUpdate> {
    Ok(lines("other"))
}

#[apply(each_backend)]
fn a_graph_inside_uses_the_cache_around_it_unless_it_has_its_own() {
    let log = Log::default();
    let around = |own: Option<&Store>, outer: &Store| {
        let inner = one(&log, by_n());
        let inner = if let Some(own) = own { inner.cache(&own.cache()) } else { inner }.compile().unwrap();
        let called = inner.clone();
        StateGraph::<Work>::new()
            .node("node", inner)
            .node("calls", move |work: &Work, context: &Context| {
                called.invoke(context, Work::update().n(work.n))?;
                Ok(())
            })
            .edge(START, "node")
            .edge("node", "calls")
            .cache(&outer.cache())
            .compile()
            .unwrap()
    };
    let (outer, own) = (place(), Store::memory());
    let run = |graph: &CompiledGraph<Work>| {
        graph.invoke(&outer.thread("t").unwrap(), Work::update().n(1)).unwrap();
        log.take().len()
    };
    assert_eq!(run(&around(Some(&own), &outer)), 1, "the call finds what the node left");
    assert_eq!(run(&around(None, &outer)), 1, "it is in the other cache");
    assert_eq!(run(&around(None, &outer)), 0);
}

#[apply(each_backend)]
fn an_answered_question_and_another_attempt_are_kept_as_one_result() {
    let (log, store) = (Log::default(), place());
    let inner = log.clone();
    let node = move |_: &Work, context: &Context| {
        inner.add(format!("attempt {}", context.attempt()));
        let answer = context.interrupt("name?")?;
        match context.attempt() {
            1 => Err("busy".into()),
            _ => Ok(lines(answer.as_str().unwrap_or_default())),
        }
    };
    let retry = RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false);
    let graph = StateGraph::<Work>::new()
        .node_with("ask", node, cached(by_n()).retry(retry))
        .edge(START, "ask")
        .cache(&store.cache())
        .compile()
        .unwrap();
    let thread = |id: &str| store.thread(id).unwrap();
    for id in ["a", "b"] {
        assert_eq!(graph.invoke(&thread(id), Work::update().n(1)).unwrap().interrupts().len(), 1);
    }
    assert_eq!(graph.invoke(&thread("a"), Command::resume("Ada")).unwrap().state().lines.to_vec(), ["Ada"]);
    assert_eq!(log.take(), ["attempt 1", "attempt 1", "attempt 1", "attempt 2"]);
    assert!(graph.invoke(&thread("c"), Work::update().n(1)).unwrap().is_done());
    // An interrupted task finds the cached result as well when it is resumed, with any resume value.
    assert_eq!(graph.invoke(&thread("b"), Command::resume("Bo")).unwrap().state().lines.to_vec(), ["Ada"]);
    assert_eq!(log.take(), [""; 0]);
}

#[apply(each_backend)]
fn a_key_that_panics_fails_the_run_and_leaves_the_thread_usable() {
    let (log, store) = (Log::default(), place());
    let policy = CachePolicy::new().key(|input| match input.get("n").and_then(Value::as_int) {
        Some(0) => panic!("no key for nothing"),
        _ => "some",
    });
    let options = cached(policy);
    let graph = StateGraph::<Work>::new()
        .node("count", |work: &Work| Ok(lines(format!("count {}", work.n))))
        .node_with("kept", |_: &Work| Ok(lines("kept")), options)
        .edge(START, "count")
        .edge("count", "kept")
        .cache(&store.cache())
        .compile()
        .unwrap();
    let thread = store.thread("t").unwrap();
    let error = graph.invoke(&thread, Work::update().n(0)).unwrap_err();
    assert!(error.to_string().contains("no key for nothing"), "{error}");
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((state.values.lines.to_vec(), state.next), (vec!["count 0".to_string()], vec!["kept".to_string()]));
    graph.update_state(&thread, Work::update().n(1), Some("count")).unwrap();
    assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().state().lines.to_vec(), ["count 0", "kept"]);
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn a_damaged_entry_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = Log::default();
    let said = log.clone();
    let say = move |_: i64| {
        said.add("task");
        Ok("a needle of the task".to_string())
    };
    let run = || {
        let store = Store::open(&path).unwrap();
        let said = log.clone();
        let task = Task::new("say", say.clone()).cache_policy(CachePolicy::new());
        let node = move |_: &Work, context: &Context| {
            said.add("node");
            Ok(lines(task.call(context, 1)? + " in a needle of the node"))
        };
        // The key of the node differs each time, so that its task is asked for.
        let graph = StateGraph::<Work>::new().node_with("node", node, cached(by_n())).edge(START, "node");
        let graph = graph.cache(&store.cache()).compile().unwrap();
        let lines = [1, 1, 2].map(|n| graph.invoke((), Work::update().n(n)).unwrap().state().lines.to_vec());
        assert!(lines.iter().all(|lines| *lines == ["a needle of the task in a needle of the node"]), "{lines:?}");
        graph.clear_cache(["nobody"]).unwrap();
        log.take()
    };
    assert_eq!(run(), ["node", "task", "node"]);
    assert_eq!(run(), [""; 0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let needles: Vec<usize> = (0..bytes.len() - 6).filter(|at| &bytes[*at..at + 6] == b"needle").collect();
    assert!(needles.len() >= 3, "{needles:?}");
    needles.into_iter().for_each(|at| bytes[at] = b'N');
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(run(), ["node", "task", "node"]);
}
