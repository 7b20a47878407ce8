//! Floor 1: one value over time.
//!
//! A channel holds one value of the state and merges the writes of a superstep into it. Its type is the rule
//! (`LastValue`, `Reduce`, `Topic`, ...); the value lies elsewhere, in a field of the user's struct or in a cell,
//! and is lent to the rule as a `Cell`. *Absent:* messages, versions, bytes, the store.
//!
//! Invariants: all writes of a superstep come in one call, in the order of their tasks; a rule that fails may leave
//! the cell half changed, so its caller drops it.

mod append;
mod key_map;
mod last_value;
pub mod list;
mod reduce;
mod shape;
mod text;
mod topic;

pub(crate) use append::Append;
pub(crate) use key_map::MergeEntries;
pub use key_map::{KeyMap, MapEntry};
pub(crate) use last_value::{AnyValue, Ephemeral, LastValue, Untracked};
pub use list::{Keyed, List};
pub(crate) use reduce::{Folded, Reduce};
pub(crate) use shape::{ListShape, positions_of};
pub use text::Text;
pub(crate) use text::tail_of;
pub(crate) use topic::Topic;

/// The place of a channel's value, lent to its rule.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) struct Cell<'a, T> {
    /// The value; its default while the channel is empty.
    pub(crate) value: &'a mut T,
    /// True if the channel holds something.
    pub(crate) present: &'a mut bool,
}

impl<'a, T> Cell<'a, T> {
    fn set(&mut self, value: T) {
        *self.value = value;
        *self.present = true;
    }
}

/// The effect of an update on a channel, so that only changes are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEffect {
    /// Nothing.
    Unchanged,
    /// The value is now that of the write with this number: its bytes need not be encoded again.
    TookWrite(usize),
    /// The value is now another one, which has to be encoded.
    Computed,
    /// The list, which was empty, is now that of the write with this number, position by position.
    Shared(usize),
    /// These positions of the list changed, in this order.
    Items(Vec<ListChange>),
    /// The channel is empty now.
    Cleared,
}

/// One changed position of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListChange {
    /// The position.
    pub position: u64,
    /// The operation.
    pub op: ListOp,
}

/// An operation on a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListOp {
    /// It holds this item of this write.
    Put {
        /// The number of the write in the update.
        write: usize,
        /// The number of the item in the write.
        part: usize,
    },
    /// It is free.
    Delete,
    /// It and all positions below `end` are free.
    DeleteRange {
        /// One past the last position.
        end: u64,
    },
}

/// The rule of a channel: `T` is the type of its value, `W` that of its writes.
pub(crate) trait Channel<T, W>: Send + Sync + 'static {
    /// Applies the writes of a superstep, at least one, in the order of their tasks.
    ///
    /// # Errors
    /// [`ChannelError`] if the writes break the rule.
    fn update(&self, cell: Cell<'_, T>, writes: Vec<W>) -> Result<ChannelEffect, ChannelError>;

    /// Ends a superstep that ran tasks and wrote nothing to this channel.
    fn idle(&self, _cell: Cell<'_, T>) -> ChannelEffect {
        ChannelEffect::Unchanged
    }
}

/// Writes that break the rule of a channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Two writes in one superstep to a channel that takes one (`INVALID_CONCURRENT_GRAPH_UPDATE`).
    #[error("it takes one value per superstep and got {writes}; use a reducer to combine several")]
    OneValuePerStep {
        /// The number of writes.
        writes: usize,
    },
    /// Two writes in one superstep to a channel that is guarded against it.
    #[error("it is guarded: it takes one value per superstep and got {writes}")]
    Guarded {
        /// The number of writes.
        writes: usize,
    },
    /// Two writes in one superstep that replace the value of a reducer (`INVALID_CONCURRENT_GRAPH_UPDATE`).
    #[error("{writes} writes replace its value. Can receive only one Overwrite value per super-step.")]
    OneOverwritePerStep {
        /// The number of writes.
        writes: usize,
    },
    /// A name that the barrier does not wait for.
    #[error("the barrier waits for {expected:?}, not for {found:?}")]
    NotAwaited {
        /// The names it waits for.
        expected: Vec<String>,
        /// The name that was written.
        found: String,
    },
    /// A key of a map past the limit.
    #[error("a key of {bytes} bytes is past the limit of {max}")]
    KeyTooLong {
        /// The bytes of the key.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// All positions that the hash of a key names hold other keys.
    #[error("the positions of the key {key:?} hold other keys; their hashes are equal to its own")]
    NoPositionForKey {
        /// The key.
        key: String,
    },
    /// A reducer refused a write.
    #[error("its reducer failed: {reason}")]
    Reducer {
        /// Its message.
        reason: String,
    },
}
