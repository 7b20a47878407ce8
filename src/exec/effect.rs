//! What goes into the machine and what comes out of it.

use crate::base::value::Map;
use crate::base::{CheckpointId, Namespace, RunId, ThreadId};
use crate::graph::{Breakpoints, Command, Interrupt};
use crate::state::{StateRef, Writes};
use crate::store::Batch;

use super::error::RunError;
use super::task::TaskJob;

/// What the machine asks for.
pub(crate) enum Effect {
    /// Run this task and report how it ended.
    Start(Box<TaskJob>),
    /// Commit this batch and report when that is done. Tasks that start after it wait for the report.
    Commit(Batch),
}

/// What the outside may want to see.
pub(crate) enum Event {
    /// The state after a superstep that changed it.
    Values(StateRef),
    /// What a node wrote.
    Updates { node: String, update: Map, cached: bool },
    /// A run stopped at these questions, or at a breakpoint if there are none.
    Interrupts(Vec<Interrupt>),
}

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventMask {
    pub(crate) values: bool,
    pub(crate) updates: bool,
}

/// What a run starts with.
pub(crate) enum Start {
    Input(Writes),
    Command(Command),
    Continue,
}

/// What a run is asked to do.
pub(crate) struct Request {
    pub(crate) start: Start,
    pub(crate) recursion_limit: u64,
    pub(crate) interrupt_before: Option<Breakpoints>,
    pub(crate) interrupt_after: Option<Breakpoints>,
    pub(crate) events: EventMask,
    /// Where the run is recorded; `None` without a store.
    pub(crate) recording: Option<Recording>,
    pub(crate) seed: u64,
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
    /// Whether the run was started at a checkpoint that the caller named.
    pub(crate) addressed: bool,
}

/// How far a run has come.
pub(crate) enum Status {
    Running,
    Done,
    /// It waits for answers; for none at a breakpoint.
    Interrupted(Vec<Interrupt>),
    Failed(RunError),
}
