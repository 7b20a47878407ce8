//! Requests as messages of LangChain.
//!
//! *Absent:* instructions; they are not messages.

use super::block_out::{tool_content, user_content};
use super::{put_some, put_unless, with_envelope};
use crate::history::{ModelRequest, RequestState};
use crate::part::{RequestPart, SystemPromptPart};
use crate::tool::{ToolOutcome, ToolReturnPart};
use crate::wire::Wire;
use annals_base::{Map, Value};
use annals_messages::{Message, Tool, ToolStatus};

/// Returns the messages that stand for a request: one for each part that a model sees, or one without content if it
/// sees none.
pub(super) fn messages(request: &ModelRequest) -> Vec<Message> {
    let mut made: Vec<(Message, Map)> = Vec::with_capacity(request.parts.len());
    // Parts that a model does not see, until the next one that it does.
    let mut hidden: Vec<Value> = Vec::new();
    for part in &request.parts {
        let Some((message, mut envelope)) = message(part) else {
            hidden.push(part.write());
            continue;
        };
        if !hidden.is_empty() {
            envelope.insert("before".into(), std::mem::take(&mut hidden).into());
        }
        made.push((message, envelope));
    }
    if made.is_empty() {
        made.push((Message::human(""), envelope_of(Value::Null)));
    }
    if let (false, Some((_, last))) = (hidden.is_empty(), made.last_mut()) {
        last.insert("after".into(), hidden.into());
    }
    let envelopes = made.iter_mut().map(|(_, envelope)| envelope).enumerate();
    envelopes.for_each(|(at, envelope)| match at {
        0 => _ = envelope.insert("request".into(), head(request).into()),
        _ => _ = envelope.insert("cont".into(), true.into()),
    });
    made.into_iter().map(|(message, envelope)| with_envelope(message, envelope)).collect()
}

/// Returns the envelope of a kind of part, with room for its other members.
fn envelope_of(part: Value) -> Map {
    let mut envelope = Map::with_capacity(4);
    envelope.insert("v".into(), 1.into());
    envelope.insert("part".into(), part);
    envelope
}

/// Returns the fields of the request itself.
fn head(request: &ModelRequest) -> Map {
    let mut head = Map::with_capacity(4);
    put_some(&mut head, "timestamp", request.timestamp.as_ref());
    put_some(&mut head, "instructions", request.instructions.as_ref());
    put_some(&mut head, "run_id", request.run_id.as_ref());
    put_some(&mut head, "conversation_id", request.conversation_id.as_ref());
    put_some(&mut head, "metadata", request.metadata.as_ref());
    if request.state != RequestState::Complete {
        head.insert("state".into(), request.state.write());
    }
    head
}

/// Returns the message for a part with its envelope; `None` if a model does not see the part.
fn message(part: &RequestPart) -> Option<(Message, Map)> {
    let mut envelope = envelope_of(part.kind().into());
    let message = match part {
        RequestPart::SystemPrompt(part) => {
            system_envelope(part, &mut envelope);
            Message::system(part.content.as_str())
        }
        RequestPart::UserPrompt(part) => {
            envelope.insert("timestamp".into(), part.timestamp.write());
            Message::human(user_content(&part.content))
        }
        RequestPart::ToolReturn(part) => tool_message(part, &mut envelope),
        RequestPart::RetryFeedback(feedback) => {
            envelope.insert("raw".into(), part.write());
            Message::human(feedback.text())
        }
        RequestPart::Speech(speech) => {
            envelope.insert("raw".into(), part.write());
            Message::human(speech.transcript.as_deref().unwrap_or_default())
        }
        RequestPart::Compaction(compaction) => {
            envelope.insert("raw".into(), part.write());
            Message::human(compaction.content.as_deref().unwrap_or_default())
        }
        RequestPart::ToolAvailabilityDelta(_)
        | RequestPart::CapabilityLoadDelta(_)
        | RequestPart::ModelSettingsDelta(_)
        | RequestPart::InstructionDelta(_)
        | RequestPart::InstructionBaseline(_) => return None,
    };
    Some((message, envelope))
}

fn system_envelope(part: &SystemPromptPart, envelope: &mut Map) {
    envelope.insert("timestamp".into(), part.timestamp.write());
    put_some(envelope, "dynamic_ref", part.dynamic_ref.as_ref());
    put_some(envelope, "context_id", part.context_id.as_ref());
    put_unless(envelope, "scope", part.scope.write(), &"conversation".into());
    put_some(envelope, "metadata", part.metadata.as_ref());
}

fn tool_message(part: &ToolReturnPart, envelope: &mut Map) -> Message {
    let (content, keep) = tool_content(&part.content);
    let mut tool = Tool::new(part.tool_call_id.as_str());
    if part.outcome.is_error() {
        tool.status = ToolStatus::Error;
    }
    tool.artifact = part.metadata.clone();
    envelope.insert("timestamp".into(), part.timestamp.write());
    put_some(envelope, "tool_kind", part.tool_kind.as_ref());
    put_some(envelope, "retry", part.retry.as_ref());
    if !matches!(part.outcome, ToolOutcome::Success | ToolOutcome::Failed) {
        envelope.insert("outcome".into(), part.outcome.write());
    }
    if keep {
        envelope.insert("content".into(), part.content.to_value());
    }
    if let Some(digests) = part.content.digests().filter(|digests| !digests.is_empty()) {
        envelope.insert("content_file_digests".into(), digests.into());
    }
    Message::new(tool, content).with_name(part.tool_name.as_str())
}
