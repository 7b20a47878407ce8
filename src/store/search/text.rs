//! Words of a query, their matches in a text, and the snippet around them.
//!
//! Texts are compared by the lower case of each character. A match begins and ends at characters of the text, so its
//! range is one of the text as it is stored.

use std::ops::Range;

use super::Snippet;
use crate::limits::{SEARCH_TEXT_BYTES_MAX, SEARCHED_BYTES_MAX, SNIPPET_CHARS_MAX, SNIPPET_LEAD_CHARS};
use crate::store::error::StoreError;

/// The words of a query, in lower case.
#[derive(Debug)]
pub(in crate::store) struct Words(Vec<Vec<char>>);

impl Words {
    /// Divides the text of a query at white space.
    pub(in crate::store) fn of(text: &str) -> Result<Self, StoreError> {
        let invalid = |reason: String| StoreError::Invalid { field: "text of a search", reason };
        if text.len() > SEARCH_TEXT_BYTES_MAX {
            return Err(invalid(format!("{} bytes, at most {SEARCH_TEXT_BYTES_MAX}", text.len())));
        }
        let mut words: Vec<Vec<char>> =
            text.split_whitespace().map(|word| word.chars().flat_map(lower).collect()).collect();
        words.sort_unstable();
        words.dedup();
        if words.is_empty() {
            return Err(invalid("it holds no word".into()));
        }
        Ok(Self(words))
    }

    /// Returns the characters of each word.
    pub(in crate::store) fn each(&self) -> impl Iterator<Item = &[char]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Returns whether a text holds every word, and one of them ends after the first `begun` bytes.
    pub(in crate::store) fn are_in(&self, text: &str, begun: usize) -> bool {
        let text = searched(text);
        self.0.iter().all(|word| next_match(text, 0, word).is_some())
            && (begun == 0 || self.0.iter().any(|word| ends_after(text, begun, word)))
    }

    /// Returns the part of a text around its first match, with all matches in it.
    pub(in crate::store) fn snippet(&self, text: &str) -> Snippet {
        let all = searched(text);
        let first = self.0.iter().filter_map(|word| next_match(all, 0, word)).min_by_key(|range| range.start);
        let Range { start, end } = first.unwrap_or_default();
        let back = |chars: usize| all[..start].char_indices().rev().take(chars).last().map_or(start, |(at, _)| at);
        let from = back(SNIPPET_LEAD_CHARS);
        let after = all[from..].char_indices().nth(SNIPPET_CHARS_MAX).map_or(all.len(), |(at, _)| from + at);
        let part = &all[from..after.max(end)];
        Snippet {
            text: part.to_owned(),
            matches: self.matches(part),
            more_before: from > 0,
            more_after: from + part.len() < text.len(),
        }
    }

    /// Returns the matches of all words, joined where they touch.
    fn matches(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for word in &self.0 {
            let mut from = 0;
            while let Some(range) = next_match(text, from, word) {
                from = range.end;
                found.push(range);
            }
        }
        found.sort_unstable_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<usize>> = Vec::new();
        for range in found {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined
    }
}

/// Returns the part of a text that is searched.
pub(in crate::store) fn searched(text: &str) -> &str {
    let end = (0..=SEARCHED_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Returns the lower case of a character: most often one character.
pub(in crate::store) fn lower(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase()
}

/// Returns the first match of a word that begins at the byte `from` or later.
fn next_match(text: &str, from: usize, word: &[char]) -> Option<Range<usize>> {
    let first = word.first()?;
    let rest = text.get(from..)?;
    rest.char_indices().find_map(|(at, c)| {
        let begins = if c.is_ascii() { c.to_ascii_lowercase() == *first } else { lower(c).next() == Some(*first) };
        let end = begins.then(|| match_len(&rest[at..], word)).flatten()?;
        Some(from + at..from + at + end)
    })
}

/// Returns whether a match of a word ends after the first `begun` bytes of a text.
fn ends_after(text: &str, begun: usize, word: &[char]) -> bool {
    let mut from = 0;
    while let Some(found) = next_match(text, from, word) {
        if found.end > begun {
            return true;
        }
        // Matches may overlap.
        from = found.start + text[found.start..].chars().next().map_or(1, char::len_utf8);
    }
    false
}

/// Returns the bytes of the characters of a text with which a word begins it.
fn match_len(text: &str, word: &[char]) -> Option<usize> {
    let mut wanted = word.iter();
    for (at, c) in text.char_indices() {
        for lower in lower(c) {
            match wanted.next() {
                Some(wanted) if *wanted == lower => {}
                Some(_) => return None,
                // The word ends within the lower case of a character.
                None => return Some(at + c.len_utf8()),
            }
        }
        if wanted.len() == 0 {
            return Some(at + c.len_utf8());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words::of(text).unwrap()
    }

    #[test]
    fn every_word_is_found_within_words_and_in_any_case() {
        assert!(words("gast HAUS").are_in("Der Gasthof ist kein Kaffeehaus.", 0));
        assert!(!words("gast brau").are_in("Der Gasthof", 0));
        assert!(
            words("京の").are_in("東京のホテル", 0) && words("ÉTÉ").are_in("un été", 0) && words("Σ").are_in("σ", 0)
        );
        assert!(words("aab").are_in("aaab", 0), "a match may begin within a failed one");
        assert!(words("\" * NEAR( \0").are_in("near( \0 \" *", 0) && !words("a*").are_in("ab", 0));
        assert!(words("İ").are_in("x İ", 0) && words("i").are_in("İ", 0), "a character with a longer lower case");
    }

    #[test]
    fn a_match_ends_after_the_begun_word() {
        assert!(words("gasthof").are_in("Gasthof", 4) && !words("gast").are_in("Gasthof", 4));
        assert!(words("gast hof").are_in("Gasthof", 4) && !words("gast bern").are_in("Gasthof", 4));
        assert!(words("aa").are_in("aaa", 2) && !words("aa").are_in("aab", 2), "matches may overlap");
    }

    #[test]
    fn a_query_has_a_word_and_a_length() {
        for text in ["", " \n\t", &"x".repeat(SEARCH_TEXT_BYTES_MAX + 1), &"é".repeat(64 << 10)] {
            let error = Words::of(text).unwrap_err();
            assert!(error.to_string().starts_with("text of a search is not valid"), "{error}");
        }
        assert!(words(&"x".repeat(SEARCH_TEXT_BYTES_MAX)).are_in(&"X".repeat(SEARCH_TEXT_BYTES_MAX), 0));
    }

    #[test]
    fn the_end_of_a_long_text_is_not_searched() {
        let text = format!("{}end", "é".repeat(SEARCHED_BYTES_MAX / 2));
        assert!(words("éé").are_in(&text, 0) && !words("end").are_in(&text, 0));
        assert!(words("end").snippet(&text).more_after);
        let odd = format!("x{text}");
        assert_eq!(searched(&odd).len(), SEARCHED_BYTES_MAX - 1, "a character is not divided");
    }

    #[test]
    fn a_snippet_begins_before_the_first_match_and_names_all_matches() {
        let text = format!("{} Rain and rain {}", "é".repeat(100), "z".repeat(300));
        let snippet = words("rain ain").snippet(&text);
        assert_eq!(snippet.text.chars().count(), SNIPPET_CHARS_MAX);
        assert!(snippet.more_before && snippet.more_after);
        let found: Vec<&str> = snippet.matches.iter().map(|range| &snippet.text[range.clone()]).collect();
        assert_eq!(found, ["Rain", "rain"], "overlapping matches are one");
        let short = words("a").snippet("aba");
        assert_eq!((short.text.as_str(), &short.matches[..]), ("aba", &[0..1, 2..3][..]));
        assert!(!short.more_before && !short.more_after);
        let long = words(&"ab".repeat(200)).snippet(&"ab".repeat(300));
        assert_eq!(long.matches, std::slice::from_ref(&(0..400)), "a match is shown whole");
    }
}
