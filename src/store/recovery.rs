//! The reports of a recovery, of a restoration and of a reset of the write-ahead log.

use crate::base::{CheckpointId, ThreadId, variants};
use std::path::PathBuf;

variants! {
    /// The kind of a lost thing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum LostKind {
        /// The write-ahead log, or a part of it.
        Log => "log",
        /// A thread without a checkpoint that could be recovered.
        Thread => "thread",
        /// A checkpoint with its changes. Those that build on it are lost too.
        Checkpoint => "checkpoint",
        /// Rows of checkpoints that cannot be read at all: their number is not known.
        Range => "range",
        /// Writes of a task that were stored on their own.
        Writes => "writes",
        /// A timer.
        Timer => "timer",
        /// An operation: a move of a head, or names of branches.
        Operation => "operation",
        /// An entry of the key-value memory.
        Entry => "entry",
        /// A table of the application, which has no checksums: `.recover` of the command of SQLite reads its remaining
        /// rows.
        Table => "table",
    }
    /// Returns the name, in lower case.
    pub fn as_str -> &'static str
}

/// A lost thing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Its kind.
    pub kind: LostKind,
    /// Its thread, if that is known.
    pub thread: Option<ThreadId>,
    /// Its checkpoint, if that is known.
    pub checkpoint: Option<CheckpointId>,
    /// The table and the row.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// The counts of a recovery: things written to the new store, and things lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Threads with at least one recovered checkpoint.
    pub threads: u64,
    /// Checkpoints whose checksum verified.
    pub checkpoints: u64,
    /// Runs of writes that were stored on their own and whose checksum verified.
    pub writes: u64,
    /// Timers.
    pub timers: u64,
    /// Operations: moves of heads, and names of branches.
    pub operations: u64,
    /// Entries of the key-value memory. The cache is not recovered.
    pub entries: u64,
    /// The number of lost things.
    pub lost_count: u64,
    /// The lost things, the first 10,000 at most.
    pub lost: Vec<Lost>,
    /// Messages and values that match their own check and belong to a lineage that does not verify. They were written
    /// to threads named `NAME (salvaged)`, whose checkpoints say `salvaged` in their metadata, on top of the last
    /// verified checkpoint before them. The other counts are without them.
    pub salvaged: u64,
    /// The reasons for which it cannot be known whether more was lost: a header that is damaged, or counts more pages
    /// than the file has, or a log that is missing.
    pub doubts: Vec<String>,
}

impl Recovery {
    /// Returns whether nothing was lost: nothing that was found, and by the evidence of the file nothing else.
    pub fn is_complete(&self) -> bool {
        self.lost_count == 0 && self.doubts.is_empty()
    }
}

/// The report of a restoration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The new names of the file and the log that were at the path before; empty if there were none.
    pub put_aside: Vec<PathBuf>,
}

/// The report of [`Store::reset_wal`](super::Store::reset_wal).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalReset {
    /// The finding; `None` if file and log belonged together, and nothing was changed.
    pub found: Option<String>,
    /// The new name of a log that does not continue the file.
    pub put_aside: Vec<PathBuf>,
    /// True if commits that were in a missing log, or in a missing part of it, are given up.
    pub is_loss_accepted: bool,
}
