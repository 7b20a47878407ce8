//! The stored data: the log, and for every checkpoint its record and its whole state.
//!
//! All of it is held in versions of maps that share what did not change. A commit works on a version of the log of its
//! own, which takes the place of the last one when nothing was refused. A reader has a version too, and needs no lock.

pub(super) use std::collections::{BTreeMap, BTreeSet, HashSet};
pub(super) use std::ops::Range;
pub(super) use std::sync::Arc;

use super::map::VersionMap;
pub(super) use crate::base::{CheckpointId, Namespace, TaskId, ThreadId, Timestamp};
use crate::store::backend::is_pruned;
pub(super) use crate::store::batch::*;
pub(super) use crate::store::lease::{LeaseRecord, NewLease};
pub(super) use crate::store::log::*;
pub(super) use crate::store::operation::*;
pub(super) use crate::store::record::*;
pub(super) use crate::store::{Erasure, ItemRange, Pruned, StoreError};

/// The result of a call, which a backend may refuse.
pub(super) type MemoryResult<T> = Result<T, StoreError>;

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
#[derive(Clone, Debug, Default)]
pub(super) struct StoredThread {
    pub(super) created_at: Timestamp,
    pub(super) spaces: VersionMap<Namespace, Arc<MemoryNamespace>>,
    /// The fields that operations set, but for heads.
    pub(super) fields: BTreeMap<OperationField, OperationValue>,
    /// The last lease, also a released one.
    pub(super) lease: Option<LeaseRecord>,
    /// The groups that its claims entered, those of the last one and those that count for a rate: the timestamp until
    /// which the claim counts for it, and whether the lease is in the group while it is live.
    pub(super) groups: BTreeMap<String, (Option<Timestamp>, bool)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MemoryNamespace {
    pub(super) checkpoints: VersionMap<CheckpointId, Arc<StoredCheckpoint>>,
    /// The last move of the head: the newest checkpoint at that time, with which the move ends, and the head.
    pub(super) moved: Option<(CheckpointId, Option<CheckpointId>)>,
    /// The tasks that sleep: their checkpoints, and when they can go on.
    pub(super) timers: BTreeMap<TaskId, (CheckpointId, Timestamp)>,
}

#[derive(Clone, Debug)]
pub(super) struct StoredCheckpoint {
    pub(super) record: CheckpointRecord,
    /// The state; none of a pruned checkpoint.
    pub(super) state: CheckpointState,
    /// The checkpoint as it was added, with which a repeated one is compared; `None` once it is pruned.
    pub(super) added: Option<Arc<NewCheckpoint>>,
    /// The writes of its tasks.
    pub(super) writes: VersionMap<(TaskId, i32), Arc<WriteRecord>>,
}

/// The state at a checkpoint: the newest version of each channel, and the nodes that ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CheckpointState {
    pub(super) channels: VersionMap<Arc<str>, StoredChannel>,
    pub(super) seen: VersionMap<Arc<str>, Seen>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredChannel {
    pub(super) record: Arc<ChannelRecord>,
    /// The list, if it is one.
    pub(super) list: Option<Arc<StoredList>>,
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
    pub(super) payload: Arc<Payload>,
}

/// A value or an item that a checkpoint put: the channel, the position of an item, the task, and the content.
pub(super) type PutEntry<'a> = (&'a Arc<str>, Option<u64>, Option<u32>, &'a Payload);

impl MemoryLog {
    pub(super) fn space(&self, thread: &ThreadId, namespace: &Namespace) -> Option<&MemoryNamespace> {
        self.threads.get(thread)?.spaces.get(namespace).map(|space| &**space)
    }

    pub(super) fn stored(&self, at: &CheckpointRef) -> Option<&StoredCheckpoint> {
        self.space(&at.thread, &at.namespace)?.stored(&at.checkpoint)
    }

    pub(super) fn parent(&self, record: &CheckpointRecord) -> Option<&StoredCheckpoint> {
        self.stored(&record.parent_ref()?)
    }

    /// Returns a checkpoint, and an error if it is not stored.
    pub(super) fn found(&self, at: &CheckpointRef) -> MemoryResult<&StoredCheckpoint> {
        let not_found = || StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() };
        self.stored(at).ok_or_else(not_found)
    }

    /// Returns a checkpoint whose state is stored.
    pub(super) fn kept(&self, at: &CheckpointRef) -> MemoryResult<&StoredCheckpoint> {
        self.found(at)?.kept()
    }

    /// Returns a checkpoint and those that it builds on, the newest first.
    pub(super) fn lineage<'l>(&'l self, at: &'l StoredCheckpoint) -> impl Iterator<Item = &'l StoredCheckpoint> {
        std::iter::successors(Some(at), |at| self.parent(&at.record))
    }

    /// Returns the namespaces of a thread, or of all.
    pub(super) fn spaces<'l>(
        &'l self,
        thread: Option<&'l ThreadId>,
    ) -> impl Iterator<Item = (&'l ThreadId, &'l Namespace, &'l MemoryNamespace)> {
        let threads = self.threads.from(thread).take_while(move |(id, _)| thread.is_none_or(|thread| id == thread));
        threads.flat_map(|(id, of)| of.spaces.iter().map(move |(namespace, space)| (id, namespace, &**space)))
    }

    /// Returns the checkpoints of a thread, or of all, the oldest first in each namespace.
    pub(super) fn all<'l>(&'l self, thread: Option<&'l ThreadId>) -> impl Iterator<Item = &'l StoredCheckpoint> {
        self.spaces(thread).flat_map(|(.., space)| space.all())
    }

    pub(super) fn thread_mut(&mut self, thread: &ThreadId) -> Option<&mut StoredThread> {
        self.threads.get_mut(thread).map(Arc::make_mut)
    }

    pub(super) fn space_mut(&mut self, thread: &ThreadId, namespace: &Namespace) -> Option<&mut MemoryNamespace> {
        self.thread_mut(thread)?.spaces.get_mut(namespace).map(Arc::make_mut)
    }
}

impl StoredThread {
    pub(super) fn root(&self) -> Option<&MemoryNamespace> {
        self.spaces.get(&Namespace::root()).map(|space| &**space)
    }
}

impl MemoryNamespace {
    pub(super) fn stored(&self, id: &CheckpointId) -> Option<&StoredCheckpoint> {
        self.checkpoints.get(id).map(|stored| &**stored)
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
        self.stored(&self.head_id()?)
    }

    /// Returns the checkpoints, the oldest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &StoredCheckpoint> {
        self.checkpoints.iter().map(|(_, stored)| &**stored)
    }

    /// Returns the values and items that a checkpoint put; of a pruned one, those that the next retained one of its
    /// branch shows.
    pub(super) fn puts<'s>(&'s self, of: &'s StoredCheckpoint) -> impl Iterator<Item = PutEntry<'s>> {
        let CheckpointRecord { branch, ordinal, seq, pruned, .. } = of.record;
        let next = self.checkpoints.from(Some(&of.record.point.checkpoint)).map(|(_, next)| &**next);
        let mut shown = next.filter(move |next| next.record.branch == branch && !next.record.pruned);
        let channels = shown.next().into_iter().flat_map(|shown| shown.channels());
        channels.filter(move |of| pruned || of.record.ordinal == ordinal).flat_map(
            move |StoredChannel { record, list }| {
                let is_own = record.ordinal == ordinal;
                let value =
                    if let (ChannelValue::Value(value), true) = (&record.value, is_own) { Some(value) } else { None };
                let range = move |list: &StoredList| if pruned { 0..u64::MAX } else { list.written.clone() };
                let items = list.iter().flat_map(move |list| list.in_range(range(list)));
                let items = items.filter(move |(_, item)| item.seq == seq);
                let items = items.map(|(at, item)| (&record.channel, Some(*at), item.written.1, &*item.payload));
                value.into_iter().map(|value| (&record.channel, None, record.task, value)).chain(items)
            },
        )
    }

    /// Returns the number and the bytes of the values that a checkpoint put, and of the writes of its tasks.
    pub(super) fn content(&self, of: &StoredCheckpoint) -> Pruned {
        let mut sum = Pruned::default();
        let written = of.writes.iter().flat_map(|(_, write)| write.value.payloads());
        for payload in self.puts(of).map(|(.., payload)| payload).chain(written) {
            sum.values += 1;
            sum.bytes += payload.len() as u64;
        }
        sum
    }

    /// Returns whether a checkpoint of the namespace is a child of one.
    pub(super) fn is_continued(&self, id: &CheckpointId) -> bool {
        self.newest_id() != Some(*id) && self.all().rev().any(|stored| stored.record.parent == Some(*id))
    }
}

impl StoredCheckpoint {
    /// Returns itself, and an error if it was pruned.
    pub(super) fn kept(&self) -> MemoryResult<&Self> {
        let point = &self.record.point;
        if self.record.pruned { Err(is_pruned(&point.thread, &point.checkpoint)) } else { Ok(self) }
    }

    pub(super) fn list(&self, channel: &str) -> Option<&StoredList> {
        self.state.channels.get(channel)?.list.as_deref()
    }

    /// Returns branch and ordinal.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.record.branch, self.record.ordinal)
    }

    /// Returns the channels.
    pub(super) fn channels(&self) -> impl Iterator<Item = &StoredChannel> {
        self.state.channels.iter().map(|(_, channel)| channel)
    }

    /// Returns the channels that it wrote.
    pub(super) fn written(&self) -> impl Iterator<Item = &StoredChannel> {
        self.channels().filter(|channel| channel.record.ordinal == self.record.ordinal)
    }

    /// Returns the writes of its tasks, in the order of (path, task, index).
    pub(super) fn sorted_writes(&self) -> Vec<WriteRecord> {
        let mut writes: Vec<_> = self.writes.iter().map(|(_, write)| write).collect();
        writes.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
        writes.into_iter().map(|write| WriteRecord::clone(write)).collect()
    }
}

impl StoredList {
    pub(super) fn in_range(&self, range: Range<u64>) -> impl Iterator<Item = &(u64, Item)> {
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
