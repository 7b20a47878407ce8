//! Dynamic values, and the encoded form in which every value is stored.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::base64::encode_standard;
use super::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};
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
    /// A MessagePack extension: its type and its bytes, kept verbatim. Only
    /// [one](super::integer::BIG_INTEGER_EXT) means something here: an integer of more than 64 bits.
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

    /// Turns any serializable value into a dynamic one.
    ///
    /// # Errors
    /// [`CodecError`] if the type refuses to be serialized.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, CodecError> {
        Encoded::encode(value)?.decode()
    }

    /// Turns this into a typed value.
    ///
    /// # Errors
    /// [`CodecError`] naming what the type expected.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        Encoded::encode(self)?.decode()
    }

    /// Returns the JSON form. What JSON lacks becomes an object with one member: `{"$bytes": base64}`,
    /// `{"$float": "nan" | "inf" | "-inf"}`, `{"$int": digits}`, `{"$ext": [type, base64]}`.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::{Value as Json, json};
        match self {
            Self::Null => Json::Null,
            Self::Bool(b) => Json::Bool(*b),
            Self::Int(n) => json!(n),
            Self::UInt(n) => json!(n),
            Self::Float(x) if x.is_nan() => json!({"$float": "nan"}),
            Self::Float(x) if x.is_infinite() => json!({"$float": if *x > 0.0 { "inf" } else { "-inf" }}),
            Self::Float(x) => json!(x),
            Self::Str(text) => Json::String(text.clone()),
            Self::Bytes(bytes) => json!({"$bytes": encode_standard(bytes)}),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(map) => Json::Object(map.iter().map(|(k, v)| (k.clone(), v.to_json())).collect()),
            Self::Ext(kind, bytes) => match self.big_integer() {
                Some(digits) => json!({"$int": digits}),
                None => json!({"$ext": [kind, encode_standard(bytes)]}),
            },
        }
    }
}

/// Equality by structure. Integers are compared by value, floats by bits, so that a value always equals itself.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::UInt(a), Self::UInt(b)) => a == b,
            (Self::Int(a), Self::UInt(b)) | (Self::UInt(b), Self::Int(a)) => u64::try_from(*a) == Ok(*b),
            (Self::Float(a), Self::Float(b)) => a == b || a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Ext(k, a), Self::Ext(l, b)) => k == l && a == b,
            _ => false,
        }
    }
}

macro_rules! equals {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for Value {
            fn eq(&self, other: &$other) -> bool {
                let other = Self::from(*other);
                *self == other
            }
        }
    )*};
}
equals!(bool, i32, i64, u64, usize, f64);

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(*other)
    }
}

impl PartialEq<String> for Value {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == Some(other)
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

macro_rules! from_int {
    ($($int:ty),*) => {$(
        impl From<$int> for Value {
            fn from(n: $int) -> Self {
                Self::Int(i64::from(n))
            }
        }
    )*};
}
from_int!(i8, i16, i32, i64, u8, u16, u32);

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        i64::try_from(n).map_or(Self::UInt(n), Self::Int)
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Self {
        Self::from(n as u64)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Str(text.clone())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<std::borrow::Cow<'_, str>> for Value {
    fn from(text: std::borrow::Cow<'_, str>) -> Self {
        Self::Str(text.into_owned())
    }
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Null
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Self::Int(n),
                (None, Some(n)) => Self::UInt(n),
                (None, None) => Self::Float(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Str(text),
            Json::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Json::Object(map) => Self::Map(map.into_iter().map(|(k, v)| (k, Self::from(v))).collect()),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(b) => serializer.serialize_bool(*b),
            Self::Int(n) => serializer.serialize_i64(*n),
            Self::UInt(n) => serializer.serialize_u64(*n),
            Self::Float(x) => serializer.serialize_f64(*x),
            Self::Str(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::List(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| seq.serialize_element(item))?;
                seq.end()
            }
            Self::Map(map) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                map.iter().try_for_each(|(name, value)| out.serialize_entry(name, value))?;
                out.end()
            }
            Self::Ext(kind, bytes) => {
                serializer.serialize_newtype_struct(rmp_serde::MSGPACK_EXT_STRUCT_NAME, &(*kind, RawBytes(bytes)))
            }
        }
    }
}

struct RawBytes<'a>(&'a [u8]);

impl Serialize for RawBytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Budget(&Cell::new(VALUE_NODES_MAX)).deserialize(deserializer)
    }
}

/// Reads a value while counting its nodes: 16 MiB of nils would become 640 MiB otherwise.
#[derive(Clone, Copy)]
struct Budget<'a>(&'a Cell<usize>);

impl Budget<'_> {
    fn spend<E: de::Error>(self) -> Result<(), E> {
        match self.0.get() {
            0 => Err(E::custom(format_args!("value has more than {VALUE_NODES_MAX} parts"))),
            left => {
                self.0.set(left - 1);
                Ok(())
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Budget<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.spend()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Budget<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Int(n))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(Value::from(n))
    }

    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(Value::Float(x))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Str(text))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(1_024));
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::with_capacity(access.size_hint().unwrap_or(0).min(1_024));
        while let Some(name) = access.next_key::<String>()? {
            map.insert(name, access.next_value_seed(self)?);
        }
        Ok(Value::Map(map))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let (kind, bytes) = <(i8, OwnedBytes)>::deserialize(deserializer)?;
        Ok(Value::Ext(kind, bytes.0))
    }
}

struct OwnedBytes(Vec<u8>);

impl<'de> Deserialize<'de> for OwnedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = OwnedBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<OwnedBytes, E> {
                Ok(OwnedBytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// How the bytes of a stored value are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Codec {
    /// MessagePack with names (`rmp-serde`): what `annals` writes.
    #[default]
    MsgPack,
    /// Bytes of an importer or a binding, kept verbatim; the number says whose.
    Foreign(u8),
}

impl Codec {
    /// Returns the number under which the codec is stored.
    pub fn to_tag(self) -> u8 {
        match self {
            Self::MsgPack => 0,
            Self::Foreign(tag) => tag,
        }
    }

    /// Returns the codec stored under a number.
    pub fn from_tag(tag: u8) -> Self {
        if tag == 0 { Self::MsgPack } else { Self::Foreign(tag) }
    }
}

/// A value in its stored form.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoded {
    /// How to read the bytes.
    pub codec: Codec,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Encoded {
    /// Encodes a value as MessagePack with names.
    ///
    /// # Errors
    /// [`CodecError`] if the type refuses, or the result is longer than [`VALUE_BYTES_MAX`].
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, CodecError> {
        let bytes = rmp_serde::to_vec_named(value).map_err(|e| CodecError::Encode { reason: e.to_string() })?;
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(CodecError::TooLarge { bytes: bytes.len() });
        }
        Ok(Self { codec: Codec::MsgPack, bytes })
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// As [`decode_bytes`].
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        decode_bytes(self.codec, &self.bytes)
    }
}

/// Decodes a value from borrowed bytes, within the limits on depth and parts.
///
/// # Errors
/// [`CodecError`] if the codec is foreign, or the bytes are not one whole value of the type.
pub fn decode_bytes<T: DeserializeOwned>(codec: Codec, bytes: &[u8]) -> Result<T, CodecError> {
    if let Codec::Foreign(tag) = codec {
        return Err(CodecError::ForeignCodec { tag });
    }
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(VALUE_DEPTH_MAX);
    let expected = std::any::type_name::<T>();
    let value = T::deserialize(&mut reader).map_err(|e| CodecError::Decode { expected, reason: e.to_string() })?;
    // At the end of the bytes there is no marker to read; anything else means that more follows.
    match de::IgnoredAny::deserialize(&mut reader) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        _ => Err(CodecError::Decode { expected, reason: "more bytes follow the value".into() }),
    }
}

/// A value could not be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The type refused to be serialized.
    #[error("the value cannot be encoded: {reason}")]
    Encode {
        /// What the serializer said.
        reason: String,
    },
    /// The bytes are not a value of the expected type.
    #[error("the stored value is no {expected}: {reason}")]
    Decode {
        /// The Rust type that was asked for.
        expected: &'static str,
        /// What the deserializer said.
        reason: String,
    },
    /// The value is longer than a stored value may be.
    #[error("the value has {bytes} bytes encoded, the limit is {VALUE_BYTES_MAX}")]
    TooLarge {
        /// The encoded length.
        bytes: usize,
    },
    /// The value was written by an importer or a binding and is not read by this library.
    #[error("the value is in foreign codec {tag}: its bytes are kept, but this library does not read them")]
    ForeignCodec {
        /// The number of the codec.
        tag: u8,
    },
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

    #[test]
    fn values_survive_the_codec_in_order() {
        let value = sample();
        let back: Value = Encoded::encode(&value).unwrap().decode().unwrap();
        assert_eq!(value, back);
        let names: Vec<_> = back.as_map().unwrap().keys().cloned().collect();
        assert_eq!(names, ["z", "a", "big", "m", "bytes", "ext"]);
        assert_eq!(back.to_json()["bytes"], serde_json::json!({"$bytes": "AP8H"}));
    }

    #[test]
    fn hostile_bytes_are_typed_errors() {
        let deep = vec![0x91; 100_000];
        assert!(matches!(decode_bytes::<Value>(Codec::MsgPack, &deep), Err(CodecError::Decode { .. })));
        assert!(decode_bytes::<Value>(Codec::MsgPack, &[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(decode_bytes::<Value>(Codec::MsgPack, &[0xc0, 0xc0]).is_err(), "two values are not one");
        let mut nils = vec![0xdd, 0x00, 0x40, 0x00, 0x00];
        nils.extend(std::iter::repeat_n(0xc0, 0x40_0000));
        let error = decode_bytes::<Value>(Codec::MsgPack, &nils).unwrap_err().to_string();
        assert!(error.contains("parts"), "{error}");
        assert_eq!(decode_bytes::<Value>(Codec::Foreign(9), &[]), Err(CodecError::ForeignCodec { tag: 9 }));
    }
}
