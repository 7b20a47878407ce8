//! The review of tool calls by a person, before any of them runs, in the format of LangChain's agents.
//!
//! Invariant: the response of the model is stored before the person is asked. *Absent:* running the calls.

use annals_base::{Map, Value};
use annals_graph::graph::NodeResult;
use annals_graph::prelude::Context;
use annals_graph::prelude::Message;
use annals_messages::ToolCall;
use serde::{Deserialize, Serialize};

use crate::error::AgentError;
use crate::tool_rules::{answer, error_answer};

/// A decision that a person can take about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReviewDecision {
    /// The call runs (`approve`).
    Approve,
    /// Another call runs in its place (`edit`, with `edited_action`).
    Edit,
    /// The call does not run, and the model is told so (`reject`, with a `message`).
    Reject,
    /// The person answers in place of the tool (`respond`, with a `message`).
    Respond,
}

impl ReviewDecision {
    const ALL: [Self; 4] = [Self::Approve, Self::Edit, Self::Reject, Self::Respond];

    fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Edit => "edit",
            Self::Reject => "reject",
            Self::Respond => "respond",
        }
    }
}

/// The tools whose calls a person reviews (`HumanInTheLoopMiddleware`).
///
/// The run waits with one interrupt for all such calls of a response. Its value has `action_requests` (each with the
/// `name`, the `args` and a `description`) and `review_configs`; the resume value has `decisions`, one for each call in
/// their order: `{"type": "approve"}`, `{"type": "edit", "edited_action": {"name": .., "args": ..}}`, `{"type":
/// "reject", "message": ..}` or `{"type": "respond", "message": ..}`.
///
/// # Example
/// ```
/// use annals_agents::{AgentTool, ChatCall, ReactAgent, ReactState, ToolReview};
/// use annals_graph::prelude::*;
/// use annals_messages::ToolCall;
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct File {
///     path: String,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = |call: &ChatCall| Ok(match call.messages.last() {
///     Some(last) if last.tool_call_id().is_some() => Message::ai("Done."),
///     _ => Message::ai("").with_tool_call(ToolCall::new("delete", [("path", "notes.md")]).with_id("c1")),
/// });
/// let agent = ReactAgent::new(model)
///     .tool(AgentTool::new("delete", |file: File| Ok(format!("{} is deleted", file.path))))
///     .review(ToolReview::new().tool("delete"))
///     .compile()?;
/// let thread = Store::memory().thread("cleaning")?;
/// let waiting = agent.invoke(&thread, ReactState::update().messages([Message::human("Clean up")]))?;
/// let shown = waiting.interrupts()[0].value.to_json();
/// assert_eq!(shown["action_requests"][0]["args"]["path"], "notes.md");
///
/// let edit = json!({"type": "edit", "edited_action": {"name": "delete", "args": {"path": "draft.md"}}});
/// let done = agent.invoke(&thread, Command::resume(Value::from(json!({"decisions": [edit]}))))?;
/// assert!(done.state().messages[2].text().ends_with("draft.md is deleted"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolReview {
    tools: Vec<(String, Vec<ReviewDecision>)>,
}

/// A call that a person put in place of another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EditedCall {
    pub(crate) name: String,
    pub(crate) args: Map,
}

impl EditedCall {
    /// Returns the note for the model before the result of the call.
    pub(crate) fn note(&self) -> String {
        let args = Value::Map(self.args.clone());
        format!("A person has changed this call. The call that ran: {} with {args}. Its result:\n", self.name)
    }
}

/// The result of a review.
#[derive(Default)]
pub(crate) struct Reviewed {
    /// The answers to the calls that do not run.
    pub(crate) answers: Vec<Message>,
    /// The edited calls, by the ids of those they replace.
    pub(crate) edits: Vec<(String, EditedCall)>,
}

impl ToolReview {
    /// Returns a review of no tool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool; all decisions are allowed.
    #[must_use]
    pub fn tool(self, name: impl Into<String>) -> Self {
        self.tool_with(name, ReviewDecision::ALL)
    }

    /// Adds a tool with the decisions that are allowed.
    #[must_use]
    pub fn tool_with(mut self, name: impl Into<String>, allowed: impl IntoIterator<Item = ReviewDecision>) -> Self {
        self.tools.push((name.into(), allowed.into_iter().collect()));
        self
    }

    fn allowed(&self, call: &ToolCall) -> Option<&[ReviewDecision]> {
        self.tools.iter().find(|(name, _)| *name == call.name).map(|(_, allowed)| &allowed[..])
    }

    /// Returns whether a person reviews one of the calls.
    pub(crate) fn concerns(&self, calls: &[ToolCall]) -> bool {
        calls.iter().any(|call| self.allowed(call).is_some())
    }

    /// Interrupts the run for the calls that a person reviews, and returns what comes of the decisions.
    ///
    /// # Errors
    /// [`AgentError`] if a decision is missing, or is not allowed for its tool.
    pub(crate) fn ask(&self, calls: &[ToolCall], context: &Context) -> NodeResult<Reviewed> {
        let reviewed: Vec<_> = calls.iter().filter_map(|call| Some((call, self.allowed(call)?))).collect();
        let given = context.interrupt(request(&reviewed))?;
        let decisions = given.get("decisions").and_then(Value::as_list).unwrap_or_default();
        if decisions.len() != reviewed.len() {
            let message = format!("{} decisions were given for {} calls", decisions.len(), reviewed.len());
            return Err(AgentError::input(message).into());
        }
        let mut result = Reviewed::default();
        for ((call, allowed), decision) in reviewed.into_iter().zip(decisions) {
            let kind = decision.get("type").and_then(Value::as_str).unwrap_or_default();
            let Some(known) = allowed.iter().find(|known| known.name() == kind) else {
                let names: Vec<&str> = allowed.iter().map(|known| known.name()).collect();
                let message = format!("decision {kind:?} about tool {:?} is none of: {}", call.name, names.join(", "));
                return Err(AgentError::input(message).into());
            };
            let message = decision.get("message").and_then(Value::as_str).unwrap_or_default();
            match known {
                ReviewDecision::Approve => {}
                ReviewDecision::Edit => {
                    let action = decision.get("edited_action").map(Value::to::<EditedCall>);
                    let edited = action.transpose()?.ok_or_else(|| {
                        AgentError::input(format!("the edit of a call of {:?} has no \"edited_action\"", call.name))
                    })?;
                    result.edits.push((call.id.clone().unwrap_or_default(), edited));
                }
                ReviewDecision::Reject if message.is_empty() => {
                    let text =
                        "A person has rejected the call: it did not run. Call the tool again only if you are asked to.";
                    result.answers.push(error_answer(call, text));
                }
                ReviewDecision::Reject => {
                    result.answers.push(error_answer(call, format!("A person has rejected the call: {message}")));
                }
                ReviewDecision::Respond => result.answers.push(answer(call, message)),
            }
        }
        Ok(result)
    }
}

/// Returns the value of the interrupt.
fn request(reviewed: &[(&ToolCall, &[ReviewDecision])]) -> Value {
    let action = |(call, _): &(&ToolCall, &[ReviewDecision])| {
        let args = Value::Map(call.args.clone());
        let description = format!("A call of tool {} waits for a decision.\nArguments: {args}", call.name);
        Value::Map(Map::from_iter([
            ("name".to_owned(), call.name.as_str().into()),
            ("args".to_owned(), args),
            ("description".to_owned(), description.into()),
        ]))
    };
    let config = |(call, allowed): &(&ToolCall, &[ReviewDecision])| {
        let names = allowed.iter().map(|known| known.name().into()).collect();
        Value::Map(Map::from_iter([
            ("action_name".to_owned(), call.name.as_str().into()),
            ("allowed_decisions".to_owned(), Value::List(names)),
        ]))
    };
    Value::Map(Map::from_iter([
        ("action_requests".to_owned(), Value::List(reviewed.iter().map(action).collect())),
        ("review_configs".to_owned(), Value::List(reviewed.iter().map(config).collect())),
    ]))
}
