//! Subgraphs: as nodes, called by programs, and in snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::state::DynState;
use annals::store::record::TaskKind;
use annals_graph::TaskState;
use annals_graph::graph::BoxError;
use annals_graph::graph::{Entry, Persistence};
use annals_graph::task::Context;
use annals_graph::{StateSnapshot, TaskView};
use serde_json::{Map, Value as Json, json};

use crate::build::{Built, Shape, build};
use crate::driver::DriverKind;
use crate::program::{Program, World};
use crate::scenario::{GraphDef, Options, Scenario};
use crate::steps::On;
use crate::trace::{StoredConfig, interrupts, metadata, plain, sigil, stored_error, written};

/// The subgraphs of a graph, by the names of their nodes.
pub(crate) type Inside = Arc<BTreeMap<String, Built>>;

/// Builds the graphs that a definition uses, with their own subgraphs, and puts them into the world by name.
pub(crate) fn build_used(def: &Json, scenario: &Scenario, options: Options, world: &World) -> Result<(), String> {
    match def {
        Json::Array(items) => items.iter().try_for_each(|item| build_used(item, scenario, options, world)),
        Json::Object(map) => {
            let called = map.get("graph").filter(|_| map.get("op").is_some_and(|op| op == "call"));
            for name in map.get("subgraph").into_iter().chain(called).filter_map(Json::as_str) {
                if world.lock().children.contains_key(name) {
                    continue;
                }
                let def = scenario.graphs.get(name).cloned().unwrap_or_default();
                build_used(&def, scenario, options, world)?;
                let def: GraphDef = serde_json::from_value(def).map_err(|error| error.to_string())?;
                let built = build(name, &def, options, world, true)?;
                world.lock().children.insert(name.to_owned(), built);
            }
            map.values().try_for_each(|part| build_used(part, scenario, options, world))
        }
        _ => Ok(()),
    }
}

/// Returns the persistence of a subgraph.
pub(crate) fn persistence(def: &GraphDef, child: bool) -> Persistence {
    match def.other.get("checkpointer").filter(|_| child) {
        Some(Json::Bool(true)) => Persistence::PerThread,
        Some(Json::Bool(false)) => Persistence::Stateless,
        _ => Persistence::PerInvocation,
    }
}

impl Built {
    /// Returns the graph at a namespace, if it is declared.
    pub(crate) fn at(&self, namespace: &str) -> Option<Self> {
        let is_call = |segment: &&str| segment.bytes().all(|byte| byte.is_ascii_digit());
        let declared = match self {
            Self::Graph(built) => {
                let graph = built.graph();
                graph.subgraph::<DynState>(namespace).is_some()
                    || graph.subgraph::<Entry<annals::base::Value, annals::base::Value>>(namespace).is_some()
            }
            Self::Entry(_) => false,
        };
        let mut found = self.clone();
        for segment in namespace.split('|').filter(|segment| declared && !is_call(segment)) {
            found = found.node(segment.rsplit_once(':').map_or(segment, |(node, _)| node))?;
        }
        declared.then_some(found)
    }

    fn node(&self, name: &str) -> Option<Self> {
        match self {
            Self::Graph(built) => built.inside.get(name).cloned(),
            Self::Entry(_) => None,
        }
    }

    /// Returns the values of an untyped snapshot.
    fn values(&self, values: &annals::base::Map) -> Json {
        match self {
            Self::Graph(built) => built.channels.update_shown(plain(&annals::base::Value::Map(values.clone()))),
            Self::Entry(_) => values.get("__end__").map_or(Json::Null, plain),
        }
    }

    fn result(&self, written: Json) -> Json {
        match self {
            Self::Graph(built) => built.result(written),
            Self::Entry(built) => built.result(written),
        }
    }
}

/// Returns the graph for a step on a place, and whether it is declared.
pub(crate) fn routed(built: Built, on: &On) -> (Built, bool) {
    match on {
        On::Thread(thread) | On::At(thread, _) if !thread.namespace().is_root() => {
            let found = built.at(thread.namespace().as_str());
            let known = found.is_some();
            (found.unwrap_or(built), known)
        }
        _ => (built, true),
    }
}

impl Program {
    /// Runs a subgraph in the node. With a thread of its own it has no store.
    pub(crate) async fn call_graph(
        &self,
        op: &Map<String, Json>,
        input: Json,
        context: &Context,
    ) -> Result<Json, BoxError> {
        async fn run<B: Shape>(
            built: &B,
            (own, driver): (bool, DriverKind),
            input: Json,
            context: &Context,
        ) -> Result<Json, BoxError> {
            let input = built.input(input)?;
            let run = if own { built.graph().run(()) } else { built.graph().run(context) };
            let output = driver.output_inside(driver.prepared(run, B::IS_ENTRY), input).await?;
            let shown = output.values.as_ref().map_or(Json::Null, plain);
            if output.interrupts.is_empty() {
                return Ok(shown);
            }
            Ok(built.asking(if shown.is_null() { json!({}) } else { shown }, interrupts(&output.interrupts)))
        }
        let name = op["graph"].as_str().unwrap_or_default();
        let (built, driver) = {
            let world = self.world.lock();
            (world.children.get(name).cloned().ok_or("the scenario does not define the called graph")?, world.driver)
        };
        let way = (op.get("thread").is_some(), driver);
        match built {
            Built::Graph(built) => run(&built, way, input, context).await,
            Built::Entry(built) => run(&built, way, input, context).await,
        }
    }
}

/// Returns a snapshot in the format of a trace. Its values have that format already.
pub(crate) fn shown<S>(
    snapshot: &StateSnapshot<S>,
    built: Option<&Built>,
    thread: &str,
    values: Json,
) -> (Json, StoredConfig) {
    let mut place = StoredConfig {
        thread: thread.to_owned(),
        ns: snapshot.namespace.to_string(),
        checkpoint: snapshot.checkpoint,
        parent: snapshot.parent,
        tasks: Vec::new(),
    };
    let parent = snapshot.parent.map(|parent| StoredConfig { checkpoint: Some(parent), ..place.clone() }.to_json());
    let mut tasks = Vec::new();
    for task in &snapshot.tasks {
        let (json, inside) = shown_task(task, built, thread);
        tasks.push(json);
        place.tasks.push(inside);
    }
    let shown = json!({
        "config": place.to_json(), "parent": parent, "metadata": metadata(snapshot),
        "values": values, "next": snapshot.next, "tasks": tasks,
        "interrupts": interrupts(&snapshot.interrupts),
    });
    (shown, place)
}

fn shown_task(task: &TaskView, built: Option<&Built>, thread: &str) -> (Json, Option<StoredConfig>) {
    let path = match &task.kind {
        TaskKind::Push { index } => json!(["push", index]),
        TaskKind::Pull { .. } => json!(["pull", task.name]),
    };
    let result = task.result.as_ref().map(|writes| {
        let result = written(&annals::base::Value::Map(writes.clone()));
        built.map_or(Json::Null, |built| built.result(result))
    });
    let (state, inside) = match &task.state {
        None => (Json::Null, None),
        Some(TaskState::Snapshot(inside)) => {
            let built = built.and_then(|built| built.node(&task.name));
            let values = match (inside.checkpoint, &built) {
                (Some(_), Some(built)) => built.values(&inside.values),
                _ => json!({}),
            };
            let (json, place) = shown(inside, built.as_ref(), thread, values);
            (json, Some(place))
        }
        Some(state) => {
            let ns = state.namespace().to_string();
            let place = StoredConfig { thread: thread.to_owned(), ns, ..StoredConfig::default() };
            (place.to_json(), Some(place))
        }
    };
    let json = json!({
        "id": sigil("task", task.id), "name": task.name, "path": path,
        "error": task.error.as_deref().map(stored_error),
        "interrupts": interrupts(&task.interrupts), "result": result, "state": state,
    });
    (json, inside)
}
