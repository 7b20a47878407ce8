//! Texts for the facts of a history: nodes, interrupts, messages, values.

use std::sync::Arc;

use annals::base::Value;
use annals::history::{PartialInfo, Snapshot};
use annals::store::StoreError;
use annals_runs::ThreadStatus;
use annals_view::words;
pub(crate) use annals_view::words::{metadata, place, ran, stored_parent};
use serde_json::{Value as Json, json};

use crate::errors::CommandFailure;
use crate::output::{cut, escape, size};

/// The number of characters of a value on one line.
const VALUE_CHARS: usize = 100;
/// Larger values are shown with their size in bytes.
const SIZE_BYTES: usize = 200;

/// Returns node names with their number of occurrences, safe to print.
pub(crate) fn tally<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    escape(&words::tally(names)).into_owned()
}

/// Returns the name of a node; `(start)` for the start of a graph.
pub(crate) fn node(name: &str) -> String {
    tally([name])
}

/// Returns the first channel that holds messages; if there is none, an empty list that is called `messages`.
pub(crate) fn message_channel(at: &Snapshot) -> Result<Arc<str>, CommandFailure> {
    let channels = at.channels()?;
    for channel in &channels {
        if at.tail(channel, 1)?.first().is_some_and(|item| is_message(&item.to_json())) {
            return Ok(channel.clone());
        }
    }
    if let Some(channel) = channels.into_iter().find(|channel| &**channel == "messages")
        && at.get(&channel)?.is_some_and(|value| value.as_list().is_some_and(<[Value]>::is_empty))
    {
        return Ok(channel);
    }
    Err(CommandFailure::new(1, "no_messages", "no channel holds messages at this point"))
}

/// The state of a thread between two runs.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) status: ThreadStatus,
    /// The mark of a partial message.
    pub(crate) partial: Option<PartialInfo>,
    /// The nodes that are due.
    due: String,
}

impl Waits {
    /// Derives the state from a checkpoint, as a listing of threads does from the head.
    pub(crate) fn of(snapshot: &Snapshot) -> Result<Self, StoreError> {
        let (status, partial) = words::status(snapshot)?;
        Ok(Self::new(status, partial, snapshot))
    }

    pub(crate) fn new(status: ThreadStatus, partial: Option<PartialInfo>, at: &Snapshot) -> Self {
        Self { status, partial, due: words::tally(at.next()) }
    }

    /// Returns whether nothing is left to say of the state.
    pub(crate) fn is_done(&self) -> bool {
        self.status == ThreadStatus::Done && self.partial.is_none()
    }

    pub(crate) fn text(&self, max: usize) -> String {
        let text = escape(&words::status_text(&self.status, &self.due)).into_owned();
        match &self.partial {
            None => cut(&text, max).into_owned(),
            Some(partial) if self.status == ThreadStatus::Done => partial.to_string(),
            Some(partial) => {
                let mark = format!(", {partial}");
                cut(&text, max.saturating_sub(mark.len())).into_owned() + &mark
            }
        }
    }
}

/// Returns the text of an interrupt, safe to print.
pub(crate) fn interrupt(value: &Value) -> String {
    escape(&words::interrupt(value)).into_owned()
}

/// Returns JSON on one line, safe to print.
pub(crate) fn compact(json: &Json) -> String {
    escape(&json.to_string()).into_owned()
}

/// Returns a value on one line, shortened, with its size if it is large.
pub(crate) fn brief(json: &Json) -> String {
    let text = compact(json);
    if text.len() <= SIZE_BYTES && text.chars().count() <= VALUE_CHARS {
        return text;
    }
    format!("{} ({})", cut(&text, VALUE_CHARS), size(text.len() as u64))
}

/// Returns whether an item of a list is a message, by its shape.
pub(crate) fn is_message(item: &Json) -> bool {
    item.get("type").is_some_and(Json::is_string) && item.get("content").is_some()
}

/// Returns the role, the text and the tool calls of a message on one line.
pub(crate) fn message(item: &Json, max: usize) -> String {
    let kind = item.get("type").and_then(Json::as_str).unwrap_or("?");
    let said = match item.get("content") {
        Some(Json::String(text)) => escape(text.trim()).into_owned(),
        Some(Json::Array(blocks)) => {
            let texts = blocks.iter().filter_map(|block| block.as_str().or_else(|| block.get("text")?.as_str()));
            escape(&texts.collect::<Vec<_>>().join(" ")).into_owned()
        }
        _ => String::new(),
    };
    let calls = item.get("tool_calls").and_then(Json::as_array).into_iter().flatten();
    let calls = calls.map(|call| {
        let name = call.get("name").and_then(Json::as_str).unwrap_or("?");
        format!("[calls {} {}]", escape(name), call.get("args").map(compact).unwrap_or_default())
    });
    let words: Vec<String> = std::iter::once(said).chain(calls).filter(|part| !part.is_empty()).collect();
    format!("{:<6} {}", escape(kind), cut(&words.join(" "), max))
}

/// Returns any item of a list on one line.
pub(crate) fn item(item: &Json) -> String {
    if is_message(item) { message(item, VALUE_CHARS) } else { brief(item) }
}

/// Returns a document with the number of its schema first.
pub(crate) fn with_schema(document: Json) -> Json {
    let mut whole = json!({ "schema": 1 });
    if let (Json::Object(whole), Json::Object(document)) = (&mut whole, document) {
        whole.extend(document);
    }
    whole
}

/// Returns the step of a checkpoint, with the version of the application that wrote it.
pub(crate) fn step(snapshot: &Snapshot) -> String {
    let version = snapshot.record().app_version.as_deref().map(|version| format!(", app {}", escape(version)));
    format!("step {}{}", snapshot.step(), version.unwrap_or_default())
}

/// Adds to a document about a checkpoint what its maker says of it.
pub(crate) fn add_origin(document: &mut Json, snapshot: &Snapshot) {
    document["run"] = json!(snapshot.record().run.map(|run| run.to_string()));
    document["app_version"] = json!(snapshot.record().app_version);
    document["metadata"] = metadata(snapshot);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_in_order() {
        assert_eq!(tally(["read", "read", "list\x1b"]), "read ×2, list\\u{1b}");
        assert_eq!(tally([]), "");
    }

    #[test]
    fn a_message_is_one_line() {
        let call = json!({ "type": "ai", "content": "one\ntwo", "tool_calls": [{ "name": "f", "args": { "a": 1 } }] });
        assert!(is_message(&call));
        assert_eq!(message(&call, 80), "ai     one\\ntwo [calls f {\"a\":1}]");
        assert_eq!(item(&json!([1, 2])), "[1,2]");
        assert!(brief(&json!("x".repeat(500))).ends_with("... (502 B)"));
    }
}
