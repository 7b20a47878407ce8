//! Erasing: threads with everything in them, and values of special writes that were replaced.
//!
//! While the table `erasure` holds a row, the triggers let rows of the log go. It is filled and emptied in one
//! transaction, so no other connection sees it filled. *Absent:* names, which threads share, and the tables beside the log.

use super::fault::{Fault, Res};
use super::sql;
use super::write::Caches;
use crate::base::ThreadId;
use crate::store::error::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

/// Erases threads in the transaction that is open, unless one that stays was forked off one of them.
pub(super) fn threads(conn: &Connection, caches: &mut Caches, threads: &[ThreadId]) -> Res<()> {
    let mut erase = conn.prepare_cached(sql::ERASE)?;
    for thread in threads {
        erase.execute([thread.as_str()])?;
    }
    refuse_forked(conn)?;
    let mut statement = conn.prepare(sql::ERASE_PAYLOADS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        payload(conn, row.get(0)?)?;
    }
    for rows in sql::ERASE_ROWS {
        conn.execute(rows, [])?;
    }
    conn.execute(sql::ERASED, [])?;
    caches.erased();
    Ok(())
}

/// Names the first thread that others were forked off which stay.
fn refuse_forked(conn: &Connection) -> Res<()> {
    let mut statement = conn.prepare(sql::ERASE_FORKS)?;
    let mut rows = statement.query([])?;
    let mut found: Option<(ThreadId, Vec<ThreadId>)> = None;
    while let Some(row) = rows.next()? {
        let id = |column: usize| -> Res<ThreadId> {
            ThreadId::new(row.get::<_, String>(column)?).map_err(|error| Fault::Store(error.into()))
        };
        let (thread, fork) = (id(0)?, id(1)?);
        let (first, forks) = found.get_or_insert_with(|| (thread.clone(), Vec::new()));
        if *first == thread {
            forks.push(fork);
        }
    }
    match found {
        Some((thread, forks)) => Err(StoreError::ForkedOff { thread, forks }.into()),
        None => Ok(()),
    }
}

/// Erases the value of a special write that is about to be replaced: nothing else refers to it.
pub(super) fn replaced(conn: &Connection, checkpoint: i64, task: i64, index: i32) -> Res<()> {
    let mut statement = conn.prepare_cached(sql::WRITE_REPLACED)?;
    let values = statement.query_map(params![checkpoint, task, index], |row| row.get(0))?;
    let values: Vec<i64> = values.collect::<Result<_, _>>()?;
    if values.is_empty() {
        return Ok(());
    }
    conn.prepare_cached(sql::ERASE_VALUE)?.execute([])?;
    values.into_iter().try_for_each(|id| payload(conn, id))?;
    conn.prepare_cached(sql::ERASED)?.execute([])?;
    Ok(())
}

/// Erases a payload, and its blobs if no other one has them. A missing payload does not stop the erasure.
fn payload(conn: &Connection, id: i64) -> Res<()> {
    let mut blobs = conn.prepare_cached(sql::PAYLOAD_BLOBS)?;
    let blobs: Option<[Option<i64>; 2]> = blobs.query_row([id], |row| Ok([row.get(0)?, row.get(1)?])).optional()?;
    conn.prepare_cached(sql::PAYLOAD_DELETE)?.execute([id])?;
    for blob in blobs.into_iter().flatten().flatten() {
        conn.prepare_cached(sql::BLOB_DELETE)?.execute([blob])?;
    }
    Ok(())
}
