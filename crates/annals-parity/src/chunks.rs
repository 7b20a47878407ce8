//! The chunks of a stream in the format of a trace.

use annals::base::{CheckpointId, Value};
use annals_graph::StreamPart;
use annals_graph::prelude::StreamData;
use annals_graph::task::Interrupt;
use annals_graph::{CheckpointPart, DebugPayload, Error, MessagePart, RunError, TaskEnd, TaskStart};
use serde_json::{Map, Value as Json, json};

use crate::expr::truthy;
use crate::trace::{interrupts, namespace, plain, sigil, source, stored_error, written};

/// Converts stream parts to chunks.
pub(crate) struct Chunks<'a> {
    /// Adds open interrupts to the state of the graph.
    pub(crate) asking: &'a dyn Fn(Json, Json) -> Json,
    /// True if more metadata of messages is shown.
    pub(crate) message_metadata: bool,
    /// True if namespaces are shown.
    pub(crate) subgraphs: bool,
    /// The interrupts so far, without repeats.
    pub(crate) open: Vec<Interrupt>,
}

impl Chunks<'_> {
    /// Returns the chunk of a part.
    pub(crate) fn chunk<S>(&mut self, part: &StreamPart<S>) -> Result<Json, Error> {
        let data = self.data(&part.data).map_err(RunError::from)?;
        let segments: Json = part.namespace.segments().filter(|_| self.subgraphs).map(namespace).collect();
        Ok(json!({"mode": part.mode().as_str(), "ns": segments, "data": data}))
    }

    fn data<S>(&mut self, data: &StreamData<S>) -> Result<Json, annals::state::StateError> {
        Ok(match data {
            StreamData::Values(values) => {
                let state = plain(&values.view.to_value()?);
                if values.interrupts.is_empty() {
                    return Ok(state);
                }
                self.asked(&values.interrupts);
                (self.asking)(state, interrupts(&values.interrupts))
            }
            StreamData::ChildValues(values) => {
                let state = plain(&values.view.to_value()?);
                if values.interrupts.is_empty() {
                    return Ok(state);
                }
                self.asked(&values.interrupts);
                let mut members = state.as_object().cloned().unwrap_or_default();
                members.insert("__interrupt__".into(), interrupts(&values.interrupts));
                members.into()
            }
            StreamData::Updates(update) => {
                let mut data = json!({&*update.node: written(&update.writes.to_update()?)});
                if update.cached {
                    data["__metadata__"] = json!({"cached": true});
                }
                data
            }
            StreamData::Interrupts(asked) => {
                self.asked(asked);
                json!({"__interrupt__": interrupts(asked)})
            }
            StreamData::Custom(value) => plain(value),
            StreamData::Message(part) => json!([message(part), self.metadata(part)]),
            StreamData::TaskStart(start) => self.task_start(start)?,
            StreamData::TaskEnd(end) => task_end(end)?,
            StreamData::Checkpoint(part) => self.checkpoint(part)?,
            StreamData::Debug(part) => {
                let (kind, payload) = match &part.payload {
                    DebugPayload::Checkpoint(part) => ("checkpoint", self.checkpoint(part)?),
                    DebugPayload::TaskStart(start) => ("task", self.task_start(start)?),
                    DebugPayload::TaskEnd(end) => ("task_result", task_end(end)?),
                    _ => ("unknown", Json::Null),
                };
                json!({"step": part.step, "type": kind, "payload": payload})
            }
            _ => Json::Null,
        })
    }

    fn asked(&mut self, asked: &[Interrupt]) {
        for interrupt in asked {
            if !self.open.contains(interrupt) {
                self.open.push(interrupt.clone());
            }
        }
    }

    fn task_start(&self, start: &TaskStart) -> Result<Json, annals::state::StateError> {
        let task = &start.task;
        let input = plain(&start.input()?);
        Ok(json!({"id": sigil("task", task.id()), "name": task.node(), "input": input, "triggers": task.triggers()}))
    }

    fn checkpoint(&self, part: &CheckpointPart) -> Result<Json, annals::state::StateError> {
        let thread = part.thread.as_str();
        let config = |id: CheckpointId| json!({"thread": thread, "ns": namespace(part.namespace.as_str()), "ckpt": sigil("ckpt", id)});
        let parents = part.parents.iter().map(|(ns, id)| (text(namespace(ns.as_str())), sigil("ckpt", id)));
        let parents: Map<String, Json> = parents.collect();
        let mut metadata = json!({"source": source(part.source), "step": part.step, "parents": parents});
        for (name, value) in part.metadata().into_iter().filter(|(name, _)| name.starts_with("user_")) {
            metadata[name] = plain(&value);
        }
        let tasks: Vec<Json> = part
            .tasks
            .iter()
            .map(|task| {
                let state =
                    task.subgraph.as_deref().map(|ns| json!({"thread": thread, "ns": namespace(ns), "ckpt": null}));
                let mut out = json!({"id": sigil("task", task.id), "name": &*task.name, "state": state});
                if let Some(error) = &task.error {
                    out["error"] = stored_error(error);
                    return out;
                }
                out["interrupts"] = interrupts(&task.interrupts);
                if let Some(result) = task.result.as_ref().map(written).filter(truthy) {
                    out["result"] = result;
                }
                out
            })
            .collect();
        let next: Vec<&str> = part.tasks.iter().map(|task| &*task.name).collect();
        Ok(json!({
            "config": config(part.checkpoint), "parent": part.parent.map(config), "metadata": metadata,
            "values": plain(&part.values.to_value()?), "next": next, "tasks": tasks,
        }))
    }

    fn metadata(&self, part: &MessagePart) -> Json {
        let all = part.metadata();
        let get = |name: &str| all.get(name).map_or(Json::Null, Value::to_json);
        let mut out = json!({
            "node": get("langgraph_node"), "step": get("langgraph_step"), "triggers": get("langgraph_triggers"),
            "ns": namespace(&part.task.namespace()),
        });
        for (name, value) in all.iter().filter(|(name, _)| *name == "tags" || name.starts_with("user_")) {
            out[name] = value.to_json();
        }
        if self.message_metadata {
            let mut keys: Vec<&String> = all.keys().collect();
            keys.sort();
            out["keys"] = json!(keys);
            out["path"] = path(&get("langgraph_path"));
        }
        out
    }
}

fn path(of: &Json) -> Json {
    match of.as_array().map(Vec::as_slice) {
        Some([push, caller, index, _]) if push == "__pregel_push" => json!(["call", path(caller), index]),
        Some([push, index, ..]) if push == "__pregel_push" => json!(["push", index]),
        Some([_, node, ..]) => json!(["pull", node]),
        _ => of.clone(),
    }
}

fn text(json: Json) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

fn message(part: &MessagePart) -> Json {
    let form = Value::Map(part.message.to_map());
    let chunk = part.message.chunk.as_ref().filter(|_| part.is_live);
    let Some(chunk) = chunk else { return if part.is_live { plain(&form) } else { written(&form) } };
    let form = plain(&form);
    let mut out = json!({"type": form["type"], "content": form["content"], "id": form["id"]});
    if chunk.last {
        out["last"] = true.into();
    }
    out
}

fn task_end(end: &TaskEnd) -> Result<Json, annals::state::StateError> {
    Ok(json!({
        "id": sigil("task", end.task.id()), "name": end.task.node(), "error": end.error.as_deref().map(stored_error),
        "interrupts": interrupts(&end.interrupts), "result": written(&Value::Map(end.result.to_result()?)),
    }))
}
