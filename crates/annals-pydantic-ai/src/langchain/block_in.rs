//! Content blocks of LangChain as content of PydanticAI.
//!
//! *Absent:* providers' own blocks, which are copied unchanged.

use super::block_out::{python_json, wrapped_block};
use super::{KEY, LANGCHAIN, member, object};
use crate::base64;
use crate::content::UserItem;
use crate::file::{UrlKind, short_name};
use crate::tool_content::ToolContent;
use crate::wire::{Wire, read_value};
use annals_base::DefaultSource;
use annals_base::{Map, Value};

/// Returns the members of a block that LangChain does not have.
pub(super) fn envelope(block: &Map) -> Map {
    member(block, "extras").get(KEY).and_then(Value::as_map).cloned().unwrap_or_default()
}

/// Returns the value of a block that only PydanticAI understands.
pub(super) fn ours(block: &Map) -> Option<&Value> {
    let value = member(block, "value").as_map().filter(|value| value.len() == 1)?;
    (member(block, "type").as_str() == Some("non_standard")).then(|| value.get(KEY))?
}

/// Returns the JSON of user content: a text or a list of items.
pub(super) fn user_content(content: &Value) -> Value {
    match content {
        Value::List(blocks) => Value::List(blocks.iter().map(user_item).collect()),
        other => other.clone(),
    }
}

/// Returns the JSON of the item that a block stands for.
pub(super) fn user_item(block: &Value) -> Value {
    let Value::Map(map) = block else { return block.clone() };
    let text = text_item(map).or_else(|| ours(map).cloned());
    text.or_else(|| media(map)).unwrap_or_else(|| {
        // A block without a counterpart is retained as a value.
        let members = [
            ("content", python_json(block).into()),
            ("metadata", wrapped_block()),
            ("kind", "structured-content".into()),
            ("value", block.clone()),
        ];
        object(members).into()
    })
}

fn text_item(block: &Map) -> Option<Value> {
    let text = member(block, "text").as_str().filter(|_| member(block, "type").as_str() == Some("text"))?;
    let envelope = envelope(block);
    let kind = member(&envelope, "kind").as_str();
    let mut item = object([("content", text.into()), ("metadata", member(&envelope, "metadata").clone())]);
    match kind {
        Some("structured-content") if envelope.contains_key("value") => {
            item.insert("kind".into(), "structured-content".into());
            for name in ["value", "tag", "description"] {
                item.insert(name.into(), member(&envelope, name).clone());
            }
        }
        Some("text-content") => _ = item.insert("kind".into(), "text-content".into()),
        _ if block.keys().all(|name| name == "type" || name == "text") => return Some(text.into()),
        _ => {
            let mut kept = block.clone();
            kept.shift_remove("text");
            item.insert("metadata".into(), object([(LANGCHAIN, kept.into())]).into());
            item.insert("kind".into(), "text-content".into());
        }
    }
    Some(item.into())
}

/// Returns the JSON of the file that a block is, unless the block has members that a file lacks.
pub(super) fn media(block: &Map) -> Option<Value> {
    const OWN: [&str; 8] = ["type", "text", "extras", "url", "base64", "file_id", "mime_type", "id"];
    let extras_own = member(block, "extras").as_map().is_none_or(|extras| extras.keys().all(|name| name == KEY));
    let kind = match member(block, "type").as_str()? {
        "image" => UrlKind::Image,
        "audio" => UrlKind::Audio,
        "video" => UrlKind::Video,
        "file" => UrlKind::Document,
        _ => return None,
    };
    if !extras_own || block.keys().any(|name| !OWN.contains(&name.as_str())) {
        return None;
    }
    let envelope = envelope(block);
    let name = |of: &[u8]| match member(block, "id").as_str().filter(|id| !id.is_empty()) {
        Some(id) => Value::from(id),
        None => short_name(of).into(),
    };
    let media_type = || block.get("mime_type").cloned().unwrap_or_else(|| "application/octet-stream".into());
    let vendor_metadata = member(&envelope, "vendor_metadata").clone();
    let file = if let Some(url) = member(block, "url").as_str() {
        object([
            ("url", url.into()),
            ("force_download", envelope.get("force_download").cloned().unwrap_or(Value::Bool(false))),
            ("vendor_metadata", vendor_metadata),
            ("kind", kind.write()),
            ("media_type", member(block, "mime_type").clone()),
            ("identifier", name(url.as_bytes())),
        ])
    } else if let Some(data) = member(block, "base64").as_str() {
        let bytes = base64::decode(data)?;
        object([
            ("data", base64::encode(&bytes).into()),
            ("media_type", media_type()),
            ("vendor_metadata", vendor_metadata),
            ("kind", "binary".into()),
            ("identifier", name(&bytes)),
        ])
    } else {
        let file_id = member(block, "file_id").as_str()?;
        object([
            ("file_id", file_id.into()),
            ("provider_name", envelope.get("provider_name")?.clone()),
            ("vendor_metadata", vendor_metadata),
            ("kind", "uploaded-file".into()),
            ("media_type", media_type()),
            ("identifier", name(file_id.as_bytes())),
        ])
    };
    Some(file.into())
}

/// Returns the content of a tool message, and the record of its files.
pub(super) fn tool_content(content: &Value, defaults: &mut DefaultSource<'_>) -> (Value, Vec<String>) {
    let Value::List(blocks) = content else { return (content.clone(), Vec::new()) };
    let items = blocks.iter().map(user_item).map(|form| match read_value("block", form.clone(), defaults) {
        Ok(UserItem::File(file)) => ToolContent::File(file),
        _ => ToolContent::data(form),
    });
    let content = ToolContent::List(items.collect());
    (content.to_value(), content.digests().unwrap_or_default())
}
