//! Looking at the state of a thread through its graph.

use annals::store::log::LogExt;
use annals_runs::ThreadRuns;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{CheckpointId, Map, Namespace, TaskId, Timestamp};
use crate::drive::io::pool::unblock;
use crate::error::Error;
use crate::exec::{Head, Order, PendingWrites, RunError, TaskStatus, interrupts_of, plan, stored_state};
use crate::graph::{CompiledGraph, Graph, Persistence};
use crate::history::{History, HistoryFilter, PartialMessage, Snapshot, Thread};
use crate::state::StateRef;
use crate::store::record::{CheckpointRecord, TaskKind};
use crate::store::{CheckpointRef, Source, Store};
use crate::task::{Interrupt, task_namespace, without_tasks};

use super::builder::Run;
use super::load::{LoadedHead, keep, load};
use super::outcome::typed;
use super::target::{RunOn, RunTarget};

/// The state of a thread at one checkpoint, in the graph's own types.
///
/// At the head it is live: results of tasks that have ended are counted in `next`. At an older checkpoint it is the
/// record: the state at the start of the superstep, with all tasks that were due.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StateSnapshot<S> {
    /// The state.
    pub values: Arc<S>,
    /// The nodes that are due, one name for each task.
    pub next: Vec<String>,
    /// The tasks that are due, with their stored results, errors and interrupts.
    pub tasks: Vec<TaskView>,
    /// The open interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The namespace of the graph in its thread.
    pub namespace: Namespace,
    /// The namespaces and checkpoints of the parent graphs, outermost first, if the graph is a subgraph.
    pub parents: Arc<[(Namespace, CheckpointId)]>,
    /// The checkpoint; `None` on a thread without one.
    pub checkpoint: Option<CheckpointId>,
    /// The checkpoint it builds on.
    pub parent: Option<CheckpointId>,
    /// The source of the checkpoint.
    pub source: Option<Source>,
    /// The number of the superstep.
    pub step: Option<i64>,
    /// The timestamp of the checkpoint.
    pub created_at: Option<Timestamp>,
    /// Further metadata: the text of a JSON object.
    pub metadata: Option<String>,
}

/// A task as a snapshot shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskView {
    /// Its id.
    pub id: TaskId,
    /// Its node.
    pub name: String,
    /// The reason it is due: its triggers, or a send. With the name this is its path.
    pub kind: TaskKind,
    /// Its writes by channel, if it has ended; several writes to one channel are `{"$writes": [..]}`.
    pub result: Option<Map>,
    /// The message of its error, if it failed.
    pub error: Option<String>,
    /// The interrupts it raised.
    pub interrupts: Vec<Interrupt>,
    /// A message that it streamed, as far as it was persisted before the task was stopped.
    pub partial: Option<PartialMessage>,
    /// The state of the subgraph, if the node is a graph.
    pub state: Option<TaskState>,
}

/// The state of the subgraph that a task runs, or its namespace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TaskState {
    /// Its namespace, in which it has checkpoints once it has begun: see [`Thread::in_namespace`].
    Namespace(Namespace),
    /// Its state, by the names of its channels. Shown by [`CompiledGraph::state_with_subgraphs`].
    Snapshot(Box<StateSnapshot<Map>>),
}

impl TaskState {
    /// Returns the namespace.
    pub fn namespace(&self) -> &Namespace {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::Snapshot(snapshot) => &snapshot.namespace,
        }
    }
}

/// The state that a run begins on, see [`Run::load_state`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeadState<S> {
    /// The state.
    pub values: Arc<S>,
    /// The nodes that are due, one name for each task.
    pub next: Vec<String>,
    /// The open interrupts.
    pub interrupts: Vec<Interrupt>,
}

impl<S: Clone + Send + Sync + 'static> Run<'_, S> {
    /// Returns the state that the run begins on, for an input that depends on it. The run begins on this state: if
    /// another writer moves the head of the thread before the first commit of the run, that commit is a conflict. The
    /// head is read once.
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Sum { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Sum>::new()
    ///     .node("add", |s: &Sum| Ok(Sum::update().n(s.n + 1)))
    ///     .edge(START, "add")
    ///     .compile()?;
    /// let thread = Store::memory().thread("sum")?;
    /// graph.invoke(&thread, Sum::update().n(1))?;
    ///
    /// let mut run = graph.run(&thread);
    /// let before = run.load_state()?;
    /// assert_eq!(run.invoke(Sum::update().n(10 * before.values.n))?.state().n, 21);
    ///
    /// let mut late = graph.run(&thread);
    /// late.load_state()?;
    /// thread.update(Sum::update().n(0))?;
    /// assert!(late.invoke(Sum::update().n(1)).unwrap_err().is_conflict());
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_state(&mut self) -> Result<HeadState<S>, Error> {
        let (head, state) = load_head(&self.graph.graph, self.target.clone())?;
        self.settings.loaded = head;
        Ok(state)
    }

    /// Returns the state that the run begins on as [`Run::load_state`], without blocking.
    ///
    /// # Errors
    /// As [`Run::load_state`].
    pub async fn aload_state(&mut self) -> Result<HeadState<S>, Error> {
        let (graph, target) = (Arc::clone(&self.graph.graph), self.target.clone());
        let loaded = match target.thread.as_ref().map(|thread| thread.store().clone()) {
            Some(store) => unblock(&store, move || load_head(&graph, target)).await,
            None => load_head(&graph, target),
        };
        let (head, state) = loaded?;
        self.settings.loaded = head;
        Ok(state)
    }
}

/// Loads the head that a run on a target begins on.
fn load_head<S: Send + Sync + 'static>(
    graph: &Arc<Graph>,
    target: RunTarget,
) -> Result<(LoadedHead, HeadState<S>), Error> {
    let target = target.outermost()?;
    let thread = target.thread.ok_or(RunError::NoThread)?;
    let loaded = load(graph, &thread, target.at.as_ref())?;
    let live = target.at.is_none() && !loaded.is_continued;
    let Erased { snapshot, state, .. } = snapshot(graph, &thread, &loaded.head, None, live, false)?;
    let StateSnapshot { next, interrupts, .. } = snapshot;
    Ok((LoadedHead::new(graph, &thread, loaded), HeadState { values: typed(&state), next, interrupts }))
}

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Returns the state of a thread, or at one of its checkpoints (`&Thread` or `&Snapshot`). Its tasks are the nodes
    /// that are due; the interrupts of the tasks that these have started are in
    /// [`Thread::open_interrupts`](annals_runs::ThreadRuns::open_interrupts).
    ///
    /// # Errors
    /// [`RunError::NoThread`] without a thread; the store's errors; [`RunError::State`] if a stored value does not fit.
    pub fn get_state(&self, at: impl RunOn) -> Result<StateSnapshot<S>, Error> {
        self.state_of(at, false)
    }

    /// Returns the state of a thread with those of the subgraphs of its tasks, at all depths.
    ///
    /// The states of subgraphs are the newest ones of the tasks, also at an old checkpoint.
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state`].
    #[doc(alias = "subgraphs")]
    pub fn state_with_subgraphs(&self, at: impl RunOn) -> Result<StateSnapshot<S>, Error> {
        self.state_of(at, true)
    }

    fn state_of(&self, at: impl RunOn, subgraphs: bool) -> Result<StateSnapshot<S>, Error> {
        let target = at.target();
        let thread = shown(&self.graph, target.thread.ok_or(RunError::NoThread)?)?;
        thread.store().flush_abandoned();
        state_at(&self.graph, &thread, target.at.as_ref(), subgraphs)?.map(|state, _| Ok(typed::<S>(state)))
    }

    /// Waits until the run of a thread has ended, in this process or in another one, and returns its state; the result
    /// of an entrypoint is `values.value()`. Returns also when the run has failed (`tasks` has the errors), was
    /// cancelled, or waits for a resume value (`interrupts` has the questions). `None` if none of it is so when the
    /// timeout has passed.
    ///
    /// # Errors
    /// As [`wait_for_end`](annals_runs::ThreadRuns::wait_for_end) and [`CompiledGraph::get_state`].
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::Worker;
    ///
    /// # fn main() -> Result<()> {
    /// let double = Entrypoint::new("double", |n: i64, _: &Context| Ok(2 * n)).compile()?;
    /// let store = Store::memory();
    /// let thread = store.thread("order-17")?;
    /// double.enqueue(&thread, 21)?;
    /// assert!(double.result(&thread, Duration::from_millis(1))?.is_none(), "no worker runs it");
    ///
    /// Worker::new(&store).register(&double).run_until_idle()?;
    /// let ended = double.result(&thread, Duration::from_secs(5))?.expect("the worker is done");
    /// assert_eq!(ended.values.value(), Some(&42));
    /// # Ok(())
    /// # }
    /// ```
    pub fn result(&self, thread: &Thread, timeout: Duration) -> Result<Option<StateSnapshot<S>>, Error> {
        match thread.wait_for_end(timeout)? {
            Some(_) => self.get_state(thread).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the states of a thread, newest first, each loaded when it is asked for; at a checkpoint, that one alone.
    /// To list a history without its states use [`Thread::history`].
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state`], here and for each item.
    pub fn get_state_history(&self, on: impl RunOn) -> Result<StateHistory<S>, Error> {
        self.state_history(on, HistoryFilter::new())
    }

    /// Returns some of the states of a thread, newest first. The states of checkpoints that are not shown are not read.
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state_history`].
    pub fn state_history(&self, on: impl RunOn, filter: HistoryFilter) -> Result<StateHistory<S>, Error> {
        let target = on.target();
        let thread = shown(&self.graph, target.thread.ok_or(RunError::NoThread)?)?;
        let filter = match target.at {
            Some(point) => filter.only(point.checkpoint),
            None => filter,
        };
        let history = thread.history_with(filter)?;
        Ok(StateHistory { graph: self.clone(), thread, history })
    }
}

/// Returns the handle to the namespace in which a graph keeps what that of `thread` names.
///
/// A graph whose state lasts as long as its thread has one history, whatever the task.
pub(super) fn shown(graph: &Graph, thread: Thread) -> Result<Thread, Error> {
    if thread.namespace().is_root() || graph.persistence != Persistence::PerThread {
        return Ok(thread);
    }
    let namespace = Namespace::new(without_tasks(thread.namespace().as_str()))?;
    Ok(thread.with_namespace(namespace))
}

/// A snapshot of a graph whose types are hidden, with the fields that hold something.
struct Erased {
    snapshot: StateSnapshot<()>,
    state: StateRef,
    present: Vec<bool>,
}

impl Erased {
    /// Gives the values their type back.
    fn map<S>(
        self,
        values: impl FnOnce(&StateRef, &[bool]) -> Result<Arc<S>, Error>,
    ) -> Result<StateSnapshot<S>, Error> {
        let StateSnapshot {
            values: _,
            next,
            tasks,
            interrupts,
            namespace,
            parents,
            checkpoint,
            parent,
            source,
            step,
            created_at,
            metadata,
        } = self.snapshot;
        let values = values(&self.state, &self.present)?;
        Ok(StateSnapshot {
            values,
            next,
            tasks,
            interrupts,
            namespace,
            parents,
            checkpoint,
            parent,
            source,
            step,
            created_at,
            metadata,
        })
    }
}

/// Returns the state of a namespace: the present one, or that of one of its checkpoints.
fn state_at(graph: &Graph, thread: &Thread, at: Option<&CheckpointRef>, subgraphs: bool) -> Result<Erased, Error> {
    let loaded = load(graph, thread, at)?;
    let record = match loaded.head.checkpoint {
        Some(checkpoint) => thread.store().backend().checkpoint(&thread.point(checkpoint.id))?,
        None => None,
    };
    let live = at.is_none() && !loaded.is_continued;
    let snapshot = snapshot(graph, thread, &loaded.head, record.as_ref(), live, subgraphs)?;
    if at.is_none() {
        keep(graph, thread, loaded.head);
    }
    Ok(snapshot)
}

fn snapshot(
    graph: &Graph,
    thread: &Thread,
    head: &Head,
    record: Option<&CheckpointRecord>,
    live: bool,
    subgraphs: bool,
) -> Result<Erased, Error> {
    let namespace = thread.namespace();
    let mut snapshot = StateSnapshot {
        values: Arc::new(()),
        next: Vec::new(),
        tasks: Vec::new(),
        interrupts: Vec::new(),
        namespace: namespace.clone(),
        parents: record.map_or_else(|| [].into(), |record| Arc::clone(&record.parents)),
        checkpoint: head.checkpoint.map(|checkpoint| checkpoint.id),
        parent: record.and_then(|record| record.parent),
        source: head.checkpoint.map(|checkpoint| checkpoint.source),
        step: head.checkpoint.map(|checkpoint| checkpoint.step),
        created_at: record.map(|record| record.created_at),
        metadata: record.and_then(|record| record.metadata.clone()),
    };
    let Some(checkpoint) = head.checkpoint else {
        return Ok(Erased { snapshot, state: Arc::clone(&head.state), present: vec![false; graph.layout.len()] });
    };
    let tasks = plan(graph, head, checkpoint.id, namespace, checkpoint.step + 1, Order::Listed);
    let (state, present) = stored_state(graph, head, &tasks, live)?;
    for task in tasks {
        debug_assert!(matches!(task.status, TaskStatus::Due));
        let pending = head.pending_of(task.id);
        let finished = pending.is_some_and(|pending| pending.is_finished());
        // A stored checkpoint shows the interrupts that were raised; at the head, an ended task has no open ones.
        let asked = pending.filter(|_| !(live && finished));
        let interrupts = asked.map(interrupts_of).unwrap_or_default();
        let name = task.name(graph).to_owned();
        let kind = task.record(graph).kind;
        let result = match pending.filter(|_| finished) {
            Some(pending) => Some(crate::exec::result_of(graph, pending)?),
            None => None,
        };
        let error = pending.and_then(crate::exec::shown_error_of);
        let partial = match pending.filter(|_| !finished) {
            Some(pending) => partial_of(pending)?,
            None => None,
        };
        if !(live && finished) {
            snapshot.next.push(name.clone());
            snapshot.interrupts.extend(interrupts.iter().cloned());
        }
        let child = task.node.and_then(|node| graph.nodes[node].stored_child());
        let state = match child {
            Some(child) => Some(task_state(child, thread, &task_namespace(namespace, &name, task.id), subgraphs)?),
            None => None,
        };
        snapshot.tasks.push(TaskView { id: task.id, name, kind, result, error, interrupts, partial, state });
    }
    Ok(Erased { snapshot, state, present })
}

/// Returns the message that a task had streamed when it was stopped.
pub(super) fn partial_of(pending: &PendingWrites) -> Result<Option<PartialMessage>, Error> {
    let mut partials = pending.writes.iter().map(|write| PartialMessage::of_write(write.index, &write.value));
    Ok(partials.find_map(Result::transpose).transpose()?)
}

/// Returns where the graph of a task stands.
fn task_state(child: &Graph, thread: &Thread, path: &str, subgraphs: bool) -> Result<TaskState, Error> {
    let namespace = Namespace::new(path)?;
    if !subgraphs {
        return Ok(TaskState::Namespace(namespace));
    }
    let thread = shown(child, thread.with_namespace(namespace))?;
    let erased = state_at(child, &thread, None, true)?;
    let snapshot = erased.map(|state, present| Ok(Arc::new(values_of(child, state, present)?)))?;
    Ok(TaskState::Snapshot(Box::new(snapshot)))
}

fn values_of(graph: &Graph, state: &StateRef, present: &[bool]) -> Result<Map, RunError> {
    let layout = &*graph.layout;
    let held = (0..layout.len()).filter(|field| present[*field]);
    held.map(|field| Ok((layout.name(field).to_string(), layout.to_value(state, field)?))).collect()
}

/// The states of a thread, newest first, each loaded when it is asked for.
pub struct StateHistory<S> {
    graph: CompiledGraph<S>,
    thread: Thread,
    history: History,
}

impl<S: Clone + Send + Sync + 'static> Iterator for StateHistory<S> {
    type Item = Result<StateSnapshot<S>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let snapshot = match self.history.next()? {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(Err(error.into())),
        };
        Some(self.state(&snapshot))
    }
}

impl<S: Clone + Send + Sync + 'static> StateHistory<S> {
    /// Returns the store of the thread.
    pub(super) fn store(&self) -> &Store {
        self.thread.store()
    }

    fn state(&self, at: &Snapshot) -> Result<StateSnapshot<S>, Error> {
        let graph = &*self.graph.graph;
        let loaded = load(graph, &self.thread, Some(at.point()))?;
        let erased = snapshot(graph, &self.thread, &loaded.head, Some(at.record()), false, false)?;
        erased.map(|state, _| Ok(typed::<S>(state)))
    }
}

impl<S> std::fmt::Debug for StateHistory<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateHistory").field("thread", &self.thread).finish_non_exhaustive()
    }
}
