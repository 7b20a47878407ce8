//! The role of a message, and the thirteen classes of LangChain.
//!
//! *Absent:* the fields that every message has.

use std::fmt;
use std::str::FromStr;

use super::construct::{take_ai, take_tool};
use super::tool::{object, string};
use super::{Ai, MessageError, Tool};
use annals_base::{Value, ValueView};

/// The role of a message, with the fields that only such a message has. In serde these are the fields of the message,
/// `type` included.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Role {
    /// The user (`human`).
    Human,
    /// The instructions (`system`).
    System,
    /// The model (`ai`).
    Ai(Box<Ai>),
    /// The result of a tool call (`tool`).
    Tool(Box<Tool>),
    /// The result of a function call, the older form of a tool call (`function`); the name is that of the function.
    Function,
    /// Somebody else (`chat`).
    Chat {
        /// The role: any text.
        role: String,
    },
    /// Not a message: asks `add_messages` to remove the message with this id (`remove`).
    Remove,
    /// A type that this version does not know; its own fields are in [`Message::extra`](super::Message::extra).
    Other {
        /// The `type`, none of those above.
        kind: String,
    },
}

impl From<Ai> for Role {
    fn from(ai: Ai) -> Self {
        Self::Ai(Box::new(ai))
    }
}

impl From<Tool> for Role {
    fn from(tool: Tool) -> Self {
        Self::Tool(Box::new(tool))
    }
}

/// A class of LangChain's messages.
///
/// # Example
/// ```
/// use annals_messages::{Message, MessageClass};
///
/// assert_eq!(Message::ai_chunk("hel").class(), Some(MessageClass::AiChunk));
/// assert_eq!((MessageClass::AiChunk.name(), MessageClass::Ai.kind()), ("AIMessageChunk", "ai"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessageClass {
    /// `HumanMessage`
    Human,
    /// `SystemMessage`
    System,
    /// `AIMessage`
    Ai,
    /// `ToolMessage`
    Tool,
    /// `FunctionMessage`
    Function,
    /// `ChatMessage`
    Chat,
    /// `RemoveMessage`
    Remove,
    /// `HumanMessageChunk`
    HumanChunk,
    /// `SystemMessageChunk`
    SystemChunk,
    /// `AIMessageChunk`
    AiChunk,
    /// `ToolMessageChunk`
    ToolChunk,
    /// `FunctionMessageChunk`
    FunctionChunk,
    /// `ChatMessageChunk`
    ChatChunk,
}

impl MessageClass {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Human,
        Self::System,
        Self::Ai,
        Self::Tool,
        Self::Function,
        Self::Chat,
        Self::Remove,
        Self::HumanChunk,
        Self::SystemChunk,
        Self::AiChunk,
        Self::ToolChunk,
        Self::FunctionChunk,
        Self::ChatChunk,
    ];

    pub(super) fn view(self) -> ValueView<'static> {
        self.name().into()
    }

    /// Returns the name of the class in Python: `HumanMessage`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::Human => "HumanMessage",
            Self::System => "SystemMessage",
            Self::Ai => "AIMessage",
            Self::Tool => "ToolMessage",
            Self::Function => "FunctionMessage",
            Self::Chat => "ChatMessage",
            Self::Remove => "RemoveMessage",
            chunk => chunk.kind(),
        }
    }

    /// Returns the `type` of its messages: `human`, ..., and for chunks the name of the class.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::System => "system",
            Self::Ai => "ai",
            Self::Tool => "tool",
            Self::Function => "function",
            Self::Chat => "chat",
            Self::Remove => "remove",
            Self::HumanChunk => "HumanMessageChunk",
            Self::SystemChunk => "SystemMessageChunk",
            Self::AiChunk => "AIMessageChunk",
            Self::ToolChunk => "ToolMessageChunk",
            Self::FunctionChunk => "FunctionMessageChunk",
            Self::ChatChunk => "ChatMessageChunk",
        }
    }

    /// Returns the class whose messages have this `type`.
    pub(crate) fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.kind() == kind)
    }

    /// Returns the class with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Returns the last part of the Python module that defines the class.
    pub(crate) fn module(self) -> &'static str {
        match self.whole() {
            Self::Remove => "modifier",
            whole => whole.kind(),
        }
    }

    /// Returns whether its messages are chunks: chunks that can be added.
    pub(crate) fn is_chunk(self) -> bool {
        self != self.whole()
    }

    /// Returns the class of the whole message of which a chunk is a chunk; any other class itself.
    #[must_use]
    pub(crate) fn whole(self) -> Self {
        match self {
            Self::HumanChunk => Self::Human,
            Self::SystemChunk => Self::System,
            Self::AiChunk => Self::Ai,
            Self::ToolChunk => Self::Tool,
            Self::FunctionChunk => Self::Function,
            Self::ChatChunk => Self::Chat,
            whole => whole,
        }
    }

    /// Returns the class of the chunks of such a message; there are none of a removal.
    pub(crate) fn chunk(self) -> Option<Self> {
        match self {
            Self::Human => Some(Self::HumanChunk),
            Self::System => Some(Self::SystemChunk),
            Self::Ai => Some(Self::AiChunk),
            Self::Tool => Some(Self::ToolChunk),
            Self::Function => Some(Self::FunctionChunk),
            Self::Chat => Some(Self::ChatChunk),
            Self::Remove => None,
            chunk => Some(chunk),
        }
    }

    /// Returns whether this is that class or a subclass of it: a chunk class is one of its whole class.
    pub(crate) fn is_a(self, class: Self) -> bool {
        self == class || self.whole() == class
    }
}

/// Shows the name: `AIMessage`.
impl fmt::Display for MessageClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a name (`AIMessage`) or a `type` (`ai`).
impl FromStr for MessageClass {
    type Err = MessageError;

    fn from_str(text: &str) -> Result<Self, MessageError> {
        let class = Self::of_name(text).or_else(|| Self::of_kind(text));
        class.ok_or_else(|| MessageError::value(format!("{text:?} is not a class of messages")))
    }
}

impl TryFrom<Value> for MessageClass {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        string("", value)?.parse()
    }
}

/// A type that is known is read with its fields or refused; any other is [`Role::Other`].
impl TryFrom<Value> for Role {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let mut map = object("", value)?;
        let mut needed =
            |name: &'static str| map.shift_remove(name).ok_or_else(|| MessageError::missing("a message", name));
        let kind = string("type", needed("type")?)?;
        Ok(match kind.as_str() {
            "human" => Self::Human,
            "system" => Self::System,
            "ai" => take_ai(&mut map)?.into(),
            "tool" => {
                let tool_call_id = string("tool_call_id", needed("tool_call_id")?)?;
                take_tool(tool_call_id, &mut map)?.into()
            }
            "function" => Self::Function,
            "chat" => Self::Chat { role: string("role", needed("role")?)? },
            "remove" => Self::Remove,
            _ => Self::Other { kind },
        })
    }
}

impl Role {
    pub(super) fn view(&self) -> ValueView<'_> {
        let kind = match (self, self.class()) {
            (Self::Other { kind }, _) => kind,
            (_, class) => class.map_or("", MessageClass::kind),
        };
        let mut fields = vec![("type", kind.into())];
        match self {
            Self::Ai(ai) => fields.extend(ai.fields()),
            Self::Tool(tool) => fields.extend(tool.fields()),
            Self::Chat { role } => fields.push(("role", role.into())),
            Self::Human | Self::System | Self::Function | Self::Remove | Self::Other { .. } => {}
        }
        ValueView::Fields(fields)
    }

    /// Returns the class of whole messages of this role; none if it is unknown.
    pub(crate) fn class(&self) -> Option<MessageClass> {
        Some(match self {
            Self::Human => MessageClass::Human,
            Self::System => MessageClass::System,
            Self::Ai(_) => MessageClass::Ai,
            Self::Tool(_) => MessageClass::Tool,
            Self::Function => MessageClass::Function,
            Self::Chat { .. } => MessageClass::Chat,
            Self::Remove => MessageClass::Remove,
            Self::Other { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_found_by_its_name_and_its_type() {
        for class in MessageClass::ALL {
            assert_eq!(MessageClass::of_name(class.name()), Some(class));
            assert_eq!(MessageClass::of_kind(class.kind()), Some(class));
            assert_eq!((class.to_string().parse(), class.kind().parse()), (Ok(class), Ok(class)));
            assert_eq!(class.is_chunk(), class.name().ends_with("Chunk"));
            assert_eq!(class.chunk().map_or(MessageClass::Remove, MessageClass::whole), class.whole());
        }
        assert_eq!((MessageClass::AiChunk.module(), MessageClass::Remove.module()), ("ai", "modifier"));
        assert_eq!(MessageClass::of_kind("HumanMessage"), None);
        let unknown = "critic".parse::<MessageClass>().unwrap_err();
        assert_eq!(unknown.to_string(), "\"critic\" is not a class of messages");
    }
}
