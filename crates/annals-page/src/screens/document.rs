//! A conversation as one HTML document that is read without a server: the style is inside, nothing is loaded and no
//! script runs. The messages are read and written in pages, so that the memory does not grow with them.

use std::io::Write;
use std::sync::Arc;

use annals::history::{Damaged, Snapshot};
use annals::store::ItemRange;
use annals::store::record::ChannelValue;
use data_encoding::BASE64;
use sha2::{Digest, Sha256};

use super::message::TalkRows;
use super::talk::{message_channel, rows};
use super::tree::BranchTree;
use crate::changed::is_state;
use crate::failure::{PageError, Refusal};
use crate::html::Html;
use crate::limits::MESSAGES_MAX;
use crate::page::STYLE;
use crate::values::kind;
use crate::words::{count, shortened};

/// Writes the messages at a point as one HTML document that is read without a server, in the look of the pages:
/// Markdown rendered, tools and the other channels of the state folded. Its policy allows the style inside it by its
/// hash and nothing else. `channel` is that of the messages; `None` stands for the first one that holds messages.
/// Returns the number of messages.
///
/// # Errors
/// [`PageError::Document`] if the point has no messages, the store cannot be read, or `out` cannot be written.
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
    let unread = |refusal: Refusal| PageError::Document { reason: refusal.message };
    let unwritten = |error: std::io::Error| PageError::Document { reason: error.to_string() };
    let channel: Arc<str> = match channel {
        Some(channel) => channel.into(),
        None => {
            let absent = || PageError::Document { reason: "no channel holds messages at this point".into() };
            message_channel(at).map_err(unread)?.ok_or_else(absent)?
        }
    };
    let mut positions = Vec::new();
    let visited = at.visit_items(&channel, ItemRange::All, |row| {
        positions.push(row.position);
        Ok(())
    });
    visited.map_err(|error| unread(error.into()))?;
    out.write_all(begin(at, &channel, positions.len() as u64).map_err(unread)?.as_bytes()).map_err(unwritten)?;
    let thread = at.store().thread(at.point().thread.as_str()).map_err(|error| unread(error.into()))?;
    let tree =
        BranchTree::read(&thread.with_namespace(at.point().namespace.clone())).map_err(|error| unread(error.into()))?;
    let pages = positions.chunks(MESSAGES_MAX);
    let last = pages.len();
    for (number, page) in pages.enumerate() {
        let (Some(from), Some(to)) = (page.first(), page.last()) else { continue };
        let range = ItemRange::Positions(*from, to.saturating_add(1));
        let items = at.read_items(&channel, range, Damaged::Placeholder).map_err(|error| unread(error.into()))?;
        let mut part = talk_rows(at, &channel, &tree);
        part.rows = rows(at, &channel, items).map_err(unread)?;
        if number + 1 == last {
            let halves = at.partials().map_err(|error| unread(error.into()))?;
            part.halves = halves.into_iter().filter(|half| *half.channel == *channel).collect();
        }
        let mut html = Html::new();
        part.items(&mut html);
        out.write_all(html.into_markup().as_bytes()).map_err(unwritten)?;
    }
    out.write_all(b"</ol></div></main></body></html>\n").map_err(unwritten)?;
    Ok(positions.len() as u64)
}

fn talk_rows<'t>(at: &'t Snapshot, channel: &'t str, tree: &'t BranchTree) -> TalkRows<'t> {
    // Another value under that name folds nothing.
    let folded = at.folded(channel).ok().flatten();
    TalkRows { at, channel, tree, rows: Vec::new(), halves: Vec::new(), folded, has_links: false }
}

/// Returns the document up to its first message.
fn begin(at: &Snapshot, channel: &str, messages: u64) -> Result<String, Refusal> {
    let info = at.store().thread(at.point().thread.as_str())?.info()?;
    let words = if info.title().is_none() { at.first_words().unwrap_or_default() } else { None };
    let title = shortened(info.title().or(words.as_deref()).unwrap_or(info.id().as_str()), 120);
    let hash = BASE64.encode(&Sha256::digest(STYLE.as_bytes()));
    let policy = format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'");
    let mut html = Html::new();
    html.literal("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.open("meta", &[("http-equiv", "Content-Security-Policy"), ("content", &policy)]);
    html.literal("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.literal("<meta name=\"referrer\" content=\"no-referrer\"><meta name=\"color-scheme\" content=\"light dark\">");
    html.element("title", &[], &title).literal("<style>").literal(STYLE).literal("</style></head><body><main>");
    html.open("div", &[("class", "head")]).element("h1", &[("dir", "auto")], &title);
    html.open("p", &[("class", "facts")]);
    html.within("span", &[("class", "id")], |html| _ = html.isolated(&shortened(info.id().as_str(), 80)));
    for fact in [
        info.facts().project.as_deref().map(|project| shortened(project, 40)),
        Some(count(messages, "message")),
        Some(format!("step {}", at.step())),
        Some(at.created_at().to_string()),
    ] {
        fact.into_iter().for_each(|fact| _ = html.within("span", &[], |html| _ = html.isolated(&fact)));
    }
    html.close("p").close("div");
    state(&mut html, at, channel)?;
    html.literal("<div class=\"talk alone\"><ol class=\"messages\">");
    Ok(html.into_markup())
}

/// Adds the other channels of the state, folded.
fn state(html: &mut Html, at: &Snapshot, messages: &str) -> Result<(), Refusal> {
    let state = at.state_record()?;
    let others = state.channels.iter().filter(|record| {
        is_state(&record.channel) && record.value != ChannelValue::Empty && *record.channel != *messages
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
