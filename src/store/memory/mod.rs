//! A backend in memory: the model that every other backend is compared with.
//!
//! It refuses more than a file does: whatever shows a mistake of the caller (a missing parent, a version that goes
//! back, a removal of nothing, a dangling reference) is [`StoreError::Invalid`]. It is also quick enough to
//! run on: a commit costs what changed, a fork costs nothing. *Absent:* checksums and durability.
//!
//! Invariants: every checkpoint holds its whole state in shared maps; a change works on a version of the log of its
//! own, which becomes the log as its last act; no lock is held while a caller's code runs.

// The sources are compiled outside the engine too, where a struct that can grow has no literal.
#![allow(clippy::field_reassign_with_default)]

mod claim;
mod commit;
mod map;
mod operation;
mod prune;
mod read;
mod search;
mod side_tables;
mod stored;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use self::claim::ClaimedRows;
use self::stored::MemoryLog;
use crate::base::{Encoded, Namespace, ThreadId, Timestamp};
use crate::store::backend::{Search, claim_runs};
use crate::store::batch::Batch;
use crate::store::check::CheckReport;
use crate::store::log::{
    CacheChange, Capabilities, ChangePage, Checks, ClaimQuery, Claims, CommitHandle, Erase, Follow, HeadParts,
    KvChange, KvNamespace, KvRecord, KvVector, Log, LogPosition, LogSignal, LogWatch, NamespaceRef, PruneTarget,
    Prunes, Queues, RecordQuery, Searches, SideTables, StateQuery, ThreadParts, ThreadRow, ThreadRows, TimerQuery,
    UnprunablePlaces, VisitState,
};
use crate::store::operation::{NewOperation, OperationQuery, OperationRecord};
use crate::store::record::{CheckpointRecord, StoredHead, StoredListChange, TimerRecord, VersionRecord, WriteRecord};
use crate::store::search::{SearchIndex, SearchPage};
use crate::store::{CacheKey, CheckpointRef, Erasure, Pruned, SearchOptions, SearchQuery, StoreError};

/// A backend in memory, stricter than a file. It lasts as long as it is held.
///
/// A thread is listed from the first checkpoint of its root namespace on.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    log: RwLock<Arc<MemoryLog>>,
    kv: RwLock<side_tables::MemoryKv>,
    cache: RwLock<side_tables::MemoryCache>,
    signal: Arc<LogSignal>,
    /// True if an index was asked for. Searches scan with and without it.
    is_indexed: AtomicBool,
}

impl MemoryBackend {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the present version of the log.
    fn now(&self) -> Arc<MemoryLog> {
        Arc::clone(&self.log.read())
    }

    /// Changes the log, or leaves it as it is if the change is refused.
    fn change<T>(&self, change: impl FnOnce(&mut MemoryLog) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut log = self.log.write();
        let mut next = MemoryLog::clone(&log);
        let done = change(&mut next)?;
        *log = Arc::new(next);
        Ok(done)
    }
}

impl Log for MemoryBackend {
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        batch.write_in_chain(|| self.change(|log| commit::commit(log, batch)))?;
        self.signal.notify();
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(self.commit(&batch))
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        let number = self.change(|log| operation::operate(log, operation))?;
        self.signal.notify();
        Ok(number)
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        let log = self.now();
        Ok(of.iter().map(|place| read::head(&log, *place, parts)).collect())
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        read::records(&self.now(), query)
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        read::read(self.now().kept(at)?, query, visit)
    }

    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        read::versions(&self.now(), (at, channel, down_to), visit)
    }

    fn writes_of(&self, at: &[&CheckpointRef]) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        let log = self.now();
        at.iter().map(|at| Ok(log.kept(at)?.sorted_writes())).collect()
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        threads::rows(&self.now(), of, parts)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        Ok(operation::list(&self.now(), query))
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        Ok(read::timers(&self.now(), query))
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        self.change(|log| operation::erase(log, what))
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let parts = Capabilities::NONE.with_nonblocking_reads().with_follow(self).with_searches(self);
        parts.with_queues(self).with_prunes(self).with_checks(self).with_side_tables(self)
    }
}

impl Follow for MemoryBackend {
    fn changes_after(
        &self,
        position: &LogPosition,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<ChangePage, StoreError> {
        let records = read::after(&self.now(), position.number()?, thread, limit);
        Ok(ChangePage::by_seq(*position, records))
    }

    fn position(&self, newest: u64) -> Result<LogPosition, StoreError> {
        Ok(LogPosition::from_number(self.now().seq.saturating_sub(newest)))
    }

    fn watch(&self) -> Result<LogWatch, StoreError> {
        Ok(LogWatch::new(Arc::clone(&self.signal), None))
    }
}

impl Queues for MemoryBackend {
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        query.validate()?;
        self.change(|log| claim_runs(query, usize::MAX, &mut ClaimedRows(log)))
    }
}

impl Searches for MemoryBackend {
    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        search::page(&self.now(), &Search::of(query)?)
    }

    fn search_list(&self, at: &CheckpointRef, channel: &str, text: &str) -> Result<Vec<StoredListChange>, StoreError> {
        read::search_list(&self.now(), at, channel, text)
    }

    fn enable(&self, _options: &SearchOptions) -> Result<(), StoreError> {
        self.is_indexed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn disable(&self) -> Result<(), StoreError> {
        self.is_indexed.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn index(&self) -> Result<Option<SearchIndex>, StoreError> {
        Ok(self.is_indexed.load(Ordering::Relaxed).then_some(SearchIndex::new(0)))
    }
}

impl Prunes for MemoryBackend {
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<UnprunablePlaces, StoreError> {
        Ok(prune::held(&self.now(), thread, without))
    }

    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        self.change(|log| Ok(prune::prune(log, thread, what)))
    }

    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        Ok(prune::estimate(&self.now(), thread, what))
    }
}

impl Checks for MemoryBackend {
    fn check(&self) -> Result<CheckReport, StoreError> {
        let mut report = read::check(&self.now());
        report.entries = (self.kv.read().len() + self.cache.read().len()) as u64;
        Ok(report)
    }
}

impl SideTables for MemoryBackend {
    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError> {
        KvChange::validate(changes)?;
        let mut kv = self.kv.write();
        changes.iter().for_each(|change| kv.change(change));
        Ok(())
    }

    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Result<Option<KvRecord>, StoreError> {
        Ok(self.kv.read().entry(namespace, key, now).map(|entry| entry.record.clone()))
    }

    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let entries: Vec<_> = self.kv.read().entries(under, now).cloned().collect();
        all(entries.iter().map(|entry| visit(&entry.record)))
    }

    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let entries: Vec<_> = self.kv.read().entries(under, now).cloned().collect();
        let indexed = entries.iter().filter(|entry| !entry.vectors.is_empty());
        all(indexed.map(|entry| visit(&entry.record, &entry.vectors)))
    }

    fn kv_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<(KvNamespace, String)>, StoreError> {
        Ok(self.kv.read().expired(now, limit))
    }

    fn kv_namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Result<Vec<KvNamespace>, StoreError> {
        let mut found: Vec<_> =
            self.kv.read().entries(under, now).map(|entry| entry.record.namespace.clone()).collect();
        found.dedup();
        Ok(found)
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

/// Goes through visits until one wants no more, or fails.
fn all(mut visits: impl Iterator<Item = Result<bool, StoreError>>) -> Result<(), StoreError> {
    visits.find(|wants_more| !matches!(wants_more, Ok(true))).map_or(Ok(()), |last| last.map(|_| ()))
}
