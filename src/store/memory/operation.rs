//! Operations, which are compared with the present contents of the fields, and deletions of threads.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use super::stored::{MemoryLog, MemoryNamespace};
use crate::base::limits::{DELETED_THREADS_MAX, FORKS_SHOWN_MAX, PAGE_ROWS_MAX};
use crate::base::{CheckpointId, Namespace, ThreadId, Timestamp};
use crate::store::StoreError;
use crate::store::backend::{deletable, delete_unforked, sort_changes, trash_is_due, validate_deleted};
use crate::store::log::{Erase, Erasure};
use crate::store::operation::{
    NewOperation, OperationChange, OperationField, OperationQuery, OperationRecord, OperationValue,
};
use crate::store::record::CheckpointRef;

/// Stores an operation with its changes.
pub(super) fn operate(log: &mut MemoryLog, new: &NewOperation) -> Result<u64, StoreError> {
    new.validate()?;
    for change in &new.changes {
        let not_found = || StoreError::ThreadNotFound { id: change.thread.clone() };
        log.space(&change.thread, &change.namespace).ok_or_else(not_found)?;
    }
    let field = |change: &OperationChange| (change.thread.clone(), change.namespace.clone(), change.field.clone());
    let newest = |of: &dyn Fn(&OperationChange) -> bool| {
        log.operations.iter().rev().map(|(_, record)| record).find(|record| record.changes.iter().any(of))
    };
    let first = field(&new.changes[0]);
    if let Some(stored) = newest(&|change| field(change) == first).filter(|stored| new.is_stored_as(stored)) {
        return Ok(stored.id);
    }
    new.changes.iter().try_for_each(|change| compare(log, change))?;
    if let Some(expected) = &new.newest {
        let operation = newest(&|change| change.thread == expected.thread).map(|record| record.id);
        let root = log.space(&expected.thread, &Namespace::root());
        expected.compare(operation, root.and_then(MemoryNamespace::newest_id))?;
    }
    log.operation += 1;
    let mut changes = new.changes.clone();
    sort_changes(&mut changes);
    changes.iter().for_each(|change| apply(log, change));
    let record = OperationRecord::new(log.operation, log.seq, new, changes);
    log.operations.put(log.operation, Arc::new(record));
    Ok(log.operation)
}

/// Compares the present content of a field with the one that a change expects.
fn compare(log: &MemoryLog, change: &OperationChange) -> Result<(), StoreError> {
    let thread = change.thread.clone();
    let at = |id: CheckpointId| CheckpointRef::new(change.thread.clone(), change.namespace.clone(), id);
    for id in [&change.before, &change.after].into_iter().filter_map(|value| checkpoint_of(value.as_ref())) {
        log.stored(&at(id))
            .ok_or_else(|| StoreError::CheckpointNotFound { thread: thread.clone(), id: id.to_string() })?;
    }
    if let Some(after) = checkpoint_of(change.after.as_ref()) {
        log.kept(&at(after))?;
    }
    if change.field != OperationField::Head {
        let found = log.threads.get(&change.thread).and_then(|thread| thread.fields.get(&change.field));
        let conflict = || StoreError::FieldConflict { thread, field: change.field.to_string() };
        return if found == change.before.as_ref() { Ok(()) } else { Err(conflict()) };
    }
    let found = log.space(&change.thread, &change.namespace).and_then(MemoryNamespace::head_id);
    let (namespace, expected) = (change.namespace.clone(), checkpoint_of(change.before.as_ref()));
    if found == expected { Ok(()) } else { Err(StoreError::Conflict { thread, namespace, expected, found }) }
}

fn checkpoint_of(value: Option<&OperationValue>) -> Option<CheckpointId> {
    if let Some(OperationValue::Checkpoint(id)) = value { Some(*id) } else { None }
}

fn apply(log: &mut MemoryLog, change: &OperationChange) {
    log.change_thread(&change.thread, |thread| match &change.after {
        after if change.field == OperationField::Head => {
            if let Some(mut space) = thread.spaces.get(&change.namespace).cloned() {
                let own = Arc::make_mut(&mut space);
                own.moved = own.newest_id().map(|newest| (newest, checkpoint_of(after.as_ref())));
                thread.spaces.put(change.namespace.clone(), space);
            }
        }
        Some(value) => _ = thread.fields.insert(change.field.clone(), value.clone()),
        None => _ = thread.fields.remove(&change.field),
    });
}

/// Lists operations, newest first.
pub(super) fn list(log: &MemoryLog, query: &OperationQuery) -> Vec<OperationRecord> {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let is_of = |record: &&Arc<OperationRecord>| {
        let of_thread = |thread: &ThreadId| record.changes.iter().any(|change| change.thread == *thread);
        query.before.is_none_or(|before| record.id < before) && query.thread.as_ref().is_none_or(of_thread)
    };
    let found = log.operations.iter().rev().map(|(_, record)| record).filter(is_of).take(limit);
    found.map(|record| OperationRecord::clone(record)).collect()
}

/// Deletes threads: all that are named, or none; or those whose time in the trash has ended.
pub(super) fn erase(log: &mut MemoryLog, what: &Erase<'_>) -> Result<Erasure, StoreError> {
    match what {
        Erase::Threads(threads) => {
            validate_deleted(threads)?;
            delete(log, threads)?;
        }
        Erase::Trash(now) => {
            let due = due(log, *now);
            delete_unforked(due, |threads| delete(log, threads), StoreError::forked_off)?;
        }
    }
    Ok(Erasure::Erased)
}

/// Returns each fork of another thread: the thread, the number of the branch, the fork.
fn forks(log: &MemoryLog) -> impl Iterator<Item = (&ThreadId, u64, &ThreadId)> {
    let all = log.spaces(None).flat_map(|(id, _, space)| space.all().map(move |stored| (id, &*stored.record)));
    all.filter_map(|(id, record)| record.forked_from.as_ref().map(|from| (&from.thread, record.branch, id)))
        .filter(|(of, _, fork)| of != fork)
}

/// Returns the threads whose time in the trash has ended and that can be deleted, at most as many as one call deletes.
fn due(log: &MemoryLog, now: Timestamp) -> Vec<ThreadId> {
    let is_due = |(field, value): (&OperationField, &OperationValue)| trash_is_due(field, value, now);
    let due = log.threads.iter().filter(|(_, thread)| thread.fields.iter().any(is_due)).map(|(id, _)| id.clone());
    let mut all: HashMap<&ThreadId, BTreeSet<&ThreadId>> = HashMap::new();
    forks(log).for_each(|(of, _, fork)| _ = all.entry(of).or_default().insert(fork));
    let forks_of = |of: &ThreadId| Ok(all.get(of).into_iter().flatten().map(|fork| ThreadId::clone(fork)).collect());
    deletable(due.collect(), DELETED_THREADS_MAX, forks_of).unwrap_or_else(|never: Infallible| match never {})
}

/// Deletes threads, unless one that stays was forked off one of them.
fn delete(log: &mut MemoryLog, threads: &[ThreadId]) -> Result<(), StoreError> {
    let threads: BTreeSet<&ThreadId> = threads.iter().collect();
    let forked: BTreeSet<_> =
        forks(log).filter(|(of, _, fork)| threads.contains(of) && !threads.contains(fork)).collect();
    if let Some((thread, ..)) = forked.first() {
        let mut seen = BTreeSet::new();
        let all = forked.iter().filter(|(of, _, fork)| of == thread && seen.insert(*fork));
        let mut forks: Vec<_> = all.map(|(.., fork)| ThreadId::clone(fork)).take(FORKS_SHOWN_MAX + 1).collect();
        let more = forks.len() > FORKS_SHOWN_MAX;
        forks.truncate(FORKS_SHOWN_MAX);
        return Err(StoreError::ForkedOff { thread: ThreadId::clone(thread), forks, more });
    }
    log.threads.retain(|id, _| !threads.contains(id));
    log.operations.retain(|_, record| {
        if record.changes.iter().any(|change| threads.contains(&change.thread)) {
            Arc::make_mut(record).changes.retain(|change| !threads.contains(&change.thread));
        }
        !record.changes.is_empty()
    });
    Ok(())
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
