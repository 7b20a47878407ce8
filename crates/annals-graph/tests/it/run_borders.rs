//! Subgraphs at the borders of runs: their first checkpoints, and their state in the next run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::history::Snapshot;
use annals::store::StoreError;
use annals_graph::Durability;
use annals_graph::graph::{Persistence, RetryPolicy, Target};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use macro_rules_attribute::apply;

use crate::backends::{new_thread, same_after_reload};
use crate::line_state::EVERY_WAY;
use crate::lineage_borders::{calls_then_fails, drained, snapshot_before};
use crate::subgraphs::{Inner, Outer, OuterUpdate};

fn log(text: impl Into<String>) -> OuterUpdate {
    Outer::update().log([text.into()])
}

/// Counts its visits in a state that lasts as long as the thread.
fn counting() -> CompiledGraph<Inner> {
    StateGraph::<Inner>::new()
        .node("count", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .edge(START, "count")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

/// Counts its visits, then asks.
fn asking(persistence: Persistence) -> CompiledGraph<Inner> {
    StateGraph::<Inner>::new()
        .node("count", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .node("ask", |s: &Inner, context: &Context| {
            let answer = context.interrupt(s.topic.as_str())?;
            Ok(Inner::update().topic(format!("{} {}", s.topic, answer.as_str().unwrap_or_default())))
        })
        .edge(START, "count")
        .edge("count", "ask")
        .persistence(persistence)
        .compile()
        .unwrap()
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_micros(10)).jitter(false)
}

#[apply(each_backend)]
fn a_node_that_calls_several_graphs_is_tried_again_on_the_state_before_each() {
    let (first, second) = (counting(), counting());
    let node = move |_: &Outer, context: &Context| {
        let visits = [&first, &second, &first].map(|inner| {
            let done = inner.invoke(context, Inner::update().topic("x"));
            done.map(|done| done.state().visits)
        });
        let visits: Vec<_> = visits.into_iter().collect::<Result<_, _>>()?;
        if context.attempt() < 3 { Err("not yet".into()) } else { Ok(log(format!("{visits:?}"))) }
    };
    let graph = StateGraph::<Outer>::new()
        .node_with("calls", node, NodeOptions::new().retry(quick()))
        .edge(START, "calls")
        .compile()
        .unwrap();
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        for turn in ["[1, 1, 1]", "[2, 2, 2]"] {
            let input = annals_graph::IntoInput::<Outer, _>::into_input(Outer::update());
            let done = crate::line_state::run_on(driver, graph.run(&thread).durability(durability), input).unwrap();
            assert_eq!(done.state().log.to_vec().last().unwrap(), turn, "{driver} {durability:?}");
            assert!(thread.store().check().unwrap().problems.is_empty());
        }
    }
}

#[apply(each_backend)]
fn a_graph_that_one_task_has_left_begins_anew_in_the_next_one() {
    let inner = StateGraph::<Inner>::new()
        .node("count", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .edge(START, "count")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let call = move |given: Value, context: &Context| {
        let name = given.get("topic").and_then(Value::as_str).unwrap_or_default().to_owned();
        let done = inner.invoke(context, Inner::update().topic(&*name))?;
        counted.fetch_add(1, Ordering::SeqCst);
        if name == "asks" {
            context.interrupt("go on?")?;
        }
        Ok(log(format!("{name} {}", done.state().visits)))
    };
    let graph = StateGraph::<Outer>::new()
        .node("call", annals_graph::graph::Own(call))
        .branch(START, |_: &Outer| {
            let send = |topic: &str| {
                let given = [("topic".to_owned(), Value::from(topic))].into_iter().collect();
                Target::Send(SendTo::new("call", Value::Map(given)))
            };
            vec![send("ends"), send("asks")]
        })
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for reloaded in [false, true] {
            let thread = new_thread();
            let run = || graph.run(&thread).concurrency_max(1).durability(durability);
            let asked = run().invoke(Outer::update()).unwrap();
            assert_eq!((asked.interrupts().len(), asked.state().log.to_vec()), (1, vec!["ends 1".to_owned()]));
            if reloaded {
                thread.store().clear_head_cache();
            }
            let done = run().invoke(Command::resume("yes")).unwrap();
            assert_eq!(done.state().log.to_vec(), ["ends 1", "asks 2"], "{durability:?} {reloaded}");
            same_after_reload(&graph, &thread);
            let next = run().invoke(Outer::update()).unwrap();
            assert_eq!(next.state().log.to_vec().last().unwrap(), "ends 3", "{durability:?} {reloaded}");
        }
    }
}

fn parent(inner: CompiledGraph<Inner>) -> CompiledGraph<Outer> {
    StateGraph::<Outer>::new()
        .node("before", |s: &Outer| Ok(log(format!("before {}", s.topic))))
        .node("inner", inner)
        .node("after", |s: &Outer| Ok(log(format!("after {}", s.topic))))
        .edge(START, "before")
        .edge("before", "inner")
        .edge("inner", "after")
        .compile()
        .unwrap()
}

fn last(outcome: &Outcome<Outer>) -> String {
    outcome.state().log.to_vec().last().cloned().unwrap_or_default()
}

#[apply(each_backend)]
fn an_input_at_the_checkpoint_of_a_subgraph_is_given_to_it_there() {
    let inner = asking(Persistence::PerThread);
    let graph = parent(inner.clone());
    for durability in [Durability::Sync, Durability::Exit] {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(Outer::update().topic("red")).unwrap();
        run().invoke(Command::resume("yes")).unwrap();
        run().invoke(Outer::update().topic("green")).unwrap();
        run().invoke(Command::resume("yes")).unwrap();
        let inside = thread.in_namespace("inner").unwrap();
        let visits = || inner.get_state(&inside).unwrap().values.visits;
        assert_eq!(visits(), 2);
        // The end of the first visit, named by the caller: an input goes on from there, not from the second one.
        let first = inside
            .history()
            .unwrap()
            .map(Result::unwrap)
            .find(|at| at.next().count() == 0 && at.get("visits").unwrap() == Some(Value::from(1)));
        let asked = graph.run(&first.unwrap()).durability(durability).invoke(Outer::update().topic("blue")).unwrap();
        assert_eq!(asked.interrupts()[0].value, Value::from("blue"), "{durability:?}");
        assert_eq!(visits(), 2, "{durability:?}: the second visit once more");
        assert_eq!(last(&run().invoke(Command::resume("no")).unwrap()), "after blue no");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn a_graph_that_keeps_its_state_begins_where_the_run_left_it() {
    let inner = counting();
    let graph = StateGraph::<Outer>::new()
        .node("one", {
            let inner = inner.clone();
            move |_: &Outer, context: &Context| {
                let visits = [(), ()].map(|()| inner.invoke(context, Inner::update().topic("x")));
                let visits: Vec<_> = visits.into_iter().map(|done| Ok(done?.state().visits)).collect::<Result<_>>()?;
                Ok(log(format!("{visits:?}")))
            }
        })
        .node("two", inner)
        .edge(START, "one")
        .edge("one", "two")
        .branch("two", |s: &Outer| if s.log.len() < 3 { "one" } else { END })
        .compile()
        .unwrap();
    for (driver, durability) in EVERY_WAY {
        for reloaded in [false, true] {
            let thread = new_thread();
            if reloaded {
                thread.store().clear_head_cache();
            }
            let run = || graph.run(&thread).durability(durability);
            let input = || annals_graph::IntoInput::<Outer, _>::into_input(Outer::update().topic("t"));
            let done = crate::line_state::run_on(driver, run(), input()).unwrap();
            assert_eq!(done.state().log.to_vec(), ["[1, 1]", "[2, 2]", "[3, 3]"], "{driver} {durability:?}");
            thread.store().clear_head_cache();
            let done = crate::line_state::run_on(driver, run(), input()).unwrap();
            assert_eq!(last(&done), "[4, 4]", "{driver} {durability:?}");
            assert!(thread.store().check().unwrap().problems.is_empty());
        }
    }
}

#[apply(each_backend)]
fn a_task_of_a_superstep_that_another_run_has_ended_is_refused_the_graph_it_left() {
    let inner = asking(Persistence::PerThread);
    let graph = parent(inner);
    let thread = new_thread();
    graph.invoke(&thread, Outer::update().topic("red")).unwrap();
    // The other run answers while this one is about to.
    let other = graph.clone();
    let rival = thread.clone();
    let listened = AtomicUsize::new(0);
    let run = graph.run(&thread).on_event(move |_| {
        if listened.fetch_add(1, Ordering::SeqCst) == 0 {
            other.invoke(&rival, Command::resume("rival")).unwrap();
        }
    });
    let lost = run.invoke(Command::resume("late"));
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(state.values.log.to_vec().last().unwrap(), "after red rival", "{lost:?}");
    assert!(lost.is_err(), "{lost:?}");
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_subgraph_of_each_call_goes_on_where_it_asked() {
    for persistence in [Persistence::PerInvocation, Persistence::PerThread] {
        let graph = parent(asking(persistence));
        for (driver, durability) in EVERY_WAY {
            let thread = new_thread();
            let run = || graph.run(&thread).durability(durability);
            for turn in ["red", "green"] {
                let input = annals_graph::IntoInput::<Outer, _>::into_input(Outer::update().topic(turn));
                let asked = crate::line_state::run_on(driver, run(), input).unwrap();
                assert_eq!(asked.interrupts()[0].value, Value::from(turn), "{driver} {durability:?}");
                thread.store().clear_head_cache();
                let resume = Input::Command(Command::resume("yes"));
                let done = crate::line_state::run_on(driver, run(), resume).unwrap();
                assert_eq!(last(&done), format!("after {turn} yes"), "{driver} {durability:?}");
            }
            assert!(thread.store().check().unwrap().problems.is_empty());
        }
    }
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Pair {
    #[channel(last)]
    n: i64,
    #[channel(append)]
    log: List<String>,
    #[channel(messages)]
    messages: Messages,
}

#[apply(each_backend)]
fn results_that_exclude_each_other_in_a_subgraph_fail_it_once_its_question_is_answered() {
    let inner = StateGraph::<Pair>::new()
        .node("ask", |_: &Pair, context: &Context| {
            Ok(Pair::update().log([context.interrupt("?")?.as_str().unwrap_or_default().to_owned()]))
        })
        .node("one", |_: &Pair| Ok(Pair::update().n(1)))
        .node("two", |_: &Pair| Ok(Pair::update().n(2)))
        .edge(START, "ask")
        .edge(START, "one")
        .edge(START, "two")
        .compile()
        .unwrap();
    let graph = StateGraph::<Pair>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = new_thread();
    let asked = graph.invoke(&thread, Pair::update().n(0)).unwrap();
    assert_eq!(asked.interrupts().len(), 1);
    let error = graph.invoke(&thread, Command::resume("yes")).unwrap_err();
    assert!(error.to_string().contains("it takes one value per superstep and got 2"), "{error}");
}

/// A task that pushes a message.
fn push() -> Task<String, String> {
    Task::new("push", |id: String, context: &Context| {
        context.push_message(Message::ai(&*id).with_id(&*id))?;
        Ok(id)
    })
}

#[apply(each_backend)]
fn a_run_that_asks_shows_what_its_calls_have_pushed() {
    let (push, streamed) = (push(), push());
    let node = |push: Task<String, String>| {
        move |_: &Pair, context: &Context| {
            push.call(context, "pushed".to_owned())?;
            let answer = context.interrupt("?")?;
            push.call(context, "later".to_owned())?;
            Ok(Pair::update().log([answer.as_str().unwrap_or_default().to_owned()]))
        }
    };
    let graph = |push| StateGraph::<Pair>::new().node("node", node(push)).edge(START, "node").compile().unwrap();
    let ids = |outcome: &Outcome<Pair>| -> Vec<String> {
        outcome.state().messages.iter().filter_map(|message| message.id.clone()).collect()
    };
    let thread = new_thread();
    let (first, second) = (graph(push), graph(streamed));
    let asked = first.invoke(&thread, Pair::update().n(1)).unwrap();
    assert_eq!((asked.interrupts().len(), ids(&asked)), (1, vec!["pushed".to_owned()]));
    thread.store().clear_head_cache();
    let again = second.invoke(&thread, Input::Continue).unwrap();
    assert_eq!((again.interrupts().len(), ids(&again)), (1, vec!["pushed".to_owned()]));
    let done = second.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(ids(&done), ["pushed", "later"]);
    same_after_reload(&second, &thread);
}

#[apply(each_backend)]
fn calls_of_a_subgraph_that_ask_at_once_ask_apart() {
    let ask = Task::new("ask", |n: i64, context: &Context| {
        Ok(format!("{n} {}", context.interrupt(n)?.as_str().unwrap_or_default()))
    });
    let inner = StateGraph::<Pair>::new()
        .node("calls", move |_: &Pair, context: &Context| {
            let begun = [1, 2].map(|n| ask.start(context, n));
            let ended: Vec<_> = begun.into_iter().map(|begun| begun.wait()).collect();
            Ok(Pair::update().log(ended.into_iter().collect::<Result<Vec<_>, _>>()?))
        })
        .edge(START, "calls")
        .compile()
        .unwrap();
    let graph = StateGraph::<Pair>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = new_thread();
    let asked = graph.invoke(&thread, Pair::update().n(0)).unwrap();
    let open: Vec<_> = asked.interrupts().iter().map(|asked| (asked.value.as_int(), asked.id.clone())).collect();
    assert_eq!(open.len(), 2, "{open:?}");
    assert_ne!(open[0].1, open[1].1);
    let answers = open.iter().map(|(n, id)| (id.clone(), Value::from(format!("answer {}", n.unwrap()))));
    let done = graph.invoke(&thread, Command::resume(Value::Map(answers.collect()))).unwrap();
    assert_eq!(done.state().log.to_vec(), ["1 answer 1", "2 answer 2"]);
}

#[apply(each_backend)]
fn a_replay_in_the_place_of_an_edit_begins_its_subgraph_as_before() {
    for persistence in [Persistence::PerInvocation, Persistence::PerThread] {
        let inner = StateGraph::<Inner>::new()
            .node("count", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
            .node("ask", |s: &Inner, context: &Context| {
                let answer = context.interrupt(s.visits)?;
                Ok(Inner::update().topic(format!("{} {}", answer.as_str().unwrap_or_default(), s.visits)))
            })
            .edge(START, "count")
            .edge("count", "ask")
            .persistence(persistence)
            .compile()
            .unwrap();
        let graph = parent(inner);
        let end = |durability: Durability, replays: bool| {
            let thread = new_thread();
            let run = || graph.run(&thread).durability(durability);
            run().invoke(Outer::update().topic("red")).unwrap();
            graph.update_state(&thread, Outer::update().topic("blue"), "before").unwrap();
            let mut asked = run().invoke(Input::Continue).unwrap();
            if replays {
                thread.store().clear_head_cache();
                let head = thread.head().unwrap().unwrap();
                assert_eq!(head.source(), annals::store::Source::Update);
                asked = graph.run(&head).durability(durability).invoke(Input::Continue).unwrap();
            }
            let visits = asked.interrupts()[0].value.clone();
            let done = last(&run().invoke(Command::resume("yes")).unwrap());
            assert!(thread.store().check().unwrap().problems.is_empty());
            (visits, done)
        };
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            let ended = |visits: i64| (Value::from(visits), format!("after yes {visits}"));
            assert_eq!(end(durability, true), ended(1), "{persistence:?} {durability:?}");
            // Without a replay the visit before the edit counts.
            let visits = if persistence == Persistence::PerThread { 2 } else { 1 };
            assert_eq!(end(durability, false), ended(visits), "{persistence:?} {durability:?}");
        }
    }
}

#[apply(each_backend)]
fn a_graph_without_a_run_around_it_does_not_lend_its_edit_to_one() {
    let (inner, thread) = (counting(), new_thread());
    let graph = parent(inner.clone());
    let inside = thread.in_namespace("inner").unwrap();
    inner.update_state(&inside, Inner::update().visits(7), "count").unwrap();
    assert_eq!(inner.get_state(&inside).unwrap().values.visits, 7);
    graph.invoke(&thread, Outer::update().topic("red")).unwrap();
    assert_eq!(inner.get_state(&inside).unwrap().values.visits, 1, "the run began on a thread without a checkpoint");
}

#[apply(each_backend)]
fn a_list_that_a_command_changed_is_given_to_a_subgraph_as_it_is() {
    let inner = StateGraph::<Pair>::new()
        .node("one", |pair: &Pair| Ok(Pair::update().log([format!("one after {}", pair.log.len())])))
        .node("ask", |_: &Pair, context: &Context| {
            Ok(Pair::update().log([context.interrupt("?")?.as_str().unwrap_or_default().to_owned()]))
        })
        .edge(START, "one")
        .edge("one", "ask")
        .compile()
        .unwrap();
    let says = |text: &'static str| move |_: &Pair| Ok(Pair::update().log([text.to_owned()]));
    let graph = StateGraph::<Pair>::new()
        .node("before", says("before"))
        .node("inner", inner)
        .node("other", says("other"))
        .edge(START, "before")
        .edge("before", "inner")
        .interrupt_before(["inner"])
        .compile()
        .unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        graph.invoke(&thread, Pair::update().n(1)).unwrap();
        let command = Command::update(Pair::update().log(["changed".to_owned()])).and_goto("other");
        let asked = graph.invoke(&thread, command).unwrap();
        assert_eq!(asked.interrupts().len(), 1, "{asked:?}");
        if reloaded {
            thread.store().clear_head_cache();
        }
        assert_eq!(thread.store().check().unwrap().problems, []);
        let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
        // The list that comes back is appended whole.
        let wanted = ["before", "changed", "before", "changed", "one after 2", "yes", "other"];
        assert_eq!(done.state().log.to_vec(), wanted, "{reloaded}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn a_join_waits_for_all_its_nodes_in_each_round() {
    let says = |text: &'static str| move |_: &Pair| Ok(Pair::update().log([text.to_owned()]));
    for defers in [false, true] {
        let graph = StateGraph::<Pair>::new()
            .node("a", says("a"))
            .node("b", says("b"))
            .node("late", says("late"))
            .node_with("join", says("join"), NodeOptions::new().defer(defers))
            .edge(START, "a")
            .edge(START, "b")
            .edge("b", "late")
            .join(["a", "late"], "join")
            .branch("join", |pair: &Pair| if pair.log.len() < 6 { vec!["a", "b"] } else { vec![END] })
            .compile()
            .unwrap();
        let thread = new_thread();
        let round = ["a", "b", "late", "join"];
        graph.run(&thread).interrupt_before(["join"]).invoke(Pair::update().n(0)).unwrap();
        thread.store().clear_head_cache();
        let done = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(done.state().log.to_vec(), [round, round].concat(), "{defers}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn fewer_sends_take_the_place_of_more() {
    let take = |n: i64, _: &Context| {
        let command = Command::update(Pair::update().log([format!("took {n}")]));
        Ok(if n == 1 { command.and_goto(SendTo::new("last", 9)) } else { command })
    };
    let graph = StateGraph::<Pair>::new()
        .node("take", annals_graph::graph::Own(take))
        .node("last", annals_graph::graph::Own(|n: i64, _: &Context| Ok(Pair::update().log([format!("last {n}")]))))
        .branch(START, |_: &Pair| (1..=3).map(|n| SendTo::new("take", n)).collect::<Vec<_>>())
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.run(&thread).interrupt_before(["last"]).invoke(Pair::update().n(0)).unwrap();
    thread.store().clear_head_cache();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["last"]);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().log.to_vec(), ["took 1", "took 2", "took 3", "last 9"]);
    same_after_reload(&graph, &thread);
}

/// A graph of two nodes, the second of which counts its runs and fails once if it is told to.
fn visits_twice(works: &Arc<AtomicUsize>, fails: &Arc<AtomicBool>) -> CompiledGraph<Inner> {
    let (works, fails) = (Arc::clone(works), Arc::clone(fails));
    StateGraph::<Inner>::new()
        .node("one", |s: &Inner| Ok(Inner::update().visits(s.visits + 1)))
        .node("two", move |s: &Inner| {
            works.fetch_add(1, Ordering::SeqCst);
            if fails.swap(false, Ordering::SeqCst) {
                return Err("not yet".into());
            }
            Ok(Inner::update().visits(s.visits * 10))
        })
        .edge(START, "one")
        .edge("one", "two")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

/// Runs a graph from before the second node of its subgraph, where `fails` is set. Returns the last line, and the
/// runs of that node.
fn again_between(
    graph: &CompiledGraph<Outer>,
    durability: Durability,
    works: &AtomicUsize,
    fails: &AtomicBool,
) -> (String, usize) {
    let thread = new_thread();
    graph.run(&thread).durability(Durability::Sync).invoke(Outer::update()).unwrap();
    let between = snapshot_before(&thread.in_namespace("calls").unwrap(), "two");
    works.store(0, Ordering::SeqCst);
    fails.store(true, Ordering::SeqCst);
    let done = graph.run(&between).durability(durability).invoke(Input::Continue).unwrap();
    (last(&done), works.load(Ordering::SeqCst))
}

#[apply(each_backend)]
fn a_node_that_fails_after_a_graph_that_went_on_where_it_was_named_does_not_repeat_it() {
    let (works, fails) = (Arc::default(), Arc::default());
    let graph = calls_then_fails(&visits_twice(&works, &Arc::default()), &fails);
    assert_eq!(again_between(&graph, Durability::Sync, &works, &fails), ("10".to_owned(), 1));
}

#[apply(each_backend)]
fn a_graph_that_failed_where_it_was_named_begins_there_again() {
    let (works, fails) = (Arc::default(), Arc::default());
    let graph = calls_then_fails(&visits_twice(&works, &fails), &Arc::default());
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        assert_eq!(again_between(&graph, durability, &works, &fails), ("10".to_owned(), 2), "{durability:?}");
    }
}

/// A graph of a node and two that follow it in one superstep. One of them counts its runs in the topic, the other one
/// fails as often as it is told to.
fn two_at_once(works: &Arc<AtomicUsize>, failures: &Arc<AtomicUsize>) -> CompiledGraph<Inner> {
    let (works, failures) = (Arc::clone(works), Arc::clone(failures));
    StateGraph::<Inner>::new()
        .node("one", |_: &Inner| Ok(Inner::update().visits(1)))
        .node("works", move |_: &Inner| {
            let runs = works.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Inner::update().topic(format!("run {runs}")))
        })
        .node("fails", move |s: &Inner| {
            match failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
                Ok(_) => Err("not yet".into()),
                Err(_) => Ok(Inner::update().visits(s.visits * 10)),
            }
        })
        .edge(START, "one")
        .edge("one", "works")
        .edge("one", "fails")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap()
}

/// Runs a graph, and edits the end of its subgraph as the first node of that would. Returns the edit.
fn edited_inside(graph: &CompiledGraph<Outer>, inner: &CompiledGraph<Inner>, thread: &Thread) -> Snapshot {
    graph.run(thread).invoke(Outer::update()).unwrap();
    let inside = thread.in_namespace("calls").unwrap();
    inner.update_state(&inside, Inner::update().visits(7), "one").unwrap();
    inside.head().unwrap().unwrap()
}

#[apply(each_backend)]
fn a_graph_that_failed_at_an_edit_begins_there_again() {
    let (works, fails) = (Arc::default(), Arc::default());
    let inner = visits_twice(&works, &fails);
    let graph = calls_then_fails(&inner, &Arc::default());
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for drains in [false, true] {
            let thread = new_thread();
            let edited = edited_inside(&graph, &inner, &thread);
            works.store(0, Ordering::SeqCst);
            fails.store(true, Ordering::SeqCst);
            if drains {
                drained(&graph, &edited, durability);
            }
            let run = if drains { graph.run(&thread) } else { graph.run(&edited) };
            let done = run.durability(durability).invoke(Input::Continue).unwrap();
            let shown = (last(&done), works.load(Ordering::SeqCst));
            assert_eq!(shown, ("70".to_owned(), 2), "{durability:?} {drains}");
        }
    }
}

#[apply(each_backend)]
fn a_replay_of_an_edit_takes_no_result_of_an_earlier_run_in_any_attempt() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let (works, failures) = (Arc::default(), Arc::default());
        let inner = two_at_once(&works, &failures);
        let graph = calls_then_fails(&inner, &Arc::default());
        let thread = new_thread();
        let edited = edited_inside(&graph, &inner, &thread);
        failures.store(3, Ordering::SeqCst);
        graph.run(&edited).durability(durability).invoke(Input::Continue).unwrap_err();
        // Its results have other numbers.
        works.store(100, Ordering::SeqCst);
        failures.store(1, Ordering::SeqCst);
        let done = graph.run(&edited).durability(durability).invoke(Input::Continue).unwrap();
        let topic = inner.get_state(&thread.in_namespace("calls").unwrap()).unwrap().values.topic.clone();
        let shown = (works.load(Ordering::SeqCst), topic, last(&done));
        assert_eq!(shown, (102, "run 102".to_owned(), "70".to_owned()), "{durability:?}");
    }
}

/// The graph and the thread of a rival run.
type Rival = Arc<Mutex<Option<(CompiledGraph<Outer>, Thread)>>>;

/// A node that calls a graph which asks. If there is a rival run, the node fails after that has ended the task, and is
/// tried again. The ends of the called graph are counted.
fn loses_to(rival: &Rival, ends: &Arc<AtomicUsize>) -> CompiledGraph<Outer> {
    let (inner, rival, ends) = (asking(Persistence::PerThread), Arc::clone(rival), Arc::clone(ends));
    let node = move |_: &Outer, context: &Context| {
        let done = inner.invoke(context, Inner::update().topic("x"))?;
        ends.fetch_add(1, Ordering::SeqCst);
        if let Some((graph, thread)) = rival.lock().unwrap().take() {
            graph.invoke(&thread, Input::Continue)?;
            return Err("not yet".into());
        }
        Ok(log(done.state().topic.clone()))
    };
    StateGraph::<Outer>::new()
        .node_with("calls", node, NodeOptions::new().retry(quick()))
        .edge(START, "calls")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_task_that_a_rival_run_ended_between_two_attempts_is_not_continued() {
    let (rival, ends) = (Rival::default(), Arc::default());
    let (graph, thread) = (loses_to(&rival, &ends), new_thread());
    graph.invoke(&thread, Outer::update()).unwrap();
    *rival.lock().unwrap() = Some((loses_to(&Rival::default(), &Arc::default()), thread.clone()));
    let lost = graph.run(&thread).durability(Durability::Sync).invoke(Command::resume("yes")).unwrap_err();
    assert!(matches!(lost.as_store(), Some(StoreError::Conflict { .. })), "{lost:?}");
    assert_eq!(ends.load(Ordering::SeqCst), 1, "the second attempt does not come to the end of the graph");
    assert_eq!(graph.get_state(&thread).unwrap().values.log.to_vec(), ["x yes"]);
}
