//! The messages at a point: who, when, by which step, with tool calls folded and edits shown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals::base::Value;
use annals::history::{Damaged, ListItem, PartialMessage, Snapshot};
use annals::store::{ItemRange, StoreError};
use annals_runs::ThreadRuns as _;
use annals_view::words::{count, place, shortened};
use annals_view::{folded_document, folded_messages};
use serde_json::{Value as Json, json};

use super::heading::{heading, name, tabs};
use super::message::{MessageOrigin, TalkRow, TalkRows};
use super::tree::BranchTree;
use super::{Screen, Shown};
use crate::address::{self, encode};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{MARKDOWN_BYTES_MAX, MESSAGES_MAX};
use crate::markdown;

/// Messages of a page whose text before an edit is read.
const EDITED: usize = 16;
/// Versions of the list that a search for edits visits.
const WALKED: usize = 500;

pub(super) fn show(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    let channel = match screen.query.get("channel") {
        Some(channel) => Some(Arc::from(channel)),
        None => message_channel(at)?,
    };
    let Some(channel) = channel else {
        if screen.json {
            return Err(Refusal::not_found("no channel holds messages at this point"));
        }
        let (thread, mut html) = (screen.thread(at)?, Html::new());
        let info = thread.info()?;
        heading(&mut html, &thread, &info, at, &BranchTree::read(&thread)?)?;
        tabs(&mut html, at, "talk");
        html.within("div", &[("class", "empty")], |html| {
            html.literal("<b>no channel holds messages at this point</b>");
        });
        return Ok(View::new(name(&info), html).live(thread.id().as_str()).into());
    };
    match screen.query.get("format") {
        Some("markdown") => return markdown(screen, at, &channel).map(Shown::Text),
        Some(format) => return Err(Refusal::usage(format!("{} is not a format: markdown", shortened(format, 40)))),
        None => {}
    }
    let items = page(screen, at, &channel)?;
    if screen.json {
        return document(at, &channel, &items).map(Shown::Json);
    }
    // A page whose messages were all removed has an earlier one as well.
    let first = match screen.query.number("before") {
        Some(before) => before.saturating_sub(MESSAGES_MAX as u64),
        None => items.first().map_or(0, |item| item.position),
    };
    let rows = rows(at, &channel, items)?;
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let (info, tree) = (thread.info()?, BranchTree::read(&thread)?);
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "talk");
    let all = format!("{}/talk?format=markdown&channel={}", address::point(at), encode(&channel));
    html.open("p", &[("class", "facts")]);
    html.within("span", &[], |html| {
        html.isolated(&shortened(&channel, 60)).text(&format!(": {}", count(at.len(&channel).unwrap_or(0), "message")));
    });
    html.within("span", &[], |html| _ = html.element("a", &[("href", &all), ("class", "link")], "Markdown"));
    html.element(
        "button",
        &[("type", "button"), ("class", "copy btn bare"), ("data-copy-from", &all)],
        "copy as Markdown",
    );
    html.close("p");
    if first > 0 {
        let address = format!("{}/talk?channel={}&before={first}", address::point(at), encode(&channel));
        html.within("p", &[("class", "next")], |html| _ = html.link(&address, "earlier messages"));
    }
    let halves = if screen.query.number("before").is_none() { at.partials()? } else { Vec::new() };
    let halves: Vec<PartialMessage> = halves.into_iter().filter(|half| *half.channel == *channel).collect();
    if rows.is_empty() && halves.is_empty() {
        html.within("p", &[("class", "empty")], |html| _ = html.literal("<b>No message is here.</b>"));
    } else {
        let folded = folded_messages(at, &channel)?;
        let linked = thread.linked_threads()?.into_iter();
        let started = linked.filter_map(|linked| Some((linked.call?, linked.thread))).collect();
        let rows = TalkRows { at, channel: &channel, tree: &tree, rows, halves, folded, started, has_links: true };
        rows.add_to(&mut html, first == 0);
    }
    Ok(View::new(format!("{} talk", name(&info)), html).live(thread.id().as_str()).into())
}

/// Returns messages at a point as JSON, with those of the model in place of folded ones, and half answers.
fn document(at: &Snapshot, channel: &str, items: &[ListItem<Value>]) -> Result<Json, Refusal> {
    let mut document = place(at);
    document["schema"] = json!(1);
    document["channel"] = json!(channel);
    document["messages"] = items.iter().filter_map(|item| Some(item.item.as_ref().ok()?.to_json())).collect();
    document["folded"] = folded_messages(at, channel)?.as_ref().map_or(Json::Null, folded_document);
    let halves = at.partials()?.into_iter().filter(|half| *half.channel == *channel);
    document["partials"] = halves.map(|half| Value::Map(half.message.to_map()).to_json()).collect();
    Ok(document)
}

/// Returns all messages at a point as Markdown, read in pages, as far as they fit.
fn markdown(screen: &Screen<'_>, at: &Snapshot, channel: &str) -> Result<String, Refusal> {
    let mut positions = Vec::new();
    at.visit_items(channel, ItemRange::All, |row| {
        positions.push(row.position);
        Ok(())
    })?;
    let info = screen.thread(at)?.info()?;
    let mut folded = folded_messages(at, channel)?;
    let mut document = String::new();
    markdown::add_heading(&mut document, "#", &name(&info));
    document.push_str(&format!("\n{}, step {}, {}\n", at.id(), at.step(), at.created_at()));
    for page in positions.chunks(MESSAGES_MAX) {
        let (Some(first), Some(last)) = (page.first(), page.last()) else { continue };
        let range = ItemRange::Positions(*first, last.saturating_add(1));
        for item in at.read_items(channel, range, Damaged::Placeholder)? {
            if document.len() > MARKDOWN_BYTES_MAX {
                markdown::add_heading(&mut document, "##", "(further messages: annals export, format markdown)");
                return Ok(document);
            }
            if let Some(folded) = folded.take_if(|folded| folded.positions().end <= item.position) {
                markdown::add_folded(&mut document, &folded.summary);
            }
            match &item.item {
                Ok(message) => markdown::add_message(&mut document, &message.to_json()),
                Err(placeholder) => markdown::add_heading(&mut document, "##", &placeholder.to_string()),
            }
        }
    }
    if let Some(folded) = folded {
        markdown::add_folded(&mut document, &folded.summary);
    }
    Ok(document)
}

/// Returns the first channel that holds messages.
pub(super) fn message_channel(at: &Snapshot) -> Result<Option<Arc<str>>, annals::Error> {
    let channels = at.channels()?;
    for channel in &channels {
        let mut is_messages = false;
        at.visit_items(channel, ItemRange::Tail(1), |row| {
            is_messages = row.payload.index.is_some_and(|index| index.kind.is_some());
            Ok(())
        })?;
        if is_messages {
            return Ok(Some(channel.clone()));
        }
    }
    if let Some(channel) = channels.into_iter().find(|channel| &**channel == "messages") {
        return Ok(Some(channel));
    }
    // The first message of a thread may be half an answer.
    Ok(at.partials()?.into_iter().next().map(|half| half.channel.into()))
}

/// Reads the newest messages, or those before a position.
fn page(screen: &Screen<'_>, at: &Snapshot, channel: &str) -> Result<Vec<ListItem<Value>>, Refusal> {
    let range = match screen.query.number("before") {
        Some(before) => ItemRange::Positions(before.saturating_sub(MESSAGES_MAX as u64), before),
        None => ItemRange::Tail(MESSAGES_MAX),
    };
    let items = at.read_items(channel, range, Damaged::Placeholder)?;
    debug_assert!(items.is_sorted_by(|a, b| a.position < b.position), "messages are in order");
    Ok(items)
}

/// Adds to each message its writer, the text before an edit, and the messages removed before it.
pub(super) fn rows(at: &Snapshot, channel: &str, items: Vec<ListItem<Value>>) -> Result<Vec<TalkRow>, StoreError> {
    let Some((first, last)) = items.first().zip(items.last()).map(|(a, b)| (a.position, b.position)) else {
        return Ok(Vec::new());
    };
    let mut written: HashMap<u64, (u64, Option<u32>)> = HashMap::new();
    let range = ItemRange::Positions(first, last.saturating_add(1));
    // A damaged item ends the visit; the messages are shown without the writers after it.
    _ = at.visit_items(channel, range, |row| {
        written.insert(row.position, (row.ordinal, row.task));
        Ok(())
    });
    let writers = writers(at, written.values().map(|(ordinal, _)| *ordinal))?;
    let edited = edited(at, channel, &written)?;
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let place = written.get(&item.position).copied();
        let id = item.item.as_ref().ok().and_then(|value| value.get("id")).and_then(Value::as_str);
        let mut before = None;
        if let (true, Some(id)) = (edited.contains(&item.position), id) {
            before = at.item_evolution(channel, id)?.nth(1).transpose()?.and_then(|version| version.value);
        }
        let by = place.and_then(|(ordinal, task)| writer(&writers, ordinal, task));
        rows.push(TalkRow { item, by, before, removed: 0 });
    }
    let mut expected = None;
    for row in &mut rows {
        row.removed = expected.map_or(0, |expected: u64| row.item.position.saturating_sub(expected));
        expected = Some(row.item.position + 1);
    }
    Ok(rows)
}

/// Returns the positions of messages that a checkpoint before their writer may have written too. The versions of the
/// list name the positions; the walk goes as far back as the oldest of the writers, and has an end.
fn edited(
    at: &Snapshot,
    channel: &str,
    written: &HashMap<u64, (u64, Option<u32>)>,
) -> Result<HashSet<u64>, StoreError> {
    let Some(oldest) = written.values().map(|(ordinal, _)| *ordinal).min() else { return Ok(HashSet::new()) };
    let (mut found, mut visited) = (HashSet::new(), 0);
    at.visit_versions(Some(channel), oldest, |version| {
        visited += 1;
        for (position, (ordinal, _)) in written {
            let holds = version.positions.as_ref().is_some_and(|positions| positions.contains(position));
            if holds && version.channel.ordinal < *ordinal && found.len() < EDITED {
                found.insert(*position);
            }
        }
        Ok(visited < WALKED)
    })?;
    debug_assert!(found.iter().all(|position| written.contains_key(position)), "an edited message is on the page");
    Ok(found)
}

/// Reads the checkpoints with some ordinals and their parents, by ordinal.
fn writers(at: &Snapshot, ordinals: impl Iterator<Item = u64>) -> Result<HashMap<u64, Snapshot>, StoreError> {
    let mut wanted: Vec<u64> = ordinals.flat_map(|ordinal| [ordinal, ordinal.saturating_sub(1)]).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let found = at.ancestors(&wanted)?;
    Ok(found.into_iter().flatten().map(|writer| (writer.record().ordinal, writer)).collect())
}

fn writer(writers: &HashMap<u64, Snapshot>, ordinal: u64, task: Option<u32>) -> Option<MessageOrigin> {
    let at = writers.get(&ordinal)?.clone();
    let parent = ordinal.checked_sub(1).and_then(|before| writers.get(&before));
    let node = task.and_then(|task| parent?.record().tasks.get(task as usize)).map(|task| task.name.to_string());
    Some(MessageOrigin { at, node })
}
