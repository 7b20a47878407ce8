//! Writing sessions into a store, and reading imported threads back.
//!
//! A session becomes the thread `<source>:<id>`. Its first checkpoint holds the facts of the session in the channel
//! `import`; each turn is one checkpoint that appends to the channel `messages`, with the timestamp of its last
//! message. Lines that the program has left are named branches of the thread. A fork begins at the checkpoint of its
//! parent. Threads of helpers, and forks, are linked to their parents. Records that were not understood, and messages
//! that the store refuses, are entries of the key-value memory under `import`.

mod export;
mod grown;
mod lines;
mod links;
mod pending;
mod records;
mod refused;
mod write;

use std::path::Path;

use annals::store::Store;

use crate::error::ImportError;
use crate::model::{SourceSession, UnknownCounts, UnknownRecord};
use crate::output::SessionSink;
use crate::redact::Redactor;
use crate::sources::SourceKind;
use crate::walk::read_all;
pub use export::export_turns;
use links::LinkLog;
use pending::PendingThreads;
use records::RecordLog;
use write::NewThreadOutcome;

/// The channel of the messages.
pub(crate) const MESSAGES: &str = "messages";

/// The channel with the facts of an imported session: an object `{source, id, parent, title, created_at, folder,
/// usage}`.
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
    redacts: bool,
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
    /// Secrets replaced, in the sessions that were read; 0 unless [`Importer::redacting`].
    pub redacted: u64,
    /// The records of the source that were not understood, by kind, and the files that make no thread. Records are
    /// stored as they stand in the source.
    pub not_understood: UnknownCounts,
    /// The files that make no thread, in the order of their reading.
    pub files_without_thread: Vec<FileWithoutThread>,
}

impl ImportSummary {
    /// Returns the number of threads that were read: new, grown and unchanged ones.
    pub fn threads(&self) -> u64 {
        self.threads_new + self.threads_grown + self.threads_unchanged
    }

    /// Adds the result of another import.
    pub fn add(&mut self, other: Self) {
        self.threads_new += other.threads_new;
        self.threads_grown += other.threads_grown;
        self.threads_unchanged += other.threads_unchanged;
        self.messages += other.messages;
        self.checkpoints += other.checkpoints;
        self.redacted += other.redacted;
        for (kind, count) in other.not_understood {
            *self.not_understood.entry(kind).or_default() += count;
        }
        self.files_without_thread.extend(other.files_without_thread);
    }

    /// Returns the records that were not understood, without the files that are counted as a whole.
    pub fn records_not_understood(&self) -> UnknownCounts {
        let mut counts = self.not_understood.clone();
        for file in self.files_without_thread.iter().filter(|file| file.is_whole) {
            if let Some(count) = counts.get_mut(&file.kind) {
                *count = count.saturating_sub(1);
            }
        }
        counts.retain(|_, count| *count > 0);
        counts
    }
}

/// A file that makes no thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileWithoutThread {
    /// The path within the folder that is imported.
    pub file: String,
    /// The kind under which it is counted, such as `unrecognised_file` or `empty_file`; of a file of which records were
    /// read the kind of the first one that was not understood.
    pub kind: String,
    /// True if the file is counted as a whole.
    pub is_whole: bool,
}

impl<'a> Importer<'a> {
    /// Makes an importer into a store.
    pub fn new(store: &'a Store) -> Self {
        Self { store, only: None, redacts: false, progress: None }
    }

    /// Reads only files of this program; others count as `unrecognised_file`.
    #[must_use]
    pub fn only(mut self, source: SourceKind) -> Self {
        self.only = Some(source);
        self
    }

    /// Replaces keys and tokens of well-known forms by their kinds: `[redacted: github]`. Passwords have no form. A
    /// thread that was imported with its secrets retains them on a line of its own: redact the first import.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals_import::Importer;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let file = folder.path().join("log.jsonl");
    /// let key = format!("ghp_{}", "a1".repeat(18));
    /// std::fs::write(&file, format!(r#"{{"role": "user", "content": "use {key}"}}"#))?;
    /// assert_eq!(Importer::new(&Store::memory()).redacting().run(&file)?.redacted, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn redacting(mut self) -> Self {
        self.redacts = true;
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
        self.run_all([path])
    }

    /// Imports the histories in several files and folders as those of one machine: titles in one place are those of
    /// sessions in another. Of several places, files are named with their whole paths.
    ///
    /// # Errors
    /// As [`Importer::run`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals_import::Importer;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let (first, second) = (folder.path().join("a.jsonl"), folder.path().join("b.jsonl"));
    /// std::fs::write(&first, r#"{"role": "user", "content": "hi"}"#)?;
    /// std::fs::write(&second, r#"{"role": "user", "content": "hello"}"#)?;
    /// assert_eq!(Importer::new(&Store::memory()).run_all([first, second])?.threads_new, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_all<P: AsRef<Path>>(self, paths: impl IntoIterator<Item = P>) -> Result<ImportSummary, ImportError> {
        let paths: Vec<P> = paths.into_iter().collect();
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let records = RecordLog::new(&paths)?;
        let mut sink = StoreSink {
            store: self.store,
            records,
            pending: PendingThreads::new(self.store)?,
            links: LinkLog::default(),
            redactor: self.redacts.then(Redactor::default),
            progress: self.progress,
            summary: ImportSummary::default(),
        };
        let read = read_all(&paths, self.only, &mut sink);
        // Also of an import that ended early the sessions before its end are stored.
        let settled = sink.settle();
        let linked = sink.links.flush(self.store);
        read.and(settled).and(linked)?;
        sink.records.finish(self.store)?;
        sink.summary.redacted = sink.redactor.map_or(0, |redactor| redactor.count);
        Ok(sink.summary)
    }
}

/// Returns the record of a session that the store refuses.
fn refused_session(source: SourceKind, id: &str, reason: String) -> UnknownRecord {
    let mut record = UnknownRecord::new("refused_session", thread_id(source, id), reason);
    record.source = Some(source);
    record
}

struct StoreSink<'a> {
    store: &'a Store,
    records: RecordLog,
    pending: PendingThreads,
    links: LinkLog,
    redactor: Option<Redactor>,
    progress: Option<Box<dyn FnMut(usize, usize) + 'a>>,
    summary: ImportSummary,
}

impl SessionSink for StoreSink<'_> {
    fn session(&mut self, mut session: SourceSession) -> Result<(), ImportError> {
        if let Some(redactor) = &mut self.redactor {
            redactor.session(&mut session);
        }
        let (mut session, refused) = refused::without_refused(session);
        for record in refused {
            self.unknown(record)?;
        }
        if self.pending.concerns(&session) {
            self.settle()?;
        }
        grown::take_id(self.store, &self.pending, &mut session)?;
        let id = thread_id(session.source, &session.id);
        let is_new = match self.pending.may_exist(&id) {
            true => self.store.thread(&id).is_ok_and(|thread| matches!(thread.head(), Ok(None))),
            false => true,
        };
        // A fork is read from its parent, and the lines of a session with branches from one another.
        let is_alone = session.branches.is_empty() && !write::is_fork(&session);
        if !(is_new && is_alone) {
            self.settle()?;
        }
        self.pending.note(&id);
        self.links.add(self.store, &session)?;
        let written = match is_new && is_alone {
            true => write::new_thread(self.store, &session, &mut self.summary),
            false => write::write(self.store, &session, &mut self.summary).map(|()| NewThreadOutcome::Stored),
        };
        match written {
            Ok(NewThreadOutcome::Stored) => Ok(()),
            Ok(NewThreadOutcome::Pending(thread)) => {
                let refused = self.pending.push(self.store, *thread, &mut self.summary)?;
                refused.into_iter().try_for_each(|record| self.unknown(record))
            }
            Err(ImportError::Message { session: id, reason }) => {
                self.unknown(refused_session(session.source, &id, reason))
            }
            Err(error) => Err(error),
        }
    }

    fn unknown(&mut self, mut record: UnknownRecord) -> Result<(), ImportError> {
        if let Some(redacted) = self.redactor.as_mut().and_then(|redactor| redactor.text(&record.raw)) {
            record.raw = redacted;
        }
        *self.summary.not_understood.entry(record.kind.clone()).or_default() += 1;
        self.records.add(self.store, record)
    }

    fn without_thread(&mut self, file: &str, kind: &str, is_whole: bool) {
        let (file, kind) = (file.to_owned(), kind.to_owned());
        self.summary.files_without_thread.push(FileWithoutThread { file, kind, is_whole });
    }

    fn progress(&mut self, done: usize, found: usize) {
        if let Some(progress) = &mut self.progress {
            progress(done, found);
        }
    }
}

impl StoreSink<'_> {
    /// Waits until all threads are stored.
    fn settle(&mut self) -> Result<(), ImportError> {
        let refused = self.pending.settle(self.store, &mut self.summary)?;
        refused.into_iter().try_for_each(|record| self.unknown(record))
    }
}

/// Returns the id of the thread of a session: `<source>:<id>`. An id that is too long is cut and given a hash.
pub fn thread_id(source: SourceKind, id: &str) -> String {
    let id = id.replace('\0', "\u{fffd}");
    let whole = format!("{source}:{id}");
    crate::arena::bounded(whole)
}
