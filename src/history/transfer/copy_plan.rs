//! The plan of a copy: the checkpoints of a thread and the operations between them, in the order of the log.
//!
//! Operations are planned anew: each expects what those before it have left in the copy, and the operation that it is
//! about is named by its place in the plan. One that moves a head to a pruned checkpoint is left out, since the copy
//! lacks that checkpoint. *Absent:* the states of checkpoints, which are read when they are copied.
//!
//! Invariant: the plan of a copy is that of its original.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::copy::{Targets, targets_of};
use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::StoreError;
use crate::store::log::batches::{CopiedPoint, copied_point, records_of};
use crate::store::log::checksum::LogChecksum;
use crate::store::log::{Log, LogExt};
use crate::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationRecord, OperationTarget,
    OperationValue, checkpoint_of,
};
use crate::store::record::CheckpointRecord;

/// The checkpoints and the operations of a thread.
pub(super) struct CopyPlan {
    pub(super) records: Vec<CheckpointRecord>,
    pub(super) operations: Vec<PlannedOperation>,
    /// The numbers of the operations in their store.
    pub(super) numbers: Vec<u64>,
    /// The checkpoints whose sleeping tasks have timers when the next operation, or the end, comes.
    pub(super) ends: HashSet<usize>,
    /// The operations that are left out.
    pub(super) left_out: u64,
    present: PlannedFields,
}

/// An operation of the plan.
#[derive(Debug, PartialEq)]
pub(super) struct PlannedOperation {
    /// The number of checkpoints before it.
    pub(super) after: usize,
    /// The operation. Its target is a place in the plan.
    pub(super) new: NewOperation,
}

/// The heads and the other fields of a thread after a part of its plan.
#[derive(Default)]
struct PlannedFields {
    heads: BTreeMap<Namespace, Option<CheckpointId>>,
    others: BTreeMap<OperationField, OperationValue>,
}

impl CopyPlan {
    /// Reads the plan of a thread; it is empty if the thread does not exist.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if other writers changed the thread while it was read, 64 times in a row.
    pub(super) fn read(log: &dyn Log, thread: &ThreadId) -> Result<Self, StoreError> {
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let (operations, targets) = (operations_of(log, thread)?, targets_of(log, thread)?);
            let records = records_of(log, thread)?;
            if targets_of(log, thread)? == targets && operations_of(log, thread)? == operations {
                return Ok(Self::of(thread, records, operations, &targets));
            }
        }
        let (thread, namespace) = (thread.clone(), Namespace::root());
        let found = log.head_id(&thread, &namespace)?;
        Err(StoreError::Conflict { thread, namespace, expected: found, found })
    }

    fn of(
        thread: &ThreadId,
        records: Vec<CheckpointRecord>,
        operations: Vec<OperationRecord>,
        targets: &Targets,
    ) -> Self {
        let points: HashSet<CopiedPoint> = records.iter().map(copied_point).collect();
        let mut plan = Self {
            operations: Vec::with_capacity(operations.len()),
            numbers: Vec::with_capacity(operations.len()),
            ends: HashSet::new(),
            left_out: 0,
            present: PlannedFields::default(),
            records,
        };
        let (mut places, mut newest, mut at) = (HashMap::new(), HashMap::new(), 0);
        for operation in &operations {
            // An operation needs its thread, also if all checkpoints before it were pruned.
            while plan.records.get(at).is_some_and(|record| at == 0 || record.seq <= operation.seq) {
                plan.pass(at, &mut newest);
                at += 1;
            }
            match plan.present.operation(operation, thread, &points, &places) {
                Some(new) => {
                    places.insert(operation.id, plan.operations.len());
                    plan.operations.push(PlannedOperation { after: at, new });
                    plan.numbers.push(operation.id);
                    plan.ends.extend(newest.values());
                }
                None => plan.left_out += 1,
            }
        }
        while at < plan.records.len() {
            plan.pass(at, &mut newest);
            at += 1;
        }
        plan.ends.extend(newest.values());
        if let Some(new) = plan.present.correction(thread, targets, plan.records.last()) {
            plan.operations.push(PlannedOperation { after: at, new });
        }
        plan
    }

    /// Goes past a checkpoint, which is the head of its namespace from then on.
    fn pass(&mut self, at: usize, newest: &mut HashMap<Namespace, usize>) {
        let point = &self.records[at].point;
        newest.insert(point.namespace.clone(), at);
        self.present.heads.insert(point.namespace.clone(), Some(point.checkpoint));
    }

    /// Returns how much of the plan a copy has, of which this is the plan: the numbers of its checkpoints and
    /// operations. `None` if it has anything else.
    pub(super) fn begun(&self, copy: &Self) -> Option<(usize, usize)> {
        let (records, operations) = (copy.records.len(), copy.operations.len());
        let is_same = |(own, other): (&CheckpointRecord, &CheckpointRecord)| copied_point(own) == copied_point(other);
        let is_begin = records <= self.records.len()
            && self.records.iter().zip(&copy.records).all(is_same)
            && self.operations.get(..operations)? == copy.operations
            // Nothing is left out between what the copy has.
            && self.operations.get(operations).is_none_or(|next| next.after >= records);
        is_begin.then_some((records, operations))
    }

    /// Adds what the thread ends with to its checksum.
    pub(super) fn end(&self, thread: &ThreadId, checksum: &mut LogChecksum) {
        checksum.end(&self.present.changes(thread));
    }
}

/// Returns the operations of a thread, oldest first.
fn operations_of(log: &dyn Log, thread: &ThreadId) -> Result<Vec<OperationRecord>, StoreError> {
    let (mut query, mut found) = (OperationQuery::new(Some(thread.clone()), 0), Vec::new());
    loop {
        let page = log.operations(&query)?;
        let Some(last) = page.last() else { break };
        query.before = Some(last.id);
        found.extend(page);
    }
    found.reverse();
    Ok(found)
}

impl PlannedFields {
    fn get(&self, namespace: &Namespace, field: &OperationField) -> Option<OperationValue> {
        match field {
            OperationField::Head => self.heads.get(namespace).copied().flatten().map(OperationValue::Checkpoint),
            field => self.others.get(field).cloned(),
        }
    }

    fn set(&mut self, change: &OperationChange) {
        match (&change.field, &change.after) {
            (OperationField::Head, after) => {
                _ = self.heads.insert(change.namespace.clone(), checkpoint_of(after.as_ref()));
            }
            (field, Some(value)) => _ = self.others.insert(field.clone(), value.clone()),
            (field, None) => _ = self.others.remove(field),
        }
    }

    /// Plans an operation; `None` if the copy lacks what it changes. `places` are the places of the operations before
    /// it.
    fn operation(
        &mut self,
        of: &OperationRecord,
        thread: &ThreadId,
        points: &HashSet<CopiedPoint>,
        places: &HashMap<u64, usize>,
    ) -> Option<NewOperation> {
        let mut new = NewOperation::new(of.kind, of.at);
        new.actor.clone_from(&of.actor);
        let is_stored = |change: &&OperationChange| {
            let after = checkpoint_of(change.after.as_ref());
            change.thread == *thread && after.is_none_or(|id| points.contains(&(change.namespace.clone(), id)))
        };
        for change in of.changes.iter().filter(is_stored) {
            let before = self.get(&change.namespace, &change.field);
            // It is as another operation has left it, after one that is left out.
            if before != change.after || change.before == change.after {
                new.changes.push(OperationChange { before, ..change.clone() });
            }
        }
        if new.changes.is_empty() {
            return None;
        }
        let namespace = &of.changes[0].namespace;
        new.target = match of.target {
            None => None,
            Some(OperationTarget::Operation(number)) => {
                places.get(&number).map(|place| OperationTarget::Operation(*place as u64))
            }
            Some(OperationTarget::Commits(id)) => {
                points.contains(&(namespace.clone(), id)).then_some(OperationTarget::Commits(id))
            }
        };
        if of.target.is_some() && new.target.is_none() {
            new.kind = kind_of(&new.changes);
        }
        self.finish(thread, &mut new);
        Some(new)
    }

    /// Returns the operation that makes the fields those of the thread, if they differ.
    fn correction(
        &mut self,
        thread: &ThreadId,
        targets: &Targets,
        last: Option<&CheckpointRecord>,
    ) -> Option<NewOperation> {
        let (mut new, root) = (NewOperation::new(OperationKind::Facts, last?.created_at), Namespace::root());
        for (head, _, namespace) in &targets.heads {
            let before = checkpoint_of(self.get(namespace, &OperationField::Head).as_ref());
            if before != *head {
                new.changes.push(OperationChange::head(thread.clone(), namespace.clone(), before, *head));
            }
        }
        let fields: BTreeMap<_, _> = targets.fields.iter().cloned().collect();
        let all: HashSet<&OperationField> = fields.keys().chain(self.others.keys()).collect();
        for field in all {
            let (before, after) = (self.others.get(field).cloned(), fields.get(field).cloned());
            if before != after {
                new.changes.push(OperationChange::new(thread.clone(), root.clone(), field.clone(), before, after));
            }
        }
        if new.changes.is_empty() {
            return None;
        }
        new.kind = kind_of(&new.changes);
        self.finish(thread, &mut new);
        Some(new)
    }

    /// Completes an operation, and makes its changes.
    fn finish(&mut self, thread: &ThreadId, new: &mut NewOperation) {
        let root = Namespace::root();
        if new.changes.iter().all(|change| !change.namespace.is_root()) {
            // An operation on a subgraph names the head of the root namespace.
            let head = checkpoint_of(self.get(&root, &OperationField::Head).as_ref());
            new.changes.push(OperationChange::head(thread.clone(), root, head, head));
        }
        crate::store::backend::sort_changes(&mut new.changes);
        new.changes.iter().for_each(|change| self.set(change));
    }

    /// Returns the fields as changes from nothing.
    fn changes(&self, thread: &ThreadId) -> Vec<OperationChange> {
        let head = |(namespace, id): (&Namespace, &Option<CheckpointId>)| {
            OperationChange::head(thread.clone(), namespace.clone(), None, *id)
        };
        let other = |(field, value): (&OperationField, &OperationValue)| {
            OperationChange::new(thread.clone(), Namespace::root(), field.clone(), None, Some(value.clone()))
        };
        self.heads.iter().map(head).chain(self.others.iter().map(other)).collect()
    }
}

/// Returns the kind of an operation with these changes that is not about another one.
fn kind_of(changes: &[OperationChange]) -> OperationKind {
    let moves = changes.iter().any(|change| change.field == OperationField::Head);
    if moves { OperationKind::Rewind } else { OperationKind::Facts }
}
