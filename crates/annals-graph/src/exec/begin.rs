//! Begins a run: takes an input, a command or a resume value, or continues an earlier run.

use annals_runs::{SpecialWrite, check_resume_value};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::NULL_TASK;
use crate::base::{CheckpointId, Encoded, Map, TaskId, Timestamp, Value, WriteValue};
use crate::graph::{Command, NodeOutput};
use crate::panicking::panic_text;
use crate::state::Writes;
use crate::state::erased::resolve;
use crate::store::Source;
use crate::store::batch::NewWrites;
use crate::task::Interrupt;

use super::apply::{abandon, apply_untasked, see_all};
use super::before::Before;
use super::effect::{RunStart, Status};
use super::error::{ResumeProblem, RunError};
use super::exit::Saving;
use super::head::PendingWrites;
use super::load::{asleep_of, interrupts_of};
use super::machine::Machine;
use super::plan::{Order, plan};
use super::save::new_writes;
use super::task::{StepTask, TaskWrite, command_writes, encode_stored, own_writes};

impl Machine {
    pub(super) fn begin(&mut self, start: RunStart) -> Result<(), RunError> {
        self.origin.before = Before::of(&self.graph, &self.head);
        if matches!(start, RunStart::Repeat(_) | RunStart::Show) {
            self.origin.before.repeats = self.head.checkpoint.map(|checkpoint| checkpoint.id);
        }
        let addressed = self.commits.recording.as_ref().is_some_and(|recording| recording.addressed);
        match start {
            RunStart::Input(writes) => self.begin_input(NodeOutput::update(writes))?,
            RunStart::Command(command) => self.begin_command(command, addressed)?,
            RunStart::Continue => {
                if self.head.is_blank() {
                    return Err(RunError::EmptyInput);
                }
                self.plan_head();
                self.begin_resumed(Vec::new(), None, addressed)?;
            }
            RunStart::Inside { input, resuming } => self.begin_inside(input, resuming)?,
            RunStart::Repeat(resume_values) => {
                self.planning.repeats = true;
                self.plan_head();
                self.begin_resumed(Vec::new(), resume_values, false)?;
            }
            RunStart::Show => {
                self.plan_head();
                self.show_values(&[]);
                self.status =
                    if self.planning.tasks.is_empty() { Status::Done } else { Status::Interrupted(self.head.asked()) };
                return Ok(());
            }
        }
        // From here on, events and writes are handed out even if the first superstep fails at once.
        let ticked = self.tick();
        self.settle(ticked);
        Ok(())
    }

    /// Takes a command. On a blank head it is the input as well, as in the reference.
    fn begin_command(&mut self, mut command: Command, addressed: bool) -> Result<(), RunError> {
        // Null is not a resume value.
        let resume = command.resume.take().filter(|value| !value.is_null());
        if resume.is_some() && !self.records() {
            return Err(RunError::NoStore);
        }
        if command.parent {
            return Err(RunError::NoParentGraph);
        }
        if command.update.is_empty() && command.goto.is_empty() && resume.is_none() {
            return Err(RunError::EmptyInput);
        }
        self.check_seen(&command.seen)?;
        self.check_resume(resume.as_ref(), addressed)?;
        command.update = resolve(&*self.graph.layout, command.update)?;
        let seed = self.ids.random();
        let mut writes = command_writes(&self.graph, command.clone(), seed)?;
        if !self.head.is_blank() {
            self.plan_head();
            return self.begin_resumed(writes, resume, addressed);
        }
        let record = self.records();
        if record {
            // The head does not have a checkpoint yet to store the writes with.
            let (checkpoint, unsaved) = (CheckpointId::default(), new_writes(&self.graph, &mut writes));
            self.commits.unsaved.push(NewWrites::new(checkpoint, NULL_TASK, "").with(unsaved));
        }
        apply_untasked(&self.graph, &mut self.head, writes, NULL_TASK, &mut self.changes, record)?;
        self.begin_input(NodeOutput { writes: Writes::default(), commands: vec![command] })
    }

    /// Begins the run of a subgraph.
    fn begin_inside(&mut self, input: Writes, resuming: bool) -> Result<(), RunError> {
        if !resuming || self.head.checkpoint.is_none() {
            return self.begin_input(NodeOutput::update(input));
        }
        self.plan_head();
        let addressed = self.commits.recording.as_ref().is_some_and(|recording| recording.addressed);
        self.begin_resumed(Vec::new(), None, addressed)
    }

    /// Abandons an unfinished superstep, and takes the input, whose writes are resolved.
    pub(super) fn begin_input(&mut self, output: NodeOutput) -> Result<(), RunError> {
        let record = self.records();
        let stored = self.stored_command_writes()?;
        let before = self.head.updated.clone();
        let changed = self.apply_stored(stored)?;
        // The tasks of the unfinished superstep are still due, besides those that the commands made due.
        self.head.updated = before.map(|before| before.into_iter().chain(changed).collect());
        self.plan_head();
        if !self.planning.tasks.is_empty() {
            abandon(&self.graph, &mut self.head, &mut self.planning.tasks, &mut self.changes, record)?;
        }
        self.head.pending.clear();
        if self.graph.entry {
            super::entry::take(&self.graph, &mut self.head, output.writes, &mut self.changes)?;
            self.checkpoint(Source::Input, Vec::new());
            return Ok(());
        }
        let input = self.graph.input();
        self.head.version_max += 1;
        self.head.versions[input as usize] = self.head.version_max;
        self.head.present[input as usize] = true;
        self.head.updated = Some(vec![input]);
        self.head.input = Some(output);
        if record {
            // The value is left out: the writes of the input task hold it, which mostly share the commit of the
            // checkpoint. `Machine::store_input` adds it if the checkpoint is committed before that task has run.
            let data = crate::store::batch::Data::New(Encoded::encode(&Value::Null)?.into());
            self.changes.note(input, crate::store::batch::ChangeValue::Value(data), None);
        }
        self.checkpoint(Source::Input, Vec::new());
        Ok(())
    }

    /// Returns the writes of the input task.
    pub(super) fn input_task(&mut self) -> Result<Vec<TaskWrite>, RunError> {
        // A checkpoint that is held back needs the input again, should its task fail.
        let is_last = self.commits.saving == Saving::Steps;
        let input = if is_last { self.head.input.take() } else { self.head.input.clone() }.unwrap_or_default();
        let (graph, seed) = (&*self.graph, self.ids.random());
        let name = &graph.channels[graph.input() as usize];
        let made = catch_unwind(AssertUnwindSafe(|| own_writes(graph, None, name, Writes::default(), input, seed)));
        let mut writes = made.unwrap_or_else(|panic| {
            Err(RunError::NodePanicked { node: name.to_string(), reason: panic_text(&*panic) })
        })?;
        if self.records() {
            encode_stored(graph, &mut writes)?;
        }
        Ok(writes)
    }

    /// Plans the tasks of the loaded head.
    pub(super) fn plan_head(&mut self) {
        let id = self.head.checkpoint.map(|checkpoint| checkpoint.id).unwrap_or_default();
        self.planning.tasks = plan(&self.graph, &self.head, id, &self.env.namespace, self.planning.step, Order::Run);
    }

    /// Rejects a command that was given for other interrupts than those that are open.
    fn check_seen(&self, seen: &[(String, String)]) -> Result<(), RunError> {
        if seen.is_empty() {
            return Ok(());
        }
        let open = self.head.open();
        let is_open = |(id, hash): &&(String, String)| {
            open.iter().any(|interrupt| interrupt.id == *id && interrupt.hash() == *hash)
        };
        let changed: Vec<String> = seen.iter().filter(|seen| !is_open(seen)).map(|(id, _)| id.clone()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let pending = open.into_iter().map(|interrupt| interrupt.id).collect();
        Err(RunError::UnknownInterrupt { problem: ResumeProblem::Changed { ids: changed }, pending })
    }

    /// Returns whether the run begins at the end of a branch that is the head of its namespace.
    pub(super) fn is_latest(&self) -> bool {
        let is_continued = self.commits.recording.as_ref().is_some_and(|recording| recording.is_continued);
        self.head.checkpoint.map(|c| c.id) == self.commits.head && !is_continued
    }

    /// Rejects a resume value that does not say which of several interrupts it is for and, if the run is strict, one
    /// that does not match an open interrupt. At an addressed checkpoint that is not the newest the tasks may raise
    /// their interrupts again: there a strict run rejects only a value for an interrupt that was resumed before.
    fn check_resume(&self, resume: Option<&Value>, addressed: bool) -> Result<(), RunError> {
        let Some(value) = resume else { return Ok(()) };
        let latest = self.is_latest();
        let strict = self.env.strict_resume && (latest || !addressed);
        let mut open = self.head.open();
        let ids_of = |open: &[Interrupt]| open.iter().map(|interrupt| interrupt.id.clone()).collect();
        let ids: Vec<String> = ids_of(&open);
        // A sleeping task can be woken by id, but does not wait for a resume value.
        open.retain(|interrupt| interrupt.wake_at.is_none());
        let problem = match resume_values_by_id(value) {
            None if open.len() > 1 && !strict => return Err(RunError::SeveralInterrupts { ids: ids_of(&open) }),
            None if open.len() > 1 => ResumeProblem::Ambiguous,
            Some(resume_values) if strict && resume_values.is_empty() => ResumeProblem::EmptyMap,
            Some(resume_values) if strict && resume_values.keys().any(|id| !ids.contains(id)) => {
                let unknown = resume_values.keys().filter(|id| !ids.contains(id));
                ResumeProblem::NotPending { ids: unknown.cloned().collect() }
            }
            given if self.env.strict_resume && !strict => match self.resumed_before(given, &open) {
                resumed if resumed.is_empty() => return check_resume_values(&open, value),
                resumed => ResumeProblem::Resumed { ids: resumed },
            },
            _ => return check_resume_values(&open, value),
        };
        Err(RunError::UnknownInterrupt { problem, pending: ids })
    }

    /// Returns the interrupts of ended tasks that a resume value is for: those that it names or, if it names none and
    /// no interrupt is open, all.
    fn resumed_before(&self, given: Option<&Map>, open: &[Interrupt]) -> Vec<String> {
        let ended = self.head.pending.iter().filter(|pending| pending.task != NULL_TASK && pending.is_finished());
        let asked = ended.flat_map(interrupts_of).filter(|interrupt| interrupt.wake_at.is_none());
        let is_given = |interrupt: &Interrupt| match given {
            Some(resume_values) => resume_values.contains_key(&interrupt.id),
            None => open.is_empty(),
        };
        asked.filter(is_given).map(|interrupt| interrupt.id).collect()
    }

    pub(super) fn begin_resumed(
        &mut self,
        mut writes: Vec<TaskWrite>,
        resume: Option<Value>,
        addressed: bool,
    ) -> Result<(), RunError> {
        let record = self.records();
        self.planning.resuming = true;
        let latest = self.is_latest();
        let edited = self.head.checkpoint.is_some_and(|c| matches!(c.source, Source::Update | Source::Fork));
        // Addressing an old checkpoint without a resume value replays it: all tasks run again, on a fork. A head that
        // was moved back is asked again, and the values stored there stay those of the branch that was left.
        let anew = self.is_anew();
        let forks = addressed && (resume.is_none() || anew) && !(edited && latest);
        self.planning.replaying = addressed && (!latest || resume.is_none());
        let stored = self.stored_command_writes()?;
        let first = stored.iter().map(|write| write.index + 1).max().unwrap_or(0);
        for (at, write) in writes.iter_mut().enumerate() {
            write.index = first + at as i32;
        }
        if record && !forks && (!writes.is_empty() || resume.is_some()) {
            self.save_command(&mut writes, resume.as_ref())?;
        }
        // Further writes replace a resume value that an earlier command left.
        let keeps_value = writes.is_empty() || forks;
        let from = if forks { self.fork_task() } else { NULL_TASK };
        let unsaved = self.fork_writes(from, &mut writes);
        let before = self.head.updated.clone();
        let mut changed = self.apply_stored(stored)?;
        if !writes.is_empty() {
            changed.extend(apply_untasked(&self.graph, &mut self.head, writes, from, &mut self.changes, record)?);
        }
        // The channels that the checkpoint changed still count as updated for its tasks.
        self.head.updated = before.map(|before| before.into_iter().chain(changed.iter().copied()).collect());
        // A repeated run does not pass the breakpoint at which the earlier run stopped.
        if self.head.checkpoint.is_some() && !self.planning.repeats {
            see_all(&self.graph, &mut self.head, &mut self.changes, record);
        }
        let before_fork: Vec<_> = self.planning.tasks.iter().map(|task| task.id).filter(|_| forks && anew).collect();
        if forks {
            self.checkpoint(Source::Fork, unsaved);
            if resume.is_some() && record && self.commits.saving == Saving::Steps {
                self.flush()?;
                self.save_command(&mut [], resume.as_ref())?;
            }
        } else if !changed.is_empty() || self.head.checkpoint.is_none() {
            let id = self.head.checkpoint.map(|c| c.id).unwrap_or_default();
            self.planning.tasks =
                plan(&self.graph, &self.head, id, &self.env.namespace, self.planning.step, Order::Run);
        }
        self.take_resume(resume, keeps_value, &before_fork);
        self.show_values(&[]);
        Ok(())
    }

    /// The writes of earlier commands on this head, which are applied again each time it is loaded.
    pub(super) fn stored_command_writes(&self) -> Result<Vec<TaskWrite>, RunError> {
        match self.head.pending_of(NULL_TASK) {
            Some(pending) => super::load::task_writes(&self.graph, pending),
            None => Ok(Vec::new()),
        }
    }

    /// Applies the writes of earlier commands. They do not count as writes of this run.
    fn apply_stored(&mut self, stored: Vec<TaskWrite>) -> Result<Vec<u32>, RunError> {
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let record = self.records();
        let changed = apply_untasked(&self.graph, &mut self.head, stored, NULL_TASK, &mut self.changes, record)?;
        let repeats = self.origin.before.repeats;
        self.origin.before = Before::of(&self.graph, &self.head);
        self.origin.before.repeats = repeats;
        Ok(changed)
    }

    /// The writes of a replayed command belong to a task of their own, so that they touch nothing stored.
    pub(super) fn fork_task(&mut self) -> crate::base::TaskId {
        crate::base::TaskId::from_bytes(self.ids.uuid_v4().into_bytes())
    }

    fn fork_writes(&self, from: crate::base::TaskId, writes: &mut [TaskWrite]) -> Vec<NewWrites> {
        let Some(checkpoint) = self.head.checkpoint.filter(|_| self.records()) else { return Vec::new() };
        let writes = new_writes(&self.graph, writes);
        if writes.is_empty() {
            return Vec::new();
        }
        vec![NewWrites::new(checkpoint.id, from, "").with(writes)]
    }

    pub(super) fn save_command(&mut self, writes: &mut [TaskWrite], resume: Option<&Value>) -> Result<(), RunError> {
        let Some(checkpoint) = self.head.checkpoint else { return Ok(()) };
        let mut saved = new_writes(&self.graph, writes);
        if let Some(value) = resume.filter(|value| resume_values_by_id(value).is_none()) {
            let value = WriteValue::One(Encoded::encode(value)?.into());
            saved.push(SpecialWrite::Resume.write(value));
        }
        saved.extend(self.key_write());
        if !saved.is_empty() {
            let writes = NewWrites::new(checkpoint.id, NULL_TASK, "").with(saved);
            if self.commits.saving == Saving::Steps {
                self.commit(Vec::new(), vec![writes]);
            } else {
                self.commits.unsaved.push(writes);
            }
        }
        Ok(())
    }

    /// Retains the resume values for the tasks that interrupt: one value for the only open interrupt, else for the
    /// first one, or a map by interrupt ids. A task that gets one may be tried as often as at first. `before_fork` are
    /// the ids that the tasks had before a fork; their interrupts may be named by them.
    pub(super) fn take_resume(&mut self, resume: Option<Value>, keeps_value: bool, before_fork: &[TaskId]) {
        // At a checkpoint that the caller names the stored values are taken first, as in the reference.
        let keeps_stored = !self.is_anew() && (!self.planning.replaying || resume.is_some());
        if keeps_stored {
            self.calls.stored = super::call::stored_calls(&self.head, !self.planning.replaying);
        }
        self.set_resume(resume, keeps_stored && keeps_value && !self.planning.repeats, before_fork);
        let asks_for_value = self.env.scope.resume.lock().is_set();
        let (namespace, graph) = (&self.env.namespace, &self.graph);
        for (slot, task) in self.planning.tasks.iter_mut().enumerate() {
            if let Some(pending) = self.head.pending_of(task.id).filter(|_| keeps_stored) {
                task.resume_values = super::load::resume_values_of(pending);
                if !self.planning.replaying {
                    task.take_attempts(pending);
                }
            }
            let id = before_fork.get(slot).copied().unwrap_or(task.id);
            let place = crate::task::task_namespace(namespace, task.name(graph), id);
            let known = task.resume_values.len();
            task.resume_values.extend(self.env.scope.resume_value_of(&place, known).cloned());
            task.resumed = task.resume_values.len() > known;
            let is_resumed = |pending| task.resumed || (asks_for_value && is_asking(pending));
            if self.head.pending_of(task.id).is_some_and(is_resumed)
                && let Some(extra) = task.extra.as_deref_mut()
            {
                extra.attempts.renew();
            }
        }
    }

    /// Sets the resume value of the run that names no interrupt: the new one, else one that an earlier command left and
    /// the run `keeps`. The outermost graph holds it for all.
    fn set_resume(&mut self, resume: Option<Value>, keeps: bool, before_fork: &[TaskId]) {
        if !self.env.namespace.is_root() {
            return;
        }
        let stored = self
            .head
            .pending_of(NULL_TASK)
            .and_then(|pending| super::load::resume_values_of(pending).into_iter().next())
            // A map by ids was stored from outside, and is part of the scope.
            .filter(|value| resume_values_by_id(value).is_none());
        let value = resume
            .filter(|value| resume_values_by_id(value).is_none())
            .or(stored.filter(|_| keeps && !self.is_asleep()));
        let task = self.only_asking().filter(|_| !self.planning.replaying && before_fork.is_empty());
        self.env.scope.resume.lock().set(value, task);
    }

    /// Returns the task with the only open interrupt, sleeps aside.
    fn only_asking(&self) -> Option<TaskId> {
        let open = self.head.open();
        let mut asking = open.iter().filter(|interrupt| interrupt.wake_at.is_none());
        let (Some(only), None) = (asking.next(), asking.next()) else { return None };
        let holds = |pending: &PendingWrites| interrupts_of(pending).iter().any(|own| own.id == only.id);
        let tasks = self.planning.tasks.iter().map(|task| task.id);
        tasks.into_iter().find(|task| self.head.pending_of(*task).is_some_and(holds))
    }

    /// Returns whether the run begins on a head that was moved back, and this is its first superstep.
    fn is_anew(&self) -> bool {
        self.env.scope.anew && self.env.above.as_ref().is_none_or(|above| above.parts().resuming)
    }

    /// Returns whether all interrupts that an earlier run left open are sleeps: a stored resume value was then taken
    /// before.
    fn is_asleep(&self) -> bool {
        self.head.is_asleep()
    }

    /// Returns the interrupts at which a task fell asleep in an earlier run.
    pub(super) fn asleep(&self, task: &StepTask) -> Vec<(String, Timestamp)> {
        let pending = self.head.pending_of(task.id).filter(|_| !self.planning.replaying);
        pending.map(asleep_of).unwrap_or_default()
    }
}

/// Returns whether a task waits for a resume value.
pub(super) fn is_asking(pending: &PendingWrites) -> bool {
    !pending.is_finished() && interrupts_of(pending).iter().any(|interrupt| interrupt.wake_at.is_none())
}

/// Rejects resume values that do not match the response schemas of their interrupts.
fn check_resume_values(open: &[Interrupt], value: &Value) -> Result<(), RunError> {
    for interrupt in open {
        let value = match resume_values_by_id(value) {
            Some(resume_values) => resume_values.get(&interrupt.id),
            None => Some(value),
        };
        if let (Some(schema), Some(value)) = (&interrupt.response_schema, value) {
            check_resume_value(schema, value, &interrupt.id)?;
        }
    }
    Ok(())
}

/// Returns the resume values if they are a map from interrupt ids. An empty map is one.
pub(crate) fn resume_values_by_id(value: &Value) -> Option<&Map> {
    let is_id = |name: &String| name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    value.as_map().filter(|map| map.keys().all(is_id))
}
