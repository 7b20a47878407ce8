//! What goes into the machine and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::value::Value;
use crate::base::{CheckpointId, Encoded, Namespace, RunId, ThreadId};
use crate::graph::{Breakpoints, Command, Context, Interrupt, MessagePart, Scope};
use crate::state::{StateView, Writes};
use crate::store::{Batch, CacheKey, CheckpointRef};

use super::error::RunError;
use super::exit::Saving;
use super::shown::{CheckpointPart, DebugPart, NodeUpdate, TaskEnd, TaskStart};
use super::task::TaskJob;

/// What the machine asks for.
pub(crate) enum Effect {
    /// Run this task and report how it ended.
    Start(Box<TaskJob>),
    /// Commit this batch and report when that is done. Tasks that start after it wait for the report.
    Commit(Batch),
    /// Look these up in the cache and report what is there. Tasks wait for the report: those in these slots need not
    /// start if it is known what they return.
    LookUp { slots: Vec<usize>, keys: Vec<CacheKey> },
    /// Put this into the cache. Nothing waits for it.
    Keep { key: CacheKey, value: Encoded, lifetime: Option<Duration> },
}

/// What the outside may want to see, and in which graph it happened.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) namespace: Namespace,
    pub(crate) kind: EventKind,
}

/// What happened.
#[derive(Clone)]
pub(crate) enum EventKind {
    /// The state after a superstep that changed it, or with the questions of a task.
    Values {
        view: StateView,
        interrupts: Vec<Interrupt>,
    },
    /// What a node wrote.
    Updates(NodeUpdate),
    /// A task stopped at these questions, or the run at a breakpoint if there are none.
    Interrupts(Vec<Interrupt>),
    /// What a node shows while it runs.
    Custom(Value),
    /// A message, or a piece of one.
    Message(Box<MessagePart>),
    TaskStart(TaskStart),
    TaskEnd(TaskEnd),
    Checkpoint(Box<CheckpointPart>),
    Debug(Box<DebugPart>),
}

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventMask {
    pub(crate) values: bool,
    pub(crate) updates: bool,
    pub(crate) custom: bool,
    pub(crate) messages: bool,
    pub(crate) tasks: bool,
    pub(crate) checkpoints: bool,
    pub(crate) debug: bool,
    /// Whether those of graphs inside nodes are wanted as well.
    pub(crate) subgraphs: bool,
}

impl EventMask {
    /// Whether some of them happen while a task runs.
    pub(crate) fn are_live(self) -> bool {
        self.custom || self.messages || self.subgraphs
    }

    /// Returns whether calls of tasks are shown.
    pub(crate) fn show_calls(self) -> bool {
        self.updates || self.tasks || self.debug || self.messages
    }

    /// Returns which of them are wanted of a graph inside a node.
    pub(crate) fn inside(self) -> Self {
        if self.subgraphs { self } else { Self::default() }
    }

    /// Returns what is wanted by either of two.
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
            EventKind::Message(_) => self.messages,
            EventKind::TaskStart(_) | EventKind::TaskEnd(_) => self.tasks,
            EventKind::Checkpoint(_) => self.checkpoints,
            EventKind::Debug(_) => self.debug,
        }
    }
}

/// What a run starts with.
pub(crate) enum Start {
    Input(Writes),
    Command(Command),
    Continue,
    /// On where a run with the same idempotency key stopped, with what is left of its answers.
    Repeat(Option<Value>),
    /// Nothing: what a run with the same idempotency key came to is shown.
    Show,
    /// A graph inside a task: the input, or on from its head if the run around it was continued.
    Inside {
        input: Writes,
        resuming: bool,
    },
}

/// What a run is asked to do.
pub(crate) struct Request {
    pub(crate) start: Start,
    pub(crate) recursion_limit: u64,
    /// How long a superstep may take.
    pub(crate) step_timeout: Option<Duration>,
    pub(crate) interrupt_before: Option<Breakpoints>,
    pub(crate) interrupt_after: Option<Breakpoints>,
    /// Whether answers must fit open questions.
    pub(crate) strict_resume: bool,
    pub(crate) saving: Saving,
    pub(crate) events: EventMask,
    /// The fields that the outside sees; `None` are all.
    pub(crate) output: Option<Arc<[usize]>>,
    /// Where the run is recorded; `None` without a store.
    pub(crate) recording: Option<Recording>,
    pub(crate) seed: u64,
    pub(crate) scope: Arc<Scope>,
    /// Where the graph stands, also if nothing is recorded.
    pub(crate) namespace: Namespace,
    /// The task that it runs in; `None` for the outermost graph.
    pub(crate) above: Option<Context>,
}

/// Where a run is recorded.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) thread: ThreadId,
    pub(crate) namespace: Namespace,
    /// The head of the namespace when the run began.
    pub(crate) head: Option<CheckpointId>,
    pub(crate) run: RunId,
    pub(crate) metadata: Option<String>,
    /// The namespaces of the graphs around this one, outermost first, and the checkpoints they stood at.
    pub(crate) parents: Arc<[(Namespace, CheckpointId)]>,
    /// The heads of those namespaces: what is recorded here is void once one of them has moved.
    pub(crate) around: Arc<[(Namespace, Option<CheckpointId>)]>,
    /// Whether the run was started at a checkpoint that the caller named.
    pub(crate) addressed: bool,
    /// The checkpoint elsewhere that the head is the state of, until there is one here: its thread was forked off.
    pub(crate) forked_from: Option<CheckpointRef>,
}

/// How far a run has come.
pub(crate) enum Status {
    Running,
    Done,
    /// It waits for answers; for none at a breakpoint.
    Interrupted(Vec<Interrupt>),
    /// A node addressed a command to the graph around this one.
    Left(Command),
    /// It was asked to stop, for this reason.
    Drained(String),
    /// It was cancelled, for this reason.
    Cancelled(String),
    Failed(RunError),
}
