//! The state as it is shown while a superstep is not over: with what its ended tasks wrote.

use std::sync::Arc;

use crate::base::NULL_TASK;
use crate::graph::Graph;
use crate::state::{BoxWrite, StateRef};

use super::call::CallWrites;
use super::error::RunError;
use super::head::Head;
use super::load::task_writes;
use super::task::{StepTask, TaskWrite, WriteKind};

/// Returns the state with the writes of the tasks and calls that have ended, in the order in which the superstep will
/// apply them. Also returns the fields that they changed, and whether these hold something.
pub(super) fn shown(
    graph: &Graph,
    head: &Head,
    tasks: &[StepTask],
    calls: &[CallWrites],
) -> Result<(StateRef, Vec<(usize, bool)>), RunError> {
    let mut ended: Vec<&StepTask> = tasks.iter().filter(|task| !task.writes().is_empty()).collect();
    ended.sort_by(|a, b| a.order(graph).cmp(&b.order(graph)));
    let mut view = HeadView::of(head);
    let of_calls = calls.iter().flat_map(|call| &call.writes);
    let written = view.write(graph, ended.into_iter().flat_map(StepTask::writes).chain(of_calls))?;
    view.idle(graph, &written);
    Ok((view.state, view.present))
}

/// Returns the state of a stored head, and which fields hold something: with the commands given to it, and, if it is
/// live, with the stored writes of the tasks that have ended.
pub(crate) fn stored(
    graph: &Graph,
    head: &Head,
    tasks: &[StepTask],
    live: bool,
) -> Result<(StateRef, Vec<bool>), RunError> {
    let mut view = HeadView::of(head);
    if let Some(commands) = head.pending_of(NULL_TASK) {
        view.write(graph, task_writes(graph, commands)?.iter())?;
    }
    let mut ended: Vec<&StepTask> = if live { tasks.iter().collect() } else { Vec::new() };
    ended.sort_by(|a, b| a.order(graph).cmp(&b.order(graph)));
    let of_tasks =
        ended.into_iter().filter_map(|task| head.pending_of(task.id)).filter(|pending| pending.is_finished());
    let mut writes = None;
    for pending in of_tasks {
        writes.get_or_insert_with(Vec::new).extend(task_writes(graph, pending)?);
    }
    if let Some(writes) = writes {
        view.write(graph, writes.iter())?;
        // The channels that last for one superstep are cleared when the remaining tasks have ended, too: the reference
        // does not show them.
        view.idle(graph, &[]);
    }
    let present = (0..graph.layout.len()).map(|field| view.is_present(field)).collect();
    Ok((view.state, present))
}

/// A view of a state with further writes, and for each changed field whether it holds a value.
struct HeadView<'a> {
    head: &'a Head,
    state: StateRef,
    present: Vec<(usize, bool)>,
}

impl<'a> HeadView<'a> {
    fn of(head: &'a Head) -> Self {
        Self { head, state: Arc::clone(&head.state), present: Vec::new() }
    }

    /// Applies writes, and returns the fields they are for.
    fn write<'w>(
        &mut self,
        graph: &Graph,
        writes: impl Iterator<Item = &'w TaskWrite>,
    ) -> Result<Vec<usize>, RunError> {
        let mut fields: Vec<(usize, Vec<BoxWrite>)> = Vec::new();
        for write in writes {
            if let WriteKind::Field(Some(value)) = &write.kind {
                let field = write.channel as usize;
                match fields.iter_mut().find(|(known, _)| *known == field) {
                    Some((_, values)) => values.push(value.clone()),
                    None => fields.push((field, vec![value.clone()])),
                }
            }
        }
        let written = fields.iter().map(|(field, _)| *field).collect();
        for (field, values) in fields {
            let mut present = self.is_present(field);
            graph.layout.update(&mut self.state, field, &mut present, values)?;
            self.present.push((field, present));
        }
        Ok(written)
    }

    /// Ends a superstep for the fields that last for one, but for these.
    fn idle(&mut self, graph: &Graph, written: &[usize]) {
        for field in graph.idle_fields.iter().filter(|field| !written.contains(field)) {
            let mut present = self.is_present(*field);
            if present {
                graph.layout.idle(&mut self.state, *field, &mut present);
                self.present.push((*field, present));
            }
        }
    }

    fn is_present(&self, field: usize) -> bool {
        let changed = self.present.iter().rev().find(|(known, _)| *known == field);
        changed.map_or(self.head.present[field], |(_, present)| *present)
    }
}
