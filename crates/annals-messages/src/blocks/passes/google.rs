//! Blocks of Google, and those of Bedrock's Converse: an object with one member, whose name is the type.
//!
//! *Absent:* answers of Google's models, except for the shared parts.

use crate::MessageError;
use crate::blocks::draft::{Draft, kind_of, object_in, truthy_in, value_or};
use annals_base::{IdSource, Map, Value};
use data_encoding::BASE64;

pub(super) fn convert(block: &Map, ids: &mut IdSource) -> Result<Option<Map>, MessageError> {
    if let Some(converted) = single(block, ids)? {
        return Ok(Some(converted));
    }
    Ok(match kind_of(block) {
        "file_data" if block.contains_key("file_uri") => Some(file(block)),
        "function_call" if block.contains_key("name") => Some(function_call(block)),
        "executable_code" => Some(code(block)),
        "code_execution_result" => Some(code_result(block).done()),
        _ => None,
    })
}

/// Converts `{"text": ..}`, `{"document": ..}` and `{"image": ..}`.
pub(super) fn single(block: &Map, _: &mut IdSource) -> Result<Option<Map>, MessageError> {
    if block.len() != 1 {
        return Ok(None);
    }
    if let Some(text) = truthy_in(block, "text") {
        return Ok(Some(Draft::of("text").set("text", text.clone()).done()));
    }
    let (kind, inner) = match (object_in(block, "document"), object_in(block, "image")) {
        (Some(document), _) => ("document", document),
        (_, Some(image)) => ("image", image),
        _ => return Ok(None),
    };
    let Some(format) = inner.get("format").and_then(Value::as_str) else { return Ok(None) };
    let source = object_in(inner, "source");
    let bytes = source.and_then(|source| match source.get("bytes")? {
        Value::Str(text) => Some(text.clone()),
        Value::Bytes(bytes) => Some(BASE64.encode(bytes)),
        _ => None,
    });
    let draft = match (kind, format, bytes) {
        ("document", "pdf", Some(data)) => Draft::of("file").set("base64", data).set("mime_type", "application/pdf"),
        ("document", "txt", _) => match source.and_then(|source| source.get("text")) {
            Some(text) => Draft::of("text-plain").set("text", text.clone()).set("mime_type", "text/plain"),
            None => return Ok(None),
        },
        ("image", format, Some(data)) => {
            Draft::of("image").set("base64", data).set("mime_type", format!("image/{format}"))
        }
        _ => return Ok(None),
    };
    Ok(Some(draft.extras_except(inner, &["format", "source"]).done()))
}

pub(crate) fn file(block: &Map) -> Map {
    let url = value_or(block, "file_uri", "");
    Draft::of("file").set("url", url).maybe("mime_type", truthy_in(block, "mime_type").cloned()).done()
}

pub(crate) fn function_call(block: &Map) -> Map {
    Draft::of("tool_call")
        .set("name", value_or(block, "name", ""))
        .set("args", value_or(block, "args", Map::new()))
        .set("id", value_or(block, "id", ""))
        .done()
}

pub(crate) fn code(block: &Map) -> Map {
    let args = Map::from_iter([
        ("code".to_owned(), value_or(block, "executable_code", "")),
        ("language".to_owned(), value_or(block, "language", "python")),
    ]);
    let draft = Draft::of("server_tool_call").set("name", "code_interpreter").set("args", args);
    draft.set("id", value_or(block, "id", "")).done()
}

/// Outcome 1 is success, and so is none.
pub(crate) fn code_result(block: &Map) -> Draft {
    let outcome = value_or(block, "outcome", 1);
    let success = matches!(outcome, Value::Int(1) | Value::Bool(true)) || outcome == Value::Float(1.0);
    let status = if success { "success" } else { "error" };
    let draft = Draft::of("server_tool_result")
        .set("tool_call_id", value_or(block, "tool_call_id", ""))
        .set("status", status)
        .set("output", value_or(block, "code_execution_result", ""));
    if outcome.is_null() { draft } else { draft.extra("outcome", outcome) }
}
