//! Tools: typed functions with a JSON schema of their arguments, and tools that somebody else runs.
//!
//! Invariant: the result of a call is stored as a step of the run before the model sees it. *Absent:* deciding which
//! calls run; see `react.rs`.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use annals_base::{Map, Value};
use annals_graph::graph::NodeResult;
use annals_graph::task::{AsyncTask, Context, Started, Task};
use annals_pydantic_ai::{ErrorDetail, ToolReturnPart};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model::ToolDefinition;
use crate::schema::{read, schema_of, take_description};
use crate::shared::RunShared;
use crate::span::ToolSpan;
use crate::tool_output::{IntoToolOutput, ToolOutput};

/// The future of an asynchronous tool.
type ToolFuture = Pin<Box<dyn Future<Output = NodeResult<ToolOutput>> + Send>>;

/// A function that can be a tool, without the types of its arguments and result.
#[doc(hidden)]
#[derive(Clone)]
pub enum ToolFunction {
    Blocking(Arc<dyn Fn(&Value, &ToolContext) -> NodeResult<ToolOutput> + Send + Sync>),
    Async(Arc<dyn Fn(&Value, ToolContext) -> ToolFuture + Send + Sync>),
}

/// A function that can be a tool: `Fn(A) -> NodeResult<R>` or `Fn(A, &ToolContext) -> NodeResult<R>`, where `A` can be
/// read and has a JSON schema, and `R` can be serialized or is a [`ToolOutput`]; or a function `Fn(A)` or
/// `Fn(A, ToolContext)` that returns a future of it.
///
/// A plain function runs on a thread of the run, beside the other calls of the response.
#[diagnostic::on_unimplemented(
    message = "this function cannot be a tool with arguments `{A}`",
    label = "a tool takes arguments that implement `Deserialize` and `JsonSchema`, and returns a `NodeResult`",
    note = "a tool is `Fn({A}) -> NodeResult<R>`, `Fn({A}, &ToolContext) -> NodeResult<R>`, or the same with a future"
)]
pub trait IntoTool<A, M> {
    /// Erases the types of the function.
    #[doc(hidden)]
    fn into_tool(self) -> ToolFunction;
}

#[doc(hidden)]
pub struct TakesArgs;
#[doc(hidden)]
pub struct TakesArgsAndContext;
#[doc(hidden)]
pub struct AwaitsArgs;
#[doc(hidden)]
pub struct AwaitsArgsAndContext;

/// Reads arguments that were checked before.
fn args<A: DeserializeOwned>(value: &Value) -> NodeResult<A> {
    Ok(serde_json::from_value(value.to_json())?)
}

impl<F, A, R> IntoTool<A, (TakesArgs, R)> for F
where
    F: Fn(A) -> NodeResult<R> + Send + Sync + 'static,
    A: DeserializeOwned,
    R: IntoToolOutput,
{
    fn into_tool(self) -> ToolFunction {
        ToolFunction::Blocking(Arc::new(move |value, _| self(args(value)?)?.into_tool_output()))
    }
}

impl<F, A, R> IntoTool<A, (TakesArgsAndContext, R)> for F
where
    F: Fn(A, &ToolContext) -> NodeResult<R> + Send + Sync + 'static,
    A: DeserializeOwned,
    R: IntoToolOutput,
{
    fn into_tool(self) -> ToolFunction {
        ToolFunction::Blocking(Arc::new(move |value, context| self(args(value)?, context)?.into_tool_output()))
    }
}

impl<F, A, R, Fut> IntoTool<A, (AwaitsArgs, R, Fut)> for F
where
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<R>> + Send + 'static,
    A: DeserializeOwned,
    R: IntoToolOutput,
{
    fn into_tool(self) -> ToolFunction {
        ToolFunction::Async(Arc::new(move |value, _| match args(value) {
            Ok(args) => {
                let running = self(args);
                Box::pin(async move { running.await?.into_tool_output() })
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }))
    }
}

impl<F, A, R, Fut> IntoTool<A, (AwaitsArgsAndContext, R, Fut)> for F
where
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<R>> + Send + 'static,
    A: DeserializeOwned,
    R: IntoToolOutput,
{
    fn into_tool(self) -> ToolFunction {
        ToolFunction::Async(Arc::new(move |value, context| match args(value) {
            Ok(args) => {
                let running = self(args, context);
                Box::pin(async move { running.await?.into_tool_output() })
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }))
    }
}

/// The argument of a call of a tool, as it is stored with the step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToolInput {
    pub(crate) tool_call_id: String,
    pub(crate) args: Value,
    /// The number of retries before this call.
    pub(crate) retry: i64,
    pub(crate) max_retries: i64,
    /// True if a person has approved the call.
    pub(crate) approved: bool,
}

/// The end of a call of a tool, as it is stored with the step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolEnd {
    /// The call has a result without files, content beside it and metadata.
    Plain(Value),
    /// The part for the model, with content beside it for the user prompt.
    Returned(Box<ToolReturnPart>, Option<Value>),
    /// The model is asked for another call.
    Retry(String),
    /// The call waits for an approval.
    NeedsApproval(Value),
    /// Somebody else will run the call.
    Deferred(Value),
}

/// The context of a call of a tool. It dereferences to the [`Context`] of its task, with interrupts, called tasks,
/// streams and key-value memory.
#[derive(Clone)]
pub struct ToolContext {
    context: Context,
    tool_name: Arc<str>,
    input: ToolInput,
    state: Option<ToolState>,
}

/// The state of a graph, as its tools read it.
pub(crate) type ToolState = Arc<dyn std::any::Any + Send + Sync>;

impl ToolContext {
    /// Returns the dependencies of the run ([`AgentRun::deps`](crate::AgentRun::deps)), or in a graph of one's own its
    /// context value; `None` if there is none of this type.
    pub fn deps<T: std::any::Any + Send + Sync>(&self) -> Option<&T> {
        match self.context.value::<RunShared>() {
            Some(shared) => shared.deps(),
            None => self.context.value(),
        }
    }

    /// Returns the state of the graph whose [`ToolNode`](crate::ToolNode) runs the call (`InjectedState`): of its type,
    /// or the [`Value`] that was sent with the call. `None` for another type, and in an agent.
    pub fn state<S: 'static>(&self) -> Option<&S> {
        self.state.as_deref()?.downcast_ref()
    }

    /// Begins the span of the call, in that of the run of its agent.
    fn span(&self) -> Option<ToolSpan> {
        let shared = self.context.value::<RunShared>()?;
        Some(shared.span.tool(&self.tool_name, &self.input.tool_call_id, &self.input.args))
    }

    /// Returns the name of the tool.
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }

    /// Returns the id of the call.
    pub fn tool_call_id(&self) -> &str {
        &self.input.tool_call_id
    }

    /// Returns the number of retries of the tool before this call.
    pub fn retry(&self) -> i64 {
        self.input.retry
    }

    /// Returns the number of retries that the tool is allowed.
    pub fn max_retries(&self) -> i64 {
        self.input.max_retries
    }

    /// Returns whether a person has approved the call.
    pub fn is_approved(&self) -> bool {
        self.input.approved
    }
}

impl Deref for ToolContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("tool_name", &self.tool_name).field("input", &self.input).finish()
    }
}

/// A tool of an agent.
///
/// # Example
/// ```
/// use annals_agents::{Agent, ModelRetry, ScriptedResponse, TestModel, AgentTool, ToolContext};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Weather {
///     /// The name of a city.
///     city: String,
/// }
///
/// struct Stations(Vec<&'static str>);
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let weather = AgentTool::new("weather", |weather: Weather, context: &ToolContext| {
///     let Stations(known) = context.deps().ok_or("the stations are given")?;
///     if !known.contains(&weather.city.as_str()) {
///         return Err(ModelRetry::new(format!("unknown city; known: {}", known.join(", "))).into());
///     }
///     Ok(json!({"city": weather.city, "celsius": 12}))
/// })
/// .description("Returns the weather of a city.");
/// assert_eq!(weather.definition().parameters["properties"]["city"]["description"], "The name of a city.");
///
/// let model = TestModel::script([
///     ScriptedResponse::call("weather", json!({"city": "Berne"})),
///     ScriptedResponse::call("weather", json!({"city": "Bern"})),
///     "12 degrees".into(),
/// ]);
/// let agent = Agent::new(model).tool(weather);
/// let result = agent.run("The weather in Berne?").deps(Stations(vec!["Bern"])).invoke()?;
/// assert_eq!((result.output.as_str(), result.usage().tool_calls), ("12 degrees", 1));
/// # Ok(())
/// # }
/// ```
pub struct AgentTool {
    name: Arc<str>,
    description: String,
    parameters: Arc<Value>,
    pub(crate) max_retries: Option<i64>,
    pub(crate) needs_approval: bool,
    pub(crate) is_sequential: bool,
    pub(crate) returns_directly: bool,
    timeout: Option<Duration>,
    check: Option<ArgsCheck>,
    /// `None` if somebody else runs the calls.
    function: Option<ToolFunction>,
}

/// A function that checks arguments.
type ArgsCheck = Box<dyn Fn(&Value) -> Result<(), Vec<ErrorDetail>> + Send + Sync>;

impl AgentTool {
    /// Returns a tool of a function, see [`IntoTool`]. The schema of its arguments, and without
    /// [`description`](Self::description) its description, come from the type of the arguments.
    pub fn new<A, M>(name: impl Into<Arc<str>>, function: impl IntoTool<A, M>) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
    {
        let mut parameters = schema_of::<A>();
        let description = take_description(&mut parameters);
        let check = Box::new(|value: &Value| read::<A>(value).map(|_| ()));
        Self::of(name.into(), description, parameters, Some(check), Some(function.into_tool()))
    }

    /// Returns a tool whose schema is known at run time alone. The function takes the arguments as `check` lets them
    /// pass; the model is told the errors of `check`.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{AgentTool, ToolContext};
    /// use annals_base::{Map, Value};
    /// use annals_pydantic_ai::{ErrorDetail, Location};
    ///
    /// let schema = Map::from_iter([("type".to_owned(), "object".into())]);
    /// let check = |args: &Value| match args.get("city") {
    ///     Some(_) => Ok(()),
    ///     None => {
    ///         let place = vec![Location::Name("city".into())];
    ///         Err(vec![ErrorDetail::new("missing", place, "Field required", args.clone())])
    ///     }
    /// };
    /// let weather = AgentTool::with_schema("weather", schema, check, |args: Value, _: &ToolContext| Ok(args["city"].clone()));
    /// assert_eq!(weather.name(), "weather");
    /// ```
    pub fn with_schema<R: IntoToolOutput>(
        name: impl Into<Arc<str>>,
        parameters: impl Into<Map>,
        check: impl Fn(&Value) -> Result<(), Vec<ErrorDetail>> + Send + Sync + 'static,
        function: impl Fn(Value, &ToolContext) -> NodeResult<R> + Send + Sync + 'static,
    ) -> Self {
        let mut parameters = parameters.into();
        let description = take_description(&mut parameters);
        let run = move |value: &Value, context: &ToolContext| function(value.clone(), context)?.into_tool_output();
        let function = ToolFunction::Blocking(Arc::new(run));
        Self::of(name.into(), description, parameters, Some(Box::new(check)), Some(function))
    }

    /// Returns a tool that somebody else runs: its calls end the run as waiting
    /// ([`DeferredRequests::calls`](crate::DeferredRequests::calls)), and their results are given to
    /// [`Agent::resume`](crate::Agent::resume). The schema is that of the arguments.
    pub fn external(name: impl Into<Arc<str>>, parameters: impl Into<Map>) -> Self {
        let mut parameters = parameters.into();
        let description = take_description(&mut parameters);
        Self::of(name.into(), description, parameters, None, None)
    }

    fn of(
        name: Arc<str>,
        description: String,
        parameters: Map,
        check: Option<ArgsCheck>,
        function: Option<ToolFunction>,
    ) -> Self {
        Self {
            name,
            description,
            parameters: Arc::new(Value::Map(parameters)),
            max_retries: None,
            needs_approval: false,
            is_sequential: false,
            returns_directly: false,
            timeout: None,
            check,
            function,
        }
    }

    /// Sets the description, which the model sees.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets how often the model may be asked for another call after a failed one. Default: that of the agent.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(i64::from(retries));
        self
    }

    /// Lets each call wait for the approval of a person ([`DeferredRequests::approvals`](crate::DeferredRequests)).
    #[must_use]
    pub fn requires_approval(mut self) -> Self {
        self.needs_approval = true;
        self
    }

    /// Lets the calls of a response run one after another if one of them is of this tool. Default: at the same time.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.is_sequential = true;
        self
    }

    /// Limits the duration of a call of an asynchronous function. A call that takes longer is dropped where it waits,
    /// and the model is asked for another one. A function that runs on a thread cannot be stopped: an agent with a
    /// limit on one refuses to run.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Ends the run of a [`ReactAgent`](crate::ReactAgent) with the result of the call (`return_direct`): the model is
    /// not asked again. An [`Agent`](crate::Agent) does not read it.
    #[must_use]
    pub fn return_direct(mut self) -> Self {
        self.returns_directly = true;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tool as the model sees it.
    pub fn definition(&self) -> ToolDefinition {
        let (name, description) = (self.name.to_string(), self.description.clone());
        ToolDefinition { name, description, parameters: Arc::clone(&self.parameters) }
    }

    /// Returns whether somebody else runs the calls.
    pub(crate) fn is_external(&self) -> bool {
        self.function.is_none()
    }

    /// Returns the reason for which an agent cannot have the tool.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_async = matches!(self.function, Some(ToolFunction::Async(_)));
        (self.timeout.is_some() && !is_async)
            .then(|| format!("tool {:?} runs on a thread, which cannot be stopped: it takes no timeout", self.name))
    }

    /// Reads arguments.
    pub(crate) fn check(&self, args: &Value) -> Result<(), Vec<ErrorDetail>> {
        self.check.as_ref().map_or(Ok(()), |check| check(args))
    }

    /// Starts a call, whose result is stored as `end` makes it: with its step if it `is_alone`, else at once. Returns
    /// `None` if somebody else runs it.
    pub(crate) fn start<E: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        context: &Context,
        input: ToolInput,
        state: Option<ToolState>,
        is_alone: bool,
        end: impl Fn(NodeResult<ToolOutput>, &ToolContext) -> NodeResult<E> + Send + Sync + Clone + 'static,
    ) -> Option<Started<E>> {
        let name = Arc::clone(&self.name);
        let of = move |context: Context, input: ToolInput| {
            let (tool_name, state) = (Arc::clone(&name), state.clone());
            ToolContext { context, tool_name, input, state }
        };
        Some(match self.function.clone()? {
            ToolFunction::Blocking(function) => {
                let task = Task::new(Arc::clone(&self.name), move |input: ToolInput, context: &Context| {
                    let context = of(context.clone(), input);
                    let result = match context.span() {
                        Some(span) => span.scope(|| function(&context.input.args, &context)),
                        None => function(&context.input.args, &context),
                    };
                    end(result, &context)
                });
                if is_alone { task.store_with_caller() } else { task }.start(context, input)
            }
            ToolFunction::Async(function) => {
                let task: AsyncTask<ToolInput, E> =
                    Task::new(Arc::clone(&self.name), move |input: ToolInput, context: Context| {
                        let context = of(context, input);
                        let (running, end) = (function(&context.input.args, context.clone()), end.clone());
                        async move {
                            let result = match context.span() {
                                Some(span) => span.around(running).await,
                                None => running.await,
                            };
                            end(result, &context)
                        }
                    });
                let task = match self.timeout {
                    Some(limit) => task.timeout(limit),
                    None => task,
                };
                if is_alone { task.store_with_caller() } else { task }.start(context, input)
            }
        })
    }
}

/// Returns the text for a model that called a tool which it does not have.
pub(crate) fn unknown_tool(name: &str, tools: &[Arc<AgentTool>]) -> String {
    let known: Vec<_> = tools.iter().map(|tool| format!("{:?}", tool.name())).collect();
    format!("There is no tool {name:?}. Known tools: {}", known.join(", "))
}

impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTool").field("name", &self.name).finish_non_exhaustive()
    }
}
