//! The views and functions of the connections of this library, which decode what the file encodes.
//!
//! The views of the file show its rows as they are. A connection of this library has temporary views of the same names,
//! with texts and JSON in the place of encoded columns, and the views that follow from several rows: a query reads
//! these, and `main.v_writes` is the view of the file. The status, the steps and the usage of a thread are those of the
//! library. *Absent:* writing.

use annals::base::{CheckpointId, Namespace, Timestamp, Value};
use annals::history::{Snapshot, Thread, UsageCall};
use annals::rusqlite::functions::{Context, FunctionFlags};
use annals::rusqlite::types::ValueRef;
use annals::rusqlite::{Connection, Error as SqlError};
use annals::store::{SqliteBackend, Store, StoreError};
use annals_runs::{AttemptInfo, SnapshotRuns, StepInfo, ThreadStatus};
use serde_json::{Value as Json, json};

use crate::steps::seconds;

/// The functions that a query may call.
pub(super) const FUNCTIONS: [&str; 8] = [
    "annals_id(id): text of an id",
    "annals_json(value): JSON of an encoded value",
    "annals_ranges(value): JSON of the ranges of a range delete",
    "annals_steps(thread, namespace, checkpoint, next): JSON of the steps of a checkpoint",
    "annals_tasks(tasks): JSON of the tasks of a checkpoint",
    "annals_thread(thread): JSON of the status and the counts of a thread",
    "annals_usage(thread): JSON of the model calls of a thread",
    "annals_value(thread, namespace, checkpoint, channel): JSON of a channel",
];

/// The query of the views with their columns.
const COLUMNS: &str = include_str!("columns.sql");

/// The query that finds an object of the file.
const HAS_OBJECT: &str = include_str!("has_object.sql");

/// The temporary views.
const VIEWS: &str = include_str!("views.sql");

/// The objects that a file has from their first row on, as the views name them, each with a query without rows.
const AT_FIRST_USE: &str = include_str!("absent.sql");

/// Adds the functions and the views to a connection. `store` reads the threads for them.
pub(super) fn add(connection: &Connection, store: &Store) -> Result<(), SqlError> {
    SqliteBackend::add_functions(connection)?;
    let functions: [(&str, i32, ReadStore); 4] = [
        ("annals_thread", 1, thread),
        ("annals_steps", 4, steps),
        ("annals_usage", 1, usage),
        ("annals_value", 4, value),
    ];
    for (name, arguments, read) in functions {
        let (store, flags) = (store.clone(), FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS);
        connection.create_scalar_function(name, arguments, flags, move |call| {
            let read = read(&Arguments(call), &store).map_err(|error| SqlError::UserFunctionError(Box::new(error)))?;
            Ok(read.map(|json| json.to_string()))
        })?;
    }
    let mut views = VIEWS.to_owned();
    for (object, empty) in AT_FIRST_USE.split("\n\n").filter_map(|block| block.split_once('\n')) {
        if !connection.prepare(HAS_OBJECT)?.exists([object])? {
            views = views.replace(&format!("{object} "), &format!("{} ", empty.trim_end()));
        }
    }
    connection.execute_batch(&views)
}

/// Returns the views of a connection, each with its columns.
pub(super) fn views(connection: &Connection) -> Result<Vec<(String, Vec<String>)>, SqlError> {
    let mut statement = connection.prepare(COLUMNS)?;
    let columns = |columns: String| columns.split(", ").map(str::to_owned).collect();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, columns(row.get(1)?))))?;
    rows.collect()
}

/// A function that reads the store.
type ReadStore = fn(&Arguments<'_, '_>, &Store) -> Result<Option<Json>, StoreError>;

/// The arguments of a call.
struct Arguments<'c, 'a>(&'c Context<'a>);

impl Arguments<'_, '_> {
    fn text(&self, at: usize) -> &str {
        self.0.get_raw(at).as_str().unwrap_or_default()
    }

    /// Returns the thread and the namespace that begin the arguments.
    fn place(&self, store: &Store) -> Result<Thread, StoreError> {
        Ok(store.thread(self.text(0))?.with_namespace(Namespace::new(self.text(1))?))
    }

    /// Returns the checkpoint that an id names, as bytes or as a text; `None` for NULL.
    fn snapshot(&self, thread: &Thread, at: usize) -> Result<Option<Snapshot>, StoreError> {
        match self.0.get_raw(at) {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(id) if id.len() == 16 => {
                let id = id.try_into().map(CheckpointId::from_bytes).unwrap_or_default();
                thread.at(id.to_string()).map(Some)
            }
            _ => thread.at(self.text(at)).map(Some),
        }
    }
}

/// Returns the status and the counts of a thread; `None` of one without a checkpoint in its root graph.
fn thread(call: &Arguments<'_, '_>, store: &Store) -> Result<Option<Json>, StoreError> {
    let thread = store.thread(call.text(0))?;
    if thread.head()?.is_none() {
        return Ok(None);
    }
    let info = thread.info()?;
    let (wake_at, error) = match ThreadStatus::of(&info) {
        ThreadStatus::Sleeping(at) => (Some(at.to_string()), None),
        ThreadStatus::Failed(error) | ThreadStatus::Stuck(error) => (None, Some(error)),
        _ => (None, None),
    };
    let mut json = json!({ "status": ThreadStatus::of(&info).as_str(), "wake_at": wake_at, "error": error });
    if let Some(counts) = info.counts {
        json["messages"] = json!(counts.messages);
        json["input_tokens"] = json!(counts.input_tokens);
        json["output_tokens"] = json!(counts.output_tokens);
        json["cost_usd"] = json!(counts.cost_usd());
    }
    Ok(Some(json))
}

/// Returns the steps of a checkpoint whose superstep ended with the next one.
fn steps(call: &Arguments<'_, '_>, store: &Store) -> Result<Option<Json>, StoreError> {
    let thread = call.place(store)?;
    let Some(at) = call.snapshot(&thread, 2)? else { return Ok(None) };
    let steps = at.steps(call.snapshot(&thread, 3)?.as_ref())?;
    Ok(Some(steps.iter().map(step).collect()))
}

fn step(step: &StepInfo) -> Json {
    let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let attempt = |attempt: &AttemptInfo| json!({ "error": attempt.error, "started_at": text(attempt.started_at), "ended_at": text(attempt.ended_at) });
    let mut json = json!({
        "task": step.task.to_string(),
        "node": &*step.name,
        "call": step.is_call,
        "state": step.state.as_str(),
        "started_at": step.started_at.to_string(),
        "ended_at": text(step.ended_at),
        "seconds": seconds(step),
        "error": Some(step.error_text()).filter(|error| !error.is_empty()),
        "attempt": step.attempts.len(),
        "attempts": step.attempts.iter().map(attempt).collect::<Json>(),
        "handled": step.is_handled,
        "wake_at": text(step.wake_at),
    });
    if let Some(result) = &step.result {
        json["result"] = result.to_json();
    }
    json
}

/// Returns the model calls of a thread.
fn usage(call: &Arguments<'_, '_>, store: &Store) -> Result<Option<Json>, StoreError> {
    let mut calls = Vec::new();
    store.usage_calls(call.text(0), &mut |call: &UsageCall| {
        calls.push(json!({
            "day": call.day,
            "namespace": call.point.namespace.as_str(),
            "seq": call.seq,
            "node": call.node.as_deref(),
            "model": call.model,
            "input_tokens": call.input_tokens,
            "output_tokens": call.output_tokens,
            "cost_usd": call.cost_usd,
        }));
        Ok(())
    })?;
    Ok(Some(Json::Array(calls)))
}

/// Returns the value of a channel at a checkpoint; `None` if the channel is empty there.
fn value(call: &Arguments<'_, '_>, store: &Store) -> Result<Option<Json>, StoreError> {
    let at = call.snapshot(&call.place(store)?, 2)?;
    let value: Option<Value> = at.map(|at| at.get(call.text(3))).transpose()?.flatten();
    Ok(value.map(|value| value.to_json()))
}
