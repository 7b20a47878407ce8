//! Texts as Python prints them: `repr`, `str`, `type` and `str.title`.

use std::fmt::Write as _;

use super::printable::is_printable;
use annals_base::{Map, Value};

/// Returns the Python text of a value: what `repr` gives.
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::internal::py_repr;
///
/// let value = Value::from(serde_json::json!({"a": [null, true, 1.0, "it's"]}));
/// assert_eq!(py_repr(&value), r#"{'a': [None, True, 1.0, "it's"]}"#);
/// ```
pub fn py_repr(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// Returns the Python text of an object.
pub(crate) fn py_repr_map(map: &Map) -> String {
    let mut out = String::new();
    write_map(&mut out, map);
    out
}

/// Returns what `str` gives: a text is used as it is.
pub fn py_str(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        other => py_repr(other),
    }
}

/// Returns the name of the Python type: `NoneType`, `bool`, `int`, `float`, `str`, `bytes`, `list`, `dict`.
pub(crate) fn py_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Map(_) => "dict",
        Value::Ext(..) if value.big_integer().is_none() => "Ext",
        other => other.kind(),
    }
}

/// Returns the Python text of a float: the shortest digits that give it back, with an exponent if the decimal exponent
/// is below -4 or at least 16.
pub fn py_float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let shortest = format!("{x:e}");
    // Of two shortest texts that are equally near, Python takes the one with the even digit.
    let places = shortest.split('e').next().map_or(0, |digits| digits.bytes().filter(u8::is_ascii_digit).count());
    let even = format!("{x:.*e}", places.saturating_sub(1));
    let chosen = if even.parse() == Ok(x) { even } else { shortest };
    let (mantissa, exponent) = chosen.split_once('e').unwrap_or((&chosen, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    }
    let whole = exponent as usize + 1;
    let padded = format!("{digits:0<width$}", width = whole + 1);
    // A whole number is followed by the one zero that it was padded with.
    format!("{sign}{}.{}", &padded[..whole], &padded[whole..])
}

/// Returns the text with the first letter of each run of letters in upper case, the others in lower case.
///
/// # Example
/// ```
/// assert_eq!(annals_messages::internal::py_title("it's a TOOL_message"), "It'S A Tool_Message");
/// ```
pub fn py_title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Of the whole text, as a sigma at the end of a word has a form of its own.
    let lower = text.to_lowercase();
    let mut lower = lower.chars();
    let mut inside = false;
    for c in text.chars() {
        let lowered: String = lower.by_ref().take(c.to_lowercase().count()).collect();
        match title_letter(c) {
            _ if inside => out.push_str(&lowered),
            Some(title) => out.push(title),
            // Its first letter is an apostrophe.
            None if c == '\u{149}' => out.extend(c.to_uppercase()),
            None => {
                // A letter that becomes several begins with a capital only, and an iota goes below it.
                let mut upper = c.to_uppercase();
                out.extend(upper.next());
                let below = |c: char| if c == '\u{399}' { '\u{345}' } else { c };
                out.extend(upper.map(below).flat_map(char::to_lowercase));
            }
        }
        inside = c.is_lowercase() || c.is_uppercase() || c.to_lowercase().next() != Some(c);
    }
    out
}

/// Returns the letter that stands at the beginning of a word, if it is neither the capital nor made of it: pairs of
/// which one is a capital, capitals with an iota, and letters of which Georgian has capitals for whole words only.
fn title_letter(c: char) -> Option<char> {
    let code = u32::from(c);
    let title = match code {
        0x1c4..=0x1cc => 0x1c5 + (code - 0x1c4) / 3 * 3,
        0x1f1..=0x1f3 => 0x1f2,
        0x10d0..=0x10ff | 0x1fbc | 0x1fcc | 0x1ffc => code,
        0x1f80..=0x1faf => code | 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => code + 9,
        _ => return None,
    };
    char::from_u32(title)
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Int(n) => _ = write!(out, "{n}"),
        Value::UInt(n) => _ = write!(out, "{n}"),
        Value::Float(x) => out.push_str(&py_float(*x)),
        Value::Str(text) => write_str(out, text),
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => write_map(out, map),
        Value::Ext(kind, bytes) => match value.big_integer() {
            Some(digits) => out.push_str(digits),
            None => {
                _ = write!(out, "Ext({kind}, ");
                write_bytes(out, bytes);
                out.push(')');
            }
        },
    }
}

fn write_map(out: &mut String, map: &Map) {
    out.push('{');
    for (at, (name, value)) in map.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_str(out, name);
        out.push_str(": ");
        write(out, value);
    }
    out.push('}');
}

fn write_str(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                _ = match code {
                    0..0x100 => write!(out, "\\x{code:02x}"),
                    0x100..0x1_0000 => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

fn write_bytes(out: &mut String, bytes: &[u8]) {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    out.extend(['b', quote]);
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x20..0x7f if char::from(*byte) == quote => out.extend(['\\', quote]),
            0x20..0x7f => out.push(char::from(*byte)),
            byte => _ = write!(out, "\\x{byte:02x}"),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // Digits that a float does not hold are the point.
    #[allow(clippy::excessive_precision)]
    fn floats_switch_to_an_exponent_where_python_does() {
        let cases = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456.789, "123456.789"),
            (10.0, "10.0"),
            (-0.001_25, "-0.00125"),
            (-1_113_178_120_592_002.25, "-1113178120592002.2"),
            (233_891_771_783_429.625, "233891771783429.62"),
            (5e-324, "5e-324"),
            (9_007_199_254_740_993.0, "9007199254740992.0"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (x, text) in cases {
            assert_eq!(py_float(x), text);
        }
    }

    #[test]
    fn texts_are_quoted_and_escaped_as_repr_does() {
        let repr = |text: &str| py_repr(&Value::from(text));
        assert_eq!(repr("a'b"), "\"a'b\"");
        assert_eq!(repr("a'b\""), "'a\\'b\"'");
        assert_eq!(repr("\\ \n\r\t\0\u{7f}"), "'\\\\ \\n\\r\\t\\x00\\x7f'");
        assert_eq!(repr("é\u{a0}\u{2028}\u{e0001}😀\u{200b}"), "'é\\xa0\\u2028\\U000e0001😀\\u200b'");
        assert_eq!(py_repr(&Value::Bytes(b"a'\x00".to_vec())), "b\"a'\\x00\"");
        assert_eq!(py_str(&Value::from("as it is")), "as it is");
    }

    #[test]
    fn titles_begin_each_run_of_letters() {
        assert_eq!(py_title("AIMessageChunk"), "Aimessagechunk");
        assert_eq!(py_title("éa ßa 2nd x_y"), "Éa Ssa 2Nd X_Y");
        assert_eq!(py_title("ǄAǅ ǆ ΌΣΟΣ ΣΑΣ1 ა ᾳ ᾷ ﬃ ŉa"), "ǅaǆ ǅ Όσος Σας1 ა ᾼ Α\u{342}\u{345} Ffi ʼNa");
    }
}
