//! The checkpoints of threads and namespaces, read page by page, the oldest first.
//!
//! Invariant: two pages of records and the newest record of each branch are in memory, however long the namespace is.
//! *Absent:* pruned checkpoints, other than as the parents of kept ones.

use std::collections::HashMap;

use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::log::{CheckpointQuery, LogExt, LogPosition};
use crate::store::record::CheckpointRecord;
use crate::store::{CheckpointRef, Store, StoreError};

/// Records of a page. Tests read pages of a few, so that they need not write as many checkpoints.
const PAGE: usize = if cfg!(test) { 3 } else { 1_000 };

/// Visits the ids of all threads, a page at a time.
pub(crate) fn each_thread(
    store: &Store,
    visit: &mut dyn FnMut(ThreadId) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after: Option<ThreadId> = None;
    loop {
        let page = store.threads_after(after.as_ref(), PAGE.min(PAGE_ROWS_MAX))?;
        let Some(last) = page.last() else { return Ok(()) };
        debug_assert!(after.as_ref().is_none_or(|after| *after < last.id), "threads come by id");
        after = Some(last.id.clone());
        page.into_iter().try_for_each(|thread| visit(thread.id))?;
    }
}

/// Visits the checkpoints of a namespace, the oldest first, each with its parent in the namespace, which may be pruned.
pub(crate) fn each_checkpoint(
    store: &Store,
    thread: &ThreadId,
    namespace: &Namespace,
    visit: &mut dyn FnMut(&CheckpointRecord, Option<&CheckpointRecord>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let backend = store.backend();
    let mut query = CheckpointQuery::new(thread.clone(), namespace.clone());
    query.limit = PAGE;
    let newest = backend.checkpoints(&query)?;
    // The places where the other pages begin, which are read again in the opposite order.
    let (mut begins, mut page) = (Vec::new(), Vec::new());
    query.before = newest.last().map(|record| record.point.checkpoint);
    while query.before.is_some() {
        let next = backend.checkpoints(&query)?;
        let Some(last) = next.last() else { break };
        begins.push(query.before);
        query.before = Some(last.point.checkpoint);
        page = next;
    }
    let mut walk = OldestFirst { store, ends: HashMap::new(), last: None };
    while let Some(begin) = begins.pop() {
        if page.is_empty() {
            query.before = begin;
            page = backend.checkpoints(&query)?;
        }
        walk.page(std::mem::take(&mut page), visit)?;
    }
    walk.page(newest, visit)
}

/// Visits the checkpoints of the log after a position, of a thread or of all, in the order of the log, each with its
/// parent in its namespace, which may be before the position or pruned.
pub(crate) fn each_after(
    store: &Store,
    mut position: LogPosition,
    thread: Option<&ThreadId>,
    visit: &mut dyn FnMut(&CheckpointRecord, Option<&CheckpointRecord>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut walk = OldestFirst { store, ends: HashMap::new(), last: None };
    loop {
        let page = store.backend().follow()?.changes_after(&position, thread, PAGE)?;
        if page.records.is_empty() {
            return Ok(());
        }
        debug_assert_ne!(page.position, position, "a page goes on");
        position = page.position;
        page.records.into_iter().try_for_each(|(_, record)| walk.record(record, visit))?;
    }
}

/// The place of a walk over checkpoints, a parent before its children.
struct OldestFirst<'a> {
    store: &'a Store,
    /// The newest record of each branch of a namespace so far.
    ends: HashMap<(ThreadId, Namespace, u64), CheckpointRecord>,
    /// The newest checkpoint so far. A page reaches below it if checkpoints were pruned after it was found.
    last: Option<CheckpointId>,
}

impl OldestFirst<'_> {
    /// Visits the records of a page, which come newest first.
    fn page(
        &mut self,
        page: Vec<CheckpointRecord>,
        visit: &mut dyn FnMut(&CheckpointRecord, Option<&CheckpointRecord>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for record in page.into_iter().rev() {
            if self.last.is_some_and(|last| record.point.checkpoint <= last) {
                continue;
            }
            self.last = Some(record.point.checkpoint);
            self.record(record, visit)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: CheckpointRecord,
        visit: &mut dyn FnMut(&CheckpointRecord, Option<&CheckpointRecord>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let key = (record.point.thread.clone(), record.point.namespace.clone(), record.branch);
        let end = self.ends.remove(&key).filter(|end| Some(end.point.checkpoint) == record.parent);
        let parent = match (end, record.parent) {
            (None, Some(parent)) => {
                let parent = CheckpointRef { checkpoint: parent, ..record.point.clone() };
                self.store.backend().checkpoint(&parent)?
            }
            (end, _) => end,
        };
        visit(&record, parent.as_ref())?;
        self.ends.insert(key, record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn pages_come_oldest_first_with_the_parents_of_all_branches() {
        for checkpoints in 0..11 {
            let store = Store::memory();
            let thread = store.thread("trip").unwrap();
            for n in 0..checkpoints {
                thread.set("n", n).unwrap();
                if n == 4 {
                    thread.rewind_to(&thread.at("~2").unwrap()).unwrap();
                }
            }
            let (mut seen, mut parents) = (Vec::new(), Vec::new());
            each_checkpoint(&store, thread.id(), &Namespace::root(), &mut |record, parent| {
                assert_eq!(parent.map(|parent| parent.point.checkpoint), record.parent);
                seen.push(record.ordinal);
                parents.push(parent.map(|parent| parent.ordinal));
                Ok(())
            })
            .unwrap();
            // The sixth checkpoint is the second child of the third one.
            let ordinals = [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8];
            assert_eq!(seen, ordinals[..checkpoints]);
            let parent = |ordinal: &u64| ordinal.checked_sub(1);
            assert_eq!(parents, ordinals[..checkpoints].iter().map(parent).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_log_is_visited_from_a_position_on_with_the_parents_before_it() {
        let store = Store::memory();
        for n in 0..9 {
            store.thread(["a", "b"][n % 2]).unwrap().set("n", n as i64).unwrap();
        }
        let visited = |position: LogPosition, thread: Option<&str>| {
            let (mut seen, thread) = (Vec::new(), thread.map(|id| ThreadId::new(id).unwrap()));
            each_after(&store, position, thread.as_ref(), &mut |record, parent| {
                assert_eq!(parent.map(|parent| parent.point.checkpoint), record.parent);
                seen.push((record.point.thread.to_string(), record.ordinal));
                Ok(())
            })
            .unwrap();
            seen
        };
        let all: Vec<(String, u64)> = (0..9).map(|n: usize| (["a", "b"][n % 2].to_owned(), n as u64 / 2)).collect();
        let position = |newest: u64| store.backend().follow().unwrap().position(newest).unwrap();
        assert_eq!(visited(LogPosition::START, None), all);
        assert_eq!(visited(position(4), None), all[5..]);
        assert_eq!(visited(position(4), Some("b")), [("b".to_owned(), 2), ("b".to_owned(), 3)]);
        assert_eq!(visited(position(0), None), []);
    }

    #[test]
    fn every_thread_is_visited_once() {
        for threads in [0, 1, 3, 7] {
            let store = Store::memory();
            let names: Vec<String> = (0..threads).map(|n| format!("thread {n}")).collect();
            names.iter().for_each(|name| _ = store.thread(name).unwrap().set("n", 1).unwrap());
            let mut seen = Vec::new();
            each_thread(&store, &mut |id| {
                seen.push(id.to_string());
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, names);
        }
    }
}
