//! Erases the value of a special write that is replaced: the one row that a commit takes away.
//!
//! *Absent:* deleted threads and pruned checkpoints.

use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{TableRow, TaskColumn, payload};
use rusqlite::{Connection, params};

/// Erases the value of a special write that is about to be replaced: nothing else refers to it.
pub(crate) fn replaced(conn: &Connection, checkpoint: i64, task: TaskColumn, index: i32) -> Res<()> {
    let values: Vec<i64> = conn.all(sql::WRITE_REPLACED, params![checkpoint, task, index])?;
    if values.is_empty() {
        return Ok(());
    }
    conn.run(sql::ERASE_BEGIN, [])?;
    values.into_iter().try_for_each(|id| payload(conn, id).map(|_| ()))?;
    conn.run(sql::ERASE_END, [])?;
    Ok(())
}

/// Erases a payload, and its blobs if no other one has them. A missing payload does not stop the erasure. Returns the
/// bytes of the erased rows.
pub(crate) fn payload(conn: &Connection, id: i64) -> Res<usize> {
    type Found = (Option<i64>, Option<i64>, i64);
    let found: Option<Found> = conn.first(sql::PAYLOAD_BLOBS, [id])?;
    let Some((data, text, mut bytes)) = found else { return Ok(0) };
    conn.run(payload::Row::DELETE, [id])?;
    for blob in [data, text].into_iter().flatten() {
        let held: Option<i64> = conn.first(sql::BLOB_BYTES, [blob])?;
        if conn.run(sql::BLOB_DELETE, [blob])? > 0 {
            bytes += held.unwrap_or(0);
        }
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}
