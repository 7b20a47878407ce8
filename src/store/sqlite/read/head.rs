//! The head of a namespace: its newest checkpoint, unless an operation moved the head after that was stored.
//!
//! This is the one place that decides it; writes, reads, listings and timers ask here. *Absent:* how an operation is
//! stored.
//!
//! Invariant: the next checkpoint of a namespace ends a move, because it is newer than the one that the move names as
//! the newest.

use crate::base::CheckpointId;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{KeyChecked, TableRow, operation_change};
use rusqlite::{Connection, Row, params};

/// The kind of the change of a head.
pub(crate) const HEAD_KIND: i64 = 0;

/// Returns the place to which the head of a namespace was moved after `newest` was stored: a checkpoint or the empty
/// state. `None` if it was not moved.
pub(crate) fn moved(conn: &Connection, keys: &Keys, namespace: i64, newest: i64) -> Res<Option<Option<i64>>> {
    let read = |row: &Row<'_>| {
        let row = operation_change::Row::verified(keys, row)?;
        let wrong = |_| corrupt(row.place(), "after does not match the format");
        if row.newest == newest { row.after.as_i64_or_null().map(Some).map_err(wrong) } else { Ok(None) }
    };
    Ok(conn.read_first(sql::FIELD_CHANGE, params![namespace, HEAD_KIND, ""], read)?.flatten())
}

/// Returns the head of a namespace whose newest checkpoint is known.
pub(crate) fn head_id(
    conn: &Connection,
    keys: &Keys,
    namespace: i64,
    (newest, id): (i64, CheckpointId),
) -> Res<Option<CheckpointId>> {
    match moved(conn, keys, namespace, newest)? {
        None => Ok(Some(id)),
        Some(to) => to.map(|seq| id_of(conn, namespace, seq)).transpose(),
    }
}

/// Returns the head of a namespace.
pub(crate) fn head(conn: &Connection, keys: &Keys, namespace: i64) -> Res<Option<CheckpointId>> {
    match newest(conn, namespace)? {
        Some(newest) => head_id(conn, keys, namespace, newest),
        None => Ok(None),
    }
}

/// Returns the id of a checkpoint of a namespace to which an operation refers.
pub(crate) fn id_of(conn: &Connection, namespace: i64, seq: i64) -> Res<CheckpointId> {
    let id = conn.first(sql::CHECKPOINT_ID, [seq, namespace])?;
    let missing =
        || corrupt(format!("checkpoint {seq}"), "an operation refers to it, but its namespace does not have it");
    Ok(CheckpointId::from_bytes(id.ok_or_else(missing)?))
}

/// Returns the newest checkpoint of a namespace, which is its head unless that was moved.
pub(crate) fn newest(conn: &Connection, namespace: i64) -> Res<Option<(i64, CheckpointId)>> {
    let newest: Option<(i64, [u8; 16])> = conn.first(sql::NEWEST, [namespace])?;
    Ok(newest.map(|(seq, id)| (seq, CheckpointId::from_bytes(id))))
}
