//! The flat dictionary of LangChain: `{"content": "hi", ..., "type": "human", "name": null, "id": "m1"}`.
//!
//! *Absent:* the envelopes around it (`type`/`data`, `lc`), and the conversion of whatever else may stand for a message.

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::tool::{list, maybe_string, object, string};
use super::{Ai, Content, Message, MessageError, Role, Tool, Usage};
use crate::base::{Map, Value};

/// The names come in the order in which LangChain dumps them, defaults included, then the extra fields.
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let own = match &self.role {
            Role::Ai(_) | Role::Tool(_) => 3,
            _ => 0,
        };
        let mut out = serializer.serialize_map(Some(6 + own + self.extra.len()))?;
        out.serialize_entry("content", &self.content)?;
        out.serialize_entry("additional_kwargs", &self.additional_kwargs)?;
        out.serialize_entry("response_metadata", &self.response_metadata)?;
        out.serialize_entry("type", self.kind())?;
        out.serialize_entry("name", &self.name)?;
        out.serialize_entry("id", &self.id)?;
        match &self.role {
            Role::Ai(ai) => {
                out.serialize_entry("tool_calls", &ai.tool_calls)?;
                out.serialize_entry("invalid_tool_calls", &ai.invalid_tool_calls)?;
                out.serialize_entry("usage_metadata", &ai.usage)?;
            }
            Role::Tool(tool) => {
                out.serialize_entry("tool_call_id", &tool.tool_call_id)?;
                out.serialize_entry("artifact", &tool.artifact)?;
                out.serialize_entry("status", &tool.status)?;
            }
            Role::Human | Role::System | Role::Remove | Role::Other { .. } => {}
        }
        self.extra.iter().try_for_each(|(name, value)| out.serialize_entry(name, value))?;
        out.end()
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Reads the flat dictionary. Optional fields may be missing; unknown ones are kept in [`Message::extra`].
///
/// # Example: a message of an unknown type
/// ```
/// use annals::base::Value;
/// use annals::message::Message;
///
/// let json = serde_json::json!({"type": "critic", "content": "no", "score": 2});
/// let message = Message::try_from(Value::from(json))?;
/// assert_eq!((message.kind(), message.extra["score"].as_int()), ("critic", Some(2)));
/// # Ok::<(), annals::message::MessageError>(())
/// ```
impl TryFrom<Value> for Message {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let mut map = match value {
            Value::Map(map) => map,
            other => return Err(MessageError::invalid("message", "an object", &other)),
        };
        let missing = |kind: &str, field| MessageError::Missing { kind: kind.to_owned(), field };
        let kind = string("type", map.shift_remove("type").ok_or_else(|| missing("?", "type"))?)?;
        let content = map.shift_remove("content");
        if kind == "remove" && !map.contains_key("id") {
            return Err(missing(&kind, "id"));
        }
        let tool_call_id = match map.shift_remove("tool_call_id") {
            Some(id) if kind == "tool" => Some(identifier("tool_call_id", id)?),
            Some(other) => {
                map.insert("tool_call_id".into(), other);
                None
            }
            None if kind == "tool" => return Err(missing(&kind, "tool_call_id")),
            None => None,
        };
        let content = match content {
            content if kind == "remove" => no_content(content)?,
            Some(content) => content.try_into()?,
            None if Role::is_known(&kind) => return Err(missing(&kind, "content")),
            None => Content::default(),
        };
        let id = match map.shift_remove("id") {
            None | Some(Value::Null) => None,
            Some(id) => Some(identifier("id", id)?),
        };
        let name = maybe_string("name", map.shift_remove("name").unwrap_or_default())?;
        let additional_kwargs = object_or_empty("additional_kwargs", &mut map)?;
        let response_metadata = object_or_empty("response_metadata", &mut map)?;
        let role = Role::take(kind, tool_call_id, &mut map)?;
        Ok(Self { id, name, content, role, additional_kwargs, response_metadata, extra: map })
    }
}

impl Role {
    fn is_known(kind: &str) -> bool {
        matches!(kind, "human" | "system" | "ai" | "tool" | "remove")
    }

    /// Makes the role `kind`, taking the fields that only it has out of `map`.
    pub(super) fn take(kind: String, tool_call_id: Option<String>, map: &mut Map) -> Result<Self, MessageError> {
        Ok(match kind.as_str() {
            "human" => Self::Human,
            "system" => Self::System,
            "remove" => Self::Remove,
            "ai" => {
                let mut ai = Ai::default();
                if let Some(calls) = map.shift_remove("tool_calls") {
                    ai.tool_calls = list("tool_calls", calls)?;
                }
                if let Some(calls) = map.shift_remove("invalid_tool_calls") {
                    ai.invalid_tool_calls = list("invalid_tool_calls", calls)?;
                }
                match map.shift_remove("usage_metadata") {
                    None | Some(Value::Null) => {}
                    Some(usage) => ai.usage = Some(Box::new(Usage::try_from(usage)?)),
                }
                Self::Ai(ai)
            }
            "tool" => {
                let mut tool = Tool::new(tool_call_id.unwrap_or_default());
                tool.artifact = map.shift_remove("artifact").unwrap_or_default();
                if let Some(status) = map.shift_remove("status") {
                    tool.status = status.try_into()?;
                }
                Self::Tool(tool)
            }
            _ => Self::Other { kind },
        })
    }
}

/// Accepts what LangChain turns into an id: a text, or a number.
fn identifier(field: &'static str, value: Value) -> Result<String, MessageError> {
    match value {
        Value::Str(text) => Ok(text),
        Value::Int(n) => Ok(n.to_string()),
        Value::UInt(n) => Ok(n.to_string()),
        Value::Float(x) if x.is_finite() => Ok(format!("{x:?}")),
        other => Err(MessageError::invalid(field, "a text or a number", &other)),
    }
}

pub(super) fn object_or_empty(field: &'static str, map: &mut Map) -> Result<Map, MessageError> {
    map.shift_remove(field).map_or_else(|| Ok(Map::new()), |value| object(field, value))
}

fn no_content(content: Option<Value>) -> Result<Content, MessageError> {
    let empty = match &content {
        None | Some(Value::Null | Value::Bool(false) | Value::Int(0)) => true,
        Some(Value::Str(text)) => text.is_empty(),
        Some(Value::List(items)) => items.is_empty(),
        Some(Value::Map(map)) => map.is_empty(),
        Some(_) => false,
    };
    if empty { Ok(Content::default()) } else { Err(MessageError::RemoveWithContent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolStatus};
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
        let chat = json!({"type": "chat", "content": "x", "role": "judge", "tool_calls": "verbatim"});
        let chat = read(chat).unwrap();
        assert_eq!((chat.kind(), chat.extra.len()), ("chat", 2));
    }

    #[test]
    fn wrong_dictionaries_are_typed_errors() {
        for (json, part) in [
            (json!(5), "an object"),
            (json!({"content": "x"}), "\"type\""),
            (json!({"type": "human"}), "\"content\""),
            (json!({"type": "tool", "content": "x"}), "\"tool_call_id\""),
            (json!({"type": "remove"}), "\"id\""),
            (json!({"type": "remove", "id": "a", "content": "x"}), "RemoveMessage"),
            (json!({"type": "ai", "content": "x", "additional_kwargs": null}), "additional_kwargs"),
            (json!({"type": "ai", "content": "x", "id": true}), "\"id\""),
            (json!({"type": "ai", "content": "x", "tool_calls": {}}), "tool_calls"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(read(json!({"type": "remove", "id": null, "content": ""})).unwrap().kind(), "remove");
    }
}
