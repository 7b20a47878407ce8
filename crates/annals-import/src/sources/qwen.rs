//! Qwen Code: transcripts in the envelope of Claude Code around messages of parts.
//!
//! Records of one uuid are one. *Absent:* the transcripts of Claude Code, see `claude`.

use std::sync::Arc;

use annals_base::Timestamp;
use serde_json::Value as Json;

use super::claude::describes_helper;
use crate::arena::{self, DraftArena, pick};
use crate::chain::{ChainNode, RecordChain, order};
use crate::document;
use crate::draft::{self, DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::{ParentLink, SessionMessage, SourceSession};
use crate::output::ReadOutput;
use crate::parts::{PartReader, counts, text_of};
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::{SourceFacts, home};
use crate::sources::{HistorySource, SourceKind};

/// Subtypes of records of the system without a message.
const QUIET: [&str; 31] = [
    "session_notes",
    "slash_command",
    "ui_telemetry",
    "at_command",
    "attribution_snapshot",
    "notification",
    "background_task_completed",
    "cron",
    "custom_title",
    "parent_session",
    "session_source",
    "session_execution_engine",
    "omni_recall",
    "session_model",
    "session_approval_mode",
    "rewind",
    "agent_bootstrap",
    "agent_launch_prompt",
    "agent_retry",
    "agent_session_ready",
    "file_history_snapshot",
    "user_text_elements",
    "session_artifact_event",
    "session_artifact_snapshot",
    "session_sources_snapshot",
    "branch_checkpoint",
    "goal_state",
    "goal_runtime",
    "goal_turn_end",
    "realtime_message",
    "turn_result",
];

/// The first words of subtypes of records of the system without a message.
const QUIET_FAMILY: &str = "managed_";

/// Subtypes of records of the user that the program wrote.
const TOLD: [&str; 3] = ["notification", "cron", "background_task_completed"];

/// The first words of a part that a hook gives the model in the user's name.
const CONTEXT: &str = "<qwen:user-prompt-submit-context>";

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "Qwen Code",
    places: &[home(".qwen/projects")],
    has_own_folders: true,
    versions: "0.21.13, by files",
    checked: "2026-11",
    lost: "telemetry, notes, goals, artifacts",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct QwenFiles {
    files: Vec<QwenFile>,
}

/// A transcript whose first record was read.
struct QwenFile {
    file: SourceFile,
    /// The session that the first record names.
    session: String,
    /// The session that the first record was copied from.
    forked_from: Option<String>,
}

impl QwenFile {
    fn is_helper(&self) -> bool {
        self.file.stem().starts_with("agent-")
    }

    /// Returns the session that started a helper, or of which this one is a fork.
    fn parent(&self) -> Option<String> {
        match self.is_helper() {
            true => Some(self.session.clone()).filter(|id| !id.is_empty()),
            false => self.forked_from.clone(),
        }
    }
}

impl HistorySource for QwenFiles {
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        describes_helper(file)
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let is_record = |line: &&Json| line["uuid"].is_string() && line["sessionId"].is_string();
        let Some(first) = file.lines().iter().find(is_record) else { return false };
        let is_own = |line: &Json| {
            let is_system = line["type"] == "system" && has(line, "subtype") && has(line, "systemPayload");
            line["message"]["parts"].is_array() || line["type"] == "tool_result" || is_system
        };
        if !file.lines().iter().filter(is_record).any(is_own) {
            return false;
        }
        self.files.push(QwenFile {
            file: file.file.clone(),
            session: json::text(first, "sessionId").to_owned(),
            forked_from: json::maybe_text(&first["forkedFrom"], "sessionId"),
        });
        true
    }

    /// Reads the transcripts: sessions with parents first, then those of helpers.
    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let links: Vec<_> = self.files.iter().map(|of| (of.file.stem().to_owned(), of.parent())).collect();
        for of in order(&links, self.files) {
            out.file(&of.file.name, |out| read(&of, out))?;
        }
        Ok(())
    }
}

fn read(of: &QwenFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let mut tree = QwenTree::default();
    let mut lines = JsonLines::open(&of.file.path);
    while let Some((number, record)) = lines.next_json(out, &of.file.name)? {
        let derived = format!("{}:{number}", of.file.stem());
        tree.add(number, &record, &derived, out, &format!("{}:{number}", of.file.name))?;
    }
    tree.chain.join(&mut tree.arena, out, &of.file.name)?;
    match tree.into_session(of) {
        Some(session) => out.session(session),
        None => Ok(()),
    }
}

/// The facts of a record.
#[derive(Default)]
struct QwenFacts {
    /// True if the record is of the user, of the model or of a tool.
    is_message: bool,
    /// True if the record does not end the main line.
    is_artifact: bool,
    title: Option<String>,
    /// The session that started this one.
    parent: Option<String>,
    forked_from: Option<String>,
}

/// The records of a transcript.
#[derive(Default)]
struct QwenTree {
    chain: RecordChain<QwenFacts>,
    arena: DraftArena,
    parts: PartReader,
    folder: Option<String>,
    /// The timestamp of the earliest record that is not of the system.
    created_at: Option<Timestamp>,
}

impl QwenTree {
    fn add(
        &mut self,
        number: u64,
        record: &Json,
        derived: &str,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let (kind, subtype, own) =
            (json::text(record, "type"), json::text(record, "subtype"), json::maybe_text(record, "uuid"));
        let id = own.clone().unwrap_or_else(|| derived.to_owned());
        if let Some(node) = self.chain.by_id.get(&id).copied() {
            return self.extend(node, record, &id, out, place);
        }
        self.folder = self.folder.take().or_else(|| json::folder(&record["cwd"]));
        let mut drafts = match kind {
            "user" => self.of_user(record, &id, TOLD.contains(&subtype)),
            "assistant" => {
                let mut draft = MessageDraft::new(DraftKind::Ai, String::new());
                let results = self.of_model(&mut draft, record, &id);
                std::iter::once(draft).chain(results).collect()
            }
            "tool_result" => self.of_tool(record, &id),
            "system" if subtype == "chat_compression" => {
                let history = json::items(&record["systemPayload"]["compressedHistory"]);
                let first = history.iter().find(|entry| entry["role"] == "user");
                let text = first.map(|entry| text_of(&entry["parts"])).unwrap_or_default();
                MessageDraft::summary(String::new(), &text).into_iter().collect()
            }
            "system" if QUIET.contains(&subtype) || subtype.starts_with(QUIET_FAMILY) => Vec::new(),
            "system" => {
                out.unknown(format!("system/{subtype}"), place, record.to_string())?;
                Vec::new()
            }
            kind => {
                out.unknown(if kind.is_empty() { "record" } else { kind }, place, record.to_string())?;
                Vec::new()
            }
        };
        draft::number(&mut drafts, own.as_deref(), derived, out, place)?;
        let at = json::time(&record["timestamp"]);
        if kind != "system" {
            self.created_at = [self.created_at, at].into_iter().flatten().min();
        }
        let payload = &record["systemPayload"];
        let facts = QwenFacts {
            is_message: matches!(kind, "user" | "assistant" | "tool_result"),
            is_artifact: matches!(subtype, "session_artifact_event" | "session_artifact_snapshot"),
            title: json::maybe_text(payload, "customTitle").filter(|_| subtype == "custom_title"),
            parent: json::maybe_text(payload, "parentSessionId").filter(|_| subtype == "parent_session"),
            forked_from: json::maybe_text(&record["forkedFrom"], "sessionId"),
        };
        // A rewind whose target is in no record leads to nothing.
        let before = self.chain.nodes.len().checked_sub(1).filter(|_| subtype != "rewind");
        let mut node = ChainNode::new(number, json::maybe_text(record, "parentUuid"), before, facts);
        for mut draft in drafts {
            draft.at = at;
            node.drafts.push(self.arena.add(draft));
        }
        self.chain.by_id.insert(id, self.chain.nodes.len());
        self.chain.nodes.push(node);
        Ok(())
    }

    /// Adds a further record of a uuid to its message.
    fn extend(
        &mut self,
        node: usize,
        record: &Json,
        id: &str,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let Some(first) = self.chain.nodes[node].drafts.first().copied() else { return Ok(()) };
        let mut draft =
            std::mem::replace(&mut self.arena.drafts[first], MessageDraft::new(DraftKind::Ai, String::new()));
        // A call that names no id is told from those before by the place.
        let results = self.of_model(&mut draft, record, &format!("{id}:{place}"));
        draft.report_lost(out, place)?;
        self.arena.drafts[first] = draft;
        for mut result in results {
            let ordinal = self.chain.nodes[node].drafts.len() + 1;
            (result.id, result.at) = (Some(format!("{id}#{ordinal}")), json::time(&record["timestamp"]));
            let number = self.arena.add(result);
            self.chain.nodes[node].drafts.push(number);
        }
        Ok(())
    }

    /// Adds the parts of a record of the model to its message, and returns the results among them.
    fn of_model(&mut self, draft: &mut MessageDraft, record: &Json, derived: &str) -> Vec<MessageDraft> {
        let results = self.parts.take(draft, &record["message"]["parts"], derived);
        if draft.kind == DraftKind::Ai {
            draft.model = json::maybe_text(record, "model").or(draft.model.take());
            if record["usageMetadata"].is_object() {
                draft.usage = Some(counts(&record["usageMetadata"]).into_usage());
            }
        }
        results
    }

    /// Returns the results in a record of the user, the message, and the contexts of hooks.
    fn of_user(&mut self, record: &Json, derived: &str, is_told: bool) -> Vec<MessageDraft> {
        let kind = if is_told { DraftKind::System } else { DraftKind::Human };
        let (mut draft, mut context) =
            (MessageDraft::new(kind, String::new()), MessageDraft::new(DraftKind::System, String::new()));
        let mut drafts = Vec::new();
        for part in json::items(&record["message"]["parts"]) {
            let of_hook = part["text"].as_str().is_some_and(|text| text.starts_with(CONTEXT));
            drafts.extend(self.parts.take(if of_hook { &mut context } else { &mut draft }, part, derived));
        }
        drafts.extend([draft, context].into_iter().filter(|draft| !draft.blocks.is_empty()));
        drafts
    }

    fn of_tool(&mut self, record: &Json, derived: &str) -> Vec<MessageDraft> {
        let mut rest = MessageDraft::new(DraftKind::System, String::new());
        let mut drafts = self.parts.take(&mut rest, &record["message"]["parts"], derived);
        let has_failed = matches!(json::text(&record["toolCallResult"], "status"), "error" | "cancelled");
        drafts.iter_mut().for_each(|draft| draft.is_error |= has_failed);
        drafts.extend(Some(rest).filter(|rest| !rest.blocks.is_empty()));
        drafts
    }

    /// Returns the session, unless nobody said anything.
    fn into_session(self, of: &QwenFile) -> Option<SourceSession> {
        let (chain, arena) = (self.chain, self.arena);
        let end = chain.nodes.iter().rposition(|node| !node.facts.is_artifact)?;
        let mut ends: Vec<usize> = (0..chain.nodes.len()).filter(|node| chain.nodes[*node].facts.is_message).collect();
        if ends.is_empty() {
            return None;
        }
        ends.push(end);
        let main_nodes = chain.line(end);
        let line = |nodes: &[usize]| arena.settled(&chain.drafts(nodes).collect::<Vec<_>>());
        let main = line(&main_nodes);
        let left: Vec<_> = chain.leaves(&ends, end).into_iter().map(|leaf| line(&chain.line(leaf))).collect();
        let messages = arena.into_messages();
        let main: Vec<Arc<SessionMessage>> = pick(&messages, &main);
        let left = left.iter().map(|line| pick(&messages, line)).collect();
        let on_main = |fact: fn(&QwenFacts) -> &Option<String>| {
            main_nodes.iter().rev().find_map(|node| fact(&chain.nodes[*node].facts).clone())
        };
        let mut session = SourceSession {
            title: on_main(|facts| &facts.title),
            created_at: self.created_at,
            folder: self.folder,
            branches: arena::branches(&main, left),
            ..SourceSession::new(SourceKind::Qwen, of.file.stem().to_owned(), main)
        };
        if of.is_helper() {
            let description = description(&of.file);
            let call = json::maybe_text(&description, "toolUseId");
            session.title = json::maybe_text(&description, "description").or(session.title);
            session.parent = of.parent().map(|id| ParentLink::Sub { id, call });
        } else if let Some(id) = of.forked_from.clone() {
            let is_shared = |node: &&usize| {
                let of = &chain.nodes[**node];
                of.drafts.is_empty() || of.facts.forked_from.as_ref() == Some(&id)
            };
            let messages = main_nodes.iter().take_while(is_shared).map(|node| chain.nodes[*node].drafts.len()).sum();
            session.parent = Some(ParentLink::Fork { id, messages });
        } else {
            session.parent = on_main(|facts| &facts.parent).map(|id| ParentLink::Sub { id, call: None });
        }
        Some(session)
    }
}

/// Returns the description in the file beside the transcript of a helper.
fn description(file: &SourceFile) -> Json {
    // The file may be missing. Its faults are not counted, as it holds no messages.
    document::whole(&file.path.with_file_name(format!("{}.meta.json", file.stem()))).unwrap_or_default()
}
