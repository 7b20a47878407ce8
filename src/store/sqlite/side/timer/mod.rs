//! Reads and writes the rows of timers: the sleeping tasks, each with the timestamp at which it resumes.
//!
//! They are derived from the stored writes of tasks, so they come and go with its commits. A task that sleeps at the
//! head of a thread has a timer: one that is missing is noticed, and a recovery makes it anew. *Absent:* waking
//! anybody.

mod sql;

use crate::base::{Namespace, TaskId, ThreadId, Timestamp};
use crate::store::batch::NewTimer;
use crate::store::marked::without_timer;
use crate::store::record::{CheckpointRef, TimerRecord};
use crate::store::sqlite::commit::batch::Tx;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::head;
use crate::store::sqlite::rows::checkpoint::point_of;
use crate::store::sqlite::rows::checksums::timer_check;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::tables::{TableRow, timer};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};
pub(crate) use sql::CHECK_TIMERS;
use std::collections::HashSet;

impl Tx<'_> {
    /// Sets or removes the timer of a task.
    pub(crate) fn put_timer(&mut self, timer: &NewTimer) -> Res<()> {
        let (namespace, task) = (self.namespace, timer.task.as_bytes());
        let Some(wake_at) = timer.wake_at.map(Timestamp::as_micros) else {
            if !TableGroup::Timers.exists(self.conn)? {
                return Ok(());
            }
            self.conn.run(timer::Row::DELETE, params![namespace, task])?;
            return Ok(());
        };
        let of = self.local(&timer.checkpoint)?;
        let place = (self.batch.thread.as_str(), self.batch.namespace.as_str());
        TableGroup::Timers.make(self.conn)?;
        let row = params![
            namespace,
            task,
            of.seq,
            wake_at,
            timer_check(&self.caches.keys, place, of.id.as_bytes(), task, wake_at)
        ];
        self.conn.run(log_sql::TIMER_PUT, row)?;
        self.caches.note_timer();
        Ok(())
    }

    /// Removes the timers of the checkpoint that the superstep passes.
    pub(crate) fn drop_timers(&mut self, passed: i64) -> Res<()> {
        if !self.caches.may_have_timers(self.conn)? {
            return Ok(());
        }
        delete_of(self.conn, self.namespace, passed)
    }
}

/// Deletes the timers of a checkpoint.
pub(crate) fn delete_of(conn: &Connection, namespace: i64, checkpoint: i64) -> Res<()> {
    if TableGroup::Timers.exists(conn)? {
        conn.run(log_sql::TIMERS_PASSED, [namespace, checkpoint])?;
    }
    Ok(())
}

/// Deletes the timers of a namespace.
pub(crate) fn delete_all(conn: &Connection, namespace: i64) -> Res<()> {
    if TableGroup::Timers.exists(conn)? {
        conn.run(timer::Row::DELETE_UNDER, [namespace])?;
    }
    Ok(())
}

/// Columns of a timer, and that of the entry of the index by which it was found.
const WAKE_AT: usize = 1;
const NAMESPACE: usize = 6;
const OF_INDEX: usize = 7;

/// Returns the timers of heads by their timestamps: all, or those that are due.
pub(crate) fn list(view: ReadView<'_>, due_by: Option<Timestamp>, limit: usize) -> Res<Vec<TimerRecord>> {
    if !TableGroup::Timers.exists(view.conn)? {
        return Ok(Vec::new());
    }
    let due_by = due_by.map_or(i64::MAX, Timestamp::as_micros);
    must_have_timestamps(view)?;
    neighbors::no_hidden_timer(view.conn, &view.names.counted)?;
    let (mut timers, mut last) = (Vec::new(), (i64::MIN, i64::MIN, [0; 16]));
    if limit == 0 {
        return Ok(timers);
    }
    let goes_on = view.conn.each_while(sql::TIMERS, [due_by], |row| {
        let (timer, namespace) = (entry(view, row)?, i64::read(row, NAMESPACE)?);
        last = last.max((timer.wake_at.as_micros(), namespace, *timer.task.as_bytes()));
        // Those of other checkpoints stay for a head that moves back.
        if head::head(view.conn, view.keys, namespace)? == Some(timer.point.checkpoint) {
            timers.push(timer);
        }
        Ok(timers.len() < limit)
    })?;
    if goes_on {
        no_more(view, &last, due_by)?;
    }
    Ok(timers)
}

/// Verifies that the timer after the last one is not due.
fn no_more(view: ReadView<'_>, last: &(i64, i64, [u8; 16]), due_by: i64) -> Res<()> {
    let (wake_at, namespace, task) = last;
    match view.conn.read_first(sql::TIMER_AFTER, params![wake_at, namespace, task], |row| entry(view, row))? {
        Some(timer) if timer.wake_at.as_micros() <= due_by => Err(corrupt("index timer_wake", "an entry is damaged")),
        _ => Ok(()),
    }
}

/// Decodes the timer of an entry of the index.
fn entry(view: ReadView<'_>, row: &Row<'_>) -> Res<TimerRecord> {
    if Value::read(row, WAKE_AT)? != Value::read(row, OF_INDEX)? {
        return Err(corrupt("timer", "an entry of the index of timers has no row with its timestamp"));
    }
    decode(view, row)
}

/// Returns the timers of the head of a namespace by their timestamps.
pub(crate) fn list_of(view: ReadView<'_>, thread: &ThreadId, path: &Namespace) -> Res<Vec<TimerRecord>> {
    let Some(namespace) = view.namespace(thread, path)? else { return Ok(Vec::new()) };
    let mut timers = Vec::new();
    if TableGroup::Timers.exists(view.conn)? {
        let head = head::head(view.conn, view.keys, namespace)?;
        timers = view.conn.read_all(sql::TIMERS_OF_NAMESPACE, [namespace], |row| decode(view, row))?;
        timers.retain(|timer| head == Some(timer.point.checkpoint));
    }
    // A row that damage moves to another namespace leaves no gap here.
    let missing = if path.is_root() { missing(view, namespace, thread)? } else { Vec::new() };
    match missing.first() {
        Some(timer) => Err(corrupt(format!("timer of task {}", timer.task), "the task sleeps without a timer")),
        None => Ok(timers),
    }
}

/// Returns an error if a row holds something else than a timestamp: such rows are the first or the last of the index,
/// and no comparison with a timestamp finds them.
fn must_have_timestamps(view: ReadView<'_>) -> Res<()> {
    match view.conn.all::<String, Vec<_>>(sql::TIMER_ENDS, [])?.iter().all(|of| of == "integer") {
        true => Ok(()),
        false => Err(corrupt("timer", "wake_at of a row is not a number")),
    }
}

/// Returns the timers that are missing at the head of a thread, whose root namespace is given.
pub(crate) fn missing(view: ReadView<'_>, namespace: i64, thread: &ThreadId) -> Res<Vec<NewTimer>> {
    let Some(head) = head::head(view.conn, view.keys, namespace)? else { return Ok(Vec::new()) };
    let point = CheckpointRef::new(thread.clone(), Namespace::root(), head);
    let Some(record) = view.checkpoint(&point)?.filter(|record| !record.pruned) else { return Ok(Vec::new()) };
    // The first child of a checkpoint deletes its timers, also if the head moves back to it.
    if record.tasks.is_empty() || view.is_continued(namespace, (record.branch as i64, record.ordinal as i64))? {
        return Ok(Vec::new());
    }
    let mut timers = HashSet::<[u8; 16]>::new();
    if TableGroup::Timers.exists(view.conn)? {
        timers = view.conn.all(sql::TIMERS_OF, [namespace, record.seq as i64])?;
    }
    let missing = without_timer(&record, &view.writes(&point)?, |task| timers.contains(task.as_bytes()));
    Ok(missing.into_iter().map(|(task, at)| NewTimer::new(head, task, Some(at))).collect())
}

/// Decodes and verifies a timer; its columns are those of `sql::timer!`.
fn decode(view: ReadView<'_>, row: &Row<'_>) -> Res<TimerRecord> {
    type Point = (Option<[u8; 16]>, Option<String>, Option<String>);
    let (task, wake_at, check, point): ([u8; 16], i64, i64, Point) = FromColumns::read(row, 0)?;
    let task_id = TaskId::from_bytes(task);
    let wrong = |reason: &str| corrupt(format!("timer of task {task_id}"), reason);
    let (Some(checkpoint), Some(path), Some(thread)) = point else {
        return Err(wrong("its checkpoint is not in its namespace"));
    };
    if timer_check(view.keys, (&thread, &path), &checkpoint, &task, wake_at) != check {
        return Err(wrong("its checksum does not match"));
    }
    let point = point_of(&thread, &path, checkpoint).ok_or_else(|| wrong("its thread or its namespace has no name"))?;
    Ok(TimerRecord { point, task: task_id, wake_at: Timestamp::from_micros(wake_at) })
}

/// Verifies a row of [`CHECK_TIMERS`].
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    decode(view, row).map(|_| ())
}
