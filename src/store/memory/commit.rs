//! The one way in: compares a batch with a version of the log, and adds it to that version.

use std::collections::HashSet;
use std::sync::Arc;

use super::operation::operate;
use super::stored::{
    ChannelContent, ChannelVersion, CheckpointState, EnteredGroup, HeldPayload, Item, ListOrigin, MemoryLog,
    MemoryNamespace, StoredCheckpoint, StoredList, StoredThread, invalid, not_found,
};
use crate::base::CheckpointId;
use crate::base::limits::LIST_REFERENCES_MAX;
use crate::store::StoreError;
use crate::store::batch::{
    Batch, ChangeValue, Data, ItemChange, ItemOp, ListRef, NewCheckpoint, NewWrites, Parent, WriteValue,
};
use crate::store::lease::{LeaseRecord, NewLease};
use crate::store::record::{CheckpointRecord, CheckpointRef, WriteRecord};

/// Adds a batch with those that go along. The version of the log is of no use after an error.
pub(super) fn commit(log: &mut MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    batch.validate()?;
    let repeats = batch.parts().any(|part| holds_last(log, part));
    let lease = match leased(log, batch) {
        // The batch was accepted before, when the lease was its own.
        Err(_) if repeats => None,
        lease => lease?,
    };
    if batch.is_lease_alone() {
        log.threads.get(&batch.thread).ok_or_else(|| StoreError::ThreadNotFound { id: batch.thread.clone() })?;
    } else {
        // Writes on their own went in with the checkpoints, and may not fit any more.
        for part in batch.parts().filter(|part| !repeats || !part.checkpoints.is_empty()) {
            commit_part(log, part)?;
        }
        if let Some(operation) = batch.operation.as_ref().filter(|_| !repeats) {
            operate(log, operation)?;
        }
    }
    if let Some(lease) = lease {
        log.change_thread(&batch.thread, |thread| set_lease(thread, lease, batch.lease.as_ref()));
    }
    Ok(())
}

/// Compares the lease that a batch names with the stored one, and a claim with the limits of its groups. Returns the
/// lease to be stored, if that changes.
fn leased(log: &MemoryLog, batch: &Batch) -> Result<Option<LeaseRecord>, StoreError> {
    let Some(new) = &batch.lease else { return Ok(None) };
    let stored = log.threads.get(&batch.thread).and_then(|thread| thread.lease.as_ref());
    let changed = new.apply(&batch.thread, stored)?;
    let is_claim = changed.as_ref().is_some_and(|lease| lease.is_claim(stored));
    for (now, group) in new.entered().filter(|_| is_claim).iter().flat_map(|(now, all)| all.iter().map(|of| (*now, of)))
    {
        let others = log.threads.iter().filter(|(id, _)| *id != batch.thread);
        group.admit(
            now,
            others.filter_map(|(_, thread)| {
                let entered = thread.groups.iter().find(|entered| entered.name == group.name)?;
                let is_live = entered.is_current && thread.lease.as_ref().is_some_and(|lease| lease.is_live(now));
                Some((is_live, entered.rated_until))
            }),
        )?;
    }
    Ok(changed)
}

fn set_lease(thread: &mut StoredThread, lease: LeaseRecord, new: Option<&NewLease>) {
    let is_claim = lease.is_claim(thread.lease.as_ref());
    let is_released = lease.expires_at.is_none();
    if is_released || is_claim {
        // A claim that counts for a rate does so until its time has passed.
        thread.groups.retain(|group| group.rated_until.is_some());
        thread.groups.iter_mut().for_each(|group| group.is_current = false);
    }
    if let Some((now, groups)) = new.and_then(NewLease::entered).filter(|_| is_claim && !is_released) {
        thread.groups.retain(|before| groups.iter().all(|group| group.name != before.name));
        thread.groups.extend(groups.iter().map(|group| EnteredGroup {
            name: group.name.clone(),
            rated_until: group.rated_until(now),
            is_current: true,
        }));
    }
    thread.lease = Some(lease);
}

fn commit_part(log: &mut MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    let mut part = BatchPart::of(log, batch);
    if holds_last(log, batch) {
        return batch.checkpoints.iter().try_for_each(|new| part.repeat(new));
    }
    for expect in &batch.expect {
        let found = log.space(&batch.thread, &expect.namespace).and_then(MemoryNamespace::head_id);
        if found != expect.head {
            let (thread, namespace) = (batch.thread.clone(), expect.namespace.clone());
            return Err(StoreError::Conflict { thread, namespace, expected: expect.head, found });
        }
    }
    batch.writes.iter().try_for_each(|new| part.add_writes(new).map(|_| ()))?;
    for timer in &batch.timers {
        match timer.wake_at {
            Some(wake_at) => _ = part.space.timers.insert(timer.task, (timer.checkpoint, wake_at)),
            None => _ = part.space.timers.remove(&timer.task),
        }
    }
    batch.checkpoints.iter().try_for_each(|new| part.add(new))?;
    let BatchPart { space, seq, branch, .. } = part;
    (log.seq, log.branch) = (seq, branch);
    if let Some(first) = batch.checkpoints.first().filter(|_| log.threads.get(&batch.thread).is_none()) {
        log.threads.put(batch.thread.clone(), Arc::new(StoredThread::new(first.created_at)));
    }
    log.change_thread(&batch.thread, |thread| thread.spaces.put(batch.namespace.clone(), Arc::new(space)));
    Ok(())
}

/// Returns whether the last checkpoint of a batch is stored.
fn holds_last(log: &MemoryLog, batch: &Batch) -> bool {
    let space = log.space(&batch.thread, &batch.namespace);
    space.zip(batch.checkpoints.last()).is_some_and(|(space, last)| space.checkpoints.get(&last.id).is_some())
}

/// The namespace of a batch, to which the batch is added.
struct BatchPart<'a> {
    log: &'a MemoryLog,
    batch: &'a Batch,
    space: MemoryNamespace,
    seq: u64,
    branch: u64,
}

impl<'a> BatchPart<'a> {
    fn of(log: &'a MemoryLog, batch: &'a Batch) -> Self {
        let space = log.space(&batch.thread, &batch.namespace).cloned().unwrap_or_default();
        Self { log, batch, space, seq: log.seq, branch: log.branch }
    }

    /// Compares a checkpoint of a batch that is stored with the stored one.
    fn repeat(&self, new: &NewCheckpoint) -> Result<(), StoreError> {
        let duplicate = || StoreError::Duplicate { id: new.id };
        let old = self.space.checkpoints.get(&new.id).ok_or_else(duplicate)?.kept()?;
        // A batch with a dangling reference was never accepted, so it differs from the stored one.
        let parent = self.parent(new).map_err(|_| duplicate())?;
        let mut record = self.record(new, parent.as_ref());
        (record.seq, record.branch) = (old.record.seq, old.record.branch);
        // The state of a pruned parent is not stored.
        let has_state = parent.as_ref().is_none_or(|parent| !parent.record.pruned);
        let state = self.state_after(parent.as_ref(), new, (record.ordinal, record.seq));
        let is_same =
            record == *old.record && new.consumed.iter().flat_map(records_of).eq(old.consumed.iter().cloned());
        if is_same && (!has_state || state.map_err(|_| duplicate())? == *old.state) { Ok(()) } else { Err(duplicate()) }
    }

    /// Adds writes to those of a checkpoint: special indexes replace, any other position retains its first write.
    fn add_writes(&mut self, new: &NewWrites) -> Result<Vec<Arc<WriteRecord>>, StoreError> {
        let Some(mut stored) = self.space.checkpoints.get(&new.checkpoint).cloned() else {
            return invalid("writes.checkpoint", format!("{} is not stored in this namespace", new.checkpoint));
        };
        stored.kept()?;
        let added: Vec<_> = records_of(new).collect();
        for write in &added {
            if let WriteValue::Delta(delta) = &write.value {
                self.list(&delta.of)?;
            }
            let key = (write.task, write.index);
            if write.index < 0 || stored.writes.get(&key).is_none() {
                stored.writes.put(key, Arc::clone(write));
            }
        }
        self.space.checkpoints.put(new.checkpoint, stored);
        Ok(added)
    }

    fn add(&mut self, new: &NewCheckpoint) -> Result<(), StoreError> {
        let newest = self.space.newest_id();
        if let Some(newest) = newest.filter(|newest| new.id <= *newest) {
            let (thread, namespace) = (self.batch.thread.clone(), self.batch.namespace.clone());
            let is_taken = self.space.checkpoints.get(&new.id).is_some();
            let stale = StoreError::StaleId { thread, namespace, id: new.id, newest };
            return Err(if is_taken { StoreError::Duplicate { id: new.id } } else { stale });
        }
        self.parent(new)?.map_or(Ok(()), |parent| parent.kept().map(|_| ()))?;
        let (local, mut consumed) = (local(new), Vec::new());
        for writes in &new.consumed {
            if Some(writes.checkpoint) != local {
                let id = writes.checkpoint;
                return invalid(
                    "consumed.checkpoint",
                    format!("{id} is not the parent of {} in this namespace", new.id),
                );
            }
            consumed.extend(self.add_writes(writes)?);
        }
        // With the writes that were consumed.
        let parent = self.parent(new)?;
        let mut record = self.record(new, parent.as_ref());
        self.seq += 1;
        record.seq = self.seq;
        record.branch = match &parent {
            Some(parent) if local.is_some() && local == newest => parent.record.branch,
            _ => {
                self.branch += 1;
                self.branch
            }
        };
        let state = Arc::new(self.state_after(parent.as_ref(), new, (record.ordinal, self.seq))?);
        let (record, consumed) = (Arc::new(record), consumed.into());
        let stored = StoredCheckpoint { record, state, consumed, writes: Default::default() };
        self.space.checkpoints.put(new.id, stored);
        self.space.timers.retain(|_, (checkpoint, _)| Some(*checkpoint) != local);
        Ok(())
    }

    /// Returns the record of a new checkpoint, but for its places in the log.
    fn record(&self, new: &NewCheckpoint, parent: Option<&StoredCheckpoint>) -> CheckpointRecord {
        let point = CheckpointRef::new(self.batch.thread.clone(), self.batch.namespace.clone(), new.id);
        let mut record = CheckpointRecord::new(point, 0, new.step, new.source, new.created_at);
        record.parent = local(new);
        record.forked_from = if let Some(Parent::Fork(at)) = &new.parent { Some(at.clone()) } else { None };
        record.ordinal = parent.map_or(0, |parent| parent.record.ordinal + 1);
        (record.run, record.metadata, record.tasks) = (new.run, new.metadata.clone(), new.tasks.clone());
        record.parents = Arc::clone(&new.parents);
        record
    }

    fn parent(&self, new: &NewCheckpoint) -> Result<Option<StoredCheckpoint>, StoreError> {
        let found = match &new.parent {
            None => return Ok(None),
            Some(Parent::Local(id)) if *id >= new.id => {
                return invalid("checkpoint.parent", format!("{id} is not below its child {}", new.id));
            }
            Some(Parent::Local(id)) => self.space.checkpoints.get(id),
            Some(Parent::Fork(at)) if at.thread == self.batch.thread && at.namespace == self.batch.namespace => {
                return invalid("checkpoint.parent", format!("{} is in this namespace: not a fork", at.checkpoint));
            }
            Some(Parent::Fork(at)) => self.log.stored(at),
        };
        let missing = || invalid("checkpoint.parent", format!("the parent of {} is not stored", new.id));
        found.map_or_else(missing, |found| Ok(Some(found.clone())))
    }

    /// Returns a list that the batch references.
    fn list(&self, of: &ListRef) -> Result<StoredList, StoreError> {
        let at = CheckpointRef::new(self.batch.thread.clone(), of.namespace.clone(), of.checkpoint);
        let is_own = of.namespace == self.batch.namespace;
        let stored = if is_own { self.space.checkpoints.get(&of.checkpoint) } else { self.log.stored(&at) };
        let list = stored.ok_or_else(|| not_found(&at))?.kept()?.list(&of.channel).cloned().unwrap_or_default();
        if list.reference.as_ref().is_some_and(|reference| reference.depth >= LIST_REFERENCES_MAX) {
            return invalid("list.of", format!("more than {LIST_REFERENCES_MAX} references in a row"));
        }
        Ok(list)
    }

    /// Returns the state of a checkpoint that comes at `(ordinal, seq)`: that of its parent with its changes.
    fn state_after(
        &self,
        parent: Option<&StoredCheckpoint>,
        new: &NewCheckpoint,
        at: (u64, u64),
    ) -> Result<CheckpointState, StoreError> {
        let mut state = parent.map(|parent| CheckpointState::clone(&parent.state)).unwrap_or_default();
        let mut nodes = HashSet::new();
        for seen in &new.seen {
            if !nodes.insert(&seen.node) {
                return invalid("checkpoint.seen", format!("node {:?} comes twice", seen.node));
            }
            state.seen.put(Arc::clone(&seen.node), seen.versions.clone());
        }
        for change in &new.changes {
            task("change.task", change.task, parent)?;
            let before = state.channels.get(&*change.channel);
            if let Some(old) = before.map(|before| before.version).filter(|old| change.version <= *old) {
                let (channel, new) = (&change.channel, change.version);
                return invalid("change.version", format!("{new} of channel {channel:?} is not above {old}"));
            }
            let value = match &change.value {
                ChangeValue::Empty => ChannelContent::Empty,
                ChangeValue::Value(data) => ChannelContent::Value(held(data, parent)?),
                ChangeValue::Items(items) => {
                    let list = before.and_then(|before| before.value.items()).cloned().unwrap_or_default();
                    ChannelContent::Items(Arc::new(self.list_after(list, items, parent, at)?))
                }
            };
            let channel = ChannelVersion { version: change.version, ordinal: at.0, task: change.task, value };
            state.channels.put(Arc::clone(&change.channel), channel);
        }
        Ok(state)
    }

    /// Returns a list after some operations: those on more than a position first, then each other position once.
    fn list_after(
        &self,
        mut list: StoredList,
        items: &[ItemChange],
        parent: Option<&StoredCheckpoint>,
        (ordinal, seq): (u64, u64),
    ) -> Result<StoredList, StoreError> {
        let (mut taken, mut written) = (HashSet::new(), None);
        for item in items {
            task("item.task", item.task, parent)?;
            let range = match &item.op {
                ItemOp::DeleteRange { end } => {
                    list.positions.delete_range(&item.position, end);
                    item.position..*end
                }
                ItemOp::Reference(of) => {
                    let found = self.list(of)?;
                    let depth = found.reference.map_or(0, |reference| reference.depth) + 1;
                    // Everything it holds was put before this checkpoint.
                    let origin = ListOrigin { of: of.clone(), depth, seq: seq - 1, written: (ordinal, item.task) };
                    list = StoredList { positions: found.positions, written: 0..0, reference: Some(origin) };
                    0..u64::MAX
                }
                ItemOp::Put(_) | ItemOp::Delete if !taken.insert(item.position) => {
                    return invalid("item.position", format!("position {} changes twice", item.position));
                }
                ItemOp::Put(_) | ItemOp::Delete => item.position..item.position + 1,
            };
            let all = written.get_or_insert(range.clone());
            (all.start, all.end) = (all.start.min(range.start), all.end.max(range.end));
        }
        list.written = written.unwrap_or(0..0);
        for item in items {
            match &item.op {
                ItemOp::Put(data) => {
                    let payload = held(data, parent)?;
                    list.positions.put(item.position, Item { seq, written: (ordinal, item.task), payload });
                }
                ItemOp::Delete if list.positions.delete_range(&item.position, &(item.position + 1)) == 0 => {
                    return invalid("item.remove", format!("position {} holds nothing", item.position));
                }
                ItemOp::Delete | ItemOp::DeleteRange { .. } | ItemOp::Reference(_) => {}
            }
        }
        Ok(list)
    }
}

fn local(new: &NewCheckpoint) -> Option<CheckpointId> {
    if let Some(Parent::Local(id)) = &new.parent { Some(*id) } else { None }
}

fn records_of(new: &NewWrites) -> impl Iterator<Item = Arc<WriteRecord>> + '_ {
    new.writes.iter().map(|write| {
        let (path, channel) = (Arc::clone(&new.path), Arc::clone(&write.channel));
        Arc::new(WriteRecord::new(new.task, path, write.index, channel, write.value.clone()).with_mark(write.mark))
    })
}

fn task(field: &'static str, task: Option<u32>, parent: Option<&StoredCheckpoint>) -> Result<(), StoreError> {
    let tasks = parent.map_or(0, |parent| parent.record.tasks.len());
    match task {
        Some(task) if task as usize >= tasks => {
            invalid(field, format!("{task} is not an index into the {tasks} tasks of the parent"))
        }
        _ => Ok(()),
    }
}

/// Returns the bytes of a value: its own, or those of a write of a task of the parent.
fn held(data: &Data, parent: Option<&StoredCheckpoint>) -> Result<HeldPayload, StoreError> {
    let wanted = match data {
        Data::New(payload) => return Ok(HeldPayload::Own(Arc::new(payload.clone()))),
        Data::OfWrite(wanted) => wanted,
    };
    let part = wanted.part as usize;
    let write = parent.and_then(|parent| parent.writes.get(&(wanted.task, wanted.index)));
    let reason = match write {
        Some(write) if write.value.payload(part).is_some() => return Ok(HeldPayload::OfWrite(Arc::clone(write), part)),
        Some(write) if write.value == WriteValue::Null => "is null".to_owned(),
        Some(_) => format!("has no part {part}"),
        None => "is not among the writes of the parent".to_owned(),
    };
    invalid("data.of_write", format!("write {} of task {} {reason}", wanted.index, wanted.task))
}
