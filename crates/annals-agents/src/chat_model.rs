//! The port for models over LangChain's messages.
//!
//! *Absent:* clients of providers; see `model.rs` for the port over PydanticAI's messages, which [`ModelChat`] adapts.

use std::fmt;
use std::sync::Arc;

use annals_base::{Clock, IdSource, SystemClock};
use annals_messages::Message;
use annals_pydantic_ai::{DefaultSource, from_langchain, to_langchain};

use crate::history::KnownHistory;
use crate::model::{Model, ModelCall, ModelError, ModelFuture, ModelSettings, OutputRequest, ToolDefinition};
use crate::prompts::prepared;

/// One request to a [`ChatModel`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChatCall {
    /// The messages, with the prompt as a leading system message.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
}

/// A model that a [`ReactAgent`](crate::ReactAgent) asks: a function from a [`ChatCall`] to a message, or a type with
/// an asynchronous client. [`ModelChat`] makes one of a [`Model`].
///
/// # Example
/// ```
/// use annals_agents::{ChatCall, ChatModel, ModelError, ModelFuture};
/// use annals_messages::Message;
///
/// struct Client;
///
/// impl ChatModel for Client {
///     fn respond<'a>(&'a self, call: &'a ChatCall) -> ModelFuture<'a, Message> {
///         Box::pin(async move { Ok(Message::ai(format!("{} messages", call.messages.len()))) })
///     }
/// }
/// ```
pub trait ChatModel: Send + Sync + 'static {
    /// Asks the model.
    ///
    /// # Errors
    /// [`ModelError`], which tells whether another attempt can succeed.
    fn respond<'a>(&'a self, call: &'a ChatCall) -> ModelFuture<'a, Message>;
}

impl<F> ChatModel for F
where
    F: Fn(&ChatCall) -> Result<Message, ModelError> + Send + Sync + 'static,
{
    fn respond<'a>(&'a self, call: &'a ChatCall) -> ModelFuture<'a, Message> {
        Box::pin(std::future::ready(self(call)))
    }
}

/// A [`Model`] as a [`ChatModel`]: the messages are converted for each request.
pub struct ModelChat<M>(pub M);

impl<M> fmt::Debug for ModelChat<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelChat")
    }
}

impl<M: Model> ChatModel for ModelChat<M> {
    fn respond<'a>(&'a self, call: &'a ChatCall) -> ModelFuture<'a, Message> {
        Box::pin(async move {
            let mut ids = IdSource::new();
            let history = from_langchain(&call.messages, &mut DefaultSource::new(&SystemClock, &mut ids));
            let history = history.map_err(ModelError::fatal)?;
            let asked = ModelCall {
                messages: prepared(Arc::new(history), &self.0, &KnownHistory::default()),
                instructions: None,
                tools: call.tools.clone(),
                output_tools: Vec::new(),
                output: OutputRequest::Plain,
                allows_text: true,
                settings: ModelSettings::default(),
                clock: SystemClock.now(),
            };
            let response = self.0.request(&asked).await?;
            let messages = to_langchain(&[response.into()], false).map_err(ModelError::fatal)?;
            let message = messages.into_iter().find(|message| matches!(message.role, annals_messages::Role::Ai(_)));
            message.ok_or_else(|| ModelError::fatal("the response has no message"))
        })
    }
}
