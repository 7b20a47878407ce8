//! Questions to a log, and their answers where no record has them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::limits::POSITION_BYTES_MAX;
use crate::store::error::StoreError;
use crate::store::lease::LeaseRecord;
use crate::store::operation::{BranchRecord, OperationField, OperationValue};
use crate::store::prune::PruneSpan;
use crate::store::query::{CheckpointQuery, ItemRange};
use crate::store::record::{CheckpointRef, ThreadRecord, ThreadSize};
use crate::store::threads::{ThreadInfo, ThreadQuery};

/// A namespace of a thread.
pub type NamespaceRef<'a> = (&'a ThreadId, &'a Namespace);

/// The parts of a head that a caller wants, besides its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadParts {
    /// The record of the checkpoint.
    pub record: bool,
    /// The stored writes of its tasks, whether it is continued, and the last lease of its thread: a caller with a
    /// cached head needs no more to go on from it.
    pub writes: bool,
}

impl HeadParts {
    /// The id alone.
    pub const ID: Self = Self { record: false, writes: false };
    /// The id and the record.
    pub const RECORD: Self = Self { record: true, writes: false };
    /// The id, the writes and the lease.
    pub const WRITES: Self = Self { record: false, writes: true };
}

/// Asks for the records of checkpoints.
#[derive(Clone, Copy, Debug)]
pub enum RecordQuery<'a> {
    /// Those at these points. The record of one that was pruned says so.
    At(&'a [&'a CheckpointRef]),
    /// A page, newest first. Those that were pruned are passed over.
    Page(&'a CheckpointQuery),
    /// Those of a thread whose id, as text, begins so, oldest first.
    Prefix {
        /// The thread.
        thread: &'a ThreadId,
        /// The first characters of the id.
        prefix: &'a str,
        /// The maximum number of records.
        limit: usize,
    },
    /// Those of the lineage of `at` that have these ordinals; `None` for an ordinal above that of `at`. The lineage is
    /// `at`, its parent, and so on, across forks; the ordinal of a checkpoint is its distance from the first one.
    Ordinals {
        /// The end of the lineage.
        at: &'a CheckpointRef,
        /// The ordinals.
        ordinals: &'a [u64],
    },
    /// The newest one of a namespace that a run made. Only runs whose id was made of an idempotency key
    /// ([`RunId::from_key`]) are found.
    LastOfRun(NamespaceRef<'a>, &'a RunId),
}

/// Asks for a part of the state at a checkpoint.
#[derive(Clone, Copy, Debug)]
pub enum StateQuery<'a> {
    /// The record with the channels, without the items of lists: visits one [`StatePart::Record`], which is owned.
    ///
    /// [`StatePart::Record`]: super::super::record::StatePart::Record
    Record,
    /// Everything: the record, then the channels by name, each list followed by its items in their order, if the
    /// visitor wants them.
    All,
    /// As [`StateQuery::All`], but of the lists that are not named here the last item alone: a caller that appends
    /// needs no more of them.
    Ends(&'a [&'a str]),
    /// The items of a list, in order. A channel that was never written has none. A visitor may take its time: no
    /// transaction is open while it runs.
    Items(&'a str, ItemRange),
    /// The item of a list that has an id in its index: of several items with one id, any one.
    Item(&'a str, &'a str),
    /// The number of items of a list; 0 for a channel that is not a list.
    Len(&'a str),
    /// The list that a list references; nothing is visited for a list without a reference.
    Reference(&'a str),
}

/// Asks for threads.
#[derive(Clone, Copy, Debug)]
pub enum ThreadRows<'a> {
    /// These.
    Ids(&'a [&'a ThreadId]),
    /// The next ones by id, from after the first on, at most so many.
    After(Option<&'a ThreadId>, usize),
    /// A listing.
    Listed(&'a ThreadQuery),
}

/// The parts of a thread that a caller wants. Each is a read of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadParts<'a> {
    /// Its facts, status and counts. The rows of a listing always have it.
    pub info: bool,
    /// The number of its checkpoints and branches.
    pub size: bool,
    /// The fields that operations set.
    pub fields: bool,
    /// The last lease.
    pub lease: bool,
    /// The namespaces.
    pub namespaces: bool,
    /// The threads that were forked from it.
    pub forks: bool,
    /// The checkpoint from which it was forked.
    pub forked_from: bool,
    /// The branches of a namespace.
    pub branches: Option<&'a Namespace>,
}

impl ThreadParts<'_> {
    /// The fields that operations set.
    pub const FIELDS: Self = Self {
        info: false,
        size: false,
        fields: true,
        lease: false,
        namespaces: false,
        forks: false,
        forked_from: false,
        branches: None,
    };
}

/// A thread with the parts that were wanted. The parts of a thread that does not exist are empty.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ThreadRow {
    /// Its head and the time of its first checkpoint, of a page by id.
    pub record: Option<ThreadRecord>,
    /// Its facts, status and counts; `None` if it has no root namespace.
    pub info: Option<ThreadInfo>,
    /// The number of its checkpoints and branches.
    pub size: ThreadSize,
    /// The fields that operations set, sorted by field, but for heads.
    pub fields: Vec<(OperationField, OperationValue)>,
    /// The last lease, which may have expired or be released; `None` if it never had one.
    pub lease: Option<LeaseRecord>,
    /// The namespaces, sorted.
    pub namespaces: Vec<Namespace>,
    /// The threads that were forked from it, the first fork first.
    pub forks: Vec<ThreadId>,
    /// The checkpoint of another thread from which it was forked.
    pub forked_from: Option<CheckpointRef>,
    /// The branches of the namespace that was asked for, the newest first; `None` leaves them to
    /// [`LogExt::branches`](super::LogExt::branches).
    pub branches: Option<Vec<BranchRecord>>,
}

/// Asks for the timers of tasks that sleep.
#[derive(Clone, Copy, Debug)]
pub enum TimerQuery<'a> {
    /// Those that can go on at a timestamp, or all, at most so many: by timestamp, then by thread, namespace and task.
    Due(Option<Timestamp>, usize),
    /// Those at the head of a namespace, at the cost of these: by timestamp, then by task.
    Of(NamespaceRef<'a>),
}

/// Says which threads are deleted.
#[derive(Clone, Copy, Debug)]
pub enum Erase<'a> {
    /// These: all of them, or none. One that does not exist is passed over.
    Threads(&'a [ThreadId]),
    /// Those whose time in the trash has ended at this timestamp, at most 1,000. A thread from which another one was
    /// forked that stays is passed over. The fact `trashed` of a thread holds the end of its time in the trash.
    Trash(Timestamp),
}

/// Says what of a thread is pruned.
#[derive(Clone, Copy, Debug)]
pub enum PruneTarget<'a> {
    /// The checkpoints in these spans.
    Spans(&'a [PruneSpan]),
    /// Whole namespaces, each with its newest checkpoint.
    Namespaces(&'a [(Namespace, CheckpointId)]),
}

impl<'a, S: AsRef<[PruneSpan]> + ?Sized> From<&'a S> for PruneTarget<'a> {
    fn from(spans: &'a S) -> Self {
        Self::Spans(spans.as_ref())
    }
}

/// A position in the log, from which a follower goes on. Its bytes mean something to the backend alone; a position of
/// one store means nothing to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogPosition {
    bytes: [u8; POSITION_BYTES_MAX],
    len: u8,
}

impl LogPosition {
    /// The position before the first checkpoint.
    pub const START: Self = Self { bytes: [0; POSITION_BYTES_MAX], len: 0 };

    /// Reads a position that [`LogPosition::as_bytes`] gave.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if there are more than 23.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut position = Self::START;
        let reason = || format!("{} bytes are above the limit of {}", bytes.len(), POSITION_BYTES_MAX);
        let wrong = || StoreError::Invalid { field: "position", reason: reason() };
        position.bytes.get_mut(..bytes.len()).ok_or_else(wrong)?.copy_from_slice(bytes);
        position.len = bytes.len() as u8;
        Ok(position)
    }

    /// Returns the bytes, to store them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Makes the position of a log whose followers go by one number that ascends.
    pub fn from_number(number: u64) -> Self {
        let mut position = Self { len: 8, ..Self::START };
        position.bytes[..8].copy_from_slice(&number.to_be_bytes());
        position
    }

    /// Returns the number of [`LogPosition::from_number`]; 0 for the start.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a position of another backend.
    pub fn number(&self) -> Result<u64, StoreError> {
        match <[u8; 8]>::try_from(self.as_bytes()) {
            Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
            Err(_) if self.len == 0 => Ok(0),
            Err(_) => Err(StoreError::Invalid { field: "position", reason: "it is of another store".into() }),
        }
    }
}

/// Shown as its bytes in hexadecimal digits, which [`FromStr`] reads.
impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for LogPosition {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let digit = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
        let reason = || format!("{text:?} is not a position: hexadecimal digits, two for each byte");
        Self::from_bytes(&bytes.ok_or_else(|| StoreError::Invalid { field: "position", reason: reason() })?)
    }
}

/// Places, branch and ordinal, of checkpoints of a thread.
pub type UnprunablePlaces = BTreeSet<(u64, u64)>;
