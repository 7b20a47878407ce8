//! The end of a list after a change, and the ends that the writer retains.
//!
//! A change computes the new end from the one before; rows of items are read only for positions below the end.
//! *Absent:* the encoding of an end (`rows::list_end`), and the items ([`items`](super::items)).
//!
//! Invariant: an end follows from the rows alone, and a check computes it anew.

use super::items::ChannelRows;
use super::lineage;
use crate::limits::LIST_RUN_MAX;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::rows::list_end::{ALL_WRITTEN, ListEnd};
use crate::store::sqlite::rows::pack::DeletedRange;
use crate::store::sqlite::rows::version::LIST;
use crate::store::sqlite::view::ReadView;

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
pub(crate) struct ListEnds(NumberMap<(i64, i64), NewestRow>);

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

/// Returns the range of the positions that a change of a list wrote, as far as it can have put items there.
pub(crate) fn positions(end: &ListEnd) -> (u64, u64) {
    (end.written.0, end.written.1.min(end.end))
}

#[cfg(test)]
mod tests {
    use super::*;

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
