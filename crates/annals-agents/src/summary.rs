//! A summary of old messages, made by a model before a request.
//!
//! Invariant: a summary is a step of its own: one that has ended is not made again. *Absent:* an exact count of tokens,
//! which depends on the model.

use std::sync::Arc;

use annals_base::Timestamp;
use annals_graph::graph::NodeResult;
use annals_graph::task::{Context, Task};
use annals_pydantic_ai::{
    CompactionPart, DateTime, ModelMessage, ModelRequest, ModelResponse, RequestPart, UserContent, UserPromptPart, dump,
};

use crate::error::AgentError;
use crate::history::{KnownHistory, SharedHistory};
use crate::model::{Model, ModelCall, ModelSettings, OutputRequest, failed};
use crate::prompts::prepared;

/// The name of the step.
const SUMMARY: &str = "summary";
/// The request for a summary.
const ASKS: &str = "Summarise the conversation up to here for a colleague who takes it over: the wishes, the facts that \
    were found, the decisions, and what is left to do. Give the summary alone.";

/// The size that a history may have.
#[derive(Clone, Copy)]
pub(crate) enum SummaryLimit {
    Messages(usize),
    Tokens(usize),
}

impl SummaryLimit {
    fn is_exceeded(self, history: &[ModelMessage]) -> bool {
        match self {
            Self::Messages(most) => history.len() > most,
            Self::Tokens(most) => tokens(history) > most,
        }
    }
}

/// Returns the approximate number of tokens of a history: a quarter of the bytes of its JSON.
fn tokens(history: &[ModelMessage]) -> usize {
    history.iter().map(|message| dump(std::slice::from_ref(message)).len() / 4).sum()
}

/// A summary that stands in a history.
pub(crate) struct MadeSummary {
    pub(crate) response: ModelResponse,
    /// The number of messages in whose place the first message of the history stands.
    pub(crate) count: usize,
}

/// The settings of a summary.
#[derive(Clone)]
pub(crate) struct SummaryRule {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) most: SummaryLimit,
    /// The number of messages that stay, at least.
    pub(crate) kept: usize,
}

impl SummaryRule {
    /// Returns the index of the first message that stays: a request that answers no tool call.
    fn first_kept(&self, history: &[ModelMessage]) -> Option<usize> {
        let begins = |message: &ModelMessage| match message {
            ModelMessage::Request(request) => {
                !request.parts.iter().any(|part| matches!(part, RequestPart::ToolReturn(_)))
            }
            _ => false,
        };
        let last = history.len().saturating_sub(self.kept.max(1));
        (1..=last).rev().find(|at| history.get(*at).is_some_and(begins)).filter(|_| self.most.is_exceeded(history))
    }

    /// Puts a summary in place of the old messages of a history that is too long.
    pub(crate) async fn apply(
        &self,
        history: &mut SharedHistory,
        clock: Timestamp,
        context: &Context,
    ) -> NodeResult<Option<MadeSummary>> {
        let Some(first) = self.first_kept(history) else { return Ok(None) };
        let now = DateTime::from(clock);
        let mut asked = history[..first].to_vec();
        let prompt = UserPromptPart::new(UserContent::from(ASKS), now);
        asked.push(ModelRequest::new(vec![prompt.into()]).into());
        let call = Arc::new(ModelCall {
            messages: prepared(Arc::new(asked), &*self.model, &KnownHistory::default()),
            instructions: None,
            tools: Vec::new(),
            output_tools: Vec::new(),
            output: OutputRequest::Plain,
            allows_text: true,
            settings: ModelSettings::default(),
            clock,
        });
        let model = Arc::clone(&self.model);
        let task = Task::new(SUMMARY, move |_: usize, _: Context| {
            let (model, call) = (Arc::clone(&model), Arc::clone(&call));
            async move { Ok(model.request(&call).await.map_err(|error| failed(&*model, error))?) }
        });
        let response: ModelResponse = task.start(context, first).await?;
        let text = response.text().filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| AgentError::input("the model gave no summary of the history"))?;
        let mut parts: Vec<RequestPart> = match &history[0] {
            ModelMessage::Request(request) => {
                request.parts.iter().filter(|part| matches!(part, RequestPart::SystemPrompt(_))).cloned().collect()
            }
            _ => Vec::new(),
        };
        parts.push(CompactionPart::new(Some(text)).into());
        let mut request = ModelRequest::new(parts);
        request.timestamp = Some(now);
        Arc::make_mut(history).splice(..first, [request.into()]);
        Ok(Some(MadeSummary { response, count: first }))
    }
}
