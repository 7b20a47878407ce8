//! Requests as messages of LangChain.
//!
//! *Absent:* instructions; they are not messages.

use super::block_out::{tool_content, user_content};
use super::{object, put_some, put_unless, with_envelope};
use crate::history::{ModelRequest, RequestState};
use crate::part::{RequestPart, SystemPromptPart};
use crate::tool::{ToolOutcome, ToolReturnPart};
use crate::wire::Wire;
use annals_base::{Map, Value};

/// Returns the dictionaries of the messages that stand for a request: one for each part that a model sees, or one
/// without content if it sees none.
pub(super) fn dictionaries(request: &ModelRequest) -> Vec<Map> {
    let mut made: Vec<(Map, Map)> = Vec::new();
    // Parts that a model does not see, until the next one that it does.
    let mut hidden: Vec<Value> = Vec::new();
    for part in &request.parts {
        let Some((map, mut envelope)) = message(part) else {
            hidden.push(part.write());
            continue;
        };
        if !hidden.is_empty() {
            envelope.insert("before".into(), std::mem::take(&mut hidden).into());
        }
        made.push((map, envelope));
    }
    if made.is_empty() {
        let placeholder = object([("type", "human".into()), ("content", "".into())]);
        made.push((placeholder, object([("v", 1.into()), ("part", Value::Null)])));
    }
    if let (false, Some((_, last))) = (hidden.is_empty(), made.last_mut()) {
        last.insert("after".into(), hidden.into());
    }
    let envelopes = made.iter_mut().map(|(_, envelope)| envelope).enumerate();
    envelopes.for_each(|(at, envelope)| match at {
        0 => _ = envelope.insert("request".into(), head(request).into()),
        _ => _ = envelope.insert("cont".into(), true.into()),
    });
    made.into_iter().map(|(map, envelope)| with_envelope(map, envelope)).collect()
}

/// Returns the fields of the request itself.
fn head(request: &ModelRequest) -> Map {
    let mut head = Map::new();
    put_some(&mut head, "timestamp", request.timestamp.as_ref());
    put_some(&mut head, "instructions", request.instructions.as_ref());
    put_some(&mut head, "run_id", request.run_id.as_ref());
    put_some(&mut head, "conversation_id", request.conversation_id.as_ref());
    put_some(&mut head, "metadata", request.metadata.as_ref());
    put_unless(&mut head, "state", request.state.write(), &RequestState::Complete.write());
    head
}

/// Returns the dictionary for a part with its envelope; `None` if a model does not see the part.
fn message(part: &RequestPart) -> Option<(Map, Map)> {
    let mut envelope = object([("v", 1.into()), ("part", part.kind().into())]);
    let human = |content: Value| object([("type", "human".into()), ("content", content)]);
    let map = match part {
        RequestPart::SystemPrompt(part) => {
            system_envelope(part, &mut envelope);
            object([("type", "system".into()), ("content", part.content.write())])
        }
        RequestPart::UserPrompt(part) => {
            envelope.insert("timestamp".into(), part.timestamp.write());
            human(user_content(&part.content))
        }
        RequestPart::ToolReturn(part) => tool_message(part, &mut envelope),
        RequestPart::RetryFeedback(feedback) => {
            envelope.insert("raw".into(), part.write());
            human(feedback.text().into())
        }
        RequestPart::Speech(speech) => {
            envelope.insert("raw".into(), part.write());
            human(speech.transcript.clone().unwrap_or_default().into())
        }
        RequestPart::Compaction(compaction) => {
            envelope.insert("raw".into(), part.write());
            human(compaction.content.clone().unwrap_or_default().into())
        }
        RequestPart::ToolAvailabilityDelta(_)
        | RequestPart::CapabilityLoadDelta(_)
        | RequestPart::ModelSettingsDelta(_)
        | RequestPart::InstructionDelta(_)
        | RequestPart::InstructionBaseline(_) => return None,
    };
    Some((map, envelope))
}

fn system_envelope(part: &SystemPromptPart, envelope: &mut Map) {
    envelope.insert("timestamp".into(), part.timestamp.write());
    put_some(envelope, "dynamic_ref", part.dynamic_ref.as_ref());
    put_some(envelope, "context_id", part.context_id.as_ref());
    put_unless(envelope, "scope", part.scope.write(), &"conversation".into());
    put_some(envelope, "metadata", part.metadata.as_ref());
}

fn tool_message(part: &ToolReturnPart, envelope: &mut Map) -> Map {
    let (content, keep) = tool_content(&part.content);
    let mut map = object([
        ("type", "tool".into()),
        ("content", content),
        ("tool_call_id", part.tool_call_id.write()),
        ("name", part.tool_name.write()),
    ]);
    if part.outcome.is_error() {
        map.insert("status".into(), "error".into());
    }
    put_unless(&mut map, "artifact", part.metadata.clone(), &Value::Null);
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
    map
}
