//! Verifies that an index has no entry for a key: the entries beside the place of the key are those of their rows.
//!
//! A search that a damaged entry leads to a wrong place ends beside that entry, so a row that a search misses does not
//! count as absent until its neighbors are verified. The rows of writes have no index; the keys beside those of a
//! checkpoint must go up. *Absent:* rows that a search found, which have checks of their own.

pub(crate) mod sql;

use crate::base::{CheckpointId, Namespace, RunId, ThreadId};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{Checked, KeyChecked, TaskColumn, item, thread};

use crate::store::sqlite::query::Statements;
use rusqlite::{Connection, Params, Row, params};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows up to which a table is counted, in about a millisecond.
const COUNTED_ROWS: i64 = 10_000;

/// Verifies the neighbors of a place in an index.
fn verify(conn: &Connection, index: &str, sql: &str, place: impl Params) -> Res<()> {
    if conn.one(sql, place)? {
        return Err(corrupt(format!("index {index}"), "an entry is not that of its row"));
    }
    Ok(())
}

/// Verifies the entries of threads beside an id.
pub(crate) fn of_thread(conn: &Connection, thread: &str) -> Res<()> {
    verify(conn, "sqlite_autoindex_thread_1", sql::THREAD, [thread])
}

/// Verifies that a thread, or one of its namespaces, does not exist.
pub(crate) fn no_namespace(conn: &Connection, thread: &ThreadId, namespace: &Namespace) -> Res<()> {
    of_thread(conn, thread.as_str())?;
    let found: Option<i64> = conn.first(engine_sql::THREAD_BY_ID, [thread.as_str()])?;
    found.map_or(Ok(()), |thread| no_path(conn, thread, namespace.as_str()))
}

/// Returns the number of a thread, whose row is verified. That it does not exist is verified as well: a writer that
/// misses it would insert it again.
pub(crate) fn thread_number(conn: &Connection, thread: &ThreadId) -> Res<Option<i64>> {
    let read = |row: &Row<'_>| Ok(thread::Row::verified(row)?.id);
    let found = conn.read_first(engine_sql::THREAD_BY_ID, [thread.as_str()], read)?;
    if found.is_none() {
        of_thread(conn, thread.as_str())?;
    }
    Ok(found)
}

/// Verifies that a thread does not have a namespace.
pub(crate) fn no_path(conn: &Connection, thread: i64, path: &str) -> Res<()> {
    verify(conn, "sqlite_autoindex_namespace_1", sql::NAMESPACE, params![thread, path])
}

/// Verifies that a thread has no namespaces beside those that were listed, of which `last` is the last one.
pub(crate) fn no_more_namespaces(conn: &Connection, thread: &ThreadId, last: Option<i64>) -> Res<()> {
    of_thread(conn, thread.as_str())?;
    let found: Option<(i64, Option<i64>)> = conn.first(sql::NAMESPACE_LAST, [thread.as_str()])?;
    let Some((id, greatest)) = found else { return Ok(()) };
    if greatest != last {
        return Err(corrupt(format!("thread {thread:?}"), "a namespace is missing in the listing"));
    }
    verify(conn, "sqlite_autoindex_namespace_1", sql::NAMESPACES, [id])
}

/// Verifies, once for each handle, that an index has an entry for each row of its table. The last entry of a page has
/// no neighbor on it, and is hidden by a number of entries that is too small. In a table with more rows than are
/// counted only a check finds it.
fn whole(conn: &Connection, counted: &AtomicBool, index: &str, sql: &str) -> Res<()> {
    if counted.load(Ordering::Relaxed) {
        return Ok(());
    }
    if !conn.one::<bool>(sql, [COUNTED_ROWS])? {
        return Err(corrupt(format!("index {index}"), "it has not as many entries as its table has rows"));
    }
    counted.store(true, Ordering::Relaxed);
    Ok(())
}

/// Verifies that no namespace is hidden.
pub(crate) fn no_hidden_namespace(conn: &Connection, counted: &CountedIndexes) -> Res<()> {
    whole(conn, &counted.namespaces, "sqlite_autoindex_namespace_1", sql::NAMESPACES_COUNTED)
}

/// Verifies that no namespace of the key-value memory is hidden.
pub(crate) fn no_hidden_kv_namespace(conn: &Connection, counted: &CountedIndexes) -> Res<()> {
    whole(conn, &counted.kv_namespaces, "sqlite_autoindex_kv_namespace_1", sql::KV_NAMESPACES_COUNTED)
}

/// Verifies that a namespace does not have a checkpoint.
pub(crate) fn no_checkpoint(conn: &Connection, namespace: i64, id: &[u8]) -> Res<()> {
    verify(conn, "checkpoint_id", sql::CHECKPOINT, params![namespace, id])
}

/// Returns the `seq` of a checkpoint that must exist. One that a damaged index hides is not told from a missing one, so
/// that is verified first.
pub(crate) fn must_find(
    conn: &Connection,
    namespace: i64,
    id: &CheckpointId,
    not_found: impl FnOnce() -> Fault,
) -> Res<i64> {
    if let Some(seq) = find(conn, namespace, id)? {
        return Ok(seq);
    }
    no_checkpoint(conn, namespace, id.as_bytes())?;
    Err(not_found())
}

/// Verifies that a namespace does not have a checkpoint of a run.
pub(crate) fn no_run(conn: &Connection, run: &RunId, namespace: i64) -> Res<()> {
    verify(conn, "checkpoint_run", sql::RUN, params![run.as_bytes(), namespace])
}

/// Verifies that a name is not interned.
pub(crate) fn no_name(conn: &Connection, kind: i64, text: &str) -> Res<()> {
    verify(conn, "sqlite_autoindex_name_1", sql::NAME, params![kind, text])
}

/// Verifies that a namespace of the key-value memory does not exist.
pub(crate) fn no_kv_namespace(conn: &Connection, path: &str) -> Res<()> {
    verify(conn, "sqlite_autoindex_kv_namespace_1", sql::KV_NAMESPACE, [path])
}

/// Verifies that a namespace of the key-value memory does not have a key.
pub(crate) fn no_kv(conn: &Connection, namespace: i64, key: &str) -> Res<()> {
    verify(conn, "kv_key", sql::KV, params![namespace, key])
}

/// Verifies that no timer is hidden as the last entry of the index of their timestamps.
pub(crate) fn no_hidden_timer(conn: &Connection, counted: &CountedIndexes) -> Res<()> {
    whole(conn, &counted.timers, "timer_wake", sql::TIMERS_COUNTED)
}

/// Verifies the items directly before the first and after the last position that was read, as far as they are given,
/// of a list on a branch.
pub(crate) fn of_items(
    conn: &Connection,
    keys: &Keys,
    list: (i64, i64),
    first: Option<i64>,
    last: Option<i64>,
) -> Res<()> {
    first.map_or(Ok(()), |first| item(conn, keys, sql::ITEM_BELOW, (list, first)))?;
    last.map_or(Ok(()), |last| item(conn, keys, sql::ITEM_ABOVE, (list, last)))
}

/// Verifies the item beside a position of a list.
fn item(conn: &Connection, keys: &Keys, sql: &str, ((branch, list), position): ((i64, i64), i64)) -> Res<()> {
    let verify = |row: &Row<'_>| item::Row::verified(keys, row).map(|_| ());
    conn.read_first(sql, params![branch, list, position], verify).map(|_| ())
}

/// The place of a row of `write`: checkpoint, task, idx and part.
type WriteKey = (i64, TaskColumn, i64, i64);

/// Reads places of rows of `write`, all of checkpoints that exist.
fn write_keys(conn: &Connection, sql: &str, checkpoint: i64) -> Res<Vec<WriteKey>> {
    let keys: Vec<(WriteKey, bool)> = conn.all(sql, [checkpoint])?;
    if let Some((key, _)) = keys.iter().find(|(_, exists)| !exists) {
        return Err(corrupt("write", format!("one is of checkpoint {}, which does not exist", key.0)));
    }
    Ok(keys.into_iter().map(|(key, _)| key).collect())
}

/// Returns whether a checkpoint has rows of writes. The keys beside them must go up; the ones below are read if that
/// `verifies_absence`.
pub(crate) fn has_writes(conn: &Connection, checkpoint: i64, verifies_absence: bool) -> Res<bool> {
    let mut keys = if verifies_absence { write_keys(conn, sql::WRITES_BELOW, checkpoint)? } else { Vec::new() };
    keys.reverse();
    keys.extend(write_keys(conn, sql::WRITES_FROM, checkpoint)?);
    must_go_up(checkpoint, &keys)?;
    Ok(keys.iter().any(|key| key.0 == checkpoint))
}

/// Verifies that the row of a task, idx and part is the last row of writes of a checkpoint.
pub(crate) fn no_more_writes(conn: &Connection, checkpoint: i64, last: Option<(TaskColumn, i64, i64)>) -> Res<()> {
    let mut keys = write_keys(conn, sql::WRITES_TO, checkpoint)?;
    if keys.last().map(|key| (key.1, key.2, key.3)) != last {
        return Err(corrupt(format!("checkpoint {checkpoint}"), "rows of its writes are missing"));
    }
    keys.extend(write_keys(conn, sql::WRITES_ABOVE, checkpoint)?);
    must_go_up(checkpoint, &keys)
}

fn must_go_up(checkpoint: i64, keys: &[WriteKey]) -> Res<()> {
    if keys.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    Err(corrupt(format!("checkpoint {checkpoint}"), "the rows of writes beside its own are out of order"))
}

pub(crate) fn find(conn: &Connection, namespace: i64, id: &CheckpointId) -> Res<Option<i64>> {
    conn.first(engine_sql::CHECKPOINT_SEQ, params![namespace, id.as_bytes()])
}

/// The indexes that are known to have an entry for each row, of which a reader asks once.
#[derive(Debug, Default)]
pub(crate) struct CountedIndexes {
    pub(crate) namespaces: AtomicBool,
    pub(crate) kv_namespaces: AtomicBool,
    pub(crate) timers: AtomicBool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::file::schema::statements;
    use rusqlite::params_from_iter;

    #[test]
    fn neighbors_are_read_from_the_index() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&statements(engine_sql::SCHEMA)).unwrap();
        let tables = [sql::THREAD, sql::NAMESPACE, sql::NAMESPACES, sql::CHECKPOINT, sql::RUN, sql::NAME];
        for entries in tables.into_iter().chain([sql::KV_NAMESPACE, sql::KV]) {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {entries}")).unwrap();
            let none = params_from_iter(vec![None::<i64>; plan.parameter_count()]);
            let lines = plan.query_map(none, |row| row.get::<_, String>(3)).unwrap();
            let lines: Vec<String> = lines.map(Result::unwrap).filter(|line| line.contains("INDEX")).collect();
            // The first entry, the last one below, those behind it and the first one above.
            assert!(lines.len() >= 4, "{lines:?}");
            // The column `prefix` is computed, and SQLite defers the seek for a row of which it needs no other column.
            let reads = if entries == sql::CHECKPOINT { "USING INDEX checkpoint_id" } else { "COVERING INDEX" };
            assert!(lines.iter().all(|line| line.contains(reads)), "{lines:?}");
        }
    }
    #[test]
    fn rows_of_writes_that_do_not_go_up_are_damage() {
        let task = TaskColumn::Number;
        let keys = [(1, task(2), 3, 0), (1, task(2), 3, 1), (1, task(2), 4, 0), (1, task(3), 0, 0)];
        let keys = [&keys[..], &[(1, TaskColumn::Id([0; 16]), 0, 0), (2, task(0), 0, 0)]].concat();
        assert!(must_go_up(1, &keys).is_ok() && must_go_up(1, &[]).is_ok());
        for n in 1..keys.len() {
            let mut swapped = keys.clone();
            swapped.swap(n - 1, n);
            assert!(must_go_up(1, &swapped).is_err(), "{n}");
            let mut twice = keys.clone();
            twice[n] = twice[n - 1];
            assert!(must_go_up(1, &twice).is_err(), "{n} twice");
        }
    }
}
