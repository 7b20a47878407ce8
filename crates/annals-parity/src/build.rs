//! Graphs and channels of a scenario on the public API.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::base::Value;
use annals::state::DynState;
use annals::state::ROOT;
use annals_graph::graph::{Named, Own, Target};
use annals_graph::prelude::{CompiledGraph, DynSchema, DynUpdate, Input, NodeResult, StateGraph};
use annals_graph::task::Context;
use annals_graph::{IntoInput, StateUpdate};
use serde_json::{Map, Value as Json, json};

use crate::driver::DriverKind;
use crate::expr::{Env, eval, message, text};
use crate::functional::EntryGraph;
use crate::policy::GraphParts;
use crate::program::{Failure, World, command, outputs, targets};
use crate::scenario::{BranchDef, GraphDef, Options};
use crate::subgraphs::{Inside, persistence};
use crate::trace::{ROLE, plain};

/// The channels of a graph in declaration order.
pub(crate) struct Channels {
    /// The message channels: a scenario writes to them in a format of its own.
    messages: Vec<String>,
    /// The names of the managed values.
    managed: Vec<String>,
    /// True if the whole state is one value.
    pub(crate) root: bool,
}

impl Channels {
    /// Makes the channels of a graph and their schema.
    pub(crate) fn of(def: &GraphDef, options: Options) -> Result<(Self, DynSchema), String> {
        let mut channels = Self { messages: Vec::new(), managed: Vec::new(), root: def.root.is_some() };
        let mut schema = DynSchema::new();
        if let Some(root) = &def.root {
            schema = channels.add(schema, ROOT, root, options)?;
        }
        for (name, channel) in &def.channels {
            schema = channels.add(schema, name, channel, options)?;
        }
        for (name, channel) in &def.private {
            schema = channels.add(schema, name, channel, options)?.private();
        }
        Ok((channels, schema))
    }

    fn add(&mut self, schema: DynSchema, name: &str, channel: &Json, options: Options) -> Result<DynSchema, String> {
        let is = |member: &str| channel.get(member) == Some(&json!(true));
        let guard = channel.get("guard") != Some(&json!(false));
        let kind = channel.get("kind").and_then(Json::as_str).unwrap_or("last_value");
        Ok(match kind {
            "last_value" => schema.last(name),
            "any_value" => schema.any(name),
            "ephemeral" => schema.ephemeral(name, guard),
            "untracked" => schema.untracked(name, guard),
            "topic" => schema.topic(name, is("accumulate")),
            "managed" => {
                self.managed.push(name.to_owned());
                match channel["value"] == "is_last_step" {
                    true => schema.is_last_step(name),
                    false => schema.remaining_steps(name),
                }
            }
            "binop" | "delta" => {
                let reducer = channel["reducer"].as_str().unwrap_or_default().to_owned();
                let list = options.append || kind == "delta";
                match reducer.as_str() {
                    "add_messages" => {
                        self.messages.push(name.to_owned());
                        schema.messages(name)
                    }
                    "concat_list" if list && !is("no_init") => schema.append(name),
                    _ if is("no_init") => schema.reduce(name, move |old, new| fold(&reducer, &old, &new)),
                    _ => {
                        let initial = Value::from(initial_of(&reducer));
                        schema.reduce_from(name, initial, move |old, new| fold(&reducer, &old, &new))
                    }
                }
            }
            other => return Err(format!("channel kind {other}")),
        })
    }

    /// Returns the update of the members of an object. The reference drops those that do not name a channel.
    pub(crate) fn update(&self, members: &Map<String, Json>) -> DynUpdate {
        members.iter().fold(DynUpdate::new().lenient(), |update, (name, json)| match json.get("$overwrite") {
            Some(json) => update.overwrite(name.as_str(), self.written(name, json)),
            None => update.set(name.as_str(), self.written(name, json)),
        })
    }

    /// Returns the update of a graph whose state is one value.
    pub(crate) fn root_update(&self, json: &Json) -> DynUpdate {
        DynUpdate::root(self.written(ROOT, json))
    }

    fn written(&self, name: &str, json: &Json) -> Value {
        match self.messages.iter().any(|known| known == name) {
            true => Value::from(messages(json)),
            false => Value::from(json.clone()),
        }
    }

    /// Returns the writes of a task in the format of a trace: the one value by itself.
    pub(crate) fn update_shown(&self, update: Json) -> Json {
        match update {
            Json::Array(all) if self.root => all.into_iter().map(|update| self.update_shown(update)).collect(),
            Json::Object(mut map) if self.root => map.shift_remove(ROOT).unwrap_or_default(),
            update => update,
        }
    }

    /// Returns a state as a conditional edge reads it: its channels and its managed values, or its one value.
    pub(crate) fn state_of_path(&self, state: &DynState) -> Json {
        let mut shown = self.state(state);
        if let (Json::Object(members), false) = (&mut shown, self.root) {
            members.extend(self.managed.iter().map(|name| (name.clone(), plain(state.get(name)))));
        }
        shown
    }

    /// Returns the channels of a state that are set, or its one value.
    pub(crate) fn state(&self, state: &DynState) -> Json {
        match self.root {
            true => plain(&state.root()),
            false => plain(&Value::Map(state.to_map())),
        }
    }
}

fn initial_of(reducer: &str) -> Json {
    match reducer {
        "concat_list" => json!([]),
        "concat_str" => json!(""),
        "merge_dict" => json!({}),
        _ => json!(0),
    }
}

/// The reducers of the scenarios.
fn fold(reducer: &str, old: &Value, new: &Value) -> Result<Value, String> {
    let (old, new) = (old.to_json(), new.to_json());
    let list = |json: Json| match json {
        Json::Array(items) => items,
        Json::Null => Vec::new(),
        other => vec![other],
    };
    let int = |json: &Json| json.as_i64().or(json.as_bool().map(i64::from)).unwrap_or(0);
    let folded = match reducer {
        "concat_list" => list(old).into_iter().chain(list(new)).collect(),
        "concat_str" => (text(&old) + &text(&new)).into(),
        "add_int" => int(&old).wrapping_add(int(&new)).into(),
        "max" => match (old.as_i64(), new.as_i64()) {
            (Some(a), Some(b)) => a.max(b).into(),
            _ => return Err("TypeError: not supported between these".into()),
        },
        "merge_dict" => match (old, new) {
            (old, Json::Null) => old,
            (Json::Object(mut old), Json::Object(new)) => {
                old.extend(new);
                Json::Object(old)
            }
            _ => return Err("TypeError: not a mapping".into()),
        },
        other => return Err(format!("ValueError: no reducer {other}")),
    };
    Ok(Value::from(folded))
}

/// Returns messages of a scenario in the format of the library.
fn messages(json: &Json) -> Json {
    match json {
        Json::Array(items) => items.iter().map(messages).collect(),
        one => {
            // A trace shows a message that was written with a role as it was written.
            let mut message = message(one.clone());
            if let (Some(role), Json::Object(members)) = (one.get("role"), &mut message) {
                members.insert(ROLE.into(), role.clone());
            }
            message
        }
    }
}

/// A graph of a scenario.
#[derive(Clone)]
pub(crate) enum Built {
    Graph(Plain),
    Entry(EntryGraph),
}

/// The access of the steps to a graph with a state of any type.
pub(crate) trait Shape: Clone {
    type State: Clone + Send + Sync + 'static;

    /// True for an entrypoint.
    const IS_ENTRY: bool;

    /// Returns the graph.
    fn graph(&self) -> &CompiledGraph<Self::State>;

    /// Returns a state in the format of a trace.
    fn shown(&self, state: &Self::State) -> Json;

    /// Adds open interrupts to a state.
    fn asking(&self, state: Json, questions: Json) -> Json;

    /// Returns the result of a task of a snapshot.
    fn result(&self, written: Json) -> Json;

    /// Returns the input of a value.
    fn input(&self, value: Json) -> Result<Input, Failure>;

    /// Returns it as one of the graphs of the scenario.
    fn built(&self) -> Built;

    /// Returns the update of values.
    fn update(&self, values: &Json, as_node: Option<&str>) -> Result<StateUpdate<Self::State>, Failure>;
}

impl Shape for Plain {
    type State = DynState;

    const IS_ENTRY: bool = false;

    fn graph(&self) -> &CompiledGraph<DynState> {
        &self.graph
    }

    fn shown(&self, state: &DynState) -> Json {
        self.channels.state(state)
    }

    fn built(&self) -> Built {
        Built::Graph(self.clone())
    }

    fn asking(&self, mut state: Json, questions: Json) -> Json {
        state["__interrupt__"] = questions;
        state
    }

    fn result(&self, written: Json) -> Json {
        self.channels.update_shown(written)
    }

    fn input(&self, value: Json) -> Result<Input, Failure> {
        match value {
            Json::Null => Ok(Input::Continue),
            Json::Object(map) => match map.get("$command") {
                Some(parts) => Ok(Input::Command(command(parts, &self.channels)?)),
                None if self.channels.root => {
                    Ok(IntoInput::<DynState, _>::into_input(self.channels.root_update(&Json::Object(map))))
                }
                None => Ok(IntoInput::<DynState, _>::into_input(self.channels.update(&map))),
            },
            value if self.channels.root => Ok(IntoInput::<DynState, _>::into_input(self.channels.root_update(&value))),
            _ => Err(Failure::of("InvalidUpdateError")),
        }
    }

    fn update(&self, values: &Json, as_node: Option<&str>) -> Result<StateUpdate<DynState>, Failure> {
        Ok(StateUpdate::new(outputs(values, &self.channels)?, as_node))
    }
}

/// A state graph with its channels.
#[derive(Clone)]
pub(crate) struct Plain {
    pub(crate) graph: CompiledGraph<DynState>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) inside: Inside,
}

/// Builds a graph. A graph that does not compile is a `ValueError`.
pub(crate) fn build(name: &str, def: &GraphDef, options: Options, world: &World, child: bool) -> Result<Built, String> {
    if let Some(functional) = &def.functional {
        return crate::functional::build(name, def, functional, world, child).map(Built::Entry);
    }
    let (channels, schema) = Channels::of(def, options)?;
    let channels = Arc::new(channels);
    let tasks = Arc::new(def.tasks.clone());
    let mut graph = StateGraph::with_schema(schema.build()).name(def.name.as_deref().unwrap_or(name));
    graph = graph.persistence(persistence(def, child));
    if let Some(cache) = world.cache(child) {
        graph = graph.cache(&cache);
    }
    let mut inside = BTreeMap::new();
    let shared = GraphParts { graph: name, channels: &channels, tasks: &tasks, world };
    graph = graph.node_defaults(shared.defaults(def.other.get("node_defaults")));
    for node in &def.nodes {
        if let Some(name) = node.other.get("subgraph").and_then(Json::as_str) {
            let built = world.lock().children.get(name).cloned().ok_or("it is part of itself")?;
            graph = match &built {
                Built::Graph(built) => graph.node_with(&*node.name, built.graph.clone(), shared.options(node)),
                Built::Entry(built) => graph.node_with(&*node.name, built.graph().clone(), shared.options(node)),
            };
            inside.insert(node.name.clone(), built);
            continue;
        }
        let program = shared.program(&node.name, node.program.clone());
        graph = match options.driver {
            DriverKind::Blocking => graph.node_with(&*node.name, Own(shared.run(program)), shared.options(node)),
            DriverKind::Async => graph.node_with(&*node.name, Own(shared.start(program)), shared.options(node)),
        };
    }
    for (from, to) in &def.edges {
        graph = match from {
            Json::Array(from) => graph.join(from.iter().filter_map(Json::as_str), to.as_str()),
            from => graph.edge(from.as_str().unwrap_or_default(), to.as_str()),
        };
    }
    for (at, branch) in def.branches.iter().enumerate() {
        graph = add_branch(graph, at, branch, &channels, world);
    }
    if let Some(input) = &def.input {
        graph = graph.input_channels(input.iter().map(String::as_str));
    }
    if let Some(output) = &def.output {
        graph = graph.output_channels(output.iter().map(String::as_str));
    }
    graph = graph.interrupt_before(names(def.interrupt_before.as_ref()));
    graph = graph.interrupt_after(names(def.interrupt_after.as_ref()));
    let graph = graph.compile().map_err(|error| format!("ValueError: {error}"))?;
    Ok(Built::Graph(Plain { graph, channels, inside: Arc::new(inside) }))
}

fn add_branch(
    graph: StateGraph<DynState>,
    at: usize,
    branch: &BranchDef,
    channels: &Arc<Channels>,
    world: &World,
) -> StateGraph<DynState> {
    let (expr, channels, world) = (branch.path.clone(), Arc::clone(channels), world.clone());
    let mapped = branch.map.is_some();
    let path = move |state: &DynState, context: &Context| -> NodeResult<Vec<Target>> {
        let mut seen = world.lock().returned.get(&context.task()).cloned().unwrap_or_default();
        let state = match channels.state_of_path(state) {
            Json::Object(members) if !channels.root => {
                seen.extend(members);
                Json::Object(seen)
            }
            value => value,
        };
        let env = Env { state, ..Env::default() };
        let result = match eval(&expr, &env) {
            Json::Array(items) => items,
            one => vec![one],
        };
        for target in result.iter().filter(|target| !target.is_string() && target.get("$send").is_none()) {
            let class = if mapped { "KeyError" } else { "ValueError" };
            if mapped || target.is_null() {
                return Err(Failure::of(class).into());
            }
        }
        Ok(targets(&Json::Array(result)))
    };
    let path = Named(branch.name.clone().unwrap_or_else(|| format!("branch{at}")), path);
    match &branch.map {
        None => graph.branch(branch.from.as_str(), path),
        Some(Json::Object(map)) => {
            let map = map.iter().map(|(label, node)| (label.as_str(), node.as_str().unwrap_or_default()));
            graph.branch_to(branch.from.as_str(), path, map)
        }
        Some(list) => {
            graph.branch_to(branch.from.as_str(), path, names(Some(list)).into_iter().map(|n| (n.clone(), n)))
        }
    }
}

/// Reads a list of names, or `"*"`.
pub(crate) fn names(json: Option<&Json>) -> Vec<String> {
    match json {
        Some(Json::String(name)) => vec![name.clone()],
        Some(Json::Array(items)) => items.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
