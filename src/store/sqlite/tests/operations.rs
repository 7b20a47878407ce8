//! Rows of operations: their checks, the head after damage, and recovery of the rest.

use super::*;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::{Store, StoreError};

/// A store with three checkpoints, a head that was moved from the last to the first, and a named branch.
fn moved() -> (Bench, ThreadId, Vec<CheckpointId>) {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut all: Vec<CheckpointId> = Vec::new();
    for n in 1..=3 {
        let id = bench.add(&t, all.last().copied(), vec![value("x", n, plain(&[n as u8]))]);
        all.push(id);
    }
    let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
    rewind.actor = Some("Zoë".into());
    rewind.changes = vec![
        OperationChange::head(t.clone(), Namespace::root(), Some(all[2]), Some(all[0])),
        OperationChange::new(
            t.clone(),
            Namespace::root(),
            OperationField::Branch("bus".into()),
            None,
            Some(OperationValue::Checkpoint(all[1])),
        ),
    ];
    assert_eq!(bench.store.operate(&rewind).unwrap(), 1);
    assert_eq!(bench.check(), Vec::<String>::new());
    (bench, t, all)
}

#[test]
fn every_column_of_an_operation_is_covered_by_a_check() {
    for (harm, reads_head) in [
        ("UPDATE operation SET kind = 1", false),
        ("UPDATE operation SET seq = 2", false),
        ("UPDATE operation SET at = 8", false),
        ("UPDATE operation SET actor = 'Zoe'", false),
        ("UPDATE operation SET target = 1", false),
        ("UPDATE operation SET changes = 1", false),
        ("UPDATE operation SET id = 2", false),
        ("DELETE FROM operation", false),
        ("DELETE FROM operation_change", false),
        ("UPDATE operation_change SET after = 2 WHERE kind = 0", true),
        ("UPDATE operation_change SET before = 2 WHERE kind = 0", true),
        ("UPDATE operation_change SET newest = 2 WHERE kind = 0", true),
        ("UPDATE operation_change SET operation = 2 WHERE kind = 0", true),
        ("UPDATE operation_change SET namespace = 2 WHERE kind = 0", false),
        ("UPDATE operation_change SET kind = 1, key = 'x' WHERE kind = 0", false),
        ("UPDATE operation_change SET key = 'train' WHERE kind = 1", false),
        ("UPDATE operation_change SET after = NULL WHERE kind = 1", false),
    ] {
        let (bench, t, _) = moved();
        without_triggers(&bench.path()).execute_batch(harm).unwrap();
        assert!(!bench.check().is_empty(), "{harm}");
        let head = bench.store.head_id(&t, &Namespace::root());
        assert_eq!(matches!(head, Err(StoreError::Corrupt { .. })), reads_head, "{harm}: {head:?}");
    }
}

#[test]
fn a_move_to_a_missing_checkpoint_is_damage() {
    let (bench, t, all) = moved();
    without_triggers(&bench.path()).execute_batch("DELETE FROM checkpoint WHERE seq = 1").unwrap();
    assert!(matches!(bench.store.head(&t, &Namespace::root()), Err(StoreError::Corrupt { .. })));
    let mut batch = Batch::new(t, Namespace::root(), Some(all[0]));
    let child = NewCheckpoint::new(
        CheckpointId::from_bytes([0xff; 16]),
        Some(Parent::Local(all[0])),
        0,
        Source::Loop,
        Timestamp::default(),
    );
    batch.checkpoints.push(child);
    assert!(matches!(bench.store.commit(&batch), Err(StoreError::Corrupt { .. })));
    assert!(!bench.check().is_empty());
}

#[test]
fn the_log_refuses_changes_of_operations() {
    let (bench, ..) = moved();
    for table in ["operation", "operation_change"] {
        for change in [format!("UPDATE {table} SET xxh3 = 0"), format!("DELETE FROM {table}")] {
            let error = raw(&bench.path()).execute_batch(&change).unwrap_err();
            assert!(error.to_string().contains("append-only"), "{change}: {error}");
        }
    }
}

#[test]
fn a_damaged_operation_is_lost_and_the_checkpoints_are_recovered() {
    let (bench, t, all) = moved();
    let path = bench.path();
    without_triggers(&path).execute_batch("UPDATE operation_change SET after = 2 WHERE kind = 0").unwrap();
    drop(bench.store);
    let to = bench.folder.path().join("recovered.db");
    let report = Store::recover(&path, &to).unwrap();
    assert_eq!((report.checkpoints, report.operations), (3, 1), "the name is recovered: {report:?}");
    assert!(!report.is_complete());
    let store = open(&to);
    assert_eq!(store.head_id(&t, &Namespace::root()).unwrap(), Some(all[2]), "the newest checkpoint is the head again");
    assert_eq!(store.fields(&t).unwrap().len(), 1);
}

#[test]
fn another_process_sees_a_moved_head_and_goes_on_from_it() {
    let (bench, t, all) = moved();
    let other = open(&bench.path());
    assert_eq!(other.head_id(&t, &Namespace::root()).unwrap(), Some(all[0]));
    let mut ids = IdSource::from_seed(1);
    let id = ids.checkpoint(Timestamp::from_micros(1), 0, Some(&all[2]));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(all[0]));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(all[0])), ..checkpoint(id) });
    other.commit(&batch).unwrap();
    assert_eq!(bench.store.head_id(&t, &Namespace::root()).unwrap(), Some(id));
    assert_eq!(bench.check(), Vec::<String>::new());
}
