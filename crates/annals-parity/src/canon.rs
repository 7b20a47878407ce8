//! The canonical format of traces, and the differences between two of them.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value as Json};

/// Replaces every identifier between sigils, `«kind:id»`, by `kind#n`: numbered for each kind in the order in which
/// they appear, with the members of objects in the order of their names.
pub(crate) fn canonical(trace: &Json) -> Json {
    CanonNames::default().walk(trace)
}

#[derive(Default)]
struct CanonNames {
    known: HashMap<String, String>,
    counts: HashMap<String, usize>,
}

impl CanonNames {
    fn walk(&mut self, json: &Json) -> Json {
        match json {
            Json::String(text) => self.text(text).into(),
            Json::Array(items) => items.iter().map(|item| self.walk(item)).collect(),
            Json::Object(members) => {
                let mut names: Vec<&String> = members.keys().collect();
                names.sort_unstable();
                let named = names.into_iter().map(|name| (self.text(name), self.walk(&members[name])));
                Json::Object(named.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('«') {
            let identifier =
                after.split_once('»').and_then(|(inside, rest)| Some((inside.split_once(':')?.0, inside, rest)));
            let identifier =
                identifier.filter(|(kind, ..)| !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase()));
            out.push_str(before);
            match identifier {
                Some((kind, inside, after)) => {
                    out.push_str(self.name(kind, inside));
                    rest = after;
                }
                None => {
                    out.push('«');
                    rest = after;
                }
            }
        }
        out + rest
    }

    fn name(&mut self, kind: &str, inside: &str) -> &str {
        let counts = &mut self.counts;
        self.known.entry(inside.to_owned()).or_insert_with(|| {
            let count = counts.entry(kind.to_owned()).or_insert(0);
            *count += 1;
            format!("{kind}#{count}")
        })
    }
}

/// Returns the differences between two traces: the path, the expected value, the actual value.
pub(crate) fn differences(expected: &Json, actual: &Json) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    compare(Some(expected), Some(actual), "$".into(), &mut found);
    found
}

fn compare(expected: Option<&Json>, actual: Option<&Json>, path: String, found: &mut Vec<(String, String, String)>) {
    match (expected, actual) {
        (Some(Json::Object(a)), Some(Json::Object(b))) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                compare(a.get(name), b.get(name), format!("{path}.{name}"), found);
            }
        }
        (Some(Json::Array(a)), Some(Json::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                compare(a.get(at), b.get(at), format!("{path}[{at}]"), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((path, short(a), short(b))),
    }
}

/// The maximum number of characters of a value in a difference.
const SHOWN_MAX: usize = 200;

fn short(json: Option<&Json>) -> String {
    let Some(json) = json else { return "<absent>".into() };
    let text = json.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identifiers_are_named_in_the_order_of_member_names() {
        let trace = json!({"b": "«ckpt:y»", "a": ["«ckpt:x» and «task:x»", "«Ckpt:x»", "« «ckpt:y»"], "«int:1»": null});
        let wanted = json!({"a": ["ckpt#1 and task#1", "«Ckpt:x»", "« ckpt#2"], "b": "ckpt#2", "int#1": null});
        assert_eq!(canonical(&trace), wanted);
    }

    #[test]
    fn differences_name_their_place() {
        let found = differences(&json!({"a": [1, {"b": true}], "c": 1}), &json!({"a": [1, {"b": 1}, 2]}));
        let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["$.a[1].b", "$.a[2]", "$.c"]);
        assert_eq!((found[1].1.as_str(), found[1].2.as_str()), ("<absent>", "2"));
        assert!(differences(&json!({"a": 1, "b": 2}), &json!({"b": 2, "a": 1})).is_empty(), "order does not count");
    }
}
