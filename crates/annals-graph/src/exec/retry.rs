//! Handles the failure of a task: another attempt, the node that handles errors, or the end of the run.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{CheckpointId, Map, Namespace, TaskId, Timestamp, Value};
use crate::graph::{Graph, RetryPolicy, TimeoutPolicy};
use crate::hash;
use crate::state::StateError;
use crate::store::batch::{NewWrite, NewWrites};
use crate::task::{Attempt, Attempts, CallBegan, Context, EndedCalls, Interrupt, NodeError, task_namespace};

use super::attempts::{self, attempts_of};
use super::begin::is_asking;
use super::cache::CacheEntry;
use super::effect::Effect;
use super::error::{EditProblem, RunError};
use super::exit::Saving;
use super::head::PendingWrites;
use super::load::{asleep_of, error_message_of, error_of, error_source_of, resume_values_of};
use super::machine::Machine;
use super::save::{cleared_interrupts, earlier_error};
use super::task::{StepTask, TaskJob, TaskStatus, TaskWrite};

/// The state that only some tasks need: those with retries, a cached result, a timeout, or a failure to handle.
#[derive(Default)]
pub(crate) struct Extra {
    /// The failed attempts, those of earlier runs included.
    pub(super) attempts: Attempts,
    /// The start of the first attempt.
    pub(super) began: Option<Timestamp>,
    /// The context of the present attempt.
    pub(super) context: Option<Context>,
    /// The starts of the graphs that the attempts have called.
    pub(super) begun: Vec<(usize, CallBegan)>,
    /// The calls that have ended in the attempts so far.
    pub(super) ended: Option<EndedCalls>,
    /// The present attempt, if it followed another one in this run.
    pub(super) attempt: Option<Attempt>,
    /// The versions of parts of the program that it began with, if another attempt in this run asked for them.
    pub(super) versions: Option<Map>,
    /// The cache entry of its result.
    pub(super) cache: Option<CacheEntry>,
    /// The failure that it handles.
    pub(super) handles: Option<Handles>,
    /// The time limits of an attempt, in place of those of its node.
    pub(super) timeout: Option<TimeoutPolicy>,
    /// The index of its first write: after the writes that an earlier run stored.
    pub(super) first_index: i32,
}

/// The failure that a task handles.
pub(crate) struct Handles {
    /// The node that failed.
    pub(super) node: usize,
    /// Its task.
    pub(super) task: TaskId,
    pub(super) error: Arc<NodeError>,
}

impl Machine {
    /// Decides what follows the failure of a task.
    pub(super) fn failed(&mut self, slot: usize, error: RunError, writes: Vec<TaskWrite>, resume_values: Vec<Value>) {
        let goes_on = self.env.cancelled.is_none() && self.late().is_none();
        if goes_on && self.tries_again(slot, &error) {
            return;
        }
        if goes_on {
            let now = self.now;
            let extra = self.planning.tasks[slot].extra.as_deref_mut();
            extra.into_iter().for_each(|extra| attempts::end(&mut extra.attempts, &error, now, now));
        }
        // Keeps the resume values so that the next attempt does not interrupt again.
        self.planning.tasks[slot].asked = !resume_values.is_empty();
        self.planning.tasks[slot].resume_values = resume_values;
        let handler = self.planning.tasks[slot].node.and_then(|node| Some((node, self.graph.nodes[node].handler?)));
        let Some((node, handler)) = handler.filter(|_| goes_on) else {
            self.planning.tasks[slot].status = TaskStatus::Failed(error, writes);
            self.show_done(slot, false);
            return;
        };
        let message = error.to_string();
        let error = node_error(self.graph.nodes[node].name.to_string(), error);
        self.planning.tasks[slot].status = TaskStatus::Handled { message, own: error.message.clone(), writes };
        self.show_done(slot, false);
        // The failure is stored before its handler starts.
        if self.records() && self.commits.saving == Saving::Steps {
            let writes = self.task_writes(slot).into_iter().collect();
            self.commit(Vec::new(), writes);
        }
        self.handle_failure(slot, node, handler, error);
        let slot = self.planning.tasks.len() - 1;
        let job = self.job(slot);
        self.planning.tasks[slot].status = TaskStatus::Running;
        self.show_read(slot);
        self.effects.push_back(Effect::Start(Box::new(job)));
    }

    /// Runs a task again if a policy says so.
    fn tries_again(&mut self, slot: usize, error: &RunError) -> bool {
        let Some(node) = self.planning.tasks[slot].node else { return false };
        let graph = Arc::clone(&self.graph);
        let policies = graph.nodes[node].settings.retry.as_deref().unwrap_or_default();
        let Some(policy) = policies.iter().find(|policy| retries(policy, error)) else { return false };
        let (now, task) = (self.now, &mut self.planning.tasks[slot]);
        let Some(extra) = task.extra.as_deref_mut() else { return false };
        let failed = extra.attempts.failed + 1;
        if failed >= policy.max_attempts {
            return false;
        }
        attempts::note(&mut extra.attempts, error, extra.began.unwrap_or(now), now);
        if let Some(context) = extra.context.take() {
            // Keeps the resume values so that the next attempt does not interrupt again.
            let mut asked = context.asked().lock();
            extra.begun = std::mem::take(&mut asked.begun);
            extra.ended.clone_from(&context.calls().ended);
            extra.attempt = Some(context.calls().following(policies));
            extra.versions = Some(context.calls().versions.lock().clone());
            if asked.took {
                task.resume_values = std::mem::take(&mut asked.resume_values);
                task.resumed = true;
            }
        }
        let pause = policy.pause(failed, || self.ids.random() as f64 / u64::MAX as f64);
        self.start_again(slot, pause);
        true
    }

    /// Starts the next attempt of a task after a pause. A task of a run that stores its steps sleeps instead if the
    /// pause is long.
    fn start_again(&mut self, slot: usize, pause: Duration) {
        let at = self.now.saturating_add(pause);
        let stores = self.commits.stores_steps() && self.head.checkpoint.is_some();
        if let Some(extra) = self.planning.tasks[slot].extra.as_deref_mut() {
            attempts::follow(&mut extra.attempts, extra.attempt.unwrap_or_default(), at);
        }
        if stores && attempts::is_long(pause) {
            let interrupt = attempts::attempt_interrupt(&self.namespace_of(slot), at);
            self.planning.tasks[slot].status = TaskStatus::Waiting(vec![interrupt.clone()]);
            self.show_waiting(slot, &[interrupt]);
            return;
        }
        let path = path_of(&self.graph, &self.planning.tasks[slot]);
        let task = &mut self.planning.tasks[slot];
        let write =
            task.extra.as_deref_mut().filter(|_| stores).and_then(|extra| attempts::take_write(&mut extra.attempts));
        if let (Some(write), Some(checkpoint)) = (write, self.head.checkpoint) {
            let mut writes = vec![write];
            if let Some(failed) = self.head.pending_of(task.id).filter(|of| of.has_error()) {
                writes.extend(earlier_error(failed));
                // Without its error, the interrupt in which it slept before would need a timer.
                let slept = !asleep_of(failed).is_empty();
                writes.extend(slept.then(cleared_interrupts));
            }
            let writes = NewWrites::new(checkpoint.id, task.id, path).with(writes);
            self.commit(Vec::new(), vec![writes]);
        }
        let job = self.job(slot);
        self.start_first(Box::new(TaskJob { after: pause, ..job }));
    }

    /// Returns the namespace of a task.
    fn namespace_of(&self, slot: usize) -> String {
        let task = &self.planning.tasks[slot];
        task_namespace(&self.env.namespace, task.name(&self.graph), task.id)
    }

    /// Leaves a task asleep whose next attempt is due later, and which was not woken by a resume value for its
    /// interrupt. Returns whether it sleeps.
    pub(super) fn restore_sleep(&mut self, slot: usize) -> bool {
        let Some(pending) = self.head.pending_of(self.planning.tasks[slot].id) else { return false };
        if pending.is_finished() {
            // A rival run has ended it: its interrupt is not open.
            return false;
        }
        let own = attempts::attempt_interrupt(&self.namespace_of(slot), self.now);
        let asleep = asleep_of(pending).into_iter().find(|(id, wake_at)| *id == own.id && *wake_at > self.now);
        let woken = self.env.scope.resume_values.as_deref().is_some_and(|values| values.contains_key(&own.id));
        let Some((_, wake_at)) = asleep.filter(|_| !woken) else { return false };
        let task = &mut self.planning.tasks[slot];
        task.status = TaskStatus::Waiting(vec![Interrupt { wake_at: Some(wake_at), ..own }]);
        task.saved = true;
        true
    }

    /// Retains the context of an attempt for the next one, if its node has a retry policy.
    pub(super) fn keep_attempt(&mut self, slot: usize, context: &Context, began: Timestamp) {
        let retry = |node: usize| self.graph.nodes[node].settings.retry.is_some();
        if self.planning.tasks[slot].node.is_some_and(retry) {
            let extra = self.planning.tasks[slot].extra.get_or_insert_default();
            extra.began = Some(began);
            extra.context = Some(context.clone());
        }
    }

    /// Starts a task before those that are not started yet, after what has to be committed.
    fn start_first(&mut self, job: Box<TaskJob>) {
        let at = self.effects.iter().position(|effect| matches!(effect, Effect::Start(_)));
        self.effects.insert(at.unwrap_or(self.effects.len()), Effect::Start(job));
    }

    /// Adds the task that handles the failure of another one: in the same superstep, with the same input.
    pub(super) fn handle_failure(&mut self, slot: usize, node: usize, handler: usize, error: NodeError) {
        debug_assert!(self.graph.nodes[handler].is_handler, "an error handler handles the failure of a node");
        let checkpoint = self.head.checkpoint.map(|checkpoint| checkpoint.id).unwrap_or_default();
        let name = &self.graph.nodes[handler].name;
        let failed = &self.planning.tasks[slot];
        let id = handler_id(checkpoint, &self.env.namespace, self.planning.step, name, failed.id);
        let mut task = StepTask::new(id, Some(handler), failed.push.clone());
        let mut extra =
            Extra { handles: Some(Handles { node, task: failed.id, error: Arc::new(error) }), ..Extra::default() };
        if let Some(pending) = self.head.pending_of(id).filter(|_| !self.planning.replaying) {
            task.resume_values = resume_values_of(pending);
            extra.attempts = attempts_of(pending);
            extra.attempt = extra.attempts.attempt();
            extra.first_index = pending.writes.iter().map(|write| write.index + 1).max().unwrap_or(0).max(0);
        }
        let place = task_namespace(&self.env.namespace, name, id);
        let known = task.resume_values.len();
        task.resume_values.extend(self.env.scope.resume_value_of(&place, known).cloned());
        task.resumed = task.resume_values.len() > known;
        let asks_for_value = self.env.scope.resume.lock().is_set();
        if task.resumed || (asks_for_value && self.head.pending_of(id).is_some_and(is_asking)) {
            extra.attempts.renew();
        }
        task.extra = Some(Box::new(extra));
        self.planning.tasks.push(task);
    }

    /// Takes up a failure that an earlier run stored and whose handler did not come to the end of the superstep: the
    /// node does not run again, its handler does. Returns whether there is one.
    pub(super) fn restore_failure(&mut self, slot: usize) -> Result<bool, RunError> {
        let task = &self.planning.tasks[slot];
        let Some((node, handler)) = task.node.and_then(|node| Some((node, self.graph.nodes[node].handler?))) else {
            return Ok(false);
        };
        let Some(pending) = self.head.pending_of(task.id) else { return Ok(false) };
        let (Some(message), Some(own), Some(_)) =
            (error_of(pending), error_message_of(pending), error_source_of(pending))
        else {
            return Ok(false);
        };
        let writes = super::load::task_writes(&self.graph, pending)?;
        self.origin.before.note_writes(&self.graph, &writes);
        let name = self.graph.nodes[node].name.to_string();
        let task = &mut self.planning.tasks[slot];
        task.status = TaskStatus::Handled { message, own: own.clone(), writes };
        task.saved = true;
        task.restored = true;
        self.handle_failure(slot, node, handler, NodeError { node: name, message: own, source: None });
        Ok(true)
    }
}

impl StepTask {
    /// Takes over the attempts that an earlier run stored.
    pub(super) fn take_attempts(&mut self, pending: &PendingWrites) {
        let attempts = attempts_of(pending);
        if attempts != Attempts::default() {
            let extra = self.extra.get_or_insert_default();
            extra.attempt = attempts.attempt();
            extra.attempts = attempts;
        }
    }

    /// Returns the write that stores its attempts, if they are not stored.
    pub(super) fn attempts_write(&mut self) -> Option<NewWrite> {
        attempts::take_write(&mut self.extra.as_deref_mut()?.attempts)
    }

    /// Returns the failure that it handles.
    pub(crate) fn handles(&self) -> Option<&Handles> {
        self.extra.as_deref().and_then(|extra| extra.handles.as_ref())
    }
}

/// Returns the error as the node that handles it receives it.
fn node_error(node: String, error: RunError) -> NodeError {
    match error {
        RunError::Node { source, .. } => {
            NodeError { node, message: source.to_string(), source: Some(Arc::from(source)) }
        }
        error => NodeError { node, message: error.to_string(), source: Some(Arc::new(error)) },
    }
}

/// Returns whether an error means that a task could not run at all, so that only a custom policy retries it.
pub(super) fn is_mistake(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(RunError::NoTimer { .. } | RunError::BadTimeout { .. }))
}

/// Returns whether a policy retries an error.
fn retries(policy: &RetryPolicy, error: &RunError) -> bool {
    match error {
        RunError::Node { source, .. } if policy.is_default() && is_mistake(&**source) => false,
        RunError::Node { source, .. } => policy.retries(&**source),
        RunError::NodeCancelled { .. } | RunError::SyncTimeout { .. } => false,
        RunError::NodePanicked { .. } if policy.is_default() => false,
        error if policy.is_default() => !is_misuse(error),
        error => policy.retries(error as &(dyn Error + 'static)),
    }
}

/// Returns whether an error shows a misuse of the library, which another attempt repeats: those for which LangGraph
/// raises a `ValueError`, `KeyError`, `TypeError` or `RuntimeError`.
fn is_misuse(error: &RunError) -> bool {
    match error {
        RunError::State(error) => !matches!(
            error,
            StateError::Channel { .. } | StateError::UnknownChannel { .. } | StateError::Panicked { .. }
        ),
        RunError::Edit(problem) => matches!(problem, EditProblem::NoSupersteps | EditProblem::NoUpdates { .. }),
        RunError::Codec(_)
        | RunError::NoContext { .. }
        | RunError::SeveralInterrupts { .. }
        | RunError::SharedSubgraph { .. }
        | RunError::NoStore
        | RunError::NoTimer { .. }
        | RunError::UnknownLabel { .. }
        | RunError::BadDestination { .. }
        | RunError::BadRecursionLimit { .. }
        | RunError::BadKey { .. }
        | RunError::InvalidResumeValue(_)
        | RunError::NoCache
        | RunError::NoThread
        | RunError::UnknownOutput { .. }
        | RunError::SyncTimeout { .. }
        | RunError::BadTimeout { .. }
        | RunError::Breakpoint(_) => true,
        _ => false,
    }
}

/// Returns the id of the task that handles the failure of another one.
fn handler_id(checkpoint: CheckpointId, namespace: &Namespace, step: i64, name: &str, failed: TaskId) -> TaskId {
    let mut place = Vec::with_capacity(192);
    place.extend_from_slice(checkpoint.as_bytes());
    if !namespace.is_root() {
        place.extend_from_slice(namespace.as_str().as_bytes());
        place.push(b'|');
    }
    for part in [name, &step.to_string(), name, "__pregel_push", "node_error_handler", &failed.to_string()] {
        place.extend_from_slice(part.as_bytes());
    }
    TaskId::from_bytes(hash::xxh3_128(&place))
}

/// Returns the path under which the writes of a task are stored.
pub(super) fn path_of(graph: &Graph, task: &StepTask) -> Arc<str> {
    match task.handles() {
        None => task.path(graph),
        Some(handles) => {
            let failed = StepTask::new(task.id, Some(handles.node), task.push.clone());
            format!("{}, node_error_handler, {:010}", failed.path(graph), 0).into()
        }
    }
}

#[cfg(test)]
mod tests;
