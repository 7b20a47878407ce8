//! JSON lines of a file, compressed or not, one line at a time.
//!
//! Invariant: one line of bounded length is in memory, the file is not. *Absent:* the meaning of a line.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value as Json;

use crate::error::{ImportError, SourceFault, SourceLimit};
use crate::json;
use crate::limits::{LINE_BUFFER_BYTES, PROBED_BYTES_MAX, PROBED_LINES_MAX, RECORD_BYTES_MAX};
use crate::output::ReadOutput;
use crate::zstd::{ZSTD_MAGIC, ZstdFrames};

/// The lines of a file that hold JSON, with their numbers from 1.
pub(crate) struct JsonLines {
    input: Box<dyn BufRead>,
    buffer: Vec<u8>,
    number: u64,
    has_ended: bool,
}

/// A line of a file.
pub(crate) enum FileLine {
    /// The line is JSON.
    Json(Json),
    /// The line is not JSON, or has a number that is too large; with the kind under which it is counted.
    Broken { raw: String, kind: &'static str },
    /// The line, or the rest of the file, cannot be read.
    Fault(SourceFault),
}

/// Opens a file, and decompresses it if it begins as a Zstandard frame. A file that cannot be opened fails when it is
/// read.
pub(crate) fn open(path: &Path) -> Box<dyn BufRead> {
    try_open(path).unwrap_or_else(|error| Box::new(BufReader::new(FailedInput(error))))
}

fn try_open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let is_compressed = file.fill_buf()?.starts_with(&ZSTD_MAGIC);
    Ok(if is_compressed { Box::new(BufReader::new(ZstdFrames::new(file))) } else { Box::new(file) })
}

/// Input that fails: a file that cannot be opened.
struct FailedInput(io::Error);

impl Read for FailedInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(self.0.kind(), self.0.to_string()))
    }
}

/// The bytes of a line that were appended to a buffer.
enum LineBytes {
    Whole,
    /// The line is longer than the limit, and was skipped.
    TooLong,
}

/// Appends the bytes up to the next newline, and that newline. Of a longer line none are left in the buffer.
fn read_line(input: &mut dyn BufRead, buffer: &mut Vec<u8>, limit: usize) -> io::Result<LineBytes> {
    Read::take(&mut *input, limit as u64 + 1).read_until(b'\n', buffer)?;
    if buffer.len() <= limit {
        return Ok(LineBytes::Whole);
    }
    if !buffer.ends_with(b"\n") {
        input.skip_until(b'\n')?;
    }
    *buffer = Vec::new();
    Ok(LineBytes::TooLong)
}

/// Returns bytes as a text. Those that are not UTF-8 are replaced.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    // The whole is verified faster than parts are looked for that are not.
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

impl JsonLines {
    pub(crate) fn open(path: &Path) -> Self {
        Self { input: open(path), buffer: Vec::new(), number: 0, has_ended: false }
    }

    /// Returns the next line that is not blank, with its number.
    pub(crate) fn next_line(&mut self) -> Option<(u64, FileLine)> {
        while !self.has_ended {
            self.buffer.clear();
            self.buffer.shrink_to(LINE_BUFFER_BYTES);
            match read_line(&mut *self.input, &mut self.buffer, RECORD_BYTES_MAX) {
                Ok(LineBytes::Whole) => {}
                Ok(LineBytes::TooLong) => {
                    self.number += 1;
                    let limit = SourceLimit::new("bytes of a line", RECORD_BYTES_MAX as u64);
                    return Some((self.number, FileLine::Fault(SourceFault::TooLarge(limit))));
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some((self.number + 1, FileLine::Fault(error.into())));
                }
            }
            if self.buffer.is_empty() {
                self.has_ended = true;
                break;
            }
            self.number += 1;
            let is_ended = self.buffer.ends_with(b"\n");
            let mark: &[u8] = "\u{feff}".as_bytes();
            let bytes = match self.number {
                1 => self.buffer.strip_prefix(mark).unwrap_or(&self.buffer),
                _ => &self.buffer,
            };
            let text = text_of(bytes);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.trim().is_empty() {
                continue;
            }
            let line = match json::parse(text) {
                Ok(json) => FileLine::Json(json),
                // No newline ends a torn line.
                Err(SourceFault::NotJson) if !is_ended => {
                    FileLine::Broken { raw: text.to_owned(), kind: "torn_last_line" }
                }
                Err(fault @ (SourceFault::NotJson | SourceFault::NumberRange)) => {
                    FileLine::Broken { raw: text.to_owned(), kind: fault.kind() }
                }
                Err(fault) => FileLine::Fault(fault),
            };
            return Some((self.number, line));
        }
        None
    }

    /// Returns the next line that is JSON, and reports the lines before it that are not.
    pub(crate) fn next_json(
        &mut self,
        out: &mut ReadOutput<'_>,
        place: &str,
    ) -> Result<Option<(u64, Json)>, ImportError> {
        while let Some((number, line)) = self.next_line() {
            let place = format!("{place}:{number}");
            match line {
                FileLine::Json(json) => return Ok(Some((number, json))),
                FileLine::Broken { raw, kind } => out.unknown(kind, place, raw)?,
                FileLine::Fault(fault) => out.fault(fault, place)?,
            }
        }
        Ok(None)
    }
}

/// The lines of a text, with their numbers from 1.
pub(crate) struct TextLines {
    input: Box<dyn BufRead>,
    number: u64,
    has_ended: bool,
}

impl TextLines {
    pub(crate) fn open(path: &Path) -> Self {
        Self { input: open(path), number: 0, has_ended: false }
    }

    /// Returns the next line without its end. Bytes that are not UTF-8 are replaced.
    pub(crate) fn next_line(&mut self) -> Option<(u64, Result<String, SourceFault>)> {
        if self.has_ended {
            return None;
        }
        self.number += 1;
        let mut buffer = Vec::new();
        match read_line(&mut *self.input, &mut buffer, RECORD_BYTES_MAX) {
            Ok(LineBytes::Whole) if buffer.is_empty() => None,
            Ok(LineBytes::Whole) => {
                let text = text_of(&buffer);
                let text = if self.number == 1 { text.strip_prefix('\u{feff}').unwrap_or(&text) } else { &text };
                let text = text.strip_suffix('\n').unwrap_or(text);
                Some((self.number, Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())))
            }
            Ok(LineBytes::TooLong) => {
                let limit = SourceLimit::new("bytes of a line", RECORD_BYTES_MAX as u64);
                Some((self.number, Err(limit.into())))
            }
            Err(error) => {
                self.has_ended = true;
                Some((self.number, Err(error.into())))
            }
        }
    }
}

/// The first lines of a file.
pub(crate) struct FirstLines {
    /// The lines that hold JSON.
    pub(crate) json: Vec<Json>,
    /// The fault of the first line that cannot be read, if no line before it holds JSON.
    pub(crate) fault: Option<SourceFault>,
    /// True if they are all lines of the file.
    pub(crate) is_whole: bool,
}

/// Returns the first lines of a file.
pub(crate) fn first_lines(path: &Path) -> FirstLines {
    let mut lines = JsonLines::open(path);
    let mut first = FirstLines { json: Vec::new(), fault: None, is_whole: false };
    let (mut seen, mut bytes) = (0, 0);
    while let Some((_, line)) = lines.next_line() {
        (seen, bytes) = (seen + 1, bytes + lines.buffer.len());
        match line {
            FileLine::Json(json) => first.json.push(json),
            FileLine::Fault(fault) if first.json.is_empty() && first.fault.is_none() => first.fault = Some(fault),
            _ => {}
        }
        if seen == PROBED_LINES_MAX || bytes > PROBED_BYTES_MAX {
            return first;
        }
    }
    first.is_whole = seen == first.json.len();
    first
}
