//! Derived fields of a chunk of the model's message: tool calls of their chunks and the other way round.

use crate::partial_json::parse_partial_json;
use crate::text::{json_dumps_map, json_loads, truthy};
use crate::tool::list;
use crate::{Ai, Chunk, Content, InvalidToolCall, Message, Role, ToolCall, ToolCallChunk, default_tool_chunk_parser};
use annals_base::Value;

impl Message {
    /// Makes the tool calls of a chunk agree with their chunks. Other messages stay as they are.
    pub(crate) fn settle(&mut self) {
        let (Role::Ai(ai), Some(chunk)) = (&mut self.role, &mut self.chunk) else { return };
        if chunk.tool_call_chunks.is_empty() {
            let calls = ai.tool_calls.iter().map(|call| ToolCallChunk {
                name: Some(call.name.clone()),
                args: Some(json_dumps_map(&call.args, true)),
                id: call.id.clone(),
                index: None,
            });
            let invalid = ai.invalid_tool_calls.iter().map(|call| ToolCallChunk {
                name: call.name.clone(),
                args: call.args.clone(),
                id: call.id.clone(),
                index: None,
            });
            chunk.tool_call_chunks = calls.chain(invalid).collect();
            debug_assert!(agree(ai, chunk), "each call has its chunk");
            self.settle_blocks(&[]);
            return;
        }
        ai.tool_calls.clear();
        ai.invalid_tool_calls.clear();
        for part in &chunk.tool_call_chunks {
            match read_call(part) {
                Ok(call) => ai.tool_calls.push(call),
                Err(invalid) => ai.invalid_tool_calls.push(invalid),
            }
        }
        debug_assert!(agree(ai, chunk), "each chunk has its call");
        let calls = ai.tool_calls.clone();
        self.settle_blocks(&calls);
    }

    /// Reads the raw call chunks of a provider, if the message has no others. Chunks that cannot be read are left
    /// alone.
    pub(super) fn read_raw_chunks(&mut self) {
        let raw = self.additional_kwargs.get("tool_calls").filter(|raw| truthy(raw));
        let (Some(raw), Some(chunk)) = (raw, &mut self.chunk) else { return };
        if chunk.tool_call_chunks.is_empty()
            && let Ok(chunks) = default_tool_chunk_parser(raw)
            && let Ok(chunks) = list("tool_call_chunks", Value::List(chunks))
        {
            chunk.tool_call_chunks = chunks;
        }
    }

    /// In the last chunk with content of the output version `v1`, chunks of tool calls in the content become whole.
    fn settle_blocks(&mut self, calls: &[ToolCall]) {
        let is_v1 = self.response_metadata.get("output_version").and_then(Value::as_str) == Some("v1");
        let is_last = self.chunk.as_ref().is_some_and(|chunk| chunk.last);
        let Content::Blocks(blocks) = &mut self.content else { return };
        if is_v1 && is_last {
            blocks.iter_mut().for_each(|block| settle_block(block, calls));
        }
    }
}

/// Returns whether there are as many calls as chunks of calls.
fn agree(ai: &Ai, chunk: &Chunk) -> bool {
    ai.tool_calls.len() + ai.invalid_tool_calls.len() == chunk.tool_call_chunks.len()
}

/// Reads the tool call of which this is all that is known.
fn read_call(chunk: &ToolCallChunk) -> Result<ToolCall, InvalidToolCall> {
    let args = match chunk.args.as_deref() {
        None | Some("") => Ok(Value::Map(Default::default())),
        Some(text) => parse_partial_json(text, false),
    };
    match args {
        Ok(Value::Map(args)) => {
            Ok(ToolCall { name: chunk.name.clone().unwrap_or_default(), args, id: chunk.id.clone() })
        }
        _ => {
            let ToolCallChunk { name, args, id, .. } = chunk.clone();
            Err(InvalidToolCall { name, args, id, error: None })
        }
    }
}

fn settle_block(block: &mut Value, calls: &[ToolCall]) {
    let Value::Map(map) = block else { return };
    match map.get("type").and_then(Value::as_str) {
        Some("tool_call_chunk") => {
            let id = map.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
            // Of several calls with one id the last one counts.
            let call = id.and_then(|id| calls.iter().rfind(|call| call.id.as_deref() == Some(id)));
            if let Some(call) = call {
                let extras = map.shift_remove("extras").filter(truthy);
                let fields = [
                    ("type", "tool_call".into()),
                    ("name", call.name.as_str().into()),
                    ("args", call.args.clone().into()),
                    ("id", call.id.clone().into()),
                ];
                *map = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                map.extend(extras.map(|extras| ("extras".to_owned(), extras)));
            }
        }
        Some("server_tool_call" | "server_tool_call_chunk") => {
            let text = match map.get("args") {
                Some(Value::Str(text)) if !text.is_empty() => text.as_str(),
                args if !args.is_some_and(truthy) => "{}",
                _ => return,
            };
            if let Ok(args @ Value::Map(_)) = json_loads(text, true) {
                map.insert("type".into(), "server_tool_call".into());
                map.insert("args".into(), args);
            }
        }
        _ => {}
    }
}
