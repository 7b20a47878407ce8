//! The tools as a node of a graph of one's own, and the condition that leads to it.
//!
//! Invariant: each call of the last message gets one message. *Absent:* results that are commands, and the state of the
//! graph as an argument of a tool: a tool gets the context value of the run.

use std::fmt;
use std::sync::Arc;

use annals_base::{IdSource, SystemClock};
use annals_graph::graph::NodeResult;
use annals_graph::prelude::{Context, END, Message, Messages};
use annals_pydantic_ai::{DefaultSource, ModelRequest, ToolArgs, ToolCallPart, to_langchain};

use crate::agent::AgentCore;
use crate::error::AgentError;
use crate::function_model::FunctionModel;
use crate::model::ModelError;
use crate::react::CallBatch;
use crate::shared::RunShared;
use crate::state::AgentProgress;
use crate::tool::AgentTool;

/// The member of a message that holds the data of PydanticAI.
const ENVELOPE: &str = "pydantic_ai";

/// A node that runs the tool calls of the last message (`ToolNode`): at the same time, each as a step that is stored.
///
/// The model is told errors in arguments, unknown tools, [`ModelRetry`](crate::ModelRetry) and
/// [`ToolFailed`](crate::ToolFailed) as messages with the status `error`; other errors fail the node, unless
/// [`tell_errors`](Self::tell_errors) is set. Calls that need an approval or a result from outside interrupt the run
/// with [`DeferredRequests`](crate::DeferredRequests) as the value, and the resume value is
/// [`DeferredResults`](crate::DeferredResults).
///
/// # Example
/// ```
/// use std::sync::Arc;
///
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
/// fn answer(messages: &Messages) -> Message {
///     match messages.last() {
///         Some(last) if last.tool_call_id().is_some() => Message::ai(last.text().into_owned()),
///         _ => Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id("c1")),
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = ToolNode::new([AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city)))]);
/// let graph = StateGraph::<Chat>::new()
///     .node("model", |chat: &Chat| Ok(Chat::update().messages([answer(&chat.messages)])))
///     .node("tools", move |chat: Arc<Chat>, context: Context| {
///         let tools = tools.clone();
///         async move { Ok(Chat::update().messages(tools.run(&chat.messages, &context).await?)) }
///     })
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
    core: Arc<AgentCore>,
    tells_errors: bool,
}

impl ToolNode {
    /// Returns a node of tools.
    pub fn new(tools: impl IntoIterator<Item = AgentTool>) -> Self {
        let mut core = AgentCore::new(FunctionModel::new(|_| Err(ModelError::fatal("a tool node has no model"))));
        core.tools = tools.into_iter().map(Arc::new).collect();
        // The graph decides how often the model is asked.
        core.tool_retries = i64::MAX;
        Self { core: Arc::new(core), tells_errors: false }
    }

    /// Tells the model each error of a tool, in place of failing the node.
    #[must_use]
    pub fn tell_errors(mut self) -> Self {
        self.tells_errors = true;
        self
    }

    /// Runs the calls of the last message and returns the messages with their results, in the order of the calls.
    ///
    /// # Errors
    /// [`AgentError`] if the list of messages is empty, if tools contradict each other, or if a tool fails. A call that
    /// waits returns its interrupt, which the node passes on with `?`.
    pub async fn run(&self, messages: &Messages, context: &Context) -> NodeResult<Vec<Message>> {
        if let Some(problem) = self.core.problem() {
            return Err(AgentError::input(problem).into());
        }
        let last = messages.last().ok_or_else(|| AgentError::input("there is no message with tool calls"))?;
        let mut ids = IdSource::new();
        let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
        let call = |call: &annals_messages::ToolCall| {
            let mut part = ToolCallPart::new(&call.name, ToolArgs::Object(call.args.clone()), &mut defaults);
            if let Some(id) = &call.id {
                part.tool_call_id.clone_from(id);
            }
            part
        };
        let calls: Vec<ToolCallPart> = last.tool_calls().iter().map(call).collect();
        let shared = RunShared::new(Arc::clone(&self.core.clock));
        let mut progress = AgentProgress::default();
        let mut batch = CallBatch::new(&self.core, &shared, context, &mut progress, &[], calls);
        batch.tells_errors = self.tells_errors;
        batch.run().await?;
        let (mut parts, beside) = batch.parts();
        parts.extend(beside);
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let mut messages = to_langchain(&[ModelRequest::new(parts).into()], false)?;
        for message in &mut messages {
            message.additional_kwargs.shift_remove(ENVELOPE);
        }
        Ok(messages)
    }
}

impl fmt::Debug for ToolNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolNode").field("tools", &self.core.tools).finish_non_exhaustive()
    }
}

/// Returns the node `tools` if the last message calls tools, else the end (`tools_condition`).
pub fn tools_condition(messages: &Messages) -> &'static str {
    match messages.last() {
        Some(last) if !last.tool_calls().is_empty() => "tools",
        _ => END,
    }
}
