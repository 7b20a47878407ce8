//! `annals sql QUERY`: runs a query over the tables and views of the store, for reading only.
//!
//! The views are documented in `docs/views.md`; [`functions`] adds those that decode. With `--into` all views are
//! written to a new file ([`into`]). JSON: `{"schema": 1, "columns": [..], "rows": [[..]]}`; a BLOB is
//! `{"$bytes": base64}` as in every document. With `--views`: `{"schema": 1, "views": [{"view", "columns": [..]}],
//! "functions": [..]}`. Rows are printed as they are read, so the document of a query that fails after the first of
//! them is not whole; the exit code tells. With `--csv` the rows are comma-separated values (RFC 4180).

mod functions;
mod into;

use std::path::Path;

use annals::base::Value;
use annals::base::limits::{STATEMENT_BYTES_MAX, VALUE_BYTES_MAX};
use annals::rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use annals::rusqlite::{Connection, Error as SqlError, ErrorCode, OpenFlags, limits::Limit, types::ValueRef};
use annals::store::Store;
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{self, ColumnWidths, Printer, columns, cut, escape};
use crate::point;

/// The number of characters of a cell that are shown in columns; JSON and CSV have all.
const CELL_CHARS: usize = 80;
/// Rows that are laid out as columns together.
const PAGE_ROWS: usize = 200;

/// Limits of the connection. A text or blob that a query makes is at most twice as long as the longest stored one, so a
/// row of a stranger cannot ask for the memory of the machine; a query is as long as a statement of a transaction.
const SQLITE_LIMITS: [(Limit, i32); 3] = [
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LENGTH, 2 * VALUE_BYTES_MAX as i32),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, STATEMENT_BYTES_MAX as i32),
];

pub(crate) fn run(args: &args::SqlArgs, named: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let path = point::file(named, "annals sql reads", "psql reads the tables of a server")?;
    // The store compares the schema with that of the format, so no view or trigger of a stranger runs. It is closed
    // last, as its reader removes the files beside the store.
    let store = point::open_to_read(named)?;
    let connection = connect_to_read(path, &store).map_err(refused)?;
    if let Some(to) = &args.into {
        return into::run(&connection, to, out);
    }
    let Some(query) = &args.query else { return list_views(&connection, out) };
    let mut statement = connection.prepare(query).map_err(refused)?;
    if statement.expanded_sql().is_none() {
        return Err(sql_failure("the query is empty: it holds no statement"));
    }
    if !statement.readonly() {
        return Err(CommandFailure::new(7, "read_only", "the query would write, and the store is opened for reading"));
    }
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query([]).map_err(refused)?;
    let mut printer = RowPrinter::new(names, args.csv, out)?;
    let (most, mut printed) = (args.most(), 0);
    while let Some(row) = rows.next().map_err(refused)? {
        if printed == most {
            output::note("more rows: -n 0 prints all");
            break;
        }
        printed += 1;
        let cells = (0..printer.names.len()).map(|at| row.get_ref(at).map(value)).collect::<Result<_, _>>();
        printer.push(cells.map_err(refused)?)?;
    }
    printer.finish()
}

/// Lists the views with their columns.
fn list_views(connection: &Connection, out: &mut Printer) -> Result<u8, CommandFailure> {
    let views = functions::views(connection).map_err(refused)?;
    if out.is_json() {
        let views: Vec<Json> =
            views.iter().map(|(view, columns)| json!({ "view": view, "columns": columns })).collect();
        out.json(&json!({ "schema": 1, "views": views, "functions": functions::FUNCTIONS }))?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = views.into_iter().map(|(view, columns)| vec![view, columns.join(", ")]).collect();
    for line in columns(&rows) {
        out.line(line)?;
    }
    out.flush()?;
    output::note(format!("functions: {}", functions::FUNCTIONS.join(", ")));
    Ok(0)
}

/// Opens a second connection to the file of a store, for reading, which can reach no other file. It has the views and
/// functions of `annals sql`. A statement may still be one that would write: SQLite refuses it when it is run.
///
/// # Errors
/// Those of SQLite: the file cannot be opened.
pub fn connect_to_read(path: &Path, store: &Store) -> Result<Connection, SqlError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    for (limit, most) in SQLITE_LIMITS {
        connection.set_limit(limit, most)?;
    }
    let mut connection = connection;
    functions::add(&connection, store)?;
    connection.authorizer(Some(decide))?;
    Ok(connection)
}

/// Refuses the functions that load code, or answer with the address of code.
fn decide(asked: AuthContext<'_>) -> Authorization {
    match asked.action {
        AuthAction::Function { function_name }
            if ["load_extension", "fts3_tokenizer"].iter().any(|name| name.eq_ignore_ascii_case(function_name)) =>
        {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }
}

fn refused(error: SqlError) -> CommandFailure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return CommandFailure::new(5, "busy", error.to_string());
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            return CommandFailure::new(4, "corrupt", error.to_string());
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull | ErrorCode::OutOfMemory) => {
            return CommandFailure::new(70, "io", error.to_string());
        }
        _ => {}
    }
    sql_failure(error.to_string())
}

fn sql_failure(message: impl Into<String>) -> CommandFailure {
    let failure = CommandFailure::new(2, "sql", message);
    failure.hint("annals sql --views lists the views and their columns")
}

fn value(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::Int(n),
        ValueRef::Real(x) => Value::Float(x),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

/// Prints rows as they come: in columns, page by page, as CSV, or as one document.
struct RowPrinter<'a> {
    names: Vec<String>,
    csv: bool,
    /// The rows that are not printed yet.
    rows: Vec<Vec<Value>>,
    widths: ColumnWidths,
    is_begun: bool,
    any: bool,
    out: &'a mut Printer,
}

impl<'a> RowPrinter<'a> {
    fn new(names: Vec<String>, csv: bool, out: &'a mut Printer) -> Result<Self, CommandFailure> {
        if csv && !out.is_json() {
            out.raw_line(&names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(","))?;
        }
        if out.is_json() && !out.is_lines() {
            let head = format!("{:#}", json!({ "schema": 1, "columns": names }));
            out.json_part(head.trim_end_matches("\n}"))?;
            out.json_part(",\n  \"rows\": [")?;
        }
        Ok(Self { names, csv, rows: Vec::new(), widths: ColumnWidths::default(), is_begun: false, any: false, out })
    }

    fn push(&mut self, row: Vec<Value>) -> Result<(), CommandFailure> {
        let is_first = !std::mem::replace(&mut self.any, true);
        if self.out.is_lines() {
            let cells = self.names.iter().cloned().zip(row.iter().map(Value::to_json));
            let members = std::iter::once(("schema".to_owned(), json!(1))).chain(cells);
            return Ok(self.out.json_line(&Json::Object(members.collect()))?);
        }
        if self.out.is_json() {
            // A text of JSON has no line end within, so each one is that of the layout.
            let row = format!("\n{:#}", Json::Array(row.iter().map(Value::to_json).collect())).replace('\n', "\n    ");
            return Ok(self.out.json_part(&format!("{}{row}", if is_first { "" } else { "," }))?);
        }
        if self.csv {
            let cells: Vec<String> = row.iter().map(|cell| quoted(&text(cell))).collect();
            self.out.raw_line(&cells.join(","))?;
            return Ok(());
        }
        self.rows.push(row);
        if self.rows.len() == PAGE_ROWS { self.page() } else { Ok(()) }
    }

    /// Prints the rows in columns; the first ones below the names of the columns.
    fn page(&mut self) -> Result<(), CommandFailure> {
        let mut cells = Vec::with_capacity(self.rows.len() + 1);
        if !self.is_begun {
            let names = self.names.iter().map(|name| cut(&escape(name), CELL_CHARS).into_owned());
            cells.push(names.collect::<Vec<_>>());
        }
        for row in self.rows.drain(..) {
            cells.push(row.iter().map(|cell| cut(&escape(&text(cell)), CELL_CHARS).into_owned()).collect());
        }
        for line in self.widths.lay(&cells) {
            self.out.row(if self.is_begun { line } else { self.out.dim(&line) })?;
            self.is_begun = true;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<u8, CommandFailure> {
        if self.out.is_json() && !self.out.is_lines() {
            self.out.json_part(if self.any { "\n  ]\n}\n" } else { "]\n}\n" })?;
        } else if !self.csv && !self.rows.is_empty() {
            self.page()?;
        }
        Ok(u8::from(!self.any))
    }
}

/// Returns a cell as text: nothing for NULL, bytes in hexadecimal digits.
fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        cell => cell.to_string(),
    }
}

/// Returns a cell of CSV, in quotes if it holds a mark of the format.
pub(crate) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
