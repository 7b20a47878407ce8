//! A file of a source, and what tells its program: the head, the first lines, or the tables.
//!
//! Invariant: a file is read no further than it takes to recognise it, and a document at most once.

use std::cell::OnceCell;
use std::fs;
use std::io::{BufRead, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;

use serde_json::Value as Json;

use crate::database::{self, SourceDatabase};
use crate::document;
use crate::error::{ImportError, SourceFault};
use crate::limits::PROBED_TEXT_BYTES_MAX;
use crate::lines::{self, FirstLines};

/// A file of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    /// The path within the folder that is imported.
    pub(crate) name: String,
}

impl SourceFile {
    /// Returns the file name without its endings.
    pub(crate) fn stem(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or(&self.name);
        let name = name.strip_suffix(".zst").unwrap_or(name);
        name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json")).unwrap_or(name)
    }

    pub(crate) fn file_name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("")
    }

    /// Returns the name of the folder so many levels above the file: 1 for the one that holds it.
    pub(crate) fn folder_name(&self, level: usize) -> &str {
        let folder = self.path.ancestors().nth(level).and_then(|folder| folder.file_name());
        folder.and_then(|name| name.to_str()).unwrap_or("")
    }

    /// Returns whether a file with another name lies beside this one.
    pub(crate) fn has_beside(&self, name: &str) -> bool {
        self.path.with_file_name(name).is_file()
    }
}

/// A file whose program is looked for.
pub(crate) struct FileProbe {
    pub(crate) file: SourceFile,
    content: ProbedContent,
}

/// What is known of the content of a file.
enum ProbedContent {
    /// A SQLite database.
    Database(Rc<SourceDatabase>),
    /// JSON lines, or one object.
    Lines { first: FirstLines, document: OnceCell<Result<Json, SourceFault>> },
    /// An array: its first item, and the fault for which it has none.
    Array { first: Option<Json>, fault: Option<SourceFault> },
    /// Another text: its begin.
    Text(String),
}

/// The reason for which a file has no content that could be recognised.
pub(crate) enum NotProbed {
    /// The file has no bytes.
    Empty,
    /// No program is looked for: the content is damaged.
    Unknown,
    /// The file is too large, or cannot be read.
    Fault(SourceFault),
}

impl From<SourceFault> for NotProbed {
    fn from(fault: SourceFault) -> Self {
        match fault {
            SourceFault::TooLarge(_) | SourceFault::Unreadable(_) => Self::Fault(fault),
            SourceFault::NotJson | SourceFault::NumberRange | SourceFault::Frame(_) => Self::Unknown,
        }
    }
}

impl FileProbe {
    /// Reads what tells the program of a file.
    ///
    /// # Errors
    /// [`ImportError`] if the import cannot go on; the inner error if the file has no content to look at.
    pub(crate) fn open(file: SourceFile) -> Result<Result<Self, (SourceFile, NotProbed)>, ImportError> {
        match Self::content(&file)? {
            Ok(content) => Ok(Ok(Self { file, content })),
            Err(fault) => Ok(Err((file, fault))),
        }
    }

    fn content(file: &SourceFile) -> Result<Result<ProbedContent, NotProbed>, ImportError> {
        let mut head = Vec::new();
        let read = fs::File::open(&file.path).and_then(|opened| opened.take(64).read_to_end(&mut head));
        if let Err(error) = read {
            return Ok(Err(SourceFault::Unreadable(error.to_string()).into()));
        }
        if head.is_empty() {
            return Ok(Err(NotProbed::Empty));
        }
        if head.starts_with(database::MAGIC) {
            let opened = SourceDatabase::open(&file.path);
            return Ok(opened.map(|database| ProbedContent::Database(Rc::new(database))).map_err(NotProbed::from));
        }
        match first_byte(file) {
            Ok(Some(b'[')) => {
                let mut first = None;
                let fault = document::each_item(&file.path, |_, item| {
                    first = Some(item);
                    Ok(ControlFlow::Break(()))
                })?;
                Ok(Ok(ProbedContent::Array { first, fault }))
            }
            Ok(Some(b'{' | 0)) => {
                let first = lines::first_lines(&file.path);
                Ok(Ok(ProbedContent::Lines { first, document: OnceCell::new() }))
            }
            Ok(Some(b'#')) => Ok(text(file).map(ProbedContent::Text).map_err(NotProbed::from)),
            Ok(_) => Ok(Err(NotProbed::Unknown)),
            Err(fault) => Ok(Err(fault.into())),
        }
    }

    /// Returns the database, if the file is one.
    pub(crate) fn database(&self) -> Option<&Rc<SourceDatabase>> {
        match &self.content {
            ProbedContent::Database(database) => Some(database),
            _ => None,
        }
    }

    /// Returns the first lines that hold JSON, none if the file is an array, a database or another text.
    pub(crate) fn lines(&self) -> &[Json] {
        match &self.content {
            ProbedContent::Lines { first, .. } => &first.json,
            _ => &[],
        }
    }

    /// Returns the document, if the file is one object.
    pub(crate) fn document(&self) -> Option<&Json> {
        let ProbedContent::Lines { first, document } = &self.content else { return None };
        match first.json.as_slice() {
            // The first line is whole, so that the file is one of lines.
            [_, _, ..] => None,
            [only] if first.is_whole => Some(only),
            _ => document.get_or_init(|| document::whole(&self.file.path)).as_ref().ok(),
        }
    }

    /// Returns the first item of an array.
    pub(crate) fn first_item(&self) -> Option<&Json> {
        match &self.content {
            ProbedContent::Array { first, .. } => first.as_ref(),
            _ => None,
        }
    }

    /// Returns whether the file is an array without items.
    pub(crate) fn is_empty_array(&self) -> bool {
        matches!(&self.content, ProbedContent::Array { first: None, fault: None })
    }

    /// Returns the begin of a text that is not JSON, without white space before it.
    pub(crate) fn text(&self) -> &str {
        match &self.content {
            ProbedContent::Text(text) => text,
            _ => "",
        }
    }

    /// Returns the reason for which no program was found.
    pub(crate) fn into_fault(self) -> (SourceFile, NotProbed) {
        let fault = match self.content {
            ProbedContent::Lines { first, document } => match document.into_inner() {
                Some(Err(fault)) => Some(fault),
                _ => first.fault,
            },
            ProbedContent::Array { fault, .. } => fault,
            ProbedContent::Database(_) | ProbedContent::Text(_) => None,
        };
        (self.file, fault.map_or(NotProbed::Unknown, NotProbed::from))
    }
}

/// Returns the first byte of the content that is not white space; 0 for a line that is not text.
fn first_byte(file: &SourceFile) -> Result<Option<u8>, SourceFault> {
    let mut input = lines::open(&file.path);
    skip_space(&mut *input)?;
    Ok(input.fill_buf()?.first().copied())
}

/// Returns the begin of a text.
fn text(file: &SourceFile) -> Result<String, SourceFault> {
    let mut input = lines::open(&file.path);
    skip_space(&mut *input)?;
    let mut bytes = Vec::new();
    input.take(PROBED_TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Skips the byte order mark and white space.
fn skip_space(input: &mut dyn BufRead) -> Result<(), SourceFault> {
    let mark = "\u{feff}".as_bytes();
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.starts_with(mark) {
            input.consume(mark.len());
            continue;
        }
        let space = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(bytes.len());
        if space == 0 {
            return Ok(());
        }
        input.consume(space);
    }
}

/// Returns whether a JSON value has a member that is not null.
pub(crate) fn has(of: &Json, name: &str) -> bool {
    !of[name].is_null()
}
