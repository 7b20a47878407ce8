//! Tests state that outlasts a run: deleted threads, sleeping tasks, and repeated runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals::base::Timestamp;
use annals::store::log::LogExt;
use annals::store::{OpenOptions, StoreError};
use annals_graph::Durability;
use annals_graph::RunError;
use annals_graph::prelude::*;
use annals_graph::task::Task;
use macro_rules_attribute::apply;

use crate::backends::{in_a_file, place, place_with};
use crate::line_state::{Log, line};
use crate::test_clock::{at, timed};

/// Returns the threads that sleep, each with the second at which it wakes.
fn sleepers(store: &Store) -> Vec<(String, i64)> {
    let timers = store.timers(None).unwrap();
    timers.iter().map(|timer| (timer.point.thread.to_string(), timer.wake_at.as_micros() / 1_000_000)).collect()
}

#[apply(each_backend)]
fn a_deleted_thread_is_gone_and_its_forks_hold_it() {
    let store = place();
    let ask = |_: &Log, ctx: &Context| Ok(line(ctx.interrupt("?")?.as_str().unwrap_or_default()));
    let graph = StateGraph::<Log>::new().node("ask", ask).edge(START, "ask").compile().unwrap();
    let (thread, other) = (store.thread("t").unwrap(), store.thread("other").unwrap());
    for thread in [&thread, &other] {
        graph.invoke(thread, line("first")).unwrap();
    }
    let fork = thread.at("~0").unwrap().fork_to("fork").unwrap();
    match store.delete_thread(thread.id()) {
        Err(StoreError::ForkedOff { thread: of, forks, more: false }) => {
            assert_eq!((&of, forks.as_slice()), (thread.id(), std::slice::from_ref(fork.id())));
        }
        other => panic!("{other:?}"),
    }
    assert!(store.delete_threads([thread.id(), fork.id()]).unwrap().is_erased());
    assert!(thread.head().unwrap().is_none());
    assert_eq!(store.threads().unwrap().len(), 1);
    // The head that was in memory is forgotten as well.
    let asked = graph.invoke(&thread, line("anew")).unwrap();
    assert_eq!(asked.state().lines.to_vec(), ["anew"]);
    let done = graph.invoke(&other, Command::resume("answer")).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["first", "answer"]);
    assert!(store.check().unwrap().problems.is_empty());
}

/// START -> name
fn one<M>(name: &str, node: impl annals_graph::graph::IntoNode<Log, M>) -> CompiledGraph<Log> {
    StateGraph::<Log>::new().node(name, node).edge(START, name).compile().unwrap()
}

const HOUR: Duration = Duration::from_secs(3_600);

#[apply(each_backend)]
fn a_task_sleeps_over_a_restart_until_its_moment() {
    let (hands, store) = timed();
    hands.set(100);
    let graph = one("nap", |_: &Log, ctx: &Context| {
        ctx.sleep_for(HOUR)?;
        ctx.sleep_for(Duration::from_secs(10))?;
        Ok(line("awake"))
    });
    let thread = store.thread("t").unwrap();
    let asleep = graph.invoke(&thread, line("evening")).unwrap();
    assert_eq!((asleep.wake_at(), asleep.interrupts().len()), (Some(at(3_700)), 1));
    let asked = graph.get_state(&thread).unwrap().interrupts;
    assert_eq!((asked[0].wake_at, &asked[0].value), (Some(at(3_700)), &Value::Null));

    let store = if in_a_file() {
        drop((thread, store));
        place_with(OpenOptions::new().clock(hands.clone()))
    } else {
        store
    };
    let thread = store.thread("t").unwrap();
    assert_eq!(sleepers(&store), [("t".to_string(), 3_700)]);
    assert_eq!(store.next_timer().unwrap().map(|timer| timer.wake_at), Some(at(3_700)));
    hands.set(3_699);
    assert!(store.timers(Some(at(3_699))).unwrap().is_empty());
    let early = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(early.wake_at(), Some(at(3_700)), "the hour does not begin anew");
    hands.set(3_800);
    assert_eq!(store.timers(Some(at(3_800))).unwrap().len(), 1);
    let second = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(second.wake_at(), Some(at(3_810)), "the next sleep begins where the first one was passed");
    hands.set(3_810);
    let done = graph.run(&thread).durability(Durability::Sync).invoke(Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["evening", "awake"]);
    assert!(done.is_done() && done.wake_at().is_none() && sleepers(&store).is_empty());
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn an_answer_before_a_sleep_is_not_that_to_the_question_after_it() {
    let (hands, store) = timed();
    let graph = one("talk", |_: &Log, ctx: &Context| {
        let first = ctx.interrupt("first?")?;
        ctx.sleep_for(HOUR)?;
        let second = ctx.interrupt("second?")?;
        Ok(Log::update().lines([first, second].map(|answer| answer.as_str().unwrap_or_default().to_owned())))
    });
    let thread = store.thread("t").unwrap();
    graph.invoke(&thread, Log::update()).unwrap();
    assert!(sleepers(&store).is_empty(), "a question is no timer");
    assert_eq!(graph.invoke(&thread, Command::resume("one")).unwrap().wake_at(), Some(at(3_600)));
    hands.set(3_600);
    let asked = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(asked.interrupts()[0].value, Value::from("second?"));
    assert!(sleepers(&store).is_empty(), "it has gone on");
    hands.set(0);
    let done = graph.invoke(&thread, Command::resume("two")).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["one", "two"], "a sleep that is over stays so, whatever the clock says");
}

#[apply(each_backend)]
fn some_sleep_while_another_asks() {
    let (hands, store) = timed();
    let nap = |seconds: i64| {
        move |_: &Log, ctx: &Context| {
            ctx.sleep_until(at(seconds))?;
            Ok(line("nap"))
        }
    };
    let ask = |_: &Log, ctx: &Context| Ok(line(ctx.interrupt("?")?.as_str().unwrap_or_default()));
    let graph = StateGraph::<Log>::new().node("ask", ask).node("long", nap(20)).node("short", nap(10));
    let graph = graph.edge(START, "ask").edge(START, "long").edge(START, "short").compile().unwrap();
    let thread = store.thread("t").unwrap();
    let open = graph.invoke(&thread, Log::update()).unwrap();
    assert_eq!((open.interrupts().len(), open.wake_at()), (3, Some(at(10))));
    assert_eq!(sleepers(&store), [("t".to_string(), 10), ("t".to_string(), 20)]);
    // One question is open, so it need not be named.
    let answered = graph.run(&thread).strict_resume(true).invoke(Command::resume("answer")).unwrap();
    assert_eq!(answered.interrupts().len(), 2);
    hands.set(12);
    let woken = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!((woken.interrupts().len(), sleepers(&store)), (1, vec![("t".to_string(), 20)]));
    // An answer wakes who sleeps, before the moment.
    let id = woken.interrupts()[0].id.clone();
    let wake = Value::Map([(id, Value::Null)].into_iter().collect());
    let done = graph.invoke(&thread, Command::resume(wake)).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["answer", "nap", "nap"]);
    assert!(sleepers(&store).is_empty());
}

#[apply(each_backend)]
fn tasks_and_graphs_inside_sleep_as_well() {
    let (hands, store) = timed();
    let count = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&count);
    let rest = Task::new("rest", move |seconds: i64, ctx: &Context| {
        ctx.sleep_for(Duration::from_secs(seconds as u64))?;
        times.fetch_add(1, Ordering::SeqCst);
        Ok(seconds)
    });
    let inner = one("inner", move |_: &Log, ctx: &Context| {
        ctx.sleep_until(at(10))?;
        let first = rest.call(ctx, 5)?;
        let second = rest.call(ctx, 7)?;
        Ok(line(format!("{first} {second}")))
    });
    let graph = StateGraph::<Log>::new().node("outer", inner).edge(START, "outer").compile().unwrap();
    let thread = store.thread("t").unwrap();
    let run = graph.run(&thread);
    assert_eq!(annals_graph::block_on(run.ainvoke(Log::update())).unwrap().wake_at(), Some(at(10)));
    for (now, until) in [(11, 16), (15, 16), (20, 27), (26, 27)] {
        hands.set(now);
        store.clear_head_cache();
        assert_eq!(graph.invoke(&thread, Input::Continue).unwrap().wake_at(), Some(at(until)), "at {now}");
        assert_eq!(sleepers(&store), [("t".to_string(), until)], "who is inside is known by the outermost task");
    }
    hands.set(27);
    let done = annals_graph::block_on(graph.run(&thread).ainvoke(Input::Continue)).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["5 7"]);
    assert_eq!((count.load(Ordering::SeqCst), sleepers(&store)), (2, Vec::new()), "each task ended once");
}

#[apply(each_backend)]
fn timers_go_when_nobody_has_to_be_woken_any_more() {
    let (hands, store) = timed();
    let fails = Arc::new(AtomicUsize::new(1));
    let failing = Arc::clone(&fails);
    let graph = one("nap", move |_: &Log, ctx: &Context| {
        ctx.sleep_for(HOUR)?;
        match failing.load(Ordering::SeqCst) {
            0 => Ok(line("awake")),
            _ => Err("it fails".into()),
        }
    });
    let threads = ["fails", "edited", "deleted", "replayed"].map(|name| store.thread(name).unwrap());
    for thread in &threads {
        graph.run(thread).durability(Durability::Exit).invoke(line("start")).unwrap();
    }
    assert_eq!(sleepers(&store).len(), 4);
    let [failed, edited, deleted, replayed] = &threads;
    graph.update_state(edited, line("edited"), Some("nap")).unwrap();
    assert!(graph.get_state(edited).unwrap().next.is_empty());
    assert!(store.delete_thread(deleted.id()).unwrap().is_erased());
    hands.set(1_000);
    graph.invoke(&replayed.at("~0").unwrap(), Input::Continue).unwrap();
    assert_eq!(
        sleepers(&store),
        [("fails".to_string(), 3_600), ("replayed".to_string(), 4_600)],
        "a replay begins anew"
    );
    hands.set(4_000);
    graph.invoke(failed, Input::Continue).unwrap_err();
    assert_eq!(sleepers(&store).len(), 1, "a failure is not repeated by a timer");
    fails.store(0, Ordering::SeqCst);
    assert!(graph.invoke(failed, Input::Continue).unwrap().is_done());
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_moment_that_has_passed_is_not_waited_for() {
    let graph = one("nap", |_: &Log, ctx: &Context| {
        ctx.sleep_until(at(1))?;
        ctx.sleep_for(Duration::ZERO)?;
        Ok(line("awake"))
    });
    let store = place();
    assert!(graph.invoke(&store.thread("t").unwrap(), Log::update()).unwrap().is_done());
    assert!(graph.invoke((), Log::update()).unwrap().is_done());
    let forever = one("nap", |_: &Log, ctx: &Context| Ok(ctx.sleep_for(Duration::MAX).map(|()| Log::update())?));
    assert_eq!(forever.invoke((), Log::update()).unwrap().wake_at(), Some(Timestamp::from_micros(i64::MAX)));
}

/// a -> b, each of which writes its name and counts; b asks nothing, fails so often, and stops the graph if asked to.
fn counted(count: &Arc<AtomicUsize>, fails: usize) -> CompiledGraph<Log> {
    let (first, second, left) = (Arc::clone(count), Arc::clone(count), AtomicUsize::new(fails));
    let a = move |_: &Log| {
        first.fetch_add(1, Ordering::SeqCst);
        Ok(line("a"))
    };
    let b = move |_: &Log| {
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err("it fails at first".into());
        }
        second.fetch_add(1, Ordering::SeqCst);
        Ok(line("b"))
    };
    StateGraph::<Log>::new().node("a", a).node("b", b).edge(START, "a").edge("a", "b").compile().unwrap()
}

fn lines(outcome: &Outcome<Log>) -> Vec<String> {
    outcome.state().lines.to_vec()
}

#[apply(each_backend)]
fn a_run_with_a_key_runs_once() {
    let store = place();
    let count = Arc::new(AtomicUsize::new(0));
    let graph = counted(&count, 0);
    let (thread, other) = (store.thread("t").unwrap(), store.thread("other").unwrap());
    let run = |thread: &Thread, key: &str| graph.run(thread).idempotency_key(key).invoke(line(key)).unwrap();
    for _ in 0..3 {
        assert_eq!(lines(&run(&thread, "1")), ["1", "a", "b"]);
        store.clear_head_cache();
    }
    assert_eq!((count.load(Ordering::SeqCst), thread.history().unwrap().count()), (2, 4));
    assert_eq!(lines(&run(&thread, "2")), ["1", "a", "b", "2", "a", "b"], "another key is another run");
    assert_eq!(lines(&run(&other, "1")), ["1", "a", "b"], "a key is that of its thread");
    assert_eq!(count.load(Ordering::SeqCst), 6);
    // The thread has moved on; the first run still has the same result.
    let first = annals_graph::block_on(graph.run(&thread).idempotency_key("1").ainvoke(line("1"))).unwrap();
    assert!(first.is_done());
    assert_eq!(lines(&first), ["1", "a", "b"]);
    let mut stream = graph.run(&thread).idempotency_key("1").stream(line("1"), &[StreamMode::Values]).unwrap();
    assert_eq!((&mut stream).count(), 1, "a repeated run shows what it came to");
    assert_eq!(count.load(Ordering::SeqCst), 6);
    assert_eq!(graph.get_state(&thread).unwrap().values.lines.len(), 6);
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_run_with_a_key_goes_on_where_it_failed() {
    let store = place();
    let count = Arc::new(AtomicUsize::new(0));
    let graph = counted(&count, 2);
    let thread = store.thread("t").unwrap();
    let run = || graph.run(&thread).idempotency_key("1").invoke(line("in"));
    run().unwrap_err();
    run().unwrap_err();
    assert_eq!(lines(&run().unwrap()), ["in", "a", "b"], "the input is taken once");
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let graph = counted(&count, 0);
    let stopped =
        |key: &str| graph.run(&thread).interrupt_before(["b"]).idempotency_key(key).invoke(line("x")).unwrap();
    for _ in 0..2 {
        assert_eq!(lines(&stopped("2")), ["in", "a", "b", "x", "a"], "a breakpoint is not passed by asking again");
    }
    graph.invoke(&thread, Input::Continue).unwrap();
    let shown = stopped("2");
    assert_eq!((lines(&shown).len(), shown.is_done()), (6, true), "another run has ended what it began");
    graph.invoke(&thread, line("y")).unwrap();
    assert_eq!(lines(&stopped("2")).len(), 6, "the next input is not part of it");
}

#[apply(each_backend)]
fn an_answer_with_a_key_is_given_once() {
    let store = place();
    let ask = |_: &Log, ctx: &Context| {
        let first = ctx.interrupt("first?")?;
        let second = ctx.interrupt("second?")?;
        Ok(Log::update().lines([first, second].map(|answer| answer.as_str().unwrap_or_default().to_owned())))
    };
    let inner = one("ask", ask);
    let inside = StateGraph::<Log>::new().node("inside", inner).edge(START, "inside").compile().unwrap();
    // The list that a subgraph returns is appended to the list that it was given.
    let (own, around): (&[&str], &[&str]) = (&["start", "one", "two"], &["start", "start", "one", "two"]);
    for (name, graph, end) in [("ask", one("ask", ask), own), ("inside", inside, around)] {
        let thread = store.thread(name).unwrap();
        let question = |outcome: Outcome<Log>| outcome.interrupts()[0].value.clone();
        let start = || graph.run(&thread).idempotency_key("start").invoke(line("start")).unwrap();
        let answer = |key: &str| graph.run(&thread).idempotency_key(key).invoke(Command::resume(key)).unwrap();
        assert_eq!((question(start()), question(start())), ("first?".into(), "first?".into()), "{name}");
        for _ in 0..3 {
            assert_eq!(question(answer("one")), "second?", "{name}: the second question is not answered by it");
            assert_eq!(question(start()), "second?", "{name}");
        }
        for _ in 0..2 {
            assert_eq!(lines(&answer("two")), end, "{name}");
        }
        let shown = start();
        assert_eq!(lines(&shown), end, "{name}: it finds the end, not the question");
        assert!(shown.is_done() && shown.interrupts().is_empty(), "{name}");
    }
}

#[apply(each_backend)]
fn a_command_with_a_key_changes_the_state_once() {
    let store = place();
    let ask = |_: &Log, ctx: &Context| Ok(ctx.interrupt("?").map(|_| line("answered"))?);
    let (graph, thread) = (one("ask", ask), store.thread("t").unwrap());
    graph.invoke(&thread, line("start")).unwrap();
    let note = || graph.run(&thread).idempotency_key("note").invoke(Command::update(line("note"))).unwrap();
    for _ in 0..3 {
        assert_eq!((lines(&note()), note().interrupts().len()), (vec!["start".to_string(), "note".to_string()], 1));
    }
    let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!(lines(&done), ["start", "note", "answered"]);
}

#[apply(each_backend)]
fn a_key_that_cannot_be_used_is_refused() {
    let store = place();
    let (graph, thread) = (counted(&Arc::default(), 0), store.thread("t").unwrap());
    let refused = |error: annals_graph::Error| match error.as_run() {
        Some(RunError::BadKey { reason }) => reason.clone(),
        _ => panic!("{error}"),
    };
    let run = |key: &str| graph.run(&thread).idempotency_key(key).invoke(line("x"));
    assert!(refused(run("").unwrap_err()).contains("empty"));
    assert!(refused(run(&"k".repeat(1_025)).unwrap_err()).contains("1024"));
    assert!(refused(graph.run(()).idempotency_key("k").invoke(line("x")).unwrap_err()).contains("thread"));
    assert!(thread.head().unwrap().is_none(), "nothing was run");
    assert!(run(&"k".repeat(1_024)).unwrap().is_done());
}

#[apply(each_backend)]
fn an_answer_that_does_not_fit_is_refused_and_its_question_stays_open() {
    let store = place();
    let schema = serde_json::json!({"type": "string", "minLength": 2});
    let shown = Value::from(schema.clone());
    let ask = move |_: &Log, ctx: &Context| Ok(line(ctx.interrupt_with("?", schema.clone())?.as_str().unwrap_or("?")));
    let inner = one("ask", ask.clone());
    let graph = StateGraph::<Log>::new().node("inner", inner).node("ask", ask).edge(START, "inner").edge(START, "ask");
    let (graph, thread) = (graph.compile().unwrap(), store.thread("t").unwrap());
    let open = graph.invoke(&thread, Log::update()).unwrap().interrupts().to_vec();
    assert!(open.len() == 2 && open.iter().all(|question| question.response_schema.as_ref() == Some(&shown)));
    assert_eq!(graph.get_state(&thread).unwrap().interrupts.len(), 2);
    let by_id = |at: usize, answer: Value| Value::Map([(open[at].id.clone(), answer)].into_iter().collect());
    for (at, answer, path) in [(0, Value::from(1), "$"), (1, Value::from("x"), "$")] {
        let before = thread.store().backend().writes(thread.head().unwrap().unwrap().point()).unwrap();
        let refused = graph.invoke(&thread, Command::resume(by_id(at, answer))).unwrap_err();
        let Some(RunError::InvalidResumeValue(misfit)) = refused.as_run() else { panic!("{refused}") };
        assert_eq!((&misfit.id, misfit.path.as_str()), (&open[at].id, path));
        let after = thread.store().backend().writes(thread.head().unwrap().unwrap().point()).unwrap();
        assert_eq!(before, after, "nothing was written");
    }
    graph.invoke(&thread, Command::resume(by_id(0, "one".into()))).unwrap();
    graph.invoke(&thread, Command::resume(2)).unwrap_err();
    let done = graph.invoke(&thread, Command::resume("two")).unwrap();
    assert!(done.is_done());
    assert_eq!(done.state().lines.len(), 2);
    // An answer that comes before its question fails the node, and can be given again.
    let early = one("ask", |_: &Log, ctx: &Context| {
        ctx.interrupt_with("?", serde_json::json!({"const": 7})).map(|_| line("seven"))
    });
    let thread = store.thread("stopped").unwrap();
    early.run(&thread).interrupt_before(["ask"]).invoke(Log::update()).unwrap();
    let refused = early.invoke(&thread, Command::resume(8)).unwrap_err();
    assert!(refused.is_user() && refused.to_string().contains("must be 7, but is 8"), "{refused}");
    assert!(early.invoke(&thread, Command::resume(7)).unwrap().is_done());
}
