//! The superstep machine: completions in, effects out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::base::{CheckpointId, IdSource, ListRef, Namespace, RunId, TaskId, Timestamp};
use crate::graph::{Graph, Takes};
use crate::state::StateRef;
use crate::store::Source;
use crate::task::{Around, Context, ContextParts, EndedCalls, Interrupt, Life, RunControl, StepAt, StepTime, TaskPath};

use super::apply::{Changes, apply};
use super::before::Before;
use super::effect::{Effect, Event, Request, RunStart, Status};
use super::error::RunError;
use super::exit::Saving;
use super::head::Head;
use super::limits::{is_step_timeout, step_timeout};
use super::parts::{CalledTasks, Commits, Environment, Origin, Planning, Showing};
use super::task::{StepTask, TaskJob, TaskOutcome, TaskStatus, mark_end};
use super::view::shown;

/// One run of a graph in one namespace: its head, and the parts that make the next one.
///
/// The parts do not know each other. A method of the machine decides which parts a completion concerns.
pub(crate) struct Machine {
    pub(super) graph: Arc<Graph>,
    pub(super) head: Head,
    /// The changes of the head since its checkpoint.
    pub(super) changes: Changes,
    /// True if an update failed, so that the head is half changed.
    pub(super) broken: bool,
    /// The branch on which the work of the run is, if it lost a race.
    branch: Option<String>,
    pub(super) status: Status,
    pub(super) effects: VecDeque<Effect>,
    pub(super) ids: IdSource,
    pub(super) now: Timestamp,
    pub(super) env: Environment,
    pub(super) origin: Origin,
    pub(super) planning: Planning,
    pub(super) calls: CalledTasks,
    pub(super) commits: Commits,
    pub(super) showing: Showing,
}

impl Machine {
    /// Starts a run on a head that was loaded.
    ///
    /// # Errors
    /// [`RunError`] if there is nothing to run or the request does not fit the head. Nothing was changed.
    pub(crate) fn new(graph: Arc<Graph>, head: Head, mut request: Request, now: Timestamp) -> Result<Self, RunError> {
        if request.recursion_limit == 0 {
            return Err(RunError::BadRecursionLimit { limit: 0 });
        }
        let start = std::mem::replace(&mut request.start, RunStart::Continue);
        let mut machine = Self {
            changes: Changes::default(),
            broken: false,
            branch: None,
            status: Status::Running,
            effects: VecDeque::new(),
            ids: IdSource::from_seed(request.seed),
            now,
            origin: Origin::of(&head),
            planning: Planning::new(&graph, &head, &mut request),
            calls: CalledTasks::default(),
            showing: Showing::new(&graph, &mut request),
            commits: Commits::new(&mut request),
            env: Environment::new(request),
            graph,
            head,
        };
        machine.begin(start)?;
        Ok(machine)
    }

    /// Returns how far the run has come.
    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the present state, with the writes of the ended tasks of an interrupted superstep.
    pub(crate) fn state(&self) -> &StateRef {
        self.showing.interrupted.as_ref().map_or(&self.head.state, |(state, _)| state)
    }

    /// Returns the result of a subgraph: its last streamed state, and for each channel whether it holds a value.
    pub(crate) fn returned(&self) -> (StateRef, Vec<bool>) {
        self.showing.returned.clone().unwrap_or_else(|| (Arc::clone(self.state()), self.present()))
    }

    /// Returns the lists that began as lists of the parent graph, and where these are stored.
    pub(crate) fn shared(&self) -> Vec<(u32, Option<ListRef>)> {
        self.head.shared.clone()
    }

    /// Returns whether it runs an entrypoint.
    pub(crate) fn is_entry(&self) -> bool {
        self.graph.entry
    }

    /// Returns which channels hold something.
    pub(crate) fn present(&self) -> Vec<bool> {
        self.head.present[..self.graph.layout.len()].to_vec()
    }

    /// Returns where the graph stands.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.env.namespace
    }

    /// Returns the task that it runs in.
    pub(crate) fn above(&self) -> Option<&Context> {
        self.env.above.as_ref()
    }

    /// Returns what may ask the run to stop.
    pub(crate) fn control(&self) -> &RunControl {
        &self.env.scope.control
    }

    /// Returns the flag that is set once its tasks are abandoned.
    pub(crate) fn over(&self) -> &Arc<AtomicBool> {
        &self.env.over
    }

    /// Cancels the run: it ends when its tasks have, and none is started any more.
    pub(crate) fn cancel(&mut self, reason: String) {
        self.env.cancelled.get_or_insert(reason);
    }

    /// Returns the lists of the state before the run.
    pub(crate) fn take_before(&mut self) -> Before {
        std::mem::take(&mut self.origin.before)
    }

    /// Returns the name and the id of the task in a slot, and the number of its attempt, from 1.
    pub(crate) fn attempt_in(&self, slot: usize) -> (Arc<str>, TaskId, u32) {
        let task = &self.planning.tasks[slot];
        let failed = task.extra.as_deref().map_or(0, |extra| extra.attempts.failed);
        (task.name(&self.graph).into(), task.id, failed.saturating_add(1))
    }

    /// Returns the timestamp of the last completion, and a seed of the run's own.
    pub(crate) fn moment(&mut self) -> (Timestamp, u64) {
        (self.now, self.ids.random())
    }

    /// Returns whether its tasks may have to be stopped at the deadline of their superstep, or of one of a parent
    /// graph.
    pub(crate) fn is_timed(&self) -> bool {
        self.planning.within.is_some() || self.env.is_timed()
    }

    /// Returns the superstep that timed out before its tasks had ended: this one, or one of a parent graph.
    pub(super) fn late(&self) -> Option<&StepTime> {
        let own = self.planning.within.as_ref().filter(|within| within.is_late());
        own.or_else(|| self.env.late()).map(|within| &**within)
    }

    /// Returns the head that this run has stored, or handed out to be stored; `None` if it stores nothing.
    pub(crate) fn stored_head(&self) -> Option<CheckpointId> {
        self.commits.head.filter(|_| self.commits.records())
    }

    /// Ends the run and gives its head back, unless that is half changed.
    pub(crate) fn finish(self) -> (Status, Option<Head>) {
        // Changes since the last checkpoint are not part of a stored head.
        let whole = !self.broken && self.commits.holds_nothing() && self.changes.is_empty();
        let mut head = self.head;
        head.pending.clear();
        super::task::drop_untracked(&self.graph, &mut head.sends);
        let forked = head.checkpoint.is_some_and(|checkpoint| checkpoint.source == Source::Fork);
        if forked && self.commits.saving == Saving::Steps {
            // As it is read from the store.
            head.updated = None;
        }
        head.reset_untracked(&self.graph);
        (self.status, whole.then_some(head))
    }

    /// Returns the next effect to carry out.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        if matches!(self.effects.front(), Some(Effect::Start(_))) && self.commits.unreported > 0 {
            // A batch that was made after the task became due is handed out before it: the task waits for it too.
            let commit = self.effects.iter().position(|effect| matches!(effect, Effect::Commit(_)));
            return commit.and_then(|at| self.effects.remove(at));
        }
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        if !matches!(self.status, Status::Running) {
            if let Err(error) = self.flush_kept()
                && !matches!(self.status, Status::Failed(_))
            {
                self.status = Status::Failed(error);
            }
            return self.effects.pop_front();
        }
        self.save_finished()
    }

    /// Returns the next event.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.showing.events.pop_front()
    }

    /// Notes that a batch is committed, or that the run need not wait for it.
    pub(crate) fn handle_committed(&mut self) {
        self.commits.reported();
    }

    /// Notes how a task ended.
    pub(crate) fn handle_task_done(&mut self, slot: usize, outcome: TaskOutcome, now: Timestamp) {
        self.now = now;
        self.show_read(slot);
        let task = &mut self.planning.tasks[slot];
        debug_assert!(matches!(task.status, TaskStatus::Running), "a task ends once, after it has started");
        task.ended = self.env.scope.records_ends.then_some(now);
        match outcome {
            TaskOutcome::Done { mut writes, resume_values, relays, streamed } => {
                (task.relays, task.streamed) = (relays, streamed);
                let kept = super::cache::keep(&self.graph, task, &writes);
                self.effects.extend(kept);
                mark_end(&mut writes, self.commits.recording.is_some());
                if let Some(extra) = &task.extra {
                    writes.iter_mut().for_each(|write| write.index += extra.first_index);
                }
                task.status = TaskStatus::Done(writes);
                task.resume_values = resume_values;
                self.show_done(slot, false);
            }
            TaskOutcome::Waiting { interrupts, of_calls, resume_values } => {
                task.resume_values = resume_values;
                task.asked_by_calls = of_calls;
                task.status = TaskStatus::Waiting(interrupts.clone());
                self.show_waiting(slot, &interrupts);
            }
            TaskOutcome::Left(command) => task.status = TaskStatus::Left(command),
            TaskOutcome::Drained(reason) => task.status = TaskStatus::Drained(reason),
            TaskOutcome::Cancelled { reason, ran } => {
                self.env.cancelled.get_or_insert_with(|| reason.clone());
                task.status = TaskStatus::Cancelled { reason, ran };
            }
            TaskOutcome::Failed { error, writes, resume_values } => self.failed(slot, error, writes, resume_values),
        }
        self.show_next_read(slot);
        if !self.planning.is_open() {
            let ended = self.end_superstep();
            self.settle(ended);
        }
    }

    pub(super) fn settle(&mut self, outcome: Result<(), RunError>) {
        if let Err(error) = outcome {
            self.status = Status::Failed(error);
        }
    }

    pub(super) fn records(&self) -> bool {
        self.commits.records()
    }

    pub(super) fn tick(&mut self) -> Result<(), RunError> {
        loop {
            self.show_checkpoint()?;
            if self.planning.is_past_limit() {
                self.flush()?;
                return Err(RunError::RecursionLimit { limit: self.planning.recursion_limit });
            }
            if self.planning.tasks.is_empty() {
                self.flush()?;
                self.status = Status::Done;
                return Ok(());
            }
            self.restore()?;
            if self.breaks_before() {
                self.flush()?;
                return self.interrupt(Vec::new());
            }
            if let Some(reason) = self.env.scope.control.drain_reason() {
                self.flush()?;
                self.status = Status::Drained(reason);
                return Ok(());
            }
            self.show_starts();
            if self.planning.is_input_only() && self.graph.start.branches.is_empty() {
                // No code of a node or a conditional edge runs: the superstep of the input goes into the same batch.
                self.planning.tasks[0].status = TaskStatus::Done(self.input_task()?);
                self.next()?;
            } else if !self.planning.is_due() && self.planning.is_waiting() {
                return self.end_superstep();
            } else if !self.planning.is_due() {
                self.next()?;
            } else {
                if !self.look_up()? {
                    self.start_due()?;
                }
                return Ok(());
            }
            if matches!(self.status, Status::Interrupted(_)) {
                return Ok(());
            }
        }
    }

    /// Starts the tasks that have to run, once everything before them is committed.
    pub(super) fn start_due(&mut self) -> Result<(), RunError> {
        self.flush()?;
        debug_assert!(self.commits.outbox.is_empty(), "a task starts after its checkpoint was handed out");
        self.planning.within =
            self.planning.step_timeout.map(|limit| Arc::new(StepTime::new(self.planning.step, limit)));
        for slot in 0..self.planning.tasks.len() {
            if matches!(self.planning.tasks[slot].status, TaskStatus::Due) {
                let job = self.job(slot);
                self.planning.tasks[slot].status = TaskStatus::Running;
                self.effects.push_back(Effect::Start(Box::new(job)));
            }
        }
        self.show_next_read(0);
        Ok(())
    }

    /// Restores the stored writes of the tasks that ended in an earlier run.
    pub(super) fn restore(&mut self) -> Result<(), RunError> {
        if self.planning.replaying || self.head.pending.is_empty() {
            return Ok(());
        }
        self.calls.writes = super::call::stored_call_writes(&self.graph, &self.head)?;
        for slot in 0..self.planning.tasks.len() {
            if self.restore_failure(slot)? || self.restore_sleep(slot) {
                continue;
            }
            let id = self.planning.tasks[slot].id;
            if let Some(pending) = self.head.pending_of(id).filter(|pending| pending.is_finished()) {
                let awake = self.wake_finished(pending);
                let writes = super::load::task_writes(&self.graph, pending)?;
                self.origin.before.note_writes(&self.graph, &writes);
                let task = &mut self.planning.tasks[slot];
                task.status = TaskStatus::Done(writes);
                task.saved = true;
                task.restored = true;
                if let Some((timer, cleared)) = awake {
                    self.commits.timers.push(timer);
                    self.calls.unsaved.push(cleared);
                }
            }
        }
        Ok(())
    }

    fn breaks_before(&self) -> bool {
        self.planning.hits(&self.planning.before) && self.is_news()
    }

    /// Returns whether a channel changed since the run was last continued.
    pub(super) fn is_news(&self) -> bool {
        let seen = |channel: usize| {
            let seen = self.head.interrupt_seen.iter().find(|(known, _)| *known as usize == channel);
            seen.map_or(0, |(_, version)| *version)
        };
        self.head.versions.iter().enumerate().any(|(channel, version)| *version > seen(channel))
    }

    /// Returns the state as tasks see it.
    pub(super) fn task_state(&self) -> StateRef {
        match self.graph.schemas.managed {
            true => self.graph.layout.with_managed(&self.head.state, self.planning.stop - self.planning.step),
            false => Arc::clone(&self.head.state),
        }
    }

    pub(super) fn job(&mut self, slot: usize) -> TaskJob {
        let context = self.context(slot);
        let task = &self.planning.tasks[slot];
        let takes_value = task.node.is_some_and(|node| self.graph.nodes[node].body.takes != Takes::State);
        let branches = task.node.is_some_and(|node| !self.graph.nodes[node].out.branches.is_empty());
        TaskJob {
            slot,
            node: task.node,
            given_as: task.given_as(),
            arg: task.push.as_ref().map(|(_, arg)| arg.clone()),
            input: if task.node.is_none() { self.head.input.clone() } else { None },
            state: self.task_state(),
            present: (takes_value || branches).then(|| self.head.present.as_slice().into()),
            context,
            record: self.records(),
            is_stored: self.commits.stores_steps()
                && !self.changes.changed_below(self.graph.layout.len())
                && self.head.stored_whole.is_empty(),
            seed: self.ids.random(),
            after: Duration::ZERO,
        }
    }

    /// Makes the context of the next attempt of a task.
    fn context(&mut self, slot: usize) -> Context {
        let task = &self.planning.tasks[slot];
        let (node, limits) = match task.node {
            Some(node) => (Arc::clone(&self.graph.nodes[node].name), self.graph.nodes[node].settings.timeout),
            None => (Arc::clone(&self.graph.channels[self.graph.input() as usize]), None),
        };
        let extra = task.extra.as_deref();
        let limits = extra.and_then(|extra| extra.timeout).or(limits);
        let life = Life::new(self.env.above.clone(), Arc::clone(&self.env.over), limits, self.planning.within.clone());
        let began = extra.and_then(|extra| extra.began).unwrap_or(self.now);
        let at = StepAt { step: self.planning.step, stop: self.planning.stop, now: began };
        let mut parts = ContextParts::new(task.id, node, self.place(task), at, Arc::clone(&self.env.scope), life);
        if let Some(recording) = &self.commits.recording {
            parts.thread = Some(recording.thread.clone());
            parts.checkpoint = self.head.checkpoint.map(|checkpoint| checkpoint.id);
        }
        parts.namespace.clone_from(&self.env.namespace);
        parts.around = self.around();
        parts.resuming = self.planning.resuming;
        parts.replay = self.replay();
        parts.error = task.handles().map(|handles| Arc::clone(&handles.error));
        let asked = parts.asked.get_mut();
        asked.resume_values.clone_from(&task.resume_values);
        asked.took = task.resumed;
        asked.asleep = self.asleep(task);
        let calls = &mut parts.calls;
        calls.path = task.push.as_ref().map_or(TaskPath::Pull, |(index, _)| TaskPath::Push(*index));
        calls.head = self.commits.head;
        calls.stored.clone_from(&self.calls.stored);
        calls.ended = self.ended_calls(task);
        let known = calls.stored_of(task.id);
        let (mut attempt, versions) = (known.map(|known| known.attempt), known.map(|known| known.versions.clone()));
        *calls.versions.get_mut() = extra.and_then(|extra| extra.versions.clone()).or(versions).unwrap_or_default();
        if let Some(extra) = extra {
            parts.attempt = extra.attempts.failed + 1;
            asked.begun.clone_from(&extra.begun);
            *calls.unnoted.get_mut() = extra.attempt.is_some();
            attempt = extra.attempt.or(attempt);
        }
        calls.begin(attempt.unwrap_or_default());
        let context = Context::new(parts);
        self.keep_attempt(slot, &context, began);
        context
    }

    /// Returns the calls that have ended in the attempts of a task, if it may be tried again. Those of the tasks around
    /// a subgraph are others: it begins anew in each attempt of its caller.
    fn ended_calls(&self, task: &StepTask) -> Option<EndedCalls> {
        let ended = task.extra.as_deref().and_then(|extra| extra.ended.clone());
        let retries = || task.node.is_some_and(|node| self.graph.nodes[node].settings.retry.is_some());
        ended.or_else(|| retries().then(EndedCalls::default))
    }

    /// Returns the run if it makes the superstep of an older checkpoint again without a fork, or runs in a task that
    /// does.
    fn replay(&self) -> Option<RunId> {
        let begins = self.head.checkpoint.map(|checkpoint| checkpoint.id) == self.origin.checkpoint;
        if self.planning.replaying && begins && !self.is_latest() {
            return self.commits.recording.as_ref().map(|recording| recording.run);
        }
        self.env.above.as_ref().and_then(|above| above.parts().replay)
    }

    /// Returns where the graph stands, and those around it. A stateless graph stands nowhere itself.
    fn around(&self) -> Option<Around> {
        match &self.commits.recording {
            Some(recording) => Some(Around {
                parents: Arc::clone(&recording.parents),
                heads: Arc::clone(&recording.around),
                head: self.commits.head,
            }),
            None => Around::below(self.env.above.as_ref()?.parts()),
        }
    }

    /// All tasks of the superstep have ended, one way or another.
    pub(super) fn end_superstep(&mut self) -> Result<(), RunError> {
        debug_assert!(!self.planning.is_open(), "a superstep ends after its tasks");
        if let Some(reason) = self.env.cancelled.clone() {
            // A failure since the cancellation may be its consequence: the run ends as cancelled.
            self.save_ended()?;
            self.status = Status::Cancelled(reason);
            return Ok(());
        }
        if let Some(error) = self.late().map(step_timeout) {
            self.save_ended()?;
            let own = self.planning.tasks.iter_mut().find(|task| match &task.status {
                TaskStatus::Failed(error, _) => !is_step_timeout(error),
                _ => false,
            });
            return Err(match own.map(|task| std::mem::replace(&mut task.status, TaskStatus::Due)) {
                Some(TaskStatus::Failed(error, _)) => error,
                _ => error,
            });
        }
        let stops = |task: &StepTask| matches!(task.status, TaskStatus::Failed(..) | TaskStatus::Left(_));
        if let Some(slot) = self.planning.tasks.iter().position(stops) {
            self.save_ended()?;
            match std::mem::replace(&mut self.planning.tasks[slot].status, TaskStatus::Due) {
                TaskStatus::Failed(error, _) => return Err(error),
                TaskStatus::Left(command) => self.status = Status::Left(command),
                _ => {}
            }
            return Ok(());
        }
        let drained = self.planning.tasks.iter().find_map(|task| match &task.status {
            TaskStatus::Drained(reason) => Some(reason.clone()),
            _ => None,
        });
        if let Some(reason) = drained {
            self.save_ended()?;
            self.status = Status::Drained(reason);
            return Ok(());
        }
        if self.planning.is_waiting() {
            let open = self.planning.open_interrupts(self.env.namespace.is_root());
            self.save_ended()?;
            return self.interrupt(open);
        }
        self.next()?;
        if matches!(self.status, Status::Interrupted(_)) { Ok(()) } else { self.tick() }
    }

    /// Applies the superstep and makes its checkpoint.
    pub(super) fn next(&mut self) -> Result<(), RunError> {
        let record = self.records();
        let mut consumed = if record { self.consumed() } else { Vec::new() };
        consumed.append(&mut self.calls.unsaved);
        let stops = self.planning.hits(&self.planning.after);
        let calls = std::mem::take(&mut self.calls.writes);
        calls.iter().for_each(|call| self.showing.note_unshown(&call.writes));
        let applied = apply(&self.graph, &mut self.head, &mut self.planning.tasks, calls, &mut self.changes, record);
        if let Err(error) = applied {
            // The writes of the nodes are stored though their superstep fails, if the checkpoint before it is.
            self.broken = true;
            let stored = std::mem::take(&mut self.commits.outbox).is_empty();
            self.flush_kept()?;
            if stored && !consumed.is_empty() {
                self.commit(Vec::new(), consumed);
            }
            return Err(error);
        }
        debug_assert!(
            self.planning.tasks.iter().all(|task| task.writes().is_empty()),
            "the writes of a superstep are applied once"
        );
        // The checkpoint holds the values of writes that cannot be stored.
        let taken: Vec<_> = consumed.extract_if(.., |writes| self.is_taken(writes.task)).collect();
        self.commits.unsaved.extend(taken);
        self.head.pending.clear();
        self.planning.replaying = false;
        if std::mem::take(&mut self.planning.resuming) && self.env.namespace.is_root() {
            // A resume value is for the interrupts of the superstep that was interrupted.
            self.env.scope.resume.lock().set(None, None);
        }
        self.calls.stored = None;
        self.show_changed();
        self.checkpoint(Source::Loop, consumed);
        if stops && self.is_news() {
            self.flush()?;
            self.show_checkpoint()?;
            self.interrupt(Vec::new())?;
        }
        Ok(())
    }

    /// Returns whether an earlier run has stored writes of a task that is made again without a fork: they keep their
    /// positions.
    pub(super) fn is_taken(&self, task: TaskId) -> bool {
        let begins = self.head.checkpoint.map(|checkpoint| checkpoint.id) == self.origin.checkpoint;
        self.planning.replaying && begins && self.head.pending_of(task).is_some_and(|pending| pending.is_finished())
    }

    /// Ends a run that lost a race, at the end of its superstep: its commits are a branch. No further task starts.
    pub(crate) fn branch_off(&mut self, branch: String) {
        self.effects.clear();
        self.broken = true;
        if matches!(self.status, Status::Running) {
            let reason = format!("another run was faster; the work of this one is branch {branch:?}");
            self.status = Status::Drained(reason);
        }
        self.branch = Some(branch);
    }

    /// Ends the run as cancelled: its thread was cancelled from outside, so nothing more of it can be stored.
    pub(crate) fn end_cancelled(&mut self, reason: String) {
        self.effects.clear();
        self.broken = true;
        self.status = Status::Cancelled(reason);
    }

    /// Returns the branch on which the work of a run is that lost a race.
    pub(crate) fn branch(&self) -> Option<&str> {
        self.branch.as_deref()
    }

    /// Ends an interrupted run. The writes of what has ended must go together, as they will when the run goes on.
    pub(super) fn interrupt(&mut self, open: Vec<Interrupt>) -> Result<(), RunError> {
        let has_ended = |task: &StepTask| matches!(task.status, TaskStatus::Done(_) | TaskStatus::Handled { .. });
        if self.env.namespace.is_root() && (self.planning.tasks.iter().any(has_ended) || !self.calls.writes.is_empty())
        {
            // The writes of ended tasks are shown, though their superstep has not ended.
            self.showing.interrupted = Some(shown(&self.graph, &self.head, &self.planning.tasks, &self.calls.writes)?);
        }
        self.show_interrupted(&open);
        self.status = Status::Interrupted(open);
        Ok(())
    }
}
