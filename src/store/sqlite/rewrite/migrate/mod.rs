//! Makes the tables of a new file, and brings a file of an older format to the newest one.
//!
//! A new file is made in the newest format at once. A file of format n is brought to format n + 1 by a [`STEPS`] entry,
//! each in one transaction, until it has the newest format; so a crash leaves the old or the new format, whole. Before
//! the first step the file is copied ([`older`]), and the copy stays until the migrated file verifies. *Absent:* a file
//! of a newer format, which is refused before this module sees it ([`open`]).

mod older;
pub(crate) mod sql;

use super::replay::LogReplay;
use crate::store::check::Finding;
use crate::store::error::StoreError;
use crate::store::sqlite::check;
use crate::store::sqlite::commit::batch::Caches;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::lock::wait_for;
use crate::store::sqlite::file::open::{self, FilePlace};
use crate::store::sqlite::file::schema;
use crate::store::sqlite::file::wal_mark::WalMark;
use crate::store::sqlite::index::threads;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::read::record::ReadView;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::writer::group::empty_wal;
use crate::store::stats::FormatMigration;
use rusqlite::Connection;
use rusqlite::limits::Limit;
use std::path::Path;
use std::sync::Arc;

/// A step from one format to the next.
pub(crate) struct FormatStep {
    /// The statements that change the schema. From the second step on they replace the tables of the log, whose rows
    /// are written anew from the copy.
    pub(crate) schema: &'static str,
    /// The statements that note the format.
    pub(crate) finish: &'static str,
}

/// The steps: the first one makes format 1 of an empty file, the next one format 2 of format 1.
pub(crate) const STEPS: [FormatStep; 2] = [
    FormatStep { schema: sql::FORMAT_1, finish: sql::FINISH_1 },
    FormatStep { schema: sql::FORMAT_2, finish: sql::FINISH_2 },
];

/// Returns application id and format, and whether the file has a table. They are read from one snapshot: another
/// process may be making the tables.
pub(crate) fn identity(conn: &Connection) -> Res<(i64, i64, bool)> {
    let read = || -> Res<_> {
        let application = conn.query_row(engine_sql::READ_APPLICATION_ID, [], |row| row.get(0))?;
        let format = conn.query_row(engine_sql::READ_FORMAT, [], |row| row.get(0))?;
        Ok((application, format, conn.query_row(engine_sql::HAS_OBJECTS, [], |row| row.get(0))?))
    };
    if conn.is_autocommit() { in_snapshot(conn, read) } else { read() }
}

/// Reads in a transaction of its own.
fn in_snapshot<T>(conn: &Connection, read: impl FnOnce() -> Res<T>) -> Res<T> {
    conn.execute_batch(engine_sql::BEGIN_READ)?;
    let found = read();
    if !conn.is_autocommit() {
        // The end of a transaction that only reads changes nothing, and an error such as that of a full disk has ended
        // it already: the read content, or the error of the read, is the result.
        let ended = conn.execute_batch(engine_sql::ROLLBACK);
        return found.and_then(|found| Ok(ended.map(|()| found)?));
    }
    found
}

/// Makes the tables if the file has none. Several processes may open a new file at once: the one that gets the lock
/// makes them, the others find them.
pub(crate) fn make_if_empty(conn: &Connection, path: &Path) -> Res<()> {
    if !open::is_unmade(path, conn)? {
        return Ok(());
    }
    conn.execute_batch(sql::SET_PAGE_BYTES)?;
    // The first statement that writes takes the lock: beginning with it would fix the pages of an empty file.
    within(conn, engine_sql::BEGIN_READ, || {
        conn.execute_batch(engine_sql::SET_AUTO_VACUUM)?;
        if open::is_unmade(path, conn)? {
            conn.execute_batch(&schema::statements(engine_sql::SCHEMA))?;
            WalMark::create(conn)?;
            conn.execute_batch(engine_sql::MARK)?;
        }
        Ok(())
    })
}

/// Does `change` in a transaction that has the write lock from its beginning.
pub(crate) fn in_transaction<T>(conn: &Connection, change: impl FnOnce() -> Res<T>) -> Res<T> {
    within(conn, engine_sql::BEGIN_WRITE, change)
}

fn within<T>(conn: &Connection, begin: &str, change: impl FnOnce() -> Res<T>) -> Res<T> {
    conn.execute_batch(begin)?;
    let changed = change().and_then(|changed| {
        conn.execute_batch(engine_sql::COMMIT)?;
        Ok(changed)
    });
    if changed.is_err() && !conn.is_autocommit() {
        // The first error is reported; closing the connection rolls back as well.
        _ = conn.execute_batch(engine_sql::ROLLBACK);
    }
    changed
}

/// Brings the file of an open connection to the newest format; returns the migration, `None` if the file had that
/// format. Another process that opens the file meanwhile waits for the write lock.
pub(crate) fn migrate(conn: &Connection, place: &FilePlace) -> Res<Option<FormatMigration>> {
    let from = verified_format(conn)?;
    if from < engine_sql::FORMAT {
        conn.execute_batch(sql::TEMPORARY_FILES)?;
        // The frames of the step must not follow those of a commit whose sync failed in a process that has ended.
        _ = wait_for(place.busy_ms, || empty_wal(conn))?;
        // Another process may be faster.
        let mut steps = 0;
        while wait_for(place.busy_ms, || step(conn, place))? {
            steps += 1;
        }
        if steps > 0 {
            // A failure leaves a larger file, which can be used.
            _ = rewrite(conn);
        }
    }
    let Some(retained) = older::settle(place, |problems| verify(conn, problems))? else { return Ok(None) };
    if from < engine_sql::FORMAT {
        // Readers may keep the log from being emptied; it is copied like that of every commit.
        _ = conn.query_row(engine_sql::WAL_TRUNCATE, [], |_| Ok(()));
    }
    Ok(Some(FormatMigration {
        from: retained.format,
        to: engine_sql::FORMAT,
        retained: retained.path,
        problems: retained.problems,
    }))
}

/// Does the step that is next; returns `false` if the file has the newest format.
fn step(conn: &Connection, place: &FilePlace) -> Res<bool> {
    in_transaction(conn, || {
        let format = format(conn)?;
        let next = usize::try_from(format).ok().and_then(|format| STEPS.get(format));
        let Some(next) = next else { return Ok(false) };
        let copy = older::retain(place, format)?;
        conn.execute_batch(&schema::statements(next.schema))?;
        if format + 1 == engine_sql::FORMAT {
            WalMark::create(conn)?;
        }
        let old = open::connect_unlocked(&copy)?;
        LogReplay::new((&old, format, None), conn, &Arc::default(), true)?.run()?;
        if format > 0 {
            threads::fill(conn, &mut Caches::new(Arc::new(Keys::default())))?;
        }
        conn.execute_batch(next.finish)?;
        if self::format(conn)? != format + 1 {
            return Err(corrupt("the format", format!("it is not {} after the step from {format}", format + 1)));
        }
        Ok(true)
    })
}

/// Writes the file anew, without free pages and with the map of pages that later returns of free pages need. It waits
/// for no other process.
pub(crate) fn rewrite(conn: &Connection) -> Res<()> {
    // SQLite attaches the file that it builds, which must not be held in memory.
    let attached = conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
    let rewritten = conn.execute_batch(sql::TEMPORARY_FILES).and_then(|()| conn.execute_batch(sql::REWRITE));
    conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, attached)?;
    conn.execute_batch(engine_sql::CONFIGURE)?;
    Ok(rewritten?)
}

/// Checks the whole file, as it is committed, and notes the first problems.
fn verify(conn: &Connection, problems: &mut Vec<Finding>) -> Res<()> {
    let (names, keys) = (Names::default(), Keys::default());
    let view = ReadView { conn, names: &names, keys: &keys };
    problems.extend(in_snapshot(conn, || check::check(view, None))?.problems);
    Ok(())
}

/// Returns the format of the file.
pub(crate) fn format(conn: &Connection) -> Res<i64> {
    Ok(conn.query_row(engine_sql::READ_FORMAT, [], |row| row.get(0))?)
}

/// Returns the format of the file, whose schema is that of the format. Both are read from one snapshot: another process
/// may be migrating the file.
pub(crate) fn verified_format(conn: &Connection) -> Res<i64> {
    in_snapshot(conn, || {
        let format = format(conn)?;
        schema::verify_format(conn, format)?;
        Ok(format)
    })
}

/// Returns the error of a file that would have to be migrated first.
pub(crate) fn older_format(path: &Path, found: i64) -> StoreError {
    StoreError::OlderFormat { path: path.into(), found, supported: engine_sql::FORMAT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_agree() {
        let conn = Connection::open_in_memory().unwrap();
        make_if_empty(&conn, Path::new(":memory:")).unwrap();
        assert_eq!(identity(&conn).unwrap(), (engine_sql::APPLICATION_ID, engine_sql::FORMAT, true));
        let page: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        assert_eq!(page as u64, engine_sql::PAGE_BYTES);
        assert_eq!(STEPS.len() as i64, engine_sql::FORMAT);
    }

    #[test]
    fn the_steps_make_the_schema_of_a_new_file() {
        let conn = Connection::open_in_memory().unwrap();
        for step in &STEPS {
            conn.execute_batch(&schema::statements(step.schema)).unwrap();
            conn.execute_batch(step.finish).unwrap();
        }
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
