//! Responses as messages of LangChain.
//!
//! *Absent:* anything of requests.

use super::block_out::{made_file, non_standard, with_extras};
use super::usage::usage_out;
use super::{KEY, object, put_some, put_unless, with_envelope};
use crate::citation::{Citation, CitationSource};
use crate::history::{FinishReason, ModelResponse, ResponseState};
use crate::part::{ResponsePart, TextPart, ThinkingPart};
use crate::tool::{NativeToolCallPart, NativeToolReturnPart, ToolArgs, ToolCallPart, ToolOutcome, args_object};
use crate::wire::Wire;
use annals_base::{Map, Value};
use annals_messages::{Ai, Content, InvalidToolCall, Message, ToolCall};

/// The parts of a response by their place in a message: blocks, calls, and calls whose arguments are not an object.
/// Each call has an envelope.
#[derive(Default)]
struct ResponseBlocks {
    blocks: Vec<Value>,
    calls: (Vec<ToolCall>, Vec<Map>),
    invalid: (Vec<InvalidToolCall>, Vec<Map>),
    /// A letter for each part: `b`, `c`, `i`.
    order: String,
}

/// Returns the message that stands for a response.
pub(super) fn message(response: &ModelResponse) -> Message {
    let mut made = ResponseBlocks::default();
    response.parts.iter().for_each(|part| made.push(part));
    let mut envelope = Map::with_capacity(6);
    envelope.insert("v".into(), 1.into());
    envelope.insert("timestamp".into(), response.timestamp.write());
    let place = |letter: char| "bci".find(letter);
    if !made.order.chars().is_sorted_by_key(place) {
        envelope.insert("order".into(), made.order.into());
    }
    for (name, envelopes) in [("tool_calls", made.calls.1), ("invalid_tool_calls", made.invalid.1)] {
        if envelopes.iter().any(|envelope| !envelope.is_empty()) {
            envelope.insert(name.into(), envelopes.into());
        }
    }
    let (usage, rest) = usage_out(&response.usage);
    if !rest.is_empty() {
        envelope.insert("usage".into(), rest.into());
    }
    head(response, &mut envelope);
    let mut ai = Ai::default();
    (ai.tool_calls, ai.invalid_tool_calls, ai.usage) = (made.calls.0, made.invalid.0, usage.map(Box::new));
    let mut message = with_envelope(Message::new(ai, content(made.blocks)), envelope);
    message.response_metadata = metadata(response);
    message
}

fn content(mut blocks: Vec<Value>) -> Content {
    if blocks.is_empty() {
        return Content::default();
    }
    // One bare text is a text.
    if let [Value::Map(block)] = &mut blocks[..]
        && block.len() == 2
        && block.get("type").and_then(Value::as_str) == Some("text")
        && let Some(Value::Str(text)) = block.get_mut("text")
        && !text.is_empty()
    {
        return std::mem::take(text).into();
    }
    blocks.into()
}

/// Returns what LangChain keeps about a response.
fn metadata(response: &ModelResponse) -> Map {
    let mut metadata = Map::new();
    put_some(&mut metadata, "model_name", response.model_name.as_ref());
    put_some(&mut metadata, "model_provider", response.provider_name.as_ref());
    if let Some(reason) = response.finish_reason {
        let word = if reason == FinishReason::ToolCall { "tool_calls" } else { reason.as_str() };
        metadata.insert("finish_reason".into(), word.into());
    }
    put_some(&mut metadata, "id", response.provider_response_id.as_ref());
    metadata
}

fn head(response: &ModelResponse, envelope: &mut Map) {
    put_some(envelope, "model_id", response.model_id.as_ref());
    put_some(envelope, "provider_url", response.provider_url.as_ref());
    put_some(envelope, "canonical_system", response.canonical_system.as_ref());
    put_some(envelope, "provider_details", response.provider_details.as_ref());
    put_some(envelope, "run_id", response.run_id.as_ref());
    put_some(envelope, "conversation_id", response.conversation_id.as_ref());
    put_some(envelope, "metadata", response.metadata.as_ref());
    put_some(envelope, "workspace_ref", response.workspace_ref.as_ref());
    put_some(envelope, "history_digest", response.history_digest.as_ref());
    put_some(envelope, "failed_attempts", response.failed_attempts.as_ref());
    if response.state != ResponseState::Complete {
        envelope.insert("state".into(), response.state.write());
    }
}

impl ResponseBlocks {
    fn push(&mut self, part: &ResponsePart) {
        let block = match part {
            ResponsePart::ToolCall(call) => return self.push_call(call),
            ResponsePart::Text(part) => text(part),
            ResponsePart::Thinking(part) => thinking(part),
            ResponsePart::NativeToolCall(part) => native_call(part),
            ResponsePart::NativeToolReturn(part) => native_return(part),
            ResponsePart::File(part) => {
                let mut more = Map::new();
                put_some(&mut more, "id", part.id.as_ref());
                provider(&mut more, part.provider_name.as_ref(), part.provider_details.as_ref());
                made_file(&part.content, more)
            }
            ResponsePart::Compaction(_) | ResponsePart::Speech(_) => non_standard(part.write()),
        };
        self.blocks.push(block);
        self.order.push('b');
    }

    fn push_call(&mut self, call: &ToolCallPart) {
        let mut envelope = Map::new();
        put_some(&mut envelope, "tool_kind", call.tool_kind.as_ref());
        put_some(&mut envelope, "id", call.id.as_ref());
        provider(&mut envelope, call.provider_name.as_ref(), call.provider_details.as_ref());
        match args_object(&call.tool_name, call.args.as_ref()) {
            Ok(args) => {
                if !matches!(call.args, Some(ToolArgs::Object(_))) {
                    envelope.insert("args".into(), call.args.write());
                }
                let mut made = ToolCall::default();
                (made.name, made.args) = (call.tool_name.clone(), args);
                self.calls.0.push(made.with_id(call.tool_call_id.as_str()));
                self.calls.1.push(envelope);
                self.order.push('c');
            }
            Err(_) => {
                let mut made = InvalidToolCall::new("args are not a JSON object");
                (made.name, made.id) = (Some(call.tool_name.clone()), Some(call.tool_call_id.clone()));
                made.args = match &call.args {
                    Some(ToolArgs::Text(text)) => Some(text.clone()),
                    _ => None,
                };
                self.invalid.0.push(made);
                self.invalid.1.push(envelope);
                self.order.push('i');
            }
        }
    }
}

fn provider(envelope: &mut Map, name: Option<&String>, details: Option<&Map>) {
    put_some(envelope, "provider_name", name);
    put_some(envelope, "provider_details", details);
}

fn text(part: &TextPart) -> Value {
    let mut block = object([("type", "text".into()), ("text", part.content.write())]);
    put_some(&mut block, "id", part.id.as_ref());
    let mut envelope = Map::new();
    provider(&mut envelope, part.provider_name.as_ref(), part.provider_details.as_ref());
    put_some(&mut envelope, "citations", part.citations.as_ref());
    let citations = part.citations.as_deref().unwrap_or_default();
    if !citations.is_empty() {
        let annotations = citations.iter().flat_map(|c| c.sources.iter().map(|source| annotation(c, source)));
        block.insert("annotations".into(), Value::List(annotations.collect()));
    }
    with_extras(block, envelope)
}

fn annotation(citation: &Citation, source: &CitationSource) -> Value {
    let mut map = object([("type", "citation".into())]);
    let (title, excerpts) = match source {
        CitationSource::Web(source) => {
            map.insert("url".into(), source.url.write());
            (&source.title, &source.excerpts)
        }
        CitationSource::Document(source) => (&source.title, &source.excerpts),
    };
    put_some(&mut map, "title", title.as_ref());
    if let Some(anchor) = &citation.anchor {
        map.insert("start_index".into(), anchor.start.into());
        map.insert("end_index".into(), anchor.end.into());
    }
    if !excerpts.is_empty() {
        map.insert("cited_text".into(), excerpts.join("\n").into());
    }
    map.into()
}

fn thinking(part: &ThinkingPart) -> Value {
    let mut block = object([("type", "reasoning".into()), ("reasoning", part.content.write())]);
    put_some(&mut block, "id", part.id.as_ref());
    let mut more = Map::new();
    put_some(&mut more, "signature", part.signature.as_ref());
    let mut envelope = Map::new();
    provider(&mut envelope, part.provider_name.as_ref(), part.provider_details.as_ref());
    if !envelope.is_empty() {
        more.insert(KEY.into(), envelope.into());
    }
    if !more.is_empty() {
        block.insert("extras".into(), more.into());
    }
    block.into()
}

fn native_call(part: &NativeToolCallPart) -> Value {
    let mut envelope = Map::new();
    put_some(&mut envelope, "tool_kind", part.tool_kind.as_ref());
    put_some(&mut envelope, "id", part.id.as_ref());
    provider(&mut envelope, part.provider_name.as_ref(), part.provider_details.as_ref());
    if !matches!(part.args, Some(ToolArgs::Object(_))) {
        envelope.insert("args".into(), part.args.write());
    }
    let block = object([
        ("type", "server_tool_call".into()),
        ("id", part.tool_call_id.write()),
        ("name", part.tool_name.write()),
        ("args", part.args_or_invalid().into()),
    ]);
    with_extras(block, envelope)
}

fn native_return(part: &NativeToolReturnPart) -> Value {
    let status = if part.outcome.is_error() { "error" } else { "success" };
    let mut envelope = object([("tool_name", part.tool_name.write()), ("timestamp", part.timestamp.write())]);
    put_some(&mut envelope, "tool_kind", part.tool_kind.as_ref());
    put_unless(&mut envelope, "metadata", part.metadata.clone(), &Value::Null);
    provider(&mut envelope, part.provider_name.as_ref(), part.provider_details.as_ref());
    if !matches!(part.outcome, ToolOutcome::Success | ToolOutcome::Failed) {
        envelope.insert("outcome".into(), part.outcome.write());
    }
    if let Some(digests) = part.content.digests().filter(|digests| !digests.is_empty()) {
        envelope.insert("content_file_digests".into(), digests.into());
    }
    let block = object([
        ("type", "server_tool_result".into()),
        ("tool_call_id", part.tool_call_id.write()),
        ("status", status.into()),
        ("output", part.content.to_value()),
    ]);
    with_extras(block, envelope)
}
