//! What can go wrong with a message.

use crate::base::Value;
use crate::base::value::CodecError;

/// An error of the message model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A required field is missing.
    #[error("a message of type {kind:?} needs the field {field:?}, which is missing")]
    Missing {
        /// The type of message, or the object inside it.
        kind: String,
        /// The field.
        field: &'static str,
    },
    /// A field has a wrong shape.
    #[error("the field {field:?} of a message must be {expected}, not {found}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is, in short.
        found: String,
    },
    /// An object inside a message has a field that is not defined for it.
    #[error("{kind} has an unexpected field {field:?}")]
    Unexpected {
        /// The kind of object.
        kind: &'static str,
        /// The field.
        field: String,
    },
    /// A message that asks for a removal has a content.
    #[error("RemoveMessage does not support 'content' field.")]
    RemoveWithContent,
    /// A removal names a message that is not in the list. The list is unchanged.
    #[error("Attempting to delete a message with an ID that doesn't exist ('{id}')")]
    UnknownId {
        /// The id.
        id: String,
    },
    /// A message to be merged by id has none; call `ensure_ids` before.
    #[error("message {position} of the update has no id; the list is unchanged")]
    NoId {
        /// Its place in the update.
        position: usize,
    },
    /// The stored form cannot be written or read.
    #[error("the stored form of a message: {source}")]
    Codec {
        /// What the codec said.
        #[from]
        source: CodecError,
    },
}

impl MessageError {
    pub(super) fn invalid(field: &'static str, expected: &'static str, value: &Value) -> Self {
        Self::Invalid { field, expected, found: found(value) }
    }
}

/// Names a value in an error without repeating much of it.
fn found(value: &Value) -> String {
    match value {
        Value::Str(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) => value.to_json().to_string(),
        other => format!("a {}", other.kind()),
    }
}
