//! `annals rerun`: runs a workflow once more from a point, with changed channels, on a fork, and shows both ends side
//! by side. Nothing of the original thread is changed.
//!
//! JSON: the lines of `annals run`, then `{"schema": 1, "event": "compared", "thread", "forked_from", "ends":
//! [{"thread", "checkpoint", "status", "step"}], "unchanged", "channels": [..]}`; the first end is that of the
//! original, and `channels` are those of `annals diff`.

use std::io;

use annals::history::{Diff, Snapshot, Thread, diff};
use annals::store::Store;
use annals_flow::FlowEnd;
use annals_view::channel_document;
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::flow_run;
use crate::interrupt;
use crate::key::NamedStore;
use crate::output::{self, Printer, columns, count, cut, escape};
use crate::point::resolve;
use crate::update::{set_channels, verify_sets};
use crate::words::{self, Waits, brief};

/// Names of forks that are tried before one has to be given.
const NAMES_MAX: usize = 1_000;
/// Cells of a value.
const VALUE_CELLS: usize = 48;

pub(crate) fn run(args: &args::RerunArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let flow = flow_run::open(&args.file)?.on_event(flow_run::note_lock_wait);
    let store = flow_run::open_beside(store, &args.file)?;
    let from = resolve(&store, &args.point)?;
    if from.record().tasks.is_empty() {
        let (id, step) = (escape(from.point().thread.as_str()), from.step());
        let message = format!("no task is due at step {step} of thread {id}; nothing was written");
        return Err(CommandFailure::new(2, "invalid", message)
            .hint("name a point before the end: annals log THREAD lists them, THREAD~1 is the one before the head"));
    }
    let original = store.thread(from.point().thread.as_str())?;
    // Before anything is written.
    verify_sets(&from, &args.set)?;
    let fork = from.fork_to(&fork_name(args, &store, &original)?)?;
    if !args.set.is_empty() {
        set_channels(&fork, &args.set)?;
    }
    let input = annals_flow::FlowInput::new().control(&interrupt::control());
    let ended = flow_run::run_shown(&flow, &fork, input, out);
    if let (Some(before), Some(after)) = (original.head()?, fork.head()?) {
        compare(&from, &before, &after, out)?;
    }
    out.flush()?;
    match ended? {
        FlowEnd::Done { .. } => Ok(0),
        _ => {
            let name = escape(fork.id().as_str()).into_owned();
            output::note(format!("the rerun waits; annals run FILE --thread {name} --answer VALUE continues it"));
            Ok(1)
        }
    }
}

/// Returns the name of the fork: that of the arguments, or the first free one.
fn fork_name(args: &args::RerunArgs, store: &Store, original: &Thread) -> Result<String, CommandFailure> {
    let is_free = |name: &str| -> Result<bool, CommandFailure> { Ok(store.thread(name)?.head()?.is_none()) };
    let taken = |name: &str| {
        let message = format!("thread {} exists already; nothing was written", escape(name));
        CommandFailure::new(5, "thread_exists", message).hint("choose another --name")
    };
    if let Some(name) = &args.name {
        return if is_free(name)? { Ok(name.clone()) } else { Err(taken(name)) };
    }
    let base = format!("{}-rerun", original.id());
    for n in 1..=NAMES_MAX {
        let name = if n == 1 { base.clone() } else { format!("{base}-{n}") };
        if is_free(&name)? {
            return Ok(name);
        }
    }
    Err(taken(&base))
}

/// Shows the ends of both runs and the channels in which they differ.
fn compare(from: &Snapshot, before: &Snapshot, after: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
    let found = diff(before, after)?;
    let ends = [before, after];
    if out.is_json() {
        let end = |at: &Snapshot| -> Result<Json, CommandFailure> {
            let (point, status) = (at.point(), Waits::of(at)?.status);
            let (thread, checkpoint) = (point.thread.as_str(), point.checkpoint.to_string());
            Ok(json!({ "thread": thread, "checkpoint": checkpoint, "status": status.as_str(), "step": at.step() }))
        };
        let ends = ends.into_iter().map(end).collect::<Result<Vec<_>, _>>()?;
        out.json_line(&json!({
            "schema": 1,
            "event": "compared",
            "thread": after.point().thread.as_str(),
            "forked_from": words::place(from),
            "ends": ends,
            "unchanged": found.unchanged,
            "channels": found.channels.iter().map(channel_document).collect::<Vec<_>>(),
        }))?;
        return Ok(());
    }
    let title = |at: &Snapshot| -> Result<String, CommandFailure> {
        let (name, status) = (escape(at.point().thread.as_str()).into_owned(), Waits::of(at)?.status);
        Ok(format!("{}@{} ({}, step {})", cut(&name, VALUE_CELLS), at.short_id()?, status.as_str(), at.step()))
    };
    let mut rows = vec![vec!["CHANNEL".to_owned(), title(before)?, title(after)?]];
    for channel in &found.channels {
        let of = |at: &Snapshot| -> Result<String, CommandFailure> {
            let value = at.get(channel.channel())?.map(|value| brief(&value.to_json()));
            Ok(cut(&value.unwrap_or_else(|| "-".to_owned()), VALUE_CELLS).into_owned())
        };
        rows.push(vec![escape(channel.channel()).into_owned(), of(before)?, of(after)?]);
    }
    print(&rows, &found, out)?;
    Ok(())
}

fn print(rows: &[Vec<String>], found: &Diff, out: &mut Printer) -> io::Result<()> {
    for (at, line) in columns(rows).iter().enumerate() {
        out.row(if at == 0 { out.dim(line) } else { line.clone() })?;
    }
    let unchanged = match (found.channels.as_slice(), found.unchanged) {
        ([], _) => "both ends are equal".to_owned(),
        (_, n) => format!("{} unchanged; annals diff A..B shows all of a value", count(n, "channel")),
    };
    out.line(out.dim(&unchanged))
}
