//! Errors of the message model.
//!
//! *Absent:* the errors of the code that calls tools and models.

use std::fmt;

use super::text::JsonError;
use annals_base::CodecError;
use annals_base::Value;

/// The class of the error that LangChain raises in the place of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// A value of a right type that cannot be used.
    ValueError,
    /// A field that has a wrong type, or is missing: a kind of `ValueError`.
    ValidationError,
    /// A text that is not JSON: a kind of `ValueError`.
    JsonDecodeError,
    /// A wrong argument.
    TypeError,
    /// A member that must be there.
    KeyError,
    /// An attribute that the object does not have.
    AttributeError,
    /// A shape without a conversion.
    NotImplementedError,
    /// A write that its channel refuses.
    InvalidUpdateError,
}

impl ErrorClass {
    /// Returns the name of the class in Python.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ValueError => "ValueError",
            Self::ValidationError => "ValidationError",
            Self::JsonDecodeError => "JSONDecodeError",
            Self::TypeError => "TypeError",
            Self::KeyError => "KeyError",
            Self::AttributeError => "AttributeError",
            Self::NotImplementedError => "NotImplementedError",
            Self::InvalidUpdateError => "InvalidUpdateError",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error of the message model. A fault inside a message is named by its path: `messages[3].content[0]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A required field is missing.
    #[error("{path}: {kind} needs it, and it is missing")]
    Missing {
        /// The path of the field.
        path: String,
        /// The type of message, or of the object inside it.
        kind: &'static str,
        /// The class of LangChain's error.
        class: ErrorClass,
    },
    /// A field has a wrong shape.
    #[error("{}expected {expected}, found {found}", before(.path))]
    Invalid {
        /// The path of the field.
        path: String,
        /// The expected shape.
        expected: &'static str,
        /// An excerpt of the value.
        found: String,
    },
    /// An object inside a message has a field that is not defined for it.
    #[error("{path}: {kind} has no such field")]
    Unexpected {
        /// The path of the field.
        path: String,
        /// The kind of object.
        kind: &'static str,
    },
    /// The request is refused.
    #[error("{}{reason}", before(.path.as_deref().unwrap_or_default()))]
    Refused {
        /// The path, if the fault is in a part of the argument.
        path: Option<String>,
        /// Why, in the words of LangChain where it has some.
        reason: String,
        /// The class of LangChain's error.
        class: ErrorClass,
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
    #[error("the stored format of a message: {source}")]
    Codec {
        /// The error of the codec.
        #[from]
        source: CodecError,
    },
}

impl MessageError {
    /// Returns the class of the error that LangChain raises.
    ///
    /// # Example
    /// ```
    /// use annals_base::Value;
    /// use annals_messages::{ErrorClass, Message};
    ///
    /// let error = Message::try_from(Value::from(serde_json::json!({"type": "human", "content": [5]}))).unwrap_err();
    /// assert_eq!(error.class(), ErrorClass::ValidationError);
    /// assert_eq!(error.to_string(), "content[0]: expected a text or an object, found 5");
    /// ```
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { class, .. } | Self::Refused { class, .. } => *class,
            Self::Invalid { .. } => ErrorClass::ValidationError,
            Self::Unexpected { .. } => ErrorClass::TypeError,
            Self::RemoveWithContent | Self::UnknownId { .. } | Self::NoId { .. } | Self::Codec { .. } => {
                ErrorClass::ValueError
            }
        }
    }

    /// Creates the error of a field at `path` that has a wrong shape; `value` is shown in short.
    pub(crate) fn invalid(path: impl Into<String>, expected: &'static str, value: &Value) -> Self {
        Self::Invalid { path: path.into(), expected, found: value.excerpt() }
    }

    /// A missing field that LangChain's models require.
    pub(super) fn missing(kind: &'static str, path: impl Into<String>) -> Self {
        Self::Missing { path: path.into(), kind, class: ErrorClass::ValidationError }
    }

    /// A missing member that LangChain looks up by its name.
    pub(super) fn key(kind: &'static str, path: impl Into<String>) -> Self {
        Self::Missing { path: path.into(), kind, class: ErrorClass::KeyError }
    }

    /// A missing argument of one of LangChain's functions.
    pub(super) fn argument(kind: &'static str, path: impl Into<String>) -> Self {
        Self::Missing { path: path.into(), kind, class: ErrorClass::TypeError }
    }

    pub(crate) fn refused(class: ErrorClass, reason: impl Into<String>) -> Self {
        Self::Refused { path: None, reason: reason.into(), class }
    }

    /// Creates an error with a reason, of the class `ValueError`.
    pub fn value(reason: impl Into<String>) -> Self {
        Self::refused(ErrorClass::ValueError, reason)
    }

    pub(super) fn wrong_type(reason: impl Into<String>) -> Self {
        Self::refused(ErrorClass::TypeError, reason)
    }

    /// Puts the path of the object before the path of the fault in it: `messages[3]` before `content[0]`.
    #[must_use]
    pub(crate) fn within(mut self, place: impl fmt::Display) -> Self {
        match &mut self {
            Self::Missing { path, .. } | Self::Invalid { path, .. } | Self::Unexpected { path, .. } => {
                let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                *path = format!("{place}{dot}{path}");
            }
            Self::Refused { path, .. } => {
                let inner = path.take().unwrap_or_default();
                let dot = if inner.is_empty() || inner.starts_with('[') { "" } else { "." };
                *path = Some(format!("{place}{dot}{inner}"));
            }
            Self::RemoveWithContent | Self::UnknownId { .. } | Self::NoId { .. } | Self::Codec { .. } => {}
        }
        self
    }
}

/// Returns what stands before an error in a field; nothing if it is in no field.
fn before(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// A text that is not JSON, or not JSON within the limits.
impl From<JsonError> for MessageError {
    fn from(error: JsonError) -> Self {
        Self::refused(ErrorClass::JsonDecodeError, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_grow_from_the_inside_out() {
        let error =
            MessageError::invalid("[0].text", "a text", &Value::from(5)).within("content").within("messages[3]");
        assert_eq!(error.to_string(), "messages[3].content[0].text: expected a text, found 5");
        let error = MessageError::value("no such role").within("messages[1]");
        assert_eq!((error.to_string().as_str(), error.class()), ("messages[1]: no such role", ErrorClass::ValueError));
        assert_eq!(MessageError::value("no such role").to_string(), "no such role");
        assert_eq!(MessageError::invalid("", "an object", &Value::Null).to_string(), "expected an object, found null");
        let error = MessageError::key("a tool message", "tool_call_id").within("[2]");
        assert_eq!(error.to_string(), "[2].tool_call_id: a tool message needs it, and it is missing");
        assert_eq!(error.class().to_string(), "KeyError");
    }
}
