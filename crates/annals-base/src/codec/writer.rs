//! Writes dynamic values as MessagePack, without serde.
//!
//! Invariant: the bytes are those of the serializer. A value that is past a limit is not written: the serializer, which
//! then takes it, returns the error. *Absent:* typed values, and those with bytes or extensions, which are rare.

use rmp::{Marker, encode};

use crate::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};
use crate::{Map, Value, ValueView};

/// The bytes so far.
pub(super) struct ValueWriter {
    bytes: Vec<u8>,
    /// The number of values that were written, names of members not counted.
    parts: usize,
}

/// Returns the encoding of a value; `None` if it is past a limit, or has bytes or extensions in it. It begins with room
/// for so many bytes.
pub(super) fn written(view: &ValueView<'_>, room: usize) -> Option<Vec<u8>> {
    let mut writer = ValueWriter { bytes: Vec::with_capacity(room), parts: 0 };
    writer.view(view, 0)?;
    debug_assert!((1..=VALUE_BYTES_MAX).contains(&writer.bytes.len()), "a value that was written is within the limits");
    Some(writer.bytes)
}

impl ValueWriter {
    /// Writes a value; `depth` counts the lists, objects and extensions around it.
    fn view(&mut self, view: &ValueView<'_>, depth: usize) -> Option<()> {
        match view {
            ValueView::Value(value) => return self.value(value, depth),
            ValueView::Map(map) => return self.map(map, depth),
            _ => self.part(8)?,
        }
        match view {
            ValueView::Null => encode::write_nil(&mut self.bytes).ok(),
            ValueView::Bool(b) => encode::write_bool(&mut self.bytes, *b).ok(),
            ValueView::Int(n) => encode::write_sint(&mut self.bytes, *n).ok().map(|_| ()),
            ValueView::Str(text) => self.text(text),
            ValueView::Values(items) => {
                let depth = self.list(items.len(), depth)?;
                items.iter().try_for_each(|item| self.value(item, depth))
            }
            ValueView::List(items) => {
                let depth = self.list(items.len(), depth)?;
                items.iter().try_for_each(|item| self.view(item, depth))
            }
            ValueView::Fields(fields) => {
                let depth = self.object(fields.len(), depth)?;
                fields.iter().try_for_each(|(name, value)| {
                    self.text(name)?;
                    self.view(value, depth)
                })
            }
            ValueView::Value(_) | ValueView::Map(_) => None,
        }
    }

    fn value(&mut self, value: &Value, depth: usize) -> Option<()> {
        if let Value::Map(map) = value {
            return self.map(map, depth);
        }
        self.part(9)?;
        match value {
            Value::Null => encode::write_nil(&mut self.bytes).ok(),
            Value::Bool(b) => encode::write_bool(&mut self.bytes, *b).ok(),
            Value::Int(n) => encode::write_sint(&mut self.bytes, *n).ok().map(|_| ()),
            Value::UInt(n) => encode::write_uint(&mut self.bytes, *n).ok().map(|_| ()),
            Value::Float(x) => encode::write_f64(&mut self.bytes, *x).ok(),
            Value::Str(text) => self.text(text),
            Value::List(items) => {
                let depth = self.list(items.len(), depth)?;
                items.iter().try_for_each(|item| self.value(item, depth))
            }
            Value::Map(_) | Value::Bytes(_) | Value::Ext(..) => None,
        }
    }

    fn map(&mut self, map: &Map, depth: usize) -> Option<()> {
        self.part(5)?;
        let depth = self.object(map.len(), depth)?;
        map.iter().try_for_each(|(name, value)| {
            self.text(name)?;
            self.value(value, depth)
        })
    }

    fn list(&mut self, items: usize, depth: usize) -> Option<usize> {
        match short(items, 16) {
            Some(items) => self.bytes.push(Marker::FixArray(items).to_u8()),
            None => _ = encode::write_array_len(&mut self.bytes, u32::try_from(items).ok()?).ok()?,
        }
        (depth < VALUE_DEPTH_MAX).then_some(depth + 1)
    }

    fn object(&mut self, members: usize, depth: usize) -> Option<usize> {
        match short(members, 16) {
            Some(members) => self.bytes.push(Marker::FixMap(members).to_u8()),
            None => _ = encode::write_map_len(&mut self.bytes, u32::try_from(members).ok()?).ok()?,
        }
        (depth < VALUE_DEPTH_MAX).then_some(depth + 1)
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.room(5 + text.len())?;
        match short(text.len(), 32) {
            // Nearly all names, and most texts.
            Some(length) => self.bytes.push(Marker::FixStr(length).to_u8()),
            None => _ = encode::write_str_len(&mut self.bytes, u32::try_from(text.len()).ok()?).ok()?,
        }
        self.bytes.extend_from_slice(text.as_bytes());
        Some(())
    }

    /// Counts a value, of which so many bytes follow at most, those of a text not counted.
    fn part(&mut self, bytes: usize) -> Option<()> {
        self.parts += 1;
        self.room(bytes)?;
        (self.parts <= VALUE_NODES_MAX).then_some(())
    }

    fn room(&self, bytes: usize) -> Option<()> {
        (self.bytes.len() + bytes <= VALUE_BYTES_MAX).then_some(())
    }
}

/// Returns a length that is below a bound, which its marker then holds.
fn short(length: usize, below: u8) -> Option<u8> {
    u8::try_from(length).ok().filter(|length| *length < below)
}
