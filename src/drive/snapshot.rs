//! Looking at the state of a thread through its graph.

use std::sync::Arc;

use crate::base::{CheckpointId, Map, Namespace, TaskId, Timestamp, Value};
use crate::error::Error;
use crate::exec::{Head, Order, RunError, TaskStatus, interrupts_of, plan, stored_state};
use crate::graph::{CompiledGraph, Interrupt};
use crate::history::{History, HistoryFilter, Thread};
use crate::store::{CheckpointRecord, Source, TaskKind};

use super::load::{keep, load};
use super::run::{RunOn, typed};

/// The state of a thread at one checkpoint, in the graph's own types.
///
/// At the head it is live: results of tasks that have ended are counted in `next`. At an older checkpoint it is the
/// record: the state at the start of the superstep, with all tasks that were due.
#[derive(Clone, Debug)]
pub struct StateSnapshot<S> {
    /// The state.
    pub values: Arc<S>,
    /// The nodes that are due, one name for each task.
    pub next: Vec<String>,
    /// The tasks that are due, and what is known of them.
    pub tasks: Vec<TaskView>,
    /// The open questions.
    pub interrupts: Vec<Interrupt>,
    /// The checkpoint; `None` on a thread without one.
    pub checkpoint: Option<CheckpointId>,
    /// The checkpoint it builds on.
    pub parent: Option<CheckpointId>,
    /// What made it.
    pub source: Option<Source>,
    /// The number of the superstep.
    pub step: Option<i64>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Further metadata: the text of a JSON object.
    pub metadata: Option<String>,
}

/// A task as a snapshot shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// Its id.
    pub id: TaskId,
    /// Its node.
    pub name: String,
    /// What made it due: its triggers, or a send. With the name this is its path.
    pub kind: TaskKind,
    /// What it wrote by channel, if it has ended; of a channel that it wrote several times `{"$writes": [..]}`.
    pub result: Option<Map>,
    /// The message of its error, if it failed.
    pub error: Option<String>,
    /// The questions it asked.
    pub interrupts: Vec<Interrupt>,
}

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Returns the state of a thread, or at one of its checkpoints (`&Thread` or `&Snapshot`).
    ///
    /// # Errors
    /// [`RunError::NoStore`] without a store; the store's errors; [`RunError::State`] if a stored value does not fit.
    pub fn get_state(&self, at: impl RunOn) -> Result<StateSnapshot<S>, Error> {
        let place = at.place();
        let thread = place.thread.ok_or(RunError::NoStore)?;
        let loaded = load(&self.graph, &thread, &Namespace::root(), place.at.as_ref())?;
        let live = place.at.is_none();
        let record = match loaded.head.checkpoint {
            Some(checkpoint) => thread.store().backend().checkpoint(&thread.point(checkpoint.id))?,
            None => None,
        };
        let snapshot = self.snapshot(&loaded.head, record.as_ref(), live)?;
        if live {
            keep(&self.graph, &thread, &Namespace::root(), loaded.head);
        }
        Ok(snapshot)
    }

    /// Returns the states of a thread, newest first, each loaded when it is asked for; at a checkpoint, that one alone.
    /// To list a history without its states use [`Thread::history`].
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state`], here and for each item.
    pub fn get_state_history(&self, on: impl RunOn) -> Result<StateHistory<'_, S>, Error> {
        self.state_history(on, HistoryFilter::new())
    }

    /// Returns some of the states of a thread, newest first. The states of checkpoints that are not shown are not read.
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state_history`].
    pub fn state_history(&self, on: impl RunOn, filter: HistoryFilter) -> Result<StateHistory<'_, S>, Error> {
        let place = on.place();
        let thread = place.thread.ok_or(RunError::NoStore)?;
        let filter = match place.at {
            Some(point) => filter.only(point.checkpoint),
            None => filter,
        };
        let history = thread.history_with(filter)?;
        Ok(StateHistory { graph: self, thread, history })
    }

    fn snapshot(&self, head: &Head, record: Option<&CheckpointRecord>, live: bool) -> Result<StateSnapshot<S>, Error> {
        let graph = &*self.graph;
        let mut snapshot = StateSnapshot {
            values: typed::<S>(&head.state),
            next: Vec::new(),
            tasks: Vec::new(),
            interrupts: Vec::new(),
            checkpoint: head.checkpoint.map(|checkpoint| checkpoint.id),
            parent: record.and_then(|record| record.parent),
            source: head.checkpoint.map(|checkpoint| checkpoint.source),
            step: head.checkpoint.map(|checkpoint| checkpoint.step),
            created_at: record.map(|record| record.created_at),
            metadata: record.and_then(|record| record.metadata.clone()),
        };
        let Some(checkpoint) = head.checkpoint else { return Ok(snapshot) };
        let root = crate::base::Namespace::root();
        let tasks = plan(graph, head, checkpoint.id, &root, checkpoint.step + 1, Order::Listed);
        snapshot.values = typed::<S>(&stored_state(graph, head, &tasks, live)?);
        for task in tasks {
            debug_assert!(matches!(task.status, TaskStatus::Due));
            let pending = head.pending_of(task.id);
            let finished = pending.is_some_and(|pending| pending.is_finished());
            // A record keeps the questions that were asked; live, an ended task asks nothing any more.
            let asked = pending.filter(|_| !(live && finished));
            let interrupts = asked.map(interrupts_of).unwrap_or_default();
            let name = task.name(graph).to_owned();
            let kind = task.record(graph).kind;
            let result = match pending.filter(|_| finished) {
                Some(pending) => Some(crate::exec::result_of(graph, pending)?),
                None => None,
            };
            let error = pending.and_then(crate::exec::error_of);
            if !(live && finished) {
                snapshot.next.push(name.clone());
                snapshot.interrupts.extend(interrupts.iter().cloned());
            }
            snapshot.tasks.push(TaskView { id: task.id, name, kind, result, error, interrupts });
        }
        Ok(snapshot)
    }
}

/// The states of a thread, newest first, each loaded when it is asked for.
pub struct StateHistory<'a, S> {
    graph: &'a CompiledGraph<S>,
    thread: Thread,
    history: History,
}

impl<S: Clone + Send + Sync + 'static> Iterator for StateHistory<'_, S> {
    type Item = Result<StateSnapshot<S>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let snapshot = match self.history.next()? {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(Err(error.into())),
        };
        let loaded = load(&self.graph.graph, &self.thread, &Namespace::root(), Some(snapshot.point()));
        Some(loaded.and_then(|loaded| self.graph.snapshot(&loaded.head, Some(snapshot.record()), false)))
    }
}

impl<S> std::fmt::Debug for StateHistory<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateHistory").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl<S> StateSnapshot<S> {
    /// Returns the metadata member `name`.
    pub fn metadata_of(&self, name: &str) -> Option<Value> {
        let json: serde_json::Value = serde_json::from_str(self.metadata.as_deref()?).ok()?;
        json.get(name).cloned().map(Value::from)
    }
}
