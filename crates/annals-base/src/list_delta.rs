//! Lists as a difference from a stored list: a list that enters a subgraph and returns from it.

use std::ops::Range;
use std::sync::Arc;

use super::id::CheckpointId;
use super::namespace::Namespace;
use super::payload::Payload;

/// A stored list: the value of a list channel at a checkpoint of the same thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListRef {
    /// The namespace of the checkpoint.
    pub namespace: Namespace,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The channel. One that was never written holds no items.
    pub channel: Arc<str>,
}

/// A list as the difference from a stored one.
#[derive(Clone, Debug, PartialEq)]
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
