//! Message-like values: a text, a pair of role and content, an object, a message, or a list of these.
//!
//! *Absent:* the conversion to a message (`coerce`).

use indexmap::IndexMap;

use super::Message;
use super::text::{py_type, truthy};
use annals_base::{Map, Value};

/// A value in which whole messages may stand, and which may stand for messages.
///
/// # Example: four ways to say one thing
/// ```
/// use annals_messages::{Message, MessageLike, convert_to_messages};
///
/// let object = serde_json::json!({"role": "user", "content": "hi"});
/// let likes: [MessageLike; 4] = ["hi".into(), ("user", "hi").into(), object.into(), Message::human("hi").into()];
/// assert_eq!(convert_to_messages(likes)?, vec![Message::human("hi"); 4]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MessageLike {
    /// A message.
    Message(Box<Message>),
    /// A value without messages inside.
    Value(Value),
    /// A list.
    List(Vec<MessageLike>),
    /// A sequence that stands for one message: its role and its content.
    Tuple(Vec<MessageLike>),
    /// An object.
    Map(IndexMap<String, MessageLike>),
}

impl MessageLike {
    /// Returns it as a value, messages in their flat dictionary form.
    pub fn into_value(self) -> Value {
        match self {
            Self::Message(message) => message.to_map().into(),
            Self::Value(value) => value,
            Self::List(items) | Self::Tuple(items) => Value::List(items.into_iter().map(Self::into_value).collect()),
            Self::Map(map) => Value::Map(map.into_iter().map(|(name, like)| (name, like.into_value())).collect()),
        }
    }

    /// Returns whether Python takes it as true.
    pub(super) fn is_truthy(&self) -> bool {
        match self {
            Self::Message(_) => true,
            Self::Value(value) => truthy(value),
            Self::List(items) | Self::Tuple(items) => !items.is_empty(),
            Self::Map(map) => !map.is_empty(),
        }
    }

    /// Returns the name of its class in Python.
    pub(super) fn class_name(&self) -> &str {
        match self {
            Self::Message(message) => message.class_name(),
            Self::Value(value) => py_type(value),
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Map(_) => "dict",
        }
    }
}

impl Message {
    /// Returns the name of its class in Python.
    pub(super) fn class_name(&self) -> &str {
        match self.class() {
            Some(class) => class.name(),
            None => self.kind(),
        }
    }
}

impl From<Message> for MessageLike {
    fn from(message: Message) -> Self {
        Self::Message(Box::new(message))
    }
}

impl From<Vec<Message>> for MessageLike {
    fn from(messages: Vec<Message>) -> Self {
        Self::List(messages.into_iter().map(Self::from).collect())
    }
}

impl From<Vec<MessageLike>> for MessageLike {
    fn from(likes: Vec<MessageLike>) -> Self {
        Self::List(likes)
    }
}

impl From<Value> for MessageLike {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl From<Map> for MessageLike {
    fn from(map: Map) -> Self {
        Self::Value(map.into())
    }
}

impl From<serde_json::Value> for MessageLike {
    fn from(json: serde_json::Value) -> Self {
        Self::Value(json.into())
    }
}

impl From<&str> for MessageLike {
    fn from(text: &str) -> Self {
        Self::Value(text.into())
    }
}

impl From<String> for MessageLike {
    fn from(text: String) -> Self {
        Self::Value(text.into())
    }
}

/// A role and a content.
impl<R: Into<String>, C: Into<Value>> From<(R, C)> for MessageLike {
    fn from((role, content): (R, C)) -> Self {
        Self::Tuple(vec![Self::Value(Value::Str(role.into())), Self::Value(content.into())])
    }
}
