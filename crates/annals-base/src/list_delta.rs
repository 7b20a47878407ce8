//! Lists as a difference from a stored list: a list that enters a subgraph and returns from it.

use std::ops::Range;
use std::sync::Arc;

use super::id::CheckpointId;
use super::namespace::Namespace;
use super::payload::Payload;

/// A stored list: the value of a list channel at a checkpoint of the same thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ListRef {
    /// The namespace of the checkpoint.
    pub namespace: Namespace,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The channel. One that was never written holds no items.
    pub channel: Arc<str>,
}

impl ListRef {
    /// Returns the reference to the list of `channel` at `checkpoint` in `namespace`.
    pub fn new(namespace: Namespace, checkpoint: CheckpointId, channel: impl Into<Arc<str>>) -> Self {
        Self { namespace, checkpoint, channel: channel.into() }
    }
}

/// A list as the difference from a stored one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListDelta {
    /// The list that is stored.
    pub of: ListRef,
    /// The positions whose items the list does not have: ranges that ascend and do not touch.
    pub removed: Vec<Range<u64>>,
    /// The positions of `items`, ascending.
    pub positions: Vec<u64>,
    /// The items that the list has at these positions, in place of the stored items or beside them.
    pub items: Vec<Payload>,
}

impl ListDelta {
    /// Returns a delta without a difference: the list `of` as it is stored. The other fields are assigned afterwards.
    pub fn new(of: ListRef) -> Self {
        Self { of, removed: Vec::new(), positions: Vec::new(), items: Vec::new() }
    }
}
