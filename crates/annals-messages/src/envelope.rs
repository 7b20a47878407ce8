//! The envelope in which LangChain keeps a constructor call: `{"lc": 1, "type": "constructor", "id": [..], "kwargs":
//! {..}}`.
//!
//! *Absent:* envelopes of anything but messages; they are refused.

use super::text::truthy;
use super::{Message, MessageClass, MessageError, MessageLike};
use crate::limits::LOAD_DEPTH_MAX;
use annals_base::{Map, Value};

/// The only member of an object that holds one of the user, which could be taken for an envelope.
const ESCAPED: &str = "__lc_escaped__";

/// Returns the envelope of a message. Fields that are not declared are not in it, nor are those which equal their
/// default. A message of an unknown type has the name of its type for that of a class.
///
/// # Example
/// ```
/// use annals_messages::{Message, dumpd, load};
///
/// let message = Message::human("hi");
/// let json = dumpd(&message).to_json();
/// assert_eq!(json["id"], serde_json::json!(["langchain", "schema", "messages", "HumanMessage"]));
/// assert_eq!(load(json.into())?, message.into());
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn dumpd(message: &Message) -> Value {
    let mut kwargs = message.to_map();
    kwargs.retain(|name, value| {
        let is_declared = !message.extra.contains_key(name);
        is_declared && (is_always_written(name) || truthy(value) || is_other_than_default(name, value))
    });
    let kwargs: Map = kwargs.into_iter().map(|(name, value)| (name, escape(value))).collect();
    let id = ["langchain", "schema", "messages", message.class_name()].map(Value::from);
    fields([("lc", 1.into()), ("type", "constructor".into()), ("id", id.into()), ("kwargs", kwargs.into())])
}

fn is_always_written(name: &str) -> bool {
    matches!(name, "content" | "type" | "tool_calls" | "invalid_tool_calls" | "tool_call_id" | "role" | "status")
}

/// Returns whether a falsy value was set.
fn is_other_than_default(name: &str, value: &Value) -> bool {
    !value.is_null()
        && !matches!(name, "additional_kwargs" | "response_metadata" | "tool_call_chunks" | "usage_metadata")
}

/// Reads a value in which envelopes of messages may stand at any place.
///
/// # Errors
/// [`MessageError`] with the path of an envelope of another class, or of the fault in one; or if the value has more
/// than 200 levels of objects and lists.
pub fn load(value: Value) -> Result<MessageLike, MessageError> {
    verify_depth(&value, 0)?;
    revive(value)
}

/// Refuses a value of more than [`LOAD_DEPTH_MAX`] levels. An escaped object counts as one level.
fn verify_depth(value: &Value, depth: usize) -> Result<(), MessageError> {
    if depth > LOAD_DEPTH_MAX {
        let reason = format!("Cannot load object nested more than {LOAD_DEPTH_MAX} levels deep.");
        return Err(MessageError::value(reason));
    }
    match value {
        Value::List(items) => items.iter().try_for_each(|item| verify_depth(item, depth + 1)),
        Value::Map(map) if !is_escaped(map) => map.values().try_for_each(|member| verify_depth(member, depth + 1)),
        _ => Ok(()),
    }
}

fn revive(value: Value) -> Result<MessageLike, MessageError> {
    match value {
        Value::List(items) => {
            let items = items.into_iter().enumerate();
            let items = items.map(|(at, item)| revive(item).map_err(|e| e.within(format_args!("[{at}]"))));
            Ok(plain_list(items.collect::<Result<_, _>>()?))
        }
        Value::Map(mut map) if is_envelope(&map) => {
            let class = class_of(map.get("id"))?;
            match map.shift_remove("kwargs") {
                None => class.construct(Map::new()).map(MessageLike::from),
                Some(Value::Map(kwargs)) => {
                    let kwargs = kwargs.into_iter().map(|(name, value)| (name, unescape(value)));
                    class.construct(kwargs.collect()).map(MessageLike::from)
                }
                Some(other) => Err(MessageError::invalid("", "an object", &other)),
            }
            .map_err(|e| e.within("kwargs"))
        }
        Value::Map(map) if is_escaped(&map) => Ok(MessageLike::Value(unescape(Value::Map(map)))),
        Value::Map(map) => {
            let revived = |(name, value)| match revive(value) {
                Ok(like) => Ok((name, like)),
                Err(e) => Err(e.within(name)),
            };
            Ok(plain_map(map.into_iter().map(revived).collect::<Result<_, _>>()?))
        }
        other => Ok(MessageLike::Value(other)),
    }
}

/// An object that names no class stays a value.
fn is_envelope(map: &Map) -> bool {
    let is = |name, text| map.get(name).and_then(Value::as_str) == Some(text);
    map.get("lc").and_then(Value::as_int) == Some(1)
        && is("type", "constructor")
        && map.get("id").is_some_and(|id| !id.is_null())
}

fn is_escaped(map: &Map) -> bool {
    map.len() == 1 && map.contains_key(ESCAPED)
}

/// Wraps objects that could be taken for an envelope. Their members stay as they are.
fn escape(value: Value) -> Value {
    match value {
        Value::Map(map) if map.contains_key("lc") || is_escaped(&map) => fields([(ESCAPED, map.into())]),
        Value::Map(map) => Value::Map(map.into_iter().map(|(name, value)| (name, escape(value))).collect()),
        Value::List(items) => Value::List(items.into_iter().map(escape).collect()),
        other => other,
    }
}

fn unescape(value: Value) -> Value {
    match value {
        Value::Map(mut map) if is_escaped(&map) => map.shift_remove(ESCAPED).unwrap_or_default(),
        Value::Map(map) => Value::Map(map.into_iter().map(|(name, value)| (name, unescape(value))).collect()),
        Value::List(items) => Value::List(items.into_iter().map(unescape).collect()),
        other => other,
    }
}

/// Finds the class by its path: that of the class map of LangChain, that of the real module, that of LangChain for
/// JavaScript, or that of its first releases.
fn class_of(id: Option<&Value>) -> Result<MessageClass, MessageError> {
    let parts: Option<Vec<&str>> = id.and_then(Value::as_list).and_then(|id| id.iter().map(Value::as_str).collect());
    let class = match parts.as_deref() {
        Some(["langchain", "schema", "messages", name]) => MessageClass::of_name(name),
        Some(["langchain_core", "messages", name]) => MessageClass::of_name(name),
        Some(["langchain", "schema", name]) => MessageClass::of_name(name)
            .filter(|class| !class.is_chunk() && !matches!(class, MessageClass::Tool | MessageClass::Remove)),
        Some(["langchain_core", "messages", module, name]) => {
            MessageClass::of_name(name).filter(|class| class.module() == *module)
        }
        _ => None,
    };
    let path = parts.unwrap_or_default().join(".");
    class.ok_or_else(|| MessageError::value(format!("Invalid namespace: {path} is not a message")).within("id"))
}

/// A list without messages inside is a value.
pub(super) fn plain_list(items: Vec<MessageLike>) -> MessageLike {
    if !items.iter().all(|item| matches!(item, MessageLike::Value(_))) {
        return MessageLike::List(items);
    }
    MessageLike::Value(Value::List(items.into_iter().map(MessageLike::into_value).collect()))
}

/// An object without messages inside is a value.
pub(super) fn plain_map(members: Vec<(String, MessageLike)>) -> MessageLike {
    if !members.iter().all(|(_, member)| matches!(member, MessageLike::Value(_))) {
        return MessageLike::Map(members.into_iter().collect());
    }
    MessageLike::Value(Value::Map(members.into_iter().map(|(name, member)| (name, member.into_value())).collect()))
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As `dumpd` and `load` of LangChain have it.
    #[test]
    fn what_a_user_has_is_never_taken_for_an_envelope() {
        let envelope =
            json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"]});
        for mine in [envelope, json!({"lc": null, "a": {"lc": 2}}), json!({"__lc_escaped__": 5})] {
            let mut message = Message::ai("x").with_response_metadata("m", mine.clone());
            message.additional_kwargs.insert("a".into(), json!([mine]).into());
            let json = dumpd(&message).to_json();
            assert_eq!(json["kwargs"]["additional_kwargs"]["a"], json!([{"__lc_escaped__": mine}]));
            assert_eq!(json["kwargs"]["response_metadata"], json!({"m": {"__lc_escaped__": mine}}));
            assert_eq!(load(json.into()).unwrap(), message.into());
            assert_eq!(load(json!([{"__lc_escaped__": mine}]).into()).unwrap(), Value::from(json!([mine])).into());
        }
    }

    #[test]
    fn every_path_of_a_class_is_known() {
        for (path, is_known) in [
            (&["langchain_core", "messages", "AIMessageChunk"][..], true),
            (&["langchain_core", "messages", "ai", "AIMessage"], true),
            (&["langchain_core", "messages", "human", "AIMessage"], false),
            (&["langchain_core", "messages", "RemoveMessage"], true),
            (&["langchain", "schema", "HumanMessage"], true),
            (&["langchain", "schema", "ToolMessage"], false),
            (&["langchain", "schema", "AIMessageChunk"], false),
            (&["langchain", "schema", "messages", "RemoveMessage"], true),
            (&["HumanMessage"], false),
        ] {
            let kwargs = json!({"content": "", "id": "1"});
            let loaded = load(json!({"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}).into());
            assert_eq!(loaded.is_ok(), is_known, "{path:?} {loaded:?}");
        }
    }

    #[test]
    fn a_value_of_more_than_200_levels_is_not_loaded() {
        let nested = |levels: usize| (0..levels).fold(Value::from(1), |inner, _| Value::List(vec![inner]));
        assert!(load(nested(200)).is_ok());
        let error = load(nested(201)).unwrap_err();
        assert_eq!(error.to_string(), "Cannot load object nested more than 200 levels deep.");
        // The members of an envelope count as well; an escaped object is taken as it is.
        let mut message = Message::human("x");
        message.additional_kwargs.insert("a".into(), nested(198));
        assert!(load(dumpd(&message)).is_err());
        message.additional_kwargs.insert("a".into(), nested(197));
        assert_eq!(load(dumpd(&message)).unwrap(), message.into());
        let escaped = Value::Map([(ESCAPED.to_owned(), nested(300))].into_iter().collect());
        assert!(load(escaped).is_ok());
    }

    #[test]
    fn what_names_no_class_is_a_value() {
        for plain in [
            json!({"lc": 1, "type": "constructor", "kwargs": {}}),
            json!({"lc": 1, "type": "constructor", "kwargs": {}, "id": null}),
        ] {
            assert_eq!(load(plain.clone().into()).unwrap(), Value::from(plain).into());
        }
        let empty = json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"]});
        assert_eq!(
            load(empty.into()).unwrap_err().to_string(),
            "kwargs.tool_call_id: a tool message needs it, and it is missing"
        );
    }
}
