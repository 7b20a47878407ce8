//! Programs: the ops of the nodes of a scenario.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals::base::TaskId;
use annals::state::DynState;
use annals::state::Output;
use annals::store::Cache;
use annals_graph::graph::Target;
use annals_graph::graph::{BoxError, IntoOutput};
use annals_graph::prelude::{Command, DynUpdate, SendTo};
use annals_graph::task::{Context, NodeError};
use serde_json::{Map, Value as Json, json};

use crate::build::{Built, Channels};
use crate::driver::DriverKind;
use crate::expr::{Env, eval, members, text, truthy};
use crate::functional::StartedTasks;
use crate::scenario::TaskDef;

/// The state that the nodes of a scenario share.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<WorldState>>);

/// The counts of calls, the log, and the graphs.
#[derive(Default)]
pub(crate) struct WorldState {
    pub(crate) log: Vec<Json>,
    pub(crate) calls: HashMap<(String, String), u64>,
    /// The return values of the tasks, for the conditional edges that follow.
    pub(crate) returned: HashMap<TaskId, Map<String, Json>>,
    /// The subgraphs, by their names.
    pub(crate) children: HashMap<String, Built>,
    /// The driver that runs the graphs.
    pub(crate) driver: DriverKind,
    /// The cache of the root graphs.
    pub(crate) cache: Option<Cache>,
}

impl World {
    /// Returns the world of a scenario with a driver, and with a cache if it has one.
    pub(crate) fn new(driver: DriverKind, cache: Option<Cache>) -> Self {
        Self(Arc::new(Mutex::new(WorldState { driver, cache, ..WorldState::default() })))
    }

    /// Returns the cache of a graph: a subgraph gets none.
    pub(crate) fn cache(&self, child: bool) -> Option<Cache> {
        self.lock().cache.clone().filter(|_| !child)
    }

    /// Returns the driver that runs the graphs.
    pub(crate) fn driver(&self) -> DriverKind {
        self.lock().driver
    }

    /// Locks the shared state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A failure of a program, with its class in the reference.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) class: String,
    pub(crate) message: String,
}

impl Failure {
    /// Returns a failure of a class whose text is not compared.
    pub(crate) fn of(class: &str) -> Self {
        Self { class: class.into(), message: String::new() }
    }

    /// Reads a failure from its text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (class, message) = text.split_once(": ")?;
        let known = class.chars().all(|c| c.is_ascii_alphanumeric()) && class.ends_with("Error");
        known.then(|| Self { class: class.into(), message: message.into() })
    }

    /// Returns the failure in the format of a trace.
    pub(crate) fn to_json(&self) -> Json {
        let mut out = json!({"class": self.class});
        if self.message.starts_with("user: ") {
            out["message"] = self.message.as_str().into();
        } else if let Some(code) = self.message.strip_prefix("code ") {
            out["code"] = code.into();
        }
        out
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for Failure {}

/// One item of the output of a node.
pub(crate) enum Out {
    Update(DynUpdate),
    Command(Command),
}

impl IntoOutput<DynState> for Out {
    fn into_output(self) -> Output {
        match self {
            Self::Update(update) => IntoOutput::<DynState>::into_output(update),
            Self::Command(command) => IntoOutput::<DynState>::into_output(command),
        }
    }
}

/// The program of one node.
pub(crate) struct Program {
    pub(crate) graph: String,
    pub(crate) node: String,
    pub(crate) ops: Vec<Map<String, Json>>,
    /// The tasks that it can call.
    pub(crate) tasks: Arc<Vec<TaskDef>>,
    pub(crate) world: World,
}

/// The future of a block.
pub(crate) type Block<'a> = Pin<Box<dyn Future<Output = Result<Option<Json>, BoxError>> + Send + 'a>>;

/// The values that a program has collected so far.
#[derive(Default)]
pub(crate) struct Gathered {
    set: Option<Map<String, Json>>,
    commands: Vec<Json>,
    /// The started tasks, by list.
    pub(crate) started: StartedTasks,
}

impl Program {
    /// Runs the program of a task and returns the output of its node.
    pub(crate) async fn run(&self, state: Json, channels: &Channels, context: &Context) -> Result<Vec<Out>, BoxError> {
        let returned = self.value(state, context).await?;
        if let Json::Object(map) = &returned {
            self.world.lock().returned.insert(context.task(), map.clone());
        }
        Ok(outputs(&returned, channels)?)
    }

    /// Runs the program and returns its value.
    pub(crate) async fn value(&self, state: Json, context: &Context) -> Result<Json, BoxError> {
        let calls = {
            let mut world = self.world.lock();
            let calls = world.calls.entry((self.graph.clone(), self.node.clone())).or_insert(0);
            *calls += 1;
            *calls
        };
        let previous = context.previous::<annals::base::Value>()?.map_or(Json::Null, |kept| crate::trace::plain(&kept));
        let mut env = Env {
            state,
            calls,
            attempt: context.attempt().into(),
            previous,
            error: context.error().map(error_seen).unwrap_or_default(),
            context: context.value::<Json>().cloned().unwrap_or_default(),
            ..Env::default()
        };
        let mut gathered = Gathered::default();
        Ok(match self.block(&self.ops, &mut env, &mut gathered, context).await? {
            Some(value) => value,
            None => match (gathered.set, gathered.commands) {
                (set, commands) if commands.is_empty() => set.map_or(Json::Null, Json::Object),
                (None, mut commands) if commands.len() == 1 => commands.remove(0),
                (set, commands) => set.map(Json::Object).into_iter().chain(commands).collect(),
            },
        })
    }

    /// Runs ops until one of them returns.
    pub(crate) fn block<'a>(
        &'a self,
        ops: &'a [Map<String, Json>],
        env: &'a mut Env,
        gathered: &'a mut Gathered,
        context: &'a Context,
    ) -> Block<'a> {
        Box::pin(self.ops(ops, env, gathered, context))
    }

    async fn ops(
        &self,
        ops: &[Map<String, Json>],
        env: &mut Env,
        gathered: &mut Gathered,
        context: &Context,
    ) -> Result<Option<Json>, BoxError> {
        for op in ops {
            let value = |env: &Env, name: &str| op.get(name).map_or(Json::Null, |expr| eval(expr, env));
            let var = op.get("var").and_then(Json::as_str);
            let mut inner = None;
            match op["op"].as_str().unwrap_or_default() {
                "set" => gathered.set.get_or_insert_with(Map::new).extend(members(&op["to"], env)),
                "command" => {
                    let mut command = members(&Json::Object(op.clone()), env);
                    command.shift_remove("op");
                    gathered.commands.push(json!({"$command": command}));
                }
                "let" => _ = env.vars.insert(var.unwrap_or_default().into(), value(env, "value")),
                "log" => {
                    let value = value(env, "value");
                    self.world.lock().log.push(value);
                }
                "interrupt" => {
                    let answer = context.interrupt(annals::base::Value::from(value(env, "value")))?;
                    set_var(env, var, crate::trace::plain(&answer));
                }
                "fail" if op.get("if").is_none_or(|when| truthy(&eval(when, env))) => {
                    let message = op.get("message").map_or("boom".into(), |message| text(&eval(message, env)));
                    let class = op.get("class").and_then(Json::as_str).unwrap_or("UserError");
                    return Err(Failure { class: class.into(), message: format!("user: {message}") }.into());
                }
                "if" => inner = Some(if truthy(&value(env, "cond")) { "then" } else { "else" }),
                "each" => {
                    for item in value(env, "list").as_array().into_iter().flatten() {
                        env.vars.insert(var.unwrap_or_default().into(), item.clone());
                        let block = block_of(op, "do");
                        if let Some(returned) = self.block(&block, env, gathered, context).await? {
                            return Ok(Some(returned));
                        }
                    }
                }
                "call" => {
                    let output = self.call_graph(op, value(env, "input"), context).await?;
                    _ = env.vars.insert(var.unwrap_or_default().into(), output);
                }
                "return" => return Ok(Some(value(env, "value"))),
                "final" => return Ok(Some(json!({"$final": [value(env, "value"), value(env, "save")]}))),
                "task" | "start" | "await" => self.call(op, env, gathered, context).await?,
                "try" => {
                    if let Some(returned) = self.attempt(op, env, gathered, context).await? {
                        return Ok(Some(returned));
                    }
                }
                _ => outside(op, env, context)?,
            }
            if let Some(inner) = inner
                && let Some(returned) = self.block(&block_of(op, inner), env, gathered, context).await?
            {
                return Ok(Some(returned));
            }
        }
        Ok(None)
    }
}

/// Runs an op with an effect outside of the program. `sleep` has none.
fn outside(op: &Map<String, Json>, env: &mut Env, context: &Context) -> Result<(), BoxError> {
    match op["op"].as_str().unwrap_or_default() {
        "drain" => {
            let reason = op.get("reason").map_or("shutdown".into(), |reason| text(&eval(reason, env)));
            context.control().request_drain(reason);
        }
        "emit" => {
            let value = op.get("value").map_or(Json::Null, |expr| eval(expr, env));
            context.emit(annals::base::Value::from(value));
        }
        "chat" => {
            let message = chat(op, env, context)?;
            let var = op.get("var").and_then(Json::as_str).unwrap_or_default();
            env.vars.insert(var.into(), message);
        }
        what if crate::kv::is_known(what) => memory(op, env, context)?,
        _ => {}
    }
    Ok(())
}

/// Returns a failure as an error handler reads it.
fn error_seen(error: &NodeError) -> Json {
    // In a later run the text alone is left.
    let failure = error.find::<Failure>().cloned().or_else(|| Failure::parse(crate::trace::innermost(&error.message)));
    let library = || {
        let shown = match error.find::<annals_graph::Error>() {
            Some(inside) => crate::trace::error(inside),
            None => crate::trace::stored_error(&error.message),
        };
        Failure::of(shown["class"].as_str().unwrap_or_default())
    };
    let failure = failure.unwrap_or_else(library);
    let message = Some(&failure.message).filter(|message| message.starts_with("user: "));
    json!({"node": error.node, "class": failure.class, "message": message})
}

/// Streams the tokens of a fake model, and returns its message.
fn chat(op: &Map<String, Json>, env: &Env, context: &Context) -> Result<Json, BoxError> {
    let tokens = op.get("tokens").map_or(Json::Null, |expr| eval(expr, env));
    let tokens: Vec<String> = tokens.as_array().into_iter().flatten().map(text).collect();
    let tags = crate::build::names(op.get("tags"));
    let id = op.get("id").map(|expr| text(&eval(expr, env)));
    let mut stream = context.message_stream().with_tags(tags.clone());
    // The id of a model is marked here, as a trace always shows it.
    let id = id.unwrap_or_else(|| format!("«msg:{}»", stream.id()));
    stream = stream.with_id(&id);
    let message = if op.get("stream") == Some(&Json::Bool(false)) {
        let message = annals::message::Message::ai(tokens.concat()).with_id(id);
        if tags.iter().any(|tag| tag == "nostream") { message } else { context.emit_message(message) }
    } else {
        for (at, token) in tokens.iter().enumerate() {
            if at + 1 == tokens.len() { stream.push_last(token) } else { stream.push(token) }
        }
        stream.finish()
    };
    Ok(annals::base::Value::from_serialize(&message)?.to_json())
}

/// Runs an op on the key-value memory.
fn memory(op: &Map<String, Json>, env: &mut Env, context: &Context) -> Result<(), BoxError> {
    let what = op["op"].as_str().unwrap_or_default();
    let found = crate::kv::run(context.kv()?, what, &members(&Json::Object(op.clone()), env))?;
    set_var(env, op.get("var").and_then(Json::as_str).filter(|_| found.is_some()), found.unwrap_or_default());
    Ok(())
}

fn set_var(env: &mut Env, var: Option<&str>, value: Json) {
    if let Some(var) = var {
        env.vars.insert(var.into(), value);
    }
}

pub(crate) fn block_of(op: &Map<String, Json>, name: &str) -> Vec<Map<String, Json>> {
    op.get(name).and_then(|block| serde_json::from_value(block.clone()).ok()).unwrap_or_default()
}

/// Converts the return value of a node to the types of the library. These exclude all other values, so the error of
/// the reference is made here.
pub(crate) fn outputs(returned: &Json, channels: &Channels) -> Result<Vec<Out>, Failure> {
    let invalid =
        || Failure { class: "InvalidUpdateError".into(), message: "code INVALID_GRAPH_NODE_RETURN_VALUE".into() };
    match returned {
        Json::Null => Ok(Vec::new()),
        Json::Object(map) => match map.get("$command") {
            Some(parts) => Ok(vec![Out::Command(command(parts, channels)?)]),
            None if channels.root => Ok(vec![Out::Update(channels.root_update(returned))]),
            None => Ok(vec![Out::Update(channels.update(map))]),
        },
        Json::Array(items) if items.iter().any(|item| item.get("$command").is_some()) => {
            let mut all = Vec::new();
            for item in items {
                all.extend(outputs(item, channels)?);
            }
            Ok(all)
        }
        value if channels.root => Ok(vec![Out::Update(channels.root_update(value))]),
        _ => Err(invalid()),
    }
}

/// Returns the command of its members.
pub(crate) fn command(parts: &Json, channels: &Channels) -> Result<Command, Failure> {
    let mut command = match parts.get("resume").filter(|answer| !answer.is_null()) {
        Some(answer) => Command::resume(annals::base::Value::from(answer.clone())),
        None => Command::new(),
    };
    match parts.get("update") {
        None | Some(Json::Null) => {}
        Some(value) if channels.root => command = command.and_update(channels.root_update(value)),
        Some(Json::Object(update)) => command = command.and_update(channels.update(update)),
        Some(_) => {}
    }
    if parts.get("graph").is_some_and(|graph| graph == "parent") {
        command = command.to_parent();
    }
    for target in targets(parts.get("goto").unwrap_or(&Json::Null)) {
        command = command.and_goto(target);
    }
    Ok(command)
}

/// Reads targets: one or a list of names and sends.
pub(crate) fn targets(json: &Json) -> Vec<Target> {
    match json {
        Json::Null => Vec::new(),
        Json::Array(items) => items.iter().map(target).collect(),
        one => vec![target(one)],
    }
}

fn target(json: &Json) -> Target {
    match json.get("$send") {
        Some(send) => Target::Send(SendTo::new(text(&send[0]), annals::base::Value::from(send[1].clone()))),
        None => Target::from(text(json)),
    }
}
