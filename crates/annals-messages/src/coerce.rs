//! Messages from whatever may stand for them: `convert_to_messages` of LangChain.
//!
//! *Absent:* prompts, which are lists of messages already.

use super::text::{json_loads, py_repr_map, py_str, truthy};
use super::{ErrorClass, Message, MessageClass, MessageError, MessageLike};
use crate::limits::MESSAGE_EXCERPT_CHARS_MAX;
use annals_base::{Map, Value};

/// Turns what may stand for messages into messages: a text is one of the user, a sequence of two is a role and a
/// content, an object has a `role` or a `type` and a `content`. A message stays as it is.
///
/// # Errors
/// [`MessageError`] with the place in the list.
///
/// # Example: what OpenAI calls a conversation
/// ```
/// use annals_messages::{Message, convert_to_messages};
///
/// let json = serde_json::json!({"role": "assistant", "content": "hello", "refusal": null});
/// let messages = convert_to_messages([json])?;
/// assert_eq!(messages[0].text(), "hello");
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn convert_to_messages<L: Into<MessageLike>>(
    likes: impl IntoIterator<Item = L>,
) -> Result<Vec<Message>, MessageError> {
    let convert =
        |(at, like): (usize, L)| Message::try_from(like.into()).map_err(|e| e.within(format_args!("messages[{at}]")));
    likes.into_iter().enumerate().map(convert).collect()
}

/// Turns a flat dictionary with a `type` into a message of one of the twelve classes of LangChain's `AnyMessage`.
/// A message stays as it is; removals are refused.
///
/// # Errors
/// [`MessageError`] if it is neither, or a field is wrong.
pub fn any_message(like: impl Into<MessageLike>) -> Result<Message, MessageError> {
    let refused = |kind: &str| MessageError::refused(ErrorClass::ValidationError, format!("no message is a {kind:?}"));
    let mut map = match like.into() {
        MessageLike::Message(message) if message.class() == Some(MessageClass::Remove) => {
            return Err(refused("remove"));
        }
        MessageLike::Message(message) => return Ok(*message),
        MessageLike::Value(Value::Map(map)) if map.contains_key("type") => map,
        other => {
            return Err(MessageError::wrong_type(format!(
                "Expected either a dictionary with a 'type' key or an object with a 'type' attribute. Instead got type \
                 <class '{}'>.",
                other.class_name()
            )));
        }
    };
    match map.shift_remove("type").unwrap_or_default() {
        Value::Str(kind) => match MessageClass::of_kind(&kind) {
            None | Some(MessageClass::Remove) => Err(refused(&kind)),
            Some(class) => class.construct(map),
        },
        other => {
            let kind = super::text::py_type(&other);
            Err(MessageError::wrong_type(format!("Expected 'type' to be a str, got {kind}")))
        }
    }
}

impl MessageLike {
    /// Returns the messages that it stands for: the items of a list, or one.
    ///
    /// # Errors
    /// [`MessageError`] as [`convert_to_messages`].
    pub fn into_messages(self) -> Result<Vec<Message>, MessageError> {
        match self {
            Self::List(items) => convert_to_messages(items),
            Self::Value(Value::List(items)) => convert_to_messages(items),
            one => convert_to_messages([one]),
        }
    }
}

/// Returns the one message that it stands for.
impl TryFrom<MessageLike> for Message {
    type Error = MessageError;

    fn try_from(like: MessageLike) -> Result<Self, MessageError> {
        match like {
            MessageLike::Message(message) => Ok(*message),
            MessageLike::Value(Value::Str(text)) => Ok(Self::human(text)),
            MessageLike::Value(Value::List(items)) => of_pair(items),
            MessageLike::List(items) | MessageLike::Tuple(items) => {
                of_pair(items.into_iter().map(MessageLike::into_value).collect())
            }
            MessageLike::Value(Value::Map(map)) => of_object(map),
            MessageLike::Map(map) => of_object(map.into_iter().map(|(name, like)| (name, like.into_value())).collect()),
            other => {
                let reason = format!("Unsupported message type: <class '{}'>", other.class_name());
                Err(MessageError::refused(ErrorClass::NotImplementedError, reason))
            }
        }
    }
}

fn of_pair(items: Vec<Value>) -> Result<Message, MessageError> {
    match <[Value; 2]>::try_from(items) {
        Ok([role, content]) => of_role(&role, content, Map::new()),
        Err(_) => {
            let reason = "Message as a sequence must be (role string, template)";
            Err(MessageError::refused(ErrorClass::NotImplementedError, reason))
        }
    }
}

fn of_object(mut map: Map) -> Result<Message, MessageError> {
    while let Some(class) = enveloped(&map) {
        let kwargs = match map.shift_remove("kwargs") {
            Some(Value::Map(kwargs)) => kwargs,
            _ => Map::new(),
        };
        map = std::iter::once(("type".to_owned(), Value::from(class.whole().kind()))).chain(kwargs).collect();
    }
    let has_role = map.contains_key("role") || map.contains_key("type");
    if !has_role || !map.contains_key("content") {
        let shown: String = py_repr_map(&map).chars().take(MESSAGE_EXCERPT_CHARS_MAX).collect();
        return Err(MessageError::value(format!("Message dict must contain 'role' and 'content' keys, got {shown}")));
    }
    let role = map.shift_remove("role").or_else(|| map.shift_remove("type")).unwrap_or_default();
    let content = map.shift_remove("content").filter(truthy).unwrap_or_else(|| "".into());
    of_role(&role, content, map)
}

/// Returns the class if this is an envelope of one that is read here.
fn enveloped(map: &Map) -> Option<MessageClass> {
    let is_one = match map.get("lc")? {
        Value::Float(x) => *x == 1.0,
        lc => super::merge::integer(lc) == Some(1),
    };
    let is_envelope =
        is_one && map.get("type")?.as_str() == Some("constructor") && map.get("kwargs")?.as_map().is_some();
    let name = map.get("id")?.as_list()?.last()?.as_str().filter(|_| is_envelope)?;
    MessageClass::of_name(name).filter(|class| class.whole() != MessageClass::Chat)
}

/// Makes a message of a role, a content and other members.
fn of_role(role: &Value, content: Value, mut rest: Map) -> Result<Message, MessageError> {
    let class = match role.as_str().unwrap_or_default() {
        "human" | "user" => MessageClass::Human,
        "ai" | "assistant" => MessageClass::Ai,
        "system" | "developer" => MessageClass::System,
        "function" => MessageClass::Function,
        "tool" => MessageClass::Tool,
        "remove" => MessageClass::Remove,
        _ => {
            return Err(MessageError::value(format!(
                "Unexpected message type: '{}'. Use one of 'human', 'user', 'ai', 'assistant', 'function', 'tool', \
                 'system', or 'developer'.\nFor troubleshooting, visit: \
                 https://docs.langchain.com/oss/python/langchain/errors/MESSAGE_COERCION_FAILURE ",
                py_str(role)
            )));
        }
    };
    let mut kwargs = Map::new();
    if class != MessageClass::Remove {
        kwargs.insert("content".into(), content);
    }
    for name in ["name", "tool_call_id", "id"] {
        kwargs.extend(rest.shift_remove(name).filter(|value| !value.is_null()).map(|value| (name.to_owned(), value)));
    }
    if let Some(calls) = rest.shift_remove("tool_calls").filter(|calls| !calls.is_null()) {
        kwargs.insert("tool_calls".into(), tool_calls(calls)?);
    }
    kwargs.extend(rest.shift_remove("response_metadata").filter(truthy).map(|m| ("response_metadata".to_owned(), m)));
    match rest.shift_remove("additional_kwargs") {
        Some(Value::Map(more)) => rest.extend(more),
        Some(other) => return Err(MessageError::invalid("additional_kwargs", "an object", &other)),
        None => {}
    }
    take_out(class, &mut rest, &mut kwargs);
    if role.as_str() == Some("developer") {
        rest.insert("__openai_role__".into(), "developer".into());
    }
    kwargs.insert("additional_kwargs".into(), rest.into());
    class.construct(kwargs)
}

/// Fields of a class that come among the other members.
fn take_out(class: MessageClass, rest: &mut Map, kwargs: &mut Map) {
    let mut take = |name: &str, keep: fn(&Value) -> bool| {
        kwargs.extend(rest.shift_remove(name).filter(keep).map(|value| (name.to_owned(), value)));
    };
    match class {
        MessageClass::Human | MessageClass::Ai => take("example", truthy),
        MessageClass::Tool => {
            take("artifact", |_| true);
            take("status", |status| !status.is_null());
        }
        _ => {}
    }
}

/// Turns the calls of OpenAI into tool calls; others stay as they are.
fn tool_calls(calls: Value) -> Result<Value, MessageError> {
    let Value::List(calls) = calls else { return Err(MessageError::invalid("tool_calls", "a list", &calls)) };
    let convert = |(at, call): (usize, Value)| tool_call(call).map_err(|e| e.within(format_args!("tool_calls[{at}]")));
    calls.into_iter().enumerate().map(convert).collect::<Result<_, _>>().map(Value::List)
}

fn tool_call(call: Value) -> Result<Value, MessageError> {
    let Some(function) = call.get("function") else { return Ok(call) };
    let member = |name: &str| {
        let member = function.get(name).cloned();
        member.ok_or_else(|| MessageError::key("a raw tool call", format!("function.{name}")))
    };
    let args = match member("arguments")? {
        Value::Str(text) => json_loads(&text, false).map_err(|e| MessageError::from(e).within("function.arguments"))?,
        args => args,
    };
    let id = call.get("id").cloned().ok_or_else(|| MessageError::key("a raw tool call", "id"))?;
    let fields = [("name", member("name")?), ("args", args), ("id", id), ("type", "tool_call".into())];
    Ok(Value::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}
