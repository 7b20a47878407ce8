//! The one way in: checks a batch against the log, makes its additions to the namespace, and applies them.

use std::collections::HashSet;
use std::sync::Arc;

use super::operation::operate;
use super::stored::{
    Changed, ChangedItem, ChangedOp, ChangedValue, CheckpointState, CheckpointWrites, Delta, EnteredGroup, MemoryLog,
    NamespaceVersion, StoredCheckpoint, StoredList, StoredThread, Write, WrittenValue, add_writes, invalid,
};
use crate::base::CheckpointId;
use crate::base::limits::LIST_REFERENCES_MAX;
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemOp, ListRef, NewCheckpoint, NewWrites, Parent, Payload, WriteValue,
};
use crate::store::record::{CheckpointRecord, CheckpointRef};
use crate::store::{LeaseRecord, NewLease, StoreError};

/// Commits a batch with those that go along: entirely, or not at all.
pub(super) fn commit(log: &mut MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    batch.validate()?;
    let lease = leased(log, batch)?;
    if batch.is_lease_alone() {
        if !log.threads.contains_key(&batch.thread) {
            return Err(StoreError::ThreadNotFound { id: batch.thread.clone() });
        }
    } else {
        commit_parts(log, batch)?;
    }
    if let (Some(lease), Some(thread)) = (lease, log.threads.get_mut(&batch.thread)) {
        let is_released = lease.expires_at.is_none();
        let is_claim = lease.is_claim(thread.lease.as_ref());
        thread.lease = Some(lease);
        if is_released || is_claim {
            // A claim that counts for a rate does so until its time has passed.
            thread.lease_groups.retain(|group| group.rated_until.is_some());
            thread.lease_groups.iter_mut().for_each(|group| group.is_current = false);
        }
        let entered = batch.lease.as_ref().and_then(NewLease::entered);
        if let Some((now, groups)) = entered.filter(|_| is_claim && !is_released) {
            thread.lease_groups.retain(|before| groups.iter().all(|group| group.name != before.name));
            thread.lease_groups.extend(groups.iter().map(|group| EnteredGroup {
                name: group.name.clone(),
                rated_until: group.rated_until(now),
                is_current: true,
            }));
        }
    }
    Ok(())
}

/// Compares a claim with the limits of its groups.
fn admit(log: &MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    let Some((now, groups)) = batch.lease.as_ref().and_then(NewLease::entered) else { return Ok(()) };
    for group in groups {
        let others = log.threads.iter().filter(|(id, _)| **id != batch.thread);
        let members = others.filter_map(|(_, thread)| {
            let entered = thread.lease_groups.iter().find(|entered| entered.name == group.name)?;
            let is_live = entered.is_current && thread.lease.as_ref().is_some_and(|lease| lease.is_live(now));
            Some((is_live, entered.rated_until))
        });
        group.admit(now, members)?;
    }
    Ok(())
}

/// Compares the lease that a batch names with the stored one. Returns the lease to be stored, if that changes.
fn leased(log: &MemoryLog, batch: &Batch) -> Result<Option<LeaseRecord>, StoreError> {
    let Some(new) = &batch.lease else { return Ok(None) };
    let stored = log.threads.get(&batch.thread).and_then(|thread| thread.lease.as_ref());
    let admitted = new.apply(&batch.thread, stored).and_then(|changed| {
        let is_claim = changed.as_ref().is_some_and(|lease| lease.is_claim(stored));
        if is_claim { admit(log, batch).map(|()| changed) } else { Ok(changed) }
    });
    match admitted {
        // The batch was accepted before, when the lease was its own.
        Err(_) if batch.parts().any(|part| is_stored(log, part)) => Ok(None),
        applied => applied,
    }
}

fn commit_parts(log: &mut MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    if batch.then.is_empty() && batch.operation.is_none() {
        return commit_part(log, batch);
    }
    // Writes on their own went in with the checkpoints, and may not fit any more.
    let repeats = batch.parts().any(|part| is_stored(log, part));
    let numbers = (log.seq, log.branch);
    let mut undo = Vec::new();
    for part in batch.parts().filter(|part| !repeats || !part.checkpoints.is_empty()) {
        let was = log.threads.get(&part.thread).map(|thread| thread.spaces.get(&part.namespace).cloned());
        if let Err(error) = commit_part(log, part) {
            undo.into_iter().rev().for_each(|(part, was)| put_back(log, part, was));
            (log.seq, log.branch) = numbers;
            return Err(error);
        }
        undo.push((part, was));
    }
    if let Some(operation) = batch.operation.as_ref().filter(|_| !repeats)
        && let Err(error) = operate(log, operation)
    {
        undo.into_iter().rev().for_each(|(part, was)| put_back(log, part, was));
        (log.seq, log.branch) = numbers;
        return Err(error);
    }
    Ok(())
}

/// Restores a namespace, or removes it if it, or its thread, did not exist.
fn put_back(log: &mut MemoryLog, part: &Batch, was: Option<Option<NamespaceVersion>>) {
    let Some(was) = was else {
        log.threads.remove(&part.thread);
        return;
    };
    if let Some(thread) = log.threads.get_mut(&part.thread) {
        match was {
            Some(space) => _ = thread.spaces.insert(part.namespace.clone(), space),
            None => _ = thread.spaces.remove(&part.namespace),
        }
    }
}

fn is_stored(log: &MemoryLog, part: &Batch) -> bool {
    let space = log.space(&part.thread, &part.namespace);
    let last = part.checkpoints.last();
    last.zip(space).is_some_and(|(last, space)| space.checkpoints.get(&last.id).is_some())
}

fn commit_part(log: &mut MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    if is_stored(log, batch) {
        return repeat(log, batch);
    }
    for expect in &batch.expect {
        let found = log.space(&batch.thread, &expect.namespace).and_then(NamespaceVersion::head_id);
        if found != expect.head {
            return Err(StoreError::Conflict {
                thread: batch.thread.clone(),
                namespace: expect.namespace.clone(),
                expected: expect.head,
                found,
            });
        }
    }
    let mut next = Next::of(log, batch);
    next.add_writes()?;
    batch.checkpoints.iter().try_for_each(|checkpoint| next.add(checkpoint))?;
    debug_assert!(batch.checkpoints.is_empty() || next.newest_id() == batch.head_after());
    debug_assert_eq!(next.seq, log.seq + batch.checkpoints.len() as u64);
    let Next { added, writes, seq, branch, .. } = next;
    let branches = branch - log.branch;
    (log.seq, log.branch) = (seq, branch);
    let Some(first) = batch.checkpoints.first() else {
        let thread = log.threads.get_mut(&batch.thread);
        if let Some(space) = thread.and_then(|thread| thread.spaces.get_mut(&batch.namespace)) {
            space.add(batch, added, writes, branches);
        }
        return Ok(());
    };
    if !log.threads.contains_key(&batch.thread) {
        let thread = StoredThread {
            created_at: first.created_at,
            spaces: Default::default(),
            fields: Default::default(),
            lease: None,
            lease_groups: Vec::new(),
        };
        log.threads.insert(batch.thread.clone(), thread);
    }
    if let Some(thread) = log.threads.get_mut(&batch.thread) {
        if let Some(space) = thread.spaces.get_mut(&batch.namespace) {
            space.add(batch, added, writes, branches);
        } else {
            thread.spaces.entry(batch.namespace.clone()).or_default().add(batch, added, writes, branches);
        }
    }
    Ok(())
}

impl NamespaceVersion {
    /// Applies the additions of a batch. It cannot fail, so a batch is committed entirely or not at all.
    fn add(
        &mut self,
        batch: &Batch,
        added: Vec<Arc<StoredCheckpoint>>,
        writes: Vec<(CheckpointId, CheckpointWrites)>,
        branches: u64,
    ) {
        for timer in &batch.timers {
            match timer.wake_at {
                Some(wake_at) => _ = self.timers.insert(timer.task, (timer.checkpoint, wake_at)),
                None => _ = self.timers.remove(&timer.task),
            }
        }
        if let Some(NewCheckpoint { parent: Some(Parent::Local(passed)), .. }) = batch.checkpoints.first() {
            self.timers.retain(|_, (checkpoint, _)| checkpoint != passed);
        }
        writes.into_iter().for_each(|(checkpoint, writes)| self.writes.put(checkpoint, writes));
        added.into_iter().for_each(|stored| self.checkpoints.put(stored.record.point.checkpoint, stored));
        self.branches += branches;
    }
}

/// Compares a batch whose last checkpoint is stored with the stored checkpoints.
fn repeat(log: &MemoryLog, batch: &Batch) -> Result<(), StoreError> {
    let next = Next::of(log, batch);
    for new in &batch.checkpoints {
        let duplicate = || StoreError::Duplicate { id: new.id };
        let stored = next.checkpoint(&new.id).ok_or_else(duplicate)?;
        stored.must_be_kept()?;
        // A batch with a dangling reference was never accepted, so it differs from the stored one.
        let builds_on = BuildsOn::find(&next, new).map_err(|_| duplicate())?;
        let delta = builds_on.resolve(new, consumed(new), &next).map_err(|_| duplicate())?;
        let old = &stored.record;
        let same = old.parent == builds_on.local()
            && old.forked_from == builds_on.fork()
            && old.step == new.step
            && old.source == new.source
            && old.created_at == new.created_at
            && old.run == new.run
            && old.metadata == new.metadata
            && old.parents == new.parents
            && old.tasks == new.tasks
            && stored.delta == delta;
        if !same {
            return Err(duplicate());
        }
    }
    Ok(())
}

fn consumed(new: &NewCheckpoint) -> Vec<Arc<Write>> {
    new.consumed.iter().flat_map(Write::all_of).collect()
}

/// The namespace of a batch after the batch: the stored one, and the additions.
struct Next<'a> {
    log: &'a MemoryLog,
    batch: &'a Batch,
    space: Option<&'a NamespaceVersion>,
    /// The checkpoints of the batch, oldest first.
    added: Vec<Arc<StoredCheckpoint>>,
    /// The writes of each checkpoint to which the batch adds some, those that are stored included.
    writes: Vec<(CheckpointId, CheckpointWrites)>,
    seq: u64,
    branch: u64,
}

impl<'a> Next<'a> {
    /// Makes the namespace without additions.
    fn of(log: &'a MemoryLog, batch: &'a Batch) -> Self {
        let (space, added) = (log.space(&batch.thread, &batch.namespace), Vec::with_capacity(batch.checkpoints.len()));
        Self { log, batch, space, added, writes: Vec::new(), seq: log.seq, branch: log.branch }
    }

    fn newest_id(&self) -> Option<CheckpointId> {
        let stored = || self.space.and_then(NamespaceVersion::newest_id);
        self.added.last().map(|stored| stored.record.point.checkpoint).or_else(stored)
    }

    fn checkpoint(&self, id: &CheckpointId) -> Option<&Arc<StoredCheckpoint>> {
        let added = self.added.iter().find(|stored| stored.record.point.checkpoint == *id);
        added.or_else(|| self.space?.checkpoints.get(id))
    }

    fn writes_of(&self, checkpoint: &CheckpointId) -> CheckpointWrites {
        match self.writes.iter().find(|(known, _)| known == checkpoint) {
            Some((_, writes)) => writes.clone(),
            None => self.space.map(|space| space.writes_of(checkpoint)).unwrap_or_default(),
        }
    }

    fn add_writes_to(&mut self, checkpoint: CheckpointId, new: &[Arc<Write>]) {
        if new.is_empty() {
            return;
        }
        let at = self.writes.iter().position(|(known, _)| *known == checkpoint).unwrap_or_else(|| {
            self.writes.reserve_exact(1);
            self.writes.push((checkpoint, self.space.map(|space| space.writes_of(&checkpoint)).unwrap_or_default()));
            self.writes.len() - 1
        });
        add_writes(&mut self.writes[at].1, new);
    }

    /// Returns the items of a list that the batch references.
    fn list(&self, of: &ListRef) -> Result<StoredList, StoreError> {
        let stored = match of.namespace == self.batch.namespace {
            true => self.checkpoint(&of.checkpoint),
            false => self
                .log
                .space(&self.batch.thread, &of.namespace)
                .and_then(|space| space.checkpoints.get(&of.checkpoint)),
        };
        let Some(stored) = stored else {
            let (thread, id) = (self.batch.thread.clone(), of.checkpoint.to_string());
            return Err(StoreError::CheckpointNotFound { thread, id });
        };
        stored.must_be_kept()?;
        let channel = stored.state.channels.get(&*of.channel);
        let items = channel.and_then(|channel| channel.value.items()).cloned().unwrap_or_default();
        if items.reference.as_ref().is_some_and(|reference| reference.depth >= LIST_REFERENCES_MAX) {
            return invalid("list.of", format!("more than {LIST_REFERENCES_MAX} references in a row"));
        }
        Ok(items)
    }

    fn check_deltas(&self, new: &NewWrites) -> Result<(), StoreError> {
        new.writes.iter().try_for_each(|write| match &write.value {
            WriteValue::Delta(delta) => self.list(&delta.of).map(|_| ()),
            _ => Ok(()),
        })
    }

    fn add_writes(&mut self) -> Result<(), StoreError> {
        for new in &self.batch.writes {
            let Some(stored) = self.checkpoint(&new.checkpoint) else {
                return invalid("writes.checkpoint", format!("{} is not stored in this namespace", new.checkpoint));
            };
            stored.must_be_kept()?;
            self.check_deltas(new)?;
            self.add_writes_to(new.checkpoint, &Write::all_of(new).collect::<Vec<_>>());
        }
        Ok(())
    }

    fn add(&mut self, new: &NewCheckpoint) -> Result<(), StoreError> {
        let newest = self.newest_id();
        if let Some(newest) = newest
            && new.id <= newest
        {
            return match self.checkpoint(&new.id) {
                Some(_) => Err(StoreError::Duplicate { id: new.id }),
                None => {
                    let (thread, namespace) = (self.batch.thread.clone(), self.batch.namespace.clone());
                    Err(StoreError::StaleId { thread, namespace, id: new.id, newest })
                }
            };
        }
        let mut builds_on = BuildsOn::find(self, new)?;
        builds_on.parent.as_ref().map_or(Ok(()), |parent| parent.must_be_kept())?;
        let consumed = consumed(new);
        if let Some(parent) = builds_on.consumes(new)? {
            // Changed in place, as no other version shares them.
            builds_on.writes = CheckpointWrites::default();
            self.add_writes_to(parent, &consumed);
            builds_on.writes = self.writes_of(&parent);
        }
        new.consumed.iter().try_for_each(|writes| self.check_deltas(writes))?;
        let delta = builds_on.resolve(new, consumed, self)?;
        let ordinal = builds_on.ordinal();
        debug_assert!(builds_on.parent.as_ref().is_none_or(|parent| parent.record.seq <= self.seq));
        let nothing = CheckpointState::default();
        let state =
            builds_on.parent.as_ref().map_or(&nothing, |parent| &parent.state).after(&delta, ordinal, self.seq + 1)?;
        self.seq += 1;
        let branch = match &builds_on.parent {
            Some(parent) if builds_on.local().is_some() && builds_on.local() == newest => parent.record.branch,
            _ => {
                self.branch += 1;
                self.branch
            }
        };
        let point = CheckpointRef::new(self.batch.thread.clone(), self.batch.namespace.clone(), new.id);
        let mut record = CheckpointRecord::new(point, self.seq, new.step, new.source, new.created_at);
        (record.parent, record.forked_from) = (builds_on.local(), builds_on.fork());
        (record.branch, record.ordinal, record.run) = (branch, ordinal, new.run);
        (record.metadata, record.tasks) = (new.metadata.clone(), new.tasks.clone());
        record.parents = Arc::clone(&new.parents);
        self.added.push(Arc::new(StoredCheckpoint { record, delta, state }));
        Ok(())
    }
}

/// The parent of a checkpoint, with the writes that its changes may refer to.
struct BuildsOn {
    parent: Option<Arc<StoredCheckpoint>>,
    is_fork: bool,
    writes: CheckpointWrites,
}

impl BuildsOn {
    fn find(next: &Next<'_>, new: &NewCheckpoint) -> Result<Self, StoreError> {
        let (log, batch) = (next.log, next.batch);
        let (stored, writes, is_fork) = match &new.parent {
            None => return Ok(Self { parent: None, is_fork: false, writes: CheckpointWrites::default() }),
            Some(Parent::Local(id)) if *id >= new.id => {
                return invalid("checkpoint.parent", format!("{id} is not below its child {}", new.id));
            }
            Some(Parent::Local(id)) => (next.checkpoint(id), next.writes_of(id), false),
            Some(Parent::Fork(at)) if at.thread == batch.thread && at.namespace == batch.namespace => {
                return invalid("checkpoint.parent", format!("{} is in this namespace: not a fork", at.checkpoint));
            }
            Some(Parent::Fork(at)) => {
                let space = log.space(&at.thread, &at.namespace);
                let writes = space.map(|space| space.writes_of(&at.checkpoint)).unwrap_or_default();
                (log.stored(at), writes, true)
            }
        };
        let Some(stored) = stored else {
            return invalid("checkpoint.parent", format!("the parent of {} is not stored", new.id));
        };
        Ok(Self { parent: Some(Arc::clone(stored)), is_fork, writes })
    }

    fn ordinal(&self) -> u64 {
        self.parent.as_ref().map_or(0, |parent| parent.record.ordinal + 1)
    }

    fn local(&self) -> Option<CheckpointId> {
        self.parent.as_ref().filter(|_| !self.is_fork).map(|parent| parent.record.point.checkpoint)
    }

    fn fork(&self) -> Option<CheckpointRef> {
        self.parent.as_ref().filter(|_| self.is_fork).map(|parent| parent.record.point.clone())
    }

    /// Returns the parent whose writes are consumed, if any are. A fork must not write to its source.
    fn consumes(&self, new: &NewCheckpoint) -> Result<Option<CheckpointId>, StoreError> {
        let parent = self.local();
        match new.consumed.iter().find(|writes| Some(writes.checkpoint) != parent) {
            Some(writes) => {
                let id = writes.checkpoint;
                invalid("consumed.checkpoint", format!("{id} is not the parent of {} in this namespace", new.id))
            }
            None => Ok(parent.filter(|_| !new.consumed.is_empty())),
        }
    }

    /// Finds the bytes of every change, and checks the references of the changes.
    fn resolve(&self, new: &NewCheckpoint, consumed: Vec<Arc<Write>>, next: &Next<'_>) -> Result<Delta, StoreError> {
        let mut nodes = HashSet::new();
        if let Some(twice) = new.seen.iter().find(|seen| new.seen.len() > 1 && !nodes.insert(&seen.node)) {
            return invalid("checkpoint.seen", format!("node {:?} comes twice", twice.node));
        }
        let changes = new.changes.iter().map(|change| self.change(change, next)).collect::<Result<_, _>>()?;
        Ok(Delta { consumed, changes, seen: new.seen.clone() })
    }

    fn change(&self, change: &Change, next: &Next<'_>) -> Result<Changed, StoreError> {
        self.task("change.task", change.task)?;
        let value = match &change.value {
            ChangeValue::Empty => ChangedValue::Empty,
            ChangeValue::Value(data) => ChangedValue::Value(self.bytes(data)?),
            ChangeValue::Items(items) => {
                let mut positions = HashSet::new();
                let changed = items.iter().map(|item| {
                    self.task("item.task", item.task)?;
                    if item.op.is_of_position() && items.len() > 1 && !positions.insert(item.position) {
                        return invalid("item.position", format!("position {} changes twice", item.position));
                    }
                    let op = match &item.op {
                        ItemOp::Put(data) => ChangedOp::Put(self.bytes(data)?),
                        ItemOp::Delete => ChangedOp::Delete,
                        ItemOp::DeleteRange { end } => ChangedOp::DeleteRange(*end),
                        ItemOp::Reference(of) => ChangedOp::Reference(of.clone(), next.list(of)?),
                    };
                    Ok(ChangedItem { position: item.position, task: item.task, op })
                });
                ChangedValue::Items(changed.collect::<Result<_, _>>()?)
            }
        };
        Ok(Changed { channel: Arc::clone(&change.channel), version: change.version, task: change.task, value })
    }

    fn task(&self, field: &'static str, task: Option<u32>) -> Result<(), StoreError> {
        let tasks = self.parent.as_ref().map_or(0, |parent| parent.record.tasks.len());
        match task {
            Some(task) if task as usize >= tasks => {
                invalid(field, format!("{task} is not an index into the {tasks} tasks of the parent"))
            }
            _ => Ok(()),
        }
    }

    fn bytes(&self, data: &Data) -> Result<Arc<Payload>, StoreError> {
        let wanted = match data {
            Data::New(payload) => return Ok(Arc::new(payload.clone())),
            Data::OfWrite(wanted) => wanted,
        };
        let place = || format!("write {} of task {}", wanted.index, wanted.task);
        let Some(write) = self.writes.get(&(wanted.task, wanted.index)) else {
            return invalid("data.of_write", format!("{} is not among the writes of the parent", place()));
        };
        match write.payloads().get(wanted.part as usize) {
            Some(payload) => Ok(Arc::clone(payload)),
            None if write.value == WrittenValue::Null => invalid("data.of_write", format!("{} is null", place())),
            None => invalid("data.of_write", format!("{} has no part {}", place(), wanted.part)),
        }
    }
}
