//! A scenario as it is read, and the features it needs that the public API does not have.

use std::collections::BTreeSet;

use annals_graph::prelude::StreamMode;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::driver::DriverKind;

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

/// Simplifications of a scenario, so that more scenarios can run. The traces must be simplified in the same way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Drops stream modes, and runs unguarded channels as guarded ones and delta channels as reducers.
    pub(crate) partial: bool,
    /// Uses list channels, which store only new items, in place of a reducer for `concat_list`.
    pub(crate) append: bool,
    /// Stores the threads in a file.
    pub(crate) sqlite: bool,
    /// Stores the threads on a server, by the URL of a database.
    #[cfg(feature = "postgres")]
    pub(crate) server: Option<&'static str>,
    /// The driver that runs the graphs, and whether their nodes are asynchronous.
    pub(crate) driver: DriverKind,
}

/// Returns the features of a scenario that the public API does not have.
pub(crate) fn unsupported(scenario: &Scenario) -> Result<BTreeSet<String>, String> {
    let mut missing = BTreeSet::new();
    for def in scenario.graphs.values() {
        let def: GraphDef = serde_json::from_value(def.clone()).map_err(|error| error.to_string())?;
        of_graph(&def, &mut missing);
        of_functional(&def, &mut missing);
    }
    for step in &scenario.steps {
        of_step(step, &mut missing);
    }
    Ok(missing)
}

fn of_graph(def: &GraphDef, missing: &mut BTreeSet<String>) {
    for key in def.other.keys() {
        let what = match key.as_str() {
            "checkpointer" | "node_defaults" => continue,
            other => other,
        };
        missing.insert(what.into());
    }
    for node in &def.nodes {
        for key in node.other.keys() {
            match key.as_str() {
                "metadata" | "destinations" | "retry" | "cache" | "error_handler" | "subgraph" => false,
                other => missing.insert(other.into()),
            };
        }
        of_ops(&node.program, missing);
        if let Some(ops) = node.other.get("error_handler") {
            let ops: Vec<Map<String, Json>> = serde_json::from_value(ops.clone()).unwrap_or_default();
            of_ops(&ops, missing);
        }
    }
}

fn of_functional(def: &GraphDef, missing: &mut BTreeSet<String>) {
    let functional = def.functional.as_ref();
    for task in def.tasks.iter().chain(functional.into_iter().flat_map(|functional| &functional.tasks)) {
        of_ops(&task.program, missing);
        missing.extend(unknown(&task.other).map(|key| format!("task {key}")));
    }
    if let Some(functional) = functional {
        of_ops(&functional.program, missing);
        missing.extend(unknown(&functional.other).map(|key| format!("entrypoint {key}")));
    }
}

fn blocks(op: &Map<String, Json>) -> Vec<Vec<Map<String, Json>>> {
    ["then", "else", "do", "catch"]
        .iter()
        .filter_map(|part| serde_json::from_value(op.get(*part)?.clone()).ok())
        .collect()
}

/// Returns the options of a task or an entrypoint that the runner does not know.
fn unknown(options: &Map<String, Json>) -> impl Iterator<Item = &String> {
    options.keys().filter(|key| !matches!(key.as_str(), "retry" | "cache"))
}

fn of_ops(ops: &[Map<String, Json>], missing: &mut BTreeSet<String>) {
    for op in ops {
        match op["op"].as_str().unwrap_or_default() {
            "set" | "let" | "log" | "emit" | "interrupt" | "fail" | "if" | "return" | "sleep" | "each" | "chat" => {}
            "task" | "start" | "await" | "try" | "final" => {}
            "command" | "call" | "drain" => {}
            other if crate::kv::is_known(other) => {}
            other => _ = missing.insert(format!("op {other}")),
        }
        blocks(op).iter().for_each(|block| of_ops(block, missing));
    }
}

/// The stream modes of the library.
pub(crate) const MODES: [StreamMode; 7] = [
    StreamMode::Updates,
    StreamMode::Values,
    StreamMode::Custom,
    StreamMode::Messages,
    StreamMode::Checkpoints,
    StreamMode::Tasks,
    StreamMode::Debug,
];

fn of_step(step: &Map<String, Json>, missing: &mut BTreeSet<String>) {
    match step["do"].as_str().unwrap_or_default() {
        "invoke" | "stream" | "get_state" | "history" | "update_state" | "bulk_update" | "compile" => {}
        "draw_mermaid" | "graph_json" | "get_subgraphs" | "delete_thread" | "clear_cache" => {}
        other if crate::kv::is_known(other) => {}
        other => _ = missing.insert(format!("step {other}")),
    }
}
