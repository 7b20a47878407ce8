//! The records of a transcript as messages.

use serde_json::Value as Json;

use crate::blocks::{of_block, of_result};
use crate::draft::{DraftKind, MessageDraft, TokenCounts};
use crate::json;

/// Types of records without a message that are not links of the chain.
pub(super) const LOOSE: [&str; 26] = [
    "summary",
    "ai-title",
    "custom-title",
    "file-history-snapshot",
    "queue-operation",
    "last-prompt",
    "tag",
    "agent-name",
    "agent-color",
    "agent-setting",
    "mode",
    "permission-mode",
    "worktree-state",
    "pr-link",
    "attribution-snapshot",
    "content-replacement",
    "speculation-accept",
    "frame-link",
    "relocated",
    "bridge-session",
    "atis-latch",
    "started",
    "result",
    "system",
    "progress",
    "attachment",
];

/// The first words of a text that the program gives the model in the user's name.
const CONTEXT: [&str; 8] = [
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<task-notification>",
    "<system-reminder>",
    "Caveat: The messages below",
    "[Request interrupted by user",
    "Stop hook feedback:",
];

/// Returns whether a record is of the model or of the user.
pub(super) fn is_of_model_or_user(record: &Json) -> bool {
    matches!(json::text(record, "type"), "user" | "assistant")
}

/// Returns the messages of a record of the user: the results of tools first, then the rest. A compaction without a text
/// makes no message.
pub(super) fn of_user(record: &Json, id: &str) -> Vec<MessageDraft> {
    let content = &record["message"]["content"];
    let mut drafts: Vec<MessageDraft> = Vec::new();
    let mut rest = MessageDraft::new(DraftKind::Human, String::new());
    let mut has_rest = false;
    match content {
        Json::Array(blocks) => {
            for block in blocks {
                if block["type"] == "tool_result" {
                    drafts.push(of_result(block));
                } else {
                    has_rest = true;
                    of_block(&mut rest, block);
                }
            }
        }
        Json::Null if record["message"].get("content").is_none() => rest.lose("message", &record["message"]),
        Json::Null => {}
        text => {
            has_rest = true;
            rest.text(&json::as_text(text));
        }
    }
    let is_empty_summary = record["isCompactSummary"] == true && rest.blocks.is_empty();
    if (has_rest || drafts.is_empty()) && !is_empty_summary {
        let first = rest.blocks.iter().find(|block| block["type"] == "text");
        let first = first.map_or("", |block| json::text(block, "text"));
        if record["isCompactSummary"] == true {
            (rest.kind, rest.is_summary) = (DraftKind::System, true);
        } else if record["isMeta"] == true || CONTEXT.iter().any(|context| first.starts_with(context)) {
            rest.kind = DraftKind::System;
        }
        drafts.push(rest);
    }
    for (ordinal, draft) in drafts.iter_mut().enumerate() {
        draft.at = json::time(&record["timestamp"]);
        draft.id = Some(if ordinal == 0 { id.to_owned() } else { format!("{id}#{}", ordinal + 1) });
    }
    drafts
}

/// Adds a record of the model to the message that the records of one `message.id` make.
pub(super) fn of_model(draft: &mut MessageDraft, record: &Json) {
    let message = &record["message"];
    match &message["content"] {
        Json::Array(blocks) => {
            for block in blocks {
                match json::text(block, "type") {
                    "thinking" => draft.reasoning_in(block, "thinking"),
                    "tool_use" => draft.call(json::text(block, "id"), json::text(block, "name"), &block["input"]),
                    _ => of_block(draft, block),
                }
            }
        }
        Json::Null if message.get("content").is_none() => draft.lose("message", message),
        Json::Null => {}
        text => draft.text(&json::as_text(text)),
    }
    if let Some(model) = json::maybe_text(message, "model") {
        draft.model = Some(model).filter(|model| model != "<synthetic>");
    }
    if message["usage"].is_object() {
        draft.usage = Some(TokenCounts::anthropic(&message["usage"]).into_usage());
    }
}
