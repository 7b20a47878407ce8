//! opencode: `opencode.db`, and the folders of JSON files before it.
//!
//! In a folder, ids and parents come from the paths: files were moved without being rewritten. A database may hold both
//! generations: a session with messages of OpenCode 2 is read from these alone. *Absent:* the messages of OpenCode 2,
//! see `second`.

mod second;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use annals_base::Timestamp;
use serde_json::{Value as Json, json};

use crate::arena::{self, DraftArena, pick};
use crate::chain::order;
use crate::database::{SourceDatabase, SourceRow};
use crate::document;
use crate::draft::{DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::model::{ParentLink, SessionMessage, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, data, home};
use crate::sources::{HistorySource, SourceKind};
use crate::walk::sorted;

/// Parts without a message.
const QUIET_PARTS: [&str; 7] = ["compaction", "subtask", "agent", "snapshot", "patch", "retry", "step-start"];

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "opencode, OpenCode 2",
    places: &[
        data("opencode/opencode.db"),
        data("opencode/storage"),
        home(".local/share/opencode/opencode.db"),
        home(".local/share/opencode/storage"),
    ],
    has_own_folders: false,
    versions: "both generations of the database, folders since July 2025",
    checked: "2026-11",
    lost: "snapshots of files, messages before July 2025",
};

/// The databases and folders of an import.
#[derive(Default)]
pub(crate) struct OpencodeFiles {
    databases: Vec<(SourceFile, Rc<SourceDatabase>)>,
    trees: Vec<StorageTree>,
}

impl HistorySource for OpencodeFiles {
    fn recognise_folder(&mut self, folder: &Path) -> bool {
        let tree = StorageTree::recognise(folder);
        let is_own = tree.is_some();
        self.trees.extend(tree);
        is_own
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let Some(database) = file.database() else { return false };
        let has = |table: &str, column: &str| database.has_column(table, column);
        let is_first = has("session", "id") && has("message", "data") && has("part", "data");
        let is_own = is_first || second::is_in(database);
        self.databases.extend(is_own.then(|| (file.file.clone(), Rc::clone(database))));
        is_own
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let mut seen = HashSet::new();
        for (file, database) in &self.databases {
            out.file(&file.name, |out| read_database(database, file, &mut seen, out))?;
        }
        self.trees.iter().try_for_each(|tree| tree.read(&seen, out))
    }
}

/// The facts of a session, without its messages.
struct OpencodeSession {
    id: String,
    parent: Option<String>,
    /// The session of which it is a fork.
    fork_of: Option<String>,
    folder: Option<String>,
    /// True if its messages are those of OpenCode 2.
    is_second: bool,
    title: Option<String>,
    created_at: Option<Timestamp>,
    /// The message from which on messages were undone.
    reverted: Option<String>,
}

impl OpencodeSession {
    /// Reads the facts of a row of a table of sessions.
    fn of_row(row: &SourceRow, is_second: bool) -> Self {
        let revert = row.document("revert").unwrap_or_default();
        Self {
            id: json::as_text(&row.fields["id"]),
            parent: json::maybe_text(&row.fields, "parent_id"),
            fork_of: json::maybe_text(&row.fields, "fork_session_id").filter(|_| is_second),
            folder: json::folder(&row.fields["directory"]),
            is_second,
            title: json::maybe_text(&row.fields, "title"),
            created_at: json::time(&row.fields["time_created"]),
            reverted: json::maybe_text(&revert, "messageID"),
        }
    }

    /// Returns the session. `lines` holds the main lines of the sessions that were forked.
    fn finish(self, read: OpencodeMessages, lines: &HashMap<String, MainLine>) -> SourceSession {
        let messages = read.arena.into_messages();
        let full = pick(&messages, &read.main);
        let reverted = self.reverted.and_then(|id| read.starts.get(&id).copied());
        let (main, left) = match reverted {
            Some(end) => (full[..end].to_vec(), vec![full]),
            None => (full, Vec::new()),
        };
        let fork = self.fork_of.map(|id| {
            let of_parent = lines.get(&id).map_or(&[][..], Vec::as_slice);
            let messages = main.iter().zip(of_parent).take_while(|(own, other)| own.is_copy(other)).count();
            ParentLink::Fork { id, messages }
        });
        SourceSession {
            parent: self.parent.map(|id| ParentLink::Sub { id, call: None }).or(fork),
            title: self.title,
            created_at: self.created_at,
            folder: self.folder,
            branches: arena::branches(&main, left),
            ..SourceSession::new(SourceKind::Opencode, self.id, main)
        }
    }
}

/// The main line of a session.
type MainLine = Vec<Arc<SessionMessage>>;

/// Orders sessions so that a parent comes before its children.
fn parents_first(sessions: Vec<OpencodeSession>) -> Vec<OpencodeSession> {
    let parent = |session: &OpencodeSession| session.parent.clone().or_else(|| session.fork_of.clone());
    let parents = sessions.iter().map(|session| (session.id.clone(), parent(session)));
    let parents: Vec<(String, Option<String>)> = parents.collect();
    order(&parents, sessions)
}

fn read_database(
    database: &SourceDatabase,
    file: &SourceFile,
    seen: &mut HashSet<String>,
    out: &mut ReadOutput<'_>,
) -> Result<(), ImportError> {
    let mut sessions = read_sessions(database, file, out)?;
    let of_second: HashSet<String> = sessions.iter().map(|session| session.id.clone()).collect();
    if has_first(database) {
        let numbers = database.row_numbers("SELECT rowid FROM session ORDER BY time_created, id", []);
        for number in database.settle(numbers, &file.name, out)?.unwrap_or_default() {
            let row = database.row("session", number);
            let place = format!("{}:session:{number}", file.name);
            let Some(row) = database.settle(row, &place, out)?.flatten() else { continue };
            let session = OpencodeSession::of_row(&row, false);
            if !of_second.contains(&session.id) {
                sessions.push(session);
            }
        }
    }
    let forked: HashSet<String> = sessions.iter().filter_map(|session| session.fork_of.clone()).collect();
    let mut lines = HashMap::new();
    for session in parents_first(sessions) {
        if database.is_exhausted() {
            break;
        }
        seen.insert(session.id.clone());
        let messages = database.snapshot(&file.name, out, |out| match session.is_second {
            true => read_rows(database, &session.id, file, out),
            false => read_messages(database, &session.id, file, out),
        })?;
        if let Some(messages) = messages {
            let session = session.finish(messages, &lines);
            if forked.contains(&session.id) {
                lines.insert(session.id.clone(), session.main.clone());
            }
            out.session(session)?;
        }
    }
    Ok(())
}

/// Returns whether a database has the tables of version 1.
fn has_first(database: &SourceDatabase) -> bool {
    ["session", "message", "part"].iter().all(|table| !database.columns(table).is_empty())
}

/// Returns the sessions that have messages in the table of OpenCode 2, in the order of the table of its sessions.
fn read_sessions(
    database: &SourceDatabase,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<Vec<OpencodeSession>, ImportError> {
    if !second::is_in(database) {
        return Ok(Vec::new());
    }
    let mut left = Vec::new();
    let read = database.rows("SELECT DISTINCT session_id FROM session_message ORDER BY session_id", [], |row| {
        left.push(json::as_text(&row.fields["session_id"]));
        Ok(())
    });
    database.settle(read, &file.name, out)?;
    let mut left: BTreeSet<String> = left.into_iter().collect();
    let mut sessions = Vec::new();
    // Betas wrote the messages of the second version for the sessions of the first one.
    let table = if database.columns("session_v2").is_empty() { "session" } else { "session_v2" };
    if !database.columns(table).is_empty() {
        let numbers = database.row_numbers(&format!("SELECT rowid FROM {table} ORDER BY time_created, id"), []);
        for number in database.settle(numbers, &file.name, out)?.unwrap_or_default() {
            let row = database.row(table, number);
            let place = format!("{}:{table}:{number}", file.name);
            let Some(row) = database.settle(row, &place, out)?.flatten() else { continue };
            let session = OpencodeSession::of_row(&row, true);
            if left.remove(&session.id) {
                sessions.push(session);
            }
        }
    }
    // Messages whose session has no row of its own are a session without facts.
    sessions.extend(left.into_iter().map(|id| OpencodeSession {
        id,
        parent: None,
        fork_of: None,
        folder: None,
        is_second: true,
        title: None,
        created_at: None,
        reverted: None,
    }));
    Ok(sessions)
}

/// Reads the messages of a session of OpenCode 2.
fn read_rows(
    database: &SourceDatabase,
    session: &str,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<OpencodeMessages, ImportError> {
    let mut messages = OpencodeMessages::default();
    let sql = "SELECT rowid FROM session_message WHERE session_id = ?1 ORDER BY seq, rowid";
    let numbers = database.row_numbers(sql, [session]);
    for number in database.settle(numbers, &file.name, out)?.unwrap_or_default() {
        let row = database.row("session_message", number);
        let place = format!("{}:session_message:{number}", file.name);
        let Some(row) = database.settle(row, &place, out)?.flatten() else { continue };
        let Some(data) = row.document("data") else {
            out.unknown("broken_row", place, json::text(&row.fields, "data"))?;
            continue;
        };
        let drafts = second::messages(json::text(&row.fields, "type"), &data, out, &place)?;
        let id = json::as_text(&row.fields["id"]);
        let at = json::time(&data["time"]["created"]).or_else(|| json::time(&row.fields["time_created"]));
        messages.push(&id, at, drafts, out, &place)?;
    }
    Ok(messages)
}

/// Reads the messages of a session, each with its parts.
fn read_messages(
    database: &SourceDatabase,
    session: &str,
    file: &SourceFile,
    out: &mut ReadOutput<'_>,
) -> Result<OpencodeMessages, ImportError> {
    let mut messages = OpencodeMessages::default();
    let sql = "SELECT rowid FROM message WHERE session_id = ?1 ORDER BY time_created, id";
    let numbers = database.row_numbers(sql, [session]);
    for number in database.settle(numbers, &file.name, out)?.unwrap_or_default() {
        let row = database.row("message", number);
        let Some(row) = database.settle(row, &format!("{}:message:{number}", file.name), out)?.flatten() else {
            continue;
        };
        let id = json::text(&row.fields, "id");
        let place = format!("{}:message:{id}", file.name);
        let Some(data) = row.document("data") else {
            out.unknown("broken_row", place, json::text(&row.fields, "data"))?;
            continue;
        };
        let mut parts = Vec::new();
        let numbers = database.row_numbers("SELECT rowid FROM part WHERE message_id = ?1 ORDER BY id", [id]);
        for number in database.settle(numbers, &place, out)?.unwrap_or_default() {
            let row = database.row("part", number);
            let Some(row) = database.settle(row, &format!("{}:part:{number}", file.name), out)?.flatten() else {
                continue;
            };
            let place = format!("{}:part:{}", file.name, json::text(&row.fields, "id"));
            match row.document("data") {
                Some(part) => parts.push((place, part)),
                None => out.unknown("broken_row", place, json::text(&row.fields, "data"))?,
            }
        }
        let at = json::time(&row.fields["time_created"]);
        messages.message(id, at, &data, &parts, out, &place)?;
    }
    Ok(messages)
}

/// A folder of sessions, messages and parts.
struct StorageTree {
    root: PathBuf,
    /// True if sessions stand in `info`, and parts in a folder for each session.
    is_old: bool,
}

impl StorageTree {
    /// Returns the tree in a folder: `storage` with `session` and `message`, or `session` with `info` and `message`.
    fn recognise(folder: &Path) -> Option<Self> {
        let has = |name: &str| folder.join(name).is_dir();
        let name = folder.file_name()?.to_str()?;
        let is_old = name == "session" && has("info") && has("message");
        let is_new = (name == "storage" || has("part")) && has("session") && has("message");
        (is_old || is_new).then(|| Self { root: folder.to_owned(), is_old })
    }

    fn place(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Returns a file of the tree; a file that is not JSON is reported.
    fn document(&self, path: &Path, out: &mut ReadOutput<'_>) -> Result<Option<Json>, ImportError> {
        match document::whole(path) {
            Ok(document) => Ok(Some(document)),
            Err(fault) => {
                out.fault(fault, self.place(path))?;
                Ok(None)
            }
        }
    }

    /// Reads the sessions, but for those that the database has.
    fn read(&self, seen: &HashSet<String>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let files = match self.is_old {
            true => json_files(&self.root.join("info"))?,
            false => {
                let mut files = Vec::new();
                for folder in sorted(&self.root.join("session"))?.into_iter().filter(|path| path.is_dir()) {
                    files.extend(json_files(&folder)?);
                }
                files
            }
        };
        let mut sessions = Vec::new();
        for (id, path) in files {
            if seen.contains(&id) {
                continue;
            }
            let info = self.document(&path, out)?.unwrap_or_default();
            sessions.push(OpencodeSession {
                id,
                parent: json::maybe_text(&info, "parentID"),
                fork_of: None,
                folder: json::folder(&info["directory"]),
                is_second: false,
                title: json::maybe_text(&info, "title"),
                created_at: json::time(&info["time"]["created"]),
                reverted: json::maybe_text(&info["revert"], "messageID"),
            });
        }
        let has_session: HashSet<String> = sessions.iter().map(|session| session.id.clone()).collect();
        for folder in sorted(&self.root.join("message"))?.into_iter().filter(|path| path.is_dir()) {
            let id = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !has_session.contains(&id) && !seen.contains(&id) {
                out.unknown("missing_session", self.place(&folder), "")?;
            }
        }
        for session in parents_first(sessions) {
            let mut stored = Vec::new();
            for (id, path) in json_files(&self.root.join("message").join(&session.id))? {
                if let Some(data) = self.document(&path, out)? {
                    stored.push((json::time(&data["time"]["created"]), id, data, path));
                }
            }
            stored.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            let mut messages = OpencodeMessages::default();
            for (at, id, data, path) in stored {
                let folder = self.root.join("part");
                let folder = if self.is_old { folder.join(&session.id) } else { folder };
                let mut parts = Vec::new();
                for (_, path) in json_files(&folder.join(&id))? {
                    if let Some(part) = self.document(&path, out)? {
                        parts.push((self.place(&path), part));
                    }
                }
                messages.message(&id, at, &data, &parts, out, &self.place(&path))?;
            }
            out.session(session.finish(messages, &HashMap::new()))?;
        }
        Ok(())
    }
}

/// Returns the JSON files of a folder, in the order of their names, with the names without the ending.
fn json_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, ImportError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let files = sorted(folder)?.into_iter().filter_map(|path| {
        let id = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
        path.is_file().then_some((id, path))
    });
    Ok(files.collect())
}

/// The messages of a session.
#[derive(Default)]
struct OpencodeMessages {
    arena: DraftArena,
    main: Vec<usize>,
    /// The number of messages of the line before each stored message.
    starts: HashMap<String, usize>,
}

impl OpencodeMessages {
    fn message(
        &mut self,
        id: &str,
        at: Option<Timestamp>,
        data: &Json,
        parts: &[(String, Json)],
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let drafts = match json::text(data, "role") {
            "user" => of_user(parts, out)?,
            "assistant" => of_model(data, parts, out)?,
            role => return out.unknown(format!("role/{role}"), place, data.to_string()),
        };
        self.push(id, json::time(&data["time"]["created"]).or(at), drafts, out, place)
    }

    /// Adds the messages of a stored message.
    fn push(
        &mut self,
        id: &str,
        at: Option<Timestamp>,
        drafts: Vec<MessageDraft>,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        self.starts.insert(id.to_owned(), self.main.len());
        for (ordinal, mut draft) in drafts.into_iter().enumerate() {
            let part = format!("{place}#{ordinal}");
            draft.report_lost(out, &part)?;
            draft.id = Some(if ordinal == 0 { id.to_owned() } else { format!("{id}#{}", ordinal + 1) });
            draft.at = at;
            let number = self.arena.add(draft);
            self.main.push(number);
        }
        Ok(())
    }
}

fn of_user(parts: &[(String, Json)], out: &mut ReadOutput<'_>) -> Result<Vec<MessageDraft>, ImportError> {
    let mut human = MessageDraft::new(DraftKind::Human, String::new());
    let mut context = MessageDraft::new(DraftKind::System, String::new());
    for (place, part) in parts {
        match json::text(part, "type") {
            "text" if part["ignored"] == true => {}
            "text" if part["synthetic"] == true => context.text_in(part, "text"),
            "text" => human.text_in(part, "text"),
            "file" => of_file(&mut human, part),
            kind if QUIET_PARTS.contains(&kind) => {}
            kind => out.unknown(format!("part/{kind}"), place, part.to_string())?,
        }
    }
    Ok([human, context].into_iter().filter(|draft| !draft.blocks.is_empty()).collect())
}

fn of_file(draft: &mut MessageDraft, part: &Json) {
    draft.file(json::text(part, "mime"), json::text(part, "url"), json::text(part, "filename"));
}

/// Returns a message for each step, each followed by the results of its calls.
fn of_model(data: &Json, parts: &[(String, Json)], out: &mut ReadOutput<'_>) -> Result<Vec<MessageDraft>, ImportError> {
    let is_summary = data["summary"] == true;
    let model = json::maybe_text(data, "modelID").filter(|_| !is_summary);
    let begin = || {
        let kind = if is_summary { DraftKind::System } else { DraftKind::Ai };
        let mut draft = MessageDraft::new(kind, String::new());
        (draft.is_summary, draft.model) = (is_summary, model.clone());
        draft
    };
    // The steps, each with its results.
    let mut steps: Vec<(MessageDraft, Vec<MessageDraft>)> = Vec::new();
    for (place, part) in parts {
        let kind = json::text(part, "type");
        let has_content = matches!(kind, "text" | "reasoning" | "file" | "tool" | "step-finish");
        if kind == "step-start" || (has_content && steps.is_empty()) {
            steps.push((begin(), Vec::new()));
        }
        let Some((step, results)) = steps.last_mut().filter(|_| has_content) else {
            if !QUIET_PARTS.contains(&kind) {
                out.unknown(format!("part/{kind}"), place, part.to_string())?;
            }
            continue;
        };
        match kind {
            "text" => step.text_in(part, "text"),
            "reasoning" => step.reasoning_in(part, "text"),
            "file" => of_file(step, part),
            "tool" => {
                let (id, state) = (json::text(part, "callID"), &part["state"]);
                let empty = json!({});
                let args = if state["input"].is_null() { &empty } else { &state["input"] };
                step.call(id, json::text(part, "tool"), args);
                let status = json::text(state, "status");
                if matches!(status, "completed" | "error") {
                    let mut result = MessageDraft::result(String::new(), id);
                    result.is_error = status == "error";
                    let text = &state[if result.is_error { "error" } else { "output" }];
                    result.text(&if text.is_null() { String::new() } else { json::as_text(text) });
                    results.push(result);
                }
            }
            _ if !is_summary => step.usage = Some(counts(&part["tokens"]).into_usage()),
            _ => {}
        }
    }
    if steps.is_empty() {
        steps.push((begin(), Vec::new()));
    }
    if is_summary {
        steps.retain(|(step, _)| !step.blocks.is_empty());
    }
    let mut drafts: Vec<MessageDraft> =
        steps.into_iter().flat_map(|(step, results)| std::iter::once(step).chain(results)).collect();
    if let (Some(last), Some(error)) = (drafts.last_mut(), json::maybe_text(&data["error"], "name")) {
        last.error = Some(error);
    }
    Ok(drafts)
}

/// Returns the counts of a step of either generation: its input excludes the cache, and its output excludes the
/// reasoning.
fn counts(tokens: &Json) -> TokenCounts {
    let count = |name: &str| json::count(tokens, name);
    let (read, written) = (json::count(&tokens["cache"], "read"), json::count(&tokens["cache"], "write"));
    TokenCounts {
        input: count("input").saturating_add(read).saturating_add(written),
        output: count("output").saturating_add(count("reasoning")),
        cache_read: read,
        cache_creation: written,
        reasoning: count("reasoning"),
    }
}
