//! Floor 5: the parts of a stream, in typed form and in LangGraph's format.
//!
//! *Absent:* the store, threads, and the machine's own events, which `drive` translates.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::{CheckpointId, Map, Namespace, Value};
use crate::state::{StateError, StateView};
use crate::task::Interrupt;

pub use crate::exec::{CheckpointPart, CheckpointTask, DebugPart, DebugPayload, NodeUpdate, TaskEnd, TaskStart};
pub use crate::task::MessagePart;

/// The kinds of parts that a stream can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamMode {
    /// The state after each superstep that changed it.
    Values,
    /// The writes of each node, when its task ends.
    Updates,
    /// The values that nodes emit with [`Context::emit`](crate::task::Context::emit), at once.
    Custom,
    /// Messages: the chunks that nodes stream with [`Context::message_stream`](crate::task::Context::message_stream),
    /// at once, and the messages that they return, unless they were streamed before.
    Messages,
    /// The checkpoints of the run, as they are made. A run without a store has none.
    Checkpoints,
    /// The start and the end of each task.
    Tasks,
    /// Checkpoints and tasks, with the number of the superstep and the timestamp.
    Debug,
}

impl StreamMode {
    /// Returns its name: `values`, `updates` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Updates => "updates",
            Self::Custom => "custom",
            Self::Messages => "messages",
            Self::Checkpoints => "checkpoints",
            Self::Tasks => "tasks",
            Self::Debug => "debug",
        }
    }
}

/// One part of a stream of a graph with state `S`.
#[derive(Clone)]
#[non_exhaustive]
pub struct StreamPart<S> {
    /// The namespace of the graph that it comes from: the root, or a subgraph.
    pub namespace: Namespace,
    /// The data.
    pub data: StreamData<S>,
}

/// The data of a part of a stream.
#[derive(Clone)]
#[non_exhaustive]
pub enum StreamData<S> {
    /// The state of the graph: after a superstep that changed it, or at an interrupt.
    Values(Values<S>),
    /// The state of a subgraph, whose type is another one.
    ChildValues(ChildValues),
    /// The writes of a node.
    Updates(NodeUpdate),
    /// The interrupts of a task; at a breakpoint the list is empty.
    Interrupts(Vec<Interrupt>),
    /// A value that a node emitted.
    Custom(Value),
    /// A message or a chunk.
    Message(Box<MessagePart>),
    /// A checkpoint.
    Checkpoint(Box<CheckpointPart>),
    /// The start of a task.
    TaskStart(TaskStart),
    /// The end of a task: its writes, its error or its interrupts.
    TaskEnd(TaskEnd),
    /// A checkpoint or a task, with the number of the superstep and the timestamp.
    Debug(Box<DebugPart>),
}

/// The state of a graph in stream mode `values`. It dereferences to the state itself.
#[derive(Clone)]
#[non_exhaustive]
pub struct Values<S> {
    /// The state.
    pub state: Arc<S>,
    /// The channels of the output that are set.
    pub view: StateView,
    /// The interrupts of the task, if the part was made for them.
    pub interrupts: Vec<Interrupt>,
}

impl<S> Deref for Values<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

/// Formats the channels, as the state need not implement `Debug`.
impl<S> fmt::Debug for Values<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("view", &self.view).field("interrupts", &self.interrupts).finish()
    }
}

impl<S> fmt::Debug for StreamPart<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPart").field("namespace", &self.namespace).field("data", &self.data).finish()
    }
}

impl<S> fmt::Debug for StreamData<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(values) => values.fmt(f),
            Self::ChildValues(values) => values.fmt(f),
            Self::Updates(update) => f.debug_tuple("Updates").field(update).finish(),
            Self::Interrupts(asked) => f.debug_tuple("Interrupts").field(asked).finish(),
            Self::Custom(value) => f.debug_tuple("Custom").field(value).finish(),
            Self::Message(part) => f.debug_tuple("Message").field(part).finish(),
            Self::Checkpoint(part) => f.debug_tuple("Checkpoint").field(part).finish(),
            Self::TaskStart(start) => f.debug_tuple("TaskStart").field(start).finish(),
            Self::TaskEnd(end) => f.debug_tuple("TaskEnd").field(end).finish(),
            Self::Debug(part) => f.debug_tuple("Debug").field(part).finish(),
        }
    }
}

/// The state of a subgraph in stream mode `values`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildValues {
    /// The channels that are set.
    pub view: StateView,
    /// The interrupts of the task, if the part was made for them.
    pub interrupts: Vec<Interrupt>,
}

impl<S> StreamPart<S> {
    /// Returns the mode that the part belongs to.
    pub fn mode(&self) -> StreamMode {
        match &self.data {
            StreamData::Values(_) | StreamData::ChildValues(_) => StreamMode::Values,
            StreamData::Updates(_) | StreamData::Interrupts(_) => StreamMode::Updates,
            StreamData::Custom(_) => StreamMode::Custom,
            StreamData::Message(_) => StreamMode::Messages,
            StreamData::Checkpoint(_) => StreamMode::Checkpoints,
            StreamData::TaskStart(_) | StreamData::TaskEnd(_) => StreamMode::Tasks,
            StreamData::Debug(_) => StreamMode::Debug,
        }
    }

    /// Returns the part in LangGraph's format (`version="v2"`): `{"type", "ns", "data"}`, and `interrupts` for values.
    ///
    /// # Errors
    /// [`StateError`] if a value cannot be serialized.
    pub fn to_value(&self) -> Result<Value, StateError> {
        let mut open = None;
        let data = match &self.data {
            StreamData::Values(Values { view, interrupts: asked, .. })
            | StreamData::ChildValues(ChildValues { view, interrupts: asked }) => {
                open = Some(interrupts(asked));
                view.to_value()?
            }
            StreamData::Updates(update) => {
                let mut data = map([(&*update.node, update.writes.to_update()?)]);
                if update.cached {
                    data.insert("__metadata__".into(), Value::Map(map([("cached", true.into())])));
                }
                Value::Map(data)
            }
            StreamData::Interrupts(asked) => Value::Map(map([("__interrupt__", interrupts(asked))])),
            StreamData::Custom(value) => value.clone(),
            StreamData::Message(part) => Value::List(vec![part.message.to_map().into(), part.metadata().into()]),
            StreamData::Checkpoint(part) => checkpoint(part)?.into(),
            StreamData::TaskStart(start) => task_start(start)?.into(),
            StreamData::TaskEnd(end) => task_end(end)?.into(),
            StreamData::Debug(part) => debug(part)?.into(),
        };
        let segments = self.namespace.segments().map(Value::from).collect();
        let mut part = map([("type", self.mode().as_str().into()), ("ns", Value::List(segments)), ("data", data)]);
        if let Some(open) = open {
            part.insert("interrupts".into(), open);
        }
        Ok(Value::Map(part))
    }
}

fn map<const N: usize>(members: [(&str, Value); N]) -> Map {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn interrupts(interrupts: &[Interrupt]) -> Value {
    Value::List(interrupts.iter().map(|interrupt| interrupt.to_map().into()).collect())
}

fn task_start(start: &TaskStart) -> Result<Map, StateError> {
    let triggers = start.task.triggers().into_iter().map(Value::from).collect();
    let mut shown = map([
        ("id", start.task.id().to_string().into()),
        ("name", start.task.node().into()),
        ("input", start.input()?),
        ("triggers", Value::List(triggers)),
    ]);
    if let Some(metadata) = start.task.metadata() {
        shown.insert("metadata".into(), serde_json::Value::Object(metadata.clone()).into());
    }
    Ok(shown)
}

fn task_end(end: &TaskEnd) -> Result<Map, StateError> {
    Ok(map([
        ("id", end.task.id().to_string().into()),
        ("name", end.task.node().into()),
        ("error", end.error.as_deref().map_or(Value::Null, Value::from)),
        ("result", end.result.to_result()?.into()),
        ("interrupts", interrupts(&end.interrupts)),
    ]))
}

fn checkpoint(part: &CheckpointPart) -> Result<Map, StateError> {
    let parents = || part.parents.iter().map(|(namespace, id)| (namespace.as_str().to_owned(), id.to_string().into()));
    let config = |id: CheckpointId| {
        let mut config = map([
            ("thread_id", part.thread.as_str().into()),
            ("checkpoint_ns", part.namespace.as_str().into()),
            ("checkpoint_id", id.to_string().into()),
        ]);
        if !part.namespace.is_root() {
            let own = (part.namespace.as_str().to_owned(), id.to_string().into());
            config.insert("checkpoint_map".into(), Value::Map(parents().chain([own]).collect()));
        }
        Value::Map(map([("configurable", config.into())]))
    };
    let mut metadata = map([
        ("source", part.source.as_str().into()),
        ("step", part.step.into()),
        ("parents", Value::Map(parents().collect())),
    ]);
    metadata.extend(part.metadata());
    Ok(map([
        ("config", config(part.checkpoint)),
        ("parent_config", part.parent.map_or(Value::Null, config)),
        ("values", part.values.to_value()?),
        ("metadata", metadata.into()),
        ("next", Value::List(part.tasks.iter().map(|task| (&*task.name).into()).collect())),
        ("tasks", Value::List(part.tasks.iter().map(|task| checkpoint_task(part, task).into()).collect())),
    ]))
}

fn checkpoint_task(part: &CheckpointPart, task: &CheckpointTask) -> Map {
    let mut out = map([("id", task.id.to_string().into()), ("name", (&*task.name).into())]);
    match &task.error {
        Some(error) => _ = out.insert("error".into(), error.as_str().into()),
        None => {
            if let Some(result) =
                task.result.as_ref().filter(|result| result.as_map().is_none_or(|map| !map.is_empty()))
            {
                out.insert("result".into(), result.clone());
            }
            out.insert("interrupts".into(), interrupts(&task.interrupts));
        }
    }
    let state = task.subgraph.as_deref().map(|namespace| {
        let config = map([("thread_id", part.thread.as_str().into()), ("checkpoint_ns", namespace.into())]);
        Value::Map(map([("configurable", config.into())]))
    });
    out.insert("state".into(), state.unwrap_or(Value::Null));
    out
}

fn debug(part: &DebugPart) -> Result<Map, StateError> {
    let (kind, payload) = match &part.payload {
        DebugPayload::Checkpoint(part) => ("checkpoint", checkpoint(part)?),
        DebugPayload::TaskStart(start) => ("task", task_start(start)?),
        DebugPayload::TaskEnd(end) => ("task_result", task_end(end)?),
    };
    Ok(map([
        ("step", part.step.into()),
        ("timestamp", part.timestamp.to_string().into()),
        ("type", kind.into()),
        ("payload", payload.into()),
    ]))
}
