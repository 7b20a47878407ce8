//! The items of a JSON text, one at a time: those of a list, or values that follow each other (JSON lines).
//!
//! *Absent:* what is inside an item. Here it is only found where one ends; then it is read as any JSON text.

use std::io::{self, BufRead};

use super::json_read::{JsonError, json_loads};
use crate::base::Value;
use crate::base::limits::IMPORT_ITEM_BYTES_MAX;

/// Why there is no next item.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonItemsError {
    /// The reader failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The text is not JSON, or not within the limits.
    #[error("line {line}, column {column}: {reason}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
}

/// Reads the items of a JSON text one by one: those of a list if it begins with `[`, otherwise values that follow each
/// other. One item is held at a time. What Python writes is read: `NaN` and `Infinity`, integers of any length, and of
/// equal names the last one counts. A byte order mark at the beginning is passed over.
///
/// After an error there are no more items.
///
/// # Example: both kinds of text
/// ```
/// use annals::base::Value;
/// use annals::message::text::JsonItems;
///
/// for text in ["[1, [2], 36893488147419103232]", "1\n[2]\r\n36893488147419103232\n"] {
///     let items = JsonItems::new(text.as_bytes()).collect::<Result<Vec<_>, _>>()?;
///     assert_eq!((items.len(), items[2].big_integer()), (3, Some("36893488147419103232")));
/// }
/// let error = JsonItems::new("{\"a\": 1}\n{\"b\": }".as_bytes()).nth(1).unwrap().unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 7: expected a value");
/// # Ok::<(), annals::message::text::JsonItemsError>(())
/// ```
#[derive(Debug)]
pub struct JsonItems<R> {
    input: R,
    at: Place,
    state: State,
    /// The bytes of the present item.
    item: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    /// In a list, before its first item.
    List,
    /// In a list, after an item.
    More,
    /// Between values.
    Values,
    Ended,
}

/// A place in the text, both from 1.
#[derive(Clone, Copy, Debug)]
struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn pass(&mut self, bytes: &[u8]) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => *self = Self { line: self.line + lines, column: bytes.len() - last },
            None => self.column += bytes.len(),
        }
    }

    fn error(self, reason: impl Into<String>) -> JsonItemsError {
        JsonItemsError::NotJson { line: self.line, column: self.column, reason: reason.into() }
    }
}

impl<R: BufRead> JsonItems<R> {
    /// Reads from the beginning of a text.
    pub fn new(input: R) -> Self {
        Self { input, at: Place { line: 1, column: 1 }, state: State::Begin, item: Vec::new() }
    }

    fn read(&mut self) -> Result<Option<Value>, JsonItemsError> {
        if self.state == State::Begin {
            self.begin()?;
        }
        let next = self.space()?;
        match (self.state, next) {
            (State::Ended, _) | (State::Values, None) => return Ok(None),
            (State::List | State::More, Some(b']')) => {
                self.skip(1);
                return match self.space()? {
                    None => Ok(None),
                    Some(_) => Err(self.at.error("expected the end after the list")),
                };
            }
            (State::More, Some(b',')) => {
                self.skip(1);
                self.space()?;
            }
            (State::More, _) => return Err(self.at.error("expected a comma or the end of the list")),
            _ => {}
        }
        self.state = if self.state == State::Values { State::Values } else { State::More };
        self.item()?;
        let text = match std::str::from_utf8(&self.item) {
            Ok(text) => text,
            Err(error) => return Err(self.wrong(&JsonError::Utf8 { at: error.valid_up_to() })),
        };
        let value = json_loads(text, true).map_err(|error| self.wrong(&error))?;
        self.at.pass(&self.item);
        Ok(Some(value))
    }

    /// Looks at how the text begins.
    fn begin(&mut self) -> Result<(), JsonItemsError> {
        match self.peek()? {
            Some(0xef) => {
                for byte in *b"\xef\xbb\xbf" {
                    if self.peek()? != Some(byte) {
                        return Err(self.at.error("expected a value"));
                    }
                    self.input.consume(1);
                }
            }
            Some(0x1f) => return Err(self.at.error("the text is compressed (gzip)")),
            Some(0xfe | 0xff) => return Err(self.at.error("the text is in UTF-16, not in UTF-8")),
            _ => {}
        }
        self.state = State::Values;
        if self.space()? == Some(b'[') {
            self.skip(1);
            self.state = State::List;
        }
        Ok(())
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    /// Passes over space, and returns the byte after it.
    fn space(&mut self) -> io::Result<Option<u8>> {
        loop {
            let bytes = self.input.fill_buf()?;
            let spaces = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            let next = bytes.get(spaces).copied();
            self.at.pass(&bytes[..spaces]);
            let ended = bytes.is_empty();
            self.input.consume(spaces);
            if next.is_some() || ended {
                return Ok(next);
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.at.column += bytes;
    }

    /// Takes the bytes of one item. It ends where what it opened is closed; of a word or a number, where it cannot go on.
    fn item(&mut self) -> Result<(), JsonItemsError> {
        self.item.clear();
        let mut end = End::default();
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(());
            }
            let (length, found) = end.find(bytes);
            if self.item.len() + length > IMPORT_ITEM_BYTES_MAX {
                return Err(self.at.error(format!("the item is longer than {IMPORT_ITEM_BYTES_MAX} bytes")));
            }
            self.item.extend_from_slice(&bytes[..length]);
            self.input.consume(length);
            if found {
                return Ok(());
            }
        }
    }

    /// Says where in the text an item goes wrong.
    fn wrong(&self, error: &JsonError) -> JsonItemsError {
        let mut place = self.at;
        place.pass(self.item.get(..error.at().unwrap_or_default()).unwrap_or_default());
        place.error(error.what())
    }
}

impl<R: BufRead> Iterator for JsonItems<R> {
    type Item = Result<Value, JsonItemsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.state = State::Ended;
        }
        next
    }
}

/// Looks for the end of an item.
#[derive(Default)]
struct End {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// It is a word or a number.
    plain: bool,
}

impl End {
    /// Returns how many of the bytes belong to the item, and whether it ends there.
    fn find(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.in_text = false;
                        if self.depth == 0 {
                            return (at + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | b',' | b']' | b'}' | b'[' | b'{' | b'"' if self.plain => {
                    return (at, true);
                }
                b'"' => self.in_text = true,
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                b',' if self.depth == 0 => return (at, true),
                _ if self.depth == 0 => self.plain = true,
                _ => {}
            }
        }
        (bytes.len(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::text::{JsonStyle, json_write};
    use proptest::prelude::*;
    use std::io::BufReader;

    /// Reads with a buffer of so many bytes, so that every place is once at its end.
    fn read(text: &[u8], buffer: usize) -> Result<Vec<Value>, String> {
        let items = JsonItems::new(BufReader::with_capacity(buffer, text));
        items.collect::<Result<_, _>>().map_err(|e| e.to_string())
    }

    fn items(text: &str) -> Result<Vec<Value>, String> {
        let whole = read(text.as_bytes(), 1 << 12);
        for buffer in [1, 2, 5] {
            assert_eq!(read(text.as_bytes(), buffer), whole, "{text}");
        }
        whole
    }

    #[test]
    fn lists_and_lines_have_items() {
        for none in ["", " \r\n", "[]", " [ ] "] {
            assert_eq!(items(none), Ok(vec![]), "{none:?}");
        }
        let five =
            [Value::Null, Value::from("a\"]"), Value::from(5), Value::List(vec![]), Value::Map(Default::default())];
        for text in ["[null,\"a\\\"]\",5,[],{}]", "null \"a\\\"]\"\n5\r\n\r\n[]{}", "\u{feff}null\"a\\\"]\"5 [] {}"] {
            assert_eq!(items(text), Ok(five.to_vec()), "{text:?}");
        }
        assert_eq!(
            items("[-0.0, 1e400, -Infinity]").unwrap()[1..],
            [f64::INFINITY, f64::NEG_INFINITY].map(Value::from)
        );
    }

    #[test]
    fn what_is_wrong_has_a_line_and_a_column() {
        for (text, error) in [
            ("{\"a\":\n 1, b}", "line 2, column 5: expected a name in double quotes"),
            ("[1\n 2]", "line 2, column 2: expected a comma or the end of the list"),
            ("[1,\n", "line 2, column 1: expected a value"),
            ("[1,]", "line 1, column 4: expected a value"),
            ("[1", "line 1, column 3: expected a comma or the end of the list"),
            ("[1] x", "line 1, column 5: expected the end after the list"),
            ("{\"a\": \"b", "line 1, column 9: expected the end of a text"),
            ("[\"\\ud800\"]", "line 1, column 4: the escape is half a character"),
            ("nul", "line 1, column 1: expected a value"),
            ("{]}", "line 1, column 2: expected a name in double quotes"),
            ("]", "line 1, column 1: expected a value"),
            (",", "line 1, column 1: expected a value"),
        ] {
            assert_eq!(items(text), Err(error.to_owned()), "{text:?}");
        }
        assert_eq!(
            read(b"[\"\xff\"]", 64),
            Err("line 1, column 3: the byte does not belong to a text in UTF-8".into())
        );
        assert_eq!(read(b"\x1f\x8b\x08", 64), Err("line 1, column 1: the text is compressed (gzip)".into()));
        assert_eq!(read(b"\xff\xfe[\0", 64), Err("line 1, column 1: the text is in UTF-16, not in UTF-8".into()));
        let deep = read("[".repeat(100_000).as_bytes(), 64).unwrap_err();
        assert!(deep.contains("lists and objects inside one another"), "{deep}");
        let mut ended = JsonItems::new("1 x 2".as_bytes());
        assert!(ended.next().unwrap().is_ok() && ended.next().unwrap().is_err() && ended.next().is_none());
    }

    #[test]
    fn an_item_that_is_too_long_is_refused_before_it_is_held() {
        let endless = io::Read::chain(&b"\""[..], io::repeat(b'a'));
        let error = JsonItems::new(BufReader::new(endless)).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
    }

    proptest! {
        #[test]
        fn a_list_has_the_items_it_has_as_a_whole(text in r#"[\[\]{}",:0-9a\\u.e \n-]{0,24}"#) {
            if let Ok(Value::List(whole)) = json_loads(&text, true) {
                prop_assert_eq!(items(&text), Ok(whole));
            } else if text.trim_start().starts_with('[') {
                prop_assert!(items(&text).is_err(), "{:?}", text);
            }
        }

        #[test]
        fn values_that_follow_each_other_are_told_apart(texts in prop::collection::vec("[a-z\"\\\\{\\[]{0,6}", 0..6)) {
            let values: Vec<Value> = texts.iter().map(|text| Value::List(vec![text.as_str().into(), 1.into()])).collect();
            let lines: String = values.iter().map(|value| json_write(value, JsonStyle::PYDANTIC) + "\n").collect();
            prop_assert_eq!(items(&format!("0 {lines}")).unwrap()[1..].to_vec(), values);
        }
    }
}
