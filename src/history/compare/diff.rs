//! The difference of two checkpoints, and its application.
//!
//! The versions that either lineage wrote since the last common ancestor name the channels, and the positions of
//! lists, that can differ; all else is equal and not compared. So the cost follows what changed, and the number of
//! channels. *Absent:* the difference inside one value, which [`Patch`] is.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::base::{Map, Payload, Value};
use crate::channel::ListShape;
use crate::limits::BRIEF_CHARS_MAX;
use crate::store::log::LogExt;
use crate::store::record::{ChannelRecord, ChannelValue};
use crate::store::{ItemRange, StoreError};

use super::items_diff::{DiffItem, ItemDiff, compare_items};
use super::patch::{Patch, PatchError};
use crate::history::read::entries::EntryDiff;
use crate::history::read::snapshot::{Snapshot, holds_state, item_value};

/// The difference of two checkpoints, channel by channel. Its `Display` is for people: a few lines for each channel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diff {
    /// The channels that differ, by name.
    pub channels: Vec<ChannelDiff>,
    /// The number of channels that are equal.
    pub unchanged: usize,
}

/// The difference of a channel.
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
        /// The items that differ: removed ones by index before, then edited, moved and added ones by index after.
        items: Vec<ItemDiff>,
    },
    /// Both have a map, with different entries.
    Entries {
        /// The channel.
        channel: Arc<str>,
        /// The entries that differ, sorted by key.
        entries: Vec<EntryDiff>,
    },
    /// Both have a text, of which the first is the beginning of the second.
    Appended {
        /// The channel.
        channel: Arc<str>,
        /// The rest of the second text.
        text: String,
    },
}

impl Diff {
    /// Makes a difference of channels that differ, sorted by name, and the number of those that do not.
    pub fn new(channels: Vec<ChannelDiff>, unchanged: usize) -> Self {
        Self { channels, unchanged }
    }

    /// Returns the values of the second checkpoint, given those of the first ([`Snapshot::values`]).
    ///
    /// # Errors
    /// [`PatchError`] with the position and the name of the channel if the values are not those of the first.
    pub fn apply(&self, values: &Map) -> Result<Map, PatchError> {
        let mut result = values.clone();
        for (op, change) in self.channels.iter().enumerate() {
            let channel = &**change.channel();
            let wrong = |reason: &'static str| PatchError { op, path: channel.to_owned(), reason };
            let before = result.get(channel);
            let after = match change {
                ChannelDiff::Added { value, .. } if before.is_none() => Some(value.clone()),
                ChannelDiff::Removed { value, .. } if before == Some(value) => None,
                ChannelDiff::Changed { before: old, after, .. } if before == Some(old) => Some(after.clone()),
                ChannelDiff::Items { items, .. } => {
                    let list = before.and_then(Value::as_list).ok_or_else(|| wrong("the channel is not a list"))?;
                    Some(Value::List(ItemDiff::apply_all(items, list).map_err(wrong)?))
                }
                ChannelDiff::Entries { entries, .. } => {
                    let map = before.ok_or_else(|| wrong("the channel is not a map"))?;
                    Some(EntryDiff::apply_all(entries, map).map_err(wrong)?)
                }
                ChannelDiff::Appended { text, .. } => match before {
                    Some(Value::Str(before)) => Some(Value::from(format!("{before}{text}"))),
                    // A text without parts.
                    Some(Value::List(items)) if items.is_empty() => Some(Value::from(text.as_str())),
                    _ => return Err(wrong("the channel is not a text")),
                },
                _ => return Err(wrong("the channel has another value")),
            };
            _ = match after {
                Some(after) => result.insert(channel.to_owned(), after),
                None => result.shift_remove(channel),
            };
        }
        Ok(result)
    }
}

impl ChannelDiff {
    /// Returns the channel.
    pub fn channel(&self) -> &Arc<str> {
        match self {
            Self::Added { channel, .. }
            | Self::Removed { channel, .. }
            | Self::Changed { channel, .. }
            | Self::Items { channel, .. }
            | Self::Entries { channel, .. }
            | Self::Appended { channel, .. } => channel,
        }
    }

    /// Returns the difference of a changed value as a JSON Patch.
    ///
    /// # Example
    /// ```
    /// use annals::history::diff;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// # #[derive(State, Clone, Default)]
    /// # struct Trip { plan: Value }
    /// let thread = Store::memory().thread("trip")?;
    /// thread.update(Trip::update().plan(Value::from(serde_json::json!({"city": "Bern", "nights": 2}))))?;
    /// thread.update(Trip::update().plan(Value::from(serde_json::json!({"city": "Rome", "nights": 2}))))?;
    /// let changes = diff(&thread.at("~1")?, &thread.at("@")?)?;
    /// let patch = changes.channels[0].patch().expect("the value has changed");
    /// assert_eq!(patch.to_string(), r#"[{"op":"replace","path":"/city","value":"Rome"}]"#);
    /// assert_eq!(changes.to_string(), "plan: 1 member\n  /city: \"Bern\" -> \"Rome\"\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn patch(&self) -> Option<Patch> {
        match self {
            Self::Changed { before, after, .. } => Some(Patch::between(before, after)),
            _ => None,
        }
    }
}

/// Compares the states at two checkpoints, of one thread or of two.
///
/// # Errors
/// As [`Snapshot::values`].
///
/// # Example
/// ```
/// use annals::history::diff;
/// use annals::prelude::*;
///
/// # #[derive(State, Clone, Default)]
/// # struct Chat {
/// #     #[channel(messages)]
/// #     messages: Messages,
/// # }
/// # fn main() -> Result<()> {
/// let thread = Store::memory().thread("chat")?;
/// thread.update(Chat::update().messages([Message::human("A hotel in Bern").with_id("1")]))?;
/// thread.update(Chat::update().messages([Message::ai("Try the Gasthof").with_id("2")]))?;
///
/// let (before, after) = (thread.at("~1")?, thread.at("@")?);
/// let changes = diff(&before, &after)?;
/// assert_eq!(changes.to_string(), "messages: 1 added\n  + [1] ai: Try the Gasthof\n");
/// assert_eq!(changes.apply(&before.values()?).expect("it fits"), after.values()?);
/// # Ok(())
/// # }
/// ```
pub fn diff(before: &Snapshot, after: &Snapshot) -> Result<Diff, StoreError> {
    let same_store = Arc::ptr_eq(before.store().backend(), after.store().backend());
    let common = if same_store { before.common_ancestor(after)? } else { None };
    let common = common.map(|common| common.record().ordinal);
    let ordinals = [before.record().ordinal, after.record().ordinal];
    debug_assert!(
        common.is_none_or(|common| ordinals.iter().all(|ordinal| common <= *ordinal)),
        "an ancestor is older"
    );
    let changed = common.map(|common| ChangedSince::read(before, after, common)).transpose()?;
    let (old, mut new) = (channels(before)?, channels(after)?);
    let mut diff = Diff { channels: Vec::new(), unchanged: 0 };
    for (channel, old) in old {
        let Some(new) = new.remove(&channel) else {
            diff.channels.push(ChannelDiff::Removed { channel, value: before.value_of(&old)? });
            continue;
        };
        let positions = match &changed {
            Some(changed) => match changed.channels.get(&channel) {
                Some(positions) => positions.ranges(),
                None => {
                    diff.unchanged += 1;
                    continue;
                }
            },
            None => std::iter::once(0..u64::MAX).collect(),
        };
        match compare(before, &old, after, &new, (common, positions))? {
            Some(change) => diff.channels.push(change),
            None => diff.unchanged += 1,
        }
    }
    for (channel, new) in new {
        diff.channels.push(ChannelDiff::Added { channel, value: after.value_of(&new)? });
    }
    diff.channels.sort_by(|a, b| a.channel().cmp(b.channel()));
    debug_assert!(diff.channels.is_sorted_by(|a, b| a.channel() < b.channel()), "a channel differs once");
    Ok(diff)
}

fn channels(snapshot: &Snapshot) -> Result<BTreeMap<Arc<str>, ChannelRecord>, StoreError> {
    let channels = snapshot.state_record()?.channels.into_iter().filter(holds_state);
    Ok(channels.map(|channel| (Arc::clone(&channel.channel), channel)).collect())
}

/// The positions of a list that can differ.
#[derive(Default)]
struct ChangedPositions(Vec<Range<u64>>);

impl ChangedPositions {
    /// Returns the ranges without overlaps, ascending.
    fn ranges(&self) -> Vec<Range<u64>> {
        let mut sorted: Vec<&Range<u64>> = self.0.iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut united: Vec<Range<u64>> = Vec::new();
        for range in sorted {
            match united.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => united.push(range.clone()),
            }
        }
        debug_assert!(united.windows(2).all(|pair| pair[0].end < pair[1].start), "the ranges are apart and ascend");
        united
    }
}

/// The channels that either of two lineages wrote since their last common ancestor.
struct ChangedSince {
    channels: HashMap<Arc<str>, ChangedPositions>,
}

impl ChangedSince {
    fn read(a: &Snapshot, b: &Snapshot, common: u64) -> Result<Self, StoreError> {
        let mut channels: HashMap<Arc<str>, ChangedPositions> = HashMap::new();
        for at in [a, b] {
            at.visit_versions(None, common + 1, |version| {
                let positions = channels.entry(Arc::clone(&version.channel.channel)).or_default();
                // A channel that was not a list at some time in between has lost all its items.
                positions.0.push(version.positions.clone().unwrap_or(0..u64::MAX));
                Ok(true)
            })?;
        }
        Ok(Self { channels })
    }
}

fn compare(
    before: &Snapshot,
    old: &ChannelRecord,
    after: &Snapshot,
    new: &ChannelRecord,
    (common, positions): (Option<u64>, Vec<Range<u64>>),
) -> Result<Option<ChannelDiff>, StoreError> {
    let channel = Arc::clone(&old.channel);
    if let (ChannelValue::Items, ChannelValue::Items) = (&old.value, &new.value) {
        let old_part = ListPart::read(before, &channel, &positions)?;
        let new_part = ListPart::read(after, &channel, &positions)?;
        let shapes = [old_part.shape(), new_part.shape()];
        let shape = shapes[0].or(shapes[1]);
        let is_one_shape = shapes.iter().flatten().all(|other| Some(*other) == shape);
        let (old_items, new_items) = ListPart::apart(old_part, new_part, common)?;
        match shape.filter(|_| is_one_shape) {
            Some(ListShape::Map) => {
                if let Some(entries) = EntryDiff::of_items(&old_items, &new_items) {
                    return Ok((!entries.is_empty()).then_some(ChannelDiff::Entries { channel, entries }));
                }
            }
            // Parts are only appended, or replaced together.
            Some(ListShape::Text) if old_items.is_empty() => {
                let text: String = new_items.iter().filter_map(|part| part.value.as_str()).collect();
                return Ok((!text.is_empty()).then_some(ChannelDiff::Appended { channel, text }));
            }
            Some(ListShape::Text) => {}
            Some(ListShape::List) | None if is_one_shape => {
                let items = compare_items(&old_items, &new_items);
                return Ok((!items.is_empty()).then_some(ChannelDiff::Items { channel, items }));
            }
            Some(ListShape::List) | None => {}
        }
    }
    // Equal bytes are equal values.
    if old.value == new.value && old.value != ChannelValue::Items {
        return Ok(None);
    }
    let (before, after) = (before.value_of(old)?, after.value_of(new)?);
    Ok((before != after).then_some(ChannelDiff::Changed { channel, before, after }))
}

/// The items of some positions of a list, not decoded, and the means to tell the index of each.
struct ListPart {
    /// Position, ordinal and payload, by position.
    rows: Vec<(u64, u64, Payload)>,
    /// The positions of the items from the first row on, and the index of the first; `None` if each index is the
    /// position.
    indexes: Option<(usize, Vec<u64>)>,
}

impl ListPart {
    fn read(at: &Snapshot, channel: &str, positions: &[Range<u64>]) -> Result<Self, StoreError> {
        let backend = at.store().backend();
        let mut rows = Vec::new();
        for range in positions {
            backend.items(at.point(), channel, ItemRange::Positions(range.start, range.end), &mut |row| {
                rows.push((row.position, row.ordinal, row.payload.to_payload()));
                Ok(())
            })?;
        }
        let Some(first) = rows.first().map(|(position, ..)| *position) else { return Ok(Self { rows, indexes: None }) };
        if ListShape::of_position(first) != ListShape::List {
            return Ok(Self { rows, indexes: None });
        }
        let (len, mut last) = (at.len(channel)?, 0);
        backend.items(at.point(), channel, ItemRange::Tail(1), &mut |row| {
            last = row.position;
            Ok(())
        })?;
        if last + 1 == len {
            return Ok(Self { rows, indexes: None });
        }
        let mut from_first = Vec::new();
        backend.items(at.point(), channel, ItemRange::Positions(first, u64::MAX), &mut |row| {
            from_first.push(row.position);
            Ok(())
        })?;
        let before = usize::try_from(len).unwrap_or(usize::MAX).saturating_sub(from_first.len());
        Ok(Self { rows, indexes: Some((before, from_first)) })
    }

    /// Returns the shape of the list; `None` without rows.
    fn shape(&self) -> Option<ListShape> {
        self.rows.first().map(|(position, ..)| ListShape::of_position(*position))
    }

    fn index(&self, position: u64) -> usize {
        match &self.indexes {
            None => usize::try_from(position).unwrap_or(usize::MAX),
            Some((before, from_first)) => before + from_first.partition_point(|other| *other < position),
        }
    }

    /// Returns the items of two parts that differ, decoded. Those that both have from a common ancestor are equal.
    fn apart(old: Self, new: Self, common: Option<u64>) -> Result<(Vec<DiffItem>, Vec<DiffItem>), StoreError> {
        let shared = |part: &Self| -> BTreeSet<u64> {
            let rows = part.rows.iter().filter(|(_, ordinal, _)| common.is_some_and(|common| *ordinal <= common));
            rows.map(|(position, ..)| *position).collect()
        };
        let mut same: BTreeSet<u64> = &shared(&old) & &shared(&new);
        if common.is_none() {
            let equal = old.rows.iter().zip(&new.rows).take_while(|(a, b)| a.0 == b.0 && a.2 == b.2);
            same.extend(equal.map(|(row, _)| row.0));
        }
        let decode = |part: &Self| -> Result<Vec<DiffItem>, StoreError> {
            let rows = part.rows.iter().filter(|(position, ..)| !same.contains(position));
            let item = |(position, _, payload): &(u64, u64, Payload)| {
                let value = item_value(payload.as_ref())?;
                Ok(DiffItem { index: part.index(*position), position: *position, value })
            };
            rows.map(item).collect()
        };
        Ok((decode(&old)?, decode(&new)?))
    }
}

/// Some lines for each channel: texts as JSON, cut where they are long.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.channels.iter().try_for_each(|channel| write!(f, "{channel}"))
    }
}

impl fmt::Display for ChannelDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channel = self.channel().escape_debug();
        match self {
            Self::Added { value, .. } => writeln!(f, "{channel}: added\n  + {}", Brief(value)),
            Self::Removed { value, .. } => writeln!(f, "{channel}: removed\n  - {}", Brief(value)),
            Self::Changed { before, after, .. } => {
                if !matches!((before, after), (Value::Map(_), Value::Map(_)) | (Value::List(_), Value::List(_))) {
                    return writeln!(f, "{channel}: {} -> {}", Brief(before), Brief(after));
                }
                let patch = Patch::between(before, after);
                let count = patch.ops.len();
                writeln!(f, "{channel}: {count} member{}", if count == 1 { "" } else { "s" })?;
                patch.ops.iter().try_for_each(|op| super::items_diff::member_line(f, before, op))
            }
            Self::Items { items, .. } => {
                writeln!(f, "{channel}: {}", ItemDiff::counts(items))?;
                items.iter().try_for_each(|item| writeln!(f, "  {item}"))
            }
            Self::Entries { entries, .. } => {
                writeln!(f, "{channel}: {}", EntryDiff::counts(entries))?;
                entries.iter().try_for_each(|entry| writeln!(f, "  {entry}"))
            }
            Self::Appended { text, .. } => {
                writeln!(f, "{channel}: {} bytes appended\n  + {}", text.len(), Brief(&Value::from(text.as_str())))
            }
        }
    }
}

/// A value on one line.
pub(crate) struct Brief<'v>(pub(crate) &'v Value);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name| self.0.get(name).and_then(Value::as_str);
        let shown = match (text("type"), text("content")) {
            (Some(kind), Some(content)) => format!("{}: {}", kind.escape_debug(), content.escape_debug()),
            _ => self.0.to_json().to_string(),
        };
        match shown.char_indices().nth(BRIEF_CHARS_MAX) {
            Some((end, _)) => write!(f, "{}...", &shown[..end]),
            None => f.write_str(&shown),
        }
    }
}

/// The key by which an item is found in another list: its id, or else a hash of its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TwinKey<'a> {
    Id(&'a str),
    Content(u64),
}

impl<'a> TwinKey<'a> {
    pub(crate) fn of(item: &'a Value) -> Self {
        item.get("id").and_then(Value::as_str).map_or_else(|| Self::Content(content_hash(item)), Self::Id)
    }
}

/// The places of items by key.
pub(crate) type Twins<'a> = HashMap<TwinKey<'a>, VecDeque<usize>>;

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
