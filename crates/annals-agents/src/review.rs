//! The review of tool calls by a person, before any of them runs, in the format of LangChain's agents.
//!
//! Invariant: the response of the model is stored before the person is asked. *Absent:* running the calls.

use annals_base::{Map, Value};
use annals_graph::graph::NodeResult;
use annals_graph::prelude::Context;
use annals_graph::prelude::Message;
use annals_messages::ToolCall;
use serde::{Deserialize, Serialize};

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
/// "reject", "message": ..}` or `{"type": "respond", "message": ..}`. A resume value that does not fit is refused, and
/// the run waits on.
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

/// A call that a person reviews, with the decisions that are allowed.
type ReviewedCall<'a> = (&'a ToolCall, &'a [ReviewDecision]);

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
    /// The interrupt, and the refusal of a resume value that does not fit: nothing is stored of it.
    pub(crate) fn ask(&self, calls: &[ToolCall], context: &Context) -> NodeResult<Reviewed> {
        let reviewed: Vec<_> = calls.iter().filter_map(|call| Some((call, self.allowed(call)?))).collect();
        let mut problem = None;
        // The schema holds for all tools. A decision that one of them does not allow is asked for again.
        loop {
            let given = context.interrupt_with(request(&reviewed, problem.take()), schema(&reviewed))?;
            let decisions = given.get("decisions").and_then(Value::as_list).unwrap_or_default();
            match taken(&reviewed, decisions) {
                Ok(result) => return Ok(result),
                Err(text) => problem = Some(text),
            }
        }
    }
}

/// Returns what comes of the decisions, or the problem with one of them.
fn taken(reviewed: &[ReviewedCall<'_>], decisions: &[Value]) -> Result<Reviewed, String> {
    let mut result = Reviewed::default();
    for ((call, allowed), decision) in reviewed.iter().zip(decisions) {
        let kind = decision.get("type").and_then(Value::as_str).unwrap_or_default();
        let Some(known) = allowed.iter().find(|known| known.name() == kind) else {
            let names: Vec<&str> = allowed.iter().map(|known| known.name()).collect();
            return Err(format!("decision {kind:?} about tool {:?} is none of: {}", call.name, names.join(", ")));
        };
        let message = decision.get("message").and_then(Value::as_str).unwrap_or_default();
        match known {
            ReviewDecision::Approve => {}
            ReviewDecision::Edit => {
                let action = decision.get("edited_action").and_then(|action| action.to::<EditedCall>().ok());
                let edited = action
                    .ok_or_else(|| format!("the edit of the call of {:?} has no valid \"edited_action\"", call.name))?;
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

/// Returns the value of the interrupt.
fn request(reviewed: &[ReviewedCall<'_>], problem: Option<String>) -> Value {
    let action = |(call, _): &ReviewedCall<'_>| {
        let args = Value::Map(call.args.clone());
        let description = format!("A call of tool {} waits for a decision.\nArguments: {args}", call.name);
        map([("name", call.name.as_str().into()), ("args", args), ("description", description.into())])
    };
    let config = |(call, allowed): &ReviewedCall<'_>| {
        let names = allowed.iter().map(|known| known.name().into()).collect();
        map([("action_name", call.name.as_str().into()), ("allowed_decisions", Value::List(names))])
    };
    let mut value = Map::from_iter([
        ("action_requests".to_owned(), Value::List(reviewed.iter().map(action).collect())),
        ("review_configs".to_owned(), Value::List(reviewed.iter().map(config).collect())),
    ]);
    value.extend(problem.map(|problem| ("problem".to_owned(), problem.into())));
    Value::Map(value)
}

/// Returns the JSON schema of the resume value.
fn schema(reviewed: &[ReviewedCall<'_>]) -> Value {
    let is_allowed = |known: &ReviewDecision| reviewed.iter().any(|(_, allowed)| allowed.contains(known));
    let object = |properties: Value, required: &[&str]| {
        let required = required.iter().map(|name| Value::from(*name)).collect();
        map([("type", "object".into()), ("properties", properties), ("required", Value::List(required))])
    };
    let of = |kind: &'static str| map([("type", kind.into())]);
    let decision = |known: ReviewDecision| {
        let name = map([("const", known.name().into())]);
        let action = object(map([("name", of("string")), ("args", of("object"))]), &["name", "args"]);
        match known {
            ReviewDecision::Edit => {
                object(map([("type", name), ("edited_action", action)]), &["type", "edited_action"])
            }
            ReviewDecision::Respond => object(map([("type", name), ("message", of("string"))]), &["type", "message"]),
            _ => object(map([("type", name)]), &["type"]),
        }
    };
    let decisions = ReviewDecision::ALL.into_iter().filter(is_allowed).map(decision).collect();
    let count = i64::try_from(reviewed.len()).unwrap_or(i64::MAX);
    let list = map([
        ("type", "array".into()),
        ("items", map([("anyOf", Value::List(decisions))])),
        ("minItems", count.into()),
        ("maxItems", count.into()),
    ]);
    object(map([("decisions", list)]), &["decisions"])
}

fn map<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
