//! Content of PydanticAI as content blocks of LangChain.
//!
//! *Absent:* blocks of responses other than files.

use super::block_in::user_item as user_item_in;
use super::{KEY, LANGCHAIN, object, put_some, put_unless};
use crate::base64;
use crate::content::{UserContent, UserItem};
use crate::file::{Binary, File, UrlKind};
use crate::tool_content::ToolContent;
use crate::wire::{COMPACT_PYTHON, Wire};
use annals_base::{Map, Value};
use annals_messages::Content;
use annals_messages::internal::json_write;

/// Returns a value as JSON text, as Python writes it.
pub(super) fn python_json(value: &Value) -> String {
    json_write(value, COMPACT_PYTHON)
}

pub(super) fn user_content(content: &UserContent) -> Content {
    match content {
        UserContent::Text(text) => text.as_str().into(),
        UserContent::Items(items) => Content::Blocks(items.iter().map(user_item).collect()),
    }
}

/// Returns the type of block for a type of media.
fn media_block(media_type: &str) -> &'static str {
    match media_type.split('/').next() {
        Some("image") => "image",
        Some("audio") => "audio",
        Some("video") => "video",
        _ => "file",
    }
}

/// Returns a file as a block, and its members that LangChain does not have.
fn media(file: &File) -> (Map, Map) {
    let mut envelope = Map::new();
    let (mut block, media_type) = match file {
        File::Url(url) => {
            let kind = match url.kind {
                UrlKind::Image => "image",
                UrlKind::Audio => "audio",
                UrlKind::Video => "video",
                UrlKind::Document => "file",
            };
            put_unless(&mut envelope, "force_download", url.force_download.write(), &false.into());
            put_some(&mut envelope, "vendor_metadata", url.vendor_metadata.as_ref());
            (object([("type", kind.into()), ("url", url.url.write())]), url.media_type.clone())
        }
        File::Binary(binary) => {
            put_some(&mut envelope, "vendor_metadata", binary.vendor_metadata.as_ref());
            let data = base64::encode_standard(&binary.data.0);
            let kind = media_block(&binary.media_type);
            (object([("type", kind.into()), ("base64", data.into())]), Some(binary.media_type.clone()))
        }
        File::Uploaded(file) => {
            envelope.insert("provider_name".into(), file.provider_name.write());
            put_some(&mut envelope, "vendor_metadata", file.vendor_metadata.as_ref());
            let kind = media_block(&file.media_type);
            (object([("type", kind.into()), ("file_id", file.file_id.write())]), Some(file.media_type.clone()))
        }
    };
    put_some(&mut block, "mime_type", media_type.as_ref());
    block.insert("id".into(), file.identifier().into());
    (block, envelope)
}

/// Returns a file as a block.
pub(super) fn file(file: &File) -> Value {
    let (block, envelope) = media(file);
    with_extras(block, envelope)
}

/// Returns a file that a model made as a block; `more` holds the other members of the part.
pub(super) fn made_file(binary: &Binary, more: Map) -> Value {
    let (block, inner) = media(&File::Binary(binary.clone()));
    let mut envelope = object([("part", "file".into())]);
    envelope.extend(inner);
    envelope.extend(more);
    with_extras(block, envelope)
}

fn text_block(text: &str) -> Map {
    object([("type", "text".into()), ("text", text.into())])
}

/// Returns whether a block of LangChain, when it is read, gives the item.
fn is_read_as(block: &Map, item: &UserItem) -> bool {
    user_item_in(&Value::Map(block.clone())) == item.write()
}

/// Adds the members that LangChain does not have to a block, if there are any.
pub(super) fn with_extras(mut block: Map, envelope: Map) -> Value {
    if !envelope.is_empty() {
        block.insert("extras".into(), object([(KEY, envelope.into())]).into());
    }
    block.into()
}

fn user_item(item: &UserItem) -> Value {
    match item {
        UserItem::Text(text) => text_block(text).into(),
        UserItem::File(file) => self::file(file),
        UserItem::TextContent(text) => {
            if let Some(Value::Map(kept)) = text.metadata.get(LANGCHAIN) {
                // A text block of LangChain with members that are its own.
                let mut block = text_block(&text.content);
                block.extend(kept.iter().map(|(name, value)| (name.clone(), value.clone())));
                if is_read_as(&block, item) {
                    return block.into();
                }
            }
            let mut envelope = object([("kind", "text-content".into())]);
            put_unless(&mut envelope, "metadata", text.metadata.clone(), &Value::Null);
            with_extras(text_block(&text.content), envelope)
        }
        UserItem::Structured(structured) => {
            if let Value::Map(block) = &structured.value
                && structured.metadata == wrapped_block()
                && is_read_as(block, item)
            {
                return structured.value.clone();
            }
            let mut envelope = object([("kind", "structured-content".into()), ("value", structured.value.clone())]);
            put_unless(&mut envelope, "metadata", structured.metadata.clone(), &Value::Null);
            put_some(&mut envelope, "tag", structured.tag.as_ref());
            put_some(&mut envelope, "description", structured.description.as_ref());
            with_extras(text_block(&structured.content), envelope)
        }
        UserItem::CachePoint(item) => non_standard(item.write()),
    }
}

/// The metadata of a structured content that holds a block of LangChain.
pub(super) fn wrapped_block() -> Value {
    object([(LANGCHAIN, object([("block", true.into())]).into())]).into()
}

/// Returns a block that only PydanticAI understands.
pub(super) fn non_standard(value: Value) -> Value {
    object([("type", "non_standard".into()), ("value", object([(KEY, value)]).into())]).into()
}

/// Returns the result of a tool as content of a message, and true if the content loses information.
pub(super) fn tool_content(content: &ToolContent) -> (Content, bool) {
    match content {
        ToolContent::Scalar(Value::Str(text)) => (text.as_str().into(), false),
        ToolContent::Scalar(Value::Null) => (Content::default(), true),
        content if content.files().next().is_some() => {
            let items = match content {
                ToolContent::List(items) => &items[..],
                other => std::slice::from_ref(other),
            };
            let block = |item: &ToolContent| match item {
                ToolContent::File(file) => self::file(file),
                ToolContent::Scalar(Value::Str(text)) => text_block(text).into(),
                other => text_block(&python_json(&other.to_value())).into(),
            };
            (Content::Blocks(items.iter().map(block).collect()), true)
        }
        other => (python_json(&other.to_value()).into(), true),
    }
}
