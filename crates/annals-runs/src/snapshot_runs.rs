//! The run that a checkpoint belongs to, as methods of [`Snapshot`].

use crate::base::{TaskId, Value};
use crate::history::Snapshot;
use crate::interrupts::{self, OpenInterrupt};
use crate::sealed;
use crate::steps::{self, StepInfo};
use crate::store::StoreError;

/// The run that a checkpoint belongs to: its steps, input, result and open interrupts.
pub trait SnapshotRuns: sealed::Sealed {
    /// Returns the steps of the superstep that was due here: its tasks, then the calls that were made in it. `next` is
    /// the checkpoint that ended the superstep, which gives the time of its end; without it the superstep has not
    /// ended.
    ///
    /// # Errors
    /// As [`ThreadRuns::steps`](crate::ThreadRuns::steps).
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("notes")?;
    /// thread.set("n", 1)?;
    /// assert!(thread.at("~0")?.steps(None)?.is_empty(), "an update has no task");
    /// # Ok(())
    /// # }
    /// ```
    fn steps(&self, next: Option<&Snapshot>) -> Result<Vec<StepInfo>, StoreError>;

    /// Returns the input of the run that the checkpoint belongs to: of an entrypoint its argument, of a graph a map of
    /// the channels that the input wrote. `None` if no run made the checkpoint. The checkpoints of the run are read
    /// back to its first one; of an entrypoint, whose run is one superstep, at most two.
    ///
    /// # Errors
    /// [`StoreError::CheckpointPruned`]; [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn input(&self) -> Result<Option<Value>, StoreError>;

    /// Returns the result of an entrypoint: the value that its run returned. `None` of a run that has not ended, and of
    /// a graph, whose result is its state.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn result(&self) -> Result<Option<Value>, StoreError>;

    /// Returns the interrupts at which tasks of the checkpoint wait, sleeps and receives included. One that has got a
    /// resume value from outside is not among them.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn open_interrupts(&self) -> Result<Vec<OpenInterrupt>, StoreError>;

    /// Returns the stored interrupts of the tasks that have not ended: the task and the value of each, also of one that
    /// has failed since.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn interrupts(&self) -> Result<Vec<(TaskId, Value)>, StoreError>;
}

impl SnapshotRuns for Snapshot {
    fn steps(&self, next: Option<&Snapshot>) -> Result<Vec<StepInfo>, StoreError> {
        steps::steps(self, next)
    }

    fn input(&self) -> Result<Option<Value>, StoreError> {
        steps::input(self)
    }

    fn result(&self) -> Result<Option<Value>, StoreError> {
        steps::result(self)
    }

    fn open_interrupts(&self) -> Result<Vec<OpenInterrupt>, StoreError> {
        interrupts::of_snapshot(self)
    }

    fn interrupts(&self) -> Result<Vec<(TaskId, Value)>, StoreError> {
        interrupts::stored_of(self)
    }
}
