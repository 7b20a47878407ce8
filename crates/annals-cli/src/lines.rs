//! Compares two texts by line.

use std::borrow::Cow;

use similar::{Algorithm, ChangeTag, capture_diff_slices};

/// The number of common characters that are shown before the first difference of two long texts.
const LEAD_CHARS: usize = 24;

/// Shortens the common beginning of two texts, so that their difference is visible.
pub(crate) fn apart<'a>(before: &'a str, after: &'a str) -> (Cow<'a, str>, Cow<'a, str>) {
    let shared = before.chars().zip(after.chars()).take_while(|(a, b)| a == b).count();
    let Some(skip) = shared.checked_sub(LEAD_CHARS * 2).map(|_| shared - LEAD_CHARS) else {
        return (before.into(), after.into());
    };
    let from = |text: &'a str| {
        let at = text.char_indices().nth(skip).map_or(text.len(), |(at, _)| at);
        Cow::Owned(format!("...{}", &text[at..]))
    };
    (from(before), from(after))
}

/// A line of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DiffLine<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The highest number of lines that are compared one by one; between the common ends of longer texts every line counts
/// as replaced. Comparing two texts without a common line costs the square of their length.
const LINES_MAX: usize = 20_000;

/// Compares two texts line by line.
pub(crate) fn lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut lines: Vec<DiffLine<'a>> = old[..head].iter().map(|line| DiffLine::Same(line)).collect();
    if a.len() + b.len() > LINES_MAX {
        lines.extend(a.iter().map(|line| DiffLine::Removed(line)));
        lines.extend(b.iter().map(|line| DiffLine::Added(line)));
    } else {
        let changes = capture_diff_slices(Algorithm::Myers, a, b);
        lines.extend(changes.iter().flat_map(|op| op.iter_changes(a, b)).map(|change| match change.tag() {
            ChangeTag::Equal => DiffLine::Same(change.value()),
            ChangeTag::Delete => DiffLine::Removed(change.value()),
            ChangeTag::Insert => DiffLine::Added(change.value()),
        }));
    }
    lines.extend(old[old.len() - tail..].iter().map(|line| DiffLine::Same(line)));
    debug_assert_eq!(lines.iter().filter(|line| !matches!(line, DiffLine::Added(_))).count(), old.len());
    debug_assert_eq!(lines.iter().filter(|line| !matches!(line, DiffLine::Removed(_))).count(), new.len());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_beginning_is_shortened() {
        let same = "äb".repeat(30);
        let (a, b) = (format!("{same}1"), format!("{same}2"));
        assert_eq!(apart(&a, &b).1, format!("...{}2", "äb".repeat(12)));
        assert_eq!(apart("short 1", "short 2"), ("short 1".into(), "short 2".into()));
        assert_eq!(apart(&same, &same[..75]).1, format!("...{}", "äb".repeat(12)));
    }

    #[test]
    fn common_lines_stay() {
        use DiffLine::{Added, Removed, Same};
        assert_eq!(lines("a\nb\nc", "a\nx\nc"), [Same("a"), Removed("b"), Added("x"), Same("c")]);
        assert_eq!(lines("", "a"), [Added("a")]);
        assert_eq!(lines("a\na", "a"), [Same("a"), Removed("a")]);
        assert_eq!(lines("x\na\nb\ny", "a\nz\nb"), [Removed("x"), Same("a"), Added("z"), Same("b"), Removed("y")]);
    }

    #[test]
    fn long_texts_without_common_lines_are_replaced() {
        let text = |word: &str| (0..LINES_MAX).map(|n| format!("{word}{n}\n")).collect::<String>();
        let (old, new) = (format!("same\n{}end", text("a")), format!("same\n{}end", text("b")));
        let found = lines(&old, &new);
        assert_eq!(
            (found.len(), &found[0], found.last()),
            (2 * LINES_MAX + 2, &DiffLine::Same("same"), Some(&DiffLine::Same("end")))
        );
    }
}
