//! Rows of all kinds that are written anew: a recovered store shows the same as the old one.

use super::cipher::{bench as with_options, encrypted, key};
use super::*;
use crate::base::{Codec, RunId};
use crate::limits::{SCAN_FAILURES_MAX, SCAN_ROWS};
use crate::store::batch::{ListDelta, ListRef, NewTimer};
use crate::store::mark::WriteMark;
use crate::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationTarget, OperationValue,
};
use crate::store::query::CheckpointQuery;
use crate::store::recovery::{LostKind, Recovery};
use crate::store::sqlite::fault::{Fault, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rewrite::replay::{reason, scan};
use crate::store::sqlite::rows::item::{DELETE_RANGE, REFERENCE};
use crate::store::sqlite::tables::row_check::RowCheck;
use crate::store::{Store, StoreError};
use rusqlite::{Connection, ffi};
use std::sync::Arc;

fn indexed(data: &[u8], change: impl FnOnce(&mut ItemIndex)) -> Payload {
    let mut index = ItemIndex::default();
    change(&mut index);
    Payload::new(data.to_vec()).with_index(index)
}

/// Payloads of all forms: in the row and apart, with an index and without, with ids and texts of each kind.
fn payloads() -> Vec<Payload> {
    let (mut foreign, long) = (plain(&[b'1'; 50]), "a text ".repeat(200));
    foreign.codec = Codec::from_tag(5);
    vec![
        plain(b""),
        plain(&[1; 20]),
        plain(&[2; 40]),
        plain(&[3; 2_000]),
        foreign,
        indexed(&[4], |index| index.text = Some(String::new())),
        indexed(&[5; 40], |index| index.id = Some("0b3ff0e4-7c3a-4d53-9a27-6a3c7f1f0d11".into())),
        indexed(&[6], |index| (index.id, index.text) = (Some("an id".into()), Some(long))),
        indexed(&[7], |index| (index.kind, index.name) = (Some("ai".into()), Some("a name".into()))),
        indexed(&[8; 700], |index| (index.input_tokens, index.tool_calls) = (Some(7), Some("[]".into()))),
        indexed(&[9], |index| (index.output_tokens, index.kind) = (Some(9), Some("tool".into()))),
    ]
}

fn put_new(position: u64, payload: Payload) -> ItemChange {
    ItemChange { position, op: ItemOp::Put(Data::New(payload)), task: None }
}

/// Fills a store with rows of all kinds of the log. Returns the number of its checkpoints.
fn fill(bench: &mut Bench) -> u64 {
    let (t, inner, tasks) = (thread("a"), Namespace::new("inner").unwrap(), [task(1, "a"), task(2, "b")]);
    let id =
        |bench: &mut Bench, above: Option<&CheckpointId>| bench.ids.checkpoint(Timestamp::from_micros(7), 0, above);
    let one = id(bench, None);
    let mut changes: Vec<Change> =
        payloads().into_iter().enumerate().map(|(n, payload)| value(&format!("c{n}"), 1, payload)).collect();
    let items = payloads().into_iter().zip(0..).map(|(payload, position)| put_new(3 * position, payload)).collect();
    changes.extend([list(1, items), empty("e", 1)]);
    let mut first = NewCheckpoint { changes, tasks: tasks.to_vec(), ..checkpoint(one) };
    (first.run, first.metadata) = (Some(RunId::from_bytes([3; 16])), Some(r#"{"note":"one"}"#.into()));
    first.seen = vec![seen("a", "c1", 1), seen("b", "c2", 1)];
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first);
    bench.store.commit(&batch).unwrap();

    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(one));
    let stray = TaskRecord { id: TaskId::from_bytes([9; 16]), ..task(9, "stray") };
    batch.writes = vec![
        writes(one, &stray, vec![write(-1, "error", WriteValue::One(plain(&[1; 30])))]),
        writes(
            one,
            &tasks[1],
            vec![
                write(0, "c0", WriteValue::Null),
                write(1, "c1", WriteValue::Items(Vec::new())),
                write(2, "c2", WriteValue::Items(vec![plain(&[1; 30])])),
            ],
        ),
    ];
    bench.store.commit(&batch).unwrap();

    let two = id(bench, Some(&one));
    let mut delta = ListDelta::new(ListRef::new(Namespace::root(), one, "messages"));
    delta.removed.push(0..1);
    (delta.positions, delta.items) = (vec![3, 40], vec![plain(&[1; 30]), plain(&[2])]);
    let of_first = vec![
        write(0, "c0", WriteValue::One(plain(&[4; 40]))),
        write(1, "messages", WriteValue::Items(vec![message("w", "of a task"), plain(&[5; 40])])),
        write(2, "messages", WriteValue::Delta(Box::new(delta))),
    ];
    let taken = |position, index, part| ItemChange {
        position,
        op: ItemOp::Put(of_write(tasks[0].id, index, part)),
        task: Some(0),
    };
    let by_task =
        Change { value: ChangeValue::Value(of_write(tasks[0].id, 0, 0)), task: Some(0), ..value("c0", 2, plain(&[])) };
    let items = vec![delete_range(0, 2), remove(6), taken(3, 1, 0), taken(50, 1, 1)];
    let mut second = NewCheckpoint { changes: vec![by_task, list(2, items)], ..checkpoint(two) };
    (second.consumed, second.parent) = (vec![writes(one, &tasks[0], of_first)], Some(Parent::Local(one)));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(one));
    batch.checkpoints.push(second);
    bench.store.commit(&batch).unwrap();

    // A subgraph, whose list begins with that of its caller, and which names its parent.
    let sub = id(bench, Some(&two));
    let of_root = ItemOp::Reference(ListRef::new(Namespace::root(), two, "messages"));
    let change = list(1, vec![ItemChange { position: 0, op: of_root, task: None }]);
    let mut new = NewCheckpoint { changes: vec![change], ..checkpoint(sub) };
    new.parents = Arc::from([(Namespace::root(), two)]);
    let mut batch = Batch::new(t.clone(), inner, None);
    batch.checkpoints.push(new);
    bench.store.commit(&batch).unwrap();

    let three = bench.add(&t, Some(two), vec![list(3, vec![put(60, "three")])]);
    let side = bench.add(&t, Some(two), vec![list(3, vec![put(61, "a side")])]);
    bench.add_on(&thread("fork"), Some(Parent::Fork(at(&t, three))), vec![value("c0", 9, plain(b"fork"))]);

    let of = |field, after| OperationChange::new(t.clone(), Namespace::root(), field, None, Some(after));
    let mut named = NewOperation::new(OperationKind::NameBranch, Timestamp::from_micros(9));
    named.actor = Some("Zoë".into());
    named.changes = vec![of(OperationField::Branch("bus".into()), OperationValue::Checkpoint(three))];
    let named = bench.store.operate(&named).unwrap();
    let mut titled = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(10));
    titled.target = Some(OperationTarget::Operation(named));
    titled.changes = vec![of(OperationField::Fact("title".into()), OperationValue::Text("a trip".into()))];
    bench.store.operate(&titled).unwrap();
    let mut moved = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(11));
    moved.target = Some(OperationTarget::Commits(side));
    moved.changes = vec![OperationChange::head(t.clone(), Namespace::root(), Some(side), Some(three))];
    bench.store.operate(&moved).unwrap();
    let last = id(bench, Some(&side));
    let changes = vec![list(4, vec![put(62, "after the move")])];
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(three));
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(three)), changes, ..checkpoint(last) });
    bench.store.commit(&batch).unwrap();

    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(last));
    let four = id(bench, Some(&last));
    batch.checkpoints.push(NewCheckpoint {
        tasks: tasks.to_vec(),
        parent: Some(Parent::Local(last)),
        ..checkpoint(four)
    });
    bench.store.commit(&batch).unwrap();
    let mark = WriteMark::WakesAt(Timestamp::from_micros(7));
    let asleep = write(-3, "waits", WriteValue::One(plain(&[1]))).with_mark(Some(mark));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(four));
    batch.writes = vec![writes(four, &tasks[0], vec![asleep])];
    batch.timers = vec![NewTimer::new(four, tasks[0].id, Some(Timestamp::from_micros(7)))];
    bench.store.commit(&batch).unwrap();
    8
}

/// Returns all that a store shows of its log, as text.
fn shown(store: &SqliteBackend) -> Vec<String> {
    let mut shown = Vec::new();
    for of in store.threads(None, 99).unwrap() {
        shown.push(format!("{of:?}"));
        shown.push(format!("{:?} {:?}", store.thread_size(&of.id), store.fields(&of.id)));
        for namespace in store.namespaces(&of.id).unwrap() {
            for record in store.checkpoints(&CheckpointQuery::new(of.id.clone(), namespace)).unwrap() {
                let state = store.state(&record.point).unwrap();
                shown.push(format!("{record:?} {:?} {:?}", state.channels, state.seen));
                let visit = &mut |row: crate::store::record::ItemRow<'_>| {
                    shown.push(format!("{} {:?} {:?}", row.position, row.task, row.payload.to_payload()));
                    Ok(())
                };
                store.items(&record.point, "messages", ItemRange::All, visit).unwrap();
                shown.push(format!("{:?}", store.writes(&record.point).unwrap()));
            }
        }
        shown.push(format!("{:?}", store.operations(&OperationQuery::new(Some(of.id.clone()), 0)).unwrap()));
    }
    shown.push(format!("{:?}", store.timers(None, 99).unwrap()));
    shown
}

fn counts(report: &Recovery) -> [u64; 7] {
    let Recovery { threads, checkpoints, writes, timers, operations, entries, lost_count, .. } = report;
    [threads, checkpoints, writes, timers, operations, entries, lost_count].map(|count| *count)
}

fn payload_count(path: &Path) -> i64 {
    raw(path).query_row("SELECT count(*) FROM payload", [], |row| row.get(0)).unwrap()
}

#[test]
fn rows_of_all_kinds_are_written_anew() {
    for options in [options(), encrypted(key(1)), options().checksum_key(key(2))] {
        let mut bench = with_options(&options);
        let checkpoints = fill(&mut bench);
        let (whole, values) = (shown(&bench.store), payload_count(&bench.path()));
        assert_eq!(bench.check(), Vec::<String>::new());
        let (path, to) = (bench.path(), bench.folder.path().join("recovered.db"));
        let Bench { folder: _folder, store, .. } = bench;
        drop(store);
        let report = Store::recover_with(&path, &to, &options).unwrap();
        assert_eq!(counts(&report), [2, checkpoints, 3, 1, 3, 0, 0], "{report:?}");
        let recovered = SqliteBackend::open(&to, &options).unwrap();
        for (found, expected) in shown(&recovered).iter().zip(&whole) {
            assert_eq!(found, expected);
        }
        assert_eq!(shown(&recovered).len(), whole.len());
        assert_eq!(payload_count(&to), values, "values are shared with the writes that they came from");
        assert_eq!(recovered.check().unwrap().problems, []);
    }
}

#[test]
fn a_log_of_many_pages_is_read_to_its_end() {
    let (mut bench, mut last) = (Bench::new(), None);
    for _ in 0..2 {
        let mut batch = Batch::new(thread("a"), Namespace::root(), last);
        for _ in 0..70 {
            let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, last.as_ref());
            let metadata = Some(format!(r#"{{"note":"{}"}}"#, "x".repeat(20_000)));
            batch.checkpoints.push(NewCheckpoint { parent: last.map(Parent::Local), metadata, ..checkpoint(id) });
            last = Some(id);
        }
        bench.store.commit(&batch).unwrap();
    }
    let (path, to) = (bench.path(), bench.folder.path().join("recovered.db"));
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    let report = Store::recover(&path, &to).unwrap();
    assert_eq!(counts(&report), [1, 140, 0, 0, 0, 0, 0]);
    assert_eq!(open(&to).head_id(&thread("a"), &Namespace::root()).unwrap(), last);
}

/// Recovers the filled store after a change of its rows.
fn recovered(options: &OpenOptions, harm: impl FnOnce(&Connection, &Keys)) -> Recovery {
    let mut bench = with_options(options);
    fill(&mut bench);
    harm(&without_triggers(&bench.path()), &bench.store.pool.place().keys);
    let (path, to) = (bench.path(), bench.folder.path().join("recovered.db"));
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    let report = Store::recover_with(&path, &to, options).unwrap();
    let store = SqliteBackend::open(&to, options).unwrap();
    assert_eq!(store.check().unwrap().problems, []);
    let timers = store.timers(None, 9).unwrap();
    assert!(timers.iter().all(|timer| timer.wake_at == Timestamp::from_micros(7)), "{timers:?}");
    report
}

#[test]
fn a_changed_row_beside_the_checkpoints_is_lost_alone() {
    for (harm, kind, expected) in [
        ("UPDATE operation SET actor = 'another' WHERE id = 1", LostKind::Operation, [2, 8, 3, 1, 1, 0]),
        ("UPDATE write SET path = 'other' WHERE idx = -1", LostKind::Writes, [2, 8, 2, 1, 3, 0]),
    ] {
        let report = recovered(&options(), |conn, _| conn.execute_batch(harm).unwrap());
        assert!(report.lost.iter().all(|lost| lost.kind == kind) && report.lost_count > 0, "{harm}: {report:?}");
        assert_eq!(counts(&report)[..6], expected, "{harm}: {report:?}");
    }
}

#[test]
fn a_change_of_a_whole_list_in_another_place_is_damage() {
    for (op, checkpoints) in [(DELETE_RANGE, 1), (REFERENCE, 7)] {
        let harm = format!("UPDATE item SET slot = slot - 9 WHERE op = {op} AND slot < 0");
        let report = recovered(&options(), |conn, _| assert_eq!(conn.execute(&harm, []).unwrap(), 1));
        assert_eq!(report.checkpoints, checkpoints, "{report:?}");
        assert!(report.lost[0].reason.contains("operation and value do not match the format"), "{report:?}");
    }
}

#[test]
fn a_column_that_a_payload_does_not_have_is_passed_over() {
    let harm = "UPDATE payload SET name = 'n', input_tokens = 5 WHERE form & 3 = 1";
    let report = recovered(&options(), |conn, _| assert!(conn.execute(harm, []).unwrap() > 0));
    assert_eq!(counts(&report), [2, 8, 3, 1, 3, 0, 0], "{report:?}");
}

#[test]
fn a_changed_timer_is_made_anew_of_the_write_of_its_task() {
    let harm = "UPDATE timer SET wake_at = wake_at + 1";
    let report = recovered(&options(), |conn, _| assert_eq!(conn.execute(harm, []).unwrap(), 1));
    assert_eq!(counts(&report), [2, 8, 3, 1, 3, 0, 0], "{report:?}");
}

#[test]
fn a_checkpoint_is_lost_with_a_name_of_another_kind_or_a_value_that_is_not_sealed() {
    let first = |report: &Recovery| {
        assert_eq!(report.checkpoints, 0, "all of them begin with the changed one: {report:?}");
        report.lost[0].reason.clone()
    };
    let of_name = recovered(&options(), |conn, _| {
        conn.execute_batch("UPDATE name SET kind = 2 WHERE text = 'c5'").unwrap();
    });
    assert!(first(&of_name).contains("does not stand for a Channel"), "{of_name:?}");
    let harm = "UPDATE version SET value = x'0105' WHERE ordinal = 0 AND kind & 15 = 1 AND branch = 1";
    let of_value = recovered(&encrypted(key(1)), |conn, _| conn.execute_batch(harm).unwrap());
    assert!(first(&of_value).contains("it is not sealed"), "{of_value:?}");
}

/// Changes a row of an operation, and makes its check that of its columns, as who forges a file does.
fn forge(conn: &Connection, keys: &Keys, operation: i64, after: &str) {
    let harm = format!("UPDATE operation_change SET after = {after} WHERE operation = {operation}");
    assert_eq!(conn.execute(&harm, []).unwrap(), 1);
    let columns = "SELECT namespace, kind, key, operation, newest, before, after FROM operation_change \
                   WHERE operation = ?1";
    let check = |row: &rusqlite::Row<'_>| {
        let mut check = RowCheck::of("operation_change");
        (0..7).for_each(|column| _ = check.value(row.get_ref(column).unwrap()));
        Ok(check.finish_keyed(keys))
    };
    let check = conn.query_row(columns, [operation], check).unwrap();
    conn.execute("UPDATE operation_change SET xxh3 = ?2 WHERE operation = ?1", [operation, check]).unwrap();
}

#[test]
fn an_operation_with_a_value_of_another_kind_is_lost() {
    for (options, operation, after, reason) in [
        (options(), 2, "x'0102'", "a value does not match the format"),
        (encrypted(key(1)), 2, "'a text'", "a value does not match the format"),
        (options(), 1, "3", "it names a checkpoint of another namespace"),
    ] {
        let report = recovered(&options, |conn, keys| forge(conn, keys, operation, after));
        let lost: Vec<_> = report.lost.iter().map(|lost| (lost.kind, lost.place.as_str())).collect();
        assert_eq!(lost[0], (LostKind::Operation, format!("operation {operation}").as_str()), "{report:?}");
        assert!(report.lost[0].reason.contains(reason), "{after}: {report:?}");
        assert_eq!(report.checkpoints, 8);
    }
}

/// Fills the first or the last leaf of the tree of items with zeros. Returns how many rows it had.
fn zero_leaf(path: &Path, is_first: bool) -> u64 {
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'item'";
    let root = raw(path).query_row(root, [], |row| row.get::<_, i64>(0)).unwrap() as usize;
    let mut bytes = std::fs::read(path).unwrap();
    let page = &bytes[(root - 1) * 4_096..root * 4_096];
    assert_eq!(page[0], 2, "a page above leaves");
    let number = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap()) as usize;
    let first_cell = usize::from(u16::from_be_bytes([page[12], page[13]]));
    let leaf = number(if is_first { first_cell } else { 8 });
    let leaf = &mut bytes[(leaf - 1) * 4_096..leaf * 4_096];
    assert_eq!(leaf[0], 10, "a leaf");
    let rows = u64::from(u16::from_be_bytes([leaf[3], leaf[4]]));
    leaf.fill(0);
    std::fs::write(path, bytes).unwrap();
    rows
}

#[test]
fn all_items_beside_a_damaged_page_are_read() {
    const COUNT: u64 = 400;
    for is_first in [true, false] {
        let (mut bench, mut last) = (Bench::new(), None);
        let mut batch = Batch::new(thread("a"), Namespace::root(), None);
        for n in 0..COUNT {
            let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, last.as_ref());
            // The rows of the newest checkpoints are on the page that will be damaged.
            let position = if is_first { COUNT - 1 - n } else { n };
            let changes = vec![list(n + 1, vec![put_new(position, plain(&[1]))])];
            batch.checkpoints.push(NewCheckpoint { parent: last.map(Parent::Local), changes, ..checkpoint(id) });
            last = Some(id);
        }
        bench.store.commit(&batch).unwrap();
        let (path, to) = (bench.path(), bench.folder.path().join("recovered.db"));
        let Bench { folder: _folder, store, .. } = bench;
        drop(store);
        let rows = zero_leaf(&path, is_first);
        assert!((10..COUNT / 2).contains(&rows));
        let report = Store::recover(&path, &to).unwrap();
        // The row between the leaf and the one beside it lies on the page above them.
        assert_eq!((report.checkpoints, report.lost_count), (COUNT - rows, rows), "first: {is_first}");
    }
}

/// The visited keys of a scan, its losses, and the numbers of rows that it asked for.
type Scanned = (Vec<i64>, Vec<(i64, Option<i64>)>, Vec<usize>);

/// Scans rows of which some cannot be read.
fn scanned(mut read: impl FnMut(i64, usize) -> Option<Vec<i64>>) -> Scanned {
    let (mut found, mut lost, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    let mut page = |from: i64, limit: usize| {
        limits.push(limit);
        let rows = read(from, limit).ok_or_else(|| corrupt("a page", "it is damaged"))?;
        Ok(rows.into_iter().map(|key| (key, ())).collect())
    };
    let mut visit = |(key, ()): (i64, ())| {
        found.push(key);
        Ok(())
    };
    scan(0, &mut page, &mut visit, &mut |from, to, _| {
        lost.push((from, to));
        Ok(())
    })
    .unwrap();
    (found, lost, limits)
}

#[test]
fn a_scan_reads_many_rows_at_once_and_fewer_after_damage() {
    let sound = |from: i64, limit| Some((from..640).take(limit).collect());
    let (found, lost, limits) = scanned(sound);
    assert_eq!((found, lost), ((0..640).collect(), Vec::new()));
    assert_eq!(limits, [SCAN_ROWS; 11]);

    let (found, lost, limits) = scanned(|from, limit| sound(from, limit).filter(|rows| !rows.contains(&5)));
    assert_eq!((found.len(), lost), (639, vec![(5, Some(6))]));
    // Before the rows after the damaged one, a look for the first of them that can be read.
    let expected = [64, 1, 2, 4, 1, 2, 1, 2, 1, 1, 1, 2, 4, 8, 16, 32, 64, 64];
    assert_eq!(limits[..expected.len()], expected);
    assert!(limits.iter().all(|limit| *limit <= SCAN_ROWS));
}

#[test]
fn rows_out_of_order_are_read_one_at_a_time() {
    let keys = |from: i64, limit: usize| (from..100).take(limit).collect::<Vec<i64>>();
    for harm in [
        |rows: &mut Vec<i64>| rows.insert(1, rows[0]),
        |rows: &mut Vec<i64>| rows.swap(0, 1),
        |rows: &mut Vec<i64>| rows.swap(1, 2),
        |rows: &mut Vec<i64>| rows[0] -= 1,
    ] {
        let (found, lost, _) = scanned(|from, limit| {
            let mut rows = keys(from, limit);
            if rows.len() > 2 && rows.contains(&50) {
                harm(&mut rows);
            }
            Some(rows)
        });
        assert_eq!((found, lost), ((0..100).collect(), Vec::new()));
    }
}

#[test]
fn a_scan_ends_after_so_many_losses() {
    let last = 2 * (SCAN_FAILURES_MAX as i64 + 10);
    // Of each two rows one is damaged.
    let (found, lost, _) = scanned(|from, limit| match (limit, from % 2) {
        _ if from > last => Some(Vec::new()),
        (1, 0) => Some(vec![from]),
        _ => None,
    });
    assert_eq!((found.len(), lost.len()), (SCAN_FAILURES_MAX + 1, SCAN_FAILURES_MAX + 1));
    assert_eq!(lost[SCAN_FAILURES_MAX - 1].1, Some(2 * SCAN_FAILURES_MAX as i64));
    assert_eq!(lost[SCAN_FAILURES_MAX].1, None);
}

#[test]
fn a_store_without_keys_is_not_recovered_with_one() {
    let bench = Bench::new();
    let (path, to) = (bench.path(), bench.folder.path().join("recovered.db"));
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    let error = Store::recover_with(&path, &to, &encrypted(key(1))).unwrap_err();
    assert!(matches!(error, StoreError::NotKeyed { .. }), "{error}");
}

#[test]
fn errors_of_rows_are_told_and_those_of_the_disk_end_a_replay() {
    let sqlite = |code| Fault::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    let of_rows = [
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_NOTADB,
        ffi::SQLITE_CONSTRAINT,
        ffi::SQLITE_MISMATCH,
        ffi::SQLITE_TOOBIG,
        ffi::SQLITE_ERROR,
    ];
    assert!(of_rows.into_iter().all(|code| reason(sqlite(code)).is_ok()));
    assert!(reason(rusqlite::Error::QueryReturnedNoRows.into()).is_ok());
    assert!(reason(rusqlite::Error::IntegralValueOutOfRange(0, 1 << 40).into()).is_ok());
    assert!(reason(corrupt("a row", "it is damaged")).is_ok());
    let of_disk = [ffi::SQLITE_FULL, ffi::SQLITE_IOERR, ffi::SQLITE_BUSY, ffi::SQLITE_READONLY, ffi::SQLITE_NOMEM];
    assert!(of_disk.into_iter().all(|code| reason(sqlite(code)).is_err()));
    assert!(reason(StoreError::Busy { waited_ms: 0, holder: None }.into()).is_err());
}
