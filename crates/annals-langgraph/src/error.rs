//! Errors of the saver.

use std::path::PathBuf;

use annals::store::StoreError;

/// A call of the saver failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaverError {
    /// A field is not valid. Nothing was written.
    #[error("{field} is not valid: {reason}; nothing was written")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The reason, with the limit.
        reason: String,
    },
    /// Another writer has continued the parent, which this saver had handed out as the newest checkpoint. Nothing was
    /// written.
    #[error(
        "another writer has continued checkpoint {parent} of thread {thread:?}, the head is {head} now; nothing was \
         written"
    )]
    Conflict {
        /// The thread.
        thread: String,
        /// The namespace.
        namespace: String,
        /// The parent of the put.
        parent: String,
        /// The head.
        head: String,
    },
    /// The call is not possible on what is stored. Nothing was written.
    #[error("{feature} is not possible: {reason}; nothing was written")]
    Unsupported {
        /// The feature.
        feature: &'static str,
        /// The reason.
        reason: String,
    },
    /// A database cannot be read. Checkpoints that were read of it before are stored.
    #[error("{} cannot be read: {reason}; {stored} checkpoints of it were stored", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// The checkpoints that were stored before.
        stored: u64,
    },
    /// A database cannot be written. A file that had been at the path is unchanged, and no other one is left there.
    #[error("{} cannot be written: {reason}; the path is as it was before", path.display())]
    Target {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SaverError {
    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    /// Returns the name of the class of Python's exceptions that a caller expects: `ValueError`, `OperationalError`,
    /// ...
    pub fn class(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "ValueError",
            Self::Conflict { .. } => "Exception",
            Self::Unsupported { .. } => "NotImplementedError",
            Self::Source { .. } | Self::Target { .. } => "OSError",
            Self::Store(error) => error.class(),
        }
    }

    /// Returns the code of the error: `INVALID_ARGUMENT`, `CONFLICT`, ...
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID_ARGUMENT",
            Self::Conflict { .. } => "CONFLICT",
            Self::Unsupported { .. } => "UNSUPPORTED",
            Self::Source { .. } => "UNREADABLE_SOURCE",
            Self::Target { .. } => "UNWRITABLE_TARGET",
            Self::Store(error) => error.code(),
        }
    }
}

impl From<annals_base::IdError> for SaverError {
    fn from(error: annals_base::IdError) -> Self {
        Self::Store(error.into())
    }
}

/// The result of a call of the saver.
pub type Result<T, E = SaverError> = std::result::Result<T, E>;
