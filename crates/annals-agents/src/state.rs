//! The state of an agent's thread: its messages, in LangChain's format, and the progress of its run.
//!
//! Invariant: the messages of a request or response are written together. *Absent:* the agent; any graph with a
//! channel `messages` can read the thread.

use std::collections::BTreeMap;

use annals_base::Value;
use annals_graph::annals::history::FoldedMessages;
use annals_graph::prelude::{Messages, State};
use annals_pydantic_ai::{RunUsage, ToolCallPart};
use serde::{Deserialize, Serialize};

use crate::error::{AgentError, AgentErrorKind};

/// The state of an agent's thread.
#[derive(State, Clone, Default)]
pub(crate) struct AgentState {
    #[channel(messages)]
    pub(crate) messages: Messages,
    #[channel(last, name = "messages:folded")]
    pub(crate) folded: Option<FoldedMessages>,
    #[channel(last)]
    pub(crate) agent_run: AgentProgress,
}

/// The next step of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NextStep {
    /// The model is asked.
    Ask,
    /// The last response is handled.
    React,
    /// The run has ended.
    #[default]
    End,
}

/// The reason for which a run has ended without an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFailure {
    kind: FailureKind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    UsageLimit,
    Behavior,
    Function,
    Input,
    Stopped,
}

impl RunFailure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn error(&self) -> AgentError {
        let kind = match self.kind {
            FailureKind::UsageLimit => AgentErrorKind::UsageLimit,
            FailureKind::Behavior => AgentErrorKind::Behavior,
            FailureKind::Function => AgentErrorKind::Function,
            FailureKind::Input => AgentErrorKind::Input,
            FailureKind::Stopped => AgentErrorKind::Stopped,
        };
        AgentError::new(kind, self.message.clone())
    }
}

/// The progress of the last run of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentProgress {
    pub(crate) run_id: String,
    pub(crate) conversation_id: String,
    /// The index of the first message that the run added.
    pub(crate) first_new: usize,
    /// True if the run sends the last request of its history again, which is not new.
    pub(crate) resends: bool,
    pub(crate) usage: RunUsage,
    /// The retries of the tools whose last call failed.
    pub(crate) retries: BTreeMap<String, i64>,
    pub(crate) output_retries: i64,
    pub(crate) next: NextStep,
    pub(crate) output: Option<Value>,
    /// The call of the output tool that gave the output.
    pub(crate) output_call: Option<String>,
    pub(crate) failure: Option<RunFailure>,
    /// The number of models that failed to give the next response.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) failed_models: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl AgentProgress {
    /// Ends the run without an output.
    pub(crate) fn fail(&mut self, kind: FailureKind, message: impl Into<String>) {
        self.failure = Some(RunFailure::new(kind, message));
        self.next = NextStep::End;
    }

    /// Ends the run with an output.
    pub(crate) fn finish(&mut self, output: Value, call: Option<&ToolCallPart>) {
        self.output = Some(output);
        self.output_call = call.map(|call| call.tool_call_id.clone());
        self.next = NextStep::End;
    }
}
