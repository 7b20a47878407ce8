//! The laws of this floor, on random messages and on hostile input.

use proptest::prelude::*;

use super::samples::{map, message, value};
use super::{
    Chunk, DeltaReducer, DeltaWrite, Message, MessageClass, MessageLike, Role, ToolCallChunk, any_message,
    checkpoint_dumps, checkpoint_loads, convert_to_messages, dumpd, ensure_message_ids, load, merge_dicts, merge_lists,
    message_to_dict, messages_delta_reducer, messages_from_dict, parse_partial_json, subtract_usage,
};
use annals_base::{IdSource, Map, Value};

/// A message as a constructor makes it: without fields under the name of a declared one, and without what JSON lacks in
/// the arguments of calls, which may be written as texts.
fn made() -> impl Strategy<Value = Message> {
    message().prop_filter_map("a known class", |mut message| {
        message.extra.clear();
        if let Role::Ai(ai) = &mut message.role {
            ai.usage.iter_mut().for_each(|usage| usage.extra.clear());
        }
        message.settle();
        message.settle();
        if message.role == Role::Remove {
            // The envelope leaves out an id that is null, which a removal needs.
            message.id.get_or_insert_default();
        }
        message.class()?.construct(message.to_map()).ok()
    })
}

/// A message of the model split into chunks: of its text, and of the arguments of its calls.
fn chunks() -> impl Strategy<Value = Vec<Message>> {
    let chunk = ("[a-z ]{0,3}", prop::option::of((0..3i64, "[a-z\"{}:, ]{0,4}")), "[a-z]{0,2}", any::<bool>());
    let made = |(text, call, note, last): (String, Option<(i64, String)>, String, bool)| {
        let call =
            call.map(|(index, args)| ToolCallChunk { args: Some(args), index: Some(index), ..Default::default() });
        let mut message = Message::ai_chunk(text).with_id("m");
        message.additional_kwargs.insert("note".into(), note.into());
        message.chunk = Some(Box::new(Chunk { tool_call_chunks: call.into_iter().collect(), last }));
        message.settle();
        message
    };
    prop::collection::vec(chunk.prop_map(made), 3..6)
}

fn sum(chunks: &[Message]) -> Message {
    let (first, rest) = chunks.split_first().expect("there are chunks");
    rest.iter().fold(first.clone(), |sum, chunk| sum.plus(chunk.clone()).expect("chunks of one message add up"))
}

proptest! {
    #[test]
    fn every_form_gives_back_what_was_put_in(message in made()) {
        prop_assert_eq!(&messages_from_dict([message_to_dict(&message)]).unwrap(), std::slice::from_ref(&message));
        prop_assert_eq!(load(dumpd(&message)).unwrap(), MessageLike::from(message.clone()));
        let like = MessageLike::from(vec![message.clone()]);
        let form = checkpoint_dumps(&like).unwrap();
        prop_assert_eq!(checkpoint_loads(form.kind, &form.bytes).unwrap(), like);
        prop_assert_eq!(Message::try_from(Value::from(message.to_map())).unwrap(), message.clone());
        prop_assert_eq!(convert_to_messages([message.clone()]).unwrap(), [message]);
    }

    #[test]
    fn pieces_add_up_however_they_are_grouped(chunks in chunks(), at in 1..3usize) {
        let (left, right) = chunks.split_at(at);
        prop_assert_eq!(sum(left).plus(sum(right)).unwrap(), sum(&chunks));
        let at_once = chunks[0].clone().plus(chunks[1..].to_vec()).unwrap();
        prop_assert_eq!(at_once, sum(&chunks));
    }

    #[test]
    fn batches_of_a_delta_channel_may_be_cut_anywhere(
        ids in prop::collection::vec(("[a-d]", any::<bool>()), 0..10), at in 0..10usize
    ) {
        let message = |(id, gone): &(String, bool)| match (id.as_str(), gone) {
            ("d", true) => Message::remove_all(),
            (id, true) => Message::remove(id),
            (id, false) => Message::human("x").with_id(id),
        };
        let writes: Vec<MessageLike> = ids.iter().map(|one| message(one).into()).collect();
        let (first, second) = writes.split_at(at.min(writes.len()));
        let half = messages_delta_reducer(Vec::new(), first.to_vec()).unwrap();
        let both = messages_delta_reducer(half, second.to_vec()).unwrap();
        prop_assert_eq!(both, messages_delta_reducer(Vec::new(), writes).unwrap());
    }

    #[test]
    fn no_value_is_too_odd_to_be_refused(
        value in value(), fields in map(), bytes in prop::collection::vec(any::<u8>(), 0..60), text in ".{0,30}"
    ) {
        let _ = load(value.clone());
        let _ = any_message(value.clone());
        let _ = messages_from_dict([value.clone()]);
        let _ = MessageLike::from(value.clone()).into_messages();
        let _ = checkpoint_loads("msgpack", &bytes);
        let _ = parse_partial_json(&text, true);
        let _ = subtract_usage(&value, &fields.clone().into());
        let _ = merge_dicts(fields.clone(), fields.clone());
        let _ = merge_lists(vec![value.clone()], vec![value.clone()]);
        let write = DeltaWrite::Write(value.clone().into());
        let _ = ensure_message_ids(write, DeltaReducer::Messages, &mut IdSource::from_seed(1));
        for class in MessageClass::ALL {
            let names = ["content", "id", "name", "tool_calls", "tool_call_id", "tool_call_chunks", "usage_metadata"];
            for name in names {
                let mut kwargs: Map = [("content", "x"), ("id", "1"), ("name", "f"), ("role", "r"), ("tool_call_id", "t")]
                    .map(|(name, text)| (name.to_owned(), text.into()))
                    .into_iter()
                    .collect();
                kwargs.insert(name.into(), value.clone());
                kwargs.insert("additional_kwargs".into(), Value::Map(fields.clone()));
                let _ = class.construct(kwargs);
            }
        }
    }
}

#[test]
fn a_message_is_small() {
    assert_eq!(size_of::<Message>(), 144, "of a long list less would stay in the caches");
}

#[test]
fn what_is_wrong_is_named_with_its_path() {
    use serde_json::json;
    let refused = |json: serde_json::Value| {
        let items = json.as_array().expect("a list").iter().cloned().map(Value::from);
        messages_from_dict(items).unwrap_err().to_string()
    };
    let human = |content| json!({"type": "human", "data": {"content": content}});
    assert_eq!(
        refused(json!([human(json!("x")), human(json!(["a", 5]))])),
        "[1].data.content[1]: expected a text or an object, found 5"
    );
    let usage = json!({"input_tokens": 1, "output_tokens": 1e40, "total_tokens": 2});
    assert_eq!(
        refused(json!([{"type": "ai", "data": {"content": "", "usage_metadata": usage}}])),
        "[0].data.usage_metadata.output_tokens: expected an integer, found 1e+40"
    );
    let call = json!({"name": "f", "args": {}, "id": 7});
    assert_eq!(
        refused(json!([{"type": "ai", "data": {"content": "", "tool_calls": [call]}}])),
        "[0].data.tool_calls[0].id: expected a text or null, found 7"
    );
    let error = convert_to_messages([json!("hi"), json!({"role": "bot", "content": ""})]).unwrap_err();
    assert!(error.to_string().starts_with("messages[1]: Unexpected message type: 'bot'"), "{error}");
    let half = json!([{"id": "1", "function": {"name": "f", "arguments": "{\"a\": \"\\ud800\"}"}}]);
    let error = convert_to_messages([json!({"role": "ai", "content": "", "tool_calls": half})]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "messages[0].tool_calls[0].function.arguments: the escape at byte 8 is half a character"
    );
}
