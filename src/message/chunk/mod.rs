//! Pieces of a message, as a model streams them.
//!
//! *Absent:* the streaming.

mod add;
mod settle;
mod whole;

pub use add::add_ai_message_chunks;
pub use whole::message_chunk_to_message;

use super::ToolCallChunk;

/// What makes a message a piece of one.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Chunk {
    /// Pieces of tool calls; only in messages of the model.
    pub tool_call_chunks: Vec<ToolCallChunk>,
    /// Whether it is known to be the last piece (`chunk_position`); only in messages of the model.
    #[doc(alias = "chunk_position")]
    pub last: bool,
}
