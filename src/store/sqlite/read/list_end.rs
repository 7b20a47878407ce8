//! The ends of lists: the content of the version row of a list.
//!
//! The row holds the end of the list, its length, and the place of the list's version row on the branch before that has
//! rows of it. So a tail begins at the end and goes from branch to branch only where there are rows, and the length is
//! read and not counted. A change computes the new end from the one before; rows of items are read only for positions
//! below the end. *Absent:* the items ([`items`](super::items)).
//!
//! Invariant: an end follows from the rows alone, and a check computes it anew.

use super::items::ChannelRows;
use super::lineage::{self, KeyContent, LIST, VersionRow, version_place};
use super::record::ReadView;
use crate::base::limits::LIST_RUN_MAX;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::rows::pack::{DeletedRange, Unpack, put_uint};
use std::collections::HashMap;

/// The value of a version row of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListEnd {
    /// One past the greatest position that was put since the list began.
    pub(crate) end: u64,
    /// The number of items.
    pub(crate) len: u64,
    /// Positions directly below the end that each have an item, up to [`LIST_RUN_MAX`]: a read of the last items
    /// notices that one of them is missing.
    pub(crate) run: u64,
    /// True if the list builds on a referenced one.
    pub(crate) is_reference: bool,
    /// True if rows that concern more than a position may be among those of the list.
    pub(crate) has_ranges: bool,
    /// The positions that the change wrote, as one range; a change that replaces the list wrote all.
    pub(crate) written: (u64, u64),
    /// Branch and ordinal of the list's version row at which the branch before was left; `None` if no branch before has
    /// rows that count.
    pub(crate) before: Option<(i64, i64)>,
}

/// The positions that a change writes which replaces the list.
const ALL_WRITTEN: (u64, u64) = (0, u64::MAX);

const REFERENCE_BIT: u64 = 1;
const RANGES_BIT: u64 = 2;
const ALL_WRITTEN_BIT: u64 = 4;
const INSIDE_BIT: u64 = 8;
const FLAG_BITS: u32 = 4;

impl ListEnd {
    /// Packs the end for a row at (branch, ordinal).
    pub(crate) fn pack(&self, branch: i64, ordinal: i64) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        put_uint(&mut out, self.end);
        put_uint(&mut out, self.end - self.len);
        if self.len < self.end {
            put_uint(&mut out, self.run);
        }
        let is_all = self.written == ALL_WRITTEN;
        let (first, last) = if is_all { (self.end, self.end) } else { self.written };
        put_uint(&mut out, self.end - first);
        let flags = u64::from(self.is_reference) * REFERENCE_BIT
            + u64::from(self.has_ranges) * RANGES_BIT
            + u64::from(is_all) * ALL_WRITTEN_BIT
            + u64::from(last < self.end) * INSIDE_BIT;
        let distance = self.before.map_or(0, |(before, _)| (branch - before) as u64);
        if flags > 0 || distance > 0 {
            put_uint(&mut out, (distance << FLAG_BITS) | flags);
        }
        if let Some((_, before)) = self.before {
            put_uint(&mut out, (ordinal - before) as u64);
        }
        if last < self.end {
            put_uint(&mut out, self.end - last);
        }
        debug_assert_eq!(Self::unpack(&out, branch, ordinal), Some(*self));
        out
    }

    /// Unpacks the end from a row at (branch, ordinal).
    pub(crate) fn unpack(bytes: &[u8], branch: i64, ordinal: i64) -> Option<Self> {
        let mut rest = Unpack(bytes);
        let end = rest.uint().filter(|end| *end <= 1 << 63)?;
        let len = end.checked_sub(rest.uint()?)?;
        let run = if len < end { rest.uint()? } else { len.min(LIST_RUN_MAX) };
        if run > len.min(LIST_RUN_MAX) {
            return None;
        }
        let first = end.checked_sub(rest.uint()?)?;
        let flags = if rest.is_empty() { 0 } else { rest.uint()? };
        let before = match i64::try_from(flags >> FLAG_BITS).ok()? {
            0 => None,
            distance => {
                let before = (branch.checked_sub(distance)?, ordinal.checked_sub(rest.id()?)?);
                Some(before).filter(|(branch, of)| *branch > 0 && (0..ordinal).contains(of)).map(Some)?
            }
        };
        let (is_reference, has_ranges) = (flags & REFERENCE_BIT != 0, flags & RANGES_BIT != 0);
        let last = if flags & INSIDE_BIT == 0 { end } else { end.checked_sub(rest.uint().filter(|n| *n > 0)?)? };
        let written = match flags & ALL_WRITTEN_BIT {
            0 => Some((first, last)).filter(|(first, last)| first <= last)?,
            _ => Some(ALL_WRITTEN).filter(|_| first == end && last == end)?,
        };
        rest.is_empty().then_some(Self { end, len, run, is_reference, has_ranges, written, before })
    }

    /// Returns the position from which on the list has an item at each one, as far as its end tells.
    pub(crate) fn floor(&self) -> u64 {
        if self.len == self.end { 0 } else { self.end - self.run }
    }

    /// Returns the end that a version row of a list holds.
    pub(crate) fn of(row: &VersionRow) -> Res<Self> {
        let end = match &row.value {
            KeyContent::Packed(bytes) => Self::unpack(bytes, row.branch, row.ordinal),
            KeyContent::Channel(_) => None,
        };
        end.ok_or_else(|| {
            corrupt(version_place(row.branch, row.ordinal, row.key), "the end of its list cannot be decoded")
        })
    }
}

/// The newest version row of a channel, as far as a list needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewestRow {
    branch: i64,
    ordinal: i64,
    /// `None` if the channel was not a list there.
    pub(crate) list: Option<ListEnd>,
}

/// The newest version rows of channels that were lists, by branch and channel. Rows of a branch are read or written in
/// ascending order.
#[derive(Debug, Default)]
pub(crate) struct ListEnds(HashMap<(i64, i64), NewestRow>);

impl ListEnds {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes a row that was read or written at (branch, ordinal).
    pub(crate) fn note(&mut self, branch: i64, ordinal: i64, key: i64, list: Option<ListEnd>) {
        self.0.insert((branch, key), NewestRow { branch, ordinal, list });
    }

    /// Returns the newest row of a channel at a checkpoint; `None` if it has none.
    pub(crate) fn at(&mut self, view: ReadView<'_>, at: (i64, i64), key: i64) -> Res<Option<NewestRow>> {
        let (branch, ordinal) = at;
        if let Some(before) = self.0.get(&(branch, key)).filter(|before| before.ordinal <= ordinal) {
            return Ok(Some(*before));
        }
        let Some(row) = lineage::newest_of(view, branch, ordinal, key)? else { return Ok(None) };
        let list = if row.kind == LIST { Some(ListEnd::of(&row)?) } else { None };
        Ok(Some(NewestRow { branch: row.branch, ordinal: row.ordinal, list }))
    }
}

/// The operations of a change of a list.
pub(crate) struct EndOps<'o> {
    pub(crate) ranges: &'o [DeletedRange],
    /// The referenced list, if the change begins as one.
    pub(crate) reference: Option<&'o ChannelRows<'o>>,
    /// Positions, and whether an item is put there; each position once.
    pub(crate) items: Vec<(u64, bool)>,
}

impl EndOps<'_> {
    /// Returns the range of the positions that the operations concern, of those below `old_end` in range deletes.
    fn written(&self, old_end: u64) -> Option<(u64, u64)> {
        let items = self.items.iter().map(|(position, _)| (*position, position + 1));
        let ranges = self.ranges.iter().map(|range| (range.first, range.end.min(old_end)));
        let all = items.chain(ranges.filter(|(first, end)| first < end));
        all.reduce(|(first, last), (other, end)| (first.min(other), last.max(end)))
    }

    /// Returns the positions below `end` that the operations write, as one range. Past the end, a delete finds nothing.
    fn written_before(&self, end: u64, old_end: u64) -> (u64, u64) {
        let (first, last) = self.written(old_end).unwrap_or((end, end));
        (first.min(end), last.min(end))
    }

    /// Returns the position from which on the list has an item at each one after the operations. It had the end
    /// `old_end` before, and an item at each position from `floor` on.
    fn floor(&self, floor: u64, old_end: u64) -> u64 {
        let ranges = self.ranges.iter().map(|range| (range.first, range.end.min(old_end)));
        let deleted = self.items.iter().filter(|(position, is_put)| !is_put && *position < old_end);
        let deleted = deleted.map(|(position, _)| (*position, position + 1));
        let floor =
            ranges.chain(deleted).filter(|(first, end)| first < end).fold(floor, |floor, (_, end)| floor.max(end));
        let mut put: Vec<u64> =
            self.items.iter().filter(|(_, is_put)| *is_put).map(|(position, _)| *position).collect();
        put.sort_unstable();
        let appended = put.into_iter().filter(|position| *position >= old_end);
        appended.fold((floor, old_end), |(floor, end), at| (if at == end { floor } else { at }, at + 1)).0
    }
}

/// Returns the end of a list after a change that is stored on `branch`. `channel` is the name of its items.
pub(crate) fn after(
    view: ReadView<'_>,
    before: Option<NewestRow>,
    branch: i64,
    key: i64,
    channel: i64,
    ops: &EndOps<'_>,
) -> Res<ListEnd> {
    let old = before.and_then(|before| before.list.map(|end| (end, (before.branch, before.ordinal))));
    let deletes_all = ops.ranges.iter().any(|range| range.first == 0 && range.end == u64::MAX);
    let fresh = ListEnd { has_ranges: before.is_some() || !ops.ranges.is_empty(), ..ListEnd::default() };
    let old_end = old.map_or(0, |(end, _)| end.end);
    let (mut next, base) = match (ops.reference, old) {
        (Some(of), _) => {
            let end = ListEnd { is_reference: true, has_ranges: true, before: None, ..of.end };
            (end, None)
        }
        (None, Some((end, at))) if !deletes_all => {
            let before = if at.0 == branch { end.before } else { Some(at) };
            let has_ranges = end.has_ranges || !ops.ranges.is_empty();
            (ListEnd { before, has_ranges, ..end }, Some(ChannelRows::new(view, end, at, key, channel)))
        }
        _ => (fresh, None),
    };
    let base = ops.reference.or(base.as_ref());
    let floor = ops.floor(next.floor(), next.end);
    // Items that the list had before, of positions from `first` to `end`, without those in the deleted ranges.
    let held = |first: u64, end: u64| -> Res<u64> {
        match base {
            Some(base) if first < end.min(base.end.end) => base.count(first, end),
            _ => Ok(0),
        }
    };
    if let Some(base) = base {
        for (first, end) in union(ops.ranges) {
            // The part of the list that is smaller is counted.
            let (end, all) = (end.min(base.end.end), base.end.end);
            if first >= end {
                continue;
            }
            let inside = end - first;
            let deleted = if inside <= all - inside {
                held(first, end)?
            } else {
                base.end.len.saturating_sub(held(0, first)? + held(end, all)?)
            };
            next.len = next.len.saturating_sub(deleted);
        }
    }
    let is_deleted = |at: u64| ops.ranges.iter().any(|range| (range.first..range.end).contains(&at));
    for &(position, is_put) in &ops.items {
        let held = !is_deleted(position) && held(position, position + 1)? > 0;
        match (held, is_put) {
            (false, true) => next.len += 1,
            (true, false) => next.len = next.len.saturating_sub(1),
            _ => {}
        }
        if is_put {
            next.end = next.end.max(position + 1);
        }
    }
    next.run = if next.len == next.end { next.end } else { next.end.saturating_sub(floor) }.min(LIST_RUN_MAX);
    next.written = match ops.reference.is_some() || deletes_all {
        true => ALL_WRITTEN,
        false => ops.written_before(next.end, old_end),
    };
    if next.len > next.end || next.before.is_some_and(|(before, _)| before >= branch) {
        return Err(corrupt(format!("list {channel} of branch {branch}"), "its end does not match its rows"));
    }
    Ok(next)
}

/// Returns the ranges without overlaps, ascending.
fn union(ranges: &[DeletedRange]) -> Vec<(u64, u64)> {
    let mut sorted: Vec<(u64, u64)> = ranges.iter().map(|range| (range.first, range.end)).collect();
    sorted.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for (first, end) in sorted {
        match union.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => union.push((first, end)),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_packed_in_few_bytes() {
        let plain = ListEnd { end: 10_000, len: 9_990, run: 127, written: (9_998, 10_000), ..ListEnd::default() };
        assert_eq!(plain.pack(7, 900).len(), 5);
        assert_eq!(ListEnd { len: 10_000, ..plain }.pack(7, 900).len(), 4);
        let forked = ListEnd { before: Some((5, 880)), has_ranges: true, ..plain };
        let referenced = ListEnd { is_reference: true, end: 1 << 63, len: 0, run: 0, written: ALL_WRITTEN, ..plain };
        let edited = ListEnd { written: (3, 4), ..forked };
        let emptied = ListEnd { end: 0, len: 0, run: 0, written: ALL_WRITTEN, ..plain };
        for end in [ListEnd::default(), plain, forked, referenced, edited, emptied] {
            assert_eq!(ListEnd::unpack(&end.pack(7, 900), 7, 900), Some(end));
        }
        let bad: [&[u8]; 11] = [
            &[],
            &[1],
            &[1, 2],
            &[2, 1],
            &[2, 1, 1],
            &[2, 1, 2, 0],
            &[2, 1, 1, 3],
            &[2, 1, 1, 0, 0x7c, 1],
            &[2, 1, 1, 0, 0, 1],
            &[2, 1, 1, 0, 8, 1],
            &[2, 1, 1, 1, 4],
        ];
        assert!(bad.iter().all(|bytes| ListEnd::unpack(bytes, 7, 900).is_none()));
    }

    #[test]
    fn operations_end_the_run_of_positions_with_items() {
        let range = |first, end| DeletedRange { first, end, task: None };
        let floor = |ranges: &[DeletedRange], items: &[(u64, bool)]| {
            EndOps { ranges, reference: None, items: items.to_vec() }.floor(4, 10)
        };
        assert_eq!((floor(&[], &[]), floor(&[], &[(10, true), (11, true)])), (4, 4));
        assert_eq!((floor(&[], &[(2, false)]), floor(&[], &[(7, false)]), floor(&[], &[(9, false)])), (4, 8, 10));
        assert_eq!((floor(&[], &[(10, false)]), floor(&[range(10, 11)], &[])), (4, 4), "they delete nothing");
        assert_eq!((floor(&[], &[(12, false)]), floor(&[], &[(13, true), (10, true)])), (4, 13));
        assert_eq!((floor(&[range(0, 3)], &[]), floor(&[range(5, 7)], &[]), floor(&[range(5, 99)], &[])), (4, 7, 10));
        assert_eq!(floor(&[range(10, 12)], &[(5, true)]), 4, "it deletes nothing");
    }

    #[test]
    fn ranges_are_united() {
        let range = |first, end| DeletedRange { first, end, task: None };
        assert_eq!(union(&[range(5, 9), range(0, 2), range(1, 3), range(9, 9), range(8, 12)]), [(0, 3), (5, 12)]);
    }
}
