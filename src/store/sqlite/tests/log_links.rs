//! A log belongs to its file: what happens to the one without the other is told, and neither is changed.
#![cfg(unix)]

use super::*;
use crate::store::error::StoreError;
use crate::store::sqlite::file::paths;
use crate::store::sqlite::file::wal_mark::{MarkState, WalMark};
use crate::store::sqlite::sql;
use crate::store::sqlite::writer::group::copy_wal;
use std::fs;

/// A store, and a folder for copies of its files.
struct Links {
    bench: Bench,
    thread: ThreadId,
    head: Option<CheckpointId>,
}

impl Links {
    fn new() -> Self {
        let mut bench = Bench::new();
        // A file that is shorter than it was is looked at for as long as a lock is waited for.
        let full = OpenOptions::new().synchronous(Synchronous::Full).busy_timeout_ms(500);
        let other = bench.folder.path().join("other.db");
        bench.store = open(&other);
        bench.store = SqliteBackend::open(&bench.path(), &full).unwrap();
        Self { bench, thread: thread("a"), head: None }
    }

    fn commit(&mut self, count: u8) {
        for byte in 0..count {
            let change = value("x", 1, plain(&[byte; 3_000]));
            self.head = Some(self.bench.add(&self.thread, self.head, vec![change]));
        }
    }

    /// Tries a commit.
    fn attempt(&mut self) -> Result<(), StoreError> {
        let id = self.bench.ids.checkpoint(Timestamp::from_micros(1), 0, self.head.as_ref());
        let mut batch = Batch::new(self.thread.clone(), Namespace::root(), self.head);
        batch.checkpoints.push(NewCheckpoint { parent: self.head.map(Parent::Local), ..checkpoint(id) });
        self.bench.store.commit(&batch)?;
        self.head = Some(id);
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.bench.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.bench.folder.path().join(name)
    }

    /// Copies the file and its log, as a kill leaves them.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.at(name);
        fs::copy(self.path(), &to).unwrap();
        self.copy_log(&to);
        to
    }

    fn copy_log(&self, to: &Path) {
        fs::copy(log(&self.path()), log(to)).unwrap();
    }

    fn reopen(&mut self) {
        self.bench.store = open(&self.at("other.db"));
        self.bench.store = SqliteBackend::open(&self.path(), &OpenOptions::new()).unwrap();
    }

    fn close(&mut self) {
        self.bench.store = open(&self.at("other.db"));
    }
}

fn log(path: &Path) -> PathBuf {
    paths::beside(path, "-wal")
}

fn checkpoints(path: &Path) -> u64 {
    let store = SqliteBackend::open(path, &OpenOptions::new().read_only(true)).unwrap();
    let report = store.check().unwrap();
    assert_eq!(report.problems, []);
    report.checkpoints
}

/// Both kinds of open refuse the pair, and change neither file.
fn is_foreign(path: &Path, why: &str) {
    let before = (fs::read(path).unwrap(), fs::read(log(path)).unwrap());
    for options in [OpenOptions::new(), OpenOptions::new().read_only(true)] {
        let error = SqliteBackend::open(path, &options).unwrap_err();
        assert!(matches!(error, StoreError::ForeignLog { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(before == (fs::read(path).unwrap(), fs::read(log(path)).unwrap()), "a refused open changes nothing");
}

/// A reader is told that a log is missing; a writer is refused.
fn lacks_log(path: &Path) {
    let before = fs::read(path).unwrap();
    let error = SqliteBackend::open(path, &OpenOptions::new()).unwrap_err();
    assert!(matches!(error, StoreError::LogMissing { .. }), "{error:?}");
    let reader = SqliteBackend::open(path, &OpenOptions::new().read_only(true)).unwrap();
    assert!(reader.missing_wal().is_some());
    drop(reader);
    assert!(before == fs::read(path).unwrap(), "a refused open changes nothing");
}

#[test]
fn a_file_and_its_log_that_are_copied_together_are_a_store() {
    let mut links = Links::new();
    for round in 1..=3 {
        links.commit(2);
        let copy = links.copy(&format!("copy-{round}.db"));
        assert_eq!(checkpoints(&copy), 2 * round);
        drop(SqliteBackend::open(&copy, &OpenOptions::new()).unwrap());
        assert_eq!(checkpoints(&copy), 2 * round);
        if round == 2 {
            links.bench.store.checkpoint_wal().unwrap();
        }
    }
}

#[test]
fn a_backup_that_is_copied_over_a_killed_store_is_not_changed() {
    let mut links = Links::new();
    links.commit(3);
    let backup = links.at("backup.db");
    links.bench.store.backup(&backup).unwrap();
    links.commit(2);
    let killed = links.copy("killed.db");
    fs::copy(&backup, &killed).unwrap();
    is_foreign(&killed, "");
    // Also a copy of the file that was made between two closes.
    links.close();
    let older = links.at("older.db");
    fs::copy(links.path(), &older).unwrap();
    for _ in 0..2 {
        links.reopen();
        links.commit(2);
    }
    links.copy_log(&older);
    is_foreign(&older, "newer than the file");
}

#[test]
fn a_log_that_is_older_than_its_file_is_refused() {
    let mut links = Links::new();
    links.commit(3);
    let older = links.at("older.db");
    links.copy_log(&older);
    links.commit(3);
    links.bench.store.checkpoint_wal().unwrap();
    links.commit(1);
    fs::copy(links.path(), &older).unwrap();
    is_foreign(&older, "older than the file");
    let settled = super::super::reset_wal(&older).unwrap();
    assert_eq!(settled.put_aside.len(), 1, "{settled:?}");
    assert!(settled.put_aside[0].exists() && settled.is_loss_accepted, "the log of the newest commit is not there");
    assert_eq!(checkpoints(&older), 6);
    drop(SqliteBackend::open(&older, &OpenOptions::new()).unwrap());
}

#[test]
fn the_log_of_another_store_or_program_is_refused() {
    let mut links = Links::new();
    links.commit(3);
    let other = Bench::new();
    let conn = raw(&other.folder.path().join("plain.db"));
    conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (b); INSERT INTO a VALUES (zeroblob(9000));")
        .unwrap();
    links.close();
    for (name, from) in [("own", "plain.db"), ("mine", "x.db")] {
        let mut other = other.folder.path().join(from);
        if name == "mine" {
            let mut second = Bench::new();
            second.add(&thread("b"), None, vec![value("x", 1, plain(&[7; 99]))]);
            fs::copy(log(&second.path()), log(&links.at("second.db"))).unwrap();
            other = links.at("second.db");
        }
        fs::copy(log(&other), log(&links.path())).unwrap();
        fs::set_permissions(log(&links.path()), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        is_foreign(&links.path(), if name == "own" { "another program" } else { "another store" });
        let settled = super::super::reset_wal(&links.path()).unwrap();
        assert!(!settled.is_loss_accepted, "{settled:?}");
        assert_eq!(checkpoints(&links.path()), 3);
    }
}

#[test]
fn two_machines_that_went_on_from_one_copy_are_told_apart() {
    let mut links = Links::new();
    links.commit(2);
    links.close();
    let [here, there] = ["here.db", "there.db"].map(|name| links.at(name));
    for path in [&here, &there] {
        fs::copy(links.path(), path).unwrap();
        links.bench.store = SqliteBackend::open(path, &OpenOptions::new()).unwrap();
        links.commit(1);
        fs::copy(path, links.at("file")).unwrap();
        fs::copy(log(path), links.at("log")).unwrap();
        links.close();
        if path == &here {
            fs::copy(links.at("log"), links.at("log-here")).unwrap();
        }
        links.head = None;
        links.thread = thread("b");
    }
    fs::copy(links.at("log-here"), log(&there)).unwrap();
    is_foreign(&there, "");
}

#[test]
fn a_file_without_its_log_says_so() {
    let mut links = Links::new();
    links.commit(1);
    let alone = links.at("alone.db");
    fs::copy(links.path(), &alone).unwrap();
    lacks_log(&alone);
    fs::write(log(&alone), b"").unwrap();
    lacks_log(&alone);
    links.commit(30);
    fs::copy(links.path(), &alone).unwrap();
    _ = fs::remove_file(log(&alone));
    lacks_log(&alone);
    let settled = super::super::reset_wal(&alone).unwrap();
    assert!(settled.is_loss_accepted && settled.put_aside.is_empty(), "{settled:?}");
    assert!(super::super::reset_wal(&alone).unwrap().found.is_none());
    let store = SqliteBackend::open(&alone, &OpenOptions::new()).unwrap();
    assert_eq!((store.missing_wal(), store.check().unwrap().problems), (None, vec![]));
}

#[test]
fn a_file_whose_log_another_program_copied_misses_nothing() {
    let mut links = Links::new();
    links.commit(5);
    let killed = links.copy("killed.db");
    let conn = raw(&killed);
    let rows: i64 = conn.query_row("SELECT count(*) FROM checkpoint", [], |row| row.get(0)).unwrap();
    drop(conn);
    assert_eq!(rows, 5);
    assert!(!log(&killed).exists(), "SQLite has copied and removed it");
    drop(SqliteBackend::open(&killed, &OpenOptions::new()).unwrap());
    assert_eq!(checkpoints(&killed), 5);
}

#[test]
fn a_log_that_another_program_began_is_that_of_the_file() {
    let mut links = Links::new();
    links.commit(2);
    links.close();
    let conn = raw(&links.path());
    conn.execute_batch("CREATE TABLE app_a (b); INSERT INTO app_a VALUES (zeroblob(20000));").unwrap();
    let killed = links.copy("killed.db");
    assert_eq!(checkpoints(&killed), 2);
    // Beside that program, and after it.
    links.reopen();
    links.commit(1);
    let killed = links.copy("killed-again.db");
    assert_eq!(checkpoints(&killed), 3);
    drop(conn);
    links.commit(1);
    links.close();
    assert_eq!(checkpoints(&links.path()), 4);
}

#[test]
fn a_log_that_was_cut_is_told_by_the_shared_memory() {
    let mut links = Links::new();
    links.commit(9);
    let killed = links.copy("killed.db");
    fs::copy(paths::beside(&links.path(), "-shm"), paths::beside(&killed, "-shm")).unwrap();
    let bytes = fs::metadata(log(&killed)).unwrap().len();
    fs::OpenOptions::new().write(true).open(log(&killed)).unwrap().set_len(bytes / 2).unwrap();
    for read_only in [true, false] {
        let error = SqliteBackend::open(&killed, &OpenOptions::new().read_only(read_only)).unwrap_err();
        assert!(matches!(error, StoreError::LogMissing { .. }), "{error:?}");
        assert!(error.to_string().contains("was cut short"), "{error}");
    }
    assert!(super::super::reset_wal(&killed).unwrap().is_loss_accepted);
    assert!(checkpoints(&killed) < 9);
}

#[test]
fn a_log_that_is_removed_replaced_emptied_or_cut_under_a_handle_ends_it() {
    type Accident = fn(&Links);
    let accidents: [(&str, Accident); 6] = [
        ("removed", |links| fs::remove_file(log(&links.path())).unwrap()),
        ("both", |links| {
            fs::remove_file(log(&links.path())).unwrap();
            fs::remove_file(paths::beside(&links.path(), "-shm")).unwrap();
        }),
        ("shared", |links| fs::remove_file(paths::beside(&links.path(), "-shm")).unwrap()),
        ("replaced", |links| {
            fs::copy(log(&links.path()), links.at("new")).unwrap();
            fs::rename(links.at("new"), log(&links.path())).unwrap();
        }),
        ("emptied", |links| fs::write(log(&links.path()), b"").unwrap()),
        ("cut", |links| {
            let file = fs::OpenOptions::new().write(true).open(log(&links.path())).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
    ];
    for (name, accident) in accidents {
        let mut links = Links::new();
        links.commit(5);
        accident(&links);
        let mut committed = 5;
        let error = loop {
            assert!(committed < 100_000, "{name}: it is never told");
            match links.attempt() {
                Ok(()) => committed += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::FileReplaced { .. }), "{name}: {error:?}");
        assert!(committed == 5 || name == "shared", "{name}: a log without a name is seen at the next commit");
        assert!(matches!(links.attempt(), Err(StoreError::HandleClosed { .. })), "{name}");
        let file = fs::read(links.path()).unwrap();
        links.close();
        assert!(file == fs::read(links.path()).unwrap(), "{name}: the log is not copied");
        match name {
            "shared" | "replaced" => assert_eq!(checkpoints(&links.path()), committed),
            "cut" => {}
            _ => lacks_log(&links.path()),
        }
    }
}

#[test]
fn a_file_that_is_emptied_cut_or_written_over_under_a_handle_ends_it() {
    let mut links = Links::new();
    links.commit(2);
    let older = links.at("older.db");
    links.close();
    fs::copy(links.path(), &older).unwrap();
    for (name, keep) in [("emptied", Some(0)), ("cut", Some(4)), ("written over", None)] {
        let mut links = Links::new();
        links.commit(40);
        links.bench.store.checkpoint_wal().unwrap();
        links.commit(1);
        match keep {
            Some(share) => {
                let file = fs::OpenOptions::new().write(true).open(links.path()).unwrap();
                let bytes = file.metadata().unwrap().len();
                file.set_len(bytes.checked_div(share).unwrap_or_default()).unwrap();
            }
            // In place, as `cp` does; a close would copy the log over it.
            None => fs::write(links.path(), fs::read(&older).unwrap()).unwrap(),
        }
        let error = links.attempt().unwrap_err();
        assert!(matches!(error, StoreError::FileReplaced { .. }), "{name}: {error:?}");
        let file = fs::read(links.path()).unwrap();
        links.close();
        assert!(file == fs::read(links.path()).unwrap(), "{name}: the log is not copied");
        let error = SqliteBackend::open(&links.path(), &OpenOptions::new()).unwrap_err();
        assert!(!matches!(error, StoreError::Busy { .. }), "{name}: {error:?}");
    }
}

#[test]
fn an_idle_handle_does_not_copy_its_log_over_another_file() {
    let mut links = Links::new();
    links.commit(2);
    links.close();
    let older = fs::read(links.path()).unwrap();
    links.reopen();
    links.commit(4);
    fs::write(links.path(), &older).unwrap();
    links.commit(0);
    links.close();
    assert!(older == fs::read(links.path()).unwrap());
    assert!(log(&links.path()).exists());
}

#[test]
fn a_copy_that_a_reader_delays_does_not_add_marks() {
    let mut links = Links::new();
    links.commit(2);
    let conn = raw(&links.path());
    conn.execute_batch("BEGIN; SELECT count(*) FROM checkpoint;").unwrap();
    let generation = || WalMark::read(&raw(&links.path())).unwrap().generation;
    let core = links.bench.store.writer.as_ref().unwrap();
    let before = generation();
    for _ in 0..5 {
        core.copy_once();
    }
    assert!(generation() <= before + 1, "{} after {before}", generation());
    conn.execute_batch("COMMIT").unwrap();
    let mark = WalMark::read(&conn).unwrap();
    assert_eq!(mark.state, MarkState::Synced);
    assert!(copy_wal(&conn, sql::WAL_PASSIVE).unwrap().is_whole());
}

#[test]
fn a_closed_store_has_no_log_and_misses_none() {
    let mut links = Links::new();
    links.commit(3);
    links.close();
    assert!(!log(&links.path()).exists());
    assert_eq!(WalMark::read(&raw(&links.path())).unwrap().state, MarkState::Whole);
    // Moved while it is closed.
    let moved = links.at("moved.db");
    fs::rename(links.path(), &moved).unwrap();
    assert_eq!(checkpoints(&moved), 3);
}

#[test]
fn a_restored_backup_takes_the_place_of_a_store_that_is_put_aside() {
    let mut links = Links::new();
    links.commit(2);
    let backup = links.at("backup.db");
    links.bench.store.backup(&backup).unwrap();
    links.commit(2);
    let killed = links.copy("killed.db");
    let restored = crate::store::sqlite::restore(&backup, &killed, &OpenOptions::new()).unwrap();
    let names: Vec<_> = restored.put_aside.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["killed.db.aside-1", "killed.db.aside-1-wal"]);
    assert_eq!(checkpoints(&killed), 2);
    assert_eq!(checkpoints(&restored.put_aside[0]), 4);
    // Onto a path without a file, and onto one that is in use.
    let fresh = crate::store::sqlite::restore(&backup, &links.at("fresh.db"), &OpenOptions::new()).unwrap();
    assert_eq!((fresh.put_aside.len(), checkpoints(&links.at("fresh.db"))), (0, 2));
    let error = crate::store::sqlite::restore(&backup, &links.path(), &OpenOptions::new()).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    // A damaged backup leaves the store as it is.
    let mut bytes = fs::read(&backup).unwrap();
    let at = bytes.len() - 5_000;
    bytes[at..].fill(0xee);
    fs::write(&backup, bytes).unwrap();
    let before = fs::read(&killed).unwrap();
    crate::store::sqlite::restore(&backup, &killed, &OpenOptions::new()).unwrap_err();
    assert!(before == fs::read(&killed).unwrap());
}
