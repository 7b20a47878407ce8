//! The state of the graph of a [`ReactAgent`](crate::ReactAgent).
//!
//! *Absent:* counters of calls: the messages are counted.

use std::collections::BTreeMap;

use annals_base::Value;
use annals_graph::annals::history::FoldedMessages;
use annals_graph::prelude::{Message, Messages, State};
use annals_messages::{Role, ToolCall};
use serde::{Deserialize, Serialize};

use crate::review::EditedCall;

/// The state of a [`ReactAgent`](crate::ReactAgent): the messages of the conversation, and the output of the last run.
#[derive(State, Clone, Default)]
pub struct ReactState {
    /// The messages.
    #[channel(messages)]
    pub messages: Messages,
    /// The messages that a compaction has folded: the model sees the summary in their place.
    #[channel(last, name = "messages:folded")]
    pub folded: Option<FoldedMessages>,
    /// The output of the last run, if the agent has a [response format](crate::ReactAgent::response_format).
    #[channel(last)]
    pub structured_response: Option<Value>,
    #[channel(last)]
    pub(crate) react: ReactProgress,
}

/// The progress of the last run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[doc(hidden)]
pub struct ReactProgress {
    /// The index of the model that is asked next.
    pub(crate) model: usize,
    /// True if the run ends with the last message.
    pub(crate) is_ended: bool,
    /// True if the last model failed, and the next one is asked.
    pub(crate) falls_back: bool,
    /// The calls that a person has edited, by the ids of those they replace.
    pub(crate) edits: BTreeMap<String, EditedCall>,
}

impl ReactState {
    /// Returns the last message of the model, and the messages after it.
    fn last_turn(&self) -> Option<(Message, Vec<Message>)> {
        let mut after = Vec::new();
        for message in self.messages.iter().rev() {
            if matches!(message.role, Role::Ai(_)) {
                return Some((message.clone(), after));
            }
            after.push(message.clone());
        }
        None
    }

    /// Returns the calls of the last message of the model, and those of them without a message that answers them.
    pub(crate) fn calls(&self) -> (Vec<ToolCall>, Vec<ToolCall>) {
        let Some((last, after)) = self.last_turn() else { return Default::default() };
        let answered = |call: &ToolCall| after.iter().any(|message| message.tool_call_id() == call.id.as_deref());
        let calls = last.tool_calls();
        (calls.to_vec(), calls.iter().filter(|call| !answered(call)).cloned().collect())
    }

    /// Returns the messages of the model and the calls in them, since the last message of the user.
    pub(crate) fn of_run(&self) -> (usize, Vec<ToolCall>) {
        let (mut count, mut calls) = (0, Vec::new());
        for message in self.messages.iter().rev() {
            match message.role {
                Role::Human => break,
                Role::Ai(_) => {
                    count += 1;
                    calls.extend(message.tool_calls().iter().cloned());
                }
                _ => {}
            }
        }
        (count, calls)
    }
}
