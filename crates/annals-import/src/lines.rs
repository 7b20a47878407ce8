//! JSON lines of a file, compressed or not, one line at a time.
//!
//! Invariant: one line is in memory, the file is not. *Absent:* the meaning of a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;
use serde_json::Value as Json;

use crate::error::ImportError;
use crate::output::ReadOutput;

/// The first bytes of a Zstandard frame.
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

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
    /// The line is not JSON; the last line is torn if no newline ends it.
    Broken { raw: String, is_torn: bool },
    /// The rest of the file cannot be decompressed.
    Undecodable(String),
}

/// Opens a file, and decompresses it if it begins as a Zstandard frame.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::io(path, error))?;
    let mut file = BufReader::with_capacity(1 << 16, file);
    let is_compressed = file.fill_buf().map_err(|error| ImportError::io(path, error))?.starts_with(&ZSTD_MAGIC);
    if !is_compressed {
        return Ok(Box::new(file));
    }
    match StreamingDecoder::new(file) {
        Ok(decoder) => Ok(Box::new(BufReader::new(decoder))),
        Err(error) => Ok(Box::new(BufReader::new(UnreadableFrame(error.to_string())))),
    }
}

/// Input that fails: a frame whose head cannot be read.
struct UnreadableFrame(String);

impl Read for UnreadableFrame {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::InvalidData, self.0.clone()))
    }
}

impl JsonLines {
    pub(crate) fn open(path: &Path) -> Result<Self, ImportError> {
        Ok(Self { input: open(path)?, buffer: Vec::new(), number: 0, has_ended: false })
    }

    /// Returns the next line that is not blank, with its number.
    pub(crate) fn next_line(&mut self) -> Option<(u64, FileLine)> {
        while !self.has_ended {
            self.buffer.clear();
            if let Err(error) = self.input.read_until(b'\n', &mut self.buffer) {
                self.has_ended = true;
                return Some((self.number + 1, FileLine::Undecodable(error.to_string())));
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
            let text = String::from_utf8_lossy(bytes);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.trim().is_empty() {
                continue;
            }
            let line = match serde_json::from_str(text) {
                Ok(json) => FileLine::Json(json),
                Err(_) => FileLine::Broken { raw: text.to_owned(), is_torn: !is_ended },
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
            let (kind, raw) = match line {
                FileLine::Json(json) => return Ok(Some((number, json))),
                FileLine::Broken { raw, is_torn: true } => ("torn_last_line", raw),
                FileLine::Broken { raw, is_torn: false } => ("not_json", raw),
                FileLine::Undecodable(reason) => ("broken_frame", reason),
            };
            out.unknown(kind, format!("{place}:{number}"), raw)?;
        }
        Ok(None)
    }
}

/// Returns the first lines of a file that hold JSON, at most `limit`, and whether the file holds any bytes.
pub(crate) fn first_lines(path: &Path, limit: usize) -> Result<Vec<Json>, ImportError> {
    let mut lines = JsonLines::open(path)?;
    let mut first = Vec::new();
    let mut seen = 0;
    while let Some((_, line)) = lines.next_line() {
        seen += 1;
        if let FileLine::Json(json) = line {
            first.push(json);
        }
        if seen == limit {
            break;
        }
    }
    Ok(first)
}

/// Decompresses a frame that is in memory.
pub(crate) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoder = StreamingDecoder::new(bytes).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    decoder.read_to_end(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}
