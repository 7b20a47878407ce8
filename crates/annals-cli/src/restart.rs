//! `annals restart`: continues a thread from an older checkpoint, whose tasks a worker runs anew. Nothing is deleted.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "restarted_from": {"thread", "checkpoint"}, "step", "next": [..]}`;
//! `checkpoint` is the new head. *Absent:* running the tasks.

use annals::store::{Store, StoreError};
use annals_runs::ThreadRuns;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};
use crate::point::{resolve, thread};
use crate::words;

pub(crate) fn run(args: &args::RestartArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let from = match args.from {
        Some(step) => thread(store, &args.point)?.at(format_args!("{{step:{step}}}"))?,
        None => resolve(store, &args.point)?,
    };
    let thread = store.thread(from.point().thread.as_str())?;
    let restarted = thread.restart_from(&from).map_err(|error| match error {
        StoreError::Invalid { .. } if from.record().tasks.is_empty() => {
            let (id, step) = (escape(thread.id().as_str()), from.step());
            let message = format!("no task is due at step {step} of thread {id}; nothing was written");
            CommandFailure::new(2, "invalid", message)
                .hint("annals log THREAD --json lists the tasks that are due, as next")
        }
        error => error.into(),
    })?;
    let head = thread.at(restarted)?;
    if out.is_json() {
        out.json(&json!({
            "schema": 1,
            "thread": thread.id().as_str(),
            "checkpoint": head.id().to_string(),
            "restarted_from": words::place(&from),
            "step": head.step(),
            "next": head.next().collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let name = escape(thread.id().as_str()).into_owned();
    let due = words::tally(head.next());
    out.line(format!("{name}@{}  step {}  due: {due}", out.id(&head.short_id()?), head.step()))?;
    out.flush()?;
    let (at, step) = (from.short_id()?, from.step());
    output::note(format!("restarted from {at} (step {step}); a worker continues it, and annals undo takes it back"));
    Ok(0)
}
