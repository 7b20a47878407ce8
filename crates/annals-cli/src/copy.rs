//! `annals copy`: a thread under another id, or with `--to` threads to another store, a file or a server.
//!
//! JSON of a copy in the store: `{"schema": 1, "thread", "checkpoint", "copied_from"}`; of `--to`: `{"schema": 1, "to",
//! "dry_run": bool, "threads": [{"thread", "checkpoints", "checkpoints_there", "operations", "operations_left_out",
//! "checksum"}], "refused": [{"thread", "reason"}], "kv_entries", "kv_entries_there", "bytes": {"source", "before",
//! "after"}}`. The checksum is that of both ends, and null in a dry run. Exit code 1 if a thread was refused.

use std::ops::ControlFlow;
use std::path::Path;

use annals::history::{CopiedThread, CopyOptions, CopyReport};
use annals::store::{OpenOptions, Store};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{self, Printer, count, escape, grouped, size};
use crate::point::{self, thread, whole_thread};
use crate::{progress, server};

/// Threads that are listed as text; JSON has all.
const COPIED_SHOWN: usize = 20;

pub(crate) fn run(args: &args::CopyArgs, named: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    match (&args.to, &args.threads[..]) {
        (Some(to), threads) => copy_to(args, named, to, threads, out),
        (None, [from, new]) => inside(from, new, &point::open_to_write(named)?, out),
        (None, _) => {
            let failure = CommandFailure::usage("a copy in the store takes the id of a thread and that of the copy");
            Err(failure.hint("annals copy THREAD NEW, or annals copy --to STORE [THREAD]..."))
        }
    }
}

/// Copies a thread under another id.
fn inside(from: &str, name: &str, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let from = thread(store, from)?;
    if store.thread(name)?.head()?.is_some() {
        let message = format!("thread {name} exists already; nothing was written");
        return Err(CommandFailure::new(5, "thread_exists", message).hint("choose another id"));
    }
    let copy = from.copy_to(name)?;
    if out.is_json() {
        let checkpoint = copy.head()?.map(|head| head.id().to_string());
        let (thread, from) = (copy.id().as_str(), from.id().as_str());
        out.json(&json!({ "schema": 1, "thread": thread, "checkpoint": checkpoint, "copied_from": from }))?;
        return Ok(0);
    }
    out.line(escape(copy.id().as_str()))?;
    Ok(0)
}

/// The bytes of both ends.
struct CopySizes {
    source: u64,
    before: u64,
    after: u64,
}

/// Copies threads to another store.
fn copy_to(
    args: &args::CopyArgs,
    named: NamedStore<'_>,
    to: &Path,
    threads: &[String],
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let from = point::named(named)?;
    if from == to || from.canonicalize().is_ok_and(|from| to.canonicalize().is_ok_and(|to| from == to)) {
        let message = format!("{} is the store itself; nothing was written", server::shown(to));
        return Err(CommandFailure::usage(message).hint("annals copy THREAD NEW copies a thread in the store"));
    }
    // The key is that of the files.
    let (named, target) = (named.of_file(from), named.of_file(to));
    let store = point::open_to_read(named)?;
    let mut options = CopyOptions::new().dry_run(args.dry_run);
    for name in threads {
        options = options.thread(whole_thread(&store, name)?.id().clone());
    }
    let mut sizes = CopySizes { source: bytes_of(from)?, before: bytes_of(to)?, after: 0 };
    let report = {
        let other = if args.dry_run { open_dry(target)? } else { point::open_or_make(target)? };
        let shown = |at: &annals::history::CopyProgress<'_>| {
            progress::say(|| {
                let (done, all) = (grouped(at.checkpoints_done), grouped(at.checkpoints));
                let thread = escape(at.thread.as_str());
                format!("thread {} of {}: {thread}, {done} of {all} checkpoints", at.threads_done + 1, at.threads)
            });
            ControlFlow::Continue(())
        };
        store.copy_to(&other, options.on_progress(shown))?
    };
    progress::clear();
    // The store is closed, and its log copied.
    sizes.after = bytes_of(to)?;
    print(args, to, &report, &sizes, out)?;
    Ok(u8::from(!report.refused.is_empty()))
}

/// Opens the target of a dry run: an empty store in its place if it does not exist.
fn open_dry(target: NamedStore<'_>) -> Result<Store, CommandFailure> {
    match point::open(target, OpenOptions::new().read_only(true)) {
        Err(CommandFailure::Error { code: "store_not_found", .. }) => Ok(Store::memory()),
        opened => opened,
    }
}

/// Returns the bytes of a store; 0 of one that does not exist.
fn bytes_of(name: &Path) -> Result<u64, CommandFailure> {
    let Some(url) = server::url(name) else { return Ok(crate::langgraph::file_bytes(name)) };
    match server::size_bytes(url) {
        Err(CommandFailure::Error { code: "not_a_store", .. }) => Ok(0),
        bytes => bytes,
    }
}

fn print(
    args: &args::CopyArgs,
    to: &Path,
    report: &CopyReport,
    sizes: &CopySizes,
    out: &mut Printer,
) -> Result<(), CommandFailure> {
    let shown = server::shown(to);
    if out.is_json() {
        let thread = |of: &CopiedThread| {
            json!({
                "thread": of.thread.as_str(),
                "checkpoints": of.checkpoints,
                "checkpoints_there": of.checkpoints_there,
                "operations": of.operations,
                "operations_left_out": of.operations_left_out,
                "checksum": of.checksum,
            })
        };
        let refused = report.refused.iter();
        let refused = refused.map(|(id, error)| json!({ "thread": id.as_str(), "reason": error.to_string() }));
        out.json(&json!({
            "schema": 1,
            "to": shown,
            "dry_run": args.dry_run,
            "threads": report.threads.iter().map(thread).collect::<Vec<_>>(),
            "refused": refused.collect::<Vec<_>>(),
            "kv_entries": report.kv_entries,
            "kv_entries_there": report.kv_entries_there,
            "bytes": { "source": sizes.source, "before": sizes.before, "after": sizes.after },
        }))?;
        return Ok(());
    }
    for of in report.threads.iter().take(COPIED_SHOWN) {
        let there =
            if of.checkpoints_there > 0 { format!(", {} there", grouped(of.checkpoints_there)) } else { String::new() };
        let sum = of.checksum.as_deref().map(|sum| format!("  {}", &sum[..8])).unwrap_or_default();
        let checkpoints = count(usize::try_from(of.checkpoints).unwrap_or(usize::MAX), "checkpoint");
        out.row(format!("{}  {checkpoints}{there}{sum}", escape(of.thread.as_str())))?;
    }
    if report.threads.len() > COPIED_SHOWN {
        out.line(format!("... {} in all; --json lists them", count(report.threads.len(), "thread")))?;
    }
    for (id, error) in &report.refused {
        out.line(out.removed(&format!("refused: {}: {}", escape(id.as_str()), escape(&error.to_string()))))?;
    }
    out.flush()?;
    let threads = count(report.threads.len(), "thread");
    let entries = match report.kv_entries {
        _ if !args.threads.is_empty() => String::new(),
        1 => " and 1 entry of the key-value memory".to_owned(),
        n => format!(" and {} entries of the key-value memory", grouped(n)),
    };
    let (verb, shown) = (if args.dry_run { "would be copied" } else { "copied and verified" }, escape(&shown));
    output::note(format!("{threads}{entries} {verb} to {shown}"));
    let left: u64 = report.threads.iter().map(|of| of.operations_left_out).sum();
    if left > 0 {
        output::note(format!("{} left out: they name pruned checkpoints", count(left as usize, "operation")));
    }
    let CopySizes { source, before, after } = sizes;
    output::note(format!("source {}, target {} before and {} now", size(*source), size(*before), size(*after)));
    Ok(())
}
