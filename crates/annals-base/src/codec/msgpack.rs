//! Reads MessagePack without serde: the bounds of an encoded value, and the bytes of a dynamic value.
//!
//! Invariant: no length in the bytes is believed before that many bytes are there. *Absent:* typed values, which
//! `reader` makes of the tokens, and every encoding.

use rmp::Marker;

use super::reader::Token;
use crate::limits::{DECODED_DEPTH_MAX, DECODED_NODES_MAX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};
use crate::{CodecError, Map, Value};

/// A position in a MessagePack document.
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
    nodes: usize,
}

/// The reason why bytes are not one whole value within the limits.
#[derive(Debug, PartialEq)]
pub(super) enum BoundsFault {
    Depth,
    Nodes,
    Text(String),
}

impl From<BoundsFault> for CodecError {
    fn from(fault: BoundsFault) -> Self {
        match fault {
            BoundsFault::Depth => Self::TooDeep { limit: DECODED_DEPTH_MAX },
            BoundsFault::Nodes => Self::TooManyParts { limit: DECODED_NODES_MAX },
            BoundsFault::Text(reason) => Self::Decode { expected: "value", reason },
        }
    }
}

impl<'a> Tokens<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, nodes: 0 }
    }

    /// Returns an error if bytes follow the value that was read.
    pub(super) fn end(&self) -> Result<(), BoundsFault> {
        match self.rest {
            [] => Ok(()),
            _ => Err(BoundsFault::Text("more bytes follow the value".into())),
        }
    }

    fn take(&mut self, length: u32) -> Result<&'a [u8], BoundsFault> {
        let (taken, rest) = self.rest.split_at_checked(length as usize).ok_or_else(|| {
            let left = self.rest.len();
            BoundsFault::Text(format!("the value ends too early: {length} bytes are announced, {left} are left"))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads the bytes of a number, most significant first.
    fn number<const N: usize>(&mut self) -> Result<[u8; N], BoundsFault> {
        let mut number = [0; N];
        number.copy_from_slice(self.take(N as u32)?);
        Ok(number)
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, BoundsFault> {
        let [marker] = self.number()?;
        Ok(match Marker::from_u8(marker) {
            Marker::Null => Token::Null,
            Marker::True => Token::Bool(true),
            Marker::False => Token::Bool(false),
            Marker::FixPos(n) => Token::UInt(n.into()),
            Marker::FixNeg(n) => Token::Int(n.into()),
            Marker::U8 => Token::UInt(u8::from_be_bytes(self.number()?).into()),
            Marker::U16 => Token::UInt(u16::from_be_bytes(self.number()?).into()),
            Marker::U32 => Token::UInt(u32::from_be_bytes(self.number()?).into()),
            Marker::U64 => Token::UInt(u64::from_be_bytes(self.number()?)),
            Marker::I8 => Token::Int(i8::from_be_bytes(self.number()?).into()),
            Marker::I16 => Token::Int(i16::from_be_bytes(self.number()?).into()),
            Marker::I32 => Token::Int(i32::from_be_bytes(self.number()?).into()),
            Marker::I64 => Token::Int(i64::from_be_bytes(self.number()?)),
            Marker::F32 => Token::Float(f32::from_be_bytes(self.number()?).into()),
            Marker::F64 => Token::Float(f64::from_be_bytes(self.number()?)),
            Marker::FixStr(length) => Token::Str(self.take(length.into())?),
            Marker::FixArray(length) => Token::List(length.into()),
            Marker::FixMap(length) => Token::Map(length.into()),
            marker => return self.long(marker),
        })
    }

    /// Reads the elements whose length is not in the marker.
    fn long(&mut self, marker: Marker) -> Result<Token<'a>, BoundsFault> {
        let length = match marker {
            Marker::FixExt1 => 1,
            Marker::FixExt2 => 2,
            Marker::FixExt4 => 4,
            Marker::FixExt8 => 8,
            Marker::FixExt16 => 16,
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => u8::from_be_bytes(self.number()?).into(),
            Marker::Str16 | Marker::Bin16 | Marker::Ext16 | Marker::Array16 | Marker::Map16 => {
                u16::from_be_bytes(self.number()?).into()
            }
            Marker::Reserved => return Err(BoundsFault::Text("0xc1 does not begin a value".into())),
            _ => u32::from_be_bytes(self.number()?),
        };
        Ok(match marker {
            Marker::Str8 | Marker::Str16 | Marker::Str32 => Token::Str(self.take(length)?),
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => Token::Bytes(self.take(length)?),
            Marker::Array16 | Marker::Array32 => Token::List(length),
            Marker::Map16 | Marker::Map32 => Token::Map(length),
            _ => {
                let kind = i8::from_be_bytes(self.number()?);
                Token::Ext(kind, self.take(length)?)
            }
        })
    }

    /// Reads a value; `depth` counts the lists, maps and extensions around it.
    fn value(&mut self, depth: usize) -> Result<Value, BoundsFault> {
        self.nodes += 1;
        if self.nodes > DECODED_NODES_MAX {
            return Err(BoundsFault::Nodes);
        }
        let token = self.next()?;
        if depth == DECODED_DEPTH_MAX && token.is_container() {
            return Err(BoundsFault::Depth);
        }
        Ok(match token {
            Token::Null => Value::Null,
            Token::Bool(b) => Value::Bool(b),
            Token::UInt(n) => n.into(),
            Token::Int(n) => Value::Int(n),
            Token::Float(x) => Value::Float(x),
            Token::Str(text) => match std::str::from_utf8(text) {
                Ok(text) => Value::from(text),
                Err(_) => Value::Bytes(text.to_vec()),
            },
            Token::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Token::Ext(kind, bytes) => Value::Ext(kind, bytes.to_vec()),
            Token::List(length) => {
                // An announced length costs nothing to write: capacity grows with the items read.
                let mut items = Vec::with_capacity(length.min(1_024) as usize);
                for _ in 0..length {
                    items.push(self.value(depth + 1)?);
                }
                Value::List(items)
            }
            Token::Map(length) => {
                let mut map = Map::with_capacity(length.min(1_024) as usize);
                for _ in 0..length {
                    let name = self.name()?;
                    map.insert(name, self.value(depth + 1)?);
                }
                Value::Map(map)
            }
        })
    }

    fn name(&mut self) -> Result<String, BoundsFault> {
        match self.next()? {
            Token::Str(text) | Token::Bytes(text) => {
                std::str::from_utf8(text).map(str::to_owned).map_err(|error| BoundsFault::Text(error.to_string()))
            }
            _ => Err(BoundsFault::Text("the name of a member is not a text".into())),
        }
    }
}

/// Reads one whole dynamic value.
pub(super) fn read_value(bytes: &[u8]) -> Result<Value, BoundsFault> {
    let mut tokens = Tokens::new(bytes);
    let value = tokens.value(0)?;
    debug_assert!((1..=DECODED_NODES_MAX).contains(&tokens.nodes), "the values that were read are counted");
    tokens.end().map(|()| value)
}

/// Checks that an encoded value is within the limits of depth and parts. Names of members are not parts.
pub(super) fn check_bounds(bytes: &[u8]) -> Result<(), CodecError> {
    let mut tokens = Tokens::new(bytes);
    // Elements that are still to be read of each container around, and whether every other of them is a name.
    let mut open: Vec<(u64, bool)> = Vec::new();
    let (mut parts, mut is_name) = (0, false);
    loop {
        parts += usize::from(!is_name);
        if parts > VALUE_NODES_MAX {
            return Err(CodecError::TooManyParts { limit: VALUE_NODES_MAX });
        }
        let container = match tokens.next()? {
            Token::List(length) => Some((u64::from(length), false)),
            Token::Map(length) => Some((2 * u64::from(length), true)),
            Token::Ext(..) => Some((0, false)),
            _ => None,
        };
        if let Some(container) = container {
            open.push(container);
            if open.len() > VALUE_DEPTH_MAX {
                return Err(CodecError::TooDeep { limit: VALUE_DEPTH_MAX });
            }
        }
        while open.pop_if(|(left, _)| *left == 0).is_some() {}
        match open.last_mut() {
            None => break,
            Some((left, is_map)) => {
                is_name = *is_map && *left % 2 == 0;
                *left -= 1;
            }
        }
    }
    debug_assert!(tokens.rest.is_empty(), "the serializer wrote one value");
    debug_assert!(open.is_empty() && parts <= VALUE_NODES_MAX, "a whole value leaves no list open");
    Ok(())
}
