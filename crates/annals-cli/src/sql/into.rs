//! `annals sql --into FILE`: writes all views as tables of a new SQLite file, for programs that read no encoded column.
//!
//! JSON: `{"schema": 1, "path", "bytes", "tables": [{"table", "rows"}]}`. Rows are written as they are read, from one
//! snapshot. Invariant: the file gets its name once its bytes are on the disk; before that it has the name with
//! `-unfinished`, which is removed if the command fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use annals::rusqlite::types::ToSqlOutput;
use annals::rusqlite::{Connection, Error as SqlError, OpenFlags, params_from_iter};
use serde_json::json;

use super::{functions, refused};
use crate::errors::CommandFailure;
use crate::output::{Printer, columns, escape, grouped, size};
use crate::progress;

/// The statements, with places for the names of a table and of its columns.
const MAKE_TABLE: &str = include_str!("make_table.sql");
const INSERT: &str = include_str!("insert.sql");
const SELECT_ALL: &str = include_str!("select_all.sql");

/// Rows between two texts of the progress.
const ROWS_SAID: u64 = 10_000;

/// The columns of numbers and of bytes, by their names; the others are of texts.
const INTEGERS: [&str; 24] = [
    "archived",
    "attempt",
    "branch",
    "branches",
    "checkpoints",
    "codec",
    "handled",
    "idx",
    "input_tokens",
    "is_call",
    "is_head",
    "messages",
    "namespaces",
    "newest",
    "operation",
    "ordinal",
    "output_tokens",
    "part",
    "payload",
    "pinned",
    "position",
    "removed_by",
    "seq",
    "slot",
];
const OF_VIEWS: [(&str, &str); 5] = [
    ("v_channel_versions", "key"),
    ("v_channel_versions", "task"),
    ("v_channel_versions", "version"),
    ("v_items", "task"),
    ("v_state", "version"),
];
const REALS: [&str; 2] = ["cost_usd", "seconds"];
const BLOBS: [&str; 2] = ["data", "inline"];

/// A table that was written.
struct WrittenTable {
    name: String,
    rows: u64,
}

/// Writes the views of a connection to a new file.
pub(super) fn run(from: &Connection, to: &Path, out: &mut Printer) -> Result<u8, CommandFailure> {
    let exists = || {
        let message = format!("file {} exists already and was not changed", to.display());
        CommandFailure::new(5, "file_exists", message).hint("choose another FILE")
    };
    if to.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let mut name = OsString::from(to);
    name.push("-unfinished");
    let unfinished = PathBuf::from(name);
    // The file of another command that is under way, or that was killed, stays.
    File::options().write(true).create_new(true).open(&unfinished).map_err(|error| failed(&unfinished, &error))?;
    let written = tables(from, &unfinished).map_err(refused).and_then(|tables| {
        publish(&unfinished, to).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(),
            _ => failed(to, &error),
        })?;
        Ok(tables)
    });
    if written.is_err() {
        // The first error is reported.
        _ = fs::remove_file(&unfinished);
    }
    progress::clear();
    say(to, &written?, out)
}

/// Writes the tables in one transaction.
fn tables(from: &Connection, to: &Path) -> Result<Vec<WrittenTable>, SqlError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let target = Connection::open_with_flags(to, flags)?;
    // The file is synced, or removed, as a whole.
    target.pragma_update(None, "journal_mode", "off")?;
    target.pragma_update(None, "synchronous", "off")?;
    let (writes, reads) = (target.unchecked_transaction()?, from.unchecked_transaction()?);
    let mut written = Vec::new();
    for (view, columns) in functions::views(&reads)? {
        let rows = table(&reads, &writes, &view, &columns)?;
        written.push(WrittenTable { name: view, rows });
    }
    reads.finish()?;
    writes.commit()?;
    Ok(written)
}

/// Writes the rows of a view, and returns their number.
fn table(from: &Connection, target: &Connection, view: &str, columns: &[String]) -> Result<u64, SqlError> {
    let typed: Vec<String> = columns.iter().map(|column| format!("\"{column}\" {}", kind(view, column))).collect();
    target.execute_batch(&MAKE_TABLE.replace("{table}", view).replace("{columns}", &typed.join(", ")))?;
    let places = vec!["?"; columns.len()].join(", ");
    let mut insert = target.prepare(&INSERT.replace("{table}", view).replace("{places}", &places))?;
    let mut select = from.prepare(&SELECT_ALL.replace("{table}", view))?;
    let (mut rows, mut count) = (select.query([])?, 0);
    while let Some(row) = rows.next()? {
        let cell = |at| row.get_ref(at).map(ToSqlOutput::Borrowed);
        let cells = (0..columns.len()).map(cell).collect::<Result<Vec<_>, _>>()?;
        insert.execute(params_from_iter(cells))?;
        count += 1;
        if count % ROWS_SAID == 0 {
            progress::say(|| format!("{view}: {} rows", grouped(count)));
        }
    }
    Ok(count)
}

/// Returns the type of a column.
fn kind(view: &str, column: &str) -> &'static str {
    match column {
        column if INTEGERS.contains(&column) || OF_VIEWS.contains(&(view, column)) => "INTEGER",
        column if REALS.contains(&column) => "REAL",
        column if BLOBS.contains(&column) => "BLOB",
        _ => "TEXT",
    }
}

/// Gives a file its name once its bytes are on the disk, unless another one has the name.
fn publish(unfinished: &Path, to: &Path) -> std::io::Result<()> {
    File::open(unfinished)?.sync_all()?;
    fs::hard_link(unfinished, to)?;
    fs::remove_file(unfinished)?;
    // The name lasts as well, on systems that can sync a folder.
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn failed(path: &Path, error: &std::io::Error) -> CommandFailure {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let message = format!("file {} exists already: another command writes it, or was killed", path.display());
            CommandFailure::new(5, "file_exists", message).hint("remove it if no other command runs")
        }
        _ => CommandFailure::new(70, "io", format!("{}: {error}", path.display())),
    }
}

fn say(to: &Path, tables: &[WrittenTable], out: &mut Printer) -> Result<u8, CommandFailure> {
    let (path, bytes) = (to.display().to_string(), fs::metadata(to)?.len());
    if out.is_json() {
        let tables: Vec<_> = tables.iter().map(|table| json!({ "table": table.name, "rows": table.rows })).collect();
        out.json(&json!({ "schema": 1, "path": path, "bytes": bytes, "tables": tables }))?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = tables.iter().map(|table| vec![table.name.clone(), grouped(table.rows)]).collect();
    for line in columns(&rows) {
        out.line(line)?;
    }
    out.line(format!("{} {}", escape(&path), size(bytes)))?;
    Ok(0)
}
