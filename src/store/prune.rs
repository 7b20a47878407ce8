//! Pruning: the checkpoints of a thread that are to go, and the report of what went.
//!
//! *Absent:* the policies that choose them, which are part of the history.
//!
//! Invariant: a pruned history never changes the state of a kept checkpoint.

use crate::base::{CheckpointId, ThreadId};

use super::error::StoreError;

/// A straight run of checkpoints on one branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct PruneSpan {
    /// The branch, as [`CheckpointRecord::branch`](super::record::CheckpointRecord::branch) has it.
    pub branch: u64,
    /// The ordinal of the first checkpoint.
    pub first: u64,
    /// The ordinal of the last checkpoint.
    pub last: u64,
}

impl PruneSpan {
    /// Describes the checkpoints of a branch from one ordinal to another, both included.
    pub fn new(branch: u64, first: u64, last: u64) -> Self {
        Self { branch, first, last }
    }

    /// Returns whether the checkpoint at a place is one of the span.
    pub fn contains(&self, branch: u64, ordinal: u64) -> bool {
        self.branch == branch && (self.first..=self.last).contains(&ordinal)
    }
}

/// The report of a pruning. A repeated call prunes what an interrupted one has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of checkpoints.
    pub checkpoints: u64,
    /// The number of stored values that went: of channels, of items and of writes.
    pub values: u64,
    /// The bytes of these values. The file uses the space again, and
    /// [`Store::compact`](super::Store::compact) returns it to the file system.
    pub bytes: u64,
}

impl Pruned {
    /// Adds what another call has pruned.
    pub fn add(&mut self, other: Self) {
        self.checkpoints += other.checkpoints;
        self.values += other.values;
        self.bytes += other.bytes;
    }
}

/// Returns the error of a read of a checkpoint that was pruned.
pub fn is_pruned(thread: &ThreadId, checkpoint: &CheckpointId) -> StoreError {
    StoreError::CheckpointPruned { thread: thread.clone(), id: *checkpoint }
}
