//! Operations, which are compared with the present contents of the fields, and deletions of threads.

use super::stored::*;
use super::threads::forks;
use crate::base::limits::{DELETED_THREADS_MAX, FORKS_SHOWN_MAX, PAGE_ROWS_MAX};
use crate::store::backend::{deletable, sort_changes, trash_is_due, validate_deleted};

/// Stores an operation with its changes.
pub(super) fn operate(log: &mut MemoryLog, new: &NewOperation) -> MemoryResult<u64> {
    new.validate()?;
    for OperationChange { thread, namespace, .. } in &new.changes {
        log.space(thread, namespace).ok_or_else(|| StoreError::ThreadNotFound { id: thread.clone() })?;
    }
    let newest = |of: &dyn Fn(&OperationChange) -> bool| {
        log.operations.iter().rev().map(|(_, record)| record).find(|record| record.changes.iter().any(of))
    };
    let field = |change: &OperationChange| (change.thread.clone(), change.namespace.clone(), change.field.clone());
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
    log.operations.put(log.operation, Arc::new(OperationRecord::new(log.operation, log.seq, new, changes)));
    Ok(log.operation)
}

/// Compares the present content of a field with the one that a change expects.
fn compare(log: &MemoryLog, change: &OperationChange) -> MemoryResult<()> {
    let at = |id: CheckpointId| CheckpointRef::new(change.thread.clone(), change.namespace.clone(), id);
    if let Some(OperationValue::Checkpoint(before)) = change.before {
        log.found(&at(before))?;
    }
    if let Some(OperationValue::Checkpoint(after)) = change.after {
        log.kept(&at(after))?;
    }
    let head = || log.space(&change.thread, &change.namespace)?.head_id().map(OperationValue::Checkpoint);
    let field = || log.threads.get(&change.thread)?.fields.get(&change.field).cloned();
    change.compare(if change.field == OperationField::Head { head() } else { field() })
}

fn apply(log: &mut MemoryLog, change: &OperationChange) {
    if change.field == OperationField::Head {
        if let Some(space) = log.space_mut(&change.thread, &change.namespace) {
            let after = if let Some(OperationValue::Checkpoint(id)) = change.after { Some(id) } else { None };
            space.moved = space.newest_id().map(|newest| (newest, after));
        }
    } else if let Some(thread) = log.thread_mut(&change.thread) {
        match change.after.clone() {
            Some(value) => _ = thread.fields.insert(change.field.clone(), value),
            None => _ = thread.fields.remove(&change.field),
        }
    }
}

/// Lists operations, newest first.
pub(super) fn list(log: &MemoryLog, query: &OperationQuery) -> Vec<OperationRecord> {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let is_of = |record: &&Arc<OperationRecord>| {
        query.thread.as_ref().is_none_or(|thread| record.changes.iter().any(|change| change.thread == *thread))
    };
    let found = log.operations.below(query.before.as_ref()).map(|(_, record)| record).filter(is_of).take(limit);
    found.map(|record| OperationRecord::clone(record)).collect()
}

/// Deletes threads: all that are named, or none; or those whose time in the trash has ended, unless forks of them stay.
pub(super) fn erase(log: &mut MemoryLog, what: &Erase<'_>) -> MemoryResult<Erasure> {
    match what {
        Erase::Threads(threads) => {
            validate_deleted(threads)?;
            delete(log, threads)?;
        }
        Erase::Trash(now) => {
            let is_due = |(field, value): (&OperationField, &OperationValue)| trash_is_due(field, value, *now);
            let due = log.threads.iter().filter(|(_, thread)| thread.fields.iter().any(is_due));
            let (due, forks) = (due.map(|(id, _)| id.clone()).collect(), forks(log));
            let forks_of = |of: &ThreadId| Ok(forks.get(of).into_iter().flatten().copied().cloned().collect());
            let due = deletable::<StoreError>(due, DELETED_THREADS_MAX, forks_of)?;
            delete(log, &due)?;
        }
    }
    Ok(Erasure::Erased)
}

/// Deletes threads, unless one that stays was forked off one of them.
fn delete(log: &mut MemoryLog, threads: &[ThreadId]) -> MemoryResult<()> {
    let threads: BTreeSet<&ThreadId> = threads.iter().collect();
    for (thread, mut forks) in forks(log).into_iter().filter(|(of, _)| threads.contains(of)) {
        forks.retain(|fork| !threads.contains(fork));
        if !forks.is_empty() {
            let more = forks.len() > FORKS_SHOWN_MAX;
            let forks = forks.into_iter().take(FORKS_SHOWN_MAX).cloned().collect();
            return Err(StoreError::ForkedOff { thread: thread.clone(), forks, more });
        }
    }
    log.threads.retain(None, |id, _| !threads.contains(id));
    log.operations.retain(None, |_, record| {
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
