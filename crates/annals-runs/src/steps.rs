//! The steps of a thread: tasks of nodes and calls of tasks, with their attempts, times and results, read without a
//! graph.
//!
//! A superstep ends with the checkpoint that continues it; a call with the record that is stored with its result.
//! Invariant: the steps of a checkpoint are read when they are asked for, and nothing of another checkpoint with them.
//! *Absent:* calls that run at present, of which nothing but an output is stored before they end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::base::{
    CheckpointId, Codec, Map, NULL_TASK, TaskId, Timestamp, Value, debug_fields, decode_bytes, variants,
};
use crate::ended_call::EndedCall;
use crate::history::{History, Snapshot, Thread};
use crate::special::SpecialWrite;
use crate::store::batch::WriteValue;
use crate::store::log::LogExt;
use crate::store::record::{TaskRecord, WriteRecord, is_control};
use crate::store::{CheckpointRef, Source, StoreError};

/// The channels of the result of a called task and of an entrypoint.
const RETURN: &str = "__return__";
const END: &str = "__end__";
/// The channel that holds an input, and the name of the task that takes the input of a graph.
pub(crate) const START: &str = TaskRecord::INPUT;

variants! {
    /// The state of a step.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum StepState {
        /// It has ended, and its result is stored.
        Done => "done",
        /// It is due, runs, or was cut short by the end of its process.
        Running => "running",
        /// It waits for a resume value.
        Interrupted => "interrupted",
        /// It waits for a timestamp, [`StepInfo::wake_at`].
        Sleeping => "sleeping",
        /// Its last attempt failed.
        Failed => "failed",
        /// Its run was cancelled while it ran.
        Cancelled => "cancelled",
        /// It did not end, and the thread has gone on without it.
        Abandoned => "abandoned",
    }
    /// Returns the name: `done`, `running`, `interrupted`, `sleeping`, `failed`, `cancelled` or `abandoned`.
    pub fn as_str -> &'static str, Display
}

/// An attempt of a step. The times are known of attempts that failed and were followed by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptInfo {
    /// The message of its error, `None` of the attempt that succeeded or that is under way.
    pub error: Option<String>,
    /// The time at which it began.
    pub started_at: Option<Timestamp>,
    /// The time at which it ended.
    pub ended_at: Option<Timestamp>,
}

/// A task of a node, or a call of a task, with all its attempts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepInfo {
    /// The checkpoint at which it, or its caller, was due.
    pub point: CheckpointRef,
    /// The number of its superstep.
    pub superstep: i64,
    /// The id of the task.
    pub task: TaskId,
    /// The name of the node, or of the called task; empty of a call that was stored by a version before names were.
    pub name: Arc<str>,
    /// True for a call of a task.
    pub is_call: bool,
    /// The state.
    pub state: StepState,
    /// Its attempts, the first one first. One that has not begun yet is not counted.
    pub attempts: Vec<AttemptInfo>,
    /// True if another node handles its failure.
    pub is_handled: bool,
    /// The time at which it was due, of a call the time at which it was made.
    pub started_at: Timestamp,
    /// The time at which it ended, if [`StepInfo::has_own_end`] says so, else that at which its superstep ended.
    pub ended_at: Option<Timestamp>,
    /// True if its own end is stored: of a call, and of a task of a run that records the ends of its tasks.
    pub has_own_end: bool,
    /// The result: the returned value of a call or an entrypoint, else a map of the written channels.
    pub result: Option<Value>,
    /// The time at which it goes on, if it sleeps or waits for its next attempt.
    pub wake_at: Option<Timestamp>,
    /// The output of its last attempt beside its result, also while it runs: see `Context::store_output` of the
    /// executor.
    pub output: Option<Value>,
}

impl StepInfo {
    /// Returns the duration from its begin to its end, `None` if it has not ended.
    pub fn duration(&self) -> Option<Duration> {
        let micros = self.ended_at?.as_micros().saturating_sub(self.started_at.as_micros());
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    /// Returns the message of the error of its last attempt that failed, an empty text if none did.
    pub fn error_text(&self) -> &str {
        self.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref()).unwrap_or_default()
    }
}

/// The steps of a thread, those of the newest superstep first. Returned by
/// [`ThreadRuns::steps`](crate::ThreadRuns::steps).
pub struct Steps {
    history: History,
    /// The head, whose tasks may still run.
    head: Option<CheckpointId>,
    /// The times at which supersteps ended: children come before their parents.
    ended: HashMap<CheckpointId, Timestamp>,
    page: VecDeque<StepInfo>,
    /// The number of checkpoints in a row without a step, after which it ends.
    gap_max: Option<usize>,
    is_truncated: bool,
}

impl Iterator for Steps {
    type Item = Result<StepInfo, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut gap = 0;
        while self.page.is_empty() {
            if self.gap_max.is_some_and(|most| gap >= most) {
                self.is_truncated = true;
            }
            if self.is_truncated {
                return None;
            }
            gap += 1;
            let read = self.history.next()?.and_then(|at| self.read(&at));
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
        self.page.pop_front().map(Ok)
    }
}

impl Steps {
    /// Begins at the newest checkpoint of a thread.
    pub(crate) fn of(thread: &Thread) -> Result<Self, StoreError> {
        let head = thread.head()?.map(|head| head.id());
        Ok(Self {
            history: thread.history()?,
            head,
            ended: HashMap::new(),
            page: VecDeque::new(),
            gap_max: None,
            is_truncated: false,
        })
    }

    /// Ends the iterator after this number of checkpoints in a row without a step, so that a listing of a thread
    /// without tasks does not read its whole history. Default: no end before the first checkpoint.
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("notes")?;
    /// for n in 0..3 {
    ///     thread.set("n", n)?;
    /// }
    /// let mut steps = thread.steps()?.gap_max(2);
    /// assert!(steps.next().is_none() && steps.is_truncated());
    /// # Ok(())
    /// # }
    /// ```
    pub fn gap_max(mut self, checkpoints: usize) -> Self {
        self.gap_max = Some(checkpoints);
        self
    }

    /// Returns whether it has ended because of [`Steps::gap_max`]: older checkpoints may have steps.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Reads the steps of a checkpoint.
    fn read(&mut self, at: &Snapshot) -> Result<(), StoreError> {
        let record = at.record();
        if let Some(parent) = record.parent.filter(|_| record.source == Source::Loop) {
            self.ended.insert(parent, record.created_at);
        }
        let ended = self.ended.remove(&at.id());
        let place = Superstep { at, ended, is_head: self.head == Some(at.id()) };
        self.page.extend(place.steps()?);
        Ok(())
    }
}

impl Superstep<'_> {
    /// Returns its steps: its tasks, then the calls that were made in it.
    fn steps(&self) -> Result<Vec<StepInfo>, StoreError> {
        let (record, mut steps) = (self.at.record(), Vec::new());
        if record.tasks.is_empty() {
            return Ok(steps);
        }
        let mut written: Vec<StepWrites> = Vec::new();
        for write in self.at.writes()? {
            match written.iter_mut().find(|of| of.task == write.task) {
                Some(of) => of.add(write)?,
                None => written.push(StepWrites::begin(write)?),
            }
        }
        for task in record.tasks.iter().filter(|task| !task.takes_input()) {
            let index = written.iter().position(|of| of.task == task.id);
            let of = index.map_or_else(|| StepWrites::of(task.id), |index| written.remove(index));
            steps.push(self.step(of, Arc::clone(&task.name), false));
        }
        written.retain(|of| of.task != NULL_TASK && of.is_call);
        written.sort_by(|a, b| (a.started, &a.path).cmp(&(b.started, &b.path)));
        steps.extend(written.into_iter().map(|of| {
            let name = of.name();
            self.step(of, name, true)
        }));
        Ok(steps)
    }
}

/// The writes of one task, read.
struct StepWrites {
    task: TaskId,
    path: Arc<str>,
    is_call: bool,
    error: Option<String>,
    /// The error that the cancel of its run stored.
    cancelled: Option<String>,
    wake_at: Option<Timestamp>,
    is_waiting: bool,
    /// True if it has writes of its result.
    is_done: bool,
    returned: Option<Value>,
    channels: Map,
    started: Option<Timestamp>,
    took: i64,
    /// The end of a task of a node, if the run recorded it.
    ended: Option<Timestamp>,
    /// The number of its attempt, from 0.
    attempt: Option<i64>,
    retries: Option<StoredRetries>,
    is_handled: bool,
    output: Option<Value>,
}

/// The stored attempts of a task, a JSON text.
#[derive(Deserialize)]
struct StoredRetries {
    /// The number of failures in a row; 0 after one that was not retried, which is the last of the attempts then.
    failed: u32,
    next: Option<i64>,
    attempts: Vec<StoredAttempt>,
}

#[derive(Deserialize)]
struct StoredAttempt {
    started: i64,
    ended: i64,
    error: String,
}

impl StepWrites {
    fn of(task: TaskId) -> Self {
        Self {
            task,
            path: "".into(),
            is_call: false,
            error: None,
            cancelled: None,
            wake_at: None,
            is_waiting: false,
            is_done: false,
            returned: None,
            channels: Map::new(),
            started: None,
            took: 0,
            ended: None,
            attempt: None,
            retries: None,
            is_handled: false,
            output: None,
        }
    }

    fn begin(write: WriteRecord) -> Result<Self, StoreError> {
        let is_call = write.path.starts_with("~c, ") || write.path.ends_with(", 0000000001");
        let mut of = Self { path: Arc::clone(&write.path), is_call, ..Self::of(write.task) };
        of.add(write)?;
        Ok(of)
    }

    fn add(&mut self, write: WriteRecord) -> Result<(), StoreError> {
        let list = |value: &Value, at: usize| value.as_list().and_then(|list| list.get(at)).and_then(Value::as_int);
        if write.index >= 0 {
            return self.add_result(write);
        }
        // A special write that was cleared, as the error of a task that is retried.
        if write.value == WriteValue::Null {
            return Ok(());
        }
        match SpecialWrite::of_index(write.index) {
            Some(SpecialWrite::Error) => self.error = Some(text(write.to_value()?)),
            Some(SpecialWrite::Cancelled) => self.cancelled = Some(text(write.to_value()?)),
            Some(SpecialWrite::Interrupt) => self.add_interrupts(&write.to_value()?),
            Some(SpecialWrite::Attempt) => self.attempt = list(&write.to_value()?, 0),
            Some(SpecialWrite::Call) => self.add_call(EndedCall::of(&write.value)),
            Some(SpecialWrite::ErrorSource) => self.is_handled = true,
            Some(SpecialWrite::Output) => self.output = Some(write.to_value()?),
            Some(SpecialWrite::Ended) => self.ended = write.to_value()?.as_int().map(Timestamp::from_micros),
            Some(SpecialWrite::Retries) => self.retries = serde_json::from_str(&text(write.to_value()?)).ok(),
            _ => {}
        }
        Ok(())
    }

    /// Adds the record of a call.
    fn add_call(&mut self, call: Option<EndedCall<'_>>) {
        self.started = call.map(|call| call.began);
        self.took = call.map_or(0, |call| call.took);
    }

    /// Adds a write of the result.
    fn add_result(&mut self, write: WriteRecord) -> Result<(), StoreError> {
        self.is_done = true;
        if &*write.channel == SpecialWrite::Call.channel() {
            let call = EndedCall::of(&write.value);
            let returned = call.and_then(|call| call.returned);
            self.returned = returned.map(|value| decode_bytes(Codec::MsgPack, value)).transpose()?;
            self.add_call(call);
        } else if matches!(&*write.channel, RETURN | END) {
            self.returned = Some(write.to_value()?);
        } else if !is_control(&write.channel) {
            self.add_channel(&write.channel, write.to_value()?);
        }
        Ok(())
    }

    fn add_interrupts(&mut self, interrupts: &Value) {
        for interrupt in interrupts.as_list().unwrap_or_default() {
            self.is_waiting = true;
            let wake_at = interrupt.get("wake_at").and_then(Value::as_int).map(Timestamp::from_micros);
            self.wake_at = [self.wake_at, wake_at].into_iter().flatten().min();
        }
    }

    /// Adds the value of a channel; several of one channel become `{"$writes": [..]}`.
    fn add_channel(&mut self, channel: &str, value: Value) {
        let Some(known) = self.channels.get_mut(channel) else {
            _ = self.channels.insert(channel.to_owned(), value);
            return;
        };
        let several = known.get("$writes").and_then(Value::as_list).map(<[Value]>::to_vec);
        let mut several = several.unwrap_or_else(|| vec![std::mem::take(known)]);
        several.push(value);
        *known = Value::Map([("$writes".to_owned(), Value::List(several))].into_iter().collect());
    }

    /// Returns its error, unless it was run again since and waits for another attempt.
    fn error(&self) -> Option<&str> {
        let is_past = self.retries.as_ref().is_some_and(|retries| retries.failed > 0);
        self.error.as_deref().filter(|_| !is_past)
    }

    /// Returns the name of a called task, which follows its number, of ten digits, at the end of its path.
    fn name(&self) -> Arc<str> {
        let path = self.path.strip_prefix("~c, ").unwrap_or_default();
        let named = path.rmatch_indices(", ").find_map(|(at, _)| {
            let (digits, name) = (path.get(at + 2..at + 12)?, path.get(at + 12..)?.strip_prefix(", ")?);
            digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
        });
        named.unwrap_or_default().into()
    }
}

/// The place of the steps of one checkpoint.
struct Superstep<'a> {
    at: &'a Snapshot,
    ended: Option<Timestamp>,
    is_head: bool,
}

impl Superstep<'_> {
    fn step(&self, of: StepWrites, name: Arc<str>, is_call: bool) -> StepInfo {
        let state = self.state_of(&of, is_call);
        let started_at = of.started.unwrap_or_else(|| self.at.created_at());
        let has_ended = matches!(state, StepState::Done | StepState::Failed | StepState::Cancelled);
        let ended_at = match is_call {
            true => of
                .started
                .filter(|_| has_ended)
                .map(|at| Timestamp::from_micros(at.as_micros().saturating_add(of.took))),
            false => of.ended.filter(|_| has_ended).or(self.ended),
        };
        let has_own_end = ended_at.is_some() && (is_call || of.ended.is_some());
        let next = of.retries.as_ref().and_then(|retries| retries.next).map(Timestamp::from_micros);
        let wake_at = match state {
            StepState::Sleeping => of.wake_at.or(next),
            StepState::Running => next,
            _ => None,
        };
        let attempts = attempts_of(&of, state, next.is_some() && wake_at == next);
        let channels = Some(of.channels).filter(|channels| of.is_done && !channels.is_empty());
        let result = of.returned.or(channels.map(Value::Map));
        let (point, task) = (self.at.point().clone(), of.task);
        let superstep = self.at.step().saturating_add(1);
        StepInfo {
            point,
            superstep,
            task,
            name,
            is_call,
            state,
            attempts,
            is_handled: of.is_handled,
            started_at,
            ended_at,
            has_own_end,
            result,
            wake_at,
            output: of.output,
        }
    }

    fn state_of(&self, of: &StepWrites, is_call: bool) -> StepState {
        let is_done = of.is_done && (!is_call || of.returned.is_some());
        match of.error() {
            _ if is_done || (!is_call && self.ended.is_some()) => StepState::Done,
            // A later error takes the place of that of the cancel.
            Some(_) if of.cancelled.is_some() && of.cancelled == of.error => StepState::Cancelled,
            Some(_) => StepState::Failed,
            None if self.ended.is_some() || !self.is_head => StepState::Abandoned,
            None if of.wake_at.is_some() => StepState::Sleeping,
            None if of.is_waiting => StepState::Interrupted,
            None => StepState::Running,
        }
    }
}

/// Returns the attempts of a step: those that were followed by another one, and the last one unless it has not begun.
fn attempts_of(of: &StepWrites, state: StepState, is_before_next: bool) -> Vec<AttemptInfo> {
    let mut attempts: Vec<AttemptInfo> = Vec::new();
    if let Some(retries) = &of.retries {
        attempts.extend(retries.attempts.iter().map(|attempt| AttemptInfo {
            error: Some(attempt.error.clone()),
            started_at: Some(Timestamp::from_micros(attempt.started)),
            ended_at: Some(Timestamp::from_micros(attempt.ended)),
        }));
    }
    // A version before stored the number of the attempt alone.
    let known = usize::try_from(of.attempt.unwrap_or(0)).unwrap_or(0).min(usize::from(u16::MAX));
    let unknown = AttemptInfo { error: None, started_at: None, ended_at: None };
    while of.retries.is_none() && attempts.len() < known {
        attempts.push(unknown.clone());
    }
    let has_failed = matches!(state, StepState::Failed | StepState::Cancelled);
    let error = of.error().filter(|_| has_failed).map(str::to_owned);
    // The last failure is one of those that are stored, if it followed others. The error of a call begins with its
    // name.
    let last = of.retries.as_ref().and_then(|retries| retries.attempts.last());
    let is_counted = last.zip(error.as_deref()).is_some_and(|(last, error)| error.ends_with(&*last.error));
    if !is_before_next && !is_counted {
        attempts.push(AttemptInfo { error, ..unknown });
    }
    attempts
}

fn text(value: Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn steps(at: &Snapshot, next: Option<&Snapshot>) -> Result<Vec<StepInfo>, StoreError> {
    let (ended, point) = (next.map(Snapshot::created_at), at.point());
    let is_head = match ended {
        Some(_) => false,
        None => at.store().backend().head_id(&point.thread, &point.namespace)? == Some(at.id()),
    };
    Superstep { at, ended, is_head }.steps()
}

pub(crate) fn input(at: &Snapshot) -> Result<Option<Value>, StoreError> {
    let mut at = at.clone();
    while at.source() != Source::Input {
        let Some(parent) = at.parent()? else { return Ok(None) };
        at = parent;
    }
    if let Some(input) = at.get(START)?.filter(|input| !input.is_null()) {
        return Ok(Some(input));
    }
    let Some(task) = at.record().tasks.iter().find(|task| task.takes_input()).map(|task| task.id) else {
        return Ok(None);
    };
    let mut of = StepWrites::of(task);
    at.writes()?.into_iter().filter(|write| write.task == task).try_for_each(|write| of.add(write))?;
    Ok(Some(Value::Map(of.channels)))
}

pub(crate) fn result(at: &Snapshot) -> Result<Option<Value>, StoreError> {
    if at.record().tasks.is_empty() { at.get(END) } else { Ok(None) }
}

debug_fields!(Steps { head });
