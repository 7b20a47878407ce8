//! A backend in one SQLite file.
//!
//! The file is specified in `docs/format.md`: an append-only log of rows with sequential keys, in which the cost of a
//! checkpoint is that of its changes. Each folder is one room:
//!
//! | folder | holds |
//! | --- | --- |
//! | [`rows`] | the codecs of columns and payloads, and their checks |
//! | [`verify`] | proofs that a row that an index does not show is absent |
//! | [`read`] | reads along the lineage of a checkpoint, each in one snapshot |
//! | [`commit`] | the rows of a batch and of an operation |
//! | [`side`] | key-value memory, cache, leases and timers |
//! | [`index`] | the table of threads and the search index, which follow the log |
//! | [`remove`] | deleted threads and pruned checkpoints |
//! | [`check`] | the check of a whole file |
//! | [`writer`] | the writer role: one transaction for a group of jobs |
//! | [`file`](self::file) | the file and its log: identified, opened, locked, copied |
//! | [`rewrite`] | compaction, migration and recovery |
//!
//! *Absent:* the meaning of a channel or a message, and any update of a stored row of the log.
//!
//! Invariants: all SQL stands in files named `sql.rs`; only the leader of a group holds the connection that writes; a
//! reader sees one snapshot per call.

mod check;
mod commit;
mod fault;
mod file;
mod index;
mod read;
mod remove;
mod rewrite;
mod rows;
mod side;
mod sql;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use commit::operation::OperationJob;
use fault::{Fault, Res, found_busy};
use file::open::{self, OpenedFile};
use file::registry;
pub(super) use file::repair::{remove_empty, repair_schema};
pub(super) use file::restore::{restore, settle_log};
use file::{backup, wal_tail};
use index::search::{self, IndexJob, IndexStep, Indexer};
use index::threads;
use read::item_pages::ItemPages;
use read::names::Names;
use read::pool::{self, ReaderPool};
use read::record::ReadView;
use read::version_pages::VersionPages;
use remove::erase;
use remove::eraser::Eraser;
use remove::prune::{self, NamespaceRemoval, PruneJob};
use rewrite::compact;
pub(super) use rewrite::recover::recover;
pub(crate) use rows::keys::GivenKeys;
use rows::keys::KeyChange;
use side::{lease, timer};
use writer::background::Background;
use writer::group;
use writer::job::{Job, JobRef};
use writer::role::SqliteWriter;
pub use writer::transaction::SqlTransaction;

use crate::base::limits::{PRUNE_INTERVAL, SEARCH_TAIL_MAX};
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::store::backend::{Backend, CommitHandle, Erasure};
use crate::store::batch::{Batch, ListRef};
use crate::store::beside::Beside;
use crate::store::check::{CheckReport, CheckedUpTo, Finding, Invariant};
use crate::store::cipher::Key;
use crate::store::error::StoreError;
use crate::store::handle::OpenOptions;
use crate::store::lease::LeaseRecord;
use crate::store::operation::{
    BranchRecord, NewOperation, OperationField, OperationQuery, OperationRecord, OperationValue, TRASHED,
};
use crate::store::prune::{PruneSpan, Pruned};
use crate::store::query::{CheckpointQuery, ItemRange};
use crate::store::record::{
    CheckpointRecord, CheckpointRef, ItemRow, StatePart, StateRecord, StoredHead, StoredListChange, ThreadRecord,
    ThreadSize, TimerRecord, VersionRecord, WriteRecord,
};
use crate::store::search::{Search, SearchIndex, SearchOptions, SearchPage, SearchQuery};
use crate::store::stats::{CommitStats, Compaction, FormatMigration, StoreStats};
use crate::store::threads::{ThreadInfo, ThreadQuery};
use crate::store::watch::LogWatch;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A backend in one SQLite file.
///
/// Several threads and several processes may use one file at once. Dropping the backend waits for submitted batches
/// and copies the write-ahead log into the file.
#[derive(Debug)]
pub struct SqliteBackend {
    // Fields drop in order: readers first, so that the writer can empty the WAL.
    pool: Arc<ReaderPool>,
    eraser: Option<Eraser>,
    indexer: Option<Indexer>,
    worker: Option<Background>,
    writer: Option<Arc<SqliteWriter>>,
    migration: Option<FormatMigration>,
    _open: registry::Registered,
}

impl SqliteBackend {
    /// Opens the store in the file at `path`, and makes it if it is missing and `options` allow it.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`], [`StoreError::NewerFormat`], [`StoreError::OlderFormat`], [`StoreError::Corrupt`],
    /// [`StoreError::Open`], [`StoreError::Busy`]: the file is not changed.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        let _opening = registry::opening();
        if options.read_only {
            let pool = Arc::new(ReaderPool::alone(open::readable(path, options)?)?);
            let _open = registry::register(path);
            return Ok(Self { pool, eraser: None, indexer: None, worker: None, writer: None, migration: None, _open });
        }
        let OpenedFile { place, conn, migration } = open::writable(path, options)?;
        let writer = SqliteWriter::new(&place, conn).map_err(|fault| open::opening_place(&place, fault))?;
        let writer = Arc::new(writer);
        let pool = Arc::new(ReaderPool::beside_writer(place)?);
        let worker = Background::new(Arc::clone(&writer));
        let eraser = Eraser::new(worker.clone(), Arc::clone(&options.clock), &pool);
        if pool.read(|view| erase::tombstones(view.conn))?.len() > 0 {
            eraser.wake();
        }
        // A damaged row does not keep the file from being opened: the trash is not emptied, and a check reports it.
        if pool.read(|view| view.trash()).is_ok_and(|trash| !trash.is_empty()) {
            eraser.watch_trash();
        } else {
            eraser.watch_trash_later();
        }
        let indexer = Indexer::new(worker.clone());
        if let Some(index) = pool.read(|view| search::status(view.conn))? {
            indexer.set_on(true);
            if index.behind > SEARCH_TAIL_MAX {
                indexer.wake();
            }
        }
        let (eraser, indexer, worker, writer) = (Some(eraser), Some(indexer), Some(worker), Some(writer));
        Ok(Self { pool, eraser, indexer, worker, writer, migration, _open: registry::register(path) })
    }

    /// Copies the whole write-ahead log into the file and empties it. It waits for no other process, and no other
    /// process waits for it.
    ///
    /// # Errors
    /// [`StoreError::Busy`], at once, while a reader needs the log or another process copies it;
    /// [`StoreError::Write`]; [`StoreError::ReadOnly`].
    pub fn checkpoint_wal(&self) -> Result<(), StoreError> {
        self.pool.close();
        self.writer()?.checkpoint_wal()
    }

    /// Returns how many commits were taken along by how many transactions; the mean group is their ratio.
    pub fn commit_stats(&self) -> CommitStats {
        self.writer.as_ref().map(|writer| writer.stats()).unwrap_or_default()
    }

    fn writer(&self) -> Result<&SqliteWriter, StoreError> {
        self.writer.as_deref().ok_or(StoreError::ReadOnly)
    }

    fn eraser(&self) -> Result<&Eraser, StoreError> {
        self.eraser.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Returns the head of a namespace without reading it, if the writer knows it.
    fn bare_head(&self, thread: &ThreadId, namespace: &Namespace) -> Option<StoredHead> {
        let head = self.writer.as_deref()?.bare_head(thread, namespace)?;
        debug_assert!(self.is_head(thread, namespace, &head), "the file has another head than {head:?}");
        Some(head)
    }

    /// Returns whether a head that the writer retains is that of the file, until another connection has committed.
    fn is_head(&self, thread: &ThreadId, namespace: &Namespace, known: &StoredHead) -> bool {
        let read = self.pool.read(|view| view.head_with_writes(thread, namespace));
        let again = self.writer.as_deref().and_then(|writer| writer.bare_head(thread, namespace));
        again.as_ref() != Some(known) || read.map_or(true, |read| read.as_ref() == Some(known))
    }

    /// Reads a few rows on the connection that writes, if it is idle: it has the pages that it wrote last, while each
    /// commit empties the page caches of the readers. Otherwise, and if it would have to wait for another process,
    /// reads on a reader.
    fn read_near_writer<T>(&self, read: impl Fn(ReadView<'_>) -> Res<T>) -> Result<T, StoreError> {
        let near = |writer: &SqliteWriter| writer.read_if_idle(|conn| self.pool.read_on(conn, &read));
        match self.writer.as_deref().and_then(near).filter(|result| !found_busy(result)) {
            Some(result) => result.map_err(Fault::into_read),
            None => self.pool.read(read),
        }
    }
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
        self.pool.close();
    }
}

impl Backend for SqliteBackend {
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.writer()?.commit(JobRef::Log(batch))?;
        self.note_committed(batch);
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        match self.writer() {
            Ok(writer) => {
                self.note_committed(&batch);
                writer.submit(Job::Log(batch))
            }
            Err(error) => CommitHandle::settled(Err(error)),
        }
    }

    fn transact(
        &self,
        run: &mut dyn FnMut(&SqlTransaction<'_>) -> Result<Option<Batch>, StoreError>,
    ) -> Result<(), StoreError> {
        self.writer()?.transact(run)
    }

    fn write_submitted(&self) {
        if let Some(writer) = &self.writer {
            writer.write_submitted();
        }
    }

    fn head(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointRecord>, StoreError> {
        self.pool.read(|view| view.head(thread, namespace))
    }

    fn head_id(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointId>, StoreError> {
        match self.bare_head(thread, namespace) {
            Some(head) => Ok(Some(head.checkpoint)),
            None => self.read_near_writer(|view| view.head_id(thread, namespace)),
        }
    }

    fn head_with_writes(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<StoredHead>, StoreError> {
        match self.bare_head(thread, namespace) {
            Some(head) => Ok(Some(head)),
            None => self.read_near_writer(|view| view.head_with_writes(thread, namespace)),
        }
    }

    fn checkpoint(&self, at: &CheckpointRef) -> Result<Option<CheckpointRecord>, StoreError> {
        self.pool.read(|view| view.checkpoint(at))
    }

    fn checkpoints_by_prefix(
        &self,
        thread: &ThreadId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        self.pool.read(|view| view.by_prefix(thread, prefix, limit))
    }

    fn checkpoints(&self, query: &CheckpointQuery) -> Result<Vec<CheckpointRecord>, StoreError> {
        self.pool.read(|view| view.checkpoints(query))
    }

    fn state(&self, at: &CheckpointRef) -> Result<StateRecord, StoreError> {
        self.pool.read(|view| view.state(at))
    }

    fn read_state(
        &self,
        at: &CheckpointRef,
        visit: &mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.pool.read(|view| view.read_state(at, visit))
    }

    fn ancestors(&self, at: &CheckpointRef, ordinals: &[u64]) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        self.pool.read(|view| view.ancestors(at, ordinals))
    }

    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut pages = VersionPages::new(down_to);
        while let Some(page) = self.pool.read(|view| pages.read(view, at, channel))? {
            let mut goes_on = true;
            for (position, record) in page.iter().enumerate() {
                // The versions of a checkpoint are visited together.
                if !goes_on && page[position - 1].channel.ordinal != record.channel.ordinal {
                    return Ok(());
                }
                goes_on &= visit(record)?;
            }
            if !goes_on {
                return Ok(());
            }
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
        let mut pages = ItemPages::new(range);
        while let Some(page) = self.pool.read(|view| pages.read(view, at, channel))? {
            page.visit(visit)?;
        }
        Ok(())
    }

    fn list_len(&self, at: &CheckpointRef, channel: &str) -> Result<u64, StoreError> {
        self.pool.read(|view| view.list_len(at, channel))
    }

    fn find_item(
        &self,
        at: &CheckpointRef,
        channel: &str,
        id: &str,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        self.pool.read(|view| view.find_item(at, channel, id, visit))
    }

    fn search_list(&self, at: &CheckpointRef, channel: &str, text: &str) -> Result<Vec<StoredListChange>, StoreError> {
        self.pool.read(|view| view.search_list(at, channel, text))
    }

    fn list_reference(&self, at: &CheckpointRef, channel: &str) -> Result<Option<ListRef>, StoreError> {
        self.pool.read(|view| view.list_reference(at, channel))
    }

    fn writes(&self, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError> {
        self.pool.read(|view| view.writes(at))
    }

    fn threads(&self, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadRecord>, StoreError> {
        self.pool.read(|view| view.threads(after, limit))
    }

    fn thread_size(&self, thread: &ThreadId) -> Result<ThreadSize, StoreError> {
        self.pool.read(|view| view.thread_size(thread))
    }

    fn namespaces(&self, thread: &ThreadId) -> Result<Vec<Namespace>, StoreError> {
        self.pool.read(|view| view.namespaces(thread))
    }

    fn last_of_run(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        self.pool.read(|view| view.last_of_run(thread, namespace, run))
    }

    fn records_after(
        &self,
        seq: u64,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        self.pool.read(|view| view.records_after(seq, thread, limit))
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        self.pool.read(|view| view.last_seq())
    }

    fn watch_log(&self) -> Result<LogWatch, StoreError> {
        let signal = self.writer.as_ref().map(|writer| writer.signal()).unwrap_or_default();
        Ok(LogWatch::new(signal, Some(Box::new(pool::DataVersion::new(&self.pool)?))))
    }

    fn timers(&self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        self.pool.read(|view| timer::list(view, due_by, limit))
    }

    fn timers_of(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<TimerRecord>, StoreError> {
        self.pool.read(|view| timer::list_of(view, thread, namespace))
    }

    fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError> {
        self.pool.read(|view| lease::of_id(view, thread))
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        let job = OperationJob { operation: operation.clone(), id: Arc::default() };
        self.writer()?.commit(JobRef::Operation(&job))?;
        if operation.changes.iter().any(|change| change.field == OperationField::Fact(TRASHED.into())) {
            self.eraser()?.watch_trash();
        }
        let id = *job.id.lock();
        Ok(id)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        self.pool.read(|view| view.operations(query))
    }

    fn fields(&self, thread: &ThreadId) -> Result<Vec<(OperationField, OperationValue)>, StoreError> {
        self.pool.read(|view| view.fields(thread))
    }

    fn branches(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<BranchRecord>, StoreError> {
        self.pool.read(|view| view.branches(thread, namespace))
    }

    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        let search = Search::of(query)?;
        if let Some(writer) = self.writer.as_deref()
            && self.search_index()?.is_some_and(|index| index.behind > SEARCH_TAIL_MAX)
        {
            // Checkpoints that cannot be indexed now are scanned.
            _ = search::advance(writer);
        }
        self.pool.read(|view| search::page(view, &search))
    }

    fn enable_search(&self, options: &SearchOptions) -> Result<(), StoreError> {
        let writer = self.writer()?;
        let step = IndexStep::Enable { unsealed: options.unsealed };
        writer.commit(JobRef::Index(&IndexJob { step, behind: Arc::default() }))?;
        self.search_index()?;
        search::advance(writer)
    }

    fn disable_search(&self) -> Result<(), StoreError> {
        let job = IndexJob { step: IndexStep::Disable, behind: Arc::default() };
        self.writer()?.commit(JobRef::Index(&job))?;
        self.search_index().map(|_| ())
    }

    fn search_index(&self) -> Result<Option<SearchIndex>, StoreError> {
        let index = self.pool.read(|view| search::status(view.conn))?;
        // Another handle may have made the index, or removed it.
        if let Some(indexer) = &self.indexer {
            indexer.set_on(index.is_some());
        }
        Ok(index)
    }

    fn list_threads(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        self.pool.read(|view| threads::list(view, query))
    }

    fn thread_info(&self, thread: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
        self.pool.read(|view| threads::of_id(view, thread))
    }

    fn rebuild_threads(&self) -> Result<(), StoreError> {
        threads::rebuild(self.writer()?)
    }

    fn forks(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        self.pool.read(|view| view.forks(thread))
    }

    fn forked_from(&self, thread: &ThreadId) -> Result<Option<CheckpointRef>, StoreError> {
        self.pool.read(|view| view.forked_from(thread))
    }

    fn delete_threads(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        let eraser = self.eraser()?;
        self.pool.close();
        eraser.delete(threads)
    }

    fn erase_trash(&self, now: Timestamp) -> Result<Erasure, StoreError> {
        let eraser = self.eraser()?;
        self.pool.close();
        eraser.erase_trash(now)
    }

    fn reclaim(&self) -> Result<Erasure, StoreError> {
        let eraser = self.eraser()?;
        self.pool.close();
        eraser.reclaim()
    }

    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<BTreeSet<(u64, u64)>, StoreError> {
        let found = self.pool.read(|view| prune::unprunable(view, thread, without))?;
        Ok(found.into_iter().map(|(branch, ordinal)| (branch as u64, ordinal as u64)).collect())
    }

    fn prune(&self, thread: &ThreadId, spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
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
            threads::recount(writer, thread)?;
        }
        if let Some(indexer) = self.indexer.as_ref().filter(|_| sum.checkpoints > 0) {
            indexer.wake_if_on();
        }
        Ok(sum)
    }

    fn prune_estimate(&self, thread: &ThreadId, spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
        self.pool.read(|view| prune::estimate(view, thread, spans))
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

    fn estimate_namespaces(
        &self,
        thread: &ThreadId,
        namespaces: &[(Namespace, CheckpointId)],
    ) -> Result<Pruned, StoreError> {
        self.pool.read(|view| prune::estimate_namespaces(view, thread, namespaces))
    }

    fn beside(&self) -> &dyn Beside {
        self
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        let place = self.pool.place();
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        // A reader that may not write cannot tell the numbers.
        let copy = match &self.writer {
            Some(writer) => writer.wal_progress()?,
            None => self.pool.read(|view| group::copy_wal(view.conn, sql::WAL_NOOP)).unwrap_or_default(),
        };
        let number = |sql| self.pool.read(|view| Ok(view.conn.query_row(sql, [], |row| row.get::<_, i64>(0))?));
        Ok(StoreStats {
            format: number(sql::READ_FORMAT)?,
            page_bytes: number(sql::READ_PAGE_BYTES)?.unsigned_abs(),
            file_bytes: bytes(&place.path),
            wal_bytes: bytes(&open::beside(&place.path, "-wal")),
            wal_frames: copy.frames,
            wal_copied_frames: copy.copied,
            wal_limit_bytes: place.wal_limit_bytes,
            wal_error: self.writer.as_ref().and_then(|writer| writer.hidden_error()),
            oldest_reader: self.pool.oldest_read(),
            erasing: self.pool.read(|view| erase::tombstones(view.conn))?.len() as u64,
            commits: self.commit_stats(),
        })
    }

    fn compact(&self) -> Result<Compaction, StoreError> {
        let writer = self.writer()?;
        // Idle readers hold no snapshot, but an empty log is left only by the last connection.
        self.pool.close();
        compact::compact(self.pool.place(), writer)
    }

    fn migration(&self) -> Option<FormatMigration> {
        self.migration.clone()
    }

    fn missing_log(&self) -> Option<String> {
        self.pool.place().missing_log.clone()
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let busy = || StoreError::Busy { waited_ms: self.pool.place().busy_ms, holder: None };
        backup::backup(self.pool.place(), to).map_err(|fault| fault.into_write(busy))
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

    fn check(&self) -> Result<CheckReport, StoreError> {
        self.check_from(None)
    }

    fn check_since(&self, point: &CheckedUpTo) -> Result<CheckReport, StoreError> {
        self.check_from(Some(point))
    }
}

impl SqliteBackend {
    fn note_committed(&self, batch: &Batch) {
        if let Some(indexer) = &self.indexer {
            indexer.note(batch.parts().map(|part| part.checkpoints.len()).sum());
        }
    }

    fn check_from(&self, since: Option<&CheckedUpTo>) -> Result<CheckReport, StoreError> {
        // With names of its own: those that were cached when they were whole may have rotted since.
        let names = Names::default();
        let mut report = self.pool.read(|view| check::check(ReadView { names: &names, ..view }, since))?;
        let log = open::beside(&self.pool.place().path, "-wal");
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
