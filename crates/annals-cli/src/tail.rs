//! `annals tail`: the newest checkpoints of a store or a thread, and with `-f` each new one as it is committed.
//!
//! JSON: a line for each checkpoint: `{"schema": 1, "seq", "thread", "namespace", "checkpoint", "step", "source",
//! "created_at", "run", "next": [..], "changed": [{"channel", "added"?, "edited"?}]}`. With `-f` it ends when the
//! reader of stdout is gone or the thread is deleted; checkpoints of other deleted threads are left out.

use std::time::Duration;

use annals::history::{Snapshot, Thread, Watch};
use annals::store::log::LogPosition;
use annals::store::{Store, StoreError};
use annals_view::ChangedChannel;
use serde_json::json;

use crate::args;
use crate::changed;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};
use crate::point::thread;
use crate::words;

/// The wait between two looks at stdout, whose reader may be gone, and at the thread, which may be deleted.
const WAIT: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &args::TailArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = args.thread.as_deref().map(|name| thread(store, name)).transpose()?;
    let watch = |from: LogPosition| match &thread {
        Some(thread) => thread.watch_from(from),
        None => store.watch_from(from),
    };
    let (mut newest, mut position) = newest(store, watch, args.limit)?;
    for snapshot in newest.drain(..) {
        print_unless_deleted(&snapshot, out)?;
    }
    out.flush()?;
    if !args.follow {
        return Ok(0);
    }
    let mut watch = watch(position)?;
    loop {
        if let Some(snapshot) = watch.next(WAIT)? {
            print_unless_deleted(&snapshot, out)?;
            position = watch.position();
            debug_assert_ne!(position, LogPosition::START, "a checkpoint has a position");
            out.flush()?;
        } else if out.reader_is_gone() {
            return Ok(0);
        }
        if let Some(thread) = thread.as_ref().filter(|thread| is_deleted(thread)) {
            output::note(format!("the thread {} was deleted", escape(thread.id().as_str())));
            return Ok(0);
        }
    }
}

fn is_deleted(thread: &Thread) -> bool {
    thread.head().is_ok_and(|head| head.is_none())
}

fn print_unless_deleted(snapshot: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
    let printed = print(snapshot, out);
    if printed.is_ok() || matches!(printed, Err(CommandFailure::Closed)) {
        return printed;
    }
    let thread = snapshot.store().thread(snapshot.point().thread.as_str())?;
    if is_deleted(&thread) { Ok(()) } else { printed }
}

/// Returns the newest checkpoints, oldest first, and the position after them. It looks back in steps that grow: a
/// thread may have few of the newest checkpoints of the store.
fn newest(
    store: &Store,
    watch: impl Fn(LogPosition) -> Result<Watch, StoreError>,
    limit: usize,
) -> Result<(Vec<Snapshot>, LogPosition), CommandFailure> {
    let (mut back, all_of_it) = (limit as u64, store.position(u64::MAX)?);
    loop {
        let from = store.position(back)?;
        let mut all = Vec::new();
        let mut reader = watch(from)?;
        while let Some(snapshot) = reader.next(Duration::ZERO)? {
            all.push(snapshot);
        }
        if all.len() >= limit || from == all_of_it {
            let surplus = all.len().saturating_sub(limit);
            return Ok((all.split_off(surplus), reader.position()));
        }
        back = back.saturating_mul(16);
    }
}

fn print(snapshot: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
    let point = snapshot.point();
    let parent = words::stored_parent(snapshot)?;
    let changes = annals_view::changes(snapshot, parent.as_ref(), u64::MAX)?;
    if out.is_json() {
        let record = snapshot.record();
        out.json_line(&json!({
            "schema": 1,
            "seq": record.seq,
            "thread": point.thread.as_str(),
            "namespace": point.namespace.as_str(),
            "checkpoint": snapshot.id().to_string(),
            "step": snapshot.step(),
            "source": snapshot.source().as_str(),
            "created_at": snapshot.created_at().to_string(),
            "run": record.run.map(|run| run.to_string()),
            "next": snapshot.next().collect::<Vec<_>>(),
            "changed": changes.iter().map(ChangedChannel::document).collect::<Vec<_>>(),
        }))?;
        return Ok(());
    }
    let time: String = snapshot.created_at().to_string().chars().skip(11).take(12).collect();
    let namespace = if point.namespace.is_root() { "" } else { " in a subgraph" };
    let ran = match words::ran(snapshot, parent.as_ref()) {
        nodes if nodes.is_empty() => format!("({})", snapshot.source()),
        nodes => words::tally(nodes),
    };
    let name = escape(point.thread.as_str());
    let short = out.id(&snapshot.short_id()?);
    out.row(format!(
        "{time}  {name}@{short}{namespace}  step {}  {ran}  {}",
        snapshot.step(),
        changed::text(&changes)
    ))?;
    Ok(())
}
