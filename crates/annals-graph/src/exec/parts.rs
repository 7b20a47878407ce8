//! The parts of the machine, each with its own invariants. *Absent:* decisions that concern more than one part.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::base::{CheckpointId, Namespace};
use crate::graph::{Breakpoints, Graph, VALUE};
use crate::state::StateRef;
use crate::store::batch::{Batch, Expect, NewCheckpoint, NewTimer, NewWrites};
use crate::task::{Context, Interrupt, Scope, StepTime, StoredCall};

use super::before::Before;
use super::call::CallWrites;
use super::effect::{Event, EventKind, EventMask, Recording, Request};
use super::exit::Saving;
use super::head::Head;
use super::show::ShownFields;
use super::task::{StepTask, TaskStatus};

/// The surroundings of a graph: the parts that it shares with the run, and the task that it runs in. Invariant: a
/// subgraph has a namespace and a task above it; the outermost graph has neither.
pub(super) struct Environment {
    pub(super) namespace: Namespace,
    pub(super) scope: Arc<Scope>,
    /// The task that it runs in.
    pub(super) above: Option<Context>,
    /// True once its tasks are abandoned.
    pub(super) over: Arc<AtomicBool>,
    /// The reason of its cancellation, if it was cancelled.
    pub(super) cancelled: Option<String>,
    /// True if resume values must match open interrupts.
    pub(super) strict_resume: bool,
}

impl Environment {
    pub(super) fn new(request: Request) -> Self {
        let Request { namespace, scope, above, strict_resume, .. } = request;
        debug_assert!(namespace.is_root() || above.is_some(), "a subgraph runs in a task");
        Self { namespace, scope, above, over: Arc::default(), cancelled: None, strict_resume }
    }

    /// Returns whether a superstep of a parent graph has a deadline.
    pub(super) fn is_timed(&self) -> bool {
        self.above.as_ref().is_some_and(|above| above.life().is_timed())
    }

    /// Returns the superstep of a parent graph that timed out.
    pub(super) fn late(&self) -> Option<&Arc<StepTime>> {
        self.above.as_ref()?.life().late()
    }
}

/// The state that the run began on. Invariant: the checkpoints never change while it runs.
pub(super) struct Origin {
    /// The checkpoint that was loaded.
    pub(super) checkpoint: Option<CheckpointId>,
    /// The checkpoint before the one that was loaded.
    pub(super) parent: Option<CheckpointId>,
    /// The lists of the state before the run.
    pub(super) before: Before,
}

impl Origin {
    pub(super) fn of(head: &Head) -> Self {
        let checkpoint = head.checkpoint.map(|checkpoint| checkpoint.id);
        Self { checkpoint, parent: head.parent, before: Before::default() }
    }
}

/// The present superstep and its tasks. Invariant: a task keeps its position until its superstep ends; the tasks of a
/// new plan have to run.
pub(super) struct Planning {
    pub(super) tasks: Vec<StepTask>,
    /// The number of the superstep.
    pub(super) step: i64,
    /// The superstep at which the run reaches its limit.
    pub(super) stop: i64,
    pub(super) recursion_limit: u64,
    /// The time limit of each superstep.
    pub(super) step_timeout: Option<Duration>,
    /// The time of the superstep, if that is limited.
    pub(super) within: Option<Arc<StepTime>>,
    pub(super) before: Breakpoints,
    pub(super) after: Breakpoints,
    /// True until the first superstep has ended, if the run continues an earlier one.
    pub(super) resuming: bool,
    /// True if the stored results of the tasks are ignored: the run replays an old checkpoint.
    pub(super) replaying: bool,
    /// True if the run repeats an earlier one with its idempotency key.
    pub(super) repeats: bool,
}

impl Planning {
    pub(super) fn new(graph: &Graph, head: &Head, request: &mut Request) -> Self {
        let given = |breakpoints: &mut Option<Breakpoints>| breakpoints.take().filter(|given| !given.is_empty());
        let before = given(&mut request.interrupt_before).unwrap_or_else(|| graph.interrupt_before.clone());
        let after = given(&mut request.interrupt_after).unwrap_or_else(|| graph.interrupt_after.clone());
        let (step, recursion_limit) = (head.step() + 1, request.recursion_limit);
        let stop = step.saturating_add_unsigned(recursion_limit).saturating_add(1);
        debug_assert!(step < stop, "a run may take a superstep");
        Self {
            tasks: Vec::new(),
            step,
            stop,
            recursion_limit,
            step_timeout: request.step_timeout,
            within: None,
            before,
            after,
            resuming: false,
            replaying: false,
            repeats: false,
        }
    }

    /// Returns whether the run has used up its supersteps.
    pub(super) fn is_past_limit(&self) -> bool {
        self.step > self.stop
    }

    /// Returns whether a task has to run.
    pub(super) fn is_due(&self) -> bool {
        self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Due))
    }

    /// Returns whether a task runs or has to run.
    pub(super) fn is_open(&self) -> bool {
        self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Due))
    }

    /// Returns whether a task waits for a resume value, or at a breakpoint of its subgraph.
    pub(super) fn is_waiting(&self) -> bool {
        self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Waiting(_)))
    }

    /// Returns whether the input is the only task.
    pub(super) fn is_input_only(&self) -> bool {
        matches!(self.tasks.as_slice(), [task] if task.node.is_none() && task.push.is_none())
    }

    /// Returns whether one of the tasks is at a breakpoint.
    pub(super) fn hits(&self, breakpoints: &Breakpoints) -> bool {
        let hit = |task: &StepTask| task.node.is_some_and(|node| breakpoints.all || breakpoints.nodes.contains(&node));
        !breakpoints.is_empty() && self.tasks.iter().any(hit)
    }

    /// Returns the interrupts at which the tasks wait. Of a subgraph they include those of called tasks: its parent
    /// graph sees no other record of them, and a resume value must tell them apart.
    pub(super) fn open_interrupts(&self, is_outermost: bool) -> Vec<Interrupt> {
        let mut open: Vec<Interrupt> = Vec::new();
        for task in &self.tasks {
            let TaskStatus::Waiting(interrupts) = &task.status else { continue };
            let of_calls = if is_outermost { &[] } else { task.asked_by_calls.as_slice() };
            for interrupt in of_calls.iter().chain(interrupts) {
                if of_calls.is_empty() || open.iter().all(|known| known.id != interrupt.id) {
                    open.push(interrupt.clone());
                }
            }
        }
        open
    }
}

/// The results of called tasks. Invariant: `writes` are in the order of their paths, one for each called task.
#[derive(Default)]
pub(super) struct CalledTasks {
    /// Unstored writes of called tasks, which are stored even if the superstep does not end.
    pub(super) unsaved: Vec<NewWrites>,
    /// The writes of called tasks to the channels of the graph in this superstep.
    pub(super) writes: Vec<CallWrites>,
    /// The stored calls of the first superstep, if the run continues an earlier one.
    pub(super) stored: Option<Arc<Vec<StoredCall>>>,
}

impl CalledTasks {
    /// Inserts the writes of a call in the order of the paths. A repeated call replaces its earlier writes.
    pub(super) fn note(&mut self, wrote: CallWrites) {
        self.writes.retain(|known| known.task != wrote.task);
        let at = self.writes.partition_point(|known| known.path < wrote.path);
        self.writes.insert(at, wrote);
        debug_assert!(
            self.writes.is_sorted_by(|a, b| a.path <= b.path),
            "writes of calls are in the order of their paths"
        );
    }
}

/// The commits of the run. Invariant: each batch builds on the head that the one before it leaves; checkpoints are
/// handed out in the order in which they were made.
pub(super) struct Commits {
    /// The store location of the run; `None` without a store.
    pub(super) recording: Option<Recording>,
    pub(super) saving: Saving,
    /// The head that the next batch builds on.
    pub(super) head: Option<CheckpointId>,
    /// Checkpoints that were made and not handed out yet.
    pub(super) outbox: Vec<NewCheckpoint>,
    /// The checkpoint that is retained until the run ends; the one of each superstep is folded into it.
    pub(super) retained: Option<NewCheckpoint>,
    /// The writes of commands that are not stored and that no checkpoint holds yet.
    pub(super) unsaved: Vec<NewWrites>,
    /// The timers of the tasks whose writes are stored next.
    pub(super) timers: Vec<NewTimer>,
    /// The number of batches that were handed out and not reported committed.
    pub(super) unreported: usize,
}

impl Commits {
    pub(super) fn new(request: &mut Request) -> Self {
        let recording = request.recording.take();
        let head = recording.as_ref().and_then(|recording| recording.head);
        Self {
            recording,
            saving: request.saving,
            head,
            outbox: Vec::new(),
            retained: None,
            unsaved: Vec::new(),
            timers: Vec::new(),
            unreported: 0,
        }
    }

    /// Returns whether the run is stored.
    pub(super) fn records(&self) -> bool {
        self.recording.is_some()
    }

    /// Returns whether each superstep is stored, and not only the last one.
    pub(super) fn stores_steps(&self) -> bool {
        self.records() && self.saving == Saving::Steps
    }

    /// Returns whether every checkpoint that was made has been handed out.
    pub(super) fn holds_nothing(&self) -> bool {
        self.outbox.is_empty() && self.retained.is_none()
    }

    /// Makes the next batch; `None` if the run is not stored.
    pub(super) fn batch(&mut self, checkpoints: Vec<NewCheckpoint>, writes: Vec<NewWrites>) -> Option<Batch> {
        let recording = self.recording.as_ref()?;
        debug_assert!(!checkpoints.is_empty() || !writes.is_empty(), "a batch stores something");
        debug_assert!(checkpoints.is_sorted_by(|a, b| a.id < b.id), "checkpoints are handed out as they were made");
        debug_assert!(
            checkpoints.first().is_none_or(|first| self.head.is_none_or(|head| first.id > head)),
            "a checkpoint is newer than the head that its batch builds on"
        );
        let mut batch = Batch::new(recording.thread.clone(), recording.namespace.clone(), self.head);
        // A commit of a subgraph counts only as long as its parent graphs stand where they stood.
        let around = recording.around.iter().cloned();
        batch.expect.extend(around.map(|(namespace, head)| Expect::new(namespace, head)));
        // Those of a superstep that has ended went with it.
        let timers = std::mem::take(&mut self.timers);
        batch.timers = if checkpoints.is_empty() { timers } else { Vec::new() };
        batch.checkpoints = checkpoints;
        batch.writes = writes;
        self.head = batch.head_after();
        self.unreported += 1;
        Some(batch)
    }

    /// Notes that a batch is committed, or that the run need not wait for it.
    pub(super) fn reported(&mut self) {
        debug_assert!(self.unreported > 0, "a commit is reported after it was handed out");
        self.unreported = self.unreported.saturating_sub(1);
    }
}

/// The stream events of the run. Invariant: an event is built only if its mode is subscribed.
pub(super) struct Showing {
    pub(super) events: VecDeque<Event>,
    /// The subscribed modes.
    pub(super) wants: EventMask,
    /// The fields that the outside sees; `None` are all.
    pub(super) output: Option<Arc<[usize]>>,
    pub(super) fields: ShownFields,
    /// The state that an interrupted run shows, if that is not the one of its head.
    pub(super) interrupted: Option<(StateRef, Vec<(usize, bool)>)>,
    /// Subgraphs only: the last streamed state, returned instead of `head.state`, whose ephemeral channels may already
    /// be cleared.
    pub(super) returned: Option<(StateRef, Vec<bool>)>,
    /// For each field whether the stream knows its messages: a task has read them, and those written since were shown.
    pub(super) known: Vec<bool>,
}

impl Showing {
    pub(super) fn new(graph: &Graph, request: &mut Request) -> Self {
        Self {
            events: VecDeque::new(),
            wants: request.events,
            output: request.output.take(),
            fields: ShownFields::new(&graph.layout),
            interrupted: None,
            returned: None,
            known: vec![false; graph.layout.len()],
        }
    }

    /// Returns whether the outside is shown a field.
    pub(super) fn is_output(&self, graph: &Graph, field: usize) -> bool {
        match &self.output {
            _ if graph.entry => field == VALUE as usize,
            Some(fields) => fields.contains(&field),
            None => true,
        }
    }

    /// Adds an event.
    pub(super) fn emit(&mut self, namespace: &Namespace, kind: EventKind) {
        self.events.push_back(Event { namespace: namespace.clone(), kind });
    }
}
