//! `annals rm`: moves threads to the trash, or deletes them with `--now`.
//!
//! JSON: `{"schema": 1, "threads": [..], "state": "trashed" | "erased" | "pending", "until"}`; `until` is the
//! timestamp at which the trash is emptied of them, null for a deletion. In a terminal the command asks; without one,
//! or with `--no-input`, it needs `--yes`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use annals::base::Timestamp;
use annals::store::{Erasure, Store};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count, escape};
use crate::point::whole_thread;
use crate::progress;

/// Seconds of a day.
const DAY: u64 = 86_400;

pub(crate) fn run(args: &args::RmArgs, no_input: bool, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let threads = args.threads.iter().map(|name| whole_thread(store, name)).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<&str> = threads.iter().map(|thread| thread.id().as_str()).collect();
    let what = match args.now {
        true => format!("{} would be deleted for good", count(ids.len(), "thread")),
        false => {
            format!("{} would go to the trash for {}", count(ids.len(), "thread"), count(args.days as usize, "day"))
        }
    };
    if !args.yes && (no_input || !asked(&what)?) {
        let failure = CommandFailure::new(7, "needs_yes", format!("{what}; nothing was changed"));
        return Err(failure.hint("repeat it with --yes"));
    }
    let (state, until) = if args.now {
        let is_pending = matches!(store.delete_threads(&ids)?, Erasure::ErasePending { .. });
        (if is_pending { "pending" } else { "erased" }, None)
    } else {
        let period = Duration::from_secs(u64::from(args.days) * DAY);
        let micros = i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
        let until = Timestamp::from_micros(store.now().as_micros().saturating_add(micros));
        for thread in &threads {
            thread.trash(period)?;
        }
        ("trashed", Some(until.to_string()))
    };
    if out.is_json() {
        out.json(&json!({ "schema": 1, "threads": ids, "state": state, "until": until }))?;
        return Ok(0);
    }
    for id in &ids {
        out.line(escape(id))?;
    }
    out.flush()?;
    output::note(match state {
        "trashed" => "in the trash; annals undo THREAD takes a thread back",
        "pending" => "deleted; some bytes stay in the write-ahead log until a reader has ended",
        _ => "deleted",
    });
    Ok(0)
}

/// Asks on a terminal. Returns false without one.
pub(crate) fn asked(what: &str) -> io::Result<bool> {
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(false);
    }
    progress::clear();
    write!(stderr, "{what}. Go on? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
