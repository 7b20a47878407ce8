//! Records: plain data, as the log holds it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use crate::base::{CheckpointId, Codec, Namespace, RunId, TaskId, ThreadId, Timestamp, Value, decode_value, variants};

pub use crate::base::ItemIndexRef;
use crate::base::PayloadRef;

use super::batch::{ListRef, Payload, Seen, WriteValue};
use super::error::StoreError;
use super::lease::LeaseRecord;
use super::mark::WriteMark;

/// Returns whether a channel is one of an executor, so that it is not part of the state. Executors reserve the names
/// that begin with two underscores, and those with two colons.
pub fn is_control(channel: &str) -> bool {
    channel.starts_with("__") || channel.bytes().filter(|byte| *byte == b':').nth(1).is_some()
}

/// A place in the history: a checkpoint of a namespace of a thread. The three fields are its definition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointRef {
    /// The thread.
    pub thread: ThreadId,
    /// The namespace.
    pub namespace: Namespace,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}

impl CheckpointRef {
    /// Refers to a checkpoint of a namespace of a thread. The checkpoint is not looked up.
    pub fn new(thread: ThreadId, namespace: Namespace, checkpoint: CheckpointId) -> Self {
        Self { thread, namespace, checkpoint }
    }
}

/// Shows `thread@checkpoint`, as [`Store::point`](crate::store::Store::point) reads it, followed by a space and the
/// namespace if that is not the root. A thread id that a point would read otherwise is in quotes.
impl fmt::Display for CheckpointRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = self.thread.as_str();
        match thread.contains(['@', '~', '"', '\\']) {
            true => write!(f, "\"{}\"", thread.replace('\\', "\\\\").replace('"', "\\\""))?,
            false => f.write_str(thread)?,
        }
        write!(f, "@{}", self.checkpoint)?;
        if self.namespace.is_root() { Ok(()) } else { write!(f, " {}", self.namespace) }
    }
}

/// The head of a namespace, without its state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredHead {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// True if a checkpoint of the namespace continues it: the head was moved back to it.
    pub is_continued: bool,
    /// The stored writes of its tasks, in the order of [`LogExt::writes`](super::log::LogExt::writes).
    pub writes: Vec<WriteRecord>,
    /// The last lease of its thread; `None` also for the head of a subgraph.
    pub lease: Option<LeaseRecord>,
    /// The record of the checkpoint, if it was asked for.
    pub record: Option<CheckpointRecord>,
}

impl StoredHead {
    /// Describes the head that a record is.
    pub(crate) fn of(record: CheckpointRecord) -> Self {
        let checkpoint = record.point.checkpoint;
        Self { record: Some(record), ..Self::new(checkpoint, false, Vec::new()) }
    }

    /// Describes a head of a thread without a lease.
    pub fn new(checkpoint: CheckpointId, is_continued: bool, writes: Vec<WriteRecord>) -> Self {
        Self { checkpoint, is_continued, writes, lease: None, record: None }
    }

    /// Returns the head with the last lease of its thread.
    pub(crate) fn with_lease(self, lease: Option<LeaseRecord>) -> Self {
        Self { lease, ..self }
    }
}

variants! {
    /// The source of a checkpoint.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Source {
        /// The input of a run.
        Input => "input",
        /// A superstep.
        Loop => "loop",
        /// `update_state`.
        Update => "update",
        /// A fork of another checkpoint.
        Fork => "fork",
    }
    /// Returns the name: `input`, `loop`, `update` or `fork`.
    pub fn as_str -> &'static str, Display
}

impl FromStr for Source {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|source| source.as_str() == name);
        named.ok_or_else(|| format!("{name:?} is not a source of a checkpoint (input, loop, update, fork)"))
    }
}

/// A task that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskRecord {
    /// Its id.
    pub id: TaskId,
    /// Its node.
    pub name: Arc<str>,
    /// The trigger or send that made it due.
    pub kind: TaskKind,
}

/// The reason that a task is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Its triggers: all channels that can trigger the node, sorted.
    Pull {
        /// The channels.
        triggers: Vec<Arc<str>>,
    },
    /// A send: its position among the pending sends.
    Push {
        /// The position.
        index: u32,
    },
}

impl TaskRecord {
    /// The name of the task that takes the input of a run, and of the channel that holds it.
    pub const INPUT: &str = "__start__";

    /// Returns whether it takes the input of a run.
    pub fn takes_input(&self) -> bool {
        &*self.name == Self::INPUT
    }

    /// Makes the record of a task that is due.
    pub fn new(id: TaskId, name: impl Into<Arc<str>>, kind: TaskKind) -> Self {
        Self { id, name: name.into(), kind }
    }

    /// Returns the path by which the writes of a superstep are ordered (`~__pregel_pull, node`, or
    /// `~__pregel_push, 0000000003, 0000000000`): pulls by name before pushes by position.
    pub fn path(&self) -> Arc<str> {
        match &self.kind {
            TaskKind::Pull { .. } => format!("~__pregel_pull, {}", self.name).into(),
            TaskKind::Push { index } => format!("~__pregel_push, {index:010}, {:010}", 0).into(),
        }
    }
}

/// A stored checkpoint, without its state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CheckpointRecord {
    /// Thread, namespace and id.
    pub point: CheckpointRef,
    /// Its position in the log of the file, ascending in the order of commits.
    pub seq: u64,
    /// Its parent in the same namespace.
    pub parent: Option<CheckpointId>,
    /// Its parent in another thread or namespace, for the first checkpoint of a fork.
    pub forked_from: Option<CheckpointRef>,
    /// The branch: a run of checkpoints, each the child of the one before. A child of an older checkpoint opens a
    /// branch.
    pub branch: u64,
    /// Its distance from the first checkpoint of its lineage.
    pub ordinal: u64,
    /// The number of the superstep.
    pub step: i64,
    /// The source: an input, a superstep, an update or a fork.
    pub source: Source,
    /// The timestamp of its creation.
    pub created_at: Timestamp,
    /// The run that made it.
    pub run: Option<RunId>,
    /// The version of the application that wrote it.
    pub app_version: Option<Arc<str>>,
    /// Further metadata: the text of a JSON object.
    pub metadata: Option<String>,
    /// Subgraphs: the namespaces of the parent graphs, outermost first, and their checkpoints at the time. Outermost
    /// graphs: the map given to a run that started from the checkpoint of a subgraph.
    #[doc(alias = "checkpoint_map")]
    pub parents: Arc<[(Namespace, CheckpointId)]>,
    /// The tasks that were due after it.
    pub tasks: Vec<TaskRecord>,
    /// True if it was pruned: its state, its metadata and its parents are not stored any more, and its tasks only while
    /// a child of it is kept.
    pub pruned: bool,
}

impl CheckpointRecord {
    /// Makes the record of a checkpoint without a parent, a run, metadata and tasks, on branch 0 at ordinal 0. `seq` is
    /// its position in the log of the file.
    pub fn new(point: CheckpointRef, seq: u64, step: i64, source: Source, created_at: Timestamp) -> Self {
        Self {
            point,
            seq,
            parent: None,
            forked_from: None,
            branch: 0,
            ordinal: 0,
            step,
            source,
            created_at,
            run: None,
            app_version: None,
            metadata: None,
            parents: [].into(),
            tasks: Vec::new(),
            pruned: false,
        }
    }

    /// Returns the checkpoint this one builds on: its parent in the same namespace, or the one it was forked from.
    pub fn parent_ref(&self) -> Option<CheckpointRef> {
        match (self.parent, &self.forked_from) {
            (Some(checkpoint), _) => Some(CheckpointRef { checkpoint, ..self.point.clone() }),
            (None, forked_from) => forked_from.clone(),
        }
    }
}

/// The newest version of a channel at a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChannelRecord {
    /// The channel.
    pub channel: Arc<str>,
    /// Its version.
    pub version: u64,
    /// Its content.
    pub value: ChannelValue,
    /// The `ordinal` of the checkpoint that wrote this version, in the lineage of the one asked for.
    pub ordinal: u64,
    /// The task that wrote it: an index into the `tasks` of the parent of that checkpoint.
    pub task: Option<u32>,
}

impl ChannelRecord {
    /// Makes the record of a channel whose version was written at `ordinal` by no task.
    pub fn new(channel: impl Into<Arc<str>>, version: u64, value: ChannelValue, ordinal: u64) -> Self {
        Self { channel: channel.into(), version, value, ordinal, task: None }
    }
}

/// A version of a channel, as the checkpoint wrote it that made it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VersionRecord {
    /// The channel with its content at that checkpoint.
    pub channel: ChannelRecord,
    /// Of a list: a range that holds each position that the checkpoint put or deleted. It may be wider, and ends at
    /// `u64::MAX` if the list was replaced.
    pub positions: Option<Range<u64>>,
}

impl VersionRecord {
    /// Makes the record of a version. `positions` are those that a list changed at.
    pub fn new(channel: ChannelRecord, positions: Option<Range<u64>>) -> Self {
        Self { channel, positions }
    }
}

/// The content of a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelValue {
    /// No content.
    Empty,
    /// One value.
    Value(Payload),
    /// A list; its items are read with `LogExt::items`.
    Items,
}

/// The state at a checkpoint, without the items of its lists.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StateRecord {
    /// The checkpoint.
    pub checkpoint: CheckpointRecord,
    /// Every channel that was ever written, sorted by name.
    pub channels: Vec<ChannelRecord>,
    /// Every node that ever ran, sorted by name.
    pub seen: Vec<Seen>,
    /// The channels that this checkpoint itself changed and that hold something, sorted by name.
    pub updated: Vec<Arc<str>>,
}

impl StateRecord {
    /// Makes the empty state of a checkpoint.
    pub fn new(checkpoint: CheckpointRecord) -> Self {
        Self { checkpoint, channels: Vec::new(), seen: Vec::new(), updated: Vec::new() }
    }
}

/// An item of a list, borrowed from the row it was read from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ItemRow<'a> {
    /// The position: items are ordered by position.
    pub position: u64,
    /// The `ordinal` of the checkpoint that wrote it.
    pub ordinal: u64,
    /// The task that wrote it: an index into the `tasks` of the parent of that checkpoint.
    pub task: Option<u32>,
    /// The bytes of the item and its index columns.
    pub payload: PayloadRef<'a>,
}

impl<'a> ItemRow<'a> {
    /// Makes the row of an item.
    pub fn new(position: u64, ordinal: u64, task: Option<u32>, payload: PayloadRef<'a>) -> Self {
        Self { position, ordinal, task, payload }
    }
}

/// A change of a list, found by a search for a text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredListChange {
    /// The positions: one, unless it is a deletion.
    pub positions: Range<u64>,
    /// The `ordinal` of the checkpoint that made it.
    pub ordinal: u64,
    /// The task that made it: an index into the `tasks` of the parent of that checkpoint.
    pub task: Option<u32>,
    /// The operation.
    pub op: ListChangeOp,
}

/// The operation of a change of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum ListChangeOp {
    /// An item was put whose bytes, or a column of whose index, hold the wanted text.
    Match(Payload),
    /// Another item was put.
    Other,
    /// Items were deleted.
    Delete,
}

impl ListChangeOp {
    /// Returns the put of an item: whether its bytes, or a column of its index, hold a text.
    pub fn of(payload: PayloadRef<'_>, text: &str) -> Self {
        let index = payload.index.unwrap_or_default();
        let columns = [index.text, index.id, index.name, index.kind, index.tool_calls];
        let indexed = columns.iter().flatten().any(|column| column.contains(text));
        if indexed || holds(payload.data, text.as_bytes()) { Self::Match(payload.to_payload()) } else { Self::Other }
    }
}

/// Returns whether bytes hold others.
fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return true };
    let mut begins = bytes.iter().enumerate().filter(|(_, byte)| *byte == first);
    begins.any(|(at, _)| bytes[at + 1..].starts_with(rest))
}

impl StoredListChange {
    /// Makes a change of a list.
    pub fn new(positions: Range<u64>, ordinal: u64, task: Option<u32>, op: ListChangeOp) -> Self {
        Self { positions, ordinal, task, op }
    }

    /// Brings the changes of a list in the order in which they were made, and drops those of positions at which no item
    /// matches. Deletions come before the items of their checkpoint.
    pub fn order(changes: &mut Vec<Self>) {
        let is_match = |change: &&Self| matches!(change.op, ListChangeOp::Match(_));
        let matched: BTreeSet<u64> = changes.iter().filter(is_match).map(|change| change.positions.start).collect();
        let concerns_match = |change: &Self| matched.range(change.positions.clone()).next().is_some();
        changes.retain(|change| !change.positions.is_empty() && concerns_match(change));
        changes.sort_by_key(|change| (change.ordinal, change.op != ListChangeOp::Delete, change.positions.start));
        debug_assert!(changes.iter().all(|change| !change.positions.is_empty()), "a change has a position");
    }
}

/// A part of a state, as [`Log::read`](super::log::Log::read) visits it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StatePart<'a> {
    /// The checkpoint with its channels and nodes. It is visited once, before the other parts.
    Record(Cow<'a, StateRecord>),
    /// A channel. If it is a list, its items follow, unless the visitor declines them.
    Channel(&'a ChannelRecord),
    /// The next item of the list channel that was visited last, or that was asked for.
    Item(ItemRow<'a>),
    /// The number of items of a list.
    Len(u64),
    /// The list that a list references.
    Reference(&'a ListRef),
}

/// Decodes a value. A foreign one is shown as its bytes.
pub(crate) fn plain_value(payload: PayloadRef<'_>) -> Result<Value, StoreError> {
    match payload.codec {
        Codec::Foreign(_) => Ok(Value::Bytes(payload.data.to_vec())),
        codec => Ok(decode_value(codec, payload.data)?),
    }
}

/// A stored write of a task of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WriteRecord {
    /// The task.
    pub task: TaskId,
    /// Its path.
    pub path: Arc<str>,
    /// The position of the write in the task; negative for special indexes.
    pub index: i32,
    /// The channel.
    pub channel: Arc<str>,
    /// The value.
    pub value: WriteValue,
    /// The meaning of a special write for the status of the thread; `None` if it has none.
    pub mark: Option<WriteMark>,
}

impl WriteRecord {
    /// Makes the record of a write.
    pub fn new(
        task: TaskId,
        path: impl Into<Arc<str>>,
        index: i32,
        channel: impl Into<Arc<str>>,
        value: WriteValue,
    ) -> Self {
        Self { task, path: path.into(), index, channel: channel.into(), value, mark: None }
    }

    /// Sets the mark of a special write.
    pub fn with_mark(mut self, mark: Option<WriteMark>) -> Self {
        self.mark = mark;
        self
    }
}

/// A sleeping task: a run on its thread wakes it, from the timestamp on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerRecord {
    /// The checkpoint whose task it is.
    pub point: CheckpointRef,
    /// The task.
    pub task: TaskId,
    /// The timestamp from which on it can resume.
    pub wake_at: Timestamp,
}

impl TimerRecord {
    /// Makes the record of a task that sleeps until `wake_at`.
    pub fn new(point: CheckpointRef, task: TaskId, wake_at: Timestamp) -> Self {
        Self { point, task, wake_at }
    }
}

/// The size of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadSize {
    /// The checkpoints of all its namespaces.
    pub checkpoints: u64,
    /// The branches of all its namespaces; 1 if it was never forked.
    pub branches: u64,
}

impl ThreadSize {
    /// Makes the size of a thread.
    pub fn new(checkpoints: u64, branches: u64) -> Self {
        Self { checkpoints, branches }
    }
}

/// A thread, as a listing shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadRecord {
    /// Its id.
    pub id: ThreadId,
    /// The timestamp of its first checkpoint.
    pub created_at: Timestamp,
    /// The newest checkpoint of its root namespace.
    pub head: CheckpointRecord,
}

impl ThreadRecord {
    /// Makes the record of a thread.
    pub fn new(id: ThreadId, created_at: Timestamp, head: CheckpointRecord) -> Self {
        Self { id, created_at, head }
    }
}
