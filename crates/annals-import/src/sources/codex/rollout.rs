//! The messages of one rollout, from its lines.
//!
//! Codex stores the items of a response one by one. Items of the model join the open message of the model until another
//! record closes it.

use std::sync::Arc;

use annals_base::Timestamp;
use annals_messages::Usage;
use serde_json::{Value as Json, json};

use crate::arena::{DraftArena, pick};
use crate::draft::{DraftKind, MessageDraft, TokenCounts};
use crate::error::ImportError;
use crate::json;
use crate::model::SessionMessage;
use crate::output::ReadOutput;

/// The records that hold the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources) enum ItemSource {
    /// Response items. Events repeat them.
    Items,
    /// Events, in a file without response items.
    Events,
    /// The items that events complete, in a file without response items.
    Completed,
}

/// A line or an item of a rollout, with its place.
pub(in crate::sources) struct RolloutRecord<'a> {
    /// The id of a message without one.
    pub(in crate::sources) derived: &'a str,
    /// The line, or the item or event in it.
    pub(in crate::sources) json: &'a Json,
    pub(in crate::sources) at: Option<Timestamp>,
    /// The file and the line.
    pub(in crate::sources) place: &'a str,
}

impl<'a> RolloutRecord<'a> {
    /// Returns the item or event of a line.
    fn payload(&self) -> Self {
        let payload: &'a Json = &self.json["payload"];
        RolloutRecord { json: payload, at: json::time(&self.json["timestamp"]), ..*self }
    }

    /// Returns a draft of a message with the timestamp and the derived id.
    fn draft(&self, kind: DraftKind) -> MessageDraft {
        let mut draft = MessageDraft::new(kind, self.derived.to_owned());
        draft.at = self.at;
        draft
    }
}

/// The first words of a text that the program gives the model in the user's name.
const CONTEXT: [&str; 10] = [
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<recommended_plugins>",
    "<context_window>",
    "<skill>",
    CONTEXT_OF_HELPER,
    "<user_shell_command>",
    "<hook_prompt ",
];

/// The first words of the report of a helper, in two parts so that it is not taken for a helper of this project.
const CONTEXT_OF_HELPER: &str = concat!("<sub", "agent_notification>");

/// Types of lines without a message.
const QUIET_LINES: [&str; 7] = [
    "session_meta",
    "world_state",
    "inter_agent_communication_metadata",
    "token_usage_record",
    "retained_context",
    "security_risk_score",
    "realtime_item",
];

/// Types of response items without a message.
const QUIET_ITEMS: [&str; 7] = [
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "additional_tools",
    "configuration_update",
    "tool_search_output",
];

/// Types of events without a message.
const QUIET_EVENTS: [&str; 34] = [
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "task_started",
    "turn_started",
    "task_complete",
    "turn_complete",
    "turn_aborted",
    "context_compacted",
    "entered_review_mode",
    "exited_review_mode",
    "image_generation_end",
    "thread_name_updated",
    "thread_goal_updated",
    "thread_settings_applied",
    "sub_agent_activity",
    "item_started",
    "error",
    "warning",
    "stream_error",
    "turn_diff",
    "plan_update",
    "background_event",
    "session_configured",
    "shutdown_complete",
    "view_image_tool_call",
    "agent_reasoning",
    "agent_message",
    "guardian_assessment",
    "dynamic_tool_call_request",
    "dynamic_tool_call_response",
    "undo_completed",
    "hook_started",
    "hook_completed",
    "model_reroute",
];

/// The first words of types of events without a message.
const QUIET_EVENT_FAMILIES: [&str; 5] = ["exec_command_", "mcp_tool_call_", "patch_apply_", "web_search_", "collab_"];

/// The begin of the kinds under which completed items are counted.
pub(super) const COMPLETED: &str = "item/";

/// The state of reading a rollout.
pub(in crate::sources) struct CodexState {
    source: ItemSource,
    /// The begin of the kinds under which response items are counted.
    counted_as: &'static str,
    pub(super) has_items: bool,
    /// True if an event completes an item that is a message of a user or of the model.
    pub(super) has_completed: bool,
    /// The first working folder of a turn.
    pub(super) folder: Option<String>,
    /// True after an event has named a typed message: all other messages of the user's role are context.
    knows_typed: bool,
    /// The newest message of the user's role since the last one that was typed and the last item of the model.
    untyped: Option<usize>,
    arena: DraftArena,
    main: Vec<usize>,
    left: Vec<Vec<usize>>,
    /// The message of the model that further items join.
    open: Option<usize>,
    open_has_message: bool,
    model: Option<String>,
    /// The total of the last count, which is repeated when only limits changed.
    total: Json,
    /// The reasoning of the next message, of events.
    reasoning: String,
}

impl CodexState {
    pub(in crate::sources) fn new(source: ItemSource) -> Self {
        Self {
            source,
            counted_as: "response_item",
            has_items: false,
            has_completed: false,
            folder: None,
            knows_typed: false,
            untyped: None,
            arena: DraftArena::default(),
            main: Vec::new(),
            left: Vec::new(),
            open: None,
            open_has_message: false,
            model: None,
            total: Json::Null,
            reasoning: String::new(),
        }
    }

    /// Counts response items that are not understood under kinds with this begin.
    pub(in crate::sources) fn counting_as(mut self, begin: &'static str) -> Self {
        self.counted_as = begin;
        self
    }

    /// Gives token counts to the last message of the model in a turn; the first turn is that of the first human
    /// message.
    pub(in crate::sources) fn set_usage_of_turn(&mut self, turn: i64, usage: Usage) {
        let (mut turns, mut last) = (0, None);
        for number in &self.main {
            match self.arena.drafts[*number].kind {
                DraftKind::Human => turns += 1,
                DraftKind::Ai if turns == turn => last = Some(*number),
                _ => {}
            }
        }
        if let Some(number) = last {
            self.arena.drafts[number].usage = Some(usage);
        }
    }

    /// Returns the main line and the left lines.
    #[allow(clippy::type_complexity, reason = "two values of one call")]
    pub(in crate::sources) fn finish(self) -> (Vec<Arc<SessionMessage>>, Vec<Vec<Arc<SessionMessage>>>) {
        let main = self.arena.settled(&self.main);
        let left: Vec<Vec<usize>> = self.left.iter().map(|line| self.arena.settled(line)).collect();
        let messages = self.arena.into_messages();
        (pick(&messages, &main), left.iter().map(|line| pick(&messages, line)).collect())
    }

    fn push(&mut self, draft: MessageDraft) {
        let number = self.arena.add(draft);
        self.main.push(number);
    }

    /// Takes a line with an envelope.
    pub(super) fn line(&mut self, line: &RolloutRecord<'_>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let payload = line.payload();
        match json::text(line.json, "type") {
            "response_item" => {
                self.has_items = true;
                if self.source == ItemSource::Items {
                    self.item(&payload, out)?;
                }
            }
            "turn_context" => {
                self.model = json::maybe_text(payload.json, "model").or(self.model.take());
                self.folder = self.folder.take().or_else(|| json::folder(&payload.json["cwd"]));
            }
            "compacted" => {
                self.open = None;
                if let Some(mut draft) =
                    MessageDraft::summary(line.derived.to_owned(), json::text(payload.json, "message"))
                {
                    draft.at = payload.at;
                    self.push(draft);
                }
            }
            "event_msg" if payload.json["type"] == "item_completed" => self.completed(&payload, out)?,
            "event_msg" => {
                if let Some(kind) = self.event(&payload) {
                    out.unknown(format!("event_msg/{kind}"), line.place, line.json.to_string())?;
                }
            }
            kind if QUIET_LINES.contains(&kind) => {}
            "" => out.unknown("record", line.place, line.json.to_string())?,
            kind => out.unknown(kind, line.place, line.json.to_string())?,
        }
        Ok(())
    }

    /// Takes an event. Returns its type if it was not understood.
    fn event<'a>(&mut self, event: &RolloutRecord<'a>) -> Option<&'a str> {
        let is_source = self.source == ItemSource::Events;
        let json = event.json;
        match json::text(json, "type") {
            "token_count" => self.count(&json["info"]),
            "thread_rolled_back" => self.roll_back(json["num_turns"].as_u64().unwrap_or(0)),
            "user_message" => {
                if is_source {
                    let mut draft = event.draft(DraftKind::Human);
                    draft.text(json::text(json, "message"));
                    json::items(&json["images"]).iter().filter_map(Json::as_str).for_each(|url| draft.image(url));
                    self.push(draft);
                }
            }
            "agent_reasoning" if is_source => self.reasoning.push_str(json::text(json, "text")),
            "agent_message" if is_source => {
                let mut draft = event.draft(DraftKind::Ai);
                draft.model.clone_from(&self.model);
                draft.reasoning(&std::mem::take(&mut self.reasoning));
                draft.text(json::text(json, "message"));
                self.push(draft);
            }
            kind if QUIET_EVENTS.contains(&kind) => {}
            kind if QUIET_EVENT_FAMILIES.iter().any(|family| kind.starts_with(family)) => {}
            kind => return Some(kind),
        }
        None
    }

    /// Takes an event that completes an item.
    fn completed(&mut self, event: &RolloutRecord<'_>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let item = &event.json["item"];
        let kind = json::text(item, "type");
        let is_message = matches!(kind, "UserMessage" | "AgentMessage");
        self.has_completed |= is_message;
        let text_of =
            |parts: &Json| -> String { json::items(parts).iter().map(|part| json::text(part, "text")).collect() };
        match (self.source, kind) {
            (ItemSource::Items, "UserMessage") => {
                self.knows_typed();
                match self.untyped.take() {
                    Some(typed) => self.arena.drafts[typed].kind = DraftKind::Human,
                    None => {
                        self.open = None;
                        let mut draft = event.draft(DraftKind::Human);
                        draft.id = json::maybe_text(item, "id");
                        draft.text(&text_of(&item["content"]));
                        self.push(draft);
                    }
                }
            }
            (ItemSource::Items | ItemSource::Events, _) => {}
            (ItemSource::Completed, "UserMessage" | "AgentMessage") => {
                let kind = if kind == "UserMessage" { DraftKind::Human } else { DraftKind::Ai };
                let mut draft = self.draft_of_item(event, item, kind);
                content(&mut draft, &item["content"]);
                draft.report_lost(out, event.place)?;
                self.push(draft);
            }
            (ItemSource::Completed, "Reasoning") => {
                let texts = |parts: &Json| -> String { json::items(parts).iter().filter_map(Json::as_str).collect() };
                let raw = texts(&item["raw_content"]);
                self.reasoning.push_str(&if raw.is_empty() { texts(&item["summary_text"]) } else { raw });
            }
            (ItemSource::Completed, "CommandExecution") => {
                let args = json!({ "command": item["command"], "cwd": item["cwd"] });
                let is_error = item["exit_code"].as_i64().is_some_and(|code| code != 0) || item["status"] == "failed";
                self.call_of_item(event, item, "exec_command", &args, json::text(item, "aggregated_output"), is_error);
            }
            (ItemSource::Completed, "McpToolCall") => {
                let mut text = text_of(&item["result"]["content"]);
                if text.is_empty() {
                    json::text(&item["error"], "message").clone_into(&mut text);
                }
                let is_error = item["status"] == "failed" || item["result"]["isError"] == true;
                self.call_of_item(event, item, json::text(item, "tool"), &item["arguments"], &text, is_error);
            }
            (ItemSource::Completed, kind) => {
                out.unknown(format!("{COMPLETED}{kind}"), event.place, item.to_string())?;
            }
        }
        Ok(())
    }

    /// Makes the human messages so far context: the events name the typed ones from here on.
    fn knows_typed(&mut self) {
        if !std::mem::replace(&mut self.knows_typed, true) {
            for draft in self.arena.drafts.iter_mut().filter(|draft| draft.kind == DraftKind::Human) {
                draft.kind = DraftKind::System;
            }
        }
    }

    /// Returns a draft of an item that an event completes, with the reasoning before it.
    fn draft_of_item(&mut self, event: &RolloutRecord<'_>, item: &Json, kind: DraftKind) -> MessageDraft {
        let mut draft = event.draft(kind);
        draft.id = json::maybe_text(item, "id");
        if kind == DraftKind::Ai {
            draft.model.clone_from(&self.model);
            draft.reasoning(&std::mem::take(&mut self.reasoning));
        }
        draft
    }

    /// Adds an item that is a call together with its result.
    fn call_of_item(
        &mut self,
        event: &RolloutRecord<'_>,
        item: &Json,
        name: &str,
        args: &Json,
        text: &str,
        is_error: bool,
    ) {
        let (id, empty) = (json::text(item, "id"), json!({}));
        let mut draft = self.draft_of_item(event, item, DraftKind::Ai);
        draft.call(id, name, if args.is_null() { &empty } else { args });
        self.push(draft);
        let mut result = MessageDraft::result(format!("{}#2", event.derived), id);
        (result.at, result.is_error) = (event.at, is_error);
        result.text(text);
        self.push(result);
    }

    /// Gives the last usage to the newest message of the model, unless the total is the one that was seen last.
    fn count(&mut self, info: &Json) {
        let (last, total) = (&info["last_token_usage"], &info["total_token_usage"]);
        if !last.is_object() || (!total.is_null() && *total == self.total) {
            return;
        }
        self.total = total.clone();
        self.open = None;
        let newest = self.main.iter().rev().find(|number| self.arena.drafts[**number].kind == DraftKind::Ai);
        if let Some(number) = newest {
            let counts = TokenCounts {
                input: json::count(last, "input_tokens"),
                output: json::count(last, "output_tokens"),
                cache_read: json::count(last, "cached_input_tokens"),
                cache_creation: json::count(last, "cache_write_input_tokens"),
                reasoning: json::count(last, "reasoning_output_tokens"),
            };
            self.arena.drafts[*number].usage = Some(counts.into_usage());
        }
    }

    /// Moves the newest human messages, and all messages after them, out of the main line.
    fn roll_back(&mut self, turns: u64) {
        self.open = None;
        let is_human = |(_, number): &(usize, &usize)| self.arena.drafts[**number].kind == DraftKind::Human;
        let humans: Vec<usize> = self.main.iter().enumerate().filter(is_human).map(|(at, _)| at).collect();
        let turns = usize::try_from(turns).unwrap_or(usize::MAX).min(humans.len());
        if turns > 0 {
            debug_assert!(humans.len() >= turns, "no more turns are left than there are");
            self.left.push(self.main.clone());
            self.main.truncate(humans[humans.len() - turns]);
        }
    }

    /// Takes a response item.
    pub(in crate::sources) fn item(
        &mut self,
        record: &RolloutRecord<'_>,
        out: &mut ReadOutput<'_>,
    ) -> Result<(), ImportError> {
        let item = record.json;
        match json::text(item, "type") {
            "message" => self.message(record, out)?,
            "reasoning" => {
                let readable = |parts: &Json| json::items(parts).iter().map(|part| json::text(part, "text")).collect();
                let content: String = readable(&item["content"]);
                let text = if content.is_empty() { readable(&item["summary"]) } else { content };
                let draft = self.draft_of_model(record, false, false);
                draft.reasoning(&text);
                let parts = json::items(&item["content"]).iter().chain(json::items(&item["summary"]));
                let lost = parts.filter(|part| part.is_object() && part.get("text").is_none());
                lost.for_each(|part| draft.lose(json::text(part, "type"), part));
                draft.report_lost(out, record.place)?;
                if !item["encrypted_content"].is_null() {
                    draft.opaque(&json!({ "encrypted_content": item["encrypted_content"] }));
                }
            }
            "function_call" => {
                let draft = self.draft_of_model(record, true, false);
                let (id, name) = (call_id(item), json::text(item, "name"));
                match &item["arguments"] {
                    Json::String(text) => draft.call_of_text(&id, name, text),
                    args => draft.call(&id, name, args),
                }
                if let Some(namespace) = json::maybe_text(item, "namespace") {
                    draft.extra.push(("namespace", json!({ id: namespace })));
                }
            }
            "custom_tool_call" => {
                let draft = self.draft_of_model(record, true, false);
                draft.call(&call_id(item), json::text(item, "name"), &json!({ "input": item["input"] }));
            }
            "local_shell_call" => self.named_call(record, "local_shell", &item["action"]),
            "web_search_call" => self.named_call(record, "web_search", &item["action"]),
            "tool_search_call" => match &item["arguments"] {
                Json::String(text) => {
                    let args = json::parse(text).unwrap_or_else(|_| item["arguments"].clone());
                    self.named_call(record, "tool_search", &args);
                }
                args => self.named_call(record, "tool_search", args),
            },
            "function_call_output" | "custom_tool_call_output" => self.output(record, out)?,
            kind if QUIET_ITEMS.contains(&kind) => {}
            kind => out.unknown(format!("{}/{kind}", self.counted_as), record.place, item.to_string())?,
        }
        Ok(())
    }

    fn named_call(&mut self, record: &RolloutRecord<'_>, name: &str, args: &Json) {
        let empty = json!({});
        let args = if args.is_null() { &empty } else { args };
        self.draft_of_model(record, true, false).call(&call_id(record.json), name, args);
    }

    fn message(&mut self, record: &RolloutRecord<'_>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        let item = record.json;
        let kind = match json::text(item, "role") {
            "assistant" => {
                let id = json::maybe_text(item, "id");
                let draft = self.draft_of_model(record, false, true);
                draft.id = id.or(draft.id.take());
                content(draft, &item["content"]);
                draft.report_lost(out, record.place)?;
                if let Some(phase) = json::maybe_text(item, "phase") {
                    draft.extra.push(("phase", phase.into()));
                }
                return Ok(());
            }
            "user" => DraftKind::Human,
            "developer" | "system" => DraftKind::System,
            role => return out.unknown(format!("role/{role}"), record.place, item.to_string()),
        };
        self.open = None;
        let mut draft = record.draft(kind);
        draft.id = json::maybe_text(item, "id");
        content(&mut draft, &item["content"]);
        draft.report_lost(out, record.place)?;
        let first =
            draft.blocks.iter().find(|block| block["type"] == "text").map_or("", |block| json::text(block, "text"));
        if self.knows_typed || CONTEXT.iter().any(|context| first.trim_start().starts_with(context)) {
            draft.kind = DraftKind::System;
        }
        let number = self.arena.add(draft);
        self.main.push(number);
        if kind == DraftKind::Human {
            self.untyped = Some(number);
        }
        Ok(())
    }

    fn output(&mut self, record: &RolloutRecord<'_>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        self.open = None;
        let item = record.json;
        let mut draft = MessageDraft::result(record.derived.to_owned(), json::text(item, "call_id"));
        (draft.id, draft.at) = (json::maybe_text(item, "id"), record.at);
        match &item["output"] {
            Json::Object(output) => {
                draft.is_error = output.get("success") == Some(&Json::Bool(false));
                match output.get("content") {
                    Some(text) => content(&mut draft, text),
                    None => draft.text(&item["output"].to_string()),
                }
            }
            output => content(&mut draft, output),
        }
        draft.report_lost(out, record.place)?;
        self.arena.add_result(&mut self.main, draft);
        Ok(())
    }

    /// Returns the open message of the model, or a new one: a text or reasoning does not join a text or a call.
    fn draft_of_model(&mut self, record: &RolloutRecord<'_>, is_call: bool, is_message: bool) -> &mut MessageDraft {
        let open = self.open.filter(|open| is_call || !(self.open_has_message || self.arena.drafts[*open].has_calls()));
        let number = open.unwrap_or_else(|| {
            let mut draft = record.draft(DraftKind::Ai);
            draft.model.clone_from(&self.model);
            self.open_has_message = false;
            let number = self.arena.add(draft);
            self.main.push(number);
            number
        });
        self.open = Some(number);
        self.untyped = None;
        self.open_has_message |= is_message;
        let draft = &mut self.arena.drafts[number];
        if draft.id.is_none() {
            draft.id = json::maybe_text(record.json, "id");
        }
        draft
    }
}

fn call_id(item: &Json) -> String {
    json::maybe_text(item, "call_id").unwrap_or_else(|| json::text(item, "id").to_owned())
}

/// Adds the content of a message or of an output: a text, or a list of texts and pictures.
fn content(draft: &mut MessageDraft, content: &Json) {
    match content {
        Json::String(text) => draft.text(text),
        Json::Array(parts) => {
            for part in parts {
                match (json::text(part, "type"), &part["text"], &part["image_url"]) {
                    ("input_image", _, Json::String(url)) => draft.image(url),
                    ("input_image", _, url) => draft.image(json::text(url, "url")),
                    (_, Json::String(text), _) => draft.text(text),
                    ("input_text" | "output_text" | "text" | "Text", ..) => draft.text_in(part, "text"),
                    _ => draft.opaque(part),
                }
            }
        }
        Json::Null => {}
        other => draft.text(&other.to_string()),
    }
}
