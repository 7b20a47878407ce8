//! Whole messages from chunks, and messages as chunks.

use crate::{Message, Role};
use annals_base::Map;

/// Returns the whole message of which a chunk is all there is, without its extra fields, as LangChain does. A whole
/// message stays as it is.
///
/// # Example
/// ```
/// use annals_messages::{Message, message_chunk_to_message};
///
/// assert_eq!(message_chunk_to_message(Message::ai_chunk("hello")), Message::ai("hello"));
/// ```
pub fn message_chunk_to_message(mut message: Message) -> Message {
    if message.chunk.take().is_some() {
        message.extra = Map::new();
    }
    message
}

impl Message {
    /// Makes the whole message a chunk, its tool calls chunks of calls. A removal and an unknown message stay as they
    /// are.
    pub fn into_chunk_with_calls(self) -> Self {
        let mut chunk = self.into_chunk();
        if chunk.tool_calls().is_empty() && chunk.invalid_tool_calls().is_empty() {
            chunk.read_raw_chunks();
        }
        chunk.settle();
        debug_assert!(chunk.is_chunk() || matches!(chunk.role, Role::Remove | Role::Other { .. }), "it is a chunk");
        chunk
    }
}
