//! Pieces of a message, as a model streams them.
//!
//! *Absent:* the streaming.

mod add;
mod settle;
mod whole;

pub use add::ChunkSum;
pub use add::add_ai_message_chunks;
pub use whole::message_chunk_to_message;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ToolCallChunk;

/// What makes a message a piece of one.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// Pieces of tool calls; only in messages of the model.
    pub tool_call_chunks: Vec<ToolCallChunk>,
    /// Whether it is known to be the last piece (`chunk_position`); only in messages of the model.
    #[doc(alias = "chunk_position")]
    #[serde(rename = "chunk_position", serialize_with = "write_position", deserialize_with = "read_position")]
    pub last: bool,
}

fn write_position<S: Serializer>(last: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    last.then_some("last").serialize(serializer)
}

fn read_position<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.as_deref() == Some("last"))
}
