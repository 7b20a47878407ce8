//! Calls of tasks: their identity, their stored results, their ends, and their writes to the channels of their caller's
//! graph.

use annals_runs::SpecialWrite;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::NULL_TASK;
use crate::base::{Encoded, IdSource, Map, Payload, TaskId, Timestamp, Value};
use crate::graph::{BoxError, Graph, NodeResult, RetryPolicy};
use crate::panicking::panic_text;
use crate::state::erased::{messages_in_value, resolve};
use crate::state::{Writes, WritesView};
use crate::store::batch::{NewWrite, NewWrites};
use crate::task::{
    Around, Attempt, AttemptLog, Attempts, Call, CallError, CallOutcome, CallParts, CallRecord, CallValue, Context,
    ContextParts, EndedCalls, FunctionResult, Interrupt, Interrupted, Life, MessagePart, NodePlace, Signal, StepAt,
    StoredCall, interrupts_in, stops, task_namespace, versions_in,
};

use super::attempts::{attempt_interrupt, attempts_of, end, follow, is_long, note, take_write};
use super::cache::{kept_writes, known_writes};
use super::call_id::{
    CallAt, arguments_hash, call_at, changed_arguments, end_writes, has_returned, record_of, returned,
};
use super::error::RunError;
use super::head::Head;
use super::load::{asleep_of, attempt_of, interrupts_of, left_by, resume_values_of, special_of, task_writes};
use super::machine::Machine;
use super::retry::is_mistake;
use super::save::{cleared_error, cleared_partial, new_writes, special, stored_interrupts};
use super::shown::{TaskEnd, TaskInput, TaskStart};
use super::task::{TaskWrite, WriteKind, encode_stored, push};

/// The channel of the result of a called task.
pub(crate) const RETURN: &str = "__return__";

/// A call that is about to run.
pub(crate) struct CallJob {
    pub(crate) call: Call,
    pub(crate) context: Context,
    pub(crate) path: Arc<str>,
    /// Its result, if that is stored.
    pub(crate) stored: Option<Payload>,
    /// The error of a call whose arguments are not those of its stored result.
    pub(crate) changed: Option<CallError>,
    pub(super) record: CallRecord,
    attempts: Attempts,
    /// The time at which its next attempt is due, if an earlier run fell asleep before it.
    asleep: Option<Interrupt>,
    /// The index of its first write: follows the stored writes of an attempt that failed.
    first_index: i32,
}

/// Writes of a called task to the channels of its caller's graph. They are applied after the writes of the tasks of the
/// superstep, in the order of the paths, regardless of the outcome of the caller's attempt.
pub(crate) struct CallWrites {
    pub(super) task: TaskId,
    pub(super) path: Arc<str>,
    pub(super) writes: Vec<TaskWrite>,
}

/// Writes that a called task hands over to the run of its caller's graph.
pub(crate) enum CallLeft {
    /// Writes to persist if the run ends before the superstep does.
    Unsaved(NewWrites),
    Wrote(CallWrites),
}

/// The end of a call.
pub(crate) struct CallEnd {
    pub(crate) outcome: CallOutcome,
    /// The writes to persist, if the run is recorded.
    pub(crate) stored: Option<NewWrites>,
    pub(crate) wrote: Option<CallWrites>,
    /// Its end, if the next attempt of its caller takes it over.
    pub(crate) ended: Option<StoredCall>,
}

impl CallJob {
    /// Returns whether the next attempt of its caller, or of a task above, takes over its end.
    pub(crate) fn is_remembered(&self) -> bool {
        self.caller().calls().ended.is_some()
    }

    /// Returns its end as the next attempt of its caller takes it over: with a result, or with writes before its
    /// failure.
    fn ended(&self, asked: &AttemptLog, result: Option<Payload>, first_index: i32) -> StoredCall {
        let context = &self.context;
        StoredCall {
            task: context.task(),
            path: Arc::clone(&self.path),
            record: Some(self.record),
            has_error: result.is_none(),
            result,
            resume_values: asked.resume_values.clone(),
            asleep: Vec::new(),
            first_index,
            left: Vec::new(),
            attempt: Attempt::default(),
            attempts: self.attempts.clone(),
            interrupts: Vec::new(),
            versions: context.calls().versions.lock().clone(),
            begun: asked.begun.clone(),
        }
    }

    /// Returns the task that called it.
    pub(crate) fn caller(&self) -> &Context {
        self.context.life().above().unwrap_or(&self.context)
    }
}

/// Returns the stored calls of the tasks of a head.
pub(super) fn stored_calls(head: &Head, results: bool) -> Option<Arc<Vec<StoredCall>>> {
    let tasks = head.pending.iter().filter(|pending| pending.task != NULL_TASK);
    let mut calls: Vec<StoredCall> = tasks
        .map(|pending| {
            let result = if results { returned(pending) } else { None };
            let asleep = asleep_of(pending);
            let first_index = pending.writes.iter().map(|write| write.index + 1).max().unwrap_or(0).max(0);
            let left = if results { left_by(pending) } else { Vec::new() };
            let attempt = attempt_of(pending);
            StoredCall {
                task: pending.task,
                path: Arc::clone(&pending.path),
                record: record_of(pending),
                result,
                resume_values: resume_values_of(pending),
                asleep,
                left,
                first_index,
                attempt,
                attempts: attempts_of(pending),
                interrupts: interrupts_of(pending).into_iter().map(|interrupt| interrupt.id).collect(),
                has_error: pending.has_error(),
                versions: versions_in(special_of(pending, SpecialWrite::Versions)),
                begun: Vec::new(),
            }
        })
        .filter(|call| {
            let is_empty =
                [call.resume_values.len(), call.interrupts.len(), call.left.len(), call.versions.len()] == [0; 4];
            let is_known = call.first_index > 0 || call.attempt != Attempt::default() || call.attempts.failed > 0;
            is_known || !is_empty || call.has_error
        })
        .collect();
    // They are looked up by their ids.
    calls.sort_by_key(|call| call.task);
    (!calls.is_empty()).then(|| Arc::new(calls))
}

/// Returns the write to persist before the first call of a retry: the next run continues with this attempt, so that it
/// finds the results of its calls.
pub(crate) fn attempt_write(caller: &Context) -> Option<NewWrites> {
    let (outer, calls) = (caller.parts(), caller.calls());
    if !calls.unnoted.swap(false, Ordering::Relaxed) {
        return None;
    }
    let write = special(SpecialWrite::Attempt, &[calls.attempt.number, calls.attempt.calls][..]);
    let path = calls.path.text(&outer.node);
    Some(NewWrites::new(outer.checkpoint?, outer.task, path).with(vec![write]))
}

/// Returns the write that stores the versions of parts of the program that a task began with; `None` if nothing is
/// stored.
pub(crate) fn versions_write(context: &Context, versions: Map) -> Option<NewWrites> {
    let parts = context.parts();
    let path = parts.calls.path.text(&parts.node);
    let write = special(SpecialWrite::Versions, &Value::Map(versions));
    Some(NewWrites::new(parts.checkpoint?, parts.task, path).with(vec![write]))
}

/// Makes the call of a task of its own, with the next number of its name in its caller.
pub(crate) fn open_call(caller: &Context, call: Call, now: Timestamp) -> CallJob {
    let (outer, index) = (caller.parts(), caller.calls().next());
    let around = caller.namespace();
    let CallAt { id, known, is_of_run, path, number } = call_at(caller, &around, &call.name, index);
    let known = known.as_deref();
    let (record, changed) = call_record(caller, &call, known, (number, now));
    let stored = known.and_then(|known| known.result.clone());
    let first_index = known.map_or(0, |known| known.first_index);
    let mut asked = match known {
        Some(known) => AttemptLog {
            resume_values: known.resume_values.clone(),
            asleep: known.asleep.clone(),
            begun: known.begun.clone(),
            ..AttemptLog::default()
        },
        None => AttemptLog::default(),
    };
    let namespace = match crate::base::Namespace::new(around) {
        Ok(namespace) => namespace,
        // Too deep for subgraphs: each reports the error itself when it is called.
        Err(_) => outer.namespace.clone(),
    };
    let place = task_namespace(&namespace, &call.name, id);
    // An earlier attempt of this run has taken those of its interrupts.
    let given = outer.scope.resume_value_of(&place, asked.resume_values.len()).filter(|_| !is_of_run);
    asked.took = given.is_some();
    asked.resume_values.extend(given.cloned());
    let called = Arc::new((outer.place.path(&outer.node), index));
    let place =
        NodePlace { node: None, push: None, call: Some(called), around: None, graph: Arc::clone(&outer.place.graph) };
    let text = path.text(&call.name);
    let calls = CallParts {
        path,
        graph: Some(outer.calls.graph.clone().unwrap_or_else(|| outer.namespace.clone())),
        head: outer.calls.head,
        stored: outer.calls.stored.clone(),
        ended: outer.calls.ended.clone().or_else(|| policies(&call, &outer.place.graph).map(|_| EndedCalls::default())),
        previous: parking_lot::Mutex::new(outer.calls.previous.lock().clone()),
        ..CallParts::default()
    };
    if let Some(known) = known {
        let is_stored = caller.calls().stored_of(id).is_some();
        caller.calls().reached.fetch_add(u32::from(is_stored), Ordering::Relaxed);
        calls.versions.lock().clone_from(&known.versions);
    }
    let mut attempts = known.map(|known| known.attempts.clone()).unwrap_or_default();
    let stopped = known.map(|known| known.attempt);
    let calls = calls.at(attempts.attempt().or(stopped).unwrap_or_default());
    if asked.took || known.is_some_and(|known| known.is_asking() && outer.scope.resume.lock().is_set()) {
        attempts.renew();
    }
    let asleep = known.and_then(|known| asleep_before(caller, known, &task_namespace(&namespace, &call.name, id), now));
    let at = StepAt { step: outer.step, stop: outer.stop, now: outer.first_attempt_at };
    let life = Life::called(caller, call.timeout);
    let mut parts = ContextParts::new(id, Arc::clone(&call.name), place, at, Arc::clone(&outer.scope), life);
    parts.thread.clone_from(&outer.thread);
    parts.namespace = namespace;
    parts.checkpoint = outer.checkpoint;
    parts.around = Around::below(outer);
    parts.resuming = outer.resuming;
    parts.replay = outer.replay;
    parts.asked = parking_lot::Mutex::new(asked);
    parts.calls = calls;
    parts.attempt = attempts.failed.saturating_add(1);
    CallJob { call, context: Context::new(parts), path: text, stored, changed, record, attempts, asleep, first_index }
}

/// Returns the interrupt of a call that sleeps before its next attempt, unless its time has come or it was resumed.
fn asleep_before(caller: &Context, known: &StoredCall, namespace: &str, now: Timestamp) -> Option<Interrupt> {
    // A call with writes to the state is not open, as `Head::open` has it: a rival run has ended it, or an attempt of
    // it.
    if known.first_index > 0 {
        return None;
    }
    let own = attempt_interrupt(namespace, now);
    let woken = caller.scope().resume_values.as_deref().is_some_and(|values| values.contains_key(&own.id));
    let (_, wake_at) = known.asleep.iter().find(|(id, wake_at)| *id == own.id && *wake_at > now && !woken)?;
    Some(Interrupt { wake_at: Some(*wake_at), ..own })
}

/// Returns the record of a call that a run stores, and the error if its arguments are not those of an earlier run.
fn call_record(
    caller: &Context,
    call: &Call,
    known: Option<&StoredCall>,
    (number, now): (u32, Timestamp),
) -> (CallRecord, Option<CallError>) {
    let began = known.and_then(|known| known.record).map_or(now, |record| record.began);
    let caller_attempt = caller.calls().attempt.number;
    let is_compared = caller.checkpoint().is_some() || caller.calls().ended.is_some();
    let arguments = arguments_hash(if is_compared { (call.input)() } else { None });
    let is_free = call.takes_any_arguments || caller.scope().allows_changes;
    let changed = known.filter(|_| !is_free);
    let changed = changed.and_then(|known| changed_arguments(known, arguments, &call.name, number));
    (CallRecord { arguments, began, caller_attempt }, changed)
}

/// Returns the result of an attempt of a call; a panic becomes an error.
pub(crate) fn call_result(
    job: &CallJob,
    result: Result<NodeResult<FunctionResult>, Box<dyn Any + Send>>,
) -> NodeResult<FunctionResult> {
    let task = || job.context.node().to_owned();
    result.unwrap_or_else(|panic| Err(CallError::Panicked { task: task(), reason: panic_text(&*panic) }.into()))
}

/// Returns the retry policies of a call: those of an entrypoint are the default for the tasks it calls.
fn policies<'a>(call: &'a Call, graph: &'a Graph) -> Option<&'a Arc<[RetryPolicy]>> {
    let around = graph.entry.then(|| graph.nodes[0].settings.retry.as_ref()).flatten();
    call.retry.as_ref().or(around)
}

/// Decides whether a failed call is retried, and after which backoff. The next attempt retains the resume values and
/// the results of the calls that have ended.
pub(crate) fn next_attempt(
    job: &mut CallJob,
    error: &BoxError,
    now: Timestamp,
    chance: impl FnOnce() -> f64,
) -> Option<Duration> {
    let policies = policies(&job.call, &job.context.parts().place.graph)?;
    let failed = job.context.attempt();
    let policy = policies.iter().find(|policy| !stops(error) && retries_call(policy, error))?;
    if failed >= policy.max_attempts {
        return None;
    }
    let pause = policy.pause(failed, chance);
    note(&mut job.attempts, error, job.record.began, now);
    job.context = job.context.next_attempt(policies);
    follow(&mut job.attempts, job.context.calls().attempt, now.saturating_add(pause));
    Some(pause)
}

/// Returns the writes that store the failed attempts of a call which is tried again in the same run.
pub(crate) fn attempts_write(job: &mut CallJob) -> Option<NewWrites> {
    let (checkpoint, write) = (job.context.checkpoint()?, take_write(&mut job.attempts)?);
    let mut writes = vec![write];
    writes.extend(has_error(&job.context).then(cleared_error));
    Some(NewWrites::new(checkpoint, job.context.task(), Arc::clone(&job.path)).with(writes))
}

/// Returns whether an error of an earlier run of a call is stored.
fn has_error(call: &Context) -> bool {
    let ended = call.calls().ended_of(call.task());
    let known = ended.as_ref().or_else(|| call.calls().stored_of(call.task()));
    known.is_some_and(|known| known.has_error)
}

/// Lets a call sleep before its next attempt, if the pause is long: returns the end of this run of it.
pub(crate) fn sleeps_before(job: &CallJob, pause: Duration, now: Timestamp) -> Option<BoxError> {
    if !is_long(pause) || job.context.checkpoint().is_none() {
        return None;
    }
    let interrupt = attempt_interrupt(&job.context.namespace(), now.saturating_add(pause));
    job.context.asked().lock().signal = Some(Signal::Waiting(vec![interrupt]));
    Some(Interrupted::new().into())
}

/// Returns the outcome of a call that still sleeps before its next attempt.
pub(crate) fn still_asleep(job: &mut CallJob) -> Option<CallOutcome> {
    let interrupt = job.asleep.take()?;
    job.caller().asked().lock().asked_by_calls.push(interrupt.clone());
    Some(CallOutcome::Stopped(Signal::Waiting(vec![interrupt])))
}

fn retries_call(policy: &RetryPolicy, error: &BoxError) -> bool {
    let panicked = matches!(error.downcast_ref(), Some(CallError::Panicked { .. }));
    !(policy.is_default() && (panicked || is_mistake(&**error))) && policy.retries(&**error)
}

/// Ends a call whose result is cached, perhaps with its writes; returns `None` if they cannot be decoded. Also returns
/// the result, for the events.
pub(crate) fn known_call(job: &CallJob, found: Vec<Option<Encoded>>, now: Timestamp) -> Option<(CallEnd, Payload)> {
    let mut found = found.into_iter();
    let (kept, wrote) = (found.next().flatten()?, found.next().flatten());
    let value = (job.call.read)(&kept)?;
    let graph = &job.context.parts().place.graph;
    let records = job.context.checkpoint().is_some();
    let mut pushed = wrote.map_or(Some(Vec::new()), |wrote| known_writes(graph, &wrote, records))?;
    pushed.iter_mut().for_each(|write| write.index += job.first_index);
    let kept = Payload::from(kept);
    let mut writes = new_writes(graph, &mut pushed);
    writes.extend(end_writes(job, Some((job.first_index + pushed.len() as i32, kept.clone())), now));
    let stored = stored_writes(job, writes);
    let ended = job.is_remembered().then(|| {
        let first_index = job.first_index + pushed.len() as i32 + 1;
        job.ended(&job.context.asked().lock(), Some(kept.clone()), first_index)
    });
    let outcome = CallOutcome::Done(CallValue::Now(value));
    Some((CallEnd { outcome, stored, wrote: CallWrites::of(job, pushed), ended }, kept))
}

fn stored_writes(job: &CallJob, writes: Vec<NewWrite>) -> Option<NewWrites> {
    let checkpoint = job.context.checkpoint().filter(|_| !writes.is_empty())?;
    Some(NewWrites::new(checkpoint, job.context.task(), Arc::clone(&job.path)).with(writes))
}

/// Ends a call whose own calls have ended. The writes of a failed call are retained, even if its caller continues; a
/// call that interrupts is run again.
pub(crate) fn close_call(job: &mut CallJob, result: NodeResult<FunctionResult>, now: Timestamp) -> CallEnd {
    let context = job.context.clone();
    let mut asked = context.asked().lock();
    let (signal, pushed) = (asked.signal.take(), std::mem::take(&mut asked.pushed));
    let asks = matches!((&result, &signal), (Err(error), Some(_)) if stops(error));
    let pushed = if asks { Ok(Vec::new()) } else { pushed_writes(job, pushed) };
    let (result, mut pushed) = match pushed {
        Ok(pushed) => (result, pushed),
        Err(error) => (Err(error.into()), Vec::new()),
    };
    let mut writes = new_writes(&job.context.parts().place.graph, &mut pushed);
    let (mut open, mut to_store, mut result_kept, is_remembered) = (Vec::new(), None, None, job.is_remembered());
    let outcome = match (result, signal) {
        (Ok(returned), _) => {
            let index = job.first_index + pushed.len() as i32;
            result_kept = returned.stored.clone().filter(|_| is_remembered);
            to_store = returned.stored.map(|payload| (index, payload));
            writes.extend(asked.streamed.then(cleared_partial));
            CallOutcome::Done(CallValue::Now(returned.value))
        }
        (Err(_), Some(signal)) if asks => {
            let interrupts = interrupts_in(&signal);
            if !interrupts.is_empty() {
                writes.push(stored_interrupts(interrupts));
                writes.extend(has_error(&context).then(cleared_error));
                open = std::mem::take(&mut asked.asked_by_calls);
                open.extend_from_slice(interrupts);
            }
            CallOutcome::Stopped(signal)
        }
        (Err(error), _) => {
            end(&mut job.attempts, &error, job.record.began, now);
            writes.push(special(SpecialWrite::Error, &Value::from(call_failed(job, &error))));
            CallOutcome::Failed(error)
        }
    };
    let values = match &outcome {
        CallOutcome::Stopped(Signal::Waiting(interrupts)) => asked.values_at(interrupts),
        _ => &asked.resume_values,
    };
    if asked.took && !values.is_empty() {
        writes.push(special(SpecialWrite::Resume, &Value::List(values.to_vec())));
    }
    writes.extend(take_write(&mut job.attempts));
    let first_index = job.first_index + (pushed.len() + usize::from(result_kept.is_some())) as i32;
    let has_ended = is_remembered && (result_kept.is_some() || matches!(outcome, CallOutcome::Failed(_)));
    let ended = has_ended.then(|| job.ended(&asked, result_kept, first_index));
    drop(asked);
    if let Some(caller) = job.context.life().above().filter(|_| !open.is_empty()) {
        caller.asked().lock().asked_by_calls.append(&mut open);
    }
    if to_store.is_some() || !writes.is_empty() {
        writes.extend(end_writes(job, to_store, now));
    }
    let stored = stored_writes(job, writes);
    CallEnd { outcome, stored, wrote: CallWrites::of(job, pushed), ended }
}

/// Turns the values that a call pushed into writes to the channels of its caller's graph.
fn pushed_writes(job: &CallJob, pushed: Writes) -> Result<Vec<TaskWrite>, RunError> {
    let mut writes = Vec::new();
    if pushed.is_empty() {
        return Ok(writes);
    }
    let graph = &*job.context.parts().place.graph;
    // Pushed items already have ids, so the seed does not matter.
    let mut ids = IdSource::from_seed(0);
    for (field, mut write) in resolve(&*graph.layout, pushed)? {
        graph.layout.prepare(field, &mut write, &mut ids);
        push(&mut writes, field as u32, WriteKind::Field(Some(write)));
    }
    writes.iter_mut().for_each(|write| write.index += job.first_index);
    if job.context.checkpoint().is_some() {
        encode_stored(graph, &mut writes)?;
    }
    Ok(writes)
}

impl CallWrites {
    fn of(job: &CallJob, writes: Vec<TaskWrite>) -> Option<Self> {
        let (task, path) = (job.context.task(), Arc::clone(&job.path));
        (!writes.is_empty()).then_some(Self { task, path, writes })
    }

    /// Returns the cached encoding of the writes.
    pub(crate) fn kept(&self, job: &CallJob) -> Option<Encoded> {
        kept_writes(&job.context.parts().place.graph, &self.writes)
    }

    /// Returns the names of the written channels and the values, for the events.
    pub(crate) fn shown(&self, job: &CallJob) -> Vec<(Arc<str>, Value)> {
        let layout = &*job.context.parts().place.graph.layout;
        let shown = |write: &TaskWrite| match &write.kind {
            WriteKind::Field(Some(value)) => {
                let field = write.channel as usize;
                Some((Arc::clone(layout.name(field)), layout.write_to_value(field, value).ok()?))
            }
            _ => None,
        };
        self.writes.iter().filter_map(shown).collect()
    }
}

/// Returns the writes of calls that ended in an earlier run, in the order of their paths.
pub(super) fn stored_call_writes(graph: &Graph, head: &Head) -> Result<Vec<CallWrites>, RunError> {
    let mut known = Vec::new();
    for pending in head.pending.iter().filter(|pending| has_returned(pending)) {
        let (task, path, writes) = (pending.task, Arc::clone(&pending.path), task_writes(graph, pending)?);
        if !writes.is_empty() {
            known.push(CallWrites { task, path, writes });
        }
    }
    known.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(known)
}

impl Machine {
    /// Takes over the writes of called tasks.
    pub(crate) fn handle_calls(&mut self, left: impl Iterator<Item = CallLeft>) {
        for left in left {
            match left {
                CallLeft::Unsaved(writes) => self.calls.unsaved.push(writes),
                CallLeft::Wrote(wrote) => self.calls.note(wrote),
            }
        }
    }
}

/// Returns the event payload of a call that starts.
pub(crate) fn call_start(job: &CallJob) -> TaskStart {
    TaskStart { task: job.context.task_info(), input: TaskInput::Value((job.call.input)().unwrap_or_default()) }
}

/// Returns the text of the failure of a call.
pub(crate) fn call_failed(job: &CallJob, error: &BoxError) -> String {
    format!("task {:?} failed: {error}", job.context.node())
}

/// Returns the event payload of a call that has ended.
pub(crate) fn call_end(job: &CallJob, result: WritesView, error: Option<String>) -> TaskEnd {
    TaskEnd { task: job.context.task_info(), result, error, interrupts: Vec::new() }
}

/// Returns the messages in the result of a call.
pub(crate) fn call_messages(job: &CallJob, result: &Value) -> Vec<MessagePart> {
    let part = |message| MessagePart {
        message,
        task: job.context.task_info(),
        tags: [].into(),
        thread: job.context.thread().cloned(),
        is_live: false,
        once: true,
        run_metadata: job.context.scope().host.run_metadata(),
    };
    messages_in_value(result).into_iter().map(part).collect()
}

/// Returns the result of a call as a value, for the events.
pub(crate) fn shown_result(stored: &Payload) -> Value {
    crate::base::decode_bytes(stored.codec, &stored.data).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::WriteValue;
    use crate::exec::head::{PendingWrite, PendingWrites};
    use crate::exec::save::cleared_interrupts;
    use crate::graph::{NodeResult, START, StateGraph};
    use crate::state::{DynSchema, DynState};
    use crate::task::Scope;

    fn graph() -> Arc<Graph> {
        let node = |_: &DynState| -> NodeResult<()> { Ok(()) };
        let graph = StateGraph::with_schema(DynSchema::new().last("n").build()).node("node", node).edge(START, "node");
        graph.compile().unwrap().graph
    }

    /// A head with the stored writes of one call.
    fn head(writes: Vec<NewWrite>) -> Head {
        let writes = writes.into_iter().map(|write| PendingWrite {
            index: write.index,
            channel: write.channel,
            value: write.value,
            base: None,
        });
        let task = TaskId::from_bytes([1; 16]);
        let pending =
            vec![PendingWrites { task, path: "~c, l, node, 0000000000, call".into(), writes: writes.collect() }];
        Head { pending, ..Head::empty(&graph()) }
    }

    fn known(writes: Vec<NewWrite>) -> Option<StoredCall> {
        stored_calls(&head(writes), true).map(|calls| {
            assert_eq!(calls.len(), 1);
            calls[0].clone()
        })
    }

    #[test]
    fn a_call_is_known_by_what_the_next_run_needs_of_it() {
        assert!(known(vec![special(SpecialWrite::Partial, "half a sen"), cleared_interrupts()]).is_none());
        let attempt = known(vec![special(SpecialWrite::Attempt, &[1_u32, 2][..])]).unwrap().attempt;
        assert_eq!(attempt, Attempt { number: 1, calls: 2 });
        let mut attempts = Attempts::default();
        note(&mut attempts, &"busy", Timestamp::from_micros(1), Timestamp::from_micros(2));
        let stored = serde_json::to_string(&attempts).unwrap();
        assert_eq!(known(vec![special(SpecialWrite::Retries, stored.as_str())]).unwrap().attempts.failed, 1);
        let result = NewWrite::new(0, RETURN, WriteValue::One(Encoded::encode(&5).unwrap().into()));
        let done = known(vec![result]).unwrap();
        assert!(done.result.is_some() && done.first_index == 1);
    }

    #[test]
    fn a_call_sleeps_until_its_time_if_it_has_not_ended() {
        let at = Timestamp::from_micros;
        let place = NodePlace { graph: graph(), node: Some(0), push: None, call: None, around: None };
        let step = StepAt { step: 0, stop: 1, now: at(0) };
        let life = Life::new(None, Arc::default(), None, None);
        let task = TaskId::from_bytes([2; 16]);
        let caller = Context::new(ContextParts::new(task, "node".into(), place, step, Scope::detached(), life));
        let interrupt = attempt_interrupt("call:1", at(9));
        let asleep = known(vec![stored_interrupts(std::slice::from_ref(&interrupt))]).unwrap();
        let before = |known: &StoredCall, now: i64| asleep_before(&caller, known, "call:1", at(now));
        assert_eq!(before(&asleep, 8).unwrap(), interrupt);
        assert!(before(&asleep, 9).is_none(), "its time has come");
        let ended = NewWrite::new(0, RETURN, WriteValue::One(Encoded::encode(&5).unwrap().into()));
        let ended = known(vec![stored_interrupts(&[interrupt]), ended]).unwrap();
        assert!(before(&ended, 8).is_none());
    }
}
