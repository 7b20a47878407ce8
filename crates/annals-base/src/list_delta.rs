//! Lists that are told by what they differ from: a list that goes into a graph inside, and comes back from it.

use std::ops::Range;
use std::sync::Arc;

use super::id::CheckpointId;
use super::namespace::Namespace;
use super::payload::Payload;

/// A list that is stored: what a list channel held at a checkpoint of the same thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListRef {
    /// The namespace of the checkpoint.
    pub namespace: Namespace,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The channel. One that was never written holds no items.
    pub channel: Arc<str>,
}

/// A list, told by what it differs from one that is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ListDelta {
    /// The list that is stored.
    pub of: ListRef,
    /// The positions whose items the list does not have: ranges that ascend and do not touch.
    pub removed: Vec<Range<u64>>,
    /// The positions of `items`, ascending.
    pub positions: Vec<u64>,
    /// The items that the list has at these positions, in place of what is stored or beside it.
    pub items: Vec<Payload>,
}
