//! What can be asked of the log.

use crate::base::{CheckpointId, Namespace, ThreadId};

/// Which checkpoints to list. They come newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointQuery {
    /// The thread.
    pub thread: ThreadId,
    /// One namespace, or all of them mixed.
    pub namespace: Option<Namespace>,
    /// Only checkpoints with a smaller id.
    pub before: Option<CheckpointId>,
    /// At most so many; 0 means as many as one page holds.
    pub limit: usize,
}

impl CheckpointQuery {
    /// Asks for the newest page of a namespace.
    pub fn new(thread: ThreadId, namespace: Namespace) -> Self {
        Self { thread, namespace: Some(namespace), before: None, limit: 0 }
    }
}

/// Which items of a list to read. They come in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemRange {
    /// All of them.
    All,
    /// The last so many.
    Tail(usize),
    /// Those with a position from the first up to, but not with, the second.
    Positions(u64, u64),
}
