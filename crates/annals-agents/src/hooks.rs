//! Functions around the model and the tools of an agent, and the models that stand in for one that fails.
//!
//! Invariant: what a hook changes after a model or a tool is what is stored. *Absent:* changes of the history, which
//! history processors make, and limits on usage.

use std::sync::Arc;

use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{ModelResponse, ToolReturnPart};

use crate::agent::Agent;
use crate::error::{AgentError, AgentErrorKind};
use crate::model::{Model, ModelCall};
use crate::shared::RunInfo;

type BeforeRequest = Arc<dyn Fn(&mut ModelCall, &RunInfo<'_>) -> NodeResult<()> + Send + Sync>;
type AfterResponse = Arc<dyn Fn(&mut ModelResponse, &RunInfo<'_>) -> NodeResult<()> + Send + Sync>;
type AfterTool = Arc<dyn Fn(&mut ToolReturnPart, &RunInfo<'_>) + Send + Sync>;

/// The hooks of an agent.
#[derive(Clone, Default)]
pub(crate) struct AgentHooks {
    before_model: Vec<BeforeRequest>,
    after_model: Vec<AfterResponse>,
    after_tool: Vec<AfterTool>,
    /// The models that are asked in turn if the one before failed.
    pub(crate) fallbacks: Vec<Arc<dyn Model>>,
    /// The names of the tools whose calls wait for an approval.
    pub(crate) approvals: Vec<String>,
}

impl AgentHooks {
    pub(crate) fn before_model(&self, call: &mut ModelCall, info: &RunInfo<'_>) -> Result<(), AgentError> {
        self.before_model.iter().try_for_each(|hook| hook(call, info)).map_err(failed)
    }

    pub(crate) fn after_model(&self, response: &mut ModelResponse, info: &RunInfo<'_>) -> Result<(), AgentError> {
        self.after_model.iter().try_for_each(|hook| hook(response, info)).map_err(failed)
    }

    pub(crate) fn after_tool(&self, part: &mut ToolReturnPart, info: &RunInfo<'_>) {
        self.after_tool.iter().for_each(|hook| hook(part, info));
    }
}

fn failed(error: annals_graph::graph::BoxError) -> AgentError {
    let message = format!("a hook around the model failed: {error}");
    AgentError::with_source(AgentErrorKind::Function, message, error.into())
}

impl<O> Agent<O> {
    /// Calls a function before each request to the model. What it changes is sent and not stored.
    ///
    /// # Example: the model does not see a tool once it has used it
    /// ```
    /// use annals_agents::{Agent, AgentTool, ScriptedResponse, TestModel};
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Empty {}
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let model = TestModel::script([ScriptedResponse::call("look", json!({})), "Seen.".into()]);
    /// let agent = Agent::new(model).tool(AgentTool::new("look", |_: Empty| Ok("a cat"))).before_model(|call, info| {
    ///     if info.usage.tool_calls > 0 {
    ///         call.tools.clear();
    ///     }
    ///     Ok(())
    /// });
    /// assert_eq!(agent.run("Look").invoke()?.output, "Seen.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn before_model(
        self,
        hook: impl Fn(&mut ModelCall, &RunInfo<'_>) -> NodeResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.set(|core| core.hooks.before_model.push(Arc::new(hook)))
    }

    /// Calls a function with each response. What it changes is what is stored, and what its calls and its output are
    /// read from. The reader of a stream sees the response as it came.
    ///
    /// # Example: redact a name
    /// ```
    /// use annals_agents::{Agent, TestModel};
    /// use annals_pydantic_ai::ResponsePart;
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let agent = Agent::new(TestModel::script(["Anna has called."])).after_model(|response, _| {
    ///     for part in &mut response.parts {
    ///         if let ResponsePart::Text(part) = part {
    ///             part.content = part.content.replace("Anna", "(name)");
    ///         }
    ///     }
    ///     Ok(())
    /// });
    /// assert_eq!(agent.run("Who?").invoke()?.output, "(name) has called.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after_model(
        self,
        hook: impl Fn(&mut ModelResponse, &RunInfo<'_>) -> NodeResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.set(|core| core.hooks.after_model.push(Arc::new(hook)))
    }

    /// Calls a function with each result of a tool, before it is among the messages. It runs again if the step does.
    ///
    /// # Example: redact a number
    /// ```
    /// use annals_agents::{Agent, AgentTool, ScriptedResponse, TestModel};
    /// use annals_pydantic_ai::ToolContent;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Empty {}
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let model = TestModel::script([ScriptedResponse::call("pin", json!({})), "Done.".into()]);
    /// let agent = Agent::new(model).tool(AgentTool::new("pin", |_: Empty| Ok("4711"))).after_tool(|part, _| {
    ///     part.content = ToolContent::text("(redacted)");
    /// });
    /// assert!(!agent.run("The pin?").invoke()?.all_messages_json().contains("4711"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after_tool(self, hook: impl Fn(&mut ToolReturnPart, &RunInfo<'_>) + Send + Sync + 'static) -> Self {
        self.set(|core| core.hooks.after_tool.push(Arc::new(hook)))
    }

    /// Lets the calls of tools wait for an approval by the names of the tools, as
    /// [`requires_approval`](crate::AgentTool::requires_approval) does for a tool.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, AgentTool, DeferredResults, ScriptedResponse, TestModel};
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Empty {}
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let model = TestModel::script([ScriptedResponse::call("wipe", json!({})), "Done.".into()]);
    /// let agent = Agent::new(model).tool(AgentTool::new("wipe", |_: Empty| Ok("empty"))).approve_tools(["wipe"]);
    /// let waiting = agent.run("Clean up").outcome()?.waiting().expect("it asks");
    /// let decision = DeferredResults::new().approve(&waiting.requests.approvals[0].tool_call_id);
    /// assert_eq!(agent.resume_with(&waiting.thread, decision).invoke()?.output, "Done.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn approve_tools(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set(|core| core.hooks.approvals.extend(names.into_iter().map(Into::into)))
    }

    /// Adds a model that is asked if all models before it failed, also with a transient error. The failure is stored:
    /// a run that is resumed does not ask the failed model again. The next request asks the first model.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, FunctionModel, ModelError, TestModel};
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let broken = FunctionModel::new(|_| Err(ModelError::fatal("out of order")));
    /// let agent = Agent::new(broken).fallback(TestModel::script(["Hello."]).with_name("small"));
    /// let result = agent.run("Hi").invoke()?;
    /// assert_eq!(result.output, "Hello.");
    /// assert!(result.all_messages_json().contains("\"model_name\":\"small\""));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fallback(self, model: impl Model) -> Self {
        self.set(|core| core.hooks.fallbacks.push(Arc::new(model)))
    }
}
