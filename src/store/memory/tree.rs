//! A persistent ordered map: its versions share their common nodes.
//!
//! It is a treap: a put or a range delete copies the nodes on the path to the change that another version shares, and
//! changes the others in place, so that every checkpoint holds its whole state at the cost of its changes. Priorities
//! are hashes of the keys, so the shape depends on the keys alone; two versions made in different ways compare quickly
//! where they share nodes.

use std::borrow::Borrow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A version of a map. Cloning it is O(1).
pub(super) struct VersionMap<K, V>(Link<K, V>);

type Link<K, V> = Option<Arc<MapNode<K, V>>>;

#[derive(Clone)]
struct MapNode<K, V> {
    key: K,
    value: V,
    priority: u64,
    len: usize,
    left: Link<K, V>,
    right: Link<K, V>,
}

impl<K: Ord + Hash + Clone, V: Clone> VersionMap<K, V> {
    pub(super) fn len(&self) -> usize {
        len(&self.0)
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut link = &self.0;
        while let Some(node) = link {
            link = match key.cmp(node.key.borrow()) {
                std::cmp::Ordering::Equal => return Some(&node.value),
                std::cmp::Ordering::Less => &node.left,
                std::cmp::Ordering::Greater => &node.right,
            };
        }
        None
    }

    /// Returns the entry with the greatest key.
    pub(super) fn last(&self) -> Option<(&K, &V)> {
        let mut node = self.0.as_ref()?;
        while let Some(right) = &node.right {
            node = right;
        }
        Some((&node.key, &node.value))
    }

    /// Sets a key to a value, whether it was there or not.
    pub(super) fn put(&mut self, key: K, value: V) {
        let priority = priority(&key);
        put(&mut self.0, key, value, priority);
    }

    /// Deletes the keys from `from` up to, but not with, `end`, and returns how many there were.
    pub(super) fn delete_range(&mut self, from: &K, end: &K) -> usize {
        let (below, rest) = split(self.0.clone(), from);
        let (gone, above) = split(rest, end);
        // A range without a key leaves all nodes as they are.
        if gone.is_some() {
            self.0 = merge(below, above);
        }
        len(&gone)
    }

    /// Walks up from the first key that is not below `from`.
    pub(super) fn walk_up(&self, from: Option<&K>) -> MapWalk<'_, K, V> {
        let mut walk = MapWalk { stack: Vec::new(), up: true };
        let mut link = &self.0;
        while let Some(node) = link {
            let inside = from.is_none_or(|from| node.key >= *from);
            if inside {
                walk.stack.push(node);
            }
            link = if inside { &node.left } else { &node.right };
        }
        walk
    }

    /// Walks down from the last key below `before`.
    pub(super) fn walk_down(&self, before: Option<&K>) -> MapWalk<'_, K, V> {
        let mut walk = MapWalk { stack: Vec::new(), up: false };
        let mut link = &self.0;
        while let Some(node) = link {
            let inside = before.is_none_or(|before| node.key < *before);
            if inside {
                walk.stack.push(node);
            }
            link = if inside { &node.right } else { &node.left };
        }
        walk
    }

    /// Returns whether order, priorities and lengths are as they must be.
    pub(super) fn is_sound(&self) -> bool {
        let ordered = self.walk_up(None).zip(self.walk_up(None).skip(1)).all(|((a, _), (b, _))| a < b);
        ordered && self.0.as_ref().is_none_or(|node| node.is_sound())
    }
}

impl<K: Ord + Hash + Clone, V: Clone> MapNode<K, V> {
    /// Counts the entries again after a change below.
    fn count(&mut self) {
        self.len = len(&self.left) + len(&self.right) + 1;
    }

    fn is_sound(&self) -> bool {
        let below =
            |link: &Link<K, V>| link.as_ref().is_none_or(|child| child.priority <= self.priority && child.is_sound());
        self.priority == priority(&self.key)
            && self.len == len(&self.left) + len(&self.right) + 1
            && below(&self.left)
            && below(&self.right)
    }
}

fn make<K, V>(key: K, value: V, priority: u64, left: Link<K, V>, right: Link<K, V>) -> Arc<MapNode<K, V>> {
    let len = len(&left) + len(&right) + 1;
    Arc::new(MapNode { key, value, priority, len, left, right })
}

fn len<K, V>(link: &Link<K, V>) -> usize {
    link.as_ref().map_or(0, |node| node.len)
}

/// Returns the hash of a key under fixed hasher keys: the shape must not differ between two runs.
fn priority(key: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn put<K: Ord + Hash + Clone, V: Clone>(link: &mut Link<K, V>, key: K, value: V, priority: u64) {
    let Some(node) = link else {
        *link = Some(make(key, value, priority, None, None));
        return;
    };
    if node.key == key {
        match Arc::get_mut(node) {
            Some(own) => own.value = value,
            None => *link = Some(make(key, value, priority, node.left.clone(), node.right.clone())),
        }
        return;
    }
    // A node of lower priority cannot stand above the key, so the key is not in this part of the tree.
    if priority > node.priority {
        let (left, right) = split(link.take(), &key);
        *link = Some(make(key, value, priority, left, right));
        return;
    }
    let node = Arc::make_mut(node);
    let side = if key < node.key { &mut node.left } else { &mut node.right };
    put(side, key, value, priority);
    node.count();
}

/// Splits into the keys below `key`, and the others.
fn split<K: Ord + Hash + Clone, V: Clone>(link: Link<K, V>, key: &K) -> (Link<K, V>, Link<K, V>) {
    let Some(mut node) = link else { return (None, None) };
    let own = Arc::make_mut(&mut node);
    if own.key < *key {
        let (below, rest) = split(own.right.take(), key);
        own.right = below;
        own.count();
        (Some(node), rest)
    } else {
        let (below, rest) = split(own.left.take(), key);
        own.left = rest;
        own.count();
        (below, Some(node))
    }
}

/// Joins two trees; all keys of the first are below all keys of the second.
fn merge<K: Ord + Hash + Clone, V: Clone>(below: Link<K, V>, above: Link<K, V>) -> Link<K, V> {
    match (below, above) {
        (None, other) | (other, None) => other,
        (Some(mut a), Some(b)) if a.priority >= b.priority => {
            let own = Arc::make_mut(&mut a);
            own.right = merge(own.right.take(), Some(b));
            own.count();
            Some(a)
        }
        (Some(a), Some(mut b)) => {
            let own = Arc::make_mut(&mut b);
            own.left = merge(Some(a), own.left.take());
            own.count();
            Some(b)
        }
    }
}

/// A walk over the entries of a map in one direction.
pub(super) struct MapWalk<'a, K, V> {
    /// Nodes that come next, each before what lies on its far side.
    stack: Vec<&'a MapNode<K, V>>,
    up: bool,
}

impl<'a, K, V> Iterator for MapWalk<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.stack.pop()?;
        let mut link = if self.up { &next.right } else { &next.left };
        while let Some(node) = link {
            self.stack.push(node);
            link = if self.up { &node.left } else { &node.right };
        }
        Some((&next.key, &next.value))
    }
}

impl<K, V> Clone for VersionMap<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Default for VersionMap<K, V> {
    fn default() -> Self {
        Self(None)
    }
}

/// Equality of keys and values. Shared nodes are equal without a look inside.
impl<K: PartialEq, V: PartialEq> PartialEq for VersionMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        fn same<K: PartialEq, V: PartialEq>(a: &Link<K, V>, b: &Link<K, V>) -> bool {
            match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    Arc::ptr_eq(a, b)
                        || (a.key == b.key && a.value == b.value && same(&a.left, &b.left) && same(&a.right, &b.right))
                }
                _ => false,
            }
        }
        same(&self.0, &other.0)
    }
}

impl<K, V> std::fmt::Debug for VersionMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({})", len(&self.0))
    }
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests {
    use super::super::stored::{ChannelContent, ChannelVersion, CheckpointState, Item, StoredList};
    use super::*;
    use crate::base::IdSource;
    use crate::store::batch::Payload;
    use std::collections::BTreeMap;

    #[test]
    fn versions_equal_a_btree_map_and_stay_as_they_were() {
        let mut random = IdSource::from_seed(7);
        let mut versions = vec![(VersionMap::default(), BTreeMap::new())];
        for step in 0..2_000u64 {
            let pick = random.random() as usize % versions.len();
            let (mut tree, mut map) = versions[if step % 50 == 0 { pick } else { versions.len() - 1 }].clone();
            let key = random.random() % 300;
            if random.random().is_multiple_of(8) {
                let end = key + 1 + random.random() % 40;
                let before = map.len();
                map.retain(|k: &u64, _| !(key..end).contains(k));
                assert_eq!(tree.delete_range(&key, &end), before - map.len());
            } else {
                tree.put(key, step);
                map.insert(key, step);
            }
            versions.push((tree, map));
        }
        for (tree, map) in &versions {
            assert!(tree.is_sound());
            assert_eq!(tree.len(), map.len());
            assert!(tree.walk_up(None).eq(map.iter()));
            assert!(tree.walk_down(None).eq(map.iter().rev()));
            assert!(tree.walk_up(Some(&100)).eq(map.range(100..)));
            assert!(tree.walk_down(Some(&100)).eq(map.range(..100).rev()));
            assert_eq!(tree.last(), map.iter().next_back());
            assert_eq!(tree.get(&5), map.get(&5));
        }
    }

    #[test]
    fn the_shape_depends_on_the_keys_alone() {
        let (mut up, mut down) = (VersionMap::default(), VersionMap::default());
        (0..500u64).for_each(|key| up.put(key, ()));
        (0..600u64).rev().for_each(|key| down.put(key, ()));
        assert!(up != down);
        assert_eq!(down.delete_range(&500, &600), 100);
        assert!(up == down);
    }

    impl<K: Clone, V: Clone> VersionMap<K, V> {
        /// Miscounts the entries of a map that is not empty.
        pub(in crate::store::memory) fn damage(&mut self) {
            self.0.iter_mut().for_each(|node| Arc::make_mut(node).len += 1);
        }
    }

    #[test]
    fn a_map_shows_how_many_entries_it_has() {
        let mut map = VersionMap::default();
        assert_eq!(format!("{map:?}"), "Tree(0)");
        (0..3u64).for_each(|key| map.put(key, ()));
        assert_eq!(format!("{map:?}"), "Tree(3)");
    }

    fn node(key: u64, left: Link<u64, ()>, right: Link<u64, ()>) -> Link<u64, ()> {
        Some(make(key, (), priority(&key), left, right))
    }

    fn miscount(link: &mut Link<u64, ()>) {
        link.iter_mut().for_each(|node| Arc::make_mut(node).len += 1);
    }

    #[test]
    fn a_map_is_unsound_if_order_or_priority_or_length_is_wrong_anywhere() {
        // The priority of the key in the middle is the greatest.
        let is_top = |key: &u64| priority(key) > priority(&(key - 1)).max(priority(&(key + 1)));
        let top = (1..).find(is_top).unwrap();
        let (below, above) = (|| node(top - 1, None, None), || node(top + 1, None, None));
        let sound = || VersionMap(node(top, below(), above()));
        let damaged = |damage: fn(&mut MapNode<u64, ()>)| {
            let mut map = sound();
            damage(Arc::make_mut(map.0.as_mut().unwrap()));
            map
        };
        assert!(sound().is_sound() && VersionMap::<u64, ()>::default().is_sound());
        let unsound = [
            ("its length", damaged(|node| node.len += 1)),
            ("its priority", damaged(|node| node.priority += 1)),
            (
                "a length on the left",
                damaged(|node| {
                    miscount(&mut node.left);
                    node.count();
                }),
            ),
            (
                "a length on the right",
                damaged(|node| {
                    miscount(&mut node.right);
                    node.count();
                }),
            ),
            ("the order", damaged(|node| std::mem::swap(&mut node.left, &mut node.right))),
            ("a key that is there twice", VersionMap(node(top, node(top, None, None), None))),
            ("a greater priority on the left", VersionMap(node(top + 1, node(top, None, None), None))),
            ("a greater priority on the right", VersionMap(node(top - 1, None, node(top, None, None)))),
        ];
        for (what, map) in unsound {
            assert!(!map.is_sound(), "{what} is wrong");
        }
    }

    #[test]
    fn a_state_is_unsound_if_one_of_its_maps_is() {
        let state = |damage: usize| {
            let (mut list, mut state) = (StoredList::default(), CheckpointState::default());
            let payload = Arc::new(Payload::new(Vec::new()));
            list.positions.put(0, Item { seq: 1, ordinal: 0, task: None, payload });
            state.seen.put("node".into(), Vec::new());
            if damage == 1 {
                list.positions.damage();
            }
            let value = ChannelContent::Items(Arc::new(list));
            state.channels.put("list".into(), ChannelVersion { version: 1, ordinal: 0, task: None, value });
            match damage {
                2 => state.seen.damage(),
                3 => state.channels.damage(),
                _ => {}
            }
            state
        };
        assert_eq!([0, 1, 2, 3].map(|damage| state(damage).is_sound()), [true, false, false, false]);
    }
}
