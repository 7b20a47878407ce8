//! Durability `exit`: retains the checkpoints of a run until it ends and folds them into one.

use std::collections::HashMap;

use crate::base::{Encoded, TaskId};
use crate::store::batch::{Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, NewWrite, NewWrites, Payload};

/// The time at which a run commits its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Saving {
    /// Each superstep on its own.
    #[default]
    Steps,
    /// Everything as one checkpoint at the end.
    AtEnd,
    /// As one checkpoint at the end; nothing if the run is done or has reached its recursion limit.
    UnlessDone,
}

/// Puts the bytes of writes that are not stored into the changes that refer to them.
pub(super) fn hold(changes: &mut [Change], unsaved: &[NewWrites]) {
    if unsaved.is_empty() || changes.is_empty() {
        return;
    }
    let mut writes: HashMap<(TaskId, i32), &NewWrite> = HashMap::new();
    for task in unsaved {
        writes.extend(task.writes.iter().map(|write| ((task.task, write.index), write)));
    }
    let own = |data: &mut Data| {
        let Data::OfWrite(from) = &*data else { return };
        let Some(write) = writes.get(&(from.task, from.index)) else { return };
        let null = || Payload::from(Encoded::null());
        *data = Data::New(write.value.payloads().get(from.part as usize).cloned().unwrap_or_else(null));
    };
    for change in changes {
        match &mut change.value {
            ChangeValue::Value(data) => own(data),
            ChangeValue::Items(items) => items.iter_mut().for_each(|item| {
                if let ItemOp::Put(data) = &mut item.op {
                    own(data);
                }
            }),
            ChangeValue::Empty => {}
        }
    }
}

/// Folds a checkpoint into the retained one: the result is one checkpoint on the parent of the first, with the changes
/// of both. The writes that it consumed are not stored; the changes hold their bytes.
pub(super) fn fold(kept: Option<NewCheckpoint>, mut next: NewCheckpoint) -> NewCheckpoint {
    hold(&mut next.changes, &std::mem::take(&mut next.consumed));
    for change in &mut next.changes {
        // The tasks that wrote do not belong to the stored parent.
        change.task = None;
        if let ChangeValue::Items(items) = &mut change.value {
            items.iter_mut().for_each(|item| item.task = None);
        }
    }
    let Some(kept) = kept else { return next };
    let mut changes = kept.changes;
    for change in next.changes {
        match changes.iter_mut().find(|old| old.channel == change.channel) {
            Some(old) => {
                old.version = change.version;
                match (&mut old.value, change.value) {
                    (ChangeValue::Items(old), ChangeValue::Items(new)) => add_items(old, new),
                    (old, new) => *old = new,
                }
            }
            None => changes.push(change),
        }
    }
    let mut seen = kept.seen;
    seen.retain(|old| next.seen.iter().all(|new| new.node != old.node));
    seen.append(&mut next.seen);
    (next.parent, next.changes, next.seen) = (kept.parent, changes, seen);
    next
}

/// Adds later changes of a list. A position has one operation; a put is dropped once a later change deletes its item.
pub(super) fn add_items(old: &mut Vec<ItemChange>, new: Vec<ItemChange>) {
    let last = old.iter().map(|change| change.position).max().unwrap_or(0);
    let appends = |change: &ItemChange| matches!(change.op, ItemOp::Put(_)) && change.position > last;
    if new.iter().all(appends) {
        return old.extend(new);
    }
    for mut change in new {
        if let ItemOp::DeleteRange { end } = change.op {
            old.retain(|old| match old.op {
                ItemOp::DeleteRange { end: before } => old.position < change.position || before > end,
                _ => old.position < change.position || old.position >= end,
            });
        } else {
            let at = old.iter().position(|old| old.position == change.position && old.op.is_of_position());
            let was = at.map(|at| old.remove(at).op);
            if matches!((was, &change.op), (Some(ItemOp::Put(_)), ItemOp::Delete)) {
                // The position may be free in the parent, which a range delete permits.
                change.op = ItemOp::DeleteRange { end: change.position + 1 };
            }
        }
        old.push(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(slot: u64) -> ItemChange {
        ItemChange::new(slot, ItemOp::Put(Data::New(Payload::default())), None)
    }

    fn cut(slot: u64, end: u64) -> ItemChange {
        ItemChange::new(slot, ItemOp::DeleteRange { end }, None)
    }

    #[test]
    fn later_changes_of_a_list_take_the_place_of_earlier_ones() {
        let slots = |changes: &[ItemChange]| changes.iter().map(|change| change.position).collect::<Vec<_>>();
        let mut items = vec![put(3), put(4)];
        add_items(&mut items, vec![put(5)]);
        assert_eq!(slots(&items), [3, 4, 5]);
        add_items(&mut items, vec![ItemChange::new(4, ItemOp::Delete, None)]);
        assert_eq!(items[..], [put(3), put(5), cut(4, 5)]);
        add_items(&mut items, vec![cut(0, 6), put(0)]);
        assert_eq!(items, [cut(0, 6), put(0)]);
        add_items(&mut items, vec![cut(0, 8)]);
        assert_eq!(items, [cut(0, 8)], "the wider cut is enough");
        add_items(&mut items, vec![put(2), cut(9, 10)]);
        assert_eq!(items, [cut(0, 8), put(2), cut(9, 10)]);
        add_items(&mut items, vec![cut(0, 3), put(1)]);
        assert_eq!(items, [cut(0, 8), cut(9, 10), cut(0, 3), put(1)], "a narrower cut leaves the wide one");
        add_items(&mut items, vec![cut(0, 8)]);
        assert_eq!(items, [cut(9, 10), cut(0, 8)]);
    }

    #[test]
    fn a_position_has_one_put_in_whatever_order_the_positions_changed() {
        let mut items = vec![put(3), put(4)];
        add_items(&mut items, vec![put(1)]);
        add_items(&mut items, vec![put(4)]);
        assert_eq!(items, [put(3), put(1), put(4)]);
    }

    #[test]
    fn a_put_at_the_first_position_leaves_the_reference_of_the_list() {
        let of = crate::base::ListRef::new(
            crate::base::Namespace::root(),
            crate::base::CheckpointId::from_bytes([1; 16]),
            "list",
        );
        let reference = || ItemChange::new(0, ItemOp::Reference(of.clone()), None);
        let mut items = vec![reference()];
        add_items(&mut items, vec![put(0)]);
        assert_eq!(items, [reference(), put(0)]);
    }
}
