//! Transcripts for people: the messages at a point as Markdown, or as an HTML page that loads nothing.
//!
//! Invariants: no text of a message becomes a tag, and the page forbids scripts and connections; one message is in
//! memory as text. *Absent:* the Markdown of a message, which is that of `annals serve`.

use std::io::{self, Write};

use annals::base::Value;
use annals::history::{FoldedMessages, Snapshot};
use annals::store::ItemRange;
use annals_page::{markdown_folded, markdown_heading, markdown_message};
use serde_json::Value as Json;

use crate::args::TranscriptFormat;
use crate::errors::CommandFailure;

/// Messages that one read takes.
const PAGE: usize = 200;

/// Writes the messages of a channel, and returns their number.
pub(crate) fn write(
    at: &Snapshot,
    channel: &str,
    format: TranscriptFormat,
    out: &mut dyn Write,
) -> Result<u64, CommandFailure> {
    let title = at.point().thread.as_str();
    let facts = format!("{}, step {}, {}", at.id(), at.step(), at.created_at());
    match format {
        TranscriptFormat::Markdown => {
            write!(out, "{}\n{facts}\n", markdown_heading(title))?;
        }
        TranscriptFormat::Html => write!(out, "{}", page_head(title, &facts))?,
    }
    // Removed items leave gaps between the positions.
    let mut positions = Vec::new();
    at.visit_items(channel, ItemRange::All, |row| {
        positions.push(row.position);
        Ok(())
    })?;
    let mut folded = at.folded(channel)?;
    for page in positions.chunks(PAGE) {
        let (Some(first), Some(last)) = (page.first(), page.last()) else { continue };
        let items = at.items(channel, ItemRange::Positions(*first, last.saturating_add(1)))?;
        for (position, item) in page.iter().zip(items) {
            if let Some(folded) = folded.take_if(|folded| folded.positions().end <= *position) {
                border(&folded, format, out)?;
            }
            let item = item.to_json();
            match format {
                TranscriptFormat::Markdown => write!(out, "\n{}", markdown_message(&item))?,
                TranscriptFormat::Html => html(&item, out)?,
            }
        }
    }
    if let Some(folded) = folded {
        border(&folded, format, out)?;
    }
    if format == TranscriptFormat::Html {
        writeln!(out, "</main></body></html>")?;
    }
    Ok(positions.len() as u64)
}

/// Writes the border after folded messages, with the summary that a model sees in their place.
fn border(folded: &FoldedMessages, format: TranscriptFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        TranscriptFormat::Markdown => write!(out, "\n{}", markdown_folded(folded.summary())),
        TranscriptFormat::Html => {
            writeln!(out, "<p>(folded up to here: the model sees a summary)</p>")?;
            let summary = folded.summary().iter();
            summary.map(|message| Value::Map(message.to_map()).to_json()).try_for_each(|message| html(&message, out))
        }
    }
}

/// A part of a message: its kind and its text.
struct TranscriptPart {
    kind: &'static str,
    text: String,
}

/// Returns the parts of a message: its texts, its reasoning, its tool calls, and its other blocks as JSON.
fn parts(item: &Json) -> Vec<TranscriptPart> {
    let part = |kind: &'static str, text: &str| TranscriptPart { kind, text: text.to_owned() };
    let mut parts = Vec::new();
    match &item["content"] {
        Json::String(text) if !text.is_empty() => parts.push(part("text", text)),
        Json::Array(blocks) => {
            for block in blocks {
                let member = |name: &str| block[name].as_str();
                match (block.as_str().or(member("text")), member("reasoning")) {
                    (Some(text), _) => parts.push(part("text", text)),
                    (None, Some(text)) => parts.push(part("reasoning", text)),
                    (None, None) if block["base64"].is_string() => {
                        let kind = member("type").unwrap_or("file");
                        parts.push(part("block", &format!("{kind} {}", member("mime_type").unwrap_or_default())));
                    }
                    (None, None) => parts.push(part("block", &block.to_string())),
                }
            }
        }
        Json::String(_) | Json::Null => {}
        other => parts.push(part("block", &other.to_string())),
    }
    for call in item["tool_calls"].as_array().into_iter().flatten() {
        let name = call["name"].as_str().unwrap_or_default();
        parts.push(part("call", &format!("{name} {:#}", call["args"])));
    }
    parts
}

/// Returns the role, the name and the timestamp of a message.
fn heading(item: &Json) -> String {
    let text = |of: &Json| of.as_str().unwrap_or_default().to_owned();
    let words = [text(&item["type"]), text(&item["name"]), text(&item["additional_kwargs"]["timestamp"])];
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "item".to_owned() } else { words.join(", ") }
}

/// Replaces the characters that begin HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    debug_assert!(!safe.contains(['<', '>']), "no tag is left");
    safe
}

fn html(item: &Json, out: &mut dyn Write) -> io::Result<()> {
    let role = item["type"].as_str().filter(|role| ["human", "ai", "tool", "system"].contains(role)).unwrap_or("other");
    writeln!(out, "<article class=\"{role}\"><h2>{}</h2>", escaped(&heading(item)))?;
    for part in parts(item) {
        let text = escaped(&part.text);
        match part.kind {
            "text" => writeln!(out, "<p>{text}</p>")?,
            kind => writeln!(out, "<details><summary>{kind}</summary><pre>{text}</pre></details>")?,
        }
    }
    writeln!(out, "</article>")
}

/// Returns the head of a page. Its policy forbids everything but its own style.
fn page_head(title: &str, facts: &str) -> String {
    let (title, facts) = (escaped(title), escaped(facts));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\"><title>{title}</title>\n\
         <style>body{{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}}\
         article{{border-left:4px solid #bbb;margin:1em 0;padding:0 1em}}h2{{font-size:.9em;color:#666}}\
         p,pre{{white-space:pre-wrap;overflow-wrap:anywhere}}\
         .human{{border-color:#36c}}.ai{{border-color:#393}}.tool{{border-color:#c80}}</style></head>\n\
         <body><main><h1>{title}</h1><p>{facts}</p>\n"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_text_becomes_a_tag() {
        let hostile = "</p><script>alert('x')</script>\x1b[31m & \"";
        let item = json!({"type": hostile, "content": [{"type": "text", "text": hostile}, {"type": hostile}],
            "tool_calls": [{"name": "f", "args": {"a": "```` </pre>"}}]});
        let mut page = Vec::new();
        html(&item, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("<script") && !page.contains('\x1b') && page.matches("</pre>").count() == 2, "{page}");
        assert!(page_head("<x>", "y").contains("default-src 'none'") && !page_head("<x>", "y").contains("<x>"));
    }
}
