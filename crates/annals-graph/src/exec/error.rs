//! Errors that end a run. Every message states the situation after the error.

use crate::base::CodecError;
use crate::graph::{BoxError, GraphProblem};
use crate::state::StateError;
use crate::task::{Interrupted, InvalidResumeValue, TimedOut};

use super::limits::TimeoutKind;

/// An error of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A node failed. Its error is the source. The finished nodes of its superstep are not run again when the run is
    /// continued: their results are retained.
    #[error("node {node:?} failed: {source}")]
    Node {
        /// The node.
        node: String,
        /// Its error, as given.
        source: BoxError,
    },
    /// A node panicked. The store stays usable.
    #[error("node {node:?} panicked: {reason}")]
    NodePanicked {
        /// The node.
        node: String,
        /// The message of the panic.
        reason: String,
    },
    /// An attempt of an async node, or of an async task that was called, took too long (`NodeTimeoutError`). It was
    /// stopped where it waited, and its writes were dropped. A retry policy retries it, unless the policy names other
    /// errors.
    #[error("node {node:?} was stopped after {after_ms} ms: it {}", told(*kind, *run_timeout_ms, *idle_timeout_ms))]
    NodeTimeout {
        /// The node.
        node: String,
        /// The limit that the attempt exceeded.
        kind: TimeoutKind,
        /// The duration of the attempt.
        after_ms: u64,
        /// The time limit of an attempt, if there is one.
        run_timeout_ms: Option<u64>,
        /// The longest time an attempt may go without a sign of life, if that is limited.
        idle_timeout_ms: Option<u64>,
    },
    /// A superstep exceeded its time limit (`TimeoutError`). Its async nodes were dropped where they waited, those on
    /// threads were waited for, and the results of tasks that had ended are retained: the thread can be continued. If a
    /// node failed by itself, that is the error of the run.
    #[error("superstep {step} was stopped as it may take {limit_ms} ms, in which {nodes:?} had not ended")]
    StepTimeout {
        /// The number of the superstep.
        step: i64,
        /// The time limit of the superstep.
        limit_ms: u64,
        /// The nodes that had not ended by then.
        nodes: Vec<String>,
        /// The marker that identifies this error in the source chain of other errors.
        #[doc(hidden)]
        source: TimedOut,
    },
    /// A node returned [`Cancelled`](crate::task::Cancelled), and its run was not cancelled (`NodeCancelledError`). It
    /// has failed, and is not retried.
    #[error("node {node:?} says that it was cancelled, and its run was not")]
    NodeCancelled {
        /// The node.
        node: String,
    },
    /// A task has a timeout, and its node runs on a thread, where it cannot be stopped. Known when a graph is compiled,
    /// but for the timeout of a send.
    #[error("node {node:?} was sent a timeout, but only an async node can be stopped; it was not run")]
    SyncTimeout {
        /// The node.
        node: String,
    },
    /// A send, or a called task, has a timeout that is not greater than zero. It was not made.
    #[error("the timeout that {node:?} was given must be greater than zero")]
    BadTimeout {
        /// The node or the task.
        node: String,
    },
    /// A node or a called task has a timeout, or its superstep has, and the asynchronous run has no timer to wait by:
    /// give it one with [`Run::timer`](crate::Run::timer), or with the feature `tokio` run it on Tokio.
    #[error("{node:?} has a time limit, and the run has no timer: it was not run")]
    NoTimer {
        /// The node.
        node: String,
    },
    /// A worker was started outside a runtime of Tokio, and one of its graphs has an async node (feature `tokio`).
    /// Nothing was claimed.
    #[error(
        "node {node:?} of graph {graph:?} is async, and the worker has no runtime of Tokio: await Worker::arun_until in one, \
         or enter it on this thread with `let _inside = runtime.enter();`; if the node needs none, say so with \
         Worker::without_runtime"
    )]
    NoRuntime {
        /// The graph.
        graph: String,
        /// The node.
        node: String,
    },
    /// The writes of a superstep cannot be applied (`INVALID_CONCURRENT_GRAPH_UPDATE` for two writes to one value), or
    /// a value does not fit its channel. No checkpoint was made for the superstep.
    #[error(transparent)]
    State(#[from] StateError),
    /// A value cannot be encoded or decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The run was given nothing to do (`EmptyInputError`).
    #[error("there is nothing to run: the thread has no checkpoint to continue from, and no input was given")]
    EmptyInput,
    /// The input of a run is a command for the parent graph (`InvalidUpdateError`). Nothing was written.
    #[error("a command for the parent graph cannot be the input of a run")]
    NoParentGraph,
    /// The run did not end within its supersteps (`GRAPH_RECURSION_LIMIT`). The thread can be continued.
    #[error("the run did not end within {limit} supersteps; its last superstep is stored and can be continued")]
    RecursionLimit {
        /// The limit.
        limit: u64,
    },
    /// Several interrupts are open, and the resume value does not say which one it is for.
    #[error("{} interrupts are open: resume them by id, with a map from id to resume value", ids.len())]
    SeveralInterrupts {
        /// The ids of the interrupts.
        ids: Vec<String>,
    },
    /// Two tasks of a superstep run a subgraph that keeps its state
    /// ([`Persistence::PerThread`](crate::graph::Persistence::PerThread)), and it waits for a resume value of the other
    /// task. That interrupt stays open, and the task of this error runs in the next run.
    #[error(
        "subgraph {graph:?} keeps its state, and waits for a resume value of another task: node {node:?} can run it \
         when that interrupt was resumed, or at once as a subgraph with a state for each task"
    )]
    SharedSubgraph {
        /// The subgraph.
        graph: String,
        /// The node of the task that could not run it.
        node: String,
    },
    /// A run with strict resume was given a resume value that does not match an open interrupt
    /// (`UnknownInterruptError`), or an interrupt is not the one that was seen. Nothing was written.
    #[error("{problem}; open interrupts: {pending:?}")]
    UnknownInterrupt {
        /// The reason why the resume value was rejected.
        problem: ResumeProblem,
        /// The ids of the open interrupts.
        pending: Vec<String>,
    },
    /// A resume value does not match the response schema of its interrupt. Nothing was written, and the interrupt
    /// stays open.
    #[error(transparent)]
    InvalidResumeValue(#[from] InvalidResumeValue),
    /// A path returned a label that is not in its map.
    #[error("a conditional edge returned {label:?}, which is not in its map")]
    UnknownLabel {
        /// The label.
        label: String,
    },
    /// A path did not return a valid destination.
    #[error("a conditional edge cannot lead to {name:?}")]
    BadDestination {
        /// The destination that the path returned.
        name: String,
    },
    /// A send to the end.
    #[error("nothing can be sent to END")]
    SendToEnd,
    /// An update cannot be attributed to one node.
    #[error("the node that the update is made as is ambiguous; name one of {candidates:?}")]
    AmbiguousUpdate {
        /// The nodes there are.
        candidates: Vec<String>,
    },
    /// An update is made as a node that does not exist.
    #[error("node {node:?} does not exist; the graph has {known:?}")]
    UnknownNode {
        /// The name.
        node: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A graph that is a node returned a value that is not a state update (`INVALID_GRAPH_NODE_RETURN_VALUE`): an
    /// entrypoint as a node must return a map from channels to values.
    #[error("graph {graph:?} is a node, and the value it returned is not a map from channels to values")]
    NotAnUpdate {
        /// The graph.
        graph: String,
    },
    /// An edit of a state is not possible as requested. Nothing was changed.
    #[error(transparent)]
    Edit(#[from] EditProblem),
    /// A breakpoint of the run names a node that does not exist.
    #[error(transparent)]
    Breakpoint(#[from] GraphProblem),
    /// A resume value or a continuation needs a store.
    #[error("a run without a store cannot be continued or resumed")]
    NoStore,
    /// The state was to be read or edited without a thread in a store (`ValueError`).
    #[error("there is no state without a thread in a store")]
    NoThread,
    /// The keys of an output name a channel that the state does not have. Nothing was run.
    #[error("the output names {channel:?}, which is not a channel; the channels are {known:?}")]
    UnknownOutput {
        /// The name.
        channel: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The run was not given the context value that its graph asks for
    /// ([`StateGraph::context`](crate::graph::StateGraph::context)). Nothing was run.
    #[error("graph {graph:?} asks for a context value of type {expected}, and the run was given {}", given(*found))]
    NoContext {
        /// The graph.
        graph: String,
        /// The type that it asks for.
        expected: &'static str,
        /// True if the run was given a value of another type.
        found: bool,
    },
    /// Something was to be done to a cache, and the graph has none.
    #[error("the graph has no cache")]
    NoCache,
    /// The run was begun by a graph with another version or fingerprint, and is not finished. Nothing was run. The
    /// program that began it can continue it, or one that allows it with
    /// [`Run::allow_changed_graph`](crate::Run::allow_changed_graph).
    #[error(
        "the run began with version {stored:?} of graph {graph:?}, and this is version {present:?}: {} differ; allow it with \
         Run::allow_changed_graph, or continue it with the version it began with",
        parts.join(", ")
    )]
    GraphChanged {
        /// The name of the graph.
        graph: String,
        /// The version that the run began with.
        stored: String,
        /// The version of the graph that was to continue it.
        present: String,
        /// The parts that differ: `version`, `nodes`, `edges`, `channels`.
        parts: Vec<&'static str>,
    },
    /// A node is due, or a task that has ended leads to it, and the graph does not have it, or lacks the edge that made
    /// it due: the graph was changed since the run began. Nothing was run or stored. The run goes on with a graph that
    /// has the node; else it can be restarted from an older checkpoint or cancelled, or a new input abandons it.
    #[error(
        "node {} is due, and graph {graph:?} does not have it or lacks the edge that made it due; its nodes are {known:?}. \
         Give the node its name and edges back, restart the run from an older checkpoint, or cancel it",
        quoted(nodes)
    )]
    DueNodeMissing {
        /// The name of the graph.
        graph: String,
        /// The nodes.
        nodes: Vec<String>,
        /// The nodes that the graph has.
        known: Vec<String>,
    },
    /// Some nodes have reached a join that the graph does not have: it was changed since, or one of the nodes. Nothing
    /// was run or stored. The run goes on with a graph that has the join; else it can be restarted from an older
    /// checkpoint or cancelled, a new input abandons it, and
    /// [`Run::allow_changed_graph`](crate::Run::allow_changed_graph) continues it without the join.
    #[error(
        "{} reached the join before node {node:?}, and graph {graph:?} does not have that join{}. Give the nodes their \
         names and edges back, restart the run from an older checkpoint, cancel it, or continue it without the join \
         with Run::allow_changed_graph",
        quoted(arrived),
        lacking(missing)
    )]
    JoinMissing {
        /// The name of the graph.
        graph: String,
        /// The node that the join makes due.
        node: String,
        /// The nodes that have reached the join.
        arrived: Vec<String>,
        /// The nodes of the join that the graph does not have.
        missing: Vec<String>,
    },
    /// The idempotency key of a run cannot be used. Nothing was run.
    #[error("the idempotency key of the run cannot be used: {reason}")]
    BadKey {
        /// The reason.
        reason: String,
    },
    /// The recursion limit is not at least 1.
    #[error("the recursion limit is {limit}; it must be at least 1")]
    BadRecursionLimit {
        /// The limit.
        limit: u64,
    },
    /// A node addressed a command to the parent graph, but its graph is the outermost one (`ParentCommand`).
    #[error("a node returned a command for the parent graph, but its graph is the outermost one")]
    ParentCommand,
    /// For the runtime itself: the node waits for a resume value.
    #[doc(hidden)]
    #[error("the node waits for a resume value")]
    Waiting(#[source] Interrupted),
}

/// The reason why a resume value does not match the open interrupts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeProblem {
    /// These interrupts are not open: they are unknown, or were resumed before.
    #[error("the interrupts {ids:?} are not open")]
    NotPending {
        /// Their ids.
        ids: Vec<String>,
    },
    /// These interrupts are not the ones that were seen ([`Command::and_seen`](crate::graph::Command::and_seen)).
    #[error("the interrupts {ids:?} are not open as they were seen")]
    Changed {
        /// Their ids.
        ids: Vec<String>,
    },
    /// These interrupts were resumed at the checkpoint that the caller named: the stored resume values would be taken
    /// again.
    #[error(
        "the interrupts {ids:?} were resumed at this checkpoint, and the stored resume values count; to give others begin \
         anew, with Snapshot::fork_to on another thread or with Thread::restart_from on this one"
    )]
    Resumed {
        /// Their ids.
        ids: Vec<String>,
    },
    /// The map of resume values is empty.
    #[error("the map of resume values is empty")]
    EmptyMap,
    /// One resume value was given without an id, and several interrupts are open.
    #[error("the resume value does not name its interrupt")]
    Ambiguous,
}

impl ResumeProblem {
    /// Returns the field's name for it: `not_pending`, `changed`, `resumed`, `empty_map` or `ambiguous`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotPending { .. } => "not_pending",
            Self::Changed { .. } => "changed",
            Self::Resumed { .. } => "resumed",
            Self::EmptyMap => "empty_map",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// The reason why the state of a thread was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditProblem {
    /// No superstep was given.
    #[error("no supersteps were given")]
    NoSupersteps,
    /// A superstep without an update was given.
    #[error("superstep {superstep} has no updates")]
    NoUpdates {
        /// The superstep, counted from 0.
        superstep: usize,
    },
    /// One of several updates does not say as which node it is made.
    #[error("of several updates in one superstep each must name the node it is made as")]
    NeedsNode,
    /// An input, a copy or the end of all tasks shares a superstep with other updates.
    #[error("an update as {as_node:?} must be alone in its superstep")]
    NotAlone {
        /// The name that the update is made as.
        as_node: &'static str,
    },
    /// A thread without checkpoints cannot be copied.
    #[error("the thread has no checkpoint to copy")]
    NothingToCopy,
    /// A copy changes nothing by itself, and an input gives no commands.
    #[error("an update as {as_node:?} does not take this")]
    Unexpected {
        /// The name that the update is made as.
        as_node: &'static str,
    },
}

impl RunError {
    /// Returns the error code of the field, if it has one.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::RecursionLimit { .. } => Some("GRAPH_RECURSION_LIMIT"),
            Self::NotAnUpdate { .. } => Some("INVALID_GRAPH_NODE_RETURN_VALUE"),
            Self::State(error) => error.code(),
            _ => None,
        }
    }

    /// Returns the name of the error class that LangGraph raises in its place. The class of a node's own error is
    /// `Exception`; its source holds the actual error.
    pub fn class(&self) -> &'static str {
        match self {
            Self::State(error) => error.class(),
            Self::SendToEnd | Self::NoParentGraph | Self::AmbiguousUpdate { .. } | Self::UnknownNode { .. } => {
                "InvalidUpdateError"
            }
            Self::Codec(_) | Self::NoContext { .. } => "TypeError",
            Self::EmptyInput => "EmptyInputError",
            Self::RecursionLimit { .. } => "GraphRecursionError",
            Self::SeveralInterrupts { .. }
            | Self::SharedSubgraph { .. }
            | Self::NoStore
            | Self::NoTimer { .. }
            | Self::NoRuntime { .. } => "RuntimeError",
            Self::NodeTimeout { .. } => "NodeTimeoutError",
            Self::StepTimeout { .. } => "TimeoutError",
            Self::NodeCancelled { .. } => "NodeCancelledError",
            Self::UnknownLabel { .. } => "KeyError",
            Self::BadDestination { .. }
            | Self::BadRecursionLimit { .. }
            | Self::BadKey { .. }
            | Self::GraphChanged { .. }
            | Self::DueNodeMissing { .. }
            | Self::JoinMissing { .. }
            | Self::InvalidResumeValue(_)
            | Self::NoCache
            | Self::NoThread
            | Self::UnknownOutput { .. }
            | Self::SyncTimeout { .. }
            | Self::BadTimeout { .. } => "ValueError",
            Self::Breakpoint(_) => "ValueError",
            Self::Edit(EditProblem::NoSupersteps | EditProblem::NoUpdates { .. }) => "ValueError",
            Self::Edit(_) => "InvalidUpdateError",
            Self::ParentCommand => "ParentCommand",
            Self::Waiting(_) => "GraphInterrupt",
            Self::UnknownInterrupt { .. } => "UnknownInterruptError",
            _ => "Exception",
        }
    }
}

fn given(found: bool) -> &'static str {
    if found { "one of another type" } else { "none" }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn lacking(nodes: &[String]) -> String {
    if nodes.is_empty() { String::new() } else { format!(": it lacks node {}", quoted(nodes)) }
}

/// Describes the limit that was exceeded.
fn told(kind: TimeoutKind, run_ms: Option<u64>, idle_ms: Option<u64>) -> String {
    match kind {
        TimeoutKind::Run => format!("may take {} ms", run_ms.unwrap_or_default()),
        TimeoutKind::Idle => format!("may take {} ms without a sign of life", idle_ms.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_waits_has_the_class_of_an_interrupt() {
        assert_eq!(RunError::Waiting(Interrupted::new()).class(), "GraphInterrupt");
    }
}
