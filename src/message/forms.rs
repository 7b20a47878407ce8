//! The forms in which other programs keep a list of messages, item by item, so that a list of any length can be read and
//! written without being held.
//!
//! *Absent:* the bytes: an item is a value. An item that cannot be read as a message is kept as it is, and written as it
//! is; what a form has no place for is named.

use std::str::FromStr;

use super::openai::{OpenAiOptions, TextFormat};
use super::pydantic_ai::{Fresh, LoadError, from_langchain, from_value, to_langchain, to_value};
use super::text::truthy;
use super::{Content, Message, MessageError, MessageLike, Role, default_tool_parser, load, message_to_dict};
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
    /// metadata, token usage and artifacts. A text stays a text and a list of blocks a list.
    OpenAi,
    /// PydanticAI's requests and responses, `{"kind": "request", "parts": [..]}`, older shapes included. One of them is
    /// one message or several, by the mapping of [`pydantic_ai`](super::pydantic_ai).
    PydanticAi,
}

/// What became of messages in a form.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Written {
    /// The items, in order.
    pub items: Vec<Value>,
    /// By message: the fields that the form has no place for.
    pub left_out: Vec<&'static str>,
    /// The messages that the form cannot say, by their places in the list, from 0.
    pub refused: Vec<(u64, MessageError)>,
}

/// The type of a message that holds an item which could not be read.
const KEPT: &str = "annals.kept";

impl MessageForm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LangChain, Self::OpenAi, Self::PydanticAi];

    /// Returns the name: `langchain`, `openai` or `pydantic-ai`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LangChain => "langchain",
            Self::OpenAi => "openai",
            Self::PydanticAi => "pydantic-ai",
        }
    }

    /// Reads one item of a list. What is missing in older items of PydanticAI is made by `fresh`.
    ///
    /// # Errors
    /// [`MessageError`] naming what is wrong with the item; [`Message::keep`] keeps it all the same.
    ///
    /// # Example
    /// ```
    /// use annals::base::{IdSource, SystemClock, Value};
    /// use annals::message::MessageForm;
    /// use annals::message::pydantic_ai::Fresh;
    ///
    /// let mut ids = IdSource::new();
    /// let item = Value::from(serde_json::json!({"role": "user", "content": "hi"}));
    /// let messages = MessageForm::OpenAi.read(item, &mut Fresh::new(&SystemClock, &mut ids))?;
    /// assert_eq!((messages[0].kind(), messages[0].text().as_ref()), ("human", "hi"));
    /// # Ok::<(), annals::message::MessageError>(())
    /// ```
    pub fn read(self, item: Value, fresh: &mut Fresh<'_>) -> Result<Vec<Message>, MessageError> {
        match (self, item) {
            (Self::LangChain, Value::Map(map)) if map.contains_key("lc") => load(Value::Map(map))?.into_messages(),
            (Self::LangChain, Value::Map(map)) => flat(map).and_then(Message::try_from).map(|message| vec![message]),
            (Self::LangChain, other) => Err(MessageError::invalid("", "an object", &other)),
            (Self::OpenAi, item) => Message::try_from(MessageLike::from(item)).map(|message| vec![message]),
            (Self::PydanticAi, item) => {
                to_langchain(&from_value(Value::List(vec![item]), fresh).map_err(not_loaded)?, false)
            }
        }
    }
}

fn not_loaded(error: LoadError) -> MessageError {
    MessageError::value(error.to_string())
}

/// Writes messages in a form, one after another.
///
/// # Example: what a form has no place for
/// ```
/// use annals::base::{IdSource, SystemClock};
/// use annals::message::pydantic_ai::Fresh;
/// use annals::message::{FormWriter, Message, MessageForm, Usage};
///
/// let mut ids = IdSource::new();
/// let mut writer = FormWriter::new(MessageForm::OpenAi);
/// let answer = Message::ai("hi").with_usage(Usage::new(1, 1));
/// let written = writer.push(answer, &mut Fresh::new(&SystemClock, &mut ids));
/// assert_eq!((written.items.len(), written.left_out), (1, vec!["usage_metadata"]));
/// ```
#[derive(Debug)]
pub struct FormWriter {
    form: MessageForm,
    /// How many messages came before.
    at: u64,
    /// Messages that are not written yet, because what follows may belong to them.
    group: Vec<Message>,
}

impl FormWriter {
    /// Starts a list.
    pub fn new(form: MessageForm) -> Self {
        Self { form, at: 0, group: Vec::new() }
    }

    /// Takes the next message and returns the items that are complete now.
    pub fn push(&mut self, message: Message, fresh: &mut Fresh<'_>) -> Written {
        let at = self.at;
        if let Some(item) = message.kept() {
            let mut written = self.finish(fresh);
            written.items.push(item.clone());
            self.at += 1;
            return written;
        }
        let mut written = Written::default();
        match self.form {
            MessageForm::LangChain => written.items.push(message_to_dict(&message)),
            MessageForm::OpenAi => {
                // Blocks stay blocks.
                let format = match message.content {
                    Content::Text(_) => TextFormat::Text,
                    Content::Blocks(_) => TextFormat::Block,
                };
                let options = OpenAiOptions::new().text_format(format);
                match options.convert(usize::try_from(at).unwrap_or(usize::MAX), &message) {
                    Ok(items) => {
                        written.items.extend(items.into_iter().map(Value::Map));
                        written.left_out = left_out(&message);
                    }
                    Err(error) => written.refused.push((at, error)),
                }
            }
            MessageForm::PydanticAi => {
                // An answer begins a group: a result finds the name of its tool in the answer before it.
                if matches!(message.role, Role::Ai(_) | Role::Remove | Role::Other { .. }) {
                    written = self.finish(fresh);
                }
                if matches!(message.role, Role::Remove | Role::Other { .. }) {
                    let reason = format!("PydanticAI has no message of the type {:?}", message.kind());
                    written.refused.push((at, MessageError::value(reason)));
                } else {
                    written.left_out.extend(message.is_chunk().then_some("chunk"));
                    written.left_out.extend((message.role == Role::Function).then_some("class"));
                    self.group.push(message);
                }
            }
        }
        self.at += 1;
        written
    }

    /// Returns the items of what is not written yet. The list may go on.
    pub fn finish(&mut self, fresh: &mut Fresh<'_>) -> Written {
        let group = std::mem::take(&mut self.group);
        let mut written = Written::default();
        let mut write = |group: &[Message]| -> Result<(), LoadError> {
            if let Value::List(items) = to_value(&from_langchain(group, fresh)?) {
                written.items.extend(items);
            }
            Ok(())
        };
        if write(&group).is_ok() {
            return written;
        }
        // One of them is in the way of the others: each is tried by itself.
        let first = self.at - group.len() as u64;
        let mut refused = Vec::new();
        for (at, message) in (first..).zip(&group) {
            if let Err(error) = write(std::slice::from_ref(message)) {
                refused.push((at, not_loaded(error)));
            }
        }
        written.refused = refused;
        written
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
        let known = Self::ALL.map(Self::as_str).join(", ");
        found.ok_or_else(|| MessageError::value(format!("{name:?} is no form of messages; there are {known}")))
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
    let kwarg = |(name, value): (&String, &Value)| match (name.as_str(), &message.role) {
        ("refusal", _) => truthy(value),
        ("__openai_role__", Role::System) => true,
        // The raw calls that the tool calls were read from.
        ("tool_calls", Role::Ai(ai)) => default_tool_parser(value).is_ok_and(|(calls, invalid)| {
            invalid.is_empty() && calls.into_iter().eq(ai.tool_calls.iter().cloned().map(Value::from))
        }),
        _ => false,
    };
    let mut fields = vec![
        ("id", message.id.is_some()),
        ("class", loses_class(message)),
        ("name", message.name.as_deref() == Some("")),
        ("content", loses_content(&message.content)),
        ("additional_kwargs", !message.additional_kwargs.iter().all(kwarg)),
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

/// Returns whether a message becomes one of somebody else: of a user who is called so in a chat message, or of the tool
/// whose result stands among the blocks.
fn loses_class(message: &Message) -> bool {
    let is_result = |block: &Value| block.get("type").and_then(Value::as_str) == Some("tool_result");
    match (&message.role, &message.content) {
        (Role::Chat { .. }, _) => true,
        (_, Content::Blocks(blocks)) => blocks.iter().any(is_result),
        _ => false,
    }
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
        // They become texts.
        _ => block.contains_key("json") || block.contains_key("guard_content"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{IdSource, SystemClock};
    use serde_json::json;

    fn openai(message: &Message) -> (serde_json::Value, Vec<&'static str>) {
        let mut ids = IdSource::from_seed(1);
        let written =
            FormWriter::new(MessageForm::OpenAi).push(message.clone(), &mut Fresh::new(&SystemClock, &mut ids));
        (Value::List(written.items).to_json(), written.left_out)
    }

    #[test]
    fn what_openai_cannot_say_is_named() {
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let (items, lost) = openai(&Message::ai(blocks.as_array().unwrap().clone()));
        assert_eq!((items, lost), (json!([{"role": "assistant", "content": blocks}]), vec![]));

        let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "r"});
        assert_eq!(openai(&Message::human(vec![result])).1, ["class"]);
        assert_eq!(openai(&Message::chat("a", "critic")).1, ["class"]);
        assert_eq!(openai(&Message::human(vec![json!({"json": [1]})])).1, ["content"]);
        assert_eq!(openai(&Message::human("a").with_name("")).1, ["name"]);
        assert_eq!(openai(&Message::ai("a").with_additional_kwarg("refusal", "no")).1, Vec::<&str>::new());
        assert_eq!(openai(&Message::ai("a").with_additional_kwarg("refusal", "")).1, ["additional_kwargs"]);

        let raw = |arguments: &str| json!([{"id": "c", "function": {"name": "f", "arguments": arguments}}]);
        let call = Message::ai("").with_tool_call(super::super::ToolCall::new("f", [("a", 1)]).with_id("c"));
        let with_raw = |arguments| openai(&call.clone().with_additional_kwarg("tool_calls", raw(arguments))).1;
        assert_eq!((with_raw("{\"a\": 1}"), with_raw("{\"a\": 2}")), (vec![], vec!["additional_kwargs"]));
        assert_eq!(with_raw("{bad"), ["additional_kwargs"]);
    }
}
