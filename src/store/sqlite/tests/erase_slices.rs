//! Slices of an erasure: a transaction reclaims rows up to a cost, and a row goes before that which leads to it.

use super::super::fault::is_full;
use super::*;
use crate::limits::RECLAIM_COST_MAX;
use crate::store::StoreError;
use crate::store::log::Erasure;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::sqlite::commit::replaced;
use crate::store::sqlite::remove::erase::{self, EraseJob, EraseStep, Tombstones};
use crate::store::sqlite::writer::group::PlantedFault;
use crate::store::sqlite::writer::job::JobRef;
use rusqlite::ffi;
use std::sync::Arc;

/// Does a step of an erasure, beside the background, which is not woken. Returns the tombstones after it.
pub(super) fn step(bench: &Bench, step: EraseStep) -> Tombstones {
    let job = EraseJob { step, left: Arc::default() };
    bench.store.writer.as_ref().unwrap().commit(JobRef::Erase(&job)).unwrap();
    job.left.lock().clone()
}

pub(super) fn hide(bench: &Bench, threads: Vec<ThreadId>) {
    let count = threads.len();
    let left = step(bench, EraseStep::HideAlone(threads));
    assert_eq!((left.stored.len(), left.logged.len()), (count, 0));
}

fn rows(bench: &Bench, table: &str) -> i64 {
    raw(&bench.path()).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// Commits threads of one checkpoint with changes each.
fn threads(bench: &mut Bench, count: usize, changes: impl Fn(usize) -> Vec<Change>) -> Vec<ThreadId> {
    let threads: Vec<ThreadId> = (0..count).map(|n| thread(&format!("t{n}"))).collect();
    for (n, thread) in threads.iter().enumerate() {
        bench.add(thread, None, changes(n));
    }
    threads
}

/// Hides threads of one checkpoint with changes each, and returns how many of them the first slice erases.
fn first_slice(changes: impl Fn(usize) -> Vec<Change>) -> usize {
    let mut bench = Bench::new();
    let all = threads(&mut bench, 140, changes);
    hide(&bench, all.clone());
    let left = step(&bench, EraseStep::Reclaim);
    assert_eq!(left.len(), all.len(), "a thread stays until the log is emptied");
    left.logged.len()
}

/// A value of a channel of its own.
fn own(n: usize, data: &[u8]) -> Vec<Change> {
    vec![value(&format!("x{n}"), 1, plain(data))]
}

#[test]
fn a_slice_costs_a_unit_for_each_row_and_more_for_its_value() {
    // A version, a branch, a checkpoint, a name and the end of the names cost one each, a namespace two.
    let row = 7;
    assert_eq!(first_slice(|n| own(n, &[n as u8])), RECLAIM_COST_MAX / row);
    // A payload costs one, and its bytes one for each 512.
    let text = |n: usize, bytes: usize| -> Vec<u8> { n.to_string().bytes().cycle().take(bytes).collect() };
    assert_eq!(first_slice(|n| own(n, &text(n, 300))), RECLAIM_COST_MAX / (row + 1));
    assert_eq!(first_slice(|n| own(n, &text(n, 1_400))), RECLAIM_COST_MAX / (row + 3));
    // So do those of a blob, with the last payload that has it.
    assert_eq!(first_slice(|n| own(n, &text(n + 1_000, 5_000))), RECLAIM_COST_MAX / (row + 10));
    assert_eq!(first_slice(|n| own(n, &text(1, 5_000))), RECLAIM_COST_MAX / (row + 1));
}

#[test]
fn a_payload_is_erased_with_the_blob_that_no_other_one_has() {
    let mut bench = Bench::new();
    for _ in 0..12 {
        threads(&mut bench, 1, |_| vec![value("x", 1, plain(&[1; 9_000]))]);
        step(&bench, EraseStep::Hide(vec![thread("t0")]));
    }
    threads(&mut bench, 2, |_| vec![value("x", 1, plain(&[2; 9_000]))]);
    let conn = without_triggers(&bench.path());
    let ids = |of: &str| -> Vec<i64> {
        let mut statement = conn.prepare(&format!("SELECT id FROM {of} ORDER BY id")).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let (payloads, blobs) = (ids("payload"), ids("blob"));
    assert_eq!((payloads.len(), blobs.len()), (2, 1));
    // The row of a payload has the number of its blob in place of the bytes.
    let number = blobs[0].to_string().len();
    assert!(number > 1, "{blobs:?}");
    assert_eq!(replaced::payload(&conn, payloads[0]).unwrap(), number);
    assert_eq!(ids("blob"), blobs);
    assert_eq!(replaced::payload(&conn, payloads[1]).unwrap(), number + 9_000);
    assert_eq!((ids("payload"), ids("blob")), (vec![], vec![]));
    assert_eq!(replaced::payload(&conn, payloads[1]).unwrap(), 0, "a missing payload does not stop an erasure");
}

#[test]
fn a_namespace_costs_what_the_changes_of_its_fields_do() {
    let mut bench = Bench::new();
    let all = threads(&mut bench, 60, |n| own(n, &[n as u8]));
    for thread in &all {
        let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(1));
        for n in 0..10 {
            let (field, text) = (OperationField::Fact(format!("{thread}-{n}")), OperationValue::Text("v".into()));
            operation.changes.push(OperationChange::new(thread.clone(), Namespace::root(), field, None, Some(text)));
        }
        bench.store.operate(&operation).unwrap();
    }
    let users = rows(&bench, "name_user") as usize;
    let names = users / all.len();
    assert_eq!(names * all.len(), users);
    hide(&bench, all);
    let left = step(&bench, EraseStep::Reclaim);
    assert_eq!(left.logged.len(), RECLAIM_COST_MAX / (6 + names + 20));
}

#[test]
fn a_branch_stays_until_its_rows_are_gone_and_a_thread_until_its_names_are() {
    let mut bench = Bench::new();
    let t = thread("t");
    let channels = |from: u64| (from..from + 450).map(|n| value(&format!("c{n}"), 1, plain(&[1]))).collect();
    let first = bench.add(&t, None, channels(0));
    bench.add(&t, Some(first), channels(450));
    hide(&bench, vec![t]);
    let tables = ["version", "branch", "checkpoint", "namespace", "name_user", "name"];
    let left = |bench: &Bench| tables.map(|table| rows(bench, table));
    assert_eq!(left(&bench), [900, 1, 2, 1, 900, 900]);
    assert_eq!(step(&bench, EraseStep::Reclaim).stored.len(), 1);
    assert_eq!(left(&bench), [132, 1, 2, 1, 900, 900]);
    assert_eq!(step(&bench, EraseStep::Reclaim).stored.len(), 1, "names are left");
    let names = 900 - (RECLAIM_COST_MAX as i64 - (132 + 1 + 2 + 2));
    assert_eq!(left(&bench), [0, 0, 0, 0, names, names]);
    let end = step(&bench, EraseStep::Reclaim);
    assert_eq!((end.stored.len(), end.logged.len(), left(&bench)), (0, 1, [0; 6]));
    bench.store.checkpoint_wal().unwrap();
    assert_eq!(step(&bench, EraseStep::Forget(end.logged)), Tombstones::default());
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_checkpoint_stays_until_its_writes_are_gone() {
    let mut bench = Bench::new();
    let (t, a) = (thread("t"), task(1, "a"));
    let first =
        NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)) };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first.clone());
    bench.store.commit(&batch).unwrap();
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
    let all = (0..900).map(|index| write(index, "x", WriteValue::One(plain(&[1])))).collect();
    batch.writes = vec![writes(first.id, &a, all)];
    bench.store.commit(&batch).unwrap();
    hide(&bench, vec![t]);
    assert_eq!(step(&bench, EraseStep::Reclaim).stored.len(), 1);
    // The branch and its row are gone at the cost of two.
    let written = 900 - (RECLAIM_COST_MAX as i64 - 2);
    assert_eq!((rows(&bench, "checkpoint"), rows(&bench, "write")), (1, written));
    assert_eq!(step(&bench, EraseStep::Reclaim).logged.len(), 1);
    assert_eq!((rows(&bench, "checkpoint"), rows(&bench, "write")), (0, 0));
}

#[test]
fn a_fork_is_erased_without_the_values_of_the_writes_of_its_source() {
    let mut bench = Bench::new();
    let (source, fork, a) = (thread("source"), thread("fork"), task(1, "a"));
    let first =
        NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)) };
    let mut batch = Batch::new(source.clone(), Namespace::root(), None);
    batch.checkpoints.push(first.clone());
    bench.store.commit(&batch).unwrap();
    let mut batch = Batch::new(source.clone(), Namespace::root(), Some(first.id));
    let large = |byte: u8| WriteValue::One(plain(&[byte; 300]));
    batch.writes = vec![writes(first.id, &a, vec![write(0, "x", large(1)), write(1, "messages", large(2))])];
    bench.store.commit(&batch).unwrap();
    let taken = |index| of_write(a.id, index, 0);
    let item = ItemChange { position: 0, op: ItemOp::Put(taken(1)), task: Some(0) };
    let changes = vec![
        Change { channel: "x".into(), version: 1, value: ChangeValue::Value(taken(0)), task: Some(0) },
        list(1, vec![item, put(1, "own")]),
        value("y", 1, plain(&[3; 300])),
    ];
    let begun = bench.add_on(&fork, Some(Parent::Fork(at(&source, first.id))), changes);
    // A later checkpoint of the fork has values of its own alone.
    bench.add(&fork, Some(begun), vec![value("y", 2, plain(&[4; 300]))]);
    assert_eq!((rows(&bench, "payload"), bench.check()), (5, vec![]));
    assert_eq!(bench.store.delete_threads(&[fork]).unwrap(), Erasure::Erased);
    assert_eq!(rows(&bench, "payload"), 2, "those of the writes stay, and no other one does");
    let stored = bench.store.writes(&at(&source, first.id)).unwrap();
    assert_eq!(stored.len(), 2);
    assert_eq!(bench.check(), Vec::<String>::new());
    assert_eq!(bench.store.delete_threads(&[source]).unwrap(), Erasure::Erased);
    assert_eq!(rows(&bench, "payload"), 0);
}

#[test]
fn names_that_another_thread_uses_are_not_counted_as_erased() {
    let mut bench = Bench::new();
    let all = threads(&mut bench, 2, |n| vec![value("x", 1, plain(&[n as u8]))]);
    let erased = |bench: &Bench| -> i64 {
        raw(&bench.path()).query_row("SELECT names_erased FROM high_water", [], |row| row.get(0)).unwrap()
    };
    for (n, thread) in all.into_iter().enumerate() {
        assert_eq!(bench.store.delete_threads(&[thread]).unwrap(), Erasure::Erased);
        assert_eq!((erased(&bench), rows(&bench, "name")), (n as i64, 1 - n as i64));
    }
}

#[test]
fn tombstones_count_those_with_rows_and_those_of_the_log() {
    assert_eq!(Tombstones { stored: vec![3, 4, 5], logged: vec![1, 2] }.len(), 5);
    let bench = Bench::new();
    let conn = without_triggers(&bench.path());
    conn.execute_batch("INSERT INTO tombstone (thread, state) VALUES (7, 0), (8, 1), (9, 0)").unwrap();
    let found = erase::tombstones(&conn).unwrap();
    assert_eq!(found, Tombstones { stored: vec![7, 9], logged: vec![8] });
}

#[test]
fn a_deletion_of_nothing_leaves_the_log_as_it_is() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![value("x", 1, plain(&[1; 99]))]);
    let wal = bench.folder.path().join("x.db-wal");
    let bytes = std::fs::metadata(&wal).unwrap().len();
    let before = bench.store.commit_stats().commits;
    assert_eq!(bench.store.delete_threads(&[thread("none")]).unwrap(), Erasure::Erased);
    assert!(bytes > 0 && std::fs::metadata(&wal).unwrap().len() == bytes);
    assert_eq!(bench.store.commit_stats().commits, before + 1);
    assert_eq!(bench.store.reclaim().unwrap(), Erasure::Erased);
    assert_eq!(bench.store.commit_stats().commits, before + 2, "what is erased is not looked at again");
}

#[test]
fn a_deletion_on_a_full_disk_hides_the_thread_alone() {
    let mut bench = Bench::new();
    let all = threads(&mut bench, 2, |n| vec![value("x", 1, plain(&[n as u8; 99]))]);
    let plant = |faults: &[PlantedFault]| bench.store.writer.as_ref().unwrap().plant(faults);
    plant(&[PlantedFault::Lost(ffi::SQLITE_FULL)]);
    assert_eq!(bench.store.delete_threads(&all[..1]).unwrap(), Erasure::Erased);
    plant(&[PlantedFault::Lost(ffi::SQLITE_FULL), PlantedFault::Lost(ffi::SQLITE_FULL)]);
    let error = bench.store.delete_threads(&all[1..]).unwrap_err();
    assert!(error.to_string().contains("the disk is full: a deletion first needs"), "{error}");
    // Another error is not taken for a full disk.
    plant(&[PlantedFault::Lost(ffi::SQLITE_IOERR_WRITE)]);
    let error = bench.store.delete_threads(&all[1..]).unwrap_err();
    assert!(matches!(&error, StoreError::Write { .. }) && !is_full(&error), "{error}");
    assert!(!error.to_string().contains("the disk is full"), "{error}");
    assert!(bench.store.head_id(&all[1], &Namespace::root()).unwrap().is_some());
}

#[test]
fn the_background_erases_what_a_reader_delayed() {
    let mut bench = Bench::new();
    threads(&mut bench, 1, |_| vec![value("x", 1, plain(&[1; 99]))]);
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM thread").unwrap();
    let erasure = bench.store.delete_threads(&[thread("t0")]).unwrap();
    assert_eq!(erasure, Erasure::ErasePending { threads: 1 });
    drop(reader);
    until("the background erases it", || rows(&bench, "tombstone") == 0);
}

#[test]
fn a_call_to_reclaim_waits_for_a_short_read_and_no_longer() {
    let mut bench = Bench::new();
    threads(&mut bench, 1, |_| vec![value("x", 1, plain(&[1; 99]))]);
    hide(&bench, vec![thread("t0")]);
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM thread").unwrap();
    assert_eq!(bench.store.reclaim().unwrap(), Erasure::ErasePending { threads: 1 });
    // The reader ends when the call has made its second attempt.
    let writer = Arc::clone(bench.store.writer.as_ref().unwrap());
    let (before, attempts) = (writer.stats().commits, Arc::downgrade(&writer));
    let mut reader = Some(reader);
    writer.on_steps(move || {
        if attempts.upgrade().is_some_and(|writer| writer.stats().commits > before + 1) {
            drop(reader.take());
        }
    });
    assert_eq!(bench.store.reclaim().unwrap(), Erasure::Erased);
    assert!(writer.stats().commits > before + 2, "it was attempted again");
}

#[test]
fn the_background_of_an_open_file_waits_for_its_next_look_at_the_trash() {
    let bench = Bench::new();
    let text = format!("{:?}", bench.store.eraser.as_ref().unwrap());
    assert!(text.starts_with("Eraser") && text.contains("Trash"), "{text}");
}
