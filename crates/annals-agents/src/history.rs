//! The history of a run in memory, shared by its steps, by its result and by the next run of the thread.
//!
//! Invariant: a history that is returned for a state is what the conversion of its messages, as a model sees them,
//! gives. *Absent:* the stored
//! messages, and a second conversion of those that were converted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_base::{Clock, IdSource};
use annals_graph::annals::history::FoldedMessages;
use annals_graph::prelude::Messages;
use annals_messages::Message;
use annals_pydantic_ai::{DefaultSource, LoadError, ModelMessage, from_langchain, from_langchain_marked, to_langchain};
use parking_lot::Mutex;

use crate::error::{AgentError, AgentErrorKind};
use crate::limits::{HISTORIES_CACHED_MAX, HISTORY_MESSAGES_CACHED_MAX};
use crate::state::{AgentProgress, AgentState, AgentStateUpdate};

/// A history that is copied only if it is changed while it is shared.
pub(crate) type SharedHistory = Arc<Vec<ModelMessage>>;

/// The history as the last step of a run has left it, with the progress at it. It belongs to the messages of the thread
/// as long as their number is the same: a run is their only writer.
#[derive(Default)]
pub(crate) struct KnownHistory {
    left: Mutex<Option<(usize, SharedHistory, AgentProgress)>>,
    /// The number of leading messages that every provider takes as they are.
    valid: AtomicUsize,
}

impl KnownHistory {
    /// Takes the history of a state, and the progress at it.
    pub(crate) fn take(
        &self,
        state: &AgentState,
        clock: &dyn Clock,
    ) -> Result<(SharedHistory, AgentProgress), LoadError> {
        if let Some((count, history, progress)) = self.left.lock().take()
            && count == state.messages.len()
        {
            debug_assert_eq!(progress, state.agent_run.at(&history), "the progress follows from what is stored");
            return Ok((history, progress));
        }
        let history = self.converted(state, clock)?;
        let progress = state.agent_run.at(&history);
        Ok((history, progress))
    }

    /// Returns the history of a state, which the next step can still take.
    pub(crate) fn peek(&self, state: &AgentState, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
        match &*self.left.lock() {
            Some((count, history, _)) if *count == state.messages.len() => return Ok(Arc::clone(history)),
            _ => {}
        }
        self.converted(state, clock)
    }

    fn converted(&self, state: &AgentState, clock: &dyn Clock) -> Result<SharedHistory, LoadError> {
        self.set_valid(0);
        history(state, clock)
    }

    /// Leaves a history to the next step, with the number of its messages in the thread and the progress at it.
    pub(crate) fn leave(&self, count: usize, history: SharedHistory, progress: AgentProgress) {
        *self.left.lock() = Some((count, history, progress));
    }

    /// Returns the number of leading messages that every provider takes as they are.
    pub(crate) fn valid(&self) -> usize {
        self.valid.load(Ordering::Relaxed)
    }

    pub(crate) fn set_valid(&self, count: usize) {
        self.valid.store(count, Ordering::Relaxed);
    }
}

/// Returns the part of a history that has to be checked, if so many of its leading messages are valid: it begins with
/// the last response among these, to whose calls the next request has the results.
pub(crate) fn unchecked(history: &[ModelMessage], valid: usize) -> &[ModelMessage] {
    let valid = &history[..valid.min(history.len())];
    let from = valid.iter().rposition(|message| matches!(message, ModelMessage::Response(_)));
    &history[from.unwrap_or(0)..]
}

/// The histories of the threads that an agent ran last.
#[derive(Default)]
pub(crate) struct HistoryCache(Mutex<VecDeque<CachedHistory>>);

/// A history, with the list of messages and the fold that it was converted from.
struct CachedHistory {
    messages: Messages,
    folded: Option<FoldedMessages>,
    history: SharedHistory,
    valid: usize,
}

impl HistoryCache {
    /// Takes the history of a state, with the number of leading messages that are valid; `None` if it is not cached.
    /// Lists that are equal but not the same differ.
    pub(crate) fn take(&self, state: &AgentState) -> Option<(SharedHistory, usize)> {
        let mut cached = self.0.lock();
        let is_of = |of: &CachedHistory| of.messages.is_same(&state.messages) && of.folded == state.folded;
        let at = cached.iter().position(is_of)?;
        cached.remove(at).map(|cached| (cached.history, cached.valid))
    }

    /// Caches the history of a state. The oldest ones go if there are too many.
    pub(crate) fn put(&self, state: &AgentState, history: &SharedHistory, valid: usize) {
        if history.len() > HISTORY_MESSAGES_CACHED_MAX {
            return;
        }
        // Declared first: what goes is dropped after the lock.
        let mut dropped = Vec::new();
        let mut cached = self.0.lock();
        let (messages, folded) = (state.messages.clone(), state.folded.clone());
        cached.push_back(CachedHistory { messages, folded, history: Arc::clone(history), valid });
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

/// Returns the id of the last run of a thread.
pub(crate) fn last_run(state: &AgentState, clock: &dyn Clock) -> String {
    let mut ids = IdSource::new();
    let mut defaults = DefaultSource::new(clock, &mut ids);
    let mut run_of = |message: &Message| {
        let history = from_langchain(std::slice::from_ref(message), &mut defaults).ok()?;
        history.first()?.run_id().map(str::to_owned)
    };
    let last = || state.messages.iter().rev().find_map(&mut run_of);
    state.agent_run.begun_since(last).unwrap_or_else(|| state.agent_run.run_id.clone())
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
    use annals_base::SystemClock;
    use annals_pydantic_ai::{ModelRequest, ModelResponse};

    fn entry(count: usize) -> (AgentState, SharedHistory) {
        let messages: Messages = [Message::human("hi")].into_iter().collect();
        let state = AgentState { messages, ..AgentState::default() };
        (state, Arc::new(vec![ModelRequest::new(Vec::new()).into(); count]))
    }

    #[test]
    fn a_history_is_that_of_its_fold() {
        let cache = HistoryCache::default();
        let (mut state, history) = entry(1);
        cache.put(&state, &history, 0);
        state.folded = Some(FoldedMessages::new(0..1, []));
        assert!(cache.take(&state).is_none(), "another fold gives another history");
        state.folded = None;
        assert!(cache.take(&state).is_some());
    }

    #[test]
    fn a_check_begins_with_the_last_valid_response() {
        let now = SystemClock.now().into();
        let (request, response) = (ModelRequest::new(Vec::new()), ModelResponse::new(Vec::new(), now));
        let history: Vec<ModelMessage> = vec![request.clone().into(), response.into(), request.into()];
        let counts = [0, 1, 2, 3, 9].map(|valid| unchecked(&history, valid).len());
        assert_eq!(counts, [3, 3, 2, 2, 2]);
        assert!(unchecked(&[], 1).is_empty());
    }

    #[test]
    fn the_oldest_histories_leave_the_cache() {
        let cache = HistoryCache::default();
        let entries: Vec<_> = (0..=HISTORIES_CACHED_MAX).map(|_| entry(1)).collect();
        entries.iter().for_each(|(messages, history)| cache.put(messages, history, 0));
        assert!(cache.take(&entries[0].0).is_none());
        assert!(Arc::ptr_eq(&cache.take(&entries[1].0).unwrap().0, &entries[1].1));
        assert!(cache.take(&entries[1].0).is_none(), "it was taken");
        let (messages, long) = entry(HISTORY_MESSAGES_CACHED_MAX);
        cache.put(&messages, &long, 0);
        assert!(cache.take(&entries[2].0).is_none(), "the long one takes the place of all others");
        let (messages, longer) = entry(HISTORY_MESSAGES_CACHED_MAX + 1);
        cache.put(&messages, &longer, 0);
        assert!(cache.take(&messages).is_none());
    }
}
