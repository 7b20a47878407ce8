//! Deferred nodes: their triggers are held until nothing else is left to run.

use crate::base::{Encoded, Value};
use crate::graph::Graph;
use crate::store::batch::{ChangeValue, Data};

use super::apply::{Changes, bump, note_barrier};
use super::error::RunError;
use super::head::Head;
use super::plan::each_triggered;

/// Starts the triggers of deferred nodes over that ran (`consume` of `LastValueAfterFinish`).
pub(super) fn consume(graph: &Graph, head: &mut Head, channel: u32, next: u64, changes: &mut Changes, record: bool) {
    let Some(at) = graph.deferral_of(channel) else { return };
    if std::mem::take(&mut head.finished[at]) {
        head.present[channel as usize] = false;
        bump(head, channel, next);
        if record {
            changes.note(channel, ChangeValue::Empty, None);
        }
    }
}

/// Holds the trigger of a deferred node that was written. Returns whether it is one.
pub(super) fn hold(
    graph: &Graph,
    head: &mut Head,
    channel: u32,
    changes: &mut Changes,
    record: bool,
) -> Result<bool, RunError> {
    let Some(at) = graph.deferral_of(channel) else { return Ok(false) };
    head.finished[at] = false;
    if record {
        changes.note(channel, stored(false)?, None);
    }
    Ok(true)
}

/// Releases the held triggers, if no channel that the superstep changed triggers another node.
pub(super) fn finish(
    graph: &Graph,
    head: &mut Head,
    updated: &mut Vec<u32>,
    next: u64,
    changes: &mut Changes,
    record: bool,
) -> Result<(), RunError> {
    if graph.deferred.is_empty() {
        return Ok(());
    }
    let mut triggers = false;
    updated.iter().for_each(|channel| each_triggered(graph, *channel, |_| triggers = true));
    if triggers {
        return Ok(());
    }
    for (at, node) in graph.deferred.iter().enumerate() {
        let channel = graph.trigger(*node);
        if head.present[channel as usize] && !std::mem::replace(&mut head.finished[at], true) {
            bump(head, channel, next);
            updated.push(channel);
            if record {
                changes.note(channel, stored(true)?, None);
            }
        }
    }
    for (join, of) in graph.joins.iter().enumerate() {
        if head.barriers[join].finish() {
            bump(head, of.channel, next);
            updated.push(of.channel);
            note_barrier(graph, head, of.channel, changes, record)?;
        }
    }
    Ok(())
}

/// A held trigger is stored as `[null, released]`.
fn stored(released: bool) -> Result<ChangeValue, RunError> {
    Ok(ChangeValue::Value(Data::New(Encoded::encode(&((), released))?.into())))
}

/// Reads whether a held trigger was released.
pub(super) fn released(stored: &Value) -> bool {
    stored.as_list().and_then(|pair| pair.get(1)).and_then(Value::as_bool).unwrap_or(false)
}

/// Splits the stored value of a barrier into the names it saw and the released flag, which is stored only for barriers
/// of deferred nodes.
pub(super) fn barrier(stored: Value) -> (Value, bool) {
    match stored {
        Value::List(mut pair) if pair.len() == 2 && pair[1].as_bool().is_some() => {
            let released = pair.pop().and_then(|released| released.as_bool()).unwrap_or(false);
            (pair.pop().unwrap_or_default(), released)
        }
        names => (names, false),
    }
}
