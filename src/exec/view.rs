//! The state as it is shown while a superstep is not over: with what its ended tasks wrote.

use std::sync::Arc;

use crate::base::id::NULL_TASK;
use crate::graph::Graph;
use crate::state::{BoxWrite, StateRef};

use super::error::RunError;
use super::head::Head;
use super::load::task_writes;
use super::task::{Task, TaskStatus, TaskWrite, WriteKind};

/// Returns the state with the writes of the tasks that have ended, in the order in which the superstep will apply them.
pub(super) fn shown(graph: &Graph, head: &Head, tasks: &[Task]) -> Result<StateRef, RunError> {
    let mut ended: Vec<&Task> = tasks.iter().filter(|task| task.is_done()).collect();
    ended.sort_by(|a, b| a.order(graph).cmp(&b.order(graph)));
    let writes = ended.into_iter().flat_map(|task| match &task.status {
        TaskStatus::Done(writes) => writes.as_slice(),
        _ => &[],
    });
    with_writes(graph, head, writes)
}

/// Returns the state of a stored head: with the commands given to it, and, if it is live, with the stored writes of the
/// tasks that have ended.
pub(crate) fn stored(graph: &Graph, head: &Head, tasks: &[Task], live: bool) -> Result<StateRef, RunError> {
    let mut ended: Vec<&Task> = if live { tasks.iter().collect() } else { Vec::new() };
    ended.sort_by(|a, b| a.order(graph).cmp(&b.order(graph)));
    let of_tasks =
        ended.into_iter().filter_map(|task| head.pending_of(task.id)).filter(|pending| pending.is_finished());
    let mut writes = Vec::new();
    for pending in head.pending_of(NULL_TASK).into_iter().chain(of_tasks) {
        writes.extend(task_writes(graph, pending)?);
    }
    with_writes(graph, head, writes.iter())
}

fn with_writes<'a>(
    graph: &Graph,
    head: &Head,
    writes: impl Iterator<Item = &'a TaskWrite>,
) -> Result<StateRef, RunError> {
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
    let mut state = Arc::clone(&head.state);
    for (field, values) in fields {
        let mut present = head.present[field];
        graph.layout.update(&mut state, field, &mut present, values)?;
    }
    Ok(state)
}
