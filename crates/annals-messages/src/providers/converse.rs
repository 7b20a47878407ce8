//! Answers through Bedrock's Converse interface.
//!
//! *Absent:* documents and pictures in a question.

use super::{anthropic, each, objects, says_nothing, unknown};
use crate::blocks::draft::{Draft, kind_of, object_in, truthy_in};
use crate::{Message, MessageError};
use annals_base::{Map, Value};

pub(super) fn translate(message: &Message) -> Result<Vec<Map>, MessageError> {
    if says_nothing(message) {
        return Ok(Vec::new());
    }
    each(&objects(message), |block, out| {
        out.push(match kind_of(block) {
            "text" => anthropic::text(block, citation)?,
            "reasoning_content" => reasoning(block),
            "tool_use" => anthropic::tool_use(message, block),
            "input_json_delta" => anthropic::input_delta(message).unwrap_or_else(|| unknown(block)),
            _ => unknown(block),
        });
        Ok(())
    })
}

fn reasoning(block: &Map) -> Map {
    let content = object_in(block, "reasoning_content");
    let said = |name: &str| content.and_then(|content| truthy_in(content, name));
    Draft::of("reasoning")
        .maybe("reasoning", said("text").cloned())
        .copy("index", block)
        .maybe_extra("signature", said("signature"))
        .maybe_extra("redacted_content", said("redacted_content"))
        .extras_except(block, &["type", "reasoning_content", "index", "extras"])
        .done()
}

fn citation(from: &Map) -> Map {
    let source = truthy_in(from, "source_content").and_then(Value::as_list);
    let parts: Option<Vec<&Map>> = source.and_then(|parts| parts.iter().map(Value::as_map).collect());
    let text = |part: &&Map| part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    let cited = parts.map(|parts| parts.iter().map(text).collect::<String>());
    Draft::of("citation")
        .copy("title", from)
        .maybe("cited_text", cited)
        .extras_except(from, &["type", "source_content", "title", "index", "extras"])
        .done()
}
