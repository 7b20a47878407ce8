//! Reads the items of a list: per position the newest row of the lineage, unless a later range delete covers it.
//!
//! The version row of the list names its end and leads to the branches that have rows of it ([`list_end`]); a tail
//! reads only as many of these as hold its items. A list of one branch is streamed from one join with `payload`.
//! Anything else is resolved first, from rows without their values, and then each value that lives is fetched.
//!
//! A missing row of a position with an older one shows as the older item, so rows are read without a condition on their
//! ordinal, which a damaged one would not meet, and the rows of the newest change must be among them ([`expected`]).
//!
//! [`list_end`]: super::list_end

mod expected;

use super::lineage;
use super::payloads::Payloads;
use crate::base::PayloadRef;
use crate::base::limits::LIST_REFERENCES_MAX;
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::{CheckpointRef, ItemRow};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::rows::item::{DELETE, PUT, REFERENCE, item_check, item_place, range_position};
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{DeletedRange, ValueColumn, unpack_ranges, unpack_reference};
use crate::store::sqlite::rows::payload::{Room, joined};
use crate::store::sqlite::rows::version::{LIST, VersionRow};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{KeyChecked, item};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use expected::ExpectedRows;
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The columns of the task, before value and check, and of the payload in a row of `sql::ITEMS_JOINED`.
const TASK: usize = 2;
pub(crate) const PAYLOAD: usize = 5;

/// A visitor of items.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>;

/// The rows of one list along one lineage.
pub(crate) struct ChannelRows<'a> {
    view: ReadView<'a>,
    /// The names of the channel: of its versions, and of its items.
    key: i64,
    channel: i64,
    pub(crate) end: ListEnd,
    /// The place of the newest version row.
    at: (i64, i64),
    whole: OnceCell<WholeList>,
}

/// The branches with rows of a list, and its operations on more than one position.
struct WholeList {
    /// Newest first.
    spans: Vec<ListSpan>,
    deleted: DeletedRanges,
    /// The list it was made from, if it is a copy-on-write reference.
    reference: Option<ReferenceRow>,
}

/// The rows of a list on one branch: those up to an ordinal, which is that of its newest change there.
#[derive(Clone, Copy)]
struct ListSpan {
    branch: i64,
    last: i64,
    /// One past its greatest position.
    end: u64,
    /// The positions that its newest change wrote, see [`ListEnd::written`].
    written: (u64, u64),
}

/// A copy-on-write reference: the list holds what another one held at a checkpoint, but for its own rows.
#[derive(Clone, Copy)]
pub(crate) struct ReferenceRow {
    /// The checkpoint of the referenced list, and its channel.
    pub(crate) seq: i64,
    pub(crate) channel: i64,
    /// The ordinal and the task that made the reference.
    ordinal: i64,
    task: Option<u32>,
}

impl ListSpan {
    fn new((branch, last): (i64, i64), end: &ListEnd) -> Self {
        Self { branch, last, end: end.end, written: end.written }
    }

    /// Returns the greatest of the positions up to `last` that it can have.
    fn last_position(&self, last: i64) -> i64 {
        last.min(i64::try_from(self.end).map_or(i64::MAX, |end| end - 1))
    }
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
#[derive(Default)]
pub(crate) struct DeletedRanges(BTreeMap<u64, i64>);

impl DeletedRanges {
    /// Adds a range. At a position that others cover too, the greatest ordinal counts.
    pub(crate) fn paint(&mut self, first: u64, end: u64, ordinal: i64) {
        if first >= end {
            return;
        }
        let (at_first, at_end) = (self.at(first), self.at(end));
        self.0.insert(first, at_first);
        if end < u64::MAX {
            self.0.insert(end, at_end);
        }
        self.0.range_mut(first..end).for_each(|(_, covered)| *covered = ordinal.max(*covered));
    }

    /// Returns whether a range covers each position from `first` to `end`.
    pub(crate) fn cover(&self, first: u64, end: u64) -> bool {
        first >= end || (self.at(first) >= 0 && self.0.range(first..end).all(|(_, ordinal)| *ordinal >= 0))
    }

    fn at(&self, position: u64) -> i64 {
        self.0.range(..=position).next_back().map_or(-1, |(_, &ordinal)| ordinal)
    }

    /// Returns whether a later range delete covers a row of `ordinal` at `position`. The ranges of its own change come
    /// before the row.
    pub(crate) fn is_deleted(&self, position: i64, ordinal: i64) -> bool {
        !self.0.is_empty() && self.at(position as u64) > ordinal
    }
}

impl ReadView<'_> {
    /// Visits the items of a list at a checkpoint.
    pub(crate) fn items(self, at: &CheckpointRef, channel: &str, range: ItemRange, visit: Visit<'_>) -> Res<()> {
        let (_, branch, ordinal) = self.place(at)?;
        let Some(list) = ChannelRows::read(self, branch, ordinal, channel)? else { return Ok(()) };
        // From a position on, the end of the list tells that each one has an item.
        let (mut visited, (first, until)) = (0, list.contiguous(range));
        let mut next = first;
        let mut visit = |row: ItemRow<'_>| {
            if row.position >= first {
                if row.position != next {
                    return Err(list.gap());
                }
                next += 1;
            }
            visited += 1;
            visit(row)
        };
        let visit: Visit<'_> = &mut visit;
        match range {
            ItemRange::Tail(count) => list.tail(count, visit),
            ItemRange::All => list.all(visit),
            ItemRange::Positions(first, end) if first < end => {
                list.range(i64::try_from(first).unwrap_or(i64::MAX), i64::try_from(end - 1).unwrap_or(i64::MAX), visit)
            }
            ItemRange::Positions(..) => Ok(()),
        }?;
        let is_whole = next == until.max(first) && list.expected(range).is_none_or(|expected| expected == visited);
        if is_whole { Ok(()) } else { Err(list.gap().into()) }
    }

    /// Returns how many items of a list a range has, if the end of the list tells.
    pub(crate) fn items_of_range(self, at: &CheckpointRef, channel: &str, range: ItemRange) -> Res<Option<u64>> {
        let (_, branch, ordinal) = self.place(at)?;
        Ok(ChannelRows::read(self, branch, ordinal, channel)?.and_then(|list| list.expected(range)))
    }

    /// Returns the number of items of a list at a checkpoint.
    pub(crate) fn list_len(self, at: &CheckpointRef, channel: &str) -> Res<u64> {
        let (_, branch, ordinal) = self.place(at)?;
        Ok(ChannelRows::read(self, branch, ordinal, channel)?.map_or(0, |list| list.end.len))
    }
}

/// An operation on more than one position, at one ordinal.
enum Whole {
    DeletedRanges(Vec<DeletedRange>),
    Reference(ReferenceRow),
}

impl DeletedRanges {
    /// Adds the deleted ranges of a branch. Returns the newest reference of the list there that no later range delete
    /// of all positions covers.
    fn read(&mut self, list: &ChannelRows<'_>, span: ListSpan) -> Res<Option<ReferenceRow>> {
        let slots = [span.branch, list.channel, range_position(span.last), range_position(0)];
        let mut found = list.view.conn.read_all(sql::DELETED_RANGES, slots, |row| {
            let item::Row { ordinal, op, task, value, .. } = list.verified(row)?;
            let bytes = value.0.as_blob().ok();
            let whole = if op == REFERENCE {
                let reference = |(seq, channel)| Whole::Reference(ReferenceRow { seq, channel, ordinal, task });
                bytes.and_then(unpack_reference).map(reference)
            } else {
                bytes.and_then(unpack_ranges).map(Whole::DeletedRanges)
            };
            let whole = whole.ok_or_else(|| {
                corrupt(
                    item_place(span.branch, list.channel, range_position(ordinal), ordinal),
                    "its deleted ranges or its reference cannot be decoded",
                )
            })?;
            Ok((ordinal, whole))
        })?;
        found.sort_by_key(|(ordinal, _)| *ordinal);
        let mut reference = None;
        for (ordinal, whole) in found {
            match whole {
                Whole::DeletedRanges(ranges) => ranges.iter().for_each(|range| {
                    reference = reference.filter(|_| (range.first, range.end) != (0, u64::MAX));
                    self.paint(range.first, range.end, ordinal);
                }),
                Whole::Reference(new) => {
                    self.paint(0, u64::MAX, ordinal);
                    reference = Some(new);
                }
            }
        }
        Ok(reference)
    }
}

impl<'a> ChannelRows<'a> {
    /// Returns the list of a channel at (branch, ordinal); `None` if the channel is not a list there.
    pub(crate) fn read(view: ReadView<'a>, branch: i64, ordinal: i64, channel: &str) -> Res<Option<Self>> {
        let Some(key) = view.names.find(view.conn, Kind::Channel, channel)? else { return Ok(None) };
        match lineage::newest_of(view, branch, ordinal, key)? {
            Some(row) => Self::of_row(view, &row, channel),
            None => Ok(None),
        }
    }

    /// Returns the list of a channel with this version row; `None` if that is not of a list.
    pub(crate) fn of_row(view: ReadView<'a>, row: &VersionRow, channel: &str) -> Res<Option<Self>> {
        if row.kind != LIST {
            return Ok(None);
        }
        let items = view.names.find(view.conn, Kind::List, channel)?;
        let missing = || corrupt(format!("name {channel:?}"), "a list has it, but it is not interned as one");
        Ok(Some(Self::new(view, ListEnd::of(row)?, (row.branch, row.ordinal), row.key, items.ok_or_else(missing)?)))
    }

    /// Returns the list whose version row is at (branch, ordinal).
    pub(crate) fn new(view: ReadView<'a>, end: ListEnd, at: (i64, i64), key: i64, channel: i64) -> Self {
        Self { view, key, channel, end, at, whole: OnceCell::new() }
    }

    /// Returns the list that a reference to a channel without a list means: one without rows.
    pub(crate) fn empty(view: ReadView<'a>, key: i64, channel: i64) -> Self {
        Self::new(view, ListEnd::default(), (0, -1), key, channel)
    }

    /// Returns the name of its items.
    pub(crate) fn channel(&self) -> i64 {
        self.channel
    }

    /// Returns the list that this one references.
    pub(crate) fn reference(&self) -> Res<Option<ReferenceRow>> {
        if self.end.is_reference { Ok(self.whole()?.reference) } else { Ok(None) }
    }

    /// Returns how many items a range has, if the end of the list tells.
    fn expected(&self, range: ItemRange) -> Option<u64> {
        let ListEnd { end, len, .. } = self.end;
        match range {
            ItemRange::All => Some(len),
            ItemRange::Tail(count) => Some(len.min(count as u64)),
            ItemRange::Positions(first, until) if len == end => Some(until.min(end).saturating_sub(first)),
            ItemRange::Positions(..) => None,
        }
    }

    /// Returns the positions of a range from which on, and up to which, the end of the list tells that each one has an
    /// item.
    fn contiguous(&self, range: ItemRange) -> (u64, u64) {
        let (floor, end) = (self.end.floor(), self.end.end);
        match range {
            ItemRange::All => (floor, end),
            ItemRange::Tail(count) => (floor.max(end.saturating_sub(count as u64)), end),
            ItemRange::Positions(first, until) => (floor.max(first), until.min(end)),
        }
    }

    fn gap(&self) -> StoreError {
        let place = format!("list (branch {}, ordinal {}, channel {})", self.at.0, self.at.1, self.channel);
        StoreError::Corrupt { place, reason: "an item is missing".into() }
    }

    fn first_span(&self) -> ListSpan {
        ListSpan::new(self.at, &self.end)
    }

    /// Returns the branch before with rows of the list, given the end that leads there.
    fn span_before(&self, end: &ListEnd) -> Res<Option<(ListSpan, ListEnd)>> {
        let Some(at) = end.before else { return Ok(None) };
        let row = lineage::row_at(self.view, at, self.key)?;
        let end = ListEnd::of(&row)?;
        Ok(Some((ListSpan::new(at, &end), end)))
    }

    /// Reads the branches of the list and its ranges, once.
    fn whole(&self) -> Res<&WholeList> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let (mut spans, mut end) = (vec![self.first_span()], self.end);
        // Branches descend, so the walk ends whatever the file says.
        while let Some((span, before)) = self.span_before(&end)? {
            spans.push(span);
            end = before;
        }
        let mut whole = WholeList { spans, deleted: DeletedRanges(BTreeMap::new()), reference: None };
        if self.end.has_ranges {
            for span in &whole.spans {
                let found = whole.deleted.read(self, *span)?;
                whole.reference = whole.reference.or(found);
            }
        }
        whole.reference = whole.reference.filter(|_| self.end.is_reference);
        Ok(self.whole.get_or_init(|| whole))
    }

    /// Returns the number of items of positions from `first` to `end`.
    pub(crate) fn count(&self, first: u64, end: u64) -> Res<u64> {
        let last = i64::try_from(end - 1).unwrap_or(i64::MAX);
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        Ok(self.live(first, last, LIST_REFERENCES_MAX, false)?.len() as u64)
    }

    /// Visits all items.
    pub(crate) fn all(&self, visit: Visit<'_>) -> Res<()> {
        let mut visited = 0;
        self.range(0, i64::MAX, &mut |row| {
            visited += 1;
            visit(row)
        })?;
        if visited == self.end.len { Ok(()) } else { Err(self.gap().into()) }
    }

    pub(crate) fn range(&self, first: i64, last: i64, visit: Visit<'_>) -> Res<()> {
        let whole = self.whole()?;
        match (whole.spans.as_slice(), whole.reference) {
            ([span], None) => self.stream(*span, first, last, visit),
            _ => self.visit(&self.live(first, last, LIST_REFERENCES_MAX, true)?, visit),
        }
    }

    /// Returns the live rows by position, through at most `below` references. A reader `verifies` the rows beside them
    /// too; a writer that counts the items at one position does not.
    fn live(&self, first: i64, last: i64, below: usize, verifies: bool) -> Res<Vec<ListRow>> {
        let mut live = self.own(first, last, verifies)?;
        match self.reference()? {
            Some(reference) => {
                let other = self.other(reference, below)?.live(first, last, below - 1, verifies)?;
                self.beside(reference, &mut live, other)?;
            }
            None => resolve(&mut live, &self.whole()?.deleted),
        }
        Ok(live)
    }

    /// Returns the newest row of each position, by branch.
    fn own(&self, first: i64, last: i64, verifies: bool) -> Res<Vec<ListRow>> {
        let mut live = Vec::new();
        for span in &self.whole()?.spans {
            let (last, begin) = (span.last_position(last), live.len());
            let mut rows = self.view.conn.prepare_cached(sql::ITEMS)?;
            let rows = rows.query(params![span.branch, self.channel, first, last])?;
            self.collect(*span, rows, &mut live)?;
            self.must_have_newest(*span, first, last, &live[begin..])?;
            if verifies {
                neighbors::of_items(
                    self.view.conn,
                    self.view.keys,
                    (span.branch, self.channel),
                    Some(first),
                    Some(last),
                )?;
            }
        }
        Ok(live)
    }

    /// Verifies that rows of the newest change of a span are among those of positions from `first` to `last`.
    fn must_have_newest(&self, span: ListSpan, first: i64, last: i64, rows: &[ListRow]) -> Res<()> {
        let mut expected = ExpectedRows::of(span, first, last);
        rows.iter().for_each(|row| expected.found(row.position, row.ordinal));
        expected.verify(self.view, span, self.channel)
    }

    /// Returns the referenced list.
    fn other(&self, reference: ReferenceRow, below: usize) -> Res<ChannelRows<'a>> {
        if below == 0 {
            let place = format!("item (channel {}, list of checkpoint {})", self.channel, reference.seq);
            return Err(corrupt(place, "it references too many lists in a row"));
        }
        let other = self.view.list_at(reference.seq, reference.channel)?;
        Ok(other.unwrap_or_else(|| Self::empty(self.view, self.key, self.channel)))
    }

    /// Merges the rows of the referenced list into its own rows, which hide them.
    fn beside(&self, reference: ReferenceRow, live: &mut Vec<ListRow>, mut other: Vec<ListRow>) -> Res<()> {
        let deleted = &self.whole()?.deleted;
        live.sort_by_key(|row| (row.position, Reverse(row.ordinal)));
        live.dedup_by_key(|row| row.position);
        live.retain(|row| !deleted.is_deleted(row.position, row.ordinal));
        let is_hidden = |position: i64| live.binary_search_by_key(&position, |own| own.position).is_ok();
        other.retain(|row| !is_hidden(row.position) && !deleted.is_deleted(row.position, reference.ordinal));
        other.iter_mut().for_each(|row| row.shared = Some((reference.ordinal, reference.task)));
        live.retain(|row| row.op != DELETE);
        live.append(&mut other);
        live.sort_by_key(|row| row.position);
        Ok(())
    }

    /// Streams a list whose rows are in one branch.
    fn stream(&self, span: ListSpan, first: i64, last: i64, visit: Visit<'_>) -> Res<()> {
        let (conn, deleted) = (self.view.conn, &self.whole()?.deleted);
        let last = span.last_position(last);
        let mut statement = conn.prepare_cached(sql::ITEMS_JOINED)?;
        let mut rows = statement.query(params![span.branch, self.channel, first, last])?;
        let mut room = Room::of(self.view.keys, blobs::read);
        let (mut done, mut expected) = (None, ExpectedRows::of(span, first, last));
        while let Some(row) = rows.next()? {
            let (position, ordinal): (i64, i64) = FromColumns::read(row, 0)?;
            let place = || item_place(span.branch, self.channel, position, ordinal);
            if done.is_some_and(|done| done > position) {
                return Err(corrupt(place(), "the index gives it out of order"));
            }
            if done == Some(position) {
                continue;
            }
            let (task, value) = joined_value(self.view.keys, (span.branch, self.channel), (position, ordinal), row)?;
            // A change after the checkpoint.
            if ordinal > span.last {
                continue;
            }
            done = Some(position);
            expected.found(position, ordinal);
            let Some(payload) = joined(conn, row, (value, PAYLOAD), &mut room, &place)? else { continue };
            if !deleted.is_deleted(position, ordinal) {
                visit(item_row(position, ordinal, task, payload))?;
            }
        }
        expected.verify(self.view, span, self.channel)?;
        // Only a row before the first one can be missing without a gap: the older ones of a position come after it.
        neighbors::of_items(self.view.conn, self.view.keys, (span.branch, self.channel), Some(first), None)
    }

    /// Visits the items directly before a position that the branch of the list put there, the last one first, for as
    /// long as `visit` returns true. A position without an item ends it.
    pub(crate) fn before(&self, position: i64, visit: &mut dyn FnMut(PayloadRef<'_>) -> bool) -> Res<()> {
        let (span, mut deleted) = (self.first_span(), DeletedRanges(BTreeMap::new()));
        if self.end.has_ranges {
            deleted.read(self, span)?;
        }
        let (mut payloads, mut wanted) = (Payloads::new(self.view)?, position - 1);
        let mut backwards = self.view.conn.prepare_cached(sql::ITEMS_BACKWARDS)?;
        let mut rows = backwards.query(params![span.branch, self.channel, wanted, i64::MAX])?;
        // The rows of a position ascend by ordinal.
        let mut newest: Option<ListRow> = None;
        loop {
            let row = rows.next()?.map(|row| self.list_row(row)).transpose()?;
            if row.is_some_and(|row| row.ordinal > span.last) {
                continue;
            }
            if let Some(item) = newest.filter(|item| row.is_none_or(|row| row.position != item.position)) {
                let is_live = item.op == PUT && !deleted.is_deleted(item.position, item.ordinal);
                let place = || item_place(span.branch, self.channel, item.position, item.ordinal);
                if !is_live
                    || item.position != wanted
                    || payloads.with(item.stored, &place, |payload| Ok(visit(payload)))? != Some(true)
                {
                    return Ok(());
                }
                wanted -= 1;
            }
            if row.is_none() {
                return Ok(());
            }
            newest = row;
        }
    }

    /// Visits the last items.
    pub(crate) fn tail(&self, count: usize, visit: Visit<'_>) -> Res<()> {
        if count == 0 {
            return Ok(());
        }
        let live = self.last(count, LIST_REFERENCES_MAX)?;
        self.visit(&live[live.len().saturating_sub(count)..], visit)
    }

    /// Returns the last live rows, at least `count` if there are so many.
    fn last(&self, count: usize, below: usize) -> Res<Vec<ListRow>> {
        let Some(reference) = self.reference()? else { return self.last_own(count) };
        let own = self.own(0, i64::MAX, true)?;
        let other = self.other(reference, below)?;
        // Each own row hides one row at most; a range delete may hide more.
        let mut wanted = count.saturating_add(own.len());
        loop {
            let found = other.last(wanted, below - 1)?;
            let all = found.len() < wanted;
            // Below it the referenced list may have further items between the own ones.
            let from = found.iter().map(|row| row.position).min().filter(|_| !all);
            let mut live = own.clone();
            self.beside(reference, &mut live, found)?;
            if all || live.iter().filter(|row| from.is_none_or(|from| row.position >= from)).count() >= count {
                return Ok(live);
            }
            wanted = wanted.saturating_mul(4);
        }
    }

    /// Returns the last live rows of a list without a reference: backwards from its end, in growing pages, and from
    /// branch to branch only while positions above are open.
    fn last_own(&self, count: usize) -> Res<Vec<ListRow>> {
        // Some more rows than items, of which a few may be deleted or replaced.
        let mut limit = i64::try_from(count.saturating_add(count.clamp(1, 16))).unwrap_or(i64::MAX);
        let last = i64::try_from(self.end.end.saturating_sub(1)).unwrap_or(i64::MAX);
        loop {
            let mut tail = Tail { newest: BTreeMap::new(), deleted: DeletedRanges(BTreeMap::new()), floor: -1 };
            let mut next = Some((self.first_span(), self.end));
            while let Some((span, end)) = next {
                if end.has_ranges {
                    tail.deleted.read(self, span)?;
                }
                let (found, floor) = self.backwards(span, last, limit, end.before.is_some())?;
                tail.floor = tail.floor.max(floor);
                found.into_iter().for_each(|row| _ = tail.newest.entry(row.position).or_insert(row));
                if let Some(live) = tail.known(count, last) {
                    return Ok(live);
                }
                next = self.span_before(&end)?;
            }
            let mut live: Vec<ListRow> = tail.newest.into_values().filter(|row| row.position > tail.floor).collect();
            resolve(&mut live, &tail.deleted);
            if live.len() >= count || tail.floor < 0 {
                return Ok(live);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// Returns the newest row of each position of a branch, up to so many rows back from a position, and the position
    /// at and below which some may be missing.
    fn backwards(&self, span: ListSpan, last: i64, limit: i64, has_older: bool) -> Res<(Vec<ListRow>, i64)> {
        let last = span.last_position(last);
        let mut backwards = self.view.conn.prepare_cached(sql::ITEMS_BACKWARDS)?;
        let rows = backwards.query(params![span.branch, self.channel, last, limit])?;
        let mut found = Vec::new();
        let (count, lowest) = self.collect(span, rows, &mut found)?;
        let floor = if count == limit { lowest } else { -1 };
        self.must_have_newest(span, floor.saturating_add(1), last, &found)?;
        let place = (span.branch, self.channel);
        neighbors::of_items(
            self.view.conn,
            self.view.keys,
            place,
            (floor < 0).then_some(0),
            has_older.then_some(last),
        )?;
        Ok((found, floor))
    }

    /// Collects the newest row of each position of a branch, whichever way the rows run. Returns how many were read,
    /// and the position of the last one.
    fn collect(&self, span: ListSpan, mut rows: rusqlite::Rows<'_>, live: &mut Vec<ListRow>) -> Res<(i64, i64)> {
        let (mut count, mut end) = (0, -1);
        while let Some(row) = rows.next()? {
            count += 1;
            let row = self.list_row(row)?;
            end = row.position;
            // A change after the checkpoint.
            if row.ordinal > span.last {
                continue;
            }
            match live.last_mut() {
                Some(last) if last.branch == row.branch && last.position == row.position => {
                    if row.ordinal > last.ordinal {
                        *last = row;
                    }
                }
                _ => live.push(row),
            }
        }
        Ok((count, end))
    }

    fn verified<'r>(&self, row: &'r Row<'_>) -> Res<item::Row<'r>> {
        item::Row::verified(self.view.keys, row)
    }

    fn list_row(&self, row: &Row<'_>) -> Res<ListRow> {
        let item::Row { branch, channel, slot: position, ordinal, op, task, value } = self.verified(row)?;
        let stored = ValueColumn::from_column(value.0).filter(|stored| match stored {
            ValueColumn::Null => op == DELETE,
            _ => op == PUT,
        });
        let place = || item_place(branch, channel, position, ordinal);
        let stored = stored.ok_or_else(|| corrupt(place(), "operation and value do not match the format"))?;
        Ok(ListRow { branch, position, ordinal, op, task, stored, shared: None })
    }

    fn visit(&self, live: &[ListRow], visit: Visit<'_>) -> Res<()> {
        debug_assert!(live.windows(2).all(|pair| pair[0].position < pair[1].position), "items ascend");
        let mut payloads = Payloads::new(self.view)?;
        for row in live {
            let place = || item_place(row.branch, self.channel, row.position, row.ordinal);
            let (ordinal, task) = row.shared.unwrap_or((row.ordinal, row.task));
            payloads.with(row.stored, &place, |payload| Ok(visit(item_row(row.position, ordinal, task, payload))?))?;
        }
        Ok(())
    }
}

/// The newest rows of the last positions of a list, as far as branches were read.
struct Tail {
    newest: BTreeMap<i64, ListRow>,
    deleted: DeletedRanges,
    /// Rows of this position and those below may be missing.
    floor: i64,
}

impl Tail {
    /// Returns the last `count` live rows, if no branch before can hold one of them: each position above the first of
    /// them has a row, or a range delete covers it.
    fn known(&self, count: usize, last: i64) -> Option<Vec<ListRow>> {
        if self.newest.len() < count {
            return None;
        }
        let (mut live, mut above) = (Vec::with_capacity(count), last);
        for (&position, row) in self.newest.range(self.floor.saturating_add(1)..).rev() {
            if position < above && !self.deleted.cover(position as u64 + 1, above as u64 + 1) {
                return None;
            }
            if row.op != DELETE && !self.deleted.is_deleted(position, row.ordinal) {
                live.push(*row);
            }
            if live.len() == count {
                live.reverse();
                return Some(live);
            }
            above = position - 1;
        }
        None
    }
}

/// Returns the task and the value of a row of `sql::ITEMS_JOINED` at a position and an ordinal of a list, verified.
pub(crate) fn joined_value<'r>(
    keys: &Keys,
    (branch, list): (i64, i64),
    (position, ordinal): (i64, i64),
    row: &'r Row<'_>,
) -> Res<(Option<u32>, ValueRef<'r>)> {
    let (task, value) = (row.get(TASK)?, row.get_ref(TASK + 1)?);
    // `op` follows from the value, and the check verifies that it agrees: reading a column costs as much as a seek.
    let op = if value == ValueRef::Null { DELETE } else { PUT };
    let check = item_check(keys, branch, list, position, ordinal, op, task, value);
    match row.get_ref(TASK + 2)? == ValueRef::Integer(check) {
        true => Ok((task, value)),
        false => Err(corrupt(item_place(branch, list, position, ordinal), "the check of the row does not match")),
    }
}

/// Reduces rows to the live ones, by position.
fn resolve(live: &mut Vec<ListRow>, deleted: &DeletedRanges) {
    live.sort_by_key(|row| (row.position, Reverse(row.ordinal)));
    live.dedup_by_key(|row| row.position);
    live.retain(|row| row.op != DELETE && !deleted.is_deleted(row.position, row.ordinal));
}

fn item_row(position: i64, ordinal: i64, task: Option<u32>, payload: PayloadRef<'_>) -> ItemRow<'_> {
    ItemRow::new(position as u64, ordinal as u64, task, payload)
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
        let mut backwards = DeletedRanges(BTreeMap::new());
        backwards.paint(5, u64::MAX, 9);
        backwards.paint(4, 6, 7);
        backwards.paint(0, 10, 3);
        let back: Vec<i64> = [0, 3, 4, 5, 9, 10, 1 << 40].map(|position| backwards.at(position)).into();
        assert_eq!(at, back, "the order in which they are read means nothing");
        assert!(ranges.cover(0, 1 << 40) && !DeletedRanges(BTreeMap::from([(2, 1)])).cover(1, 3));
    }
}
