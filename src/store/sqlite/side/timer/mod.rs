//! Reads and writes the rows of timers: the sleeping tasks, each with the timestamp at which it resumes.
//!
//! They are derived from the stored writes of tasks, so they come and go with its commits. A task that sleeps at the
//! head of a thread has a timer: one that is missing is noticed, and a recovery makes it anew. *Absent:* waking
//! anybody.

mod sql;

use crate::base::{CheckpointId, Namespace, TaskId, ThreadId, Timestamp};
use crate::store::batch::NewTimer;
use crate::store::marked::without_timer;
use crate::store::record::{CheckpointRef, TimerRecord};
use crate::store::sqlite::commit::batch::Tx;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::read::head;
use crate::store::sqlite::rows::checksums::timer_check;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::tables::{TableRow, timer};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use rusqlite::{Row, params};
pub(crate) use sql::CHECK_TIMERS;
use std::collections::HashSet;

impl Tx<'_> {
    /// Sets or removes the timer of a task.
    pub(crate) fn put_timer(&mut self, timer: &NewTimer) -> Res<()> {
        let (namespace, task) = (self.namespace, timer.task.as_bytes());
        let Some(wake_at) = timer.wake_at.map(Timestamp::as_micros) else {
            self.conn.prepare_cached(timer::Row::DELETE)?.execute(params![namespace, task])?;
            return Ok(());
        };
        let of = self.local(&timer.checkpoint)?;
        let place = (self.batch.thread.as_str(), self.batch.namespace.as_str());
        let row = params![
            namespace,
            task,
            of.seq,
            wake_at,
            timer_check(&self.caches.keys, place, of.id.as_bytes(), task, wake_at)
        ];
        self.conn.prepare_cached(log_sql::TIMER_PUT)?.execute(row)?;
        self.caches.note_timer();
        Ok(())
    }

    /// Removes the timers of the checkpoint that the superstep passes.
    pub(crate) fn drop_timers(&mut self, passed: i64) -> Res<()> {
        if !self.caches.may_have_timers(self.conn)? {
            return Ok(());
        }
        self.conn.prepare_cached(log_sql::TIMERS_PASSED)?.execute([self.namespace, passed])?;
        Ok(())
    }
}

/// Returns the timers of heads by their timestamps: all, or those that are due.
pub(crate) fn list(view: ReadView<'_>, due_by: Option<Timestamp>, limit: usize) -> Res<Vec<TimerRecord>> {
    let due_by = due_by.map_or(i64::MAX, Timestamp::as_micros);
    must_have_timestamps(view)?;
    neighbors::no_hidden_timer(view.conn, &view.names.counted)?;
    let mut statement = view.conn.prepare_cached(sql::TIMERS)?;
    let mut rows = statement.query([due_by])?;
    let (mut timers, mut last) = (Vec::new(), (i64::MIN, i64::MIN, [0; 16]));
    while timers.len() < limit {
        let Some(row) = rows.next()? else {
            drop(rows);
            no_more(view, &last, due_by)?;
            break;
        };
        let timer = entry(view, row)?;
        let namespace = row.get(6)?;
        last = last.max((timer.wake_at.as_micros(), namespace, *timer.task.as_bytes()));
        // Those of other checkpoints stay for a head that moves back.
        if head::head(view.conn, view.keys, namespace)? == Some(timer.point.checkpoint) {
            timers.push(timer);
        }
    }
    Ok(timers)
}

/// Verifies that the timer after the last one is not due.
fn no_more(view: ReadView<'_>, last: &(i64, i64, [u8; 16]), due_by: i64) -> Res<()> {
    let (wake_at, namespace, task) = last;
    let mut statement = view.conn.prepare_cached(sql::TIMER_AFTER)?;
    let mut rows = statement.query(params![wake_at, namespace, task])?;
    match rows.next()?.map(|row| entry(view, row)).transpose()? {
        Some(timer) if timer.wake_at.as_micros() <= due_by => Err(corrupt("index timer_wake", "an entry is damaged")),
        _ => Ok(()),
    }
}

/// Decodes the timer of an entry of the index.
fn entry(view: ReadView<'_>, row: &Row<'_>) -> Res<TimerRecord> {
    if row.get_ref(1)? != row.get_ref(7)? {
        return Err(corrupt("timer", "an entry of the index of timers has no row with its timestamp"));
    }
    decode(view, row)
}

/// Returns the timers of the head of a namespace by their timestamps.
pub(crate) fn list_of(view: ReadView<'_>, thread: &ThreadId, path: &Namespace) -> Res<Vec<TimerRecord>> {
    let Some(namespace) = view.namespace(thread, path)? else { return Ok(Vec::new()) };
    let head = head::head(view.conn, view.keys, namespace)?;
    let mut statement = view.conn.prepare_cached(sql::TIMERS_OF_NAMESPACE)?;
    let mut rows = statement.query([namespace])?;
    let mut timers = Vec::new();
    while let Some(row) = rows.next()? {
        let timer = decode(view, row)?;
        if head == Some(timer.point.checkpoint) {
            timers.push(timer);
        }
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
    let mut statement = view.conn.prepare_cached(sql::TIMER_ENDS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if row.get_ref(0)?.as_str() != Ok("integer") {
            return Err(corrupt("timer", "wake_at of a row is not a number"));
        }
    }
    Ok(())
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
    let mut timers = HashSet::new();
    let mut statement = view.conn.prepare_cached(sql::TIMERS_OF)?;
    let mut rows = statement.query(params![namespace, record.seq as i64])?;
    while let Some(row) = rows.next()? {
        timers.insert(TaskId::from_bytes(row.get(0)?));
    }
    let missing = without_timer(&record, &view.writes(&point)?, |task| timers.contains(&task));
    Ok(missing.into_iter().map(|(task, at)| NewTimer::new(head, task, Some(at))).collect())
}

/// Decodes and verifies a timer; its columns are those of `sql::timer!`.
fn decode(view: ReadView<'_>, row: &Row<'_>) -> Res<TimerRecord> {
    let (task, wake_at, check): ([u8; 16], i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let checkpoint: Option<[u8; 16]> = row.get(3)?;
    let (path, thread): (Option<String>, Option<String>) = (row.get(4)?, row.get(5)?);
    let task_id = TaskId::from_bytes(task);
    let wrong = |reason: &str| corrupt(format!("timer of task {task_id}"), reason);
    let (Some(checkpoint), Some(path), Some(thread)) = (checkpoint, path, thread) else {
        return Err(wrong("its checkpoint is not in its namespace"));
    };
    if timer_check(view.keys, (&thread, &path), &checkpoint, &task, wake_at) != check {
        return Err(wrong("its checksum does not match"));
    }
    let point = CheckpointRef {
        thread: ThreadId::new(thread).map_err(|_| wrong("the id of its thread is none"))?,
        namespace: Namespace::new(path).map_err(|_| wrong("the path of its namespace is none"))?,
        checkpoint: CheckpointId::from_bytes(checkpoint),
    };
    Ok(TimerRecord { point, task: task_id, wake_at: Timestamp::from_micros(wake_at) })
}

/// Verifies a row of [`CHECK_TIMERS`].
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    decode(view, row).map(|_| ())
}
