//! JSON texts as Python writes them.

use std::fmt::Write as _;

use super::python::py_float;
use annals_base::{Map, Value};

/// How a JSON text is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonStyle {
    /// Floats as Python writes them (`1e-07`), and not as serde_json does (`1e-7`).
    pub python_floats: bool,
    /// Floats that are not finite as `NaN` and `Infinity`, and not as `null`.
    pub not_finite: bool,
    /// Characters other than printable ASCII as `\u` and four hexadecimal digits.
    pub ascii: bool,
    /// Members in the order of their names.
    pub sorted: bool,
    /// `", "` and `": "` between the parts.
    pub spaced: bool,
}

impl JsonStyle {
    /// As `json.dumps` of Python writes it, without escapes of characters beyond ASCII.
    pub const PYTHON: Self = Self { python_floats: true, not_finite: true, ascii: false, sorted: false, spaced: true };
    /// As pydantic writes it: nothing between the parts, and `null` for numbers that are not finite.
    pub const PYDANTIC: Self =
        Self { python_floats: false, not_finite: false, ascii: false, sorted: false, spaced: false };
}

/// Returns the JSON text of a value.
///
/// Bytes and extensions, which JSON lacks, are written in the form of [`Value::to_json`]; a long integer is a number.
///
/// # Example: two ways to write a float
/// ```
/// use annals_base::Value;
/// use annals_messages::internal::{JsonStyle, json_write};
///
/// let value = Value::from(vec![1e-7, f64::NAN]);
/// assert_eq!(json_write(&value, JsonStyle::PYTHON), "[1e-07, NaN]");
/// assert_eq!(json_write(&value, JsonStyle::PYDANTIC), "[1e-7,null]");
/// ```
pub fn json_write(value: &Value, style: JsonStyle) -> String {
    let mut out = String::new();
    write(&mut out, value, style);
    out
}

/// Returns the JSON text of a value, with `", "` and `": "` between its parts as `json.dumps` writes them. With
/// `ascii`, characters beyond ASCII are escaped.
///
/// Bytes and extensions, which JSON lacks, are written in the form of [`Value::to_json`].
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::internal::json_dumps;
///
/// let value = Value::from(serde_json::json!({"a": [1.0, "é"]}));
/// assert_eq!(json_dumps(&value, true), r#"{"a": [1.0, "\u00e9"]}"#);
/// assert_eq!(json_dumps(&value, false), r#"{"a": [1.0, "é"]}"#);
/// ```
pub fn json_dumps(value: &Value, ascii: bool) -> String {
    json_write(value, JsonStyle { ascii, ..JsonStyle::PYTHON })
}

/// Returns the JSON text of an object, as [`json_dumps`] does.
pub(crate) fn json_dumps_map(map: &Map, ascii: bool) -> String {
    let mut out = String::new();
    write_map(&mut out, map, JsonStyle { ascii, ..JsonStyle::PYTHON });
    out
}

fn write(out: &mut String, value: &Value, style: JsonStyle) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(n) => _ = write!(out, "{n}"),
        Value::UInt(n) => _ = write!(out, "{n}"),
        Value::Float(x) if !x.is_finite() && !style.not_finite => out.push_str("null"),
        Value::Float(x) if x.is_nan() => out.push_str("NaN"),
        Value::Float(x) if x.is_infinite() => out.push_str(if *x > 0.0 { "Infinity" } else { "-Infinity" }),
        Value::Float(x) if style.python_floats => out.push_str(&py_float(*x)),
        Value::Float(x) => out.push_str(&short_float(*x)),
        Value::Str(text) => write_str(out, text, style.ascii),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                separate(out, at, style);
                write(out, item, style);
            }
            out.push(']');
        }
        Value::Map(map) => write_map(out, map, style),
        other @ (Value::Bytes(_) | Value::Ext(..)) => match other.big_integer() {
            Some(digits) => out.push_str(digits),
            None => write(out, &Value::from(other.to_json()), style),
        },
    }
}

fn separate(out: &mut String, at: usize, style: JsonStyle) {
    if at > 0 {
        out.push_str(if style.spaced { ", " } else { "," });
    }
}

fn write_map(out: &mut String, map: &Map, style: JsonStyle) {
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    if style.sorted {
        members.sort_by_key(|(name, _)| *name);
    }
    out.push('{');
    for (at, (name, value)) in members.into_iter().enumerate() {
        separate(out, at, style);
        write_str(out, name, style.ascii);
        out.push_str(if style.spaced { ": " } else { ":" });
        write(out, value, style);
    }
    out.push('}');
}

/// Returns the text of a finite float as pydantic writes it: the digits of Python, with an exponent of as few digits as
/// it has, and none for the decimal exponent -5.
fn short_float(x: f64) -> String {
    let text = py_float(x);
    match text.split_once("e-0") {
        Some((mantissa, "5")) => {
            let (sign, digits) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
            format!("{sign}0.0000{}", digits.replace('.', ""))
        }
        Some((mantissa, exponent)) => format!("{mantissa}e-{exponent}"),
        None => text,
    }
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
    fn floats_are_written_as_by_each_of_the_two() {
        for (x, short, python) in [
            (1.0, "1.0", "1.0"),
            (1e15, "1000000000000000.0", "1000000000000000.0"),
            (1e16, "1e+16", "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17", "1.2345678901234568e+17"),
            (0.0001, "0.0001", "0.0001"),
            (0.000_015, "0.000015", "1.5e-05"),
            (1e-7, "1e-7", "1e-07"),
            (-1.5e300, "-1.5e+300", "-1.5e+300"),
            (-0.25, "-0.25", "-0.25"),
            (-0.0, "-0.0", "-0.0"),
        ] {
            let value = Value::from(x);
            assert_eq!(json_write(&value, JsonStyle::PYDANTIC), short);
            assert_eq!(json_write(&value, JsonStyle::PYTHON), python);
        }
    }

    #[test]
    fn escapes_are_those_of_python() {
        let value = Value::from("\u{8}\u{c}\n\r\t\"\\/\u{1}\u{7f}é😀");
        assert_eq!(json_dumps(&value, true), r#""\b\f\n\r\t\"\\/\u0001\u007f\u00e9\ud83d\ude00""#);
        assert_eq!(json_dumps(&value, false), "\"\\b\\f\\n\\r\\t\\\"\\\\/\\u0001\u{7f}é😀\"");
        assert_eq!(json_dumps(&Value::from(f64::INFINITY), true), "Infinity");
    }
}
