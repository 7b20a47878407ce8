//! `annals fork`: starts a new thread with the state of a point. No stored row is copied or overwritten.
//!
//! Prints the id of the new thread; JSON: `{"schema": 1, "thread", "checkpoint", "forked_from": {"thread",
//! "checkpoint"}}`.

use annals::store::Store;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};
use crate::point::resolve;
use crate::words;

pub(crate) fn run(args: &args::ForkArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let from = resolve(store, &args.point)?;
    if store.thread(&args.name)?.head()?.is_some() {
        let message = format!("thread {} exists already; nothing was written", args.name);
        return Err(CommandFailure::new(5, "thread_exists", message).hint("choose another --name"));
    }
    let fork = from.fork_to(&args.name)?;
    if out.is_json() {
        let checkpoint = fork.head()?.map(|head| head.id().to_string());
        let thread = fork.id().as_str();
        let from = words::place(&from);
        out.json(&json!({ "schema": 1, "thread": thread, "checkpoint": checkpoint, "forked_from": from }))?;
        return Ok(0);
    }
    out.line(escape(fork.id().as_str()))?;
    out.flush()?;
    let due = match words::tally(from.next()) {
        nodes if nodes.is_empty() => "nothing is due".to_owned(),
        nodes => format!("{nodes} due next"),
    };
    let (thread, at) = (escape(from.point().thread.as_str()).into_owned(), from.short_id()?);
    output::note(format!("forked from {thread}@{at} (step {}), {due}", from.step()));
    Ok(0)
}
