//! The open interrupts of a thread, and resume values for them, without a graph.
//!
//! A resume value that comes from outside is stored at the head, in a map by the ids of the interrupts (`__given__`,
//! without a task: `__resume__` is the value of a command of a run). In the same commit the interrupt leaves the list
//! of its task, and the task gets a timer that has passed, so the status tells that the task is due and a worker finds
//! it. *Absent:* running the graph.

use std::sync::Arc;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Encoded, Map, NULL_TASK, Namespace, TaskId, Timestamp, Value};
use crate::history::{Snapshot, Thread};
use crate::resume_value::check_resume_value;
use crate::signal;
use crate::special::{SpecialWrite, interrupts_write};
use crate::status::interrupt_wakes_at;
use crate::store::batch::{Batch, NewTimer, NewWrites, WriteValue};
use crate::store::log::LogExt;
use crate::store::record::{StoredHead, WriteRecord};
use crate::store::{StatusKind, StoreError};

/// An interrupt at which a task of a thread waits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpenInterrupt {
    /// The id: 32 hexadecimal digits.
    pub id: String,
    /// The task of the head that waits, itself or in a graph or task that it calls.
    pub task: TaskId,
    /// The value that the task gave.
    pub value: Value,
    /// The timestamp from which on the task continues without a resume value: it sleeps, or receives a signal.
    pub wake_at: Option<Timestamp>,
    /// The name of the signal that the task receives.
    pub signal: Option<String>,
    /// The JSON schema of its resume values.
    pub response_schema: Option<Value>,
}

impl OpenInterrupt {
    fn of(task: TaskId, stored: &Value) -> Self {
        let text = |name: &str| stored.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        Self {
            id: text("id").unwrap_or_default(),
            task,
            value: stored.get("value").cloned().unwrap_or_default(),
            wake_at: interrupt_wakes_at(stored),
            signal: text("signal"),
            response_schema: stored.get("response_schema").cloned(),
        }
    }
}

/// The interrupts of one task, as they are stored.
struct WaitingTask {
    task: TaskId,
    path: Arc<str>,
    interrupts: Vec<Value>,
    /// True for a task that another one calls: a run removes the timers of its own tasks alone.
    is_call: bool,
}

/// The tasks that wait at a head, and the resume values that are stored for them.
pub(crate) struct WaitingTasks {
    pub(crate) head: CheckpointId,
    tasks: Vec<WaitingTask>,
    given: Map,
}

impl WaitingTasks {
    /// Reads the tasks that wait at the head of the root namespace; `None` for a thread without a head. A head that was
    /// moved back has none: its tasks run anew.
    pub(crate) fn read(thread: &Thread) -> Result<Option<Self>, StoreError> {
        thread.store().flush_abandoned();
        let stored = thread.store().backend().head_with_writes(thread.id(), &Namespace::root())?;
        stored.map(|stored| Self::of(&stored)).transpose()
    }

    fn of(stored: &StoredHead) -> Result<Self, StoreError> {
        let head = stored.checkpoint;
        if stored.is_continued {
            return Ok(Self { head, tasks: Vec::new(), given: Map::new() });
        }
        Ok(Self { head, tasks: waiting_tasks(&stored.writes)?, given: given_values(&stored.writes)? })
    }

    /// Returns the open interrupts, those with a stored resume value included.
    pub(crate) fn open(&self) -> Vec<OpenInterrupt> {
        open_of(&self.tasks)
    }

    /// Returns whether a resume value for the interrupt is stored.
    pub(crate) fn is_given(&self, id: &str) -> bool {
        self.given.contains_key(id)
    }

    /// Returns the batch that stores resume values by the ids of their interrupts, and makes the tasks due.
    pub(crate) fn resumed(&self, thread: &Thread, values: Map) -> Result<Batch, StoreError> {
        let mut given = self.given.clone();
        given.extend(values);
        let is_open = |stored: &&Value| {
            let id = stored.get("id").and_then(Value::as_str);
            id.is_none_or(|id| !given.contains_key(id))
        };
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(self.head));
        let now = thread.store().now();
        for task in &self.tasks {
            let left: Vec<Value> = task.interrupts.iter().filter(is_open).cloned().collect();
            if left.len() == task.interrupts.len() {
                continue;
            }
            let write = interrupts_write(left)?;
            batch.writes.push(NewWrites::new(self.head, task.task, Arc::clone(&task.path)).with(vec![write]));
            if !task.is_call {
                batch.timers.push(NewTimer::new(self.head, task.task, Some(now)));
            }
        }
        let write = SpecialWrite::Given.write(one(&Value::Map(given))?);
        batch.writes.push(NewWrites::new(self.head, NULL_TASK, "").with(vec![write]));
        Ok(batch)
    }
}

/// Returns the tasks among stored writes that have open interrupts.
fn waiting_tasks(writes: &[WriteRecord]) -> Result<Vec<WaitingTask>, StoreError> {
    // A task that failed went past its interrupts: a value for one would be lost.
    let is_over = |write: &WriteRecord| write.index >= 0 || SpecialWrite::Error.is_set(write);
    let has_ended = |task: TaskId| writes.iter().any(|write| write.task == task && is_over(write));
    let mut tasks = Vec::new();
    for write in writes.iter().filter(|write| write.task != NULL_TASK && SpecialWrite::Interrupt.is(write)) {
        if let Value::List(interrupts) = write.to_value()?
            && !has_ended(write.task)
        {
            let is_call = is_call(writes, write.task);
            tasks.push(WaitingTask { task: write.task, path: Arc::clone(&write.path), interrupts, is_call });
        }
    }
    Ok(tasks)
}

/// Returns whether a task is called by another one.
pub(crate) fn is_call(writes: &[WriteRecord], task: TaskId) -> bool {
    writes.iter().any(|write| write.task == task && SpecialWrite::Call.is(write))
}

fn open_of(tasks: &[WaitingTask]) -> Vec<OpenInterrupt> {
    // The interrupt of a called task is in the list of its caller as well.
    let mut open: Vec<OpenInterrupt> = Vec::new();
    for task in tasks {
        for interrupt in task.interrupts.iter().map(|stored| OpenInterrupt::of(task.task, stored)) {
            if open.iter().all(|other| other.id != interrupt.id) {
                open.push(interrupt);
            }
        }
    }
    open
}

fn one(value: &Value) -> Result<WriteValue, StoreError> {
    Ok(WriteValue::One(Encoded::encode(value)?.into()))
}

/// Returns the resume values by the ids of their interrupts among the stored writes of a head.
fn given_values(writes: &[WriteRecord]) -> Result<Map, StoreError> {
    let is_id = |name: &String| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match writes.iter().find(|write| write.task == NULL_TASK && SpecialWrite::Given.is(write)) {
        Some(write) => match write.to_value()? {
            Value::Map(given) if given.keys().all(is_id) => Ok(given),
            _ => Ok(Map::new()),
        },
        None => Ok(Map::new()),
    }
}

pub(crate) fn resume_interrupt(thread: &Thread, id: &str, value: impl Into<Value>) -> Result<(), StoreError> {
    let value = value.into();
    let mut attempt = 1;
    loop {
        match resume_interrupt_once(thread, id, &value) {
            Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) if attempt < UPDATE_ATTEMPTS_MAX => {
                attempt += 1
            }
            done => return done,
        }
    }
}

fn resume_interrupt_once(thread: &Thread, id: &str, value: &Value) -> Result<(), StoreError> {
    verify_not_ended(thread)?;
    let missing = || StoreError::ThreadNotFound { id: thread.id().clone() };
    let (mailbox, waiting) = signal::waiting(thread)?;
    let waiting = waiting.ok_or_else(missing)?;
    let open = waiting.open();
    let Some(interrupt) = open.iter().find(|interrupt| interrupt.id == id && !waiting.is_given(id)) else {
        let ids = open.into_iter().map(|interrupt| interrupt.id).filter(|id| !waiting.is_given(id)).collect();
        return Err(StoreError::InterruptNotOpen { thread: thread.id().clone(), id: id.to_owned(), open: ids });
    };
    if let Some(schema) = &interrupt.response_schema {
        let misfit = check_resume_value(schema, value, id).err();
        misfit
            .map_or(Ok(()), |misfit| Err(StoreError::Invalid { field: "resume value", reason: misfit.to_string() }))?;
    }
    let values = Map::from_iter([(id.to_owned(), value.clone())]);
    signal::store_resume_values(thread, &waiting, values, mailbox.as_ref(), &[])
}

/// Verifies that the thread has a task that is due, and is not cancelled.
pub(crate) fn verify_not_ended(thread: &Thread) -> Result<(), StoreError> {
    match thread.info()?.status {
        status @ (StatusKind::Done | StatusKind::Cancelled) => {
            Err(StoreError::ThreadEnded { thread: thread.id().clone(), status: status.as_str() })
        }
        _ => Ok(()),
    }
}

/// Returns the open interrupts of a checkpoint.
pub(crate) fn of_snapshot(at: &Snapshot) -> Result<Vec<OpenInterrupt>, StoreError> {
    Ok(open_of(&waiting_tasks(&at.writes()?)?))
}

/// Returns the open interrupts of the head of a thread.
pub(crate) fn of_head(thread: &Thread) -> Result<Vec<OpenInterrupt>, StoreError> {
    Ok(WaitingTasks::read(thread)?.map_or_else(Vec::new, |waiting| waiting.open()))
}

/// Returns the stored interrupts of the tasks of a checkpoint that have not ended.
pub(crate) fn stored_of(at: &Snapshot) -> Result<Vec<(TaskId, Value)>, StoreError> {
    let writes = at.writes()?;
    let has_ended = |task| writes.iter().any(|write| write.task == task && write.index >= 0);
    let mut stored = Vec::new();
    for write in writes.iter().filter(|write| SpecialWrite::Interrupt.is(write) && !has_ended(write.task)) {
        for interrupt in write.to_value()?.as_list().unwrap_or_default() {
            stored.push((write.task, interrupt.get("value").cloned().unwrap_or_default()));
        }
    }
    Ok(stored)
}
