//! Lists that a graph gives to a subgraph and takes back from it, without copies.
//!
//! A list is given as a clone, which costs O(1), and comes back as the difference from it. Both are stored by reference
//! to the list of the parent graph. *Absent:* when two channels fit ([`ListRule`] says so), and the store.

use std::any::TypeId;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{ListDelta, ListRef, Payload, WriteValue};
use crate::channel::{Cell, Channel, ChannelEffect, ChannelError, List, ListChange, ListOp};

use super::error::StateError;
use super::layout::StateRef;
use super::lists::{ListItems, take_items};
use super::writes::BoxWrite;

/// The rule that two list channels must share, so that one can take the list of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct ListRule {
    /// The types of the channel and of the items.
    pub(super) id: TypeId,
    /// True if items are merged by their ids, so that items that come back unchanged change nothing.
    pub merges: bool,
}

/// The description of a given list, independent of the type of its items.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Told {
    /// The list that was given, if it is stored.
    pub of: Option<ListRef>,
    /// True if the list comes back to the graph that gave it.
    returns: bool,
    /// The positions of the given list at which it has no item.
    removed: Vec<Range<u64>>,
    /// The positions at which it has another item, ascending.
    positions: Vec<u64>,
}

/// A list that is given, or comes back.
#[derive(Clone)]
pub(super) struct Given<T> {
    list: List<T>,
    /// The list that was given.
    base: List<T>,
    /// The items of the list at the positions that differ.
    pub(super) changed: Vec<T>,
}

/// The number of an item that is not among those its write stores.
#[doc(hidden)]
pub const NOT_STORED: usize = usize::MAX;

impl<T: Clone + Send + Sync + 'static> Given<T> {
    /// Gives a list to another graph.
    pub(super) fn give(list: &List<T>, of: Option<ListRef>) -> BoxWrite {
        let told = Told { of, returns: false, removed: Vec::new(), positions: Vec::new() };
        BoxWrite::told(Self { list: list.clone(), base: list.clone(), changed: Vec::new() }, told)
    }

    /// Gives a list back that came of what `given` gave.
    pub(super) fn give_back(list: &List<T>, given: &BoxWrite, is_same: impl Fn(&T, &T) -> bool) -> Option<BoxWrite> {
        let (Self { base, .. }, told) = (given.get::<Self>()?, given.told_of()?);
        let diff = list.changed_since(base, is_same);
        let told = Told {
            of: told.of.clone(),
            returns: true,
            removed: ranges(&diff.gone),
            positions: diff.puts.iter().map(|(position, _)| *position).collect(),
        };
        let changed: Vec<T> = diff.puts.iter().map(|(_, item)| T::clone(item)).collect();
        debug_assert_eq!(told.positions.len(), changed.len(), "each position that differs has its item");
        Some(BoxWrite::told(Self { list: list.clone(), base: base.clone(), changed }, told))
    }

    /// Returns all items.
    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.list.iter()
    }

    /// Returns the items that have to be merged into a list, with their numbers in the write that stores them.
    fn to_merge(&self, told: &Told, into: &List<T>, is_same: impl Fn(&T, &T) -> bool) -> (Vec<T>, Vec<usize>) {
        if !told.returns {
            // Its positions mean nothing there.
            return (self.list.to_vec(), vec![NOT_STORED; self.list.len()]);
        }
        if into.is_same(&self.base) {
            return (self.changed.clone(), (0..self.changed.len()).collect());
        }
        let part = |position: &u64| told.positions.binary_search(position).unwrap_or(NOT_STORED);
        let diff = self.list.changed_since(into, is_same);
        diff.puts.into_iter().map(|(position, item)| (T::clone(item), part(&position))).unzip()
    }
}

/// Returns positions as ranges that do not touch.
fn ranges(positions: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for position in positions {
        match ranges.last_mut() {
            Some(last) if last.end == *position => last.end += 1,
            _ => ranges.push(*position..position + 1),
        }
    }
    ranges
}

/// Encodes a list that is given: as the difference, if the list that was given is stored. Of a list that comes back to
/// one that is not stored the items that differ are encoded: they are merged by their ids.
pub(super) fn encode<I: ListItems>(name: &Arc<str>, write: &BoxWrite) -> Option<Result<WriteValue, StateError>> {
    let (given, told) = (write.get::<Given<I::Item>>()?, write.told_of()?);
    let encode = |item: &I::Item| I::encode(name, item);
    Some(match &told.of {
        Some(of) => given.changed.iter().map(encode).collect::<Result<_, _>>().map(|items| {
            let mut delta = ListDelta::new(of.clone());
            (delta.removed, delta.positions, delta.items) = (told.removed.clone(), told.positions.clone(), items);
            WriteValue::Delta(Box::new(delta))
        }),
        None if told.returns => given.changed.iter().map(encode).collect::<Result<_, _>>().map(WriteValue::Items),
        None => given.items().map(encode).collect::<Result<_, _>>().map(WriteValue::Items),
    })
}

/// Decodes what [`encode`] told, given the list that it tells of; `None` if that is none of such items.
pub(super) fn decode<I: ListItems>(
    name: &Arc<str>,
    delta: &ListDelta,
    base: &StateRef,
    returns: bool,
) -> Option<Result<BoxWrite, StateError>> {
    let base = base.downcast_ref::<List<I::Item>>()?;
    let decode = |item: &Payload| I::decode(name, item.as_ref());
    let changed = match delta.items.iter().map(decode).collect::<Result<Vec<_>, _>>() {
        Ok(changed) => changed,
        Err(error) => return Some(Err(error)),
    };
    debug_assert_eq!(delta.positions.len(), changed.len(), "a stored delta has an item for each position");
    let mut list = base.clone();
    for range in &delta.removed {
        let gone =
            list.iter_from(range.start).map(|(position, _)| position).take_while(|position| *position < range.end);
        gone.collect::<Vec<_>>().into_iter().for_each(|position| _ = list.remove(position));
    }
    for (position, item) in delta.positions.iter().zip(&changed) {
        list.insert_at_position(*position, item.clone());
    }
    let (of, removed, positions) = (Some(delta.of.clone()), delta.removed.clone(), delta.positions.clone());
    let told = Told { of, returns, removed, positions };
    Some(Ok(BoxWrite::told(Given { list, base: base.clone(), changed }, told)))
}

/// Applies writes of which some are lists that are given. An empty list becomes the one that is given to it.
pub(super) fn update<I: ListItems, C: Channel<List<I::Item>, Vec<I::Item>>>(
    name: &Arc<str>,
    channel: &C,
    cell: Cell<'_, List<I::Item>>,
    writes: Vec<BoxWrite>,
) -> Result<Result<ChannelEffect, ChannelError>, StateError> {
    let Cell { value: list, present } = cell;
    if let [write] = writes.as_slice()
        && list.is_empty()
        && list.end_position() == I::empty().end_position()
        && let (Some(given), Some(Told { returns: false, .. })) = (write.get::<Given<I::Item>>(), write.told_of())
    {
        *list = given.list.clone();
        *present = true;
        return Ok(Ok(ChannelEffect::Shared(0)));
    }
    let before = list.clone();
    let mut changes = Vec::new();
    for (at, write) in writes.into_iter().enumerate() {
        let (items, parts) = match (write.get::<Given<I::Item>>(), write.told_of()) {
            (Some(given), Some(told)) => given.to_merge(told, list, I::is_same),
            _ => {
                let items = take_items::<I::Item>(name, write)?;
                let parts = (0..items.len()).collect();
                (items, parts)
            }
        };
        match channel.update(Cell { value: &mut *list, present: &mut *present }, vec![items]) {
            Ok(ChannelEffect::Items(new)) => new.into_iter().for_each(|change| {
                let op = match change.op {
                    ListOp::Put { part, .. } => ListOp::Put { write: at, part: parts[part] },
                    op => op,
                };
                add(&mut changes, ListChange { op, ..change }, &before);
            }),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(ChannelEffect::Items(sorted(changes))))
}

/// Returns the changes in the order in which they are stored: range deletes first.
fn sorted(mut changes: Vec<ListChange>) -> Vec<ListChange> {
    changes.sort_by_key(|change| (!matches!(change.op, ListOp::DeleteRange { .. }), change.position));
    changes
}

/// Adds a later change: a position has one, and an item that was put and removed leaves none.
fn add<T>(changes: &mut Vec<ListChange>, new: ListChange, before: &List<T>) {
    if let ListOp::DeleteRange { end } = new.op {
        changes.retain(|old| match old.op {
            ListOp::DeleteRange { end: before } => old.position < new.position || before > end,
            _ => old.position < new.position || old.position >= end,
        });
        // Items above were never stored.
        let end = end.min(before.end_position());
        if end > new.position {
            changes.push(ListChange { op: ListOp::DeleteRange { end }, ..new });
        }
        return;
    }
    changes.retain(|old| old.position != new.position || matches!(old.op, ListOp::DeleteRange { .. }));
    if new.op != ListOp::Delete || before.at_position(new.position).is_some() {
        changes.push(new);
    }
}
