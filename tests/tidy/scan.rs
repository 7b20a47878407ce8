//! A source file with its comments and strings told apart from its code.

use std::ops::Range;

/// A Rust file as the rules read it.
pub(crate) struct Source {
    /// Its path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// Its text with every character of a comment, a string or a character literal replaced by a space. Bytes stay
    /// where they are, so that a place in it is a place in the file.
    pub(crate) code: String,
    /// Its string literals: where each begins, and what it holds (escapes as they are written).
    pub(crate) strings: Vec<(usize, String)>,
    /// Whether it begins with a `//!` line.
    pub(crate) has_header: bool,
    /// For each line whether it holds more than blanks and comments.
    counted: Vec<bool>,
    /// Where each line begins.
    lines: Vec<usize>,
}

enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    pub(crate) fn new(path: impl Into<String>, text: &str) -> Self {
        let mut scan =
            Scan { text: text.as_bytes(), at: 0, kinds: Vec::with_capacity(text.len()), strings: Vec::new() };
        scan.run();
        let masked = text.bytes().zip(&scan.kinds).map(|(byte, kind)| match kind {
            _ if byte == b'\n' => byte,
            Kind::Code if byte.is_ascii() => byte,
            _ => b' ',
        });
        let code = String::from_utf8(masked.collect()).unwrap();
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        let mut counted = vec![false; lines.len()];
        let mut line = 0;
        for (byte, kind) in text.bytes().zip(&scan.kinds) {
            if byte == b'\n' {
                line += 1;
            } else if !byte.is_ascii_whitespace() && !matches!(kind, Kind::Comment) {
                counted[line] = true;
            }
        }
        let strings = scan.strings.into_iter().map(|range| (range.start, text[range].to_owned())).collect();
        let has_header = text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"));
        Self { path: path.into(), code, strings, has_header, counted, lines }
    }

    /// Returns the number of the line that holds a byte, counted from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at)
    }

    /// Returns how many lines of a range of bytes hold code.
    pub(crate) fn code_lines(&self, range: Range<usize>) -> usize {
        let (first, last) = (self.line_of(range.start), self.line_of(range.end.saturating_sub(1).max(range.start)));
        self.counted[first - 1..last].iter().filter(|counted| **counted).count()
    }

    /// Returns the words of the code: identifiers, keywords and numbers, with where each begins.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        words(&self.code)
    }

    /// Returns the places where a word stands in the code.
    pub(crate) fn places<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.words().filter(move |(_, found)| *found == word).map(|(at, _)| at)
    }

    /// Returns what comes after a place, blanks skipped, with where it begins.
    pub(crate) fn after(&self, at: usize) -> (usize, &str) {
        let rest = self.code[at..].trim_start();
        (self.code.len() - rest.len(), rest)
    }

    /// Returns the block that opens at or after a place, braces included; `None` if a `;` comes first.
    pub(crate) fn block_after(&self, at: usize) -> Option<Range<usize>> {
        let bytes = self.code.as_bytes();
        let mut depth = 0_i32;
        let mut open = at;
        loop {
            match bytes.get(open)? {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                b';' if depth == 0 => return None,
                b'{' if depth == 0 => break,
                _ => {}
            }
            open += 1;
        }
        Some(open..self.close(open))
    }

    /// Returns one past the brace that closes the one at `open`.
    fn close(&self, open: usize) -> usize {
        let mut depth = 0_i32;
        for (at, byte) in self.code.bytes().enumerate().skip(open) {
            depth += i32::from(byte == b'{') - i32::from(byte == b'}');
            if depth == 0 {
                return at + 1;
            }
        }
        self.code.len()
    }

    /// Returns the blocks of the modules written inside the file, each with its name.
    pub(crate) fn inline_modules(&self) -> Vec<(String, Range<usize>)> {
        let mut found = Vec::new();
        for at in self.places("mod") {
            let (_, rest) = self.after(at + 3);
            let name = first_word(rest).to_owned();
            if !name.is_empty() && rest[name.len()..].trim_start().starts_with('{') {
                found.extend(self.block_after(at).map(|block| (name, block)));
            }
        }
        found
    }

    /// Returns the blocks that are only compiled for tests.
    pub(crate) fn test_blocks(&self) -> Vec<Range<usize>> {
        let marks = self.code.match_indices("#[cfg(test)]");
        marks.filter_map(|(at, mark)| self.block_after(at + mark.len())).collect()
    }
}

/// Returns the word that a text begins with; empty if it begins with none.
pub(crate) fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// Returns the words of a text with where each begins.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].find(|c: char| c.is_alphanumeric() || c == '_')?;
        let (start, word) = (at, first_word(&text[at..]));
        at += word.len();
        Some((start, word))
    })
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    kinds: Vec<Kind>,
    strings: Vec<Range<usize>>,
}

impl Scan<'_> {
    fn run(&mut self) {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let begins_word = self.at == 0 || !is_word(self.text[self.at - 1]);
            if rest.starts_with(b"//") {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.take(end, || Kind::Comment);
            } else if rest.starts_with(b"/*") {
                self.take(block_comment(rest), || Kind::Comment);
            } else if let Some((open, hashes)) = raw_open(rest).filter(|_| begins_word) {
                self.string(open, raw_close(&rest[open..], hashes), 1 + hashes);
            } else if rest[0] == b'"' {
                self.string(1, quoted(&rest[1..]), 1);
            } else if rest[0] == b'\'' {
                self.take(character(rest), || Kind::Literal);
                if matches!(self.kinds.last(), None | Some(Kind::Code)) {
                    self.take(1, || Kind::Code);
                }
            } else {
                self.take(1, || Kind::Code);
            }
        }
    }

    fn take(&mut self, bytes: usize, kind: impl Fn() -> Kind) {
        let bytes = bytes.min(self.text.len() - self.at);
        self.kinds.extend((0..bytes).map(|_| kind()));
        self.at += bytes;
    }

    fn string(&mut self, open: usize, inside: usize, close: usize) {
        let start = self.at + open;
        self.strings.push(start..(start + inside).min(self.text.len()));
        self.take(open + inside + close, || Kind::Literal);
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length of `r#"`, `br"`, ... and the number of its hashes.
fn raw_open(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = if rest.starts_with(b"r") { 1 } else { 2 };
    if prefix == 2 && !(rest.starts_with(b"br") || rest.starts_with(b"cr")) {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some((prefix + hashes + 1, hashes))
}

fn raw_close(rest: &[u8], hashes: usize) -> usize {
    let ends =
        |at: &usize| rest[*at] == b'"' && rest[at + 1..].iter().take(hashes).filter(|b| **b == b'#').count() == hashes;
    (0..rest.len()).find(ends).unwrap_or(rest.len())
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at.min(rest.len())
}

/// Returns the length of a character literal; 0 for the apostrophe of a lifetime.
fn character(rest: &[u8]) -> usize {
    let text = &rest[1..];
    match text.first() {
        Some(b'\\') => text.iter().skip(2).position(|byte| *byte == b'\'').map_or(0, |at| at + 4),
        Some(first) => {
            let length = match first {
                0..=0x7f => 1,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            if text.get(length) == Some(&b'\'') { length + 2 } else { 0 }
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let text =
            "//! x\nlet a = \"b // c\"; // d\n/* e /* f */ g */ let h = r#\"i \" j\"#;\nlet k = '\"'; fn l<'m>() {}\n";
        let source = Source::new("x.rs", text);
        let words: Vec<&str> = source.words().map(|(_, word)| word).collect();
        assert_eq!(words, ["let", "a", "let", "h", "let", "k", "fn", "l", "m"]);
        let strings: Vec<&str> = source.strings.iter().map(|(_, string)| string.as_str()).collect();
        assert_eq!(strings, ["b // c", "i \" j"]);
        assert_eq!(source.strings.iter().map(|(at, _)| source.line_of(*at)).collect::<Vec<_>>(), [2, 3]);
        assert!(source.has_header);
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn escapes_and_multi_byte_characters_keep_their_places() {
        let source = Source::new("x.rs", "let a = '\\''; let b = 'ä'; let c = \"\\\" todo\"; let d = '\\u{41}'; end");
        let words: Vec<&str> = source.words().map(|(_, word)| word).collect();
        assert_eq!(words, ["let", "a", "let", "b", "let", "c", "let", "d", "end"]);
    }

    #[test]
    fn blank_lines_and_comments_are_free() {
        let source =
            Source::new("x.rs", "fn a() {\n\n    // why\n    b();\n    /* c\n    d */\n    e(\"f\n    g\");\n}\n");
        assert_eq!(source.code_lines(0..source.code.len()), 5);
        let block = source.block_after(0).unwrap();
        assert_eq!((source.line_of(block.start), source.line_of(block.end - 1)), (1, 9));
    }

    #[test]
    fn modules_and_test_blocks_are_found() {
        let source = Source::new("x.rs", "mod a;\nmod b { mod c { } }\n#[cfg(test)]\nmod tests {\n}\n");
        let names: Vec<String> = source.inline_modules().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "c", "tests"]);
        assert_eq!(source.test_blocks().len(), 1);
    }
}
