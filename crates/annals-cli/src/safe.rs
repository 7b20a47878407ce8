//! `annals safe`: whether a point may be resumed or forked, in one verdict with its reasons. Nothing is written.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "step", "verdict": "safe" | "answer" | "repeats" | "running",
//! "reasons": [..], "would_run": [..], "repeated": [{"node", "step", "checkpoint", "state", "times"}], "interrupts":
//! [{"interrupt", "question"}], "later"}`. `later` is the number of checkpoints that descend from the point.
//!
//! Invariant: a task counts as repeated if it may have had an effect, so also one that failed or was cut short.
//! *Absent:* effects outside of tasks, and those of forks in other threads.

use std::collections::HashMap;

use annals::base::CheckpointId;
use annals::history::Snapshot;
use annals::store::{Source, Store};
use annals_runs::{OpenInterrupt, SnapshotRuns, StepInfo, StepState};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count, cut, escape};
use crate::point::resolve;
use crate::words;

/// The cells of a question in a reason.
const QUESTION_CELLS: usize = 80;
/// Rows of repeated tasks that are printed; the JSON has all.
const ROWS: usize = 20;

pub(crate) fn run(args: &args::SafeArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let at = resolve(store, &args.point)?;
    let found = SafetyFacts::of(store, &at)?;
    let (verdict, reasons) = found.verdict();
    if out.is_json() {
        let repeated: Vec<Json> = found.repeated.iter().map(document).collect();
        let open = found.open.iter().map(|open| json!({ "interrupt": open.id, "question": open.value.to_json() }));
        out.json(&json!({
            "schema": 1,
            "thread": at.point().thread.as_str(),
            "checkpoint": at.id().to_string(),
            "step": at.step(),
            "verdict": verdict,
            "reasons": reasons,
            "would_run": found.would_run,
            "repeated": repeated,
            "interrupts": open.collect::<Vec<_>>(),
            "later": found.later,
        }))?;
        return Ok(u8::from(verdict != "safe"));
    }
    out.line(format!("{verdict}  {}@{}  step {}", escape(at.point().thread.as_str()), at.short_id()?, at.step()))?;
    for reason in &reasons {
        out.line(format!("  {reason}"))?;
    }
    let mut cells = vec![["STEP", "NODE", "STATE", "ATTEMPTS"].map(String::from).to_vec()];
    cells.extend(found.repeated.iter().take(ROWS).map(|step| {
        let times = step.attempts.len().max(1).to_string();
        vec![step.superstep.to_string(), words::node(&step.name), step.state.to_string(), times]
    }));
    if cells.len() > 1 {
        for line in output::columns(&cells) {
            out.row(line)?;
        }
    }
    Ok(u8::from(verdict != "safe"))
}

/// The stored facts about a point and about the checkpoints that descend from it.
struct SafetyFacts {
    is_running: bool,
    /// The nodes of the tasks at the point that have no stored result, or of all if the thread went on after it.
    would_run: Vec<String>,
    /// The tasks that may have had an effect and would run again.
    repeated: Vec<StepInfo>,
    open: Vec<OpenInterrupt>,
    later: usize,
}

impl SafetyFacts {
    fn of(store: &Store, at: &Snapshot) -> Result<Self, CommandFailure> {
        let thread = store.thread(at.point().thread.as_str())?.with_namespace(at.point().namespace.clone());
        let lease = thread.last_lease()?;
        let is_released = lease.as_ref().is_some_and(|lease| lease.expires_at.is_none());
        let is_running = lease.is_some_and(|lease| lease.is_live(store.now()));
        let after = descendants(&thread.history()?.collect::<Result<Vec<_>, _>>()?, at)?;
        let (mut repeated, later) = (Vec::new(), after.len());
        for (parent, child) in &after {
            repeated.extend(parent.steps(Some(child))?.into_iter().filter(had_effect));
        }
        let own = at.steps(None)?;
        // The tasks of a fork or a restart were not begun if the last run released its lease. A run without a lease
        // leaves no trace of a task that it has begun.
        let is_untouched = at.source() == Source::Fork && is_released;
        if later == 0 && !is_untouched {
            repeated.extend(own.iter().filter(|step| step.state != StepState::Done && had_effect(step)).cloned());
        }
        let is_left = |step: &&StepInfo| !step.is_call && (later > 0 || step.state != StepState::Done);
        let would_run = match later {
            0 if !own.is_empty() => own.iter().filter(is_left).map(|step| step.name.to_string()).collect(),
            _ => at.next().map(str::to_owned).collect(),
        };
        // Sleeps end by themselves.
        let open = at.open_interrupts()?.into_iter().filter(|open| open.wake_at.is_none()).collect();
        Ok(Self { is_running, would_run, repeated, open, later })
    }

    /// Returns the verdict with its reasons, the one that decides first.
    fn verdict(&self) -> (&'static str, Vec<String>) {
        let (mut verdict, mut reasons) = ("safe", Vec::new());
        let mut add = |of: &'static str, reason: String| {
            verdict = if verdict == "safe" { of } else { verdict };
            reasons.push(reason);
        };
        if self.is_running {
            add("running", "a process runs the thread: a restart would race it".to_owned());
        }
        if !self.repeated.is_empty() {
            let (ended, begun): (Vec<_>, Vec<_>) = self.repeated.iter().partition(|step| step.state == StepState::Done);
            for (steps, what) in [(ended, "ended after the point"), (begun, "may have begun before")] {
                let names = words::tally(steps.iter().map(|step| &*step.name));
                if !steps.is_empty() {
                    add("repeats", format!("{} would run again, which {what}: {names}", count(steps.len(), "task")));
                }
            }
        }
        for open in &self.open {
            let asked = words::brief(&open.value.to_json());
            let asked = cut(&asked, QUESTION_CELLS).into_owned();
            add("answer", format!("interrupt {} is open: {asked}", escape(&open.id)));
        }
        if self.later > 0 {
            add("safe", format!("the branch after the point stays: {}", count(self.later, "checkpoint")));
        }
        match words::tally(self.would_run.iter().map(String::as_str)) {
            due if due.is_empty() => add("safe", "no task is due: nothing would run".to_owned()),
            due => add("safe", format!("would run: {due}")),
        }
        (verdict, reasons)
    }
}

/// Returns whether a task may have had an effect: it has ended, or an attempt may have begun.
fn had_effect(step: &StepInfo) -> bool {
    match step.state {
        StepState::Done => true,
        // A task that waits has run up to its interrupt, and runs so again by design.
        StepState::Interrupted | StepState::Sleeping => false,
        _ => !step.attempts.is_empty(),
    }
}

/// Returns the checkpoints that descend from a point with their parents, of a history whose newest comes first.
fn descendants(history: &[Snapshot], at: &Snapshot) -> Result<Vec<(Snapshot, Snapshot)>, CommandFailure> {
    let mut known: HashMap<CheckpointId, Snapshot> = HashMap::from([(at.id(), at.clone())]);
    let mut found = Vec::new();
    // A parent is older than its children.
    let newer = history.iter().take_while(|one| one.id() != at.id()).collect::<Vec<_>>();
    for child in newer.into_iter().rev() {
        let parent = words::stored_parent(child)?.and_then(|parent| known.get(&parent.id()).cloned());
        if let Some(parent) = parent {
            known.insert(child.id(), child.clone());
            found.push((parent, child.clone()));
        }
    }
    Ok(found)
}

fn document(step: &StepInfo) -> Json {
    json!({
        "node": &*step.name,
        "step": step.superstep,
        "checkpoint": step.point.checkpoint.to_string(),
        "state": step.state.as_str(),
        "times": step.attempts.len().max(1),
    })
}
