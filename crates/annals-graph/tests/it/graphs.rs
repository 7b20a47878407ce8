//! Tests graphs on the real store: the nodes that run, their order, and the persisted state.

use annals::store::log::LogExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use annals::store::Source;
use annals_graph::Durability;
use annals_graph::graph::{Own, Target};
use annals_graph::prelude::*;
use annals_graph::{ErrorKind, RunError};
use macro_rules_attribute::apply;

use crate::backends::place;

fn concat(mut old: Vec<String>, new: Vec<String>) -> Vec<String> {
    old.extend(new);
    old
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    topic: Option<String>,
    #[channel(last)]
    n: i64,
    #[channel(reduce = concat)]
    log: Vec<String>,
}

fn log(text: &str) -> ChatUpdate {
    Chat::update().log(vec![text.to_string()])
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

#[apply(each_backend)]
fn the_twenty_lines_work() {
    let graph = StateGraph::<Chat>::new()
        .node("answer", |_: &Chat, _: &Context| Ok(Chat::update().messages([Message::ai("hello")])))
        .edge(START, "answer")
        .edge("answer", END)
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Chat::update().messages([Message::human("hi")])).unwrap();
    let texts: Vec<_> = done.state().messages.iter().map(|m| m.text().to_string()).collect();
    assert_eq!(texts, ["hi", "hello"]);

    let before = thread.history().unwrap().nth(1).unwrap().unwrap();
    let fork = before.fork_to("t-2").unwrap();
    assert_ne!(thread.head().unwrap(), fork.head().unwrap());
    let forked = graph.invoke(&fork, Input::Continue).unwrap();
    assert_eq!(forked.state().messages.len(), 2, "the fork answers again");
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_turn_writes_three_checkpoints_with_the_steps_of_the_reference() {
    let graph = StateGraph::<Chat>::new().node("x", |_: &Chat| Ok(log("x"))).edge(START, "x").compile().unwrap();
    let thread = thread();
    graph.invoke(&thread, Chat::update().n(1)).unwrap();
    graph.invoke(&thread, Chat::update().n(2)).unwrap();
    let history: Vec<_> = thread.history().unwrap().map(|s| s.unwrap()).collect();
    let steps: Vec<_> = history.iter().map(|s| (s.step(), s.source())).collect();
    let turn = |first| [(first, Source::Input), (first + 1, Source::Loop), (first + 2, Source::Loop)];
    let expected: Vec<_> = turn(-1).into_iter().chain(turn(2)).rev().collect();
    assert_eq!(steps, expected);
    let next: Vec<Vec<_>> = history.iter().map(|s| s.next().map(str::to_owned).collect()).collect();
    assert_eq!(next[..3], [vec![], vec!["x".to_string()], vec!["__start__".to_string()]]);
    let values = history[0].values().unwrap();
    assert_eq!(values["n"], Value::from(2));
    assert_eq!(values["log"], Value::from(vec!["x", "x"]));
}

#[apply(each_backend)]
fn parallel_nodes_join_and_write_in_the_order_of_their_names() {
    let slow = |name: &'static str, ms| {
        move |_: &Chat| {
            std::thread::sleep(std::time::Duration::from_millis(ms));
            Ok(log(name))
        }
    };
    let graph = StateGraph::<Chat>::new()
        .node("b", slow("b", 1))
        .node("a", slow("a", 30))
        .node("c", slow("c", 10))
        .node("end", |s: &Chat| Ok(log(&format!("saw {}", s.log.len()))))
        .edge(START, "a")
        .edge(START, "b")
        .edge(START, "c")
        .join(["a", "b", "c"], "end")
        .compile()
        .unwrap();
    let done = graph.invoke(&thread(), Chat::update().n(0)).unwrap();
    assert_eq!(done.state().log, ["a", "b", "c", "saw 3"]);
}

#[apply(each_backend)]
fn sends_run_once_each_and_after_the_nodes() {
    let graph = StateGraph::<Chat>::new()
        .node("src", |_: &Chat| Ok(log("src")))
        .node("x", |_: &Chat| Ok(log("x")))
        .node("w", Own(|n: i64| Ok(log(&format!("w{n}")))))
        .edge(START, "src")
        .branch("src", |_: &Chat| -> Vec<Target> {
            let sends = [3, 1, 2].map(|n| Target::from(SendTo::new("w", n)));
            sends.into_iter().chain(["x".into()]).collect()
        })
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Chat::update().n(0)).unwrap();
    assert_eq!(done.state().log, ["src", "x", "w3", "w1", "w2"]);
    let before = thread.at("~1").unwrap();
    assert_eq!(before.next().collect::<Vec<_>>(), ["w", "w", "w", "x"]);
}

#[apply(each_backend)]
fn a_failed_node_runs_again_and_its_siblings_do_not() {
    let (ok_runs, bad_runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (ok, bad) = (Arc::clone(&ok_runs), Arc::clone(&bad_runs));
    let graph = StateGraph::<Chat>::new()
        .node("ok", move |_: &Chat| {
            ok.fetch_add(1, Ordering::Relaxed);
            Ok(log("ok"))
        })
        .node("bad", move |_: &Chat| {
            if bad.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err("boom".into());
            }
            Ok(log("bad"))
        })
        .edge(START, "ok")
        .edge(START, "bad")
        .compile()
        .unwrap();
    let thread = thread();
    let error = graph.invoke(&thread, Chat::update().n(0)).unwrap_err();
    assert!(error.is_user() && error.to_string().contains("boom"), "{error}");
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(state.next, ["bad"], "live: the finished task is done");
    assert_eq!(
        state.tasks.iter().find(|t| t.name == "bad").unwrap().error.as_deref(),
        Some("node \"bad\" failed: boom")
    );
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().log, ["bad", "ok"]);
    assert_eq!((ok_runs.load(Ordering::Relaxed), bad_runs.load(Ordering::Relaxed)), (1, 2));
}

#[apply(each_backend)]
fn interrupts_are_answered_in_order_and_by_id() {
    let graph = StateGraph::<Chat>::new()
        .node("ask", |_: &Chat, ctx: &Context| {
            let first = ctx.interrupt("first?")?;
            let second = ctx.interrupt("second?")?;
            Ok(log(&format!("{}-{}", first.as_str().unwrap(), second.as_str().unwrap())))
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = thread();
    let waiting = graph.invoke(&thread, Chat::update().n(0)).unwrap();
    assert_eq!(waiting.interrupts()[0].value, Value::from("first?"));
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((state.next.as_slice(), state.interrupts.len()), (&["ask".to_string()][..], 1));
    let waiting = graph.invoke(&thread, Command::resume("a")).unwrap();
    assert_eq!(waiting.interrupts()[0].value, Value::from("second?"));
    let by_id: annals::base::Map = [(waiting.interrupts()[0].id.clone(), Value::from("b"))].into_iter().collect();
    thread.store().clear_head_cache();
    let done = graph.invoke(&thread, Command::resume(by_id)).unwrap();
    assert_eq!(done.state().log, ["a-b"]);
    assert!(done.is_done());
}

#[apply(each_backend)]
fn two_open_questions_need_ids() {
    let ask = |_: &Chat, ctx: &Context| -> NodeResult<ChatUpdate> { Ok(log(ctx.interrupt("?")?.as_str().unwrap())) };
    let graph =
        StateGraph::<Chat>::new().node("a", ask).node("b", ask).edge(START, "a").edge(START, "b").compile().unwrap();
    let thread = thread();
    let waiting = graph.invoke(&thread, Chat::update().n(0)).unwrap();
    assert_eq!(waiting.interrupts().len(), 2);
    let error = graph.invoke(&thread, Command::resume("x")).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::SeveralInterrupts { ids }) if ids.len() == 2));
    let answers = waiting.interrupts().iter().zip(["1", "2"]);
    let answers: annals::base::Map = answers.map(|(i, a)| (i.id.clone(), Value::from(a))).collect();
    assert_eq!(graph.invoke(&thread, Command::resume(answers)).unwrap().state().log, ["1", "2"]);
}

#[apply(each_backend)]
fn replay_of_an_old_checkpoint_makes_a_branch_and_keeps_the_old_one() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let graph = StateGraph::<Chat>::new()
        .node("x", |_: &Chat| Ok(log("x")))
        .node("y", move |_: &Chat| Ok(log(&format!("y{}", count.fetch_add(1, Ordering::Relaxed)))))
        .node("z", |_: &Chat| Ok(log("z")))
        .edge(START, "x")
        .edge("x", "y")
        .edge("y", "z")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Chat::update().n(1)).unwrap();
    let old_head = thread.head().unwrap().unwrap();
    let at_y = thread.at("~2").unwrap();
    assert_eq!(at_y.next().collect::<Vec<_>>(), ["y"]);
    let replayed = graph.invoke(&at_y, Input::Continue).unwrap();
    assert_eq!(replayed.state().log, ["x", "y1", "z"]);
    assert_eq!(old_head.values().unwrap()["log"], Value::from(vec!["x", "y0", "z"]), "the past stays");
    let history: Vec<_> = thread.history().unwrap().map(|s| s.unwrap()).collect();
    assert_eq!(history.len(), 5 + 3);
    let fork = &history[2];
    assert_eq!((fork.source(), fork.step(), fork.parent().unwrap().as_ref()), (Source::Fork, 2, Some(&at_y)));
    assert_eq!(graph.get_state(&thread).unwrap().values.log, ["x", "y1", "z"], "the newest is the head");
}

#[apply(each_backend)]
fn the_oldest_checkpoint_can_be_replayed_with_its_input() {
    let graph =
        StateGraph::<Chat>::new().node("x", |s: &Chat| Ok(log(&s.n.to_string()))).edge(START, "x").compile().unwrap();
    let thread = thread();
    graph.invoke(&thread, Chat::update().n(7).messages([Message::human("hi")])).unwrap();
    let oldest = thread.history().unwrap().last().unwrap().unwrap();
    assert_eq!(oldest.next().collect::<Vec<_>>(), ["__start__"]);
    let again = graph.invoke(&oldest, Input::Continue).unwrap();
    assert_eq!((again.state().n, again.state().messages.len()), (7, 1));
    let fork = oldest.fork_to("t-2").unwrap();
    let forked = graph.invoke(&fork, Input::Continue).unwrap();
    assert_eq!((forked.state().n, forked.state().messages.len()), (7, 1));
}

#[apply(each_backend)]
fn update_state_speaks_for_a_node() {
    let graph = StateGraph::<Chat>::new()
        .node("x", |_: &Chat| Ok(log("x")))
        .node("y", |_: &Chat| Ok(log("y")))
        .node("z", |_: &Chat| Ok(log("z")))
        .edge(START, "x")
        .edge("x", "y")
        .edge("y", "z")
        .interrupt_before(["y"])
        .compile()
        .unwrap();
    let thread = thread();
    let stopped = graph.invoke(&thread, Chat::update().n(1)).unwrap();
    assert!(!stopped.is_done() && stopped.interrupts().is_empty());
    let at_break = thread.head().unwrap().unwrap();

    let as_x = graph.update_state(&thread, log("U"), None).unwrap();
    assert_eq!((as_x.source(), as_x.step()), (Source::Update, 2));
    assert_eq!(as_x.next().collect::<Vec<_>>(), ["y"]);
    assert_eq!(as_x.values().unwrap()["log"], Value::from(vec!["x", "U"]));

    let as_y = graph.update_state(&at_break, log("V"), Some("y")).unwrap();
    assert_eq!(as_y.next().collect::<Vec<_>>(), ["z"]);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().log, ["x", "V", "z"], "the update of the old checkpoint is a branch and the newest");
    let error = graph.update_state(&thread, log("W"), Some("nobody")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn update_state_makes_a_thread() {
    let graph = StateGraph::<Chat>::new().node("x", |_: &Chat| Ok(log("x"))).edge(START, "x").compile().unwrap();
    let thread = thread();
    let made = graph
        .update_state(&thread, Chat::update().n(5).messages([Message::human("a"), Message::ai("b")]), None)
        .unwrap();
    assert_eq!((made.step(), made.next().collect::<Vec<_>>()), (0, vec!["x"]));
    thread.store().clear_head_cache();
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!((done.state().n, done.state().messages.len()), (5, 2));
}

#[apply(each_backend)]
fn messages_are_merged_by_id() {
    let graph = StateGraph::<Chat>::new().node("x", |_: &Chat| Ok(())).edge(START, "x").compile().unwrap();
    let thread = thread();
    let say = |messages: Vec<Message>| graph.invoke(&thread, Chat::update().messages(messages)).unwrap();
    say(vec![Message::human("a").with_id("1"), Message::human("b").with_id("2")]);
    say(vec![Message::human("A").with_id("1"), Message::remove("2"), Message::human("c").with_id("3")]);
    thread.store().clear_head_cache();
    let state = graph.get_state(&thread).unwrap().values;
    let texts: Vec<_> = state.messages.iter().map(|m| m.text().to_string()).collect();
    assert_eq!(texts, ["A", "c"]);
    let error = graph.invoke(&thread, Chat::update().messages([Message::remove("9")])).unwrap_err();
    assert!(error.to_string().contains("('9')"), "{error}");
    say(vec![Message::remove_all(), Message::human("new")]);
    thread.store().clear_head_cache();
    assert_eq!(graph.get_state(&thread).unwrap().values.messages.len(), 1);
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_message_that_is_given_back_as_it_was_is_not_stored_again() {
    let all = |chat: &Chat| {
        let given = chat.messages.iter().cloned();
        Ok(Chat::update().messages(given.chain([Message::ai("new").with_id("new")]).collect::<Vec<_>>()))
    };
    let graph = StateGraph::<Chat>::new().node("all", all).edge(START, "all").compile().unwrap();
    let thread = thread();
    let first = (0..100).map(|n| Message::human("x").with_id(n.to_string()));
    graph.invoke(&thread, Chat::update().messages(first.collect::<Vec<_>>())).unwrap();
    let head = thread.head().unwrap().unwrap();
    let mut written = 0;
    let count = &mut |row: annals::store::record::ItemRow<'_>| {
        written += usize::from(row.ordinal == head.record().ordinal);
        Ok(())
    };
    thread.store().backend().items(head.point(), "messages", annals::store::ItemRange::All, count).unwrap();
    assert_eq!(written, 1);
}

#[apply(each_backend)]
fn errors_say_what_is_now_true() {
    let two = |_: &Chat| -> NodeResult<ChatUpdate> { Ok(Chat::update().n(1)) };
    let graph =
        StateGraph::<Chat>::new().node("a", two).node("b", two).edge(START, "a").edge(START, "b").compile().unwrap();
    let thread = thread();
    let error = graph.invoke(&thread, Chat::update().topic("t".to_string())).unwrap_err();
    assert_eq!(error.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
    let live = graph.get_state(&thread).unwrap_err();
    assert_eq!(live.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"), "live shows what the run would do");
    let head = thread.head().unwrap().unwrap();
    assert_eq!(graph.get_state(&head).unwrap().values.topic.as_deref(), Some("t"), "the record stays readable");
    let again = graph.invoke(&thread, Input::Continue).unwrap_err();
    assert_eq!(again.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"), "what the nodes wrote is kept");
    let fresh = thread.store().thread("fresh").unwrap();
    assert!(matches!(graph.invoke(&fresh, Input::Continue).unwrap_err().as_run(), Some(RunError::EmptyInput)));
    let panics = StateGraph::<Chat>::new()
        .node("p", |_: &Chat| -> NodeResult<()> { panic!("oh") })
        .edge(START, "p")
        .compile()
        .unwrap();
    let error = panics.invoke(&thread.store().thread("p").unwrap(), Chat::update()).unwrap_err();
    assert!(error.is_user() && error.to_string().contains("oh"), "{error}");
}

#[apply(each_backend)]
fn a_lost_race_is_a_conflict() {
    let thread = thread();
    let (inner_store, raced) = (thread.store().clone(), Arc::new(AtomicUsize::new(0)));
    let plain = StateGraph::<Chat>::new().node("x", |_: &Chat| Ok(log("fast"))).edge(START, "x").compile().unwrap();
    let fast = plain.clone();
    let slow = StateGraph::<Chat>::new()
        .node("x", move |_: &Chat| {
            if raced.fetch_add(1, Ordering::Relaxed) == 0 {
                fast.invoke(&inner_store.thread("t").unwrap(), Chat::update().n(2))?;
            }
            Ok(log("slow"))
        })
        .edge(START, "x")
        .compile()
        .unwrap();
    // Sync, so that the fast run finds the input of the slow one.
    let error = slow.run(&thread).durability(Durability::Sync).invoke(Chat::update().n(1)).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!(plain.get_state(&thread).unwrap().values.log, ["fast"], "nothing of the loser's superstep is stored");
}

#[apply(each_backend)]
fn streams_show_values_and_updates() {
    let graph = StateGraph::<Chat>::new()
        .node("x", |_: &Chat| Ok(log("x")))
        .node("y", |_: &Chat| Ok(log("y")))
        .edge(START, "x")
        .edge("x", "y")
        .compile()
        .unwrap();
    let parts = graph.stream(&thread(), Chat::update().n(1), &[StreamMode::Values, StreamMode::Updates]).unwrap();
    let seen: Vec<String> = parts
        .map(|part| match part.unwrap().data {
            StreamData::Values(state) => format!("values {} {}", state.n, state.log.join("")),
            StreamData::Updates(update) => {
                format!("{} {}", update.node, update.writes.to_update().unwrap().to_json())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, ["values 1 ", "x {\"log\":[\"x\"]}", "values 1 x", "y {\"log\":[\"y\"]}", "values 1 xy"]);
}

#[apply(each_backend)]
fn commands_go_where_they_say() {
    let graph = StateGraph::<Chat>::new()
        .node("a", |_: &Chat| Ok(Command::update(log("a")).and_goto("c")))
        .node("b", |_: &Chat| Ok(log("b")))
        .node("c", |_: &Chat| Ok(log("c")))
        .edge(START, "a")
        .compile()
        .unwrap();
    let thread = thread();
    assert_eq!(graph.invoke(&thread, Chat::update().n(1)).unwrap().state().log, ["a", "c"]);
    let jumped = graph.invoke(&thread, Command::goto("b")).unwrap();
    assert_eq!(jumped.state().log, ["a", "c", "b"]);
}

#[apply(each_backend)]
fn an_answer_by_id_is_kept_for_the_next_question() {
    let graph = StateGraph::<Chat>::new()
        .node("ask", |_: &Chat, ctx: &Context| {
            let answers = [ctx.interrupt("first?")?, ctx.interrupt("second?")?];
            Ok(Chat::update().log(answers.iter().filter_map(|a| a.as_str().map(str::to_owned)).collect::<Vec<_>>()))
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = thread();
    let by_id = |outcome: &Outcome<Chat>, answer: &str| -> Value {
        let id = outcome.interrupts()[0].id.clone();
        Value::Map([(id, Value::from(answer))].into_iter().collect())
    };
    let first = graph.invoke(&thread, Chat::update()).unwrap();
    let second = graph.invoke(&thread, Command::resume(by_id(&first, "a"))).unwrap();
    assert_eq!(second.interrupts()[0].value, Value::from("second?"));
    assert_ne!(second.interrupts()[0].id, first.interrupts()[0].id);
    let done = graph.invoke(&thread, Command::resume(by_id(&second, "b"))).unwrap();
    assert_eq!(done.state().log, ["a", "b"]);
}

#[apply(each_backend)]
fn an_interrupted_superstep_shows_what_has_ended() {
    let graph = StateGraph::<Chat>::new()
        .node("ask", |_: &Chat, ctx: &Context| {
            ctx.interrupt("go on?")?;
            Ok(log("ask"))
        })
        .node("done", |_: &Chat| Ok(log("done")))
        .edge(START, "ask")
        .edge(START, "done")
        .compile()
        .unwrap();
    let thread = thread();
    let waiting = graph.invoke(&thread, Chat::update()).unwrap();
    assert_eq!(waiting.state().log, ["done"]);
    let live = graph.get_state(&thread).unwrap();
    assert_eq!((live.values.log.as_slice(), live.next.as_slice()), (&["done".into()][..], &["ask".to_string()][..]));
    let head = thread.head().unwrap().unwrap();
    let record = graph.get_state(&head).unwrap();
    assert!(record.values.log.is_empty(), "the record is the start of the superstep");
    assert_eq!(record.next, ["ask", "done"]);
    assert_eq!(graph.invoke(&thread, Command::resume("yes")).unwrap().state().log, ["ask", "done"]);
}

#[derive(State, Clone, Default)]
struct Passing {
    #[channel(untracked)]
    secret: Option<String>,
    #[channel(last)]
    n: i64,
}

#[apply(each_backend)]
fn an_untracked_value_lasts_for_one_run() {
    let graph = StateGraph::<Passing>::new()
        .node("x", |s: &Passing| Ok(Passing::update().n(i64::from(s.secret.is_some()))))
        .edge(START, "x")
        .compile()
        .unwrap();
    let thread = thread();
    assert_eq!(graph.invoke(&thread, Passing::update().secret("s".to_string())).unwrap().state().n, 1);
    assert_eq!(graph.get_state(&thread).unwrap().values.secret, None);
    assert_eq!(graph.invoke(&thread, Passing::update().n(5)).unwrap().state().n, 0);
}

#[apply(each_backend)]
fn a_head_kept_in_memory_is_only_for_the_graph_that_decoded_it() {
    let thread = thread();
    // Graphs come and go, so that one may lie where another was.
    for turn in 1..=20_i64 {
        if turn % 2 == 1 {
            let graph =
                StateGraph::<Chat>::new().node("x", |_: &Chat| Ok(log("x"))).edge(START, "x").compile().unwrap();
            assert_eq!(graph.invoke(&thread, Chat::update().n(turn)).unwrap().state().n, turn);
        } else {
            let graph =
                StateGraph::<Passing>::new().node("x", |_: &Passing| Ok(())).edge(START, "x").compile().unwrap();
            assert_eq!(graph.invoke(&thread, Passing::update().n(turn)).unwrap().state().n, turn);
        }
    }
}

#[test]
fn the_nodes_of_a_superstep_without_a_store_all_run_at_once() {
    // Each waits for all others, so that one thread too few would wait for ever.
    const NODES: i64 = 8;
    let barrier = Arc::new(Barrier::new(NODES as usize));
    let (quick, started) = (Arc::clone(&barrier), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&started);
    let graph = StateGraph::<Chat>::new()
        .branch(START, |_: &Chat| {
            let send = |n| SendTo::new(if n % 2 == 0 { "quick" } else { "waits" }, n);
            (0..NODES * 2).map(send).collect::<Vec<_>>()
        })
        .node("quick", Own(move |_: i64| Ok(_ = count.fetch_add(1, Ordering::Relaxed))))
        .node("waits", Own(move |_: i64| Ok(_ = quick.wait())))
        .compile()
        .unwrap();
    graph.invoke((), Chat::update().n(1)).unwrap();
    assert_eq!(started.load(Ordering::Relaxed), NODES as usize);
}
