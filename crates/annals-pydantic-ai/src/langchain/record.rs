//! The record of a message of LangChain in the metadata of a PydanticAI message, from which it is restored.
//!
//! *Absent:* data that is equal on both sides.

use super::{LANGCHAIN, object};
use crate::hash::sha256_hex;
use crate::history::ModelMessage;
use crate::wire::{DIGEST, Wire};
use annals_base::{Map, Value};
use annals_messages::internal::json_write;
use annals_messages::{Message, MessageError};

/// Returns whether a field of a message is as it is by default.
fn is_default(name: &str, value: &Value) -> bool {
    match (name, value) {
        ("name" | "id" | "usage_metadata" | "artifact", Value::Null) => true,
        ("additional_kwargs" | "response_metadata", Value::Map(map)) => map.is_empty(),
        ("tool_calls" | "invalid_tool_calls", Value::List(items)) => items.is_empty(),
        ("status", value) => value.as_str() == Some("success"),
        _ => false,
    }
}

/// Returns the dictionary of a message without fields that are as they are by default.
pub(super) fn sparse(message: &Message) -> Map {
    let mut map = message.to_map();
    map.retain(|name, value| !is_default(name, value));
    map
}

/// Returns the digest of the parts, by which a record knows that they were not edited.
fn digest(message: &ModelMessage) -> String {
    let parts = match message {
        ModelMessage::Request(request) => request.parts.write(),
        ModelMessage::Response(response) => response.parts.write(),
    };
    sha256_hex(json_write(&parts, DIGEST).as_bytes())
}

/// Returns the records of the messages from which this one was made, while its parts are as they were.
pub(super) fn of(message: &ModelMessage) -> Option<&[Value]> {
    let record = message.metadata()?.get(LANGCHAIN)?;
    let records = record.get("messages")?.as_list()?;
    (record.get("digest")?.as_str()? == digest(message)).then_some(records)
}

/// Restores a message from its dictionary: without the envelope, with the members that the record sets and without
/// those that it drops.
pub(super) fn restore(mut map: Map, record: &Value) -> Result<Message, MessageError> {
    map.shift_remove("additional_kwargs");
    for name in record.get("drop").and_then(Value::as_list).unwrap_or_default() {
        name.as_str().and_then(|name| map.shift_remove(name));
    }
    if let Some(set) = record.get("set").and_then(Value::as_map) {
        map.extend(set.clone());
    }
    Message::try_from(Value::Map(map))
}

/// Records the differences between the originals and the messages made from the history.
pub(super) fn write(message: &mut ModelMessage, originals: &[Map], made: &[Map]) {
    let records = originals.iter().zip(made).map(|(original, made)| difference(original, made)).collect();
    let record = object([("messages", Value::List(records)), ("digest", digest(message).into())]);
    let metadata = match message {
        ModelMessage::Request(request) => &mut request.metadata,
        ModelMessage::Response(response) => &mut response.metadata,
    };
    *metadata = Some(object([(LANGCHAIN, record.into())]));
}

fn difference(original: &Map, made: &Map) -> Value {
    let has = |name: &str| name != "additional_kwargs" && made.contains_key(name);
    let set: Map = original
        .iter()
        .filter(|(name, value)| !has(name) || made[name.as_str()] != **value)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut drop: Vec<&String> =
        made.keys().filter(|name| has(name) && !original.contains_key(name.as_str())).collect();
    drop.sort();
    let mut record = Map::new();
    if !set.is_empty() {
        record.insert("set".into(), set.into());
    }
    if !drop.is_empty() {
        record.insert("drop".into(), Value::List(drop.into_iter().map(|name| name.as_str().into()).collect()));
    }
    record.into()
}
