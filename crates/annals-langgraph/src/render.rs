//! Values as plain JSON, for people and for comparison.
//!
//! Values of JSON stay as they are; any other is an object of one member whose name begins with `$`: `$bytes`
//! (base64), `$int` (beyond 2^53), `$float`, `$map` (pairs), `$set`, `$datetime`, `$pydantic` (module, class, fields),
//! `$ctor`, `$ctor_args` and `$ctor_kwargs` (module, class, arguments), ... Nothing in a value is executed. A value of
//! another tag is `{"$typed": [tag, base64]}`.

use annals_base::Value;
use annals_messages::{MessageLike, checkpoint_dumps, messages_from_dict};
use data_encoding::BASE64;
use serde_json::{Map as JsonMap, Value as Json, json};

use crate::blob::JSON;
use crate::typed::length;
use crate::{MSGPACK, SaverVersion, SeenVersions, StoredValue, Tuple, Typed, UpdatedChannels};

/// The depth of a value that is rendered; LangGraph's serializer writes no deeper one.
const DEPTH: usize = 200;
/// The greatest integer that every reader of JSON keeps.
const EXACT_INTEGER: u64 = (1 << 53) - 1;

impl Typed {
    /// Returns the value as JSON: what JSON lacks is an object with one member whose name begins with `$`.
    pub fn to_json(&self) -> Json {
        let plain = match &*self.tag {
            MSGPACK => rendered(&self.bytes, 0),
            "null" | "empty" => Some(Json::Null),
            "bytes" | "bytearray" => Some(bytes(&self.bytes)),
            JSON => serde_json::from_slice(&self.bytes).ok().map(revived),
            _ => None,
        };
        plain.unwrap_or_else(|| json!({ "$typed": [self.tag, BASE64.encode(&self.bytes)] }))
    }
}

impl StoredValue {
    /// Returns the value as JSON, as [`Typed::to_json`].
    pub fn to_json(&self) -> Json {
        match self {
            Self::Typed(value) => value.to_json(),
            Self::Items(items) => items.iter().map(|item| item.to_json()).collect(),
        }
    }
}

fn bytes(bytes: &[u8]) -> Json {
    json!({ "$bytes": BASE64.encode(bytes) })
}

/// Renders a value of MessagePack; `None` if it is damaged or too deep.
fn rendered(value: &[u8], depth: usize) -> Option<Json> {
    let (json, rest) = read(value, depth)?;
    rest.is_empty().then_some(json)
}

fn read(value: &[u8], depth: usize) -> Option<(Json, &[u8])> {
    let whole = length(value)?;
    let (value, after) = value.split_at_checked(whole)?;
    let (marker, rest) = value.split_first()?;
    let unsigned = |digits: &[u8]| digits.iter().fold(0_u64, |number, digit| number << 8 | u64::from(*digit));
    let signed = |digits: &[u8]| {
        let shift = 64 - 8 * digits.len() as u32;
        unsigned(digits).wrapping_shl(shift).cast_signed() >> shift
    };
    let json = match marker {
        0x00..=0x7f => json!(marker),
        0x80..=0x8f => map(usize::from(marker & 0x0f), rest, depth)?,
        0x90..=0x9f => list(usize::from(marker & 0x0f), rest, depth)?,
        0xa0..=0xbf => text(rest)?,
        0xc0 => Json::Null,
        0xc2 => json!(false),
        0xc3 => json!(true),
        0xc4 => bytes(&rest[1..]),
        0xc5 => bytes(&rest[2..]),
        0xc6 => bytes(&rest[4..]),
        0xc7 => extension(rest[1].cast_signed(), &rest[2..], depth)?,
        0xc8 => extension(rest[2].cast_signed(), &rest[3..], depth)?,
        0xc9 => extension(rest[4].cast_signed(), &rest[5..], depth)?,
        0xca => float(f64::from(f32::from_be_bytes(*rest.first_chunk()?))),
        0xcb => float(f64::from_be_bytes(*rest.first_chunk()?)),
        0xcc..=0xcf => integer(i128::from(unsigned(rest))),
        0xd0..=0xd3 => integer(i128::from(signed(rest))),
        0xd4..=0xd8 => extension(rest[0].cast_signed(), &rest[1..], depth)?,
        0xd9 => text(&rest[1..])?,
        0xda => text(&rest[2..])?,
        0xdb => text(&rest[4..])?,
        0xdc => list(unsigned(&rest[..2]) as usize, &rest[2..], depth)?,
        0xdd => list(unsigned(&rest[..4]) as usize, &rest[4..], depth)?,
        0xde => map(unsigned(&rest[..2]) as usize, &rest[2..], depth)?,
        0xdf => map(unsigned(&rest[..4]) as usize, &rest[4..], depth)?,
        0xe0..=0xff => json!(marker.cast_signed()),
        0xc1 => return None,
    };
    Some((json, after))
}

fn text(text: &[u8]) -> Option<Json> {
    std::str::from_utf8(text).ok().map(Json::from)
}

fn integer(number: i128) -> Json {
    match number.unsigned_abs() <= u128::from(EXACT_INTEGER) {
        true => json!(number as i64),
        false => json!({ "$int": number.to_string() }),
    }
}

fn float(number: f64) -> Json {
    match number {
        number if number.is_nan() => json!({ "$float": "nan" }),
        number if number.is_infinite() => json!({ "$float": if number > 0.0 { "inf" } else { "-inf" } }),
        number => json!(number),
    }
}

fn list(count: usize, mut rest: &[u8], depth: usize) -> Option<Json> {
    (depth < DEPTH).then_some(())?;
    let mut items = Vec::new();
    for _ in 0..count {
        let (item, after) = read(rest, depth + 1)?;
        items.push(item);
        rest = after;
    }
    Some(Json::Array(items))
}

fn map(count: usize, rest: &[u8], depth: usize) -> Option<Json> {
    let Json::Array(flat) = list(count.checked_mul(2)?, rest, depth)? else { return None };
    let is_plain = |name: &Json| name.as_str().is_some_and(|name| !name.starts_with('$'));
    if flat.iter().step_by(2).all(is_plain) {
        let pairs = flat.chunks_exact(2);
        return Some(pairs.map(|pair| (pair[0].as_str().unwrap_or_default().to_owned(), pair[1].clone())).collect());
    }
    Some(json!({ "$map": flat.chunks_exact(2).collect::<Vec<_>>() }))
}

/// Renders an object by the module and class that it names.
fn extension(code: i8, payload: &[u8], depth: usize) -> Option<Json> {
    (depth < DEPTH).then_some(())?;
    let known = rendered(payload, depth + 1).and_then(|payload| Value::ext_to_json(code, &payload));
    Some(known.unwrap_or_else(|| json!({ "$ext": [code, BASE64.encode(payload)] })))
}

/// Replaces the objects of older releases, which name a class: those of messages and sets. Others stay plain data.
fn revived(value: Json) -> Json {
    match value {
        Json::Array(items) => items.into_iter().map(revived).collect(),
        Json::Object(map) => {
            let map: JsonMap<String, Json> = map.into_iter().map(|(name, value)| (name, revived(value))).collect();
            constructed(&map).unwrap_or(Json::Object(map))
        }
        other => other,
    }
}

fn constructed(map: &JsonMap<String, Json>) -> Option<Json> {
    (map.get("type")? == "constructor").then_some(())?;
    let path: Vec<&str> = map.get("id")?.as_array()?.iter().map(Json::as_str).collect::<Option<_>>()?;
    match (map.get("lc")?.as_i64()?, &*path) {
        (2, ["builtins", class @ ("set" | "frozenset")]) => {
            Value::ext_to_json(0, &json!(["builtins", class, map.get("args")?.get(0)?]))
        }
        (1, ["langchain" | "langchain_core", .., class]) if class.ends_with("Message") => {
            let fields = map.get("kwargs")?;
            let dict = annals_base::Value::from(json!({ "type": fields.get("type")?, "data": fields }));
            let message = messages_from_dict([dict]).ok()?.pop()?;
            Some(Typed::msgpack(checkpoint_dumps(&MessageLike::from(message)).ok()?.bytes).to_json())
        }
        _ => None,
    }
}

impl Tuple {
    /// Returns the checkpoint as JSON: its ids, members, values and writes, with values as [`Typed::to_json`] gives
    /// them.
    pub fn to_json(&self) -> Json {
        let version = |version: &SaverVersion| match version {
            SaverVersion::Integer(number) => integer(i128::from(*number)),
            SaverVersion::Float(number) => float(*number),
            SaverVersion::Text(text) => json!(text),
        };
        let versions =
            |of: &SeenVersions| -> Json { of.iter().map(|(name, of)| (name.clone(), version(of))).collect() };
        let seen: Json = self.seen.iter().map(|(node, seen)| (node.clone(), versions(seen))).collect();
        let values: Json = self.values.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        let writes = self.writes.iter().map(|write| json!([write.task, &*write.channel, write.value.to_json()]));
        let updated = match &self.updated {
            UpdatedChannels::Names(names) => json!(names),
            UpdatedChannels::Absent | UpdatedChannels::Unknown => Json::Null,
        };
        json!({
            "thread_id": self.config.thread,
            "checkpoint_ns": self.config.namespace,
            "checkpoint_id": self.config.checkpoint,
            "parent_checkpoint_id": self.parent.as_ref().and_then(|parent| parent.checkpoint.as_deref()),
            "metadata": of_value(&Value::Map(self.metadata.clone())),
            "v": self.v,
            "ts": self.ts,
            "channel_versions": versions(&self.versions),
            "versions_seen": seen,
            "updated_channels": updated,
            "channel_values": values,
            "pending_writes": writes.collect::<Vec<_>>(),
        })
    }
}

/// Renders a value of the engine, as metadata are.
fn of_value(value: &Value) -> Json {
    match value {
        Value::Int(number) => integer(i128::from(*number)),
        Value::UInt(number) => integer(i128::from(*number)),
        Value::Float(number) => float(*number),
        Value::Bytes(of) => bytes(of),
        Value::List(items) => items.iter().map(of_value).collect(),
        Value::Map(map) => map.iter().map(|(name, value)| (name.clone(), of_value(value))).collect(),
        value => value.to_json(),
    }
}
