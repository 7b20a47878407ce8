//! A source file with its comments and strings told apart from its code.

use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};

/// A Rust file as the rules read it.
pub(crate) struct Source {
    /// Its path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// Its text with every character of a comment, a string or a character literal replaced by a space. Bytes stay
    /// where they are, so that a place in it is a place in the file.
    pub(crate) code: String,
    /// Its string literals: the offset and the text between the quotes (escapes as they are written).
    pub(crate) strings: Vec<(usize, String)>,
    /// True if the file begins with a `//!` line.
    pub(crate) has_header: bool,
    /// For each line, true if it holds code or a part of a literal.
    counted: Vec<bool>,
    /// Byte offsets of the beginnings of the lines.
    lines: Vec<usize>,
    /// The ranges of the words of the code: most rules read them.
    words: Vec<Range<usize>>,
}

impl Source {
    /// Reads a file; panics if its text is not made of Rust tokens.
    pub(crate) fn new(path: impl Into<String>, text: &str) -> Self {
        let path = path.into();
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        let blank = text.bytes().map(|byte| if byte == b'\n' { byte } else { b' ' });
        let counted = vec![false; lines.len()];
        let mut scan = Scan { text, code: blank.collect(), strings: Vec::new(), counted, lines };
        scan.read(tokens);
        let Scan { code, strings, counted, lines, .. } = scan;
        let code = String::from_utf8(code).unwrap();
        let has_header = text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"));
        let words = words(&code).map(|(at, word)| at..at + word.len()).collect();
        Self { path, code, strings, has_header, counted, lines, words }
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
        self.words.iter().map(|range| (range.start, &self.code[range.clone()]))
    }

    /// Returns the places where a word stands in the code.
    pub(crate) fn places<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.words().filter(move |(_, found)| *found == word).map(|(at, _)| at)
    }

    /// Returns the text after a place, blanks skipped, with its position.
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
        let marks = ["#[cfg(test)]", "#[cfg(all(test, not(outside)))]"];
        let marks = marks.iter().flat_map(|mark| self.code.match_indices(mark));
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

/// Sorts the tokens of a text into code and strings.
struct Scan<'a> {
    text: &'a str,
    code: Vec<u8>,
    strings: Vec<(usize, String)>,
    counted: Vec<bool>,
    lines: Vec<usize>,
}

impl Scan<'_> {
    fn read(&mut self, tokens: TokenStream) {
        for token in tokens {
            let range = token.span().byte_range();
            // A documentation comment is an attribute whose tokens all have the span of the comment.
            if ["//", "/*"].iter().any(|comment| self.text[range.start..].starts_with(comment)) {
                continue;
            }
            match token {
                TokenTree::Group(group) => {
                    self.code(group.span_open().byte_range());
                    self.code(group.span_close().byte_range());
                    self.read(group.stream());
                }
                TokenTree::Literal(_) => self.literal(range),
                TokenTree::Ident(_) | TokenTree::Punct(_) => self.code(range),
            }
        }
    }

    fn code(&mut self, range: Range<usize>) {
        self.count(&range);
        self.code[range.clone()].copy_from_slice(&self.text.as_bytes()[range]);
    }

    /// A string or a character is masked; a number is code.
    fn literal(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        let open = text.find(['"', '\'']).filter(|at| text[..*at].chars().all(|c| c.is_alphabetic() || c == '#'));
        match open {
            None => self.code(range),
            Some(at) if text[at..].starts_with('"') => {
                let close = text.rfind('"').unwrap_or(text.len());
                self.strings.push((range.start + at + 1, text[at + 1..close].to_owned()));
                self.count(&range);
            }
            Some(_) => self.count(&range),
        }
    }

    fn count(&mut self, range: &Range<usize>) {
        let mut line = self.lines.partition_point(|start| *start <= range.start) - 1;
        for byte in self.text[range.clone()].bytes() {
            self.counted[line] |= !byte.is_ascii_whitespace();
            line += usize::from(byte == b'\n');
        }
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
        let source = Source::new(
            "x.rs",
            "mod a;\nmod b { mod c { } }\n#[cfg(test)]\nmod tests {\n}\n#[cfg(all(test, not(outside)))]\nmod more {\n}\n",
        );
        let names: Vec<String> = source.inline_modules().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "c", "tests", "more"]);
        assert_eq!(source.test_blocks().len(), 2);
    }
}
