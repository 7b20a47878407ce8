//! Links of a line of text: Markdown links, reference definitions and bare URLs; none within code.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The longest link or span of code, in bytes: a line may be a megabyte of brackets.
const SPAN_BYTES_MAX: usize = 600;
/// The highest depth of images within links.
const DEPTH_MAX: usize = 3;

/// A link of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TextLink {
    pub(crate) target: String,
    pub(crate) line: usize,
    /// True if the target is a file that does not exist.
    pub(crate) broken: bool,
}

impl TextLink {
    /// Returns whether the target is a relative path to a file that does not exist. Other links are not followed.
    pub(crate) fn is_broken(&self, folder: &Path) -> bool {
        let path = self.target.split(['#', '?']).next().unwrap_or_default();
        let scheme = path.split_once(':').is_some_and(|(scheme, _)| {
            scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-'))
        });
        if path.is_empty() || path.starts_with('/') || scheme {
            return false;
        }
        !folder.join(path).exists() && !folder.join(decode(path)).exists()
    }
}

/// Returns the text of a line without the targets of its links, and the links.
pub(crate) fn scan(line: &str, number: usize) -> (String, Vec<TextLink>) {
    let mut scan = Scan { number, prose: String::with_capacity(line.len()), links: Vec::new() };
    match definition(line) {
        Some(target) => scan.link(target),
        None => scan.run(line, 0),
    }
    (scan.prose, scan.links)
}

struct Scan {
    number: usize,
    prose: String,
    links: Vec<TextLink>,
}

impl Scan {
    fn run(&mut self, line: &str, depth: usize) {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let taken = match c {
                '`' => Some(self.code(rest)),
                '[' if depth < DEPTH_MAX => self.bracket(rest, depth),
                'h' if !self.prose.ends_with(char::is_alphanumeric) => self.url(rest),
                _ => None,
            };
            let taken = taken.unwrap_or_else(|| {
                self.prose.push(c);
                c.len_utf8()
            });
            rest = &rest[taken..];
        }
    }

    fn link(&mut self, target: &str) {
        let target = target.trim().trim_start_matches('<');
        let target = target.split([' ', '\t', '>']).next().unwrap_or_default();
        if !target.is_empty() {
            self.links.push(TextLink { target: target.to_owned(), line: self.number, broken: false });
        }
    }

    /// Takes a span of code, which is text without links. Unclosed ticks are taken all at once.
    fn code(&mut self, rest: &str) -> usize {
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let body = within(&rest[ticks..]);
        let mut from = 0;
        while let Some(found) = body[from..].find('`') {
            let at = from + found;
            let run = body[at..].len() - body[at..].trim_start_matches('`').len();
            if run == ticks {
                self.prose.push_str(&body[..at]);
                self.prose.push(' ');
                return ticks + at + ticks;
            }
            from = at + run;
        }
        ticks
    }

    /// Takes `[text](target)`.
    fn bracket(&mut self, rest: &str, depth: usize) -> Option<usize> {
        let text = balanced(rest, '[', ']')?;
        let after = &rest[text.len() + 2..];
        let target = balanced(after, '(', ')')?;
        self.run(text, depth + 1);
        self.link(target);
        Some(text.len() + 2 + target.len() + 2)
    }

    /// Takes a bare URL, without the punctuation that follows it.
    fn url(&mut self, rest: &str) -> Option<usize> {
        let scheme = ["https://", "http://"].into_iter().find(|scheme| rest.starts_with(scheme))?;
        let near = within(rest);
        let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | ')' | ']' | '|' | '}');
        let end = match near.find(ends) {
            Some(end) => end,
            None if near.len() == rest.len() => rest.len(),
            None => return None,
        };
        let url = rest[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*']);
        if url.len() <= scheme.len() {
            return None;
        }
        self.link(url);
        Some(url.len())
    }
}

/// Returns the target of a reference definition: `[name]: target`.
fn definition(line: &str) -> Option<&str> {
    let name = balanced(line, '[', ']')?;
    let target = line[name.len() + 2..].strip_prefix(": ")?.trim();
    (!name.starts_with('^') && !target.contains(char::is_whitespace)).then_some(target)
}

/// Returns the text between the opening mark at the beginning of `text` and its closing mark.
fn balanced(text: &str, open: char, close: char) -> Option<&str> {
    let body = text.strip_prefix(open)?;
    let mut depth = 1;
    for (at, c) in within(body).char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
        }
        if depth == 0 {
            return Some(&body[..at]);
        }
    }
    None
}

/// Returns the beginning of a text, up to the longest span.
fn within(text: &str) -> &str {
    let mut end = text.len().min(SPAN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Decodes `%20` and the like; other text is unchanged.
fn decode(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.filter(|_| *first == b'%').and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(line: &str) -> Vec<String> {
        scan(line, 1).1.into_iter().map(|link| link.target).collect()
    }

    #[test]
    fn links_are_found_and_code_is_not() {
        assert_eq!(
            targets("see [a](b.md), [c](<d e.md> \"t\") and https://x.example/y(z)."),
            ["b.md", "d", "https://x.example/y(z"]
        );
        assert_eq!(targets("[![image](i.png)](page.md)"), ["i.png", "page.md"]);
        assert_eq!(targets("`[a](b)` and ``[a](b) ` `` and xhttp://no"), Vec::<String>::new());
        assert_eq!(targets("[name]: target.md"), ["target.md"]);
        assert_eq!(targets("[a](b(c).md) <http://x.example>"), ["b(c).md", "http://x.example"]);
        assert_eq!(scan("a [b](c) http://d `e`", 1).0, "a b  e ");
    }

    #[test]
    fn hostile_lines_end() {
        for line in ["[".repeat(60_000), "`".repeat(60_001), "[a](".repeat(20_000), "http://".repeat(20_000)] {
            assert!(targets(&line).len() <= 100);
        }
        assert!(targets(&"ä`".repeat(20_000)).is_empty());
        let nested = format!("{}x{}", "[".repeat(400), "](y)".repeat(400));
        assert!(targets(&nested).len() <= 400);
    }

    #[test]
    fn only_missing_files_are_broken() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a b.md"), "").unwrap();
        let broken = |target: &str| TextLink { target: target.into(), ..TextLink::default() }.is_broken(folder.path());
        for target in ["a%20b.md#part", "#part", "http://x", "mailto:a@b", "/absolute", "."] {
            assert!(!broken(target), "{target}");
        }
        for target in ["missing.md", "missing.md#part", "%zz"] {
            assert!(broken(target), "{target}");
        }
    }
}
