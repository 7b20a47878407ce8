//! What can be wrong with a graph. All of it is reported at once.

use std::fmt;

/// A graph that cannot be compiled, with every problem it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphError {
    /// The problems, in the order they were found.
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
        /// What it should name: `node` or `channel`.
        what: &'static str,
        /// The name.
        name: String,
        /// Why not.
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
        /// Which schema.
        what: String,
    },
    /// A managed value is no part of an input or output.
    #[error("{what} names {channel:?}, which is a managed value")]
    ManagedChannel {
        /// The name.
        channel: String,
        /// Which schema.
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
        /// Where the edge starts.
        source_node: String,
    },
    /// An edge starts at the end.
    #[error("an edge cannot start at END")]
    EdgeFromEnd,
    /// An edge ends at the start.
    #[error("an edge cannot end at START (from {source_node:?})")]
    EdgeToStart {
        /// Where the edge starts.
        source_node: String,
    },
    /// Nothing leaves the start.
    #[error("the graph has no entry: add at least one edge from START")]
    NoEntry,
    /// A breakpoint is set at a node that does not exist.
    #[error("there is no node {node:?} to interrupt {when}")]
    UnknownBreakpoint {
        /// The name.
        node: String,
        /// `before` or `after`.
        when: &'static str,
    },
    /// A join has no sources.
    #[error("the join to {target:?} waits for nothing")]
    EmptyJoin {
        /// Where it leads.
        target: String,
    },
    /// Two conditional edges of one node have one name.
    #[error("a conditional edge {branch:?} leaves node {source_node:?} already")]
    DuplicateBranch {
        /// Where they start.
        source_node: String,
        /// The name.
        branch: String,
    },
    /// The map of a conditional edge leads to a node that does not exist.
    #[error("at {source_node:?}, the conditional edge {branch:?} found unknown target {node:?}")]
    UnknownBranchTarget {
        /// The name.
        node: String,
        /// Where the conditional edge starts.
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

impl GraphProblem {
    /// Returns the name of the error class that LangGraph raises for it.
    pub fn class(&self) -> &'static str {
        "ValueError"
    }
}

impl GraphError {
    /// Returns the name of the error class that LangGraph raises for the first of the problems.
    pub fn class(&self) -> &'static str {
        self.problems.first().map_or("ValueError", GraphProblem::class)
    }
}
