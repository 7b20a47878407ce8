//! A persistent ordered map: its versions share the chunks that no change has touched.
//!
//! A change copies the chunk of its key and the row of the chunks. So a checkpoint holds its whole state at the cost
//! of its changes, and a clone costs the row alone. *Absent:* the merging of chunks that deletions made small.

use std::borrow::Borrow;
use std::sync::Arc;

/// The entries of a full chunk.
const CHUNK: usize = 64;

/// A version of a map: chunks in the order of their keys. None is empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VersionMap<K, V>(Vec<Arc<Vec<(K, V)>>>);

impl<K, V> Default for VersionMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Clone, V: Clone> VersionMap<K, V> {
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|chunk| chunk.len()).sum()
    }

    /// Returns the number of the first chunk that ends at a key or above it.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| last.borrow() < key))
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.0.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(of, _)| of.borrow().cmp(key)).ok()?;
        Some(&chunk[at].1)
    }

    /// Returns the entry with the greatest key.
    pub(super) fn last(&self) -> Option<&(K, V)> {
        self.0.last()?.last()
    }

    /// Sets a key to a value, whether it was there or not.
    pub(super) fn put(&mut self, key: K, value: V) {
        let number = self.chunk_of(&key).min(self.0.len().saturating_sub(1));
        let Some(chunk) = self.0.get_mut(number) else { return self.0.push(Arc::new(vec![(key, value)])) };
        match chunk.binary_search_by(|(of, _)| of.cmp(&key)) {
            Ok(at) => Arc::make_mut(chunk)[at].1 = value,
            // Keys that ascend leave full chunks behind.
            Err(CHUNK) => self.0.insert(number + 1, Arc::new(vec![(key, value)])),
            Err(at) => {
                let own = Arc::make_mut(chunk);
                own.insert(at, (key, value));
                if own.len() > CHUNK {
                    let rest = own.split_off(CHUNK / 2);
                    self.0.insert(number + 1, Arc::new(rest));
                }
            }
        }
    }

    /// Deletes the keys from `from` up to, but not with, `end`, and returns how many there were.
    pub(super) fn delete_range(&mut self, from: &K, end: &K) -> usize {
        let (first, mut deleted) = (self.chunk_of(from), 0);
        for chunk in self.0.iter_mut().skip(first).take_while(|chunk| chunk[0].0 < *end) {
            let before = chunk.len();
            Arc::make_mut(chunk).retain(|(key, _)| key < from || key >= end);
            deleted += before - chunk.len();
        }
        self.0.retain(|chunk| !chunk.is_empty());
        deleted
    }

    /// Retains the entries of which `stays` returns true; it may change them.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&K, &mut V) -> bool) {
        self.0.iter_mut().for_each(|chunk| Arc::make_mut(chunk).retain_mut(|(key, value)| stays(key, value)));
        self.0.retain(|chunk| !chunk.is_empty());
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &(K, V)> {
        self.0.iter().flat_map(|chunk| chunk.iter())
    }

    /// Walks up from the first key that is not below `from`.
    pub(super) fn from(&self, from: Option<&K>) -> impl Iterator<Item = &(K, V)> {
        let first = from.map_or(0, |from| self.chunk_of(from));
        let entries = self.0[first..].iter().flat_map(|chunk| chunk.iter());
        entries.skip_while(move |(key, _)| from.is_some_and(|from| key < from))
    }

    /// Walks down from the last key below `before`.
    pub(super) fn below(&self, before: Option<&K>) -> impl Iterator<Item = &(K, V)> {
        let end = before.map_or(self.0.len(), |before| self.0.len().min(self.chunk_of(before) + 1));
        let entries = self.0[..end].iter().rev().flat_map(|chunk| chunk.iter().rev());
        entries.skip_while(move |(key, _)| before.is_some_and(|before| key >= before))
    }
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::IdSource;
    use std::collections::BTreeMap;

    #[test]
    fn versions_equal_a_btree_map_and_stay_as_they_were() {
        let mut random = IdSource::from_seed(7);
        let mut versions = vec![(VersionMap::default(), BTreeMap::new())];
        for step in 0..2_000u64 {
            let pick = random.random() as usize % versions.len();
            let (mut version, mut map) = versions[if step % 50 == 0 { pick } else { versions.len() - 1 }].clone();
            let key = random.random() % 300;
            if random.random().is_multiple_of(8) {
                let end = key + 1 + random.random() % 40;
                let before = map.len();
                map.retain(|k: &u64, _| !(key..end).contains(k));
                assert_eq!(version.delete_range(&key, &end), before - map.len());
            } else {
                version.put(key, step);
                map.insert(key, step);
            }
            versions.push((version, map));
        }
        for (version, map) in &versions {
            let entry = |(key, value): &(u64, u64)| (*key, *value);
            let copied = |(key, value): (&u64, &u64)| (*key, *value);
            assert_eq!(version.len(), map.len());
            assert!(version.iter().map(entry).eq(map.iter().map(copied)));
            assert!(version.from(Some(&100)).map(entry).eq(map.range(100..).map(copied)));
            assert!(version.below(Some(&100)).map(entry).eq(map.range(..100).rev().map(copied)));
            assert_eq!(version.last().map(entry), map.iter().next_back().map(copied));
            assert!((0..300).all(|key| version.get(&key) == map.get(&key)));
        }
    }

    #[test]
    fn ascending_keys_fill_their_chunks() {
        let mut map = VersionMap::default();
        (0..10 * CHUNK as u64).for_each(|key| map.put(key, ()));
        assert_eq!(map.0.len(), 10);
    }
}
