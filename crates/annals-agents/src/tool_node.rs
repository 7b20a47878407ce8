//! The tools as a node of a graph of one's own, and the conditions that lead to it.
//!
//! Invariant: each call gets one message that answers it, in the order of the calls; a call that has ended is stored,
//! and does not run again if the node does. *Absent:* the model.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use annals_base::{Map, Value};
use annals_graph::RunError;
use annals_graph::annals::state::Output;
use annals_graph::graph::{BoxError, IntoNode, IntoOutput, NodeBody, NodeResult, Own};
use annals_graph::prelude::{Command, Context, DynUpdate, END, Message, Messages, SendTo};
use annals_messages::{Role, ToolCall};

use crate::deferred::{CallDecision, CallWait, REFUSED, ask_decisions};
use crate::error::AgentError;
use crate::tool::{AgentTool, ToolInput, ToolState, unknown_tool};
use crate::tool_command::ToolReply;
use crate::tool_errors::{ToolCallError, ToolErrors};
use crate::tool_rules::{NodeToolEnd, ToolRules, answer, content_of, error_answer};

/// A node that runs the tool calls of a message (`ToolNode`): at the same time, each as a step that is stored.
///
/// The calls are those of the last message of a model. Their results are messages, in the order of the calls; a tool
/// can also return a [`ToolCommand`](crate::ToolCommand), or messages of its own ([`ToolOutput::replies`]). The model
/// is told unknown tools, [`ModelRetry`](crate::ModelRetry), [`ToolFailed`](crate::ToolFailed) and the errors that
/// [`errors`](Self::errors) names as messages with the status `error`; other errors fail the node. A tool reads the
/// state ([`ToolContext::state`](crate::ToolContext::state)), the key-value memory and the context value of the run.
/// Calls that need an approval or a result from outside interrupt the run with
/// [`DeferredRequests`](crate::DeferredRequests) as the value, and the resume value is
/// [`DeferredResults`](crate::DeferredResults).
///
/// [`ToolOutput::replies`]: crate::ToolOutput::replies
///
/// # Example
/// ```
/// use annals_agents::{AgentTool, ToolNode, tools_condition};
/// use annals_graph::prelude::*;
/// use annals_messages::ToolCall;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City {
///     city: String,
/// }
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
/// }
///
/// /// Stands in for a request to a model.
/// fn respond(messages: &Messages) -> Message {
///     match messages.last() {
///         Some(last) if last.tool_call_id().is_some() => Message::ai(last.text().into_owned()),
///         _ => Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id("c1")),
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = ToolNode::new([AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city)))]);
/// let graph = StateGraph::<Chat>::new()
///     .node("model", |chat: &Chat| Ok(Chat::update().messages([respond(&chat.messages)])))
///     .node("tools", tools.on(|chat: &Chat| &chat.messages))
///     .edge(START, "model")
///     .branch("model", |chat: &Chat| tools_condition(&chat.messages))
///     .edge("tools", "model")
///     .compile()?;
/// let done = graph.invoke((), Chat::update().messages([Message::human("The weather?")]))?;
/// let texts: Vec<String> = done.state().messages.iter().skip(2).map(ToString::to_string).collect();
/// assert_eq!(texts, ["tool (weather): rain in Bern", "ai: rain in Bern"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ToolNode {
    tools: Arc<[Arc<AgentTool>]>,
    rules: Arc<ToolRules>,
    hooks: Arc<CallHooks>,
}

/// The functions around a call.
#[derive(Clone, Default)]
struct CallHooks {
    before: Vec<BeforeCall>,
    after: Vec<AfterCall>,
}

type BeforeCall = Arc<dyn Fn(&mut ToolCall, &Context) -> NodeResult<Option<Message>> + Send + Sync>;
type AfterCall = Arc<dyn Fn(&ToolCall, &mut Message) + Send + Sync>;

/// The calls of a node, with their results so far.
struct NodeCalls {
    calls: Vec<ToolCall>,
    results: Vec<Option<Vec<ToolReply>>>,
    waits: BTreeMap<usize, CallWait>,
}

/// A call that runs: its index, its tool, its arguments, and whether a person has approved it.
type DueCall = (usize, Arc<AgentTool>, Map, bool);

impl ToolNode {
    /// Returns a node of tools.
    pub fn new(tools: impl IntoIterator<Item = AgentTool>) -> Self {
        let tools = tools.into_iter().map(Arc::new).collect();
        Self { tools, rules: Arc::new(ToolRules::default()), hooks: Arc::default() }
    }

    /// Returns the node with other tools.
    pub(crate) fn with_tools(self, tools: Vec<AgentTool>) -> Self {
        Self { tools: tools.into_iter().map(Arc::new).collect(), ..self }
    }

    /// Sets the errors that the model is told. Default: [`ToolErrors::arguments`].
    #[must_use]
    pub fn errors(mut self, errors: ToolErrors) -> Self {
        Arc::make_mut(&mut self.rules).errors = errors;
        self
    }

    /// Sets the channel of the messages (`messages_key`). Default: `messages`.
    #[must_use]
    pub fn channel(mut self, name: impl Into<Arc<str>>) -> Self {
        Arc::make_mut(&mut self.rules).channel = name.into();
        self
    }

    /// Calls a function before each call. It can change the call, or answer it in place of the tool. It runs again if
    /// the node does.
    #[must_use]
    pub fn before_call(
        mut self,
        hook: impl Fn(&mut ToolCall, &Context) -> NodeResult<Option<Message>> + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.hooks).before.push(Arc::new(hook));
        self
    }

    /// Calls a function with each message of a tool, which it can change.
    ///
    /// # Example: redact a number
    /// ```
    /// use annals_agents::ToolNode;
    ///
    /// let node = ToolNode::new([]).after_call(|_, message| {
    ///     message.content = message.text().replace("4711", "(redacted)").into();
    /// });
    /// # let _ = node;
    /// ```
    #[must_use]
    pub fn after_call(mut self, hook: impl Fn(&ToolCall, &mut Message) + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.hooks).after.push(Arc::new(hook));
        self
    }

    /// Returns the node of a graph with state `S`, whose messages `messages` returns.
    pub fn on<S>(self, messages: impl for<'a> Fn(&'a S) -> &'a Messages + Send + Sync + 'static) -> ToolsOn<S> {
        ToolsOn { node: self, messages: Arc::new(messages) }
    }

    /// Returns the node for single calls, which [`send_tool_calls`] sends to it.
    ///
    /// # Example: each call is a task of the graph
    /// ```
    /// use annals_agents::{AgentTool, ToolContext, ToolNode, send_tool_calls};
    /// use annals_graph::prelude::*;
    /// use annals_messages::ToolCall;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     city: String,
    /// }
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat {
    ///     #[channel(messages)]
    ///     messages: Messages,
    ///     unit: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let weather = AgentTool::new("weather", |city: City, context: &ToolContext| {
    ///     let state = context.state::<Value>().ok_or("the state is sent")?;
    ///     Ok(format!("20 {} in {}", state["unit"], city.city))
    /// });
    /// let graph = StateGraph::<Chat>::new()
    ///     .node("tools", ToolNode::new([weather]).sent())
    ///     .branch(START, |chat: &Chat| {
    ///         let state = Value::Map([("unit".to_owned(), chat.unit.as_str().into())].into_iter().collect());
    ///         send_tool_calls("tools", &chat.messages, &state)
    ///     })
    ///     .compile()?;
    /// let call = |city| ToolCall::new("weather", [("city", city)]).with_id(city);
    /// let message = Message::ai("").with_tool_call(call("Bern")).with_tool_call(call("Rome"));
    /// let done = graph.invoke((), Chat::update().messages([message]).unit("degrees"))?;
    /// let texts: Vec<_> = done.state().messages.iter().skip(1).map(|message| message.text()).collect();
    /// assert_eq!(texts, ["20 degrees in Bern", "20 degrees in Rome"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sent(self) -> SentTools {
        SentTools(self)
    }

    /// Runs the calls of the last message of a model, for a node of one's own.
    ///
    /// # Errors
    /// [`AgentError`] if the list lacks a message of a model, or if two tools have one name; the error of a tool that
    /// the model is not told. A call that waits returns its interrupt, which the node passes on with `?`.
    pub async fn run(&self, messages: &Messages, context: &Context) -> NodeResult<ToolReplies> {
        self.run_last(messages, None, context).await
    }

    async fn run_last(
        &self,
        messages: &Messages,
        state: Option<ToolState>,
        context: &Context,
    ) -> NodeResult<ToolReplies> {
        let of_model = |message: &&Message| matches!(message.role, Role::Ai(_));
        let last = messages.iter().rev().find(of_model);
        let last = last.ok_or_else(|| AgentError::input("there is no message of a model with tool calls"))?;
        self.run_calls(last.tool_calls().to_vec(), state, context).await
    }

    /// Runs calls with the state that their tools read.
    pub(crate) async fn run_calls(
        &self,
        calls: Vec<ToolCall>,
        state: Option<ToolState>,
        context: &Context,
    ) -> NodeResult<ToolReplies> {
        if let Some(problem) = self.problem() {
            return Err(AgentError::input(problem).into());
        }
        let results = calls.iter().map(|_| None).collect();
        let mut batch = NodeCalls { calls, results, waits: BTreeMap::new() };
        let mut due = Vec::new();
        for at in 0..batch.calls.len() {
            due.extend(self.begin(at, &mut batch, context)?);
        }
        self.call(due, &mut batch, state.as_ref(), context).await?;
        while !batch.waits.is_empty() {
            let due = self.decide(&mut batch, context)?;
            self.call(due, &mut batch, state.as_ref(), context).await?;
        }
        let mut replies = Vec::new();
        for (call, result) in batch.calls.iter().zip(batch.results) {
            for mut reply in result.unwrap_or_default() {
                for message in reply.messages_mut() {
                    self.hooks.after.iter().for_each(|hook| hook(call, message));
                }
                replies.push(reply);
            }
        }
        Ok(ToolReplies { channel: Arc::clone(&self.rules.channel), replies })
    }

    fn tool(&self, name: &str) -> Option<&Arc<AgentTool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// Returns the reason for which the node cannot run.
    fn problem(&self) -> Option<String> {
        let twice = self
            .tools
            .iter()
            .enumerate()
            .find(|(at, tool)| self.tools[..*at].iter().any(|other| other.name() == tool.name()));
        let twice = twice.map(|(_, tool)| format!("the node has two tools with the name {:?}", tool.name()));
        twice.or_else(|| self.tools.iter().find_map(|tool| tool.problem()))
    }

    /// Begins a call: returns it if it runs now, else sets its result or what it waits for.
    fn begin(&self, at: usize, batch: &mut NodeCalls, context: &Context) -> NodeResult<Option<DueCall>> {
        let call = &mut batch.calls[at];
        for hook in &self.hooks.before {
            if let Some(message) = hook(call, context)? {
                batch.results[at] = Some(vec![message.into()]);
                return Ok(None);
            }
        }
        let Some(tool) = self.tool(&call.name).cloned() else {
            let text = unknown_tool(&call.name, &self.tools);
            batch.results[at] = Some(vec![error_answer(call, text).into()]);
            return Ok(None);
        };
        if !self.accepts(&tool, &call.args, call, &mut batch.results[at])? {
            return Ok(None);
        }
        let wait = match (tool.is_external(), tool.needs_approval) {
            (true, _) => CallWait::Result(Value::Null),
            (_, true) => CallWait::Approval(Value::Null),
            _ => return Ok(Some((at, tool, call.args.clone(), false))),
        };
        batch.waits.insert(at, wait);
        Ok(None)
    }

    /// Checks arguments. Returns false, and sets the result, if they do not fit and the model is told so.
    fn accepts(
        &self,
        tool: &AgentTool,
        args: &Map,
        call: &ToolCall,
        result: &mut Option<Vec<ToolReply>>,
    ) -> NodeResult<bool> {
        let Err(errors) = tool.check(&Value::Map(args.clone())) else { return Ok(true) };
        let error: BoxError = ToolCallError::new(&call.name, errors).into();
        let text = self.rules.errors.tell(&error).ok_or(error)?;
        *result = Some(vec![error_answer(call, text).into()]);
        Ok(false)
    }

    /// Runs calls, at the same time unless one of them is sequential.
    async fn call(
        &self,
        due: Vec<DueCall>,
        batch: &mut NodeCalls,
        state: Option<&ToolState>,
        context: &Context,
    ) -> NodeResult<()> {
        let one_by_one = due.iter().any(|(_, tool, ..)| tool.is_sequential);
        // A single call: its step is stored before another call ends or a person is asked.
        let is_alone = due.len() == 1 && batch.waits.is_empty();
        let mut started = Vec::new();
        for (at, tool, args, approved) in due {
            let tool_call_id = batch.calls[at].id.clone().unwrap_or_default();
            let input = ToolInput { tool_call_id, args: Value::Map(args), retry: 0, max_retries: 0, approved };
            let rules = Arc::clone(&self.rules);
            let end = move |result, context: &crate::ToolContext| rules.end(result, context);
            let Some(call) = tool.start(context, input, state.cloned(), is_alone, end) else { continue };
            if one_by_one {
                self.ended(at, call.await, batch)?;
            } else {
                started.push((at, call));
            }
        }
        // All calls end before the first error is returned: their results are stored.
        let mut first_error = None;
        for (at, call) in started {
            if let Err(error) = self.ended(at, call.await, batch) {
                first_error = first_error.or(Some(error));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Takes the end of a call.
    fn ended(&self, at: usize, end: NodeResult<NodeToolEnd>, batch: &mut NodeCalls) -> NodeResult<()> {
        batch.waits.remove(&at);
        let timed_out = |error: &BoxError| matches!(error.downcast_ref(), Some(RunError::NodeTimeout { .. }));
        batch.results[at] = Some(match end {
            Ok(NodeToolEnd::Replied(replies)) => replies.iter().map(ToolReply::of_value).collect::<NodeResult<_>>()?,
            Ok(NodeToolEnd::NeedsApproval(metadata)) => {
                batch.waits.insert(at, CallWait::Approval(metadata));
                return Ok(());
            }
            Ok(NodeToolEnd::Deferred(metadata)) => {
                batch.waits.insert(at, CallWait::Result(metadata));
                return Ok(());
            }
            Err(error) if timed_out(&error) => {
                let text = self.rules.errors.tell(&error).ok_or(error)?;
                vec![error_answer(&batch.calls[at], text).into()]
            }
            Err(error) => return Err(error),
        });
        Ok(())
    }

    /// Interrupts the run until there are decisions, and returns the calls that run by them.
    fn decide(&self, batch: &mut NodeCalls, context: &Context) -> NodeResult<Vec<DueCall>> {
        let id = |call: &ToolCall| call.id.clone().unwrap_or_default();
        let waiting = batch.waits.iter().map(|(at, wait)| {
            let call = &batch.calls[*at];
            (call.name.as_str(), call.id.as_deref().unwrap_or_default(), call.args.clone(), wait)
        });
        let decisions = ask_decisions(context, waiting)?;
        let mut due = Vec::new();
        for at in batch.waits.keys().copied().collect::<Vec<_>>() {
            let call = &batch.calls[at];
            let Some(decision) = decisions.get(&id(call)) else { continue };
            let message = match decision {
                CallDecision::Approve(args) => {
                    let args = args.clone().unwrap_or_else(|| call.args.clone());
                    let Some(tool) = self.tool(&call.name).cloned() else { continue };
                    match self.accepts(&tool, &args, call, &mut batch.results[at])? {
                        true => due.push((at, tool, args, true)),
                        false => _ = batch.waits.remove(&at),
                    }
                    continue;
                }
                CallDecision::Result(value) => answer(call, content_of(value.clone())),
                CallDecision::Refuse(message) if message.is_empty() => error_answer(call, REFUSED),
                CallDecision::Refuse(text) | CallDecision::Retry(text) | CallDecision::Fail(text) => {
                    error_answer(call, text.as_str())
                }
            };
            batch.results[at] = Some(vec![message.into()]);
            batch.waits.remove(&at);
        }
        Ok(due)
    }
}

impl fmt::Debug for ToolNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolNode").field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// The messages and commands of a [`ToolNode`]: the output of a node of any graph.
///
/// Commands that only send tasks to the parent graph are one command, at the end.
#[derive(Clone, Debug)]
pub struct ToolReplies {
    channel: Arc<str>,
    replies: Vec<ToolReply>,
}

impl ToolReplies {
    /// Returns the messages and commands, in the order of the calls.
    pub fn replies(&self) -> &[ToolReply] {
        &self.replies
    }

    /// Returns the messages, also those of commands.
    pub(crate) fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        self.replies.iter_mut().flat_map(ToolReply::messages_mut)
    }

    /// Returns the messages.
    ///
    /// # Errors
    /// The replies as they are if a tool returned a command.
    pub fn into_messages(self) -> Result<Vec<Message>, Self> {
        if self.replies.iter().any(|reply| matches!(reply, ToolReply::Command(_))) {
            return Err(self);
        }
        let message = |reply| match reply {
            ToolReply::Message(message) => Some(*message),
            ToolReply::Command(_) => None,
        };
        Ok(self.replies.into_iter().filter_map(message).collect())
    }
}

impl<S> IntoOutput<S> for ToolReplies {
    fn into_output(self) -> Output {
        let channel = &*self.channel;
        let update = |messages: Vec<Message>| DynUpdate::new().messages(channel, messages);
        let (mut outputs, mut messages, mut to_parent) = (Vec::new(), Vec::new(), None::<Command>);
        for reply in self.replies {
            match reply {
                ToolReply::Message(message) => messages.push(*message),
                ToolReply::Command(command) if command.only_sends_to_parent() => {
                    let whole = to_parent.take().unwrap_or_else(|| Command::new().to_parent());
                    to_parent = Some(command.goto.into_iter().fold(whole, Command::and_goto));
                }
                ToolReply::Command(command) => {
                    if !messages.is_empty() {
                        let written = update(std::mem::take(&mut messages));
                        outputs.push(IntoOutput::<S>::into_output(written));
                    }
                    outputs.push(IntoOutput::<S>::into_output(command.into_command(channel)));
                }
            }
        }
        if !messages.is_empty() {
            outputs.push(IntoOutput::<S>::into_output(update(messages)));
        }
        outputs.extend(to_parent.map(IntoOutput::<S>::into_output));
        outputs.into_iter().collect()
    }
}

/// A [`ToolNode`] as a node of a graph with state `S`: see [`ToolNode::on`].
pub struct ToolsOn<S> {
    node: ToolNode,
    messages: Arc<dyn for<'a> Fn(&'a S) -> &'a Messages + Send + Sync>,
}

impl<S> fmt::Debug for ToolsOn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

#[doc(hidden)]
pub struct TakesTools;

impl<S: Send + Sync + 'static> IntoNode<S, TakesTools> for ToolsOn<S> {
    fn into_node(self) -> NodeBody {
        let run = move |state: Arc<S>, context: Context| {
            let (node, messages) = (self.node.clone(), (self.messages)(&state).clone());
            async move { node.run_last(&messages, Some(state), &context).await }
        };
        IntoNode::<S, _>::into_node(run)
    }
}

/// A [`ToolNode`] as the node of single calls: see [`ToolNode::sent`].
#[derive(Debug)]
pub struct SentTools(ToolNode);

impl<S: 'static> IntoNode<S, TakesTools> for SentTools {
    fn into_node(self) -> NodeBody {
        let run = move |sent: Value, context: Context| {
            let node = self.0.clone();
            async move {
                let (call, state) = (sent.get("tool_call"), sent.get("state"));
                let call = call.ok_or_else(|| AgentError::input("the argument has no member \"tool_call\""))?;
                let call = ToolCall::try_from(call.clone())?;
                let state = Arc::new(state.cloned().unwrap_or_default()) as Arc<dyn Any + Send + Sync>;
                node.run_calls(vec![call], Some(state), &context).await
            }
        };
        IntoNode::<S, _>::into_node(Own(run))
    }
}

/// Returns a task of the node for each call of the last message, for [`ToolNode::sent`]. The tools read `state`, which
/// is stored with each task; it can be null.
pub fn send_tool_calls(node: &str, messages: &Messages, state: &Value) -> Vec<SendTo> {
    let calls = messages.last().map(|last| last.tool_calls().to_vec()).unwrap_or_default();
    calls.iter().map(|call| send_tool_call(node, call, state)).collect()
}

/// Returns the task of a call.
pub(crate) fn send_tool_call(node: &str, call: &ToolCall, state: &Value) -> SendTo {
    let call = Map::from_iter([
        ("name".to_owned(), call.name.as_str().into()),
        ("args".to_owned(), Value::Map(call.args.clone())),
        ("id".to_owned(), call.id.as_deref().map_or(Value::Null, Value::from)),
        ("type".to_owned(), "tool_call".into()),
    ]);
    let arg = [("tool_call".to_owned(), Value::Map(call)), ("state".to_owned(), state.clone())];
    SendTo::new(node, Value::Map(Map::from_iter(arg)))
}

/// Returns the node `tools` if the last message calls tools, else the end (`tools_condition`).
pub fn tools_condition(messages: &Messages) -> &'static str {
    match messages.last() {
        Some(last) if !last.tool_calls().is_empty() => "tools",
        _ => END,
    }
}
