//! Prunings row by row: rows that no kept checkpoint shows go, and all others stay.

use super::*;
use crate::store::batch::{ListRef, NewWrite};
use crate::store::log::PruneTarget;
use crate::store::prune::{PruneSpan, Pruned};
use crate::store::sqlite::read::lineage::INTERVAL;
use crate::store::sqlite::remove::prune::PruneJob;
use crate::store::sqlite::rows::item::{DELETE_RANGE, PUT, REFERENCE};
use crate::store::sqlite::rows::pack::unpack_ranges;
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, NO_CHANGES};
use crate::store::sqlite::writer::job::JobRef;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Numbers that look random.
struct SpanDice(u64);

impl SpanDice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A row of `item`: channel, slot, ordinal, operation and deleted ranges.
type ItemAt = (i64, i64, i64, i64, Vec<(u64, u64)>);

/// The rows of a branch.
#[derive(Debug, PartialEq)]
struct BranchRows {
    items: BTreeSet<ItemAt>,
    /// Ordinal, key and kind.
    versions: BTreeSet<(i64, i64, i64)>,
    /// The ordinals of the checkpoints whose tasks have writes.
    written: BTreeSet<i64>,
    /// The ordinals of the checkpoints, and whether they are kept.
    kept: BTreeMap<i64, bool>,
}

impl BranchRows {
    fn read(conn: &Connection, branch: i64) -> Self {
        let item = |row: &rusqlite::Row<'_>| {
            let op: i64 = row.get(3)?;
            let ranges = match op {
                DELETE_RANGE => {
                    let ranges = unpack_ranges(row.get_ref(4)?.as_blob()?).unwrap();
                    ranges.into_iter().map(|range| (range.first, range.end)).collect()
                }
                REFERENCE => vec![(0, u64::MAX)],
                _ => Vec::new(),
            };
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, op, ranges))
        };
        let mut items = conn.prepare("SELECT channel, slot, ordinal, op, value FROM item WHERE branch = ?1").unwrap();
        let items = items.query_map([branch], item).unwrap().map(Result::unwrap).collect();
        let mut versions = conn.prepare("SELECT ordinal, key, kind & 15 FROM version WHERE branch = ?1").unwrap();
        let version = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let versions = versions.query_map([branch], version).unwrap().map(Result::unwrap).collect();
        let written =
            "SELECT DISTINCT c.ordinal FROM write w JOIN checkpoint c ON c.seq = w.checkpoint WHERE c.branch = ?1";
        let mut written = conn.prepare(written).unwrap();
        let written = written.query_map([branch], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let mut kept = conn.prepare("SELECT ordinal, source >= 0 FROM checkpoint WHERE branch = ?1").unwrap();
        let of_kept = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let kept = kept.query_map([branch], of_kept).unwrap().map(Result::unwrap).collect();
        Self { items, versions, written, kept }
    }

    fn is_kept(&self, ordinal: i64) -> bool {
        self.kept.get(&ordinal).copied().unwrap_or(false)
    }

    /// Returns the first kept ordinal from one on.
    fn next_kept(&self, ordinal: i64) -> i64 {
        *self.kept.range(ordinal..).find(|(_, kept)| **kept).unwrap().0
    }

    /// Verifies the rows that a pruning has left of those before it.
    fn verify(&self, before: &Self, has_parent: bool, of: &str) {
        for row in &before.items {
            let (channel, slot, ordinal, op, _) = row;
            let top = self.next_kept(*ordinal);
            let newer =
                before.items.iter().filter(|(of, _, other, ..)| of == channel && (ordinal + 1..=top).contains(other));
            let newer: Vec<&ItemAt> = newer.collect();
            let ranges: Vec<(u64, u64)> = newer.iter().flat_map(|(.., ranges)| ranges.iter().copied()).collect();
            let is_hidden = match u64::try_from(*slot) {
                Ok(position) => {
                    newer.iter().any(|(_, other, ..)| other == slot)
                        || ranges.iter().any(|(first, end)| (*first..*end).contains(&position))
                }
                Err(_) => ranges.contains(&(0, u64::MAX)),
            };
            // A deletion hides nothing in a branch without older rows.
            let may_go =
                *op != PUT && !has_parent && before.kept.keys().all(|older| older > ordinal || !self.is_kept(*older));
            let is_there = self.items.contains(row);
            assert!(is_there != is_hidden || may_go, "{of}: item {row:?}, next kept {top}, is there: {is_there}");
        }
        let mut versions = BTreeSet::new();
        for row in &before.versions {
            let (ordinal, key, kind) = *row;
            let top = self.next_kept(ordinal);
            let is_newer = |other: &(i64, i64, i64)| other.1 == key && (ordinal + 1..=top).contains(&other.0);
            let stays = match kind {
                _ if ordinal == top => true,
                NO_CHANGES => false,
                INDEX_SNAPSHOT => ordinal == top - top % INTERVAL,
                _ => !before.versions.iter().any(is_newer),
            };
            if stays {
                versions.insert(*row);
            }
        }
        for ordinal in before.kept.keys() {
            if !versions.iter().any(|(of, ..)| of == ordinal) {
                versions.insert((*ordinal, 0, NO_CHANGES));
            }
        }
        assert_eq!(self.versions, versions, "{of}");
        let stays = |ordinal: &&i64| self.is_kept(**ordinal) || self.is_kept(**ordinal + 1);
        let written: BTreeSet<i64> = before.written.iter().filter(stays).copied().collect();
        assert_eq!(self.written, written, "{of}");
    }
}

/// Returns the payloads with their bytes, and those that rows hold.
fn payloads(conn: &Connection) -> (BTreeMap<i64, u64>, BTreeSet<i64>) {
    let mut stored = conn.prepare("SELECT id, length(data) + coalesce(length(text), 0) FROM payload").unwrap();
    let stored = stored.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64))).unwrap();
    let held = "SELECT value FROM version WHERE kind & 15 = 1 AND typeof(value) = 'integer' \
                UNION SELECT value FROM item WHERE op = 1 AND typeof(value) = 'integer' \
                UNION SELECT value FROM write WHERE typeof(value) = 'integer'";
    let mut held = conn.prepare(held).unwrap();
    let held = held.query_map([], |row| row.get(0)).unwrap();
    (stored.map(Result::unwrap).collect(), held.map(Result::unwrap).collect())
}

fn reference(checkpoint: CheckpointId) -> ItemChange {
    let of = ListRef::new(Namespace::root(), checkpoint, "messages");
    ItemChange { position: 0, op: ItemOp::Reference(of), task: None }
}

/// Adds checkpoints with changes of all kinds to a thread. Returns their ids.
fn grow(
    bench: &mut Bench,
    of: &ThreadId,
    fork: Option<&CheckpointRef>,
    (seed, count): (u64, u64),
) -> Vec<CheckpointId> {
    let mut dice = SpanDice(seed);
    let first = fork.map_or(0, |_| 3);
    let (mut ids, mut lists): (Vec<CheckpointId>, Vec<BTreeSet<u64>>) = (Vec::new(), Vec::new());
    let mut present: BTreeSet<u64> = fork.map_or(BTreeSet::new(), |_| (0..4).collect());
    let mut batch = Batch::new(of.clone(), Namespace::root(), None);
    for n in first..first + count {
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, ids.last().or(fork.map(|of| &of.checkpoint)));
        let (a, version, text) = (task(1, "a"), n + 1, format!("text {n} of {seed}"));
        let parent = ids.last().map(|id| Parent::Local(*id)).or(fork.cloned().map(Parent::Fork));
        let mut new = NewCheckpoint { tasks: vec![a.clone()], parent, ..checkpoint(id) };
        let bytes = |length: usize| plain(&[&seed.to_le_bytes()[..], &n.to_le_bytes(), &vec![7; length]].concat());
        let is_consumed = !ids.is_empty() && dice.roll(3) == 0;
        if is_consumed {
            let of_task: Vec<NewWrite> = vec![
                write(0, "x", WriteValue::One(bytes(40))),
                write(1, "messages", WriteValue::Items(vec![message("w", &text), message("v", &text)])),
            ];
            new.consumed = vec![writes(*ids.last().unwrap(), &a, of_task)];
        }
        let taken = |channel: &str, index| Change {
            value: ChangeValue::Value(of_write(a.id, index, 0)),
            task: Some(0),
            ..value(channel, version, plain(&[]))
        };
        match dice.roll(6) {
            0 if is_consumed => new.changes.extend([taken("x", 0), taken("y", 0)]),
            1 if is_consumed => new.changes.push(taken("y", 0)),
            0 => new.changes.push(value("x", version, bytes(40))),
            1 => new.changes.push(value("y", version, bytes(4))),
            2 => new.changes.extend([value("x", version, bytes(60)), empty("y", version)]),
            3 => new.seen.push(seen("a", "x", n)),
            _ => {}
        }
        let mut items = Vec::new();
        match dice.roll(20) {
            0..8 => {
                for position in 0..8 {
                    if dice.roll(4) == 0 {
                        let op = match dice.roll(2) {
                            0 if is_consumed => Some(ItemOp::Put(of_write(a.id, 1, dice.roll(2) as u32))),
                            _ => None,
                        };
                        let task = op.as_ref().map(|_| 0);
                        let new = put(position, &format!("{text} at {position}"));
                        items.push(ItemChange { op: op.unwrap_or(new.op), task, position });
                        present.insert(position);
                    }
                }
            }
            8..12 => {
                if let Some(position) = present.iter().nth(dice.roll(4) as usize).copied() {
                    items.push(remove(position));
                    present.remove(&position);
                }
            }
            12..15 => {
                let (from, end) = (dice.roll(6), 6 + dice.roll(4));
                items.push(delete_range(from, end));
                present.retain(|position| !(from..end).contains(position));
            }
            15 => {
                items.push(delete_range(0, u64::MAX));
                items.push(put(2, &text));
                present = BTreeSet::from([2]);
            }
            16 if !ids.is_empty() => {
                let at = dice.roll(ids.len() as u64) as usize;
                items.push(reference(ids[at]));
                present.clone_from(&lists[at]);
            }
            17 => {
                new.changes.push(value("messages", version, bytes(40)));
                present.clear();
            }
            _ => {}
        }
        if !items.is_empty() {
            new.changes.push(list(version, items));
        }
        batch.checkpoints.push(new);
        ids.push(id);
        lists.push(present.clone());
    }
    bench.store.commit(&batch).unwrap();
    ids
}

/// Verifies a pruning of some spans of a branch by its report, its estimate and the rows that are left.
fn verified(
    bench: &Bench,
    of: &ThreadId,
    before: &BranchRows,
    branch: u64,
    span: (u64, u64),
    has_parent: bool,
) -> Pruned {
    let conn = raw(&bench.path());
    let kept = |rows: &BranchRows| rows.kept.values().filter(|kept| **kept).count() as u64;
    let (old, kept_before) = (payloads(&conn).0, kept(&BranchRows::read(&conn, branch as i64)));
    let spans = [PruneSpan::new(branch, span.0, span.1)];
    let estimate = bench.store.prune_estimate(of, &spans).unwrap();
    let pruned = bench.store.prune(of, &spans).unwrap();
    let name = format!("{of} {span:?}");
    // Over several slices, the values of writes that the next slice has consumed are not expected.
    let is_close = estimate.values < pruned.values && estimate.values + 2 >= pruned.values;
    assert!(estimate == pruned || is_close, "{name}: {estimate:?}, {pruned:?}");
    assert_eq!(estimate.checkpoints, pruned.checkpoints, "{name}");
    let rows = BranchRows::read(&conn, branch as i64);
    rows.verify(before, has_parent, &name);
    let (stored, held) = payloads(&conn);
    assert_eq!(stored.keys().copied().collect::<BTreeSet<_>>(), held, "{name}: values without a row, and none");
    let gone = old.iter().filter(|(id, _)| !stored.contains_key(id));
    let (values, bytes) = gone.fold((0, 0), |(values, bytes), (_, of)| (values + 1, bytes + of));
    let mut expected = Pruned::default();
    (expected.checkpoints, expected.values, expected.bytes) = (kept_before - kept(&rows), values, bytes);
    assert_eq!(pruned, expected, "{name}");
    pruned
}

/// Returns the items of the kept checkpoints.
fn shown(bench: &Bench, of: &ThreadId, ids: &[CheckpointId]) -> BTreeMap<CheckpointId, String> {
    let mut shown = BTreeMap::new();
    for id in ids {
        let at = at(of, *id);
        if !bench.store.checkpoint(&at).unwrap().unwrap().pruned {
            let state = bench.store.state(&at).unwrap();
            let items = bench.items(&at, ItemRange::All);
            shown.insert(*id, format!("{:?} {:?} {items:?}", state.channels, state.seen));
        }
    }
    shown
}

/// Prunes spans of histories of some lengths, and verifies each.
fn prune_histories(seeds: std::ops::Range<u64>, count: u64, spans: &dyn Fn(&mut SpanDice) -> Vec<(u64, u64)>) {
    let mut bench = Bench::new();
    let base = thread("base");
    let mut tip = bench.add(&base, None, vec![list(1, (0..5).map(|n| put(n, "base")).collect())]);
    for n in 1..3 {
        tip =
            bench.add(&base, Some(tip), vec![value("x", n + 1, plain(&[7; 40])), list(n + 1, vec![put(n, "changed")])]);
    }
    tip = {
        let head = bench.store.head_id(&base, &Namespace::root()).unwrap().unwrap();
        assert_eq!(head, tip);
        head
    };
    let fork = at(&base, tip);
    for (at, seed) in seeds.enumerate() {
        let (of, branch) = (thread(&format!("t{seed}")), 2 + at as u64);
        let fork = Some(&fork).filter(|_| seed % 2 == 1);
        let ids = grow(&mut bench, &of, fork, (seed, count));
        let before = BranchRows::read(&raw(&bench.path()), branch as i64);
        assert_eq!(before.kept.len() as u64, count);
        let whole = shown(&bench, &of, &ids);
        let mut dice = SpanDice(seed);
        for span in spans(&mut dice) {
            verified(&bench, &of, &before, branch, span, fork.is_some());
        }
        for (id, shown) in shown(&bench, &of, &ids) {
            assert_eq!(Some(&shown), whole.get(&id), "{of} {id}");
        }
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn spans_in_any_order_leave_what_kept_checkpoints_show() {
    let spans = |dice: &mut SpanDice| {
        let span = |dice: &mut SpanDice| {
            let first = dice.roll(27);
            (first, first + dice.roll(7))
        };
        (0..6).map(|_| span(dice)).collect()
    };
    prune_histories(0..24, 30, &spans);
}

#[test]
fn neighboring_spans_leave_what_one_span_leaves() {
    prune_histories(100..108, 30, &|_| vec![(3, 9), (10, 14), (20, 28), (15, 19), (0, 2)]);
    prune_histories(108..116, 30, &|_| vec![(20, 24), (10, 19), (0, 9), (25, 29)]);
    prune_histories(116..122, 30, &|_| vec![(0, 40)]);
}

#[test]
fn index_snapshots_stay_that_a_kept_checkpoint_needs() {
    prune_histories(200..204, 140, &|_| vec![(60, 70), (120, 130), (0, 30), (40, 90), (0, 139)]);
    prune_histories(204..206, 140, &|_| vec![(0, 63), (64, 127), (128, 138)]);
}

#[test]
fn a_deletion_goes_where_nothing_lies_below_it_and_stays_above_a_referenced_list() {
    let (mut bench, of, inner) = (Bench::new(), thread("a"), Namespace::new("inner").unwrap());
    let mut ids = Vec::new();
    for (n, change) in (1..).zip([put(5, "five"), remove(1), delete_range(2, 4), put(6, "six")]) {
        let mut changes = vec![change];
        if n == 1 {
            changes.extend((0..4).map(|n| put(n, "text")));
        }
        ids.push(bench.add(&of, ids.last().copied(), vec![list(n, changes)]));
    }
    let slots = |bench: &Bench, branch| {
        let rows = BranchRows::read(&raw(&bench.path()), branch).items;
        rows.into_iter().map(|(_, slot, ordinal, ..)| (slot, ordinal)).collect::<Vec<_>>()
    };
    assert_eq!(slots(&bench, 1), [(-3, 2), (0, 0), (1, 0), (1, 1), (2, 0), (3, 0), (5, 0), (6, 3)]);
    assert_eq!(bench.store.prune(&of, &[PruneSpan::new(1, 0, 2)]).unwrap().checkpoints, 3);
    assert_eq!(slots(&bench, 1), [(0, 0), (5, 0), (6, 3)]);

    let item = ItemOp::Reference(ListRef::new(Namespace::root(), ids[3], "messages"));
    let reference = ItemChange { position: 0, op: item, task: None };
    let (mut batch, mut last) = (Batch::new(of.clone(), inner.clone(), None), None);
    let mut above = ids[3];
    for (n, change) in (1..).zip([reference, remove(0), delete_range(5, 6), put(7, "seven")]) {
        above = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&above));
        let (parent, changes) = (last.map(Parent::Local), vec![list(n, vec![change])]);
        batch.checkpoints.push(NewCheckpoint { parent, changes, ..checkpoint(above) });
        last = Some(above);
    }
    bench.store.commit(&batch).unwrap();
    let head = CheckpointRef { thread: of.clone(), namespace: inner, checkpoint: above };
    let shown = [(6, "six".to_owned()), (7, "seven".to_owned())];
    assert_eq!(bench.items(&head, ItemRange::All), shown);
    assert_eq!(bench.store.prune(&of, &[PruneSpan::new(2, 0, 2)]).unwrap().checkpoints, 3);
    assert_eq!(bench.items(&head, ItemRange::All), shown);
    assert_eq!(slots(&bench, 2), [(-3, 2), (-1, 0), (0, 1), (7, 3)]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

/// A thread whose checkpoints all change `y`, which is stored in the rows, and some of them `x`, which is not.
fn with_values(count: u64, ordinals: &[u64]) -> (Bench, ThreadId, Vec<CheckpointId>) {
    let (mut bench, of) = (Bench::new(), thread("a"));
    let mut batch = Batch::new(of.clone(), Namespace::root(), None);
    let mut ids = Vec::new();
    for n in 0..count {
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, ids.last());
        let mut changes = vec![value("y", n + 1, plain(&[n as u8]))];
        if ordinals.contains(&n) {
            changes.push(value("x", n + 1, plain(&[n as u8; 300])));
        }
        let parent = ids.last().map(|id| Parent::Local(*id));
        batch.checkpoints.push(NewCheckpoint { parent, changes, ..checkpoint(id) });
        ids.push(id);
    }
    bench.store.commit(&batch).unwrap();
    (bench, of, ids)
}

fn report(checkpoints: u64, values: u64, bytes: u64) -> Pruned {
    let mut report = Pruned::default();
    (report.checkpoints, report.values, report.bytes) = (checkpoints, values, bytes);
    report
}

#[test]
fn an_estimate_over_many_slices_counts_what_the_next_kept_checkpoint_decides() {
    let last = PruneSpan::new(1, 0, 148);
    for (values, span, expected) in [
        (&[10, 149][..], last, report(149, 1, 300)),
        (&[10, 120], PruneSpan::new(1, 0, 100), report(101, 0, 0)),
        (&[10, 20, 120, 121, 149], last, report(149, 4, 1_200)),
        (&[10, 101], PruneSpan::new(1, 0, 100), report(101, 1, 300)),
    ] {
        let (bench, of, _) = with_values(150, values);
        assert_eq!(bench.store.prune_estimate(&of, &[span]).unwrap(), expected, "{values:?}");
        assert_eq!(bench.store.prune(&of, &[span]).unwrap(), expected, "{values:?}");
    }
    let (mut bench, of, ids) = with_values(150, &[10, 130]);
    bench.add_on(&thread("fork"), Some(Parent::Fork(at(&of, ids[90]))), Vec::new());
    assert_eq!(bench.store.prune_estimate(&of, &[last]).unwrap(), report(148, 0, 0));
    assert_eq!(bench.store.prune(&of, &[last]).unwrap(), report(148, 0, 0));
}

/// Prunes a span slice by slice. Returns the number of checkpoints of each, and the first ordinal after it.
fn steps(bench: &Bench, of: &ThreadId, span: PruneSpan, between: &mut dyn FnMut()) -> Vec<(u64, Option<u64>)> {
    let mut job = PruneJob { thread: of.clone(), span, state: Arc::default() };
    let mut found = Vec::new();
    loop {
        bench.store.writer.as_ref().unwrap().commit(JobRef::Prune(&job)).unwrap();
        let (pruned, next) = job.state.lock().taken();
        found.push((pruned.checkpoints, next));
        let Some(next) = next else { return found };
        job.span.first = next;
        between();
    }
}

#[test]
fn a_slice_ends_before_a_checkpoint_that_came_to_be_needed() {
    let (bench, of, ids) = with_values(150, &[10, 130]);
    let fork = open(&bench.path());
    let mut batch = Batch::new(thread("fork"), Namespace::root(), None);
    let id = IdSource::from_seed(9).checkpoint(Timestamp::from_micros(1), 0, Some(&ids[100]));
    let parent = Some(Parent::Fork(at(&of, ids[100])));
    batch.checkpoints.push(NewCheckpoint { parent, ..checkpoint(id) });
    let slices = steps(&bench, &of, PruneSpan::new(1, 0, 149), &mut || fork.commit(&batch).unwrap());
    assert_eq!(slices, [(64, Some(64)), (36, Some(100)), (48, None)]);
    assert!(!bench.store.checkpoint(&at(&of, ids[100])).unwrap().unwrap().pruned);
    assert_eq!(bench.store.state(&at(&thread("fork"), id)).unwrap().channels.len(), 2);
    assert_eq!(bench.check(), Vec::<String>::new());
    // Pruned and needed checkpoints are passed over.
    assert_eq!(steps(&bench, &of, PruneSpan::new(1, 0, 149), &mut || ()), [(0, None)]);
}

#[test]
fn a_pruned_checkpoint_names_the_values_that_several_of_its_rows_hold() {
    let (mut bench, of, ids) = with_values(10, &[5]);
    let (a, above) = (task(1, "a"), ids[9]);
    let mut batch = Batch::new(of.clone(), Namespace::root(), Some(above));
    let [first, second] = [(); 2].map(|()| bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&above)));
    let parent = Some(Parent::Local(above));
    batch.checkpoints.push(NewCheckpoint { tasks: vec![a.clone()], parent, ..checkpoint(first) });
    let of_task = vec![writes(first, &a, vec![write(0, "z", WriteValue::One(plain(&[9; 300])))])];
    let taken = |channel: &str| Change {
        value: ChangeValue::Value(of_write(a.id, 0, 0)),
        task: Some(0),
        ..value(channel, 12, plain(&[]))
    };
    let (changes, parent) = (vec![taken("z"), taken("w")], Some(Parent::Local(first)));
    batch.checkpoints.push(NewCheckpoint { consumed: of_task, changes, parent, ..checkpoint(second) });
    bench.store.commit(&batch).unwrap();
    bench.add(&of, Some(second), Vec::new());
    assert_eq!(bench.store.prune(&of, &[PruneSpan::new(1, 3, 11)]).unwrap(), report(9, 0, 0));
    let conn = raw(&bench.path());
    let parents = |ordinal: i64| -> Vec<u8> {
        let query = "SELECT parents FROM checkpoint WHERE branch = 1 AND ordinal = ?1";
        conn.query_row(query, [ordinal], |row| row.get(0)).unwrap()
    };
    assert_eq!((parents(3), parents(5), parents(10)), (vec![0], vec![2], vec![7]), "the number before each");
    let value: i64 = conn.query_row("SELECT max(id) FROM payload", [], |row| row.get(0)).unwrap();
    assert_eq!(parents(11), [8, u8::try_from(value).unwrap()]);
}

#[test]
fn a_slice_ends_when_its_checkpoints_cost_enough() {
    // A checkpoint costs 8, 2 for each row, and 1 for each position among which it put items.
    for (positions, values, expected) in [
        (86, 0, vec![(9, Some(9)), (9, Some(18)), (2, None)]),
        (87, 0, vec![(8, Some(8)), (8, Some(16)), (4, None)]),
        (82, 2, vec![(9, Some(9)), (9, Some(18)), (2, None)]),
        (83, 2, vec![(8, Some(8)), (8, Some(16)), (4, None)]),
        (758, 0, vec![(2, Some(2)), (2, Some(4)), (2, Some(6))]),
        (10_000, 0, vec![(1, Some(1)), (1, Some(2)), (1, Some(3))]),
    ] {
        let (mut bench, of) = (Bench::new(), thread("a"));
        let mut batch = Batch::new(of.clone(), Namespace::root(), None);
        let mut last = None;
        for n in 0..21 {
            let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, last.as_ref());
            let mut changes = vec![list(n + 1, vec![put(0, "a"), put(positions - 1, "b")])];
            changes.extend((0..values).map(|of| value(&format!("x{of}"), n + 1, plain(&[7]))));
            let parent = last.map(Parent::Local);
            batch.checkpoints.push(NewCheckpoint { parent, changes, ..checkpoint(id) });
            last = Some(id);
        }
        bench.store.commit(&batch).unwrap();
        let slices = steps(&bench, &of, PruneSpan::new(1, 0, 19), &mut || ());
        assert_eq!(slices[..3], expected, "{positions}");
        assert_eq!(bench.check(), Vec::<String>::new());
    }
}

#[test]
#[cfg(feature = "encryption")]
fn the_usage_that_a_pruned_checkpoint_of_an_encrypted_store_retains_is_sealed() {
    let mut bench = super::cipher::bench(&super::cipher::encrypted(super::cipher::key(1)));
    let of = thread("a");
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(of.clone(), Namespace::root(), None);
    let metadata = Some(r#"{"usage":{"model":"a-model"},"note":"a note"}"#.to_owned());
    batch.checkpoints.push(NewCheckpoint { metadata, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    bench.add(&of, Some(id), Vec::new());
    assert_eq!(bench.store.prune(&of, &[PruneSpan::new(1, 0, 0)]).unwrap().checkpoints, 1);
    let stored: rusqlite::types::Value =
        raw(&bench.path()).query_row("SELECT metadata FROM checkpoint WHERE seq = 1", [], |row| row.get(0)).unwrap();
    assert!(matches!(stored, rusqlite::types::Value::Blob(_)), "{stored:?}");
    let pruned = bench.store.checkpoint(&at(&of, id)).unwrap().unwrap();
    assert_eq!(pruned.metadata.as_deref(), Some(r#"{"usage":{"model":"a-model"}}"#));
    assert_eq!(bench.check(), Vec::<String>::new());
}

/// Commits the first checkpoint of a namespace.
fn begin(
    bench: &mut Bench,
    of: &ThreadId,
    path: &Namespace,
    changes: Vec<Change>,
    metadata: Option<&str>,
) -> CheckpointId {
    let root = bench.store.head_id(of, &Namespace::root()).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, root.as_ref());
    let mut batch = Batch::new(of.clone(), path.clone(), None);
    batch.checkpoints.push(NewCheckpoint { changes, metadata: metadata.map(Into::into), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    id
}

#[test]
fn a_namespace_stays_on_which_one_rests_that_stays() {
    let (mut bench, of) = (Bench::new(), thread("a"));
    let [first, second] = ["first", "second"].map(|path| Namespace::new(path).unwrap());
    bench.add(&of, None, Vec::new());
    let one = begin(&mut bench, &of, &first, vec![list(1, vec![put(0, "text")])], None);
    let both = [Namespace::root(), first.clone()];
    assert_eq!(bench.store.unprunable(&of, &[]).unwrap(), BTreeSet::from([(1, 0), (2, 0)]));
    assert_eq!(bench.store.unprunable(&of, &both[1..]).unwrap(), BTreeSet::from([(1, 0)]));
    assert_eq!(bench.store.unprunable(&of, &both).unwrap(), BTreeSet::from([(1, 0)]), "the root always stays");
    // The second namespace begins with the list of the first, and states the usage of a model.
    let item = ItemOp::Reference(ListRef::new(first.clone(), one, "messages"));
    let changes = vec![list(1, vec![ItemChange { position: 0, op: item, task: None }])];
    let two = begin(&mut bench, &of, &second, changes, Some(r#"{"usage":{"model":"a-model"}}"#));
    let all = [(first.clone(), one), (second, two)];
    assert_eq!(bench.store.prune_estimate(&of, PruneTarget::Namespaces(&all)).unwrap(), Pruned::default());
    assert_eq!(bench.store.prune(&of, PruneTarget::Namespaces(&all)).unwrap(), Pruned::default());
    assert_eq!(bench.store.namespaces(&of).unwrap().len(), 3);
    assert_eq!(bench.check(), Vec::<String>::new());

    let other = thread("b");
    bench.add(&other, None, Vec::new());
    let one = begin(&mut bench, &other, &first, vec![value("x", 1, plain(&[7; 300]))], None);
    let alone = [(first, one)];
    assert_eq!(bench.store.prune_estimate(&other, PruneTarget::Namespaces(&alone)).unwrap(), report(1, 1, 300));
    assert_eq!(bench.store.prune(&other, PruneTarget::Namespaces(&alone)).unwrap(), report(1, 1, 300));
    assert_eq!(bench.store.namespaces(&other).unwrap(), [Namespace::root()]);
}
