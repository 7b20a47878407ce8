//! The decoded state of a namespace: a run works on it, and a handle retains it for the next run.

use annals_runs::SpecialWrite;
use std::fmt;
use std::sync::Arc;

use super::barrier::Barrier;
use crate::base::NULL_TASK;
use crate::base::{CheckpointId, ListRef, Namespace, TaskId, WriteValue};
use crate::graph::{Graph, Join, NodeOutput, SendTo};
use crate::state::{FieldKind, StateRef};
use crate::store::Source;
use crate::task::Interrupt;

use super::load::interrupts_of;

/// A decoded checkpoint. All channels are there by number, with their versions.
#[derive(Clone)]
pub(crate) struct Head {
    /// The checkpoint it is the state of; none on a new thread.
    pub(crate) checkpoint: Option<HeadCheckpoint>,
    /// The checkpoint that this one builds on.
    pub(crate) parent: Option<CheckpointId>,
    /// The metadata that the caller gave to its run: the text of a JSON object.
    pub(crate) metadata: Option<String>,
    /// The parent graphs, outermost first, and their checkpoints when this one was made.
    pub(crate) parents: Arc<[(Namespace, CheckpointId)]>,
    pub(crate) state: StateRef,
    /// For each channel: true if it holds a value.
    pub(crate) present: Vec<bool>,
    /// The version of each channel; 0 if it was never written.
    pub(crate) versions: Vec<u64>,
    /// The greatest version of all, those of channels this graph does not know included.
    pub(crate) version_max: u64,
    pub(crate) barriers: Vec<Barrier>,
    /// For each deferred node: true if its trigger was released, as no other node was left to run.
    pub(crate) finished: Vec<bool>,
    pub(crate) sends: Vec<SendTo>,
    /// The input that waits for its first superstep. Its writes are resolved.
    pub(crate) input: Option<NodeOutput>,
    /// For each node that ran: the trigger versions it saw.
    pub(crate) seen: Vec<Option<Vec<(u32, u64)>>>,
    /// The version of the input channel that was seen.
    pub(crate) input_seen: u64,
    /// The channel versions at the last continuation, for breakpoints.
    pub(crate) interrupt_seen: Vec<(u32, u64)>,
    /// The channels that the checkpoint changed; `None` if it does not say (an update, a fork).
    pub(crate) updated: Option<Vec<u32>>,
    /// The tasks that the checkpoint records; stored changes refer to them as their authors.
    pub(crate) recorded: Vec<TaskId>,
    /// The nodes of these tasks, of a head that was read from the store: the graph may have changed since.
    pub(crate) due: Vec<Arc<str>>,
    /// The joins that some of their nodes have reached since the last input, and which the graph does not have.
    pub(crate) lost_joins: Vec<LostJoin>,
    /// The stored writes of its tasks.
    pub(crate) pending: Vec<PendingWrites>,
    /// The lists that began as lists of the parent graph, and where these are stored.
    pub(crate) shared: Vec<(u32, Option<ListRef>)>,
    /// The list fields that are stored as one value, by a graph before: their first change stores all items.
    pub(crate) stored_whole: Vec<u32>,
    /// About how many bytes the state holds.
    pub(crate) bytes: usize,
}

/// The checkpoint of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadCheckpoint {
    pub(crate) id: CheckpointId,
    pub(crate) step: i64,
    pub(crate) source: Source,
}

/// A join that was stored by a graph before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostJoin {
    pub(crate) channel: Arc<str>,
    /// The nodes that have reached it.
    pub(crate) arrived: Vec<String>,
}

/// Stored writes of one task.
#[derive(Clone, Debug)]
pub(crate) struct PendingWrites {
    pub(crate) task: TaskId,
    /// The path of the task: its position among the tasks of its superstep.
    pub(crate) path: Arc<str>,
    pub(crate) writes: Vec<PendingWrite>,
}

/// A stored write.
#[derive(Clone, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) index: i32,
    pub(crate) channel: Arc<str>,
    pub(crate) value: WriteValue,
    /// For a delta, the list that it is relative to.
    pub(crate) base: Option<DeltaBase>,
}

/// The list that a stored delta is relative to.
#[derive(Clone)]
pub(crate) struct DeltaBase {
    /// A [`List`](crate::state::List).
    pub(crate) list: StateRef,
    /// True if the list is that of the same channel, at the same checkpoint.
    pub(crate) is_own: bool,
}

impl fmt::Debug for DeltaBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaBase").field("is_own", &self.is_own).finish_non_exhaustive()
    }
}

/// The channel of the write of a task without writes: with it the task counts as finished.
pub(crate) const NO_WRITES: &str = "__no_writes__";
/// The pseudo node under which breakpoints store the channel versions that they have seen.
pub(crate) const INTERRUPT_SEEN: &str = "__interrupt__";

impl Head {
    /// Returns the head of a thread without checkpoints.
    pub(crate) fn empty(graph: &Graph) -> Self {
        let channels = graph.channels.len();
        let mut present = vec![false; channels];
        for (field, present) in present.iter_mut().enumerate().take(graph.layout.len()) {
            *present = graph.layout.starts_present(field);
        }
        Self {
            checkpoint: None,
            parent: None,
            metadata: None,
            parents: [].into(),
            state: graph.layout.initial(),
            present,
            versions: vec![0; channels],
            version_max: 0,
            barriers: graph.joins.iter().map(|join| barrier(graph, join)).collect(),
            finished: vec![false; graph.deferred.len()],
            sends: Vec::new(),
            input: None,
            seen: vec![None; graph.nodes.len()],
            input_seen: 0,
            interrupt_seen: Vec::new(),
            updated: None,
            recorded: Vec::new(),
            due: Vec::new(),
            lost_joins: Vec::new(),
            pending: Vec::new(),
            shared: Vec::new(),
            stored_whole: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns whether a channel holds something that can be read.
    pub(crate) fn available(&self, graph: &Graph, channel: u32) -> bool {
        match graph.join_of(channel) {
            Some(join) => self.barriers[join].is_open(),
            None => self.present[channel as usize] && graph.deferral_of(channel).is_none_or(|at| self.finished[at]),
        }
    }

    /// Empties the untracked channels: their values last for one run or one update, also if the next run finds the head
    /// in memory.
    pub(crate) fn reset_untracked(&mut self, graph: &Graph) {
        for field in 0..graph.layout.len() {
            if self.present[field] && graph.layout.kind(field) == FieldKind::Untracked {
                graph.layout.reset(&mut self.state, field);
                self.present[field] = graph.layout.starts_present(field);
            }
        }
    }

    /// Returns whether no channel was ever written: the thread has no checkpoint, or one of an update that wrote
    /// nothing.
    pub(crate) fn is_blank(&self) -> bool {
        self.version_max == 0
    }

    /// Returns the step of the checkpoint, -2 on a new thread.
    pub(crate) fn step(&self) -> i64 {
        self.checkpoint.map_or(-2, |checkpoint| checkpoint.step)
    }

    /// Returns the open interrupts, by their ids.
    pub(crate) fn open(&self) -> Vec<Interrupt> {
        self.interrupts_where(|pending| !pending.is_finished())
    }

    /// Returns whether all open interrupts are sleeps, and there is one.
    pub(crate) fn is_asleep(&self) -> bool {
        let open = self.open();
        !open.is_empty() && open.iter().all(|interrupt| interrupt.wake_at.is_some())
    }

    /// Returns the interrupts of its tasks, open or not, by their ids.
    pub(crate) fn asked(&self) -> Vec<Interrupt> {
        self.interrupts_where(|_| true)
    }

    fn interrupts_where(&self, of: impl Fn(&PendingWrites) -> bool) -> Vec<Interrupt> {
        let pending = self.pending.iter().filter(|pending| pending.task != NULL_TASK && of(pending));
        let mut interrupts: Vec<Interrupt> = pending.flat_map(interrupts_of).collect();
        interrupts.sort_by(|a, b| a.id.cmp(&b.id));
        interrupts.dedup_by(|a, b| a.id == b.id);
        interrupts
    }

    /// Returns the stored writes of a task.
    pub(crate) fn pending_of(&self, task: TaskId) -> Option<&PendingWrites> {
        self.pending.iter().find(|pending| pending.task == task)
    }
}

fn barrier(graph: &Graph, join: &Join) -> Barrier {
    let barrier = Barrier::new(join.names.iter().cloned());
    if graph.nodes[join.node].settings.defer { barrier.deferred() } else { barrier }
}

impl PendingWrites {
    /// Returns whether the task has ended: it has writes besides errors, interrupts and resume values.
    pub(crate) fn is_finished(&self) -> bool {
        self.writes.iter().any(|write| write.index >= 0)
    }

    /// Returns whether an error of the task is stored that was not cleared.
    pub(crate) fn has_error(&self) -> bool {
        self.writes.iter().any(|write| write.index == SpecialWrite::Error.index() && write.value != WriteValue::Null)
    }

    /// Returns whether the task was made due from outside: its error or its interrupts were cleared.
    pub(crate) fn is_woken(&self) -> bool {
        let is_cleared = |write: &PendingWrite| write.value == WriteValue::Null;
        self.writes.iter().any(|write| {
            [SpecialWrite::Error.index(), SpecialWrite::Interrupt.index()].contains(&write.index) && is_cleared(write)
        })
    }
}

#[cfg(test)]
mod tests;
