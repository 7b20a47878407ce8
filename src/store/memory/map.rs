//! A persistent ordered map: its versions share the chunks that no change has touched.
//!
//! Entries lie in chunks, and chunks in pages. A change copies the chunk and the page of its key and the row of the
//! pages, which has a pointer for some thousands of entries. So a checkpoint holds its whole state at the cost of its
//! changes. *Absent:* the merging of chunks that deletions made small.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;

/// The entries of a full chunk, and the chunks of a full page. Maps of unit tests have several pages.
const FULL: usize = if cfg!(test) { 4 } else { 64 };

/// Entries in the order of their keys.
type MapChunk<K, V> = Arc<Vec<(K, V)>>;

/// A version of a map. No chunk and no page is empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VersionMap<K, V>(Vec<Arc<Vec<MapChunk<K, V>>>>);

impl<K, V> Default for VersionMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Clone, V: Clone> VersionMap<K, V> {
    pub(super) fn len(&self) -> usize {
        self.chunks().map(|chunk| chunk.len()).sum()
    }

    fn chunks(&self) -> impl DoubleEndedIterator<Item = &MapChunk<K, V>> {
        self.0.iter().flat_map(|page| page.iter())
    }

    /// Returns the page, the chunk in it, and the place in that where a key is or would be put.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let is_below = |chunk: &MapChunk<K, V>| chunk.last().is_some_and(|(last, _)| last.borrow() < key);
        let page = self.0.partition_point(|page| page.last().is_some_and(is_below)).min(self.0.len().saturating_sub(1));
        let Some(chunks) = self.0.get(page) else { return (0, 0, Err(0)) };
        let chunk = chunks.partition_point(is_below).min(chunks.len() - 1);
        (page, chunk, chunks[chunk].binary_search_by(|(of, _)| of.borrow().cmp(key)))
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (page, chunk, at) = self.place(key);
        at.ok().map(|at| &self.0[page][chunk][at].1)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (page, chunk, at) = self.place(key);
        at.ok().map(|at| &mut Arc::make_mut(&mut Arc::make_mut(&mut self.0[page])[chunk])[at].1)
    }

    /// Returns the entry with the greatest key.
    pub(super) fn last(&self) -> Option<&(K, V)> {
        self.0.last()?.last()?.last()
    }

    /// Sets a key to a value, whether it was there or not.
    pub(super) fn put(&mut self, key: K, value: V) {
        match self.place(&key) {
            (page, chunk, Ok(at)) => Arc::make_mut(&mut Arc::make_mut(&mut self.0[page])[chunk])[at].1 = value,
            _ if self.0.is_empty() => self.0.push(Arc::new(vec![Arc::new(vec![(key, value)])])),
            (page, chunk, Err(at)) => {
                let chunks = &mut self.0[page];
                let next = insert(&mut Arc::make_mut(chunks)[chunk], at, (key, value));
                if let Some(next) = next.and_then(|next| insert(chunks, chunk + 1, next)) {
                    self.0.insert(page + 1, next);
                }
            }
        }
    }

    /// Retains the entries of which `stays` returns true, of a range of keys or of all; it may change them.
    pub(super) fn retain(&mut self, keys: Option<&Range<K>>, mut stays: impl FnMut(&K, &mut V) -> bool) {
        let is_touched = |first: &MapChunk<K, V>, last: &MapChunk<K, V>| {
            keys.is_none_or(|keys| first[0].0 < keys.end && last[last.len() - 1].0 >= keys.start)
        };
        for page in self.0.iter_mut().filter(|page| is_touched(&page[0], &page[page.len() - 1])) {
            let chunks = Arc::make_mut(page);
            for chunk in chunks.iter_mut().filter(|chunk| is_touched(chunk, chunk)) {
                let chunk = Arc::make_mut(chunk);
                chunk.retain_mut(|(key, value)| keys.is_some_and(|keys| !keys.contains(key)) || stays(key, value));
            }
            chunks.retain(|chunk| !chunk.is_empty());
        }
        self.0.retain(|page| !page.is_empty());
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &(K, V)> {
        self.chunks().flat_map(|chunk| chunk.iter())
    }

    /// Walks up from the first key that is not below `from`.
    pub(super) fn from<'m>(&'m self, from: Option<&K>) -> impl Iterator<Item = &'m (K, V)> + use<'m, K, V> {
        let (page, chunk, at) = from.map_or((0, 0, Err(0)), |from| self.place(from));
        let chunks = self.0[page..].iter().flat_map(|page| page.iter()).skip(chunk);
        chunks.flat_map(|chunk| chunk.iter()).skip(at.unwrap_or_else(|at| at))
    }

    /// Walks down from the last key below `before`.
    pub(super) fn below(&self, before: Option<&K>) -> impl Iterator<Item = &(K, V)> {
        let is_above = move |key: &K| before.is_some_and(|before| key >= before);
        let pages = before.map_or(self.0.len(), |before| self.0.len().min(self.place(before).0 + 1));
        let chunks = self.0[..pages].iter().rev().flat_map(|page| page.iter().rev());
        let chunks = chunks.skip_while(move |chunk| is_above(&chunk[0].0));
        chunks.flat_map(|chunk| chunk.iter().rev()).skip_while(move |(key, _)| is_above(key))
    }
}

/// Inserts an entry into a chunk, or a chunk into a page. Returns the one that follows a full one: keys that ascend
/// leave full ones behind.
fn insert<T: Clone>(row: &mut Arc<Vec<T>>, at: usize, entry: T) -> Option<Arc<Vec<T>>> {
    if at == FULL {
        return Some(Arc::new(vec![entry]));
    }
    let own = Arc::make_mut(row);
    own.insert(at, entry);
    (own.len() > FULL).then(|| Arc::new(own.split_off(FULL / 2)))
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
                map.retain(|k: &u64, _| !(key..end).contains(k));
                version.retain(Some(&(key..end)), |_, _| false);
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
        (0..10 * (FULL * FULL) as u64).for_each(|key| map.put(key, ()));
        assert_eq!((map.0.len(), map.chunks().count()), (10, 10 * FULL));
    }
}
