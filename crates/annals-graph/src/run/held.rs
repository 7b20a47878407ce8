//! The batches that a run with durability `exit` holds back until it ends, and reads of them meanwhile.
//! *Absent:* the time at which they are stored.

use std::sync::Arc;

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::exec::Head;
use crate::graph::Graph;
use crate::store::CheckpointRef;
use crate::store::batch::{Batch, NewCheckpoint, NewWrites};
use crate::store::record::WriteRecord;

/// The batches that a run holds back, in their order.
#[derive(Default)]
pub(super) struct Held {
    batches: Vec<Batch>,
    /// The decoded heads that subgraphs have left. They cannot be read from the batches.
    heads: Vec<HeldHead>,
}

struct HeldHead {
    namespace: Namespace,
    checkpoint: CheckpointId,
    /// The id of the graph that made the head: another graph cannot use it.
    schema: usize,
    head: Head,
}

impl Held {
    /// Returns the batches of the namespace of a point, newest first.
    fn batches_of<'a>(&'a self, thread: &'a ThreadId, namespace: &'a Namespace) -> impl Iterator<Item = &'a Batch> {
        self.batches.iter().rev().filter(move |batch| batch.namespace == *namespace && batch.thread == *thread)
    }

    fn checkpoint<'a>(&'a self, at: &'a CheckpointRef) -> Option<&'a NewCheckpoint> {
        let mut checkpoints =
            self.batches_of(&at.thread, &at.namespace).flat_map(|batch| batch.checkpoints.iter().rev());
        checkpoints.find(|new| new.id == at.checkpoint)
    }

    /// Holds a batch back.
    pub(super) fn add(&mut self, batch: Batch) {
        debug_assert!(batch.then.is_empty(), "batches are held back one by one");
        debug_assert!(
            batch.checkpoints.first().is_none_or(|first| {
                let newest = self.newest(&batch.thread, &batch.namespace);
                newest.is_none_or(|(newest, _)| newest < first.id)
            }),
            "the checkpoints of a namespace are held back in their order"
        );
        self.batches.push(batch);
    }

    /// Returns the number of batches.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    /// Drops the batches from position `from` on whose checkpoints were made below a subgraph.
    pub(super) fn drop_below(&mut self, namespace: &Namespace, from: usize) {
        let is_below = |new: &NewCheckpoint| new.parents.iter().any(|(parent, _)| parent == namespace);
        let mut at = 0;
        self.batches.retain(|batch| {
            at += 1;
            at <= from || !batch.checkpoints.iter().any(is_below)
        });
    }

    /// Takes the batches, as one.
    pub(super) fn take(&mut self) -> Option<Batch> {
        self.heads.clear();
        Batch::of_all(std::mem::take(&mut self.batches))
    }

    /// Retains the head that a subgraph has left, if its checkpoint is held back.
    pub(super) fn retain(&mut self, graph: &Graph, thread: &ThreadId, namespace: &Namespace, head: &Head) {
        let Some(checkpoint) = head.checkpoint.map(|checkpoint| checkpoint.id) else { return };
        let at = CheckpointRef { thread: thread.clone(), namespace: namespace.clone(), checkpoint };
        if self.checkpoint(&at).is_some() && self.head(graph, &at).is_none() {
            let (namespace, head) = (at.namespace, head.clone());
            self.heads.push(HeldHead { namespace, checkpoint, schema: graph.id, head });
        }
    }

    /// Returns the head of a checkpoint that is held back, if it was retained.
    pub(super) fn head(&self, graph: &Graph, at: &CheckpointRef) -> Option<&Head> {
        let is_wanted = |held: &&HeldHead| {
            held.checkpoint == at.checkpoint && held.schema == graph.id && held.namespace == at.namespace
        };
        self.heads.iter().rfind(is_wanted).map(|held| &held.head).filter(|_| self.checkpoint(at).is_some())
    }

    /// Returns whether a checkpoint is held back whose head was not retained, so that it cannot be read.
    pub(super) fn hides(&self, graph: &Graph, at: &CheckpointRef) -> bool {
        self.checkpoint(at).is_some() && self.head(graph, at).is_none()
    }

    /// Returns the newest checkpoint of a namespace that is held back, and the parent graphs with their checkpoints.
    pub(super) fn newest(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
    ) -> Option<(CheckpointId, Arc<[(Namespace, CheckpointId)]>)> {
        let newest = self.batches_of(thread, namespace).find_map(|batch| batch.checkpoints.last())?;
        Some((newest.id, Arc::clone(&newest.parents)))
    }

    /// Returns whether a checkpoint is held back, and the writes to it that are.
    pub(super) fn writes(&self, at: &CheckpointRef) -> (bool, Vec<NewWrites>) {
        let batches = self.batches_of(&at.thread, &at.namespace);
        let mut added: Vec<NewWrites> = batches.flat_map(|batch| &batch.writes).cloned().collect();
        added.retain(|new| new.checkpoint == at.checkpoint);
        added.reverse();
        (self.checkpoint(at).is_some(), added)
    }
}

/// Returns the stored writes of a checkpoint with those that are held back, as a backend would store them.
pub(crate) fn merged_writes(mut stored: Vec<WriteRecord>, held: Vec<NewWrites>) -> Vec<WriteRecord> {
    if !held.is_empty() {
        held.into_iter().for_each(|new| add_writes(&mut stored, new));
        stored.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
    }
    stored
}

/// Adds writes: a special write is replaced, any other position keeps its first write.
fn add_writes(writes: &mut Vec<WriteRecord>, new: NewWrites) {
    for write in new.writes {
        let record = WriteRecord::new(new.task, Arc::clone(&new.path), write.index, write.channel, write.value)
            .with_mark(write.mark);
        match writes.iter_mut().find(|old| old.task == record.task && old.index == record.index) {
            Some(old) if record.index < 0 => *old = record,
            Some(_) => {}
            None => writes.push(record),
        }
    }
}

#[cfg(test)]
mod tests;
