//! Paths of the fields that an index of the key-value memory embeds, in LangGraph's notation.
//!
//! A path selects texts of a value: members by name, items by position, all of either, or several members. *Absent:*
//! errors for a value in which a path selects nothing.

use crate::base::{Map, Value};
use crate::limits::KV_FIELD_BYTES_MAX;
use crate::store::error::StoreError;

/// The path of an indexed field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldPath {
    text: String,
    steps: Vec<PathStep>,
}

#[derive(Clone, Debug, PartialEq)]
enum PathStep {
    /// The member with a name.
    Member(String),
    /// The item at a position; from the end if negative.
    Item(i64),
    /// Every item of a list.
    Items,
    /// Every item of a list, or every member of an object.
    All,
    /// The values under several paths of members.
    Members(Vec<Vec<String>>),
}

impl FieldPath {
    /// Parses a path: `$` or nothing for the whole value, `a.b` for members, `[0]` and `[-1]` for items, `[*]` for all
    /// items, `*` for all items or members, `{a,b.c}` for several members.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let wrong = |reason: String| StoreError::Invalid { field: "kv index field", reason };
        if text.len() > KV_FIELD_BYTES_MAX {
            return Err(wrong(format!("it has {} bytes, the limit is {KV_FIELD_BYTES_MAX}", text.len())));
        }
        if text.contains('\0') {
            return Err(wrong(format!("{text:?} holds a NUL character")));
        }
        let mut steps = Vec::new();
        let mut rest = if text == "$" { "" } else { text };
        while let Some(first) = rest.chars().next() {
            let closing = match first {
                '.' => {
                    rest = &rest[1..];
                    continue;
                }
                '[' => ']',
                '{' => '}',
                _ => {
                    let end = rest.find(['.', '[', '{']).unwrap_or(rest.len());
                    steps.push(if &rest[..end] == "*" { PathStep::All } else { PathStep::Member(rest[..end].into()) });
                    rest = &rest[end..];
                    continue;
                }
            };
            let end =
                rest.find(closing).ok_or_else(|| wrong(format!("{text:?} has no {closing:?} for a {first:?}")))?;
            let inner = &rest[1..end];
            steps.push(match first {
                '{' => PathStep::Members(inner.split(',').map(names).filter(|names| !names.is_empty()).collect()),
                _ if inner == "*" => PathStep::Items,
                _ => match inner.trim().parse() {
                    Ok(position) => PathStep::Item(position),
                    Err(_) => return Err(wrong(format!("{inner:?} in {text:?} is neither a position nor `*`"))),
                },
            });
            rest = &rest[end + 1..];
        }
        Ok(Self { text: if text.is_empty() { "$".into() } else { text.into() }, steps })
    }

    /// Returns the path as it was given; `$` for the whole value.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the texts that the path selects: a text itself, anything else as JSON. Nulls and bytes have none.
    pub(super) fn texts(&self, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        select(value, &self.steps, &mut found);
        found
    }
}

/// Splits a path of members.
fn names(path: &str) -> Vec<String> {
    path.trim().split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn select(value: &Value, steps: &[PathStep], found: &mut Vec<String>) {
    let Some((step, rest)) = steps.split_first() else {
        return found.extend(text_of(value));
    };
    match (step, value) {
        (PathStep::Member(name), Value::Map(map)) => {
            map.get(name).into_iter().for_each(|value| select(value, rest, found));
        }
        (PathStep::Item(position), Value::List(items)) => {
            let distance = usize::try_from(position.unsigned_abs()).ok();
            let at = if *position < 0 { distance.and_then(|n| items.len().checked_sub(n)) } else { distance };
            at.and_then(|at| items.get(at)).into_iter().for_each(|value| select(value, rest, found));
        }
        (PathStep::Items | PathStep::All, Value::List(items)) => {
            items.iter().for_each(|value| select(value, rest, found));
        }
        (PathStep::All, Value::Map(map)) => map.values().for_each(|value| select(value, rest, found)),
        // Steps after several members are ignored, as upstream.
        (PathStep::Members(paths), Value::Map(map)) => {
            for path in paths {
                found.extend(member(map, path).and_then(text_of));
            }
        }
        _ => {}
    }
}

fn member<'v>(map: &'v Map, path: &[String]) -> Option<&'v Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(map.get(first)?, |value, name| value.get(name))
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bytes(_) => None,
        Value::Str(text) => Some(text.clone()),
        value => Some(sorted(value.to_json()).to_string()),
    }
}

/// Sorts the members of objects, so that equal values have equal texts.
fn sorted(json: serde_json::Value) -> serde_json::Value {
    match json {
        serde_json::Value::Object(map) => {
            let mut members: Vec<_> = map.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            members.into_iter().collect()
        }
        serde_json::Value::Array(items) => items.into_iter().map(sorted).collect(),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(path: &str, value: serde_json::Value) -> Vec<String> {
        FieldPath::parse(path).unwrap().texts(&Value::from(value))
    }

    #[test]
    fn a_path_selects_members_and_items() {
        let value = json!({"a": {"b": [{"c": "x"}, {"c": "y"}, {"d": 1}]}, "n": 1.5, "t": true, "none": null});
        assert_eq!(texts("a.b[*].c", value.clone()), ["x", "y"]);
        assert_eq!(texts("a.b[-1].d", value.clone()), ["1"]);
        assert_eq!(texts("a.b[1]", value.clone()), [r#"{"c":"y"}"#]);
        assert_eq!(texts("a.b.*.c", value.clone()), ["x", "y"]);
        assert_eq!(texts("{n, t ,a.b,none}", value.clone()), ["1.5", "true", r#"[{"c":"x"},{"c":"y"},{"d":1}]"#]);
        for nothing in ["none", "a.b[3].c", "a.b[-4]", "a[0]", "n.b", "z", "a.b[9223372036854775807]", "{,}"] {
            assert_eq!(texts(nothing, value.clone()), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn a_whole_value_is_json_with_sorted_members() {
        let value = json!({"b": "ž", "a": {"d": [1], "c": null}});
        for whole in ["$", ""] {
            assert_eq!(texts(whole, value.clone()), [r#"{"a":{"c":null,"d":[1]},"b":"ž"}"#]);
        }
    }

    #[test]
    fn a_path_that_does_not_end_is_refused() {
        for path in ["a[", "a[x]", "a[]", "{a", "a\0", &"x".repeat(KV_FIELD_BYTES_MAX + 1)] {
            let error = FieldPath::parse(path).unwrap_err();
            assert!(matches!(error, StoreError::Invalid { field: "kv index field", .. }), "{path}: {error}");
        }
        assert_eq!(FieldPath::parse("").unwrap().as_str(), "$");
    }
}
