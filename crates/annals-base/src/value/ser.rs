//! Builds a dynamic value of any serializable one.
//!
//! Invariant: the value is the one that decoding its MessagePack encoding would give, and is nested no deeper than an
//! encoded value may be. *Absent:* bytes.

use serde::Serialize;
use serde::ser::{self, Error as _};

use super::Value;
use crate::limits::VALUE_DEPTH_MAX;
use crate::{CodecError, Map};

/// A serde serializer whose output is a [`Value`]. It writes what MessagePack with names would: structs and struct
/// variants are objects, a unit struct is an empty list, a variant is its name or an object of one member, an integer
/// of 128 bits is 16 bytes, and the format is not human-readable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueSerializer {
    /// The number of lists and objects around the value.
    depth: usize,
}

impl ValueSerializer {
    /// Returns the serializer of the content of a list, an object or an extension.
    fn inside(self) -> Result<Self, CodecError> {
        if self.depth >= VALUE_DEPTH_MAX {
            return Err(CodecError::TooDeep { limit: VALUE_DEPTH_MAX });
        }
        Ok(Self { depth: self.depth + 1 })
    }

    fn list(self, len: Option<usize>) -> Result<ListBuilder, CodecError> {
        Ok(ListBuilder { items: Vec::with_capacity(len.unwrap_or(0).min(1_024)), inner: self.inside()?, variant: None })
    }

    fn object(self, len: Option<usize>) -> Result<ObjectBuilder, CodecError> {
        let map = Map::with_capacity(len.unwrap_or(0).min(1_024));
        Ok(ObjectBuilder { map, name: String::new(), inner: self.inside()?, variant: None })
    }
}

/// Returns the object of one member that stands for a variant with data.
fn variant(name: &'static str, value: Value) -> Value {
    Value::Map(Map::from([(name.to_owned(), value)]))
}

macro_rules! integers {
    ($($method:ident: $int:ty),*) => {$(
        fn $method(self, n: $int) -> Result<Value, CodecError> {
            Ok(Value::from(n))
        }
    )*};
}

impl ser::Serializer for ValueSerializer {
    type Ok = Value;
    type Error = CodecError;
    type SerializeSeq = ListBuilder;
    type SerializeTuple = ListBuilder;
    type SerializeTupleStruct = ListBuilder;
    type SerializeTupleVariant = ListBuilder;
    type SerializeMap = ObjectBuilder;
    type SerializeStruct = ObjectBuilder;
    type SerializeStructVariant = ObjectBuilder;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, b: bool) -> Result<Value, CodecError> {
        Ok(Value::Bool(b))
    }

    fn serialize_i128(self, n: i128) -> Result<Value, CodecError> {
        Ok(Value::Bytes(n.to_be_bytes().to_vec()))
    }

    fn serialize_u128(self, n: u128) -> Result<Value, CodecError> {
        Ok(Value::Bytes(n.to_be_bytes().to_vec()))
    }

    fn serialize_f32(self, x: f32) -> Result<Value, CodecError> {
        Ok(Value::Float(x.into()))
    }

    fn serialize_f64(self, x: f64) -> Result<Value, CodecError> {
        Ok(Value::Float(x))
    }

    fn serialize_char(self, c: char) -> Result<Value, CodecError> {
        Ok(Value::Str(c.into()))
    }

    fn serialize_str(self, text: &str) -> Result<Value, CodecError> {
        Ok(Value::from(text))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Value, CodecError> {
        Ok(Value::Bytes(bytes.to_vec()))
    }

    fn serialize_none(self) -> Result<Value, CodecError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, CodecError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, CodecError> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Value, CodecError> {
        Ok(Value::List(Vec::new()))
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<Value, CodecError> {
        Ok(Value::from(name))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, CodecError> {
        if name != rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            return value.serialize(self);
        }
        // An extension is serialized as the pair of its type and its bytes.
        match value.serialize(self)? {
            Value::List(pair) => match <[Value; 2]>::try_from(pair) {
                Ok([Value::Int(kind), Value::Bytes(bytes)]) => match i8::try_from(kind) {
                    Ok(kind) => Ok(Value::Ext(kind, bytes)),
                    Err(_) => Err(CodecError::custom(format_args!("extension type {kind} does not fit into 8 bits"))),
                },
                _ => Err(CodecError::custom("an extension is not a pair of an integer and bytes")),
            },
            _ => Err(CodecError::custom("an extension is not a pair of an integer and bytes")),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<Value, CodecError> {
        Ok(variant(name, value.serialize(self.inside()?)?))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<ListBuilder, CodecError> {
        self.list(len)
    }

    fn serialize_tuple(self, len: usize) -> Result<ListBuilder, CodecError> {
        self.list(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<ListBuilder, CodecError> {
        self.list(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<ListBuilder, CodecError> {
        Ok(ListBuilder { variant: Some(name), ..self.inside()?.list(Some(len))? })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<ObjectBuilder, CodecError> {
        self.object(len)
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<ObjectBuilder, CodecError> {
        self.object(Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<ObjectBuilder, CodecError> {
        Ok(ObjectBuilder { variant: Some(name), ..self.inside()?.object(Some(len))? })
    }
}

/// A list that is being built.
#[derive(Debug)]
pub(super) struct ListBuilder {
    items: Vec<Value>,
    /// The serializer of an item.
    inner: ValueSerializer,
    variant: Option<&'static str>,
}

impl ListBuilder {
    fn push<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CodecError> {
        self.items.push(item.serialize(self.inner)?);
        Ok(())
    }

    fn finish(self) -> Value {
        let list = Value::List(self.items);
        match self.variant {
            Some(name) => variant(name, list),
            None => list,
        }
    }
}

macro_rules! list_builder {
    ($($role:ident: $method:ident),*) => {$(
        impl ser::$role for ListBuilder {
            type Ok = Value;
            type Error = CodecError;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CodecError> {
                self.push(item)
            }

            fn end(self) -> Result<Value, CodecError> {
                Ok(self.finish())
            }
        }
    )*};
}
list_builder! {
    SerializeSeq: serialize_element, SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field
}

/// An object that is being built.
#[derive(Debug)]
pub(super) struct ObjectBuilder {
    map: Map,
    /// The name whose value comes next.
    name: String,
    /// The serializer of a member.
    inner: ValueSerializer,
    variant: Option<&'static str>,
}

impl ObjectBuilder {
    fn put<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), CodecError> {
        self.map.insert(name.to_owned(), value.serialize(self.inner)?);
        Ok(())
    }

    fn finish(self) -> Value {
        let object = Value::Map(self.map);
        match self.variant {
            Some(name) => variant(name, object),
            None => object,
        }
    }
}

impl ser::SerializeMap for ObjectBuilder {
    type Ok = Value;
    type Error = CodecError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<(), CodecError> {
        match name.serialize(self.inner)? {
            Value::Str(name) => self.name = name,
            other => {
                let found = other.kind();
                return Err(CodecError::custom(format_args!("the name of a member is not a text: found {found}")));
            }
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CodecError> {
        let name = std::mem::take(&mut self.name);
        self.map.insert(name, value.serialize(self.inner)?);
        Ok(())
    }

    fn end(self) -> Result<Value, CodecError> {
        Ok(self.finish())
    }
}

impl ser::SerializeStruct for ObjectBuilder {
    type Ok = Value;
    type Error = CodecError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), CodecError> {
        self.put(name, value)
    }

    fn end(self) -> Result<Value, CodecError> {
        Ok(self.finish())
    }
}

impl ser::SerializeStructVariant for ObjectBuilder {
    type Ok = Value;
    type Error = CodecError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), CodecError> {
        self.put(name, value)
    }

    fn end(self) -> Result<Value, CodecError> {
        Ok(self.finish())
    }
}
