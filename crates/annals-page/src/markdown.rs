//! Messages as Markdown, for a copy into an issue or a note.
//!
//! Invariant: no text of a message begins a tag of HTML in the document: `<` and `&` are references outside of fenced
//! code, in which Markdown shows them as they are. *Absent:* names for people of the types of messages.

use serde_json::Value as Json;

use crate::html::is_steering;

/// Adds a message: its type as a heading, its texts, its reasoning as a quotation, its tool calls as code.
pub(crate) fn add_message(document: &mut String, message: &Json) {
    let words =
        [&message["type"], &message["name"]].into_iter().filter_map(Json::as_str).filter(|word| !word.is_empty());
    let heading = words.collect::<Vec<_>>().join(", ");
    add_heading(document, "##", if heading.is_empty() { "item" } else { &heading });
    match &message["content"] {
        Json::String(content) => add_text(document, content),
        Json::Array(blocks) => blocks.iter().for_each(|block| add_block(document, block)),
        Json::Null => {}
        other => add_code(document, &format!("{other:#}")),
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let name = call["name"].as_str().unwrap_or("?");
        document.push_str(&format!("\ncalls {}\n", line(name)));
        add_code(document, &format!("{:#}", call["args"]));
    }
}

/// Adds a heading.
pub(crate) fn add_heading(document: &mut String, marks: &str, text: &str) {
    if !document.is_empty() {
        document.push('\n');
    }
    document.push_str(&format!("{marks} {}\n", line(text)));
}

fn add_block(document: &mut String, block: &Json) {
    let member = |name: &str| block[name].as_str();
    match (block.as_str().or_else(|| member("text")), member("reasoning").or_else(|| member("thinking"))) {
        (Some(content), _) => add_text(document, content),
        (None, Some(thought)) => {
            document.push('\n');
            for row in thought.lines() {
                document.push_str(&format!("> {}\n", escaped(row)));
            }
        }
        (None, None) => {
            let kind = member("type").unwrap_or("block");
            document.push_str(&format!("\n({})\n", line(kind)));
        }
    }
}

/// Adds a text. Its fenced code stays as it is, and a fence that it leaves open is closed.
fn add_text(document: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    document.push('\n');
    let mut open: Option<&str> = None;
    for row in text.lines() {
        let fence = fence_of(row);
        match (open, fence) {
            (Some(begin), Some(end)) if end.starts_with(begin) && row.trim_end() == end => open = None,
            (None, Some(begin)) => open = Some(begin),
            _ => {}
        }
        // The line of a fence can hold no tag, but a language.
        if open.is_some() && fence.is_none() {
            document.push_str(&shown(row));
        } else {
            document.push_str(&escaped(row));
        }
        document.push('\n');
    }
    if let Some(fence) = open {
        document.push_str(fence);
        document.push('\n');
    }
}

/// Returns the marks of a line that begins or ends fenced code. An indented one could end with the list that it stands
/// in, so it does not count.
fn fence_of(row: &str) -> Option<&str> {
    let mark = row.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let len = row.bytes().take_while(|byte| char::from(*byte) == mark).count();
    (len >= 3 && !(mark == '`' && row[len..].contains('`'))).then(|| &row[..len])
}

/// Adds a text as fenced code, with a fence that the text does not hold.
fn add_code(document: &mut String, text: &str) {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    document.push_str(&format!("\n{fence}\n"));
    text.lines().for_each(|row| document.push_str(&(shown(row) + "\n")));
    document.push_str(&format!("{fence}\n"));
}

/// Returns a text whose characters that begin a tag or a reference of HTML are references.
fn escaped(text: &str) -> String {
    shown(text).replace('&', "&amp;").replace('<', "&lt;")
}

/// Replaces the characters that control the layout of the text around them, and a carriage return, which ends a line of
/// Markdown.
fn shown(text: &str) -> String {
    text.chars().map(|c| if is_steering(c) || c == '\r' { '\u{fffd}' } else { c }).collect()
}

/// Returns a text as one line of Markdown, its marks escaped.
fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars().map(|c| if c.is_control() || is_steering(c) { ' ' } else { c }) {
        if c.is_ascii_punctuation() && !matches!(c, '.' | ',' | ':' | '-' | '@') {
            line.push('\\');
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown_as(message: Json) -> String {
        let mut document = String::new();
        add_message(&mut document, &message);
        document
    }

    #[test]
    fn texts_are_markdown_and_never_tags() {
        let content = "see <b> & *this*\n```rust\nVec<u8> & more\n~~~\n```\n<i>\n- item\n  ```\n<script>";
        assert_eq!(
            shown_as(json!({ "type": "ai", "name": "a_b", "content": content })),
            "## ai, a\\_b\n\nsee &lt;b> &amp; *this*\n```rust\nVec<u8> & more\n~~~\n```\n&lt;i>\n- item\n  ```\n&lt;script>\n"
        );
    }

    #[test]
    fn an_open_fence_ends_with_its_message() {
        assert_eq!(shown_as(json!({ "type": "ai", "content": "````\n```\n<a>" })), "## ai\n\n````\n```\n<a>\n````\n");
        assert_eq!(
            shown_as(json!({ "type": "ai", "content": "```\nx\r```\r<a>" })),
            "## ai\n\n```\nx\u{fffd}```\u{fffd}<a>\n```\n"
        );
        assert_eq!(shown_as(json!({ "type": "ai", "content": "```a`b\n<a>" })), "## ai\n\n```a`b\n&lt;a>\n");
    }

    #[test]
    fn blocks_calls_and_reasoning_are_told_apart() {
        let message = json!({ "type": "ai", "content": [
            { "type": "reasoning", "reasoning": "first\nthen <b>" }, { "type": "text", "text": "Yes." }, { "type": "image" },
        ], "tool_calls": [{ "name": "find", "args": { "q": "```" } }] });
        assert_eq!(
            shown_as(message),
            "## ai\n\n> first\n> then &lt;b>\n\nYes.\n\n(image)\n\ncalls find\n\n````\n{\n  \"q\": \"```\"\n}\n````\n"
        );
    }
}
