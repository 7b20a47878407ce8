//! Message histories of the outcome of a run (feature `graph`). *Absent:* running anything.

use std::sync::Arc;

use annals_base::{DefaultSource, IdSource, Value};
use annals_graph::{Error as RunError, Outcome};
use annals_messages::Message;

use crate::{LoadError, ModelMessage, dump, from_langchain_marked, from_value};

/// The messages of an outcome are not a message history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The channel does not exist, or the store could not be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The channel does not hold messages.
    #[error("channel {channel:?} does not hold messages")]
    NoMessages {
        /// The channel.
        channel: Arc<str>,
    },
    /// The messages of the channel cannot be converted to a message history.
    #[error("channel {channel:?} does not hold a message history: {source}")]
    History {
        /// The channel.
        channel: Arc<str>,
        /// The first problem, with its place in the history.
        source: Box<LoadError>,
    },
}

/// The messages of a run as a message history of PydanticAI, as its `AgentRunResult` gives them.
///
/// The channel holds messages of LangChain, [`ModelMessage`]s or their JSON values. A message of LangChain without a
/// timestamp gets that of the end of the run; the messages that the run added begin a request or response of their own.
///
/// # Example: two turns on a thread
/// ```
/// use annals_graph::prelude::*;
/// use annals_pydantic_ai::{ModelMessage, RunHistory};
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = StateGraph::<Chat>::new()
///     .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")])))
///     .edge(START, "answer")
///     .compile()?;
/// let thread = Store::memory().thread("alice")?;
/// graph.invoke(&thread, Chat::update().messages([Message::human("hi")]))?;
/// let second = graph.invoke(&thread, Chat::update().messages([Message::human("again")]))?;
///
/// assert_eq!(second.all_messages("messages")?.len(), 4);
/// assert!(matches!(second.new_messages("messages")?[..], [ModelMessage::Request(_), ModelMessage::Response(_)]));
/// assert!(second.new_messages_json("messages")?.starts_with(r#"[{"parts":[{"content":"again""#));
/// # Ok(())
/// # }
/// ```
pub trait RunHistory {
    /// Returns the messages of a channel at the end of the run (`all_messages`).
    ///
    /// # Errors
    /// [`HistoryError`].
    fn all_messages(&self, channel: &str) -> Result<Vec<ModelMessage>, HistoryError>;

    /// Returns those of [`RunHistory::all_messages`] that the run added (`new_messages`).
    ///
    /// # Errors
    /// [`HistoryError`].
    fn new_messages(&self, channel: &str) -> Result<Vec<ModelMessage>, HistoryError>;

    /// Returns [`RunHistory::all_messages`] as JSON text, as [`dump`] writes it.
    ///
    /// # Errors
    /// [`HistoryError`].
    fn all_messages_json(&self, channel: &str) -> Result<String, HistoryError> {
        self.all_messages(channel).map(|messages| dump(&messages))
    }

    /// Returns [`RunHistory::new_messages`] as JSON text, as [`dump`] writes it.
    ///
    /// # Errors
    /// [`HistoryError`].
    fn new_messages_json(&self, channel: &str) -> Result<String, HistoryError> {
        self.new_messages(channel).map(|messages| dump(&messages))
    }
}

impl<S: Send + Sync + 'static> RunHistory for Outcome<S> {
    fn all_messages(&self, channel: &str) -> Result<Vec<ModelMessage>, HistoryError> {
        history(self, channel, false)
    }

    fn new_messages(&self, channel: &str) -> Result<Vec<ModelMessage>, HistoryError> {
        history(self, channel, true)
    }
}

fn history<S: Send + Sync + 'static>(
    outcome: &Outcome<S>,
    channel: &str,
    only_new: bool,
) -> Result<Vec<ModelMessage>, HistoryError> {
    let now = outcome.ended_at();
    let mut ids = IdSource::from_seed(outcome.id_seed());
    let defaults = &mut DefaultSource::new(&now, &mut ids);
    let misfit = |source: LoadError| HistoryError::History { channel: channel.into(), source: Box::new(source) };
    if let Some(list) = outcome.list_changes::<Message>(channel)? {
        let history = from_langchain_marked(list.marked(only_new), list.skipped(only_new), defaults).map_err(misfit)?;
        return Ok(history.into_iter().filter(|(new, _)| *new || !only_new).map(|(_, message)| message).collect());
    }
    if let Some(list) = outcome.list_changes::<ModelMessage>(channel)? {
        return Ok(list.items(only_new).cloned().collect());
    }
    let no_messages = || HistoryError::NoMessages { channel: channel.into() };
    let list = outcome.list_changes::<Value>(channel)?.ok_or_else(no_messages)?;
    from_value(Value::List(list.items(only_new).cloned().collect()), defaults).map_err(misfit)
}
