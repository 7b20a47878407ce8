//! Inputs and outputs of the machine: requests, effects, events and the status of a run.

use std::sync::Arc;
use std::time::Duration;

use crate::base::Value;
use crate::base::{CheckpointId, Encoded, Namespace, RunId, ThreadId};
use crate::graph::{Breakpoints, Command};
use crate::state::{StateView, Writes};
use crate::store::batch::Batch;
use crate::store::{CacheKey, CheckpointRef};
use crate::task::{Context, Interrupt, MessagePart, Scope};

use super::error::RunError;
use super::exit::Saving;
use super::messages_read::MessagesRead;
use super::shown::{CheckpointPart, DebugPart, NodeUpdate, TaskEnd, TaskStart};
use super::task::TaskJob;

/// A side effect that the machine requests from its driver.
#[allow(
    clippy::large_enum_variant,
    reason = "most effects are batches, and a box would cost each of them an allocation"
)]
pub(crate) enum Effect {
    /// Run this task and report how it ended.
    Start(Box<TaskJob>),
    /// Commit this batch and report when that is done. Tasks that start after it wait for the report.
    Commit(Batch),
    /// Look up these keys in the cache and report the values found. Tasks wait for the report: a task in one of these
    /// slots does not start if its result is cached.
    LookUp { slots: Vec<usize>, keys: Vec<CacheKey> },
    /// Put this into the cache. Nothing waits for it.
    Keep { key: CacheKey, value: Encoded, lifetime: Option<Duration> },
}

/// An event for the subscribers of a run, with the namespace of the graph that emitted it.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) namespace: Namespace,
    pub(crate) kind: EventKind,
}

/// The payload of an event.
#[derive(Clone)]
pub(crate) enum EventKind {
    /// The state after a superstep that changed it, or with the interrupts of a task.
    Values {
        view: StateView,
        interrupts: Vec<Interrupt>,
    },
    /// The writes of a node.
    Updates(NodeUpdate),
    /// The interrupts at which a task stopped; empty if the run stopped at a breakpoint.
    Interrupts(Vec<Interrupt>),
    /// A custom value that a node emits while it runs.
    Custom(Value),
    /// A message, or a chunk of one.
    Message(Box<MessagePart>),
    /// The messages that tasks are given as they start. It belongs to the mode `messages`, and is not shown.
    MessagesRead(Box<MessagesRead>),
    TaskStart(TaskStart),
    TaskEnd(TaskEnd),
    Checkpoint(Box<CheckpointPart>),
    Debug(Box<DebugPart>),
}

/// The event modes that are subscribed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventMask {
    pub(crate) values: bool,
    pub(crate) updates: bool,
    pub(crate) custom: bool,
    pub(crate) messages: bool,
    pub(crate) tasks: bool,
    pub(crate) checkpoints: bool,
    pub(crate) debug: bool,
    /// True if the events of subgraphs are subscribed as well.
    pub(crate) subgraphs: bool,
}

impl EventMask {
    /// Returns whether some of the events are emitted while a task runs.
    pub(crate) fn are_live(self) -> bool {
        self.custom || self.messages || self.subgraphs
    }

    /// Returns whether calls of tasks are shown.
    pub(crate) fn show_calls(self) -> bool {
        self.updates || self.tasks || self.debug || self.messages
    }

    /// Returns the mask for a subgraph.
    pub(crate) fn inside(self) -> Self {
        if self.subgraphs { self } else { Self::default() }
    }

    /// Returns the union of two masks.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            values: self.values || other.values,
            updates: self.updates || other.updates,
            custom: self.custom || other.custom,
            messages: self.messages || other.messages,
            tasks: self.tasks || other.tasks,
            checkpoints: self.checkpoints || other.checkpoints,
            debug: self.debug || other.debug,
            subgraphs: self.subgraphs || other.subgraphs,
        }
    }

    /// Returns whether an event of this kind is wanted.
    pub(crate) fn wants(self, kind: &EventKind) -> bool {
        match kind {
            EventKind::Values { .. } => self.values,
            EventKind::Updates(_) | EventKind::Interrupts(_) => self.updates,
            EventKind::Custom(_) => self.custom,
            EventKind::Message(_) | EventKind::MessagesRead(_) => self.messages,
            EventKind::TaskStart(_) | EventKind::TaskEnd(_) => self.tasks,
            EventKind::Checkpoint(_) => self.checkpoints,
            EventKind::Debug(_) => self.debug,
        }
    }
}

/// The start of a run: its input, or the point from which it continues.
pub(crate) enum RunStart {
    /// An input, whose writes are resolved.
    Input(Writes),
    Command(Command),
    Continue,
    /// Continues an earlier run with the same idempotency key, with the remaining resume values of that run.
    Repeat(Option<Value>),
    /// Runs nothing; shows the outcome of an earlier run with the same idempotency key.
    Show,
    /// A subgraph: takes the input, whose writes are resolved, or continues from its head if the run of the parent
    /// graph was continued.
    Inside {
        input: Writes,
        resuming: bool,
    },
}

/// The parameters of a run.
pub(crate) struct Request {
    pub(crate) start: RunStart,
    pub(crate) recursion_limit: u64,
    /// The time limit of a superstep.
    pub(crate) step_timeout: Option<Duration>,
    pub(crate) interrupt_before: Option<Breakpoints>,
    pub(crate) interrupt_after: Option<Breakpoints>,
    /// True if resume values must match open interrupts.
    pub(crate) strict_resume: bool,
    pub(crate) saving: Saving,
    pub(crate) events: EventMask,
    /// The fields that the outside sees; `None` are all.
    pub(crate) output: Option<Arc<[usize]>>,
    /// The store location of the run; `None` without a store.
    pub(crate) recording: Option<Recording>,
    pub(crate) seed: u64,
    pub(crate) scope: Arc<Scope>,
    /// The namespace of the graph, set even if nothing is recorded.
    pub(crate) namespace: Namespace,
    /// The task that it runs in; `None` for the outermost graph.
    pub(crate) above: Option<Context>,
}

/// The store location and metadata under which a run is recorded.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) thread: ThreadId,
    pub(crate) namespace: Namespace,
    /// The head of the namespace when the run began.
    pub(crate) head: Option<CheckpointId>,
    pub(crate) run: RunId,
    pub(crate) metadata: Option<String>,
    /// The metadata with the version of the graph, if it has one: of the first checkpoint of the run, and of some later
    /// ones.
    pub(crate) marked_metadata: Option<String>,
    /// The namespaces of the parent graphs, outermost first, and their checkpoints when this run began.
    pub(crate) parents: Arc<[(Namespace, CheckpointId)]>,
    /// The heads of those namespaces. Commits of this run are rejected once one of these heads has moved.
    pub(crate) around: Arc<[(Namespace, Option<CheckpointId>)]>,
    /// True if the run was started at a checkpoint that the caller named.
    pub(crate) addressed: bool,
    /// True if the expected head was moved back to a checkpoint that others continue: it is not the newest one.
    pub(crate) is_continued: bool,
    /// The checkpoint elsewhere that the head is the state of, until there is one here: its thread was forked off.
    pub(crate) forked_from: Option<CheckpointRef>,
}

/// The status of a run.
pub(crate) enum Status {
    Running,
    Done,
    /// The run waits for resume values; the list is empty at a breakpoint.
    Interrupted(Vec<Interrupt>),
    /// A node addressed a command to the parent graph.
    Left(Box<Command>),
    /// The run was asked to stop, for this reason.
    Drained(String),
    /// The run was cancelled, for this reason.
    Cancelled(String),
    Failed(RunError),
}

#[cfg(test)]
mod tests;
