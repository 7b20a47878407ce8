//! Extracts headings, links, terms and paragraphs from one text file.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::links::{TextLink, scan};

/// The number of different terms of a file, the most frequent ones.
const TERMS_MAX: usize = 2_000;
/// The fewest words of a paragraph: shorter ones repeat by chance.
const PARAGRAPH_WORDS_MIN: usize = 8;
/// A file with more than one unreadable character in this number is not text.
const UNREADABLE: usize = 20;

/// The facts of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) path: String,
    /// The reason why the file was not read.
    pub(crate) skipped: Option<String>,
    pub(crate) words: usize,
    pub(crate) headings: Vec<String>,
    pub(crate) links: Vec<TextLink>,
    /// How often each term occurs, the most frequent first.
    pub(crate) terms: Vec<(String, u32)>,
    pub(crate) paragraphs: Vec<Paragraph>,
}

/// A paragraph, known by a key that ignores case, spaces and punctuation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Paragraph {
    pub(crate) key: String,
    pub(crate) begins: String,
}

/// Extracts the facts of a file. A file that is not text gives the facts of a skipped one.
pub(crate) fn facts(path: &str, bytes: &[u8], folder: &Path) -> Facts {
    let text = String::from_utf8_lossy(bytes);
    let (mut total, mut unreadable) = (0, 0);
    for c in text.chars() {
        total += 1;
        unreadable += usize::from(c == '\u{fffd}' || c == '\0');
    }
    if unreadable * UNREADABLE > total {
        return skipped(path, "it is not text");
    }
    let mut reader =
        FactsReader { facts: Facts { path: path.to_owned(), ..Facts::default() }, ..FactsReader::default() };
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        reader.line(at + 1, line, lines.get(at + 1).copied().unwrap_or_default());
    }
    reader.end_paragraph();
    let mut facts = reader.facts;
    facts.terms = reader.counts.into_iter().collect();
    facts.terms.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    facts.terms.truncate(TERMS_MAX);
    let from = folder.join(path);
    for link in &mut facts.links {
        link.broken = link.is_broken(from.parent().unwrap_or(folder));
    }
    facts
}

/// Returns the facts of a file that could not be read.
pub(crate) fn skipped(path: &str, reason: &str) -> Facts {
    Facts { path: path.to_owned(), skipped: Some(reason.to_owned()), ..Facts::default() }
}

#[derive(Default)]
struct FactsReader {
    facts: Facts,
    counts: HashMap<String, u32>,
    paragraph: String,
    /// The mark that ends the open block of code.
    fence: Option<&'static str>,
}

impl FactsReader {
    fn line(&mut self, number: usize, line: &str, next: &str) {
        let trimmed = line.trim();
        self.facts.words += trimmed.split_whitespace().count();
        if let Some(fence) = self.fence {
            if trimmed.starts_with(fence) {
                self.fence = None;
            }
            return;
        }
        if let Some(fence) = ["```", "~~~"].into_iter().find(|fence| trimmed.starts_with(fence)) {
            self.fence = Some(fence);
            return self.end_paragraph();
        }
        let (prose, links) = scan(trimmed, number);
        self.facts.links.extend(links);
        self.count(&prose);
        if trimmed.is_empty() {
            return self.end_paragraph();
        }
        if let Some(heading) = heading(trimmed, next.trim()) {
            self.facts.headings.push(heading.to_owned());
            return self.end_paragraph();
        }
        if !is_rule(trimmed) {
            self.paragraph.push_str(trimmed);
            self.paragraph.push(' ');
        }
    }

    fn count(&mut self, prose: &str) {
        for term in terms(prose) {
            *self.counts.entry(term).or_default() += 1;
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.paragraph);
        let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        let words: Vec<String> = parts.map(str::to_lowercase).collect();
        if words.len() >= PARAGRAPH_WORDS_MIN {
            let key = format!("{:016x}", fnv1a(words.join(" ").as_bytes()));
            let begins = text.split_whitespace().take(9).collect::<Vec<_>>().join(" ");
            self.facts.paragraphs.push(Paragraph { key, begins });
        }
    }
}

/// Returns the heading of a line: marked (`#`, `=`, `*`), or underlined by the next line.
fn heading<'a>(line: &'a str, next: &str) -> Option<&'a str> {
    let marked = line.trim_start_matches(['#', '=', '*']);
    let marks = line.len() - marked.len();
    if (1..=6).contains(&marks) && marked.starts_with(' ') && !marked.trim().is_empty() {
        // One star is an item of a list in most files; it is a heading only in org, where lists take `-`.
        let is_list = line.starts_with('*') && marks == 1;
        return (!is_list).then(|| marked.trim().trim_end_matches('#').trim());
    }
    let underlined = next.len() >= 3 && is_rule(next) && line.chars().any(char::is_alphanumeric);
    (underlined && !line.starts_with(['|', '-', '>'])).then_some(line)
}

/// Returns whether a line is one mark, repeated.
fn is_rule(line: &str) -> bool {
    let first = line.chars().next();
    matches!(first, Some('=' | '-' | '~' | '^')) && line.chars().all(|c| Some(c) == first)
}

/// Returns the terms of a text: words of 3 to 40 letters, digits and `_`, in lower case, without the commonest.
fn terms(prose: &str) -> impl Iterator<Item = String> {
    let words = prose.split(|c: char| !c.is_alphanumeric() && c != '_').map(|word| word.trim_matches('_'));
    words.filter_map(|word| {
        let length = word.chars().count();
        if !(3..=40).contains(&length) || !word.chars().any(char::is_alphabetic) {
            return None;
        }
        let term = word.to_lowercase();
        COMMON.binary_search(&term.as_str()).is_err().then_some(term)
    })
}

/// FNV-1a with 64 bits: the same on every machine and in every version, which a stored key needs.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Words without meaning for a text, sorted.
const COMMON: &[&str] = &[
    "about", "after", "again", "all", "also", "always", "and", "another", "any", "are", "because", "been", "before",
    "being", "between", "both", "but", "can", "cannot", "could", "did", "does", "done", "each", "either", "else",
    "even", "every", "first", "for", "from", "get", "gets", "has", "have", "here", "how", "into", "its", "itself",
    "just", "last", "less", "let", "like", "made", "make", "makes", "many", "may", "more", "most", "much", "must",
    "need", "needs", "never", "new", "nor", "not", "nothing", "now", "off", "once", "one", "ones", "only", "onto",
    "other", "others", "our", "out", "over", "own", "per", "same", "see", "she", "should", "since", "some", "such",
    "take", "takes", "than", "that", "the", "their", "them", "then", "there", "these", "they", "thing", "this",
    "those", "through", "too", "two", "under", "until", "upon", "use", "used", "uses", "very", "was", "way", "were",
    "what", "when", "where", "whether", "which", "while", "who", "whole", "whose", "why", "will", "with", "within",
    "without", "would", "yet", "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Facts {
        facts("a.md", text.as_bytes(), Path::new("/nowhere"))
    }

    #[test]
    fn the_common_words_are_sorted() {
        assert!(COMMON.is_sorted());
    }

    #[test]
    fn headings_of_all_kinds_are_found() {
        let facts = read("# One #\n\nTwo\n===\n\n= Three\n** Four\n* item\n- item\n---\n```\n# no\n```\n#no\n");
        assert_eq!(facts.headings, ["One", "Two", "Three", "Four"]);
    }

    #[test]
    fn terms_are_counted_without_the_commonest() {
        let facts = read("The Store keeps the store. [store](http://store.example/store) `a_b1` 123 of\n");
        assert_eq!(facts.terms, [("store".into(), 3), ("a_b1".into(), 1), ("keeps".into(), 1)]);
        assert_eq!(facts.words, 9);
    }

    #[test]
    fn a_paragraph_is_known_by_its_words() {
        let one = read("It is *never* said\nwhat was not: written, or not.\n\nshort\n");
        let two = read("it is never said what was not written or NOT\n");
        assert_eq!(one.paragraphs.len(), 1);
        assert_eq!(one.paragraphs[0].key, two.paragraphs[0].key);
        assert_eq!(one.paragraphs[0].begins, "It is *never* said what was not: written, or");
    }

    #[test]
    fn junk_is_skipped_and_a_stray_byte_is_not() {
        let junk: Vec<u8> = (0..2_000_u32).map(|n| (n * 37 % 256) as u8).collect();
        assert_eq!(facts("x.txt", &junk, Path::new("/")).skipped.as_deref(), Some("it is not text"));
        assert_eq!(facts("x.txt", &[0; 64], Path::new("/")).skipped.as_deref(), Some("it is not text"));
        let latin: Vec<u8> = b"a long enough line of words with one stray byte \xe9 in it".to_vec();
        assert_eq!(facts("x.txt", &latin, Path::new("/")).skipped, None);
        assert_eq!(facts("x.txt", b"", Path::new("/")).words, 0);
    }
}
