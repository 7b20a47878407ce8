//! A whole checkpoint as one value, as savers with a row for each checkpoint store it.
//!
//! Invariant: what is not the MessagePack of a checkpoint is retained as it is, as the value of one channel. *Absent:*
//! the rows.

use std::collections::{BTreeMap, HashSet};

use annals::store::StoreError;
use annals_base::{Codec, Encoded, Map, Value, decode_value};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value as Json, json};

use crate::typed::{joined, map_entries, map_header};
use crate::version::{seen_from_map, seen_to_value};
use crate::{
    MSGPACK, NewValue, Result, SaverCheckpoint, SaverError, SaverVersion, SeenVersions, StoredValue, Tuple, Typed,
    UpdatedChannels,
};

/// The channel of a checkpoint that could not be taken apart: it is encrypted, or written by a serializer of its own.
pub const WHOLE: &str = "__checkpoint__";
/// The tag of checkpoints that releases before September 2024 wrote.
pub(crate) const JSON: &str = "json";

impl SaverCheckpoint {
    /// Reads a checkpoint from one value, as the savers of LangGraph for SQLite store it, with the id of its row. A
    /// value that is encrypted, or not a checkpoint, becomes the value of the channel [`WHOLE`], which
    /// [`Tuple::to_value`] returns.
    pub fn from_value(id: impl Into<String>, value: Typed, metadata: Map) -> Self {
        let id = id.into();
        match parsed(&id, &value) {
            Some(checkpoint) => Self { metadata, ..checkpoint },
            None => Self {
                v: None,
                ts: None,
                updated: UpdatedChannels::Absent,
                values: vec![(WHOLE.into(), NewValue::Typed(value))],
                metadata,
                ..Self::new(id, "")
            },
        }
    }
}

impl Tuple {
    /// Returns the checkpoint as one value, without the metadata and the writes.
    ///
    /// # Errors
    /// [`SaverError::Unsupported`] if a channel holds a value that is not MessagePack.
    pub fn to_value(&self) -> Result<Typed> {
        if let [(name, whole)] = &*self.values
            && name == WHOLE
        {
            return Ok(joined(whole.clone()));
        }
        if let Some(value) = self.to_json_value() {
            return Ok(value);
        }
        let mut values = map_header(self.values.len());
        for (channel, value) in &self.values {
            let value = joined(value.clone());
            if value.tag != MSGPACK {
                let reason = format!("channel {channel:?} has a value of the tag {:?}", value.tag);
                return Err(SaverError::Unsupported { feature: "a checkpoint as one value", reason });
            }
            values.extend(encoded(&channel.as_str().into())?);
            values.extend(value.bytes);
        }
        let seen = self.seen.iter().map(|(node, versions)| (node.clone(), seen_to_value(versions)));
        let mut members: Vec<(&str, Vec<u8>)> = Vec::new();
        members.extend(self.v.map(|v| encoded(&Value::Int(v))).transpose()?.map(|v| ("v", v)));
        members.extend(self.ts.as_deref().map(|ts| encoded(&ts.into())).transpose()?.map(|ts| ("ts", ts)));
        members.push(("id", encoded(&self.config.checkpoint().unwrap_or_default().into())?));
        members.push(("channel_values", values));
        members.push(("channel_versions", encoded(&seen_to_value(&self.versions))?));
        members.push(("versions_seen", encoded(&Value::Map(seen.collect()))?));
        match &self.updated {
            UpdatedChannels::Absent => {}
            UpdatedChannels::Unknown => members.push(("updated_channels", encoded(&Value::Null)?)),
            UpdatedChannels::Names(names) => {
                let names = names.iter().map(|name| name.as_str().into()).collect();
                members.push(("updated_channels", encoded(&Value::List(names))?));
            }
        }
        members.extend(self.extra.iter().map(|(name, value)| (&**name, value.bytes.clone())));
        let mut bytes = map_header(members.len());
        for (name, value) in members {
            bytes.extend(encoded(&name.into())?);
            bytes.extend(value);
        }
        Ok(Typed::msgpack(bytes))
    }

    /// Writes a checkpoint whose values are JSON, with their texts; `None` if one of them is not.
    fn to_json_value(&self) -> Option<Typed> {
        fn raw(value: &Typed) -> Option<&RawValue> {
            (value.tag == JSON).then(|| serde_json::from_slice(&value.bytes).ok())?
        }
        let mut values = BTreeMap::new();
        for (name, value) in &self.values {
            let StoredValue::Typed(value) = value else { return None };
            values.insert(&**name, raw(value)?);
        }
        let version = |version: &SaverVersion| match version {
            SaverVersion::Integer(number) => json!(number),
            SaverVersion::Float(number) => json!(number),
            SaverVersion::Text(text) => json!(text),
        };
        let versions =
            |of: &SeenVersions| -> Json { of.iter().map(|(name, of)| (name.clone(), version(of))).collect() };
        let seen: Json = self.seen.iter().map(|(node, seen)| (node.clone(), versions(seen))).collect();
        let members = [
            ("v", to_raw_value(&self.v)),
            ("ts", to_raw_value(&self.ts)),
            ("id", to_raw_value(&self.config.checkpoint)),
            ("channel_values", to_raw_value(&values)),
            ("channel_versions", to_raw_value(&versions(&self.versions))),
            ("versions_seen", to_raw_value(&seen)),
        ];
        let mut row = BTreeMap::new();
        for (name, value) in members {
            row.insert(name, value.ok()?);
        }
        for (name, value) in &self.extra {
            row.insert(&**name, raw(value)?.to_owned());
        }
        let has_json = !values.is_empty() || !self.extra.is_empty();
        has_json.then(|| serde_json::to_vec(&row).ok().map(|text| Typed::new(JSON, text)))?
    }
}

fn encoded(value: &Value) -> Result<Vec<u8>> {
    Ok(Encoded::encode(value).map_err(StoreError::from)?.bytes)
}

/// Reads a checkpoint; `None` if the value is not one that can be written again.
fn parsed(id: &str, value: &Typed) -> Option<SaverCheckpoint> {
    match &*value.tag {
        MSGPACK => {}
        JSON => return parsed_json(id, &value.bytes),
        _ => return None,
    }
    let mut checkpoint = SaverCheckpoint { v: None, ts: None, ..SaverCheckpoint::new(id, "") };
    checkpoint.updated = UpdatedChannels::Absent;
    let (mut names, mut has_id, mut has_values) = (HashSet::new(), false, false);
    for (name, bytes) in map_entries(&value.bytes)? {
        let decoded = || decode_value(Codec::MsgPack, bytes).ok();
        match &*name {
            "v" => checkpoint.v = Some(decoded()?.as_int()?),
            "ts" => checkpoint.ts = Some(decoded()?.as_str()?.to_owned()),
            "id" => has_id = decoded()?.as_str()? == id,
            "channel_values" => {
                has_values = true;
                let entries = map_entries(bytes)?;
                let mut channels = HashSet::new();
                if !entries.iter().all(|(channel, _)| channel != WHOLE && channels.insert(channel.clone())) {
                    return None;
                }
                let typed = |bytes: &[u8]| NewValue::Typed(Typed::msgpack(bytes.to_vec()));
                checkpoint.values = entries.into_iter().map(|(channel, bytes)| (channel, typed(bytes))).collect();
            }
            "channel_versions" => checkpoint.versions = seen_from_map(decoded()?.as_map()?)?,
            "versions_seen" => {
                let seen = decoded()?;
                let of_node =
                    |(node, versions): (&String, &Value)| Some((node.clone(), seen_from_map(versions.as_map()?)?));
                checkpoint.seen = seen.as_map()?.iter().map(of_node).collect::<Option<_>>()?;
            }
            "updated_channels" => {
                checkpoint.updated = match decoded()? {
                    Value::Null => UpdatedChannels::Unknown,
                    Value::List(names) => {
                        let name = |name: &Value| name.as_str().map(ToOwned::to_owned);
                        UpdatedChannels::Names(names.iter().map(name).collect::<Option<_>>()?)
                    }
                    _ => return None,
                }
            }
            _ => checkpoint.extra.push((name.clone(), Typed::msgpack(bytes.to_vec()))),
        }
        if !names.insert(name) {
            return None;
        }
    }
    (has_id && has_values).then_some(checkpoint)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonVersion {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl From<JsonVersion> for SaverVersion {
    fn from(version: JsonVersion) -> Self {
        match version {
            JsonVersion::Integer(number) => Self::Integer(number),
            JsonVersion::Float(number) => Self::Float(number),
            JsonVersion::Text(text) => Self::Text(text),
        }
    }
}
/// Reads the members of a checkpoint in JSON, as releases before September 2024 wrote it.
fn parsed_json(id: &str, bytes: &[u8]) -> Option<SaverCheckpoint> {
    let mut new = SaverCheckpoint::new(id, "");
    let typed = |(name, value): (String, &RawValue)| (name, Typed::new(JSON, value.get().as_bytes().to_vec()));
    let versions = |of: BTreeMap<String, JsonVersion>| of.into_iter().map(|(name, of)| (name, of.into())).collect();
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).ok()?;
    let mut member = |name: &str| members.remove(name).map_or("null", RawValue::get);
    (new.id == json_of::<String>(member("id"))?).then_some(())?;
    (new.v, new.ts, new.updated) = (json_of(member("v"))?, json_of(member("ts"))?, UpdatedChannels::Absent);
    let values: BTreeMap<String, &RawValue> = json_of(member("channel_values"))?;
    (!values.contains_key(WHOLE)).then_some(())?;
    new.values = values.into_iter().map(typed).map(|(name, value)| (name, NewValue::Typed(value))).collect();
    new.versions = versions(json_of(member("channel_versions"))?);
    let seen: BTreeMap<String, BTreeMap<String, JsonVersion>> = json_of(member("versions_seen"))?;
    new.seen = seen.into_iter().map(|(node, seen)| (node, versions(seen))).collect();
    new.extra = members.into_iter().map(typed).collect();
    Some(new)
}

fn json_of<'t, T: Deserialize<'t>>(text: &'t str) -> Option<T> {
    serde_json::from_str(text).ok()
}
