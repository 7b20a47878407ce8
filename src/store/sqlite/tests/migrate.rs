//! Migrations of a file of format 1: its copy, interruptions, damage, and other handles.

use super::*;
use crate::store::StoreError;
use std::fs;

/// A copy of the stored file of format 1.
fn format_1() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/format-1.db"), &path).unwrap();
    (folder, path)
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn format(path: &Path) -> i64 {
    raw(path).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_file_of_an_older_format_is_refused_untouched_for_reading_and_where_that_is_asked() {
    let (folder, path) = format_1();
    let before = fs::read(&path).unwrap();
    for options in [options().read_only(true), options().migrate(false)] {
        let error = SqliteBackend::open(&path, &options).unwrap_err();
        assert!(matches!(error, StoreError::OlderFormat { found: 1, supported: 2, .. }), "{error}");
        assert!(error.to_string().contains("`annals migrate`"), "{error}");
        assert_eq!((fs::read(&path).unwrap() == before, names(&folder)), (true, vec!["x.db".to_owned()]));
    }
}

#[test]
fn the_older_file_is_retained_on_request_and_no_other_one_is_replaced() {
    let (folder, path) = format_1();
    fs::write(folder.path().join("x.db.format-1"), "of somebody else").unwrap();
    let store = SqliteBackend::open(&path, &options().retain_older_format(true)).unwrap();
    let retained = store.migration().unwrap().retained.unwrap();
    drop(store);
    assert_eq!(names(&folder), ["x.db", "x.db.format-1", "x.db.format-1-2"]);
    assert_eq!(fs::read(folder.path().join("x.db.format-1")).unwrap(), b"of somebody else");
    assert_eq!(retained.file_name().unwrap(), "x.db.format-1-2");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&retained).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!((format(&path), format(&retained)), (2, 1));
    // It is a whole store of format 1.
    let again = SqliteBackend::open(&retained, &options()).unwrap();
    assert_eq!(again.check().unwrap().checkpoints, open(&path).check().unwrap().checkpoints);
    assert!(open(&path).migration().is_none(), "a file is migrated once");
}

#[test]
fn leftovers_of_an_interrupted_migration_are_handled_by_the_next_open() {
    // Before its commit: the copy, finished or not, is made anew.
    let (folder, path) = format_1();
    for leftover in ["x.db.format-1-unverified", "x.db.format-1-unverified-unfinished"] {
        fs::write(folder.path().join(leftover), "half a copy").unwrap();
    }
    assert_eq!(open(&path).migration().unwrap().from, 1);
    assert_eq!(names(&folder), ["x.db"]);
    // After its commit: the file is verified first.
    let (other, old) = format_1();
    let copy = folder.path().join("x.db.format-1-unverified");
    fs::copy(&old, &copy).unwrap();
    let migration = open(&path).migration().unwrap();
    assert_eq!((migration.from, migration.to, migration.retained), (1, 2, None));
    assert_eq!(names(&folder), ["x.db"]);
    fs::copy(&old, &copy).unwrap();
    without_triggers(&path).execute_batch("UPDATE checkpoint SET created_at = created_at + 1 WHERE seq = 3").unwrap();
    let migration = open(&path).migration().unwrap();
    assert!(!migration.problems.is_empty());
    assert_eq!(migration.retained.unwrap(), folder.path().canonicalize().unwrap().join("x.db.format-1"));
    assert_eq!(names(&folder), ["x.db", "x.db.format-1"]);
    assert!(open(&path).migration().is_none());
    drop(other);
}

#[test]
fn a_damaged_file_is_not_migrated_and_stays_as_it_is() {
    for (statement, place) in [
        ("UPDATE payload SET text = 'hello 7' WHERE text = 'hello 1'", "checkpoint 1"),
        ("UPDATE item SET value = x'ff' WHERE op = 2", "checkpoint"),
        ("DELETE FROM branch WHERE id = 2; UPDATE checkpoint SET namespace = 99 WHERE seq = 2", "checkpoint 2"),
        ("UPDATE write SET value = x'c0c0c0c0c0' WHERE idx = -4", "write (checkpoint"),
    ] {
        let (folder, path) = format_1();
        without_triggers(&path).execute_batch(statement).unwrap();
        let before = fs::read(&path).unwrap();
        let error = SqliteBackend::open(&path, &options()).unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { place: of, .. } if of.starts_with(place)),
            "{statement}: {error}"
        );
        assert!(fs::read(&path).unwrap() == before, "the file is not changed");
        assert_eq!(format(&path), 1);
        assert!(names(&folder).iter().all(|name| !name.ends_with("unfinished")), "{:?}", names(&folder));
    }
}

#[test]
fn a_file_of_an_older_format_with_another_schema_is_refused() {
    for statement in ["CREATE TRIGGER evil AFTER INSERT ON item BEGIN SELECT 1; END;", "CREATE TABLE tombstone (x);"] {
        let (_folder, path) = format_1();
        raw(&path).execute_batch(statement).unwrap();
        let error = SqliteBackend::open(&path, &options()).unwrap_err();
        assert!(matches!(&error, StoreError::SchemaChanged { .. }), "{statement}: {error}");
        assert_eq!(format(&path), 1);
    }
}

#[test]
fn a_migration_waits_for_a_writer_and_several_handles_migrate_once() {
    let (_folder, path) = format_1();
    let conn = raw(&path);
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = SqliteBackend::open(&path, &options().busy_timeout_ms(20)).unwrap_err();
    assert!(matches!(error, StoreError::Busy { waited_ms: 20, .. }), "{error}");
    conn.execute_batch("ROLLBACK").unwrap();
    let migrations = std::thread::scope(|scope| {
        let open = || SqliteBackend::open(&path, &options()).unwrap().migration();
        let handles: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        handles.into_iter().filter_map(|handle| handle.join().unwrap()).count()
    });
    assert_eq!(migrations, 1);
    assert_eq!(open(&path).check().unwrap().problems, Vec::<crate::store::check::Finding>::new());
}

#[test]
fn free_pages_of_a_migrated_file_can_be_returned() {
    let (_folder, path) = format_1();
    let bytes = fs::metadata(&path).unwrap().len();
    drop(open(&path));
    let conn = raw(&path);
    let pragma = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!((pragma("PRAGMA auto_vacuum"), pragma("PRAGMA freelist_count")), (2, 0));
    let schema = pragma("SELECT sum(length(sql)) FROM sqlite_schema") as u64;
    assert!(fs::metadata(&path).unwrap().len() < bytes * 3 / 2 + schema, "the rewrite leaves no free pages");
}

#[test]
fn a_migrated_file_has_its_table_of_threads() {
    let (_folder, path) = format_1();
    let store = open(&path);
    let count = |query: &str| raw(&path).query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
    let roots = count(
        "SELECT count(*) FROM thread t WHERE EXISTS (SELECT 1 FROM namespace n WHERE n.thread = t.id AND n.path = '')",
    );
    assert!(roots > 0, "the file has threads");
    assert_eq!(count("SELECT count(*) FROM thread_state WHERE thread > 0"), roots);
    assert_eq!(
        count("SELECT newest FROM thread_state WHERE thread = 0"),
        count("SELECT max(seq) FROM checkpoint"),
        "the table follows the whole log"
    );
    let listed = store.list_threads(&crate::store::threads::ThreadQuery::new().limit(1_000)).unwrap();
    assert_eq!(listed.len() as i64, roots);
    assert_eq!(store.check().unwrap().problems, []);
}
