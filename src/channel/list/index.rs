//! Finding the items of a list by key.
//!
//! The index is a tree of (hash of the key, position), so it shares and copies as the list does. It covers the
//! positions below an end and reads later items only when it is asked; below that end every change is entered at once.
//! *Absent:* the keys themselves, which stay in the items.

use std::sync::Arc;

use super::tree::Tree;
use crate::base::internal::hash::check64;

/// An item that may have a key by which it is found, such as the id of a message.
///
/// # Example: find an item by its key
/// ```
/// use annals::channel::{Keyed, List};
///
/// struct Note(&'static str, i32);
///
/// impl Keyed for Note {
///     fn key(&self) -> Option<&str> {
///         Some(self.0)
///     }
/// }
///
/// let mut notes = List::from(vec![Note("a", 1), Note("b", 2)]);
/// let position = notes.find("a").expect("a is there");
/// assert_eq!(notes.at_position(position).map(|note| note.1), Some(1));
/// assert_eq!(notes.find("c"), None);
/// ```
pub trait Keyed {
    /// Returns the key. It must not change while the item is in a list.
    fn key(&self) -> Option<&str>;
}

/// The index of keys.
#[derive(Debug)]
pub(super) struct KeyIndex<T> {
    places: Places,
    /// Positions below this are in `places`.
    end: u64,
    /// `Keyed::key`, so that changes need not know that the items have keys.
    key: fn(&T) -> Option<&str>,
}

/// Hashes of keys, with positions. Short entries lie close together: of a long list more stays in the caches of the
/// CPU.
#[derive(Clone, Debug, Default)]
struct Places {
    near: Tree<(u32, u32), ()>,
    /// Those whose positions are too large for it.
    far: Tree<(u32, u64), ()>,
}

impl Places {
    fn insert(&mut self, hash: u32, position: u64) {
        match u32::try_from(position) {
            Ok(position) => self.near.insert((hash, position), ()),
            Err(_) => self.far.insert((hash, position), ()),
        };
    }

    fn remove(&mut self, hash: u32, position: u64) {
        match u32::try_from(position) {
            Ok(position) => self.near.remove(&(hash, position)),
            Err(_) => self.far.remove(&(hash, position)),
        };
    }

    /// Returns the last position of a hash that is not behind `last`.
    fn last(&self, hash: u32, last: u64) -> Option<u64> {
        let far = self.far.floor(&(hash, last)).filter(|entry| entry.0.0 == hash);
        if let Some(((_, position), ())) = far {
            return Some(*position);
        }
        let last = u32::try_from(last).unwrap_or(u32::MAX);
        let near = self.near.floor(&(hash, last)).filter(|entry| entry.0.0 == hash);
        near.map(|((_, position), ())| u64::from(*position))
    }
}

impl<T> KeyIndex<T> {
    pub(super) fn new() -> Self
    where
        T: Keyed,
    {
        Self { places: Places::default(), end: 0, key: T::key }
    }

    /// Returns whether a change of this position has to be entered.
    pub(super) fn covers(&self, position: u64) -> bool {
        position < self.end
    }

    /// Enters `new` in place of `old` as the item of a position.
    pub(super) fn change(&mut self, position: u64, old: Option<&T>, new: Option<&T>) {
        debug_assert!(self.covers(position), "the index reads later positions by itself");
        let (old, new) = (old.and_then(self.key), new.and_then(self.key));
        if old == new {
            return;
        }
        if let Some(key) = old {
            self.places.remove(hash(key), position);
        }
        if let Some(key) = new {
            self.places.insert(hash(key), position);
        }
    }

    /// Reads the items that came since the last time; `end` is the end position of the list.
    pub(super) fn catch_up(&mut self, items: &Tree<u64, Arc<T>>, end: u64) {
        debug_assert!(self.end <= end, "the index covers no position that the list never had");
        if self.end == end {
            return;
        }
        for (position, item) in super::Positions::new(items, items.rank(&self.end)) {
            if let Some(key) = (self.key)(item) {
                self.places.insert(hash(key), position);
            }
        }
        self.end = end;
    }

    /// Returns the last position whose item has this key.
    pub(super) fn find(&self, items: &Tree<u64, Arc<T>>, key: &str) -> Option<u64> {
        let (hash, mut last) = (hash(key), u64::MAX);
        // Usually one step: more only for another key with the same hash.
        while let Some(position) = self.places.last(hash, last) {
            debug_assert!(self.covers(position), "every indexed position is covered");
            if items.get(&position).and_then(|item| (self.key)(item)) == Some(key) {
                return Some(position);
            }
            last = position.checked_sub(1)?;
        }
        None
    }
}

fn hash(key: &str) -> u32 {
    (check64(key.as_bytes()) >> 32) as u32
}

impl<T> Clone for KeyIndex<T> {
    fn clone(&self) -> Self {
        Self { places: self.places.clone(), end: self.end, key: self.key }
    }
}
