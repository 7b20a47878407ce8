//! Threads as a list shows them: their facts, their status and their last activity.
//!
//! The status and the last activity follow from the log and are read when they are asked for, so that a commit costs
//! nothing for them. *Absent:* the facts that users state ([`ThreadFacts`]).

use std::fmt;

use crate::base::{CheckpointId, Namespace, ThreadId, Timestamp, Value};
use crate::store::{CheckpointQuery, CheckpointRecord, CheckpointRef, RecentThread, Store, StoreError, WriteRecord};

use super::facts::ThreadFacts;
use super::snapshot::write_value;
use super::thread::Thread;

/// Threads that one read brings.
const PAGE: usize = 64;

/// The status of a thread, which follows from the tasks due at its head and from their stored writes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ThreadStatus {
    /// No task is due.
    Done,
    /// Tasks are due that have neither failed nor interrupted: a run is under way, or its process ended.
    Due,
    /// Tasks wait at interrupts: the value of each.
    Interrupted(Vec<Value>),
    /// A task failed: the message.
    Failed(String),
    /// All tasks that wait sleep: the first timestamp at which one can resume.
    Sleeping(Timestamp),
}

impl ThreadStatus {
    /// Returns the name: `done`, `due`, `interrupted`, `failed` or `sleeping`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Due => "due",
            Self::Interrupted(_) => "interrupted",
            Self::Failed(_) => "failed",
            Self::Sleeping(_) => "sleeping",
        }
    }

    fn of(head: &CheckpointRecord, writes: &[WriteRecord]) -> Result<Self, StoreError> {
        let (mut asked, mut wake_at, mut failed) = (Vec::new(), None::<i64>, None);
        for task in &head.tasks {
            let of_task = || writes.iter().filter(|write| write.task == task.id);
            if of_task().any(|write| write.index >= 0) {
                continue;
            }
            for write in of_task() {
                let value = write_value(&write.value)?;
                match &*write.channel {
                    "__error__" => failed = failed.or(value.as_str().map(ToOwned::to_owned)),
                    "__interrupt__" => {
                        for interrupt in value.as_list().unwrap_or_default() {
                            match interrupt.get("wake_at").and_then(Value::as_int) {
                                Some(at) => wake_at = Some(wake_at.map_or(at, |first| first.min(at))),
                                None => asked.push(interrupt.get("value").cloned().unwrap_or_default()),
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(match (failed, asked.is_empty(), wake_at) {
            (Some(message), ..) => Self::Failed(message),
            (None, false, _) => Self::Interrupted(asked),
            (None, true, Some(at)) => Self::Sleeping(Timestamp::from_micros(at)),
            (None, true, None) if head.tasks.is_empty() => Self::Done,
            (None, true, None) => Self::Due,
        })
    }
}

impl fmt::Display for ThreadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A thread as a list shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadInfo {
    head: CheckpointRecord,
    /// The position of its newest checkpoint in the log.
    seq: u64,
    updated_at: Timestamp,
    facts: ThreadFacts,
    status: ThreadStatus,
}

impl ThreadInfo {
    /// Returns the id of the thread.
    pub fn id(&self) -> &ThreadId {
        &self.head.point.thread
    }

    /// Returns the head.
    pub fn head(&self) -> CheckpointId {
        self.head.point.checkpoint
    }

    /// Returns the facts that its users stated.
    pub fn facts(&self) -> &ThreadFacts {
        &self.facts
    }

    /// Returns the title.
    pub fn title(&self) -> Option<&str> {
        self.facts.title.as_deref()
    }

    /// Returns the status.
    pub fn status(&self) -> &ThreadStatus {
        &self.status
    }

    /// Returns the timestamp of its newest checkpoint.
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    fn of(store: &Store, recent: RecentThread, facts: ThreadFacts) -> Result<Self, StoreError> {
        let RecentThread { head, seq, at } = recent;
        let writes = if head.tasks.is_empty() { Vec::new() } else { store.backend().writes(&head.point)? };
        let status = ThreadStatus::of(&head, &writes)?;
        Ok(Self { head, seq, updated_at: at, facts, status })
    }
}

/// A listing of threads by their last activity, the newest first.
#[derive(Clone, Debug, Default)]
pub struct ThreadQuery {
    project: Option<String>,
    label: Option<String>,
    title_contains: Option<String>,
    status: Option<&'static str>,
    archived: Option<bool>,
    pinned: Option<bool>,
    since: Option<Timestamp>,
    before: Option<u64>,
    limit: Option<usize>,
}

impl ThreadQuery {
    /// Lists all threads that are not archived, at most 50.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists only threads of a project.
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.project = Some(project.into());
        self
    }

    /// Lists only threads with a label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Lists only threads whose title contains a text, in upper or lower case.
    pub fn title_contains(mut self, text: impl Into<String>) -> Self {
        self.title_contains = Some(text.into().to_lowercase());
        self
    }

    /// Lists only threads whose status has the same [name](ThreadStatus::as_str).
    pub fn status(mut self, status: &ThreadStatus) -> Self {
        self.status = Some(status.as_str());
        self
    }

    /// Lists the archived threads, or those that are not archived. Default: those that are not.
    pub fn archived(mut self, archived: bool) -> Self {
        self.archived = Some(archived);
        self
    }

    /// Lists only the pinned threads, or only the others.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = Some(pinned);
        self
    }

    /// Lists only threads with a checkpoint at this timestamp or later.
    pub fn since(mut self, at: Timestamp) -> Self {
        self.since = Some(at);
        self
    }

    /// Begins after the last thread of another page.
    pub fn after(mut self, last: &ThreadInfo) -> Self {
        self.before = Some(last.seq);
        self
    }

    /// Lists at most so many threads. Default: 50.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    fn fits(&self, facts: &ThreadFacts) -> bool {
        let title = || facts.title.as_deref().unwrap_or_default().to_lowercase();
        self.project.as_ref().is_none_or(|project| facts.project.as_ref() == Some(project))
            && self.label.as_ref().is_none_or(|label| facts.labels.contains(label))
            && self.title_contains.as_ref().is_none_or(|text| title().contains(text))
            && self.archived.unwrap_or(false) == facts.is_archived
            && self.pinned.is_none_or(|pinned| pinned == facts.is_pinned)
    }
}

impl Store {
    /// Lists threads with their facts, the one with the newest checkpoint first. It reads the log backwards, and some rows of
    /// each thread in it: without filters the cost is that of the checkpoints since the last activity of the last thread
    /// that is listed, however many threads there are.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    ///
    /// # Example
    /// ```
    /// use annals::history::ThreadQuery;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for (name, project) in [("bern", "travel"), ("tax", "home"), ("basel", "travel")] {
    ///     let thread = store.thread(name)?;
    ///     thread.append("messages", [Message::human("hi")])?;
    ///     thread.facts().title(name.to_uppercase()).project(project).save()?;
    /// }
    /// let query = ThreadQuery::new().project("travel");
    /// let listed = store.threads_with(query.clone())?;
    /// let titles: Vec<_> = listed.iter().map(|thread| (thread.title(), thread.status().as_str())).collect();
    /// assert_eq!(titles, [(Some("BASEL"), "done"), (Some("BERN"), "done")]);
    /// assert_eq!(store.threads_with(query.after(&listed[0]))?.len(), 1, "the next page");
    /// # Ok(())
    /// # }
    /// ```
    pub fn threads_with(&self, query: ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        self.settle_abandoned();
        let (mut before, mut found) = (query.before, Vec::new());
        let limit = query.limit.unwrap_or(50);
        while found.len() < limit {
            let page = self.backend().recent_threads(before, PAGE)?;
            let Some(last) = page.last() else { break };
            debug_assert!(before.is_none_or(|before| last.seq < before), "a page is older than the one before");
            before = Some(last.seq);
            for recent in page {
                if query.since.is_some_and(|since| recent.at < since) {
                    return Ok(found);
                }
                let facts = ThreadFacts::of(self.backend().fields(&recent.head.point.thread)?)?;
                if !query.fits(&facts) {
                    continue;
                }
                let info = ThreadInfo::of(self, recent, facts)?;
                if query.status.is_none_or(|status| status == info.status.as_str()) {
                    found.push(info);
                    if found.len() == limit {
                        break;
                    }
                }
            }
        }
        debug_assert!(found.len() <= limit, "a page has at most as many threads as were asked for");
        Ok(found)
    }
}

impl Thread {
    /// Returns the thread as a list shows it.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn info(&self) -> Result<ThreadInfo, StoreError> {
        self.store().settle_abandoned();
        let (backend, root) = (self.store().backend(), Namespace::root());
        let not_found = || StoreError::ThreadNotFound { id: self.id().clone() };
        let head = backend.head(self.id(), &root)?.ok_or_else(not_found)?;
        let mut newest = CheckpointQuery::new(self.id().clone(), root);
        newest.limit = 1;
        let newest = backend.checkpoints(&newest)?.pop().ok_or_else(not_found)?;
        let recent = RecentThread::new(head, newest.seq, newest.created_at);
        ThreadInfo::of(self.store(), recent, self.stated_facts()?)
    }

    /// Returns the threads that were forked from this one, the first fork first.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let trip = Store::memory().thread("trip")?;
    /// let first = trip.at(trip.append("messages", [Message::human("hi")])?)?;
    /// let fork = first.fork_to("trip by train")?;
    /// assert_eq!(trip.forks()?, [fork.id().clone()]);
    /// assert_eq!(fork.forked_from()?.as_ref(), Some(first.point()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn forks(&self) -> Result<Vec<ThreadId>, StoreError> {
        self.store().settle_abandoned();
        self.store().backend().forks(self.id())
    }

    /// Returns the checkpoint of another thread from which this one was forked; `None` if it began with nothing, or does not
    /// exist.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn forked_from(&self) -> Result<Option<CheckpointRef>, StoreError> {
        self.store().settle_abandoned();
        self.store().backend().forked_from(self.id())
    }
}
