//! Copies of threads: [`Thread::copy_to`] and [`Thread::copy_into`].
//!
//! The thread is read back as batches with the same ids of checkpoints; all batches are one commit. *Absent:* the
//! operations of the thread; its facts, the names of its branches and its heads are copied by one new operation in the
//! same commit.
//!
//! Invariant: no row of the copy refers to the thread that was copied.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId, Timestamp};
use crate::store::batch::Batch;
use crate::store::log::batches::{ForkParents, ThreadBatches, records_of};
use crate::store::log::{CheckpointQuery, Log, LogExt, LogReads};
use crate::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationValue,
};
use crate::store::record::CheckpointRecord;
use crate::store::{Store, StoreError, TRASHED};

use crate::history::thread::Thread;

impl Thread {
    /// Copies the thread to a new one: its checkpoints in all namespaces with their ids, the writes of their tasks, its
    /// timers, its facts, the names of its branches and its heads. The copy goes on without the original, which can be
    /// deleted; a copy of a fork is a fork of the same checkpoint, and that of a thread in the trash is not in the
    /// trash. Operations are not copied: an undo in the copy begins with the copy. Pruned checkpoints are not copied
    /// either, nor are the writes that build on their lists: a kept one that follows them begins with its whole state.
    ///
    /// The copy is one commit, so a crash leaves all of it or nothing, and it is the thread as it was at one time: what
    /// another writer changes meanwhile is copied whole, or not at all. The cost is that of the whole thread, also in
    /// memory, and other writers wait for the commit.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`]; [`StoreError::Conflict`] if the other thread exists already, or if other writers
    /// changed this one while it was read, 64 times in a row; [`StoreError::Id`]; as [`Log::submit`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let trip = store.thread("trip")?;
    /// trip.append("messages", [Message::human("hi")])?;
    /// let copy = trip.copy_to("trip by train")?;
    /// assert_eq!(copy.head()?.unwrap().id(), trip.head()?.unwrap().id());
    /// store.delete_thread("trip")?;
    /// assert_eq!(copy.head()?.unwrap().len("messages")?, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "copy_thread")]
    pub fn copy_to(&self, id: impl AsRef<str>) -> Result<Self, StoreError> {
        let copy = self.store().thread(id)?;
        self.copy_as(copy)
    }

    /// Copies the thread to a new one in another store, as [`Thread::copy_to`] does. A fork of another thread begins
    /// with its whole state there. The other store seals the copy with its own key if it is encrypted, and stores it in
    /// the clear otherwise.
    ///
    /// A copy can be repeated: a thread of the other store that has all the checkpoints already is returned as it is.
    /// [`Store::copy_to`] copies in parts, with the operations.
    ///
    /// # Errors
    /// As [`Thread::copy_to`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let (laptop, phone) = (Store::memory(), Store::memory());
    /// let trip = laptop.thread("trip")?;
    /// trip.append("messages", [Message::human("hi")])?;
    /// let copy = trip.copy_into(&phone, "trip")?;
    /// assert_eq!(copy.head()?.unwrap().id(), trip.head()?.unwrap().id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_into(&self, store: &Store, id: impl AsRef<str>) -> Result<Self, StoreError> {
        store.flush_abandoned();
        self.copy_as(store.thread(id)?)
    }

    fn copy_as(&self, copy: Self) -> Result<Self, StoreError> {
        self.store().flush_abandoned();
        let (source, target) = (self.store().backend(), copy.store().backend());
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let is_elsewhere = !Arc::ptr_eq(source, target);
            let forks = if is_elsewhere { ForkParents::None } else { ForkParents::All };
            let mut copying = ThreadBatches::new(&**source, (self.id(), copy.id()), forks);
            let targets = targets_of(&**source, self.id())?;
            let records = records_of(&**source, self.id())?;
            if records.is_empty() {
                return Err(StoreError::ThreadNotFound { id: self.id().clone() });
            }
            if !is_elsewhere && self.id() == copy.id() {
                // Its checkpoints can be stored once more or not, by the changes to them since. The copy is refused in
                // any case.
                let found = source.head_id(self.id(), self.namespace())?;
                let (thread, namespace) = (self.id().clone(), self.namespace().clone());
                return Err(StoreError::Conflict { thread, namespace, expected: None, found });
            }
            if is_elsewhere && has_all(&**target, copy.id(), &records)? {
                return Ok(copy);
            }
            must_be_new(&**target, copy.id(), &records)?;
            let mut batches = Vec::new();
            copying.each(&records, &mut |batch| {
                batches.push(batch);
                Ok(())
            })?;
            // Checkpoints only come with new heads, or with a greater newest one.
            if targets_of(&**source, self.id())? != targets {
                continue;
            }
            let Some(mut batch) = Batch::of_all(batches) else { break };
            batch.operation =
                operation_of(targets, copy.id(), &copying.heads, copy.store().now()).map(|mut operation| {
                    operation.actor = self.actor().map(ToOwned::to_owned);
                    operation
                });
            copy.store().commit(&batch)?;
            return Ok(copy);
        }
        let (thread, namespace) = (self.id().clone(), self.namespace().clone());
        let found = source.head_id(&thread, &namespace)?;
        Err(StoreError::Conflict { thread, namespace, expected: found, found })
    }
}

/// Returns whether a thread has all of these checkpoints.
fn has_all(backend: &dyn Log, thread: &ThreadId, records: &[CheckpointRecord]) -> Result<bool, StoreError> {
    let found = records_of(backend, thread)?;
    let found: HashSet<(&Namespace, CheckpointId)> = found.iter().map(point_of).collect();
    Ok(records.iter().all(|record| found.contains(&point_of(record))))
}

fn point_of(record: &CheckpointRecord) -> (&Namespace, CheckpointId) {
    (&record.point.namespace, record.point.checkpoint)
}

/// Refuses a thread that exists, unless it is the copy of these checkpoints, to which nothing was done yet.
fn must_be_new(backend: &dyn Log, thread: &ThreadId, records: &[CheckpointRecord]) -> Result<(), StoreError> {
    let is_changed = !backend.operations(&OperationQuery::new(Some(thread.clone()), 1))?.is_empty();
    for namespace in backend.namespaces(thread)? {
        let mut query = CheckpointQuery::new(thread.clone(), namespace.clone());
        query.limit = 1;
        let found = backend.checkpoints(&query)?.pop().map(|newest| newest.point.checkpoint);
        let mut copied = records.iter().rev().filter(|record| record.point.namespace == namespace);
        if is_changed || found != copied.next().map(|record| record.point.checkpoint) {
            return Err(StoreError::Conflict { thread: thread.clone(), namespace, expected: None, found });
        }
    }
    Ok(())
}

/// Reads the facts, the names of branches, and the head and the newest checkpoint of each namespace of a thread.
pub(super) fn targets_of(log: &dyn Log, from: &ThreadId) -> Result<Targets, StoreError> {
    let mut heads = Vec::new();
    for namespace in log.namespaces(from)? {
        let mut query = CheckpointQuery::new(from.clone(), namespace.clone());
        query.limit = 1;
        let newest = log.checkpoints(&query)?.pop().map(|newest| newest.point.checkpoint);
        heads.push((log.head_id(from, &namespace)?, newest, namespace));
    }
    Ok(Targets { fields: log.fields(from)?, heads })
}

/// Returns the operation that gives a copy the facts, the names of branches and the heads of the thread. `newest_of` is
/// the newest copied checkpoint of each namespace.
fn operation_of(
    targets: Targets,
    to: &ThreadId,
    newest_of: &HashMap<Namespace, CheckpointId>,
    at: Timestamp,
) -> Option<NewOperation> {
    let mut operation = NewOperation::new(OperationKind::Facts, at);
    let root = Namespace::root;
    for (field, value) in targets.fields {
        if field != OperationField::Fact(TRASHED.to_owned()) {
            operation.changes.push(OperationChange::new(to.clone(), root(), field, None, Some(value)));
        }
    }
    let moved = targets.heads.iter().filter(|(head, newest, _)| head != newest);
    let mut heads: Vec<OperationChange> = moved
        .map(|(head, newest, namespace)| OperationChange::head(to.clone(), namespace.clone(), *newest, *head))
        .collect();
    if !heads.is_empty() {
        operation.kind = OperationKind::Rewind;
        if operation.changes.is_empty() && heads.iter().all(|change| !change.namespace.is_root()) {
            // An operation on a subgraph names the head of the root namespace.
            let of_root = newest_of.get(&root()).copied();
            heads.push(OperationChange::head(to.clone(), root(), of_root, of_root));
        }
        operation.changes.extend(heads);
    }
    Some(operation).filter(|operation| !operation.changes.is_empty())
}

/// The state of a thread that operations change.
#[derive(PartialEq)]
pub(super) struct Targets {
    pub(super) fields: Vec<(OperationField, OperationValue)>,
    /// The head and the newest checkpoint of each namespace.
    pub(super) heads: Vec<(Option<CheckpointId>, Option<CheckpointId>, Namespace)>,
}

#[cfg(test)]
mod tests {
    use crate::store::{Store, StoreError};

    #[test]
    fn a_thread_is_not_copied_onto_itself() {
        let folder = tempfile::tempdir().unwrap();
        for store in [Store::memory(), Store::open(folder.path().join("x.db")).unwrap()] {
            let missing = store.thread("none").unwrap().copy_to("none");
            assert!(matches!(missing, Err(StoreError::ThreadNotFound { .. })), "{missing:?}");
            let trip = store.thread("trip").unwrap();
            let head = trip.write().set("n", 1).commit().unwrap();
            // A fork has the checkpoints of its beginning alone, and no operation.
            let fork = trip.at(head).unwrap().fork_to("fork").unwrap();
            for thread in [&trip, &fork] {
                for copy in [thread.copy_to(thread.id()), thread.copy_into(&store, thread.id())] {
                    assert!(matches!(copy, Err(StoreError::Conflict { .. })), "{copy:?}");
                }
            }
        }
    }
}
