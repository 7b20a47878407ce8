//! Data blocks of the older form: `{"type": "image", "source_type": "url", "url": ...}`.
//!
//! *Absent:* the newer form, which is the standard one.

use crate::MessageError;
use crate::blocks::draft::{Draft, kind_of, need, truthy_in};
use crate::blocks::factory::factory;
use annals_base::{IdSource, Map, Value};

pub(super) fn convert(block: &Map, ids: &mut IdSource) -> Result<Option<Map>, MessageError> {
    let kind = kind_of(block);
    if !matches!(kind, "image" | "audio" | "file") {
        return Ok(None);
    }
    let Some(source) = block.get("source_type").and_then(Value::as_str) else { return Ok(None) };
    let (kind, field, data) = match (source, kind) {
        ("url", _) => (kind, "url", "url"),
        ("base64", _) => (kind, "base64", "data"),
        ("text", "file") => ("text-plain", "text", "url"),
        ("id", _) => return by_file_id(kind, block, ids).map(Some),
        _ => return Ok(None),
    };
    let value = need(block, data)?;
    if block.contains_key("id") {
        // LangChain passes the id twice and fails; here the block would be given an id that it has.
        return Err(MessageError::wrong_type("a block with a source_type got multiple values for the argument 'id'"));
    }
    let mime_type = truthy_in(block, "mime_type").cloned();
    let mime_type = mime_type.or_else(|| (kind == "text-plain").then(|| "text/plain".into()));
    let draft = Draft::of(kind).set(field, value).maybe("mime_type", mime_type);
    Ok(Some(with_extras(draft, block, &["type", "source_type", "mime_type", data])))
}

/// Here `id` is the name of the file at the provider, not that of the block.
fn by_file_id(kind: &str, block: &Map, ids: &mut IdSource) -> Result<Map, MessageError> {
    let file_id = need(block, "id")?;
    if kind != "file" {
        return Ok(with_extras(Draft::of(kind).set("file_id", file_id), block, &["type", "source_type", "id"]));
    }
    let mut fields = block.clone();
    fields.retain(|name, _| !matches!(name.as_str(), "type" | "source_type" | "id"));
    fields.insert("file_id".into(), file_id);
    factory("file", fields, ids)
}

fn with_extras(draft: Draft, block: &Map, known: &[&str]) -> Map {
    let set = block.iter().filter(|(_, value)| !value.is_null());
    draft.extras_except(&set.map(|(name, value)| (name.clone(), value.clone())).collect(), known).done()
}
