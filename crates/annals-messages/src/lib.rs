//! Chat messages as plain data, with the fields, the dictionary format and the merging rules of LangChain's messages.
//!
//! | type or function | meaning |
//! | --- | --- |
//! | [`Message`], [`Role`], [`Content`] | one message: the role with its fields, and the content |
//! | [`ToolCall`], [`Tool`], [`Usage`] | a request to call a tool, its result, and token counts |
//! | [`add_messages`], [`merge_plan`] | merge lists of messages by id; the plan never looks at the whole list |
//! | [`Chunk`], [`MergedChunks`] | chunks of a streamed message, and the merging of them |
//! | [`blocks`] | the content as typed blocks that mean the same for every provider |
//! | [`filter_messages`], [`trim_messages`], [`buffer_string`] | a part of a list, or its text |
//! | [`Message::to_payload`] | the fields of a message that a store indexes, and the rest as bytes |
//!
//! Invariants: unknown fields and types stay verbatim and in order ([`Message::extra`], [`Role::Other`]);
//! `Message::from_payload(m.to_payload()?.as_ref())? == m` for every message that is not nested beyond the
//! limits. *Absent:* channels, persistent lists, SQL, graphs, and any call to a model.
//!
//! # Recipe: merge an update into a conversation
//! ```
//! use annals_base::IdSource;
//! use annals_messages::{Message, add_messages};
//!
//! let mut ids = IdSource::from_seed(1);
//! let chat = vec![Message::human("hi").with_id("1"), Message::ai("helo").with_id("2")];
//! let update = vec![Message::ai("hello").with_id("2"), Message::human("bye")];
//! let chat = add_messages(chat, update, None, &mut ids)?;
//! assert_eq!((chat.len(), &*chat[1].text()), (3, "hello"));
//! assert!(chat[2].id.is_some());
//! # Ok::<(), annals_messages::MessageError>(())
//! ```
//!
//! # Recipe: read and write LangChain's dictionaries
//! ```
//! use annals_messages::{Message, message_to_dict, messages_from_json};
//!
//! let text = br#"[{"type": "human", "data": {"content": "hi"}}]"#;
//! let chat = messages_from_json(text)?;
//! assert_eq!(chat, [Message::human("hi")]);
//! assert_eq!(message_to_dict(&chat[0])["data"]["content"], *"hi");
//! # Ok::<(), annals_messages::MessageError>(())
//! ```
//!
//! # Recipe: the arguments of a tool call as a type
//! ```
//! use annals_messages::ToolCall;
//!
//! #[derive(serde::Deserialize)]
//! struct Weather {
//!     city: String,
//! }
//!
//! let call = ToolCall::new("weather", [("city", "Bern")]).with_id("call-1");
//! assert_eq!(call.args_as::<Weather>()?.city, "Bern");
//! # Ok::<(), annals_messages::MessageError>(())
//! ```
//!
//! # Recipe: messages that fit into a number of tokens
//! ```
//! use annals_messages::{Message, TokenCounter, TrimOptions, trim_messages};
//!
//! let chat = [Message::human("one two"), Message::ai("three"), Message::human("four")];
//! let words = TokenCounter::each(|message| message.text().split_whitespace().count() as i64);
//! assert_eq!(trim_messages(&chat, &TrimOptions::new(2).counter(words))?, chat[1..]);
//! # Ok::<(), annals_messages::MessageError>(())
//! ```

mod access;
mod add_messages;
pub mod blocks;
mod buffer;
mod buffer_xml;
mod checkpoint;
mod chunk;
mod coerce;
mod construct;
mod content;
mod count;
mod data_block;
mod delta;
mod dict;
mod dict_json;
mod envelope;
mod error;
mod filter;
mod first_words;
mod formats;
#[doc(hidden)]
pub mod internal;
#[cfg(test)]
mod laws;
mod like;
mod limits;
mod merge;
mod notification;
mod openai;
mod partial_json;
mod parts;
mod parts_text;
mod payload;
mod pretty;
mod providers;
mod reduce;
mod role;
mod runs;
#[cfg(test)]
mod samples;
mod serde_view;
mod tool;
mod tool_parser;
mod trim;
mod usage;
mod usage_sum;

use std::borrow::Cow;

pub use add_messages::add_messages;
pub use buffer::{BufferFormat, BufferOptions, buffer_string};
pub use checkpoint::{TypedBytes, checkpoint_dumps, checkpoint_loads};
pub use chunk::MergedChunks;
pub use chunk::{Chunk, add_ai_message_chunks, message_chunk_to_message};
pub use coerce::{any_message, convert_to_messages};
pub use content::Content;
pub use count::{CountOptions, TokenCounter, count_tokens_approximately};
pub use data_block::{DataUri, OpenAiData, is_data_content_block, openai_data_block, parse_data_uri};
pub use delta::{DeltaReducer, DeltaWrite, ensure_message_ids, messages_delta_reducer};
pub use dict::{message_to_dict, messages_from_dict, messages_to_dict};
pub use dict_json::messages_from_json;
pub use envelope::{dumpd, load};
pub use error::{ErrorClass, MessageError};
pub use filter::{FilterOptions, TypeFilter, filter_messages};
pub use first_words::first_words;
pub use formats::{FormatOutput, FormatWriter, LangChainFormat, MessageFormat, OpenAiFormat};
pub use internal::text::JsonError;
pub use like::MessageLike;
pub use merge::{merge_content, merge_dicts, merge_lists, merge_obj};
pub use notification::{Notification, ensure_id};
pub use openai::{
    OpenAiApi, OpenAiOptions, TextFormat, convert_to_openai_data_block, convert_to_openai_image_block,
    convert_to_openai_messages, v1_to_chat_completions,
};
pub use partial_json::parse_partial_json;
pub use pretty::title_repr;
pub use providers::grounding_citations;
pub use reduce::{MergeOp, REMOVE_ALL_MESSAGES, ensure_ids, merge_plan};
pub use role::{MessageClass, Role};
pub use runs::merge_message_runs;
pub use tool::{Ai, InvalidToolCall, Tool, ToolCall, ToolCallChunk, ToolStatus};
pub use tool_parser::{default_tool_chunk_parser, default_tool_parser};
pub use trim::{TrimOptions, TrimStrategy, trim_messages};
pub use usage::Usage;
pub use usage_sum::{add_usage, subtract_usage};

use annals_base::Map;
use internal::text;

/// One message of a chat.
///
/// # Example: a question, an answer that calls a tool, and the result
/// ```
/// use annals_messages::{Message, ToolCall};
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
    /// The content.
    pub content: Content,
    /// The role, with the fields that only such a message has.
    pub role: Role,
    /// Fields of the provider besides the declared ones.
    pub additional_kwargs: Map,
    /// Fields of the provider about the answer: model name, finish reason, ...
    pub response_metadata: Map,
    /// Fields that are declared nowhere, in order. A name that a declared field has does not belong here.
    pub extra: Map,
    /// Set if this is a chunk of a message (`AIMessageChunk` and the like).
    pub chunk: Option<Box<Chunk>>,
}

impl Message {
    /// Returns a message of a given role, without id.
    pub fn new(role: impl Into<Role>, content: impl Into<Content>) -> Self {
        Self {
            id: None,
            name: None,
            content: content.into(),
            role: role.into(),
            additional_kwargs: Map::new(),
            response_metadata: Map::new(),
            extra: Map::new(),
            chunk: None,
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
        Self::new(Ai::default(), content)
    }

    /// Returns instructions for the model.
    #[doc(alias = "SystemMessage")]
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new(Role::System, content)
    }

    /// Returns the result of the tool call `tool_call_id`.
    #[doc(alias = "ToolMessage")]
    pub fn tool(content: impl Into<Content>, tool_call_id: impl Into<String>) -> Self {
        Self::new(Tool::new(tool_call_id), content)
    }

    /// Returns the result of a call of the function `name`.
    #[doc(alias = "FunctionMessage")]
    pub fn function(content: impl Into<Content>, name: impl Into<String>) -> Self {
        Self::new(Role::Function, content).with_name(name)
    }

    /// Returns a message of somebody else.
    ///
    /// # Example
    /// ```
    /// use annals_messages::{Message, Role};
    ///
    /// let message = Message::chat("too long", "critic");
    /// assert_eq!(message.kind(), "chat");
    /// assert_eq!(message.role, Role::Chat { role: "critic".into() });
    /// ```
    #[doc(alias = "ChatMessage")]
    pub fn chat(content: impl Into<Content>, role: impl Into<String>) -> Self {
        Self::new(Role::Chat { role: role.into() }, content)
    }

    /// Returns a chunk of a message of the model.
    #[doc(alias = "AIMessageChunk")]
    pub fn ai_chunk(content: impl Into<Content>) -> Self {
        Self::ai(content).into_chunk()
    }

    /// Makes it a chunk of a message, with no tool call chunks. A removal and an unknown message have no chunks and
    /// stay as they are.
    #[must_use]
    pub fn into_chunk(mut self) -> Self {
        if !matches!(self.role, Role::Remove | Role::Other { .. }) {
            self.chunk.get_or_insert_default();
        }
        self
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

    /// Adds a tool call. In a message that is not the model's it lands in the extra field `tool_calls`, as in
    /// LangChain.
    #[must_use]
    pub fn with_tool_call(mut self, call: ToolCall) -> Self {
        match &mut self.role {
            Role::Ai(ai) => ai.tool_calls.push(call),
            _ => self.push_extra("tool_calls", call.into()),
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
    /// separator. It borrows unless several fragments have to be joined.
    pub fn text(&self) -> Cow<'_, str> {
        self.content.text()
    }

    /// Returns the `type`: `human`, `ai`, `system`, `tool`, `function`, `chat`, `remove`, of a chunk the name of its
    /// class (`AIMessageChunk`), or what an unknown message says it is.
    pub fn kind(&self) -> &str {
        match (&self.role, self.class()) {
            (Role::Other { kind }, _) => kind,
            (_, class) => class.map_or("", MessageClass::kind),
        }
    }

    /// Returns the class; none of an unknown message.
    pub fn class(&self) -> Option<MessageClass> {
        let whole = self.role.class()?;
        if self.chunk.is_some() { whole.chunk() } else { Some(whole) }
    }

    /// Returns whether this is a chunk of a message.
    pub fn is_chunk(&self) -> bool {
        self.chunk.is_some()
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
