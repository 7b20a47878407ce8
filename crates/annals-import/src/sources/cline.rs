//! Cline and Roo Code: a folder for each task, and the documents of Cline's command.
//!
//! Messages have the blocks of the Anthropic interface. What the program adds to those of the user is context.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_base::Timestamp;
use annals_messages::Usage;
use serde_json::Value as Json;

use crate::arena::{DraftArena, pick};
use crate::blocks::{blocks_of, of_block, of_model_block, of_result};
use crate::chain::order;
use crate::document;
use crate::draft::{self, DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::model::{ParentLink, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::{SourceFacts, config, home};
use crate::sources::{HistorySource, SourceKind};

/// The names of the messages of a task, the newest first.
const MESSAGES: [&str; 2] = ["api_conversation_history.json", "claude_messages.json"];

/// The name of what was shown of a task.
const SHOWN: &str = "ui_messages.json";

/// The end of the name of a document of Cline's command.
const DOCUMENT: &str = ".messages.json";

/// The tags around a text of the user.
const TAGS: [&str; 4] = ["task", "user_message", "feedback", "answer"];

/// The first words of a text with the state of the machine.
const STATE: &str = "<environment_details>";

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Cline, Roo Code",
    places: &[
        config("Code/User/globalStorage/saoudrizwan.claude-dev/tasks"),
        config("Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
        config("Cursor/User/globalStorage/saoudrizwan.claude-dev/tasks"),
        config("Cursor/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
        config("VSCodium/User/globalStorage/saoudrizwan.claude-dev/tasks"),
        config("VSCodium/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
        config("Windsurf/User/globalStorage/saoudrizwan.claude-dev/tasks"),
        config("Windsurf/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
        home(".cline/data/sessions"),
    ],
    has_own_folders: false,
    versions: "by the sources of both programs; no file was seen",
    checked: "2026-11",
    lost: "what was shown, checkpoints of files",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct ClineFiles {
    tasks: Vec<SourceFile>,
    documents: Vec<SourceFile>,
    /// What was shown of tasks without messages.
    shown: Vec<SourceFile>,
}

impl HistorySource for ClineFiles {
    /// Takes the files beside the messages of a task, the lists of tasks, and the descriptions of documents.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        let name = file.file_name();
        let has_messages = || MESSAGES.iter().any(|name| file.has_beside(name));
        match name {
            SHOWN => has_messages(),
            "task_metadata.json" | "context_history.json" | "settings.json" | "history_item.json" => {
                has_messages() || file.has_beside(SHOWN)
            }
            "_index.json" => file.folder_name(1) == "tasks",
            "taskHistory.json" => file.folder_name(1) == "state",
            name => name
                .strip_suffix(".json")
                .is_some_and(|id| !name.ends_with(DOCUMENT) && file.has_beside(&format!("{id}{DOCUMENT}"))),
        }
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let name = file.file.file_name();
        let is_message =
            |item: &Json| item["role"].is_string() && (has(item, "content") || item["type"] == "reasoning");
        let is_array = file.is_empty_array() || file.first_item().is_some_and(is_message);
        let to = if name == SHOWN && (file.is_empty_array() || file.first_item().is_some_and(Json::is_object)) {
            &mut self.shown
        } else if MESSAGES.contains(&name) && is_array {
            &mut self.tasks
        } else if name.ends_with(DOCUMENT) && file.document().is_some_and(is_document) {
            &mut self.documents
        } else {
            return false;
        };
        to.push(file.file.clone());
        true
    }

    /// Reads the tasks, parents first, and then the documents.
    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut lists = TaskLists::default();
        let items: Vec<Json> = self.tasks.iter().map(|file| lists.item(file)).collect();
        let parent = |item: &Json| json::maybe_text(item, "parentTaskId");
        let links = self.tasks.iter().zip(&items).map(|(file, item)| (file.folder_name(1).to_owned(), parent(item)));
        let links: Vec<_> = links.collect();
        let tasks: Vec<_> = self.tasks.iter().zip(items).collect();
        for (file, item) in order(&links, tasks) {
            out.file(&file.name, |out| read_task(file, &item, out))?;
        }
        for file in &self.documents {
            out.file(&file.name, |out| read_document(file, out))?;
        }
        self.shown.iter().try_for_each(|file| out.whole("ui_only", &file.name))
    }
}

fn is_document(document: &Json) -> bool {
    document["sessionId"].is_string() && document["messages"].is_array()
}

/// The lists of tasks, by their paths.
#[derive(Default)]
struct TaskLists {
    by_path: HashMap<PathBuf, Vec<Json>>,
}

impl TaskLists {
    /// Returns the entry of a task in the list beside the folder of tasks, or in the file beside its messages.
    fn item(&mut self, file: &SourceFile) -> Json {
        // A list that is missing or damaged leaves its tasks without facts: it holds no messages.
        let read = |path: &Path| document::whole(path).unwrap_or_default();
        let own = read(&file.path.with_file_name("history_item.json"));
        if own.is_object() {
            return own;
        }
        let Some(base) = file.path.ancestors().nth(3) else { return Json::Null };
        let path = base.join("state").join("taskHistory.json");
        let list = self.by_path.entry(path).or_insert_with_key(|path| json::items(&read(path)).to_vec());
        list.iter().find(|item| item["id"] == file.folder_name(1)).cloned().unwrap_or_default()
    }
}

fn read_task(file: &SourceFile, item: &Json, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let id = file.folder_name(1).to_owned();
    let mut reader = TaskReader::new(id.clone(), json::maybe_text(item, "modelId"));
    let fault = document::each_item(&file.path, |at, message| {
        reader.message(at, &message, out, &format!("{}#{at}", file.name))?;
        Ok(ControlFlow::Continue(()))
    })?;
    if let Some(fault) = fault {
        out.fault(fault, &file.name)?;
    }
    let usage = totals(item).filter(|_| !reader.has_usage);
    let created_at = reader.earliest.or_else(|| json::millis(id.parse().ok()?));
    let Some(session) = reader.into_session(id) else { return Ok(()) };
    let folder = ["cwdOnTaskInitialization", "workspace"].into_iter().find_map(|name| json::folder(&item[name]));
    out.session(SourceSession {
        parent: json::maybe_text(item, "parentTaskId").map(|id| ParentLink::Sub { id, call: None }),
        created_at,
        folder,
        usage,
        ..session
    })
}

fn read_document(file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let document = match document::whole(&file.path) {
        Ok(document) => document,
        Err(fault) => return out.fault(fault, &file.name),
    };
    let id = json::text(&document, "sessionId").to_owned();
    let stem = file.file_name().strip_suffix(DOCUMENT).unwrap_or("");
    let about = document::whole(&file.path.with_file_name(format!("{stem}.json"))).unwrap_or_default();
    let mut reader = TaskReader::new(id.clone(), json::maybe_text(&about, "model"));
    for (at, message) in json::items(&document["messages"]).iter().enumerate() {
        reader.message(at, message, out, &format!("{}#{at}", file.name))?;
    }
    let earliest = reader.earliest;
    let Some(session) = reader.into_session(id) else { return Ok(()) };
    out.session(SourceSession {
        title: json::maybe_text(&about["metadata"], "title"),
        created_at: json::time(&about["started_at"]).or(earliest),
        folder: ["cwd", "workspace_root"].into_iter().find_map(|name| json::folder(&about[name])),
        ..session
    })
}

/// Returns the totals of a task, whose input excludes what was cached.
fn totals(item: &Json) -> Option<Usage> {
    let (read, creation) = (json::count(item, "cacheReads"), json::count(item, "cacheWrites"));
    let (sent, output) = (json::count(item, "tokensIn"), json::count(item, "tokensOut"));
    let input = sent.saturating_add(read).saturating_add(creation);
    let counts = TokenCounts { input, output, cache_read: read, cache_creation: creation, reasoning: 0 };
    (input != 0 || output != 0).then(|| counts.into_usage())
}

/// Reads the messages of a task.
struct TaskReader {
    id: String,
    arena: DraftArena,
    main: Vec<usize>,
    /// The model of messages that name none.
    model: Option<String>,
    /// The reasoning of the next message of the model.
    reasoning: String,
    earliest: Option<Timestamp>,
    has_usage: bool,
}

impl TaskReader {
    fn new(id: String, model: Option<String>) -> Self {
        Self {
            id,
            arena: DraftArena::default(),
            main: Vec::new(),
            model,
            reasoning: String::new(),
            earliest: None,
            has_usage: false,
        }
    }

    fn message(&mut self, at: usize, message: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let time = json::time(&message["ts"]);
        self.earliest = [self.earliest, time].into_iter().flatten().min();
        let mut drafts = match json::text(message, "role") {
            _ if message["isTruncationMarker"] == true => return Ok(()),
            _ if message["type"] == "reasoning" => {
                self.reasoning.push_str(&reasoning_of(message));
                return Ok(());
            }
            _ if message["isSummary"] == true => {
                let mut draft = MessageDraft::new(DraftKind::System, String::new());
                draft.is_summary = true;
                blocks_of(&message["content"]).iter().for_each(|block| of_block(&mut draft, block));
                Some(draft).filter(MessageDraft::has_text).into_iter().collect()
            }
            "user" => of_user(blocks_of(&message["content"])),
            "assistant" => vec![self.of_model(message)],
            "" => return out.unknown("record", place, message.to_string()),
            role => return out.unknown(format!("role/{role}"), place, message.to_string()),
        };
        let own = json::maybe_text(message, "id");
        draft::number(&mut drafts, own.as_deref(), &format!("{}:{at}", self.id), out, place)?;
        for mut draft in drafts {
            draft.at = time;
            self.has_usage |= draft.usage.is_some();
            self.main.push(self.arena.add(draft));
        }
        Ok(())
    }

    fn of_model(&mut self, message: &Json) -> MessageDraft {
        let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
        draft.reasoning(&std::mem::take(&mut self.reasoning));
        blocks_of(&message["content"]).iter().for_each(|block| of_model_block(&mut draft, block));
        let info = &message["modelInfo"];
        let named = ["modelId", "id"].into_iter().find_map(|name| json::maybe_text(info, name));
        draft.model = named.or_else(|| self.model.clone());
        draft.usage = counts(&message["metrics"]).map(TokenCounts::into_usage);
        draft
    }

    /// Returns the session with its messages, unless nobody said anything.
    fn into_session(mut self, id: String) -> Option<SourceSession> {
        if !self.reasoning.is_empty() {
            let mut draft = MessageDraft::new(DraftKind::Ai, format!("{}:{}", self.id, self.main.len()));
            draft.reasoning(&self.reasoning);
            self.main.push(self.arena.add(draft));
        }
        let main = self.arena.settled(&self.main);
        let has_talk = main.iter().any(|number| self.arena.drafts[*number].kind != DraftKind::System);
        let messages = self.arena.into_messages();
        has_talk.then(|| SourceSession::new(SourceKind::Cline, id, pick(&messages, &main)))
    }
}

/// Returns the reasoning that stands in a record of its own.
fn reasoning_of(message: &Json) -> String {
    let parts = json::items(&message["summary"]).iter();
    let texts = parts.filter_map(|part| part.as_str().or_else(|| part["text"].as_str()));
    json::maybe_text(message, "text").unwrap_or_else(|| texts.collect())
}

/// Returns the token counts of a message.
fn counts(metrics: &Json) -> Option<TokenCounts> {
    let tokens = &metrics["tokens"];
    if tokens.is_object() {
        let (input, output) = (json::count(tokens, "prompt"), json::count(tokens, "completion"));
        return Some(TokenCounts {
            input,
            output,
            cache_read: json::count(tokens, "cached"),
            ..TokenCounts::default()
        });
    }
    if !has(metrics, "inputTokens") && !has(metrics, "outputTokens") {
        return None;
    }
    let (read, creation) = (json::count(metrics, "cacheReadTokens"), json::count(metrics, "cacheWriteTokens"));
    let input = json::count(metrics, "inputTokens").saturating_add(read).saturating_add(creation);
    let output = json::count(metrics, "outputTokens");
    Some(TokenCounts { input, output, cache_read: read, cache_creation: creation, reasoning: 0 })
}

/// Returns the results of tools in the blocks of the user, a message of what the user wrote, and one of the context.
fn of_user(blocks: &[Json]) -> Vec<MessageDraft> {
    let mut drafts = Vec::new();
    let mut human = MessageDraft::new(DraftKind::Human, String::new());
    let mut context = MessageDraft::new(DraftKind::System, String::new());
    // True after the heading of a result that is a text, up to the next heading or tag.
    let mut is_result = false;
    for block in blocks {
        let text = block.as_str().or_else(|| block["text"].as_str().filter(|_| block["type"] == "text"));
        match text {
            _ if block["type"] == "tool_result" => drafts.push(of_result(block)),
            None => of_block(&mut human, block),
            Some(text) => match untagged(text) {
                Some(inner) => {
                    is_result = false;
                    human.text(inner);
                }
                None => {
                    let is_state = text.trim_start().starts_with(STATE);
                    is_result = !is_state && (is_result || is_heading(text));
                    if is_state || is_result { context.text(text) } else { human.text(text) }
                }
            },
        }
    }
    drafts.extend([human, context].into_iter().filter(|draft| !draft.blocks.is_empty()));
    drafts
}

/// Returns the text in a tag of the user, without the line breaks at the tags.
fn untagged(text: &str) -> Option<&str> {
    let text = text.trim();
    TAGS.iter().find_map(|tag| {
        let inner = text.strip_prefix('<')?.strip_prefix(tag)?.strip_prefix('>')?;
        let inner = inner.strip_suffix('>')?.strip_suffix(tag)?.strip_suffix("</")?;
        Some(inner.trim_matches(['\n', '\r']))
    })
}

/// Returns whether a text begins with the heading of the result of a tool.
fn is_heading(text: &str) -> bool {
    let first = text.lines().next().unwrap_or("").trim_end();
    first.starts_with('[') && first.ends_with("] Result:")
}
