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

use parking_lot::RwLock;

use self::stored::*;
use crate::store::SearchQuery;
use crate::store::backend::{ClaimCalls, Search, claim_runs, derived};
use crate::store::check::CheckReport;
use crate::store::search::SearchPage;

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
    fn change<T>(&self, change: impl FnOnce(&mut MemoryLog) -> MemoryResult<T>) -> MemoryResult<T> {
        let mut log = self.log.write();
        let mut next = MemoryLog::clone(&log);
        let done = change(&mut next)?;
        *log = Arc::new(next);
        Ok(done)
    }
}

impl Log for MemoryBackend {
    fn commit(&self, batch: &Batch) -> MemoryResult<()> {
        batch.write_in_chain(|| self.change(|log| commit::commit(log, batch)))?;
        self.signal.notify();
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(self.commit(&batch))
    }

    fn operate(&self, operation: &NewOperation) -> MemoryResult<u64> {
        let number = self.change(|log| operation::operate(log, operation))?;
        self.signal.notify();
        Ok(number)
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> MemoryResult<Vec<Option<StoredHead>>> {
        let log = self.now();
        Ok(of.iter().map(|place| read::head(&log, *place, parts)).collect())
    }

    fn records(&self, query: &RecordQuery<'_>) -> MemoryResult<Vec<Option<CheckpointRecord>>> {
        read::records(&self.now(), query).map_or_else(|| derived::records(&Self::of(self.now()), query), Ok)
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> MemoryResult<()> {
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
        visit: VisitEach<'_, VersionRecord>,
    ) -> MemoryResult<()> {
        read::versions(&self.now(), (at, channel, down_to), visit)
    }

    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> MemoryResult<Vec<Vec<WriteRecord>>> {
        let log = self.now();
        derived::writes_of(at, bytes, |at| Ok(log.kept(at)?.sorted_writes()))
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> MemoryResult<Vec<ThreadRow>> {
        threads::rows(&self.now(), of, parts)
    }

    fn operations(&self, query: &OperationQuery) -> MemoryResult<Vec<OperationRecord>> {
        Ok(operation::list(&self.now(), query))
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> MemoryResult<Vec<TimerRecord>> {
        Ok(read::timers(&self.now(), query))
    }

    fn erase(&self, what: &Erase<'_>) -> MemoryResult<Erasure> {
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
    fn changes_after(&self, after: &LogPosition, of: Option<&ThreadId>, limit: usize) -> MemoryResult<ChangePage> {
        let records = read::after(&self.now(), after.number()?, of, limit);
        Ok(ChangePage::by_seq(*after, records))
    }

    fn position(&self, newest: u64) -> MemoryResult<LogPosition> {
        Ok(LogPosition::from_number(self.now().seq.saturating_sub(newest)))
    }

    fn watch(&self) -> MemoryResult<LogWatch> {
        Ok(LogWatch::new(Arc::clone(&self.signal), None))
    }
}

impl Queues for MemoryBackend {
    fn claim(&self, query: &ClaimQuery) -> MemoryResult<Claims> {
        query.validate()?;
        self.change(|log| {
            let version = Self::of(Arc::new(log.clone()));
            let claims = claim_runs(query, usize::MAX, &mut ClaimCalls(&version));
            *log = MemoryLog::clone(&version.now());
            claims
        })
    }
}

impl Searches for MemoryBackend {
    fn search(&self, query: &SearchQuery) -> MemoryResult<SearchPage> {
        search::page(&self.now(), &Search::of(query)?)
    }
}

impl Prunes for MemoryBackend {
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> MemoryResult<UnprunablePlaces> {
        derived::unprunable(&Self::of(self.now()), thread, without)
    }

    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> MemoryResult<Pruned> {
        self.change(|log| prune::prune(log, thread, what))
    }

    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> MemoryResult<Pruned> {
        prune::estimate(&Self::of(self.now()), thread, what)
    }
}

impl Checks for MemoryBackend {
    fn check(&self) -> MemoryResult<CheckReport> {
        let (log, mut report) = (self.now(), CheckReport::default());
        (report.threads, report.entries) = (log.threads.len() as u64, self.tables.len() as u64);
        for (space, stored) in log.spaces(None).flat_map(|(.., space)| space.all().map(move |stored| (space, stored))) {
            *(if stored.record.pruned { &mut report.pruned } else { &mut report.checkpoints }) += 1;
            report.values += space.content(stored).values;
        }
        let version = Self::of(Arc::clone(&log));
        for (thread, _) in log.threads.iter() {
            derived::check(&version, thread)?.into_iter().for_each(|finding| report.note(finding));
        }
        Ok(report)
    }
}
