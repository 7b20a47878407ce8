//! The texts of a list of blocks, told apart from the blocks: an index sees one text, and no byte of it is stored twice.
//!
//! In the place of each text stands its length in bytes. A length where a text belongs is no content, so what is stored
//! says by itself whether it was taken apart.
//!
//! *Absent:* what else a message is made of.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::MessageError;
use annals_base::{Map, Value};

/// The blocks of a message, as they are stored.
pub(super) struct StoredBlocks<'a> {
    blocks: &'a [Value],
    /// Whether lengths stand where the texts were.
    apart: bool,
}

impl<'a> StoredBlocks<'a> {
    /// Returns the blocks as they are stored, and their texts, joined, if these are stored apart: not if there are none,
    /// nor if something else stands where a text belongs.
    pub(super) fn of(blocks: &'a [Value]) -> (Self, Option<String>) {
        let mut text = String::new();
        for block in blocks {
            match place(block) {
                Place::Text(piece) => text.push_str(piece),
                Place::None => {}
                Place::Other => return (Self { blocks, apart: false }, None),
            }
        }
        let apart = !text.is_empty();
        (Self { blocks, apart }, apart.then_some(text))
    }
}

/// What stands where a block says something.
enum Place<'a> {
    Text(&'a str),
    /// No text, which is where a length would be read as one.
    Other,
    /// The block says nothing.
    None,
}

fn place(block: &Value) -> Place<'_> {
    let map = match block {
        Value::Str(text) => return Place::Text(text),
        Value::Map(map) => map,
        _ => return Place::Other,
    };
    match map.get("text").filter(|_| is_text(map)) {
        Some(Value::Str(text)) => Place::Text(text),
        Some(_) => Place::Other,
        None => Place::None,
    }
}

fn is_text(map: &Map) -> bool {
    map.get("type").and_then(Value::as_str) == Some("text")
}

impl Serialize for StoredBlocks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.apart {
            return self.blocks.serialize(serializer);
        }
        let mut out = serializer.serialize_seq(Some(self.blocks.len()))?;
        for block in self.blocks {
            match (place(block), block) {
                (Place::Text(text), Value::Map(map)) => out.serialize_element(&Apart { map, text })?,
                (Place::Text(text), _) => out.serialize_element(&text.len())?,
                _ => out.serialize_element(block)?,
            }
        }
        out.end()
    }
}

/// A block with the length of its text in the place of the text.
struct Apart<'a> {
    map: &'a Map,
    text: &'a str,
}

impl Serialize for Apart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.map.len()))?;
        for (name, value) in self.map {
            match name.as_str() {
                "text" => out.serialize_entry(name, &self.text.len())?,
                _ => out.serialize_entry(name, value)?,
            }
        }
        out.end()
    }
}

/// Puts the texts back where their lengths stand.
///
/// # Errors
/// [`MessageError::Invalid`] if the lengths are not those of the text.
pub(super) fn rejoin(mut content: Value, text: &str) -> Result<Value, MessageError> {
    let mut left = text;
    let mut put = |at: usize, place: &mut Value| -> Result<(), MessageError> {
        let Value::Int(length) = place else { return Ok(()) };
        let piece = usize::try_from(*length).ok().and_then(|length| left.split_at_checked(length));
        let (piece, rest) =
            piece.ok_or_else(|| MessageError::invalid(format!("content[{at}]"), "the length of a text", &*place))?;
        left = rest;
        *place = Value::from(piece);
        Ok(())
    };
    let Value::List(blocks) = &mut content else {
        return Err(MessageError::invalid("content", "a list", &content));
    };
    for (at, block) in blocks.iter_mut().enumerate() {
        match block {
            Value::Map(map) if is_text(map) => map.get_mut("text").map_or(Ok(()), |place| put(at, place))?,
            Value::Map(_) => {}
            other => put(at, other)?,
        }
    }
    if left.is_empty() {
        Ok(content)
    } else {
        Err(MessageError::invalid("content", "lengths that add up to that of the text", &content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_base::value::decode_bytes;
    use annals_base::{Codec, Encoded};

    fn blocks(json: serde_json::Value) -> Vec<Value> {
        json.as_array().into_iter().flatten().cloned().map(Value::from).collect()
    }

    fn stored(blocks: &[Value]) -> (Value, Option<String>) {
        let (stored, text) = StoredBlocks::of(blocks);
        let bytes = Encoded::encode(&stored).expect("it is short").bytes;
        (decode_bytes(Codec::MsgPack, &bytes).expect("it was encoded"), text)
    }

    #[test]
    fn texts_stand_apart_from_their_blocks_once() {
        let said = blocks(serde_json::json!([
            "grüß ", {"text": "Gott", "type": "text", "annotations": [1]}, {"type": "image", "url": "x"}, ""
        ]));
        let (apart, text) = stored(&said);
        assert_eq!(text.as_deref(), Some("grüß Gott"));
        let expected =
            serde_json::json!([7, {"text": 4, "type": "text", "annotations": [1]}, {"type": "image", "url": "x"}, 0]);
        assert_eq!(apart, Value::from(expected));
        assert_eq!(rejoin(apart, "grüß Gott").expect("they fit"), Value::List(said));
    }

    #[test]
    fn what_is_no_text_stays_where_it_is() {
        for json in [
            serde_json::json!(["a", {"type": "text", "text": 5}]),
            serde_json::json!(["a", {"type": "text", "text": null}]),
            serde_json::json!([{"type": "image", "text": "a"}, {"type": "text"}]),
            serde_json::json!([{"type": "text", "text": ""}]),
            serde_json::json!([]),
        ] {
            let said = blocks(json);
            assert_eq!(stored(&said), (Value::List(said.clone()), None));
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_an_error() {
        for json in [serde_json::json!([1]), serde_json::json!([3]), serde_json::json!([-1]), serde_json::json!([2, 1])]
        {
            let error = rejoin(Value::from(json), "ü").expect_err("the text has two bytes");
            assert!(error.to_string().contains("content"), "{error}");
        }
        assert!(rejoin(Value::from(serde_json::json!([2])), "ü").is_ok());
    }
}
