//! Typed values out of tokens: one serde deserializer for the bytes of a value and for a dynamic value.
//!
//! Invariant: a type reads the same from a value and from the encoding of that value, since both are tokens here. The
//! code that is compiled for each type and field only hands a token over. *Absent:* the formats of the tokens.

use serde::de::value::{BytesDeserializer, I8Deserializer};
use serde::de::{self, DeserializeSeed, Deserializer, Unexpected, Visitor};

use super::msgpack::Tokens;
use super::tree::ValueTokens;
use crate::limits::{DECODED_DEPTH_MAX, DECODED_NODES_MAX};
use crate::{CodecError, Value};

/// One element of a value in its order of writing. A list is followed by its items, an object by its names and values
/// in turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'a> {
    Null,
    Bool(bool),
    UInt(u64),
    Int(i64),
    Float(f64),
    /// A text. Its bytes are those of the file and perhaps not UTF-8.
    Str(&'a [u8]),
    Bytes(&'a [u8]),
    Ext(i8, &'a [u8]),
    /// A list of so many items.
    List(u32),
    /// An object of so many members.
    Map(u32),
}

impl Token<'_> {
    pub(super) fn is_container(self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_) | Self::Ext(..))
    }

    /// Describes the token in the error of a type that expected another one.
    fn unexpected(&self) -> Unexpected<'_> {
        match *self {
            Self::Null => Unexpected::Unit,
            Self::Bool(b) => Unexpected::Bool(b),
            Self::UInt(n) => Unexpected::Unsigned(n),
            Self::Int(n) => Unexpected::Signed(n),
            Self::Float(x) => Unexpected::Float(x),
            Self::Str(text) => std::str::from_utf8(text).map_or(Unexpected::Bytes(text), Unexpected::Str),
            Self::Bytes(bytes) => Unexpected::Bytes(bytes),
            Self::Ext(..) => Unexpected::Other("extension"),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        }
    }
}

enum TokenSource<'a> {
    Bytes(Tokens<'a>),
    Tree(ValueTokens<'a>),
}

/// A serde deserializer of one value.
pub(super) struct ValueReader<'a> {
    source: TokenSource<'a>,
    /// The next token, if it was looked at before.
    peeked: Option<Token<'a>>,
    /// The number of lists and objects around the next token.
    depth: usize,
    /// The number of values that were read, without the names of members.
    parts: usize,
}

impl<'a> ValueReader<'a> {
    pub(super) fn of_bytes(bytes: &'a [u8]) -> Self {
        Self { source: TokenSource::Bytes(Tokens::new(bytes)), peeked: None, depth: 0, parts: 0 }
    }

    pub(super) fn of_value(value: &'a Value) -> Self {
        Self { source: TokenSource::Tree(ValueTokens::new(value)), peeked: None, depth: 0, parts: 0 }
    }

    /// Returns an error if something follows the value that was read.
    pub(super) fn end(&self) -> Result<(), CodecError> {
        match &self.source {
            TokenSource::Bytes(tokens) => Ok(tokens.end()?),
            TokenSource::Tree(_) => Ok(()),
        }
    }

    fn next(&mut self) -> Result<Token<'a>, CodecError> {
        if let Some(token) = self.peeked.take() {
            return Ok(token);
        }
        match &mut self.source {
            TokenSource::Bytes(tokens) => Ok(tokens.next()?),
            TokenSource::Tree(tree) => tree.next(),
        }
    }

    fn peek(&mut self) -> Result<Token<'a>, CodecError> {
        let token = self.next()?;
        self.peeked = Some(token);
        Ok(token)
    }

    /// Counts a list, an object or an extension that is entered.
    fn enter(&mut self) -> Result<(), CodecError> {
        if self.depth == DECODED_DEPTH_MAX {
            return Err(CodecError::TooDeep { limit: DECODED_DEPTH_MAX });
        }
        self.depth += 1;
        Ok(())
    }

    /// Ends a list or an object, of which the type may have read a part only.
    fn leave(&mut self, left: u32) -> Result<(), CodecError> {
        debug_assert!((1..=DECODED_DEPTH_MAX).contains(&self.depth), "a list that ends was entered");
        self.depth -= 1;
        match left {
            0 => Ok(()),
            left => Err(de::Error::custom(format_args!("{left} more items than expected"))),
        }
    }

    /// Counts a value inside a list or an object.
    fn count(&mut self) -> Result<(), CodecError> {
        self.parts += 1;
        match self.parts < DECODED_NODES_MAX {
            true => Ok(()),
            false => Err(CodecError::TooManyParts { limit: DECODED_NODES_MAX }),
        }
    }

    /// Reads an integer of 128 bits: a number, or 16 bytes.
    fn wide(&mut self) -> Result<i128, CodecError> {
        match self.next()? {
            Token::Int(n) => Ok(n.into()),
            Token::UInt(n) => Ok(n.into()),
            Token::Bytes(bytes) => match <[u8; 16]>::try_from(bytes) {
                Ok(bytes) => Ok(i128::from_be_bytes(bytes)),
                Err(_) => Err(de::Error::invalid_length(bytes.len(), &"16 bytes")),
            },
            other => Err(de::Error::invalid_type(other.unexpected(), &"an integer")),
        }
    }

    /// Reads the beginning of a variant and returns whether data follows its name.
    fn variant(&mut self) -> Result<bool, CodecError> {
        match self.next()? {
            Token::Map(1) => self.enter().map(|()| true),
            Token::Map(_) => Err(de::Error::invalid_value(Unexpected::Map, &"an object of one member")),
            // A number is an index among the variants.
            name @ (Token::Str(_) | Token::UInt(_) | Token::Int(_)) => {
                self.peeked = Some(name);
                Ok(false)
            }
            other => Err(de::Error::invalid_type(other.unexpected(), &"a variant")),
        }
    }

    fn items<V: Visitor<'a>>(&mut self, left: u32, visitor: V) -> Result<V::Value, CodecError> {
        self.enter()?;
        let mut items = ItemAccess { reader: self, left, bytes: &[] };
        let value = visitor.visit_seq(&mut items)?;
        let left = items.left;
        self.leave(left).map(|()| value)
    }
}

impl<'a> Deserializer<'a> for &mut ValueReader<'a> {
    type Error = CodecError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.next()? {
            Token::Null => visitor.visit_unit(),
            Token::Bool(b) => visitor.visit_bool(b),
            Token::UInt(n) => visitor.visit_u64(n),
            Token::Int(n) => visitor.visit_i64(n),
            Token::Float(x) => visitor.visit_f64(x),
            Token::Str(text) => match std::str::from_utf8(text) {
                Ok(text) => visitor.visit_borrowed_str(text),
                Err(_) => visitor.visit_borrowed_bytes(text),
            },
            Token::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::List(items) => self.items(items, visitor),
            Token::Map(left) => {
                self.enter()?;
                let mut members = MemberAccess { reader: self, left };
                let value = visitor.visit_map(&mut members)?;
                let left = members.left;
                self.leave(left).map(|()| value)
            }
            Token::Ext(kind, bytes) => {
                self.enter()?;
                self.depth -= 1;
                visitor.visit_newtype_struct(Extension { kind, bytes })
            }
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.peek()? {
            Token::Null => {
                self.peeked = None;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        if name != rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            return visitor.visit_newtype_struct(self);
        }
        match self.peek()? {
            Token::Ext(..) => self.deserialize_any(visitor),
            other => Err(de::Error::invalid_type(other.unexpected(), &"an extension")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        match self.peek()? {
            Token::List(0) => {
                self.peeked = None;
                visitor.visit_unit()
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        let has_data = self.variant()?;
        let value = visitor.visit_enum(Variant { reader: &mut *self, has_data })?;
        self.depth -= usize::from(has_data);
        Ok(value)
    }

    fn deserialize_i128<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_i128(self.wide()?)
    }

    fn deserialize_u128<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_u128(self.wide()? as u128)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.peek()? {
            Token::Bytes(bytes) => {
                self.peeked = None;
                visitor.visit_seq(ItemAccess { reader: self, left: 0, bytes })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_seq(visitor)
    }

    serde::forward_to_deserialize_any! { <V: Visitor<'a>>
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit map struct identifier ignored_any
    }
}

/// The items of a list that are still to be read, or the bytes of a value that is read as a list of them.
struct ItemAccess<'r, 'a> {
    reader: &'r mut ValueReader<'a>,
    left: u32,
    bytes: &'a [u8],
}

impl ItemAccess<'_, '_> {
    /// Moves to the next item, if one is left.
    fn advance(&mut self) -> Result<bool, CodecError> {
        if let Some((byte, rest)) = self.bytes.split_first() {
            self.bytes = rest;
            self.reader.peeked = Some(Token::UInt((*byte).into()));
            return Ok(true);
        }
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.reader.count().map(|()| true)
    }
}

impl<'a> de::SeqAccess<'a> for ItemAccess<'_, 'a> {
    type Error = CodecError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, CodecError> {
        match self.advance()? {
            true => seed.deserialize(&mut *self.reader).map(Some),
            false => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize + self.bytes.len())
    }
}

/// The members of an object that are still to be read.
struct MemberAccess<'r, 'a> {
    reader: &'r mut ValueReader<'a>,
    left: u32,
}

impl<'a> de::MapAccess<'a> for MemberAccess<'_, 'a> {
    type Error = CodecError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, CodecError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, CodecError> {
        self.reader.count()?;
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

/// A variant whose name or number comes next, and perhaps its data behind it.
struct Variant<'r, 'a> {
    reader: &'r mut ValueReader<'a>,
    has_data: bool,
}

impl<'a> Variant<'_, 'a> {
    fn data(&mut self) -> Result<&mut ValueReader<'a>, CodecError> {
        match self.has_data {
            true => self.reader.count().map(|()| &mut *self.reader),
            false => Err(de::Error::invalid_type(Unexpected::UnitVariant, &"a variant with data")),
        }
    }
}

impl<'a> de::EnumAccess<'a> for Variant<'_, 'a> {
    type Error = CodecError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), CodecError> {
        seed.deserialize(&mut *self.reader).map(|name| (name, self))
    }
}

impl<'a> de::VariantAccess<'a> for Variant<'_, 'a> {
    type Error = CodecError;

    fn unit_variant(mut self) -> Result<(), CodecError> {
        match self.has_data {
            true => de::Deserialize::deserialize(self.data()?),
            false => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(mut self, seed: T) -> Result<T::Value, CodecError> {
        seed.deserialize(self.data()?)
    }

    fn tuple_variant<V: Visitor<'a>>(mut self, _: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.data()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        mut self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.data()?.deserialize_any(visitor)
    }
}

/// An extension: a newtype struct around the pair of its type and its bytes.
struct Extension<'a> {
    kind: i8,
    bytes: &'a [u8],
}

impl<'a> Deserializer<'a> for Extension<'a> {
    type Error = CodecError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(ExtensionParts { kind: Some(self.kind), bytes: Some(self.bytes) })
    }

    serde::forward_to_deserialize_any! { <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The type and the bytes of an extension that are still to be read.
struct ExtensionParts<'a> {
    kind: Option<i8>,
    bytes: Option<&'a [u8]>,
}

impl<'a> de::SeqAccess<'a> for ExtensionParts<'a> {
    type Error = CodecError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, CodecError> {
        if let Some(kind) = self.kind.take() {
            return seed.deserialize(I8Deserializer::new(kind)).map(Some);
        }
        self.bytes.take().map(|bytes| seed.deserialize(BytesDeserializer::new(bytes))).transpose()
    }
}
