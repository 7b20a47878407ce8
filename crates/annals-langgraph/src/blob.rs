//! A whole checkpoint as one value, as savers with a row for each checkpoint store it.
//!
//! Invariant: what is not the MessagePack of a checkpoint is retained as it is, as the value of one channel. *Absent:*
//! the rows.

use std::collections::HashSet;

use annals::store::StoreError;
use annals_base::{Codec, Encoded, Map, Value, decode_value};

use crate::typed::{joined, map_entries, map_header};
use crate::version::{seen_from_map, seen_to_value};
use crate::{MSGPACK, NewValue, Result, SaverCheckpoint, SaverError, Tuple, Typed, UpdatedChannels};

/// The channel of a checkpoint that is not understood.
const WHOLE: &str = "__checkpoint__";

impl SaverCheckpoint {
    /// Reads a checkpoint from one value, as the savers of LangGraph for SQLite store it, with the id of its row. A
    /// value that is encrypted, of an older serializer, or not a checkpoint, becomes a checkpoint that
    /// [`Tuple::to_value`] turns into the same value.
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
}

fn encoded(value: &Value) -> Result<Vec<u8>> {
    Ok(Encoded::encode(value).map_err(StoreError::from)?.bytes)
}

/// Reads a checkpoint; `None` if the value is not one that can be written again.
fn parsed(id: &str, value: &Typed) -> Option<SaverCheckpoint> {
    if value.tag != MSGPACK {
        return None;
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
