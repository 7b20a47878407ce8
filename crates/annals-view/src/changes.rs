//! The channels that a checkpoint changed, found in the log without decoding any value.
//!
//! Invariant: the cost is that of the changes, whatever the length of the lists.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use annals::base::limits::MAP_POSITION_MIN;
use annals::base::{Namespace, ThreadId};
use annals::history::Snapshot;
use annals::store::record::{ChannelValue, is_control};
use annals::store::{ItemRange, Source, StoreError};
use serde_json::{Value as Json, json};

use crate::limits::BEGIN_CHARS_MAX;
use crate::words::{count, shortened};

/// The changes of one channel by one checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChangedChannel {
    /// The channel.
    pub channel: Arc<str>,
    /// The numbers of new and of edited items of a list; `None` for a channel with one value.
    pub items: Option<(u64, u64)>,
    /// True if an item is a message.
    pub is_messages: bool,
    /// Bytes of the encoded values and items.
    pub bytes: u64,
    /// The role and the first characters of the first new message with a text.
    pub begin: Option<(String, String)>,
    /// Tokens read and written, as the messages among the items state them.
    pub tokens: (u64, u64),
}

/// Returns whether a channel belongs to the state: those that trigger nodes do not.
pub fn is_state(channel: &str) -> bool {
    !is_control(channel)
}

/// The changes of a checkpoint before the items of its lists are read.
#[derive(Default)]
struct Versions {
    steps: Vec<ChangedChannel>,
    /// The lists among the steps, each with the positions of its items.
    lists: Vec<(usize, Range<u64>)>,
}

/// Returns the channels that a checkpoint changed, messages first. At most `items_max` stored positions of a list are
/// read.
///
/// # Errors
/// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let thread = Store::memory().thread("trip")?;
/// thread.append("messages", [Message::human("A hotel in Bern?")])?;
/// let changed = annals_view::changes(&thread.at("@")?, None, 1_000)?;
/// assert_eq!((changed[0].text(), changed[0].items), ("+1 message".to_owned(), Some((1, 0))));
/// # Ok(())
/// # }
/// ```
pub fn changes(at: &Snapshot, parent: Option<&Snapshot>, items_max: u64) -> Result<Vec<ChangedChannel>, StoreError> {
    if at.source() == Source::Fork {
        return Ok(Vec::new());
    }
    let versions = versions(at, at.record().ordinal)?.remove(&at.record().ordinal);
    versions.unwrap_or_default().read(at, parent, items_max)
}

/// Returns the channels that each of some checkpoints changed, as [`changes`] does without the parents. The versions of
/// a branch are read together.
///
/// # Errors
/// As [`changes`].
pub fn changes_of_all(snapshots: &[Snapshot], items_max: u64) -> Result<Vec<Vec<ChangedChannel>>, StoreError> {
    let branch = |at: &Snapshot| (at.point().thread.clone(), at.point().namespace.clone(), at.record().branch);
    // The newest checkpoint of each branch, and the least ordinal.
    let mut ends: HashMap<(ThreadId, Namespace, u64), (&Snapshot, u64)> = HashMap::new();
    for at in snapshots {
        let ordinal = at.record().ordinal;
        let end = ends.entry(branch(at)).or_insert((at, ordinal));
        end.0 = if ordinal > end.0.record().ordinal { at } else { end.0 };
        end.1 = end.1.min(ordinal);
    }
    let mut found = HashMap::new();
    for (branch, (newest, down_to)) in ends {
        found.insert(branch, versions(newest, down_to)?);
    }
    let mut all = Vec::with_capacity(snapshots.len());
    for at in snapshots {
        let versions = found.get_mut(&branch(at)).and_then(|branch| branch.remove(&at.record().ordinal));
        let versions = versions.filter(|_| at.source() != Source::Fork);
        all.push(versions.unwrap_or_default().read(at, None, items_max)?);
    }
    Ok(all)
}

/// Returns the versions of a lineage from a checkpoint down to an ordinal, by their ordinals.
fn versions(at: &Snapshot, down_to: u64) -> Result<HashMap<u64, Versions>, StoreError> {
    let mut all: HashMap<u64, Versions> = HashMap::new();
    at.visit_versions(None, down_to, |version| {
        let record = &version.channel;
        if record.ordinal < down_to || !is_state(&record.channel) {
            return Ok(true);
        }
        let bytes = if let ChannelValue::Value(payload) = &record.value { payload.data.len() as u64 } else { 0 };
        let channel = Arc::clone(&record.channel);
        let Versions { steps, lists } = all.entry(record.ordinal).or_default();
        lists.extend(version.positions.clone().map(|positions| (steps.len(), positions)));
        steps.push(ChangedChannel { channel, items: None, is_messages: false, bytes, begin: None, tokens: (0, 0) });
        Ok(true)
    })?;
    debug_assert!(all.keys().all(|ordinal| (down_to..=at.record().ordinal).contains(ordinal)));
    Ok(all)
}

impl Versions {
    /// Reads the items of the lists that a checkpoint changed.
    fn read(self, at: &Snapshot, parent: Option<&Snapshot>, items_max: u64) -> Result<Vec<ChangedChannel>, StoreError> {
        let Self { mut steps, lists } = self;
        for (index, positions) in lists {
            let step: &mut ChangedChannel = &mut steps[index];
            let mut end = None;
            if let Some(parent) = parent {
                parent.visit_items(&step.channel, ItemRange::Tail(1), |row| {
                    end = Some(row.position);
                    Ok(())
                })?;
            }
            // The positions of a map are spread, those of a list follow each other.
            let is_list = positions.start < MAP_POSITION_MIN;
            let last = if is_list { positions.start.saturating_add(items_max) } else { u64::MAX };
            let range = ItemRange::Positions(positions.start, positions.end.min(last));
            let (mut added, mut edited) = (0, 0);
            let channel = Arc::clone(&step.channel);
            at.visit_items(&channel, range, |row| {
                if row.ordinal != at.record().ordinal {
                    return Ok(());
                }
                let is_new = end.is_none_or(|end| row.position > end);
                *(if is_new { &mut added } else { &mut edited }) += 1;
                step.bytes += row.payload.data.len() as u64;
                if let Some(index) = row.payload.index {
                    step.is_messages |= index.kind.is_some();
                    step.bytes += index.text.map_or(0, |text| text.len() as u64);
                    let said = index.kind.zip(index.text.filter(|text| is_new && !text.trim().is_empty()));
                    if let (None, Some((role, text))) = (&step.begin, said) {
                        step.begin = Some((role.to_owned(), shortened(text.trim_start(), BEGIN_CHARS_MAX)));
                    }
                    step.tokens.0 += u64::from(index.input_tokens.unwrap_or(0));
                    step.tokens.1 += u64::from(index.output_tokens.unwrap_or(0));
                }
                Ok(())
            })?;
            step.items = Some((added, edited));
        }
        steps.sort_by(|a, b| (!a.is_messages, &a.channel).cmp(&(!b.is_messages, &b.channel)));
        debug_assert!(steps.iter().all(|step| is_state(&step.channel)), "channels that trigger nodes are not shown");
        Ok(steps)
    }
}

impl ChangedChannel {
    /// Returns a short text: `+1 message`, `notes +12`, `plan`.
    pub fn text(&self) -> String {
        let Some((added, edited)) = self.items else { return self.channel.to_string() };
        let mut words = Vec::new();
        if self.is_messages {
            words.extend((added > 0).then(|| format!("+{}", count(added, "message"))));
            words.extend((edited > 0).then(|| format!("~{}", count(edited, "message"))));
        } else {
            words.extend((added > 0).then(|| format!("{} +{added}", self.channel)));
            words.extend((edited > 0).then(|| format!("{} ~{edited}", self.channel)));
        }
        if words.is_empty() { format!("{} -", self.channel) } else { words.join(" ") }
    }

    /// Returns the document of the changes: `{"channel", "added"?, "edited"?}`.
    pub fn document(&self) -> Json {
        match self.items {
            None => json!({ "channel": &*self.channel }),
            Some((added, edited)) => json!({ "channel": &*self.channel, "added": added, "edited": edited }),
        }
    }
}
