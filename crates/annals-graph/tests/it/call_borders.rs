//! Calls at their borders: stored attempts, answers, and inputs that a later run takes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use annals::base::NULL_TASK;
use annals::store::CheckpointRef;
use annals::store::batch::WriteValue;
use annals::store::log::LogExt;
use annals::store::record::WriteRecord;
use annals_graph::Durability;
use annals_graph::graph::{CachePolicy, Entrypoint, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use macro_rules_attribute::apply;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::backends::{GUARD, new_thread, place, same_after_reload};
use crate::line_state::{EVERY_WAY, Log, LogUpdate, line, run_on, start};

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Heard {
    #[channel(messages)]
    messages: Messages,
}

/// A number that cannot be encoded the first time, if it is told so.
#[derive(Clone, Default)]
struct Brittle {
    n: i64,
    breaks: Arc<AtomicBool>,
}

impl Serialize for Brittle {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.breaks.swap(false, Ordering::SeqCst) {
            return Err(serde::ser::Error::custom("it breaks"));
        }
        self.n.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Brittle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(Self { n: i64::deserialize(deserializer)?, ..Self::default() })
    }
}

#[derive(State, Clone, Default)]
struct Frail {
    #[channel(last)]
    value: Brittle,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A graph of one node, which calls tasks.
fn calling(node: impl Fn(&Context) -> NodeResult<LogUpdate> + Send + Sync + 'static) -> CompiledGraph<Log> {
    StateGraph::<Log>::new()
        .node("calls", move |_: &Log, context: &Context| node(context))
        .edge(START, "calls")
        .compile()
        .unwrap()
}

/// The stored writes of some tasks of a checkpoint: the channel and the index of each, with a dash behind one that is
/// null.
fn written(thread: &Thread, at: &CheckpointRef, of: impl Fn(&WriteRecord) -> bool) -> Vec<String> {
    let writes = thread.store().backend().writes(at).unwrap();
    let shown = writes.iter().filter(|write| of(write)).map(|write| {
        let null = if write.value == WriteValue::Null { " -" } else { "" };
        format!("{} {}{null}", write.channel, write.index)
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort();
    shown
}

fn is_call(write: &WriteRecord) -> bool {
    write.path.starts_with("~c, ")
}

/// The stored writes of the calls at the head.
fn of_calls(thread: &Thread) -> Vec<String> {
    thread.head().unwrap().map(|head| written(thread, head.point(), is_call)).unwrap_or_default()
}

/// The stored writes of the commands at the head.
fn of_commands(thread: &Thread) -> Vec<String> {
    thread
        .head()
        .unwrap()
        .map(|head| written(thread, head.point(), |write| write.task == NULL_TASK))
        .unwrap_or_default()
}

fn by_id(id: &str, value: &str) -> Command {
    Command::resume(Value::Map([(id.to_owned(), Value::from(value))].into_iter().collect()))
}

/// A flag that a test sets once it has seen the first failure.
fn flag() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(true));
    (Arc::clone(&flag), flag)
}

#[apply(each_backend)]
fn a_call_that_asks_twice_is_given_both_answers() {
    let asks = Task::new("asks", |(): (), context: &Context| {
        let answers = [context.interrupt("first?")?, context.interrupt("second?")?];
        Ok(answers.each_ref().map(text).join(" "))
    });
    let graph = calling(move |context| Ok(line(asks.call(context, ())?)));
    for (driver, durability) in EVERY_WAY {
        for names in [false, true] {
            let thread = new_thread();
            let run = || graph.run(&thread).durability(durability);
            let mut outcome = run_on(driver, run(), start()).unwrap();
            for (question, answer) in [("first?", "one"), ("second?", "two")] {
                thread.store().clear_head_cache();
                let open = outcome.interrupts();
                assert_eq!((open.len(), &open[0].value), (1, &Value::from(question)));
                let command = if names { by_id(&open[0].id, answer) } else { Command::resume(answer) };
                outcome = run_on(driver, run(), Input::Command(command)).unwrap();
            }
            assert_eq!(outcome.state().lines.to_vec(), ["one two"], "{driver} {durability:?} {names}");
        }
    }
}

#[apply(each_backend)]
fn an_answered_call_that_fails_is_not_asked_again() {
    let (broken, fails) = flag();
    let asks = Task::new("asks", move |(): (), context: &Context| {
        let answer = context.interrupt("?")?;
        if fails.load(Ordering::SeqCst) { Err("not yet".into()) } else { Ok(text(&answer).to_owned()) }
    });
    let graph = calling(move |context| Ok(line(asks.call(context, ())?)));
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        broken.store(true, Ordering::SeqCst);
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        let asked = run().invoke(Log::update()).unwrap();
        run().invoke(by_id(&asked.interrupts()[0].id, "yes")).unwrap_err();
        broken.store(false, Ordering::SeqCst);
        thread.store().clear_head_cache();
        let done = run().invoke(Input::Continue).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["yes"], "{durability:?}");
    }
}

#[apply(each_backend)]
fn a_call_that_drops_its_question_fails() {
    let drops = Task::new("drops", |(): (), context: &Context| -> NodeResult<String> {
        let _ = context.interrupt("?");
        Err("no patience".into())
    });
    let graph = calling(move |context| Ok(line(drops.call(context, ())?)));
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        let failed = run_on(driver, graph.run(&thread).durability(durability), start()).unwrap_err();
        assert!(failed.to_string().contains("no patience"), "{failed}");
        assert_eq!(of_calls(&thread), ["__call__ -11", "__error__ -1"], "{driver} {durability:?}");
        assert!(graph.get_state(&thread).unwrap().interrupts.is_empty());
    }
}

#[apply(each_backend)]
fn a_call_at_a_breakpoint_of_its_subgraph_stores_no_answer_of_the_run() {
    let inner = StateGraph::<Log>::new()
        .node("one", |_: &Log| Ok(line("one")))
        .edge(START, "one")
        .interrupt_before(["one"])
        .compile()
        .unwrap();
    let asks = Task::new("asks", move |(): (), context: &Context| {
        let first = context.interrupt("first?")?;
        inner.invoke(context, Log::update())?;
        let second = context.interrupt("second?")?;
        Ok([&first, &second].map(text).join(" "))
    });
    let graph = calling(move |context| Ok(line(asks.call(context, ())?)));
    for durability in [Durability::Sync, Durability::Async] {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(Log::update()).unwrap();
        let stopped = run().invoke(Command::resume("one")).unwrap();
        assert!(!stopped.is_done() && stopped.interrupts().is_empty(), "{stopped:?}");
        assert_eq!(of_calls(&thread), ["__call__ -11", "__interrupt__ -3"], "{durability:?}");
        thread.store().clear_head_cache();
        let asked = run().invoke(Input::Continue).unwrap();
        assert_eq!(asked.interrupts()[0].value, Value::from("second?"), "the answer was given once");
        let done = run().invoke(Command::resume("two")).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["one two"]);
    }
}

#[apply(each_backend)]
fn a_run_goes_on_with_the_calls_of_the_attempt_that_failed_last() {
    let (broken, fails) = flag();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let count = Task::new("count", move |(): ()| Ok(counted.fetch_add(1, Ordering::SeqCst) + 1));
    let node = move |_: &Log, context: &Context| {
        let number = count.call(context, ())?;
        if fails.load(Ordering::SeqCst) { Err("not yet".into()) } else { Ok(line(number.to_string())) }
    };
    let retry = RetryPolicy::new().initial_interval(Duration::ZERO).max_attempts(2).jitter(false);
    let graph = StateGraph::<Log>::new()
        .node_with("calls", node, NodeOptions::new().retry(retry))
        .edge(START, "calls")
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        broken.store(true, Ordering::SeqCst);
        calls.store(0, Ordering::SeqCst);
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(Log::update()).unwrap_err();
        assert_eq!(calls.load(Ordering::SeqCst), 1, "the second attempt takes the result of the first one");
        let head = thread.head().unwrap().unwrap();
        let own = written(&thread, head.point(), |write| !is_call(write) && &*write.channel != "__error__");
        assert_eq!(own, ["__retries__ -13"], "{durability:?}");
        broken.store(false, Ordering::SeqCst);
        thread.store().clear_head_cache();
        let done = run().invoke(Input::Continue).unwrap();
        assert_eq!((done.state().lines.to_vec(), calls.load(Ordering::SeqCst)), (vec!["1".to_owned()], 1));
    }
}

#[apply(each_backend)]
fn a_node_that_is_tried_once_stores_no_attempt() {
    let count = Task::new("count", |(): ()| Ok(1));
    let graph = calling(move |context| {
        count.call(context, ())?;
        count.call(context, ())?;
        Err("no".into())
    });
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap_err();
    let head = thread.head().unwrap().unwrap();
    assert_eq!(written(&thread, head.point(), |write| !is_call(write)), ["__error__ -1"]);
}

#[apply(each_backend)]
fn a_failed_attempt_of_a_call_is_stored_while_the_next_one_runs() {
    let seen: Arc<parking_lot::Mutex<Option<Thread>>> = Arc::default();
    let of = Arc::clone(&seen);
    let again = Task::new("again", move |(): (), context: &Context| {
        if context.attempt() == 1 {
            return Err("busy".into());
        }
        let thread = of.lock().clone().unwrap();
        let begun = Instant::now();
        while of_calls(&thread) != ["__retries__ -13"] {
            if begun.elapsed() > GUARD {
                return Err(format!("stored is {:?}", of_calls(&thread)).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(format!("attempt {}", context.attempt()))
    });
    let again = again.retry(RetryPolicy::new().initial_interval(Duration::ZERO).max_attempts(2).jitter(false));
    let graph = calling(move |context| Ok(line(again.call(context, ())?)));
    for (driver, durability) in EVERY_WAY.into_iter().filter(|(_, durability)| *durability != Durability::Exit) {
        let thread = new_thread();
        *seen.lock() = Some(thread.clone());
        let done = run_on(driver, graph.run(&thread).durability(durability), start()).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["attempt 2"], "{driver} {durability:?}");
    }
}

#[apply(each_backend)]
fn a_call_knows_what_the_entrypoint_has_kept() {
    let add = Task::new("add", |n: i64, context: &Context| Ok(context.previous::<i64>()?.unwrap_or(0) + n));
    let sum = Entrypoint::new("sum", move |n: i64, context: &Context| add.call(context, n)).compile().unwrap();
    let thread = new_thread();
    assert_eq!(sum.invoke(&thread, 2).unwrap().value(), Some(&2));
    assert_eq!(sum.invoke(&thread, 3).unwrap().value(), Some(&5));
}

#[apply(each_backend)]
fn a_call_stores_its_result_after_the_writes_of_the_attempt_that_failed() {
    for caches in [false, true] {
        let (broken, fails) = flag();
        let say = Task::new("say", move |(): (), context: &Context| {
            context.push_message(Message::ai("first").with_id("first"))?;
            if fails.load(Ordering::SeqCst) { Err("not yet".into()) } else { Ok(()) }
        });
        let say = if caches { say.cache_policy(CachePolicy::new()) } else { say };
        let store = place();
        let graph = StateGraph::<Heard>::new()
            .node("calls", move |_: &Heard, context: &Context| {
                say.call(context, ())?;
                Ok(())
            })
            .edge(START, "calls")
            .cache(&store.cache())
            .compile()
            .unwrap();
        let (thread, other) = (store.thread(format!("{caches}")).unwrap(), store.thread("other").unwrap());
        graph.invoke(&thread, Heard::update()).unwrap_err();
        let at = thread.head().unwrap().unwrap();
        assert_eq!(written(&thread, at.point(), is_call), ["__call__ -11", "__error__ -1", "messages 0"]);
        broken.store(false, Ordering::SeqCst);
        if caches {
            graph.invoke(&other, Heard::update()).unwrap();
            broken.store(true, Ordering::SeqCst);
        }
        thread.store().clear_head_cache();
        let done = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(done.state().messages.len(), 1);
        let stored = written(&thread, at.point(), is_call);
        let wanted = ["__call__ -11", "__call__ 2", "__error__ -1", "messages 0", "messages 1"];
        assert_eq!(stored, wanted, "{caches}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn an_input_that_could_not_be_encoded_is_taken_by_the_next_run() {
    let graph = StateGraph::<Frail>::new().node("node", |_: &Frail| Ok(())).edge(START, "node").compile().unwrap();
    let thread = new_thread();
    let run = || graph.run(&thread).durability(Durability::Exit);
    let value = Brittle { n: 3, breaks: Arc::new(true.into()) };
    run().invoke(Frail::update().value(value)).unwrap_err();
    thread.store().clear_head_cache();
    assert_eq!(graph.get_state(&thread).unwrap().next, [START]);
    assert_eq!(run().invoke(Input::Continue).unwrap().state().value.n, 3);
}

#[apply(each_backend)]
fn the_updates_of_several_commands_add_up_until_the_superstep_is_over() {
    let graph = StateGraph::with_schema(DynSchema::new().append("a").append("b").build())
        .node("ask", |_: &annals::state::DynState, context: &Context| {
            Ok(DynUpdate::new().set("a", context.interrupt("?")?))
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Exit] {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(DynUpdate::new()).unwrap();
        for turn in ["one", "two"] {
            thread.store().clear_head_cache();
            let asked = run().invoke(Command::update(DynUpdate::new().set("a", turn).set("b", turn))).unwrap();
            assert_eq!(asked.interrupts().len(), 1);
        }
        assert_eq!(of_commands(&thread), ["a 0", "a 2", "b 1", "b 3"], "{durability:?}");
        thread.store().clear_head_cache();
        let done = run().invoke(Command::resume("three")).unwrap();
        let list =
            |name: &str| done.state().list(name).unwrap().iter().map(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            (list("a"), list("b")),
            (vec!["one".into(), "two".into(), "three".into()], vec!["one".into(), "two".into()])
        );
        assert_eq!(thread.store().check().unwrap().problems, []);
    }
}

#[apply(each_backend)]
fn a_command_at_a_past_checkpoint_stays_with_its_own_branch() {
    let graph = StateGraph::<Log>::new()
        .node("a", |_: &Log| Ok(line("a")))
        .node("b", |_: &Log| Ok(line("b")))
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let thread = new_thread();
        graph.run(&thread).interrupt_before(["b"]).durability(durability).invoke(Log::update()).unwrap();
        let past = thread.head().unwrap().unwrap();
        graph.run(&thread).durability(durability).invoke(Input::Continue).unwrap();
        for (turn, text) in ["x", "y"].into_iter().enumerate() {
            let run = graph.run(&past).durability(durability);
            let done = run.invoke(Command::update(line(text))).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["a", text, "b"], "{durability:?}");
            same_after_reload(&graph, &thread);
            // A run that is stored at its end stores the writes of its command with the fork.
            let count = if durability == Durability::Exit { 0 } else { turn + 1 };
            let of_command = |write: &WriteRecord| write.path.is_empty();
            assert_eq!(written(&thread, past.point(), of_command), vec!["lines 0"; count], "{durability:?}");
            assert_eq!(written(&thread, past.point(), |write| write.task == NULL_TASK), Vec::<String>::new());
        }
    }
}

#[apply(each_backend)]
fn an_answer_at_a_moved_head_is_stored_with_the_fork_before_its_task_runs() {
    let seen: Arc<parking_lot::Mutex<Option<Thread>>> = Arc::default();
    let of = Arc::clone(&seen);
    let graph = calling(move |context| {
        let answer = context.interrupt("?")?;
        let stored = of.lock().as_ref().map(of_commands).unwrap_or_default();
        Ok(line(format!("{} {stored:?}", text(&answer))))
    });
    for (durability, stored) in [(Durability::Sync, "[\"__resume__ -4\"]"), (Durability::Exit, "[]")] {
        *seen.lock() = None;
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        run().invoke(Log::update()).unwrap();
        let waits = thread.head().unwrap().unwrap();
        run().invoke(Command::resume("one")).unwrap();
        thread.rewind_to(&waits).unwrap();
        thread.store().clear_head_cache();
        *seen.lock() = Some(thread.clone());
        let done = run().invoke(Command::resume("two")).unwrap();
        assert_eq!(done.state().lines.to_vec(), [format!("two {stored}")], "{durability:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn a_run_at_a_named_head_of_an_edit_asks_again() {
    let (broken, fails) = flag();
    let graph = StateGraph::<Log>::new()
        .node("first", |_: &Log| Ok(()))
        .node("ask", move |_: &Log, context: &Context| {
            let answer = context.interrupt("?")?;
            if fails.load(Ordering::SeqCst) { Err("not yet".into()) } else { Ok(line(text(&answer))) }
        })
        .edge(START, "first")
        .edge("first", "ask")
        .compile()
        .unwrap();
    for durability in [Durability::Sync, Durability::Exit] {
        broken.store(true, Ordering::SeqCst);
        let thread = new_thread();
        graph.update_state(&thread, line("edit"), "first").unwrap();
        let run = || graph.run(&thread).durability(durability);
        let asked = run().invoke(Input::Continue).unwrap();
        run().invoke(by_id(&asked.interrupts()[0].id, "one")).unwrap_err();
        broken.store(false, Ordering::SeqCst);
        let head = thread.head().unwrap().unwrap();
        let again = graph.run(&head).durability(durability).invoke(Input::Continue).unwrap();
        assert_eq!(again.interrupts().len(), 1, "{durability:?}");
    }
}

#[apply(each_backend)]
fn a_replay_with_a_key_stores_no_command() {
    let graph = calling(|context| Ok(line(text(&context.interrupt("?")?))));
    let thread = new_thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let waits = thread.head().unwrap().unwrap();
    graph.invoke(&thread, Command::resume("one")).unwrap();
    thread.rewind_to(&waits).unwrap();
    let asked = graph.run(&thread).idempotency_key("key").invoke(Input::Continue).unwrap();
    assert_eq!((asked.interrupts().len(), of_commands(&thread)), (1, Vec::new()));
    graph.run(&thread).idempotency_key("other").invoke(Command::resume("two")).unwrap();
    assert_eq!(thread.with_state::<Log>().state().unwrap().lines.to_vec(), ["two"]);
}

#[apply(each_backend)]
fn a_subgraph_at_a_named_checkpoint_takes_no_answer_for_its_earlier_question() {
    let ask = |_: &Log, context: &Context| Ok(line(text(&context.interrupt("?")?)));
    let inner = StateGraph::<Log>::new().node("ask", ask).edge(START, "ask").persistence(Persistence::PerThread);
    let graph =
        StateGraph::<Log>::new().node("inner", inner.compile().unwrap()).edge(START, "inner").compile().unwrap();
    for durability in [Durability::Sync, Durability::Exit] {
        let thread = new_thread();
        let asked = graph.run(&thread).durability(durability).invoke(Log::update()).unwrap();
        let id = asked.interrupts()[0].id.clone();
        let inside = thread.in_namespace("inner").unwrap().head().unwrap().unwrap();
        let again = graph.run(&inside).durability(durability).invoke(by_id(&id, "two")).unwrap();
        assert_eq!(again.interrupts().len(), 1, "{durability:?}");
        assert_ne!(again.interrupts()[0].id, id, "its tasks begin anew on a fork");
    }
}
