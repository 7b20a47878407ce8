//! The rows of a commit: repeated batches, writes of tasks, columns of payloads, and statements beside them.

use super::*;
use crate::base::{Codec, PayloadRef};
use crate::store::error::{SqlConstraint, StoreError};
use crate::store::handle::Store;
use crate::store::prune::PruneSpan;
use crate::store::record::ItemIndexRef;
use crate::store::sqlite::read::lineage::INTERVAL;
use crate::store::sqlite::rows::payload::{ItemIdColumn, form};
use rusqlite::types::ValueRef;

fn strings(bench: &Bench, query: &str) -> Vec<String> {
    let conn = raw(&bench.path());
    let mut statement = conn.prepare(query).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// A thread with one checkpoint, whose tasks are given.
fn with_tasks(tasks: &[TaskRecord]) -> (Bench, ThreadId, CheckpointId) {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { tasks: tasks.to_vec(), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    (bench, t, id)
}

#[test]
fn a_batch_with_others_that_go_along_is_repeated_without_its_writes() {
    let a = task(1, "a");
    let (mut bench, t, first) = with_tasks(std::slice::from_ref(&a));
    let next = bench.ids.checkpoint(Timestamp::from_micros(2), 0, Some(&first));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first));
    batch.writes.push(writes(first, &a, vec![write(0, "x", WriteValue::One(plain(&[1])))]));
    let mut then = Batch::new(t.clone(), Namespace::root(), Some(first));
    then.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(first)), ..checkpoint(next) });
    batch.then = vec![then.clone()];
    for round in 0..3 {
        bench.store.commit(&batch).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(bench.store.head_id(&t, &Namespace::root()).unwrap(), Some(next));
    }
    bench.store.commit(&then).unwrap();
    // Another batch with the same writes is not a repetition: the head that it expects has moved.
    batch.then.clear();
    assert!(matches!(bench.store.commit(&batch), Err(StoreError::Conflict { .. })));
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn writes_that_are_consumed_are_those_of_the_parent() {
    let a = task(1, "a");
    let (mut bench, t, first) = with_tasks(std::slice::from_ref(&a));
    let second = bench.add(&t, Some(first), Vec::new());
    let id = bench.ids.checkpoint(Timestamp::from_micros(2), 0, Some(&second));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(second));
    let consumed = vec![writes(first, &a, vec![write(0, "x", WriteValue::One(plain(&[1])))])];
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(second)), consumed, ..checkpoint(id) });
    let error = bench.store.commit(&batch).unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("is not the parent"), "{error}");
}

#[test]
fn a_fork_of_a_pruned_checkpoint_is_refused_with_the_thread_of_that() {
    let mut bench = Bench::new();
    let (source, fork) = (thread("source"), thread("fork"));
    let mut ids: Vec<CheckpointId> = Vec::new();
    for n in 0..4 {
        let id = bench.add(&source, ids.last().copied(), vec![value("x", n + 1, plain(&[n as u8]))]);
        ids.push(id);
    }
    bench.store.prune(&source, &[PruneSpan::new(1, 1, 2)]).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(9), 0, Some(&ids[3]));
    let mut batch = Batch::new(fork, Namespace::root(), None);
    let parent = Some(Parent::Fork(at(&source, ids[1])));
    batch.checkpoints.push(NewCheckpoint { parent, ..checkpoint(id) });
    let error = bench.store.commit(&batch).unwrap_err().to_string();
    assert!(error.contains("source") && error.contains(&ids[1].to_string()), "{error}");
}

#[test]
fn an_index_snapshot_stands_at_every_interval_of_a_branch() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut head = None;
    for n in 0..=2 * INTERVAL as u64 + 1 {
        head = Some(bench.add(&t, head, vec![value("x", n + 1, plain(&[n as u8]))]));
    }
    let expected = [INTERVAL, 2 * INTERVAL].map(|ordinal| ordinal.to_string());
    assert_eq!(strings(&bench, "SELECT CAST(ordinal AS TEXT) FROM version WHERE key = 0 ORDER BY ordinal"), expected);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_position_keeps_its_first_write_and_a_special_index_its_last() {
    let a = task(1, "a");
    let (bench, t, first) = with_tasks(std::slice::from_ref(&a));
    let one = |byte: u8| WriteValue::One(plain(&[byte]));
    let new = [(0, 1), (-1, 2), (0, 3), (-1, 4), (5, 5), (5, 6), (-4, 7), (-4, 8)];
    let new = new.map(|(index, byte)| write(index, "x", one(byte)));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first));
    batch.writes.push(writes(first, &a, new.to_vec()));
    bench.store.commit(&batch).unwrap();
    let stored = |bench: &Bench| strings(bench, "SELECT idx || ':' || hex(value) FROM write ORDER BY idx");
    assert_eq!(stored(&bench), ["-4:08", "-1:04", "0:01", "5:05"]);
    let again = [(0, 9), (-1, 10), (5, 11), (6, 12)].map(|(index, byte)| write(index, "x", one(byte)));
    let mut batch = Batch::new(t, Namespace::root(), Some(first));
    batch.writes.push(writes(first, &a, again.to_vec()));
    bench.store.commit(&batch).unwrap();
    assert_eq!(stored(&bench), ["-4:08", "-1:0A", "0:01", "5:05", "6:0C"]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_run_of_writes_has_one_sum_and_no_path_of_a_prepared_task() {
    let (a, b, other) = (task(1, "a"), task(2, "b"), task(9, "c"));
    let (bench, t, first) = with_tasks(&[a.clone(), b.clone()]);
    let many = |indexes: &[i32]| -> Vec<NewWrite> {
        indexes.iter().map(|index| write(*index, "x", WriteValue::One(plain(&[*index as u8])))).collect()
    };
    let mut batch = Batch::new(t, Namespace::root(), Some(first));
    batch.writes.push(writes(first, &a, many(&[0, 1, 2, 5, 6, 9, -1, -3])));
    batch.writes.push(writes(first, &b, many(&[0, 1])));
    batch.writes.push(writes(first, &other, many(&[0])));
    bench.store.commit(&batch).unwrap();
    let sums = |task: &str| {
        let query = format!("SELECT CAST(idx AS TEXT) FROM write WHERE task {task} AND sum IS NOT NULL ORDER BY idx");
        strings(&bench, &query)
    };
    assert_eq!(sums("= 0"), ["-3", "-1", "0", "5", "9"]);
    assert_eq!((sums("= 1"), sums("> X''")), (vec!["0".to_owned()], vec!["0".to_owned()]));
    let paths = strings(&bench, "SELECT typeof(task) || ' ' || typeof(path) FROM write WHERE path IS NOT NULL");
    assert_eq!(paths, ["blob integer"]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn the_form_of_a_payload_holds_its_codec_and_whether_it_has_an_index() {
    let mut named = ItemIndexRef::default();
    named.name = Some("n");
    let mut counted = ItemIndexRef::default();
    counted.output_tokens = Some(0);
    for (index, bits) in [(None, 0), (Some(ItemIndexRef::default()), 1), (Some(named), 3), (Some(counted), 3)] {
        assert_eq!(form(Codec::MsgPack, index.as_ref()), bits);
        assert_eq!(form(Codec::Foreign(5), index.as_ref()), 20 + bits);
        assert_eq!(form(Codec::Foreign(255), index.as_ref()), 1_020 + bits);
    }
    let mut foreign = Payload::new(vec![7; 60]);
    foreign.codec = Codec::Foreign(5);
    let mut bench = Bench::new();
    let head =
        bench.add(&thread("a"), None, vec![list(1, vec![ItemChange::new(0, ItemOp::Put(Data::New(foreign)), None)])]);
    let mut codecs = Vec::new();
    let mut visit = |row: crate::store::record::ItemRow<'_>| {
        let PayloadRef { codec, .. } = row.payload;
        codecs.push(codec);
        Ok(())
    };
    bench.store.items(&at(&thread("a"), head), "messages", ItemRange::All, &mut visit).unwrap();
    assert_eq!(codecs, [Codec::Foreign(5)]);
}

#[test]
fn columns_that_the_form_does_not_announce_are_not_read() {
    let mut bench = Bench::new();
    let head = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "zero")])]);
    let at = at(&thread("a"), head);
    let before = bench.items(&at, ItemRange::All);
    let conn = without_triggers(&bench.path());
    assert_eq!(conn.execute("UPDATE payload SET name = 'n', input_tokens = 7", []).unwrap(), 1);
    assert_eq!(bench.items(&at, ItemRange::All), before);
    assert!(!bench.check().is_empty(), "a check reads the whole row");
}

#[test]
fn the_canonical_text_of_a_uuid_is_stored_as_its_bytes() {
    let canonical = "01234567-89ab-4def-8123-456789abcdef";
    let bytes: Vec<u8> =
        vec![0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    assert_eq!(ItemIdColumn::of(canonical).column(), ValueRef::Blob(&bytes));
    let upper = canonical.to_uppercase();
    let (simple, urn, braced) =
        (canonical.replace('-', ""), format!("urn:uuid:{canonical}"), format!("{{{canonical}}}"));
    for text in ["", "m1", &canonical[1..], &upper, &simple, &urn, &braced] {
        assert_eq!(ItemIdColumn::of(text).column(), ValueRef::Text(text.as_bytes()), "{text}");
    }
    let (mut bench, t) = (Bench::new(), thread("a"));
    let ids = [canonical, &upper, &simple, "m1"];
    let puts = ids.iter().zip(0..).map(|(id, n)| ItemChange::new(n, ItemOp::Put(Data::New(message(id, "t"))), None));
    let head = bench.add(&t, None, vec![list(4, puts.collect())]);
    let mut found = Vec::new();
    let mut visit = |row: crate::store::record::ItemRow<'_>| {
        found.push(row.payload.index.and_then(|index| index.id).unwrap().to_owned());
        Ok(())
    };
    bench.store.items(&at(&t, head), "messages", ItemRange::All, &mut visit).unwrap();
    assert_eq!(found, ids);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_statement_that_fails_says_which_constraint_and_why() {
    let bench = Bench::new();
    let store = Store::open(bench.path()).unwrap();
    let tables = "CREATE TABLE app_a (id INTEGER PRIMARY KEY, n INTEGER CHECK (n > 0)); \
                  CREATE TABLE app_b (a REFERENCES app_a (id)); CREATE TABLE app_c (n UNIQUE) STRICT";
    let tables = tables.replace("app_c (n UNIQUE)", "app_c (n INTEGER UNIQUE)");
    store.transaction(|tx| tx.execute_batch(&tables)).unwrap();
    for (statement, constraint, reason) in [
        ("INSERT INTO app_a (n) VALUES (0)", Some(SqlConstraint::Check), "CHECK"),
        ("INSERT INTO app_b VALUES (7)", Some(SqlConstraint::ForeignKey), "FOREIGN KEY"),
        ("INSERT INTO app_c VALUES ('text')", Some(SqlConstraint::Other), "cannot store TEXT"),
        ("INSERT INTO app_c VALUES (1), (1)", Some(SqlConstraint::Unique), "UNIQUE"),
        ("SELECT abs(-9223372036854775808)", None, "integer overflow"),
    ] {
        let done: Result<(), StoreError> = store.transaction(|tx| tx.query(statement, (), |_| Ok(())).map(|_| ()));
        let error = done.unwrap_err();
        assert_eq!(error.constraint(), constraint, "{statement}: {error}");
        assert!(error.to_string().contains(reason), "{statement}: {error}");
    }
    let limit = crate::base::limits::STATEMENT_BYTES_MAX;
    let longest = format!("{}SELECT 1", " ".repeat(limit - 8));
    assert_eq!(longest.len(), limit);
    store.transaction(|tx| tx.query_row(&longest, (), |_| Ok(()))).unwrap();
}

#[test]
fn a_transaction_reads_the_write_with_an_index_and_no_other() {
    let (a, b) = (task(1, "a"), task(9, "b"));
    let (bench, t, first) = with_tasks(std::slice::from_ref(&a));
    let point = at(&t, first);
    let one = |byte: u8| WriteValue::One(plain(&[byte]));
    let items = WriteValue::Items(vec![plain(&[7]), plain(&[8])]);
    let mut batch = Batch::new(t, Namespace::root(), Some(first));
    let of_a =
        vec![write(0, "x", one(1)), write(1, "x", one(2)), write(2, "x", items), write(3, "x", WriteValue::Null)];
    batch.writes.push(writes(first, &a, of_a));
    batch.writes.push(writes(first, &b, vec![write(-1, "x", one(3)), write(1, "x", one(4))]));
    bench.store.commit(&batch).unwrap();
    let read = bench.store.transact(&mut |tx| {
        let data = |by: &TaskRecord, index| tx.write_of(&point, &by.id, index).unwrap().map(|payload| payload.data);
        for (by, index, byte) in [(&a, 0, 1), (&a, 1, 2), (&b, -1, 3), (&b, 1, 4)] {
            assert_eq!(data(by, index), Some(vec![byte]), "{index}");
        }
        for (by, index) in [(&a, 2), (&a, 3), (&a, 4), (&a, -1), (&b, 0), (&task(5, "none"), 0)] {
            assert_eq!(data(by, index), None, "{index}");
        }
        Ok(None)
    });
    read.unwrap();
}
