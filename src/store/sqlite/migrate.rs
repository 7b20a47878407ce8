//! Creates the tables of a new file.
//!
//! Format 1 is the first one, so an older file does not exist. *Absent:* steps from one format to the next; a file of
//! a newer format is refused before this module sees it ([`open`](super::open)).

use super::fault::Res;
use super::{open, sql};
use rusqlite::Connection;
use std::path::Path;

/// Returns application id and format, and whether the file has a table. They are read from one snapshot: another process
/// may be making the tables.
pub(super) fn identity(conn: &Connection) -> Res<(i64, i64, bool)> {
    let read = || -> Res<_> {
        let application = conn.query_row(sql::READ_APPLICATION_ID, [], |row| row.get(0))?;
        let format = conn.query_row(sql::READ_FORMAT, [], |row| row.get(0))?;
        Ok((application, format, conn.query_row(sql::HAS_OBJECTS, [], |row| row.get(0))?))
    };
    if !conn.is_autocommit() {
        return read();
    }
    conn.execute_batch(sql::BEGIN_READ)?;
    let identity = read();
    // The end of a transaction that only reads changes nothing.
    conn.execute_batch(sql::ROLLBACK)?;
    identity
}

/// Makes the tables if the file has none. Several processes may open a new file at once: the one that gets the lock
/// makes them, the others find them.
pub(super) fn make_if_empty(conn: &Connection, path: &Path) -> Res<()> {
    if !open::is_unmade(path, conn)? {
        return Ok(());
    }
    conn.execute_batch(sql::SET_PAGE_BYTES)?;
    conn.execute_batch(sql::BEGIN_WRITE)?;
    let made = make(conn, path);
    if made.is_err() && !conn.is_autocommit() {
        // The first error is reported; closing the connection rolls back as well.
        _ = conn.execute_batch(sql::ROLLBACK);
    }
    made
}

fn make(conn: &Connection, path: &Path) -> Res<()> {
    if open::is_unmade(path, conn)? {
        sql::MIGRATIONS.iter().try_for_each(|step| conn.execute_batch(step))?;
        conn.execute_batch(sql::MARK)?;
    }
    Ok(conn.execute_batch(sql::COMMIT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_agree() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(sql::SET_PAGE_BYTES).unwrap();
        make_if_empty(&conn, Path::new(":memory:")).unwrap();
        assert_eq!(identity(&conn).unwrap(), (sql::APPLICATION_ID, sql::FORMAT, true));
        let page: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        assert_eq!(page as u64, sql::PAGE_BYTES);
    }
}
