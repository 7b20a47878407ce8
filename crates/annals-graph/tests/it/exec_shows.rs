//! The parts of streams at their borders: which fields, messages and results are shown, and which are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annals_graph::graph::{Entrypoint, Final, Own};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{DebugPayload, StreamPart};
use macro_rules_attribute::apply;

use crate::backends::{GUARD, new_thread, same_after_reload};

fn longest(old: String, new: String) -> String {
    if new.len() > old.len() { new } else { old }
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Work {
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    n: i64,
    #[channel(untracked)]
    secret: Option<String>,
    #[channel(messages)]
    messages: Messages,
    #[channel(reduce = longest, starts_empty)]
    long: String,
    #[channel(remaining_steps)]
    left: i64,
}

fn log(text: impl Into<String>) -> WorkUpdate {
    Work::update().log([text.into()])
}

fn says(id: &str) -> WorkUpdate {
    Work::update().messages([Message::ai(id).with_id(id)])
}

fn ask(_: &Work, context: &Context) -> NodeResult<WorkUpdate> {
    Ok(log(context.interrupt("?")?.as_str().unwrap_or_default()))
}

fn short<S>(part: StreamPart<S>) -> String {
    match part.data {
        StreamData::Values(values) => format!("values {}", values.view.to_value().unwrap().to_json()),
        StreamData::Updates(update) => {
            let writes = update.writes.to_update().unwrap().to_json();
            format!("{} {writes}{}", update.node, if update.cached { " cached" } else { "" })
        }
        StreamData::Interrupts(open) => format!("asks {}", open.len()),
        StreamData::Message(part) => format!("{} says {}", part.task.node(), part.message.text()),
        StreamData::TaskStart(start) => format!("{} starts {}", start.task.node(), start.input().unwrap().to_json()),
        StreamData::TaskEnd(end) => format!("{} ends {:?}", end.task.node(), end.error),
        StreamData::Checkpoint(part) => {
            format!("checkpoint {} {}", part.step, Value::Map(part.metadata()).to_json())
        }
        StreamData::Debug(line) => match line.payload {
            DebugPayload::Checkpoint(part) => format!("debug {} checkpoint {}", line.step, part.step),
            DebugPayload::TaskStart(start) => format!("debug {} {} starts", line.step, start.task.node()),
            DebugPayload::TaskEnd(end) => format!("debug {} {} ends", line.step, end.task.node()),
            _ => "other".into(),
        },
        _ => "other".into(),
    }
}

fn shown<S: Clone + Send + Sync + 'static>(
    run: annals_graph::Run<'_, S>,
    input: Input,
    modes: &[StreamMode],
) -> Vec<String> {
    run.stream(input, modes)
        .unwrap()
        .map(|part| part.map_or_else(|error| format!("error {}", error.code().unwrap_or("-")), short))
        .collect()
}

fn input(update: WorkUpdate) -> Input {
    annals_graph::IntoInput::<Work, _>::into_input(update)
}

fn resume() -> Input {
    Input::Command(Command::resume("yes"))
}

#[test]
fn channels_that_hold_nothing_are_not_shown() {
    let graph = StateGraph::with_schema(DynSchema::new().last("a").last("b").last("c").build())
        .node("node", |_: &annals::state::DynState| Ok(DynUpdate::new().set("b", 2)))
        .node("ask", |_: &annals::state::DynState, context: &Context| {
            context.interrupt("?")?;
            Ok(DynUpdate::new())
        })
        .edge(START, "node")
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = new_thread_in_memory();
    let start = || annals_graph::IntoInput::<annals::state::DynState, _>::into_input(DynUpdate::new().set("a", 1));
    let values = shown(graph.run(&thread), start(), &[StreamMode::Values]);
    assert_eq!(values[0], "values {\"a\":1}");
    assert_eq!(values.last().unwrap(), "values {\"a\":1,\"b\":2}");
    for reloaded in [false, true] {
        if reloaded {
            thread.store().clear_head_cache();
        }
        let state = graph.get_state(&thread).unwrap();
        assert_eq!(Value::Map(state.values.to_map()).to_json(), serde_json::json!({"a": 1, "b": 2}));
    }
}

fn new_thread_in_memory() -> Thread {
    Store::memory().thread("t").unwrap()
}

#[test]
fn a_task_starts_with_the_channels_that_its_node_reads() {
    let idle = |_: &Work| Ok(());
    let graph = StateGraph::<Work>::new()
        .node_with("some", idle, NodeOptions::new().input(["n"]))
        .node("all", idle)
        .edge(START, "some")
        .edge("some", "all")
        .compile()
        .unwrap();
    let parts = shown(graph.run(()).recursion_limit(9), input(Work::update().n(1)), &[StreamMode::Tasks]);
    assert_eq!(parts[0], "some starts {\"n\":1}");
    let all: serde_json::Value = serde_json::from_str(parts[2].strip_prefix("all starts ").unwrap()).unwrap();
    let names: Vec<&str> = all.as_object().unwrap().keys().map(|name| &**name).collect();
    assert_eq!(names, ["log", "n", "messages", "left"]);
    assert_eq!(all["left"], 7);
    assert_eq!(parts[1], "some ends None");
    // Without a managed channel the state is shown as it is.
    let plain = StateGraph::with_schema(DynSchema::new().last("a").last("b").last("c").build())
        .node_with("some", |_: &annals::state::DynState| Ok(DynUpdate::new()), NodeOptions::new().input(["b", "c"]))
        .edge(START, "some")
        .compile()
        .unwrap();
    let start =
        annals_graph::IntoInput::<annals::state::DynState, _>::into_input(DynUpdate::new().set("a", 1).set("b", 2));
    assert_eq!(shown(plain.run(()), start, &[StreamMode::Tasks])[0], "some starts {\"b\":2}");
}

#[test]
fn a_line_of_the_debug_mode_has_the_number_of_its_superstep() {
    let graph = StateGraph::<Work>::new().node("node", |_: &Work| Ok(log("x"))).edge(START, "node").compile().unwrap();
    let parts = shown(graph.run(&new_thread_in_memory()), input(Work::update()), &[StreamMode::Debug]);
    let wanted = [
        "debug -1 checkpoint -1",
        "debug 0 checkpoint 0",
        "debug 1 node starts",
        "debug 1 node ends",
        "debug 1 checkpoint 1",
    ];
    assert_eq!(parts, wanted);
}

#[apply(each_backend)]
fn a_checkpoint_at_which_a_run_continues_is_shown_with_its_metadata() {
    let graph = StateGraph::<Work>::new()
        .node("ask", ask)
        .node("last", |_: &Work| Ok(log("last")))
        .edge(START, "ask")
        .edge("ask", "last")
        .compile()
        .unwrap();
    for reloaded in [false, true] {
        let thread = new_thread();
        let modes = [StreamMode::Checkpoints];
        let begun = shown(graph.run(&thread).metadata([("who", "a")]), input(Work::update()), &modes);
        assert_eq!(begun, ["checkpoint -1 {}", "checkpoint 0 {}"]);
        if reloaded {
            thread.store().clear_head_cache();
        }
        let rest = shown(graph.run(&thread).metadata([("who", "b")]), resume(), &modes);
        assert_eq!(rest, ["checkpoint 0 {\"who\":\"a\"}", "checkpoint 1 {}", "checkpoint 2 {}"]);
        let stored = thread.head().unwrap().unwrap().record().metadata.clone();
        assert_eq!(stored.as_deref(), Some("{\"who\":\"b\"}"));
    }
}

#[apply(each_backend)]
fn restored_results_are_shown_again_and_their_messages_are_not() {
    let graph = StateGraph::<Work>::new()
        .node("ask", ask)
        .node("idle", |_: &Work| Ok(()))
        .node("say", |_: &Work| Ok(says("m")))
        .edge(START, "ask")
        .edge(START, "idle")
        .edge(START, "say")
        .compile()
        .unwrap();
    let thread = new_thread();
    let modes = [StreamMode::Updates, StreamMode::Messages];
    let mut begun = shown(graph.run(&thread), input(Work::update()), &modes);
    begun.sort();
    assert_eq!(begun.len(), 4, "{begun:?}");
    assert_eq!(begun.iter().filter(|part| *part == "say says m" || *part == "idle null").count(), 2, "{begun:?}");
    let rest = shown(graph.run(&thread), resume(), &modes);
    assert_eq!((rest.len(), &*rest[0], &*rest[2]), (3, "idle null cached", "ask {\"log\":[\"yes\"]}"), "{rest:?}");
    assert!(rest[1].starts_with("say {\"messages\":") && rest[1].ends_with(" cached"), "{rest:?}");
    same_after_reload(&graph, &thread);
}

#[test]
fn a_failed_task_is_shown_with_its_error_and_without_its_messages() {
    let bad = |_: &Work| Ok(says("m"));
    let path = |_: &Work| -> NodeResult<&'static str> { Err("no way".into()) };
    let graph = StateGraph::<Work>::new().node("bad", bad).edge(START, "bad").branch("bad", path).compile().unwrap();
    let parts = shown(graph.run(()), input(Work::update()), &[StreamMode::Messages, StreamMode::Tasks]);
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert_eq!(parts[1], "bad ends Some(\"node \\\"bad\\\" failed: no way\")");
    // A failure that is handled is shown as one.
    let fails = |_: &Work| -> NodeResult<()> { Err("no".into()) };
    let handler = |_: &Work, _: &Context| Ok(says("handled"));
    let graph = StateGraph::<Work>::new()
        .node_with("fails", fails, NodeOptions::new().error_handler(handler))
        .edge(START, "fails")
        .compile()
        .unwrap();
    let tasks = shown(graph.run(()), input(Work::update()), &[StreamMode::Tasks]);
    let ends: Vec<_> = tasks.iter().filter(|part| part.contains(" ends ")).cloned().collect();
    assert_eq!(ends, ["fails ends Some(\"node \\\"fails\\\" failed: no\")", "__error_handler__fails ends None"]);
    // Its handler is shown as if it ran in a subgraph.
    let said = |all: bool| shown(graph.run(()).subgraphs(all), input(Work::update()), &[StreamMode::Messages]);
    assert_eq!(said(true), ["__error_handler__fails says handled"]);
    assert_eq!(said(false), Vec::<String>::new());
}

#[test]
fn a_message_that_a_task_was_given_is_not_shown_as_its_own() {
    let message = |id: &str| Value::Map(Message::ai(id).with_id(id).to_map());
    let flow = Entrypoint::new("flow", |given: Value, _: &Context| {
        let new = Value::Map(Message::ai("new").with_id("new").to_map());
        Ok(Value::List(vec![given, new]))
    });
    let flow = flow.compile().unwrap();
    let start = annals_graph::IntoInput::<annals_graph::graph::Entry<Value, Value>, _>::into_input(message("given"));
    assert_eq!(shown(flow.run(()), start, &[StreamMode::Messages]), ["flow says new"]);
    let graph = StateGraph::<Work>::new()
        .node(
            "take",
            Own(|_: Value, _: &Context| {
                Ok(Work::update().messages([Message::ai("given").with_id("given"), Message::ai("new").with_id("new")]))
            }),
        )
        .branch(START, move |_: &Work| {
            let given = [("messages".to_owned(), Value::List(vec![message("given")]))].into_iter().collect();
            vec![SendTo::new("take", Value::Map(given))]
        })
        .compile()
        .unwrap();
    assert_eq!(shown(graph.run(()), input(Work::update()), &[StreamMode::Messages]), ["take says new"]);
}

#[apply(each_backend)]
fn an_interrupted_run_shows_its_state_last_if_an_output_has_changed() {
    let graph = StateGraph::<Work>::new()
        .node("ask", ask)
        .node("set", |_: &Work| Ok(Work::update().n(5)))
        .edge(START, "ask")
        .edge(START, "set")
        .compile()
        .unwrap();
    let parts = |keys: &[&str]| {
        let thread = new_thread();
        let run = graph.run(&thread).concurrency_max(1).output_keys(keys.to_vec());
        shown(run, input(Work::update().n(1).log(["in".to_owned()])), &[StreamMode::Values])
    };
    assert_eq!(parts(&["log"]), ["values {\"log\":[\"in\"]}", "values {\"log\":[\"in\"]}"]);
    assert_eq!(parts(&["n"]), ["values {\"n\":1}", "values {\"n\":1}", "values {\"n\":5}"]);
}

#[test]
fn a_send_fills_the_state_of_its_node_with_its_members() {
    let graph = StateGraph::<Work>::new()
        .node("take", |work: &Work| Ok(log(format!("{} {}", work.n, work.log.len()))))
        .branch(START, |_: &Work| {
            [3, 4]
                .map(|n| SendTo::new("take", Value::Map([("n".to_owned(), Value::from(n))].into_iter().collect())))
                .to_vec()
        })
        .compile()
        .unwrap();
    let done = graph.invoke((), log("in").n(1)).unwrap();
    assert_eq!(done.state().log.to_vec(), ["in", "3 0", "4 0"]);
}

#[apply(each_backend)]
fn what_lasts_for_one_run_is_stored_neither_with_a_task_nor_with_a_send() {
    let graph = StateGraph::<Work>::new()
        .node("fan", |_: &Work| Ok(Work::update().secret(Some("s".to_owned())).n(2)))
        .node("ask", ask)
        .branch("fan", |_: &Work| {
            let only = [("secret".to_owned(), Value::from("s"))].into_iter().collect();
            vec![SendTo::new("take", Value::Map(only))]
        })
        .node("take", Own(|given: Value, _: &Context| Ok(log(format!("{}", given.get("secret").is_some())))))
        .edge(START, "fan")
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Work::update()).unwrap();
    let head = thread.head().unwrap().unwrap();
    let channels: Vec<_> = head.writes().unwrap().iter().map(|write| write.channel.to_string()).collect();
    assert!(channels.contains(&"n".to_owned()) && !channels.contains(&"secret".to_owned()), "{channels:?}");
    thread.store().clear_head_cache();
    let done = graph.invoke(&thread, resume_command()).unwrap();
    assert_eq!(done.state().log.to_vec(), ["yes", "false"], "the send was read from the store");
}

fn resume_command() -> Command {
    Command::resume("yes")
}

#[test]
fn a_conditional_edge_sees_the_first_write_of_a_reducer_that_starts_empty() {
    let lengths = |old: &'static str| {
        StateGraph::<Work>::new()
            .node("node", |_: &Work| Ok(Work::update().long("")))
            .node("empty", |_: &Work| Ok(log("empty")))
            .node("other", |_: &Work| Ok(log("other")))
            .edge(START, "node")
            .branch("node", |work: &Work| if work.long.is_empty() { "empty" } else { "other" })
            .compile()
            .unwrap()
            .invoke((), Work::update().long(old))
            .unwrap()
            .state()
            .log
            .to_vec()
    };
    assert_eq!((lengths(""), lengths("x")), (vec!["empty".to_owned()], vec!["other".to_owned()]));
}

#[apply(each_backend)]
fn results_of_a_superstep_that_cannot_be_applied_are_stored_and_its_state_is_not() {
    let graph = StateGraph::<Work>::new()
        .node("before", |_: &Work| Ok(log("before")))
        .node("a", |_: &Work| Ok(log("a").n(1)))
        .node("b", |_: &Work| Ok(log("b").n(2)))
        .edge(START, "before")
        .edge("before", "a")
        .edge("before", "b")
        .compile()
        .unwrap();
    for (driver, durability) in crate::line_state::EVERY_WAY {
        let thread = new_thread();
        let run = || graph.run(&thread).durability(durability);
        let error = crate::line_state::run_on(driver, run(), input(Work::update())).unwrap_err();
        assert_eq!(error.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
        let head = thread.head().unwrap().unwrap();
        let mut writes: Vec<_> =
            head.writes().unwrap().iter().map(|write| format!("{} {}", write.channel, write.index)).collect();
        writes.sort();
        assert_eq!(writes, ["log 0", "log 0", "n 1", "n 1"], "{driver} {durability:?}");
        assert_eq!(head.next().collect::<Vec<_>>(), ["a", "b"]);
        let again = crate::line_state::run_on(driver, run(), Input::Continue).unwrap_err();
        assert_eq!(again.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
    }
}

#[apply(each_backend)]
fn the_writes_of_a_handler_that_runs_again_follow_those_of_the_first_time() {
    let bad = |_: &Work| -> NodeResult<()> { Err("no".into()) };
    let handler = |_: &Work, _: &Context| Ok(log("handled").n(1));
    let graph = StateGraph::<Work>::new()
        .node_with("bad", bad, NodeOptions::new().error_handler(handler))
        .node("ask", ask)
        .edge(START, "bad")
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Work::update()).unwrap();
    let asked = thread.head().unwrap().unwrap();
    let of_handler = || {
        let writes = asked.writes().unwrap();
        let own = writes.into_iter().filter(|write| write.path.contains("node_error_handler"));
        let mut own: Vec<_> = own.map(|write| (write.index, write.channel.to_string())).collect();
        own.sort();
        own
    };
    let first = vec![(0, "log".to_owned()), (1, "n".to_owned())];
    assert_eq!(of_handler(), first);
    thread.store().clear_head_cache();
    let done = graph.invoke(&thread, resume_command()).unwrap();
    assert_eq!(done.state().log.to_vec(), ["yes", "handled"]);
    let second = [(2, "log".to_owned()), (3, "n".to_owned())];
    assert_eq!(of_handler(), first.into_iter().chain(second).collect::<Vec<_>>());
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn a_resume_value_waits_for_the_task_that_asks_though_a_subgraph_goes_on_before() {
    let inner = StateGraph::<Work>::new()
        .node("one", |_: &Work| Ok(log("one")))
        .node("two", |_: &Work| Ok(log("two")))
        .node("three", |_: &Work| Ok(log("three")))
        .edge(START, "one")
        .edge("one", "two")
        .edge("two", "three")
        .interrupt_before(["two"])
        .compile()
        .unwrap();
    let graph =
        StateGraph::<Work>::new().node("a", inner).node("b", ask).edge(START, "a").edge(START, "b").compile().unwrap();
    let thread = new_thread();
    let run = || graph.run(&thread).concurrency_max(1);
    assert_eq!(run().invoke(Work::update()).unwrap().interrupts().len(), 1);
    let done = run().invoke(resume_command()).unwrap();
    assert!(done.is_done(), "{done:?}");
    assert_eq!(done.state().log.to_vec(), ["one", "two", "three", "yes"]);
}

#[apply(each_backend)]
fn a_node_starts_after_its_checkpoint_is_stored() {
    for (driver, durability) in crate::line_state::EVERY_WAY {
        if durability != annals_graph::Durability::Sync {
            continue;
        }
        let thread = new_thread();
        let seen = thread.clone();
        let graph = StateGraph::<Work>::new()
            .node("again", move |_: Arc<Work>, context: Context| {
                let head = seen.head().unwrap().map(|head| head.step());
                async move { Ok(log(format!("{}", head == Some(context.step() - 1)))) }
            })
            .edge(START, "again")
            .branch("again", |work: &Work| if work.log.len() < 12 { "again" } else { END })
            .compile()
            .unwrap();
        let run = graph.run(&thread).durability(durability);
        let done = crate::line_state::run_on(driver, run, input(Work::update())).unwrap();
        assert_eq!(done.state().log.to_vec(), ["true"; 12], "{driver}");
    }
}

#[apply(each_backend)]
fn an_answer_that_a_failed_task_did_not_read_is_not_stored_with_it() {
    let node = |_: &Work, context: &Context| match context.value::<&str>() {
        Some(&"early") => Err("early".into()),
        Some(&"late") => {
            context.interrupt("?")?;
            Err("late".into())
        }
        _ => ask(&Work::default(), context),
    };
    let graph = StateGraph::<Work>::new().node("node", node).edge(START, "node").compile().unwrap();
    for (fails, keeps) in [("early", false), ("late", true)] {
        let thread = new_thread();
        let asked = graph.invoke(&thread, Work::update()).unwrap();
        let answer = Value::Map([(asked.interrupts()[0].id.clone(), Value::from("yes"))].into_iter().collect());
        graph.run(&thread).context(fails).invoke(Command::resume(answer)).unwrap_err();
        let writes = thread.head().unwrap().unwrap().writes().unwrap();
        assert_eq!(writes.iter().any(|write| &*write.channel == "__resume__"), keeps, "{fails}");
        thread.store().clear_head_cache();
        let next = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(next.is_done(), keeps, "{fails}");
    }
}

#[test]
fn a_call_of_an_entrypoint_is_shown_before_its_caller_has_ended() {
    let seen = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&seen);
    let twice = Task::new("twice", |n: i64| Ok(n * 2));
    let flow = Entrypoint::new("flow", move |n: i64, context: &Context| {
        let doubled = twice.call(context, n)?;
        let begun = Instant::now();
        while !told.load(Ordering::SeqCst) {
            if begun.elapsed() > GUARD {
                return Err("nobody has seen the call".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(doubled)
    });
    let flow = flow.compile().unwrap();
    for part in flow.run(()).stream(4, &[StreamMode::Tasks]).unwrap() {
        if let StreamData::TaskEnd(end) = part.unwrap().data
            && end.task.node() == "twice"
        {
            seen.store(true, Ordering::SeqCst);
        }
    }
    assert!(seen.load(Ordering::SeqCst));
}

#[apply(each_backend)]
fn a_call_shows_the_message_it_returned_and_stores_its_error_with_its_name() {
    let say = Task::new("say", |id: String| Ok(Message::ai(&*id).with_id(&*id)));
    let bad = Task::new("bad", |_: i64| -> NodeResult<i64> { Err("told so".into()) });
    let flow = Entrypoint::new("flow", move |n: i64, context: &Context| {
        say.call(context, "hello".to_owned())?;
        bad.call(context, n)
    });
    let flow = flow.compile().unwrap();
    let thread = new_thread();
    let start = annals_graph::IntoInput::<annals_graph::graph::Entry<i64, i64>, _>::into_input(1);
    let parts = shown(flow.run(&thread), start, &[StreamMode::Messages]);
    assert_eq!((parts.len(), &*parts[0]), (2, "say says hello"), "{parts:?}");
    let steps: Vec<_> = thread.steps().unwrap().map(Result::unwrap).collect();
    let failed = steps.iter().find(|step| &*step.name == "bad").unwrap();
    assert_eq!(failed.error_text(), "task \"bad\" failed: told so");
}

#[test]
fn an_entrypoint_shows_its_value_and_the_messages_of_its_value() {
    let message = |id: &str| Value::Map(Message::ai(id).with_id(id).to_map());
    let flow = Entrypoint::new("flow", move |_: i64, _: &Context| Ok(Final::new(message("told"), message("kept"))));
    let (flow, thread) = (flow.compile().unwrap(), Store::memory().thread("t").unwrap());
    for _ in 0..2 {
        let parts = flow.run(&thread).stream(1_i64, &[StreamMode::Values, StreamMode::Messages]).unwrap();
        let shown: Vec<String> = parts
            .map(|part| match part.unwrap().data {
                StreamData::Values(values) => values.view.to_value().unwrap().get("id").unwrap().to_string(),
                StreamData::Message(part) => format!("says {}", part.message.text()),
                _ => "other".into(),
            })
            .collect();
        // The second run did not read the end of the first one, so it is shown again.
        assert_eq!(shown.iter().filter(|part| *part == "says told").count(), 1, "{shown:?}");
        assert_eq!((shown.len(), shown.iter().filter(|part| part.contains("kept")).count()), (2, 0), "{shown:?}");
    }
}

#[apply(each_backend)]
fn a_restored_failure_is_shown_with_what_its_task_wrote() {
    let path = |_: &Work| -> NodeResult<&'static str> { Err("no way".into()) };
    let graph = StateGraph::<Work>::new()
        .node_with("bad", |_: &Work| Ok(log("bad")), NodeOptions::new().error_handler(ask))
        .edge(START, "bad")
        .branch("bad", path)
        .compile()
        .unwrap();
    let thread = new_thread();
    graph.invoke(&thread, Work::update()).unwrap();
    let parts = graph.run(&thread).stream(Command::resume("yes"), &[StreamMode::Updates]).unwrap();
    let shown: Vec<_> = parts
        .filter_map(|part| match part.unwrap().data {
            StreamData::Updates(update) => Some((update.node.to_string(), update.cached)),
            _ => None,
        })
        .collect();
    assert_eq!(shown, [("bad".to_owned(), true), ("__error_handler__bad".to_owned(), false)]);
    assert_eq!(graph.get_state(&thread).unwrap().values.log.to_vec(), ["bad", "yes"]);
}

#[apply(each_backend)]
fn the_state_of_a_graph_inside_has_the_channels_that_hold_something() {
    type Update = NodeResult<DynUpdate>;
    let inner = StateGraph::with_schema(DynSchema::new().last("a").last("b").last("c").build())
        .node("set", |_: &annals::state::DynState| -> Update { Ok(DynUpdate::new().set("b", 2)) })
        .node("ask", |_: &annals::state::DynState, context: &Context| -> Update {
            context.interrupt("?")?;
            Ok(DynUpdate::new())
        })
        .edge(START, "set")
        .edge(START, "ask")
        .compile()
        .unwrap();
    let graph = StateGraph::with_schema(DynSchema::new().last("a").build()).node("inner", inner).edge(START, "inner");
    let (graph, thread) = (graph.compile().unwrap(), new_thread());
    graph.invoke(&thread, DynUpdate::new().set("a", 1)).unwrap();
    let shown = graph.state_with_subgraphs(&thread).unwrap();
    let Some(annals_graph::TaskState::Snapshot(inside)) = &shown.tasks[0].state else { panic!("{:?}", shown.tasks) };
    assert_eq!(Value::Map((*inside.values).clone()).to_json(), serde_json::json!({"a": 1, "b": 2}));
}
