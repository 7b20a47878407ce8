//! The functions of the nodes: commands, lists of commands, settings, waits, interrupts.

use std::collections::VecDeque;
use std::path::Path;

use annals_graph::annals::base::{Map, Value};
use annals_graph::annals::state::{DynState, DynUpdate};
use annals_graph::graph::{NodeResult, RetryPolicy};
use annals_graph::task::{Context, Task};

use crate::limits::EACH_ITEMS_MAX;
use crate::process::{CommandError, CommandOutput, ReadyCommand, shown};
use crate::spec::{Filled, FlowRetry, OutputFormat, RunSpec};

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

/// Returns a text as it is, null as nothing, and any other value as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Str(text) => text.clone(),
        value => value.to_json().to_string(),
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
    retry: Option<FlowRetry>,
    state: &DynState,
    context: &Context,
) -> NodeResult<DynUpdate> {
    let ready = ready(spec, folder, state, context)?;
    let Some(each) = &spec.each else {
        let stdin = Value::Map(state.to_map()).to_json().to_string().into_bytes();
        let command = ReadyCommand { stdin, ..ready };
        let program = command.program();
        let output = command.run(&|| context.is_cancelled())?;
        return update(spec, &program, output);
    };
    let items = match each.evaluate(&|channel| state.value(channel).into_owned()).map_err(FlowNodeError)? {
        Value::List(items) if items.len() <= EACH_ITEMS_MAX => items,
        Value::List(items) => return wrong(format!("`each` has {} items, more than {EACH_ITEMS_MAX}", items.len())),
        Value::Null => Vec::new(),
        other => return wrong(format!("`each` is {}, not a list", other.kind())),
    };
    // The result of each item is stored when its command ends, so that a run that continues does not repeat it.
    let (argv, env, folder) = (ready.argv, ready.env, ready.folder);
    let (timeout, format) = (spec.timeout, spec.format);
    let task = Task::new(context.node(), move |item: Value, context: &Context| -> NodeResult<Value> {
        let mut env = env.clone();
        env.push(("ITEM".into(), text_of(&item)));
        let stdin = item.to_json().to_string().into_bytes();
        let command = ReadyCommand { argv: argv.clone(), env, folder: folder.clone(), stdin, timeout };
        let program = command.program();
        let output = checked(&program, command.run(&|| context.is_cancelled())?)?;
        Ok(formatted(format, &program, output.stdout)?)
    });
    let task = match retry {
        Some(retry) => task.retry(policy(retry)),
        None => task,
    };
    let (mut running, mut results) = (VecDeque::new(), Vec::with_capacity(items.len()));
    for item in items {
        if running.len() == spec.parallel {
            results.extend(running.pop_front().map(annals_graph::task::Started::wait).transpose()?);
        }
        running.push_back(task.start(context, item));
    }
    for started in running {
        results.push(started.wait()?);
    }
    let into = spec.into.as_deref().unwrap_or_default();
    Ok(DynUpdate::new().set(into, Value::List(results)))
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
