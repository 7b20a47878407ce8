//! Grams: the parts of a text by which an index finds it.
//!
//! A gram is three neighbouring characters of a word, or two of a script without spaces between words, so that most
//! words of Chinese and Japanese have one. Grams are hashed to 30 bits: an index answers with every entry that may
//! match, and the stored text decides. *Absent:* the order and the number of grams in a text.
//!
//! Invariant: the grams of a word are among those of every text that the word is in.

use super::text::{Words, lower, searched};
use crate::base::internal::hash::check64;
use crate::limits::SEARCH_GRAMS_MAX;

/// The letters of a token, of five bits each.
const LETTERS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// The letters of a token.
const TOKEN_LETTERS: u32 = 6;

/// The kind of a gram. Grams of two kinds are equal only if their hashes are.
#[derive(Clone, Copy)]
enum GramKind {
    Pair = 1,
    Triple,
    Thread,
    Role,
}

/// A set of grams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Grams(Vec<u32>);

impl Grams {
    /// Returns the grams of a stored text.
    pub(in crate::store) fn of_text(text: &str) -> Self {
        let chars: Vec<char> = searched(text).chars().flat_map(lower).collect();
        let mut grams = Self::default();
        grams.add_chars(&chars);
        grams.tidy();
        grams
    }

    /// Returns grams of the words of a query: few of them narrow a search as well as all would, and the list of each is
    /// read.
    pub(in crate::store) fn of_words(words: &Words) -> Self {
        let mut grams = Self::default();
        words.each().for_each(|word| grams.add_chars(word));
        grams.tidy();
        let (all, some) = (grams.0.len(), grams.0.len().min(SEARCH_GRAMS_MAX));
        Self((0..some).map(|n| grams.0[n * all / some]).collect())
    }

    /// Adds the number of the thread.
    pub(in crate::store) fn add_thread(&mut self, thread: i64) {
        self.0.push(gram(GramKind::Thread, &thread.to_le_bytes()));
    }

    /// Adds the type of an item.
    pub(in crate::store) fn add_role(&mut self, role: &str) {
        self.0.push(gram(GramKind::Role, role.as_bytes()));
    }

    pub(in crate::store) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::store) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Returns the tokens, each between `before` and `after`.
    pub(in crate::store) fn tokens(&self, before: &str, after: &str, between: &str) -> String {
        let mut tokens = String::with_capacity(self.0.len() * (TOKEN_LETTERS as usize + 8));
        for (at, gram) in self.iter().enumerate() {
            tokens.push_str(if at == 0 { "" } else { between });
            tokens.push_str(before);
            push_token(&mut tokens, gram);
            tokens.push_str(after);
        }
        tokens
    }

    fn add_chars(&mut self, chars: &[char]) {
        let bytes = |chars: &[char]| {
            let mut bytes = [0; 12];
            for (at, c) in chars.iter().enumerate() {
                bytes[4 * at..4 * at + 4].copy_from_slice(&u32::from(*c).to_le_bytes());
            }
            bytes
        };
        let wide = |chars: &[char]| chars.iter().all(|c| is_wide(*c));
        // A word holds no white space.
        let in_word = |chars: &&[char]| !chars.iter().any(|c| c.is_whitespace());
        let pairs = chars.windows(2).filter(|pair| wide(pair)).filter(in_word);
        self.0.extend(pairs.map(|pair| gram(GramKind::Pair, &bytes(pair))));
        let triples = chars.windows(3).filter(|triple| !wide(triple)).filter(in_word);
        self.0.extend(triples.map(|triple| gram(GramKind::Triple, &bytes(triple))));
    }

    fn tidy(&mut self) {
        self.0.sort_unstable();
        self.0.dedup();
    }
}

/// Returns whether a character is of a script like Chinese, Japanese or Korean, in which two characters say as much as
/// three of others.
fn is_wide(c: char) -> bool {
    c >= '\u{2e80}'
}

fn gram(kind: GramKind, content: &[u8]) -> u32 {
    let mut bytes = Vec::with_capacity(content.len() + 1);
    bytes.push(kind as u8);
    bytes.extend_from_slice(content);
    (check64(&bytes) & ((1 << (5 * TOKEN_LETTERS)) - 1)) as u32
}

/// Writes the token of a gram.
pub(in crate::store) fn push_token(tokens: &mut String, gram: u32) {
    debug_assert!(gram < 1 << 30, "six digits of five bits hold a gram");
    for at in (0..TOKEN_LETTERS).rev() {
        tokens.push(char::from(LETTERS[(gram >> (5 * at)) as usize % LETTERS.len()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::IdSource;

    #[test]
    fn the_grams_of_a_word_are_among_those_of_every_text_with_it() {
        let letters: Vec<char> = "ab İßΣσ日本のa\0\u{307}é \n".chars().collect();
        let mut random = IdSource::from_seed(3);
        let mut text =
            |len: u64| -> String { (0..len).map(|_| letters[random.random() as usize % letters.len()]).collect() };
        let mut found = 0;
        for round in 0..4_000 {
            let (text, word) = (text(40), text(1 + round % 5));
            let Ok(words) = Words::of(&word) else { continue };
            if words.are_in(&text, 0) {
                let of_text = Grams::of_text(&text);
                assert!(
                    Grams::of_words(&words).iter().all(|gram| of_text.iter().any(|g| g == gram)),
                    "{word:?} {text:?}"
                );
                found += 1;
            }
        }
        assert!(found > 500, "{found}");
    }

    #[test]
    fn words_of_chinese_have_grams_from_two_characters_on() {
        let grams = |text: &str| Grams::of_words(&Words::of(text).unwrap()).len();
        assert_eq!(
            (grams("東"), grams("東京"), grams("東京駅"), grams("ab"), grams("abc"), grams("a東")),
            (0, 1, 2, 0, 1, 0)
        );
        assert_eq!(grams(&"abcdefghijklmnopqrstuvwxyz0123456789".repeat(20)), 8, "of 36");
        assert_eq!(grams("abc abc ABC"), 1);
    }

    #[test]
    fn tokens_have_a_fixed_length_and_differ() {
        let mut grams = Grams::of_text("abc");
        grams.add_thread(7);
        grams.add_role("ai");
        let tokens = grams.tokens("\"", "\"", " AND ");
        assert_eq!(tokens.len(), 3 * 8 + 2 * 5);
        let set: std::collections::HashSet<&str> = tokens.split(" AND ").collect();
        assert!(set.len() == 3 && set.iter().all(|token| token[1..7].bytes().all(|b| LETTERS.contains(&b))));
    }
}
