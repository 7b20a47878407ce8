//! `annals doctor`: what an issue about a store needs. It prints no content, no ids and no paths.
//!
//! JSON: `{"schema": 1, "annals", "sqlite", "system", "file", "format", "page_bytes", "log_mode", "file_bytes",
//! "wal_bytes", "file_writable", "opens_to_read", "error", "check", "hints", "log", "rebuilt"}`; `log` says
//! what `--fix` found of a log that does not continue the file, and `rebuilt` lists the views,
//! indexes and triggers that `--fix` has made anew. The members of the file are null if no
//! file is there; `check` is null if the store does not open, or is so large that the check is left to `annals check`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use annals::store::Store;
use annals::store::recovery::WalReset;
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, columns, escape, grouped, size};
use crate::point;
use crate::progress;

/// Bytes of a store that is checked; the check of a larger one takes longer than a report may.
const CHECKED_BYTES_MAX: u64 = 512 << 20;

/// Bytes of the head of a file of SQLite.
const HEAD_BYTES: usize = 100;

pub(crate) fn run(args: &args::DoctorArgs, named: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let path = point::file(named, "annals doctor examines", "annals check verifies any store")?;
    let settled = if args.fix { Store::reset_wal(path)? } else { WalReset::default() };
    let rebuilt = match args.fix {
        true => crate::key::repair_schema(named, |made| progress::say(|| format!("making {made}")))?,
        false => Vec::new(),
    };
    let mut hints = Vec::new();
    let mut document = json!({
        "schema": 1,
        "annals": env!("CARGO_PKG_VERSION"),
        "sqlite": annals::rusqlite::version(),
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    });
    file_facts(path, &mut document, &mut hints);
    let (mut check, mut error, mut exit) = (Json::Null, Json::Null, 0);
    match point::open_to_read(named) {
        Ok(store) => check = checked(&store, path, &mut hints, &mut exit)?,
        Err(CommandFailure::Error { exit: of_failure, code, hint, .. }) => {
            (error, exit) = (json!(code), of_failure);
            hints.extend(hint);
        }
        Err(closed) => return Err(closed),
    }
    document["opens_to_read"] = json!(error.is_null());
    document["error"] = error;
    document["check"] = check;
    document["hints"] = json!(hints);
    document["log"] = log_document(&settled);
    document["rebuilt"] = json!(rebuilt.iter().map(ToString::to_string).collect::<Vec<_>>());
    if out.is_json() {
        out.json(&document)?;
        return Ok(exit);
    }
    let text = |name: &str| match &document[name] {
        Json::Null => "unknown".to_owned(),
        Json::String(text) => escape(text).into_owned(),
        Json::Number(number) if name.ends_with("_bytes") => number.as_u64().map(size).unwrap_or_default(),
        Json::Bool(holds) => if *holds { "yes" } else { "no" }.to_owned(),
        Json::Object(counts) => {
            let counts = counts.iter().map(|(noun, n)| format!("{} {noun}", grouped(n.as_u64().unwrap_or(0))));
            counts.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let names = ["annals", "sqlite", "system", "file", "format", "page_bytes", "log_mode", "file_bytes", "wal_bytes"];
    let names = names.iter().chain(&["file_writable", "opens_to_read", "error", "check"]);
    let rows: Vec<Vec<String>> = names
        .filter(|name| **name != "error" || !document["error"].is_null())
        .map(|name| vec![name.replace('_', " "), text(name)])
        .collect();
    for line in columns(&rows) {
        out.line(line)?;
    }
    print_log(&settled, out)?;
    for made in &rebuilt {
        out.line(format!("made anew: {}", escape(&made.to_string())))?;
    }
    if args.fix && rebuilt.is_empty() {
        out.line("nothing was missing in the schema")?;
    }
    for hint in &hints {
        out.line(format!("hint: {}", escape(hint)))?;
    }
    Ok(exit)
}

/// Returns the names of the logs that were put aside.
fn put_aside(settled: &WalReset) -> Vec<String> {
    settled.put_aside.iter().map(|path| path.display().to_string()).collect()
}

fn log_document(settled: &WalReset) -> Json {
    settled.found.as_ref().map_or(
        Json::Null,
        |found| json!({ "found": found, "put_aside": put_aside(settled), "loss_accepted": settled.is_loss_accepted }),
    )
}

/// Prints the finding about a log that does not continue the file.
fn print_log(settled: &WalReset, out: &mut Printer) -> Result<(), CommandFailure> {
    let Some(found) = &settled.found else { return Ok(()) };
    out.line(format!("the log: {}", escape(found)))?;
    for path in put_aside(settled) {
        out.line(format!("put aside: {}", escape(&path)))?;
    }
    if settled.is_loss_accepted {
        out.line("the commits of the missing log are given up")?;
    }
    Ok(())
}

/// Adds the facts that the file shows without being opened as a store.
fn file_facts(path: &Path, document: &mut Json, hints: &mut Vec<String>) {
    let metadata = fs::metadata(path).ok();
    let mut head = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // A file that cannot be read has no head.
        _ = file.take(HEAD_BYTES as u64).read_to_end(&mut head);
    }
    let is_database = head.len() == HEAD_BYTES && head.starts_with(b"SQLite format 3\0");
    // The byte before the last one has the bits of the groups of tables.
    let format = is_database.then(|| u32::from_be_bytes([head[60], head[61], 0, head[63]]));
    let page = is_database.then(|| match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        bytes => u32::from(bytes),
    });
    let wal = fs::metadata(with_ending(path, "-wal")).ok();
    if metadata.is_some() && !is_database {
        hints.push("the file is not a database of SQLite".to_owned());
    }
    let writable = metadata.as_ref().map(|metadata| !metadata.permissions().readonly());
    if writable == Some(false) {
        hints.push("the file is read-only: commands that write fail".to_owned());
    }
    document["file"] = json!(path.file_name().map(|name| name.to_string_lossy()));
    document["format"] = json!(format);
    document["page_bytes"] = json!(page);
    document["log_mode"] = json!(is_database.then(|| if head[18] == 2 { "wal" } else { "rollback" }));
    document["file_bytes"] = json!(metadata.as_ref().map(fs::Metadata::len));
    document["wal_bytes"] = json!(metadata.map(|_| wal.map_or(0, |wal| wal.len())));
    document["file_writable"] = json!(writable);
}

/// Checks a store. Sets the exit code if it is damaged.
fn checked(store: &Store, path: &Path, hints: &mut Vec<String>, exit: &mut u8) -> Result<Json, CommandFailure> {
    let stats = store.stats()?;
    if stats.is_wal_large() {
        hints.push("the write-ahead log is large: a reader has been open for long".to_owned());
    }
    if stats.erasing > 0 {
        hints.push("bytes of deleted threads are still stored; a program that opens the store erases them".to_owned());
    }
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > CHECKED_BYTES_MAX) {
        hints.push("the store is large: annals check verifies it".to_owned());
        return Ok(Json::Null);
    }
    let report = store.check()?;
    if !report.problems.is_empty() {
        *exit = 4;
        hints.push(
            "the store is damaged: annals check lists the problems, annals recover saves the sound part".to_owned(),
        );
    }
    Ok(json!({
        "threads": report.threads,
        "checkpoints": report.checkpoints,
        "values": report.values,
        "problems": report.problems.len(),
    }))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
