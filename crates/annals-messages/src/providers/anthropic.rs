//! Answers of Anthropic's models.
//!
//! *Absent:* documents and pictures in a question.

use super::{call_block, call_chunks, chunk_block, each, is_open, json_object, objects, only_chunk, unknown};
use crate::blocks::draft::{Draft, kind_of, need, object_in, truthy_at, truthy_in, value_or};
use crate::{Message, MessageError};
use annals_base::{Map, Value};

pub(super) fn translate(message: &Message) -> Result<Vec<Map>, MessageError> {
    let mut blocks = each(&objects(message), |block, out| {
        out.push(match kind_of(block) {
            "text" => text(block, citation)?,
            "refusal" => Draft::of("refusal")
                .set("refusal", value_or(block, "refusal", ""))
                .maybe("extras", truthy_in(block, "extras").cloned())
                .copy("index", block)
                .done(),
            "thinking" => Draft::of("reasoning")
                .set("reasoning", value_or(block, "thinking", ""))
                .copy("index", block)
                .extras_except(block, &["type", "thinking", "index", "extras"])
                .done(),
            "tool_use" => {
                let draft = Draft::from_map(tool_use(message, block));
                ["caller", "toolset_name"].iter().fold(draft, |d, name| d.maybe_extra(name, block.get(name))).done()
            }
            "input_json_delta" if message.is_chunk() => input_delta(message).unwrap_or_else(|| {
                let args = value_or(block, "partial_json", "");
                Draft::of("server_tool_call_chunk").set("args", args).copy("index", block).done()
            }),
            "server_tool_use" => {
                let name = match value_or(block, "name", "") {
                    Value::Str(name) if name == "code_execution" => "code_interpreter".into(),
                    name => name,
                };
                server_call(message, block, name).done()
            }
            "mcp_tool_use" => {
                server_call(message, block, "remote_mcp".into()).maybe_extra("tool_name", block.get("name")).done()
            }
            kind if kind.ends_with("_tool_result") => server_result(block, kind),
            _ => unknown(block),
        });
        Ok(())
    })?;
    blocks.extend(refusal(&message.response_metadata).filter(|_| blocks.iter().all(|b| kind_of(b) != "refusal")));
    Ok(blocks)
}

/// Returns the refusal that the metadata of the whole answer report.
fn refusal(metadata: &Map) -> Option<Map> {
    if metadata.get("stop_reason").and_then(Value::as_str) != Some("refusal") {
        return None;
    }
    let details = object_in(metadata, "stop_details");
    let detail = |name: &str| details.and_then(|details| truthy_in(details, name));
    let words = detail("explanation").cloned().unwrap_or_else(|| "".into());
    Some(Draft::of("refusal").set("refusal", words).maybe_extra("category", detail("category")).done())
}

/// Translates a text with its sources.
pub(super) fn text(block: &Map, citation: fn(&Map) -> Map) -> Result<Map, MessageError> {
    let draft = Draft::of("text");
    let draft = match truthy_in(block, "citations").and_then(Value::as_list) {
        Some(citations) => {
            let citations = citations.iter().filter_map(Value::as_map).map(citation).map(Value::Map);
            draft.set("text", value_or(block, "text", "")).set("annotations", Value::List(citations.collect()))
        }
        None => draft.set("text", need(block, "text")?),
    };
    Ok(draft.copy("index", block).done())
}

fn citation(from: &Map) -> Map {
    let title = truthy_in(from, "title").cloned();
    let (title, needed, known): (_, &[&str], &[&str]) = match kind_of(from) {
        "web_search_result_location" => (title, &["cited_text", "url"], &["type", "cited_text", "url", "title"]),
        "char_location" | "content_block_location" | "page_location" | "search_result_location" => (
            from.get("document_title").cloned().or(title),
            &["cited_text"],
            &["type", "cited_text", "document_title", "title"],
        ),
        _ => (None, &["type"], &[]),
    };
    if known.is_empty() || needed.iter().any(|name| !from.contains_key(name)) {
        return Draft::of("non_standard_annotation").set("value", from.clone()).done();
    }
    let draft = needed.iter().fold(Draft::of("citation"), |draft, name| draft.copy(name, from));
    let mut rest = from.clone();
    rest.retain(|name, _| !matches!(name.as_str(), "index" | "extras"));
    draft.maybe("title", title).extras_except(&rest, known).done()
}

/// Translates the call of a tool, or a chunk of it: the tool calls of the message itself are newer.
pub(super) fn tool_use(message: &Message, block: &Map) -> Map {
    if let Some(chunk) = only_chunk(message) {
        return chunk_block(chunk);
    }
    let id = truthy_in(block, "id").and_then(Value::as_str);
    let call = match message.tool_calls() {
        [call] => Some(call),
        calls => calls.iter().find(|call| id.is_some() && call.id.as_deref() == id),
    };
    let draft = match call {
        Some(call) => Draft::from_map(call_block(call)),
        None => Draft::of("tool_call")
            .set("name", value_or(block, "name", ""))
            .set("args", value_or(block, "input", Map::new()))
            .set("id", value_or(block, "id", "")),
    };
    draft.copy("index", block).done()
}

/// Translates a chunk of the arguments, if the message says to which call it belongs.
pub(super) fn input_delta(message: &Message) -> Option<Map> {
    match call_chunks(message) {
        [chunk] => Some(chunk_block(chunk)),
        _ => None,
    }
}

fn server_call(message: &Message, block: &Map, name: Value) -> Draft {
    let input = block.get("input");
    let empty = matches!(input, Some(Value::Map(map)) if map.is_empty());
    let partial = block.get("partial_json");
    // The first chunk of a stream: the arguments are still to come.
    let opens = empty && partial.is_none() && is_open(message);
    let args = match partial.and_then(Value::as_str).filter(|_| empty).and_then(json_object) {
        _ if opens => Value::from(""),
        Some(args) => args.into(),
        None => value_or(block, "input", Map::new()),
    };
    let kind = if opens { "server_tool_call_chunk" } else { "server_tool_call" };
    let draft = Draft::of(kind).set("name", name).set("args", args).set("id", value_or(block, "id", ""));
    draft.copy("index", block).extras_except(block, &["type", "name", "input", "partial_json", "id", "index"])
}

fn server_result(block: &Map, kind: &str) -> Map {
    let output = truthy_in(block, "content");
    let failed = output.and_then(Value::as_map).is_some_and(|output| truthy_at(output, "error_code"));
    let status = if failed || truthy_at(block, "is_error") { "error" } else { "success" };
    Draft::of("server_tool_result")
        .set("tool_call_id", value_or(block, "tool_use_id", ""))
        .set("status", status)
        .extra("block_type", kind)
        .maybe("output", output.cloned())
        .copy("index", block)
        .extras_except(block, &["type", "tool_use_id", "content", "is_error", "index"])
        .done()
}
