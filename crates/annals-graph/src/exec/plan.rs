//! Plans a superstep: the tasks that are due at a head.

use crate::base::{CheckpointId, Namespace, TaskId};
use crate::graph::{Graph, INPUT, TimeoutPolicy};

use super::head::Head;
use super::task::{StepTask, TaskStatus, task_id};

/// The order of the nodes in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order in which they run.
    Run,
    /// The order in which a snapshot lists them: that of the graph.
    Listed,
}

/// Returns the tasks that are due at a head, in the order in which they are listed and started: sends by position,
/// then nodes, by name if the checkpoint says which channels it changed, else in the order of the graph.
pub(crate) fn plan(
    graph: &Graph,
    head: &Head,
    checkpoint: CheckpointId,
    namespace: &Namespace,
    step: i64,
    order: Order,
) -> Vec<StepTask> {
    let mut tasks = Vec::new();
    plan_into(&mut tasks, graph, head, checkpoint, namespace, step, order);
    tasks
}

/// The bytes that the buffer for the id of a task begins with: those of most ids.
const PLACE_BYTES: usize = 128;

/// Puts the tasks that are due at a head in place of others, see [`plan`].
pub(super) fn plan_into(
    tasks: &mut Vec<StepTask>,
    graph: &Graph,
    head: &Head,
    checkpoint: CheckpointId,
    namespace: &Namespace,
    step: i64,
    order: Order,
) {
    tasks.clear();
    let mut place = Vec::with_capacity(PLACE_BYTES);
    let mut add = |node: Option<usize>, push, timeout: Option<TimeoutPolicy>| {
        let mut task = StepTask::new(TaskId::default(), node, push);
        if timeout.is_some() {
            task.extra.get_or_insert_default().timeout = timeout;
        }
        task.id = task_id(&mut place, graph, checkpoint, namespace, step, &task);
        // Most supersteps have one task.
        tasks.reserve_exact(usize::from(tasks.is_empty()));
        tasks.push(task);
    };
    for (index, send) in head.sends.iter().enumerate() {
        if let Some(node) = graph.by_name.get(&send.node) {
            add(Some(*node), Some((index as u32, send.arg.clone())), send.timeout);
        }
    }
    let input = graph.input();
    if !graph.entry && head.present[input as usize] && head.versions[input as usize] > head.input_seen {
        add(None, None, None);
    }
    match head.updated.as_deref().filter(|_| order == Order::Run) {
        Some(updated) if !updated.is_empty() => {
            let (mut first, mut others) = (None, Vec::new());
            for channel in updated {
                each_triggered(graph, *channel, |node| match first {
                    _ if !is_due(graph, head, node) => {}
                    None => first = Some(node),
                    Some(_) => others.push(node),
                });
            }
            if !others.is_empty() {
                others.extend(first.take());
                others.sort_by(|a, b| graph.nodes[*a].name.cmp(&graph.nodes[*b].name));
                others.dedup();
            }
            first.into_iter().chain(others).for_each(|node| add(Some(node), None, None));
        }
        _ => (0..graph.nodes.len())
            .filter(|node| is_due(graph, head, *node))
            .for_each(|node| add(Some(node), None, None)),
    }
    debug_assert!(
        tasks.iter().all(|task| matches!(task.status, TaskStatus::Due)),
        "a plan holds tasks that have to run"
    );
    debug_assert!(tasks.windows(2).all(|pair| pair[0].id != pair[1].id), "a task is due once");
}

/// Visits the nodes that a channel triggers.
pub(super) fn each_triggered(graph: &Graph, channel: u32, mut visit: impl FnMut(usize)) {
    let own = if graph.entry { (channel == INPUT).then_some(0) } else { graph.triggered_node(channel) };
    if let Some(node) = own {
        visit(node);
    }
    if graph.join_of(channel).is_some() {
        let joined = graph.nodes.iter().enumerate().filter(|(_, node)| node.triggers.contains(&channel));
        joined.for_each(|(node, _)| visit(node));
    }
}

fn is_due(graph: &Graph, head: &Head, node: usize) -> bool {
    graph.nodes[node].triggers.iter().any(|channel| {
        let version = head.versions[*channel as usize];
        let seen = head.seen[node]
            .as_ref()
            .map_or(0, |seen| seen.iter().find(|(trigger, _)| trigger == channel).map_or(0, |(_, version)| *version));
        version > seen && head.available(graph, *channel)
    })
}
