//! Streaming a message in chunks. The sum of the chunks is the message.
//!
//! *Absent:* the model, and the stream that delivers the chunks.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{IdSource, Timestamp};
use crate::hash;
use crate::message::{
    Chunk, MergedChunks, Message, MessageError, MessageLike, ToolCallChunk, message_chunk_to_message,
};
use crate::state::erased::message_write;

use super::context::Context;
use super::scope::LivePart;

/// The tag of a message whose chunks are not streamed.
const NOSTREAM: &str = "nostream";

/// The channel of messages, unless another one is named.
const MESSAGES: &str = "messages";

/// A message of a model that arrives in chunks. Each chunk is streamed at once (mode `messages`), as a message of its
/// own ([`Message::is_chunk`]) with the id of the whole; [`finish`](Self::finish) returns the whole, the sum of the
/// chunks ([`Message::plus`]). Made by [`Context::message_stream`].
pub struct MessageStream {
    context: Context,
    id: Option<String>,
    sum: Option<MergedChunks>,
    tags: Arc<[String]>,
    ended: bool,
    /// The channel of the message, if it is persisted while it is streamed, and the interval.
    persists: Option<(Arc<str>, Duration)>,
    started: Timestamp,
    /// The time at which the message was last handed to the store, by a clock that does not jump.
    attempted: Duration,
}

impl Context {
    /// Starts a message of a model that is streamed in chunks (mode `messages`). If the node returns the message, it
    /// is not streamed again.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
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
    /// // The reader adds the chunks up.
    /// let mut shown: Option<Message> = None;
    /// for part in graph.stream((), Chat::update(), &[StreamMode::Messages])? {
    ///     if let StreamData::Message(part) = part?.data {
    ///         shown = Some(match shown.take() {
    ///             Some(sum) => sum.plus(part.message)?,
    ///             None => part.message,
    ///         });
    ///     }
    /// }
    /// let shown = shown.expect("the node said something");
    /// assert_eq!(shown.text(), "Good day");
    /// assert!(shown.chunk.is_some_and(|chunk| chunk.last), "the last chunk says that it is the last");
    /// # Ok(())
    /// # }
    /// ```
    pub fn message_stream(&self) -> MessageStream {
        let host = &self.scope().host;
        MessageStream {
            context: self.clone(),
            id: None,
            sum: None,
            tags: [].into(),
            ended: false,
            persists: host.message_interval().map(|interval| (MESSAGES.into(), interval)),
            started: host.now(),
            attempted: host.elapsed(),
        }
    }

    /// Streams a whole message (mode `messages`) at once, unless it was streamed before, and returns it, with an id if
    /// it had none. If the node returns the message, it is not streamed again.
    pub fn emit_message(&self, mut message: Message) -> Message {
        message.id.get_or_insert_with(|| self.message_id());
        self.show_message(&message, true, [].into());
        message
    }

    /// Streams a message (mode `messages`) at once, and writes it to the channel `messages` as if the node had
    /// returned it (`push_message`). A chunk is streamed as a chunk and becomes whole in the channel. If the node
    /// returns a message with this id, it is not streamed again. A called [`Task`](super::Task) writes to the channel
    /// of its caller's graph, after all nodes of the superstep, as soon as it has ended. Returns the message.
    /// # Errors
    /// [`MessageError`] if `message` cannot be read as a message, or has no id.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
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
        self.push_message_to(MESSAGES, message)
    }

    /// Streams a message and writes it to a channel, as [`push_message`](Self::push_message) does. With an empty name,
    /// or the name of an unknown channel, it is streamed alone.
    ///
    /// # Errors
    /// As [`push_message`](Self::push_message).
    pub fn push_message_to(&self, channel: &str, message: impl Into<MessageLike>) -> Result<Message, MessageError> {
        let message = Message::try_from(message.into())?;
        if message.id.is_none() {
            return Err(MessageError::value("Message ID is required"));
        }
        self.show_message(&message, false, [].into());
        if !channel.is_empty() {
            self.asked().lock().pushed.extend(message_write(channel, &message));
        }
        Ok(message)
    }

    /// Returns an id that is the same when the task runs again.
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

    /// Streams a message or a chunk. `once` leaves it out if it was streamed before.
    fn show_message(&self, message: &Message, once: bool, tags: Arc<[String]>) {
        let host = &self.scope().host;
        if host.shows_messages(self) {
            host.emit(self, LivePart::Message { message: Box::new(message.clone()), once, tags });
        }
    }
}

impl MessageStream {
    /// Sets the id of the message, before its first chunk. Default: an id that is the same when the task runs again.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the tags of its chunks. With the tag `nostream` no chunks are streamed.
    #[must_use]
    pub fn with_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Persists the message so far at an interval, when a chunk arrives, for a channel such as `messages`: after a
    /// crash, an error or a cancelled run it is a [`Partial`](crate::history::Partial) of the thread, and shown by
    /// [`TaskView::partial`](crate::TaskView::partial). The end of the task clears it. Each time, the message so far is
    /// written by the background writer. A run with [`Durability::Exit`](crate::Durability::Exit) and one without a
    /// thread persist nothing. Default: the channel `messages` and the interval of the run
    /// ([`Run::persist_messages_every`](crate::Run::persist_messages_every)).
    #[must_use]
    pub fn persist_every(mut self, channel: &str, interval: Duration) -> Self {
        self.persists = Some((channel.into(), interval));
        self
    }

    /// Returns the id of the message.
    pub fn id(&mut self) -> &str {
        self.id.get_or_insert_with(|| self.context.message_id())
    }

    /// Adds a chunk of text. It waits if the stream is not read.
    pub fn push(&mut self, text: impl Into<String>) {
        self.show(Message::ai(text.into()));
    }

    /// Adds the last chunk of text, marked as the last.
    pub fn push_last(&mut self, text: impl Into<String>) {
        let mut chunk = Chunk::default();
        chunk.last = true;
        self.show_chunk(Message::ai(text.into()), chunk);
    }

    /// Adds a chunk of a tool call. Chunks with one index are joined: first the name and the id, then the text of the
    /// arguments as it arrives.
    ///
    /// # Example
    /// ```
    /// use annals::message::ToolCallChunk;
    /// use annals::message::ToolCall;
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat { #[channel(messages)] messages: Messages }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Chat>::new()
    ///     .node("model", |_: &Chat, context: &Context| {
    ///         let mut answer = context.message_stream();
    ///         answer.push_tool_call_chunk(ToolCallChunk::new(0, "").with_name("weather").with_id("call-1"));
    ///         for args in ["{\"city\": ", "\"Bern\"}"] {
    ///             answer.push_tool_call_chunk(ToolCallChunk::new(0, args));
    ///         }
    ///         Ok(Chat::update().messages([answer.finish()]))
    ///     })
    ///     .edge(START, "model")
    ///     .compile()?;
    /// let chat = graph.invoke((), Chat::update())?;
    /// let call = ToolCall::new("weather", [("city", "Bern")]).with_id("call-1");
    /// assert_eq!(chat.state().messages[0].tool_calls(), [call]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_tool_call_chunk(&mut self, call: ToolCallChunk) {
        self.show_chunk(Message::ai(""), Chunk::new([call]));
    }

    /// Adds a chunk as a provider sent it; a whole message of the model counts as one chunk. The first chunk with an
    /// id gives it to the message, unless the message has one.
    ///
    /// # Errors
    /// [`MessageError`] if `chunk` is not a message of a model, or does not fit the earlier chunks; it is not streamed
    /// then.
    pub fn push_chunk(&mut self, chunk: Message) -> Result<(), MessageError> {
        let mut chunk = chunk.into_chunk_with_calls();
        if self.id.is_none() {
            self.id = chunk.id.take().filter(|id| !id.is_empty());
        }
        chunk.id = Some(self.id().to_owned());
        self.ended |= chunk.chunk.as_ref().is_some_and(|chunk| chunk.last);
        let shown = chunk.clone();
        match &mut self.sum {
            Some(sum) => sum.add(chunk)?,
            None => self.sum = Some(MergedChunks::new(chunk)?),
        }
        if !self.tags.iter().any(|tag| tag == NOSTREAM) {
            self.context.show_message(&shown, false, Arc::clone(&self.tags));
        }
        self.persist();
        Ok(())
    }

    /// Hands the message so far to the store, if its interval has passed.
    fn persist(&mut self) {
        let (Some((channel, interval)), Some(sum)) = (&self.persists, &self.sum) else { return };
        let host = &self.context.scope().host;
        let now = host.elapsed();
        if now.saturating_sub(self.attempted) < *interval {
            return;
        }
        if host.persist_message(&self.context, channel, sum.clone().into_message(), self.started) {
            self.attempted = now;
            self.context.asked().lock().streamed = true;
        }
    }

    /// Ends the message and returns it, the sum of its chunks. Unless one of them was marked as the last, an empty
    /// last chunk is streamed.
    pub fn finish(mut self) -> Message {
        if !self.ended {
            self.push_last("");
        }
        let sum = self.sum.map_or_else(|| Message::ai(""), MergedChunks::into_message);
        message_chunk_to_message(sum)
    }

    fn show_chunk(&mut self, mut message: Message, chunk: Chunk) {
        message.chunk = Some(Box::new(chunk));
        self.show(message);
    }

    fn show(&mut self, chunk: Message) {
        if self.push_chunk(chunk).is_err() {
            unreachable!("text, calls and counts fit any chunk");
        }
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").field("id", &self.id).finish_non_exhaustive()
    }
}
