//! The errors of reading a source and of writing it into a store.

use std::path::PathBuf;
use std::{fmt, io};

/// A part of a source that exceeds a limit of the importers. It is counted as `too_large`, and the import goes on
/// behind it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: more than {limit}")]
#[non_exhaustive]
pub struct SourceLimit {
    /// The field with its unit, such as `bytes of a line`.
    pub field: &'static str,
    /// The limit.
    pub limit: u64,
}

impl SourceLimit {
    pub(crate) fn new(field: &'static str, limit: u64) -> Self {
        Self { field, limit }
    }

    /// Returns the limit as an error of a reader.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self)
    }
}

/// The reason for which a part of a source cannot be read. It is counted, and the import goes on.
#[derive(Debug)]
pub(crate) enum SourceFault {
    /// The text is not JSON.
    NotJson,
    /// A number of the text is too large to be stored.
    NumberRange,
    /// A compressed frame is damaged.
    Frame(String),
    /// The operating system refused a read.
    Unreadable(String),
    TooLarge(SourceLimit),
}

impl SourceFault {
    /// Returns the kind under which it is counted.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::NumberRange => "number_too_large",
            Self::Frame(_) => "broken_frame",
            Self::Unreadable(_) => "unreadable",
            Self::TooLarge(_) => "too_large",
        }
    }
}

impl fmt::Display for SourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("it is not JSON"),
            Self::NumberRange => f.write_str("a number is too large to be stored"),
            Self::Frame(reason) | Self::Unreadable(reason) => f.write_str(reason),
            Self::TooLarge(limit) => limit.fmt(f),
        }
    }
}

impl From<SourceLimit> for SourceFault {
    fn from(limit: SourceLimit) -> Self {
        Self::TooLarge(limit)
    }
}

impl From<io::Error> for SourceFault {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<SourceLimit>()) {
            Some(limit) => Self::TooLarge(limit.clone()),
            None if error.kind() == io::ErrorKind::InvalidData => Self::Frame(error.to_string()),
            None => Self::Unreadable(error.to_string()),
        }
    }
}

/// The reason for which an import ended. A record that cannot be read is counted, and does not end an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The name is not one of [`SourceKind`](crate::SourceKind).
    #[error("source {name:?} is not known; the sources are {}", crate::sources::names())]
    UnknownSource {
        /// The name, cut to 64 characters.
        name: String,
    },
    /// A file or folder of the source cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A message or an id of the source does not fit into the store.
    #[error("session {session:?}: {reason}")]
    Message {
        /// The id of the session in its source.
        session: String,
        /// The reason, with the limit.
        reason: String,
    },
    /// The store refused a call. The sessions before it are stored.
    #[cfg(feature = "store")]
    #[error(transparent)]
    Store(#[from] annals::Error),
}

#[cfg(feature = "store")]
impl From<annals::store::StoreError> for ImportError {
    fn from(error: annals::store::StoreError) -> Self {
        Self::Store(error.into())
    }
}

impl ImportError {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}
