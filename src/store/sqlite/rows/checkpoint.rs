//! Rows of `checkpoint`: their columns, their check and the decoding of prepared tasks.
//!
//! *Absent:* the queries that select them, and the names, which are given.

use super::name::Kind;
use super::pack::{PackedKind, PackedTask, unpack_tasks};
use super::source::{is_pruned_column, of_source_column, source_code};
use crate::limits::STEP_MAX;
use crate::store::record::{Source, TaskKind, TaskRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::tables::row_check::RowCheck;
use crate::store::sqlite::tables::{Bare, ColumnType, RowColumns, TableRow, checkpoint};
use rusqlite::types::Value;
use rusqlite::{Connection, Params, Row};
use std::sync::Arc;

/// Decodes the column of prepared tasks; `text` reads a name.
pub(crate) fn unpack_task_records(
    column: Option<&[u8]>,
    place: &dyn Fn() -> String,
    text: impl Fn(Kind, i64) -> Res<Arc<str>>,
) -> Res<Vec<TaskRecord>> {
    let wrong = || corrupt(place(), "its tasks do not match the format");
    let Some(bytes) = column else { return Ok(Vec::new()) };
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
    let (code, _) = of_source_column(column);
    [Source::Input, Source::Loop, Source::Update, Source::Fork].into_iter().find(|source| source_code(*source) == code)
}

/// Returns the step that a column holds.
pub(crate) fn step_of(column: i64) -> Option<i64> {
    (column.unsigned_abs() <= STEP_MAX.unsigned_abs()).then_some(column)
}

/// A checkpoint with its thread and path, and the place of its parent: a row of `sql::record!`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRow<'r> {
    pub(crate) row: checkpoint::Row<'r>,
    pub(crate) thread: &'r str,
    pub(crate) path: &'r str,
    pub(crate) parent_id: Option<[u8; 16]>,
    /// The thread and the path of a parent in another namespace.
    pub(crate) parent_thread: Option<&'r str>,
    pub(crate) parent_path: Option<&'r str>,
    pub(crate) parent_ordinal: Option<i64>,
    pub(crate) parent_branch: Option<i64>,
}

impl<'r> std::ops::Deref for RecordRow<'r> {
    type Target = checkpoint::Row<'r>;

    fn deref(&self) -> &Self::Target {
        &self.row
    }
}

impl<'r> RecordRow<'r> {
    /// The number of its columns.
    pub(crate) const COLUMNS: usize = checkpoint::TABLE.columns.len() + 7;

    /// Reads and verifies a row.
    pub(crate) fn verified(row: &'r Row<'_>) -> Res<Self> {
        Self::read(&mut RowColumns::new(&checkpoint::TABLE, row, 0))?.verify()
    }

    /// Reads and verifies the columns of a row.
    pub(crate) fn of(columns: &'r [Value]) -> Res<Self> {
        Self::read(&mut RowColumns::of(&checkpoint::TABLE, columns))?.verify()
    }

    /// Reads a row whose check is verified elsewhere.
    pub(crate) fn unverified(row: &'r Row<'_>) -> Res<Self> {
        Self::read(&mut RowColumns::new(&checkpoint::TABLE, row, 0))
    }

    fn read(columns: &mut RowColumns<'r, '_>) -> Res<Self> {
        Ok(Self {
            row: checkpoint::Row::read_columns(columns)?,
            thread: columns.next("thread")?,
            path: columns.next("path")?,
            parent_id: columns.next("parent")?,
            parent_thread: columns.next("parent")?,
            parent_path: columns.next("parent")?,
            parent_ordinal: columns.next("parent")?,
            parent_branch: columns.next("parent")?,
        })
    }

    fn verify(self) -> Res<Self> {
        match self.check() == self.row.xxh3 {
            true => Ok(self),
            false => Err(corrupt(self.place(), "the check of the row does not match")),
        }
    }

    /// Returns the check of the columns that come before it, of thread and path, and of the id and the place of the
    /// parent.
    pub(crate) fn check(&self) -> i64 {
        let (mut check, mut before) = (RowCheck::of("checkpoint"), checkpoint::TABLE.columns.len() - 1);
        self.row.each(false, |column| {
            if before > 0 {
                before -= 1;
                check.value(column);
            }
        });
        check.text(self.thread).text(self.path).value(self.parent_id.column());
        check.maybe_text(self.parent_thread).maybe_text(self.parent_path).finish()
    }

    /// Stores the checkpoint with its check.
    pub(crate) fn insert(mut self, conn: &Connection) -> Res<()> {
        self.row.xxh3 = self.check();
        self.row.insert(conn)
    }

    /// Names the row.
    pub(crate) fn place(&self) -> String {
        format!("checkpoint {}", self.row.seq)
    }

    /// Returns branch and ordinal.
    pub(crate) fn at(&self) -> (i64, i64) {
        (self.row.branch, self.row.ordinal)
    }

    /// Returns whether the checkpoint was pruned.
    pub(crate) fn is_pruned(&self) -> bool {
        is_pruned_column(self.row.source)
    }
}

/// Reads a checkpoint by a query of `sql::record!`, verified.
pub(crate) fn checkpoint_row<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&RecordRow<'_>) -> Res<T>,
) -> Res<Option<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(|row| read(&RecordRow::verified(row)?)).transpose()
}
