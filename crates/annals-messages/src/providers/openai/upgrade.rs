//! The older form of an answer through the Responses interface: parts beside the content go back into it.
//!
//! *Absent:* the meaning of the blocks.

use crate::blocks::draft::{kind_of, object_in, truthy_in};
use crate::providers::only_chunk;
use crate::text::json_dumps;
use crate::{Message, ToolCall};
use annals_base::{Map, Value};

/// The order in which the interface gives the blocks.
const ORDER: [&str; 10] = [
    "reasoning",
    "code_interpreter_call",
    "mcp_call",
    "image_generation_call",
    "text",
    "refusal",
    "function_call",
    "computer_call",
    "mcp_list_tools",
    "mcp_approval_request",
];

const CALL_IDS: &str = "__openai_function_call_ids__";

/// Returns the blocks in the newer form; none if the message is in that form already.
pub(super) fn upgraded(message: &Message, content: &[Value]) -> Option<Vec<Map>> {
    let content: Vec<&Map> = content.iter().map(Value::as_map).collect::<Option<_>>()?;
    let beside = &message.additional_kwargs;
    let kept_beside = ["reasoning", "tool_outputs", "refusal", CALL_IDS].iter().any(|name| beside.contains_key(name));
    let id = message.id.as_deref().filter(|id| id.starts_with("msg_"));
    let response = message.response_metadata.get("id").and_then(Value::as_str);
    let of_responses = id.is_some() && response.is_some_and(|response| response.starts_with("resp_"));
    if !kept_beside && !of_responses {
        return None;
    }
    let mut blocks = Vec::new();
    if let Some(reasoning) = truthy_in(beside, "reasoning").and_then(Value::as_map) {
        let mut reasoning = reasoning.clone();
        reasoning.or_insert_with("type".into(), || "reasoning".into());
        blocks.push((0, reasoning));
    }
    if let Some(refusal) = truthy_in(beside, "refusal") {
        blocks.push((place("refusal"), block("refusal", [("refusal", refusal.clone())])));
    }
    for block in content {
        let mut block = block.clone();
        if kind_of(&block) != "text" {
            blocks.push((ORDER.len(), block));
            continue;
        }
        if let Some(id) = id {
            block.insert("id".into(), id.into());
        }
        blocks.push((place("text"), block));
    }
    blocks.extend(function_calls(message).into_iter().map(|call| (place("function_call"), call)));
    let outputs = beside.get("tool_outputs").and_then(Value::as_list).unwrap_or_default();
    blocks.extend(outputs.iter().filter_map(Value::as_map).map(|output| (place(kind_of(output)), output.clone())));
    // Stable: within a kind the order stays.
    blocks.sort_by_key(|(place, _)| *place);
    Some(blocks.into_iter().map(|(_, block)| block).collect())
}

fn place(kind: &str) -> usize {
    ORDER.iter().position(|known| *known == kind).unwrap_or(ORDER.len())
}

fn block<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Map {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    std::iter::once(("type".to_owned(), kind.into())).chain(fields).collect()
}

fn function_calls(message: &Message) -> Vec<Map> {
    let ids = object_in(&message.additional_kwargs, CALL_IDS);
    let call = |name: Value, arguments: Value, call_id: Option<&str>| {
        let item = call_id.and_then(|id| truthy_in(ids?, id)).cloned();
        let mut call = block("function_call", [("name", name), ("arguments", arguments), ("call_id", call_id.into())]);
        call.extend(item.map(|item| ("id".to_owned(), item)));
        call
    };
    if let Some(chunk) = only_chunk(message) {
        return vec![call(chunk.name.clone().into(), chunk.args.clone().into(), chunk.id.as_deref())];
    }
    let arguments = |made: &ToolCall| json_dumps(&Value::Map(made.args.clone()), false).into();
    message
        .tool_calls()
        .iter()
        .map(|made| call(made.name.as_str().into(), arguments(made), made.id.as_deref()))
        .collect()
}
