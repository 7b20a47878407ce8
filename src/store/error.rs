//! What can go wrong in the store. Every message says what is now true.

use std::path::PathBuf;

use crate::base::id::IdError;
use crate::base::value::CodecError;
use crate::base::{CheckpointId, Namespace, ThreadId};

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A field of a batch or query is not valid. Nothing was written.
    #[error("{field} is not valid: {reason}; nothing was written")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong, with the limit.
        reason: String,
    },
    /// A namespace cannot hold an entry of the key-value memory (`InvalidNamespaceError`). Nothing was written.
    #[error("namespace {namespace:?} of the key-value memory is not valid: {reason}; nothing was written")]
    InvalidNamespace {
        /// Its labels.
        namespace: Vec<String>,
        /// What is wrong.
        reason: String,
    },
    /// An id is not valid. Nothing was written.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A head that the batch builds on has moved. Nothing was written; load the new head and decide.
    #[error(
        "the head of thread {thread} {}is {}, not {}: another run wrote to it; nothing was written",
        in_namespace(namespace),
        or_none(found),
        or_none(expected)
    )]
    Conflict {
        /// The thread.
        thread: ThreadId,
        /// The namespace whose head moved.
        namespace: Namespace,
        /// The head the batch was built on.
        expected: Option<CheckpointId>,
        /// The head in the file.
        found: Option<CheckpointId>,
    },
    /// The checkpoint id is taken by another checkpoint. Nothing was written.
    #[error("checkpoint {id} is already stored with other content; nothing was written")]
    Duplicate {
        /// The id.
        id: CheckpointId,
    },
    /// The thread does not exist.
    #[error("thread {id} is not in this store")]
    ThreadNotFound {
        /// Its id.
        id: ThreadId,
    },
    /// The checkpoint does not exist.
    #[error("checkpoint {id} is not in thread {thread}")]
    CheckpointNotFound {
        /// The thread that was looked through.
        thread: ThreadId,
        /// The id, or the prefix that was given.
        id: String,
    },
    /// Other threads were forked off a thread that was to be deleted: their state is partly its. Nothing was deleted;
    /// delete them along with it, in one call.
    #[error("thread {thread} cannot be deleted: {} forked off it; nothing was deleted", forks_of(forks))]
    ForkedOff {
        /// The thread.
        thread: ThreadId,
        /// The threads that were forked off it.
        forks: Vec<ThreadId>,
    },
    /// An id prefix fits several checkpoints.
    #[error("prefix {prefix} fits several checkpoints, among them {}", list(matches))]
    Ambiguous {
        /// The prefix.
        prefix: String,
        /// Some of those it fits.
        matches: Vec<CheckpointId>,
    },
    /// Another process holds the write lock. Nothing was written; repeating is safe.
    #[error("another process is writing to the store and did not finish within {waited_ms} ms; nothing was written")]
    Busy {
        /// How long was waited.
        waited_ms: u64,
    },
    /// The disk refused the write. Nothing was written.
    #[error("the write failed and was rolled back; nothing was written: {reason}")]
    Write {
        /// What the disk or SQLite said.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The disk did not confirm the write: it may or may not be there after a restart. The handle accepts no more
    /// writes; reopen the store, look, and repeat the same batch, which is safe.
    #[error(
        "the disk did not confirm a commit, so its outcome is unknown; this handle accepts no more writes: reopen the \
         store and repeat the batch: {reason}"
    )]
    OutcomeUnknown {
        /// What the disk or SQLite said.
        reason: String,
    },
    /// The store was opened for reading only. Nothing was written.
    #[error("the store is open for reading only; nothing was written")]
    ReadOnly,
    /// The file cannot be opened.
    #[error("{} cannot be opened: {reason}; it was not changed", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The file is no store of `annals`. It was not changed.
    #[error("{} is not an annals store: {reason}; it was not changed", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// How that was seen.
        reason: String,
    },
    /// The file was written by a newer version. It was not changed.
    #[error("{} has format {found}, this version reads up to {supported}; it was not changed", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format this version knows.
        supported: i64,
    },
    /// The file is damaged: a sum does not fit, or a row is not what the format says.
    #[error("the store is damaged at {place}: {reason}")]
    Corrupt {
        /// Table and row.
        place: String,
        /// What does not fit.
        reason: String,
    },
    /// A stored value cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Reading failed.
    #[error("reading the store failed: {reason}")]
    Read {
        /// What the disk or SQLite said.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

fn in_namespace(namespace: &Namespace) -> String {
    if namespace.is_root() { String::new() } else { format!("in namespace {namespace} ") }
}

fn or_none(id: &Option<CheckpointId>) -> String {
    id.as_ref().map_or_else(|| "none".into(), ToString::to_string)
}

fn list(ids: &[CheckpointId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn forks_of(forks: &[ThreadId]) -> String {
    let names = forks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if forks.len() == 1 { format!("thread {names} was") } else { format!("threads {names} were") }
}
