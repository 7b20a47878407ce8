//! A store is one file with one name, and the files beside it belong to its owner.
#![cfg(unix)]

use super::*;
use crate::store::StoreError;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A closed store with one checkpoint.
fn closed() -> (Bench, PathBuf) {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![value("x", 1, plain(&[7; 99]))]);
    let path = bench.path();
    bench.store = open(&bench.folder.path().join("other.db"));
    (bench, path)
}

fn refused(path: &Path, why: &str) {
    for options in [options(), options().read_only(true)] {
        let error = SqliteBackend::open(path, &options).unwrap_err();
        assert!(matches!(error, StoreError::Open { .. } | StoreError::Corrupt { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

fn neighbour(path: &Path, suffix: &str) -> PathBuf {
    crate::store::sqlite::file::paths::beside(path, suffix)
}

#[test]
fn a_file_with_two_names_is_refused() {
    let (bench, path) = closed();
    let link = bench.folder.path().join("link.db");
    fs::hard_link(&path, &link).unwrap();
    refused(&path, "2 names");
    refused(&link, "2 names");
    fs::remove_file(&link).unwrap();
    drop(open(&path));
}

#[test]
fn a_removed_or_replaced_file_is_noticed_before_a_commit_is_acknowledged() {
    for replaces in [false, true] {
        let mut bench = Bench::new();
        let t = thread("a");
        let head = bench.add(&t, None, Vec::new());
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(head));
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&head));
        batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(head)), ..checkpoint(id) });
        if replaces {
            let other = bench.folder.path().join("other.db");
            drop(open(&other));
            fs::rename(other, bench.path()).unwrap();
        } else {
            fs::remove_file(bench.path()).unwrap();
        }
        let commit = bench.store.commit(&batch);
        assert!(matches!(commit, Err(StoreError::FileReplaced { .. })), "{commit:?}");
        let next = bench.store.commit(&batch);
        assert!(matches!(next, Err(StoreError::HandleClosed { .. })), "{next:?}");
    }
}

#[test]
fn the_log_of_a_file_that_is_empty_or_gone_is_not_deleted() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![value("x", 1, plain(&[7; 99]))]);
    let copy = bench.folder.path().join("copy.db");
    fs::copy(neighbour(&bench.path(), "-wal"), neighbour(&copy, "-wal")).unwrap();
    fs::set_permissions(neighbour(&copy, "-wal"), fs::Permissions::from_mode(0o600)).unwrap();
    let bytes = fs::metadata(neighbour(&copy, "-wal")).unwrap().len();
    assert!(bytes > 0);
    refused(&copy, "does not exist");
    fs::write(&copy, b"").unwrap();
    refused(&copy, "is empty");
    assert_eq!(fs::metadata(neighbour(&copy, "-wal")).unwrap().len(), bytes);
}

#[test]
fn planted_files_beside_the_store_are_refused() {
    let (bench, path) = closed();
    let target = bench.folder.path().join("target");
    for missing in [false, true] {
        let path = if missing { bench.folder.path().join("new.db") } else { path.clone() };
        for suffix in ["-wal", "-shm", "-journal"] {
            let name = neighbour(&path, suffix);
            symlink(&target, &name).unwrap();
            if missing {
                let error = SqliteBackend::open(&path, &options()).unwrap_err();
                assert!(error.to_string().contains("not a regular file"), "{error}");
                assert!(!path.exists());
            } else {
                refused(&path, "not a regular file");
            }
            fs::remove_file(&name).unwrap();
            fs::create_dir(&name).unwrap();
            assert!(SqliteBackend::open(&path, &options()).is_err());
            fs::remove_dir(&name).unwrap();
        }
    }
    let victim = bench.folder.path().join("victim");
    fs::write(&victim, b"").unwrap();
    fs::hard_link(&victim, neighbour(&path, "-wal")).unwrap();
    refused(&path, "more than one name");
    fs::remove_file(neighbour(&path, "-wal")).unwrap();
    assert!(!target.exists());
    assert_eq!(open(&path).check().unwrap().checkpoints, 1);
}

#[test]
fn a_looser_mode_beside_the_store_is_repaired_and_another_owner_refused() {
    let (_bench, path) = closed();
    let wal = neighbour(&path, "-wal");
    fs::write(&wal, b"").unwrap();
    fs::set_permissions(&wal, fs::Permissions::from_mode(0o666)).unwrap();
    let store = open(&path);
    assert_eq!(fs::metadata(&wal).unwrap().permissions().mode() & 0o777, 0o600);
    drop(store);
    fs::write(&wal, b"").unwrap();
    // Only root can give a file away.
    if std::os::unix::fs::chown(&wal, Some(65_534), None).is_ok() {
        refused(&path, "another user");
    }
}

#[test]
fn a_fifo_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    refused(&path, "not a regular file");
    assert!(crate::store::sqlite::file::system::open_to_read(&path).is_ok(), "it is opened without a writer");
}

#[test]
fn a_foreign_journal_beside_a_store_is_refused_and_not_replayed() {
    let (bench, path) = closed();
    // A journal of the same pages at an earlier time: replaying it would be a rollback of history.
    let other = bench.folder.path().join("journal.db");
    drop(open(&other));
    let conn = raw(&other);
    conn.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN IMMEDIATE;").unwrap();
    conn.execute_batch("INSERT INTO name (kind, text, xxh3) VALUES (0, 'a', 0);").unwrap();
    let journal = neighbour(&other, "-journal");
    let bytes = fs::read(&journal).unwrap();
    assert!(bytes.len() > 512, "{} bytes", bytes.len());
    drop(conn);
    let whole = fs::read(&path).unwrap();
    // One of as many pages as the file has, with three of them.
    let mut pages = vec![0; 512 + 3 * 4_104];
    pages[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    pages[16..20].copy_from_slice(&whole[28..32]);
    for bytes in [bytes, pages, vec![b'x'; 600]] {
        fs::write(neighbour(&path, "-journal"), &bytes).unwrap();
        fs::set_permissions(neighbour(&path, "-journal"), fs::Permissions::from_mode(0o600)).unwrap();
        refused(&path, "is not a journal of it");
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    fs::remove_file(neighbour(&path, "-journal")).unwrap();
    assert_eq!(open(&path).check().unwrap().checkpoints, 1);
}

#[test]
fn the_journal_of_an_interrupted_switch_to_wal_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    drop(open(&path));
    // As SQLite leaves it: the header says WAL, and the journal holds the first page as it was before.
    let conn = raw(&path);
    conn.execute_batch("PRAGMA journal_mode = DELETE;").unwrap();
    drop(conn);
    let before = fs::read(&path).unwrap();
    let conn = raw(&path);
    conn.execute_batch("PRAGMA journal_mode = PERSIST; BEGIN IMMEDIATE; PRAGMA user_version = 2; COMMIT;").unwrap();
    drop(conn);
    let journal = neighbour(&path, "-journal");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    bytes[16..20].copy_from_slice(&before[28..32]);
    fs::write(&journal, bytes).unwrap();
    let mut switched = before;
    (switched[18], switched[19]) = (2, 2);
    fs::write(&path, switched).unwrap();
    for name in [&path, &journal] {
        fs::set_permissions(name, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let store = open(&path);
    assert_eq!(store.check().unwrap().problems, []);
    assert!(!journal.exists());
}

/// The name of a file whose lock a process of its own tries to get, in the folder that it works in.
const LOCKED: &str = "app.db";

/// Another process cannot get the lock that a connection of the application holds.
fn is_locked_for_others(path: &Path) -> bool {
    assert!(path.ends_with(LOCKED));
    let test = "store::sqlite::tests::identity::a_process_of_its_own_gets_the_lock";
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", test]).current_dir(path.parent().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_ne!(output.status.success(), text.contains("database is locked"), "{text}");
    !output.status.success()
}

/// The process of the tests below; in a folder without the file there is nothing to get.
#[test]
fn a_process_of_its_own_gets_the_lock() {
    if Path::new(LOCKED).exists() {
        let conn = raw(Path::new(LOCKED));
        conn.busy_timeout(std::time::Duration::ZERO).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    }
}

#[test]
fn an_open_store_takes_no_locks_from_a_connection_of_the_application() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    drop(open(&path));
    let conn = raw(&path);
    // In rollback mode the locks are on the file itself.
    conn.execute_batch("PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE;").unwrap();
    assert!(is_locked_for_others(&path));
    let error = SqliteBackend::open(&path, &options().busy_timeout_ms(20)).unwrap_err();
    assert!(matches!(error, StoreError::Busy { waited_ms: 20, .. }), "{error:?}");
    let reader = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
    assert!(reader.threads(None, 9).unwrap().is_empty());
    drop(reader);
    assert!(is_locked_for_others(&path), "the locks are still there");
}
