//! Finds the rows that no kept checkpoint shows once a slice is pruned.
//!
//! Items are found from the newest checkpoint of the slice down: a row goes if a newer row, or a newer range delete,
//! hides it from the next kept checkpoint. Each row also hides rows of pruned checkpoints before the slice. *Absent:*
//! the deletion.

use super::slice::{PruneSlice, payload_of};
use super::{is_channel, seq_at, sql};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::items::DeletedRanges;
use crate::store::sqlite::read::lineage::{self, INTERVAL};
use crate::store::sqlite::read::list_end::positions;
use crate::store::sqlite::rows::item::{DELETE, DELETE_RANGE, PUT, REFERENCE, item_place};
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::unpack_ranges;
use crate::store::sqlite::rows::version;
use crate::store::sqlite::rows::version::{LIST, VersionRow};
use crate::store::sqlite::sql as log_sql;
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};
use std::collections::{BTreeMap, BTreeSet};

/// The rows that go, and the payloads that go with them.
#[derive(Default)]
pub(super) struct GoneRows {
    /// Rows of `item`, by list, position and ordinal.
    pub(super) items: BTreeMap<(i64, i64, i64), GoneItem>,
    /// Keys of rows of `version`, by ordinal.
    pub(super) versions: BTreeMap<i64, BTreeSet<i64>>,
    /// The payloads that only rows that go hold, those of writes included.
    pub(super) erasable: BTreeSet<i64>,
    /// Those of them that rows of checkpoints before the slice hold, with the ordinals.
    pub(super) of_run: BTreeSet<(i64, i64)>,
    /// The payloads that several rows of a checkpoint hold which stay, by ordinal.
    pub(super) shared: BTreeMap<i64, BTreeSet<i64>>,
}

/// A row of `item` that goes.
pub(super) struct GoneItem {
    pub(super) op: i64,
    pub(super) payload: Option<i64>,
}

impl FromColumns for GoneItem {
    const COUNT: usize = 2;

    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let (op, value) = <(i64, Value)>::read(row, first)?;
        Ok(Self { op, payload: ValueRef::from(&value).as_i64().ok() })
    }
}

/// A row of `item`: position, ordinal, operation and value.
type WholeItem = (i64, i64, i64, Value);

/// The lists of a slice, while they are walked from the newest checkpoint down.
struct ListWalk<'s, 'a> {
    slice: &'s PruneSlice<'a>,
    gone: GoneRows,
    /// The ranges that newer checkpoints delete, by list.
    covered: BTreeMap<i64, DeletedRanges>,
    /// The payloads of the rows that stay, by ordinal.
    stay: BTreeMap<i64, Vec<i64>>,
}

/// A change of a list by one checkpoint.
struct PrunedListChange {
    list: i64,
    ordinal: i64,
    /// The positions among which its items lie.
    positions: (u64, u64),
    builds_on_reference: bool,
}

impl GoneRows {
    /// Finds the rows that go with a slice.
    pub(super) fn of(slice: &PruneSlice<'_>) -> Res<Self> {
        let mut lists = ListWalk { slice, gone: Self::default(), covered: BTreeMap::new(), stay: BTreeMap::new() };
        for ordinal in (slice.first..=slice.last + 1).rev() {
            let Some(rows) = slice.rows.get(&ordinal) else { continue };
            for row in rows.iter().filter(|row| is_channel(row.kind)) {
                if let Some(change) = lists.change(row)? {
                    lists.walk(&change)?;
                }
            }
        }
        lists.hidden_from_above()?;
        lists.versions()?;
        lists.payloads()?;
        let (gone, pruned) = (lists.gone, slice.run..=slice.last);
        debug_assert!(
            gone.items.keys().all(|(.., ordinal)| pruned.contains(ordinal)),
            "an item of another checkpoint goes"
        );
        debug_assert!(gone.versions.keys().all(|ordinal| pruned.contains(ordinal)), "a row of another checkpoint goes");
        Ok(gone)
    }
}

impl ListWalk<'_, '_> {
    /// Returns the change of a list that a version row tells of; `None` for a channel that never was a list.
    fn change(&self, row: &VersionRow) -> Res<Option<PrunedListChange>> {
        let view = self.slice.view;
        let channel = view.names.text(view.conn, Kind::Channel, row.key)?;
        let Some(list) = view.names.find(view.conn, Kind::List, &channel)? else { return Ok(None) };
        let end = if row.kind == LIST { ListEnd::of(row)? } else { ListEnd::default() };
        let (positions, builds_on_reference) = (positions(&end), end.is_reference);
        Ok(Some(PrunedListChange { list, ordinal: row.ordinal, positions, builds_on_reference }))
    }

    fn walk(&mut self, change: &PrunedListChange) -> Res<()> {
        let PruneSlice { view, branch, first, last, run, top, is_bottom, .. } = *self.slice;
        let PrunedListChange { list, ordinal, .. } = *change;
        if !self.covered.contains_key(&list) {
            let ranges = self.ranges_above(list)?;
            self.covered.insert(list, ranges);
        }
        let goes = ordinal <= last;
        // Nothing lies below the positions that it hides.
        let hides_nothing = is_bottom && !change.builds_on_reference;
        if change.positions.0 < change.positions.1 {
            let (from, to) = (as_slot(change.positions.0), as_slot(change.positions.1 - 1));
            view.conn.each(log_sql::ITEMS_WRITTEN, [branch, list, from, to, ordinal], |row| {
                let (slot, item) = (i64::read(row, 0)?, GoneItem::read(row, 1)?);
                let is_covered = self.covered.get(&list).is_some_and(|covered| covered.is_deleted(slot, ordinal));
                let is_hidden = goes
                    && (is_covered
                        || item.op == DELETE && hides_nothing
                        || view.conn.one(sql::IS_REPLACED, [branch, list, slot, ordinal, top])?);
                match is_hidden {
                    true => _ = self.gone.items.insert((list, slot, ordinal), item),
                    false => self.stay.entry(ordinal).or_default().extend(item.payload),
                }
                if run < first {
                    self.hide_before(list, slot)?;
                }
                Ok(())
            })?;
        }
        self.whole(change, goes, hides_nothing)
    }

    /// Adds the operation of a change on more than one position.
    fn whole(&mut self, change: &PrunedListChange, goes: bool, hides_nothing: bool) -> Res<()> {
        let PruneSlice { view, branch, first, run, .. } = *self.slice;
        let PrunedListChange { list, ordinal, .. } = *change;
        let slot = -1 - ordinal;
        let row: Option<(i64, i64, Value)> =
            view.conn.first(sql::ROWS_OF_SLOT, [branch, list, slot, ordinal, ordinal])?;
        let Some((_, op, value)) = row else { return Ok(()) };
        let ranges = ranges_of(op, &value, || item_place(branch, list, slot, ordinal))?;
        let Some(covered) = self.covered.get_mut(&list) else { return Ok(()) };
        if goes && (covered.cover(0, u64::MAX) || op == DELETE_RANGE && hides_nothing) {
            self.gone.items.insert((list, slot, ordinal), GoneItem { op, payload: None });
        }
        ranges.iter().for_each(|(first, end)| covered.paint(*first, *end, ordinal));
        if run < first {
            for (from, end) in ranges {
                self.hide_range_before(list, from, end)?;
            }
        }
        Ok(())
    }

    /// Returns the ranges that pruned checkpoints between the slice and the next kept one delete, and that one.
    fn ranges_above(&self, list: i64) -> Res<DeletedRanges> {
        let PruneSlice { view, branch, last, top, .. } = *self.slice;
        let mut ranges = DeletedRanges::default();
        if top > last + 1 {
            let wholes: Vec<WholeItem> = view.conn.all(sql::WHOLES_BETWEEN, [branch, list, last + 1, top])?;
            for (slot, ordinal, op, value) in wholes {
                let found = ranges_of(op, &value, || item_place(branch, list, slot, ordinal))?;
                found.into_iter().for_each(|(first, end)| ranges.paint(first, end, ordinal));
            }
        }
        Ok(ranges)
    }

    /// Adds the rows of pruned checkpoints before the slice that only checkpoints after it hide, which were pruned
    /// before it. The version rows that lead to these are gone, so the rows before the slice are read.
    fn hidden_from_above(&mut self) -> Res<()> {
        let PruneSlice { view, branch, first, last, run, top, .. } = *self.slice;
        if run == first || top == last + 1 {
            return Ok(());
        }
        for row in lineage::newest(view, branch, top)?.into_values().filter(|row| is_channel(row.kind)) {
            let channel = view.names.text(view.conn, Kind::Channel, row.key)?;
            let Some(list) = view.names.find(view.conn, Kind::List, &channel)? else { continue };
            if !self.covered.contains_key(&list) {
                let ranges = self.ranges_above(list)?;
                self.covered.insert(list, ranges);
            }
            let Some(covered) = self.covered.get(&list) else { continue };
            view.conn.each(sql::ROWS_OF_RUN, [branch, list, run, first - 1], |row| {
                let (slot, ordinal, item): (i64, i64, GoneItem) = FromColumns::read(row, 0)?;
                let is_hidden = match slot {
                    0.. => {
                        covered.is_deleted(slot, ordinal)
                            || view.conn.one(sql::IS_REPLACED, [branch, list, slot, ordinal, top])?
                    }
                    _ => covered.cover(0, u64::MAX),
                };
                if is_hidden {
                    self.gone.items.insert((list, slot, ordinal), item);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds the rows of pruned checkpoints before the slice at a position that has a newer row.
    fn hide_before(&mut self, list: i64, slot: i64) -> Res<()> {
        let PruneSlice { view, branch, first, run, .. } = *self.slice;
        let older: Vec<(i64, GoneItem)> = view.conn.all(sql::ROWS_OF_SLOT, [branch, list, slot, run, first - 1])?;
        self.gone.items.extend(older.into_iter().map(|(ordinal, item)| ((list, slot, ordinal), item)));
        Ok(())
    }

    /// Adds the rows of pruned checkpoints before the slice in a range that was deleted since.
    fn hide_range_before(&mut self, list: i64, from: u64, end: u64) -> Res<()> {
        let PruneSlice { view, branch, first, run, .. } = *self.slice;
        let (mut slot, last) = (as_slot(from), as_slot(end));
        while let Some(found) = view.conn.first::<i64>(sql::NEXT_SLOT, [branch, list, slot, last])? {
            self.hide_before(list, found)?;
            slot = found.saturating_add(1);
        }
        if (from, end) == (0, u64::MAX) {
            let wholes: Vec<(i64, i64, GoneItem)> =
                view.conn.all(sql::WHOLES_BETWEEN, [branch, list, run, first - 1])?;
            self.gone.items.extend(wholes.into_iter().map(|(slot, ordinal, item)| ((list, slot, ordinal), item)));
        }
        Ok(())
    }

    /// Finds the rows of `version` that go.
    fn versions(&mut self) -> Res<()> {
        let PruneSlice { view, branch, first, last, run, top, .. } = *self.slice;
        let newest = lineage::newest(view, branch, top)?;
        let mut payloads: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (ordinal, rows) in self.slice.rows.range(first..=last + 1) {
            for row in rows {
                if *ordinal > last || self.slice.stays(row, &newest) {
                    self.stay.entry(*ordinal).or_default().extend(payload_of(row));
                    continue;
                }
                self.gone.versions.entry(*ordinal).or_default().insert(row.key);
                payloads.entry(*ordinal).or_default().extend(payload_of(row));
            }
        }
        if run < first {
            // The rows that pruned checkpoints before the slice have are those that its first checkpoint shows.
            let older = lineage::newest(view, branch, first)?.into_values();
            let mut older: Vec<VersionRow> =
                older.filter(|row| row.branch == branch && (run..first).contains(&row.ordinal)).collect();
            let base = first - first.rem_euclid(INTERVAL);
            if (run..first).contains(&base) {
                let snapshots = lineage::rows_at(view, (branch, base))?.into_iter();
                older.extend(snapshots.filter(|row| row.kind == version::INDEX_SNAPSHOT));
            }
            for row in older.iter().filter(|row| !self.slice.stays(row, &newest)) {
                self.gone.versions.entry(row.ordinal).or_default().insert(row.key);
                payloads.entry(row.ordinal).or_default().extend(payload_of(row));
            }
        }
        let of_versions = payloads.into_iter().flat_map(|(ordinal, ids)| ids.into_iter().map(move |id| (ordinal, id)));
        self.gone.of_run.extend(of_versions);
        Ok(())
    }

    /// Finds the payloads that go: those of rows that go, and of writes, unless a row that stays holds them too.
    fn payloads(&mut self) -> Res<()> {
        let PruneSlice { view, branch, first, last, run, .. } = *self.slice;
        // Up to here, `of_run` has the payloads of all rows of `version` that go.
        let mut of_rows = std::mem::take(&mut self.gone.of_run);
        let items = self.gone.items.iter().filter(|(_, item)| item.op == PUT);
        of_rows.extend(items.filter_map(|((.., ordinal), item)| Some((*ordinal, item.payload?))));
        for ordinal in first..=last {
            // The child of a pruned checkpoint may have taken values of the writes of its tasks.
            if ordinal > run {
                let seq = seq_at(view.conn, branch, ordinal - 1)?;
                of_rows.extend(self.writes(seq)?.into_iter().map(|id| (ordinal, id)));
            }
        }
        if !self.slice.has_kept_child(last) {
            // The rows of the next one were deleted in part when it was pruned.
            for id in self.writes(seq_at(view.conn, branch, last)?)? {
                if !view.conn.one::<bool>(sql::IS_HELD, [branch, last + 1, id])? {
                    of_rows.insert((last + 1, id));
                }
            }
        }
        let source = match of_rows.first() {
            Some((ordinal, _)) if *ordinal == run => {
                let first = seq_at(view.conn, branch, run)?;
                let parent: Option<i64> = view.conn.one(sql::PARENT_SEQ, [first])?;
                parent.map_or(Ok(Vec::new()), |parent| self.writes(parent))?
            }
            _ => Vec::new(),
        };
        for (ordinal, id) in of_rows {
            let stays = self.stay.get(&ordinal).is_some_and(|stay| stay.contains(&id));
            if stays || ordinal == run && source.contains(&id) {
                continue;
            }
            self.gone.erasable.insert(id);
            if ordinal < first {
                self.gone.of_run.insert((ordinal, id));
            }
        }
        for (ordinal, stay) in &self.stay {
            let mut seen = BTreeSet::new();
            let twice: BTreeSet<i64> = stay.iter().copied().filter(|id| !seen.insert(*id)).collect();
            if !twice.is_empty() {
                self.gone.shared.insert(*ordinal, twice);
            }
        }
        Ok(())
    }

    /// Returns the payloads of the writes of the tasks of a checkpoint.
    fn writes(&self, seq: i64) -> Res<Vec<i64>> {
        self.slice.view.conn.all(log_sql::WRITE_PAYLOADS, [seq])
    }
}

fn as_slot(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Returns the ranges that an operation on more than one position deletes.
fn ranges_of(op: i64, value: &Value, place: impl Fn() -> String) -> Res<Vec<(u64, u64)>> {
    if op == REFERENCE {
        return Ok(vec![(0, u64::MAX)]);
    }
    let ranges = ValueRef::from(value).as_blob().ok().and_then(unpack_ranges);
    let ranges = ranges.ok_or_else(|| corrupt(place(), "its deleted ranges cannot be decoded"))?;
    Ok(ranges.into_iter().map(|range| (range.first, range.end)).collect())
}
