//! `annals check`: verifies every row and checksum of the store, or those that are newer than a point. Exit code 4 if
//! the check finds a problem.
//!
//! JSON: `{"schema": 1, "threads", "checkpoints", "values", "erasing", "log_tail": {"end", "frames", "commits",
//! "lost_heads": [id]} or null, "point": text or null, "problems": [{"invariant": "I12", "place", "reason"}]}`. The
//! invariants are those of `docs/format.md`.

use annals::store::check::{Finding, LogTail};
use annals::store::{Store, StoreError};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count, escape, grouped};

/// The number of problems that are listed as text; JSON has all.
const PROBLEMS_MAX: usize = 50;

pub(crate) fn run(args: &args::CheckArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let report = match &args.since {
        None => store.check()?,
        Some(point) => store.check_since(point).map_err(|error| match error {
            StoreError::Invalid { .. } => CommandFailure::usage(error.to_string()).hint("annals check prints a point"),
            error => error.into(),
        })?,
    };
    debug_assert!(!args.deep || args.since.is_none(), "a check has one depth");
    if out.is_json() {
        out.json(&json!({
            "schema": 1,
            "threads": report.threads,
            "checkpoints": report.checkpoints,
            "values": report.values,
            "erasing": report.erasing,
            "log_tail": report.log_tail.as_ref().map(tail),
            "point": report.up_to.as_ref().map(ToString::to_string),
            "problems": report.problems.iter().map(finding).collect::<Vec<_>>(),
        }))?;
    } else {
        let threads = count(report.threads as usize, "thread");
        let (checkpoints, values) = (grouped(report.checkpoints), grouped(report.values));
        out.line(format!("{threads}, {checkpoints} checkpoints and {values} values verified"))?;
        if report.erasing > 0 {
            let threads = count(report.erasing as usize, "deleted thread");
            out.line(format!("bytes of {threads} are still stored; a program that opens the store erases them"))?;
        }
        if let Some(tail) = &report.log_tail {
            out.line(format!("{tail}, which are lost unless they had not returned when the power failed"))?;
            for head in &tail.lost_heads {
                out.line(format!("lost head {head}"))?;
            }
        }
        for problem in report.problems.iter().take(PROBLEMS_MAX) {
            out.line(out.removed(&format!("problem: {}", escape(&problem.to_string()))))?;
        }
        match report.problems.len() {
            0 => {
                out.line(out.added("no problems"))?;
                if let Some(point) = &report.up_to {
                    out.line(format!("point {point}; --since continues there"))?;
                }
            }
            n if n > PROBLEMS_MAX => out.line(format!("... {} in all; --json lists them", count(n, "problem")))?,
            n => out.line(count(n, "problem"))?,
        }
    }
    out.flush()?;
    if report.problems.is_empty() {
        return Ok(0);
    }
    output::note("annals: the store is damaged; it was not changed");
    Ok(4)
}

fn tail(tail: &LogTail) -> Json {
    let lost: Vec<String> = tail.lost_heads.iter().map(ToString::to_string).collect();
    json!({ "end": tail.end, "frames": tail.frames, "commits": tail.commits, "lost_heads": lost })
}

fn finding(finding: &Finding) -> Json {
    json!({ "invariant": finding.invariant.to_string(), "place": finding.place, "reason": finding.reason })
}
