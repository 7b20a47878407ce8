//! The format of a trace: values, messages, errors and snapshots.

use annals::base::{CheckpointId, Value};
use annals::store::Source;
use annals_graph::prelude::Thread;
use annals_graph::task::Interrupt;
use annals_graph::{EditProblem, Error, RunError, StateSnapshot};
use serde_json::{Map, Value as Json, json};

use crate::build::Shape;
use crate::program::Failure;

/// The member of a message that holds its role in the scenario, in place of a type.
pub(crate) const ROLE: &str = "written_role";

/// Returns an identifier between sigils.
pub(crate) fn sigil(kind: &str, id: impl std::fmt::Display) -> Json {
    format!("«{kind}:{id}»").into()
}

/// Returns a namespace with its ids between sigils.
pub(crate) fn namespace(path: &str) -> Json {
    let segment = |segment: &str| match segment.rsplit_once(':') {
        Some((node, id)) if is_uuid(id) => format!("{node}:«task:{id}»"),
        _ => segment.to_owned(),
    };
    path.split('|').map(segment).collect::<Vec<_>>().join("|").into()
}

/// Returns a value in the format of a trace: messages in their short format.
pub(crate) fn plain(value: &Value) -> Json {
    shown(&value.to_json(), false)
}

/// Returns the writes of a task in the format of a trace: generated message ids are null.
pub(crate) fn written(value: &Value) -> Json {
    shown(&value.to_json(), true)
}

fn shown(json: &Json, hide_ids: bool) -> Json {
    match json {
        Json::Array(items) => items.iter().map(|item| shown(item, hide_ids)).collect(),
        Json::Object(map) if map.contains_key("additional_kwargs") && map.contains_key("type") => {
            message(map, hide_ids)
        }
        Json::Object(map) if hide_ids && map.len() == 1 && map.contains_key("__overwrite__") => {
            json!({"$overwrite": shown(&map["__overwrite__"], hide_ids)})
        }
        Json::Object(map) => {
            Json::Object(map.iter().map(|(name, value)| (name.clone(), shown(value, hide_ids))).collect())
        }
        plain => plain.clone(),
    }
}

fn message(map: &Map<String, Json>, hide_ids: bool) -> Json {
    let given = |name: &str| map.get(name).filter(|value| !value.is_null());
    let id = match given("id").and_then(Json::as_str) {
        Some(id) if is_uuid(id) => {
            if hide_ids {
                Json::Null
            } else {
                sigil("msg", id)
            }
        }
        Some(id) => id.into(),
        None => Json::Null,
    };
    let mut out =
        json!({"type": map["type"], "content": map.get("content").cloned().unwrap_or_else(|| json!("")), "id": id});
    let role = map.get("additional_kwargs").and_then(|kwargs| kwargs.get(ROLE));
    if let (Some(role), true, Json::Object(out)) = (role, hide_ids, &mut out) {
        out.shift_remove("type");
        out.insert("role".into(), role.clone());
    }
    if let Some(name) = given("name") {
        out["name"] = name.clone();
    }
    if let Some(calls) = given("tool_calls").and_then(Json::as_array).filter(|calls| !calls.is_empty()) {
        let short = |call: &Json| json!({"name": call["name"], "args": call["args"], "id": call["id"]});
        out["tool_calls"] = calls.iter().map(short).collect();
    }
    if let Some(id) = given("tool_call_id") {
        out["tool_call_id"] = id.clone();
    }
    out
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// Returns interrupts in the format of a trace.
pub(crate) fn interrupts(interrupts: &[Interrupt]) -> Json {
    let shown = |one: &Interrupt| json!({"value": plain(&one.value), "id": sigil("int", &one.id)});
    interrupts.iter().map(shown).collect()
}

/// Returns an error in the format of a trace.
pub(crate) fn error(of: &Error) -> Json {
    use annals::state::StateError;
    let Some(run) = of.as_run() else {
        return json!({"class": of.class(), "text": of.to_string()});
    };
    let class = match run {
        RunError::UnknownInterrupt { problem, .. } => {
            return json!({"class": "UnknownInterruptError", "reason": problem.reason()});
        }
        RunError::Node { source, .. } => {
            // The error of a subgraph is that of its node.
            return match (failure(&**source), source.downcast_ref::<Error>()) {
                (Some(failure), _) => failure.to_json(),
                (None, Some(inside)) => error(inside),
                (None, None) => other(&run.to_string()),
            };
        }
        RunError::State(StateError::Channel {
            source: annals::channel::ChannelError::Reducer { reason, .. }, ..
        }) => {
            return Failure::parse(reason).unwrap_or_else(|| Failure::of("ValueError")).to_json();
        }
        RunError::State(StateError::Channel { .. }) => "InvalidUpdateError",
        RunError::State(StateError::Message { source, .. }) => source.class().as_str(),
        RunError::EmptyInput => "EmptyInputError",
        RunError::ParentCommand => "ParentCommand",
        RunError::RecursionLimit { .. } => "GraphRecursionError",
        RunError::SeveralInterrupts { .. } | RunError::SharedSubgraph { .. } | RunError::NoStore => "RuntimeError",
        RunError::UnknownLabel { .. } => "KeyError",
        RunError::BadDestination { .. }
        | RunError::Breakpoint(_)
        | RunError::BadRecursionLimit { .. }
        | RunError::NoThread
        | RunError::NoCache => "ValueError",
        RunError::SendToEnd
        | RunError::NoParentGraph
        | RunError::AmbiguousUpdate { .. }
        | RunError::UnknownNode { .. } => "InvalidUpdateError",
        RunError::Edit(EditProblem::NoSupersteps | EditProblem::NoUpdates { .. }) => "ValueError",
        RunError::Edit(_) => "InvalidUpdateError",
        RunError::UnknownOutput { .. } => "ValueError",
        _ => return other(&run.to_string()),
    };
    let mut out = json!({"class": class});
    if let Some(code) = of.code() {
        out["code"] = code.into();
    }
    out
}

/// Finds the failure of a program behind an error.
fn failure<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Failure> {
    error.downcast_ref::<Failure>().or_else(|| failure(error.source()?))
}

fn other(text: &str) -> Json {
    json!({"class": "unknown", "text": text})
}

/// Returns the text of the error that the errors of nodes and tasks around it name.
pub(crate) fn innermost(text: &str) -> &str {
    let mut own = text;
    while let Some((_, inner)) =
        own.split_once(" failed: ").filter(|_| own.starts_with("node ") || own.starts_with("task "))
    {
        own = inner;
    }
    own
}

/// Returns the stored error of a task in the format of a trace. Its text alone is stored.
pub(crate) fn stored_error(text: &str) -> Json {
    match Failure::parse(innermost(text)) {
        Some(failure) => failure.to_json(),
        None if text.contains("run did not end within") => {
            json!({"class": "GraphRecursionError", "code": "GRAPH_RECURSION_LIMIT"})
        }
        None if text.contains("not in its map") => json!({"class": "KeyError"}),
        None if text.contains("conditional edge cannot lead") => json!({"class": "ValueError"}),
        None if text.contains("sent to END") => json!({"class": "InvalidUpdateError"}),
        None if text.contains("value per superstep and got") || text.contains("only one Overwrite value") => {
            let mut error = json!({"class": "InvalidUpdateError"});
            if !text.contains("it is guarded") {
                error["code"] = "INVALID_CONCURRENT_GRAPH_UPDATE".into();
            }
            error
        }
        None => other(text),
    }
}

/// A stored configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredConfig {
    pub(crate) thread: String,
    pub(crate) ns: String,
    pub(crate) checkpoint: Option<CheckpointId>,
    /// The parent checkpoint, if the place is a snapshot with one.
    pub(crate) parent: Option<CheckpointId>,
    /// The places of the subgraphs of its tasks.
    pub(crate) tasks: Vec<Option<StoredConfig>>,
}

impl StoredConfig {
    /// Returns the place in the format of a trace.
    pub(crate) fn to_json(&self) -> Json {
        let checkpoint = self.checkpoint.map_or(Json::Null, |id| sigil("ckpt", id));
        json!({"thread": self.thread, "ns": namespace(&self.ns), "ckpt": checkpoint})
    }
}

/// Returns the text of a source.
pub(crate) fn source(source: Source) -> &'static str {
    match source {
        Source::Input => "input",
        Source::Loop => "loop",
        Source::Update => "update",
        Source::Fork => "fork",
    }
}

/// Returns the metadata of a snapshot, null on a thread without checkpoints.
pub(crate) fn metadata<S>(snapshot: &StateSnapshot<S>) -> Json {
    let (Some(of), Some(step)) = (snapshot.source, snapshot.step) else { return Json::Null };
    let parents = snapshot.parents.iter();
    let parents: Map<_, _> = parents
        .map(|(of, at)| (namespace(of.as_str()).as_str().unwrap_or_default().to_owned(), sigil("ckpt", at)))
        .collect();
    let mut out = json!({"source": source(of), "step": step, "parents": parents});
    let own = snapshot.metadata.as_deref().and_then(|text| serde_json::from_str::<Map<String, Json>>(text).ok());
    for (name, value) in own.into_iter().flatten().filter(|(name, _)| name.starts_with("user_")) {
        out[name.as_str()] = value;
    }
    out
}

/// Returns a snapshot in the format of a trace.
pub(crate) fn snapshot<B: Shape>(state: &StateSnapshot<B::State>, built: &B, thread: &Thread) -> (Json, StoredConfig) {
    // A thread without checkpoints has no values; its typed state has the initial ones.
    let values = state.checkpoint.map_or_else(|| json!({}), |_| built.shown(&state.values));
    crate::subgraphs::shown(state, Some(&built.built()), thread.id().as_str(), values)
}
