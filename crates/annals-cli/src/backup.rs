//! `annals backup`: copies the store to a new file, while other programs use it; `annals restore`: the way back.
//!
//! Prints the path of the copy; JSON: `{"schema": 1, "path", "bytes"}`. A restore prints the new names of the files at
//! the path; JSON: `{"schema": 1, "path", "put_aside": [..]}`.

use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::{self, NamedStore};
use crate::output::{Printer, escape, note, size};
use crate::point;

pub(crate) fn run(args: &args::BackupArgs, named: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    _ = point::file(named, "annals backup copies", "pg_dump copies a database")?;
    let store = point::open_to_read(named)?;
    let path = args.out.display().to_string();
    if args.out.symlink_metadata().is_ok() {
        let message = format!("file {path} exists already and was not changed");
        return Err(CommandFailure::new(5, "file_exists", message).hint("choose another OUT"));
    }
    store.backup(&args.out)?;
    let bytes = std::fs::metadata(&args.out)?.len();
    if out.is_json() {
        out.json(&json!({ "schema": 1, "path": path, "bytes": bytes }))?;
        return Ok(0);
    }
    out.line(escape(&path))?;
    out.flush()?;
    note(format!("{} copied", size(bytes)));
    Ok(0)
}

pub(crate) fn restore(
    args: &args::RestoreArgs,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let restored = key::restore(store, &args.backup, &args.file)?;
    let put_aside: Vec<String> = restored.put_aside.iter().map(|path| path.display().to_string()).collect();
    if out.is_json() {
        out.json(&json!({ "schema": 1, "path": args.file.display().to_string(), "put_aside": put_aside }))?;
        return Ok(0);
    }
    for path in &put_aside {
        out.line(format!("put aside: {}", escape(path)))?;
    }
    out.flush()?;
    note(format!("restored {}", escape(&args.file.display().to_string())));
    Ok(0)
}
