//! Queues: inputs that wait for a worker, as threads.
//!
//! A queued run is a thread with the checkpoint of its input, whose one task is due; a worker continues it as any run
//! whose process died. So a queue needs no rows of its own: the table of threads has its order, and a timer holds a
//! delay. *Absent:* running anything, and the limits of a queue, which workers state.

use std::time::Duration;

use crate::base::limits::{NAME_BYTES_MAX, PRIORITY_MAX, RUN_KEY_BYTES_MAX, UPDATE_ATTEMPTS_MAX};
use crate::base::{CheckpointId, Encoded, Map, Namespace, RunId, TaskId, Timestamp, Value, debug_fields, setters};
use crate::hash::xxh3_128;
use crate::history::Thread;
use crate::special::interrupts_write;
use crate::status::status_name;
use crate::steps::START;
use crate::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, NewTimer, NewWrites, Parent};
use crate::store::lease::NewLease;
use crate::store::log::LogExt;
use crate::store::record::{TaskKind, TaskRecord};
use crate::store::{Source, StatusKind, Store, StoreError, ThreadInfo, ThreadQuery};

/// The id of the interrupt by which the task of a delayed run sleeps. Those of tasks are hexadecimal digits.
const DELAY: &str = "delay";

/// The queue of a graph, with the options of the runs that are put into it. Made by
/// [`StoreRuns::queue`](crate::StoreRuns::queue). It needs neither the graph nor its types: any process that opens the
/// store can use it. A worker of `annals-graph` with a graph of this name runs its entries.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals::base::Value;
/// use annals::history::ThreadQuery;
/// use annals_runs::ThreadStatus;
/// use annals_runs::prelude::*;
///
/// # fn main() -> Result<()> {
/// let store = Store::memory();
/// let book = store.queue("book");
/// book.enqueue("order-17", 17)?;
/// book.clone().priority(5).metadata([("customer", "ann")]).enqueue("order-18", 18)?;
/// book.clone().delay(Duration::from_secs(3_600)).enqueue("order-19", 19)?;
///
/// let next: Vec<_> = store.threads_with(ThreadQuery::new().queue("book"))?;
/// assert_eq!(next.iter().map(|run| run.id().as_str()).collect::<Vec<_>>(), ["order-18", "order-17"]);
/// assert!(matches!(ThreadStatus::of(&store.thread("order-19")?.info()?), ThreadStatus::Sleeping(_)));
///
/// let once = book.dedup("mail-4711");
/// assert!(once.enqueue("order-20", 20)?.is_new);
/// assert!(!once.enqueue("order-20", 20)?.is_new, "the key is known");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is stored before `enqueue`"]
pub struct Queue {
    store: Store,
    graph: String,
    due: DueFrom,
    priority: u8,
    key: Option<String>,
    metadata: Map,
}

/// The time from which on a run may begin.
#[derive(Clone, Copy)]
enum DueFrom {
    Now,
    After(Duration),
    At(Timestamp),
}

/// A run in a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Queued {
    /// The thread of the run.
    pub thread: Thread,
    /// True if this call stored the input; false if a run with the deduplication key was there.
    pub is_new: bool,
}

/// The kind of a graph, which decides what takes an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueuedInput {
    /// The function of an entrypoint: the input is its argument.
    Argument,
    /// The channels of a graph: the input is an update, by channel.
    Update,
}

impl Queue {
    pub(crate) fn new(store: Store, graph: String) -> Self {
        Self { store, graph, due: DueFrom::Now, priority: 0, key: None, metadata: Map::new() }
    }

    setters! {
        /// Lets a run begin after a duration. Until then its thread has the status `sleeping`.
        pub fn delay(duration: Duration) { .due = DueFrom::After(duration) }

        /// Lets a run begin at a timestamp, in place of [`Queue::delay`].
        pub fn at(timestamp: Timestamp) { .due = DueFrom::At(timestamp) }

        /// Sets the priority, 0 to 9: of the runs that are due the one with the greatest is claimed first, then the one
        /// that was enqueued first. Default: 0.
        pub fn priority(priority: u8) { .priority = priority }

        /// Sets the deduplication key of a run on its thread. A second call with the key stores nothing, whatever
        /// became of the first run, also from another process. It is the idempotency key of the run
        /// (`Run::idempotency_key` of `annals-graph`), and belongs to the thread: to deduplicate over threads, derive
        /// the id of the thread from the key.
        pub fn dedup(key: impl Into<String>) { .key = Some(key.into()) }

        /// Sets metadata of a run, which a worker passes on to each of its checkpoints. A limit per key reads its value
        /// there.
        pub fn metadata(metadata: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) {
            .metadata.extend(metadata.into_iter().map(|(name, value)| (name.into(), value.into())))
        }
    }

    /// Stores the argument of an entrypoint: its run is due. Returns when that is durable. The thread is new, or its
    /// last run has ended.
    ///
    /// # Errors
    /// [`StoreError::Id`] if `thread` cannot be the id of a thread; [`StoreError::Invalid`] if a run on the thread has
    /// not ended, if the priority is above 9, or if the key or the name of the graph is empty or too long;
    /// [`StoreError::Leased`] while a run with a lease is on the thread; and as
    /// [`Log::submit`](annals::store::log::Log::submit).
    pub fn enqueue(&self, thread: impl AsRef<str>, argument: impl Into<Value>) -> Result<Queued, StoreError> {
        self.put(thread.as_ref(), &argument.into(), QueuedInput::Argument)
    }

    /// Stores the input of a graph, an update by channel: its run is due. Returns when that is durable.
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    ///
    /// # Example
    /// ```
    /// use annals_runs::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let queued = store.queue("chat").enqueue_update("trip", [("question", "A hotel in Bern?")])?;
    /// assert_eq!(queued.thread.info()?.status.as_str(), "running");
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_update(
        &self,
        thread: impl AsRef<str>,
        update: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>,
    ) -> Result<Queued, StoreError> {
        let update = update.into_iter().map(|(channel, value)| (channel.into(), value.into())).collect();
        self.put(thread.as_ref(), &Value::Map(update), QueuedInput::Update)
    }

    /// Stores the input of a graph in its stored form: an update by channel, or lists of writes and of targets. For
    /// executors, whose inputs are typed; see [`Queue::enqueue_update`].
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    pub fn enqueue_stored(&self, thread: impl AsRef<str>, input: &Value) -> Result<Queued, StoreError> {
        self.put(thread.as_ref(), input, QueuedInput::Update)
    }

    /// Lists the runs that are due, in the order in which workers claim them: see [`ThreadQuery::queue`].
    ///
    /// # Errors
    /// As [`Store::threads_with`].
    pub fn due(&self, limit: usize) -> Result<Vec<ThreadInfo>, StoreError> {
        self.store.threads_with(ThreadQuery::new().queue(&*self.graph).limit(limit))
    }

    fn put(&self, thread: &str, input: &Value, takes: QueuedInput) -> Result<Queued, StoreError> {
        let thread = self.store.thread(thread)?;
        self.validate()?;
        self.store.flush_abandoned();
        let run = match &self.key {
            Some(key) => RunId::from_key(thread.id(), key),
            None => self.store.mint_run(),
        };
        let (mut attempt, mut newest) = (1, None);
        let is_stored = || match &self.key {
            Some(_) => self.store.backend().last_of_run(thread.id(), &Namespace::root(), &run).map(|run| run.is_some()),
            None => Ok(false),
        };
        if is_stored()? {
            return Ok(Queued { thread, is_new: false });
        }
        loop {
            let before = EnqueuedOn::of(&thread);
            // Another process may have stored the run and ended it since the first look. A commit after the head was
            // read is a conflict.
            if is_stored()? {
                return Ok(Queued { thread, is_new: false });
            }
            let batch = before.and_then(|before| self.batch(&thread, run, (before, newest), input, takes));
            match batch.and_then(|batch| self.store.commit(&batch)) {
                Ok(()) => return Ok(Queued { thread, is_new: true }),
                // The id of the task is a hash of that of its checkpoint, so the batch is made anew.
                Err(StoreError::StaleId { newest: id, .. }) if attempt < UPDATE_ATTEMPTS_MAX => {
                    (attempt, newest) = (attempt + 1, Some(id));
                }
                // Another process was faster: it may have stored the same key.
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                // The same run, stored since the look for it, is the one that has not ended.
                Err(_) if is_stored()? => return Ok(Queued { thread, is_new: false }),
                Err(error) => return Err(error),
            }
        }
    }

    fn validate(&self) -> Result<(), StoreError> {
        let invalid = |field, reason| Err(StoreError::Invalid { field, reason });
        if self.graph.is_empty() || self.graph.len() > NAME_BYTES_MAX {
            let bytes = self.graph.len();
            return invalid("queue", format!("its name has {bytes} bytes, and needs 1 to {NAME_BYTES_MAX}"));
        }
        if self.priority > PRIORITY_MAX {
            return invalid("priority", format!("{} is above the greatest, {PRIORITY_MAX}", self.priority));
        }
        match &self.key {
            Some(key) if key.is_empty() || key.len() > RUN_KEY_BYTES_MAX => {
                let bytes = key.len();
                invalid("deduplication key", format!("it has {bytes} bytes, and needs 1 to {RUN_KEY_BYTES_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the batch that stores an input, and the timer of a delay.
    fn batch(
        &self,
        thread: &Thread,
        run: RunId,
        (before, newest): (EnqueuedOn, Option<CheckpointId>),
        input: &Value,
        takes: QueuedInput,
    ) -> Result<Batch, StoreError> {
        debug_assert!(self.validate().is_ok(), "the options are validated before a batch is made");
        let (now, step) = (self.store.now(), before.step + 1);
        let id = self.store.mint_checkpoint(step, before.head.max(newest).as_ref());
        let mut checkpoint = NewCheckpoint::new(id, before.head.map(Parent::Local), step, Source::Input, now);
        let task = self.task(id, step + 1, takes);
        checkpoint.run = Some(run);
        checkpoint.metadata = Some(self.metadata_text());
        checkpoint.tasks = vec![task.clone()];
        let data = Data::New(Encoded::encode(input)?.into());
        checkpoint.changes = vec![Change::new(START, before.version_max + 1, ChangeValue::Value(data))];
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), before.head);
        batch.checkpoints = vec![checkpoint];
        batch.lease = Some(NewLease::require_unclaimed(self.store.mint_owner(), now));
        let due_at = match self.due {
            DueFrom::Now => None,
            DueFrom::After(duration) => Some(now.saturating_add(duration)),
            DueFrom::At(timestamp) => Some(timestamp),
        };
        if let Some(due_at) = due_at.filter(|due_at| *due_at > now) {
            batch.then = vec![asleep(thread, id, &task, due_at)?];
        }
        Ok(batch)
    }

    /// Returns the task that takes the input: a node of the name of the entrypoint, or the input task of a graph.
    fn task(&self, checkpoint: CheckpointId, step: i64, takes: QueuedInput) -> TaskRecord {
        let name = if takes == QueuedInput::Argument { &*self.graph } else { START };
        let place = format!("{name}{step}{name}__pregel_pull{START}");
        let id = TaskId::from_bytes(xxh3_128(&[checkpoint.as_bytes(), place.as_bytes()].concat()));
        TaskRecord::new(id, name, TaskKind::Pull { triggers: vec![START.into()] })
    }

    fn metadata_text(&self) -> String {
        let members = self.metadata.iter().map(|(name, value)| (name.clone(), value.clone().to_json()));
        let mut members: serde_json::Map<String, serde_json::Value> = members.collect();
        members.insert(ThreadInfo::GRAPH.into(), self.graph.as_str().into());
        if self.priority > 0 {
            members.insert(ThreadInfo::PRIORITY.into(), self.priority.into());
        }
        serde_json::Value::Object(members).to_string()
    }
}

/// The head on which a run is enqueued.
struct EnqueuedOn {
    head: Option<CheckpointId>,
    step: i64,
    /// The greatest version of its channels.
    version_max: u64,
}

impl EnqueuedOn {
    fn of(thread: &Thread) -> Result<Self, StoreError> {
        let backend = thread.store().backend();
        let Some(info) = backend.thread_info(thread.id())? else {
            return Ok(Self { head: None, step: -2, version_max: 0 });
        };
        if info.status != StatusKind::Done {
            let reason =
                format!("the run of {} has not ended: its status is {}", thread.id(), status_name(info.status));
            return Err(StoreError::Invalid { field: "thread", reason });
        }
        let state = backend.state(&info.record.point)?;
        let version_max = state.channels.iter().map(|channel| channel.version).max().unwrap_or(0);
        Ok(Self { head: Some(info.head()), step: info.record.step, version_max })
    }
}

/// Returns the batch by which the task of a run sleeps until it is due.
fn asleep(thread: &Thread, id: CheckpointId, task: &TaskRecord, due_at: Timestamp) -> Result<Batch, StoreError> {
    let interrupt = [("value", Value::Null), ("id", DELAY.into()), ("wake_at", due_at.as_micros().into())];
    let interrupt = interrupt.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let write = interrupts_write(vec![Value::Map(interrupt)])?;
    let writes = NewWrites::new(id, task.id, task.path()).with(vec![write]);
    let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(id));
    batch.writes = vec![writes];
    batch.timers = vec![NewTimer::new(id, task.id, Some(due_at))];
    Ok(batch)
}

debug_fields!(Queue { graph, priority });
