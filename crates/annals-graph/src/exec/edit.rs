//! Changing a state from outside: the supersteps of `update_state` and `bulk_update_state`.

use std::sync::Arc;
use std::time::Duration;

use crate::base::NULL_TASK;
use crate::base::{CheckpointId, Encoded, IdSource, TaskId, Timestamp, Value};
use crate::graph::{Graph, NodeOutput, PathFuture, START};
use crate::state::Writes;
use crate::state::erased::resolve;
use crate::store::Source;
use crate::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, NewWrite, NewWrites, Parent, Seen};
use crate::task::{Context, ContextParts, Life, NodePlace, Scope, StepAt};

use super::apply::{Changes, apply, apply_untasked};
use super::call::stored_call_writes;
use super::effect::Recording;
use super::error::RunError;
use super::exit::hold;
use super::head::{Head, HeadCheckpoint};
use super::input::input_value;
use super::leave::{PathResult, run_as};
use super::load::task_writes;
use super::plan::{Order, plan};
use super::save::new_writes;
use super::task::{StepTask, TaskJob, TaskStatus};

/// The supersteps that the conditional edges of an update see as left, as in the reference.
const STEPS_LEFT: i64 = 2;

/// A change to be made as if a node had made it.
pub(crate) struct NodeEdit {
    pub(crate) output: NodeOutput,
    /// The node; `None` is the input.
    pub(crate) node: Option<usize>,
    /// The task that is said to have made it; else the first one of the node that is due.
    pub(crate) task: Option<TaskId>,
}

/// The content of a copy of a checkpoint: the changes that the checkpoint itself recorded, on the same parent.
pub(crate) struct Copied {
    pub(crate) parent: Option<Parent>,
    pub(crate) changes: Vec<Change>,
    pub(crate) seen: Vec<Seen>,
}

/// Makes supersteps on a head, one after another, without running a node. All of them go into one batch.
pub(crate) struct Editor<'a> {
    graph: &'a Arc<Graph>,
    head: Head,
    recording: Recording,
    batch: Batch,
    ids: IdSource,
    now: Timestamp,
    /// Awaits a conditional edge.
    wait: &'a dyn Fn(PathFuture) -> PathResult,
}

/// Finds the node an update is made as: the one that was named, or the one that wrote last. `None` is the input.
pub(crate) fn as_node(graph: &Graph, head: &Head, name: Option<&str>) -> Result<Option<usize>, RunError> {
    let known = || graph.nodes.iter().map(|node| node.name.to_string()).collect();
    match name {
        Some(START) => return Ok(None),
        Some(name) => {
            let node = graph.by_name.get(name).copied();
            let unknown = || RunError::UnknownNode { node: name.to_owned(), known: known() };
            return node.map(Some).ok_or_else(unknown);
        }
        None if graph.entry => return Ok(Some(0)),
        None => {}
    }
    // Every trigger a node has seen counts: the same version seen twice is not told apart, as in the reference.
    let nodes = head.seen.iter().enumerate();
    let mut seen: Vec<(u64, Option<usize>)> = nodes
        .flat_map(|(node, seen)| seen.iter().flatten().map(move |(_, version)| (*version, Some(node))))
        .chain((head.input_seen > 0).then_some((head.input_seen, None)))
        .collect();
    seen.sort_unstable();
    match seen.as_slice() {
        [] => Ok(None),
        [.., (before, _), (newest, _)] if before == newest => Err(RunError::AmbiguousUpdate { candidates: known() }),
        [.., (_, node)] => Ok(*node),
    }
}

impl<'a> Editor<'a> {
    pub(crate) fn new(
        graph: &'a Arc<Graph>,
        head: Head,
        recording: Recording,
        seed: u64,
        now: Timestamp,
        wait: &'a dyn Fn(PathFuture) -> PathResult,
    ) -> Self {
        let batch = Batch::new(recording.thread.clone(), recording.namespace.clone(), recording.head);
        Self { graph, head, recording, batch, ids: IdSource::from_seed(seed), now, wait }
    }

    /// Returns the head as it is now.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the content for a copy of the last checkpoint that was made here.
    pub(crate) fn last(&self) -> Option<Copied> {
        let last = self.batch.checkpoints.last()?;
        Some(Copied { parent: last.parent.clone(), changes: last.changes.clone(), seen: last.seen.clone() })
    }

    /// Returns the batch with everything that was made, and the head after it.
    pub(crate) fn finish(self) -> (Batch, Head) {
        (self.batch, self.head)
    }

    /// Makes one superstep of changes that nodes are said to have made. Each is made on the state before it.
    pub(crate) fn nodes(&mut self, edits: Vec<NodeEdit>) -> Result<(), RunError> {
        let step = self.head.step().max(-1) + 1;
        let mut due = self.due();
        let mut tasks = Vec::with_capacity(edits.len());
        let mut written: Vec<(TaskId, Arc<str>, Vec<NewWrite>)> = Vec::with_capacity(edits.len());
        for (at, edit) in edits.into_iter().enumerate() {
            let prepared = due.iter().position(|task| task.node == edit.node).map(|at| due.remove(at));
            let path = prepared.as_ref().map(|task| task.path(self.graph));
            let path = path.unwrap_or_else(|| format!("~__interrupt__, {at:010}").into());
            let wanted = edit.task.or(prepared.map(|task| task.id));
            let free = wanted.filter(|id| written.iter().all(|(task, ..)| task != id));
            let id = free.unwrap_or_else(|| TaskId::from_bytes(self.ids.uuid_v4().into_bytes()));
            // Like a send it has seen no trigger and empties no join, and changes apply in the order given.
            let mut task = StepTask::new(id, edit.node, Some((at as u32, Value::Null)));
            let seed = self.ids.random();
            let output = match edit.node {
                Some(_) => edit.output,
                None => edit.output.resolved(&*self.graph.layout)?,
            };
            let mut writes = run_as(&self.job(&task, step, seed), output, self.wait)?;
            written.push((id, path, new_writes(self.graph, &mut writes)));
            task.status = TaskStatus::Done(writes);
            tasks.push(task);
        }
        let base = self.head.checkpoint;
        let last = self.batch.head_after();
        let mut consumed = Vec::new();
        let mut held = Vec::new();
        for (task, path, writes) in written {
            let finished = self.head.pending_of(task).is_some_and(|pending| pending.is_finished());
            let checkpoint = base.map(|base| base.id).unwrap_or_default();
            let writes = NewWrites::new(checkpoint, task, path).with(writes);
            match base {
                // Stored writes of a finished task are not replaced, and the past of a thread that has moved on does
                // not change.
                Some(base) if Some(base.id) == last && !finished && !writes.writes.is_empty() => consumed.push(writes),
                _ => held.push(writes),
            }
        }
        let mut changes = Changes::default();
        apply(self.graph, &mut self.head, &mut tasks, Vec::new(), &mut changes, true)?;
        self.checkpoint(Source::Update, step, base.map(|base| Parent::Local(base.id)), consumed, changes, &held);
        Ok(())
    }

    /// Ends the superstep that is due with what its tasks have stored; nothing is due after it.
    pub(crate) fn clear(&mut self) -> Result<(), RunError> {
        let (base, step) = (self.head.checkpoint, self.head.step().max(-1) + 1);
        let mut changes = Changes::default();
        let mut tasks = self.due();
        for task in &mut tasks {
            if let Some(pending) = self.head.pending_of(task.id).filter(|pending| pending.is_finished()) {
                task.status = TaskStatus::Done(task_writes(self.graph, pending)?);
            }
        }
        if let Some(pending) = self.head.pending_of(NULL_TASK) {
            let writes = task_writes(self.graph, pending)?;
            apply_untasked(self.graph, &mut self.head, writes, NULL_TASK, &mut changes, true)?;
        }
        if !tasks.is_empty() {
            let calls = stored_call_writes(self.graph, &self.head)?;
            apply(self.graph, &mut self.head, &mut tasks, calls, &mut changes, true)?;
        }
        self.checkpoint(Source::Update, step, base.map(|base| Parent::Local(base.id)), Vec::new(), changes, &[]);
        Ok(())
    }

    /// Gives the graph an input without running it. Tasks that were due stay due.
    pub(crate) fn input(&mut self, writes: Writes) -> Result<(), RunError> {
        let (base, graph) = (self.head.checkpoint, self.graph);
        let writes = resolve(&*graph.layout, writes)?;
        let mut changes = Changes::default();
        let (step, parent) = (self.head.step() + 1, base.map(|base| Parent::Local(base.id)));
        if graph.entry {
            super::entry::take(graph, &mut self.head, writes, &mut changes)?;
            self.checkpoint(Source::Input, step, parent, Vec::new(), changes, &[]);
            return Ok(());
        }
        let writes = NodeOutput::update(writes);
        let held = input_value(graph, &writes)?;
        let input = graph.input();
        self.head.version_max += 1;
        self.head.versions[input as usize] = self.head.version_max;
        self.head.present[input as usize] = true;
        self.head.input = Some(writes);
        changes.note(input, ChangeValue::Value(Data::New(Encoded::encode(&held)?.into())), None);
        self.checkpoint(Source::Input, step, parent, Vec::new(), changes, &[]);
        Ok(())
    }

    /// Makes a sibling of the head with the same state; nothing that its tasks have stored is taken along.
    pub(crate) fn copy(&mut self, mut copied: Copied) -> Result<(), RunError> {
        let input = self.graph.input();
        if let (Some(writes), true) = (&self.head.input, self.head.present[input as usize]) {
            // The writes that may hold the input stay with the original.
            let held = Encoded::encode(&input_value(self.graph, writes)?)?;
            let name = &self.graph.channels[input as usize];
            for change in copied.changes.iter_mut().filter(|change| change.channel == *name) {
                change.value = ChangeValue::Value(Data::New(held.clone().into()));
            }
        }
        let step = self.head.step() + 1;
        self.push(Source::Fork, step, copied.parent, Vec::new(), (copied.changes, copied.seen));
        Ok(())
    }

    fn due(&self) -> Vec<StepTask> {
        let Some(base) = self.head.checkpoint else { return Vec::new() };
        plan(self.graph, &self.head, base.id, &self.recording.namespace, base.step + 1, Order::Listed)
    }

    fn job(&self, task: &StepTask, step: i64, seed: u64) -> TaskJob {
        let place = NodePlace { graph: Arc::clone(self.graph), node: task.node, push: None, call: None, around: None };
        let at = StepAt { step, stop: step + STEPS_LEFT, now: self.now };
        let life = Life::new(None, Arc::default(), None, None);
        let mut parts = ContextParts::new(task.id, task.name(self.graph).into(), place, at, Scope::detached(), life);
        parts.thread = Some(self.recording.thread.clone());
        parts.namespace.clone_from(&self.recording.namespace);
        parts.checkpoint = self.head.checkpoint.map(|base| base.id);
        TaskJob {
            slot: 0,
            node: task.node,
            given_as: task.node,
            arg: None,
            input: None,
            state: match self.graph.schemas.managed {
                true => self.graph.layout.with_managed(&self.head.state, STEPS_LEFT),
                false => Arc::clone(&self.head.state),
            },
            present: None,
            context: Context::new(parts),
            record: true,
            is_stored: false,
            seed,
            after: Duration::ZERO,
        }
    }

    fn checkpoint(
        &mut self,
        source: Source,
        step: i64,
        parent: Option<Parent>,
        consumed: Vec<NewWrites>,
        mut changes: Changes,
        held: &[NewWrites],
    ) {
        let (mut changes, seen) = changes.take(self.graph, &self.head);
        hold(&mut changes, held);
        self.push(source, step, parent, consumed, (changes, seen));
    }

    fn push(
        &mut self,
        source: Source,
        step: i64,
        parent: Option<Parent>,
        consumed: Vec<NewWrites>,
        (changes, seen): (Vec<Change>, Vec<Seen>),
    ) {
        let after: Option<CheckpointId> = self.head.checkpoint.map(|base| base.id).max(self.batch.head_after());
        let id = self.ids.checkpoint(self.now, step, after.as_ref());
        self.head.parent = match &parent {
            Some(Parent::Local(parent)) => Some(*parent),
            _ => None,
        };
        self.head.metadata.clone_from(&self.recording.metadata);
        self.head.parents = Arc::clone(&self.recording.parents);
        self.head.checkpoint = Some(HeadCheckpoint { id, step, source });
        self.head.updated = None;
        self.head.pending.clear();
        let due = plan(self.graph, &self.head, id, &self.recording.namespace, step + 1, Order::Run);
        self.head.recorded = due.iter().map(|task| task.id).collect();
        self.head.due.clear();
        self.head.reset_untracked(self.graph);
        // Without a run: the channels that an edit changed do not tell which nodes are due.
        let mut checkpoint = NewCheckpoint::new(id, parent, step, source, self.now);
        checkpoint.metadata.clone_from(&self.recording.metadata);
        checkpoint.parents = Arc::clone(&self.recording.parents);
        checkpoint.tasks = due.iter().map(|task| task.record(self.graph)).collect();
        (checkpoint.consumed, checkpoint.changes, checkpoint.seen) = (consumed, changes, seen);
        self.batch.checkpoints.push(checkpoint);
    }
}
