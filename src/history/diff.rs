//! The difference of two checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::Value;
use crate::store::{ChannelRecord, ChannelValue, ItemRange, StoreError};

use super::snapshot::{Snapshot, holds_state};

/// The difference of two checkpoints, channel by channel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diff {
    /// The channels that differ, by name.
    pub channels: Vec<ChannelDiff>,
    /// The number of channels that are equal.
    pub unchanged: usize,
}

impl Diff {
    /// Makes a difference of channels that differ, sorted by name, and the number of those that do not.
    pub fn new(channels: Vec<ChannelDiff>, unchanged: usize) -> Self {
        Self { channels, unchanged }
    }
}

/// How a channel differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChannelDiff {
    /// Only the second has it.
    Added {
        /// The channel.
        channel: Arc<str>,
        /// The value after.
        value: Value,
    },
    /// Only the first has it.
    Removed {
        /// The channel.
        channel: Arc<str>,
        /// The value before.
        value: Value,
    },
    /// Both have it, with different values.
    Changed {
        /// The channel.
        channel: Arc<str>,
        /// The value before.
        before: Value,
        /// The value after.
        after: Value,
    },
    /// Both have a list, with different items.
    Items {
        /// The channel.
        channel: Arc<str>,
        /// Items that only the second has, in order.
        added: Vec<Value>,
        /// Items that only the first has, in order.
        removed: Vec<Value>,
        /// Items with one id and different content: before and after.
        changed: Vec<(Value, Value)>,
    },
}

impl ChannelDiff {
    /// Returns the channel.
    pub fn channel(&self) -> &Arc<str> {
        match self {
            Self::Added { channel, .. }
            | Self::Removed { channel, .. }
            | Self::Changed { channel, .. }
            | Self::Items { channel, .. } => channel,
        }
    }
}

/// Compares the states at two checkpoints. Channels that both have from a common ancestor are not decoded.
///
/// # Errors
/// As [`Snapshot::values`].
pub fn diff(before: &Snapshot, after: &Snapshot) -> Result<Diff, StoreError> {
    let channels = |snapshot: &Snapshot| -> Result<BTreeMap<Arc<str>, ChannelRecord>, StoreError> {
        let channels = snapshot.state_record()?.channels.into_iter().filter(holds_state);
        Ok(channels.map(|channel| (Arc::clone(&channel.channel), channel)).collect())
    };
    let (old, mut new) = (channels(before)?, channels(after)?);
    let mut diff = Diff { channels: Vec::new(), unchanged: 0 };
    for (channel, old) in old {
        match new.remove(&channel) {
            None => diff.channels.push(ChannelDiff::Removed { channel, value: before.value_of(&old)? }),
            Some(new) => match compare(before, &old, after, &new)? {
                Some(change) => diff.channels.push(change),
                None => diff.unchanged += 1,
            },
        }
    }
    for (channel, new) in new {
        diff.channels.push(ChannelDiff::Added { channel, value: after.value_of(&new)? });
    }
    diff.channels.sort_by(|a, b| a.channel().cmp(b.channel()));
    Ok(diff)
}

fn compare(
    before: &Snapshot,
    old: &ChannelRecord,
    after: &Snapshot,
    new: &ChannelRecord,
) -> Result<Option<ChannelDiff>, StoreError> {
    let channel = Arc::clone(&old.channel);
    if let (ChannelValue::Items, ChannelValue::Items) = (&old.value, &new.value) {
        return compare_items(before, after, channel);
    }
    // Equal bytes are equal values.
    if old.value == new.value {
        return Ok(None);
    }
    let (before, after) = (before.value_of(old)?, after.value_of(new)?);
    Ok((before != after).then_some(ChannelDiff::Changed { channel, before, after }))
}

fn compare_items(before: &Snapshot, after: &Snapshot, channel: Arc<str>) -> Result<Option<ChannelDiff>, StoreError> {
    let old = before.items(&channel, ItemRange::All)?;
    let new = after.items(&channel, ItemRange::All)?;
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    if old.is_empty() && new.is_empty() {
        return Ok(None);
    }
    let id = |item: &Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
    let mut by_id: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let mut anonymous: Vec<&Value> = Vec::new();
    for item in old {
        match id(item) {
            Some(id) => by_id.entry(id).or_default().push(item),
            None => anonymous.push(item),
        }
    }
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for item in new {
        let twin = match id(item) {
            Some(id) => by_id.get_mut(&id).and_then(Vec::pop),
            None => anonymous.iter().position(|old| *old == item).map(|at| anonymous.remove(at)),
        };
        match twin {
            Some(old) if old == item => {}
            Some(old) => changed.push((old.clone(), item.clone())),
            None => added.push(item.clone()),
        }
    }
    let left: Vec<&Value> = by_id.into_values().flatten().chain(anonymous).collect();
    let removed = old.iter().filter(|item| left.iter().any(|left| std::ptr::eq(*left, *item))).cloned().collect();
    Ok(Some(ChannelDiff::Items { channel, added, removed, changed }))
}
