//! `annals signal`, `answer`, `cancel`, `pause`, `resume` and `retry`: runs controlled from outside.
//!
//! JSON of `signal`: `{"schema": 1, "thread", "name", "checkpoint"}`; of `answer`:
//! `{"schema": 1, "thread", "interrupt"}`; of the others:
//! `{"schema": 1, "dry_run": bool, "threads": [{"thread", "changed": bool, "status", "paused": bool}]}`. A thread that
//! is done or cancelled is not cancelled again, and one without a failed task is not retried. The threads of a query
//! are changed with `--yes`; without it they are listed, and `changed` says which ones would change. *Absent:* running
//! anything, which a worker does.

use annals::history::{Thread, ThreadInfo};
use annals::store::{Store, StoreError};
use annals_runs::{ThreadRuns, ThreadStatus, choose_resume_value};
use serde_json::{Value as Json, json};

use crate::args;
use crate::digits;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{self, Printer, count, escape};
use crate::point::{open_to_read, open_to_write, thread};

/// Sends a signal. The thread need not exist.
pub(crate) fn signal(args: &args::SignalArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = store.thread(&args.thread)?;
    let checkpoint = thread.signal(&args.name, digits::value(&args.name, &args.value)?)?;
    if out.is_json() {
        let (thread, checkpoint) = (thread.id().as_str(), checkpoint.to_string());
        out.json(&json!({ "schema": 1, "thread": thread, "name": args.name, "checkpoint": checkpoint }))?;
        return Ok(0);
    }
    out.line(escape(thread.id().as_str()))?;
    out.flush()?;
    output::note("in the mailbox; the run receives it when it asks for it");
    Ok(0)
}

/// Stores the resume value of an open interrupt.
pub(crate) fn answer(args: &args::AnswerArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let id = match &args.id {
        Some(id) => id.clone(),
        None => only_interrupt(&thread)?,
    };
    let schema = thread.open_interrupts()?.into_iter().find(|open| open.id == id).and_then(|open| open.response_schema);
    let value = choose_resume_value(schema.as_ref(), digits::readings("VALUE", &args.value)?, &id);
    thread.resume_interrupt(&id, value.map_err(|misfit| CommandFailure::new(2, "invalid", misfit.to_string()))?)?;
    if out.is_json() {
        out.json(&json!({ "schema": 1, "thread": thread.id().as_str(), "interrupt": id }))?;
        return Ok(0);
    }
    out.line(escape(thread.id().as_str()))?;
    out.flush()?;
    output::note("stored; a worker, or the next run, goes on with it");
    Ok(0)
}

/// Returns the id of the only interrupt that waits for a resume value.
fn only_interrupt(thread: &Thread) -> Result<String, CommandFailure> {
    let open = thread.open_interrupts()?.into_iter().filter(|interrupt| interrupt.wake_at.is_none());
    let mut open: Vec<_> = open.collect();
    match (open.pop(), open.is_empty()) {
        (Some(interrupt), true) => Ok(interrupt.id),
        (None, _) => {
            let message = format!("thread {} has no open interrupt; nothing was written", thread.id());
            Err(CommandFailure::not_found("interrupt_not_open", message))
        }
        (Some(last), false) => {
            open.push(last);
            let ids: Vec<_> = open.iter().map(|interrupt| format!("{} ({})", interrupt.id, interrupt.value)).collect();
            let message = format!("several interrupts are open: {}; nothing was written", ids.join(", "));
            Err(CommandFailure::usage(message).hint("name one with --id"))
        }
    }
}

/// A change of a thread from outside.
#[derive(Clone, Copy)]
enum ControlVerb<'a> {
    Cancel { reason: &'a str },
    Pause,
    Resume,
    Retry,
}

impl ControlVerb<'_> {
    /// Returns the participle of the verb.
    fn done(self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancelled",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Retry => "retried",
        }
    }

    /// Returns whether the verb changes a thread.
    fn changes(self, info: &ThreadInfo) -> bool {
        match self {
            Self::Cancel { .. } => !matches!(ThreadStatus::of(info), ThreadStatus::Done | ThreadStatus::Cancelled(_)),
            Self::Pause => !info.facts.is_paused,
            Self::Resume => info.facts.is_paused,
            Self::Retry => matches!(ThreadStatus::of(info), ThreadStatus::Failed(_) | ThreadStatus::Stuck(_)),
        }
    }

    /// Changes a thread. Returns whether it has changed.
    fn run(self, thread: &Thread) -> Result<bool, StoreError> {
        match self {
            Self::Cancel { reason } => thread.cancel(reason),
            Self::Retry => thread.retry(),
            Self::Pause | Self::Resume => {
                let changes = self.changes(&thread.info()?);
                if matches!(self, Self::Pause) {
                    thread.pause()?
                } else {
                    thread.resume()?
                }
                Ok(changes)
            }
        }
    }
}

/// Opens the store: to read it for a query without `--yes`, which changes no thread, else to write.
pub(crate) fn open(chosen: &args::ChosenThreads, store: NamedStore<'_>) -> Result<Store, CommandFailure> {
    if chosen.is_dry_run() { open_to_read(store) } else { open_to_write(store) }
}

pub(crate) fn cancel(args: &args::CancelArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(&args.chosen, ControlVerb::Cancel { reason: &args.reason }, store, out)
}

pub(crate) fn pause(args: &args::ChosenThreads, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(args, ControlVerb::Pause, store, out)
}

pub(crate) fn resume(args: &args::ChosenThreads, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(args, ControlVerb::Resume, store, out)
}

pub(crate) fn retry(args: &args::ChosenThreads, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(args, ControlVerb::Retry, store, out)
}

/// A thread after a verb, or before it in a dry run.
struct ChosenRow {
    info: ThreadInfo,
    is_changed: bool,
}

/// Changes threads and prints the state of each. Named threads must all exist before one is changed. The exit code is 1
/// if none has changed, and 7 if threads of a query are only listed.
fn each(
    chosen: &args::ChosenThreads,
    verb: ControlVerb<'_>,
    store: &Store,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let is_dry_run = chosen.is_dry_run();
    let mut rows = Vec::new();
    let visited = if chosen.threads.is_empty() {
        let visit_listed = |thread: &Thread| match visit(thread, verb, is_dry_run, &mut rows) {
            // Another process has deleted it since it was listed.
            Err(StoreError::ThreadNotFound { .. }) => Ok(false),
            visited => visited,
        };
        store.for_each_thread(chosen.filter.query(store), visit_listed).map_err(CommandFailure::from).map(|_| ())
    } else {
        let threads = chosen.threads.iter().map(|name| thread(store, name)).collect::<Result<Vec<_>, _>>()?;
        let mut all = threads.iter().map(|thread| visit(thread, verb, false, &mut rows));
        all.try_for_each(|done| done.map(|_| ())).map_err(CommandFailure::from)
    };
    // The threads that were changed before a failure stay changed, and are printed.
    if visited.is_ok() || !rows.is_empty() {
        print(&rows, is_dry_run, out)?;
    }
    visited?;
    let changed = rows.iter().filter(|row| row.is_changed).count();
    if rows.is_empty() {
        output::note("no thread is listed");
    }
    if is_dry_run && changed > 0 {
        out.flush()?;
        let message = format!("{} would be {}; nothing was changed", count(changed, "thread"), verb.done());
        return Err(CommandFailure::new(7, "needs_yes", message).hint("repeat it with --yes"));
    }
    Ok(u8::from(changed == 0))
}

/// Changes a thread and adds its row; in a dry run, only its row. Returns whether it has changed, or would change.
fn visit(
    thread: &Thread,
    verb: ControlVerb<'_>,
    is_dry_run: bool,
    rows: &mut Vec<ChosenRow>,
) -> Result<bool, StoreError> {
    let is_changed = if is_dry_run { verb.changes(&thread.info()?) } else { verb.run(thread)? };
    rows.push(ChosenRow { info: thread.info()?, is_changed });
    Ok(is_changed)
}

fn print(rows: &[ChosenRow], is_dry_run: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    if out.is_json() {
        let row = |row: &ChosenRow| {
            let (id, status) = (row.info.id().as_str(), ThreadStatus::of(&row.info).as_str());
            json!({ "thread": id, "changed": row.is_changed, "status": status, "paused": row.info.facts.is_paused })
        };
        let threads: Vec<Json> = rows.iter().map(row).collect();
        out.json(&json!({ "schema": 1, "dry_run": is_dry_run, "threads": threads }))?;
        return Ok(());
    }
    for row in rows {
        let (id, status) = (escape(row.info.id().as_str()), ThreadStatus::of(&row.info).as_str());
        let paused = if row.info.facts.is_paused { ", paused" } else { "" };
        let note = match (row.is_changed, is_dry_run) {
            (false, _) => " (unchanged)",
            (true, true) => " (would change)",
            (true, false) => "",
        };
        out.line(format!("{id}  {status}{paused}{note}"))?;
    }
    Ok(())
}
