//! Opens a file: identifies it before SQLite touches it, then configures and verifies the connections.
//!
//! Nothing on the disk is changed unless the file is a store, or is missing or empty and may be made.

use super::fault::{Fault, Res, damage, is_no_database};
use super::lock::wait_for;
use super::{migrate, registry, sql};
use crate::base::limits::STATEMENTS_MAX;
use crate::store::error::StoreError;
use crate::store::handle::{OpenOptions, Synchronous};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the header of a SQLite file.
const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A file that was identified.
#[derive(Clone, Debug)]
pub(super) struct FilePlace {
    /// Its absolute path without symbolic links.
    pub(super) path: PathBuf,
    /// The wait for other processes, in milliseconds.
    pub(super) busy_ms: u64,
}

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Missing,
    Empty,
    Store,
}

/// Opens the file for writing, and makes it if it may.
pub(super) fn writable(path: &Path, options: &OpenOptions) -> Result<(FilePlace, Connection), StoreError> {
    refuse_bad_sqlite(path, rusqlite::version_number())?;
    let place = place(path, options.busy_timeout_ms)?;
    match inspect(&place.path)? {
        FileKind::Missing if !options.create => return Err(cannot_open(path, "it does not exist", None)),
        FileKind::Empty if !options.create => return Err(not_a_store(path, "it is empty")),
        FileKind::Missing => create(&place.path)?,
        FileKind::Empty | FileKind::Store => {}
    }
    let conn = connect_writer(&place, options).map_err(|fault| opening(&place.path, fault))?;
    Ok((place, conn))
}

/// Opens the file for reading only.
pub(super) fn readable(path: &Path, options: &OpenOptions) -> Result<FilePlace, StoreError> {
    refuse_bad_sqlite(path, rusqlite::version_number())?;
    let place = place(path, options.busy_timeout_ms)?;
    match inspect(&place.path)? {
        FileKind::Missing => Err(cannot_open(path, "it does not exist", None)),
        FileKind::Empty => Err(not_a_store(path, "it is empty")),
        FileKind::Store => Ok(place),
    }
}

fn place(path: &Path, busy_ms: u64) -> Result<FilePlace, StoreError> {
    let absolute = || -> io::Result<PathBuf> {
        if path.exists() {
            return path.canonicalize();
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(folder.canonicalize()?.join(name))
    };
    match absolute() {
        Ok(path) => Ok(FilePlace { path, busy_ms }),
        Err(error) => Err(cannot_open(path, &error.to_string(), Some(Box::new(error)))),
    }
}

/// Looks at the header with plain reads: SQLite would already replay a journal or write to the WAL of a stranger.
fn inspect(path: &Path) -> Result<FileKind, StoreError> {
    if registry::is_open(path) {
        return Ok(FileKind::Store);
    }
    let failed = |error: io::Error| cannot_open(path, &error.to_string(), Some(Box::new(error)));
    let mut file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileKind::Missing),
        file => file.map_err(failed)?,
    };
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(cannot_open(path, "it is not a regular file", None));
    }
    if meta.len() == 0 {
        return Ok(FileKind::Empty);
    }
    let mut header = [0; HEADER_BYTES];
    if meta.len() < HEADER_BYTES as u64 {
        return Err(not_a_store(path, "it is shorter than the header of a SQLite file"));
    }
    file.read_exact(&mut header).map_err(failed)?;
    // The first commit of a new file died half way: its journal takes the file back to nothing.
    if header == [0; HEADER_BYTES] && beside(path, "-journal").exists() {
        return Ok(FileKind::Empty);
    }
    if header[..16] != MAGIC[..] {
        return Err(not_a_store(path, "it is not a SQLite file"));
    }
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    identify(path, i64::from(word(68)), i64::from(word(60)))?;
    let page_bytes = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        bytes => bytes,
    };
    let whole = u64::from(word(28)) * page_bytes;
    let has_wal = fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    if word(24) == word(92) && meta.len() < whole && !has_wal && !beside(path, "-journal").exists() {
        let reason = format!("it has {} bytes, its header says {whole}: it was cut short", meta.len());
        return Err(StoreError::Corrupt { place: path.display().to_string(), reason });
    }
    Ok(FileKind::Store)
}

/// Checks application id and format.
fn identify(path: &Path, application: i64, format: i64) -> Result<(), StoreError> {
    if application != sql::APPLICATION_ID {
        return Err(not_a_store(path, &format!("its application id is {application:#x}")));
    }
    if format > sql::FORMAT {
        return Err(StoreError::NewerFormat { path: path.into(), found: format, supported: sql::FORMAT });
    }
    if format < 1 { Err(not_a_store(path, &format!("its format is {format}"))) } else { Ok(()) }
}

/// Makes the file before SQLite does, which would make it readable for everyone.
fn create(path: &Path) -> Result<(), StoreError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let made = options.open(path).and_then(|file| {
        file.sync_all()?;
        // The name has to survive a power cut as well.
        match path.parent() {
            Some(folder) if cfg!(unix) => fs::File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(|error| cannot_open(path, &error.to_string(), Some(Box::new(error)))),
    }
}

/// Opens the connection that writes. It has no busy handler: [`wait_for`] repeats its steps.
fn connect_writer(place: &FilePlace, options: &OpenOptions) -> Res<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | base_flags();
    let conn = Connection::open_with_flags(&place.path, flags)?;
    configure(&conn, 0)?;
    wait_for(place.busy_ms, || migrate::make_if_empty(&conn, &place.path))?;
    wait_for(place.busy_ms, || switch_to_wal(&conn))?;
    // The pragma can answer "wal" and leave the file in another mode, so the mode is read again.
    let mode = wait_for(place.busy_ms, || journal_mode(&conn))?;
    if mode != "wal" {
        let reason = format!("its journal mode is {mode} and cannot be made wal");
        return Err(cannot_open(&place.path, &reason, None).into());
    }
    let synchronous = match options.synchronous {
        Synchronous::Full => sql::SYNC_FULL,
        Synchronous::Normal => sql::SYNC_NORMAL,
    };
    wait_for(place.busy_ms, || {
        [sql::ERASE_DELETED, synchronous].iter().try_for_each(|pragma| Ok(conn.execute_batch(pragma)?))
    })?;
    Ok(conn)
}

/// Opens a further connection that writes: the one of the WAL checkpointer.
pub(super) fn connect_checkpointer(place: &FilePlace) -> Res<Connection> {
    let conn = Connection::open_with_flags(&place.path, OpenFlags::SQLITE_OPEN_READ_WRITE | base_flags())?;
    configure(&conn, 0)?;
    Ok(conn)
}

/// Opens a reader beside a writer of this process.
pub(super) fn connect_reader(place: &FilePlace) -> Res<Connection> {
    let conn = Connection::open_with_flags(&place.path, OpenFlags::SQLITE_OPEN_READ_ONLY | base_flags())?;
    configure(&conn, place.busy_ms)?;
    conn.execute_batch(sql::READER)?;
    Ok(conn)
}

/// Opens a reader that writes nothing beside the file: without a WAL, SQLite has no lock or index to share.
pub(super) fn connect_immutable(place: &FilePlace) -> Res<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | base_flags();
    let conn = Connection::open_with_flags(immutable_uri(&place.path), flags)?;
    configure(&conn, place.busy_ms)?;
    conn.execute_batch(sql::READER)?;
    Ok(conn)
}

/// Checks, through SQLite, that a reader has a store before it.
pub(super) fn verify(place: &FilePlace, conn: &Connection) -> Res<()> {
    let (application, format, _) = migrate::identity(conn)?;
    Ok(identify(&place.path, application, format)?)
}

/// Identifies the file through SQLite; returns whether it is empty.
pub(super) fn is_unmade(path: &Path, conn: &Connection) -> Res<bool> {
    let (application, format, tables) = migrate::identity(conn)?;
    if application == 0 && format == 0 && tables == 0 {
        return Ok(true);
    }
    identify(path, application, format)?;
    Ok(false)
}

fn base_flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW
}

fn configure(conn: &Connection, busy_ms: u64) -> Res<()> {
    conn.busy_timeout(Duration::from_millis(busy_ms.min(i32::MAX as u64)))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Without this, a statement is prepared anew whenever a bound value could change its plan.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.execute_batch(sql::CONFIGURE)?;
    Ok(())
}

fn journal_mode(conn: &Connection) -> Res<String> {
    Ok(conn.query_row(sql::JOURNAL_MODE, [], |row| row.get(0))?)
}

fn switch_to_wal(conn: &Connection) -> Res<()> {
    if journal_mode(conn)? != "wal" {
        let _: String = conn.query_row(sql::SET_WAL, [], |row| row.get(0))?;
    }
    Ok(())
}

/// Refuses a SQLite that can lose commits when it resets the WAL.
fn refuse_bad_sqlite(path: &Path, version: i32) -> Result<(), StoreError> {
    let good = matches!(version, 3_044_006..3_045_000 | 3_050_007..3_051_000 | 3_051_003..=3_051_999 | 3_052_001..);
    if good {
        return Ok(());
    }
    let reason = format!("SQLite {} can lose commits when it resets the WAL; 3.51.3 does not", rusqlite::version());
    Err(cannot_open(path, &reason, None))
}

/// Returns the path of a file that SQLite keeps beside the main one.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

fn immutable_uri(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut uri = String::from("file:");
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

fn cannot_open(path: &Path, reason: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Open { path: path.into(), reason: reason.into(), source }
}

fn not_a_store(path: &Path, reason: &str) -> StoreError {
    StoreError::NotAStore { path: path.into(), reason: reason.into() }
}

/// Returns the error of something that failed while opening.
pub(super) fn opening(path: &Path, fault: Fault) -> StoreError {
    match fault {
        Fault::Store(error) => error,
        Fault::Sql(error) if is_no_database(&error) => not_a_store(path, &error.to_string()),
        Fault::Sql(error) => {
            damage(&error).unwrap_or_else(|| cannot_open(path, &error.to_string(), Some(Box::new(error))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_wal_reset_bug_are_refused() {
        let path = Path::new("x.db");
        for bad in [3_044_005, 3_045_000, 3_050_006, 3_051_002, 3_052_000] {
            assert!(refuse_bad_sqlite(path, bad).is_err(), "{bad}");
        }
        for good in [3_044_006, 3_050_007, 3_051_003, 3_052_001, 3_054_001] {
            assert!(refuse_bad_sqlite(path, good).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_path_with_odd_characters_is_a_uri() {
        assert_eq!(immutable_uri(Path::new("/a b/c?.db")), "file:/a%20b/c%3f.db?immutable=1");
    }
}
