//! A check of the rows that are newer than a point.

use super::*;
use crate::store::StoreError;
use crate::store::check::{CheckReport, CheckedUpTo};

const THREAD: &str = "a";

/// A store with a list of `items` and a checkpoint for each hundred of them, its head, and the point after it.
fn checked(items: u64) -> (Bench, CheckpointId, CheckedUpTo) {
    let mut bench = Bench::new();
    let t = thread(THREAD);
    let mut head = None;
    for n in 0..items / 100 {
        let puts = (n * 100..(n + 1) * 100).map(|at| put(at, &format!("item {at} {}", "x".repeat(60)))).collect();
        head = Some(bench.add(&t, head, vec![list(n + 1, puts), value("x", n + 1, plain(&[7; 50]))]));
    }
    let report = bench.store.check().unwrap();
    assert_eq!((report.checkpoints, &report.problems[..]), (items / 100, &[][..]));
    (bench, head.unwrap(), report.up_to.unwrap())
}

fn since(bench: &Bench, point: &CheckedUpTo) -> CheckReport {
    bench.store.check_since(point).unwrap()
}

#[test]
fn only_newer_rows_are_verified() {
    let (mut bench, head, point) = checked(20_000);
    let idle = since(&bench, &point);
    assert_eq!((idle.checkpoints, idle.values, idle.threads), (0, 0, 0));
    assert_eq!(idle.up_to.as_ref(), Some(&point));
    let t = thread(THREAD);
    let changes = vec![list(201, vec![put(20_000, "new")]), value("x", 201, plain(&[8; 50]))];
    let head = bench.add(&t, Some(head), changes);
    let appended = since(&bench, &point);
    assert_eq!((appended.checkpoints, appended.values, appended.threads), (1, 2, 1));
    // An item of an old position, a removal, and a range delete.
    let changes = vec![list(202, vec![put(5, "edited"), remove(7), delete_range(100, 300)])];
    let head = bench.add(&t, Some(head), changes);
    let edited = since(&bench, appended.up_to.as_ref().unwrap());
    assert_eq!((edited.checkpoints, edited.values), (1, 1));
    // A fork from the middle, in another thread.
    let before = bench.store.checkpoints_by_prefix(&t, &head.to_string()[..8], 1000).unwrap();
    let old = before.iter().find(|record| record.ordinal == 100).unwrap().point.clone();
    let fork = bench.add_on(&thread("b"), Some(Parent::Fork(old)), vec![list(102, vec![put(10_100, "fork")])]);
    assert!(fork > head);
    let forked = since(&bench, edited.up_to.as_ref().unwrap());
    assert_eq!((forked.checkpoints, forked.values, &forked.problems[..]), (1, 1, &[][..]));
    let all = since(&bench, &point);
    assert_eq!((all.checkpoints, all.threads, &all.problems[..]), (3, 2, &[][..]));
    assert_eq!(all.up_to, forked.up_to);
}

#[test]
fn damage_of_newer_rows_is_found() {
    for harm in [
        "UPDATE payload SET text = 'other' WHERE text = 'new'",
        "UPDATE blob SET hash = zeroblob(16)",
        "DELETE FROM payload WHERE text = 'new'",
        "UPDATE version SET kind = 9 WHERE ordinal = 10",
        "UPDATE checkpoint SET id = zeroblob(16) WHERE seq = 11",
        "UPDATE checkpoint SET parent = 8 WHERE seq = 11",
        "DELETE FROM item WHERE slot = 1000",
        "UPDATE checkpoint SET step = 9 WHERE seq = 11",
        "UPDATE checkpoint SET namespace = 9 WHERE seq = 11",
        "UPDATE branch SET depth = 9 WHERE id = 2",
        "UPDATE write SET sum = NULL",
    ] {
        let (mut bench, head, point) = checked(1_000);
        let (t, a) = (thread(THREAD), task(1, "a"));
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&head));
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(head));
        batch.checkpoints.push(NewCheckpoint {
            parent: Some(Parent::Local(head)),
            changes: vec![list(11, vec![put(1_000, "new")]), value("y", 11, plain(&[9; 2_000]))],
            tasks: vec![a.clone()],
            ..checkpoint(id)
        });
        bench.store.commit(&batch).unwrap();
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(id));
        batch.writes = vec![writes(id, &a, vec![write(0, "y", WriteValue::One(plain(&[9])))])];
        bench.store.commit(&batch).unwrap();
        bench.add_on(&thread("b"), Some(Parent::Fork(at(&t, head))), vec![value("x", 12, plain(&[1; 40]))]);
        assert_eq!(since(&bench, &point).problems, []);
        without_triggers(&bench.path()).execute_batch(harm).unwrap();
        let report = since(&bench, &point);
        assert!(!report.problems.is_empty() && report.up_to.is_none(), "{harm}: {:?}", report.problems);
    }
}

#[test]
fn older_rows_are_read_only_where_newer_ones_refer_to_them() {
    let (mut bench, head, point) = checked(1_000);
    bench.add(&thread(THREAD), Some(head), vec![value("x", 11, plain(&[1; 40]))]);
    without_triggers(&bench.path()).execute_batch("DELETE FROM payload WHERE id < 100").unwrap();
    assert_eq!(since(&bench, &point).problems, []);
    assert!(!bench.store.check().unwrap().problems.is_empty());
}

#[test]
fn a_point_of_another_file_is_refused() {
    let (bench, _, point) = checked(1_000);
    let mut other = Bench::new();
    other.add(&thread("other"), None, vec![]);
    let refused = other.store.check_since(&point).unwrap_err();
    assert!(refused.to_string().contains("the file ends before it"), "{refused}");
    let first = other.store.check().unwrap().up_to.unwrap();
    let refused = bench.store.check_since(&first).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "point of a check", .. }), "{refused}");
    assert!(refused.to_string().contains("it is of another file"), "{refused}");
    // A point stays valid when its checkpoint is deleted.
    _ = bench.store.delete_threads(&[thread(THREAD)]).unwrap();
    assert_eq!(since(&bench, &point).problems, []);
}
