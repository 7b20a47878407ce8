//! A thread read back as the batches that make it anew: what copies and comparisons of logs are made of.
//!
//! A value that a task wrote refers to the write, so that its bytes are stored once. A checkpoint whose parent was
//! pruned, or is in another thread that the target does not have, begins a lineage with its whole state. *Absent:* the
//! operations of the thread.
//!
//! Invariant: a batch refers to what batches before it wrote.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::{Log, LogExt};
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::limits::{COPY_PAGE_BYTES, COPY_PAGE_WRITES};
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemOp, ListRef, NewCheckpoint, NewTimer, NewWrite, NewWrites,
    Parent, Payload, Seen, WriteRef, WriteValue,
};
use crate::store::error::StoreError;
use crate::store::marked::sleeping;
use crate::store::query::{CheckpointQuery, ItemRange};
use crate::store::record::{ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, StateRecord, WriteRecord};

/// An item of a list: position, ordinal, task and content.
type CopiedItem = (u64, u64, Option<u32>, Payload);

/// The items of a list, or of a range of it.
type Items = Vec<CopiedItem>;

/// The namespace and the id of a checkpoint of the thread.
pub(crate) type CopiedPoint = (Namespace, CheckpointId);

/// Returns the point of a checkpoint in its thread.
pub(crate) fn copied_point(record: &CheckpointRecord) -> CopiedPoint {
    (record.point.namespace.clone(), record.point.checkpoint)
}

/// Returns the checkpoints of all namespaces of a thread in the order of the log.
pub(crate) fn records_of<L: Log + ?Sized>(backend: &L, thread: &ThreadId) -> Result<Vec<CheckpointRecord>, StoreError> {
    let mut records: Vec<CheckpointRecord> = Vec::new();
    for namespace in backend.namespaces(thread)? {
        let mut query = CheckpointQuery::new(thread.clone(), namespace);
        loop {
            let page = backend.checkpoints(&query)?;
            let Some(last) = page.last().map(|record| record.point.checkpoint) else { break };
            in_order("checkpoints", last, query.before.replace(last))?;
            records.extend(page);
        }
    }
    records.sort_by_key(|record| record.seq);
    Ok(records)
}

/// Refuses a page that does not come after the one before: a log that repeats its pages has no end.
pub(crate) fn in_order<T: PartialOrd>(of: &str, last: T, before: Option<T>) -> Result<(), StoreError> {
    if before.is_none_or(|before| last < before) {
        return Ok(());
    }
    Err(StoreError::Corrupt { place: format!("pages of {of}"), reason: "a page repeats the one before".into() })
}

/// The first checkpoints of forks that refer to their parent in another thread. The others begin with their whole
/// state.
#[derive(Clone, Copy)]
pub(crate) enum ForkParents<'a> {
    /// All: the batches are for a store with the threads that this one was forked from.
    All,
    /// None: the batches are for an empty store.
    None,
    /// These, by their point.
    Of(&'a HashSet<CopiedPoint>),
}

/// A thread that is read back as batches.
pub(crate) struct ThreadBatches<'a, L: Log + ?Sized> {
    log: &'a L,
    from: &'a ThreadId,
    /// The thread of the batches.
    to: &'a ThreadId,
    forks: ForkParents<'a>,
    /// The head of each namespace so far.
    pub(crate) heads: HashMap<Namespace, CheckpointId>,
    /// The nodes that had run at each checkpoint so far.
    seen: HashMap<CopiedPoint, Vec<Seen>>,
    /// The last checkpoint of each namespace so far, which is the parent of most that follow: reading it again would be
    /// two round trips to a server.
    last: HashMap<Namespace, LastCopied>,
    /// The tasks whose writes build on a list of a later checkpoint: they are copied last.
    late: Vec<(Namespace, NewWrites)>,
    /// The writes of checkpoints that come next: of a page that ends at a number of checkpoints, or of bytes.
    ahead: HashMap<CopiedPoint, Vec<WriteRecord>>,
}

/// What a child of a checkpoint is compared with.
struct LastCopied {
    checkpoint: CheckpointId,
    /// The channels that hold lists.
    lists: Vec<Arc<str>>,
    writes: Vec<WriteRecord>,
}

impl LastCopied {
    fn new(state: &StateRecord) -> Self {
        let lists = state.channels.iter().filter(|channel| channel.value == ChannelValue::Items);
        let lists = lists.map(|channel| Arc::clone(&channel.channel)).collect();
        Self { checkpoint: state.checkpoint.point.checkpoint, lists, writes: Vec::new() }
    }
}

impl<'a, L: Log + ?Sized> ThreadBatches<'a, L> {
    pub(crate) fn new(log: &'a L, (from, to): (&'a ThreadId, &'a ThreadId), forks: ForkParents<'a>) -> Self {
        let (heads, seen, last, ahead) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Self { log, from, to, forks, heads, seen, last, late: Vec::new(), ahead }
    }

    /// Visits the batches of checkpoints, which are those of the thread in the order of the log. A checkpoint comes
    /// before the writes of its tasks.
    pub(crate) fn each(
        &mut self,
        records: &[CheckpointRecord],
        visit: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        debug_assert!(records.is_sorted_by_key(|record| record.seq), "checkpoints come in the order of the log");
        let mut last: HashMap<&Namespace, CheckpointId> = HashMap::new();
        records.iter().for_each(|record| _ = last.insert(&record.point.namespace, record.point.checkpoint));
        for (at, record) in records.iter().enumerate() {
            let is_last = last.get(&record.point.namespace) == Some(&record.point.checkpoint);
            self.first(&records[at..], is_last, visit)?;
        }
        self.rest(visit)
    }

    /// Takes the writes of the first of the checkpoints that come next. If they are not read yet, those of a page are
    /// read in one call: of some checkpoints, and of fewer if their values are large.
    fn next_writes(&mut self, next: &[CheckpointRecord]) -> Result<Vec<WriteRecord>, StoreError> {
        let Some(first) = next.first().map(copied_point) else { return Ok(Vec::new()) };
        if !self.ahead.contains_key(&first) {
            let page = &next[..next.len().min(COPY_PAGE_WRITES)];
            let points: Vec<&CheckpointRef> = page.iter().map(|record| &record.point).collect();
            self.ahead.clear();
            self.ahead.extend(page.iter().map(copied_point).zip(self.log.writes_of(&points, COPY_PAGE_BYTES)?));
        }
        Ok(self.ahead.remove(&first).unwrap_or_default())
    }

    /// Visits the batches of the first of the checkpoints that come next in the order of the log. The tasks that sleep
    /// get timers if `has_timers`; the next checkpoint of the namespace would take them away.
    pub(crate) fn first(
        &mut self,
        next: &[CheckpointRecord],
        has_timers: bool,
        visit: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(record) = next.first() else { return Ok(()) };
        let (namespace, id) = (&record.point.namespace, record.point.checkpoint);
        let mut batch = Batch::new(self.to.clone(), namespace.clone(), self.heads.get(namespace).copied());
        batch.checkpoints.push(self.checkpoint(record)?);
        visit(batch)?;
        self.heads.insert(namespace.clone(), id);
        let writes = self.next_writes(next)?;
        if let Some(last) = self.last.get_mut(namespace) {
            last.writes.clone_from(&writes);
        }
        let timers = if has_timers { timers(record, &writes) } else { Vec::new() };
        let mut batch = Batch::new(self.to.clone(), namespace.clone(), Some(id));
        (batch.writes, batch.timers) = (self.early(namespace, writes_of(id, writes)), timers);
        if batch.writes.is_empty() { Ok(()) } else { visit(batch) }
    }

    /// Visits the batches of the writes that build on lists of later checkpoints, after the last checkpoint.
    pub(crate) fn rest(&mut self, visit: &mut dyn FnMut(Batch) -> Result<(), StoreError>) -> Result<(), StoreError> {
        for (namespace, writes) in std::mem::take(&mut self.late) {
            if !writes.writes.iter().all(|write| self.has_base(write)) {
                continue;
            }
            let head = self.heads.get(&namespace).copied();
            let mut batch = Batch::new(self.to.clone(), namespace, head);
            batch.writes.push(writes);
            visit(batch)?;
        }
        Ok(())
    }

    /// Notes that an operation has moved a head.
    pub(crate) fn move_head(&mut self, namespace: &Namespace, head: Option<CheckpointId>) {
        match head {
            Some(head) => _ = self.heads.insert(namespace.clone(), head),
            None => _ = self.heads.remove(namespace),
        }
    }

    /// Returns the writes that build on lists of copied checkpoints alone. Others are copied last.
    fn early(&mut self, namespace: &Namespace, writes: Vec<NewWrites>) -> Vec<NewWrites> {
        let is_early = |new: &NewWrites| new.writes.iter().all(|write| self.has_base(write));
        let (early, late): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_early);
        self.late.extend(late.into_iter().map(|new| (namespace.clone(), new)));
        early
    }

    /// Returns whether the checkpoint whose list a write builds on is copied so far. One that was pruned never is, and
    /// the write cannot be read in the thread either.
    fn has_base(&self, write: &NewWrite) -> bool {
        match &write.value {
            WriteValue::Delta(delta) => self.seen.contains_key(&(delta.of.namespace.clone(), delta.of.checkpoint)),
            _ => true,
        }
    }

    /// Returns the parent of a checkpoint, and the parent of its copy. A checkpoint whose parent is not copied has
    /// none.
    fn parents_of(&self, record: &CheckpointRecord) -> Option<(CheckpointRef, Parent)> {
        let parent = record.parent_ref()?;
        let is_copied = self.seen.contains_key(&(parent.namespace.clone(), parent.checkpoint));
        match (record.parent, parent.thread == *self.from) {
            (Some(id), _) => is_copied.then_some((parent, Parent::Local(id))),
            (None, true) => {
                let copied = CheckpointRef { thread: self.to.clone(), ..parent.clone() };
                is_copied.then_some((parent, Parent::Fork(copied)))
            }
            (None, false) => {
                let is_kept = match self.forks {
                    ForkParents::All => true,
                    ForkParents::None => false,
                    ForkParents::Of(forks) => forks.contains(&copied_point(record)),
                };
                is_kept.then(|| (parent.clone(), Parent::Fork(parent)))
            }
        }
    }

    fn checkpoint(&mut self, record: &CheckpointRecord) -> Result<NewCheckpoint, StoreError> {
        let last = self.last.remove(&record.point.namespace).filter(|last| record.parent == Some(last.checkpoint));
        let parents = self.parents_of(record);
        if parents.is_none() && record.parent_ref().is_some() {
            return self.first_of_lineage(record);
        }
        let (parent_ref, parent) = parents.unzip();
        let id = record.point.checkpoint;
        let mut new = stated(record, parent);
        let state = self.log.state(&record.point)?;
        let (lists, writes) = match (last, record.parent, &parent_ref) {
            (Some(last), ..) => (Some(last.lists), last.writes),
            (None, Some(_), Some(parent)) => (None, self.log.writes(parent)?),
            _ => (None, Vec::new()),
        };
        let is_late = |write: &WriteRecord, (of, late): &(Namespace, NewWrites)| {
            *of == record.point.namespace && (Some(late.checkpoint), late.task) == (record.parent, write.task)
        };
        let is_early = |write: &WriteRecord| !self.late.iter().any(|late| is_late(write, late));
        let writes: Vec<WriteRecord> = writes.into_iter().filter(is_early).collect();
        let shared = Shared::of(&writes);
        for channel in state.channels.iter().filter(|channel| channel.ordinal == record.ordinal) {
            let value = match &channel.value {
                ChannelValue::Empty => ChangeValue::Empty,
                ChannelValue::Value(payload) => ChangeValue::Value(shared.data(payload)),
                ChannelValue::Items => {
                    let parent = parent_ref.as_ref().map(|parent| (parent, lists.as_deref()));
                    ChangeValue::Items(self.list_changes(record, parent, channel, &shared)?)
                }
            };
            new.changes.push(Change::new(Arc::clone(&channel.channel), channel.version, value).by(channel.task));
        }
        let before = match &parent_ref {
            Some(parent) => self.seen_at(parent)?,
            None => Vec::new(),
        };
        new.seen = state.seen.iter().filter(|seen| !before.contains(seen)).cloned().collect();
        self.last.insert(record.point.namespace.clone(), LastCopied::new(&state));
        self.seen.insert((record.point.namespace.clone(), id), state.seen);
        Ok(new)
    }

    /// Returns a checkpoint that holds its whole state.
    fn first_of_lineage(&mut self, record: &CheckpointRecord) -> Result<NewCheckpoint, StoreError> {
        let id = record.point.checkpoint;
        let mut new = stated(record, None);
        let state = self.log.state(&record.point)?;
        new.changes = whole_changes(&state, |channel| -> Result<_, StoreError> {
            let items = self.items(&record.point, channel, ItemRange::All)?;
            Ok(items.into_iter().map(|(position, _, _, payload)| (position, payload)).collect())
        })?;
        new.seen.clone_from(&state.seen);
        self.last.insert(record.point.namespace.clone(), LastCopied::new(&state));
        self.seen.insert((record.point.namespace.clone(), id), state.seen);
        Ok(new)
    }

    /// Returns the nodes that had run at a checkpoint, which may be one of another thread.
    fn seen_at(&self, at: &CheckpointRef) -> Result<Vec<Seen>, StoreError> {
        if at.thread == *self.from
            && let Some(seen) = self.seen.get(&(at.namespace.clone(), at.checkpoint))
        {
            return Ok(seen.clone());
        }
        Ok(self.log.state(at)?.seen)
    }

    /// Returns the operations that make a list of that of the parent, which comes with its lists if they are known.
    fn list_changes(
        &self,
        record: &CheckpointRecord,
        parent: Option<(&CheckpointRef, Option<&[Arc<str>]>)>,
        channel: &ChannelRecord,
        shared: &Shared<'_>,
    ) -> Result<Vec<ItemChange>, StoreError> {
        let name = &*channel.channel;
        let mut written = None::<Range<u64>>;
        self.log.versions(&record.point, Some(name), record.ordinal, &mut |version| {
            written = version.positions.clone();
            Ok(true)
        })?;
        let written = written.unwrap_or(0..u64::MAX);
        let is_replaced = written.end == u64::MAX;
        let range = if is_replaced { ItemRange::All } else { ItemRange::Positions(written.start, written.end) };
        let mut items = self.items(&record.point, name, range)?;
        if is_replaced {
            // The items of a list that is referenced, or was, have tasks of other checkpoints.
            let tasks = parent.map(|(parent, _)| self.log.checkpoint(parent)).transpose()?.flatten();
            let tasks = tasks.map_or(0, |parent| parent.tasks.len());
            for (_, ordinal, task, _) in &mut items {
                let own = task.filter(|task| *ordinal == record.ordinal && (*task as usize) < tasks);
                *task = own.or(channel.task);
            }
        }
        let reference = if is_replaced { self.log.list_reference(&record.point, name)? } else { None };
        // The reference leads to a list of another thread if a fork was pruned; the copy has no such list.
        let is_copied = |of: &ListRef| self.seen.contains_key(&(of.namespace.clone(), of.checkpoint));
        if let Some(of) = reference.filter(is_copied) {
            let base = CheckpointRef::new(self.from.clone(), of.namespace.clone(), of.checkpoint);
            let base = self.items(&base, &of.channel, ItemRange::All)?;
            return Ok(from_reference(of, base, items, channel.task, shared));
        }
        let before = match parent {
            Some(parent) if is_replaced => {
                return Ok(replaced(self.is_list(parent, name)?, items, channel.task, shared));
            }
            // Nothing was deleted where each position has an item.
            _ if items.len() as u64 == written.end - written.start => Vec::new(),
            Some(parent) if self.is_list(parent, name)? => self.items(parent.0, name, range)?,
            _ => Vec::new(),
        };
        let mut changes = deleted(&before, &items, channel.task);
        let own = items.into_iter().filter(|(_, ordinal, ..)| *ordinal == record.ordinal);
        changes.extend(own.map(|(position, _, task, payload)| put(position, &payload, task, shared)));
        Ok(changes)
    }

    /// Returns whether a channel holds a list at a checkpoint, which may be one of another thread whose older
    /// checkpoints were pruned: their versions are not told.
    fn is_list(&self, (at, lists): (&CheckpointRef, Option<&[Arc<str>]>), channel: &str) -> Result<bool, StoreError> {
        if let Some(lists) = lists {
            return Ok(lists.iter().any(|list| **list == *channel));
        }
        let state = self.log.state(at)?;
        Ok(state.channels.iter().any(|of| &*of.channel == channel && of.value == ChannelValue::Items))
    }

    fn items(&self, at: &CheckpointRef, channel: &str, range: ItemRange) -> Result<Items, StoreError> {
        let mut items = Vec::new();
        self.log.items(at, channel, range, &mut |row| {
            items.push((row.position, row.ordinal, row.task, row.payload.to_payload()));
            Ok(())
        })?;
        Ok(items)
    }
}

/// Returns a checkpoint with what the record of another one states.
fn stated(record: &CheckpointRecord, parent: Option<Parent>) -> NewCheckpoint {
    NewCheckpoint {
        run: record.run,
        metadata: record.metadata.clone(),
        app_version: record.app_version.clone(),
        parents: Arc::clone(&record.parents),
        tasks: record.tasks.clone(),
        ..NewCheckpoint::new(record.point.checkpoint, parent, record.step, record.source, record.created_at)
    }
}

/// Returns the changes that make a state of nothing. `items` reads the positions and the contents of a list.
pub(crate) fn whole_changes<E>(
    state: &StateRecord,
    mut items: impl FnMut(&str) -> Result<Vec<(u64, Payload)>, E>,
) -> Result<Vec<Change>, E> {
    let put = |(position, payload)| ItemChange::new(position, ItemOp::Put(Data::New(payload)), None);
    let changes = state.channels.iter().map(|channel| {
        let value = match &channel.value {
            ChannelValue::Empty => ChangeValue::Empty,
            ChannelValue::Value(payload) => ChangeValue::Value(Data::New(payload.clone())),
            ChannelValue::Items => ChangeValue::Items(items(&channel.channel)?.into_iter().map(put).collect()),
        };
        Ok(Change::new(Arc::clone(&channel.channel), channel.version, value))
    });
    changes.collect()
}

/// The writes of the tasks of a parent, by their content.
struct Shared<'w>(HashMap<&'w [u8], Vec<(&'w Payload, WriteRef)>>);

impl<'w> Shared<'w> {
    fn of(writes: &'w [WriteRecord]) -> Self {
        let mut shared: HashMap<&[u8], Vec<(&Payload, WriteRef)>> = HashMap::new();
        for write in writes.iter().filter(|write| write.index >= 0) {
            for (part, payload) in (0..).zip(write.value.payloads()) {
                let of = WriteRef { task: write.task, index: write.index, part };
                shared.entry(&payload.data).or_default().push((payload, of));
            }
        }
        Self(shared)
    }

    fn data(&self, payload: &Payload) -> Data {
        let found = self.0.get(&*payload.data).and_then(|all| all.iter().find(|(written, _)| *written == payload));
        found.map_or_else(|| Data::New(payload.clone()), |(_, of)| Data::OfWrite(of.clone()))
    }
}

fn put(position: u64, payload: &Payload, task: Option<u32>, shared: &Shared<'_>) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(shared.data(payload)), task)
}

/// Returns the changes that make a list of nothing, or of a list that ends.
fn replaced(was_list: bool, items: Items, task: Option<u32>, shared: &Shared<'_>) -> Vec<ItemChange> {
    let clear = was_list.then(|| ItemChange::new(0, ItemOp::DeleteRange { end: u64::MAX }, task));
    clear
        .into_iter()
        .chain(items.into_iter().map(|(position, _, task, item)| put(position, &item, task, shared)))
        .collect()
}

/// Returns the changes that make a list of a referenced one.
fn from_reference(of: ListRef, base: Items, items: Items, task: Option<u32>, shared: &Shared<'_>) -> Vec<ItemChange> {
    let mut base: HashMap<u64, Payload> = base.into_iter().map(|(position, .., payload)| (position, payload)).collect();
    let mut changes = vec![ItemChange::new(0, ItemOp::Reference(of), task)];
    for (position, _, by, payload) in items {
        if base.remove(&position).as_ref() != Some(&payload) {
            changes.push(put(position, &payload, by, shared));
        }
    }
    let deleted: BTreeSet<u64> = base.into_keys().collect();
    changes.extend(deleted.into_iter().map(|position| ItemChange::new(position, ItemOp::Delete, task)));
    changes
}

/// Returns the deletions that take away the items of `before` that `after` does not have. Neighbors become one range.
fn deleted(before: &Items, after: &Items, task: Option<u32>) -> Vec<ItemChange> {
    let left: BTreeSet<u64> = after.iter().map(|(position, ..)| *position).collect();
    let mut runs: Vec<(Range<u64>, usize)> = Vec::new();
    for position in before.iter().map(|(position, ..)| *position).filter(|position| !left.contains(position)) {
        match runs.last_mut() {
            Some((run, count)) if left.range(run.start..position).next().is_none() => {
                run.end = position + 1;
                *count += 1;
            }
            _ => runs.push((position..position + 1, 1)),
        }
    }
    let change = |(run, count): (Range<u64>, usize)| match count {
        1 => ItemChange::new(run.start, ItemOp::Delete, task),
        _ => ItemChange::new(run.start, ItemOp::DeleteRange { end: run.end }, task),
    };
    runs.into_iter().map(change).collect()
}

/// Returns the writes of the tasks of a checkpoint as a batch holds them.
pub(crate) fn writes_of(checkpoint: CheckpointId, writes: Vec<WriteRecord>) -> Vec<NewWrites> {
    let mut all: Vec<NewWrites> = Vec::new();
    for write in writes {
        let new = NewWrite::new(write.index, write.channel, write.value).with_mark(write.mark);
        match all.last_mut() {
            Some(last) if last.task == write.task && last.path == write.path => last.writes.push(new),
            _ => all.push(NewWrites::new(checkpoint, write.task, write.path).with(vec![new])),
        }
    }
    all
}

/// Returns the timers of the tasks that sleep: those that wait at interrupts with a timestamp.
pub(crate) fn timers(record: &CheckpointRecord, writes: &[WriteRecord]) -> Vec<NewTimer> {
    let timer = |(task, at)| NewTimer::new(record.point.checkpoint, task, Some(at));
    sleeping(record, writes).into_iter().map(timer).collect()
}
