//! The capabilities of a file: followers, searches, pruning, checks, transactions, and the file itself.

use super::check;
use super::file::table_group::format_of;
use super::file::{backup, paths, wal_tail};
use super::index::follow;
use super::index::projection::ProjectionStep;
use super::index::search::{self, SearchEntries};
use super::index::threads::ThreadStates;
use super::keys::KeyChange;
use super::read::names::Names;
use super::read::pool;
use super::remove::erase;
use super::remove::prune::{self, NamespaceRemoval, PruneJob};
use super::rewrite::compact;
use super::side::lease::claim::{self, ClaimJob};
use super::writer::group;
use super::writer::job::JobRef;
use super::{SqliteBackend, sql};
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::limits::{PRUNE_INTERVAL, SEARCH_TAIL_MAX};
use crate::store::batch::Batch;
use crate::store::check::{CheckReport, CheckedUpTo, Finding, Invariant};
use crate::store::cipher::Key;
use crate::store::error::StoreError;
use crate::store::log::{
    ChangePage, Checks, ClaimQuery, Claims, Erasure, FileStore, Follow, LogPosition, PruneTarget, Prunes, Queues,
    Searches, Transactions, UnprunablePlaces,
};
use crate::store::prune::{PruneSpan, Pruned};
use crate::store::record::{CheckpointRef, StoredListChange};
use crate::store::search::{Search, SearchIndex, SearchOptions, SearchPage, SearchQuery};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::view::ReadView;
use crate::store::statements::SqlConnection;
use crate::store::stats::{Compaction, StoreStats};
use crate::store::watch::LogWatch;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Follow for SqliteBackend {
    fn changes_after(
        &self,
        position: &LogPosition,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<ChangePage, StoreError> {
        let seq = position.number()?;
        let records = self.pool.read(|view| view.records_after(seq, thread, limit))?;
        Ok(ChangePage::by_seq(*position, records))
    }

    fn position(&self, newest: u64) -> Result<LogPosition, StoreError> {
        let last = self.pool.read(|view| view.last_seq())?;
        Ok(LogPosition::from_number(last.saturating_sub(newest)))
    }

    fn watch(&self) -> Result<LogWatch, StoreError> {
        let signal = self.writer.as_ref().map(|writer| writer.signal()).unwrap_or_default();
        Ok(pool::DataVersion::new(&self.pool)?.into_watch(signal))
    }
}

impl Queues for SqliteBackend {
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        query.validate()?;
        let writer = self.writer()?;
        // A worker without work does not take the write lock. One that got all that it had asked for is likely to get
        // more.
        if !self.claims_more.load(Ordering::Relaxed) {
            let found = self.read_near_writer(|view| claim::find(view, query))?;
            if found.runs.is_empty() {
                return Ok(found);
            }
        }
        let job = ClaimJob { query: Arc::new(query.clone()), claims: Arc::default() };
        writer.commit(JobRef::Claim(&job))?;
        let claims = std::mem::take(&mut *job.claims.lock());
        self.claims_more.store(claims.runs.len() == query.owners.len(), Ordering::Relaxed);
        Ok(claims)
    }
}

impl Searches for SqliteBackend {
    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        let search = Search::of(query)?;
        if let Some(writer) = self.writer.as_deref()
            && self.index()?.is_some_and(|index| index.behind > SEARCH_TAIL_MAX)
        {
            // Checkpoints that cannot be indexed now are scanned.
            _ = follow::to_end(writer, &SearchEntries);
        }
        self.pool.read(|view| search::page(view, &search))
    }

    fn search_list(
        &self,
        at: &CheckpointRef,
        channel: &str,
        text: &str,
    ) -> Result<Option<Vec<StoredListChange>>, StoreError> {
        self.pool.read(|view| view.search_list(at, channel, text)).map(Some)
    }

    fn enable(&self, options: &SearchOptions) -> Result<(), StoreError> {
        let writer = self.writer()?;
        follow::step(writer, &SearchEntries, ProjectionStep::Make { unsealed: options.unsealed })?;
        self.index()?;
        follow::to_end(writer, &SearchEntries)
    }

    fn disable(&self) -> Result<(), StoreError> {
        follow::step(self.writer()?, &SearchEntries, ProjectionStep::Remove)?;
        self.index().map(|_| ())
    }

    fn index(&self) -> Result<Option<SearchIndex>, StoreError> {
        let index = self.pool.read(|view| search::status(view.conn))?;
        // Another handle may have made the index, or removed it.
        if let Some(indexer) = &self.indexer {
            indexer.set_on(index.is_some());
        }
        Ok(index)
    }
}

impl Prunes for SqliteBackend {
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<UnprunablePlaces, StoreError> {
        let found = self.pool.read(|view| prune::unprunable(view, thread, without))?;
        Ok(found.into_iter().map(|(branch, ordinal)| (branch as u64, ordinal as u64)).collect())
    }

    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        match what {
            PruneTarget::Spans(spans) => self.prune_spans(thread, spans),
            PruneTarget::Namespaces(namespaces) => self.prune_namespaces(thread, namespaces),
        }
    }

    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        self.pool.read(|view| match what {
            PruneTarget::Spans(spans) => prune::estimate(view, thread, spans),
            PruneTarget::Namespaces(namespaces) => prune::estimate_namespaces(view, thread, namespaces),
        })
    }
}

impl SqliteBackend {
    fn prune_spans(&self, thread: &ThreadId, spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
        let (writer, state, mut sum) = (self.writer()?, Arc::default(), Pruned::default());
        for span in spans {
            let mut job = PruneJob { thread: thread.clone(), span: *span, state: Arc::clone(&state) };
            loop {
                writer.commit(JobRef::Prune(&job))?;
                let (pruned, next) = job.state.lock().taken();
                sum.add(pruned);
                let Some(next) = next else { break };
                job.span.first = next;
                // A process that waits for the lock finds it free.
                std::thread::sleep(PRUNE_INTERVAL);
            }
        }
        if sum.checkpoints > 0 {
            // The index of texts is empty after a pruning, and follows the log anew.
            follow::step(writer, &ThreadStates, ProjectionStep::Recount(thread.clone()))?;
        }
        if let Some(indexer) = self.indexer.as_ref().filter(|_| sum.checkpoints > 0) {
            indexer.wake_if_on();
        }
        Ok(sum)
    }

    fn prune_namespaces(
        &self,
        thread: &ThreadId,
        namespaces: &[(Namespace, CheckpointId)],
    ) -> Result<Pruned, StoreError> {
        if namespaces.is_empty() {
            return Ok(Pruned::default());
        }
        let eraser = self.eraser()?;
        self.pool.close();
        let (thread, namespaces) = (thread.clone(), namespaces.to_vec());
        let pruned = eraser.remove(NamespaceRemoval { thread, namespaces, pruned: Arc::default() })?;
        if let Some(indexer) = self.indexer.as_ref().filter(|_| pruned.checkpoints > 0) {
            indexer.wake_if_on();
        }
        Ok(pruned)
    }

    fn check_from(&self, since: Option<&CheckedUpTo>) -> Result<CheckReport, StoreError> {
        // With names of its own: those that were cached when they were whole may have rotted since.
        let names = Names::default();
        let mut report = self.pool.read(|view| check::check(ReadView { names: &names, ..view }, since))?;
        let log = paths::beside(&self.pool.place().path, "-wal");
        let failed = |error: io::Error| StoreError::Read { reason: error.to_string(), source: Some(error.into()) };
        report.log_tail = match wal_tail::find(&log).map_err(failed)? {
            Some(tail) => self.pool.read(|view| tail.with_heads(view.conn))?,
            None => None,
        };
        if let Some(tail) = report.log_tail.as_ref().filter(|tail| tail.commits > 1) {
            report.note(Finding::new(Invariant::Log, "the write-ahead log", tail.to_string()));
        }
        if let Some(error) = self.writer.as_ref().and_then(|writer| writer.hidden_error()) {
            report.note(Finding::new(Invariant::Copying, "the write-ahead log", error));
        }
        report.up_to = report.up_to.filter(|_| report.problems.is_empty());
        Ok(report)
    }
}

impl Checks for SqliteBackend {
    fn check(&self) -> Result<CheckReport, StoreError> {
        self.check_from(None)
    }

    fn check_since(&self, point: &CheckedUpTo) -> Result<CheckReport, StoreError> {
        self.check_from(Some(point))
    }
}

impl Transactions for SqliteBackend {
    fn transact(
        &self,
        run: &mut dyn FnMut(&dyn SqlConnection) -> Result<Option<Batch>, StoreError>,
    ) -> Result<(), StoreError> {
        self.writer()?.transact(run)
    }
}

impl FileStore for SqliteBackend {
    fn stats(&self) -> Result<StoreStats, StoreError> {
        let place = self.pool.place();
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        // A reader that may not write cannot tell the numbers.
        let copy = match &self.writer {
            Some(writer) => writer.wal_progress()?,
            None => self.pool.read(|view| group::copy_wal(view.conn, sql::WAL_NOOP)).unwrap_or_default(),
        };
        let number = |sql| self.pool.read(|view| view.conn.one::<i64>(sql, []));
        Ok(StoreStats {
            format: format_of(number(sql::READ_FORMAT)?),
            page_bytes: number(sql::READ_PAGE_BYTES)?.unsigned_abs(),
            file_bytes: bytes(&place.path),
            wal_bytes: bytes(&paths::beside(&place.path, "-wal")),
            wal_frames: copy.frames,
            wal_copied_frames: copy.copied,
            wal_limit_bytes: place.wal_limit_bytes,
            wal_error: self.writer.as_ref().and_then(|writer| writer.hidden_error()),
            oldest_reader: self.pool.oldest_read(),
            erasing: self.pool.read(|view| erase::tombstones(view.conn))?.len() as u64,
            commits: self.commit_stats(),
        })
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let busy = || StoreError::Busy { waited_ms: self.pool.place().busy_ms, holder: None };
        backup::backup(self.pool.place(), to).map_err(|fault| fault.into_write(busy))
    }

    fn compact(&self) -> Result<Compaction, StoreError> {
        let writer = self.writer()?;
        // Idle readers hold no snapshot, but an empty log is left only by the last connection.
        self.pool.close();
        compact::compact(self.pool.place(), writer)
    }

    fn reclaim(&self) -> Result<Erasure, StoreError> {
        let eraser = self.eraser()?;
        self.pool.close();
        eraser.reclaim()
    }

    fn rebuild_threads(&self) -> Result<(), StoreError> {
        follow::anew(self.writer()?, &ThreadStates)
    }

    fn change_key(&self, key: &Key) -> Result<(), StoreError> {
        let writer = self.writer()?;
        writer.commit(JobRef::Keys(&KeyChange::Caller(key.clone())))?;
        // The log holds the row before until it is emptied, which the background thread repeats if a reader is in the
        // way.
        self.pool.close();
        match writer.checkpoint_wal() {
            Err(StoreError::Busy { .. }) => Ok(()),
            done => done,
        }
    }

    fn rotate_data_key(&self) -> Result<(), StoreError> {
        self.writer()?.commit(JobRef::Keys(&KeyChange::Data))?;
        self.pool.read(|view| view.keys.reload(view.conn))
    }

    fn missing_wal(&self) -> Option<String> {
        self.pool.place().missing_wal.clone()
    }
}
