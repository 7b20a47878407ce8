//! The blocks of a content in the format of OpenAI's Chat Completions API: those of Anthropic, Bedrock, Vertex AI and
//! of this library's own standard are converted.
//!
//! *Absent:* Responses blocks, but for function calls: the API takes none of them.

use super::data::{NO_FILE_NAME, object};
use super::{OpenAiApi, OpenAiOptions, TextFormat, call_object, convert_to_openai_data_block, text_block};
use crate::data_block::is_data_content_block;
use crate::text::{json_dumps, py_repr_map, py_str, py_type, truthy};
use crate::{Content, ErrorClass, Message, MessageError, OpenAiData, Role, Tool, openai_data_block};
use annals_base::{Map, Value};
use data_encoding::BASE64;

/// A content in OpenAI's form.
pub(super) struct Converted {
    pub(super) content: Value,
    /// Messages that follow: results of tools.
    pub(super) results: Vec<Map>,
}

/// A block, and where it stands.
#[derive(Clone, Copy)]
struct At<'a> {
    block: &'a Map,
    message: usize,
    number: usize,
}

impl OpenAiOptions {
    /// Converts a content of blocks. Tool calls that only blocks hold are added to `calls`.
    pub(super) fn blocks(
        &self,
        at: usize,
        message: &Message,
        blocks: &[Value],
        calls: &mut Vec<Value>,
    ) -> Result<Converted, MessageError> {
        let kind = |block: &Value| block.get("type").and_then(Value::as_str) == Some("text");
        if self.text_format == TextFormat::Text && blocks.iter().all(|block| block.as_str().is_some() || kind(block)) {
            return Ok(Converted { content: joined(blocks)?, results: Vec::new() });
        }
        let mut content = Vec::with_capacity(blocks.len());
        let mut results = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            let block = match block {
                Value::Map(block) => At { block, message: at, number },
                text => {
                    content.push(text_block(text.clone()).into());
                    continue;
                }
            };
            match block.kind() {
                Some("tool_use") => calls.extend(block.tool_use(message)?),
                Some("function_call") => {
                    calls.extend(block.function_call(message)?);
                    if self.pass_through_unknown_blocks {
                        content.push(block.block.clone().into());
                    }
                }
                Some("tool_result") => results.extend(self.tool_result(block)?),
                _ => content.extend(self.block(block)?.map(Value::Map)),
            }
        }
        if self.text_format == TextFormat::Text && all_text(&content)? {
            return Ok(Converted { content: joined(&content)?, results });
        }
        Ok(Converted { content: content.into(), results })
    }

    /// Converts a block that stays in the content; `None` if nothing of it can be sent.
    fn block(&self, at: At<'_>) -> Result<Option<Map>, MessageError> {
        let (block, kind) = (at.block, at.kind());
        let has = |name: &str| block.contains_key(name);
        Ok(Some(match kind {
            Some("text") => {
                at.needs("has 'type': 'text' but is missing expected key(s)", &["text"])?;
                text_block(at.get("text"))
            }
            Some("image_url") => {
                at.needs("has 'type': 'image_url' but is missing expected key(s)", &["image_url"])?;
                object([("type", "image_url".into()), ("image_url", at.get("image_url"))])
            }
            _ if is_data_content_block(block) => {
                with_file_name(convert_to_openai_data_block(block, OpenAiApi::ChatCompletions)?)
            }
            _ if kind == Some("image") || has("image") => at.image()?,
            Some("file") if has_file_data(block) => with_file_name(block.clone()),
            Some("input_audio") if openai_data_block(block) == Some(OpenAiData::Audio) => block.clone(),
            _ if kind == Some("json") || has("json") => {
                if !has("json") {
                    return Err(at.refused("has 'type': 'json' but does not have a 'json' key."));
                }
                text_block(json_dumps(&at.get("json"), true).into())
            }
            _ if kind == Some("guard_content") || has("guard_content") => at.guard_content()?,
            Some("media") => at.media()?,
            Some("refusal") => match block.get("refusal").filter(|words| truthy(words)) {
                Some(words) => object([("type", "refusal".into()), ("refusal", words.clone())]),
                None => return Ok(None),
            },
            Some("thinking" | "reasoning") => block.clone(),
            _ if self.pass_through_unknown_blocks => block.clone(),
            _ => {
                let formats = "does not match OpenAI, Anthropic, Bedrock Converse, or VertexAI format.";
                return Err(at.refused(formats));
            }
        }))
    }

    /// Makes a result of a tool a message of its own. Its own blocks are converted as if it stood alone.
    fn tool_result(&self, at: At<'_>) -> Result<Vec<Map>, MessageError> {
        at.needs("has 'type': 'tool_result', but is missing expected key(s)", &["content", "tool_use_id"])?;
        let id = match at.get("tool_use_id") {
            Value::Null => return Err(MessageError::invalid("tool_use_id", "a text", &Value::Null)),
            id => py_str(&id),
        };
        let content = match at.get("content") {
            Value::List(items) => Content::Blocks(items.into_iter().map(text_or_object).collect()),
            other => Content::Text(py_str(&other)),
        };
        let options = Self { text_format: self.text_format, ..Self::default() };
        options.convert(0, &Message::new(Tool::new(id), content))
    }
}

fn text_or_object(item: Value) -> Value {
    match item {
        Value::Str(_) | Value::Map(_) => item,
        other => py_str(&other).into(),
    }
}

/// Joins texts and text blocks with newlines.
fn joined(blocks: &[Value]) -> Result<Value, MessageError> {
    let mut texts = Vec::with_capacity(blocks.len());
    for (number, block) in blocks.iter().enumerate() {
        let text = match block {
            Value::Map(block) => block.get("text").ok_or_else(|| MessageError::key("a text block", "text"))?,
            text => text,
        };
        let wrong = || format!("sequence item {number}: expected str instance, {} found", py_type(text));
        texts.push(text.as_str().ok_or_else(|| MessageError::wrong_type(wrong()))?);
    }
    Ok(texts.join("\n").into())
}

/// Returns whether every block is a text block.
///
/// # Errors
/// [`MessageError`] if one before the first that is something else has no type.
fn all_text(blocks: &[Value]) -> Result<bool, MessageError> {
    for block in blocks {
        match block.get("type") {
            Some(Value::Str(kind)) if kind == "text" => {}
            Some(_) => return Ok(false),
            None => return Err(MessageError::key("the block", "type")),
        }
    }
    Ok(true)
}

fn has_file_data(block: &Map) -> bool {
    let data = block.get("file").and_then(|file| file.get("file_data"));
    data.is_some_and(|data| data.as_str().is_some())
}

/// OpenAI wants a name for a file.
fn with_file_name(mut block: Map) -> Map {
    if let Some(Value::Map(file)) = block.get_mut("file")
        && file.get("filename").is_none_or(Value::is_null)
    {
        file.insert("filename".into(), NO_FILE_NAME.into());
    }
    block
}

/// Bytes in base64, as a member of an object holds them.
fn bytes_of(value: &Value) -> Result<String, MessageError> {
    match value {
        Value::Bytes(bytes) => Ok(BASE64.encode(bytes)),
        other => {
            let found = py_type(other);
            Err(MessageError::wrong_type(format!("a bytes-like object is required, not '{found}'")))
        }
    }
}

fn image_url(mime_type: &str, source: &str, data: &str) -> Map {
    let url = format!("data:{mime_type};{source},{data}");
    object([("type", "image_url".into()), ("image_url", object([("url", url.into())]).into())])
}

impl At<'_> {
    fn kind(&self) -> Option<&str> {
        self.block.get("type").and_then(Value::as_str)
    }

    /// Returns a member, null if there is none.
    fn get(&self, name: &str) -> Value {
        self.block.get(name).cloned().unwrap_or_default()
    }

    /// The error of this block: the reason, and the block itself.
    fn refused(&self, what: &str) -> MessageError {
        let (message, number, block) = (self.message, self.number, py_repr_map(self.block));
        MessageError::value(format!(
            "Unrecognized content block at messages[{message}].content[{number}] {what} Full content block:\n\n{block}"
        ))
    }

    fn needs(&self, what: &str, names: &[&str]) -> Result<(), MessageError> {
        self.needs_in(what, self.block, names)
    }

    /// Checks that an object has members; else `what` and the list of those it lacks are wrong.
    fn needs_in(&self, what: &str, object: &Map, names: &[&str]) -> Result<(), MessageError> {
        let missing: Vec<String> =
            names.iter().filter(|name| !object.contains_key(name)).map(|name| format!("'{name}'")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(self.refused(&format!("{what} [{}].", missing.join(", "))))
    }

    /// An image of Anthropic (`source`) or of Bedrock (`image`).
    fn image(&self) -> Result<Map, MessageError> {
        let member = |name: &str| self.block.get(name).filter(|value| truthy(value));
        if let Some(source) = member("source") {
            let source = as_object("source", source)?;
            let what = "has 'type': 'image' but 'source' is missing expected key(s)";
            self.needs_in(what, source, &["media_type", "type", "data"])?;
            let text = |name: &str| py_str(&source[name]);
            return Ok(image_url(&text("media_type"), &text("type"), &text("data")));
        }
        if let Some(image) = member("image") {
            let image = as_object("image", image)?;
            let what = "has key 'image', but 'image' is missing expected key(s)";
            self.needs_in(what, image, &["source", "format"])?;
            let bytes = as_object("source", &image["source"])?.get("bytes");
            let bytes = bytes_of(bytes.ok_or_else(|| MessageError::key("an image", "bytes"))?)?;
            return Ok(image_url(&format!("image/{}", py_str(&image["format"])), "base64", &bytes));
        }
        Err(self.refused("has 'type': 'image' but does not have a 'source' or 'image' key."))
    }

    /// A text that Bedrock checks.
    fn guard_content(&self) -> Result<Map, MessageError> {
        let guard = self.block.get("guard_content").map(|guard| as_object("guard_content", guard)).transpose()?;
        let Some(text) = guard.and_then(|guard| guard.get("text")) else {
            let place = format!("messages[{}].content[{}]", self.message, self.number);
            let what = format!("has 'type': 'guard_content' but does not have a {place}['guard_content']['text'] key.");
            return Err(self.refused(&what));
        };
        let text = match text {
            Value::Map(inner) => inner.get("text").ok_or_else(|| MessageError::key("guard_content", "text"))?,
            text => text,
        };
        Ok(text_block(text.clone()))
    }

    /// An image of Vertex AI.
    fn media(&self) -> Result<Map, MessageError> {
        self.needs("has 'type': 'media' but does not have key(s)", &["mime_type", "data"])?;
        let mime_type = match self.get("mime_type") {
            Value::Str(mime_type) => mime_type,
            other => {
                let found = py_type(&other);
                return Err(MessageError::wrong_type(format!("argument of type '{found}' is not iterable")));
            }
        };
        if !mime_type.contains("image") {
            return Err(MessageError::value(format!(
                "OpenAI messages can only support text and image data. Received content block with media of type: \
                 {mime_type}"
            )));
        }
        Ok(image_url(&mime_type, "base64", &bytes_of(&self.get("data"))?))
    }

    /// A tool call of Anthropic that is not among the tool calls of the message.
    fn tool_use(&self, message: &Message) -> Result<Option<Value>, MessageError> {
        let what = "has 'type': 'tool_use', but is missing expected key(s)";
        self.needs(what, &["id", "name", "input"])?;
        let arguments = || json_dumps(&self.get("input"), false).into();
        Ok((!is_called(message, &self.get("id"))?).then(|| call_object(self.get("id"), self.get("name"), arguments())))
    }

    /// A function call of OpenAI's Responses that is not among the tool calls of the message.
    fn function_call(&self, message: &Message) -> Result<Option<Value>, MessageError> {
        if is_called(message, &self.get("call_id"))? {
            return Ok(None);
        }
        let what = "has 'type': 'tool_use', but is missing expected key(s)";
        self.needs(what, &["call_id", "name", "arguments"])?;
        Ok(Some(call_object(self.get("call_id"), self.get("name"), self.get("arguments"))))
    }
}

fn as_object<'a>(name: &'static str, value: &'a Value) -> Result<&'a Map, MessageError> {
    value.as_map().ok_or_else(|| {
        let reason = format!("{name}: expected an object, found a {}", value.kind());
        MessageError::refused(ErrorClass::TypeError, reason)
    })
}

/// Returns whether the id is that of a tool call of the message.
fn is_called(message: &Message, id: &Value) -> Result<bool, MessageError> {
    match &message.role {
        Role::Ai(ai) => Ok(ai.tool_calls.iter().any(|call| match (&call.id, id) {
            (Some(call), Value::Str(id)) => call == id,
            (call, id) => call.is_none() && id.is_null(),
        })),
        _ => {
            let class = message.class().map_or("message", |class| class.name());
            let reason = format!("'{class}' object has no attribute 'tool_calls'");
            Err(MessageError::refused(ErrorClass::AttributeError, reason))
        }
    }
}
