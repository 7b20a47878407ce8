//! The threads that were imported, in the format `turns-json`.

use std::sync::Arc;

use annals::base::{Timestamp, Value};
use annals::history::Thread;
use annals::message::{Message, Usage};
use annals::store::Store;
use serde_json::{Value as Json, json};

use super::lines::stored_lines;
use super::{FACTS, records};
use crate::error::ImportError;
use crate::model::{ParentLink, SessionBranch, SessionMessage, SourceSession};
use crate::sources::SourceKind;
use crate::turns_json::SessionDocument;

/// Returns the imported threads of a store as one document `{threads, not_understood}`. Threads that were not imported
/// are left out.
///
/// # Errors
/// [`ImportError::Store`] if the store cannot be read.
pub fn export_turns(store: &Store) -> Result<Json, ImportError> {
    let mut threads = Vec::new();
    for record in store.threads()? {
        let thread = store.thread(record.id.as_str())?;
        if let Some(session) = session(&thread)? {
            threads.push(SessionDocument::from(&session).0);
        }
    }
    Ok(json!({ "threads": threads, "not_understood": records::counts(store)? }))
}

/// Returns an imported thread as a session.
fn session(thread: &Thread) -> Result<Option<SourceSession>, ImportError> {
    let Some(head) = thread.head()? else { return Ok(None) };
    let Some(facts) = head.get(FACTS)? else { return Ok(None) };
    let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let source = text(&facts, "source").and_then(|name| name.parse::<SourceKind>().ok());
    let (Some(source), Some(id)) = (source, text(&facts, "id")) else { return Ok(None) };
    let lines = stored_lines(thread, false)?;
    let main: Vec<Message> = lines.first().map(|line| line.messages.clone()).unwrap_or_default();
    let branches = lines.iter().skip(1).map(|line| {
        let after = line.shared(&main);
        SessionBranch { after, messages: shared(&line.messages[after..]) }
    });
    let branches = branches.filter(|branch| !branch.messages.is_empty()).collect();
    let parent = facts.get("parent").and_then(|parent| {
        let id = text(parent, "id")?;
        let messages = parent.get("messages").and_then(Value::as_int).and_then(|count| usize::try_from(count).ok());
        Some(match text(parent, "kind").as_deref() {
            Some("fork") => ParentLink::Fork { id, messages: messages.unwrap_or(0) },
            _ => ParentLink::Sub { id, call: text(parent, "call") },
        })
    });
    let usage = facts.get("usage").cloned().and_then(|usage| Usage::try_from(usage).ok());
    let created_at = text(&facts, "created_at").and_then(|at| at.parse::<Timestamp>().ok());
    Ok(Some(SourceSession {
        parent,
        title: text(&facts, "title"),
        created_at,
        folder: text(&facts, "folder"),
        usage,
        branches,
        ..SourceSession::new(source, id, shared(&main))
    }))
}

fn shared(messages: &[Message]) -> Vec<Arc<SessionMessage>> {
    let share = |message: &Message| {
        Arc::new(SessionMessage { message: message.clone(), at: None, has_derived_id: false, first_retained: None })
    };
    messages.iter().map(share).collect()
}
