//! Content blocks: their factories, and the translation of provider formats.

use annals::base::{IdSource, Map, Value};
use annals::message::blocks::{Annotation, ContentBlock};
use annals::message::{InvalidToolCall, ToolCall, ToolCallChunk, grounding_citations};
use serde_json::Value as Json;

use super::{FailedCall, FunctionCase, Handler};

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("content_blocks", |case| {
        let message = case.message()?;
        let before = message.clone();
        let blocks = message.content_blocks()?;
        assert_eq!(message, before, "reading does not change the message");
        Ok(blocks.into_iter().map(|block| Value::from(block).to_json()).collect())
    }),
    ("create_block", create_block),
    ("grounding_citations", |case| {
        let Value::Map(metadata) = case.input.value() else { return Err(FailedCall::vector("metadata")) };
        let citations = grounding_citations(&metadata, &mut IdSource::new());
        Ok(citations.into_iter().map(|citation| Value::from(citation).to_json()).collect())
    }),
];

fn create_block(case: &FunctionCase) -> Result<Json, FailedCall> {
    let input = case.input.value();
    let factory = input.get("factory").and_then(Value::as_str).unwrap_or_default();
    let positional: &[&str] = match factory {
        "create_text_block" => &["text"],
        "create_plaintext_block" => &["text", "url", "base64", "file_id", "title", "context", "id", "index"],
        "create_tool_call" => &["name", "args"],
        "create_reasoning_block" => &["reasoning", "id", "index"],
        "create_non_standard_block" => &["value"],
        _ => &[],
    };
    let given = input.get("positional").and_then(Value::as_list).unwrap_or_default();
    let mut fields: Map = positional.iter().zip(given).map(|(name, value)| ((*name).into(), value.clone())).collect();
    fields.extend(input.get("kwargs").and_then(Value::as_map).cloned().unwrap_or_default());
    let ids = &mut IdSource::new();
    let block = match factory {
        "tool_call" => ToolCall::try_from(Value::Map(fields))?.into(),
        "tool_call_chunk" => ToolCallChunk::try_from(Value::Map(fields))?.into(),
        "invalid_tool_call" => InvalidToolCall::try_from(Value::Map(fields))?.into(),
        "create_citation" => Annotation::create(fields, ids)?.into(),
        "create_tool_call" => ContentBlock::create("tool_call", fields, ids)?.into(),
        "create_plaintext_block" => ContentBlock::create("text-plain", fields, ids)?.into(),
        name => {
            let kind = name.strip_prefix("create_").and_then(|name| name.strip_suffix("_block"));
            let kind = kind.ok_or_else(|| FailedCall::vector("factory"))?;
            Value::from(ContentBlock::create(kind, fields, ids)?)
        }
    };
    Ok(block.to_json())
}
