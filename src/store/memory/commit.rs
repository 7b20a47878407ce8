//! The one way in: compares a batch with a version of the log, and adds it to that version.

use super::operation::operate;
use super::stored::*;
use crate::base::limits::LIST_REFERENCES_MAX;

/// Adds a batch with those that go along. The version of the log is of no use after an error.
pub(super) fn commit(log: &mut MemoryLog, batch: &Batch) -> MemoryResult<()> {
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
        for batch in batch.parts().filter(|part| !repeats || !part.checkpoints.is_empty()) {
            BatchPart { log, batch }.commit()?;
        }
        if let Some(operation) = batch.operation.as_ref().filter(|_| !repeats) {
            operate(log, operation)?;
        }
    }
    if let (Some(lease), Some(thread)) = (lease, log.thread_mut(&batch.thread)) {
        set_lease(thread, lease, batch.lease.as_ref());
    }
    Ok(())
}

/// Compares the lease that a batch names with the stored one, and a claim with the limits of its groups. Returns the
/// lease to be stored, if that changes.
fn leased(log: &MemoryLog, batch: &Batch) -> MemoryResult<Option<LeaseRecord>> {
    let Some(new) = &batch.lease else { return Ok(None) };
    let stored = log.threads.get(&batch.thread).and_then(|thread| thread.lease.as_ref());
    let changed = new.apply(&batch.thread, stored)?;
    let is_claim = changed.as_ref().is_some_and(|lease| lease.is_claim(stored));
    if let Some((now, groups)) = new.entered().filter(|_| is_claim) {
        let others = || log.threads.iter().filter(|(id, _)| *id != batch.thread);
        for group in groups {
            let members = others().filter_map(|(_, thread)| {
                let (rated_until, is_current) = thread.groups.get(&group.name)?;
                let is_live = *is_current && thread.lease.as_ref().is_some_and(|lease| lease.is_live(now));
                Some((is_live, *rated_until))
            });
            group.admit(now, members)?;
        }
    }
    Ok(changed)
}

fn set_lease(thread: &mut StoredThread, lease: LeaseRecord, new: Option<&NewLease>) {
    let (is_claim, is_released) = (lease.is_claim(thread.lease.as_ref()), lease.expires_at.is_none());
    if is_released || is_claim {
        // A claim that counts for a rate does so until its time has passed.
        thread.groups.retain(|_, (rated_until, _)| rated_until.is_some());
        thread.groups.values_mut().for_each(|(_, is_current)| *is_current = false);
    }
    if let Some((now, groups)) = new.and_then(NewLease::entered).filter(|_| is_claim && !is_released) {
        thread.groups.extend(groups.iter().map(|group| (group.name.clone(), (group.rated_until(now), true))));
    }
    thread.lease = Some(lease);
}

/// Returns whether the last checkpoint of a batch is stored.
fn holds_last(log: &MemoryLog, batch: &Batch) -> bool {
    let space = log.space(&batch.thread, &batch.namespace);
    space.zip(batch.checkpoints.last()).is_some_and(|(space, last)| space.stored(&last.id).is_some())
}

/// A batch without those that go along, and the version of the log to which it is added.
struct BatchPart<'a> {
    log: &'a mut MemoryLog,
    batch: &'a Batch,
}

impl BatchPart<'_> {
    fn commit(&mut self) -> MemoryResult<()> {
        let Batch { thread, namespace, .. } = self.batch;
        if holds_last(self.log, self.batch) {
            return self.batch.checkpoints.iter().try_for_each(|new| self.repeat(new));
        }
        for expect in &self.batch.expect {
            let found = self.log.space(thread, &expect.namespace).and_then(MemoryNamespace::head_id);
            expect.compare(thread, found)?;
        }
        self.batch.writes.iter().try_for_each(|new| self.add_writes(new))?;
        for timer in &self.batch.timers {
            let Some(space) = self.log.space_mut(thread, namespace) else { break };
            match timer.wake_at {
                Some(wake_at) => _ = space.timers.insert(timer.task, (timer.checkpoint, wake_at)),
                None => _ = space.timers.remove(&timer.task),
            }
        }
        self.batch.checkpoints.iter().try_for_each(|new| self.add(new))
    }

    fn point(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef::new(self.batch.thread.clone(), self.batch.namespace.clone(), checkpoint)
    }

    /// Returns a checkpoint of the namespace of the batch.
    fn own(&self, id: &CheckpointId) -> Option<&StoredCheckpoint> {
        self.log.space(&self.batch.thread, &self.batch.namespace)?.stored(id)
    }

    /// Compares a checkpoint of a batch that is stored with the one that was added.
    fn repeat(&self, new: &NewCheckpoint) -> MemoryResult<()> {
        let stored = self.own(&new.id).map(StoredCheckpoint::kept).transpose()?;
        let same = stored.filter(|stored| stored.added.as_deref() == Some(new));
        same.map(|_| ()).ok_or(StoreError::Duplicate { id: new.id })
    }

    /// Adds writes to those of a checkpoint: special indexes replace, any other position retains its first write.
    fn add_writes(&mut self, new: &NewWrites) -> MemoryResult<()> {
        let id = new.checkpoint;
        let missing = || invalid("writes.checkpoint", format!("{id} is not stored in this namespace"));
        self.own(&id).map_or_else(missing, StoredCheckpoint::kept)?;
        let added: Vec<_> = records_of(new).collect();
        for write in &added {
            if let WriteValue::Delta(delta) = &write.value {
                self.list(&delta.of)?;
            }
        }
        let space = self.log.space_mut(&self.batch.thread, &self.batch.namespace);
        if let Some(stored) = space.and_then(|space| space.checkpoints.get_mut(&id)).map(Arc::make_mut) {
            for write in &added {
                let key = (write.task, write.index);
                if write.index < 0 || stored.writes.get(&key).is_none() {
                    stored.writes.put(key, Arc::clone(write));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, new: &NewCheckpoint) -> MemoryResult<()> {
        let Batch { thread, namespace, .. } = self.batch;
        let newest = self.log.space(thread, namespace).and_then(MemoryNamespace::newest_id);
        if let Some(newest) = newest.filter(|newest| new.id <= *newest) {
            let (thread, namespace, id) = (thread.clone(), namespace.clone(), new.id);
            let stale = StoreError::StaleId { thread, namespace, id, newest };
            return Err(if self.own(&id).is_some() { StoreError::Duplicate { id } } else { stale });
        }
        let local = local(new);
        for writes in &new.consumed {
            if Some(writes.checkpoint) != local {
                let reason = format!("{} is not the parent of {} in this namespace", writes.checkpoint, new.id);
                return invalid("consumed.checkpoint", reason);
            }
            self.add_writes(writes)?;
        }
        let parent = self.parent(new)?.map(StoredCheckpoint::kept).transpose()?;
        let mut record = self.record(new, parent);
        let own = parent.filter(|_| local.is_some() && local == newest).map(|parent| parent.record.branch);
        (record.seq, record.branch) = (self.log.seq + 1, own.unwrap_or(self.log.branch + 1));
        let state = self.state_after(parent, new, (record.ordinal, record.seq))?;
        (self.log.seq, self.log.branch) = (record.seq, record.branch.max(self.log.branch));
        if self.log.threads.get(thread).is_none() {
            let stored = StoredThread { created_at: new.created_at, ..StoredThread::default() };
            self.log.threads.put(thread.clone(), Arc::new(stored));
        }
        if newest.is_none()
            && let Some(of) = self.log.thread_mut(thread)
        {
            of.spaces.put(namespace.clone(), Arc::default());
        }
        if let Some(space) = self.log.space_mut(thread, namespace) {
            space.timers.retain(|_, (checkpoint, _)| Some(*checkpoint) != local);
            let added = Some(Arc::new(new.clone()));
            let stored = StoredCheckpoint { record, state, added, writes: Default::default() };
            space.checkpoints.put(new.id, Arc::new(stored));
        }
        Ok(())
    }

    /// Returns the record of a new checkpoint, but for its places in the log.
    fn record(&self, new: &NewCheckpoint, parent: Option<&StoredCheckpoint>) -> CheckpointRecord {
        let mut record = CheckpointRecord::new(self.point(new.id), 0, new.step, new.source, new.created_at);
        record.parent = local(new);
        record.forked_from = if let Some(Parent::Fork(at)) = &new.parent { Some(at.clone()) } else { None };
        record.ordinal = parent.map_or(0, |parent| parent.record.ordinal + 1);
        (record.run, record.metadata, record.tasks) = (new.run, new.metadata.clone(), new.tasks.clone());
        record.app_version.clone_from(&new.app_version);
        record.parents = Arc::clone(&new.parents);
        record
    }

    fn parent(&self, new: &NewCheckpoint) -> MemoryResult<Option<&StoredCheckpoint>> {
        let found = match &new.parent {
            None => return Ok(None),
            Some(Parent::Local(id)) => self.own(id).filter(|_| *id < new.id),
            Some(Parent::Fork(at)) => self.log.stored(at).filter(|_| *at != self.point(at.checkpoint)),
        };
        let missing = || invalid("checkpoint.parent", format!("the parent of {} is not stored below it", new.id));
        found.map_or_else(missing, |found| Ok(Some(found)))
    }

    /// Returns a list that the batch references.
    fn list(&self, of: &ListRef) -> MemoryResult<StoredList> {
        let at = CheckpointRef::new(self.batch.thread.clone(), of.namespace.clone(), of.checkpoint);
        let list = self.log.kept(&at)?.list(&of.channel).cloned().unwrap_or_default();
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
    ) -> MemoryResult<CheckpointState> {
        let mut state = parent.map(|parent| parent.state.clone()).unwrap_or_default();
        new.seen.iter().for_each(|seen| state.seen.put(Arc::clone(&seen.node), seen.clone()));
        for Change { channel, version, value, task, .. } in &new.changes {
            known_task("change.task", *task, parent)?;
            let before = state.channels.get(&**channel);
            if let Some(old) = before.map(|before| before.record.version).filter(|old| version <= old) {
                return invalid("change.version", format!("{version} of channel {channel:?} is not above {old}"));
            }
            let (value, list) = match value {
                ChangeValue::Empty => (ChannelValue::Empty, None),
                ChangeValue::Value(data) => (ChannelValue::Value(payload(data, parent)?.clone()), None),
                ChangeValue::Items(items) => {
                    let list = before.and_then(|before| before.list.as_deref()).cloned().unwrap_or_default();
                    (ChannelValue::Items, Some(Arc::new(self.list_after(list, items, parent, at)?)))
                }
            };
            let mut record = ChannelRecord::new(Arc::clone(channel), *version, value, at.0);
            record.task = *task;
            state.channels.put(Arc::clone(channel), StoredChannel { record: Arc::new(record), list });
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
    ) -> MemoryResult<StoredList> {
        let mut written: Option<Range<u64>> = None;
        let (single, wide): (Vec<_>, Vec<_>) = items.iter().partition(|change| change.op.is_of_position());
        for ItemChange { position, op, task, .. } in wide.into_iter().chain(single) {
            known_task("item.task", *task, parent)?;
            let mut range = *position..position + 1;
            match op {
                ItemOp::Put(data) => {
                    let payload = Arc::new(payload(data, parent)?.clone());
                    list.positions.put(*position, Item { seq, written: (ordinal, *task), payload });
                }
                ItemOp::Delete if list.positions.get(position).is_none() => {
                    return invalid("item.remove", format!("position {position} holds nothing"));
                }
                ItemOp::Delete => list.positions.retain(Some(&range), |_, _| false),
                ItemOp::DeleteRange { end } => {
                    range.end = *end;
                    list.positions.retain(Some(&range), |_, _| false);
                }
                ItemOp::Reference(of) => {
                    let StoredList { positions, reference, .. } = self.list(of)?;
                    let depth = reference.map_or(0, |reference| reference.depth) + 1;
                    // Everything it holds was put before this checkpoint.
                    let origin = ListOrigin { of: of.clone(), depth, seq: seq - 1, written: (ordinal, *task) };
                    list = StoredList { positions, written: 0..0, reference: Some(origin) };
                    range = 0..u64::MAX;
                }
            }
            let all = written.get_or_insert(range.clone());
            *all = all.start.min(range.start)..all.end.max(range.end);
        }
        list.written = written.unwrap_or(0..0);
        Ok(list)
    }
}

fn invalid<T>(field: &'static str, reason: String) -> MemoryResult<T> {
    Err(StoreError::Invalid { field, reason })
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

fn known_task(field: &'static str, task: Option<u32>, parent: Option<&StoredCheckpoint>) -> MemoryResult<()> {
    let tasks = parent.map_or(0, |parent| parent.record.tasks.len());
    let reason = |task| format!("{task} is not an index into the {tasks} tasks of the parent");
    task.filter(|task| *task as usize >= tasks).map_or(Ok(()), |task| invalid(field, reason(task)))
}

/// Returns the content of a value: its own, or that of a write of a task of the parent.
fn payload<'p>(data: &'p Data, parent: Option<&'p StoredCheckpoint>) -> MemoryResult<&'p Payload> {
    let of = match data {
        Data::New(payload) => return Ok(payload),
        Data::OfWrite(of) => of,
    };
    let write = parent.and_then(|parent| parent.writes.get(&(of.task, of.index)));
    let reason = || format!("write {} of task {} has no part {} at the parent", of.index, of.task, of.part);
    write
        .and_then(|write| write.value.payloads().get(of.part as usize))
        .map_or_else(|| invalid("data.of_write", reason()), Ok)
}
