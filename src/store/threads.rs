//! Threads as a list shows them: their facts, their status and their last activity.
//!
//! The facts are fields that operations set. The status follows from the tasks due at the head, from the marks of
//! their stored writes, and from the metadata of the head. A listing is in the order of the last activity or of the
//! ids. *Absent:* how a backend finds the threads.

use std::fmt;
use std::str::FromStr;

use crate::base::limits::{PAGE_ROWS_MAX, PRIORITY_MAX};
use crate::base::{CheckpointId, ThreadId, Timestamp, setters};
use crate::limits::THREADS_LISTED_DEFAULT;

use super::counts::ThreadCounts;
use super::error::StoreError;
use super::marked::{MarkedWrite, marked};
use super::operation::{LABELS, OperationField, OperationValue, TRASHED, labels_of, trashed_until};
use super::record::{CheckpointRecord, WriteRecord};
use super::status::{PartialInfo, StatusKind};

pub(crate) const TITLE: &str = "title";
pub(crate) const PROJECT: &str = "project";
pub(crate) const ARCHIVED: &str = "archived";
pub(crate) const PINNED: &str = "pinned";
pub(crate) const PAUSED: &str = "paused";

/// The member of the metadata of a checkpoint that names the actor of an update.
pub(crate) const ACTOR: &str = "actor";

/// The facts that the users of a thread stated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadFacts {
    /// The title.
    pub title: Option<String>,
    /// The project that the thread belongs to.
    pub project: Option<String>,
    /// The labels, sorted.
    pub labels: Vec<String>,
    /// True if the thread is archived.
    pub is_archived: bool,
    /// True if the thread is pinned.
    pub is_pinned: bool,
    /// True if the thread is paused: workers pass it over.
    pub is_paused: bool,
    /// The end of its time in the trash; `None` if it is not there.
    pub trashed_until: Option<Timestamp>,
}

impl ThreadFacts {
    /// Decodes the fields of a thread that are facts. Others are passed over.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the labels are not a JSON list of texts.
    pub fn of(fields: impl IntoIterator<Item = (OperationField, OperationValue)>) -> Result<Self, StoreError> {
        let mut facts = Self::default();
        for (field, value) in fields {
            let (OperationField::Fact(name), OperationValue::Text(text)) = (field, value) else { continue };
            match name.as_str() {
                TITLE => facts.title = Some(text),
                PROJECT => facts.project = Some(text),
                LABELS => facts.labels = labels_of(&text)?,
                ARCHIVED => facts.is_archived = true,
                PINNED => facts.is_pinned = true,
                PAUSED => facts.is_paused = true,
                TRASHED => facts.trashed_until = trashed_until(&text),
                _ => {}
            }
        }
        Ok(facts)
    }
}

/// Returns the member of metadata that cancels a thread.
fn cancel_in(metadata: &serde_json::Value) -> Option<&serde_json::Value> {
    let reason = metadata.get(ThreadInfo::CANCELLED)?;
    (!matches!(reason, serde_json::Value::Null | serde_json::Value::Bool(false))).then_some(reason)
}

impl CheckpointRecord {
    /// Returns the reason for which the checkpoint cancels its thread, empty without one: the member `cancelled` of its
    /// metadata. `None` if it does not cancel it.
    pub fn cancel_reason(&self) -> Option<String> {
        let metadata = self.metadata.as_deref().filter(|text| text.contains(ThreadInfo::CANCELLED))?;
        let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
        cancel_in(&metadata).map(|reason| reason.as_str().unwrap_or_default().to_owned())
    }
}

/// A thread as a list shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The record of the head of its root namespace.
    pub record: CheckpointRecord,
    /// The position of its newest checkpoint in the log: threads with later activity have greater ones.
    pub seq: u64,
    /// The timestamp of its newest checkpoint, which is its last activity.
    pub updated_at: Timestamp,
    /// The facts that its users stated.
    pub facts: ThreadFacts,
    /// The status.
    pub status: StatusKind,
    /// The special writes from which the status follows, in the order of the tasks due at the head. An executor decodes
    /// their values.
    pub marked: Vec<MarkedWrite>,
    /// The name of the graph: the member `graph` of the metadata of the head.
    pub graph: Option<String>,
    /// The number of messages, and the tokens and the costs of model calls; `None` if rows from which they follow are
    /// damaged, and until a backend has set it. They are known without a read of the messages.
    pub counts: Option<ThreadCounts>,
    /// The priority of its run: the member `priority` of the metadata of the head, 0 without one, and at most 9. Of
    /// several runs in a queue the one with the greatest priority is claimed first.
    pub priority: u8,
    /// The mark of the partial message at the head, if there is one: an answer that is streamed, or was cut off. The
    /// status does not depend on it, because its writer may go on.
    pub partial: Option<PartialInfo>,
}

impl ThreadInfo {
    /// The member of the metadata of a checkpoint that names its graph.
    pub const GRAPH: &str = "graph";
    /// The member that holds the priority of its run.
    pub const PRIORITY: &str = "priority";
    /// The member that cancels its thread: the reason, or true.
    pub const CANCELLED: &str = "cancelled";

    /// Describes a thread: the head of its root namespace, the `seq` and the timestamp of the newest checkpoint there,
    /// the fields that operations set, and the stored writes of the head.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if a fact cannot be decoded.
    pub fn new(
        head: CheckpointRecord,
        seq: u64,
        updated_at: Timestamp,
        fields: Vec<(OperationField, OperationValue)>,
        writes: &[WriteRecord],
    ) -> Result<Self, StoreError> {
        let metadata = head.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let metadata = metadata.unwrap_or(serde_json::Value::Null);
        let marked = marked(&head, writes);
        let status = StatusKind::of(&head, cancel_in(&metadata).is_some(), &marked);
        let graph = metadata.get(Self::GRAPH).and_then(|name| name.as_str()).map(ToOwned::to_owned);
        let priority = metadata.get(Self::PRIORITY).and_then(|priority| priority.as_u64()).unwrap_or(0);
        let priority = u8::try_from(priority).unwrap_or(PRIORITY_MAX).min(PRIORITY_MAX);
        let (facts, partial) = (ThreadFacts::of(fields)?, PartialInfo::of(writes));
        Ok(Self { record: head, seq, updated_at, facts, status, marked, graph, counts: None, priority, partial })
    }

    /// Returns the id of the thread.
    pub fn id(&self) -> &ThreadId {
        &self.record.point.thread
    }

    /// Returns the id of the head.
    pub fn head(&self) -> CheckpointId {
        self.record.point.checkpoint
    }

    /// Returns branch and ordinal of the head.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.record.branch, self.record.ordinal)
    }

    /// Returns the title.
    pub fn title(&self) -> Option<&str> {
        self.facts.title.as_deref()
    }

    /// Returns whether its run waits for a runner: the status is `running`.
    pub(crate) fn is_queued(&self) -> bool {
        self.status == StatusKind::Running
    }

    /// Returns the place in the queue of its graph: the least is first.
    pub fn queue_place(&self) -> (u8, u64) {
        (PRIORITY_MAX - self.priority, self.seq)
    }

    /// Returns its place in a listing, after which another page begins.
    pub fn cursor(&self) -> ThreadCursor {
        ThreadCursor { seq: self.seq, priority: self.priority, id: self.id().clone() }
    }
}

/// The order of a listing of threads. Every backend knows all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadOrder {
    /// The newest activity first.
    #[default]
    Activity,
    /// By id, ascending.
    Id,
    /// The threads of a graph whose tasks are due, by the [priority](ThreadInfo::priority) of their run, then the
    /// oldest activity first.
    Queue,
}

/// A listing of threads by their facts and their status. Default: the 50 with the newest activity that are neither
/// archived nor in the trash.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ThreadQuery {
    /// Only threads of a project.
    pub project: Option<String>,
    /// Only threads with a label.
    pub label: Option<String>,
    /// Only threads whose title contains a text, in upper or lower case.
    pub title_contains: Option<String>,
    /// Only threads with this status.
    pub status: Option<StatusKind>,
    /// Only threads whose head has a partial message.
    pub partial: bool,
    /// Only threads of a graph.
    pub graph: Option<String>,
    /// The archived threads, or those that are not archived.
    pub archived: bool,
    /// Only the pinned threads, or only the others.
    pub pinned: Option<bool>,
    /// The threads in the trash, or those that are not there.
    pub trashed: bool,
    /// Only threads with a checkpoint at this timestamp or later.
    pub since: Option<Timestamp>,
    /// The order.
    pub order: ThreadOrder,
    /// The place of the thread after which the page begins.
    pub after: Option<ThreadCursor>,
    /// The maximum number of threads.
    pub limit: Option<usize>,
}

impl ThreadQuery {
    /// Lists all threads that are neither archived nor in the trash, at most 50.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Lists only threads of a project.
        pub fn project(project: impl Into<String>) { .project = Some(project.into()) }

        /// Lists only threads with a label.
        pub fn label(label: impl Into<String>) { .label = Some(label.into()) }

        /// Lists only threads whose title contains a text, in upper or lower case. No index has the titles: the cost is
        /// that of the threads that are passed over.
        pub fn title_contains(text: impl Into<String>) { .title_contains = Some(text.into().to_lowercase()) }

        /// Lists only threads with a status.
        pub fn status(status: impl Into<StatusKind>) { .status = Some(status.into()) }
    }

    /// Lists only threads whose head has a [partial message](ThreadInfo::partial).
    pub fn partial(mut self) -> Self {
        self.partial = true;
        self
    }

    setters! {
        /// Lists only threads of a [graph](ThreadInfo::graph).
        pub fn graph(name: impl Into<String>) { .graph = Some(name.into()) }

        /// Lists the archived threads, or those that are not archived. Default: those that are not.
        pub fn archived(archived: bool) { .archived = archived }

        /// Lists only the pinned threads, or only the others.
        pub fn pinned(pinned: bool) { .pinned = Some(pinned) }

        /// Lists the threads in the trash, or the others. Default: the others.
        pub fn trashed(trashed: bool) { .trashed = trashed }

        /// Lists only threads with a checkpoint at this timestamp or later. The cost is that of the threads that are
        /// passed over: the order of the log is not that of the timestamps, since a copy or an import has those of its
        /// original.
        pub fn since(at: Timestamp) { .since = Some(at) }
    }

    /// Lists by id instead of by the last activity. The cost is that of the threads that are passed over.
    pub fn by_id(mut self) -> Self {
        self.order = ThreadOrder::Id;
        self
    }

    /// Lists the queue of a graph: the threads whose tasks are due and neither sleep nor wait nor have failed, by the
    /// [priority](ThreadInfo::priority) of their run, then the oldest activity first. A run that a worker has claimed
    /// stays in it until it has stored a checkpoint. The cost is that of the page, however many threads there are.
    pub fn queue(mut self, graph: impl Into<String>) -> Self {
        self.order = ThreadOrder::Queue;
        self.graph(graph)
    }

    setters! {
        /// Begins after the last thread of another page.
        pub fn after(last: &ThreadInfo) { .after = Some(last.cursor()) }

        /// Lists at most so many threads. Default: 50.
        pub fn limit(limit: usize) { .limit = Some(limit) }
    }

    fn fits(&self, info: &ThreadInfo) -> bool {
        let facts = &info.facts;
        let title = || facts.title.as_deref().unwrap_or_default().to_lowercase();
        self.project.as_ref().is_none_or(|project| facts.project.as_ref() == Some(project))
            && self.label.as_ref().is_none_or(|label| facts.labels.contains(label))
            && self.title_contains.as_ref().is_none_or(|text| title().contains(text))
            && self.status.is_none_or(|status| status == info.status)
            && (!self.partial || info.partial.is_some())
            && self.graph.as_ref().is_none_or(|graph| info.graph.as_ref() == Some(graph))
            && self.archived == facts.is_archived
            && self.trashed == facts.trashed_until.is_some()
            && self.pinned.is_none_or(|pinned| pinned == facts.is_pinned)
            && (self.order != ThreadOrder::Queue || self.graph.is_some() && info.is_queued())
    }
}

/// The place of a thread in a listing, in any order. As text, it can be stored in an address and parsed again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadCursor {
    /// The [position](ThreadInfo::seq) of the thread in the log.
    pub seq: u64,
    /// The [priority](ThreadInfo::priority) of its run.
    pub priority: u8,
    /// The id of the thread.
    pub id: ThreadId,
}

impl ThreadCursor {
    /// Returns the place of the thread in the queue of its graph.
    pub fn queue_place(&self) -> (u8, u64) {
        (PRIORITY_MAX.saturating_sub(self.priority), self.seq)
    }
}

impl fmt::Display for ThreadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.seq, self.priority, self.id)
    }
}

impl FromStr for ThreadCursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let mut parts = text.splitn(3, '.');
        let numbers = parts.next().and_then(|seq| seq.parse().ok()).zip(parts.next().and_then(|of| of.parse().ok()));
        match (numbers, parts.next().and_then(|id| ThreadId::new(id).ok())) {
            (Some((seq, priority)), Some(id)) => Ok(Self { seq, priority, id }),
            _ => {
                let reason = format!("{text:?} is not a cursor of a listing (two numbers and an id, joined by dots)");
                Err(StoreError::Invalid { field: "cursor", reason })
            }
        }
    }
}

/// Collects the threads of a page from candidates in the order of the listing. Backends use it, so that all of them
/// filter alike.
#[derive(Debug)]
pub struct ThreadPage<'q> {
    query: &'q ThreadQuery,
    found: Vec<ThreadInfo>,
    limit: usize,
}

impl<'q> ThreadPage<'q> {
    /// Begins an empty page.
    pub fn new(query: &'q ThreadQuery) -> Self {
        let limit = query.limit.unwrap_or(THREADS_LISTED_DEFAULT).min(PAGE_ROWS_MAX);
        Self { query, found: Vec::new(), limit }
    }

    /// Returns whether the page has as many threads as were asked for.
    pub fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }

    /// Adds a candidate if it fits the query and comes after its cursor. Returns whether the listing goes on.
    pub fn offer(&mut self, info: ThreadInfo) -> bool {
        let is_old = self.query.since.is_some_and(|since| info.updated_at < since);
        let is_before = self.query.after.as_ref().is_some_and(|after| match self.query.order {
            ThreadOrder::Activity => info.seq >= after.seq,
            ThreadOrder::Id => *info.id() <= after.id,
            ThreadOrder::Queue => info.queue_place() <= after.queue_place(),
        });
        debug_assert!(
            self.query.order != ThreadOrder::Id || self.found.last().is_none_or(|last| last.id() < info.id())
        );
        if !is_old && !is_before && !self.is_full() && self.query.fits(&info) {
            self.found.push(info);
        }
        !self.is_full()
    }

    /// Returns the threads.
    pub fn into_threads(self) -> Vec<ThreadInfo> {
        debug_assert!(self.found.len() <= self.limit, "a page has at most as many threads as were asked for");
        self.found
    }
}
