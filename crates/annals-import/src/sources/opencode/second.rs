//! The messages of OpenCode 2: rows of `session_message`, with a type and a document each.

use serde_json::{Value as Json, json};

use super::counts;
use crate::database::SourceDatabase;
use crate::draft::{DraftKind, MessageDraft};
use crate::error::ImportError;
use crate::json;
use crate::output::ReadOutput;

/// Types of rows without a message.
const QUIET: [&str; 4] = ["agent-switched", "model-switched", "location-switched", "idle"];

/// Returns whether a database has the table of messages.
pub(super) fn is_in(database: &SourceDatabase) -> bool {
    let columns = database.columns("session_message");
    ["session_id", "type", "seq", "data"].iter().all(|name| columns.iter().any(|column| column == name))
}

/// Returns the messages of a row: that of its type, and the results of its calls.
pub(super) fn messages(
    kind: &str,
    data: &Json,
    out: &mut ReadOutput<'_>,
    place: &str,
) -> Result<Vec<MessageDraft>, ImportError> {
    let draft = |kind: DraftKind| MessageDraft::new(kind, String::new());
    Ok(match kind {
        "user" => {
            let mut human = draft(DraftKind::Human);
            text(&mut human, kind, data, "text");
            for file in json::items(&data["files"]) {
                human.file(json::text(file, "mime"), json::text(file, "uri"), json::text(file, "name"));
            }
            vec![human]
        }
        "system" | "synthetic" | "skill" => {
            let mut system = draft(DraftKind::System);
            text(&mut system, kind, data, "text");
            vec![system]
        }
        "shell" => {
            let mut system = draft(DraftKind::System);
            let output = if data["output"].is_object() { &data["output"]["output"] } else { &data["output"] };
            system.text(&format!("{}\n{}", json::text(data, "command"), output.as_str().unwrap_or("")));
            vec![system]
        }
        "assistant" => of_model(data, out, place)?,
        "compaction" => {
            let is_complete = matches!(json::text(data, "status"), "" | "completed");
            let summary = MessageDraft::summary(String::new(), json::text(data, "summary"));
            summary.filter(|_| is_complete).into_iter().collect()
        }
        kind if QUIET.contains(&kind) => Vec::new(),
        kind => {
            out.unknown(format!("message/{kind}"), place, data.to_string())?;
            Vec::new()
        }
    })
}

/// Adds the text of a row; one without the member that holds it is kept as it is.
fn text(draft: &mut MessageDraft, kind: &str, data: &Json, name: &str) {
    match (data.get(name), data[name].as_str()) {
        (_, Some(text)) => draft.text(text),
        (Some(Json::Null), None) => {}
        (_, None) => draft.lose(kind, data),
    }
}

fn of_model(data: &Json, out: &mut ReadOutput<'_>, place: &str) -> Result<Vec<MessageDraft>, ImportError> {
    let mut ai = MessageDraft::new(DraftKind::Ai, String::new());
    let mut results = Vec::new();
    for (at, part) in json::items(&data["content"]).iter().enumerate() {
        match json::text(part, "type") {
            "text" => ai.text_in(part, "text"),
            "reasoning" => ai.reasoning_in(part, "text"),
            "tool" => {
                let (id, state, empty) = (json::text(part, "id"), &part["state"], json!({}));
                let name = json::text(part, "name");
                match &state["input"] {
                    // The input of a call that streams is a text that may be unfinished.
                    Json::String(input) => ai.call_of_text(id, name, input),
                    input => ai.call(id, name, if input.is_null() { &empty } else { input }),
                }
                results.extend(result(id, state));
            }
            kind => out.unknown(format!("part/{kind}"), format!("{place}#{at}"), part.to_string())?,
        }
    }
    ai.model = json::maybe_text(&data["model"], "id").filter(|_| data["model"].is_object());
    ai.error = json::maybe_text(&data["error"], "type");
    if data["tokens"].is_object() {
        ai.usage = Some(counts(&data["tokens"]).into_usage());
    }
    Ok(std::iter::once(ai).chain(results).collect())
}

/// Returns the result of a call, if it has ended.
fn result(id: &str, state: &Json) -> Option<MessageDraft> {
    let mut result = MessageDraft::result(String::new(), id);
    match json::text(state, "status") {
        "completed" => {
            for part in json::items(&state["content"]) {
                match json::text(part, "type") {
                    "text" => result.text_in(part, "text"),
                    "file" => {
                        result.file(json::text(part, "mime"), json::text(part, "uri"), json::text(part, "name"));
                    }
                    _ => result.opaque(part),
                }
            }
        }
        "error" => {
            result.is_error = true;
            result.text(json::text(&state["error"], "message"));
        }
        _ => return None,
    }
    Some(result)
}
