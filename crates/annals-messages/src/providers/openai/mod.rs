//! Answers of OpenAI's models, through either of its interfaces.
//!
//! *Absent:* the tools that OpenAI runs, and the older form of an answer.

mod server;
mod upgrade;

use super::{call_block, chunk_block, chunk_blocks, each, invalid_block, invalid_calls, is_open, only_chunk};
use crate::blocks::draft::{Draft, kind_of, non_standard_with_index, object_in, truthy_in, value_or};
use crate::blocks::is_known;
use crate::blocks::passes::text_block;
use crate::text::py_str;
use crate::{Content, Message, MessageError};
use annals_base::{Map, Value};

pub(super) fn translate(message: &Message) -> Result<Vec<Map>, MessageError> {
    let content = match &message.content {
        Content::Blocks(content) => content,
        Content::Text(text) => return Ok(chat_completion(message, text)),
    };
    let blocks = match upgrade::upgraded(message, content) {
        Some(blocks) => blocks,
        None => content.iter().filter_map(Value::as_map).cloned().collect(),
    };
    each(&blocks, |block, out| {
        if server::translate(block, &blocks, out)? {
            return Ok(());
        }
        match kind_of(block) {
            "text" => out.push(text(block)),
            "refusal" => out.push(refusal(block)),
            "reasoning" => out.extend(reasoning(block)),
            "image_generation_call" if truthy_in(block, "result").is_some() => out.push(image(block)),
            "function_call" => out.extend(function_call(message, block)),
            kind if is_known(kind) => out.push(block.clone()),
            _ => out.push(non_standard_with_index(block.clone(), |index| prefixed("lc_ns_", &index))),
        }
        Ok(())
    })
}

/// Numbers of several kinds of blocks are held apart by a prefix.
fn prefixed(prefix: &str, index: &Value) -> Value {
    format!("{prefix}{}", py_str(index)).into()
}

fn index_of(block: &Map, prefix: &str) -> Option<Value> {
    block.get("index").map(|index| prefixed(prefix, index))
}

fn chat_completion(message: &Message, text: &str) -> Vec<Map> {
    let mut blocks = Vec::new();
    if !text.is_empty() {
        blocks.push(text_block(text));
    }
    if is_open(message) {
        blocks.extend(chunk_blocks(message));
    } else {
        blocks.extend(message.tool_calls().iter().map(call_block));
    }
    if let Some(refusal) = truthy_in(&message.additional_kwargs, "refusal") {
        blocks.push(Draft::of("refusal").set("refusal", refusal.clone()).done());
    }
    blocks
}

fn text(block: &Map) -> Map {
    let mut text = block.clone();
    text.or_insert_with("text".into(), || "".into());
    if let Some(Value::List(annotations)) = text.get_mut("annotations") {
        for annotation in annotations {
            if let Value::Map(from) = annotation {
                *annotation = Value::Map(self::annotation(from));
            }
        }
    }
    if let Some(index) = text.get_mut("index") {
        *index = prefixed("lc_txt_", index);
    }
    text
}

fn refusal(block: &Map) -> Map {
    let draft = Draft::of("refusal").set("refusal", value_or(block, "refusal", ""));
    let extras = object_in(block, "extras").into_iter().flatten();
    let draft = extras.fold(draft, |draft, (name, value)| draft.extra(name, value.clone()));
    let draft = draft.copy("id", block).copy("index", block);
    draft.extras_except(block, &["type", "refusal", "id", "index", "extras"]).done()
}

fn annotation(from: &Map) -> Map {
    match kind_of(from) {
        "url_citation" => {
            let fields = ["end_index", "start_index", "title", "url"];
            let draft = fields.iter().fold(Draft::of("citation"), |draft, name| draft.copy(name, from));
            draft.extras_except(from, &["type", "url", "title", "cited_text", "start_index", "end_index"]).done()
        }
        "file_citation" => Draft::of("citation")
            .maybe("title", from.get("filename").cloned())
            .extras_except(from, &["type", "title", "cited_text", "start_index", "end_index", "filename"])
            .done(),
        _ => Draft::of("non_standard_annotation").set("value", from.clone()).done(),
    }
}

/// A summary has several parts; each becomes a block.
fn reasoning(block: &Map) -> Vec<Map> {
    const OWN: [&str; 5] = ["type", "reasoning", "id", "index", "summary"];
    let Some(summary) = block.get("summary") else { return vec![block.clone()] };
    let mut common = block.clone();
    common.retain(|name, _| OWN.contains(&name.as_str()) && name != "summary");
    let index = |part: &Value| {
        let number = format!("{}_{}", py_str(block.get("index")?), py_str(part));
        let hex: String = number.bytes().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("lc_rs_{hex}"))
    };
    let Some(parts) = summary.as_list().filter(|parts| !parts.is_empty()) else {
        return vec![Draft::from_map(common).maybe("index", index(&0.into())).extras_except(block, &OWN).done()];
    };
    let parts = parts.iter().enumerate().map(|(at, part)| {
        let text = part.get("text").cloned().unwrap_or_else(|| "".into());
        let draft = Draft::from_map(common.clone()).set("reasoning", text);
        // Fields of the provider about the whole answer stand on the first block.
        let draft = if at == 0 { draft.copy_except(block, &OWN) } else { draft };
        draft.maybe("index", index(part.get("index").unwrap_or(&0.into()))).done()
    });
    parts.collect()
}

fn image(block: &Map) -> Map {
    let mime_type = truthy_in(block, "output_format").map(|format| format!("image/{}", py_str(format)));
    let draft = Draft::of("image")
        .set("base64", value_or(block, "result", ""))
        .maybe("mime_type", mime_type)
        .copy("id", block)
        .maybe("index", index_of(block, "lc_img_"));
    let extras = ["status", "background", "output_format", "quality", "revised_prompt", "size"];
    extras.iter().fold(draft, |draft, name| draft.maybe_extra(name, block.get(name))).done()
}

/// The call itself stands in the message; the block says where. One that stands nowhere is dropped.
fn function_call(message: &Message, block: &Map) -> Option<Map> {
    let id = truthy_in(block, "call_id").and_then(Value::as_str);
    let same = |other: &Option<String>| id.is_some() && other.as_deref() == id;
    let call = match (only_chunk(message), message.tool_calls().iter().find(|call| same(&call.id))) {
        // It is given whole, with an index that is null.
        (Some(chunk), _) => Draft::from_map(chunk_block(chunk)).set("index", chunk.index).done(),
        (None, Some(call)) => call_block(call),
        (None, None) => invalid_block(invalid_calls(message).iter().find(|call| same(&call.id))?),
    };
    let draft = Draft::from_map(call).maybe("index", index_of(block, "lc_tc_")).maybe_extra("item_id", block.get("id"));
    Some(["status", "namespace", "async"].iter().fold(draft, |d, name| d.maybe_extra(name, block.get(name))).done())
}
