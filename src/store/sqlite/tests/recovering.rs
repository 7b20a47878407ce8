//! Recovery: files that it accepts, sound rows of damaged files, and the list of losses.

use super::*;
use crate::limits::LOST_MAX;
use crate::store::operation::{NewOperation, OperationChange, OperationKind};
use crate::store::prune::PruneSpan;
use crate::store::recovery::{LostKind, Recovery};
use crate::store::side_tables::{KvChange, KvNamespace, SideTables};
use crate::store::sqlite::file::paths::beside;
use crate::store::{Store, StoreError};
use std::fs;

/// A closed store of some checkpoints of one thread.
fn closed(count: u64) -> (TempDir, PathBuf, Vec<CheckpointId>) {
    let mut bench = Bench::new();
    let mut ids: Vec<CheckpointId> = Vec::new();
    for n in 0..count {
        ids.push(bench.add(&thread("a"), ids.last().copied(), vec![list(n + 1, vec![put(n, "text")])]));
    }
    bench.store.checkpoint_wal().unwrap();
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path, ids)
}

/// Recovers a file to a new one in its folder.
fn recovered(path: &Path) -> Result<Recovery, StoreError> {
    let to = path.with_file_name("recovered.db");
    _ = fs::remove_file(&to);
    Store::recover(path, &to)
}

fn with_bytes(path: &Path, at: usize, bytes: &[u8]) {
    let mut all = fs::read(path).unwrap();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(path, all).unwrap();
}

#[test]
fn a_byte_of_the_id_of_a_store_may_be_damaged_but_not_two() {
    let (_folder, path, _) = closed(2);
    let id: Vec<u8> = fs::read(&path).unwrap()[68..72].to_vec();
    for (first, second) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
        let mut damaged = id.clone();
        damaged[first] ^= 0xff;
        with_bytes(&path, 68, &damaged);
        assert_eq!(recovered(&path).unwrap().checkpoints, 2, "byte {first}");
        damaged[second] ^= 0xff;
        with_bytes(&path, 68, &damaged);
        let error = recovered(&path).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "bytes {first} and {second}: {error}");
    }
    // Without the magic number nothing is known of the file but its rows.
    with_bytes(&path, 0, b"sqlite");
    assert_eq!(recovered(&path).unwrap().checkpoints, 2);
    let (_folder, path, _) = closed(0);
    with_bytes(&path, 68, &[1, 2, 3, 4]);
    with_bytes(&path, 0, b"sqlite");
    let error = recovered(&path).unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    with_bytes(&path, 68, &id);
    let empty = recovered(&path).unwrap();
    assert_eq!((empty.checkpoints, empty.entries), (0, 0));
}

#[test]
fn a_file_of_entries_alone_is_known_by_them() {
    let bench = Bench::new();
    let namespace = KvNamespace::new(["users"]).unwrap();
    let value = crate::base::Encoded { codec: crate::base::Codec::MsgPack, bytes: vec![1] };
    let now = Timestamp::from_micros(5);
    let put = KvChange::Put { namespace, key: "name".into(), value, now, expires_at: None };
    bench.store.commit_kv(&[put]).unwrap();
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    with_bytes(&path, 68, &[1, 2, 3, 4]);
    with_bytes(&path, 0, b"sqlite");
    let report = recovered(&path).unwrap();
    assert_eq!((report.checkpoints, report.entries), (0, 1));
}

#[test]
fn the_number_of_the_format_counts_where_the_schema_is_of_none() {
    for (format, expected) in [(2, None), (0x0102_0004, None), (1, Some(2)), (0, Some(2))] {
        let (_folder, path, _) = closed(2);
        raw(&path).execute_batch(&format!("DROP VIEW v_messages; PRAGMA user_version = {format}")).unwrap();
        match (recovered(&path), expected) {
            (Ok(report), Some(expected)) => assert_eq!(report.checkpoints, expected, "{format}"),
            (Err(StoreError::NewerFormat { found, .. }), None) => assert_eq!(found, format),
            (other, _) => panic!("{format}: {other:?}"),
        }
    }
}

#[test]
fn a_file_of_a_page_is_read_and_a_shorter_one_is_not_a_store() {
    let (_folder, path, _) = closed(2);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..4_096]).unwrap();
    assert_eq!(recovered(&path).unwrap().checkpoints, 0);
    fs::write(&path, &bytes[..4_095]).unwrap();
    assert!(matches!(recovered(&path), Err(StoreError::NotAStore { .. })));
    // A part of a page at the end is not counted.
    fs::write(&path, [&bytes[..], &[0; 7]].concat()).unwrap();
    assert_eq!(recovered(&path).unwrap().checkpoints, 2);
}

#[test]
fn a_folder_is_no_file_and_one_in_the_place_of_the_log_is_passed_over() {
    let (folder, path, _) = closed(2);
    let inner = folder.path().join("folder");
    fs::create_dir(&inner).unwrap();
    let error = recovered(&inner).unwrap_err().to_string();
    assert!(error.contains("it is not a regular file"), "{error}");
    let error = recovered(&folder.path().join("missing.db")).unwrap_err().to_string();
    assert!(!error.contains("it is not a regular file"), "{error}");
    fs::create_dir(beside(&path, "-wal")).unwrap();
    assert_eq!(recovered(&path).unwrap().checkpoints, 2);
}

/// A log with an unknown format.
fn log_of_another_format() -> Vec<u8> {
    let mut log: Vec<u8> =
        [0x377f_0682, 3_007_001, 4_096, 0, 1, 2].into_iter().flat_map(|word: u32| word.to_be_bytes()).collect();
    let (mut first, mut second) = (0_u32, 0_u32);
    for pair in log.chunks(8) {
        let word = |at: usize| u32::from_le_bytes(pair[at..at + 4].try_into().unwrap());
        first = first.wrapping_add(word(0)).wrapping_add(second);
        second = second.wrapping_add(word(4)).wrapping_add(first);
    }
    log.extend([first, second].into_iter().flat_map(u32::to_be_bytes));
    log.resize(5_000, 0);
    log
}

#[test]
fn a_log_is_lost_only_if_there_is_one() {
    for (log, is_lost) in [(None, false), (Some(Vec::new()), false), (Some(log_of_another_format()), true)] {
        let (_folder, path, _) = closed(2);
        if let Some(log) = log {
            fs::write(beside(&path, "-wal"), log).unwrap();
        }
        let report = recovered(&path).unwrap();
        let lost: Vec<LostKind> = report.lost.iter().map(|lost| lost.kind).collect();
        assert_eq!((lost, report.checkpoints), (vec![LostKind::Log; usize::from(is_lost)], 2));
    }
}

#[test]
fn the_state_behind_pruned_checkpoints_is_not_read_through_another_schema() {
    let (_folder, path, _) = closed(4);
    let store = open(&path);
    assert_eq!(store.prune(&thread("a"), &[PruneSpan::new(1, 0, 1)]).unwrap().checkpoints, 2);
    drop(store);
    assert_eq!(recovered(&path).unwrap().checkpoints, 2);
    raw(&path).execute_batch("DROP VIEW v_messages").unwrap();
    let report = recovered(&path).unwrap();
    assert_eq!((report.checkpoints, report.lost_count), (0, 5), "{report:?}");
}

#[test]
fn so_many_losses_are_listed_and_all_are_counted() {
    let (_folder, path, _) = closed(2);
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= {LOST_MAX})");
    let entries = "INSERT INTO kv (namespace, key, created_at, updated_at, xxh3, codec, data) {numbers} \
                   SELECT 99, 'k' || i, 1, 1, 0, 0, x'00' FROM n";
    let checkpoints = "INSERT INTO checkpoint \
                       (seq, namespace, id, branch, ordinal, step, source, created_at, sum, xxh3) {numbers} \
                       SELECT 100 + i, 99, CAST(printf('%016d', i) AS BLOB), 1, 10 + i, 0, 1, 0, zeroblob(16), 0 \
                       FROM n";
    make_groups(&path);
    let sound = fs::read(&path).unwrap();
    for (insert, kind) in [(entries, LostKind::Entry), (checkpoints, LostKind::Checkpoint)] {
        fs::write(&path, &sound).unwrap();
        without_triggers(&path).execute_batch(&insert.replace("{numbers}", &numbers)).unwrap();
        let report = recovered(&path).unwrap();
        assert_eq!((report.checkpoints, report.lost_count), (2, LOST_MAX as u64 + 1), "{kind:?}");
        assert_eq!(report.lost.len(), LOST_MAX);
        assert!(report.lost.iter().all(|lost| lost.kind == kind));
    }
}

/// A store whose head was moved back from the third checkpoint to the first.
fn moved() -> (TempDir, PathBuf, Vec<CheckpointId>) {
    let (folder, path, ids) = closed(3);
    let store = open(&path);
    let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
    rewind.changes = vec![OperationChange::head(thread("a"), Namespace::root(), Some(ids[2]), Some(ids[0]))];
    assert_eq!(store.operate(&rewind).unwrap(), 1);
    drop(store);
    (folder, path, ids)
}

#[test]
fn a_move_from_a_lost_checkpoint_is_lost_with_it() {
    let (_folder, path, _) = moved();
    let report = recovered(&path).unwrap();
    assert_eq!((report.checkpoints, report.operations, report.lost_count), (3, 1, 0));
    without_triggers(&path).execute_batch("UPDATE checkpoint SET step = step + 1 WHERE seq = 3").unwrap();
    let report = recovered(&path).unwrap();
    assert_eq!((report.checkpoints, report.operations), (2, 0), "{report:?}");
    assert_eq!(
        report.lost.iter().map(|lost| lost.kind).collect::<Vec<_>>(),
        [LostKind::Checkpoint, LostKind::Operation]
    );
}

#[test]
fn a_move_from_a_checkpoint_that_was_pruned_since_is_recovered() {
    let (folder, path, ids) = moved();
    let mut bench = Bench { folder, store: open(&path), ids: IdSource::from_seed(8) };
    // The first branch goes on, so the checkpoint from which the head was moved is not its last any more.
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&ids[2]));
    let mut batch = Batch::new(thread("a"), Namespace::root(), Some(ids[0]));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(ids[2])), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    let pruned = bench.store.prune(&thread("a"), &[PruneSpan::new(1, 1, 2)]).unwrap();
    assert_eq!(pruned.checkpoints, 2, "that checkpoint is one of them");
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    let report = recovered(&path).unwrap();
    assert_eq!((report.checkpoints, report.operations, report.lost_count), (2, 1, 0), "{report:?}");
    let store = open(&path.with_file_name("recovered.db"));
    assert_eq!(store.head_id(&thread("a"), &Namespace::root()).unwrap(), Some(id));
}
