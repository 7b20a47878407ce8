//! Read-only handles return stored data, also while others write.

use super::*;
use crate::store::StoreError;
use crate::store::sqlite::file::open;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A closed store with a list of items that fills many pages.
fn closed(items: u64) -> (TempDir, PathBuf, CheckpointRef) {
    let mut bench = Bench::new();
    let t = thread("a");
    let puts = (0..items).map(|n| put(n, &format!("item {n} {}", "x".repeat(400)))).collect();
    let head = bench.add(&t, None, vec![list(1, puts)]);
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path, at(&t, head))
}

#[test]
fn a_writer_that_comes_and_goes_during_a_read_changes_nothing_of_it() {
    const ITEMS: u64 = 900;
    let (_folder, path, head) = closed(ITEMS);
    for erases in [false, true] {
        let reader = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
        let mut seen = 0;
        let read = reader.items(&head, "messages", ItemRange::All, &mut |row| {
            let text = row.payload.index.and_then(|index| index.text).unwrap_or_default().to_owned();
            assert!(text.starts_with(&format!("item {seen} ")), "item {seen} is {text:.20}");
            if seen == 20 {
                let writer = super::open(&path);
                if erases {
                    _ = writer.delete_threads(std::slice::from_ref(&head.thread)).unwrap();
                } else {
                    let id = IdSource::from_seed(5).checkpoint(Timestamp::from_micros(9), 0, Some(&head.checkpoint));
                    let mut batch = Batch::new(head.thread.clone(), Namespace::root(), Some(head.checkpoint));
                    let changes =
                        vec![list(2, (0..ITEMS).map(|n| put(n, &format!("other {n} {}", "y".repeat(400)))).collect())];
                    let parent = Some(Parent::Local(head.checkpoint));
                    batch.checkpoints.push(NewCheckpoint { parent, changes, ..checkpoint(id) });
                    writer.commit(&batch).unwrap();
                }
            }
            seen += 1;
            Ok(())
        });
        match read {
            Ok(()) => assert_eq!(seen, ITEMS),
            // A page after the erasure finds that the thread is gone.
            Err(StoreError::CheckpointNotFound { .. }) if erases => {}
            other => panic!("after {seen}: {other:?}"),
        }
    }
}

#[test]
fn a_reader_sees_a_write_of_the_same_size_at_once() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut head = bench.add(&t, None, vec![value("x", 1, plain(&[0; 40]))]);
    let reader = SqliteBackend::open(&bench.path(), &options().read_only(true)).unwrap();
    for n in 1..20_u8 {
        head = bench.add(&t, Some(head), vec![value("x", u64::from(n) + 1, plain(&[n; 40]))]);
        assert_eq!(reader.head_id(&t, &Namespace::root()).unwrap(), Some(head));
    }
}

#[test]
fn a_follower_of_a_thread_does_not_read_the_checkpoints_of_others() {
    let mut bench = Bench::new();
    let own = bench.add(&thread("own"), None, Vec::new());
    let others = |bench: &mut Bench, count: usize| {
        let mut head = bench.store.head_id(&thread("other"), &Namespace::root()).unwrap();
        for _ in 0..count / 1_000 {
            let mut batch = Batch::new(thread("other"), Namespace::root(), head);
            for _ in 0..1_000 {
                let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
                batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
                head = Some(id);
            }
            bench.store.commit(&batch).unwrap();
        }
    };
    // The steps of SQLite's machine, on a reader of its own.
    let steps = |bench: &Bench| {
        let (pool, count) = (&bench.store.pool, Arc::new(AtomicU64::new(0)));
        let mut conn = open::connect_reader(pool.place()).unwrap();
        let read = |conn: &rusqlite::Connection| {
            pool.read_on(conn, |view| view.records_after(1, Some(&thread("own")), 9)).unwrap()
        };
        assert_eq!(read(&conn), [], "the schema and the statements are read");
        let counted = Arc::clone(&count);
        let handler = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        conn.progress_handler(1, Some(handler)).unwrap();
        assert_eq!(read(&conn), []);
        count.load(Ordering::Relaxed)
    };
    others(&mut bench, 1_000);
    let few = steps(&bench);
    others(&mut bench, 20_000);
    let many = steps(&bench);
    assert!(few > 0 && many <= few + 8, "{few} steps beside 1,000 checkpoints of others, {many} beside 21,000");
    let newest = bench.add(&thread("own"), Some(own), Vec::new());
    let found = bench.store.pool.read(|view| view.records_after(1, Some(&thread("own")), 9)).unwrap();
    assert_eq!(found.iter().map(|record| record.point.checkpoint).collect::<Vec<_>>(), [newest]);
}
