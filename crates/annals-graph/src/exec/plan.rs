//! Plans a superstep: the tasks that are due at a head.

use crate::base::{CheckpointId, Namespace, TaskId};
use crate::graph::{Graph, INPUT, TimeoutPolicy};

use super::head::Head;
use super::task::{Task, task_id};

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
) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut add = |node: Option<usize>, push, timeout: Option<TimeoutPolicy>| {
        let mut task = Task::new(TaskId::default(), node, push);
        if timeout.is_some() {
            task.extra.get_or_insert_default().timeout = timeout;
        }
        task.id = task_id(checkpoint, namespace, step, &task.record(graph));
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
            let mut nodes: Vec<_> = updated.iter().flat_map(|channel| triggered(graph, *channel)).collect();
            nodes.sort_by(|a, b| graph.nodes[*a].name.cmp(&graph.nodes[*b].name));
            nodes.dedup();
            nodes.into_iter().filter(|node| is_due(graph, head, *node)).for_each(|node| add(Some(node), None, None));
        }
        _ => (0..graph.nodes.len())
            .filter(|node| is_due(graph, head, *node))
            .for_each(|node| add(Some(node), None, None)),
    }
    tasks
}

/// Returns the nodes that a channel triggers.
pub(super) fn triggered(graph: &Graph, channel: u32) -> impl Iterator<Item = usize> {
    let own = if graph.entry { (channel == INPUT).then_some(0) } else { graph.triggered_node(channel) };
    let joined = graph.join_of(channel).into_iter().flat_map(move |_| {
        graph.nodes.iter().enumerate().filter(move |(_, node)| node.triggers.contains(&channel)).map(|(i, _)| i)
    });
    own.into_iter().chain(joined)
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
