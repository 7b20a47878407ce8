//! The walk of a lineage: its spans, and the newest row of each key at every checkpoint, as the rows alone give it.

use super::*;
use crate::store::StoreError;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::schema::statements;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::lineage::{INTERVAL, Span, newest, newest_of, row_at, spans};
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, NO_CHANGES, VersionRow, of_kind_column};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, TableRow, branch, version};
use crate::store::sqlite::view::ReadView;
use rusqlite::Connection;
use std::collections::BTreeMap;

fn add_branch(conn: &Connection, id: i64, parent: Option<i64>, upto: Option<i64>) {
    let (namespace, depth, fork_thread, fork_checkpoint) = (1, 0, None, None);
    branch::Row { id, namespace, parent, upto, depth, fork_thread, fork_checkpoint }.insert(conn).unwrap();
}

fn reason<T: std::fmt::Debug>(result: Res<T>) -> String {
    match result.unwrap_err() {
        Fault::Store(StoreError::Corrupt { place, reason }) => format!("{place}: {reason}"),
        fault => panic!("{fault:?}"),
    }
}

#[test]
fn spans_lead_from_branch_to_branch_as_far_as_they_are_needed() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&statements(sql::SCHEMA)).unwrap();
    add_branch(&conn, 1, None, None);
    add_branch(&conn, 2, Some(1), Some(9));
    add_branch(&conn, 5, Some(2), Some(14));
    let span = |branch, first, last| Span { branch, first, last };
    let all = [span(5, 15, 20), span(2, 10, 14), span(1, 0, 9)];
    for (down_to, count) in [(0, 3), (9, 3), (10, 2), (14, 2), (15, 1), (20, 1)] {
        assert_eq!(spans(&conn, 5, 20, down_to).unwrap(), all[..count], "{down_to}");
    }
    assert_eq!(spans(&conn, 1, 4, 0).unwrap(), [span(1, 0, 4)]);
}

#[test]
fn a_branch_that_does_not_leave_an_older_one_before_its_rows_is_damage() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&statements(sql::SCHEMA)).unwrap();
    add_branch(&conn, 1, None, None);
    // Its own parent, a younger parent, a parent without an ordinal, an ordinal without a parent.
    add_branch(&conn, 3, Some(3), Some(5));
    add_branch(&conn, 4, Some(9), Some(5));
    add_branch(&conn, 5, Some(1), None);
    add_branch(&conn, 6, None, Some(5));
    add_branch(&conn, 7, Some(1), Some(5));
    for branch in [4, 3, 5, 6] {
        for down_to in [0, 6, 7] {
            let text = reason(spans(&conn, branch, 9, down_to));
            assert_eq!(text, format!("branch {branch}: it does not leave an older branch before its own rows"));
        }
    }
    for ordinal in [5, 4] {
        let text = reason(spans(&conn, 7, ordinal, 6));
        assert_eq!(text, "branch 7: it does not leave an older branch before its own rows");
    }
    assert_eq!(spans(&conn, 7, 6, 6).unwrap().len(), 1);
    assert_eq!(reason(spans(&conn, 8, 6, 0)), "branch 8: a row refers to it, but it does not exist");
}

#[test]
fn the_newest_rows_are_those_that_the_lineage_has() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut tips = Vec::new();
    let mut tip = None;
    // Three index snapshots on the first branch; two more branches leave it beside a snapshot, and go on for one.
    for n in 0..3 * INTERVAL as u64 + 7 {
        let mut changes = vec![value(&format!("x{}", n % 5), n + 1, plain(&[n as u8]))];
        match n {
            0 => changes.extend([list(1, vec![put(0, "zero")]), value("once", 1, plain(&[1]))]),
            3 => changes.push(value("early", 2, plain(&[2]))),
            70 => changes.push(list(n + 1, vec![put(1, "one")])),
            71 => changes.clear(),
            _ => {}
        }
        tip = Some(bench.add(&t, tip, changes));
        tips.extend(tip);
    }
    let interval = INTERVAL as usize;
    for (from, name) in [(2 * interval, "left"), (2 * interval - 1, "right"), (interval - 2, "early")] {
        let mut fork = tips[from];
        for n in 0..interval as u64 + 5 {
            let version = 1_000 + n;
            let name = if n % 9 == 0 { "once" } else { name };
            fork = bench.add(&t, Some(fork), vec![value(name, version, plain(&[n as u8]))]);
            tips.push(fork);
        }
    }
    let conn = raw(&bench.path());
    let (names, keys) = (Names::of_readers(), Keys::default());
    let view = ReadView { conn: &conn, names: &names, keys: &keys };
    let mut statement = conn.prepare(&format!("{} WHERE branch = ?1", version::Row::SELECT)).unwrap();
    let mut rows: Vec<VersionRow> = Vec::new();
    for branch in 1..5 {
        let mut found = statement.query([branch]).unwrap();
        while let Some(row) = found.next().unwrap() {
            rows.push(VersionRow::of(&version::Row::read(row, 0).unwrap()).unwrap());
        }
    }
    let all_keys: std::collections::BTreeSet<i64> = rows.iter().map(|row| row.key).collect();
    assert!(all_keys.len() >= 9, "{all_keys:?}");
    let place = |row: &VersionRow| (row.branch, row.ordinal, row.version, row.kind);
    for tip in tips {
        let record = bench.store.checkpoint(&at(&t, tip)).unwrap().unwrap();
        let (branch, ordinal) = (record.branch as i64, record.ordinal as i64);
        let lineage = spans(&conn, branch, ordinal, 0).unwrap();
        let is_of = |row: &&VersionRow| {
            let is_within = |span: &Span| span.branch == row.branch && (span.first..=span.last).contains(&row.ordinal);
            lineage.iter().any(is_within) && ![INDEX_SNAPSHOT, NO_CHANGES].contains(&row.kind)
        };
        let mut expected: BTreeMap<i64, &VersionRow> = BTreeMap::new();
        for row in rows.iter().filter(is_of) {
            let newest = expected.entry(row.key).or_insert(row);
            if newest.ordinal < row.ordinal {
                *newest = row;
            }
        }
        let expected: BTreeMap<i64, _> = expected.into_iter().map(|(key, row)| (key, place(row))).collect();
        let found: BTreeMap<i64, _> =
            newest(view, branch, ordinal).unwrap().iter().map(|(key, row)| (*key, place(row))).collect();
        assert_eq!(found, expected, "{branch} {ordinal}");
        if ordinal % 7 == 0 || ordinal % INTERVAL < 3 {
            for key in all_keys.iter().filter(|key| **key > 0) {
                let found = newest_of(view, branch, ordinal, *key).unwrap();
                assert_eq!(found.as_ref().map(place), expected.get(key).copied(), "{branch} {ordinal} {key}");
            }
        }
    }
}

#[test]
fn rows_that_are_missing_or_changed_are_named() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = bench.add(&t, None, vec![value("x", 1, plain(&[1])), value("y", 1, plain(&[2]))]);
    bench.add(&t, Some(first), vec![value("x", 2, plain(&[3]))]);
    bench.store.checkpoint_wal().unwrap();
    let conn = without_triggers(&bench.path());
    let (names, keys) = (Names::of_readers(), Keys::default());
    let view = ReadView { conn: &conn, names: &names, keys: &keys };
    let keys_of = |ordinal: i64| -> Vec<i64> {
        let mut statement = conn.prepare("SELECT key FROM version WHERE ordinal = ?1 ORDER BY key").unwrap();
        let keys = statement.query_map([ordinal], |row| row.get(0)).unwrap();
        keys.map(Result::unwrap).collect()
    };
    let (x, y) = (keys_of(0)[0], keys_of(0)[1]);
    assert_eq!(keys_of(1), [x]);
    assert_eq!(row_at(view, (1, 0), y).unwrap().key, y);
    let missing = format!("version (branch 1, ordinal 1, key {y}): a row refers to it, but it is missing");
    assert_eq!(reason(row_at(view, (1, 1), y)), missing);
    let no_rows = "version (branch 1, ordinal 2): the rows of the checkpoint are missing";
    assert_eq!(reason(row_at(view, (1, 2), y)), no_rows);
    conn.execute("UPDATE version SET version = version + 1 WHERE ordinal = 0 AND key = ?1", [x]).unwrap();
    let changed = "version (branch 1, ordinal 0): the check of the rows does not match";
    assert_eq!(reason(row_at(view, (1, 0), y)), changed);
    conn.execute("UPDATE version SET kind = (kind & ~15) | 9 WHERE ordinal = 1", []).unwrap();
    let format = format!("version (branch 1, ordinal 1, key {x}): kind and value do not match the format");
    assert_eq!(reason(row_at(view, (1, 1), x)), format);
}

#[test]
fn the_column_of_a_kind_holds_an_offset_of_either_sign() {
    for (kind, offset) in [(0, 0), (5, 0), (3, 1), (2, -1), (4, 1 << 40), (1, -(1 << 40))] {
        assert_eq!(of_kind_column(offset * 16 + kind), (kind, offset));
    }
}
