//! Cursor: the database of the editor, and the transcripts of its command.
//!
//! Only the conversations and their bubbles are read of the database: its other tables and keys hold secrets.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value as Json, json};

use crate::arena::{DraftArena, pick};
use crate::blocks::{blocks_of, of_block, of_model_block, of_result};
use crate::chain::order;
use crate::database::SourceDatabase;
use crate::document;
use crate::draft::{self, DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::{ParentLink, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::{SourceFacts, config, home};
use crate::sources::{HistorySource, SourceKind};
use crate::walk::sorted;

/// The table of the editor.
const TABLE: &str = "cursorDiskKV";

/// The folder with the transcripts of helpers, in two words so that it is not taken for one of this project.
const HELPERS: &str = concat!("sub", "agents");

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Cursor, its command",
    places: &[config("Cursor/User/globalStorage/state.vscdb"), home(".cursor/projects/*/agent-transcripts")],
    has_own_folders: false,
    versions: "the editor by readers of others, transcripts of the command by files",
    checked: "2026-11",
    lost: "checkpoints of files, `store.db` of the command",
};

/// The databases and transcripts of an import.
#[derive(Default)]
pub(crate) struct CursorFiles {
    databases: Vec<(SourceFile, Rc<SourceDatabase>)>,
    transcripts: Vec<SourceFile>,
}

impl HistorySource for CursorFiles {
    /// Takes the files of a workspace, and a copy of the database.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        if file.file_name() == "state.vscdb.backup" {
            return file.has_beside("state.vscdb");
        }
        file.folder_name(2) == "workspaceStorage" && matches!(file.file_name(), "state.vscdb" | "workspace.json")
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        if let Some(database) = file.database() {
            let is_own = database.has_column(TABLE, "key") && database.has_column(TABLE, "value");
            self.databases.extend(is_own.then(|| (file.file.clone(), Rc::clone(database))));
            return is_own;
        }
        let is_message = |line: &&Json| {
            matches!(json::text(line, "role"), "user" | "assistant") && line["message"].get("content").is_some()
        };
        let mut with_role = file.lines().iter().filter(|line| has(line, "role")).peekable();
        let is_own = with_role.peek().is_some()
            && with_role.all(|line| is_message(&line))
            && !file.lines().iter().any(|line| has(line, "sessionId"));
        self.transcripts.extend(is_own.then(|| file.file.clone()));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        for (file, database) in &self.databases {
            let folders = workspace_folders(file, out)?;
            out.file(&file.name, |out| EditorDatabase { database, file, folders: &folders }.read(out))?;
        }
        // A session comes before its helpers.
        let is_helper = |file: &&SourceFile| file.folder_name(1) == HELPERS;
        let (helpers, sessions): (Vec<_>, Vec<_>) = self.transcripts.iter().partition(is_helper);
        for file in sessions.into_iter().chain(helpers) {
            out.file(&file.name, |out| read_transcript(file, out))?;
        }
        Ok(())
    }
}

/// Returns the folders of conversations, by their ids: the workspaces beside the database of the editor name them.
fn workspace_folders(file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<HashMap<String, String>, ImportError> {
    let mut folders = HashMap::new();
    let workspaces = file.path.ancestors().nth(2).map(|folder| folder.join("workspaceStorage"));
    // Workspaces that are missing or damaged leave conversations without a folder: they hold no messages.
    for workspace in workspaces.and_then(|folder| sorted(&folder).ok()).unwrap_or_default() {
        let described = document::whole(&workspace.join("workspace.json")).ok();
        let Some(folder) = described.and_then(|document| json::folder(&document["folder"])) else { continue };
        let Ok(database) = SourceDatabase::open(&workspace.join("state.vscdb")) else { continue };
        if !database.has_column("ItemTable", "value") {
            continue;
        }
        let sql = "SELECT value FROM ItemTable WHERE key IN ('composer.composerData', 'composer.composerHeaders')";
        let read = database.rows(sql, [], |row| {
            let document = row.document("value").unwrap_or_default();
            for composer in json::items(&document["allComposers"]) {
                folders.extend(json::maybe_text(composer, "composerId").map(|id| (id, folder.clone())));
            }
            Ok(())
        });
        database.settle(read, &file.name, out)?;
    }
    Ok(folders)
}

/// A conversation without its bubbles.
struct ComposerHead {
    row: i64,
    id: String,
    parent: Option<String>,
}

struct EditorDatabase<'a> {
    database: &'a SourceDatabase,
    file: &'a SourceFile,
    /// The folders of conversations, by their ids.
    folders: &'a HashMap<String, String>,
}

impl EditorDatabase<'_> {
    fn read(&self, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        // The documents of all conversations are read twice, as one names its helpers and not its parent.
        let sql = "SELECT rowid AS number FROM cursorDiskKV \
                   WHERE key >= 'composerData:' AND key < 'composerData;' ORDER BY rowid";
        let numbers = self.database.row_numbers(sql, []);
        let mut heads = Vec::new();
        let mut parents = HashMap::new();
        for row in self.database.settle(numbers, &self.file.name, out)?.unwrap_or_default() {
            let Some((id, composer)) = self.document(row, out, true)? else { continue };
            for helper in json::items(&composer["subComposerIds"]).iter().filter_map(Json::as_str) {
                parents.insert(helper.to_owned(), id.clone());
            }
            heads.push(ComposerHead { row, id, parent: None });
        }
        heads.iter_mut().for_each(|head| head.parent = parents.remove(&head.id));
        let links: Vec<_> = heads.iter().map(|head| (head.id.clone(), head.parent.clone())).collect();
        for head in order(&links, heads) {
            if self.database.is_exhausted() {
                break;
            }
            let session = self.database.snapshot(&self.file.name, out, |out| self.session(head, out))?;
            if let Some(session) = session.flatten() {
                out.session(session)?;
            }
        }
        Ok(())
    }

    /// Returns the document of a row with the id in its key; none if the row is empty or damaged.
    fn document(
        &self,
        row: i64,
        out: &mut ReadOutput<'_>,
        reports: bool,
    ) -> Result<Option<(String, Json)>, ImportError> {
        let place = format!("{}:{TABLE}:{row}", self.file.name);
        let read = self.database.row(TABLE, row);
        let Some(read) = self.database.settle(read, &place, out)?.flatten() else { return Ok(None) };
        let id = json::text(&read.fields, "key").rsplit(':').next().unwrap_or("").to_owned();
        if read.bytes("value").is_empty() {
            return Ok(None);
        }
        match read.document("value").filter(Json::is_object) {
            Some(document) => Ok(Some((id, document))),
            None => {
                if reports {
                    out.unknown("broken_row", place, String::from_utf8_lossy(read.bytes("value")))?;
                }
                Ok(None)
            }
        }
    }

    fn session(&self, head: ComposerHead, out: &mut ReadOutput<'_>) -> Result<Option<SourceSession>, ImportError> {
        let Some((id, composer)) = self.document(head.row, out, false)? else { return Ok(None) };
        let mut read = BubbleReader::new(&composer);
        let headers = json::items(&composer["fullConversationHeadersOnly"]);
        let mut rows = self.bubbles(&id, out)?;
        if headers.is_empty() {
            for bubble in json::items(&composer["conversation"]) {
                let id = json::text(bubble, "bubbleId");
                read.bubble(id, bubble, out, &format!("{}:{TABLE}:{}#{id}", self.file.name, head.row))?;
            }
        }
        for header in headers {
            let bubble_id = json::text(header, "bubbleId");
            let row = rows.remove(bubble_id);
            let found = row.map(|row| self.document(row, out, true)).transpose()?.flatten();
            let place = format!("{}:{TABLE}:{}", self.file.name, row.unwrap_or(head.row));
            match found {
                Some((_, bubble)) => read.bubble(bubble_id, &bubble, out, &place)?,
                None => out.unknown("missing_bubble", place, header.to_string())?,
            }
        }
        let mut left: Vec<i64> = rows.into_values().collect();
        left.sort_unstable();
        for row in left {
            if let Some((_, bubble)) = self.document(row, out, true)? {
                out.unknown("orphan_bubble", format!("{}:{TABLE}:{row}", self.file.name), bubble.to_string())?;
            }
        }
        let folder = read.folder.take().or_else(|| self.folders.get(&id).cloned());
        let main = read.finish();
        Ok((!main.0.is_empty()).then(|| SourceSession {
            parent: head.parent.map(|id| ParentLink::Sub { id, call: None }),
            title: json::maybe_text(&composer, "name"),
            created_at: json::time(&composer["createdAt"]),
            folder,
            ..SourceSession::new(SourceKind::Cursor, id, pick(&main.1.into_messages(), &main.0))
        }))
    }

    /// Returns the rows of the bubbles of a conversation, by the ids of these.
    fn bubbles(&self, composer: &str, out: &mut ReadOutput<'_>) -> Result<HashMap<String, i64>, ImportError> {
        let mut rows = HashMap::new();
        let sql = "SELECT rowid AS number, key FROM cursorDiskKV WHERE key >= ?1 AND key < ?2";
        let (from, to) = (format!("bubbleId:{composer}:"), format!("bubbleId:{composer};"));
        let read = self.database.rows(sql, [&from, &to], |row| {
            let id = json::text(&row.fields, "key").strip_prefix(&from).unwrap_or("").to_owned();
            rows.insert(id, row.fields["number"].as_i64().unwrap_or_default());
            Ok(())
        });
        self.database.settle(read, &self.file.name, out)?;
        Ok(rows)
    }
}

/// Reads the bubbles of a conversation.
struct BubbleReader {
    arena: DraftArena,
    main: Vec<usize>,
    model: Option<String>,
    folder: Option<String>,
    /// The thoughts of the next message of the model.
    reasoning: String,
    /// The bubble of these thoughts.
    thinker: String,
}

/// Returns the name of a model, if it is one.
fn model_in(of: &Json) -> Option<String> {
    json::maybe_text(of, "modelName").filter(|name| name != "default")
}

impl BubbleReader {
    fn new(composer: &Json) -> Self {
        Self {
            arena: DraftArena::default(),
            main: Vec::new(),
            model: model_in(&composer["modelConfig"]),
            folder: None,
            reasoning: String::new(),
            thinker: String::new(),
        }
    }

    fn bubble(&mut self, id: &str, bubble: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        self.folder = self.folder.take().or_else(|| json::folder(&bubble["workspaceProjectDir"]));
        let mut drafts = match bubble["type"].as_i64() {
            Some(1) => {
                let mut draft = MessageDraft::new(DraftKind::Human, String::new());
                text_of(&mut draft, bubble);
                vec![draft]
            }
            Some(2) => self.of_model(id, bubble),
            _ => return out.unknown(format!("bubble/{}", json::as_text(&bubble["type"])), place, bubble.to_string()),
        };
        draft::number(&mut drafts, Some(id), place, out, place)?;
        let at = json::time(&bubble["createdAt"]).or_else(|| json::time(&bubble["timestamp"]));
        for mut draft in drafts {
            draft.at = at;
            self.main.push(self.arena.add(draft));
        }
        Ok(())
    }

    /// Returns the message of a bubble of the model, and the result of its call. A bubble with thoughts alone gives
    /// them to the next message.
    fn of_model(&mut self, id: &str, bubble: &Json) -> Vec<MessageDraft> {
        let (thoughts, tool) = (json::text(&bubble["thinking"], "text"), &bubble["toolFormerData"]);
        let has_call = has(tool, "name") || has(tool, "toolCallId");
        self.reasoning.push_str(thoughts);
        let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
        text_of(&mut draft, bubble);
        if draft.blocks.is_empty() && !has_call {
            if !thoughts.is_empty() {
                id.clone_into(&mut self.thinker);
            }
            return Vec::new();
        }
        let texts = std::mem::take(&mut draft.blocks);
        draft.reasoning(&std::mem::take(&mut self.reasoning));
        draft.blocks.extend(texts);
        draft.model = model_in(&bubble["modelInfo"]).or_else(|| self.model.clone());
        let counts = &bubble["tokenCount"];
        let (input, output) = (json::count(counts, "inputTokens"), json::count(counts, "outputTokens"));
        if input != 0 || output != 0 {
            draft.usage = Some(TokenCounts { input, output, ..TokenCounts::default() }.into_usage());
        }
        let mut drafts = vec![draft];
        if has_call {
            let result = add_call(&mut drafts[0], id, tool);
            drafts.extend(result);
        }
        drafts
    }

    /// Returns the main line and the messages. Thoughts that no message followed are a message of their own.
    fn finish(mut self) -> (Vec<usize>, DraftArena) {
        if !self.reasoning.is_empty() {
            let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
            draft.id = Some(self.thinker);
            draft.model = self.model;
            draft.reasoning(&self.reasoning);
            self.main.push(self.arena.add(draft));
        }
        (self.arena.settled(&self.main), self.arena)
    }
}

/// Adds the text of a bubble, which may be missing.
fn text_of(draft: &mut MessageDraft, bubble: &Json) {
    match &bubble["text"] {
        Json::Null => {}
        Json::String(text) => draft.text(text),
        other => draft.text(&json::as_text(other)),
    }
}

/// Adds the tool call of a bubble, and returns its result.
fn add_call(draft: &mut MessageDraft, bubble: &str, tool: &Json) -> Option<MessageDraft> {
    let id = json::maybe_text(tool, "toolCallId").unwrap_or_else(|| format!("{bubble}#call"));
    let (name, empty) = (json::text(tool, "name"), json!({}));
    match [&tool["rawArgs"], &tool["params"]].into_iter().find(|args| !args.is_null() && **args != "") {
        Some(Json::String(args)) => draft.call_of_text(&id, name, args),
        args => draft.call(&id, name, args.unwrap_or(&empty)),
    }
    let status = json::text(tool, "status");
    let has_ended = matches!(status, "completed" | "success" | "error" | "cancelled");
    (has(tool, "result") || has_ended).then(|| {
        let mut result = MessageDraft::result(String::new(), &id);
        result.is_error = matches!(status, "error" | "cancelled");
        if has(tool, "result") {
            result.text(&json::as_text(&tool["result"]));
        }
        result
    })
}

/// Reads a transcript of the command.
fn read_transcript(file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let id = file.stem().to_owned();
    let (mut arena, mut main) = (DraftArena::default(), Vec::new());
    let mut calls = OpenCalls::default();
    let mut lines = JsonLines::open(&file.path);
    while let Some((number, line)) = lines.next_json(out, &file.name)? {
        let (derived, place) = (format!("{id}:{number}"), format!("{}:{number}", file.name));
        let blocks = blocks_of(&line["message"]["content"]);
        let mut drafts = match json::text(&line, "role") {
            "" => continue,
            "user" => of_user(blocks),
            "assistant" => {
                let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
                blocks.iter().for_each(|block| of_model_block(&mut draft, block));
                vec![draft]
            }
            role => {
                out.unknown(format!("role/{role}"), place, line.to_string())?;
                continue;
            }
        };
        draft::number(&mut drafts, None, &derived, out, &place)?;
        for draft in drafts {
            let number = arena.add(draft);
            calls.note(&mut arena, number);
            main.push(number);
        }
    }
    let main = arena.settled(&main);
    let has_talk = main.iter().any(|number| arena.drafts[*number].kind != DraftKind::System);
    if !has_talk {
        return Ok(());
    }
    let is_helper = file.folder_name(1) == HELPERS;
    let parent = is_helper.then(|| ParentLink::Sub { id: file.folder_name(2).to_owned(), call: None });
    out.session(SourceSession {
        parent,
        ..SourceSession::new(SourceKind::Cursor, id, pick(&arena.into_messages(), &main))
    })
}

/// Returns the results of tools in the blocks of the user, and a message of the other blocks.
fn of_user(blocks: &[Json]) -> Vec<MessageDraft> {
    let (mut drafts, mut rest) = (Vec::new(), MessageDraft::new(DraftKind::Human, String::new()));
    for block in blocks {
        match json::text(block, "type") {
            "tool_result" => drafts.push(of_result(block)),
            _ => of_block(&mut rest, block),
        }
    }
    if !rest.blocks.is_empty() || drafts.is_empty() {
        drafts.push(rest);
    }
    drafts
}

/// The calls without ids, which take those of the results that follow.
#[derive(Default)]
struct OpenCalls {
    /// The messages with calls since the last human message.
    callers: Vec<usize>,
    /// True after a result: the next call begins anew.
    has_result: bool,
}

impl OpenCalls {
    fn note(&mut self, arena: &mut DraftArena, number: usize) {
        match arena.drafts[number].kind {
            DraftKind::Ai if arena.drafts[number].has_calls() => {
                if std::mem::take(&mut self.has_result) {
                    self.callers.clear();
                }
                self.callers.push(number);
            }
            DraftKind::Human => self.callers.clear(),
            DraftKind::Tool => self.answer(arena, number),
            DraftKind::Ai | DraftKind::System => {}
        }
    }

    fn answer(&mut self, arena: &mut DraftArena, number: usize) {
        self.has_result = true;
        let id = arena.drafts[number].answers.clone();
        for caller in &self.callers {
            let draft = &mut arena.drafts[*caller];
            if draft.has_call(&id) {
                return;
            }
            let ids = draft.calls.iter_mut().map(|call| &mut call.id);
            let mut ids = ids.chain(draft.invalid.iter_mut().map(|call| &mut call.id));
            if let Some(free) = ids.find(|id| id.is_none()) {
                *free = Some(id);
                return;
            }
        }
    }
}
