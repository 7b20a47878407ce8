//! The state of an agent's thread: its messages, in LangChain's format, and the progress of its run.
//!
//! Invariant: the messages of a request or response are written together. *Absent:* the agent; any graph with a
//! channel `messages` can read the thread.

use std::collections::BTreeMap;

use annals_base::Value;
use annals_graph::annals::history::FoldedMessages;
use annals_graph::prelude::{Messages, State};
use annals_pydantic_ai::{ModelMessage, RequestPart, RunUsage, ToolCallPart, ToolOutcome};
use serde::{Deserialize, Serialize, Serializer};

use crate::begin::conversation_of;
use crate::error::{AgentError, AgentErrorKind};
use crate::settle::text_of;

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

/// The progress of the last run of a thread. A step stores it if it does not follow from the messages of the run, or
/// from those that were added since it was stored; members without a value take no bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentProgress {
    pub(crate) run_id: String,
    pub(crate) conversation_id: String,
    /// The index of the first message that the run added.
    pub(crate) first_new: usize,
    /// True if the run sends the last request of its history again, which is not new.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) resends: bool,
    #[serde(default, skip_serializing_if = "is_default", serialize_with = "write_usage")]
    pub(crate) usage: RunUsage,
    /// The retries of the tools whose last call failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) retries: BTreeMap<String, i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) output_retries: i64,
    pub(crate) next: NextStep,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) output: Option<Value>,
    /// The call of the output tool that gave the output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) output_call: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) failure: Option<RunFailure>,
    /// The number of models that failed to give the next response.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) failed_models: usize,
    /// The number of messages of the run when the progress was stored; `None` if it was not stored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) counted: Option<usize>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes the counts of a usage that are not 0. A usage with other members is written whole.
fn write_usage<S: Serializer>(usage: &RunUsage, serializer: S) -> Result<S::Ok, S::Error> {
    let mut rest = usage.clone();
    let counts = &mut rest.counts;
    let members = [
        ("input_tokens", std::mem::take(&mut counts.input_tokens)),
        ("cache_write_tokens", std::mem::take(&mut counts.cache_write_tokens)),
        ("cache_read_tokens", std::mem::take(&mut counts.cache_read_tokens)),
        ("output_tokens", std::mem::take(&mut counts.output_tokens)),
        ("output_reasoning_tokens", std::mem::take(&mut counts.output_reasoning_tokens)),
        ("requests", std::mem::take(&mut rest.requests)),
        ("tool_calls", std::mem::take(&mut rest.tool_calls)),
    ];
    if rest != RunUsage::default() {
        return usage.serialize(serializer);
    }
    serializer.collect_map(members.into_iter().filter(|(_, count)| *count != 0))
}

impl AgentProgress {
    /// Returns the progress at a history: the one that is stored, and what the messages say that steps have added
    /// since.
    pub(crate) fn at(&self, history: &[ModelMessage]) -> Self {
        if self.begun_since(|| history.iter().rev().find_map(ModelMessage::run_id)).is_some() {
            return Self::of_messages(history);
        }
        let mut progress = self.clone();
        let added = self.counted.and_then(|counted| self.added(history).get(counted..));
        added.into_iter().flatten().for_each(|message| progress.add(message));
        progress
    }

    /// Returns the id of a run that has begun since this progress was stored: that of the last message with one, if it
    /// is another run. A run that has stored its progress before its first message is the last one.
    pub(crate) fn begun_since<T: AsRef<str>>(&self, last: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.counted == Some(0) {
            return None;
        }
        last().filter(|last| last.as_ref() != self.run_id)
    }

    /// Returns the progress of the last run of a history, which has stored none.
    fn of_messages(history: &[ModelMessage]) -> Self {
        let end = history.iter().rposition(|message| message.run_id().is_some()).map_or(0, |at| at + 1);
        let last = history[..end].last();
        let text = |id: Option<&str>| id.unwrap_or_default().to_owned();
        let (run_id, conversation_id) = (last.and_then(ModelMessage::run_id), last.and_then(conversation_of));
        let mut progress = Self { run_id: text(run_id), conversation_id: text(conversation_id), ..Self::default() };
        let added = progress.added(&history[..end]);
        progress.first_new = end - added.len();
        added.iter().for_each(|message| progress.add(message));
        progress
    }

    /// Returns the last messages of a history that are of this run.
    fn added<'a>(&self, history: &'a [ModelMessage]) -> &'a [ModelMessage] {
        let count = history.iter().rev().take_while(|message| message.run_id() == Some(&self.run_id)).count();
        &history[history.len() - count..]
    }

    /// Adds a message that a step has stored without the progress.
    fn add(&mut self, message: &ModelMessage) {
        match message {
            ModelMessage::Response(response) => {
                self.usage.add_request(&response.usage);
                self.usage.requests += 1;
                self.next = NextStep::React;
                let text = if response.tool_calls().next().is_none() { text_of(response) } else { String::new() };
                if !text.is_empty() {
                    self.finish(text.into(), None);
                }
            }
            ModelMessage::Request(request) => {
                let is_result = |part: &&RequestPart| match part {
                    RequestPart::ToolReturn(part) => part.outcome == ToolOutcome::Success,
                    _ => false,
                };
                let results = request.parts.iter().filter(is_result).count();
                self.usage.tool_calls += i64::try_from(results).unwrap_or(i64::MAX);
                (self.next, self.output) = (NextStep::Ask, None);
            }
            _ => {}
        }
    }

    /// Returns the progress that follows from what is `stored`, at a history whose messages from `first_added` on are
    /// of a step that began at this progress.
    pub(crate) fn after(mut self, stored: &Self, history: &[ModelMessage], first_added: usize) -> Self {
        let added = &history[first_added..];
        if !added.iter().all(|message| self.is_of(message)) {
            return stored.at(history);
        }
        added.iter().for_each(|message| self.add(message));
        debug_assert_eq!(self, stored.at(history), "a step adds its messages to the progress at its begin");
        self
    }

    /// Returns whether a message is of this run.
    fn is_of(&self, message: &ModelMessage) -> bool {
        message.run_id() == Some(&self.run_id) && conversation_of(message) == Some(&self.conversation_id)
    }

    /// Adds the progress at a history to an update, unless it is the one that `follows` from what is stored.
    pub(crate) fn write(
        &mut self,
        update: AgentStateUpdate,
        follows: &Self,
        history: &[ModelMessage],
    ) -> AgentStateUpdate {
        if follows == self {
            return update;
        }
        self.counted = Some(self.added(history).len());
        update.agent_run(self.clone())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(usage: RunUsage) -> (serde_json::Value, AgentProgress) {
        let progress = AgentProgress { run_id: "r".into(), usage, ..AgentProgress::default() };
        let json = serde_json::to_value(&progress).unwrap();
        let read: AgentProgress = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read, progress);
        (json, read)
    }

    #[test]
    fn members_without_a_value_are_not_stored() {
        let (json, _) = stored(RunUsage::default());
        let names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        let mut usage = RunUsage::default();
        (usage.requests, usage.counts.output_tokens) = (2, 7);
        let (json, read) = stored(usage);
        assert_eq!(json["usage"], serde_json::json!({"output_tokens": 7, "requests": 2}));
        assert_eq!(read.usage.requests, 2);
    }

    #[test]
    fn other_members_of_a_usage_are_stored() {
        let mut usage = RunUsage::default();
        usage.counts.audio_seconds = 1.5;
        usage.counts.details.insert("searches".into(), 3);
        let (_, read) = stored(usage);
        assert_eq!(read.usage.counts.details["searches"], 3);
    }
}
