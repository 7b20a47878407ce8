//! A persistent map from texts to values: cloned in O(1), changed in O(log n) also while clones live.
//!
//! It is a list whose positions follow from the hashes of the keys, so a key is found without an index, in memory as in
//! the store. Invariant: an entry lies at one of the few positions of its key, and no other entry has the key.
//! *Absent:* an order of the entries: they are sorted by key when they are read.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shape::positions_of;
use super::{Cell, Channel, ChannelEffect, ChannelError, List, ListChange, ListOp};
use crate::limits::MAP_KEY_BYTES_MAX;

/// The value of a map channel: a persistent map from texts to values, shared by its clones. Writes to the channel put
/// and remove entries ([`MapEntry`]); only these are stored.
///
/// Iteration is in the order of the keys, compared by their bytes, and sorts them: O(n log n). A key is found in O(log
/// n). A subgraph with the same channel returns the entries that differ; keys that it removed stay in the map of its
/// parent graph.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals::state::KeyMap;
///
/// #[derive(State, Clone, Default)]
/// struct Agent {
///     #[channel(map)]
///     files: KeyMap<String>,
/// }
///
/// # fn main() -> Result<()> {
/// let agent = Store::memory().thread("agent")?.with_state::<Agent>();
/// agent.update(Agent::update().files([("b.txt", "two".to_string()), ("a.txt", "one".to_string())]))?;
/// agent.update(Agent::update().files([("b.txt", "2".to_string())]).remove_files(["a.txt"]))?;
/// let state = agent.state()?;
/// assert_eq!((state.files.len(), state.files.get("b.txt").map(String::as_str)), (1, Some("2")));
/// # Ok(())
/// # }
/// ```
pub struct KeyMap<T>(List<MapEntry<T>>);

/// A write to a map channel: a key with the value that is put, or a key that is removed. Removing a key that the map
/// does not have changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapEntry<T> {
    /// The key.
    pub key: Arc<str>,
    /// The value; `None` removes the key. An entry of a map has a value.
    pub value: Option<T>,
}

impl<T> MapEntry<T> {
    /// Puts a value at a key, in place of the one that is there.
    pub fn put(key: impl Into<Arc<str>>, value: T) -> Self {
        Self { key: key.into(), value: Some(value) }
    }

    /// Removes a key.
    pub fn remove(key: impl Into<Arc<str>>) -> Self {
        Self { key: key.into(), value: None }
    }
}

/// The position of a key in a map.
enum KeyPlace {
    Taken(u64),
    /// The first free position of the key.
    Free(Option<u64>),
}

impl KeyPlace {
    fn of<T>(list: &List<MapEntry<T>>, key: &str) -> Self {
        let positions = positions_of(key);
        let mut free = positions.start;
        for (position, entry) in list.iter_from(positions.start) {
            if position >= positions.end {
                break;
            }
            if *entry.key == *key {
                return Self::Taken(position);
            }
            free += u64::from(position == free);
        }
        Self::Free(Some(free).filter(|free| *free < positions.end))
    }
}

impl<T> KeyMap<T> {
    /// Returns an empty map.
    pub fn new() -> Self {
        Self(List::new())
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        let positions = positions_of(key);
        let mut near = self.0.iter_from(positions.start).take_while(|(position, _)| *position < positions.end);
        near.find(|(_, entry)| *entry.key == *key)?.1.value.as_ref()
    }

    /// Returns the entries in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &T)> + ExactSizeIterator {
        let mut entries: Vec<(&str, &T)> = Vec::with_capacity(self.len());
        entries.extend(self.0.iter().filter_map(|entry| Some((&*entry.key, entry.value.as_ref()?))));
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries.into_iter()
    }

    /// Returns copies of the entries.
    pub fn to_btree_map(&self) -> BTreeMap<String, T>
    where
        T: Clone,
    {
        self.0.iter().filter_map(|entry| Some((entry.key.to_string(), entry.value.clone()?))).collect()
    }

    pub(crate) fn entries(&self) -> &List<MapEntry<T>> {
        &self.0
    }

    pub(crate) fn entries_mut(&mut self) -> &mut List<MapEntry<T>> {
        &mut self.0
    }
}

/// Puts and removes the entries of each write, in order: the rule of a map channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MergeEntries;

impl<T: Send + Sync + 'static> Channel<List<MapEntry<T>>, Vec<MapEntry<T>>> for MergeEntries {
    fn update(
        &self,
        cell: Cell<'_, List<MapEntry<T>>>,
        writes: Vec<Vec<MapEntry<T>>>,
    ) -> Result<ChannelEffect, ChannelError> {
        let list = cell.value;
        // For each changed position, whether it was taken before, and the last operation on it.
        let mut changed: BTreeMap<u64, (bool, ListOp)> = BTreeMap::new();
        for (write, entries) in writes.into_iter().enumerate() {
            for (part, entry) in entries.into_iter().enumerate() {
                if entry.key.len() > MAP_KEY_BYTES_MAX {
                    return Err(ChannelError::KeyTooLong { bytes: entry.key.len(), max: MAP_KEY_BYTES_MAX });
                }
                let (position, was_taken, op) = match (KeyPlace::of(list, &entry.key), &entry.value) {
                    (KeyPlace::Taken(position), Some(_)) => (position, true, ListOp::Put { write, part }),
                    (KeyPlace::Taken(position), None) => (position, true, ListOp::Delete),
                    (KeyPlace::Free(Some(position)), Some(_)) => (position, false, ListOp::Put { write, part }),
                    (KeyPlace::Free(None), Some(_)) => {
                        return Err(ChannelError::NoPositionForKey { key: entry.key.to_string() });
                    }
                    (KeyPlace::Free(_), None) => continue,
                };
                match op {
                    ListOp::Delete => _ = list.remove(position),
                    _ => list.insert_at_position(position, entry),
                }
                changed.entry(position).or_insert((was_taken, ListOp::Delete)).1 = op;
            }
        }
        *cell.present = true;
        debug_assert!(
            changed.iter().all(|(at, (_, op))| list.at_position(*at).is_none() == (*op == ListOp::Delete)),
            "a change agrees with the map at its position"
        );
        // An entry that was put and removed within this superstep was never stored.
        let stored = changed.into_iter().filter(|(_, (was_taken, op))| *was_taken || *op != ListOp::Delete);
        Ok(ChannelEffect::Items(stored.map(|(position, (_, op))| ListChange { position, op }).collect()))
    }
}

impl<T> Clone for KeyMap<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for KeyMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for KeyMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Two maps are equal if they have the same keys with the same values.
impl<T: PartialEq> PartialEq for KeyMap<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.0.iter().all(|entry| other.get(&entry.key) == entry.value.as_ref())
    }
}

impl<T: Eq> Eq for KeyMap<T> {}

impl<T: Serialize> Serialize for KeyMap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// A list of key and value; of an entry that removes its key, a list of the key.
impl<T: Serialize> Serialize for MapEntry<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_seq(Some(1 + usize::from(self.value.is_some())))?;
        parts.serialize_element(&*self.key)?;
        if let Some(value) = &self.value {
            parts.serialize_element(value)?;
        }
        parts.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MapEntry<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = MapEntry<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of a key and a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MapEntry<T>, A::Error> {
                let key: String = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let value = seq.next_element()?;
                match seq.next_element::<serde::de::IgnoredAny>()? {
                    Some(_) => Err(A::Error::invalid_length(3, &self)),
                    None => Ok(MapEntry { key: key.into(), value }),
                }
            }
        }
        deserializer.deserialize_seq(Parts(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries = List<MapEntry<i32>>;

    fn apply(list: &mut Entries, writes: Vec<Vec<MapEntry<i32>>>) -> Vec<ListOp> {
        let effect = MergeEntries.update(Cell { value: list, present: &mut false }, writes).unwrap();
        let ChannelEffect::Items(changes) = effect else { panic!("{effect:?}") };
        assert!(changes.is_sorted_by(|a, b| a.position < b.position));
        changes.into_iter().map(|change| change.op).collect()
    }

    #[test]
    fn the_last_write_to_a_key_counts_and_only_changed_positions_are_told() {
        let mut list = Entries::new();
        let put = |key: &str, value| MapEntry::put(key, value);
        let ops = apply(&mut list, vec![vec![put("a", 1), MapEntry::remove("b")], vec![put("a", 2)]]);
        assert_eq!(ops, [ListOp::Put { write: 1, part: 0 }]);
        assert_eq!(apply(&mut list, vec![vec![put("b", 1), MapEntry::remove("b")]]), [], "it was never stored");
        assert_eq!(apply(&mut list, vec![vec![MapEntry::remove("a")]]), [ListOp::Delete]);
        assert_eq!(apply(&mut list, vec![vec![MapEntry::remove("a")]]), []);
        assert_eq!(apply(&mut list, vec![vec![put("a", 3)], vec![MapEntry::remove("a")]]), []);
    }

    #[test]
    fn keys_with_a_common_position_lie_beside_each_other() {
        let (mut map, key) = (KeyMap::<i32>::new(), "key");
        let first = positions_of(key).start;
        // Other keys at the positions of this one, as a collision of hashes puts them.
        for near in 0..3 {
            map.0.insert_at_position(first + near, MapEntry::put(format!("other {near}"), 0));
        }
        assert_eq!(apply(&mut map.0, vec![vec![MapEntry::put(key, 7)]]), [ListOp::Put { write: 0, part: 0 }]);
        assert_eq!(map.0.position_of(3), Some(first + 3));
        map.0.remove(first);
        assert_eq!(map.get(key), Some(&7), "a gap before it does not hide it");
        apply(&mut map.0, vec![vec![MapEntry::put(key, 8)]]);
        assert_eq!((map.get(key), map.len()), (Some(&8), 3));
    }

    #[test]
    fn a_key_past_a_limit_is_refused() {
        let mut list = Entries::new();
        let mut update = |key: String| {
            let (value, present) = (&mut list, &mut false);
            MergeEntries.update(Cell { value, present }, vec![vec![MapEntry::put(key, 1)]])
        };
        update("k".repeat(MAP_KEY_BYTES_MAX)).unwrap();
        let error = update("k".repeat(MAP_KEY_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error, ChannelError::KeyTooLong { bytes: 1_025, max: 1_024 });
        for position in positions_of("full") {
            list.insert_at_position(position, MapEntry::put(position.to_string(), 1));
        }
        let full =
            MergeEntries.update(Cell { value: &mut list, present: &mut false }, vec![vec![MapEntry::put("full", 1)]]);
        assert_eq!(full, Err(ChannelError::NoPositionForKey { key: "full".into() }));
    }

    #[test]
    fn an_entry_is_a_list_of_one_or_two() {
        let json = |entry: &MapEntry<i32>| serde_json::to_string(entry).unwrap();
        assert_eq!(json(&MapEntry::put("a", 1)), r#"["a",1]"#);
        assert_eq!(json(&MapEntry::remove("a")), r#"["a"]"#);
        for entry in [MapEntry::put("a", 1), MapEntry::remove("a")] {
            assert_eq!(serde_json::from_str::<MapEntry<i32>>(&json(&entry)).unwrap(), entry);
        }
        for bad in ["[]", "[1]", r#"["a",1,2]"#, r#"["a","b"]"#, "{}"] {
            assert!(serde_json::from_str::<MapEntry<i32>>(bad).is_err(), "{bad}");
        }
    }
}
