//! Compares the tasks that are due at a stored head with those that the graph makes due, and the joins that some nodes
//! have reached with its joins: a graph that was changed since may lack a node, an edge or a join. *Absent:* the
//! version of a graph, which `drive` compares.

use crate::base::{NULL_TASK, WriteValue};
use crate::graph::{BRANCH_CHANNEL, Graph, JOIN_CHANNEL};

use super::effect::RunStart;
use super::error::RunError;
use super::head::{Head, PendingWrite};
use super::load::send_from;
use super::plan::{Order, plan};

/// Verifies that a run which continues a head runs all nodes that are due there. `takes_ended` tells that it takes over
/// the writes of the tasks that have ended, which may lead to other nodes.
///
/// # Errors
/// [`RunError::DueNodeMissing`].
pub(crate) fn verify_due(graph: &Graph, head: &Head, start: &RunStart, takes_ended: bool) -> Result<(), RunError> {
    let Some(checkpoint) = head.checkpoint.filter(|_| continues(start) && !head.due.is_empty()) else { return Ok(()) };
    // The namespace is a part of the ids of tasks alone.
    let planned = plan(graph, head, checkpoint.id, &crate::base::Namespace::root(), checkpoint.step + 1, Order::Listed);
    let is_planned = |name: &str| planned.iter().any(|task| task.name(graph) == name);
    let mut missing: Vec<String> = head.due.iter().filter(|name| !is_planned(name)).map(ToString::to_string).collect();
    if takes_ended {
        let ended = head.pending.iter().filter(|pending| pending.task == NULL_TASK || pending.is_finished());
        let writes = ended.flat_map(|pending| &pending.writes).filter(|write| write.index >= 0);
        missing.extend(writes.filter_map(|write| unknown_target(graph, write)));
    }
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let known = graph.nodes.iter().map(|node| node.name.to_string()).collect();
    Err(RunError::DueNodeMissing { graph: graph.name.clone(), nodes: missing, known })
}

/// Verifies that a run which continues a head has the joins that some of their nodes have reached: the others would not
/// complete them.
///
/// # Errors
/// [`RunError::JoinMissing`].
pub(crate) fn verify_joins(graph: &Graph, head: &Head, start: &RunStart) -> Result<(), RunError> {
    let Some(lost) = head.lost_joins.first().filter(|_| continues(start) && !head.due.is_empty()) else {
        return Ok(());
    };
    let (sources, node) =
        lost.channel.strip_prefix(JOIN_CHANNEL).and_then(|join| join.rsplit_once(':')).unwrap_or_default();
    let sources = sources.split('+').chain([node]).filter(|name| !graph.by_name.contains_key(*name));
    let missing: Vec<String> = sources.map(str::to_owned).collect();
    let (graph, node, arrived) = (graph.name.clone(), node.to_owned(), lost.arrived.clone());
    Err(RunError::JoinMissing { graph, node, arrived, missing })
}

/// Returns whether a run goes on with the tasks that are due.
fn continues(start: &RunStart) -> bool {
    match start {
        RunStart::Continue | RunStart::Command(_) | RunStart::Repeat(_) => true,
        RunStart::Inside { resuming, .. } => *resuming,
        RunStart::Input(_) | RunStart::Show => false,
    }
}

/// Returns the node to which a write leads, if the graph does not have it or the edge.
fn unknown_target(graph: &Graph, write: &PendingWrite) -> Option<String> {
    if let Some(channel) = graph.by_channel.get(&write.channel) {
        let WriteValue::One(payload) = &write.value else { return None };
        let send = Some(payload).filter(|_| *channel == graph.sends());
        let send = send.and_then(|payload| send_from(payload.as_ref()).ok())?;
        return (!graph.by_name.contains_key(&send.node)).then(|| send.node.to_string());
    }
    let target = write.channel.strip_prefix(BRANCH_CHANNEL);
    let joined = || write.channel.strip_prefix(JOIN_CHANNEL)?.rsplit(':').next();
    target.or_else(joined).map(str::to_owned)
}
