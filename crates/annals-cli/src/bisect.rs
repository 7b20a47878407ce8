//! `annals bisect`: finds the first checkpoint on the way to a point at which a command fails.
//!
//! The command gets the state as JSON on stdin, and the names `ANNALS_THREAD` and `ANNALS_CHECKPOINT` in its
//! environment. Exit code 0 means that the state is good, 1 to 124 that it is bad; anything else, as that of a shell
//! that does not find a command, ends the search. JSON: `{"schema": 1, "thread", "first_bad": checkpoint | null,
//! "short", "step", "nodes": [..], "tested"}`; without a failure the first three are null.

use std::io::Write as _;
use std::process::{Command, Stdio};

use annals::base::Value;
use annals::history::Snapshot;
use annals::store::Store;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count, escape};
use crate::point::resolve;
use crate::words;

pub(crate) fn run(args: &args::BisectArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let bad = resolve(store, &args.point)?;
    let last = bad.record().ordinal;
    let first = args.good.as_deref().map(|good| resolve(store, good)).transpose()?;
    let mut tested = 0_usize;
    let mut is_bad = |at: &Snapshot| {
        tested += 1;
        is_bad(at, &args.command)
    };
    if !is_bad(&bad)? {
        if out.is_json() {
            let thread = bad.point().thread.as_str();
            out.json(&json!({ "schema": 1, "thread": thread, "first_bad": null, "short": null, "step": null,
                "nodes": [], "tested": 1 }))?;
        }
        output::note("the command succeeds at the point: there is no first failure on the way to it");
        return Ok(1);
    }
    // The state before the first checkpoint is empty, and counts as good.
    let mut good = match &first {
        None => None,
        Some(first) => {
            let ordinal = first.record().ordinal;
            if ordinal >= last || ancestor(&bad, ordinal)?.id() != first.id() {
                return Err(CommandFailure::usage("the point of --good is not an ancestor of the other"));
            }
            if is_bad(first)? {
                return Err(CommandFailure::new(1, "not_good", "the command fails at the point of --good as well"));
            }
            Some(ordinal)
        }
    };
    let (mut found, mut bad_ordinal) = (bad.clone(), last);
    loop {
        let low = good.map_or(0, |good| good + 1);
        debug_assert!(low <= bad_ordinal, "the first bad checkpoint is between the two");
        if low == bad_ordinal {
            break;
        }
        let middle = low + (bad_ordinal - low) / 2;
        let at = ancestor(&bad, middle)?;
        match is_bad(&at)? {
            true => (found, bad_ordinal) = (at, middle),
            false => good = Some(middle),
        }
    }
    report(&found, tested, out)?;
    Ok(0)
}

fn report(found: &Snapshot, tested: usize, out: &mut Printer) -> Result<(), CommandFailure> {
    let parent = words::stored_parent(found)?;
    let nodes = words::ran(found, parent.as_ref());
    let short = found.short_id()?;
    let thread = found.point().thread.as_str();
    if out.is_json() {
        let (first_bad, step) = (found.id().to_string(), found.step());
        let document = json!({ "schema": 1, "thread": thread, "first_bad": first_bad, "short": short, "step": step,
            "nodes": nodes, "tested": tested });
        out.json(&document)?;
        return Ok(());
    }
    let made = match nodes.is_empty() {
        true => format!("({})", found.source()),
        false => words::tally(nodes.iter().copied()),
    };
    out.line(format!("{}@{}  step {}  {made}", escape(thread), out.id(&short), found.step()))?;
    out.flush()?;
    output::note(format!("the first failure; {} tested", count(tested, "checkpoint")));
    Ok(())
}

/// Returns the checkpoint of the lineage with an ordinal.
fn ancestor(of: &Snapshot, ordinal: u64) -> Result<Snapshot, CommandFailure> {
    let absent =
        || CommandFailure::new(4, "corrupt", format!("no checkpoint of the lineage has the ordinal {ordinal}"));
    of.ancestors(&[ordinal])?.pop().flatten().ok_or_else(absent)
}

fn is_bad(at: &Snapshot, command: &[String]) -> Result<bool, CommandFailure> {
    let state = Value::Map(at.values()?).to_json().to_string();
    let (name, arguments) = command.split_first().ok_or_else(|| CommandFailure::usage("no command is named"))?;
    let mut child = Command::new(name)
        .args(arguments)
        .env("ANNALS_THREAD", at.point().thread.as_str())
        .env("ANNALS_CHECKPOINT", at.id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| CommandFailure::new(3, "command_not_run", format!("{name} was not run: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(state.as_bytes()) {
            // A command need not read its input.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    let status = child.wait()?;
    let short = at.short_id()?;
    match status.code() {
        Some(0) => output::note(format!("{short}  step {}  good", at.step())),
        Some(1..=124) => output::note(format!("{short}  step {}  bad ({status})", at.step())),
        _ => return Err(CommandFailure::new(1, "command_failed", format!("{name} ended with {status}; search ended"))),
    }
    Ok(!status.success())
}
