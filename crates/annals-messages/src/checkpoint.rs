//! Messages as LangGraph's checkpoints hold them: a MessagePack extension that names the class and holds its fields.
//!
//! *Absent:* the other extensions; they stay extensions ([`Value::Ext`]).

use super::envelope::{plain_list, plain_map};
use super::{Message, MessageClass, MessageError, MessageLike};
use annals_base::{Codec, Encoded, Value, ValueView, decode_value};

/// The extension for objects that are made of their fields.
const MODEL: i8 = 5;
/// The package whose modules define the messages.
const PACKAGE: &str = "langchain_core.messages.";
/// How LangGraph makes the object again.
const METHOD: &str = "model_validate_json";

/// A value as LangGraph's serializer writes it: the pair of `dumps_typed`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedBytes {
    /// How to read the bytes: `null`, `bytes` or `msgpack`.
    pub kind: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Writes a value, and the messages in it, as LangGraph's serializer does.
///
/// # Errors
/// [`MessageError`] if it is longer than a stored value may be, or has an integer of more than 64 bits, which LangGraph
/// does not write either.
///
/// # Example
/// ```
/// use annals_messages::{Message, MessageLike, checkpoint_dumps, checkpoint_loads};
///
/// let state = MessageLike::from(vec![Message::human("hi"), Message::ai("hello")]);
/// let typed = checkpoint_dumps(&state)?;
/// assert_eq!((typed.kind, checkpoint_loads(typed.kind, &typed.bytes)?), ("msgpack", state));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn checkpoint_dumps(like: &MessageLike) -> Result<TypedBytes, MessageError> {
    Ok(match like {
        MessageLike::Value(Value::Null) => TypedBytes { kind: "null", bytes: Vec::new() },
        MessageLike::Value(Value::Bytes(bytes)) => TypedBytes { kind: "bytes", bytes: bytes.clone() },
        like => TypedBytes { kind: "msgpack", bytes: Encoded::encode(&to_value(like)?)?.bytes },
    })
}

/// Reads the bytes of [`checkpoint_dumps`] or of LangGraph's serializer. An object that is not a message, or whose
/// fields make none, stays an extension ([`Value::Ext`]) and is written again as it was, where LangGraph would build it
/// unchecked. Of a class that there is not among the messages only the fields are read, as in LangGraph.
///
/// # Errors
/// [`MessageError`] if the kind is unknown or the bytes are not one whole value.
pub fn checkpoint_loads(kind: &str, bytes: &[u8]) -> Result<MessageLike, MessageError> {
    match kind {
        "null" => Ok(MessageLike::Value(Value::Null)),
        "bytes" => Ok(MessageLike::Value(Value::Bytes(bytes.to_vec()))),
        "msgpack" => Ok(from_value(decode_value(Codec::MsgPack, bytes)?)),
        other => Err(MessageError::value(format!("Unknown serialization type: {other}"))),
    }
}

impl Message {
    /// Returns the MessagePack extension that stands for the message in LangGraph's checkpoints.
    ///
    /// # Errors
    /// [`MessageError`] as [`checkpoint_dumps`].
    pub fn to_ext(&self) -> Result<Value, MessageError> {
        let fields = Value::Map(self.to_map());
        fits(&fields)?;
        let module = format!("{PACKAGE}{}", self.class().map_or("base", MessageClass::module));
        let model: [ValueView<'_>; 4] =
            [module.as_str().into(), self.class_name().into(), (&fields).into(), METHOD.into()];
        Ok(Value::Ext(MODEL, ValueView::List(model.into()).encode()?.bytes))
    }
}

fn to_value(like: &MessageLike) -> Result<Value, MessageError> {
    let all = |items: &[MessageLike]| items.iter().map(to_value).collect::<Result<_, _>>().map(Value::List);
    match like {
        MessageLike::Message(message) => message.to_ext(),
        MessageLike::Value(value) => fits(value).map(|()| value.clone()),
        MessageLike::List(items) | MessageLike::Tuple(items) => all(items),
        MessageLike::Map(map) => {
            let members = map.iter().map(|(name, like)| Ok((name.clone(), to_value(like)?)));
            members.collect::<Result<_, MessageError>>().map(Value::Map)
        }
    }
}

fn fits(value: &Value) -> Result<(), MessageError> {
    match value.has_big_integer() {
        true => Err(MessageError::wrong_type("Integer exceeds 64-bit range")),
        false => Ok(()),
    }
}

fn from_value(value: Value) -> MessageLike {
    match value {
        Value::Ext(MODEL, bytes) => model(&bytes).unwrap_or(MessageLike::Value(Value::Ext(MODEL, bytes))),
        Value::List(items) => plain_list(items.into_iter().map(from_value).collect()),
        Value::Map(map) => plain_map(map.into_iter().map(|(name, value)| (name, from_value(value))).collect()),
        other => MessageLike::Value(other),
    }
}

/// Reads the array in the extension; none if it is not that of a message.
fn model(bytes: &[u8]) -> Option<MessageLike> {
    let Ok(Value::List(parts)) = decode_value(Codec::MsgPack, bytes) else { return None };
    let [Value::Str(module), Value::Str(name), Value::Map(fields), ..] = <[Value; 4]>::try_from(parts).ok()? else {
        return None;
    };
    let module = module.strip_prefix(PACKAGE)?;
    match MessageClass::of_name(&name).filter(|class| class.module() == module) {
        Some(class) => class.construct(fields).ok().map(MessageLike::from),
        None => Some(MessageLike::Value(Value::Map(fields))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(module: &str, class: &str, fields: serde_json::Value) -> (MessageLike, bool) {
        let parts: Vec<Value> = vec![module.into(), class.into(), fields.into(), METHOD.into()];
        let object = Value::Ext(MODEL, Encoded::encode(&Value::List(parts)).unwrap().bytes);
        let stored = Encoded::encode(&Value::List(vec![object])).unwrap().bytes;
        let like = checkpoint_loads("msgpack", &stored).unwrap();
        let same = checkpoint_dumps(&like).unwrap().bytes == stored;
        (like, same)
    }

    #[test]
    fn an_object_that_makes_no_message_is_kept_as_it_is() {
        for (module, class, fields) in [
            ("langchain_core.messages.ai", "AIMessage", serde_json::json!({"content": 5, "x": 1})),
            ("langchain_core.messages.tool", "ToolMessage", serde_json::json!({"content": "no call"})),
            ("langchain_core.documents.base", "Document", serde_json::json!({"page_content": "hi"})),
        ] {
            let (like, same) = loaded(module, class, fields);
            let MessageLike::Value(Value::List(items)) = like else { panic!("{class}") };
            assert!(same && matches!(items[..], [Value::Ext(MODEL, _)]), "{class}");
        }
        let fields = serde_json::json!({"content": "hi"});
        let (like, _) = loaded("langchain_core.messages.ai", "NoMessage", fields.clone());
        assert_eq!(like, MessageLike::Value(Value::List(vec![fields.into()])), "a class that there is not");
    }

    #[test]
    fn an_integer_that_langgraph_does_not_write_is_refused() {
        let large = Value::from_digits("18446744073709551616").unwrap();
        let mut message = Message::human("hi");
        message.additional_kwargs.insert("n".into(), vec![large.clone()].into());
        for like in [MessageLike::from(vec![message]), MessageLike::Value(large)] {
            let error = checkpoint_dumps(&like).unwrap_err();
            assert_eq!(
                (error.class().as_str(), error.to_string().as_str()),
                ("TypeError", "Integer exceeds 64-bit range")
            );
        }
    }
}
