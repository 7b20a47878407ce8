//! The history of a run in memory, shared by its steps, by its result and by the next run of the thread.
//!
//! Invariant: a history that is returned for a list of messages is what their conversion gives. *Absent:* the stored
//! messages, and a second conversion of those that were converted.

use std::collections::VecDeque;
use std::sync::Arc;

use annals_base::{Clock, IdSource};
use annals_graph::prelude::Messages;
use annals_messages::Message;
use annals_pydantic_ai::{DefaultSource, LoadError, ModelMessage, from_langchain_marked, to_langchain};
use parking_lot::Mutex;

use crate::error::{AgentError, AgentErrorKind};
use crate::limits::{HISTORIES_CACHED_MAX, HISTORY_MESSAGES_CACHED_MAX};

/// A history that is copied only if it is changed while it is shared.
pub(crate) type SharedHistory = Arc<Vec<ModelMessage>>;

/// The history as the last step of a run has left it. It belongs to the messages of the thread as long as their number
/// is the same: a run is their only writer.
#[derive(Default)]
pub(crate) struct KnownHistory(Mutex<Option<(usize, SharedHistory)>>);

impl KnownHistory {
    /// Takes the history of these messages.
    pub(crate) fn take(&self, messages: &Messages, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
        match self.0.lock().take() {
            Some((count, history)) if count == messages.len() => Ok(history),
            _ => history(messages, clock),
        }
    }

    /// Returns the history of these messages, which the next step can still take.
    pub(crate) fn peek(&self, messages: &Messages, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
        match &*self.0.lock() {
            Some((count, history)) if *count == messages.len() => return Ok(Arc::clone(history)),
            _ => {}
        }
        history(messages, clock)
    }

    /// Leaves a history to the next step, with the number of its messages in the thread.
    pub(crate) fn leave(&self, count: usize, history: SharedHistory) {
        *self.0.lock() = Some((count, history));
    }
}

/// The histories of the threads that an agent ran last, each with the list of messages that it was converted from.
#[derive(Default)]
pub(crate) struct HistoryCache(Mutex<VecDeque<(Messages, SharedHistory)>>);

impl HistoryCache {
    /// Takes the history of these messages; `None` if it is not cached. Lists that are equal but not the same differ.
    pub(crate) fn take(&self, messages: &Messages) -> Option<SharedHistory> {
        let mut cached = self.0.lock();
        let at = cached.iter().position(|(known, _)| known.is_same(messages))?;
        cached.remove(at).map(|(_, history)| history)
    }

    /// Caches the history of these messages. The oldest ones go if there are too many.
    pub(crate) fn put(&self, messages: &Messages, history: &SharedHistory) {
        if history.len() > HISTORY_MESSAGES_CACHED_MAX {
            return;
        }
        // Declared first: what goes is dropped after the lock.
        let mut dropped = Vec::new();
        let mut cached = self.0.lock();
        cached.push_back((messages.clone(), Arc::clone(history)));
        let mut count: usize = cached.iter().map(|(_, history)| history.len()).sum();
        while cached.len() > HISTORIES_CACHED_MAX || count > HISTORY_MESSAGES_CACHED_MAX {
            let Some(oldest) = cached.pop_front() else { break };
            count -= oldest.1.len();
            dropped.push(oldest);
        }
        debug_assert!(!cached.is_empty(), "the newest history stays");
    }
}

/// Returns the messages of a thread as a history.
pub(crate) fn history(messages: &Messages, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
    let mut ids = IdSource::new();
    let messages = messages.iter().map(|message| (false, message));
    let history = from_langchain_marked(messages, [].iter(), &mut DefaultSource::new(clock, &mut ids))?;
    Ok(Arc::new(history.into_iter().map(|(_, message)| message).collect()))
}

/// Returns a history as the messages of a thread.
pub(crate) fn stored(history: &[ModelMessage]) -> Result<Vec<Message>, AgentError> {
    to_langchain(history, false).map_err(|error| {
        let message = format!("the messages cannot be stored: {error}");
        AgentError::with_source(AgentErrorKind::Run, message, std::sync::Arc::new(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_pydantic_ai::ModelRequest;

    fn entry(count: usize) -> (Messages, SharedHistory) {
        let messages: Messages = [Message::human("hi")].into_iter().collect();
        (messages, Arc::new(vec![ModelRequest::new(Vec::new()).into(); count]))
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
