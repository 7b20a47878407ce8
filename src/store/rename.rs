//! Renames checkpoints in a batch that is not stored yet.
//!
//! Invariant: every field of a batch that names a checkpoint is visited, so that a renamed batch refers to itself as it
//! did before. *Absent:* ids inside encoded values.

use std::collections::HashMap;

use crate::base::CheckpointId;

use super::batch::{Batch, ChangeValue, ItemOp, ListRef, NewCheckpoint, NewWrites, Parent, WriteValue};
use super::operation::OperationValue;

/// The new ids of checkpoints.
type NewNames = HashMap<CheckpointId, CheckpointId>;

/// Renames the checkpoints that a batch and those of its `then` name.
pub(super) fn batch(batch: &mut Batch, ids: &NewNames) {
    for expect in &mut batch.expect {
        expect.head.iter_mut().for_each(|head| id(head, ids));
    }
    batch.writes.iter_mut().for_each(|writes| task_writes(writes, ids));
    batch.timers.iter_mut().for_each(|timer| id(&mut timer.checkpoint, ids));
    batch.checkpoints.iter_mut().for_each(|new| checkpoint(new, ids));
    for change in batch.operation.iter_mut().flat_map(|operation| &mut operation.changes) {
        for value in [&mut change.before, &mut change.after].into_iter().flatten() {
            if let OperationValue::Checkpoint(of) = value {
                id(of, ids);
            }
        }
    }
    batch.then.iter_mut().for_each(|part| self::batch(part, ids));
}

fn id(of: &mut CheckpointId, ids: &NewNames) {
    if let Some(new) = ids.get(of) {
        *of = *new;
    }
}

fn checkpoint(new: &mut NewCheckpoint, ids: &NewNames) {
    id(&mut new.id, ids);
    match &mut new.parent {
        Some(Parent::Local(parent)) => id(parent, ids),
        Some(Parent::Fork(point)) => id(&mut point.checkpoint, ids),
        None => {}
    }
    if new.parents.iter().any(|(_, parent)| ids.contains_key(parent)) {
        let mut parents = new.parents.to_vec();
        parents.iter_mut().for_each(|(_, parent)| id(parent, ids));
        new.parents = parents.into();
    }
    new.consumed.iter_mut().for_each(|writes| task_writes(writes, ids));
    for change in &mut new.changes {
        let ChangeValue::Items(items) = &mut change.value else { continue };
        for item in items {
            if let ItemOp::Reference(of) = &mut item.op {
                list(of, ids);
            }
        }
    }
}

fn task_writes(of: &mut NewWrites, ids: &NewNames) {
    id(&mut of.checkpoint, ids);
    for write in &mut of.writes {
        if let WriteValue::Delta(delta) = &mut write.value {
            list(&mut delta.of, ids);
        }
    }
}

fn list(of: &mut ListRef, ids: &NewNames) {
    id(&mut of.checkpoint, ids);
}
