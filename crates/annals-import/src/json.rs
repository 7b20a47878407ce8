//! Access to members of JSON documents, and timestamps in the notations of the sources.
//!
//! Invariant: an integer of any length keeps its digits. The JSON parser has 64 bits, so a longer one stands in a
//! parsed document as the object `{"$int": digits}`, which [`value`] and [`as_text`] turn back.

use annals_base::limits::INTEGER_DIGITS_MAX;
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
    let fault = |error: serde_json::Error| match error.to_string().starts_with("number out of range") {
        true => SourceFault::NumberRange,
        false => SourceFault::NotJson,
    };
    if has_long_digits(text.as_bytes()) {
        let (mut marked, mut integers) = (Vec::with_capacity(text.len() + 64), LongIntegers::default());
        integers.push(text.as_bytes(), &mut marked);
        integers.finish(&mut marked);
        return serde_json::from_slice(&marked).map_err(fault);
    }
    serde_json::from_str(text).map_err(fault)
}

/// Digits that fit into 64 bits in any case.
const SHORT_DIGITS: usize = 18;

/// The begin of an object that holds the digits of an integer, and its end.
const INTEGER_BEGIN: &str = "{\"$int\":\"";
const INTEGER_END: &str = "\"}";

/// Returns whether a text has more digits in a row than fit into 64 bits in any case.
fn has_long_digits(text: &[u8]) -> bool {
    let digits = |bytes: &mut dyn Iterator<Item = &u8>| bytes.take_while(|byte| byte.is_ascii_digit()).count();
    // Each row of so many digits has one at a multiple of their number.
    let mut places = (SHORT_DIGITS..text.len()).step_by(SHORT_DIGITS + 1);
    places.any(|at| {
        text[at].is_ascii_digit()
            && digits(&mut text[..at].iter().rev()) + digits(&mut text[at..].iter()) > SHORT_DIGITS
    })
}

/// Writes the integers of a JSON text that do not fit into 64 bits as objects with their digits.
#[derive(Default)]
pub(crate) struct LongIntegers {
    is_text: bool,
    is_escaped: bool,
    /// The begin of a number.
    number: Vec<u8>,
}

impl LongIntegers {
    /// Takes the next bytes of the text.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            let is_of_number = matches!(byte, b'0'..=b'9' | b'-')
                || !self.number.is_empty() && matches!(byte, b'+' | b'.' | b'e' | b'E');
            // A longer one is refused by the parser.
            if !self.is_text && is_of_number && self.number.len() <= INTEGER_DIGITS_MAX {
                self.number.push(*byte);
                continue;
            }
            self.finish(out);
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_text,
                b'"' => self.is_text = !self.is_text,
                _ => {}
            }
            out.push(*byte);
        }
    }

    /// Returns whether a number has begun.
    pub(crate) fn is_open(&self) -> bool {
        !self.number.is_empty()
    }

    /// Ends a number.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let digits = std::str::from_utf8(&self.number).ok().filter(|digits| digits.len() > SHORT_DIGITS);
        match digits.filter(|digits| is_long(digits)) {
            Some(digits) => [INTEGER_BEGIN, digits, INTEGER_END].iter().for_each(|part| out.extend(part.as_bytes())),
            None => out.extend(&self.number),
        }
        self.number.clear();
    }
}

/// Returns whether digits are those of an integer that does not fit into 64 bits.
fn is_long(digits: &str) -> bool {
    Value::from_digits(digits).is_some_and(|value| value.big_integer().is_some())
}

/// Returns the value of a part of a parsed document, its integers with all digits.
pub(crate) fn value(of: Json) -> Value {
    match of {
        Json::Array(items) => Value::List(items.into_iter().map(value).collect()),
        Json::Object(members) => {
            let digits =
                members.get("$int").and_then(Json::as_str).filter(|digits| members.len() == 1 && is_long(digits));
            match digits.and_then(Value::from_digits) {
                Some(integer) => integer,
                None => Value::Map(members.into_iter().map(|(name, member)| (name, value(member))).collect()),
            }
        }
        other => Value::from(other),
    }
}

/// Returns the JSON of a parsed document as its source has it, with the digits of its integers.
pub(crate) fn restored(text: String) -> String {
    let Some((begin, rest)) = text.split_once(INTEGER_BEGIN) else { return text };
    let mut restored = begin.to_owned();
    for part in rest.split(INTEGER_BEGIN) {
        match part.split_once(INTEGER_END).filter(|(digits, _)| is_long(digits)) {
            Some((digits, rest)) => restored.extend([digits, rest]),
            None => restored.extend([INTEGER_BEGIN, part]),
        }
    }
    restored
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
    of.as_str().map_or_else(|| restored(of.to_string()), str::to_owned)
}

/// Returns the members of an object.
pub(crate) fn map(of: &Json) -> Option<Map> {
    match value(of.clone()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_of_any_length_keeps_its_digits() {
        let (large, below) = ("18446744073709551616", "-9223372036854775809");
        let text = format!("{{\"a\":[{large},{below},18446744073709551615,1.5e3],\"t\":\"{large} \\\"{below}\"}}");
        let parsed = parse(&text).unwrap();
        let a = value(parsed.clone()).get("a").unwrap().as_list().unwrap().to_vec();
        assert_eq!((a[0].big_integer(), a[1].big_integer()), (Some(large), Some(below)));
        assert_eq!(a[2..], [Value::UInt(u64::MAX), Value::Float(1_500.0)]);
        assert_eq!(text_of_member(&parsed), format!("{large} \"{below}"));
        assert_eq!(as_text(&parsed), text.replace("1.5e3", "1500.0"));
        let longest = "9".repeat(INTEGER_DIGITS_MAX);
        assert_eq!(value(parse(&longest).unwrap()).big_integer(), Some(longest.as_str()));
        assert_eq!(as_text(&parse(&format!("[{longest},1]")).unwrap()), format!("[{longest},1]"));
    }

    fn text_of_member(of: &Json) -> String {
        text(of, "t").to_owned()
    }

    #[test]
    fn a_number_that_cannot_be_kept_is_a_fault_of_its_own() {
        for text in ["1e400", "[-1e400]", "{\"a\": 1e309}", &"9".repeat(INTEGER_DIGITS_MAX + 1)] {
            assert!(matches!(parse(text), Err(SourceFault::NumberRange)), "{text}");
        }
        assert!(matches!(parse("1e"), Err(SourceFault::NotJson)));
    }

    #[test]
    fn rows_of_digits_are_found_wherever_they_begin() {
        for before in 0..60 {
            for digits in [1, SHORT_DIGITS, SHORT_DIGITS + 1, 50] {
                let text = format!("{}{}x", "a".repeat(before), "7".repeat(digits));
                assert_eq!(has_long_digits(text.as_bytes()), digits > SHORT_DIGITS, "{text}");
            }
        }
    }

    #[test]
    fn other_objects_with_the_name_stay() {
        for text in ["{\"$int\":\"12\"}", "{\"$int\":\"x\"}", "{\"$int\":\"18446744073709551616\",\"b\":1}"] {
            assert_eq!(as_text(&parse(text).unwrap()), text);
            assert!(value(parse(text).unwrap()).as_map().is_some(), "{text}");
        }
    }
}
