//! Entrypoints: a function as a graph of one node, with a value in and a value out.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{CodecError, Value};
use crate::state::{Field, IntoUpdate, Output, Schema, StateRef, Writes, named_writes};
use crate::store::Cache;
use crate::task::{Context, IntoTask, TaskBody, TaskWork};

use super::async_node::NodeFuture;
use super::builder::{Persistence, StateGraph};
use super::compiled::CompiledGraph;
use super::node::{IntoNode, IntoOutput, NodeBody, NodeInput, NodeOutput, NodeResult, Takes, Work};
use super::policy::{CachePolicy, RetryPolicy, TimeoutPolicy};
use super::problem::GraphError;
use super::{END, START};

/// The number of the channel that holds the input of an entrypoint.
pub(crate) const INPUT: u32 = 0;
/// The number of the channel that holds its value.
pub(crate) const VALUE: u32 = 1;
/// The number of the channel that holds the saved value.
const PREVIOUS: u32 = 2;
/// The name of the channel that holds the saved value.
const KEPT: &str = "__previous__";

/// The state of an entrypoint: the value of its last finished run.
#[derive(Clone)]
pub struct Entry<I, O> {
    input: Option<I>,
    value: Option<O>,
    previous: Arc<Value>,
}

impl<I, O> Entry<I, O> {
    /// Returns the value of the last finished run, `None` if there is none or it is null.
    pub fn value(&self) -> Option<&O> {
        self.value.as_ref()
    }
}

/// A function as a graph of its own, under construction (`@entrypoint`): one node, named like the entrypoint, which
/// takes the input and returns the value of the run. A run is one superstep, whichever tasks the function calls.
///
/// It compiles to a [`CompiledGraph`] whose input is an `I`: it is invoked, streamed, resumed and read like every
/// graph, and can be a subgraph.
///
/// # Example
/// ```
/// use annals_graph::graph::Entrypoint;
/// use annals_graph::prelude::*;
/// use annals_graph::task::Task;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let double = Task::new("double", |n: i64| Ok(n * 2));
/// let sum = Entrypoint::new("sum", move |numbers: Vec<i64>, context: &Context| {
///     let started: Vec<_> = numbers.into_iter().map(|n| double.start(context, n)).collect();
///     let mut sum = 0;
///     for task in started {
///         sum += task.wait()?;
///     }
///     Ok(sum)
/// })
/// .compile()?;
/// assert_eq!(sum.invoke((), vec![1, 2, 3])?.value(), Some(&12));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "entrypoint")]
pub struct Entrypoint<I, O>(StateGraph<Entry<I, O>>);

/// The return value of an entrypoint together with the value that it saves for its next run on the thread
/// ([`Context::previous`]).
///
/// # Example
/// ```
/// use annals_graph::graph::{Entrypoint, Final};
/// use annals_graph::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let count = Entrypoint::new("count", |n: i64, context: &Context| {
///     let total = context.previous::<i64>()?.unwrap_or(0) + n;
///     Ok(Final::new(format!("{total} so far"), total))
/// })
/// .compile()?;
/// let thread = Store::memory().thread("t")?;
/// count.invoke(&thread, 2)?;
/// assert_eq!(count.invoke(&thread, 3)?.value().map(String::as_str), Some("5 so far"));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "entrypoint.final")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Final<O> {
    /// The value for the caller.
    pub value: O,
    /// The saved value.
    pub save: Value,
}

impl<O> Final<O> {
    /// Returns a final with a dynamic saved value.
    pub fn new(value: O, save: impl Into<Value>) -> Self {
        Self { value, save: save.into() }
    }

    /// Returns a final with a saved value of any serializable type.
    ///
    /// # Errors
    /// [`CodecError`] if the value cannot be serialized.
    pub fn with<T: Serialize + ?Sized>(value: O, save: &T) -> Result<Self, CodecError> {
        Ok(Self { value, save: Value::from_serialize(save)? })
    }
}

/// The result of the function of an entrypoint: a value, which is saved for the next run as well, or a [`Final`].
pub trait IntoFinal {
    /// The value for the caller.
    type Value;

    /// Returns both values.
    ///
    /// # Errors
    /// [`CodecError`] if the value cannot be serialized.
    #[doc(hidden)]
    fn into_final(self) -> Result<Final<Self::Value>, CodecError>;
}

impl<O: Serialize> IntoFinal for O {
    type Value = O;

    fn into_final(self) -> Result<Final<O>, CodecError> {
        let save = Value::from_serialize(&self)?;
        Ok(Final { value: self, save })
    }
}

impl<O> IntoFinal for Final<O> {
    type Value = O;

    fn into_final(self) -> Result<Final<O>, CodecError> {
        Ok(self)
    }
}

/// The update acts as the result of a run.
impl<I, O: Clone + Send + Sync + 'static> IntoUpdate<Entry<I, O>> for Final<O> {
    fn into_writes(self) -> Writes {
        let mut writes = Writes::default();
        writes.push(VALUE as usize, Some(self.value));
        writes.push(PREVIOUS as usize, self.save);
        writes
    }
}

impl<O: Clone + Send + Sync + 'static> From<Final<O>> for Writes {
    fn from(returned: Final<O>) -> Self {
        named_writes(IntoUpdate::<Entry<(), O>>::into_writes(returned), &[START, END, KEPT])
    }
}

/// In `update_state` it acts as the result of a run.
impl<I, O: Clone + Send + Sync + 'static> IntoOutput<Entry<I, O>> for Final<O> {
    fn into_output(self) -> Output {
        Output::update(IntoUpdate::<Entry<I, O>>::into_writes(self))
    }
}

impl<I, O> Entrypoint<I, O>
where
    I: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    O: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Returns an entrypoint of a function, see [`IntoTask`].
    pub fn new<M, R>(name: impl Into<Arc<str>>, function: impl IntoTask<I, R, M>) -> Self
    where
        R: IntoFinal<Value = O> + 'static,
    {
        let name = name.into();
        let fields = vec![
            Field::ephemeral(START, true, |s: &Entry<I, O>| &s.input, |s| &mut s.input),
            Field::last(END, |s: &Entry<I, O>| &s.value, |s| &mut s.value),
            Field::last(KEPT, |s: &Entry<I, O>| &*s.previous, |s| Arc::make_mut(&mut s.previous)),
        ];
        let empty = Entry { input: None, value: None, previous: Arc::default() };
        let of = std::any::type_name_of_val(&function);
        let function = function.into_task();
        let mut graph = StateGraph::with_schema(Schema::new(fields, empty)).name(&*name).node(name, Function(function));
        graph.draft.entry = true;
        graph.draft.nodes[0].function = of;
        Self(graph)
    }

    /// Sets the version of the program that the entrypoint is part of, see [`StateGraph::version`]. Runs that an
    /// earlier version began are continued by it, by a graph that [allows](crate::Run::allow_changed_graph) it and asks
    /// [`Context::version`], or by the earlier program.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self(self.0.version(version))
    }

    /// Sets which checkpoints are stored of it in a node or a task. Default: [`Persistence::PerInvocation`].
    pub fn persistence(self, persistence: Persistence) -> Self {
        Self(self.0.persistence(persistence))
    }

    /// Adds a retry policy for the entrypoint, and for its tasks without one. Of several policies the first that
    /// matches the error decides. A retry runs the function from its first line; calls of tasks that have
    /// ended return their results, and the others run again under the same [key](Context::step_key).
    #[doc(alias = "retry_policy")]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        let retry = &mut self.0.draft.nodes[0].settings.retry;
        let known = retry.take();
        *retry = Some(known.iter().flat_map(|list| list.iter().cloned()).chain([policy]).collect());
        self
    }

    /// Sets the time limits of an attempt of an async entrypoint, see [`TimeoutPolicy`]. The awaited tasks count as
    /// part of it.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let slow = Entrypoint::new("slow", |_: i64, _: Context| std::future::pending::<NodeResult<i64>>())
    ///     .timeout(Duration::from_millis(5))
    ///     .compile()?;
    /// let error = slow.invoke((), 1).unwrap_err();
    /// assert_eq!(error.as_run().map(|error| error.class()), Some("NodeTimeoutError"));
    /// let blocking = Entrypoint::new("blocking", |n: i64, _: &Context| Ok(n)).timeout(Duration::from_secs(1));
    /// assert!(blocking.compile().is_err(), "a function that runs on a thread cannot be stopped");
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(mut self, policy: impl Into<TimeoutPolicy>) -> Self {
        self.0.draft.nodes[0].settings.timeout = Some(policy.into()).filter(TimeoutPolicy::is_set);
        self
    }

    /// Limits the duration of the entrypoint, with all attempts and pauses, see [`StateGraph::step_timeout`]. A plain
    /// function is not stopped, but waited for.
    pub fn step_timeout(self, limit: Duration) -> Self {
        Self(self.0.step_timeout(limit))
    }

    /// Sets how the value of the entrypoint is cached, and the results of its tasks without a policy, if there is a
    /// [`cache`](Self::cache).
    pub fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.0.draft.nodes[0].settings.cache = Some(policy);
        self
    }

    /// Sets the cache, see [`StateGraph::cache`].
    pub fn cache(self, cache: &Cache) -> Self {
        Self(self.0.cache(cache))
    }

    /// Validates the name and compiles the entrypoint.
    ///
    /// # Errors
    /// [`GraphError`] if the name cannot be that of a node.
    pub fn compile(self) -> Result<CompiledGraph<Entry<I, O>>, GraphError> {
        self.0.compile()
    }
}

/// The function of an entrypoint.
struct Function<I, R>(TaskBody<I, R>);

/// Marks the function of an entrypoint as a node.
pub(super) struct TakesEntry;

impl<I, O, R> IntoNode<Entry<I, O>, TakesEntry> for Function<I, R>
where
    I: Clone + DeserializeOwned + Send + Sync + 'static,
    O: Clone + Send + Sync + 'static,
    R: IntoFinal<Value = O> + 'static,
{
    fn into_node(self) -> NodeBody {
        let work = match self.0.0 {
            TaskWork::Blocking(run) => Work::Blocking(Arc::new(move |input: NodeInput, context: &Context| {
                ended::<I, _>(run(begun::<I, O>(input, context)?, context)?)
            })),
            TaskWork::Async(start) => Work::Async(Arc::new(move |input: NodeInput, context: Context| -> NodeFuture {
                match begun::<I, O>(input, &context) {
                    Ok(input) => {
                        let running = start(input, context);
                        Box::pin(async move { ended::<I, _>(running.await?) })
                    }
                    Err(error) => Box::pin(std::future::ready(Err(error))),
                }
            })),
        };
        NodeBody { takes: Takes::State, work, child: None }
    }
}

/// Returns the input of an entrypoint, and sets the saved value of its last run in the context.
fn begun<I, O>(input: NodeInput, context: &Context) -> NodeResult<I>
where
    I: Clone + DeserializeOwned + 'static,
    O: 'static,
{
    let NodeInput::State(state) = input else { unreachable!("an entrypoint is given its state") };
    let state = entry_of::<I, O>(&state);
    if !state.previous.is_null() {
        *context.calls().previous.lock() = Some(Arc::clone(&state.previous));
    }
    match &state.input {
        Some(input) => Ok(input.clone()),
        // A missing input stands for null: `()`, or `None`.
        None => Ok(Value::Null.to::<I>()?),
    }
}

/// Returns the writes of the result of an entrypoint.
fn ended<I, R>(returned: R) -> NodeResult<NodeOutput>
where
    R: IntoFinal,
    R::Value: Clone + Send + Sync + 'static,
{
    Ok(IntoOutput::<Entry<I, R::Value>>::into_output(returned.into_final()?).into())
}

fn entry_of<I: 'static, O: 'static>(state: &StateRef) -> &Entry<I, O> {
    match (&**state as &dyn Any).downcast_ref::<Entry<I, O>>() {
        Some(entry) => entry,
        None => unreachable!("an entrypoint is given its own state"),
    }
}

/// Returns the write of an input.
pub(crate) fn input_writes<I: Clone + Send + Sync + 'static>(input: I) -> Writes {
    let mut writes = Writes::default();
    writes.push(INPUT as usize, Some(input));
    writes
}

impl<I, O> fmt::Debug for Entrypoint<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrypoint").field("name", &self.0.draft.name).finish_non_exhaustive()
    }
}

impl<I, O: fmt::Debug> fmt::Debug for Entry<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("value", &self.value).finish_non_exhaustive()
    }
}
