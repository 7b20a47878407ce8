//! JSON texts as Python reads them.
//!
//! *Absent:* lone surrogates, which Python reads; they are errors, and never replaced.

use crate::limits::{JSON_DEPTH_MAX, JSON_NODES_MAX};
use annals_base::limits::INTEGER_DIGITS_MAX;
use annals_base::{Map, Value};

/// A text that is not JSON, or JSON past a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text does not go on as JSON does.
    #[error("not JSON: expected {expected} at byte {at}")]
    Syntax {
        /// The offset in bytes.
        at: usize,
        /// The expected token.
        expected: &'static str,
    },
    /// An integer is too long.
    #[error("the integer at byte {at} has more than {INTEGER_DIGITS_MAX} digits")]
    Integer {
        /// The offset in bytes.
        at: usize,
    },
    /// The bytes are not valid UTF-8.
    #[error("the byte {at} does not belong to a text in UTF-8")]
    Utf8 {
        /// The offset in bytes.
        at: usize,
    },
    /// Half of a character that is written as two escapes.
    #[error("the escape at byte {at} is half a character")]
    Surrogate {
        /// The offset in bytes.
        at: usize,
    },
    /// Lists and objects are nested too deeply.
    #[error("more than {JSON_DEPTH_MAX} lists and objects inside one another")]
    Depth,
    /// There are too many values.
    #[error("more than {JSON_NODES_MAX} values")]
    Nodes,
}

impl JsonError {
    /// Returns where the text goes wrong, in bytes, if that is at one place.
    pub fn at(&self) -> Option<usize> {
        match self {
            Self::Syntax { at, .. } | Self::Integer { at } | Self::Utf8 { at } | Self::Surrogate { at } => Some(*at),
            Self::Depth | Self::Nodes => None,
        }
    }

    /// Returns the reason, without the offset.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Syntax { expected, .. } => format!("expected {expected}"),
            Self::Integer { .. } => format!("the integer has more than {INTEGER_DIGITS_MAX} digits"),
            Self::Utf8 { .. } => "the byte does not belong to a text in UTF-8".to_owned(),
            Self::Surrogate { .. } => "the escape is half a character".to_owned(),
            Self::Depth | Self::Nodes => self.to_string(),
        }
    }
}

/// Reads a JSON text as `json.loads` does: `NaN` and `Infinity` are numbers, and of equal names the last one counts.
/// Without `strict`, control characters may stand in texts.
///
/// # Errors
/// [`JsonError`] that says where the text goes wrong, or which limit it passes.
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::internal::json_loads;
///
/// assert_eq!(json_loads("[1, 1.0]", true)?, Value::from(vec![Value::Int(1), Value::Float(1.0)]));
/// assert!(json_loads("\"two\nlines\"", true).is_err() && json_loads("\"two\nlines\"", false).is_ok());
/// # Ok::<(), annals_messages::JsonError>(())
/// ```
pub fn json_loads(text: &str, strict: bool) -> Result<Value, JsonError> {
    Reader::new(text, strict).read(|_, _| {})
}

/// A list or an object that is not closed yet.
#[derive(Debug)]
pub(crate) enum Open {
    List(Vec<Value>),
    /// With the name whose value comes next.
    Map(Map, String),
}

impl Open {
    /// Returns what closes it.
    pub(crate) fn closer(&self) -> u8 {
        match self {
            Self::List(_) => b']',
            Self::Map(..) => b'}',
        }
    }
}

/// Reads one JSON text, without recursion.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    strict: bool,
    open: Vec<Open>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str, strict: bool) -> Self {
        Self { text, at: 0, strict, open: Vec::new(), nodes: 0 }
    }

    /// Reads the text. `may_end` is called at each offset at which closing the open containers would end the text.
    pub(crate) fn read(mut self, mut may_end: impl FnMut(usize, &[Open])) -> Result<Value, JsonError> {
        loop {
            let Some(mut value) = self.begin(&mut may_end)? else { continue };
            // A complete value goes into the open container, which may be complete with it.
            loop {
                match self.open.last_mut() {
                    None => {
                        may_end(self.at, &[]);
                        self.space();
                        debug_assert!(self.at <= self.text.len(), "no byte is read past the end");
                        let rest = self.peek();
                        return if rest.is_none() { Ok(value) } else { Err(self.expected("the end")) };
                    }
                    Some(Open::List(items)) => items.push(value),
                    Some(Open::Map(map, name)) => _ = map.insert(std::mem::take(name), value),
                }
                may_end(self.at, &self.open);
                self.space();
                match self.close() {
                    Some(closed) => value = closed,
                    None => break,
                }
            }
            self.take(b',', "a comma or what closes it")?;
            self.space();
            self.name()?;
        }
    }

    /// Reads a scalar, an empty list or an empty object; of others the beginning.
    fn begin(&mut self, may_end: &mut impl FnMut(usize, &[Open])) -> Result<Option<Value>, JsonError> {
        self.space();
        self.nodes += 1;
        if self.nodes > JSON_NODES_MAX {
            return Err(JsonError::Nodes);
        }
        let open = match self.peek() {
            Some(b'{') => Open::Map(Map::new(), String::new()),
            Some(b'[') => Open::List(Vec::new()),
            _ => return self.scalar().map(Some),
        };
        if self.open.len() >= JSON_DEPTH_MAX {
            return Err(JsonError::Depth);
        }
        self.at += 1;
        self.open.push(open);
        debug_assert!(self.open.len() <= JSON_DEPTH_MAX, "containers are nested within the limit");
        may_end(self.at, &self.open);
        self.space();
        match self.close() {
            Some(empty) => Ok(Some(empty)),
            None => self.name().map(|()| None),
        }
    }

    /// Closes the container opened last, if its closing bracket comes next.
    fn close(&mut self) -> Option<Value> {
        let closer = self.open.last()?.closer();
        if self.peek() != Some(closer) {
            return None;
        }
        self.at += 1;
        self.open.pop().map(|open| match open {
            Open::List(items) => Value::List(items),
            Open::Map(map, _) => Value::Map(map),
        })
    }

    /// Reads the name of the next member and its colon, if an object is open.
    fn name(&mut self) -> Result<(), JsonError> {
        if !matches!(self.open.last(), Some(Open::Map(..))) {
            return Ok(());
        }
        let read = self.string("a name in double quotes")?;
        self.space();
        self.take(b':', "a colon")?;
        if let Some(Open::Map(_, name)) = self.open.last_mut() {
            *name = read;
        }
        Ok(())
    }

    fn scalar(&mut self) -> Result<Value, JsonError> {
        if self.peek() == Some(b'"') {
            return self.string("a text").map(Value::Str);
        }
        let rest = &self.text[self.at..];
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        if let Some((word, value)) = words.into_iter().find(|(word, _)| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(value);
        }
        let Some(length) = number_length(rest.as_bytes()) else { return Err(self.expected("a value")) };
        let digits = &rest[..length];
        let value = if digits.contains(['.', 'e', 'E']) {
            digits.parse().ok().map(Value::Float)
        } else {
            Value::from_digits(digits)
        };
        let value = value.ok_or(JsonError::Integer { at: self.at })?;
        self.at += length;
        Ok(value)
    }

    fn string(&mut self, expected: &'static str) -> Result<String, JsonError> {
        self.take(b'"', expected)?;
        let mut out = String::new();
        let mut plain = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    out.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    debug_assert!(self.text.is_char_boundary(self.at), "a text ends between two characters");
                    return Ok(out);
                }
                Some(b'\\') => {
                    out.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    out.push(self.escaped()?);
                    plain = self.at;
                }
                Some(0..0x20) if self.strict => return Err(self.expected("no control character in a text")),
                Some(_) => self.at += 1,
                None => return Err(self.expected("the end of a text")),
            }
        }
    }

    /// Reads what follows a backslash.
    fn escaped(&mut self) -> Result<char, JsonError> {
        let at = self.at;
        let c = match self.peek() {
            Some(b'u') => {
                let first = self.unit()?;
                if !(0xd800..0xe000).contains(&first) {
                    return char::from_u32(first).ok_or(JsonError::Surrogate { at });
                }
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(JsonError::Surrogate { at });
                }
                self.at += 1;
                let second = self.unit()?;
                let pair = [first as u16, second as u16];
                let decoded = char::decode_utf16(pair).next().and_then(Result::ok);
                return decoded.filter(|c| c.len_utf16() == 2).ok_or(JsonError::Surrogate { at });
            }
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            _ => return Err(self.expected("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    /// Reads `u` and four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.get(self.at + 1..self.at + 5).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.expected("four hexadecimal digits"))?;
        self.at += 5;
        Ok(unit)
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, expected }
    }
}

/// Returns the length of the number at the beginning: as much as makes one.
fn number_length(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let whole = match bytes.get(sign)? {
        b'0' => 1,
        _ => digits(sign),
    };
    if whole == 0 {
        return None;
    }
    let mut end = sign + whole;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        end += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn loads(text: &str) -> Result<Value, JsonError> {
        json_loads(text, true)
    }

    #[test]
    fn texts_are_read_as_python_reads_them() {
        let json = serde_json::json!({"a": [1, -2.5e-3, "x\u{1f600}\n", {}, [], null], "b": true});
        let text = r#" {"a": [1, -2.5e-3, "x\ud83d\ude00\n", {}, [ ], null], "b": false, "b": true} "#;
        assert_eq!(loads(text).unwrap(), Value::from(json));
        assert_eq!(loads("18446744073709551615").unwrap(), Value::UInt(u64::MAX));
        assert_eq!(loads("-0").unwrap(), Value::Int(0));
        assert!(matches!(loads("-0.0").unwrap(), Value::Float(x) if x.is_sign_negative()));
        assert!(matches!(loads("[NaN, -Infinity]").unwrap(), Value::List(items) if items.len() == 2));
        assert!(matches!(loads("1e400").unwrap(), Value::Float(x) if x.is_infinite()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, at) in [
            ("", 0),
            ("[1,]", 3),
            ("{\"a\" 1}", 5),
            ("{a: 1}", 1),
            ("[1 2]", 3),
            ("01", 1),
            ("1.", 1),
            ("-", 0),
            ("tru", 0),
            ("\"a", 2),
            ("\"\\x\"", 2),
            ("\"\\u12g4\"", 2),
            ("{\"a\": 1,}", 8),
            ("1 2", 2),
            ("\"\n\"", 1),
        ] {
            assert!(matches!(loads(text), Err(JsonError::Syntax { at: found, .. }) if found == at), "{text:?}");
        }
        let long = format!("[{}]", "9".repeat(INTEGER_DIGITS_MAX + 1));
        assert_eq!(loads(&long), Err(JsonError::Integer { at: 1 }));
        for half in [r#""\ud800""#, r#""\ud800\u0041""#, r#""\udc00\ud800""#] {
            assert_eq!(loads(half), Err(JsonError::Surrogate { at: 2 }), "{half}");
        }
        assert_eq!(loads(&"[".repeat(1_000_000)), Err(JsonError::Depth));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r#"[\[\]{}",:0-9a\\u.e -]{0,40}"#) {
            let ours = loads(&text);
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // `serde_json` rounds integers outside 64 bits, and reads the integer -0 as a float.
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            if theirs.is_ok() && (digits >= 19 || text.contains("-0")) {
                prop_assert!(ours.is_ok(), "{:?} gives {:?}", text, ours);
            } else if let Ok(theirs) = theirs {
                prop_assert_eq!(ours.unwrap(), Value::from(theirs));
            } else if let Ok(value) = ours {
                // Words that only Python reads.
                prop_assert!(text.contains(['e', '.']) || text.len() > 15, "{:?} gives {:?}", text, value);
            }
        }
    }
}
