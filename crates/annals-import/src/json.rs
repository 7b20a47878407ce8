//! Access to members of JSON documents, and timestamps in the notations of the sources.

use annals_base::{Map, Timestamp, Value};
use serde_json::Value as Json;

use crate::error::{SourceFault, SourceLimit};
use crate::limits::RECORD_NODES_MAX;

/// Parses a record. One with too many values is refused before it is parsed, as a parsed value takes many times the
/// bytes of its text.
pub(crate) fn parse(text: &str) -> Result<Json, SourceFault> {
    // A text has fewer values than bytes.
    if text.len() > RECORD_NODES_MAX {
        let mut nodes = NodeCount::default();
        nodes.add(text.as_bytes());
        nodes.check()?;
    }
    serde_json::from_str(text).map_err(|_| SourceFault::NotJson)
}

/// Parses a record whose bytes that are not UTF-8 are replaced.
pub(crate) fn parse_bytes(bytes: &[u8]) -> Result<Json, SourceFault> {
    parse(&String::from_utf8_lossy(bytes))
}

/// The number of values of a JSON text, from its separators outside texts.
#[derive(Default)]
pub(crate) struct NodeCount {
    pub(crate) count: usize,
    is_text: bool,
    is_escaped: bool,
}

impl NodeCount {
    /// Counts the next bytes of the text.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_text,
                b'"' => self.is_text = !self.is_text,
                b'[' | b'{' | b',' | b':' if !self.is_text => self.count += 1,
                _ => {}
            }
        }
    }

    /// Refuses a count above the limit.
    pub(crate) fn check(&self) -> Result<(), SourceLimit> {
        match self.count > RECORD_NODES_MAX {
            true => Err(SourceLimit::new("values of a record", RECORD_NODES_MAX as u64)),
            false => Ok(()),
        }
    }
}

/// Returns the text of a member, empty if the member is missing or not a text.
pub(crate) fn text<'a>(of: &'a Json, name: &str) -> &'a str {
    of[name].as_str().unwrap_or("")
}

/// Returns the text of a member, if it has one that is not empty.
pub(crate) fn maybe_text(of: &Json, name: &str) -> Option<String> {
    of[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns a count, 0 if it is missing or negative.
pub(crate) fn count(of: &Json, name: &str) -> i64 {
    of[name].as_i64().unwrap_or(0).max(0)
}

/// Returns the items of a list, none of anything else.
pub(crate) fn items(of: &Json) -> &[Json] {
    of.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a value as text: a text itself, anything else as JSON.
pub(crate) fn as_text(of: &Json) -> String {
    of.as_str().map_or_else(|| of.to_string(), str::to_owned)
}

/// Returns the members of an object.
pub(crate) fn map(of: &Json) -> Option<Map> {
    match Value::from(of.clone()) {
        Value::Map(map) => Some(map),
        _ => None,
    }
}

/// Returns the path of a folder; that of an address with the scheme `file` is decoded.
pub(crate) fn folder(of: &Json) -> Option<String> {
    let text = of.as_str().filter(|text| !text.is_empty())?;
    let Some(path) = text.strip_prefix("file://") else { return Some(text.to_owned()) };
    let bytes = path.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%') {
            Some(code) => {
                decoded.push(code);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    Some(String::from_utf8_lossy(&decoded).into_owned()).filter(|path| !path.is_empty())
}

/// Returns a timestamp in RFC 3339, or in milliseconds since 1970. A text without a zone is in UTC, as SQLite writes
/// it.
pub(crate) fn time(of: &Json) -> Option<Timestamp> {
    match of {
        Json::String(text) => utc(text),
        Json::Number(number) => millis(number.as_i64()?),
        _ => None,
    }
}

/// Returns a timestamp of a text, in UTC if it names no zone.
pub(crate) fn utc(text: &str) -> Option<Timestamp> {
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}

/// Returns a timestamp of milliseconds since 1970.
pub(crate) fn millis(ms: i64) -> Option<Timestamp> {
    ms.checked_mul(1000).map(Timestamp::from_micros)
}

/// Returns a timestamp of seconds since 1970, with fractions. Counts beyond the year 5138 are milliseconds.
pub(crate) fn seconds(of: &Json) -> Option<Timestamp> {
    let seconds = of.as_f64().filter(|seconds| seconds.is_finite())?;
    let millis = if seconds.abs() > 1e11 { seconds } else { seconds * 1000.0 };
    if millis.abs() > 9e15 { None } else { self::millis(millis.round() as i64) }
}
