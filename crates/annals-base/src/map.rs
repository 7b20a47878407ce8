//! Objects: names to values, in insertion order.
//!
//! Most objects of a message are empty, and an empty one takes a word: three of them in place of three tables of 72
//! bytes make a message half as large. Most others have few members, which are searched one by one: a table of hashes
//! costs more than it saves. *Absent:* limits, which those who read objects keep.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Index;
use std::{iter, slice, vec};

use hashbrown::HashTable;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::value::Value;

/// The number of members from which on an object has a table of hashes.
const INDEXED_FROM: usize = 17;

/// An object: names to values, in insertion order.
///
/// # Example
/// ```
/// use annals_base::{Map, Value};
///
/// let mut object: Map = [("b".to_owned(), Value::from(1))].into_iter().collect();
/// object.insert("a".into(), true.into());
/// assert_eq!(object.keys().collect::<Vec<_>>(), ["b", "a"]);
/// assert_eq!(object["b"].as_int(), Some(1));
/// ```
#[derive(Clone, Default)]
pub struct Map(Option<Box<Members>>);

/// The members of an object.
#[derive(Clone, Default)]
struct Members {
    entries: Vec<(String, Value)>,
    index: Option<NameIndex>,
}

/// The positions of members by the hashes of their names.
#[derive(Clone)]
struct NameIndex {
    /// The hasher of the names. Its seed is random, so that no file can choose names with one hash.
    hashes: RandomState,
    positions: HashTable<usize>,
}

impl NameIndex {
    fn of(entries: &[(String, Value)]) -> Self {
        let mut index = Self { hashes: RandomState::new(), positions: HashTable::with_capacity(entries.len()) };
        (0..entries.len()).for_each(|at| index.add(entries, at));
        index
    }

    fn add(&mut self, entries: &[(String, Value)], at: usize) {
        let hash = |at: &usize| self.hashes.hash_one(&entries[*at].0);
        self.positions.insert_unique(hash(&at), at, hash);
    }

    /// Removes a name. The members after it move up.
    fn remove(&mut self, name: &str, at: usize) {
        if let Ok(entry) = self.positions.find_entry(self.hashes.hash_one(name), |position| *position == at) {
            entry.remove();
        }
        self.positions.iter_mut().filter(|position| **position > at).for_each(|position| *position -= 1);
    }

    fn position(&self, entries: &[(String, Value)], name: &str) -> Option<usize> {
        self.positions.find(self.hashes.hash_one(name), |at| entries[*at].0 == name).copied()
    }
}

fn position(entries: &[(String, Value)], name: &str) -> Option<usize> {
    entries.iter().position(|(known, _)| known == name)
}

impl Members {
    fn position(&self, name: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.position(&self.entries, name),
            None => position(&self.entries, name),
        }
    }

    fn push(&mut self, name: String, value: Value) {
        let at = self.entries.len();
        self.entries.push((name, value));
        match &mut self.index {
            Some(index) => index.add(&self.entries, at),
            None if self.entries.len() >= INDEXED_FROM => self.index = Some(NameIndex::of(&self.entries)),
            None => {}
        }
    }
}

/// The members of a borrowed object.
pub(crate) type MapEntries<'a> =
    iter::Map<slice::Iter<'a, (String, Value)>, fn(&'a (String, Value)) -> (&'a String, &'a Value)>;

impl Map {
    /// Returns an empty object.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns an empty object with room for some members.
    pub fn with_capacity(members: usize) -> Self {
        Self((members > 0).then(|| Box::new(Members { entries: Vec::with_capacity(members), index: None })))
    }

    fn entries(&self) -> &[(String, Value)] {
        self.0.as_ref().map_or(&[], |members| &members.entries)
    }

    fn entries_mut(&mut self) -> &mut [(String, Value)] {
        self.0.as_mut().map_or(&mut [], |members| &mut members.entries)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.as_ref()?.position(name)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Returns whether the object has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a member.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let at = self.position(name)?;
        Some(&self.entries()[at].1)
    }

    /// Returns the value of a member, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.position(name)?;
        Some(&mut self.entries_mut()[at].1)
    }

    /// Returns whether there is such a member.
    pub fn contains_key(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Sets a member and returns its value before. A new one comes last.
    pub fn insert(&mut self, name: String, value: Value) -> Option<Value> {
        let members = self.0.get_or_insert_default();
        match members.position(&name) {
            Some(at) => Some(std::mem::replace(&mut members.entries[at].1, value)),
            None => {
                members.push(name, value);
                None
            }
        }
    }

    /// Returns the value of a member, to be changed. Without one, it is made.
    pub fn or_insert_with(&mut self, name: String, make: impl FnOnce() -> Value) -> &mut Value {
        let members = self.0.get_or_insert_default();
        let at = members.position(&name).unwrap_or_else(|| {
            members.push(name, make());
            members.entries.len() - 1
        });
        &mut members.entries[at].1
    }

    /// Removes a member and returns its value. Those after it move up.
    pub fn shift_remove(&mut self, name: &str) -> Option<Value> {
        let members = self.0.as_mut()?;
        let at = members.position(name)?;
        let (name, value) = members.entries.remove(at);
        if let Some(index) = &mut members.index {
            index.remove(&name, at);
        }
        Some(value)
    }

    /// Keeps the members that a function says.
    pub fn retain(&mut self, mut keep: impl FnMut(&String, &mut Value) -> bool) {
        if let Some(members) = &mut self.0 {
            members.entries.retain_mut(|(name, value)| keep(name, value));
            members.index = members.index.is_some().then(|| NameIndex::of(&members.entries));
        }
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Returns the members.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&String, &Value)> + ExactSizeIterator + Clone {
        self.into_iter()
    }

    /// Returns the members, whose values can be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&String, &mut Value)> + ExactSizeIterator {
        self.into_iter()
    }

    /// Returns the names.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &String> + ExactSizeIterator + Clone {
        self.entries().iter().map(|(name, _)| name)
    }

    /// Returns the values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator + Clone {
        self.entries().iter().map(|(_, value)| value)
    }
}

/// The value of a member; null without one, as of a [`Value`].
impl Index<&str> for Map {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

impl<const N: usize> From<[(String, Value); N]> for Map {
    fn from(members: [(String, Value); N]) -> Self {
        members.into_iter().collect()
    }
}

impl FromIterator<(String, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Self {
        let mut map = Self::new();
        map.extend(members);
        map
    }
}

impl Extend<(String, Value)> for Map {
    fn extend<I: IntoIterator<Item = (String, Value)>>(&mut self, members: I) {
        let members = members.into_iter();
        let (least, _) = members.size_hint();
        if least > 0 {
            self.0.get_or_insert_default().entries.reserve(least);
        }
        members.for_each(|(name, value)| _ = self.insert(name, value));
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|members| members.entries).unwrap_or_default().into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a String, &'a Value);
    type IntoIter = MapEntries<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries().iter().map(|(name, value)| (name, value))
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a String, &'a mut Value);
    type IntoIter =
        iter::Map<slice::IterMut<'a, (String, Value)>, fn(&'a mut (String, Value)) -> (&'a String, &'a mut Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries_mut().iter_mut().map(|(name, value)| (&*name, value))
    }
}

/// Two objects are equal if their members are; their order does not count.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        super::value::serialize_map(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Map(map) => Ok(map),
            other => Err(de::Error::invalid_type(de::Unexpected::Other(other.kind()), &"a map")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_object_takes_a_word_and_equals_any_other() {
        assert_eq!((size_of::<Map>(), size_of::<Option<Map>>()), (8, 16));
        let mut emptied = Map::from([("a".to_owned(), Value::Null)]);
        assert_ne!(emptied, Map::new());
        assert_eq!(emptied.shift_remove("a"), Some(Value::Null));
        assert_eq!(emptied, Map::new());
        assert_eq!((emptied.len(), Map::new().iter().count(), Map::new().into_iter().count()), (0, 0, 0));
        let mut none = Map::with_capacity(0);
        none.extend([]);
        none.retain(|_, _| true);
        assert!(none.0.is_none() && none.get_mut("a").is_none(), "nothing is allocated for what is not there");
    }

    proptest! {
        /// An object of any size is as a list that is searched one by one.
        #[test]
        fn an_object_of_any_size_finds_its_members(changes in prop::collection::vec((0..60_u8, 0..4_u8), 0..300)) {
            let (mut map, mut list): (Map, Vec<(String, Value)>) = (Map::new(), Vec::new());
            for (number, (name, change)) in changes.into_iter().enumerate() {
                let (name, value) = (format!("m{name}"), Value::from(number as i64));
                let at = list.iter().position(|(known, _)| *known == name);
                prop_assert_eq!(map.get(&name), at.map(|at| &list[at].1));
                match (change, at) {
                    (0, at) => prop_assert_eq!(map.shift_remove(&name), at.map(|at| list.remove(at).1)),
                    (1, at) if number % 50 == 0 => {
                        map.retain(|known, _| *known != name);
                        at.map(|at| list.remove(at));
                    }
                    (_, Some(at)) => {
                        prop_assert_eq!(map.insert(name, value.clone()), Some(std::mem::replace(&mut list[at].1, value)));
                    }
                    (_, None) => {
                        prop_assert_eq!(&*map.or_insert_with(name.clone(), || value.clone()), &value);
                        list.push((name, value));
                    }
                }
            }
            prop_assert_eq!(map.clone().into_iter().collect::<Vec<_>>(), list.clone());
            prop_assert_eq!(map, list.into_iter().rev().collect::<Map>());
        }
    }
}
