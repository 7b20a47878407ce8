//! Free pages are returned to the file system while others read and write.

use super::*;
use crate::store::stats::Compaction;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// A store of two threads of which one, with most of the bytes, was deleted.
fn with_free_pages() -> (Bench, u64) {
    let mut bench = Bench::new();
    bench.add(&thread("stays"), None, vec![list(1, vec![put(0, "stays")])]);
    let mut head = None;
    for n in 0..60 {
        let long = vec![list(n + 1, vec![put(n, &format!("{n} {}", "x".repeat(9_000)))])];
        head = Some(bench.add(&thread("goes"), head, long));
    }
    bench.add(&thread("later"), None, vec![list(1, vec![put(0, "at the end of the file")])]);
    let _ = bench.store.delete_threads(&[thread("goes")]).unwrap();
    while !bench.store.reclaim().unwrap().is_erased() {}
    let bytes = std::fs::metadata(bench.path()).unwrap().len();
    (bench, bytes)
}

fn free_pages(path: &Path) -> i64 {
    raw(path).query_row("PRAGMA freelist_count", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_compacted_file_is_shorter_and_shows_what_it_showed() {
    let (bench, bytes) = with_free_pages();
    assert!(free_pages(&bench.path()) > 100);
    let done = bench.store.compact().unwrap();
    assert!(done.pages > 100 && done.is_log_copied, "{done:?}");
    assert_eq!((done.free_pages, done.bytes_before), (0, bytes));
    assert_eq!(done.bytes_before - done.bytes_after, done.pages * 4_096);
    assert_eq!(std::fs::metadata(bench.path()).unwrap().len(), done.bytes_after);
    assert_eq!(bench.check(), Vec::<String>::new());
    assert_eq!(bench.store.threads(None, 9).unwrap().len(), 2);
    let again = bench.store.compact().unwrap();
    assert_eq!((again.pages, again.bytes_after), (0, done.bytes_after));
}

#[test]
fn a_writer_and_a_reader_go_on_during_a_compaction() {
    let (bench, _) = with_free_pages();
    let (path, stops, commits) = (bench.path(), AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (store, mut ids, mut head) = (open(&path), IdSource::from_seed(3), None);
            for n in 1.. {
                let id = ids.checkpoint(Timestamp::from_micros(n), 0, head.as_ref());
                let mut batch = Batch::new(thread("writes"), Namespace::root(), head);
                batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
                store.commit(&batch).unwrap();
                head = Some(id);
                commits.store(n, Ordering::SeqCst);
                if stops.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let reader = scope.spawn(|| {
            let store = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
            while !stops.load(Ordering::SeqCst) {
                assert!(store.threads(None, 9).unwrap().len() >= 2);
            }
        });
        while commits.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        let done = bench.store.compact().unwrap();
        stops.store(true, Ordering::SeqCst);
        assert!(done.pages > 0, "{done:?}");
        reader.join().unwrap();
    });
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_reader_that_holds_the_log_delays_only_the_shorter_file() {
    let (bench, bytes) = with_free_pages();
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM thread;").unwrap();
    let held = bench.store.compact().unwrap();
    assert_eq!((held.free_pages, held.is_log_copied, held.bytes_after), (0, false, bytes));
    reader.execute_batch("COMMIT").unwrap();
    let done = bench.store.compact().unwrap();
    assert!(done.is_log_copied && done.bytes_after < bytes, "{done:?}");
}

#[test]
fn a_store_that_is_read_only_or_in_memory_is_not_compacted() {
    let bench = Bench::new();
    let reader = SqliteBackend::open(&bench.path(), &options().read_only(true)).unwrap();
    assert!(matches!(reader.compact(), Err(crate::store::StoreError::ReadOnly)));
    assert_eq!(crate::store::Store::memory().compact().unwrap(), Compaction::default());
}
