//! Compares a result with that of the reference.

use serde_json::Value as Json;

use super::FailedCall;

/// Returns the first difference between the result of a vector and that of the reference. Values are compared by
/// structure; the order of members does not count, and random ids are equal.
pub(super) fn problem(vector: &Json, result: Result<Json, FailedCall>) -> Option<String> {
    match (vector.get("error"), result) {
        (Some(error), Ok(result)) => Some(format!("expected {error}, got {result}")),
        (Some(error), Err(failure)) => {
            let part = error["contains"].as_str().unwrap_or_default();
            let is_same = error["class"] == failure.class.as_str() && failure.message.contains(part);
            (!is_same).then(|| format!("expected {error}, got {}: {}", failure.class, failure.message))
        }
        (None, Err(failure)) => Some(format!("failed with {}: {}", failure.class, failure.message)),
        (None, Ok(result)) => difference("$", &vector["expected"], &canonical(result)),
    }
}

/// Replaces random ids.
fn canonical(json: Json) -> Json {
    match json {
        Json::String(text) => Json::String(canonical_id(text)),
        Json::Array(items) => items.into_iter().map(canonical).collect(),
        Json::Object(map) => Json::Object(map.into_iter().map(|(name, json)| (name, canonical(json))).collect()),
        other => other,
    }
}

fn canonical_id(text: String) -> String {
    let (prefix, id) = text.strip_prefix("lc_").map_or(("", text.as_str()), |id| ("lc_", id));
    let is_uuid = id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
    if is_uuid { format!("{prefix}<uuid>") } else { text }
}

/// Returns the first difference, with its path.
fn difference(path: &str, expected: &Json, actual: &Json) -> Option<String> {
    match (expected, actual) {
        (Json::Array(expected), Json::Array(actual)) if expected.len() == actual.len() => {
            let pairs = expected.iter().zip(actual).enumerate();
            pairs.into_iter().find_map(|(at, (e, a))| difference(&format!("{path}[{at}]"), e, a))
        }
        (Json::Object(expected), Json::Object(actual)) => {
            let missing = expected.keys().find(|name| !actual.contains_key(*name)).map(|name| ("missing", name));
            let odd = || actual.keys().find(|name| !expected.contains_key(*name)).map(|name| ("unexpected", name));
            if let Some((what, name)) = missing.or_else(odd) {
                return Some(format!("{path}.{name}: {what}"));
            }
            expected.iter().find_map(|(name, e)| difference(&format!("{path}.{name}"), e, &actual[name]))
        }
        (expected, actual) if expected == actual => None,
        (expected, actual) => Some(format!("{path}: expected {expected}, got {actual}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compared(expected: Json, result: Json) -> Option<String> {
        problem(&json!({"expected": expected}), Ok(result))
    }

    #[test]
    fn numbers_are_told_apart_and_random_ids_are_not() {
        assert_eq!(compared(json!({"a": 1, "b": [2]}), json!({"b": [2], "a": 1})), None);
        assert!(compared(json!([1]), json!([1.0])).is_some_and(|what| what.starts_with("$[0]")));
        assert!(compared(json!(1), json!(true)).is_some() && compared(json!({"a": null}), json!({})).is_some());
        let id = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert_eq!(compared(json!(["<uuid>", "lc_<uuid>"]), json!([id, format!("lc_{id}")])), None);
        assert!(compared(json!("<uuid>"), json!(format!("x{id}"))).is_some());
    }

    #[test]
    fn errors_have_a_class_and_a_part_of_their_text() {
        let vector = json!({"error": {"class": "KeyError", "contains": "id"}});
        assert_eq!(problem(&vector, Err(FailedCall::new("KeyError", "no id"))), None);
        assert!(problem(&vector, Err(FailedCall::new("TypeError", "no id"))).is_some());
        assert!(problem(&vector, Ok(json!(1))).is_some());
    }
}
