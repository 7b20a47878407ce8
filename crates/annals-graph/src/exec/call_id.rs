//! The identity of calls: the name of the task, its number among the calls of this name in its caller, and a hash of
//! its arguments, which is not part of the id but compared.
//!
//! Invariant: the id of a call does not depend on calls of other tasks, so that a call added in front of it changes
//! nothing. A call that a version before this rule stored is found under the id that it had then.

use annals_runs::{EndedCall, SpecialWrite};
use std::borrow::Cow;
use std::sync::Arc;

use crate::base::{Payload, TaskId, Timestamp, Value, ValueView, WriteValue};
use crate::hash;
use crate::store::batch::NewWrite;
use crate::task::{CallError, CallRecord, Context, StoredCall, TaskPath};

use super::call::{CallJob, RETURN};
use super::head::{PendingWrite, PendingWrites};

/// The arguments of a call that cannot be serialized.
const UNKNOWN_ARGUMENTS: u32 = 1 << 31;

/// The place of a call: its id, the record of an earlier run, and the path of its writes.
pub(super) struct CallAt<'a> {
    pub(super) id: TaskId,
    pub(super) known: Option<Cow<'a, StoredCall>>,
    /// True if that is of an attempt of this run, which has stored it.
    pub(super) is_of_run: bool,
    pub(super) path: TaskPath,
    /// The number of the call among those of its name, from 0.
    pub(super) number: u32,
}

/// Gives a call its place in its caller. `index` is its number among all calls of the caller's attempts.
pub(super) fn call_at<'a>(caller: &'a Context, around: &str, name: &Arc<str>, index: u32) -> CallAt<'a> {
    let (outer, calls) = (caller.parts(), caller.calls());
    let number = calls.next_of(name);
    // Each attempt makes the same calls, so they count from its begin.
    let index = index.wrapping_sub(calls.attempt.calls);
    let id = call_id(caller, name, number);
    let find = |id: TaskId| match calls.ended_of(id) {
        Some(ended) => Some((id, Cow::Owned(ended), true)),
        None => Some((id, Cow::Borrowed(calls.stored_of(id)?), false)),
    };
    let earlier = || calls.stored.as_ref().and_then(|_| find(earlier_id(caller, around, name, index)));
    match find(id).or_else(earlier) {
        Some((id, known, is_of_run)) => {
            let path = TaskPath::Stored(Arc::clone(&known.path));
            CallAt { id, known: Some(known), is_of_run, path, number }
        }
        None => {
            let path = TaskPath::Call { caller: calls.path.key(&outer.node), index };
            CallAt { id, known: None, is_of_run: false, path, number }
        }
    }
}

/// Returns the id of a call: a hash of the id of its caller, its name and its number. It is the same in each attempt.
fn call_id(caller: &Context, name: &str, number: u32) -> TaskId {
    let mut place = Vec::with_capacity(64 + name.len());
    place.extend_from_slice(caller.task().as_bytes());
    place.extend_from_slice(b"call");
    place.extend_from_slice(&number.to_le_bytes());
    place.extend_from_slice(name.as_bytes());
    TaskId::from_bytes(hash::xxh3_128(&place))
}

/// Returns the id that versions before gave a call: a hash of the checkpoint and the path of its caller and of its
/// number among all calls of the caller's attempt.
fn earlier_id(caller: &Context, around: &str, name: &str, index: u32) -> TaskId {
    let caller_path = caller.calls().path.text(caller.node());
    let mut place = Vec::with_capacity(160);
    place.extend_from_slice(caller.checkpoint().unwrap_or_default().as_bytes());
    let (step, index) = (caller.step().to_string(), index.to_string());
    for part in [around, "|", name, &step, name, "__pregel_push", &*caller_path, &index] {
        place.extend_from_slice(part.as_bytes());
    }
    let attempt = caller.calls().attempt.number;
    if attempt > 0 {
        place.extend_from_slice(format!("|{}", attempt + 1).as_bytes());
    }
    TaskId::from_bytes(hash::xxh3_128(&place))
}

/// Returns the hash of arguments, whose upper bit is set: it takes five bytes in the store, whatever they are. Objects
/// with the same members in another order have the same hash, as the members of a hash map have no order.
pub(super) fn arguments_hash(arguments: Option<Value>) -> u32 {
    let Some(Ok(encoded)) = arguments.map(|arguments| sorted(&arguments).encode()) else {
        return UNKNOWN_ARGUMENTS;
    };
    let [a, b, c, d, ..] = hash::xxh3_128(&encoded.bytes);
    (u32::from_le_bytes([a, b, c, d]) | UNKNOWN_ARGUMENTS).max(UNKNOWN_ARGUMENTS + 1)
}

/// Returns a value whose objects have their members in the order of the names.
fn sorted(value: &Value) -> ValueView<'_> {
    match value {
        Value::List(items) => items.iter().map(sorted).collect(),
        Value::Map(map) => {
            let mut members: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), sorted(value))).collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            ValueView::Fields(members)
        }
        other => ValueView::Value(other),
    }
}

/// Returns the error of a call whose stored result, or stored resume values, belong to other arguments.
pub(super) fn changed_arguments(known: &StoredCall, arguments: u32, name: &str, number: u32) -> Option<CallError> {
    let stored = known.record.map(|record| record.arguments).filter(|stored| *stored != UNKNOWN_ARGUMENTS)?;
    let is_used = known.result.is_some() || !known.resume_values.is_empty();
    let differs = is_used && arguments != UNKNOWN_ARGUMENTS && arguments != stored;
    differs.then(|| CallError::ChangedArguments { task: name.to_owned(), number: number.saturating_add(1) })
}

/// Returns the writes that store the end of a call: its record, and its result with the index of that write.
pub(super) fn end_writes(job: &CallJob, result: Option<(i32, Payload)>, now: Timestamp) -> Vec<NewWrite> {
    let CallRecord { arguments, began, caller_attempt } = job.record;
    let took = now.as_micros().saturating_sub(began.as_micros()).max(0);
    let call = EndedCall::new(arguments, began, took, caller_attempt);
    if let Some((index, result)) = &result
        && let Ok(Some(write)) = call.write_with(*index, result)
    {
        return vec![write];
    }
    let result = result.map(|(index, result)| NewWrite::new(index, RETURN, WriteValue::One(result)));
    result.into_iter().chain(call.write().ok()).collect()
}

/// Returns the ends of a call that are stored with its writes.
fn ended_calls(pending: &PendingWrites) -> impl Iterator<Item = EndedCall<'_>> {
    let is_call = |write: &&PendingWrite| &*write.channel == SpecialWrite::Call.channel();
    pending.writes.iter().filter(is_call).filter_map(|write| EndedCall::of(&write.value))
}

/// Returns the stored record of a call; `None` of a task that was not called.
pub(super) fn record_of(pending: &PendingWrites) -> Option<CallRecord> {
    let stored = ended_calls(pending).max_by_key(|call| call.returned.is_some())?;
    let EndedCall { arguments, began, caller_attempt, .. } = stored;
    Some(CallRecord { arguments, began, caller_attempt })
}

/// Returns the stored result of a call.
pub(super) fn returned(pending: &PendingWrites) -> Option<Payload> {
    let alone = pending.writes.iter().find_map(|write| match &write.value {
        WriteValue::One(payload) if &*write.channel == RETURN => Some(payload.clone()),
        _ => None,
    });
    alone.or_else(|| ended_calls(pending).find_map(|call| call.returned.map(|data| Payload::new(data.to_vec()))))
}

/// Returns whether a call has stored its result.
pub(super) fn has_returned(pending: &PendingWrites) -> bool {
    pending.writes.iter().any(|write| &*write.channel == RETURN)
        || ended_calls(pending).any(|call| call.returned.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{START, StateGraph};
    use crate::state::{DynSchema, DynState};
    use crate::task::{Attempt, ContextParts, Life, NodePlace, Scope, StepAt};
    use serde_json::json;

    #[test]
    fn a_hash_of_arguments_keeps_its_value() {
        assert_eq!(arguments_hash(Some(json!({"b": [1, "x"], "a": null}).into())), 2_750_220_389);
        assert_eq!(arguments_hash(Some(5.into())), 2_707_305_185);
    }

    #[test]
    fn a_hash_of_arguments_has_its_upper_bit_set_and_is_not_that_of_unknown_ones() {
        assert_eq!(arguments_hash(None), UNKNOWN_ARGUMENTS);
        let hashes: std::collections::BTreeSet<u32> = (0..64).map(|n: i64| arguments_hash(Some(n.into()))).collect();
        assert_eq!(hashes.len(), 64);
        assert!(hashes.iter().all(|hash| *hash > UNKNOWN_ARGUMENTS));
    }

    #[test]
    fn an_earlier_id_names_the_attempt_after_the_first() {
        let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
            .node("node", |_: &DynState| Ok(()))
            .edge(START, "node")
            .compile()
            .unwrap()
            .graph;
        let id = |number: u32| {
            let place = NodePlace { graph: Arc::clone(&graph), node: Some(0), push: None, call: None, around: None };
            let at = StepAt { step: 3, stop: 9, now: Timestamp::from_micros(0) };
            let life = Life::new(None, Arc::default(), None, None);
            let task = TaskId::from_bytes([2; 16]);
            let mut parts = ContextParts::new(task, "node".into(), place, at, Scope::detached(), life);
            parts.calls.begin(Attempt { number, calls: 0 });
            earlier_id(&Context::new(parts), "", "call", 5)
        };
        let place = |end: &str| {
            let begin = [0_u8; 16].to_vec();
            let text = format!("|call3call__pregel_push~__pregel_pull, node5{end}");
            TaskId::from_bytes(hash::xxh3_128(&[begin, text.into_bytes()].concat()))
        };
        assert_eq!([id(0), id(1), id(2)], ["", "|2", "|3"].map(place));
    }
}
