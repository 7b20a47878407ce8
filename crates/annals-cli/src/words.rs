//! Texts for the facts of a history: nodes, interrupts, messages, values.

use std::sync::Arc;

use annals::base::Value;
use annals::history::{PartialInfo, Snapshot, ThreadInfo};
use annals::store::{Source, StoreError};
use annals_graph::graph::START;
use annals_runs::ThreadStatus;
use serde_json::{Value as Json, json};

use crate::errors::CommandFailure;
use crate::output::{cut, escape, size};

/// The number of characters of a value on one line.
const VALUE_CHARS: usize = 100;
/// Larger values are shown with their size in bytes.
const SIZE_BYTES: usize = 200;

/// Returns node names with their number of occurrences: `list, read x12`.
pub(crate) fn tally<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(seen, _)| *seen == name) {
            Some((_, n)) => *n += 1,
            None => counts.push((name, 1)),
        }
    }
    let word = |(name, n): (&str, usize)| if n == 1 { node(name) } else { format!("{} x{n}", node(name)) };
    counts.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Returns the name of a node; `(start)` for the start of a graph.
pub(crate) fn node(name: &str) -> String {
    if name == START { "(start)".into() } else { escape(name).into_owned() }
}

/// Returns the parent of a checkpoint; `None` also for one that was pruned.
pub(crate) fn stored_parent(at: &Snapshot) -> Result<Option<Snapshot>, StoreError> {
    match at.parent() {
        Err(StoreError::CheckpointPruned { .. }) => Ok(None),
        parent => parent,
    }
}

/// Returns the nodes that ran to make a checkpoint out of its parent, one name for each task.
pub(crate) fn ran(snapshot: &Snapshot, parent: Option<&Snapshot>) -> Vec<String> {
    let parent = parent.filter(|_| snapshot.source() == Source::Loop);
    parent.map(|parent| parent.next().map(str::to_owned).collect()).unwrap_or_default()
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
        let head = snapshot.record().clone();
        let writes = snapshot.writes()?;
        let (seq, at) = (head.seq, head.created_at);
        let info = ThreadInfo::new(head, seq, at, Vec::new(), &writes)?;
        Ok(Self::new(&info, snapshot.next()))
    }

    pub(crate) fn new<'a>(info: &ThreadInfo, due: impl IntoIterator<Item = &'a str>) -> Self {
        Self { status: ThreadStatus::of(info), partial: info.partial().cloned(), due: tally(due) }
    }

    /// Returns whether nothing is left to say of the state.
    pub(crate) fn is_done(&self) -> bool {
        self.status == ThreadStatus::Done && self.partial.is_none()
    }

    /// Returns the mark of a partial message as JSON.
    pub(crate) fn partial_json(&self) -> Json {
        self.partial.as_ref().map_or(Json::Null, |partial| {
            let updated = partial.updated.to_string();
            json!({ "channel": partial.channel, "words": partial.words, "updated": updated })
        })
    }

    /// Returns the values of the open interrupts.
    pub(crate) fn interrupts(&self) -> &[Value] {
        if let ThreadStatus::Interrupted(values) = &self.status { values } else { &[] }
    }

    pub(crate) fn text(&self, max: usize) -> String {
        let text = match &self.status {
            ThreadStatus::Running => format!("due: {}", self.due),
            ThreadStatus::Interrupted(values) => {
                let all: Vec<String> = values.iter().map(interrupt).collect();
                format!("interrupted: {}", all.join(" / "))
            }
            ThreadStatus::Failed(error) => format!("failed: {}", escape(error)),
            ThreadStatus::Stuck(error) => format!("stuck: {}", escape(error)),
            ThreadStatus::Sleeping(until) => format!("sleeping until {until}"),
            ThreadStatus::Cancelled(Some(reason)) => format!("cancelled: {}", escape(reason)),
            status => status.to_string(),
        };
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

/// Returns the text of an interrupt: its value if that is a text, or the member `question` of an object.
pub(crate) fn interrupt(value: &Value) -> String {
    match value.as_str().or_else(|| value.get("question").and_then(Value::as_str)) {
        Some(text) => escape(text).into_owned(),
        None => compact(&value.to_json()),
    }
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

/// Returns the thread and the id of a checkpoint as JSON.
pub(crate) fn place(snapshot: &Snapshot) -> Json {
    json!({ "thread": snapshot.point().thread.as_str(), "checkpoint": snapshot.id().to_string() })
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

/// Returns the metadata of a checkpoint.
pub(crate) fn metadata(snapshot: &Snapshot) -> Json {
    let text = snapshot.record().metadata.as_deref();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_in_order() {
        assert_eq!(tally(["read", "read", "list\x1b"]), "read x2, list\\u{1b}");
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
