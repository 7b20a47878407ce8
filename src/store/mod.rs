//! The storage engine: bytes, ids and order.
//!
//! The store keeps an append-only log of checkpoints in one SQLite file and reads the state at any of them. It consists
//! of records ([`record`]), batches, the only way to write ([`batch`]), and the trait of a backend ([`log`]). The
//! key-value memory ([`Kv`]) and the cache ([`Cache`]) are tables beside the log in the same file. *Absent:* the
//! meaning of a channel, a message or a graph, and updates of stored rows of the log: a thread is deleted as a whole,
//! and a pruned checkpoint loses its content.
//!
//! This page lists what most programs name. The other names stand in the module of their subject:
//!
//! | module | names |
//! | --- | --- |
//! | [`batch`], [`record`] | what is written, and what reads return |
//! | [`kv`], [`search`] | queries of the key-value memory and of texts |
//! | [`operation`] | changes of a thread as a whole, which can be undone |
//! | [`lease`] | claims of threads |
//! | [`check`], [`recovery`], [`stats`] | the reports of a check and of a recovery, and the health of a file |
//! | [`cipher`] | encryption at rest |
//! | [`statements`] | the values of statements on tables of an application |
//! | [`log`] | the log in plain data, for executors, importers and services |
//! | [`backend`] | rules of all backends, for implementers |
//!
//! Invariants: a batch is committed whole or not at all; a stored row of the log never changes; the newest checkpoint
//! of a namespace is the one with the greatest id, and its head unless an operation moved the head since.

pub mod backend;
pub mod batch;
mod cache;
mod chain;
pub mod check;
pub mod cipher;
mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
pub(crate) mod counts;
mod error;
mod handle;
mod heads;
pub mod kv;
pub mod lease;
pub mod log;
mod mark;
mod marked;
mod memory;
pub mod operation;
mod options;
mod process;
mod prune;
mod query;
pub mod record;
pub mod recovery;
mod rename;
pub mod search;
mod side_tables;
mod spin;
mod sqlite;
pub mod statements;
pub mod stats;
pub(crate) mod status;
pub(crate) mod threads;
mod transaction;
mod trash;
mod unblock;
mod watch;

pub use cache::Cache;
pub use side_tables::CacheKey;

pub use cipher::Key;
pub use counts::ThreadCounts;
pub use error::{SchemaChange, SqlConstraint, StoreError};
pub use handle::Store;
pub use kv::{Kv, KvQuery};

pub use log::Erasure;
pub use mark::WriteMark;
pub use marked::MarkedWrite;
pub use memory::MemoryBackend;

pub(crate) use operation::{LABELS, TRASHED};
pub use options::{OpenOptions, Synchronous};
pub use prune::Pruned;
pub use query::ItemRange;
pub use record::{CheckpointRef, Source};

pub(crate) use search::PartialText;
pub use search::{SearchOptions, SearchQuery};
pub use sqlite::SqliteBackend;
pub use statements::SqlTransaction;

pub use status::{PartialInfo, StatusKind};
pub use threads::{ThreadCursor, ThreadFacts, ThreadInfo, ThreadOrder, ThreadQuery};
