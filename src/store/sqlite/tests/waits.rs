//! Waits: no call of one handle makes the writers of others wait, with readers of the file or without.

use super::*;
use crate::base::internal::Stopwatch;
use crate::base::limits::GROUP_BATCHES_MAX;
use crate::store::StoreError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A call that waits for a reader takes as long as a lock is waited for, which is [`GUARD`].
const PROMPT: Duration = Duration::from_secs(GUARD.as_secs() / 2);

/// Commits on a handle of its own before, beside and after `work`; returns the longest wait of a commit and the
/// duration of the work.
fn beside_a_writer<T>(path: &std::path::Path, work: impl FnOnce() -> T) -> (Duration, Duration, T) {
    let (writer, done, count) = (open(path), AtomicBool::new(false), AtomicU64::new(0));
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
                count.fetch_add(1, Ordering::Release);
                std::thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        let more = |count: &AtomicU64| {
            let before = count.load(Ordering::Acquire);
            until("others commit", || count.load(Ordering::Acquire) > before + 2);
        };
        more(&count);
        let start = Stopwatch::start();
        let result = work();
        let took = start.elapsed();
        more(&count);
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
    until("the WAL is copied", || file() > 20 << 20);
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
                let store = SqliteBackend::open(path, &options().synchronous(Synchronous::Full)).unwrap();
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

#[cfg(unix)]
#[test]
fn a_log_begins_anew_once_a_reader_has_gone_though_the_commits_never_pause() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut head = Some(bench.add(&t, None, vec![value("x", 1, plain(&[1]))]));
    let wal = std::fs::File::open(bench.path().with_extension("db-wal")).unwrap();
    // They change when the log begins anew.
    let salts = || {
        let mut salts = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&wal, &mut salts, 16).ok().map(|()| salts)
    };
    // The first copy finds a reader.
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint;").unwrap();
    let (mut ids, before, begin) = (IdSource::from_seed(11), salts(), Stopwatch::start());
    for n in 0_u64.. {
        let id = ids.checkpoint(Timestamp::from_micros(2), 0, head.as_ref());
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        let changes = vec![value("x", n + 2, plain(&vec![n as u8; 100_000]))];
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
        // The limit of the log refuses a commit if it only grows.
        bench.store.commit(&batch).unwrap();
        head = Some(id);
        match n {
            0..200 => assert_eq!(salts(), before, "the reader needs the log"),
            200 => reader.execute_batch("COMMIT").unwrap(),
            _ if salts() != before => break,
            _ => assert!(begin.elapsed() < GUARD, "commit {n}"),
        }
    }
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

#[test]
fn a_caller_that_submits_does_not_wait_for_the_lock_of_another_program() {
    let mut bench = Bench::new();
    let other = raw(&bench.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let handles: Vec<_> = (0..5 * GROUP_BATCHES_MAX)
        .map(|n| {
            let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
            let mut batch = Batch::new(thread(&n.to_string()), Namespace::root(), None);
            batch.checkpoints.push(checkpoint(id));
            bench.store.submit(batch)
        })
        .collect();
    assert!(handles.iter().all(|handle| !handle.is_settled()));
    other.execute_batch("ROLLBACK").unwrap();
    handles.iter().for_each(|handle| handle.wait().unwrap());
}
