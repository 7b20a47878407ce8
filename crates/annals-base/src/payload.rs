//! The stored format of values that move between the floors: bytes, and the index fields of an item.

use std::sync::Arc;

use super::list_delta::ListDelta;
use super::value::Codec;

/// The value of a write. A backend stores every variant, so that a further one is a break of its interface.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteValue {
    /// Null, as the writes to triggers have it.
    Null,
    /// One value.
    One(Payload),
    /// A list of items for a list channel.
    Items(Vec<Payload>),
    /// A list of items that is mostly stored already.
    Delta(Box<ListDelta>),
}

impl WriteValue {
    /// Returns the values that the write brings, by their parts: of a list its items, of a delta those that are new.
    pub fn payloads(&self) -> &[Payload] {
        match self {
            Self::Null => &[],
            Self::One(payload) => std::slice::from_ref(payload),
            Self::Items(items) => items,
            Self::Delta(delta) => &delta.items,
        }
    }
}

/// The bytes of a value, with what plain SQL tools can read of it.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Payload {
    /// How to read `data`.
    pub codec: Codec,
    /// The encoded value; of an item with an index, the fields that the index does not hold.
    pub data: Vec<u8>,
    /// The searchable fields of an item of a list.
    pub index: Option<Box<ItemIndex>>,
}

/// [`Payload`], borrowed from where it was read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PayloadRef<'a> {
    /// How to read `data`.
    pub codec: Codec,
    /// The encoded value; of an item with an index, the fields that the index does not hold.
    pub data: &'a [u8],
    /// The searchable fields of the item.
    pub index: Option<ItemIndexRef<'a>>,
}

/// The searchable fields of an item. The store does not interpret them: a message fills them on a floor above.
///
/// # Example: an item with an id and a text
/// ```
/// use annals_base::{ItemIndex, Payload};
///
/// let mut index = ItemIndex::default();
/// index.id = Some("m1".into());
/// index.text = Some("hello".into());
/// let item = Payload::new(vec![0x80]).with_index(index);
/// assert_eq!(item.len(), 6);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ItemIndex {
    /// The id by which the item is merged (a message id).
    pub id: Option<Arc<str>>,
    /// The type (`human`, `ai`, `tool`, ...).
    pub kind: Option<Arc<str>>,
    /// The name of who speaks.
    pub name: Option<Arc<str>>,
    /// The ids of the tool calls made or answered: the text of a JSON list.
    pub tool_calls: Option<String>,
    /// The text. It is stored here and only here.
    pub text: Option<String>,
    /// Tokens read, if known.
    pub input_tokens: Option<u32>,
    /// Tokens written, if known.
    pub output_tokens: Option<u32>,
}

/// [`ItemIndex`], borrowed from a row.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ItemIndexRef<'a> {
    /// The id by which the item is merged.
    pub id: Option<&'a str>,
    /// The type.
    pub kind: Option<&'a str>,
    /// The name of who speaks.
    pub name: Option<&'a str>,
    /// The ids of the tool calls: the text of a JSON list.
    pub tool_calls: Option<&'a str>,
    /// The text.
    pub text: Option<&'a str>,
    /// Tokens read, if known.
    pub input_tokens: Option<u32>,
    /// Tokens written, if known.
    pub output_tokens: Option<u32>,
}

impl<'a> PayloadRef<'a> {
    /// Returns the view of an encoded value; `index` is that of an item of a list.
    pub fn new(codec: Codec, data: &'a [u8], index: Option<ItemIndexRef<'a>>) -> Self {
        Self { codec, data, index }
    }

    /// Returns an owned copy.
    pub fn to_payload(&self) -> Payload {
        Payload {
            codec: self.codec,
            data: self.data.to_vec(),
            index: self.index.map(|index| Box::new(index.to_owned())),
        }
    }
}

impl ItemIndexRef<'_> {
    /// Returns an owned copy.
    pub fn to_owned(&self) -> ItemIndex {
        ItemIndex {
            id: self.id.map(Into::into),
            kind: self.kind.map(Into::into),
            name: self.name.map(Into::into),
            tool_calls: self.tool_calls.map(Into::into),
            text: self.text.map(Into::into),
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }
}

impl ItemIndex {
    /// Returns a borrowed view.
    pub fn as_ref(&self) -> ItemIndexRef<'_> {
        ItemIndexRef {
            id: self.id.as_deref(),
            kind: self.kind.as_deref(),
            name: self.name.as_deref(),
            tool_calls: self.tool_calls.as_deref(),
            text: self.text.as_deref(),
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }
}

impl From<super::value::Encoded> for Payload {
    fn from(encoded: super::value::Encoded) -> Self {
        Self { codec: encoded.codec, data: encoded.bytes, index: None }
    }
}

impl Payload {
    /// Returns the payload of a value that is encoded as [`Codec::MsgPack`], without an index.
    pub fn new(data: Vec<u8>) -> Self {
        Self { codec: Codec::MsgPack, data, index: None }
    }

    /// Sets the format of the bytes.
    #[must_use]
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Sets the searchable fields.
    #[must_use]
    pub fn with_index(mut self, index: ItemIndex) -> Self {
        self.index = Some(Box::new(index));
        self
    }

    /// Returns a borrowed view.
    pub fn as_ref(&self) -> PayloadRef<'_> {
        PayloadRef { codec: self.codec, data: &self.data, index: self.index.as_deref().map(ItemIndex::as_ref) }
    }

    /// Returns the bytes this payload holds: data and text.
    pub fn len(&self) -> usize {
        self.data.len() + self.index.as_ref().and_then(|i| i.text.as_ref()).map_or(0, String::len)
    }

    /// Returns whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
