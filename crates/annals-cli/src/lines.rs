//! Compares two values: members by path, and texts by line.

use std::borrow::Cow;

use serde_json::Value as Json;
use similar::{Algorithm, ChangeTag, capture_diff_slices};

/// A member that differs: its path (JSON Pointer), and its value before and after; `None` if it is absent.
#[derive(Debug, PartialEq)]
pub(crate) struct Member<'a> {
    pub(crate) path: String,
    pub(crate) before: Option<&'a Json>,
    pub(crate) after: Option<&'a Json>,
}

/// Returns the members that differ, in order.
pub(crate) fn members<'a>(before: &'a Json, after: &'a Json) -> Vec<Member<'a>> {
    let mut found = Vec::new();
    compare(String::new(), before, after, &mut found);
    found
}

fn compare<'a>(path: String, before: &'a Json, after: &'a Json, found: &mut Vec<Member<'a>>) {
    let mut both = |path: String, before: Option<&'a Json>, after: Option<&'a Json>| match (before, after) {
        (Some(before), Some(after)) => compare(path, before, after, found),
        _ => found.push(Member { path, before, after }),
    };
    match (before, after) {
        (Json::Object(old), Json::Object(new)) => {
            for (name, value) in old {
                both(format!("{path}/{}", pointer(name)), Some(value), new.get(name));
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                both(format!("{path}/{}", pointer(name)), None, Some(value));
            }
        }
        (Json::Array(old), Json::Array(new)) => {
            for at in 0..old.len().max(new.len()) {
                both(format!("{path}/{at}"), old.get(at), new.get(at));
            }
        }
        _ if before == after => {}
        _ => found.push(Member { path, before: Some(before), after: Some(after) }),
    }
}

/// Writes a name as a step of a JSON Pointer (RFC 6901).
pub(crate) fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

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
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_named_by_path() {
        let (before, after) = (json!({ "a/b": { "c": [1, 2] }, "x": 1 }), json!({ "a/b": { "c": [1] }, "y": 1 }));
        let paths: Vec<String> = members(&before, &after).into_iter().map(|member| member.path).collect();
        assert_eq!(paths, ["/a~1b/c/1", "/x", "/y"]);
        assert_eq!(members(&json!(1), &json!(2)).len(), 1);
        assert!(members(&before, &before).is_empty());
    }

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
