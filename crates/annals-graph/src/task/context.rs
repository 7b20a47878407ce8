//! The context of a task: the data of its run, and its interrupts.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::base::{CheckpointId, Encoded, Map, Namespace, RunId, TaskId, ThreadId, Timestamp, Value};
use crate::graph::{Command, RetryPolicy};
use crate::hash;
use crate::state::Writes;
use crate::store::{CheckpointRef, Kv};

use super::call::CallParts;
use super::control::RunControl;
use super::life::Life;
use super::scope::{LivePart, Scope};
use super::task_info::{NodePlace, TaskInfo, TaskParts};

/// An interrupt: a value that a task shows to the caller of the run, and at which the run waits for a resume value
/// (`Interrupt`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Interrupt {
    /// The value that the task gave.
    pub value: Value,
    /// The id, by which a resume value names the interrupt: 32 hexadecimal digits.
    pub id: String,
    /// The time from which on the task continues without a resume value, if it sleeps: see [`Context::sleep_until`].
    pub wake_at: Option<Timestamp>,
    /// The name of the signal that the task waits for: see [`Context::receive`].
    pub signal: Option<String>,
    /// The JSON schema of its resume values: see [`Context::interrupt_with`].
    pub response_schema: Option<Value>,
}

impl Interrupt {
    /// Returns the hash of its content, 32 hexadecimal digits: the id says at which place a task waits, the hash for
    /// which value. A resume value can carry both: [`Command::and_seen`].
    pub fn hash(&self) -> String {
        // Values that a task gave, or that were decoded, always encode.
        let encoded = Encoded::encode(&Value::Map(self.to_map())).map(|encoded| encoded.bytes).unwrap_or_default();
        hash::digits(hash::checksum(&encoded))
    }

    /// Returns an interrupt that takes any resume value.
    pub(crate) fn new(value: Value, id: String) -> Self {
        Self { value, id, wake_at: None, signal: None, response_schema: None }
    }

    /// Returns the members by name: `value`, `id`, and those that are set.
    pub(crate) fn to_map(&self) -> Map {
        let mut map: Map = [("value".to_owned(), self.value.clone()), ("id".to_owned(), self.id.as_str().into())]
            .into_iter()
            .collect();
        map.extend(self.wake_at.map(|moment| ("wake_at".to_owned(), moment.as_micros().into())));
        map.extend(self.signal.as_deref().map(|name| ("signal".to_owned(), name.into())));
        map.extend(self.response_schema.clone().map(|schema| ("response_schema".to_owned(), schema)));
        map
    }
}

/// The context of a task: its run, its place in it, and the ports through which it interrupts, streams and stores. A
/// clone is cheap.
#[derive(Clone)]
pub struct Context(Arc<ContextParts>);

/// The resume value of `Command::resume`, taken by the first interrupt that needs it.
pub(crate) type ResumeOnce = Arc<Mutex<ResumeValue>>;

/// The resume value of a run that names no interrupt.
#[derive(Default)]
pub(crate) struct ResumeValue {
    value: Option<Value>,
    /// The task of the outermost graph that alone may take the value, itself or in a subgraph; `None` if any task may.
    task: Option<TaskId>,
}

impl ResumeValue {
    /// Sets the value, `None` if there is none, and the task that alone may take it.
    pub(crate) fn set(&mut self, value: Option<Value>, task: Option<TaskId>) {
        (self.value, self.task) = (value, task);
    }

    /// Returns whether the value was not taken yet.
    pub(crate) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// Takes the value for the interrupt of a task, if the task may take it.
    fn take(&mut self, of: &Context) -> Option<Value> {
        let may_take = self.task.is_none_or(|task| of.with_callers().last().is_some_and(|outer| outer.task() == task));
        self.value.take_if(|_| may_take)
    }
}

pub(crate) struct ContextParts {
    pub(crate) thread: Option<ThreadId>,
    pub(crate) namespace: Namespace,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) task: TaskId,
    pub(crate) node: Arc<str>,
    pub(crate) step: i64,
    pub(crate) stop: i64,
    /// The parts that the whole run shares.
    pub(crate) scope: Arc<Scope>,
    /// The positions of the parent graphs; `None` without a store.
    pub(crate) around: Option<Around>,
    /// True if the run continues an earlier one, so that the subgraphs of the task continue as well.
    pub(crate) resuming: bool,
    /// The run, if it makes the superstep of an older checkpoint again in place: tasks with the same ids have run
    /// before.
    pub(crate) replay: Option<RunId>,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    pub(crate) first_attempt_at: Timestamp,
    /// The failure that an error handler handles.
    pub(crate) error: Option<Arc<NodeError>>,
    /// The node of the graph that the task runs.
    pub(crate) place: NodePlace,
    pub(crate) asked: Mutex<AttemptLog>,
    pub(crate) calls: CallParts,
    pub(crate) life: Life,
}

impl ContextParts {
    /// Makes the parts of a first attempt that no store records, in the outermost graph. The
    /// caller sets the fields that differ.
    #[inline]
    pub(crate) fn new(
        task: TaskId,
        node: Arc<str>,
        place: NodePlace,
        at: StepAt,
        scope: Arc<Scope>,
        life: Life,
    ) -> Self {
        Self {
            thread: None,
            namespace: Namespace::root(),
            checkpoint: None,
            task,
            node,
            step: at.step,
            stop: at.stop,
            scope,
            around: None,
            resuming: false,
            replay: None,
            attempt: 1,
            first_attempt_at: at.now,
            error: None,
            place,
            asked: Mutex::default(),
            calls: CallParts::default(),
            life,
        }
    }
}

/// The superstep of a task.
#[derive(Clone, Copy)]
pub(crate) struct StepAt {
    pub(crate) step: i64,
    /// The superstep at which the run reaches its limit.
    pub(crate) stop: i64,
    /// The start of the first attempt.
    pub(crate) now: Timestamp,
}

/// The position of a graph and of its parent graphs.
#[derive(Clone)]
pub(crate) struct Around {
    /// The namespaces of the parent graphs, and the checkpoints they stand at.
    pub(crate) parents: Arc<[(Namespace, CheckpointId)]>,
    /// The heads of these namespaces.
    pub(crate) heads: Arc<[(Namespace, Option<CheckpointId>)]>,
    /// The head of its own namespace.
    pub(crate) head: Option<CheckpointId>,
}

impl Around {
    /// Returns where the graphs stand around one that runs in a task, or around a task that is called there.
    pub(crate) fn below(outer: &ContextParts) -> Option<Self> {
        let around = outer.around.as_ref()?;
        let parent = outer.checkpoint.map(|checkpoint| (outer.namespace.clone(), checkpoint));
        // A called task stands in the graph of its caller, which is counted there.
        let counts = parent.is_some() && outer.calls.graph.is_none();
        let head = counts.then(|| (outer.namespace.clone(), around.head));
        // A run that was started at a checkpoint of this very graph names that one as well: it is of the past.
        let others =
            around.parents.iter().filter(|(of, _)| parent.as_ref().is_none_or(|(namespace, _)| namespace != of));
        Some(Self {
            parents: others.cloned().chain(parent.clone()).collect(),
            heads: around.heads.iter().cloned().chain(head).collect(),
            head: around.head,
        })
    }
}

/// The reason for which a task cannot end, as a subgraph or an interrupt gave it.
#[derive(Clone, Debug)]
pub(crate) enum Signal {
    /// Open interrupts; at a breakpoint the list is empty.
    Waiting(Vec<Interrupt>),
    /// A command of a subgraph for the graph of this task.
    Parent(Box<Command>),
    /// The run was asked to drain, for this reason.
    Drained(String),
    /// The run was cancelled, for this reason.
    Cancelled(String),
}

/// The interrupts and calls of one attempt of a task.
#[derive(Default)]
pub(crate) struct AttemptLog {
    /// The resume values so far, in the order of the interrupts.
    pub(crate) resume_values: Vec<Value>,
    /// The number of resume values that this attempt has read.
    pub(crate) read: usize,
    /// True if this attempt took a resume value that is not stored yet.
    pub(crate) took: bool,
    /// The position of the resume value that this attempt took from the run, which has stored it.
    pub(crate) of_run: Option<usize>,
    /// The ids of the interrupts in which an earlier run fell asleep, with their wake-up times.
    pub(crate) asleep: Vec<(String, Timestamp)>,
    /// The reason for which the task cannot end.
    pub(crate) signal: Option<Signal>,
    /// The number of graphs that this attempt has called.
    pub(crate) calls: usize,
    /// The starts of the graphs that the attempts so far have called, by the number of the call.
    pub(crate) begun: Vec<(usize, CallBegan)>,
    /// The number of messages that were begun without an id.
    pub(crate) messages: u64,
    /// True if a subgraph ended with a command for the graph of this task: its messages are not streamed, as in the
    /// reference.
    pub(crate) relays: bool,
    /// True if a message of the task was persisted while it was streamed: the end of the task clears it.
    pub(crate) streamed: bool,
    /// The open interrupts of the tasks that this attempt has called, and of those that these called.
    pub(crate) asked_by_calls: Vec<Interrupt>,
    /// The pushed messages, as writes that precede those of the node's output.
    pub(crate) pushed: Writes,
}

/// The start of a graph that an attempt of a task called.
#[derive(Clone, Debug)]
pub(crate) enum CallBegan {
    /// The graph took its input: on a checkpoint, or on none.
    On(Option<CheckpointRef>),
    /// The graph continued where it had stopped in an earlier run.
    Resumed {
        /// Its checkpoint.
        at: Option<CheckpointRef>,
        /// True if the caller named the checkpoint.
        named: bool,
        /// The head of its namespace at that time.
        newest: Option<CheckpointId>,
    },
}

impl AttemptLog {
    /// Returns the resume values that are stored with a task which has stopped with these interrupts. At a breakpoint
    /// of a graph that it called there are none: the value that the run has stored is left out, because the next
    /// attempt takes it again, at the same interrupt. Stored twice, it would be given to two interrupts.
    pub(crate) fn values_at(&self, interrupts: &[Interrupt]) -> &[Value] {
        let all = self.resume_values.as_slice();
        match (self.of_run, all.split_last()) {
            (Some(at), Some((_, others))) if interrupts.is_empty() && at == others.len() => others,
            _ => all,
        }
    }
}

impl Context {
    pub(crate) fn new(parts: ContextParts) -> Self {
        debug_assert!(parts.attempt > 0, "attempts are numbered from 1");
        debug_assert!(parts.step <= parts.stop, "a task runs before the recursion limit");
        Self(Arc::new(parts))
    }

    /// Returns the context of the next attempt of a called task. It takes over the resume values and the starts of the
    /// called graphs, so that those of the next attempt start alike.
    pub(crate) fn next_attempt(&self, policies: &[RetryPolicy]) -> Self {
        let parts = &*self.0;
        let asked = {
            let asked = parts.asked.lock();
            AttemptLog {
                resume_values: asked.resume_values.clone(),
                took: asked.took,
                begun: asked.begun.clone(),
                ..AttemptLog::default()
            }
        };
        let at = StepAt { step: parts.step, stop: parts.stop, now: parts.first_attempt_at };
        let (node, scope, life) = (Arc::clone(&parts.node), Arc::clone(&parts.scope), parts.life.again());
        let mut next = ContextParts::new(parts.task, node, parts.place.clone(), at, scope, life);
        next.thread.clone_from(&parts.thread);
        next.namespace.clone_from(&parts.namespace);
        next.checkpoint = parts.checkpoint;
        next.around.clone_from(&parts.around);
        next.resuming = parts.resuming;
        next.replay = parts.replay;
        next.attempt = parts.attempt + 1;
        next.error.clone_from(&parts.error);
        next.asked = Mutex::new(asked);
        next.calls = parts.calls.next_attempt(policies);
        Self::new(next)
    }

    pub(crate) fn asked(&self) -> &Mutex<AttemptLog> {
        &self.0.asked
    }

    pub(crate) fn calls(&self) -> &CallParts {
        &self.0.calls
    }

    pub(crate) fn life(&self) -> &Life {
        &self.0.life
    }

    /// Returns the namespace of the graph that the task, or the caller of a called task, belongs to.
    pub(crate) fn graph_namespace(&self) -> &Namespace {
        self.0.calls.graph.as_ref().unwrap_or(&self.0.namespace)
    }

    pub(crate) fn scope(&self) -> &Arc<Scope> {
        &self.0.scope
    }

    pub(crate) fn parts(&self) -> &ContextParts {
        &self.0
    }

    /// Returns the namespace under which the messages of the task are streamed.
    pub(crate) fn message_namespace(&self) -> &Namespace {
        self.0.place.around.as_ref().unwrap_or(self.graph_namespace())
    }

    pub(crate) fn task_info(&self) -> TaskInfo {
        let parts = &*self.0;
        TaskInfo::new(TaskParts {
            id: parts.task,
            name: parts.place.call.is_some().then(|| Arc::clone(&parts.node)),
            step: parts.step,
            namespace: parts.place.around.as_ref().unwrap_or(&parts.namespace).clone(),
            place: parts.place.clone(),
            written: OnceLock::new(),
        })
    }

    /// Returns the context value of the run (`Run::context`), `None` if it has none of this type.
    pub fn value<T: std::any::Any + Send + Sync>(&self) -> Option<&T> {
        self.0.scope.value.as_deref()?.downcast_ref()
    }

    /// Returns the control of the run, by which a node can ask it to drain.
    pub fn control(&self) -> &RunControl {
        &self.0.scope.control
    }

    /// Returns the key-value memory of the run: the one it was given, else that of the store that records it.
    /// Subgraphs share it. A put is visible at once, and stays if the node fails or runs again.
    ///
    /// # Errors
    /// [`NoKv`] if the run has no key-value memory.
    ///
    /// # Example
    /// ```
    /// use annals::base::{Map, Value};
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Visit { #[channel(last)] user: String, #[channel(last)] before: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Visit>::new()
    ///     .node("greet", |visit: &Visit, ctx: &Context| {
    ///         let known = ctx.kv()?.get(["users"], &visit.user)?.is_some();
    ///         ctx.kv()?.put(["users"], &visit.user, Map::new())?;
    ///         Ok(Visit::update().before(known))
    ///     })
    ///     .edge(START, "greet")
    ///     .compile()?;
    /// let store = Store::memory();
    /// for (thread, known) in [("monday", false), ("tuesday", true)] {
    ///     let visit = graph.invoke(&store.thread(thread)?, Visit::update().user("ann"))?;
    ///     assert_eq!(visit.state().before, known);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "store")]
    pub fn kv(&self) -> Result<&Kv, NoKv> {
        self.0.scope.kv.as_ref().ok_or(NoKv(()))
    }

    /// Streams a value (mode `custom`) at once. It waits while 256 parts of the stream are unread.
    #[doc(alias = "stream_writer")]
    pub fn emit(&self, value: impl Into<Value>) {
        self.0.scope.host.emit(self, LivePart::Custom(value.into()));
    }

    /// Stores a value as the output of the task, beside its result and in place of the one that it stored before:
    /// [`StepInfo::output`](crate::runs::StepInfo::output) shows it, while the task runs and after it has failed too.
    /// The background writer stores it, before the end of the task. Returns whether it was handed to the store: not in
    /// a run with [`Durability::Exit`](crate::Durability::Exit) or without a thread, and not a value beyond the limits.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    /// use annals_graph::runs::ThreadRuns;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Build { #[channel(last)] done: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Build>::new()
    ///     .node("make", |_: &Build, context: &Context| {
    ///         assert!(context.store_output("cc main.c\n"));
    ///         Ok(Build::update().done(true))
    ///     })
    ///     .edge(START, "make")
    ///     .compile()?;
    /// let thread = Store::memory().thread("build-7")?;
    /// graph.invoke(&thread, Build::update())?;
    /// let step = thread.steps()?.next().expect("a task")?;
    /// assert_eq!(step.output, Some(Value::from("cc main.c\n")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn store_output(&self, output: impl Into<Value>) -> bool {
        self.0.scope.host.store_output(self, &output.into())
    }

    /// Returns the thread of the run, `None` if it has no store.
    pub fn thread(&self) -> Option<&ThreadId> {
        self.0.thread.as_ref()
    }

    /// Returns the checkpoint that the superstep started from, `None` if the run has no store.
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        self.0.checkpoint
    }

    /// Returns the id of the task: the same each time this step of this node runs again.
    pub fn task(&self) -> TaskId {
        self.0.task
    }

    /// Returns the name of the node.
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// Returns the number of this attempt to run the task, from 1; see [`RetryPolicy`](crate::graph::RetryPolicy).
    #[doc(alias = "node_attempt")]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Returns the time at which the first attempt of the task began.
    #[doc(alias = "node_first_attempt_time")]
    pub fn first_attempt_at(&self) -> Timestamp {
        self.0.first_attempt_at
    }

    /// Returns the failure that this node handles, `None` in a node that is not an error handler.
    pub fn error(&self) -> Option<&NodeError> {
        self.0.error.as_deref()
    }

    /// Returns the number of the superstep.
    pub fn step(&self) -> i64 {
        self.0.step
    }

    /// Returns the number of supersteps before the recursion limit, this one included (`RemainingSteps`).
    #[doc(alias = "RemainingSteps")]
    pub fn remaining_steps(&self) -> i64 {
        self.0.stop - self.0.step
    }

    /// Returns the namespace of this task, in which the checkpoints of its subgraph are stored.
    pub fn namespace(&self) -> String {
        task_namespace(&self.0.namespace, &self.0.node, self.0.task)
    }

    /// Interrupts the run with a value, and returns the resume value (`interrupt`).
    ///
    /// Without a resume value it returns [`Interrupted`], which the node passes on with `?`: the run ends as
    /// interrupted, and is continued with [`Command::resume`](crate::graph::Command::resume). The node then runs again
    /// from its first line; interrupts that were resumed return their values, in the order in which the node reaches
    /// them.
    ///
    /// # Errors
    /// [`Interrupted`] while the resume value is missing.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] approved: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Order>::new()
    ///     .node("approve", |_: &Order, ctx: &Context| {
    ///         let answer = ctx.interrupt("approve the order?")?;
    ///         Ok(Order::update().approved(answer == "yes"))
    ///     })
    ///     .edge(START, "approve")
    ///     .compile()?;
    /// let thread = Store::memory().thread("order-7")?;
    ///
    /// let waiting = graph.invoke(&thread, Order::update())?;
    /// assert_eq!(waiting.interrupts()[0].value, Value::from("approve the order?"));
    ///
    /// let done = graph.invoke(&thread, Command::resume("yes"))?;
    /// assert!(done.state().approved);
    /// # Ok(())
    /// # }
    /// ```
    pub fn interrupt(&self, value: impl Into<Value>) -> Result<Value, Interrupted> {
        self.ask(|id| Interrupt::new(value.into(), id)).map(|(_, resume)| resume)
    }

    /// Returns the number of the interrupt in the task and its resume value. Without one, `interrupt` makes the
    /// interrupt of its id.
    pub(super) fn ask(&self, question: impl FnOnce(String) -> Interrupt) -> Result<(usize, Value), Interrupted> {
        self.progress();
        let mut asked = self.0.asked.lock();
        debug_assert!(asked.read <= asked.resume_values.len(), "an attempt reads the resume values that it has");
        let at = asked.read;
        if at == asked.resume_values.len() {
            match self.0.scope.resume.lock().take(self) {
                Some(answer) => {
                    asked.resume_values.push(answer);
                    (asked.took, asked.of_run) = (true, (!self.0.scope.holds).then_some(at));
                }
                None => {
                    let id = interrupt_id(&self.namespace(), asked.resume_values.len());
                    asked.signal = Some(Signal::Waiting(vec![question(id)]));
                    return Err(Interrupted::new());
                }
            }
        }
        asked.read += 1;
        debug_assert!(asked.read <= asked.resume_values.len(), "each interrupt that returned has a resume value");
        Ok((at, asked.resume_values[at].clone()))
    }
}

/// Returns the namespace of a task (`checkpoint_ns` of a task in LangGraph).
pub(crate) fn task_namespace(namespace: &Namespace, node: &str, task: TaskId) -> String {
    let separator = if namespace.is_root() { "" } else { "|" };
    // One text of a formatter, that of the id: each call of a task has a namespace.
    let mut path = [namespace.as_str(), separator, node, ":"].concat();
    let written = write!(path, "{task}");
    debug_assert!(written.is_ok(), "an id has a text");
    path
}

/// Returns a namespace path without the ids of tasks: the same for all runs of a thread.
pub(crate) fn without_tasks(path: &str) -> String {
    let node = |segment: &str| segment.rsplit_once(':').map_or(segment, |(node, _)| node).to_owned();
    path.split('|').map(node).collect::<Vec<_>>().join("|")
}

/// Returns the id of the interrupt number `resumed` of a task: a hash of the namespace of the task.
pub(crate) fn interrupt_id(task_namespace: &str, resumed: usize) -> String {
    let place = if resumed == 0 { task_namespace.to_owned() } else { format!("{task_namespace}|{resumed}") };
    hash::digits(hash::xxh3_128(place.as_bytes()))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("thread", &self.0.thread)
            .field("node", &self.0.node)
            .field("task", &self.0.task)
            .field("step", &self.0.step)
            .finish_non_exhaustive()
    }
}

/// The failure of a node, as its error handler reads it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeError {
    /// The node that failed.
    pub node: String,
    /// The text of its error.
    pub message: String,
    /// The error itself. It is `None` if the handler runs in a later run than the node: a store holds the text alone.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl NodeError {
    /// Returns the error, or the first of its causes that is of type `E`.
    pub fn find<E: std::error::Error + 'static>(&self) -> Option<&E> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = self.source.as_deref().map(|error| error as _);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref::<E>() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }
}

/// The run has no key-value memory: it was given none, and no store records it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run has no key-value memory: it was given none, and no store records it")]
pub struct NoKv(());

/// The run waits for a resume value. A node passes it on with `?`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node waits for a resume value")]
pub struct Interrupted(());

impl Interrupted {
    pub(crate) fn new() -> Self {
        Self(())
    }
}
