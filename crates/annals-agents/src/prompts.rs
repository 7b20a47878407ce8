//! System prompts and instructions of an agent, and the preparation of messages for a model.
//!
//! System prompts are parts of the first request of a conversation; instructions are made anew for each request and are
//! no parts. *Absent:* the messages of the run.

use std::sync::Arc;

use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{
    DateTime, FeedbackCause, FeedbackContent, InstructionPart, ModelMessage, RequestPart, RetryFeedbackPart,
    SystemPromptPart, UserContent, UserPromptPart, join_instructions, needs_repair, repair_messages,
};

use crate::history::{KnownHistory, SharedHistory, unchecked};
use crate::model::Model;
use crate::shared::RunInfo;

/// A function that makes a prompt.
pub(crate) type MakePrompt = Arc<dyn Fn(&RunInfo<'_>) -> NodeResult<String> + Send + Sync>;

/// A prompt of an agent.
#[derive(Clone)]
pub(crate) enum PromptSource {
    Text(String),
    Function(MakePrompt),
    /// A function whose system prompt is made anew in each run, by its name.
    Dynamic(String, MakePrompt),
}

impl PromptSource {
    fn make(&self, info: &RunInfo<'_>) -> NodeResult<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Function(make) | Self::Dynamic(_, make) => make(info),
        }
    }
}

/// The mode in which an agent puts its system prompts into a history without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemPromptMode {
    /// The history is taken as it is, also without a system prompt.
    #[default]
    Keep,
    /// The prompts of the agent are added to a history that has none.
    AddMissing,
    /// The prompts of the agent take the place of those of the history.
    Replace,
}

/// The system prompts of an agent.
#[derive(Clone, Default)]
pub(crate) struct SystemPrompts {
    pub(crate) sources: Vec<PromptSource>,
    pub(crate) mode: SystemPromptMode,
}

impl SystemPrompts {
    /// Returns the parts of the first request: texts first, then those of functions.
    pub(crate) fn parts(&self, info: &RunInfo<'_>) -> NodeResult<Vec<RequestPart>> {
        let texts = self.sources.iter().filter(|source| matches!(source, PromptSource::Text(_)));
        let functions = self.sources.iter().filter(|source| !matches!(source, PromptSource::Text(_)));
        let part = |source: &PromptSource| {
            let mut part = SystemPromptPart::new(source.make(info)?, info.now());
            if let PromptSource::Dynamic(name, _) = source {
                part.dynamic_ref = Some(name.clone());
            }
            Ok(part.into())
        };
        texts.chain(functions).map(part).collect()
    }

    /// Returns whether [`renew`](Self::renew) can change a history.
    pub(crate) fn can_renew(&self) -> bool {
        let is_dynamic = |source: &PromptSource| matches!(source, PromptSource::Dynamic(..));
        self.mode != SystemPromptMode::Keep || self.sources.iter().any(is_dynamic)
    }

    /// Makes the dynamic prompts of a history anew, and puts the prompts of the agent into it.
    pub(crate) fn renew(&self, history: &mut [ModelMessage], info: &RunInfo<'_>) -> NodeResult<()> {
        let mut found = false;
        for parts in requests(history) {
            if self.mode == SystemPromptMode::Replace {
                parts.retain(|part| !matches!(part, RequestPart::SystemPrompt(_)));
            }
            for part in parts {
                let RequestPart::SystemPrompt(prompt) = part else { continue };
                found = true;
                let known = self.sources.iter().find_map(|source| match source {
                    PromptSource::Dynamic(name, make) if prompt.dynamic_ref.as_ref() == Some(name) => Some(make),
                    _ => None,
                });
                if let Some(make) = known {
                    let name = prompt.dynamic_ref.take();
                    *prompt = SystemPromptPart::new(make(info)?, info.now());
                    prompt.dynamic_ref = name;
                }
            }
        }
        if self.mode != SystemPromptMode::Keep
            && !found
            && let Some(parts) = requests(history).next()
        {
            parts.splice(0..0, self.parts(info)?);
        }
        Ok(())
    }
}

/// Returns the parts of each request of a history.
fn requests(history: &mut [ModelMessage]) -> impl Iterator<Item = &mut Vec<RequestPart>> {
    history.iter_mut().filter_map(|message| match message {
        ModelMessage::Request(request) => Some(&mut request.parts),
        _ => None,
    })
}

/// Returns the instructions in force, joined by a blank line: texts first, then those of functions.
pub(crate) fn instructions(
    sources: &[PromptSource],
    of_run: Option<&str>,
    of_output: Option<String>,
    info: &RunInfo<'_>,
) -> NodeResult<Option<String>> {
    let is_text = |source: &&PromptSource| matches!(source, PromptSource::Text(_));
    let mut made = Vec::new();
    for source in sources.iter().filter(is_text) {
        made.push(source.make(info)?);
    }
    made.extend(of_run.map(str::to_owned));
    for source in sources.iter().filter(|source| !is_text(source)) {
        made.push(source.make(info)?);
    }
    made.extend(of_output);
    let parts: Vec<InstructionPart> = made.into_iter().map(InstructionPart::new).collect();
    Ok(join_instructions(&parts))
}

/// Prepares a history for a model: calls without a result get one, requests and responses take turns, and parts that a
/// provider has no form for become words of the user. A history that is so already is not copied, and the messages that
/// `known` has as valid are not checked again.
pub(crate) fn prepared(history: SharedHistory, model: &dyn Model, known: &KnownHistory) -> SharedHistory {
    let takes_late = model.takes_late_system_messages();
    let rest = unchecked(&history, known.valid());
    let is_begin = rest.len() == history.len();
    debug_assert_eq!(needs_repair(rest, true), needs_repair(&history, true), "the messages before are valid");
    if !needs_repair(rest, true) {
        if !has_unspoken(rest, is_begin, false) {
            known.set_valid(history.len());
            return history;
        }
        if takes_late && !has_unspoken(rest, is_begin, true) {
            return history;
        }
    }
    let mut messages = repair_messages(Arc::unwrap_or_clone(history), true);
    let first = messages.iter().position(|message| matches!(message, ModelMessage::Request(_)));
    for (at, message) in messages.iter_mut().enumerate() {
        let ModelMessage::Request(request) = message else { continue };
        for part in &mut request.parts {
            match part {
                RequestPart::RetryFeedback(feedback) => *part = spoken(feedback, takes_late),
                RequestPart::SystemPrompt(prompt) if !takes_late && Some(at) != first => {
                    *part = tagged(&prompt.content, prompt.timestamp);
                }
                _ => {}
            }
        }
    }
    Arc::new(messages)
}

/// Returns whether a history, or the rest of one, has parts that become words of the user.
fn has_unspoken(history: &[ModelMessage], is_begin: bool, takes_late: bool) -> bool {
    let requests = history.iter().filter_map(|message| match message {
        ModelMessage::Request(request) => Some(request),
        _ => None,
    });
    let is_late = |at: usize| !takes_late && (at > 0 || !is_begin);
    requests.enumerate().any(|(at, request)| {
        request.parts.iter().any(|part| match part {
            RequestPart::RetryFeedback(_) => true,
            RequestPart::SystemPrompt(_) => is_late(at),
            _ => false,
        })
    })
}

/// Returns feedback in words: those of the framework in the voice of the system, others in that of the user.
fn spoken(feedback: &RetryFeedbackPart, takes_system: bool) -> RequestPart {
    let text = feedback.text();
    let is_own = feedback.retry.cause == FeedbackCause::NoOutput
        && matches!(&feedback.content, FeedbackContent::Text(content) if *content == text);
    match (is_own, takes_system) {
        (true, true) => SystemPromptPart::new(text, feedback.timestamp).into(),
        (true, false) => tagged(&text, feedback.timestamp),
        (false, _) => UserPromptPart::new(UserContent::Text(text), feedback.timestamp).into(),
    }
}

fn tagged(text: &str, timestamp: DateTime) -> RequestPart {
    UserPromptPart::new(UserContent::Text(format!("<system>{text}</system>")), timestamp).into()
}
