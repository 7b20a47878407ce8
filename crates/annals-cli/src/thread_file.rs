//! `annals export THREAD --format thread` and `annals import FILE` of such a file: a thread as a store of its own.
//!
//! `export` prints the path; JSON: `{"schema": 1, "thread", "path", "bytes", "format": "thread"}`. The file has the key
//! of the store, if one was given, and is in the clear without one. `import` prints the id of the thread; JSON:
//! `{"schema": 1, "thread", "checkpoint", "new", "format": "thread"}`. A repeated import changes nothing: `new` is
//! false if the thread is in the store with every checkpoint of the file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use annals::store::{Store, StoreError};
use annals_runs::ThreadRuns;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, count, escape, note};
use crate::point;

/// The first bytes of a SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The application ids, at byte 68: of a store, and of one of a build before the first release.
const APPLICATION_IDS: [&[u8; 4]; 2] = [b"anls", b"annl"];

/// Returns whether a file is a store.
pub(crate) fn is_store(path: &Path) -> bool {
    let mut header = [0; 72];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header.starts_with(MAGIC) && APPLICATION_IDS.iter().any(|id| header.ends_with(*id))
}

pub(crate) fn export(
    args: &args::ExportArgs,
    thread: &str,
    store: &Store,
    named: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let Some(path) = &args.out else {
        return Err(CommandFailure::usage("--format thread needs --out FILE"));
    };
    if args.lines || args.damaged || args.channel.is_some() {
        return Err(CommandFailure::usage("--lines, --damaged and --channel are for formats of messages"));
    }
    if path.symlink_metadata().is_ok() {
        let message = format!("file {} exists already and was not changed", path.display());
        return Err(CommandFailure::new(5, "file_exists", message).hint("choose another --out"));
    }
    let thread = point::thread(store, thread)?;
    thread.export_file(path, named.options()?)?;
    let bytes = std::fs::metadata(path)?.len();
    let shown = path.display().to_string();
    if out.is_json() {
        let id = thread.id().as_str();
        out.json(&json!({ "schema": 1, "thread": id, "path": shown, "bytes": bytes, "format": "thread" }))?;
        return Ok(0);
    }
    out.line(escape(&shown))?;
    out.flush()?;
    let checkpoints = thread.size()?.checkpoints;
    note(format!("{} written", count(usize::try_from(checkpoints).unwrap_or(usize::MAX), "checkpoint")));
    Ok(0)
}

pub(crate) fn import(
    args: &args::ImportArgs,
    path: &Path,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    if args.lines || args.lenient {
        return Err(CommandFailure::usage("--lines and --lenient are for files of messages, and this file is a store"));
    }
    let file = store.open_other(path)?;
    let threads = file.threads_after(None, 2)?;
    let [thread] = &*threads else {
        let found = if threads.is_empty() { "no thread" } else { "more than one thread" };
        let message = format!("{} has {found}, and import takes a file with one", path.display());
        return Err(CommandFailure::usage(message).hint("annals export THREAD --format thread writes such a file"));
    };
    let target = point::open_or_make(store)?;
    let name = args.name.as_deref().unwrap_or(thread.id.as_str());
    let is_new = target.thread(name)?.head()?.is_none();
    let copy = file.thread(&thread.id)?.copy_into(&target, name).map_err(|error| match error {
        StoreError::Conflict { .. } => {
            let message =
                format!("thread {name} exists already, without every checkpoint of the file; nothing was written");
            CommandFailure::new(5, "thread_exists", message).hint("choose another --name")
        }
        error => error.into(),
    })?;
    let id = copy.id().as_str();
    if out.is_json() {
        let checkpoint = copy.head()?.map(|head| head.id().to_string());
        let format = "thread";
        out.json(&json!({ "schema": 1, "thread": id, "checkpoint": checkpoint, "new": is_new, "format": format }))?;
        return Ok(0);
    }
    out.line(escape(id))?;
    out.flush()?;
    note(if is_new { "1 thread imported" } else { "the thread has every checkpoint of the file already" });
    Ok(0)
}
