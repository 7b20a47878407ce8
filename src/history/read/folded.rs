//! The messages of a list that a compaction has folded, and the list as a model sees it.
//!
//! A fold is the value of a channel beside the list: a range of positions, and a summary in their place. So history,
//! forks, undo, differences and checks serve it as any other channel. Invariant: no message is changed or removed by a
//! fold. *Absent:* making folds ([`compaction`](super::super::write::compaction)), and summaries.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::snapshot::{Snapshot, item_message};
use crate::base::limits::MAP_POSITION_MIN;
use crate::message::Message;
use crate::state::Messages;
use crate::store::{ItemRange, StoreError};

/// The end of the name of the channel that holds the fold of a list.
const FOLDED: &str = ":folded";

/// The messages of a list that a compaction has folded: a range of positions, and the summary that a model sees in
/// their place. Made by [`Thread::compact`](crate::history::Thread::compact).
///
/// It is the value of the channel [`FoldedMessages::channel_of`] the list: a graph that compacts its own messages has a
/// field for it.
///
/// # Example: a state with a fold
/// ```
/// use annals::history::FoldedMessages;
/// use annals::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
///     #[channel(last, name = "messages:folded")]
///     folded: Option<FoldedMessages>,
/// }
///
/// # fn main() -> Result<()> {
/// let chat = Store::memory().thread("trip")?.with_state::<Chat>();
/// chat.update(Chat::update().messages(["a", "b", "c"].map(Message::human)))?;
/// chat.update(Chat::update().folded(FoldedMessages::new(0..2, [Message::system("a, then b")])))?;
///
/// let state = chat.state()?;
/// let view = state.folded.as_ref().expect("two messages").view(&state.messages);
/// assert_eq!(view.iter().map(|message| message.text()).collect::<Vec<_>>(), ["a, then b", "c"]);
/// assert_eq!(state.messages.len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoldedMessages {
    from: u64,
    to: u64,
    /// The messages of the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<Message>,
}

impl FoldedMessages {
    /// Folds the messages at positions of a list. Without a summary a model sees nothing in their place.
    pub fn new(positions: Range<u64>, summary: impl IntoIterator<Item = Message>) -> Self {
        Self { from: positions.start, to: positions.end, summary: summary.into_iter().collect() }
    }

    /// Folds messages of a list by their indices in the view of it, which an earlier fold may give. What that one folds
    /// stays folded if its summary is among them.
    pub fn of_view(
        messages: &Messages,
        before: Option<&Self>,
        indices: Range<usize>,
        summary: impl IntoIterator<Item = Message>,
    ) -> Self {
        let front = messages.iter_positions().take_while(|(position, _)| before.is_none_or(|of| *position < of.from));
        let (front, tail) = (front.count(), before.map_or(0, |of| messages.iter_from(of.positions().end).count()));
        let hidden = messages.len() - front - tail;
        let length = before.filter(|_| hidden > 0).map_or(0, |of| of.summary.len());
        // The position of an index of the view; within the summary that of its border.
        let position = |index: usize, border: u64| match index {
            index if index < front => messages.position_of(index),
            index if index < front + length => Some(border),
            index => messages.position_of(index - length + hidden),
        };
        let end = messages.end_position();
        let from = position(indices.start, before.map_or(0, |of| of.from)).unwrap_or(end);
        let to = position(indices.end, before.map_or(0, |of| of.positions().end)).unwrap_or(end).max(from);
        debug_assert!(to <= end, "a fold ends before the next message");
        Self::new(from..to, summary)
    }

    /// Returns the name of the channel that holds the fold of a list: `messages:folded` for `messages`.
    pub fn channel_of(list: &str) -> String {
        format!("{list}{FOLDED}")
    }

    /// Returns the positions: the messages before them are the frozen beginning, those after them the tail.
    pub fn positions(&self) -> Range<u64> {
        self.from..self.to.max(self.from)
    }

    /// Returns whether the message at a position is folded.
    pub fn holds(&self, position: u64) -> bool {
        self.positions().contains(&position)
    }

    /// Returns the list as a model sees it: the frozen beginning, the summary, and the tail. A list without a message
    /// at these positions is returned as it is.
    pub fn view(&self, messages: &Messages) -> Vec<Message> {
        let front = messages.iter_positions().take_while(|(position, _)| *position < self.from);
        let mut view: Vec<Message> = front.map(|(_, message)| (**message).clone()).collect();
        let front = view.len();
        view.extend_from_slice(&self.summary);
        let summary = front..view.len();
        view.extend(messages.iter_from(self.positions().end).map(|(_, message)| (**message).clone()));
        if view.len() - summary.len() == messages.len() {
            view.drain(summary);
        }
        view
    }
}

impl Snapshot {
    /// Returns the messages of a list channel that are folded here; `None` if none are.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the channel [`FoldedMessages::channel_of`] the list holds another value; as
    /// [`Snapshot::values`].
    pub fn folded(&self, channel: &str) -> Result<Option<FoldedMessages>, StoreError> {
        let name = FoldedMessages::channel_of(channel);
        let Some(value) = self.get(&name)?.filter(|value| !value.is_null()) else { return Ok(None) };
        let folded: FoldedMessages = value.to().map_err(|error| StoreError::Corrupt {
            place: format!("channel {name}"),
            reason: format!("it does not hold folded messages: {error}"),
        })?;
        Ok(Some(folded).filter(|folded| folded.from < folded.to))
    }

    /// Returns the messages of a list channel as a model sees them: the frozen beginning, the summary of the messages
    /// that a [compaction](crate::history::Thread::compact) has folded, and the tail. It reads these, whatever the
    /// number of the folded ones. Without a compaction they are [all messages](Snapshot::messages).
    ///
    /// # Errors
    /// As [`Snapshot::folded`].
    pub fn model_view(&self, channel: &str) -> Result<Vec<Message>, StoreError> {
        let Some(folded) = self.folded(channel)? else { return self.messages(channel, ItemRange::All) };
        let mut count = 0;
        let mut read = |range: ItemRange| -> Result<Vec<Message>, StoreError> {
            let mut messages = Vec::new();
            self.visit_items(channel, range, |row| {
                count += 1;
                messages.extend(item_message(row.payload)?);
                Ok(())
            })?;
            Ok(messages)
        };
        let mut view = read(ItemRange::Positions(0, folded.from))?;
        let tail = read(ItemRange::Positions(folded.to, MAP_POSITION_MIN))?;
        // The folded messages may have been removed since.
        let has_folded = count < self.len(channel)?;
        view.extend(folded.summary.into_iter().filter(|_| has_folded));
        view.extend(tail);
        Ok(view)
    }
}
