//! A backend in one SQLite file.
//!
//! The file is specified in `docs/format.md`: an append-only log of rows with sequential keys, in which the cost of a
//! checkpoint is that of its changes. Each folder is one room:
//!
//! | folder | holds |
//! | --- | --- |
//! | [`tables`] | the description of each table, from which rows, checks and statements follow |
//! | [`rows`] | the codecs of columns and payloads, and their checks |
//! | [`keys`] | the keys of an encrypted file |
//! | [`verify`] | proofs that a row that an index does not show is absent |
//! | [`read`] | reads along the lineage of a checkpoint, each in one snapshot |
//! | [`commit`] | the rows of a batch and of an operation |
//! | [`side`] | key-value memory, cache, leases and timers |
//! | [`index`] | the table of threads and the search index, which follow the log |
//! | [`remove`] | deleted threads and pruned checkpoints |
//! | [`check`] | the check of a whole file |
//! | [`writer`] | the writer role: one transaction for a group of jobs |
//! | [`file`](self::file) | the file and its log: identified, opened, locked, copied |
//! | [`rewrite`] | opening for writing, compaction and recovery |
//!
//! *Absent:* the meaning of a channel or a message, and any update of a stored row of the log.
//!
//! Invariants: all SQL stands in files named `sql.rs`; only the leader of a group holds the connection that writes; a
//! reader sees one snapshot per call.

mod capability;
mod check;
mod commit;
mod fault;
mod file;
mod functions;
mod index;
mod keys;
mod number_map;
mod query;
mod read;
mod remove;
mod rewrite;
mod rows;
mod seeded_map;
mod side;
mod sql;
mod tables;
#[cfg(test)]
mod tests;
mod verify;
mod view;
mod writer;

use commit::operation::OperationJob;
use fault::{Fault, Res, found_busy};
use file::open;
use file::place::opening_place;
use file::registry;
pub(super) use file::repair::{remove_empty, repair_schema};
pub(super) use file::restore::{reset_wal, restore};
use index::search;
use index::search::indexer::Indexer;
use index::threads;
pub(crate) use keys::GivenKeys;
use read::item_pages::ItemPages;
use read::pool::ReaderPool;
use read::version_pages::VersionPages;
use remove::erase;
use remove::eraser::Eraser;
use rewrite::opening::{OpenedFile, writable};
pub(super) use rewrite::recover::recover;
use side::timer;
use view::ReadView;
use writer::background::Background;
use writer::job::{Job, JobRef};
use writer::role::SqliteWriter;

use crate::base::{Namespace, ThreadId};
use crate::limits::SEARCH_TAIL_MAX;
use crate::store::backend::derived;
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::log::{
    Capabilities, CommitHandle, Erase, Erasure, HeadParts, Log, NamespaceRef, RecordQuery, StateQuery, ThreadParts,
    ThreadRow, ThreadRows, TimerQuery, VisitEach, VisitState,
};
use crate::store::operation::{NewOperation, OperationField, OperationQuery, OperationRecord, TRASHED};
use crate::store::options::OpenOptions;
use crate::store::record::{
    CheckpointRecord, CheckpointRef, ItemRow, StatePart, StoredHead, TimerRecord, VersionRecord, WriteRecord,
};
use crate::store::stats::CommitStats;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// True if the last claim took as many runs as it had asked for.
    claims_more: AtomicBool,
    _open: registry::Registered,
}

impl SqliteBackend {
    /// Opens the store in the file at `path`, and makes it if it is missing and `options` allow it.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`], [`StoreError::NewerFormat`], [`StoreError::UnreleasedFormat`],
    /// [`StoreError::Corrupt`], [`StoreError::Open`], [`StoreError::Busy`]: the file is not changed.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        let _opening = registry::opening();
        if options.read_only {
            let pool = Arc::new(ReaderPool::alone(open::readable(path, options)?)?);
            let _open = registry::register(path);
            let (eraser, indexer, worker, writer) = (None, None, None, None);
            let claims_more = AtomicBool::new(false);
            return Ok(Self { pool, eraser, indexer, worker, writer, claims_more, _open });
        }
        let OpenedFile { place, conn } = writable(path, options)?;
        let writer = SqliteWriter::new(&place, conn).map_err(|fault| opening_place(&place, fault))?;
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
        let (claims_more, _open) = (AtomicBool::new(false), registry::register(path));
        Ok(Self { pool, eraser, indexer, worker, writer, claims_more, _open })
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

impl Log for SqliteBackend {
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

    fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.write_submitted();
        }
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

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        // Most calls ask for one head, which the writer knows.
        if let [(thread, namespace)] = of
            && !parts.record
            && let Some(head) = self.bare_head(thread, namespace)
        {
            return Ok(vec![Some(head)]);
        }
        let read = |view: ReadView<'_>| of.iter().map(|place| view.stored_head(*place, parts)).collect();
        if parts.record { self.pool.read(read) } else { self.read_near_writer(read) }
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        let all = |records: Vec<CheckpointRecord>| records.into_iter().map(Some).collect();
        self.pool.read(|view| match query {
            RecordQuery::At(points) => points.iter().map(|at| view.checkpoint(at)).collect(),
            RecordQuery::Page(query) => view.checkpoints(query).map(all),
            RecordQuery::Prefix { thread, prefix, limit } => view.by_prefix(thread, prefix, *limit).map(all),
            RecordQuery::Ordinals { at, ordinals } => view.ancestors(at, ordinals),
            RecordQuery::LastOfRun((thread, namespace), run) => Ok(vec![view.last_of_run(thread, namespace, run)?]),
        })
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        match query {
            StateQuery::Record => {
                let state = self.pool.read(|view| view.state(at))?;
                visit(StatePart::Record(Cow::Owned(state)))?;
            }
            StateQuery::All => self.pool.read(|view| view.read_state(at, None, visit))?,
            StateQuery::Ends(whole) => self.pool.read(|view| view.read_state(at, Some(whole), visit))?,
            StateQuery::Items(channel, range) => {
                let mut pages = ItemPages::new(*range);
                while let Some(page) = self.pool.read(|view| pages.read(view, at, channel))? {
                    page.visit(&mut |row| visit(StatePart::Item(row)).map(|_| ()))?;
                }
            }
            StateQuery::Item(channel, id) => {
                let mut item = |row: ItemRow<'_>| visit(StatePart::Item(row)).map(|_| ());
                self.pool.read(|view| view.find_item(at, channel, id, &mut item))?;
            }
            StateQuery::Len(channel) => {
                visit(StatePart::Len(self.pool.read(|view| view.list_len(at, channel))?))?;
            }
            StateQuery::Reference(channel) => {
                if let Some(of) = self.pool.read(|view| view.list_reference(at, channel))? {
                    visit(StatePart::Reference(&of))?;
                }
            }
        }
        Ok(())
    }

    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: VisitEach<'_, VersionRecord>,
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

    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        self.pool.read(|view| derived::writes_of(at, bytes, |at| view.writes(at)))
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        self.pool.read(|view| threads::rows(view, of, parts))
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        self.pool.read(|view| view.operations(query))
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        self.pool.read(|view| match query {
            TimerQuery::Due(due_by, limit) => timer::list(view, *due_by, *limit),
            TimerQuery::Of((thread, namespace)) => timer::list_of(view, thread, namespace),
        })
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        let eraser = self.eraser()?;
        self.pool.close();
        match what {
            Erase::Threads(threads) => eraser.delete(threads),
            Erase::Trash(now) => eraser.erase_trash(*now),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            follow: Some(self),
            queues: Some(self),
            searches: Some(self),
            prunes: Some(self),
            checks: Some(self),
            transactions: Some(self),
            file: Some(self),
            side_tables: Some(self),
            ..Capabilities::NONE
        }
    }
}

impl SqliteBackend {
    fn note_committed(&self, batch: &Batch) {
        if let Some(indexer) = &self.indexer {
            indexer.note(batch.parts().map(|part| part.checkpoints.len()).sum());
        }
    }
}
