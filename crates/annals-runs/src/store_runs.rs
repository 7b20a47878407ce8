//! The runs of a store, as methods of [`Store`].

use annals::Error;

use crate::base::{CheckpointId, ThreadId, Value};
use crate::control::{self, ControlOrder};
use crate::links::{self, ThreadLink};
use crate::queue::Queue;
use crate::sealed;
use crate::store::{Store, StoreError};
use crate::thread_runs::ThreadRuns;

/// The runs of a store: queues, signals and links. [`ThreadRuns`] controls a run.
pub trait StoreRuns: sealed::Sealed {
    /// Returns the requests from outside to runs, in their order: a cancel since the run began on a head, or a pause.
    /// Each run is given by its thread and that head. The log is read twice, however many runs there are: the records
    /// of their heads, and their facts.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn control_orders(
        &self,
        runs: &[(&ThreadId, Option<CheckpointId>)],
    ) -> Result<Vec<Option<ControlOrder>>, StoreError>;

    /// Sends a signal to a thread: [`ThreadRuns::signal`].
    ///
    /// # Errors
    /// As [`ThreadRuns::signal`]; [`StoreError::Id`].
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// store.signal("order-17", "review", true)?;
    /// store.signal("order-17", "review", false)?;
    /// let waiting = store.thread("order-17")?.signals()?;
    /// let values: Vec<_> = waiting.iter().map(|signal| (signal.name.as_str(), signal.value.clone())).collect();
    /// assert_eq!(values, [("review", true.into()), ("review", false.into())]);
    /// # Ok(())
    /// # }
    /// ```
    fn signal(&self, thread: impl AsRef<str>, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error>;

    /// Links threads to the threads whose agents started them, or whose forks they are: each thread by its id, with the
    /// link to its parent. All links are stored in one commit. A thread has one parent: another one takes its place.
    /// Neither thread needs to exist. The deletion of a thread leaves its links, which name the ids alone.
    ///
    /// # Errors
    /// As [`Kv::write_all`](annals::store::kv::Kv::write_all).
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    /// use annals_runs::{ThreadLink, ThreadLinkKind};
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let link = ThreadLink::new("research", ThreadLinkKind::Sub).call("call-7");
    /// store.link_threads(&[("research/prices".to_owned(), link.clone())])?;
    /// assert_eq!(store.thread("research/prices")?.parent_link()?, Some(link));
    /// assert_eq!(store.thread("research")?.linked_threads()?[0].thread, "research/prices");
    /// # Ok(())
    /// # }
    /// ```
    fn link_threads(&self, links: &[(String, ThreadLink)]) -> Result<(), StoreError>;

    /// Returns the queue of a graph: see [`Queue`].
    fn queue(&self, graph: impl Into<String>) -> Queue;
}

impl StoreRuns for Store {
    fn control_orders(
        &self,
        runs: &[(&ThreadId, Option<CheckpointId>)],
    ) -> Result<Vec<Option<ControlOrder>>, StoreError> {
        control::control_orders(self, runs)
    }

    fn signal(&self, thread: impl AsRef<str>, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
        self.thread(thread)?.signal(name, value)
    }

    fn link_threads(&self, links: &[(String, ThreadLink)]) -> Result<(), StoreError> {
        links::link_threads(self, links)
    }

    fn queue(&self, graph: impl Into<String>) -> Queue {
        Queue::new(self.clone(), graph.into())
    }
}
