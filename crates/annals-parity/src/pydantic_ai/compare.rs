//! Compares a result with that of the reference: the order of members does not count, the type of a number does, and
//! generated values are named by their first appearance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use annals::base::Value;
use annals::message::internal::{JsonStyle, json_write};

/// The maximum number of differences that are shown for a vector.
const SHOWN_MAX: usize = 6;

/// Returns the differences of the result of a vector.
pub(super) fn problem(vector: &Value, result: &Value) -> Option<String> {
    let expected = vector.get("expect")?;
    let mut found = Vec::new();
    if let (Some(error), Some("load_dump")) = (expected.get("error"), vector.get("op").and_then(Value::as_str)) {
        let at = |error: Option<&Value>| error.and_then(|error| error.get("at")).cloned().unwrap_or_default();
        differences(&at(Some(error)), &at(result.get("error")), "/at", &mut found);
    } else if let Some(ok) = expected.get("ok").filter(|_| expected.get("ok_text").is_some()) {
        differences(&named(ok), &named(result.get("ok").unwrap_or(&Value::Null)), "", &mut found);
        let text = |side: &Value| side.get("ok_text").cloned().unwrap_or_default();
        differences(&text(expected), &text(result), "/ok_text", &mut found);
    } else if let (Some(ok), Some("load_dump")) = (expected.get("ok"), vector.get("op").and_then(Value::as_str)) {
        differences(&named(ok), &named(result.get("ok").unwrap_or(&Value::Null)), "", &mut found);
    } else {
        let of_runs = vector.get("op").and_then(Value::as_str) == Some("agent_trace");
        let named = |value| walk(value, None, &mut GeneratedNames { of_runs, ..GeneratedNames::default() });
        differences(&named(expected), &named(result), "", &mut found);
    }
    (!found.is_empty()).then(|| {
        found.iter().take(SHOWN_MAX).fold(String::new(), |mut text, line| {
            _ = write!(text, "\n  {line}");
            text
        })
    })
}

/// The names of generated values, by kind.
#[derive(Default)]
struct GeneratedNames {
    /// True if ids of runs and of conversations are generated as well.
    of_runs: bool,
    seen: BTreeMap<&'static str, BTreeMap<String, usize>>,
}

impl GeneratedNames {
    fn name(&mut self, kind: &'static str, text: &str) -> Value {
        let seen = self.seen.entry(kind).or_default();
        let next = seen.len();
        format!("<{kind}:{}>", seen.entry(text.to_owned()).or_insert(next)).into()
    }
}

/// Names generated values: timestamps, and ids of tool calls.
fn named(value: &Value) -> Value {
    walk(value, None, &mut GeneratedNames::default())
}

fn walk(value: &Value, name: Option<&str>, names: &mut GeneratedNames) -> Value {
    match value {
        Value::Map(map) => {
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            Value::Map(
                members.into_iter().map(|(name, value)| (name.clone(), walk(value, Some(name), names))).collect(),
            )
        }
        Value::List(items) => Value::List(items.iter().map(|item| walk(item, None, names)).collect()),
        Value::Str(text) => match name {
            Some("timestamp") if !["2025-01-", "0001", "1969", "1970"].iter().any(|t| text.starts_with(t)) => {
                "<ts>".into()
            }
            Some("run_id") if names.of_runs && !text.starts_with("fixed-") => names.name("run", text),
            Some("conversation_id") if names.of_runs && !text.starts_with("fixed-") => names.name("conv", text),
            Some("tool_call_id" | "id")
                if text.starts_with("<call:") || (text.starts_with("pyd_ai_") && text.len() == 39) =>
            {
                names.name("call", text)
            }
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

fn short(value: &Value) -> String {
    json_write(value, JsonStyle::PYDANTIC).chars().take(160).collect()
}

fn differences(expected: &Value, actual: &Value, path: &str, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Map(a), Value::Map(b)) => {
            for (name, value) in a {
                match b.get(name) {
                    Some(other) => differences(value, other, &format!("{path}/{name}"), found),
                    None => found.push(format!("{path}/{name}: missing, expected {}", short(value))),
                }
            }
            for (name, value) in b.iter().filter(|(name, _)| !a.contains_key(name)) {
                found.push(format!("{path}/{name}: unexpected {}", short(value)));
            }
        }
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                found.push(format!("{path}: expected {} items, got {}", a.len(), b.len()));
            }
            a.iter().zip(b).enumerate().for_each(|(at, (a, b))| differences(a, b, &format!("{path}/{at}"), found));
        }
        _ if expected == actual => {}
        _ => found.push(format!("{path}: expected {}, got {}", short(expected), short(actual))),
    }
}
