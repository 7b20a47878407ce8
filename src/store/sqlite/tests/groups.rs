//! Groups of jobs: each has an outcome of its own, whatever befalls the transaction, the log or another job.

use super::super::fault::{Fault, Res, corrupt, found_busy, is_no_database, refuses_locks};
use super::*;
use crate::limits::{ERROR_TEXT_BYTES_MAX, INHERITED_WAL_ATTEMPTS_MAX, WAL_MEASURED_BYTES, WRITER_CACHE_MAX};
use crate::store::chain::CommitChain;
use crate::store::sqlite::commit::heads::RetainedHeads;
use crate::store::sqlite::commit::ids::{NewIds, Table};
use crate::store::sqlite::file::wal_tail::FRAME_BYTES;
use crate::store::sqlite::rewrite::opening::writable;
use crate::store::sqlite::writer::group::{Core, PlantedFault, Transacted, WalCopy};
use crate::store::sqlite::writer::job::JobRef;
use crate::store::{Store, StoreError};
use rusqlite::{Connection, ffi};
use std::fs;

/// The connection that writes to a new file, without the threads of a handle.
fn core(folder: &Path, options: &OpenOptions) -> Core {
    let file = writable(&folder.join("x.db"), options).unwrap();
    Core::new(file.conn, file.place).unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A checkpoint onto the head of a thread, with a value of so many bytes.
fn on(ids: &mut IdSource, name: &str, head: Option<CheckpointId>, bytes: usize) -> Batch {
    let id = ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(thread(name), Namespace::root(), head);
    let changes = vec![value("x", 1, plain(&vec![7; bytes]))];
    batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
    batch
}

/// Writes batches as one group.
fn run(core: &mut Core, batches: &[&Batch]) -> Vec<Result<(), StoreError>> {
    core.begin().unwrap();
    let jobs: Vec<JobRef<'_>> = batches.iter().map(|batch| JobRef::Log(batch)).collect();
    core.run(&jobs).outcomes.into()
}

fn head_of(core: &Core, name: &str) -> i64 {
    let sql = "SELECT count(*) FROM checkpoint c JOIN namespace n ON n.id = c.namespace \
               JOIN thread t ON t.id = n.thread WHERE t.public_id = ?1";
    core.conn().query_row(sql, [name], |row| row.get(0)).unwrap()
}

/// A connection that holds the log as it is now.
fn reader(folder: &Path) -> Connection {
    let reader = raw(&folder.join("x.db"));
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint").unwrap();
    reader
}

fn wal_bytes(folder: &Path) -> u64 {
    fs::metadata(folder.join("x.db-wal")).unwrap().len()
}

fn failed(code: std::ffi::c_int) -> Fault {
    Fault::Sql(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

/// A batch that is taken for exactly so many frames of the log.
fn of_frames(frames: u64) -> Batch {
    let batch = |bytes| on(&mut IdSource::from_seed(2), "a", None, bytes);
    let bytes = (900_000..1_100_000).step_by(1_000).find(|bytes| JobRef::Log(&batch(*bytes)).frames() == frames);
    batch(bytes.unwrap())
}

#[test]
fn the_size_of_the_log_is_compared_with_its_limit_once_in_a_megabyte() {
    let megabyte = WAL_MEASURED_BYTES / FRAME_BYTES;
    let (short, whole) = (of_frames(megabyte - 1), of_frames(megabyte));
    let grown = |batch: &Batch, limit_bytes: u64| {
        let folder = folder();
        let mut core = core(folder.path(), &options().wal_limit_bytes(limit_bytes));
        let reader = reader(folder.path());
        run(&mut core, &[batch])[0].as_ref().unwrap();
        let checked = core.check_wal();
        drop(reader);
        (checked.map_err(Fault::into_read), wal_bytes(folder.path()))
    };
    assert!(grown(&short, 0).0.is_ok(), "the log is not looked at yet");
    let (unlimited, file_bytes) = grown(&whole, 1 << 30);
    unlimited.unwrap();
    // The header of the file is none of its frames.
    let bytes = file_bytes - 32;
    assert!(bytes % FRAME_BYTES == 0 && bytes > WAL_MEASURED_BYTES / 2, "{bytes}");
    assert!(grown(&whole, bytes).0.is_ok(), "a log may have as many bytes as its limit");
    for limit in [0, bytes / 2, bytes - 1] {
        let refused = grown(&whole, limit).0;
        let Err(StoreError::WalLimit { wal_bytes, limit_bytes }) = refused else { panic!("{limit}: {refused:?}") };
        assert_eq!((wal_bytes, limit_bytes), (bytes, limit));
    }
}

#[test]
fn a_log_past_its_limit_that_is_copied_refuses_nothing() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options().wal_limit_bytes(9_000));
    let batch = of_frames(WAL_MEASURED_BYTES / FRAME_BYTES);
    run(&mut core, &[&batch])[0].as_ref().unwrap();
    assert!(core.finish_wal(false).unwrap() && wal_bytes(folder.path()) > 9_000);
    core.check_wal().unwrap();
    // The next look comes after another megabyte.
    let _reader = reader(folder.path());
    let next = on(&mut ids, "a", batch.head_after(), 40_000);
    run(&mut core, &[&next])[0].as_ref().unwrap();
    core.check_wal().unwrap();
}

#[test]
fn frames_are_counted_from_group_to_group_until_they_are_counted_anew() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options());
    assert!(core.frames_since_checkpoint() == 0 && !core.has_written());
    let first = on(&mut ids, "a", None, 9_000);
    let second = on(&mut ids, "a", first.head_after(), 30_000);
    for batch in [&first, &second] {
        run(&mut core, &[batch])[0].as_ref().unwrap();
    }
    let frames = |batch: &Batch| JobRef::Log(batch).frames();
    assert_eq!(core.frames_since_checkpoint(), frames(&first) + frames(&second));
    assert!(core.has_written());
    core.count_anew();
    assert_eq!(core.frames_since_checkpoint(), 0);
}

#[test]
fn a_log_is_emptied_unless_a_reader_needs_it() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options());
    let first = on(&mut ids, "a", None, 9_000);
    run(&mut core, &[&first])[0].as_ref().unwrap();
    assert!(core.empty_wal().unwrap());
    assert_eq!(wal_bytes(folder.path()), 0);
    let reader = reader(folder.path());
    let second = on(&mut ids, "a", first.head_after(), 9_000);
    run(&mut core, &[&second])[0].as_ref().unwrap();
    assert!(!core.empty_wal().unwrap() && wal_bytes(folder.path()) > 0);
    drop(reader);
    assert!(core.empty_wal().unwrap());
    assert_eq!(wal_bytes(folder.path()), 0);
}

#[test]
fn a_log_is_whole_once_all_of_it_is_copied_and_nothing_was_in_the_way() {
    for (busy, copied, is_whole) in [(false, 5, true), (false, 4, false), (true, 5, false), (true, 4, false)] {
        assert_eq!(WalCopy { busy, frames: 5, copied }.is_whole(), is_whole, "{busy} {copied}");
    }
}

#[test]
fn a_log_that_is_found_is_left_after_some_attempts_beside_a_reader() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let path = folder.path().join("x.db");
    let killed = folder.path().join("killed.db");
    let mut last = on(&mut ids, "a", None, 99);
    {
        let store = open(&path);
        store.commit(&last).unwrap();
        fs::copy(&path, &killed).unwrap();
        fs::copy(path.with_extension("db-wal"), killed.with_extension("db-wal")).unwrap();
    }
    let salts = || fs::read(killed.with_extension("db-wal")).unwrap()[16..24].to_vec();
    let found = salts();
    let reader = raw(&killed);
    reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint").unwrap();
    let store = open(&killed);
    let mut commit = || {
        last = on(&mut ids, "a", last.head_after(), 99);
        store.commit(&last).unwrap();
    };
    (0..INHERITED_WAL_ATTEMPTS_MAX).for_each(|_| commit());
    drop(reader);
    commit();
    assert_eq!(salts(), found, "it goes on");
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn each_job_is_told_why_its_group_did_not_begin() {
    let folder = folder();
    let core = core(folder.path(), &options().busy_timeout_ms(33));
    let refused = |fault: Fault| -> Vec<StoreError> {
        core.refuse(fault, 3).outcomes.into_iter().map(Result::unwrap_err).collect()
    };
    let busy = refused(failed(ffi::SQLITE_BUSY));
    assert!(busy.iter().all(|error| matches!(error, StoreError::Busy { waited_ms: 33, .. })), "{busy:?}");
    let limit = refused(StoreError::WalLimit { wal_bytes: 9, limit_bytes: 8 }.into());
    let is_limit = |error: &StoreError| matches!(error, StoreError::WalLimit { wal_bytes: 9, limit_bytes: 8 });
    assert!(limit.iter().all(is_limit), "{limit:?}");
    let full = refused(failed(ffi::SQLITE_FULL));
    let of_group = |error: &StoreError| error.to_string().contains("the whole group of commits was rolled back");
    assert!(full.iter().all(|error| matches!(error, StoreError::Write { .. })), "{full:?}");
    assert_eq!(full.iter().map(of_group).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!([busy.len(), limit.len(), full.len()], [3; 3]);
}

#[test]
fn a_schema_that_another_connection_has_changed_is_verified_before_a_group_is_written() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options());
    let first = on(&mut ids, "a", None, 99);
    run(&mut core, &[&first])[0].as_ref().unwrap();
    let other = raw(&folder.path().join("x.db"));
    other.execute_batch("CREATE TRIGGER foreign_one AFTER INSERT ON checkpoint BEGIN SELECT 1; END").unwrap();
    let second = on(&mut ids, "a", first.head_after(), 99);
    let outcomes = run(&mut core, &[&second, &second]);
    assert!(outcomes.len() == 2 && outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert!(
        matches!(&outcomes[0], Err(StoreError::SchemaChanged { name, .. }) if name == "foreign_one"),
        "{outcomes:?}"
    );
    assert_eq!(head_of(&core, "a"), 1);
    other.execute_batch("DROP TRIGGER foreign_one").unwrap();
    run(&mut core, &[&second])[0].as_ref().unwrap();
}

#[test]
fn a_chain_ends_with_a_batch_that_is_refused_and_no_other_chain_does() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options());
    let (ends, goes_on) = (CommitChain::begin(), CommitChain::begin());
    let first = on(&mut ids, "a", None, 99);
    let stale = ends.append(on(&mut ids, "b", first.head_after(), 99));
    let (other, next) = (goes_on.append(on(&mut ids, "c", None, 99)), ends.append(on(&mut ids, "d", None, 99)));
    let outcomes = run(&mut core, &[&stale, &other, &next]);
    let [Err(StoreError::Conflict { .. }), Ok(()), Err(StoreError::Conflict { .. })] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(["b", "c", "d"].map(|name| head_of(&core, name)), [0, 1, 0]);
}

/// A batch whose second part is refused once the rows of its first part are written.
fn half(ids: &mut IdSource, name: &str) -> Batch {
    let mut half = on(ids, name, None, 99);
    let mut late = on(ids, "late", None, 99);
    late.expect[0].head = half.head_after();
    half.then.push(late);
    half
}

#[test]
fn a_job_that_is_refused_after_it_wrote_rows_leaves_none_beside_its_neighbours() {
    for count in [1, 2, 3] {
        let (folder, mut ids) = (folder(), IdSource::from_seed(3));
        let mut core = core(folder.path(), &options());
        let (half, after) = (half(&mut ids, "half"), on(&mut ids, "after", None, 99));
        let before = on(&mut ids, "before", None, 99);
        let outcomes = run(&mut core, &[&half, &after, &before][..count]);
        let is_done: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
        assert_eq!(is_done, [false, true, true][..count]);
        assert!(matches!(&outcomes[0], Err(StoreError::Conflict { .. })), "{outcomes:?}");
        let stored = ["half", "late", "after", "before"].map(|name| head_of(&core, name));
        assert_eq!(stored, [0, 0, i64::from(count > 1), i64::from(count > 2)]);
        drop(core);
        assert_eq!(open(&folder.path().join("x.db")).check().unwrap().problems, []);
    }
}

#[test]
fn a_transaction_that_sqlite_ended_is_told_with_the_reason_of_sqlite() {
    for begins_with_half in [false, true] {
        let (folder, mut ids) = (folder(), IdSource::from_seed(3));
        let mut core = core(folder.path(), &options());
        let ends = "CREATE TEMP TRIGGER ends BEFORE INSERT ON main.thread WHEN NEW.public_id = 'gone' \
                    BEGIN SELECT RAISE(ROLLBACK, 'the transaction is over'); END";
        core.conn().execute_batch(ends).unwrap();
        let (half, first) = (half(&mut ids, "half"), on(&mut ids, "a", None, 99));
        let (gone, last) = (on(&mut ids, "gone", None, 99), on(&mut ids, "z", None, 99));
        let jobs = [if begins_with_half { &half } else { &first }, &gone, &last];
        for outcome in run(&mut core, &jobs) {
            let Err(StoreError::Write { reason, .. }) = outcome else { panic!("{outcome:?}") };
            assert!(reason.contains("the transaction is over"), "{reason}");
        }
        assert_eq!(["half", "late", "a", "z"].map(|name| head_of(&core, name)), [0; 4]);
        run(&mut core, &[&last])[0].as_ref().unwrap();
    }
}

#[test]
fn a_commit_that_is_repeated_beside_a_rival_is_a_conflict_only_if_it_stores_a_checkpoint() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let path = folder.path().join("x.db");
    let other = open(&path);
    let a = task(1, "a");
    let first = on(&mut ids, "a", None, 99);
    let mut second = on(&mut ids, "b", None, 99);
    second.checkpoints[0].tasks = vec![a.clone()];
    for batch in [&first, &second] {
        other.commit(batch).unwrap();
    }
    let rivals = [on(&mut ids, "a", first.head_after(), 50), on(&mut ids, "b", second.head_after(), 50)];
    let steps = on(&mut ids, "a", first.head_after(), 60);
    let mut answers = Batch::new(thread("b"), Namespace::root(), second.head_after());
    let answer = write(0, "x", WriteValue::One(plain(&[9])));
    answers.writes = vec![writes(second.checkpoints[0].id, &a, vec![answer])];

    let mut file = writable(&path, &options()).unwrap();
    // Another process commits between the first attempt and the second one.
    let mut waiting = Some((open(&path), rivals.clone()));
    let hook = move || {
        if let Some((store, rivals)) = waiting.take() {
            rivals.iter().for_each(|rival| store.commit(rival).unwrap());
        }
    };
    file.conn.rollback_hook(Some(hook)).unwrap();
    let mut core = Core::new(file.conn, file.place).unwrap();
    core.plant(&[PlantedFault::Lost(ffi::SQLITE_IOERR_FSYNC)]);
    let outcomes = run(&mut core, &[&steps, &answers]);
    let [Err(StoreError::Conflict { .. }), Err(StoreError::OutcomeUnknown { reason })] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(reason.contains("when it was repeated"), "{reason}");
    for (name, rival) in ["a", "b"].iter().zip(&rivals) {
        assert_eq!(other.head_id(&thread(name), &Namespace::root()).unwrap(), rival.head_after());
    }
    assert_eq!(other.check().unwrap().problems, []);
}

#[test]
fn a_commit_that_failed_is_not_repeated_behind_a_log_that_a_reader_holds() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options().busy_timeout_ms(0));
    let first = on(&mut ids, "a", None, 99);
    run(&mut core, &[&first])[0].as_ref().unwrap();
    let reader = reader(folder.path());
    let second = on(&mut ids, "a", first.head_after(), 99);
    core.plant(&[PlantedFault::Lost(ffi::SQLITE_IOERR_FSYNC)]);
    core.begin().unwrap();
    let verdict = core.run(&[JobRef::Log(&second)]);
    assert!(matches!(verdict.outcomes[0], Err(StoreError::OutcomeUnknown { .. })), "{verdict:?}");
    let closed = verdict.closed.unwrap();
    assert!(closed.contains("the file cannot be used again"), "{closed}");
    assert!(!core.has_written(), "the connection is not read from");
    assert!(core.bare_head(&thread("a"), &Namespace::root()).is_none() && !core.empty_wal().unwrap());
    drop(reader);
    let store = open(&folder.path().join("x.db"));
    assert_eq!(store.head_id(&thread("a"), &Namespace::root()).unwrap(), first.head_after());
}

#[test]
fn a_head_is_known_to_the_connection_that_stored_it() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options());
    let (name, root) = (thread("a"), Namespace::root());
    assert!(core.bare_head(&name, &root).is_none());
    let first = on(&mut ids, "a", None, 99);
    run(&mut core, &[&first])[0].as_ref().unwrap();
    assert_eq!(core.bare_head(&name, &root).map(|head| head.checkpoint), first.head_after());
    // The write connection is read from once it has written.
    let store = open(&folder.path().join("y.db"));
    let writer = store.writer.as_ref().unwrap();
    assert_eq!(writer.read_if_idle(|_| 1), None);
    store.commit(&first).unwrap();
    assert_eq!(writer.read_if_idle(|_| 1), Some(1));
    assert_eq!(writer.bare_head(&name, &root).map(|head| head.checkpoint), first.head_after());
}

#[test]
fn retained_heads_are_forgotten_when_they_are_too_many() {
    let id = IdSource::from_seed(1).checkpoint(Timestamp::from_micros(1), 0, None);
    let mut heads = RetainedHeads::default();
    (0..WRITER_CACHE_MAX as i64).for_each(|namespace| heads.retain(namespace, (namespace, id)));
    heads.bound();
    assert_eq!((heads.bare(0), heads.bare(5)), (Some(id), Some(id)));
    heads.note_writes(5);
    assert_eq!((heads.bare(0), heads.bare(5)), (Some(id), None));
    heads.retain(-1, (1, id));
    heads.bound();
    assert_eq!((heads.bare(0), heads.bare(-1)), (None, None));
    heads.retain(-1, (1, id));
    (0..WRITER_CACHE_MAX as i64 + 9).for_each(|namespace| heads.retain(namespace, (namespace, id)));
    heads.bound();
    assert_eq!(heads.bare(-1), None);
}

#[test]
fn ids_are_read_again_once_they_are_forgotten() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![value("x", 1, plain(&[7; 99]))]);
    let conn = raw(&bench.path());
    let mut ids = NewIds::default();
    let first = ids.next(&conn, Table::Payload).unwrap();
    assert_eq!(ids.next(&conn, Table::Payload).unwrap(), first + 1);
    ids.forget();
    assert_eq!(ids.next(&conn, Table::Payload).unwrap(), first, "what was rolled back has no number");
    bench.add(&thread("b"), None, vec![value("x", 1, plain(&[8; 99]))]);
    assert_eq!(ids.next(&conn, Table::Payload).unwrap(), first + 1);
    ids.forget();
    assert_eq!(ids.next(&conn, Table::Payload).unwrap(), first + 1, "another connection took one");
}

#[test]
fn an_index_of_an_application_is_on_one_of_its_tables_and_has_a_name_of_it() {
    let bench = Bench::new();
    let store = Store::open(bench.path()).unwrap();
    let execute = |sql: &str| store.transaction(|tx| tx.execute_batch(sql));
    let is_refused_by_the_guard = |sql: &str| {
        let done: Result<(), StoreError> = execute(sql);
        assert!(matches!(&done, Err(StoreError::Sql { .. })), "{sql}: {done:?}");
    };
    execute("CREATE TABLE app_a (x)").unwrap();
    is_refused_by_the_guard("CREATE INDEX i ON app_a (x)");
    is_refused_by_the_guard("CREATE INDEX app_i ON tombstone (thread)");
    execute("CREATE INDEX app_i ON app_a (x)").unwrap();
    execute("DROP INDEX app_i").unwrap();
}

#[test]
fn a_text_of_an_error_is_cut_off_past_its_limit_alone() {
    let place = |bytes: usize| match corrupt("x".repeat(bytes), "r") {
        Fault::Store(StoreError::Corrupt { place, .. }) => place,
        fault => panic!("{fault:?}"),
    };
    assert_eq!(place(ERROR_TEXT_BYTES_MAX), "x".repeat(ERROR_TEXT_BYTES_MAX));
    assert_eq!(place(ERROR_TEXT_BYTES_MAX + 1), "x".repeat(ERROR_TEXT_BYTES_MAX) + "...");
}

#[test]
fn faults_are_told_apart_by_the_code_of_sqlite() {
    let of = |code| -> Res<()> { Err(failed(code)) };
    assert!(found_busy(&of(ffi::SQLITE_BUSY)) && found_busy(&of(ffi::SQLITE_LOCKED)));
    assert!(!found_busy(&of(ffi::SQLITE_FULL)) && !found_busy::<()>(&Ok(())));
    assert!(!found_busy::<()>(&Err(StoreError::ReadOnly.into())));
    let refused = [ffi::SQLITE_CANTOPEN, ffi::SQLITE_READONLY, ffi::SQLITE_PERM];
    assert!(refused.iter().all(|code| refuses_locks(&failed(*code))));
    assert!(!refuses_locks(&failed(ffi::SQLITE_CORRUPT)) && !refuses_locks(&StoreError::ReadOnly.into()));
    let is_foreign = |code| is_no_database(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    assert!(is_foreign(ffi::SQLITE_NOTADB) && !is_foreign(ffi::SQLITE_CORRUPT));
}

/// A transaction that inserts so many rows into a table of an application.
fn insert(core: &mut Core, rows: u64) -> Transacted {
    core.begin().unwrap();
    let all = format!(
        "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows}) \
         INSERT INTO app_a SELECT n FROM c"
    );
    core.transact(&mut |tx| tx.execute_batch(&all).map(|()| None))
}

#[test]
fn rows_of_an_application_are_counted_as_frames_of_the_log() {
    let folder = folder();
    let mut core = core(folder.path(), &options().wal_limit_bytes(0));
    core.begin().unwrap();
    let made = core.transact(&mut |tx| tx.execute_batch("CREATE TABLE app_a (x)").map(|()| None));
    made.outcome.unwrap().unwrap();
    core.count_anew();
    let done = insert(&mut core, 165);
    assert!(done.outcome.unwrap().is_ok() && !done.has_batch && done.closed.is_none());
    assert_eq!(core.frames_since_checkpoint(), 165 / 16);
    core.check_wal().unwrap();
    let _reader = reader(folder.path());
    insert(&mut core, 16 * WAL_MEASURED_BYTES / FRAME_BYTES).outcome.unwrap().unwrap();
    assert!(matches!(core.check_wal(), Err(Fault::Store(StoreError::WalLimit { .. }))));
}

#[test]
fn a_batch_goes_along_with_a_transaction_only_if_that_is_stored() {
    let (folder, mut ids) = (folder(), IdSource::from_seed(3));
    let mut core = core(folder.path(), &options());
    let batch = on(&mut ids, "a", None, 99);
    for (faults, is_stored) in [(&[PlantedFault::Lost(ffi::SQLITE_FULL)][..], false), (&[], true)] {
        core.plant(faults);
        core.begin().unwrap();
        let done = core.transact(&mut |_| Ok(Some(batch.clone())));
        assert_eq!((done.has_batch, done.outcome.unwrap().is_ok(), done.closed), (is_stored, is_stored, None));
    }
    assert_eq!(head_of(&core, "a"), 1);
    // A connection that was closed says so each time.
    let path = folder.path().join("x.db");
    fs::rename(&path, folder.path().join("moved.db")).unwrap();
    let next = on(&mut ids, "a", batch.head_after(), 99);
    let outcomes = run(&mut core, &[&next]);
    assert!(matches!(outcomes[0], Err(StoreError::FileReplaced { .. })), "{outcomes:?}");
    core.begin().unwrap();
    let refused = core.transact(&mut |_| Ok(None));
    assert!(matches!(refused.outcome, Ok(Err(StoreError::HandleClosed { .. }))) && refused.closed.is_some());
    core.begin().unwrap();
    let verdict = core.run(&[JobRef::Log(&next)]);
    assert!(matches!(verdict.outcomes[0], Err(StoreError::HandleClosed { .. })) && verdict.closed.is_some());
}
