//! The rows of the newest change of a list, which a read of their positions must find.
//!
//! A row that damage moved away leaves no gap if its position has an older one. The version row of the change tells
//! which positions it wrote, as one range. *Absent:* changes before the newest one, which a read of the state after
//! them verifies.

use super::ListSpan;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::item::{item_place, range_position};
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;
use rusqlite::params;

/// The positions at the ends of a change of which no row was found yet.
pub(super) struct ExpectedRows {
    ordinal: i64,
    positions: [Option<i64>; 2],
}

impl ExpectedRows {
    /// Returns the rows of the newest change of a span that a read of positions from `first` to `last` must find.
    pub(super) fn of(span: ListSpan, first: i64, last: i64) -> Self {
        let (begin, end) = span.written;
        // A range that ends with the list may be that of a delete past its end.
        let positions = [(begin < end).then_some(begin), (end < span.end && begin + 1 < end).then(|| end - 1)];
        let is_read = |position: &i64| (first..=last).contains(position);
        let positions = positions.map(|at| at.and_then(|at| i64::try_from(at).ok()).filter(is_read));
        Self { ordinal: span.last, positions }
    }

    /// Notes a row that was found.
    pub(super) fn found(&mut self, position: i64, ordinal: i64) {
        if ordinal == self.ordinal {
            self.positions.iter_mut().for_each(|at| *at = at.filter(|at| *at != position));
        }
    }

    /// Verifies that all were found. A range delete has no rows at its positions, and a pruned checkpoint may have
    /// lost its deletes.
    pub(super) fn verify(&self, view: ReadView<'_>, span: ListSpan, channel: i64) -> Res<()> {
        let Some(position) = self.positions.iter().flatten().next() else { return Ok(()) };
        let range = params![span.branch, channel, range_position(span.last)];
        if view.conn.one(sql::HAS_RANGE_ROW, range)? || view.is_pruned_at(span.branch, span.last)? {
            return Ok(());
        }
        Err(corrupt(item_place(span.branch, channel, *position, span.last), "the row is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(end: u64, written: (u64, u64), (first, last): (i64, i64)) -> [Option<i64>; 2] {
        ExpectedRows::of(ListSpan { branch: 1, last: 3, end, written }, first, last).positions
    }

    #[test]
    fn rows_at_the_ends_of_a_change_are_expected_within_what_is_read() {
        let all = (0, i64::MAX);
        assert_eq!(positions(10, (4, 8), all), [Some(4), Some(7)]);
        assert_eq!(positions(10, (4, 6), all), [Some(4), Some(5)]);
        assert_eq!(positions(10, (4, 5), all), [Some(4), None], "it is one row");
        assert_eq!(positions(10, (4, 4), all), [None, None], "nothing was written");
        assert_eq!(positions(10, (4, 10), all), [Some(4), None], "a delete may have gone past the end");
        assert_eq!(positions(10, (0, u64::MAX), all), [Some(0), None]);
        assert_eq!(positions(10, (4, 8), (4, 7)), [Some(4), Some(7)]);
        assert_eq!(positions(10, (4, 8), (5, 6)), [None, None]);
        assert_eq!(positions(u64::MAX, (u64::MAX - 2, u64::MAX - 1), all), [None, None]);
    }

    #[test]
    fn a_row_is_found_by_its_position_and_the_ordinal_of_the_change() {
        let mut expected = ExpectedRows::of(ListSpan { branch: 1, last: 3, end: 10, written: (4, 8) }, 0, 9);
        for (position, ordinal) in [(4, 2), (5, 3), (7, 4)] {
            expected.found(position, ordinal);
        }
        assert_eq!(expected.positions, [Some(4), Some(7)]);
        expected.found(4, 3);
        assert_eq!(expected.positions, [None, Some(7)]);
        expected.found(7, 3);
        assert_eq!(expected.positions, [None, None]);
    }
}
