//! Opens the connections to a file that was identified ([`inspect`]), configures and verifies them.
//!
//! Nothing on the disk is changed unless the file is a store, or is missing or empty and may be made.

use super::format::identify;
use super::inspect::{FileKind, inspect};
use super::lock::wait_for;
use super::paths::{absolute, beside, cannot_open, not_a_store};
use super::place::FilePlace;
use super::system::{self};
use super::wal_link::{self, LogLink};
use super::{format, registry, schema};
use crate::limits::STATEMENTS_MAX;
use crate::store::error::StoreError;
use crate::store::options::{OpenOptions, Synchronous};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Limits of every connection, above what any statement of the library needs.
const SQLITE_LIMITS: [(Limit, i32); 6] = [
    (Limit::SQLITE_LIMIT_LENGTH, 256 << 20),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 4),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
    (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50),
];

/// Verifies that the log beside a file continues it, before SQLite reads the log; returns the description of a log that
/// the file lacks.
pub(crate) fn verify_log(path: &Path) -> Result<Option<String>, StoreError> {
    let is_held = |meta: &fs::Metadata| system::id(meta).is_some_and(system::has_descriptor);
    let is_free = !registry::is_open(path) && !fs::metadata(path).is_ok_and(|meta| is_held(&meta));
    let failed = |error: io::Error| cannot_open(path, &error.to_string(), Some(Box::new(error)));
    match wal_link::compare(path, is_free).map_err(failed)? {
        LogLink::Sound => Ok(None),
        LogLink::Missing(reason) => Ok(Some(reason)),
        LogLink::Cut(reason) => Err(StoreError::LogMissing { path: path.into(), reason }),
        LogLink::Foreign(reason) => Err(StoreError::ForeignLog { path: path.into(), reason }),
    }
}

/// Lets a connection copy the log into the file when it is the last one that closes, or keeps it from doing so.
pub(crate) fn copies_on_close(conn: &Connection, copies: bool) -> Res<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !copies)?;
    Ok(())
}

/// Opens the file for reading only.
pub(crate) fn readable(path: &Path, options: &OpenOptions) -> Result<FilePlace, StoreError> {
    let mut place = place(path, options)?;
    match inspect(&place.path)? {
        FileKind::Missing => Err(cannot_open(path, "it does not exist", None)),
        FileKind::Empty => Err(not_a_store(path, "it is empty")),
        FileKind::Store | FileKind::Unswitched => {
            place.missing_wal = verify_log(&place.path)?;
            Ok(place)
        }
    }
}

/// Refuses a file on a network file system unless that is allowed.
fn refuse_network(path: &Path, options: &OpenOptions, file_system: Option<&str>) -> Result<(), StoreError> {
    match file_system.filter(|kind| system::is_network_file_system(kind)) {
        Some(kind) if !options.network_file_system => {
            let reason =
                format!("it is on a network file system ({kind}), where machines do not share locks and memory");
            Err(cannot_open(path, &reason, None))
        }
        _ => Ok(()),
    }
}

/// Finds the file, and refuses a network file system unless it is allowed.
pub(crate) fn place(path: &Path, options: &OpenOptions) -> Result<FilePlace, StoreError> {
    refuse_bad_sqlite(path, rusqlite::version_number())?;
    let absolute = absolute(path)?;
    refuse_network(path, options, system::file_system(&absolute).as_deref())?;
    Ok(FilePlace {
        path: absolute,
        busy_ms: options.busy_timeout_ms,
        synchronous: options.synchronous,
        full_fsync: options.full_fsync,
        wal_limit_bytes: options.wal_limit_bytes,
        id: None,
        missing_wal: None,
        keys: Arc::new(Keys::new(options.clone())),
    })
}

/// Opens the connection that writes. It has no busy handler: [`wait_for`] repeats its steps.
pub(crate) fn connect_writer(place: &FilePlace) -> Res<Connection> {
    let conn = connect_maker(place)?;
    let verified = wait_for(place.busy_ms, || verify(place, &conn)).and_then(|()| copies_on_close(&conn, true));
    unless_refused(place, conn, verified)
}

/// Returns a connection, or closes it if the file was refused. With the last one SQLite removes the `-wal` and `-shm`
/// files, if the WAL is empty.
pub(crate) fn unless_refused(place: &FilePlace, conn: Connection, result: Res<()>) -> Res<Connection> {
    match result {
        Ok(()) => Ok(conn),
        Err(fault) => {
            close_lone_reader(place, conn);
            Err(fault)
        }
    }
}

/// Opens the connection that writes, and makes the file if it is empty. The content of its WAL stays there, unless the
/// caller allows the copy at the close.
pub(crate) fn connect_maker(place: &FilePlace) -> Res<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | base_flags();
    let conn = Connection::open_with_flags(&place.path, flags)?;
    // A file that is refused is not changed: its log is not copied either.
    copies_on_close(&conn, false)?;
    let prepared = prepare_writer(place, &conn);
    unless_refused(place, conn, prepared)
}

/// Verifies that the file is a store that a connection may write to, and prepares the connection.
fn prepare_writer(place: &FilePlace, conn: &Connection) -> Res<()> {
    configure(conn, 0)?;
    wait_for(place.busy_ms, || format::make_if_empty(conn, &place.path))?;
    wait_for(place.busy_ms, || format::in_snapshot(conn, || schema::verify(conn)))?;
    wait_for(place.busy_ms, || place.keys.unlock(conn, &place.path, true))?;
    wait_for(place.busy_ms, || switch_to_wal(conn))?;
    // The pragma can answer "wal" and leave the file in another mode, so the mode is read again.
    let mode = wait_for(place.busy_ms, || journal_mode(conn))?;
    if mode != "wal" {
        let reason = format!("its journal mode is {mode} and cannot be made wal");
        return Err(cannot_open(&place.path, &reason, None).into());
    }
    // A read makes the log and the shared memory, whose identity the writer notes.
    wait_for(place.busy_ms, || schema::version(conn))?;
    let synchronous = match place.synchronous {
        Synchronous::Full => sql::SYNC_FULL,
        Synchronous::Normal => sql::SYNC_NORMAL,
    };
    let full_fsync = if place.full_fsync { sql::FULL_FSYNC } else { sql::PLAIN_FSYNC };
    wait_for(place.busy_ms, || {
        [sql::ERASE_DELETED, synchronous, full_fsync].iter().try_for_each(|pragma| Ok(conn.execute_batch(pragma)?))
    })
}

/// Opens the connection that writes to a file of this format whose schema and keys are not verified yet. The content of
/// its WAL stays there, unless the caller allows the copy at the close.
pub(crate) fn connect_unverified(place: &FilePlace) -> Res<Connection> {
    let conn = Connection::open_with_flags(&place.path, OpenFlags::SQLITE_OPEN_READ_WRITE | base_flags())?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    configure(&conn, 0)?;
    let (application, format, _) = wait_for(place.busy_ms, || format::identity(&conn))?;
    identify(&place.path, application, format)?;
    let full_fsync = if place.full_fsync { sql::FULL_FSYNC } else { sql::PLAIN_FSYNC };
    wait_for(place.busy_ms, || {
        [sql::ERASE_DELETED, sql::SYNC_FULL, full_fsync].iter().try_for_each(|pragma| Ok(conn.execute_batch(pragma)?))
    })?;
    Ok(conn)
}

/// Opens a further connection that writes: the one of the WAL checkpointer.
pub(crate) fn connect_checkpointer(place: &FilePlace) -> Res<Connection> {
    let conn = Connection::open_with_flags(&place.path, OpenFlags::SQLITE_OPEN_READ_WRITE | base_flags())?;
    configure(&conn, 0)?;
    conn.execute_batch(if place.full_fsync { sql::FULL_FSYNC } else { sql::PLAIN_FSYNC })?;
    Ok(conn)
}

/// Opens a connection that writes to a file that no other one uses.
pub(crate) fn connect_plain(path: &Path) -> Res<Connection> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | base_flags())?;
    configure(&conn, 0)?;
    Ok(conn)
}

/// Opens a reader beside a writer of this process.
pub(crate) fn connect_reader(place: &FilePlace) -> Res<Connection> {
    with_cache(connect_probe(place)?)
}

/// Opens a connection beside a writer of this process that asks for commits of others. It does not read the schema,
/// which takes most of the time of an opening.
pub(crate) fn connect_probe(place: &FilePlace) -> Res<Connection> {
    let conn = Connection::open_with_flags(&place.path, OpenFlags::SQLITE_OPEN_READ_ONLY | base_flags())?;
    configure(&conn, place.busy_ms)?;
    restrict_reader(&conn)?;
    Ok(conn)
}

/// Opens a connection that reads the file and writes a copy of it.
pub(crate) fn connect_copier(place: &FilePlace) -> Res<Connection> {
    let conn = Connection::open_with_flags(&place.path, OpenFlags::SQLITE_OPEN_READ_ONLY | base_flags())?;
    configure(&conn, place.busy_ms)?;
    Ok(conn)
}

/// Opens a reader of a file that this process does not write. It takes the locks of any connection: as in every WAL,
/// readers share the `-shm` file. SQLite removes that file with the last connection, but only one that may write.
pub(crate) fn connect_lone_reader(place: &FilePlace) -> Res<Connection> {
    with_cache(connect_lone_probe(place)?)
}

/// Opens a connection to such a file that asks for commits of others, without reading the schema.
pub(crate) fn connect_lone_probe(place: &FilePlace) -> Res<Connection> {
    // A connection that may write would replay a journal.
    let has_journal = beside(&place.path, "-journal").exists();
    let access = if has_journal { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    let conn = Connection::open_with_flags(&place.path, access | base_flags())?;
    configure(&conn, place.busy_ms)?;
    // The WAL is left as it is, to the next writer.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    restrict_reader(&conn)?;
    Ok(conn)
}

/// Opens a reader that keeps every other connection out, and needs no `-shm` file therefore: on a full disk, there is
/// no room for one. It reads the WAL, and leaves it as it is.
pub(crate) fn connect_excluding(place: &FilePlace) -> Res<Connection> {
    let conn = connect_lone_probe(place)?;
    conn.execute_batch(sql::LOCK_FILE)?;
    with_cache(conn)
}

/// Closes such a reader. With the last one SQLite removes the `-wal` and `-shm` files, if the WAL is empty.
pub(crate) fn close_lone_reader(place: &FilePlace, conn: Connection) {
    if fs::metadata(beside(&place.path, "-wal")).is_ok_and(|wal| wal.len() == 0) {
        // If this is refused, the two files stay.
        _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
    }
    drop(conn);
}

/// Opens a reader that takes no locks, for a file in a folder that refuses the `-shm` file.
pub(crate) fn connect_immutable(place: &FilePlace) -> Res<Connection> {
    let conn = connect_unlocked(&place.path)?;
    configure(&conn, place.busy_ms)?;
    restrict_reader(&conn)?;
    with_cache(conn)
}

/// Opens a file without locks, without its WAL, and without writing anything beside it.
pub(crate) fn connect_unlocked(path: &Path) -> Res<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | base_flags();
    Ok(Connection::open_with_flags(immutable_uri(path), flags)?)
}

/// Checks, through SQLite, that a connection has a store before it.
pub(crate) fn verify(place: &FilePlace, conn: &Connection) -> Res<()> {
    let (application, format, _) = format::identity(conn)?;
    identify(&place.path, application, format)?;
    schema::verify(conn)?;
    place.keys.unlock(conn, &place.path, false)
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
    // The views are for other programs: the library reads tables, also where a view has the name of one.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    for (limit, value) in SQLITE_LIMITS {
        conn.set_limit(limit, value)?;
    }
    conn.execute_batch(sql::CONFIGURE)?;
    Ok(())
}

/// Lets a reader change nothing and run no trigger.
fn restrict_reader(conn: &Connection) -> Res<()> {
    conn.execute_batch(sql::QUERY_ONLY)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    Ok(())
}

/// Sets the size of the page cache of a reader, for which SQLite reads the schema.
fn with_cache(conn: Connection) -> Res<Connection> {
    conn.execute_batch(sql::READER_CACHE)?;
    Ok(conn)
}

fn journal_mode(conn: &Connection) -> Res<String> {
    conn.one(sql::JOURNAL_MODE, [])
}

fn switch_to_wal(conn: &Connection) -> Res<()> {
    if journal_mode(conn)? != "wal" {
        conn.one::<String>(sql::SET_WAL, [])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_refused_unless_it_is_allowed() {
        let path = Path::new("x.db");
        let error = refuse_network(path, &OpenOptions::new(), Some("nfs4")).unwrap_err();
        assert!(error.to_string().contains("network file system (nfs4)"), "{error}");
        let allowed = OpenOptions::new().network_file_system(true);
        for (options, kind) in [(&allowed, Some("nfs4")), (&OpenOptions::new(), Some("ext4")), (&allowed, None)] {
            refuse_network(path, options, kind).unwrap();
        }
    }

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
