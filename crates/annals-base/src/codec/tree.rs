//! The tokens of a dynamic value.
//!
//! *Absent:* limits and types, which `reader` knows.

use std::slice;

use serde::de;

use super::reader::Token;
use crate::map::MapEntries;
use crate::{CodecError, Value};

/// A position in a dynamic value.
pub(super) struct ValueTokens<'a> {
    /// The whole value, until it is read.
    root: Option<&'a Value>,
    /// The lists and objects around the position.
    open: Vec<Container<'a>>,
}

enum Container<'a> {
    Items(slice::Iter<'a, Value>),
    /// The members, and the value of the one whose name was read last.
    Members(MapEntries<'a>, Option<&'a Value>),
}

impl<'a> ValueTokens<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self { root: Some(value), open: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, CodecError> {
        let value = loop {
            let Some(container) = self.open.last_mut() else { break self.root.take() };
            match container {
                Container::Items(items) => {
                    if let Some(item) = items.next() {
                        break Some(item);
                    }
                }
                Container::Members(members, value) => {
                    if let Some(value) = value.take() {
                        break Some(value);
                    }
                    if let Some((name, member)) = members.next() {
                        *value = Some(member);
                        return Ok(Token::Str(name.as_bytes()));
                    }
                }
            }
            self.open.pop();
        };
        value.map_or_else(|| Err(de::Error::custom("the value was read already")), |value| Ok(self.token(value)))
    }

    /// Returns the token of a value, which becomes the innermost container if it is a list or an object.
    fn token(&mut self, value: &'a Value) -> Token<'a> {
        match value {
            Value::Null => Token::Null,
            Value::Bool(b) => Token::Bool(*b),
            // As the encoding: a number that is not negative has no sign.
            Value::Int(n) => u64::try_from(*n).map_or(Token::Int(*n), Token::UInt),
            Value::UInt(n) => Token::UInt(*n),
            Value::Float(x) => Token::Float(*x),
            Value::Str(text) => Token::Str(text.as_bytes()),
            Value::Bytes(bytes) => Token::Bytes(bytes),
            Value::Ext(kind, bytes) => Token::Ext(*kind, bytes),
            Value::List(items) => {
                debug_assert!(u32::try_from(items.len()).is_ok(), "MessagePack counts with 32 bits");
                self.open.push(Container::Items(items.iter()));
                Token::List(items.len() as u32)
            }
            Value::Map(map) => {
                debug_assert!(u32::try_from(map.len()).is_ok(), "MessagePack counts with 32 bits");
                self.open.push(Container::Members(map.into_iter(), None));
                Token::Map(map.len() as u32)
            }
        }
    }
}
