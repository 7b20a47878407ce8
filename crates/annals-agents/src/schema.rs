//! JSON schemas of arguments and outputs: making one of a type, reading a value of the type with the errors that a
//! model is told, and a value that fits a schema.
//!
//! *Absent:* validation by a schema; a value is read into its type.

use annals_base::{Map, Value};
use annals_pydantic_ai::{ErrorDetail, Location};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use crate::limits::SAMPLE_DEPTH_MAX;

/// Returns the JSON schema of a type, without the dialect and the title.
pub(crate) fn schema_of<T: JsonSchema>() -> Map {
    let generator = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None).into_generator();
    let schema: Value = serde_json::Value::from(generator.into_root_schema_for::<T>()).into();
    let Value::Map(mut schema) = schema else { return Map::new() };
    schema.shift_remove("title");
    schema
}

/// Takes the description out of a schema.
pub(crate) fn take_description(schema: &mut Map) -> String {
    match schema.shift_remove("description") {
        Some(Value::Str(text)) => text,
        _ => String::new(),
    }
}

/// Reads a value of a type.
///
/// # Errors
/// The place and the reason, as a model is told.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Vec<ErrorDetail>> {
    serde_path_to_error::deserialize(value.to_json()).map_err(|error| {
        let mut place: Vec<Location> = error.path().iter().filter_map(location).collect();
        let reason = error.inner().to_string();
        let missing = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let at = place_in(value, &place);
        let (kind, msg) = match missing {
            Some(field) => {
                place.push(Location::Name(field.to_owned()));
                ("missing", "Field required".to_owned())
            }
            None => ("value_error", reason),
        };
        vec![ErrorDetail::new(kind, place, msg, at.cloned().unwrap_or_default())]
    })
}

fn location(segment: &Segment) -> Option<Location> {
    match segment {
        Segment::Seq { index } => i64::try_from(*index).ok().map(Location::Index),
        Segment::Map { key } => Some(Location::Name(key.clone())),
        Segment::Enum { variant } => Some(Location::Name(variant.clone())),
        Segment::Unknown => None,
    }
}

/// Returns the part of a value at a place.
fn place_in<'a>(value: &'a Value, place: &[Location]) -> Option<&'a Value> {
    place.iter().try_fold(value, |value, step| match step {
        Location::Name(name) => value.get(name),
        Location::Index(index) => value.as_list()?.get(usize::try_from(*index).ok()?),
    })
}

/// Returns a value that fits a schema as far as its types, enumerations and required members say.
pub(crate) fn sample(schema: &Value) -> Value {
    sample_of(schema, schema, 0)
}

fn sample_of(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > SAMPLE_DEPTH_MAX {
        return Value::Null;
    }
    let member = |name: &str| schema.get(name);
    if let Some(target) = member("$ref").and_then(Value::as_str) {
        let name = target.rsplit('/').next().unwrap_or_default();
        return root
            .get("$defs")
            .and_then(|defs| defs.get(name))
            .map_or(Value::Null, |s| sample_of(s, root, depth + 1));
    }
    if let Some(value) = member("const").or_else(|| member("enum")?.as_list()?.first()) {
        return value.clone();
    }
    let choices = ["anyOf", "oneOf", "allOf"].iter().find_map(|name| member(name)?.as_list()?.first());
    if let Some(choice) = choices {
        return sample_of(choice, root, depth + 1);
    }
    let kind = member("type");
    let kind = kind.and_then(|kind| kind.as_str().or_else(|| kind.as_list()?.first()?.as_str()));
    match kind.unwrap_or("object") {
        "string" => "a".into(),
        "integer" => member("minimum").and_then(Value::as_int).unwrap_or(0).into(),
        "number" => 0.0.into(),
        "boolean" => false.into(),
        "null" => Value::Null,
        "array" => {
            let least = member("minItems").and_then(Value::as_int).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let item = member("items").map_or(Value::Null, |item| sample_of(item, root, depth + 1));
            Value::List(vec![item; least.min(SAMPLE_DEPTH_MAX)])
        }
        _ => {
            let required = member("required").and_then(Value::as_list).unwrap_or_default();
            let properties = member("properties");
            let members = required.iter().filter_map(|name| {
                let name = name.as_str()?;
                Some((name.to_owned(), sample_of(properties?.get(name)?, root, depth + 1)))
            });
            Value::Map(members.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, JsonSchema, Debug)]
    #[allow(dead_code)]
    struct Trip {
        /// The city.
        city: String,
        nights: Vec<u8>,
        mode: Option<Mode>,
    }

    #[derive(serde::Deserialize, JsonSchema, Debug)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Train,
    }

    #[test]
    fn a_schema_has_no_dialect_and_a_sample_of_it_can_be_read() {
        let schema = Value::Map(schema_of::<Trip>());
        assert!(schema.get("$schema").is_none() && schema.get("title").is_none());
        assert_eq!(schema["properties"]["city"]["description"], "The city.");
        let sampled = sample(&schema);
        assert_eq!(sampled["city"], "a");
        read::<Trip>(&sampled).unwrap();
    }

    #[test]
    fn an_error_names_its_place() {
        let value = Value::from(serde_json::json!({"city": "Bern", "nights": [1, "two"]}));
        let [error] = &read::<Trip>(&value).unwrap_err()[..] else { panic!("one error") };
        assert_eq!((error.kind.as_str(), error.input.clone()), ("value_error", Some("two".into())));
        assert_eq!(error.loc, [Location::Name("nights".into()), Location::Index(1)]);

        let [error] = &read::<Trip>(&Value::from(serde_json::json!({"nights": []}))).unwrap_err()[..] else {
            panic!("one error")
        };
        assert_eq!((error.kind.as_str(), error.msg.as_str()), ("missing", "Field required"));
        assert_eq!(error.loc, [Location::Name("city".into())]);
    }
}
