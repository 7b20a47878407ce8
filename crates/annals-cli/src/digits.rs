//! Values from JSON texts, with all digits of their integers: a number of the JSON parser has at most 64 bits.

use annals::base::{Map, Value};
use serde_json::Value as Json;

use crate::errors::CommandFailure;

/// Digits that fit into 64 bits in any case.
const SHORT_DIGITS: usize = 18;

/// The mark at the begin of a text that stands for an integer.
const MARK: char = '~';

/// Reads JSON; any other text stands for itself.
pub(crate) fn value(text: &str) -> Result<Value, CommandFailure> {
    Ok(json(text)?.unwrap_or_else(|| Value::from(text)))
}

/// Reads JSON; `None` if the text is something else. An integer with more digits than the store takes is refused.
pub(crate) fn json(text: &str) -> Result<Option<Value>, CommandFailure> {
    let long = long_integers(text);
    if long.is_empty() {
        return Ok(serde_json::from_str::<Json>(text).ok().map(Value::from));
    }
    // The integers are parsed as texts, with more marks at their begin than the texts of the document can have: each of
    // these stands there as itself or is an escape.
    let marks = text.matches(MARK).count() + text.matches("\\u").count() + 1;
    let mark: String = std::iter::repeat_n(MARK, marks).collect();
    let (mut marked, mut from) = (String::with_capacity(text.len()), 0);
    for (start, end) in long {
        marked.push_str(&text[from..start]);
        marked.push_str(&format!("\"{mark}{}\"", &text[start..end]));
        from = end;
    }
    marked.push_str(&text[from..]);
    let Ok(json) = serde_json::from_str::<Json>(&marked) else { return Ok(None) };
    let reason = "the value is not stored: an integer has more digits than the store takes";
    unmarked(json, &mark).map(Some).ok_or_else(|| CommandFailure::usage(reason))
}

/// Returns the begin and the end of each integer that may not fit into 64 bits.
fn long_integers(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'"' => {
                at += 1;
                while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let is_of_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                at += bytes[at..].iter().take_while(is_of_number).count();
                let digits = bytes[start..at].strip_prefix(b"-").unwrap_or(&bytes[start..at]);
                let is_integer = digits.iter().all(u8::is_ascii_digit) && !digits.starts_with(b"0");
                if is_integer && digits.len() > SHORT_DIGITS {
                    found.push((start, at));
                }
            }
            _ => at += 1,
        }
    }
    found
}

/// Returns a document as a value, its marked texts as integers; `None` if one has too many digits.
fn unmarked(json: Json, mark: &str) -> Option<Value> {
    Some(match json {
        Json::String(text) => match text.strip_prefix(mark) {
            Some(digits) => Value::from_digits(digits)?,
            None => Value::from(text),
        },
        Json::Array(items) => {
            Value::List(items.into_iter().map(|item| unmarked(item, mark)).collect::<Option<Vec<_>>>()?)
        }
        Json::Object(members) => {
            let members = members.into_iter().map(|(name, member)| Some((name, unmarked(member, mark)?)));
            Value::Map(members.collect::<Option<Map>>()?)
        }
        other => Value::from(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_all_digits_of_its_integers() {
        let digits = "18446744073709551616";
        assert_eq!(value(digits).unwrap().big_integer(), Some(digits));
        let nested = value(&format!("{{\"a\": [-9{digits}, 1.5, \"{digits}\", \"~\\u007e\\\"~{digits}\"]}}")).unwrap();
        let items = nested.get("a").unwrap().as_list().unwrap();
        assert_eq!(items[0].big_integer(), Some(format!("-9{digits}").as_str()));
        let texts = [Value::from(digits), Value::from(format!("~~\"~{digits}"))];
        assert_eq!(items[1..], [Value::from(1.5), texts[0].clone(), texts[1].clone()]);
        assert_eq!(value("9223372036854775808").unwrap(), Value::UInt(1 << 63));
        assert_eq!(value("1234567890123456789012.5").unwrap(), Value::Float(1_234_567_890_123_456_789_012.5));
        assert_eq!(value("NaN").unwrap(), Value::from("NaN"));
        assert_eq!(value("{\"a\": 18446744073709551616, \"a\": 1}").unwrap().get("a"), Some(&Value::Int(1)));
        let long = "9".repeat(1_000);
        assert_eq!(value(&long).unwrap().big_integer(), Some(long.as_str()));
        assert!(value(&"9".repeat(5_000)).is_err(), "more digits than an integer may have");
        // Other texts with digits stand for themselves.
        for text in ["00018446744073709551616", "18446744073709551616 km", "[18446744073709551616"] {
            assert_eq!(value(text).unwrap(), Value::from(text));
        }
    }
}
