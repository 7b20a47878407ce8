//! Gemini CLI: a journal of JSON lines for each session, and the documents before it.
//!
//! A record with the id of an earlier one replaces it. Invariant: the messages of a record keep their places in the
//! arena, so that a line that was left sees what replaced them.

use std::collections::{HashMap, HashSet};
use std::fs;

use annals_base::Timestamp;
use serde_json::{Value as Json, json};

use crate::arena::{self, DraftArena, pick};
use crate::document;
use crate::draft::{self, DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::{ParentLink, SourceSession};
use crate::output::ReadOutput;
use crate::parts::PartReader;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::{SourceFacts, home, variable};
use crate::sources::{HistorySource, SourceKind};

/// The kind of the session of a helper, in two words so that it is not taken for one of this project.
const HELPER: &str = concat!("sub", "agent");

/// The first words of a text that the program gives the model in the user's name.
const CONTEXT: [&str; 2] = ["<session_context>", "<hook_context>"];

/// The first words of the text that a compression left.
const SUMMARY: &str = "<state_snapshot>";

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Gemini CLI",
    places: &[home(".gemini/tmp/*/chats"), variable("GEMINI_CLI_HOME", ".gemini/tmp/*/chats")],
    has_own_folders: false,
    versions: "journals of 0.40 and later and documents, by files of 2025-12 to 2026-04",
    checked: "2026-11",
    lost: "notices, checkpoints of files",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct GeminiFiles {
    files: Vec<GeminiFile>,
}

/// A file whose head was read.
struct GeminiFile {
    file: SourceFile,
    id: String,
    is_document: bool,
    is_helper: bool,
}

/// Returns whether a record is the head of a session.
fn is_head(record: &Json) -> bool {
    record["sessionId"].is_string() && record["projectHash"].is_string()
}

impl HistorySource for GeminiFiles {
    /// Takes the files of a project beside its chats.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        let name = file.file_name();
        let is_checkpoint = name.starts_with("checkpoint-") && name.ends_with(".json");
        let is_named = matches!(name, ".project_root" | "logs.json" | "shell_history") || is_checkpoint;
        is_named && file.path.with_file_name("chats").is_dir()
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let document = || file.document().filter(|document| document["messages"].is_array() && is_head(document));
        let lines = file.lines().first().filter(|first| is_head(first) && !first["messages"].is_array());
        let Some((head, is_document)) = lines.map(|first| (first, false)).or_else(|| Some((document()?, true))) else {
            return false;
        };
        self.files.push(GeminiFile {
            file: file.file.clone(),
            id: json::text(head, "sessionId").to_owned(),
            is_document,
            is_helper: head["kind"] == HELPER,
        });
        true
    }

    /// Reads the sessions, those of helpers last. A journal goes before the document that it replaced.
    fn read(mut self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let journals = self.files.iter().filter(|of| !of.is_document).map(|of| of.id.clone());
        let journals: HashSet<String> = journals.collect();
        self.files.retain(|of| !of.is_document || !journals.contains(&of.id));
        self.files.sort_by_key(|of| of.is_helper);
        self.files.iter().try_for_each(|of| out.file(&of.file.name, |out| read(of, out)))
    }
}

fn read(of: &GeminiFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let mut journal = Journal::new(of.id.clone());
    let name = &of.file.name;
    if of.is_document {
        match document::whole(&of.file.path) {
            Ok(document) => {
                journal.facts(&document);
                for (at, message) in json::items(&document["messages"]).iter().enumerate() {
                    journal.message(message, &at.to_string(), out, &format!("{name}#{at}"))?;
                }
            }
            Err(fault) => return out.fault(fault, name),
        }
    } else {
        let mut lines = JsonLines::open(&of.file.path);
        while let Some((number, record)) = lines.next_json(out, name)? {
            journal.record(&record, &number.to_string(), out, &format!("{name}:{number}"))?;
        }
    }
    match journal.finish(of) {
        Some(session) => out.session(session),
        None => Ok(()),
    }
}

/// A record and its messages.
#[derive(Default)]
struct JournalEntry {
    /// The drafts, of which the first `used` are its messages.
    drafts: Vec<usize>,
    used: usize,
}

/// The records of a session.
struct Journal {
    id: String,
    arena: DraftArena,
    parts: PartReader,
    entries: Vec<JournalEntry>,
    by_id: HashMap<String, usize>,
    /// The entries of the main line.
    main: Vec<usize>,
    left: Vec<Vec<usize>>,
    /// The calls that have a result.
    answered: HashSet<String>,
    title: Option<String>,
    started_at: Option<Timestamp>,
}

impl Journal {
    fn new(id: String) -> Self {
        Self {
            id,
            arena: DraftArena::default(),
            parts: PartReader::default(),
            entries: Vec::new(),
            by_id: HashMap::new(),
            main: Vec::new(),
            left: Vec::new(),
            answered: HashSet::new(),
            title: None,
            started_at: None,
        }
    }

    fn facts(&mut self, of: &Json) {
        self.title = json::maybe_text(of, "summary").or(self.title.take());
        self.started_at = json::time(&of["startTime"]).or(self.started_at);
    }

    /// Takes a line.
    fn record(&mut self, record: &Json, at: &str, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let set = &record["$set"];
        if set.is_object() {
            self.facts(set);
            if let Json::Array(messages) = &set["messages"] {
                self.replace(messages, at, out, place)?;
            }
        } else if has(record, "$rewindTo") {
            self.rewind(json::text(record, "$rewindTo"));
        } else if is_head(record) && !has(record, "type") {
            self.facts(record);
        } else {
            self.message(record, at, out, place)?;
        }
        Ok(())
    }

    /// Moves a message and all after it out of the main line; all, if it is not there.
    fn rewind(&mut self, id: &str) {
        let entry = self.by_id.get(id);
        let end = entry.and_then(|entry| self.main.iter().position(|of| of == entry)).unwrap_or(0);
        if end < self.main.len() {
            self.left.push(self.main.clone());
            self.main.truncate(end);
        }
    }

    /// Replaces all messages. The line before is left if one of its messages is no longer there.
    fn replace(
        &mut self,
        messages: &[Json],
        at: &str,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let before = std::mem::take(&mut self.main);
        for (ordinal, message) in messages.iter().enumerate() {
            self.message(message, &format!("{at}.{ordinal}"), out, &format!("{place}#{ordinal}"))?;
        }
        let retained: HashSet<usize> = self.main.iter().copied().collect();
        if before.iter().any(|entry| !retained.contains(entry)) {
            self.left.push(before);
        }
        Ok(())
    }

    /// Takes a message: a new one at the end of the main line, or one that replaces another in its place.
    fn message(&mut self, record: &Json, at: &str, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let derived = format!("{}:{at}", self.id);
        let own = json::maybe_text(record, "id");
        let mut drafts = match json::text(record, "type") {
            "user" => self.of_user(record, &derived),
            "gemini" | "model" => self.of_model(record, &derived),
            "info" | "warning" | "error" => return Ok(()),
            "" => return out.unknown("record", place, record.to_string()),
            kind => return out.unknown(format!("message/{kind}"), place, record.to_string()),
        };
        draft::number(&mut drafts, own.as_deref(), &derived, out, place)?;
        drafts.iter_mut().for_each(|draft| draft.at = json::time(&record["timestamp"]));
        let key = own.unwrap_or(derived);
        let next = self.entries.len();
        let entry = *self.by_id.entry(key).or_insert(next);
        if entry == next {
            self.entries.push(JournalEntry::default());
        }
        let of = &mut self.entries[entry];
        of.used = drafts.len();
        for (ordinal, draft) in drafts.into_iter().enumerate() {
            match of.drafts.get(ordinal) {
                Some(number) => self.arena.drafts[*number] = draft,
                None => of.drafts.push(self.arena.add(draft)),
            }
        }
        if entry == next || !self.main.contains(&entry) {
            self.main.push(entry);
        }
        Ok(())
    }

    fn of_user(&mut self, record: &Json, derived: &str) -> Vec<MessageDraft> {
        let mut draft = MessageDraft::new(DraftKind::Human, String::new());
        let mut drafts = self.parts.take(&mut draft, &record["content"], derived);
        // The calls of the model have their results beside them.
        drafts.retain(|result| !self.answered.contains(&result.answers));
        let first = draft.blocks.iter().find(|block| block["type"] == "text");
        let first = first.map_or("", |block| json::text(block, "text"));
        if CONTEXT.iter().any(|context| first.starts_with(context)) {
            draft.kind = DraftKind::System;
        } else if first.starts_with(SUMMARY) {
            (draft.kind, draft.is_summary) = (DraftKind::System, true);
        }
        drafts.extend(Some(draft).filter(|draft| !draft.blocks.is_empty()));
        drafts
    }

    /// Returns the message of the model and the results of its calls.
    fn of_model(&mut self, record: &Json, derived: &str) -> Vec<MessageDraft> {
        let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
        let content = if has(record, "content") { &record["content"] } else { &record["parts"] };
        let mut results = self.parts.take(&mut draft, content, derived);
        for thought in json::items(&record["thoughts"]) {
            let texts = ["subject", "description"].map(|name| json::text(thought, name));
            let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
            draft.reasoning(&texts.join("\n"));
        }
        for (at, call) in json::items(&record["toolCalls"]).iter().enumerate() {
            let id = json::maybe_text(call, "id").unwrap_or_else(|| format!("{derived}#call{at}"));
            let empty = json!({});
            draft.call(&id, json::text(call, "name"), if has(call, "args") { &call["args"] } else { &empty });
            if has(call, "result") {
                results.push(self.result(id, call, derived));
            }
        }
        draft.model = json::maybe_text(record, "model");
        draft.usage = record["tokens"].is_object().then(|| counts(&record["tokens"]).into_usage());
        std::iter::once(draft).chain(results).collect()
    }

    /// Returns the result that stands beside a call.
    fn result(&mut self, id: String, call: &Json, derived: &str) -> MessageDraft {
        let mut result = MessageDraft::result(String::new(), &id);
        let responses = self.parts.take(&mut result, &call["result"], derived);
        for response in responses {
            result.is_error |= response.is_error;
            result.blocks.extend(response.blocks);
        }
        result.is_error |= matches!(json::text(call, "status"), "error" | "cancelled");
        self.answered.insert(id);
        result
    }

    /// Returns the session, unless nobody said anything.
    fn finish(self, of: &GeminiFile) -> Option<SourceSession> {
        let entries = &self.entries;
        let drafts = |line: &[usize]| -> Vec<usize> {
            let drafts = line.iter().flat_map(|entry| &entries[*entry].drafts[..entries[*entry].used]);
            self.arena.settled(&drafts.copied().collect::<Vec<_>>())
        };
        let main = drafts(&self.main);
        let left: Vec<Vec<usize>> = self.left.iter().map(|line| drafts(line)).collect();
        let mut all = main.iter().chain(left.iter().flatten());
        if !all.any(|number| self.arena.drafts[*number].kind != DraftKind::System) {
            return None;
        }
        let messages = self.arena.into_messages();
        let main = pick(&messages, &main);
        let left = left.iter().map(|line| pick(&messages, line)).collect();
        let earliest = || main.iter().filter_map(|message| message.at).min();
        // The project of a helper is one folder further up.
        let folder = of.file.path.ancestors().nth(if of.is_helper { 3 } else { 2 });
        let root = folder.and_then(|folder| fs::read_to_string(folder.join(".project_root")).ok());
        Some(SourceSession {
            parent: of.is_helper.then(|| ParentLink::Sub { id: of.file.folder_name(1).to_owned(), call: None }),
            title: self.title,
            created_at: self.started_at.or_else(earliest),
            folder: root.map(|root| root.trim().to_owned()).filter(|root| !root.is_empty()),
            branches: arena::branches(&main, left),
            ..SourceSession::new(SourceKind::Gemini, self.id, main)
        })
    }
}

/// Returns the token counts of an answer, whose input includes what was cached and excludes what tools added.
fn counts(of: &Json) -> TokenCounts {
    let count = |name| json::count(of, name);
    TokenCounts {
        input: count("input").saturating_add(count("tool")),
        output: count("output").saturating_add(count("thoughts")),
        cache_read: count("cached"),
        cache_creation: 0,
        reasoning: count("thoughts"),
    }
}
