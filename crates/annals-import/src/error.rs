//! The errors of reading a source and of writing it into a store.

use std::io;
use std::path::PathBuf;

/// The reason for which an import ended. A record that cannot be read is counted, and does not end an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The name is not one of [`SourceKind`](crate::SourceKind).
    #[error("source {name:?} is not known; the sources are codex, claude-code, goose, opencode, zed and chat")]
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
