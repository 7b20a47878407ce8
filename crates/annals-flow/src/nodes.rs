//! The functions of the nodes: commands, requests, lists of commands and of workflows, settings.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use annals_graph::annals::base::{Map, Value};
use annals_graph::annals::state::{DynState, DynUpdate};
use annals_graph::graph::{NodeResult, RetryPolicy};
use annals_graph::task::{Context, Task};

use crate::build::InnerFlow;
use crate::command_log::{CommandLog, OutputTails};
use crate::expression::text_of;
use crate::files;
use crate::limits::{EACH_ITEMS_MAX, LOG_BYTES_MAX, LOG_ITEM_BYTES_MAX, LOG_ITEM_CHARS_MAX, REQUEST_TIMEOUT_DEFAULT};
use crate::process::{CommandError, CommandOutput, CommandWatch, PrintedAt, ReadyCommand, shown};
use crate::request::ReadyRequest;
use crate::secrets::Secrets;
use crate::spec::{
    CallSpec, EachSpec, Filled, FlowRetry, HttpMethod, HttpSpec, ITEM, ItemList, OutputFormat, Outputs, Parameters,
    RunSpec, SECRETS,
};

/// A value that a node cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FlowNodeError(String);

fn wrong<T>(message: impl Into<String>) -> NodeResult<T> {
    Err(FlowNodeError(message.into()).into())
}

impl Filled {
    pub(crate) fn value(&self, state: &DynState) -> NodeResult<Value> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Expression(expression) => {
                Ok(expression.evaluate(&|channel| state.value(channel).into_owned()).map_err(FlowNodeError)?)
            }
        }
    }

    fn text(&self, state: &DynState) -> NodeResult<String> {
        Ok(text_of(&self.value(state)?))
    }
}

impl Outputs {
    /// Returns the values of a workflow that has ended: the named ones, or without names its channels.
    pub(crate) fn of(&self, state: &DynState) -> NodeResult<Map> {
        if self.0.is_empty() {
            return Ok(state.to_map());
        }
        let named = self.0.iter().map(|(name, value)| Ok((name.clone(), value.value(state)?)));
        named.collect()
    }
}

impl Parameters {
    /// Returns the values with which the workflow starts; `state` is that of the workflow around it.
    fn of(&self, state: &DynState) -> NodeResult<Map> {
        let mut values = self.input.clone();
        for (channel, value) in &self.with {
            values.insert(channel.clone(), value.value(state)?);
        }
        Ok(values)
    }
}

pub(crate) fn policy(retry: FlowRetry) -> RetryPolicy {
    let policy = RetryPolicy::new().max_attempts(retry.attempts).initial_interval(retry.pause).jitter(false);
    policy.backoff_factor(retry.backoff).max_interval(crate::limits::DURATION_MAX).on_if(|_| true)
}

pub(crate) fn set(writes: &[(String, Filled)], state: &DynState) -> NodeResult<DynUpdate> {
    let mut update = DynUpdate::new();
    for (channel, value) in writes {
        update = update.set(channel.as_str(), value.value(state)?);
    }
    Ok(update)
}

/// Runs the command of a node on the state, or on each item of a list.
pub(crate) fn run(
    spec: &RunSpec,
    folder: &Path,
    secrets: Secrets,
    retry: Option<FlowRetry>,
    state: &DynState,
    context: &Context,
) -> NodeResult<DynUpdate> {
    let mut ready = ready(spec, folder, state, context)?;
    ready.env.extend(secrets.iter().cloned());
    let Some(list) = &spec.items else {
        let stdin = Value::Map(state.to_map()).to_json().to_string().into_bytes();
        let folder = ready.folder.clone();
        let command = ReadyCommand { stdin, ..ready };
        let program = command.program();
        let output = logged(command, None, &secrets, context)?;
        let is_success = output.status == 0;
        let update = update(spec, &program, output)?;
        return if is_success { with_files(update, spec, &folder, state, context) } else { Ok(update) };
    };
    let items = items(list, state)?;
    let is_matrix = matches!(list, ItemList::Matrix(_));
    // The result of each item is stored when its command ends, so that a run that continues does not repeat it.
    let (argv, env, folder) = (ready.argv, ready.env, ready.folder);
    let (timeout, format) = (spec.timeout, spec.format);
    let task = Task::new(context.node(), move |item: Value, context: &Context| -> NodeResult<Value> {
        let mut env = env.clone();
        env.push(("ITEM".into(), text_of(&item)));
        if let Some(members) = item.as_map().filter(|_| is_matrix) {
            env.extend(members.iter().map(|(name, value)| (name.to_string(), text_of(value))));
        }
        let stdin = item.to_json().to_string().into_bytes();
        let command = ReadyCommand { argv: argv.clone(), env, folder: folder.clone(), stdin, timeout };
        let program = command.program();
        let output = checked(&program, logged(command, Some(&item), &secrets, context)?)?;
        Ok(formatted(format, &program, output.stdout)?)
    });
    let results = map(&task, retry, items, spec.parallel, context)?;
    let into = spec.into.as_deref().unwrap_or_default();
    Ok(DynUpdate::new().set(into, Value::List(results)))
}

/// Runs a command whose output is stored with its task, while it runs and at its end.
fn logged(
    command: ReadyCommand,
    item: Option<&Value>,
    secrets: &Secrets,
    context: &Context,
) -> Result<CommandOutput, CommandError> {
    // A secret that is cut would not be found.
    let shown_item =
        item.map(|item| secrets.redacted(text_of(item)).chars().take(LOG_ITEM_CHARS_MAX).collect::<String>());
    let printed = |tails: &OutputTails, at: PrintedAt| {
        let exit = match at {
            PrintedAt::Running => None,
            PrintedAt::End(exit) => exit,
        };
        // The last line of a command that was killed may be half of one.
        let log = tails.log(secrets, matches!(at, PrintedAt::End(Some(_))));
        let log = CommandLog { item: shown_item.clone(), attempt: context.attempt(), exit, ..log };
        // A run without a thread stores nothing.
        _ = context.store_output(log.into_value());
    };
    let most = if item.is_some() { LOG_ITEM_BYTES_MAX } else { LOG_BYTES_MAX };
    let watch = CommandWatch { is_cancelled: &|| context.is_cancelled(), printed: &printed, most };
    secrets.redacted_output(command.run(&watch))
}

/// Adds the files that a command has written to its update.
fn with_files(
    update: DynUpdate,
    spec: &RunSpec,
    folder: &Path,
    state: &DynState,
    context: &Context,
) -> NodeResult<DynUpdate> {
    spec.files.iter().try_fold(update, |update, (channel, path)| {
        let path = folder.join(path.text(state)?);
        Ok(update.set(channel.as_str(), files::result_of(&path, &|| context.is_cancelled())?))
    })
}

/// Runs a workflow that shares no channel with the one around it.
pub(crate) fn call(inner: &InnerFlow, call: &CallSpec, state: &DynState, context: &Context) -> NodeResult<DynUpdate> {
    let outcome = inner.graph.invoke(context, DynUpdate::from(call.parameters.of(state)?))?;
    let result = Value::Map(inner.outputs.of(outcome.state())?);
    Ok(call.into.iter().fold(DynUpdate::new(), |update, into| update.set(into.as_str(), result.clone())))
}

/// Runs a workflow on each item of a list. The results are its outputs.
pub(crate) fn run_each(
    inner: &Arc<InnerFlow>,
    each: &EachSpec,
    retry: Option<FlowRetry>,
    state: &DynState,
    context: &Context,
) -> NodeResult<DynUpdate> {
    let (inner, defaults) = (Arc::clone(inner), each.parameters.of(state)?);
    let task = Task::new(context.node(), move |item: Value, context: &Context| -> NodeResult<Value> {
        let given: Map = [(ITEM.to_owned(), item)].into_iter().collect();
        let outcome = inner.graph.invoke(context, input(&defaults, Some(given)))?;
        Ok(Value::Map(inner.outputs.of(outcome.state())?))
    });
    let results = map(&task, retry, items(&each.items, state)?, each.parallel, context)?;
    Ok(DynUpdate::new().set(each.into.as_str(), Value::List(results)))
}

/// Returns the items that a node maps.
fn items(list: &ItemList, state: &DynState) -> NodeResult<Vec<Value>> {
    let each = match list {
        ItemList::Each(each) => each,
        ItemList::Matrix(lists) => return combinations(lists, state),
    };
    match each.evaluate(&|channel| state.value(channel).into_owned()).map_err(FlowNodeError)? {
        Value::List(items) if items.len() <= EACH_ITEMS_MAX => Ok(items),
        Value::List(items) => wrong(format!("`each` has {} items, more than {EACH_ITEMS_MAX}", items.len())),
        Value::Null => Ok(Vec::new()),
        other => wrong(format!("`each` is {}, not a list", other.kind())),
    }
}

/// Returns the combinations of the items of lists, those of the last list fastest.
fn combinations(lists: &[(String, Filled)], state: &DynState) -> NodeResult<Vec<Value>> {
    let mut combined = vec![Map::new()];
    for (name, list) in lists {
        let items = match list.value(state)? {
            Value::List(items) => items,
            Value::Null => Vec::new(),
            other => return wrong(format!("`{name}` of `matrix` is {}, not a list", other.kind())),
        };
        if combined.len().saturating_mul(items.len()) > EACH_ITEMS_MAX {
            return wrong(format!("`matrix` has more than {EACH_ITEMS_MAX} combinations"));
        }
        let with = |members: &Map, item: &Value| {
            let mut members = members.clone();
            members.insert(name.clone(), item.clone());
            members
        };
        combined = combined.iter().flat_map(|members| items.iter().map(move |item| with(members, item))).collect();
    }
    Ok(combined.into_iter().map(Value::Map).collect())
}

/// Calls a task for each item, some of them at a time, and returns the results in the order of the items.
fn map(
    task: &Task<Value, Value>,
    retry: Option<FlowRetry>,
    items: Vec<Value>,
    parallel: usize,
    context: &Context,
) -> NodeResult<Vec<Value>> {
    let task = match retry {
        Some(retry) => task.clone().retry(policy(retry)),
        None => task.clone(),
    };
    debug_assert!(parallel > 0, "a list is mapped by one call at a time at least");
    let count = items.len();
    let (mut running, mut results) = (VecDeque::new(), Vec::with_capacity(count));
    for item in items {
        if running.len() == parallel {
            results.extend(running.pop_front().map(annals_graph::task::Started::wait).transpose()?);
        }
        running.push_back(task.start(context, item));
    }
    for started in running {
        results.push(started.wait()?);
    }
    debug_assert_eq!(results.len(), count, "each item has a result");
    Ok(results)
}

/// Makes the request of a node.
pub(crate) fn http(spec: &HttpSpec, secrets: &Secrets, state: &DynState, context: &Context) -> NodeResult<DynUpdate> {
    let url = spec.url.text(state)?;
    let mut headers = Vec::new();
    for (name, value) in &spec.headers {
        let read = |name: &str| match name {
            SECRETS if secrets.iter().next().is_some() => {
                Value::Map(secrets.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect())
            }
            channel => state.value(channel).into_owned(),
        };
        let value = match value {
            Filled::Value(value) => value.clone(),
            Filled::Expression(expression) => expression.evaluate(&read).map_err(FlowNodeError)?,
        };
        headers.push((name.clone(), text_of(&value)));
    }
    // The same over attempts and crashes of a task: a server can tell a request that is repeated.
    if !matches!(spec.method, HttpMethod::Get | HttpMethod::Head) {
        headers.push(("Idempotency-Key".to_owned(), context.task().to_string()));
    }
    let body = spec.body.as_ref().map(|body| body.value(state)).transpose()?;
    let timeout = spec.timeout.unwrap_or(REQUEST_TIMEOUT_DEFAULT);
    let request = ReadyRequest { url: url.clone(), method: spec.method, headers, body, timeout };
    let mut response = request.send(&|| context.is_cancelled())?;
    response.body = secrets.redacted_bytes(response.body);
    let mut update = DynUpdate::new();
    match &spec.status {
        Some(channel) => update = update.set(channel.as_str(), i64::from(response.status)),
        None => response.check(&url)?,
    }
    Ok(match &spec.into {
        Some(channel) => update.set(channel.as_str(), formatted(spec.format, &url, response.body)?),
        None => update,
    })
}

/// Fills in the words of a command. The input is missing.
fn ready(spec: &RunSpec, folder: &Path, state: &DynState, context: &Context) -> NodeResult<ReadyCommand> {
    let argv = spec.argv.iter().map(|word| word.text(state)).collect::<NodeResult<Vec<String>>>()?;
    let folder = match &spec.folder {
        Some(below) => folder.join(below.text(state)?),
        None => folder.to_owned(),
    };
    let mut env = vec![
        ("ANNALS_NODE".to_owned(), context.node().to_owned()),
        ("ANNALS_THREAD".to_owned(), context.thread().map(ToString::to_string).unwrap_or_default()),
        ("ANNALS_TASK".to_owned(), context.task().to_string()),
        ("ANNALS_ATTEMPT".to_owned(), context.attempt().to_string()),
    ];
    for (name, value) in &spec.env {
        env.push((name.clone(), value.text(state)?));
    }
    if argv.iter().chain(env.iter().map(|(_, value)| value)).any(|text| text.contains('\0')) {
        return wrong("an argument or a variable of the command has a zero byte");
    }
    Ok(ReadyCommand { argv, env, folder, stdin: Vec::new(), timeout: spec.timeout })
}

fn checked(program: &str, output: CommandOutput) -> Result<CommandOutput, CommandError> {
    match output.status {
        0 => Ok(output),
        status => Err(CommandError::Status {
            program: program.to_owned(),
            status: format!("exit code {status}"),
            stderr: shown(&output.stderr),
        }),
    }
}

fn formatted(format: OutputFormat, program: &str, stdout: Vec<u8>) -> Result<Value, CommandError> {
    let wrong = |reason: String| CommandError::Output { program: program.to_owned(), reason };
    let text = String::from_utf8(stdout).map_err(|error| wrong(format!("is not UTF-8: {}", error.utf8_error())))?;
    Ok(match format {
        OutputFormat::Text => Value::from(text.trim_end_matches(['\n', '\r'])),
        OutputFormat::Lines => Value::List(text.lines().map(Value::from).collect()),
        OutputFormat::Json => {
            let json = serde_json::from_str::<serde_json::Value>(&text);
            Value::from(json.map_err(|error| wrong(format!("is not JSON: {error}")))?)
        }
    })
}

/// Returns the update that the output of a command stands for.
fn update(spec: &RunSpec, program: &str, output: CommandOutput) -> NodeResult<DynUpdate> {
    let status = output.status;
    let output = if spec.status.is_some() { output } else { checked(program, output)? };
    let mut update = DynUpdate::new();
    if let Some(channel) = &spec.status {
        update = update.set(channel.as_str(), i64::from(status));
    }
    if let Some(channel) = &spec.into {
        return Ok(update.set(channel.as_str(), formatted(spec.format, program, output.stdout)?));
    }
    if output.stdout.trim_ascii().is_empty() {
        return Ok(update);
    }
    match formatted(OutputFormat::Json, program, output.stdout)? {
        Value::Map(members) => {
            for (channel, value) in members {
                update = update.set(channel, value);
            }
            Ok(update)
        }
        other => {
            let reason = format!("is {}, not an object of channels; `into` takes any text", other.kind());
            Err(CommandError::Output { program: program.to_owned(), reason }.into())
        }
    }
}

/// Returns the members of a state as an input, without those that are unknown.
pub(crate) fn input(defaults: &Map, given: Option<Map>) -> DynUpdate {
    let mut members = defaults.clone();
    members.extend(given.unwrap_or_default());
    DynUpdate::from(members)
}
