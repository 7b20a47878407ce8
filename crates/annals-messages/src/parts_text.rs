//! The texts of a list of blocks, told apart from the blocks: an index sees one text, and no byte of it is stored
//! twice.
//!
//! In the place of each text stands its length in bytes. A length in the place of a text is not valid content, so the
//! stored list says by itself whether it was taken apart.
//!
//! *Absent:* what else a message is made of.

use super::MessageError;
use annals_base::{Map, Value, ValueView};

/// The blocks of a message, as they are stored.
pub(super) struct StoredBlocks<'a> {
    blocks: &'a [Value],
    /// True if lengths stand in the places of the texts.
    apart: bool,
}

impl<'a> StoredBlocks<'a> {
    /// Returns the blocks as they are stored, and their texts, joined, if these are stored apart: not if there are
    /// none, nor if something else stands where a text belongs.
    pub(super) fn of(blocks: &'a [Value]) -> (Self, Option<String>) {
        let mut text = String::new();
        for block in blocks {
            match place(block) {
                TextPlace::Text(fragment) => text.push_str(fragment),
                TextPlace::None => {}
                TextPlace::Other => return (Self { blocks, apart: false }, None),
            }
        }
        let apart = !text.is_empty();
        debug_assert_eq!(
            text.len(),
            blocks.iter().map(|block| place(block).len()).sum::<usize>(),
            "no text is left out"
        );
        (Self { blocks, apart }, apart.then_some(text))
    }
}

/// The value in the text position of a block.
enum TextPlace<'a> {
    Text(&'a str),
    /// No text, which is where a length would be read as one.
    Other,
    /// The block says nothing.
    None,
}

impl TextPlace<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Other | Self::None => 0,
        }
    }
}

fn place(block: &Value) -> TextPlace<'_> {
    let map = match block {
        Value::Str(text) => return TextPlace::Text(text),
        Value::Map(map) => map,
        _ => return TextPlace::Other,
    };
    match map.get("text").filter(|_| is_text(map)) {
        Some(Value::Str(text)) => TextPlace::Text(text),
        Some(_) => TextPlace::Other,
        None => TextPlace::None,
    }
}

fn is_text(map: &Map) -> bool {
    map.get("type").and_then(Value::as_str) == Some("text")
}

impl<'a> StoredBlocks<'a> {
    pub(super) fn view(&self) -> ValueView<'a> {
        if !self.apart {
            return ValueView::Values(self.blocks);
        }
        let stored = self.blocks.iter().map(|block| match (place(block), block) {
            (TextPlace::Text(text), Value::Map(map)) => {
                let member = |(name, value): (&'a String, &'a Value)| match name.as_str() {
                    "text" => ("text", length(text)),
                    name => (name, value.into()),
                };
                ValueView::Fields(map.iter().map(member).collect())
            }
            (TextPlace::Text(text), _) => length(text),
            _ => block.into(),
        });
        stored.collect()
    }
}

/// The length that stands in the place of a text.
fn length<'a>(text: &str) -> ValueView<'a> {
    ValueView::Int(i64::try_from(text.len()).unwrap_or(i64::MAX))
}

/// Puts the texts back where their lengths stand.
///
/// # Errors
/// [`MessageError::Invalid`] if the lengths are not those of the text.
pub(super) fn rejoin(mut content: Value, text: &str) -> Result<Value, MessageError> {
    let mut left = text;
    let mut put = |at: usize, place: &mut Value| -> Result<(), MessageError> {
        let Value::Int(length) = place else { return Ok(()) };
        let fragment = usize::try_from(*length).ok().and_then(|length| left.split_at_checked(length));
        let (fragment, rest) =
            fragment.ok_or_else(|| MessageError::invalid(format!("content[{at}]"), "the length of a text", &*place))?;
        left = rest;
        *place = Value::from(fragment);
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
    use annals_base::decode_value;

    fn blocks(json: serde_json::Value) -> Vec<Value> {
        json.as_array().into_iter().flatten().cloned().map(Value::from).collect()
    }

    fn stored(blocks: &[Value]) -> (Value, Option<String>) {
        let (stored, text) = StoredBlocks::of(blocks);
        let encoded = stored.view().encode().expect("it is short");
        (decode_value(encoded.codec, &encoded.bytes).expect("it was encoded"), text)
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
