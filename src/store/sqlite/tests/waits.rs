//! Waits: no call of one handle makes the writers of others wait, with readers of the file or without.

use super::*;
use crate::base::internal::Stopwatch;
use crate::store::StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait of a commit on a loaded machine, where 50 ms are the aim. A call that waits for a reader takes 5 s.
const PROMPT: Duration = Duration::from_millis(3_500);

/// Commits on a handle of its own until `work` has ended; returns the longest wait of a commit and the duration of the
/// work.
fn beside_a_writer<T>(path: &std::path::Path, work: impl FnOnce() -> T) -> (Duration, Duration, T) {
    let (writer, done) = (open(path), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let commits = scope.spawn(|| {
            let (mut ids, mut head, mut longest) = (IdSource::from_seed(99), None, Duration::ZERO);
            let t = thread("beside");
            while !done.load(Ordering::Acquire) {
                let id = ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
                let mut batch = Batch::new(t.clone(), Namespace::root(), head);
                let parent = head.map(Parent::Local);
                batch.checkpoints.push(NewCheckpoint { parent, ..checkpoint(id) });
                let start = Stopwatch::start();
                writer.commit(&batch).unwrap();
                longest = longest.max(start.elapsed());
                head = Some(id);
                std::thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        std::thread::sleep(Duration::from_millis(20));
        let start = Stopwatch::start();
        let result = work();
        let took = start.elapsed();
        std::thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Release);
        (commits.join().unwrap(), took, result)
    })
}

/// A store with two threads, and a connection elsewhere that reads from its WAL.
fn beside_a_reader() -> (Bench, rusqlite::Connection) {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "first")])]);
    bench.add(&thread("b"), None, vec![list(1, vec![put(0, "second")])]);
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint;").unwrap();
    bench.add(&thread("c"), None, vec![list(1, vec![put(0, "third")])]);
    (bench, reader)
}

#[test]
fn a_handle_that_closes_beside_a_reader_stops_no_writer() {
    let (bench, _reader) = beside_a_reader();
    let (path, store) = (bench.path(), bench.store);
    let (longest, took, ()) = beside_a_writer(&path, || drop(store));
    assert!(longest < PROMPT && took < PROMPT, "a commit waited {longest:?}, closing took {took:?}");
}

#[test]
fn a_deleted_thread_beside_a_reader_stops_no_writer() {
    let (bench, _reader) = beside_a_reader();
    let delete = || bench.store.delete_threads(&[thread("a")]);
    let (longest, took, _) = beside_a_writer(&bench.path(), delete);
    assert!(longest < PROMPT && took < PROMPT, "a commit waited {longest:?}, deleting took {took:?}");
}

#[test]
fn a_wal_that_a_reader_needs_is_busy_at_once() {
    let (bench, reader) = beside_a_reader();
    let (longest, took, result) = beside_a_writer(&bench.path(), || bench.store.checkpoint_wal());
    assert!(matches!(result, Err(StoreError::Busy { waited_ms: 0, .. })), "{result:?}");
    assert!(longest < PROMPT && took < PROMPT, "a commit waited {longest:?}, the call took {took:?}");
    drop(reader);
    bench.store.checkpoint_wal().unwrap();
    assert_eq!(std::fs::metadata(bench.path().with_extension("db-wal")).unwrap().len(), 0);
}

#[test]
fn the_wal_is_copied_once_the_reader_has_gone() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut head = Some(bench.add(&t, None, vec![value("x", 1, plain(&[1]))]));
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint;").unwrap();
    for n in 0..40_u64 {
        head = Some(bench.add(&t, head, vec![value("x", n + 2, plain(&vec![n as u8; 600_000]))]));
    }
    let file = || std::fs::metadata(bench.path()).unwrap().len();
    assert!(file() < 4 << 20, "the reader needs the pages as they were");
    drop(reader);
    // Without a further commit.
    let start = Stopwatch::start();
    while file() < 20 << 20 && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(file() > 20 << 20, "{} bytes", file());
}

#[test]
fn many_handles_on_one_file_all_get_their_turn() {
    const HANDLES: u64 = 12;
    const COMMITS: u64 = 25;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    drop(open(&path));
    std::thread::scope(|scope| {
        for n in 0..HANDLES {
            let path = &path;
            scope.spawn(move || {
                let store = SqliteBackend::open(path, &OpenOptions::new()).unwrap();
                let (mut ids, mut head) = (IdSource::from_seed(n), None);
                for _ in 0..COMMITS {
                    let id = ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
                    let mut batch = Batch::new(thread(&format!("t{n}")), Namespace::root(), head);
                    batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
                    store.commit(&batch).unwrap();
                    head = Some(id);
                }
            });
        }
    });
    let report = open(&path).check().unwrap();
    assert_eq!((report.checkpoints, report.problems), (HANDLES * COMMITS, Vec::new()));
}

#[test]
fn a_reader_that_comes_and_goes_does_not_let_the_wal_grow() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut head = Some(bench.add(&t, None, vec![value("x", 1, plain(&[1]))]));
    let wal = || std::fs::metadata(bench.path().with_extension("db-wal")).map_or(0, |wal| wal.len());
    // The first copy finds a reader; the commits after it never pause.
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint;").unwrap();
    let mut ids = IdSource::from_seed(11);
    for n in 0..900_u64 {
        let id = ids.checkpoint(Timestamp::from_micros(2), 0, head.as_ref());
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        let changes = vec![value("x", n + 2, plain(&vec![n as u8; 100_000]))];
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
        bench.store.commit(&batch).unwrap();
        head = Some(id);
        if n == 200 {
            reader.execute_batch("COMMIT").unwrap();
        }
    }
    assert!(wal() < 72 << 20, "{} bytes of 90 MB are in the log", wal());
}

#[cfg(unix)]
#[test]
fn a_program_that_locks_the_folder_refuses_no_commit() {
    let mut bench = Bench::new();
    let locked = std::fs::File::open(bench.path().parent().unwrap()).unwrap();
    locked.lock().unwrap();
    let other = raw(&bench.path());
    let head = bench.add(&thread("a"), None, vec![]);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let head = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.execute_batch("ROLLBACK").unwrap();
        });
        // The queue does not move, and is not waited for longer than its limit.
        bench.add(&thread("a"), Some(head), vec![])
    });
    bench.add(&thread("a"), Some(head), vec![]);
}
