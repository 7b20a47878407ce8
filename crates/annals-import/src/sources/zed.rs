//! Zed: `threads.db`, with one document a row, compressed or not.

use std::rc::Rc;

use annals_base::Timestamp;
use serde_json::{Map as JsonMap, Value as Json, json};

use crate::arena::{DraftArena, pick};
use crate::chain::order;
use crate::database::{SourceDatabase, SourceRow};
use crate::draft::{DraftKind, MessageDraft, TokenCounts};
use crate::error::{ImportError, SourceFault};
use crate::json;
use crate::model::{ParentLink, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, data};
use crate::sources::{HistorySource, SourceKind};
use crate::zstd;

/// The member with the parent of a helper, in two words so that it is not taken for one of this project.
const HELPER_CONTEXT: &str = concat!("sub", "agent_context");

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Zed",
    places: &[data("zed/threads/threads.db"), data("Zed/threads/threads.db")],
    has_own_folders: false,
    versions: "threads without a version, 0.1.0, 0.2.0, 0.3.0",
    checked: "2026-11",
    lost: "older states of a thread, which are not stored",
};

/// The databases of an import.
#[derive(Default)]
pub(crate) struct ZedFiles {
    databases: Vec<(SourceFile, Rc<SourceDatabase>)>,
}

impl HistorySource for ZedFiles {
    fn recognise(&mut self, file: &FileProbe) -> bool {
        let Some(database) = file.database() else { return false };
        let is_own = database.has_column("threads", "data") && database.has_column("threads", "data_type");
        self.databases.extend(is_own.then(|| (file.file.clone(), Rc::clone(database))));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut databases = self.databases.iter();
        databases.try_for_each(|(file, database)| out.file(&file.name, |out| read_database(database, file, out)))
    }
}

fn read_database(database: &SourceDatabase, file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    // Only the numbers, ids and parents of all rows are in memory.
    let (mut links, mut numbers): (Vec<(String, Option<String>)>, Vec<i64>) = (Vec::new(), Vec::new());
    let has_parent = database.columns("threads").iter().any(|name| name == "parent_id");
    let sql = match has_parent {
        true => "SELECT rowid AS number, id, parent_id FROM threads ORDER BY rowid",
        false => "SELECT rowid AS number, id FROM threads ORDER BY rowid",
    };
    let read = database.rows(sql, [], |row| {
        links.push((json::text(&row.fields, "id").to_owned(), json::maybe_text(&row.fields, "parent_id")));
        numbers.push(row.fields["number"].as_i64().unwrap_or_default());
        Ok(())
    });
    database.settle(read, &file.name, out)?;
    let numbers = order(&links, numbers);
    database.sessions(numbers, &file.name, out, |number, out| read_thread(database, number, file, out))
}

/// Reads the thread with a number of a row.
fn read_thread(
    database: &SourceDatabase,
    number: i64,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<Option<SourceSession>, ImportError> {
    let row = database.row("threads", number);
    let Some(row) = database.settle(row, &format!("{}:threads:{number}", file.name), out)?.flatten() else {
        return Ok(None);
    };
    let id = json::text(&row.fields, "id");
    let place = format!("{}:threads:{id}", file.name);
    match decoded(&row) {
        Ok(document) if document.is_object() => session(id.to_owned(), &row.fields, &document, out, &place),
        Err(fault @ SourceFault::TooLarge(_)) => out.fault(fault, place).map(|()| None),
        Ok(_) | Err(_) => out.unknown("broken_row", place, json::text(&row.fields, "summary")).map(|()| None),
    }
}

fn decoded(row: &SourceRow) -> Result<Json, SourceFault> {
    match json::text(&row.fields, "data_type") {
        "zstd" => json::parse_bytes(&zstd::decompress(row.bytes("data"))?),
        _ => json::parse_bytes(row.bytes("data")),
    }
}

fn session(
    id: String,
    row: &Json,
    document: &Json,
    out: &mut ReadOutput<'_>,
    place: &str,
) -> Result<Option<SourceSession>, ImportError> {
    let mut read = ZedMessages {
        id: id.clone(),
        arena: DraftArena::default(),
        main: Vec::new(),
        model: json::maybe_text(&document["model"], "model"),
    };
    match (&document["version"], json::text(document, "version")) {
        (_, "0.3.0") => read.current(document, out, place)?,
        (Json::Null, _) | (_, "0.2.0" | "0.1.0") => read.older(document, out, place)?,
        (version, _) => {
            let kind = format!("version/{}", json::as_text(version));
            out.unknown(kind, place, document.to_string())?;
            return Ok(None);
        }
    }
    let parent =
        json::maybe_text(row, "parent_id").or_else(|| json::maybe_text(&document[HELPER_CONTEXT], "parent_thread_id"));
    let created_at: Option<Timestamp> =
        ["created_at", "updated_at"].into_iter().find_map(|name| json::time(&row[name]));
    let messages = read.arena.into_messages();
    // The paths of a workspace stand one a line.
    let folder = json::text(row, "folder_paths").lines().map(Json::from).find_map(|path| json::folder(&path));
    Ok(Some(SourceSession {
        parent: parent.map(|id| ParentLink::Sub { id, call: None }),
        title: json::maybe_text(document, "title").or_else(|| json::maybe_text(document, "summary")),
        created_at: created_at.or_else(|| json::time(&document["updated_at"])),
        folder,
        ..SourceSession::new(SourceKind::Zed, id, pick(&messages, &read.main))
    }))
}

struct ZedMessages {
    id: String,
    arena: DraftArena,
    main: Vec<usize>,
    model: Option<String>,
}

impl ZedMessages {
    fn push(&mut self, draft: MessageDraft) -> usize {
        let number = self.arena.add(draft);
        self.main.push(number);
        number
    }

    /// Returns the last message of the model since the human message at a position of the line, and before the next
    /// one.
    fn last_of_model(&self, from: usize) -> Option<usize> {
        let kind = |number: &usize| self.arena.drafts[*number].kind;
        let after = self.main.get(from + 1..)?.iter();
        after.copied().take_while(|number| kind(number) != DraftKind::Human).filter(|n| kind(n) == DraftKind::Ai).last()
    }

    /// Reads version 0.3.0.
    fn current(&mut self, document: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        for (at, message) in json::items(&document["messages"]).iter().enumerate() {
            let derived = format!("{}:{at}", self.id);
            if message == "Resume" {
                continue;
            }
            let (tag, value) = tagged(message);
            match tag {
                "User" => {
                    let mut draft = MessageDraft::new(DraftKind::Human, derived);
                    draft.id = json::maybe_text(value, "id");
                    for block in json::items(&value["content"]) {
                        match tagged(block) {
                            ("Text", Json::String(text)) => draft.text(text),
                            ("Text", _) => draft.lose("Text", block),
                            ("Image", image) => draft.image_base64("image/png", json::text(image, "source")),
                            _ => draft.opaque(block),
                        }
                    }
                    draft.report_lost(out, &format!("{place}#{at}"))?;
                    self.push(draft);
                }
                "Agent" => self.agent(&derived, value, out, &format!("{place}#{at}"))?,
                "Compaction" => {
                    let summary = MessageDraft::summary(derived, value["Summary"].as_str().unwrap_or(""));
                    summary.into_iter().for_each(|summary| _ = self.push(summary));
                }
                "Resume" => {}
                tag => out.unknown(format!("message/{tag}"), format!("{place}#{at}"), message.to_string())?,
            }
        }
        if let Json::Object(requests) = &document["request_token_usage"] {
            for (id, counts) in requests {
                let is_request = |number: &usize| self.arena.drafts[*number].id.as_deref() == Some(id);
                let from = self.main.iter().position(is_request);
                if let Some(number) = from.and_then(|from| self.last_of_model(from)) {
                    self.arena.drafts[number].usage = Some(TokenCounts::anthropic(counts).into_usage());
                }
            }
        }
        Ok(())
    }

    fn agent(&mut self, derived: &str, value: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let mut draft = MessageDraft::new(DraftKind::Ai, derived.to_owned());
        draft.model.clone_from(&self.model);
        for block in json::items(&value["content"]) {
            match tagged(block) {
                ("Text", Json::String(text)) => draft.text(text),
                ("Text", _) => draft.lose("Text", block),
                ("Thinking", Json::Object(thinking)) if !thinking.contains_key("text") => draft.lose("Thinking", block),
                ("Thinking", thinking) => draft.reasoning(json::text(thinking, "text")),
                ("ToolUse", call) => call_of(&mut draft, call),
                _ => draft.opaque(block),
            }
        }
        draft.report_lost(out, place)?;
        self.push(draft);
        let empty = JsonMap::new();
        let results = value["tool_results"].as_object().unwrap_or(&empty);
        for (ordinal, (id, result)) in results.iter().enumerate() {
            let id = json::maybe_text(result, "tool_use_id").unwrap_or_else(|| id.clone());
            let derived = format!("{derived}#{}", ordinal + 2);
            self.push(result_of(derived, &id, result));
        }
        Ok(())
    }

    /// Reads the versions before 0.3.0.
    fn older(&mut self, document: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let spent = &document["request_token_usage"];
        for (at, message) in json::items(&document["messages"]).iter().enumerate() {
            let id = message["id"].as_i64().map(|id| id.to_string());
            let derived = format!("{}:{at}", self.id);
            let results = json::items(&message["tool_results"]);
            let kind = match json::text(message, "role") {
                "user" => DraftKind::Human,
                "assistant" => DraftKind::Ai,
                "system" => continue,
                role => {
                    out.unknown(format!("role/{role}"), format!("{place}#{at}"), message.to_string())?;
                    continue;
                }
            };
            let mut draft = MessageDraft::new(kind, derived.clone());
            draft.id = id;
            of_segments(&mut draft, message);
            draft.report_lost(out, &format!("{place}#{at}"))?;
            if kind == DraftKind::Human {
                if !draft.has_text() && results.is_empty() {
                    draft.text(json::text(message, "context"));
                }
                if message["is_hidden"] == true {
                    draft.kind = DraftKind::System;
                }
                // Version 0.1.0: the results stand in a message of the user, which says nothing itself.
                self.results(&derived, results);
                if results.is_empty() || draft.has_text() {
                    self.push(draft);
                }
                continue;
            }
            draft.model.clone_from(&self.model);
            json::items(&message["tool_uses"]).iter().for_each(|call| call_of(&mut draft, call));
            let counts = &spent[at];
            if counts.as_object().is_some_and(|counts| !counts.is_empty()) {
                draft.usage = Some(TokenCounts::anthropic(counts).into_usage());
            }
            self.push(draft);
            self.results(&derived, results);
        }
        Ok(())
    }

    fn results(&mut self, derived: &str, results: &[Json]) {
        for (ordinal, result) in results.iter().enumerate() {
            let derived = format!("{derived}#{}", ordinal + 2);
            let draft = result_of(derived, json::text(result, "tool_use_id"), result);
            self.arena.add_result(&mut self.main, draft);
        }
    }
}

fn of_segments(draft: &mut MessageDraft, message: &Json) {
    if let Some(text) = message["text"].as_str() {
        draft.text(text);
    }
    for segment in json::items(&message["segments"]) {
        match json::text(segment, "type") {
            "text" => draft.text_in(segment, "text"),
            "thinking" => draft.reasoning_in(segment, "text"),
            _ => draft.opaque(segment),
        }
    }
}

fn call_of(draft: &mut MessageDraft, call: &Json) {
    let (id, name) = (json::text(call, "id"), json::text(call, "name"));
    let empty = json!({});
    match (&call["input"], call["raw_input"].as_str()) {
        (input @ Json::Object(_), _) => draft.call(id, name, input),
        (_, Some(raw)) if !raw.is_empty() => draft.call_of_text(id, name, raw),
        (Json::Null, _) => draft.call(id, name, &empty),
        (input, _) => draft.call(id, name, input),
    }
}

fn result_of(derived: String, id: &str, result: &Json) -> MessageDraft {
    let mut draft = MessageDraft::result(derived, id);
    draft.is_error = result["is_error"] == true;
    if let Some(name) = json::maybe_text(result, "tool_name") {
        draft.extra.push(("tool_name", name.into()));
    }
    content(&mut draft, &result["content"]);
    draft
}

/// Adds the content of a result: a text, an object with a tag in any case, or a list of these.
fn content(draft: &mut MessageDraft, of: &Json) {
    match of {
        Json::String(text) => draft.text(text),
        Json::Array(parts) => parts.iter().for_each(|part| content(draft, part)),
        Json::Object(members) => {
            let member =
                |name: &str| members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
            match (member("text"), member("image")) {
                (Some(Json::String(text)), _) => draft.text(text),
                (Some(Json::Object(text)), _) => draft.text(text.get("text").and_then(Json::as_str).unwrap_or("")),
                (_, Some(image)) => draft.image_base64("image/png", json::text(image, "source")),
                _ if member("type").and_then(Json::as_str).is_some_and(|kind| kind.eq_ignore_ascii_case("image")) => {
                    let data = member("source").or(member("data")).and_then(Json::as_str);
                    draft.image_base64("image/png", data.unwrap_or(""));
                }
                _ => draft.opaque(of),
            }
        }
        _ => {}
    }
}

/// Returns the tag and the value of an externally tagged value; a text is a tag without value.
fn tagged(of: &Json) -> (&str, &Json) {
    match of {
        Json::String(tag) => (tag, &Json::Null),
        Json::Object(members) => members.iter().next().map_or(("", &Json::Null), |(tag, value)| (tag, value)),
        _ => ("", &Json::Null),
    }
}
