//! The state of a checkpoint as far as the next one is compared with it: versions and hashes, no values.
//!
//! A parent is read beside its child: the items that the child did not change are shared, not read again. *Absent:* the
//! values, which [`load`] hands to its caller on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::store::log::{Log, LogExt};
use annals::store::record::{ChannelRecord, ChannelValue, CheckpointRecord, ItemRow, StatePart};
use annals::store::{CheckpointRef, ItemRange, StoreError};
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
    /// A checkpoint without a change of the list shares it with its parent.
    List(Arc<Vec<ListSlot>>),
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
#[derive(Clone, Debug)]
pub(crate) struct LoadedCheckpoint {
    pub(crate) record: CheckpointRecord,
    /// The channels that the checkpoint changed and that hold something, sorted.
    pub(crate) updated: Vec<String>,
    pub(crate) state: DigestState,
    pub(crate) values: Vec<(Arc<str>, StoredValue)>,
}

impl LoadedCheckpoint {
    /// Returns whether a checkpoint is the parent of this one, in the same namespace.
    fn is_child_of(&self, at: &CheckpointRef) -> bool {
        let point = &self.record.point;
        self.record.parent == Some(at.checkpoint) && point.thread == at.thread && point.namespace == at.namespace
    }

    /// Returns the slots and the items of a list.
    fn list(&self, channel: &str) -> Option<(&[ListSlot], &[Arc<Typed>])> {
        let ContentDigest::List(slots) = &self.state.channels.get(channel)?.content else { return None };
        match self.values.iter().find(|(name, _)| **name == *channel)? {
            (_, StoredValue::Items(items)) if items.len() == slots.len() => Some((slots, items)),
            _ => None,
        }
    }

    /// Returns the position up to which a list holds what it held at the parent.
    fn unchanged_until(&self, backend: &dyn Log, channel: &str) -> Result<u64, StoreError> {
        if !self.updated.iter().any(|updated| updated == channel) {
            return Ok(u64::MAX);
        }
        let (mut until, ordinal) = (0, self.record.ordinal);
        backend.versions(&self.record.point, Some(channel), ordinal, &mut |version| {
            if version.channel.ordinal == ordinal {
                until = version.positions.as_ref().map_or(0, |positions| positions.start);
            }
            Ok(false)
        })?;
        Ok(until)
    }
}

/// Reads a checkpoint with its state; `None` if it is not stored, or was pruned. `child` is a checkpoint that was read:
/// if it is a child of this one, what it did not change is shared with it.
pub(crate) fn load(
    backend: &dyn Log,
    messages: &MessageCache,
    at: &CheckpointRef,
    child: Option<&LoadedCheckpoint>,
) -> Result<Option<LoadedCheckpoint>> {
    let child = child.filter(|child| child.is_child_of(at));
    let mut reader = StateReader { messages, child, loaded: None, list: None, shared: Vec::new() };
    let mut failed = None;
    let read = backend
        .read_state(at, &mut |part| reader.take(&part).map_err(|error| told(error, at, &mut failed)))
        .and_then(|()| reader.read_shared(backend, at, &mut failed));
    match (read, failed) {
        (Err(StoreError::CheckpointNotFound { .. } | StoreError::CheckpointPruned { .. }), _) => Ok(None),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(error.into()),
        (Ok(()), _) => Ok(reader.end()?.filter(|loaded| !loaded.record.pruned)),
    }
}

/// Returns the error with which a visitor ends, and notes one that is not of the store.
fn told(error: SaverError, at: &CheckpointRef, failed: &mut Option<SaverError>) -> StoreError {
    match error {
        SaverError::Store(error) => error,
        error => {
            let reason = error.to_string();
            failed.get_or_insert(error);
            StoreError::Corrupt { place: at.to_string(), reason }
        }
    }
}

/// Collects the parts of a state.
struct StateReader<'a> {
    messages: &'a MessageCache,
    child: Option<&'a LoadedCheckpoint>,
    loaded: Option<LoadedCheckpoint>,
    /// The list whose items come next.
    list: Option<(Arc<str>, u64, Vec<ListSlot>, Vec<Arc<Typed>>)>,
    /// The lists that the child has too, with their versions.
    shared: Vec<(Arc<str>, u64)>,
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
                let is_list = record.value == ChannelValue::Items;
                if is_list && self.child.is_some_and(|child| child.list(&record.channel).is_some()) {
                    self.shared.push((Arc::clone(&record.channel), record.version));
                    return Ok(false);
                }
                self.channel(record)?;
            }
            StatePart::Item(row) => self.item(row)?,
            _ => {}
        }
        Ok(true)
    }

    fn item(&mut self, row: &ItemRow<'_>) -> Result<()> {
        let Some((_, _, slots, items)) = &mut self.list else { return Ok(()) };
        let (item, digest) = self.messages.item(row.payload)?;
        slots.push(ListSlot { position: row.position, digest });
        items.push(item);
        Ok(())
    }

    /// Takes the lists from the child, as far as it left them, and reads the rest.
    fn read_shared(
        &mut self,
        backend: &dyn Log,
        at: &CheckpointRef,
        failed: &mut Option<SaverError>,
    ) -> Result<(), StoreError> {
        self.end_list();
        for (name, version) in std::mem::take(&mut self.shared) {
            let Some(child) = self.child else { continue };
            let Some((slots, items)) = child.list(&name) else { continue };
            let until = child.unchanged_until(backend, &name)?;
            let count = slots.partition_point(|slot| slot.position < until);
            self.list = Some((Arc::clone(&name), version, slots[..count].to_vec(), items[..count].to_vec()));
            if until < u64::MAX {
                let range = ItemRange::Positions(until, u64::MAX);
                backend.items(at, &name, range, &mut |row| self.item(&row).map_err(|error| told(error, at, failed)))?;
            }
            self.end_list();
        }
        if let Some(loaded) = &mut self.loaded {
            loaded.values.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Ok(())
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
        loaded
            .state
            .channels
            .insert(Arc::clone(&name), ChannelDigest { version, content: ContentDigest::List(Arc::new(slots)) });
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
