//! `annals compact` and `annals recover IN OUT`: the verbs that change or repair a whole file.
//!
//! JSON: `{"schema": 1, "pages", "free_pages", "bytes_before", "bytes_after", "log_copied"}`; `{"schema": 1, "threads",
//! "checkpoints", "writes", "timers", "entries", "lost_count", "lost": [{"kind", "thread", "checkpoint", "place",
//! "reason"}], "salvaged", "doubts": [..]}`. Exit code 1 if something was lost or may have been.

use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, count, escape, grouped, size};
use crate::point;

/// The number of lost things that are listed as text; JSON has all that the report names.
const LOST_MAX: usize = 50;

pub(crate) fn compact(named: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    _ = point::file(named, "annals compact shortens", "the server frees space by its vacuum")?;
    let done = point::open_to_write(named)?.compact()?;
    if out.is_json() {
        out.json(&json!({
            "schema": 1,
            "pages": done.pages,
            "free_pages": done.free_pages,
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
            "log_copied": done.is_log_copied,
        }))?;
        return Ok(0);
    }
    out.line(format!("{} before, {} now", size(done.bytes_before), size(done.bytes_after)))?;
    if !done.is_log_copied {
        out.line("a reader holds the write-ahead log: the file gets shorter once it has ended")?;
    }
    Ok(0)
}

pub(crate) fn recover(
    args: &args::RecoverArgs,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let report = crate::key::recover(store, &args.from, &args.to)?;
    if out.is_json() {
        let lost = report.lost.iter().map(|lost| {
            json!({
                "kind": lost.kind.as_str(),
                "thread": lost.thread.as_ref().map(|thread| thread.as_str()),
                "checkpoint": lost.checkpoint.map(|id| id.to_string()),
                "place": lost.place,
                "reason": lost.reason,
            })
        });
        out.json(&json!({
            "schema": 1,
            "threads": report.threads,
            "checkpoints": report.checkpoints,
            "writes": report.writes,
            "timers": report.timers,
            "operations": report.operations,
            "entries": report.entries,
            "lost_count": report.lost_count,
            "lost": lost.collect::<Vec<_>>(),
            "salvaged": report.salvaged,
            "doubts": report.doubts,
        }))?;
    } else {
        let threads = count(report.threads as usize, "thread");
        let (checkpoints, writes) = (grouped(report.checkpoints), grouped(report.writes));
        out.line(format!("{threads}, {checkpoints} checkpoints and {writes} runs of writes recovered"))?;
        for lost in report.lost.iter().take(LOST_MAX) {
            let thread = lost.thread.as_ref().map_or(String::new(), |thread| format!(" of thread {thread}"));
            let what = format!("lost: {}{thread}: {}: {}", lost.kind.as_str(), lost.place, lost.reason);
            out.line(out.removed(&escape(&what)))?;
        }
        if report.salvaged > 0 {
            let salvaged = count(report.salvaged as usize, "message or value");
            let places = "are not verified: see the threads whose names end in (salvaged)";
            out.line(format!("{salvaged} {places}"))?;
        }
        for doubt in &report.doubts {
            out.line(out.removed(&escape(&format!("not known: {doubt}"))))?;
        }
        match report.lost_count as usize {
            0 if report.doubts.is_empty() => out.line(out.added("nothing was lost"))?,
            0 => out.line("every row that was found verified; more may have been lost")?,
            n if n > LOST_MAX => out.line(format!("... {} in all; --json lists them", count(n, "loss")))?,
            _ => {}
        }
    }
    Ok(u8::from(!report.is_complete()))
}
