//! Queries of the log.

use crate::base::{CheckpointId, Namespace, ThreadId};

/// A listing of checkpoints, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointQuery {
    /// The thread.
    pub thread: ThreadId,
    /// One namespace, or all of them mixed.
    pub namespace: Option<Namespace>,
    /// Only checkpoints with a smaller id.
    pub before: Option<CheckpointId>,
    /// The maximum number of records; 0 stands for a page of 10,000. A page with fewer of them is the last one.
    pub limit: usize,
}

impl CheckpointQuery {
    /// Asks for the newest page of a namespace.
    pub fn new(thread: ThreadId, namespace: Namespace) -> Self {
        Self { thread, namespace: Some(namespace), before: None, limit: 0 }
    }
}

/// A range of the items of a list, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemRange {
    /// All of them.
    All,
    /// The last items, at most so many.
    Tail(usize),
    /// The items at positions from the first to the second, exclusive.
    Positions(u64, u64),
}
