//! `annals pending`: interrupts with their questions, timers, and failures, of all threads that are not archived.
//!
//! JSON: `{"schema": 1, "pending": [{"kind": "interrupt" | "timer" | "failed" | "stuck", "thread", "namespace",
//! "checkpoint", "task", "node", "interrupt", "question", "wake_at", "error"}], "more"}`. Members that a kind does not
//! have are null. `interrupt` is the id with which `annals answer --id` names it. An interrupt that has a resume value
//! is absent: its task is due.

use annals::history::{Snapshot, StatusKind, ThreadInfo, ThreadQuery};
use annals::store::record::WriteRecord;
use annals::store::{Store, StoreError};
use annals_runs::{OpenInterrupt, SnapshotRuns, SpecialWrite, ThreadStatus};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{Printer, cut, escape};
use crate::steps;
use crate::words;

/// Threads that one read lists.
const PAGE: usize = 500;

pub(crate) fn run(args: &args::LimitArg, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let most = args.most();
    let mut rows = Vec::new();
    for status in [StatusKind::Interrupted, StatusKind::Failed, StatusKind::GivenUp] {
        of_status(store, status, most, &mut rows)?;
    }
    for timer in store.timers(None)? {
        if rows.len() > most {
            break;
        }
        let at = store.thread(timer.point.thread.as_str())?.with_namespace(timer.point.namespace.clone());
        let at = at.at(timer.point.checkpoint)?;
        // A resume value from outside has a timer too, by which a worker finds the task.
        let sleeps = |open: &OpenInterrupt| open.task == timer.task && open.wake_at.is_some();
        if !at.open_interrupts()?.iter().any(sleeps) {
            continue;
        }
        let mut row = document("timer", &at, timer.task.to_string(), node_of(&at, &timer.task.to_string()));
        row["wake_at"] = json!(timer.wake_at.to_string());
        rows.push(row);
    }
    let more = rows.len() > most;
    rows.truncate(most);
    if out.is_json() {
        out.json(&json!({ "schema": 1, "pending": rows, "more": more }))?;
        return Ok(u8::from(rows.is_empty()));
    }
    let mut cells = vec![["THREAD", "KIND", "NODE", "WAITS FOR"].map(String::from).to_vec()];
    for row in &rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let waits = match text("kind") {
            "interrupt" => words::brief(&row["question"]),
            "timer" => text("wake_at").to_owned(),
            _ => escape(text("error")).into_owned(),
        };
        cells.push(vec![
            cut(&escape(text("thread")), out.id_cells()).into_owned(),
            text("kind").to_owned(),
            words::node(text("node")),
            cut(&waits, 100).into_owned(),
        ]);
    }
    steps::table(&cells, more, "nothing waits", out)
}

/// Adds the interrupts or failures of the threads with a status.
fn of_status(store: &Store, status: StatusKind, most: usize, rows: &mut Vec<Json>) -> Result<(), CommandFailure> {
    let mut last: Option<ThreadInfo> = None;
    loop {
        let query = ThreadQuery::new().status(status).limit(PAGE);
        let page = store.threads_with(last.as_ref().map_or(query.clone(), |last| query.after(last)))?;
        for info in &page {
            let at = store.thread(info.id().as_str())?.at(info.head())?;
            let status = ThreadStatus::of(info);
            match &status {
                ThreadStatus::Failed(error) | ThreadStatus::Stuck(error) => {
                    failed(&at, status.as_str(), error, rows)?;
                }
                _ => interrupts(&at, rows)?,
            }
        }
        last = page.last().cloned();
        if last.is_none() || rows.len() > most {
            return Ok(());
        }
    }
}

fn interrupts(at: &Snapshot, rows: &mut Vec<Json>) -> Result<(), StoreError> {
    // A sleep is an interrupt with a timestamp.
    for open in at.open_interrupts()?.into_iter().filter(|open| open.wake_at.is_none()) {
        let task = open.task.to_string();
        let node = node_of(at, &task);
        let mut row = document("interrupt", at, task, node);
        row["question"] = open.value.to_json();
        row["interrupt"] = json!(open.id);
        rows.push(row);
    }
    Ok(())
}

fn failed(at: &Snapshot, kind: &str, error: &str, rows: &mut Vec<Json>) -> Result<(), StoreError> {
    let writes = at.writes()?;
    let is_error = |write: &&WriteRecord| SpecialWrite::Error.is_set(write);
    let task = writes.iter().find(is_error).map(|write| write.task.to_string());
    let node = task.as_deref().and_then(|task| node_of(at, task));
    let mut row = document(kind, at, task.unwrap_or_default(), node);
    row["error"] = json!(error);
    rows.push(row);
    Ok(())
}

/// Returns the node of a task that is due at a checkpoint.
fn node_of(at: &Snapshot, task: &str) -> Option<String> {
    let found = at.record().tasks.iter().find(|of| of.id.to_string() == task);
    found.map(|task| task.name.to_string())
}

fn document(kind: &str, at: &Snapshot, task: String, node: Option<String>) -> Json {
    json!({
        "kind": kind,
        "thread": at.point().thread.as_str(),
        "namespace": at.point().namespace.as_str(),
        "checkpoint": at.id().to_string(),
        "task": Some(task).filter(|task| !task.is_empty()),
        "node": node,
        "interrupt": null,
        "question": null,
        "wake_at": null,
        "error": null,
    })
}
