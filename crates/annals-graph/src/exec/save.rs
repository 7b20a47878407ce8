//! Builds the batches of a run: checkpoints and the writes of tasks.

use annals_runs::{SpecialWrite, interrupts_write};
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::{CheckpointId, Encoded, Value, WriteValue};
use crate::graph::Graph;
use crate::limits::GRAPH_CODE_STEPS;
use crate::store::Source;
use crate::store::batch::{ChangeValue, Data, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent};
use crate::store::record::TaskRecord;
use crate::task::Interrupt;

use super::effect::{Effect, EventKind, Status};
use super::error::RunError;
use super::exit::{Saving, fold, hold};
use super::head::{HeadCheckpoint, NO_WRITES, PendingWrites};
use super::input::input_value;
use super::load::{asleep_of, given_of, special_of};
use super::machine::Machine;
use super::plan::{Order, plan_into};
use super::shown::DebugPayload;
use super::task::{StepTask, TaskStatus, TaskWrite};

impl Machine {
    /// Makes the checkpoint of the present state, and the tasks that are due at it.
    pub(super) fn checkpoint(&mut self, source: Source, consumed: Vec<NewWrites>) {
        let step = self.planning.step;
        let parent = self.head.checkpoint.map(|checkpoint| checkpoint.id);
        let around = self.commits.recording.as_ref().and_then(|recording| Some(recording.parents.last()?.1));
        let after = parent.max(self.commits.head).max(around);
        let id = self.ids.checkpoint(self.now, step, after.as_ref());
        debug_assert!(after.is_none_or(|after| id > after), "ids of checkpoints grow");
        self.head.parent = parent;
        if let Some(recording) = &self.commits.recording {
            // The version of a run is found within this number of checkpoints, and costs no bytes in the others.
            let is_marked = source == Source::Input
                || self.commits.saving != Saving::Steps
                || parent == self.origin.checkpoint
                || step.rem_euclid(GRAPH_CODE_STEPS) == 0;
            let marked = recording.marked_metadata.as_ref().filter(|_| is_marked);
            self.head.metadata = marked.or(recording.metadata.as_ref()).cloned();
            self.head.parents = Arc::clone(&recording.parents);
        }
        self.head.checkpoint = Some(HeadCheckpoint { id, step, source });
        self.planning.step += 1;
        plan_into(
            &mut self.planning.tasks,
            &self.graph,
            &self.head,
            id,
            &self.env.namespace,
            self.planning.step,
            Order::Run,
        );
        self.head.recorded.clear();
        self.head.due.clear();
        let records = if source == Source::Fork && self.commits.saving == Saving::Steps {
            // For the runs to come it does not say what made its tasks due.
            let mut due: Vec<&StepTask> = self.planning.tasks.iter().collect();
            due.sort_by_key(|task| (task.push.is_none(), task.push.as_ref().map(|(index, _)| *index), task.node));
            self.head.recorded.extend(due.iter().map(|task| task.id));
            self.task_records(due.into_iter())
        } else {
            self.head.recorded.extend(self.planning.tasks.iter().map(|task| task.id));
            self.task_records(self.planning.tasks.iter())
        };
        let Some(recording) = &mut self.commits.recording else { return };
        let parent = match recording.forked_from.take() {
            Some(point) => {
                self.head.parent = None;
                Some(Parent::Fork(point))
            }
            None => parent.map(Parent::Local),
        };
        let (mut changes, seen) = self.changes.take(&self.graph, &self.head);
        hold(&mut changes, &std::mem::take(&mut self.commits.unsaved));
        let mut checkpoint = NewCheckpoint::new(id, parent, step, source, self.now);
        checkpoint.run = Some(recording.run);
        checkpoint.metadata.clone_from(&self.head.metadata);
        checkpoint.parents = Arc::clone(&recording.parents);
        checkpoint.tasks = records;
        (checkpoint.consumed, checkpoint.changes, checkpoint.seen) = (consumed, changes, seen);
        match self.commits.saving {
            Saving::Steps => {
                // An input checkpoint and that of the first superstep, or one.
                self.commits.outbox.reserve_exact(1);
                self.commits.outbox.push(checkpoint);
            }
            Saving::AtEnd | Saving::UnlessDone => {
                self.commits.retained = Some(fold(self.commits.retained.take(), checkpoint))
            }
        }
    }

    /// Returns tasks as a checkpoint records them; none if the run stores nothing.
    fn task_records<'a>(&self, due: impl Iterator<Item = &'a StepTask>) -> Vec<TaskRecord> {
        if self.records() { due.map(|task| task.record(&self.graph)).collect() } else { Vec::new() }
    }

    /// Hands out the checkpoint and the writes that were retained until the end of the run.
    pub(super) fn flush_kept(&mut self) -> Result<(), RunError> {
        // A subgraph that came to its end, or to the end of its supersteps, stores nothing.
        let ended = matches!(self.status, Status::Done | Status::Failed(RunError::RecursionLimit { .. }));
        if self.commits.saving == Saving::UnlessDone && ended {
            return Ok(());
        }
        if let Some(mut kept) = self.commits.retained.take() {
            self.store_input(&mut kept)?;
            self.head.parent = match kept.parent {
                Some(Parent::Local(parent)) => Some(parent),
                _ => None,
            };
            self.commit(vec![kept], Vec::new());
        }
        if !self.commits.unsaved.is_empty() {
            let mut unsaved = std::mem::take(&mut self.commits.unsaved);
            if !self.env.scope.resume.lock().is_set() {
                // The resume value was taken, and is stored with the task that took it.
                unsaved
                    .iter_mut()
                    .for_each(|task| task.writes.retain(|write| write.index != SpecialWrite::Resume.index()));
                unsaved.retain(|task| !task.writes.is_empty());
            }
            if !unsaved.is_empty() {
                self.commit(Vec::new(), unsaved);
            }
        }
        Ok(())
    }

    /// Hands out the checkpoints that were made.
    pub(super) fn flush(&mut self) -> Result<(), RunError> {
        let mut checkpoints = std::mem::take(&mut self.commits.outbox);
        if let Some(last) = checkpoints.last_mut() {
            self.store_input(last)?;
            self.commit(checkpoints, Vec::new());
        }
        Ok(())
    }

    /// Adds the value of the input to the newest checkpoint, if the input task has not run: no writes hold the value.
    fn store_input(&self, checkpoint: &mut NewCheckpoint) -> Result<(), RunError> {
        let input = self.graph.input();
        let is_due = self.head.versions[input as usize] > self.head.input_seen;
        let Some(value) = self.head.input.as_ref().filter(|_| is_due) else { return Ok(()) };
        let name = &self.graph.channels[input as usize];
        if let Some(change) = checkpoint.changes.iter_mut().find(|change| change.channel == *name) {
            let value = Encoded::encode(&input_value(&self.graph, value)?)?;
            change.value = ChangeValue::Value(Data::New(value.into()));
        }
        Ok(())
    }

    /// Takes the ids under which checkpoints were stored.
    pub(crate) fn rename(&mut self, ids: &HashMap<CheckpointId, CheckpointId>) {
        let rename = |id: &mut CheckpointId| *id = ids.get(id).copied().unwrap_or(*id);
        self.head.checkpoint.iter_mut().for_each(|checkpoint| rename(&mut checkpoint.id));
        self.head.parent.iter_mut().for_each(rename);
        self.commits.head.iter_mut().for_each(rename);
        for event in &mut self.showing.events {
            let part = match &mut event.kind {
                EventKind::Checkpoint(part) => &mut **part,
                EventKind::Debug(line) => match &mut line.payload {
                    DebugPayload::Checkpoint(part) => part,
                    _ => continue,
                },
                _ => continue,
            };
            rename(&mut part.checkpoint);
            part.parent.iter_mut().for_each(rename);
        }
    }

    pub(super) fn commit(&mut self, checkpoints: Vec<NewCheckpoint>, writes: Vec<NewWrites>) {
        let batch = self.commits.batch(checkpoints, writes);
        self.effects.extend(batch.map(Effect::Commit));
    }

    /// The writes of the superstep that are not stored yet: they go into the commit of its checkpoint.
    pub(super) fn consumed(&mut self) -> Vec<NewWrites> {
        let mut consumed = Vec::with_capacity(self.planning.tasks.len());
        for slot in 0..self.planning.tasks.len() {
            if !self.planning.tasks[slot].saved
                && let Some(writes) = self.task_writes(slot)
            {
                consumed.push(writes);
            }
        }
        consumed
    }

    /// Stores what has ended while siblings still run.
    pub(super) fn save_finished(&mut self) -> Option<Effect> {
        self.commits.recording.as_ref()?;
        if self.commits.saving != Saving::Steps
            || !matches!(self.status, Status::Running)
            || !self.planning.tasks.iter().any(|t| matches!(t.status, TaskStatus::Running))
        {
            return None;
        }
        let ended = (0..self.planning.tasks.len()).filter(|slot| {
            let task = &self.planning.tasks[*slot];
            task.is_done() && !task.saved && !self.is_taken(task.id)
        });
        let ended: Vec<usize> = ended.collect();
        if ended.is_empty() {
            return None;
        }
        let writes: Vec<_> = ended.into_iter().filter_map(|slot| self.task_writes(slot)).collect();
        if writes.is_empty() {
            return None;
        }
        self.commit(Vec::new(), writes);
        self.effects.pop_front()
    }

    /// Stores everything about a superstep that did not come to its end.
    pub(super) fn save_ended(&mut self) -> Result<(), RunError> {
        if !self.records() {
            return Ok(());
        }
        self.flush_kept()?;
        let mut writes = std::mem::take(&mut self.calls.unsaved);
        for slot in 0..self.planning.tasks.len() {
            if !self.planning.tasks[slot].saved {
                writes.extend(self.task_writes(slot));
            }
        }
        if !writes.is_empty() {
            self.commit(Vec::new(), writes);
        }
        Ok(())
    }

    /// Sets the timer of a task that falls asleep, or clears that of a task that slept and need not be woken. A wake-up
    /// runs the outermost graph on its head, which also holds the interrupts of the tasks that sleep in subgraphs.
    fn set_timer(&mut self, slot: usize) {
        let task = &self.planning.tasks[slot];
        let checkpoint = self.head.checkpoint.map(|checkpoint| checkpoint.id);
        let (Some(checkpoint), true) =
            (checkpoint.filter(|id| Some(*id) == self.commits.head), self.env.namespace.is_root())
        else {
            return;
        };
        let wake_at = match &task.status {
            // Its subgraph stopped before it came to another interrupt: the interrupts stay, and the timer with them.
            TaskStatus::Drained(_) => return,
            TaskStatus::Waiting(interrupts) if interrupts.is_empty() => return,
            TaskStatus::Waiting(interrupts) => interrupts.iter().filter_map(|asked| asked.wake_at).min(),
            _ => None,
        };
        let slept = |pending: &PendingWrites| pending.is_woken() || !asleep_of(pending).is_empty();
        let slept = || self.head.pending_of(task.id).is_some_and(slept) || given_of(&self.head).is_some();
        // A rival run, which has another attempt, may have put the task to sleep since this run loaded the head.
        let is_asked = matches!(task.status, TaskStatus::Waiting(_));
        if wake_at.is_some() || is_asked || slept() {
            let timer = NewTimer::new(checkpoint, task.id, wake_at);
            debug_assert!(
                self.commits.timers.iter().all(|other| other.checkpoint == checkpoint && other.task != timer.task),
                "timers are of one checkpoint, one for each task"
            );
            self.commits.timers.push(timer);
        }
    }

    /// Returns the changes that remove the timer of a task which has ended, and the interrupt in which it sleeps: a
    /// rival run stored them, before or after this one ended the task. A timer that stays would wake its thread again
    /// and again.
    pub(super) fn wake_finished(&self, pending: &PendingWrites) -> Option<(NewTimer, NewWrites)> {
        let checkpoint = self.head.checkpoint.filter(|_| self.env.namespace.is_root())?.id;
        debug_assert_eq!(Some(checkpoint), self.commits.head, "writes are restored on the stored head");
        if asleep_of(pending).is_empty() {
            return None;
        }
        let writes =
            NewWrites::new(checkpoint, pending.task, Arc::clone(&pending.path)).with(vec![cleared_interrupts()]);
        Some((NewTimer::new(checkpoint, pending.task, None), writes))
    }

    /// Takes the writes of a task for storing, and counts them as stored.
    pub(super) fn task_writes(&mut self, slot: usize) -> Option<NewWrites> {
        let checkpoint = self.head.checkpoint?;
        let path = super::retry::path_of(&self.graph, &self.planning.tasks[slot]);
        let task = &mut self.planning.tasks[slot];
        let name = task.name(&self.graph);
        let mut writes = match &mut task.status {
            TaskStatus::Done(writes) => {
                let mut stored = new_writes(&self.graph, writes);
                stored.extend(task.streamed.then(cleared_partial));
                stored
            }
            TaskStatus::Waiting(interrupts) if interrupts.is_empty() => Vec::new(),
            TaskStatus::Waiting(interrupts) => {
                let mut stored = vec![stored_interrupts(interrupts)];
                stored.extend(self.head.pending_of(task.id).into_iter().flat_map(earlier_error));
                stored
            }
            TaskStatus::Failed(error, writes) => {
                let mut stored = new_writes(&self.graph, writes);
                stored.push(special(SpecialWrite::Error, &Value::from(error.to_string())));
                stored
            }
            TaskStatus::Handled { message, own, writes } => {
                let mut stored = new_writes(&self.graph, writes);
                stored.push(special(SpecialWrite::Error, &Value::from(message.as_str())));
                stored.push(special(SpecialWrite::ErrorSource, &Value::from(name)));
                stored.push(special(SpecialWrite::ErrorMessage, &Value::from(own.as_str())));
                stored
            }
            TaskStatus::Cancelled { reason, ran: true } => {
                let error = Value::from(format!("the run was cancelled: {reason}"));
                vec![special(SpecialWrite::Error, &error), special(SpecialWrite::Cancelled, &error)]
            }
            TaskStatus::Left(_) | TaskStatus::Drained(_) | TaskStatus::Cancelled { .. } => Vec::new(),
            TaskStatus::Due | TaskStatus::Running => return None,
        };
        // The resume values of a cancelled task are not stored: it interrupts again.
        let keeps_values = !task.restored && !matches!(task.status, TaskStatus::Cancelled { .. });
        if !task.resume_values.is_empty() && keeps_values {
            writes.push(special(SpecialWrite::Resume, task.resume_values.as_slice()));
        }
        task.saved = true;
        writes.extend(task.attempts_write());
        let has_ended =
            matches!(task.status, TaskStatus::Done(_) | TaskStatus::Failed(..) | TaskStatus::Handled { .. });
        if has_ended && !writes.is_empty() {
            // The end of an earlier attempt is not that of this one.
            let is_stored = |pending: &PendingWrites| special_of(pending, SpecialWrite::Ended).is_some();
            match task.ended {
                Some(ended) => writes.push(special(SpecialWrite::Ended, &ended.as_micros())),
                None if self.head.pending_of(task.id).is_some_and(is_stored) => {
                    writes.push(SpecialWrite::Ended.clear());
                }
                None => {}
            }
        }
        if !writes.is_empty() {
            self.set_timer(slot);
        }
        let task = &self.planning.tasks[slot];
        (!writes.is_empty()).then_some(NewWrites::new(checkpoint.id, task.id, path).with(writes))
    }
}

/// Returns the write that clears a message which was persisted while it was streamed.
pub(super) fn cleared_partial() -> NewWrite {
    SpecialWrite::Partial.clear()
}

/// Returns the write that clears the interrupts of a task.
pub(super) fn cleared_interrupts() -> NewWrite {
    SpecialWrite::Interrupt.clear()
}

/// Returns the writes that keep the error of an earlier attempt as such, if one is stored: snapshots still show it, but
/// what the task waits for decides its status.
pub(super) fn earlier_error(pending: &PendingWrites) -> Vec<NewWrite> {
    match pending
        .writes
        .iter()
        .find(|write| write.index == SpecialWrite::Error.index() && write.value != WriteValue::Null)
    {
        Some(error) => vec![cleared_error(), SpecialWrite::EarlierError.write(error.value.clone())],
        None => Vec::new(),
    }
}

/// Returns the write that clears the error of an earlier attempt.
pub(super) fn cleared_error() -> NewWrite {
    SpecialWrite::Error.clear()
}

/// Encodes interrupts for the store: maps of value and id, and of their further fields.
pub(super) fn stored_interrupts(interrupts: &[Interrupt]) -> NewWrite {
    let interrupts = interrupts.iter().map(|asked| Value::Map(asked.to_map())).collect();
    // As in `special`.
    interrupts_write(interrupts).unwrap_or_else(|_| SpecialWrite::Interrupt.clear())
}

pub(crate) fn special<T: serde::Serialize + ?Sized>(of: SpecialWrite, value: &T) -> NewWrite {
    // Dynamic values always encode; null stands in if one is beyond the limits.
    of.write(Encoded::encode(value).map_or(WriteValue::Null, |encoded| WriteValue::One(encoded.into())))
}

/// Takes the bytes of writes out, to be stored.
pub(super) fn new_writes(graph: &Graph, writes: &mut [TaskWrite]) -> Vec<NewWrite> {
    let name = |channel: u32| graph.channels.get(channel as usize).cloned().unwrap_or_else(|| NO_WRITES.into());
    debug_assert!(writes.is_sorted_by(|a, b| a.index < b.index), "the writes of a task are numbered in their order");
    let mut stored = Vec::with_capacity(writes.len());
    for write in writes {
        if let Some(value) = write.encoded.take() {
            stored.push(NewWrite::new(write.index, name(write.channel), value));
        }
    }
    stored
}
