//! Objects: names to values, in insertion order.
//!
//! Most objects of a message are empty, and an empty one takes a word: three of them in place of three tables of 72
//! bytes make a message half as large. *Absent:* limits, which those who read objects keep.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use indexmap::{Equivalent, IndexMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::value::Value;

type Members = IndexMap<String, Value, RandomState>;

/// An object: names to values, in insertion order. It reads and is changed as the [`IndexMap`] that it holds.
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

/// The table behind every empty object.
static EMPTY: LazyLock<Members> = LazyLock::new(Members::default);

impl Map {
    /// Returns an empty object.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns an empty object with room for some members.
    pub fn with_capacity(members: usize) -> Self {
        Self((members > 0).then(|| Box::new(Members::with_capacity(members))))
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |members| members.len())
    }

    /// Returns whether the object has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a member.
    pub fn get<Q: ?Sized + Hash + Equivalent<String>>(&self, name: &Q) -> Option<&Value> {
        self.0.as_ref()?.get(name)
    }

    /// Returns the value of a member, to be changed.
    pub fn get_mut<Q: ?Sized + Hash + Equivalent<String>>(&mut self, name: &Q) -> Option<&mut Value> {
        self.0.as_mut()?.get_mut(name)
    }

    /// Returns whether there is such a member.
    pub fn contains_key<Q: ?Sized + Hash + Equivalent<String>>(&self, name: &Q) -> bool {
        self.get(name).is_some()
    }

    /// Removes a member and returns its value. Those after it move up.
    pub fn shift_remove<Q: ?Sized + Hash + Equivalent<String>>(&mut self, name: &Q) -> Option<Value> {
        self.0.as_mut()?.shift_remove(name)
    }

    /// Keeps the members that a function says.
    pub fn retain(&mut self, keep: impl FnMut(&String, &mut Value) -> bool) {
        if let Some(members) = &mut self.0 {
            members.retain(keep);
        }
    }
}

impl Deref for Map {
    type Target = Members;

    fn deref(&self) -> &Members {
        self.0.as_deref().unwrap_or_else(|| &EMPTY)
    }
}

impl DerefMut for Map {
    fn deref_mut(&mut self) -> &mut Members {
        self.0.get_or_insert_default()
    }
}

impl From<Members> for Map {
    fn from(members: Members) -> Self {
        Self((!members.is_empty()).then(|| Box::new(members)))
    }
}

impl<const N: usize> From<[(String, Value); N]> for Map {
    fn from(members: [(String, Value); N]) -> Self {
        members.into_iter().collect()
    }
}

impl FromIterator<(String, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Self {
        Members::from_iter(members).into()
    }
}

impl Extend<(String, Value)> for Map {
    fn extend<I: IntoIterator<Item = (String, Value)>>(&mut self, members: I) {
        let mut members = members.into_iter().peekable();
        if members.peek().is_some() {
            (**self).extend(members);
        }
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = indexmap::map::IntoIter<String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|members| *members).unwrap_or_default().into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a String, &'a Value);
    type IntoIter = indexmap::map::Iter<'a, String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a String, &'a mut Value);
    type IntoIter = indexmap::map::IterMut<'a, String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// Two objects are equal if their members are; their order does not count.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.is_empty() && other.is_empty(),
        }
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
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
}
