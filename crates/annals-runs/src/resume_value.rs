//! Resume values: their schema, a part of JSON Schema which is verified when a value is given, and those that hold a
//! signal.
//!
//! Known are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `anyOf`, `$ref` to a
//! part of the same schema, and the bounds of numbers, texts and lists. *Absent:* the rest of JSON Schema, which
//! refuses nothing.

use crate::base::limits::VALUE_DEPTH_MAX;
use crate::base::{Map, Value};

/// The member of a resume value that holds a received signal.
const RECEIVED: &str = "__signal__";

/// A resume value does not fit the schema of its interrupt, which stays open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the resume value of interrupt {id} does not fit its schema: {path} must be {expected}, but is {found}; the interrupt stays open"
)]
#[non_exhaustive]
pub struct InvalidResumeValue {
    /// The id of the interrupt.
    pub id: String,
    /// The place in the value: `$` is all of it, `$.lines[0].name` a part.
    pub path: String,
    /// The type or bound that the schema requires there.
    pub expected: String,
    /// The value that was found there.
    pub found: String,
}

/// Returns the resume value that stores a received signal.
pub(crate) fn signal_resume_value(value: Value) -> Value {
    Value::Map(Map::from_iter([(RECEIVED.to_owned(), value)]))
}

/// Returns the value of a signal that is stored as a resume value; null if the time of the task that waited for it has
/// passed. Any other resume value of a receive is the value itself: it was given by the id of the interrupt.
pub fn received_signal(resume: &Value) -> Option<&Value> {
    match resume {
        Value::Null => None,
        Value::Map(members) if members.len() == 1 => Some(members.get(RECEIVED).unwrap_or(resume)),
        value => Some(value),
    }
}

/// Verifies a resume value against the schema of the interrupt with an id.
///
/// # Errors
/// [`InvalidResumeValue`], which names the first place that does not fit.
pub fn check_resume_value(schema: &Value, answer: &Value, id: &str) -> Result<(), InvalidResumeValue> {
    let checked = JsonSchema { root: schema }.check(schema, answer, "$", 0);
    checked.map_err(|Misfit { path, expected, found }| InvalidResumeValue { id: id.to_owned(), path, expected, found })
}

/// Returns the first of several readings of one resume value that fits the schema of the interrupt with an id; without
/// a schema the first reading, or null if there is none. A text that a person has typed has several: `12` is a number
/// and a text.
///
/// # Errors
/// [`InvalidResumeValue`] of the first reading if none fits.
///
/// # Example: the text `12` where a text is asked for
/// ```
/// use annals::base::Value;
/// use annals_runs::choose_resume_value;
/// use serde_json::json;
///
/// let readings = || vec![Value::from(12), Value::from("12")];
/// let schema = Value::from(json!({"type": "string"}));
/// assert_eq!(choose_resume_value(Some(&schema), readings(), "q").unwrap(), Value::from("12"));
/// assert_eq!(choose_resume_value(None, readings(), "q").unwrap(), Value::from(12));
/// ```
pub fn choose_resume_value(
    schema: Option<&Value>,
    readings: Vec<Value>,
    id: &str,
) -> Result<Value, InvalidResumeValue> {
    let first = |readings: Vec<Value>| readings.into_iter().next().unwrap_or_default();
    let Some(schema) = schema else { return Ok(first(readings)) };
    match readings.iter().position(|reading| check_resume_value(schema, reading, id).is_ok()) {
        Some(at) => Ok(readings.into_iter().nth(at).unwrap_or_default()),
        None => {
            let value = first(readings);
            check_resume_value(schema, &value, id).map(|()| value)
        }
    }
}

/// The place at which a value does not fit.
struct Misfit {
    path: String,
    expected: String,
    found: String,
}

/// A schema, to whose parts references lead.
struct JsonSchema<'a> {
    root: &'a Value,
}

impl JsonSchema<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str, depth: usize) -> Result<(), Misfit> {
        let misfit = |expected: String| Misfit { path: path.to_owned(), expected, found: found(value) };
        if depth > VALUE_DEPTH_MAX {
            return Err(misfit(format!("nested less than {VALUE_DEPTH_MAX} deep")));
        }
        let schema = match schema {
            Value::Map(schema) => schema,
            Value::Bool(false) => return Err(misfit("absent".into())),
            _ => return Ok(()),
        };
        if let Some(part) = schema.get("$ref").and_then(|reference| self.part(reference.as_str()?)) {
            self.check(part, value, path, depth + 1)?;
        }
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::List(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            Some(kind) => kind.as_str().into_iter().collect(),
            None => Vec::new(),
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is_kind(value, kind)) {
            return Err(misfit(kinds.iter().map(|kind| with_article(kind)).collect::<Vec<_>>().join(" or ")));
        }
        match schema.get("enum") {
            Some(Value::List(allowed)) if !allowed.contains(value) => {
                let allowed = allowed.iter().map(|one| one.to_json().to_string());
                return Err(misfit(format!("one of {}", allowed.collect::<Vec<_>>().join(", "))));
            }
            _ => {}
        }
        if let Some(only) = schema.get("const").filter(|only| *only != value) {
            return Err(misfit(only.to_json().to_string()));
        }
        if let Some(expected) = bounds(schema, value) {
            return Err(misfit(expected));
        }
        if let Some(Value::List(any)) = schema.get("anyOf")
            && let Some(Err(first)) =
                any.iter().map(|one| self.check(one, value, path, depth + 1)).min_by_key(Result::is_err)
        {
            return Err(if any.len() == 1 { first } else { misfit(format!("one of {} alternatives", any.len())) });
        }
        match value {
            Value::Map(members) => self.members(schema, members, path, depth),
            Value::List(items) => match schema.get("items") {
                Some(of) => (0..)
                    .zip(items)
                    .try_for_each(|(at, item): (usize, _)| self.check(of, item, &format!("{path}[{at}]"), depth + 1)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn members(&self, schema: &Map, members: &Map, path: &str, depth: usize) -> Result<(), Misfit> {
        let known = schema.get("properties").and_then(Value::as_map);
        let required = schema.get("required").and_then(Value::as_list).unwrap_or_default().iter();
        if let Some(missing) = required.filter_map(Value::as_str).find(|name| !members.contains_key(name)) {
            let (path, expected) = (format!("{path}.{missing}"), "there".into());
            return Err(Misfit { path, expected, found: "missing".into() });
        }
        for (name, member) in members {
            let of = known.and_then(|known| known.get(name)).or(schema.get("additionalProperties"));
            if let Some(of) = of {
                self.check(of, member, &format!("{path}.{name}"), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns the part of the schema at the reference `#/a/b`.
    fn part(&self, reference: &str) -> Option<&Value> {
        reference.strip_prefix('#')?.split('/').skip(1).try_fold(self.root, |part, name| part.get(name))
    }
}

/// Returns the bound that a value violates.
fn bounds(schema: &Map, value: &Value) -> Option<String> {
    let limit = |name: &str| schema.get(name).and_then(number);
    let (size, [least, most], unit) = match value {
        Value::Str(text) => (text.chars().count() as f64, ["minLength", "maxLength"], " characters long"),
        Value::List(items) => (items.len() as f64, ["minItems", "maxItems"], " items long"),
        value => (number(value)?, ["minimum", "maximum"], ""),
    };
    if let Some(least) = limit(least).filter(|least| size < *least) {
        return Some(format!("at least {least}{unit}"));
    }
    if let Some(most) = limit(most).filter(|most| size > *most) {
        return Some(format!("at most {most}{unit}"));
    }
    let above = limit("exclusiveMinimum").filter(|_| unit.is_empty()).filter(|above| size <= *above);
    let below = limit("exclusiveMaximum").filter(|_| unit.is_empty()).filter(|below| size >= *below);
    above.map(|above| format!("above {above}")).or(below.map(|below| format!("below {below}")))
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::UInt(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        _ => None,
    }
}

fn is_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => matches!(value, Value::Bool(_)),
        "integer" => match value {
            Value::Float(n) => n.fract() == 0.0,
            value => matches!(value, Value::Int(_) | Value::UInt(_)) || value.big_integer().is_some(),
        },
        "number" => number(value).is_some() || value.big_integer().is_some(),
        "string" => matches!(value, Value::Str(_)),
        "array" => matches!(value, Value::List(_)),
        "object" => matches!(value, Value::Map(_)),
        // A type of another dialect refuses nothing.
        _ => true,
    }
}

fn with_article(kind: &str) -> &str {
    match kind {
        "boolean" => "true or false",
        "integer" => "an integer",
        "number" => "a number",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        kind => kind,
    }
}

fn found(value: &Value) -> String {
    match value {
        Value::Str(text) => format!("a text of {} characters", text.chars().count()),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::List(items) => format!("a list of {} items", items.len()),
        Value::Map(_) => "an object".into(),
        Value::Ext(..) => value.big_integer().unwrap_or("an extension").to_owned(),
        value => value.to_json().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn misfit(schema: serde_json::Value, answer: serde_json::Value) -> String {
        match check_resume_value(&schema.into(), &answer.into(), "q") {
            Ok(()) => "fits".into(),
            Err(InvalidResumeValue { path, expected, found, .. }) => format!("{path}: {expected}, not {found}"),
        }
    }

    #[test]
    fn a_misfit_names_place_and_expectation() {
        let order = json!({
            "type": "object",
            "required": ["lines"],
            "properties": {
                "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Line"}},
                "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
            },
            "additionalProperties": false,
            "$defs": {"Line": {
                "properties": {"count": {"type": "integer", "exclusiveMinimum": 0}, "kind": {"enum": ["a", "b"]}},
            }},
        });
        for (answer, wanted) in [
            (json!({"lines": [{"count": 2, "kind": "a", "more": 1}], "note": null}), "fits"),
            (json!({"lines": [{}], "note": "abc"}), "fits"),
            (json!("yes"), "$: an object, not a text of 3 characters"),
            (json!({}), "$.lines: there, not missing"),
            (json!({"lines": []}), "$.lines: at least 1 items long, not a list of 0 items"),
            (json!({"lines": [{}, {"count": 0}]}), "$.lines[1].count: above 0, not 0"),
            (json!({"lines": [{"count": 1.5}]}), "$.lines[0].count: an integer, not 1.5"),
            (json!({"lines": [{"kind": "c"}]}), r#"$.lines[0].kind: one of "a", "b", not a text of 1 characters"#),
            (json!({"lines": [{}], "note": "abcd"}), "$.note: one of 2 alternatives, not a text of 4 characters"),
            (json!({"lines": [{}], "x": true}), "$.x: absent, not true"),
        ] {
            assert_eq!(misfit(order.clone(), answer.clone()), wanted, "{answer}");
        }
    }

    #[test]
    fn what_is_not_known_refuses_nothing() {
        assert_eq!(misfit(json!({"type": "decimal", "format": "date", "not": {}}), json!("x")), "fits");
        assert_eq!(misfit(json!(true), json!(1)), "fits");
        assert_eq!(misfit(json!("no schema"), json!(1)), "fits");
        assert_eq!(misfit(json!({"type": ["string", "number"], "maximum": 2}), json!(3)), "$: at most 2, not 3");
        assert_eq!(misfit(json!({"type": ["string", "boolean"]}), json!(3)), "$: a text or true or false, not 3");
        assert_eq!(misfit(json!({"const": 1}), json!(2)), "$: 1, not 2");
    }

    #[test]
    fn an_integer_past_64_bits_is_an_integer() {
        let large = Value::from_digits("18446744073709551616").unwrap();
        for kind in ["integer", "number"] {
            assert_eq!(check_resume_value(&json!({"type": kind}).into(), &large, "q"), Ok(()), "{kind}");
        }
        let misfit = check_resume_value(&json!({"type": "string"}).into(), &large, "q").unwrap_err();
        assert_eq!(misfit.found, "18446744073709551616");
    }

    #[test]
    fn the_first_reading_that_fits_is_chosen() {
        let chosen = |schema: serde_json::Value, readings: &[serde_json::Value]| {
            let readings = readings.iter().cloned().map(Value::from).collect();
            choose_resume_value(Some(&schema.into()), readings, "q").map(|value| value.to_json())
        };
        let yes = [json!("yes"), json!(true)];
        assert_eq!(chosen(json!({"type": "boolean"}), &yes), Ok(json!(true)));
        assert_eq!(chosen(json!({"enum": ["yes", "no"]}), &yes), Ok(json!("yes")));
        let misfit = chosen(json!({"type": "integer"}), &yes).unwrap_err();
        assert_eq!((misfit.path.as_str(), misfit.found.as_str()), ("$", "a text of 3 characters"));
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let endless = misfit(json!({"$ref": "#"}), json!(1));
        assert!(endless.starts_with("$: nested less than"), "{endless}");
        let tree = json!({"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}});
        assert_eq!(
            misfit(tree, json!({"next": {"next": {"n": "x"}}})),
            "$.next.next.n: an integer, not a text of 1 characters"
        );
    }
}
