//! Batches: the only unit that is written to the log.
//!
//! A [`Batch`] is plain data. It names the heads it builds on, and holds whole checkpoints and the writes of tasks.
//! It is committed entirely or not at all, and a retry is safe: a checkpoint whose id is already stored with the same
//! content is not stored again.
//!
//! The structs are `#[non_exhaustive]`: each has a constructor for the fields that every value needs, and the others
//! start empty and are public. So a new optional column changes this file and the backends, and no caller. The enums
//! are exhaustive, because a backend that does not know a variant must not compile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::limits::{
    BATCH_CHECKPOINTS_MAX, DELETED_THREADS_MAX, ITEM_ID_BYTES_MAX, NAME_BYTES_MAX, TASKS_MAX, VALUE_BYTES_MAX,
};
use crate::base::{CheckpointId, Namespace, RunId, TaskId, ThreadId, Timestamp};
pub use crate::base::{ItemIndex, ListDelta, ListRef, Payload, WriteValue};
use crate::limits::{CHANNELS_MAX, METADATA_BYTES_MAX, NAMES_COMPARED_MAX, PARENTS_MAX, STEP_MAX, TASK_WRITES_MAX};

pub use super::chain::CommitChain;
use super::error::StoreError;
use super::lease::NewLease;
use super::mark::WriteMark;
use super::operation::NewOperation;
use super::record::{CheckpointRef, Source, TaskRecord};

/// One atomic write to the log of one namespace, and of others with [`Batch::then`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Batch {
    /// The thread; it is made if it does not exist.
    pub thread: ThreadId,
    /// The namespace of the checkpoints and writes; it is made if it does not exist.
    pub namespace: Namespace,
    /// Every head this batch builds on: of its own namespace and of its ancestors'. If one of them has moved, the
    /// batch is refused with [`StoreError::Conflict`].
    pub expect: Vec<Expect>,
    /// Writes of tasks of checkpoints that are already stored. They come before `checkpoints`.
    pub writes: Vec<NewWrites>,
    /// Timers of tasks whose `writes` are in this batch. A batch with checkpoints has none: they take those of the
    /// namespace away. A task that interrupts with a `wake_at` in the root namespace needs one: a check finds a task
    /// that sleeps at the head of a thread without a timer.
    pub timers: Vec<NewTimer>,
    /// Checkpoints, oldest first. Each goes onto its parent.
    pub checkpoints: Vec<NewCheckpoint>,
    /// The chain of commits that the batch belongs to: it is stored only if all before it are.
    pub chain: Option<CommitChain>,
    /// Batches that are written after it, in their order: all of them with it, or none. Each sees what those before it
    /// have written; none has a chain or a `then` of its own.
    pub then: Vec<Batch>,
    /// An operation that is stored in the same transaction, after the checkpoints: it may leave the head elsewhere than
    /// at the last of them. It is checked as one of [`Log::operate`](super::log::Log::operate).
    pub operation: Option<NewOperation>,
    /// The lease of the thread that the batch needs, and the change to it, in the same transaction.
    pub lease: Option<NewLease>,
}

/// A timer of a task to be set or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewTimer {
    /// The checkpoint whose task it is.
    pub checkpoint: CheckpointId,
    /// The task. A timer that it has is replaced.
    pub task: TaskId,
    /// The timestamp from which on the task can resume; `None` removes the timer.
    pub wake_at: Option<Timestamp>,
}

/// A head that a batch builds on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expect {
    /// The namespace, in the thread of the batch.
    pub namespace: Namespace,
    /// Its newest checkpoint, `None` if it must have none.
    pub head: Option<CheckpointId>,
}

/// A checkpoint to be stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewCheckpoint {
    /// Its id, greater than the ids of the namespace so far.
    pub id: CheckpointId,
    /// The checkpoint its state builds on; `None` starts from the empty state.
    pub parent: Option<Parent>,
    /// The number of the superstep, -1 for the first input.
    pub step: i64,
    /// The source: an input, a superstep, an update or a fork.
    pub source: Source,
    /// The timestamp of its creation.
    pub created_at: Timestamp,
    /// The run that made it.
    pub run: Option<RunId>,
    /// The version of the application that wrote it; `None` for that of the options of the store.
    pub app_version: Option<Arc<str>>,
    /// Further metadata: the text of a JSON object.
    pub metadata: Option<String>,
    /// Subgraphs only: the namespaces of the parent graphs, outermost first, and their checkpoints at the time.
    pub parents: Arc<[(Namespace, CheckpointId)]>,
    /// The tasks that are due next, in order.
    pub tasks: Vec<TaskRecord>,
    /// The writes of the parent's tasks that this checkpoint consumed and that are not stored yet.
    pub consumed: Vec<NewWrites>,
    /// The channels that changed, each once.
    pub changes: Vec<Change>,
    /// The nodes that ran, each once, with the trigger versions they have now seen.
    pub seen: Vec<Seen>,
}

/// The checkpoint that another one builds on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// A checkpoint of the same thread and namespace.
    Local(CheckpointId),
    /// A checkpoint of another thread or namespace: the parent of the first checkpoint of a fork.
    Fork(CheckpointRef),
}

/// A channel that changed in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// The channel.
    pub channel: Arc<str>,
    /// Its new version. It is greater than the version the channel has in the parent.
    pub version: u64,
    /// The new content of the channel.
    pub value: ChangeValue,
    /// The task that wrote it, if one did: an index into the `tasks` of the parent.
    pub task: Option<u32>,
}

/// The content of a changed channel.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeValue {
    /// No content.
    Empty,
    /// One value.
    Value(Data),
    /// A list: the items that changed since the parent. The rest of the list is as in the parent.
    Items(Vec<ItemChange>),
}

/// The location of the bytes of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// In this change.
    New(Payload),
    /// In a write of a task of the parent, stored earlier or in `consumed`. The bytes are not stored again.
    OfWrite(WriteRef),
}

/// Names a write of a task of the parent checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WriteRef {
    /// The task.
    pub task: TaskId,
    /// The index of the write in the task.
    pub index: i32,
    /// The item, if the write is a list of items; else 0.
    pub part: u32,
}

/// A change of a list at one position, or of a range or the whole of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ItemChange {
    /// The position: items are ordered by position. A new item of a list or part of a text gets a position above all
    /// others, and a new entry of a map one that the hash of its key names.
    pub position: u64,
    /// The operation.
    pub op: ItemOp,
    /// The task that made the change, if one did: an index into the `tasks` of the parent.
    pub task: Option<u32>,
}

/// An operation on a list.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemOp {
    /// Puts an item at the position, in place of one that is there.
    Put(Data),
    /// Deletes the item at the position.
    Delete,
    /// Range delete: deletes the items from `position` to `end`, exclusive, before the other operations of this change.
    DeleteRange {
        /// One past the last position.
        end: u64,
    },
    /// Copy-on-write reference: the list becomes the referenced one, position by position, before the other operations
    /// of this change; no item is stored again. Its `position` is 0, and the change has no range deletes.
    Reference(ListRef),
}

impl ItemOp {
    /// Returns whether the operation concerns one position, and not a range or the whole list.
    pub fn is_of_position(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Delete)
    }
}

/// The writes of one task of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewWrites {
    /// The checkpoint whose task it is.
    pub checkpoint: CheckpointId,
    /// The task.
    pub task: TaskId,
    /// Its path, by which the writes of a superstep are ordered (`~__pregel_pull, node`).
    pub path: Arc<str>,
    /// The writes.
    pub writes: Vec<NewWrite>,
}

/// One write of a task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewWrite {
    /// Its position in the task; negative for a special write of an executor, which replaces the one that stood there.
    /// A position that is taken retains its first write.
    pub index: i32,
    /// The channel.
    pub channel: Arc<str>,
    /// The value.
    pub value: WriteValue,
    /// The meaning of a special write for the status of the thread; `None` if it has none.
    pub mark: Option<WriteMark>,
}

/// A node that ran, with the versions of its triggers that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The node.
    pub node: Arc<str>,
    /// Each trigger channel with its version.
    pub versions: Vec<(Arc<str>, u64)>,
}

impl Expect {
    /// Expects that the newest checkpoint of `namespace` is `head`; `None` expects that it has none.
    pub fn new(namespace: Namespace, head: Option<CheckpointId>) -> Self {
        Self { namespace, head }
    }

    /// Compares the head of its namespace with the expected one. Every backend calls this.
    ///
    /// # Errors
    /// [`StoreError::Conflict`].
    pub fn compare(&self, thread: &ThreadId, found: Option<CheckpointId>) -> Result<(), StoreError> {
        if found == self.head {
            return Ok(());
        }
        let (thread, namespace) = (thread.clone(), self.namespace.clone());
        Err(StoreError::Conflict { thread, namespace, expected: self.head, found })
    }
}

impl NewTimer {
    /// Sets the timer of a task of `checkpoint`; `None` removes it.
    pub fn new(checkpoint: CheckpointId, task: TaskId, wake_at: Option<Timestamp>) -> Self {
        Self { checkpoint, task, wake_at }
    }
}

impl NewCheckpoint {
    /// Starts a checkpoint without a run, metadata, tasks, changes, or writes.
    ///
    /// # Example
    /// ```
    /// use annals::store::{Source, Store};
    /// use annals::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, Payload};
    ///
    /// # fn main() -> Result<(), annals::store::StoreError> {
    /// let store = Store::memory();
    /// let thread = store.thread("trip")?;
    /// let mut checkpoint =
    ///     NewCheckpoint::new(store.mint_checkpoint(0, None), None, 0, Source::Update, store.now());
    /// let city = annals::base::Encoded::encode("Rome")?;
    /// checkpoint.changes.push(Change::new("city", 1, ChangeValue::Value(Data::New(Payload::from(city)))));
    ///
    /// let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), None);
    /// batch.checkpoints.push(checkpoint);
    /// store.commit(&batch)?;
    /// assert_eq!(thread.head()?.expect("a head").get("city")?.unwrap().as_str(), Some("Rome"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(id: CheckpointId, parent: Option<Parent>, step: i64, source: Source, created_at: Timestamp) -> Self {
        Self {
            id,
            parent,
            step,
            source,
            created_at,
            run: None,
            app_version: None,
            metadata: None,
            parents: [].into(),
            tasks: Vec::new(),
            consumed: Vec::new(),
            changes: Vec::new(),
            seen: Vec::new(),
        }
    }
}

impl Change {
    /// Sets a channel to a new version that no task wrote.
    pub fn new(channel: impl Into<Arc<str>>, version: u64, value: ChangeValue) -> Self {
        Self { channel: channel.into(), version, value, task: None }
    }

    /// Names the task that wrote the version: an index into the `tasks` of the parent.
    pub fn by(self, task: Option<u32>) -> Self {
        Self { task, ..self }
    }
}

impl WriteRef {
    /// Refers to a write of one value, or to the first item of a write of items.
    pub fn new(task: TaskId, index: i32) -> Self {
        Self { task, index, part: 0 }
    }

    /// Refers to the item with this number of a write of items.
    #[must_use]
    pub fn with_part(self, part: u32) -> Self {
        Self { part, ..self }
    }
}

impl ItemChange {
    /// Changes a list; `task` is an index into the `tasks` of the parent.
    pub fn new(position: u64, op: ItemOp, task: Option<u32>) -> Self {
        Self { position, op, task }
    }
}

impl NewWrites {
    /// Starts the writes of a task of `checkpoint`, without a write.
    pub fn new(checkpoint: CheckpointId, task: TaskId, path: impl Into<Arc<str>>) -> Self {
        Self { checkpoint, task, path: path.into(), writes: Vec::new() }
    }

    /// Returns these writes with `writes` in place of those they have.
    pub fn with(self, writes: Vec<NewWrite>) -> Self {
        Self { writes, ..self }
    }
}

impl NewWrite {
    /// Makes a write of a task at a position.
    pub fn new(index: i32, channel: impl Into<Arc<str>>, value: WriteValue) -> Self {
        Self { index, channel: channel.into(), value, mark: None }
    }

    /// Marks a special write with its meaning for the status of the thread.
    pub fn with_mark(mut self, mark: Option<WriteMark>) -> Self {
        self.mark = mark;
        self
    }
}

impl Seen {
    /// Makes the record of a node with the versions of its trigger channels.
    pub fn new(node: impl Into<Arc<str>>, versions: Vec<(Arc<str>, u64)>) -> Self {
        Self { node: node.into(), versions }
    }
}

impl Batch {
    /// Starts an empty batch for a namespace whose head must be `head`.
    pub fn new(thread: ThreadId, namespace: Namespace, head: Option<CheckpointId>) -> Self {
        let expect = vec![Expect { namespace: namespace.clone(), head }];
        Self {
            thread,
            namespace,
            expect,
            writes: Vec::new(),
            timers: Vec::new(),
            checkpoints: Vec::new(),
            chain: None,
            then: Vec::new(),
            operation: None,
            lease: None,
        }
    }

    /// Makes a batch that changes the lease of a thread, and nothing else. The thread has a checkpoint.
    pub fn of_lease(thread: ThreadId, lease: NewLease) -> Self {
        Self { expect: Vec::new(), lease: Some(lease), ..Self::new(thread, Namespace::root(), None) }
    }

    /// Returns whether the batch changes a lease and nothing else.
    pub fn is_lease_alone(&self) -> bool {
        self.lease.is_some() && self.expect.is_empty() && self.checkpoints.is_empty() && self.writes.is_empty()
    }

    /// Joins batches into one that writes them in their order; `None` if there are none. Their chains are
    /// dropped.
    pub fn of_all(batches: impl IntoIterator<Item = Batch>) -> Option<Self> {
        let mut batches = batches.into_iter();
        let mut first = Self { chain: None, ..batches.next()? };
        for mut next in batches {
            let then = std::mem::take(&mut next.then);
            first.then.push(Self { chain: None, ..next });
            first.then.extend(then);
        }
        Some(first)
    }

    /// Returns the batch, then those of `then`.
    pub fn parts(&self) -> impl Iterator<Item = &Batch> {
        std::iter::once(self).chain(&self.then)
    }

    /// Writes the batch with `write`, unless an earlier one of its chain was not stored. Every backend writes a batch
    /// in this way, or keeps the rule in its own.
    ///
    /// # Errors
    /// That of the earlier one; that of `write`.
    pub fn write_in_chain(&self, write: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let Some(chain) = &self.chain else { return write() };
        if chain.has_ended() {
            return Err(chain.refusal());
        }
        write().inspect_err(|error| chain.end(error))
    }

    /// Gives its checkpoints of a namespace new ids above `newest`, in their order, and renames them wherever the batch
    /// names them. Returns each old id with the new one.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::Source;
    /// use annals::store::batch::{Batch, NewCheckpoint, Parent};
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let thread = store.thread("trip")?;
    /// let early = store.mint_checkpoint(0, None);
    /// let head = thread.append("messages", [Message::human("hi")])?;
    /// let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
    /// batch.checkpoints.push(NewCheckpoint::new(early, Some(Parent::Local(head)), 1, Source::Update, store.now()));
    /// assert!(store.commit(&batch).is_err(), "the id is less than that of the head");
    ///
    /// let raised = batch.remint_ids(thread.namespace(), &head);
    /// store.commit(&batch)?;
    /// assert_eq!(thread.head()?.expect("a head").id(), raised[0].1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn remint_ids(&mut self, namespace: &Namespace, newest: &CheckpointId) -> Vec<(CheckpointId, CheckpointId)> {
        let mut above = *newest;
        let parts = self.parts().filter(|part| part.namespace == *namespace);
        let raised: Vec<_> = parts
            .flat_map(|part| &part.checkpoints)
            .map(|checkpoint| {
                above = checkpoint.id.after(&above);
                (checkpoint.id, above)
            })
            .collect();
        self.rename(&raised.iter().copied().collect());
        raised
    }

    /// Renames checkpoints wherever the batch names them.
    pub fn rename(&mut self, ids: &HashMap<CheckpointId, CheckpointId>) {
        if !ids.is_empty() {
            super::rename::batch(self, ids);
        }
    }

    /// Returns the head after this batch: its last checkpoint, or the one it was built on.
    pub fn head_after(&self) -> Option<CheckpointId> {
        let own = self.expect.iter().find(|expect| expect.namespace == self.namespace);
        self.checkpoints.last().map(|c| c.id).or(own.and_then(|expect| expect.head))
    }

    /// Checks everything that can be checked without looking at the file: the limits, and that ids go up. Every
    /// backend calls this first.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] naming the field and the limit.
    pub fn validate(&self) -> Result<(), StoreError> {
        if self.then.iter().any(|part| !part.then.is_empty() || part.chain.is_some()) {
            return invalid("batch.then", "a batch in `then` must not have a chain or a `then` of its own".into());
        }
        if self.then.iter().any(|part| part.operation.is_some() || part.lease.is_some()) {
            return invalid("batch.then", "a batch in `then` must not have an operation or a lease".into());
        }
        self.lease.as_ref().map_or(Ok(()), NewLease::validate)?;
        if self.is_lease_alone() && self.then.is_empty() && self.operation.is_none() {
            return Ok(());
        }
        if let Some(operation) = &self.operation {
            if self.checkpoints.is_empty() {
                return invalid("batch.operation", "the batch has no checkpoints".into());
            }
            if operation.newest.is_some() {
                let reason = "the checkpoints of the batch are newer than any operation before it".into();
                return invalid("operation.newest", reason);
            }
            operation.validate()?;
        }
        self.parts().try_for_each(Self::validate_part)
    }

    /// Checks the batch without `then`.
    fn validate_part(&self) -> Result<(), StoreError> {
        at_most("batch.checkpoints", self.checkpoints.len(), BATCH_CHECKPOINTS_MAX)?;
        if self.checkpoints.is_empty() && self.writes.is_empty() {
            return invalid("batch", "the batch has neither checkpoints nor writes".into());
        }
        if !self.expect.iter().any(|expect| expect.namespace == self.namespace) {
            return invalid("batch.expect", "the head of the namespace of the batch is missing".into());
        }
        self.writes.iter().try_for_each(NewWrites::validate)?;
        let written = |timer: &NewTimer| self.writes.iter().any(|writes| writes.checkpoint == timer.checkpoint);
        if !self.timers.is_empty() && (!self.checkpoints.is_empty() || !self.timers.iter().all(written)) {
            return invalid(
                "batch.timers",
                "timers need writes of their checkpoint, and a batch without checkpoints".into(),
            );
        }
        let mut above = None;
        for checkpoint in &self.checkpoints {
            if above.is_some_and(|id| checkpoint.id <= id) {
                return invalid("checkpoint.id", format!("{} does not follow the one before it", checkpoint.id));
            }
            above = Some(checkpoint.id);
            checkpoint.validate()?;
        }
        Ok(())
    }
}

impl NewCheckpoint {
    fn validate(&self) -> Result<(), StoreError> {
        if self.step.unsigned_abs() > STEP_MAX.unsigned_abs() {
            return invalid("checkpoint.step", format!("{} is further from 0 than the limit of {STEP_MAX}", self.step));
        }
        at_most("checkpoint.tasks", self.tasks.len(), TASKS_MAX)?;
        at_most("checkpoint.changes", self.changes.len(), CHANNELS_MAX)?;
        at_most("checkpoint.metadata bytes", self.metadata.as_ref().map_or(0, String::len), METADATA_BYTES_MAX)?;
        at_most("checkpoint.app_version bytes", self.app_version.as_deref().map_or(0, str::len), NAME_BYTES_MAX)?;
        at_most("checkpoint.parents", self.parents.len(), PARENTS_MAX)?;
        self.tasks.iter().try_for_each(|task| name("task.name", &task.name))?;
        self.seen.iter().try_for_each(|seen| name("seen.node", &seen.node))?;
        if let Some(node) = first_twice(self.seen.iter().map(|seen| &*seen.node)) {
            return invalid("checkpoint.seen", format!("node {node:?} comes twice"));
        }
        self.consumed.iter().try_for_each(NewWrites::validate)?;
        if let (Some(Parent::Fork(at)), Some(_)) = (&self.parent, self.consumed.first()) {
            // A fork must not write to its source.
            return invalid("consumed.checkpoint", format!("{} is not in this namespace", at.checkpoint));
        }
        for change in &self.changes {
            name("change.channel", &change.channel)?;
            change.validate()?;
        }
        match first_twice(self.changes.iter().map(|change| &*change.channel)) {
            Some(channel) => invalid("checkpoint.changes", format!("channel {channel:?} changes twice")),
            None => Ok(()),
        }
    }
}

impl Change {
    fn validate(&self) -> Result<(), StoreError> {
        if self.version == 0 || i64::try_from(self.version).is_err() {
            return invalid("change.version", format!("{} is not between 1 and 2^63-1", self.version));
        }
        match &self.value {
            ChangeValue::Value(data) => data.validate(),
            ChangeValue::Items(items) => {
                let whole = items.iter().filter(|item| !item.op.is_of_position()).count();
                items.iter().try_for_each(|item| item.validate(whole))?;
                let positions = || items.iter().filter(|item| item.op.is_of_position()).map(|item| item.position);
                let mut taken = HashSet::new();
                match positions().is_sorted_by(|one, next| one < next) {
                    true => None,
                    false => positions().find(|position| !taken.insert(*position)),
                }
                .map_or(Ok(()), |twice| invalid("item.position", format!("position {twice} changes twice")))
            }
            _ => Ok(()),
        }
    }
}

impl ItemChange {
    /// Checks one of the operations of a change, of which `whole` are about more than a position.
    fn validate(&self, whole: usize) -> Result<(), StoreError> {
        if i64::try_from(self.position).is_err() {
            return invalid("item.position", format!("{} is above 2^63-1", self.position));
        }
        match &self.op {
            ItemOp::Put(data) => data.validate(),
            ItemOp::DeleteRange { end } if *end <= self.position => {
                invalid("item.range", format!("the range delete ends at {end}, before it begins at {}", self.position))
            }
            ItemOp::Reference(_) if self.position != 0 || whole > 1 => invalid(
                "item.reference",
                "a reference must be at position 0 of a change without range deletes and other references".into(),
            ),
            ItemOp::Reference(of) => name("item.reference channel", &of.channel),
            ItemOp::Delete | ItemOp::DeleteRange { .. } => Ok(()),
        }
    }
}

impl Data {
    fn validate(&self) -> Result<(), StoreError> {
        match self {
            Self::New(payload) => payload_fits(payload),
            Self::OfWrite(at) if at.index < 0 => {
                invalid("data.of_write", format!("{} is a special index, whose write is replaced", at.index))
            }
            Self::OfWrite(_) => Ok(()),
        }
    }
}

impl NewWrite {
    fn validate_mark(&self) -> Result<(), StoreError> {
        let Some(mark) = self.mark else { return Ok(()) };
        if self.index >= 0 {
            return invalid("write.mark", format!("{} is not a special index", self.index));
        }
        if self.value == WriteValue::Null {
            return invalid("write.mark", "the write has no value".into());
        }
        if !mark.is_stored() {
            return invalid("write.mark", "its timestamp is before 1970".into());
        }
        Ok(())
    }
}

impl NewWrites {
    fn validate(&self) -> Result<(), StoreError> {
        at_most("task.writes", self.writes.len(), TASK_WRITES_MAX)?;
        for write in &self.writes {
            name("write.channel", &write.channel)?;
            write.validate_mark()?;
            match &write.value {
                WriteValue::Null => {}
                WriteValue::One(payload) => payload_fits(payload)?,
                WriteValue::Items(items) => items.iter().try_for_each(payload_fits)?,
                WriteValue::Delta(delta) => {
                    if write.index < 0 {
                        return invalid(
                            "write.delta",
                            format!("{} is a special index, whose write is replaced", write.index),
                        );
                    }
                    validate_delta(delta)?;
                }
            }
        }
        Ok(())
    }
}

fn validate_delta(delta: &ListDelta) -> Result<(), StoreError> {
    name("delta.channel", &delta.of.channel)?;
    delta.items.iter().try_for_each(payload_fits)?;
    let removed = delta.removed.iter().all(|range| range.start < range.end)
        && delta.removed.windows(2).all(|pair| pair[0].end < pair[1].start);
    let positions =
        delta.positions.len() == delta.items.len() && delta.positions.windows(2).all(|pair| pair[0] < pair[1]);
    let in_range = |end: Option<u64>| end.is_none_or(|end| i64::try_from(end).is_ok());
    if !removed || !positions || !in_range(delta.removed.last().map(|range| range.end)) {
        return invalid(
            "delta.positions",
            "removed ranges and positions must ascend, with one position for each item".into(),
        );
    }
    if !in_range(delta.positions.last().copied()) {
        return invalid("delta.positions", "a position is above 2^63-1".into());
    }
    Ok(())
}

/// Checks the threads that are to be deleted against the limits.
///
/// # Errors
/// [`StoreError::Invalid`].
pub fn validate_deleted(threads: &[ThreadId]) -> Result<(), StoreError> {
    at_most("deleted threads", threads.len(), DELETED_THREADS_MAX)
}

/// Checks a value against the limits.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn payload_fits(payload: &Payload) -> Result<(), StoreError> {
    at_most("value bytes", payload.len(), VALUE_BYTES_MAX)?;
    let id = payload.index.as_ref().and_then(|index| index.id.as_deref());
    at_most("item id bytes", id.map_or(0, str::len), ITEM_ID_BYTES_MAX)
}

/// Returns the first name that comes a second time. Few names are compared with each other, without a set.
fn first_twice<'a>(names: impl ExactSizeIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if names.len() <= NAMES_COMPARED_MAX {
        return names
            .clone()
            .enumerate()
            .find(|(at, name)| names.clone().take(*at).any(|one| one == *name))
            .map(|(_, name)| name);
    }
    let mut before = HashSet::with_capacity(names.len());
    names.into_iter().find(|name| !before.insert(*name))
}

fn name(field: &'static str, text: &str) -> Result<(), StoreError> {
    if text.is_empty() || text.contains('\0') {
        return invalid(field, format!("{text:?} is empty or holds a NUL character"));
    }
    at_most(field, text.len(), NAME_BYTES_MAX)
}

fn at_most(field: &'static str, found: usize, limit: usize) -> Result<(), StoreError> {
    if found > limit { invalid(field, format!("{found} is above the limit of {limit}")) } else { Ok(()) }
}

fn invalid(field: &'static str, reason: String) -> Result<(), StoreError> {
    Err(StoreError::Invalid { field, reason })
}
