//! The rules by which a node takes the result of a tool: the message that answers the call, and the commands beside it.
//!
//! Invariant: a result has one message with the id of its call, unless it only leads to another node or graph.
//! *Absent:* running tools.

use std::sync::Arc;

use annals_base::{Clock, SystemClock, Value};
use annals_graph::graph::NodeResult;
use annals_graph::prelude::Message;
use annals_graph::task::Interrupted;
use annals_messages::internal::{JsonStyle, json_write};
use annals_messages::{Content, ToolCall, ToolStatus};
use annals_pydantic_ai::{
    ModelRequest, RequestPart, ToolContent, ToolReturnPart, UserContent, UserPromptPart, to_langchain,
};
use serde::{Deserialize, Serialize};

use crate::tool::ToolContext;
use crate::tool_command::{ToolCommand, ToolReply};
use crate::tool_errors::ToolErrors;
use crate::tool_output::{ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ToolOutput};

/// The member of a message that holds the data of PydanticAI.
const ENVELOPE: &str = "pydantic_ai";

/// The types of content blocks that a message of a tool can have (`TOOL_MESSAGE_BLOCK_TYPES`).
const BLOCK_TYPES: &[&str] =
    &["text", "image_url", "image", "json", "search_result", "custom_tool_call_output", "document", "file"];

/// The rules of a node.
#[derive(Clone)]
pub(crate) struct ToolRules {
    pub(crate) errors: ToolErrors,
    /// The channel of the messages.
    pub(crate) channel: Arc<str>,
}

impl Default for ToolRules {
    fn default() -> Self {
        Self { errors: ToolErrors::arguments(), channel: "messages".into() }
    }
}

/// The end of a call, as it is stored with the step.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeToolEnd {
    Replied(Vec<Value>),
    NeedsApproval(Value),
    Deferred(Value),
}

impl ToolRules {
    /// Returns the end of a call.
    ///
    /// # Errors
    /// The error of the tool, unless the model is told it.
    pub(crate) fn end(&self, result: NodeResult<ToolOutput>, context: &ToolContext) -> NodeResult<NodeToolEnd> {
        let (name, id) = (context.tool_name(), context.tool_call_id());
        let error = match result.and_then(|output| replies(output, name, id)) {
            Ok(replies) => return Ok(NodeToolEnd::Replied(replies.iter().map(ToolReply::to_value).collect())),
            Err(error) => error,
        };
        if error.is::<Interrupted>() {
            return Err(error);
        }
        if let Some(required) = error.downcast_ref::<ApprovalRequired>() {
            return Ok(NodeToolEnd::NeedsApproval(required.metadata().clone()));
        }
        if let Some(deferred) = error.downcast_ref::<CallDeferred>() {
            return Ok(NodeToolEnd::Deferred(deferred.metadata().clone()));
        }
        let own = error.downcast_ref::<ModelRetry>().map(ModelRetry::message);
        let own = own.or_else(|| error.downcast_ref::<ToolFailed>().map(ToolFailed::message));
        let text = match own.map(str::to_owned).or_else(|| self.errors.tell(&error)) {
            Some(text) => text,
            None => return Err(error),
        };
        let call = ToolCall::new(name, [] as [(&str, Value); 0]).with_id(id);
        Ok(NodeToolEnd::Replied(vec![ToolReply::from(error_answer(&call, text)).to_value()]))
    }
}

/// Returns the message that answers a call.
pub(crate) fn answer(call: &ToolCall, content: impl Into<Content>) -> Message {
    Message::tool(content, call.id.as_deref().unwrap_or_default()).with_name(&call.name)
}

/// Returns the message that answers a call with an error.
pub(crate) fn error_answer(call: &ToolCall, text: impl Into<Content>) -> Message {
    answer(call, text).with_status(ToolStatus::Error)
}

/// Returns the content of a message for a value: a text, content blocks, or the JSON text of anything else.
pub(crate) fn content_of(value: Value) -> Content {
    let is_block =
        |item: &Value| item.get("type").and_then(Value::as_str).is_some_and(|kind| BLOCK_TYPES.contains(&kind));
    match value {
        Value::Str(text) => Content::Text(text),
        Value::List(items) if items.iter().all(is_block) => Content::Blocks(items),
        other => Content::Text(json_write(&other, JsonStyle::PYTHON)),
    }
}

/// Returns the messages and commands of an output.
fn replies(output: ToolOutput, name: &str, id: &str) -> NodeResult<Vec<ToolReply>> {
    if output.replies.is_empty() {
        return of_content(output, name, id);
    }
    let mut replies = output.replies;
    let is_alone = replies.len() == 1;
    let mut count = 0;
    for reply in &mut replies {
        match reply {
            ToolReply::Message(message) => count += usize::from(message.tool_call_id() == Some(id)),
            ToolReply::Command(command) => count += name_answers(command, name, id, is_alone)?,
        }
    }
    if !is_alone && count != 1 {
        let text = "a list with one message that answers the call is expected";
        return Err(format!("tool {name:?} returned a list with {count} messages for call {id:?}: {text}").into());
    }
    Ok(replies)
}

/// Names the messages of a command that answer a call, and returns their number.
///
/// # Errors
/// A text if the command is alone, updates its own graph and does not answer the call.
fn name_answers(command: &mut ToolCommand, name: &str, id: &str, is_alone: bool) -> NodeResult<usize> {
    let removes_all = matches!(&command.messages[..], [message] if message.is_remove_all());
    let mut count = 0;
    for message in command.messages.iter_mut().filter(|message| message.tool_call_id() == Some(id)) {
        message.name = Some(name.to_owned());
        count += 1;
    }
    if is_alone && count == 0 && command.updates() && !command.to_parent && !removes_all {
        let text = "each call needs a message that answers it, see ToolCommand::reply";
        return Err(format!("the command of tool {name:?} has no message for call {id:?}: {text}").into());
    }
    Ok(count)
}

/// Returns the message of a content, and of the content beside it.
fn of_content(output: ToolOutput, name: &str, id: &str) -> NodeResult<Vec<ToolReply>> {
    let call = ToolCall::new(name, [] as [(&str, Value); 0]).with_id(id);
    if output.beside.is_none() && !matches!(output.content, ToolContent::File(_)) {
        let message = answer(&call, content_of(output.content.to_value()));
        let has_artifact = output.metadata != Value::Null;
        return Ok(vec![if has_artifact { message.with_artifact(output.metadata) } else { message }.into()]);
    }
    let now = SystemClock.now().into();
    let mut part = ToolReturnPart::new(name, output.content, id, now);
    part.metadata = output.metadata;
    let beside = output.beside.map(|content: UserContent| RequestPart::from(UserPromptPart::new(content, now)));
    let parts = std::iter::once(part.into()).chain(beside).collect();
    let mut messages = to_langchain(&[ModelRequest::new(parts).into()], false)?;
    for message in &mut messages {
        message.additional_kwargs.shift_remove(ENVELOPE);
    }
    Ok(messages.into_iter().map(ToolReply::from).collect())
}
