//! The log in plain data and ids: what an executor, an importer or a service calls.
//!
//! [`Log`] is what a backend implements: a few batched calls, and its [capabilities](Capabilities). [`LogExt`] is what
//! callers use: one read for each question, written once for all backends. A [`CommitChain`] orders the commits of a
//! run, a [`LogWatch`] waits for changes, and [`SideTables`] are the key-value memory and the cache. *Absent:* the
//! meaning of a channel, a message or a graph ([`history`](crate::history)), and what implementers share
//! ([`backend`](super::backend)).

pub(crate) mod batches;
mod capability;
pub(crate) mod checksum;
mod ext;
pub(super) mod handle;
mod layer;
mod query;

pub use self::capability::{
    Capabilities, ChangePage, Checks, FileStore, Follow, Prunes, Queues, Searches, Transactions,
};
pub use self::ext::LogExt;
pub(crate) use self::ext::LogReads;
pub use self::handle::{CommitHandle, Erasure};
pub use self::layer::Layer;
pub use self::query::{
    Erase, HeadParts, LogPosition, NamespaceRef, PruneTarget, RecordQuery, StateQuery, ThreadParts, ThreadRow,
    ThreadRows, TimerQuery, UnprunablePlaces,
};
pub use super::chain::CommitChain;
pub use super::claim::{ClaimQuery, ClaimedRun, Claims, QueueGroup};
pub use super::heads::{CachedHead, HeadKey};
pub use super::prune::PruneSpan;
pub use super::query::CheckpointQuery;
pub use super::side_tables::{CacheChange, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
pub use super::statements::SqlConnection;
pub use super::watch::{LogSignal, LogWatch};

use std::fmt;

use super::batch::Batch;
use super::error::StoreError;
use super::operation::{NewOperation, OperationQuery, OperationRecord};
use super::record::{CheckpointRecord, CheckpointRef, StatePart, StoredHead, TimerRecord, VersionRecord, WriteRecord};

/// Visits the parts of a state that a [`StateQuery`] asks for; returns whether the items of the list that was visited
/// are wanted.
pub type VisitState<'v> = &'v mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>;

/// Visits records of a kind; returns whether more are wanted.
pub type VisitEach<'v, T> = &'v mut dyn FnMut(&T) -> Result<bool, StoreError>;

/// The log of a backend: what every backend implements.
///
/// The contract is written down by the suite `store::conformance` (feature `conformance`), which every backend must
/// pass. All calls may come from several threads at once. Reads are batched, so that a backend across a network needs
/// no round trip for each channel. A call sees one snapshot, with everything that was committed before it began.
///
/// # Implementing
/// A commit must call [`Batch::validate`] first and write in [`Batch::write_in_chain`], and [`Log::erase`] must call
/// [`validate_deleted`](super::batch::validate_deleted). The module [`backend`](super::backend) has the rules that all
/// backends share.
pub trait Log: Send + Sync + fmt::Debug {
    /// Hands a batch to a background writer and returns at once. Batches of one caller are written in order. A batch is
    /// written entirely, or not at all, or (a failed fsync) with unknown outcome; it is as durable as the backend was
    /// opened for when the handle settles.
    ///
    /// Repeating a batch is safe: if its checkpoints are already stored with the same content, nothing is written and
    /// the commit succeeds. If one checkpoint of a batch with [others that go along](Batch::then) is stored, all of it
    /// was: writes on their own are passed over.
    ///
    /// The handle reports [`StoreError::Leased`] and [`StoreError::LeaseLost`] for the [lease](Batch::lease) that the
    /// batch names; [`StoreError::Conflict`] if a head it builds on has moved; [`StoreError::Invalid`],
    /// [`StoreError::Duplicate`], [`StoreError::CheckpointNotFound`] for a bad batch; [`StoreError::Busy`],
    /// [`StoreError::Write`], [`StoreError::OutcomeUnknown`] for the disk.
    fn submit(&self, batch: Batch) -> CommitHandle;

    /// Writes a batch and returns when its outcome is known. This implementation submits it and waits.
    ///
    /// # Errors
    /// As [`Log::submit`].
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let handle = self.submit(batch.clone());
        self.flush();
        handle.wait()
    }

    /// Writes, on this thread, the submitted batches that no other thread has begun to write. A caller that is about to
    /// wait for a handle saves the hand-over to the background writer by calling this first. It need not do anything.
    fn flush(&self) {}

    /// Stores an operation with its changes: all of them, or none. Returns its number when it is as durable as a
    /// commit. Repeating an operation is safe: if the newest operation on its fields is the same, nothing is written.
    ///
    /// The head of a namespace is its newest checkpoint, or the one that an operation moved it to since. The next
    /// checkpoint of the namespace is the head again.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the head of a namespace is not the one that its change expects, and
    /// [`StoreError::FieldConflict`] for other fields, and if the newest operation of a thread is not the one that the
    /// operation states; [`StoreError::ThreadNotFound`], [`StoreError::CheckpointNotFound`]; [`StoreError::Invalid`];
    /// and as [`Log::submit`] for the disk.
    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError>;

    /// Returns the heads of namespaces, in the order asked for; `None` for a namespace without one. A head is the
    /// newest checkpoint of its namespace, unless an [operation](Log::operate) moved it.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError>;

    /// Returns the records of checkpoints, in the order of the query. The answer to a query of points or of ordinals
    /// has one entry for each, `None` for one that does not exist; other answers have no `None`.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`] for the checkpoint of a query of ordinals; [`StoreError::Read`],
    /// [`StoreError::Corrupt`].
    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError>;

    /// Visits parts of the state at a checkpoint.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError>;

    /// Visits the versions that the checkpoints of the lineage of `at` wrote, the newest checkpoint first, down to the
    /// one with the ordinal `down_to`: those of one channel, or of all. The visitor returns whether it wants the
    /// versions of older checkpoints too; the versions of one checkpoint come in any order. Those of checkpoints that
    /// were pruned are passed over.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: VisitEach<'_, VersionRecord>,
    ) -> Result<(), StoreError>;

    /// Returns the writes of the tasks of checkpoints, each in the order of (path, task, index). The answer ends with
    /// the checkpoint whose values make `bytes` or more in all, or before it; it has at least the first one.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError>;

    /// Returns threads with the parts that are wanted. The answer to a query of ids has one row for each.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError>;

    /// Lists operations, newest first.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError>;

    /// Lists the tasks of heads that sleep, by the timestamp at which they resume.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError>;

    /// Deletes threads with all their namespaces: hides them at once, in one commit, and erases their bytes in steps.
    ///
    /// # Errors
    /// [`StoreError::ForkedOff`] if a thread that stays was forked off one of them; [`StoreError::Invalid`] if they are
    /// too many; [`StoreError::ReadOnly`]; as [`Log::submit`] for the disk.
    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError>;

    /// Returns the capabilities of the backend.
    fn capabilities(&self) -> Capabilities<'_>;
}
