//! The constructors of messages, their formats, and raw tool calls.

use annals::base::{IdSource, Map, Value};
use annals::message::{
    MessageClass, Notification, any_message, checkpoint_dumps, checkpoint_loads, convert_to_messages,
    default_tool_chunk_parser, default_tool_parser, dumpd, ensure_id, load, message_chunk_to_message, message_to_dict,
    messages_from_dict, messages_to_dict,
};
use serde_json::{Value as Json, json};

use super::encode::{VectorValue, encode_message, encode_messages};
use super::{FailedCall, FunctionCase, Handler};

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("construct", construct),
    ("message_to_dict", |case| Ok(message_to_dict(&case.message()?).to_json())),
    ("messages_to_dict", |case| Ok(Value::List(messages_to_dict(&case.messages()?)).to_json())),
    ("messages_from_dict", |case| match case.input.value() {
        Value::List(dicts) => Ok(encode_messages(&messages_from_dict(dicts)?)),
        _ => Err(FailedCall::vector("list")),
    }),
    ("text", |case| Ok(json!(case.message()?.text()))),
    ("any_message", |case| Ok(encode_message(&any_message(case.input.clone().like())?))),
    ("convert_to_messages", |case| match &case.input {
        // A text is a list of characters.
        VectorValue::Value(Value::Str(text)) => {
            Ok(encode_messages(&convert_to_messages(text.chars().map(String::from))?))
        }
        _ => Ok(encode_messages(&case.messages()?)),
    }),
    ("dumpd", |case| Ok(dumpd(&case.message()?).to_json())),
    ("load", |case| Ok(VectorValue::from(load(case.input.value())?).encode())),
    ("checkpoint_dumps", |case| {
        let typed = checkpoint_dumps(&case.input.clone().like())?;
        let hex: String = typed.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(json!({"kind": typed.kind, "hex": hex}))
    }),
    ("checkpoint_roundtrip", |case| {
        let typed = checkpoint_dumps(&case.input.clone().like())?;
        Ok(VectorValue::from(checkpoint_loads(typed.kind, &typed.bytes)?).encode())
    }),
    ("ensure_id", |case| {
        let id = case.input.value().as_str().map(str::to_owned);
        Ok(json!(ensure_id(id, &mut IdSource::new())))
    }),
    ("add_notification_metadata", |case| {
        let source = case.text_arg("source").ok_or_else(|| FailedCall::vector("source"))?;
        let data = case.arg("data").and_then(|data| data.value().as_map().cloned());
        let mut note = Notification::new(source);
        note.data = data;
        Ok(encode_message(&case.message()?.with_notification(note)))
    }),
    ("get_notification_metadata", |case| {
        Ok(case.message()?.notification().map_or(Json::Null, |note| match note.data {
            Some(data) => json!({"source": note.source, "data": Value::from(data).to_json()}),
            None => json!({"source": note.source}),
        }))
    }),
    ("message_chunk_to_message", |case| Ok(encode_message(&message_chunk_to_message(case.message()?)))),
    ("default_tool_parser", |case| {
        let (calls, invalid) = default_tool_parser(&case.input.value())?;
        Ok(json!({"$tuple": [Value::List(calls).to_json(), Value::List(invalid).to_json()]}))
    }),
    ("default_tool_chunk_parser", |case| Ok(Value::List(default_tool_chunk_parser(&case.input.value())?).to_json())),
];

fn construct(case: &FunctionCase) -> Result<Json, FailedCall> {
    let class = case.input.get("class").map(|class| class.value());
    let class = class.as_ref().and_then(Value::as_str).and_then(MessageClass::of_name);
    let kwargs: Option<Map> = case.input.get("kwargs").and_then(|kwargs| kwargs.value().as_map().cloned());
    match (class, kwargs) {
        (Some(class), Some(kwargs)) => Ok(encode_message(&class.construct(kwargs)?)),
        _ => Err(FailedCall::vector("class with arguments")),
    }
}
