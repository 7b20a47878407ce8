//! What a run holds back until it ends (durability `exit`): the batches of all its graphs, which become one, and what
//! is read of them meanwhile. *Absent:* when they are stored.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::{CheckpointId, Namespace};
use crate::exec::Head;
use crate::graph::Graph;
use crate::history::Thread;
use crate::store::{Batch, CheckpointRef, NewCheckpoint, NewWrites, StoreError, WriteRecord};

/// The batches that a run holds back, in their order.
#[derive(Default)]
pub(super) struct Held(Mutex<State>);

#[derive(Default)]
struct State {
    batches: Vec<Batch>,
    /// Their heads as graphs inside left them, which nothing but this can be asked for.
    heads: Vec<HeldHead>,
}

struct HeldHead {
    namespace: Namespace,
    checkpoint: CheckpointId,
    /// Which graph made it: another one cannot use it.
    schema: usize,
    head: Head,
}

impl State {
    /// Returns the batches of the namespace of a point, newest first.
    fn batches_of<'a>(&'a self, at: &'a CheckpointRef) -> impl Iterator<Item = &'a Batch> {
        self.batches.iter().rev().filter(|batch| batch.namespace == at.namespace && batch.thread == at.thread)
    }

    fn checkpoint<'a>(&'a self, at: &'a CheckpointRef) -> Option<&'a NewCheckpoint> {
        let mut checkpoints = self.batches_of(at).flat_map(|batch| batch.checkpoints.iter().rev());
        checkpoints.find(|new| new.id == at.checkpoint)
    }

    fn head<'a>(&'a self, graph: &Graph, at: &'a CheckpointRef) -> Option<&'a Head> {
        let is_wanted = |held: &&HeldHead| {
            held.checkpoint == at.checkpoint && held.schema == graph.id && held.namespace == at.namespace
        };
        self.heads.iter().rfind(is_wanted).map(|held| &held.head).filter(|_| self.checkpoint(at).is_some())
    }
}

impl Held {
    /// Holds a batch back.
    pub(super) fn add(&self, batch: Batch) {
        self.0.lock().batches.push(batch);
    }

    /// Takes all that was held back, as one batch.
    pub(super) fn take(&self) -> Option<Batch> {
        Batch::of_all(std::mem::take(&mut *self.0.lock()).batches)
    }

    /// Keeps the head that a graph has left, if its checkpoint is held back.
    pub(super) fn keep(&self, graph: &Graph, thread: &Thread, head: &Head) {
        let Some(checkpoint) = head.checkpoint.map(|checkpoint| checkpoint.id) else { return };
        let mut state = self.0.lock();
        if state.batches.is_empty() {
            return;
        }
        let at = thread.point(checkpoint);
        if state.checkpoint(&at).is_some() && state.head(graph, &at).is_none() {
            let (namespace, head) = (at.namespace, head.clone());
            state.heads.push(HeldHead { namespace, checkpoint, schema: graph.id, head });
        }
    }

    /// Returns the head of a checkpoint that is held back, if it was kept.
    pub(super) fn head(&self, graph: &Graph, at: &CheckpointRef) -> Option<Head> {
        self.0.lock().head(graph, at).cloned()
    }

    /// Whether a checkpoint is held back whose head was not kept, so that it cannot be read.
    pub(super) fn hides(&self, graph: &Graph, at: &CheckpointRef) -> bool {
        let state = self.0.lock();
        state.checkpoint(at).is_some() && state.head(graph, at).is_none()
    }

    /// Returns the newest checkpoint of a namespace that is held back, and where the graphs around it stood.
    pub(super) fn newest(&self, thread: &Thread) -> Option<(CheckpointId, Arc<[(Namespace, CheckpointId)]>)> {
        let state = self.0.lock();
        if state.batches.is_empty() {
            return None;
        }
        let anywhere = thread.point(CheckpointId::default());
        let newest = state.batches_of(&anywhere).find_map(|batch| batch.checkpoints.last())?;
        Some((newest.id, Arc::clone(&newest.parents)))
    }

    /// Returns the newest checkpoint of a namespace, whether it is held back or stored.
    pub(super) fn head_id(&self, thread: &Thread) -> Result<Option<CheckpointId>, StoreError> {
        match self.newest(thread) {
            Some((newest, _)) => Ok(Some(newest)),
            None => thread.store().backend().head_id(thread.id(), thread.namespace()),
        }
    }

    /// Returns the writes of the tasks of a checkpoint: those that are stored and those that are held back.
    pub(super) fn writes(&self, thread: &Thread, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError> {
        let (is_held, added) = {
            let state = self.0.lock();
            let mut added: Vec<NewWrites> = state.batches_of(at).flat_map(|batch| &batch.writes).cloned().collect();
            added.retain(|new| new.checkpoint == at.checkpoint);
            added.reverse();
            (state.checkpoint(at).is_some(), added)
        };
        let mut writes = if is_held { Vec::new() } else { thread.store().backend().writes(at)? };
        if !added.is_empty() {
            added.into_iter().for_each(|new| add_writes(&mut writes, new));
            writes.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
        }
        Ok(writes)
    }
}

/// Adds writes as a backend does: a special slot is replaced, any other keeps its first write.
fn add_writes(writes: &mut Vec<WriteRecord>, new: NewWrites) {
    for write in new.writes {
        let record = WriteRecord::new(new.task, Arc::clone(&new.path), write.index, write.channel, write.value);
        match writes.iter_mut().find(|old| old.task == record.task && old.index == record.index) {
            Some(old) if record.index < 0 => *old = record,
            Some(_) => {}
            None => writes.push(record),
        }
    }
}
