//! Builds stream events from machine state. An event is built only if its mode is subscribed.

use std::sync::{Arc, OnceLock};

use crate::base::{Namespace, Value};
use crate::graph::{INPUT, VALUE};
use crate::state::erased::{ViewShape, Written};
use crate::state::{BoxWrite, FieldKind, Layout, StateView, WritesView};
use crate::task::{Interrupt, NodePlace, TaskInfo, TaskParts, task_namespace};

use super::effect::{Event, EventKind};
use super::error::RunError;
use super::exit::Saving;
use super::load::{interrupts_of, result_of, shown_error_of};
use super::machine::Machine;
use super::shown::{
    CheckpointPart, CheckpointTask, DebugPart, DebugPayload, NodeUpdate, TaskEnd, TaskInput, TaskStart,
};
use super::task::{StepTask, TaskStatus, TaskWrite, WriteKind};

/// The fields that hold a value and the shapes of their views, cached until the set changes.
pub(super) struct ShownFields {
    present: Vec<bool>,
    all: Arc<ViewShape>,
    output: Arc<ViewShape>,
}

impl ShownFields {
    /// Makes those of a state that holds nothing.
    pub(super) fn new(layout: &Arc<dyn Layout>) -> Self {
        let shape = Arc::new(ViewShape::new(Arc::clone(layout), Vec::new(), None));
        Self { present: Vec::new(), all: Arc::clone(&shape), output: shape }
    }
}

impl Machine {
    pub(super) fn emit(&mut self, kind: EventKind) {
        self.showing.emit(&self.env.namespace, kind);
    }

    /// Puts what happens elsewhere into the order of what happens here.
    pub(crate) fn show(&mut self, event: Event) {
        self.showing.events.push_back(event);
    }

    fn is_output(&self, field: usize) -> bool {
        self.showing.is_output(&self.graph, field)
    }

    /// Returns the field that stands for the whole state, if it is one value.
    fn whole(&self) -> Option<usize> {
        if self.graph.entry { Some(VALUE as usize) } else { self.graph.schemas.root.then_some(0) }
    }

    /// Returns how fields are shown.
    fn shape(&self, fields: Vec<usize>) -> Arc<ViewShape> {
        Arc::new(ViewShape::new(Arc::clone(&self.graph.layout), fields, self.whole()))
    }

    /// Finds out which fields are shown when these hold something.
    fn refresh_fields(&mut self, present: &[bool]) -> &ShownFields {
        if self.showing.fields.present != present {
            let layout = &*self.graph.layout;
            let entry = self.graph.entry;
            let of_state = |field: &usize| {
                present[*field] && layout.kind(*field) != FieldKind::Managed && (!entry || *field == VALUE as usize)
            };
            let holding = || (0..present.len()).filter(of_state);
            let all = self.shape(holding().collect());
            let output = match &self.showing.output {
                Some(fields) => self.shape(holding().filter(|field| fields.contains(field)).collect()),
                None => Arc::clone(&all),
            };
            self.showing.fields = ShownFields { present: present.to_vec(), all, output };
        }
        &self.showing.fields
    }

    /// Finds out which fields of the head are shown.
    fn head_fields(&mut self) -> &ShownFields {
        let present = std::mem::take(&mut self.head.present);
        self.refresh_fields(&present[..self.graph.layout.len()]);
        self.head.present = present;
        &self.showing.fields
    }

    /// Returns the state as nodes see it.
    fn view(&mut self) -> StateView {
        let shape = Arc::clone(&self.head_fields().all);
        StateView::new(shape, Arc::clone(&self.head.state))
    }

    /// Returns the state as the node of a task is given it.
    fn input_view(&mut self, slot: usize) -> StateView {
        let node = self.planning.tasks[slot].given_as();
        let reads = node.and_then(|node| self.graph.nodes[node].reads.as_deref());
        if self.graph.entry {
            let (layout, field) = (Arc::clone(&self.graph.layout), INPUT as usize);
            let shape = ViewShape::new(layout, vec![field], Some(field));
            return StateView::new(Arc::new(shape), Arc::clone(&self.head.state));
        }
        if reads.is_none() && !self.graph.schemas.managed {
            return self.view();
        }
        let layout = &self.graph.layout;
        let state = self.task_state();
        let given = |field: &usize| {
            let holds = self.head.present[*field] || layout.kind(*field) == FieldKind::Managed;
            holds && reads.is_none_or(|reads| reads.contains(field))
        };
        StateView::new(self.shape((0..layout.len()).filter(given).collect()), state)
    }

    /// Returns the state as the outside sees it: the channels of the output that hold something.
    pub(crate) fn output(&mut self) -> StateView {
        let Some((state, written)) = self.showing.interrupted.as_ref() else {
            let shape = Arc::clone(&self.head_fields().output);
            return StateView::new(shape, Arc::clone(&self.head.state));
        };
        let (state, mut present) = (Arc::clone(state), self.present());
        written.iter().for_each(|(field, holds)| present[*field] = *holds);
        StateView::new(Arc::clone(&self.refresh_fields(&present).output), state)
    }

    /// Shows the state.
    pub(super) fn show_values(&mut self, interrupts: &[Interrupt]) {
        if self.keeps_shown() {
            self.showing.returned = Some((Arc::clone(&self.head.state), self.present()));
        }
        if self.showing.wants.values {
            let view = self.output();
            self.emit(EventKind::Values { view, interrupts: interrupts.to_vec() });
        }
    }

    /// Shows the state after a superstep that changed it.
    pub(super) fn show_changed(&mut self) {
        let is_shown = |channel: &u32| self.graph.is_field(*channel) && self.is_output(*channel as usize);
        let mut updated = self.head.updated.iter().flatten();
        if (self.showing.wants.values || self.keeps_shown()) && updated.any(is_shown) {
            self.show_values(&[]);
        }
    }

    /// Returns whether the last streamed state may differ from the final one: the end of a superstep may clear a
    /// channel.
    fn keeps_shown(&self) -> bool {
        !self.env.namespace.is_root() && !self.graph.idle_fields.is_empty()
    }

    /// Shows the checkpoint that the next superstep starts from.
    pub(super) fn show_checkpoint(&mut self) -> Result<(), RunError> {
        let events = self.showing.wants;
        if !(events.checkpoints || events.debug) {
            return Ok(());
        }
        let (Some(recording), Some(head)) = (&self.commits.recording, self.head.checkpoint) else { return Ok(()) };
        let mut tasks = Vec::with_capacity(self.planning.tasks.len());
        for task in &self.planning.tasks {
            tasks.push(self.checkpoint_task(task)?);
        }
        let (thread, parents) = (recording.thread.clone(), Arc::clone(&self.head.parents));
        let part = CheckpointPart {
            thread,
            namespace: self.env.namespace.clone(),
            checkpoint: head.id,
            // A checkpoint saved at the end of the run has the parent of the loaded checkpoint, as in the reference.
            parent: if self.commits.saving == Saving::Steps { self.head.parent } else { self.origin.parent },
            source: head.source,
            step: head.step,
            parents,
            // Of a checkpoint of this run the reference shows its own metadata alone.
            metadata: self.head.metadata.clone().filter(|_| self.origin.checkpoint == Some(head.id)),
            values: self.view(),
            tasks,
        };
        if events.checkpoints {
            self.emit(EventKind::Checkpoint(Box::new(part.clone())));
        }
        if events.debug {
            self.emit_debug(self.planning.step - 1, DebugPayload::Checkpoint(part));
        }
        Ok(())
    }

    fn checkpoint_task(&self, task: &StepTask) -> Result<CheckpointTask, RunError> {
        let pending = self.head.pending_of(task.id);
        let result = match pending.filter(|pending| pending.is_finished()) {
            Some(pending) => {
                let mut result = result_of(&self.graph, pending)?;
                Some(match self.whole() {
                    Some(field) => result.shift_remove(self.graph.layout.name(field)).unwrap_or_default(),
                    None => {
                        let of_output =
                            |name: &str| self.graph.by_channel.get(name).is_some_and(|c| self.is_output(*c as usize));
                        result.retain(|name, _| of_output(name));
                        Value::Map(result)
                    }
                })
            }
            None => None,
        };
        let name: Arc<str> = task.name(&self.graph).into();
        let has_graph = task.node.is_some_and(|node| self.graph.nodes[node].stored_child().is_some());
        Ok(CheckpointTask {
            id: task.id,
            result,
            error: pending.and_then(shown_error_of),
            interrupts: pending.map(interrupts_of).unwrap_or_default(),
            subgraph: has_graph.then(|| task_namespace(&self.env.namespace, &name, task.id)),
            name,
        })
    }

    /// Shows the tasks of a superstep that begins, and the results of those that need not run.
    pub(super) fn show_starts(&mut self) {
        let events = self.showing.wants;
        if events.tasks || events.debug {
            for slot in 0..self.planning.tasks.len() {
                let Some(task) = self.task_info(slot) else { continue };
                let input = match &self.planning.tasks[slot].push {
                    Some((_, arg)) => TaskInput::Value(arg.clone()),
                    None => TaskInput::State(self.input_view(slot)),
                };
                // It is shown again when it ends.
                self.planning.tasks[slot].info = Some(task.clone());
                let start = TaskStart { task, input };
                if events.debug {
                    self.emit_both(EventKind::TaskStart(start.clone()), DebugPayload::TaskStart(start));
                } else {
                    self.emit(EventKind::TaskStart(start));
                }
            }
        }
        for slot in 0..self.planning.tasks.len() {
            let task = &self.planning.tasks[slot];
            if task.restored && (task.is_done() || !task.writes().is_empty()) {
                self.show_done(slot, true);
            }
        }
    }

    /// Shows the end of a task: its writes, and its error if it failed.
    pub(super) fn show_done(&mut self, slot: usize, cached: bool) {
        let events = self.showing.wants;
        if !events.show_calls() {
            return;
        }
        let Some(info) = self.planning.tasks[slot].info.take().or_else(|| self.task_info(slot)) else { return };
        let task = &self.planning.tasks[slot];
        let error = match &task.status {
            TaskStatus::Failed(error, _) => Some(error.to_string()),
            TaskStatus::Handled { message, .. } => Some(message.clone()),
            _ => None,
        };
        // A task that failed in a conditional edge has written all the same. So has, for the reference, a task that
        // read a resume value, which counts as a write.
        let (is_done, has_written) = (task.is_done(), !task.writes().is_empty() || task.asked);
        if events.messages {
            let is_shown = is_done && !cached && !task.relays;
            self.show_messages(slot, is_shown);
        }
        if !(events.updates || events.tasks || events.debug) {
            return;
        }
        let writes =
            fields_of(self.planning.tasks[slot].writes()).map(|(field, write)| (field, write.clone())).collect();
        let value = || [VALUE as usize].into();
        let chosen = if self.graph.entry { Some(value()) } else { self.showing.output.clone() };
        info.wrote(Written::Fields { writes, chosen, is_whole: self.whole().is_some() });
        if events.updates && (is_done || has_written) {
            let node = Arc::clone(info.parts().node());
            self.emit(EventKind::Updates(NodeUpdate { node, writes: info.writes(true), cached }));
        }
        if !cached {
            let result = info.writes(self.graph.entry);
            self.show_end(TaskEnd { task: info, result, error, interrupts: Vec::new() });
        }
    }

    /// Shows the interrupts of a task.
    pub(super) fn show_waiting(&mut self, slot: usize, interrupts: &[Interrupt]) {
        // A task at a breakpoint of its subgraph has no interrupts.
        if interrupts.is_empty() {
            return;
        }
        if self.showing.wants.updates {
            self.emit(EventKind::Interrupts(interrupts.to_vec()));
        }
        self.show_values(interrupts);
        self.show_asked(slot, interrupts);
    }

    fn show_asked(&mut self, slot: usize, interrupts: &[Interrupt]) {
        if !(self.showing.wants.tasks || self.showing.wants.debug) {
            return;
        }
        let Some(task) = self.task_info(slot) else { return };
        let result = WritesView::returned(None, Vec::new());
        self.show_end(TaskEnd { task, result, error: None, interrupts: interrupts.to_vec() });
    }

    fn show_end(&mut self, end: TaskEnd) {
        let events = self.showing.wants;
        if events.debug {
            self.emit_both(EventKind::TaskEnd(end.clone()), DebugPayload::TaskEnd(end));
        } else if events.tasks {
            self.emit(EventKind::TaskEnd(end));
        }
    }

    /// Shows the end of an interrupted run: the state with the writes of the ended tasks, though their superstep has
    /// not ended, and the breakpoint if no interrupts are open.
    pub(super) fn show_interrupted(&mut self, open: &[Interrupt]) {
        // A subgraph leaves that to its parent graph.
        if !self.env.namespace.is_root() {
            return;
        }
        if self
            .showing
            .interrupted
            .as_ref()
            .is_some_and(|(_, written)| written.iter().any(|(field, holds)| *holds && self.is_output(*field)))
        {
            self.show_values(&[]);
        }
        if open.is_empty() && self.showing.wants.updates {
            self.emit(EventKind::Interrupts(Vec::new()));
        }
    }

    /// Shows what belongs to the modes `tasks`, if that is wanted, and `debug`.
    fn emit_both(&mut self, kind: EventKind, payload: DebugPayload) {
        if self.showing.wants.tasks {
            self.emit(kind);
        }
        self.emit_debug(self.planning.step, payload);
    }

    fn emit_debug(&mut self, step: i64, payload: DebugPayload) {
        self.emit(EventKind::Debug(Box::new(DebugPart { step, timestamp: self.now, payload })));
    }

    /// Returns which task this is, if it is one that is shown: the input is not.
    pub(super) fn task_info(&self, slot: usize) -> Option<TaskInfo> {
        let task = &self.planning.tasks[slot];
        if task.info.is_some() {
            return task.info.clone();
        }
        task.node?;
        let place = self.place(task);
        Some(TaskInfo::new(TaskParts {
            id: task.id,
            name: None,
            step: self.planning.step,
            namespace: place.around.as_ref().unwrap_or(&self.env.namespace).clone(),
            place,
            written: OnceLock::new(),
        }))
    }

    /// Returns what of the graph a task runs.
    pub(super) fn place(&self, task: &StepTask) -> NodePlace {
        let around = task.handles().and_then(|handles| {
            let name = &self.graph.nodes[handles.node].name;
            Namespace::new(task_namespace(&self.env.namespace, name, handles.task)).ok()
        });
        let push = task.push.as_ref().map(|(index, _)| *index);
        NodePlace { graph: Arc::clone(&self.graph), node: task.node, push, call: None, around }
    }
}

/// The writes to fields.
pub(super) fn fields_of(writes: &[TaskWrite]) -> impl Iterator<Item = (usize, &BoxWrite)> {
    writes.iter().filter_map(|write| match &write.kind {
        WriteKind::Field(Some(value)) => Some((write.channel as usize, value)),
        _ => None,
    })
}
