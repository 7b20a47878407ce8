//! The names of statuses, and the mark of a partial message.
//!
//! *Absent:* how a status follows from a head, which [`marked`](super::marked) says, and the values that belong to it.

use std::fmt;
use std::str::FromStr;

use super::batch::WriteValue;
use super::error::StoreError;
use super::record::{WriteRecord, plain_value};
use crate::base::{Timestamp, Value, variants};

/// The channel and the index of the special write that holds a partial message.
pub(crate) const PARTIAL: (&str, i32) = ("__partial__", -10);

variants! {
    /// The status of a thread without its values, as the filter of a listing.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::{StatusKind, ThreadQuery};
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// store.thread("trip")?.set("city", "Bern")?;
    /// assert_eq!(store.threads_with(ThreadQuery::new().status(StatusKind::Done))?.len(), 1);
    /// assert!(store.threads_with(ThreadQuery::new().status(StatusKind::Failed))?.is_empty());
    /// assert_eq!("failed".parse(), Ok(StatusKind::Failed));
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum StatusKind {
        /// No task is due.
        Done => "done",
        /// Tasks are due.
        Running => "running",
        /// Tasks wait at interrupts.
        Interrupted => "interrupted",
        /// A task failed.
        Failed => "failed",
        /// All tasks that wait sleep.
        Sleeping => "sleeping",
        /// The thread was cancelled.
        Cancelled => "cancelled",
        /// A task failed, and its run was given up: no worker continues it.
        GivenUp => "given_up",
    }
    /// Returns the name: `done`, `running`, `interrupted`, `failed`, `sleeping`, `cancelled` or `given_up`.
    pub fn as_str -> &'static str, Display
}

impl FromStr for StatusKind {
    type Err = String;

    /// Reads a name.
    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| format!("{name:?} is not a status: {}", known()))
    }
}

/// The mark of a thread whose head has a partial message: an answer that is streamed, or was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartialInfo {
    /// The channel that the message is for.
    pub channel: String,
    /// The number of words so far: runs of characters without white space.
    pub words: usize,
    /// The time at which it was persisted last.
    pub updated: Timestamp,
}

impl fmt::Display for PartialInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "half an answer, {} word{}", self.words, if self.words == 1 { "" } else { "s" })
    }
}

impl PartialInfo {
    /// Returns the mark of the partial message that was persisted last among the writes of a head.
    pub(crate) fn of(writes: &[WriteRecord]) -> Option<Self> {
        partials(writes).filter_map(|write| Self::of_write(&write.value)).max_by_key(|partial| partial.updated)
    }

    fn of_write(value: &WriteValue) -> Option<Self> {
        let WriteValue::One(payload) = value else { return None };
        let fields = plain_value(payload.as_ref()).ok()?;
        let words = |text: &str| text.split_whitespace().count();
        let of_block = |block: &Value| {
            let text = block.as_str().or_else(|| block.get("text").and_then(Value::as_str));
            text.map_or(0, words)
        };
        let words = match fields.get("message")?.get("content") {
            Some(Value::Str(text)) => words(text),
            Some(Value::List(blocks)) => blocks.iter().map(of_block).sum(),
            _ => 0,
        };
        let channel = fields.get("channel")?.as_str()?.to_owned();
        let updated = Timestamp::from_micros(fields.get("updated")?.as_int()?);
        Some(Self { channel, words, updated })
    }
}

/// Returns the writes of a head that hold partial messages: their tasks have not ended.
pub(crate) fn partials(writes: &[WriteRecord]) -> impl Iterator<Item = &WriteRecord> {
    let has_ended = |of: &WriteRecord| writes.iter().any(|write| write.task == of.task && write.index >= 0);
    let holds = |write: &WriteRecord| write.index == PARTIAL.1 && matches!(write.value, WriteValue::One(_));
    writes.iter().filter(move |write| holds(write) && !has_ended(write))
}

/// Refuses a value that does not hold a partial message.
pub(crate) fn misfit() -> StoreError {
    StoreError::Invalid { field: "write.__partial__", reason: "it does not hold a message".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_parsed_as_it_is_shown() {
        for kind in StatusKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("Done".parse::<StatusKind>().unwrap_err().contains("interrupted, failed"));
    }
}
