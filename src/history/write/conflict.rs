//! Commits that lost a race, stored as a branch.
//!
//! A commit names the head it builds on, and is refused if another writer has moved that head. Its changes are still
//! those of a state that the log holds, so they can be stored as a branch off it. Invariant: the head stays where the
//! other writer moved it. *Absent:* merging the two.

use std::collections::HashMap;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Encoded, Payload, TaskId};
use crate::store::StoreError;
use crate::store::batch::{Batch, ChangeValue, Data, Expect, ItemOp, NewCheckpoint, NewWrite, NewWrites};
use crate::store::log::{CheckpointQuery, LogExt};
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};

use super::partial::PartialMessage;
use crate::history::thread::Thread;

/// The result of losing a race against another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnConflict {
    /// Nothing is stored, and the caller gets the conflict.
    #[default]
    Refuse,
    /// The changes are stored as a branch off the checkpoint that they were made on. The head stays where the other
    /// writer moved it.
    Branch,
}

/// A batch that was stored as a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBranch {
    /// The name of the branch, `conflict-1` for the first of the thread: [`Thread::branch`] finds it.
    pub name: String,
    /// Its last checkpoint. It has another id than in the batch if the other writer has stored a greater one.
    pub last: CheckpointId,
}

impl Thread {
    /// Stores a batch of the root namespace that was refused with a conflict as a branch with a name, off the
    /// checkpoint that its first one is a child of: for executors. The head stays where it is. The writes of tasks that
    /// the batch consumes become part of its changes, because the other writer may have stored writes of the same
    /// tasks; its other writes, and the changes of its operation but for the head, are stored with it.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the batch has no checkpoints, is of a subgraph or takes others along;
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](crate::store::log::Log::submit).
    pub fn commit_branch(&self, batch: &Batch) -> Result<StoredBranch, StoreError> {
        if batch.checkpoints.is_empty() || !batch.namespace.is_root() || !batch.then.is_empty() {
            let reason = "a branch needs checkpoints of the root namespace, and no others".to_owned();
            return Err(StoreError::Invalid { field: "batch.checkpoints", reason });
        }
        let mut attempt = 1;
        loop {
            let (aside, stored) = self.aside(batch)?;
            match self.store().commit(&aside) {
                // A field conflict: another lost race took the name.
                Err(StoreError::Conflict { .. } | StoreError::StaleId { .. } | StoreError::FieldConflict { .. })
                    if attempt < UPDATE_ATTEMPTS_MAX =>
                {
                    attempt += 1
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(stored),
            }
        }
    }

    /// Returns the first free name of a branch for a lost race: `conflict-1`, `conflict-2` and so on.
    fn free_name(&self) -> Result<String, StoreError> {
        let number = |(field, _): (OperationField, OperationValue)| match field {
            OperationField::Branch(name) => name.strip_prefix("conflict-")?.parse::<u64>().ok(),
            _ => None,
        };
        let last = self.fields()?.into_iter().filter_map(number).max();
        Ok(format!("conflict-{}", last.unwrap_or(0).saturating_add(1)))
    }

    /// Returns the batch on the present heads, with the operation that leaves them where they are.
    fn aside(&self, batch: &Batch) -> Result<(Batch, StoredBranch), StoreError> {
        let backend = self.store().backend();
        let mut heads = Vec::with_capacity(batch.expect.len());
        for expect in &batch.expect {
            let head = backend.head_id(self.id(), &expect.namespace)?;
            heads.push(Expect::new(expect.namespace.clone(), head));
        }
        let found = backend.head_id(self.id(), self.namespace())?;
        // After the heads: a checkpoint that another writer stores meanwhile has moved one of them, or is the newest.
        let mut query = CheckpointQuery::new(self.id().clone(), self.namespace().clone());
        query.limit = 1;
        let newest = backend.checkpoints(&query)?.first().map(|record| record.point.checkpoint);
        let mut new_ids: HashMap<CheckpointId, CheckpointId> = HashMap::new();
        let mut above = newest;
        for checkpoint in &batch.checkpoints {
            let mut id = checkpoint.id;
            if above.is_some_and(|above| id <= above) {
                id = self.store().mint_checkpoint(checkpoint.step, above.as_ref());
                new_ids.insert(checkpoint.id, id);
            }
            above = Some(id);
        }
        let mut aside = Batch { chain: None, ..batch.clone() };
        aside.rename(&new_ids);
        aside.expect = heads;
        let held: Vec<NewWrites> = aside.checkpoints.iter_mut().flat_map(hold).collect();
        let is_stored = |writes: &NewWrites| aside.checkpoints.iter().all(|own| own.id != writes.checkpoint);
        aside.writes.extend(held.into_iter().filter(is_stored));
        let last = above.unwrap_or_default();
        let stored = StoredBranch { name: self.free_name()?, last };
        let mut operation = NewOperation::new(OperationKind::Switch, self.store().now());
        operation.actor = self.actor().map(ToOwned::to_owned);
        // The head stays where the other writer moved it, whatever the batch would have done with it.
        let own = aside.operation.take().map(|own| own.changes).unwrap_or_default();
        let is_head = |change: &OperationChange| change.field == OperationField::Head && change.namespace.is_root();
        operation.changes = own.into_iter().filter(|change| !is_head(change) || change.thread != *self.id()).collect();
        let (thread, namespace) = (self.id().clone(), self.namespace().clone());
        let end = Some(OperationValue::Checkpoint(last));
        let name = OperationField::Branch(stored.name.clone());
        operation.changes.push(OperationChange::head(thread.clone(), namespace.clone(), Some(last), found));
        operation.changes.push(OperationChange::new(thread, namespace, name, None, end));
        aside.operation = Some(operation);
        Ok((aside, stored))
    }
}

/// Puts the bytes of the writes that a checkpoint consumes into its changes. Returns those that clear a partial
/// message, which another writer has no use for.
fn hold(checkpoint: &mut NewCheckpoint) -> Vec<NewWrites> {
    let consumed: Vec<NewWrites> = std::mem::take(&mut checkpoint.consumed);
    let mut writes: HashMap<(TaskId, i32), &NewWrite> = HashMap::new();
    for task in &consumed {
        writes.extend(task.writes.iter().map(|write| ((task.task, write.index), write)));
    }
    let own = |data: &mut Data| {
        let Data::OfWrite(of) = &*data else { return };
        let Some(write) = writes.get(&(of.task, of.index)) else { return };
        let payload = write.value.payloads().get(of.part as usize).cloned();
        *data = Data::New(payload.unwrap_or_else(|| Payload::from(Encoded::null())));
    };
    for change in &mut checkpoint.changes {
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
    let clearing = PartialMessage::clearing();
    let cleared = consumed.iter().filter(|task| task.writes.contains(&clearing));
    cleared.map(|task| NewWrites::clone(task).with(vec![clearing.clone()])).collect()
}
