//! Runs controlled from outside: cancelled, paused, retried, restarted, waited for. No graph and no types are needed,
//! and the run may be in another process.
//!
//! A cancel is a checkpoint without due tasks whose metadata have the reason, so a run under way is refused at its next
//! commit. A pause is a fact. *Absent:* stopping the run between two commits, which its driver does.

use std::time::Duration;

use crate::base::internal::Stopwatch;
use crate::base::limits::{UPDATE_ATTEMPTS_MAX, WORKER_PAGE_ROWS};
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::log::{HeadParts, NamespaceRef, ThreadParts, ThreadRow, ThreadRows};
use crate::store::threads::{CANCELLED, EARLIER_ERROR, ERROR, GRAPH, INTERRUPT, cancelled_by};
use crate::store::{
    Batch, LogExt, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent, Source, Store, StoreError, StoredHead,
    ThreadFacts, ThreadInfo, ThreadQuery, ThreadStatus, WriteRecord, WriteValue,
};

use super::interrupts::is_call;
use crate::history::read::snapshot::Snapshot;
use crate::history::thread::Thread;

/// The request of somebody outside to a run of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlOrder {
    /// The thread was cancelled, for this reason.
    Cancel(String),
    /// The thread is paused.
    Pause,
}

impl Store {
    /// Returns the requests from outside to runs, in their order: a cancel since the run began on a head, or a pause.
    /// Each run is given by its thread and that head. The log is read twice, however many runs there are: the records
    /// of their heads, and their facts.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn control_orders(
        &self,
        runs: &[(&ThreadId, Option<CheckpointId>)],
    ) -> Result<Vec<Option<ControlOrder>>, StoreError> {
        let (root, fields) = (Namespace::root(), ThreadParts { fields: true, ..ThreadParts::default() });
        let places: Vec<NamespaceRef<'_>> = runs.iter().map(|(thread, _)| (*thread, &root)).collect();
        let threads: Vec<&ThreadId> = runs.iter().map(|(thread, _)| *thread).collect();
        let heads = self.backend().heads(&places, HeadParts::RECORD)?;
        let rows = self.backend().thread_rows(&ThreadRows::Ids(&threads), fields)?;
        let order = |(((_, began), head), row): ((&(_, Option<CheckpointId>), Option<StoredHead>), ThreadRow)| {
            let head = head.filter(|head| Some(head.checkpoint) != *began).and_then(|head| head.record);
            if let Some(reason) = head.as_ref().and_then(cancelled_by) {
                return Ok(Some(ControlOrder::Cancel(reason)));
            }
            Ok(ThreadFacts::of(row.fields)?.is_paused.then_some(ControlOrder::Pause))
        };
        runs.iter().zip(heads).zip(rows).map(order).collect()
    }

    /// Cancels a thread: [`Thread::cancel`].
    ///
    /// # Errors
    /// As [`Thread::cancel`]; [`StoreError::Id`].
    pub fn cancel(&self, thread: impl AsRef<str>, reason: &str) -> Result<bool, StoreError> {
        self.thread(thread)?.cancel(reason)
    }

    /// Pauses a thread: [`Thread::pause`].
    ///
    /// # Errors
    /// As [`Thread::pause`]; [`StoreError::Id`].
    pub fn pause(&self, thread: impl AsRef<str>) -> Result<(), StoreError> {
        self.thread(thread)?.pause()
    }

    /// Ends the pause of a thread: [`Thread::resume`].
    ///
    /// # Errors
    /// As [`Thread::pause`]; [`StoreError::Id`].
    pub fn resume(&self, thread: impl AsRef<str>) -> Result<(), StoreError> {
        self.thread(thread)?.resume()
    }

    /// Makes the failed tasks of a thread due again: [`Thread::retry`].
    ///
    /// # Errors
    /// As [`Thread::retry`]; [`StoreError::Id`].
    pub fn retry(&self, thread: impl AsRef<str>) -> Result<bool, StoreError> {
        self.thread(thread)?.retry()
    }

    /// Calls a function for each thread of a query, page by page, and returns how often it returned true. Without
    /// [`ThreadQuery::limit`] all threads of the query are visited, each once; the function may change them.
    ///
    /// # Errors
    /// Those of the function, which end the visit; as [`Store::threads_with`].
    ///
    /// # Example
    /// ```
    /// use annals::history::ThreadQuery;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for name in ["bern", "basel"] {
    ///     let thread = store.thread(name)?;
    ///     thread.append("messages", [Message::human("hi")])?;
    ///     thread.facts().label("old").save()?;
    /// }
    /// let paused = store.for_each_thread(ThreadQuery::new().label("old"), |thread| thread.pause().map(|()| true))?;
    /// assert_eq!(paused, 2);
    /// assert!(store.thread("bern")?.info()?.facts().is_paused);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_each_thread(
        &self,
        query: ThreadQuery,
        mut act: impl FnMut(&Thread) -> Result<bool, StoreError>,
    ) -> Result<u64, StoreError> {
        let (mut left, mut acted) = (query.limit.unwrap_or(usize::MAX), 0);
        let mut query = query;
        while left > 0 {
            query = query.limit(left.min(WORKER_PAGE_ROWS));
            let page = self.threads_with(query.clone())?;
            let Some(last) = page.last() else { break };
            for info in &page {
                acted += u64::from(act(&self.thread(info.id())?)?);
            }
            left -= page.len().min(left);
            query = query.after(last);
        }
        Ok(acted)
    }
}

impl Thread {
    /// Cancels the thread: its status is `cancelled` with the reason, no task is due, and no worker continues it. A run
    /// under way, also in another process, ends as cancelled at its next commit; if it has a lease, within 100 ms. The
    /// tasks that have ended keep their results, and [`Thread::undo`] takes the cancel back. Returns `false`, and
    /// stores nothing, if the thread is done or cancelled already.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint; [`StoreError::Invalid`] if the reason is beyond
    /// the limit of metadata; [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](crate::store::Log::submit).
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// store.thread("order-17")?.append("messages", [Message::human("hi")])?;
    /// assert!(!store.cancel("order-17", "the customer asked")?, "nothing was due");
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, reason: &str) -> Result<bool, StoreError> {
        let mut attempt = 1;
        loop {
            let info = self.info()?;
            if matches!(info.status(), ThreadStatus::Done | ThreadStatus::Cancelled(_)) {
                return Ok(false);
            }
            let mut metadata = serde_json::Map::new();
            metadata.insert(CANCELLED.to_owned(), reason.into());
            metadata.extend(info.graph().map(|graph| (GRAPH.to_owned(), graph.into())));
            match self.commit_control(&info, info.head(), Source::Update, metadata) {
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                done => return done.map(|_| true),
            }
        }
    }

    /// Pauses the thread: workers pass it over, and a run with a lease stops at the end of its superstep, within 100 ms
    /// of it. The status stays as it is; [`ThreadFacts::is_paused`](crate::store::ThreadFacts::is_paused) tells. A run
    /// that is started by a program is not refused.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint; as
    /// [`FactsUpdate::save`](crate::history::FactsUpdate::save).
    pub fn pause(&self) -> Result<(), StoreError> {
        self.facts().paused(true).save()
    }

    /// Ends the pause of the thread: a worker continues it if tasks are due. Resume values of interrupts are given with
    /// [`Thread::resume_interrupt`].
    ///
    /// # Errors
    /// As [`Thread::pause`].
    pub fn resume(&self) -> Result<(), StoreError> {
        self.facts().paused(false).save()
    }

    /// Makes the failed tasks of the head due again: the stored errors are cleared, and a worker continues the run.
    /// Returns `false`, and stores nothing, if no task has failed.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint; [`StoreError::Conflict`] if other writers were
    /// faster 64 times in a row; as [`Log::submit`](crate::store::Log::submit).
    pub fn retry(&self) -> Result<bool, StoreError> {
        let mut attempt = 1;
        loop {
            match self.retry_once() {
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                done => return done,
            }
        }
    }

    fn retry_once(&self) -> Result<bool, StoreError> {
        self.store().settle_abandoned();
        let missing = || StoreError::ThreadNotFound { id: self.id().clone() };
        let root = Namespace::root();
        let stored = self.store().backend().head_with_writes(self.id(), &root)?.ok_or_else(missing)?;
        let has_ended = |task| stored.writes.iter().any(|write| write.task == task && write.index >= 0);
        let mut batch = Batch::new(self.id().clone(), root, Some(stored.checkpoint));
        let failed = stored.writes.iter().filter(|write| write.index == ERROR.1 && write.value != WriteValue::Null);
        for write in failed.filter(|write| !has_ended(write.task)) {
            // Its interrupts go too: it went past them, so they are not open.
            let clear = |(name, index)| NewWrite::new(index, name, WriteValue::Null);
            let mut cleared = vec![clear(ERROR), clear(INTERRUPT)];
            let of_task = |other: &&WriteRecord| other.task == write.task && other.index == EARLIER_ERROR.1;
            cleared.extend(stored.writes.iter().find(of_task).map(|_| clear(EARLIER_ERROR)));
            let writes = NewWrites::new(stored.checkpoint, write.task, write.path.clone()).with(cleared);
            batch.writes.push(writes);
            // A worker finds the task by its timer.
            if !is_call(&stored.writes, write.task) {
                batch.timers.push(NewTimer::new(stored.checkpoint, write.task, Some(self.store().now())));
            }
        }
        if batch.writes.is_empty() {
            return Ok(false);
        }
        self.store().commit(&batch).map(|()| true)
    }

    /// Continues the thread from an older checkpoint: a new checkpoint with its state and its due tasks becomes the
    /// head, as a branch off it, and a worker runs the tasks anew. A run under way gets a conflict. Returns the new
    /// checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the checkpoint is of another thread or namespace, or no task is due there;
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](crate::store::Log::submit).
    pub fn restart_from(&self, snapshot: &Snapshot) -> Result<CheckpointId, StoreError> {
        let (point, record) = (snapshot.point(), snapshot.record());
        let invalid = |reason: &str| Err(StoreError::Invalid { field: "snapshot", reason: reason.to_owned() });
        if point.thread != *self.id() || !point.namespace.is_root() {
            return invalid("it is not a checkpoint of the root namespace of the thread");
        }
        if record.tasks.is_empty() {
            return invalid("no task is due there");
        }
        let mut attempt = 1;
        loop {
            let info = self.info()?;
            let metadata = info.graph().map(|graph| (GRAPH.to_owned(), graph.into()));
            let metadata = metadata.into_iter().collect();
            match self.commit_control(&info, point.checkpoint, Source::Fork, metadata) {
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                done => return done,
            }
        }
    }

    /// Commits a checkpoint on the head that changes no channel: without tasks, or, for a fork of an older one, with
    /// its tasks.
    fn commit_control(
        &self,
        info: &ThreadInfo,
        parent: CheckpointId,
        source: Source,
        metadata: serde_json::Map<String, serde_json::Value>,
    ) -> Result<CheckpointId, StoreError> {
        let (store, root) = (self.store(), Namespace::root());
        let unknown = || StoreError::CheckpointNotFound { thread: self.id().clone(), id: parent.to_string() };
        let of = self.with_namespace(root.clone()).point(parent);
        let record = store.backend().checkpoint(&of)?.ok_or_else(unknown)?;
        let step = record.step.max(-1) + 1;
        let id = store.mint_checkpoint(step, Some(&info.head().max(parent)));
        let mut checkpoint = NewCheckpoint::new(id, Some(Parent::Local(parent)), step, source, store.now());
        if !metadata.is_empty() {
            checkpoint.metadata = Some(serde_json::Value::Object(metadata).to_string());
        }
        if source == Source::Fork {
            // They get new ids when the graph runs.
            checkpoint.tasks.clone_from(&record.tasks);
        }
        let mut batch = Batch::new(self.id().clone(), root, Some(info.head()));
        batch.checkpoints.push(checkpoint);
        store.commit_raised(&mut batch)?;
        Ok(batch.head_after().unwrap_or(id))
    }

    /// Returns the reason for which the thread is cancelled, empty without one; `None` if it is not cancelled. The cost
    /// is that of the record of the head.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn cancel_reason(&self) -> Result<Option<String>, StoreError> {
        let head = self.store().backend().head(self.id(), &Namespace::root())?;
        Ok(head.as_ref().and_then(cancelled_by))
    }

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
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("order-17")?;
    /// assert!(thread.wait_for_end(Duration::from_millis(1))?.is_none(), "it does not exist");
    /// thread.append("messages", [Message::human("hi")])?;
    /// let ended = thread.wait_for_end(Duration::from_secs(5))?.expect("nothing is due");
    /// assert_eq!(ended.status().as_str(), "done");
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_for_end(&self, timeout: Duration) -> Result<Option<ThreadInfo>, StoreError> {
        let (store, since) = (self.store(), Stopwatch::start());
        store.settle_abandoned();
        let mut signals = store.backend().watch_log()?;
        loop {
            let seen = signals.signal.count();
            if let Some(info) = store.backend().thread_info(self.id())?
                && !matches!(info.status(), ThreadStatus::Running | ThreadStatus::Sleeping(_))
                && !store.backend().lease(self.id())?.is_some_and(|lease| lease.is_live(store.now()))
            {
                return Ok(Some(info));
            }
            let Some(left) = timeout.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(None);
            };
            signals.wait(seen, left)?;
        }
    }
}
