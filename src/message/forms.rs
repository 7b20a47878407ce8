//! The forms in which other programs keep a list of messages, item by item, so that a list of any length can be read and
//! written without being held.
//!
//! *Absent:* the bytes: an item is a value. An item that cannot be read as a message is kept as it is, and written as it
//! is; what a form has no place for is named.

use std::str::FromStr;

use super::openai::OpenAiOptions;
use super::{Content, Message, MessageError, Role, convert_to_messages, load, message_to_dict};
use crate::base::{Map, Value};

/// A form in which other programs keep a list of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MessageForm {
    /// LangChain's dictionaries, `{"type": "human", "data": {..}}`, as `messages_to_dict` gives them. Constructor
    /// envelopes and flat dictionaries are read as well.
    #[default]
    LangChain,
    /// The messages of OpenAI's Chat Completions API, `{"role": "user", "content": ".."}`. It has no place for ids,
    /// metadata, token usage and artifacts.
    OpenAi,
}

/// What became of one message in a form.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Written {
    /// The items, in order.
    pub items: Vec<Value>,
    /// The fields of the message that the form has no place for.
    pub left_out: Vec<&'static str>,
}

/// The type of a message that holds an item which could not be read.
const KEPT: &str = "annals.kept";

impl MessageForm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::LangChain, Self::OpenAi];

    /// Returns the name: `langchain` or `openai`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LangChain => "langchain",
            Self::OpenAi => "openai",
        }
    }

    /// Reads one item of a list.
    ///
    /// # Errors
    /// [`MessageError`] naming what is wrong with the item; [`Message::keep`] keeps it all the same.
    ///
    /// # Example
    /// ```
    /// use annals::base::Value;
    /// use annals::message::MessageForm;
    ///
    /// let item = Value::from(serde_json::json!({"role": "user", "content": "hi"}));
    /// let messages = MessageForm::OpenAi.read(item)?;
    /// assert_eq!((messages[0].kind(), messages[0].text().as_ref()), ("human", "hi"));
    /// # Ok::<(), annals::message::MessageError>(())
    /// ```
    pub fn read(self, item: Value) -> Result<Vec<Message>, MessageError> {
        match (self, item) {
            (Self::LangChain, Value::Map(map)) if map.contains_key("lc") => load(Value::Map(map))?.into_messages(),
            (Self::LangChain, Value::Map(map)) => flat(map).and_then(Message::try_from).map(|message| vec![message]),
            (Self::LangChain, other) => Err(MessageError::invalid("", "an object", &other)),
            (Self::OpenAi, item) => Ok(vec![convert_to_messages([item]).map(|mut messages| messages.remove(0))?]),
        }
    }
}

/// Writes messages in a form, one after another.
///
/// # Example: what a form has no place for
/// ```
/// use annals::message::{FormWriter, Message, MessageForm, Usage};
///
/// let mut writer = FormWriter::new(MessageForm::OpenAi);
/// let written = writer.push(Message::ai("hi").with_usage(Usage::new(1, 1)))?;
/// assert_eq!((written.items.len(), written.left_out), (1, vec!["usage_metadata"]));
/// # Ok::<(), annals::message::MessageError>(())
/// ```
#[derive(Debug)]
pub struct FormWriter {
    form: MessageForm,
    /// How many messages came before.
    at: usize,
}

impl FormWriter {
    /// Starts a list.
    pub fn new(form: MessageForm) -> Self {
        Self { form, at: 0 }
    }

    /// Takes the next message and returns the items that are complete now.
    ///
    /// # Errors
    /// [`MessageError`] if the form cannot say the message at all; it is left out and the list may go on.
    pub fn push(&mut self, message: Message) -> Result<Written, MessageError> {
        let at = self.at;
        self.at += 1;
        if let Some(item) = message.kept() {
            return Ok(Written { items: vec![item.clone()], left_out: Vec::new() });
        }
        match self.form {
            MessageForm::LangChain => Ok(Written { items: vec![message_to_dict(&message)], left_out: Vec::new() }),
            MessageForm::OpenAi => {
                let items = OpenAiOptions::new().convert(at, &message)?;
                Ok(Written { items: items.into_iter().map(Value::Map).collect(), left_out: left_out(&message) })
            }
        }
    }
}

/// Takes a dictionary out of its envelope, if it is in one.
fn flat(mut map: Map) -> Result<Value, MessageError> {
    let Some(data) = map.shift_remove("data") else { return Ok(Value::Map(map)) };
    let Value::Map(mut fields) = data else { return Err(MessageError::invalid("data", "an object", &data)) };
    let kind = map.shift_remove("type").ok_or_else(|| MessageError::key("a message", "type"))?;
    fields.insert("type".into(), kind);
    Ok(Value::Map(fields))
}

impl FromStr for MessageForm {
    type Err = MessageError;

    fn from_str(name: &str) -> Result<Self, MessageError> {
        let found = Self::ALL.into_iter().find(|form| form.as_str() == name);
        found.ok_or_else(|| MessageError::value(format!("{name:?} is no form of messages: langchain or openai")))
    }
}

impl Message {
    /// Keeps an item that could not be read as a message, so that nothing is lost: a message of the type `annals.kept`
    /// that every form writes as the item was.
    pub fn keep(item: Value) -> Self {
        let mut message = Self::new(Role::Other { kind: KEPT.to_owned() }, "");
        message.extra.insert("item".into(), item);
        message
    }

    /// Returns the item that [`keep`](Self::keep) kept.
    pub fn kept(&self) -> Option<&Value> {
        match &self.role {
            Role::Other { kind } if kind == KEPT => self.extra.get("item"),
            _ => None,
        }
    }
}

/// Returns which fields of a message OpenAI's API has no place for.
fn left_out(message: &Message) -> Vec<&'static str> {
    let kwarg = |name: &str| match (name, &message.role) {
        ("refusal", _) | ("__openai_role__", Role::System) => true,
        // The raw calls that the tool calls were read from.
        ("tool_calls", Role::Ai(ai)) => !ai.tool_calls.is_empty(),
        _ => false,
    };
    let mut fields = vec![
        ("id", message.id.is_some()),
        ("content", loses_content(&message.content)),
        ("additional_kwargs", !message.additional_kwargs.keys().all(|name| kwarg(name))),
        ("response_metadata", !message.response_metadata.is_empty()),
        ("chunk", message.chunk.is_some()),
        ("extra", !message.extra.is_empty()),
    ];
    match &message.role {
        Role::Ai(ai) => fields.extend([
            ("usage_metadata", ai.usage.is_some()),
            ("invalid_tool_calls", !ai.invalid_tool_calls.is_empty()),
        ]),
        Role::Tool(tool) => {
            fields.extend([("artifact", !tool.artifact.is_null()), ("status", tool.status != Default::default())]);
        }
        _ => {}
    }
    fields.into_iter().filter(|(_, lost)| *lost).map(|(name, _)| name).collect()
}

/// Returns whether a block has members that its form in OpenAI's API has no place for.
fn loses_content(content: &Content) -> bool {
    let Content::Blocks(blocks) = content else { return false };
    let only = |block: &Map, known: &[&str]| block.keys().all(|name| known.contains(&name.as_str()));
    blocks.iter().filter_map(Value::as_map).any(|block| match block.get("type").and_then(Value::as_str) {
        Some("text") => !only(block, &["type", "text"]),
        Some("image_url") => !only(block, &["type", "image_url"]),
        Some("tool_use") => !only(block, &["type", "id", "name", "input"]),
        Some("tool_result") => !only(block, &["type", "tool_use_id", "content"]),
        Some("image" | "audio" | "file") => {
            let known = ["type", "url", "base64", "data", "source_type", "mime_type", "file_id", "source", "file"];
            !only(block, &known)
        }
        _ => false,
    })
}
