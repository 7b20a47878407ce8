//! The agent: its model, prompts, tools and output, and its graph.
//!
//! Invariant: an agent does not change once a run has begun; its setters take it by value. *Absent:* runs.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use annals_base::{Clock, SystemClock};
use annals_graph::graph::{GraphError, NodeResult, RetryPolicy};
use annals_graph::prelude::{Command, CompiledGraph, Context, END, NodeOptions, START, StateGraph};
use annals_graph::prelude::{Snapshot, Thread};
use annals_pydantic_ai::{ModelMessage, UsageLimits, UserContent};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::ask::ask;
use crate::deferred::{DeferredRequests, DeferredResults};
use crate::error::AgentError;
use crate::history::{HistoryCache, KnownHistory, last_run};
use crate::hooks::AgentHooks;
use crate::model::{Model, ModelError, ModelSettings};
use crate::output::{OutputMode, OutputSpec};
use crate::processors::HistoryProcessor;
use crate::prompts::{PromptSource, SystemPromptMode, SystemPrompts, instructions};
use crate::react::react;
use crate::run::{AgentRun, Resumption};
use crate::shared::{RunInfo, RunShared};
use crate::state::{AgentProgress, AgentState, AgentStateUpdate, NextStep};
use crate::tool::AgentTool;

/// The node that asks the model.
const ASK: &str = "model";
/// The node that handles a response: it runs the tools.
const REACT: &str = "tools";

/// Returns the command of a step: its update, and the node of the next one.
pub(crate) fn leads(update: AgentStateUpdate, next: NextStep) -> Command {
    Command::update(update).and_goto(match next {
        NextStep::Ask => ASK,
        NextStep::React => REACT,
        NextStep::End => END,
    })
}

/// The parts of an agent that its steps need.
#[derive(Clone)]
pub(crate) struct AgentCore {
    pub(crate) name: String,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) system_prompts: SystemPrompts,
    instructions: Vec<PromptSource>,
    pub(crate) tools: Vec<Arc<AgentTool>>,
    pub(crate) output: OutputSpec,
    pub(crate) processors: Vec<HistoryProcessor>,
    pub(crate) hooks: AgentHooks,
    pub(crate) limits: UsageLimits,
    pub(crate) settings: ModelSettings,
    pub(crate) tool_retries: i64,
    pub(crate) output_retries: i64,
    model_retry: RetryPolicy,
    pub(crate) clock: Arc<dyn Clock>,
    /// True if spans carry values.
    #[cfg(feature = "tracing")]
    pub(crate) traces_values: bool,
    pub(crate) histories: Arc<HistoryCache>,
}

impl AgentCore {
    pub(crate) fn new(model: impl Model) -> Self {
        let is_transient =
            |error: &(dyn std::error::Error + 'static)| error.downcast_ref().is_some_and(ModelError::is_transient);
        Self {
            name: "agent".into(),
            model: Arc::new(model),
            system_prompts: SystemPrompts::default(),
            instructions: Vec::new(),
            tools: Vec::new(),
            output: OutputSpec::default(),
            processors: Vec::new(),
            hooks: AgentHooks::default(),
            limits: UsageLimits::default(),
            settings: ModelSettings::default(),
            tool_retries: 1,
            output_retries: 1,
            model_retry: RetryPolicy::new().on_if(is_transient),
            clock: Arc::new(SystemClock),
            #[cfg(feature = "tracing")]
            traces_values: false,
            histories: Arc::default(),
        }
    }

    /// Returns the view of a run for functions.
    pub(crate) fn info<'a>(
        &self,
        shared: &'a RunShared,
        progress: &'a AgentProgress,
        messages: &'a [ModelMessage],
    ) -> RunInfo<'a> {
        RunInfo { shared, messages, usage: &progress.usage, run_id: &progress.run_id }
    }

    /// Returns the instructions in force.
    pub(crate) fn instructions(&self, info: &RunInfo<'_>) -> NodeResult<Option<String>> {
        instructions(&self.instructions, info.shared.instructions.as_deref(), self.output.instructions(), info)
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<AgentTool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// Returns the reason for which the agent cannot run.
    pub(crate) fn problem(&self) -> Option<String> {
        let output = self.output.tool();
        let mut names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        names.extend(output.as_ref().map(|tool| tool.name.as_str()));
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        twice
            .map(|pair| format!("the agent has two tools with the name {:?}", pair[0]))
            .or_else(|| self.tools.iter().find_map(|tool| tool.problem()))
    }

    fn compile(self: &Arc<Self>) -> Result<CompiledGraph<AgentState>, GraphError> {
        let (asks, reacts) = (Arc::clone(self), Arc::clone(self));
        let options = NodeOptions::new().retry(self.model_retry.clone());
        let never = NodeOptions::new().retry(RetryPolicy::new().max_attempts(1));
        let to = [ASK, REACT, END];
        StateGraph::<AgentState>::new()
            .name(self.name.as_str())
            .node_with(
                ASK,
                move |state: Arc<AgentState>, context: Context| ask(Arc::clone(&asks), state, context),
                options.destinations(to),
            )
            .node_with(
                REACT,
                move |state: Arc<AgentState>, context: Context| react(Arc::clone(&reacts), state, context),
                never.destinations(to),
            )
            // The steps name the next one: a path would be given the state with their writes, and that from the start
            // would cost the input a commit of its own.
            .edge(START, ASK)
            .compile()
    }
}

/// An agent: a model with prompts and tools, whose output is an `O` (`Agent`).
///
/// Each run is a thread of a store, or of memory. The front page of the crate has recipes.
///
/// # Example: an output with a type
/// ```
/// use annals_agents::{Agent, ModelRetry, OutputMode, ScriptedResponse, TestModel};
/// use serde_json::json;
///
/// /// A city and its population.
/// #[derive(serde::Deserialize, schemars::JsonSchema, Debug, PartialEq)]
/// struct City {
///     name: String,
///     people: u32,
/// }
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let model = TestModel::script([
///     ScriptedResponse::call("final_result", json!({"name": "Bern"})),
///     ScriptedResponse::call("final_result", json!({"name": "Bern", "people": 0})),
///     ScriptedResponse::call("final_result", json!({"name": "Bern", "people": 137_000})),
/// ]);
/// let agent = Agent::new(model).output::<City>(OutputMode::Tool).output_retries(2).output_validator(|city: &City| {
///     if city.people == 0 { Err(ModelRetry::new("People live there.").into()) } else { Ok(()) }
/// });
/// let result = agent.run("The capital of Switzerland?").invoke()?;
/// assert_eq!(result.output, City { name: "Bern".into(), people: 137_000 });
/// assert_eq!(result.usage().requests, 3);
/// # Ok(())
/// # }
/// ```
pub struct Agent<O = String> {
    core: Arc<AgentCore>,
    graph: OnceLock<Result<CompiledGraph<AgentState>, GraphError>>,
    output: PhantomData<fn() -> O>,
}

impl Agent<String> {
    /// Returns an agent of a model, whose output is text. It has no prompts and no tools; a model is asked 3 times if
    /// the error is [transient](ModelError::is_transient); a tool or an output is asked for again once.
    pub fn new(model: impl Model) -> Self {
        let core = AgentCore::new(model);
        Self { core: Arc::new(core), graph: OnceLock::new(), output: PhantomData }
    }

    /// Sets the type of the output, and the way in which it comes.
    pub fn output<O: DeserializeOwned + JsonSchema + 'static>(self, mode: OutputMode) -> Agent<O> {
        let mut core = self.core;
        Arc::make_mut(&mut core).output = OutputSpec::typed::<O>(mode);
        Agent { core, graph: OnceLock::new(), output: PhantomData }
    }
}

impl<O> Agent<O> {
    pub(crate) fn set(mut self, set: impl FnOnce(&mut AgentCore)) -> Self {
        set(Arc::make_mut(&mut self.core));
        self.graph = OnceLock::new();
        self
    }

    /// Sets the name, which the steps of a thread show. Default: `agent`.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.set(|core| core.name = name.into())
    }

    /// Adds a system prompt, which begins a conversation: a run with a history does not add it.
    #[must_use]
    pub fn system_prompt(self, text: impl Into<String>) -> Self {
        self.set(|core| core.system_prompts.sources.push(PromptSource::Text(text.into())))
    }

    /// Adds a system prompt that a function makes when a conversation begins.
    #[must_use]
    pub fn system_prompt_from(self, make: impl Fn(&RunInfo<'_>) -> NodeResult<String> + Send + Sync + 'static) -> Self {
        self.set(|core| core.system_prompts.sources.push(PromptSource::Function(Arc::new(make))))
    }

    /// Adds a system prompt that a function makes anew in each run, in the place that it has in the history. The name
    /// marks the place.
    #[must_use]
    pub fn dynamic_system_prompt(
        self,
        name: impl Into<String>,
        make: impl Fn(&RunInfo<'_>) -> NodeResult<String> + Send + Sync + 'static,
    ) -> Self {
        self.set(|core| core.system_prompts.sources.push(PromptSource::Dynamic(name.into(), Arc::new(make))))
    }

    /// Sets how a history without the system prompts of the agent is treated. Default: it is taken as it is.
    #[must_use]
    pub fn system_prompt_mode(self, mode: SystemPromptMode) -> Self {
        self.set(|core| core.system_prompts.mode = mode)
    }

    /// Adds instructions, which each request carries. Those of old requests are not sent again.
    #[must_use]
    pub fn instructions(self, text: impl Into<String>) -> Self {
        self.set(|core| core.instructions.push(PromptSource::Text(text.into())))
    }

    /// Adds instructions that a function makes for each request.
    #[must_use]
    pub fn instructions_from(self, make: impl Fn(&RunInfo<'_>) -> NodeResult<String> + Send + Sync + 'static) -> Self {
        self.set(|core| core.instructions.push(PromptSource::Function(Arc::new(make))))
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(self, tool: AgentTool) -> Self {
        self.set(|core| core.tools.push(Arc::new(tool)))
    }

    /// Adds a history processor, see [`HistoryProcessor`]. Several run in the order in which they were added.
    #[must_use]
    pub fn history_processor(self, processor: HistoryProcessor) -> Self {
        self.set(|core| core.processors.push(processor))
    }

    /// Sets the limits on usage of each run. Default: 50 requests.
    #[must_use]
    pub fn usage_limits(self, limits: UsageLimits) -> Self {
        self.set(|core| core.limits = limits)
    }

    /// Sets the settings of each request.
    #[must_use]
    pub fn settings(self, settings: ModelSettings) -> Self {
        self.set(|core| core.settings = settings)
    }

    /// Sets how often the model may be asked for another call of a tool after a failed one. Default: 1.
    #[must_use]
    pub fn tool_retries(self, retries: u32) -> Self {
        self.set(|core| core.tool_retries = i64::from(retries))
    }

    /// Sets how often the model may be asked for another output in a run. Default: 1.
    #[must_use]
    pub fn output_retries(self, retries: u32) -> Self {
        self.set(|core| core.output_retries = i64::from(retries))
    }

    /// Sets how a request to the model that failed is repeated. Default: 3 attempts after transient errors.
    #[must_use]
    pub fn model_retry(self, policy: RetryPolicy) -> Self {
        self.set(|core| core.model_retry = policy)
    }

    /// Sets the clock of the timestamps. Default: that of the system.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        self.set(|core| core.clock = Arc::new(clock))
    }

    /// Lets the spans of runs carry values, by the attributes of the conventions: instructions and messages
    /// (`gen_ai.system_instructions`, `gen_ai.input.messages`, `gen_ai.output.messages`), the arguments of tool calls
    /// and their results. Default: spans have ids, names and counts alone.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn trace_values(self) -> Self {
        self.set(|core| core.traces_values = true)
    }

    /// Sets up a run with a prompt, see [`AgentRun`].
    pub fn run(&self, prompt: impl Into<UserContent>) -> AgentRun<'_, O> {
        AgentRun::new(self, Some(prompt.into()))
    }

    /// Sets up a run without a prompt: it sends the last request of the history again, runs the open calls of the last
    /// response, or sends the instructions.
    pub fn run_without_prompt(&self) -> AgentRun<'_, O> {
        AgentRun::new(self, None)
    }

    /// Sets up the continuation of a run that was killed, has failed or waits on a thread. Steps that have ended do not
    /// run again.
    pub fn resume(&self, thread: &Thread) -> AgentRun<'_, O> {
        AgentRun::resuming(self, thread, Resumption::Continue)
    }

    /// Sets up the continuation of a run that waits, with the results of its calls.
    pub fn resume_with(&self, thread: &Thread, results: DeferredResults) -> AgentRun<'_, O> {
        AgentRun::resuming(self, thread, Resumption::Results(results))
    }

    /// Sets up the continuation of a run that a tool has interrupted
    /// ([`Context::interrupt`](annals_graph::task::Context::interrupt)), with the resume value.
    pub fn resume_value(&self, thread: &Thread, value: impl Into<annals_base::Value>) -> AgentRun<'_, O> {
        AgentRun::resuming(self, thread, Resumption::Value(value.into()))
    }

    /// Returns the calls that the run of a thread waits for, `None` if it does not wait.
    ///
    /// # Errors
    /// [`AgentError`] if the thread cannot be read.
    pub fn requests(&self, thread: &Thread) -> Result<Option<DeferredRequests>, AgentError> {
        let state = self.graph()?.get_state(thread)?;
        Ok(crate::run::requests_in(&state.interrupts).map(|(_, requests)| requests))
    }

    /// Returns the history of a thread.
    ///
    /// # Errors
    /// [`AgentError`] if the thread cannot be read.
    pub fn history(&self, thread: &Thread) -> Result<Vec<ModelMessage>, AgentError> {
        let state = self.graph()?.get_state(thread)?;
        let history = crate::run::history_of(&state.values, &KnownHistory::default(), &self.core)?;
        Ok(Arc::unwrap_or_clone(history))
    }

    /// Takes back the last run of a thread: the head moves to where it was before that run. Nothing is deleted, and
    /// [`Thread::undo`] moves the head back. Returns false if the thread has no state before it.
    ///
    /// # Errors
    /// [`AgentError`] if the thread cannot be read, or another writer was faster.
    pub fn take_back(&self, thread: &Thread) -> Result<bool, AgentError> {
        let failed = |error| AgentError::from(annals_graph::Error::from(error));
        let run_id = |at: &Snapshot| match at.state::<AgentState>() {
            Ok(state) => Ok(last_run(&state, &*self.core.clock)),
            Err(error) => Err(AgentError::from(annals_graph::Error::from(error))),
        };
        let Some(head) = thread.head().map_err(failed)? else { return Ok(false) };
        let last = run_id(&head)?;
        let mut at = Some(head);
        // A fork does not go back into the thread that it was forked off.
        while let Some(snapshot) = at.filter(|at| at.point().thread == *thread.id()) {
            if snapshot.next().next().is_none() && run_id(&snapshot)? != last {
                return thread.rewind_to(&snapshot).map(|()| true).map_err(failed);
            }
            at = snapshot.parent().map_err(failed)?;
        }
        Ok(false)
    }

    pub(crate) fn core(&self) -> &Arc<AgentCore> {
        &self.core
    }

    pub(crate) fn graph(&self) -> Result<&CompiledGraph<AgentState>, AgentError> {
        let graph = self.graph.get_or_init(|| self.core.compile());
        graph.as_ref().map_err(|error| AgentError::input(format!("the agent has no graph: {error}")))
    }
}

impl<O: DeserializeOwned + 'static> Agent<O> {
    /// Adds a validator of the output. With the error [`ModelRetry`](crate::ModelRetry) the model is asked for another
    /// output; any other error ends the run.
    #[must_use]
    pub fn output_validator(self, validate: impl Fn(&O) -> NodeResult<()> + Send + Sync + 'static) -> Self {
        self.set(|core| {
            let validate = move |value: &annals_base::Value, _: &RunInfo<'_>| validate(&value.to::<O>()?);
            core.output.add_validator(Arc::new(validate));
        })
    }
}

impl<O> Clone for Agent<O> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), graph: OnceLock::new(), output: PhantomData }
    }
}

impl<O> fmt::Debug for Agent<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.core.model.name();
        f.debug_struct("Agent").field("name", &self.core.name).field("model", &model).finish_non_exhaustive()
    }
}
