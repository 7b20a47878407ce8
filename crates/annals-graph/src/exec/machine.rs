//! The superstep machine: facts in, effects out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::base::{CheckpointId, IdSource, ListRef, Namespace, Timestamp};
use crate::graph::{
    Around, Context, ContextParts, Graph, Interrupt, Life, RunControl, Scope, StepAt, StepTime, StoredCall, TaskPath,
};
use crate::state::StateRef;
use crate::store::{NewCheckpoint, NewTimer, NewWrites, Source};

use super::apply::{Changes, apply};
use super::before::Before;
use super::call::CallWrites;
use super::effect::{Effect, Event, Recording, Request, Status};
use super::error::RunError;
use super::exit::Saving;
use super::head::Head;
use super::limits::{is_step_timeout, step_timeout};
use super::show::ShownFields;
use super::task::{Task, TaskJob, TaskOutcome, TaskStatus, mark_end};
use super::view::shown;

/// One run of a graph in one namespace.
pub(crate) struct Machine {
    pub(super) graph: Arc<Graph>,
    pub(super) head: Head,
    pub(super) tasks: Vec<Task>,
    pub(super) changes: Changes,
    pub(super) recording: Option<Recording>,
    pub(super) namespace: Namespace,
    pub(super) request: Limits,
    pub(super) ids: IdSource,
    pub(super) now: Timestamp,
    pub(super) step: i64,
    pub(super) stop: i64,
    /// The head that the next batch builds on.
    pub(super) committed: Option<CheckpointId>,
    /// Checkpoints that were made and not handed out yet.
    pub(super) outbox: Vec<NewCheckpoint>,
    /// The checkpoint that is retained until the run ends; the one of each superstep is folded into it.
    pub(super) kept: Option<NewCheckpoint>,
    /// The writes of commands that are not stored and that no checkpoint holds yet.
    pub(super) unsaved: Vec<NewWrites>,
    /// The timers of the tasks whose writes are stored next.
    pub(super) timers: Vec<NewTimer>,
    pub(super) scope: Arc<Scope>,
    /// True until the first superstep has ended, if the run continues an earlier one.
    pub(super) resuming: bool,
    /// True if the run repeats an earlier one with its idempotency key.
    pub(super) repeats: bool,
    pub(super) effects: VecDeque<Effect>,
    pub(super) events: VecDeque<Event>,
    /// Batches handed out and not reported committed.
    pub(super) unreported: usize,
    pub(super) status: Status,
    /// True if the stored results of the tasks are ignored: the run replays an old checkpoint.
    pub(super) replaying: bool,
    /// Unstored writes of called tasks, which are stored even if the superstep does not end.
    pub(super) called: Vec<NewWrites>,
    /// The writes of called tasks to its channels in this superstep, in the order of their paths.
    pub(super) call_writes: Vec<CallWrites>,
    /// The stored calls of the first superstep, if the run continues an earlier one.
    pub(super) stored_calls: Option<Arc<Vec<StoredCall>>>,
    /// The state that an interrupted run shows, if that is not the one of its head.
    pub(super) shown: Option<(StateRef, Vec<(usize, bool)>)>,
    pub(super) fields: ShownFields,
    /// Subgraphs only: the last streamed state, returned instead of `head.state`, whose ephemeral channels may already
    /// be cleared.
    pub(super) returned: Option<(StateRef, Vec<bool>)>,
    /// The checkpoint that was loaded.
    pub(super) loaded: Option<CheckpointId>,
    /// The checkpoint before the one that was loaded.
    pub(super) loaded_parent: Option<CheckpointId>,
    /// The lists of the state before the run.
    pub(super) before: Before,
    /// True if an update failed, so that the head is half changed.
    pub(super) broken: bool,
    /// The reason of its cancellation, if it was cancelled.
    pub(super) cancelled: Option<String>,
    /// The time of the superstep, if that is limited.
    pub(super) within: Option<Arc<StepTime>>,
    /// The task that it runs in.
    pub(super) above: Option<Context>,
    /// True once its tasks are abandoned.
    pub(super) over: Arc<AtomicBool>,
}

/// The limits and settings of a run, taken from its request.
pub(super) struct Limits {
    pub(super) recursion_limit: u64,
    pub(super) step_timeout: Option<Duration>,
    pub(super) before: crate::graph::Breakpoints,
    pub(super) after: crate::graph::Breakpoints,
    pub(super) strict_resume: bool,
    pub(super) saving: Saving,
    pub(super) events: super::effect::EventMask,
    pub(super) output: Option<Arc<[usize]>>,
}

impl Machine {
    /// Starts a run on a head that was loaded.
    ///
    /// # Errors
    /// [`RunError`] if there is nothing to run or the request does not fit the head. Nothing was changed.
    pub(crate) fn new(graph: Arc<Graph>, head: Head, request: Request, now: Timestamp) -> Result<Self, RunError> {
        if request.recursion_limit == 0 {
            return Err(RunError::BadRecursionLimit { limit: 0 });
        }
        let before = request.interrupt_before.filter(|b| !b.is_empty()).unwrap_or(graph.interrupt_before.clone());
        let after = request.interrupt_after.filter(|b| !b.is_empty()).unwrap_or(graph.interrupt_after.clone());
        let limits = Limits {
            recursion_limit: request.recursion_limit,
            step_timeout: request.step_timeout,
            before,
            after,
            strict_resume: request.strict_resume,
            saving: request.saving,
            events: request.events,
            output: request.output,
        };
        let step = head.step() + 1;
        let fields = ShownFields::new(&graph.layout);
        let mut machine = Self {
            graph,
            namespace: request.namespace,
            committed: request.recording.as_ref().and_then(|recording| recording.head),
            recording: request.recording,
            request: limits,
            ids: IdSource::from_seed(request.seed),
            now,
            step,
            stop: step.saturating_add_unsigned(request.recursion_limit).saturating_add(1),
            loaded: head.checkpoint.map(|checkpoint| checkpoint.id),
            loaded_parent: head.parent,
            before: Before::default(),
            head,
            tasks: Vec::new(),
            changes: Changes::default(),
            outbox: Vec::new(),
            kept: None,
            unsaved: Vec::new(),
            timers: Vec::new(),
            scope: request.scope,
            resuming: false,
            repeats: false,
            effects: VecDeque::new(),
            events: VecDeque::new(),
            unreported: 0,
            status: Status::Running,
            replaying: false,
            called: Vec::new(),
            call_writes: Vec::new(),
            stored_calls: None,
            shown: None,
            fields,
            returned: None,
            broken: false,
            cancelled: None,
            within: None,
            above: request.above,
            over: Arc::default(),
        };
        machine.begin(request.start)?;
        Ok(machine)
    }

    /// Returns how far the run has come.
    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the present state, with the writes of the ended tasks of an interrupted superstep.
    pub(crate) fn state(&self) -> &StateRef {
        self.shown.as_ref().map_or(&self.head.state, |(state, _)| state)
    }

    /// Returns the result of a subgraph: its last streamed state, and for each channel whether it holds a value.
    pub(crate) fn returned(&self) -> (StateRef, Vec<bool>) {
        self.returned.clone().unwrap_or_else(|| (Arc::clone(self.state()), self.present()))
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
        &self.namespace
    }

    /// Returns the task that it runs in.
    pub(crate) fn above(&self) -> Option<&Context> {
        self.above.as_ref()
    }

    /// Returns what may ask the run to stop.
    pub(crate) fn control(&self) -> &RunControl {
        &self.scope.control
    }

    /// Returns the flag that is set once its tasks are abandoned.
    pub(crate) fn over(&self) -> &Arc<AtomicBool> {
        &self.over
    }

    /// Cancels the run: it ends when its tasks have, and none is started any more.
    pub(crate) fn cancel(&mut self, reason: String) {
        self.cancelled.get_or_insert(reason);
    }

    /// Returns the lists of the state before the run.
    pub(crate) fn take_before(&mut self) -> Before {
        std::mem::take(&mut self.before)
    }

    /// Returns the timestamp of the last fact, and a seed of the run's own.
    pub(crate) fn moment(&mut self) -> (Timestamp, u64) {
        (self.now, self.ids.random())
    }

    /// Returns whether its tasks may have to be stopped at the deadline of their superstep, or of one of a parent
    /// graph.
    pub(crate) fn is_timed(&self) -> bool {
        self.within.is_some() || self.above.as_ref().is_some_and(|above| above.life().is_timed())
    }

    /// Returns the superstep that timed out before its tasks had ended: this one, or one of a parent graph.
    pub(super) fn late(&self) -> Option<&StepTime> {
        let own = self.within.as_ref().filter(|within| within.is_late());
        own.or_else(|| self.above.as_ref()?.life().late()).map(|within| &**within)
    }

    /// Returns the head that this run has stored, or handed out to be stored; `None` if it stores nothing.
    pub(crate) fn stored_head(&self) -> Option<CheckpointId> {
        self.committed.filter(|_| self.records())
    }

    /// Ends the run and gives its head back, unless that is half changed.
    pub(crate) fn finish(self) -> (Status, Option<Head>) {
        // Changes since the last checkpoint are not part of a stored head.
        let whole = !self.broken && self.outbox.is_empty() && self.kept.is_none() && self.changes.is_empty();
        let mut head = self.head;
        head.pending.clear();
        super::task::drop_untracked(&self.graph, &mut head.sends);
        let forked = head.checkpoint.is_some_and(|checkpoint| checkpoint.source == Source::Fork);
        if forked && self.request.saving == Saving::Steps {
            // As it is read from the store.
            head.updated = None;
        }
        head.reset_untracked(&self.graph);
        (self.status, whole.then_some(head))
    }

    /// Returns the next effect to carry out.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        if matches!(self.effects.front(), Some(Effect::Start(_))) && self.unreported > 0 {
            return None;
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
        self.events.pop_front()
    }

    /// Notes that a batch is committed, or that the run need not wait for it.
    pub(crate) fn handle_committed(&mut self) {
        self.unreported = self.unreported.saturating_sub(1);
    }

    /// Notes how a task ended.
    pub(crate) fn handle_task_done(&mut self, slot: usize, outcome: TaskOutcome, now: Timestamp) {
        self.now = now;
        let task = &mut self.tasks[slot];
        match outcome {
            TaskOutcome::Done { mut writes, answers, relays } => {
                task.relays = relays;
                let kept = super::cache::keep(&self.graph, task, &writes);
                self.effects.extend(kept);
                mark_end(&mut writes, self.recording.is_some());
                if let Some(extra) = &task.extra {
                    writes.iter_mut().for_each(|write| write.index += extra.first_index);
                }
                task.status = TaskStatus::Done(writes);
                task.answers = answers;
                self.show_done(slot, false);
            }
            TaskOutcome::Waiting { interrupts, of_calls, answers } => {
                task.answers = answers;
                task.asked_by_calls = of_calls;
                task.status = TaskStatus::Waiting(interrupts.clone());
                self.show_questions(slot, &interrupts);
            }
            TaskOutcome::Left(command) => task.status = TaskStatus::Left(command),
            TaskOutcome::Drained(reason) => task.status = TaskStatus::Drained(reason),
            TaskOutcome::Cancelled { reason, ran } => {
                self.cancelled.get_or_insert_with(|| reason.clone());
                task.status = TaskStatus::Cancelled { reason, ran };
            }
            TaskOutcome::Failed { error, writes, answers } => self.failed(slot, error, writes, answers),
        }
        if !self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Due)) {
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
        self.recording.is_some()
    }

    /// Returns whether each superstep is stored, and not only the last one.
    fn stores_steps(&self) -> bool {
        self.records() && self.request.saving == Saving::Steps
    }

    pub(super) fn tick(&mut self) -> Result<(), RunError> {
        loop {
            self.show_checkpoint()?;
            if self.step > self.stop {
                self.flush()?;
                return Err(RunError::RecursionLimit { limit: self.request.recursion_limit });
            }
            if self.tasks.is_empty() {
                self.flush()?;
                self.status = Status::Done;
                return Ok(());
            }
            self.restore()?;
            if self.breaks_before() {
                self.flush()?;
                return self.interrupt(Vec::new());
            }
            if let Some(reason) = self.scope.control.drain_reason() {
                self.flush()?;
                self.status = Status::Drained(reason);
                return Ok(());
            }
            self.show_starts();
            let only_input = matches!(self.tasks.as_slice(), [task] if task.node.is_none());
            if only_input && self.graph.start.branches.is_empty() && self.tasks[0].push.is_none() {
                // No code of a node or a conditional edge runs: the superstep of the input goes into the same batch.
                self.tasks[0].status = TaskStatus::Done(self.input_task()?);
                self.next()?;
            } else if !self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Due)) {
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
        self.within = self.request.step_timeout.map(|limit| Arc::new(StepTime::new(self.step, limit)));
        for slot in 0..self.tasks.len() {
            if matches!(self.tasks[slot].status, TaskStatus::Due) {
                let job = self.job(slot);
                self.tasks[slot].status = TaskStatus::Running;
                self.effects.push_back(Effect::Start(Box::new(job)));
            }
        }
        Ok(())
    }

    /// Restores the stored writes of the tasks that ended in an earlier run.
    pub(super) fn restore(&mut self) -> Result<(), RunError> {
        if self.replaying || self.head.pending.is_empty() {
            return Ok(());
        }
        self.call_writes = super::call::stored_call_writes(&self.graph, &self.head)?;
        for slot in 0..self.tasks.len() {
            if self.restore_failure(slot)? {
                continue;
            }
            let id = self.tasks[slot].id;
            if let Some(pending) = self.head.pending_of(id).filter(|pending| pending.is_finished()) {
                let writes = super::load::task_writes(&self.graph, pending)?;
                self.before.note_writes(&self.graph, &writes);
                let task = &mut self.tasks[slot];
                task.status = TaskStatus::Done(writes);
                task.saved = true;
                task.restored = true;
            }
        }
        Ok(())
    }

    fn breaks_before(&self) -> bool {
        let before = &self.request.before;
        let hit = |task: &Task| task.node.is_some_and(|node| before.all || before.nodes.contains(&node));
        !before.is_empty() && self.is_news() && self.tasks.iter().any(hit)
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
            true => self.graph.layout.with_managed(&self.head.state, self.stop - self.step),
            false => Arc::clone(&self.head.state),
        }
    }

    pub(super) fn job(&mut self, slot: usize) -> TaskJob {
        let context = self.context(slot);
        let task = &self.tasks[slot];
        let takes_value = task.node.is_some_and(|node| self.graph.nodes[node].body.takes != crate::graph::Takes::State);
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
            is_stored: self.stores_steps() && !self.changes.changed_below(self.graph.layout.len()),
            seed: self.ids.random(),
            after: Duration::ZERO,
            graph: Arc::clone(&self.graph),
        }
    }

    /// Makes the context of the next attempt of a task.
    fn context(&mut self, slot: usize) -> Context {
        let task = &self.tasks[slot];
        let (node, limits) = match task.node {
            Some(node) => (Arc::clone(&self.graph.nodes[node].name), self.graph.nodes[node].settings.timeout),
            None => (Arc::clone(&self.graph.channels[self.graph.input() as usize]), None),
        };
        let extra = task.extra.as_deref();
        let limits = extra.and_then(|extra| extra.timeout).or(limits);
        let life = Life::new(self.above.clone(), Arc::clone(&self.over), limits, self.within.clone());
        let began = extra.and_then(|extra| extra.began).unwrap_or(self.now);
        let at = StepAt { step: self.step, stop: self.stop, now: began };
        let mut parts = ContextParts::new(task.id, node, self.place(task), at, Arc::clone(&self.scope), life);
        if let Some(recording) = &self.recording {
            parts.thread = Some(recording.thread.clone());
            parts.checkpoint = self.head.checkpoint.map(|checkpoint| checkpoint.id);
        }
        parts.namespace.clone_from(&self.namespace);
        parts.around = self.around();
        parts.resuming = self.resuming;
        parts.error = task.handles().map(|handles| Arc::clone(&handles.error));
        let asked = parts.asked.get_mut();
        asked.answers.clone_from(&task.answers);
        asked.took = task.answered;
        asked.asleep = self.asleep(task);
        let calls = &mut parts.calls;
        calls.path = task.push.as_ref().map_or(TaskPath::Pull, |(index, _)| TaskPath::Push(*index));
        calls.head = self.committed;
        calls.stored.clone_from(&self.stored_calls);
        let mut attempt = calls.stored_of(task.id).map(|known| known.attempt);
        if let Some(extra) = extra {
            parts.attempt = extra.failed + 1;
            asked.begun.clone_from(&extra.begun);
            *calls.unnoted.get_mut() = extra.attempt.is_some();
            attempt = extra.attempt.or(attempt);
        }
        calls.begin(attempt.unwrap_or_default());
        let context = Context::new(parts);
        self.keep_attempt(slot, &context, began);
        context
    }

    /// Returns where the graph stands, and those around it. A stateless graph stands nowhere itself.
    fn around(&self) -> Option<Around> {
        match &self.recording {
            Some(recording) => Some(Around {
                parents: Arc::clone(&recording.parents),
                heads: Arc::clone(&recording.around),
                head: self.committed,
            }),
            None => Around::below(self.above.as_ref()?.parts()),
        }
    }

    /// All tasks of the superstep have ended, one way or another.
    pub(super) fn end_superstep(&mut self) -> Result<(), RunError> {
        if let Some(reason) = self.cancelled.clone() {
            // A failure since the cancellation may be its consequence: the run ends as cancelled.
            self.save_ended()?;
            self.status = Status::Cancelled(reason);
            return Ok(());
        }
        if let Some(error) = self.late().map(step_timeout) {
            self.save_ended()?;
            let own = self.tasks.iter_mut().find(|task| match &task.status {
                TaskStatus::Failed(error, _) => !is_step_timeout(error),
                _ => false,
            });
            return Err(match own.map(|task| std::mem::replace(&mut task.status, TaskStatus::Due)) {
                Some(TaskStatus::Failed(error, _)) => error,
                _ => error,
            });
        }
        let stops = |task: &Task| matches!(task.status, TaskStatus::Failed(..) | TaskStatus::Left(_));
        if let Some(slot) = self.tasks.iter().position(stops) {
            self.save_ended()?;
            match std::mem::replace(&mut self.tasks[slot].status, TaskStatus::Due) {
                TaskStatus::Failed(error, _) => return Err(error),
                TaskStatus::Left(command) => self.status = Status::Left(command),
                _ => {}
            }
            return Ok(());
        }
        let drained = self.tasks.iter().find_map(|task| match &task.status {
            TaskStatus::Drained(reason) => Some(reason.clone()),
            _ => None,
        });
        if let Some(reason) = drained {
            self.save_ended()?;
            self.status = Status::Drained(reason);
            return Ok(());
        }
        let waits = self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Waiting(_)));
        if waits {
            let open = self.open_interrupts();
            self.save_ended()?;
            return self.interrupt(open);
        }
        self.next()?;
        if matches!(self.status, Status::Interrupted(_)) { Ok(()) } else { self.tick() }
    }

    /// Returns the interrupts at which the tasks of the superstep wait. Of a subgraph they include those of called
    /// tasks: its parent graph sees no other record of them, and a resume value must tell them apart.
    fn open_interrupts(&self) -> Vec<Interrupt> {
        let mut open: Vec<Interrupt> = Vec::new();
        for task in &self.tasks {
            let TaskStatus::Waiting(interrupts) = &task.status else { continue };
            let of_calls = if self.namespace.is_root() { &[] } else { task.asked_by_calls.as_slice() };
            for interrupt in of_calls.iter().chain(interrupts) {
                if of_calls.is_empty() || open.iter().all(|known| known.id != interrupt.id) {
                    open.push(interrupt.clone());
                }
            }
        }
        open
    }

    /// Applies the superstep and makes its checkpoint.
    pub(super) fn next(&mut self) -> Result<(), RunError> {
        let record = self.records();
        let mut consumed = if record { self.consumed() } else { Vec::new() };
        consumed.append(&mut self.called);
        let stops = self.breaks_after();
        let calls = std::mem::take(&mut self.call_writes);
        let applied = apply(&self.graph, &mut self.head, &mut self.tasks, calls, &mut self.changes, record);
        if let Err(error) = applied {
            // The writes of the nodes are stored though their superstep fails, if the checkpoint before it is.
            self.broken = true;
            let stored = std::mem::take(&mut self.outbox).is_empty();
            self.flush_kept()?;
            if stored && !consumed.is_empty() {
                self.commit(Vec::new(), consumed);
            }
            return Err(error);
        }
        self.head.pending.clear();
        self.replaying = false;
        if std::mem::take(&mut self.resuming) && self.namespace.is_root() {
            // A resume value is for the interrupts of the superstep that was interrupted.
            *self.scope.resume.lock() = None;
        }
        self.stored_calls = None;
        self.show_changed();
        self.checkpoint(Source::Loop, consumed);
        if stops && self.is_news() {
            self.flush()?;
            self.show_checkpoint()?;
            self.interrupt(Vec::new())?;
        }
        Ok(())
    }

    pub(super) fn breaks_after(&self) -> bool {
        let after = &self.request.after;
        let hit = |task: &Task| task.node.is_some_and(|node| after.all || after.nodes.contains(&node));
        !after.is_empty() && self.tasks.iter().any(hit)
    }

    /// Ends an interrupted run. The writes of what has ended must go together, as they will when the run goes on.
    pub(super) fn interrupt(&mut self, open: Vec<Interrupt>) -> Result<(), RunError> {
        let has_ended = |task: &Task| matches!(task.status, TaskStatus::Done(_) | TaskStatus::Handled { .. });
        if self.namespace.is_root() && (self.tasks.iter().any(has_ended) || !self.call_writes.is_empty()) {
            // The writes of ended tasks are shown, though their superstep has not ended.
            self.shown = Some(shown(&self.graph, &self.head, &self.tasks, &self.call_writes)?);
        }
        self.show_interrupted(&open);
        self.status = Status::Interrupted(open);
        Ok(())
    }
}
