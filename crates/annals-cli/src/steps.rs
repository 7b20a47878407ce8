//! `annals steps` and `annals runs`: the tasks of the root graph of a thread with the tasks they called, and the runs
//! that made checkpoints.
//!
//! JSON of `steps`: `{"schema": 1, "thread", "steps": [{"checkpoint", "step", "task", "node", "call", "state",
//! "started_at", "ended_at", "seconds", "attempts", "error", "wake_at", "result"}], "more"}`; of `runs`: `{"schema": 1,
//! "runs": [{"thread", "run", "status", "checkpoints", "first", "last", "started_at", "ended_at"}], "more"}`. A task
//! starts when it is due, and ends with the checkpoint of its superstep; a called task has times of its own. The error
//! is that of its last attempt that failed.

use annals::base::{Timestamp, Value};
use annals::history::{CommitGroup, Operation};
use annals::store::{Store, StoreError};
use annals_runs::{StepInfo, ThreadRuns};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape};
use crate::point::thread;
use crate::words::{self, Waits};

/// Checkpoints in a row without a task, and operations in a row that are not runs, after which a listing ends. The
/// messages of empty ones name it.
const GAP_MAX: usize = 1_000;

fn document(step: &StepInfo) -> Json {
    json!({
        "checkpoint": step.point.checkpoint.to_string(),
        "step": step.superstep,
        "task": step.task.to_string(),
        "node": &*step.name,
        "call": step.is_call,
        "state": step.state.as_str(),
        "started_at": step.started_at.to_string(),
        "ended_at": step.ended_at.map(|at| at.to_string()),
        "seconds": seconds(step),
        "attempts": step.attempts.len(),
        "error": Some(step.error_text()).filter(|error| !error.is_empty()),
        "wake_at": step.wake_at.map(|at| at.to_string()),
        "result": step.result.as_ref().map(Value::to_json),
    })
}

/// Returns the seconds from the begin of a step to its end.
pub(crate) fn seconds(step: &StepInfo) -> Option<f64> {
    step.duration().map(|took| took.as_secs_f64())
}

pub(crate) fn run(args: &args::ThreadListArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let most = args.most();
    let mut listed = thread.steps()?;
    if most != usize::MAX {
        listed = listed.gap_max(GAP_MAX);
    }
    let rows: Vec<StepInfo> = listed.by_ref().take(most).collect::<Result<_, _>>()?;
    let more = listed.next().transpose()?.is_some() || listed.is_truncated();
    if out.is_json() {
        let steps: Vec<Json> = rows.iter().map(document).collect();
        out.json(&json!({ "schema": 1, "thread": thread.id().as_str(), "steps": steps, "more": more }))?;
        return Ok(u8::from(rows.is_empty()));
    }
    let titles = ["STEP", "NODE", "STATE", "STARTED", "TOOK", "ATTEMPTS", "ERROR"].map(String::from).to_vec();
    let mut cells = vec![titles];
    for row in &rows {
        let name = if row.is_call { format!("  {}", escape(&row.name)) } else { words::node(&row.name) };
        cells.push(vec![
            row.superstep.to_string(),
            name,
            row.state.to_string(),
            output::ago(store.now(), row.started_at),
            seconds(row).map(|seconds| format!("{seconds:.3} s")).unwrap_or_default(),
            row.attempts.len().to_string(),
            cut(&escape(row.error_text()), 80).into_owned(),
        ]);
    }
    let none = match more {
        true => "the newest 1,000 checkpoints have no task; -n 0 looks at all",
        false => "the thread has no task",
    };
    table(&cells, more, none, out)
}

/// Prints rows under their titles.
pub(crate) fn table(cells: &[Vec<String>], more: bool, none: &str, out: &mut Printer) -> Result<u8, CommandFailure> {
    let is_empty = cells.len() <= 1;
    if is_empty {
        output::note(none);
        return Ok(1);
    }
    for (at, line) in columns(cells).iter().enumerate() {
        out.row(if at == 0 { out.dim(line) } else { line.clone() })?;
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

    /// Returns whether the run has the status and the graph that are asked for.
    fn matches(&self, args: &args::RunsArgs, store: &Store) -> Result<bool, CommandFailure> {
        if args.status.is_some_and(|status| status.as_str() != self.status) {
            return Ok(false);
        }
        match &args.graph {
            Some(graph) => Ok(store.thread(self.group.thread.as_str())?.info()?.graph.as_deref() == Some(graph)),
            None => Ok(true),
        }
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
    let most = args.list.most();
    let (mut rows, mut more, mut gap) = (Vec::new(), false, 0);
    for operation in operations {
        more = gap == GAP_MAX && most != usize::MAX;
        if more {
            break;
        }
        gap += 1;
        let Operation::Commits(group) = operation? else { continue };
        if args.since.is_some_and(|since| group.at < since.at(store.now())) {
            break;
        }
        let Some(run) = group.run else { continue };
        let row = RunRow::of(store, group, run.to_string())?;
        if !row.matches(args, store)? {
            continue;
        }
        gap = 0;
        more = rows.len() == most;
        if more {
            break;
        }
        rows.push(row);
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
    let none = match more {
        true => "none of the newest 1,000 operations is such a run; -n 0 looks at all",
        false if args.status.is_some() || args.graph.is_some() || args.since.is_some() => "no run is listed",
        false => "no run has made a checkpoint",
    };
    table(&cells, more, none, out)
}
