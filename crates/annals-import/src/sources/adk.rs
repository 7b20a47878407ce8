//! Google's Agent Development Kit: the databases of its two services of sessions.
//!
//! Pickled columns are not opened.

use std::collections::HashMap;
use std::rc::Rc;

use annals_base::Timestamp;
use serde_json::{Value as Json, json};

use crate::arena::{self, DraftArena, pick};
use crate::database::{SourceDatabase, SourceRow};
use crate::draft::{self, DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::model::SourceSession;
use crate::output::ReadOutput;
use crate::parts::{PartReader, counts, either, text_of};
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::SourceFacts;
use crate::sources::{HistorySource, SourceKind};

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Google's Agent Development Kit",
    places: &[],
    has_own_folders: false,
    versions: "both services, before and since 1.22, by their source; no file was seen",
    checked: "2026-11",
    lost: "pickled actions, states",
};

/// The databases of an import.
#[derive(Default)]
pub(crate) struct AdkFiles {
    databases: Vec<(SourceFile, Rc<SourceDatabase>)>,
}

impl HistorySource for AdkFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        let Some(database) = file.database() else { return false };
        let has = |table: &str, columns: &[&str]| columns.iter().all(|column| database.has_column(table, column));
        let is_own = has("sessions", &["app_name", "user_id", "id", "create_time"])
            && has("events", &["app_name", "user_id", "session_id", "invocation_id", "timestamp"]);
        self.databases.extend(is_own.then(|| (file.file.clone(), Rc::clone(database))));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut databases = self.databases.iter();
        databases.try_for_each(|(file, database)| out.file(&file.name, |out| read(database, file, out)))
    }
}

fn read(database: &SourceDatabase, file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let numbers = database.row_numbers("SELECT rowid AS number FROM sessions ORDER BY create_time, rowid", []);
    let numbers = database.settle(numbers, &file.name, out)?.unwrap_or_default();
    database.sessions(numbers, &file.name, out, |number, out| read_session(database, number, file, out))
}

/// Returns the timestamp of a column: seconds since 1970, or a text in UTC.
fn time_of(of: &Json) -> Option<Timestamp> {
    of.as_str().map_or_else(|| json::seconds(of), json::utc)
}

fn read_session(
    database: &SourceDatabase,
    number: i64,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<Option<SourceSession>, ImportError> {
    let place = format!("{}:sessions:{number}", file.name);
    let row = database.row("sessions", number);
    let Some(session) = database.settle(row, &place, out)?.flatten().map(|row| row.fields) else { return Ok(None) };
    // An id may be that of sessions of several users.
    let key = ["app_name", "user_id", "id"].map(|name| json::as_text(&session[name]));
    let mut events = EventRows { id: key.join("/"), ..EventRows::default() };
    let sql = "SELECT rowid AS number FROM events WHERE app_name = ?1 AND user_id = ?2 AND session_id = ?3 \
               ORDER BY timestamp, rowid";
    let numbers = database.row_numbers(sql, [&key[0], &key[1], &key[2]]);
    for number in database.settle(numbers, &place, out)?.unwrap_or_default() {
        let place = format!("{}:events:{number}", file.name);
        let row = database.row("events", number);
        let Some(row) = database.settle(row, &place, out)?.flatten() else { continue };
        match event_of(&row) {
            Some(event) => events.event(&event, &row.fields, number, out, &place)?,
            None => out.unknown("broken_row", place, json::text(&row.fields, "event_data"))?,
        }
    }
    let (arena, id) = (events.arena, events.id);
    if arena.drafts.is_empty() {
        return Ok(None);
    }
    let main = arena.settled(&events.main);
    let left: Vec<Vec<usize>> = events.left.iter().map(|line| arena.settled(line)).collect();
    let messages = arena.into_messages();
    let main = pick(&messages, &main);
    let left = left.iter().map(|line| pick(&messages, line)).collect();
    Ok(Some(SourceSession {
        created_at: time_of(&session["create_time"]),
        branches: arena::branches(&main, left),
        ..SourceSession::new(SourceKind::Adk, id, main)
    }))
}

/// Returns the event of a row: a document, or columns before version 1.22.
fn event_of(row: &SourceRow) -> Option<Json> {
    if row.fields.get("event_data").is_some() {
        return row.document("event_data").filter(Json::is_object);
    }
    let text = |name: &str| row.fields[name].clone();
    let document = |name: &str| row.document(name).unwrap_or_default();
    if !row.bytes("content").is_empty() && row.document("content").is_none() {
        return None;
    }
    Some(json!({
        "id": text("id"),
        "author": text("author"),
        "invocation_id": text("invocation_id"),
        "content": document("content"),
        "usage_metadata": document("usage_metadata"),
        "error_code": text("error_code"),
        "error_message": text("error_message"),
    }))
}

/// The events of a session.
#[derive(Default)]
struct EventRows {
    id: String,
    arena: DraftArena,
    parts: PartReader,
    main: Vec<usize>,
    left: Vec<Vec<usize>>,
    /// The number of messages before each invocation.
    starts: HashMap<String, usize>,
}

impl EventRows {
    fn event(
        &mut self,
        event: &Json,
        row: &Json,
        number: i64,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let (derived, own) = (format!("{}:{number}", self.id), json::maybe_text(row, "id"));
        let own = own.or_else(|| json::maybe_text(event, "id"));
        let actions = &event["actions"];
        if let Some(invocation) = either(actions, "rewindBeforeInvocationId", "rewind_before_invocation_id").as_str() {
            self.rewind(invocation);
        }
        if let Some(invocation) = either(event, "invocationId", "invocation_id").as_str() {
            self.starts.entry(invocation.to_owned()).or_insert(self.main.len());
        }
        let compacted = either(&actions["compaction"], "compactedContent", "compacted_content");
        let mut drafts = match compacted.is_object() {
            true => MessageDraft::summary(String::new(), &text_of(&compacted["parts"])).into_iter().collect(),
            false => self.messages(event, &derived),
        };
        draft::number(&mut drafts, own.as_deref(), &derived, out, place)?;
        let at = time_of(&event["timestamp"]).or_else(|| time_of(&row["timestamp"]));
        for mut draft in drafts {
            draft.at = at;
            self.main.push(self.arena.add(draft));
        }
        Ok(())
    }

    /// Returns the results of an event, and its message if it has content or an error.
    fn messages(&mut self, event: &Json, derived: &str) -> Vec<MessageDraft> {
        let author = json::text(event, "author");
        let kind = if author == "user" { DraftKind::Human } else { DraftKind::Ai };
        let mut draft = MessageDraft::new(kind, String::new());
        let mut drafts = self.parts.take(&mut draft, &event["content"]["parts"], derived);
        if kind == DraftKind::Ai {
            draft.error = either(event, "errorCode", "error_code").as_str().map(str::to_owned);
            draft.model = either(event, "modelVersion", "model_version").as_str().map(str::to_owned);
            let usage = either(event, "usageMetadata", "usage_metadata");
            draft.usage = usage.is_object().then(|| counts(usage).into_usage());
            if !author.is_empty() {
                draft.extra.push(("author", author.into()));
            }
        }
        let has_content = !draft.blocks.is_empty() || draft.has_calls() || draft.error.is_some();
        drafts.extend(Some(draft).filter(|_| has_content));
        drafts
    }

    /// Moves the events of an invocation, and all after it, out of the main line.
    fn rewind(&mut self, invocation: &str) {
        if let Some(start) = self.starts.get(invocation).copied().filter(|start| *start < self.main.len()) {
            self.left.push(self.main.clone());
            self.main.truncate(start);
        }
    }
}
