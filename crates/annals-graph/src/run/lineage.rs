//! The newest checkpoint of a subgraph on a lineage of the outermost graph.
//!
//! A subgraph goes on from the checkpoint that the head of the outermost graph pins: the newest one that was made while
//! the outermost graph stood on the lineage of that head. So an abandoned branch of the outermost graph does not show
//! in its subgraphs, and going back in time takes the subgraphs along.

use std::borrow::Cow;

use crate::base::{CheckpointId, Namespace, RunId, ThreadId};
use crate::graph::START;
use crate::store::record::{CheckpointRecord, WriteRecord};
use crate::store::{CheckpointRef, Source};
use crate::task::without_tasks;

use super::decision::{Decision, DecisionLog};

/// The checkpoint of a subgraph that a lineage of the outermost graph pins.
pub(super) struct Pin {
    pub(super) record: CheckpointRecord,
    /// The fork of the outermost graph that names the checkpoint, or names the one that it is an edit of.
    pub(super) named_by: Option<CheckpointId>,
}

/// The relation of the outermost graph to the checkpoint at which a lineage ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// It stands at the checkpoint.
    At,
    /// It makes the superstep again that began at the checkpoint.
    Replays,
    /// It has gone on from the checkpoint.
    Past,
}

/// Returns the newest checkpoint of a subgraph that belongs to the lineage which ends at `start`.
pub(super) async fn pinned(
    log: &DecisionLog,
    thread: &ThreadId,
    namespace: &Namespace,
    start: &CheckpointRef,
    stands: Stands,
) -> Option<Pin> {
    let next = log.checkpoint(start.clone()).await;
    let (seen, counts) = (Vec::new(), stands != Stands::Replays);
    let mut line = Line { log, namespace, stands, next, seen, counts, after_fork: false, named: None };
    let mut last = None;
    while let Some(record) = log.older(thread, namespace, last).await {
        last = Some(record.point.checkpoint);
        let parent = record.parents.iter().find(|(namespace, _)| namespace.is_root());
        let Some((_, root)) = parent else { continue };
        let counts = line.counts(*root, record.run, start).await;
        let named_by = line.named_by(&record).await;
        if counts || named_by.is_some() {
            return Some(Pin { record, named_by });
        }
    }
    None
}

/// Returns the checkpoint that a subgraph had in the thread from which this one was forked, when it was forked.
///
/// Nothing is copied when a thread is forked: a subgraph without a checkpoint in its own thread begins with the one
/// that it has where the outermost graph comes from.
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
            if let Some(pin) = pinned(log, &origin.thread, namespace, &origin, Stands::Replays).await {
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
    /// The position of the fork in the log.
    since: u64,
}

/// A lineage of the outermost graph, read as far back as it is asked for.
struct Line<'a> {
    log: &'a DecisionLog,
    /// The namespace of the subgraph.
    namespace: &'a Namespace,
    stands: Stands,
    next: Option<CheckpointRecord>,
    /// The checkpoints that were read, newest first.
    seen: Vec<Ancestor>,
    /// True if checkpoints of subgraphs that were made at `next` belong to the lineage.
    counts: bool,
    /// True if the superstep of `next` was made again at a fork.
    after_fork: bool,
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
    async fn counts(&mut self, root: CheckpointId, run: Option<RunId>, start: &CheckpointRef) -> bool {
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
            self.read(record).await;
        }
        if wanted.is_none() {
            // A run with durability `exit` stores its last checkpoint alone. The steps before it led there.
            return self.seen.iter().any(|seen| seen.id > root && seen.run.is_some() && seen.run == run);
        }
        known(self).unwrap_or(false)
    }

    /// Returns the fork that names a checkpoint of the subgraph. An edit of the named checkpoint that was stored after
    /// the fork takes its place.
    async fn named_by(&self, record: &CheckpointRecord) -> Option<CheckpointId> {
        let named = self.named?;
        let mut at = Cow::Borrowed(record);
        while at.point.checkpoint != named.checkpoint {
            let is_later_edit = at.source == Source::Update && at.seq > named.since;
            let parent = at.parent.filter(|_| is_later_edit)?;
            at = Cow::Owned(self.log.checkpoint(CheckpointRef { checkpoint: parent, ..at.point.clone() }).await?);
        }
        Some(named.by)
    }

    /// Adds a checkpoint to the lineage, and reads its parent.
    async fn read(&mut self, record: CheckpointRecord) {
        let (id, ordinal, run) = (record.point.checkpoint, record.ordinal, record.run);
        let counts = self.counts;
        let stands = if self.seen.is_empty() { self.stands } else { Stands::Past };
        self.seen.push(Ancestor { id, ordinal, run, counts });
        let Some(parent) = record.parent else { return };
        let (is_fork, is_edit) = (record.source == Source::Fork, record.source == Source::Update);
        let own = record.parents.iter().find(|(of, _)| of == self.namespace).map(|(_, checkpoint)| *checkpoint);
        if let (Some(checkpoint), true, None) = (own, is_fork && counts, self.named) {
            self.named = Some(NamedCheckpoint { checkpoint, by: id, since: record.seq });
        }
        // A run that names a subgraph does not make again what those below it did before. An edit of the outermost
        // graph names none: it records the names of the checkpoint that it is based on.
        let is_below_named = own.is_none() && record.parents.iter().any(|(of, _)| is_below(self.namespace, of));
        let goes_on = counts && stands == Stands::Past && run.is_some() && is_below_named;
        // The superstep of a checkpoint that is forked, or left for another branch, is made again: what subgraphs did
        // in it does not count, unless the fork names it. At an edit that is the superstep of the checkpoint before.
        let is_edit_anew = is_edit && (self.after_fork || stands == Stands::Replays);
        self.next = self.log.checkpoint(CheckpointRef { checkpoint: parent, ..record.point }).await;
        let is_left = self.next.as_ref().is_some_and(|parent| parent.branch != record.branch);
        self.counts = goes_on || !(is_fork || is_edit_anew || is_left);
        self.after_fork = is_fork && !goes_on;
    }
}

/// Decides which writes hold the input of a checkpoint: a fork has those of the original, an update those of its
/// parent.
pub(crate) fn stored_input(point: CheckpointRef) -> Decision<Vec<WriteRecord>> {
    Decision::new(|log| async move {
        let mut at = Some(point);
        while let Some(point) = at {
            let Some(record) = log.checkpoint(point.clone()).await else { break };
            let goes_on = matches!(record.source, Source::Fork | Source::Update);
            // A pruned fork or update had no writes of an input: a pruning keeps the checkpoint that has them.
            let writes = if goes_on && record.pruned { Vec::new() } else { log.writes(point.clone()).await };
            let input = record.tasks.iter().find(|task| &*task.name == START).map(|task| task.id);
            let writes: Vec<_> = writes.into_iter().filter(|write| Some(write.task) == input).collect();
            if !writes.is_empty() || !goes_on {
                return writes;
            }
            at = match (record.parent, record.forked_from) {
                (Some(parent), _) => Some(CheckpointRef { checkpoint: parent, ..point }),
                (None, forked_from) => forked_from,
            };
        }
        Vec::new()
    })
}

/// Returns whether the namespace of a subgraph that keeps its state is below that of another subgraph.
pub(super) fn is_below(namespace: &Namespace, other: &Namespace) -> bool {
    let other = without_tasks(other.as_str());
    !other.is_empty() && namespace.as_str().strip_prefix(&other).is_some_and(|rest| rest.starts_with('|'))
}

#[cfg(test)]
mod tests {
    use super::super::decision::{Found, Need, Step};
    use super::*;
    use crate::base::{Encoded, TaskId, Timestamp, WriteValue};
    use crate::store::record::{TaskKind, TaskRecord};

    fn at(thread: &str, n: u8) -> CheckpointRef {
        let (thread, checkpoint) = (ThreadId::new(thread).unwrap(), CheckpointId::from_bytes([n; 16]));
        CheckpointRef { thread, namespace: Namespace::root(), checkpoint }
    }

    fn task(n: u8) -> TaskId {
        TaskId::from_bytes([n; 16])
    }

    fn write(of: u8, text: &str) -> WriteRecord {
        WriteRecord::new(task(of), "path", 0, "c", WriteValue::One(Encoded::encode(text).unwrap().into()))
    }

    /// A checkpoint whose input task is due, and the writes of it.
    fn due(at: CheckpointRef, source: Source, writes: Vec<WriteRecord>) -> (CheckpointRecord, Vec<WriteRecord>) {
        let mut record = CheckpointRecord::new(at, 1, 0, source, Timestamp::from_micros(0));
        record.tasks = vec![
            TaskRecord::new(task(8), "node", TaskKind::Push { index: 0 }),
            TaskRecord::new(task(1), START, TaskKind::Pull { triggers: Vec::new() }),
        ];
        (record, writes)
    }

    /// Decides which writes hold the input of a checkpoint, from a log.
    fn input(log: &[(CheckpointRecord, Vec<WriteRecord>)], of: &CheckpointRef) -> Vec<WriteRecord> {
        let mut decision = stored_input(of.clone());
        let found = |point: &CheckpointRef| log.iter().find(|(record, _)| record.point == *point);
        loop {
            match decision.poll() {
                Step::Decided(writes) => return writes,
                Step::Needs(Need::Checkpoint(point)) => {
                    decision.handle(Found::Checkpoint(found(&point).map(|(record, _)| Box::new(record.clone()))));
                }
                Step::Needs(Need::Writes(point)) => {
                    decision.handle(Found::Writes(found(&point).map_or_else(Vec::new, |(_, writes)| writes.clone())));
                }
                Step::Needs(need) => panic!("{need:?}"),
            }
        }
    }

    #[test]
    fn the_input_of_a_fork_is_that_of_the_first_checkpoint_before_it_that_has_one() {
        let given = vec![write(1, "given"), write(8, "of a node")];
        let first = due(at("t", 1), Source::Input, given);
        let mut forked = due(at("fork", 1), Source::Fork, Vec::new());
        forked.0.forked_from = Some(at("t", 1));
        let mut updated = due(at("fork", 2), Source::Update, Vec::new());
        updated.0.parent = Some(at("fork", 1).checkpoint);
        let log = [first, forked, updated];
        for of in [at("t", 1), at("fork", 1), at("fork", 2)] {
            assert_eq!(input(&log, &of), [write(1, "given")], "{of:?}");
        }
        assert_eq!(input(&log[1..], &at("fork", 2)), [], "the log ends before it");
    }

    #[test]
    fn a_fork_that_has_writes_of_its_input_needs_no_other_checkpoint() {
        let first = due(at("t", 1), Source::Input, vec![write(1, "of the original")]);
        let mut forked = due(at("t", 2), Source::Fork, vec![write(1, "its own")]);
        forked.0.parent = Some(at("t", 1).checkpoint);
        let log = [first, forked.clone()];
        assert_eq!(input(&log, &at("t", 2)), [write(1, "its own")]);
        // The writes of a pruned one are not asked for.
        forked.0.pruned = true;
        assert_eq!(input(&[log[0].clone(), forked], &at("t", 2)), [write(1, "of the original")]);
    }

    #[test]
    fn an_input_without_writes_is_not_that_of_the_turn_before() {
        let first = due(at("t", 1), Source::Input, vec![write(1, "of the first turn")]);
        let mut second = due(at("t", 2), Source::Input, Vec::new());
        second.0.parent = Some(at("t", 1).checkpoint);
        assert_eq!(input(&[first, second], &at("t", 2)), []);
    }

    #[test]
    fn a_pruned_input_is_found_by_the_fork_of_it() {
        let mut first = due(at("t", 1), Source::Input, vec![write(1, "given")]);
        first.0.pruned = true;
        let mut forked = due(at("t", 2), Source::Fork, Vec::new());
        forked.0.parent = Some(at("t", 1).checkpoint);
        assert_eq!(input(&[first, forked], &at("t", 2)), [write(1, "given")]);
    }
}
