//! Formats in which other programs store a list of messages, item by item, so that a list of any length can be read and
//! written without being held in memory.
//!
//! An item that cannot be read as a message is retained as it is and written as it was; fields that a format cannot
//! express are reported. *Absent:* bytes: an item is a value.

use std::fmt;

use annals_base::{DefaultSource, Map, Value};

use super::openai::{OpenAiOptions, TextFormat};
use super::text::truthy;
use super::{Content, Message, MessageError, MessageLike, Role, default_tool_parser, load, message_to_dict};

/// A format in which other programs store a list of messages.
///
/// Implement it to import and export a format of your own.
///
/// # Example: one item in OpenAI's format
/// ```
/// use annals_base::{DefaultSource, IdSource, SystemClock, Value};
/// use annals_messages::{MessageFormat, OpenAiFormat};
///
/// let mut ids = IdSource::new();
/// let item = Value::from(serde_json::json!({"role": "user", "content": "hi"}));
/// let messages = OpenAiFormat.read(item, &mut DefaultSource::new(&SystemClock, &mut ids))?;
/// assert_eq!((messages[0].kind(), messages[0].text().as_ref()), ("human", "hi"));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub trait MessageFormat: fmt::Debug + Send + Sync {
    /// Returns the name of the format, as the command and the metadata of an import show it: `langchain`.
    fn name(&self) -> &'static str;

    /// Reads one item of a list: one message, or several. Values that older items lack are supplied by `defaults`.
    ///
    /// # Errors
    /// [`MessageError`] with the path of the field; [`Message::opaque`] retains such an item all the same.
    fn read(&self, item: Value, defaults: &mut DefaultSource<'_>) -> Result<Vec<Message>, MessageError>;

    /// Returns a writer of a new list.
    fn writer(&self) -> Box<dyn FormatWriter>;
}

/// Writes messages in a format, one after another.
///
/// # Example: fields that a format cannot express
/// ```
/// use annals_base::{DefaultSource, IdSource, SystemClock};
/// use annals_messages::{Message, MessageFormat, OpenAiFormat, Usage};
///
/// let mut ids = IdSource::new();
/// let mut writer = OpenAiFormat.writer();
/// let answer = Message::ai("hi").with_usage(Usage::new(1, 1));
/// let written = writer.push(answer, &mut DefaultSource::new(&SystemClock, &mut ids));
/// assert_eq!((written.items.len(), written.left_out), (1, vec!["usage_metadata"]));
/// ```
pub trait FormatWriter: fmt::Debug {
    /// Takes the next message and returns the items that are complete now.
    fn push(&mut self, message: Message, defaults: &mut DefaultSource<'_>) -> FormatOutput;

    /// Returns the items that are not written yet. The list may go on.
    fn finish(&mut self, defaults: &mut DefaultSource<'_>) -> FormatOutput;
}

/// The result of writing messages in a format.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct FormatOutput {
    /// The items, in order.
    pub items: Vec<Value>,
    /// The fields that the format cannot express, once for each message.
    pub left_out: Vec<&'static str>,
    /// The messages that the format cannot express, by position in the list, from 0.
    pub refused: Vec<(u64, MessageError)>,
}

/// The type of a message that holds an item which could not be read.
const OPAQUE: &str = "annals.kept";

/// LangChain's dictionaries, `{"type": "human", "data": {..}}`, as `messages_to_dict` gives them. Constructor envelopes
/// and flat dictionaries are read as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LangChainFormat;

impl MessageFormat for LangChainFormat {
    fn name(&self) -> &'static str {
        "langchain"
    }

    fn read(&self, item: Value, _: &mut DefaultSource<'_>) -> Result<Vec<Message>, MessageError> {
        match item {
            Value::Map(map) if map.contains_key("lc") => load(Value::Map(map))?.into_messages(),
            Value::Map(map) => flat(map).and_then(Message::try_from).map(|message| vec![message]),
            other => Err(MessageError::invalid("", "an object", &other)),
        }
    }

    fn writer(&self) -> Box<dyn FormatWriter> {
        Box::new(LangChainWriter)
    }
}

#[derive(Debug)]
struct LangChainWriter;

impl FormatWriter for LangChainWriter {
    fn push(&mut self, message: Message, _: &mut DefaultSource<'_>) -> FormatOutput {
        let item = message.opaque_item().cloned().unwrap_or_else(|| message_to_dict(&message));
        FormatOutput { items: vec![item], ..FormatOutput::default() }
    }

    fn finish(&mut self, _: &mut DefaultSource<'_>) -> FormatOutput {
        FormatOutput::default()
    }
}

/// The messages of OpenAI's Chat Completions API, `{"role": "user", "content": ".."}`. The format cannot express ids,
/// metadata, token usage and artifacts. A text stays a text and a list of blocks a list. A message with calls is read
/// without content too, and written with an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenAiFormat;

impl MessageFormat for OpenAiFormat {
    fn name(&self) -> &'static str {
        "openai"
    }

    fn read(&self, mut item: Value, _: &mut DefaultSource<'_>) -> Result<Vec<Message>, MessageError> {
        // A message with calls need not have content.
        if let Value::Map(members) = &mut item
            && !members.contains_key("content")
            && ["tool_calls", "function_call"].iter().any(|calls| members.get(calls).is_some_and(truthy))
        {
            members.insert("content".to_owned(), Value::Null);
        }
        Message::try_from(MessageLike::from(item)).map(|message| vec![message])
    }

    fn writer(&self) -> Box<dyn FormatWriter> {
        Box::new(OpenAiWriter { position: 0 })
    }
}

#[derive(Debug)]
struct OpenAiWriter {
    /// The position of the next message.
    position: u64,
}

impl FormatWriter for OpenAiWriter {
    fn push(&mut self, message: Message, _: &mut DefaultSource<'_>) -> FormatOutput {
        let at = self.position;
        self.position += 1;
        if let Some(item) = message.opaque_item() {
            return FormatOutput { items: vec![item.clone()], ..FormatOutput::default() };
        }
        // Blocks stay blocks.
        let format = match message.content {
            Content::Text(_) => TextFormat::Text,
            Content::Blocks(_) => TextFormat::Block,
        };
        let options = OpenAiOptions { text_format: format, ..OpenAiOptions::default() };
        match options.convert(usize::try_from(at).unwrap_or(usize::MAX), &message) {
            Ok(items) => {
                let items = items.into_iter().map(Value::Map).collect();
                FormatOutput { items, left_out: left_out(&message), refused: Vec::new() }
            }
            Err(error) => FormatOutput { refused: vec![(at, error)], ..FormatOutput::default() },
        }
    }

    fn finish(&mut self, _: &mut DefaultSource<'_>) -> FormatOutput {
        FormatOutput::default()
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

impl Message {
    /// Returns a message that retains an item which could not be read as one, so that nothing is lost. Its type is
    /// `annals.kept`, and every format writes the item as it was.
    pub fn opaque(item: Value) -> Self {
        let mut message = Self::new(Role::Other { kind: OPAQUE.to_owned() }, "");
        message.extra.insert("item".into(), item);
        message
    }

    /// Returns the item of an [`opaque`](Self::opaque) message.
    pub fn opaque_item(&self) -> Option<&Value> {
        match &self.role {
            Role::Other { kind } if kind == OPAQUE => self.extra.get("item"),
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

/// Returns whether a message changes its role: that of a user with this name in a chat message, or of the tool
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
        Some("refusal") => !only(block, &["type", "refusal"]) || !block.get("refusal").is_some_and(truthy),
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
    use annals_base::{IdSource, SystemClock};
    use serde_json::json;

    fn openai(message: &Message) -> (serde_json::Value, Vec<&'static str>) {
        let mut ids = IdSource::from_seed(1);
        let written = OpenAiFormat.writer().push(message.clone(), &mut DefaultSource::new(&SystemClock, &mut ids));
        (Value::List(written.items).to_json(), written.left_out)
    }

    #[test]
    fn a_message_with_calls_needs_no_content() {
        let mut ids = IdSource::from_seed(1);
        let calls = json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"n\": [1]}"}}]);
        let mut read =
            |item: serde_json::Value| OpenAiFormat.read(item.into(), &mut DefaultSource::new(&SystemClock, &mut ids));
        let message = read(json!({"role": "assistant", "tool_calls": calls})).unwrap().remove(0);
        assert_eq!((message.kind(), message.tool_calls()[0].name.as_str()), ("ai", "f"));
        let calls = json!([{"type": "function", "id": "c", "function": {"name": "f", "arguments": "{\"n\": [1]}"}}]);
        assert_eq!(openai(&message).0, json!([{"role": "assistant", "tool_calls": calls, "content": ""}]));
        for without in [json!({"role": "assistant"}), json!({"role": "assistant", "tool_calls": []})] {
            assert!(read(without).is_err(), "it says nothing");
        }
    }

    fn with_kwarg(mut message: Message, name: &str, value: serde_json::Value) -> Message {
        message.additional_kwargs.insert(name.into(), value.into());
        message
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
        let refusal = |words: &str| Message::ai(vec![json!({"type": "refusal", "refusal": words})]);
        assert_eq!((openai(&refusal("no")).1, openai(&refusal("")).1), (vec![], vec!["content"]));
        assert_eq!(openai(&Message::human("a").with_name("")).1, ["name"]);
        assert_eq!(openai(&with_kwarg(Message::ai("a"), "refusal", "no".into())).1, Vec::<&str>::new());
        assert_eq!(openai(&with_kwarg(Message::ai("a"), "refusal", "".into())).1, ["additional_kwargs"]);

        let raw = |arguments: &str| json!([{"id": "c", "function": {"name": "f", "arguments": arguments}}]);
        let call = Message::ai("").with_tool_call(crate::ToolCall::new("f", [("a", 1)]).with_id("c"));
        let with_raw = |arguments| openai(&with_kwarg(call.clone(), "tool_calls", raw(arguments))).1;
        assert_eq!((with_raw("{\"a\": 1}"), with_raw("{\"a\": 2}")), (vec![], vec!["additional_kwargs"]));
        assert_eq!(with_raw("{bad"), ["additional_kwargs"]);
    }
}
