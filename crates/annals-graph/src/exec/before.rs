//! The lists of the state before a run, from which the items that the run added are computed.
//!
//! Each list is retained as a clone, which costs O(1). *Absent:* the comparison.

use crate::base::CheckpointId;
use crate::graph::Graph;
use crate::state::{BoxWrite, FieldKind, StateRef};

use super::head::Head;
use super::task::{TaskWrite, WriteKind};

/// The lists of a state before a run, by the numbers of their fields.
#[derive(Default)]
pub(crate) struct Before {
    lists: Vec<(usize, StateRef)>,
    /// Writes to these lists by tasks that ended in an earlier run, in a superstep that this run continues.
    writes: Vec<(usize, BoxWrite)>,
    /// The last checkpoint of the earlier run that this run repeats, as it has its idempotency key.
    pub(crate) repeats: Option<CheckpointId>,
}

impl Before {
    /// Retains the lists of a head.
    pub(super) fn of(graph: &Graph, head: &Head) -> Self {
        let lists = (0..graph.layout.len()).filter(|field| graph.layout.kind(*field) == FieldKind::List);
        let lists = lists.filter_map(|field| Some((field, graph.layout.list(&head.state, field)?)));
        Self { lists: lists.collect(), ..Self::default() }
    }

    /// Notes the writes of a task to lists, stored by an earlier run.
    pub(super) fn note_writes(&mut self, graph: &Graph, writes: &[TaskWrite]) {
        for write in writes {
            if let WriteKind::Field(Some(value)) = &write.kind
                && graph.layout.kind(write.channel as usize) == FieldKind::List
            {
                self.writes.push((write.channel as usize, value.clone()));
            }
        }
    }

    /// Returns the list of a field.
    pub(crate) fn list(&self, field: usize) -> Option<&StateRef> {
        self.lists.iter().find(|(known, _)| *known == field).map(|(_, list)| list)
    }

    /// Returns the writes to a list that an earlier run had stored but not applied yet.
    pub(crate) fn writes(&self, field: usize) -> impl Iterator<Item = &BoxWrite> {
        self.writes.iter().filter(move |(known, _)| *known == field).map(|(_, write)| write)
    }
}
