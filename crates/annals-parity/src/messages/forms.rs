//! The constructors of messages, their forms, and raw tool calls.

use annals::base::{Map, Value};
use annals::message::{
    MessageClass, default_tool_chunk_parser, default_tool_parser, message_to_dict, messages_from_dict, messages_to_dict,
};
use serde_json::{Value as Json, json};

use super::encode::{encode_message, encode_messages};
use super::{Case, Failure, Handler};

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("construct", construct),
    ("message_to_dict", |case| Ok(message_to_dict(&case.message()?).to_json())),
    ("messages_to_dict", |case| Ok(Value::List(messages_to_dict(&case.messages()?)).to_json())),
    ("messages_from_dict", |case| match case.input.value() {
        Value::List(dicts) => Ok(encode_messages(&messages_from_dict(dicts)?)),
        _ => Err(Failure::vector("list")),
    }),
    ("text", |case| Ok(json!(case.message()?.text()))),
    ("default_tool_parser", |case| {
        let (calls, invalid) = default_tool_parser(&case.input.value())?;
        Ok(json!({"$tuple": [Value::List(calls).to_json(), Value::List(invalid).to_json()]}))
    }),
    ("default_tool_chunk_parser", |case| Ok(Value::List(default_tool_chunk_parser(&case.input.value())?).to_json())),
];

fn construct(case: &Case) -> Result<Json, Failure> {
    let class = case.input.get("class").map(|class| class.value());
    let class = class.as_ref().and_then(Value::as_str).and_then(MessageClass::of_name);
    let kwargs: Option<Map> = case.input.get("kwargs").and_then(|kwargs| kwargs.value().as_map().cloned());
    match (class, kwargs) {
        (Some(class), Some(kwargs)) => Ok(encode_message(&class.construct(kwargs)?)),
        _ => Err(Failure::vector("class with arguments")),
    }
}
