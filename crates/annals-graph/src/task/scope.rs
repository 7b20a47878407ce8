//! The ports of a run: traits that the drivers implement, and the state that all its nodes share.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Map;
use crate::base::{Clock, SystemClock, Timestamp, Value};
use crate::graph::NodeResult;
use crate::message::Message;
use crate::store::{Cache, Kv};

use super::call::{Call, Called};
use super::context::{Context, ResumeOnce, interrupt_id};
use super::control::RunControl;

/// A part of the stream that a node emits while it runs.
#[derive(Clone, Debug)]
pub(crate) enum LivePart {
    /// Any value.
    Custom(Value),
    /// A message or a chunk, with the tags of its stream. `once` leaves it out if it was streamed before.
    Message { message: Box<Message>, once: bool, tags: Arc<[String]> },
}

/// The driver of a run, as its nodes call it.
pub(crate) trait Host: Any + Send + Sync {
    /// Streams a part of the task of `context`. It may wait for a slow reader.
    fn emit(&self, context: &Context, part: LivePart);

    /// Starts a call of the task of `context`, on its thread or on another one. `None` outside a run.
    fn start(self: Arc<Self>, context: &Context, call: Call) -> Option<Arc<dyn Called>>;

    /// Returns the time of the clock of the run.
    fn now(&self) -> Timestamp;

    /// Returns whether the messages of this task are streamed.
    fn shows_messages(&self, context: &Context) -> bool;

    /// Returns the metadata of the run: the text of a JSON object.
    fn run_metadata(&self) -> Option<String>;

    /// Returns the interval at which the run persists messages that are streamed, if it does.
    fn message_interval(&self) -> Option<Duration>;

    /// Persists a message of the task of `context` as far as it was streamed, for a channel of its graph. Returns
    /// whether it was handed to the store: not while an earlier one is on its way, and not in a run that stores at its
    /// end.
    fn persist_message(&self, context: &Context, channel: &str, message: Message, started: Timestamp) -> bool;

    /// Stores a value as the output of the task of `context`, in place of the one before. Returns whether it was handed
    /// to the store: not in a run that stores at its end, and not after the end of the task.
    fn store_output(&self, context: &Context, output: &Value) -> bool;

    /// Stores the versions of parts of the program that the task of `context` began with. The commit is awaited where
    /// its next call runs, or at its end.
    ///
    /// # Errors
    /// Those of an earlier commit of the run.
    fn store_versions(&self, context: &Context, versions: Map) -> NodeResult<()>;

    /// Returns the duration since some fixed time, by the clock of the run.
    fn elapsed(&self) -> Duration;

    /// Returns itself, for the driver that knows its type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The parts that all nodes of a run and of its subgraphs share.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) control: RunControl,
    /// The context value of the run.
    pub(crate) value: Option<Arc<dyn Any + Send + Sync>>,
    /// The key-value memory, if the run has one.
    pub(crate) kv: Option<Kv>,
    /// The cache of results, if the run has one.
    pub(crate) cache: Option<Cache>,
    /// The resume value that the first interrupt without one takes.
    pub(crate) resume: ResumeOnce,
    /// True if the run stores nothing before it ends, `resume` included.
    pub(crate) holds: bool,
    /// Resume values by the ids of their interrupts.
    pub(crate) resume_values: Option<Arc<Map>>,
    /// Resume values that were stored from outside, by the ids of their interrupts; each names its interrupt alone.
    pub(crate) given: Option<Map>,
    /// True if the run begins at a checkpoint that was named, or on a head that was moved back: no signal is delivered
    /// there.
    pub(crate) addressed: bool,
    /// True if the run begins on a head that was moved back: the resume values that are stored there do not count.
    pub(crate) anew: bool,
    /// True if an id names its interrupt alone. Otherwise the id of the first interrupt of a task stands for the later
    /// ones of the task as well.
    pub(crate) exact: bool,
    /// True if the arguments of calls are not compared with those of their stored results.
    pub(crate) allows_changes: bool,
    /// True if the times at which tasks ended are stored.
    pub(crate) records_ends: bool,
}

/// A driver that streams nothing.
struct Nobody;

impl Host for Nobody {
    fn emit(&self, _: &Context, _: LivePart) {}

    fn start(self: Arc<Self>, _: &Context, _: Call) -> Option<Arc<dyn Called>> {
        None
    }

    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn shows_messages(&self, _: &Context) -> bool {
        false
    }

    fn run_metadata(&self) -> Option<String> {
        None
    }

    fn message_interval(&self) -> Option<Duration> {
        None
    }

    fn persist_message(&self, _: &Context, _: &str, _: Message, _: Timestamp) -> bool {
        false
    }

    fn store_output(&self, _: &Context, _: &Value) -> bool {
        false
    }

    fn store_versions(&self, _: &Context, _: Map) -> NodeResult<()> {
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl Scope {
    /// Returns the scope of a run on a driver.
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        Self {
            host,
            control: RunControl::new(),
            value: None,
            kv: None,
            cache: None,
            resume: ResumeOnce::default(),
            holds: false,
            resume_values: None,
            given: None,
            addressed: false,
            anew: false,
            exact: false,
            allows_changes: false,
            records_ends: false,
        }
    }

    /// Returns the resume value of the interrupt number `resumed` of the task in a namespace, if it was given by id.
    pub(crate) fn resume_value_of(&self, task_namespace: &str, resumed: usize) -> Option<&Value> {
        if let Some(given) = &self.given
            && let Some(value) = given.get(&interrupt_id(task_namespace, resumed))
        {
            return Some(value);
        }
        let resume_values = self.resume_values.as_deref()?;
        let first = || resume_values.get(&interrupt_id(task_namespace, 0)).filter(|_| !self.exact);
        resume_values.get(&interrupt_id(task_namespace, resumed)).or_else(first)
    }

    /// Returns the scope of a task that no driver runs.
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(Self::new(Arc::new(Nobody)))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("control", &self.control).finish_non_exhaustive()
    }
}
