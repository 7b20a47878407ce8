//! The ends of lists: the content of the version row of a list.
//!
//! The row holds the end of the list, its length, and the place of the list's version row on the branch before that has
//! rows of it. So a tail begins at the end and goes from branch to branch only where there are rows, and the length is
//! read and not counted. *Absent:* the computation of an end after a change.

use super::pack::{Unpack, put_uint};
use super::version::{KeyContent, VersionRow, version_place};
use crate::limits::LIST_RUN_MAX;
use crate::store::sqlite::fault::{Res, corrupt};

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
pub(crate) const ALL_WRITTEN: (u64, u64) = (0, u64::MAX);

pub(crate) const REFERENCE_BIT: u64 = 1;
pub(crate) const RANGES_BIT: u64 = 2;
pub(crate) const ALL_WRITTEN_BIT: u64 = 4;
pub(crate) const INSIDE_BIT: u64 = 8;
pub(crate) const FLAG_BITS: u32 = 4;

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
}
