//! Values of the persistence vectors: JSON, with objects of one member for bytes and for floats that JSON lacks.

use annals::base::Value;
use data_encoding::BASE64;
use serde_json::{Value as Json, json};

use crate::program::Failure;

/// Reads a value.
pub(super) fn read(json: &Json) -> Value {
    match json {
        Json::Object(map) if map.len() == 1 && map.contains_key("$bytes") => {
            let text = map["$bytes"].as_str().unwrap_or_default();
            Value::Bytes(BASE64.decode(text.as_bytes()).unwrap_or_default())
        }
        Json::Object(map) if map.len() == 1 && map.contains_key("$float") => {
            Value::Float(match map["$float"].as_str() {
                Some("inf") => f64::INFINITY,
                Some("-inf") => f64::NEG_INFINITY,
                _ => f64::NAN,
            })
        }
        Json::Object(map) => Value::Map(map.iter().map(|(name, value)| (name.clone(), read(value))).collect()),
        Json::Array(items) => Value::List(items.iter().map(read).collect()),
        plain => Value::from(plain.clone()),
    }
}

/// Reads a value of the key-value memory. The reference stores JSON there; `annals` stores bytes as well, so the error
/// is made here.
pub(super) fn read_json(json: &Json) -> Result<Value, Failure> {
    fn holds_bytes(value: &Value) -> bool {
        match value {
            Value::Bytes(_) => true,
            Value::List(items) => items.iter().any(holds_bytes),
            Value::Map(map) => map.values().any(holds_bytes),
            _ => false,
        }
    }
    let value = read(json);
    if holds_bytes(&value) { Err(Failure::of("TypeError")) } else { Ok(value) }
}

/// Writes a value.
pub(super) fn write(value: &Value) -> Json {
    match value {
        Value::Bytes(bytes) => json!({"$bytes": BASE64.encode(bytes)}),
        Value::Float(float) if float.is_nan() => json!({"$float": "nan"}),
        Value::Float(float) if float.is_infinite() => json!({"$float": if *float > 0.0 { "inf" } else { "-inf" }}),
        Value::List(items) => items.iter().map(write).collect(),
        Value::Map(map) => Json::Object(map.iter().map(|(name, value)| (name.clone(), write(value))).collect()),
        plain => plain.to_json(),
    }
}
