//! The head of a namespace: its newest checkpoint, unless an operation moved the head after that was stored.
//!
//! This is the one place that decides it; writes, reads, listings and timers ask here. *Absent:* how an operation is
//! stored.
//!
//! Invariant: the next checkpoint of a namespace ends a move, because it is newer than the one that the move names as
//! the newest.

use crate::base::CheckpointId;
use crate::base::limits::WRITER_CACHE_MAX;
use crate::store::sqlite::commit::batch;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::row_check::RowCheck;
use crate::store::sqlite::sql;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashMap;

/// The kind of the change of a head.
pub(crate) const HEAD_KIND: i64 = 0;

/// Columns of `operation_change` before its check.
const COLUMNS: usize = 7;

/// The newest checkpoints of namespaces that the writer retains, where they are the heads.
#[derive(Debug, Default)]
pub(crate) struct RetainedHeads(HashMap<i64, RetainedHead>);

/// A head that the writer has stored.
#[derive(Debug)]
struct RetainedHead {
    seq: i64,
    id: CheckpointId,
    /// True if no task has stored writes at it.
    is_bare: bool,
}

impl RetainedHeads {
    /// Returns the newest checkpoint of a namespace, and its head.
    pub(crate) fn newest_and_head(
        &self,
        conn: &Connection,
        keys: &Keys,
        namespace: i64,
    ) -> Res<(Option<(i64, CheckpointId)>, Option<CheckpointId>)> {
        if let Some(&RetainedHead { seq: newest, id, .. }) = self.0.get(&namespace) {
            debug_assert_eq!(head(conn, keys, namespace).ok(), Some(Some(id)), "checkpoint {newest} is the head");
            return Ok((Some((newest, id)), Some(id)));
        }
        let newest = batch::newest(conn, namespace)?;
        let head = newest.map(|newest| head_id(conn, keys, namespace, newest)).transpose()?.flatten();
        Ok((newest, head))
    }

    /// Retains the checkpoint that a batch has written last in a namespace: it ends a move of the head.
    pub(crate) fn retain(&mut self, namespace: i64, (seq, id): (i64, CheckpointId)) {
        self.0.insert(namespace, RetainedHead { seq, id, is_bare: true });
    }

    /// Notes that a batch stores writes of tasks in a namespace.
    pub(crate) fn note_writes(&mut self, namespace: i64) {
        if let Some(head) = self.0.get_mut(&namespace) {
            head.is_bare = false;
        }
    }

    /// Returns the head of a namespace if it is known that no task has stored writes at it.
    pub(crate) fn bare(&self, namespace: i64) -> Option<CheckpointId> {
        self.0.get(&namespace).filter(|head| head.is_bare).map(|head| head.id)
    }

    /// Forgets all heads if there are too many.
    pub(crate) fn bound(&mut self) {
        if self.0.len() > WRITER_CACHE_MAX {
            self.clear();
        }
    }

    /// Forgets all heads: an operation moves some.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the place to which the head of a namespace was moved after `newest` was stored: a checkpoint or the empty
/// state. `None` if it was not moved.
pub(crate) fn moved(conn: &Connection, keys: &Keys, namespace: i64, newest: i64) -> Res<Option<Option<i64>>> {
    let mut statement = conn.prepare_cached(sql::FIELD_CHANGE)?;
    let mut rows = statement.query(params![namespace, HEAD_KIND, ""])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    verify_change(keys, row)?;
    if row.get::<_, i64>(4)? == newest { Ok(Some(row.get(6)?)) } else { Ok(None) }
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
    match batch::newest(conn, namespace)? {
        Some(newest) => head_id(conn, keys, namespace, newest),
        None => Ok(None),
    }
}

/// Returns the id of a checkpoint of a namespace to which an operation refers.
pub(crate) fn id_of(conn: &Connection, namespace: i64, seq: i64) -> Res<CheckpointId> {
    let id = conn.prepare_cached(sql::CHECKPOINT_ID)?.query_row([seq, namespace], |row| row.get(0)).optional()?;
    let missing =
        || corrupt(format!("checkpoint {seq}"), "an operation refers to it, but its namespace does not have it");
    Ok(CheckpointId::from_bytes(id.ok_or_else(missing)?))
}

/// Verifies a row of `operation_change`.
pub(crate) fn verify_change(keys: &Keys, row: &Row<'_>) -> Res<()> {
    verify(keys, "operation_change", COLUMNS, row)
}

/// Verifies a row whose check follows its `columns` first columns, and has the key of the checksums if the file has
/// one.
pub(crate) fn verify(keys: &Keys, table: &str, columns: usize, row: &Row<'_>) -> Res<()> {
    let mut check = RowCheck::of(table);
    for column in 0..columns {
        check.value(row.get_ref(column)?);
    }
    if row.get_ref(columns)? == ValueRef::Integer(check.finish_keyed(keys)) {
        return Ok(());
    }
    Err(corrupt(table, "the check of a row does not match"))
}
