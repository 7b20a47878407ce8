//! The one error type at the root: opaque, with a kind and predicates.

use std::fmt;

use crate::base::CodecError;
use crate::base::IdError;
use crate::base::internal::write_with_sources;
use crate::message::MessageError;
use crate::state::StateError;
use crate::store::StoreError;

/// The result of a call into `annals`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of `annals`. Its message states the situation, its [`kind`](Error::kind) how to react.
///
/// The floor's own error is behind [`std::error::Error::source`] and the `as_*` methods.
pub struct Error(Box<EngineError>);

#[derive(Debug)]
enum EngineError {
    Store(StoreError),
    State(StateError),
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A run on the thread was faster. Nothing was written.
    Conflict,
    /// Another process is writing, a reader is in the way, or another owner has the lease of the thread; repeating is
    /// safe.
    Busy,
    /// It is not known whether the last commit is stored; repeating it is safe.
    OutcomeUnknown,
    /// The file is damaged, or it is not a store.
    Corrupt,
    /// Another program has changed the schema of the file: it has an index, view or trigger too many, or one is missing
    /// or differs. The rows are not damaged by that.
    SchemaChanged,
    /// The file was written by a newer version.
    NewerFormat,
    /// The file was written by a build before the first release.
    UnreleasedFormat,
    /// A thread, checkpoint or node does not exist.
    NotFound,
    /// An argument, id, graph or value is not valid.
    Invalid,
    /// A node, path or reducer of the user failed.
    User,
    /// The disk or the operating system refused.
    Io,
    /// The run, or a node of it, did not end within its limits.
    Limit,
}

impl ErrorKind {
    /// Returns true if nothing was written, so that repeating the call is safe and may succeed: for
    /// [`Busy`](Self::Busy) and [`Conflict`](Self::Conflict).
    ///
    /// # Example
    /// ```
    /// use annals::ErrorKind;
    ///
    /// assert!(ErrorKind::Busy.is_retryable() && ErrorKind::Conflict.is_retryable());
    /// assert!(!ErrorKind::OutcomeUnknown.is_retryable(), "the last commit may be stored");
    /// ```
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Busy | Self::Conflict)
    }
}

impl Error {
    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            EngineError::Store(error) => store_kind(error),
            EngineError::State(error) => {
                if error.is_user() {
                    ErrorKind::User
                } else {
                    ErrorKind::Invalid
                }
            }
        }
    }

    /// Returns the error code of the field, as `INVALID_CONCURRENT_GRAPH_UPDATE`, if it has one; of an error of the
    /// store
    /// [its own](StoreError::code).
    pub fn code(&self) -> Option<&'static str> {
        match &*self.0 {
            EngineError::Store(error) => Some(error.code()),
            EngineError::State(error) => error.code(),
        }
    }

    /// Returns the name of the error class that LangGraph raises in its place, as `InvalidUpdateError`; `Exception`
    /// where it has none.
    pub fn class(&self) -> &'static str {
        match &*self.0 {
            EngineError::Store(error) => error.class(),
            EngineError::State(error) => error.class(),
        }
    }

    /// Returns whether another run on the thread was faster.
    pub fn is_conflict(&self) -> bool {
        self.kind() == ErrorKind::Conflict
    }

    /// Returns whether repeating the call may succeed and is safe.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Returns whether a node, path or reducer of the user failed.
    pub fn is_user(&self) -> bool {
        self.kind() == ErrorKind::User
    }

    /// Returns the error of the store, or else this one.
    pub(crate) fn into_store(self) -> Result<StoreError, Self> {
        match *self.0 {
            EngineError::Store(error) => Ok(error),
            error => Err(Self(Box::new(error))),
        }
    }

    /// Returns the error of the store, if it is one.
    pub fn as_store(&self) -> Option<&StoreError> {
        match &*self.0 {
            EngineError::Store(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error of a state or a schema, if it is one.
    pub fn as_state(&self) -> Option<&StateError> {
        match &*self.0 {
            EngineError::State(error) => Some(error),
            _ => None,
        }
    }
}

fn store_kind(error: &StoreError) -> ErrorKind {
    use StoreError as E;
    match error {
        E::Conflict { .. } | E::StaleId { .. } | E::FieldConflict { .. } | E::LeaseLost { .. } => ErrorKind::Conflict,
        E::Busy { .. } | E::WalLimit { .. } | E::Leased { .. } | E::LeaseLimit { .. } => ErrorKind::Busy,
        E::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        E::NotAStore { .. } | E::Corrupt { .. } => ErrorKind::Corrupt,
        E::SchemaChanged { .. } => ErrorKind::SchemaChanged,
        E::NewerFormat { .. } => ErrorKind::NewerFormat,
        E::UnreleasedFormat { .. } => ErrorKind::UnreleasedFormat,
        E::ThreadNotFound { .. }
        | E::CheckpointNotFound { .. }
        | E::CheckpointPruned { .. }
        | E::InterruptNotOpen { .. }
        | E::BranchNotFound { .. } => ErrorKind::NotFound,
        E::HandleClosed { .. } | E::FileReplaced { .. } | E::ForeignLog { .. } | E::LogMissing { .. } => ErrorKind::Io,
        E::Write { .. } | E::Read { .. } | E::Open { .. } | E::ReadOnly => ErrorKind::Io,
        _ => ErrorKind::Invalid,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            EngineError::Store(error) => error.fmt(f),
            EngineError::State(error) => error.fmt(f),
        }
    }
}

/// Writes the message and the chain of sources, with which `fn main() -> annals::Result<()>` ends; with `{:#?}` the
/// fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return fmt::Debug::fmt(&self.0, f);
        }
        write_with_sources(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            EngineError::Store(error) => error.source(),
            EngineError::State(error) => error.source(),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self(Box::new(EngineError::Store(error)))
    }
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        Self(Box::new(EngineError::State(error)))
    }
}

macro_rules! through {
    ($($from:ty => $via:ty),* $(,)?) => {$(
        impl From<$from> for Error {
            fn from(error: $from) -> Self {
                <$via>::from(error).into()
            }
        }
    )*};
}
through! { IdError => StoreError, CodecError => StoreError }

impl From<MessageError> for Error {
    fn from(error: MessageError) -> Self {
        StateError::Message { channel: "messages".into(), source: error }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_message_and_each_source_once() {
        let full = || std::io::Error::other("the disk is full");
        let failed = StoreError::Write { reason: "the log".into(), source: Some(Box::new(full())) };
        let error = Error::from(failed);
        let shown = format!("{error:?}");
        assert!(shown.starts_with(&error.to_string()), "{shown}");
        assert_eq!(shown.matches("the disk is full").count(), 1, "{shown}");
        assert!(format!("{error:#?}").contains("Write {"), "the fields are there too");

        let channel = std::sync::Arc::from("total");
        let error = Error::from(StateError::Panicked { channel, reason: "overflow".into() });
        assert_eq!(format!("{error:?}"), "the reducer of channel \"total\" panicked: overflow");
    }
}
