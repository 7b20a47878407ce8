//! Messages of a model, of LangChain, as responses.
//!
//! *Absent:* validation; the resulting document is loaded as any other.

use super::block_in::{envelope, media, ours};
use super::usage::usage_in;
use super::{member, object};
use annals_base::{Map, Value};

/// The fields of a response that its envelope may hold.
const HEAD: [&str; 11] = [
    "model_id",
    "provider_url",
    "canonical_system",
    "provider_details",
    "run_id",
    "conversation_id",
    "metadata",
    "workspace_ref",
    "history_digest",
    "failed_attempts",
    "state",
];

/// Returns the form of the response that a message stands for.
pub(super) fn response(map: &Map, held: Option<&Map>, now: &Value) -> Map {
    let none = Map::new();
    let held = held.unwrap_or(&none);
    let metadata = member(map, "response_metadata");
    let about = |name: &str| metadata.get(name).cloned().unwrap_or_default();
    let model = metadata.get("model_name").or_else(|| metadata.get("model")).cloned().unwrap_or_default();
    let reason = metadata.get("finish_reason").or_else(|| metadata.get("stop_reason")).and_then(Value::as_str);
    let mut response = object([
        ("parts", parts(map, held, now).into()),
        ("usage", usage_in(member(map, "usage_metadata"), member(held, "usage"))),
        ("model_name", model),
        ("timestamp", held.get("timestamp").unwrap_or(now).clone()),
        ("kind", "response".into()),
        ("provider_name", about("model_provider")),
        ("provider_response_id", about("id")),
        ("finish_reason", reason.and_then(finish_reason).into()),
    ]);
    let head = held.iter().filter(|(name, _)| HEAD.contains(&name.as_str()));
    response.extend(head.map(|(name, value)| (name.clone(), value.clone())));
    response
}

/// Returns the reason as PydanticAI names it; those of the providers are known.
fn finish_reason(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "stop" | "end_turn" | "stop_sequence" | "STOP" | "COMPLETE" => "stop",
        "length" | "max_tokens" | "MAX_TOKENS" => "length",
        "content_filter" | "SAFETY" | "refusal" => "content_filter",
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => "tool_call",
        "error" => "error",
        _ => return None,
    })
}

/// Returns the ids of the calls of a response with the names of their tools.
pub(super) fn calls(response: &Map) -> impl Iterator<Item = (String, String)> {
    let parts = member(response, "parts").as_list().unwrap_or_default();
    let calls = parts.iter().filter(|part| part.get("part_kind").and_then(Value::as_str) == Some("tool-call"));
    calls.filter_map(|call| {
        let text = |name| call.get(name).and_then(Value::as_str).map(str::to_owned);
        Some((text("tool_call_id")?, text("tool_name")?))
    })
}

fn parts(map: &Map, held: &Map, now: &Value) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut inline = Vec::new();
    let text_block = |text: &str| object([("type", "text".into()), ("text", text.into())]);
    let blocks = match member(map, "content") {
        Value::Str(text) if text.is_empty() => Vec::new(),
        Value::Str(text) => vec![text_block(text)],
        Value::List(blocks) => blocks
            .iter()
            .filter_map(|block| match block {
                Value::Str(text) => Some(text_block(text)),
                other => other.as_map().cloned(),
            })
            .collect(),
        _ => Vec::new(),
    };
    for block in &blocks {
        if let Some(part) = block_part(block, &parts, now) {
            if member(block, "type").as_str() == Some("tool_call") {
                inline.push(member(block, "id").clone());
            }
            parts.push(part);
        }
    }
    let listed = |name: &str| -> Vec<Value> {
        let envelopes = member(held, name).as_list().unwrap_or_default();
        let entries = member(map, name).as_list().unwrap_or_default().iter().enumerate();
        let foreign = held.is_empty();
        let calls = entries.map(|(at, entry)| call_part(at, entry, envelopes.get(at), foreign));
        // A call that has its place among the blocks is not repeated.
        calls.filter(|call| !inline.contains(call.get("tool_call_id").unwrap_or(&Value::Null))).collect()
    };
    let mut groups = [parts, listed("tool_calls"), listed("invalid_tool_calls")].map(Vec::into_iter);
    let mut ordered = Vec::new();
    for letter in member(held, "order").as_str().unwrap_or_default().chars() {
        if let Some(group) = "bci".find(letter) {
            ordered.extend(groups[group].next());
        }
    }
    ordered.extend(groups.into_iter().flatten());
    ordered
}

/// Returns the part that a call stands for. Of a message that came from PydanticAI, an empty name or id is one.
fn call_part(at: usize, entry: &Value, envelope: Option<&Value>, foreign: bool) -> Value {
    let get = |name: &str| entry.get(name).cloned().unwrap_or_default();
    let more = |name: &str| envelope.and_then(|envelope| envelope.get(name)).cloned().unwrap_or_default();
    let or = |value: Value, other: String| {
        let given = value.as_str().is_some_and(|text| !foreign || !text.is_empty());
        if given { value } else { other.into() }
    };
    let args = envelope.and_then(|envelope| envelope.get("args")).cloned();
    let part = object([
        ("tool_name", or(get("name"), "unknown".into())),
        ("args", args.unwrap_or_else(|| get("args"))),
        ("tool_call_id", or(get("id"), format!("lc_{at}"))),
        ("tool_kind", more("tool_kind")),
        ("id", more("id")),
        ("provider_name", more("provider_name")),
        ("provider_details", more("provider_details")),
        ("part_kind", "tool-call".into()),
    ]);
    part.into()
}

/// Returns the part that a block stands for. `before` are the parts so far. A block without a counterpart is left out:
/// the record of the message keeps it.
fn block_part(block: &Map, before: &[Value], now: &Value) -> Option<Value> {
    let held = envelope(block);
    let get = |name: &str| member(block, name).clone();
    let more = |name: &str| member(&held, name).clone();
    let provider = [("provider_name", more("provider_name")), ("provider_details", more("provider_details"))];
    let mut part = match member(block, "type").as_str()? {
        "text" => {
            const OWN: [&str; 5] = ["type", "text", "id", "annotations", "extras"];
            if block.keys().any(|name| !OWN.contains(&name.as_str())) {
                return None;
            }
            member(block, "text").as_str()?;
            let cited = held.get("citations").cloned();
            let citations = cited.unwrap_or_else(|| citations(member(block, "annotations")));
            let kind = ("part_kind", "text".into());
            object([("content", get("text")), ("id", get("id")), ("citations", citations), kind])
        }
        "reasoning" | "thinking" => {
            let text = block.get("reasoning").or_else(|| block.get("thinking")).cloned().unwrap_or_else(|| "".into());
            let signature = member(block, "extras").get("signature").or_else(|| block.get("signature"));
            let signature = ("signature", signature.cloned().unwrap_or_default());
            object([("content", text), ("id", get("id")), signature, ("part_kind", "thinking".into())])
        }
        "server_tool_call" => object([
            ("tool_name", get("name")),
            ("args", held.get("args").cloned().unwrap_or_else(|| get("args"))),
            ("tool_call_id", get("id")),
            ("tool_kind", more("tool_kind")),
            ("id", more("id")),
            ("part_kind", "builtin-tool-call".into()),
        ]),
        "server_tool_result" => native_return(block, &held, before, now),
        "non_standard" => return ours(block).cloned(),
        "image" | "audio" | "video" | "file" if block.contains_key("base64") => {
            let content = media(block).filter(|file| file.get("kind").and_then(Value::as_str) == Some("binary"))?;
            object([("content", content), ("id", more("id")), ("part_kind", "file".into())])
        }
        "tool_call" => {
            return Some(call_part(0, &Value::Map(block.clone()), None, true));
        }
        _ => return None,
    };
    part.extend(provider.map(|(name, value)| (name.to_owned(), value)));
    Some(part.into())
}

fn native_return(block: &Map, held: &Map, before: &[Value], now: &Value) -> Map {
    let id = member(block, "tool_call_id");
    let name = held.get("tool_name").cloned().or_else(|| {
        let is_call = |part: &&Value| {
            part.get("part_kind").and_then(Value::as_str) == Some("builtin-tool-call")
                && part.get("tool_call_id") == Some(id)
        };
        before.iter().find(is_call)?.get("tool_name").cloned()
    });
    let failed = member(block, "status").as_str() == Some("error");
    let outcome = Value::from(if failed { "failed" } else { "success" });
    object([
        ("tool_name", name.unwrap_or_else(|| "unknown".into())),
        ("content", member(block, "output").clone()),
        ("tool_call_id", id.clone()),
        ("tool_kind", member(held, "tool_kind").clone()),
        ("metadata", member(held, "metadata").clone()),
        ("timestamp", held.get("timestamp").unwrap_or(now).clone()),
        ("outcome", held.get("outcome").cloned().unwrap_or(outcome)),
        ("part_kind", "builtin-tool-return".into()),
        ("content_file_digests", held.get("content_file_digests").cloned().unwrap_or(Value::List(Vec::new()))),
    ])
}

/// Returns the form of the citations that annotations stand for; null if there are none.
fn citations(annotations: &Value) -> Value {
    let mut found = Vec::new();
    for annotation in annotations.as_list().unwrap_or_default() {
        let text = |name: &str| annotation.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if text("type") != Some("citation") {
            continue;
        }
        let title = annotation.get("title").cloned().unwrap_or_default();
        let excerpts = Value::List(text("cited_text").into_iter().map(Value::from).collect());
        let source = match (text("url"), text("title"), text("cited_text")) {
            (Some(url), _, _) => object([("url", url.into()), ("kind", "web".into())]),
            // A source that says nothing is none.
            (None, None, None) => continue,
            _ => object([("kind", "document".into())]),
        };
        let source: Map = source.into_iter().chain(object([("title", title), ("excerpts", excerpts)])).collect();
        let index = |name: &str| annotation.get(name).and_then(Value::as_int);
        let anchor = match (index("start_index"), index("end_index")) {
            (Some(start), Some(end)) if 0 <= start && start < end => {
                object([("start", start.into()), ("end", end.into()), ("kind", "content".into())]).into()
            }
            _ => Value::Null,
        };
        found.push(Value::from(object([("sources", Value::List(vec![source.into()])), ("anchor", anchor)])));
    }
    if found.is_empty() { Value::Null } else { found.into() }
}
