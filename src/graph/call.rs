//! Tasks: functions that nodes and entrypoints call, and whose results are kept.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::value::decode_bytes;
use crate::base::{CheckpointId, CodecError, Encoded, Namespace, Payload, TaskId, Value};

use super::command::Command;
use super::context::{Context, Interrupt, Interrupted, Signal};
use super::node::{BoxError, NodeResult};

/// A function whose result is stored as soon as it has ended: whoever called it may be run again after a question, a
/// failure or a crash, and gets the stored result without the function being run.
///
/// It is called from a node, an entrypoint or another task, with the [`Context`] of the caller. Which call is which is
/// decided by its number in its caller, so calls must be made in the same order each time.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let draft = Task::new("draft", |topic: String| Ok(format!("an essay about {topic}")));
/// let essay = Entrypoint::new("essay", move |topic: String, context: &Context| {
///     let text = draft.call(context, topic)?;
///     let verdict = context.interrupt(text.as_str())?;
///     Ok(if verdict == Value::from("good") { Some(text) } else { None })
/// })
/// .compile()?;
///
/// let thread = Store::memory().thread("essay-1")?;
/// let waiting = essay.invoke(&thread, "cats".to_string())?;
/// assert_eq!(waiting.interrupts()[0].value, Value::from("an essay about cats"));
///
/// // The entrypoint runs again from its first line; the draft is not written again.
/// let done = essay.invoke(&thread, Command::resume("good"))?;
/// assert_eq!(done.value(), Some(&Some("an essay about cats".to_string())));
/// # Ok(())
/// # }
/// ```
pub struct Task<I, R> {
    name: Arc<str>,
    body: TaskBody<I, R>,
}

/// A task or an entrypoint without the type of its function.
pub struct TaskBody<I, R>(pub(super) Arc<dyn Fn(I, &Context) -> NodeResult<R> + Send + Sync>);

/// A function that can be a task or an entrypoint: `Fn(I) -> NodeResult<R>` or `Fn(I, &Context) -> NodeResult<R>`.
pub trait IntoTask<I, R, M> {
    /// Hides the type of the function.
    fn into_task(self) -> TaskBody<I, R>;
}

#[doc(hidden)]
pub struct TakesInput;
#[doc(hidden)]
pub struct TakesInputAndContext;

impl<F, I, R> IntoTask<I, R, TakesInput> for F
where
    F: Fn(I) -> NodeResult<R> + Send + Sync + 'static,
{
    fn into_task(self) -> TaskBody<I, R> {
        TaskBody(Arc::new(move |input, _| self(input)))
    }
}

impl<F, I, R> IntoTask<I, R, TakesInputAndContext> for F
where
    F: Fn(I, &Context) -> NodeResult<R> + Send + Sync + 'static,
{
    fn into_task(self) -> TaskBody<I, R> {
        TaskBody(Arc::new(self))
    }
}

impl<I, R> Task<I, R>
where
    I: Clone + Serialize + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// Makes a task of a function, see [`IntoTask`].
    pub fn new<M>(name: impl Into<Arc<str>>, function: impl IntoTask<I, R, M>) -> Self {
        Self { name: name.into(), body: function.into_task() }
    }

    /// Returns the name of the task.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the task and returns its result, or the result that is stored of this call.
    ///
    /// # Errors
    /// The task's own error as given; [`Interrupted`] if it asks a question, to be passed on with `?`;
    /// [`CallError`] if the result cannot be stored or read, or if the context is not that of a run.
    pub fn call(&self, context: &Context, input: I) -> NodeResult<R> {
        self.start(context, input).wait()
    }

    /// Starts the task and returns a handle to wait for its result. Started tasks run beside their caller and each
    /// other; in a run with a concurrency of 1 the task has ended when this returns. The superstep waits for them,
    /// also for those that nobody waits for.
    #[must_use = "the result, and the error, of a task that nobody waits for is lost"]
    pub fn start(&self, context: &Context, input: I) -> Started<R> {
        let body = Arc::clone(&self.body.0);
        let input = Arc::new(input);
        let given = Arc::clone(&input);
        let call = Call {
            name: Arc::clone(&self.name),
            input: Box::new(move || Value::from_serialize(&*given).unwrap_or_default()),
            run: Box::new(move |context, keep| {
                let result = body(I::clone(&input), context)?;
                let stored = if keep { Some(Encoded::encode(&result)?.into()) } else { None };
                Ok(Returned { value: Box::new(result), stored })
            }),
        };
        let host = Arc::clone(&context.scope().host);
        let called = host.start(context, call);
        if let Some(called) = &called {
            context.calls().started.lock().push(Arc::clone(called));
        }
        Started { called, caller: context.clone(), result: PhantomData }
    }
}

/// A task that was started.
pub struct Started<R> {
    called: Option<Arc<dyn Called>>,
    caller: Context,
    result: PhantomData<fn() -> R>,
}

impl<R: DeserializeOwned + 'static> Started<R> {
    /// Waits for the task and returns its result. If no thread has begun it yet, it is run right here.
    ///
    /// # Errors
    /// As [`Task::call`].
    pub fn wait(self) -> NodeResult<R> {
        let Some(called) = self.called else { return Err(CallError::OutsideRun.into()) };
        let signal = match called.wait() {
            CallOutcome::Done(Done::Now(value)) => {
                return match value.downcast::<R>() {
                    Ok(value) => Ok(*value),
                    Err(_) => unreachable!("a task returns a value of its own type"),
                };
            }
            CallOutcome::Done(Done::Stored(stored)) => return Ok(decode_bytes::<R>(stored.codec, &stored.data)?),
            CallOutcome::Failed(error) => return Err(error),
            CallOutcome::Stopped(signal) => signal,
        };
        self.caller.asked().lock().signal = Some(signal);
        Err(Interrupted::new().into())
    }
}

/// A call could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The context is not that of a running task.
    #[error("a task can only be called from a node, an entrypoint or a task of a running graph")]
    OutsideRun,
    /// The task panicked. The store stays usable.
    #[error("task {task:?} panicked: {reason}")]
    Panicked {
        /// The task.
        task: String,
        /// The message of the panic.
        reason: String,
    },
}

/// What is to be called, without its types.
pub(crate) struct Call {
    pub(crate) name: Arc<str>,
    /// Returns its input, to be shown.
    pub(crate) input: Box<dyn Fn() -> Value + Send + Sync>,
    /// Runs it once. The flag says whether the result is to be encoded.
    pub(crate) run: Box<dyn Fn(&Context, bool) -> NodeResult<Returned> + Send + Sync>,
}

/// What a function returned.
pub(crate) struct Returned {
    pub(crate) value: Box<dyn Any + Send>,
    pub(crate) stored: Option<Payload>,
}

/// What became of a call.
pub(crate) enum CallOutcome {
    Done(Done),
    /// It asks a question, or a graph inside it cannot end.
    Stopped(Signal),
    Failed(BoxError),
}

/// The result of a call.
pub(crate) enum Done {
    /// As the function returned it.
    Now(Box<dyn Any + Send>),
    /// As it was stored.
    Stored(Payload),
}

/// A call that was started.
pub(crate) trait Called: Send + Sync {
    /// Waits for the end, and takes the outcome.
    fn wait(&self) -> CallOutcome;
    /// Waits for the end.
    fn finish(&self);
}

/// Where a task stands among the tasks of its superstep.
#[derive(Clone, Debug, Default)]
pub(crate) enum TaskPath {
    #[default]
    Pull,
    Push(u32),
    /// The number of the call in its caller, which has this path.
    Call {
        caller: Arc<str>,
        index: u32,
    },
}

impl TaskPath {
    /// Returns the path by which stored writes are ordered.
    pub(crate) fn text(&self, name: &str) -> Arc<str> {
        match self {
            Self::Pull => format!("~__pregel_pull, {name}").into(),
            Self::Push(index) => format!("~__pregel_push, {index:010}, {:010}", 0).into(),
            Self::Call { caller, index } => format!("~__pregel_push, {caller}, {index:010}, {:010}", 1).into(),
        }
    }
}

/// What is stored of a call that was made before the run was continued.
#[derive(Clone, Debug)]
pub(crate) struct StoredCall {
    pub(crate) task: TaskId,
    pub(crate) result: Option<Payload>,
    /// The answers to its questions.
    pub(crate) answers: Vec<Value>,
}

/// What a task needs to call others.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) path: TaskPath,
    /// Where the graph of a called task stands: its own namespace is that of its caller.
    pub(crate) graph: Option<Namespace>,
    /// The head that its writes are committed on.
    pub(crate) head: Option<CheckpointId>,
    pub(crate) stored: Option<Arc<Vec<StoredCall>>>,
    /// How many calls were made, those of earlier attempts included.
    pub(crate) made: AtomicU32,
    pub(crate) started: Mutex<Vec<Arc<dyn Called>>>,
    /// What the last run of the entrypoint kept.
    pub(crate) previous: Mutex<Option<Arc<Value>>>,
}

impl Calls {
    /// Returns the number of the next call.
    pub(crate) fn next(&self) -> u32 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}

impl Context {
    /// Waits for the tasks that were started.
    pub(crate) fn finish_calls(&self) {
        // A list that is empty needs no lock to be held while others run.
        let started = std::mem::take(&mut *self.calls().started.lock());
        started.iter().for_each(|called| called.finish());
    }

    /// Returns what the last finished run of the entrypoint kept on this thread, `None` if there is none or the graph is
    /// no entrypoint. Tasks see the value of their entrypoint.
    ///
    /// # Errors
    /// [`CodecError`] if it is of another type.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let count = Entrypoint::new("count", |n: i64, context: &Context| {
    ///     Ok(context.previous::<i64>()?.unwrap_or(0) + n)
    /// })
    /// .compile()?;
    /// let thread = Store::memory().thread("t")?;
    /// count.invoke(&thread, 2)?;
    /// assert_eq!(count.invoke(&thread, 3)?.value(), Some(&5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn previous<T: DeserializeOwned>(&self) -> Result<Option<T>, CodecError> {
        let previous = self.calls().previous.lock().clone();
        previous.map(|value| Value::clone(&value).to::<T>()).transpose()
    }
}

/// Returns whether an error carries a question, or what else stops a task without being a failure.
pub(crate) fn stops(error: &BoxError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(cause) = source {
        if cause.is::<Interrupted>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The questions of a signal.
pub(crate) fn questions(signal: &Signal) -> &[Interrupt] {
    match signal {
        Signal::Waiting(interrupts) => interrupts,
        Signal::Parent(Command { .. }) | Signal::Drained(_) => &[],
    }
}

impl<I, R> Clone for Task<I, R> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), body: TaskBody(Arc::clone(&self.body.0)) }
    }
}

impl<I, R> fmt::Debug for Task<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<I, R> fmt::Debug for TaskBody<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskBody")
    }
}

impl<R> fmt::Debug for Started<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("caller", &self.caller).finish_non_exhaustive()
    }
}
