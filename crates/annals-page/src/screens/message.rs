//! A message of a conversation as a row: roles by typography, Markdown rendered, machinery folded to one line with its
//! outcome at the end, edits and half answers marked.

use std::collections::{HashMap, HashSet};

use annals::base::{Timestamp, Value};
use annals::history::{FoldedMessages, ListItem, PartialMessage, Snapshot};
use annals_view::words::{brief, count, rounded, shortened, size};
use similar::ChangeTag;

use super::tree::BranchTree;
use crate::address::{self, encode, thread_text};
use crate::edits::changes;
use crate::html::Html;
use crate::limits::{FOLDED_CHARS_MAX, MESSAGE_CHARS_MAX, OUTCOME_CHARS_MAX, TURN_CHARS_MAX};
use crate::prose;

/// The writer of a message.
#[derive(Clone)]
pub(super) struct MessageOrigin {
    pub(super) at: Snapshot,
    pub(super) node: Option<String>,
}

/// A message with what its row shows.
pub(super) struct TalkRow {
    pub(super) item: ListItem<Value>,
    pub(super) by: Option<MessageOrigin>,
    /// The message before an edit.
    pub(super) before: Option<Value>,
    /// Positions between this message and the one before it, whose messages were removed.
    pub(super) removed: u64,
}

/// The rows of a page of messages.
pub(super) struct TalkRows<'t> {
    pub(super) at: &'t Snapshot,
    pub(super) channel: &'t str,
    pub(super) tree: &'t BranchTree,
    pub(super) rows: Vec<TalkRow>,
    pub(super) halves: Vec<PartialMessage>,
    /// The messages that a compaction has folded.
    pub(super) folded: Option<FoldedMessages>,
    /// The threads of helpers, by the tool calls that started them.
    pub(super) started: HashMap<String, String>,
    /// False in a document that is read without the server.
    pub(super) has_links: bool,
}

impl TalkRow {
    fn value(&self) -> Option<&Value> {
        self.item.item.as_ref().ok()
    }

    fn kind(&self) -> &str {
        self.value().and_then(|value| text_of(value, "type")).unwrap_or("item")
    }

    fn anchor(&self) -> String {
        format!("m{}", self.item.position)
    }
}

impl TalkRows<'_> {
    /// Adds the turns at the left and the messages. `numbered` says that the page begins with the first turn.
    pub(super) fn add_to(&self, html: &mut Html, numbered: bool) {
        html.open("div", &[("class", "talk")]);
        self.turns(html, numbered);
        html.open("ol", &[("class", "messages")]);
        self.items(html);
        html.close("ol").close("div");
    }

    /// Adds the messages as items of a list.
    pub(super) fn items(&self, html: &mut Html) {
        let results = self.results();
        let shown: HashSet<u64> = results.values().map(|row| row.item.position).collect();
        let mut last = "";
        let mut is_folded = false;
        for row in &self.rows {
            let was_folded = std::mem::replace(&mut is_folded, self.is_folded(row));
            if was_folded && !is_folded {
                self.summary(html);
                last = "";
            }
            if shown.contains(&row.item.position) && row.removed == 0 {
                continue;
            }
            self.message(html, row, last == row.kind(), &results);
            last = row.kind();
        }
        let end = self.folded.as_ref().map(|folded| folded.positions().end);
        // The tail begins on the next page, or is empty.
        if is_folded && self.rows.last().map(|row| row.item.position + 1) == end {
            self.summary(html);
        }
        self.halves.iter().for_each(|half| self.half(html, half));
    }

    /// Adds a timestamp: its age, or in a document that is read later the minute.
    fn time(&self, html: &mut Html, at: Timestamp) {
        let now = self.has_links.then(|| self.at.store().now());
        html.time("", now, at);
    }

    /// Returns a maximum of characters; a document without a server has all of them.
    fn max(&self, chars: usize) -> usize {
        if self.has_links { chars } else { usize::MAX }
    }

    /// Adds the links to what a person said.
    fn turns(&self, html: &mut Html, numbered: bool) {
        html.open("nav", &[("class", "turns rail"), ("aria-label", "Turns")]).element("h2", &[], "Turns");
        let said = self.rows.iter().filter(|row| row.kind() == "human");
        for (at, row) in said.enumerate() {
            let words = row.value().map(begin).unwrap_or_default();
            html.open("a", &[("href", &format!("#{}", row.anchor()))]);
            html.element("span", &[], &if numbered { (at + 1).to_string() } else { String::new() });
            html.element("bdi", &[], &shortened(&words, TURN_CHARS_MAX)).close("a");
        }
        html.close("nav");
    }

    /// Returns the results of tools by the ids of their calls, of calls on this page. An edited one has its own row.
    fn results(&self) -> HashMap<&str, &TalkRow> {
        let calls = self.rows.iter().filter_map(TalkRow::value).flat_map(calls);
        let called: HashSet<&str> = calls.filter_map(|call| text_of(call, "id")).collect();
        let mut results = HashMap::new();
        for row in self.rows.iter().filter(|row| row.kind() == "tool" && row.before.is_none()) {
            let id = row.value().and_then(|value| text_of(value, "tool_call_id"));
            if let Some(id) = id.filter(|id| called.contains(id)) {
                results.insert(id, row);
            }
        }
        results
    }

    fn message(&self, html: &mut Html, row: &TalkRow, follows: bool, results: &HashMap<&str, &TalkRow>) {
        if row.removed > 0 {
            html.open("li", &[("class", "gone")]);
            html.element("span", &[], &format!("{} removed here", count(row.removed, "message"))).close("li");
        }
        let value = match &row.item.item {
            Ok(value) => value,
            Err(placeholder) => {
                html.classed("li", "msg error", &placeholder.to_string());
                return;
            }
        };
        let own = self.at.record().branch;
        let other = row.by.as_ref().filter(|by| by.at.record().branch != own);
        let role = TalkRole::of(row.kind());
        let is_own = self.tree.count > 1 && other.is_none() && row.by.is_some();
        let class = format!("msg{}{}", role.class(), if is_own { " own" } else { "" });
        html.open("li", &[("class", &class), ("data-row", ""), ("id", &row.anchor())]);
        let address = address::state(&address::point(self.at), [self.channel, &row.item.position.to_string()]);
        html.open("header", &[]);
        let name = text_of(value, "name").map(|name| shortened(name, 40));
        if !follows || role != TalkRole::Agent {
            let word = role.word().map_or_else(|| shortened(row.kind(), 40), ToOwned::to_owned);
            html.element("b", &[("dir", "auto")], name.as_deref().unwrap_or(&word));
        }
        if let Some(by) = &row.by {
            self.maybe_link(html, &address, |html| self.time(html, by.at.created_at()));
        } else {
            self.maybe_link(html, &address, |html| _ = html.text("value"));
        }
        html.close("header").open("div", &[("class", "said")]);
        match role {
            TalkRole::System => self.instructions(html, &whole(value), &address),
            TalkRole::Tool => self.result_alone(html, value, &address),
            _ => self.content(html, value, &address, role == TalkRole::You),
        }
        self.edit(html, row, value, &address);
        for (at, call) in calls(value).enumerate() {
            let result = text_of(call, "id").and_then(|id| results.get(id)).copied();
            self.call(html, call, result, &format!("{address}/tool_calls/{at}/args"));
        }
        html.close("div");
        self.margin(html, row, value, other);
        html.close("li");
    }

    /// Adds a link, or in a document without a server what it would hold.
    fn maybe_link(&self, html: &mut Html, address: &str, content: impl FnOnce(&mut Html)) {
        if self.has_links {
            html.within("a", &[("href", address)], content);
        } else {
            content(html);
        }
    }

    /// Adds step, model, tokens and cost.
    fn margin(&self, html: &mut Html, row: &TalkRow, value: &Value, other: Option<&MessageOrigin>) {
        html.open("footer", &[]);
        if let Some(by) = &row.by {
            let text = format!("{}@{}", thread_text(by.at.point().thread.as_str()), by.at.id());
            let node = by.node.as_deref().unwrap_or(by.at.source().as_str());
            let (step, words) = (format!("/t/{}", encode(&text)), format!("step {}", by.at.step()));
            let title = format!("written by {}", shortened(node, 40));
            html.open("span", &[]);
            if self.has_links {
                html.element("a", &[("href", &step), ("data-blame", ""), ("title", &title)], &words);
            } else {
                html.element("span", &[("title", &title)], &words);
            }
            let tools = calls(value).count() as u64;
            html.text(&if tools > 0 { format!(" · {}", count(tools, "tool")) } else { String::new() }).close("span");
        }
        if self.is_folded(row) {
            html.element("span", &[("title", "the model sees a summary")], "folded");
        }
        if let Some(branch) = other.and_then(|by| self.tree.name(by.at.record().branch)) {
            html.within("span", &[], |html| _ = html.classed("span", "label", &shortened(branch, 40)));
        }
        let model = value.get("response_metadata").and_then(|metadata| text_of(metadata, "model_name"));
        if let Some(model) = model {
            html.classed("span", "model", &shortened(model, 40));
        }
        let tokens = |name: &str| value.get("usage_metadata")?.get(name)?.as_int();
        let total = tokens("input_tokens").unwrap_or(0).saturating_add(tokens("output_tokens").unwrap_or(0));
        if let Ok(total @ 1..) = u64::try_from(total) {
            html.element("span", &[], &format!("{} tokens", rounded(total)));
        }
        html.close("footer");
    }

    /// Adds the texts of a message, its reasoning folded, and other blocks by their type.
    fn content(&self, html: &mut Html, value: &Value, address: &str, breaks: bool) {
        match value.get("content") {
            Some(Value::Str(text)) => self.prose(html, text, &format!("{address}/content"), breaks),
            Some(Value::List(blocks)) => {
                for (at, block) in blocks.iter().enumerate() {
                    let address = format!("{address}/content/{at}");
                    let text = block.as_str().or_else(|| text_of(block, "text"));
                    match (text, thought(block)) {
                        (Some(text), _) => self.prose(html, text, &format!("{address}/text"), breaks),
                        (None, Some(thought)) => self.reasoning(html, thought),
                        // A call stands among the blocks and in the list of calls.
                        (None, None) if matches!(text_of(block, "type"), Some("tool_use" | "tool_call")) => {}
                        (None, None) => {
                            let kind = shortened(text_of(block, "type").unwrap_or("block"), 40);
                            html.open("p", &[("class", "dim")]);
                            self.maybe_link(html, &address, |html| _ = html.text(&kind));
                            html.close("p");
                        }
                    }
                }
            }
            Some(Value::Null) | None => {}
            Some(other) => _ = html.element("pre", &[("dir", "auto")], &brief(other)),
        }
        let kwargs = value.get("additional_kwargs").and_then(|kwargs| text_of(kwargs, "reasoning_content"));
        kwargs.into_iter().for_each(|thought| self.reasoning(html, thought));
    }

    fn prose(&self, html: &mut Html, text: &str, address: &str, breaks: bool) {
        let shown = head_of(text, self.max(MESSAGE_CHARS_MAX));
        let mut part = Html::new();
        match prose::add_to(&mut part, shown, breaks) {
            // What is cut is a link away, or there without its marks.
            false if !self.has_links => code_box(html, text),
            is_whole => {
                html.add(&part);
                if shown.len() < text.len() || !is_whole {
                    rest(html, shown, text, address);
                }
            }
        }
    }

    /// Adds a text of the machinery as code, of which the rest is a link away.
    fn folded(&self, html: &mut Html, text: &str, address: &str) {
        let shown = head_of(text, self.max(FOLDED_CHARS_MAX));
        code_box(html, shown);
        if shown.len() < text.len() {
            rest(html, shown, text, address);
        }
    }

    /// Adds the reasoning of a model.
    fn reasoning(&self, html: &mut Html, thought: &str) {
        if thought.trim().is_empty() {
            return;
        }
        let words = count(thought.split_whitespace().count() as u64, "word");
        html.open("details", &[("class", "tool think")]).element("summary", &[], &format!("Thought, {words}"));
        html.open("div", &[("dir", "auto")]);
        _ = prose::add_to(html, head_of(thought, self.max(FOLDED_CHARS_MAX)), true);
        html.close("div").close("details");
    }

    /// Adds the words of a system, folded to one line.
    fn instructions(&self, html: &mut Html, text: &str, address: &str) {
        html.open("details", &[("class", "tool")]).open("summary", &[]).element("b", &[], "Instructions");
        html.element("code", &[("class", "cut"), ("dir", "auto")], &first_line(text));
        html.classed("span", "end", &count(text.split_whitespace().count() as u64, "word")).close("summary");
        self.folded(html, text, &format!("{address}/content"));
        html.close("details");
    }

    /// Adds what an edit replaced.
    fn edit(&self, html: &mut Html, row: &TalkRow, value: &Value, address: &str) {
        let Some(before) = &row.before else { return };
        html.open("details", &[("class", "edited")]).element("summary", &[], "edited; the text before");
        let (old, new) = (whole(before), whole(value));
        html.open("p", &[("dir", "auto")]);
        let max = self.max(FOLDED_CHARS_MAX);
        match changes(head_of(&old, max), head_of(&new, max), true) {
            Some(parts) => {
                for (tag, text) in parts {
                    match tag {
                        ChangeTag::Delete => html.open("del", &[]).value(&text).close("del"),
                        ChangeTag::Insert => html.open("ins", &[]).value(&text).close("ins"),
                        ChangeTag::Equal => html.value(&text),
                    };
                }
            }
            None => _ = html.open("del", &[]).value(head_of(&old, max)).close("del"),
        }
        html.close("p");
        if self.has_links {
            html.within("p", &[], |html| {
                _ = html.element("a", &[("href", address), ("class", "link")], "history of this message");
            });
        }
        html.close("details");
    }

    /// Adds a call of a tool with its result.
    fn call(&self, html: &mut Html, call: &Value, result: Option<&TalkRow>, address: &str) {
        let tool = text_of(call, "name").unwrap_or("?");
        let args = call.get("args").cloned().unwrap_or_default();
        let value = result.and_then(TalkRow::value);
        let is_failed = value.is_some_and(is_error);
        let mut attributes = vec![("class", "tool")];
        let anchor = result.map(TalkRow::anchor);
        attributes.extend(anchor.as_deref().map(|anchor| ("id", anchor)));
        attributes.extend(is_failed.then_some(("open", "")));
        html.open("details", &attributes).open("summary", &[]);
        let class = if is_failed { "failed" } else { "" };
        html.element("b", &[("class", class), ("dir", "auto")], &shortened(tool, 60));
        html.element("code", &[("class", "cut"), ("dir", "auto")], &one_line(&args));
        if let Some(thread) = text_of(call, "id").and_then(|id| self.started.get(id)).filter(|_| self.has_links) {
            html.element("a", &[("class", "label"), ("href", &address::thread(thread))], "helper");
        }
        match value {
            Some(value) => outcome(html, &whole(value), is_failed),
            None => _ = html.classed("span", "end", ""),
        }
        html.close("summary");
        if !fits_one_line(&args) {
            self.folded(html, &format!("{:#}", args.to_json()), address);
        }
        if let Some((row, value)) = result.zip(value) {
            let address = address::state(&address::point(self.at), [self.channel, &row.item.position.to_string()]);
            self.folded(html, &whole(value), &format!("{address}/content"));
        }
        html.close("details");
    }

    /// Adds the result of a tool whose call is not on this page.
    fn result_alone(&self, html: &mut Html, value: &Value, address: &str) {
        let (text, is_failed) = (whole(value), is_error(value));
        let mut attributes = vec![("class", "tool")];
        attributes.extend(is_failed.then_some(("open", "")));
        html.open("details", &attributes).open("summary", &[]);
        html.element("b", &[("class", if is_failed { "failed" } else { "" })], "result");
        html.element("code", &[("class", "cut"), ("dir", "auto")], &first_line(&text));
        outcome(html, &text, is_failed);
        html.close("summary");
        self.folded(html, &text, &format!("{address}/content"));
        html.close("details");
    }

    fn is_folded(&self, row: &TalkRow) -> bool {
        self.folded.as_ref().is_some_and(|folded| folded.holds(row.item.position))
    }

    /// Adds the border between the folded messages and the tail, with what a model sees in their place.
    fn summary(&self, html: &mut Html) {
        let Some(folded) = &self.folded else { return };
        html.open("li", &[("class", "gone")]);
        html.element("span", &[], "folded up to here: the model sees a summary").close("li");
        let channel = FoldedMessages::channel_of(self.channel);
        let address = address::state(&address::point(self.at), [&*channel, "summary"]);
        for message in &folded.summary {
            let text = message.text();
            html.open("li", &[("class", "msg sys"), ("data-row", "")]).open("header", &[]).element("b", &[], "Summary");
            html.close("header").open("div", &[("class", "said")]);
            self.prose(html, &text, &address, false);
            html.close("div").open("footer", &[]).close("footer").close("li");
        }
    }

    /// Adds half an answer: a message that is streamed, or was cut off.
    fn half(&self, html: &mut Html, half: &PartialMessage) {
        let value = Value::Map(half.message.to_map());
        let role = TalkRole::of(half.message.kind());
        let class = format!("msg{}{}", role.class(), if self.tree.count > 1 { " own" } else { "" });
        html.open("li", &[("class", &class), ("data-row", "")]).open("header", &[]);
        html.element("b", &[], role.word().unwrap_or("Message"));
        self.time(html, half.updated);
        html.close("header").open("div", &[("class", "said")]);
        let address = format!("{}/step", address::point(self.at));
        html.within("div", &[("class", "half")], |html| self.content(html, &value, &address, false));
        calls(&value).for_each(|call| self.call(html, call, None, &address));
        let words = half.message.text().split_whitespace().count() as u64;
        html.classed("p", "small dim", &format!("half an answer, {}", count(words, "word")));
        html.close("div").open("footer", &[]);
        self.maybe_link(html, &address, |html| _ = html.text(&format!("step {}", self.at.step())));
        html.close("footer").close("li");
    }
}

/// Who said a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TalkRole {
    You,
    Agent,
    System,
    Tool,
    Other,
}

impl TalkRole {
    fn of(kind: &str) -> Self {
        match kind {
            "human" => Self::You,
            "ai" => Self::Agent,
            "system" | "developer" => Self::System,
            "tool" => Self::Tool,
            _ => Self::Other,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::You => " human",
            Self::System => " sys",
            _ => "",
        }
    }

    /// Returns the word for the role; `None` for a type that is not known.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::You => Some("You"),
            Self::Agent => Some("Agent"),
            Self::System => Some("System"),
            Self::Tool => Some("Tool"),
            Self::Other => None,
        }
    }
}

fn text_of<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

fn calls(value: &Value) -> impl Iterator<Item = &Value> {
    value.get("tool_calls").and_then(Value::as_list).unwrap_or_default().iter()
}

fn thought(block: &Value) -> Option<&str> {
    ["reasoning", "thinking"].iter().find_map(|name| text_of(block, name))
}

fn is_error(value: &Value) -> bool {
    text_of(value, "status") == Some("error")
}

/// Returns all texts of a message.
fn whole(value: &Value) -> String {
    match value.get("content") {
        Some(Value::Str(text)) => text.clone(),
        Some(Value::List(blocks)) => {
            let texts = blocks.iter().filter_map(|block| block.as_str().or_else(|| text_of(block, "text")));
            texts.collect::<Vec<_>>().join("\n\n")
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => format!("{:#}", other.to_json()),
    }
}

/// Returns the begin of the words of a message.
fn begin(value: &Value) -> String {
    let text = match value.get("content") {
        Some(Value::Str(text)) => head_of(text, 4 * TURN_CHARS_MAX).to_owned(),
        _ => head_of(&whole(value), 4 * TURN_CHARS_MAX).to_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the first characters of a text.
fn head_of(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

fn first_line(text: &str) -> String {
    shortened(text.trim_start().lines().next().unwrap_or_default(), 200)
}

/// Returns the arguments of a call on one line: the one text of a call that has one, else all as JSON.
fn one_line(args: &Value) -> String {
    if let Some(map) = args.as_map() {
        let mut members = map.iter();
        if let (Some((_, Value::Str(text))), None) = (members.next(), members.next()) {
            return first_line(text);
        }
        if map.iter().next().is_none() {
            return String::new();
        }
    }
    shortened(&args.to_json().to_string(), 200)
}

/// Returns whether the line of a call says all of its arguments.
fn fits_one_line(args: &Value) -> bool {
    let Some(map) = args.as_map() else { return false };
    let mut members = map.iter();
    match (members.next(), members.next()) {
        (None, _) => true,
        (Some((_, Value::Str(text))), None) => first_line(text) == *text && text.chars().count() <= TURN_CHARS_MAX,
        _ => false,
    }
}

/// Adds the outcome of a tool at the end of its line: its text if that is short, else its number of lines.
fn outcome(html: &mut Html, text: &str, is_failed: bool) {
    let class = if is_failed { "end failed" } else { "end" };
    let text = text.trim();
    let lines = text.lines().count() as u64;
    let words = match lines {
        0 => "no output".to_owned(),
        1 if text.chars().count() <= OUTCOME_CHARS_MAX => text.to_owned(),
        1 => size(text.len() as u64),
        lines => count(lines, "line"),
    };
    html.element("span", &[("class", class), ("dir", "auto")], &words);
}

fn code_box(html: &mut Html, text: &str) {
    html.open("div", &[("class", "code")]).open("pre", &[("dir", "auto")]);
    html.open("code", &[]).value(text).close("code").close("pre").close("div");
}

/// Says how much of a text is shown, with a link to all of it.
fn rest(html: &mut Html, shown: &str, text: &str, address: &str) {
    html.within("p", &[("class", "small dim")], |html| {
        html.text(&format!("the first {} of {} · ", size(shown.len() as u64), size(text.len() as u64)));
        html.element("a", &[("href", &format!("{address}?raw=1"))], "all of it");
    });
}
