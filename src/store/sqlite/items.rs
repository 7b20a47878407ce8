//! Reads the items of a list: per position the newest row of the lineage, unless a later range delete covers it.
//!
//! A lineage of one branch is streamed from one join with `payload`. Anything else is resolved first, from rows
//! without their values, and then each value that lives is fetched.

use super::changes::{DELETE, PUT, REFERENCE, range_position};
use super::fault::{Res, corrupt};
use super::lineage::{self, Span};
use super::names::Kind;
use super::pack::{DeletedRange, ValueColumn, unpack_ranges, unpack_reference};
use super::read::ReadView;
use super::rows::{Payloads, Room, decode, inline_value};
use super::sql;
use crate::base::PayloadRef;
use crate::base::limits::LIST_REFERENCES_MAX;
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::{CheckpointRef, ItemRow};
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A visitor of items.
pub(super) type Visit<'v> = &'v mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>;

/// The rows of one channel along one lineage.
pub(super) struct ChannelRows<'a> {
    view: ReadView<'a>,
    channel: i64,
    spans: Vec<Span>,
    deleted: DeletedRanges,
    /// The list it was made from, if it is a copy-on-write reference.
    pub(super) reference: Option<ReferenceRow>,
}

/// A copy-on-write reference: the list holds what another one held at a checkpoint, but for its own rows.
#[derive(Clone, Copy)]
pub(super) struct ReferenceRow {
    /// The checkpoint of the referenced list, and its channel.
    pub(super) seq: i64,
    pub(super) channel: i64,
    /// The ordinal and the task that made the reference.
    ordinal: i64,
    task: Option<u32>,
}

/// A row of `item` without its value.
#[derive(Clone, Copy)]
struct ListRow {
    branch: i64,
    position: i64,
    ordinal: i64,
    op: i64,
    task: Option<u32>,
    stored: ValueColumn,
    /// Ordinal and task of the reference, for a row of the referenced list.
    shared: Option<(i64, Option<u32>)>,
}

/// For every position, the ordinal of the last range delete over it.
struct DeletedRanges(BTreeMap<u64, i64>);

impl DeletedRanges {
    /// Adds a range that is newer than those added before.
    fn paint(&mut self, first: u64, end: u64, ordinal: i64) {
        let after = self.at(end);
        let covered: Vec<u64> = self.0.range(first..end).map(|(&start, _)| start).collect();
        covered.iter().for_each(|start| _ = self.0.remove(start));
        self.0.insert(first, ordinal);
        if end < u64::MAX {
            self.0.insert(end, after);
        }
    }

    fn at(&self, position: u64) -> i64 {
        self.0.range(..=position).next_back().map_or(-1, |(_, &ordinal)| ordinal)
    }

    /// Returns whether a later range delete covers a row of `ordinal` at `position`. The ranges of its own change come before
    /// the row.
    fn is_deleted(&self, position: i64, ordinal: i64) -> bool {
        !self.0.is_empty() && self.at(position as u64) > ordinal
    }
}

impl ReadView<'_> {
    /// Visits the items of a list at a checkpoint.
    pub(super) fn items(self, at: &CheckpointRef, channel: &str, range: ItemRange, visit: Visit<'_>) -> Res<()> {
        let (_, branch, ordinal) = self.place(at)?;
        let Some(channel) = self.names.find(self.conn, Kind::List, channel)? else { return Ok(()) };
        let list = ChannelRows::read(self, branch, ordinal, channel)?;
        match range {
            ItemRange::Tail(count) => list.tail(count, visit),
            ItemRange::All => list.all(visit),
            ItemRange::Positions(first, end) if first < end => {
                list.range(i64::try_from(first).unwrap_or(i64::MAX), i64::try_from(end - 1).unwrap_or(i64::MAX), visit)
            }
            ItemRange::Positions(..) => Ok(()),
        }
    }
}

/// An operation on more than one position, at one ordinal.
enum Whole {
    DeletedRanges(Vec<DeletedRange>),
    Reference(ReferenceRow),
}

impl DeletedRanges {
    /// Reads the deleted ranges along a lineage, and the reference of the list unless a later range delete covers it.
    fn read(view: ReadView<'_>, channel: i64, spans: &[Span]) -> Res<(Self, Option<ReferenceRow>)> {
        let mut deleted = Self(BTreeMap::new());
        let mut reference = None;
        let mut statement = view.conn.prepare_cached(sql::DELETED_RANGES)?;
        // Oldest first: the ancestors before the child, and within a branch the greatest negative position first.
        for span in spans.iter().rev() {
            let mut rows =
                statement.query(params![span.branch, channel, range_position(span.last), range_position(0)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let (ordinal, op): (i64, i64) = (row.get(0)?, row.get(1)?);
                let bytes = row.get_ref(3)?.as_blob().ok();
                let whole = if op == REFERENCE {
                    let task = row.get(2)?;
                    let reference = |(seq, channel)| Whole::Reference(ReferenceRow { seq, channel, ordinal, task });
                    bytes.and_then(unpack_reference).map(reference)
                } else {
                    bytes.and_then(unpack_ranges).map(Whole::DeletedRanges)
                };
                let whole = whole.ok_or_else(|| {
                    corrupt(
                        item_place(span.branch, channel, range_position(ordinal), ordinal),
                        "its deleted ranges or its reference cannot be decoded",
                    )
                })?;
                found.push((ordinal, whole));
            }
            found.sort_by_key(|(ordinal, _)| *ordinal);
            for (ordinal, whole) in found {
                match whole {
                    Whole::DeletedRanges(ranges) => ranges.iter().for_each(|range| {
                        reference = reference.filter(|_| (range.first, range.end) != (0, u64::MAX));
                        deleted.paint(range.first, range.end, ordinal);
                    }),
                    Whole::Reference(new) => {
                        deleted.paint(0, u64::MAX, ordinal);
                        reference = Some(new);
                    }
                }
            }
        }
        Ok((deleted, reference))
    }
}

impl<'a> ChannelRows<'a> {
    /// Reads the deleted ranges and the reference of a list.
    pub(super) fn read(view: ReadView<'a>, branch: i64, ordinal: i64, channel: i64) -> Res<Self> {
        let spans = lineage::spans(view.conn, branch, ordinal, 0)?;
        let (deleted, reference) = DeletedRanges::read(view, channel, &spans)?;
        Ok(Self { view, channel, spans, deleted, reference })
    }

    /// Visits all items.
    pub(super) fn all(&self, visit: Visit<'_>) -> Res<()> {
        self.range(0, i64::MAX, visit)
    }

    fn range(&self, first: i64, last: i64, visit: Visit<'_>) -> Res<()> {
        match (self.spans.as_slice(), self.reference) {
            ([span], None) => self.stream(*span, first, last, visit),
            _ => self.visit(&self.live(first, last, LIST_REFERENCES_MAX)?, visit),
        }
    }

    /// Returns the live rows by position, through at most `below` references.
    fn live(&self, first: i64, last: i64, below: usize) -> Res<Vec<ListRow>> {
        let mut live = self.own(first, last)?;
        match self.reference {
            Some(reference) => {
                let other = self.other(reference, below)?.live(first, last, below - 1)?;
                self.beside(reference, &mut live, other);
            }
            None => self.resolve(&mut live),
        }
        Ok(live)
    }

    /// Returns the newest row of each position, by branch.
    fn own(&self, first: i64, last: i64) -> Res<Vec<ListRow>> {
        let mut live = Vec::new();
        for span in &self.spans {
            let mut rows = self.view.conn.prepare_cached(sql::ITEMS)?;
            let rows = rows.query(params![span.branch, self.channel, first, last, span.last])?;
            self.collect(*span, rows, &mut live)?;
        }
        Ok(live)
    }

    /// Returns the referenced list.
    fn other(&self, reference: ReferenceRow, below: usize) -> Res<ChannelRows<'a>> {
        let wrong =
            |reason| corrupt(format!("item (channel {}, list of checkpoint {})", self.channel, reference.seq), reason);
        if below == 0 {
            return Err(wrong("it references too many lists in a row"));
        }
        let other = self.view.list_at(reference.seq, reference.channel)?;
        other.ok_or_else(|| wrong("a list references it, but the checkpoint does not exist"))
    }

    /// Merges the rows of the referenced list into its own rows, which hide them.
    fn beside(&self, reference: ReferenceRow, live: &mut Vec<ListRow>, mut other: Vec<ListRow>) {
        live.sort_by_key(|row| (row.position, Reverse(row.ordinal)));
        live.dedup_by_key(|row| row.position);
        live.retain(|row| !self.deleted.is_deleted(row.position, row.ordinal));
        let is_hidden = |position: i64| live.binary_search_by_key(&position, |own| own.position).is_ok();
        other.retain(|row| !is_hidden(row.position) && !self.deleted.is_deleted(row.position, reference.ordinal));
        other.iter_mut().for_each(|row| row.shared = Some((reference.ordinal, reference.task)));
        live.retain(|row| row.op != DELETE);
        live.append(&mut other);
        live.sort_by_key(|row| row.position);
    }

    /// Streams a list whose rows are in one branch.
    fn stream(&self, span: Span, first: i64, last: i64, visit: Visit<'_>) -> Res<()> {
        let conn = self.view.conn;
        let mut joined = conn.prepare_cached(sql::ITEMS_JOINED)?;
        let mut rows = joined.query(params![span.branch, self.channel, first, last, span.last])?;
        let mut room = Room::default();
        let mut done = None;
        while let Some(row) = rows.next()? {
            let position: i64 = row.get(0)?;
            let before = done.replace(position);
            debug_assert!(before.is_none_or(|before| before <= position), "rows come by position");
            if before == Some(position) {
                continue;
            }
            let ordinal: i64 = row.get(1)?;
            if self.deleted.is_deleted(position, ordinal) {
                continue;
            }
            let place = || item_place(span.branch, self.channel, position, ordinal);
            let payload = match row.get::<_, Option<i64>>(4)? {
                Some(form) => decode(conn, row, 4, form, &place, &mut room)?,
                None => match row.get_ref(3)? {
                    ValueRef::Blob(column) => inline_value(column, &place)?,
                    // A delete. `check` verifies that `op` agrees: reading a column costs as much as a seek.
                    ValueRef::Null => continue,
                    _ => return Err(corrupt(place(), "its payload does not exist")),
                },
            };
            visit(item(position, ordinal, row.get(2)?, payload))?;
        }
        Ok(())
    }

    /// Visits the last items.
    fn tail(&self, count: usize, visit: Visit<'_>) -> Res<()> {
        if count == 0 {
            return Ok(());
        }
        let live = self.last(count, LIST_REFERENCES_MAX)?;
        self.visit(&live[live.len().saturating_sub(count)..], visit)
    }

    /// Returns the last live rows, at least `count` if there are so many.
    fn last(&self, count: usize, below: usize) -> Res<Vec<ListRow>> {
        let Some(reference) = self.reference else { return self.last_own(count) };
        let own = self.own(0, i64::MAX)?;
        let other = self.other(reference, below)?;
        // Each own row hides one row at most; a range delete may hide more.
        let mut wanted = count.saturating_add(own.len());
        loop {
            let found = other.last(wanted, below - 1)?;
            let all = found.len() < wanted;
            let mut live = own.clone();
            self.beside(reference, &mut live, found);
            if live.len() >= count || all {
                return Ok(live);
            }
            wanted = wanted.saturating_mul(4);
        }
    }

    /// Returns the last live rows of a list without a reference. Reads backwards, in growing pages.
    fn last_own(&self, count: usize) -> Res<Vec<ListRow>> {
        let mut limit = i64::try_from(count).unwrap_or(i64::MAX).saturating_add(16);
        loop {
            let mut live = Vec::new();
            // Below this position a branch has more rows than were read.
            let mut floor = -1;
            for span in &self.spans {
                let mut backwards = self.view.conn.prepare_cached(sql::ITEMS_BACKWARDS)?;
                let rows = backwards.query(params![span.branch, self.channel, span.last, limit])?;
                if self.collect(*span, rows, &mut live)? == limit {
                    floor = live.last().map_or(floor, |row: &ListRow| floor.max(row.position));
                }
            }
            live.retain(|row| row.position > floor);
            self.resolve(&mut live);
            if live.len() >= count || floor < 0 {
                return Ok(live);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// Collects the newest row of each position of a branch, whichever way the rows run. Returns how many were read.
    fn collect(&self, span: Span, mut rows: rusqlite::Rows<'_>, live: &mut Vec<ListRow>) -> Res<i64> {
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            let row = self.list_row(span, row)?;
            match live.last_mut() {
                Some(last) if last.branch == row.branch && last.position == row.position => {
                    if row.ordinal > last.ordinal {
                        *last = row;
                    }
                }
                _ => live.push(row),
            }
        }
        Ok(count)
    }

    fn list_row(&self, span: Span, row: &Row<'_>) -> Res<ListRow> {
        let (position, ordinal, op) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let stored = ValueColumn::from_column(row.get_ref(4)?).filter(|stored| match stored {
            ValueColumn::Null => op == DELETE,
            _ => op == PUT,
        });
        let stored = stored.ok_or_else(|| {
            corrupt(
                item_place(span.branch, self.channel, position, ordinal),
                "operation and value do not match the format",
            )
        })?;
        Ok(ListRow { branch: span.branch, position, ordinal, op, task: row.get(3)?, stored, shared: None })
    }

    /// Reduces rows to the live ones, by position.
    fn resolve(&self, live: &mut Vec<ListRow>) {
        live.sort_by_key(|row| (row.position, Reverse(row.ordinal)));
        live.dedup_by_key(|row| row.position);
        live.retain(|row| row.op != DELETE && !self.deleted.is_deleted(row.position, row.ordinal));
    }

    fn visit(&self, live: &[ListRow], visit: Visit<'_>) -> Res<()> {
        debug_assert!(live.windows(2).all(|pair| pair[0].position < pair[1].position), "items ascend");
        let mut payloads = Payloads::new(self.view.conn)?;
        for row in live {
            let place = || item_place(row.branch, self.channel, row.position, row.ordinal);
            let (ordinal, task) = row.shared.unwrap_or((row.ordinal, row.task));
            payloads.with(row.stored, &place, |payload| Ok(visit(item(row.position, ordinal, task, payload))?))?;
        }
        Ok(())
    }
}

fn item(position: i64, ordinal: i64, task: Option<u32>, payload: PayloadRef<'_>) -> ItemRow<'_> {
    ItemRow::new(position as u64, ordinal as u64, task, payload)
}

/// Names a row of `item`.
pub(super) fn item_place(branch: i64, channel: i64, position: i64, ordinal: i64) -> String {
    let kind = if position < 0 { "range delete or reference" } else { "position" };
    format!("item (branch {branch}, channel {channel}, {kind} {position}, ordinal {ordinal})")
}

#[cfg(test)]
mod tests {
    use super::DeletedRanges;
    use std::collections::BTreeMap;

    #[test]
    fn a_later_range_covers_an_earlier_one() {
        let mut ranges = DeletedRanges(BTreeMap::new());
        ranges.paint(0, 10, 3);
        ranges.paint(4, 6, 7);
        ranges.paint(5, u64::MAX, 9);
        let at: Vec<i64> = [0, 3, 4, 5, 9, 10, 1 << 40].map(|position| ranges.at(position)).into();
        assert_eq!(at, [3, 3, 7, 9, 9, 9, 9]);
        assert!(ranges.is_deleted(4, 6) && !ranges.is_deleted(4, 7), "a put of the same change comes after its range");
    }
}
