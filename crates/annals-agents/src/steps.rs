//! A run step by step: each message as it is stored.
//!
//! *Absent:* the chunks of a response.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use annals_graph::prelude::{StreamData, StreamMode, Thread};
use annals_graph::{Stream, StreamPart};
use annals_pydantic_ai::{ModelMessage, ModelRequest, ModelResponse};
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::error::AgentError;
use crate::history::KnownHistory;
use crate::result::AgentOutcome;
use crate::run::{ReadyRun, conclude, history_of};
use crate::span::AgentRunSpan;
use crate::state::AgentState;

/// A step of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AgentStep<O = String> {
    /// A request was stored: the first one, the results of tools, or feedback.
    Request(ModelRequest),
    /// A response was stored.
    Response(Box<ModelResponse>),
    /// The run has ended, or waits.
    End(Box<AgentOutcome<O>>),
}

/// The steps of a run (`AgentRun` of PydanticAI).
///
/// # Example
/// ```
/// use annals_agents::{Agent, AgentStep, TestModel};
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let agent = Agent::new(TestModel::script(["Bern."]));
/// let mut seen = Vec::new();
/// for step in agent.run("The capital of Switzerland?").iter()? {
///     seen.push(match step? {
///         AgentStep::Request(request) => format!("{} parts", request.parts.len()),
///         AgentStep::Response(response) => response.text().unwrap_or_default(),
///         AgentStep::End(outcome) => outcome.result().expect("it ended").output,
///         _ => "another step".into(),
///     });
/// }
/// assert_eq!(seen, ["1 parts", "Bern.", "Bern."]);
/// # Ok(())
/// # }
/// ```
pub struct AgentSteps<'a, O = String> {
    agent: &'a Agent<O>,
    thread: Thread,
    span: AgentRunSpan,
    known: Arc<KnownHistory>,
    /// `None` once the run has ended.
    stream: Option<Stream<'a, AgentState>>,
    /// The number of messages that were shown.
    shown: Option<usize>,
    queue: VecDeque<AgentStep<O>>,
}

impl<'a, O> AgentSteps<'a, O> {
    pub(crate) fn begin(agent: &'a Agent<O>, ready: ReadyRun<'a>) -> Result<Self, AgentError> {
        let ReadyRun { thread, run, input, known, span } = ready;
        let stream = Some(run.stream(input, &[StreamMode::Values])?);
        Ok(Self { agent, thread, known, span, stream, shown: None, queue: VecDeque::new() })
    }

    /// Queues the messages that a state adds.
    fn take(&mut self, part: StreamPart<AgentState>) -> Result<(), AgentError> {
        let StreamData::Values(values) = part.data else { return Ok(()) };
        let messages = history_of(&values, &self.known, self.agent.core())?;
        let first = self.shown.unwrap_or_else(|| values.agent_run.at(&messages).first_new);
        self.shown = Some(messages.len());
        for message in messages.iter().skip(first) {
            match message.clone() {
                ModelMessage::Request(request) => self.queue.push_back(AgentStep::Request(request)),
                ModelMessage::Response(response) => self.queue.push_back(AgentStep::Response(Box::new(response))),
                _ => {}
            }
        }
        Ok(())
    }
}

impl<O: DeserializeOwned> Iterator for AgentSteps<'_, O> {
    type Item = Result<AgentStep<O>, AgentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(step) = self.queue.pop_front() {
                return Some(Ok(step));
            }
            let part = self.stream.as_mut()?.next();
            let failed = match part {
                Some(Ok(part)) => self.take(part).err(),
                Some(Err(error)) => Some(error.into()),
                None => {
                    let stream = self.stream.take()?;
                    let outcome = stream.outcome().cloned().ok_or_else(|| AgentError::input("the run did not end"));
                    let ended = outcome.and_then(|outcome| {
                        conclude(self.agent.core(), Some(self.thread.clone()), &self.known, Ok(outcome))
                    });
                    self.span.end(&ended);
                    return Some(ended.map(|outcome| AgentStep::End(Box::new(outcome))));
                }
            };
            if let Some(error) = failed {
                self.stream = None;
                self.span.end(&Err::<AgentOutcome<O>, _>(error.clone()));
                return Some(Err(error));
            }
        }
    }
}

impl<O> fmt::Debug for AgentSteps<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSteps").field("thread", &self.thread).finish_non_exhaustive()
    }
}
