//! Threads as a list shows them: their facts, their status and their last activity.
//!
//! The facts are fields that operations set. The status follows from the tasks due at the head, from their stored
//! writes, and from the metadata of the head. A listing is in the order of the last activity or of the ids. *Absent:*
//! how a backend finds the threads.

use std::fmt;

use crate::base::limits::{PAGE_ROWS_MAX, PRIORITY_MAX, THREADS_LISTED_DEFAULT};
use crate::base::{CheckpointId, TaskId, ThreadId, Timestamp, Value};

use super::batch::{NewWrite, NewWrites, WriteValue};
use super::counts::ThreadCounts;
use super::error::StoreError;
use super::operation::{OperationField, OperationValue, TRASHED, trashed_until};
use super::record::{CheckpointRecord, WriteRecord, plain_value};
use super::status::{PartialInfo, StatusKind};

pub(crate) const TITLE: &str = "title";
pub(crate) const PROJECT: &str = "project";
pub(crate) const LABELS: &str = "labels";
pub(crate) const ARCHIVED: &str = "archived";
pub(crate) const PINNED: &str = "pinned";
pub(crate) const PAUSED: &str = "paused";

/// The member of the metadata of a checkpoint that names its graph.
pub(crate) const GRAPH: &str = "graph";
/// The member of the metadata of a checkpoint that names the actor of an update.
pub(crate) const ACTOR: &str = "actor";
/// The member of the metadata of a checkpoint that holds the priority of its run.
pub(crate) const PRIORITY: &str = "priority";
/// The channel and the index of the write of a task that failed.
pub(crate) const ERROR: (&str, i32) = ("__error__", -1);
/// The channel and the index of the message of the error of a task whose run was continued too often.
pub(crate) const STUCK: (&str, i32) = ("__stuck__", -17);
/// The channel and the index of the write of a task that interrupted.
pub(crate) const INTERRUPT: (&str, i32) = ("__interrupt__", -3);
/// The member of the metadata of a checkpoint that cancels the thread: the reason, or true.
pub(crate) const CANCELLED: &str = "cancelled";

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

pub(super) fn labels_of(text: &str) -> Result<Vec<String>, StoreError> {
    let wrong = || StoreError::Corrupt { place: "fact labels".into(), reason: "it is not a list of texts".into() };
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let labels = parsed.as_array().ok_or_else(wrong)?.iter();
    labels.map(|label| label.as_str().map(ToOwned::to_owned).ok_or_else(wrong)).collect()
}

/// The status of a thread, which follows from its head: from the tasks due there, their stored writes, and the
/// metadata.
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
    /// Returns the name: `done`, `running`, `interrupted`, `failed`, `sleeping`, `cancelled` or `stuck`.
    pub fn as_str(&self) -> &'static str {
        self.kind().as_str()
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
            Self::Stuck(_) => StatusKind::Stuck,
        }
    }

    /// Returns the number by which the file knows it.
    pub(crate) fn number(&self) -> usize {
        self.kind() as usize
    }

    /// Returns whether a thread whose status has a number keeps the name of its status, whatever else is stored, when
    /// its tasks store these writes without a checkpoint. `false` if that depends on other writes.
    pub(crate) fn remains(number: usize, writes: &[NewWrites]) -> bool {
        let all = || writes.iter().flat_map(|task| &task.writes);
        // The special writes of a task count until it has another one.
        let ends = all().any(|write| write.index >= 0);
        let is_error = |write: &NewWrite| write.index == ERROR.1 && &*write.channel == ERROR.0;
        let is_interrupt = |write: &NewWrite| write.index == INTERRUPT.1 && &*write.channel == INTERRUPT.0;
        let is_cleared = |write: &NewWrite| write.value == WriteValue::Null;
        let sleeps = |write: &NewWrite| match special_value(&write.value) {
            Value::List(interrupts) => interrupts.iter().all(|interrupt| wakes_at(interrupt).is_some()),
            _ => false,
        };
        let decides = |write: &&NewWrite| {
            let is_of_slot = [ERROR.1, INTERRUPT.1, STUCK.1].contains(&write.index);
            write.index < 0 && (is_of_slot || [ERROR.0, INTERRUPT.0, STUCK.0].contains(&&*write.channel))
        };
        let mut deciding = all().filter(decides);
        match number {
            // No task is due, or the metadata decide.
            0 | 5 => true,
            1 => deciding.next().is_none(),
            2 => !ends && deciding.all(|write| is_interrupt(write) && !is_cleared(write) && !sleeps(write)),
            3 => !ends && deciding.all(|write| !is_cleared(write) && (is_error(write) || is_interrupt(write))),
            4 => !ends && deciding.all(|write| is_interrupt(write) && sleeps(write)),
            _ => false,
        }
    }

    /// Derives the status from a head, its metadata and the stored writes of its tasks.
    fn of(head: &CheckpointRecord, metadata: &serde_json::Value, writes: &[WriteRecord]) -> Self {
        if let Some(reason) = cancel_in(metadata) {
            return Self::Cancelled(reason.as_str().map(ToOwned::to_owned));
        }
        let (mut values, mut wake_at, mut failed, mut is_stuck) = (Vec::new(), None::<i64>, None, false);
        for task in &head.tasks {
            let of_task = || writes.iter().filter(|write| write.task == task.id);
            if of_task().any(|write| write.index >= 0) {
                continue;
            }
            for write in of_task().filter(|write| write.value != WriteValue::Null) {
                match &*write.channel {
                    channel if channel == ERROR.0 => {
                        let error = special_value(&write.value);
                        // The mark names the error that it stands for: another error takes its place.
                        let mut marks = of_task().filter(|write| &*write.channel == STUCK.0);
                        is_stuck |= marks.any(|mark| special_value(&mark.value) == error);
                        failed = failed.or_else(|| Some(error.as_str().unwrap_or_default().to_owned()));
                    }
                    channel if channel == INTERRUPT.0 => match special_value(&write.value) {
                        Value::List(interrupts) => {
                            for interrupt in interrupts {
                                match wakes_at(&interrupt) {
                                    Some(at) => wake_at = Some(wake_at.map_or(at, |first| first.min(at))),
                                    None => values.push(interrupt.get("value").cloned().unwrap_or_default()),
                                }
                            }
                        }
                        other => values.push(other),
                    },
                    _ => {}
                }
            }
        }
        match (failed, values.is_empty(), wake_at) {
            (Some(message), ..) if is_stuck => Self::Stuck(message),
            (Some(message), ..) => Self::Failed(message),
            (None, false, _) => Self::Interrupted(values),
            (None, true, Some(at)) => Self::Sleeping(Timestamp::from_micros(at)),
            (None, true, None) if head.tasks.is_empty() => Self::Done,
            (None, true, None) => Self::Running,
        }
    }
}

/// Returns the tasks of a head that sleep: they have not ended, and wait at an interrupt with a timestamp. Each comes
/// with the first of its timestamps.
pub fn sleeping(head: &CheckpointRecord, writes: &[WriteRecord]) -> Vec<(TaskId, Timestamp)> {
    let wakes = |task: TaskId| {
        let of_task = || writes.iter().filter(move |write| write.task == task);
        if of_task().any(|write| write.index >= 0) {
            return None;
        }
        let mut interrupts = of_task().filter(|write| &*write.channel == INTERRUPT.0);
        let Value::List(interrupts) = special_value(&interrupts.next()?.value) else { return None };
        let first = interrupts.iter().filter_map(wakes_at).min()?;
        Some((task, Timestamp::from_micros(first)))
    };
    head.tasks.iter().filter_map(|task| wakes(task.id)).collect()
}

/// Returns the tasks of a head whose timers are missing: those that sleep, have not failed since, and are not found by
/// `has_timer`.
pub fn without_timer(
    head: &CheckpointRecord,
    writes: &[WriteRecord],
    has_timer: impl Fn(TaskId) -> bool,
) -> Vec<(TaskId, Timestamp)> {
    // The interrupts of a task that slept stay when it fails; its error is cleared when it sleeps again.
    let is_error = |write: &WriteRecord| write.index == ERROR.1 && write.value != WriteValue::Null;
    let has_failed = |task: TaskId| writes.iter().any(|write| write.task == task && is_error(write));
    let mut sleeping = sleeping(head, writes);
    sleeping.retain(|(task, _)| !has_failed(*task) && !has_timer(*task));
    sleeping
}

/// Returns the member of metadata that cancels a thread.
fn cancel_in(metadata: &serde_json::Value) -> Option<&serde_json::Value> {
    let reason = metadata.get(CANCELLED)?;
    (!matches!(reason, serde_json::Value::Null | serde_json::Value::Bool(false))).then_some(reason)
}

impl CheckpointRecord {
    /// Returns the reason for which the checkpoint cancels its thread, empty without one: the member `cancelled` of its
    /// metadata. `None` if it does not cancel it.
    pub fn cancel_reason(&self) -> Option<String> {
        let metadata = self.metadata.as_deref().filter(|text| text.contains(CANCELLED))?;
        let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
        cancel_in(&metadata).map(|reason| reason.as_str().unwrap_or_default().to_owned())
    }
}

/// Returns the timestamp from which on an interrupt can resume, if it is of a task that sleeps.
fn wakes_at(interrupt: &Value) -> Option<i64> {
    interrupt.get("wake_at").and_then(Value::as_int)
}

/// Decodes the value of a special write. One that cannot be decoded counts as null: another program may have written
/// it, and a listing shows its thread all the same.
fn special_value(value: &WriteValue) -> Value {
    match value {
        WriteValue::One(payload) => plain_value(payload.as_ref()).unwrap_or_default(),
        WriteValue::Items(items) => {
            Value::List(items.iter().map(|item| plain_value(item.as_ref()).unwrap_or_default()).collect())
        }
        WriteValue::Null | WriteValue::Delta(_) => Value::Null,
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
    /// The position of the newest checkpoint of the root namespace in the log.
    seq: u64,
    updated_at: Timestamp,
    facts: ThreadFacts,
    status: ThreadStatus,
    graph: Option<String>,
    counts: Option<ThreadCounts>,
    priority: u8,
    partial: Option<PartialInfo>,
}

impl ThreadInfo {
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
        let status = ThreadStatus::of(&head, &metadata, writes);
        let graph = metadata.get(GRAPH).and_then(|name| name.as_str()).map(ToOwned::to_owned);
        let priority = metadata.get(PRIORITY).and_then(|priority| priority.as_u64()).unwrap_or(0);
        let priority = u8::try_from(priority).unwrap_or(PRIORITY_MAX).min(PRIORITY_MAX);
        let (facts, partial) = (ThreadFacts::of(fields)?, PartialInfo::of(writes));
        Ok(Self { head, seq, updated_at, facts, status, graph, counts: None, priority, partial })
    }

    /// Sets the counts.
    pub fn with_counts(mut self, counts: Option<ThreadCounts>) -> Self {
        self.counts = counts;
        self
    }

    /// Returns the id of the thread.
    pub fn id(&self) -> &ThreadId {
        &self.head.point.thread
    }

    /// Returns the id of the head.
    pub fn head(&self) -> CheckpointId {
        self.head.point.checkpoint
    }

    /// Returns branch and ordinal of the head.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.head.branch, self.head.ordinal)
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

    /// Returns the mark of the partial message at the head, if there is one: an answer that is streamed, or was cut
    /// off. The status does not depend on it, because its writer may go on.
    pub fn partial(&self) -> Option<&PartialInfo> {
        self.partial.as_ref()
    }

    /// Returns the name of the graph: the member `graph` of the metadata of the head.
    pub fn graph(&self) -> Option<&str> {
        self.graph.as_deref()
    }

    /// Returns the number of messages, and the tokens and the costs of model calls; `None` if rows from which they
    /// follow are damaged. They are known without a read of the messages.
    pub fn counts(&self) -> Option<&ThreadCounts> {
        self.counts.as_ref()
    }

    /// Returns the priority of its run: the member `priority` of the metadata of the head, 0 without one, and at most
    /// 9. Of several runs in a queue the one with the greatest priority is claimed first.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Returns the record of the head.
    pub fn record(&self) -> &CheckpointRecord {
        &self.head
    }

    /// Returns whether its run waits for a runner: the status is `running`.
    pub fn is_queued(&self) -> bool {
        self.status == ThreadStatus::Running
    }

    /// Returns the place in the queue of its graph: the least is first.
    pub fn queue_place(&self) -> (u8, u64) {
        (PRIORITY_MAX - self.priority, self.seq)
    }

    /// Returns the timestamp of its newest checkpoint, which is its last activity.
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// Returns the position of its newest checkpoint in the log: threads with later activity have greater ones.
    pub fn seq(&self) -> u64 {
        self.seq
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
    /// The id and the [position](ThreadInfo::seq) of the thread after which the page begins.
    pub after: Option<(ThreadId, u64)>,
    /// In the order of a queue: the priority of that thread.
    pub after_priority: u8,
    /// The maximum number of threads.
    pub limit: Option<usize>,
}

impl ThreadQuery {
    /// Lists all threads that are neither archived nor in the trash, at most 50.
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

    /// Lists only threads whose title contains a text, in upper or lower case. No index has the titles: the cost is
    /// that of the threads that are passed over.
    pub fn title_contains(mut self, text: impl Into<String>) -> Self {
        self.title_contains = Some(text.into().to_lowercase());
        self
    }

    /// Lists only threads with a status.
    pub fn status(mut self, status: impl Into<StatusKind>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Lists only threads whose head has a [partial message](ThreadInfo::partial).
    pub fn partial(mut self) -> Self {
        self.partial = true;
        self
    }

    /// Lists only threads of a [graph](ThreadInfo::graph).
    pub fn graph(mut self, name: impl Into<String>) -> Self {
        self.graph = Some(name.into());
        self
    }

    /// Lists the archived threads, or those that are not archived. Default: those that are not.
    pub fn archived(mut self, archived: bool) -> Self {
        self.archived = archived;
        self
    }

    /// Lists only the pinned threads, or only the others.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = Some(pinned);
        self
    }

    /// Lists the threads in the trash, or the others. Default: the others.
    pub fn trashed(mut self, trashed: bool) -> Self {
        self.trashed = trashed;
        self
    }

    /// Lists only threads with a checkpoint at this timestamp or later. The cost is that of the threads that are passed
    /// over: the order of the log is not that of the timestamps, since a copy or an import has those of its original.
    pub fn since(mut self, at: Timestamp) -> Self {
        self.since = Some(at);
        self
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

    /// Begins after the last thread of another page.
    pub fn after(mut self, last: &ThreadInfo) -> Self {
        self.after_priority = last.priority;
        self.after = Some((last.id().clone(), last.seq));
        self
    }

    /// Lists at most so many threads. Default: 50.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    fn fits(&self, info: &ThreadInfo) -> bool {
        let facts = &info.facts;
        let title = || facts.title.as_deref().unwrap_or_default().to_lowercase();
        self.project.as_ref().is_none_or(|project| facts.project.as_ref() == Some(project))
            && self.label.as_ref().is_none_or(|label| facts.labels.contains(label))
            && self.title_contains.as_ref().is_none_or(|text| title().contains(text))
            && self.status.is_none_or(|status| status == info.status.kind())
            && (!self.partial || info.partial.is_some())
            && self.graph.as_ref().is_none_or(|graph| info.graph.as_ref() == Some(graph))
            && self.archived == facts.is_archived
            && self.trashed == facts.trashed_until.is_some()
            && self.pinned.is_none_or(|pinned| pinned == facts.is_pinned)
            && (self.order != ThreadOrder::Queue || self.graph.is_some() && info.is_queued())
    }

    /// Returns the place in a queue after which the page begins; `None` for its begin.
    pub fn queue_after(&self) -> Option<(u8, u64)> {
        self.after.as_ref().map(|(_, seq)| (PRIORITY_MAX.saturating_sub(self.after_priority), *seq))
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
        let is_before = self.query.after.as_ref().is_some_and(|(id, seq)| match self.query.order {
            ThreadOrder::Activity => info.seq >= *seq,
            ThreadOrder::Id => info.id() <= id,
            ThreadOrder::Queue => self.query.queue_after().is_some_and(|after| info.queue_place() <= after),
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
