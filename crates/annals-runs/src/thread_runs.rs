//! The runs of a thread, as methods of [`Thread`].

use std::time::Duration;

use annals::Error;

use crate::base::{CheckpointId, Value};
use crate::control;
use crate::history::{Snapshot, Thread};
use crate::interrupts::{self, OpenInterrupt};
use crate::links::{self, ThreadLink};
use crate::sealed;
use crate::signal::{self, WaitingSignal};
use crate::steps::Steps;
use crate::store::record::ThreadSize;
use crate::store::{StoreError, ThreadInfo};

/// The runs of a thread: control, interrupts, signals and steps. No graph and no types are needed, and a run may be in
/// another process.
pub trait ThreadRuns: sealed::Sealed {
    /// Cancels the thread: its status is `cancelled` with the reason, no task is due, and no worker continues it. A run
    /// under way, also in another process, ends as cancelled at its next commit; if it has a lease, within 100 ms. The
    /// tasks that have ended keep their results, and [`Thread::undo`] takes the cancel back. Returns `false`, and
    /// stores nothing, if the thread is done or cancelled already.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint; [`StoreError::Invalid`] if the reason is beyond
    /// the limit of metadata; [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](annals::store::log::Log::submit).
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// store.thread("order-17")?.append("messages", [Message::human("hi")])?;
    /// assert!(!store.thread("order-17")?.cancel("the customer asked")?, "nothing was due");
    /// # Ok(())
    /// # }
    /// ```
    fn cancel(&self, reason: &str) -> Result<bool, StoreError>;

    /// Makes the failed tasks of the head due again: the stored errors are cleared, and a worker continues the run.
    /// Returns `false`, and stores nothing, if no task has failed.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint; [`StoreError::Conflict`] if other writers were
    /// faster 64 times in a row; as [`Log::submit`](annals::store::log::Log::submit).
    fn retry(&self) -> Result<bool, StoreError>;

    /// Continues the thread from an older checkpoint: a new checkpoint with its state and its due tasks becomes the
    /// head, as a branch off it, and a worker runs the tasks anew. A run under way gets a conflict. Returns the new
    /// checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the checkpoint is of another thread or namespace, or no task is due there;
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](annals::store::log::Log::submit).
    fn restart_from(&self, snapshot: &Snapshot) -> Result<CheckpointId, StoreError>;

    /// Returns the reason for which the thread is cancelled, empty without one; `None` if it is not cancelled. The cost
    /// is that of the record of the head.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn cancel_reason(&self) -> Result<Option<String>, StoreError>;

    /// Waits until no task of the thread runs or sleeps: it is done, failed, cancelled, or waits for a resume value.
    /// Returns `None` if that is not so when the timeout has passed, or if the thread does not exist by then. A run
    /// that has a lease counts as under way until the lease is released. Commits of other processes are noticed within
    /// 50 ms.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("order-17")?;
    /// assert!(thread.wait_for_end(Duration::from_millis(1))?.is_none(), "it does not exist");
    /// thread.append("messages", [Message::human("hi")])?;
    /// let ended = thread.wait_for_end(Duration::from_secs(5))?.expect("nothing is due");
    /// assert_eq!(ended.status.as_str(), "done");
    /// # Ok(())
    /// # }
    /// ```
    fn wait_for_end(&self, timeout: Duration) -> Result<Option<ThreadInfo>, StoreError>;

    /// Pauses the thread: workers pass it over, and a run with a lease stops at the end of its superstep, within 100 ms
    /// of it. The status stays as it is; [`ThreadFacts::is_paused`](annals::store::ThreadFacts::is_paused) tells. A run
    /// that is started by a program is not refused.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint; as
    /// [`FactsUpdate::save`](annals::history::FactsUpdate::save).
    fn pause(&self) -> Result<(), StoreError>;

    /// Ends the pause of the thread: a worker continues it if tasks are due. Resume values of interrupts are given with
    /// [`ThreadRuns::resume_interrupt`].
    ///
    /// # Errors
    /// As [`ThreadRuns::pause`].
    fn resume(&self) -> Result<(), StoreError>;

    /// Returns the interrupts at which tasks of the head wait, sleeps and receives included.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn open_interrupts(&self) -> Result<Vec<OpenInterrupt>, StoreError>;

    /// Stores the resume value of an open interrupt, by its id. The task is due from then on: a worker of the graph
    /// continues the run, or the next run without an input. No graph and no types are needed, and the run may be in
    /// another process. A second value for one interrupt is refused.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`]; [`StoreError::ThreadEnded`] if the thread is done or cancelled;
    /// [`StoreError::InterruptNotOpen`] if no interrupt with the id is open; [`StoreError::Invalid`] if the value does
    /// not fit the schema of the interrupt; [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](annals::store::log::Log::submit).
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    /// use annals::store::StoreError;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let thread = store.thread("order-17")?;
    /// thread.append("messages", [Message::human("hi")])?;
    /// assert!(thread.open_interrupts()?.is_empty());
    /// let refused = thread.resume_interrupt("0123456789abcdef0123456789abcdef", "yes").unwrap_err();
    /// assert!(matches!(refused, StoreError::ThreadEnded { status: "done", .. }));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "answer")]
    fn resume_interrupt(&self, id: &str, value: impl Into<Value>) -> Result<(), StoreError>;

    /// Sends a signal to the thread: a value under a name, which one task receives once (`Context::receive` of the
    /// executor). It is durable when this returns, and a task that waits for it is due. The thread need not exist: its
    /// first run finds the signal. Signals of one name are received in the order in which they were sent; those that no
    /// task receives lie in the mailbox until the thread is deleted. Returns the checkpoint of the mailbox.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the name is empty, longer than 256 bytes, or holds a NUL; [`StoreError::ThreadEnded`]
    /// if the thread is cancelled; [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](annals::store::log::Log::submit).
    fn signal(&self, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error>;

    /// Returns the signals in the mailbox of the thread, by name, those of one name in the order in which they were
    /// sent.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn signals(&self) -> Result<Vec<WaitingSignal>, StoreError>;

    /// Gives signals of the mailbox to the tasks that wait for them, ends the receives whose timeout has passed and for
    /// which there is none, and makes tasks due whose interrupts have stored resume values. [`ThreadRuns::signal`]
    /// calls it, and so does an executor before it continues a thread, when a run has stored interrupts, and for all
    /// threads that wait when a worker begins. Returns whether a task was made due.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; [`StoreError::Read`],
    /// [`StoreError::Corrupt`], [`StoreError::Codec`]; as [`Log::submit`](annals::store::log::Log::submit).
    fn deliver_signals(&self) -> Result<bool, StoreError>;

    /// Counts the checkpoints and branches of the thread in all its namespaces but the mailbox: a signal is not a step
    /// of it. The cost is that of [`LogExt::thread_size`](annals::store::log::LogExt::thread_size).
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let order = Store::memory().thread("order-17")?;
    /// order.set("paid", false)?;
    /// order.signal("review", true)?;
    /// assert_eq!(order.size()?.checkpoints, 1);
    /// # Ok(())
    /// # }
    /// ```
    fn size(&self) -> Result<ThreadSize, StoreError>;

    /// Returns the steps of the thread, in its namespace: the tasks of each superstep, the newest one first, each
    /// followed by the calls that were made in that superstep. They are read checkpoint by checkpoint as the iterator
    /// goes on.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`], also of
    /// each item.
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { paid: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("order-17")?;
    /// thread.update(Order::update().paid(true))?;
    /// for step in thread.steps()? {
    ///     let step = step?;
    ///     println!("{:<12} {:<9} {:>2} attempts  {:?}  {}", step.name, step.state, step.attempts.len(), step.duration(), step.error_text());
    /// }
    /// assert_eq!(thread.steps()?.count(), 0, "an update has no task");
    /// # Ok(())
    /// # }
    /// ```
    fn steps(&self) -> Result<Steps, StoreError>;

    /// Returns the link to the thread whose agent started this one, or whose fork it is, as
    /// [`StoreRuns::link_threads`](crate::StoreRuns::link_threads) stored it; `None` without one.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn parent_link(&self) -> Result<Option<ThreadLink>, StoreError>;

    /// Returns the links of the threads whose parent this one is, at most 1,000, in the order in which they were
    /// stored. Threads that were deleted are among them.
    ///
    /// # Errors
    /// As [`ThreadRuns::parent_link`].
    fn linked_threads(&self) -> Result<Vec<ThreadLink>, StoreError>;
}

impl ThreadRuns for Thread {
    fn cancel(&self, reason: &str) -> Result<bool, StoreError> {
        control::cancel(self, reason)
    }

    fn retry(&self) -> Result<bool, StoreError> {
        control::retry(self)
    }

    fn restart_from(&self, snapshot: &Snapshot) -> Result<CheckpointId, StoreError> {
        control::restart_from(self, snapshot)
    }

    fn cancel_reason(&self) -> Result<Option<String>, StoreError> {
        control::cancel_reason(self)
    }

    fn wait_for_end(&self, timeout: Duration) -> Result<Option<ThreadInfo>, StoreError> {
        control::wait_for_end(self, timeout)
    }

    fn pause(&self) -> Result<(), StoreError> {
        self.facts().paused(true).save()
    }

    fn resume(&self) -> Result<(), StoreError> {
        self.facts().paused(false).save()
    }

    fn open_interrupts(&self) -> Result<Vec<OpenInterrupt>, StoreError> {
        interrupts::of_head(self)
    }

    fn resume_interrupt(&self, id: &str, value: impl Into<Value>) -> Result<(), StoreError> {
        interrupts::resume_interrupt(self, id, value)
    }

    fn signal(&self, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
        signal::signal(self, name, value)
    }

    fn signals(&self) -> Result<Vec<WaitingSignal>, StoreError> {
        signal::signals(self)
    }

    fn deliver_signals(&self) -> Result<bool, StoreError> {
        signal::deliver_signals(self)
    }

    fn size(&self) -> Result<ThreadSize, StoreError> {
        signal::size(self)
    }

    fn steps(&self) -> Result<Steps, StoreError> {
        Steps::of(self)
    }

    fn parent_link(&self) -> Result<Option<ThreadLink>, StoreError> {
        links::parent_link(self.store(), self.id().as_str())
    }

    fn linked_threads(&self) -> Result<Vec<ThreadLink>, StoreError> {
        links::linked_threads(self)
    }
}
