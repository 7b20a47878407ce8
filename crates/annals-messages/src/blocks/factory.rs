//! Blocks from named fields, by the rules of LangChain's factories.
//!
//! *Absent:* the types; whatever is dynamic (a binding, a provider's answer) comes through here.

use super::draft::truthy_at;
use crate::{MessageError, ensure_id};
use annals_base::{IdSource, Map, Value};

/// The fields of one type: those that must be given, and the others that have a place of their own.
struct BlockShape {
    needed: &'static [&'static str],
    optional: &'static [&'static str],
}

const MEDIA: &[&str] = &["url", "base64", "file_id", "mime_type", "index"];

impl BlockShape {
    fn of(kind: &str) -> Option<Self> {
        let (needed, optional): (&'static [&'static str], &'static [&'static str]) = match kind {
            "text" => (&["text"], &["annotations", "index"]),
            "reasoning" => (&[], &["reasoning", "index"]),
            "image" | "video" | "audio" | "file" => (&[], MEDIA),
            "text-plain" => (&[], &["text", "url", "base64", "file_id", "title", "context", "index"]),
            "tool_call" => (&["name", "args"], &["index"]),
            "citation" => (&[], &["url", "title", "start_index", "end_index", "cited_text"]),
            "non_standard" => (&["value"], &["index"]),
            _ => return None,
        };
        Some(Self { needed, optional })
    }
}

/// Makes the object of a block. Nulls are left out, names without a place of their own become extras.
pub(crate) fn factory(kind: &str, mut fields: Map, ids: &mut IdSource) -> Result<Map, MessageError> {
    let shape = BlockShape::of(kind)
        .ok_or_else(|| MessageError::value(format!("there is no factory of blocks of type {kind:?}")))?;
    let mut block = Map::with_capacity(fields.len() + 2);
    block.insert("type".into(), kind.into());
    if kind == "text-plain" {
        block.insert("mime_type".into(), "text/plain".into());
    }
    for name in shape.needed {
        let value = fields.shift_remove(name);
        block.insert((*name).into(), value.ok_or_else(|| MessageError::argument("a content block", *name))?);
    }
    let id = match fields.shift_remove("id") {
        Some(Value::Str(id)) => Some(id),
        _ => None,
    };
    block.insert("id".into(), ensure_id(id, ids).into());
    if MEDIA_KINDS.contains(&kind) {
        check_media(kind, &fields)?;
    }
    for name in shape.optional {
        match fields.shift_remove(name) {
            None | Some(Value::Null) => {}
            Some(value) => {
                block.insert((*name).into(), value);
            }
        }
    }
    if kind == "reasoning" {
        block.or_insert_with("reasoning".into(), || "".into());
    }
    if kind == "non_standard"
        && let Some(name) = fields.keys().next()
    {
        return Err(MessageError::Unexpected { path: name.clone(), kind: "a non-standard block" });
    }
    fields.retain(|_, value| !value.is_null());
    if !fields.is_empty() {
        block.insert("extras".into(), fields.into());
    }
    Ok(block)
}

const MEDIA_KINDS: [&str; 4] = ["image", "video", "audio", "file"];

/// Checks that the block has data, and that data in the message have a MIME type, which is optional for an image.
fn check_media(kind: &str, fields: &Map) -> Result<(), MessageError> {
    if !["url", "base64", "file_id"].iter().any(|name| truthy_at(fields, name)) {
        return Err(MessageError::value("Must provide one of: url, base64, or file_id"));
    }
    if kind != "image" && truthy_at(fields, "base64") && !truthy_at(fields, "mime_type") {
        return Err(MessageError::value("mime_type is required when using base64 data"));
    }
    Ok(())
}
