//! The stored data: the log, and for every checkpoint its record, its changes and its whole state.
//!
//! State is held in shared versions of a map, so the cost of a checkpoint is that of its changes, a fork is free, and
//! no checkpoint can see the writes of another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::operation::MovedHead;
use super::tree::VersionMap;
use crate::base::{CheckpointId, Namespace, TaskId, ThreadId, Timestamp};
use crate::store::backend::is_pruned;
use crate::store::batch::{ListDelta, ListRef, NewWrites, Payload, Seen, WriteValue};
use crate::store::record::{CheckpointRecord, CheckpointRef, WriteRecord};
use crate::store::{LeaseRecord, OperationField, OperationRecord, OperationValue, StoreError, WriteMark};

/// All threads, and the counters of the file.
#[derive(Debug, Default)]
pub(super) struct MemoryLog {
    pub(super) threads: BTreeMap<ThreadId, StoredThread>,
    /// The `seq` of the newest checkpoint.
    pub(super) seq: u64,
    /// The number of the newest branch.
    pub(super) branch: u64,
    /// The operations in their order.
    pub(super) operations: Vec<OperationRecord>,
    /// The number of the newest operation.
    pub(super) operation: u64,
}

/// A thread with at least one checkpoint.
#[derive(Debug)]
pub(super) struct StoredThread {
    pub(super) created_at: Timestamp,
    pub(super) spaces: BTreeMap<Namespace, NamespaceVersion>,
    /// The fields that operations set, but for heads.
    pub(super) fields: BTreeMap<OperationField, OperationValue>,
    /// The last lease, also a released one.
    pub(super) lease: Option<LeaseRecord>,
    /// The groups that its claims entered: those of the last one, and those of others that count for a rate.
    pub(super) lease_groups: Vec<EnteredGroup>,
}

/// A group that a claim of a thread entered.
#[derive(Debug)]
pub(super) struct EnteredGroup {
    pub(super) name: String,
    /// The timestamp until which the claim counts for the rate; `None` without a rate.
    pub(super) rated_until: Option<Timestamp>,
    /// True if the claim is the last one, and not released: the lease counts while it is live.
    pub(super) is_current: bool,
}

/// A namespace. A clone is a version of it that no later commit changes, so readers need no lock while they read.
#[derive(Clone, Debug, Default)]
pub(super) struct NamespaceVersion {
    pub(super) checkpoints: VersionMap<CheckpointId, Arc<StoredCheckpoint>>,
    /// The writes of the tasks of each checkpoint.
    pub(super) writes: VersionMap<CheckpointId, CheckpointWrites>,
    pub(super) branches: u64,
    /// The last move of the head, which a newer checkpoint ends.
    pub(super) moved: Option<MovedHead>,
    /// The tasks that sleep: their checkpoints, and when they can go on.
    pub(super) timers: BTreeMap<TaskId, (CheckpointId, Timestamp)>,
}

/// The writes of the tasks of one checkpoint, by task and index.
pub(super) type CheckpointWrites = VersionMap<(TaskId, i32), Arc<Write>>;

/// A checkpoint with its state.
#[derive(Debug)]
pub(super) struct StoredCheckpoint {
    pub(super) record: CheckpointRecord,
    pub(super) delta: Delta,
    pub(super) state: CheckpointState,
}

/// The changes of a checkpoint. A repeated batch is compared with them.
#[derive(Debug, PartialEq)]
pub(super) struct Delta {
    pub(super) consumed: Vec<Arc<Write>>,
    pub(super) changes: Vec<Changed>,
    pub(super) seen: Vec<Seen>,
}

/// The state at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CheckpointState {
    pub(super) channels: VersionMap<Arc<str>, ChannelVersion>,
    pub(super) seen: VersionMap<Arc<str>, Vec<(Arc<str>, u64)>>,
}

/// The newest version of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChannelVersion {
    pub(super) version: u64,
    pub(super) ordinal: u64,
    pub(super) task: Option<u32>,
    pub(super) value: ChannelContent,
}

/// The content of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChannelContent {
    Empty,
    Value(Arc<Payload>),
    Items(Arc<StoredList>),
}

/// A list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StoredList {
    pub(super) positions: VersionMap<u64, Item>,
    /// The list it references, if any.
    pub(super) reference: Option<ListOrigin>,
}

/// That a list began as another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListOrigin {
    pub(super) of: ListRef,
    /// The length of the row of references, each list referencing the next.
    pub(super) depth: usize,
    /// The items of which counters are not above this are those of the other list.
    seq: u64,
    /// When and by which task it began: so the items are shown.
    ordinal: u64,
    task: Option<u32>,
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    /// The `seq` of the checkpoint that put it.
    pub(super) seq: u64,
    pub(super) ordinal: u64,
    pub(super) task: Option<u32>,
    pub(super) payload: Arc<Payload>,
}

/// A `Change` whose bytes were found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changed {
    pub(super) channel: Arc<str>,
    pub(super) version: u64,
    pub(super) task: Option<u32>,
    pub(super) value: ChangedValue,
}

/// A `ChangeValue` whose bytes were found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChangedValue {
    Empty,
    Value(Arc<Payload>),
    Items(Vec<ChangedItem>),
}

/// An `ItemChange` whose bytes were found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChangedItem {
    pub(super) position: u64,
    pub(super) task: Option<u32>,
    pub(super) op: ChangedOp,
}

/// An `ItemOp` whose bytes were found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChangedOp {
    Put(Arc<Payload>),
    Delete,
    DeleteRange(u64),
    /// The list is another one, as it was found.
    Reference(ListRef, StoredList),
}

/// A write of a task. Its payloads are shared with the channels that took them over.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    pub(super) task: TaskId,
    pub(super) path: Arc<str>,
    pub(super) index: i32,
    pub(super) channel: Arc<str>,
    pub(super) value: WrittenValue,
    pub(super) mark: Option<WriteMark>,
}

/// The value of a write.
#[derive(Debug, PartialEq)]
pub(super) enum WrittenValue {
    Null,
    One(Arc<Payload>),
    Items(Vec<Arc<Payload>>),
    /// A delta without its items, which are shared, and they.
    Delta(Box<ListDelta>, Vec<Arc<Payload>>),
}

impl MemoryLog {
    pub(super) fn space(&self, thread: &ThreadId, namespace: &Namespace) -> Option<&NamespaceVersion> {
        self.threads.get(thread)?.spaces.get(namespace)
    }

    pub(super) fn stored(&self, at: &CheckpointRef) -> Option<&Arc<StoredCheckpoint>> {
        self.space(&at.thread, &at.namespace)?.checkpoints.get(&at.checkpoint)
    }
}

impl StoredCheckpoint {
    /// Returns an error for a checkpoint that was pruned.
    pub(super) fn must_be_kept(&self) -> Result<(), StoreError> {
        let point = &self.record.point;
        if self.record.pruned { Err(is_pruned(&point.thread, &point.checkpoint)) } else { Ok(()) }
    }
}

impl NamespaceVersion {
    /// Returns the head: the newest checkpoint, unless an operation moved the head since.
    pub(super) fn head_id(&self) -> Option<CheckpointId> {
        let newest = self.newest_id()?;
        match self.moved.filter(|moved| moved.newest == newest) {
            Some(moved) => moved.head,
            None => Some(newest),
        }
    }

    pub(super) fn head(&self) -> Option<&Arc<StoredCheckpoint>> {
        self.checkpoints.get(&self.head_id()?)
    }

    /// Returns whether a checkpoint of the namespace is a child of one.
    pub(super) fn is_continued(&self, id: &CheckpointId) -> bool {
        let is_parent = |(_, stored): (_, &Arc<StoredCheckpoint>)| stored.record.parent == Some(*id);
        self.newest_id() != Some(*id) && self.checkpoints.walk_down(None).any(is_parent)
    }

    pub(super) fn newest_id(&self) -> Option<CheckpointId> {
        self.checkpoints.last().map(|(id, _)| *id)
    }

    pub(super) fn writes_of(&self, checkpoint: &CheckpointId) -> CheckpointWrites {
        self.writes.get(checkpoint).cloned().unwrap_or_default()
    }
}

/// Adds writes to those of a checkpoint: special indexes replace, any other position retains its first write.
pub(super) fn add_writes(writes: &mut CheckpointWrites, new: &[Arc<Write>]) {
    for write in new {
        let key = (write.task, write.index);
        if write.index < 0 || writes.get(&key).is_none() {
            writes.put(key, Arc::clone(write));
        }
    }
}

impl CheckpointState {
    /// Returns the state after `delta`, which came at `ordinal` as the checkpoint `seq` of the log.
    pub(super) fn after(&self, delta: &Delta, ordinal: u64, seq: u64) -> Result<Self, StoreError> {
        let mut next = self.clone();
        for change in &delta.changes {
            let before = self.channels.get(&*change.channel);
            if let Some(before) = before
                && change.version <= before.version
            {
                let (channel, new, old) = (&change.channel, change.version, before.version);
                return invalid("change.version", format!("{new} of channel {channel:?} is not above {old}"));
            }
            let value = match &change.value {
                ChangedValue::Empty => ChannelContent::Empty,
                ChangedValue::Value(payload) => ChannelContent::Value(Arc::clone(payload)),
                ChangedValue::Items(items) => {
                    let list = before.and_then(|channel| channel.value.items()).cloned().unwrap_or_default();
                    ChannelContent::Items(Arc::new(list_after(list, items, ordinal, seq)?))
                }
            };
            let channel = ChannelVersion { version: change.version, ordinal, task: change.task, value };
            next.channels.put(Arc::clone(&change.channel), channel);
        }
        for seen in &delta.seen {
            next.seen.put(Arc::clone(&seen.node), seen.versions.clone());
        }
        Ok(next)
    }

    /// Returns whether every map is in order.
    pub(super) fn is_sound(&self) -> bool {
        let mut lists = self.channels.walk_up(None).filter_map(|(_, channel)| channel.value.items());
        self.channels.is_sound() && self.seen.is_sound() && lists.all(|list| list.positions.is_sound())
    }
}

impl ChannelContent {
    pub(super) fn items(&self) -> Option<&StoredList> {
        match self {
            Self::Items(items) => Some(items),
            _ => None,
        }
    }
}

impl StoredList {
    /// Returns when an item was put, and by which task.
    pub(super) fn written(&self, item: &Item) -> (u64, Option<u32>) {
        match &self.reference {
            Some(reference) if self.is_shared(item) => (reference.ordinal, reference.task),
            _ => (item.ordinal, item.task),
        }
    }

    /// Returns whether an item is one of the list that this one references.
    pub(super) fn is_shared(&self, item: &Item) -> bool {
        self.reference.as_ref().is_some_and(|reference| item.seq <= reference.seq)
    }
}

/// Returns the list after some operations: those on more than a position first, then each other position once.
fn list_after(mut list: StoredList, items: &[ChangedItem], ordinal: u64, seq: u64) -> Result<StoredList, StoreError> {
    for item in items {
        match &item.op {
            ChangedOp::DeleteRange(end) => _ = list.positions.delete_range(&item.position, end),
            ChangedOp::Reference(of, found) => {
                // Everything it holds was put before this checkpoint.
                let depth = found.reference.as_ref().map_or(0, |reference| reference.depth) + 1;
                let reference = ListOrigin { of: of.clone(), depth, seq: seq - 1, ordinal, task: item.task };
                list = StoredList { positions: found.positions.clone(), reference: Some(reference) };
            }
            ChangedOp::Put(_) | ChangedOp::Delete => {}
        }
    }
    for item in items {
        match &item.op {
            ChangedOp::Put(payload) => {
                list.positions.put(item.position, Item { seq, ordinal, task: item.task, payload: Arc::clone(payload) });
            }
            ChangedOp::Delete if list.positions.delete_range(&item.position, &(item.position + 1)) == 0 => {
                return invalid("item.remove", format!("position {} holds nothing", item.position));
            }
            ChangedOp::Delete | ChangedOp::DeleteRange(_) | ChangedOp::Reference(..) => {}
        }
    }
    Ok(list)
}

impl Write {
    /// Copies the writes of a task out of a batch: the only time their bytes are copied.
    pub(super) fn all_of(new: &NewWrites) -> impl Iterator<Item = Arc<Self>> + '_ {
        new.writes.iter().map(|write| {
            let value = match &write.value {
                WriteValue::Null => WrittenValue::Null,
                WriteValue::One(payload) => WrittenValue::One(Arc::new(payload.clone())),
                WriteValue::Items(items) => WrittenValue::Items(items.iter().cloned().map(Arc::new).collect()),
                WriteValue::Delta(delta) => {
                    let mut bare = ListDelta::new(delta.of.clone());
                    (bare.removed, bare.positions) = (delta.removed.clone(), delta.positions.clone());
                    WrittenValue::Delta(Box::new(bare), delta.items.iter().cloned().map(Arc::new).collect())
                }
            };
            let (path, channel) = (Arc::clone(&new.path), Arc::clone(&write.channel));
            Arc::new(Self { task: new.task, path, index: write.index, channel, value, mark: write.mark })
        })
    }

    pub(super) fn payloads(&self) -> &[Arc<Payload>] {
        match &self.value {
            WrittenValue::Null => &[],
            WrittenValue::One(payload) => std::slice::from_ref(payload),
            WrittenValue::Items(items) | WrittenValue::Delta(_, items) => items,
        }
    }

    pub(super) fn to_record(&self) -> WriteRecord {
        let all = |items: &[Arc<Payload>]| items.iter().map(|item| Payload::clone(item)).collect();
        let value = match &self.value {
            WrittenValue::Null => WriteValue::Null,
            WrittenValue::One(payload) => WriteValue::One(Payload::clone(payload)),
            WrittenValue::Items(items) => WriteValue::Items(all(items)),
            WrittenValue::Delta(delta, items) => {
                let mut delta = ListDelta::clone(delta);
                delta.items = all(items);
                WriteValue::Delta(Box::new(delta))
            }
        };
        WriteRecord::new(self.task, Arc::clone(&self.path), self.index, Arc::clone(&self.channel), value)
            .with_mark(self.mark)
    }
}

pub(super) fn invalid<T>(field: &'static str, reason: String) -> Result<T, StoreError> {
    Err(StoreError::Invalid { field, reason })
}
