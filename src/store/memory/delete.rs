//! Deleting threads: all that are named, or none.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use super::operation;
use super::stored::{MemoryLog, StoredThread};
use crate::base::limits::{DELETED_THREADS_MAX, FORKS_SHOWN_MAX};
use crate::base::{ThreadId, Timestamp};
use crate::store::StoreError;
use crate::store::backend::{deletable, trash_is_due};

/// Returns the threads whose time in the trash has ended and that can be deleted, at most as many as one call deletes.
pub(super) fn due(log: &MemoryLog, now: Timestamp) -> Vec<ThreadId> {
    let is_due = |thread: &StoredThread| thread.fields.iter().any(|(field, value)| trash_is_due(field, value, now));
    let due = log.threads.iter().filter(|(_, thread)| is_due(thread)).map(|(id, _)| id.clone()).collect();
    let mut forks: HashMap<ThreadId, BTreeSet<ThreadId>> = HashMap::new();
    for (id, thread) in &log.threads {
        for (_, stored) in thread.spaces.values().flat_map(|space| space.checkpoints.walk_up(None)) {
            if let Some(from) = stored.record.forked_from.as_ref().filter(|from| from.thread != *id) {
                forks.entry(from.thread.clone()).or_default().insert(id.clone());
            }
        }
    }
    let forks_of = |thread: &ThreadId| Ok(forks.get(thread).into_iter().flatten().cloned().collect());
    deletable(due, DELETED_THREADS_MAX, forks_of).unwrap_or_else(|never: Infallible| match never {})
}

/// Deletes threads, unless one that stays was forked off one of them.
pub(super) fn threads(log: &mut MemoryLog, threads: &[ThreadId]) -> Result<(), StoreError> {
    let mut forked: BTreeSet<(&ThreadId, u64, &ThreadId)> = BTreeSet::new();
    for (id, thread) in log.threads.iter().filter(|(id, _)| !threads.contains(id)) {
        for (_, stored) in thread.spaces.values().flat_map(|space| space.checkpoints.walk_up(None)) {
            let from = stored.record.forked_from.as_ref().filter(|from| threads.contains(&from.thread));
            forked.extend(from.map(|from| (&from.thread, stored.record.branch, id)));
        }
    }
    if let Some((thread, ..)) = forked.first() {
        let mut seen = BTreeSet::new();
        let first = forked.iter().filter(|(of, _, fork)| of == thread && seen.insert(*fork));
        let mut forks: Vec<ThreadId> =
            first.map(|(.., fork)| ThreadId::clone(fork)).take(FORKS_SHOWN_MAX + 1).collect();
        let more = forks.len() > FORKS_SHOWN_MAX;
        forks.truncate(FORKS_SHOWN_MAX);
        return Err(StoreError::ForkedOff { thread: ThreadId::clone(thread), forks, more });
    }
    log.threads.retain(|id, _| !threads.contains(id));
    operation::forget(log, threads);
    Ok(())
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
