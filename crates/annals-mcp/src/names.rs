//! Texts by which a reply names points and shows items.

use std::sync::Arc;

use annals::history::Snapshot;
use annals::store::{CheckpointRef, Store, StoreError};
use serde_json::Value as Json;

use crate::error::ToolError;
use crate::limits::BRIEF_CHARS;
use crate::reply::{cut, one_line};

/// The digits of an id with its time. Two ids of a thread seldom share them.
const TIME_DIGITS: usize = 16;

/// Returns the text that names a checkpoint in a later call.
pub(crate) fn point_text(at: &Snapshot) -> Result<String, StoreError> {
    reference_text(at.store(), at.point())
}

/// Returns the text that names the checkpoint of a reference: the beginning of its id with the time, which one read
/// proves to be unique, or else the whole id. The shortest beginning would take several reads.
pub(crate) fn reference_text(store: &Store, point: &CheckpointRef) -> Result<String, StoreError> {
    let thread = store.thread(point.thread.as_str())?.with_namespace(point.namespace.clone());
    let whole = point.checkpoint.to_string();
    let begin: String = whole.chars().filter(|c| *c != '-').take(TIME_DIGITS).collect();
    let digits = match thread.at(begin.as_str()) {
        Ok(at) if at.id() == point.checkpoint => begin,
        Ok(_) | Err(StoreError::Ambiguous { .. }) => whole,
        Err(StoreError::CheckpointPruned { .. }) => return Ok(format!("{}@{whole} (pruned)", point.thread)),
        Err(error) => return Err(error),
    };
    let id = point.thread.as_str();
    let id = match id.contains(['@', '~', '"']) || id.contains("..") {
        true => format!("\"{}\"", id.replace('\\', "\\\\").replace('"', "\\\"")),
        false => id.to_owned(),
    };
    let namespace = match point.namespace.is_root() {
        true => String::new(),
        false => format!(" (in subgraph {})", point.namespace),
    };
    Ok(format!("{id}@{digits}{namespace}"))
}

/// Returns whether an item is a message, by its shape.
pub(crate) fn is_message(item: &Json) -> bool {
    item.get("type").is_some_and(Json::is_string) && item.get("content").is_some()
}

/// Returns the first channel whose last item is a message.
pub(crate) fn message_channel(at: &Snapshot) -> Result<Arc<str>, ToolError> {
    for channel in at.channels()? {
        if at.tail(&channel, 1)?.first().is_some_and(|item| is_message(&item.to_json())) {
            return Ok(channel);
        }
    }
    let what = "no channel holds messages at this point; show lists its channels".to_owned();
    Err(ToolError::NotFound { what })
}

/// Returns the role and the words of a message, with its tool calls; any other item as JSON.
pub(crate) fn words(item: &Json, max: usize) -> String {
    if !is_message(item) {
        return cut(&item.to_string(), max);
    }
    let mut text = item["type"].as_str().unwrap_or_default().to_owned();
    if let Some(name) = item.get("name").and_then(Json::as_str).filter(|name| !name.is_empty()) {
        text.push_str(&format!(" {name}"));
    }
    text.push(':');
    match &item["content"] {
        Json::String(said) => text.extend([" ", said.trim()]),
        Json::Array(blocks) => {
            for block in blocks {
                match block.as_str().or_else(|| block.get("text")?.as_str()) {
                    Some(said) => text.extend([" ", said.trim()]),
                    None => text.push_str(&format!(" [{}]", block["type"].as_str().unwrap_or("block"))),
                }
            }
        }
        other => text.push_str(&format!(" {other}")),
    }
    for call in item.get("tool_calls").and_then(Json::as_array).into_iter().flatten() {
        let name = call.get("name").and_then(Json::as_str).unwrap_or("?");
        let arguments = call.get("args").map(Json::to_string).unwrap_or_default();
        text.push_str(&format!("\n  calls {name} {}", cut(&arguments, BRIEF_CHARS)));
    }
    cut(&text, max)
}

/// Returns a value on one line.
pub(crate) fn brief(value: &Json) -> String {
    match value {
        Json::String(text) => format!("{:?}", one_line(text, BRIEF_CHARS)),
        value if is_message(value) => one_line(&words(value, BRIEF_CHARS), BRIEF_CHARS),
        value => cut(&value.to_string(), BRIEF_CHARS),
    }
}
