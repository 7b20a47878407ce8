//! The status of a thread with the values that belong to it: messages of errors, values of interrupts, timestamps.
//!
//! The kind of a status is the log's ([`StatusKind`]), which follows from the marks of special writes. *Absent:* reads:
//! a status is made of what a listing has.

use std::fmt;

use crate::base::{Timestamp, Value};
use crate::store::{MarkedWrite, StatusKind, ThreadInfo, WriteMark};

/// The status of a thread, which follows from its head: from the tasks due there, their stored writes, and the
/// metadata.
///
/// # Example
/// ```
/// use annals_runs::ThreadStatus;
/// use annals_runs::prelude::*;
///
/// # fn main() -> Result<()> {
/// let store = Store::memory();
/// let queued = store.queue("book").enqueue("order-17", 17)?;
/// assert_eq!(ThreadStatus::of(&queued.thread.info()?), ThreadStatus::Running);
/// store.thread("order-17")?.cancel("the customer asked")?;
/// let status = ThreadStatus::of(&queued.thread.info()?);
/// assert_eq!(status, ThreadStatus::Cancelled(Some("the customer asked".into())));
/// assert_eq!(status.as_str(), "cancelled");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ThreadStatus {
    /// No task is due.
    Done,
    /// Tasks are due that have neither failed nor interrupted: a run is under way, or its process ended.
    Running,
    /// Tasks wait at interrupts: the value of each.
    Interrupted(Vec<Value>),
    /// A task failed: the message.
    Failed(String),
    /// All tasks that wait sleep: the first timestamp at which one can resume.
    Sleeping(Timestamp),
    /// The metadata of the head has the member `cancelled`: the reason, if it is a text.
    Cancelled(Option<String>),
    /// A worker has continued the run too often without an end, or cannot continue it, and leaves it alone: the
    /// message. A retry takes it up again.
    Stuck(String),
}

impl ThreadStatus {
    /// Returns the status of a thread, decoded from the special writes at its head. A value that cannot be decoded
    /// counts as null: another program may have written it.
    pub fn of(info: &ThreadInfo) -> Self {
        match info.status {
            StatusKind::Done => Self::Done,
            StatusKind::Interrupted => Self::Interrupted(open_values(&info.marked)),
            StatusKind::Failed => Self::Failed(error_of(&info.marked)),
            StatusKind::GivenUp => Self::Stuck(error_of(&info.marked)),
            StatusKind::Sleeping => {
                let first = info.marked.iter().filter_map(|write| write.mark.wake_at()).min();
                first.map_or(Self::Running, Self::Sleeping)
            }
            StatusKind::Cancelled => Self::Cancelled(info.record.cancel_reason().filter(|reason| !reason.is_empty())),
            // A kind of a newer version of the log.
            _ => Self::Running,
        }
    }

    /// Returns the name: `done`, `running`, `interrupted`, `failed`, `sleeping`, `cancelled` or `stuck`.
    pub fn as_str(&self) -> &'static str {
        status_name(self.kind())
    }

    /// Returns the status without its values.
    pub fn kind(&self) -> StatusKind {
        match self {
            Self::Done => StatusKind::Done,
            Self::Running => StatusKind::Running,
            Self::Interrupted(_) => StatusKind::Interrupted,
            Self::Failed(_) => StatusKind::Failed,
            Self::Sleeping(_) => StatusKind::Sleeping,
            Self::Cancelled(_) => StatusKind::Cancelled,
            Self::Stuck(_) => StatusKind::GivenUp,
        }
    }
}

impl From<&ThreadStatus> for StatusKind {
    fn from(status: &ThreadStatus) -> Self {
        status.kind()
    }
}

impl fmt::Display for ThreadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the name of a status: a run that was given up is `stuck`.
pub fn status_name(kind: StatusKind) -> &'static str {
    match kind {
        StatusKind::GivenUp => "stuck",
        kind => kind.as_str(),
    }
}

/// Returns the status with a name of [`status_name`]; `None` if none has it.
pub fn status_named(name: &str) -> Option<StatusKind> {
    StatusKind::ALL.into_iter().find(|kind| status_name(*kind) == name)
}

/// Returns the message of the first task that failed.
fn error_of(marked: &[MarkedWrite]) -> String {
    let failed = |write: &&MarkedWrite| matches!(write.mark, WriteMark::Failed | WriteMark::GivenUp);
    let error = marked.iter().find(failed).and_then(|write| write.to_value().ok());
    error.and_then(|error| error.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

/// Returns the values of the interrupts that wait for a resume value.
fn open_values(marked: &[MarkedWrite]) -> Vec<Value> {
    let mut values = Vec::new();
    let waits = |write: &&MarkedWrite| matches!(write.mark, WriteMark::Waits | WriteMark::WaitsUntil(_));
    for write in marked.iter().filter(waits) {
        match write.to_value().unwrap_or_default() {
            Value::List(interrupts) => {
                let waiting = interrupts.iter().filter(|interrupt| interrupt_wakes_at(interrupt).is_none());
                values.extend(waiting.map(|interrupt| interrupt.get("value").cloned().unwrap_or_default()));
            }
            other => values.push(other),
        }
    }
    values
}

/// Returns the timestamp from which on a stored interrupt can resume by itself.
pub(crate) fn interrupt_wakes_at(interrupt: &Value) -> Option<Timestamp> {
    interrupt.get("wake_at").and_then(Value::as_int).map(Timestamp::from_micros)
}
