//! Values from JSON texts, with all digits of their integers: a number of the JSON parser has at most 64 bits.
//!
//! Invariant: a number that cannot be stored is refused by the name of its field; no text takes its place.

use annals::base::limits::INTEGER_DIGITS_MAX;
use annals::base::{Map, Value};
use serde_json::Value as Json;

use crate::errors::CommandFailure;
use crate::output::cut;

/// Digits that fit into 64 bits in any case.
const SHORT_DIGITS: usize = 18;

/// Characters of a number that a message shows.
const SHOWN: usize = 40;

/// The mark at the begin of a text that stands for an integer.
const MARK: char = '~';

/// Reads JSON of a field; any other text stands for itself.
pub(crate) fn value(field: &str, text: &str) -> Result<Value, CommandFailure> {
    Ok(json(field, text)?.unwrap_or_else(|| Value::from(text)))
}

/// Returns the values that a text of a person may stand for, as a resume value: that of its JSON, a boolean, and the
/// text.
pub(crate) fn readings(field: &str, text: &str) -> Result<Vec<Value>, CommandFailure> {
    let boolean = match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    let mut readings = vec![value(field, text)?];
    readings.extend(boolean.map(Value::from));
    readings.push(Value::from(text));
    Ok(readings)
}

/// Reads JSON of a field; `None` if the text is something else. A number that the store does not take is refused.
pub(crate) fn json(field: &str, text: &str) -> Result<Option<Value>, CommandFailure> {
    let long = long_numbers(text);
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
    let refused = |number: String| {
        let shown = cut(&number, SHOWN);
        let reason = match number.contains(['.', 'e', 'E']) {
            true => format!("is larger than {:e}", f64::MAX),
            false => format!("has more than {INTEGER_DIGITS_MAX} digits"),
        };
        CommandFailure::usage(format!("{field}: the number {shown} {reason}; nothing was stored"))
    };
    unmarked(json, &mark).map(Some).map_err(refused)
}

/// Returns the begin and the end of each integer that may not fit into 64 bits, and of each number that is not finite.
fn long_numbers(text: &str) -> Vec<(usize, usize)> {
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
                let is_endless = || text[start..at].parse().is_ok_and(|number: f64| number.is_infinite());
                if is_integer && digits.len() > SHORT_DIGITS || !is_integer && is_endless() {
                    found.push((start, at));
                }
            }
            _ => at += 1,
        }
    }
    found
}

/// Returns a document as a value, its marked texts as integers. The error is a number that the store does not take.
fn unmarked(json: Json, mark: &str) -> Result<Value, String> {
    Ok(match json {
        Json::String(text) => match text.strip_prefix(mark) {
            Some(digits) => Value::from_digits(digits).ok_or(digits)?,
            None => Value::from(text),
        },
        Json::Array(items) => {
            Value::List(items.into_iter().map(|item| unmarked(item, mark)).collect::<Result<Vec<_>, _>>()?)
        }
        Json::Object(members) => {
            let members = members.into_iter().map(|(name, member)| Ok((name, unmarked(member, mark)?)));
            Value::Map(members.collect::<Result<Map, String>>()?)
        }
        other => Value::from(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Value, CommandFailure> {
        super::value("n", text)
    }

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

    #[test]
    fn a_number_past_the_largest_is_refused_by_the_name_of_its_field() {
        for text in ["1e400", "-1e400", "{\"a\": [1, 1e309]}", "123456789.5e999"] {
            let CommandFailure::Error { exit, message, .. } = value(text).unwrap_err() else { panic!("{text}") };
            assert!(
                exit == 2 && message.starts_with("n: the number ") && message.contains("larger than 1.79"),
                "{message}"
            );
        }
        let CommandFailure::Error { message, .. } = value(&"9".repeat(5_000)).unwrap_err() else { panic!("an error") };
        assert!(message.contains("more than 4300 digits") && message.len() < 200, "{message}");
        // Other texts with such a number stand for themselves.
        for text in ["1e400 km", "[1e400", "\"1e400\" ", "1e400e5"] {
            assert!(value(text).unwrap().as_str().is_some(), "{text}");
        }
    }

    #[test]
    fn the_text_of_a_person_has_several_readings() {
        let read = |text: &str| readings("--answer", text).unwrap();
        assert_eq!(read("12"), [Value::from(12), Value::from("12")]);
        assert_eq!(read("yes"), [Value::from("yes"), Value::from(true), Value::from("yes")]);
        assert_eq!(read("no")[1], Value::from(false));
        assert!(readings("--answer", "1e400").is_err());
    }
}
