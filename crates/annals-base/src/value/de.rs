//! Reads a typed value out of a dynamic one.
//!
//! Invariant: a type reads the same from a value and from the MessagePack encoding of that value. *Absent:* bytes,
//! and borrowing from the value beyond one visit.

use serde::de::value::{BytesDeserializer, I8Deserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Unexpected, Visitor};

use super::Value;
use crate::CodecError;
use crate::limits::DECODED_DEPTH_MAX;

/// A serde deserializer that reads from a borrowed [`Value`].
///
/// # Example
/// ```
/// use annals_base::{Value, ValueDeserializer};
/// use serde::Deserialize;
///
/// let value = Value::from(vec![1, 2]);
/// assert_eq!(<(i64, i64)>::deserialize(ValueDeserializer::new(&value))?, (1, 2));
/// # Ok::<(), annals_base::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ValueDeserializer<'a> {
    value: &'a Value,
    /// The number of lists and objects around the value.
    depth: usize,
}

impl<'a> ValueDeserializer<'a> {
    /// Returns the deserializer of a whole value.
    pub fn new(value: &'a Value) -> Self {
        Self { value, depth: 0 }
    }

    fn inside(self) -> Result<usize, CodecError> {
        match self.depth < DECODED_DEPTH_MAX {
            true => Ok(self.depth + 1),
            false => Err(CodecError::TooDeep { limit: DECODED_DEPTH_MAX }),
        }
    }

    fn list<'de, V: Visitor<'de>>(self, items: &'a [Value], visitor: V) -> Result<V::Value, CodecError> {
        let mut access = ItemsAccess { items: items.iter(), depth: self.inside()? };
        let read = visitor.visit_seq(&mut access)?;
        whole(items.len(), access.items.len()).map(|()| read)
    }
}

/// Refuses a container of which the type read only a part.
fn whole(len: usize, left: usize) -> Result<(), CodecError> {
    match left {
        0 => Ok(()),
        left => Err(de::Error::custom(format_args!("{len} items, {} expected", len - left))),
    }
}

impl<'a> IntoDeserializer<'_, CodecError> for ValueDeserializer<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = CodecError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(n) => match u64::try_from(*n) {
                Ok(n) => visitor.visit_u64(n),
                Err(_) => visitor.visit_i64(*n),
            },
            Value::UInt(n) => visitor.visit_u64(*n),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Str(text) => visitor.visit_str(text),
            Value::Bytes(bytes) => visitor.visit_bytes(bytes),
            Value::List(items) => self.list(items, visitor),
            Value::Map(map) => {
                let mut access = MembersAccess { members: map.iter(), value: None, depth: self.inside()? };
                let read = visitor.visit_map(&mut access)?;
                whole(map.len(), access.members.len()).map(|()| read)
            }
            Value::Ext(kind, bytes) => visitor.visit_newtype_struct(Extension { kind: *kind, bytes }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        match (name, self.value) {
            (rmp_serde::MSGPACK_EXT_STRUCT_NAME, Value::Ext(..)) => self.deserialize_any(visitor),
            (rmp_serde::MSGPACK_EXT_STRUCT_NAME, other) => {
                Err(de::Error::invalid_type(Unexpected::Other(other.kind()), &"an extension"))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        match self.value {
            Value::List(items) if items.is_empty() => visitor.visit_unit(),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        match self.value {
            Value::Map(map) => match map.get_index(0).filter(|_| map.len() == 1) {
                Some((name, value)) => {
                    let data = Self { value, depth: self.inside()? };
                    visitor.visit_enum(Variant { name: StrDeserializer::new(name), data: Some(data) })
                }
                None => Err(de::Error::invalid_value(Unexpected::Map, &"an object of one member")),
            },
            Value::Str(name) => visitor.visit_enum(Variant { name: StrDeserializer::new(name), data: None }),
            // A number is an index among the variants.
            Value::Int(_) | Value::UInt(_) => visitor.visit_enum(Variant { name: self, data: None }),
            other => Err(de::Error::invalid_type(Unexpected::Other(other.kind()), &"a variant")),
        }
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_i128(self.wide()?)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_u128(self.wide()? as u128)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.value {
            Value::Bytes(bytes) => visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_seq(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit map identifier ignored_any
    }
}

impl ValueDeserializer<'_> {
    /// Returns an integer of 128 bits: a number, or 16 bytes.
    fn wide(self) -> Result<i128, CodecError> {
        match self.value {
            Value::Int(n) => Ok(i128::from(*n)),
            Value::UInt(n) => Ok(i128::from(*n)),
            Value::Bytes(bytes) => match <[u8; 16]>::try_from(&bytes[..]) {
                Ok(bytes) => Ok(i128::from_be_bytes(bytes)),
                Err(_) => Err(de::Error::invalid_length(bytes.len(), &"16 bytes")),
            },
            other => Err(de::Error::invalid_type(Unexpected::Other(other.kind()), &"an integer")),
        }
    }
}

/// The items of a list that are still to be read.
struct ItemsAccess<'a> {
    items: std::slice::Iter<'a, Value>,
    depth: usize,
}

impl<'de> de::SeqAccess<'de> for ItemsAccess<'_> {
    type Error = CodecError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, CodecError> {
        let depth = self.depth;
        self.items.next().map(|value| seed.deserialize(ValueDeserializer { value, depth })).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The members of an object that are still to be read.
struct MembersAccess<'a> {
    members: indexmap::map::Iter<'a, String, Value>,
    /// The value of the member whose name was read last.
    value: Option<&'a Value>,
    depth: usize,
}

impl<'de> de::MapAccess<'de> for MembersAccess<'_> {
    type Error = CodecError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, CodecError> {
        let Some((name, value)) = self.members.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, CodecError> {
        debug_assert!(self.value.is_some(), "a name is read before its value");
        let value = self.value.take().unwrap_or(&Value::Null);
        seed.deserialize(ValueDeserializer { value, depth: self.depth })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.members.len())
    }
}

/// A variant: its name or number, and its data.
struct Variant<'a, N> {
    name: N,
    data: Option<ValueDeserializer<'a>>,
}

impl<'de, 'a, N: Deserializer<'de, Error = CodecError>> de::EnumAccess<'de> for Variant<'a, N> {
    type Error = CodecError;
    type Variant = VariantData<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantData<'a>), CodecError> {
        Ok((seed.deserialize(self.name)?, VariantData(self.data)))
    }
}

/// The data of a variant, if it has any.
struct VariantData<'a>(Option<ValueDeserializer<'a>>);

impl<'a> VariantData<'a> {
    fn data(self) -> Result<ValueDeserializer<'a>, CodecError> {
        self.0.ok_or_else(|| de::Error::invalid_type(Unexpected::UnitVariant, &"a variant with data"))
    }
}

impl<'de> de::VariantAccess<'de> for VariantData<'_> {
    type Error = CodecError;

    fn unit_variant(self) -> Result<(), CodecError> {
        match self.0 {
            Some(data) => de::Deserialize::deserialize(data),
            None => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, CodecError> {
        seed.deserialize(self.data()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.data()?.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, CodecError> {
        self.data()?.deserialize_map(visitor)
    }
}

/// An extension: a newtype struct around the pair of its type and its bytes.
struct Extension<'a> {
    kind: i8,
    bytes: &'a [u8],
}

impl<'de> Deserializer<'de> for Extension<'_> {
    type Error = CodecError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(ExtensionParts { kind: Some(self.kind), bytes: Some(self.bytes) })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The type and the bytes of an extension that are still to be read.
struct ExtensionParts<'a> {
    kind: Option<i8>,
    bytes: Option<&'a [u8]>,
}

impl<'de> de::SeqAccess<'de> for ExtensionParts<'_> {
    type Error = CodecError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, CodecError> {
        if let Some(kind) = self.kind.take() {
            return seed.deserialize(I8Deserializer::new(kind)).map(Some);
        }
        self.bytes.take().map(|bytes| seed.deserialize(BytesDeserializer::new(bytes))).transpose()
    }
}
