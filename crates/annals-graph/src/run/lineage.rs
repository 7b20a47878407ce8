//! The newest checkpoint of a subgraph on a lineage of the outermost graph.
//!
//! A subgraph goes on from the checkpoint that the head of the outermost graph pins: the newest one that was made while
//! the outermost graph stood on the lineage of that head. So an abandoned branch of the outermost graph does not show in
//! its subgraphs, and going back in time takes the subgraphs along.

use crate::base::{CheckpointId, Namespace, RunId, ThreadId};
use crate::store::{CheckpointRecord, CheckpointRef, Source};

use super::decision::DecisionLog;

/// The checkpoint of a subgraph that a lineage of the outermost graph pins.
pub(super) struct Pin {
    pub(super) record: CheckpointRecord,
    /// The fork of the outermost graph that names the checkpoint, if no checkpoint of the subgraph names the fork.
    pub(super) named_by: Option<CheckpointId>,
}

/// Returns the newest checkpoint of a subgraph that belongs to the lineage which ends at `start`. If the run `replays`
/// that checkpoint, the superstep that began there is made again.
pub(super) async fn pinned(
    log: &DecisionLog,
    thread: &ThreadId,
    namespace: &Namespace,
    start: &CheckpointRef,
    replays: bool,
) -> Option<Pin> {
    let next = log.checkpoint(start.clone()).await;
    let mut line = Line { log, namespace, next, seen: Vec::new(), counts: !replays, named: None };
    let mut last = None;
    while let Some(record) = log.older(thread, namespace, last).await {
        last = Some(record.point.checkpoint);
        let parent = record.parents.iter().find(|(namespace, _)| namespace.is_root());
        let Some((_, root)) = parent else { continue };
        let counts = line.counts(*root, record.run, start, replays).await;
        let named_by = line.named.filter(|named| named.checkpoint == record.point.checkpoint).map(|named| named.by);
        if counts || named_by.is_some() {
            return Some(Pin { record, named_by });
        }
    }
    None
}

/// Returns the checkpoint that a subgraph had in the thread from which this one was forked, when it was forked.
///
/// Nothing is copied when a thread is forked: a subgraph without a checkpoint in its own thread begins with the one that it
/// has where the outermost graph comes from.
pub(super) async fn inherited(
    log: &DecisionLog,
    namespace: &Namespace,
    start: Option<CheckpointRef>,
) -> Option<CheckpointRef> {
    let mut at = start;
    while let Some(point) = at {
        let record = log.checkpoint(point.clone()).await?;
        if let Some(origin) = record.forked_from {
            // The superstep that was due there is made again here.
            if let Some(pin) = pinned(log, &origin.thread, namespace, &origin, true).await {
                return Some(pin.record.point);
            }
            at = Some(origin);
            continue;
        }
        at = record.parent.map(|parent| CheckpointRef { checkpoint: parent, ..point });
    }
    None
}

/// A checkpoint of a subgraph that a fork of the outermost graph began with.
#[derive(Clone, Copy)]
struct NamedCheckpoint {
    checkpoint: CheckpointId,
    by: CheckpointId,
}

/// A lineage of the outermost graph, read as far back as it is asked for.
struct Line<'a> {
    log: &'a DecisionLog,
    /// The namespace of the subgraph.
    namespace: &'a Namespace,
    next: Option<CheckpointRecord>,
    /// The checkpoints that were read, newest first.
    seen: Vec<Ancestor>,
    /// True if checkpoints of subgraphs that were made at `next` belong to the lineage.
    counts: bool,
    /// The checkpoint of the subgraph that the newest fork of the lineage names.
    named: Option<NamedCheckpoint>,
}

/// A checkpoint of a lineage.
struct Ancestor {
    id: CheckpointId,
    ordinal: u64,
    run: Option<RunId>,
    /// True if checkpoints of subgraphs that were made at it belong to the lineage.
    counts: bool,
}

impl Line<'_> {
    /// Returns whether the checkpoints that a run made in a subgraph while the head of the outermost graph was `root`
    /// belong to the lineage.
    async fn counts(&mut self, root: CheckpointId, run: Option<RunId>, start: &CheckpointRef, replays: bool) -> bool {
        let known = |line: &Self| line.seen.iter().find(|seen| seen.id == root).map(|seen| seen.counts);
        if let Some(counts) = known(self) {
            return counts;
        }
        let wanted = self.log.checkpoint(CheckpointRef { checkpoint: root, ..start.clone() }).await;
        let wanted = wanted.map(|record| record.ordinal);
        let before = |seen: &Ancestor| match wanted {
            Some(wanted) => seen.ordinal <= wanted,
            None => seen.id < root,
        };
        while !self.seen.last().is_some_and(before)
            && let Some(record) = self.next.take()
        {
            self.read(record, replays).await;
        }
        if wanted.is_none() {
            // A run with durability `exit` stores its last checkpoint alone. The steps before it led there.
            return self.seen.iter().any(|seen| seen.id > root && seen.run.is_some() && seen.run == run);
        }
        known(self).unwrap_or(false)
    }

    /// Adds a checkpoint to the lineage, and reads its parent.
    async fn read(&mut self, record: CheckpointRecord, replays: bool) {
        let (id, ordinal, run) = (record.point.checkpoint, record.ordinal, record.run);
        let counts = self.counts;
        self.seen.push(Ancestor { id, ordinal, run, counts });
        let Some(parent) = record.parent else { return };
        self.next = self.log.checkpoint(CheckpointRef { checkpoint: parent, ..record.point }).await;
        // The superstep of a checkpoint that is forked, or left for another branch, is made again: what subgraphs did in
        // it does not count, unless the fork names it.
        let is_fork = record.source == Source::Fork;
        let names = record.parents.iter().find(|(namespace, _)| namespace == self.namespace);
        let names = names.filter(|_| is_fork && counts);
        if let (Some((_, checkpoint)), None) = (names, self.named) {
            self.named = Some(NamedCheckpoint { checkpoint: *checkpoint, by: id });
        }
        let anew = is_fork
            || (replays && self.seen.len() == 1 && record.source == Source::Update)
            || self.next.as_ref().is_some_and(|parent| parent.branch != record.branch);
        self.counts = !anew;
    }
}
