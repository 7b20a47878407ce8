//! Continue: a document for each session, and a list of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use annals_base::Timestamp;
use serde_json::Value as Json;

use crate::arena::{DraftArena, pick};
use crate::document;
use crate::draft::{self, DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::model::SourceSession;
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, home, variable};
use crate::sources::{HistorySource, SourceKind};

/// The name of the list of sessions.
const LIST: &str = "sessions.json";

/// The title of a session that has none.
const UNTITLED: &str = "New Session";

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Continue",
    places: &[home(".continue/sessions"), variable("CONTINUE_GLOBAL_DIR", "sessions")],
    has_own_folders: false,
    versions: "by its source; no file was seen",
    checked: "2026-11",
    lost: "context items as text, times of messages",
};

/// The documents of an import.
#[derive(Default)]
pub(crate) struct ContinueFiles {
    files: Vec<SourceFile>,
}

impl HistorySource for ContinueFiles {
    /// Takes the list of sessions.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        file.file_name() == LIST && file.folder_name(1) == "sessions"
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let is_session = |document: &Json| {
            document["sessionId"].is_string() && document["title"].is_string() && document["history"].is_array()
        };
        let is_own = file.document().is_some_and(is_session);
        self.files.extend(is_own.then(|| file.file.clone()));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut lists = SessionLists::default();
        for file in &self.files {
            let listed = lists.item(file);
            out.file(&file.name, |out| read(file, &listed, out))?;
        }
        Ok(())
    }
}

/// The lists of sessions, by their paths.
#[derive(Default)]
struct SessionLists {
    by_path: HashMap<PathBuf, Vec<Json>>,
}

impl SessionLists {
    /// Returns the entry of a session in the list beside it.
    fn item(&mut self, file: &SourceFile) -> Json {
        // A list that is missing or damaged leaves its sessions without timestamps: it holds no messages.
        let read = |path: &PathBuf| json::items(&document::whole(path).unwrap_or_default()).to_vec();
        let list = self.by_path.entry(file.path.with_file_name(LIST)).or_insert_with_key(read);
        list.iter().find(|item| item["sessionId"] == file.stem()).cloned().unwrap_or_default()
    }
}

fn read(file: &SourceFile, listed: &Json, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let document = match document::whole(&file.path) {
        Ok(document) => document,
        Err(fault) => return out.fault(fault, &file.name),
    };
    let history = json::items(&document["history"]);
    let answered = history.iter().filter_map(|item| json::maybe_text(&item["message"], "toolCallId"));
    let mut items = HistoryItems {
        id: json::text(&document, "sessionId").to_owned(),
        arena: DraftArena::default(),
        model: json::maybe_text(&document, "chatModelTitle"),
        answered: answered.collect(),
        reasoning: String::new(),
    };
    for (at, item) in history.iter().enumerate() {
        items.item(at, item, out, &format!("{}#{at}", file.name))?;
    }
    items.end(history.len());
    let main: Vec<usize> = (0..items.arena.drafts.len()).collect();
    let main = items.arena.settled(&main);
    if !main.iter().any(|number| items.arena.drafts[*number].kind != DraftKind::System) {
        return Ok(());
    }
    let has_usage = items.arena.drafts.iter().any(|draft| draft.usage.is_some());
    let usage = Some(&document["usage"]).filter(|usage| usage.is_object() && !has_usage);
    out.session(SourceSession {
        title: json::maybe_text(&document, "title").filter(|title| title != UNTITLED),
        created_at: created(&listed["dateCreated"]),
        folder: json::folder(&document["workspaceDirectory"]),
        usage: usage.map(|usage| counts(usage).into_usage()),
        ..SourceSession::new(SourceKind::Continue, items.id, pick(&items.arena.into_messages(), &main))
    })
}

/// Returns a timestamp of the list: milliseconds since 1970, as a number or a text.
fn created(of: &Json) -> Option<Timestamp> {
    let millis = of.as_str().and_then(|text| text.parse().ok());
    millis.map_or_else(|| json::time(of), json::millis)
}

/// Returns token counts, whose input includes what was cached.
fn counts(of: &Json) -> TokenCounts {
    let details = &of["promptTokensDetails"];
    TokenCounts {
        input: json::count(of, "promptTokens"),
        output: json::count(of, "completionTokens"),
        cache_read: json::count(details, "cachedTokens"),
        cache_creation: json::count(details, "cacheWriteTokens"),
        reasoning: 0,
    }
}

/// The items of a session.
struct HistoryItems {
    id: String,
    arena: DraftArena,
    model: Option<String>,
    /// The calls whose results are messages.
    answered: HashSet<String>,
    /// The reasoning of the next message of the model.
    reasoning: String,
}

impl HistoryItems {
    fn item(&mut self, at: usize, item: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let message = &item["message"];
        let mut draft = match json::text(message, "role") {
            "system" => MessageDraft::new(DraftKind::System, String::new()),
            "user" => MessageDraft::new(DraftKind::Human, String::new()),
            "assistant" => MessageDraft::new(DraftKind::Ai, String::new()),
            "tool" => MessageDraft::result(String::new(), json::text(message, "toolCallId")),
            "thinking" => {
                let mut thought = MessageDraft::new(DraftKind::Ai, String::new());
                add_content(&mut thought, &message["content"]);
                self.reasoning.extend(thought.blocks.iter().map(|block| json::text(block, "text")));
                return Ok(());
            }
            "" => return out.unknown("record", place, item.to_string()),
            role => return out.unknown(format!("role/{role}"), place, item.to_string()),
        };
        let mut drafts = Vec::new();
        if draft.kind == DraftKind::Ai {
            let before = std::mem::take(&mut self.reasoning);
            draft.reasoning(if before.is_empty() { json::text(&item["reasoning"], "text") } else { &before });
            self.of_model(&mut draft, item);
            let states = json::items(&item["toolCallStates"]).iter();
            drafts.extend(states.filter_map(|state| self.result(state)));
        }
        add_content(&mut draft, &message["content"]);
        drafts.insert(0, draft);
        drafts.extend(MessageDraft::summary(String::new(), json::text(item, "conversationSummary")));
        draft::number(&mut drafts, None, &format!("{}:{at}", self.id), out, place)?;
        self.arena.drafts.extend(drafts);
        Ok(())
    }

    fn of_model(&self, draft: &mut MessageDraft, item: &Json) {
        let message = &item["message"];
        for call in json::items(&message["toolCalls"]) {
            let function = &call["function"];
            let arguments = json::as_text(&function["arguments"]);
            draft.call_of_text(json::text(call, "id"), json::text(function, "name"), &arguments);
        }
        let logged = json::items(&item["promptLogs"]).iter().rev().find_map(|log| json::maybe_text(log, "modelTitle"));
        draft.model = logged.or_else(|| self.model.clone());
        draft.usage = message["usage"].is_object().then(|| counts(&message["usage"]).into_usage());
    }

    /// Returns the result in the state of a call, unless a message has it.
    fn result(&self, state: &Json) -> Option<MessageDraft> {
        let call = json::text(state, "toolCallId");
        let output = state["output"].as_array().filter(|_| !self.answered.contains(call))?;
        let mut result = MessageDraft::result(String::new(), call);
        result.is_error = state["status"] == "errored";
        output.iter().for_each(|part| add_content(&mut result, &part["content"]));
        Some(result)
    }

    /// Makes a message of reasoning that no message of the model followed.
    fn end(&mut self, at: usize) {
        if !self.reasoning.is_empty() {
            let mut draft = MessageDraft::new(DraftKind::Ai, format!("{}:{at}", self.id));
            draft.reasoning(&self.reasoning);
            self.arena.add(draft);
        }
    }
}

/// Adds content: a text, or parts.
fn add_content(draft: &mut MessageDraft, content: &Json) {
    match content {
        Json::Null => {}
        Json::Array(parts) => {
            for part in parts {
                match (json::text(part, "type"), part.as_str()) {
                    (_, Some(text)) => draft.text(text),
                    ("text", None) => draft.text_in(part, "text"),
                    ("imageUrl", None) => draft.image(json::text(&part["imageUrl"], "url")),
                    _ => draft.opaque(part),
                }
            }
        }
        text => draft.text(&json::as_text(text)),
    }
}
