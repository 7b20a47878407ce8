//! At which of its checkpoints a graph inside a run begins.
//!
//! A graph inside a task goes on from the checkpoint that the head of the graph around it pins: the newest one that was
//! made while the outermost graph stood on the lineage of that head. So an abandoned branch of the outermost graph does
//! not show inside, and going back in time takes the graphs inside along.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::base::{CheckpointId, Namespace, RunId};
use crate::error::Error;
use crate::graph::{Context, Persistence};
use crate::history::Thread;
use crate::store::{CheckpointRecord, CheckpointRef, Source, StoreError};

use super::held::Held;

/// Where the graphs inside a run stand when it begins.
#[derive(Default)]
pub(super) struct Children {
    /// The checkpoint of the outermost graph that the run began on.
    start: Option<CheckpointRef>,
    /// Whether the run does again what was done from there on.
    replays: bool,
    /// Checkpoints that the caller named.
    named: Box<[(Namespace, CheckpointId)]>,
    /// Where a graph has begun in this run: there it goes on from its newest checkpoint.
    visited: Mutex<HashSet<Namespace>>,
}

/// Where a graph inside a task begins.
pub(super) struct Begins {
    /// Its checkpoint, perhaps of the thread that its own was forked off; `None` if it has none yet, or none that counts.
    pub(super) at: Option<CheckpointRef>,
    /// Whether the caller named that checkpoint.
    pub(super) named: bool,
    /// Whether it goes on where it stopped, and takes no input.
    pub(super) resumes: bool,
}

impl Children {
    pub(super) fn new(start: Option<CheckpointRef>, replays: bool, named: &[(Namespace, CheckpointId)]) -> Self {
        Self { start, replays, named: named.into(), visited: Mutex::default() }
    }

    /// Returns where the graph whose namespace is that of `thread` begins in the task of `context`.
    pub(super) fn begin(
        &self,
        thread: &Thread,
        persistence: Persistence,
        context: &Context,
        held: &Held,
    ) -> Result<Begins, Error> {
        let backend = thread.store().backend();
        let per_task = persistence != Persistence::PerThread && !self.replays;
        let first = (!per_task || !self.named.is_empty()) && self.visited.lock().insert(thread.namespace().clone());
        let newest = held.head_id(thread)?;
        let Some(newest) = newest else {
            let keeps = persistence == Persistence::PerThread;
            let at = if keeps { self.inherited(thread)? } else { None };
            return Ok(Begins { at, named: false, resumes: false });
        };
        if first && let Some((_, named)) = self.named.iter().find(|(namespace, _)| namespace == thread.namespace()) {
            return Ok(Begins { at: Some(thread.point(*named)), named: true, resumes: true });
        }
        let resuming = context.parts().resuming && !self.replays;
        if per_task {
            // Its namespace is that of the task.
            return Ok(Begins { at: Some(thread.point(newest)), named: false, resumes: resuming });
        }
        let made = match held.newest(thread) {
            Some((newest, parents)) => Some((thread.point(newest), parents, None)),
            None if first => self.pinned(thread)?.map(|pin| (pin.record.point, pin.record.parents, pin.named_by)),
            None => backend.checkpoint(&thread.point(newest))?.map(|record| (record.point, record.parents, None)),
        };
        let Some((at, parents, named_by)) = made else { return Ok(Begins { at: None, named: false, resumes: false }) };
        // Another task of the same node may have left it where it is.
        let (namespace, checkpoint) = (&context.parts().namespace, context.parts().checkpoint);
        let of_task = named_by.is_some_and(|fork| outermost_checkpoint(context) == Some(fork))
            || parents.iter().any(|(around, at)| around == namespace && Some(*at) == checkpoint);
        let stored = context.calls().stored.iter().flat_map(|stored| stored.iter());
        let is_left = |(left, head): &(String, CheckpointId)| left == at.namespace.as_str() && *head == at.checkpoint;
        // Unless that one has ended.
        let is_free = stored.flat_map(|ended| &ended.left).any(is_left);
        let resumes = resuming && of_task && !is_free;
        if let (true, Some(around)) = (resuming, checkpoint) {
            refuse_if_ended(thread, at.checkpoint, context, around, held)?;
        }
        Ok(Begins { at: Some(at), named: false, resumes })
    }

    /// Returns what the graph had in the thread that this one was forked off, at the checkpoint that was forked.
    ///
    /// Nothing is copied when a thread is forked: a graph inside that has no checkpoint in its own thread yet looks
    /// for one where the outermost graph comes from.
    fn inherited(&self, thread: &Thread) -> Result<Option<CheckpointRef>, Error> {
        let (store, backend) = (thread.store(), thread.store().backend());
        let mut at = self.start.clone();
        while let Some(point) = at {
            let Some(record) = backend.checkpoint(&point)? else { break };
            if let Some(origin) = record.forked_from {
                let before = store.thread(origin.thread.as_str())?.with_namespace(thread.namespace().clone());
                // The superstep that was due there is made again here.
                let there = Self::new(Some(origin), true, &[]);
                return match there.pinned(&before)? {
                    Some(pin) => Ok(Some(pin.record.point)),
                    None => there.inherited(&before),
                };
            }
            at = record.parent.map(|parent| CheckpointRef { checkpoint: parent, ..point });
        }
        Ok(None)
    }

    /// Returns the newest checkpoint that belongs to the lineage the run began on.
    fn pinned(&self, thread: &Thread) -> Result<Option<Pin>, Error> {
        let Some(start) = &self.start else { return Ok(None) };
        let next = thread.store().backend().checkpoint(start)?;
        let mut line = Line { thread, next, seen: Vec::new(), counts: !self.replays, named: None };
        for snapshot in thread.history()? {
            let record = snapshot?.record().clone();
            let parent = record.parents.iter().find(|(namespace, _)| namespace.is_root());
            let Some((_, root)) = parent else { continue };
            let counts = line.counts(*root, record.run, start, self.replays)?;
            let named_by = line.named.filter(|named| named.checkpoint == record.point.checkpoint).map(|named| named.by);
            if counts || named_by.is_some() {
                return Ok(Some(Pin { record, named_by }));
            }
        }
        Ok(None)
    }
}

/// Returns the checkpoint of the outermost graph that the task of a context runs on.
fn outermost_checkpoint(context: &Context) -> Option<CheckpointId> {
    let parts = context.parts();
    let root = parts.around.as_ref().and_then(|around| around.parents.iter().find(|(of, _)| of.is_root()));
    root.map(|(_, checkpoint)| *checkpoint).or(parts.checkpoint.filter(|_| parts.namespace.is_root()))
}

/// Refuses to go on for a task that another run has ended meanwhile: what the graph does now is for the next one.
fn refuse_if_ended(
    thread: &Thread,
    found: CheckpointId,
    context: &Context,
    around: CheckpointId,
    held: &Held,
) -> Result<(), Error> {
    let namespace = context.graph_namespace();
    let at = thread.with_namespace(namespace.clone()).point(around);
    let writes = held.writes(thread, &at)?;
    let ended = |task| writes.iter().any(|write| write.task == task && write.index >= 0);
    if !context.with_callers().map(Context::task).any(ended) {
        return Ok(());
    }
    Err(StoreError::Conflict {
        thread: thread.id().clone(),
        namespace: namespace.clone(),
        expected: Some(around),
        found: Some(found),
    }
    .into())
}

/// The checkpoint of a subgraph that a lineage of the outermost graph pins.
struct Pin {
    record: CheckpointRecord,
    /// The fork of the outermost graph that names the checkpoint, if no checkpoint of the subgraph names the fork.
    named_by: Option<CheckpointId>,
}

/// A checkpoint of a subgraph that a fork of the outermost graph began with.
#[derive(Clone, Copy)]
struct Named {
    checkpoint: CheckpointId,
    by: CheckpointId,
}

/// A lineage of the outermost graph, read as far back as it is asked for.
struct Line<'a> {
    /// The namespace of the subgraph.
    thread: &'a Thread,
    next: Option<CheckpointRecord>,
    /// The checkpoints that were read, newest first.
    seen: Vec<Ancestor>,
    /// Whether checkpoints of subgraphs that were made at the next one count.
    counts: bool,
    /// The checkpoint of the subgraph that the newest fork of the lineage names.
    named: Option<Named>,
}

/// A checkpoint of a lineage.
struct Ancestor {
    id: CheckpointId,
    ordinal: u64,
    run: Option<RunId>,
    /// Whether checkpoints of subgraphs that were made at it belong to the lineage.
    counts: bool,
}

impl Line<'_> {
    /// Returns whether what a run made in a subgraph while the outermost graph stood at `root` belongs to the lineage.
    fn counts(
        &mut self,
        root: CheckpointId,
        run: Option<RunId>,
        start: &CheckpointRef,
        replays: bool,
    ) -> Result<bool, Error> {
        let known = |line: &Self| line.seen.iter().find(|seen| seen.id == root).map(|seen| seen.counts);
        if let Some(counts) = known(self) {
            return Ok(counts);
        }
        let backend = self.thread.store().backend();
        let wanted =
            backend.checkpoint(&CheckpointRef { checkpoint: root, ..start.clone() })?.map(|record| record.ordinal);
        let before = |seen: &Ancestor| match wanted {
            Some(wanted) => seen.ordinal <= wanted,
            None => seen.id < root,
        };
        while !self.seen.last().is_some_and(before)
            && let Some(record) = self.next.take()
        {
            self.read(record, replays)?;
        }
        if wanted.is_none() {
            // A run with durability `exit` stores its last checkpoint alone. The steps before it led there.
            return Ok(self.seen.iter().any(|seen| seen.id > root && seen.run.is_some() && seen.run == run));
        }
        Ok(known(self).unwrap_or(false))
    }

    /// Adds a checkpoint to the lineage, and reads its parent.
    fn read(&mut self, record: CheckpointRecord, replays: bool) -> Result<(), Error> {
        let (id, ordinal, run) = (record.point.checkpoint, record.ordinal, record.run);
        let counts = self.counts;
        self.seen.push(Ancestor { id, ordinal, run, counts });
        let Some(parent) = record.parent else { return Ok(()) };
        self.next = self.thread.store().backend().checkpoint(&CheckpointRef { checkpoint: parent, ..record.point })?;
        // The superstep of a checkpoint that is forked, or left for another branch, is made again: what subgraphs did in
        // it does not count, unless the fork names it.
        let is_fork = record.source == Source::Fork;
        let names = record.parents.iter().find(|(namespace, _)| namespace == self.thread.namespace());
        let names = names.filter(|_| is_fork && counts);
        if let (Some((_, checkpoint)), None) = (names, self.named) {
            self.named = Some(Named { checkpoint: *checkpoint, by: id });
        }
        let anew = is_fork
            || (replays && self.seen.len() == 1 && record.source == Source::Update)
            || self.next.as_ref().is_some_and(|parent| parent.branch != record.branch);
        self.counts = !anew;
        Ok(())
    }
}
