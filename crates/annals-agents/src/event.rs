//! The events of a run, as a user interface shows them.
//!
//! *Absent:* delivering them; see `gate.rs`.

use annals_base::{Map, Value};
use annals_pydantic_ai::{RequestPart, ResponsePart, StreamEvent, ToolCallPart, ToolReturnPart};

/// An event of a run (`AgentStreamEvent`). A run that goes on after a wait shows the events of the calls of that
/// response again, those of the calls that have ended too.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentEvent {
    /// A response of the model streams in.
    Response(StreamEvent),
    /// A call of a tool begins.
    ToolCall {
        /// The call.
        part: ToolCallPart,
        /// True if the call is an output of the run.
        is_output: bool,
        /// True if the arguments fit the tool.
        args_valid: bool,
    },
    /// A call of a tool has ended.
    ToolResult {
        /// The result for the model.
        part: ToolReturnPart,
        /// True if the call is an output of the run.
        is_output: bool,
    },
}

impl AgentEvent {
    /// Returns the event as PydanticAI's JSON.
    pub fn to_value(&self) -> Value {
        let kind = |is_output: &bool, what: &str| {
            let side = if *is_output { "output" } else { "function" };
            Value::from(format!("{side}_tool_{what}"))
        };
        let members: Vec<(&str, Value)> = match self {
            Self::Response(event) => return event.to_value(),
            Self::ToolCall { part, is_output, args_valid } => vec![
                ("part", ResponsePart::from(part.clone()).to_value()),
                ("args_valid", (*args_valid).into()),
                ("event_kind", kind(is_output, "call")),
            ],
            Self::ToolResult { part, is_output } => {
                let content = (!is_output).then_some(("content", Value::Null));
                let part = ("part", RequestPart::from(part.clone()).to_value());
                [part].into_iter().chain(content).chain([("event_kind", kind(is_output, "result"))]).collect()
            }
        };
        Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map>())
    }
}
