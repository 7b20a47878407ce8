//! The marks of special writes, and the status of a thread that follows from them.
//!
//! The writer of a special write says what it means for the status of the thread, so the log decodes no value of it. A
//! mark counts while its task is due at the head: a task with a plain write has ended, and a write whose value is null
//! was cleared. *Absent:* the values, which an executor decodes.

use crate::base::{TaskId, Timestamp};

use super::batch::{NewWrite, NewWrites, WriteValue};
use super::record::{CheckpointRecord, WriteRecord};
use super::status::StatusKind;

/// What a special write means for the status of its thread, as its writer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteMark {
    /// The task failed.
    Failed,
    /// The task failed, and its run was given up: no worker continues it.
    GivenUp,
    /// The task waits for a value from outside.
    Waits,
    /// The task sleeps until a timestamp.
    WakesAt(Timestamp),
    /// The task waits for a value from outside, and goes on without one at a timestamp.
    WaitsUntil(Timestamp),
}

/// The number of a mark that waits until 1970-01-01T00:00:00Z; a later timestamp has a smaller one.
const WAITS_UNTIL: i64 = -16;

impl WriteMark {
    /// Returns the mark of a task that waits for several things: for each the timestamp at which it goes on without a
    /// value, if it has one. `None` if it waits for nothing. A timestamp before 1970 counts as 1970, which has passed
    /// as well.
    ///
    /// # Example
    /// ```
    /// use annals::base::Timestamp;
    /// use annals::store::WriteMark;
    ///
    /// let [soon, late] = [5, 9].map(Timestamp::from_micros);
    /// assert_eq!(WriteMark::waiting([Some(late), Some(soon)]), Some(WriteMark::WakesAt(soon)));
    /// assert_eq!(WriteMark::waiting([None, Some(late)]), Some(WriteMark::WaitsUntil(late)));
    /// assert_eq!(WriteMark::waiting([None]), Some(WriteMark::Waits));
    /// assert_eq!(WriteMark::waiting([]), None);
    /// ```
    pub fn waiting(wake_at: impl IntoIterator<Item = Option<Timestamp>>) -> Option<Self> {
        let (mut waits, mut first) = (false, None::<Timestamp>);
        for at in wake_at {
            match at.map(|at| at.max(Timestamp::from_micros(0))) {
                Some(at) => first = Some(first.map_or(at, |first| first.min(at))),
                None => waits = true,
            }
        }
        match (waits, first) {
            (false, None) => None,
            (true, None) => Some(Self::Waits),
            (false, Some(at)) => Some(Self::WakesAt(at)),
            (true, Some(at)) => Some(Self::WaitsUntil(at)),
        }
    }

    /// Returns the timestamp at which the task goes on by itself.
    pub fn wake_at(self) -> Option<Timestamp> {
        match self {
            Self::WakesAt(at) | Self::WaitsUntil(at) => Some(at),
            Self::Failed | Self::GivenUp | Self::Waits => None,
        }
    }

    /// Returns the number by which a backend stores it: the microseconds of a timestamp at which the task wakes, and a
    /// number below zero for the others.
    pub fn number(self) -> i64 {
        match self {
            Self::Failed => -1,
            Self::GivenUp => -2,
            Self::Waits => -3,
            Self::WakesAt(at) => at.as_micros(),
            Self::WaitsUntil(at) => WAITS_UNTIL.saturating_sub(at.as_micros()),
        }
    }

    /// Returns the mark with a number; `None` if no mark has it.
    pub fn of_number(number: i64) -> Option<Self> {
        match number {
            -1 => Some(Self::Failed),
            -2 => Some(Self::GivenUp),
            -3 => Some(Self::Waits),
            0.. => Some(Self::WakesAt(Timestamp::from_micros(number))),
            ..=WAITS_UNTIL => Some(Self::WaitsUntil(Timestamp::from_micros(WAITS_UNTIL.saturating_sub(number)))),
            _ => None,
        }
    }

    /// Returns whether a backend can store it: its timestamp is not before 1970.
    pub(super) fn is_stored(self) -> bool {
        Self::of_number(self.number()) == Some(self)
    }

    fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::GivenUp)
    }
}

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
pub fn sleeping(head: &CheckpointRecord, writes: &[WriteRecord]) -> Vec<(TaskId, Timestamp)> {
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
    // What a task waited for stays stored when it fails; its error is cleared when it sleeps again.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_from_its_number() {
        let at = |micros| Timestamp::from_micros(micros);
        let marks = [WriteMark::Failed, WriteMark::GivenUp, WriteMark::Waits];
        let timed = [0, 1, 1_700_000_000_000_000].map(at);
        let timed = timed.into_iter().flat_map(|at| [WriteMark::WakesAt(at), WriteMark::WaitsUntil(at)]);
        for mark in marks.into_iter().chain(timed) {
            assert_eq!(WriteMark::of_number(mark.number()), Some(mark));
            assert!(mark.is_stored());
        }
        for number in WAITS_UNTIL + 1..-3 {
            assert_eq!(WriteMark::of_number(number), None);
        }
        for early in [WriteMark::WakesAt(at(-1)), WriteMark::WaitsUntil(at(-1)), WriteMark::WakesAt(at(i64::MIN))] {
            assert!(!early.is_stored(), "{early:?}");
        }
        assert_eq!(WriteMark::waiting([Some(at(-5))]), Some(WriteMark::WakesAt(at(0))));
    }
}
