//! A backend in memory: the model that every other backend is compared with.
//!
//! It refuses more than a file does: whatever shows a mistake of the caller (a missing parent, a version that goes
//! back, a removal of nothing, a dangling reference) is [`StoreError::Invalid`]. It is also quick enough to
//! run on: a commit costs what changed, a fork costs nothing. *Absent:* checksums and durability.
//!
//! Invariants: every checkpoint holds its whole state in shared maps; a commit makes all additions to a namespace, and
//! applies them as its last act; no lock is held while a caller's code runs.

mod beside;
mod commit;
mod delete;
mod operation;
mod prune;
mod read;
mod search;
mod stored;
mod threads;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use self::stored::{MemoryLog, StoredCheckpoint};
use super::backend::{Backend, CommitHandle, Erasure};
use super::batch::{Batch, ListRef, validate_deleted};
use super::beside::{Beside, CacheChange, CacheKey, KvChange, KvNamespace, KvRecord, KvVector};
use super::check::CheckReport;
use super::error::StoreError;
use super::lease::LeaseRecord;
use super::operation::{BranchRecord, NewOperation, OperationField, OperationQuery, OperationRecord, OperationValue};
use super::prune::{PruneSpan, Pruned};
use super::query::{CheckpointQuery, ItemRange};
use super::record::{
    CheckpointRecord, CheckpointRef, ItemRow, StatePart, StateRecord, StoredHead, StoredListChange, ThreadRecord,
    ThreadSize, TimerRecord, VersionRecord, WriteRecord,
};
use super::search::{Search, SearchIndex, SearchOptions, SearchPage, SearchQuery};
use super::threads::{ThreadInfo, ThreadQuery};
use super::trash::delete_unforked;
use super::watch::{LogSignal, LogWatch};
use crate::base::{CheckpointId, Encoded, Namespace, RunId, ThreadId, Timestamp};

/// A backend in memory, stricter than a file. It lasts as long as it is held.
///
/// A thread is listed from the first checkpoint of its root namespace on.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    log: RwLock<MemoryLog>,
    kv: RwLock<beside::MemoryKv>,
    cache: RwLock<beside::MemoryCache>,
    signal: Arc<LogSignal>,
    /// True if an index was asked for. Searches scan with and without it.
    is_indexed: AtomicBool,
}

impl MemoryBackend {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn stored(&self, at: &CheckpointRef) -> Result<Arc<StoredCheckpoint>, StoreError> {
        let stored = self.any_stored(at)?;
        stored.must_be_kept()?;
        Ok(stored)
    }

    /// Returns a checkpoint, whether it was pruned or not.
    fn any_stored(&self, at: &CheckpointRef) -> Result<Arc<StoredCheckpoint>, StoreError> {
        self.log.read().stored(at).cloned().ok_or_else(|| read::not_found(at))
    }
}

impl Backend for MemoryBackend {
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        batch.write_in_chain(|| commit::commit(&mut self.log.write(), batch))?;
        self.signal.notify();
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(self.commit(&batch))
    }

    fn waits(&self) -> bool {
        false
    }

    fn head(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointRecord>, StoreError> {
        let head = self.log.read().space(thread, namespace).and_then(|space| space.head().cloned());
        Ok(head.map(|stored| stored.record.clone()))
    }

    fn head_id(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointId>, StoreError> {
        Ok(self.log.read().space(thread, namespace).and_then(|space| space.head_id()))
    }

    fn head_with_writes(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<StoredHead>, StoreError> {
        let log = self.log.read();
        let lease = log.threads.get(thread).filter(|_| namespace.is_root()).and_then(|thread| thread.lease.clone());
        let space = log.space(thread, namespace).cloned();
        drop(log);
        Ok(space.and_then(|space| {
            let id = space.head_id()?;
            Some(StoredHead::new(id, space.is_continued(&id), read::writes(&space, &id)).with_lease(lease))
        }))
    }

    fn checkpoint(&self, at: &CheckpointRef) -> Result<Option<CheckpointRecord>, StoreError> {
        Ok(self.log.read().stored(at).map(|stored| stored.record.clone()))
    }

    fn checkpoints_by_prefix(
        &self,
        thread: &ThreadId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        Ok(read::by_prefix(&self.log.read(), thread, prefix, limit))
    }

    fn checkpoints(&self, query: &CheckpointQuery) -> Result<Vec<CheckpointRecord>, StoreError> {
        Ok(read::list(&self.log.read(), query))
    }

    fn state(&self, at: &CheckpointRef) -> Result<StateRecord, StoreError> {
        Ok(read::state(&*self.stored(at)?))
    }

    fn read_state(
        &self,
        at: &CheckpointRef,
        visit: &mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        read::read_state(&*self.stored(at)?, visit)
    }

    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = Some(self.any_stored(at)?);
        while let Some(stored) = next.filter(|stored| stored.record.ordinal >= down_to) {
            let mut goes_on = true;
            for record in read::versions(&stored, channel).into_iter().filter(|_| !stored.record.pruned) {
                goes_on &= visit(&record)?;
            }
            let parent = stored.record.parent_ref().filter(|_| goes_on);
            next = parent.map(|parent| self.any_stored(&parent)).transpose()?;
        }
        Ok(())
    }

    fn items(
        &self,
        at: &CheckpointRef,
        channel: &str,
        range: ItemRange,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        read::items(&*self.stored(at)?, channel, range, visit)
    }

    fn list_len(&self, at: &CheckpointRef, channel: &str) -> Result<u64, StoreError> {
        Ok(read::list_len(&*self.stored(at)?, channel))
    }

    fn search_list(&self, at: &CheckpointRef, channel: &str, text: &str) -> Result<Vec<StoredListChange>, StoreError> {
        let (mut next, mut changes) = (Some(self.stored(at)?), Vec::new());
        while let Some(stored) = next {
            let parent = stored.record.parent_ref();
            let parent = parent.map(|parent| self.any_stored(&parent)).transpose()?;
            if !stored.record.pruned {
                changes.extend(read::list_changes(&stored, parent.as_deref(), channel, text));
            }
            next = parent;
        }
        StoredListChange::order(&mut changes);
        Ok(changes)
    }

    fn list_reference(&self, at: &CheckpointRef, channel: &str) -> Result<Option<ListRef>, StoreError> {
        Ok(read::list_reference(&*self.stored(at)?, channel))
    }

    fn writes(&self, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError> {
        self.stored(at)?;
        let space = self.log.read().space(&at.thread, &at.namespace).cloned();
        Ok(read::writes(&space.ok_or_else(|| read::not_found(at))?, &at.checkpoint))
    }

    fn threads(&self, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadRecord>, StoreError> {
        Ok(read::threads(&self.log.read(), after, limit))
    }

    fn thread_size(&self, thread: &ThreadId) -> Result<ThreadSize, StoreError> {
        Ok(read::thread_size(&self.log.read(), thread))
    }

    fn namespaces(&self, thread: &ThreadId) -> Result<Vec<Namespace>, StoreError> {
        let log = self.log.read();
        Ok(log.threads.get(thread).map(|thread| thread.spaces.keys().cloned().collect()).unwrap_or_default())
    }

    fn last_of_run(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        let space = self.log.read().space(thread, namespace).filter(|_| run.is_of_key()).cloned();
        let space = space.unwrap_or_default();
        let mut newest_first = space.checkpoints.walk_down(None).map(|(_, stored)| &stored.record);
        Ok(newest_first.find(|record| record.run == Some(*run)).cloned())
    }

    fn records_after(
        &self,
        seq: u64,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        Ok(read::after(&self.log.read(), seq, thread, limit))
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(self.log.read().seq)
    }

    fn watch_log(&self) -> Result<LogWatch, StoreError> {
        Ok(LogWatch::new(Arc::clone(&self.signal), None))
    }

    fn timers(&self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        Ok(read::timers(&self.log.read(), due_by, limit))
    }

    fn timers_of(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<TimerRecord>, StoreError> {
        let log = self.log.read();
        let space = log.threads.get(thread).and_then(|of| of.spaces.get(namespace));
        let mut timers = space.map_or_else(Vec::new, |space| read::timers_of(space, thread, namespace));
        timers.sort_by_key(|timer| (timer.wake_at, timer.task));
        Ok(timers)
    }

    fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.log.read().threads.get(thread).and_then(|thread| thread.lease.clone()))
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        operation::operate(&mut self.log.write(), operation)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        Ok(operation::list(&self.log.read(), query))
    }

    fn fields(&self, thread: &ThreadId) -> Result<Vec<(OperationField, OperationValue)>, StoreError> {
        Ok(self.log.read().threads.get(thread).map(operation::fields).unwrap_or_default())
    }

    fn branches(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<BranchRecord>, StoreError> {
        Ok(operation::branches(&self.log.read(), thread, namespace))
    }

    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        search::page(&self.log.read(), &Search::of(query)?)
    }

    fn enable_search(&self, _options: &SearchOptions) -> Result<(), StoreError> {
        self.is_indexed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn disable_search(&self) -> Result<(), StoreError> {
        self.is_indexed.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn search_index(&self) -> Result<Option<SearchIndex>, StoreError> {
        Ok(self.is_indexed.load(Ordering::Relaxed).then_some(SearchIndex { behind: 0 }))
    }

    fn list_threads(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        threads::list(&self.log.read(), query)
    }

    fn thread_info(&self, thread: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
        self.log.read().threads.get(thread).and_then(threads::info).transpose()
    }

    fn forks(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        Ok(read::forks(&self.log.read(), thread))
    }

    fn forked_from(&self, thread: &ThreadId) -> Result<Option<CheckpointRef>, StoreError> {
        let log = self.log.read();
        let first = log.space(thread, &Namespace::root()).and_then(|space| space.checkpoints.walk_up(None).next());
        let from = first.and_then(|(_, stored)| stored.record.forked_from.clone());
        Ok(from.filter(|from| from.thread != *thread))
    }

    fn erase_trash(&self, now: Timestamp) -> Result<Erasure, StoreError> {
        let mut log = self.log.write();
        let due = delete::due(&log, now);
        delete_unforked(due, |threads| delete::threads(&mut log, threads), StoreError::forked_off)?;
        Ok(Erasure::Erased)
    }

    fn delete_threads(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        validate_deleted(threads)?;
        delete::threads(&mut self.log.write(), threads)?;
        Ok(Erasure::Erased)
    }

    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<BTreeSet<(u64, u64)>, StoreError> {
        Ok(prune::unprunable(&self.log.read(), thread, without))
    }

    fn prune(&self, thread: &ThreadId, spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
        Ok(prune::prune(&mut self.log.write(), thread, spans))
    }

    fn prune_estimate(&self, thread: &ThreadId, spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
        Ok(prune::estimate(&self.log.read(), thread, spans))
    }

    fn prune_namespaces(
        &self,
        thread: &ThreadId,
        namespaces: &[(Namespace, CheckpointId)],
    ) -> Result<Pruned, StoreError> {
        Ok(prune::remove_namespaces(&mut self.log.write(), thread, namespaces))
    }

    fn estimate_namespaces(
        &self,
        thread: &ThreadId,
        namespaces: &[(Namespace, CheckpointId)],
    ) -> Result<Pruned, StoreError> {
        let log = self.log.read();
        let found = prune::removable(&log, thread, namespaces);
        Ok(prune::sum_of_namespaces(&log, thread, &found))
    }

    fn beside(&self) -> &dyn Beside {
        self
    }

    fn check(&self) -> Result<CheckReport, StoreError> {
        let mut report = read::check(&self.log.read());
        self.kv.read().check(&mut report);
        self.cache.read().check(&mut report);
        Ok(report)
    }
}

impl Beside for MemoryBackend {
    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError> {
        KvChange::validate(changes)?;
        let mut kv = self.kv.write();
        changes.iter().for_each(|change| kv.change(change));
        Ok(())
    }

    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Result<Option<KvRecord>, StoreError> {
        Ok(self.kv.read().entry(namespace, key, now).map(|entry| KvRecord::clone(&entry)))
    }

    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let entries = self.kv.read().entries(under, now);
        for entry in entries {
            if !visit(&entry)? {
                break;
            }
        }
        Ok(())
    }

    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let entries = self.kv.read().indexed(under, now);
        for (entry, vectors) in entries {
            if !visit(&entry, &vectors)? {
                break;
            }
        }
        Ok(())
    }

    fn kv_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<(KvNamespace, String)>, StoreError> {
        Ok(self.kv.read().expired(now, limit))
    }

    fn kv_namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Result<Vec<KvNamespace>, StoreError> {
        Ok(self.kv.read().namespaces(under, now))
    }

    fn cached(&self, keys: &[CacheKey], now: Timestamp) -> Result<Vec<Option<Encoded>>, StoreError> {
        let cache = self.cache.read();
        Ok(keys.iter().map(|key| cache.value(key, now)).collect())
    }

    fn submit_cache(&self, changes: Vec<CacheChange>) -> CommitHandle {
        let outcome = CacheChange::validate(&changes);
        if outcome.is_ok() {
            let mut cache = self.cache.write();
            changes.into_iter().for_each(|change| cache.change(change));
        }
        CommitHandle::settled(outcome)
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use super::*;
    use crate::store::conformance;

    #[test]
    fn the_backend_in_memory_holds_the_contract() {
        conformance::run(&|| Arc::new(MemoryBackend::new()));
    }

    #[test]
    fn the_backend_in_memory_is_strict() {
        conformance::run_all(conformance::strict_cases(), &|| Arc::new(MemoryBackend::new()));
    }
}
