//! pi, omp and OpenClaw: sessions as JSON lines that form a tree.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_base::Timestamp;
use serde_json::Value as Json;

use crate::arena::{self, DraftArena, pick};
use crate::chain::{ChainNode, RecordChain, order};
use crate::draft::{self, DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::{ParentLink, SessionMessage, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile, has};
use crate::sources::facts::{SourceFacts, data, home, variable};
use crate::sources::{HistorySource, SourceKind};

/// Types of entries without a message.
const QUIET: [&str; 5] = ["model_change", "thinking_level_change", "custom", "label", "session"];

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "pi, omp, OpenClaw",
    places: &[
        home(".pi/agent/sessions"),
        home(".omp/agent/sessions"),
        home(".omp/profiles/*/agent/sessions"),
        data("omp/sessions"),
        home(".openclaw/agents/*/sessions"),
        variable("OPENCLAW_STATE_DIR", "agents/*/sessions"),
    ],
    has_own_folders: false,
    versions: "pi up to version 3, by files; omp and OpenClaw by readers of others",
    checked: "2026-11",
    lost: "costs, what was put aside",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct PiFiles {
    files: Vec<PiFile>,
}

/// A file whose head was read.
struct PiFile {
    file: SourceFile,
    head: Json,
}

impl PiFile {
    fn id(&self) -> &str {
        json::text(&self.head, "id")
    }

    /// Returns the session of which this one is a fork: the end of the name of its file.
    fn parent(&self) -> Option<String> {
        let path = json::maybe_text(&self.head, "parentSession")?;
        let name = path.rsplit(['/', '\\']).next()?;
        let name = name.strip_suffix(".jsonl").unwrap_or(name);
        let id = name.rsplit('_').next().filter(|id| !id.is_empty())?;
        Some(id.to_owned()).filter(|id| id != self.id())
    }
}

impl HistorySource for PiFiles {
    /// Takes the list of sessions, checkpoints, and what was put aside.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        let name = file.file_name();
        let is_aside = [".jsonl.deleted", ".jsonl.reset", ".jsonl.bak"].iter().any(|part| name.contains(part));
        let is_checkpoint = name.contains(".checkpoint.") && name.ends_with(".jsonl");
        is_aside || is_checkpoint || (name == "sessions.json" && file.folder_name(1) == "sessions")
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let Some(head) = file.lines().first() else { return false };
        let is_own = head["type"] == "session" && head["id"].is_string() && head["timestamp"].is_string();
        if !is_own || has(head, "payload") {
            return false;
        }
        self.files.push(PiFile { file: file.file.clone(), head: head.clone() });
        true
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let links: Vec<_> = self.files.iter().map(|of| (of.id().to_owned(), of.parent())).collect();
        let parents: HashSet<String> = links.iter().filter_map(|(_, parent)| parent.clone()).collect();
        let mut lines: HashMap<String, Vec<Arc<SessionMessage>>> = HashMap::new();
        for of in order(&links, self.files) {
            out.file(&of.file.name, |out| {
                let Some(session) = read(&of, &lines, out)? else { return Ok(()) };
                if parents.contains(&session.id) {
                    lines.insert(session.id.clone(), session.main.clone());
                }
                out.session(session)
            })?;
        }
        Ok(())
    }
}

/// Reads a session. `lines` holds the main lines of the sessions that were forked.
fn read(
    of: &PiFile,
    lines: &HashMap<String, Vec<Arc<SessionMessage>>>,
    out: &mut ReadOutput<'_>,
) -> Result<Option<SourceSession>, ImportError> {
    let mut tree = EntryTree::default();
    let mut records = JsonLines::open(&of.file.path);
    while let Some((number, record)) = records.next_json(out, &of.file.name)? {
        let place = format!("{}:{number}", of.file.name);
        if number > 1 || record["type"] != "session" {
            tree.add(of.id(), number, &record, out, &place)?;
        }
    }
    tree.chain.join(&mut tree.arena, out, &of.file.name)?;
    let title = tree.title.take();
    let Some((main, left)) = tree.lines() else { return Ok(None) };
    let parent = of.parent().map(|id| {
        let of_parent = lines.get(&id).map_or(&[][..], Vec::as_slice);
        let is_equal = |(own, other): &(&Arc<SessionMessage>, &Arc<SessionMessage>)| own.message.id == other.message.id;
        let messages = main.iter().zip(of_parent).take_while(is_equal).count();
        ParentLink::Fork { id, messages }
    });
    Ok(Some(SourceSession {
        parent,
        title,
        created_at: json::time(&of.head["timestamp"]),
        folder: json::folder(&of.head["cwd"]),
        branches: arena::branches(&main, left),
        ..SourceSession::new(SourceKind::Pi, of.id().to_owned(), main)
    }))
}

/// The entries of a file.
#[derive(Default)]
struct EntryTree {
    /// The nodes; each tells whether its entry is a message.
    chain: RecordChain<bool>,
    arena: DraftArena,
    title: Option<String>,
}

impl EntryTree {
    fn add(
        &mut self,
        session: &str,
        number: u64,
        entry: &Json,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<(), ImportError> {
        let (derived, own) = (format!("{session}:{number}"), json::maybe_text(entry, "id"));
        // An entry that was written twice counts once.
        if own.as_ref().is_some_and(|id| self.chain.by_id.contains_key(id)) {
            return Ok(());
        }
        let kind = json::text(entry, "type");
        let before = self.chain.nodes.len().checked_sub(1);
        let parent = json::maybe_text(entry, "parentId").filter(|parent| parent != session);
        let mut node = ChainNode::new(number, parent, before, kind == "message");
        // Entries of the first version have no ids: each hangs on the one before.
        node.caller = before.filter(|_| own.is_none());
        let mut drafts: Vec<MessageDraft> = match messages(entry, &mut self.title) {
            Ok(draft) => draft.into_iter().collect(),
            Err(kind) => {
                out.unknown(kind, place, entry.to_string())?;
                Vec::new()
            }
        };
        draft::number(&mut drafts, own.as_deref(), &derived, out, place)?;
        for mut draft in drafts {
            draft.at = time_of(entry);
            node.drafts.push(self.arena.add(draft));
        }
        self.chain.by_id.extend(own.map(|id| (id, self.chain.nodes.len())));
        self.chain.nodes.push(node);
        Ok(())
    }

    /// Returns the main line, which leads to the last entry, and the left lines; none if nobody said anything.
    fn lines(self) -> Option<(Vec<Arc<SessionMessage>>, Vec<Vec<Arc<SessionMessage>>>)> {
        let (chain, arena) = (self.chain, self.arena);
        let is_message = |node: &usize| chain.nodes[*node].facts && !chain.nodes[*node].drafts.is_empty();
        let mut ends: Vec<usize> = (0..chain.nodes.len()).filter(is_message).collect();
        let is_talk = |node: &usize| chain.drafts(&[*node]).any(|draft| arena.drafts[draft].kind != DraftKind::System);
        ends.iter().find(|node| is_talk(node))?;
        let line = |end: usize| arena.settled(&chain.drafts(&chain.line(end)).collect::<Vec<_>>());
        let last = chain.nodes.len() - 1;
        // An entry that hangs on nothing, such as a label, does not end a line.
        let end = if line(last).is_empty() { *ends.last()? } else { last };
        ends.push(end);
        let (main, left) = (line(end), chain.leaves(&ends, end).into_iter().map(line).collect::<Vec<_>>());
        let messages = arena.into_messages();
        Some((pick(&messages, &main), left.iter().map(|line| pick(&messages, line)).collect()))
    }
}

fn time_of(entry: &Json) -> Option<Timestamp> {
    json::time(&entry["timestamp"]).or_else(|| json::time(&entry["message"]["timestamp"]))
}

/// Returns the message of an entry, if it has one; the kind under which it is counted if it was not understood.
fn messages(entry: &Json, title: &mut Option<String>) -> Result<Option<MessageDraft>, String> {
    let system = |content: &Json| {
        let mut draft = MessageDraft::new(DraftKind::System, String::new());
        add_content(&mut draft, content);
        draft
    };
    Ok(match json::text(entry, "type") {
        "message" => return of_message(&entry["message"]),
        "custom_message" => Some(system(&entry["content"])),
        "branch_summary" => Some(system(&entry["summary"])),
        "compaction" => {
            let mut draft = MessageDraft::summary(String::new(), json::text(entry, "summary"));
            if let Some(draft) = &mut draft {
                draft.first_retained = json::maybe_text(entry, "firstKeptEntryId");
            }
            draft
        }
        "session_info" | "title" | "title_change" => {
            let named = ["name", "title"].into_iter().find_map(|name| json::maybe_text(entry, name));
            *title = named.or(title.take());
            None
        }
        kind if QUIET.contains(&kind) => None,
        "" => return Err("record".to_owned()),
        kind => return Err(format!("entry/{kind}")),
    })
}

fn of_message(message: &Json) -> Result<Option<MessageDraft>, String> {
    let mut draft = MessageDraft::new(DraftKind::System, String::new());
    let content = &message["content"];
    match json::text(message, "role") {
        "user" => {
            draft.kind = DraftKind::Human;
            add_content(&mut draft, content);
        }
        "assistant" => {
            draft.kind = DraftKind::Ai;
            add_content(&mut draft, content);
            draft.model = json::maybe_text(message, "model");
            draft.error = json::maybe_text(message, "stopReason").filter(|stop| matches!(&**stop, "error" | "aborted"));
            draft.usage = has(message, "usage").then(|| counts(&message["usage"]).into_usage());
        }
        "toolResult" => {
            draft = MessageDraft::result(String::new(), json::text(message, "toolCallId"));
            draft.is_error = message["isError"] == true;
            add_content(&mut draft, content);
        }
        "bashExecution" => {
            draft.text(&format!("{}\n{}", json::text(message, "command"), json::text(message, "output")));
        }
        "custom" | "developer" => add_content(&mut draft, content),
        "branchSummary" => add_content(&mut draft, if has(message, "summary") { &message["summary"] } else { content }),
        "compactionSummary" => {
            add_content(&mut draft, if has(message, "summary") { &message["summary"] } else { content });
            draft.is_summary = true;
            return Ok(Some(draft).filter(MessageDraft::has_text));
        }
        role => return Err(format!("role/{role}")),
    }
    Ok(Some(draft))
}

/// Returns the token counts of an answer, whose input excludes what was cached.
fn counts(of: &Json) -> TokenCounts {
    let (read, creation) = (json::count(of, "cacheRead"), json::count(of, "cacheWrite"));
    let input = json::count(of, "input").saturating_add(read).saturating_add(creation);
    TokenCounts { input, output: json::count(of, "output"), cache_read: read, cache_creation: creation, reasoning: 0 }
}

/// Adds content: a text, or parts.
fn add_content(draft: &mut MessageDraft, content: &Json) {
    match content {
        Json::Array(parts) => parts.iter().for_each(|part| add_part(draft, part)),
        Json::Null => {}
        text => draft.text(&json::as_text(text)),
    }
}

fn add_part(draft: &mut MessageDraft, part: &Json) {
    match json::text(part, "type") {
        "text" => draft.text_in(part, "text"),
        "thinking" => draft.reasoning_in(part, "thinking"),
        "image" => draft.image_base64(json::text(part, "mimeType"), json::text(part, "data")),
        "toolCall" => {
            let (id, name) = (json::text(part, "id"), json::text(part, "name"));
            match &part["arguments"] {
                Json::String(args) => draft.call_of_text(id, name, args),
                Json::Null => draft.call(id, name, &Json::Object(serde_json::Map::new())),
                args => draft.call(id, name, args),
            }
        }
        _ => match part.as_str() {
            Some(text) => draft.text(text),
            None => draft.opaque(part),
        },
    }
}
