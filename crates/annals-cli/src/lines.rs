//! What differs within a value: members by path, and lines within texts.

use serde_json::Value as Json;

/// A member that differs: its path (JSON Pointer), and what it was and is; `None` where it is not there.
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
fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A line of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// How many pairs of lines are compared at most; beyond, everything between the common ends counts as replaced.
const PAIRS_MAX: usize = 4_000_000;

/// Compares two texts line by line, by their longest common subsequence.
pub(crate) fn lines<'a>(before: &'a str, after: &'a str) -> Vec<Line<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut lines: Vec<Line<'a>> = old[..head].iter().map(|line| Line::Same(line)).collect();
    if a.len().saturating_mul(b.len()) > PAIRS_MAX {
        lines.extend(a.iter().map(|line| Line::Removed(line)));
        lines.extend(b.iter().map(|line| Line::Added(line)));
    } else {
        middle(a, b, &mut lines);
    }
    lines.extend(old[old.len() - tail..].iter().map(|line| Line::Same(line)));
    lines
}

fn middle<'a>(a: &[&'a str], b: &[&'a str], lines: &mut Vec<Line<'a>>) {
    let width = b.len() + 1;
    let mut common = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i * width + j] = if a[i] == b[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            lines.push(Line::Same(a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            lines.push(Line::Removed(a[i]));
            i += 1;
        } else {
            lines.push(Line::Added(b[j]));
            j += 1;
        }
    }
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
    fn lines_that_stay_are_kept() {
        use Line::{Added, Removed, Same};
        assert_eq!(lines("a\nb\nc", "a\nx\nc"), [Same("a"), Removed("b"), Added("x"), Same("c")]);
        assert_eq!(lines("", "a"), [Added("a")]);
        assert_eq!(lines("a\na", "a"), [Same("a"), Removed("a")]);
        assert_eq!(lines("x\na\nb\ny", "a\nz\nb"), [Removed("x"), Same("a"), Added("z"), Same("b"), Removed("y")]);
    }
}
