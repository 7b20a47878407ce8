//! Parts of content in the way of the Gemini interface, which several programs store; names of members are in
//! camelCase or in snake_case.

use serde_json::{Value as Json, json};

use crate::draft::{MessageDraft, TokenCounts};
use crate::json;
use crate::probe::has;

/// Returns the member that has one of two names.
pub(crate) fn either<'a>(of: &'a Json, camel: &str, snake: &str) -> &'a Json {
    if has(of, camel) { &of[camel] } else { &of[snake] }
}

/// Reads the parts of a session.
#[derive(Default)]
pub(crate) struct PartReader {
    /// The calls that named no id, with their names and the ids that were given to them.
    unnamed: Vec<(String, String)>,
}

impl PartReader {
    /// Adds the parts of a content to a message, and returns the results of tool calls among them. Ids that are missing
    /// begin with `derived`.
    pub(crate) fn take(&mut self, draft: &mut MessageDraft, content: &Json, derived: &str) -> Vec<MessageDraft> {
        let mut results = Vec::new();
        let parts = match content {
            Json::Array(parts) => parts.as_slice(),
            Json::Null => &[],
            one => std::slice::from_ref(one),
        };
        for (at, part) in parts.iter().enumerate() {
            let (call, response) =
                (either(part, "functionCall", "function_call"), either(part, "functionResponse", "function_response"));
            if call.is_object() {
                let own = json::maybe_text(call, "id");
                let id = own.clone().unwrap_or_else(|| format!("{derived}#call{at}"));
                if own.is_none() {
                    self.unnamed.push((json::text(call, "name").to_owned(), id.clone()));
                }
                let empty = json!({});
                draft.call(&id, json::text(call, "name"), if has(call, "args") { &call["args"] } else { &empty });
            } else if response.is_object() {
                results.push(self.result(response));
            } else {
                add(draft, part);
            }
        }
        results
    }

    /// Returns the result of a tool call.
    pub(crate) fn result(&mut self, of: &Json) -> MessageDraft {
        let name = json::text(of, "name");
        let unnamed = || self.unnamed.iter().position(|(of, _)| of == name).map(|at| self.unnamed.remove(at).1);
        let id = json::maybe_text(of, "id").or_else(unnamed).unwrap_or_default();
        let mut result = MessageDraft::result(String::new(), &id);
        let response = &of["response"];
        let texts = ["output", "result", "error"].into_iter().find_map(|name| response[name].as_str());
        result.is_error = has(response, "error") && !has(response, "output") && !has(response, "result");
        match texts {
            Some(text) => result.text(text),
            None if response.is_null() => {}
            None => result.text(&json::as_text(response)),
        }
        result
    }
}

/// Adds a part that neither calls nor answers.
fn add(draft: &mut MessageDraft, part: &Json) {
    let (data, file) = (either(part, "inlineData", "inline_data"), either(part, "fileData", "file_data"));
    if let Some(text) = part.as_str() {
        draft.text(text);
    } else if part["thought"] == true {
        draft.reasoning_in(part, "text");
    } else if part.get("text").is_some() {
        draft.text_in(part, "text");
    } else if data.is_object() {
        let mime = either(data, "mimeType", "mime_type").as_str().unwrap_or("");
        draft.file(mime, &format!("data:{mime};base64,{}", json::text(data, "data")), name_of(data));
    } else if file.is_object() {
        let mime = either(file, "mimeType", "mime_type").as_str().unwrap_or("");
        draft.file(mime, either(file, "fileUri", "file_uri").as_str().unwrap_or(""), name_of(file));
    } else {
        draft.opaque(part);
    }
}

fn name_of(file: &Json) -> &str {
    either(file, "displayName", "display_name").as_str().unwrap_or("")
}

/// Returns the texts of the parts of a content that are not thoughts, joined by nothing.
pub(crate) fn text_of(content: &Json) -> String {
    let parts = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    let texts = parts.iter().filter(|part| part["thought"] != true);
    texts.filter_map(|part| part.as_str().or_else(|| part["text"].as_str())).collect()
}

/// Returns the token counts of an answer, whose input includes what was cached and whose output excludes thoughts.
pub(crate) fn counts(of: &Json) -> TokenCounts {
    let count = |camel: &str, snake: &str| either(of, camel, snake).as_i64().unwrap_or(0).max(0);
    let reasoning = count("thoughtsTokenCount", "thoughts_token_count");
    TokenCounts {
        input: count("promptTokenCount", "prompt_token_count"),
        output: count("candidatesTokenCount", "candidates_token_count").saturating_add(reasoning),
        cache_read: count("cachedContentTokenCount", "cached_content_token_count"),
        cache_creation: 0,
        reasoning,
    }
}
