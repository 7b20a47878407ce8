//! Blocks of content in the way of the Anthropic interface, which several programs store.

use serde_json::{Value as Json, json};

use crate::draft::MessageDraft;
use crate::json;

/// Returns the result of a tool call in a block.
pub(crate) fn of_result(block: &Json) -> MessageDraft {
    let mut draft = MessageDraft::result(String::new(), json::text(block, "tool_use_id"));
    draft.is_error = block["is_error"] == true;
    match &block["content"] {
        Json::Array(parts) => parts.iter().for_each(|part| of_block(&mut draft, part)),
        Json::Null => {}
        text => draft.text(&json::as_text(text)),
    }
    draft
}

/// Adds a block of content: a text, a picture or a document.
pub(crate) fn of_block(draft: &mut MessageDraft, block: &Json) {
    let source = &block["source"];
    match json::text(block, "type") {
        "text" => draft.text_in(block, "text"),
        "image" | "document" => match (json::text(source, "type"), json::text(source, "url")) {
            ("base64", _) if block["type"] == "image" => {
                draft.image_base64(json::text(source, "media_type"), json::text(source, "data"));
            }
            ("base64", _) => {
                let mime = json::text(source, "media_type");
                draft.file(mime, &format!("data:{mime};base64,{}", json::text(source, "data")), "");
            }
            (_, "") => draft.opaque(block),
            (_, url) if block["type"] == "image" => draft.image(url),
            (_, url) => draft.file(json::text(source, "media_type"), url, ""),
        },
        _ => match block.as_str() {
            Some(text) => draft.text(text),
            None => draft.opaque(block),
        },
    }
}

/// Adds a block of the model: reasoning, a tool call, or a block of content.
pub(crate) fn of_model_block(draft: &mut MessageDraft, block: &Json) {
    match json::text(block, "type") {
        "thinking" => draft.reasoning_in(block, "thinking"),
        "reasoning" => draft.reasoning_in(block, "text"),
        "redacted_thinking" => draft.opaque(block),
        "tool_use" => {
            let empty = json!({});
            let input = if block["input"].is_null() { &empty } else { &block["input"] };
            draft.call(json::text(block, "id"), json::text(block, "name"), input);
        }
        _ => of_block(draft, block),
    }
}

/// Returns the blocks of a content, of which a text is one.
pub(crate) fn blocks_of(content: &Json) -> &[Json] {
    match content {
        Json::Array(blocks) => blocks,
        Json::Null => &[],
        one => std::slice::from_ref(one),
    }
}
