//! Floor 1: a chat message is plain data.
//!
//! A [`Message`] has the fields, the flat dictionary form and the merging rules of LangChain's messages, as typed Rust:
//! who speaks is a [`Role`], what is said a [`Content`]. [`add_messages`] merges lists of them by id, [`merge_plan`]
//! does the same without ever looking at the whole list, and [`MessageParts`] is what a store indexes of one.
//! *Absent:* channels, lists that persist, SQL, graphs, and any call to a model.
//!
//! Invariants: what a message does not know it keeps verbatim and in order ([`Message::extra`], [`Role::Other`]);
//! `Message::join(&m.split()?)? == m` for every message.

mod content;
mod data_block;
mod dict;
mod error;
mod parts;
mod reduce;
mod tool;
mod usage;

use std::borrow::Cow;

pub use content::Content;
pub use data_block::{DataUri, OpenAiData, is_data_content_block, openai_data_block, parse_data_uri};
pub use error::MessageError;
pub use parts::{MessageParts, MessagePartsRef};
pub use reduce::{MergeOp, REMOVE_ALL_MESSAGES, add_messages, ensure_ids, merge_plan};
pub use tool::{Ai, InvalidToolCall, Tool, ToolCall, ToolStatus};
pub use usage::Usage;

use crate::base::{Map, Value};

/// One message of a chat.
///
/// # Example: a question, an answer that calls a tool, and the result
/// ```
/// use annals::message::{Message, ToolCall};
///
/// let question = Message::human("What is the weather in Bern?").with_id("m1");
/// let answer = Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id("call-1"));
/// let result = Message::tool("12 °C, rain", "call-1");
/// assert_eq!((question.kind(), answer.kind(), result.kind()), ("human", "ai", "tool"));
/// assert_eq!(result.text(), "12 °C, rain");
/// ```
#[doc(alias = "BaseMessage")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// The id by which the message is merged; given by `add_messages` if there is none. An empty text is an id.
    pub id: Option<String>,
    /// The name of who speaks.
    pub name: Option<String>,
    /// What is said.
    pub content: Content,
    /// Who speaks, with the fields that only such a message has.
    pub role: Role,
    /// What the provider takes or gives besides the declared fields.
    pub additional_kwargs: Map,
    /// What the provider tells about the answer: model name, finish reason, ...
    pub response_metadata: Map,
    /// Fields that are declared nowhere, in order. A name that a declared field has does not belong here.
    pub extra: Map,
}

/// Who speaks, with the fields that only such a message has.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Role {
    /// The user (`human`).
    Human,
    /// The instructions (`system`).
    System,
    /// The model (`ai`).
    Ai(Ai),
    /// The result of a tool call (`tool`).
    Tool(Tool),
    /// Not a message: asks `add_messages` to remove the message with this id (`remove`).
    Remove,
    /// A type that this version does not know; its own fields are in [`Message::extra`].
    Other {
        /// The `type`, none of those above.
        kind: String,
    },
}

impl Message {
    /// Returns a message of a given role, without id.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Self {
            id: None,
            name: None,
            content: content.into(),
            role,
            additional_kwargs: Map::new(),
            response_metadata: Map::new(),
            extra: Map::new(),
        }
    }

    /// Returns a message of the user.
    #[doc(alias = "HumanMessage")]
    pub fn human(content: impl Into<Content>) -> Self {
        Self::new(Role::Human, content)
    }

    /// Returns a message of the model.
    #[doc(alias = "AIMessage")]
    pub fn ai(content: impl Into<Content>) -> Self {
        Self::new(Role::Ai(Ai::default()), content)
    }

    /// Returns instructions for the model.
    #[doc(alias = "SystemMessage")]
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new(Role::System, content)
    }

    /// Returns the result of the tool call `tool_call_id`.
    #[doc(alias = "ToolMessage")]
    pub fn tool(content: impl Into<Content>, tool_call_id: impl Into<String>) -> Self {
        Self::new(Role::Tool(Tool::new(tool_call_id)), content)
    }

    /// Returns the request to remove the message `id`.
    #[doc(alias = "RemoveMessage")]
    pub fn remove(id: impl Into<String>) -> Self {
        Self::new(Role::Remove, "").with_id(id)
    }

    /// Returns the request to remove every message before it.
    pub fn remove_all() -> Self {
        Self::remove(REMOVE_ALL_MESSAGES)
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the name of who speaks.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a tool call. In a message that is not the model's it lands in the extra field `tool_calls`, as in LangChain.
    #[must_use]
    pub fn with_tool_call(mut self, call: ToolCall) -> Self {
        match &mut self.role {
            Role::Ai(ai) => ai.tool_calls.push(call),
            _ => {
                let calls = self.extra.entry("tool_calls".into()).or_insert_with(|| Value::List(Vec::new()));
                if let Value::List(calls) = calls {
                    calls.push(call.into());
                }
            }
        }
        self
    }

    /// Sets the tokens used. In a message that is not the model's they land in the extra field `usage_metadata`.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        match &mut self.role {
            Role::Ai(ai) => ai.usage = Some(Box::new(usage)),
            _ => {
                self.extra.insert("usage_metadata".into(), usage.into());
            }
        }
        self
    }

    /// Returns the text that is said: the content, or of a list of blocks its strings and text blocks, joined without
    /// separator. It borrows unless several pieces have to be joined.
    pub fn text(&self) -> Cow<'_, str> {
        self.content.text()
    }

    /// Returns the `type`: `human`, `ai`, `system`, `tool`, `remove`, or what an unknown message says it is.
    pub fn kind(&self) -> &str {
        match &self.role {
            Role::Human => "human",
            Role::System => "system",
            Role::Ai(_) => "ai",
            Role::Tool(_) => "tool",
            Role::Remove => "remove",
            Role::Other { kind } => kind,
        }
    }

    /// Returns the tool calls; none for a message that is not the model's.
    pub fn tool_calls(&self) -> &[ToolCall] {
        match &self.role {
            Role::Ai(ai) => &ai.tool_calls,
            _ => &[],
        }
    }

    /// Returns whether this asks to remove every message before it.
    pub fn is_remove_all(&self) -> bool {
        self.role == Role::Remove && self.id.as_deref() == Some(REMOVE_ALL_MESSAGES)
    }
}
