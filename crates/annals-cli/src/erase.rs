//! `annals erase`: deletes threads, with their bytes in the file and in its write-ahead log.
//!
//! JSON: `{"schema": 1, "threads": [..], "state": "erased" | "pending"}`. Pending: the threads are gone for every
//! reader, and some of their bytes stay until a reader of another process has ended.

use annals::store::{Erasure, Store};
use annals_runs::ThreadRuns;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count, escape};
use crate::point::whole_thread;

pub(crate) fn run(args: &args::EraseArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let threads = args.threads.iter().map(|name| whole_thread(store, name)).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<&str> = threads.iter().map(|thread| thread.id().as_str()).collect();
    if !args.yes {
        let mut checkpoints = 0;
        for thread in &threads {
            checkpoints += thread.size()?.checkpoints;
        }
        let (threads, checkpoints) = (count(ids.len(), "thread"), count(checkpoints as usize, "checkpoint"));
        let message = format!("{threads} with {checkpoints} would be erased for good; nothing was changed");
        return Err(CommandFailure::new(7, "needs_yes", message).hint("repeat it with --yes"));
    }
    let is_pending = matches!(store.delete_threads(&ids)?, Erasure::ErasePending { .. });
    if out.is_json() {
        let state = if is_pending { "pending" } else { "erased" };
        out.json(&json!({ "schema": 1, "threads": ids, "state": state }))?;
        return Ok(0);
    }
    for id in &ids {
        out.line(escape(id))?;
    }
    out.flush()?;
    output::note(match is_pending {
        true => "deleted; some bytes stay in the write-ahead log until a reader has ended",
        false => "erased",
    });
    Ok(0)
}
