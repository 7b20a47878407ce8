//! The output in a response without tool calls, and the feedback to a response without an output.
//!
//! *Absent:* tools.

use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{
    FeedbackCause, FeedbackContent, FeedbackRetry, FinishReason, ModelMessage, ModelRequest, ModelResponse,
    ResponsePart, RetryFeedbackPart,
};

use crate::agent::AgentCore;
use crate::begin::completed;
use crate::output::BadOutput;
use crate::shared::RunShared;
use crate::state::{AgentProgress, FailureKind, NextStep};

/// Reads the output of a response without tool calls. Returns the request that asks the model for another output, if
/// there is one.
pub(crate) fn settle(
    core: &AgentCore,
    shared: &RunShared,
    progress: &mut AgentProgress,
    response: &ModelResponse,
    history: &[ModelMessage],
) -> NodeResult<Option<ModelRequest>> {
    let text = text_of(response);
    if text.is_empty()
        && let Some(problem) = stopped_early(response)
    {
        progress.fail(FailureKind::Behavior, problem);
        return Ok(None);
    }
    let feedback = if text.is_empty() || !core.output.allows_text() {
        (FeedbackCause::NoOutput, FeedbackContent::Text(no_output(core)))
    } else {
        match core.output.of_text(&text, &core.info(shared, progress, history)) {
            Ok(output) => {
                progress.finish(output, None);
                return Ok(None);
            }
            Err(BadOutput::Failed(error)) => {
                progress.fail(FailureKind::Function, format!("a validator of the output failed: {error}"));
                return Ok(None);
            }
            Err(BadOutput::Retry(cause, content)) => (cause, content),
        }
    };
    if !take_output_retry(core, progress) {
        return Ok(None);
    }
    let (cause, content) = feedback;
    let mut retry = FeedbackRetry::new(cause);
    (retry.attempt, retry.max_retries) = (Some(progress.output_retries), Some(core.output_retries));
    let part = RetryFeedbackPart::new(content, retry, shared.now());
    progress.next = NextStep::Ask;
    completed(ModelRequest::new(vec![part.into()]), core, shared, progress, history).map(Some)
}

/// Counts a retry of the output. Returns false, and ends the run, if there were as many as allowed.
pub(crate) fn take_output_retry(core: &AgentCore, progress: &mut AgentProgress) -> bool {
    progress.output_retries += 1;
    let allowed = progress.output_retries <= core.output_retries;
    if !allowed {
        let message = format!("the model gave no usable output after {} retries", core.output_retries);
        progress.fail(FailureKind::Behavior, message);
    }
    allowed
}

/// Returns the text that can be the output. Text before a call of a tool of the provider is a thought.
pub(crate) fn text_of(response: &ModelResponse) -> String {
    let (mut text, mut compaction) = (String::new(), String::new());
    for part in &response.parts {
        match part {
            ResponsePart::Text(part) => text += &part.content,
            ResponsePart::Speech(part) => text += part.transcript.as_deref().unwrap_or_default(),
            ResponsePart::NativeToolCall(_) => text.clear(),
            ResponsePart::Compaction(part) => compaction += part.content.as_deref().unwrap_or_default(),
            _ => {}
        }
    }
    if text.is_empty() { compaction } else { text }
}

/// Returns the reason why another request would not help a response without an output.
fn stopped_early(response: &ModelResponse) -> Option<&'static str> {
    match response.finish_reason {
        Some(FinishReason::Length) => Some("the model reached its limit of tokens before it gave a response"),
        Some(FinishReason::ContentFilter) => Some("the provider has filtered the response"),
        _ => None,
    }
}

/// Asks for the outputs that the agent takes.
fn no_output(core: &AgentCore) -> String {
    let mut ways = Vec::new();
    if core.output.allows_text() {
        ways.push("return text");
    }
    if core.output.tool().is_some() {
        ways.push("include your response in a tool call");
    } else if !core.tools.is_empty() {
        ways.push("call a tool");
    }
    format!("Please {}.", ways.join(" or "))
}
