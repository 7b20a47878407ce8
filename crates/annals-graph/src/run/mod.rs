//! The tree of graphs that run in one run: the outermost graph, its subgraphs, and the tasks that they call; without
//! I/O.
//!
//! A [`Session`] is the one object that all graphs of a run share. It decides at which checkpoint a subgraph begins,
//! which heads a commit names, which batches are held back until the end of the run, and which results a subgraph hands
//! to its parent graph. Each graph has a `Machine` of its own, which its loop owns: applying a superstep may call
//! reducers of the user, so no lock spans it. A decision that needs the log is a [`Decision`]: it asks for one [`Need`]
//! after another, and gets the records for each.
//! *Absent:* the `Store`, locks, threads, clocks.
//!
//! Invariants: a commit of a subgraph is void once the head of a parent graph has moved, and one of a parent graph once
//! the head has moved that it took a result from; a subgraph takes its input, or continues, and never both.

mod decision;
mod handover;
mod held;
mod lease;
mod lineage;
mod root;
mod session;
mod start;
mod subgraph;

pub(crate) use decision::{Decision, Found, Need, Step};
pub(crate) use handover::{GivenLists, given_input, input_of, returned_output};
pub(crate) use held::merged_writes;
pub(crate) use lease::RunLease;
pub(crate) use lineage::stored_input;
pub(crate) use root::{RootPoint, RootStart, parent_heads};
pub(crate) use session::Session;
pub(crate) use start::{Loaded, ReadySubgraph};
pub(crate) use subgraph::Subgraph;
