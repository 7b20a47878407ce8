//! Channels of messages: what may be written to them, and what nodes push, in memory and in a file.

use annals::message::{Chunk, MessageError, ToolCallChunk};
use annals::state::DynState;
use annals::state::List;
use annals_graph::prelude::*;
use macro_rules_attribute::apply;

use super::backends::place;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Chats {
    #[channel(messages)]
    messages: Messages,
    #[channel(delta_messages)]
    delta: Messages,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn texts(messages: &List<Message>) -> Vec<String> {
    messages.iter().map(|message| message.text().into_owned()).collect()
}

fn piece() -> Message {
    let mut call = ToolCallChunk::default();
    (call.name, call.args) = (Some("f".into()), Some("{\"a\": 1".into()));
    let mut chunk = Chunk::new([call]);
    chunk.last = true;
    let mut piece = Message::ai_chunk("half").with_id("p");
    piece.chunk = Some(Box::new(chunk));
    piece
}

#[apply(each_backend)]
fn a_pushed_message_is_shown_once_and_comes_before_what_is_returned() {
    let graph = StateGraph::<Chats>::new()
        .node("work", |_: &Chats, context: &Context| {
            let note = context.push_message(("assistant", "no id"));
            assert!(matches!(note, Err(MessageError::Refused { .. })));
            let pushed = context.push_message(Message::ai("first").with_id("1"))?;
            context.push_message_to("delta", Message::ai("beside").with_id("2"))?;
            context.push_message_to("", Message::ai("only shown").with_id("3"))?;
            context.push_message_to("nowhere", Message::ai("dropped").with_id("4"))?;
            Ok(Chats::update().messages([Message::ai("second").with_id("5"), pushed]))
        })
        .edge(START, "work")
        .compile()
        .unwrap();
    let thread = thread();
    let mut shown = Vec::new();
    for part in graph.stream(&thread, Chats::update(), &[StreamMode::Messages]).unwrap() {
        let StreamData::Message(part) = part.unwrap().data else { panic!("only messages are shown") };
        shown.push(part.message.text().into_owned());
    }
    assert_eq!(shown, ["first", "beside", "only shown", "dropped", "second"]);
    thread.store().clear_head_cache();
    let state = graph.get_state(&thread).unwrap().values;
    assert_eq!(
        (texts(&state.messages), texts(&state.delta)),
        (vec!["first".into(), "second".into()], vec!["beside".into()])
    );
}

#[apply(each_backend)]
fn a_piece_becomes_whole_where_it_is_stored_unless_the_channel_keeps_pieces() {
    let graph = StateGraph::<Chats>::new()
        .node("work", |_: &Chats| Ok(Chats::update().messages([piece()]).delta([piece()])))
        .edge(START, "work")
        .compile()
        .unwrap();
    let thread = thread();
    let done = graph.invoke(&thread, Chats::update()).unwrap();
    thread.store().clear_head_cache();
    let state = graph.get_state(&thread).unwrap().values;
    assert_eq!(*state, *done.state());
    assert_eq!((state.messages[0].kind(), state.delta[0].kind()), ("ai", "AIMessageChunk"));
    assert_eq!(state.delta[0], piece());
}

#[apply(each_backend)]
fn a_delta_channel_forgives_and_is_stored_item_by_item() {
    let graph = StateGraph::<Chats>::new()
        .node("edit", |s: &Chats| match s.delta.len() {
            2 => {
                let again = [Message::remove("none"), Message::remove("1"), Message::human("again").with_id("1")];
                Ok(Chats::update().delta(again))
            }
            3 => {
                let all = [Message::human("gone"), Message::remove_all(), Message::human("left").with_id("2")];
                Ok(Chats::update().delta(all).delta([Message::human("last")]))
            }
            _ => Ok(Chats::update().overwrite_delta([Message::human("new").with_id("9")])),
        })
        .edge(START, "edit")
        .compile()
        .unwrap();
    let thread = thread();
    let two = ["1", "2"].map(|id| Message::human(id).with_id(id));
    let state = |thread: &Thread| {
        thread.store().clear_head_cache();
        texts(&graph.get_state(thread).unwrap().values.delta)
    };
    graph.invoke(&thread, Chats::update().delta(two)).unwrap();
    assert_eq!(state(&thread), ["2", "again"]);
    graph.invoke(&thread, Chats::update().delta([Message::human("third")])).unwrap();
    assert_eq!(state(&thread), ["left", "last"]);
    graph.invoke(&thread, Chats::update().delta(["4", "5"].map(Message::human))).unwrap();
    assert_eq!(state(&thread), ["new"]);
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[test]
fn a_dynamic_update_takes_whatever_stands_for_a_message_and_names_what_does_not() {
    let schema = DynSchema::new().messages("m").build();
    let graph = StateGraph::with_schema(schema)
        .node("end", |_: &DynState| Ok(DynUpdate::new()))
        .edge(START, "end")
        .compile()
        .unwrap();
    let invoke = |json: serde_json::Value| graph.invoke((), DynUpdate::new().set("m", Value::from(json)));
    let chat = Message::chat("hm", "critic").with_id("c");
    let whole = serde_json::to_value(&chat).unwrap();
    let done = invoke(serde_json::json!(["a", ["ai", "b"], {"role": "system", "content": "c"}, whole])).unwrap();
    let messages = done.state().messages("m").unwrap();
    assert_eq!(messages.iter().map(Message::kind).collect::<Vec<_>>(), ["human", "ai", "system", "chat"]);
    assert_eq!(messages[3], chat);
    for (json, part) in [
        (serde_json::json!([{"role": "bot", "content": ""}]), "Unexpected message type: 'bot'"),
        (serde_json::json!([5]), "Unsupported message type"),
        (serde_json::json!([{"role": "user", "content": [5]}]), "content[0]"),
    ] {
        let error = invoke(json).unwrap_err().to_string();
        assert!(error.contains("channel \"m\"") && error.contains(part), "{error}");
    }
}
