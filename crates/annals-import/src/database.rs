//! SQLite databases of other programs: files of strangers, opened without writing to them.
//!
//! Invariants: no file beside the database is made; only tables are read, and neither views nor virtual tables;
//! neither triggers nor functions of the schema run; the work and the memory of the queries of a file are bounded.
//!
//! A database is read with the locks of SQLite where that makes no file: without a write-ahead log, or with one whose
//! shared memory is there, as of a program that runs. Otherwise no program has the database open: a database with a
//! log is copied, and a database without one is read without locks; a session is dropped if the file changed while it
//! was read.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Params};
use serde_json::{Map as JsonMap, Value as Json};
use tempfile::TempDir;

use crate::error::{ImportError, SourceFault, SourceLimit};
use crate::json;
use crate::limits::{
    DATABASE_BYTES_FREE, DATABASE_COPIES_MAX, DATABASE_RATIO_MAX, DATABASE_STEPS_BETWEEN, DATABASE_STEPS_MAX,
    DATABASE_WAIT_MS, RECORD_BYTES_MAX,
};
use crate::model::SourceSession;
use crate::output::ReadOutput;

/// The first bytes of a database.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";

/// The position in the head of a database of the two bytes that are 2 if it has a write-ahead log.
const LOG_VERSIONS_AT: usize = 18;

/// A database of another program, opened without writing to it or beside it: of a file with a write-ahead log that no
/// program has open, a copy is read. Views, triggers and functions of its schema do not run; queries are bounded.
pub struct SourceDatabase {
    connection: Connection,
    /// The file and its stamp, if it was opened without locks.
    unlocked: Option<(PathBuf, FileStamp)>,
    /// Bytes that the queries yielded, and may yield.
    yielded: Cell<u64>,
    yield_max: u64,
    /// True after a limit of the whole database was exceeded, or when it has changed.
    is_exhausted: Cell<bool>,
    /// The folder of the copy, which is removed with the database.
    _copy: Option<TempDir>,
}

/// The length and the time of modification of a file, and of those of its log.
type FileStamp = [Option<(u64, Option<SystemTime>)>; 4];

fn stamp(path: &Path) -> FileStamp {
    ["", "-wal", "-shm", "-journal"].map(|ending| {
        let metadata = fs::metadata(beside(path, ending)).ok()?;
        Some((metadata.len(), metadata.modified().ok()))
    })
}

/// The way in which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileAccess {
    /// Read-only, with the locks of SQLite.
    Locked,
    /// Read-only, without locks and without a log.
    Immutable,
    /// A copy of this process, whose log may be recovered.
    Copy,
}

impl fmt::Debug for SourceDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceDatabase").finish_non_exhaustive()
    }
}

impl SourceDatabase {
    /// Opens a database.
    ///
    /// # Errors
    /// [`ImportError::Io`] if the file is not a database, is damaged, locked, or a write to it was interrupted.
    pub fn open_path(path: &Path) -> Result<Self, ImportError> {
        Self::open(path).map_err(|fault| ImportError::Io {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, fault.to_string()),
        })
    }

    /// Returns the connection that reads.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns whether a file that is read without locks has changed since it was opened: what was read of it may be of
    /// two states.
    pub fn is_changed(&self) -> bool {
        self.unlocked.as_ref().is_some_and(|(path, before)| stamp(path) != *before)
    }

    /// Opens a database.
    ///
    /// # Errors
    /// [`SourceFault::Frame`] if the file is not a database or is damaged; [`SourceFault::Unreadable`] if it is locked
    /// or a write to it was interrupted.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceFault> {
        let has_bytes = |ending: &str| fs::metadata(beside(path, ending)).is_ok_and(|metadata| metadata.len() > 0);
        let mut head = Vec::new();
        fs::File::open(path)?.take(MAGIC.len() as u64 + 8).read_to_end(&mut head)?;
        let has_log_mode = head[LOG_VERSIONS_AT.min(head.len())..].iter().take(2).any(|version| *version == 2);
        let (has_log, has_journal) = (has_bytes("-wal"), has_bytes("-journal"));
        let mut failed = None;
        if beside(path, "-shm").exists() || !(has_log_mode || has_log) {
            match Self::connect(path, FileAccess::Locked) {
                Ok(connection) => return Ok(Self::new(connection, path, None, None)),
                Err(error) => failed = Some(error),
            }
        }
        match (has_log, has_journal) {
            // A journal that is played back could name other files, which SQLite would delete.
            (_, true) => Err(fault_of(failed.unwrap_or(rusqlite::Error::InvalidQuery))),
            (true, false) => Self::open_copy(path),
            (false, false) => {
                let before = stamp(path);
                let connection = Self::connect(path, FileAccess::Immutable).map_err(fault_of)?;
                Ok(Self::new(connection, path, Some(before), None))
            }
        }
    }

    /// Copies a database with its log and opens the copy.
    fn open_copy(path: &Path) -> Result<Self, SourceFault> {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("copy.db");
        for _ in 0..DATABASE_COPIES_MAX {
            let before = stamp(path);
            for ending in ["", "-wal"] {
                let (from, to) = (beside(path, ending), beside(&copy, ending));
                fs::copy(&from, &to)?;
                // The mode of the source is copied as well, and a log cannot be read without shared memory that can be
                // written.
                writable(&to)?;
            }
            if before == stamp(path) {
                let connection = Self::connect(&copy, FileAccess::Copy).map_err(fault_of)?;
                return Ok(Self::new(connection, path, None, Some(folder)));
            }
        }
        Err(SourceFault::Unreadable("the database is written while it is copied".to_owned()))
    }

    fn new(connection: Connection, path: &Path, unlocked: Option<FileStamp>, copy: Option<TempDir>) -> Self {
        let length = |ending: &str| fs::metadata(beside(path, ending)).map_or(0, |metadata| metadata.len());
        let length = length("").saturating_add(length("-wal"));
        Self {
            connection,
            unlocked: unlocked.map(|stamp| (path.to_owned(), stamp)),
            yielded: Cell::new(0),
            yield_max: length.saturating_mul(DATABASE_RATIO_MAX).saturating_add(DATABASE_BYTES_FREE),
            is_exhausted: Cell::new(false),
            _copy: copy,
        }
    }

    fn connect(path: &Path, access: FileAccess) -> rusqlite::Result<Connection> {
        let flags = match access {
            FileAccess::Copy => OpenFlags::SQLITE_OPEN_READ_WRITE,
            FileAccess::Locked | FileAccess::Immutable => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = match access {
            FileAccess::Locked | FileAccess::Copy => Connection::open_with_flags(path, flags)?,
            FileAccess::Immutable => {
                let text = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.to_owned()))?;
                let text = text.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
                let uri = format!("file:{text}?immutable=1");
                Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
            }
        };
        guard(&mut connection)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    }

    /// Returns whether no more is read: a limit of the whole database was exceeded, or it has changed.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Returns the names of the columns of a table. The list is empty if no table has the name.
    #[allow(clippy::useless_conversion, reason = "the names are a list in rusqlite 0.39 and an iterator in 0.41")]
    pub fn columns(&self, table: &str) -> Vec<String> {
        debug_assert!(is_own_name(table), "a name of this crate");
        let sql = "SELECT type FROM pragma_table_list(?1) WHERE schema = 'main'";
        let kind = self.connection.query_row(sql, [table], |row| row.get::<_, String>(0));
        if kind.as_deref() != Ok("table") {
            return Vec::new();
        }
        let statement = self.connection.prepare(&format!("SELECT * FROM {table} LIMIT 0"));
        statement.map_or(Vec::new(), |statement| statement.column_names().into_iter().map(str::to_owned).collect())
    }

    /// Returns the names of the tables, in their order. Names with other characters than letters, digits and `_` are
    /// left out.
    pub(crate) fn tables(&self) -> Vec<String> {
        let mut names = Vec::new();
        // A database that cannot be read has no tables to recognise.
        _ = self.rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid", [], |row| {
            names.extend(json::maybe_text(&row.fields, "name").filter(|name| is_own_name(name)));
            Ok(())
        });
        names
    }

    /// Returns whether a table has a column.
    pub(crate) fn has_column(&self, table: &str, column: &str) -> bool {
        self.columns(table).iter().any(|name| name == column)
    }

    /// Reads within one snapshot of the database. Returns nothing if the file was opened without locks and has changed
    /// since, which is reported.
    pub(crate) fn snapshot<T>(
        &self,
        place: &str,
        out: &mut ReadOutput<'_>,
        read: impl FnOnce(&mut ReadOutput<'_>) -> Result<T, ImportError>,
    ) -> Result<Option<T>, ImportError> {
        // Without a transaction each query sees a state of its own: a failure to begin one shows in the queries.
        _ = self.connection.execute_batch("BEGIN");
        let read = read(out);
        _ = self.connection.execute_batch("ROLLBACK");
        let read = read?;
        if self.is_changed() {
            self.is_exhausted.set(true);
            out.unknown("changed_database", place, "a program has opened the database since; import it again")?;
            return Ok(None);
        }
        Ok(Some(read))
    }

    /// Reads sessions by their keys, each within one snapshot, and stores them, until the database is exhausted.
    pub(crate) fn sessions<K>(
        &self,
        keys: impl IntoIterator<Item = K>,
        place: &str,
        out: &mut ReadOutput<'_>,
        mut read: impl FnMut(K, &mut ReadOutput<'_>) -> Result<Option<SourceSession>, ImportError>,
    ) -> Result<(), ImportError> {
        for key in keys {
            if self.is_exhausted() {
                break;
            }
            if let Some(session) = self.snapshot(place, out, |out| read(key, out))?.flatten() {
                out.session(session)?;
            }
        }
        Ok(())
    }

    /// Returns the numbers of the rows that a query selects.
    pub(crate) fn row_numbers(&self, sql: &str, params: impl Params) -> Result<Vec<i64>, RowsError> {
        let mut numbers = Vec::new();
        self.rows(sql, params, |row| {
            let number = row.fields.as_object().and_then(|fields| fields.values().next()).and_then(Json::as_i64);
            numbers.extend(number);
            Ok(())
        })?;
        Ok(numbers)
    }

    /// Returns the row of a table with a number, if it is still there.
    pub(crate) fn row(&self, table: &str, number: i64) -> Result<Option<SourceRow>, RowsError> {
        debug_assert!(is_own_name(table), "a name of this crate");
        let mut found = None;
        self.rows(&format!("SELECT * FROM {table} WHERE rowid = ?1"), [number], |row| {
            found = Some(row);
            Ok(())
        })?;
        Ok(found)
    }

    /// Gives the rows of a query to a function, as objects.
    #[allow(clippy::useless_conversion, reason = "the names are a list in rusqlite 0.39 and an iterator in 0.41")]
    pub(crate) fn rows(
        &self,
        sql: &str,
        params: impl Params,
        mut row: impl FnMut(SourceRow) -> Result<(), ImportError>,
    ) -> Result<(), RowsError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
        let mut rows = statement.query(params)?;
        while let Some(found) = rows.next()? {
            let mut fields = JsonMap::new();
            let mut blobs = Vec::new();
            for (at, name) in names.iter().enumerate() {
                let value = found.get_ref(at)?;
                self.spend(match value {
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() as u64,
                    _ => 0,
                })?;
                let value = match value {
                    ValueRef::Null => Json::Null,
                    ValueRef::Integer(n) => n.into(),
                    ValueRef::Real(x) => x.into(),
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
                    ValueRef::Blob(bytes) => {
                        blobs.push((name.clone(), bytes.to_vec()));
                        Json::Null
                    }
                };
                fields.insert(name.clone(), value);
            }
            row(SourceRow { fields: Json::Object(fields), blobs })?;
        }
        Ok(())
    }

    /// Counts a value of some bytes.
    fn spend(&self, bytes: u64) -> Result<(), RowsError> {
        let yielded = self.yielded.get().saturating_add(bytes.max(8));
        self.yielded.set(yielded);
        if yielded > self.yield_max {
            let limit = SourceLimit::new("bytes that the queries of a database yield", self.yield_max);
            return Err(RowsError::Fault(limit.into()));
        }
        Ok(())
    }

    /// Reports the fault of a query; another error ends the import.
    pub(crate) fn settle<T>(
        &self,
        read: Result<T, RowsError>,
        place: &str,
        out: &mut ReadOutput<'_>,
    ) -> Result<Option<T>, ImportError> {
        match read {
            Ok(read) => return Ok(Some(read)),
            Err(RowsError::Import(error)) => return Err(error),
            Err(RowsError::Fault(fault)) => {
                self.is_exhausted.set(true);
                out.fault(fault, place)?;
            }
            Err(RowsError::Database(error)) => match error.sqlite_error_code() {
                Some(ErrorCode::TooBig) => {
                    out.fault(SourceLimit::new("bytes of a row", RECORD_BYTES_MAX as u64).into(), place)?;
                }
                Some(ErrorCode::OperationInterrupted) => {
                    self.is_exhausted.set(true);
                    let limit = SourceLimit::new("instructions of the queries of a database", DATABASE_STEPS_MAX);
                    out.fault(limit.into(), place)?;
                }
                _ => out.unknown("broken_database", place, error.to_string())?,
            },
        }
        Ok(None)
    }
}

/// Disables the features of a connection that a file could abuse, and sets its limits.
fn guard(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, RECORD_BYTES_MAX),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
        (Limit::SQLITE_LIMIT_COLUMN, 500),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10),
        (Limit::SQLITE_LIMIT_VDBE_OP, 50_000),
        (Limit::SQLITE_LIMIT_FUNCTION_ARG, 8),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, i32::try_from(value).unwrap_or(i32::MAX))?;
    }
    connection.busy_timeout(Duration::from_millis(DATABASE_WAIT_MS))?;
    let mut steps: u64 = 0;
    let is_over = move || {
        steps += u64::from(DATABASE_STEPS_BETWEEN.unsigned_abs());
        steps > DATABASE_STEPS_MAX
    };
    connection.progress_handler(DATABASE_STEPS_BETWEEN, Some(is_over))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // Pages that another program truncates must not end this one with a signal.
    connection.pragma_update_and_check(None, "mmap_size", 0, |_| Ok(()))
}

/// Returns the fault of a database that cannot be opened.
fn fault_of(error: rusqlite::Error) -> SourceFault {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => SourceFault::Frame(error.to_string()),
        _ => SourceFault::Unreadable(error.to_string()),
    }
}

/// A row of a query.
pub(crate) struct SourceRow {
    pub(crate) fields: Json,
    blobs: Vec<(String, Vec<u8>)>,
}

impl SourceRow {
    /// Returns the bytes of a blob or text.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        let blob = self.blobs.iter().find(|(of, _)| of == name).map(|(_, bytes)| bytes.as_slice());
        blob.unwrap_or_else(|| self.fields[name].as_str().unwrap_or("").as_bytes())
    }

    /// Returns the JSON document in a column.
    pub(crate) fn document(&self, name: &str) -> Option<Json> {
        json::parse_bytes(self.bytes(name)).ok()
    }
}

/// The reason for which rows ended.
pub(crate) enum RowsError {
    /// The database is damaged, or a row is too large.
    Database(rusqlite::Error),
    /// The queries exceeded a limit.
    Fault(SourceFault),
    /// The receiver failed.
    Import(ImportError),
}

impl From<rusqlite::Error> for RowsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<ImportError> for RowsError {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}

/// Returns whether a name of a table may be written into a query as it is.
fn is_own_name(table: &str) -> bool {
    table.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn writable(path: &Path) -> std::io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    #[cfg(not(unix))]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions)
}
