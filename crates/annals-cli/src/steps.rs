//! `annals steps` and `annals runs`: the tasks of the root graph of a thread, and the runs that made checkpoints.
//!
//! JSON of `steps`: `{"schema": 1, "thread", "steps": [{"checkpoint", "step", "task", "node", "state", "started_at",
//! "ended_at", "seconds", "attempts", "error"}], "more"}`; of `runs`: `{"schema": 1, "runs": [{"thread", "run",
//! "status", "checkpoints", "first", "last", "started_at", "ended_at"}], "more"}`. A task starts when it is due, and
//! ends with the checkpoint of its superstep. Its attempts are null unless a retry was stored.

use std::collections::{HashMap, HashSet};

use annals::base::{CheckpointId, TaskId, Timestamp, Value};
use annals::history::{CommitGroup, Operation, Snapshot, Thread};
use annals::store::{Source, Store, StoreError, WriteRecord, WriteValue};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape};
use crate::point::thread;
use crate::words::{self, Waits};

/// A task of a superstep.
pub(crate) struct TaskRow {
    at: Snapshot,
    task: TaskId,
    pub(crate) node: String,
    state: &'static str,
    ended: Option<Timestamp>,
    attempts: Option<i64>,
    error: Option<String>,
}

impl TaskRow {
    fn of(
        at: &Snapshot,
        index: usize,
        ended: Option<Timestamp>,
        is_asleep: bool,
        writes: &[WriteRecord],
    ) -> Result<Self, StoreError> {
        let task = &at.record().tasks[index];
        let own: Vec<&WriteRecord> = writes.iter().filter(|write| write.task == task.id).collect();
        let is_set = |write: &WriteRecord| write.index < 0 && write.value != WriteValue::Null;
        let on = |channel: &str| own.iter().find(|write| is_set(write) && &*write.channel == channel).copied();
        let error = on("__error__").map(WriteRecord::to_value).transpose()?;
        let attempts = on("__attempt__").map(WriteRecord::to_value).transpose()?;
        let attempts = attempts.as_ref().and_then(Value::as_list).and_then(|numbers| numbers.first()?.as_int());
        let state = match (ended, &error) {
            (Some(_), _) => "done",
            _ if own.iter().any(|write| write.index >= 0) => "done",
            (None, Some(_)) => "failed",
            (None, None) if is_asleep && on("__interrupt__").is_some() => "sleeping",
            (None, None) if on("__interrupt__").is_some() => "interrupted",
            (None, None) => "running",
        };
        Ok(Self {
            at: at.clone(),
            task: task.id,
            node: task.name.to_string(),
            state,
            ended,
            attempts: attempts.map(|number| number.saturating_add(1)),
            error: error.map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned)),
        })
    }

    /// Returns the seconds from the checkpoint at which the task was due to that of its result.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let micros = self.ended?.as_micros().saturating_sub(self.at.created_at().as_micros());
        Some(micros as f64 / 1e6)
    }

    fn document(&self) -> Json {
        json!({
            "checkpoint": self.at.id().to_string(),
            "step": self.at.step().saturating_add(1),
            "task": self.task.to_string(),
            "node": self.node,
            "state": self.state,
            "started_at": self.at.created_at().to_string(),
            "ended_at": self.ended.map(|at| at.to_string()),
            "seconds": self.seconds(),
            "attempts": self.attempts,
            "error": self.error,
        })
    }
}

/// Visits the tasks of a thread, those of the newest superstep first, until `visit` returns false.
pub(crate) fn each_task(thread: &Thread, mut visit: impl FnMut(TaskRow) -> bool) -> Result<(), CommandFailure> {
    let timers = thread.store().timers(None)?;
    let asleep: HashSet<TaskId> =
        timers.iter().filter(|timer| timer.point.thread == *thread.id()).map(|timer| timer.task).collect();
    // The timestamp of the oldest result of each superstep: children come before their parents.
    let mut ended: HashMap<CheckpointId, Timestamp> = HashMap::new();
    for at in thread.history()? {
        let at = at?;
        if let Some(parent) = at.record().parent.filter(|_| at.source() == Source::Loop) {
            ended.insert(parent, at.created_at());
        }
        let tasks = &at.record().tasks;
        if tasks.is_empty() {
            continue;
        }
        let (writes, end) = (at.writes()?, ended.remove(&at.id()));
        for (index, task) in tasks.iter().enumerate() {
            if !visit(TaskRow::of(&at, index, end, asleep.contains(&task.id), &writes)?) {
                return Ok(());
            }
        }
    }
    Ok(())
}

pub(crate) fn run(args: &args::ThreadListArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let (mut rows, most) = (Vec::new(), args.most());
    let mut more = false;
    each_task(&thread, |row| {
        more = rows.len() == most;
        if !more {
            rows.push(row);
        }
        !more
    })?;
    if out.is_json() {
        let steps: Vec<Json> = rows.iter().map(TaskRow::document).collect();
        out.json(&json!({ "schema": 1, "thread": thread.id().as_str(), "steps": steps, "more": more }))?;
        return Ok(u8::from(rows.is_empty()));
    }
    let titles = ["STEP", "NODE", "STATE", "STARTED", "TOOK", "ATTEMPTS", "ERROR"].map(String::from).to_vec();
    let mut cells = vec![titles];
    for row in &rows {
        cells.push(vec![
            row.at.step().saturating_add(1).to_string(),
            words::node(&row.node),
            row.state.to_owned(),
            output::ago(store.now(), row.at.created_at()),
            row.seconds().map(|seconds| format!("{seconds:.3} s")).unwrap_or_default(),
            row.attempts.map(|number| number.to_string()).unwrap_or_default(),
            cut(&escape(row.error.as_deref().unwrap_or_default()), 80).into_owned(),
        ]);
    }
    table(&cells, more, "the thread has no task", out)
}

/// Prints rows under their titles.
pub(crate) fn table(cells: &[Vec<String>], more: bool, none: &str, out: &mut Printer) -> Result<u8, CommandFailure> {
    let is_empty = cells.len() <= 1;
    if is_empty {
        output::note(none);
        return Ok(1);
    }
    for (at, line) in columns(cells).iter().enumerate() {
        out.line(if at == 0 { out.dim(line) } else { line.clone() })?;
    }
    if more {
        out.line(out.dim("(more: -n 0 shows all)"))?;
    }
    Ok(0)
}

/// A run with its ends.
struct RunRow {
    group: CommitGroup,
    run: String,
    started: Timestamp,
    status: &'static str,
}

impl RunRow {
    fn of(store: &Store, group: CommitGroup, run: String) -> Result<Self, CommandFailure> {
        let thread = store.thread(group.thread.as_str())?;
        let (first, last) = (thread.at(group.first)?, thread.at(group.last)?);
        let status = match thread.head()? {
            Some(head) if head.id() == last.id() => Waits::of(&last)?.status.as_str(),
            _ if last.record().tasks.is_empty() => "done",
            _ => "continued",
        };
        Ok(Self { group, run, started: first.created_at(), status })
    }

    fn document(&self) -> Json {
        json!({
            "thread": self.group.thread.as_str(),
            "run": self.run,
            "status": self.status,
            "checkpoints": self.group.checkpoints,
            "first": self.group.first.to_string(),
            "last": self.group.last.to_string(),
            "started_at": self.started.to_string(),
            "ended_at": Some(self.group.at.to_string()).filter(|_| self.status != "running"),
        })
    }
}

pub(crate) fn runs(args: &args::RunsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let operations: Box<dyn Iterator<Item = Result<Operation, StoreError>>> = match &args.thread {
        Some(name) => Box::new(thread(store, name)?.operations()?),
        None => Box::new(store.operations()?),
    };
    let (mut rows, mut more) = (Vec::new(), false);
    for operation in operations {
        let Operation::Commits(group) = operation? else { continue };
        let Some(run) = group.run else { continue };
        more = rows.len() == args.list.most();
        if more {
            break;
        }
        rows.push(RunRow::of(store, group, run.to_string())?);
    }
    if out.is_json() {
        let runs: Vec<Json> = rows.iter().map(RunRow::document).collect();
        out.json(&json!({ "schema": 1, "runs": runs, "more": more }))?;
        return Ok(u8::from(rows.is_empty()));
    }
    let mut cells = vec![["THREAD", "RUN", "STATUS", "CHECKPOINTS", "STARTED", "TOOK"].map(String::from).to_vec()];
    for row in &rows {
        let took = row.group.at.as_micros().saturating_sub(row.started.as_micros()) as f64 / 1e6;
        cells.push(vec![
            cut(&escape(row.group.thread.as_str()), 40).into_owned(),
            row.run.clone(),
            row.status.to_owned(),
            row.group.checkpoints.to_string(),
            output::ago(store.now(), row.started),
            format!("{took:.3} s"),
        ]);
    }
    table(&cells, more, "no run has made a checkpoint", out)
}
