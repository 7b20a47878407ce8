//! Calls that wait for a person or for somebody else, and their results.
//!
//! A run that reaches such calls ends as waiting; the interrupt is stored, so the results may come days later, from
//! another process. *Absent:* asking the person.

use std::collections::BTreeMap;

use annals_base::{Map, Value};
use annals_graph::graph::NodeResult;
use annals_graph::task::Context;
use serde::{Deserialize, Serialize};

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeferredCall {
    /// The name of the tool.
    pub tool_name: String,
    /// The id of the call.
    pub tool_call_id: String,
    /// The arguments.
    pub args: Value,
    /// Data that the tool gave for the person who decides; null if it gave none.
    pub metadata: Value,
}

/// The calls that a run waits for (`DeferredToolRequests`): the value of its interrupt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeferredRequests {
    /// Calls that wait for an approval.
    pub approvals: Vec<DeferredCall>,
    /// Calls that somebody else runs.
    pub calls: Vec<DeferredCall>,
}

impl DeferredRequests {
    pub(crate) fn is_empty(&self) -> bool {
        self.approvals.is_empty() && self.calls.is_empty()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.approvals.iter().chain(&self.calls).map(|call| call.tool_call_id.as_str())
    }
}

/// The event for which a call waits, with the data of the tool for the person who decides.
pub(crate) enum CallWait {
    Approval(Value),
    Result(Value),
}

/// A call that waits: its name, id and arguments, and what it waits for.
pub(crate) type WaitingCall<'a> = (&'a str, &'a str, Map, &'a CallWait);

/// Interrupts the run until there are decisions. Returns those that fit what their calls wait for, by the ids.
pub(crate) fn ask_decisions<'a>(
    context: &Context,
    waits: impl Iterator<Item = WaitingCall<'a>>,
) -> NodeResult<BTreeMap<String, CallDecision>> {
    let mut requests = DeferredRequests::default();
    for (tool_name, tool_call_id, args, wait) in waits {
        let (list, metadata) = match wait {
            CallWait::Approval(metadata) => (&mut requests.approvals, metadata),
            CallWait::Result(metadata) => (&mut requests.calls, metadata),
        };
        let (tool_name, tool_call_id) = (tool_name.to_owned(), tool_call_id.to_owned());
        list.push(DeferredCall { tool_name, tool_call_id, args: Value::Map(args), metadata: metadata.clone() });
    }
    let given = context.interrupt(Value::from_serialize(&requests)?)?;
    // Another value decides nothing, and the run waits on.
    let DeferredResults(mut decisions) = given.to().unwrap_or_default();
    let approvals: Vec<&str> = requests.approvals.iter().map(|call| call.tool_call_id.as_str()).collect();
    // A call that waits for a result cannot be approved.
    decisions.retain(|id, decision| !matches!(decision, CallDecision::Approve(_)) || approvals.contains(&id.as_str()));
    decisions.retain(|id, _| requests.ids().any(|known| known == id));
    Ok(decisions)
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallDecision {
    /// The call runs, with other arguments if some are given.
    Approve(Option<Map>),
    /// The call does not run; the model is told the message.
    Refuse(String),
    /// The result of a call that somebody else ran.
    Result(Value),
    /// The model is asked for another call, with a message.
    Retry(String),
    /// The call that somebody else ran has failed; the model is told the message.
    Fail(String),
}

/// The message for the model about a refused call, unless another one is given.
pub(crate) const REFUSED: &str = "The tool call was denied.";

/// The results of calls that a run waits for (`DeferredToolResults`), by the ids of the calls. Calls without one keep
/// the run waiting.
///
/// # Example: approve, edit, refuse
/// ```
/// use annals_agents::DeferredResults;
/// use serde_json::json;
///
/// let results = DeferredResults::new()
///     .approve("call_1")
///     .approve_with("call_2", json!({"path": "notes.md"}))
///     .refuse("call_3", "Not this file.")
///     .result("call_4", json!({"rows": 3}));
/// # let _ = results;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeferredResults(pub(crate) BTreeMap<String, CallDecision>);

impl DeferredResults {
    /// Returns no results.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a decision.
    #[must_use]
    pub fn decide(mut self, tool_call_id: impl Into<String>, decision: CallDecision) -> Self {
        self.0.insert(tool_call_id.into(), decision);
        self
    }

    /// Approves a call.
    #[must_use]
    pub fn approve(self, tool_call_id: impl Into<String>) -> Self {
        self.decide(tool_call_id, CallDecision::Approve(None))
    }

    /// Approves a call with other arguments. Arguments that are not an object do not fit a tool, and the model is told
    /// so.
    #[must_use]
    pub fn approve_with(self, tool_call_id: impl Into<String>, args: impl Into<Value>) -> Self {
        let args = match args.into() {
            Value::Map(map) => map,
            other => Map::from_iter([("INVALID_JSON".to_owned(), other)]),
        };
        self.decide(tool_call_id, CallDecision::Approve(Some(args)))
    }

    /// Refuses a call, with a message for the model; an empty one stands for a sentence that says so.
    #[must_use]
    pub fn refuse(self, tool_call_id: impl Into<String>, message: impl Into<String>) -> Self {
        self.decide(tool_call_id, CallDecision::Refuse(message.into()))
    }

    /// Adds the result of a call that somebody else ran.
    #[must_use]
    pub fn result(self, tool_call_id: impl Into<String>, result: impl Into<Value>) -> Self {
        self.decide(tool_call_id, CallDecision::Result(result.into()))
    }
}
