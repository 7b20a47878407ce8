//! The encoding of the message vectors: plain JSON, and objects with one tagged member for types that JSON lacks.

use annals::base::{Map, Value};
use annals::message::{Message, MessageError, MessageLike, message_to_dict, messages_from_dict};
use serde_json::{Value as Json, json};

/// A decoded value of a vector.
#[derive(Clone, Debug)]
pub(crate) enum VectorValue {
    /// A value without tags.
    Value(Value),
    /// `$msg`
    Message(Box<Message>),
    /// A list that contains a tag.
    List(Vec<VectorValue>),
    /// `$tuple`
    Tuple(Vec<VectorValue>),
    /// An object that contains a tag.
    Map(Vec<(String, VectorValue)>),
    /// `$overwrite`
    Overwrite(Box<VectorValue>),
    /// `$prompt`: its messages.
    Prompt(Vec<VectorValue>),
    /// `$type`, `$counter`, `$splitter`: a name, with the tag.
    Named(#[allow(dead_code)] &'static str, String),
    /// `$tool`
    Tool(Value),
}

impl VectorValue {
    /// Decodes a value.
    pub(crate) fn decode(json: &Json) -> Result<Self, MessageError> {
        match json {
            Json::Array(items) => Ok(collapse(decode_all(items)?)),
            Json::Object(map) => {
                if let (1, Some((tag, inner))) = (map.len(), map.iter().next())
                    && let Some(tagged) = tagged(tag, inner)?
                {
                    return Ok(tagged);
                }
                let members = map.iter().map(|(name, json)| Ok((name.clone(), Self::decode(json)?)));
                let members = members.collect::<Result<Vec<_>, MessageError>>()?;
                let plain = members.iter().map(|(name, data)| match data {
                    Self::Value(value) => Some((name.clone(), value.clone())),
                    _ => None,
                });
                Ok(plain.collect::<Option<Map>>().map_or_else(|| Self::Map(members), |map| Self::Value(map.into())))
            }
            plain => Ok(Self::Value(Value::from(plain.clone()))),
        }
    }

    /// Returns the value; tuples are lists, messages are flat dictionaries.
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Value(value) | Self::Tool(value) => value.clone(),
            Self::Message(message) => message.to_map().into(),
            Self::List(items) | Self::Tuple(items) | Self::Prompt(items) => {
                Value::List(items.iter().map(Self::value).collect())
            }
            Self::Map(members) => Value::Map(members.iter().map(|(k, v)| (k.clone(), v.value())).collect()),
            Self::Overwrite(inner) => inner.value(),
            Self::Named(_, name) => Value::from(name.as_str()),
        }
    }

    /// Returns the items of a list, a tuple or a prompt.
    pub(crate) fn items(&self) -> Option<Vec<VectorValue>> {
        match self {
            Self::Value(Value::List(items)) => Some(items.iter().cloned().map(Self::Value).collect()),
            Self::List(items) | Self::Tuple(items) | Self::Prompt(items) => Some(items.clone()),
            _ => None,
        }
    }

    /// Returns a member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<VectorValue> {
        match self {
            Self::Value(value) => value.get(name).cloned().map(Self::Value),
            Self::Map(members) => members.iter().find(|(member, _)| member == name).map(|(_, data)| data.clone()),
            _ => None,
        }
    }

    /// Returns the argument that it represents.
    pub(crate) fn like(self) -> MessageLike {
        match self {
            Self::Value(value) | Self::Tool(value) => value.into(),
            Self::Message(message) => MessageLike::Message(message),
            Self::List(items) | Self::Prompt(items) => MessageLike::List(likes(items)),
            Self::Tuple(items) => MessageLike::Tuple(likes(items)),
            Self::Map(members) => MessageLike::Map(members.into_iter().map(|(k, v)| (k, v.like())).collect()),
            Self::Overwrite(inner) => inner.like(),
            Self::Named(_, name) => name.into(),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Value(Value::Null))
    }

    /// Encodes the value.
    pub(crate) fn encode(&self) -> Json {
        match self {
            Self::Value(value) | Self::Tool(value) => value.to_json(),
            Self::Message(message) => encode_message(message),
            Self::List(items) | Self::Prompt(items) => items.iter().map(Self::encode).collect(),
            Self::Tuple(items) => json!({"$tuple": items.iter().map(Self::encode).collect::<Vec<_>>()}),
            Self::Map(members) => Json::Object(members.iter().map(|(k, v)| (k.clone(), v.encode())).collect()),
            Self::Overwrite(inner) => json!({"$overwrite": inner.encode()}),
            Self::Named(tag, name) => Json::Object([((*tag).to_owned(), json!(name))].into_iter().collect()),
        }
    }
}

fn likes(items: Vec<VectorValue>) -> Vec<MessageLike> {
    items.into_iter().map(VectorValue::like).collect()
}

impl From<MessageLike> for VectorValue {
    fn from(like: MessageLike) -> Self {
        let all = |items: Vec<MessageLike>| items.into_iter().map(Self::from).collect();
        match like {
            MessageLike::Message(message) => Self::Message(message),
            MessageLike::Value(value) => Self::Value(value),
            MessageLike::List(items) => Self::List(all(items)),
            MessageLike::Tuple(items) => Self::Tuple(all(items)),
            MessageLike::Map(map) => Self::Map(map.into_iter().map(|(k, v)| (k, v.into())).collect()),
            other => Self::Value(other.into_value()),
        }
    }
}

fn decode_all(items: &[Json]) -> Result<Vec<VectorValue>, MessageError> {
    items.iter().map(VectorValue::decode).collect()
}

/// A list without tags is a plain value.
fn collapse(items: Vec<VectorValue>) -> VectorValue {
    let plain = items.iter().map(|item| match item {
        VectorValue::Value(value) => Some(value.clone()),
        _ => None,
    });
    plain
        .collect::<Option<Vec<_>>>()
        .map_or_else(|| VectorValue::List(items), |items| VectorValue::Value(Value::List(items)))
}

fn tagged(tag: &str, inner: &Json) -> Result<Option<VectorValue>, MessageError> {
    let text = || inner.as_str().unwrap_or_default().to_owned();
    let list = || inner.as_array().map_or(&[][..], Vec::as_slice);
    Ok(Some(match tag {
        "$msg" => {
            let mut messages = messages_from_dict([VectorValue::decode(inner)?.value()])?;
            VectorValue::Message(Box::new(messages.remove(0)))
        }
        "$tuple" => VectorValue::Tuple(decode_all(list())?),
        "$bytes" => VectorValue::Value(Value::Bytes(base64(&text()))),
        "$prompt" if inner["kind"] == "chat" => {
            VectorValue::Prompt(decode_all(inner["messages"].as_array().map_or(&[][..], Vec::as_slice))?)
        }
        "$prompt" => VectorValue::Prompt(vec![VectorValue::Message(Box::new(Message::human(
            inner["text"].as_str().unwrap_or_default(),
        )))]),
        "$overwrite" => VectorValue::Overwrite(Box::new(VectorValue::decode(inner)?)),
        "$type" => VectorValue::Named("$type", text()),
        "$counter" => VectorValue::Named("$counter", text()),
        "$splitter" => VectorValue::Named("$splitter", text()),
        "$tool" => VectorValue::Tool(Value::from(inner.clone())),
        "$int" => match Value::from_digits(&text()) {
            Some(integer) => VectorValue::Value(integer),
            None => return Ok(None),
        },
        "$float" => VectorValue::Value(Value::Float(match inner.as_str() {
            Some("inf") => f64::INFINITY,
            Some("-inf") => f64::NEG_INFINITY,
            _ => f64::NAN,
        })),
        _ => return Ok(None),
    }))
}

/// Encodes a message, with every field.
pub(crate) fn encode_message(message: &Message) -> Json {
    json!({"$msg": message_to_dict(message).to_json()})
}

/// Encodes messages.
pub(crate) fn encode_messages(messages: &[Message]) -> Json {
    messages.iter().map(encode_message).collect()
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in text.bytes().filter_map(digit) {
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_is_encoded_again() {
        for json in [
            json!([1, 1.0, {"a": [true, null]}]),
            json!([{"$tuple": ["ai", {"$bytes": "AP8H"}]}, {"$type": "HumanMessage"}]),
            json!({"$overwrite": {"a": {"$counter": "len"}}}),
        ] {
            assert_eq!(VectorValue::decode(&json).unwrap().encode(), json);
        }
        let message = json!({"$msg": {"type": "human", "data": {"content": "hi"}}});
        let VectorValue::Message(message) = VectorValue::decode(&message).unwrap() else { panic!("a message") };
        assert_eq!(message.text(), "hi");
    }
}
