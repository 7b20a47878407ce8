//! Commits that lost a race, stored as a branch.
//!
//! A commit names the head it builds on, and is refused if another writer has moved that head. Its changes are still those of
//! a state that the log holds, so they can be stored as a branch off it. Invariant: the head stays where the other writer
//! moved it. *Absent:* merging the two.

use std::collections::HashMap;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Encoded, Payload, TaskId};
use crate::store::batch::{ChangeValue, Data, Expect, ItemOp};
use crate::store::{
    Batch, CheckpointQuery, NewCheckpoint, NewOperation, NewWrite, NewWrites, OperationChange, OperationField,
    OperationKind, OperationValue, Parent, StoreError,
};

use super::thread::Thread;

/// The result of losing a race against another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnConflict {
    /// Nothing is stored, and the caller gets the conflict.
    #[default]
    Refuse,
    /// The changes are stored as a branch off the checkpoint that they were made on. The head stays where the other writer
    /// moved it.
    Branch,
}

/// A batch that was stored as a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBranch {
    /// The name of the branch: [`Thread::branch`] finds it.
    pub name: String,
    /// Its last checkpoint. It has another id than in the batch if the other writer has stored a greater one.
    pub last: CheckpointId,
}

impl Thread {
    /// Stores a batch of the root namespace that was refused with a conflict as a branch with a name, off the checkpoint that
    /// its first one is a child of: for executors. The head stays where it is. The writes of tasks that the batch
    /// consumes become part of its changes, because the other writer may have stored writes of the same tasks.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the batch has no checkpoints, is of a subgraph or takes others along;
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Backend::commit`](crate::store::Backend::commit).
    pub fn commit_branch(&self, batch: &Batch) -> Result<StoredBranch, StoreError> {
        if batch.checkpoints.is_empty() || !batch.namespace.is_root() || !batch.then.is_empty() {
            let reason = "a branch needs checkpoints of the root namespace, and no others".to_owned();
            return Err(StoreError::Invalid { field: "batch.checkpoints", reason });
        }
        let mut attempt = 1;
        loop {
            let (aside, stored) = self.aside(batch)?;
            match self.store().commit(&aside) {
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                Err(error) => return Err(error),
                Ok(()) => return Ok(stored),
            }
        }
    }

    /// Returns the batch on the present heads, with the operation that leaves them where they are.
    fn aside(&self, batch: &Batch) -> Result<(Batch, StoredBranch), StoreError> {
        let backend = self.store().backend();
        let mut query = CheckpointQuery::new(self.id().clone(), self.namespace().clone());
        query.limit = 1;
        let newest = backend.checkpoints(&query)?.first().map(|record| record.point.checkpoint);
        let mut aside = Batch::new(self.id().clone(), self.namespace().clone(), None);
        aside.expect.clear();
        for expect in &batch.expect {
            let head = backend.head_id(self.id(), &expect.namespace)?;
            aside.expect.push(Expect::new(expect.namespace.clone(), head));
        }
        let found = backend.head_id(self.id(), self.namespace())?;
        let mut new_ids: HashMap<CheckpointId, CheckpointId> = HashMap::new();
        let mut above = newest;
        for checkpoint in &batch.checkpoints {
            let mut own = checkpoint.clone();
            if above.is_some_and(|above| own.id <= above) {
                own.id = self.store().mint_checkpoint(own.step, above.as_ref());
            }
            if let Some(Parent::Local(parent)) = &mut own.parent {
                *parent = new_ids.get(parent).copied().unwrap_or(*parent);
            }
            new_ids.insert(checkpoint.id, own.id);
            above = Some(own.id);
            hold(&mut own);
            aside.checkpoints.push(own);
        }
        let last = above.unwrap_or_default();
        let stored = StoredBranch { name: format!("conflict {last}"), last };
        let mut operation = NewOperation::new(OperationKind::Switch, self.store().now());
        operation.actor = self.actor().map(ToOwned::to_owned);
        let (thread, namespace) = (self.id().clone(), self.namespace().clone());
        let end = Some(OperationValue::Checkpoint(last));
        let name = OperationField::Branch(stored.name.clone());
        operation.changes.push(OperationChange::head(thread.clone(), namespace.clone(), Some(last), found));
        operation.changes.push(OperationChange::new(thread, namespace, name, None, end));
        aside.operation = Some(operation);
        Ok((aside, stored))
    }
}

/// Puts the bytes of the writes that a checkpoint consumes into its changes.
fn hold(checkpoint: &mut NewCheckpoint) {
    let consumed: Vec<NewWrites> = std::mem::take(&mut checkpoint.consumed);
    let mut writes: HashMap<(TaskId, i32), &NewWrite> = HashMap::new();
    for task in &consumed {
        writes.extend(task.writes.iter().map(|write| ((task.task, write.index), write)));
    }
    let own = |data: &mut Data| {
        let Data::OfWrite(of) = &*data else { return };
        let Some(write) = writes.get(&(of.task, of.index)) else { return };
        let payload = write.value.payload(of.part as usize).cloned();
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
}
