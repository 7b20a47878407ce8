//! Entrypoints: a function as a graph of one node, with a value in and a value out.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{CodecError, Value};
use crate::state::{Field, IntoUpdate, Schema, StateRef, Writes, named_writes};
use crate::store::Cache;

use super::async_node::NodeFuture;
use super::builder::{Persistence, StateGraph};
use super::compiled::CompiledGraph;
use super::context::Context;
use super::node::{IntoNode, IntoOutput, NodeBody, NodeInput, NodeOutput, NodeResult, Takes, Work};
use super::policy::{CachePolicy, RetryPolicy, TimeoutPolicy};
use super::problem::GraphError;
use super::task_body::{IntoTask, TaskBody, TaskWork};
use super::{END, START};

/// The number of the channel that holds the input of an entrypoint.
pub(crate) const INPUT: u32 = 0;
/// The number of the channel that holds its value.
pub(crate) const VALUE: u32 = 1;
/// The number of the channel that holds what it keeps for its next run.
const PREVIOUS: u32 = 2;
/// Its name.
const KEPT: &str = "__previous__";

/// The state of an entrypoint: the value of its last finished run.
#[derive(Clone)]
pub struct Entry<I, O> {
    input: Option<I>,
    value: Option<O>,
    previous: Arc<Value>,
}

impl<I, O> Entry<I, O> {
    /// Returns the value that the last finished run returned, `None` if there is none or it is null.
    pub fn value(&self) -> Option<&O> {
        self.value.as_ref()
    }
}

/// A function under construction as a graph of its own: one node, named like the entrypoint, which takes the input and
/// returns the value of the run. A run is one superstep, whatever tasks the function calls.
///
/// It compiles to a [`CompiledGraph`] whose input is an `I`: it is invoked, streamed, answered and looked at like every
/// graph, and can be a node of another one.
///
/// # Example
/// ```
/// use annals::prelude::*;
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

/// What an entrypoint returns to its caller, and what it keeps for its next run on the thread
/// ([`Context::previous`]).
///
/// # Example
/// ```
/// use annals::prelude::*;
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
pub struct Final<O> {
    /// What the caller gets.
    pub value: O,
    /// What is kept.
    pub save: Value,
}

impl<O> Final<O> {
    /// Makes a final of a value and of a dynamic value to keep.
    pub fn new(value: O, save: impl Into<Value>) -> Self {
        Self { value, save: save.into() }
    }

    /// Makes a final that keeps a value of any serializable type.
    ///
    /// # Errors
    /// [`CodecError`] if the type refuses to be serialized.
    pub fn with<T: Serialize + ?Sized>(value: O, save: &T) -> Result<Self, CodecError> {
        Ok(Self { value, save: Value::from_serialize(save)? })
    }
}

/// What the function of an entrypoint returns: a value, which is kept for the next run as well, or a [`Final`].
pub trait IntoFinal {
    /// What the caller gets.
    type Value;

    /// Returns both values.
    ///
    /// # Errors
    /// [`CodecError`] if the value refuses to be serialized.
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

/// What a run would have returned.
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

/// What a run would have returned, for `update_state`.
impl<I, O: Clone + Send + Sync + 'static> IntoOutput<Entry<I, O>> for Final<O> {
    fn into_output(self) -> NodeOutput {
        NodeOutput::update(IntoUpdate::<Entry<I, O>>::into_writes(self))
    }
}

impl<I, O> Entrypoint<I, O>
where
    I: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    O: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Makes an entrypoint of a function, see [`IntoTask`].
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
        graph.entry = true;
        graph.nodes[0].function = of;
        Self(graph)
    }

    /// Sets what is kept of it when it runs inside a node or task. Default: [`Persistence::PerInvocation`].
    pub fn persistence(self, persistence: Persistence) -> Self {
        Self(self.0.persistence(persistence))
    }

    /// Adds a retry policy, for the entrypoint and for the tasks it calls that have none. Of several the first that an
    /// error matches decides. Another attempt runs the function from its first line, and its calls are new ones.
    #[doc(alias = "retry_policy")]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        let retry = &mut self.0.nodes[0].settings.retry;
        let known = retry.take();
        *retry = Some(known.iter().flat_map(|list| list.iter().cloned()).chain([policy]).collect());
        self
    }

    /// Sets how long an attempt of an async entrypoint may take, see [`TimeoutPolicy`]. It is for the function as a whole;
    /// the tasks it awaits count as part of it.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals::prelude::*;
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
        self.0.nodes[0].settings.timeout = Some(policy.into()).filter(TimeoutPolicy::is_set);
        self
    }

    /// Limits how long the entrypoint may take from its first attempt on, with all pauses and further attempts, see
    /// [`StateGraph::step_timeout`]. A plain function is told, and waited for.
    pub fn step_timeout(self, limit: Duration) -> Self {
        Self(self.0.step_timeout(limit))
    }

    /// Sets what is kept of the value of the entrypoint, and of the results of the tasks it calls that have no policy,
    /// if there is a [`cache`](Self::cache).
    pub fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.0.nodes[0].settings.cache = Some(policy);
        self
    }

    /// Sets where results are kept, see [`StateGraph::cache`].
    pub fn cache(self, cache: &Cache) -> Self {
        Self(self.0.cache(cache))
    }

    /// Checks the name and makes the entrypoint ready to run.
    ///
    /// # Errors
    /// [`GraphError`] if it cannot be the name of a node.
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

/// Returns the input of an entrypoint that begins, and keeps what its last run left for it.
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
        // An input that is stored as null: `()`, or no option.
        None => Ok(Value::Null.to::<I>()?),
    }
}

/// Returns the writes of an entrypoint that has returned.
fn ended<I, R>(returned: R) -> NodeResult<NodeOutput>
where
    R: IntoFinal,
    R::Value: Clone + Send + Sync + 'static,
{
    Ok(IntoOutput::<Entry<I, R::Value>>::into_output(returned.into_final()?))
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
        f.debug_struct("Entrypoint").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl<I, O: fmt::Debug> fmt::Debug for Entry<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("value", &self.value).finish_non_exhaustive()
    }
}
