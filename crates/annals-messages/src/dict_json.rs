//! Dictionary forms read from JSON text without values in between: a stored chat is mostly messages of four classes
//! whose fields have the types they ought to have.
//!
//! *Absent:* the rules of the constructors; fields that need them are read as
//! [`messages_from_dict`](super::messages_from_dict) reads it.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::dict::{from_dict, messages_from_dict};
use super::text::JsonItems;
use super::tool::{list, maybe_string};
use super::{Ai, Content, Message, MessageClass, MessageError, Role, Tool, Usage};
use annals_base::CodecError;
use annals_base::{Map, Value};

/// Reads the text of a JSON list of dictionary forms: what [`messages_from_dict`](super::messages_from_dict) reads of
/// the parsed list, several times as fast. JSON as Python writes it is read, `NaN` and integers of any length included.
///
/// # Errors
/// [`MessageError`] with the path of the fault, `[3].data.content`; [`MessageError::Codec`] if the text is not a JSON
/// list.
///
/// # Example
/// ```
/// use annals_messages::{Message, messages_from_json};
///
/// let text = br#"[{"type": "human", "data": {"content": "hi"}}]"#;
/// assert_eq!(messages_from_json(text)?, [Message::human("hi")]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn messages_from_json(text: &[u8]) -> Result<Vec<Message>, MessageError> {
    // All of it: members that are ignored are not looked at.
    let text = str::from_utf8(text).map_err(|error| no_list(&error))?;
    if has_long_integer(text.as_bytes()) {
        return from_items(text).unwrap_or_else(|| read(text));
    }
    let read = read(text);
    match read {
        // Python's numbers are refused by strict readers of JSON.
        Err(MessageError::Codec { .. }) => from_items(text).unwrap_or(read),
        read => read,
    }
}

/// Returns whether there may be an integer that does not fit into 64 bits, which would be read as a float. Of so many
/// digits in a row, one is always among every so many bytes.
fn has_long_integer(text: &[u8]) -> bool {
    const DIGITS: usize = 19;
    let digits = |range: &[u8]| range.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let back = |range: &[u8]| range.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let mut probes = (DIGITS - 1..text.len()).step_by(DIGITS).filter(|at| text[*at].is_ascii_digit());
    probes.any(|at| digits(&text[at..]) + back(&text[..at]) >= DIGITS)
}

/// Reads the list item by item, as Python reads JSON; `None` if Python refuses it too.
fn from_items(text: &str) -> Option<Result<Vec<Message>, MessageError>> {
    let items = JsonItems::new(text.as_bytes()).collect::<Result<Vec<Value>, _>>().ok()?;
    let is_list = text.trim_ascii_start().starts_with('[');
    is_list.then(|| messages_from_dict(items))
}

fn no_list(error: &dyn std::error::Error) -> MessageError {
    CodecError::Decode { expected: "list of messages", reason: error.to_string() }.into()
}

fn read(text: &str) -> Result<Vec<Message>, MessageError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let mut failed = None;
    let read = json.deserialize_seq(Dicts { failed: &mut failed }).and_then(|messages| json.end().map(|()| messages));
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Ok(messages)) => Ok(messages),
        (None, Err(error)) => Err(no_list(&error)),
    }
}

struct Dicts<'a> {
    /// Why the reading was ended.
    failed: &'a mut Option<MessageError>,
}

impl<'de> Visitor<'de> for Dicts<'_> {
    type Value = Vec<Message>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Message>, A::Error> {
        let (mut messages, mut dict) = (Vec::new(), Dict::default());
        while seq.next_element_seed(DictSeed(&mut dict))?.is_some() {
            match dict.take_message() {
                Ok(message) => messages.push(message),
                Err(error) => {
                    *self.failed = Some(error.within(format_args!("[{}]", messages.len())));
                    return Err(de::Error::custom("ended"));
                }
            }
        }
        Ok(messages)
    }
}

/// One item of the list: its type and its fields. Other members are ignored. Its memory serves all items.
#[derive(Default)]
struct Dict {
    kind: Option<TypeMember>,
    fields: MessageFields,
    has_fields: bool,
}

struct DictSeed<'a>(&'a mut Dict);

impl<'de> DeserializeSeed<'de> for DictSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DictSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let dict = self.0;
        (dict.kind, dict.has_fields) = (None, false);
        while let Some(name) = map.next_key_seed(NameSeed { names: &["type", "data"], likely: 0 })? {
            match name {
                Name::Known(0) => dict.kind = Some(map.next_value_seed(TypeSeed)?),
                Name::Known(_) => {
                    map.next_value_seed(FieldsSeed(&mut dict.fields))?;
                    dict.has_fields = true;
                }
                Name::Other(_) => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// The `type` of a message.
#[derive(Clone)]
enum TypeMember {
    /// The kind of a class.
    Class(MessageClass),
    Other(Value),
}

impl TypeMember {
    fn class(&self) -> Option<MessageClass> {
        match self {
            Self::Class(class) => Some(*class),
            Self::Other(_) => None,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Class(class) => class.kind().into(),
            Self::Other(value) => value,
        }
    }
}

/// Reads a `type` without a copy of its text.
struct TypeSeed;

impl<'de> DeserializeSeed<'de> for TypeSeed {
    type Value = TypeMember;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TypeMember, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TypeSeed {
    type Value = TypeMember;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<TypeMember, E> {
        Ok(MessageClass::of_kind(text).map_or_else(|| TypeMember::Other(text.into()), TypeMember::Class))
    }

    fn visit_unit<E>(self) -> Result<TypeMember, E> {
        Ok(TypeMember::Other(Value::Null))
    }

    fn visit_bool<E>(self, b: bool) -> Result<TypeMember, E> {
        Ok(TypeMember::Other(b.into()))
    }

    fn visit_i64<E>(self, n: i64) -> Result<TypeMember, E> {
        Ok(TypeMember::Other(n.into()))
    }

    fn visit_u64<E>(self, n: u64) -> Result<TypeMember, E> {
        Ok(TypeMember::Other(n.into()))
    }

    fn visit_f64<E>(self, x: f64) -> Result<TypeMember, E> {
        Ok(TypeMember::Other(x.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<TypeMember, A::Error> {
        Value::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(TypeMember::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TypeMember, A::Error> {
        Value::deserialize(de::value::MapAccessDeserializer::new(map)).map(TypeMember::Other)
    }
}

/// The fields that have a slot, in the order in which a dump has them.
const NAMES: [&str; 13] = [
    "content",
    "additional_kwargs",
    "response_metadata",
    "type",
    "name",
    "id",
    "tool_calls",
    "invalid_tool_calls",
    "usage_metadata",
    "tool_call_id",
    "artifact",
    "status",
    "role",
];

const CONTENT: usize = place("content");
const ADDITIONAL_KWARGS: usize = place("additional_kwargs");
const RESPONSE_METADATA: usize = place("response_metadata");
const TYPE: usize = place("type");
const NAME: usize = place("name");
const ID: usize = place("id");
const TOOL_CALLS: usize = place("tool_calls");
const INVALID_TOOL_CALLS: usize = place("invalid_tool_calls");
const USAGE_METADATA: usize = place("usage_metadata");
const TOOL_CALL_ID: usize = place("tool_call_id");
const ARTIFACT: usize = place("artifact");
const STATUS: usize = place("status");

/// Returns the place of a name in [`NAMES`], before the program runs.
const fn place(name: &str) -> usize {
    let mut at = 0;
    while !are_same(NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn are_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The name of a member.
enum Name {
    /// Its place among the known ones.
    Known(usize),
    Other(String),
}

/// Reads the name of a member without a copy, if it is known.
struct NameSeed<'a> {
    names: &'a [&'static str],
    /// The place of the name that most likely comes next.
    likely: usize,
}

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Name, E> {
        if self.names.get(self.likely) == Some(&name) {
            return Ok(Name::Known(self.likely));
        }
        let known = self.names.iter().position(|known| *known == name);
        Ok(known.map_or_else(|| Name::Other(name.to_owned()), Name::Known))
    }
}

/// The fields of a message, as they came.
#[derive(Default)]
struct MessageFields {
    members: Vec<(Name, Value)>,
    /// The value of the member `type`, which is null among the members.
    kind: Option<TypeMember>,
}

struct FieldsSeed<'a>(&'a mut MessageFields);

impl<'de> DeserializeSeed<'de> for FieldsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.0;
        fields.members.clear();
        fields.kind = None;
        let mut likely = 0;
        while let Some(name) = map.next_key_seed(NameSeed { names: &NAMES, likely })? {
            let value = match name {
                Name::Known(TYPE) => {
                    fields.kind = Some(map.next_value_seed(TypeSeed)?);
                    Value::Null
                }
                _ => map.next_value()?,
            };
            likely = if let Name::Known(at) = name { at + 1 } else { likely };
            fields.members.push((name, value));
        }
        Ok(())
    }
}

impl Dict {
    /// Makes a message of the members that were read, and empties them.
    fn take_message(&mut self) -> Result<Message, MessageError> {
        let (kind, fields) = (self.kind.take(), self.has_fields.then_some(&mut self.fields));
        match (kind.as_ref().and_then(TypeMember::class), fields) {
            (Some(class), Some(fields)) if fields.are_plain(class) => {
                fields.take_message(class).map_err(|e| e.within("data"))
            }
            (_, fields) => {
                let members =
                    [("type", kind.map(TypeMember::into_value)), ("data", fields.map(MessageFields::take_value))];
                let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
                from_dict(Value::Map(present.collect()))
            }
        }
    }
}

impl MessageFields {
    /// Returns whether the fields are those of the class, with the types that they are held in, so that none of the
    /// rules of its constructor has anything to do.
    fn are_plain(&self, class: MessageClass) -> bool {
        use MessageClass::{Ai, Human, System, Tool};
        let has = |place: usize| self.members.iter().any(|(known, _)| matches!(known, Name::Known(at) if *at == place));
        let is_whole = matches!(class, Human | System | Ai | Tool);
        let is_text_or_object = |item: &Value| matches!(item, Value::Str(_) | Value::Map(_));
        let is_plain = |(name, value): &(Name, Value)| match (name, value) {
            (Name::Other(name), _) => name != "content_blocks",
            (Name::Known(CONTENT), Value::List(items)) => items.iter().all(is_text_or_object),
            (Name::Known(CONTENT), Value::Str(_)) | (Name::Known(RESPONSE_METADATA), Value::Map(_)) => true,
            (Name::Known(ADDITIONAL_KWARGS), Value::Map(map)) => class != Ai || !map.contains_key("tool_calls"),
            (Name::Known(TYPE), _) => self.kind.as_ref().and_then(TypeMember::class) == Some(class),
            (Name::Known(NAME | ID), Value::Null | Value::Str(_)) => true,
            (Name::Known(TOOL_CALLS | INVALID_TOOL_CALLS), Value::List(_)) => class == Ai,
            (Name::Known(USAGE_METADATA), _) => class == Ai,
            (Name::Known(TOOL_CALL_ID | STATUS), Value::Str(_)) | (Name::Known(ARTIFACT), _) => class == Tool,
            _ => false,
        };
        is_whole && has(CONTENT) && (class != Tool || has(TOOL_CALL_ID)) && self.members.iter().all(is_plain)
    }

    /// Makes a message of plain fields.
    fn take_message(&mut self, class: MessageClass) -> Result<Message, MessageError> {
        debug_assert!(self.are_plain(class), "the fields are plain before they are taken");
        let mut slots: [Option<Value>; NAMES.len()] = Default::default();
        let mut message = Message::human("");
        for (name, value) in self.members.drain(..) {
            match name {
                Name::Known(at) => slots[at] = Some(value),
                Name::Other(name) => _ = message.extra.insert(name, value),
            }
        }
        let [content, kwargs, metadata, _, name, id, calls, invalid, usage, call_id, artifact, status, _] = slots;
        let text = |name, value: Option<Value>| maybe_string(name, value.unwrap_or_default());
        let map = |value| if let Some(Value::Map(map)) = value { map } else { Map::new() };
        message.content = content.map(Content::try_from).transpose()?.unwrap_or_default();
        message.name = text("name", name)?;
        message.id = text("id", id)?;
        message.additional_kwargs = map(kwargs);
        message.response_metadata = map(metadata);
        message.role = match class {
            MessageClass::System => Role::System,
            MessageClass::Ai => {
                let tool_calls = calls.map(|calls| list("tool_calls", calls)).transpose()?.unwrap_or_default();
                let invalid = invalid.map(|calls| list("invalid_tool_calls", calls)).transpose()?;
                let usage = usage.filter(|usage| !usage.is_null()).map(Usage::try_from).transpose()?;
                let invalid_tool_calls = invalid.unwrap_or_default();
                Ai { tool_calls, invalid_tool_calls, usage: usage.map(Box::new) }.into()
            }
            MessageClass::Tool => {
                let mut tool = Tool::new(text("tool_call_id", call_id)?.unwrap_or_default());
                tool.artifact = artifact.unwrap_or_default();
                tool.status = status.map(TryInto::try_into).transpose()?.unwrap_or_default();
                tool.into()
            }
            _ => Role::Human,
        };
        debug_assert_eq!(message.class(), Some(class), "the message is of its class after it was made");
        debug_assert!(self.members.is_empty(), "no field is left for the next message");
        Ok(message)
    }

    fn take_value(&mut self) -> Value {
        let kind = self.kind.take().map(TypeMember::into_value);
        let named = self.members.drain(..).map(|(name, value)| match name {
            Name::Known(TYPE) => (NAMES[TYPE].to_owned(), kind.clone().unwrap_or_default()),
            Name::Known(at) => (NAMES[at].to_owned(), value),
            Name::Other(name) => (name, value),
        });
        Value::Map(named.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::json_loads;
    use crate::{ToolCall, messages_to_dict};

    fn text(messages: &[Message]) -> Vec<u8> {
        let dicts = Value::List(messages_to_dict(messages));
        serde_json::to_vec(&dicts.to_json()).unwrap()
    }

    #[test]
    fn a_text_that_is_no_text_is_refused_wherever_that_is() {
        let before = br#"[{"type": "human", "data": {"content": "a"}, "ignored": ""#;
        let text = [&before[..], b"\xff\"}]"].concat();
        let error = messages_from_json(&text).unwrap_err();
        assert!(matches!(&error, MessageError::Codec { .. }) && error.to_string().contains("utf-8"), "{error}");
        assert_eq!(messages_from_json(&[&before[..], b"\"}]"].concat()).unwrap(), [Message::human("a")]);
    }

    #[test]
    fn every_class_is_read_as_it_was_written() {
        let mut odd = Message::human("h").with_id("1");
        odd.extra.insert("mine".into(), 1.into());
        let call = Message::ai("").with_tool_call(ToolCall::new("f", [("a", 1)])).with_usage(Usage::new(1, 2));
        let all = [
            odd,
            call.clone(),
            call.into_chunk(),
            Message::system("s"),
            Message::tool("t", "c").with_name("f"),
            Message::function("f", "g"),
            Message::chat("c", "critic"),
            Message::remove("1"),
        ];
        let read = messages_from_json(&text(&all)).unwrap();
        assert_eq!((&read[..2], &read[3..]), (&all[..2], &all[3..]));
        assert_eq!(read[2].tool_calls(), all[1].tool_calls());
    }

    #[test]
    fn numbers_of_python_are_kept() {
        for number in
            ["36893488147419103232", "-9223372036854775809", "NaN", "-Infinity", "1e400", "18446744073709551615"]
        {
            let text =
                format!(r#"[{{"type": "human", "data": {{"content": "a", "additional_kwargs": {{"n": {number}}}}}}}]"#);
            let [message] = &messages_from_json(text.as_bytes()).unwrap()[..] else { panic!("one message") };
            assert_eq!(message.additional_kwargs["n"], json_loads(number, true).unwrap(), "{number}");
        }
        for at in 0..40 {
            let before = "-".repeat(at);
            assert!(has_long_integer(format!("{before}{}", "1".repeat(19)).as_bytes()), "{at}");
            assert!(!has_long_integer(format!("{before}{} 1", "1".repeat(18)).as_bytes()), "{at}");
        }
    }

    #[test]
    fn a_type_is_read_as_the_parsed_list_is() {
        for kind in ["null", "true", "-1", "5", "1.5", "[\"ai\"]", "{\"a\": [1]}", "\"critic\"", "\"human\"", "\"ai\""]
        {
            for text in [
                format!(r#"[{{"type": {kind}, "data": {{"content": "a"}}}}]"#),
                format!(r#"[{{"data": {{"content": "a", "type": {kind}}}, "type": "human"}}]"#),
                format!(
                    r#"[{{"type": "human", "data": {{"type": "human", "type": {kind}, "content": "a", "x": 1}}}}]"#
                ),
            ] {
                let parsed = serde_json::from_str::<Vec<Value>>(&text).unwrap();
                let (read, expected) = (messages_from_json(text.as_bytes()), messages_from_dict(parsed));
                assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{text}");
            }
        }
    }

    #[test]
    fn errors_have_a_path_or_a_line() {
        let error = |text: &str| messages_from_json(text.as_bytes()).unwrap_err().to_string();
        let good = r#"{"type": "human", "data": {"content": "a"}}"#;
        let bad = r#"{"type": "human", "data": {"content": [5]}}"#;
        assert_eq!(error(&format!("[{good}, {bad}]")), "[1].data.content[0]: expected a text or an object, found 5");
        assert_eq!(error("[5]"), "[0]: expected an object, found 5");
        assert!(error("{").contains("line 1") && error("[] 1").contains("line 1"));
        assert!(error(r#"[{"type": "critic", "data": {}}]"#).contains("critic"));
    }
}
