//! `annals import FILE --from langgraph`, and `annals export --to langgraph-sqlite` or `langgraph-json`: the databases
//! of LangGraph's SQLite saver.
//!
//! `import` prints what was stored and the bytes before and after, and on stderr the rows that were not taken. It fails
//! if no checkpoint was read. JSON: `{"schema": 1, "from": "langgraph", "threads", "checkpoints": {"new", "unchanged"},
//! "writes", "items", "refused": {"count", "first": [{"place", "reason"}]}, "bytes": {"source", "before", "after"}}`.
//! `export` writes a new file; JSON: `{"schema": 1, "path", "format", "threads", "checkpoints", "writes", "bytes"}`. As
//! `langgraph-json` it prints `{"schema": 1, "threads": {id: {"namespaces", "tuples"}}}`, the greatest id first.

use std::collections::BTreeSet;
use std::path::Path;

use annals::store::Store;
use annals_import::SourceDatabase;
use annals_langgraph::{
    DatabaseImport, ListQuery, Saver, SaverError, export_sqlite, import_database, import_sqlite, is_langgraph,
};
use serde_json::json;

use crate::args::{self, LangGraphForm};
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, count, escape, note, size};
use crate::{point, progress};

/// Refused rows that are printed one by one.
const REFUSED_SHOWN: usize = 5;

/// Opens a file if it is a database of LangGraph's SQLite saver.
pub(crate) fn database(path: &Path) -> Option<SourceDatabase> {
    let database = path.is_file().then(|| SourceDatabase::open_path(path).ok())?;
    database.filter(is_langgraph)
}

/// Imports a file: the database that was opened of it, if there is one.
pub(crate) fn import(
    path: &Path,
    database: Option<SourceDatabase>,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    if !path.exists() {
        let message = format!("{} does not exist", path.display());
        return Err(CommandFailure::not_found("file_not_found", message));
    }
    let source = file_bytes(path);
    let before = store.path.map_or(0, file_bytes);
    let say = |summary: &DatabaseImport| progress::say(|| said(summary));
    // The store is closed at the end, and its log copied.
    let saver = Saver::new(point::open_or_make(store)?);
    let summary = match database {
        Some(database) => import_database(path, &database, &saver, say)?,
        None => import_sqlite(path, &saver, say)?,
    };
    drop(saver);
    progress::clear();
    let after = store.path.map_or(0, file_bytes);
    if out.is_json() {
        let rows = summary.refused_rows.iter().take(REFUSED_SHOWN);
        let rows = rows.map(|row| json!({ "place": row.place, "reason": row.reason }));
        out.json(&json!({
            "schema": 1,
            "from": "langgraph",
            "threads": summary.threads,
            "checkpoints": { "new": summary.checkpoints, "unchanged": summary.checkpoints_unchanged },
            "writes": summary.writes,
            "items": summary.items,
            "refused": { "count": summary.refused, "first": rows.collect::<Vec<_>>() },
            "bytes": { "source": source, "before": before, "after": after },
        }))?;
    } else {
        out.line(format!("{}; {} to {}", said(&summary), size(source), size(after.saturating_sub(before))))?;
        out.flush()?;
    }
    if summary.refused > 0 {
        note(format!("{} not taken:", counted(summary.refused, "row")));
        for row in summary.refused_rows.iter().take(REFUSED_SHOWN) {
            note(format!("  {}: {}", escape(&row.place), escape(&row.reason)));
        }
    }
    match summary.checkpoints + summary.checkpoints_unchanged + summary.items {
        0 => {
            let message = format!("no checkpoint and no item was read from {}", path.display());
            Err(CommandFailure::new(1, "nothing_imported", message))
        }
        _ => Ok(0),
    }
}

fn said(summary: &DatabaseImport) -> String {
    let mut text = format!(
        "{}: {} new, {} unchanged; {}",
        counted(summary.threads, "thread"),
        counted(summary.checkpoints, "checkpoint"),
        summary.checkpoints_unchanged,
        counted(summary.writes, "write")
    );
    if summary.items > 0 {
        text += &format!("; {} of the memory", counted(summary.items, "item"));
    }
    text
}

fn counted(n: u64, noun: &str) -> String {
    count(usize::try_from(n).unwrap_or(usize::MAX), noun)
}

pub(crate) fn file_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    [path.as_os_str(), &log].iter().filter_map(|path| std::fs::metadata(path).ok()).map(|meta| meta.len()).sum()
}

pub(crate) fn export(
    args: &args::ExportArgs,
    form: LangGraphForm,
    store: &Store,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    if args.lines || args.damaged || args.channel.is_some() {
        return Err(CommandFailure::usage("--lines, --damaged and --channel are for formats of messages"));
    }
    let threads: Vec<String> = match &args.point {
        Some(point) => vec![point::thread(store, point)?.id().as_str().to_owned()],
        None => store.threads()?.into_iter().map(|thread| thread.id.as_str().to_owned()).collect(),
    };
    let saver = Saver::new(store.clone());
    match (form, &args.out) {
        (LangGraphForm::Sqlite, Some(path)) => to_database(&saver, &threads, path, out),
        (LangGraphForm::Sqlite, None) => Err(CommandFailure::usage("--to langgraph-sqlite needs --out FILE")),
        (LangGraphForm::Json, None) => to_json(&saver, &threads, out),
        (LangGraphForm::Json, Some(_)) => Err(CommandFailure::usage("--to langgraph-json prints; it has no --out")),
    }
}

fn to_database(saver: &Saver, threads: &[String], path: &Path, out: &mut Printer) -> Result<u8, CommandFailure> {
    if path.symlink_metadata().is_ok() {
        let message = format!("file {} exists already and was not changed", path.display());
        return Err(CommandFailure::new(5, "file_exists", message).hint("choose another --out"));
    }
    let names = threads.iter().map(String::as_str);
    let summary = export_sqlite(saver, names, path, |summary| {
        progress::say(|| format!("{} written", counted(summary.checkpoints, "checkpoint")));
    })?;
    progress::clear();
    let shown = path.display().to_string();
    if out.is_json() {
        out.json(&json!({
            "schema": 1, "path": shown, "format": "langgraph-sqlite", "threads": summary.threads,
            "checkpoints": summary.checkpoints, "writes": summary.writes, "bytes": std::fs::metadata(path)?.len(),
        }))?;
        return Ok(0);
    }
    out.line(escape(&shown))?;
    out.flush()?;
    note(format!("{} of {} written", counted(summary.checkpoints, "checkpoint"), counted(summary.threads, "thread")));
    Ok(0)
}

/// Prints tuple by tuple: a thread of any length fits the memory.
fn to_json(saver: &Saver, threads: &[String], out: &mut Printer) -> Result<u8, CommandFailure> {
    out.json_part("{\"schema\": 1, \"threads\": {")?;
    for (at, thread) in threads.iter().enumerate() {
        out.json_part(&format!("{}{}: {{\"tuples\": [", if at > 0 { ", " } else { "" }, json!(thread)))?;
        let mut namespaces = BTreeSet::new();
        for (at, tuple) in saver.list(ListQuery::of_thread(&**thread))?.enumerate() {
            let tuple = tuple?;
            out.json_part(&format!("{}{}", if at > 0 { ", " } else { "" }, tuple.to_json()))?;
            namespaces.insert(tuple.config.namespace);
        }
        out.json_part(&format!("], \"namespaces\": {}}}", json!(namespaces)))?;
    }
    out.json_part("}}\n")?;
    out.flush()?;
    Ok(0)
}

impl From<SaverError> for CommandFailure {
    fn from(error: SaverError) -> Self {
        let message = error.to_string();
        match error {
            SaverError::Store(error) => annals_graph::Error::from(error).into(),
            SaverError::Source { .. } => Self::new(1, "unreadable_source", message),
            SaverError::Unsupported { .. } => Self::new(1, "unsupported", message),
            _ => Self::new(70, "io", message),
        }
    }
}
