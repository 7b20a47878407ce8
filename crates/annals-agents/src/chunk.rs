//! The chunks of a response that streams in, and their sum with its events.
//!
//! Invariant: each part of a response has one start and one end among the events, and a part ends before the next one
//! starts. *Absent:* the connection that delivers the chunks.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context as Waiting, Poll};

use annals_pydantic_ai::{
    DateTime, DefaultSource, FinalResultEvent, FinishReason, ModelResponse, PartEndEvent, PartsError, RequestUsage,
    ResponsePart, ResponseState, StreamEvent, StreamedParts, StreamedText, StreamedThinking, StreamedToolCall,
};
use futures_core::Stream;

use crate::model::ModelError;

/// One chunk of a response. The key is the provider's id of the part that the chunk belongs to; without one, a chunk
/// belongs to the latest part if that is of its kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ResponseChunk {
    /// Text.
    Text {
        /// The key of the part.
        key: Option<String>,
        /// The text.
        text: String,
    },
    /// Thinking.
    Thinking {
        /// The key of the part.
        key: Option<String>,
        /// The chunk.
        chunk: StreamedThinking,
    },
    /// A tool call.
    ToolCall {
        /// The key of the part.
        key: Option<String>,
        /// The chunk.
        chunk: StreamedToolCall,
    },
    /// A whole part.
    Part(ResponsePart),
    /// The usage of the request so far; it replaces the usage of earlier chunks.
    Usage(RequestUsage),
    /// The reason why the model stopped.
    Finish(FinishReason),
    /// The response without its parts: names, ids and details of the provider.
    Meta(Box<ModelResponse>),
}

impl ResponseChunk {
    /// Returns a chunk of text without a key.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { key: None, text: text.into() }
    }
}

/// The chunks of a response, in order.
pub struct ResponseStream(Pin<Box<dyn Stream<Item = Result<ResponseChunk, ModelError>> + Send>>);

impl ResponseStream {
    /// Returns the chunks of a stream.
    pub fn new(stream: impl Stream<Item = Result<ResponseChunk, ModelError>> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// Returns the chunks of an iterator, which are ready at once.
    pub fn ready(
        chunks: impl IntoIterator<Item = Result<ResponseChunk, ModelError>, IntoIter: Send + 'static>,
    ) -> Self {
        Self::new(ReadyChunks(Box::new(chunks.into_iter())))
    }

    /// Returns a response as a stream: one chunk for each part.
    pub fn whole(mut response: ModelResponse) -> Self {
        let parts = std::mem::take(&mut response.parts);
        let meta = ResponseChunk::Meta(Box::new(response));
        Self::ready([meta].into_iter().chain(parts.into_iter().map(ResponseChunk::Part)).map(Ok).collect::<Vec<_>>())
    }

    /// Returns the next chunk, `None` at the end.
    pub async fn next(&mut self) -> Option<Result<ResponseChunk, ModelError>> {
        poll_fn(|waiting| self.0.as_mut().poll_next(waiting)).await
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseStream")
    }
}

/// Chunks that are ready at once.
struct ReadyChunks(Box<dyn Iterator<Item = Result<ResponseChunk, ModelError>> + Send>);

impl Stream for ReadyChunks {
    type Item = Result<ResponseChunk, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Waiting<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// The sum of the chunks so far.
pub(crate) struct ResponseSum {
    parts: StreamedParts,
    response: ModelResponse,
    /// The index of the open part.
    open: Option<i64>,
    /// True once the part that holds the output has started.
    found: bool,
}

/// The outputs that a response can hold.
pub(crate) struct OutputKinds<'a> {
    pub(crate) allows_text: bool,
    pub(crate) tools: &'a [String],
}

impl ResponseSum {
    pub(crate) fn new(now: DateTime) -> Self {
        let response = ModelResponse::new(Vec::new(), now);
        Self { parts: StreamedParts::default(), response, open: None, found: false }
    }

    /// Adds a chunk and appends its events.
    pub(crate) fn push(
        &mut self,
        chunk: ResponseChunk,
        kinds: &OutputKinds<'_>,
        defaults: &mut DefaultSource<'_>,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), PartsError> {
        let event = match chunk {
            ResponseChunk::Text { key, text } => self.parts.text(key.as_deref(), StreamedText::new(&text))?,
            ResponseChunk::Thinking { key, chunk } => self.parts.thinking(key.as_deref(), chunk)?,
            ResponseChunk::ToolCall { key, chunk } => self.parts.tool_call(key.as_deref(), chunk, defaults)?,
            ResponseChunk::Part(part) => Some(self.parts.part(None, part)),
            ResponseChunk::Usage(usage) => {
                self.response.usage = usage;
                None
            }
            ResponseChunk::Finish(reason) => {
                self.response.finish_reason = Some(reason);
                None
            }
            ResponseChunk::Meta(meta) => {
                self.response = *meta;
                None
            }
        };
        if let Some(event) = event {
            self.show(event, kinds, events);
        }
        Ok(())
    }

    /// Appends an event, with the end of the part before a new one, and with the final result.
    fn show(&mut self, event: StreamEvent, kinds: &OutputKinds<'_>, events: &mut Vec<StreamEvent>) {
        let StreamEvent::PartStart(mut start) = event else { return events.push(event) };
        start.previous_part_kind = self.end_part(Some(start.part.kind()), events);
        self.open = Some(start.index);
        let output = match &start.part {
            ResponsePart::Text(_) if kinds.allows_text => Some((None, None)),
            ResponsePart::ToolCall(call) if kinds.tools.contains(&call.tool_name) => {
                Some((Some(call.tool_name.clone()), Some(call.tool_call_id.clone())))
            }
            _ => None,
        };
        events.push(start.into());
        if let Some((tool_name, tool_call_id)) = output.filter(|_| !self.found) {
            self.found = true;
            events.push(FinalResultEvent::new(tool_name, tool_call_id).into());
        }
    }

    /// Ends the open part, and returns its kind.
    pub(crate) fn end_part(&mut self, next: Option<&str>, events: &mut Vec<StreamEvent>) -> Option<String> {
        let index = self.open.take()?;
        let part = self.parts.parts().nth(usize::try_from(index).ok()?)?.clone();
        let kind = part.kind().to_owned();
        let mut end = PartEndEvent::new(index, part);
        end.next_part_kind = next.map(str::to_owned);
        events.push(end.into());
        Some(kind)
    }

    /// Returns the response so far.
    pub(crate) fn response(&self, state: ResponseState) -> ModelResponse {
        let mut response = self.response.clone();
        response.parts = self.parts.parts().cloned().collect();
        response.state = state;
        response
    }
}
