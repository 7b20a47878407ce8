//! Outcomes: a commit that failed has a definite outcome if it can have one, and the handle goes on.

use super::super::fault::is_full;
use super::*;
use crate::store::StoreError;
use crate::store::side_tables::{KvChange, KvNamespace, SideTables};
use crate::store::sqlite::writer::group::PlantedFault;
use crate::store::sqlite::writer::job::JobRef;
use rusqlite::ffi;

fn one(bench: &mut Bench, head: Option<CheckpointId>, byte: u8) -> Batch {
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(thread("a"), Namespace::root(), head);
    let changes = vec![value("x", u64::from(byte), plain(&[byte; 40]))];
    batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
    batch
}

fn plant(bench: &Bench, faults: &[PlantedFault]) {
    bench.store.writer.as_ref().unwrap().plant(faults);
}

fn head(bench: &Bench) -> Option<CheckpointId> {
    bench.store.head_id(&thread("a"), &Namespace::root()).unwrap()
}

/// Commits once with planted faults, then three times without, and checks that the file holds every acknowledged
/// commit.
fn commits(faults: &[PlantedFault]) -> Result<(), StoreError> {
    let mut bench = Bench::new();
    let first = one(&mut bench, None, 1);
    bench.store.commit(&first).unwrap();
    let second = one(&mut bench, first.head_after(), 2);
    plant(&bench, faults);
    let outcome = bench.store.commit(&second);
    // The repeat is safe, whatever came before.
    bench.store.commit(&second).unwrap();
    let third = one(&mut bench, second.head_after(), 3);
    bench.store.commit(&third).unwrap();
    assert_eq!(head(&bench), third.head_after());
    let path = bench.path();
    drop(bench.store);
    let report = open(&path).check().unwrap();
    assert_eq!((report.checkpoints, report.problems), (3, Vec::new()));
    outcome
}

#[test]
fn errors_before_the_end_of_a_commit_write_nothing_and_end_no_handle() {
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_READ] {
        let Err(error @ StoreError::Write { .. }) = commits(&[PlantedFault::Lost(code)]) else { panic!("{code}") };
        assert_eq!(is_full(&error), code == ffi::SQLITE_FULL, "{code}: {error:?}");
    }
}

#[test]
fn a_commit_that_failed_once_is_repeated_on_a_new_connection() {
    for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_NOMEM, ffi::SQLITE_IOERR_SHMMAP] {
        commits(&[PlantedFault::Lost(code)]).unwrap();
        commits(&[PlantedFault::Stored(code)]).unwrap();
    }
}

#[test]
fn a_commit_that_fails_again_has_an_unknown_outcome_and_ends_no_handle() {
    let code = ffi::SQLITE_IOERR_FSYNC;
    for faults in [
        [PlantedFault::Lost(code), PlantedFault::Lost(code)],
        [PlantedFault::Lost(code), PlantedFault::Stored(code)],
        [PlantedFault::Stored(code), PlantedFault::Lost(code)],
    ] {
        let outcome = commits(&faults);
        assert!(matches!(outcome, Err(StoreError::OutcomeUnknown { .. })), "{faults:?}: {outcome:?}");
    }
}

#[test]
fn entries_beside_the_log_are_repeated_too() {
    let bench = Bench::new();
    let namespace = KvNamespace::new(["n"]).unwrap();
    let now = Timestamp::from_micros(5);
    let put = |key: &str| KvChange::Put {
        namespace: namespace.clone(),
        key: key.into(),
        value: crate::base::Encoded { codec: crate::base::Codec::default(), bytes: vec![0x80] },
        now,
        expires_at: None,
    };
    plant(&bench, &[PlantedFault::Lost(ffi::SQLITE_IOERR_FSYNC)]);
    bench.store.commit_kv(&[put("lost")]).unwrap();
    plant(&bench, &[PlantedFault::Stored(ffi::SQLITE_IOERR_FSYNC)]);
    bench.store.commit_kv(&[put("stored")]).unwrap();
    for key in ["lost", "stored"] {
        assert!(bench.store.kv_entry(&namespace, key, now).unwrap().is_some(), "{key}");
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_handle_that_cannot_be_repaired_refuses_what_it_never_tried() {
    let mut bench = Bench::new();
    let first = one(&mut bench, None, 1);
    bench.store.commit(&first).unwrap();
    let second = one(&mut bench, first.head_after(), 2);
    plant(&bench, &[PlantedFault::Lost(ffi::SQLITE_IOERR_FSYNC)]);
    // The file cannot be opened again.
    let moved = bench.folder.path().join("moved.db");
    std::fs::rename(bench.path(), &moved).unwrap();
    assert!(matches!(bench.store.commit(&second), Err(StoreError::OutcomeUnknown { .. })));
    std::fs::rename(&moved, bench.path()).unwrap();
    for _ in 0..2 {
        let refused = bench.store.commit(&second);
        assert!(matches!(refused, Err(StoreError::HandleClosed { .. })), "{refused:?}");
        assert!(matches!(bench.store.submit(second.clone()).wait(), Err(StoreError::HandleClosed { .. })));
    }
    assert!(matches!(bench.store.checkpoint_wal(), Err(StoreError::HandleClosed { .. })));
    let path = bench.path();
    drop(bench.store);
    let again = open(&path);
    again.commit(&second).unwrap();
    assert_eq!(again.check().unwrap().problems, []);
}

#[test]
fn what_a_group_has_read_after_a_refused_batch_is_not_retained_past_a_failed_commit() {
    let mut bench = Bench::new();
    let mut of = |name: &str, byte: u8| Batch { thread: thread(name), ..one(&mut bench, None, byte) };
    let (first, mut half, stale) = (of("new", 1), of("a", 2), of("new", 3));
    let (mut late, next) = (of("z", 4), of("b", 5));
    // It is refused once a row of its first part is written.
    late.expect[0].head = first.head_after();
    half.then.push(late);
    plant(&bench, &[PlantedFault::Lost(ffi::SQLITE_FULL)]);
    let jobs = [JobRef::Log(&first), JobRef::Log(&half), JobRef::Log(&stale)];
    let outcomes = bench.store.writer.as_ref().unwrap().write_as_group(&jobs);
    let [Err(StoreError::Write { .. }), Err(StoreError::Conflict { .. }), Err(StoreError::Conflict { .. })] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}");
    };
    // It takes the numbers of the thread that was not made.
    bench.store.commit(&next).unwrap();
    bench.store.commit(&first).unwrap();
    for batch in [&next, &first] {
        let found = bench.store.head_id(&batch.thread, &Namespace::root()).unwrap();
        assert_eq!(found, batch.head_after(), "{}", batch.thread);
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_panic_of_a_job_gives_the_write_lock_back() {
    let mut bench = Bench::new();
    let first = one(&mut bench, None, 1);
    bench.store.commit(&first).unwrap();
    let second = one(&mut bench, first.head_after(), 2);
    plant(&bench, &[PlantedFault::PanicOfJob]);
    let outcome = bench.store.commit(&second);
    assert!(matches!(&outcome, Err(StoreError::Write { reason, .. }) if reason.contains("panic")), "{outcome:?}");
    // Another handle does not wait, and this one goes on.
    let other = SqliteBackend::open(&bench.path(), &options().busy_timeout_ms(0)).unwrap();
    other.commit(&second).unwrap();
    let third = one(&mut bench, second.head_after(), 3);
    bench.store.commit(&third).unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
}

/// Copies a store that is open, with its log: what is left of one whose process was killed.
fn killed(bench: &Bench, name: &str) -> std::path::PathBuf {
    let copy = bench.folder.path().join(name);
    std::fs::copy(bench.path(), &copy).unwrap();
    std::fs::copy(bench.folder.path().join("x.db-wal"), wal_of(&copy)).unwrap();
    copy
}

fn wal_of(path: &std::path::Path) -> std::path::PathBuf {
    path.with_extension("db-wal")
}

/// Returns the salts of the log: they change when it begins anew.
fn salts(path: &std::path::Path) -> Vec<u8> {
    std::fs::read(wal_of(path)).unwrap()[16..24].to_vec()
}

#[test]
fn a_log_that_is_found_begins_anew_before_the_first_commit() {
    let mut bench = Bench::new();
    let first = one(&mut bench, None, 1);
    bench.store.commit(&first).unwrap();
    let second = one(&mut bench, first.head_after(), 2);
    let path = killed(&bench, "killed.db");
    let found = salts(&path);
    let store = open(&path);
    assert_eq!(store.head_id(&thread("a"), &Namespace::root()).unwrap(), first.head_after());
    assert_eq!(salts(&path), found, "to open and to read does not change the log");
    // A row that is found as stored is acknowledged, so it must be durable as well.
    store.commit(&first).unwrap();
    assert_ne!(salts(&path), found);
    store.commit(&second).unwrap();
    let third = one(&mut bench, second.head_after(), 3);
    let begun = salts(&path);
    store.commit(&third).unwrap();
    assert_eq!(salts(&path), begun, "the log of the handle itself goes on");
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn a_reader_of_a_log_that_is_found_does_not_delay_a_commit() {
    let mut bench = Bench::new();
    let mut next = one(&mut bench, None, 1);
    bench.store.commit(&next).unwrap();
    let path = killed(&bench, "killed.db");
    let found = salts(&path);
    let reader = raw(&path);
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint").unwrap();
    let store = open(&path);
    let mut commit = |bench: &mut Bench, byte| {
        next = one(bench, next.head_after(), byte);
        store.commit(&next).unwrap();
    };
    for byte in 2..5 {
        commit(&mut bench, byte);
        assert_eq!(salts(&path), found);
    }
    reader.execute_batch("COMMIT").unwrap();
    commit(&mut bench, 5);
    assert_ne!(salts(&path), found, "the log begins anew once the reader has ended");
    assert_eq!((store.check().unwrap().problems, store.pool.read(|view| view.last_seq()).unwrap()), (vec![], 5));
}
