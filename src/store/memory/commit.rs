//! The one way in: checks a batch against the log, builds the next version of its namespace, and puts it in place.

use std::collections::HashSet;
use std::sync::Arc;

use super::stored::{
    Changed, ChangedItem, ChangedOp, ChangedValue, Delta, Items, Log, Space, State, Stored, Thread, Write, Writes,
    Written, invalid,
};
use crate::base::limits::LIST_REFERENCES_MAX;
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemOp, ListRef, NewCheckpoint, NewWrites, Parent, Payload, WriteValue,
};
use crate::store::error::StoreError;
use crate::store::record::{CheckpointRecord, CheckpointRef};

/// Commits a batch with those that go along: entirely, or not at all.
pub(super) fn commit(log: &mut Log, batch: &Batch) -> Result<(), StoreError> {
    batch.validate()?;
    if batch.then.is_empty() {
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
    Ok(())
}

/// Restores a namespace, or removes it if it, or its thread, did not exist.
fn put_back(log: &mut Log, part: &Batch, was: Option<Option<Space>>) {
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

fn is_stored(log: &Log, part: &Batch) -> bool {
    let space = log.space(&part.thread, &part.namespace);
    let last = part.checkpoints.last();
    last.zip(space).is_some_and(|(last, space)| space.checkpoints.get(&last.id).is_some())
}

fn commit_part(log: &mut Log, batch: &Batch) -> Result<(), StoreError> {
    let space = log.space(&batch.thread, &batch.namespace);
    if let Some(space) = space.filter(|_| is_stored(log, batch)) {
        return repeat(log, space, batch);
    }
    for expect in &batch.expect {
        let found = log.space(&batch.thread, &expect.namespace).and_then(Space::head_id);
        if found != expect.head {
            return Err(StoreError::Conflict {
                thread: batch.thread.clone(),
                namespace: expect.namespace.clone(),
                expected: expect.head,
                found,
            });
        }
    }
    let space = space.cloned().unwrap_or_default();
    let mut next = Next { log, batch, space, seq: log.seq, branch: log.branch };
    next.add_writes()?;
    batch.checkpoints.iter().try_for_each(|checkpoint| next.add(checkpoint))?;
    let Next { space, seq, branch, .. } = next;
    debug_assert_eq!(space.head_id(), batch.head_after());
    debug_assert_eq!(seq, log.seq + batch.checkpoints.len() as u64);
    (log.seq, log.branch) = (seq, branch);
    if let Some(thread) = log.threads.get_mut(&batch.thread) {
        match thread.spaces.get_mut(&batch.namespace) {
            Some(old) => *old = space,
            None => _ = thread.spaces.insert(batch.namespace.clone(), space),
        }
    } else if let Some(first) = batch.checkpoints.first() {
        let spaces = [(batch.namespace.clone(), space)].into();
        log.threads.insert(batch.thread.clone(), Thread { created_at: first.created_at, spaces });
    }
    Ok(())
}

/// Compares a batch whose last checkpoint is stored with the stored checkpoints.
fn repeat(log: &Log, space: &Space, batch: &Batch) -> Result<(), StoreError> {
    for new in &batch.checkpoints {
        let duplicate = || StoreError::Duplicate { id: new.id };
        let stored = space.checkpoints.get(&new.id).ok_or_else(duplicate)?;
        // A batch with a dangling reference was never accepted, so it differs from the stored one.
        let builds_on = BuildsOn::find(log, space, batch, new).map_err(|_| duplicate())?;
        let lists = Lists { log, batch, space };
        let delta = builds_on.resolve(new, consumed(new), &lists).map_err(|_| duplicate())?;
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

/// The version of the namespace that will stand after the batch.
struct Next<'a> {
    log: &'a Log,
    batch: &'a Batch,
    space: Space,
    seq: u64,
    branch: u64,
}

/// The lists that a batch may reference.
struct Lists<'a> {
    log: &'a Log,
    batch: &'a Batch,
    /// The namespace of the batch, with what of the batch is in it already.
    space: &'a Space,
}

impl Lists<'_> {
    /// Returns the items of a list.
    fn find(&self, of: &ListRef) -> Result<Items, StoreError> {
        let space = match of.namespace == self.batch.namespace {
            true => Some(self.space),
            false => self.log.space(&self.batch.thread, &of.namespace),
        };
        let Some(stored) = space.and_then(|space| space.checkpoints.get(&of.checkpoint)) else {
            let (thread, id) = (self.batch.thread.clone(), of.checkpoint.to_string());
            return Err(StoreError::CheckpointNotFound { thread, id });
        };
        let channel = stored.state.channels.get(&*of.channel);
        let items = channel.and_then(|channel| channel.value.items()).cloned().unwrap_or_default();
        if items.reference.as_ref().is_some_and(|reference| reference.depth >= LIST_REFERENCES_MAX) {
            return invalid("list.of", format!("more than {LIST_REFERENCES_MAX} references in a row"));
        }
        Ok(items)
    }

    fn check_deltas(&self, new: &NewWrites) -> Result<(), StoreError> {
        new.writes.iter().try_for_each(|write| match &write.value {
            WriteValue::Delta(delta) => self.find(&delta.of).map(|_| ()),
            _ => Ok(()),
        })
    }
}

impl Next<'_> {
    fn lists(&self) -> Lists<'_> {
        Lists { log: self.log, batch: self.batch, space: &self.space }
    }

    fn add_writes(&mut self) -> Result<(), StoreError> {
        for new in &self.batch.writes {
            if self.space.checkpoints.get(&new.checkpoint).is_none() {
                return invalid("writes.checkpoint", format!("{} is not stored in this namespace", new.checkpoint));
            }
            self.lists().check_deltas(new)?;
            self.space.add_writes(new.checkpoint, &Write::all_of(new).collect::<Vec<_>>());
        }
        for timer in &self.batch.timers {
            match timer.wake_at {
                Some(wake_at) => _ = self.space.timers.insert(timer.task, (timer.checkpoint, wake_at)),
                None => _ = self.space.timers.remove(&timer.task),
            }
        }
        if !self.batch.checkpoints.is_empty() {
            self.space.timers.clear();
        }
        Ok(())
    }

    fn add(&mut self, new: &NewCheckpoint) -> Result<(), StoreError> {
        let head = self.space.head_id();
        if let Some(head) = head
            && new.id <= head
        {
            return match self.space.checkpoints.get(&new.id) {
                Some(_) => Err(StoreError::Duplicate { id: new.id }),
                None => invalid("checkpoint.id", format!("{} is not above the head {head}", new.id)),
            };
        }
        let mut builds_on = BuildsOn::find(self.log, &self.space, self.batch, new)?;
        let consumed = consumed(new);
        if let Some(parent) = builds_on.consumes(new)? {
            self.space.add_writes(parent, &consumed);
            builds_on.writes = self.space.writes_of(&parent);
        }
        new.consumed.iter().try_for_each(|writes| self.lists().check_deltas(writes))?;
        let delta = builds_on.resolve(new, consumed, &self.lists())?;
        let ordinal = builds_on.ordinal();
        debug_assert!(builds_on.parent.as_ref().is_none_or(|parent| parent.record.seq <= self.seq));
        let nothing = State::default();
        let state =
            builds_on.parent.as_ref().map_or(&nothing, |parent| &parent.state).after(&delta, ordinal, self.seq + 1)?;
        self.seq += 1;
        let branch = match &builds_on.parent {
            Some(parent) if builds_on.local().is_some() && builds_on.local() == head => parent.record.branch,
            _ => {
                self.branch += 1;
                self.space.branches += 1;
                self.branch
            }
        };
        let record = CheckpointRecord {
            point: CheckpointRef {
                thread: self.batch.thread.clone(),
                namespace: self.batch.namespace.clone(),
                checkpoint: new.id,
            },
            seq: self.seq,
            parent: builds_on.local(),
            forked_from: builds_on.fork(),
            branch,
            ordinal,
            step: new.step,
            source: new.source,
            created_at: new.created_at,
            run: new.run,
            metadata: new.metadata.clone(),
            parents: Arc::clone(&new.parents),
            tasks: new.tasks.clone(),
        };
        self.space.checkpoints.put(new.id, Arc::new(Stored { record, delta, state }));
        Ok(())
    }
}

/// The parent of a checkpoint, with the writes that its changes may refer to.
struct BuildsOn {
    parent: Option<Arc<Stored>>,
    is_fork: bool,
    writes: Writes,
}

impl BuildsOn {
    fn find(log: &Log, space: &Space, batch: &Batch, new: &NewCheckpoint) -> Result<Self, StoreError> {
        let (stored, from, is_fork) = match &new.parent {
            None => return Ok(Self { parent: None, is_fork: false, writes: Writes::default() }),
            Some(Parent::Local(id)) if *id >= new.id => {
                return invalid("checkpoint.parent", format!("{id} is not below its child {}", new.id));
            }
            Some(Parent::Local(id)) => (space.checkpoints.get(id), Some((space, *id)), false),
            Some(Parent::Fork(at)) if at.thread == batch.thread && at.namespace == batch.namespace => {
                return invalid("checkpoint.parent", format!("{} is in this namespace: not a fork", at.checkpoint));
            }
            Some(Parent::Fork(at)) => {
                let from = log.space(&at.thread, &at.namespace).map(|space| (space, at.checkpoint));
                (log.stored(at), from, true)
            }
        };
        let (Some(stored), Some((space, id))) = (stored, from) else {
            return invalid("checkpoint.parent", format!("the parent of {} is not stored", new.id));
        };
        Ok(Self { parent: Some(Arc::clone(stored)), is_fork, writes: space.writes_of(&id) })
    }

    fn ordinal(&self) -> u64 {
        self.parent.as_ref().map_or(0, |parent| parent.record.ordinal + 1)
    }

    fn local(&self) -> Option<crate::base::CheckpointId> {
        self.parent.as_ref().filter(|_| !self.is_fork).map(|parent| parent.record.point.checkpoint)
    }

    fn fork(&self) -> Option<CheckpointRef> {
        self.parent.as_ref().filter(|_| self.is_fork).map(|parent| parent.record.point.clone())
    }

    /// Returns the parent whose writes are consumed, if any are. A fork must not write to its source.
    fn consumes(&self, new: &NewCheckpoint) -> Result<Option<crate::base::CheckpointId>, StoreError> {
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
    fn resolve(&self, new: &NewCheckpoint, consumed: Vec<Arc<Write>>, lists: &Lists<'_>) -> Result<Delta, StoreError> {
        let mut nodes = HashSet::new();
        if let Some(twice) = new.seen.iter().find(|seen| new.seen.len() > 1 && !nodes.insert(&seen.node)) {
            return invalid("checkpoint.seen", format!("node {:?} comes twice", twice.node));
        }
        let changes = new.changes.iter().map(|change| self.change(change, lists)).collect::<Result<_, _>>()?;
        Ok(Delta { consumed, changes, seen: new.seen.clone() })
    }

    fn change(&self, change: &Change, lists: &Lists<'_>) -> Result<Changed, StoreError> {
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
                        ItemOp::Reference(of) => ChangedOp::Reference(of.clone(), lists.find(of)?),
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
            None if write.value == Written::Null => invalid("data.of_write", format!("{} is null", place())),
            None => invalid("data.of_write", format!("{} has no part {}", place(), wanted.part)),
        }
    }
}
