//! The Agents SDK of OpenAI: the databases of its sessions, whose rows are response items.
//!
//! The tables are found by their columns, as a program chooses their names. *Absent:* the items, see `codex`.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::codex::{CodexState, ItemSource, RolloutRecord};
use crate::arena;
use crate::database::SourceDatabase;
use crate::draft::TokenCounts;
use crate::error::ImportError;
use crate::json;
use crate::model::{SessionMessage, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::SourceFacts;
use crate::sources::{HistorySource, SourceKind};

/// The branch of the main line.
const MAIN: &str = "main";

/// An id that stands for none.
const NO_ID: &str = "__fake_id__";

/// The member of an encrypted row.
const ENCRYPTED: &str = "__enc__";

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "OpenAI Agents SDK",
    places: &[],
    has_own_folders: false,
    versions: "SQLiteSession by files of 2025-09; SQLAlchemySession and AdvancedSQLiteSession by their source",
    checked: "2026-11",
    lost: "models, encrypted rows",
};

/// The databases of an import.
#[derive(Default)]
pub(crate) struct AgentsFiles {
    databases: Vec<AgentsDatabase>,
}

/// A database with the names of its tables.
struct AgentsDatabase {
    file: SourceFile,
    database: Rc<SourceDatabase>,
    sessions: String,
    messages: String,
}

impl HistorySource for AgentsFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        let Some(database) = file.database() else { return false };
        let tables: Vec<(String, Vec<String>)> =
            database.tables().into_iter().map(|name| (name.clone(), database.columns(&name))).collect();
        let with = |columns: &[&str]| {
            let has = |of: &[String]| columns.iter().all(|column| of.iter().any(|name| name == column));
            tables.iter().find(|(_, of)| has(of)).map(|(name, _)| name.clone())
        };
        let messages = with(&["session_id", "message_data"]);
        let Some((sessions, messages)) = with(&["session_id", "created_at", "updated_at"]).zip(messages) else {
            return false;
        };
        self.databases.push(AgentsDatabase {
            file: file.file.clone(),
            database: Rc::clone(database),
            sessions,
            messages,
        });
        true
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        self.databases.iter().try_for_each(|of| out.file(&of.file.name, |out| of.read(out)))
    }
}

/// A line of messages.
type AgentsLine = Vec<Arc<SessionMessage>>;

impl AgentsDatabase {
    fn read(&self, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let sql = format!("SELECT rowid AS number FROM {} ORDER BY created_at, rowid", self.sessions);
        let numbers = self.database.row_numbers(&sql, []);
        let numbers = self.database.settle(numbers, &self.file.name, out)?.unwrap_or_default();
        self.database.sessions(numbers, &self.file.name, out, |number, out| self.session(number, out))
    }

    fn session(&self, number: i64, out: &mut ReadOutput<'_>) -> Result<Option<SourceSession>, ImportError> {
        let place = format!("{}:{}:{number}", self.file.name, self.sessions);
        let row = self.database.row(&self.sessions, number);
        let Some(row) = self.database.settle(row, &place, out)?.flatten() else { return Ok(None) };
        let id = json::as_text(&row.fields["session_id"]);
        let mut seen = HashSet::new();
        let lines = self.lines(&id, &place, out)?;
        let (mut main, mut left) = (Vec::new(), Vec::new());
        for (branch, rows) in lines {
            let line = self.line(&id, &branch, &rows, &mut seen, out)?;
            if branch == MAIN { main = line } else { left.push(line) }
        }
        if main.is_empty() && left.is_empty() {
            return Ok(None);
        }
        left.iter_mut().for_each(|line| share(line, &main));
        Ok(Some(SourceSession {
            created_at: json::time(&row.fields["created_at"]),
            branches: arena::branches(&main, left),
            ..SourceSession::new(SourceKind::OpenaiAgents, id, main)
        }))
    }

    /// Returns the rows of each line of a session, the main line first.
    fn lines(&self, id: &str, place: &str, out: &mut ReadOutput<'_>) -> Result<Vec<(String, Vec<i64>)>, ImportError> {
        let mut lines: Vec<(String, Vec<i64>)> = vec![(MAIN.to_owned(), Vec::new())];
        if self.database.has_column("message_structure", "branch_id") {
            let sql = "SELECT branch_id, message_id FROM message_structure WHERE session_id = ?1 \
                       ORDER BY sequence_number, rowid";
            let read = self.database.rows(sql, [id], |row| {
                let branch = json::text(&row.fields, "branch_id");
                let at = lines.iter().position(|(of, _)| of == branch).unwrap_or_else(|| {
                    lines.push((branch.to_owned(), Vec::new()));
                    lines.len() - 1
                });
                lines[at].1.extend(row.fields["message_id"].as_i64());
                Ok(())
            });
            self.database.settle(read, place, out)?;
        }
        if lines.iter().all(|(_, rows)| rows.is_empty()) {
            let sql = format!("SELECT rowid AS number FROM {} WHERE session_id = ?1 ORDER BY rowid", self.messages);
            let numbers = self.database.row_numbers(&sql, [id]);
            lines[0].1 = self.database.settle(numbers, place, out)?.unwrap_or_default();
        }
        Ok(lines)
    }

    /// Returns the messages of a line. A row that was not understood is reported once, as `seen` holds those before.
    fn line(
        &self,
        id: &str,
        branch: &str,
        rows: &[i64],
        seen: &mut HashSet<i64>,
        out: &mut ReadOutput<'_>,
    ) -> Result<AgentsLine, ImportError> {
        let mut state = CodexState::new(ItemSource::Items).counting_as("item");
        for number in rows {
            if seen.insert(*number) {
                self.row(id, *number, &mut state, out)?;
            } else {
                let mut silent = crate::output::Silent;
                self.row(id, *number, &mut state, &mut ReadOutput::new(&mut silent, out.source))?;
            }
        }
        self.add_usage(id, branch, &mut state, out)?;
        Ok(state.finish().0)
    }

    /// Takes a row of a line.
    fn row(&self, id: &str, number: i64, state: &mut CodexState, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let place = format!("{}:{}:{number}", self.file.name, self.messages);
        let row = self.database.row(&self.messages, number);
        let Some(row) = self.database.settle(row, &place, out)?.flatten() else { return Ok(()) };
        let Some(mut item) = row.document("message_data").filter(Json::is_object) else {
            return out.unknown("broken_row", place, json::text(&row.fields, "message_data"));
        };
        if has(&item, ENCRYPTED) {
            return out.unknown("encrypted_row", place, item.to_string());
        }
        if !has(&item, "type") {
            item["type"] = json!("message");
        }
        if item["id"] == NO_ID {
            item["id"] = Json::Null;
        }
        let (at, derived) = (json::time(&row.fields["created_at"]), format!("{id}:{number}"));
        state.item(&RolloutRecord { derived: &derived, json: &item, at, place: &place }, out)
    }

    /// Gives the token counts of each turn of a branch to the last message of the model in it.
    fn add_usage(
        &self,
        id: &str,
        branch: &str,
        state: &mut CodexState,
        out: &mut ReadOutput<'_>,
    ) -> Result<(), ImportError> {
        if !self.database.has_column("turn_usage", "user_turn_number") {
            return Ok(());
        }
        let sql = "SELECT * FROM turn_usage WHERE session_id = ?1 AND branch_id = ?2 ORDER BY rowid";
        let read = self.database.rows(sql, [id, branch], |row| {
            let detail = |column: &str, name: &str| json::count(&row.document(column).unwrap_or_default(), name);
            let counts = TokenCounts {
                input: json::count(&row.fields, "input_tokens"),
                output: json::count(&row.fields, "output_tokens"),
                cache_read: detail("input_tokens_details", "cached_tokens"),
                cache_creation: 0,
                reasoning: detail("output_tokens_details", "reasoning_tokens"),
            };
            state.set_usage_of_turn(json::count(&row.fields, "user_turn_number"), counts.into_usage());
            Ok(())
        });
        self.database.settle(read, &self.file.name, out).map(|_| ())
    }
}

/// Replaces the messages at the begin of a line by those of the main line that are of the same rows.
fn share(line: &mut AgentsLine, main: &[Arc<SessionMessage>]) {
    for (own, other) in line.iter_mut().zip(main) {
        if own.message.id != other.message.id {
            return;
        }
        *own = Arc::clone(other);
    }
}
