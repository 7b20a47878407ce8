//! Messages that nodes and tasks stream, persisted on the way.

use annals::store::log::LogExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals::store::batch::WriteValue;
use annals_graph::Durability;
use annals_graph::IntoInput;
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::task::{RunControl, Task};
use macro_rules_attribute::apply;

use crate::backends::new_thread;
use crate::line_state::{EVERY_WAY, run_on};

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
}

fn ask() -> Input {
    IntoInput::<Chat, _>::into_input(Chat::update().messages([Message::human("hi")]))
}

fn texts(chat: &Chat) -> Vec<String> {
    chat.messages.iter().map(|message| message.text().into_owned()).collect()
}

fn partial_text(thread: &Thread) -> Option<String> {
    thread.store().backend().flush();
    thread.partial().unwrap().map(|partial| partial.content.message.text().into_owned())
}

/// Waits until a message is persisted, for some minutes at most.
fn wait_for(thread: &Thread, text: &str) {
    for _ in 0..200_000 {
        if partial_text(thread).as_deref() == Some(text) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{text:?} is not persisted: {:?}", partial_text(thread));
}

#[apply(each_backend)]
fn a_message_of_a_node_that_fails_is_there_to_keep() {
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        let (seen, online) = (thread.clone(), Arc::new(AtomicBool::new(false)));
        let connected = Arc::clone(&online);
        let model = move |_: &Chat, ctx: &Context| {
            let mut answer = ctx.message_stream();
            answer.push("The Gasthof ");
            if !connected.load(Ordering::SeqCst) {
                if durability != Durability::Exit {
                    wait_for(&seen, "The Gasthof ");
                }
                return Err("the line is dead".into());
            }
            answer.push("Post");
            Ok(Chat::update().messages([answer.finish()]))
        };
        let graph = StateGraph::<Chat>::new().node("model", model).edge(START, "model").compile().unwrap();
        let run = || graph.run(&thread).durability(durability).persist_messages_every(Duration::ZERO);
        let error = run_on(driver, run(), ask()).expect_err("the line is dead");
        assert!(error.is_user(), "{driver} {durability:?}: {error}");
        let task = graph.get_state(&thread).unwrap().tasks.remove(0);
        assert!(task.error.is_some_and(|error| error.contains("the line is dead")));
        if durability == Durability::Exit {
            assert_eq!((task.partial, partial_text(&thread)), (None, None), "nothing is stored on the way");
            continue;
        }
        let shown = task.partial.expect("the answer so far");
        assert_eq!((shown.message.text().as_ref(), shown.channel.as_str()), ("The Gasthof ", "messages"));
        online.store(true, Ordering::SeqCst);
        thread.partial().unwrap().unwrap().keep().unwrap();
        let done = run_on(driver, run(), Input::Continue).unwrap();
        assert_eq!(texts(done.state()), ["hi", "The Gasthof ", "The Gasthof Post"], "{driver} {durability:?}");
        assert!(done.state().messages[1].response_metadata["aborted"] == Value::Bool(true));
        assert!(done.state().messages[2].response_metadata.is_empty());
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

/// A graph whose node streams an answer that is cut off while it is offline, and else returns one.
#[apply(each_backend)]
fn an_input_keeps_a_message_that_was_cut_off() {
    for (driver, durability) in EVERY_WAY {
        let (thread, online) = (new_thread(), Arc::new(AtomicBool::new(false)));
        let (seen, connected) = (thread.clone(), Arc::clone(&online));
        let model = move |_: &Chat, ctx: &Context| {
            if connected.load(Ordering::SeqCst) {
                return Ok(Chat::update().messages([Message::ai("The Post")]));
            }
            ctx.message_stream().push("The Gasthof ");
            if durability != Durability::Exit {
                wait_for(&seen, "The Gasthof ");
            }
            Err("the line is dead".into())
        };
        let graph = StateGraph::<Chat>::new().node("model", model).edge(START, "model").compile().unwrap();
        let run = || graph.run(&thread).durability(durability).persist_messages_every(Duration::ZERO);
        run_on(driver, run(), ask()).unwrap_err();
        online.store(true, Ordering::SeqCst);
        let done = run_on(driver, run(), ask()).unwrap();
        let messages = &done.state().messages;
        if durability == Durability::Exit {
            assert_eq!(texts(done.state()), ["hi", "hi", "The Post"], "{driver}: nothing was stored on the way");
            continue;
        }
        assert_eq!(texts(done.state()), ["hi", "The Gasthof ", "hi", "The Post"], "{driver} {durability:?}");
        let aborted: Vec<bool> =
            messages.iter().map(|message| message.response_metadata.contains_key("aborted")).collect();
        assert_eq!(aborted, [false, true, false, false]);
        assert_eq!(partial_text(&thread), None);

        // A message that was streamed without a graph, and an input that empties the list: a compaction.
        let mut answer = thread.message_writer("messages", Duration::ZERO);
        answer.push("half");
        drop(answer);
        assert_eq!(partial_text(&thread).as_deref(), Some("half"));
        let input = Chat::update().messages([Message::remove_all(), Message::human("anew")]);
        let done = run_on(driver, run(), IntoInput::<Chat, _>::into_input(input)).unwrap();
        assert_eq!(texts(done.state()), ["anew", "half", "The Post"], "{driver} {durability:?}");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

/// Returns the special writes of partial messages at the checkpoints of a thread that were not cleared.
fn left(thread: &Thread) -> usize {
    let history = thread.history().unwrap().map(|at| at.unwrap());
    let writes = history.flat_map(|at| thread.store().backend().writes(at.point()).unwrap());
    writes.filter(|write| &*write.channel == "__partial__" && write.value != WriteValue::Null).count()
}

#[apply(each_backend)]
fn the_end_of_a_task_clears_its_message() {
    for (driver, durability) in EVERY_WAY {
        let (thread, inner) = (new_thread(), new_thread());
        let in_node = thread.clone();
        let model = move |_: &Chat, ctx: &Context| {
            let mut answer = ctx.message_stream().persist_every("messages", Duration::ZERO);
            answer.push("whole");
            if durability != Durability::Exit {
                wait_for(&in_node, "whole");
            }
            Ok(Chat::update().messages([answer.finish()]))
        };
        let graph = StateGraph::<Chat>::new().node("model", model).edge(START, "model").compile().unwrap();
        let done = run_on(driver, graph.run(&thread).durability(durability), ask()).unwrap();
        assert_eq!((texts(done.state()).len(), partial_text(&thread)), (2, None), "{driver} {durability:?}");

        let in_call = inner.clone();
        let say = Task::new("say", move |(): (), ctx: &Context| {
            let mut answer = ctx.message_stream();
            answer.push("called");
            if durability != Durability::Exit {
                wait_for(&in_call, "called");
            }
            Ok(answer.finish().text().into_owned())
        });
        let flow = Entrypoint::new("flow", move |_: i64, ctx: &Context| {
            let said = say.call(ctx, ())?;
            ctx.interrupt(said)?;
            Ok(1_i64)
        });
        let flow = flow.compile().unwrap();
        let run = || flow.run(&inner).durability(durability).persist_messages_every(Duration::ZERO);
        let input = IntoInput::<Entry<i64, i64>, _>::into_input(1_i64);
        let waiting = run_on(driver, run(), input).unwrap();
        assert_eq!(waiting.interrupts()[0].value, Value::from("called"));
        assert_eq!(partial_text(&inner), None, "{driver} {durability:?}: the call has ended");
        run_on(driver, run(), Input::Command(Command::resume(1))).unwrap();
        // The commit of a message that is on its way when the task ends is refused, or replaced.
        inner.store().backend().flush();
        assert_eq!((left(&thread), left(&inner)), (0, 0), "{driver} {durability:?}");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn a_cancelled_run_leaves_its_message_to_discard() {
    let thread = new_thread();
    let control = RunControl::new();
    let (seen, stop) = (thread.clone(), control.clone());
    let model = move |_: &Chat, ctx: &Context| {
        let mut answer = ctx.message_stream();
        answer.push("so far");
        wait_for(&seen, "so far");
        stop.cancel("the stop button");
        Err::<ChatUpdate, _>(annals_graph::graph::BoxError::from("cancelled"))
    };
    let graph = StateGraph::<Chat>::new().node("model", model).edge(START, "model").compile().unwrap();
    let run = graph.run(&thread).control(&control).persist_messages_every(Duration::ZERO);
    let ended = run.invoke(ask());
    assert!(ended.is_ok_and(|outcome| !outcome.is_done()));
    thread.partial().unwrap().expect("the answer so far").discard().unwrap();
    assert_eq!(partial_text(&thread), None);
    assert!(graph.get_state(&thread).unwrap().tasks[0].partial.is_none());
}
