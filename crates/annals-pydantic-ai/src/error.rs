//! The error of a document that could not be read: its place and reason.
//!
//! *Absent:* the errors of deltas, streamed parts and limits, which their own modules define.

use std::fmt;

use annals_messages::JsonError;

/// One step of the way from a document to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPart {
    /// The member of an object.
    Name(String),
    /// The item of a list.
    Index(usize),
}

/// Why a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadReason {
    /// The text is not JSON.
    Syntax(JsonError),
    /// A field that has no default is missing.
    Missing,
    /// The value has the wrong type or content.
    Expected {
        /// The expected value.
        expected: &'static str,
        /// An excerpt of the value.
        found: String,
    },
}

impl fmt::Display for LoadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(f, "{error}"),
            Self::Missing => f.write_str("the field is missing"),
            Self::Expected { expected, found } => write!(f, "expected {expected}, found {found}"),
        }
    }
}

/// A document could not be read. No part of it is returned.
///
/// It is located at the smallest value that holds everything wrong, as PydanticAI's errors are when they are reduced to
/// one place: a missing field adds its own name, and a value that may have several shapes (the content of a user
/// prompt, the arguments of a call) is one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The name of the document: `messages`, `usage`, ...
    pub(super) root: &'static str,
    /// The place of the smallest value that holds everything wrong; empty for the document as a whole.
    pub path: Vec<PathPart>,
    /// The place of the first problem, at `path` or inside it.
    pub(super) first: Vec<PathPart>,
    /// The reason of the first problem.
    pub reason: LoadReason,
    /// The number of problems that were found.
    pub problems: usize,
}

struct PathDisplay<'a>(&'static str, &'a [PathPart]);

impl fmt::Display for PathDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.iter().try_for_each(|part| match part {
            PathPart::Name(name) => write!(f, ".{name}"),
            PathPart::Index(index) => write!(f, "[{index}]"),
        })
    }
}

/// `messages[0].parts[1].content: expected a text, found 3`.
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", PathDisplay(self.root, &self.first), self.reason)?;
        match self.problems {
            1 => Ok(()),
            n => write!(f, " (the first of {n} problems in {})", PathDisplay(self.root, &self.path)),
        }
    }
}

impl std::error::Error for LoadError {}
