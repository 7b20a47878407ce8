//! History processors: functions that change the history before each request.
//!
//! The history that a processor returns takes the place of the stored one; the older one stays in the log of the
//! thread. *Absent:* a processor that asks a model.

use std::fmt;
use std::sync::Arc;

use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{ModelMessage, RequestPart, ToolContent};

use crate::shared::RunInfo;

type Process = Arc<dyn Fn(Vec<ModelMessage>, &RunInfo<'_>) -> NodeResult<Vec<ModelMessage>> + Send + Sync>;

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
pub struct HistoryProcessor(Process);

impl HistoryProcessor {
    /// Returns the processor of a function.
    pub fn new(
        process: impl Fn(Vec<ModelMessage>, &RunInfo<'_>) -> NodeResult<Vec<ModelMessage>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(process))
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

    pub(crate) fn process(
        &self,
        history: Vec<ModelMessage>,
        info: &RunInfo<'_>,
    ) -> NodeResult<Vec<ModelMessage>> {
        (self.0)(history, info)
    }
}

impl fmt::Debug for HistoryProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HistoryProcessor")
    }
}
