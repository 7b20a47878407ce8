//! The writes whose marks count, and the status of a thread that follows from them.
//!
//! The writer of a special write says what it means for the status of the thread, so the log decodes no value of it. A
//! mark counts while its task is due at the head: a task with a plain write has ended, and a write whose value is null
//! was cleared. *Absent:* the values, which an executor decodes.

use crate::base::{TaskId, Timestamp};

use super::batch::{NewWrite, NewWrites, WriteValue};
use super::mark::WriteMark;
use super::record::{CheckpointRecord, WriteRecord};
use super::status::StatusKind;

/// A special write whose mark counts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MarkedWrite {
    /// The task, which is due.
    pub task: TaskId,
    /// The mark.
    pub mark: WriteMark,
    /// The value.
    pub value: WriteValue,
}

/// Returns the writes whose marks count, in the order of the tasks due at a head.
pub(super) fn marked(head: &CheckpointRecord, writes: &[WriteRecord]) -> Vec<MarkedWrite> {
    let mut found = Vec::new();
    for task in &head.tasks {
        let of_task = || writes.iter().filter(|write| write.task == task.id);
        if of_task().any(|write| write.index >= 0) {
            continue;
        }
        for write in of_task().filter(|write| write.value != WriteValue::Null) {
            found.extend(write.mark.map(|mark| MarkedWrite { task: task.id, mark, value: write.value.clone() }));
        }
    }
    found
}

/// Returns the tasks of a head that sleep: they have not ended, and go on at a timestamp. Each comes with the first of
/// its timestamps.
pub(crate) fn sleeping(head: &CheckpointRecord, writes: &[WriteRecord]) -> Vec<(TaskId, Timestamp)> {
    let mut found: Vec<(TaskId, Timestamp)> = Vec::new();
    for of in marked(head, writes) {
        let Some(at) = of.mark.wake_at() else { continue };
        match found.last_mut() {
            Some((task, first)) if *task == of.task => *first = at.min(*first),
            _ => found.push((of.task, at)),
        }
    }
    found
}

/// Returns the tasks of a head whose timers are missing: those that sleep, have not failed since, and are not found by
/// `has_timer`.
pub fn without_timer(
    head: &CheckpointRecord,
    writes: &[WriteRecord],
    has_timer: impl Fn(TaskId) -> bool,
) -> Vec<(TaskId, Timestamp)> {
    // The interrupt of a task stays stored when the task fails; the error is cleared when it sleeps again.
    let is_error = |write: &WriteRecord| write.mark.is_some_and(WriteMark::has_failed);
    let has_failed = |task: TaskId| writes.iter().any(|write| write.task == task && is_error(write));
    let mut sleeping = sleeping(head, writes);
    sleeping.retain(|(task, _)| !has_failed(*task) && !has_timer(*task));
    sleeping
}

impl StatusKind {
    /// Returns the status that follows from a head and the marks that count there.
    pub(super) fn of(head: &CheckpointRecord, is_cancelled: bool, marked: &[MarkedWrite]) -> Self {
        let any = |is: fn(WriteMark) -> bool| marked.iter().any(|write| is(write.mark));
        if is_cancelled {
            Self::Cancelled
        } else if any(|mark| mark == WriteMark::GivenUp) {
            Self::GivenUp
        } else if any(WriteMark::has_failed) {
            Self::Failed
        } else if any(|mark| matches!(mark, WriteMark::Waits | WriteMark::WaitsUntil(_))) {
            Self::Interrupted
        } else if any(|mark| matches!(mark, WriteMark::WakesAt(_))) {
            Self::Sleeping
        } else if head.tasks.is_empty() {
            Self::Done
        } else {
            Self::Running
        }
    }

    /// Returns whether a thread with this status keeps it, whatever else is stored, when its tasks store these writes
    /// without a checkpoint. `false` if that depends on other writes: a plain write ends its task, and a special write
    /// without a mark may take the place of one with a mark.
    pub(super) fn remains(self, writes: &[NewWrites]) -> bool {
        let mut marks = writes.iter().flat_map(|task| &task.writes).map(|write: &NewWrite| write.mark);
        match self {
            // No task is due, or the metadata decide.
            Self::Done | Self::Cancelled => true,
            Self::Running => marks.all(|mark| mark.is_none()),
            Self::Interrupted => marks.all(|mark| matches!(mark, Some(WriteMark::Waits | WriteMark::WaitsUntil(_)))),
            Self::Failed => marks.all(|mark| mark == Some(WriteMark::Failed)),
            Self::Sleeping => marks.all(|mark| matches!(mark, Some(WriteMark::WakesAt(_)))),
            Self::GivenUp => false,
        }
    }
}
