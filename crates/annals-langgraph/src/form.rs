//! A checkpoint as LangGraph's SQLite saver stores it: one MessagePack object with all members.
//!
//! Invariant: values are taken out and put back as bytes; nothing in them is read. *Absent:* the rows around it.

use std::collections::BTreeMap;

use annals_base::{Codec, Encoded, decode_bytes};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map as JsonMap, Value as Json, json};

use crate::typed::{array_header, joined, length};
use crate::{MSGPACK, NewCheckpoint, NewValue, SeenVersions, StoredValue, Tuple, Typed, UpdatedChannels, Version};

/// The tag of checkpoints that releases before September 2024 wrote.
pub(crate) const JSON: &str = "json";

/// The name of an extra member that holds a whole checkpoint that could not be taken apart: it is encrypted, or written
/// by a serializer of its own.
pub const WHOLE: &str = "";

impl NewCheckpoint {
    /// Takes apart a checkpoint that LangGraph's serializer wrote as a whole. One whose members cannot be told apart is
    /// retained as it is, under the extra member [`WHOLE`].
    pub fn of_row(id: &str, checkpoint: Typed) -> Self {
        let mut new = Self::new(id, "");
        let parsed = match &*checkpoint.tag {
            MSGPACK => parse(&mut new, &checkpoint.bytes),
            JSON => parse_json(&mut new, &checkpoint.bytes),
            _ => None,
        };
        if parsed.is_some() {
            return new;
        }
        let mut new = Self::new(id, "");
        (new.v, new.ts, new.updated) = (None, None, UpdatedChannels::Absent);
        new.extra = vec![(WHOLE.into(), checkpoint)];
        new
    }
}

impl Tuple {
    /// Puts the members of the checkpoint together, as LangGraph's serializer writes them.
    pub fn to_row(&self) -> Typed {
        if let [(name, whole)] = &*self.extra
            && name == WHOLE
        {
            return whole.clone();
        }
        if let Some(row) = self.to_json_row() {
            return row;
        }
        let mut members: Vec<(&str, Vec<u8>)> = Vec::new();
        members.extend(self.v.map(|v| ("v", scalar(&v))));
        members.extend(self.ts.as_ref().map(|ts| ("ts", scalar(ts))));
        let id = self.config.checkpoint.as_deref().unwrap_or_default();
        members.push(("id", scalar(id)));
        let values = self.values.iter().map(|(name, value)| (&**name, packed(joined(value.clone()))));
        members.push(("channel_values", object(values)));
        members.push(("channel_versions", versions(&self.versions)));
        members.push(("versions_seen", object(self.seen.iter().map(|(node, seen)| (&**node, versions(seen))))));
        match &self.updated {
            UpdatedChannels::Absent => {}
            UpdatedChannels::Unknown => members.push(("updated_channels", vec![0xc0])),
            UpdatedChannels::Names(names) => {
                let mut list = array_header(names.len());
                names.iter().for_each(|name| list.extend(scalar(name)));
                members.push(("updated_channels", list));
            }
        }
        members.extend(self.extra.iter().map(|(name, value)| (&**name, packed(value.clone()))));
        Typed::msgpack(object(members.into_iter()))
    }

    /// Writes a checkpoint whose values are JSON; `None` if one of them is not.
    fn to_json_row(&self) -> Option<Typed> {
        fn text(value: &Typed) -> Option<&str> {
            std::str::from_utf8(&value.bytes).ok().filter(|_| value.tag == JSON)
        }
        let mut values = JsonMap::new();
        for (name, value) in &self.values {
            let StoredValue::Typed(value) = value else { return None };
            values.insert(name.clone(), serde_json::from_str(text(value)?).ok()?);
        }
        let version = |version: &Version| match version {
            Version::Integer(number) => json!(number),
            Version::Float(number) => json!(number),
            Version::Text(text) => json!(text),
        };
        let versions = |of: &SeenVersions| -> Json { of.iter().map(|(name, of)| (name.clone(), version(of))).collect() };
        let seen: Json = self.seen.iter().map(|(node, seen)| (node.clone(), versions(seen))).collect();
        let mut row = json!({ "v": self.v, "ts": self.ts, "id": self.config.checkpoint, "channel_values": values,
            "channel_versions": versions(&self.versions), "versions_seen": seen });
        let mut has_json = !values.is_empty();
        for (name, value) in &self.extra {
            row[name] = serde_json::from_str(text(value)?).ok()?;
            has_json = true;
        }
        has_json.then(|| Typed::new(JSON, row.to_string().into_bytes()))
    }
}

/// Returns a value as a member of an object, which has no tag of its own.
fn packed(value: Typed) -> Vec<u8> {
    match &*value.tag {
        MSGPACK => value.bytes,
        "null" | "empty" => vec![0xc0],
        _ => bin(&value.bytes),
    }
}

fn bin(bytes: &[u8]) -> Vec<u8> {
    let header: Vec<u8> = match bytes.len() {
        length @ 0..=0xff => vec![0xc4, length as u8],
        length @ 0x100..=0xffff => [&[0xc5][..], &(length as u16).to_be_bytes()].concat(),
        length => [&[0xc6][..], &(length as u32).to_be_bytes()].concat(),
    };
    [&header, bytes].concat()
}

fn scalar<T: serde::Serialize + ?Sized>(value: &T) -> Vec<u8> {
    // A number or a text: encoding it does not fail.
    Encoded::encode(value).map_or_else(|_| vec![0xc0], |encoded| encoded.bytes)
}

fn object<'m>(members: impl ExactSizeIterator<Item = (&'m str, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = match members.len() {
        count @ 0..=15 => vec![0x80 | count as u8],
        count @ 16..=0xffff => [&[0xde][..], &(count as u16).to_be_bytes()].concat(),
        count => [&[0xdf][..], &(count as u32).to_be_bytes()].concat(),
    };
    for (name, value) in members {
        bytes.extend(scalar(name));
        bytes.extend(value);
    }
    bytes
}

fn versions(versions: &[(String, Version)]) -> Vec<u8> {
    let version = |version: &Version| match version {
        Version::Integer(number) => scalar(number),
        Version::Float(number) => scalar(number),
        Version::Text(text) => scalar(text),
    };
    object(versions.iter().map(|(channel, of)| (&**channel, version(of))))
}

/// Reads the members of a checkpoint; `None` if one of them is of another kind than LangGraph's.
fn parse(new: &mut NewCheckpoint, bytes: &[u8]) -> Option<()> {
    (new.v, new.ts, new.updated) = (None, None, UpdatedChannels::Absent);
    let mut has_values = false;
    for (name, value) in members(bytes)? {
        match name {
            "v" => new.v = Some(decoded(value)?),
            "ts" => new.ts = Some(decoded(value)?),
            "id" => (decoded::<String>(value)? == new.id).then_some(())?,
            "channel_values" => {
                let typed = |(name, value): (&str, &[u8])| {
                    (name.to_owned(), NewValue::Typed(Typed::msgpack(value.to_vec())))
                };
                new.values = members(value)?.into_iter().map(typed).collect();
                has_values = true;
            }
            "channel_versions" => new.versions = read_versions(value)?,
            "versions_seen" => {
                let seen = members(value)?.into_iter().map(|(node, seen)| Some((node.into(), read_versions(seen)?)));
                new.seen = seen.collect::<Option<Vec<(String, SeenVersions)>>>()?;
            }
            "updated_channels" if value == [0xc0] => new.updated = UpdatedChannels::Unknown,
            "updated_channels" => new.updated = UpdatedChannels::Names(decoded(value)?),
            WHOLE => return None,
            _ => new.extra.push((name.into(), Typed::msgpack(value.to_vec()))),
        }
    }
    has_values.then_some(())
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    decode_bytes(Codec::MsgPack, bytes).ok()
}

fn read_versions(bytes: &[u8]) -> Option<SeenVersions> {
    let version = |(channel, version): (&str, &[u8])| {
        let version = match version.first()? {
            0xca | 0xcb => Version::Float(decoded(version)?),
            0xa0..=0xbf | 0xd9..=0xdb => Version::Text(decoded(version)?),
            _ => Version::Integer(decoded(version)?),
        };
        Some((channel.to_owned(), version))
    };
    members(bytes)?.into_iter().map(version).collect()
}

/// Returns the members of an object of MessagePack whose names are texts.
fn members(bytes: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    let (first, rest) = bytes.split_first()?;
    let (count, mut rest) = match first {
        0x80..=0x8f => (usize::from(first & 0x0f), rest),
        0xde => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), &rest[2..]),
        0xdf => (usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?, &rest[4..]),
        _ => return None,
    };
    let mut members = Vec::new();
    for _ in 0..count {
        let (name, after) = rest.split_at_checked(length(rest)?)?;
        let header = match name.first()? {
            0xa0..=0xbf => 1,
            0xd9 => 2,
            0xda => 3,
            0xdb => 5,
            _ => return None,
        };
        let name = std::str::from_utf8(&name[header..]).ok()?;
        let (value, after) = after.split_at_checked(length(after)?)?;
        members.push((name, value));
        rest = after;
    }
    rest.is_empty().then_some(members)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonVersion {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl From<JsonVersion> for Version {
    fn from(version: JsonVersion) -> Self {
        match version {
            JsonVersion::Integer(number) => Self::Integer(number),
            JsonVersion::Float(number) => Self::Float(number),
            JsonVersion::Text(text) => Self::Text(text),
        }
    }
}

/// Reads the members of a checkpoint in JSON, as releases before September 2024 wrote it.
fn parse_json(new: &mut NewCheckpoint, bytes: &[u8]) -> Option<()> {
    let typed = |(name, value): (String, &RawValue)| (name, Typed::new(JSON, value.get().as_bytes().to_vec()));
    let versions = |of: BTreeMap<String, JsonVersion>| of.into_iter().map(|(name, of)| (name, of.into())).collect();
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).ok()?;
    (!members.contains_key(WHOLE)).then_some(())?;
    let mut member = |name: &str| members.remove(name).map_or("null", RawValue::get);
    (new.id == json_of::<String>(member("id"))?).then_some(())?;
    (new.v, new.ts, new.updated) = (json_of(member("v"))?, json_of(member("ts"))?, UpdatedChannels::Absent);
    let values: BTreeMap<String, &RawValue> = json_of(member("channel_values"))?;
    new.values = values.into_iter().map(typed).map(|(name, value)| (name, NewValue::Typed(value))).collect();
    new.versions = versions(json_of(member("channel_versions"))?);
    let seen: BTreeMap<String, BTreeMap<String, JsonVersion>> = json_of(member("versions_seen"))?;
    new.seen = seen.into_iter().map(|(node, seen)| (node, versions(seen))).collect();
    new.extra = members.into_iter().map(typed).collect();
    Some(())
}

fn json_of<'t, T: Deserialize<'t>>(text: &'t str) -> Option<T> {
    serde_json::from_str(text).ok()
}
