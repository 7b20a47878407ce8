//! The superstep machine: facts in, effects out.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::id::NULL_TASK;
use crate::base::{CheckpointId, Encoded, IdSource, Map, Namespace, Timestamp, Value, WriteValue};
use crate::graph::{Context, ContextParts, Graph, Interrupt, ResumeOnce};
use crate::store::{Batch, NewCheckpoint, NewWrite, NewWrites, Parent, Source};

use super::apply::{Changes, apply, apply_untasked, see_all};
use super::effect::{Effect, Event, Recording, Request, Start, Status};
use super::error::RunError;
use super::head::{ERROR, Head, HeadCheckpoint, INTERRUPT, NO_WRITES, RESUME};
use super::plan::plan;
use super::task::{Task, TaskJob, TaskOutcome, TaskStatus, TaskWrite, WriteKind, command_writes};

/// One run of a graph in one namespace.
pub(crate) struct Machine {
    pub(super) graph: Arc<Graph>,
    pub(super) head: Head,
    pub(super) tasks: Vec<Task>,
    pub(super) changes: Changes,
    recording: Option<Recording>,
    namespace: Namespace,
    request: Limits,
    ids: IdSource,
    now: Timestamp,
    step: i64,
    stop: i64,
    /// The head that the next batch builds on.
    committed: Option<CheckpointId>,
    /// Checkpoints that were made and not handed out yet.
    outbox: Vec<NewCheckpoint>,
    resume: ResumeOnce,
    effects: VecDeque<Effect>,
    events: VecDeque<Event>,
    /// Batches handed out and not reported committed.
    unreported: usize,
    status: Status,
    /// Whether the stored results of the tasks are ignored: the run replays an old checkpoint.
    replaying: bool,
    /// Whether an update failed, so that the head is half changed.
    broken: bool,
}

/// What a run may do, kept from its request.
struct Limits {
    recursion_limit: u64,
    before: crate::graph::Breakpoints,
    after: crate::graph::Breakpoints,
    events: super::effect::EventMask,
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
        let limits = Limits { recursion_limit: request.recursion_limit, before, after, events: request.events };
        let step = head.step() + 1;
        let mut machine = Self {
            graph,
            namespace: request.recording.as_ref().map_or_else(Namespace::root, |r| r.namespace.clone()),
            committed: request.recording.as_ref().and_then(|recording| recording.head),
            recording: request.recording,
            request: limits,
            ids: IdSource::from_seed(request.seed),
            now,
            step,
            stop: step.saturating_add_unsigned(request.recursion_limit).saturating_add(1),
            head,
            tasks: Vec::new(),
            changes: Changes::default(),
            outbox: Vec::new(),
            resume: ResumeOnce::default(),
            effects: VecDeque::new(),
            events: VecDeque::new(),
            unreported: 0,
            status: Status::Running,
            replaying: false,
            broken: false,
        };
        machine.begin(request.start)?;
        Ok(machine)
    }

    /// Returns how far the run has come.
    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the present state.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Ends the run and gives its head back, unless that is half changed.
    pub(crate) fn finish(self) -> (Status, Option<Head>) {
        // What changed since the last checkpoint belongs to no stored head.
        let whole = !self.broken && self.outbox.is_empty() && self.changes.is_empty();
        let mut head = self.head;
        head.pending.clear();
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
        self.save_finished()
    }

    /// Returns the next event.
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
            TaskOutcome::Done { mut writes, answers } => {
                if writes.is_empty() && self.recording.is_some() {
                    // A task without writes must be seen to have ended.
                    let (kind, encoded) = (WriteKind::Trigger, Some(WriteValue::Null));
                    writes.push(TaskWrite { index: 0, channel: u32::MAX, kind, encoded });
                }
                task.status = TaskStatus::Done(writes);
                task.answers = answers;
                self.emit_update(slot, false);
            }
            TaskOutcome::Waiting { interrupt, answers } => {
                task.status = TaskStatus::Waiting(interrupt);
                task.answers = answers;
            }
            TaskOutcome::Failed(error) => task.status = TaskStatus::Failed(error),
        }
        if !self.tasks.iter().any(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Due)) {
            let ended = self.end_superstep();
            self.settle(ended);
        }
    }

    fn settle(&mut self, outcome: Result<(), RunError>) {
        if let Err(error) = outcome {
            self.status = Status::Failed(error);
        }
    }

    fn records(&self) -> bool {
        self.recording.is_some()
    }

    // ---- the beginning of a run -------------------------------------------------------------------------------

    fn begin(&mut self, start: Start) -> Result<(), RunError> {
        let addressed = self.recording.as_ref().is_some_and(|recording| recording.addressed);
        match start {
            Start::Input(writes) => self.begin_input(writes)?,
            Start::Command(command) => {
                if self.head.checkpoint.is_none() && (command.resume.is_some() || self.recording.is_none()) {
                    let error = if self.recording.is_none() { RunError::NoStore } else { RunError::EmptyInput };
                    if command.resume.is_some() {
                        return Err(error);
                    }
                }
                let resume = command.resume.clone();
                self.plan_head();
                self.check_resume(resume.as_ref())?;
                let writes = command_writes(&self.graph, command, self.ids.random())?;
                if writes.is_empty() && resume.is_none() && self.head.checkpoint.is_none() {
                    return Err(RunError::EmptyInput);
                }
                self.begin_resumed(writes, resume, addressed)?;
            }
            Start::Continue => {
                if self.head.checkpoint.is_none() {
                    return Err(RunError::EmptyInput);
                }
                self.plan_head();
                self.begin_resumed(Vec::new(), None, addressed)?;
            }
        }
        self.tick()
    }

    /// Drops what an unfinished superstep left, and takes the input.
    fn begin_input(&mut self, writes: crate::state::Writes) -> Result<(), RunError> {
        let record = self.records();
        let stored = self.stored_command_writes()?;
        if !stored.is_empty() {
            apply_untasked(&self.graph, &mut self.head, stored, NULL_TASK, &mut self.changes, record)?;
        }
        self.plan_head();
        if !self.tasks.is_empty() {
            apply(&self.graph, &mut self.head, &mut self.tasks, &mut self.changes, record)?;
        }
        self.head.pending.clear();
        let input = self.graph.input();
        self.head.version_max += 1;
        self.head.versions[input as usize] = self.head.version_max;
        self.head.present[input as usize] = true;
        self.head.updated = Some(vec![input]);
        let held = if self.graph.start.branches.is_empty() {
            // The first superstep needs no user code and is committed together with the input: its writes hold it.
            Value::Null
        } else {
            self.input_value(&writes)?
        };
        self.head.input = Some(writes);
        if record {
            let data = crate::store::batch::Data::New(Encoded::encode(&held)?.into());
            self.changes.note(input, crate::store::batch::ChangeValue::Value(data), None);
        }
        self.checkpoint(Source::Input, Vec::new());
        Ok(())
    }

    fn input_value(&self, writes: &crate::state::Writes) -> Result<Value, RunError> {
        let layout = &*self.graph.layout;
        let mut map = Map::new();
        for (field, write) in crate::state::resolve(layout, writes.clone())? {
            map.insert(layout.name(field).to_string(), layout.write_to_value(field, &write)?);
        }
        Ok(Value::Map(map))
    }

    /// Makes the tasks of the head that was loaded, with what is stored of them.
    fn plan_head(&mut self) {
        let Some(checkpoint) = self.head.checkpoint else { return };
        self.tasks = plan(&self.graph, &self.head, checkpoint.id, &self.namespace, self.step);
    }

    fn check_resume(&self, resume: Option<&Value>) -> Result<(), RunError> {
        let Some(answer) = resume else { return Ok(()) };
        if answers_by_id(answer) {
            return Ok(());
        }
        let mut ids = Vec::new();
        for task in &self.tasks {
            if let Some(pending) = self.head.pending_of(task.id).filter(|pending| !pending.is_finished()) {
                ids.extend(super::load::interrupts_of(pending).into_iter().map(|interrupt| interrupt.id));
            }
        }
        if ids.len() > 1 { Err(RunError::SeveralInterrupts { ids }) } else { Ok(()) }
    }

    fn begin_resumed(
        &mut self,
        mut writes: Vec<TaskWrite>,
        resume: Option<Value>,
        addressed: bool,
    ) -> Result<(), RunError> {
        let record = self.records();
        let latest = self.head.checkpoint.map(|c| c.id) == self.committed;
        let edited = self.head.checkpoint.is_some_and(|c| matches!(c.source, Source::Update | Source::Fork));
        // Addressing an old checkpoint without an answer replays it: everything runs again, on a fork.
        let forks = addressed && resume.is_none() && !(edited && latest);
        self.replaying = addressed && (!latest || resume.is_none());
        let mut stored = self.stored_command_writes()?;
        let first = stored.iter().map(|write| write.index + 1).max().unwrap_or(0);
        for (at, write) in writes.iter_mut().enumerate() {
            write.index = first + at as i32;
        }
        if record && !forks && (!writes.is_empty() || resume.is_some()) {
            self.save_command(&mut writes, resume.as_ref())?;
        }
        if forks {
            stored.clear();
        }
        stored.extend(writes);
        let from = if forks { self.fork_task() } else { NULL_TASK };
        let unsaved = self.unsaved(from, &mut stored);
        let changed = if stored.is_empty() {
            Vec::new()
        } else {
            apply_untasked(&self.graph, &mut self.head, stored, from, &mut self.changes, record)?
        };
        if self.head.checkpoint.is_some() {
            see_all(&self.graph, &mut self.head, &mut self.changes, record);
        }
        if forks {
            self.head.updated = None;
            self.checkpoint(Source::Fork, unsaved);
        } else if !changed.is_empty() || self.head.checkpoint.is_none() {
            let id = self.head.checkpoint.map(|c| c.id).unwrap_or_default();
            self.head.updated = None;
            self.tasks = plan(&self.graph, &self.head, id, &self.namespace, self.step);
        }
        self.take_resume(resume);
        if self.request.events.values {
            self.events.push_back(Event::Values(Arc::clone(&self.head.state)));
        }
        Ok(())
    }

    /// The writes of earlier commands on this head, which are applied again each time it is loaded.
    fn stored_command_writes(&self) -> Result<Vec<TaskWrite>, RunError> {
        match self.head.pending_of(NULL_TASK) {
            Some(pending) => super::load::task_writes(&self.graph, pending),
            None => Ok(Vec::new()),
        }
    }

    /// The writes of a replayed command belong to a task of their own, so that they touch nothing stored.
    fn fork_task(&mut self) -> crate::base::TaskId {
        crate::base::TaskId::from_bytes(self.ids.uuid_v4().into_bytes())
    }

    fn unsaved(&self, from: crate::base::TaskId, writes: &mut [TaskWrite]) -> Vec<NewWrites> {
        let Some(checkpoint) = self.head.checkpoint.filter(|_| self.records()) else { return Vec::new() };
        let writes = new_writes(&self.graph, writes);
        if writes.is_empty() {
            return Vec::new();
        }
        vec![NewWrites { checkpoint: checkpoint.id, task: from, path: "".into(), writes }]
    }

    fn save_command(&mut self, writes: &mut [TaskWrite], resume: Option<&Value>) -> Result<(), RunError> {
        let Some(checkpoint) = self.head.checkpoint else { return Ok(()) };
        let mut saved = new_writes(&self.graph, writes);
        if let Some(answer) = resume.filter(|answer| !answers_by_id(answer)) {
            let value = WriteValue::One(Encoded::encode(answer)?.into());
            saved.push(NewWrite { index: RESUME.1, channel: RESUME.0.into(), value });
        }
        if !saved.is_empty() {
            let writes = NewWrites { checkpoint: checkpoint.id, task: NULL_TASK, path: "".into(), writes: saved };
            self.commit(Vec::new(), vec![writes]);
        }
        Ok(())
    }

    /// Keeps the answers for the tasks that ask: one for whoever asks first, or those of a map by their ids.
    fn take_resume(&mut self, resume: Option<Value>) {
        let keep_answers = !self.replaying || resume.is_some();
        let (namespace, graph) = (&self.namespace, &self.graph);
        for task in &mut self.tasks {
            if let Some(pending) = self.head.pending_of(task.id).filter(|_| keep_answers) {
                task.answers = super::load::answers_of(pending);
            }
            if let Some(answers) = resume.as_ref().filter(|answer| answers_by_id(answer)) {
                let place = crate::graph::task_namespace(namespace, task.name(graph), task.id);
                let id = crate::graph::interrupt_id(&place, task.answers.len());
                let first = crate::graph::interrupt_id(&place, 0);
                task.answers.extend(answers.get(&id).or_else(|| answers.get(&first)).cloned());
            }
        }
        let stored =
            self.head.pending_of(NULL_TASK).and_then(|pending| super::load::answers_of(pending).into_iter().next());
        *self.resume.lock() = resume.filter(|answer| !answers_by_id(answer)).or(stored.filter(|_| keep_answers));
    }

    // ---- supersteps -------------------------------------------------------------------------------------------

    fn tick(&mut self) -> Result<(), RunError> {
        loop {
            if self.step > self.stop {
                self.flush();
                return Err(RunError::RecursionLimit { limit: self.request.recursion_limit });
            }
            if self.tasks.is_empty() {
                self.flush();
                self.status = Status::Done;
                return Ok(());
            }
            self.restore()?;
            if self.breaks(&self.request.before.clone()) {
                self.flush();
                self.interrupt(Vec::new());
                return Ok(());
            }
            let only_input = matches!(self.tasks.as_slice(), [task] if task.node.is_none());
            if only_input && self.graph.start.branches.is_empty() && self.tasks[0].push.is_none() {
                // The input needs no user code: its superstep goes into the same batch.
                let job = self.job(0);
                match super::task::run(job) {
                    TaskOutcome::Done { writes, .. } => self.tasks[0].status = TaskStatus::Done(writes),
                    TaskOutcome::Failed(error) => return Err(error),
                    TaskOutcome::Waiting { .. } => return Err(RunError::Waiting),
                }
                self.next()?;
            } else if self.tasks.iter().all(Task::is_done) {
                self.next()?;
            } else {
                self.start_due();
                return Ok(());
            }
            if matches!(self.status, Status::Interrupted(_)) {
                return Ok(());
            }
        }
    }

    /// Starts the tasks that have to run, once everything before them is committed.
    fn start_due(&mut self) {
        self.flush();
        for slot in 0..self.tasks.len() {
            if matches!(self.tasks[slot].status, TaskStatus::Due) {
                let job = self.job(slot);
                self.tasks[slot].status = TaskStatus::Running;
                self.effects.push_back(Effect::Start(Box::new(job)));
            }
        }
    }

    /// Gives tasks that have ended before what they wrote.
    fn restore(&mut self) -> Result<(), RunError> {
        if self.replaying || self.head.pending.is_empty() {
            return Ok(());
        }
        for slot in 0..self.tasks.len() {
            let id = self.tasks[slot].id;
            if let Some(pending) = self.head.pending_of(id).filter(|pending| pending.is_finished()) {
                let writes = super::load::task_writes(&self.graph, pending)?;
                let task = &mut self.tasks[slot];
                task.status = TaskStatus::Done(writes);
                task.saved = true;
                task.restored = true;
                self.emit_update(slot, true);
            }
        }
        Ok(())
    }

    fn breaks(&self, breakpoints: &crate::graph::Breakpoints) -> bool {
        if breakpoints.is_empty() || !self.is_news() {
            return false;
        }
        let hit = |task: &Task| task.node.is_some_and(|node| breakpoints.all || breakpoints.nodes.contains(&node));
        self.tasks.iter().any(hit)
    }

    /// Whether anything changed since the run was last continued.
    fn is_news(&self) -> bool {
        let seen = |channel: usize| {
            let seen = self.head.interrupt_seen.iter().find(|(known, _)| *known as usize == channel);
            seen.map_or(0, |(_, version)| *version)
        };
        self.head.versions.iter().enumerate().any(|(channel, version)| *version > seen(channel))
    }

    fn job(&mut self, slot: usize) -> TaskJob {
        let task = &self.tasks[slot];
        let takes_value = task.node.is_some_and(|node| self.graph.nodes[node].body.takes == crate::graph::Takes::Value);
        let asked = crate::graph::Asked { answers: task.answers.clone(), ..Default::default() };
        let context = Context::new(ContextParts {
            thread: self.recording.as_ref().map(|recording| recording.thread.clone()),
            namespace: self.namespace.clone(),
            checkpoint: self.head.checkpoint.filter(|_| self.recording.is_some()).map(|checkpoint| checkpoint.id),
            task: task.id,
            node: match task.node {
                Some(node) => Arc::clone(&self.graph.nodes[node].name),
                None => Arc::clone(&self.graph.channels[self.graph.input() as usize]),
            },
            step: self.step,
            stop: self.stop,
            resume: Arc::clone(&self.resume),
            asked: parking_lot::Mutex::new(asked),
        });
        TaskJob {
            slot,
            node: task.node,
            arg: task.push.as_ref().map(|(_, arg)| arg.clone()),
            input: if task.node.is_none() { self.head.input.clone() } else { None },
            state: Arc::clone(&self.head.state),
            present: takes_value.then(|| self.head.present.as_slice().into()),
            context,
            record: self.records(),
            seed: self.ids.random(),
            graph: Arc::clone(&self.graph),
        }
    }

    /// All tasks of the superstep have ended, one way or another.
    fn end_superstep(&mut self) -> Result<(), RunError> {
        if let Some(slot) = self.tasks.iter().position(|task| matches!(task.status, TaskStatus::Failed(_))) {
            self.save_ended()?;
            let failed = std::mem::replace(&mut self.tasks[slot].status, TaskStatus::Due);
            return match failed {
                TaskStatus::Failed(error) => Err(error),
                _ => Ok(()),
            };
        }
        let open: Vec<Interrupt> = self
            .tasks
            .iter()
            .filter_map(|task| match &task.status {
                TaskStatus::Waiting(interrupt) => Some(interrupt.clone()),
                _ => None,
            })
            .collect();
        if !open.is_empty() {
            self.save_ended()?;
            self.interrupt(open);
            return Ok(());
        }
        self.next()?;
        if matches!(self.status, Status::Interrupted(_)) { Ok(()) } else { self.tick() }
    }

    /// Applies the superstep and makes its checkpoint.
    fn next(&mut self) -> Result<(), RunError> {
        let record = self.records();
        let consumed = if record { self.consumed() } else { Vec::new() };
        let stops = self.breaks_after();
        let updated = match apply(&self.graph, &mut self.head, &mut self.tasks, &mut self.changes, record) {
            Ok(updated) => updated,
            Err(error) => {
                // What the nodes did is kept, though it makes no superstep.
                self.broken = true;
                self.outbox.clear();
                if !consumed.is_empty() {
                    self.commit(Vec::new(), consumed);
                }
                return Err(error);
            }
        };
        self.head.pending.clear();
        self.replaying = false;
        if self.request.events.values && updated.iter().any(|channel| self.graph.is_field(*channel)) {
            self.events.push_back(Event::Values(Arc::clone(&self.head.state)));
        }
        self.checkpoint(Source::Loop, consumed);
        if stops && self.is_news() {
            self.flush();
            self.interrupt(Vec::new());
        }
        Ok(())
    }

    fn breaks_after(&self) -> bool {
        let after = &self.request.after;
        let hit = |task: &Task| task.node.is_some_and(|node| after.all || after.nodes.contains(&node));
        !after.is_empty() && self.tasks.iter().any(hit)
    }

    fn interrupt(&mut self, open: Vec<Interrupt>) {
        if self.request.events.updates {
            self.events.push_back(Event::Interrupts(open.clone()));
        }
        self.status = Status::Interrupted(open);
    }

    // ---- what is stored ---------------------------------------------------------------------------------------

    /// Makes the checkpoint of the present state, and the tasks that are due at it.
    fn checkpoint(&mut self, source: Source, consumed: Vec<NewWrites>) {
        let step = self.step;
        let parent = self.head.checkpoint.map(|checkpoint| checkpoint.id);
        let after = parent.max(self.committed);
        let id = self.ids.checkpoint(self.now, step, after.as_ref());
        self.head.checkpoint = Some(HeadCheckpoint { id, step, source });
        self.step += 1;
        self.tasks = plan(&self.graph, &self.head, id, &self.namespace, self.step);
        self.head.recorded.clear();
        self.head.recorded.extend(self.tasks.iter().map(|task| task.id));
        let Some(recording) = &self.recording else { return };
        let (changes, seen) = self.changes.take(&self.graph, &self.head);
        self.outbox.push(NewCheckpoint {
            id,
            parent: parent.map(Parent::Local),
            step,
            source,
            created_at: self.now,
            run: Some(recording.run),
            metadata: recording.metadata.clone(),
            tasks: self.tasks.iter().map(|task| task.record(&self.graph)).collect(),
            consumed,
            changes,
            seen,
        });
    }

    /// Hands the checkpoints out that were made.
    fn flush(&mut self) {
        if !self.outbox.is_empty() {
            let checkpoints = std::mem::take(&mut self.outbox);
            self.commit(checkpoints, Vec::new());
        }
    }

    fn commit(&mut self, checkpoints: Vec<NewCheckpoint>, writes: Vec<NewWrites>) {
        let Some(recording) = &self.recording else { return };
        let mut batch = Batch::new(recording.thread.clone(), recording.namespace.clone(), self.committed);
        batch.checkpoints = checkpoints;
        batch.writes = writes;
        self.committed = batch.head_after();
        self.unreported += 1;
        self.effects.push_back(Effect::Commit(batch));
    }

    /// The writes of the superstep that are not stored yet: they go into the commit of its checkpoint.
    fn consumed(&mut self) -> Vec<NewWrites> {
        let mut consumed = Vec::new();
        for slot in 0..self.tasks.len() {
            if !self.tasks[slot].saved
                && let Some(writes) = self.task_writes(slot)
            {
                consumed.push(writes);
            }
        }
        consumed
    }

    /// Stores what has ended while siblings still run.
    fn save_finished(&mut self) -> Option<Effect> {
        self.recording.as_ref()?;
        if !matches!(self.status, Status::Running)
            || !self.tasks.iter().any(|t| matches!(t.status, TaskStatus::Running))
        {
            return None;
        }
        let ended = (0..self.tasks.len()).filter(|slot| self.tasks[*slot].is_done() && !self.tasks[*slot].saved);
        let ended: Vec<usize> = ended.collect();
        if ended.is_empty() {
            return None;
        }
        let writes = ended.into_iter().filter_map(|slot| self.task_writes(slot)).collect();
        self.commit(Vec::new(), writes);
        self.effects.pop_front()
    }

    /// Stores everything about a superstep that did not come to its end.
    fn save_ended(&mut self) -> Result<(), RunError> {
        if !self.records() {
            return Ok(());
        }
        let mut writes = Vec::new();
        for slot in 0..self.tasks.len() {
            if !self.tasks[slot].saved {
                writes.extend(self.task_writes(slot));
            }
        }
        if !writes.is_empty() {
            self.commit(Vec::new(), writes);
        }
        Ok(())
    }

    /// Takes the writes of a task for storing, and counts them as stored.
    fn task_writes(&mut self, slot: usize) -> Option<NewWrites> {
        let checkpoint = self.head.checkpoint?;
        let path = self.tasks[slot].record(&self.graph).path();
        let task = &mut self.tasks[slot];
        let mut writes = match &mut task.status {
            TaskStatus::Done(writes) => new_writes(&self.graph, writes),
            TaskStatus::Waiting(interrupt) => vec![special(INTERRUPT, &[stored_interrupt(interrupt)] as &[Value])],
            TaskStatus::Failed(error) => vec![special(ERROR, &Value::from(error.to_string()))],
            TaskStatus::Due | TaskStatus::Running => return None,
        };
        if !task.answers.is_empty() && !task.restored {
            writes.push(special(RESUME, &Value::List(task.answers.clone())));
        }
        task.saved = true;
        (!writes.is_empty()).then_some(NewWrites { checkpoint: checkpoint.id, task: task.id, path, writes })
    }

    fn emit_update(&mut self, slot: usize, cached: bool) {
        if !self.request.events.updates {
            return;
        }
        let (TaskStatus::Done(writes), Some(node)) = (&self.tasks[slot].status, self.tasks[slot].node) else { return };
        let layout = &*self.graph.layout;
        let mut update = Map::new();
        for write in writes {
            if let WriteKind::Field(Some(value)) = &write.kind {
                let shown = layout.write_to_value(write.channel as usize, value).unwrap_or(Value::Null);
                update.insert(layout.name(write.channel as usize).to_string(), shown);
            }
        }
        let node = self.graph.nodes[node].name.to_string();
        self.events.push_back(Event::Updates { node, update, cached });
    }
}

/// An interrupt as it is stored: a map of value and id.
fn stored_interrupt(interrupt: &Interrupt) -> Value {
    let members = [("value".to_string(), interrupt.value.clone()), ("id".to_string(), interrupt.id.as_str().into())];
    Value::Map(members.into_iter().collect())
}

fn special<T: serde::Serialize + ?Sized>((channel, index): (&str, i32), value: &T) -> NewWrite {
    // Dynamic values always encode; null stands in if one is beyond the limits.
    let value = Encoded::encode(value).map_or(WriteValue::Null, |encoded| WriteValue::One(encoded.into()));
    NewWrite { index, channel: channel.into(), value }
}

/// Takes the bytes of writes out, to be stored.
fn new_writes(graph: &Graph, writes: &mut [TaskWrite]) -> Vec<NewWrite> {
    let name = |channel: u32| graph.channels.get(channel as usize).cloned().unwrap_or_else(|| NO_WRITES.into());
    writes
        .iter_mut()
        .filter_map(|write| {
            let value = write.encoded.take()?;
            Some(NewWrite { index: write.index, channel: name(write.channel), value })
        })
        .collect()
}

/// Whether an answer is a map from the ids of questions to answers.
fn answers_by_id(answer: &Value) -> bool {
    let is_id = |name: &String| name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    answer.as_map().is_some_and(|map| map.keys().all(is_id))
}
