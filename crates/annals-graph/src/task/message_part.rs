//! A message or a chunk in a stream.

use std::sync::Arc;

use crate::base::{Map, ThreadId, Value};
use crate::message::Message;

use super::task_info::TaskInfo;

/// A message or a chunk that a node streamed or returned (stream mode `messages`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessagePart {
    /// The message, or a chunk of one ([`Message::is_chunk`]). The chunks with one id add up to the message
    /// ([`Message::plus`]).
    pub message: Message,
    /// The task that streamed or returned it.
    pub task: TaskInfo,
    /// The tags of its [`MessageStream`](super::MessageStream).
    pub tags: Arc<[String]>,
    /// The thread of the run.
    pub thread: Option<ThreadId>,
    /// True if the node streamed it; false if it was found in the output of the node.
    pub is_live: bool,
    /// True if it is left out when it was streamed before.
    pub(crate) once: bool,
    /// Metadata of the run: the text of a JSON object.
    pub(crate) run_metadata: Option<String>,
}

impl MessagePart {
    /// Returns the metadata of the message as LangGraph shows it: `langgraph_node`, `langgraph_step` and so on, the
    /// tags, and the metadata of the run and of the node.
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
        // For the outermost task the namespace is shown if a model or a subgraph streamed the message.
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
