//! The two changes of a file that need no open store: its schema is repaired, and a store in which nothing is stored is
//! removed.
//!
//! *Absent:* the rows. A damaged one is recovered elsewhere ([`recover`](crate::store::sqlite::rewrite::recover)).
//!
//! Invariant: a file is changed only after everything else of its schema, and its keys, have verified.

use super::inspect::{FileKind, inspect};
use super::lock::wait_for;
use super::lock_queue::turn_to_make;
use super::place::{FilePlace, opening_place};
use super::{format, open};
use super::{registry, schema};
use crate::store::error::StoreError;
use crate::store::options::OpenOptions;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::stats::RebuiltObject;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Makes the views, indexes and triggers of a store anew that are missing or differ.
pub(crate) fn repair_schema(
    path: &Path,
    options: &OpenOptions,
    visit: &mut dyn FnMut(&RebuiltObject),
) -> Result<Vec<RebuiltObject>, StoreError> {
    let _opening = registry::opening();
    let place = open::readable(path, options)?;
    let conn = open::connect_unverified(&place).map_err(|fault| opening_place(&place, fault))?;
    let rebuilt = wait_for(place.busy_ms, || {
        format::in_transaction(&conn, || {
            let rebuilt = schema::repair(&conn, visit)?;
            place.keys.unlock(&conn, &place.path, false)?;
            Ok(rebuilt)
        })
    });
    let rebuilt = rebuilt.map_err(|fault| fault.into_write(|| place.busy()))?;
    debug_assert!(conn.is_autocommit(), "the transaction of the repair has ended");
    // Everything has verified, so the log is the file's own. If this is refused, the log stays.
    _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
    Ok(rebuilt)
}

/// Removes the file of a store in which nothing is stored. Returns whether it did.
pub(crate) fn remove_empty(path: &Path, options: &OpenOptions) -> Result<bool, StoreError> {
    let _opening = registry::opening();
    if registry::is_open(path) {
        return Ok(false);
    }
    let place = open::readable(path, options)?;
    // A process that makes a file at this path waits until the name is gone.
    let _turn = turn_to_make(&place.path, Duration::from_millis(place.busy_ms));
    if inspect(&place.path)? != FileKind::Store {
        return Ok(false);
    }
    remove_unused(&place).map_err(|fault| opening_place(&place, fault))
}

fn remove_unused(place: &FilePlace) -> Res<bool> {
    let conn = open::connect_writer(place)?;
    if !schema::is_without_rows(&conn)? {
        return Ok(false);
    }
    // The WAL is given up by the only connection of all processes, which then keeps others out. The one that comes
    // after it finds that the file it has opened is not the one at the path.
    let mode = wait_for(0, || {
        conn.execute_batch(sql::LOCK_FILE)?;
        conn.one::<String>(sql::SET_ROLLBACK, [])
    });
    if !matches!(mode.as_deref(), Ok("delete")) || !is_locked_without_rows(&conn)? {
        return Ok(false);
    }
    Ok(fs::remove_file(&place.path).is_ok())
}

/// Locks the file against every other connection, and looks at its rows again.
fn is_locked_without_rows(conn: &Connection) -> Res<bool> {
    conn.execute_batch(sql::BEGIN_ALONE)?;
    schema::is_without_rows(conn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::error::SchemaChange;
    use crate::store::sqlite::SqliteBackend;
    use crate::store::sqlite::tests::{Bench, list, make_groups, options, put, raw, thread};
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// Returns a closed store with a thread and all tables, and the folder it is in.
    fn closed() -> (TempDir, PathBuf) {
        let mut bench = Bench::new();
        bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
        let path = bench.path();
        drop(bench.store);
        make_groups(&path);
        (bench.folder, path)
    }

    fn repaired(path: &Path) -> Result<Vec<String>, StoreError> {
        let mut told = Vec::new();
        let rebuilt = repair_schema(path, &options(), &mut |made| told.push(made.to_string()))?;
        assert_eq!(rebuilt.iter().map(ToString::to_string).collect::<Vec<_>>(), told);
        Ok(told)
    }

    #[test]
    fn views_indexes_and_triggers_that_are_missing_or_differ_are_made_anew() {
        let (_folder, path) = closed();
        assert_eq!(repaired(&path).unwrap(), Vec::<String>::new());
        raw(&path)
            .execute_batch(
                "DROP VIEW v_messages; CREATE VIEW v_messages AS SELECT 1; DROP INDEX kv_key; \
                 DROP TRIGGER checkpoint_no_update; CREATE TABLE app_own (x); INSERT INTO app_own VALUES (1);",
            )
            .unwrap();
        let named = [0, 1].map(|_| SqliteBackend::open(&path, &options()).unwrap_err().to_string());
        assert_eq!(named[0], named[1]);
        let made = ["trigger checkpoint_no_update", "index kv_key", "view v_messages"];
        assert_eq!(repaired(&path).unwrap(), made, "in the order of their names");
        let store = SqliteBackend::open(&path, &options()).unwrap();
        assert!(crate::store::log::LogExt::check(&store).unwrap().problems.is_empty());
        assert_eq!(raw(&path).query_row("SELECT x FROM app_own", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }

    #[test]
    fn a_repair_removes_nothing_and_makes_no_table() {
        for (statements, change) in [
            ("CREATE VIEW mine AS SELECT 1; DROP VIEW v_heads", Some(SchemaChange::Added)),
            ("CREATE TABLE app_of (x REFERENCES thread (id)); DROP VIEW v_heads", Some(SchemaChange::Refers)),
            ("DROP TABLE timer; DROP VIEW v_heads", None),
        ] {
            let (_folder, path) = closed();
            raw(&path).execute_batch(statements).unwrap();
            let before = fs::read(&path).unwrap();
            match (repaired(&path).unwrap_err(), change) {
                (StoreError::SchemaChanged { change: found, .. }, Some(change)) => assert_eq!(found, change),
                (error, change) => assert!(matches!(error, StoreError::Corrupt { .. }) && change.is_none(), "{error}"),
            }
            assert_eq!(fs::read(&path).unwrap(), before, "{statements}");
        }
    }

    #[test]
    fn a_store_is_removed_only_if_nothing_is_stored_and_nobody_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let remove = || remove_empty(&path, &options());
        assert!(matches!(remove(), Err(StoreError::Open { .. })), "no file is there");
        let store = SqliteBackend::open(&path, &options()).unwrap();
        assert!(!remove().unwrap());
        drop(store);
        // A connection of another program.
        let other = raw(&path);
        other.execute_batch("BEGIN; SELECT * FROM thread").unwrap();
        assert!(!remove().unwrap());
        drop(other);
        raw(&path).execute_batch("CREATE TABLE app_own (x)").unwrap();
        assert!(!remove().unwrap(), "it has a table of an application");
        raw(&path).execute_batch("DROP TABLE app_own").unwrap();
        assert!(remove().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays beside it");
        let (_folder, path) = closed();
        assert!(!remove_empty(&path, &options()).unwrap() && path.exists());
        drop(SqliteBackend::open(&path, &options()).unwrap());
    }
}
