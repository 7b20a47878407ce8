//! The command of GitHub Copilot: events of a session as JSON lines.
//!
//! The events of helpers stand among those of the session; each helper is a session of its own.

use std::collections::{HashMap, HashSet};
use std::fs;

use annals_base::Timestamp;
use annals_messages::Usage;
use serde_json::{Value as Json, json};

use crate::arena::{self, DraftArena, pick};
use crate::chain::order;
use crate::draft::{DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::lines::JsonLines;
use crate::model::{ParentLink, SourceSession};
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
use crate::sources::facts::{SourceFacts, home};
use crate::sources::{HistorySource, SourceKind};

/// The begin of a text that a skill gives the model in the user's name.
const CONTEXT: &str = "<skill-context";

/// The event that begins a helper, in two words so that it is not taken for one of this project.
const HELPER_STARTED: &str = concat!("sub", "agent.started");

/// Types of events without a message.
const QUIET: [&str; 38] = [
    "session.start",
    "session.resume",
    "session.info",
    "session.error",
    "session.warning",
    "session.idle",
    "session.truncation",
    "session.mode_changed",
    "session.plan_changed",
    "session.context_changed",
    "session.context_cleared",
    "session.handoff",
    "session.auto_mode_resolved",
    "session.usage_info",
    "session.usage_checkpoint",
    "session.compaction_start",
    "session.workspace_file_changed",
    "session.task_complete",
    "session.todos_changed",
    "session.permissions_changed",
    "session.binary_asset",
    "assistant.turn_start",
    "assistant.turn_end",
    "assistant.intent",
    "assistant.usage",
    "assistant.message_start",
    "assistant.idle",
    "tool.execution_start",
    "tool.execution_progress",
    "tool.execution_partial_result",
    "tool.user_requested",
    "tool_search.activated",
    "skill.invoked",
    "model.call_failure",
    "abort",
    "session.shutdown",
    "session.model_change",
    "session.title_changed",
];

/// The first words of types of events without a message.
const QUIET_FAMILIES: [&str; 8] = [
    concat!("sub", "agent."),
    "hook.",
    "permission.",
    "user_input.",
    "elicitation.",
    "command.",
    "external_tool.",
    "exit_plan_mode.",
];

pub(super) const FACTS: SourceFacts = SourceFacts {
    programs: "GitHub Copilot CLI",
    places: &[home(".copilot/session-state")],
    has_own_folders: false,
    versions: "0.0.420 to 1.0.77, by files",
    checked: "2026-11",
    lost: "permissions, hooks, token counts of messages",
};

/// The files of an import.
#[derive(Default)]
pub(crate) struct CopilotFiles {
    files: Vec<EventFile>,
}

/// A file whose first event was read.
struct EventFile {
    file: SourceFile,
    id: String,
    parent: Option<String>,
}

impl HistorySource for CopilotFiles {
    /// Takes the files beside the events: the description of the session, the store of all sessions, and checkpoints.
    fn is_beside(&mut self, file: &SourceFile) -> bool {
        let has_events = |level: usize| {
            file.path.ancestors().nth(level + 1).is_some_and(|folder| folder.join("events.jsonl").is_file())
        };
        match file.file_name() {
            "workspace.yaml" => has_events(0),
            "session-store.db" => file.path.with_file_name("session-state").is_dir(),
            _ => (1..4).any(|level| file.folder_name(level) == "checkpoints" && has_events(level)),
        }
    }

    fn recognise(&mut self, file: &FileProbe) -> bool {
        let is_start = |line: &&Json| {
            let data = &line["data"];
            line["type"] == "session.start" && data["sessionId"].is_string() && data["copilotVersion"].is_string()
        };
        let Some(start) = file.lines().iter().find(is_start) else { return false };
        let parent = json::maybe_text(&start["data"], "detachedFromSpawningParentSessionId");
        self.files.push(EventFile {
            file: file.file.clone(),
            id: json::text(&start["data"], "sessionId").to_owned(),
            parent,
        });
        true
    }

    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let links: Vec<_> = self.files.iter().map(|of| (of.id.clone(), of.parent.clone())).collect();
        for of in order(&links, self.files) {
            out.file(&of.file.name, |out| read(&of, out))?;
        }
        Ok(())
    }
}

fn read(of: &EventFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    let mut events = EventReader::default();
    let mut lines = JsonLines::open(&of.file.path);
    while let Some((number, event)) = lines.next_json(out, &of.file.name)? {
        let place = format!("{}:{number}", of.file.name);
        events.event(&event, &format!("{}:{number}", of.id), out, &place)?;
    }
    events.finish(of, out)
}

/// Returns the name of a session in the description beside its events.
fn described_name(file: &SourceFile) -> Option<String> {
    // The description holds no messages: a fault of it is not counted.
    let text = fs::read_to_string(file.path.with_file_name("workspace.yaml")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("name:"))?.trim();
    let name = ['"', '\''].into_iter().find_map(|quote| name.strip_prefix(quote)?.strip_suffix(quote)).unwrap_or(name);
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// A line of messages: that of the session, or of a helper.
#[derive(Default)]
struct EventLine {
    main: Vec<usize>,
    /// The reasoning of the next message of the model.
    reasoning: String,
    /// The name of a helper, and the timestamp of its begin.
    name: Option<String>,
    at: Option<Timestamp>,
}

/// The state of reading a file.
#[derive(Default)]
struct EventReader {
    arena: DraftArena,
    own: EventLine,
    /// The helpers, by the calls that started them, in their order.
    helpers: Vec<(String, EventLine)>,
    left: Vec<Vec<usize>>,
    /// The number of messages before each event.
    starts: HashMap<String, usize>,
    /// The ids of messages of the model.
    used: HashSet<String>,
    model: Option<String>,
    title: Option<String>,
    folder: Option<String>,
    created_at: Option<Timestamp>,
    usage: Option<Usage>,
}

impl EventReader {
    /// Returns the line to which an event belongs.
    fn line(&mut self, data: &Json) -> &mut EventLine {
        match json::maybe_text(data, "parentToolCallId") {
            Some(call) => self.helper(&call),
            None => &mut self.own,
        }
    }

    fn helper(&mut self, call: &str) -> &mut EventLine {
        let at = self.helpers.iter().position(|(of, _)| of == call).unwrap_or_else(|| {
            self.helpers.push((call.to_owned(), EventLine::default()));
            self.helpers.len() - 1
        });
        &mut self.helpers[at].1
    }

    fn event(&mut self, event: &Json, derived: &str, out: &mut ReadOutput<'_>, place: &str) -> Result<(), ImportError> {
        let (kind, data) = (json::text(event, "type"), &event["data"]);
        let at = json::time(&event["timestamp"]);
        if let Some(id) = json::maybe_text(event, "id") {
            self.starts.entry(id).or_insert(self.own.main.len());
        }
        let new = |kind: DraftKind| {
            let mut draft = MessageDraft::new(kind, derived.to_owned());
            (draft.id, draft.at) = (json::maybe_text(event, "id"), at);
            draft
        };
        match kind {
            "session.start" => {
                self.created_at = json::time(&data["startTime"]).or(at);
                self.folder = json::folder(&data["context"]["cwd"]);
            }
            "session.model_change" => self.model = json::maybe_text(data, "newModel").or(self.model.take()),
            "session.title_changed" => self.title = json::maybe_text(data, "title").or(self.title.take()),
            "session.shutdown" => self.usage = sums(&data["modelMetrics"]).or(self.usage.take()),
            "session.snapshot_rewind" => self.rewind(json::text(data, "upToEventId")),
            "session.compaction_complete" => {
                let summary = MessageDraft::summary(derived.to_owned(), json::text(data, "summaryContent"));
                if let Some(mut draft) = summary.filter(|_| data["success"] == true) {
                    (draft.id, draft.at) = (json::maybe_text(event, "id"), at);
                    self.push(data, draft);
                }
            }
            "user.message" => self.push(data, of_user(new(DraftKind::Human), data)),
            "system.message" | "system.notification" => {
                let mut draft = new(DraftKind::System);
                draft.text_in(data, "content");
                draft.report_lost(out, place)?;
                self.push(data, draft);
            }
            "assistant.reasoning" => {
                let text = json::text(data, "content").to_owned();
                self.line(data).reasoning.push_str(&text);
            }
            "assistant.message" => self.of_model(new(DraftKind::Ai), data),
            "tool.execution_complete" => {
                let mut draft = MessageDraft::result(derived.to_owned(), json::text(data, "toolCallId"));
                (draft.id, draft.at) = (json::maybe_text(event, "id"), at);
                draft.is_error = data["success"] == false;
                let text = [&data["result"]["content"], &data["error"]["message"]].into_iter().find(|of| !of.is_null());
                draft.text(&text.map(json::as_text).unwrap_or_default());
                self.push(data, draft);
            }
            HELPER_STARTED => {
                let name = ["agentDisplayName", "agentName"].into_iter().find_map(|name| json::maybe_text(data, name));
                let line = self.helper(json::text(data, "toolCallId"));
                (line.name, line.at) = (name, at);
            }
            kind if QUIET.contains(&kind) || QUIET_FAMILIES.iter().any(|family| kind.starts_with(family)) => {}
            "" => out.unknown("record", place, event.to_string())?,
            kind => out.unknown(format!("event/{kind}"), place, event.to_string())?,
        }
        Ok(())
    }

    fn push(&mut self, data: &Json, draft: MessageDraft) {
        let number = self.arena.add(draft);
        self.line(data).main.push(number);
    }

    /// Takes a message of the model; one without a text, reasoning and calls makes none.
    fn of_model(&mut self, mut draft: MessageDraft, data: &Json) {
        let before = std::mem::take(&mut self.line(data).reasoning);
        let own = json::text(data, "reasoningText");
        draft.reasoning(if own.is_empty() { &before } else { own });
        draft.text(json::text(data, "content"));
        for request in json::items(&data["toolRequests"]) {
            let (id, name) = (json::text(request, "toolCallId"), json::text(request, "name"));
            match &request["arguments"] {
                Json::String(args) => draft.call_of_text(id, name, args),
                Json::Null => draft.call(id, name, &json!({})),
                args => draft.call(id, name, args),
            }
        }
        if draft.blocks.is_empty() && !draft.has_calls() {
            return;
        }
        let id = json::maybe_text(data, "messageId").filter(|id| self.used.insert(id.clone()));
        draft.id = id.or(draft.id.take());
        draft.model = json::maybe_text(data, "model").or_else(|| self.model.clone());
        self.push(data, draft);
    }

    /// Moves the messages of an event, and all after it, out of the main line.
    fn rewind(&mut self, event: &str) {
        if let Some(start) = self.starts.get(event).copied().filter(|start| *start < self.own.main.len()) {
            self.left.push(self.own.main.clone());
            self.own.main.truncate(start);
        }
    }

    fn finish(self, of: &EventFile, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let arena = self.arena;
        let main = arena.settled(&self.own.main);
        let left: Vec<Vec<usize>> = self.left.iter().map(|line| arena.settled(line)).collect();
        let helpers: Vec<_> =
            self.helpers.into_iter().map(|(call, line)| (arena.settled(&line.main), call, line)).collect();
        let has_talk = main.iter().any(|number| arena.drafts[*number].kind != DraftKind::System);
        let messages = arena.into_messages();
        if has_talk {
            let main = pick(&messages, &main);
            let left = left.iter().map(|line| pick(&messages, line)).collect();
            out.session(SourceSession {
                parent: of.parent.clone().map(|id| ParentLink::Sub { id, call: None }),
                title: described_name(&of.file).or(self.title),
                created_at: self.created_at,
                folder: self.folder.clone(),
                usage: self.usage,
                branches: arena::branches(&main, left),
                ..SourceSession::new(SourceKind::Copilot, of.id.clone(), main)
            })?;
        }
        for (main, call, line) in helpers.into_iter().filter(|(main, ..)| !main.is_empty()) {
            out.session(SourceSession {
                parent: Some(ParentLink::Sub { id: of.id.clone(), call: Some(call.clone()) }),
                title: line.name,
                created_at: line.at,
                folder: self.folder.clone(),
                ..SourceSession::new(SourceKind::Copilot, format!("{}/{call}", of.id), pick(&messages, &main))
            })?;
        }
        Ok(())
    }
}

/// Fills a message of the user, which is context if a skill or an agent wrote it.
fn of_user(mut draft: MessageDraft, data: &Json) -> MessageDraft {
    let (text, source) = (json::text(data, "content"), json::text(data, "source"));
    if ["skill-", "agent-"].iter().any(|begin| source.starts_with(begin)) || text.starts_with(CONTEXT) {
        draft.kind = DraftKind::System;
    }
    draft.text(text);
    for file in json::items(&data["attachments"]) {
        let name = json::text(file, "displayName");
        if file["type"] == "blob" {
            let mime = json::text(file, "mimeType");
            draft.file(mime, &format!("data:{mime};base64,{}", json::text(file, "data")), name);
        } else {
            let place = ["path", "filePath", "url", "uri"].into_iter().find_map(|of| json::maybe_text(file, of));
            draft.file(json::text(file, "mimeType"), &place.unwrap_or_default(), name);
        }
    }
    draft
}

/// Returns the sums over all models, whose input includes what was cached.
fn sums(models: &Json) -> Option<Usage> {
    let models = models.as_object().filter(|models| !models.is_empty())?;
    let mut counts = TokenCounts::default();
    for usage in models.values().map(|model| &model["usage"]) {
        for (sum, name) in [
            (&mut counts.input, "inputTokens"),
            (&mut counts.output, "outputTokens"),
            (&mut counts.cache_read, "cacheReadTokens"),
            (&mut counts.cache_creation, "cacheWriteTokens"),
            (&mut counts.reasoning, "reasoningTokens"),
        ] {
            *sum = sum.saturating_add(json::count(usage, name));
        }
    }
    Some(counts.into_usage())
}
