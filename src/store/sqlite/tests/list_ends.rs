//! The ends of lists: the bytes of an end, and the end after every kind of change, compared with a model.

use super::*;
use crate::limits::LIST_RUN_MAX;
use crate::store::StoreError;
use crate::store::batch::ListRef;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::lineage::newest_of;
use crate::store::sqlite::read::list_end::ListEnds;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::version::{KeyContent, LIST, VersionRow};
use crate::store::sqlite::view::ReadView;
use std::collections::BTreeSet;

const ALL: (u64, u64) = (0, u64::MAX);

#[test]
fn an_end_is_byte_exact() {
    let whole = ListEnd { end: 10, len: 10, run: 10, written: (9, 10), ..ListEnd::default() };
    let gaps = ListEnd { len: 7, run: 2, ..whole };
    let exact: [(ListEnd, &[u8]); 9] = [
        (whole, &[10, 0, 1]),
        (gaps, &[10, 3, 2, 1]),
        (ListEnd { is_reference: true, ..whole }, &[10, 0, 1, 1]),
        (ListEnd { has_ranges: true, ..whole }, &[10, 0, 1, 2]),
        (ListEnd { written: ALL, ..whole }, &[10, 0, 0, 4]),
        (ListEnd { written: (3, 4), ..whole }, &[10, 0, 7, 8, 6]),
        (ListEnd { before: Some((5, 880)), ..whole }, &[10, 0, 1, 0x20, 20]),
        (ListEnd { before: Some((1, 0)), is_reference: true, has_ranges: true, ..gaps }, &[10, 3, 2, 1, 0x63, 0x84, 7]),
        (ListEnd { before: Some((6, 899)), written: (0, 1), ..gaps }, &[10, 3, 2, 10, 0x18, 1, 9]),
    ];
    for (end, bytes) in exact {
        assert_eq!(end.pack(7, 900), bytes, "{end:?}");
        assert_eq!(ListEnd::unpack(bytes, 7, 900), Some(end));
        for cut in 0..bytes.len() {
            assert_ne!(ListEnd::unpack(&bytes[..cut], 7, 900), Some(end), "{end:?} cut at {cut}");
        }
    }
}

#[test]
fn an_end_at_a_border_is_accepted_and_one_past_it_refused() {
    let is_read = |bytes: &[u8]| ListEnd::unpack(bytes, 7, 900).is_some();
    let far = |end: u64| ListEnd { end, written: (end, end), ..ListEnd::default() };
    assert_eq!(ListEnd::unpack(&far(1 << 63).pack(7, 900), 7, 900), Some(far(1 << 63)));
    let mut above = Vec::new();
    for part in [(1 << 63) + 1, (1 << 63) + 1, 0, 0] {
        crate::store::sqlite::rows::pack::put_uint(&mut above, part);
    }
    assert!(!is_read(&above), "an end above 2^63");
    // The run has as many positions as the list at most.
    assert!(is_read(&[9, 4, 5, 0]) && !is_read(&[9, 4, 6, 0]));
    let run = |run: u8| ListEnd::unpack(&[0xac, 2, 1, run, 0], 7, 900).is_some();
    assert!(run(LIST_RUN_MAX as u8) && !is_read(&[0xac, 2, 1, 0x80, 1, 0]));
    assert_eq!(ListEnd::unpack(&[0xac, 2, 0, 0], 7, 900).unwrap().run, LIST_RUN_MAX);
    // The first position that was written is not below 0 and not above the last one.
    assert!(is_read(&[9, 0, 9]) && !is_read(&[9, 0, 10]));
    assert!(is_read(&[9, 0, 4, 8, 4]) && !is_read(&[9, 0, 4, 8, 5]));
    assert!(!is_read(&[9, 0, 4, 8, 0]), "the last position is said to be below the end");
    // The branch before has a number, and an ordinal below.
    assert!(is_read(&[9, 0, 1, 0x60, 1]) && !is_read(&[9, 0, 1, 0x70, 1]) && !is_read(&[9, 0, 1, 0x80, 1, 1]));
    assert!(is_read(&[9, 0, 1, 0x10, 0x84, 7]) && !is_read(&[9, 0, 1, 0x10, 0x85, 7]) && !is_read(&[9, 0, 1, 0x10, 0]));
    // A change that replaces the list names no positions.
    assert!(is_read(&[9, 0, 0, 4]) && !is_read(&[9, 0, 1, 4]) && !is_read(&[9, 0, 0, 12, 1]));
}

#[test]
fn the_floor_is_the_first_position_of_the_last_run() {
    let end = ListEnd { end: 10, len: 7, run: 4, ..ListEnd::default() };
    assert_eq!(end.floor(), 6);
    assert_eq!(ListEnd { run: 0, ..end }.floor(), 10);
    assert_eq!(ListEnd { len: 10, run: 10, ..end }.floor(), 0);
    assert_eq!(ListEnd { end: 1_000, len: 1_000, run: LIST_RUN_MAX, ..end }.floor(), 0);
    assert_eq!(ListEnd::default().floor(), 0);
}

#[test]
fn an_end_that_cannot_be_decoded_names_its_row() {
    let row = |value: KeyContent| VersionRow::derived(LIST, (7, 900), 5, value);
    let end = ListEnd { end: 3, len: 3, run: 3, written: (0, 3), before: Some((2, 80)), ..ListEnd::default() };
    assert_eq!(ListEnd::of(&row(KeyContent::Packed(end.pack(7, 900)))).unwrap(), end);
    let null = crate::store::sqlite::rows::pack::ValueColumn::Null;
    for value in [KeyContent::Packed(vec![1]), KeyContent::Channel(null)] {
        match ListEnd::of(&row(value)).unwrap_err() {
            Fault::Store(StoreError::Corrupt { place, reason }) => {
                assert_eq!(place, "version (branch 7, ordinal 900, key 5)");
                assert_eq!(reason, "the end of its list cannot be decoded");
            }
            fault => panic!("{fault:?}"),
        }
    }
}

#[test]
fn ends_that_were_noted_are_found_until_they_are_cleared() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = bench.add(&t, None, vec![list(1, vec![put(0, "zero")]), value("x", 1, plain(&[1]))]);
    bench.add(&t, Some(first), vec![value("x", 2, plain(&[1]))]);
    let conn = raw(&bench.path());
    let (names, keys) = (Names::of_readers(), Keys::default());
    let view = ReadView { conn: &conn, names: &names, keys: &keys };
    let key = |name: &str| names.find(&conn, Kind::Channel, name).unwrap().unwrap();
    let (messages, x) = (key("messages"), key("x"));
    let mut ends = ListEnds::default();
    assert_eq!(ends.len(), 0);
    let stored = ends.at(view, (1, 1), messages).unwrap().unwrap().list.unwrap();
    assert_eq!((stored.end, stored.len), (1, 1));
    assert!(ends.at(view, (1, 1), x).unwrap().unwrap().list.is_none(), "no list");
    assert!(ends.at(view, (1, 1), 99).unwrap().is_none(), "no such channel");
    let noted = ListEnd { end: 8, len: 8, run: 8, ..ListEnd::default() };
    ends.note(1, 1, messages, Some(noted));
    ends.note(1, 1, x, Some(noted));
    assert_eq!(ends.len(), 2);
    for (ordinal, expected) in [(0, stored), (1, noted), (2, noted)] {
        let found = ends.at(view, (1, ordinal), messages).unwrap().unwrap();
        assert_eq!(found.list, Some(expected), "{ordinal}");
    }
    ends.clear();
    assert_eq!(ends.len(), 0);
    assert_eq!(ends.at(view, (1, 1), messages).unwrap().unwrap().list, Some(stored));
}

/// A list as its changes make it.
#[derive(Clone, Debug, Default)]
struct ModelList {
    items: BTreeSet<u64>,
    end: u64,
    has_ranges: bool,
    is_reference: bool,
    written: (u64, u64),
}

/// Changes of a list, applied to a store and to a model.
struct ListBench {
    bench: Bench,
    version: u64,
    lists: Vec<(CheckpointId, ModelList)>,
}

impl ListBench {
    fn new() -> Self {
        Self { bench: Bench::new(), version: 0, lists: Vec::new() }
    }

    /// Changes the list at the checkpoint with a number, and verifies the end that is stored.
    fn change(&mut self, of: Option<usize>, ops: Vec<ItemChange>) -> ListEnd {
        let t = thread("a");
        let (parent, old) =
            of.map_or((None, ModelList::default()), |of| (Some(self.lists[of].0), self.lists[of].1.clone()));
        let model = self.after(old, &ops);
        self.version += 1;
        let id = self.bench.add(&t, parent, vec![list(self.version, ops.clone())]);
        let end = self.end(id);
        let place = format!("{ops:?} gave {end:?}");
        assert_eq!((end.end, end.len), (model.end, model.items.len() as u64), "{place}");
        assert_eq!(
            (end.has_ranges, end.is_reference, end.written),
            (model.has_ranges, model.is_reference, model.written),
            "{place}"
        );
        // Each position of the run has an item; a list without gaps has the longest run.
        assert!((end.end - end.run..end.end).all(|position| model.items.contains(&position)), "{place}");
        if end.len == end.end {
            assert_eq!(end.run, end.end.min(LIST_RUN_MAX), "{place}");
        }
        let positions: Vec<u64> = self.bench.items(&at(&t, id), ItemRange::All).iter().map(|item| item.0).collect();
        assert_eq!(positions, model.items.iter().copied().collect::<Vec<_>>(), "{place}");
        self.lists.push((id, model));
        end
    }

    fn after(&self, old: ModelList, ops: &[ItemChange]) -> ModelList {
        let ranges: Vec<(u64, u64)> = ops
            .iter()
            .filter_map(|op| if let ItemOp::DeleteRange { end } = op.op { Some((op.position, end)) } else { None })
            .collect();
        let reference = ops.iter().find_map(|op| if let ItemOp::Reference(of) = &op.op { Some(of) } else { None });
        let deletes_all = ranges.contains(&ALL);
        let mut new = if let Some(of) = reference {
            let held = self.lists.iter().find(|(id, _)| *id == of.checkpoint).unwrap().1.clone();
            ModelList { is_reference: true, has_ranges: true, ..held }
        } else if deletes_all {
            ModelList { has_ranges: true, ..ModelList::default() }
        } else {
            ModelList { has_ranges: old.has_ranges || !ranges.is_empty(), ..old }
        };
        let old_end = if deletes_all && reference.is_none() { old.end } else { new.end };
        new.items.retain(|position| !ranges.iter().any(|(first, end)| (first..end).contains(&position)));
        let mut written: Option<(u64, u64)> = None;
        let mut write = |first: u64, end: u64| {
            let (low, high) = written.unwrap_or((first, end));
            written = Some((low.min(first), high.max(end)));
        };
        for (first, end) in ranges.iter().filter(|(first, _)| *first < old_end) {
            write(*first, (*end).min(old_end));
        }
        for op in ops {
            match op.op {
                ItemOp::Put(_) => {
                    new.items.insert(op.position);
                    new.end = new.end.max(op.position + 1);
                }
                ItemOp::Delete => _ = new.items.remove(&op.position),
                _ => continue,
            }
            write(op.position, op.position + 1);
        }
        let (first, last) = written.unwrap_or((new.end, new.end));
        new.written = if reference.is_some() || deletes_all { ALL } else { (first.min(new.end), last.min(new.end)) };
        new
    }

    /// Returns the end that the file holds.
    fn end(&self, id: CheckpointId) -> ListEnd {
        let conn = raw(&self.bench.path());
        let (names, keys) = (Names::of_readers(), Keys::default());
        let view = ReadView { conn: &conn, names: &names, keys: &keys };
        let record = self.bench.store.checkpoint(&at(&thread("a"), id)).unwrap().unwrap();
        let key = names.find(&conn, Kind::Channel, "messages").unwrap().unwrap();
        let row = newest_of(view, record.branch as i64, record.ordinal as i64, key).unwrap().unwrap();
        ListEnd::of(&row).unwrap()
    }

    fn reference(&self, of: usize) -> ItemChange {
        let of = ListRef::new(Namespace::root(), self.lists[of].0, "messages");
        ItemChange { position: 0, op: ItemOp::Reference(of), task: None }
    }
}

fn puts(range: std::ops::Range<u64>) -> Vec<ItemChange> {
    range.map(|position| put(position, "text")).collect()
}

#[test]
fn an_end_counts_what_a_change_puts_and_deletes() {
    let mut lists = ListBench::new();
    let end = lists.change(None, puts(0..10));
    assert_eq!((end.len, end.run, end.before, end.has_ranges), (10, 10, None, false));
    // On the same branch: an item in place of one, one that is not there, and one past the end.
    lists.change(Some(0), vec![put(9, "again")]);
    lists.change(Some(1), vec![put(3, "again"), remove(5), remove(77)]);
    assert_eq!(lists.change(Some(2), vec![remove(5)]).len, 9);
    let end = lists.change(Some(3), puts(10..12));
    assert_eq!((end.len, end.run), (11, 6));
    // Ranges of the smaller and of the larger part, with and without later items in their places.
    lists.change(Some(4), vec![delete_range(2, 4)]);
    lists.change(Some(5), vec![delete_range(1, 11), put(4, "again"), put(30, "far")]);
    lists.change(Some(6), vec![delete_range(20, 40)]);
    let end = lists.change(Some(7), vec![delete_range(0, 2), delete_range(1, 9), put(1, "again")]);
    assert_eq!((end.end, end.len), (31, 2));
    assert_eq!(lists.change(Some(8), vec![delete_range(100, 200)]).written, (31, 31));
    lists.change(Some(9), vec![delete_range(0, u64::MAX), put(2, "anew")]);
    lists.change(Some(10), vec![delete_range(3, u64::MAX)]);
    assert_eq!(lists.bench.check(), Vec::<String>::new());
}

#[test]
fn a_first_change_with_a_range_is_a_list_with_ranges() {
    let mut lists = ListBench::new();
    let end = lists.change(None, [vec![delete_range(0, 5)], puts(0..3)].concat());
    assert!(end.has_ranges && end.before.is_none());
    // A channel that was no list before begins a list whose older rows do not count.
    let t = thread("b");
    let first = lists.bench.add(&t, None, vec![value("messages", 1, plain(&[1]))]);
    let id = lists.bench.add(&t, Some(first), vec![list(2, puts(0..2))]);
    let conn = raw(&lists.bench.path());
    let (names, keys) = (Names::of_readers(), Keys::default());
    let view = ReadView { conn: &conn, names: &names, keys: &keys };
    let record = lists.bench.store.checkpoint(&at(&t, id)).unwrap().unwrap();
    let key = names.find(&conn, Kind::Channel, "messages").unwrap().unwrap();
    let row = newest_of(view, record.branch as i64, record.ordinal as i64, key).unwrap().unwrap();
    let end = ListEnd::of(&row).unwrap();
    assert_eq!((end.end, end.len, end.has_ranges, end.before), (2, 2, true, None));
}

#[test]
fn an_end_names_the_row_at_which_the_branch_before_was_left() {
    let mut lists = ListBench::new();
    lists.change(None, puts(0..4));
    assert_eq!(lists.change(Some(0), puts(4..6)).before, None);
    // Three branches, each left before its last row.
    assert_eq!(lists.change(Some(0), puts(4..5)).before, Some((1, 0)));
    assert_eq!(lists.change(Some(2), vec![remove(0)]).before, Some((1, 0)));
    assert_eq!(lists.change(Some(2), vec![remove(1)]).before, Some((2, 1)));
    assert_eq!(lists.change(Some(4), vec![remove(1)]).before, Some((2, 1)));
    // A reference, and a change that deletes all, build on no rows.
    let reference = lists.reference(4);
    assert_eq!(lists.change(Some(4), vec![reference]).before, None);
    assert_eq!(lists.change(Some(4), vec![delete_range(0, u64::MAX)]).before, None);
    assert_eq!(lists.bench.check(), Vec::<String>::new());
}

#[test]
fn a_reference_has_the_end_of_its_list_and_those_of_its_operations() {
    let mut lists = ListBench::new();
    lists.change(None, puts(0..150));
    lists.change(Some(0), vec![remove(20), delete_range(40, 45)]);
    for of in [0, 1] {
        for more in
            [vec![], vec![put(3, "again")], vec![remove(149)], puts(150..153), vec![put(20, "again"), remove(41)]]
        {
            let reference = lists.reference(of);
            lists.change(Some(1), [vec![reference], more].concat());
        }
    }
    let last = lists.lists.len() - 1;
    lists.change(Some(last), vec![delete_range(5, 100), put(7, "kept")]);
    lists.change(Some(last + 1), puts(150..160));
    assert_eq!(lists.bench.check(), Vec::<String>::new());
}

#[test]
fn a_list_with_more_items_than_positions_is_damage() {
    let mut lists = ListBench::new();
    lists.change(None, puts(0..10));
    lists.change(Some(0), vec![remove(2)]);
    lists.bench.store.checkpoint_wal().unwrap();
    // The end of the list does not tell that these positions have items.
    let deleted = without_triggers(&lists.bench.path()).execute("DELETE FROM item WHERE slot < 2", []).unwrap();
    assert_eq!(deleted, 2);
    let (t, head) = (thread("a"), lists.lists[1].0);
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(head));
    let id = lists.bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&head));
    let changes = vec![list(9, puts(0..3))];
    batch.checkpoints.push(NewCheckpoint { changes, parent: Some(Parent::Local(head)), ..checkpoint(id) });
    match lists.bench.store.commit(&batch).unwrap_err() {
        StoreError::Corrupt { reason, .. } => assert_eq!(reason, "its end does not match its rows"),
        error => panic!("{error:?}"),
    }
}

#[test]
fn random_changes_leave_the_ends_of_the_model() {
    let mut lists = ListBench::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    lists.change(None, puts(0..20));
    for _ in 0..120 {
        let newest = lists.lists.len() - 1;
        let of = if next(4) == 0 { next(newest as u64 + 1) as usize } else { newest };
        let end = lists.lists[of].1.end;
        let mut ops = Vec::new();
        match next(8) {
            0 => ops.push(delete_range(next(end + 3), end + 3 + next(5))),
            1 => {
                let first = next(end + 1);
                ops.extend([
                    delete_range(first, first + 1 + next(6)),
                    delete_range(first / 2, first / 2 + 1 + next(4)),
                ]);
            }
            2 if next(4) == 0 => ops.push(delete_range(0, u64::MAX)),
            3 if next(3) == 0 => ops.push(lists.reference(next(newest as u64 + 1) as usize)),
            _ => {}
        }
        let mut used = BTreeSet::new();
        for _ in 0..next(5) {
            let position = if next(2) == 0 { end + next(3) } else { next(end + 1) };
            if used.insert(position) {
                ops.push(if next(3) == 0 { remove(position) } else { put(position, "text") });
            }
        }
        if !ops.is_empty() {
            lists.change(Some(of), ops);
        }
    }
    assert_eq!(lists.bench.check(), Vec::<String>::new());
}
