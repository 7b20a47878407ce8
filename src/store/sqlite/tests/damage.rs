//! Rot: found where a value is read, and by a check.

use super::*;
use crate::limits::ITEM_PAGE_ROWS_MAX;
use crate::store::StoreError;
use crate::store::query::CheckpointQuery;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checkpoint::RecordRow;
use crate::store::sqlite::rows::version::{VersionRow, versions_check};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{TableRow, version};
use rusqlite::{Connection, params};
use std::sync::OnceLock;

/// Returns the bytes of a sound store with most kinds of rows, and its head.
fn sound() -> &'static (Vec<u8>, CheckpointRef) {
    static SOUND: OnceLock<(Vec<u8>, CheckpointRef)> = OnceLock::new();
    SOUND.get_or_init(make_sound)
}

fn make_sound() -> (Vec<u8>, CheckpointRef) {
    let mut bench = Bench::new();
    let t = thread("a");
    let a = task(1, "a");
    let first = NewCheckpoint {
        tasks: vec![a.clone()],
        changes: vec![list(1, vec![put(0, "zero"), put(1, &"one".repeat(900))]), value("x", 1, plain(&[1]))],
        ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None))
    };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first.clone());
    bench.store.commit(&batch).unwrap();
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
    batch.writes =
        vec![writes(first.id, &a, vec![write(0, "y", WriteValue::One(plain(&[9]))), write(1, "z", WriteValue::Null)])];
    bench.store.commit(&batch).unwrap();
    let mut tip = first.id;
    for n in 1..70_u64 {
        let changes = vec![
            value("x", n + 1, plain(&[n as u8])),
            list(n + 1, vec![put(n + 1, "more"), delete_range(n / 2, n / 2 + 1)]),
        ];
        tip = bench.add(&t, Some(tip), changes);
    }
    assert_eq!(bench.check(), Vec::<String>::new());
    let Bench { folder, store, .. } = bench;
    drop(store);
    (std::fs::read(folder.path().join("x.db")).unwrap(), at(&t, tip))
}

/// Opens a copy of the sound store, and damages it with the triggers off that would stop that.
pub(super) fn damaged(harm: &str) -> (Bench, CheckpointRef) {
    let (bytes, at) = sound();
    let bench = Bench::with_bytes(bytes);
    make_groups(&bench.path());
    let conn: Connection = without_triggers(&bench.path());
    conn.execute_batch(harm).unwrap();
    (bench, at.clone())
}

#[test]
fn a_flip_in_a_payload_is_found_when_it_is_read() {
    for harm in [
        "UPDATE payload SET text = 'zerO' WHERE text = 'zero'",
        "UPDATE payload SET data = X'81'",
        "UPDATE payload SET item_id = 'm9'",
        "UPDATE payload SET input_tokens = 1, form = form | 2",
        "UPDATE payload SET kind = NULL",
        "UPDATE blob SET data = 'x'",
        "DELETE FROM payload",
        "DELETE FROM blob",
        "UPDATE payload SET form = 4001",
        "UPDATE payload SET form = form - 1",
        "UPDATE payload SET form = form | 4",
        "UPDATE payload SET item_id = X'00'",
    ] {
        let (bench, at) = damaged(harm);
        let point = bench.store.checkpoints_by_prefix(&at.thread, "1", 1).unwrap()[0].point.clone();
        let error = bench.store.items(&point, "messages", ItemRange::All, &mut |_| Ok(())).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{harm}: {error}");
        assert!(!bench.check().is_empty(), "{harm}");
    }
    let (bench, at) = damaged("UPDATE version SET value = X'0500000000' WHERE kind = 1");
    assert!(matches!(bench.store.state(&at), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_repeated_batch_on_damage_is_refused_as_damage() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = bench.add(&t, None, vec![value("x", 1, plain(&[1]))]);
    let mut batch = Batch::new(t, Namespace::root(), Some(first));
    let id = bench.ids.checkpoint(Timestamp::default(), 1, Some(&first));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(first)), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    bench.store.commit(&batch).unwrap();
    bench.store.checkpoint_wal().unwrap();
    without_triggers(&bench.path()).execute_batch("UPDATE checkpoint SET tasks = X'01' WHERE seq = 1").unwrap();
    let repeated = open(&bench.path()).commit(&batch);
    assert!(matches!(repeated, Err(StoreError::Corrupt { .. })), "{repeated:?}");
}

#[test]
fn every_column_is_covered_by_a_sum() {
    for harm in [
        "UPDATE checkpoint SET step = 9 WHERE seq = 2",
        "UPDATE checkpoint SET source = 0 WHERE seq = 2",
        "UPDATE checkpoint SET source = 9 WHERE seq = 2",
        "UPDATE checkpoint SET created_at = 0 WHERE seq = 2",
        "UPDATE checkpoint SET run = zeroblob(16) WHERE seq = 2",
        "UPDATE checkpoint SET metadata = '{}' WHERE seq = 2",
        "UPDATE checkpoint SET parents = zeroblob(17) WHERE seq = 2",
        "UPDATE checkpoint SET parents = X'00' WHERE seq = 2",
        "UPDATE checkpoint SET tasks = NULL WHERE seq = 1",
        "UPDATE checkpoint SET tasks = X'00' WHERE seq = 1",
        "UPDATE checkpoint SET parent = 8 WHERE seq = 9",
        "UPDATE checkpoint SET parent = NULL WHERE seq = 9",
        "UPDATE checkpoint SET ordinal = 100 WHERE seq = 9",
        "UPDATE checkpoint SET id = zeroblob(16) WHERE seq = 9",
        "UPDATE checkpoint SET sum = zeroblob(16) WHERE seq = 9",
        "UPDATE checkpoint SET sum = X'00' WHERE seq = 9",
        "UPDATE thread SET public_id = 'b'",
        "UPDATE thread SET created_at = created_at + 1",
        "UPDATE namespace SET path = 'b'",
        "UPDATE name SET text = 'w' WHERE text = 'x'",
        "UPDATE name SET kind = 1 WHERE text = 'x'",
        "UPDATE version SET version = version + 1 WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET task = 0 WHERE ordinal = 3 AND kind = 2",
        "UPDATE version SET kind = 0, value = NULL WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET kind = 9 WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET kind = kind + 16 WHERE ordinal = 3 AND xxh3 IS NOT NULL",
        "UPDATE version SET kind = kind + 16 WHERE ordinal = 3 AND xxh3 IS NULL",
        "DELETE FROM version WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET ordinal = 5000 WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET value = X'00' WHERE kind = 4",
        "UPDATE version SET value = NULL WHERE kind = 2 AND ordinal = 3",
        "UPDATE version SET value = X'00' WHERE kind = 2 AND ordinal = 3",
        "UPDATE version SET value = X'0500' WHERE kind = 2 AND ordinal = 9",
        "UPDATE version SET value = X'0901' WHERE kind = 2 AND ordinal = 9",
        "UPDATE version SET value = value || X'02' WHERE kind = 2 AND ordinal = 1",
        "DELETE FROM version WHERE kind = 4",
        "UPDATE item SET slot = 900 WHERE slot = 3",
        "UPDATE item SET task = 1 WHERE slot = 3",
        "UPDATE item SET op = 0, value = NULL WHERE slot = 3",
        "UPDATE item SET op = 0 WHERE slot = 3",
        "UPDATE payload SET name = 'n'",
        "UPDATE payload SET input_tokens = 1",
        "UPDATE item SET value = X'010200' WHERE slot = -3",
        "DELETE FROM item WHERE slot = -3",
        "DELETE FROM item WHERE slot = 3",
        "UPDATE item SET branch = 77 WHERE slot = 3",
        "UPDATE write SET channel = 1 WHERE idx = 1",
        "UPDATE write SET idx = 7 WHERE idx = 1",
        "UPDATE write SET part = 1 WHERE idx = 1",
        "UPDATE write SET path = 'p' WHERE idx = 1",
        "UPDATE write SET child = 1 WHERE idx = 1",
        "UPDATE write SET mark = -3 WHERE idx = 1",
        "UPDATE write SET sum = NULL",
        "UPDATE write SET value = NULL WHERE idx = 0",
        "DELETE FROM write WHERE idx = 0",
        "DELETE FROM write WHERE idx = 1",
        "UPDATE branch SET upto = 1",
        "UPDATE branch SET depth = 1",
        "UPDATE branch SET fork_thread = 9",
        "UPDATE branch SET fork_checkpoint = 1",
        "UPDATE name_user SET thread = 9",
        "DELETE FROM name_user",
        "INSERT INTO tombstone (thread, state) VALUES (1, 0)",
        "INSERT INTO tombstone (thread, state) VALUES (7, 2)",
        "DELETE FROM branch",
        "UPDATE blob SET hash = zeroblob(16)",
        "INSERT INTO payload (form, xxh3, data) VALUES (0, 0, X'00')",
    ] {
        let (bench, _) = damaged(harm);
        let problems = bench.check();
        assert!(!problems.is_empty(), "{harm}");
    }
}

/// Makes the check of a checkpoint that of its present columns, as who forges a file does.
fn repair_check(bench: &Bench, seq: i64) {
    let conn = without_triggers(&bench.path());
    let check = |row: &rusqlite::Row<'_>| Ok(RecordRow::unverified(row).unwrap().check());
    let check: i64 = conn.query_row(sql::RECORD_BY_SEQ, [seq], check).unwrap();
    assert_eq!(conn.execute("UPDATE checkpoint SET xxh3 = ?2 WHERE seq = ?1", params![seq, check]).unwrap(), 1);
}

#[test]
fn a_cycle_of_parents_is_refused_where_a_row_of_it_is_read() {
    let (bench, at) = damaged("UPDATE checkpoint SET parent = 0 WHERE seq = (SELECT max(seq) FROM checkpoint)");
    repair_check(&bench, 70);
    let error = bench.store.checkpoint(&at).unwrap_err();
    assert!(error.to_string().contains("does not follow its parent"), "{error}");
    let (bench, at) =
        damaged("UPDATE checkpoint SET ordinal = ordinal + 1 WHERE seq = (SELECT max(seq) FROM checkpoint)");
    repair_check(&bench, 70);
    assert!(bench.store.checkpoint(&at).is_err());
}

#[test]
fn a_version_row_that_leads_to_another_checkpoint_is_noticed() {
    let (bench, at) = damaged("UPDATE version SET kind = kind + 16 WHERE ordinal = 3 AND xxh3 IS NOT NULL");
    let conn = without_triggers(&bench.path());
    let versions = format!("{} WHERE ordinal = 3 ORDER BY key", version::Row::SELECT);
    let mut versions = conn.prepare(&versions).unwrap();
    let rows = versions.query_map([], |row| Ok(VersionRow::of(&version::Row::read(row, 0).unwrap()).unwrap())).unwrap();
    let rows: Vec<VersionRow> = rows.map(Result::unwrap).collect();
    let check = versions_check(&Keys::default(), 1, 3, &rows);
    let repair = "UPDATE version SET xxh3 = ?1 WHERE ordinal = 3 AND xxh3 IS NOT NULL";
    assert_eq!(conn.execute(repair, [check]).unwrap(), 1);
    let error = bench.store.ancestors(&at, &[3]).unwrap_err();
    assert!(error.to_string().contains("ordinal 3 of its lineage"), "{error}");
    assert_eq!(bench.store.ancestors(&at, &[2]).unwrap()[0].as_ref().unwrap().ordinal, 2);
    let findings = bench.check();
    assert!(findings.iter().any(|finding| finding.contains("does not lead to its checkpoint")), "{findings:?}");
}

/// Replaces bytes in the root page of an index, as rot does. The bytes of the index stay in order.
fn harm_index(path: &Path, index: &str, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let root: i64 =
        raw(path).query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [index], |row| row.get(0)).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let begin = (root as usize - 1) * 4_096;
    let page = &mut bytes[begin..begin + 4_096];
    let found = page.windows(from.len()).rposition(|text| text == from).unwrap();
    page[found..found + to.len()].copy_from_slice(to);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_thread_that_an_index_does_not_show_is_neither_made_again_nor_passed_over() {
    for (index, from, to) in [
        ("sqlite_autoindex_thread_1", "bob", "bod"),
        ("sqlite_autoindex_thread_1", "bob", "boa"),
        ("sqlite_autoindex_namespace_1", "inner", "innes"),
    ] {
        let mut bench = Bench::new();
        let inner = Namespace::new("inner").unwrap();
        for name in ["alice", "bob", "carol"] {
            let id = bench.add(&thread(name), None, vec![list(1, vec![put(0, "text")])]);
            let mut batch = Batch::new(thread(name), inner.clone(), None);
            let next = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&id));
            batch.checkpoints.push(checkpoint(next));
            bench.store.commit(&batch).unwrap();
        }
        let path = bench.path();
        let Bench { folder: _folder, store, mut ids } = bench;
        drop(store);
        harm_index(&path, index, from, to);
        let store = open(&path);
        let of_index = |error: &StoreError| matches!(error, StoreError::Corrupt { place, .. } if place.contains(index));
        let name = if from == "inner" { "alice" } else { "bob" };
        for namespace in [Namespace::root(), inner] {
            if from == "inner" && namespace == Namespace::root() {
                continue;
            }
            let mut batch = Batch::new(thread(name), namespace, None);
            batch.checkpoints.push(checkpoint(ids.checkpoint(Timestamp::from_micros(1), 0, None)));
            let error = store.commit(&batch).unwrap_err();
            assert!(of_index(&error), "{index} {to}: {error}");
        }
        if from == "bob" {
            let error = store.delete_threads(&[thread("bob")]).unwrap_err();
            assert!(of_index(&error), "{index} {to}: {error}");
        }
        assert!(!store.check().unwrap().problems.is_empty());
    }
}

/// Reads everything that a thread shows.
fn read_all(bench: &Bench, thread: &ThreadId) -> Result<(), StoreError> {
    let store = &bench.store;
    store.threads(None, 10)?;
    store.thread_size(thread)?;
    store.head(thread, &Namespace::root())?;
    for namespace in store.namespaces(thread)? {
        for record in store.checkpoints(&CheckpointQuery::new(thread.clone(), namespace))? {
            store.read_state(&record.point, &mut |_| Ok(true))?;
            store.items(&record.point, "messages", ItemRange::Tail(3), &mut |_| Ok(()))?;
            store.writes(&record.point)?;
        }
    }
    Ok(())
}

#[test]
fn a_changed_or_missing_row_is_noticed_where_it_is_read() {
    let (bench, at) = damaged("SELECT 1");
    read_all(&bench, &at.thread).unwrap();
    for harm in [
        "UPDATE name SET text = 'w' WHERE text = 'x'",
        "UPDATE thread SET public_id = 'b'",
        "UPDATE thread SET created_at = created_at + 1",
        "UPDATE namespace SET path = 'b'",
        "UPDATE branch SET depth = 1",
        "UPDATE branch SET namespace = 2",
        "UPDATE checkpoint SET step = 9 WHERE seq = 2",
        "UPDATE checkpoint SET created_at = 0 WHERE seq = 2",
        "UPDATE checkpoint SET tasks = NULL WHERE seq = 1",
        "UPDATE checkpoint SET sum = zeroblob(16) WHERE seq = 1",
        "UPDATE checkpoint SET parent = 2 WHERE seq = 9",
        "DELETE FROM checkpoint WHERE seq = 70",
        "DELETE FROM checkpoint WHERE seq = 9",
        "DELETE FROM checkpoint WHERE seq = 1",
        "UPDATE version SET version = version + 1 WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET value = X'05' WHERE ordinal = 3 AND kind = 1",
        "UPDATE version SET ordinal = 5000 WHERE ordinal = 3 AND kind = 1",
        "DELETE FROM version WHERE ordinal = 3 AND kind = 1",
        "DELETE FROM version WHERE ordinal = 3",
        "UPDATE version SET xxh3 = NULL WHERE ordinal = 3",
        "UPDATE item SET value = (SELECT value FROM item WHERE slot = 4) WHERE slot = 3",
        "UPDATE item SET task = 1 WHERE slot = 3",
        "UPDATE item SET slot = 900 WHERE slot = 70",
        "DELETE FROM item WHERE slot = 70",
        "DELETE FROM item WHERE slot = -9",
        "UPDATE item SET value = X'010200' WHERE slot = -3",
        "UPDATE payload SET id = id + 100 WHERE id = (SELECT value FROM item WHERE slot = 70)",
        "UPDATE write SET idx = 7 WHERE idx = 1",
        "UPDATE write SET path = 'p' WHERE idx = 1",
        "UPDATE write SET value = X'05' WHERE idx = 0",
        "UPDATE write SET sum = NULL",
        "DELETE FROM write WHERE idx = 1",
    ] {
        let (bench, at) = damaged(harm);
        let error = read_all(&bench, &at.thread).expect_err(harm);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{harm}: {error}");
    }
}

#[test]
fn a_missing_item_of_a_list_of_many_pages_is_noticed() {
    let last = 2 * ITEM_PAGE_ROWS_MAX as u64 + 5;
    for (deletes, missing) in [
        (false, ITEM_PAGE_ROWS_MAX as u64),
        (false, 1),
        (true, 1),
        (true, ITEM_PAGE_ROWS_MAX as u64),
        (true, ITEM_PAGE_ROWS_MAX as u64 + 3),
        (true, last - 1),
    ] {
        let mut bench = Bench::new();
        let t = thread("a");
        let first = bench.add(&t, None, vec![list(1, (0..last).map(|position| put(position, "text")).collect())]);
        let change = if deletes { vec![remove(10)] } else { vec![put(last, "text")] };
        let head = at(&t, bench.add(&t, Some(first), vec![list(2, change)]));
        let read = |range| {
            let mut count = 0;
            let read = bench.store.items(&head, "messages", range, &mut |_| {
                count += 1;
                Ok(())
            });
            read.map(|()| count)
        };
        let all = if deletes { last - 1 } else { last + 1 };
        let ranges = [ItemRange::All, ItemRange::Tail(all as usize), ItemRange::Tail(all as usize - 1)];
        assert_eq!(ranges.map(|range| read(range).unwrap()), [all, all, all - 1]);
        let delete = format!("DELETE FROM item WHERE slot = {missing}");
        assert_eq!(without_triggers(&bench.path()).execute(&delete, []).unwrap(), 1);
        // With deletes, a tail of fewer items goes on to the ones before it.
        let shown = if deletes { &ranges[..2] } else { &ranges };
        for range in shown {
            let error = read(*range).unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{deletes} {missing} {range:?}: {error}");
        }
    }
}

#[test]
fn a_missing_item_in_the_tail_of_a_list_with_deletes_is_noticed() {
    for (deleted, missing) in [(10, 200_u64), (10, 160), (10, 80), (195, 197)] {
        let mut bench = Bench::new();
        let t = thread("a");
        let first = bench.add(&t, None, vec![list(1, (0..200).map(|position| put(position, "text")).collect())]);
        let second = bench.add(&t, Some(first), vec![list(2, vec![remove(deleted)])]);
        let head = at(&t, bench.add(&t, Some(second), vec![list(3, vec![put(200, "text")])]));
        let tail = |count| {
            let mut read = 0_usize;
            let items = bench.store.items(&head, "messages", ItemRange::Tail(count), &mut |_| {
                read += 1;
                Ok(())
            });
            items.map(|()| read)
        };
        let counts = [1, 4, 5, 50, 126, 150];
        assert_eq!(counts.map(|count| tail(count).unwrap()), counts);
        let delete = format!("DELETE FROM item WHERE slot = {missing}");
        assert_eq!(without_triggers(&bench.path()).execute(&delete, []).unwrap(), 1);
        for count in counts {
            let is_in_tail = count as u64 > 200 - missing;
            assert_eq!(tail(count).is_err(), is_in_tail, "{deleted} {missing} {count}");
        }
        assert!(!bench.check().is_empty(), "{deleted} {missing}");
    }
}

/// A checkpoint whose check fits an ordinal that no list of checkpoints can have.
#[test]
fn an_ordinal_at_the_end_of_its_range_is_an_error_where_it_is_counted_on() {
    let harm = format!("UPDATE checkpoint SET ordinal = {} WHERE seq = 70", i64::MAX);
    let (mut bench, at) = damaged(&harm);
    repair_check(&bench, 70);
    assert!(!bench.check().is_empty());
    bench.store.checkpoint(&at).unwrap_err();
    let next = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&at.checkpoint));
    let mut batch = Batch::new(at.thread.clone(), Namespace::root(), Some(at.checkpoint));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(at.checkpoint)), ..checkpoint(next) });
    // The writer of the handle has the checkpoint in its cache.
    let store = open(&bench.path());
    let error = store.commit(&batch).unwrap_err();
    assert!(error.to_string().contains("no ordinal is above its own"), "{error}");
    // A child of the forged checkpoint, forged as well.
    let (bench, at) = damaged("UPDATE checkpoint SET ordinal = 9223372036854775807 WHERE seq = 69");
    repair_check(&bench, 69);
    repair_check(&bench, 70);
    assert!(matches!(bench.store.checkpoint(&at), Err(StoreError::Corrupt { .. })));
    assert!(!bench.check().is_empty());
}

#[test]
fn a_seq_at_the_end_of_its_range_is_an_error_of_the_next_commit() {
    let (mut bench, at) = damaged("UPDATE checkpoint SET seq = 9223372036854775807 WHERE seq = 1");
    let next = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&at.checkpoint));
    let mut batch = Batch::new(thread("new"), Namespace::root(), None);
    batch.checkpoints.push(checkpoint(next));
    let error = bench.store.commit(&batch).unwrap_err();
    assert!(error.to_string().contains("no id is above that of the row"), "{error}");
    let (bench, _) = damaged("UPDATE payload SET id = 9223372036854775807 WHERE text = 'zero'");
    let mut batch = Batch::new(thread("new"), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { changes: vec![list(1, vec![put(0, "text")])], ..checkpoint(next) });
    let error = bench.store.commit(&batch).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn writes_that_a_checkpoint_consumed_are_missed_when_they_are_gone() {
    let mut bench = Bench::new();
    let (t, a) = (thread("a"), task(1, "a"));
    let first =
        NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)) };
    let second = NewCheckpoint {
        parent: Some(Parent::Local(first.id)),
        consumed: vec![writes(first.id, &a, vec![write(0, "x", WriteValue::One(plain(&[7])))])],
        ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 1, Some(&first.id)))
    };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints = vec![first.clone(), second];
    bench.store.commit(&batch).unwrap();
    let point = at(&t, first.id);
    assert_eq!(bench.store.writes(&point).unwrap().len(), 1);
    without_triggers(&bench.path()).execute_batch("DELETE FROM write").unwrap();
    assert!(matches!(bench.store.writes(&point), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_checkpoint_that_an_index_does_not_show_is_not_taken_for_a_missing_one() {
    let t = thread("a");
    for change in [-1, 1, 5] {
        let mut bench = Bench::new();
        let mut ids = Vec::new();
        for n in 1..=5_i64 {
            let head = ids.last().copied();
            let id = bench.ids.checkpoint(Timestamp::from_micros(n * 1_000_000_000), 0, head.as_ref());
            let mut batch = Batch::new(t.clone(), Namespace::root(), head);
            batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
            bench.store.commit(&batch).unwrap();
            ids.push(id);
        }
        bench.store.checkpoint_wal().unwrap();
        let (path, hidden) = (bench.path(), ids[2]);
        let Bench { folder: _folder, store, ids: mut source } = bench;
        drop(store);
        let prefix = &hidden.as_bytes()[..6];
        let mut changed = prefix.to_vec();
        changed[5] = changed[5].wrapping_add_signed(change);
        harm_index(&path, "checkpoint_id", prefix, &changed);
        let store = open(&path);
        let is_damage = |error: StoreError| match error {
            StoreError::Corrupt { place, .. } => assert_eq!(place, "index checkpoint_id", "{change}"),
            other => panic!("{change}: {other}"),
        };
        let text = hidden.to_string();
        is_damage(store.checkpoints_by_prefix(&t, &text, 9).unwrap_err());
        is_damage(store.checkpoints_by_prefix(&t, &text[..12], 9).unwrap_err());
        // A fork of it is not refused as one of a checkpoint that does not exist.
        let next = source.checkpoint(Timestamp::from_micros(9_000_000_000), 0, ids.last());
        let mut batch = Batch::new(t.clone(), Namespace::root(), ids.last().copied());
        batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(hidden)), ..checkpoint(next) });
        is_damage(store.commit(&batch).unwrap_err());
        assert_eq!(store.checkpoints_by_prefix(&t, &ids[4].to_string(), 1).unwrap().len(), 1);
    }
}
