//! Maps and texts as a snapshot shows them: an entry by its key, the end of a text, and either as one value.
//!
//! The positions of stored items say whether they are those of a list, a map or a text, so none of this needs a schema.
//! *Absent:* the shape of a channel without items, which is shown as an empty list.

use std::fmt;

use crate::base::{Map, PayloadRef, Value};
use crate::channel::{ListShape, positions_of, tail_of};
use crate::store::{ItemRange, StoreError};

use super::snapshot::{Snapshot, item_value};
use crate::history::compare::diff::Brief;
use crate::history::compare::items_diff::DiffItem;

/// The items of a list channel, decoded one after the other.
#[derive(Debug)]
pub(crate) struct ShapedItems {
    pub(crate) shape: ListShape,
    items: Vec<Value>,
}

impl ShapedItems {
    pub(crate) fn new() -> Self {
        Self { shape: ListShape::List, items: Vec::new() }
    }

    pub(crate) fn add(&mut self, position: u64, payload: PayloadRef<'_>) -> Result<(), StoreError> {
        self.shape = ListShape::of_position(position);
        self.items.push(item_value(payload)?);
        Ok(())
    }

    /// Returns the value of the channel: a list; a map, sorted by key; or a text.
    pub(crate) fn into_value(self) -> Value {
        let is_map = self.shape == ListShape::Map && self.items.iter().all(|item| as_entry(item).is_some());
        let is_text = self.shape == ListShape::Text && self.items.iter().all(|item| item.as_str().is_some());
        if is_map {
            let mut entries: Vec<(String, Value)> = self.items.into_iter().filter_map(entry).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            return Value::Map(entries.into_iter().collect());
        }
        if is_text {
            return Value::from(self.items.iter().filter_map(Value::as_str).collect::<String>());
        }
        // Items that another program wrote there.
        Value::List(self.items)
    }
}

/// Returns key and value of a stored entry.
fn as_entry(item: &Value) -> Option<(&str, &Value)> {
    match item.as_list()? {
        [key, value] => Some((key.as_str()?, value)),
        _ => None,
    }
}

fn entry(item: Value) -> Option<(String, Value)> {
    let Value::List(parts) = item else { return None };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next()) {
        (Some(Value::Str(key)), Some(value)) => Some((key, value)),
        _ => None,
    }
}

/// Returns the value of an entry if it has this key.
pub(crate) fn value_of_key(item: Value, key: &str) -> Option<Value> {
    entry(item).filter(|(found, _)| found == key).map(|(_, value)| value)
}

/// The difference of one key of a map.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntryDiff {
    /// The key.
    pub key: String,
    /// The value before; `None` if only the second map has the key.
    pub before: Option<Value>,
    /// The value after; `None` if only the first map has the key.
    pub after: Option<Value>,
}

impl EntryDiff {
    /// Compares the entries of two maps that may differ, sorted by key. `None` if an item is not an entry.
    pub(crate) fn of_items(old: &[DiffItem], new: &[DiffItem]) -> Option<Vec<Self>> {
        let mut entries = std::collections::BTreeMap::<&str, (Option<&Value>, Option<&Value>)>::new();
        for item in old {
            let (key, value) = as_entry(&item.value)?;
            entries.entry(key).or_default().0 = Some(value);
        }
        for item in new {
            let (key, value) = as_entry(&item.value)?;
            entries.entry(key).or_default().1 = Some(value);
        }
        debug_assert!(entries.len() <= old.len() + new.len(), "an entry that differs is one of an item");
        let changed = entries.into_iter().filter(|(_, (before, after))| before != after);
        let diff = changed.map(|(key, (before, after))| Self {
            key: key.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        });
        Some(diff.collect())
    }

    /// Returns the second map, given the first.
    pub(crate) fn apply_all(entries: &[Self], before: &Value) -> Result<Value, &'static str> {
        let mut map: Map = match before {
            Value::Map(map) => map.clone(),
            // A map without entries.
            Value::List(items) if items.is_empty() => Map::new(),
            _ => return Err("the channel is not a map"),
        };
        for entry in entries {
            let found = match &entry.after {
                Some(after) => map.insert(entry.key.clone(), after.clone()),
                None => map.shift_remove(&entry.key),
            };
            if found != entry.before {
                return Err("an entry has another value");
            }
        }
        let mut members: Vec<(String, Value)> = map.into_iter().collect();
        members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(if members.is_empty() { Value::List(Vec::new()) } else { Value::Map(members.into_iter().collect()) })
    }

    /// Returns the numbers of entries of each kind as a text.
    pub(crate) fn counts(entries: &[Self]) -> String {
        let count = |is: fn(&Self) -> bool| entries.iter().filter(|entry| is(entry)).count();
        let counts = [
            (count(|entry| entry.before.is_none()), "added"),
            (count(|entry| entry.before.is_some() && entry.after.is_some()), "edited"),
            (count(|entry| entry.after.is_none()), "removed"),
        ];
        let counts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}"));
        counts.collect::<Vec<_>>().join(", ")
    }
}

/// One line: `+ "key": value`, `- "key": value`, `~ "key": before -> after`.
impl fmt::Display for EntryDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "~ {:?}: {} -> {}", self.key, Brief(before), Brief(after)),
            (Some(before), None) => write!(f, "- {:?}: {}", self.key, Brief(before)),
            (None, Some(after)) => write!(f, "+ {:?}: {}", self.key, Brief(after)),
            (None, None) => Ok(()),
        }
    }
}

impl Snapshot {
    /// Returns the value of a key of a map channel, without reading the other entries; `None` if the map does not have
    /// it.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::state::KeyMap;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Agent { #[channel(map)] files: KeyMap<String> }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("agent")?;
    /// thread.update(Agent::update().files([("a.txt", "one".to_string()), ("b.txt", "two".to_string())]))?;
    /// thread.update(Agent::update().files([("a.txt", "1".to_string())]))?;
    /// let head = thread.at("@")?;
    /// assert_eq!(head.entry("files", "a.txt")?, Some("1".into()));
    /// assert_eq!(head.blame("files").entry("b.txt")?.expect("it was written").step, 0);
    /// assert_eq!(head.entry_evolution("files", "a.txt").count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn entry(&self, channel: &str, key: &str) -> Result<Option<Value>, StoreError> {
        let (positions, mut found) = (positions_of(key), None);
        let range = ItemRange::Positions(positions.start, positions.end);
        self.visit_items(channel, range, |row| {
            if found.is_none() {
                found = value_of_key(item_value(row.payload)?, key);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the end of a text channel: at most `bytes` bytes, from a character on. Of its parts only the last ones
    /// are read. It is empty if the channel is.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the channel holds something else than a text; as [`Snapshot::values`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::state::Text;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Draft { #[channel(text)] text: Text }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("draft")?;
    /// for part in ["Once ", "upon ", "a time"] {
    ///     thread.update(Draft::update().text(part))?;
    /// }
    /// let head = thread.at("@")?;
    /// assert_eq!(head.text_tail("text", 8)?, "n a time");
    /// assert_eq!(head.get("text")?, Some("Once upon a time".into()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn text_tail(&self, channel: &str, bytes: usize) -> Result<String, StoreError> {
        let not_a_text =
            || StoreError::Invalid { field: "channel", reason: format!("channel {channel:?} is not a text") };
        let mut count = 16;
        loop {
            let mut parts: Vec<String> = Vec::new();
            self.visit_items(channel, ItemRange::Tail(count), |row| {
                match (ListShape::of_position(row.position), item_value(row.payload)?) {
                    (ListShape::Text, Value::Str(part)) => parts.push(part),
                    _ => return Err(not_a_text()),
                }
                Ok(())
            })?;
            if parts.len() < count || parts.iter().map(String::len).sum::<usize>() >= bytes {
                return Ok(tail_of(parts.iter().rev().map(String::as_str), bytes));
            }
            count = count.saturating_mul(4);
        }
    }

    /// Returns the shape of a list channel, as its last item tells it; a list if it has none.
    pub(crate) fn shape(&self, channel: &str) -> Result<ListShape, StoreError> {
        let mut shape = ListShape::List;
        self.visit_items(channel, ItemRange::Tail(1), |row| {
            shape = ListShape::of_position(row.position);
            Ok(())
        })?;
        Ok(shape)
    }
}
