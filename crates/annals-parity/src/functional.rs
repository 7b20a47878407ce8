//! Entrypoints of a scenario, and the ops that call tasks.

use std::collections::HashMap;
use std::sync::Arc;

use annals::base::Value;
use annals_graph::graph::BoxError;
use annals_graph::graph::{Entry, Entrypoint, Final};
use annals_graph::prelude::{Command, CompiledGraph, Input, NodeResult};
use annals_graph::task::Task;
use annals_graph::task::{Context, Interrupted};
use annals_graph::{IntoInput, StateUpdate};
use serde_json::{Map, Value as Json, json};

use crate::build::{Built, Shape};
use crate::driver::{DriverKind, at_once, give_way};
use crate::expr::{Env, eval};
use crate::policy::{cache_policy, policies};
use crate::program::{Failure, Gathered, Program, World, block_of};
use crate::scenario::{FunctionalDef, GraphDef, TaskDef};
use crate::subgraphs::persistence;
use crate::trace::plain;

type Op = Map<String, Json>;

/// The started tasks of a program, by the name of their list.
pub(crate) type StartedTasks = HashMap<String, Vec<StartedTask>>;

/// A started task.
pub(crate) enum StartedTask {
    Started(annals_graph::task::Started<Value>),
    Ended(Json),
    Failed(Failure),
    /// The task interrupted, or failed with an error that cannot be cloned.
    Gone,
}

/// An entrypoint of a scenario.
#[derive(Clone)]
pub(crate) struct EntryGraph(CompiledGraph<Entry<Value, Value>>);

/// Builds an entrypoint.
pub(crate) fn build(
    name: &str,
    def: &GraphDef,
    functional: &FunctionalDef,
    world: &World,
    child: bool,
) -> Result<EntryGraph, String> {
    let program = Program {
        graph: name.to_owned(),
        node: name.to_owned(),
        ops: functional.program.clone(),
        tasks: Arc::new(functional.tasks.clone()),
        world: world.clone(),
    };
    let (program, name) = (Arc::new(program), def.name.as_deref().unwrap_or(name));
    let mut entrypoint = match world.driver() {
        DriverKind::Blocking => Entrypoint::new(name, move |input: Value, context: &Context| {
            Ok(final_of(&at_once(program.value(plain(&input), context))?))
        }),
        DriverKind::Async => Entrypoint::new(name, move |input: Value, context: Context| {
            let program = Arc::clone(&program);
            async move {
                give_way().await;
                Ok(final_of(&program.value(plain(&input), &context).await?))
            }
        }),
    };
    entrypoint = entrypoint.persistence(persistence(def, child));
    entrypoint = policies(functional.other.get("retry")).into_iter().fold(entrypoint, Entrypoint::retry);
    if let Some(policy) = cache_policy(functional.other.get("cache")) {
        entrypoint = entrypoint.cache_policy(policy);
    }
    if let Some(cache) = world.cache(child) {
        entrypoint = entrypoint.cache(&cache);
    }
    entrypoint.compile().map(EntryGraph).map_err(|error| format!("ValueError: {error}"))
}

/// Reads a final, or a value that is both returned and saved.
fn final_of(returned: &Json) -> Final<Value> {
    let (value, save) = match returned.get("$final") {
        Some(parts) => (&parts[0], &parts[1]),
        None => (returned, returned),
    };
    Final::new(Value::from(value.clone()), Value::from(save.clone()))
}

impl Shape for EntryGraph {
    type State = Entry<Value, Value>;

    const IS_ENTRY: bool = true;

    fn graph(&self) -> &CompiledGraph<Self::State> {
        &self.0
    }

    fn shown(&self, state: &Self::State) -> Json {
        state.value().map_or(Json::Null, plain)
    }

    fn built(&self) -> Built {
        Built::Entry(self.clone())
    }

    fn asking(&self, _: Json, questions: Json) -> Json {
        json!({"__interrupt__": questions})
    }

    fn result(&self, written: Json) -> Json {
        written.get("__end__").cloned().unwrap_or_default()
    }

    fn input(&self, value: Json) -> Result<Input, Failure> {
        let Some(parts) = value.get("$command") else {
            return Ok(match value {
                Json::Null => Input::Continue,
                value => IntoInput::<Self::State, _>::into_input(Value::from(value)),
            });
        };
        let command = match parts.get("resume").filter(|answer| !answer.is_null()) {
            Some(answer) => Command::resume(Value::from(answer.clone())),
            None => Command::new(),
        };
        let command = match parts.get("goto").and_then(Json::as_str) {
            Some(node) => command.and_goto(node),
            None => command,
        };
        // An entrypoint has one channel that a command can name: its value.
        if ["resume", "goto"].iter().all(|part| parts.get(part).is_none()) && parts["update"].get("__end__").is_none() {
            return Ok(Input::Continue);
        }
        Ok(Input::Command(match parts.get("update").and_then(|update| update.get("__end__")) {
            Some(value) => {
                let value = Value::from(value.clone());
                command.and_update(Final::new(value.clone(), value))
            }
            None => command,
        }))
    }

    fn update(&self, values: &Json, as_node: Option<&str>) -> Result<StateUpdate<Self::State>, Failure> {
        Ok(StateUpdate::new(final_of(values), as_node))
    }
}

impl Program {
    /// Starts a task: on a thread, or, under the asynchronous driver, as a future.
    fn start_task(&self, name: &str, context: &Context, input: Value) -> annals_graph::task::Started<Value> {
        let def = self.tasks.iter().find(|task| task.name == name);
        let program = Program {
            graph: self.graph.clone(),
            // The counts of tasks and of nodes are separate.
            node: format!("task {name}"),
            ops: def.map(|task| task.program.clone()).unwrap_or_default(),
            tasks: Arc::clone(&self.tasks),
            world: self.world.clone(),
        };
        let program = Arc::new(program);
        match self.world.driver() {
            DriverKind::Blocking => {
                let run = move |input: Value, context: &Context| {
                    Ok(Value::from(at_once(program.value(plain(&input), context))?))
                };
                with_policies(Task::new(name, run), def).start(context, input)
            }
            DriverKind::Async => {
                let run = move |input: Value, context: Context| {
                    let program = Arc::clone(&program);
                    async move {
                        give_way().await;
                        Ok(Value::from(program.value(plain(&input), &context).await?))
                    }
                };
                with_policies(Task::new(name, run), def).start(context, input)
            }
        }
    }

    /// Runs an op that calls tasks or waits for them.
    pub(crate) async fn call(
        &self,
        op: &Op,
        env: &mut Env,
        gathered: &mut Gathered,
        context: &Context,
    ) -> Result<(), BoxError> {
        let text = |name: &str| op.get(name).and_then(Json::as_str).unwrap_or_default();
        let input = || Value::from(op.get("input").map_or(Json::Null, |expr| eval(expr, env)));
        let result = match text("op") {
            "task" => {
                let started = self.start_task(text("task"), context, input());
                plain(&self.result_of(started).await?)
            }
            "start" => {
                let started = self.start_task(text("task"), context, input());
                if self.world.driver() == DriverKind::Async {
                    started.ended().await;
                }
                let slot = StartedTask::Started(started);
                gathered.started.entry(text("into").to_owned()).or_default().push(slot);
                return Ok(());
            }
            _ => {
                let index = op.get("index").map(|index| eval(index, env).as_u64().unwrap_or(u64::MAX) as usize);
                let list = gathered.started.entry(text("from").to_owned()).or_default();
                match index.map(|at| list.get_mut(at)) {
                    Some(None) => Json::Null,
                    Some(Some(slot)) => self.wait(slot).await?,
                    None => {
                        let mut results = Vec::new();
                        for slot in list {
                            results.push(self.wait(slot).await?);
                        }
                        Json::Array(results)
                    }
                }
            }
        };
        if let Some(var) = op.get("var").and_then(Json::as_str) {
            env.vars.insert(var.to_owned(), result);
        }
        Ok(())
    }

    /// Runs a block, and another block if it fails.
    pub(crate) async fn attempt(
        &self,
        op: &Op,
        env: &mut Env,
        gathered: &mut Gathered,
        context: &Context,
    ) -> Result<Option<Json>, BoxError> {
        let error = match self.block(&block_of(op, "do"), env, gathered, context).await {
            Err(error) if !is_question(&*error) => error,
            other => return other,
        };
        if let Some(var) = op.get("var").and_then(Json::as_str) {
            let mut caught = match error.downcast_ref::<Failure>() {
                Some(failure) => failure.to_json(),
                None => error.downcast_ref::<annals_graph::Error>().map_or_else(|| json!({}), crate::trace::error),
            };
            caught.as_object_mut().map(|caught| caught.entry("message").or_insert(Json::Null));
            env.vars.insert(var.to_owned(), caught);
        }
        self.block(&block_of(op, "catch"), env, gathered, context).await
    }

    /// Waits for a task in the manner of the driver.
    async fn result_of(&self, task: annals_graph::task::Started<Value>) -> NodeResult<Value> {
        match self.world.driver() {
            DriverKind::Blocking => task.wait(),
            DriverKind::Async => task.await,
        }
    }

    async fn wait(&self, slot: &mut StartedTask) -> Result<Json, BoxError> {
        let (known, result) = match std::mem::replace(slot, StartedTask::Gone) {
            StartedTask::Started(task) => match self.result_of(task).await {
                Ok(value) => (StartedTask::Ended(plain(&value)), Ok(plain(&value))),
                Err(error) => match error.downcast_ref::<Failure>() {
                    Some(failure) => (StartedTask::Failed(failure.clone()), Err(error)),
                    None => (StartedTask::Gone, Err(error)),
                },
            },
            StartedTask::Ended(value) => (StartedTask::Ended(value.clone()), Ok(value)),
            StartedTask::Failed(failure) => (StartedTask::Failed(failure.clone()), Err(failure.into())),
            StartedTask::Gone => (StartedTask::Gone, Err("the task was waited for".into())),
        };
        *slot = known;
        result
    }
}

/// Gives a task the policies of its definition.
fn with_policies<K>(task: Task<Value, Value, K>, def: Option<&TaskDef>) -> Task<Value, Value, K> {
    let option = |option: &str| def.and_then(|task| task.other.get(option));
    let task = policies(option("retry")).into_iter().fold(task, Task::retry);
    match cache_policy(option("cache")) {
        Some(policy) => task.cache_policy(policy),
        None => task,
    }
}

/// Returns whether an error is an interrupt, a command for the parent graph or a drain.
fn is_question(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<Interrupted>() || error.source().is_some_and(is_question)
}
