//! The receiver of sessions and of records that were not understood.

use crate::error::{ImportError, SourceFault};
use crate::json;
use crate::model::{SourceSession, UnknownRecord};
use crate::sources::SourceKind;

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

    /// Takes a file that makes no thread: its path within the folder, and the kind under which it was counted. If
    /// `is_whole` is false, the kind is that of its first record that was not understood.
    fn without_thread(&mut self, _file: &str, _kind: &str, _is_whole: bool) {}

    /// Takes the number of files that were read, of those found.
    fn progress(&mut self, _done: usize, _found: usize) {}
}

/// The receiver together with the program whose files are being read.
pub(crate) struct ReadOutput<'a> {
    pub(crate) sink: &'a mut dyn SessionSink,
    pub(crate) source: Option<SourceKind>,
    /// The number of sessions.
    sessions: u64,
    /// The kind of the first unknown record of the file that is being read.
    first_kind: Option<String>,
}

impl<'a> ReadOutput<'a> {
    pub(crate) fn new(sink: &'a mut dyn SessionSink, source: Option<SourceKind>) -> Self {
        Self { sink, source, sessions: 0, first_kind: None }
    }

    pub(crate) fn session(&mut self, session: SourceSession) -> Result<(), ImportError> {
        self.sessions += 1;
        self.sink.session(session)
    }

    /// Reads a file, and reports it if it makes no session.
    pub(crate) fn file(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let before = self.sessions;
        self.first_kind = None;
        read(self)?;
        match self.first_kind.take() {
            _ if self.sessions > before => Ok(()),
            Some(kind) => {
                self.sink.without_thread(name, &kind, false);
                Ok(())
            }
            None => self.whole("empty_file", name),
        }
    }

    /// Reports a file that makes no session.
    pub(crate) fn whole(&mut self, kind: &str, name: &str) -> Result<(), ImportError> {
        self.sink.without_thread(name, kind, true);
        self.unknown(kind, name, "")
    }

    /// Reports a file that cannot be read.
    pub(crate) fn whole_fault(&mut self, fault: SourceFault, name: &str) -> Result<(), ImportError> {
        self.sink.without_thread(name, fault.kind(), true);
        self.fault(fault, name)
    }

    pub(crate) fn unknown(
        &mut self,
        kind: impl Into<String>,
        place: impl Into<String>,
        raw: impl Into<String>,
    ) -> Result<(), ImportError> {
        self.record(UnknownRecord::new(kind, place, json::restored(raw.into())))
    }

    fn record(&mut self, mut record: UnknownRecord) -> Result<(), ImportError> {
        self.first_kind.get_or_insert_with(|| record.kind.clone());
        record.source = self.source;
        self.sink.unknown(record)
    }

    /// Reports a part of the source that cannot be read.
    pub(crate) fn fault(&mut self, fault: SourceFault, place: impl Into<String>) -> Result<(), ImportError> {
        let kind = fault.kind();
        let (raw, limit) = match fault {
            SourceFault::NotJson | SourceFault::NumberRange => (String::new(), None),
            SourceFault::Frame(reason) | SourceFault::Unreadable(reason) => (reason, None),
            SourceFault::TooLarge(limit) => (limit.to_string(), Some(limit)),
        };
        let mut record = UnknownRecord::new(kind, place, raw);
        record.limit = limit;
        self.record(record)
    }
}

/// A receiver that passes on only the unknown records whose kind begins in one way: for a file that is read a second
/// time.
pub(crate) struct OfKind<'a> {
    pub(crate) sink: &'a mut dyn SessionSink,
    pub(crate) begin: &'static str,
}

impl SessionSink for OfKind<'_> {
    fn session(&mut self, _: SourceSession) -> Result<(), ImportError> {
        Ok(())
    }

    fn unknown(&mut self, record: UnknownRecord) -> Result<(), ImportError> {
        if record.kind.starts_with(self.begin) { self.sink.unknown(record) } else { Ok(()) }
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
