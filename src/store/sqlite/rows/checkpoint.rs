//! Rows of `checkpoint`: their columns, their check and the decoding of prepared tasks.
//!
//! *Absent:* the queries that select them, and the names, which are given.

use super::name::Kind;
use super::pack::{PackedKind, PackedTask, unpack_tasks};
use super::row_check;
use crate::limits::STEP_MAX;
use crate::store::record::{Source, TaskKind, TaskRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Row};
use std::sync::Arc;

/// Decodes the column of prepared tasks; `text` reads a name.
pub(crate) fn unpack_task_records(
    column: ValueRef<'_>,
    place: &dyn Fn() -> String,
    text: impl Fn(Kind, i64) -> Res<Arc<str>>,
) -> Res<Vec<TaskRecord>> {
    let wrong = || corrupt(place(), "its tasks do not match the format");
    let Some(bytes) = column.as_blob_or_null().map_err(|_| wrong())? else { return Ok(Vec::new()) };
    task_records(unpack_tasks(bytes).ok_or_else(wrong)?, text)
}

/// Returns the records of unpacked tasks; `text` reads a name.
pub(crate) fn task_records(tasks: Vec<PackedTask>, text: impl Fn(Kind, i64) -> Res<Arc<str>>) -> Res<Vec<TaskRecord>> {
    let record = |task: PackedTask| {
        let kind = match task.kind {
            PackedKind::Push(index) => TaskKind::Push { index },
            PackedKind::Pull(ids) => {
                let triggers = ids.into_iter().map(|id| text(Kind::Channel, id));
                TaskKind::Pull { triggers: triggers.collect::<Res<_>>()? }
            }
        };
        Ok(TaskRecord { id: task.id, name: text(Kind::Node, task.node)?, kind })
    };
    tasks.into_iter().map(record).collect()
}

/// Returns the source that a column holds.
pub(crate) fn source_of(column: i64) -> Option<Source> {
    [Source::Input, Source::Loop, Source::Update, Source::Fork].into_iter().find(|source| {
        crate::store::sqlite::rows::source::source_code(*source)
            == crate::store::sqlite::rows::source::of_source_column(column).0
    })
}

/// Returns the step that a column holds.
pub(crate) fn step_of(column: i64) -> Option<i64> {
    (column.unsigned_abs() <= STEP_MAX.unsigned_abs()).then_some(column)
}

/// The columns of `sql::record!`.
pub(crate) mod column {
    pub(crate) const NAMESPACE: usize = 1;
    pub(crate) const ID: usize = 2;
    pub(crate) const PARENT: usize = 3;
    pub(crate) const BRANCH: usize = 4;
    pub(crate) const ORDINAL: usize = 5;
    pub(crate) const STEP: usize = 6;
    pub(crate) const SOURCE: usize = 7;
    pub(crate) const CREATED_AT: usize = 8;
    pub(crate) const RUN: usize = 9;
    pub(crate) const METADATA: usize = 10;
    pub(crate) const PARENTS: usize = 11;
    pub(crate) const TASKS: usize = 12;
    pub(crate) const SUM: usize = 13;
    pub(crate) const THREAD: usize = 14;
    pub(crate) const PATH: usize = 15;
    pub(crate) const PARENT_ID: usize = 16;
    pub(crate) const PARENT_THREAD: usize = 17;
    pub(crate) const PARENT_PATH: usize = 18;
    /// The check, which covers the columns before it.
    pub(crate) const XXH3: usize = 19;
    pub(crate) const PARENT_ORDINAL: usize = 20;
    pub(crate) const PARENT_BRANCH: usize = 21;
}

/// Verifies a row of `sql::record!` and returns its `seq`.
pub(crate) fn verified(row: &Row<'_>) -> Res<i64> {
    let seq = row.get(0)?;
    row_check::verify("checkpoint", row, column::XXH3, &|| format!("checkpoint {seq}"))?;
    Ok(seq)
}

/// Reads a checkpoint by a query of `sql::record!`, verified.
pub(crate) fn checkpoint_row<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(i64, &Row<'_>) -> Res<T>,
) -> Res<Option<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(|row| read(verified(row)?, row)).transpose()
}
