//! The history of a run in memory, shared by its steps, by its result and by the next run of the thread.
//!
//! Invariant: a history that is returned for a state is what the conversion of its messages, as a model sees them,
//! gives. *Absent:* the stored
//! messages, and a second conversion of those that were converted.

use std::collections::VecDeque;
use std::sync::Arc;

use annals_base::{Clock, IdSource};
use annals_graph::annals::history::FoldedMessages;
use annals_graph::prelude::Messages;
use annals_messages::Message;
use annals_pydantic_ai::{DefaultSource, LoadError, ModelMessage, from_langchain_marked, to_langchain};
use parking_lot::Mutex;

use crate::error::{AgentError, AgentErrorKind};
use crate::limits::{HISTORIES_CACHED_MAX, HISTORY_MESSAGES_CACHED_MAX};
use crate::state::{AgentState, AgentStateUpdate};

/// A history that is copied only if it is changed while it is shared.
pub(crate) type SharedHistory = Arc<Vec<ModelMessage>>;

/// The history as the last step of a run has left it. It belongs to the messages of the thread as long as their number
/// is the same: a run is their only writer.
#[derive(Default)]
pub(crate) struct KnownHistory(Mutex<Option<(usize, SharedHistory)>>);

impl KnownHistory {
    /// Takes the history of a state.
    pub(crate) fn take(&self, state: &AgentState, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
        match self.0.lock().take() {
            Some((count, history)) if count == state.messages.len() => Ok(history),
            _ => history(state, clock),
        }
    }

    /// Returns the history of a state, which the next step can still take.
    pub(crate) fn peek(&self, state: &AgentState, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
        match &*self.0.lock() {
            Some((count, history)) if *count == state.messages.len() => return Ok(Arc::clone(history)),
            _ => {}
        }
        history(state, clock)
    }

    /// Leaves a history to the next step, with the number of its messages in the thread.
    pub(crate) fn leave(&self, count: usize, history: SharedHistory) {
        *self.0.lock() = Some((count, history));
    }
}

/// The histories of the threads that an agent ran last.
#[derive(Default)]
pub(crate) struct HistoryCache(Mutex<VecDeque<CachedHistory>>);

/// A history, with the list of messages and the fold that it was converted from.
struct CachedHistory {
    messages: Messages,
    folded: Option<FoldedMessages>,
    history: SharedHistory,
}

impl HistoryCache {
    /// Takes the history of a state; `None` if it is not cached. Lists that are equal but not the same differ.
    pub(crate) fn take(&self, state: &AgentState) -> Option<SharedHistory> {
        let mut cached = self.0.lock();
        let is_of = |of: &CachedHistory| of.messages.is_same(&state.messages) && of.folded == state.folded;
        let at = cached.iter().position(is_of)?;
        cached.remove(at).map(|cached| cached.history)
    }

    /// Caches the history of a state. The oldest ones go if there are too many.
    pub(crate) fn put(&self, state: &AgentState, history: &SharedHistory) {
        if history.len() > HISTORY_MESSAGES_CACHED_MAX {
            return;
        }
        // Declared first: what goes is dropped after the lock.
        let mut dropped = Vec::new();
        let mut cached = self.0.lock();
        let (messages, folded) = (state.messages.clone(), state.folded.clone());
        cached.push_back(CachedHistory { messages, folded, history: Arc::clone(history) });
        let mut count: usize = cached.iter().map(|cached| cached.history.len()).sum();
        while cached.len() > HISTORIES_CACHED_MAX || count > HISTORY_MESSAGES_CACHED_MAX {
            let Some(oldest) = cached.pop_front() else { break };
            count -= oldest.history.len();
            dropped.push(oldest);
        }
        debug_assert!(!cached.is_empty(), "the newest history stays");
    }
}

/// Returns the messages of a thread, as a model sees them, as a history.
fn history(state: &AgentState, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
    let mut ids = IdSource::new();
    let mut defaults = DefaultSource::new(clock, &mut ids);
    let history = match &state.folded {
        Some(folded) => {
            let view = folded.view(&state.messages);
            from_langchain_marked(view.iter().map(|message| (false, message)), [].iter(), &mut defaults)?
        }
        None => {
            let messages = state.messages.iter().map(|message| (false, message));
            from_langchain_marked(messages, [].iter(), &mut defaults)?
        }
    };
    Ok(Arc::new(history.into_iter().map(|(_, message)| message).collect()))
}

/// Returns a history as the messages of a thread.
pub(crate) fn stored(history: &[ModelMessage]) -> Result<Vec<Message>, AgentError> {
    to_langchain(history, false).map_err(|error| {
        let message = format!("the messages cannot be stored: {error}");
        AgentError::with_source(AgentErrorKind::Run, message, std::sync::Arc::new(error))
    })
}

/// Adds messages to an update that take the place of those of a state. What was folded is gone with them.
pub(crate) fn rewritten(update: AgentStateUpdate, state: &AgentState, messages: Vec<Message>) -> AgentStateUpdate {
    let update = update.overwrite_messages(messages);
    if state.folded.is_some() { update.folded(None::<FoldedMessages>) } else { update }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_pydantic_ai::ModelRequest;

    fn entry(count: usize) -> (AgentState, SharedHistory) {
        let messages: Messages = [Message::human("hi")].into_iter().collect();
        let state = AgentState { messages, ..AgentState::default() };
        (state, Arc::new(vec![ModelRequest::new(Vec::new()).into(); count]))
    }

    #[test]
    fn a_history_is_that_of_its_fold() {
        let cache = HistoryCache::default();
        let (mut state, history) = entry(1);
        cache.put(&state, &history);
        state.folded = Some(FoldedMessages::new(0..1, []));
        assert!(cache.take(&state).is_none(), "another fold gives another history");
        state.folded = None;
        assert!(cache.take(&state).is_some());
    }

    #[test]
    fn the_oldest_histories_leave_the_cache() {
        let cache = HistoryCache::default();
        let entries: Vec<_> = (0..=HISTORIES_CACHED_MAX).map(|_| entry(1)).collect();
        entries.iter().for_each(|(messages, history)| cache.put(messages, history));
        assert!(cache.take(&entries[0].0).is_none());
        assert!(Arc::ptr_eq(&cache.take(&entries[1].0).unwrap(), &entries[1].1));
        assert!(cache.take(&entries[1].0).is_none(), "it was taken");
        let (messages, long) = entry(HISTORY_MESSAGES_CACHED_MAX);
        cache.put(&messages, &long);
        assert!(cache.take(&entries[2].0).is_none(), "the long one takes the place of all others");
        let (messages, longer) = entry(HISTORY_MESSAGES_CACHED_MAX + 1);
        cache.put(&messages, &longer);
        assert!(cache.take(&messages).is_none());
    }
}
