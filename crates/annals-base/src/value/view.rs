//! Borrowed values: the tree of a record whose texts and maps stay where they are.
//!
//! Invariant: a type that has a view is serialized by one function for all formats. *Absent:* reading.

use serde::{Serialize, Serializer};

use super::Value;
use crate::{CodecError, Encoded, Map};

/// A borrowed [`Value`]: a record written without a copy of its texts and maps, and without code for each format.
///
/// # Example: a record of two fields
/// ```
/// use annals_base::{Value, ValueView};
///
/// let name = String::from("weather");
/// let view = ValueView::Fields(vec![("name", name.as_str().into()), ("id", None::<&str>.into())]);
/// assert_eq!(view.to_value().to_json(), serde_json::json!({"name": "weather", "id": null}));
/// assert_eq!(serde_json::to_string(&view)?, r#"{"name":"weather","id":null}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum ValueView<'a> {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A text.
    Str(&'a str),
    /// A whole value.
    Value(&'a Value),
    /// An object.
    Map(&'a Map),
    /// A list of whole values.
    Values(&'a [Value]),
    /// A list.
    List(Vec<ValueView<'a>>),
    /// An object, by its members in order.
    Fields(Vec<(&'a str, ValueView<'a>)>),
}

impl ValueView<'_> {
    /// Returns an owned copy. Of two members with one name the later value stays, in the place of the first.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::Int(*n),
            Self::Str(text) => Value::from(*text),
            Self::Value(value) => (*value).clone(),
            Self::Map(map) => Value::Map((*map).clone()),
            Self::Values(items) => Value::List(items.to_vec()),
            Self::List(items) => Value::List(items.iter().map(Self::to_value).collect()),
            Self::Fields(fields) => {
                let mut map = Map::with_capacity(fields.len());
                map.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_value())));
                Value::Map(map)
            }
        }
    }

    /// Encodes the value as MessagePack with names.
    ///
    /// # Errors
    /// As [`Encoded::encode`].
    pub fn encode(&self) -> Result<Encoded, CodecError> {
        Encoded::encode_view(self)
    }
}

impl Serialize for ValueView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(b) => serializer.serialize_bool(*b),
            Self::Int(n) => serializer.serialize_i64(*n),
            Self::Str(text) => serializer.serialize_str(text),
            Self::Value(value) => value.serialize(serializer),
            Self::Map(map) => map.serialize(serializer),
            Self::Values(items) => items.serialize(serializer),
            Self::List(items) => items.serialize(serializer),
            Self::Fields(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}

impl<'a> From<&'a str> for ValueView<'a> {
    fn from(text: &'a str) -> Self {
        Self::Str(text)
    }
}

impl<'a> From<&'a String> for ValueView<'a> {
    fn from(text: &'a String) -> Self {
        Self::Str(text)
    }
}

impl<'a> From<&'a Value> for ValueView<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<&'a Map> for ValueView<'a> {
    fn from(map: &'a Map) -> Self {
        Self::Map(map)
    }
}

impl From<i64> for ValueView<'_> {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl From<bool> for ValueView<'_> {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl<'a, T: Into<ValueView<'a>>> From<Option<T>> for ValueView<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a> FromIterator<ValueView<'a>> for ValueView<'a> {
    fn from_iter<I: IntoIterator<Item = ValueView<'a>>>(items: I) -> Self {
        Self::List(items.into_iter().collect())
    }
}
