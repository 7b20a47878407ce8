//! Dynamic values: a self-describing tree, and serde between it and types.
//!
//! Invariant: the conversion between a value and a type does not pass through bytes. *Absent:* the stored form of a
//! value (`codec`).

mod convert;
mod extension;
mod ser;
mod tree;
mod view;

use std::fmt;

use data_encoding::BASE64;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::decode_tree;
pub use crate::codec::{Codec, CodecError, Encoded, decode_bytes, decode_value};
use ser::ValueSerializer;
pub(crate) use tree::serialize_map;
pub use view::ValueView;

use super::map::Map;

/// A self-describing value: what JSON has, plus bytes and MessagePack extensions.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    /// A 64-bit float.
    Float(f64),
    /// A text.
    Str(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Value>),
    /// An object, in insertion order.
    Map(Map),
    /// A MessagePack extension: its type and its bytes, verbatim. One type has a meaning here: 105 holds the decimal
    /// digits of an integer of more than 64 bits ([`Value::big_integer`]).
    Ext(i8, Vec<u8>),
}

impl Value {
    /// Returns the text, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer, if this is one that fits.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns the truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns the items, if this is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the object, if this is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the member `name`, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_map().and_then(|map| map.get(name))
    }

    /// Returns whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the name of the kind of value: `null`, `bool`, `int`, `float`, `str`, `bytes`, `list`, `map`, `ext`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::UInt(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Ext(..) if self.big_integer().is_some() => "int",
            Self::Ext(..) => "ext",
        }
    }

    /// Turns any serializable value into a dynamic one: the value that its [encoding](Encoded::encode) decodes to.
    ///
    /// # Errors
    /// [`CodecError::Encode`] if the type refuses to be serialized or has a member whose name is not a text,
    /// [`CodecError::TooDeep`] past [`VALUE_DEPTH_MAX`](crate::limits::VALUE_DEPTH_MAX) lists, objects and extensions
    /// inside one another.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, CodecError> {
        value.serialize(ValueSerializer::default())
    }

    /// Reads a typed value, as it would be read from the encoding of this one.
    ///
    /// # Errors
    /// [`CodecError`] naming the shape that the type expected.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        decode_tree(self)
    }

    /// Returns the JSON format. A value that JSON lacks becomes an object with one member: `{"$bytes": base64}`,
    /// `{"$float": "nan" | "inf" | "-inf"}`, `{"$int": digits}`, `{"$ext": [type, base64]}`. An object that LangGraph's
    /// serializer wrote is shown by its class, as [`Value::ext_to_json`] does, and a message by its fields.
    pub fn to_json(&self) -> serde_json::Value {
        self.json_inside(0)
    }

    /// Returns the JSON format of a value inside `extensions` extensions.
    fn json_inside(&self, extensions: usize) -> serde_json::Value {
        use serde_json::{Value as Json, json};
        let inside = |value: &Self| value.json_inside(extensions);
        match self {
            Self::Null => Json::Null,
            Self::Bool(b) => Json::Bool(*b),
            Self::Int(n) => json!(n),
            Self::UInt(n) => json!(n),
            Self::Float(x) if x.is_nan() => json!({"$float": "nan"}),
            Self::Float(x) if x.is_infinite() => json!({"$float": if *x > 0.0 { "inf" } else { "-inf" }}),
            Self::Float(x) => json!(x),
            Self::Str(text) => Json::String(text.clone()),
            Self::Bytes(bytes) => json!({"$bytes": BASE64.encode(bytes)}),
            Self::List(items) => items.iter().map(inside).collect(),
            Self::Map(map) => Json::Object(map.iter().map(|(k, v)| (k.clone(), inside(v))).collect()),
            Self::Ext(kind, bytes) => match self.big_integer() {
                Some(digits) => json!({"$int": digits}),
                None => extension::shown(*kind, bytes, extensions)
                    .unwrap_or_else(|| json!({"$ext": [kind, BASE64.encode(bytes)]})),
            },
        }
    }
}

/// A member of an object; null if there is none.
impl std::ops::Index<&str> for Value {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

/// A text as it is, everything else as [JSON](Value::to_json).
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => f.pad(text),
            value => write!(f, "{}", value.to_json()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_compared_indexed_and_shown_as_what_it_says() {
        let value = sample();
        assert!(value["z"] == 1 && value["z"] == 1u64 && value["a"] != "no text" && value["no"].is_null());
        let (yes, truth, half) = (Value::from("yes"), Value::from(true), Value::from(1.5));
        assert!(yes == "yes" && yes == *"yes" && truth == true && half == 1.5);
        assert_eq!((value["z"].to_string(), Value::from("as it is").to_string()), ("1".into(), "as it is".into()));
        assert_eq!(value["a"].to_string(), r#"[null,true,-3,1.5,"ü"]"#);
    }

    fn sample() -> Value {
        let json = serde_json::json!({"z": 1, "a": [null, true, -3, 1.5, "ü"], "big": u64::MAX, "m": {}});
        let mut value = Value::from(json);
        if let Value::Map(map) = &mut value {
            map.insert("bytes".into(), Value::Bytes(vec![0, 255, 7]));
            map.insert("ext".into(), Value::Ext(5, vec![1, 2]));
        }
        value
    }
}
