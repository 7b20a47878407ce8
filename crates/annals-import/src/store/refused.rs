//! Messages that do not fit into the store: they are left out of their session and reported.
//!
//! Invariant: a session without such messages is not copied, and its messages are not encoded twice.

use std::collections::HashSet;
use std::sync::Arc;

use annals::base::limits::VALUE_BYTES_MAX;
use annals::base::{Map, Value};
use annals::message::{Content, Message, Role};

use super::thread_id;
use crate::limits::{PLAIN_DEPTH_MAX, PLAIN_SIZE_MAX};
use crate::model::{ParentLink, SessionMessage, SourceSession, UnknownRecord};

/// Returns the session without the messages that the store refuses, and a record of each of these.
pub(super) fn without_refused(mut session: SourceSession) -> (SourceSession, Vec<UnknownRecord>) {
    let (mut seen, mut records) = (HashSet::new(), Vec::new());
    let all = session.main.iter().chain(session.branches.iter().flat_map(|branch| &branch.messages));
    for message in all.filter(|message| !is_plain(&message.message)) {
        let reason = match message.message.to_payload() {
            Ok(payload) if payload.len() <= VALUE_BYTES_MAX => continue,
            Ok(_) => format!("value bytes: more than {VALUE_BYTES_MAX}"),
            Err(error) => error.to_string(),
        };
        if seen.insert(Arc::as_ptr(message)) {
            let id = message.message.id.as_deref().unwrap_or("");
            let place = format!("{}:{id}", thread_id(session.source, &session.id));
            let mut record = UnknownRecord::new("refused_message", place, reason);
            record.source = Some(session.source);
            records.push(record);
        }
    }
    if records.is_empty() {
        return (session, records);
    }
    let fits = |message: &Arc<SessionMessage>| !seen.contains(&Arc::as_ptr(message));
    let count = |line: &[Arc<SessionMessage>]| line.iter().filter(|message| fits(message)).count();
    if let Some(ParentLink::Fork { messages, .. }) = &mut session.parent {
        *messages = count(&session.main[..(*messages).min(session.main.len())]);
    }
    for branch in &mut session.branches {
        branch.after = count(&session.main[..branch.after]);
        branch.messages.retain(fits);
    }
    session.branches.retain(|branch| !branch.messages.is_empty());
    session.main.retain(fits);
    debug_assert!(
        session.branches.iter().all(|branch| branch.after <= session.main.len()),
        "branches begin on the line"
    );
    (session, records)
}

/// Returns whether a message is so small and so flat that the store takes it.
fn is_plain(message: &Message) -> bool {
    let mut left = PLAIN_SIZE_MAX;
    let maps = |maps: &[&Map], left: &mut usize| {
        maps.iter().all(|map| map.iter().all(|(key, value)| spend(left, key.len()) && is_plain_value(value, 1, left)))
    };
    let content = match &message.content {
        Content::Text(text) => spend(&mut left, text.len()),
        Content::Blocks(blocks) => blocks.iter().all(|block| is_plain_value(block, 1, &mut left)),
    };
    let calls = match &message.role {
        Role::Ai(ai) => {
            let invalid = ai.invalid_tool_calls.iter().map(|call| call.args.as_deref().map_or(0, str::len));
            spend(&mut left, invalid.sum()) && ai.tool_calls.iter().all(|call| maps(&[&call.args], &mut left))
        }
        _ => true,
    };
    content && calls && maps(&[&message.additional_kwargs, &message.response_metadata], &mut left)
}

fn is_plain_value(value: &Value, depth: usize, left: &mut usize) -> bool {
    depth <= PLAIN_DEPTH_MAX
        && match value {
            Value::Str(text) => spend(left, text.len()),
            Value::List(items) => spend(left, 0) && items.iter().all(|item| is_plain_value(item, depth + 1, left)),
            Value::Map(map) => {
                spend(left, 0)
                    && map.iter().all(|(key, value)| spend(left, key.len()) && is_plain_value(value, depth + 1, left))
            }
            // Integers beyond 64 bits and bytes are not made by the readers, but for the digits of a number.
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => spend(left, 0),
            _ => false,
        }
}

/// Takes a value of some bytes. Returns false if nothing is left.
fn spend(left: &mut usize, bytes: usize) -> bool {
    match left.checked_sub(bytes + 1) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    }
}
