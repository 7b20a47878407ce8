//! Tasks: functions that nodes and entrypoints call, and whose results are stored.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context as Waiting, Poll};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::decode_bytes;
use crate::base::{CheckpointId, CodecError, Encoded, Map, Namespace, Payload, TaskId, Timestamp, Value};
use crate::graph::{BoxError, CachePolicy, NodeResult, RetryPolicy, TimeoutPolicy};
use crate::store::{Cache, StoreError};

use super::attempts::Attempts;
use super::context::{CallBegan, Context, Interrupt, Interrupted, Signal};
use super::task_body::{Awaited, Blocking, IntoTask, TaskBody, TaskFuture, TaskWork};

/// A function whose result is stored as soon as it has ended (`@task`). If its caller runs again after an interrupt, a
/// failure or a crash, the call returns the stored result and the function does not run.
///
/// A node, an entrypoint or another task calls it with the [`Context`] of the caller. A call is known by the name of
/// the task and by its number among the calls of this name in its caller: calls of other tasks may be added or removed
/// between two runs, and calls of one name must be made in the same order each time. Their arguments are compared: a
/// call with others than those of its stored result fails with [`CallError::ChangedArguments`].
///
/// # Example
/// ```
/// use annals_graph::graph::Entrypoint;
/// use annals_graph::prelude::*;
/// use annals_graph::task::Task;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let draft = Task::new("draft", |topic: String| Ok(format!("an essay about {topic}")));
/// let essay = Entrypoint::new("essay", move |topic: String, context: &Context| {
///     let text = draft.call(context, topic)?;
///     let verdict = context.interrupt(text.as_str())?;
///     Ok(if verdict == "good" { Some(text) } else { None })
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
///
/// A task of an async function is awaited. In a run that is awaited itself the task is polled with that run:
///
/// ```
/// use annals_graph::graph::Entrypoint;
/// use annals_graph::prelude::*;
/// use annals_graph::task::Task;
///
/// async fn fetch(url: String) -> NodeResult<String> {
///     Ok(format!("the text of {url}"))
/// }
///
/// # fn main() -> Result<()> {
/// let fetch = Task::new("fetch", fetch);
/// let pages = Entrypoint::new("pages", move |urls: Vec<String>, context: Context| {
///     let fetch = fetch.clone();
///     async move {
///         let first = fetch.call(&context, urls[0].clone()).await?;
///         // All others at the same time.
///         let others: Vec<_> = urls[1..].iter().map(|url| fetch.start(&context, url.clone())).collect();
///         let mut pages = vec![first];
///         for page in others {
///             pages.push(page.await?);
///         }
///         Ok(pages)
///     }
/// })
/// .compile()?;
/// let urls = vec!["a.example".to_string(), "b.example".to_string()];
/// let done = annals_graph::block_on(pages.ainvoke((), urls))?;
/// assert_eq!(done.value().unwrap()[1], "the text of b.example");
/// # Ok(())
/// # }
/// ```
pub struct Task<I, R, K = Blocking> {
    name: Arc<str>,
    body: TaskBody<I, R>,
    /// The Rust name of its function.
    function: &'static str,
    retry: Option<Arc<[RetryPolicy]>>,
    cache: Option<CachePolicy>,
    timeout: Option<TimeoutPolicy>,
    takes_any_arguments: bool,
    is_stored_with_caller: bool,
    kind: PhantomData<fn() -> K>,
}

/// A task of an async function.
pub type AsyncTask<I, R> = Task<I, R, Awaited>;

impl<I, R, K> Task<I, R, K>
where
    I: Clone + Serialize + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// Returns a task of a function, see [`IntoTask`].
    pub fn new<M>(name: impl Into<Arc<str>>, function: impl IntoTask<I, R, M, Kind = K>) -> Self {
        let (name, of) = (name.into(), std::any::type_name_of_val(&function));
        let body = function.into_task();
        let (retry, cache, timeout) = (None, None, None);
        let (takes_any_arguments, is_stored_with_caller, kind) = (false, false, PhantomData);
        Self { name, body, function: of, retry, cache, timeout, takes_any_arguments, is_stored_with_caller, kind }
    }

    /// Lets calls of the task return their stored results whatever arguments they are given. For arguments that differ
    /// each time the caller runs, such as the time of day. Default: [`CallError::ChangedArguments`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    ///
    /// # fn main() -> Result<()> {
    /// let charge = Task::new("charge", |cents: i64| Ok(format!("{cents} cents")));
    /// let flow = |charge: Task<i64, String>, cents: i64| {
    ///     let body = move |_: i64, context: &Context| {
    ///         let receipt = charge.call(context, cents)?;
    ///         context.interrupt("sign it")?;
    ///         Ok(receipt)
    ///     };
    ///     Entrypoint::new("order", body).compile()
    /// };
    /// let thread = Store::memory().thread("order-17")?;
    /// flow(charge.clone(), 500)?.invoke(&thread, 17)?;
    ///
    /// // The program was changed meanwhile. The customer was charged 500 cents.
    /// let error = flow(charge.clone(), 700)?.invoke(&thread, Command::resume("yes")).unwrap_err();
    /// assert!(error.to_string().contains("task \"charge\" was given other arguments"), "{error}");
    ///
    /// let done = flow(charge.allow_changed_arguments(), 700)?.invoke(&thread, Command::resume("yes"))?;
    /// assert_eq!(done.value().map(String::as_str), Some("500 cents"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_changed_arguments(mut self) -> Self {
        self.takes_any_arguments = true;
        self
    }

    /// Stores the results of the calls with the superstep of their caller, and not each with a commit of its own: for
    /// a caller that ends when the call has. The call runs when its handle is waited for, not beside its caller. A run
    /// that interrupts or fails stores its result as well. After a crash between the end of the call and that of the
    /// superstep the call runs again.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Page { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let fetch = Task::new("fetch", |url: String| Ok(format!("the text of {url}"))).store_with_caller();
    /// let graph = StateGraph::<Page>::new()
    ///     .node("read", move |_: &Page, context: &Context| Ok(Page::update().text(fetch.call(context, "a.example".into())?)))
    ///     .edge(START, "read")
    ///     .compile()?;
    /// let thread = Store::memory().thread("page")?;
    /// graph.invoke(&thread, Page::update())?;
    /// let steps: Vec<_> = thread.steps()?.map(|step| Ok(step?.name.to_string())).collect::<Result<_>>()?;
    /// assert!(steps.contains(&"fetch".to_string()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn store_with_caller(mut self) -> Self {
        self.is_stored_with_caller = true;
        self
    }

    /// Adds a retry policy. Of several policies the first that matches the error decides. A task without one takes
    /// those of its entrypoint. The results of the calls of a failed attempt stay stored; the next attempt makes calls
    /// of its own.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::{Entrypoint, RetryPolicy};
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<()> {
    /// let ask = Task::new("ask", |question: String, context: &Context| match context.attempt() {
    ///     1 => Err("the line is busy".into()),
    ///     attempt => Ok(format!("{question} {attempt}")),
    /// })
    /// .retry(RetryPolicy::new().initial_interval(Duration::from_millis(1)).jitter(false));
    /// let main = Entrypoint::new("main", move |question: String, context: &Context| ask.call(context, question))
    ///     .compile()?;
    /// assert_eq!(main.invoke((), "who?".to_string())?.value().map(String::as_str), Some("who? 2"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "retry_policy")]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        let known = self.retry.take();
        self.retry = Some(known.iter().flat_map(|list| list.iter().cloned()).chain([policy]).collect());
        self
    }

    /// Sets how results are cached, if the run has a cache. A task without a policy takes that of its entrypoint. A
    /// cached result serves all calls of the task, in any graph and thread.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::{CachePolicy, Entrypoint};
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let ask = Task::new("ask", |question: String, context: &Context| {
    ///     context.kv()?.put(["asked"], &question, annals::base::Map::new())?;
    ///     Ok(format!("the answer to {question}"))
    /// })
    /// .cache_policy(CachePolicy::new());
    /// let inner = ask.clone();
    /// let main = Entrypoint::new("main", move |question: String, context: &Context| inner.call(context, question))
    ///     .cache(&store.cache())
    ///     .compile()?;
    /// main.invoke(&store.thread("a")?, "why?".to_string())?;
    /// store.kv().delete(["asked"], "why?")?;
    /// main.invoke(&store.thread("b")?, "why?".to_string())?;
    /// assert!(store.kv().get(["asked"], "why?")?.is_none(), "it was not asked again");
    ///
    /// ask.clear_cache(&store.cache())?;
    /// main.invoke(&store.thread("b")?, "why?".to_string())?;
    /// assert!(store.kv().get(["asked"], "why?")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.cache = Some(policy);
        self
    }

    /// Starts the task and returns a handle of it. Started tasks run concurrently with their caller and each other. In
    /// a run with a concurrency of 1 the task has ended when this returns, or, if the caller is asynchronous, runs
    /// when the handle is awaited. The superstep waits for all started tasks, also for those whose handle was dropped.
    #[must_use = "the result and the error of a task are lost unless its handle is waited for"]
    pub fn start(&self, context: &Context, input: I) -> Started<R> {
        let input = Arc::new(input);
        let given = Arc::clone(&input);
        let work = match &self.body.0 {
            TaskWork::Blocking(body) => {
                let body = Arc::clone(body);
                CallWork::Blocking(Box::new(move |context, keep| returned(body(I::clone(&input), context), keep)))
            }
            TaskWork::Async(body) => {
                let body = Arc::clone(body);
                CallWork::Async(Box::new(move |context, keep| {
                    let running = body(I::clone(&input), context);
                    Box::pin(async move { returned(running.await, keep) })
                }))
            }
        };
        let call = Call {
            name: Arc::clone(&self.name),
            function: self.function,
            input: Box::new(move || Value::from_serialize(&*given).ok()),
            work,
            read: read::<R>,
            retry: self.retry.clone(),
            cache: self.cache.clone(),
            timeout: self.timeout,
            takes_any_arguments: self.takes_any_arguments,
            is_stored_with_caller: self.is_stored_with_caller,
        };
        let host = Arc::clone(&context.scope().host);
        let called = host.start(context, call);
        if let Some(called) = &called {
            context.calls().started.lock().push(Arc::clone(called));
        }
        Started { called, caller: context.clone(), result: PhantomData }
    }
}

impl<I, R> Task<I, R>
where
    I: Clone + Serialize + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// Runs the task and returns its result, or the stored result of this call. It blocks: an asynchronous caller
    /// awaits [`Task::start`].
    ///
    /// # Errors
    /// The error of the task as given; [`Interrupted`] if it interrupts, to be passed on with `?`; [`CallError`] if
    /// the context is not that of a run, or the task panicked; an error of the store if the result cannot be stored or
    /// read.
    pub fn call(&self, context: &Context, input: I) -> NodeResult<R> {
        self.start(context, input).wait()
    }
}

impl<I, R> AsyncTask<I, R>
where
    I: Clone + Serialize + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// Starts the task; the handle, awaited, gives its result, or the stored result of this call. A caller that is not
    /// asynchronous [`wait`](Started::wait)s for it.
    ///
    /// # Errors
    /// As [`Task::call`] of a plain function, when it is awaited.
    #[must_use = "the result and the error of a task are lost unless its handle is waited for"]
    pub fn call(&self, context: &Context, input: I) -> Started<R> {
        self.start(context, input)
    }

    /// Sets the time limits of an attempt, see [`TimeoutPolicy`]. An attempt that exceeds one is dropped where it
    /// waits, and fails with [`RunError::NodeTimeout`](crate::RunError::NodeTimeout), which names the task as the
    /// node: a retry policy may retry it, and the caller gets it as the error of the task. A limit of zero fails the
    /// call with [`RunError::BadTimeout`](crate::RunError::BadTimeout), an asynchronous run without a timer with
    /// [`RunError::NoTimer`](crate::RunError::NoTimer).
    ///
    /// # Example
    /// ```
    /// use annals_graph::RunError;
    /// use annals_graph::graph::{Entrypoint, RetryPolicy};
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<()> {
    /// let fetch = Task::new("fetch", |url: String, context: Context| async move {
    ///     if context.attempt() == 1 && url.contains("slow") {
    ///         std::future::pending::<()>().await;
    ///     }
    ///     if url.contains("dead") { std::future::pending().await } else { Ok(format!("the text of {url}")) }
    /// })
    /// .timeout(Duration::from_millis(5))
    /// .retry(RetryPolicy::new().max_attempts(2).initial_interval(Duration::from_millis(1)).jitter(false));
    /// let main = Entrypoint::new("main", move |url: String, context: Context| {
    ///     let fetch = fetch.clone();
    ///     async move {
    ///         match fetch.call(&context, url).await {
    ///             Err(error) if matches!(error.downcast_ref(), Some(RunError::NodeTimeout { .. })) => Ok("nothing".to_string()),
    ///             fetched => fetched,
    ///         }
    ///     }
    /// })
    /// .compile()?;
    /// assert_eq!(main.invoke((), "slow.example".to_string())?.value().unwrap(), "the text of slow.example");
    /// assert_eq!(main.invoke((), "dead.example".to_string())?.value().unwrap(), "nothing");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A task that runs on a thread cannot be stopped, and does not take a timeout:
    ///
    /// ```compile_fail,E0599
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    /// use std::time::Duration;
    ///
    /// let double = Task::new("double", |n: i64| Ok(n * 2)).timeout(Duration::from_secs(1));
    /// ```
    pub fn timeout(mut self, policy: impl Into<TimeoutPolicy>) -> Self {
        self.timeout = Some(policy.into()).filter(TimeoutPolicy::is_set);
        self
    }
}

impl<I, R, K> Task<I, R, K> {
    /// Removes the cached results of the tasks of this name.
    ///
    /// # Errors
    /// As [`Cache::clear`].
    pub fn clear_cache(&self, cache: &Cache) -> Result<(), StoreError> {
        cache.clear(task_labels(&self.name))
    }
}

/// Returns the cache namespace of the tasks of a name.
pub(crate) fn task_labels(task: &str) -> Vec<String> {
    vec!["tasks".into(), task.into()]
}

/// Returns the result of a function, encoded if `keep` is set.
fn returned<R: Serialize + Send + 'static>(result: NodeResult<R>, keep: bool) -> NodeResult<FunctionResult> {
    let result = result?;
    let stored = if keep { Some(Encoded::encode(&result)?.into()) } else { None };
    Ok(FunctionResult { value: Box::new(result), stored })
}

/// Decodes a stored result of such a function.
fn read<R: DeserializeOwned + Send + 'static>(stored: &Encoded) -> Option<Box<dyn Any + Send>> {
    Some(Box::new(stored.decode::<R>().ok()?))
}

/// A handle of a started task. It can be awaited, or waited for.
pub struct Started<R> {
    called: Option<Arc<dyn Called>>,
    caller: Context,
    result: PhantomData<fn() -> R>,
}

impl<R> Started<R> {
    /// Returns whether the task has ended, with a result or an error: [`wait`](Self::wait) then returns at once. In a
    /// run with a concurrency of 1 a task may start only when its handle is awaited.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    ///
    /// # fn main() -> Result<()> {
    /// let double = Task::new("double", |n: i64| Ok(n * 2));
    /// let main = Entrypoint::new("main", move |n: i64, context: &Context| {
    ///     let doubled = double.start(context, n);
    ///     while !doubled.is_finished() {
    ///         std::thread::yield_now(); // Or something better to do.
    ///     }
    ///     doubled.wait()
    /// })
    /// .compile()?;
    /// assert_eq!(main.invoke((), 4)?.value(), Some(&8));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.called.as_ref().is_none_or(|called| called.has_ended())
    }

    /// Waits until the task has ended, without taking its result. In a run with a concurrency of 1 it runs the task.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    ///
    /// async fn double(n: i64) -> NodeResult<i64> {
    ///     Ok(n * 2)
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let double = Task::new("double", double);
    /// let main = Entrypoint::new("main", move |n: i64, context: Context| {
    ///     let double = double.clone();
    ///     async move {
    ///         let doubled = double.start(&context, n);
    ///         doubled.ended().await;
    ///         assert!(doubled.is_finished());
    ///         doubled.await
    ///     }
    /// })
    /// .compile()?;
    /// assert_eq!(annals_graph::block_on(main.run(()).concurrency_max(1).ainvoke(4))?.value(), Some(&8));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(&self) {
        if let Some(called) = &self.called {
            poll_fn(|waiting| Arc::clone(called).poll_end(waiting)).await;
        }
    }
}

impl<R: DeserializeOwned + 'static> Started<R> {
    /// Waits for the task and returns its result. If no thread has started it yet, it runs on the calling thread.
    ///
    /// # Errors
    /// As [`Task::call`].
    pub fn wait(self) -> NodeResult<R> {
        let Some(called) = &self.called else { return Err(CallError::OutsideRun.into()) };
        called.finish();
        debug_assert!(called.has_ended(), "a call that was waited for has ended");
        self.result(called.take())
    }

    fn result(&self, outcome: CallOutcome) -> NodeResult<R> {
        let signal = match outcome {
            CallOutcome::Done(CallValue::Now(value)) => {
                return match value.downcast::<R>() {
                    Ok(value) => Ok(*value),
                    Err(_) => unreachable!("a task returns a value of its own type"),
                };
            }
            CallOutcome::Done(CallValue::Stored(stored)) => return Ok(decode_bytes::<R>(stored.codec, &stored.data)?),
            CallOutcome::Failed(error) => return Err(error),
            CallOutcome::Stopped(signal) => signal,
        };
        self.caller.asked().lock().signal = Some(signal);
        Err(Interrupted::new().into())
    }
}

impl<R: DeserializeOwned + 'static> Future for Started<R> {
    type Output = NodeResult<R>;

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<NodeResult<R>> {
        let Some(called) = &self.called else { return Poll::Ready(Err(CallError::OutsideRun.into())) };
        if Arc::clone(called).poll_end(waiting).is_pending() {
            return Poll::Pending;
        }
        let outcome = called.take();
        let result = self.result(outcome);
        self.called = None;
        Poll::Ready(result)
    }
}

/// A call that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The context does not belong to a running task.
    #[error("a task can only be called from a node, an entrypoint or a task of a running graph")]
    OutsideRun,
    /// A signal is received in a run that no store records.
    #[error("signal {name:?} can only be received in a run on a thread: no store records this run")]
    NoMailbox {
        /// The name of the signal.
        name: String,
    },
    /// The call has a stored result, or stored resume values, of other arguments than it is given now: the program was
    /// changed, or it computes the arguments from something that changes. Nothing was run or stored.
    #[error(
        "task {task:?} was given other arguments in call {number} of this name than in the run before, whose result is stored; \
         give it those, or allow others with Task::allow_changed_arguments"
    )]
    ChangedArguments {
        /// The task.
        task: String,
        /// The number of the call among those of the task in its caller, from 1.
        number: u32,
    },
    /// The task began with a version of a part of the program that the program does not support any more. Nothing was
    /// run.
    #[error("the task began with version {stored} of {change:?}, and the program supports {oldest} to {newest}")]
    UnsupportedVersion {
        /// The name of the changed part.
        change: String,
        /// The version that the task began with.
        stored: u32,
        /// The oldest version that the program supports.
        oldest: u32,
        /// The newest version that the program supports.
        newest: u32,
    },
    /// The task panicked. The store stays usable.
    #[error("task {task:?} panicked: {reason}")]
    Panicked {
        /// The task.
        task: String,
        /// The message of the panic.
        reason: String,
    },
}

/// A call without its types.
pub(crate) struct Call {
    pub(crate) name: Arc<str>,
    /// The Rust name of its function.
    pub(crate) function: &'static str,
    /// Returns the input, for the stream and the cache key; `None` if it cannot be serialized.
    pub(crate) input: Box<dyn Fn() -> Option<Value> + Send + Sync>,
    pub(crate) work: CallWork,
    /// Decodes a stored result; `None` if it is of another type.
    pub(crate) read: fn(&Encoded) -> Option<Box<dyn Any + Send>>,
    pub(crate) retry: Option<Arc<[RetryPolicy]>>,
    pub(crate) cache: Option<CachePolicy>,
    pub(crate) timeout: Option<TimeoutPolicy>,
    /// True if its arguments are not compared with those of its stored result.
    pub(crate) takes_any_arguments: bool,
    /// True if its result is stored with the superstep of its caller.
    pub(crate) is_stored_with_caller: bool,
}

/// The work of a call. The flag says whether the result is to be encoded.
pub(crate) enum CallWork {
    Blocking(Box<dyn Fn(&Context, bool) -> NodeResult<FunctionResult> + Send + Sync>),
    Async(Box<dyn Fn(Context, bool) -> TaskFuture<FunctionResult> + Send + Sync>),
}

/// The result of a function.
pub(crate) struct FunctionResult {
    pub(crate) value: Box<dyn Any + Send>,
    pub(crate) stored: Option<Payload>,
}

/// The outcome of a call.
pub(crate) enum CallOutcome {
    Done(CallValue),
    /// It interrupts, or a subgraph in it cannot end.
    Stopped(Signal),
    Failed(BoxError),
}

/// The result of a call.
pub(crate) enum CallValue {
    /// The value that the function returned.
    Now(Box<dyn Any + Send>),
    /// The stored value.
    Stored(Payload),
}

/// A started call.
pub(crate) trait Called: Send + Sync {
    /// Waits for the end.
    fn finish(&self);
    /// Polls it, and returns whether it has ended.
    fn poll_end(self: Arc<Self>, waiting: &mut Waiting<'_>) -> Poll<()>;
    /// Returns whether it has ended.
    fn has_ended(&self) -> bool;
    /// Marks it as abandoned. If it is polled, it is dropped where it waits.
    fn leave(&self);
    /// Takes the outcome, once, when it has ended.
    fn take(&self) -> CallOutcome;
}

/// The position of a task among the tasks of its superstep.
#[derive(Clone, Debug, Default)]
pub(crate) enum TaskPath {
    #[default]
    Pull,
    Push(u32),
    /// A call: its number in its caller, and the key of the caller.
    Call {
        caller: Arc<str>,
        index: u32,
    },
    /// A call that an earlier run stored under this path.
    Stored(Arc<str>),
}

impl TaskPath {
    /// Returns the path by which stored writes are ordered. That of a call ends with its name.
    pub(crate) fn text(&self, name: &str) -> Arc<str> {
        match self {
            Self::Pull => format!("~__pregel_pull, {name}").into(),
            Self::Push(index) => format!("~__pregel_push, {index:010}, {:010}", 0).into(),
            Self::Call { caller, index } => {
                // Without a formatter: each call has a path.
                let (mut digits, mut rest) = ([b'0'; 10], *index);
                for digit in digits.iter_mut().rev() {
                    *digit += (rest % 10) as u8;
                    rest /= 10;
                }
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                ["~c, ", caller, ", ", digits, ", ", name].concat().into()
            }
            Self::Stored(path) => Arc::clone(path),
        }
    }

    /// Returns the part of the paths of its calls that stands for it: nodes by name come before nodes that were sent an
    /// argument, and these before calls.
    pub(crate) fn key(&self, name: &str) -> Arc<str> {
        match self {
            Self::Pull => ["l, ", name].concat().into(),
            Self::Push(index) => format!("s, {index:010}").into(),
            Self::Call { .. } | Self::Stored(_) => self.text(name),
        }
    }
}

/// The stored record of a call that an earlier run made.
#[derive(Clone, Debug)]
pub(crate) struct StoredCall {
    pub(crate) task: TaskId,
    pub(crate) path: Arc<str>,
    /// `None` of a node, and of a call that an earlier version stored.
    pub(crate) record: Option<CallRecord>,
    pub(crate) result: Option<Payload>,
    /// The resume values of its interrupts.
    pub(crate) resume_values: Vec<Value>,
    /// The ids of the interrupts in which it sleeps, with their wake-up times.
    pub(crate) asleep: Vec<(String, Timestamp)>,
    /// The number after that of its last write.
    pub(crate) first_index: i32,
    /// The positions at which it left subgraphs that keep their state.
    pub(crate) left: Vec<(String, CheckpointId)>,
    pub(crate) attempt: Attempt,
    /// The attempts that failed.
    pub(crate) attempts: Attempts,
    /// The ids of the interrupts that it raised last.
    pub(crate) interrupts: Vec<String>,
    /// True if it failed and was not run since.
    pub(crate) has_error: bool,
    /// The versions of parts of the program that it began with.
    pub(crate) versions: Map,
    /// The starts of the graphs that its attempts have called, if it ran in this run.
    pub(crate) begun: Vec<(usize, CallBegan)>,
}

/// The calls that have ended in an attempt of a task which a policy tries again, and in the tasks below it: the next
/// attempt takes over their results. They are held in memory, beside those that earlier runs have stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedCalls(Arc<Mutex<HashMap<TaskId, StoredCall>>>);

impl EndedCalls {
    /// Notes how a call ended, in place of its end in an earlier attempt.
    pub(crate) fn put(&self, call: StoredCall) {
        self.0.lock().insert(call.task, call);
    }

    fn get(&self, task: TaskId) -> Option<StoredCall> {
        self.0.lock().get(&task).cloned()
    }
}

impl StoredCall {
    /// Returns whether it waits for a resume value.
    pub(crate) fn is_asking(&self) -> bool {
        let is_asleep = |id: &String| self.asleep.iter().any(|(asleep, _)| asleep == id);
        self.first_index == 0 && self.interrupts.iter().any(|id| !is_asleep(id))
    }
}

/// The stored record of a call: its arguments and its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRecord {
    /// The hash of its arguments.
    pub(crate) arguments: u32,
    pub(crate) began: Timestamp,
    /// The attempt of its caller, from 0.
    pub(crate) caller_attempt: u32,
}

/// The attempt that a task is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The number of the attempt, from 0. After the last attempt that a policy allows it starts over: the next run
    /// continues the attempt that stopped, with the stored results of its calls.
    pub(crate) number: u32,
    /// The number of calls before the attempt.
    pub(crate) calls: u32,
}

/// The parts of a context that calls of tasks need.
#[derive(Default)]
pub(crate) struct CallParts {
    pub(crate) path: TaskPath,
    /// For a called task, the namespace of the graph of its caller: its own namespace is that of its caller.
    pub(crate) graph: Option<Namespace>,
    /// The head on which its writes are committed.
    pub(crate) head: Option<CheckpointId>,
    pub(crate) stored: Option<Arc<Vec<StoredCall>>>,
    /// The calls that have ended in the attempts so far, if the task or one above it may be tried again.
    pub(crate) ended: Option<EndedCalls>,
    /// The number of calls, those of earlier attempts included.
    pub(crate) made: AtomicU32,
    /// The number of calls of this attempt, by name.
    pub(crate) numbers: Mutex<Vec<(Arc<str>, u32)>>,
    /// The number of calls of this attempt that an earlier run had stored.
    pub(crate) reached: AtomicU32,
    /// The versions of parts of the program that the task began with.
    pub(crate) versions: Mutex<Map>,
    pub(crate) attempt: Attempt,
    /// The number of transactions of this attempt.
    pub(crate) transactions: AtomicU32,
    /// True until the attempt number is persisted, which must happen before the first nested call.
    pub(crate) unnoted: AtomicBool,
    pub(crate) started: Mutex<Vec<Arc<dyn Called>>>,
    /// The saved value of the last finished run of the entrypoint.
    pub(crate) previous: Mutex<Option<Arc<Value>>>,
}

impl CallParts {
    /// Returns the parts for the next attempt of the task, which these policies allow.
    pub(crate) fn next_attempt(&self, policies: &[RetryPolicy]) -> Self {
        Self {
            path: self.path.clone(),
            graph: self.graph.clone(),
            head: self.head,
            stored: self.stored.clone(),
            ended: self.ended.clone(),
            previous: Mutex::new(self.previous.lock().clone()),
            versions: Mutex::new(self.versions.lock().clone()),
            unnoted: true.into(),
            ..Self::default()
        }
        .at(self.following(policies))
    }

    /// Returns the attempt that follows this one.
    pub(crate) fn following(&self, policies: &[RetryPolicy]) -> Attempt {
        let attempts_max = policies.iter().map(|policy| policy.max_attempts).max().unwrap_or(1).max(1);
        let number = self.attempt.number.wrapping_add(1) % attempts_max;
        debug_assert!(number < attempts_max, "an attempt is one that the policies allow");
        Attempt { number, calls: self.made.load(Ordering::Relaxed) }
    }

    pub(crate) fn at(mut self, attempt: Attempt) -> Self {
        self.begin(attempt);
        self
    }

    /// Numbers the calls on from those of the attempts before this one.
    pub(crate) fn begin(&mut self, attempt: Attempt) {
        (self.attempt, self.made) = (attempt, attempt.calls.into());
    }

    /// Returns the stored record of a task.
    pub(crate) fn stored_of(&self, task: TaskId) -> Option<&StoredCall> {
        let stored = self.stored.as_ref()?;
        stored.binary_search_by_key(&task, |known| known.task).ok().map(|at| &stored[at])
    }

    /// Returns the end of a call in an attempt of this run.
    pub(crate) fn ended_of(&self, task: TaskId) -> Option<StoredCall> {
        self.ended.as_ref()?.get(task)
    }

    /// Returns the number of calls of this attempt that an earlier run had stored.
    pub(crate) fn reached(&self) -> usize {
        self.reached.load(Ordering::Relaxed) as usize
    }

    /// Returns the number of the next call of a name in this attempt, from 0.
    pub(crate) fn next_of(&self, name: &Arc<str>) -> u32 {
        let mut numbers = self.numbers.lock();
        if let Some((_, number)) = numbers.iter_mut().find(|(known, _)| known == name) {
            *number += 1;
            return *number;
        }
        numbers.push((Arc::clone(name), 0));
        0
    }

    /// Returns the number of the next call.
    pub(crate) fn next(&self) -> u32 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}

/// Started tasks. Those that have not ended when it is dropped are abandoned.
struct LeavesStarted(Vec<Arc<dyn Called>>);

impl Drop for LeavesStarted {
    fn drop(&mut self) {
        self.0.iter().for_each(|called| called.leave());
    }
}

impl Context {
    /// Waits for the started tasks.
    pub(crate) fn finish_calls(&self) {
        let calls = self.calls();
        if calls.made.load(Ordering::Relaxed) == calls.attempt.calls {
            // Most tasks call none.
            return;
        }
        // The lock is not held while the tasks run.
        let started = std::mem::take(&mut *calls.started.lock());
        started.iter().for_each(|called| called.finish());
        debug_assert!(started.iter().all(|called| called.has_ended()), "a superstep waits for all started tasks");
    }

    /// Awaits the started tasks.
    pub(crate) async fn calls_ended(&self) {
        let started = LeavesStarted(std::mem::take(&mut *self.calls().started.lock()));
        for called in &started.0 {
            poll_fn(|waiting| Arc::clone(called).poll_end(waiting)).await;
            debug_assert!(called.has_ended(), "a call whose end was polled has ended");
        }
    }

    /// Abandons the started tasks.
    pub(crate) fn leave_calls(&self) {
        let started = std::mem::take(&mut *self.calls().started.lock());
        drop(LeavesStarted(started));
    }

    /// Returns the value that the last finished run of the entrypoint saved on this thread (`previous`), `None` if
    /// there is none or the graph is not an entrypoint. Tasks see the value of their entrypoint.
    ///
    /// # Errors
    /// [`CodecError`] if it is of another type.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
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

/// Returns whether an error stands for an interrupt or another signal, which is not a failure.
pub(crate) fn stops(error: &BoxError) -> bool {
    holds::<Interrupted>(error)
}

/// Returns whether an error, or one of its causes, is of type `E`.
pub(crate) fn holds<E: std::error::Error + 'static>(error: &BoxError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(cause) = source {
        if cause.is::<E>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Returns the interrupts of a signal.
pub(crate) fn interrupts_in(signal: &Signal) -> &[Interrupt] {
    match signal {
        Signal::Waiting(interrupts) => interrupts,
        Signal::Parent(_) | Signal::Drained(_) | Signal::Cancelled(_) => &[],
    }
}

impl<I, R, K> Clone for Task<I, R, K> {
    fn clone(&self) -> Self {
        let (name, body) = (Arc::clone(&self.name), self.body.clone());
        let (retry, cache, timeout) = (self.retry.clone(), self.cache.clone(), self.timeout);
        Self { name, body, retry, cache, timeout, kind: PhantomData, ..*self }
    }
}

impl<I, R, K> fmt::Debug for Task<I, R, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for Started<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("caller", &self.caller).finish_non_exhaustive()
    }
}
