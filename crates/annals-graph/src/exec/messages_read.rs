//! Messages in the stream: those that tasks write, and those that they were given, which the stream does not show.
//!
//! Invariant: before the messages of a task are shown, the stream knows each message that the task is given. Tasks of
//! one superstep count as given theirs one after another, in their order, as they are when they do not run at the same
//! time. *Absent:* the decision which messages the stream shows, which is the reader's.

use std::sync::Arc;

use crate::base::Value;
use crate::graph::{INPUT, VALUE};
use crate::limits::STREAM_IDS_COPIED_MAX;
use crate::state::erased::{brings_other_messages, messages_in_value, messages_of};
use crate::state::{Layout, StateRef};
use crate::task::MessagePart;

use super::effect::EventKind;
use super::machine::Machine;
use super::parts::Showing;
use super::show::fields_of;
use super::task::{StepTask, TaskStatus, TaskWrite};

/// The messages that tasks are given as they start.
#[derive(Clone)]
pub(crate) struct MessagesRead {
    /// The ids of the messages.
    pub(crate) ids: Vec<String>,
    layout: Arc<dyn Layout>,
    state: StateRef,
    /// The fields with further messages, each with more of them than are copied.
    long: Vec<usize>,
}

impl MessagesRead {
    fn new(layout: &Arc<dyn Layout>, state: &StateRef, fields: &[usize]) -> Self {
        let mut read = Self { ids: Vec::new(), layout: Arc::clone(layout), state: Arc::clone(state), long: Vec::new() };
        for field in fields {
            match layout.message_ids(state, *field, STREAM_IDS_COPIED_MAX) {
                Some(mut ids) => read.ids.append(&mut ids),
                None => read.long.push(*field),
            }
        }
        read
    }

    /// Returns whether there are messages that `ids` does not name.
    pub(crate) fn is_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// Returns whether one of the lists that were not copied holds a message with this id.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.long.iter().any(|field| self.layout.holds_message(&self.state, *field, id))
    }
}

impl Showing {
    /// Notes that messages were written which the stream has not shown.
    pub(super) fn note_unshown(&mut self, writes: &[TaskWrite]) {
        fields_of(writes).for_each(|(field, _)| self.known[field] = false);
    }
}

impl Machine {
    /// Tells the stream which messages the next task that runs is given, from a slot on.
    pub(super) fn show_next_read(&mut self, from: usize) {
        if !self.showing.wants.messages {
            return;
        }
        let is_next = |task: &StepTask| matches!(task.status, TaskStatus::Running) && !task.told_read;
        if let Some(after) = self.planning.tasks[from..].iter().position(is_next) {
            self.show_read(from + after);
        }
    }

    /// Tells the stream which messages a task is given, once.
    pub(super) fn show_read(&mut self, slot: usize) {
        if !self.showing.wants.messages || std::mem::replace(&mut self.planning.tasks[slot].told_read, true) {
            return;
        }
        if !self.shows_messages(slot) {
            return;
        }
        let layout = &self.graph.layout;
        let read = match &self.planning.tasks[slot].push {
            Some((_, Value::Map(members))) => {
                let given = members.values().flat_map(messages_in_value);
                let mut read = MessagesRead::new(layout, &self.head.state, &[]);
                read.ids.extend(given.filter_map(|message| message.id));
                read
            }
            Some(_) => return,
            None => {
                let node = self.planning.tasks[slot].given_as();
                let reads = node.and_then(|node| self.graph.nodes[node].reads.as_deref());
                let is_read = |field: &usize| match self.graph.entry {
                    true => *field == INPUT as usize,
                    false => reads.is_none_or(|reads| reads.contains(field)),
                };
                let known = &mut self.showing.known;
                let new: Vec<_> = (0..layout.len()).filter(is_read).filter(|field| !known[*field]).collect();
                new.iter().for_each(|field| known[*field] = true);
                MessagesRead::new(layout, &self.head.state, &new)
            }
        };
        if !read.ids.is_empty() || read.is_long() {
            self.emit(EventKind::MessagesRead(Box::new(read)));
        }
    }

    /// Shows the messages that a task wrote, if those of the task are shown.
    pub(super) fn show_messages(&mut self, slot: usize, is_shown: bool) {
        let Some(task) = self.task_info(slot).filter(|_| is_shown && self.shows_messages(slot)) else {
            self.showing.note_unshown(self.planning.tasks[slot].writes());
            return;
        };
        let namespace = task.parts().namespace.clone();
        let recording = self.commits.recording.as_ref();
        let part = |message| MessagePart {
            message,
            task: task.clone(),
            tags: [].into(),
            thread: recording.map(|recording| recording.thread.clone()),
            is_live: false,
            once: true,
            run_metadata: self.env.scope.host.run_metadata(),
        };
        let mut messages = Vec::new();
        for (field, write) in fields_of(self.planning.tasks[slot].writes()) {
            if brings_other_messages(write) {
                self.showing.known[field] = false;
            }
            if !self.graph.entry || field == VALUE as usize {
                messages.extend(messages_of(write).into_iter().map(part));
            }
        }
        for message in messages {
            self.showing.emit(&namespace, EventKind::Message(Box::new(message)));
        }
    }

    /// Returns whether the messages of a task are shown. The handler of a failure is shown as if it ran in a subgraph
    /// of the failed task.
    fn shows_messages(&self, slot: usize) -> bool {
        let is_inside = self.planning.tasks[slot].handles().is_some();
        self.showing.wants.subgraphs || !is_inside
    }
}
