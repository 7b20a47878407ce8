//! Moving the messages of a thread out of the store and into it, in the forms of other programs.
//!
//! An export reads item by item and an import commits every so many messages, so that neither holds the list. *Absent:*
//! channels that do not hold messages, and merging: an import makes a new thread.

pub(crate) mod copy;
mod copy_kv;
mod copy_plan;
mod copy_threads;
mod export;
mod import;

use crate::limits::PROBLEMS_MAX;
use crate::message::MessageError;
use crate::store::StoreError;

pub use copy_threads::{CopiedThread, CopyOptions, CopyProgress, CopyReport};
pub use export::{ExportOptions, ExportReport};
pub use import::{ImportOptions, ImportReport};

/// One message, or one item, that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Its place in the list, from 0.
    pub position: u64,
    /// The reason.
    pub reason: String,
}

/// The number of problems, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problems {
    /// The number of them.
    pub count: u64,
    /// The first 100 of them.
    pub first: Vec<Problem>,
}

impl Problems {
    fn note(&mut self, position: u64, reason: impl ToString) {
        self.count += 1;
        if self.first.len() < PROBLEMS_MAX {
            self.first.push(Problem { position, reason: reason.to_string() });
        }
    }
}

/// One line that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenLine {
    /// The line, from 1.
    pub line: u64,
    /// Why it cannot be imported.
    pub reason: String,
}

/// Counts the lines that were left out, and remembers the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenLines {
    /// The number of them.
    pub count: u64,
    /// The first 100 of them.
    pub first: Vec<BrokenLine>,
}

impl BrokenLines {
    fn note(&mut self, line: usize, reason: impl ToString) {
        self.count += 1;
        if self.first.len() < PROBLEMS_MAX {
            self.first.push(BrokenLine { line: line as u64, reason: reason.to_string() });
        }
    }
}

/// An export or an import ended before its time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The store refused, or could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The reader or the writer outside the store failed.
    #[error("the {what} failed after {messages} messages: {source}")]
    Io {
        /// `export` or `import`.
        what: &'static str,
        /// The number of messages transferred.
        messages: u64,
        /// The error of the reader or the writer.
        source: std::io::Error,
    },
    /// A message cannot be stored.
    #[error("message {position} cannot be stored: {source}; {}", stored(*.messages))]
    Message {
        /// Its place in the list, from 0.
        position: u64,
        /// Why not.
        source: MessageError,
        /// The number of messages in the thread now.
        messages: u64,
    },
    /// The text to import is not JSON, or neither a list nor lines of objects.
    #[error("line {line}, column {column}: {reason}; {}", stored(*.messages))]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The reason.
        reason: String,
        /// The number of messages in the thread now.
        messages: u64,
    },
    /// The thread to import into exists already. Nothing was written.
    #[error("thread {thread} exists already; nothing was written")]
    Exists {
        /// The thread.
        thread: String,
    },
    /// The channel to export holds no list.
    #[error("channel {channel:?} holds no list there")]
    NoList {
        /// The channel.
        channel: String,
    },
}

/// Names the messages in a thread whose import ended.
fn stored(messages: u64) -> String {
    match messages {
        0 => "nothing was stored".to_owned(),
        1 => "the thread has the message before it".to_owned(),
        n => format!("the thread has the {n} messages before it"),
    }
}

/// How the items stand in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Framing {
    /// A JSON list.
    #[default]
    List,
    /// One JSON object a line (JSON lines).
    Lines,
}
