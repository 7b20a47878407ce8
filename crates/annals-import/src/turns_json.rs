//! The format `turns-json`: sessions as one JSON document `{threads, not_understood}`.
//!
//! A thread is `{id, parent, title, first_words, created_at, folder, usage, turns, branches}`, a turn `{messages}`, and
//! a branch `{after, turns}`; members without content are left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_base::{Timestamp, Value};
use annals_messages::{Message, Role, ToolStatus, Usage};
use serde_json::{Value as Json, json};

use crate::error::ImportError;
use crate::model::{
    ParentLink, SessionMessage, SourceSession, UnknownCounts, UnknownRecord, is_joined, is_summary, turns,
};
use crate::output::SessionSink;

/// A thread of the format.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionDocument(pub Json);

impl From<&SourceSession> for SessionDocument {
    fn from(session: &SourceSession) -> Self {
        let parent = session.parent.as_ref().map(|parent| match parent {
            ParentLink::Fork { id, messages } => json!({ "id": id, "kind": "fork", "messages": messages }),
            ParentLink::Sub { id, call: Some(call) } => json!({ "id": id, "kind": "sub", "call": call }),
            ParentLink::Sub { id, call: None } => json!({ "id": id, "kind": "sub" }),
        });
        let branches = session.branches.iter();
        let branches = branches.map(|branch| json!({ "after": branch.after, "turns": cut(&branch.messages) }));
        Self(compact(json!({
            "id": session.id,
            "parent": parent,
            "title": session.title,
            "first_words": session.first_words().filter(|_| session.title.is_none()),
            "created_at": session.created_at.map(milliseconds),
            "folder": session.folder,
            "usage": session.usage.as_ref().map(usage),
            "turns": cut(&session.main),
            "branches": branches.collect::<Vec<_>>(),
        })))
    }
}

fn cut(line: &[Arc<SessionMessage>]) -> Vec<Json> {
    let turn = |turn: &[Arc<SessionMessage>]| json!({ "messages": turn.iter().map(|message| of_message(&message.message)).collect::<Vec<_>>() });
    turns(line).into_iter().map(turn).collect()
}

/// Leaves out members without content, but for the turns of a thread.
fn compact(mut of: Json) -> Json {
    if let Json::Object(members) = &mut of {
        members.retain(|name, value| match value {
            Json::Null => false,
            Json::Array(items) => !items.is_empty() || name == "turns",
            Json::Bool(false) => false,
            _ => true,
        });
    }
    of
}

/// Returns a timestamp in UTC with milliseconds.
fn milliseconds(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, fraction)) => format!("{seconds}.{}Z", fraction.get(..3).unwrap_or("000")),
        None => text,
    }
}

fn usage(usage: &Usage) -> Json {
    Value::from(usage.clone()).to_json()
}

/// Returns a message of the format.
pub(crate) fn of_message(message: &Message) -> Json {
    let blocks = match &message.content {
        annals_messages::Content::Blocks(blocks) => blocks.as_slice(),
        annals_messages::Content::Text(_) => &[],
    };
    let of_type =
        |kind: &'static str| blocks.iter().filter(move |block| block.get("type").and_then(Value::as_str) == Some(kind));
    let reasoning: String =
        of_type("reasoning").filter_map(|block| block.get("reasoning").and_then(Value::as_str)).collect();
    let metadata = |name: &str| message.response_metadata.get(name).and_then(Value::as_str);
    let mut out = json!({
        "type": message.kind(),
        "id": message.id,
        "text": message.text(),
        "reasoning": Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
        "images": Some(of_type("image").count()).filter(|count| *count > 0),
        "summary": is_summary(message),
        "joined": is_joined(message),
        "model": metadata("model_name"),
        "error": metadata("error"),
    });
    match &message.role {
        Role::Ai(ai) => {
            let call = |id: &Option<String>, name: Json, args: Json| json!({ "id": id, "name": name, "args": args });
            let calls = ai.tool_calls.iter();
            let calls = calls.map(|of| call(&of.id, json!(of.name), Value::Map(of.args.clone()).to_json()));
            out["tool_calls"] = calls.collect();
            out["invalid_tool_calls"] =
                ai.invalid_tool_calls.iter().map(|of| call(&of.id, json!(of.name), json!(of.args))).collect();
            out["usage"] = ai.usage.as_deref().map_or(Json::Null, usage);
        }
        Role::Tool(tool) => {
            out["tool_call_id"] = json!(tool.tool_call_id);
            if tool.status == ToolStatus::Error {
                out["status"] = json!("error");
            }
        }
        _ => {}
    }
    compact(out)
}

/// A sink that collects everything in one document: for looking into a source without a store.
///
/// # Example
/// ```
/// use annals_import::{TurnsCollector, read_sessions};
///
/// # let folder = tempfile::tempdir()?;
/// let file = folder.path().join("log.jsonl");
/// std::fs::write(&file, r#"{"role": "user", "content": "hi"}"#)?;
/// let mut collector = TurnsCollector::default();
/// read_sessions(&file, None, &mut collector)?;
/// let document = collector.into_document();
/// assert_eq!(document["threads"][0]["turns"][0]["messages"][0]["text"], "hi");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TurnsCollector {
    threads: Vec<SessionDocument>,
    not_understood: UnknownCounts,
}

impl TurnsCollector {
    /// Returns the document `{threads, not_understood}`.
    pub fn into_document(self) -> Json {
        let threads: Vec<Json> = self.threads.into_iter().map(|thread| thread.0).collect();
        let counts: BTreeMap<String, u64> = self.not_understood;
        json!({ "threads": threads, "not_understood": counts })
    }
}

impl SessionSink for TurnsCollector {
    fn session(&mut self, session: SourceSession) -> Result<(), ImportError> {
        self.threads.push(SessionDocument::from(&session));
        Ok(())
    }

    fn unknown(&mut self, record: UnknownRecord) -> Result<(), ImportError> {
        *self.not_understood.entry(record.kind).or_default() += 1;
        Ok(())
    }
}
