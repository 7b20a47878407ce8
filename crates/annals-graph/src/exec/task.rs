//! A task is one execution of one node: its identity, its input and its outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{CheckpointId, Encoded, IdSource, Map, Namespace, Payload, TaskId, Timestamp, Value, WriteValue};
use crate::graph::{
    BoxError, Command, END, GivenFields, Graph, NodeInput, NodeOutput, NodeResult, Outgoing, START, SendTo, Takes,
    Target,
};
use crate::hash;
use crate::panicking::panic_text;
use crate::state::erased::resolve;
use crate::state::{BoxWrite, FieldKind, StateRef, Writes};
use crate::store::record::{TaskKind, TaskRecord};
use crate::task::{Cancelled, Context, Interrupt, Interrupted, Signal, TaskInfo, holds};

use super::error::RunError;
use super::leave::{Closing, PathWait, close};
use super::retry::Extra;

/// A task of the present superstep.
pub(crate) struct StepTask {
    pub(crate) id: TaskId,
    /// The node; `None` is the input.
    pub(crate) node: Option<usize>,
    /// The position and argument of a send.
    pub(crate) push: Option<(u32, Value)>,
    pub(crate) status: TaskStatus,
    /// True if its writes are stored.
    pub(crate) saved: bool,
    /// True if its writes were stored before this run.
    pub(crate) restored: bool,
    /// Its resume values so far.
    pub(crate) resume_values: Vec<Value>,
    /// True if one of the resume values came with this run and is not stored yet.
    pub(crate) resumed: bool,
    /// True if it failed after it read a resume value.
    pub(crate) asked: bool,
    /// True if its writes are those of a command of a subgraph.
    pub(super) relays: bool,
    /// True if a message of the task was persisted while it was streamed.
    pub(super) streamed: bool,
    /// The time at which it ended, if the run records it.
    pub(super) ended: Option<Timestamp>,
    /// The open interrupts of the tasks it has called.
    pub(super) asked_by_calls: Vec<Interrupt>,
    /// The state that only some tasks need.
    pub(crate) extra: Option<Box<Extra>>,
    /// The task as its start event shows it, if that was built.
    pub(super) info: Option<TaskInfo>,
    /// True once the stream was told which messages it is given.
    pub(super) told_read: bool,
}

/// The progress of a task.
pub(crate) enum TaskStatus {
    /// It has to run.
    Due,
    /// It runs.
    Running,
    /// It has ended, with these writes.
    Done(Vec<TaskWrite>),
    /// It waits for resume values; for none at a breakpoint of its subgraph.
    Waiting(Vec<Interrupt>),
    /// It ended with a command for the parent graph.
    Left(Box<Command>),
    /// Its subgraph was drained, for this reason.
    Drained(String),
    /// The run was cancelled before it had ended.
    Cancelled { reason: String, ran: bool },
    /// It failed for good, after these writes.
    Failed(RunError, Vec<TaskWrite>),
    /// It failed for good, after these writes, and another task of its superstep handles the failure: `own` is the
    /// message of the error that the node returned, as that task receives it.
    Handled { message: String, own: String, writes: Vec<TaskWrite> },
}

/// One write of a task.
pub(crate) struct TaskWrite {
    /// Its position in the task.
    pub(crate) index: i32,
    pub(crate) channel: u32,
    pub(crate) kind: WriteKind,
    /// The encoded value; `None` if it is stored already, or if the write is not stored.
    pub(crate) encoded: Option<WriteValue>,
}

/// The content of a write.
pub(crate) enum WriteKind {
    /// A value to a field; taken out when it is applied.
    Field(Option<BoxWrite>),
    /// Nothing, to a trigger.
    Trigger,
    /// The name of the node, to a join.
    Join(String),
    /// A send. It is far larger than the other writes.
    Send(Box<SendTo>),
}

/// A task with everything that a thread needs to run it.
pub(crate) struct TaskJob {
    /// The position of the task in its superstep.
    pub(crate) slot: usize,
    pub(crate) node: Option<usize>,
    /// The node whose input it is given: its own, or that of the node whose failure it handles.
    pub(crate) given_as: Option<usize>,
    pub(crate) arg: Option<Value>,
    /// The input, for the pseudo node that takes it.
    pub(crate) input: Option<NodeOutput>,
    pub(crate) state: StateRef,
    pub(crate) present: Option<Arc<[bool]>>,
    pub(crate) context: Context,
    /// True if the writes have to be encoded.
    pub(crate) record: bool,
    /// True if the state is that of its checkpoint, and the checkpoint is stored or about to be.
    pub(crate) is_stored: bool,
    pub(crate) seed: u64,
    /// The delay before it starts: the backoff after a failed attempt.
    pub(crate) after: Duration,
}

/// The outcome of a task.
pub(crate) enum TaskOutcome {
    Done {
        writes: Vec<TaskWrite>,
        resume_values: Vec<Value>,
        /// True if the writes are those of a command of a subgraph.
        relays: bool,
        /// True if a message of the task was persisted while it was streamed.
        streamed: bool,
    },
    Waiting {
        interrupts: Vec<Interrupt>,
        /// The open interrupts of the tasks it has called.
        of_calls: Vec<Interrupt>,
        resume_values: Vec<Value>,
    },
    Left(Box<Command>),
    Drained(String),
    /// The run was cancelled before it had ended, or before it ran at all.
    Cancelled {
        reason: String,
        ran: bool,
    },
    /// It failed: with writes, if that was in a conditional edge. The node itself has then ended, and is not run again.
    Failed {
        error: RunError,
        writes: Vec<TaskWrite>,
        /// Its resume values, if it read one before it failed.
        resume_values: Vec<Value>,
    },
}

impl StepTask {
    /// Makes a task that has to run.
    pub(crate) fn new(id: TaskId, node: Option<usize>, push: Option<(u32, Value)>) -> Self {
        Self {
            id,
            node,
            push,
            status: TaskStatus::Due,
            saved: false,
            restored: false,
            resume_values: Vec::new(),
            resumed: false,
            asked: false,
            relays: false,
            streamed: false,
            told_read: false,
            ended: None,
            asked_by_calls: Vec::new(),
            extra: None,
            info: None,
        }
    }

    pub(crate) fn name<'a>(&self, graph: &'a Graph) -> &'a str {
        self.node.map_or(START, |node| &graph.nodes[node].name)
    }

    /// Returns the task as a checkpoint records it.
    pub(crate) fn record(&self, graph: &Graph) -> TaskRecord {
        let kind = match (&self.push, self.node) {
            (Some((index, _)), _) => TaskKind::Push { index: *index },
            (None, Some(node)) => TaskKind::Pull { triggers: graph.nodes[node].trigger_names.clone() },
            (None, None) => TaskKind::Pull { triggers: vec![START.into()] },
        };
        let name = match self.node {
            Some(node) => Arc::clone(&graph.nodes[node].name),
            None => Arc::clone(&graph.channels[graph.input() as usize]),
        };
        TaskRecord::new(self.id, name, kind)
    }

    /// Returns the path under which its writes are stored, unless it handles a failure.
    pub(crate) fn path(&self, graph: &Graph) -> Arc<str> {
        match (&self.push, self.node) {
            (None, Some(node)) => Arc::clone(&graph.nodes[node].path),
            _ => self.record(graph).path(),
        }
    }

    /// Returns the sort key of the writes of a superstep: nodes by name, then sends by position.
    pub(crate) fn order<'a>(&self, graph: &'a Graph) -> (bool, u32, &'a str) {
        match &self.push {
            Some((index, _)) => (true, *index, ""),
            // A failure is handled in the place of its node.
            None => (false, 0, self.handles().map_or(self.name(graph), |handles| &graph.nodes[handles.node].name)),
        }
    }

    /// Returns its writes. A task that failed in a conditional edge has writes, too.
    pub(crate) fn writes(&self) -> &[TaskWrite] {
        match &self.status {
            TaskStatus::Done(writes) | TaskStatus::Handled { writes, .. } | TaskStatus::Failed(_, writes) => writes,
            _ => &[],
        }
    }

    /// Takes its writes out, to apply them.
    pub(crate) fn take_writes(&mut self) -> Vec<TaskWrite> {
        match &mut self.status {
            TaskStatus::Done(writes) | TaskStatus::Handled { writes, .. } => std::mem::take(writes),
            _ => Vec::new(),
        }
    }

    /// Returns the node whose input it is given.
    pub(crate) fn given_as(&self) -> Option<usize> {
        self.handles().map(|handles| handles.node).or(self.node)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.status, TaskStatus::Done(_))
    }
}

impl TaskJob {
    /// Returns the graph of its node.
    pub(crate) fn graph(&self) -> &Graph {
        &self.context.parts().place.graph
    }

    /// Returns the outgoing edges of its node.
    pub(super) fn out(&self) -> &Outgoing {
        self.node.map_or(&self.graph().start, |node| &self.graph().nodes[node].out)
    }
}

/// Returns the id of a task: a hash of the checkpoint it starts from and of what makes it due. `place` is a buffer for
/// the hashed bytes, which all tasks of a plan share.
pub(super) fn task_id(
    place: &mut Vec<u8>,
    graph: &Graph,
    checkpoint: CheckpointId,
    namespace: &Namespace,
    step: i64,
    task: &StepTask,
) -> TaskId {
    let name = task.name(graph).as_bytes();
    place.clear();
    place.extend_from_slice(checkpoint.as_bytes());
    if !namespace.is_root() {
        place.extend_from_slice(namespace.as_str().as_bytes());
        place.push(b'|');
    }
    place.extend_from_slice(name);
    push_number(place, step);
    place.extend_from_slice(name);
    match (&task.push, task.node) {
        (Some((index, _)), _) => {
            place.extend_from_slice(b"__pregel_push");
            push_number(place, i64::from(*index));
        }
        (None, node) => {
            place.extend_from_slice(b"__pregel_pull");
            match node {
                Some(node) => {
                    let triggers = &graph.nodes[node].trigger_names;
                    triggers.iter().for_each(|trigger| place.extend_from_slice(trigger.as_bytes()));
                }
                None => place.extend_from_slice(START.as_bytes()),
            }
        }
    }
    TaskId::from_bytes(hash::xxh3_128(place))
}

/// Appends the decimal digits of a number.
fn push_number(bytes: &mut Vec<u8>, number: i64) {
    let (mut digits, mut first, mut rest) = ([0; 20], 20, number.unsigned_abs());
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        bytes.push(b'-');
    }
    bytes.extend_from_slice(&digits[first..]);
}

/// A task that was begun.
pub(crate) enum Opened {
    /// Its node is to be run.
    Node { node: usize, input: NodeInput },
    /// It runs no node, or could not begin.
    Ended(TaskOutcome),
    /// It runs no node, and a conditional edge is to be awaited.
    Path(Box<PathWait>),
}

/// Begins a task.
pub(crate) fn open(job: &mut TaskJob) -> Opened {
    let Some(node) = job.node else {
        let output = job.input.take().unwrap_or_default();
        return match close(job, Ok(output)) {
            Closing::Ended(outcome) => Opened::Ended(outcome),
            Closing::Path(wait) => Opened::Path(wait),
        };
    };
    let body = &job.graph().nodes[node].body;
    if let Err(error) = job.check_limits(&body.work) {
        return Opened::Ended(close_stopped(job, error));
    }
    let input = catch_unwind(AssertUnwindSafe(|| node_input(job, body.takes)));
    match input.unwrap_or_else(|panic| Err(panicked(&job.context, &*panic))) {
        Ok(input) => Opened::Node { node, input },
        Err(error) => Opened::Ended(TaskOutcome::Failed { error, writes: Vec::new(), resume_values: Vec::new() }),
    }
}

/// Ends a task whose node panicked.
pub(crate) fn close_panicked(job: &TaskJob, panic: &(dyn std::any::Any + Send)) -> TaskOutcome {
    outcome(&job.context, Err(panicked(&job.context, panic)), Vec::new())
}

/// Ends a task whose node was stopped, or never started.
pub(crate) fn close_stopped(job: &TaskJob, error: RunError) -> TaskOutcome {
    job.context.leave_calls();
    outcome(&job.context, Err(error), Vec::new())
}

pub(super) fn panicked(context: &Context, panic: &(dyn std::any::Any + Send)) -> RunError {
    RunError::NodePanicked { node: context.node().to_owned(), reason: panic_text(panic) }
}

pub(super) fn outcome(context: &Context, result: Result<(), RunError>, writes: Vec<TaskWrite>) -> TaskOutcome {
    context.finish_calls();
    let cancelled = matches!(&result, Err(RunError::NodeCancelled { .. }));
    if let Some(reason) = context.control().cancel_reason().filter(|_| cancelled) {
        return TaskOutcome::Cancelled { reason, ran: true };
    }
    let mut asked = context.asked().lock();
    let failed = matches!(&result, Err(error) if !matches!(error, RunError::Waiting(_)));
    let resume_values = match failed {
        // Another attempt may use them.
        true if asked.read > 0 => asked.resume_values.clone(),
        false if asked.took => match &asked.signal {
            Some(Signal::Waiting(interrupts)) => asked.values_at(interrupts).to_vec(),
            _ => std::mem::take(&mut asked.resume_values),
        },
        _ => Vec::new(),
    };
    match (result, asked.signal.take()) {
        (Ok(()), _) => TaskOutcome::Done { writes, resume_values, relays: asked.relays, streamed: asked.streamed },
        (Err(RunError::Waiting(_)), Some(Signal::Waiting(interrupts))) => {
            let of_calls = std::mem::take(&mut asked.asked_by_calls);
            TaskOutcome::Waiting { interrupts, of_calls, resume_values }
        }
        (Err(RunError::Waiting(_)), Some(Signal::Parent(command))) => TaskOutcome::Left(command),
        (Err(RunError::Waiting(_)), Some(Signal::Drained(reason))) => TaskOutcome::Drained(reason),
        (Err(RunError::Waiting(_)), Some(Signal::Cancelled(reason))) => TaskOutcome::Cancelled { reason, ran: true },
        (Err(error), _) => TaskOutcome::Failed { error, writes, resume_values },
    }
}

/// Returns the output of a node. A command that a subgraph addressed to its parent graph becomes the node's own.
pub(super) fn node_output(context: &Context, output: NodeResult<NodeOutput>) -> Result<NodeOutput, RunError> {
    let error = match output {
        Ok(output) => return Ok(output),
        Err(error) => node_error(context, error),
    };
    let mut asked = context.asked().lock();
    match (&error, &mut asked.signal) {
        (RunError::Waiting(_), Some(Signal::Parent(command))) => {
            let command = Command { parent: false, ..std::mem::take(&mut **command) };
            asked.signal = None;
            asked.relays = true;
            Ok(NodeOutput::from(command))
        }
        _ => Err(error),
    }
}

/// Turns the output of a node into writes: changes, commands, edges, in this order. Conditional edges come after them.
pub(super) fn leave(job: &TaskJob, output: NodeOutput, writes: &mut Vec<TaskWrite>) -> Result<(), RunError> {
    if let Some(command) = output.commands.iter().find(|command| command.parent) {
        job.context.asked().lock().signal = Some(Signal::Parent(Box::new(command.clone())));
        return Err(RunError::Waiting(Interrupted::new()));
    }
    let pushed = std::mem::take(&mut job.context.asked().lock().pushed);
    let mut own = own_writes(job.graph(), job.node, job.context.node(), pushed, output, job.seed)?;
    encode_all(job, &mut own)?;
    *writes = own;
    Ok(())
}

/// Returns the writes of a node, or of the input: changes, commands, edges, in this order.
pub(super) fn own_writes(
    graph: &Graph,
    node: Option<usize>,
    name: &str,
    pushed: Writes,
    output: NodeOutput,
    seed: u64,
) -> Result<Vec<TaskWrite>, RunError> {
    let out = node.map_or(&graph.start, |node| &graph.nodes[node].out);
    let mut own = Vec::with_capacity(1 + out.edges.len() + out.joins.len());
    for target in state_writes(graph, node.is_none(), pushed, output, seed, &mut own)? {
        push_goto(graph, &target, &mut own)?;
    }
    for channel in &out.edges {
        push(&mut own, *channel, WriteKind::Trigger);
    }
    for join in &out.joins {
        push(&mut own, graph.joins[*join].channel, WriteKind::Join(name.to_owned()));
    }
    Ok(own)
}

pub(super) fn encode_all(job: &TaskJob, writes: &mut [TaskWrite]) -> Result<(), RunError> {
    if job.record { encode_stored(job.graph(), writes) } else { Ok(()) }
}

/// Encodes the writes that are stored.
pub(super) fn encode_stored(graph: &Graph, writes: &mut [TaskWrite]) -> Result<(), RunError> {
    for write in writes.iter_mut().filter(|write| is_stored(graph, write)) {
        write.encoded = Some(encode(graph, write)?);
    }
    Ok(())
}

/// Returns whether a write is stored. A write to an untracked channel is not, as its values last for one run.
fn is_stored(graph: &Graph, write: &TaskWrite) -> bool {
    !graph.is_field(write.channel) || graph.layout.kind(write.channel as usize) != FieldKind::Untracked
}

/// A node's own error is returned as given; one that carries an interrupt is not an error.
pub(super) fn node_error(context: &Context, error: BoxError) -> RunError {
    if crate::task::stops(&error) {
        return RunError::Waiting(Interrupted::new());
    }
    if holds::<Cancelled>(&error) {
        return RunError::NodeCancelled { node: context.node().to_owned() };
    }
    RunError::Node { node: context.node().to_owned(), source: error }
}

fn node_input(job: &TaskJob, takes: Takes) -> Result<NodeInput, RunError> {
    let (layout, root) = (&*job.graph().layout, job.graph().schemas.root);
    let reads = job.given_as.and_then(|node| job.graph().nodes[node].reads.as_deref());
    Ok(match (takes, &job.arg) {
        (Takes::State, None) => NodeInput::State(match reads {
            Some(fields) => layout.project(&job.state, fields),
            None => Arc::clone(&job.state),
        }),
        (Takes::Value | Takes::Fields, Some(arg)) => NodeInput::Value(arg.clone()),
        (Takes::State, Some(arg)) => {
            let mut state = layout.initial();
            for (channel, value) in arg.as_map().into_iter().flatten().filter(|_| !root) {
                if let Ok(field) = crate::state::erased::field_of(layout, channel) {
                    layout.set(&mut state, field, value.clone())?;
                }
            }
            if root {
                layout.set(&mut state, 0, arg.clone())?;
            }
            NodeInput::State(state)
        }
        (Takes::Value, None) => {
            NodeInput::Value(given(job.graph(), reads, &job.state, job.present.as_deref().unwrap_or_default())?)
        }
        (Takes::Fields, None) => {
            let present = job.present.as_deref().unwrap_or_default();
            let at = job.is_stored.then(|| job.context.parts().checkpoint).flatten();
            let at = at.map(|checkpoint| (job.context.parts().namespace.clone(), checkpoint));
            NodeInput::Fields(GivenFields { at, ..given_fields(job.graph(), reads, &job.state, present) })
        }
    })
}

/// Returns the state as a node is given it that takes a value: the channels it reads that hold something.
pub(super) fn given(
    graph: &Graph,
    reads: Option<&[usize]>,
    state: &StateRef,
    present: &[bool],
) -> Result<Value, RunError> {
    if graph.schemas.root {
        return Ok(graph.layout.to_value(state, 0)?);
    }
    Ok(given_fields(graph, reads, state, present).to_value()?)
}

fn given_fields(graph: &Graph, reads: Option<&[usize]>, state: &StateRef, present: &[bool]) -> GivenFields {
    let layout = &graph.layout;
    let shown = |field: &usize| {
        let holds = present.get(*field) == Some(&true) || layout.kind(*field) == FieldKind::Managed;
        holds && reads.is_none_or(|reads| reads.contains(field))
    };
    let fields = (0..layout.len()).filter(shown).collect();
    GivenFields { layout: Arc::clone(layout), state: Arc::clone(state), fields, at: None }
}

/// Writes the changes of a node and of its commands, and returns where the commands go. An input is resolved.
fn state_writes(
    graph: &Graph,
    is_input: bool,
    pushed: Writes,
    output: NodeOutput,
    seed: u64,
    writes: &mut Vec<TaskWrite>,
) -> Result<Vec<Target>, RunError> {
    let layout = &*graph.layout;
    let mut ids = IdSource::from_seed(seed);
    let mut write = |update: Writes| -> Result<(), RunError> {
        if update.is_empty() {
            return Ok(());
        }
        for (field, mut write) in if is_input { update } else { resolve(layout, update)? } {
            if is_input && !graph.takes(field) {
                continue;
            }
            layout.prepare(field, &mut write, &mut ids);
            push(writes, field as u32, WriteKind::Field(Some(write)));
        }
        Ok(())
    };
    write(pushed)?;
    write(output.writes)?;
    let mut targets = Vec::new();
    for command in output.commands {
        write(command.update)?;
        targets.extend(command.goto);
    }
    Ok(targets)
}

pub(super) fn push(writes: &mut Vec<TaskWrite>, channel: u32, kind: WriteKind) {
    writes.push(TaskWrite { index: writes.len() as i32, channel, kind, encoded: None });
}

/// Writes a target of a conditional edge.
///
/// # Errors
/// [`RunError::SendToEnd`]; as [`push_goto`].
pub(super) fn push_target(graph: &Graph, target: &Target, writes: &mut Vec<TaskWrite>) -> Result<(), RunError> {
    match target {
        Target::Send(send) if &*send.node == END => Err(RunError::SendToEnd),
        _ => push_goto(graph, target, writes),
    }
}

/// Writes a target of a command. A target that is not a node is dropped, `END` included, as in the reference.
///
/// # Errors
/// [`RunError::BadTimeout`] for a send whose timeout is zero.
fn push_goto(graph: &Graph, target: &Target, writes: &mut Vec<TaskWrite>) -> Result<(), RunError> {
    match target {
        Target::Send(send) if send.timeout.is_some_and(|timeout| timeout.is_zero()) => {
            return Err(RunError::BadTimeout { node: send.node.to_string() });
        }
        Target::Send(send) => push(writes, graph.sends(), WriteKind::Send(Box::new(send.clone()))),
        Target::Node(name) => {
            if let Some(node) = graph.by_name.get(name).filter(|_| !graph.entry) {
                push(writes, graph.trigger(*node), WriteKind::Trigger);
            }
        }
    }
    Ok(())
}

pub(super) fn encode(graph: &Graph, write: &TaskWrite) -> Result<WriteValue, RunError> {
    Ok(match &write.kind {
        WriteKind::Field(Some(value)) => graph.layout.encode_write(write.channel as usize, value)?,
        WriteKind::Field(None) | WriteKind::Trigger => WriteValue::Null,
        WriteKind::Join(name) => WriteValue::One(Encoded::encode(name)?.into()),
        WriteKind::Send(send) => WriteValue::One(stored_send(graph, send)?),
    })
}

/// A send is stored as `[node, argument]`, or as `[node, argument, timeout]` if it has a timeout. The values of
/// untracked channels, which last for one run, are left out of the argument.
fn stored_send(graph: &Graph, send: &SendTo) -> Result<Payload, RunError> {
    let lasting = lasting(graph, &send.arg);
    let arg = lasting.as_ref().unwrap_or(&send.arg);
    Ok(match send.timeout {
        Some(timeout) => Encoded::encode(&(&*send.node, arg, timeout))?.into(),
        None => Encoded::encode(&(&*send.node, arg))?.into(),
    })
}

/// Returns the argument of a send without the values of untracked channels, `None` if it has no such values.
fn lasting(graph: &Graph, arg: &Value) -> Option<Value> {
    let lasts = |name: &str| {
        let field = graph.by_channel.get(name).filter(|channel| graph.is_field(**channel));
        field.is_none_or(|field| graph.layout.kind(*field as usize) != FieldKind::Untracked)
    };
    let map = arg.as_map().filter(|map| map.keys().any(|name| !lasts(name)))?;
    let kept: Map = map.iter().filter(|(name, _)| lasts(name)).map(|(n, v)| (n.clone(), v.clone())).collect();
    Some(Value::Map(kept))
}

/// Removes from sends the values that are not stored: those of untracked channels.
pub(super) fn drop_untracked(graph: &Graph, sends: &mut [SendTo]) {
    for send in sends {
        if let Some(kept) = lasting(graph, &send.arg) {
            send.arg = kept;
        }
    }
}

/// Adds a write without a channel to a recorded task that has written nothing: its end must be visible in the store.
pub(super) fn mark_end(writes: &mut Vec<TaskWrite>, records: bool) {
    if writes.is_empty() && records {
        let (kind, encoded) = (WriteKind::Trigger, Some(WriteValue::Null));
        writes.push(TaskWrite { index: 0, channel: u32::MAX, kind, encoded });
    }
}

/// Makes the writes of a command that is given as the input of a run. Its update is resolved.
pub(crate) fn command_writes(graph: &Graph, command: Command, seed: u64) -> Result<Vec<TaskWrite>, RunError> {
    let mut writes = Vec::new();
    let mut ids = IdSource::from_seed(seed);
    for (field, mut write) in command.update {
        graph.layout.prepare(field, &mut write, &mut ids);
        push(&mut writes, field as u32, WriteKind::Field(Some(write)));
    }
    for target in &command.goto {
        push_goto(graph, target, &mut writes)?;
    }
    encode_stored(graph, &mut writes)?;
    Ok(writes)
}

#[cfg(test)]
mod tests;
