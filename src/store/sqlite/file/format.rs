//! The format of a file: read, verified, and made in an empty file.
//!
//! *Absent:* its tables ([`schema`](super::schema)).

use super::paths::not_a_store;
use super::schema;
use super::table_group::format_of;
use super::wal_mark::WalMark;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use rusqlite::Connection;
use std::path::Path;

/// Checks that application id and user version are those of a store that this version can open.
pub(crate) fn identify(path: &Path, application: i64, user_version: i64) -> Result<(), StoreError> {
    let format = format_of(user_version);
    if application != sql::APPLICATION_ID {
        return Err(other_application(path, application, user_version));
    }
    if format > sql::FORMAT {
        return Err(StoreError::NewerFormat { path: path.into(), found: format, supported: sql::FORMAT });
    }
    if format < 1 { Err(not_a_store(path, &format!("its format is {format}"))) } else { Ok(()) }
}

/// Returns the error of a file whose application id is another one.
pub(crate) fn other_application(path: &Path, application: i64, format: i64) -> StoreError {
    match application {
        sql::UNRELEASED_ID => StoreError::UnreleasedFormat { path: path.into(), found: format },
        _ => not_a_store(path, &format!("its application id is {application:#x}")),
    }
}

/// Identifies the file through SQLite; returns whether it is empty.
pub(crate) fn is_unmade(path: &Path, conn: &Connection) -> Res<bool> {
    let (application, format, has_tables) = identity(conn)?;
    if application == 0 && format == 0 && !has_tables {
        return Ok(true);
    }
    identify(path, application, format)?;
    Ok(false)
}

/// Returns application id and user version, and whether the file has a table. They are read from one snapshot: another
/// process may be making the tables.
pub(crate) fn identity(conn: &Connection) -> Res<(i64, i64, bool)> {
    let read = || -> Res<_> {
        Ok((conn.one(sql::READ_APPLICATION_ID, [])?, conn.one(sql::READ_FORMAT, [])?, conn.one(sql::HAS_OBJECTS, [])?))
    };
    if conn.is_autocommit() { in_snapshot(conn, read) } else { read() }
}

/// Reads in a transaction of its own.
pub(crate) fn in_snapshot<T>(conn: &Connection, read: impl FnOnce() -> Res<T>) -> Res<T> {
    conn.execute_batch(sql::BEGIN_READ)?;
    let found = read();
    if !conn.is_autocommit() {
        // The end of a transaction that only reads changes nothing, and an error such as that of a full disk has ended
        // it already: the read content, or the error of the read, is the result.
        let ended = conn.execute_batch(sql::ROLLBACK);
        return found.and_then(|found| Ok(ended.map(|()| found)?));
    }
    found
}

/// Makes the tables if the file has none. Several processes may open a new file at once: the one that gets the lock
/// makes them, the others find them.
pub(crate) fn make_if_empty(conn: &Connection, path: &Path) -> Res<()> {
    if !is_unmade(path, conn)? {
        return Ok(());
    }
    conn.execute_batch(sql::SET_PAGE_BYTES)?;
    // The first statement that writes takes the lock: beginning with it would fix the pages of an empty file.
    within(conn, sql::BEGIN_READ, || {
        conn.execute_batch(sql::SET_AUTO_VACUUM)?;
        if is_unmade(path, conn)? {
            conn.execute_batch(&schema::statements_of(None))?;
            WalMark::create(conn)?;
            conn.execute_batch(sql::MARK)?;
        }
        Ok(())
    })
}

/// Does `change` in a transaction that has the write lock from its beginning.
pub(crate) fn in_transaction<T>(conn: &Connection, change: impl FnOnce() -> Res<T>) -> Res<T> {
    within(conn, sql::BEGIN_WRITE, change)
}

pub(crate) fn within<T>(conn: &Connection, begin: &str, change: impl FnOnce() -> Res<T>) -> Res<T> {
    conn.execute_batch(begin)?;
    let changed = change().and_then(|changed| {
        conn.execute_batch(sql::COMMIT)?;
        Ok(changed)
    });
    if changed.is_err() && !conn.is_autocommit() {
        // The first error is reported; closing the connection rolls back as well.
        _ = conn.execute_batch(sql::ROLLBACK);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::fault::corrupt;

    #[test]
    fn the_constants_agree() {
        let conn = Connection::open_in_memory().unwrap();
        make_if_empty(&conn, Path::new(":memory:")).unwrap();
        assert_eq!(identity(&conn).unwrap(), (sql::APPLICATION_ID, sql::FORMAT, true));
        let page: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        assert_eq!(page as u64, sql::PAGE_BYTES);
        schema::verify(&conn).unwrap();
    }

    #[test]
    fn a_read_that_ended_its_transaction_is_told_by_its_own_error() {
        let conn = Connection::open_in_memory().unwrap();
        for ends in [true, false] {
            let read = || -> Res<()> {
                if ends {
                    conn.execute_batch("ROLLBACK").unwrap();
                }
                Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None).into())
            };
            let error = format!("{:?}", in_snapshot(&conn, read).unwrap_err());
            assert!(error.contains("DiskFull"), "ends {ends}: {error}");
            assert!(conn.is_autocommit());
        }
        assert_eq!(in_snapshot(&conn, || Ok(7)).unwrap(), 7);
        assert!(conn.is_autocommit());
    }

    #[test]
    fn a_change_that_fails_leaves_no_transaction() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE a (b)").unwrap();
        let rows = || conn.query_row("SELECT count(*) FROM a", [], |row| row.get::<_, i64>(0)).unwrap();
        let insert = || conn.execute("INSERT INTO a VALUES (1)", []).unwrap();
        let failed = in_transaction(&conn, || {
            insert();
            Err::<(), _>(corrupt("here", "it is damaged"))
        });
        assert!(failed.is_err() && conn.is_autocommit());
        assert_eq!(rows(), 0);
        assert_eq!(in_transaction(&conn, || Ok(insert())).unwrap(), 1);
        assert!(conn.is_autocommit());
        assert_eq!(rows(), 1);
    }
}
