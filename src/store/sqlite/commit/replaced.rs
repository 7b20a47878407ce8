//! Erases the value of a special write that is replaced: the one row that a commit takes away.
//!
//! *Absent:* deleted threads and pruned checkpoints.

use crate::store::sqlite::fault::Res;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{TableRow, payload};
use rusqlite::{Connection, OptionalExtension, params};

/// Erases the value of a special write that is about to be replaced: nothing else refers to it.
pub(crate) fn replaced(conn: &Connection, checkpoint: i64, task: i64, index: i32) -> Res<()> {
    let mut statement = conn.prepare_cached(sql::WRITE_REPLACED)?;
    let values = statement.query_map(params![checkpoint, task, index], |row| row.get(0))?;
    let values: Vec<i64> = values.collect::<Result<_, _>>()?;
    if values.is_empty() {
        return Ok(());
    }
    conn.prepare_cached(sql::ERASE_BEGIN)?.execute([])?;
    values.into_iter().try_for_each(|id| payload(conn, id).map(|_| ()))?;
    conn.prepare_cached(sql::ERASE_END)?.execute([])?;
    Ok(())
}

/// Erases a payload, and its blobs if no other one has them. A missing payload does not stop the erasure. Returns the
/// bytes of the erased rows.
pub(crate) fn payload(conn: &Connection, id: i64) -> Res<usize> {
    type Found = (Option<i64>, Option<i64>, i64);
    let mut blobs = conn.prepare_cached(sql::PAYLOAD_BLOBS)?;
    let found: Option<Found> = blobs.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((data, text, mut bytes)) = found else { return Ok(0) };
    conn.prepare_cached(payload::Row::DELETE)?.execute([id])?;
    for blob in [data, text].into_iter().flatten() {
        let held: Option<i64> = conn.prepare_cached(sql::BLOB_BYTES)?.query_row([blob], |row| row.get(0)).optional()?;
        if conn.prepare_cached(sql::BLOB_DELETE)?.execute([blob])? > 0 {
            bytes += held.unwrap_or(0);
        }
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}
