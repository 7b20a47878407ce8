//! A persistent list: cloned in O(1), changed in O(log n) also while clones live.
//!
//! Every item has a position, its number in storage: items are ordered by position, and a position never changes. Items
//! that have a key ([`Keyed`]) are found by it. *Absent:* what an item is, how it is stored, and how updates are
//! reduced.

mod diff;
mod index;
mod iter;
mod tree;

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use index::Keyed;
pub use iter::Iter;
use iter::Positions;

/// A persistent list, shared by its clones.
///
/// It reads like a slice ([`iter`](Self::iter), [`get`](Self::get), `list[i]`), but its items do not lie side by side:
/// a place is found in O(log n), a step of an iterator is O(1).
///
/// # Example: a clone keeps what it saw
/// ```
/// use annals::channel::List;
///
/// let mut list: List<i32> = [1, 2].into_iter().collect();
/// let before = list.clone();
/// list.extend([3]);
/// assert_eq!(list.to_vec(), [1, 2, 3]);
/// assert_eq!(before.to_vec(), [1, 2]);
/// ```
pub struct List<T> {
    items: tree::Tree<u64, Arc<T>>,
    end: u64,
    index: Option<index::KeyIndex<T>>,
}

impl<T> List<T> {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self { items: tree::Tree::default(), end: 0, index: None }
    }

    /// Returns an empty list whose first item gets this position.
    pub(crate) fn starting_at(position: u64) -> Self {
        Self { end: position, ..Self::new() }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item at a place.
    pub fn get(&self, index: usize) -> Option<&T> {
        let (leaf, at) = self.items.leaf_at(index);
        leaf.get(at).map(|entry| &*entry.1)
    }

    /// Returns the first item.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// Returns the last item.
    pub fn last(&self) -> Option<&T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns the items in order.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(Positions::new(&self.items, 0))
    }

    /// Returns the last `n` items in order; all if there are fewer.
    pub fn tail(&self, n: usize) -> Iter<'_, T> {
        Iter(Positions::new(&self.items, self.len().saturating_sub(n)))
    }

    /// Returns the items with their positions, in order.
    pub fn iter_positions(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<T>)> + ExactSizeIterator + Clone {
        Positions::new(&self.items, 0)
    }

    /// Returns the items from a position on with their positions, in order.
    pub fn iter_from(
        &self,
        position: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Arc<T>)> + ExactSizeIterator + Clone {
        Positions::new(&self.items, self.items.rank(&position))
    }

    /// Returns copies of the items.
    pub fn to_vec(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.iter().cloned().collect()
    }

    /// Returns whether both are clones of one list that neither changed; `false` does not mean that they differ.
    pub fn is_same(&self, other: &Self) -> bool {
        self.items.is_same(&other.items)
    }

    /// Returns the position after the last one ever used: the next item takes it.
    pub fn end_position(&self) -> u64 {
        self.end
    }

    /// Returns the position of the item with this index.
    pub(crate) fn position_of(&self, index: usize) -> Option<u64> {
        let (leaf, at) = self.items.leaf_at(index);
        leaf.get(at).map(|entry| entry.0)
    }

    /// Returns the item at a position, shared.
    pub fn at_position(&self, position: u64) -> Option<&Arc<T>> {
        self.items.get(&position)
    }

    /// Adds an item at the end, and returns its position.
    pub(crate) fn push(&mut self, value: T) -> u64 {
        let position = self.end;
        debug_assert!(self.items.get(&position).is_none(), "the end position is free before a push");
        self.insert_at_position(position, value);
        debug_assert!(self.end > position, "the end position is above the new item after a push");
        position
    }

    /// Puts an item at a position, free or taken. Used to load a list: ascending positions are the quick case.
    pub(crate) fn insert_at_position(&mut self, position: u64, value: T) {
        self.insert_shared(position, Arc::new(value));
    }

    fn insert_shared(&mut self, position: u64, value: Arc<T>) {
        self.end = self.end.max(position.saturating_add(1));
        if let Some(index) = &mut self.index
            && index.covers(position)
        {
            let old = self.items.get(&position).map(|old| &**old);
            index.change(position, old, Some(&value));
        }
        self.items.insert(position, value);
    }

    /// Puts items at positions, as [`insert_at_position`](Self::insert_at_position) does one by one. An empty list that
    /// is loaded with ascending positions is built in one pass.
    pub(crate) fn load(&mut self, items: Vec<(u64, Arc<T>)>) {
        let ascend = items.is_sorted_by(|a, b| a.0 < b.0);
        match items.last() {
            Some((last, _)) if ascend && self.is_empty() && self.index.is_none() => {
                self.end = self.end.max(last.saturating_add(1));
                self.items = tree::Tree::from_ascending(items);
            }
            _ => items.into_iter().for_each(|(position, item)| self.insert_shared(position, item)),
        }
        debug_assert!(self.len() as u64 <= self.end, "every item is below the end after a load");
    }

    /// Puts an item in the place of the one at a position, and returns whether there was one. Nothing happens if not.
    pub(crate) fn replace(&mut self, position: u64, value: T) -> bool {
        let Some(item) = self.items.get_mut(&position) else { return false };
        if let Some(index) = &mut self.index
            && index.covers(position)
        {
            index.change(position, Some(item), Some(&value));
        }
        // An item that is not shared stays at its place in memory.
        match Arc::get_mut(item) {
            Some(old) => *old = value,
            None => *item = Arc::new(value),
        }
        true
    }

    /// Removes the item at a position.
    pub(crate) fn remove(&mut self, position: u64) -> Option<Arc<T>> {
        let old = self.items.remove(&position)?;
        if let Some(index) = &mut self.index
            && index.covers(position)
        {
            index.change(position, Some(&old), None);
        }
        debug_assert!(self.items.get(&position).is_none(), "the position is free after a removal");
        Some(old)
    }

    /// Removes all items, and returns the end position: later pushes go on from there.
    pub(crate) fn clear(&mut self) -> u64 {
        self.items = tree::Tree::default();
        self.index = None;
        self.end
    }
}

impl<T: Keyed> List<T> {
    /// Returns the position of the last item with this key.
    ///
    /// The first call reads all keys, O(n); each later one reads those that came since and takes O(log n). Clones taken
    /// after a call share its index; a list without a call has no index.
    pub fn find(&mut self, key: &str) -> Option<u64> {
        let index = self.index.get_or_insert_with(index::KeyIndex::new);
        index.catch_up(&self.items, self.end);
        index.find(&self.items, key)
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), end: self.end, index: self.index.clone() }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// Two lists are equal if their items are, in order; positions do not count.
impl<T: PartialEq> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for List<T> {}

/// Panics past the end, as a slice does; see [`List::get`].
impl<T> Index<usize> for List<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(item) => item,
            None => panic!("place {index} is past the end of a list of {} items", self.len()),
        }
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::new();
        list.extend(items);
        list
    }
}

impl<T> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push(item);
        }
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(List<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<List<T>, A::Error> {
                while let Some(item) = seq.next_element::<T>()? {
                    self.0.push(item);
                }
                Ok(self.0)
            }
        }
        deserializer.deserialize_seq(Items(List::new()))
    }
}

#[cfg(test)]
mod tests;
