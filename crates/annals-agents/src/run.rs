//! A run that is being set up, and the calls that run it.
//!
//! Invariant: a run that begins commits its history and its first request together. *Absent:* the steps.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annals_base::{IdSource, Value};
use annals_graph::prelude::{Command, Outcome, State, Store, Thread};
use annals_graph::task::{Context, Interrupt};
use annals_graph::{HeadState, Input, IntoInput, Run};
use annals_messages::Message;
use annals_pydantic_ai::{DefaultSource, LoadError, ModelMessage, UsageLimits, UserContent, from_langchain};
use serde::de::DeserializeOwned;

use crate::agent::{Agent, AgentCore};
use crate::begin::{BeginArgs, BegunRun, begin};
use crate::deferred::{DeferredRequests, DeferredResults};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::AgentEvent;
use crate::gate::EventGate;
use crate::history::{KnownHistory, SharedHistory, rewritten, stored};
use crate::model::{Model, ModelSettings};
use crate::result::{AgentOutcome, AgentResult, WaitingRun};
use crate::shared::RunShared;
use crate::span::AgentRunSpan;
use crate::state::{AgentProgress, AgentState};
use crate::steps::AgentSteps;
use crate::streamed::{AsyncStreamedRun, StreamedRun};

/// A run that is being set up. [`invoke`](Self::invoke) runs it on the calling thread, [`ainvoke`](Self::ainvoke) is a
/// future, [`stream`](Self::stream) and [`astream`](Self::astream) show it as it happens, [`iter`](Self::iter) step by
/// step.
#[must_use = "a run begins when it is invoked"]
pub struct AgentRun<'a, O = String> {
    agent: &'a Agent<O>,
    args: BeginArgs,
    /// `None` for a new run.
    resumes: Option<Resumption>,
    thread: Option<Thread>,
    /// The task whose run this one is a part of.
    task: Option<Context>,
    history: Vec<ModelMessage>,
    shared: RunShared,
    persist_every: Option<Duration>,
}

/// The way in which a run goes on.
pub(crate) enum Resumption {
    /// The run goes on at the point at which it stopped.
    Continue,
    /// The run goes on with the results of calls.
    Results(DeferredResults),
    /// With the resume value of an interrupt.
    Value(Value),
}

/// A run that can start: its thread, the run of the graph on its head, and the input.
pub(crate) struct ReadyRun<'a> {
    pub(crate) thread: Thread,
    pub(crate) run: Run<'a, AgentState>,
    pub(crate) input: Input,
    pub(crate) known: Arc<KnownHistory>,
    pub(crate) span: AgentRunSpan,
}

impl<'a, O> AgentRun<'a, O> {
    pub(crate) fn new(agent: &'a Agent<O>, prompt: Option<UserContent>) -> Self {
        let shared = RunShared::new(Arc::clone(&agent.core().clock));
        let args = BeginArgs { prompt, ..BeginArgs::default() };
        let (resumes, thread, task, history, persist_every) = (None, None, None, Vec::new(), None);
        Self { agent, args, resumes, thread, task, history, shared, persist_every }
    }

    pub(crate) fn resuming(agent: &'a Agent<O>, thread: &Thread, resumption: Resumption) -> Self {
        let mut run = Self::new(agent, None);
        (run.thread, run.resumes) = (Some(thread.clone()), Some(resumption));
        run
    }

    /// Sets the messages of earlier runs. A thread that has messages does not take others.
    pub fn message_history(mut self, history: impl Into<Vec<ModelMessage>>) -> Self {
        self.history = history.into();
        self
    }

    /// Sets the messages of earlier runs, in LangChain's format.
    ///
    /// # Errors
    /// [`AgentError`] naming the first message that has no counterpart.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, TestModel};
    /// use annals_messages::Message;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::new(TestModel::script(["not asked", "two"]));
    /// let history = [Message::system("Be brief."), Message::human("1"), Message::ai("one")];
    /// let result = agent.run("2").langchain_history(&history)?.invoke()?;
    /// let messages = result.langchain_messages()?;
    /// let texts: Vec<_> = messages.iter().map(|message| message.text()).collect();
    /// assert_eq!(texts, ["Be brief.", "1", "one", "2", "two"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn langchain_history(mut self, history: &[Message]) -> Result<Self, AgentError> {
        let mut ids = IdSource::new();
        let defaults = &mut DefaultSource::new(&*self.shared.clock, &mut ids);
        self.history = from_langchain(history, defaults).map_err(|error| {
            let message = format!("the messages cannot be read as a history: {error}");
            AgentError::with_source(AgentErrorKind::Input, message, Arc::new(error))
        })?;
        Ok(self)
    }

    /// Sets the thread that the run goes on with, and that stores it. Default: a thread of memory.
    pub fn thread(mut self, thread: &Thread) -> Self {
        self.thread = Some(thread.clone());
        self
    }

    /// Makes the run a part of the run of a tool or a node: an agent that is a tool of another one. Its steps are
    /// stored in the thread of that run, in the namespace of the task, and are shown with it. If that run is killed,
    /// fails or waits, this one goes on with it, and its model and tools are not called again for what has ended. A
    /// call that waits for an approval lets the outer run wait, which takes the decision. The dependencies are those of
    /// the outer run, unless the run is given its own; the usage is counted for itself. Such a run is invoked, not
    /// streamed: see [`on_event`](Self::on_event).
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, AgentTool, ScriptedResponse, TestModel, ToolContext};
    /// use annals_graph::prelude::*;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Question {
    ///     question: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let historian = Agent::new(TestModel::script(["Founded in 1191."])).name("historian");
    /// let ask = AgentTool::new("ask_historian", move |asked: Question, context: &ToolContext| {
    ///     Ok(historian.run(asked.question).in_task(context).invoke()?.output)
    /// });
    /// let model = TestModel::script([
    ///     ScriptedResponse::call("ask_historian", json!({"question": "How old is Bern?"})),
    ///     "It was founded in 1191.".into(),
    /// ]);
    /// let thread = Store::memory().thread("trip")?;
    /// let result = Agent::new(model).tool(ask).run("How old is Bern?").thread(&thread).invoke()?;
    /// assert_eq!(result.output, "It was founded in 1191.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_task(mut self, context: &Context) -> Self {
        self.task = Some(context.clone());
        self
    }

    /// Sets the id of the run, which the history must not have. Default: a random one.
    pub fn run_id(mut self, id: impl Into<String>) -> Self {
        self.args.run_id = Some(id.into());
        self
    }

    /// Sets the id of the conversation; `new` stands for a random one, whatever the history says. Default: the last one
    /// of the history, or a random one.
    pub fn conversation_id(mut self, id: impl Into<String>) -> Self {
        self.args.conversation_id = Some(id.into());
        self
    }

    /// Adds instructions for this run.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.shared.instructions = Some(text.into());
        self
    }

    /// Sets another model for this run.
    pub fn model(mut self, model: impl Model) -> Self {
        self.shared.model = Some(Arc::new(model));
        self
    }

    /// Sets settings of the requests of this run, which take the place of those of the agent one by one.
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.shared.settings = settings;
        self
    }

    /// Sets the limits on the usage of this run, in place of those of the agent.
    pub fn usage_limits(mut self, limits: UsageLimits) -> Self {
        self.shared.limits = Some(limits);
        self
    }

    /// Gives the tools and prompt functions a value that is not stored: a client, a user, settings.
    pub fn deps<T: Any + Send + Sync>(mut self, deps: T) -> Self {
        self.shared.deps = Some(Arc::new(deps));
        self
    }

    /// Calls `listener` for each event of the run, on the threads of the run, which wait for it. Responses then stream
    /// in.
    pub fn on_event(mut self, listener: impl Fn(&AgentEvent) + Send + Sync + 'static) -> Self {
        self.shared.listener = Some(Arc::new(listener));
        self
    }

    /// Persists the text of a response that streams in at an interval: after a crash it is a partial message of the
    /// thread ([`Thread::partial`]).
    pub fn persist_text_every(mut self, interval: Duration) -> Self {
        self.persist_every = Some(interval);
        self.shared.persists = true;
        self
    }

    /// Begins the run also on a thread whose last run has not ended: calls without a result are closed as interrupted.
    /// Default: such a run is an error, as [`Agent::resume`] can go on with it.
    pub fn abandon_unfinished(mut self) -> Self {
        self.args.abandons = true;
        self
    }

    /// Returns the thread of a run that is not inside a task.
    fn own_thread(&self) -> Result<Thread, AgentError> {
        match &self.thread {
            Some(thread) => Ok(thread.clone()),
            None => {
                let name = format!("run-{}", IdSource::new().uuid_v4());
                Store::memory().thread(name).map_err(|error| annals_graph::Error::from(error).into())
            }
        }
    }

    /// Begins the span of the run.
    fn begin_span(&mut self) -> AgentRunSpan {
        let core = self.agent.core();
        let model = self.shared.model.as_deref().unwrap_or(&*core.model);
        let thread = self.thread.as_ref().map(Thread::id);
        let thread = thread.or_else(|| self.task.as_ref().and_then(Context::thread));
        self.shared.span = AgentRunSpan::begin(core, model, thread.map(|id| id.as_str()));
        self.shared.span.clone()
    }

    /// Refuses a run inside a task, whose events its outer run shows.
    fn verify_outermost(&self) -> Result<(), AgentError> {
        match self.task {
            Some(_) => Err(AgentError::input("a run inside a task is invoked, not streamed")),
            None => Ok(()),
        }
    }

    /// Sets up the run of the graph.
    fn graph_run(&self, thread: &Thread) -> Result<Run<'a, AgentState>, AgentError> {
        let run = self.agent.graph()?.run(thread).context(self.shared.clone());
        Ok(match self.persist_every {
            Some(interval) => run.persist_messages_every(interval),
            None => run,
        })
    }

    /// Returns the input of the run on the state of its thread.
    fn input(self, state: &HeadState<AgentState>) -> Result<Input, AgentError> {
        let core = self.agent.core();
        if self.resumes.is_some()
            && let Some((history, valid)) = core.histories.take(&state.values)
        {
            self.shared.known.set_valid(valid);
            let progress = state.values.agent_run.at(&history);
            self.shared.known.leave(state.values.messages.len(), history, progress);
        }
        Ok(match &self.resumes {
            Some(Resumption::Continue) => Input::Continue,
            Some(Resumption::Value(value)) => Input::Command(Command::resume(value.clone())),
            Some(Resumption::Results(results)) => resume(results, &state.interrupts)?,
            None => {
                let mut before = match core.histories.take(&state.values) {
                    Some((history, valid)) => {
                        self.shared.known.set_valid(valid);
                        history
                    }
                    None => history_of(&state.values, &self.shared.known, core)?,
                };
                if !state.next.is_empty() && !self.args.abandons {
                    let message = "the last run of the thread has not ended: resume it, or abandon it";
                    return Err(AgentError::input(message).at(before));
                }
                let keeps = !before.is_empty();
                if keeps && !self.history.is_empty() {
                    return Err(AgentError::input("the thread has messages, so a history cannot be given").at(before));
                }
                if !keeps {
                    before = Arc::new(self.history);
                }
                let count = before.len();
                let args = BeginArgs { has_fold: state.values.folded.is_some(), ..self.args };
                let BegunRun { messages, keeps: is_same, mut progress } = begin(core, &self.shared, before, &args)?;
                let follows = state.values.agent_run.at(&messages);
                let update = progress.write(AgentState::update(), &follows, &messages);
                let unchanged = keeps && is_same;
                let written = stored(if unchanged { &messages[count..] } else { &messages })?;
                let kept = if unchanged { state.values.messages.len() } else { 0 };
                self.shared.known.leave(kept + written.len(), messages, progress);
                let update =
                    if unchanged { update.messages(written) } else { rewritten(update, &state.values, written) };
                IntoInput::<AgentState, _>::into_input(update)
            }
        })
    }

    /// Makes a run inside a task ready.
    fn prepare_inside(mut self, context: &Context) -> Result<(Run<'a, AgentState>, Input), AgentError> {
        if self.thread.is_some() {
            return Err(AgentError::input("a run inside a task has no thread of its own"));
        }
        let outer = context.value::<RunShared>();
        self.shared.deps = self.shared.deps.or_else(|| outer.and_then(|outer| outer.deps.clone()));
        let run = self.agent.graph()?.run(context).context(self.shared.clone());
        // The history is not left to the first step: if the run goes on, the one that is stored counts.
        let history = Arc::new(self.history);
        let BegunRun { messages, mut progress, .. } = begin(self.agent.core(), &self.shared, history, &self.args)?;
        let follows = AgentProgress::default().at(&messages);
        let update = progress.write(AgentState::update(), &follows, &messages);
        let update = update.messages(stored(&messages)?);
        Ok((run, IntoInput::<AgentState, _>::into_input(update)))
    }

    /// Makes the run ready, on the calling thread.
    fn prepare(self) -> Result<ReadyRun<'a>, AgentError> {
        self.verify_outermost()?;
        let (thread, known, span) = (self.own_thread()?, Arc::clone(&self.shared.known), self.shared.span.clone());
        let mut run = self.graph_run(&thread)?;
        let input = self.input(&run.load_state()?)?;
        Ok(ReadyRun { thread, run, input, known, span })
    }

    /// Makes the run ready without blocking the executor that polls it.
    async fn aprepare(self) -> Result<ReadyRun<'a>, AgentError> {
        self.verify_outermost()?;
        let (thread, known, span) = (self.own_thread()?, Arc::clone(&self.shared.known), self.shared.span.clone());
        let mut run = self.graph_run(&thread)?;
        let state = run.aload_state().await?;
        let input = self.input(&state)?;
        Ok(ReadyRun { thread, run, input, known, span })
    }
}

impl<'a, O: DeserializeOwned> AgentRun<'a, O> {
    /// Runs to the end and returns the result.
    ///
    /// # Errors
    /// [`AgentError`], with the messages so far. A run that waits for approvals or results is one of the kind
    /// [`AgentErrorKind::Waiting`]; [`AgentRun::outcome`] returns it as an outcome.
    pub fn invoke(self) -> Result<AgentResult<O>, AgentError> {
        ended(self.outcome()?)
    }

    /// Runs to the end, or until the run waits.
    ///
    /// # Errors
    /// [`AgentError`], with the messages so far.
    pub fn outcome(mut self) -> Result<AgentOutcome<O>, AgentError> {
        let span = self.begin_span();
        let outcome = span.scope(|| self.run());
        span.end(&outcome);
        outcome
    }

    fn run(self) -> Result<AgentOutcome<O>, AgentError> {
        let agent = self.agent;
        if let Some(context) = self.task.clone() {
            let known = Arc::clone(&self.shared.known);
            let (run, input) = self.prepare_inside(&context)?;
            return conclude(agent.core(), None, &known, run.invoke(input));
        }
        let ReadyRun { thread, run, input, known, .. } = self.prepare()?;
        conclude(agent.core(), Some(thread), &known, run.invoke(input))
    }

    /// Runs to the end without blocking the executor that polls it, as [`AgentRun::invoke`].
    ///
    /// # Errors
    /// As [`AgentRun::invoke`].
    pub async fn ainvoke(self) -> Result<AgentResult<O>, AgentError> {
        ended(self.aoutcome().await?)
    }

    /// Runs to the end without blocking the executor that polls it, or until the run waits. If the future is dropped,
    /// the run is cancelled and can be resumed.
    ///
    /// # Errors
    /// As [`AgentRun::outcome`].
    pub async fn aoutcome(mut self) -> Result<AgentOutcome<O>, AgentError> {
        let span = self.begin_span();
        let outcome = span.around(self.arun()).await;
        span.end(&outcome);
        outcome
    }

    async fn arun(self) -> Result<AgentOutcome<O>, AgentError> {
        let agent = self.agent;
        if let Some(context) = self.task.clone() {
            let known = Arc::clone(&self.shared.known);
            let (run, input) = self.prepare_inside(&context)?;
            return conclude(agent.core(), None, &known, run.ainvoke(input).await);
        }
        let ReadyRun { thread, run, input, known, .. } = self.aprepare().await?;
        conclude(agent.core(), Some(thread), &known, run.ainvoke(input).await)
    }

    /// Runs step by step, as far as the stream is read, and shows the final response as it streams in (`run_stream`).
    ///
    /// # Errors
    /// [`AgentError`] if the run cannot begin, or fails before its final response.
    pub fn stream(mut self) -> Result<StreamedRun<'a, O>, AgentError> {
        let agent = self.agent;
        let gate = Arc::new(EventGate::default());
        self.shared.gate = Some(Arc::clone(&gate));
        self.begin_span().scope(|| StreamedRun::begin(agent, self.prepare()?, gate))
    }

    /// Runs step by step without blocking the executor that polls it, as [`AgentRun::stream`].
    ///
    /// # Errors
    /// As [`AgentRun::stream`].
    pub async fn astream(mut self) -> Result<AsyncStreamedRun<'a, O>, AgentError> {
        let agent = self.agent;
        let gate = Arc::new(EventGate::default());
        self.shared.gate = Some(Arc::clone(&gate));
        let span = self.begin_span();
        span.around(async { AsyncStreamedRun::begin(agent, self.aprepare().await?, gate).await }).await
    }

    /// Runs step by step, as far as the iterator is read: each request and response as it is stored (`iter`).
    ///
    /// # Errors
    /// [`AgentError`] if the run cannot begin.
    pub fn iter(mut self) -> Result<AgentSteps<'a, O>, AgentError> {
        let agent = self.agent;
        self.begin_span().scope(|| AgentSteps::begin(agent, self.prepare()?))
    }
}

/// Returns the result of a run that has ended.
fn ended<O>(outcome: AgentOutcome<O>) -> Result<AgentResult<O>, AgentError> {
    match outcome {
        AgentOutcome::Done(result) => Ok(result),
        AgentOutcome::Waiting(waiting) => Err(AgentError::waiting(waiting.requests, waiting.messages)),
    }
}

/// Returns the input that resumes a run.
fn resume(results: &DeferredResults, interrupts: &[Interrupt]) -> Result<Input, AgentError> {
    let Some((id, requests)) = requests_in(interrupts) else {
        return Err(AgentError::input("the run of the thread does not wait for results"));
    };
    if let Some(unknown) = results.0.keys().find(|id| !requests.ids().any(|known| known == id.as_str())) {
        return Err(AgentError::input(format!("the run does not wait for a result of call {unknown:?}")));
    }
    let value = Value::from_serialize(results)
        .map_err(|error| AgentError::input(format!("the results cannot be stored: {error}")))?;
    Ok(Input::Command(Command::resume_by_id([(id, value)])))
}

/// Returns the id and the calls of the interrupt of a run that waits.
pub(crate) fn requests_in(interrupts: &[Interrupt]) -> Option<(&str, DeferredRequests)> {
    interrupts.iter().find_map(|interrupt| {
        let requests: DeferredRequests = interrupt.value.to().ok()?;
        (!requests.is_empty()).then_some((interrupt.id.as_str(), requests))
    })
}

/// Returns the history in a state.
pub(crate) fn history_of(
    state: &AgentState,
    known: &KnownHistory,
    core: &AgentCore,
) -> Result<SharedHistory, AgentError> {
    known.peek(state, &*core.clock).map_err(unreadable)
}

/// Returns the error of a thread whose messages do not read as a history.
fn unreadable(error: LoadError) -> AgentError {
    let message = format!("the messages of the thread cannot be read as a history: {error}");
    AgentError::with_source(AgentErrorKind::Run, message, Arc::new(error))
}

/// Returns the outcome of a run of the graph; `thread` is `None` inside a task.
pub(crate) fn conclude<O: DeserializeOwned>(
    core: &AgentCore,
    thread: Option<Thread>,
    known: &KnownHistory,
    outcome: Result<Outcome<AgentState>, annals_graph::Error>,
) -> Result<AgentOutcome<O>, AgentError> {
    let outcome = outcome?;
    let (messages, progress) = known.take(outcome.state(), &*core.clock).map_err(unreadable)?;
    if thread.is_some() {
        core.histories.put(outcome.state(), &messages, known.valid());
    }
    match &outcome {
        Outcome::Done(_) => {
            let progress = Box::new(progress);
            if let Some(failure) = &progress.failure {
                return Err(failure.error().at(messages));
            }
            let output = progress.output.as_ref().map(Value::to::<O>);
            match output {
                Some(Ok(output)) => Ok(AgentOutcome::Done(AgentResult { output, messages, progress, thread })),
                Some(Err(error)) => {
                    let message = format!("the output is not of the type of the agent: {error}");
                    Err(AgentError::with_source(AgentErrorKind::Run, message, Arc::new(error)).at(messages))
                }
                None => Err(AgentError::new(AgentErrorKind::Run, "the thread holds no run of an agent").at(messages)),
            }
        }
        Outcome::Interrupted { interrupts, .. } => {
            let Some(thread) = thread else {
                return Err(AgentError::new(AgentErrorKind::Run, "a run inside a task waits with its outer run"));
            };
            let requests = requests_in(interrupts).map(|(_, requests)| requests).unwrap_or_default();
            let (interrupts, messages) = (interrupts.clone(), messages.to_vec());
            Ok(AgentOutcome::Waiting(WaitingRun { requests, interrupts, thread, messages }))
        }
        Outcome::Drained { reason, .. } | Outcome::Cancelled { reason, .. } => {
            Err(AgentError::new(AgentErrorKind::Stopped, format!("the run was stopped: {reason}")).at(messages))
        }
        _ => Err(AgentError::new(AgentErrorKind::Run, "the run ended in an unknown way").at(messages)),
    }
}

impl<O> fmt::Debug for AgentRun<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRun").field("thread", &self.thread).finish_non_exhaustive()
    }
}
