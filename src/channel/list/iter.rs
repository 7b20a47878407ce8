//! Walking a list from both ends, leaf by leaf.
//!
//! *Absent:* changing items on the way.

use std::iter::FusedIterator;
use std::sync::Arc;

use super::tree::Tree;

/// The items of a list in order.
#[derive(Debug)]
pub struct Iter<'a, T>(pub(super) Positions<'a, T>);

/// The items of a list with their positions, in order.
#[derive(Debug)]
pub(crate) struct Positions<'a, T> {
    items: &'a Tree<u64, Arc<T>>,
    /// The places that are left.
    front: usize,
    back: usize,
    /// The rest of the leaf at either end; both may be the same leaf, the places decide.
    head: &'a [(u64, Arc<T>)],
    tail: &'a [(u64, Arc<T>)],
}

impl<'a, T> Positions<'a, T> {
    pub(super) fn new(items: &'a Tree<u64, Arc<T>>, front: usize) -> Self {
        Self { items, front, back: items.len(), head: &[], tail: &[] }
    }
}

impl<'a, T> Iterator for Positions<'a, T> {
    type Item = (u64, &'a Arc<T>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        if self.head.is_empty() {
            let (leaf, at) = self.items.leaf_at(self.front);
            self.head = leaf.get(at..)?;
        }
        let ((position, value), rest) = self.head.split_first()?;
        self.head = rest;
        self.front += 1;
        Some((*position, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.back - self.front;
        (left, Some(left))
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        self.head = self.head.get(n..).unwrap_or_default();
        self.front = self.front.saturating_add(n).min(self.back);
        self.next()
    }
}

impl<T> DoubleEndedIterator for Positions<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        if self.tail.is_empty() {
            let (leaf, at) = self.items.leaf_at(self.back - 1);
            self.tail = leaf.get(..=at)?;
        }
        let ((position, value), rest) = self.tail.split_last()?;
        self.tail = rest;
        self.back -= 1;
        Some((*position, value))
    }
}

impl<T> ExactSizeIterator for Positions<'_, T> {}

impl<T> FusedIterator for Positions<'_, T> {}

impl<T> Clone for Positions<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.0.next().map(|entry| &**entry.1)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<&'a T> {
        self.0.nth(n).map(|entry| &**entry.1)
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|entry| &**entry.1)
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> FusedIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
