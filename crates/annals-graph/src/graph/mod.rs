//! Floor 3: the inert shape of a graph.
//!
//! A [`StateGraph`] collects nodes and edges; `compile` validates them and makes a [`CompiledGraph`], which holds the
//! triggers of its nodes and runs nothing. *Absent:* the superstep machine, threads, the store.
//!
//! Invariants: a compiled graph never changes; channels and nodes are numbered once; every problem of a graph is
//! reported at once.

mod async_node;
mod branch;
mod builder;
mod command;
mod compiled;
mod draw;
mod entrypoint;
mod fingerprint;
mod node;
mod options;
mod part_node;
mod policy;
mod problem;
mod schemas;
mod sequence;
mod signature;
mod validate;

pub use branch::{IntoPath, IntoTargets, Named, PathLabel};
pub use builder::{Persistence, StateGraph};
pub use command::{Command, SendTo, Target};
pub use compiled::CompiledGraph;
pub use draw::{Drawing, DrawingEdge, DrawingNode};
pub use entrypoint::{Entry, Entrypoint, Final, IntoFinal};
pub use node::{BoxError, IntoNode, IntoOutput, NodeBody, NodeOutput, NodeResult, Own};
pub use options::{NodeDefaults, NodeOptions};
pub use policy::{CachePolicy, RefreshOn, RetryPolicy, TimeoutPolicy};
pub use problem::{GraphError, GraphProblem};
pub use sequence::IntoSequence;
#[doc(hidden)]
pub use signature::Signature;

pub(crate) use async_node::{AsyncWithoutCaptures, NodeFuture};
pub(crate) use branch::{Branch, Path, PathFuture};
pub(crate) use builder::DEFAULT_NAME;
pub(crate) use compiled::{BRANCH_CHANNEL, Breakpoints, Graph, JOIN_CHANNEL, Join, Outgoing};
pub(crate) use entrypoint::{INPUT, VALUE, input_writes};
pub(crate) use fingerprint::GraphCode;
pub(crate) use node::{GivenFields, NodeInput, RunNode, StartNode, Takes, Work};
pub(crate) use signature::SignatureKind;

/// The name of the entry: the source of the first edges.
pub const START: &str = "__start__";
/// The name of the exit: a target that ends a path.
pub const END: &str = "__end__";
