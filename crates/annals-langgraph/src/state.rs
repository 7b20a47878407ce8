//! The state of a checkpoint as far as the next one is compared with it: versions and hashes, no values.
//!
//! *Absent:* the values, which [`load`] hands to its caller on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::store::{ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, Log, LogExt, StatePart, StoreError};
use annals_base::{Codec, Value, decode_value};

use crate::list::ListSlot;
use crate::notes::CHANNEL;
use crate::typed::{Digest, MessageCache, digest, typed};
use crate::version::{VersionForm, from_value, seen_from_map, seen_to_value, to_value};
use crate::{Result, SaverError, SaverVersion, SeenVersions, StoredValue, Typed};

/// Channels and nodes at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DigestState {
    pub(crate) channels: BTreeMap<Arc<str>, ChannelDigest>,
    /// The versions that nodes have seen, by node and channel.
    pub(crate) seen: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>,
    /// Versions that the numbers of the log do not tell: the items of the channel [`CHANNEL`].
    pub(crate) exceptions: Vec<Exception>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChannelDigest {
    pub(crate) version: u64,
    pub(crate) content: ContentDigest,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ContentDigest {
    Empty,
    One(Digest),
    List(Vec<ListSlot>),
}

impl ContentDigest {
    pub(crate) fn slots(&self) -> &[ListSlot] {
        match self {
            Self::List(slots) => slots,
            Self::Empty | Self::One(_) => &[],
        }
    }

    /// Returns whether the values are equal, at whatever positions.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a.iter().map(|slot| slot.digest).eq(b.iter().map(|slot| slot.digest)),
            (a, b) => a == b,
        }
    }
}

/// A version of a channel, or all versions that a node has seen, that numbers do not say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Exception {
    /// The version of a channel; `None` if the checkpoint has none of it.
    Version(String, Option<SaverVersion>),
    /// The versions that a node has seen; `None` if the checkpoint does not name the node.
    Seen(String, Option<SeenVersions>),
}

impl Exception {
    pub(crate) fn to_value(&self) -> Value {
        let (kind, name, value) = match self {
            Self::Version(channel, version) => (0, channel, version.as_ref().map(to_value)),
            Self::Seen(node, seen) => (1, node, seen.as_ref().map(seen_to_value)),
        };
        Value::List(vec![Value::Int(kind), name.as_str().into(), value.unwrap_or_default()])
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        let [Value::Int(kind), Value::Str(name), value] = value.as_list()? else { return None };
        match (kind, value) {
            (0, Value::Null) => Some(Self::Version(name.clone(), None)),
            (0, value) => Some(Self::Version(name.clone(), Some(from_value(value)?))),
            (1, Value::Null) => Some(Self::Seen(name.clone(), None)),
            (1, Value::Map(map)) => Some(Self::Seen(name.clone(), Some(seen_from_map(map)?))),
            _ => None,
        }
    }
}

impl DigestState {
    /// Returns the versions of the channels, sorted by channel.
    pub(crate) fn versions(&self, form: VersionForm) -> Vec<(String, SaverVersion)> {
        let of_log = self.channels.iter().filter(|(name, _)| ***name != *CHANNEL);
        let mut versions: BTreeMap<String, SaverVersion> =
            of_log.map(|(name, channel)| (name.to_string(), form.version(channel.version))).collect();
        for exception in &self.exceptions {
            match exception {
                Exception::Version(channel, Some(version)) => _ = versions.insert(channel.clone(), version.clone()),
                Exception::Version(channel, None) => _ = versions.remove(channel),
                Exception::Seen(..) => {}
            }
        }
        versions.into_iter().collect()
    }

    /// Returns what the nodes have seen, sorted by node and channel.
    pub(crate) fn seen(&self, form: VersionForm) -> Vec<(String, SeenVersions)> {
        let of_log = self.seen.iter().map(|(node, versions)| {
            let versions = versions.iter().map(|(channel, number)| (channel.to_string(), form.version(*number)));
            (node.to_string(), versions.collect())
        });
        let mut seen: BTreeMap<String, SeenVersions> = of_log.collect();
        for exception in &self.exceptions {
            match exception {
                Exception::Seen(node, Some(versions)) => _ = seen.insert(node.clone(), versions.clone()),
                Exception::Seen(node, None) => _ = seen.remove(node),
                Exception::Version(..) => {}
            }
        }
        seen.into_iter().collect()
    }

    /// Returns whether the channels hold the same values.
    pub(crate) fn holds_same(&self, other: &Self) -> bool {
        let held = |state: &'_ Self| -> Vec<(Arc<str>, ContentDigest)> {
            let held = state
                .channels
                .iter()
                .filter(|(name, channel)| ***name != *CHANNEL && channel.content != ContentDigest::Empty);
            held.map(|(name, channel)| (Arc::clone(name), channel.content.clone())).collect()
        };
        let (mine, others) = (held(self), held(other));
        mine.len() == others.len() && mine.iter().zip(&others).all(|(a, b)| a.0 == b.0 && a.1.is_same(&b.1))
    }
}

/// A checkpoint that was read.
#[derive(Debug)]
pub(crate) struct LoadedCheckpoint {
    pub(crate) record: CheckpointRecord,
    /// The channels that the checkpoint changed and that hold something, sorted.
    pub(crate) updated: Vec<String>,
    pub(crate) state: DigestState,
    pub(crate) values: Vec<(Arc<str>, StoredValue)>,
}

/// Reads a checkpoint with its state; `None` if it is not stored, or was pruned.
pub(crate) fn load(backend: &dyn Log, messages: &MessageCache, at: &CheckpointRef) -> Result<Option<LoadedCheckpoint>> {
    let mut reader = StateReader { messages, loaded: None, list: None };
    let mut failed = None;
    let read = backend.read_state(at, &mut |part| match reader.take(&part) {
        Ok(wants_items) => Ok(wants_items),
        Err(SaverError::Store(error)) => Err(error),
        Err(error) => {
            let reason = error.to_string();
            failed.get_or_insert(error);
            Err(StoreError::Corrupt { place: at.to_string(), reason })
        }
    });
    match (read, failed) {
        (Err(StoreError::CheckpointNotFound { .. } | StoreError::CheckpointPruned { .. }), _) => Ok(None),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(error.into()),
        (Ok(()), _) => Ok(reader.end()?.filter(|loaded| !loaded.record.pruned)),
    }
}

/// Collects the parts of a state.
struct StateReader<'a> {
    messages: &'a MessageCache,
    loaded: Option<LoadedCheckpoint>,
    /// The list whose items come next.
    list: Option<(Arc<str>, u64, Vec<ListSlot>, Vec<Typed>)>,
}

impl StateReader<'_> {
    fn take(&mut self, part: &StatePart<'_>) -> Result<bool> {
        match part {
            StatePart::Record(record) => {
                let mut state = DigestState::default();
                for seen in &record.seen {
                    state.seen.insert(Arc::clone(&seen.node), seen.versions.iter().cloned().collect());
                }
                let updated = record.updated.iter().filter(|name| ***name != *CHANNEL);
                let updated = updated.map(|name| name.to_string()).collect();
                self.loaded =
                    Some(LoadedCheckpoint { record: record.checkpoint.clone(), updated, state, values: Vec::new() });
            }
            StatePart::Channel(record) => {
                self.end_list();
                self.channel(record)?;
            }
            StatePart::Item(row) => {
                let Some((_, _, slots, items)) = &mut self.list else { return Ok(true) };
                let (item, digest) = self.messages.item(row.payload)?;
                slots.push(ListSlot { position: row.position, digest });
                items.push(item);
            }
            _ => {}
        }
        Ok(true)
    }

    fn channel(&mut self, record: &ChannelRecord) -> Result<()> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let name = Arc::clone(&record.channel);
        let content = match &record.value {
            ChannelValue::Empty => ContentDigest::Empty,
            ChannelValue::Value(payload) => {
                let value = typed(payload.as_ref())?;
                let content = ContentDigest::One(digest(&value.tag, &value.bytes));
                loaded.values.push((Arc::clone(&name), StoredValue::Typed(value)));
                content
            }
            ChannelValue::Items => {
                self.list = Some((name, record.version, Vec::new(), Vec::new()));
                return Ok(());
            }
        };
        loaded.state.channels.insert(name, ChannelDigest { version: record.version, content });
        Ok(())
    }

    fn end_list(&mut self) {
        let (Some((name, version, slots, items)), Some(loaded)) = (self.list.take(), &mut self.loaded) else { return };
        loaded.state.channels.insert(Arc::clone(&name), ChannelDigest { version, content: ContentDigest::List(slots) });
        loaded.values.push((name, StoredValue::Items(items)));
    }

    /// Returns what was read, with the exceptions taken out of their channel.
    fn end(mut self) -> Result<Option<LoadedCheckpoint>> {
        self.end_list();
        let Some(mut loaded) = self.loaded else { return Ok(None) };
        let at = loaded.values.iter().position(|(name, _)| **name == *CHANNEL);
        if let Some((_, StoredValue::Items(items))) = at.map(|at| loaded.values.remove(at)) {
            for item in items {
                let value = decode_value(Codec::MsgPack, &item.bytes).map_err(StoreError::from)?;
                let misfit = || StoreError::Corrupt {
                    place: CHANNEL.into(),
                    reason: format!("{value} does not name a version"),
                };
                loaded.state.exceptions.push(Exception::read(&value).ok_or_else(misfit)?);
            }
        }
        Ok(Some(loaded))
    }
}
