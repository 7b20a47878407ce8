//! Models of [`annals_agents`] by way of clients of providers. Each is one short file to copy and change.
//!
//! | type | client | servers |
//! | --- | --- | --- |
//! | [`OpenAiModel`] | async-openai | those with OpenAI's chat completions, on this machine or elsewhere |
//! | [`GenaiModel`] | genai | those of all providers that genai knows |
//!
//! An error that a later request can escape (429, 5xx, a broken connection, a stream that was cut off) is transient:
//! the agent asks again, by its policy. The clients themselves do not repeat a request.
//!
//! *Absent:* signatures of thoughts, and the settings `parallel_tool_calls` and `extra` with genai.

mod genai_model;
mod openai_model;

use annals_agents::{ModelError, ResponseChunk, ResponseStream};
use futures::{Stream, StreamExt, stream};

pub use genai_model::GenaiModel;
pub use openai_model::OpenAiModel;

/// Returns whether a request that a server has refused can succeed later. An account without credit is told by 429 too.
fn can_retry(status: u16, told: &str) -> bool {
    matches!(status, 408 | 409 | 429 | 500..) && !told.contains("insufficient_quota")
}

/// Returns the chunks of a stream of events. `read` returns those of an event, and whether it ends the response: a
/// stream without such an event was cut off.
fn stream_of<E: Send + 'static>(
    events: impl Stream<Item = Result<E, ModelError>> + Send + 'static,
    read: impl Fn(E) -> Result<(Vec<ResponseChunk>, bool), ModelError> + Send + 'static,
) -> ResponseStream {
    let mut has_ended = false;
    let chunks = events.map(Some).chain(stream::iter([None])).map(move |event| {
        let chunks = match event {
            Some(event) => event.and_then(&read),
            None if has_ended => Ok((Vec::new(), true)),
            None => Err(ModelError::transient("the stream ended before the response did")),
        };
        has_ended |= chunks.as_ref().is_ok_and(|(_, ends)| *ends);
        chunks.map_or_else(|error| vec![Err(error)], |(chunks, _)| chunks.into_iter().map(Ok).collect())
    });
    ResponseStream::new(chunks.flat_map(stream::iter))
}
