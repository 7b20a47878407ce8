//! Writing sessions into a store, and reading imported threads back.
//!
//! A session becomes the thread `<source>:<id>`. Its first checkpoint holds the facts of the session in the channel
//! `import`; each turn is one checkpoint that appends to the channel `messages`, with the timestamp of its last
//! message. Lines that the program has left are named branches of the thread. A fork begins at the checkpoint of its
//! parent. Records that were not understood, and messages that the store refuses, are entries of the key-value memory
//! under `import`.

mod export;
mod grown;
mod lines;
mod records;
mod refused;
mod write;

use std::path::Path;

use annals::store::Store;

use crate::error::ImportError;
use crate::model::{SourceKind, SourceSession, UnknownCounts, UnknownRecord};
use crate::output::SessionSink;
use crate::walk::read_sessions;
pub use export::export_turns;
use records::RecordLog;

/// The channel of the messages.
pub(crate) const MESSAGES: &str = "messages";

/// The channel of the facts of a session.
pub(crate) const FACTS: &str = "import";

/// Reads histories of other programs into a store.
///
/// An import can be repeated: a session that has not changed is not written again, and of one that has grown the new
/// messages are appended. If the program has rewritten its history, the new line is stored beside the old one.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals_import::Importer;
///
/// # let folder = tempfile::tempdir()?;
/// let file = folder.path().join("log.jsonl");
/// std::fs::write(&file, "{\"role\": \"user\", \"content\": \"hi\"}\n{\"role\": \"assistant\", \"content\": \"hello\"}\n")?;
///
/// let store = Store::memory();
/// let summary = Importer::new(&store).run(&file)?;
/// assert_eq!((summary.threads_new, summary.messages), (1, 2));
/// assert_eq!(Importer::new(&store).run(&file)?.threads_unchanged, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Importer<'a> {
    store: &'a Store,
    only: Option<SourceKind>,
    progress: Option<Box<dyn FnMut(usize, usize) + 'a>>,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportSummary {
    /// Threads made.
    pub threads_new: u64,
    /// Threads that were there, and to which something was written.
    pub threads_grown: u64,
    /// Threads that were there and are equal to their sessions.
    pub threads_unchanged: u64,
    /// Messages written.
    pub messages: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// The records of the source that were not understood, by kind. They are stored as they stand in the source.
    pub not_understood: UnknownCounts,
}

impl<'a> Importer<'a> {
    /// Makes an importer into a store.
    pub fn new(store: &'a Store) -> Self {
        Self { store, only: None, progress: None }
    }

    /// Reads only files of this program; others count as `unrecognised_file`.
    #[must_use]
    pub fn only(mut self, source: SourceKind) -> Self {
        self.only = Some(source);
        self
    }

    /// Calls a function with the number of files that were looked at, and of those found.
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(usize, usize) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Imports the histories in a file or folder. The source is not written to.
    ///
    /// # Errors
    /// [`ImportError::Io`] if the file or folder cannot be read; [`ImportError::Store`] if the store refuses a call:
    /// the sessions before it are stored. A message that does not fit into the store is left out and counted as
    /// `refused_message`, a session as `refused_session`.
    pub fn run(self, path: impl AsRef<Path>) -> Result<ImportSummary, ImportError> {
        let path = path.as_ref();
        let records = RecordLog::new(self.store, path)?;
        let mut sink =
            StoreSink { store: self.store, records, progress: self.progress, summary: ImportSummary::default() };
        read_sessions(path, self.only, &mut sink)?;
        sink.records.finish(self.store)?;
        Ok(sink.summary)
    }
}

struct StoreSink<'a> {
    store: &'a Store,
    records: RecordLog,
    progress: Option<Box<dyn FnMut(usize, usize) + 'a>>,
    summary: ImportSummary,
}

impl SessionSink for StoreSink<'_> {
    fn session(&mut self, session: SourceSession) -> Result<(), ImportError> {
        let (mut session, refused) = refused::without_refused(session);
        for record in refused {
            self.unknown(record)?;
        }
        grown::take_id(self.store, &mut session)?;
        match write::write(self.store, &session, &mut self.summary) {
            Err(ImportError::Message { session: id, reason }) => {
                let place = thread_id(session.source, &id);
                let source = Some(session.source);
                self.unknown(UnknownRecord { source, kind: "refused_session".into(), place, raw: reason, limit: None })
            }
            written => written,
        }
    }

    fn unknown(&mut self, record: UnknownRecord) -> Result<(), ImportError> {
        *self.summary.not_understood.entry(record.kind.clone()).or_default() += 1;
        self.records.add(self.store, record)
    }

    fn progress(&mut self, done: usize, found: usize) {
        if let Some(progress) = &mut self.progress {
            progress(done, found);
        }
    }
}

/// Returns the id of the thread of a session: `<source>:<id>`. An id that is too long is cut and given a hash.
pub fn thread_id(source: SourceKind, id: &str) -> String {
    let id = id.replace('\0', "\u{fffd}");
    let whole = format!("{source}:{id}");
    crate::arena::bounded(whole)
}
