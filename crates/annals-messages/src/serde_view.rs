//! Serde of the public types: each is written by its view and read from a dynamic value, by one function for all
//! formats.
//!
//! *Absent:* the dictionary forms themselves, which stand beside the types.

/// Implements `Serialize` by `view()` and `Deserialize` by `TryFrom<Value>`.
macro_rules! by_view {
    ($($name:ty),+ $(,)?) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&self.view(), serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <annals_base::Value as serde::Deserialize>::deserialize(deserializer)?;
                Self::try_from(value).map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use by_view;

use super::{
    Ai, Chunk, Content, InvalidToolCall, Message, MessageClass, Role, Tool, ToolCall, ToolCallChunk, ToolStatus, Usage,
};

by_view!(
    Ai,
    Chunk,
    Content,
    InvalidToolCall,
    Message,
    MessageClass,
    Role,
    Tool,
    ToolCall,
    ToolCallChunk,
    ToolStatus,
    Usage
);
