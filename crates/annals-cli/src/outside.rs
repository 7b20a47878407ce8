//! `annals signal`, `answer`, `cancel`, `pause`, `resume` and `retry`: runs controlled from outside.
//!
//! JSON of `signal`: `{"schema": 1, "thread", "name", "checkpoint"}`; of `answer`: `{"schema": 1, "thread", "interrupt"}`; of the others:
//! `{"schema": 1, "threads": [{"thread", "changed": bool, "status", "paused": bool}]}`. A thread that is done or cancelled is not cancelled
//! again, and one without a failed task is not retried. *Absent:* running anything, which a worker does.

use annals::base::Value;
use annals::history::Thread;
use annals::store::{Store, StoreError};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};
use crate::point::thread;

/// Sends a signal. The thread need not exist.
pub(crate) fn signal(args: &args::SignalArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = store.thread(&args.thread)?;
    let checkpoint = thread.signal(&args.name, value(&args.value))?;
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
    thread.resume_interrupt(&id, value(&args.value))?;
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

pub(crate) fn cancel(args: &args::CancelArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(&args.threads, store, out, |thread| thread.cancel(&args.reason))
}

pub(crate) fn pause(args: &args::ThreadsArg, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    set_paused(args, true, store, out)
}

pub(crate) fn resume(args: &args::ThreadsArg, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    set_paused(args, false, store, out)
}

fn set_paused(args: &args::ThreadsArg, paused: bool, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(&args.threads, store, out, |thread| {
        let changes = thread.info()?.facts().is_paused != paused;
        if paused {
            thread.pause()?
        } else {
            thread.resume()?
        }
        Ok(changes)
    })
}

pub(crate) fn retry(args: &args::ThreadsArg, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    each(&args.threads, store, out, Thread::retry)
}

/// Changes threads, of which all exist, and prints what became of each. The exit code is 1 if none has changed.
fn each(
    names: &[String],
    store: &Store,
    out: &mut Printer,
    act: impl Fn(&Thread) -> Result<bool, StoreError>,
) -> Result<u8, CommandFailure> {
    let threads = names.iter().map(|name| thread(store, name)).collect::<Result<Vec<_>, _>>()?;
    let (mut rows, mut changed) = (Vec::new(), 0);
    for thread in &threads {
        let is_changed = act(thread)?;
        changed += usize::from(is_changed);
        let info = thread.info()?;
        let (id, status, paused) = (info.id().as_str(), info.status().as_str(), info.facts().is_paused);
        if out.is_json() {
            rows.push(json!({ "thread": id, "changed": is_changed, "status": status, "paused": paused }));
            continue;
        }
        let paused = if paused { ", paused" } else { "" };
        let unchanged = if is_changed { "" } else { " (unchanged)" };
        out.line(format!("{}  {status}{paused}{unchanged}", escape(id)))?;
    }
    if out.is_json() {
        out.json(&json!({ "schema": 1, "threads": rows }))?;
    }
    Ok(u8::from(changed == 0))
}

/// Returns the value of a text: JSON, or the text itself.
fn value(text: &str) -> Value {
    serde_json::from_str::<serde_json::Value>(text).map_or_else(|_| Value::from(text), Value::from)
}
