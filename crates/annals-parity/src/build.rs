//! Graphs and channels of a scenario on the public API.

use std::sync::Arc;

use annals::base::Value;
use annals::graph::Context;
use annals::prelude::{CompiledGraph, DynSchema, DynState, DynUpdate, NodeResult, Own, StateGraph, Target};
use serde_json::{Map, Value as Json, json};

use crate::expr::{Env, eval, message, text};
use crate::program::{Failure, Program, World, targets};
use crate::scenario::{BranchDef, GraphDef, Options};
use crate::trace::{NULL, plain, value_json};

/// The channels of a graph in declaration order.
pub(crate) struct Channels(Vec<(String, Kind)>);

/// How a channel is read and written.
#[derive(Clone)]
enum Kind {
    /// One value. A null that was written is kept apart from no value by a mark, which `DynState` does not do.
    Value,
    /// A reducer with its initial value, `None` if it starts empty.
    Reduce(Option<Json>),
    Topic,
    List,
    Messages,
}

impl Channels {
    /// Makes the channels of a graph and their schema.
    pub(crate) fn of(def: &GraphDef, options: Options) -> Result<(Self, DynSchema), String> {
        let mut schema = DynSchema::new();
        let mut channels = Vec::new();
        for (name, channel) in &def.channels {
            let name = name.as_str();
            let kind = match channel.get("kind").and_then(Json::as_str).unwrap_or("last_value") {
                "topic" => {
                    schema = schema.topic(name, channel.get("accumulate") == Some(&json!(true)));
                    Kind::Topic
                }
                "binop" | "delta" => {
                    let reducer = channel["reducer"].as_str().unwrap_or_default().to_owned();
                    let no_init = channel.get("no_init") == Some(&json!(true));
                    match reducer.as_str() {
                        "add_messages" => {
                            schema = schema.messages(name);
                            Kind::Messages
                        }
                        "concat_list" if options.append && !no_init => {
                            schema = schema.append(name);
                            Kind::List
                        }
                        _ => {
                            let start = (!no_init).then(|| initial_of(&reducer));
                            let initial = start.clone();
                            schema = schema.reduce(name, move |old, new| fold(&reducer, start.as_ref(), &old, &new));
                            Kind::Reduce(initial)
                        }
                    }
                }
                kind => {
                    schema = match kind {
                        "last_value" => schema.last(name),
                        "any_value" => schema.any(name),
                        "ephemeral" => schema.ephemeral(name),
                        "untracked" => schema.untracked(name),
                        other => return Err(format!("channel kind {other}")),
                    };
                    Kind::Value
                }
            };
            channels.push((name.to_owned(), kind));
        }
        Ok((Self(channels), schema))
    }

    fn kind(&self, name: &str) -> Option<&Kind> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, kind)| kind)
    }

    /// Makes an update from the members of an object.
    pub(crate) fn update(&self, members: &Map<String, Json>) -> DynUpdate {
        members.iter().fold(DynUpdate::new(), |update, (name, json)| {
            let value = match (self.kind(name), json) {
                (Some(Kind::Value), Json::Null) => Value::Ext(NULL, Vec::new()),
                (Some(Kind::Messages), json) => Value::from(messages(json)),
                (Some(Kind::Topic), json) if !json.is_array() => Value::from(json!([json])),
                (_, json) => Value::from(json.clone()),
            };
            update.set(name.as_str(), value)
        })
    }

    /// Returns the channels of a state that hold something.
    pub(crate) fn state(&self, state: &DynState) -> Json {
        let mut out = Map::new();
        for (name, kind) in &self.0 {
            let shown = match kind {
                Kind::Value => Some(state.get(name)).filter(|value| !value.is_null()).map(plain),
                Kind::Reduce(initial) => match state.get(name) {
                    Value::Null => initial.clone(),
                    value => Some(plain(value)),
                },
                Kind::Topic => {
                    let values = state.topic(name).unwrap_or_default();
                    (!values.is_empty()).then(|| values.iter().map(plain).collect())
                }
                Kind::List => state.list(name).map(|list| list.iter().map(plain).collect()),
                Kind::Messages => state.messages(name).map(|messages| {
                    let as_json = |message| Value::from_serialize(message).map_or(Json::Null, |value| plain(&value));
                    messages.iter().map(as_json).collect()
                }),
            };
            if let Some(shown) = shown {
                out.insert(name.clone(), shown);
            }
        }
        Json::Object(out)
    }

    /// Returns what a node is given: the argument of a send as it is, or the state by channel names.
    fn input(&self, given: &Value) -> Json {
        let Json::Object(mut members) = plain(given) else { return plain(given) };
        for (name, kind) in &self.0 {
            if let (Kind::Reduce(initial), Some(Json::Null)) = (kind, members.get(name)) {
                match initial {
                    Some(initial) => _ = members.insert(name.clone(), initial.clone()),
                    None => _ = members.shift_remove(name),
                }
            }
        }
        Json::Object(members)
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

/// The reducers of the scenarios. An empty channel is null here.
fn fold(reducer: &str, initial: Option<&Json>, old: &Value, new: &Value) -> Result<Value, String> {
    let old = match (old, initial) {
        (Value::Null, None) => return Ok(new.clone()),
        (Value::Null, Some(initial)) => initial.clone(),
        (old, _) => value_json(old),
    };
    let new = value_json(new);
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

/// Messages of a scenario in the form that the library reads.
fn messages(json: &Json) -> Json {
    match json {
        Json::Array(items) => items.iter().map(messages).collect(),
        one => message(one.clone()),
    }
}

/// A graph with its channels.
#[derive(Clone)]
pub(crate) struct Built {
    pub(crate) graph: CompiledGraph<DynState>,
    pub(crate) channels: Arc<Channels>,
}

/// Builds a graph. A graph that does not compile is a `ValueError`.
pub(crate) fn build(name: &str, def: &GraphDef, options: Options, world: &World) -> Result<Built, String> {
    let (channels, schema) = Channels::of(def, options)?;
    let channels = Arc::new(channels);
    let mut graph = StateGraph::with_schema(schema.build()).name(def.name.as_deref().unwrap_or(name));
    for node in &def.nodes {
        let program = Program {
            graph: name.to_owned(),
            node: node.name.clone(),
            ops: node.program.clone(),
            channels: Arc::clone(&channels),
            world: world.clone(),
        };
        let run = move |given: Value, context: &Context| program.run(program.channels.input(&given), context);
        graph = graph.node(node.name.as_str(), Own(run));
    }
    for (from, to) in &def.edges {
        graph = match from {
            Json::Array(from) => graph.join(from.iter().filter_map(Json::as_str), to.as_str()),
            from => graph.edge(from.as_str().unwrap_or_default(), to.as_str()),
        };
    }
    for branch in &def.branches {
        graph = add_branch(graph, branch, &channels, world);
    }
    graph = graph.interrupt_before(names(def.interrupt_before.as_ref()));
    graph = graph.interrupt_after(names(def.interrupt_after.as_ref()));
    let graph = graph.compile().map_err(|error| format!("ValueError: {error}"))?;
    Ok(Built { graph, channels })
}

fn add_branch(
    graph: StateGraph<DynState>,
    branch: &BranchDef,
    channels: &Arc<Channels>,
    world: &World,
) -> StateGraph<DynState> {
    let (expr, channels, world) = (branch.path.clone(), Arc::clone(channels), world.clone());
    let mapped = branch.map.is_some();
    let path = move |state: &DynState, context: &Context| -> NodeResult<Vec<Target>> {
        let mut seen = world.lock().returned.get(&context.task()).cloned().unwrap_or_default();
        if let Json::Object(members) = channels.state(state) {
            seen.extend(members);
        }
        let env = Env { state: Json::Object(seen), ..Env::default() };
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
