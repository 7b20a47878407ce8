//! Tool calls and their results, and the fields that only the messages of a model and of a tool have.
//!
//! *Absent:* the calling, and the raw calls of a provider (they stay in `additional_kwargs`).

use serde::de::DeserializeOwned;

use super::construct::{take_ai, take_tool};
use super::{ErrorClass, MessageError, Usage, usage};
use annals_base::{CodecError, Map, Value, ValueView};

/// The fields that only a message of the model has.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Ai {
    /// The tool calls it asks for.
    pub tool_calls: Vec<ToolCall>,
    /// Tool calls whose arguments could not be read.
    pub invalid_tool_calls: Vec<InvalidToolCall>,
    /// The tokens used (`usage_metadata`).
    #[doc(alias = "usage_metadata")]
    pub usage: Option<Box<Usage>>,
}

impl Ai {
    /// Returns the fields in the order of LangChain.
    pub(super) fn fields(&self) -> [(&'static str, ValueView<'_>); 3] {
        [
            ("tool_calls", self.tool_calls.iter().map(ToolCall::view).collect()),
            ("invalid_tool_calls", self.invalid_tool_calls.iter().map(InvalidToolCall::view).collect()),
            ("usage_metadata", self.usage.as_deref().map(Usage::view).into()),
        ]
    }

    pub(super) fn view(&self) -> ValueView<'_> {
        ValueView::Fields(self.fields().into())
    }
}

/// Fields that are missing have their defaults; unknown ones are ignored.
impl TryFrom<Value> for Ai {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        take_ai(&mut object("", value)?)
    }
}

/// The fields that only the result of a tool call has.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tool {
    /// The call that this answers.
    pub tool_call_id: String,
    /// The value that the tool returned besides the content; not sent to the model. Null without one.
    pub artifact: Value,
    /// The status of the call.
    pub status: ToolStatus,
}

impl Tool {
    /// Returns the fields of a successful answer without artifact.
    pub fn new(tool_call_id: impl Into<String>) -> Self {
        Self { tool_call_id: tool_call_id.into(), artifact: Value::Null, status: ToolStatus::Success }
    }
}

impl Tool {
    /// Returns the fields in the order of LangChain.
    pub(super) fn fields(&self) -> [(&'static str, ValueView<'_>); 3] {
        let id = ValueView::from(&self.tool_call_id);
        [("tool_call_id", id), ("artifact", (&self.artifact).into()), ("status", self.status.view())]
    }

    pub(super) fn view(&self) -> ValueView<'_> {
        ValueView::Fields(self.fields().into())
    }
}

/// Fields but the id of the call may be missing; unknown ones are ignored.
impl TryFrom<Value> for Tool {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let mut map = object("", value)?;
        let id = map.shift_remove("tool_call_id");
        let id = id.ok_or_else(|| MessageError::missing("a tool message", "tool_call_id"))?;
        take_tool(string("tool_call_id", id)?, &mut map)
    }
}

/// The status of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ToolStatus {
    /// It did.
    #[default]
    Success,
    /// It failed; the content says how.
    Error,
}

impl ToolStatus {
    /// Returns `success` or `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
        }
    }
}

impl ToolStatus {
    pub(super) fn view(self) -> ValueView<'static> {
        self.as_str().into()
    }
}

impl TryFrom<Value> for ToolStatus {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        match value.as_str() {
            Some("success") => Ok(Self::Success),
            Some("error") => Ok(Self::Error),
            _ => Err(MessageError::invalid("status", "\"success\" or \"error\"", &value)),
        }
    }
}

/// A request of the model to call a tool.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct ToolCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments by name.
    pub args: Map,
    /// The id by which the result refers to the call.
    pub id: Option<String>,
}

impl ToolCall {
    /// Returns a call without id.
    ///
    /// # Example: a call with an id
    /// ```
    /// use annals_messages::ToolCall;
    ///
    /// let call = ToolCall::new("search", [("query", "rust")]).with_id("call-1");
    /// let json = serde_json::to_string(&call)?;
    /// assert_eq!(json, r#"{"name":"search","args":{"query":"rust"},"id":"call-1","type":"tool_call"}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn new<K: Into<String>, V: Into<Value>>(
        name: impl Into<String>,
        args: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let args = args.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { name: name.into(), args, id: None }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl ToolCall {
    /// Returns the arguments as a type of the program.
    ///
    /// # Errors
    /// [`MessageError`] naming the argument that is missing or has a wrong type.
    ///
    /// # Example
    /// ```
    /// use annals_messages::ToolCall;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Weather {
    ///     city: String,
    /// }
    ///
    /// let weather: Weather = ToolCall::new("weather", [("city", "Bern")]).args_as()?;
    /// assert_eq!(weather.city, "Bern");
    /// let error = ToolCall::new("weather", [("town", "Bern")]).args_as::<Weather>().err().unwrap();
    /// assert_eq!(error.to_string(), "args: missing field `city`");
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    pub fn args_as<T: DeserializeOwned>(&self) -> Result<T, MessageError> {
        Value::Map(self.args.clone()).to().map_err(|error| {
            let reason = if let CodecError::Decode { reason, .. } = error { reason } else { error.to_string() };
            MessageError::refused(ErrorClass::ValidationError, reason).within("args")
        })
    }
}

/// A tool call whose arguments could not be read.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct InvalidToolCall {
    /// The name of the tool.
    pub name: Option<String>,
    /// The arguments as the model wrote them.
    pub args: Option<String>,
    /// The id of the call.
    pub id: Option<String>,
    /// The reason why the arguments could not be read.
    pub error: Option<String>,
}

impl InvalidToolCall {
    /// Returns a call of an unknown tool with this error. The other fields are assigned afterwards.
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
}

/// A chunk of a tool call, as a model streams it: chunks with one index are parts of one call.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct ToolCallChunk {
    /// The name of the tool, or a part of it.
    pub name: Option<String>,
    /// A part of the text of the arguments.
    pub args: Option<String>,
    /// The id of the call.
    pub id: Option<String>,
    /// The number of the call in the message.
    pub index: Option<i64>,
}

impl ToolCallChunk {
    /// Returns a chunk of the arguments of the call with this number in the message.
    pub fn new(index: i64, args: impl Into<String>) -> Self {
        Self { args: Some(args.into()), index: Some(index), ..Self::default() }
    }

    /// Sets the name of the tool.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the id of the call.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl ToolCall {
    /// The order of the names is that of LangChain: it is visible in text output.
    pub(super) fn view(&self) -> ValueView<'_> {
        let (name, args) = ((&self.name).into(), (&self.args).into());
        let id = self.id.as_ref().into();
        ValueView::Fields(vec![("name", name), ("args", args), ("id", id), ("type", "tool_call".into())])
    }
}

impl From<ToolCall> for Value {
    fn from(call: ToolCall) -> Self {
        let mut map = Map::with_capacity(4);
        map.insert("name".into(), call.name.into());
        map.insert("args".into(), call.args.into());
        map.insert("id".into(), call.id.into());
        map.insert("type".into(), "tool_call".into());
        Self::Map(map)
    }
}

impl TryFrom<Value> for ToolCall {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let (mut name, mut args, mut id, mut unknown) = (None, None, None, None);
        for (field, value) in object("", value)? {
            match field.as_str() {
                "name" => name = Some(value),
                "args" => args = Some(value),
                "id" => id = Some(value),
                "type" | "extras" => {}
                _ => unknown = unknown.or(Some(field)),
            }
        }
        let needed = |value: Option<Value>, field| value.ok_or_else(|| MessageError::argument("a tool call", field));
        let (name, args, id) = (needed(name, "name")?, needed(args, "args")?, needed(id, "id")?);
        if let Some(path) = unknown {
            return Err(MessageError::Unexpected { kind: "a tool call", path });
        }
        Ok(Self { name: string("name", name)?, args: object("args", args)?, id: maybe_string("id", id)? })
    }
}

impl InvalidToolCall {
    pub(super) fn view(&self) -> ValueView<'_> {
        ValueView::Fields(vec![
            ("type", "invalid_tool_call".into()),
            ("id", self.id.as_ref().into()),
            ("name", self.name.as_ref().into()),
            ("args", self.args.as_ref().into()),
            ("error", self.error.as_ref().into()),
        ])
    }

    /// The order of the names in a message that was read from the chunks of a call.
    pub(super) fn view_of_chunk(&self) -> ValueView<'_> {
        ValueView::Fields(vec![
            ("name", self.name.as_ref().into()),
            ("args", self.args.as_ref().into()),
            ("id", self.id.as_ref().into()),
            ("error", self.error.as_ref().into()),
            ("type", "invalid_tool_call".into()),
        ])
    }
}

impl TryFrom<Value> for InvalidToolCall {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let mut map = object("", value)?;
        let mut take = |field| map.shift_remove(field).unwrap_or_default();
        let (name, args, id, error) = (take("name"), take("args"), take("id"), take("error"));
        nothing_else("an invalid tool call", &map, &["type"])?;
        Ok(Self {
            name: maybe_string("name", name)?,
            args: maybe_string("args", args)?,
            id: maybe_string("id", id)?,
            error: maybe_string("error", error)?,
        })
    }
}

impl From<InvalidToolCall> for Value {
    fn from(call: InvalidToolCall) -> Self {
        let fields = [("id", call.id), ("name", call.name), ("args", call.args), ("error", call.error)];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        Self::Map(std::iter::once(("type".to_owned(), "invalid_tool_call".into())).chain(fields).collect())
    }
}

impl ToolCallChunk {
    pub(super) fn view(&self) -> ValueView<'_> {
        ValueView::Fields(vec![
            ("name", self.name.as_ref().into()),
            ("args", self.args.as_ref().into()),
            ("id", self.id.as_ref().into()),
            ("index", self.index.into()),
            ("type", "tool_call_chunk".into()),
        ])
    }
}

impl From<ToolCallChunk> for Value {
    fn from(chunk: ToolCallChunk) -> Self {
        let mut map = Map::with_capacity(5);
        map.insert("name".into(), chunk.name.into());
        map.insert("args".into(), chunk.args.into());
        map.insert("id".into(), chunk.id.into());
        map.insert("index".into(), chunk.index.into());
        map.insert("type".into(), "tool_call_chunk".into());
        Self::Map(map)
    }
}

impl TryFrom<Value> for ToolCallChunk {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let mut map = object("", value)?;
        let mut take = |field| map.shift_remove(field).unwrap_or_default();
        let (name, args, id, index) = (take("name"), take("args"), take("id"), take("index"));
        nothing_else("a tool call chunk", &map, &["type"])?;
        let index = match index {
            Value::Null => None,
            index => Some(usage::count("index", index)?),
        };
        Ok(Self {
            name: maybe_string("name", name)?,
            args: maybe_string("args", args)?,
            id: maybe_string("id", id)?,
            index,
        })
    }
}

pub(super) fn object(field: &'static str, value: Value) -> Result<Map, MessageError> {
    match value {
        Value::Map(map) => Ok(map),
        other => Err(MessageError::invalid(field, "an object", &other)),
    }
}

pub(super) fn string(field: &'static str, value: Value) -> Result<String, MessageError> {
    match value {
        Value::Str(text) => Ok(text),
        other => Err(MessageError::invalid(field, "a text", &other)),
    }
}

pub(super) fn maybe_string(field: &'static str, value: Value) -> Result<Option<String>, MessageError> {
    match value {
        Value::Null => Ok(None),
        Value::Str(text) => Ok(Some(text)),
        other => Err(MessageError::invalid(field, "a text or null", &other)),
    }
}

/// Reads a list of objects such as tool calls.
pub(super) fn list<T: TryFrom<Value, Error = MessageError>>(
    field: &'static str,
    value: Value,
) -> Result<Vec<T>, MessageError> {
    match value {
        Value::List(items) => {
            let read = |(at, item)| T::try_from(item).map_err(|e| e.within(format_args!("{field}[{at}]")));
            items.into_iter().enumerate().map(read).collect()
        }
        other => Err(MessageError::invalid(field, "a list", &other)),
    }
}

fn nothing_else(kind: &'static str, map: &Map, dropped: &[&str]) -> Result<(), MessageError> {
    match map.keys().find(|name| !dropped.contains(&name.as_str())) {
        Some(field) => Err(MessageError::Unexpected { kind, path: field.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tool_call_needs_its_three_fields_and_no_other() {
        let call = |json: serde_json::Value| ToolCall::try_from(Value::from(json));
        let full = json!({"name": "f", "args": {"a": 1}, "id": null, "type": "x", "extras": {"dropped": 1}});
        assert_eq!(call(full).unwrap(), ToolCall::new("f", [("a", 1)]));
        assert!(call(json!({"name": "f", "args": {}})).unwrap_err().to_string().contains("id: a tool call needs it"));
        let odd = call(json!({"name": "f", "args": {}, "id": "1", "index": 0})).unwrap_err();
        assert_eq!(odd.to_string(), "index: a tool call has no such field");
        assert!(call(json!({"name": "f", "args": [], "id": "1"})).is_err());
        assert_eq!(
            Value::from_serialize(&ToolCall::new("f", [("a", 1)])).unwrap(),
            Value::from(ToolCall::new("f", [("a", 1)]))
        );
    }

    #[test]
    fn an_invalid_tool_call_may_lack_everything() {
        let call = InvalidToolCall::new("bad");
        assert_eq!(InvalidToolCall::try_from(Value::from(json!({"error": "bad"}))).unwrap(), call);
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(text, r#"{"type":"invalid_tool_call","id":null,"name":null,"args":null,"error":"bad"}"#);
        assert_eq!(serde_json::from_str::<InvalidToolCall>(&text).unwrap(), call);
    }
}
