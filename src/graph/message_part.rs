//! A message as a stream shows it.

use std::sync::Arc;

use crate::base::{Map, ThreadId, Value};
use crate::message::Message;

use super::task_info::TaskInfo;

/// A message that a node shows or returned, or a piece of one (stream mode `messages`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessagePart {
    /// The message, or a piece of one, if it says so ([`Message::is_chunk`]): those with one id add up to it
    /// ([`Message::plus`]).
    pub message: Message,
    /// The task that shows it.
    pub task: TaskInfo,
    /// The tags that its maker gave it.
    pub tags: Arc<[String]>,
    /// The thread of the run.
    pub thread: Option<ThreadId>,
    /// Whether the node showed it itself; otherwise it was found in what the node returned.
    pub is_live: bool,
    /// Whether it is left out if it was shown before.
    pub(crate) once: bool,
    /// Metadata of the run: the text of a JSON object.
    pub(crate) run_metadata: Option<String>,
}

impl MessagePart {
    /// Returns what LangGraph tells about a message: `langgraph_node`, `langgraph_step` and so on, the tags, and the
    /// metadata of the run and of the node.
    pub fn metadata(&self) -> Map {
        let task = &self.task;
        let namespace = task.namespace();
        let triggers = task.triggers().into_iter().map(Value::from).collect();
        let mut map: Map = [
            ("langgraph_step".to_string(), Value::from(task.step())),
            ("langgraph_node".to_string(), task.node().into()),
            ("langgraph_triggers".to_string(), Value::List(triggers)),
            ("langgraph_path".to_string(), task.path()),
            ("langgraph_checkpoint_ns".to_string(), namespace.as_str().into()),
        ]
        .into_iter()
        .collect();
        if let Some(thread) = &self.thread {
            map.insert("thread_id".into(), thread.as_str().into());
        }
        // The outermost task is told, by whatever asked for the message or by a graph inside it.
        if self.is_live || (task.parts().place.call.is_none() && !task.parts().namespace.is_root()) {
            let outermost = namespace.split('|').next().unwrap_or_default();
            map.insert("checkpoint_ns".into(), outermost.into());
        }
        if !self.tags.is_empty() {
            let tags = self.tags.iter().map(|tag| Value::from(tag.as_str())).collect();
            map.insert("tags".into(), Value::List(tags));
        }
        map.extend(json_map(self.run_metadata.as_deref()));
        let of_node = task.metadata().into_iter().flatten();
        map.extend(of_node.map(|(name, value)| (name.clone(), Value::from(value.clone()))));
        map
    }
}

/// Reads metadata.
pub(crate) fn json_map(text: Option<&str>) -> Map {
    let parsed = text.and_then(|text| serde_json::from_str::<serde_json::Map<_, _>>(text).ok());
    parsed.into_iter().flatten().map(|(name, value): (String, serde_json::Value)| (name, value.into())).collect()
}
