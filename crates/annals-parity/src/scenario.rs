//! A scenario as it is read, and what of it the public API does not offer.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

/// A scenario: graphs, and steps to run with them.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) graphs: Map<String, Json>,
    pub(crate) steps: Vec<Map<String, Json>>,
    #[serde(default = "yes")]
    pub(crate) saver: bool,
    #[serde(default)]
    pub(crate) cache: bool,
    #[serde(default)]
    pub(crate) store: bool,
    pub(crate) durability: Option<String>,
}

/// A graph definition.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GraphDef {
    #[serde(default)]
    pub(crate) channels: Map<String, Json>,
    /// The one channel of a graph whose whole state is one value.
    pub(crate) root: Option<Json>,
    #[serde(default)]
    pub(crate) private: Map<String, Json>,
    pub(crate) input: Option<Vec<String>>,
    pub(crate) output: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) nodes: Vec<NodeDef>,
    #[serde(default)]
    pub(crate) edges: Vec<(Json, String)>,
    #[serde(default)]
    pub(crate) branches: Vec<BranchDef>,
    pub(crate) interrupt_before: Option<Json>,
    pub(crate) interrupt_after: Option<Json>,
    pub(crate) name: Option<String>,
    pub(crate) functional: Option<FunctionalDef>,
    /// The tasks that the nodes of a state graph can call.
    #[serde(default)]
    pub(crate) tasks: Vec<TaskDef>,
    #[serde(flatten)]
    pub(crate) other: Map<String, Json>,
}

/// An entrypoint.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FunctionalDef {
    pub(crate) program: Vec<Map<String, Json>>,
    #[serde(default)]
    pub(crate) tasks: Vec<TaskDef>,
    #[serde(flatten)]
    pub(crate) other: Map<String, Json>,
}

/// A task that programs can call.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TaskDef {
    pub(crate) name: String,
    pub(crate) program: Vec<Map<String, Json>>,
    #[serde(flatten)]
    pub(crate) other: Map<String, Json>,
}

/// A node of a graph.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeDef {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) program: Vec<Map<String, Json>>,
    #[serde(default)]
    pub(crate) defer: bool,
    pub(crate) input: Option<Vec<String>>,
    #[serde(flatten)]
    pub(crate) other: Map<String, Json>,
}

/// A conditional edge.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BranchDef {
    pub(crate) from: String,
    pub(crate) path: Json,
    pub(crate) map: Option<Json>,
    pub(crate) name: Option<String>,
}

fn yes() -> bool {
    true
}

/// What is left out of a scenario so that more of them can run. The traces must be cut in the same way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Drops stream modes, and runs unguarded channels as guarded ones and delta channels as reducers.
    pub(crate) partial: bool,
    /// Uses list channels, which store only new items, in place of a reducer for `concat_list`.
    pub(crate) append: bool,
    /// Keeps the threads in a file.
    pub(crate) sqlite: bool,
}

/// Returns what a scenario needs and the public API does not offer.
pub(crate) fn unsupported(scenario: &Scenario, options: Options) -> Result<BTreeSet<String>, String> {
    let mut missing = BTreeSet::new();
    if scenario.cache {
        missing.insert("cache".into());
    }
    if scenario.store {
        missing.insert("kv store".into());
    }
    for def in scenario.graphs.values() {
        let def: GraphDef = serde_json::from_value(def.clone()).map_err(|error| error.to_string())?;
        of_graph(&def, &mut missing);
        of_functional(&def, &mut missing);
        of_expressions(&serde_json::json!(def.nodes.iter().map(|n| &n.program).collect::<Vec<_>>()), &mut missing);
        def.branches.iter().for_each(|branch| of_expressions(&branch.path, &mut missing));
    }
    for step in &scenario.steps {
        of_step(step, options, &mut missing);
        of_expressions(&Json::Object(step.clone()), &mut missing);
    }
    Ok(missing)
}

fn of_graph(def: &GraphDef, missing: &mut BTreeSet<String>) {
    for key in def.other.keys() {
        let what = match key.as_str() {
            "checkpointer" => "subgraphs",
            "node_defaults" => "node defaults",
            other => other,
        };
        missing.insert(what.into());
    }
    for node in &def.nodes {
        let fails = has_op(&node.program, "fail");
        for (key, value) in &node.other {
            match key.as_str() {
                "metadata" | "destinations" => false,
                // Without failures there is nothing to repeat or to handle.
                "retry" if !fails || value.get("max_attempts") == Some(&Json::from(1)) => false,
                "subgraph" => missing.insert("subgraphs".into()),
                "error_handler" => missing.insert("error handlers".into()),
                other => missing.insert(other.into()),
            };
        }
        of_ops(&node.program, missing);
    }
    let mut names = BTreeSet::new();
    for (at, branch) in def.branches.iter().enumerate() {
        let name = branch.name.clone().unwrap_or_else(|| format!("branch{at}"));
        if !names.insert((branch.from.as_str(), name)) {
            missing.insert("branch names".into());
        }
    }
}

fn of_functional(def: &GraphDef, missing: &mut BTreeSet<String>) {
    let functional = def.functional.as_ref();
    for task in def.tasks.iter().chain(functional.into_iter().flat_map(|functional| &functional.tasks)) {
        of_ops(&task.program, missing);
        of_expressions(&serde_json::json!(task.program), missing);
        missing.extend(task.other.keys().map(|key| format!("task {key}")));
    }
    if let Some(functional) = functional {
        of_ops(&functional.program, missing);
        of_expressions(&serde_json::json!(functional.program), missing);
        missing.extend(functional.other.keys().map(|key| format!("entrypoint {key}")));
    }
}

fn blocks(op: &Map<String, Json>) -> Vec<Vec<Map<String, Json>>> {
    ["then", "else", "do", "catch"]
        .iter()
        .filter_map(|part| serde_json::from_value(op.get(*part)?.clone()).ok())
        .collect()
}

fn has_op(ops: &[Map<String, Json>], name: &str) -> bool {
    ops.iter().any(|op| op["op"] == name || blocks(op).iter().any(|block| has_op(block, name)))
}

fn of_ops(ops: &[Map<String, Json>], missing: &mut BTreeSet<String>) {
    for op in ops {
        match op["op"].as_str().unwrap_or_default() {
            "set" | "let" | "log" | "emit" | "interrupt" | "fail" | "if" | "return" | "sleep" | "each" => {}
            "task" | "start" | "await" | "try" | "final" => {}
            "command" if op.get("graph").is_some() => _ = missing.insert("parent commands".into()),
            "command" => {}
            "call" => _ = missing.insert("subgraphs".into()),
            "drain" => {}
            other if other.starts_with("kv_") => _ = missing.insert("kv store".into()),
            other => _ = missing.insert(format!("op {other}")),
        }
        blocks(op).iter().for_each(|block| of_ops(block, missing));
    }
}

fn of_expressions(json: &Json, missing: &mut BTreeSet<String>) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| of_expressions(item, missing)),
        Json::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "$error" => _ = missing.insert("error handlers".into()),
                    _ => of_expressions(value, missing),
                }
            }
        }
        _ => {}
    }
}

/// The stream modes that there are.
pub(crate) const MODES: [&str; 2] = ["updates", "values"];

fn of_step(step: &Map<String, Json>, options: Options, missing: &mut BTreeSet<String>) {
    match step["do"].as_str().unwrap_or_default() {
        "invoke" | "stream" | "get_state" | "history" | "update_state" | "bulk_update" | "compile" => {}
        "draw_mermaid" | "graph_json" | "get_subgraphs" => {}
        "clear_cache" => _ = missing.insert("cache".into()),
        "delete_thread" => _ = missing.insert("delete_thread".into()),
        other => _ = missing.insert(format!("step {other}")),
    }
    for key in ["output_keys", "ns", "message_metadata"] {
        if step.contains_key(key) {
            missing.insert(format!("run option {key}"));
        }
    }
    if let Some(modes) = step.get("modes").and_then(Json::as_array).filter(|_| !options.partial) {
        for mode in modes.iter().filter_map(Json::as_str).filter(|mode| !MODES.contains(mode)) {
            missing.insert(format!("stream mode {mode}"));
        }
    }
    for key in ["at", "before"] {
        if step.get(key).and_then(Json::as_str).is_some_and(|at| at.contains(".tasks[")) {
            missing.insert("subgraphs".into());
        }
    }
}
