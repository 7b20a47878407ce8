//! SQLite databases of other programs, opened without writing to them.
//!
//! Invariant: no file beside the database is made. A database with a log is opened in place only if the shared memory of
//! its log is there as well; otherwise a copy is opened.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Params};
use serde_json::{Map as JsonMap, Value as Json};
use tempfile::TempDir;

use crate::error::ImportError;
use crate::model::SourceKind;

/// The first bytes of a database.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";

/// A database that is open for reading.
pub(crate) struct SourceDatabase {
    connection: Connection,
    /// The folder of the copy, which is removed with the database.
    _copy: Option<TempDir>,
}

impl SourceDatabase {
    /// Opens a database. Returns nothing if the file is not one that can be read.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, ImportError> {
        let wal = beside(path, "-wal");
        let has_log = fs::metadata(&wal).is_ok_and(|metadata| metadata.len() > 0);
        if !has_log {
            // Nothing stands in a log, and no program has the database open: no lock and no shared memory is needed.
            return Ok(Self::connect(path, "mode=ro&immutable=1").map(|connection| Self { connection, _copy: None }));
        }
        if beside(path, "-shm").exists()
            && let Some(connection) = Self::connect(path, "mode=ro")
        {
            return Ok(Some(Self { connection, _copy: None }));
        }
        let copied = |error| ImportError::io(path, error);
        let folder = tempfile::tempdir().map_err(copied)?;
        let copy = folder.path().join("copy.db");
        fs::copy(path, &copy).map_err(copied)?;
        fs::copy(&wal, beside(&copy, "-wal")).map_err(copied)?;
        // The mode of the source is copied as well, and a log cannot be read without shared memory that can be written.
        for file in [&copy, &beside(&copy, "-wal")] {
            writable(file).map_err(copied)?;
        }
        let connection = Self::connect(&copy, "mode=rw");
        Ok(connection.map(|connection| Self { connection, _copy: Some(folder) }))
    }

    fn connect(path: &Path, mode: &str) -> Option<Connection> {
        let flags = match mode {
            "mode=rw" => OpenFlags::SQLITE_OPEN_READ_WRITE,
            _ => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
        let uri = format!("file:{}?{mode}", percent_encoded(path)?);
        let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri, flags).ok()?;
        let is_readable = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).is_ok();
        is_readable.then_some(connection)
    }

    /// Returns the names of the columns of a table, an empty list for a missing table.
    #[allow(clippy::useless_conversion, reason = "the names are a list in rusqlite 0.39 and an iterator in 0.41")]
    pub(crate) fn columns(&self, table: &str) -> Vec<String> {
        debug_assert!(table.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "a name of this crate");
        let statement = self.connection.prepare(&format!("SELECT * FROM {table} LIMIT 0"));
        statement.map_or(Vec::new(), |statement| statement.column_names().into_iter().map(str::to_owned).collect())
    }

    /// Gives the rows of a query to a function, as objects. A blob is an object with the member `blob`, a list of bytes.
    #[allow(clippy::useless_conversion, reason = "the names are a list in rusqlite 0.39 and an iterator in 0.41")]
    pub(crate) fn rows(
        &self,
        sql: &str,
        params: impl Params,
        mut row: impl FnMut(SourceRow) -> Result<(), ImportError>,
    ) -> Result<(), RowsError> {
        let mut statement = self.connection.prepare(sql)?;
        let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
        let mut rows = statement.query(params)?;
        while let Some(found) = rows.next()? {
            let mut fields = JsonMap::new();
            let mut blobs = Vec::new();
            for (at, name) in names.iter().enumerate() {
                let value = match found.get_ref(at)? {
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
        serde_json::from_str(&String::from_utf8_lossy(self.bytes(name))).ok()
    }
}

/// The reason for which rows ended.
pub(crate) enum RowsError {
    /// The database is damaged.
    Database(rusqlite::Error),
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

/// Reports a damaged database; another error ends the import.
pub(crate) fn settle(
    read: Result<(), RowsError>,
    place: &str,
    out: &mut crate::output::ReadOutput<'_>,
) -> Result<(), ImportError> {
    match read {
        Ok(()) => Ok(()),
        Err(RowsError::Import(error)) => Err(error),
        Err(RowsError::Database(error)) => out.unknown("broken_database", place, error.to_string()),
    }
}

/// Returns the program whose database this is, by its tables.
pub(crate) fn recognise(database: &SourceDatabase) -> Option<SourceKind> {
    let has = |table: &str, column: &str| database.columns(table).iter().any(|name| name == column);
    if has("sessions", "id") && has("messages", "content_json") && has("schema_version", "version") {
        return Some(SourceKind::Goose);
    }
    if has("session", "id") && has("message", "data") && has("part", "data") {
        return Some(SourceKind::Opencode);
    }
    (has("threads", "data") && has("threads", "data_type")).then_some(SourceKind::Zed)
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

/// Returns a path for a URI of SQLite; nothing if it is not text.
fn percent_encoded(path: &Path) -> Option<String> {
    let mut out = String::new();
    for byte in path.to_str()?.bytes() {
        match byte {
            b'%' | b'?' | b'#' => out.push_str(&format!("%{byte:02X}")),
            _ => out.push(char::from(byte)),
        }
    }
    // Bytes beyond ASCII are written as they are.
    Some(if path.to_str()?.is_ascii() {
        out
    } else {
        path.to_str()?.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
    })
}
