//! The changes of a text, by line or by word, with a limit of what is compared.

use similar::{Algorithm, ChangeTag, capture_diff_slices};

use crate::limits::DIFF_LINES_MAX;

/// Returns the parts of two texts with what happened to each; `None` if they have too many. Texts with several lines
/// are compared by line, unless `by_word` is set.
pub(crate) fn changes(before: &str, after: &str, by_word: bool) -> Option<Vec<(ChangeTag, String)>> {
    let by_line = !by_word && has_lines(before, after);
    let split = |text: &'_ str| -> Vec<String> {
        if by_line {
            text.lines().map(ToOwned::to_owned).collect()
        } else {
            text.split_inclusive(char::is_whitespace).map(ToOwned::to_owned).collect()
        }
    };
    let (old, new) = (split(before), split(after));
    if old.len() + new.len() > DIFF_LINES_MAX {
        return None;
    }
    let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
    let parts = ops.iter().flat_map(|op| op.iter_changes(&old, &new).map(|part| (part.tag(), part.value())));
    Some(parts.collect())
}

/// Returns whether one of two texts has several lines.
pub(crate) fn has_lines(before: &str, after: &str) -> bool {
    before.contains('\n') || after.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_by_word_or_by_line() {
        let tags = |before, after, by_word| {
            changes(before, after, by_word)
                .unwrap()
                .into_iter()
                .map(|(tag, text)| format!("{tag}{text}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(tags("a b", "a c", false), [" a ", "-b", "+c"]);
        assert_eq!(tags("a b\nx", "a c\nx", false), ["-a b", "+a c", " x"]);
        assert_eq!(tags("a b\nx", "a c\nx", true), [" a ", "-b\n", "+c\n", " x"]);
        assert!(changes(&"a ".repeat(3_000), &"b ".repeat(3_000), false).is_none());
    }
}
