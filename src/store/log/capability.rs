//! The capabilities that a backend has or has not.

use std::fmt;
use std::path::Path;

use super::query::{LogPosition, PruneTarget, UnprunablePlaces};
use crate::base::{Namespace, ThreadId};
use crate::store::batch::Batch;
use crate::store::check::{CheckReport, CheckedUpTo};
use crate::store::cipher::Key;
use crate::store::claim::{ClaimQuery, Claims};
use crate::store::error::StoreError;
use crate::store::log::Erasure;
use crate::store::prune::Pruned;
use crate::store::record::{CheckpointRecord, CheckpointRef, StoredListChange};
use crate::store::search::{SearchIndex, SearchOptions, SearchPage, SearchQuery};
use crate::store::side_tables::SideTables;
use crate::store::statements::SqlConnection;
use crate::store::stats::{Compaction, StoreStats};
use crate::store::watch::LogWatch;

/// The capabilities of a backend: each part is there or not. A backend begins with [`Capabilities::NONE`] and sets
/// those that it has.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Capabilities<'a> {
    /// False if reading waits neither for a disk nor for a network, so that an asynchronous caller may read in place.
    pub reads_block: bool,
    /// Followers of the log.
    pub follow: Option<&'a dyn Follow>,
    /// Claims of queued runs.
    pub queues: Option<&'a dyn Queues>,
    /// Searches.
    pub searches: Option<&'a dyn Searches>,
    /// Pruning.
    pub prunes: Option<&'a dyn Prunes>,
    /// The check of everything that is stored.
    pub checks: Option<&'a dyn Checks>,
    /// Transactions on the tables of an application.
    pub transactions: Option<&'a dyn Transactions>,
    /// The file of the store.
    pub file: Option<&'a dyn FileStore>,
    /// The tables beside the log: key-value memory and cache.
    pub side_tables: Option<&'a dyn SideTables>,
}

impl Capabilities<'_> {
    /// No capability, and reads that wait.
    pub const NONE: Self = Self {
        reads_block: true,
        follow: None,
        queues: None,
        searches: None,
        prunes: None,
        checks: None,
        transactions: None,
        file: None,
        side_tables: None,
    };
}

impl fmt::Debug for Capabilities<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads_block, follow, queues, searches, prunes, checks, transactions, file, side_tables } = self;
        f.debug_struct("Capabilities")
            .field("reads_block", reads_block)
            .field("follow", &follow.is_some())
            .field("queues", &queues.is_some())
            .field("searches", &searches.is_some())
            .field("prunes", &prunes.is_some())
            .field("checks", &checks.is_some())
            .field("transactions", &transactions.is_some())
            .field("file", &file.is_some())
            .field("side_tables", &side_tables.is_some())
            .finish()
    }
}

/// Checkpoints of a log in its order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChangePage {
    /// The checkpoints, each with the position after it.
    pub records: Vec<(LogPosition, CheckpointRecord)>,
    /// The position from which the next page goes on.
    pub position: LogPosition,
}

impl ChangePage {
    /// Makes a page.
    pub fn new(records: Vec<(LogPosition, CheckpointRecord)>, position: LogPosition) -> Self {
        Self { records, position }
    }

    /// Makes the page after a position of a log whose followers go by the `seq` of checkpoints.
    pub fn by_seq(after: LogPosition, records: Vec<CheckpointRecord>) -> Self {
        let records: Vec<_> =
            records.into_iter().map(|record| (LogPosition::from_number(record.seq), record)).collect();
        let position = records.last().map_or(after, |(position, _)| *position);
        Self { records, position }
    }
}

/// A log that can be followed.
pub trait Follow {
    /// Returns the checkpoints after a position, at most `limit`: those of a thread, in all its namespaces, or all.
    /// Checkpoints of deleted threads are passed over. A call sees a prefix of the log: a later call never shows a
    /// checkpoint before one that this call has shown.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a position of another log; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn changes_after(
        &self,
        position: &LogPosition,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<ChangePage, StoreError>;

    /// Returns the position after which at most so many of the newest checkpoints follow, about: 0 for that after the
    /// last checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn position(&self, newest: u64) -> Result<LogPosition, StoreError>;

    /// Returns the signals of changes of the log, for one follower.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn watch(&self) -> Result<LogWatch, StoreError>;
}

/// A log whose queued runs can be claimed in one transaction. Runs of a log without this capability are claimed by
/// commits, one after another.
pub trait Queues {
    /// Claims runs that are due, by priority, then age: those that wait in the queues of some graphs, those whose
    /// process has died, and those of which a timer has passed. Each gets a lease of one of the owners, in the groups
    /// of its queue, as one transaction. Paused threads are passed over, and so are those of a queue that are archived
    /// or in the trash, and runs that a limit refuses. A claim that is repeated with its owners returns the runs that
    /// it has taken.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a query past a limit; [`StoreError::Read`], [`StoreError::Corrupt`]; as
    /// [`Log::submit`](super::Log::submit) for the disk.
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError>;
}

/// A log that can be searched.
pub trait Searches {
    /// Returns the items whose text holds every word of a query, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the query is past a limit; [`StoreError::Id`]; [`StoreError::Read`],
    /// [`StoreError::Corrupt`].
    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError>;

    /// Searches a list channel for a text, on the lineage of a checkpoint: returns the changes of the positions at
    /// which an item was ever put whose bytes, or a column of whose index, hold `text`, as
    /// [`StoredListChange::order`] brings them. This implementation returns `None`, and the changes of each item are
    /// read.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn search_list(
        &self,
        at: &CheckpointRef,
        channel: &str,
        text: &str,
    ) -> Result<Option<Vec<StoredListChange>>, StoreError> {
        let _ = (at, channel, text);
        Ok(None)
    }

    /// Indexes the texts that a search reads, and returns when all are indexed. From then on the index follows the log;
    /// the results of searches stay the same. A backend that is indexed already indexes the rest. This implementation
    /// is for a backend without an index, as are those of the next two methods.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the backend cannot have an index, or if it is encrypted and the options do not allow
    /// it; as [`Log::submit`](super::Log::submit).
    fn enable(&self, options: &SearchOptions) -> Result<(), StoreError> {
        let _ = options;
        Ok(())
    }

    /// Removes the index of texts, if there is one.
    ///
    /// # Errors
    /// As [`Log::submit`](super::Log::submit).
    fn disable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the state of the index of texts; `None` without one.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn index(&self) -> Result<Option<SearchIndex>, StoreError> {
        Ok(None)
    }
}

/// A log that can be pruned.
pub trait Prunes {
    /// Returns the places, branch and ordinal, of the checkpoints of a thread that cannot be pruned: heads, the last
    /// ones of branches, those that another branch leaves in this thread or in another one, and those whose lists are
    /// referenced.
    ///
    /// The namespaces `without` count as pruned as a whole: what rests on them alone can be pruned, and of their own
    /// checkpoints those are returned on which something else rests. One is also returned if the thread begins with its
    /// namespace, if an operation names that, if it begins with a checkpoint of another namespace, or if the metadata
    /// of one of its checkpoints have the member `usage`.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<UnprunablePlaces, StoreError>;

    /// Prunes checkpoints of a thread, or namespaces as a whole. The state of every other checkpoint stays as it is,
    /// also in threads that were forked.
    ///
    /// *Spans:* states, writes and metadata of the checkpoints go, as far as no kept checkpoint shows them. Those that
    /// [`Prunes::unprunable`] names, and those that were pruned before, are passed over. The checkpoints go in short
    /// transactions, the oldest first, and each transaction leaves a whole history: after a crash, or an error, some
    /// are pruned and the others are as they were. Returns when all are pruned as durably as a commit. A search index
    /// is emptied and follows the log anew; until it has, searches read the log.
    ///
    /// *Namespaces:* they do not exist any more after one commit. One that has another newest checkpoint by now, one of
    /// which [`Prunes::unprunable`] returns a checkpoint, and the root are passed over.
    ///
    /// # Errors
    /// As [`Log::submit`](super::Log::submit) for the disk; [`StoreError::Corrupt`].
    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError>;

    /// Estimates what [`Prunes::prune`] would report. Nothing is written. A long span is estimated in parts, so values
    /// that only two of its parts hold together may be missing.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError>;
}

/// A log that can be checked.
pub trait Checks {
    /// Verifies every row and checksum, and reports the problems.
    ///
    /// # Errors
    /// [`StoreError::Read`] if nothing can be read at all.
    fn check(&self) -> Result<CheckReport, StoreError>;

    /// Verifies the rows of the log that are newer than a point, at the cost of these. This implementation verifies
    /// all.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the point is not one of this log; [`StoreError::Read`] if nothing can be read at all.
    fn check_since(&self, point: &CheckedUpTo) -> Result<CheckReport, StoreError> {
        let _ = point;
        self.check()
    }
}

/// A backend with tables of an application beside the log, in any database: values and statements are plain data.
pub trait Transactions {
    /// Runs the function of a [transaction](crate::store::Store::transaction) on the tables of an application, once,
    /// and commits its statements together with the batch that it returns: all of it, or nothing.
    ///
    /// # Errors
    /// The error of `run`; as [`Log::submit`](super::Log::submit).
    fn transact(
        &self,
        run: &mut dyn FnMut(&dyn SqlConnection) -> Result<Option<Batch>, StoreError>,
    ) -> Result<(), StoreError>;
}

/// A backend in a file: copies, free space, keys, and what an opening did. The paths of files stand in this capability
/// alone; a backend of a database server has none of it.
pub trait FileStore {
    /// Returns the sizes and the health of the file.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn stats(&self) -> Result<StoreStats, StoreError>;

    /// Copies the store to a new file.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the path exists or cannot be written; [`StoreError::Busy`], [`StoreError::Write`].
    fn backup(&self, to: &Path) -> Result<(), StoreError>;

    /// Returns free space to the file system.
    ///
    /// # Errors
    /// [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::ReadOnly`].
    fn compact(&self) -> Result<Compaction, StoreError>;

    /// Erases what deleted threads have left, in short transactions, until nothing is left or a reader is in the way.
    ///
    /// # Errors
    /// [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`],
    /// [`StoreError::Corrupt`].
    fn reclaim(&self) -> Result<Erasure, StoreError>;

    /// Makes the table anew by which threads are listed.
    ///
    /// # Errors
    /// As [`Log::submit`](super::Log::submit).
    fn rebuild_threads(&self) -> Result<(), StoreError>;

    /// Seals the root key of an encrypted store with another key of the caller.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the store is not encrypted; [`StoreError::ReadOnly`], and as
    /// [`Log::submit`](super::Log::submit).
    fn change_key(&self, key: &Key) -> Result<(), StoreError>;

    /// Seals new values of an encrypted store with a new data key.
    ///
    /// # Errors
    /// As [`FileStore::change_key`].
    fn rotate_data_key(&self) -> Result<(), StoreError>;

    /// Returns a description of a log that the store lacks.
    fn missing_wal(&self) -> Option<String>;
}
