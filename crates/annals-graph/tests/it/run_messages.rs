//! Tests the items that a run added to its lists, and its messages as a message history of PydanticAI.

use annals::message::ToolCall;
use annals::state::DynState;
use annals_graph::block_on;
use annals_graph::prelude::*;
use annals_pydantic_ai::{
    DateTime, HistoryError, ModelMessage, ModelRequest, ModelResponse, RequestPart, ResponsePart, RunHistory as _,
    TextPart, UserPromptPart, dump,
};
use macro_rules_attribute::apply;
use proptest::prelude::*;

use crate::backends::place;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    history: List<ModelMessage>,
    #[channel(append)]
    lines: List<String>,
    #[channel(last)]
    n: i64,
}

fn at() -> DateTime {
    annals::base::Timestamp::default().into()
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn say(message: Message) -> ChatUpdate {
    Chat::update().messages([message])
}

/// A node that answers with the number of messages it saw.
fn counting() -> CompiledGraph<Chat> {
    let answer = |chat: &Chat| Ok(say(Message::ai(format!("{} seen", chat.messages.len()))));
    StateGraph::<Chat>::new().node("answer", answer).edge(START, "answer").compile().unwrap()
}

fn texts(outcome: &Outcome<Chat>) -> Vec<String> {
    let new = outcome.new_items::<Message>("messages").unwrap();
    new.iter().map(|message| message.text().into_owned()).collect()
}

/// Returns the texts and tool names of a history, one entry for each message.
fn said(history: &[ModelMessage]) -> Vec<String> {
    let text = |part: &Value| match part.get("content") {
        Some(Value::Str(text)) => text.clone(),
        _ => part.get("tool_name").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    let one = |message: &ModelMessage| {
        let form = Value::from_serialize(message).unwrap();
        let parts = form.get("parts").and_then(Value::as_list).unwrap();
        parts.iter().map(text).collect::<Vec<_>>().join("+")
    };
    history.iter().map(one).collect()
}

#[apply(each_backend)]
fn each_turn_tells_what_it_added_under_both_drivers() {
    let (graph, thread) = (counting(), thread());
    for turn in 0..4 {
        let input = say(Message::human(format!("turn {turn}")));
        let done = match turn % 2 {
            0 => graph.invoke(&thread, input).unwrap(),
            _ => block_on(graph.ainvoke(&thread, input)).unwrap(),
        };
        let answer = format!("{} seen", 2 * turn + 1);
        assert_eq!(texts(&done), [format!("turn {turn}"), answer.clone()]);
        assert_eq!(said(&done.new_messages("messages").unwrap()), [format!("turn {turn}"), answer]);
        let all = done.all_messages("messages").unwrap();
        assert_eq!((all.len(), dump(&all)), (2 * turn + 2, done.all_messages_json("messages").unwrap()));
        assert!(
            done.all_messages_json("messages").unwrap().ends_with(&done.new_messages_json("messages").unwrap()[1..])
        );
        if turn == 1 {
            // The head cache does not change the result.
            thread.store().clear_head_cache();
        }
    }
    let mut stream = graph.stream(&thread, say(Message::human("s")), &[StreamMode::Updates]).unwrap();
    assert_eq!(stream.by_ref().count(), 1);
    assert_eq!(texts(stream.outcome().unwrap()), ["s", "9 seen"]);
    let alone = graph.invoke((), say(Message::human("no store"))).unwrap();
    assert_eq!(said(&alone.new_messages("messages").unwrap()), ["no store", "1 seen"]);
}

#[apply(each_backend)]
fn a_dynamic_graph_tells_the_same() {
    let schema = DynSchema::new().messages("messages").append("forms").last("n").build();
    let graph = StateGraph::with_schema(schema)
        .node("answer", |_: &DynState| Ok(DynUpdate::new().messages("messages", [Message::ai("hello")])))
        .edge(START, "answer")
        .compile()
        .unwrap();
    let thread = thread();
    let form = ModelMessage::from(ModelResponse::new(vec![TextPart::new("kept").into()], at()));
    let input = |text: &str| {
        let forms = Value::from_serialize(&[&form]).unwrap();
        DynUpdate::new().messages("messages", [Message::human(text)]).set("forms", forms)
    };
    graph.invoke(&thread, input("hi")).unwrap();
    let done = graph.invoke(&thread, input("again")).unwrap();
    assert_eq!(said(&done.new_messages("messages").unwrap()), ["again", "hello"]);
    assert_eq!(done.new_messages("forms").unwrap(), std::slice::from_ref(&form));
    assert_eq!(done.all_messages("forms").unwrap(), [form.clone(), form]);
    let error = done.new_messages("n").unwrap_err();
    assert_eq!(error.to_string(), "channel \"n\" does not hold messages");
    let error = done.new_items::<Message>("forms").unwrap_err();
    assert!(error.to_string().starts_with("channel \"forms\" is not a list of "), "{error}");
    let error = done.all_messages("nothing").unwrap_err();
    assert!(error.to_string().contains("no channel \"nothing\""), "{error}");
    let odd = graph.invoke(&thread, DynUpdate::new().set("forms", 5)).unwrap();
    let error = odd.new_messages("forms").unwrap_err();
    assert!(matches!(error, HistoryError::History { .. }));
    assert_eq!(
        error.to_string(),
        "channel \"forms\" does not hold a message history: messages[0]: expected an object whose kind is one of: request response, found 5"
    );
}

#[apply(each_backend)]
fn a_list_of_requests_and_responses_is_told_as_it_is() {
    let respond = |_: &Chat| {
        let said = ResponsePart::from(TextPart::new("hello"));
        Ok(Chat::update().history([ModelMessage::from(ModelResponse::new(vec![said], at()))]))
    };
    let graph = StateGraph::<Chat>::new().node("respond", respond).edge(START, "respond").compile().unwrap();
    let thread = thread();
    let ask = || {
        let prompt = RequestPart::from(UserPromptPart::new("hi", at()));
        Chat::update().history([ModelMessage::from(ModelRequest::new(vec![prompt]))])
    };
    let first = graph.invoke(&thread, ask()).unwrap();
    assert_eq!(said(&first.new_messages("history").unwrap()), ["hi", "hello"]);
    // Equal messages, and yet they are new.
    let second = graph.invoke(&thread, ask()).unwrap();
    assert_eq!(second.new_messages("history").unwrap(), first.new_messages("history").unwrap());
    assert_eq!(second.all_messages("history").unwrap().len(), 4);
    assert_eq!(second.new_items::<String>("lines").unwrap().len(), 0);
}

/// Two tools beside each other, one of which asks.
fn tools() -> CompiledGraph<Chat> {
    let call = |id: &str| ToolCall::new(format!("tool-{id}"), [("x", 1)]).with_id(id);
    StateGraph::<Chat>::new()
        .node("model", move |_: &Chat| Ok(say(Message::ai("").with_tool_call(call("a")).with_tool_call(call("b")))))
        .node("asks", |_: &Chat, ctx: &Context| {
            let answer = ctx.interrupt("may I?")?;
            Ok(say(Message::tool(answer.as_str().unwrap_or_default(), "a")).lines(["asked".to_owned()]))
        })
        .node("runs", |_: &Chat| Ok(say(Message::tool("ran", "b")).lines(["ran".to_owned()])))
        .node("answer", |_: &Chat| Ok(say(Message::ai("done"))))
        .edge(START, "model")
        .edge("model", "asks")
        .edge("model", "runs")
        .join(["asks", "runs"], "answer")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn what_one_run_told_is_not_new_to_the_run_that_goes_on() {
    for answered_by_another_process in [false, true] {
        let (graph, thread) = (tools(), thread());
        let asked = graph.invoke(&thread, say(Message::human("go"))).unwrap();
        assert_eq!(said(&asked.new_messages("messages").unwrap()), ["go", "tool-a+tool-b", "ran"]);
        assert_eq!(asked.new_messages("messages").unwrap(), asked.all_messages("messages").unwrap());
        if answered_by_another_process {
            thread.store().clear_head_cache();
        }
        let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
        // The result that waited stands behind the new one, and is told once.
        assert_eq!(said(&done.all_messages("messages").unwrap()), ["go", "tool-a+tool-b", "yes", "ran", "done"]);
        let new = done.new_messages("messages").unwrap();
        assert_eq!(said(&new), ["yes", "done"]);
        // The tool's name is that of a call which an earlier run made.
        assert!(matches!(&new[0], ModelMessage::Request(request)
            if matches!(&request.parts[..], [RequestPart::ToolReturn(part)] if part.tool_name == "tool-a")));
        let lines = done.new_items::<String>("lines").unwrap();
        assert_eq!(lines.iter().map(|line| line.as_str()).collect::<Vec<_>>(), ["asked"]);
        assert!(thread.store().delete_thread(thread.id()).unwrap().is_erased());
    }
}

#[apply(each_backend)]
fn a_change_that_came_with_an_answer_is_told_once() {
    let ask_twice = |_: &Chat, ctx: &Context| {
        let (first, second) = (ctx.interrupt("1")?, ctx.interrupt("2")?);
        Ok(say(Message::ai(format!("{} {}", first.as_str().unwrap_or("?"), second.as_str().unwrap_or("?")))))
    };
    let graph = StateGraph::<Chat>::new().node("ask", ask_twice).edge(START, "ask").compile().unwrap();
    let thread = thread();
    assert_eq!(texts(&graph.invoke(&thread, say(Message::human("q"))).unwrap()), ["q"]);
    let answer = |text: &str| Command::resume(text).and_update(say(Message::human(format!("note {text}"))));
    assert_eq!(texts(&graph.invoke(&thread, answer("a")).unwrap()), ["note a"]);
    assert_eq!(texts(&graph.invoke(&thread, answer("b")).unwrap()), ["note b", "a b"]);
}

#[apply(each_backend)]
fn messages_that_are_replaced_or_kept_are_not_new() {
    let edit = |chat: &Chat| {
        let kept = chat.messages.last().cloned();
        Ok(Chat::update().messages(match chat.n {
            0 => vec![Message::ai("other words").with_id("2"), Message::ai("more").with_id("3")],
            1 => [Message::remove_all(), Message::ai("summary").with_id("4")].into_iter().chain(kept).collect(),
            _ => vec![Message::remove("4")],
        }))
    };
    let graph = StateGraph::<Chat>::new().node("edit", edit).edge(START, "edit").compile().unwrap();
    let thread = thread();
    let first = [Message::human("1").with_id("1"), Message::ai("2").with_id("2")];
    graph.update_state(&thread, Chat::update().messages(first), Some(START)).unwrap();
    let run = |n: i64| texts(&graph.invoke(&thread, Chat::update().n(n)).unwrap());
    assert_eq!(run(0), ["more"]);
    assert_eq!(run(1), ["summary"]);
    assert_eq!(run(2), [""; 0]);
}

#[apply(each_backend)]
fn items_that_an_overwrite_keeps_are_not_new() {
    let edit = |chat: &Chat| {
        let kept = chat.lines.iter().skip(1).cloned().chain(["new".to_owned()]);
        Ok(Chat::update().overwrite_lines(kept.collect::<Vec<_>>()))
    };
    let graph = StateGraph::<Chat>::new().node("edit", edit).edge(START, "edit").compile().unwrap();
    let input = Chat::update().lines(["a", "b", "b"].map(str::to_owned));
    let thread = thread();
    graph.update_state(&thread, input, Some(START)).unwrap();
    let done = graph.invoke(&thread, Chat::update()).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["b", "b", "new"]);
    assert_eq!(*done.new_items::<String>("lines").unwrap(), [std::sync::Arc::new("new".to_owned())]);
}

#[apply(each_backend)]
fn a_run_on_an_old_checkpoint_tells_what_it_added_to_that() {
    let (graph, thread) = (counting(), thread());
    graph.invoke(&thread, say(Message::human("one"))).unwrap();
    let old = thread.head().unwrap().unwrap();
    graph.invoke(&thread, say(Message::human("two"))).unwrap();
    let done = graph.invoke(&old, say(Message::human("other"))).unwrap();
    assert_eq!(texts(&done), ["other", "3 seen"]);
    let failing = StateGraph::<Chat>::new()
        .node("a", |_: &Chat| Ok(say(Message::ai("a"))))
        .node("b", |chat: &Chat| if chat.n == 0 { Err("not yet".into()) } else { Ok(say(Message::ai("b"))) })
        .edge(START, "a")
        .edge("a", "b")
        .compile()
        .unwrap();
    let thread = thread.store().thread("failing").unwrap();
    failing.invoke(&thread, say(Message::human("q"))).unwrap_err();
    let done = failing.invoke(&thread, Command::update(Chat::update().n(1))).unwrap();
    assert_eq!(texts(&done), ["b"], "what the failed run had stored is not new");
}

#[apply(each_backend)]
fn a_run_that_is_repeated_with_its_key_tells_what_it_added_the_first_time() {
    let (graph, thread) = (counting(), thread());
    graph.invoke(&thread, say(Message::human("before"))).unwrap();
    let keyed = || graph.run(&thread).idempotency_key("k").invoke(say(Message::human("once"))).unwrap();
    let first = keyed();
    assert_eq!(texts(&first), ["once", "3 seen"]);
    thread.store().clear_head_cache();
    assert_eq!(texts(&keyed()), ["once", "3 seen"]);
    graph.invoke(&thread, say(Message::human("after"))).unwrap();
    let again = keyed();
    assert_eq!(texts(&again), ["once", "3 seen"]);
    assert_eq!(said(&again.new_messages("messages").unwrap()), said(&first.new_messages("messages").unwrap()));
    let thread = thread.store().thread("first").unwrap();
    let keyed = || graph.run(&thread).idempotency_key("k").invoke(say(Message::human("once"))).unwrap();
    assert_eq!((texts(&keyed()), texts(&keyed())), (texts(&keyed()), vec!["once".into(), "1 seen".into()]));
}

fn any_message() -> impl Strategy<Value = Message> {
    let call = |id: &str| ToolCall::new("look", [("x", 1)]).with_id(id);
    let id = || prop::sample::select(vec!["c1", "c2", "c3"]);
    prop_oneof![
        "[a-c]".prop_map(Message::human),
        "[a-c]".prop_map(Message::ai),
        id().prop_map(move |id| Message::ai("").with_tool_call(call(id))),
        id().prop_map(|id| Message::tool("found", id)),
        "[a-c]".prop_map(Message::system),
        (prop::sample::select(vec!["m1", "m2"]), "[a-c]").prop_map(|(id, text)| Message::human(text).with_id(id)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_new_is_the_end_of_all(turns in prop::collection::vec(prop::collection::vec(any_message(), 0..4), 1..5)) {
        let (graph, thread) = (counting(), Store::memory().thread("t").unwrap());
        let mut seen = 0;
        for messages in turns {
            let done = graph.invoke(&thread, Chat::update().messages(messages)).unwrap();
            let (all, new) = (done.all_messages("messages").unwrap(), done.new_messages("messages").unwrap());
            prop_assert_eq!(&all[all.len() - new.len()..], &new[..]);
            let count = done.new_items::<Message>("messages").unwrap().len();
            prop_assert_eq!(seen + count, done.state().messages.len());
            seen += count;
        }
    }
}
