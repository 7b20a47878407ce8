//! Messages in the format of OpenAI's Chat Completions API.
//!
//! *Absent:* the way back, which is [`convert_to_messages`](super::convert_to_messages), and the API.

mod blocks;
mod data;

use std::str::FromStr;

pub use data::{OpenAiApi, convert_to_openai_data_block, convert_to_openai_image_block};

use super::text::{json_dumps_map, truthy};
use super::{Content, Message, MessageError, Role, ToolCall};
use annals_base::{Map, Value};
use blocks::Converted;
use data::object;

/// How a content that is only text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TextFormat {
    /// As a text; several are joined with newlines.
    #[default]
    Text,
    /// As a list of text blocks.
    Block,
}

impl FromStr for TextFormat {
    type Err = MessageError;

    fn from_str(text: &str) -> Result<Self, MessageError> {
        match text {
            "string" => Ok(Self::Text),
            "block" => Ok(Self::Block),
            _ => Err(MessageError::value(format!(
                "Unrecognized text_format='{text}', expected one of 'string' or 'block'."
            ))),
        }
    }
}

/// How [`convert_to_openai_messages`] converts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenAiOptions {
    /// The format of a content that is only text.
    pub text_format: TextFormat,
    /// True if ids are written; OpenAI's API has none.
    pub include_id: bool,
    /// True if a block of an unknown form stays as it is; else it is an error.
    pub pass_through_unknown_blocks: bool,
}

impl Default for OpenAiOptions {
    /// Converts as LangChain does unless told otherwise: texts as texts, no ids, unknown blocks as they are.
    fn default() -> Self {
        Self { text_format: TextFormat::Text, include_id: false, pass_through_unknown_blocks: true }
    }
}

impl OpenAiOptions {
    /// Converts the message with the number `at`: itself, then the results of tools that its content holds.
    pub(super) fn convert(&self, at: usize, message: &Message) -> Result<Vec<Map>, MessageError> {
        let mut out = object([("role", openai_role(message)?.into())]);
        let mut calls: Vec<Value> = message.tool_calls().iter().map(tool_call).collect();
        let content = match &message.content {
            Content::Text(text) if text.is_empty() => Converted { content: self.text(Vec::new()), results: Vec::new() },
            Content::Text(text) => Converted { content: self.text(vec![text.clone().into()]), results: Vec::new() },
            Content::Blocks(blocks) => self.blocks(at, message, blocks, &mut calls)?,
        };
        let mut set = |name: &str, value: Value| _ = out.insert(name.to_owned(), value);
        if let Some(name) = message.name.as_ref().filter(|name| !name.is_empty()) {
            set("name", name.as_str().into());
        }
        if !calls.is_empty() {
            set("tool_calls", calls.into());
        }
        if let Some(refusal) = message.additional_kwargs.get("refusal").filter(|refusal| truthy(refusal)) {
            set("refusal", refusal.clone());
        }
        if let Role::Tool(tool) = &message.role {
            set("tool_call_id", tool.tool_call_id.as_str().into());
        }
        if let Some(id) = message.id.as_ref().filter(|id| self.include_id && !id.is_empty()) {
            set("id", id.as_str().into());
        }
        let empty = !truthy(&content.content);
        set("content", content.content);
        let mut all = content.results;
        let had = matches!(&message.content, Content::Blocks(blocks) if !blocks.is_empty());
        if !(had && empty && !all.is_empty()) {
            all.insert(0, out);
        }
        Ok(all)
    }

    /// Writes texts in the format that was asked for.
    fn text(&self, texts: Vec<Value>) -> Value {
        match self.text_format {
            TextFormat::Text => {
                let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
                texts.join("\n").into()
            }
            TextFormat::Block => texts.into_iter().map(|text| Value::from(text_block(text))).collect::<Vec<_>>().into(),
        }
    }
}

fn text_block(text: Value) -> Map {
    object([("type", "text".into()), ("text", text)])
}

/// A tool call as the API has it.
fn tool_call(call: &ToolCall) -> Value {
    call_object(call.id.clone().into(), call.name.as_str().into(), json_dumps_map(&call.args, false).into())
}

fn call_object(id: Value, name: Value, arguments: Value) -> Value {
    let function = object([("name", name), ("arguments", arguments)]);
    object([("type", "function".into()), ("id", id), ("function", function.into())]).into()
}

/// Returns who speaks as OpenAI's API calls them.
///
/// # Errors
/// [`MessageError`] for a removal, a type that is not known, and a system message whose `__openai_role__` is not a
/// text.
pub(super) fn openai_role(message: &Message) -> Result<&str, MessageError> {
    Ok(match &message.role {
        Role::Human => "user",
        Role::Ai(_) => "assistant",
        Role::Tool(_) => "tool",
        Role::Function => "function",
        Role::Chat { role } => role,
        Role::System => match message.additional_kwargs.get("__openai_role__") {
            None => "system",
            Some(Value::Str(role)) => role,
            Some(other) => {
                let found = super::text::py_type(other);
                return Err(MessageError::wrong_type(format!("Expected '__openai_role__' to be a str, got {found}")));
            }
        },
        Role::Remove | Role::Other { .. } => {
            return Err(MessageError::value(format!("Unknown BaseMessage type {}", message.kind())));
        }
    })
}

/// Returns the messages as OpenAI's Chat Completions API takes them, each an object. A message whose content holds
/// results of tools becomes several.
///
/// Fields that the API does not define are left out: status, artifact, metadata, token usage, invalid tool calls.
///
/// # Errors
/// [`MessageError`] naming `messages[i].content[j]` if a block cannot be said in the API; if there is a removal or a
/// message of an unknown type.
///
/// # Example
/// ```
/// use annals_messages::{Message, OpenAiOptions, ToolCall, convert_to_openai_messages};
///
/// let call = ToolCall::new("weather", [("city", "Bern")]).with_id("c1");
/// let chat = [Message::human("How is Bern?"), Message::ai("").with_tool_call(call)];
/// let objects = convert_to_openai_messages(&chat, &OpenAiOptions::default())?;
/// let json = serde_json::to_value(&objects).expect("plain data");
/// assert_eq!(json[0], serde_json::json!({"role": "user", "content": "How is Bern?"}));
/// assert_eq!(json[1]["tool_calls"][0]["function"]["arguments"], r#"{"city": "Bern"}"#);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn convert_to_openai_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    options: &OpenAiOptions,
) -> Result<Vec<Map>, MessageError> {
    let mut all = Vec::new();
    for (at, message) in messages.into_iter().enumerate() {
        all.extend(options.convert(at, message)?);
    }
    Ok(all)
}

/// Returns a message of the model as OpenAI's API takes it: text blocks keep only their text, reasoning and tool calls
/// are taken out of the content. Other contents stay as they are.
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::{Content, Message, v1_to_chat_completions};
///
/// let json = serde_json::json!([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "42", "index": 1}]);
/// let answer = v1_to_chat_completions(Message::ai(Content::try_from(Value::from(json))?));
/// assert_eq!(answer.content.to_value(), Value::from(serde_json::json!([{"type": "text", "text": "42"}])));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn v1_to_chat_completions(mut message: Message) -> Message {
    let Content::Blocks(blocks) = &mut message.content else { return message };
    let kind = |block: &Value| block.get("type").and_then(Value::as_str).map(str::to_owned);
    blocks.retain(|block| !matches!(kind(block).as_deref(), Some("reasoning" | "tool_call")));
    for block in blocks.iter_mut().filter(|block| kind(block).as_deref() == Some("text")) {
        if let Value::Map(block) = block {
            block.retain(|name, _| name == "type" || name == "text");
        }
    }
    message
}
