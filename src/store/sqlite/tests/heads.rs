//! Heads that the writer retains: what head_with_writes returns without reading is what another handle reads.

use super::*;
use crate::store::StoreError;
use crate::store::batch::NewTimer;
use crate::store::lease::{LeaseOwner, NewLease};
use crate::store::operation::{NewOperation, OperationChange, OperationKind};
use crate::store::record::StoredHead;

fn head(store: &SqliteBackend, of: &ThreadId) -> Option<StoredHead> {
    store.head_with_writes(of, &Namespace::root()).unwrap()
}

/// Returns whether the writer of a handle knows the head of a thread without reading it.
fn is_known(store: &SqliteBackend, of: &ThreadId) -> bool {
    store.writer.as_ref().unwrap().bare_head(of, &Namespace::root()).is_some()
}

/// Returns the head of a thread, which the handle that wrote it and a new one agree on.
fn same(bench: &Bench, of: &ThreadId) -> StoredHead {
    let (own, others) = (head(&bench.store, of), head(&open(&bench.path()), of));
    assert_eq!(own, others);
    own.unwrap()
}

/// A store with two checkpoints, and the tasks that are due after the second one.
fn two() -> (Bench, ThreadId, Vec<CheckpointId>, TaskRecord) {
    let (mut bench, of) = (Bench::new(), thread("a"));
    let first = bench.add(&of, None, Vec::new());
    let id = bench.ids.checkpoint(Timestamp::from_micros(2), 0, Some(&first));
    let mut batch = Batch::new(of.clone(), Namespace::root(), Some(first));
    let tasks = vec![task(1, "a")];
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(first)), tasks, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    (bench, of, vec![first, id], task(1, "a"))
}

#[test]
fn a_head_is_known_from_the_commit_that_made_it_until_another_handle_commits() {
    let (mut bench, of, ids, _) = two();
    assert!(is_known(&bench.store, &of));
    assert_eq!(same(&bench, &of), StoredHead::new(ids[1], false, Vec::new()));
    assert!(!is_known(&bench.store, &thread("b")));

    // A commit of another handle to another thread counts as well.
    let other = open(&bench.path());
    let mut batch = Batch::new(thread("b"), Namespace::root(), None);
    batch.checkpoints.push(checkpoint(bench.ids.checkpoint(Timestamp::from_micros(3), 0, None)));
    other.commit(&batch).unwrap();
    assert!(!is_known(&bench.store, &of));
    assert_eq!(same(&bench, &of).checkpoint, ids[1]);

    let id = bench.ids.checkpoint(Timestamp::from_micros(4), 0, Some(&ids[1]));
    let mut batch = Batch::new(of.clone(), Namespace::root(), Some(ids[1]));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(ids[1])), ..checkpoint(id) });
    other.commit(&batch).unwrap();
    assert!(is_known(&other, &of) && !is_known(&bench.store, &of));
    assert_eq!(same(&bench, &of).checkpoint, id);
}

#[test]
fn a_head_with_writes_a_moved_head_and_a_deleted_thread_are_read() {
    let (bench, of, ids, task) = two();
    let mut batch = Batch::new(of.clone(), Namespace::root(), Some(ids[1]));
    batch.writes.push(writes(ids[1], &task, vec![write(0, "x", WriteValue::One(plain(b"1")))]));
    bench.store.commit(&batch).unwrap();
    assert!(!is_known(&bench.store, &of));
    assert_eq!(same(&bench, &of).writes.len(), 1);

    let (bench, of, ids, _) = two();
    let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
    rewind.changes = vec![OperationChange::head(of.clone(), Namespace::root(), Some(ids[1]), Some(ids[0]))];
    bench.store.operate(&rewind).unwrap();
    assert!(!is_known(&bench.store, &of));
    assert_eq!(same(&bench, &of), StoredHead::new(ids[0], true, Vec::new()));

    let (bench, of, ..) = two();
    _ = bench.store.delete_threads(std::slice::from_ref(&of)).unwrap();
    assert!(!is_known(&bench.store, &of));
    assert_eq!(head(&bench.store, &of), None);
}

#[test]
fn a_refused_batch_changes_no_head_and_a_head_has_the_lease_of_its_thread() {
    let (mut bench, of, ids, _) = two();
    let late = bench.ids.checkpoint(Timestamp::from_micros(9), 0, Some(&ids[1]));
    let mut batch = Batch::new(of.clone(), Namespace::root(), Some(ids[0]));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(ids[0])), ..checkpoint(late) });
    assert!(matches!(bench.store.commit(&batch), Err(StoreError::Conflict { .. })));
    assert_eq!(same(&bench, &of).checkpoint, ids[1]);

    let claim = |owner, now, until| {
        let (now, until) = (Timestamp::from_micros(now), Timestamp::from_micros(until));
        Batch::of_lease(of.clone(), NewLease::claim(LeaseOwner::new([owner; 16]), now, until))
    };
    bench.store.commit(&claim(1, 5, 9)).unwrap();
    let lease = same(&bench, &of).lease.unwrap();
    assert_eq!((lease.epoch, lease.owner), (1, LeaseOwner::new([1; 16])));
    open(&bench.path()).commit(&claim(2, 20, 30)).unwrap();
    assert_eq!(same(&bench, &of).lease.map(|lease| lease.epoch), Some(2));
}

#[test]
fn a_timer_that_another_handle_has_put_is_dropped_by_the_superstep_that_passes_it() {
    let (mut bench, of, ids, task) = two();
    let other = open(&bench.path());
    let mut batch = Batch::new(of.clone(), Namespace::root(), Some(ids[1]));
    batch.writes.push(writes(ids[1], &task, vec![write(0, "x", WriteValue::One(plain(b"1")))]));
    batch.timers.push(NewTimer::new(ids[1], task.id, Some(Timestamp::from_micros(1))));
    other.commit(&batch).unwrap();
    assert_eq!(bench.store.timers(None, 9).unwrap().len(), 1);
    bench.add(&of, Some(ids[1]), Vec::new());
    assert_eq!(other.timers(None, 9).unwrap(), []);
    let rows: i64 = raw(&bench.path()).query_row("SELECT count(*) FROM timer", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}
