//! Rows of items in reads of lists.

use super::super::fault::Res;
use super::*;
use crate::base::ListRef;
use crate::store::StoreError;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::items::ChannelRows;
use crate::store::sqlite::rows::item::{REFERENCE, item_check, item_place};
use crate::store::sqlite::rows::pack::pack_reference;
use rusqlite::params;
use rusqlite::types::ValueRef;
use std::collections::BTreeMap;

const WHOLE: ItemRange = ItemRange::All;

fn puts(positions: std::ops::Range<u64>, text: &str) -> Vec<ItemChange> {
    positions.map(|position| put(position, &format!("{text} {position}"))).collect()
}

/// Commits changes of a list, each on the one before.
fn history(bench: &mut Bench, changes: Vec<Vec<ItemChange>>) -> Vec<CheckpointRef> {
    let (t, mut head, mut points) = (thread("a"), None, Vec::new());
    for (n, items) in changes.into_iter().enumerate() {
        let id = bench.add(&t, head, vec![list(n as u64 + 1, items)]);
        head = Some(id);
        points.push(at(&t, id));
    }
    points
}

fn harm(bench: &Bench, sql: &str) {
    assert_eq!(without_triggers(&bench.path()).execute(sql, []).unwrap(), 1, "{sql}");
}

fn try_read(bench: &Bench, at: &CheckpointRef, range: ItemRange) -> Result<usize, StoreError> {
    let mut count = 0;
    let visited = bench.store.items(at, "messages", range, &mut |_| {
        count += 1;
        Ok(())
    });
    visited.map(|()| count)
}

#[track_caller]
fn damaged(result: Result<usize, StoreError>) {
    assert!(matches!(result, Err(StoreError::Corrupt { .. })), "{result:?}");
}

/// Asserts that each tail of a list is the end of its items.
fn tails(bench: &Bench, at: &CheckpointRef, all: &[(u64, String)]) {
    assert_eq!(bench.items(at, WHOLE), all);
    for count in (0..all.len() + 3).chain([1_000]) {
        let tail = bench.items(at, ItemRange::Tail(count));
        assert_eq!(tail, all[all.len().saturating_sub(count)..], "tail of {count}");
    }
}

#[test]
fn an_item_is_found_by_its_id_beside_damaged_ones() {
    let mut bench = Bench::new();
    // The names of other channels come first.
    bench.add(&thread("other"), None, vec![value("x", 1, plain(&[1])), value("y", 1, plain(&[1]))]);
    let points = history(&mut bench, vec![puts(0..70, "a"), puts(70..150, "b"), vec![put(3, "again"), remove(9)]]);
    harm(&bench, "UPDATE payload SET text = 'harmed' WHERE text = 'a 0'");
    damaged(try_read(&bench, &points[2], WHOLE));
    let find = |at: &CheckpointRef, id: &str| {
        let mut found = None;
        let is_found = bench.store.find_item(at, "messages", id, &mut |row| {
            found = Some((row.position, row.payload.index.unwrap().id.unwrap().to_owned()));
            Ok(())
        });
        is_found.map(|is_found| (is_found, found))
    };
    for position in (1..150).filter(|position| *position != 9) {
        let id = format!("m{position}");
        assert_eq!(find(&points[2], &id).unwrap(), (true, Some((position, id))));
    }
    // For an id that is not there the whole list is searched.
    for (at, id) in [(&points[2], "m9"), (&points[2], "m150"), (&points[0], "m99")] {
        assert!(matches!(find(at, id), Err(StoreError::Corrupt { .. })), "{id}");
    }
}

#[test]
fn an_item_that_has_another_id_by_now_is_not_found_by_its_first_one() {
    let mut bench = Bench::new();
    let renamed = ItemChange { position: 1, op: ItemOp::Put(Data::New(message("new", "text"))), task: None };
    let points = history(&mut bench, vec![puts(0..4, "a"), vec![renamed]]);
    let find = |at: &CheckpointRef, id: &str| bench.store.find_item(at, "messages", id, &mut |_| Ok(())).unwrap();
    assert_eq!([find(&points[0], "m1"), find(&points[0], "new")], [true, false]);
    assert_eq!([find(&points[1], "m1"), find(&points[1], "new")], [false, true]);
}

#[test]
fn an_item_after_a_checkpoint_is_not_read_with_its_list() {
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..5, "a"), puts(5..8, "b"), puts(8..9, "c")]);
    harm(&bench, "UPDATE item SET task = 1 WHERE slot = 5");
    assert_eq!(try_read(&bench, &points[0], WHOLE).unwrap(), 5);
    assert_eq!(try_read(&bench, &points[0], ItemRange::Positions(2, 90)).unwrap(), 3);
    damaged(try_read(&bench, &points[1], WHOLE));
    damaged(try_read(&bench, &points[2], WHOLE));
}

#[test]
fn a_range_without_positions_has_no_items() {
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..9, "a")]);
    for (first, end) in [(0, 0), (5, 5), (7, 3), (9, 9), (9, 12), (u64::MAX, u64::MAX)] {
        assert_eq!(bench.items(&points[0], ItemRange::Positions(first, end)), [], "{first}..{end}");
    }
    // A read of the rows themselves comes to the same.
    for (first, end) in [(0, 0), (5, 5), (7, 3)] {
        let range = ItemRange::Positions(first, end);
        bench.store.pool.read(|view| view.items(&points[0], "messages", range, &mut |_| panic!("an item"))).unwrap();
    }
    let places = |first, end| bench.items(&points[0], ItemRange::Positions(first, end)).len();
    assert_eq!((places(8, 9), places(8, 20), places(0, 1)), (1, 1, 1));
}

#[test]
fn a_missing_item_is_noticed_by_the_number_of_items_or_by_the_end_of_the_list() {
    // Before a deleted item, the number of the items tells it.
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..20, "a"), vec![remove(15)], puts(20..21, "b")]);
    assert_eq!(try_read(&bench, &points[2], ItemRange::Tail(20)).unwrap(), 20);
    harm(&bench, "DELETE FROM item WHERE slot = 3");
    assert_eq!(try_read(&bench, &points[2], ItemRange::Tail(19)).unwrap(), 19, "the item is not in its tail");
    damaged(try_read(&bench, &points[2], ItemRange::Tail(20)));
    damaged(try_read(&bench, &points[2], WHOLE));
    // At the end, another item stands in its place.
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..10, "a"), vec![put(0, "again")]]);
    harm(&bench, "DELETE FROM item WHERE slot = 9");
    damaged(try_read(&bench, &points[1], ItemRange::Tail(3)));
    damaged(try_read(&bench, &points[1], ItemRange::Positions(2, 10)));
    assert_eq!(try_read(&bench, &points[1], ItemRange::Positions(2, 9)).unwrap(), 7);
}

#[test]
fn the_end_of_a_list_without_deletes_tells_how_many_items_a_range_has() {
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..9, "a"), vec![remove(4)]]);
    let of =
        |n: usize, range| bench.store.pool.read(|view| view.items_of_range(&points[n], "messages", range)).unwrap();
    let ranges = [WHOLE, ItemRange::Tail(3), ItemRange::Positions(2, 5), ItemRange::Positions(2, 90)];
    assert_eq!(ranges.map(|range| of(0, range)), [Some(9), Some(3), Some(3), Some(7)]);
    assert_eq!(ranges.map(|range| of(1, range)), [Some(8), Some(3), None, None]);
    assert_eq!((of(0, ItemRange::Tail(50)), of(0, ItemRange::Positions(20, 30))), (Some(9), Some(0)));
}

/// Calls `use_list` with the list at a checkpoint.
fn with_list<T>(bench: &Bench, at: &CheckpointRef, use_list: impl FnOnce(ChannelRows<'_>) -> Res<T>) -> T {
    let read = bench.store.pool.read(|view| {
        let (_, branch, ordinal) = view.place(at)?;
        use_list(ChannelRows::read(view, branch, ordinal, "messages")?.unwrap())
    });
    read.unwrap()
}

#[test]
fn a_list_has_the_name_of_its_items() {
    let mut bench = Bench::new();
    bench.add(&thread("other"), None, vec![value("x", 1, plain(&[1])), value("y", 1, plain(&[1]))]);
    let points = history(&mut bench, vec![puts(0..2, "a")]);
    let name: i64 = raw(&bench.path()).query_row("SELECT DISTINCT channel FROM item", [], |row| row.get(0)).unwrap();
    assert!(name > 1);
    assert_eq!(with_list(&bench, &points[0], |list| Ok(list.channel())), name);
}

#[test]
fn items_before_a_position_are_those_directly_before_it() {
    let mut bench = Bench::new();
    let points = history(
        &mut bench,
        vec![
            puts(0..6, "a"),
            vec![remove(3), put(5, "again")],
            vec![delete_range(1, 2), put(6, "b")],
            vec![put(3, "back"), put(7, "c"), remove(6)],
            vec![put(1, "back"), delete_range(4, 5)],
            vec![put(5, "last"), put(6, "last")],
        ],
    );
    for at in &points {
        let items: BTreeMap<u64, String> = bench.items(at, WHOLE).into_iter().collect();
        for position in 0..10_u64 {
            let expected: Vec<String> = (0..position).rev().map_while(|below| items.get(&below).cloned()).collect();
            for most in [1, 2, 90] {
                let before = with_list(&bench, at, |list| {
                    let mut texts = Vec::new();
                    list.before(position as i64, &mut |payload| {
                        texts.push(payload.index.unwrap().text.unwrap().to_owned());
                        texts.len() < most
                    })?;
                    Ok(texts)
                });
                assert_eq!(before, expected[..most.min(expected.len())], "{position} of {items:?}");
            }
        }
    }
}

#[test]
fn a_referenced_list_is_read_below_the_rows_of_its_own() {
    let mut bench = Bench::new();
    let base = ChangeValue::Items(puts(0..100, "a"));
    let base = Change { channel: "base".into(), version: 1, value: base, task: None };
    let mut head = bench.add(&thread("a"), None, vec![base]);
    let of = ListRef::new(Namespace::root(), head, "base");
    let reference = ItemChange { position: 0, op: ItemOp::Reference(of), task: None };
    let mut model: BTreeMap<u64, String> = (0..100).map(|position| (position, format!("a {position}"))).collect();
    for (n, change) in [
        vec![reference, put(96, "own")],
        vec![put(100, "own"), remove(98)],
        vec![delete_range(70, 95), put(80, "after")],
        vec![remove(99), remove(100), delete_range(1, 2)],
        vec![put(103, "own")],
    ]
    .into_iter()
    .enumerate()
    {
        for item in &change {
            if let ItemOp::DeleteRange { end } = item.op {
                model.retain(|position, _| !(item.position..end).contains(position));
            }
        }
        for item in &change {
            match &item.op {
                ItemOp::Put(Data::New(payload)) => {
                    let text = payload.index.as_ref().and_then(|index| index.text.clone()).unwrap();
                    model.insert(item.position, text.to_string());
                }
                ItemOp::Delete => _ = model.remove(&item.position),
                _ => {}
            }
        }
        head = bench.add(&thread("a"), Some(head), vec![list(n as u64 + 2, change)]);
        let all: Vec<(u64, String)> = model.clone().into_iter().collect();
        tails(&bench, &at(&thread("a"), head), &all);
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_list_that_references_itself_is_damage() {
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..3, "a")]);
    let of = ListRef::new(Namespace::root(), points[0].checkpoint, "messages");
    let reference = ItemChange { position: 0, op: ItemOp::Reference(of), task: None };
    let t = thread("a");
    let head = at(&t, bench.add(&t, Some(points[0].checkpoint), vec![list(2, vec![reference])]));
    assert_eq!(bench.items(&head, WHOLE).len(), 3);
    // As one who forges a file does, with a check that fits.
    let conn = without_triggers(&bench.path());
    let row = conn.query_row("SELECT branch, channel, slot, ordinal FROM item WHERE slot < 0", [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let (branch, channel, slot, ordinal): (i64, i64, i64, i64) = row.unwrap();
    let seq: i64 = conn.query_row("SELECT max(seq) FROM checkpoint", [], |row| row.get(0)).unwrap();
    let forged = pack_reference(seq, channel);
    let blob = ValueRef::Blob(&forged);
    let check = item_check(&Keys::default(), branch, channel, slot, ordinal, REFERENCE, None, blob);
    let update = "UPDATE item SET value = ?1, xxh3 = ?2 WHERE slot < 0";
    assert_eq!(conn.execute(update, params![forged, check]).unwrap(), 1);
    let read = move || {
        for range in [WHOLE, ItemRange::Tail(2), ItemRange::Positions(0, 2)] {
            let error = try_read(&bench, &head, range).unwrap_err();
            assert!(error.to_string().contains("too many lists in a row"), "{range:?}: {error}");
        }
    };
    // A build without optimizations needs a larger stack for so many lists.
    std::thread::Builder::new().stack_size(64 << 20).spawn(read).unwrap().join().unwrap();
}

#[test]
fn a_tail_has_the_newest_item_of_a_position_that_was_put_often() {
    for (items, often) in [(10, 5), (5, 0), (20, 19), (40, 0)] {
        let mut bench = Bench::new();
        let mut changes = vec![puts(0..items, "a")];
        changes.extend((0..30).map(|n| vec![put(often, &format!("version {n}"))]));
        let points = history(&mut bench, changes);
        let newest = points.last().unwrap();
        let all = bench.items(newest, WHOLE);
        assert_eq!((all.len() as u64, &*all[often as usize].1), (items, "version 29"));
        tails(&bench, newest, &all);
        tails(&bench, &points[9], &bench.items(&points[9], WHOLE));
    }
}

#[test]
fn a_newer_item_that_was_moved_below_the_list_is_missed_by_a_tail_of_all() {
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..2, "a"), vec![put(0, "again")], puts(2..3, "b")]);
    assert_eq!(try_read(&bench, &points[2], ItemRange::Tail(3)).unwrap(), 3);
    harm(&bench, "UPDATE item SET slot = -7 WHERE slot = 0 AND ordinal = 1");
    damaged(try_read(&bench, &points[2], ItemRange::Tail(3)));
    // A tail whose rows reach the first position by chance is one of its last items.
    let mut bench = Bench::new();
    let points = history(&mut bench, vec![puts(0..19, "a"), vec![put(0, "again")], puts(19..20, "b")]);
    harm(&bench, "UPDATE item SET slot = -7 WHERE slot = 0 AND ordinal = 1");
    assert_eq!(try_read(&bench, &points[2], ItemRange::Tail(4)).unwrap(), 4);
    damaged(try_read(&bench, &points[2], ItemRange::Tail(20)));
}

/// Commits a list, and one on another branch of it with changes.
fn forked(bench: &mut Bench, base: Vec<ItemChange>, changes: Vec<ItemChange>) -> CheckpointRef {
    let t = thread("a");
    let first = bench.add(&t, None, vec![list(1, base)]);
    bench.add(&t, Some(first), vec![value("x", 1, plain(&[1]))]);
    at(&t, bench.add(&t, Some(first), vec![list(2, changes)]))
}

#[test]
fn a_tail_that_one_branch_holds_is_read_without_the_branch_before() {
    let mut bench = Bench::new();
    let mut changes = vec![delete_range(11, 20), put(10, "own")];
    changes.extend(puts(20..23, "own"));
    let head = forked(&mut bench, puts(0..20, "a"), changes);
    let all = bench.items(&head, WHOLE);
    let positions: Vec<u64> = all.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, (0..11).chain(20..23).collect::<Vec<_>>());
    tails(&bench, &head, &all);
    harm(&bench, "UPDATE item SET task = 1 WHERE slot = 3");
    for count in 1..=4 {
        assert_eq!(bench.items(&head, ItemRange::Tail(count)), all[all.len() - count..], "{count}");
    }
    damaged(try_read(&bench, &head, ItemRange::Tail(5)));
}

#[test]
fn a_tail_takes_an_item_between_those_of_a_fork_from_the_branch_before() {
    for (own, deleted) in [(vec![8, 10], None), (vec![7, 10], None), (vec![6, 10], Some((7, 9))), (vec![9, 11], None)] {
        let mut bench = Bench::new();
        let mut changes: Vec<ItemChange> = deleted.map(|(first, end)| delete_range(first, end)).into_iter().collect();
        changes.extend(own.iter().map(|position| put(*position, "own")));
        let head = forked(&mut bench, puts(0..11, "a"), changes);
        let all: Vec<(u64, String)> = (0..12)
            .filter(|position| !deleted.is_some_and(|(first, end)| (first..end).contains(position)))
            .filter(|position| *position < 11 || own.contains(position))
            .map(|position| (position, if own.contains(&position) { "own".into() } else { format!("a {position}") }))
            .collect();
        tails(&bench, &head, &all);
    }
}

#[test]
fn a_row_of_an_item_is_named_by_its_place() {
    assert_eq!(item_place(1, 2, 0, 4), "item (branch 1, channel 2, position 0, ordinal 4)");
    assert_eq!(item_place(1, 2, 3, 4), "item (branch 1, channel 2, position 3, ordinal 4)");
    assert_eq!(item_place(1, 2, -5, 4), "item (branch 1, channel 2, range delete or reference -5, ordinal 4)");
}

#[test]
fn a_tail_of_a_referenced_list_misses_no_item_above_a_range_delete() {
    let mut bench = Bench::new();
    let items = (0..100).map(|position| put(position, &format!("a {position}"))).collect();
    let base = Change { channel: "base".into(), version: 1, value: ChangeValue::Items(items), task: None };
    let mut head = bench.add(&thread("a"), None, vec![base]);
    let of = ListRef::new(Namespace::root(), head, "base");
    let reference = ItemChange { position: 0, op: ItemOp::Reference(of), task: None };
    // The own items at 3 and 50 are below those that are read first of the referenced list.
    let changes = [vec![reference], vec![put(3, "own"), put(50, "own"), put(100, "own")], vec![delete_range(70, 95)]];
    for (n, items) in changes.into_iter().enumerate() {
        head = bench.add(&thread("a"), Some(head), vec![list(n as u64 + 2, items)]);
    }
    let with_end = at(&thread("a"), head);
    let all = bench.items(&with_end, ItemRange::All);
    assert_eq!(all.len(), 76);
    tails(&bench, &with_end, &all);
    // All that is read first of the referenced list is deleted.
    head = bench.add(&thread("a"), Some(head), vec![list(5, vec![delete_range(55, 101)])]);
    let without_end = at(&thread("a"), head);
    let all = bench.items(&without_end, ItemRange::All);
    assert_eq!(all.len(), 55);
    tails(&bench, &without_end, &all);
}
