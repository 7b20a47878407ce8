//! Reads the writes of the tasks of a checkpoint, run by run.
//!
//! A run is what one commit stored of one task: consecutive positions, or one special index. Its first row holds what
//! covers all rows of the run, so a changed or missing row is noticed.

use super::list_reference;
use super::payloads::Payloads;
use crate::base::PayloadRef;
use crate::base::internal::hash::Checksum;
use crate::store::batch::{Payload, WriteValue};
use crate::store::mark::WriteMark;
use crate::store::record::{TaskRecord, WriteRecord};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checkpoint::{checkpoint_row, column};
use crate::store::sqlite::rows::checksums::{WriteChecksum, payload_hash, writes_checksum};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{Unpack, ValueColumn, put_uint};
use crate::store::sqlite::rows::row_check::RowCheck;
use crate::store::sqlite::rows::source::of_source_column;
use crate::store::sqlite::sql;
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, params};
use std::sync::Arc;

/// The columns of `write` from `task` to `mark`, in the order of the queries.
pub(crate) struct WriteRow<'r> {
    pub(crate) task: i64,
    pub(crate) index: i64,
    pub(crate) part: i64,
    pub(crate) channel: i64,
    pub(crate) value: ValueRef<'r>,
    pub(crate) child: Option<i64>,
    pub(crate) path: Option<&'r str>,
    pub(crate) sum: ValueRef<'r>,
    pub(crate) mark: Option<i64>,
}

impl<'r> WriteRow<'r> {
    /// Reads a row whose columns start at `first`.
    pub(crate) fn read(row: &'r Row<'_>, first: usize) -> Res<Self> {
        Ok(Self {
            task: row.get(first)?,
            index: row.get(first + 1)?,
            part: row.get(first + 2)?,
            channel: row.get(first + 3)?,
            value: row.get_ref(first + 4)?,
            child: row.get(first + 5)?,
            path: row.get_ref(first + 6)?.as_str_or_null().map_err(|e| corrupt("write", e.to_string()))?,
            sum: row.get_ref(first + 7)?,
            mark: row.get(first + 8)?,
        })
    }

    /// Names the row.
    pub(crate) fn place(&self, checkpoint: i64) -> String {
        format!("write (checkpoint {checkpoint}, task {}, idx {}, part {})", self.task, self.index, self.part)
    }
}

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
    task: i64,
    place: String,
}

impl WriteRun {
    fn begin(checkpoint: i64, row: &WriteRow<'_>) -> Res<Self> {
        let sum = match row.sum {
            ValueRef::Integer(stored) => Some(Sum::Check { stored, rows: begin_check(checkpoint, row.task) }),
            ValueRef::Blob(bytes) => {
                let mut rest = Unpack(bytes);
                let checksum = rest.take(16).and_then(|checksum| checksum.try_into().ok());
                let count = rest.id().filter(|count| *count > 0 && rest.is_empty());
                checksum.zip(count).map(|(checksum, count)| Sum::Checksum { checksum, count, writes: Vec::new() })
            }
            _ => None,
        };
        let place = row.place(checkpoint);
        let sum = sum.ok_or_else(|| corrupt(place.clone(), "its checksum does not match the format"))?;
        Ok(Self { sum, first: row.index, task: row.task, place })
    }

    /// Adds a row; returns whether it is one of the run.
    fn add(&mut self, row: &WriteRow<'_>, write: WriteChecksum) -> bool {
        let is_covered = match &mut self.sum {
            Sum::Checksum { count, writes, .. } => {
                writes.push(write);
                row.index < self.first.saturating_add(*count)
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

fn begin_check(checkpoint: i64, task: i64) -> RowCheck {
    let mut check = RowCheck::of("write");
    check.int(checkpoint).int(task);
    check
}

fn add_to_check(check: &mut RowCheck, row: &WriteRow<'_>) {
    check.int(row.index).int(row.part).int(row.channel).value(row.value).maybe_int(row.child).maybe_text(row.path);
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
    task: i64,
    rows: impl IntoIterator<Item = WriteRow<'r>>,
) -> Value {
    let mut check = begin_check(checkpoint, task);
    rows.into_iter().for_each(|row| add_to_check(&mut check, &row));
    Value::Integer(check.finish_keyed(keys))
}

/// The runs of the tasks of a checkpoint, verified as their rows are read in order.
pub(crate) struct WriteRuns<'k> {
    keys: &'k Keys,
    checkpoint: i64,
    checksum: Checksum,
    run: Option<WriteRun>,
}

impl<'k> WriteRuns<'k> {
    /// Begins to read rows of `write`.
    pub(crate) fn new(keys: &'k Keys, checkpoint: i64, checksum: Checksum) -> Self {
        Self { keys, checkpoint, checksum, run: None }
    }

    /// Adds a row. A row with a checksum ends the run before it.
    pub(crate) fn add(&mut self, row: &WriteRow<'_>, write: WriteChecksum) -> Res<()> {
        let ended = if row.sum == ValueRef::Null { Ok(()) } else { self.finish() };
        if row.sum != ValueRef::Null {
            self.run = Some(WriteRun::begin(self.checkpoint, row)?);
        }
        let covered = self.run.as_mut().is_some_and(|run| run.add(row, write));
        ended?;
        if covered { Ok(()) } else { Err(corrupt(row.place(self.checkpoint), "no checksum covers it")) }
    }

    /// Verifies the last run.
    pub(crate) fn finish(&mut self) -> Res<()> {
        self.run.take().map_or(Ok(()), |run| run.verify(self.keys, &self.checksum))
    }
}

/// A row of `write` with its value.
pub(crate) struct ReadWrite<'r> {
    pub(crate) row: WriteRow<'r>,
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
        task: Option<i64>,
        visit: &mut dyn FnMut(&mut ReadWrite<'_>) -> Res<()>,
    ) -> Res<()> {
        let mut payloads = Payloads::new(self)?;
        let mut runs = WriteRuns::new(self.keys, checkpoint, *checksum);
        let mut statement = self.conn.prepare_cached(if task.is_some() { sql::WRITES_OF_TASK } else { sql::WRITES })?;
        let mut rows = match task {
            Some(task) => statement.query([checkpoint, task])?,
            None => statement.query([checkpoint])?,
        };
        while let Some(row) = rows.next()? {
            let row = WriteRow::read(row, 0)?;
            // The check of a consumed run covers its columns, without hashes of values.
            let hashed = task.is_some() || row.child.is_none() || row.index < 0;
            let mut read = self.read_write(tasks, checkpoint, row, hashed, &mut payloads)?;
            visit(&mut read)?;
            runs.add(&read.row, read.write)?;
        }
        runs.finish()
    }

    fn read_write<'r>(
        self,
        tasks: &[TaskRecord],
        checkpoint: i64,
        row: WriteRow<'r>,
        hashed: bool,
        payloads: &mut Payloads<'_>,
    ) -> Res<ReadWrite<'r>> {
        let place = || row.place(checkpoint);
        let stored = ValueColumn::from_column(row.value).ok_or_else(|| wrong_parts(&row, checkpoint))?;
        let hash =
            |payload: &PayloadRef<'_>| if hashed { payload_hash(self.keys, payload) } else { Checksum::default() };
        let read = payloads.with(stored, &place, |payload| Ok((payload.to_payload(), hash(&payload))))?;
        let (payload, value) = read.unzip();
        let (task, path) = self.task_of(tasks, row.task, row.path.map(Arc::from))?;
        let channel = self.names.text(self.conn, Kind::Channel, row.channel)?;
        let write = WriteChecksum { task, path, index: row.index, part: row.part, channel, value, mark: row.mark };
        Ok(ReadWrite { row, write, stored, payload })
    }

    /// Returns the writes of the tasks of a checkpoint, given its row; `verifies_absence` also of those that no search
    /// finds.
    pub(crate) fn writes_of(self, checkpoint: i64, record: &Row<'_>, verifies_absence: bool) -> Res<Vec<WriteRecord>> {
        let place = || format!("checkpoint {checkpoint}");
        let (child, consumed) = self.consumer(checkpoint, record)?;
        // The head of a thread at rest has none.
        if !neighbors::has_writes(self.conn, checkpoint, verifies_absence)? {
            return if consumed == 0 { Ok(Vec::new()) } else { Err(lost(place())) };
        }
        let tasks = self.tasks(record.get_ref(column::TASKS)?, &place)?;
        let checksum: Checksum = record.get(column::SUM)?;
        let mut writes: Vec<WriteRecord> = Vec::new();
        let (mut found, mut last) = (0, None);
        self.runs((checkpoint, &checksum), &tasks, None, &mut |read| {
            last = Some((read.row.task, read.row.index, read.row.part));
            found += i64::from(read.row.child.is_some_and(|of| of == child) && read.row.index >= 0);
            add_part(&mut writes, read).ok_or_else(|| wrong_parts(&read.row, checkpoint))
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
    fn consumer(self, checkpoint: i64, record: &Row<'_>) -> Res<(i64, i64)> {
        let id: [u8; 16] = record.get(column::ID)?;
        let params = params![record.get::<_, i64>(column::NAMESPACE)?, id];
        let next = checkpoint_row(self.conn, sql::RECORD_AFTER, params, |seq, row| {
            Ok((row.get::<_, Option<i64>>(column::PARENT)?, (seq, of_source_column(row.get(column::SOURCE)?).1)))
        })?;
        Ok(next.filter(|(parent, _)| *parent == Some(checkpoint)).map_or((0, 0), |(_, consumed)| consumed))
    }
}

fn lost(place: String) -> Fault {
    corrupt(place, "writes of its tasks are missing that its child consumed")
}

fn wrong_parts(row: &WriteRow<'_>, checkpoint: i64) -> Fault {
    corrupt(row.place(checkpoint), "its parts do not match the format")
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
