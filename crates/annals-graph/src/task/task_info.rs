//! The identity of a task in a stream.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::base::{Namespace, TaskId, Value};
use crate::graph::Graph;
use crate::state::erased::{Writer, Written};
use crate::state::{Layout, WritesView};

use super::context::task_namespace;

/// The place of a task in its graph.
#[derive(Clone)]
pub(crate) struct NodePlace {
    pub(crate) graph: Arc<Graph>,
    /// The node; `None` is the input.
    pub(crate) node: Option<usize>,
    /// The position of the send that triggered it.
    pub(crate) push: Option<u32>,
    /// For a called task, the path of its caller and the number of the call.
    pub(crate) call: Option<Arc<(Value, u32)>>,
    /// For an error handler, the namespace of the failed task, under which its messages are streamed.
    pub(crate) around: Option<Namespace>,
}

/// The identity of the task that a part of a stream belongs to. A clone is cheap.
#[derive(Clone)]
pub struct TaskInfo(Arc<TaskParts>);

/// The parts of a [`TaskInfo`], and the writes of the task.
pub(crate) struct TaskParts {
    pub(crate) id: TaskId,
    /// The name of a called task; `None` if it is that of the node.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) step: i64,
    pub(crate) namespace: Namespace,
    pub(crate) place: NodePlace,
    pub(crate) written: OnceLock<Written>,
}

impl TaskParts {
    pub(crate) fn node(&self) -> &Arc<str> {
        match (&self.name, self.place.node) {
            (Some(name), _) => name,
            (None, Some(node)) => &self.place.graph.nodes[node].name,
            (None, None) => &self.place.graph.channels[self.place.graph.input() as usize],
        }
    }
}

impl Writer for TaskParts {
    fn written(&self) -> Option<&Written> {
        self.written.get()
    }

    fn layout(&self) -> Option<&dyn Layout> {
        Some(&*self.place.graph.layout)
    }
}

impl TaskInfo {
    pub(crate) fn new(parts: TaskParts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn parts(&self) -> &TaskParts {
        &self.0
    }

    /// Notes the writes of the task, once.
    pub(crate) fn wrote(&self, written: Written) {
        _ = self.0.written.set(written);
    }

    /// Returns the writes of the task. `chosen` restricts them to the channels of the output.
    pub(crate) fn writes(&self, chosen: bool) -> WritesView {
        WritesView::new(Arc::clone(&self.0) as Arc<dyn Writer>, chosen)
    }

    /// Returns the id of the task.
    pub fn id(&self) -> TaskId {
        self.0.id
    }

    /// Returns the name of the node.
    pub fn node(&self) -> &str {
        self.0.node()
    }

    /// Returns the number of the superstep.
    pub(crate) fn step(&self) -> i64 {
        self.0.step
    }

    /// Returns the namespace of the task, in which the checkpoints of its subgraph are stored.
    pub fn namespace(&self) -> String {
        task_namespace(&self.0.namespace, self.0.node(), self.0.id)
    }

    /// Returns the channels that trigger the node, sorted; `["__pregel_push"]` for a send or a call.
    pub fn triggers(&self) -> Vec<&str> {
        match (&self.0.place.push, self.0.place.node) {
            (None, Some(node)) if self.0.place.around.is_none() => {
                self.0.place.graph.nodes[node].trigger_names.iter().map(|name| &**name).collect()
            }
            _ => vec!["__pregel_push"],
        }
    }

    /// Returns the metadata of the node, if it was added with some.
    pub(crate) fn metadata(&self) -> Option<&serde_json::Map<String, serde_json::Value>> {
        self.0.place.graph.nodes[self.0.place.node?].settings.metadata.as_deref()
    }

    /// Returns the trigger of the task in LangGraph's format: `["__pregel_pull", node]`, `["__pregel_push", position,
    /// false]` for a send, `["__pregel_push", path of the caller, number, true]` for a call.
    pub fn path(&self) -> Value {
        self.0.place.path(self.0.node())
    }
}

impl NodePlace {
    /// Returns the path of the task, see [`TaskInfo::path`].
    pub(crate) fn path(&self, node: &str) -> Value {
        Value::List(match (&self.call, self.push) {
            (Some(call), _) => {
                vec!["__pregel_push".into(), call.0.clone(), i64::from(call.1).into(), true.into()]
            }
            (None, Some(index)) => vec!["__pregel_push".into(), i64::from(index).into(), false.into()],
            (None, None) => vec!["__pregel_pull".into(), node.into()],
        })
    }
}

impl fmt::Debug for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskInfo").field("id", &self.0.id).field("node", self.0.node()).finish_non_exhaustive()
    }
}
