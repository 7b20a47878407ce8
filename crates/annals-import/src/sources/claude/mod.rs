//! Claude Code: transcripts, which are JSON lines that form a tree.
//!
//! *Absent:* the tree of one transcript, see `tree`.

mod records;
mod tree;

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use crate::document;
use crate::error::ImportError;
use crate::json;
use crate::lines::{FileLine, JsonLines};
use crate::model::ParentLink;
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::HistorySource;
use crate::sources::facts::{SourceFacts, config, home, variable};
use records::{LOOSE, is_of_model_or_user};
use tree::RecordTree;

/// Returns whether lines are those of a transcript: one of them is a message with the id of a session, or all are
/// records without a message that only such files have.
fn is_transcript(lines: &[Json]) -> bool {
    // Other programs write the same envelope around messages of parts.
    let is_other = |line: &Json| {
        line["message"]["parts"].is_array() || line["type"] == "tool_result" || has(line, "systemPayload")
    };
    if lines.iter().any(is_other) {
        return false;
    }
    let is_message =
        |line: &Json| is_of_model_or_user(line) && line["message"].is_object() && line["sessionId"].is_string();
    let is_loose = |line: &Json| {
        let kind = json::text(line, "type");
        let is_record = has(line, "sessionId") || has(line, "leafUuid") || has(line, "messageId");
        (LOOSE.contains(&kind) && is_record) || (has(line, "uuid") && has(line, "sessionId"))
    };
    lines.iter().any(is_message) || (!lines.is_empty() && lines.iter().all(is_loose))
}

/// The end of the name of a file that describes the helper whose transcript is beside it.
const DESCRIBES: &str = ".meta.json";

/// Returns whether a file describes the helper whose transcript is beside it.
pub(super) fn describes_helper(file: &SourceFile) -> bool {
    let stem = file.file_name().strip_suffix(DESCRIBES);
    let has_transcript =
        |stem: &str| [".jsonl", ".jsonl.zst"].iter().any(|ending| file.has_beside(&format!("{stem}{ending}")));
    stem.is_some_and(|stem| stem.starts_with(HELPER) && has_transcript(stem))
}

/// The begin of the name of the transcript of a helper.
const HELPER: &str = "agent-";

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Claude Code",
    places: &[home(".claude/projects"), config("claude/projects"), variable("CLAUDE_CONFIG_DIR", "projects")],
    has_own_folders: true,
    versions: "transcripts up to 2.1.239, by readers of others",
    checked: "2026-11",
    lost: "snapshots of files, large outputs beside the transcript",
};

/// All transcripts of an import.
#[derive(Default)]
pub(crate) struct ClaudeFiles {
    files: Vec<TranscriptFile>,
}

/// A transcript whose first record was read.
struct TranscriptFile {
    file: SourceFile,
    /// The session that the first record names: the parent of a helper or of a fork.
    session: Option<String>,
    /// The session that the first record was copied from.
    forked_from: Option<String>,
    /// The timestamp of the first record, as its text.
    begun_at: Option<String>,
}

impl TranscriptFile {
    fn helper(&self) -> Option<&str> {
        self.file.stem().strip_prefix(HELPER)
    }

    /// Returns the description in the file beside the transcript of a helper.
    fn description(&self) -> Option<String> {
        let beside = self.file.path.with_file_name(format!("{}{DESCRIBES}", self.file.stem()));
        // The file may be missing. Its faults are not counted, as it holds no messages.
        json::maybe_text(&document::whole(&beside).ok()?, "description")
    }

    /// Returns the session that this one was forked from.
    fn fork_parent(&self) -> Option<&str> {
        let other = self.session.as_deref().filter(|session| *session != self.file.stem());
        self.forked_from.as_deref().or(other)
    }
}

impl HistorySource for ClaudeFiles {
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        describes_helper(file)
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let is_transcript = is_transcript(file.lines());
        if is_transcript {
            self.add(file.file.clone());
        }
        is_transcript
    }

    /// Reads the transcripts: a session before its forks and its helpers.
    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        // The tool call that started a helper, by the id of the helper.
        let mut calls: HashMap<String, String> = HashMap::new();
        for number in self.order() {
            let of = &self.files[number];
            let mut tree = read_tree(&of.file, out)?;
            let (stem, id) = (of.file.stem(), of.file.stem().to_owned());
            if !tree.has_messages() {
                out.whole("empty_file", &of.file.name)?;
                continue;
            }
            tree.join(out, &of.file.name)?;
            calls.extend(tree.calls_of_helpers().map(|(helper, call)| (helper.to_owned(), call.to_owned())));
            let sessions = match of.helper() {
                Some(helper) => {
                    let call = calls.get(helper).cloned();
                    let parent = of.session.clone().map(|id| ParentLink::Sub { id, call });
                    tree.into_sessions(id, parent, of.description(), true)
                }
                None => {
                    let parent = of.fork_parent().filter(|parent| *parent != stem);
                    let parent = parent.map(|id| ParentLink::Fork { id: id.to_owned(), messages: 0 });
                    tree.into_sessions(id, parent, None, false)
                }
            };
            for session in sessions {
                out.session(session)?;
            }
        }
        Ok(())
    }
}

impl ClaudeFiles {
    fn add(&mut self, file: SourceFile) {
        let mut lines = JsonLines::open(&file.path);
        let (mut session, mut forked_from, mut begun_at) = (None, None, None);
        while let Some((_, line)) = lines.next_line() {
            let FileLine::Json(record) = line else { continue };
            if has(&record, "uuid") && has(&record, "sessionId") {
                session = json::maybe_text(&record, "sessionId");
                forked_from = json::maybe_text(&record["forkedFrom"], "sessionId");
                begun_at = json::maybe_text(&record, "timestamp");
                break;
            }
        }
        self.files.push(TranscriptFile { file, session, forked_from, begun_at });
    }

    /// Returns the numbers of the files: sessions in the order in which they began, but before their forks, each
    /// followed by its helpers.
    fn order(&self) -> Vec<usize> {
        let (helpers, mut sessions): (Vec<usize>, Vec<usize>) =
            (0..self.files.len()).partition(|number| self.files[*number].helper().is_some());
        sessions.sort_by_key(|number| &self.files[*number].begun_at);
        let by_id: HashMap<&str, usize> =
            sessions.iter().map(|number| (self.files[*number].file.stem(), *number)).collect();
        let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for number in helpers {
            let session = self.files[number].session.as_deref().and_then(|session| by_id.get(session).copied());
            below.entry(session).or_default().push(number);
        }
        let (mut order, mut seen) = (Vec::new(), HashSet::new());
        for number in sessions {
            let mut line = Vec::new();
            let mut next = Some(number);
            while let Some(number) = next.filter(|number| seen.insert(*number)) {
                line.push(number);
                next = self.files[number].fork_parent().and_then(|parent| by_id.get(parent).copied());
            }
            for number in line.into_iter().rev() {
                order.push(number);
                order.extend(below.remove(&Some(number)).unwrap_or_default());
            }
        }
        order.extend(below.remove(&None).unwrap_or_default());
        debug_assert_eq!(order.len(), self.files.len(), "each file is read once");
        order
    }
}

fn read_tree(file: &SourceFile, out: &mut ReadOutput<'_>) -> Result<RecordTree, ImportError> {
    let mut tree = RecordTree::new(file.stem());
    let mut lines = JsonLines::open(&file.path);
    while let Some((number, record)) = lines.next_json(out, &file.name)? {
        let place = format!("{}:{number}", file.name);
        if let Some(kind) = tree.add(number, &record, out, &place)? {
            out.unknown(kind, place, record.to_string())?;
        }
    }
    Ok(tree)
}
