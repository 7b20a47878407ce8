//! Messages as Markdown, for a copy into an issue or a note.
//!
//! Invariant: no text of a message begins a tag of HTML in the document: `<` and `&` are references outside of code, in
//! which Markdown shows them as they are. Code is what every reader of Markdown takes for code: a fence at the begin of
//! a line, and a span within one line of a paragraph. *Absent:* names for people of the types of messages.

use annals::base::Value;
use annals::message::Message;
use serde_json::Value as Json;

use crate::html::is_steering;

/// Returns a message as Markdown: its type, its name and its timestamp as a heading, its texts, its reasoning as a
/// quotation, its tool calls as code. No text of the message begins a tag of HTML, and its code is not changed.
///
/// # Example
/// ```
/// use annals_page::markdown_message;
/// use serde_json::json;
///
/// let message = json!({"type": "ai", "content": "use `a < b`, not <b>"});
/// assert_eq!(markdown_message(&message), "## ai\n\nuse `a < b`, not &lt;b>\n");
/// ```
pub fn markdown_message(message: &Json) -> String {
    let mut document = String::new();
    add_message(&mut document, message);
    document
}

/// Returns the border between folded messages and those after them as Markdown: a heading, and the messages of the
/// summary.
pub fn markdown_folded(summary: &[Message]) -> String {
    let mut document = String::new();
    add_folded(&mut document, summary);
    document
}

/// Returns a text as a heading of Markdown on the first level, with its marks escaped.
pub fn markdown_heading(text: &str) -> String {
    let mut document = String::new();
    add_heading(&mut document, "#", text);
    document
}

/// Adds a message: its type, its name and its timestamp as a heading, its texts, its reasoning as a quotation, its tool
/// calls as code.
pub(crate) fn add_message(document: &mut String, message: &Json) {
    let words = [&message["type"], &message["name"], &message["additional_kwargs"]["timestamp"]];
    let words = words.into_iter().filter_map(Json::as_str).filter(|word| !word.is_empty());
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

/// Adds the border after folded messages, with the summary that a model sees in their place.
pub(crate) fn add_folded(document: &mut String, summary: &[Message]) {
    add_heading(document, "##", "(folded up to here: the model sees a summary)");
    summary.iter().for_each(|message| add_message(document, &Value::Map(message.to_map()).to_json()));
}

/// Adds a heading of a level: `#` for the first one.
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
            let mut spans = CodeSpans::default();
            for row in thought.lines() {
                document.push_str(&format!("> {}\n", spans.escaped(row)));
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
    let mut spans = CodeSpans::default();
    for row in text.lines() {
        let (fence, was_open) = (fence_of(row), open.is_some());
        match (open, fence) {
            (Some(begin), Some(end)) if end.starts_with(begin) && row.trim_end() == end => open = None,
            (None, Some(begin)) => open = Some(begin),
            _ => {}
        }
        // The line of a fence can hold no tag, but a language.
        if was_open && open.is_some() {
            document.push_str(&shown(row));
        } else if fence.is_some() {
            spans = CodeSpans::default();
            document.push_str(&escaped(row));
        } else {
            document.push_str(&spans.escaped(row));
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

/// The spans of code in the lines of a paragraph.
#[derive(Default)]
struct CodeSpans {
    /// True if a mark of an earlier line of the paragraph may open or close a span in the lines after it.
    is_unsure: bool,
}

impl CodeSpans {
    /// Returns a line with the references of [`escaped`] outside of its spans of code. A span that begins and ends in
    /// other lines is not taken for code, and neither is one that holds the mark between the cells of a table.
    fn escaped(&mut self, row: &str) -> String {
        if row.trim().is_empty() {
            self.is_unsure = false;
        }
        let mut line = String::with_capacity(row.len());
        let mut rest = row;
        while let Some(at) = rest.find('`') {
            let length = |of: &str| of.bytes().take_while(|byte| *byte == b'`').count();
            let (before, marks) = (&rest[..at], length(&rest[at..]));
            let inside = &rest[at + marks..];
            // A run of marks ends a span if it is as long as the one that began it.
            let mut end = None;
            let mut from = 0;
            while let Some(next) = inside[from..].find('`') {
                let run = length(&inside[from + next..]);
                if run == marks {
                    end = Some(from + next);
                    break;
                }
                from += next + run;
            }
            self.is_unsure |= before.ends_with('\\');
            let Some(end) = end.filter(|end| !self.is_unsure && !inside[..*end].contains('|')) else {
                self.is_unsure = true;
                break;
            };
            let after = at + 2 * marks + end;
            line.push_str(&escaped(before));
            line.push_str(&shown(&rest[at..after]));
            rest = &rest[after..];
        }
        line.push_str(&escaped(rest));
        line
    }
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
    fn code_within_a_line_stays_as_it_is_and_no_tag_is_left() {
        let text = |content: &str| shown_as(json!({ "type": "ai", "content": content }))[7..].trim_end().to_owned();
        let code = "if `a < \"x\" && b` then ``<i> ` &amp;`` it's";
        assert_eq!(text(code), code, "code is not changed");
        assert_eq!(text("`<b>` <b> `<i>`"), "`<b>` &lt;b> `<i>`");
        // A mark that is open, escaped, or stands in a table may belong to a span that begins or ends elsewhere.
        for (source, expected) in [
            ("open ` <b>\n` <i> `", "open ` &lt;b>\n` &lt;i> `"),
            ("\\`<b>`", "\\`&lt;b>`"),
            ("| `a | <b>` |", "| `a | &lt;b>` |"),
            ("``<b>` `<i>`", "``&lt;b>` `&lt;i>`"),
            ("a `\n\n`<b>`", "a `\n\n`<b>`"),
        ] {
            assert_eq!(text(source), expected, "{source}");
        }
        let thought = json!({ "type": "ai", "content": [{ "type": "reasoning", "reasoning": "`a < b` <i>" }] });
        assert_eq!(shown_as(thought), "## ai\n\n> `a < b` &lt;i>\n");
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
