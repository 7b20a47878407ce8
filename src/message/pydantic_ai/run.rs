//! The messages of a run, as PydanticAI tells them of the result of an agent.
//!
//! *Absent:* running; the messages before and after are what a run was given and what its outcome holds.

use std::collections::BTreeSet;

use super::error::LoadError;
use super::history::{ModelMessage, dump};
use super::langchain::from_langchain_in_two;
use super::wire::Fresh;
use crate::message::Message;

/// The messages of a run of a graph as a message history, with those that are new.
///
/// # Example: two turns on a thread
/// ```
/// use annals::base::{IdSource, SystemClock};
/// use annals::message::pydantic_ai::{Fresh, RunMessages};
/// use annals::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
/// }
///
/// let graph = StateGraph::<Chat>::new()
///     .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")])))
///     .edge(START, "answer")
///     .edge("answer", END)
///     .compile()?;
/// let thread = Store::memory().thread("alice")?;
/// let first = graph.invoke(&thread, Chat::update().messages([Message::human("hi")]))?;
/// let second = graph.invoke(&thread, Chat::update().messages([Message::human("again")]))?;
///
/// let mut ids = IdSource::from_seed(1);
/// let fresh = &mut Fresh::new(&SystemClock, &mut ids);
/// let (before, after) = (first.state().messages.iter(), second.state().messages.iter());
/// let run = RunMessages::between(before, after, fresh)?;
/// assert_eq!((run.all_messages().len(), run.new_messages().len()), (4, 2));
/// assert!(run.new_messages_json().starts_with(r#"[{"parts":[{"content":"again""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RunMessages {
    all: Vec<ModelMessage>,
    new_from: usize,
}

impl RunMessages {
    /// Takes the messages of a thread before a run and after it. New is what comes from the first one on whose id was
    /// not there before; a message without an id was there if it stands at its old place.
    ///
    /// # Errors
    /// As [`from_langchain`](super::from_langchain).
    pub fn between<'a>(
        before: impl IntoIterator<Item = &'a Message>,
        after: impl IntoIterator<Item = &'a Message>,
        fresh: &mut Fresh<'_>,
    ) -> Result<Self, LoadError> {
        let before: Vec<&Message> = before.into_iter().collect();
        let after: Vec<Message> = after.into_iter().cloned().collect();
        let known: BTreeSet<&str> = before.iter().filter_map(|message| message.id.as_deref()).collect();
        let is_new = |(at, message): (usize, &Message)| match &message.id {
            Some(id) => !known.contains(id.as_str()),
            None => before.get(at) != Some(&message),
        };
        let first = after.iter().enumerate().position(is_new).unwrap_or(after.len());
        let (all, new_from) = from_langchain_in_two(&after, first, fresh)?;
        Ok(Self { all, new_from })
    }

    /// Returns all messages at the end of the run.
    pub fn all_messages(&self) -> &[ModelMessage] {
        &self.all
    }

    /// Returns those that the run added.
    pub fn new_messages(&self) -> &[ModelMessage] {
        &self.all[self.new_from.min(self.all.len())..]
    }

    /// Returns all messages as JSON text, as [`dump`] writes it.
    pub fn all_messages_json(&self) -> String {
        dump(&self.all)
    }

    /// Returns those that the run added as JSON text, as [`dump`] writes it.
    pub fn new_messages_json(&self) -> String {
        dump(self.new_messages())
    }
}
