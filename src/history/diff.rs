//! The difference of two checkpoints.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
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
    let mut twins: HashMap<TwinKey<'_>, VecDeque<usize>> = HashMap::new();
    for (at, item) in old.iter().enumerate() {
        twins.entry(TwinKey::of(item)).or_default().push_back(at);
    }
    let mut is_left = vec![true; old.len()];
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for item in new {
        let key = TwinKey::of(item);
        let twin = twins.get_mut(&key).and_then(|places| match key {
            TwinKey::Id(_) => places.pop_back(),
            TwinKey::Content(_) => {
                let place = places.iter().position(|at| old[*at] == *item)?;
                places.remove(place)
            }
        });
        match twin {
            Some(at) => {
                is_left[at] = false;
                if old[at] != *item {
                    changed.push((old[at].clone(), item.clone()));
                }
            }
            None => added.push(item.clone()),
        }
    }
    let removed = old.iter().zip(is_left).filter(|(_, is_left)| *is_left).map(|(item, _)| item.clone()).collect();
    Ok(Some(ChannelDiff::Items { channel, added, removed, changed }))
}

/// The key by which an item is found in another list: its id, or else a hash of its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum TwinKey<'a> {
    Id(&'a str),
    Content(u64),
}

impl<'a> TwinKey<'a> {
    fn of(item: &'a Value) -> Self {
        item.get("id").and_then(Value::as_str).map_or_else(|| Self::Content(content_hash(item)), Self::Id)
    }
}

/// Returns a number that is the same for equal values, whatever the order of their members.
fn content_hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    match value {
        Value::Map(map) => {
            let members = map.iter().map(|(name, value)| {
                let mut hasher = DefaultHasher::new();
                (name, content_hash(value)).hash(&mut hasher);
                hasher.finish()
            });
            members.fold(0_u64, u64::wrapping_add).hash(&mut hasher);
        }
        Value::List(items) => items.iter().for_each(|item| content_hash(item).hash(&mut hasher)),
        Value::Str(text) => text.hash(&mut hasher),
        Value::Bytes(bytes) | Value::Ext(_, bytes) => bytes.hash(&mut hasher),
        Value::Int(n) => i128::from(*n).hash(&mut hasher),
        Value::UInt(n) => i128::from(*n).hash(&mut hasher),
        // Zero equals its negative.
        Value::Float(x) => (x + 0.0).to_bits().hash(&mut hasher),
        Value::Bool(b) => b.hash(&mut hasher),
        Value::Null => {}
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_hash() {
        let map = |names: [&str; 2]| Value::Map(names.map(|name| (name.to_owned(), name.into())).into_iter().collect());
        for (a, b) in [
            (map(["a", "b"]), map(["b", "a"])),
            (Value::Int(3), Value::UInt(3)),
            (Value::Float(0.0), Value::Float(-0.0)),
            (Value::List(vec![Value::Int(1)]), Value::List(vec![Value::UInt(1)])),
        ] {
            assert_eq!(a, b);
            assert_eq!(content_hash(&a), content_hash(&b));
        }
        assert_ne!(content_hash(&map(["a", "b"])), content_hash(&map(["a", "c"])));
    }
}
