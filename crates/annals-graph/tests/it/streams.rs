//! Tests streams: their parts, the order of the parts, and runs whose stream is read slowly or dropped before its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals::message::ToolCall;
use annals::message::{ToolCallChunk, Usage, message_chunk_to_message};
use annals::state::StateView;
use annals_graph::Durability;
use annals_graph::graph::Own;
use annals_graph::prelude::*;
use annals_graph::{DebugPayload, StreamPart};
use macro_rules_attribute::apply;

use crate::backends::place;

const ALL: [StreamMode; 6] = [
    StreamMode::Values,
    StreamMode::Updates,
    StreamMode::Custom,
    StreamMode::Messages,
    StreamMode::Checkpoints,
    StreamMode::Tasks,
];

#[derive(State, Clone, Default, Debug)]
struct Work {
    #[channel(last)]
    n: i64,
    #[channel(append)]
    log: List<String>,
    #[channel(messages)]
    messages: Messages,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn log(text: &str) -> WorkUpdate {
    Work::update().log([text.to_string()])
}

fn json(view: &StateView) -> serde_json::Value {
    Value::Map(view.to_map().unwrap()).to_json()
}

fn kind(message: &Message) -> &'static str {
    message.chunk.as_ref().map_or("Whole", |chunk| if chunk.last { "Last" } else { "Chunk" })
}

/// A part in a few words.
fn short<S>(part: &StreamPart<S>) -> String {
    let place = part.namespace.segments().map(|segment| format!("{}/", segment.split(':').next().unwrap())).collect();
    let place: String = place;
    let what = match &part.data {
        StreamData::Values(values) => format!("values {} {}", json(&values.view), values.interrupts.len()),
        StreamData::ChildValues(values) => format!("values {}", json(&values.view)),
        StreamData::Updates(update) => {
            let cached = if update.cached { " cached" } else { "" };
            format!("{} {}{cached}", update.node, update.writes.to_update().unwrap().to_json())
        }
        StreamData::Interrupts(open) => format!("asks {}", open.len()),
        StreamData::Custom(value) => format!("custom {}", value.to_json()),
        StreamData::Message(part) => {
            format!("{} {:?} of {}", kind(&part.message), part.message.text(), part.task.node())
        }
        StreamData::Checkpoint(part) => format!("checkpoint {} of {} tasks", part.step, part.tasks.len()),
        StreamData::TaskStart(start) => format!("{} starts", start.task.node()),
        StreamData::TaskEnd(end) => format!("{} ends {:?} {}", end.task.node(), end.error, end.interrupts.len()),
        other => format!("{}", matches!(other, StreamData::Debug(_))),
    };
    place + &what
}

fn shorts<S: Clone + Send + Sync + 'static>(stream: annals_graph::Stream<'_, S>) -> Vec<String> {
    stream.map(|part| part.map_or_else(|error| format!("error {error}"), |part| short(&part))).collect()
}

#[apply(each_backend)]
fn all_modes_come_in_the_order_in_which_things_happen() {
    let inner = StateGraph::<Work>::new()
        .node("speak", |_: &Work, context: &Context| {
            context.emit("inside");
            let mut answer = context.message_stream().with_id("m").with_tags(["calm"]);
            answer.push("Hel");
            answer.push_last("lo");
            Ok(Work::update().messages([answer.finish(), Message::ai("more").with_id("n")]))
        })
        .edge(START, "speak")
        .compile()
        .unwrap();
    let graph = StateGraph::<Work>::new()
        .node("inner", inner)
        .node("count", |s: &Work| Ok(Work::update().n(s.n + 1)))
        .edge(START, "inner")
        .edge("inner", "count")
        .compile()
        .unwrap();
    let thread = thread();
    let seen = shorts(graph.run(&thread).subgraphs(true).stream(Work::update().n(1), &ALL).unwrap());
    let start: Vec<&str> = seen.iter().take(20).map(|part| part.split(" {").next().unwrap()).collect();
    let wanted = [
        "checkpoint -1 of 1 tasks",
        "values",
        "checkpoint 0 of 1 tasks",
        "inner starts",
        "inner/checkpoint -1 of 1 tasks",
        "inner/values",
        "inner/checkpoint 0 of 1 tasks",
        "inner/speak starts",
        "inner/custom \"inside\"",
        "inner/Chunk \"Hel\" of speak",
        "inner/Last \"lo\" of speak",
        "inner/Whole \"more\" of speak",
        "inner/speak",
        "inner/speak ends None 0",
        "inner/values",
        "inner/checkpoint 1 of 0 tasks",
        "inner",
        "inner ends None 0",
        "values",
        "checkpoint 1 of 1 tasks",
    ];
    assert_eq!(start, wanted);
    let rest = &seen[20..];
    assert_eq!(rest[..3], ["count starts", "count {\"n\":2}", "count ends None 0"]);
    assert_eq!(seen.len(), 25, "{seen:?}");
    // Without those inside, its messages are those of the node, and nothing is shown twice.
    let seen = shorts(graph.stream((), Work::update().n(1), &[StreamMode::Custom, StreamMode::Messages]).unwrap());
    assert_eq!(seen, ["Whole \"Hello\" of inner", "Whole \"more\" of inner"]);
}

#[apply(each_backend)]
fn parts_have_the_form_of_the_reference() {
    let graph = StateGraph::<Work>::new()
        .node("twice", |_: &Work| Ok(vec![log("a"), log("b")]))
        .edge(START, "twice")
        .compile()
        .unwrap();
    let modes =
        [StreamMode::Values, StreamMode::Updates, StreamMode::Tasks, StreamMode::Debug, StreamMode::Checkpoints];
    let thread = thread();
    let run = graph.run(&thread).output_keys(["log"]);
    let parts: Vec<_> = run.stream(Work::update().n(1), &modes).unwrap().map(Result::unwrap).collect();
    let shown: Vec<_> = parts.iter().map(|part| part.to_value().unwrap().to_json()).collect();
    let of = |kind: &str| shown.iter().filter(|part| part["type"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(of("values").len(), 1, "a superstep that changes no output shows none");
    assert_eq!(
        of("values")[0],
        serde_json::json!({"type": "values", "ns": [], "data": {"log": ["a", "b"]}, "interrupts": []})
    );
    assert_eq!(of("updates")[0]["data"], serde_json::json!({"twice": [{"log": ["a"]}, {"log": ["b"]}]}));
    let (start, end) = (&of("tasks")[0]["data"], &of("tasks")[1]["data"]);
    assert_eq!(start["input"], serde_json::json!({"n": 1, "log": [], "messages": []}));
    assert_eq!((&start["id"], &start["triggers"]), (&end["id"], &serde_json::json!(["branch:to:twice"])));
    assert_eq!(end["result"], serde_json::json!({"log": {"$writes": [["a"], ["b"]]}}));
    let checkpoints = of("checkpoints");
    assert_eq!(checkpoints.len(), 3);
    let head = thread.head().unwrap().unwrap();
    assert_eq!(checkpoints[2]["data"]["config"]["configurable"]["checkpoint_id"], head.id().to_string());
    assert_eq!(checkpoints[2]["data"]["parent_config"], checkpoints[1]["data"]["config"]);
    assert_eq!(checkpoints[1]["data"]["next"], serde_json::json!(["twice"]));
    let kinds: Vec<_> = of("debug").iter().map(|part| part["data"]["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["checkpoint", "checkpoint", "task", "task_result", "checkpoint"]);
    let is_start = |part: &StreamPart<Work>| match &part.data {
        StreamData::Debug(part) => matches!(part.payload, DebugPayload::TaskStart(_)),
        _ => false,
    };
    assert!(parts.iter().any(is_start));
    let bad = graph.run(()).output_keys(["nope"]).stream(Work::update(), &modes).unwrap_err();
    assert!(bad.to_string().contains("nope"));
}

#[apply(each_backend)]
fn questions_are_shown_with_the_state_and_what_has_ended_is_shown_last() {
    let graph = StateGraph::<Work>::new()
        .node("ask", |_: &Work, context: &Context| {
            let answer = context.interrupt("sure?")?;
            Ok(log(answer.as_str().unwrap_or("?")))
        })
        .node("do", |_: &Work| Ok(log("done")))
        .edge(START, "ask")
        .edge(START, "do")
        .compile()
        .unwrap();
    let modes = [StreamMode::Values, StreamMode::Updates, StreamMode::Tasks];
    let thread = thread();
    let run = || graph.run(&thread).concurrency_max(1).output_keys(["log"]);
    let seen = shorts(run().stream(log("in"), &modes).unwrap());
    let wanted = [
        "values {\"log\":[\"in\"]} 0",
        "ask starts",
        "do starts",
        "asks 1",
        "values {\"log\":[\"in\"]} 1",
        "ask ends None 1",
        "do {\"log\":[\"done\"]}",
        "do ends None 0",
        "values {\"log\":[\"in\",\"done\"]} 0",
    ];
    assert_eq!(seen, wanted);
    let seen = shorts(run().stream(Command::resume("yes"), &modes).unwrap());
    let wanted = [
        "values {\"log\":[\"in\"]} 0",
        "ask starts",
        "do starts",
        "do {\"log\":[\"done\"]} cached",
        "ask {\"log\":[\"yes\"]}",
        "ask ends None 0",
        "values {\"log\":[\"in\",\"yes\",\"done\"]} 0",
    ];
    assert_eq!(seen, wanted);
    let output = run().output(log("again")).unwrap();
    assert_eq!(output.interrupts.len(), 1);
    assert_eq!(output.values.unwrap().get("log").unwrap().as_list().unwrap().len(), 5);
    let nothing = StateGraph::<Work>::new().node("idle", |_: &Work| Ok(())).edge(START, "idle").compile().unwrap();
    assert!(nothing.run(()).output(Work::update()).unwrap().values.is_none());
}

#[apply(each_backend)]
fn what_was_shown_comes_before_the_error() {
    let graph = StateGraph::<Work>::new()
        .node("good", |_: &Work| Ok(log("good")))
        .node("bad", |_: &Work, context: &Context| {
            context.emit("before");
            context.message_stream().with_id("m").push("half");
            if true { Err("broken".into()) } else { Ok(()) }
        })
        .edge(START, "good")
        .edge("good", "bad")
        .compile()
        .unwrap();
    let modes = [StreamMode::Updates, StreamMode::Tasks, StreamMode::Custom, StreamMode::Messages];
    let thread = thread();
    let seen = shorts(graph.stream(&thread, Work::update(), &modes).unwrap());
    let wanted = [
        "good starts",
        "good {\"log\":[\"good\"]}",
        "good ends None 0",
        "bad starts",
        "custom \"before\"",
        "Chunk \"half\" of bad",
    ];
    assert_eq!(seen[..6], wanted);
    assert!(seen[6].starts_with("bad ends Some(") && seen[7].starts_with("error "), "{seen:?}");
    assert_eq!(seen.len(), 8);
}

#[apply(each_backend)]
fn a_slow_reader_makes_who_shows_wait_and_who_leaves_lets_go() {
    let shown = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&shown);
    let graph = StateGraph::<Work>::new()
        .node("first", |_: &Work| Ok(log("first")))
        .node("talks", move |_: &Work, context: &Context| {
            let mut answer = context.message_stream();
            for n in 0..5_000 {
                answer.push("x");
                context.emit(n);
                counter.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Work::update().messages([answer.finish()]))
        })
        .edge(START, "first")
        .edge("first", "talks")
        .compile()
        .unwrap();
    let thread = thread();
    let modes = [StreamMode::Custom, StreamMode::Messages];
    let mut stream = graph.run(&thread).durability(Durability::Sync).stream(Work::update(), &modes).unwrap();
    for read in 1..=600 {
        stream.next().unwrap().unwrap();
        assert!(shown.load(Ordering::SeqCst) <= read + 300, "the queue is bounded");
    }
    drop(stream);
    // The node that waited for the reader goes on, and the thread can be continued from its head.
    let next = || thread.head().unwrap().map(|head| head.next().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(next(), Some(vec!["talks".to_string()]));
    let mut texts = 0;
    for part in graph.stream(&thread, Input::Continue, &modes).unwrap() {
        texts += usize::from(matches!(part.unwrap().data, StreamData::Message(_)));
    }
    assert_eq!(texts, 5_001, "an empty last piece ends the message");
    assert_eq!(graph.get_state(&thread).unwrap().values.messages.len(), 1);
}

#[apply(each_backend)]
fn a_superstep_is_committed_before_it_is_shown() {
    let graph = StateGraph::<Work>::new()
        .node("a", |_: &Work| Ok(log("a")))
        .node("b", |_: &Work| Ok(log("b")))
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    let thread = thread();
    let mut stream =
        graph.run(&thread).durability(Durability::Sync).stream(Work::update(), &[StreamMode::Updates]).unwrap();
    assert_eq!(short(&stream.next().unwrap().unwrap()), "a {\"log\":[\"a\"]}");
    drop(stream);
    assert_eq!(thread.head().unwrap().unwrap().next().collect::<Vec<_>>(), ["b"]);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().log.to_vec(), ["a", "b"]);
}

#[test]
fn messages_are_shown_once_and_not_if_they_were_read() {
    let graph = StateGraph::<Work>::new()
        .node("say", |_: &Work, context: &Context| {
            let silent = context.message_stream().with_tags(["nostream"]);
            let shown = context.emit_message(Message::ai("whole"));
            Ok(Work::update().messages([Message::human("changed").with_id("h"), silent.finish(), shown]))
        })
        .node("again", Own(|text: String| Ok(Work::update().messages([Message::ai(text).with_id("a")]))))
        .edge(START, "say")
        .branch("say", |_: &Work| ["x", "y"].map(|text| SendTo::new("again", text)).to_vec())
        .compile()
        .unwrap();
    let input = Work::update().messages([Message::human("hi").with_id("h")]);
    let mut ids = Vec::new();
    let mut pieces = Vec::new();
    for part in graph.run(()).concurrency_max(1).stream(input, &[StreamMode::Messages]).unwrap() {
        let StreamData::Message(part) = part.unwrap().data else { panic!("only messages are shown") };
        pieces.push((kind(&part.message), part.message.text().into_owned(), part.is_live));
        ids.push(part.message.id.clone());
        assert_eq!(part.metadata()["langgraph_node"].as_str(), Some(part.task.node()));
        assert!(part.metadata().contains_key("checkpoint_ns") == part.is_live);
    }
    let whole = |text: &str, is_live| ("Whole", text.to_string(), is_live);
    assert_eq!(pieces, [whole("whole", true), whole("", false), whole("x", false)]);
    assert!(ids.iter().all(Option::is_some));
}

#[apply(each_backend)]
fn pieces_are_messages_that_add_up_to_what_the_node_returns() {
    let piece = |args: &str| ToolCallChunk::new(0, args);
    let graph = StateGraph::<Work>::new()
        .node("say", move |_: &Work, context: &Context| {
            let mut answer = context.message_stream();
            answer.push("Let me ");
            answer.push("look.");
            answer.push_tool_call_chunk(piece("").with_name("find").with_id("c"));
            answer.push_tool_call_chunk(piece("{\"a\": "));
            answer.push_tool_call_chunk(piece("1}"));
            answer.push_chunk(Message::ai("").with_tool_call(ToolCall::new("other", [("b", 2)])))?;
            answer.push_chunk(Message::ai("").with_usage(Usage::new(7, 0)))?;
            assert!(answer.push_chunk(Message::human("not the model's")).is_err());
            let mut last = Message::ai_chunk("").with_usage(Usage::new(0, 5)).with_id("of the provider");
            last.response_metadata.insert("model_name".into(), "m".into());
            answer.push_chunk(last)?;
            Ok(Work::update().messages([answer.finish(), Message::ai("").with_id("of the provider")]))
        })
        .edge(START, "say")
        .compile()
        .unwrap();
    let thread = thread();
    let mut parts: Vec<Message> = Vec::new();
    for part in graph.stream(&thread, Work::update(), &[StreamMode::Messages]).unwrap() {
        let StreamData::Message(part) = part.unwrap().data else { panic!("only messages are shown") };
        parts.push(part.message);
    }
    let other = parts.pop().unwrap();
    assert_eq!((kind(&other), other.id.as_deref()), ("Whole", Some("of the provider")));
    assert_eq!(parts.len(), 9, "an empty last piece ends the message, and it is not shown again");
    assert!(parts.iter().all(|part| part.is_chunk() && part.id == parts[0].id));
    assert_eq!(parts[3].tool_calls(), [ToolCall::new("", [] as [(&str, i64); 0])], "as far as the piece goes");
    let sum = parts.into_iter().reduce(|sum, part| sum.plus(part).unwrap()).unwrap();
    assert!(sum.chunk.as_ref().is_some_and(|chunk| chunk.last));
    let whole = message_chunk_to_message(sum);
    let calls = [ToolCall::new("find", [("a", 1)]).with_id("c"), ToolCall::new("other", [("b", 2)])];
    assert_eq!((whole.text().as_ref(), whole.tool_calls()), ("Let me look.", calls.as_slice()));
    let stored = graph.get_state(&thread).unwrap().values;
    assert_eq!(stored.messages[0], whole);
    assert_eq!(whole.to_map()["usage_metadata"].get("total_tokens").and_then(Value::as_int), Some(12));
}

#[apply(each_backend)]
fn a_pushed_message_is_shown_each_time_it_is_pushed() {
    let graph = StateGraph::<Work>::new()
        .node("say", |_: &Work, context: &Context| {
            for text in ["draft", "final"] {
                context.push_message(Message::ai(text).with_id("1"))?;
            }
            let emitted = context.emit_message(Message::ai("final").with_id("1"));
            Ok(Work::update().messages([emitted]))
        })
        .edge(START, "say")
        .compile()
        .unwrap();
    let seen = shorts(graph.stream(&thread(), Work::update(), &[StreamMode::Messages]).unwrap());
    assert_eq!(seen, ["Whole \"draft\" of say", "Whole \"final\" of say"]);
}

#[test]
fn a_graph_can_be_watched_by_the_node_that_calls_it() {
    let inner = Arc::new(
        StateGraph::<Work>::new()
            .node("work", |s: &Work| Ok(Work::update().n(s.n * 2)))
            .edge(START, "work")
            .compile()
            .unwrap(),
    );
    let graph = StateGraph::<Work>::new()
        .node("calls", move |s: &Work, context: &Context| {
            let mut seen = Vec::new();
            for part in inner.stream(context, Work::update().n(s.n), &[StreamMode::Values])? {
                if let StreamData::Values(values) = part?.data {
                    seen.push(values.n.to_string());
                }
            }
            Ok(log(&seen.join(" ")))
        })
        .edge(START, "calls")
        .compile()
        .unwrap();
    let modes = [StreamMode::Updates];
    let seen = shorts(graph.run(()).subgraphs(true).stream(Work::update().n(4), &modes).unwrap());
    assert_eq!(seen, ["calls/work {\"n\":8}", "calls {\"log\":[\"4 8\"]}"]);
}
