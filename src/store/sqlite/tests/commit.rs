//! The writer: conflicts, repeats, groups, order, other handles.

use super::*;
use crate::base::limits::GROUP_BATCHES_MAX;
use crate::store::StoreError;
use crate::store::log::CommitHandle;
use std::collections::VecDeque;
use std::sync::Arc;

fn one(bench: &mut Bench, t: &ThreadId, head: Option<CheckpointId>, byte: u8) -> Batch {
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(t.clone(), Namespace::root(), head);
    let parent = head.map(Parent::Local);
    batch.checkpoints.push(NewCheckpoint { parent, changes: vec![value("x", 1, plain(&[byte]))], ..checkpoint(id) });
    batch
}

#[test]
fn a_moved_head_is_a_conflict_that_names_it() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = one(&mut bench, &t, None, 1);
    let late = one(&mut bench, &t, None, 2);
    bench.store.commit(&first).unwrap();
    match bench.store.commit(&late) {
        Err(StoreError::Conflict { expected: None, found, .. }) => assert_eq!(found, first.head_after()),
        other => panic!("{other:?}"),
    }
    // The head of an ancestor namespace counts as well.
    let child = Namespace::new("node:1").unwrap();
    let mut batch = one(&mut bench, &t, None, 3);
    batch.namespace = child.clone();
    batch.expect[0].namespace = child.clone();
    batch.expect.push(crate::store::batch::Expect { namespace: Namespace::root(), head: None });
    assert!(matches!(bench.store.commit(&batch), Err(StoreError::Conflict { .. })));
    batch.expect[1].head = first.head_after();
    bench.store.commit(&batch).unwrap();
    assert_eq!(bench.store.namespaces(&t).unwrap(), [Namespace::root(), child]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_repeat_succeeds_and_other_content_is_a_duplicate() {
    let mut bench = Bench::new();
    let t = thread("a");
    let a = task(1, "a");
    let mut first = one(&mut bench, &t, None, 1);
    first.checkpoints[0].tasks = vec![a.clone()];
    bench.store.commit(&first).unwrap();
    let head = first.head_after().unwrap();
    let mut early = Batch::new(t.clone(), Namespace::root(), Some(head));
    early.writes = vec![writes(head, &a, vec![write(0, "q", WriteValue::One(plain(&[8; 99])))])];
    bench.store.commit(&early).unwrap();
    let mut second = one(&mut bench, &t, Some(head), 1);
    second.checkpoints[0].consumed = vec![writes(
        head,
        &a,
        vec![
            write(0, "q", WriteValue::One(plain(&[8; 99]))),
            write(1, "m", WriteValue::Items(vec![message("i", "text")])),
        ],
    )];
    second.checkpoints[0]
        .changes
        .push(list(1, vec![ItemChange { position: 0, op: ItemOp::Put(of_write(a.id, 1, 0)), task: Some(0) }]));
    second.checkpoints[0].changes.push(Change {
        channel: "q".into(),
        version: 1,
        value: ChangeValue::Value(of_write(a.id, 0, 0)),
        task: Some(0),
    });
    second.checkpoints[0].seen = vec![seen("a", "x", 1)];
    bench.store.commit(&second).unwrap();
    let third = one(&mut bench, &t, second.head_after(), 3);
    bench.store.commit(&third).unwrap();
    for batch in [&first, &second, &third] {
        bench.store.commit(batch).unwrap();
    }
    assert_eq!(bench.store.thread_size(&bench.store.threads(None, 9).unwrap()[0].id).unwrap().checkpoints, 3);
    let reopened = open(&bench.path());
    reopened.commit(&second).unwrap();
    for change in [
        |batch: &mut Batch| batch.checkpoints[0].step = 77,
        |batch: &mut Batch| batch.checkpoints[0].changes[0] = value("x", 1, plain(&[9])),
        |batch: &mut Batch| batch.checkpoints[0].consumed[0].writes[1].channel = "n".into(),
    ] {
        let mut other = second.clone();
        change(&mut other);
        assert!(matches!(bench.store.commit(&other), Err(StoreError::Duplicate { .. })));
    }
    let mut older = one(&mut bench, &t, third.head_after(), 4);
    older.checkpoints[0].id = CheckpointId::from_bytes([1; 16]);
    assert!(matches!(bench.store.commit(&older), Err(StoreError::StaleId { .. })));
    let mut lost = one(&mut bench, &t, third.head_after(), 4);
    lost.checkpoints[0].parent = Some(Parent::Local(CheckpointId::from_bytes([1; 16])));
    assert!(matches!(bench.store.commit(&lost), Err(StoreError::CheckpointNotFound { .. })));
    let mut twice = one(&mut bench, &t, third.head_after(), 4);
    twice.checkpoints[0].changes.push(list(2, vec![put(4, "a"), remove(4)]));
    assert!(matches!(bench.store.commit(&twice), Err(StoreError::Invalid { .. })));
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn threads_share_transactions_and_a_conflict_fails_no_neighbour() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.db");
    drop(bench);
    // With an fsync per transaction, callers pile up behind it.
    let store = Arc::new(SqliteBackend::open(&path, &OpenOptions::new()).unwrap());
    let conflicts = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for n in 0..8_u64 {
            let (store, conflicts) = (Arc::clone(&store), &conflicts);
            scope.spawn(move || {
                let t = thread(&format!("t{n}"));
                let mut ids = IdSource::from_seed(n);
                let mut head = None;
                for step in 0..40_u64 {
                    let id = ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
                    let mut batch = Batch::new(t.clone(), Namespace::root(), head);
                    let changes = vec![value(&format!("c{n}-{step}"), 1, plain(&[1]))];
                    batch.checkpoints.push(NewCheckpoint {
                        parent: head.map(Parent::Local),
                        changes,
                        ..checkpoint(id)
                    });
                    if step % 5 == 4 {
                        let mut stale = batch.clone();
                        stale.expect[0].head = None;
                        assert!(matches!(store.commit(&stale), Err(StoreError::Conflict { .. })));
                        conflicts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    if step % 5 == 2 {
                        // It fails after its first row: the group is written anew without it.
                        let mut half = batch.clone();
                        let lost = of_write(TaskId::from_bytes([9; 16]), 0, 0);
                        let mut second = value("lost", 1, plain(&[1]));
                        second.value = ChangeValue::Value(lost);
                        half.checkpoints[0].changes.push(second);
                        assert!(matches!(store.commit(&half), Err(StoreError::Invalid { .. })));
                    }
                    store.commit(&batch).unwrap();
                    head = Some(id);
                }
            });
        }
    });
    assert_eq!(conflicts.into_inner(), 64);
    let stats = store.commit_stats();
    assert_eq!(stats.commits, 320);
    assert!(stats.transactions < 320, "{stats:?}");
    let report = store.check().unwrap();
    assert_eq!((report.threads, report.checkpoints, report.problems), (8, 320, Vec::new()));
}

#[test]
fn submitted_batches_keep_their_order() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut head = None;
    let mut handles = Vec::new();
    for n in 0..2_000_u64 {
        let mut batch = one(&mut bench, &t, head, n as u8);
        batch.checkpoints[0].changes[0].version = n + 1;
        head = batch.head_after();
        handles.push(bench.store.submit(batch));
    }
    let stale = one(&mut bench, &t, None, 1);
    assert!(matches!(bench.store.submit(stale).wait(), Err(StoreError::Conflict { .. })));
    handles.iter().for_each(|handle| handle.wait().unwrap());
    assert_eq!(bench.store.head_id(&t, &Namespace::root()).unwrap(), head);
    // Dropping waits for the submitted batches.
    let last = one(&mut bench, &t, head, 1);
    let handle = bench.store.submit(last.clone());
    let path = bench.path();
    drop(bench.store);
    handle.wait().unwrap();
    assert_eq!(open(&path).head_id(&t, &Namespace::root()).unwrap(), last.head_after());
    assert!(!path.with_extension("db-wal").exists());
}

#[test]
fn two_handles_write_to_one_file() {
    let mut bench = Bench::new();
    let second = open(&bench.path());
    let (a, b) = (thread("a"), thread("b"));
    let (mut head_a, mut head_b) = (None, None);
    for n in 0..50 {
        let one_a = one(&mut bench, &a, head_a, n);
        bench.store.commit(&one_a).unwrap();
        let one_b = one(&mut bench, &b, head_b, n);
        second.commit(&one_b).unwrap();
        (head_a, head_b) = (one_a.head_after(), one_b.head_after());
        // Both see the rows of the other, and a stale head is refused.
        assert_eq!(second.head_id(&a, &Namespace::root()).unwrap(), head_a);
        let stale = one(&mut bench, &b, None, n);
        assert!(matches!(bench.store.commit(&stale), Err(StoreError::Conflict { .. })));
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_locked_file_is_busy() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = one(&mut bench, &t, None, 1);
    bench.store.commit(&first).unwrap();
    let quick = SqliteBackend::open(&bench.path(), &options().busy_timeout_ms(20)).unwrap();
    let conn = raw(&bench.path());
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let next = one(&mut bench, &t, first.head_after(), 2);
    let holder = cfg!(target_os = "linux").then(std::process::id);
    match quick.commit(&next) {
        Err(StoreError::Busy { waited_ms: 20, holder: found }) => assert_eq!(found, holder),
        other => panic!("{other:?}"),
    }
    conn.execute_batch("ROLLBACK").unwrap();
    quick.commit(&next).unwrap();
}

#[test]
fn a_refused_caller_does_not_wait_again_for_the_batches_of_others() {
    let mut bench = Bench::new();
    let (own, other) = (one(&mut bench, &thread("own"), None, 1), one(&mut bench, &thread("other"), None, 2));
    let store = SqliteBackend::open(&bench.path(), &options().busy_timeout_ms(100)).unwrap();
    let conn = raw(&bench.path());
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let outcome = store.commit(&own);
            has_ended.store(true, std::sync::atomic::Ordering::Release);
            outcome
        });
        // There is always another batch that waits, so a caller that waited for those of others would not end. More
        // than some groups of them would only take memory while the caller stands still.
        let (begin, mut waiting) = (crate::base::internal::Stopwatch::start(), VecDeque::new());
        while !has_ended.load(std::sync::atomic::Ordering::Acquire) {
            assert!(begin.elapsed() < GUARD, "the caller waits for the batches of others");
            while waiting.front().is_some_and(CommitHandle::is_settled) {
                waiting.pop_front();
            }
            match waiting.len() < 8 * GROUP_BATCHES_MAX {
                true => waiting.push_back(store.submit(other.clone())),
                false => std::thread::yield_now(),
            }
        }
        let outcome = caller.join().unwrap();
        assert!(matches!(outcome, Err(StoreError::Busy { waited_ms: 100, .. })), "{outcome:?}");
    });
    conn.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn the_wal_is_copied_in_the_background() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut head = None;
    for n in 0..60_u64 {
        head = Some(bench.add(&t, head, vec![value("x", n + 1, plain(&vec![n as u8; 600_000]))]));
    }
    // Only the background thread copies the WAL.
    until("the WAL is copied", || std::fs::metadata(bench.path()).unwrap().len() > 4 << 20);
    // A copy of the background that is under way may add its mark once more.
    let wal = bench.path().with_extension("db-wal");
    until("the WAL is empty", || {
        bench.store.checkpoint_wal().unwrap();
        std::fs::metadata(&wal).unwrap().len() == 0
    });
    assert_eq!(bench.check(), Vec::<String>::new());
}
