//! The channels that a checkpoint changed, found in the log without decoding any value.

use std::sync::Arc;

use annals::history::Snapshot;
use annals::store::record::ChannelValue;
use annals::store::{ItemRange, Source, StoreError};
use serde_json::{Value as Json, json};

use crate::output::{count, cut, escape};

/// A channel that a checkpoint changed.
#[derive(Debug)]
pub(crate) struct ChannelChange {
    pub(crate) channel: Arc<str>,
    /// The changes of a list; `None` for a channel with one value.
    items: Option<ItemCounts>,
}

#[derive(Debug, Default)]
struct ItemCounts {
    added: usize,
    edited: usize,
    messages: bool,
    /// The role and the first words of the first new message, with its position.
    first: Option<(u64, String)>,
}

/// The number of items at the end of a list that are read first.
const WINDOW: usize = 4;
/// The cells of the first words of a message.
const WORDS_CELLS: usize = 56;

/// Returns the channels that a checkpoint changed, messages first.
pub(crate) fn changed(snapshot: &Snapshot, parent: Option<&Snapshot>) -> Result<Vec<ChannelChange>, StoreError> {
    if snapshot.source() == Source::Fork {
        return Ok(Vec::new());
    }
    let state = snapshot.state_record()?;
    if state.updated.is_empty() {
        return Ok(Vec::new());
    }
    let known = snapshot.channels()?;
    let mut all = Vec::new();
    for channel in state.updated.into_iter().filter(|channel| known.contains(channel)) {
        let record = state.channels.iter().find(|record| record.channel == channel);
        let is_list = record.is_some_and(|record| record.value == ChannelValue::Items);
        let items = if is_list { Some(items(snapshot, parent, &channel)?) } else { None };
        all.push(ChannelChange { channel, items });
    }
    all.sort_by_key(|changed| !changed.items.as_ref().is_some_and(|items| items.messages));
    Ok(all)
}

/// Counts the new and edited items of a list. The end is read first, and all of it only if the end has no change.
fn items(snapshot: &Snapshot, parent: Option<&Snapshot>, channel: &str) -> Result<ItemCounts, StoreError> {
    let mut old_end = None;
    if let Some(parent) = parent {
        parent.visit_items(channel, ItemRange::Tail(1), |row| {
            old_end = Some(row.position);
            Ok(())
        })?;
    }
    let ordinal = snapshot.record().ordinal;
    let mut window = WINDOW;
    loop {
        let (mut found, mut rows) = (ItemCounts::default(), 0);
        snapshot.visit_items(channel, ItemRange::Tail(window), |row| {
            rows += 1;
            found.messages |= row.payload.index.is_some_and(|index| index.kind.is_some());
            if row.ordinal == ordinal {
                let is_new = old_end.is_none_or(|end| row.position > end);
                *(if is_new { &mut found.added } else { &mut found.edited }) += 1;
                if is_new && found.first.as_ref().is_none_or(|(position, _)| row.position < *position) {
                    let words = row.payload.index.and_then(|index| first_words(index.kind?, index.text?));
                    found.first = words.map(|words| (row.position, words)).or(found.first.take());
                }
            }
            Ok(())
        })?;
        debug_assert!(found.added + found.edited <= rows);
        let nothing = found.added + found.edited == 0;
        if rows < window || !(nothing || found.added == rows) {
            return Ok(found);
        }
        window = if nothing { usize::MAX >> 1 } else { window.saturating_mul(16) };
    }
}

/// Returns the role and the first words of a message on one line; `None` of an empty text.
fn first_words(role: &str, text: &str) -> Option<String> {
    // Some characters are wider than a cell, and none is narrower than a quarter of one.
    let start: String = text.trim_start().chars().take(4 * WORDS_CELLS).collect();
    let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = |text: &str| cut(&escape(text), WORDS_CELLS).into_owned();
    (!line.is_empty()).then(|| format!("{}: {}", shown(role), shown(&line)))
}

impl ChannelChange {
    /// Returns the counts of a change: `messages | 2 added, 1 edited`, `plan | changed`.
    pub(crate) fn stat(&self) -> [String; 2] {
        let name = escape(&self.channel).into_owned();
        let Some(items) = &self.items else { return [name, "changed".into()] };
        let parts = [(items.added, "added"), (items.edited, "edited")];
        let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
        let parts = parts.collect::<Vec<_>>().join(", ");
        [name, if parts.is_empty() { "removed or moved".into() } else { parts }]
    }

    /// Returns a short text: `human: A hotel in Bern`, `+2 messages`, `notes +12`, `plan`.
    pub(crate) fn text(&self) -> String {
        let name = escape(&self.channel);
        let Some(items) = &self.items else { return name.into_owned() };
        let (added, edited) = (items.added, items.edited);
        let mut words = Vec::new();
        if items.messages {
            match &items.first {
                Some((_, first)) if added == 1 => words.push(first.clone()),
                Some((_, first)) => words.push(format!("{first} (+{})", count(added - 1, "message"))),
                None => words.extend((added > 0).then(|| format!("+{}", count(added, "message")))),
            }
            words.extend((edited > 0).then(|| format!("~{}", count(edited, "message"))));
        } else {
            words.extend((added > 0).then(|| format!("{name} +{added}")));
            words.extend((edited > 0).then(|| format!("{name} ~{edited}")));
        }
        if words.is_empty() { format!("{name} -") } else { words.join(" ") }
    }

    pub(crate) fn json(&self) -> Json {
        match &self.items {
            None => json!({ "channel": &*self.channel }),
            Some(items) => json!({ "channel": &*self.channel, "added": items.added, "edited": items.edited }),
        }
    }
}

/// Returns all changes as a short text.
pub(crate) fn text(all: &[ChannelChange]) -> String {
    all.iter().map(ChannelChange::text).collect::<Vec<_>>().join(", ")
}
