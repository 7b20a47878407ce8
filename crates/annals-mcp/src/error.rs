//! Why a tool was refused. The message names the field and the limit.

use annals::store::StoreError;

/// The error of a tool call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("{field} is missing: this tool requires it")]
    Missing { field: &'static str },
    #[error("{field} is not a field of this tool, whose fields are {known}")]
    UnknownField { field: String, known: String },
    #[error("{field} is not {expected}")]
    Type { field: &'static str, expected: String },
    #[error("{field} has {bytes} bytes; the limit is {limit}")]
    TooLong { field: &'static str, bytes: usize, limit: usize },
    #[error("{field} is {value}; the limits are {min} and {max}")]
    OutOfRange { field: &'static str, value: String, min: u64, max: u64 },
    #[error("{field} is not valid: {reason}")]
    Invalid { field: &'static str, reason: String },
    #[error("{what}")]
    NotFound { what: String },
    #[error("thread {thread} exists already; nothing was written")]
    ThreadExists { thread: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] annals::Error),
}

impl ToolError {
    /// Returns the code of the error, which stays the same in later versions.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "MISSING_FIELD",
            Self::UnknownField { .. } => "UNKNOWN_FIELD",
            Self::Type { .. } => "WRONG_TYPE",
            Self::TooLong { .. } => "TOO_LONG",
            Self::OutOfRange { .. } => "OUT_OF_RANGE",
            Self::Invalid { .. } => "INVALID_ARGUMENT",
            Self::NotFound { .. } => "NOT_FOUND",
            Self::ThreadExists { .. } => "THREAD_EXISTS",
            Self::Store(error) => error.code(),
            Self::Engine(error) => error.code().unwrap_or("FAILED"),
        }
    }

    /// Returns the field at fault, if one is.
    pub(crate) fn field(&self) -> Option<&str> {
        match self {
            Self::Missing { field }
            | Self::Type { field, .. }
            | Self::TooLong { field, .. }
            | Self::OutOfRange { field, .. }
            | Self::Invalid { field, .. } => Some(field),
            Self::UnknownField { field, .. } => Some(field),
            _ => None,
        }
    }
}
