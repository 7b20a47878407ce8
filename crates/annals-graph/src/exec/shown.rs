//! What a run shows of itself: the contents of its events.

use std::sync::Arc;

use crate::base::{CheckpointId, Map, Namespace, TaskId, ThreadId, Timestamp, Value};
use crate::graph::{Interrupt, TaskInfo, json_map};
use crate::state::{StateError, StateView, WritesView};
use crate::store::Source;

/// What a node wrote, when its task has ended (stream mode `updates`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeUpdate {
    /// The node.
    pub node: Arc<str>,
    /// What it wrote.
    pub writes: WritesView,
    /// Whether the result was remembered and the node did not run now.
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

/// What a task is given.
#[derive(Clone, Debug)]
pub(super) enum TaskInput {
    State(StateView),
    Value(Value),
}

impl TaskStart {
    /// Returns what the node is given: a map of the channels it reads, or the argument of a send.
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

/// A task that has ended, failed or asked (stream mode `tasks`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskEnd {
    /// The task.
    pub task: TaskInfo,
    /// What it wrote.
    pub result: WritesView,
    /// The message of its error, if it failed.
    pub error: Option<String>,
    /// The questions it asked.
    pub interrupts: Vec<Interrupt>,
}

/// A checkpoint that was made, or at which a run goes on (stream mode `checkpoints`). It need not be stored yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointPart {
    /// The thread.
    pub thread: ThreadId,
    /// Where the graph stands.
    pub namespace: Namespace,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The checkpoint it builds on.
    pub parent: Option<CheckpointId>,
    /// What made it.
    pub source: Source,
    /// The number of the superstep.
    pub step: i64,
    /// Where the graphs around this one stand: their namespaces and checkpoints.
    pub parents: Arc<[(Namespace, CheckpointId)]>,
    /// Further metadata: the text of a JSON object.
    pub metadata: Option<String>,
    /// The state.
    pub values: StateView,
    /// The tasks that are due, and what is known of them.
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
    /// What it wrote, if it has ended: a map by channel, or a value if the whole state is one.
    pub result: Option<Value>,
    /// The message of its error, if it failed.
    pub error: Option<String>,
    /// The questions it asked.
    pub interrupts: Vec<Interrupt>,
    /// Where the graph inside it stands, if its node is a graph.
    pub subgraph: Option<String>,
}

/// One line of stream mode `debug`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DebugPart {
    /// The number of the superstep.
    pub step: i64,
    /// When it happened.
    pub timestamp: Timestamp,
    /// What happened.
    pub payload: DebugPayload,
}

/// What a line of stream mode `debug` shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DebugPayload {
    /// A checkpoint.
    Checkpoint(CheckpointPart),
    /// A task that starts.
    TaskStart(TaskStart),
    /// A task that has ended, failed or asked.
    TaskEnd(TaskEnd),
}
