//! A backend in memory: the model that every other backend is compared with.
//!
//! It refuses more than a file does: whatever shows a mistake of the caller (a missing parent, a version that goes
//! back, a removal of nothing, a dangling reference) is [`StoreError::Invalid`]. It is also quick enough to
//! run on: a commit costs what changed, a fork costs nothing. *Absent:* checksums and durability.
//!
//! Invariants: every checkpoint holds its whole state in shared maps; a commit makes all additions to a namespace, and
//! applies them as its last act; no lock is held while a caller's code runs.

// The sources are compiled outside the engine too, where a struct that can grow has no literal.
#![allow(clippy::field_reassign_with_default)]

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

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use self::stored::{MemoryLog, StoredCheckpoint};
use crate::base::{Encoded, Namespace, ThreadId, Timestamp};
use crate::store::backend::{Search, delete_unforked, validate_deleted};
use crate::store::log::{
    ChangePage, Checks, Erase, Follow, HeadParts, HeldPlaces, LogParts, LogPosition, NamespaceRef, PruneTarget, Prunes,
    RecordQuery, Searches, StateQuery, ThreadParts, ThreadRow, ThreadRows, TimerQuery, VisitState,
};
use crate::store::{
    Batch, Beside, CacheChange, CacheKey, CheckReport, CheckpointRecord, CheckpointRef, CommitHandle, Erasure,
    ItemRange, KvChange, KvNamespace, KvRecord, KvVector, Log, LogSignal, LogWatch, NewOperation, OperationQuery,
    OperationRecord, Pruned, SearchIndex, SearchOptions, SearchPage, SearchQuery, StatePart, StoreError, StoredHead,
    StoredListChange, TimerRecord, VersionRecord, WriteRecord,
};

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

impl Log for MemoryBackend {
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        batch.write_in_chain(|| commit::commit(&mut self.log.write(), batch))?;
        self.signal.notify();
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(self.commit(&batch))
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        operation::operate(&mut self.log.write(), operation)
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        let log = self.log.read();
        Ok(of.iter().map(|place| read::head(&log, *place, parts)).collect())
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        let log = self.log.read();
        match query {
            RecordQuery::At(points) => {
                Ok(points.iter().map(|at| log.stored(at).map(|stored| stored.record.clone())).collect())
            }
            RecordQuery::Page(query) => Ok(read::list(&log, query).into_iter().map(Some).collect()),
            RecordQuery::Prefix { thread, prefix, limit } => {
                Ok(read::by_prefix(&log, thread, prefix, *limit).into_iter().map(Some).collect())
            }
            RecordQuery::Ordinals { at, ordinals } => read::ancestors(&log, at, ordinals),
            RecordQuery::LastOfRun(place, run) => Ok(vec![read::last_of_run(&log, *place, run)]),
        }
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        let stored = self.stored(at)?;
        match query {
            StateQuery::Record => visit(StatePart::Record(Cow::Owned(read::state(&stored)))).map(|_| ()),
            StateQuery::All => read::read_state(&stored, None, visit),
            StateQuery::Ends(whole) => read::read_state(&stored, Some(whole), visit),
            StateQuery::Items(channel, range) => {
                read::items(&stored, channel, *range, &mut |row| visit(StatePart::Item(row)).map(|_| ()))
            }
            StateQuery::Item(channel, id) => {
                let mut found = false;
                read::items(&stored, channel, ItemRange::All, &mut |row| {
                    if found || row.payload.index.is_none_or(|index| index.id != Some(*id)) {
                        return Ok(());
                    }
                    found = true;
                    visit(StatePart::Item(row)).map(|_| ())
                })
            }
            StateQuery::Len(channel) => visit(StatePart::Len(read::list_len(&stored, channel))).map(|_| ()),
            StateQuery::Reference(channel) => match read::list_reference(&stored, channel) {
                Some(of) => visit(StatePart::Reference(&of)).map(|_| ()),
                None => Ok(()),
            },
        }
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

    fn writes_of(&self, at: &[&CheckpointRef]) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        let of = |at: &&CheckpointRef| {
            self.stored(at)?;
            let space = self.log.read().space(&at.thread, &at.namespace).cloned();
            Ok(read::writes(&space.ok_or_else(|| read::not_found(at))?, &at.checkpoint))
        };
        at.iter().map(of).collect()
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        threads::rows(&self.log.read(), of, parts)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        Ok(operation::list(&self.log.read(), query))
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        Ok(read::timers(&self.log.read(), query))
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        let mut log = self.log.write();
        match what {
            Erase::Threads(threads) => {
                validate_deleted(threads)?;
                delete::threads(&mut log, threads)?;
            }
            Erase::Trash(now) => {
                let due = delete::due(&log, *now);
                delete_unforked(due, |threads| delete::threads(&mut log, threads), StoreError::forked_off)?;
            }
        }
        Ok(Erasure::Erased)
    }

    fn parts(&self) -> LogParts<'_> {
        let parts = LogParts::NONE.reading_in_place().with_follow(self).with_searches(self);
        parts.with_prunes(self).with_checks(self).with_beside(self)
    }
}

impl Follow for MemoryBackend {
    fn changes_after(
        &self,
        position: &LogPosition,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<ChangePage, StoreError> {
        let seq = position.number()?;
        let records = read::after(&self.log.read(), seq, thread, limit);
        Ok(ChangePage::by_seq(*position, records))
    }

    fn position(&self, newest: u64) -> Result<LogPosition, StoreError> {
        Ok(LogPosition::from_number(self.log.read().seq.saturating_sub(newest)))
    }

    fn watch(&self) -> Result<LogWatch, StoreError> {
        Ok(LogWatch::new(Arc::clone(&self.signal), None))
    }
}

impl Searches for MemoryBackend {
    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        search::page(&self.log.read(), &Search::of(query)?)
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
    fn held(&self, thread: &ThreadId, without: &[Namespace]) -> Result<HeldPlaces, StoreError> {
        Ok(prune::unprunable(&self.log.read(), thread, without))
    }

    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        let mut log = self.log.write();
        Ok(match what {
            PruneTarget::Spans(spans) => prune::prune(&mut log, thread, spans),
            PruneTarget::Namespaces(namespaces) => prune::remove_namespaces(&mut log, thread, namespaces),
        })
    }

    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        let log = self.log.read();
        Ok(match what {
            PruneTarget::Spans(spans) => prune::estimate(&log, thread, spans),
            PruneTarget::Namespaces(namespaces) => {
                let found = prune::removable(&log, thread, namespaces);
                prune::sum_of_namespaces(&log, thread, &found)
            }
        })
    }
}

impl Checks for MemoryBackend {
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
