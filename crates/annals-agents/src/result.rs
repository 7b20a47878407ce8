//! The result of a run, and its outcome.
//!
//! *Absent:* a result that streams in; see `streamed.rs`.

use annals_graph::prelude::Thread;
use annals_graph::task::Interrupt;
use annals_messages::{Message, MessageError};
use annals_pydantic_ai::{ModelMessage, RequestPart, RunUsage, ToolContent, dump, to_langchain};

use crate::deferred::DeferredRequests;
use crate::error::AgentError;
use crate::history::SharedHistory;
use crate::state::AgentProgress;

/// The outcome of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AgentOutcome<O = String> {
    /// The run has ended with an output.
    Done(AgentResult<O>),
    /// The run waits for approvals or results, which [`Agent::resume_with`](crate::Agent::resume_with) takes.
    Waiting(WaitingRun),
}

impl<O> AgentOutcome<O> {
    /// Returns the result; `None` if the run waits.
    pub fn result(self) -> Option<AgentResult<O>> {
        match self {
            Self::Done(result) => Some(result),
            Self::Waiting(_) => None,
        }
    }

    /// Returns the run that waits; `None` if it has ended.
    pub fn waiting(self) -> Option<WaitingRun> {
        match self {
            Self::Done(_) => None,
            Self::Waiting(waiting) => Some(waiting),
        }
    }
}

/// A run that waits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingRun {
    /// The calls that it waits for; none if a tool interrupts the run itself.
    pub requests: DeferredRequests,
    /// The open interrupts. That of the calls has them as its value.
    pub interrupts: Vec<Interrupt>,
    /// The thread of the run.
    pub thread: Thread,
    /// The history so far.
    pub messages: Vec<ModelMessage>,
}

/// The result of a run that has ended (`AgentRunResult`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentResult<O = String> {
    /// The output.
    pub output: O,
    pub(crate) messages: SharedHistory,
    pub(crate) progress: Box<AgentProgress>,
    /// The thread of the run; of memory, if the run was given none. `None` for a run
    /// [in a task](crate::AgentRun::in_task), whose thread is that of the outer run.
    pub thread: Option<Thread>,
}

impl<O> AgentResult<O> {
    /// Returns the history: the messages before the run, and those of the run.
    pub fn all_messages(&self) -> &[ModelMessage] {
        &self.messages
    }

    /// Returns the messages of the run.
    pub fn new_messages(&self) -> &[ModelMessage] {
        &self.messages[self.new_message_index()..]
    }

    /// Returns [`AgentResult::all_messages`] as JSON text, as PydanticAI writes it.
    pub fn all_messages_json(&self) -> String {
        dump(self.all_messages())
    }

    /// Returns [`AgentResult::new_messages`] as JSON text, as PydanticAI writes it.
    pub fn new_messages_json(&self) -> String {
        dump(self.new_messages())
    }

    /// Returns the history with a text in place of the result of the output tool, for a conversation that goes on.
    ///
    /// # Errors
    /// [`AgentError`] if the output did not come by an output tool.
    pub fn all_messages_with_output(&self, text: &str) -> Result<Vec<ModelMessage>, AgentError> {
        let no_call = || AgentError::input("the output did not come by an output tool, so no result of one can change");
        let call = self.progress.output_call.as_deref().ok_or_else(no_call)?;
        let mut messages = self.messages.to_vec();
        let part = messages.iter_mut().rev().find_map(|message| match message {
            ModelMessage::Request(request) => request.parts.iter_mut().find_map(|part| match part {
                RequestPart::ToolReturn(part) if part.tool_call_id == call => Some(part),
                _ => None,
            }),
            _ => None,
        });
        part.ok_or_else(no_call)?.content = ToolContent::text(text);
        Ok(messages)
    }

    /// Returns the history in LangChain's format.
    ///
    /// # Errors
    /// [`MessageError`] if a message has no counterpart.
    pub fn langchain_messages(&self) -> Result<Vec<Message>, MessageError> {
        to_langchain(&self.messages, false)
    }

    /// Returns the number of messages before those of the run.
    pub fn new_message_index(&self) -> usize {
        self.progress.first_new.min(self.messages.len())
    }

    /// Returns the usage of the run.
    pub fn usage(&self) -> &RunUsage {
        &self.progress.usage
    }

    /// Returns the id of the run.
    pub fn run_id(&self) -> &str {
        &self.progress.run_id
    }

    /// Returns the id of the conversation.
    pub fn conversation_id(&self) -> &str {
        &self.progress.conversation_id
    }
}
