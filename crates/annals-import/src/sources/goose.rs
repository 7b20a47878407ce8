//! goose: `sessions.db`, and the JSON lines before it.
//!
//! Columns are looked up by name, as builds use the numbers of versions differently.

use std::rc::Rc;

use annals_messages::Usage;
use serde_json::{Value as Json, json};

use crate::arena::{DraftArena, pick};
use crate::database::{SourceDatabase, SourceRow};
use crate::draft::{DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::SourceSession;
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::{SourceFacts, data};
use crate::sources::{HistorySource, SourceKind};

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "goose",
    places: &[data("goose/sessions")],
    has_own_folders: false,
    versions: "schemas 1 to 14, JSON lines before them",
    checked: "2026-11",
    lost: "rows of `thread_messages`",
};

/// The databases and files of an import.
#[derive(Default)]
pub(crate) struct GooseFiles {
    databases: Vec<(SourceFile, Rc<SourceDatabase>)>,
    files: Vec<SourceFile>,
}

impl HistorySource for GooseFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        if let Some(database) = file.database() {
            let has = |table: &str, column: &str| database.has_column(table, column);
            let is_own = has("sessions", "id") && has("messages", "content_json") && has("schema_version", "version");
            self.databases.extend(is_own.then(|| (file.file.clone(), Rc::clone(database))));
            return is_own;
        }
        let is_own = is_session(file.lines());
        self.files.extend(is_own.then(|| file.file.clone()));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        for (file, database) in &self.databases {
            out.file(&file.name, |out| read_database(database, file, out))?;
        }
        self.files.iter().try_for_each(|file| out.file(&file.name, |out| read_lines(file, out)))
    }
}

/// Returns whether lines are those of a session: a head without a role, or messages with a time and a list of contents.
fn is_session(lines: &[Json]) -> bool {
    let is_message =
        |line: &Json| line["role"].is_string() && line["created"].is_number() && line["content"].is_array();
    let is_head = |line: &Json| {
        !has(line, "role") && has(line, "working_dir") && (has(line, "description") || has(line, "message_count"))
    };
    match lines {
        [first, second, ..] if is_head(first) => is_message(second),
        [first] if is_head(first) => true,
        [first, ..] => is_message(first),
        [] => false,
    }
}

/// Returns the totals of a session.
fn totals(of: &Json) -> Option<Usage> {
    let (input, output) = (&of["accumulated_input_tokens"], &of["accumulated_output_tokens"]);
    let is_counted = input.is_number() || output.is_number();
    is_counted
        .then(|| Usage::new(json::count(of, "accumulated_input_tokens"), json::count(of, "accumulated_output_tokens")))
}

fn read_database(database: &SourceDatabase, file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let sessions = database.row_numbers("SELECT rowid FROM sessions ORDER BY rowid", []);
    let sessions = database.settle(sessions, &file.name, out)?.unwrap_or_default();
    database.sessions(sessions, &file.name, out, |number, out| read_session(database, number, file, out))
}

/// Reads the session with a number of a row.
fn read_session(
    database: &SourceDatabase,
    number: i64,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<Option<SourceSession>, ImportError> {
    let place = format!("{}:sessions:{number}", file.name);
    let session = database.row("sessions", number);
    let Some(SourceRow { fields: session, .. }) = database.settle(session, &place, out)?.flatten() else {
        return Ok(None);
    };
    let id = json::as_text(&session["id"]);
    let config: Json = json::parse(json::text(&session, "model_config_json")).unwrap_or_default();
    let mut rows = GooseRows::new(json::maybe_text(&config, "model_name"));
    let sql = "SELECT rowid FROM messages WHERE session_id = ?1 ORDER BY created_timestamp, id";
    let numbers = database.row_numbers(sql, [&id]);
    for number in database.settle(numbers, &place, out)?.unwrap_or_default() {
        let place = format!("{}:messages:{number}", file.name);
        let row = database.row("messages", number);
        let Some(row) = database.settle(row, &place, out)?.flatten() else { continue };
        let Some(content) = row.document("content_json") else {
            out.unknown("broken_row", place, json::text(&row.fields, "content_json"))?;
            continue;
        };
        let message_id = json::maybe_text(&row.fields, "message_id");
        let message_id = message_id.unwrap_or_else(|| format!("msg_{id}_{number}"));
        let metadata = row.document("metadata_json").unwrap_or_default();
        let at = &row.fields["created_timestamp"];
        rows.row(json::text(&row.fields, "role"), &content, &metadata, at, Some(&message_id), out, &place)?;
    }
    let title = json::maybe_text(&session, "name").or_else(|| json::maybe_text(&session, "description"));
    let created_at = json::time(&session["created_at"]);
    let usage = totals(&session);
    let folder = json::folder(&session["working_dir"]);
    Ok(Some(rows.into_session(id, title, created_at, folder, usage)))
}

fn read_lines(file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let id = file.stem().to_owned();
    let mut rows = GooseRows::new(None);
    let (mut title, mut usage, mut created_at, mut folder) = (None, None, None, None);
    let mut lines = JsonLines::open(&file.path);
    let mut is_first = true;
    while let Some((number, record)) = lines.next_json(out, &file.name)? {
        let place = format!("{}:{number}", file.name);
        let is_head = std::mem::take(&mut is_first) && !has(&record, "role");
        if is_head {
            title = json::maybe_text(&record, "description");
            usage = totals(&record);
            folder = json::folder(&record["working_dir"]);
            continue;
        }
        if !record["content"].is_array() {
            out.unknown("record", place, record.to_string())?;
            continue;
        }
        created_at = created_at.or_else(|| json::seconds(&record["created"]));
        let derived = format!("{id}:{number}");
        rows.derived = derived;
        let message_id = json::maybe_text(&record, "id");
        let (role, at) = (json::text(&record, "role"), &record["created"]);
        rows.row(role, &record["content"], &record["metadata"], at, message_id.as_deref(), out, &place)?;
    }
    out.session(rows.into_session(id, title, created_at, folder, usage))
}

/// The rows of a session.
struct GooseRows {
    arena: DraftArena,
    main: Vec<usize>,
    model: Option<String>,
    /// The id of the next row, if it has none.
    derived: String,
}

/// The messages of one row.
#[derive(Default)]
struct RowDrafts {
    results: Vec<MessageDraft>,
    summaries: Vec<MessageDraft>,
}

impl GooseRows {
    fn new(model: Option<String>) -> Self {
        Self { arena: DraftArena::default(), main: Vec::new(), model, derived: String::new() }
    }

    fn into_session(
        self,
        id: String,
        title: Option<String>,
        created_at: Option<annals_base::Timestamp>,
        folder: Option<String>,
        usage: Option<Usage>,
    ) -> SourceSession {
        let main = self.arena.settled(&self.main);
        let messages = self.arena.into_messages();
        SourceSession {
            title,
            created_at,
            folder,
            usage,
            ..SourceSession::new(SourceKind::Goose, id, pick(&messages, &main))
        }
    }

    /// Takes a row of messages.
    fn row(
        &mut self,
        role: &str,
        content: &Json,
        metadata: &Json,
        at: &Json,
        id: Option<&str>,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let is_model = role == "assistant";
        if !is_model && role != "user" {
            return out.unknown(format!("role/{role}"), place, content.to_string());
        }
        let kind = if is_model { DraftKind::Ai } else { DraftKind::Human };
        let mut draft = MessageDraft::new(kind, String::new());
        let mut found = RowDrafts::default();
        for (at, block) in json::items(content).iter().enumerate() {
            if !take(&mut draft, &mut found, block) {
                let kind = format!("content/{}", json::text(block, "type"));
                out.unknown(kind, format!("{place}#{at}"), block.to_string())?;
            }
        }
        let has_own = !draft.blocks.is_empty() || draft.has_calls();
        if metadata["userVisible"] == false && !is_model {
            (draft.kind, draft.is_summary) = (DraftKind::System, true);
        }
        if is_model {
            draft.model.clone_from(&self.model);
        }
        let mut drafts = Vec::new();
        // Results stand before the text of the user, and after the message of the model that called.
        if is_model && has_own {
            drafts.push(draft);
            drafts.extend(found.results);
        } else {
            drafts.extend(found.results);
            drafts.extend(has_own.then_some(draft));
        }
        drafts.extend(found.summaries);
        for (ordinal, mut draft) in drafts.into_iter().enumerate() {
            draft.report_lost(out, place)?;
            let numbered = |id: &str| if ordinal == 0 { id.to_owned() } else { format!("{id}#{}", ordinal + 1) };
            draft.id = id.map(numbered);
            draft.derived = numbered(&self.derived);
            draft.at = json::seconds(at);
            if draft.kind == DraftKind::Tool {
                self.arena.add_result(&mut self.main, draft);
            } else {
                let number = self.arena.add(draft);
                self.main.push(number);
            }
        }
        Ok(())
    }
}

/// Adds a block of content to the messages of its row. Returns false if its type is not known.
fn take(draft: &mut MessageDraft, found: &mut RowDrafts, block: &Json) -> bool {
    match json::text(block, "type") {
        "text" => draft.text_in(block, "text"),
        "image" => draft.image_base64(json::text(block, "mimeType"), json::text(block, "data")),
        "thinking" => draft.reasoning_in(block, "thinking"),
        "redactedThinking" => draft.opaque(block),
        "toolRequest" | "frontendToolRequest" => {
            let (id, call) = (json::text(block, "id"), &block["toolCall"]);
            let (value, error) = (&call["value"], &call["error"]);
            if error.is_null() && value.is_object() {
                let empty = json!({});
                let args = if has(value, "arguments") { &value["arguments"] } else { &empty };
                draft.call(id, json::text(value, "name"), args);
            } else {
                let error = json::as_text(error);
                draft.invalid_call(Some(id.to_owned()), None, &error, &error);
            }
        }
        "toolResponse" => {
            let mut result = MessageDraft::result(String::new(), json::text(block, "id"));
            let (value, error) = (&block["toolResult"]["value"], &block["toolResult"]["error"]);
            if error.is_null() {
                result.is_error = value["isError"] == true;
                // Until late 2025 the value was the list itself.
                let parts = if value.is_array() { value } else { &value["content"] };
                for part in json::items(parts) {
                    match json::text(part, "type") {
                        "text" => result.text_in(part, "text"),
                        "image" => result.image_base64(json::text(part, "mimeType"), json::text(part, "data")),
                        _ => result.opaque(part),
                    }
                }
            } else {
                result.is_error = true;
                result.text(&json::as_text(error));
            }
            found.results.push(result);
        }
        "conversationCompacted" => {
            found.summaries.extend(MessageDraft::summary(String::new(), json::text(block, "msg")));
        }
        "systemNotification" | "toolConfirmationRequest" | "actionRequired" => {}
        _ => return false,
    }
    true
}
