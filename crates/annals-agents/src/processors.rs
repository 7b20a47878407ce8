//! History processors: functions that change the history before each request.
//!
//! A summary folds the messages in whose place it stands, which stay in the thread. A history that a function has
//! changed takes the place of the stored one; the older one stays in the log of the thread. *Absent:* models, and the
//! tokens of a provider.

use std::fmt;
use std::sync::Arc;

use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{ModelMessage, RequestPart, ToolContent};

use crate::model::Model;
use crate::shared::RunInfo;
use crate::summary::{SummaryLimit, SummaryRule};

pub(crate) type Process = Arc<dyn Fn(Vec<ModelMessage>, &RunInfo<'_>) -> NodeResult<Vec<ModelMessage>> + Send + Sync>;

/// A history processor: it gets the whole history with the new request, and returns the history that is sent and
/// stored, which must end with a request.
///
/// # Example: the last two messages
/// ```
/// use annals_agents::{Agent, HistoryProcessor, TestModel};
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let agent = Agent::new(TestModel::script(["one", "two"])).history_processor(HistoryProcessor::keep_last(2));
/// let first = agent.run("1").invoke()?;
/// let second = agent.run("2").message_history(first.all_messages()).invoke()?;
/// assert_eq!(second.all_messages().len(), 3, "the answer, the prompt and its answer");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HistoryProcessor(pub(crate) HistoryChange);

/// A change of the history.
#[derive(Clone)]
pub(crate) enum HistoryChange {
    Function(Process),
    Summary(SummaryRule),
}

impl HistoryProcessor {
    /// Returns the processor of a function.
    pub fn new(
        process: impl Fn(Vec<ModelMessage>, &RunInfo<'_>) -> NodeResult<Vec<ModelMessage>> + Send + Sync + 'static,
    ) -> Self {
        Self(HistoryChange::Function(Arc::new(process)))
    }

    /// Returns a processor that keeps the last `count` messages, at least one. A result of a tool whose call is gone is
    /// not sent.
    pub fn keep_last(count: usize) -> Self {
        Self::new(move |mut history, _| Ok(history.split_off(history.len().saturating_sub(count.max(1)))))
    }

    /// Returns a processor that puts a note in place of the results of tools, but for those of the last `requests`
    /// requests.
    pub fn drop_tool_results(requests: usize) -> Self {
        Self::new(move |mut history, _| {
            let is_request = |message: &&mut ModelMessage| matches!(message, ModelMessage::Request(_));
            for message in history.iter_mut().rev().filter(is_request).skip(requests) {
                let ModelMessage::Request(request) = message else { continue };
                for part in &mut request.parts {
                    if let RequestPart::ToolReturn(part) = part {
                        part.content = ToolContent::text("The result was left out.");
                    }
                }
            }
            Ok(history)
        })
    }

    /// Returns a processor that lets a model summarise a history of more than `most` messages: the model sees the
    /// summary in place of the old messages; system prompts and at least the last `kept` messages stay. The summary is
    /// a step of the run, and its usage counts. The old messages stay in the thread, folded
    /// ([`Snapshot::folded`](annals_graph::prelude::Snapshot::folded)).
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, FunctionModel, HistoryProcessor, TestModel};
    /// use annals_pydantic_ai::{ModelResponse, TextPart};
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let small = FunctionModel::new(|call| {
    ///     let text = format!("a summary of {} messages", call.messages.len());
    ///     Ok(ModelResponse::new(vec![TextPart::new(text).into()], call.now()))
    /// });
    /// let talk = Agent::new(TestModel::script(["one", "two"])).system_prompt("Be brief.");
    /// let first = talk.run("1").invoke()?;
    /// let second = talk.run("2").message_history(first.all_messages()).invoke()?;
    ///
    /// let agent = Agent::new(TestModel::script(["three"])).history_processor(HistoryProcessor::summarise(small, 4, 1));
    /// let third = agent.run("3").message_history(second.all_messages()).invoke()?;
    /// assert_eq!((third.output.as_str(), third.all_messages().len()), ("three", 3));
    /// assert_eq!((third.new_messages().len(), third.usage().requests), (2, 2));
    /// assert!(third.all_messages_json().contains("a summary of 5 messages"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn summarise(model: impl Model, most: usize, kept: usize) -> Self {
        Self::summary(model, SummaryLimit::Messages(most), kept)
    }

    /// Returns a processor that lets a model summarise a history of more than `budget` tokens, as
    /// [`summarise`](Self::summarise). A token is taken for four bytes of JSON.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, FunctionModel, HistoryProcessor, TestModel};
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let talk = Agent::new(TestModel::script(["one", "two"]));
    /// let first = talk.run("word ".repeat(2_000).as_str()).invoke()?;
    ///
    /// let small = FunctionModel::answering(|_| Ok("a long list of words"));
    /// let compaction = HistoryProcessor::summarise_over(small, 1_000, 1);
    /// let agent = Agent::new(TestModel::script(["not asked", "two"])).history_processor(compaction);
    /// let second = agent.run("2").message_history(first.all_messages()).invoke()?;
    /// assert!(second.all_messages_json().len() < 2_000);
    /// assert!(second.all_messages_json().contains("a long list of words"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn summarise_over(model: impl Model, budget: usize, kept: usize) -> Self {
        Self::summary(model, SummaryLimit::Tokens(budget), kept)
    }

    fn summary(model: impl Model, most: SummaryLimit, kept: usize) -> Self {
        Self(HistoryChange::Summary(SummaryRule { model: Arc::new(model), most, kept }))
    }
}

impl fmt::Debug for HistoryProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HistoryProcessor")
    }
}
