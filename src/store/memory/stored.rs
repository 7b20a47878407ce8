//! The stored data: the log, and for every checkpoint its record and its whole state.
//!
//! All of it is held in versions of maps that share what did not change. A commit works on a version of the log of its
//! own, which takes the place of the last one when nothing was refused. A reader has a version too, and needs no lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::map::VersionMap;
use crate::base::{CheckpointId, Namespace, TaskId, ThreadId, Timestamp};
use crate::store::backend::is_pruned;
use crate::store::batch::{ListRef, Payload};
use crate::store::lease::LeaseRecord;
use crate::store::operation::{OperationField, OperationRecord, OperationValue};
use crate::store::record::{CheckpointRecord, CheckpointRef, WriteRecord};
use crate::store::{Pruned, StoreError};

/// A version of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryLog {
    pub(super) threads: VersionMap<ThreadId, Arc<StoredThread>>,
    /// The `seq` of the newest checkpoint.
    pub(super) seq: u64,
    /// The number of the newest branch.
    pub(super) branch: u64,
    pub(super) operations: VersionMap<u64, Arc<OperationRecord>>,
    /// The number of the newest operation.
    pub(super) operation: u64,
}

/// A thread with at least one checkpoint.
#[derive(Clone, Debug)]
pub(super) struct StoredThread {
    pub(super) created_at: Timestamp,
    pub(super) spaces: VersionMap<Namespace, Arc<MemoryNamespace>>,
    /// The fields that operations set, but for heads.
    pub(super) fields: BTreeMap<OperationField, OperationValue>,
    /// The last lease, also a released one.
    pub(super) lease: Option<LeaseRecord>,
    /// The groups that its claims entered: those of the last one, and those of others that count for a rate.
    pub(super) groups: Vec<EnteredGroup>,
}

/// A group that a claim of a thread entered.
#[derive(Clone, Debug)]
pub(super) struct EnteredGroup {
    pub(super) name: String,
    /// The timestamp until which the claim counts for the rate; `None` without a rate.
    pub(super) rated_until: Option<Timestamp>,
    /// True if the claim is the last one, and not released: the lease counts while it is live.
    pub(super) is_current: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MemoryNamespace {
    pub(super) checkpoints: VersionMap<CheckpointId, StoredCheckpoint>,
    /// The last move of the head: the newest checkpoint at that time, with which the move ends, and the head.
    pub(super) moved: Option<(CheckpointId, Option<CheckpointId>)>,
    /// The tasks that sleep: their checkpoints, and when they can go on.
    pub(super) timers: BTreeMap<TaskId, (CheckpointId, Timestamp)>,
}

/// A checkpoint. A clone shares everything.
#[derive(Clone, Debug)]
pub(super) struct StoredCheckpoint {
    pub(super) record: Arc<CheckpointRecord>,
    /// The state; of a pruned checkpoint, what it wrote and a later one of its branch shows.
    pub(super) state: Arc<CheckpointState>,
    /// The writes that it consumed, with which a repeated batch is compared.
    pub(super) consumed: Arc<[Arc<WriteRecord>]>,
    /// The writes of its tasks.
    pub(super) writes: VersionMap<(TaskId, i32), Arc<WriteRecord>>,
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

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChannelContent {
    Empty,
    Value(HeldPayload),
    Items(Arc<StoredList>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StoredList {
    pub(super) positions: VersionMap<u64, Item>,
    /// A range that holds the positions which this version put or deleted.
    pub(super) written: Range<u64>,
    /// The list it references, if any.
    pub(super) reference: Option<ListOrigin>,
}

/// That a list began as another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListOrigin {
    pub(super) of: ListRef,
    /// The length of the row of references, each list referencing the next.
    pub(super) depth: usize,
    /// The items whose `seq` is not above this are those of the other list.
    pub(super) seq: u64,
    /// When and by which task it began: so the items are shown.
    pub(super) written: (u64, Option<u32>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    /// The `seq` of the checkpoint that put it.
    pub(super) seq: u64,
    /// The ordinal of that checkpoint, and the task.
    pub(super) written: (u64, Option<u32>),
    pub(super) payload: HeldPayload,
}

/// Bytes, held once: by a value or an item, or by the write of a task that it took over.
#[derive(Clone, Debug)]
pub(super) enum HeldPayload {
    Own(Arc<Payload>),
    OfWrite(Arc<WriteRecord>, usize),
}

/// A value or an item that a checkpoint put.
pub(super) struct PutEntry<'a> {
    pub(super) channel: &'a Arc<str>,
    pub(super) position: Option<u64>,
    pub(super) task: Option<u32>,
    pub(super) payload: &'a Payload,
}

impl HeldPayload {
    pub(super) fn get(&self) -> &Payload {
        match self {
            Self::Own(payload) => payload,
            Self::OfWrite(write, part) => write.value.payload(*part).unwrap_or_else(|| unreachable!("it was found")),
        }
    }
}

impl PartialEq for HeldPayload {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl MemoryLog {
    pub(super) fn space(&self, thread: &ThreadId, namespace: &Namespace) -> Option<&MemoryNamespace> {
        self.threads.get(thread)?.spaces.get(namespace).map(|space| &**space)
    }

    pub(super) fn stored(&self, at: &CheckpointRef) -> Option<&StoredCheckpoint> {
        self.space(&at.thread, &at.namespace)?.checkpoints.get(&at.checkpoint)
    }

    pub(super) fn parent(&self, record: &CheckpointRecord) -> Option<&StoredCheckpoint> {
        self.stored(&record.parent_ref()?)
    }

    /// Returns a checkpoint whose state is stored.
    pub(super) fn kept(&self, at: &CheckpointRef) -> Result<&StoredCheckpoint, StoreError> {
        self.stored(at).ok_or_else(|| not_found(at))?.kept()
    }

    /// Returns the namespaces of a thread, or of all.
    pub(super) fn spaces(
        &self,
        thread: Option<&ThreadId>,
    ) -> impl Iterator<Item = (&ThreadId, &Namespace, &MemoryNamespace)> {
        let threads = self.threads.from(thread).take_while(move |(id, _)| thread.is_none_or(|thread| id == thread));
        threads.flat_map(|(id, of)| of.spaces.iter().map(move |(namespace, space)| (id, namespace, &**space)))
    }

    /// Changes a thread, if it exists.
    pub(super) fn change_thread(&mut self, thread: &ThreadId, change: impl FnOnce(&mut StoredThread)) {
        if let Some(mut of) = self.threads.get(thread).cloned() {
            change(Arc::make_mut(&mut of));
            self.threads.put(thread.clone(), of);
        }
    }
}

impl StoredCheckpoint {
    /// Returns itself, and an error if it was pruned.
    pub(super) fn kept(&self) -> Result<&Self, StoreError> {
        let point = &self.record.point;
        if self.record.pruned { Err(is_pruned(&point.thread, &point.checkpoint)) } else { Ok(self) }
    }

    pub(super) fn list(&self, channel: &str) -> Option<&StoredList> {
        self.state.channels.get(channel)?.value.items()
    }

    /// Returns branch and ordinal.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.record.branch, self.record.ordinal)
    }

    /// Returns the channels that it wrote.
    pub(super) fn written(&self) -> impl Iterator<Item = &(Arc<str>, ChannelVersion)> {
        self.state.channels.iter().filter(|(_, channel)| channel.ordinal == self.record.ordinal)
    }

    /// Returns the values and items that it put.
    pub(super) fn puts(&self) -> impl Iterator<Item = PutEntry<'_>> {
        self.written().flat_map(|(channel, of)| {
            let value = match &of.value {
                ChannelContent::Value(held) => {
                    Some(PutEntry { channel, position: None, task: of.task, payload: held.get() })
                }
                ChannelContent::Empty | ChannelContent::Items(_) => None,
            };
            let items = of.value.items().into_iter().flat_map(|list| list.put_by(self.record.seq));
            value.into_iter().chain(items.map(move |(position, item)| PutEntry {
                channel,
                position: Some(*position),
                task: item.written.1,
                payload: item.payload.get(),
            }))
        })
    }

    /// Returns the number and the bytes of the values that it put, and of the writes of its tasks.
    pub(super) fn content(&self) -> Pruned {
        let mut sum = Pruned::default();
        let written = self.writes.iter().flat_map(|(_, write)| (0..).map_while(|part| write.value.payload(part)));
        for payload in self.puts().map(|put| put.payload).chain(written) {
            sum.values += 1;
            sum.bytes += payload.len() as u64;
        }
        sum
    }

    /// Returns the writes of its tasks, in the order of (path, task, index).
    pub(super) fn sorted_writes(&self) -> Vec<WriteRecord> {
        let mut writes: Vec<_> = self.writes.iter().map(|(_, write)| write).collect();
        writes.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
        writes.into_iter().map(|write| WriteRecord::clone(write)).collect()
    }
}

impl StoredThread {
    pub(super) fn new(created_at: Timestamp) -> Self {
        let (spaces, fields) = (VersionMap::default(), BTreeMap::new());
        Self { created_at, spaces, fields, lease: None, groups: Vec::new() }
    }

    pub(super) fn root(&self) -> Option<&MemoryNamespace> {
        self.spaces.get(&Namespace::root()).map(|space| &**space)
    }
}

impl MemoryNamespace {
    pub(super) fn newest(&self) -> Option<&StoredCheckpoint> {
        self.checkpoints.last().map(|(_, stored)| stored)
    }

    pub(super) fn newest_id(&self) -> Option<CheckpointId> {
        self.checkpoints.last().map(|(id, _)| *id)
    }

    /// Returns the head: the newest checkpoint, unless an operation moved the head since.
    pub(super) fn head_id(&self) -> Option<CheckpointId> {
        let newest = self.newest_id()?;
        self.moved.filter(|(moved_at, _)| *moved_at == newest).map_or(Some(newest), |(_, head)| head)
    }

    pub(super) fn head(&self) -> Option<&StoredCheckpoint> {
        self.checkpoints.get(&self.head_id()?)
    }

    /// Returns the checkpoints, the oldest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &StoredCheckpoint> {
        self.checkpoints.iter().map(|(_, stored)| stored)
    }

    /// Returns whether a checkpoint of the namespace is a child of one.
    pub(super) fn is_continued(&self, id: &CheckpointId) -> bool {
        self.newest_id() != Some(*id) && self.all().rev().any(|stored| stored.record.parent == Some(*id))
    }
}

impl ChannelContent {
    pub(super) fn items(&self) -> Option<&StoredList> {
        if let Self::Items(items) = self { Some(items) } else { None }
    }
}

impl StoredList {
    /// Returns the items that the checkpoint with a `seq` put.
    pub(super) fn put_by(&self, seq: u64) -> impl Iterator<Item = &(u64, Item)> {
        self.in_range(&self.written).filter(move |(_, item)| item.seq == seq)
    }

    pub(super) fn in_range(&self, range: &Range<u64>) -> impl Iterator<Item = &(u64, Item)> {
        self.positions.from(Some(&range.start)).take_while(move |(position, _)| *position < range.end)
    }

    /// Returns the ordinal at which an item was put, and the task.
    pub(super) fn written_by(&self, item: &Item) -> (u64, Option<u32>) {
        self.reference.as_ref().filter(|_| self.is_shared(item)).map_or(item.written, |of| of.written)
    }

    /// Returns whether an item is one of the list that this one references.
    pub(super) fn is_shared(&self, item: &Item) -> bool {
        self.reference.as_ref().is_some_and(|reference| item.seq <= reference.seq)
    }
}

pub(super) fn invalid<T>(field: &'static str, reason: String) -> Result<T, StoreError> {
    Err(StoreError::Invalid { field, reason })
}

pub(super) fn not_found(at: &CheckpointRef) -> StoreError {
    StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() }
}
