//! One history: its head, its past, and the points in it.

pub(crate) mod facts;
pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod info;
pub(crate) mod lease;
pub(crate) mod short_ids;
pub(crate) mod watch;

use std::fmt;
use std::sync::Arc;

use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::batch::{Batch, NewCheckpoint, Parent};
use crate::store::log::{CheckpointQuery, LogExt};
use crate::store::record::{CheckpointRecord, ThreadRecord, TimerRecord};
use crate::store::{CheckpointRef, Source, Store, StoreError};

use super::read::snapshot::Snapshot;
use filter::HistoryFilter;

/// The history of one conversation or workflow: a tree of checkpoints with a head.
///
/// Cheap to clone. It need not exist yet: the first run or update makes it.
#[derive(Clone)]
pub struct Thread {
    store: Store,
    id: ThreadId,
    /// The part of it that this handle shows.
    namespace: Namespace,
    /// The actor of the operations of this handle.
    actor: Option<Arc<str>>,
}

impl Store {
    /// Returns the thread with this id, whether it exists already or not.
    ///
    /// # Errors
    /// [`StoreError::Id`] if the id is empty, longer than 1,024 bytes, or holds a NUL.
    pub fn thread(&self, id: impl AsRef<str>) -> Result<Thread, StoreError> {
        let actor = self.actor().cloned();
        Ok(Thread { store: self.clone(), id: ThreadId::new(id)?, namespace: Namespace::root(), actor })
    }

    /// Lists all threads by id. For a file with very many, page through [`Store::threads_after`].
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn threads(&self) -> Result<Vec<ThreadRecord>, StoreError> {
        let mut all: Vec<ThreadRecord> = Vec::new();
        loop {
            let page = self.threads_after(all.last().map(|thread| &thread.id), PAGE_ROWS_MAX)?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Lists the next threads by id, after one or from the first on, at most `limit`. The cost is that of the page.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn threads_after(&self, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadRecord>, StoreError> {
        self.backend().threads(after, limit)
    }
}

impl Thread {
    /// Returns its id.
    pub fn id(&self) -> &ThreadId {
        &self.id
    }

    /// Returns the store it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns a handle whose operations name an actor: a user, a program, a part of a program. Default: that of
    /// [`OpenOptions::actor`](crate::store::OpenOptions::actor).
    pub fn by(&self, actor: impl Into<Arc<str>>) -> Self {
        Self { actor: Some(actor.into()), ..self.clone() }
    }

    /// Returns the actor that its operations name.
    pub fn actor(&self) -> Option<&str> {
        self.actor.as_deref()
    }

    /// Returns the part of the thread that this handle shows: that of the outermost graph, unless it was made by
    /// [`Thread::in_namespace`].
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns a handle to a namespace of the thread, such as that of a subgraph: its head, its history and its state.
    /// A run on it is one of the root graph all the same.
    ///
    /// # Errors
    /// [`StoreError::Id`] if the path is longer than 4,096 bytes or holds a NUL.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Draft { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("t")?;
    /// thread.update(Draft::update().text("whole"))?;
    /// let part = thread.in_namespace("write")?;
    /// part.update(Draft::update().text("part"))?;
    ///
    /// assert_eq!(part.with_state::<Draft>().state()?.text, "part");
    /// assert_eq!(thread.with_state::<Draft>().state()?.text, "whole");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "checkpoint_ns")]
    pub fn in_namespace(&self, path: impl AsRef<str>) -> Result<Self, StoreError> {
        Ok(Self { namespace: Namespace::new(path)?, ..self.clone() })
    }

    /// Returns the namespaces of the thread, sorted: the root, those of subgraphs, and those
    /// that executors reserve. None if the thread has no checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn namespaces(&self) -> Result<Vec<Namespace>, StoreError> {
        self.store.flush_abandoned();
        self.store.backend().namespaces(&self.id)
    }

    /// Returns the handle to another namespace of the thread: the history of a subgraph.
    pub fn with_namespace(&self, namespace: Namespace) -> Self {
        Self { namespace, ..self.clone() }
    }

    /// Runs a closure with this thread on a thread that may block, and returns its result as a future: see
    /// [`Store::unblock`].
    #[doc(alias("spawn_blocking", "async", "tokio"))]
    pub fn unblock<T, F>(&self, call: F) -> impl Future<Output = T> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> T + Send + 'static,
    {
        let thread = self.clone();
        self.store.unblock(move |_| call(&thread))
    }

    /// Returns the head: the newest checkpoint, or the one that the head was moved to since ([`Thread::rewind_to`]).
    /// `None` if the thread has no checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn head(&self) -> Result<Option<Snapshot>, StoreError> {
        self.store.flush_abandoned();
        let record = self.store.backend().head(&self.id, &self.namespace)?;
        Ok(record.map(|record| Snapshot::new(self.store.clone(), record)))
    }

    /// Lists the tasks that sleep at the head, by the timestamp at which they wake. Those of a workflow are in its root
    /// namespace, also if a called task or a subgraph sleeps. The cost does not depend on other threads.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// # fn main() -> annals::Result<()> {
    /// let store = annals::store::Store::memory();
    /// let thread = store.thread("order-17")?;
    /// thread.set("paid", false)?;
    /// assert_eq!(thread.timers()?, [], "no task sleeps");
    /// # Ok(())
    /// # }
    /// ```
    pub fn timers(&self) -> Result<Vec<TimerRecord>, StoreError> {
        self.store.flush_abandoned();
        self.store.backend().timers_of(&self.id, &self.namespace)
    }

    /// Returns the checkpoints of the namespace, newest first, abandoned branches included. No state is read.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; each item may fail alike.
    #[doc(alias = "get_state_history")]
    pub fn history(&self) -> Result<History, StoreError> {
        self.history_with(HistoryFilter::new())
    }

    /// Returns some of the checkpoints of the namespace, newest first. No state is read.
    ///
    /// # Errors
    /// As [`Thread::history`].
    pub fn history_with(&self, filter: HistoryFilter) -> Result<History, StoreError> {
        let mut query = CheckpointQuery::new(self.id.clone(), self.namespace.clone());
        query.before = filter.below();
        query.limit = filter.page_rows();
        self.store.flush_abandoned();
        let page = Vec::new().into_iter();
        let mut history = History { store: self.store.clone(), query, page, is_last: false, ended: false, filter };
        history.read_page()?;
        Ok(history)
    }

    /// Starts a thread whose state is that of a checkpoint elsewhere.
    pub(super) fn fork_of(from: &Snapshot, id: impl AsRef<str>) -> Result<Self, StoreError> {
        let thread = from.store().thread(id)?;
        let (store, root) = (&thread.store, Namespace::root());
        let step = from.record().step + 1;
        let id = store.mint_checkpoint(step, Some(&from.id()));
        let parent = Some(Parent::Fork(from.point().clone()));
        let mut checkpoint = NewCheckpoint::new(id, parent, step, Source::Fork, store.now());
        // The tasks stay due; they get new ids when the fork is run.
        checkpoint.tasks.clone_from(&from.record().tasks);
        let mut batch = Batch::new(thread.id.clone(), root, None);
        batch.checkpoints.push(checkpoint);
        store.commit(&batch)?;
        Ok(thread)
    }

    /// Returns the reference to a checkpoint of this thread and namespace. The checkpoint is not looked up.
    pub fn point(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef { thread: self.id.clone(), namespace: self.namespace.clone(), checkpoint }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("id", &self.id).field("namespace", &self.namespace).finish()
    }
}

/// The checkpoints of a thread, newest first, read page by page.
#[derive(Debug)]
pub struct History {
    store: Store,
    query: CheckpointQuery,
    page: std::vec::IntoIter<CheckpointRecord>,
    /// True if no page follows: this one has fewer records than were asked for.
    is_last: bool,
    ended: bool,
    filter: HistoryFilter,
}

impl History {
    /// Returns the next record, whether it is shown or not.
    fn record(&mut self) -> Result<Option<CheckpointRecord>, StoreError> {
        if self.page.as_slice().is_empty() && !self.is_last {
            self.read_page()?;
        }
        Ok(self.page.next())
    }

    fn read_page(&mut self) -> Result<(), StoreError> {
        let page = self.store.backend().checkpoints(&self.query)?;
        debug_assert!(
            page.first().zip(self.query.before).is_none_or(|(record, before)| record.point.checkpoint < before),
            "a page holds checkpoints below the last one of the page before"
        );
        self.is_last = page.len() < self.query.limit;
        self.query.before = page.last().map(|record| record.point.checkpoint);
        self.page = page.into_iter();
        Ok(())
    }
}

impl Iterator for History {
    type Item = Result<Snapshot, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && self.filter.limit != Some(0) {
            match self.record() {
                Ok(Some(record)) if self.filter.ends_before(&record) => self.ended = true,
                Ok(Some(record)) if !self.filter.shows(&record) => {}
                Ok(Some(record)) => {
                    self.filter.limit = self.filter.limit.map(|limit| limit - 1);
                    return Some(Ok(Snapshot::new(self.store.clone(), record)));
                }
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
