//! The content of a message: a text, or a list of blocks.
//!
//! *Absent:* the meaning of the blocks to a provider.

use std::borrow::Cow;

use super::MessageError;
use annals_base::{Value, ValueView};

/// The content of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A text.
    Text(String),
    /// Blocks: each a text, or an object such as `{"type": "text", "text": "hi"}`.
    Blocks(Vec<Value>),
}

impl Content {
    /// Returns the text: of a list, its strings and the `text` of its text blocks, joined without separator.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Blocks(blocks) => {
                // Adding to an empty text borrows the added text.
                blocks.iter().filter_map(block_text).fold(Cow::Borrowed(""), |text, fragment| text + fragment)
            }
        }
    }

    /// Returns whether nothing is said: an empty text, or no blocks.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }

    pub(super) fn view(&self) -> ValueView<'_> {
        match self {
            Self::Text(text) => text.into(),
            Self::Blocks(blocks) => ValueView::Values(blocks),
        }
    }

    /// Returns the content as a value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Blocks(blocks) => Value::List(blocks.clone()),
        }
    }
}

fn block_text(block: &Value) -> Option<&str> {
    match block {
        Value::Str(text) => Some(text),
        Value::Map(map) if map.get("type").and_then(Value::as_str) == Some("text") => map.get("text")?.as_str(),
        _ => None,
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<Value>> for Content {
    /// Items that are neither texts nor objects are not valid content; [`TryFrom<Value>`] checks that.
    fn from(blocks: Vec<Value>) -> Self {
        Self::Blocks(blocks)
    }
}

/// The blocks of a JSON document, unchecked as those of a list of values.
impl From<Vec<serde_json::Value>> for Content {
    fn from(blocks: Vec<serde_json::Value>) -> Self {
        Self::Blocks(blocks.into_iter().map(Value::from).collect())
    }
}

/// A list whose length is known: blocks of a JSON document, content blocks.
impl<T, const N: usize> From<[T; N]> for Content
where
    Vec<T>: Into<Content>,
{
    fn from(blocks: [T; N]) -> Self {
        Vec::from(blocks).into()
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Checks the shape: a text, or a list whose items are texts or objects.
impl TryFrom<Value> for Content {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        match value {
            Value::Str(text) => Ok(Self::Text(text)),
            Value::List(blocks) => match blocks.iter().position(|b| !matches!(b, Value::Str(_) | Value::Map(_))) {
                None => Ok(Self::Blocks(blocks)),
                Some(at) => Err(MessageError::invalid(format!("content[{at}]"), "a text or an object", &blocks[at])),
            },
            other => Err(MessageError::invalid("content", "a text or a list", &other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(json: serde_json::Value) -> Result<Content, MessageError> {
        Content::try_from(Value::from(json))
    }

    #[test]
    fn text_takes_strings_and_text_blocks_only() {
        use serde_json::json;
        assert_eq!(content(json!("hi")).unwrap().text(), "hi");
        assert_eq!(content(json!([])).unwrap().text(), "");
        let one = content(json!([{"type": "text", "text": "a"}, {"type": "x", "text": "no"}])).unwrap();
        assert!(matches!(one.text(), Cow::Borrowed("a")));
        let odd = content(json!([{"type": "text", "text": 5}, {"type": "text"}, {"text": "no"}, "b", "c"])).unwrap();
        assert_eq!(odd.text(), "bc");
    }

    #[test]
    fn blocks_of_any_kind_are_content() {
        let json = serde_json::json!({"type": "text", "text": "a"});
        let blocks = Content::Blocks(vec![json.clone().into()]);
        assert_eq!(Content::from([json.clone()]), blocks);
        assert_eq!(Content::from([crate::blocks::ContentBlock::text("a")]), blocks);
        assert_eq!(Content::from([Value::from(json.clone())]), Content::from(vec![json]));
    }

    #[test]
    fn other_shapes_are_refused() {
        for bad in [serde_json::json!(null), 5.into(), serde_json::json!({}), serde_json::json!([1])] {
            assert!(content(bad).unwrap_err().to_string().contains("content"));
        }
    }
}
