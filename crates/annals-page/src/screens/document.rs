//! A thread as one HTML document that is read without a server: the style is inside, nothing is loaded and no script
//! runs. The messages are read and written in pages, so that the memory does not grow with them.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use annals::history::{Damaged, Snapshot};
use annals::store::record::ChannelValue;
use annals::store::{ItemRange, StoreError};
use annals_view::folded_messages;
use annals_view::words::{count, shortened, stored_parent};
use annals_view::{ListedCheckpoint, is_state};
use data_encoding::BASE64;
use sha2::{Digest, Sha256};

use super::message::TalkRows;
use super::talk::{message_channel, rows};
use super::tree::BranchTree;
use crate::failure::PageError;
use crate::html::Html;
use crate::limits::{CHANGED_ITEMS_MAX, DOCUMENT_STEPS_MAX, FORKS_MAX, MESSAGES_MAX};
use crate::page::STYLE;
use crate::values::kind;

/// Writes the messages at a point as one HTML document that is read without a server, in the look of the pages:
/// Markdown rendered, tools and the other channels of the state folded. Its policy allows the style inside it by its
/// hash and nothing else. `channel` is that of the messages; `None` stands for the first one that holds messages, and
/// for the newest 1,000 steps of a thread without messages. Returns the number of messages.
///
/// # Errors
/// [`PageError::Read`] if the store cannot be read, [`PageError::Document`] if `out` cannot be written.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals_page::write_document;
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let thread = Store::memory().thread("trip")?;
/// thread.append("messages", [Message::human("A hotel in <Bern>"), Message::ai("The *Gasthof*")])?;
///
/// let mut document = Vec::new();
/// assert_eq!(write_document(&thread.head()?.expect("it was written"), None, &mut document)?, 2);
/// let document = String::from_utf8(document)?;
/// assert!(document.contains("A hotel in &lt;Bern&gt;") && document.contains("The <em>Gasthof</em>"));
/// assert!(!document.contains("<script") && !document.contains("href="));
/// # Ok(())
/// # }
/// ```
pub fn write_document(at: &Snapshot, channel: Option<&str>, out: &mut dyn Write) -> Result<u64, PageError> {
    write_framed(at, channel, &DocumentFrame::default(), out)
}

/// The parts of a document around its thread.
#[derive(Default)]
pub(crate) struct DocumentFrame<'a> {
    /// The mark of the program that wrote it.
    pub(crate) generator: &'a str,
    /// The address of the list of the threads.
    pub(crate) index: Option<&'a str>,
    /// Returns the address of the document of another thread.
    pub(crate) address: Option<fn(&str) -> String>,
}

/// Writes a document within its frame.
pub(crate) fn write_framed(
    at: &Snapshot,
    channel: Option<&str>,
    frame: &DocumentFrame<'_>,
    out: &mut dyn Write,
) -> Result<u64, PageError> {
    let unwritten = |error: std::io::Error| PageError::Document { reason: error.to_string() };
    let channel: Option<Arc<str>> = match channel {
        Some(channel) => Some(channel.into()),
        None => message_channel(at)?,
    };
    let mut positions = Vec::new();
    if let Some(channel) = &channel {
        let visited = at.visit_items(channel, ItemRange::All, |row| {
            positions.push(row.position);
            Ok(())
        });
        visited?;
    }
    let head = begin(at, channel.as_deref(), positions.len() as u64, frame)?;
    out.write_all(head.as_bytes()).map_err(unwritten)?;
    match &channel {
        Some(channel) => messages(at, channel, &positions, out)?,
        None => out.write_all(steps(at)?.into_markup().as_bytes()).map_err(unwritten)?,
    }
    out.write_all(b"</main></body></html>\n").map_err(unwritten)?;
    Ok(positions.len() as u64)
}

/// Writes the messages in pages.
fn messages(at: &Snapshot, channel: &str, positions: &[u64], out: &mut dyn Write) -> Result<(), PageError> {
    let unwritten = |error: std::io::Error| PageError::Document { reason: error.to_string() };
    let thread = at.store().thread(at.point().thread.as_str())?;
    let tree = BranchTree::read(&thread.with_namespace(at.point().namespace.clone()))?;
    out.write_all(b"<div class=\"talk alone\"><ol class=\"messages\">").map_err(unwritten)?;
    let folded = folded_messages(at, channel)?;
    let talk_rows = |rows, halves| {
        let folded = folded.clone();
        TalkRows { at, channel, tree: &tree, rows, halves, folded, started: HashMap::new(), has_links: false }
    };
    for page in positions.chunks(MESSAGES_MAX) {
        let (Some(from), Some(to)) = (page.first(), page.last()) else { continue };
        let range = ItemRange::Positions(*from, to.saturating_add(1));
        let items = at.read_items(channel, range, Damaged::Placeholder)?;
        let part = talk_rows(rows(at, channel, items)?, Vec::new());
        let mut html = Html::new();
        part.items(&mut html);
        out.write_all(html.into_markup().as_bytes()).map_err(unwritten)?;
    }
    // Half an answer may be the only message.
    let halves = at.partials()?.into_iter().filter(|half| *half.channel == *channel).collect();
    let part = talk_rows(Vec::new(), halves);
    let mut html = Html::new();
    part.items(&mut html);
    out.write_all(html.into_markup().as_bytes()).map_err(unwritten)?;
    out.write_all(b"</ol></div>").map_err(unwritten)
}

/// Returns the newest steps of a thread without messages.
fn steps(at: &Snapshot) -> Result<Html, StoreError> {
    let mut html = Html::new();
    html.open("div", &[("class", "section")]).element("h2", &[], "Steps").close("div");
    html.open("ol", &[("class", "followed")]);
    let mut left = DOCUMENT_STEPS_MAX;
    for step in at.lineage() {
        let step = step?;
        if left == 0 {
            html.open("li", &[]).literal("<span></span>").classed("span", "dim", "older steps").close("li");
            break;
        }
        left -= 1;
        let parent = stored_parent(&step)?;
        let step = ListedCheckpoint::read(step, parent, String::new(), false, CHANGED_ITEMS_MAX)?;
        html.open("li", &[]).classed("span", "num dim", &step.at.step().to_string()).open("span", &[]);
        html.open("b", &[]).isolated(&shortened(&step.made(), 80)).close("b").text(" ");
        html.text(&shortened(&step.changes_text(), 200)).close("span");
        html.time("num dim", None, step.at.created_at()).close("li");
    }
    html.close("ol");
    Ok(html)
}

/// Adds the head of a document that is read without a server, up to its content. The policy allows the style inside it
/// by its hash and nothing else.
pub(crate) fn document_head(html: &mut Html, title: &str, generator: &str) {
    let hash = BASE64.encode(&Sha256::digest(STYLE.as_bytes()));
    let policy = format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'");
    html.literal("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    if !generator.is_empty() {
        html.open("meta", &[("name", "generator"), ("content", generator)]);
    }
    html.open("meta", &[("http-equiv", "Content-Security-Policy"), ("content", &policy)]);
    html.literal("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.literal("<meta name=\"referrer\" content=\"no-referrer\"><meta name=\"color-scheme\" content=\"light dark\">");
    html.element("title", &[], title).literal("<style>").literal(STYLE).literal("</style></head><body><main>");
}

/// Returns the document up to its messages or steps.
fn begin(at: &Snapshot, channel: Option<&str>, messages: u64, frame: &DocumentFrame<'_>) -> Result<String, StoreError> {
    let thread = at.store().thread(at.point().thread.as_str())?;
    let info = thread.info()?;
    let words = if info.title().is_none() { at.first_words().unwrap_or_default() } else { None };
    let title = shortened(info.title().or(words.as_deref()).unwrap_or(info.id().as_str()), 120);
    let mut html = Html::new();
    document_head(&mut html, &title, frame.generator);
    if let Some(index) = frame.index {
        html.open("p", &[("class", "small dim")]);
        html.element("a", &[("href", index), ("class", "link")], "All threads").close("p");
    }
    html.open("div", &[("class", "head")]).element("h1", &[("dir", "auto")], &title);
    html.open("p", &[("class", "facts")]);
    html.within("span", &[("class", "id")], |html| _ = html.isolated(&shortened(info.id().as_str(), 80)));
    for fact in [
        info.facts.project.as_deref().map(|project| shortened(project, 40)),
        channel.is_some().then(|| count(messages, "message")),
        Some(format!("step {}", at.step())),
        Some(at.created_at().to_string()),
    ] {
        fact.into_iter().for_each(|fact| _ = html.within("span", &[], |html| _ = html.isolated(&fact)));
    }
    if let Some(from) = thread.forked_from()? {
        html.open("span", &[]).text("forked from ");
        related(&mut html, from.thread.as_str(), frame);
        html.close("span");
    }
    let forks = thread.forks()?;
    for (at, fork) in forks.iter().take(FORKS_MAX).enumerate() {
        html.open("span", &[]).text(if at == 0 { "forked: " } else { "" });
        related(&mut html, fork.as_str(), frame);
        html.close("span");
    }
    html.close("p").close("div");
    state(&mut html, at, channel)?;
    Ok(html.into_markup())
}

/// Adds the name of another thread, which is a link if it has a document.
fn related(html: &mut Html, thread: &str, frame: &DocumentFrame<'_>) {
    let shown = shortened(thread, 40);
    match frame.address {
        Some(address) => {
            html.element("a", &[("href", &address(thread)), ("class", "link"), ("dir", "auto")], &shown);
        }
        None => _ = html.isolated(&shown),
    }
}

/// Adds the other channels of the state, folded.
fn state(html: &mut Html, at: &Snapshot, messages: Option<&str>) -> Result<(), StoreError> {
    let state = at.state_record()?;
    let others = state.channels.iter().filter(|record| {
        is_state(&record.channel) && record.value != ChannelValue::Empty && Some(&*record.channel) != messages
    });
    for record in others {
        let value = at.get(&record.channel)?.unwrap_or_default();
        html.open("details", &[("class", "chan")]).open("summary", &[]);
        html.open("span", &[("class", "strong")]).isolated(&shortened(&record.channel, 60)).close("span");
        html.classed("span", "dim", &kind(&value)).close("summary").open("div", &[("class", "code")]);
        html.open("pre", &[("dir", "auto")]).value(&format!("{:#}", value.to_json())).close("pre");
        html.close("div").close("details");
    }
    Ok(())
}
