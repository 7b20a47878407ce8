//! `annals run`: runs the workflow of a file to its end or an interrupt, or continues it.
//!
//! JSON: lines `{"schema": 1, "event": "started" | "finished" | "failed" | "waiting", "node", "item", "error", "ms"}`,
//! then `{"schema": 1, "event": "done" | "interrupted", "thread", "state", "question"}`. `item` is that of a node with
//! `each`, or null.

use std::path::Path;

use annals::base::{Map, Value};
use annals::history::Thread;
use annals::store::{OpenOptions, Store};
use annals_flow::{Error, Flow, FlowEnd, FlowEvent, FlowInput};
use annals_graph::{RunEvent, RunEventKind};
use serde_json::{Value as Json, json};

use crate::args::RunArgs;
use crate::digits;
use crate::errors::CommandFailure;
use crate::interrupt;
use crate::key::NamedStore;
use crate::output::{self, Printer, cut, escape, safe_lines};
use crate::progress::{self, ProgressLine};

/// The cells of an item in a line about its node.
const ITEM_CELLS: usize = 60;

/// Bytes of an input file.
const INPUT_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(args: &RunArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let flow = open(&args.file)?.on_event(note_lock_wait);
    let mut input = FlowInput::new().restart(args.again).control(&interrupt::control());
    if let Some(text) = &args.input {
        input = input.values(values(text)?);
    }
    if let Some(text) = &args.answer {
        input = input.resume_readings(digits::readings("--answer", text)?);
    }
    let store = open_beside(store, &args.file)?;
    let name = args.thread.as_deref().unwrap_or(flow.name());
    let thread = store.thread(name)?;
    if args.input.is_some() && !args.again && thread.head()?.is_some() {
        output::note(format!("thread {} has a run: it continues with its own input", escape(name)));
    }
    let (state, question, expected) = match run_shown(&flow, &thread, input, out)? {
        FlowEnd::Done { state } => (state, None, None),
        FlowEnd::Interrupted { state, interrupts } => {
            let first = interrupts.into_iter().next();
            let (question, schema) = first.map(|open| (open.value, open.response_schema)).unwrap_or_default();
            (state, Some(question), schema.as_ref().and_then(expected))
        }
        _ => return Err(CommandFailure::new(70, "internal", "the run ended in an unknown way")),
    };
    let state = Value::Map(state).to_json();
    if out.is_json() {
        let event = if question.is_some() { "interrupted" } else { "done" };
        let question = question.as_ref().map(Value::to_json);
        out.json_line(&json!({ "schema": 1, "event": event, "thread": name, "state": state, "question": question }))?;
    } else if let Some(question) = &question {
        let text = question.as_str().map_or_else(|| question.to_json().to_string(), str::to_owned);
        for line in safe_lines(&text) {
            out.line(format!("? {line}"))?;
        }
        out.flush()?;
        let expected = expected.map(|of| format!(": {}", escape(&of))).unwrap_or_default();
        output::note(format!("the run waits; repeat the command with --answer VALUE{expected}"));
    } else {
        for (channel, value) in state.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out.line(format!("{} = {}", escape(channel), cut(&escape(&text), 200)))?;
        }
    }
    Ok(u8::from(question.is_some()))
}

/// Runs a workflow on a thread, and prints its events.
pub(crate) fn run_shown(
    flow: &Flow,
    thread: &Thread,
    input: FlowInput,
    out: &mut Printer,
) -> Result<FlowEnd, CommandFailure> {
    let mut closed = Ok(());
    let mut running: Vec<ProgressLine> = Vec::new();
    let ended = flow.run(thread, input, &mut |event| {
        if closed.is_ok() {
            closed = show(&event, out);
        }
        follow(&event, &mut running);
        if !output::is_quiet() {
            progress::show_lines(running.clone());
        }
    });
    progress::clear();
    let ended = ended.map_err(failure)?;
    closed?;
    Ok(ended)
}

/// Reads a workflow that is to run. Its secrets are variables of the environment.
pub(crate) fn open(file: &Path) -> Result<Flow, CommandFailure> {
    let flow = Flow::open(file).map_err(failure)?.secrets(variable);
    Ok(flow.on_notify_error(|error| output::note(escape(error))))
}

#[allow(clippy::disallowed_methods, reason = "the secrets of a workflow come from the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the values that fit the schema of a node with `ask`.
fn expected(schema: &Value) -> Option<String> {
    if let Some(choices) = schema.get("enum").and_then(Value::as_list) {
        let choices = choices.iter().map(|choice| match choice {
            Value::Str(text) => text.clone(),
            other => other.to_json().to_string(),
        });
        return Some(choices.collect::<Vec<_>>().join(", "));
    }
    let kind = match schema.get("type")?.as_str()? {
        "boolean" => "yes or no",
        "integer" => "an integer",
        "number" => "a number",
        _ => "a text",
    };
    Some(kind.to_owned())
}

/// Opens the store of the arguments; without one that beside the file of a workflow.
pub(crate) fn open_beside(store: NamedStore<'_>, file: &Path) -> Result<Store, CommandFailure> {
    let beside = file.with_extension("db");
    let store = if store.path.is_some() { store } else { store.at(&beside) };
    store.open_with(OpenOptions::new())
}

/// Says that a run waits for another program.
pub(crate) fn note_lock_wait(event: &RunEvent) {
    if matches!(event.kind, RunEventKind::LockWait { .. }) {
        output::note(format!("the run is {}", event.kind));
    }
}

/// Adds a node that starts to those that run, and removes one that has ended.
fn follow(event: &FlowEvent, running: &mut Vec<ProgressLine>) {
    match event {
        FlowEvent::Started { node, item } => running.push(ProgressLine::begin(named(node, item.as_ref()))),
        FlowEvent::Finished { node, item }
        | FlowEvent::Failed { node, item, .. }
        | FlowEvent::Interrupted { node, item } => {
            let name = named(node, item.as_ref());
            if let Some(at) = running.iter().position(|line| line.text == name) {
                _ = running.remove(at);
            }
        }
        _ => {}
    }
}

/// Returns the name of a node with its item, if it has one: a text, or the JSON of another value.
fn named(node: &str, item: Option<&Value>) -> String {
    let Some(item) = item else { return escape(node).into_owned() };
    let item = item.as_str().map_or_else(|| item.to_json().to_string(), str::to_owned);
    format!("{}  {}", escape(node), cut(&escape(&item), ITEM_CELLS))
}

fn show(event: &FlowEvent, out: &mut Printer) -> std::io::Result<()> {
    let (word, node, item, error, time) = match event {
        FlowEvent::Started { node, item } => ("started", Some(node), item.as_ref(), None, None),
        FlowEvent::Finished { node, item } => ("finished", Some(node), item.as_ref(), None, None),
        FlowEvent::Failed { node, item, error } => ("failed", Some(node), item.as_ref(), Some(error), None),
        FlowEvent::Waiting { time } => ("waiting", None, None, None, Some(time)),
        _ => return Ok(()),
    };
    if out.is_json() {
        let ms = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let item = item.map(Value::to_json);
        out.json_line(&json!({ "schema": 1, "event": word, "node": node, "item": item, "error": error, "ms": ms }))?;
    } else {
        let what = node.map(|node| named(node, item)).or_else(|| time.map(|time| format!("{time:.1?}")));
        let error = error.map(|error| format!(": {}", escape(error))).unwrap_or_default();
        out.line(format!("{word:<9} {}{error}", what.unwrap_or_default()))?;
    }
    // The reader sees each node when it starts and ends.
    out.flush()
}

/// Reads the values of `--input`.
pub(crate) fn values(text: &str) -> Result<Map, CommandFailure> {
    let wrong = |reason: String| CommandFailure::usage(format!("--input: {reason}"));
    let text = match text.strip_prefix('@') {
        Some(path) => {
            let mut text = String::new();
            let read = std::fs::File::open(path).and_then(|file| {
                std::io::Read::read_to_string(&mut std::io::Read::take(file, INPUT_BYTES_MAX), &mut text)
            });
            read.map_err(|error| wrong(format!("{path}: {error}")))?;
            text
        }
        None => text.to_owned(),
    };
    let error = || serde_json::from_str::<Json>(&text).map_or_else(|error| error.to_string(), |_| String::new());
    match digits::json("--input", &text)?.ok_or_else(|| wrong(error()))? {
        Value::Map(values) => Ok(values),
        other => Err(wrong(format!("expected an object of channels, found {}", other.kind()))),
    }
}

/// Returns the failure of a workflow. Its message has several lines if the file has problems.
pub(crate) fn failure(error: Error) -> CommandFailure {
    match error {
        Error::Run(error) if error.is_user() => {
            CommandFailure::from(error).hint("repeat the command to continue the run")
        }
        Error::Run(error) => error.into(),
        Error::File(error) => CommandFailure::new(2, "workflow", error.to_string()),
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            CommandFailure::not_found("workflow_not_found", "the file of the workflow does not exist")
        }
        Error::MissingSecret { .. } => {
            CommandFailure::usage(error.to_string()).hint("set the environment variable with this name")
        }
        Error::NotWaiting => CommandFailure::usage(error.to_string()).hint("leave out --answer to continue the run"),
        Error::Stopped { .. } | Error::Io { .. } => CommandFailure::new(70, "io", error.to_string()),
        error => CommandFailure::usage(error.to_string()),
    }
}
