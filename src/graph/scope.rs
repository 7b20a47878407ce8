//! What a run lends to its nodes: ports that are declared here and implemented by the drivers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::Map;
use crate::base::{CheckpointId, Clock, Namespace, SystemClock, TaskId, Timestamp, Value};
use crate::message::Message;
use crate::store::{Cache, Kv};

use super::call::{Call, Called};
use super::context::{Context, ResumeOnce, interrupt_id};
use super::control::RunControl;

/// What a node shows while it runs.
#[derive(Clone, Debug)]
pub(crate) enum LivePart {
    /// Any value.
    Custom(Value),
    /// A message, or a piece of one, with the tags that its maker gave it; `once` if it is left out when it was shown
    /// before.
    Message { message: Box<Message>, once: bool, tags: Arc<[String]> },
}

/// The driver of a run, as its nodes see it.
pub(crate) trait Host: Any + Send + Sync {
    /// Shows something of the task of `context`. It may wait for a slow reader.
    fn emit(&self, context: &Context, part: LivePart);

    /// Runs a call of the task of `context`, now or on a thread of its own. `None` outside a run.
    fn start(self: Arc<Self>, context: &Context, call: Call) -> Option<Arc<dyn Called>>;

    /// Returns the present moment of the clock of the run.
    fn now(&self) -> Timestamp;

    /// Returns whether the messages of this task are shown.
    fn shows_messages(&self, context: &Context) -> bool;

    /// Returns the metadata of the run: the text of a JSON object.
    fn run_metadata(&self) -> Option<String>;

    /// Returns how long it is since some moment, by the clock of the run.
    fn elapsed(&self) -> Duration;

    /// Returns itself, for the driver that knows its type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// What all nodes of a run share, and the runs inside it.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) control: RunControl,
    /// The value that the caller gave to all nodes.
    pub(crate) value: Option<Arc<dyn Any + Send + Sync>>,
    /// The key-value memory, if there is one.
    pub(crate) kv: Option<Kv>,
    /// Where results are kept, if they are.
    pub(crate) cache: Option<Cache>,
    /// The answer that the first question without one takes.
    pub(crate) resume: ResumeOnce,
    /// Answers by the id of their question.
    pub(crate) answers: Option<Arc<Map>>,
    /// Whether an id stands for its question alone. If not, the id of the first question of a task stands for those
    /// that follow as well.
    pub(crate) exact: bool,
    /// Where graphs inside were left, until the graphs around them have stored what they made of it.
    pub(crate) left: Arc<Mutex<Vec<Left>>>,
}

/// Where a run has left a graph inside a task.
pub(crate) struct Left {
    pub(crate) namespace: Namespace,
    pub(crate) head: CheckpointId,
    /// The tasks it ran in, innermost first.
    pub(crate) tasks: Vec<TaskId>,
    /// Whether the next task finds it there.
    pub(crate) keeps: bool,
}

/// A driver that shows nothing.
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

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl Scope {
    /// Makes the scope of a run on a driver.
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        Self {
            host,
            control: RunControl::new(),
            value: None,
            kv: None,
            cache: None,
            resume: ResumeOnce::default(),
            answers: None,
            exact: false,
            left: Arc::default(),
        }
    }

    /// Returns the answer to the question number `answered` of the task in a namespace, if it was given by its id.
    pub(crate) fn answer_to(&self, task_namespace: &str, answered: usize) -> Option<&Value> {
        let answers = self.answers.as_deref()?;
        let first = || answers.get(&interrupt_id(task_namespace, 0)).filter(|_| !self.exact);
        answers.get(&interrupt_id(task_namespace, answered)).or_else(first)
    }

    /// Returns where the graphs stand that `is_inside` says are meant.
    pub(crate) fn left_inside(&self, is_inside: impl Fn(&Left) -> bool) -> Vec<(Namespace, CheckpointId)> {
        let left = self.left.lock();
        left.iter().filter(|left| is_inside(left)).map(|left| (left.namespace.clone(), left.head)).collect()
    }

    /// Forgets where a graph stands: it goes on, or what was made of it is stored.
    pub(crate) fn forget_left(&self, is_meant: impl Fn(&Left) -> bool) {
        self.left.lock().retain(|left| !is_meant(left));
    }

    /// Makes the scope of what no driver runs.
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(Self::new(Arc::new(Nobody)))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("control", &self.control).finish_non_exhaustive()
    }
}
