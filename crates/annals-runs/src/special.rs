//! The special writes of a task: what an executor stores of a task besides its result.
//!
//! A special write has a negative index, and another one of the same task takes its place. Invariant: an index and a
//! channel keep their meaning from one version to the next, because files hold them. *Absent:* what the log makes of a
//! write, which its mark tells.

use crate::base::{Encoded, Value, variants};
use crate::history::PartialMessage;
use crate::status::interrupt_wakes_at;
use crate::store::batch::{NewWrite, WriteValue};
use crate::store::record::WriteRecord;
use crate::store::{StoreError, WriteMark};

variants! {
    /// A special write of a task: its index and its channel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum SpecialWrite {
        /// The message of the error of a task that failed.
        Error => (-1, "__error__"),
        /// LangGraph's mark of a scheduled task. No executor of this workspace writes it.
        Scheduled => (-2, "__scheduled__"),
        /// The interrupts at which a task waits or sleeps: a list of maps.
        Interrupt => (-3, "__interrupt__"),
        /// The resume values of a command of a run.
        Resume => (-4, "__resume__"),
        /// The node that failed, of a task whose failure another one handles.
        ErrorSource => (-5, "__error_source_node__"),
        /// The stored commands of runs with an idempotency key, and the interrupts that they resumed.
        Keys => (-6, "__keys__"),
        /// The heads of the subgraphs that keep their state, as a task left them when it ended.
        Left => (-7, "__left__"),
        /// The attempt of a task that has called tasks: its number, from 0, and the number of calls before it.
        Attempt => (-8, "__attempt__"),
        /// The message of the node's own error, of a task whose failure another one handles.
        ErrorMessage => (-9, "__error_message__"),
        /// A message of a task as far as it was streamed, until the task has ended: [`PartialMessage`].
        Partial => (PartialMessage::PLACE.1, PartialMessage::PLACE.0),
        /// The record of a called task: the hash of its arguments, its begin and duration in microseconds, and the
        /// attempt of its caller, from 0. A plain write of the channel has the returned value as a fifth member:
        /// [`EndedCall`].
        ///
        /// [`EndedCall`]: crate::EndedCall
        Call => (-11, "__call__"),
        /// The versions of parts of the program that a task began with: a map of their names.
        Versions => (-12, "__versions__"),
        /// The failed attempts of a task that was retried: a JSON text with the number of failures in a row, the time
        /// of the next attempt in microseconds, its number and the number of calls before it, and the begin, end and
        /// error of each failed attempt.
        Retries => (-13, "__retries__"),
        /// The message of the error of a task whose run was cancelled: the same as its error, until another one takes
        /// its place.
        Cancelled => (-14, "__cancelled__"),
        /// The error of an attempt of a task after which it was run again and waits, until it is made due from
        /// outside.
        EarlierError => (-15, "__earlier_error__"),
        /// The resume values that were stored from outside, without a task: a map by the ids of the interrupts.
        Given => (-16, "__given__"),
        /// The time in microseconds at which a task ended, of a run that records the ends of its tasks.
        Ended => (-18, "__ended__"),
        /// The output of a task beside its result, as its node stores it while it runs and at its end.
        Output => (-19, "__output__"),
    }
    /// Returns the index and the channel.
    fn columns -> (i32, &'static str)
}

impl SpecialWrite {
    /// Returns the index.
    pub const fn index(self) -> i32 {
        self.columns().0
    }

    /// Returns the name of the channel.
    pub const fn channel(self) -> &'static str {
        self.columns().1
    }

    /// Returns the special write with an index; `None` for the index of a plain write, or of a newer version.
    pub fn of_index(index: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|special| special.index() == index)
    }

    /// Returns whether a stored write is this one, with a value or cleared.
    pub(crate) fn is(self, write: &WriteRecord) -> bool {
        write.index == self.index()
    }

    /// Returns whether a stored write is this one and has a value.
    pub fn is_set(self, write: &WriteRecord) -> bool {
        self.is(write) && write.value != WriteValue::Null
    }

    /// Returns the write that stores a value. An error is marked as one; what an interrupt waits for is marked by
    /// [`interrupts_write`].
    pub fn write(self, value: WriteValue) -> NewWrite {
        let is_error = self == Self::Error && value != WriteValue::Null;
        NewWrite::new(self.index(), self.channel(), value).with_mark(is_error.then_some(WriteMark::Failed))
    }

    /// Returns the write that clears it.
    pub fn clear(self) -> NewWrite {
        self.write(WriteValue::Null)
    }
}

/// Returns the write that stores the interrupts of a task, marked with what they wait for; without interrupts the one
/// that clears them. An interrupt is a map with the members `id` and `value`, and `wake_at` if it goes on by itself.
///
/// # Errors
/// [`StoreError::Codec`] if a value is beyond the limits.
pub fn interrupts_write(interrupts: Vec<Value>) -> Result<NewWrite, StoreError> {
    let Some(mark) = WriteMark::waiting(interrupts.iter().map(interrupt_wakes_at)) else {
        return Ok(SpecialWrite::Interrupt.clear());
    };
    let value = WriteValue::One(Encoded::encode(&Value::List(interrupts))?.into());
    Ok(SpecialWrite::Interrupt.write(value).with_mark(Some(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_and_a_channel_name_one_special_write() {
        for special in SpecialWrite::ALL {
            assert!(special.index() < 0);
            assert_eq!(SpecialWrite::of_index(special.index()), Some(special));
        }
        assert_eq!(SpecialWrite::of_index(0), None);
        let channels: std::collections::BTreeSet<_> = SpecialWrite::ALL.map(SpecialWrite::channel).into();
        assert_eq!(channels.len(), SpecialWrite::ALL.len());
    }
}
