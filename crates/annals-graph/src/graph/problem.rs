//! The problems of a graph, all of which are reported at once.

use std::fmt;

/// A graph that cannot be compiled, with all its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphError {
    /// The problems, in the order in which they were found.
    pub problems: Vec<GraphProblem>,
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => write!(f, "the graph cannot be compiled: {one}"),
            many => {
                write!(f, "the graph cannot be compiled, for {} reasons:", many.len())?;
                many.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
            }
        }
    }
}

impl std::error::Error for GraphError {}

/// One problem of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphProblem {
    /// Two nodes have one name.
    #[error("node {node:?} is added twice")]
    DuplicateNode {
        /// The name.
        node: String,
    },
    /// A name cannot be used.
    #[error("{name:?} cannot be the name of a {what}: {reason}")]
    BadName {
        /// The kind of the named item: `node`, `channel` or `version`.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Two fields have one name.
    #[error("channel {channel:?} is declared twice")]
    DuplicateChannel {
        /// The name.
        channel: String,
    },
    /// Two schemas have different channels of one name.
    #[error("channel {channel:?} already exists with a different type")]
    ChannelConflict {
        /// The name.
        channel: String,
    },
    /// A schema names a channel that the state does not have.
    #[error("{what} names channel {channel:?}, which the state does not have")]
    UnknownChannel {
        /// The name.
        channel: String,
        /// The schema.
        what: String,
    },
    /// A schema names a managed value, which cannot be part of an input or output.
    #[error("{what} names {channel:?}, which is a managed value")]
    ManagedChannel {
        /// The name.
        channel: String,
        /// The schema.
        what: String,
    },
    /// An edge starts at a node that does not exist.
    #[error("found edge starting at unknown node {node:?}")]
    UnknownSource {
        /// The name.
        node: String,
    },
    /// An edge ends at a node that does not exist.
    #[error("found edge ending at unknown node {node:?}, from {source_node:?}")]
    UnknownTarget {
        /// The name.
        node: String,
        /// The source of the edge.
        source_node: String,
    },
    /// An edge starts at `END`.
    #[error("an edge cannot start at END")]
    EdgeFromEnd,
    /// An edge ends at `START`.
    #[error("an edge cannot end at START (from {source_node:?})")]
    EdgeToStart {
        /// The source of the edge.
        source_node: String,
    },
    /// No edge leaves `START`.
    #[error("the graph has no entry: add at least one edge from START")]
    NoEntry,
    /// A breakpoint is set at a node that does not exist.
    #[error("a breakpoint is set {when} node {node:?}, which the graph does not have")]
    UnknownBreakpoint {
        /// The name.
        node: String,
        /// `before` or `after`.
        when: &'static str,
    },
    /// A join has no sources.
    #[error("the join to {target:?} has no sources")]
    EmptyJoin {
        /// The target of the join.
        target: String,
    },
    /// Two conditional edges of one node have one name.
    #[error("a conditional edge {branch:?} leaves node {source_node:?} already")]
    DuplicateBranch {
        /// The source of the conditional edges.
        source_node: String,
        /// The name.
        branch: String,
    },
    /// The map of a conditional edge leads to a node that does not exist.
    #[error("at {source_node:?}, the conditional edge {branch:?} found unknown target {node:?}")]
    UnknownBranchTarget {
        /// The name.
        node: String,
        /// The source of the conditional edge.
        source_node: String,
        /// The name of the conditional edge.
        branch: String,
    },
    /// A sequence has no nodes.
    #[error("a sequence needs at least one node")]
    EmptySequence,
    /// A timeout is set for a node that runs on a thread, where it cannot be stopped.
    #[error("node {node:?} has a timeout, but only an async node can be stopped")]
    SyncTimeout {
        /// The node.
        node: String,
    },
    /// A timeout is not greater than zero.
    #[error("the timeout of node {node:?} must be greater than zero")]
    BadTimeout {
        /// The node.
        node: String,
    },
}

impl GraphError {
    /// Returns the name of the error class that LangGraph raises in its place.
    pub fn class(&self) -> &'static str {
        "ValueError"
    }
}
