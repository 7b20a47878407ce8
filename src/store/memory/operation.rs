//! Operations in memory: compared with the present contents of the fields, then applied as one.

use super::stored::{MemoryLog, NamespaceVersion, StoredThread, invalid};
use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::backend::sort_changes;
use crate::store::{
    BranchRecord, NewOperation, OperationChange, OperationField, OperationQuery, OperationRecord, OperationValue,
    StoreError,
};

/// The place to which the head of a namespace was moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovedHead {
    /// The newest checkpoint at that time: the move ends with the next one.
    pub(super) newest: CheckpointId,
    pub(super) head: Option<CheckpointId>,
}

/// Stores an operation: with all of its changes, or not at all.
pub(super) fn operate(log: &mut MemoryLog, new: &NewOperation) -> Result<u64, StoreError> {
    new.validate()?;
    let not_found = |change: &OperationChange| StoreError::ThreadNotFound { id: change.thread.clone() };
    for change in &new.changes {
        log.space(&change.thread, &change.namespace).ok_or_else(|| not_found(change))?;
    }
    let touches = |record: &&OperationRecord| record.changes.iter().any(|change| is_same(change, &new.changes[0]));
    if let Some(stored) = log.operations.iter().rev().find(touches).filter(|stored| new.is_stored_as(stored)) {
        return Ok(stored.id);
    }
    new.changes.iter().try_for_each(|change| compare(log, change))?;
    if let Some(expected) = &new.newest {
        let of_thread = |record: &&OperationRecord| record.changes.iter().any(|of| of.thread == expected.thread);
        let operation = log.operations.iter().rev().find(of_thread).map(|record| record.id);
        let root = log.space(&expected.thread, &Namespace::root());
        expected.compare(operation, root.and_then(NamespaceVersion::newest_id))?;
    }
    log.operation += 1;
    let mut changes = new.changes.clone();
    sort_changes(&mut changes);
    changes.iter().for_each(|change| apply(log, change));
    log.operations.push(OperationRecord::new(log.operation, log.seq, new, changes));
    Ok(log.operation)
}

fn is_same(a: &OperationChange, b: &OperationChange) -> bool {
    (&a.thread, &a.namespace, &a.field) == (&b.thread, &b.namespace, &b.field)
}

/// Compares the present content of a field with the one that a change expects.
fn compare(log: &MemoryLog, change: &OperationChange) -> Result<(), StoreError> {
    let space = log.space(&change.thread, &change.namespace);
    for value in [&change.before, &change.after].into_iter().flatten() {
        if let OperationValue::Checkpoint(id) = value
            && space.is_none_or(|space| space.checkpoints.get(id).is_none())
        {
            return Err(StoreError::CheckpointNotFound { thread: change.thread.clone(), id: id.to_string() });
        }
    }
    if let Some(OperationValue::Checkpoint(id)) = &change.after
        && let Some(after) = space.and_then(|space| space.checkpoints.get(id))
    {
        after.must_be_kept()?;
    }
    if change.field != OperationField::Head {
        let found = log.threads.get(&change.thread).and_then(|thread| thread.fields.get(&change.field));
        if found == change.before.as_ref() {
            return Ok(());
        }
        return Err(StoreError::FieldConflict { thread: change.thread.clone(), field: change.field.to_string() });
    }
    let found = space.and_then(NamespaceVersion::head_id);
    let expected = checkpoint_of(change.before.as_ref());
    if found == expected {
        return Ok(());
    }
    let (thread, namespace) = (change.thread.clone(), change.namespace.clone());
    Err(StoreError::Conflict { thread, namespace, expected, found })
}

fn checkpoint_of(value: Option<&OperationValue>) -> Option<CheckpointId> {
    match value {
        Some(OperationValue::Checkpoint(id)) => Some(*id),
        _ => None,
    }
}

fn apply(log: &mut MemoryLog, change: &OperationChange) {
    let Some(thread) = log.threads.get_mut(&change.thread) else { return };
    if change.field == OperationField::Head {
        if let Some(space) = thread.spaces.get_mut(&change.namespace)
            && let Some(newest) = space.newest_id()
        {
            space.moved = Some(MovedHead { newest, head: checkpoint_of(change.after.as_ref()) });
        }
        return;
    }
    match &change.after {
        Some(value) => _ = thread.fields.insert(change.field.clone(), value.clone()),
        None => _ = thread.fields.remove(&change.field),
    }
}

/// Lists operations, newest first.
pub(super) fn list(log: &MemoryLog, query: &OperationQuery) -> Vec<OperationRecord> {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let is_of = |record: &&OperationRecord| {
        let of_thread = |thread: &ThreadId| record.changes.iter().any(|change| change.thread == *thread);
        query.before.is_none_or(|before| record.id < before) && query.thread.as_ref().is_none_or(of_thread)
    };
    log.operations.iter().rev().filter(is_of).take(limit).cloned().collect()
}

/// Returns the contents of the fields of a thread, but for heads.
pub(super) fn fields(thread: &StoredThread) -> Vec<(OperationField, OperationValue)> {
    thread.fields.iter().map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// Returns the branches of a namespace, the newest first.
pub(super) fn branches(log: &MemoryLog, thread: &ThreadId, namespace: &Namespace) -> Vec<BranchRecord> {
    let Some(space) = log.space(thread, namespace) else { return Vec::new() };
    let mut found: Vec<BranchRecord> = Vec::new();
    for (_, stored) in space.checkpoints.walk_down(None) {
        let record = &stored.record;
        let parent = match (&record.parent, &record.forked_from) {
            (Some(id), _) => space.checkpoints.get(id),
            (None, Some(at)) => log.stored(at),
            (None, None) => None,
        };
        let leaves = parent.map(|parent| (parent.record.branch, parent.record.ordinal));
        match found.last_mut() {
            Some(last) if last.last.branch == record.branch => last.leaves = leaves,
            _ => found.push(BranchRecord::new(record.clone(), leaves)),
        }
    }
    found
}

/// Forgets the changes of deleted threads.
pub(super) fn forget(log: &mut MemoryLog, threads: &[ThreadId]) {
    log.operations.iter_mut().for_each(|record| record.changes.retain(|change| !threads.contains(&change.thread)));
    log.operations.retain(|record| !record.changes.is_empty());
}

/// Verifies that each move names checkpoints of its namespace.
pub(super) fn check(space: &NamespaceVersion) -> Result<(), StoreError> {
    let Some(moved) = space.moved else { return Ok(()) };
    let is_stored = |id: &CheckpointId| space.checkpoints.get(id).is_some();
    if is_stored(&moved.newest) && moved.head.as_ref().is_none_or(is_stored) {
        return Ok(());
    }
    invalid("head", "it was moved to a checkpoint that is not stored".into())
}
