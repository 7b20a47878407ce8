//! Rows of `checkpoint`: their columns, their check and the decoding of prepared tasks.
//!
//! *Absent:* the queries that select them, and the names, which are given.

use super::name::Kind;
use super::pack::{PackedKind, PackedTask, unpack_parents, unpack_tasks};
use super::sealed::MetadataColumn;
use super::source::{is_pruned_column, of_source_column, source_code};
use crate::base::internal::hash::Checksum;
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::limits::STEP_MAX;
use crate::store::batch::NewCheckpoint;
use crate::store::record::{CheckpointRecord, CheckpointRef, Source, TaskKind, TaskRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::tables::row_check::RowCheck;
use crate::store::sqlite::tables::{Bare, ColumnType, RowColumns, RunColumn, TableRow, checkpoint};
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

/// Returns the checkpoint that columns name.
pub(crate) fn point_of(thread: &str, path: &str, id: [u8; 16]) -> Option<CheckpointRef> {
    let (thread, namespace) = (ThreadId::new(thread).ok()?, Namespace::new(path).ok()?);
    Some(CheckpointRef::new(thread, namespace, CheckpointId::from_bytes(id)))
}

/// Returns the step that a column holds.
pub(crate) fn step_of(column: i64) -> Option<i64> {
    (column.unsigned_abs() <= STEP_MAX.unsigned_abs()).then_some(column)
}

/// The columns of a new checkpoint that it states itself.
pub(crate) struct StatedColumns<'r> {
    new: &'r NewCheckpoint,
    metadata: MetadataColumn<'r>,
    app_version: Option<&'r str>,
}

impl<'r> StatedColumns<'r> {
    /// Encodes the columns.
    pub(crate) fn of(keys: &'r Keys, new: &'r NewCheckpoint) -> Res<Self> {
        let metadata = MetadataColumn::new(keys, new.id.as_bytes(), new.metadata.as_deref())?;
        let app_version = new.app_version.as_deref().or(keys.options.app_version.as_deref());
        Ok(Self { new, metadata, app_version })
    }

    /// Returns the row with these columns alone.
    pub(crate) fn row(&self) -> checkpoint::Row<'_> {
        checkpoint::Row {
            seq: 0,
            namespace: 0,
            id: *self.new.id.as_bytes(),
            parent: None,
            branch: 0,
            ordinal: 0,
            step: self.new.step,
            source: source_code(self.new.source),
            created_at: self.new.created_at.as_micros(),
            run: RunColumn::of_id(self.new.run.as_ref().map(|run| *run.as_bytes())),
            metadata: self.metadata.column(),
            parents: None,
            tasks: None,
            app_version: self.app_version,
            sum: Checksum::default(),
            xxh3: 0,
        }
    }
}

/// The checkpoint that holds the id of a run, which later ones of its namespace refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunHolder {
    namespace: i64,
    seq: i64,
    run: [u8; 16],
    created_at: i64,
}

impl RunHolder {
    /// Returns the columns `run` and `created_at` of a later checkpoint; `None` if it has to hold them itself, because
    /// it is in another namespace, or of another run, or the index of runs has an entry for each of its checkpoints.
    pub(crate) fn columns(&self, row: &RecordRow<'_>) -> Option<(RunColumn, i64)> {
        let refers = row.namespace == self.namespace && row.run == Some(self.run) && self.run[6] >> 4 != 8;
        let since = row.created_at.checked_sub(self.created_at)?;
        refers.then_some((RunColumn::Of(row.seq.wrapping_sub(self.seq)), since))
    }
}

/// Returns the run and the timestamp of a checkpoint, given the columns of the one that it refers to. If that does not
/// hold an id, the check of the row does not match what is returned.
pub(crate) fn run_and_time(
    row: &checkpoint::Row<'_>,
    run: RunColumn,
    created_at: Option<i64>,
) -> (Option<[u8; 16]>, i64) {
    match (row.run, run, created_at) {
        (RunColumn::Of(_), RunColumn::Id(id), Some(of)) => (Some(id), of.wrapping_add(row.created_at)),
        (RunColumn::Id(id), ..) => (Some(id), row.created_at),
        _ => (None, row.created_at),
    }
}

/// A checkpoint with its thread and path, the place of its parent, and its run: a row of `sql::record!`.
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
    /// The id of the run and the timestamp, which the columns of another row may hold.
    pub(crate) run: Option<[u8; 16]>,
    pub(crate) created_at: i64,
}

impl<'r> std::ops::Deref for RecordRow<'r> {
    type Target = checkpoint::Row<'r>;

    fn deref(&self) -> &Self::Target {
        &self.row
    }
}

impl<'r> RecordRow<'r> {
    /// The number of its columns.
    pub(crate) const COLUMNS: usize = checkpoint::TABLE.columns.len() + 9;

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
        let mut record = Self {
            row: checkpoint::Row::read_columns(columns)?,
            thread: columns.next("thread")?,
            path: columns.next("path")?,
            parent_id: columns.next("parent")?,
            parent_thread: columns.next("parent")?,
            parent_path: columns.next("parent")?,
            parent_ordinal: columns.next("parent")?,
            parent_branch: columns.next("parent")?,
            run: None,
            created_at: 0,
        };
        let of = (columns.next("run")?, columns.next("created_at")?);
        (record.run, record.created_at) = run_and_time(&record.row, of.0, of.1);
        Ok(record)
    }

    fn verify(self) -> Res<Self> {
        match self.check() == self.row.xxh3 {
            true => Ok(self),
            false => Err(corrupt(self.place(), "the check of the row does not match")),
        }
    }

    /// Returns the check of the columns that come before it, with its run and its timestamp, of thread and path, and of
    /// the id and the place of the parent.
    pub(crate) fn check(&self) -> i64 {
        let (mut check, mut before) = (RowCheck::of("checkpoint"), checkpoint::TABLE.columns.len() - 1);
        let row = checkpoint::Row { run: RunColumn::of_id(self.run), created_at: self.created_at, ..self.row };
        row.each(false, |column| {
            if before > 0 {
                before -= 1;
                check.value(column);
            }
        });
        check.text(self.thread).text(self.path).value(self.parent_id.column());
        check.maybe_text(self.parent_thread).maybe_text(self.parent_path).finish()
    }

    /// Returns the checkpoint that holds the id of the run.
    pub(crate) fn run_holder(&self) -> Option<RunHolder> {
        let (seq, created_at) = match self.row.run {
            RunColumn::Of(distance) => {
                (self.seq.wrapping_sub(distance), self.created_at.wrapping_sub(self.row.created_at))
            }
            _ => (self.seq, self.created_at),
        };
        Some(RunHolder { namespace: self.namespace, seq, run: self.run?, created_at })
    }

    /// Stores the checkpoint with its check.
    pub(crate) fn insert(mut self, conn: &Connection) -> Res<()> {
        self.row.xxh3 = self.check();
        self.row.insert(conn)
    }

    /// Returns the record, with the metadata and the tasks that the columns encode.
    pub(crate) fn record(&self, metadata: Option<String>, tasks: Vec<TaskRecord>) -> Res<CheckpointRecord> {
        let wrong = |what: &str| corrupt(self.place(), format!("{what} does not match the format"));
        let number = |column: i64, what: &str| u64::try_from(column).map_err(|_| wrong(what));
        // A walk along parents ends because each of them is older.
        if self.parent.is_some_and(|parent| parent >= self.seq)
            || self.parent_ordinal.map_or(Some(0), |of| of.checked_add(1)) != Some(self.ordinal)
        {
            return Err(corrupt(self.place(), "it does not follow its parent"));
        }
        let point = |thread, path, id| point_of(thread, path, id).ok_or_else(|| wrong("thread or namespace"));
        let of = point(self.thread, self.path, self.id)?;
        let step = step_of(self.step).ok_or_else(|| wrong("step"))?;
        let source = source_of(self.source).ok_or_else(|| wrong("source"))?;
        let created_at = Timestamp::from_micros(self.created_at);
        let mut record = CheckpointRecord::new(of, number(self.seq, "seq")?, step, source, created_at);
        match (self.parent_thread, self.parent_path, self.parent_id) {
            (Some(thread), Some(path), Some(id)) => record.forked_from = Some(point(thread, path, id)?),
            (.., parent) => record.parent = parent.map(CheckpointId::from_bytes),
        }
        (record.branch, record.ordinal) = (number(self.branch, "branch")?, number(self.ordinal, "ordinal")?);
        record.run = self.run.map(RunId::from_bytes);
        record.app_version = self.app_version.map(Arc::from);
        record.pruned = self.is_pruned();
        if !record.pruned {
            record.parents = unpack_parents(self.parents).ok_or_else(|| wrong("parents"))?;
        }
        (record.metadata, record.tasks) = (metadata, tasks);
        Ok(record)
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
    conn.read_first(sql, params, |row| read(&RecordRow::verified(row)?))
}
