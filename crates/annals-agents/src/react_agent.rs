//! The ready agent over LangChain's messages: a model and its tools as a graph.
//!
//! Invariant: a response is stored before its calls are reviewed or run, and each ended call is stored. *Absent:* the
//! history of PydanticAI, usage and output modes, which [`Agent`](crate::Agent) has.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use annals_base::Value;
use annals_graph::annals::history::FoldedMessages;
use annals_graph::graph::{GraphError, NodeResult, RetryPolicy, Target};
use annals_graph::prelude::{CompiledGraph, Context, END, Message, NodeOptions, START, State, StateGraph};
use annals_messages::{Content, ToolCall};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::chat_model::{ChatCall, ChatModel};
use crate::model::{ModelError, ToolDefinition};
use crate::react_state::{ReactProgress, ReactState, ReactStateUpdate};
use crate::review::ToolReview;
use crate::schema::{read, schema_of, take_description};
use crate::tool::AgentTool;
use crate::tool_errors::{ToolCallError, ToolErrors};
use crate::tool_node::{ToolNode, ToolReplies};
use crate::tool_rules::{answer, error_answer};

const MODEL: &str = "model";
const REVIEW: &str = "review";
const TOOLS: &str = "tools";

/// The messages for the next request, as a [`ReactAgent::before_model`] hook decides.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ModelInput {
    /// The messages as they are.
    #[default]
    Unchanged,
    /// Other messages, for this request alone (`llm_input_messages`).
    Sent(Vec<Message>),
    /// Other messages, which are also stored in place of the old ones.
    Stored(Vec<Message>),
    /// The first `count` messages are folded: from now on the model sees the summary in their place, and they stay in
    /// the thread ([`FoldedMessages`]).
    Folded {
        /// The number of messages.
        count: usize,
        /// The messages of the summary.
        summary: Vec<Message>,
    },
    /// The model is not asked: the run ends with this message.
    End(Message),
}

type BeforeModel = Arc<dyn Fn(&[Message], &Context) -> NodeResult<ModelInput> + Send + Sync>;
type AfterModel = Arc<dyn Fn(&mut Message, &Context) -> NodeResult<()> + Send + Sync>;

/// The output tool of a [`ReactAgent`], with the function that checks its arguments.
struct ReactOutput {
    definition: ToolDefinition,
    check: fn(&Value) -> Result<(), Vec<annals_pydantic_ai::ErrorDetail>>,
}

/// The largest numbers of calls since the last message of the user.
#[derive(Clone, Debug, Default)]
struct CallLimits {
    models: Option<usize>,
    tools: Option<usize>,
    by_tool: BTreeMap<String, usize>,
}

/// A model and its tools as a graph over LangChain's messages (`create_agent`, `create_react_agent`).
///
/// The model is asked, the calls in its response run at the same time, and the model is asked again until it calls no
/// tool. The graph has the nodes `model`, `tools` and, with a [`review`](Self::review), `review`. Hooks run around the
/// model ([`before_model`](Self::before_model), [`after_model`](Self::after_model)) and around each call
/// ([`before_call`](Self::before_call), [`after_call`](Self::after_call)).
///
/// # Example
/// ```
/// use annals_agents::{AgentTool, ChatCall, ReactAgent, ReactState};
/// use annals_graph::prelude::*;
/// use annals_messages::ToolCall;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City {
///     city: String,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Stands in for a request to a model.
/// let model = |call: &ChatCall| Ok(match call.messages.last() {
///     Some(last) if last.tool_call_id().is_some() => Message::ai(format!("It says: {}", last.text())),
///     _ => Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id("c1")),
/// });
/// let agent = ReactAgent::new(model)
///     .prompt("Be brief.")
///     .tool(AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city))))
///     .compile()?;
/// let done = agent.invoke((), ReactState::update().messages([Message::human("The weather?")]))?;
/// assert_eq!(done.state().messages.last().unwrap().text(), "It says: rain in Bern");
/// # Ok(())
/// # }
/// ```
pub struct ReactAgent {
    models: Vec<Arc<dyn ChatModel>>,
    name: String,
    prompt: Option<String>,
    tools: Vec<AgentTool>,
    hooks: ToolNode,
    before: Vec<BeforeModel>,
    after: Vec<AfterModel>,
    output: Option<ReactOutput>,
    limits: CallLimits,
    review: Option<ToolReview>,
    at_step_limit: Option<String>,
}

/// The agent that the nodes share, its tools in one node.
struct ReactParts {
    agent: ReactAgent,
    definitions: Vec<ToolDefinition>,
    direct: Vec<String>,
    tools: ToolNode,
}

impl ReactAgent {
    /// Returns an agent of a model, see [`ChatModel`].
    pub fn new(model: impl ChatModel) -> Self {
        Self {
            models: vec![Arc::new(model)],
            name: "agent".into(),
            prompt: None,
            tools: Vec::new(),
            hooks: ToolNode::new([]),
            before: Vec::new(),
            after: Vec::new(),
            output: None,
            limits: CallLimits::default(),
            review: None,
            at_step_limit: None,
        }
    }

    /// Sets the name of the graph. Default: `agent`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the system message before the messages of each request. It is not stored.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<String>) -> Self {
        self.prompt = Some(text.into());
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: AgentTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the errors of tools that the model is told. Default: [`ToolErrors::arguments`].
    #[must_use]
    pub fn tool_errors(mut self, errors: ToolErrors) -> Self {
        self.hooks = self.hooks.errors(errors);
        self
    }

    /// Adds a model that is asked if all models before it failed. The failure is stored: a run that is resumed does not
    /// ask the failed model again.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{ChatCall, ModelError, ReactAgent, ReactState};
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = ReactAgent::new(|_: &ChatCall| Err(ModelError::fatal("out of order")))
    ///     .fallback(|_: &ChatCall| Ok(Message::ai("Hello.")))
    ///     .compile()?;
    /// let done = agent.invoke((), ReactState::update().messages([Message::human("Hi")]))?;
    /// assert_eq!(done.state().messages.last().unwrap().text(), "Hello.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fallback(mut self, model: impl ChatModel) -> Self {
        self.models.push(Arc::new(model));
        self
    }

    /// Calls a function with the messages before each request; it decides what is sent (`pre_model_hook`). Of several
    /// each gets the messages of the one before it. It runs again if the step does.
    ///
    /// # Example: keep the newest messages within a budget of tokens
    /// ```
    /// use annals_agents::{ChatCall, ModelInput, ReactAgent, ReactState};
    /// use annals_graph::prelude::*;
    /// use annals_messages::{TokenCounter, TrimOptions, trim_messages};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = ReactAgent::new(|call: &ChatCall| Ok(Message::ai(format!("{} messages", call.messages.len()))))
    ///     .before_model(|messages, _| {
    ///         let budget = TrimOptions::new(20).counter(TokenCounter::each(|message| message.text().len() as i64));
    ///         Ok(ModelInput::Sent(trim_messages(messages, &budget)?))
    ///     })
    ///     .compile()?;
    /// let talk = [Message::human("a long time ago"), Message::ai("I see"), Message::human("and now?")];
    /// let done = agent.invoke((), ReactState::update().messages(talk))?;
    /// assert_eq!(done.state().messages.last().unwrap().text(), "2 messages");
    /// assert_eq!(done.state().messages.len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn before_model(
        mut self,
        hook: impl Fn(&[Message], &Context) -> NodeResult<ModelInput> + Send + Sync + 'static,
    ) -> Self {
        self.before.push(Arc::new(hook));
        self
    }

    /// Calls a function with each response, which it can change before it is stored (`post_model_hook`).
    ///
    /// # Example: redact a name
    /// ```
    /// use annals_agents::{ChatCall, ReactAgent, ReactState};
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = ReactAgent::new(|_: &ChatCall| Ok(Message::ai("Anna called.")))
    ///     .after_model(|response, _| {
    ///         response.content = response.text().replace("Anna", "(name)").into();
    ///         Ok(())
    ///     })
    ///     .compile()?;
    /// let done = agent.invoke((), ReactState::update().messages([Message::human("Who?")]))?;
    /// assert_eq!(done.state().messages.last().unwrap().text(), "(name) called.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after_model(
        mut self,
        hook: impl Fn(&mut Message, &Context) -> NodeResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.after.push(Arc::new(hook));
        self
    }

    /// Calls a function before each call, see [`ToolNode::before_call`].
    #[must_use]
    pub fn before_call(
        mut self,
        hook: impl Fn(&mut ToolCall, &Context) -> NodeResult<Option<Message>> + Send + Sync + 'static,
    ) -> Self {
        self.hooks = self.hooks.before_call(hook);
        self
    }

    /// Calls a function with each message of a tool, see [`ToolNode::after_call`].
    #[must_use]
    pub fn after_call(mut self, hook: impl Fn(&ToolCall, &mut Message) + Send + Sync + 'static) -> Self {
        self.hooks = self.hooks.after_call(hook);
        self
    }

    /// Lets a person review calls before they run.
    #[must_use]
    pub fn review(mut self, review: ToolReview) -> Self {
        self.review = Some(review);
        self
    }

    /// Limits the requests to models since the last message of the user: at the limit the run ends with a message that
    /// says so (`ModelCallLimitMiddleware`). The messages are counted, so the limit holds after a crash.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{AgentTool, ChatCall, ReactAgent, ReactState};
    /// use annals_graph::prelude::*;
    /// use annals_messages::ToolCall;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let restless = |call: &ChatCall| {
    ///     let id = format!("c{}", call.messages.len());
    ///     Ok(Message::ai("").with_tool_call(ToolCall::new("look", [] as [(&str, i64); 0]).with_id(id)))
    /// };
    /// let look = AgentTool::new("look", |_: serde_json::Value| Ok("nothing"));
    /// let agent = ReactAgent::new(restless).tool(look).model_limit(2).compile()?;
    /// let done = agent.invoke((), ReactState::update().messages([Message::human("Look")]))?;
    /// assert_eq!(done.state().messages.len(), 6, "the question, two calls with results, and the end");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn model_limit(mut self, calls: usize) -> Self {
        self.limits.models = Some(calls);
        self
    }

    /// Limits the calls of tools since the last message of the user: the model is told that calls beyond the limit did
    /// not run (`ToolCallLimitMiddleware`).
    #[must_use]
    pub fn tool_limit(mut self, calls: usize) -> Self {
        self.limits.tools = Some(calls);
        self
    }

    /// Limits the calls of one tool since the last message of the user, as [`tool_limit`](Self::tool_limit).
    #[must_use]
    pub fn limit_of(mut self, tool: impl Into<String>, calls: usize) -> Self {
        self.limits.by_tool.insert(tool.into(), calls);
        self
    }

    /// Sets the type of the output: the model returns it by a call of a tool with the name of the type, and the run
    /// ends with it in [`ReactState::structured_response`] (`ToolStrategy`). Arguments that do not fit are told the
    /// model.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{ChatCall, ReactAgent, ReactState};
    /// use annals_graph::prelude::*;
    /// use annals_messages::ToolCall;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Weather {
    ///     celsius: i64,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = |call: &ChatCall| {
    ///     let output = &call.tools[0].name;
    ///     Ok(Message::ai("").with_tool_call(ToolCall::new(output, [("celsius", 12)]).with_id("c1")))
    /// };
    /// let agent = ReactAgent::new(model).response_format::<Weather>().compile()?;
    /// let done = agent.invoke((), ReactState::update().messages([Message::human("The weather?")]))?;
    /// let weather: Weather = done.state().structured_response.as_ref().expect("it is there").to()?;
    /// assert_eq!(weather.celsius, 12);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn response_format<T: DeserializeOwned + JsonSchema>(mut self) -> Self {
        let mut parameters = schema_of::<T>();
        let description = take_description(&mut parameters);
        let (name, parameters) = (T::schema_name().into_owned(), Arc::new(Value::Map(parameters)));
        let definition = ToolDefinition { name, description, parameters };
        self.output = Some(ReactOutput { definition, check: |value| read::<T>(value).map(|_| ()) });
        self
    }

    /// Sets the message with which the run ends if a response calls tools and the recursion limit leaves no step for
    /// another request. Default: such a run fails.
    #[must_use]
    pub fn at_step_limit(mut self, text: impl Into<String>) -> Self {
        self.at_step_limit = Some(text.into());
        self
    }

    /// Compiles the graph.
    ///
    /// # Errors
    /// [`GraphError`] if the graph is not valid.
    pub fn compile(mut self) -> Result<CompiledGraph<ReactState>, GraphError> {
        let output = self.output.as_ref().map(|output| output.definition.clone());
        let tools = std::mem::take(&mut self.tools);
        let parts = Arc::new(ReactParts {
            definitions: tools.iter().map(AgentTool::definition).chain(output).collect(),
            direct: tools.iter().filter(|tool| tool.returns_directly).map(|tool| tool.name().to_owned()).collect(),
            tools: self.hooks.clone().with_tools(tools),
            agent: self,
        });
        let is_transient =
            |error: &(dyn std::error::Error + 'static)| error.downcast_ref().is_some_and(ModelError::is_transient);
        let retry = NodeOptions::new().retry(RetryPolicy::new().on_if(is_transient));
        let never = NodeOptions::new().retry(RetryPolicy::new().max_attempts(1));
        let (asks, runs, reviews) = (Arc::clone(&parts), Arc::clone(&parts), Arc::clone(&parts));
        let (after_model, after_review, after_tools) = (Arc::clone(&parts), Arc::clone(&parts), Arc::clone(&parts));
        let ask = move |state: Arc<ReactState>, context: Context| {
            let parts = Arc::clone(&asks);
            async move { parts.ask(&state, &context).await }
        };
        let run = move |state: Arc<ReactState>, context: Context| {
            let parts = Arc::clone(&runs);
            async move { parts.run(state, &context).await }
        };
        let has_review = parts.agent.review.is_some();
        let graph = StateGraph::<ReactState>::new()
            .name(parts.agent.name.as_str())
            .node_with(MODEL, ask, retry)
            .node_with(TOOLS, run, never.clone())
            .edge(START, MODEL)
            .branch(MODEL, move |state: &ReactState| after_model.next(state, true))
            .branch(TOOLS, move |state: &ReactState| after_tools.after_tools(state));
        let graph = if has_review {
            graph
                .node_with(
                    REVIEW,
                    move |state: &ReactState, context: &Context| reviews.ask_person(state, context),
                    never,
                )
                .branch(REVIEW, move |state: &ReactState| after_review.next(state, false))
        } else {
            graph
        };
        graph.compile()
    }
}

impl fmt::Debug for ReactAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReactAgent").field("name", &self.name).field("tools", &self.tools).finish_non_exhaustive()
    }
}

impl ReactParts {
    fn is_output(&self, call: &ToolCall) -> bool {
        self.agent.output.as_ref().is_some_and(|output| output.definition.name == call.name)
    }

    /// Asks the model.
    async fn ask(&self, state: &ReactState, context: &Context) -> NodeResult<ReactStateUpdate> {
        let model = if state.react.falls_back { state.react.model } else { 0 };
        if let Some(limit) = self.agent.limits.models
            && state.of_run().0 >= limit
        {
            let text = format!("The run has reached its limit of {limit} requests to the model.");
            return Ok(ended(Message::ai(text)));
        }
        let mut messages = match &state.folded {
            Some(folded) => folded.view(&state.messages),
            None => state.messages.to_vec(),
        };
        let (mut stores, mut folded, mut is_view) = (false, None, true);
        for hook in &self.agent.before {
            match hook(&messages, context)? {
                ModelInput::Unchanged => {}
                ModelInput::Sent(sent) => (messages, is_view) = (sent, false),
                ModelInput::Stored(stored) => (messages, stores, is_view) = (stored, true, false),
                ModelInput::Folded { .. } if !is_view => {
                    return Err("a hook folds messages that another hook has changed: add it before that one".into());
                }
                ModelInput::Folded { count, summary } => {
                    let count = count.min(messages.len());
                    let before = folded.as_ref().or(state.folded.as_ref());
                    folded = Some(FoldedMessages::of_view(&state.messages, before, 0..count, summary.iter().cloned()));
                    messages.splice(..count, summary);
                }
                ModelInput::End(message) => return Ok(ended(message)),
            }
        }
        let prompt = self.agent.prompt.as_deref().map(Message::system);
        let sent = prompt.into_iter().chain(messages.iter().cloned()).collect();
        let call = ChatCall { messages: sent, tools: self.definitions.clone() };
        let asked = &self.agent.models[model.min(self.agent.models.len() - 1)];
        let mut response = match asked.respond(&call).await {
            Ok(response) => response,
            Err(_) if model + 1 < self.agent.models.len() => {
                let progress = ReactProgress { model: model + 1, falls_back: true, ..ReactProgress::default() };
                let update = ReactState::update().react(progress);
                return Ok(if folded.is_some() { update.folded(folded) } else { update });
            }
            Err(error) => return Err(error.into()),
        };
        for hook in &self.agent.after {
            hook(&mut response, context)?;
        }
        if let Some(text) = &self.agent.at_step_limit
            && context.remaining_steps() < 2
            && !response.tool_calls().is_empty()
        {
            let mut message = Message::ai(text.as_str());
            message.id = response.id;
            return Ok(ended(message));
        }
        let (answers, output) = self.answers(&response, state)?;
        let added = std::iter::once(response).chain(answers);
        let update = ReactState::update().structured_response(output).react(ReactProgress::default());
        if stores {
            let update = update.overwrite_messages(messages.into_iter().chain(added).collect::<Vec<_>>());
            return Ok(if state.folded.is_some() { update.folded(None::<FoldedMessages>) } else { update });
        }
        let update = update.messages(added);
        Ok(if folded.is_some() { update.folded(folded) } else { update })
    }

    /// Returns the messages for calls that do not run: of the output tool, and beyond the limits.
    fn answers(&self, response: &Message, state: &ReactState) -> NodeResult<(Vec<Message>, Option<Value>)> {
        let (mut answers, mut output) = (Vec::new(), None);
        let outputs = response.tool_calls().iter().filter(|call| self.is_output(call)).count();
        let mut made = state.of_run().1;
        made.retain(|call| !self.is_output(call));
        for call in response.tool_calls() {
            let Some(format) = self.agent.output.as_ref().filter(|_| self.is_output(call)) else {
                let of_tool = made.iter().filter(|other| other.name == call.name).count();
                let limits = &self.agent.limits;
                let is_beyond = |count: usize, limit: Option<&usize>| limit.is_some_and(|limit| count >= *limit);
                if is_beyond(made.len(), limits.tools.as_ref()) || is_beyond(of_tool, limits.by_tool.get(&call.name)) {
                    let text =
                        "The call did not run: the limit of calls is reached. Make no further call of this tool.";
                    answers.push(error_answer(call, text));
                }
                made.push(call.clone());
                continue;
            };
            let args = Value::Map(call.args.clone());
            let text = if outputs > 1 {
                "The output was returned more than once. Return it by one call.".to_owned()
            } else if let Err(errors) = (format.check)(&args) {
                ToolCallError::new(&call.name, errors).to_string()
            } else {
                output = Some(args);
                "The output was taken.".to_owned()
            };
            answers.push(answer(call, text));
        }
        Ok((answers, output))
    }

    /// Runs the calls that have no answer.
    async fn run(&self, state: Arc<ReactState>, context: &Context) -> NodeResult<ToolReplies> {
        let edits = state.react.edits.clone();
        let edit = |call: &ToolCall| edits.get(call.id.as_deref()?);
        let edited = |mut call: ToolCall| {
            if let Some(edit) = edit(&call) {
                (call.name, call.args) = (edit.name.clone(), edit.args.clone());
            }
            call
        };
        let calls = state.calls().1.into_iter().filter(|call| !self.is_output(call)).map(edited).collect();
        let mut replies = self.tools.run_calls(calls, Some(state.clone()), context).await?;
        for message in replies.messages_mut() {
            let note = message.tool_call_id().and_then(|id| edits.get(id)).map(|edit| edit.note());
            if let Some(note) = note {
                message.content = noted(note, std::mem::take(&mut message.content));
            }
        }
        Ok(replies)
    }

    /// Asks a person about the calls.
    fn ask_person(&self, state: &ReactState, context: &Context) -> NodeResult<ReactStateUpdate> {
        let (_, pending) = state.calls();
        let Some(review) = &self.agent.review else { return Ok(ReactState::update()) };
        let reviewed = review.ask(&pending, context)?;
        let progress = ReactProgress { edits: reviewed.edits.into_iter().collect(), ..ReactProgress::default() };
        Ok(ReactState::update().messages(reviewed.answers).react(progress))
    }

    /// Returns the node after a response, or after its review.
    fn next(&self, state: &ReactState, reviews: bool) -> Target {
        if state.react.falls_back {
            return MODEL.into();
        }
        let (calls, mut pending) = state.calls();
        pending.retain(|call| !self.is_output(call));
        let node = match () {
            () if state.react.is_ended || calls.is_empty() => END,
            () if reviews && self.agent.review.as_ref().is_some_and(|review| review.concerns(&pending)) => REVIEW,
            () if !pending.is_empty() => TOOLS,
            () if state.structured_response.is_some() => END,
            () => MODEL,
        };
        node.into()
    }

    /// Returns the node after the tools.
    fn after_tools(&self, state: &ReactState) -> Target {
        let edits = &state.react.edits;
        let name = |call: &ToolCall| match call.id.as_deref().and_then(|id| edits.get(id)) {
            Some(edit) => edit.name.clone(),
            None => call.name.clone(),
        };
        let names: Vec<String> = state.calls().0.iter().filter(|call| !self.is_output(call)).map(name).collect();
        let is_direct = !names.is_empty() && names.iter().all(|name| self.direct.contains(name));
        if is_direct || state.structured_response.is_some() { END } else { MODEL }.into()
    }
}

/// Ends the run with a message.
fn ended(message: Message) -> ReactStateUpdate {
    let progress = ReactProgress { is_ended: true, ..ReactProgress::default() };
    ReactState::update().messages([message]).structured_response(None::<Value>).react(progress)
}

/// Returns a content after a note.
fn noted(note: String, content: Content) -> Content {
    match content {
        Content::Text(text) => Content::Text(note + &text),
        Content::Blocks(mut blocks) => {
            let text = [("type".to_owned(), "text".into()), ("text".to_owned(), note.into())];
            blocks.insert(0, Value::Map(text.into_iter().collect()));
            Content::Blocks(blocks)
        }
    }
}
