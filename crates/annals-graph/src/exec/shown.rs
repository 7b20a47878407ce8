//! The contents of the stream events of a run.

use std::sync::Arc;

use crate::base::{CheckpointId, Map, Namespace, TaskId, ThreadId, Timestamp, Value};
use crate::state::{StateError, StateView, WritesView};
use crate::store::Source;
use crate::task::{Interrupt, TaskInfo, json_map};

/// The writes of a node whose task has ended (stream mode `updates`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeUpdate {
    /// The node.
    pub node: Arc<str>,
    /// The writes.
    pub writes: WritesView,
    /// True if the result was cached or restored: the node did not run now.
    pub cached: bool,
}

/// A task that starts (stream mode `tasks`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskStart {
    /// The task.
    pub task: TaskInfo,
    pub(super) input: TaskInput,
}

/// The input of a task.
#[derive(Clone, Debug)]
pub(super) enum TaskInput {
    State(StateView),
    Value(Value),
}

impl TaskStart {
    /// Returns the input of the node: a map of the channels it reads, or the argument of a send.
    ///
    /// # Errors
    /// [`StateError`] if a value refuses to be serialized.
    pub fn input(&self) -> Result<Value, StateError> {
        match &self.input {
            TaskInput::State(state) => state.to_value(),
            TaskInput::Value(value) => Ok(value.clone()),
        }
    }
}

/// A task that has ended, failed or interrupted (stream mode `tasks`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskEnd {
    /// The task.
    pub task: TaskInfo,
    /// The writes of the task.
    pub result: WritesView,
    /// The message of its error, if it failed.
    pub error: Option<String>,
    /// The interrupts of the task.
    pub interrupts: Vec<Interrupt>,
}

/// A checkpoint that was made, or at which a run continues (stream mode `checkpoints`). It need not be stored yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointPart {
    /// The thread.
    pub thread: ThreadId,
    /// The namespace of the graph.
    pub namespace: Namespace,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The checkpoint it builds on.
    pub parent: Option<CheckpointId>,
    /// The source of the checkpoint.
    pub source: Source,
    /// The number of the superstep.
    pub step: i64,
    /// The namespaces and checkpoints of the parent graphs, outermost first.
    pub parents: Arc<[(Namespace, CheckpointId)]>,
    /// Further metadata: the text of a JSON object.
    pub metadata: Option<String>,
    /// The state.
    pub values: StateView,
    /// The tasks that are due, with their results so far.
    pub tasks: Vec<CheckpointTask>,
}

impl CheckpointPart {
    /// Returns the further metadata as a map.
    pub fn metadata(&self) -> Map {
        json_map(self.metadata.as_deref())
    }
}

/// A task that is due at a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CheckpointTask {
    /// Its id.
    pub id: TaskId,
    /// Its node.
    pub name: Arc<str>,
    /// The writes, if the task has ended: a map by channel, or a value if the whole state is one.
    pub result: Option<Value>,
    /// The message of its error, if it failed.
    pub error: Option<String>,
    /// The interrupts of the task.
    pub interrupts: Vec<Interrupt>,
    /// The namespace of its subgraph, if its node is a graph.
    pub subgraph: Option<String>,
}

/// One line of stream mode `debug`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DebugPart {
    /// The number of the superstep.
    pub step: i64,
    /// The timestamp of the event.
    pub timestamp: Timestamp,
    /// The event.
    pub payload: DebugPayload,
}

/// The payload of a line of stream mode `debug`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DebugPayload {
    /// A checkpoint.
    Checkpoint(CheckpointPart),
    /// A task that starts.
    TaskStart(TaskStart),
    /// A task that has ended, failed or interrupted.
    TaskEnd(TaskEnd),
}
