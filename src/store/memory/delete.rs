//! Deleting threads: all that are named, or none.

use std::collections::BTreeSet;

use super::stored::MemoryLog;
use crate::base::ThreadId;
use crate::store::error::StoreError;

/// Deletes threads, unless one that stays was forked off one of them.
pub(super) fn threads(log: &mut MemoryLog, threads: &[ThreadId]) -> Result<(), StoreError> {
    let mut forked: BTreeSet<(&ThreadId, &ThreadId)> = BTreeSet::new();
    for (id, thread) in log.threads.iter().filter(|(id, _)| !threads.contains(id)) {
        let stored = thread.spaces.values().flat_map(|space| space.checkpoints.walk_up(None));
        let from = stored.filter_map(|(_, stored)| stored.record.forked_from.as_ref());
        forked.extend(from.filter(|from| threads.contains(&from.thread)).map(|from| (&from.thread, id)));
    }
    if let Some((thread, _)) = forked.first() {
        let forks = forked.iter().filter(|(of, _)| of == thread).map(|(_, fork)| ThreadId::clone(fork)).collect();
        return Err(StoreError::ForkedOff { thread: ThreadId::clone(thread), forks });
    }
    log.threads.retain(|id, _| !threads.contains(id));
    Ok(())
}
