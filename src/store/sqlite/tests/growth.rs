//! The write-ahead log is bounded: readers of the library do not hold it, and past its limit commits fail.

use super::*;
use crate::limits::ITEM_PAGE_ROWS_MAX;
use crate::store::StoreError;

fn list_of(bench: &mut Bench, items: u64) -> CheckpointRef {
    let t = thread("a");
    let puts = (0..items).map(|n| put(n, &format!("item {n}"))).collect();
    let head = bench.add(&t, None, vec![list(1, puts)]);
    at(&t, head)
}

#[test]
fn a_visitor_of_items_holds_no_snapshot() {
    let mut bench = Bench::new();
    let list = list_of(&mut bench, 3 * ITEM_PAGE_ROWS_MAX as u64);
    let (mut seen, mut head) = (0, list.checkpoint);
    let visit = &mut |_: crate::store::record::ItemRow<'_>| {
        if seen % 500 == 0 {
            head = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&head));
            let mut batch = Batch::new(thread(&format!("t{seen}")), Namespace::root(), None);
            batch.checkpoints.push(checkpoint(head));
            bench.store.commit(&batch).unwrap();
            assert_eq!(FileStore::stats(&bench.store).unwrap().oldest_reader, None);
            // No reader is in the way.
            bench.store.checkpoint_wal().unwrap();
        }
        seen += 1;
        Ok(())
    };
    bench.store.items(&list, "messages", ItemRange::All, visit).unwrap();
    assert_eq!(seen, 3 * ITEM_PAGE_ROWS_MAX);
}

#[test]
fn items_in_pages_are_those_of_one_read() {
    let mut bench = Bench::new();
    let t = thread("a");
    let page = ITEM_PAGE_ROWS_MAX as u64;
    let root = list_of(&mut bench, 2 * page);
    // A list of two branches, with a gap of many windows.
    let mut changes = vec![put(3, "edited"), put(40 * page, "far"), put(40 * page + 1, "end")];
    changes.extend((700..900).map(remove));
    let fork = bench.add_on(&t, Some(Parent::Local(root.checkpoint)), vec![list(2, changes)]);
    let large = (0..6).map(|n| put(n, &"large".repeat(100_000))).collect();
    let other = thread("large");
    let large = at(&other, bench.add(&other, None, vec![list(1, large)]));
    for (place, count) in [(&root, 2 * page), (&at(&t, fork), 2 * page - 198), (&large, 6)] {
        let all = bench.items(place, ItemRange::All);
        assert_eq!(all.len() as u64, count);
        assert!(all.is_sorted_by_key(|(position, _)| *position));
        for n in [1, 2, 511, 512, 513, 800, 5_000] {
            let tail = bench.items(place, ItemRange::Tail(n));
            assert_eq!(tail, all[all.len().saturating_sub(n)..], "{n}");
        }
        for (first, end) in [(0, 1), (3, 4), (100, 2_000), (512, 1_024), (600, 40 * page + 1), (9, 9), (7, u64::MAX)] {
            let expected: Vec<_> =
                all.iter().filter(|(position, _)| (first..end).contains(position)).cloned().collect();
            assert_eq!(bench.items(place, ItemRange::Positions(first, end)), expected, "{first}..{end}");
        }
    }
}

#[test]
fn a_log_past_its_limit_refuses_commits_until_the_reader_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let limit_bytes = 6 << 20;
    let store = SqliteBackend::open(&path, &options().wal_limit_bytes(limit_bytes)).unwrap();
    let (mut ids, mut head) = (IdSource::from_seed(3), None);
    let mut commit = |n: u64| {
        let id = ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
        let mut batch = Batch::new(thread("a"), Namespace::root(), head);
        let changes = vec![value("x", n + 1, plain(&vec![n as u8; 300_000]))];
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
        store.commit(&batch).inspect(|()| head = Some(id))
    };
    commit(0).unwrap();
    let reader = raw(&path);
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint;").unwrap();
    let refused = (1..100).find_map(|n| commit(n).err().map(|error| (n, error)));
    match refused {
        Some((n, StoreError::WalLimit { wal_bytes, limit_bytes: limit })) => {
            assert!(limit == limit_bytes && wal_bytes > limit && wal_bytes < 2 * limit, "{wal_bytes}");
            assert!((15..40).contains(&n), "{n} commits");
        }
        other => panic!("{other:?}"),
    }
    let stats = FileStore::stats(&store).unwrap();
    assert!(stats.is_wal_large() && stats.wal_bytes > limit_bytes, "{stats:?}");
    assert!(stats.wal_copied_frames < stats.wal_frames, "{stats:?}");
    // Nothing was written, and the handle goes on once the reader has gone.
    assert!(matches!(commit(100), Err(StoreError::WalLimit { .. })));
    drop(reader);
    let begin = crate::base::internal::Stopwatch::start();
    while commit(101).is_err() {
        assert!(begin.elapsed() < GUARD, "{:?}", FileStore::stats(&store).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn stats_count_bytes_frames_and_commits() {
    let mut bench = Bench::new();
    list_of(&mut bench, 100);
    let stats = FileStore::stats(&bench.store).unwrap();
    assert_eq!(stats.commits.commits, 1);
    assert_eq!(stats.file_bytes, std::fs::metadata(bench.path()).unwrap().len());
    assert!(stats.wal_frames > 3 && stats.wal_bytes >= stats.wal_frames * 4_096, "{stats:?}");
    assert!(!stats.is_wal_large() && stats.wal_error.is_none(), "{stats:?}");
    let again = FileStore::stats(&bench.store).unwrap();
    assert_eq!(again.wal_copied_frames, stats.wal_copied_frames, "nothing is copied by looking");
    let reader = SqliteBackend::open(&bench.path(), &options().read_only(true)).unwrap();
    let read = FileStore::stats(&reader).unwrap();
    assert_eq!((read.wal_frames, read.file_bytes), (stats.wal_frames, stats.file_bytes));
    bench.store.checkpoint_wal().unwrap();
    let stats = FileStore::stats(&bench.store).unwrap();
    assert_eq!((stats.wal_bytes, stats.wal_frames), (0, 0));
}
