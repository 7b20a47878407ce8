//! Tests the messages that called tasks push: they are written to the channels of the caller's graph, on every path of
//! the caller and the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_graph::graph::{CachePolicy, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{Durability, IntoInput, UpdateAs};
use macro_rules_attribute::apply;

use super::backends::{place, same_after_reload};

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
}

fn message(id: &str) -> Message {
    Message::ai(id).with_id(id)
}

fn says(id: &str) -> ChatUpdate {
    Chat::update().messages([message(id)])
}

fn ids(chat: &Chat) -> Vec<&str> {
    chat.messages.iter().filter_map(|message| message.id.as_deref()).collect()
}

/// A task that pushes a message, and fails if it is told so.
fn push() -> Task<String, String> {
    Task::new("push", |id: String, context: &Context| {
        context.push_message(message(&id))?;
        if id.starts_with("bad") { Err("told so".into()) } else { Ok(id) }
    })
}

/// Every way to run a graph: durability, and whether it is awaited.
fn ways() -> impl Iterator<Item = (Durability, bool)> {
    let all = [Durability::Sync, Durability::Async, Durability::Exit];
    all.into_iter().flat_map(|durability| [(durability, false), (durability, true)])
}

fn run<M>(
    graph: &CompiledGraph<Chat>,
    thread: &Thread,
    input: impl IntoInput<Chat, M>,
    way: (Durability, bool),
) -> Chat {
    let run = graph.run(thread).durability(way.0);
    let done = if way.1 { annals_graph::block_on(run.ainvoke(input)) } else { run.invoke(input) };
    Chat::clone(done.unwrap().state())
}

#[apply(each_backend)]
fn what_called_tasks_push_is_written_after_the_nodes_in_the_order_of_the_calls() {
    let (inner, outer) = (push(), push());
    let nest = Task::new("nest", move |id: String, context: &Context| {
        context.push_message(message("nest 1"))?;
        let id = inner.call(context, id)?;
        context.push_message(message("nest 2"))?;
        Ok(id)
    });
    let graph = StateGraph::<Chat>::new()
        .node("calls", move |_: &Chat, context: &Context| {
            context.push_message(message("own push"))?;
            let others = ["c", "b"].map(|id| outer.start(context, id.to_owned()));
            nest.call(context, "inside".into())?;
            for other in others {
                other.wait()?;
            }
            Ok(says("own"))
        })
        .node("sibling", |_: &Chat| Ok(says("sibling")))
        .edge(START, "calls")
        .edge(START, "sibling")
        .compile()
        .unwrap();
    let store = place();
    for (at, way) in ways().enumerate() {
        let thread = store.thread(format!("t{at}")).unwrap();
        let chat = run(&graph, &thread, Chat::update(), way);
        assert_eq!(ids(&chat), ["own push", "own", "sibling", "c", "b", "nest 1", "nest 2", "inside"], "{way:?}");
        assert_eq!(graph.get_state(&thread).unwrap().values.as_ref(), &chat);
        same_after_reload(&graph, &thread);
    }
    let chat = graph.invoke((), Chat::update()).unwrap();
    assert_eq!(chat.state().messages.len(), 8, "without a store as well");
}

#[apply(each_backend)]
fn async_tasks_push_too_and_their_messages_are_shown_once() {
    let push = Task::new("push", |id: String, context: Context| async move {
        context.push_message(message(&id))?;
        Ok(id)
    });
    let graph = StateGraph::<Chat>::new()
        .node("calls", move |_: std::sync::Arc<Chat>, context: Context| {
            let push = push.clone();
            async move {
                let pushed = push.call(&context, "pushed".into()).await?;
                Ok(says("own").messages([message(&pushed)]))
            }
        })
        .edge(START, "calls")
        .compile()
        .unwrap();
    let thread = place().thread("t").unwrap();
    let (shown, ends) = annals_graph::block_on(async {
        let modes = [StreamMode::Messages, StreamMode::Tasks];
        let mut stream = graph.run(&thread).astream(Chat::update(), &modes).await.unwrap();
        let (mut shown, mut ends) = (Vec::new(), Vec::new());
        while let Some(part) = stream.next().await {
            match part.unwrap().data {
                StreamData::Message(part) => shown.push(part.message.id.unwrap()),
                StreamData::TaskEnd(end) => ends.push((end.task.node().to_owned(), end.result.to_result().unwrap())),
                _ => {}
            }
        }
        (shown, ends)
    });
    assert_eq!(shown, ["pushed", "own"]);
    assert_eq!(ends[0].0, "push");
    assert_eq!(ends[0].1.keys().collect::<Vec<_>>(), ["messages", "__return__"]);
    assert_eq!(ids(&graph.get_state(&thread).unwrap().values), ["own", "pushed"], "the call comes after its node");
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn what_was_pushed_before_a_question_is_written_once_its_superstep_ends() {
    let (first, second) = (push(), push());
    let graph = StateGraph::<Chat>::new()
        .node("asks", move |_: &Chat, context: &Context| {
            first.call(context, "before".into())?;
            let answer = context.interrupt("?")?;
            first.call(context, "after".into())?;
            Ok(says(answer.as_str().unwrap_or_default()))
        })
        .node("done", move |_: &Chat, context: &Context| {
            second.call(context, "sibling's".into())?;
            Ok(says("done"))
        })
        .edge(START, "asks")
        .edge(START, "done")
        .compile()
        .unwrap();
    let store = place();
    for (at, way) in ways().enumerate() {
        let thread = store.thread(format!("t{at}")).unwrap();
        let waiting = run(&graph, &thread, Chat::update(), way);
        assert_eq!(ids(&waiting), ["done", "before", "sibling's"], "{way:?}: what has ended is shown");
        thread.store().clear_head_cache();
        let chat = run(&graph, &thread, Command::resume("answer"), way);
        assert_eq!(ids(&chat), ["answer", "done", "before", "after", "sibling's"], "{way:?}");
        same_after_reload(&graph, &thread);
    }
    // Ended from outside, the superstep keeps what has ended in it.
    let thread = store.thread("ended").unwrap();
    run(&graph, &thread, Chat::update(), (Durability::Sync, false));
    graph.update_state(&thread, Chat::update(), UpdateAs::End).unwrap();
    assert_eq!(ids(&graph.get_state(&thread).unwrap().values), ["done", "before", "sibling's"]);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_failed_call_whose_caller_goes_on_has_pushed_and_one_that_is_tried_again_has_not() {
    let (attempts, runs) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let bad = push();
    let retried = Task::new("retried", move |(): (), context: &Context| {
        let tried = attempts.fetch_add(1, Ordering::SeqCst);
        context.push_message(message(&format!("try {}", tried % 2)))?;
        if tried.is_multiple_of(2) { Err("once more".into()) } else { Ok(()) }
    })
    .retry(RetryPolicy::new().initial_interval(std::time::Duration::ZERO).jitter(false));
    let graph = StateGraph::<Chat>::new()
        .node("calls", move |_: &Chat, context: &Context| {
            assert!(bad.call(context, "bad".into()).is_err());
            if runs.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                return Err("the first run fails".into());
            }
            retried.call(context, ())?;
            Ok(says("own"))
        })
        .edge(START, "calls")
        .compile()
        .unwrap();
    let store = place();
    for (at, way) in ways().enumerate() {
        let thread = store.thread(format!("t{at}")).unwrap();
        graph.run(&thread).durability(way.0).invoke(Chat::update()).unwrap_err();
        thread.store().clear_head_cache();
        let chat = run(&graph, &thread, Input::Continue, way);
        assert_eq!(ids(&chat), ["own", "bad", "try 1"], "{way:?}");
        same_after_reload(&graph, &thread);
    }
}

#[apply(each_backend)]
fn a_cached_call_writes_again_what_it_pushed() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let store = place();
    let push = Task::new("push", move |id: String, context: &Context| {
        counter.fetch_add(1, Ordering::SeqCst);
        context.push_message(message(&id))?;
        Ok(id)
    })
    .cache_policy(CachePolicy::new());
    let graph = StateGraph::<Chat>::new()
        .node("calls", move |_: &Chat, context: &Context| Ok(says(&format!("own {}", push.call(context, "p".into())?))))
        .edge(START, "calls")
        .cache(&store.cache())
        .compile()
        .unwrap();
    for at in 0..3 {
        let thread = store.thread(format!("t{at}")).unwrap();
        let chat = run(&graph, &thread, Chat::update(), (Durability::Sync, at == 2));
        assert_eq!(ids(&chat), ["own p", "p"]);
        same_after_reload(&graph, &thread);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[apply(each_backend)]
fn an_entrypoint_has_no_such_channel_and_only_shows_it() {
    let push = push();
    let main = Entrypoint::new("main", move |id: String, context: &Context| push.call(context, id)).compile().unwrap();
    let thread = place().thread("t").unwrap();
    let mut shown = Vec::new();
    for part in main.stream(&thread, "p".to_owned(), &[StreamMode::Messages]).unwrap() {
        if let StreamData::Message(part) = part.unwrap().data {
            shown.push(part.message.id.unwrap());
        }
    }
    assert_eq!(shown, ["p"]);
    assert!(thread.store().check().unwrap().problems.is_empty());
}
