//! The runs of checkpoints: a namespace holds the id of a run once, and the later checkpoints of the run refer to it.

use super::*;
use crate::base::RunId;
use crate::store::Store;
use crate::store::log::CheckpointQuery;
use crate::store::prune::PruneSpan;
use crate::store::record::CheckpointRecord;

/// Commits a checkpoint of a run, which was made at a time, onto a parent of a thread or a namespace.
fn add(bench: &mut Bench, place: (&str, &str), parent: Option<Parent>, run: u8, micros: i64) -> CheckpointId {
    let (of, path) = (thread(place.0), Namespace::new(place.1).unwrap());
    let head = bench.store.head_id(&of, &path).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut new = checkpoint(id);
    (new.parent, new.created_at) = (parent, Timestamp::from_micros(micros));
    new.run = Some(RunId::from_bytes([run; 16]));
    new.changes = vec![value("x", micros.unsigned_abs(), plain(&[run; 30]))];
    let mut batch = Batch::new(of, path, head);
    batch.checkpoints.push(new);
    bench.store.commit(&batch).unwrap();
    id
}

/// A thread with two runs, one of which continues on a branch, a fork of it, and a run with an idempotency key.
fn filled() -> (Bench, Vec<(i64, String)>) {
    let mut bench = Bench::new();
    let a = ("a", "");
    let first = add(&mut bench, a, None, 1, 1_000_000);
    let second = add(&mut bench, a, Some(Parent::Local(first)), 1, 1_000_007);
    let third = add(&mut bench, a, Some(Parent::Local(second)), 2, 999_000);
    add(&mut bench, a, Some(Parent::Local(third)), 2, 998_000);
    add(&mut bench, a, Some(Parent::Local(second)), 1, 2_000_000);
    let fork = Parent::Fork(at(&thread("a"), second));
    let other = add(&mut bench, ("b", ""), Some(fork), 1, 5);
    add(&mut bench, ("b", ""), Some(Parent::Local(other)), 1, 6);
    let keyed = add(&mut bench, ("c", ""), None, 0x88, 7);
    add(&mut bench, ("c", ""), Some(Parent::Local(keyed)), 0x88, 8);
    let columns = [
        (1_000_000, "blob"),
        (7, "1"),
        (999_000, "blob"),
        (-1_000, "1"),
        (1_000_000, "4"),
        (5, "blob"),
        (1, "1"),
        (7, "blob"),
        (8, "blob"),
    ];
    (bench, columns.map(|(created_at, run)| (created_at, run.to_owned())).to_vec())
}

fn records(store: &impl Log) -> Vec<CheckpointRecord> {
    let mut found = Vec::new();
    for of in ["a", "b", "c"].map(thread) {
        let mut query = CheckpointQuery::new(of, Namespace::root());
        query.limit = 100;
        found.extend(store.checkpoints(&query).unwrap());
    }
    found.sort_by_key(|record| record.point.checkpoint);
    found
}

fn shown(records: &[CheckpointRecord]) -> Vec<(i64, u8)> {
    let run = |record: &CheckpointRecord| record.run.as_ref().unwrap().as_bytes()[0];
    records.iter().map(|record| (record.created_at.as_micros(), run(record))).collect()
}

const EXPECTED: [(i64, u8); 9] =
    [(1_000_000, 1), (1_000_007, 1), (999_000, 2), (998_000, 2), (2_000_000, 1), (5, 1), (6, 1), (7, 0x88), (8, 0x88)];

#[test]
fn a_run_is_held_once_in_a_namespace_and_shown_with_each_checkpoint() {
    let (bench, columns) = filled();
    let conn = raw(&bench.path());
    let mut stored = conn
        .prepare("SELECT created_at, iif(typeof(run) = 'blob', 'blob', CAST(run AS TEXT)) FROM checkpoint ORDER BY seq")
        .unwrap();
    let rows = stored.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(rows.map(Result::unwrap).collect::<Vec<(i64, String)>>(), columns);
    let mut view = conn.prepare("SELECT created_at, run FROM v_checkpoints ORDER BY seq").unwrap();
    let rows = view.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?[0]))).unwrap();
    let expected = EXPECTED.map(|(at, run)| (Timestamp::from_micros(at).to_string(), run));
    assert_eq!(rows.map(Result::unwrap).collect::<Vec<_>>(), expected);
    let mut found = records(&bench.store);
    found.sort_by_key(|record| record.seq);
    assert_eq!(shown(&found), EXPECTED);
    assert_eq!(bench.check(), Vec::<String>::new());
    // The last one of a run with a key is found by the index.
    let run = RunId::from_bytes([0x88; 16]);
    let last = bench.store.last_of_run(&thread("c"), &Namespace::root(), &run).unwrap().unwrap();
    assert_eq!(last.created_at.as_micros(), 8);
}

#[test]
fn a_recovery_and_a_pruning_retain_runs_and_times() {
    let (bench, _) = filled();
    let to = bench.folder.path().join("recovered.db");
    bench.store.checkpoint_wal().unwrap();
    let copy = bench.folder.path().join("copy.db");
    std::fs::copy(bench.path(), &copy).unwrap();
    assert!(Store::recover(&copy, &to).unwrap().is_complete());
    let mut recovered = records(&open(&to));
    recovered.sort_by_key(|record| record.seq);
    assert_eq!(shown(&recovered), EXPECTED);
    // The first checkpoint of a run is pruned, and still holds its id. Listings pass it over.
    assert_eq!(bench.store.prune(&thread("a"), &[PruneSpan::new(1, 0, 1)]).unwrap().checkpoints, 1);
    let mut kept = records(&bench.store);
    kept.sort_by_key(|record| record.seq);
    assert_eq!(shown(&kept), EXPECTED[1..]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_changed_run_is_noticed_where_it_is_held_and_where_it_is_referred_to() {
    for harm in [
        "UPDATE checkpoint SET run = zeroblob(16) WHERE seq = 1",
        "UPDATE checkpoint SET created_at = created_at + 1 WHERE seq = 1",
        "UPDATE checkpoint SET run = 2 WHERE seq = 4",
        "UPDATE checkpoint SET run = -9223372036854775808 WHERE seq = 2",
        "UPDATE checkpoint SET run = NULL WHERE seq = 2",
        "UPDATE checkpoint SET run = 1 WHERE seq = 5",
        "DELETE FROM checkpoint WHERE seq = 1",
    ] {
        let (bench, _) = filled();
        let last =
            records(&bench.store).into_iter().filter(|record| record.seq == 5 || record.seq == 4 || record.seq == 2);
        let points: Vec<CheckpointRef> = last.map(|record| record.point).collect();
        without_triggers(&bench.path()).execute_batch(harm).unwrap();
        let read = points.iter().map(|point| bench.store.checkpoint(point));
        assert!(read.into_iter().any(|read| read.is_err()), "{harm}");
        assert!(!bench.check().is_empty(), "{harm}");
    }
}
