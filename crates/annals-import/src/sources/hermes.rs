//! Hermes: `state.db`. Columns are looked up by name, as builds differ.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value as Json;

use crate::arena::{self, DraftArena, pick};
use crate::chain::order;
use crate::database::SourceDatabase;
use crate::draft::{DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::model::{ParentLink, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, home, variable};
use crate::sources::{HistorySource, SourceKind};

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Hermes",
    places: &[home(".hermes/state.db"), home(".hermes/profiles/*/state.db"), variable("HERMES_HOME", "state.db")],
    has_own_folders: false,
    versions: "by its schema; no file was seen",
    checked: "2026-11",
    lost: "exports in JSON",
};

/// The databases of an import.
#[derive(Default)]
pub(crate) struct HermesFiles {
    databases: Vec<(SourceFile, Rc<SourceDatabase>)>,
}

impl HistorySource for HermesFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        let Some(database) = file.database() else { return false };
        let has = |table: &str, columns: &[&str]| columns.iter().all(|column| database.has_column(table, column));
        let is_own = has("sessions", &["id", "source", "started_at"])
            && has("messages", &["session_id", "role", "content", "tool_calls", "tool_call_id", "timestamp"])
            && !database.has_column("messages", "content_json");
        self.databases.extend(is_own.then(|| (file.file.clone(), Rc::clone(database))));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut databases = self.databases.iter();
        databases.try_for_each(|(file, database)| out.file(&file.name, |out| read(database, file, out)))
    }
}

/// A session without its messages.
struct HermesHead {
    row: i64,
    parent: Option<String>,
    end_reason: String,
}

fn read(database: &SourceDatabase, file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let numbers = database.row_numbers("SELECT rowid AS number FROM sessions ORDER BY started_at, rowid", []);
    let (mut links, mut heads) = (Vec::new(), Vec::new());
    for row in database.settle(numbers, &file.name, out)?.unwrap_or_default() {
        let read = database.row("sessions", row);
        let Some(read) = database.settle(read, &format!("{}:sessions:{row}", file.name), out)?.flatten() else {
            continue;
        };
        let parent = json::maybe_text(&read.fields, "parent_session_id");
        links.push((json::as_text(&read.fields["id"]), parent.clone()));
        heads.push(HermesHead { row, parent, end_reason: json::text(&read.fields, "end_reason").to_owned() });
    }
    let of_each = links.iter().zip(&heads).map(|((id, _), head)| (id.clone(), head.end_reason.clone()));
    let reasons: HashMap<String, String> = of_each.collect();
    let heads = order(&links, heads);
    database.sessions(heads, &file.name, out, |head, out| read_session(database, &head, &reasons, file, out))
}

/// Reads a session. `reasons` holds the reasons for which sessions ended.
fn read_session(
    database: &SourceDatabase,
    head: &HermesHead,
    reasons: &HashMap<String, String>,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<Option<SourceSession>, ImportError> {
    let place = format!("{}:sessions:{}", file.name, head.row);
    let row = database.row("sessions", head.row);
    let Some(session) = database.settle(row, &place, out)?.flatten().map(|row| row.fields) else { return Ok(None) };
    let id = json::as_text(&session["id"]);
    let mut rows = HermesRows { model: json::maybe_text(&session, "model"), ..HermesRows::default() };
    let sql = "SELECT rowid AS number FROM messages WHERE session_id = ?1 ORDER BY timestamp, rowid";
    let numbers = database.row_numbers(sql, [&id]);
    for number in database.settle(numbers, &place, out)?.unwrap_or_default() {
        let place = format!("{}:messages:{number}", file.name);
        let row = database.row("messages", number);
        let Some(row) = database.settle(row, &place, out)?.flatten() else { continue };
        match rows.draft(&row.fields, format!("{id}:{number}")) {
            Ok(draft) => rows.push(draft, row.fields["active"] != 0),
            Err(kind) => out.unknown(kind, place, row.fields.to_string())?,
        }
    }
    let parent = head.parent.clone().filter(|parent| *parent != id).map(|id| {
        match reasons.get(&id).is_some_and(|reason| reason == "compression") {
            true => ParentLink::Fork { id, messages: 0 },
            false => ParentLink::Sub { id, call: None },
        }
    });
    let Some((main, left)) = rows.finish() else { return Ok(None) };
    Ok(Some(SourceSession {
        parent,
        title: json::maybe_text(&session, "title"),
        created_at: json::seconds(&session["started_at"]),
        folder: json::folder(&session["cwd"]),
        usage: counts(&session).map(TokenCounts::into_usage),
        branches: arena::branches(&main, left),
        ..SourceSession::new(SourceKind::Hermes, id, main)
    }))
}

/// Returns the totals of a session, whose input excludes what was cached.
fn counts(of: &Json) -> Option<TokenCounts> {
    let (read, creation) = (json::count(of, "cache_read_tokens"), json::count(of, "cache_write_tokens"));
    let input = json::count(of, "input_tokens").saturating_add(read).saturating_add(creation);
    let (output, reasoning) = (json::count(of, "output_tokens"), json::count(of, "reasoning_tokens"));
    let counts = TokenCounts { input, output, cache_read: read, cache_creation: creation, reasoning };
    (input != 0 || output != 0).then_some(counts)
}

/// A line of messages.
type HermesLine = Vec<std::sync::Arc<crate::model::SessionMessage>>;

/// The rows of a session.
#[derive(Default)]
struct HermesRows {
    arena: DraftArena,
    main: Vec<usize>,
    /// The run of rows that were put aside, after the main line so far.
    aside: Vec<usize>,
    left: Vec<Vec<usize>>,
    model: Option<String>,
}

impl HermesRows {
    /// Returns the message of a row, none if it holds none; the kind under which it is counted if it was not
    /// understood.
    fn draft(&self, row: &Json, derived: String) -> Result<Option<MessageDraft>, String> {
        let mut draft = match json::text(row, "role") {
            "user" => MessageDraft::new(DraftKind::Human, derived),
            "system" => MessageDraft::new(DraftKind::System, derived),
            "tool" => MessageDraft::result(derived, json::text(row, "tool_call_id")),
            "assistant" => MessageDraft::new(DraftKind::Ai, derived),
            "session_meta" => return Ok(None),
            role => return Err(format!("role/{role}")),
        };
        draft.at = json::seconds(&row["timestamp"]);
        if draft.kind == DraftKind::Ai {
            let reasoning = ["reasoning", "reasoning_content"].into_iter().find_map(|name| json::maybe_text(row, name));
            draft.reasoning(&reasoning.unwrap_or_default());
            draft.model.clone_from(&self.model);
            let calls = json::parse(json::text(row, "tool_calls")).unwrap_or_default();
            for call in json::items(&calls) {
                let function = &call["function"];
                let id = ["id", "call_id"].into_iter().find_map(|name| json::maybe_text(call, name));
                let arguments = json::as_text(&function["arguments"]);
                draft.call_of_text(&id.unwrap_or_default(), json::text(function, "name"), &arguments);
            }
        }
        if !row["content"].is_null() {
            draft.text(&json::as_text(&row["content"]));
        }
        Ok(Some(draft))
    }

    fn push(&mut self, draft: Option<MessageDraft>, is_active: bool) {
        let Some(draft) = draft else { return };
        let number = self.arena.add(draft);
        if is_active {
            self.end_aside();
            self.main.push(number);
        } else {
            self.aside.push(number);
        }
    }

    fn end_aside(&mut self) {
        if !self.aside.is_empty() {
            let aside = std::mem::take(&mut self.aside);
            self.left.push(self.main.iter().copied().chain(aside).collect());
        }
    }

    /// Returns the main line and the left lines; none if there are no messages.
    fn finish(mut self) -> Option<(HermesLine, Vec<HermesLine>)> {
        self.end_aside();
        if self.arena.drafts.is_empty() {
            return None;
        }
        let main = self.arena.settled(&self.main);
        let left: Vec<Vec<usize>> = self.left.iter().map(|line| self.arena.settled(line)).collect();
        let messages = self.arena.into_messages();
        Some((pick(&messages, &main), left.iter().map(|line| pick(&messages, line)).collect()))
    }
}
