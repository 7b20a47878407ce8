//! The rows of the newest change of a list, which a read of their positions must find.
//!
//! A row that damage moved away leaves no gap if its position has an older one. The version row of the change tells
//! which positions it wrote, as one range. *Absent:* changes before the newest one, which a read of the state after
//! them verifies.

use super::super::changes::range_position;
use super::super::fault::{Res, corrupt};
use super::super::read::ReadView;
use super::super::sql;
use super::{ListSpan, item_place};
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
        if view.conn.prepare_cached(sql::HAS_RANGE_ROW)?.query_row(range, |row| row.get(0))?
            || view.is_pruned_at(span.branch, span.last)?
        {
            return Ok(());
        }
        Err(corrupt(item_place(span.branch, channel, *position, span.last), "the row is missing"))
    }
}
