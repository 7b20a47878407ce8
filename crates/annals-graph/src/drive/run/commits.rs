//! The commits of a run that have been handed to the store: whose outcome is awaited, and by whom.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::base::TaskId;
use crate::base::limits::PENDING_COMMITS_MAX;
use crate::error::Error;
use crate::store::batch::Batch;
use crate::store::log::CommitHandle;
use crate::store::{Store, StoreError};

use super::active_run::ActiveRun;
use super::host::RunHost;

/// The commits that all graphs of a run share.
#[derive(Default)]
pub(super) struct RunCommits {
    /// True until the first commit of a run with an idempotency key or a lease: it holds the input and is awaited.
    pub(super) awaits_input: bool,
    /// Those of subgraphs and called tasks that have not been awaited yet, in the order in which they were submitted.
    pub(super) inside: Vec<CommitHandle>,
    /// The newest one that was submitted. Those before it are settled when it is.
    last: Option<CommitHandle>,
    /// Those of messages that are streamed, by their tasks. They are not commits of the run.
    messages: HashMap<TaskId, CommitHandle>,
}

impl RunCommits {
    /// Makes those of a run that has no commit yet.
    pub(super) fn new(awaits_input: bool) -> Self {
        Self { awaits_input, ..Self::default() }
    }

    /// Hands a batch to the background writer. The lock of the commits makes the newest one the last in its queue.
    pub(super) fn submit(&mut self, store: &Store, batch: Batch) -> CommitHandle {
        let handle = store.submit(batch);
        self.last = Some(handle.clone());
        handle
    }

    /// Hands a batch of a subgraph or a called task to the background writer. Returns those before it that are settled.
    pub(super) fn submit_inside(&mut self, store: &Store, batch: Batch) -> Vec<CommitHandle> {
        let handle = self.submit(store, batch);
        self.inside.push(handle);
        let settled = self.inside.iter().take_while(|handle| handle.is_settled()).count();
        self.inside.drain(..settled).collect()
    }

    /// Takes the oldest commits of subgraphs and called tasks, if too many are pending: the caller waits for them.
    pub(super) fn take_excess(&mut self) -> Vec<CommitHandle> {
        let excess = self.inside.len().saturating_sub(PENDING_COMMITS_MAX);
        self.inside.drain(..excess).collect()
    }

    /// Returns the newest commit, unless it is settled.
    pub(super) fn unsettled(&self) -> Option<CommitHandle> {
        self.last.clone().filter(|last| !last.is_settled())
    }

    /// Returns whether a message of a task is on its way to the store.
    pub(super) fn persists_message(&self, task: TaskId) -> bool {
        self.messages.get(&task).is_some_and(|handle| !handle.is_settled())
    }

    /// Hands a message that a task streams to the background writer. It is not a commit of the run: if it is refused,
    /// the run goes on.
    pub(super) fn persist_message(&mut self, task: TaskId, store: &Store, batch: Batch) {
        self.messages.insert(task, store.submit(batch));
    }
}

/// The commits of a graph that its loop has not waited for. If it is dropped before, whoever loads a head next waits
/// for them.
pub(in crate::drive) struct PendingCommits {
    own: VecDeque<CommitHandle>,
    /// The one that is awaited.
    awaited: Option<CommitHandle>,
    store: Option<Store>,
    host: Arc<RunHost>,
    inside: bool,
}

impl Drop for PendingCommits {
    fn drop(&mut self) {
        let Some(store) = &self.store else { return };
        store.abandon_commits(self.own.drain(..).chain(self.awaited.take()));
        if !self.inside {
            store.abandon_commits(self.host.commits.lock().inside.drain(..));
        }
    }
}

impl PendingCommits {
    pub(in crate::drive) fn new(begun: &ActiveRun) -> Self {
        let (store, host) = (begun.store.clone(), Arc::clone(&begun.host));
        Self { own: VecDeque::new(), awaited: None, store, host, inside: begun.inside }
    }

    /// Hands a batch to the background writer and waits for it.
    ///
    /// # Errors
    /// That of the batch.
    pub(in crate::drive) async fn write(&mut self, store: &Store, batch: Batch) -> Result<(), StoreError> {
        let handle = self.host.commits.lock().submit(store, batch);
        self.awaited = Some(handle.clone());
        handle.await
    }

    /// Hands a batch to the background writer, and waits first if too many are pending.
    ///
    /// # Errors
    /// That of an earlier batch.
    pub(in crate::drive) fn submit(&mut self, store: &Store, batch: Batch) -> Result<(), Error> {
        while self.is_first_due() {
            if let Some(handle) = self.own.pop_front() {
                handle.wait()?;
            }
        }
        self.own.push_back(self.host.commits.lock().submit(store, batch));
        Ok(())
    }

    /// As [`Self::submit`], without blocking.
    pub(in crate::drive) async fn submit_async(&mut self, store: &Store, batch: Batch) -> Result<(), Error> {
        while self.is_first_due() {
            if let Some(handle) = self.own.front().cloned() {
                handle.await?;
                self.own.pop_front();
            }
        }
        self.submit(store, batch)
    }

    /// Returns whether the oldest commit is settled, or to be waited for before another one is submitted.
    fn is_first_due(&self) -> bool {
        self.own.front().is_some_and(|first| first.is_settled() || self.own.len() >= PENDING_COMMITS_MAX)
    }

    /// Gathers what has to be waited for at the end of a run, in order: nothing inside another one, which does it once
    /// for all. Returns it; whoever is dropped while it waits leaves the rest.
    pub(in crate::drive) fn at_end(&mut self, begun: &ActiveRun) -> &mut VecDeque<CommitHandle> {
        let inside = &mut begun.host.commits.lock().inside;
        if begun.inside {
            inside.extend(self.own.drain(..));
        } else {
            self.own.extend(inside.drain(..));
        }
        &mut self.own
    }
}
