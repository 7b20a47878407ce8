//! At which of its checkpoints a graph inside a run begins.
//!
//! A graph inside a task goes on from the checkpoint that the head of the graph around it pins: the newest one that was
//! made while the outermost graph stood on the lineage of that head. So an abandoned branch of the outermost graph does
//! not show inside, and going back in time takes the graphs inside along.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::base::{CheckpointId, Namespace};
use crate::error::Error;
use crate::graph::{Context, Persistence};
use crate::history::Thread;
use crate::store::{CheckpointRecord, Point, Source, StoreError};

use super::held::Held;

/// Where the graphs inside a run stand when it begins.
#[derive(Default)]
pub(super) struct Children {
    /// The checkpoint of the outermost graph that the run began on.
    start: Option<Point>,
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
    pub(super) at: Option<Point>,
    /// Whether the caller named that checkpoint.
    pub(super) named: bool,
    /// Whether it goes on where it stopped, and takes no input.
    pub(super) resumes: bool,
}

impl Children {
    pub(super) fn new(start: Option<Point>, replays: bool, named: &[(Namespace, CheckpointId)]) -> Self {
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
        let stored = |record: CheckpointRecord| (record.point, record.parents);
        let made = match held.newest(thread) {
            Some((newest, parents)) => Some((thread.point(newest), parents)),
            None if first => self.pinned(thread)?.map(stored),
            None => backend.checkpoint(&thread.point(newest))?.map(stored),
        };
        let Some((at, parents)) = made else { return Ok(Begins { at: None, named: false, resumes: false }) };
        // Another task of the same node may have left it where it is.
        let (namespace, checkpoint) = (&context.parts().namespace, context.parts().checkpoint);
        let of_task = parents.iter().any(|(around, at)| around == namespace && Some(*at) == checkpoint);
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
    fn inherited(&self, thread: &Thread) -> Result<Option<Point>, Error> {
        let (store, backend) = (thread.store(), thread.store().backend());
        let mut at = self.start.clone();
        while let Some(point) = at {
            let Some(record) = backend.checkpoint(&point)? else { break };
            if let Some(origin) = record.forked_from {
                let before = store.thread(origin.thread.as_str())?.with_namespace(thread.namespace().clone());
                // The superstep that was due there is made again here.
                let there = Self::new(Some(origin), true, &[]);
                return match there.pinned(&before)? {
                    Some(record) => Ok(Some(record.point)),
                    None => there.inherited(&before),
                };
            }
            at = record.parent.map(|parent| Point { checkpoint: parent, ..point });
        }
        Ok(None)
    }

    /// Returns the newest checkpoint that belongs to the lineage the run began on.
    fn pinned(&self, thread: &Thread) -> Result<Option<CheckpointRecord>, Error> {
        let Some(start) = &self.start else { return Ok(None) };
        let next = thread.store().backend().checkpoint(start)?;
        let mut line = Line { thread, next, seen: Vec::new(), counts: !self.replays };
        for snapshot in thread.history()? {
            let record = snapshot?.record().clone();
            let around = record.parents.iter().find(|(namespace, _)| namespace.is_root());
            if let Some((_, root)) = around
                && line.holds(*root, start, self.replays)?
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
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

/// A lineage of the outermost graph, read as far back as it is asked for.
struct Line<'a> {
    thread: &'a Thread,
    next: Option<CheckpointRecord>,
    /// What was read, newest first: the checkpoint, how far it is from the first one, and whether what graphs inside
    /// made at it belongs to the lineage.
    seen: Vec<(CheckpointId, u64, bool)>,
    /// Whether the next one counts.
    counts: bool,
}

impl Line<'_> {
    /// Returns whether what was made inside while the outermost graph stood at `root` belongs to the lineage.
    fn holds(&mut self, root: CheckpointId, start: &Point, replays: bool) -> Result<bool, Error> {
        let known = |line: &Self| line.seen.iter().find(|(id, ..)| *id == root).map(|(_, _, counts)| *counts);
        if let Some(counts) = known(self) {
            return Ok(counts);
        }
        let backend = self.thread.store().backend();
        let wanted = backend.checkpoint(&Point { checkpoint: root, ..start.clone() })?.map(|record| record.ordinal);
        let before = |(id, ordinal, _): &(CheckpointId, u64, bool)| match wanted {
            Some(wanted) => *ordinal <= wanted,
            None => *id < root,
        };
        while !self.seen.last().is_some_and(before)
            && let Some(record) = self.next.take()
        {
            self.seen.push((record.point.checkpoint, record.ordinal, self.counts));
            let Some(parent) = record.parent else { break };
            self.next = backend.checkpoint(&Point { checkpoint: parent, ..record.point })?;
            // What a fork or another branch began anew was not carried on from what its parent did.
            let anew = record.source == Source::Fork
                || (replays && self.seen.len() == 1 && record.source == Source::Update)
                || self.next.as_ref().is_some_and(|parent| parent.branch != record.branch);
            self.counts = !anew;
        }
        if wanted.is_none() {
            // It was made by a run that stored only its last checkpoint: the one that came next.
            return Ok(self.seen.iter().rfind(|(id, ..)| *id > root).is_some_and(|(_, _, counts)| *counts));
        }
        Ok(known(self).unwrap_or(false))
    }
}
