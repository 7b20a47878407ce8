//! Translates the answers of each provider to standard blocks.
//!
//! A translator goes through the content block by block and joins the other fields of the message: its tool calls, its
//! metadata. *Absent:* the conversation with a provider, and the way back.

mod anthropic;
mod bedrock;
mod converse;
mod google;
mod groq;
mod openai;

use super::blocks::draft::{Draft, kind_of, non_standard_with_index};
use super::text::json_loads;
use super::{Content, InvalidToolCall, Message, MessageError, Role, ToolCall, ToolCallChunk};
use annals_base::{IdSource, Map, Value};

pub use google::grounding_citations;

/// Blocks, or the answer that the message is not the translator's.
type Translation = Result<Option<Vec<Map>>, MessageError>;

/// Translates a message of a provider; none if the provider is unknown or its translator declines.
pub(super) fn translate(provider: &str, message: &Message, ids: &mut IdSource) -> Translation {
    match provider {
        "openai" => openai::translate(message).map(Some),
        "anthropic" => anthropic::translate(message).map(Some),
        "bedrock" => bedrock::translate(message),
        "bedrock_converse" => converse::translate(message).map(Some),
        "google_genai" | "google_vertexai" => google::translate(message, ids).map(Some),
        "groq" => Ok(Some(groq::translate(message))),
        _ => Ok(None),
    }
}

/// Returns the objects of the content; a text counts as a text block, and the texts of a list are skipped.
fn objects(message: &Message) -> Vec<Map> {
    match &message.content {
        Content::Text(text) => vec![Draft::of("text").set("text", text.as_str()).done()],
        Content::Blocks(blocks) => blocks.iter().filter_map(Value::as_map).cloned().collect(),
    }
}

/// Translates block by block; an error names the block.
fn each(
    blocks: &[Map],
    mut translate: impl FnMut(&Map, &mut Vec<Map>) -> Result<(), MessageError>,
) -> Result<Vec<Map>, MessageError> {
    let mut out = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.iter().enumerate() {
        translate(block, &mut out).map_err(|error| error.within(format_args!("content[{at}]")))?;
    }
    Ok(out)
}

/// Wraps a block that only the provider understands, its place in the stream on the wrapper.
fn unknown(block: &Map) -> Map {
    non_standard_with_index(block.clone(), |index| index)
}

fn invalid_calls(message: &Message) -> &[InvalidToolCall] {
    match &message.role {
        Role::Ai(ai) => &ai.invalid_tool_calls,
        _ => &[],
    }
}

fn call_chunks(message: &Message) -> &[ToolCallChunk] {
    message.chunk.as_deref().map_or(&[], |chunk| &chunk.tool_call_chunks)
}

/// Returns whether more chunks of this message will come.
fn is_open(message: &Message) -> bool {
    message.chunk.as_deref().is_some_and(|chunk| !chunk.last)
}

/// Returns the only chunk of a tool call, if more chunks will come: the content then speaks of that one.
fn only_chunk(message: &Message) -> Option<&ToolCallChunk> {
    match call_chunks(message) {
        [chunk] if is_open(message) => Some(chunk),
        _ => None,
    }
}

fn call_block(call: &ToolCall) -> Map {
    let draft = Draft::of("tool_call").set("name", call.name.as_str());
    draft.set("args", call.args.clone()).set("id", call.id.clone()).done()
}

fn invalid_block(call: &InvalidToolCall) -> Map {
    let draft = Draft::of("invalid_tool_call").set("id", call.id.clone()).set("name", call.name.clone());
    draft.set("args", call.args.clone()).set("error", call.error.clone()).done()
}

fn chunk_block(chunk: &ToolCallChunk) -> Map {
    let draft = Draft::of("tool_call_chunk").set("id", chunk.id.clone()).set("name", chunk.name.clone());
    draft.set("args", chunk.args.clone()).maybe("index", chunk.index).done()
}

/// Returns a block for each chunk of a tool call.
pub(super) fn chunk_blocks(message: &Message) -> impl Iterator<Item = Map> {
    call_chunks(message).iter().map(chunk_block)
}

/// Returns a block for each tool call with an id that is not among `present`.
pub(super) fn calls_besides(message: &Message, present: &[&str]) -> Vec<Map> {
    let missing = |call: &&ToolCall| call.id.as_deref().is_some_and(|id| !id.is_empty() && !present.contains(&id));
    message.tool_calls().iter().filter(missing).map(call_block).collect()
}

/// Returns the ids of the blocks that are tool calls.
fn call_ids(blocks: &[Map]) -> Vec<&str> {
    let calls = blocks.iter().filter(|block| kind_of(block) == "tool_call");
    calls.filter_map(|call| call.get("id")?.as_str()).collect()
}

/// Returns the thought of the model that stands beside the content.
pub(super) fn reasoning_besides(message: &Message) -> Option<Map> {
    let reasoning = message.additional_kwargs.get("reasoning_content")?.as_str()?;
    Some(Draft::of("reasoning").set("reasoning", reasoning).done())
}

/// Returns whether the message says nothing: some providers send chunks that carry metadata alone.
fn says_nothing(message: &Message) -> bool {
    matches!(&message.content, Content::Text(text) if text.is_empty())
        && message.additional_kwargs.is_empty()
        && message.tool_calls().is_empty()
}

/// Reads a text that should be a JSON object.
fn json_object(text: &str) -> Option<Map> {
    match json(text)? {
        Value::Map(map) => Some(map),
        _ => None,
    }
}

/// Reads a text that should be JSON.
fn json(text: &str) -> Option<Value> {
    json_loads(text, true).ok()
}
