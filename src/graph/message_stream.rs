//! A message that a node shows while it comes, piece by piece.

use std::sync::Arc;

use crate::base::{IdSource, hash};
use crate::message::{Content, Message, MessageError, MessageLike, ToolCall, Usage};
use crate::state::message_write;

use super::context::Context;
use super::scope::LivePart;

/// What a part of stream mode `messages` is of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessagePiece {
    /// All of it.
    Whole,
    /// A piece, to be added to those before it with the same id.
    Chunk,
    /// The last piece.
    Last,
}

/// The tag of a message whose pieces are not shown.
const NOSTREAM: &str = "nostream";

/// A message of a model that comes in pieces. Each is shown at once in stream mode `messages`; the whole is returned
/// at the end. Made by [`Context::message_stream`].
pub struct MessageStream {
    context: Context,
    message: Message,
    text: String,
    tags: Arc<[String]>,
    ended: bool,
}

impl Context {
    /// Begins a message of the model that is shown piece by piece (stream mode `messages`). Returned by the node at the
    /// end, it is not shown again.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat { #[channel(messages)] messages: Messages }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Chat>::new()
    ///     .node("model", |_: &Chat, context: &Context| {
    ///         let mut answer = context.message_stream();
    ///         for token in ["Good ", "day"] {
    ///             answer.push(token);
    ///         }
    ///         Ok(Chat::update().messages([answer.finish()]))
    ///     })
    ///     .edge(START, "model")
    ///     .compile()?;
    ///
    /// let mut shown = String::new();
    /// for part in graph.stream((), Chat::update(), &[StreamMode::Messages])? {
    ///     if let StreamData::Message(part) = part?.data {
    ///         shown += &part.message.text();
    ///     }
    /// }
    /// assert_eq!(shown, "Good day");
    /// # Ok(())
    /// # }
    /// ```
    pub fn message_stream(&self) -> MessageStream {
        MessageStream {
            context: self.clone(),
            message: Message::ai(""),
            text: String::new(),
            tags: [].into(),
            ended: false,
        }
    }

    /// Shows a message as a whole (stream mode `messages`), at once, unless it was shown before. Returned by the node,
    /// it is not shown again. Returns it, with an id if it had none.
    pub fn emit_message(&self, mut message: Message) -> Message {
        message.id.get_or_insert_with(|| self.message_id());
        self.show_message(&message, MessagePiece::Whole, [].into());
        message
    }

    /// Shows what stands for a message (stream mode `messages`), at once, and writes it to the channel `messages` as if
    /// the node had returned it. A piece of a message is shown as one, and becomes whole in the channel. A message with
    /// this id is not shown again. Returns the message.
    ///
    /// # Errors
    /// [`MessageError`] if it stands for no message, or the message has no id.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat { #[channel(messages)] messages: Messages }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Chat>::new()
    ///     .node("work", |_: &Chat, context: &Context| {
    ///         context.push_message(Message::ai("on my way").with_id("1"))?;
    ///         Ok(Chat::update().messages([Message::ai("done").with_id("2")]))
    ///     })
    ///     .edge(START, "work")
    ///     .compile()?;
    /// let chat = graph.invoke((), Chat::update())?;
    /// assert_eq!(chat.state().messages.iter().map(|m| m.text()).collect::<Vec<_>>(), ["on my way", "done"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_message(&self, message: impl Into<MessageLike>) -> Result<Message, MessageError> {
        self.push_message_to("messages", message)
    }

    /// Shows what stands for a message and writes it to a channel, as [`push_message`](Self::push_message) does. With an
    /// empty name it is shown only, and where there is no such channel as well.
    ///
    /// # Errors
    /// As [`push_message`](Self::push_message).
    pub fn push_message_to(&self, channel: &str, message: impl Into<MessageLike>) -> Result<Message, MessageError> {
        let message = Message::try_from(message.into())?;
        if message.id.is_none() {
            return Err(MessageError::value("Message ID is required"));
        }
        self.show_message(&message, MessagePiece::Whole, [].into());
        if !channel.is_empty() {
            self.asked().lock().pushed.extend(message_write(channel, &message));
        }
        Ok(message)
    }

    /// Returns an id that is the same when the task is run again.
    fn message_id(&self) -> String {
        let number = {
            let mut asked = self.asked().lock();
            asked.messages += 1;
            asked.messages
        };
        let place = format!("{}|message {number}", self.namespace());
        let [a, b, c, d, e, f, g, h, ..] = hash::xxh3_128(place.as_bytes());
        IdSource::from_seed(u64::from_be_bytes([a, b, c, d, e, f, g, h])).uuid_v4().to_string()
    }

    fn show_message(&self, message: &Message, piece: MessagePiece, tags: Arc<[String]>) {
        let host = &self.scope().host;
        if host.shows_messages(self) {
            host.emit(self, LivePart::Message { message: Box::new(message.clone()), piece, tags });
        }
    }
}

impl MessageStream {
    /// Sets the id of the message, before its first piece. Default: one that is the same when the task is run again.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.message.id = Some(id.into());
        self
    }

    /// Sets tags that its parts are shown with. With the tag `nostream` no pieces are shown.
    #[must_use]
    pub fn with_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the id of the message.
    pub fn id(&mut self) -> &str {
        self.message.id.get_or_insert_with(|| self.context.message_id())
    }

    /// Adds a piece of text. It waits if the stream is not read.
    pub fn push(&mut self, text: impl Into<String>) {
        self.show(text.into(), MessagePiece::Chunk);
    }

    /// Adds the last piece of text, for who knows that it is the last.
    pub fn push_last(&mut self, text: impl Into<String>) {
        self.show(text.into(), MessagePiece::Last);
        self.ended = true;
    }

    /// Adds a tool call to the message; it is part of the whole.
    pub fn push_tool_call(&mut self, call: ToolCall) {
        let message = std::mem::replace(&mut self.message, Message::ai(""));
        self.message = message.with_tool_call(call);
    }

    /// Sets the tokens used.
    pub fn set_usage(&mut self, usage: Usage) {
        let message = std::mem::replace(&mut self.message, Message::ai(""));
        self.message = message.with_usage(usage);
    }

    /// Ends the message and returns it. Unless [`MessageStream::push_last`] did, an empty last piece says so.
    pub fn finish(mut self) -> Message {
        if !self.ended {
            self.show(String::new(), MessagePiece::Last);
        }
        self.id();
        self.message.content = Content::Text(std::mem::take(&mut self.text));
        self.message
    }

    fn show(&mut self, text: String, piece: MessagePiece) {
        self.text += &text;
        if self.tags.iter().any(|tag| tag == NOSTREAM) {
            return;
        }
        let id = self.id().to_owned();
        let tags = Arc::clone(&self.tags);
        self.context.show_message(&Message::ai(text).with_id(id), piece, tags);
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").field("id", &self.message.id).field("text", &self.text).finish_non_exhaustive()
    }
}
