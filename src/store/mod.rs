//! The storage engine: bytes, ids and order.
//!
//! The store keeps an append-only log of checkpoints in one SQLite file and reads the state at any of them. It consists
//! of records ([`record`]), batches, the only way to write ([`batch`]), and the trait of a backend ([`log`]). The
//! key-value memory ([`Kv`]) and the cache ([`Cache`]) are tables beside the log in the same file. *Absent:* the
//! meaning of a channel, a message or a graph, and updates of stored rows of the log: a thread is deleted as a whole,
//! and a pruned checkpoint loses its content.
//!
//! Invariants: a batch is committed whole or not at all; a stored row of the log never changes; the newest checkpoint
//! of a namespace is the one with the greatest id, and its head unless an operation moved the head since.

pub mod backend;
pub mod batch;
mod beside;
mod cache;
mod chain;
mod check;
mod cipher;
#[cfg(feature = "conformance")]
pub mod conformance;
pub(crate) mod counts;
mod error;
mod handle;
mod heads;
mod kv;
mod lease;
pub mod log;
mod mark;
mod marked;
mod memory;
mod operation;
mod options;
mod process;
mod prune;
mod query;
pub mod record;
mod recovery;
mod rename;
mod search;
mod spin;
mod sqlite;
mod stats;
pub(crate) mod status;
pub(crate) mod threads;
mod transaction;
mod trash;
mod unblock;
mod watch;

pub use batch::{
    Batch, ItemIndex, ListDelta, ListRef, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent, Payload, WriteValue,
};
pub use beside::{Beside, CacheChange, CacheKey, KvChange, KvNamespace, KvRecord, KvVector};
pub use cache::Cache;
pub use chain::CommitChain;
pub use check::{CheckReport, CheckedUpTo, Finding, Invariant, LogTail};
#[cfg(feature = "encryption")]
pub use cipher::XChaCha20Poly1305;
pub use cipher::{Cipher, CipherError, Key};
pub use counts::ThreadCounts;
pub use error::{SchemaChange, SqlConstraint, StoreError};
pub use handle::Store;
pub use kv::{
    Embedder, EmbedderError, Kv, KvCompare, KvIndex, KvItem, KvLifetimes, KvNamespaceQuery, KvOrder, KvQuery, KvWrite,
};
pub use lease::{LeaseGroup, LeaseOwner, LeaseRecord, NewLease, validate_lease};
pub use log::{CommitHandle, CommitSettler, Erasure, Log, LogExt};
pub use mark::WriteMark;
pub use marked::MarkedWrite;
pub use memory::MemoryBackend;
pub use operation::{
    BranchRecord, ExpectedNewest, NewOperation, OperationChange, OperationField, OperationKind, OperationQuery,
    OperationRecord, OperationTarget, OperationValue,
};
pub(crate) use operation::{LABELS, TRASHED};
pub use options::{OpenOptions, Synchronous};
pub use prune::{PruneSpan, Pruned};
pub use query::{CheckpointQuery, ItemRange};
pub use record::{
    ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, ItemIndexRef, ItemRow, ListChangeOp, Source,
    StatePart, StateRecord, StoredHead, StoredListChange, TaskKind, TaskRecord, ThreadRecord, ThreadSize, TimerRecord,
    VersionRecord, WriteRecord,
};
pub use recovery::{LogSettled, Lost, LostKind, Recovery, Restored};
pub(crate) use search::PartialText;
pub use search::{SearchCursor, SearchHit, SearchIndex, SearchOptions, SearchPage, SearchQuery, Snippet};
pub use sqlite::{SqlTransaction, SqliteBackend};
pub use stats::{CommitStats, Compaction, FormatMigration, RemadeObject, StoreStats};
pub use status::{PartialInfo, StatusKind};
pub use threads::{ThreadCursor, ThreadFacts, ThreadInfo, ThreadOrder, ThreadPage, ThreadQuery};
pub use watch::{LogProbe, LogSignal, LogWatch};

pub use heads::{CachedHead, HeadCache, HeadKey};
