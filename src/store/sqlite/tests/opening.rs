//! Opening a file: empty files, formats, locks of others, and files put in its place.

use super::*;
use crate::store::StoreError;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::file::format::{identify, is_unmade};
use crate::store::sqlite::file::open::{
    connect_checkpointer, connect_copier, connect_lone_reader, connect_reader, connect_unlocked, readable,
};
use crate::store::sqlite::rewrite::opening::writable;
use crate::store::sqlite::sql;
use std::fs;

/// A closed store with one checkpoint.
fn closed() -> (TempDir, PathBuf, CheckpointId) {
    let mut bench = Bench::new();
    let id = bench.add(&thread("a"), None, vec![value("x", 1, plain(&[1]))]);
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path, id)
}

#[test]
fn a_file_without_tables_and_numbers_alone_is_unmade() {
    let path = Path::new("x.db");
    let of = |statements: &str| {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(statements).unwrap();
        is_unmade(path, &conn)
    };
    assert!(of("").unwrap());
    for other in [
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 7",
        "CREATE TABLE a (b)",
        "PRAGMA application_id = 7; CREATE TABLE a (b)",
        "PRAGMA user_version = 2; CREATE TABLE a (b)",
    ] {
        assert!(matches!(of(other), Err(Fault::Store(StoreError::NotAStore { .. }))), "{other}");
    }
    let ours = format!("PRAGMA application_id = {}; PRAGMA user_version = {};", sql::APPLICATION_ID, sql::FORMAT);
    assert!(!of(&ours).unwrap());
}

#[test]
fn a_store_is_identified_by_its_numbers() {
    let path = Path::new("x.db");
    identify(path, sql::APPLICATION_ID, sql::FORMAT).unwrap();
    let newer = identify(path, sql::APPLICATION_ID, sql::FORMAT + 1).unwrap_err();
    assert!(matches!(newer, StoreError::NewerFormat { found: 2, supported: 1, .. }), "{newer}");
    for (application, format) in [(sql::APPLICATION_ID, 0), (sql::APPLICATION_ID, -1), (0, 1), (7, 9)] {
        let error = identify(path, application, format).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{application} {format}: {error}");
    }
    for format in 1..3 {
        let error = identify(path, sql::UNRELEASED_ID, format).unwrap_err();
        assert!(matches!(error, StoreError::UnreleasedFormat { found, .. } if found == format), "{format}: {error}");
    }
}

#[test]
fn a_file_of_a_build_before_the_first_release_is_refused_by_name_and_stays_as_it_is() {
    let (folder, path, _) = closed();
    for format in 1..3 {
        let mark = format!("PRAGMA application_id = {}; PRAGMA user_version = {format}", sql::UNRELEASED_ID);
        raw(&path).execute_batch(&mark).unwrap();
        let before = fs::read(&path).unwrap();
        let options = options();
        for options in [options.clone(), options.read_only(true)] {
            let error = SqliteBackend::open(&path, &options).unwrap_err();
            assert!(matches!(error, StoreError::UnreleasedFormat { found, .. } if found == format), "{error}");
        }
        let error = crate::store::Store::recover(&path, folder.path().join("recovered.db")).unwrap_err();
        assert!(matches!(error, StoreError::UnreleasedFormat { found, .. } if found == format), "{error}");
        assert!(fs::read(&path).unwrap() == before);
    }
}

#[test]
fn a_header_that_sqlite_refuses_is_that_of_no_store() {
    let (_folder, path, _) = closed();
    let whole = fs::read(&path).unwrap();
    // The fractions of a page that a row may fill.
    for (at, byte) in [(21, 1), (22, 1), (23, 1)] {
        let mut changed = whole.clone();
        changed[at] = byte;
        fs::write(&path, &changed).unwrap();
        let error = SqliteBackend::open(&path, &options()).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{at}: {error:?}");
    }
}

#[cfg(unix)]
#[test]
fn no_connection_follows_a_link_in_the_place_of_the_file() {
    let (folder, path, _) = closed();
    let place = readable(&path, &options()).unwrap();
    assert!(connect_reader(&place).is_ok());
    let moved = folder.path().join("moved.db");
    fs::rename(&path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &path).unwrap();
    assert!(connect_reader(&place).is_err());
    assert!(connect_lone_reader(&place).is_err());
    assert!(connect_copier(&place).is_err());
    assert!(connect_checkpointer(&place).is_err());
    assert!(connect_unlocked(&path).is_err());
    assert!(connect_unlocked(&moved).is_ok());
}

#[cfg(unix)]
#[test]
fn a_file_in_the_place_of_another_one_is_not_in_place() {
    let (folder, path, _) = closed();
    let file = writable(&path, &options()).unwrap();
    assert!(file.place.is_in_place());
    let moved = folder.path().join("moved.db");
    fs::rename(&path, &moved).unwrap();
    assert!(!file.place.is_in_place(), "it is gone");
    fs::copy(&moved, &path).unwrap();
    assert!(!file.place.is_in_place(), "a copy");
    fs::rename(&moved, &path).unwrap();
    assert!(file.place.is_in_place());
    // A place that was only read has no file to compare.
    let read = readable(&path, &options()).unwrap();
    fs::rename(&path, &moved).unwrap();
    assert!(read.is_in_place());
}

#[test]
fn a_lock_that_is_not_free_while_a_file_is_opened_is_busy() {
    let (_folder, path, _) = closed();
    // A store that another program has left in another mode, and a file whose tables are just being made.
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.db");
    fs::write(&new, "").unwrap();
    raw(&path).execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    for path in [&path, &new] {
        let other = raw(path);
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let error = SqliteBackend::open(path, &options().busy_timeout_ms(20)).unwrap_err();
        assert!(matches!(error, StoreError::Busy { waited_ms: 20, .. }), "{error:?}");
        drop(other);
    }
    let other = raw(&path);
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let read_only = OpenOptions { read_only: true, ..options().busy_timeout_ms(20) };
    let error = SqliteBackend::open(&path, &read_only).unwrap_err();
    assert!(matches!(error, StoreError::Busy { waited_ms: 20, .. }), "{error:?}");
    drop(other);
    drop(open(&path));
    drop(open(&new));
}
