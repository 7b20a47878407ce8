//! Values of LangGraph's serializer as payloads of the log.
//!
//! MessagePack that the engine can read is stored as it is, a chat message in the format of the engine, and everything
//! else verbatim behind a header with its tag. Invariant: a payload gives the bytes of which it was made; a message
//! whose bytes would differ is stored as MessagePack. *Absent:* the execution of anything in a value.

use std::collections::HashMap;
use std::sync::Arc;

use annals::store::StoreError;
use annals::store::batch::Payload;
use annals_base::{Codec, ItemIndex, PayloadRef, Value, decode_value};
use annals_messages::{Message, MessageLike, checkpoint_loads};
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use crate::limits::{MESSAGE_CACHE_BYTES_MAX, TAG_BYTES_MAX};
use crate::{MSGPACK, Result, SaverError, StoredValue, Typed};

/// The codec of values that are stored behind their tag: a byte with the length of the tag, the tag, the bytes.
const TAGGED: Codec = Codec::Foreign(1);
/// The encoding of null.
const NIL: u8 = 0xc0;
/// The extension for objects that are made of their fields, messages above all.
const MODEL: u8 = 5;
/// An array of fewer bytes is stored as one value, unless it has a message.
const LIST_BYTES_MIN: usize = 128;

/// The hash by which values are compared.
pub(crate) type Digest = [u8; 16];

/// Hashes a value with its tag.
pub(crate) fn digest(tag: &str, bytes: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[tag.len().min(TAG_BYTES_MAX) as u8]).update(tag.as_bytes()).update(bytes);
    let mut digest = Digest::default();
    hasher.finalize_xof().fill(&mut digest);
    digest
}

/// Returns the payload of a value.
pub(crate) fn payload(value: &Typed) -> Result<Payload> {
    match &*value.tag {
        "null" if value.bytes.is_empty() => Ok(Payload::new(vec![NIL])),
        MSGPACK if decode_value(Codec::MsgPack, &value.bytes).is_ok() => Ok(Payload::new(value.bytes.clone())),
        tag => {
            let length = u8::try_from(tag.len()).map_err(|_| {
                let reason = format!("it has {} bytes, the limit is {TAG_BYTES_MAX}", tag.len());
                SaverError::invalid("tag of a value", reason)
            })?;
            let data = [&[length], tag.as_bytes(), &value.bytes].concat();
            Ok(Payload::new(data).with_codec(TAGGED))
        }
    }
}

/// Returns the payload of an item of a list: a message has an index, by which it is found and shown.
pub(crate) fn item_payload(item: &Typed) -> Result<Payload> {
    if !is_model(item) {
        return payload(item);
    }
    let Ok(MessageLike::Message(message)) = checkpoint_loads(MSGPACK, &item.bytes) else { return payload(item) };
    if let Ok(stored) = message.to_payload()
        && message_bytes(stored.as_ref()).is_ok_and(|bytes| bytes == item.bytes)
    {
        return Ok(stored);
    }
    // Without a type in the index the item is not read as a message, but its text is found.
    let mut index = ItemIndex::default();
    index.id = message.id.as_deref().map(Into::into);
    index.text = Some(message.text().to_string());
    Ok(payload(item)?.with_index(index))
}

fn is_model(item: &Typed) -> bool {
    let at = match item.bytes.first() {
        Some(0xc7) => 2,
        Some(0xc8) => 3,
        Some(0xc9) => 5,
        _ => return false,
    };
    item.tag == MSGPACK && item.bytes.get(at) == Some(&MODEL)
}

fn message_bytes(stored: PayloadRef<'_>) -> Result<Vec<u8>> {
    let corrupt = |reason: String| StoreError::Corrupt { place: "message".into(), reason };
    let message = Message::from_payload(stored).map_err(|error| corrupt(error.to_string()))?;
    let model = message.to_ext().map_err(|error| corrupt(error.to_string()))?;
    Ok(annals_base::Encoded::encode(&model).map_err(StoreError::from)?.bytes)
}

/// Returns the value of a message without its id; `None` if it is not a message with one.
pub(crate) fn anonymous(stored: PayloadRef<'_>) -> Result<Option<Typed>> {
    let Some(mut index) = stored.index.filter(|index| index.kind.is_some() && index.id.is_some()) else {
        return Ok(None);
    };
    index.id = None;
    Ok(Some(Typed::msgpack(message_bytes(PayloadRef::new(stored.codec, stored.data, Some(index)))?)))
}

/// Returns whether a payload is a message without an id.
pub(crate) fn is_anonymous(stored: PayloadRef<'_>) -> bool {
    stored.index.is_some_and(|index| index.kind.is_some() && index.id.is_none())
}

/// The messages of lists as LangGraph's serializer writes them. Checkpoints share most of them, and writing them anew
/// is two thirds of the time of a read.
#[derive(Default)]
pub(crate) struct MessageCache(Mutex<CachedMessages>);

#[derive(Default)]
struct CachedMessages {
    /// By what is stored of a message.
    values: HashMap<Vec<u8>, (Arc<Typed>, Digest), Xxh3DefaultBuilder>,
    bytes: usize,
}

impl MessageCache {
    /// Returns the value of which the payload of an item was made, with its hash.
    pub(crate) fn item(&self, stored: PayloadRef<'_>) -> Result<(Arc<Typed>, Digest)> {
        let hashed = |value: Typed| {
            let digest = digest(&value.tag, &value.bytes);
            (Arc::new(value), digest)
        };
        let Some(key) = message_key(stored) else { return Ok(hashed(typed(stored)?)) };
        if let Some(found) = self.0.lock().values.get(&key) {
            return Ok(found.clone());
        }
        let item = hashed(typed(stored)?);
        let mut cached = self.0.lock();
        cached.bytes += key.len() + item.0.bytes.len();
        if cached.bytes > MESSAGE_CACHE_BYTES_MAX {
            *cached = CachedMessages { values: HashMap::default(), bytes: key.len() + item.0.bytes.len() };
        }
        cached.values.insert(key, item.clone());
        Ok(item)
    }
}

/// Returns all that is stored of a message; `None` for other items.
fn message_key(stored: PayloadRef<'_>) -> Option<Vec<u8>> {
    let index = stored.index.filter(|index| index.kind.is_some())?;
    let mut key = Vec::with_capacity(stored.data.len() + index.text.map_or(0, str::len) + 64);
    for text in [index.kind, index.id, index.name, index.tool_calls, index.text] {
        key.extend(text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        key.extend(text.unwrap_or_default().as_bytes());
    }
    for tokens in [index.input_tokens, index.output_tokens] {
        key.extend(tokens.map_or(u64::MAX, u64::from).to_le_bytes());
    }
    key.push(stored.codec.to_tag());
    key.extend(stored.data);
    Some(key)
}

/// Returns the value of which a payload was made.
pub(crate) fn typed(stored: PayloadRef<'_>) -> Result<Typed> {
    if stored.index.is_some_and(|index| index.kind.is_some()) {
        return Ok(Typed::msgpack(message_bytes(stored)?));
    }
    let tagged = || {
        let (length, rest) = stored.data.split_first()?;
        let (tag, bytes) = rest.split_at_checked(usize::from(*length))?;
        let tag = std::str::from_utf8(tag).ok()?;
        Some(match tag {
            MSGPACK => Typed::msgpack(bytes.to_vec()),
            tag => Typed::new(tag.to_owned(), bytes.to_vec()),
        })
    };
    match stored.codec {
        Codec::MsgPack => Ok(Typed::msgpack(stored.data.to_vec())),
        TAGGED => tagged().ok_or_else(|| {
            StoreError::Corrupt { place: "value of LangGraph".into(), reason: "its header is cut".into() }.into()
        }),
        codec => {
            let reason = format!("{codec:?} is not a codec of LangGraph's values");
            Err(SaverError::Unsupported { feature: "reading a value", reason })
        }
    }
}

/// Returns the items of a `msgpack` array, if the array is exactly what its items make again.
pub(crate) fn array_items(value: &Typed) -> Option<Vec<&[u8]>> {
    if value.tag != MSGPACK {
        return None;
    }
    let (first, rest) = value.bytes.split_first()?;
    let (count, mut rest) = match first {
        0x90..=0x9f => (usize::from(first & 0x0f), rest),
        0xdc => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), &rest[2..]),
        0xdd => (usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?, &rest[4..]),
        _ => return None,
    };
    let mut items = Vec::new();
    for _ in 0..count {
        let (item, after) = rest.split_at_checked(length(rest)?)?;
        items.push(item);
        rest = after;
    }
    let header = array_header(count);
    (rest.is_empty() && value.bytes.starts_with(&header)).then_some(items)
}

/// Returns whether an array is worth a row for each item.
pub(crate) fn is_list(value: &Typed, items: &[&[u8]]) -> bool {
    let is_message = |item: &&[u8]| matches!(item.first(), Some(0xc7..=0xc9));
    value.bytes.len() >= LIST_BYTES_MIN || items.iter().any(is_message)
}

/// Returns the value of a stored value as one: of a list its array.
pub(crate) fn joined(value: StoredValue) -> Typed {
    match value {
        StoredValue::Typed(value) => value,
        StoredValue::Items(items) => {
            let mut bytes = array_header(items.len());
            items.iter().for_each(|item| bytes.extend_from_slice(&item.bytes));
            Typed::msgpack(bytes)
        }
    }
}

pub(crate) fn array_header(count: usize) -> Vec<u8> {
    match count {
        0..=15 => vec![0x90 | count as u8],
        16..=0xffff => [&[0xdc][..], &(count as u16).to_be_bytes()].concat(),
        _ => [&[0xdd][..], &(count as u32).to_be_bytes()].concat(),
    }
}

/// Returns the members of a `msgpack` map, in their order; `None` if a name is not a text.
pub(crate) fn map_entries(bytes: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let (first, rest) = bytes.split_first()?;
    let (count, mut rest) = match first {
        0x80..=0x8f => (usize::from(first & 0x0f), rest),
        0xde => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), &rest[2..]),
        0xdf => (usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?, &rest[4..]),
        _ => return None,
    };
    let mut entries = Vec::new();
    for _ in 0..count {
        let (name, after) = rest.split_at_checked(length(rest)?)?;
        let (value, after) = after.split_at_checked(length(after)?)?;
        let Ok(Value::Str(name)) = decode_value(Codec::MsgPack, name) else { return None };
        entries.push((name, value));
        rest = after;
    }
    rest.is_empty().then_some(entries)
}

pub(crate) fn map_header(count: usize) -> Vec<u8> {
    match count {
        0..=15 => vec![0x80 | count as u8],
        16..=0xffff => [&[0xde][..], &(count as u16).to_be_bytes()].concat(),
        _ => [&[0xdf][..], &(count as u32).to_be_bytes()].concat(),
    }
}

/// Returns the number of bytes of the MessagePack value with which `bytes` begin; `None` if it is cut.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut open) = (0_usize, 1_u64);
    while open > 0 {
        let marker = *bytes.get(at)?;
        at += 1;
        open -= 1;
        let number = |width: usize| -> Option<usize> {
            let digits = bytes.get(at..at + width)?;
            Some(digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit)))
        };
        let (skipped, inside) = match marker {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => (0, 0),
            0x80..=0x8f => (0, 2 * u64::from(marker & 0x0f)),
            0x90..=0x9f => (0, u64::from(marker & 0x0f)),
            0xa0..=0xbf => (usize::from(marker & 0x1f), 0),
            0xc1 => return None,
            0xc4 | 0xd9 => (1 + number(1)?, 0),
            0xc5 | 0xda => (2 + number(2)?, 0),
            0xc6 | 0xdb => (4 + number(4)?, 0),
            0xc7 => (2 + number(1)?, 0),
            0xc8 => (3 + number(2)?, 0),
            0xc9 => (5 + number(4)?, 0),
            0xca | 0xce | 0xd2 => (4, 0),
            0xcb | 0xcf | 0xd3 => (8, 0),
            0xcc | 0xd0 => (1, 0),
            0xcd | 0xd1 => (2, 0),
            0xd4..=0xd8 => (1 + (1 << (marker - 0xd4)), 0),
            0xdc => (2, number(2)? as u64),
            0xdd => (4, number(4)? as u64),
            0xde => (2, 2 * number(2)? as u64),
            0xdf => (4, 2 * number(4)? as u64),
        };
        at = at.checked_add(skipped).filter(|at| *at <= bytes.len())?;
        open += inside;
    }
    Some(at)
}
