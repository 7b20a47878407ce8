//! The items of a JSON text, one at a time: those of a list, or values that follow each other (JSON lines).
//!
//! *Absent:* the content of an item. This module finds the end of an item, which is then read as any JSON text.

use std::io::{self, BufRead};

use super::json_read::{JsonError, json_loads};
use crate::limits::IMPORT_ITEM_BYTES_MAX;
use annals_base::Value;

/// The reason why the next item could not be read.
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
        /// The fault at this position.
        reason: String,
    },
}

/// Reads the items of a JSON text one by one: those of a list if it begins with `[`, otherwise values that follow each
/// other. One item is held at a time. JSON as Python writes it is read: `NaN` and `Infinity`, integers of any length,
/// and of equal names the last one counts. A byte order mark at the beginning is passed over.
///
/// After an error the items end, unless they are [`lenient`](Self::lenient).
///
/// # Example: both kinds of text
/// ```
/// use annals_base::Value;
/// use annals_messages::internal::JsonItems;
///
/// for text in ["[1, [2], 36893488147419103232]", "1\n[2]\r\n36893488147419103232\n"] {
///     let items = JsonItems::new(text.as_bytes()).collect::<Result<Vec<_>, _>>()?;
///     assert_eq!((items.len(), items[2].big_integer()), (3, Some("36893488147419103232")));
/// }
/// let error = JsonItems::new("{\"a\": 1}\n{\"b\": }".as_bytes()).nth(1).unwrap().unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 7: expected a value");
/// # Ok::<(), annals_messages::internal::JsonItemsError>(())
/// ```
#[derive(Debug)]
pub struct JsonItems<R> {
    input: R,
    /// Bytes that were taken from the input and are read again, from an offset on.
    again: Vec<u8>,
    again_at: usize,
    at: LineColumn,
    state: ItemsState,
    /// The bytes of the present item.
    item: Vec<u8>,
    /// The line in which it begins.
    line: usize,
    is_list: Option<bool>,
    is_lenient: bool,
    /// No item goes on in another line: so it was said, or a line was passed over.
    by_line: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemsState {
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
struct LineColumn {
    line: usize,
    column: usize,
}

impl LineColumn {
    fn pass(&mut self, bytes: &[u8]) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => *self = Self { line: self.line + lines, column: bytes.len() - last },
            None => self.column += bytes.len(),
        }
        debug_assert!(self.line >= 1 && self.column >= 1, "lines and columns are counted from 1");
    }

    fn error(self, reason: impl Into<String>) -> JsonItemsError {
        JsonItemsError::NotJson { line: self.line, column: self.column, reason: reason.into() }
    }
}

impl<R: BufRead> JsonItems<R> {
    /// Reads from the beginning of a text.
    pub fn new(input: R) -> Self {
        Self {
            input,
            again: Vec::new(),
            again_at: 0,
            at: LineColumn { line: 1, column: 1 },
            state: ItemsState::Begin,
            item: Vec::new(),
            line: 1,
            is_list: None,
            is_lenient: false,
            by_line: false,
        }
    }

    /// Takes the text for a list, whatever it begins with.
    #[must_use]
    pub fn list(mut self) -> Self {
        self.is_list = Some(true);
        self
    }

    /// Takes the text for JSON lines, whatever it begins with: no value goes on in another line.
    #[must_use]
    pub fn lines(mut self) -> Self {
        (self.is_list, self.by_line) = (Some(false), true);
        self
    }

    /// Goes on after a value that cannot be read: with the next line, and from there on no value goes on in another
    /// line. In a list the items end with an error all the same, as do those of a text that is packed or in UTF-16.
    ///
    /// # Example: a broken line
    /// ```
    /// use annals_messages::internal::JsonItems;
    ///
    /// let mut items = JsonItems::new("{\"a\": 1}\n{\"b\": }\n{\"c\": 3}\n".as_bytes()).lenient();
    /// assert!(items.next().unwrap().is_ok());
    /// assert_eq!(items.next().unwrap().unwrap_err().to_string(), "line 2, column 7: expected a value");
    /// assert_eq!((items.line(), items.has_ended()), (2, false));
    /// assert_eq!(items.next().unwrap()?.get("c").and_then(|c| c.as_int()), Some(3));
    /// # Ok::<(), annals_messages::internal::JsonItemsError>(())
    /// ```
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.is_lenient = true;
        self
    }

    /// Returns the line, from 1, in which the last item begins that was read or could not be.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns whether the text is a list; no, as long as nothing was read of it and it was not [said](Self::list).
    pub fn is_list(&self) -> bool {
        self.is_list == Some(true)
    }

    /// Returns whether the items end here.
    pub fn has_ended(&self) -> bool {
        self.state == ItemsState::Ended
    }

    fn read(&mut self) -> Result<Option<Value>, JsonItemsError> {
        if self.state == ItemsState::Begin {
            self.begin()?;
        }
        let next = self.space()?;
        match (self.state, next) {
            (ItemsState::Ended, _) | (ItemsState::Values, None) => return Ok(None),
            (ItemsState::List | ItemsState::More, Some(b']')) => {
                self.skip(1);
                return match self.space()? {
                    None => Ok(None),
                    Some(_) => Err(self.at.error("expected the end after the list")),
                };
            }
            (ItemsState::More, Some(b',')) => {
                self.skip(1);
                self.space()?;
            }
            (ItemsState::More, _) => return Err(self.at.error("expected a comma or the end of the list")),
            _ => {}
        }
        self.state = if self.state == ItemsState::Values { ItemsState::Values } else { ItemsState::More };
        self.line = self.at.line;
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
                    self.consume(1);
                }
            }
            Some(0x1f) => return Err(self.at.error("the text is compressed (gzip)")),
            Some(0xfe | 0xff) => return Err(self.at.error("the text is in UTF-16, not in UTF-8")),
            _ => {}
        }
        let begins_list = self.space()? == Some(b'[');
        let is_list = *self.is_list.get_or_insert(begins_list);
        if is_list && !begins_list {
            return Err(self.at.error("expected a list"));
        }
        self.state = ItemsState::Values;
        if is_list {
            self.skip(1);
            self.state = ItemsState::List;
        }
        Ok(())
    }

    /// Returns the bytes that come next; none at the end.
    fn fill(&mut self) -> io::Result<&[u8]> {
        match self.again.get(self.again_at..) {
            Some([]) | None => self.input.fill_buf(),
            Some(again) => Ok(again),
        }
    }

    fn consume(&mut self, bytes: usize) {
        if self.again_at < self.again.len() {
            self.again_at += bytes;
        } else {
            self.input.consume(bytes);
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.fill()?.first().copied())
    }

    /// Passes over space, and returns the byte after it.
    fn space(&mut self) -> io::Result<Option<u8>> {
        loop {
            let mut at = self.at;
            let bytes = self.fill()?;
            let spaces = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            let next = bytes.get(spaces).copied();
            at.pass(&bytes[..spaces]);
            let ended = bytes.is_empty();
            self.at = at;
            self.consume(spaces);
            if next.is_some() || ended {
                return Ok(next);
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.consume(bytes);
        self.at.column += bytes;
    }

    /// Takes the bytes of one item. It ends with its closing bracket; a word or a number ends before the first
    /// character outside it.
    fn item(&mut self) -> Result<(), JsonItemsError> {
        let mut item = std::mem::take(&mut self.item);
        item.clear();
        let taken = self.take_item(&mut item);
        self.item = item;
        taken
    }

    fn take_item(&mut self, item: &mut Vec<u8>) -> Result<(), JsonItemsError> {
        let mut end = ItemEnd { by_line: self.by_line, ..ItemEnd::default() };
        loop {
            let bytes = self.fill()?;
            if bytes.is_empty() {
                return Ok(());
            }
            let (length, found) = end.find(bytes);
            if item.len() + length > IMPORT_ITEM_BYTES_MAX {
                return Err(self.at.error(format!("the item is longer than {IMPORT_ITEM_BYTES_MAX} bytes")));
            }
            item.extend_from_slice(&bytes[..length]);
            self.consume(length);
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

    /// Passes over the line in which an item begins that cannot be read. Bytes of later lines are read again.
    fn pass_line(&mut self) -> io::Result<()> {
        self.by_line = true;
        if let Some(end) = self.item.iter().position(|byte| *byte == b'\n') {
            self.again = self.item.split_off(end);
            self.at.pass(&self.item);
            return Ok(());
        }
        self.at.pass(&self.item);
        self.item.clear();
        loop {
            let mut at = self.at;
            let bytes = self.fill()?;
            let line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
            at.pass(&bytes[..line]);
            let ended = line < bytes.len() || bytes.is_empty();
            self.at = at;
            self.consume(line);
            if ended {
                return Ok(());
            }
        }
    }
}

impl<R: BufRead> Iterator for JsonItems<R> {
    type Item = Result<Value, JsonItemsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        let goes_on = match &next {
            Some(Ok(_)) => true,
            Some(Err(JsonItemsError::NotJson { .. })) if self.is_lenient && self.state == ItemsState::Values => {
                match self.pass_line() {
                    Ok(()) => true,
                    Err(error) => {
                        self.state = ItemsState::Ended;
                        return Some(Err(error.into()));
                    }
                }
            }
            _ => false,
        };
        if !goes_on {
            self.state = ItemsState::Ended;
        }
        next
    }
}

/// Looks for the end of an item.
#[derive(Default)]
struct ItemEnd {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// It is a word or a number.
    plain: bool,
    /// It ends with its line.
    by_line: bool,
}

impl ItemEnd {
    /// Returns how many of the bytes belong to the item, and whether it ends there.
    fn find(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            if self.by_line && *byte == b'\n' {
                return (at, true);
            }
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
    use crate::text::{JsonStyle, json_write};
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
        // The line is passed over, and the one after it is read.
        let long = io::Read::chain(&b"\""[..], io::Read::take(io::repeat(b'a'), IMPORT_ITEM_BYTES_MAX as u64 + 9));
        let lines = io::Read::chain(long, &b"\n5"[..]);
        let mut items = JsonItems::new(BufReader::new(lines)).lenient();
        assert!(items.next().unwrap().unwrap_err().to_string().contains("longer than"));
        assert_eq!((items.next().unwrap().unwrap(), items.line()), (5.into(), 2));
        assert!(items.next().is_none());
    }

    /// Returns the items, and the lines that were passed over.
    fn lenient(text: &str) -> (Vec<Value>, Vec<usize>) {
        let with_buffer = |buffer| {
            let mut items = JsonItems::new(BufReader::with_capacity(buffer, text.as_bytes())).lenient();
            let (mut read, mut passed) = (Vec::new(), Vec::new());
            while let Some(item) = items.next() {
                match item {
                    Ok(item) => read.push(item),
                    Err(_) => passed.push(items.line()),
                }
            }
            (read, passed)
        };
        let whole = with_buffer(1 << 12);
        for buffer in [1, 2, 5] {
            assert_eq!(with_buffer(buffer), whole, "{text:?}");
        }
        whole
    }

    #[test]
    fn a_broken_line_is_passed_over() {
        for (text, read, passed) in [
            ("1\n{\"a\": \n2\n\n3", vec![1, 2, 3], vec![2]),
            ("1\n\"open\n2\n\"open\n3", vec![1, 2, 3], vec![2, 4]),
            ("{\n1\n2 x\r\n3 4", vec![1, 2, 3, 4], vec![1, 3]),
            ("5\n[1\n2", vec![5, 2], vec![2]),
            ("1\n]\n,\n2\n{", vec![1, 2], vec![2, 3, 5]),
            ("x", vec![], vec![1]),
        ] {
            assert_eq!(lenient(text), (read.into_iter().map(Value::from).collect(), passed), "{text:?}");
        }
        // As long as every value can be read, one may take several lines; then no more.
        let (read, passed) = lenient("{\n\"a\": 1\n}\nx\n[\n]\n[]");
        assert_eq!((read.len(), passed), (2, vec![4, 5, 6]));
        let mut packed = JsonItems::new(&b"\x1f\x8b\n1"[..]).lenient();
        assert!(packed.next().unwrap().is_err() && packed.has_ended() && packed.next().is_none());
    }

    #[test]
    fn what_a_text_is_can_be_said() {
        let lines = JsonItems::new(&b"[1]\n[]"[..]).lines().collect::<Result<Vec<_>, _>>();
        assert_eq!(lines.unwrap().len(), 2);
        let error = JsonItems::new(&b"{\"a\"\n:1}"[..]).lines().next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "line 1, column 5: expected a colon");
        let error = JsonItems::new(&b"1"[..]).list().next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "line 1, column 1: expected a list");
        let mut list = JsonItems::new(&b" [1]"[..]);
        assert!(!list.is_list() && list.next().is_some() && list.is_list() && list.next().is_none() && list.is_list());
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
