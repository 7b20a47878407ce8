//! The pool of readers: retained and closed readers, and readers without locks.

use super::*;
use crate::limits::IDLE_READERS_MAX;
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::registry;
use crate::store::sqlite::read::pool::{DataVersion, ReaderPool};
use crate::store::watch::LogProbe;
use std::sync::Arc;
use std::time::Duration;

/// A closed store of one checkpoint.
fn closed() -> (TempDir, PathBuf, CheckpointId) {
    let mut bench = Bench::new();
    let head = bench.add(&thread("a"), None, vec![value("x", 1, plain(&[7; 40]))]);
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path, head)
}

fn alone(path: &Path) -> ReaderPool {
    ReaderPool::alone(open::readable(path, &options()).unwrap()).unwrap()
}

fn head_of(pool: &ReaderPool) -> Option<CheckpointId> {
    pool.read(|view| view.head_id(&thread("a"), &Namespace::root())).unwrap()
}

/// Commits a checkpoint onto the head, and closes the store.
fn go_on(path: &Path, seed: u64) -> CheckpointId {
    let store = open(path);
    let head = store.head_id(&thread("a"), &Namespace::root()).unwrap();
    let id = IdSource::from_seed(seed).checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(thread("a"), Namespace::root(), head);
    batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
    store.commit(&batch).unwrap();
    store.checkpoint_wal().unwrap();
    id
}

/// Reads within reads, so that each needs a reader of its own.
fn nested(pool: &ReaderPool, depth: usize) {
    if depth > 0 {
        pool.read(|_| {
            nested(pool, depth - 1);
            Ok(())
        })
        .unwrap();
    }
}

fn idle(pool: &ReaderPool) -> usize {
    format!("{pool:?}").matches("PooledReader").count()
}

#[test]
fn the_oldest_read_is_one_in_progress() {
    let (_folder, path, _) = closed();
    let pool = alone(&path);
    assert_eq!(pool.oldest_read(), None);
    nested(&pool, 1);
    assert_eq!(pool.oldest_read(), None);
    pool.read(|_| {
        let age = pool.oldest_read();
        assert!(age.is_some());
        nested(&pool, 1);
        assert!(pool.oldest_read() >= age, "the inner read has ended, the outer one has not");
        Ok(())
    })
    .unwrap();
    assert_eq!(pool.oldest_read(), None);
}

#[test]
fn a_pool_retains_so_many_idle_readers() {
    let (_folder, path, _) = closed();
    let pool = alone(&path);
    assert_eq!(idle(&pool), 1);
    nested(&pool, 3);
    assert_eq!(idle(&pool), 3);
    nested(&pool, IDLE_READERS_MAX + 2);
    assert_eq!(idle(&pool), IDLE_READERS_MAX);
    pool.close();
    assert_eq!(idle(&pool), 0);
}

/// Sets a timeout of the connection of the next read; returns the one before.
fn exchange_timeout(pool: &ReaderPool, ms: u64) -> i64 {
    let exchange = pool.read(|view| {
        let before = view.conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        view.conn.busy_timeout(Duration::from_millis(ms))?;
        Ok(before)
    });
    exchange.unwrap()
}

#[test]
fn an_idle_reader_is_used_again() {
    let (_folder, path, _) = closed();
    let pool = alone(&path);
    exchange_timeout(&pool, 4_321);
    assert_eq!(exchange_timeout(&pool, 1_234), 4_321);
    assert_eq!(exchange_timeout(&pool, 1), 1_234);
}

#[test]
fn the_last_reader_of_a_file_removes_what_is_beside_it() {
    let (_folder, path, head) = closed();
    let is_beside = || ["-wal", "-shm"].map(|suffix| beside(&path, suffix).exists());
    let pool = Arc::new(alone(&path));
    assert_eq!(head_of(&pool), Some(head));
    assert_eq!(is_beside(), [true, true]);
    pool.close();
    assert_eq!(is_beside(), [false, false]);

    let probe = DataVersion::new(&pool).unwrap();
    assert_eq!(is_beside(), [true, true]);
    drop(probe);
    assert_eq!(is_beside(), [false, false]);
}

#[test]
fn a_probe_tells_of_each_commit_once() {
    let (_folder, path, _) = closed();
    let pool = Arc::new(alone(&path));
    let mut probe = DataVersion::new(&pool).unwrap();
    let mut looks = || [(); 2].map(|()| probe.has_changed().unwrap());
    assert_eq!(looks(), [false, false]);
    go_on(&path, 5);
    assert_eq!(looks(), [true, false]);
    go_on(&path, 6);
    assert_eq!(looks(), [true, false]);
    assert!(format!("{probe:?}").starts_with("DataVersion { seen: "));
}

#[test]
fn a_file_that_another_connection_has_to_itself_is_busy() {
    let (_folder, path, _) = closed();
    let place = open::readable(&path, &options().busy_timeout_ms(0)).unwrap();
    let other = raw(&path);
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT; SELECT * FROM thread").unwrap();
    let refused = ReaderPool::alone(place);
    assert!(refused.is_err(), "it is not read without locks");
}

#[test]
fn one_file_is_open_and_another_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    std::fs::write(&first, "x").unwrap();
    std::fs::write(&second, "x").unwrap();
    let _open = registry::register(&first);
    assert!(registry::is_open(&first) && !registry::is_open(&second));
}

#[cfg(unix)]
mod without_locks {
    use super::*;

    /// Makes a pool whose folder refuses the `-shm` file, until that of the returned path is removed.
    fn unlocked(path: &Path) -> (ReaderPool, PathBuf) {
        let pool = alone(path);
        pool.close();
        let shm = beside(path, "-shm");
        std::os::unix::fs::symlink("nowhere", &shm).unwrap();
        nested(&pool, 1);
        (pool, shm)
    }

    #[test]
    fn a_reader_without_locks_is_used_again_as_long_as_the_file_stays() {
        let (_folder, path, head) = closed();
        let (pool, shm) = unlocked(&path);
        exchange_timeout(&pool, 4_321);
        assert_eq!(exchange_timeout(&pool, 1_234), 4_321);
        assert_eq!(head_of(&pool), Some(head));
        std::fs::remove_file(shm).unwrap();
        let next = go_on(&path, 5);
        assert_eq!(head_of(&pool), Some(next));
    }

    #[test]
    fn a_probe_without_locks_tells_of_a_change_of_the_file() {
        let (_folder, path, _) = closed();
        let (pool, shm) = unlocked(&path);
        let mut probe = DataVersion::new(&Arc::new(pool)).unwrap();
        assert_eq!([(); 2].map(|()| probe.has_changed().unwrap()), [false, false]);
        std::fs::remove_file(shm).unwrap();
        go_on(&path, 5);
        assert!(probe.has_changed().unwrap());
    }

    #[test]
    fn a_log_that_is_not_copied_is_not_passed_over() {
        let mut bench = Bench::new();
        let head = bench.add(&thread("a"), None, Vec::new());
        bench.store.checkpoint_wal().unwrap();
        bench.add(&thread("a"), Some(head), Vec::new());
        let copy = bench.folder.path().join("copy.db");
        for suffix in ["", "-wal"] {
            std::fs::copy(beside(&bench.path(), suffix), beside(&copy, suffix)).unwrap();
        }
        let place = open::readable(&copy, &options()).unwrap();
        std::os::unix::fs::symlink("nowhere", beside(&copy, "-shm")).unwrap();
        assert!(ReaderPool::alone(place).is_err(), "without its log the file is an older one");
        std::fs::remove_file(beside(&copy, "-wal")).unwrap();
        std::fs::remove_file(beside(&copy, "-shm")).unwrap();
        let older = alone(&copy);
        assert_eq!(head_of(&older), Some(head));
    }
}
