//! Chunks of a message, as a model streams them.
//!
//! *Absent:* the streaming.

mod add;
mod places;
mod settle;
mod whole;

pub use add::MergedChunks;
pub use add::add_ai_message_chunks;
pub use whole::message_chunk_to_message;

use super::construct::take_chunk;
use super::tool::object;
use super::{MessageError, ToolCallChunk};
use annals_base::{Value, ValueView};

/// The fields that only a chunk of a message has.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Chunk {
    /// Chunks of tool calls; only in messages of the model.
    pub tool_call_chunks: Vec<ToolCallChunk>,
    /// True if the chunk is known to be the last (`chunk_position`); only in messages of the model.
    #[doc(alias = "chunk_position")]
    pub last: bool,
}

impl Chunk {
    /// Returns the fields of a chunk with these chunks of tool calls, which is not known to be the last.
    pub fn new(tool_call_chunks: impl IntoIterator<Item = ToolCallChunk>) -> Self {
        Self { tool_call_chunks: tool_call_chunks.into_iter().collect(), last: false }
    }

    /// Returns the fields in the order of LangChain.
    pub(super) fn fields(&self) -> [(&'static str, ValueView<'_>); 2] {
        let chunks = self.tool_call_chunks.iter().map(ToolCallChunk::view).collect();
        [("tool_call_chunks", chunks), ("chunk_position", self.last.then_some("last").into())]
    }

    pub(super) fn view(&self) -> ValueView<'_> {
        ValueView::Fields(self.fields().into())
    }
}

impl TryFrom<Value> for Chunk {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        take_chunk(&mut object("", value)?)
    }
}
