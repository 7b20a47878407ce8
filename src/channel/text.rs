//! A text that grows by appended parts: cloned in O(1), appended to in O(log n).
//!
//! It is a list of its parts. *Absent:* changes inside the text.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::List;
use super::shape::ListShape;

/// The value of a text channel: a text that is stored as the parts that were appended to it, shared by its clones.
///
/// Its `Display` joins the parts.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals::state::Text;
///
/// #[derive(State, Clone, Default)]
/// struct Draft {
///     #[channel(text)]
///     text: Text,
/// }
///
/// # fn main() -> Result<()> {
/// let draft = Store::memory().thread("draft")?.with_state::<Draft>();
/// draft.update(Draft::update().text("Once upon "))?;
/// draft.update(Draft::update().text("a time"))?;
/// let state = draft.state()?;
/// assert_eq!(state.text.to_string(), "Once upon a time");
/// assert_eq!(state.text.tail(6), "a time");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Text(List<String>);

impl Text {
    /// Returns an empty text.
    pub fn new() -> Self {
        Self(List::starting_at(ListShape::Text.first_position()))
    }

    /// Returns whether the text has no characters.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(String::is_empty)
    }

    /// Returns the parts in the order in which they were appended.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.iter().map(String::as_str)
    }

    /// Returns the end of the text: at most `bytes` bytes, from a character on. Only the parts that hold it are read.
    pub fn tail(&self, bytes: usize) -> String {
        tail_of(self.0.iter().rev().map(String::as_str), bytes)
    }

    pub(crate) fn list(&self) -> &List<String> {
        &self.0
    }

    pub(crate) fn list_mut(&mut self) -> &mut List<String> {
        &mut self.0
    }
}

/// Returns the end of a text, given its parts from the last one on.
pub(crate) fn tail_of<'a>(backwards: impl Iterator<Item = &'a str>, bytes: usize) -> String {
    let (mut taken, mut left) = (Vec::new(), bytes);
    for part in backwards {
        let from = (part.len().saturating_sub(left)..=part.len()).find(|at| part.is_char_boundary(*at));
        let end = &part[from.unwrap_or(part.len())..];
        taken.push(end);
        left -= end.len();
        if end.len() < part.len() || left == 0 {
            break;
        }
    }
    taken.reverse();
    debug_assert!(taken.iter().map(|part| part.len()).sum::<usize>() <= bytes, "a tail is as long as it may be");
    taken.concat()
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().try_for_each(|part| f.write_str(part))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Two texts are equal if their characters are, whatever their parts.
impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.parts().flat_map(str::bytes).eq(other.parts().flat_map(str::bytes))
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.parts().flat_map(str::bytes).eq(other.bytes())
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let mut new = Self::new();
        new.0.push(text);
        new
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_begins_at_a_character() {
        let mut text = Text::new();
        for part in ["ab", "", "cü", "d"] {
            text.0.push(part.to_owned());
        }
        let tails: Vec<String> = (0..8).map(|bytes| text.tail(bytes)).collect();
        assert_eq!(tails, ["", "d", "d", "üd", "cüd", "bcüd", "abcüd", "abcüd"]);
        assert_eq!(
            (text.to_string(), Text::new().tail(9), text.clone() == "abcüd"),
            ("abcüd".into(), String::new(), true)
        );
    }

    #[test]
    fn texts_are_compared_by_their_characters() {
        let (mut a, mut b) = (Text::from("ab"), Text::from("a"));
        a.0.push("c".into());
        b.0.push("bc".into());
        assert_eq!(a, b);
        assert_ne!(a, Text::from("ab"));
        assert!(Text::from("").is_empty() && !a.is_empty());
        assert_eq!(serde_json::to_string(&a).unwrap(), r#""abc""#);
    }
}
