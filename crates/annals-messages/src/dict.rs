//! The flat dictionary of LangChain: `{"content": "hi", ..., "type": "human", "name": null, "id": "m1"}`, and the
//! envelope `{"type": "human", "data": {..}}` around it.
//!
//! *Absent:* the conversion of whatever else may stand for a message (`coerce`).

use super::construct::object_or_empty;
use super::tool::{maybe_string, object, string};
use super::{Content, Message, MessageClass, MessageError, Role};
use crate::text::py_str;
use annals_base::{Map, Value, ValueView};

/// Reads the flat dictionary, by the rules of LangChain's constructors. Unknown fields, and messages of unknown types,
/// stay as they are.
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
        let dump = self.view().to_value();
        debug_assert!(Self::is_dump(&dump), "the dictionary has every field that all messages have");
        match dump {
            Value::Map(map) => map,
            _ => Map::new(),
        }
    }

    /// Returns the flat dictionary: the names come in the order in which LangChain dumps them, defaults included, then
    /// the extra fields.
    pub(super) fn view(&self) -> ValueView<'_> {
        let mut fields = Vec::with_capacity(11 + self.extra.len());
        fields.push(("content", self.content.view()));
        fields.push(("additional_kwargs", (&self.additional_kwargs).into()));
        fields.push(("response_metadata", (&self.response_metadata).into()));
        fields.push(("type", self.kind().into()));
        fields.push(("name", self.name.as_ref().into()));
        fields.push(("id", self.id.as_ref().into()));
        match (&self.role, &self.chunk) {
            (Role::Ai(ai), None) => fields.extend(ai.fields()),
            (Role::Ai(ai), Some(chunk)) => {
                let [calls, _, usage] = ai.fields();
                // Those which were read from the chunks of a call have their names in another order.
                let invalid = ai.invalid_tool_calls.iter().map(|call| match call.error {
                    None => call.view_of_chunk(),
                    Some(_) => call.view(),
                });
                fields.extend([calls, ("invalid_tool_calls", invalid.collect()), usage]);
                fields.extend(chunk.fields());
            }
            (Role::Tool(tool), _) => fields.extend(tool.fields()),
            (Role::Chat { role }, _) => fields.push(("role", role.into())),
            (Role::Human | Role::System | Role::Function | Role::Remove | Role::Other { .. }, _) => {}
        }
        fields.extend(self.extra.iter().map(|(name, value)| (name.as_str(), value.into())));
        ValueView::Fields(fields)
    }

    /// Returns whether a value is a flat dictionary with every field that all messages have, as
    /// [`to_map`](Self::to_map) makes it.
    pub fn is_dump(value: &Value) -> bool {
        let members = ["type", "content", "additional_kwargs", "response_metadata"];
        value.as_map().is_some_and(|map| members.iter().all(|member| map.contains_key(member)))
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
/// [`MessageError`] with the path of the fault: `[3].data.content`.
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
