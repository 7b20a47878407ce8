//! The flat dictionary of LangChain: `{"content": "hi", ..., "type": "human", "name": null, "id": "m1"}`, and the envelope
//! `{"type": "human", "data": {..}}` around it.
//!
//! *Absent:* the conversion of whatever else may stand for a message (`coerce`).

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::construct::object_or_empty;
use super::tool::{maybe_string, object, string};
use super::{Ai, Content, InvalidToolCall, Message, MessageClass, MessageError, Role};
use crate::text::py_str;
use annals_base::{Map, Value};

/// The names come in the order in which LangChain dumps them, defaults included, then the extra fields.
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let own = match (&self.role, &self.chunk) {
            (Role::Ai(_), Some(_)) => 5,
            (Role::Ai(_) | Role::Tool(_), _) => 3,
            (Role::Chat { .. }, _) => 1,
            _ => 0,
        };
        let mut out = serializer.serialize_map(Some(6 + own + self.extra.len()))?;
        out.serialize_entry("content", &self.content)?;
        out.serialize_entry("additional_kwargs", &self.additional_kwargs)?;
        out.serialize_entry("response_metadata", &self.response_metadata)?;
        out.serialize_entry("type", self.kind())?;
        out.serialize_entry("name", &self.name)?;
        out.serialize_entry("id", &self.id)?;
        match (&self.role, &self.chunk) {
            (Role::Ai(ai), chunk) => {
                out.serialize_entry("tool_calls", &ai.tool_calls)?;
                out.serialize_entry("invalid_tool_calls", &InvalidCalls { ai, of_chunk: chunk.is_some() })?;
                out.serialize_entry("usage_metadata", &ai.usage)?;
                if let Some(chunk) = chunk {
                    out.serialize_entry("tool_call_chunks", &chunk.tool_call_chunks)?;
                    out.serialize_entry("chunk_position", &chunk.last.then_some("last"))?;
                }
            }
            (Role::Tool(tool), _) => {
                out.serialize_entry("tool_call_id", &tool.tool_call_id)?;
                out.serialize_entry("artifact", &tool.artifact)?;
                out.serialize_entry("status", &tool.status)?;
            }
            (Role::Chat { role }, _) => out.serialize_entry("role", role)?,
            (Role::Human | Role::System | Role::Function | Role::Remove | Role::Other { .. }, _) => {}
        }
        self.extra.iter().try_for_each(|(name, value)| out.serialize_entry(name, value))?;
        out.end()
    }
}

/// Invalid tool calls. Those which were read from the pieces of a call have their names in another order.
struct InvalidCalls<'a> {
    ai: &'a Ai,
    of_chunk: bool,
}

impl Serialize for InvalidCalls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let read = |call: &InvalidToolCall| {
            let [name, args, id] = [&call.name, &call.args, &call.id].map(|text| Value::from(text.clone()));
            let fields = [("name", name), ("args", args), ("id", id), ("error", Value::Null)];
            let kind = [("type", Value::from("invalid_tool_call"))];
            Value::Map(fields.into_iter().chain(kind).map(|(name, value)| (name.to_owned(), value)).collect())
        };
        serializer.collect_seq(self.ai.invalid_tool_calls.iter().map(|call| match call.error {
            None if self.of_chunk => read(call),
            _ => call.clone().into(),
        }))
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Reads the flat dictionary, by the rules of LangChain's constructors. Unknown fields, and messages of unknown types, are
/// kept as they are.
///
/// # Errors
/// [`MessageError`] as [`MessageClass::construct`].
///
/// # Example: a message of an unknown type
/// ```
/// use annals_base::Value;
/// use annals_messages::Message;
///
/// let json = serde_json::json!({"type": "critic", "content": "no", "score": 2});
/// let message = Message::try_from(Value::from(json))?;
/// assert_eq!((message.kind(), message.extra["score"].as_int()), ("critic", Some(2)));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
impl TryFrom<Value> for Message {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let mut map = object("", value)?;
        let kind = string("type", map.shift_remove("type").ok_or_else(|| MessageError::missing("a message", "type"))?)?;
        match MessageClass::of_kind(&kind) {
            Some(class) => class.construct(map),
            None => unknown(kind, map),
        }
    }
}

fn unknown(kind: String, mut map: Map) -> Result<Message, MessageError> {
    let content = map.shift_remove("content").map_or_else(|| Ok(Content::default()), Content::try_from)?;
    let mut message = Message::new(Role::Other { kind }, content);
    message.id = maybe_string("id", map.shift_remove("id").unwrap_or_default())?;
    message.name = maybe_string("name", map.shift_remove("name").unwrap_or_default())?;
    message.additional_kwargs = object_or_empty("additional_kwargs", &mut map)?;
    message.response_metadata = object_or_empty("response_metadata", &mut map)?;
    message.extra = map;
    Ok(message)
}

impl Message {
    /// Returns the flat dictionary, with every field.
    pub fn to_map(&self) -> Map {
        match Value::from_serialize(self) {
            Ok(Value::Map(map)) => map,
            _ => Map::new(),
        }
    }

    /// Returns whether a value is a flat dictionary with every field that all messages have, as [`to_map`](Self::to_map)
    /// makes it.
    pub fn is_dump(value: &Value) -> bool {
        let members = ["type", "content", "additional_kwargs", "response_metadata"];
        value.as_map().is_some_and(|map| members.iter().all(|member| map.contains_key(*member)))
    }
}

/// Returns the dictionary form of a message: its `type`, and all its fields as `data`.
///
/// # Example
/// ```
/// use annals_messages::{Message, message_to_dict, messages_from_dict};
///
/// let message = Message::human("hi");
/// let dict = message_to_dict(&message);
/// assert_eq!(dict.get("type").and_then(|kind| kind.as_str()), Some("human"));
/// assert_eq!(messages_from_dict(vec![dict])?, [message]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn message_to_dict(message: &Message) -> Value {
    let fields = [("type", Value::from(message.kind())), ("data", message.to_map().into())];
    Value::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Returns the dictionary forms of messages.
pub fn messages_to_dict(messages: &[Message]) -> Vec<Value> {
    messages.iter().map(message_to_dict).collect()
}

/// Reads messages in their dictionary form. Members other than `type` and `data` are ignored.
///
/// # Errors
/// [`MessageError`] with the path of what is wrong: `[3].data.content`.
pub fn messages_from_dict(dicts: impl IntoIterator<Item = Value>) -> Result<Vec<Message>, MessageError> {
    dicts
        .into_iter()
        .enumerate()
        .map(|(at, dict)| from_dict(dict).map_err(|e| e.within(format_args!("[{at}]"))))
        .collect()
}

/// Reads one dictionary form.
pub(super) fn from_dict(dict: Value) -> Result<Message, MessageError> {
    let mut map = object("", dict)?;
    let mut take = |name| map.shift_remove(name).ok_or_else(|| MessageError::key("a message", name));
    let kind = take("type")?;
    let Some(class) = kind.as_str().and_then(MessageClass::of_kind) else {
        return Err(MessageError::value(format!("Got unexpected message type: {}", py_str(&kind))));
    };
    class.construct(object("data", take("data")?)?).map_err(|e| e.within("data"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolCall, ToolStatus};
    use serde_json::json;

    fn read(json: serde_json::Value) -> Result<Message, MessageError> {
        Message::try_from(Value::from(json))
    }

    #[test]
    fn the_dictionary_has_every_field_in_the_order_of_langchain() {
        let ai = Message::ai("hi").with_id("m1").with_tool_call(ToolCall::new("f", [("a", 1)]));
        let text = serde_json::to_string(&ai).unwrap();
        assert_eq!(
            text,
            r#"{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":"m1","tool_calls":[{"name":"f","args":{"a":1},"id":null,"type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null}"#
        );
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), ai);
        let mut tool = Message::tool("r", "c1");
        tool.extra.insert("mine".into(), 1.into());
        let text = serde_json::to_string(&tool).unwrap();
        assert_eq!(
            text,
            r#"{"content":"r","additional_kwargs":{},"response_metadata":{},"type":"tool","name":null,"id":null,"tool_call_id":"c1","artifact":null,"status":"success","mine":1}"#
        );
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), tool);
    }

    #[test]
    fn optional_fields_may_be_missing_and_unknown_ones_stay_in_order() {
        let message = read(json!({"z": 1, "type": "human", "content": [], "id": 5, "a": null, "tool_call_id": "x"}));
        let message = message.unwrap();
        assert_eq!(message.id.as_deref(), Some("5"));
        assert_eq!(message.extra.keys().collect::<Vec<_>>(), ["z", "a", "tool_call_id"]);
        let failed = read(json!({"type": "tool", "content": "x", "tool_call_id": 12, "status": "error"})).unwrap();
        let Role::Tool(tool) = failed.role else { panic!("a tool message") };
        assert_eq!((tool.tool_call_id.as_str(), tool.status), ("12", ToolStatus::Error));
        let other = json!({"type": "critic", "content": "x", "role": "judge", "tool_calls": "verbatim"});
        let other = read(other).unwrap();
        assert_eq!((other.kind(), other.extra.len()), ("critic", 2));
    }

    #[test]
    fn wrong_dictionaries_are_typed_errors() {
        for (json, part) in [
            (json!(5), "an object"),
            (json!({"content": "x"}), "type"),
            (json!({"type": "human"}), "content: a message needs it"),
            (json!({"type": "tool", "content": "x"}), "tool_call_id"),
            (json!({"type": "remove"}), "id: a removal needs it"),
            (json!({"type": "remove", "id": "a", "content": "x"}), "RemoveMessage"),
            (json!({"type": "ai", "content": "x", "additional_kwargs": null}), "additional_kwargs"),
            (json!({"type": "ai", "content": "x", "id": true}), "id: expected a text"),
            (json!({"type": "ai", "content": "x", "tool_calls": {}}), "tool_calls"),
            (
                json!({"type": "ai", "content": "x", "tool_calls": [{"name": "f", "args": [], "id": null}]}),
                "tool_calls[0].args: expected an object, found a list",
            ),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(read(json!({"type": "remove", "id": null, "content": ""})).unwrap().kind(), "remove");
    }
}
