//! Fields that only some messages have: getters that do not require a match on the role, and setters for building.
//!
//! *Absent:* what every message has, see [`Message`].

use std::fmt;

use super::text::json_dumps_map;
use super::{InvalidToolCall, Message, Role, ToolCallChunk, ToolStatus, Usage};
use annals_base::Value;

impl Message {
    /// Returns the tokens used, if this is a message of the model that says so.
    #[doc(alias = "usage_metadata")]
    pub fn usage(&self) -> Option<&Usage> {
        match &self.role {
            Role::Ai(ai) => ai.usage.as_deref(),
            _ => None,
        }
    }

    /// Returns the tool calls whose arguments could not be read; none for a message that is not the model's.
    pub fn invalid_tool_calls(&self) -> &[InvalidToolCall] {
        match &self.role {
            Role::Ai(ai) => &ai.invalid_tool_calls,
            _ => &[],
        }
    }

    /// Returns the chunks of tool calls; none unless this is a chunk of a message of the model.
    pub fn tool_call_chunks(&self) -> &[ToolCallChunk] {
        self.chunk.as_ref().map_or(&[], |chunk| &chunk.tool_call_chunks)
    }

    /// Returns the id of the call that this answers, if it is the result of a tool call.
    pub fn tool_call_id(&self) -> Option<&str> {
        match &self.role {
            Role::Tool(tool) => Some(&tool.tool_call_id),
            _ => None,
        }
    }

    /// Returns the artifact that the tool returned besides the content, if this is the result of a tool call and has
    /// one.
    pub fn artifact(&self) -> Option<&Value> {
        match &self.role {
            Role::Tool(tool) => Some(&tool.artifact).filter(|artifact| !artifact.is_null()),
            _ => None,
        }
    }

    /// Returns whether the tool call succeeded, if this is the result of one.
    pub fn status(&self) -> Option<ToolStatus> {
        match &self.role {
            Role::Tool(tool) => Some(tool.status),
            _ => None,
        }
    }

    /// Makes it a chunk of a message with one more chunk of a tool call. In a message that is not the model's the chunk
    /// lands in the extra field `tool_call_chunks`.
    ///
    /// # Example: arguments that come in chunks
    /// ```
    /// use annals_messages::{Message, ToolCallChunk};
    ///
    /// let chunk = |args: &str| {
    ///     Message::ai_chunk("").with_tool_call_chunk(ToolCallChunk::new(0, args).with_name("weather"))
    /// };
    /// let next = Message::ai_chunk("").with_tool_call_chunk(ToolCallChunk::new(0, "\"Bern\"}"));
    /// let sum = chunk("{\"city\": ").plus(next)?;
    /// assert_eq!(sum.tool_calls()[0].args["city"].as_str(), Some("Bern"));
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    #[must_use]
    pub fn with_tool_call_chunk(mut self, call: ToolCallChunk) -> Self {
        self = self.into_chunk();
        match (&self.role, &mut self.chunk) {
            (Role::Ai(_), Some(chunk)) => {
                chunk.tool_call_chunks.push(call);
                self.settle();
            }
            _ => self.push_extra("tool_call_chunks", call.into()),
        }
        self
    }

    /// Sets the artifact that the tool returned besides the content. In a message that is not the result of a tool call
    /// it lands in the extra field `artifact`.
    #[must_use]
    pub fn with_artifact(mut self, artifact: impl Into<Value>) -> Self {
        match &mut self.role {
            Role::Tool(tool) => tool.artifact = artifact.into(),
            _ => _ = self.extra.insert("artifact".into(), artifact.into()),
        }
        self
    }

    /// Sets whether the tool call succeeded. In a message that is not the result of one it lands in the extra field
    /// `status`.
    ///
    /// # Example: a tool that failed
    /// ```
    /// use annals_messages::{Message, ToolStatus};
    ///
    /// let result = Message::tool("no such city", "call-1").with_name("weather").with_status(ToolStatus::Error);
    /// assert_eq!((result.tool_call_id(), result.status()), (Some("call-1"), Some(ToolStatus::Error)));
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: ToolStatus) -> Self {
        match &mut self.role {
            Role::Tool(tool) => tool.status = status,
            _ => _ = self.extra.insert("status".into(), status.as_str().into()),
        }
        self
    }

    /// Sets a field of the provider about the answer (`response_metadata`).
    #[must_use]
    pub fn with_response_metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.response_metadata.insert(name.into(), value.into());
        self
    }

    /// Adds an item to a list among the extra fields.
    pub(super) fn push_extra(&mut self, name: &str, item: Value) {
        let items = self.extra.or_insert_with(name.to_owned(), || Value::List(Vec::new()));
        if let Value::List(items) = items {
            items.push(item);
        }
    }
}

/// One line for a log: the type, the name, the text and the tool calls. [`buffer_string`](super::buffer_string) and
/// [`pretty_repr`](Message::pretty_repr) show messages as LangChain does.
///
/// # Example
/// ```
/// use annals_messages::{Message, ToolCall};
///
/// let answer = Message::ai("A moment.").with_tool_call(ToolCall::new("weather", [("city", "Bern")]));
/// assert_eq!(answer.to_string(), "ai: A moment. weather({\"city\": \"Bern\"})");
/// assert_eq!(Message::human("hi").with_name("ann").to_string(), "human (ann): hi");
/// ```
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        f.write_str(":")?;
        let text = self.text();
        if !text.is_empty() {
            write!(f, " {text}")?;
        }
        self.tool_calls().iter().try_for_each(|call| write!(f, " {}({})", call.name, json_dumps_map(&call.args, false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolCall, message_chunk_to_message};

    #[test]
    fn what_a_message_does_not_have_is_none_and_what_is_set_on_it_is_extra() {
        let human = Message::human("hi");
        assert!(human.usage().is_none() && human.tool_call_id().is_none() && human.artifact().is_none());
        assert!(human.status().is_none() && human.invalid_tool_calls().is_empty());
        assert!(human.tool_call_chunks().is_empty() && Message::tool("r", "c").artifact().is_none());
        let odd = human
            .with_tool_call(ToolCall::default())
            .with_tool_call(ToolCall::default())
            .with_artifact(1)
            .with_status(ToolStatus::Error)
            .with_tool_call_chunk(ToolCallChunk::new(0, "{"));
        assert_eq!(odd.extra.keys().collect::<Vec<_>>(), ["tool_calls", "artifact", "status", "tool_call_chunks"]);
        assert_eq!(odd.extra["status"].as_str(), Some("error"));
        let back = Message::try_from(Value::from(odd.to_map())).unwrap();
        assert_eq!(back, odd);
    }

    #[test]
    fn what_is_set_is_read() {
        let answer = Message::ai("").with_usage(Usage::new(1, 2)).with_response_metadata("model", "m");
        assert_eq!(answer.usage().map(|usage| usage.total_tokens), Some(3));
        assert_eq!(answer.response_metadata["model"].as_str(), Some("m"));
        let result = Message::tool("r", "c").with_artifact(vec![1, 2]);
        assert_eq!((result.artifact(), result.tool_call_id()), (Some(&Value::from(vec![1, 2])), Some("c")));
        assert_eq!(result.status(), Some(ToolStatus::Success));
        let chunk = Message::ai("a").with_tool_call_chunk(ToolCallChunk::new(1, "{\"a\": [1").with_id("c"));
        assert_eq!((chunk.kind(), chunk.tool_call_chunks().len()), ("AIMessageChunk", 1));
        assert_eq!(chunk.tool_calls()[0].args["a"], Value::from(vec![1]));
        let whole = message_chunk_to_message(chunk);
        assert_eq!((whole.kind(), whole.tool_calls().len()), ("ai", 1));
        let unread = Message::ai_chunk("").with_tool_call_chunk(ToolCallChunk::new(0, "x"));
        assert_eq!(unread.invalid_tool_calls().len(), 1);
    }
}
