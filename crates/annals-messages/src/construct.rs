//! A message from keyword arguments, by the rules of LangChain's constructors.
//!
//! *Absent:* the forms around the arguments (`dict`, `envelope`, `checkpoint`, `coerce`).

use super::tool::{list, maybe_string, object, string};
use super::tool_parser::{default_tool_chunk_parser, default_tool_parser};
use super::{Ai, Chunk, Content, Message, MessageClass, MessageError, Role, Tool, Usage};
use crate::text::{py_float, py_str, py_type, truthy};
use annals_base::{Map, Value};

impl MessageClass {
    /// Makes a message of this class of keyword arguments, as its constructor in LangChain does: fields are checked and
    /// some of them converted, raw tool calls in `additional_kwargs` are read, and undeclared fields are stored in
    /// [`Message::extra`].
    ///
    /// # Errors
    /// [`MessageError`] with the path of a field that is missing, has a wrong shape or is not defined.
    ///
    /// # Example: what a tool returns becomes a text
    /// ```
    /// use annals_base::Value;
    /// use annals_messages::MessageClass;
    ///
    /// let kwargs = Value::from(serde_json::json!({"content": {"celsius": 12}, "tool_call_id": 7}));
    /// let message = MessageClass::Tool.construct(kwargs.as_map().cloned().unwrap_or_default())?;
    /// assert_eq!(message.text(), "{'celsius': 12}");
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    pub fn construct(self, mut kwargs: Map) -> Result<Message, MessageError> {
        let whole = self.whole();
        take_blocks(whole, &mut kwargs);
        let content = kwargs.shift_remove("content");
        let (content, tool_call_id) = match whole {
            Self::Remove if content.as_ref().is_some_and(truthy) => return Err(MessageError::RemoveWithContent),
            Self::Remove if !kwargs.contains_key("id") => return Err(MessageError::argument("a removal", "id")),
            Self::Remove => (Content::default(), None),
            Self::Tool => {
                let content = tool_content(content.unwrap_or_default())?;
                let id = kwargs.shift_remove("tool_call_id");
                (content, Some(tool_call_id(id.ok_or_else(|| MessageError::key("a tool message", "tool_call_id"))?)?))
            }
            _ => (content.ok_or_else(|| MessageError::missing("a message", "content"))?.try_into()?, None),
        };
        match kwargs.shift_remove("type") {
            Some(Value::Str(kind)) if kind == self.kind() => {}
            Some(other) => return Err(MessageError::invalid("type", self.kind(), &other)),
            None => {}
        }
        let name = match (whole, kwargs.shift_remove("name")) {
            (Self::Function, None) => return Err(MessageError::missing("a function message", "name")),
            (Self::Function, Some(name)) => Some(string("name", name)?),
            (_, name) => maybe_string("name", name.unwrap_or_default())?,
        };
        let id = kwargs.shift_remove("id").map_or(Ok(None), message_id)?;
        let additional_kwargs = object_or_empty("additional_kwargs", &mut kwargs)?;
        let response_metadata = object_or_empty("response_metadata", &mut kwargs)?;
        if whole == Self::Ai {
            take_raw_calls(self, &additional_kwargs, &mut kwargs);
        }
        if self == Self::Ai {
            complete_chunks(&mut kwargs)?;
        }
        let role = whole.role(tool_call_id, &mut kwargs)?;
        let chunk = match self {
            Self::AiChunk => Some(Box::new(take_chunk(&mut kwargs)?)),
            class => class.is_chunk().then(Box::default),
        };
        let mut message =
            Message { id, name, content, role, additional_kwargs, response_metadata, extra: kwargs, chunk };
        check_pieces(&message)?;
        message.settle();
        Ok(message)
    }

    /// Makes the role of this class, taking the fields that only it has out of `kwargs`.
    fn role(self, tool_call_id: Option<String>, kwargs: &mut Map) -> Result<Role, MessageError> {
        Ok(match self.whole() {
            Self::System => Role::System,
            Self::Ai => take_ai(kwargs)?.into(),
            Self::Tool => take_tool(tool_call_id.unwrap_or_default(), kwargs)?.into(),
            Self::Function => Role::Function,
            Self::Chat => match kwargs.shift_remove("role") {
                Some(role) => Role::Chat { role: string("role", role)? },
                None => return Err(MessageError::missing("a chat message", "role")),
            },
            Self::Remove => Role::Remove,
            _ => Role::Human,
        })
    }
}

/// A chunk keeps the arguments of its calls as a text of JSON, unless it has that text.
fn check_pieces(message: &Message) -> Result<(), MessageError> {
    if !message.chunk.as_ref().is_some_and(|chunk| chunk.tool_call_chunks.is_empty()) {
        return Ok(());
    }
    match message.tool_calls().iter().find_map(|call| call.args.values().find_map(other_than_json)) {
        Some(odd) => {
            let reason = format!("Object of type {} is not JSON serializable", py_type(odd));
            Err(MessageError::wrong_type(reason).within("tool_calls"))
        }
        None => Ok(()),
    }
}

/// Returns a value that JSON lacks: bytes, and extensions other than integers.
fn other_than_json(value: &Value) -> Option<&Value> {
    match value {
        Value::List(items) => items.iter().find_map(other_than_json),
        Value::Map(map) => map.values().find_map(other_than_json),
        Value::Ext(..) if value.big_integer().is_some() => None,
        Value::Bytes(_) | Value::Ext(..) => Some(value),
        _ => None,
    }
}

/// `content_blocks` stand in for `content`; tool calls among them become those of the message.
fn take_blocks(whole: MessageClass, kwargs: &mut Map) {
    let Some(blocks) = kwargs.shift_remove("content_blocks").filter(|blocks| !blocks.is_null()) else { return };
    if whole == MessageClass::Ai && !kwargs.contains_key("tool_calls") {
        let is_call = |block: &&Value| block.get("type").and_then(Value::as_str) == Some("tool_call");
        let calls: Vec<Value> = blocks.as_list().unwrap_or_default().iter().filter(is_call).cloned().collect();
        if !calls.is_empty() {
            kwargs.insert("tool_calls".into(), Value::List(calls));
        }
    }
    kwargs.insert("content".into(), blocks);
}

/// Converts the result of a tool to a text, unless it is a text or a list of texts and objects.
fn tool_content(content: Value) -> Result<Content, MessageError> {
    let shown = |item: Value| match item {
        Value::Str(_) | Value::Map(_) => item,
        other => Value::Str(py_str(&other)),
    };
    match content {
        Value::List(items) => Value::List(items.into_iter().map(shown).collect()).try_into(),
        other => Ok(Content::Text(py_str(&other))),
    }
}

fn tool_call_id(id: Value) -> Result<String, MessageError> {
    match id {
        Value::Str(text) => Ok(text),
        Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) => Ok(py_str(&id)),
        other => Err(MessageError::invalid("tool_call_id", "a text", &other)),
    }
}

/// Accepts what LangChain turns into an id: a text, or a number.
fn message_id(id: Value) -> Result<Option<String>, MessageError> {
    match id {
        Value::Null => Ok(None),
        Value::Str(text) => Ok(Some(text)),
        Value::Int(n) => Ok(Some(n.to_string())),
        Value::UInt(n) => Ok(Some(n.to_string())),
        Value::Float(x) if x.is_finite() => Ok(Some(py_float(x))),
        other => Err(MessageError::invalid("id", "a text, a number or null", &other)),
    }
}

/// Reads the raw calls of a provider, if the message has no others. Unreadable calls are left alone, as in LangChain.
fn take_raw_calls(class: MessageClass, additional_kwargs: &Map, kwargs: &mut Map) {
    let given = ["tool_calls", "invalid_tool_calls", "tool_call_chunks"];
    let raw = additional_kwargs.get("tool_calls").filter(|raw| truthy(raw));
    let Some(raw) = raw.filter(|_| !given.iter().any(|name| kwargs.get(name).is_some_and(truthy))) else { return };
    if class.is_chunk() {
        if let Ok(chunks) = default_tool_chunk_parser(raw) {
            kwargs.insert("tool_call_chunks".into(), Value::List(chunks));
        }
    } else if let Ok((calls, invalid)) = default_tool_parser(raw) {
        kwargs.insert("tool_calls".into(), Value::List(calls));
        kwargs.insert("invalid_tool_calls".into(), Value::List(invalid));
    }
}

/// Gives chunks of tool calls, which a whole message only has as an extra field, the fields that they lack.
fn complete_chunks(kwargs: &mut Map) -> Result<(), MessageError> {
    let Some(Value::List(chunks)) = kwargs.get_mut("tool_call_chunks") else { return Ok(()) };
    for (at, chunk) in chunks.iter_mut().enumerate() {
        let Value::Map(map) = chunk else { continue };
        let names = ["name", "args", "id", "index"];
        let fields = names.map(|name| (name.to_owned(), map.shift_remove(name).unwrap_or_default()));
        map.shift_remove("type");
        if let Some(name) = map.keys().next() {
            let path = format!("tool_call_chunks[{at}].{name}");
            return Err(MessageError::Unexpected { path, kind: "a chunk of a tool call" });
        }
        map.extend(fields);
        map.insert("type".into(), "tool_call_chunk".into());
    }
    Ok(())
}

pub(super) fn take_ai(fields: &mut Map) -> Result<Ai, MessageError> {
    let mut ai = Ai::default();
    if let Some(calls) = fields.shift_remove("tool_calls") {
        ai.tool_calls = list("tool_calls", calls)?;
    }
    if let Some(calls) = fields.shift_remove("invalid_tool_calls") {
        ai.invalid_tool_calls = list("invalid_tool_calls", calls)?;
    }
    if let Some(usage) = fields.shift_remove("usage_metadata").filter(|usage| !usage.is_null()) {
        ai.usage = Some(Box::new(Usage::try_from(usage)?));
    }
    Ok(ai)
}

pub(super) fn take_tool(tool_call_id: String, fields: &mut Map) -> Result<Tool, MessageError> {
    let mut tool = Tool::new(tool_call_id);
    tool.artifact = fields.shift_remove("artifact").unwrap_or_default();
    if let Some(status) = fields.shift_remove("status") {
        tool.status = status.try_into()?;
    }
    Ok(tool)
}

pub(super) fn take_chunk(fields: &mut Map) -> Result<Chunk, MessageError> {
    let mut chunk = Chunk::default();
    if let Some(chunks) = fields.shift_remove("tool_call_chunks") {
        chunk.tool_call_chunks = list("tool_call_chunks", chunks)?;
    }
    match fields.shift_remove("chunk_position") {
        None | Some(Value::Null) => {}
        Some(Value::Str(text)) if text == "last" => chunk.last = true,
        Some(other) => return Err(MessageError::invalid("chunk_position", "\"last\" or null", &other)),
    }
    Ok(chunk)
}

pub(super) fn object_or_empty(field: &'static str, map: &mut Map) -> Result<Map, MessageError> {
    map.shift_remove(field).map_or_else(|| Ok(Map::new()), |value| object(field, value))
}
