//! JSON texts as Python writes them.

use std::fmt::Write as _;

use super::python::py_float;
use crate::base::{Map, Value};

/// Returns the JSON text of a value, with `", "` and `": "` between its parts as `json.dumps` writes them. With `ascii`,
/// what is not ASCII is escaped.
///
/// Bytes and extensions, which JSON lacks, are written in the form of [`Value::to_json`].
///
/// # Example
/// ```
/// use annals::base::Value;
/// use annals::message::text::json_dumps;
///
/// let value = Value::from(serde_json::json!({"a": [1.0, "é"]}));
/// assert_eq!(json_dumps(&value, true), r#"{"a": [1.0, "\u00e9"]}"#);
/// assert_eq!(json_dumps(&value, false), r#"{"a": [1.0, "é"]}"#);
/// ```
pub fn json_dumps(value: &Value, ascii: bool) -> String {
    let mut out = String::new();
    write(&mut out, value, ascii);
    out
}

/// Returns the JSON text of an object, as [`json_dumps`] does.
pub fn json_dumps_map(map: &Map, ascii: bool) -> String {
    let mut out = String::new();
    write_map(&mut out, map, ascii);
    out
}

fn write(out: &mut String, value: &Value, ascii: bool) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(n) => _ = write!(out, "{n}"),
        Value::UInt(n) => _ = write!(out, "{n}"),
        Value::Float(x) if x.is_nan() => out.push_str("NaN"),
        Value::Float(x) if x.is_infinite() => out.push_str(if *x > 0.0 { "Infinity" } else { "-Infinity" }),
        Value::Float(x) => out.push_str(&py_float(*x)),
        Value::Str(text) => write_str(out, text, ascii),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(out, item, ascii);
            }
            out.push(']');
        }
        Value::Map(map) => write_map(out, map, ascii),
        other @ (Value::Bytes(_) | Value::Ext(..)) => match other.big_integer() {
            Some(digits) => out.push_str(digits),
            None => write(out, &Value::from(other.to_json()), ascii),
        },
    }
}

fn write_map(out: &mut String, map: &Map, ascii: bool) {
    out.push('{');
    for (at, (name, value)) in map.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_str(out, name, ascii);
        out.push_str(": ");
        write(out, value, ascii);
    }
    out.push('}');
}

fn write_str(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && !matches!(c, ' '..='~')) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_python() {
        let value = Value::from("\u{8}\u{c}\n\r\t\"\\/\u{1}\u{7f}é😀");
        assert_eq!(json_dumps(&value, true), r#""\b\f\n\r\t\"\\/\u0001\u007f\u00e9\ud83d\ude00""#);
        assert_eq!(json_dumps(&value, false), "\"\\b\\f\\n\\r\\t\\\"\\\\/\\u0001\u{7f}é😀\"");
        assert_eq!(json_dumps(&Value::from(f64::INFINITY), true), "Infinity");
    }
}
