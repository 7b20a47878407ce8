//! Compares outcomes with those that the persistence vectors require.

use serde_json::{Map, Value as Json};

/// Scores that differ by less are equal.
const TOLERANCE: f64 = 1e-5;

/// Returns the first outcome of a case that is not one of those required.
pub(super) fn problem(case: &Json, outcomes: &[Json]) -> Option<String> {
    let empty = Vec::new();
    let ops = case["ops"].as_array().unwrap_or(&empty);
    let expected = case["expected"].as_array().unwrap_or(&empty);
    if outcomes.len() != ops.len() || expected.len() != ops.len() {
        return Some(format!("{} outcomes of {} operations", outcomes.len(), ops.len()));
    }
    let mut judged = ops.iter().zip(expected).zip(outcomes).enumerate();
    judged.find_map(|(at, ((op, expected), outcome))| {
        let found = differs(expected, outcome, op)?;
        Some(format!("op {at} ({}): {found}", op["op"].as_str().unwrap_or_default()))
    })
}

fn differs(expected: &Json, outcome: &Json, op: &Json) -> Option<String> {
    if expected.get("any").is_some() {
        return None;
    }
    if let Some(admitted) = expected.get("any_of").and_then(Json::as_array) {
        let problems: Vec<String> = admitted.iter().map_while(|expected| differs(expected, outcome, op)).collect();
        return (problems.len() == admitted.len()).then(|| problems.join(", nor "));
    }
    match (expected.get("error"), outcome.get("error")) {
        (Some(expected), Some(found)) if expected["class"] == found["class"] => None,
        (Some(expected), Some(found)) => Some(format!("error {}, expected {}", found, expected["class"])),
        (Some(expected), None) => Some(format!("expected error {}, got {}", expected["class"], outcome)),
        (None, Some(found)) => Some(format!("error {found}")),
        (None, None) => match (op["compare"].as_str(), &expected["ok"], &outcome["ok"]) {
            (Some(how @ ("set" | "score")), Json::Array(expected), Json::Array(found)) => {
                same_set(expected, found).or_else(|| if how == "score" { not_descending(found) } else { None })
            }
            (_, expected, found) => difference(expected, found, "$"),
        },
    }
}

fn same_set(expected: &[Json], found: &[Json]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} elements expected, got {}", expected.len(), found.len()));
    }
    let mut left: Vec<&Json> = found.iter().collect();
    for one in expected {
        match left.iter().position(|found| difference(one, found, "$").is_none()) {
            Some(at) => _ = left.remove(at),
            None => return Some(format!("{one} is missing in {}", Json::from(found.to_vec()))),
        }
    }
    None
}

fn not_descending(found: &[Json]) -> Option<String> {
    let score = |item: &Json| item["score"].as_f64().unwrap_or(f64::NEG_INFINITY);
    let at = found.windows(2).position(|pair| score(&pair[1]) > score(&pair[0]) + TOLERANCE)?;
    Some(format!("element {} has a greater score than the one before it", at + 1))
}

/// Returns the first difference; `1`, `1.0` and `true` differ.
fn difference(expected: &Json, found: &Json, path: &str) -> Option<String> {
    let differ = || Some(format!("{path}: expected {expected}, got {found}"));
    match (expected, found) {
        (Json::Object(any), _) if any.len() == 1 && any.get("$any") == Some(&Json::Bool(true)) => None,
        (Json::Number(a), Json::Number(b)) if path == "$.score" => {
            let close = a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| (a - b).abs() < TOLERANCE);
            if close { None } else { differ() }
        }
        (Json::Object(a), Json::Object(b)) => members(a, b, path),
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            let mut items = a.iter().zip(b).enumerate();
            items.find_map(|(at, (a, b))| difference(a, b, &format!("{path}[{at}]")))
        }
        (Json::Array(_), Json::Array(_)) => differ(),
        (expected, found) => {
            if expected == found {
                None
            } else {
                differ()
            }
        }
    }
}

fn members(expected: &Map<String, Json>, found: &Map<String, Json>, path: &str) -> Option<String> {
    if let Some(name) = expected.keys().find(|name| !found.contains_key(*name)) {
        return Some(format!("{path}.{name}: missing"));
    }
    if let Some(name) = found.keys().find(|name| !expected.contains_key(*name)) {
        return Some(format!("{path}.{name}: unexpected"));
    }
    expected.iter().find_map(|(name, value)| difference(value, &found[name], &format!("{path}.{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(expected: Json, outcome: Json, compare: &str) -> bool {
        let case = json!({"ops": [{"op": "search", "compare": compare}], "expected": [expected]});
        problem(&case, &[outcome]).is_none()
    }

    #[test]
    fn outcomes_are_judged_by_type_order_and_score() {
        assert!(judged(json!({"any": true}), json!({"error": {"class": "X"}}), ""));
        assert!(judged(json!({"any_of": [{"ok": 1}, {"ok": 2}]}), json!({"ok": 2}), ""));
        assert!(!judged(json!({"any_of": [{"ok": 1}, {"ok": 2}]}), json!({"ok": 3}), ""));
        assert!(
            !judged(json!({"ok": 1}), json!({"ok": true}), "") && !judged(json!({"ok": 1}), json!({"ok": 1.0}), "")
        );
        assert!(judged(json!({"error": {"class": "A", "message": "x"}}), json!({"error": {"class": "A"}}), ""));
        assert!(!judged(json!({"error": {"class": "A"}}), json!({"ok": null}), ""));
        assert!(!judged(json!({"ok": {"a": 1}}), json!({"ok": {"a": 1, "b": 2}}), ""));
        assert!(judged(json!({"ok": {"a": {"$any": true}}}), json!({"ok": {"a": [7]}}), ""));
        assert!(!judged(json!({"ok": [1, 2]}), json!({"ok": [2, 1]}), ""));
        assert!(judged(json!({"ok": [1, 2]}), json!({"ok": [2, 1]}), "set"));
        assert!(!judged(json!({"ok": [1, 1]}), json!({"ok": [2, 1]}), "set"));
        let scores = |scores: [f64; 2]| json!({"ok": scores.map(|score| json!({"score": score}))});
        assert!(judged(scores([0.5, 0.7]), scores([0.700_001, 0.5]), "score"));
        assert!(!judged(scores([0.5, 0.7]), scores([0.5, 0.7]), "score"), "the order is that of the scores");
        assert!(!judged(scores([0.5, 0.7]), scores([0.71, 0.5]), "score"));
    }
}
