//! The rows of the writes of tasks.
//!
//! A position that is taken keeps its first write; the special indexes below zero are replaced, the one exception to
//! append-only. They carry their own checksums and stand in no checksum of a checkpoint, so that replacing them breaks
//! none.

use super::batch::Tx;
use super::payloads::store;
use super::{references, replaced};
use crate::base::TaskId;
use crate::store::batch::{NewWrite, NewWrites, Payload, WriteRef, WriteValue};
use crate::store::mark::WriteMark;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::list_reference;
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::read::task_writes::{check_column, checksum_column};
use crate::store::sqlite::rows::checksums::{Digests, WriteChecksum};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::ValueColumn;
use crate::store::sqlite::rows::task::{path_column, prepared, split_path, task_column};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{StoredColumn, TableRow, TaskColumn, write};
use rusqlite::params;
use rusqlite::types::ValueRef;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A row to be written, with the fields that a checksum covers.
struct NewRow<'b> {
    /// The payload with its XXH3 check; a null has none.
    payload: Option<(Cow<'b, Payload>, i64)>,
    checksum: WriteChecksum,
}

impl Tx<'_> {
    /// Stores the writes of a task that are not stored yet. `child` is the checkpoint that consumes them, if they come
    /// with it; the writes that its checksum covers are returned.
    pub(crate) fn put_writes(&mut self, of: &Known, new: &NewWrites, child: Option<i64>) -> Res<Vec<WriteChecksum>> {
        let task = task_column(&new.task, &of.tasks);
        let path = match prepared(task, &of.tasks) {
            Some(task) if task.path() == new.path => ValueRef::Null,
            _ => self.path_column(&new.path)?,
        };
        for write in &new.writes {
            if let WriteValue::Delta(delta) = &write.value {
                references::find(self, &delta.of)?;
            }
        }
        // Most tasks store their writes once, with the checkpoint that consumes them.
        let has_none = self.is_own(of) || self.caches.heads.take_bare(self.namespace, &of.id);
        debug_assert!(!has_none || self.is_own(of) || self.taken(of, task).map_or(true, |taken| taken.is_empty()));
        let taken = if has_none { HashMap::new() } else { self.taken(of, task)? };
        let mut covered = Vec::new();
        for run in runs(accepted(new, |index| index >= 0 && taken.contains_key(&i64::from(index)))) {
            let rows: Vec<NewRow<'_>> =
                run.iter().flat_map(|write| rows(&self.caches.keys, new, write, &mut self.caches.room)).collect();
            let special = run.first().is_some_and(|write| write.index < 0);
            if special && let Some(first) = run.first() {
                replaced::replaced(self.conn, of.seq, task, first.index)?;
                self.conn.run(sql::WRITE_DELETE, params![of.seq, task, first.index])?;
            }
            let stored = rows.iter().map(|row| self.store_row(row)).collect::<Res<Vec<_>>>()?;
            let columns = || {
                rows.iter().zip(&stored).map(|(row, (channel, value))| write::Row {
                    checkpoint: of.seq,
                    task,
                    idx: row.checksum.index,
                    part: row.checksum.part,
                    channel: *channel,
                    value: StoredColumn(value.column()),
                    child,
                    path: ValueRef::Null,
                    sum: ValueRef::Null,
                    mark: row.checksum.mark,
                })
            };
            let columns =
                || columns().enumerate().map(|(at, row)| if at == 0 { write::Row { path, ..row } } else { row });
            let sum = match child.filter(|_| !special) {
                Some(_) => check_column(&self.caches.keys, of.seq, task, columns()),
                None => {
                    let checksums: Vec<WriteChecksum> = rows.iter().map(|row| row.checksum.clone()).collect();
                    checksum_column(&self.caches.keys, &of.checksum, &checksums, run.len())
                }
            };
            let mut insert = self.conn.prepare_cached(write::Row::INSERT)?;
            let mut before = None;
            for row in columns() {
                let sum = if before.is_none() { ValueRef::from(&sum) } else { ValueRef::Null };
                let row = write::Row { sum, ..row };
                row.store_by(&mut insert, before.as_ref(), None)?;
                before = Some(row);
            }
            self.note_written(of, &rows, &stored);
            if child.is_some() && !special {
                covered.extend(rows.into_iter().map(|row| row.checksum));
            }
        }
        Ok(covered)
    }

    /// Stores the value of a row. Returns the number of its channel, and the column of the value.
    fn store_row(&mut self, row: &NewRow<'_>) -> Res<(i64, ValueColumn)> {
        let channel = self.caches.intern(self.conn, Kind::Channel, &row.checksum.channel)?;
        let value = match &row.payload {
            Some((payload, check)) => store(self.conn, self.caches, payload, *check)?,
            None => ValueColumn::Null,
        };
        Ok((channel, value))
    }

    /// Notes the values of rows, so that what consumes them needs no read.
    fn note_written(&mut self, of: &Known, rows: &[NewRow<'_>], stored: &[(i64, ValueColumn)]) {
        for (row, (_, stored)) in rows.iter().zip(stored) {
            let WriteChecksum { task, index, part, value, .. } = row.checksum;
            self.written
                .extend(value.zip(write_ref(task, index, part)).map(|(hash, at)| ((of.seq, at), (*stored, hash))));
        }
    }

    /// Returns the writes of `new` that a stored checkpoint `child` consumed, as its checksum covers them.
    pub(crate) fn stored_writes(&mut self, of: &Known, new: &NewWrites, child: i64) -> Res<Vec<WriteChecksum>> {
        let task = task_column(&new.task, &of.tasks);
        let taken = self.taken(of, task)?;
        let accepted = accepted(new, |index| taken.get(&i64::from(index)) != Some(&Some(child)));
        let consumed = accepted.iter().filter(|write| write.index >= 0);
        Ok(consumed
            .flat_map(|write| rows(&self.caches.keys, new, write, &mut self.caches.room))
            .map(|row| row.checksum)
            .collect())
    }

    /// Returns the column of a path that does not follow from a prepared task. Its name is interned.
    fn path_column<'p>(&mut self, path: &'p str) -> Res<ValueRef<'p>> {
        let column = match split_path(path) {
            Some((name, number)) => path_column(self.caches.intern(self.conn, Kind::Path, &name)?, number),
            None => None,
        };
        Ok(column.map_or(ValueRef::Text(path.as_bytes()), ValueRef::Integer))
    }

    fn taken(&self, of: &Known, task: TaskColumn) -> Res<HashMap<i64, Option<i64>>> {
        self.conn.all(sql::WRITES_TAKEN, params![of.seq, task])
    }
}

/// Returns the writes that are to be stored, by index: of two for one position the first, for a special index the last.
fn accepted(new: &NewWrites, is_taken: impl Fn(i32) -> bool) -> Vec<&NewWrite> {
    let mut writes: Vec<&NewWrite> = new.writes.iter().filter(|write| !is_taken(write.index)).collect();
    writes.sort_by_key(|write| write.index);
    let mut kept: Vec<&NewWrite> = Vec::with_capacity(writes.len());
    for write in writes {
        match kept.last_mut() {
            Some(last) if last.index == write.index => {
                if write.index < 0 {
                    *last = write;
                }
            }
            _ => kept.push(write),
        }
    }
    debug_assert!(kept.windows(2).all(|pair| pair[0].index < pair[1].index), "each index is written once");
    kept
}

/// Splits writes into runs of consecutive positions; a special index is a run of its own.
fn runs(writes: Vec<&NewWrite>) -> Vec<Vec<&NewWrite>> {
    let mut runs: Vec<Vec<&NewWrite>> = Vec::new();
    for write in writes {
        match runs.last_mut() {
            Some(run)
                if run.last().is_some_and(|last| last.index >= 0 && last.index.checked_add(1) == Some(write.index)) =>
            {
                run.push(write)
            }
            _ => runs.push(vec![write]),
        }
    }
    debug_assert!(runs.iter().all(|run| run.len() == 1 || run.iter().all(|write| write.index >= 0)));
    runs
}

/// Names the value of a row of a write: one value has part 0, the items of a list have parts from 1 on. The header of a
/// delta has no name.
pub(crate) fn write_ref(task: TaskId, index: i64, part: i64) -> Option<WriteRef> {
    let part = u32::try_from(part).ok()?.saturating_sub(1);
    Some(WriteRef { task, index: i32::try_from(index).ok()?, part })
}

/// Returns the rows of a write: part 0 for null or one value, 1, 2, ... for items, 1 without a value for an empty list,
/// -1 before the items of a delta.
fn rows<'b>(keys: &Keys, new: &NewWrites, write: &'b NewWrite, room: &mut Vec<u8>) -> Vec<NewRow<'b>> {
    let mut mark = write.mark.map(WriteMark::number);
    let mut row = |part: i64, payload: Option<Cow<'b, Payload>>| {
        let digests = payload.as_deref().map(|payload| Digests::of(keys, payload.as_ref(), room));
        let checksum = WriteChecksum {
            task: new.task,
            path: Arc::clone(&new.path),
            index: i64::from(write.index),
            part,
            channel: Arc::clone(&write.channel),
            value: digests.map(|digests| digests.hash),
            mark: mark.take(),
        };
        NewRow { payload: payload.zip(digests.map(|digests| digests.check)), checksum }
    };
    let mut rows = Vec::new();
    let items: &[Payload] = match &write.value {
        WriteValue::Null => return vec![row(0, None)],
        WriteValue::One(payload) => return vec![row(0, Some(Cow::Borrowed(payload)))],
        WriteValue::Items(items) if items.is_empty() => return vec![row(1, None)],
        WriteValue::Items(items) => items,
        WriteValue::Delta(delta) => {
            rows.push(row(-1, Some(Cow::Owned(list_reference::header(delta)))));
            &delta.items
        }
    };
    rows.extend((1..).zip(items).map(|(part, payload)| row(part, Some(Cow::Borrowed(payload)))));
    rows
}
