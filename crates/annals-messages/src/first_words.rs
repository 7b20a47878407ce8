//! The first words of a text, by which a thread without a title is shown.

/// Characters of first words.
const FIRST_WORDS_CHARS: usize = 80;

/// Returns the first words of a text: its white space collapsed to single blanks, and of more than 80 characters those
/// before the last blank within the first 81, or else the first 80, with `…` behind them. A text without words has
/// none.
///
/// # Example
/// ```
/// use annals_messages::first_words;
///
/// assert_eq!(first_words("  Where are\n the tests?").as_deref(), Some("Where are the tests?"));
/// assert_eq!(first_words(&"word ".repeat(20)).map(|words| words.len()), Some(79 + "…".len()));
/// assert_eq!(first_words(" \n"), None);
/// ```
pub fn first_words(text: &str) -> Option<String> {
    let mut words = String::new();
    let mut count = 0;
    for word in text.split_whitespace() {
        if count > 0 {
            words.push(' ');
            count += 1;
        }
        // One character more than is shown tells that the text goes on.
        let rest = FIRST_WORDS_CHARS + 1 - count;
        words.extend(word.chars().take(rest));
        count += word.chars().take(rest).count();
        if count > FIRST_WORDS_CHARS {
            let cut = words.rfind(' ').or_else(|| Some(words.char_indices().nth(FIRST_WORDS_CHARS)?.0));
            words.truncate(cut.unwrap_or(words.len()));
            words.push('…');
            break;
        }
    }
    Some(words).filter(|words| !words.is_empty())
}
