//! The receiver of sessions and of records that were not understood.

use crate::error::{ImportError, SourceFault};
use crate::model::{SourceKind, SourceSession, UnknownRecord};

/// The receiver of sessions and unknown records. Parents come before their forks and before the sessions that they
/// started.
pub trait SessionSink {
    /// Takes a session.
    ///
    /// # Errors
    /// An error ends the import.
    fn session(&mut self, session: SourceSession) -> Result<(), ImportError>;

    /// Takes a record that was not understood.
    ///
    /// # Errors
    /// An error ends the import.
    fn unknown(&mut self, record: UnknownRecord) -> Result<(), ImportError>;

    /// Takes the number of files that were read, of those found.
    fn progress(&mut self, _done: usize, _found: usize) {}
}

/// The receiver together with the program whose files are being read.
pub(crate) struct ReadOutput<'a> {
    pub(crate) sink: &'a mut dyn SessionSink,
    pub(crate) source: Option<SourceKind>,
}

impl ReadOutput<'_> {
    pub(crate) fn session(&mut self, session: SourceSession) -> Result<(), ImportError> {
        self.sink.session(session)
    }

    pub(crate) fn unknown(
        &mut self,
        kind: impl Into<String>,
        place: impl Into<String>,
        raw: impl Into<String>,
    ) -> Result<(), ImportError> {
        let (kind, place, raw) = (kind.into(), place.into(), raw.into());
        self.sink.unknown(UnknownRecord { source: self.source, kind, place, raw, limit: None })
    }

    /// Reports a part of the source that cannot be read.
    pub(crate) fn fault(&mut self, fault: SourceFault, place: impl Into<String>) -> Result<(), ImportError> {
        let (kind, raw, limit) = match fault {
            SourceFault::NotJson => ("not_json", String::new(), None),
            SourceFault::Frame(reason) => ("broken_frame", reason, None),
            SourceFault::Unreadable(reason) => ("unreadable", reason, None),
            SourceFault::TooLarge(limit) => ("too_large", limit.to_string(), Some(limit)),
        };
        let (kind, place) = (kind.to_owned(), place.into());
        self.sink.unknown(UnknownRecord { source: self.source, kind, place, raw, limit })
    }
}

/// A receiver that drops everything: for a file that is read a second time.
pub(crate) struct Silent;

impl SessionSink for Silent {
    fn session(&mut self, _: SourceSession) -> Result<(), ImportError> {
        Ok(())
    }

    fn unknown(&mut self, _: UnknownRecord) -> Result<(), ImportError> {
        Ok(())
    }
}
