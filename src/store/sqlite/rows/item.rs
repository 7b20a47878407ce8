//! Rows of `item`: their operations, positions and checks. *Absent:* which of them are live.

use super::pack::DeletedRange;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::{StoredColumn, TableRow, item};
use rusqlite::types::ValueRef;

pub(crate) const DELETE: i64 = 0;
pub(crate) const PUT: i64 = 1;
pub(crate) const DELETE_RANGE: i64 = 2;
pub(crate) const REFERENCE: i64 = 3;

/// Returns the negative position under which the range deletes of an ordinal, or its reference, are stored.
pub(crate) fn range_position(ordinal: i64) -> i64 {
    -1 - ordinal
}

/// The range delete of a list whose channel becomes another value.
pub(crate) const DELETE_ALL: DeletedRange = DeletedRange { first: 0, end: u64::MAX, task: None };

/// Returns the check of a row of `item`.
pub(crate) fn item_check(
    keys: &Keys,
    branch: i64,
    list: i64,
    position: i64,
    ordinal: i64,
    op: i64,
    task: Option<u32>,
    value: ValueRef<'_>,
) -> i64 {
    let row = item::Row { branch, channel: list, slot: position, ordinal, op, task, value: StoredColumn(value) };
    row.row_check().finish_keyed(keys)
}

/// Names a row of `item`.
pub(crate) fn item_place(branch: i64, channel: i64, position: i64, ordinal: i64) -> String {
    let kind = if position < 0 { "range delete or reference" } else { "position" };
    format!("item (branch {branch}, channel {channel}, {kind} {position}, ordinal {ordinal})")
}
