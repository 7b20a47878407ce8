//! Floor 5: what the outside sees of a run.
//!
//! *Absent:* the store, threads, and the machine's own events, which `drive` translates.

use std::sync::Arc;

use crate::base::Value;
use crate::graph::Interrupt;

/// What a stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamMode {
    /// The state after each superstep that changed it.
    Values,
    /// What each node wrote, when its task ends.
    Updates,
    /// What nodes show with [`Context::emit`](crate::graph::Context::emit), at once.
    Custom,
}

/// One part of a stream of a graph with state `S`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StreamPart<S> {
    /// The state after a superstep that changed it.
    Values(Arc<S>),
    /// What a node wrote.
    Updates {
        /// The node.
        node: String,
        /// The channels it wrote with the written values, null if it wrote none; a list of such maps with one channel
        /// each, if it wrote a channel several times.
        update: Value,
        /// Whether the result was remembered and the node did not run now.
        cached: bool,
    },
    /// The run stopped at these questions; at a breakpoint if there are none.
    Interrupts(Vec<Interrupt>),
    /// What a node showed while it ran.
    Custom(Value),
}
