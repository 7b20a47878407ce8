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

use parking_lot::RwLock;

use self::stored::MemoryLog;
use crate::base::{Namespace, ThreadId};
use crate::store::backend::{ClaimCalls, Search, claim_runs, derived};
use crate::store::batch::Batch;
use crate::store::check::CheckReport;
use crate::store::log::{
    Capabilities, ChangePage, Checks, ClaimQuery, Claims, CommitHandle, Erase, Follow, HeadParts, Log, LogPosition,
    LogSignal, LogWatch, NamespaceRef, PruneTarget, Prunes, Queues, RecordQuery, Searches, StateQuery, ThreadParts,
    ThreadRow, ThreadRows, TimerQuery, UnprunablePlaces, VisitState,
};
use crate::store::operation::{NewOperation, OperationQuery, OperationRecord};
use crate::store::record::{CheckpointRecord, StoredHead, TimerRecord, VersionRecord, WriteRecord};
use crate::store::search::SearchPage;
use crate::store::{CheckpointRef, Erasure, Pruned, SearchQuery, StoreError};

/// A backend in memory, stricter than a file. It lasts as long as it is held.
///
/// A thread is listed from the first checkpoint of its root namespace on.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    log: RwLock<Arc<MemoryLog>>,
    tables: side_tables::MemoryTables,
    signal: Arc<LogSignal>,
}

impl MemoryBackend {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a backend of a version of the log: its reads see that version.
    fn of(log: Arc<MemoryLog>) -> Self {
        Self { log: RwLock::new(log), ..Self::default() }
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
        read::records(&self.now(), query).map_or_else(|| derived::records(&Self::of(self.now()), query), Ok)
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        let log = self.now();
        match query {
            StateQuery::Record | StateQuery::Item(..) | StateQuery::Len(_) => {
                derived::read(&Self::of(log), at, query, visit)
            }
            _ => read::read(log.kept(at)?, query, visit),
        }
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
        let mut parts = Capabilities::NONE;
        parts.reads_block = false;
        parts.follow = Some(self);
        parts.queues = Some(self);
        parts.searches = Some(self);
        parts.prunes = Some(self);
        parts.checks = Some(self);
        parts.side_tables = Some(&self.tables);
        parts
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
        self.change(|log| {
            let version = Self::of(Arc::new(std::mem::take(log)));
            let claims = claim_runs(query, usize::MAX, &mut ClaimCalls(&version))?;
            *log = MemoryLog::clone(&version.now());
            Ok(claims)
        })
    }
}

impl Searches for MemoryBackend {
    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        search::page(&self.now(), &Search::of(query)?)
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
        report.entries = self.tables.len() as u64;
        Ok(report)
    }
}
