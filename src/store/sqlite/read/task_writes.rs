//! Reads the writes of the tasks of a checkpoint, run by run.
//!
//! A run is what one commit stored of one task: consecutive positions, or one special index. Its first row holds what
//! covers all rows of the run, so a changed or missing row is noticed.

use super::list_reference;
use super::payloads::Payloads;
use super::record::RunTask;
use crate::base::PayloadRef;
use crate::base::internal::hash::Checksum;
use crate::store::batch::{Payload, WriteValue};
use crate::store::mark::WriteMark;
use crate::store::record::{TaskRecord, WriteRecord};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checkpoint::{RecordRow, checkpoint_row};
use crate::store::sqlite::rows::checksums::{WriteChecksum, payload_hash, writes_checksum};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{Unpack, ValueColumn, put_uint};
use crate::store::sqlite::rows::source::of_source_column;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::row_check::RowCheck;
use crate::store::sqlite::tables::{ColumnType, TableRow, TaskColumn, write};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use rusqlite::params;
use rusqlite::types::{Value, ValueRef};
use std::sync::Arc;

/// The content of `sum` on the first row of a run, and the rows that it covers.
enum Sum {
    /// Of a run on its own: the checksum and the number of positions.
    Checksum { checksum: Checksum, count: i64, writes: Vec<WriteChecksum> },
    /// Of a run that a checkpoint consumed and stored: the check of its rows.
    Check { stored: i64, rows: RowCheck },
}

/// A run of which the rows are read: gathered for its checksum, or for its check.
pub(crate) struct WriteRun {
    sum: Sum,
    first: i64,
    task: TaskColumn,
    place: String,
}

impl WriteRun {
    fn begin(row: &write::Row<'_>) -> Res<Self> {
        let sum = match row.sum {
            ValueRef::Integer(stored) => Some(Sum::Check { stored, rows: begin_check(row.checkpoint, row.task) }),
            ValueRef::Blob(bytes) => {
                let mut rest = Unpack(bytes);
                let checksum = rest.take(16).and_then(|checksum| checksum.try_into().ok());
                let count = rest.id().filter(|count| *count > 0 && rest.is_empty());
                checksum.zip(count).map(|(checksum, count)| Sum::Checksum { checksum, count, writes: Vec::new() })
            }
            _ => None,
        };
        let place = row.place();
        let sum = sum.ok_or_else(|| corrupt(place.clone(), "its checksum does not match the format"))?;
        Ok(Self { sum, first: row.idx, task: row.task, place })
    }

    /// Adds a row; returns whether it is one of the run.
    fn add(&mut self, row: &write::Row<'_>, write: WriteChecksum) -> bool {
        let is_covered = match &mut self.sum {
            Sum::Checksum { count, writes, .. } => {
                writes.push(write);
                row.idx < self.first.saturating_add(*count)
            }
            Sum::Check { rows, .. } => {
                add_to_check(rows, row);
                row.child.is_some()
            }
        };
        is_covered && row.task == self.task
    }

    fn verify(self, keys: &Keys, checkpoint: &Checksum) -> Res<()> {
        let fits = match self.sum {
            Sum::Checksum { checksum, writes, .. } => writes_checksum(keys, checkpoint, &writes) == checksum,
            Sum::Check { stored, rows } => rows.finish_keyed(keys) == stored,
        };
        if fits { Ok(()) } else { Err(corrupt(self.place, "the checksum of its run does not match")) }
    }
}

fn begin_check(checkpoint: i64, task: TaskColumn) -> RowCheck {
    let mut check = RowCheck::of("write");
    check.int(checkpoint).value(task.column());
    check
}

fn add_to_check(check: &mut RowCheck, row: &write::Row<'_>) {
    check.int(row.idx).int(row.part).int(row.channel).value(row.value.0).maybe_int(row.child).value(row.path);
    // Few rows have a mark, and none of a run that a checkpoint consumed.
    row.mark.into_iter().for_each(|mark| _ = check.int(mark));
}

/// The column `sum` of a run that is stored on its own: its checksum and the number of its positions.
pub(crate) fn checksum_column(keys: &Keys, checkpoint: &Checksum, rows: &[WriteChecksum], positions: usize) -> Value {
    let mut column = writes_checksum(keys, checkpoint, rows).to_vec();
    put_uint(&mut column, positions as u64);
    Value::Blob(column)
}

/// The column `sum` of a run that a checkpoint consumed and stores: the check of its rows.
pub(crate) fn check_column<'r>(
    keys: &Keys,
    checkpoint: i64,
    task: TaskColumn,
    rows: impl IntoIterator<Item = write::Row<'r>>,
) -> Value {
    let mut check = begin_check(checkpoint, task);
    rows.into_iter().for_each(|row| add_to_check(&mut check, &row));
    Value::Integer(check.finish_keyed(keys))
}

/// The runs of the tasks of a checkpoint, verified as their rows are read in order.
pub(crate) struct WriteRuns<'k> {
    keys: &'k Keys,
    checksum: Checksum,
    run: Option<WriteRun>,
    /// The task and the path of the run.
    pub(crate) task: RunTask,
}

impl<'k> WriteRuns<'k> {
    /// Begins to read rows of `write`.
    pub(crate) fn new(keys: &'k Keys, checksum: Checksum) -> Self {
        Self { keys, checksum, run: None, task: None }
    }

    /// Adds a row. A row with a checksum ends the run before it.
    pub(crate) fn add(&mut self, row: &write::Row<'_>, write: WriteChecksum) -> Res<()> {
        let ended = if row.sum == ValueRef::Null { Ok(()) } else { self.finish() };
        if row.sum != ValueRef::Null {
            self.run = Some(WriteRun::begin(row)?);
        }
        let covered = self.run.as_mut().is_some_and(|run| run.add(row, write));
        ended?;
        if covered { Ok(()) } else { Err(corrupt(row.place(), "no checksum covers it")) }
    }

    /// Verifies the last run.
    pub(crate) fn finish(&mut self) -> Res<()> {
        self.run.take().map_or(Ok(()), |run| run.verify(self.keys, &self.checksum))
    }
}

/// A row of `write` with its value.
pub(crate) struct ReadWrite<'r> {
    pub(crate) row: write::Row<'r>,
    pub(crate) write: WriteChecksum,
    pub(crate) stored: ValueColumn,
    pub(crate) payload: Option<Payload>,
}

impl ReadView<'_> {
    /// Visits the writes of a checkpoint, or of one task of it with the hashes of all values, and verifies each run
    /// behind its last row.
    pub(crate) fn runs(
        self,
        (checkpoint, checksum): (i64, &Checksum),
        tasks: &[TaskRecord],
        task: Option<TaskColumn>,
        visit: &mut dyn FnMut(&mut ReadWrite<'_>) -> Res<()>,
    ) -> Res<()> {
        let mut payloads = Payloads::new(self)?;
        let mut runs = WriteRuns::new(self.keys, *checksum);
        let mut statement =
            self.conn.prepare_cached(if task.is_some() { sql::WRITES_OF_TASK } else { write::Row::UNDER })?;
        let mut rows = match task {
            Some(task) => statement.query(params![checkpoint, task])?,
            None => statement.query([checkpoint])?,
        };
        while let Some(row) = rows.next()? {
            let row = write::Row::read(row, 0)?;
            // The check of a consumed run covers its columns, without hashes of values.
            let hashed = task.is_some() || row.child.is_none() || row.idx < 0;
            let mut read = self.read_write(tasks, row, hashed, (&mut runs.task, &mut payloads))?;
            visit(&mut read)?;
            runs.add(&read.row, read.write)?;
        }
        runs.finish()
    }

    fn read_write<'r>(
        self,
        tasks: &[TaskRecord],
        row: write::Row<'r>,
        hashed: bool,
        (run, payloads): (&mut RunTask, &mut Payloads<'_>),
    ) -> Res<ReadWrite<'r>> {
        let place = || row.place();
        let stored = ValueColumn::from_column(row.value.0).ok_or_else(|| wrong_parts(&row))?;
        let hash =
            |payload: &PayloadRef<'_>| if hashed { payload_hash(self.keys, payload) } else { Checksum::default() };
        let read = payloads.with(stored, &place, |payload| Ok((payload.to_payload(), hash(&payload))))?;
        let (payload, value) = read.unzip();
        let (task, path) = self.task_of(tasks, &row, run)?;
        let channel = self.names.text(self.conn, Kind::Channel, row.channel)?;
        let write = WriteChecksum { task, path, index: row.idx, part: row.part, channel, value, mark: row.mark };
        Ok(ReadWrite { row, write, stored, payload })
    }

    /// Returns the writes of the tasks of a checkpoint, given its row; `verifies_absence` also of those that no search
    /// finds.
    pub(crate) fn writes_of(self, record: &RecordRow<'_>, verifies_absence: bool) -> Res<Vec<WriteRecord>> {
        let (checkpoint, place) = (record.seq, || record.place());
        let (child, consumed) = self.consumer(record)?;
        // The head of a thread at rest has none.
        if !neighbors::has_writes(self.conn, checkpoint, verifies_absence)? {
            return if consumed == 0 { Ok(Vec::new()) } else { Err(lost(place())) };
        }
        let tasks = self.tasks(record.tasks, &place)?;
        let mut writes: Vec<WriteRecord> = Vec::new();
        let (mut found, mut last) = (0, None);
        self.runs((checkpoint, &record.sum), &tasks, None, &mut |read| {
            last = Some((read.row.task, read.row.idx, read.row.part));
            found += i64::from(read.row.child.is_some_and(|of| of == child) && read.row.idx >= 0);
            add_part(&mut writes, read).ok_or_else(|| wrong_parts(&read.row))
        })?;
        if found != consumed {
            return Err(lost(place()));
        }
        neighbors::no_more_writes(self.conn, checkpoint, last)?;
        let is_uneven = |write: &&WriteRecord| matches!(&write.value, WriteValue::Delta(delta) if delta.positions.len() != delta.items.len());
        if let Some(write) = writes.iter().find(is_uneven) {
            let place = format!("write (checkpoint {checkpoint}, task {}, idx {})", write.task, write.index);
            return Err(corrupt(place, "its delta has another number of items than positions"));
        }
        writes.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
        Ok(writes)
    }
}

impl ReadView<'_> {
    /// Returns the next checkpoint of the namespace if it is a child of this one, and how many rows it consumed; 0 and
    /// 0 without one.
    fn consumer(self, record: &RecordRow<'_>) -> Res<(i64, i64)> {
        let params = params![record.namespace, record.id];
        let next = checkpoint_row(self.conn, sql::RECORD_AFTER, params, |row| {
            Ok((row.parent, (row.seq, of_source_column(row.source).1)))
        })?;
        Ok(next.filter(|(parent, _)| *parent == Some(record.seq)).map_or((0, 0), |(_, consumed)| consumed))
    }
}

fn lost(place: String) -> Fault {
    corrupt(place, "writes of its tasks are missing that its child consumed")
}

fn wrong_parts(row: &write::Row<'_>) -> Fault {
    corrupt(row.place(), "its parts do not match the format")
}

/// Adds a row to the write that it is a part of; `None` if it is not the next part.
fn add_part(writes: &mut Vec<WriteRecord>, read: &mut ReadWrite<'_>) -> Option<()> {
    let (write, payload) = (&read.write, read.payload.take());
    let index = i32::try_from(write.index).ok()?;
    let last = writes.last_mut().filter(|last| last.task == write.task && last.index == index);
    if write.part > 1 || last.is_some() {
        let items = match &mut last?.value {
            WriteValue::Items(items) => items,
            WriteValue::Delta(delta) => &mut delta.items,
            _ => return None,
        };
        if items.len() as i64 != write.part - 1 {
            return None;
        }
        items.push(payload?);
        return Some(());
    }
    let value = match (write.part, payload) {
        (-1, Some(payload)) => WriteValue::Delta(Box::new(list_reference::from_header(&payload)?)),
        (0, None) => WriteValue::Null,
        (0, Some(payload)) => WriteValue::One(payload),
        (1, payload) => WriteValue::Items(payload.into_iter().collect()),
        _ => return None,
    };
    let (path, channel) = (Arc::clone(&write.path), Arc::clone(&write.channel));
    let mark = match write.mark {
        Some(number) => Some(WriteMark::of_number(number)?),
        None => None,
    };
    writes.push(WriteRecord { task: write.task, path, index, channel, value, mark });
    Some(())
}
