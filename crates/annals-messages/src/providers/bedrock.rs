//! Answers through Bedrock's older interface: those of Anthropic's models are in Anthropic's form.
//!
//! *Absent:* other models, for which it declines.

use super::{Translation, anthropic, call_ids, calls_besides, chunk_blocks, is_open, says_nothing};
use crate::Message;
use annals_base::Value;

pub(super) fn translate(message: &Message) -> Translation {
    if message.is_chunk() {
        if says_nothing(message) {
            return Ok(Some(Vec::new()));
        }
        let mut blocks = anthropic::translate(message)?;
        if message.content.is_empty() && is_open(message) {
            blocks.extend(chunk_blocks(message));
        }
        return Ok(Some(blocks));
    }
    let model = message.response_metadata.get("model_name").and_then(Value::as_str).unwrap_or_default();
    if !model.to_lowercase().contains("claude") {
        return Ok(None);
    }
    let mut blocks = anthropic::translate(message)?;
    let missing = calls_besides(message, &call_ids(&blocks));
    blocks.extend(missing);
    Ok(Some(blocks))
}
