//! Codex: rollouts, which are files of JSON lines.
//!
//! A rollout may repeat the lines of its parent, or refer to them by number; both become a fork. *Absent:* the messages
//! of one rollout, see `rollout`.

mod rollout;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use annals_base::Timestamp;
use serde_json::Value as Json;

use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::{ParentLink, SessionMessage, SourceSession};
use crate::output::{OfKind, ReadOutput};
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, home, variable};
use crate::sources::{HistorySource, SourceKind};
use rollout::COMPLETED;
pub(super) use rollout::{CodexState, ItemSource, RolloutRecord};

/// The member with the facts of a helper, in two words so that it is not taken for one of this project.
const HELPER: &str = concat!("sub", "agent");

/// The layout of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodexLayout {
    /// Lines with `type` and `payload`.
    Current,
    /// Items without an envelope.
    Bare,
    /// One JSON document.
    Document,
}

/// Returns the layout of a file of JSON lines by its first line.
fn layout_of(first: &Json) -> Option<CodexLayout> {
    if first["type"] == "session_meta" && first["timestamp"].is_string() && first["payload"]["id"].is_string() {
        return Some(CodexLayout::Current);
    }
    let is_bare = first["id"].is_string() && first["timestamp"].is_string() && first.get("type").is_none();
    (is_bare && first.get("role").is_none()).then_some(CodexLayout::Bare)
}

/// Returns whether a JSON document is a rollout.
fn is_document(document: &Json) -> bool {
    document["session"]["id"].is_string() && document["items"].is_array()
}

/// A rollout whose head was read.
struct RolloutFile {
    file: SourceFile,
    layout: CodexLayout,
    id: String,
    /// The first line, or the member `session` of a document.
    head: Json,
    /// The timestamp of the first line.
    at: Option<Timestamp>,
    is_archived: bool,
}

impl RolloutFile {
    fn new(file: SourceFile, layout: CodexLayout, first: &Json) -> Self {
        let head = match layout {
            CodexLayout::Current => first["payload"].clone(),
            CodexLayout::Bare => first.clone(),
            CodexLayout::Document => first["session"].clone(),
        };
        let id = json::text(&head, "id").to_owned();
        let is_archived = file.path.components().any(|part| part.as_os_str() == "archived_sessions");
        let at = json::time(&first["timestamp"]);
        Self { file, layout, id, head, at, is_archived }
    }

    /// Returns the id of the session that this one was forked from or that started it, and whether it is a fork.
    fn parent(&self) -> Option<(String, bool)> {
        if let Some(id) = json::maybe_text(&self.head, "forked_from_id") {
            return Some((id, true));
        }
        let spawn = &self.head["source"][HELPER]["thread_spawn"];
        let id =
            json::maybe_text(&self.head, "parent_thread_id").or_else(|| json::maybe_text(spawn, "parent_thread_id"));
        id.map(|id| (id, false))
    }

    /// Returns the position at which the lines of the base end: the id of a session or rollout, and an ordinal.
    fn base(&self) -> Option<(String, u64)> {
        let base = &self.head["history_base"];
        Some((json::maybe_text(base, "thread_id")?, base["end_ordinal_exclusive"].as_u64()?))
    }
}

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Codex",
    places: &[
        home(".codex/sessions"),
        home(".codex/archived_sessions"),
        home(".codex/session_index.jsonl"),
        variable("CODEX_HOME", "sessions"),
        variable("CODEX_HOME", "archived_sessions"),
        variable("CODEX_HOME", "session_index.jsonl"),
    ],
    has_own_folders: false,
    versions: "documents of spring 2025, bare lines of mid 2025, rollouts up to 0.153",
    checked: "2026-11",
    lost: "state of the world, approvals, encrypted reasoning as text",
};

/// All rollouts of an import, with the titles of the index.
#[derive(Default)]
pub(crate) struct CodexFiles {
    files: Vec<RolloutFile>,
    indexes: Vec<PathBuf>,
}

impl HistorySource for CodexFiles {
    /// Takes the index of titles.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        let is_index = file.file_name() == "session_index.jsonl";
        self.indexes.extend(is_index.then(|| file.path.clone()));
        is_index
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let of_lines = file.lines().first().and_then(|first| Some((layout_of(first)?, first)));
        let of_document = || Some((CodexLayout::Document, file.document().filter(|document| is_document(document))?));
        let Some((layout, first)) = of_lines.or_else(of_document) else { return false };
        self.files.push(RolloutFile::new(file.file.clone(), layout, first));
        true
    }

    /// Reads the rollouts, parents first.
    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let titles = titles(&self.indexes)?;
        let mut by_id: HashMap<String, usize> = HashMap::new();
        let mut by_rollout = HashMap::new();
        for (number, file) in self.files.iter().enumerate() {
            if let Some((_, rollout)) = file.file.stem().rsplit_once('_') {
                by_rollout.insert(rollout.to_owned(), number);
            }
            // An active rollout goes before an archived one, and a later one before an earlier one.
            let replaces = by_id.get(&file.id).is_none_or(|of| !file.is_archived || self.files[*of].is_archived);
            if replaces {
                by_id.insert(file.id.clone(), number);
            }
        }
        let library = RolloutLibrary { files: &self.files, by_id, by_rollout };
        let is_parent: HashSet<String> = self.files.iter().filter_map(|file| Some(file.parent()?.0)).collect();
        let mut lines: HashMap<String, Vec<Arc<SessionMessage>>> = HashMap::new();
        for number in library.parents_first() {
            let file = &self.files[number];
            let title = titles.get(&file.id).cloned();
            let session = library.session(number, title, &lines, out)?;
            if is_parent.contains(&file.id) {
                lines.insert(file.id.clone(), session.main.clone());
            }
            out.session(session)?;
        }
        Ok(())
    }
}

/// Returns the titles of `session_index.jsonl`; the last line of an id counts.
fn titles(indexes: &[PathBuf]) -> Result<HashMap<String, String>, ImportError> {
    let mut titles = HashMap::new();
    for path in indexes {
        let mut lines = JsonLines::open(path);
        while let Some((_, line)) = lines.next_line() {
            let crate::lines::FileLine::Json(line) = line else { continue };
            if let (Some(id), Some(name)) = (json::maybe_text(&line, "id"), line["thread_name"].as_str()) {
                titles.insert(id, name.to_owned());
            }
        }
    }
    titles.retain(|_, title| !title.is_empty());
    Ok(titles)
}

struct RolloutLibrary<'a> {
    files: &'a [RolloutFile],
    by_id: HashMap<String, usize>,
    by_rollout: HashMap<String, usize>,
}

impl RolloutLibrary<'_> {
    /// Returns the numbers of the rollouts that count, a parent before its children. A cycle is broken at its first
    /// file.
    fn parents_first(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        let mut wanted: Vec<usize> = self.by_id.values().copied().collect();
        wanted.sort_unstable();
        for number in wanted {
            let mut line = Vec::new();
            let mut next = Some(number);
            while let Some(number) = next.filter(|number| seen.insert(*number)) {
                line.push(number);
                next = self.files[number].parent().and_then(|(id, _)| self.by_id.get(&id).copied());
            }
            order.extend(line.into_iter().rev());
        }
        order
    }

    /// Reads one rollout.
    fn session(
        &self,
        number: usize,
        title: Option<String>,
        lines: &HashMap<String, Vec<Arc<SessionMessage>>>,
        out: &mut ReadOutput<'_>,
    ) -> Result<SourceSession, ImportError> {
        let file = &self.files[number];
        let mut state = CodexState::new(ItemSource::Items);
        self.feed(number, u64::MAX, true, &mut state, &mut Vec::new(), out)?;
        if !state.has_items && file.layout == CodexLayout::Current {
            // The records that were not understood are reported once: of the second time, those of items alone.
            let mut items = OfKind { sink: &mut *out.sink, begin: COMPLETED };
            let mut items = ReadOutput::new(&mut items, out.source);
            state = CodexState::new(if state.has_completed { ItemSource::Completed } else { ItemSource::Events });
            self.feed(number, u64::MAX, true, &mut state, &mut Vec::new(), &mut items)?;
        }
        let folder = json::folder(&file.head["cwd"]).or_else(|| state.folder.take());
        let (mut main, mut left) = state.finish();
        let parent = file.parent().map(|(id, is_fork)| {
            if !is_fork {
                return ParentLink::Sub { id, call: None };
            }
            let of_parent = lines.get(&id).map_or(&[][..], Vec::as_slice);
            let messages = main.iter().zip(of_parent).take_while(|(own, other)| own.equals(other)).count();
            // The shared messages are those of the parent, derived ids included.
            for (own, other) in main.clone().iter().zip(&of_parent[..messages]) {
                for line in left.iter_mut().chain([&mut main]) {
                    for message in line.iter_mut().filter(|message| Arc::ptr_eq(message, own)) {
                        *message = Arc::clone(other);
                    }
                }
            }
            ParentLink::Fork { id, messages }
        });
        Ok(SourceSession {
            parent,
            title,
            created_at: json::time(&file.head["timestamp"]).or(file.at),
            folder,
            branches: crate::arena::branches(&main, left),
            ..SourceSession::new(SourceKind::Codex, file.id.clone(), main)
        })
    }

    /// Reads the lines of a rollout whose ordinals are below `end`, after those of its base.
    fn feed(
        &self,
        number: usize,
        end: u64,
        is_own: bool,
        state: &mut CodexState,
        seen: &mut Vec<usize>,
        out: &mut ReadOutput<'_>,
    ) -> Result<(), ImportError> {
        let file = &self.files[number];
        let place = &file.file.name;
        seen.push(number);
        if file.layout == CodexLayout::Document {
            let document = match crate::document::whole(&file.file.path) {
                Ok(document) => document,
                Err(fault) => return out.fault(fault, place),
            };
            for (at, item) in json::items(&document["items"]).iter().enumerate() {
                let (derived, place) = (format!("{}:{at}", file.id), format!("{place}#{at}"));
                state.item(&RolloutRecord { derived: &derived, json: item, at: None, place: &place }, out)?;
            }
            return Ok(());
        }
        if let Some((id, end)) = file.base() {
            let base = self.by_rollout.get(&id).or_else(|| self.by_id.get(&id));
            match base.filter(|base| !seen.contains(base)) {
                Some(base) => {
                    // The records of the base that were not understood are reported with the base itself.
                    let mut silent = crate::output::Silent;
                    let mut silent = ReadOutput::new(&mut silent, out.source);
                    self.feed(*base, end, false, state, seen, &mut silent)?;
                }
                None => out.unknown("missing_base", format!("{place}:1"), file.head["history_base"].to_string())?,
            }
        }
        let mut lines = JsonLines::open(&file.file.path);
        let mut is_first = true;
        while let Some((line, record)) = lines.next_json(out, place)? {
            let is_head = std::mem::take(&mut is_first);
            let is_after = record["ordinal"].as_u64().is_some_and(|ordinal| ordinal >= end);
            if is_head || (!is_own && is_after) {
                continue;
            }
            let (derived, place) = (format!("{}:{line}", file.id), format!("{place}:{line}"));
            let is_state = record.get("record_type").is_some();
            let record = RolloutRecord { derived: &derived, json: &record, at: None, place: &place };
            if file.layout == CodexLayout::Current {
                state.line(&record, out)?;
            } else if !is_state {
                state.item(&record, out)?;
            }
        }
        Ok(())
    }
}
