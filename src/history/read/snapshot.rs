//! The state at one checkpoint, read without a graph.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{CheckpointId, ListDelta, Map, Payload, PayloadRef, Timestamp, Value, WriteValue};
use crate::message::Message;
use crate::store::backend::is_pruned;
use crate::store::log::LogExt;
use crate::store::record::{
    ChannelRecord, ChannelValue, CheckpointRecord, ItemRow, StatePart, StateRecord, VersionRecord, WriteRecord,
    is_control, plain_value,
};
use crate::store::{CheckpointRef, ItemRange, MarkedWrite, Source, Store, StoreError};

use super::entries::ShapedItems;
use crate::history::thread::Thread;

/// The state at one checkpoint. Its values are read when they are asked for.
///
/// Two snapshots are equal if they are of the same checkpoint of the same thread.
#[doc(alias = "StateSnapshot")]
#[derive(Clone)]
pub struct Snapshot {
    store: Store,
    record: Arc<CheckpointRecord>,
}

impl Snapshot {
    pub(crate) fn new(store: Store, record: CheckpointRecord) -> Self {
        Self { store, record: Arc::new(record) }
    }

    /// Makes the snapshot of a checkpoint that must not be pruned.
    pub(crate) fn kept(store: &Store, record: CheckpointRecord) -> Result<Self, StoreError> {
        let point = &record.point;
        if record.pruned {
            return Err(is_pruned(&point.thread, &point.checkpoint));
        }
        Ok(Self::new(store.clone(), record))
    }

    /// Returns the stored record.
    pub fn record(&self) -> &CheckpointRecord {
        &self.record
    }

    /// Returns the reference to it: thread, namespace and checkpoint.
    pub fn point(&self) -> &CheckpointRef {
        &self.record.point
    }

    /// Returns the id of the checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.record.point.checkpoint
    }

    /// Returns the number of the superstep that made it, -1 for the first input.
    pub fn step(&self) -> i64 {
        self.record.step
    }

    /// Returns its source: an input, a superstep, an update or a fork.
    pub fn source(&self) -> Source {
        self.record.source
    }

    /// Returns the time at which it was made.
    pub fn created_at(&self) -> Timestamp {
        self.record.created_at
    }

    /// Returns the nodes that were due after it, one name for each task.
    pub fn next(&self) -> impl Iterator<Item = &str> {
        self.record.tasks.iter().map(|task| &*task.name)
    }

    /// Returns the parent: the checkpoint before it, or the one it was forked off.
    ///
    /// # Errors
    /// [`StoreError::CheckpointPruned`] if the parent was pruned: [`Snapshot::lineage`] goes on with the next kept one;
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn parent(&self) -> Result<Option<Snapshot>, StoreError> {
        let point = match (&self.record.parent, &self.record.forked_from) {
            (Some(parent), _) => CheckpointRef { checkpoint: *parent, ..self.record.point.clone() },
            (None, Some(point)) => point.clone(),
            (None, None) => return Ok(None),
        };
        let record = self.store.backend().checkpoint(&point)?;
        record.map(|record| Self::kept(&self.store, record)).transpose()
    }

    /// Returns the names of the channels that hold something, without those that only trigger nodes.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn channels(&self) -> Result<Vec<Arc<str>>, StoreError> {
        Ok(self.state_record()?.channels.into_iter().filter(holds_state).map(|channel| channel.channel).collect())
    }

    /// Returns the values of all channels that hold something, without those that only trigger nodes. A map without
    /// entries and a text without parts are shown as an empty list.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn values(&self) -> Result<Map, StoreError> {
        let mut values = Map::new();
        let mut list: Option<(String, ShapedItems)> = None;
        self.store.backend().read_state(self.point(), &mut |part| {
            let channel = match part {
                StatePart::Channel(channel) => channel,
                StatePart::Item(row) => {
                    list.iter_mut().try_for_each(|(_, items)| items.add(row.position, row.payload))?;
                    return Ok(true);
                }
                _ => return Ok(true),
            };
            values.extend(list.take().map(|(name, items)| (name, items.into_value())));
            let shown = holds_state(channel);
            match &channel.value {
                ChannelValue::Items if shown => list = Some((channel.channel.to_string(), ShapedItems::new())),
                ChannelValue::Value(payload) if shown => {
                    _ = values.insert(channel.channel.to_string(), plain_value(payload.as_ref())?);
                }
                _ => {}
            }
            Ok(shown)
        })?;
        values.extend(list.map(|(name, items)| (name, items.into_value())));
        Ok(values)
    }

    /// Returns the value of one channel, `None` if it holds nothing.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    pub fn get(&self, channel: &str) -> Result<Option<Value>, StoreError> {
        let state = self.state_record()?;
        let record = state.channels.iter().find(|record| &*record.channel == channel);
        record.filter(|record| record.value != ChannelValue::Empty).map(|record| self.value_of(record)).transpose()
    }

    /// Returns the number of items of a list channel without reading them, of a map the number of entries, of a text
    /// that of its parts; 0 for other channels.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Log { #[channel(append)] lines: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("t")?;
    /// thread.update(Log::update().lines(["one".to_string(), "two".to_string()]))?;
    /// assert_eq!(thread.at("@")?.len("lines")?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn len(&self, channel: &str) -> Result<u64, StoreError> {
        self.store.backend().list_len(self.point(), channel)
    }

    /// Returns the last `n` items of a list channel, oldest first, without reading the others.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    pub fn tail(&self, channel: &str, n: usize) -> Result<Vec<Value>, StoreError> {
        self.items(channel, ItemRange::Tail(n))
    }

    /// Visits items of a list channel as the log stores them, in order: each with its position, its writer, its encoded
    /// value and its index. Nothing is decoded.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    pub fn visit_items(
        &self,
        channel: &str,
        range: ItemRange,
        mut visit: impl FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.backend().items(self.point(), channel, range, &mut visit)
    }

    /// Visits the versions that the checkpoints of the lineage wrote, of one channel or of all, the newest checkpoint
    /// first, down to the one with the ordinal `down_to`. The visitor returns whether it wants those of older ones.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    pub fn visit_versions(
        &self,
        channel: Option<&str>,
        down_to: u64,
        mut visit: impl FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.store.backend().versions(self.point(), channel, down_to, &mut visit)
    }

    /// Returns items of a list channel, in order. Messages come as objects with `type`, `content` and `id`, entries of
    /// a map as lists of key and value in no particular order ([`Snapshot::entry`]), and the parts of a text as texts.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    pub fn items(&self, channel: &str, range: ItemRange) -> Result<Vec<Value>, StoreError> {
        let mut items = Vec::new();
        self.visit_items(channel, range, |row| {
            items.push(item_value(row.payload)?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Returns the stored writes of its tasks, in the order of (path, task, index).
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn writes(&self) -> Result<Vec<WriteRecord>, StoreError> {
        self.store.backend().writes(self.point())
    }

    /// Starts a new thread with the state of this checkpoint, in O(1): nothing is copied, nothing is overwritten. The
    /// state that subgraphs retain for as long as their thread is taken along when they are called in the new one.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the thread exists already; [`StoreError::Id`]; as
    /// [`Log::submit`](crate::store::log::Log::submit).
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Plan { city: String }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// thread.update(Plan::update().city("Rome"))?;
    ///
    /// let fork = thread.head()?.expect("it was written").fork_to("trip-2")?;
    /// fork.update(Plan::update().city("Oslo"))?;
    /// assert_eq!(fork.with_state::<Plan>().state()?.city, "Oslo");
    /// assert_eq!(thread.with_state::<Plan>().state()?.city, "Rome");
    /// # Ok(())
    /// # }
    /// ```
    pub fn fork_to(&self, thread: impl AsRef<str>) -> Result<Thread, StoreError> {
        Thread::fork_of(self, thread)
    }

    /// Returns the store it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns whether a channel is a list.
    pub(crate) fn holds_list(&self, channel: &str) -> Result<bool, StoreError> {
        let channels = self.state_record()?.channels;
        let found = channels.iter().find(|record| &*record.channel == channel);
        Ok(found.is_some_and(|record| record.value == ChannelValue::Items))
    }

    /// Returns the state as the log stores it: the channels with their versions and encoded values, without the items
    /// of lists, and the names of those that the checkpoint changed.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn state_record(&self) -> Result<StateRecord, StoreError> {
        self.store.backend().state(self.point())
    }

    pub(crate) fn value_of(&self, channel: &ChannelRecord) -> Result<Value, StoreError> {
        match &channel.value {
            ChannelValue::Empty => Ok(Value::Null),
            ChannelValue::Value(payload) => plain_value(payload.as_ref()),
            ChannelValue::Items => {
                let mut items = ShapedItems::new();
                self.visit_items(&channel.channel, ItemRange::All, |row| items.add(row.position, row.payload))?;
                Ok(items.into_value())
            }
        }
    }
}

/// Returns whether a channel belongs to the state and holds something.
pub(crate) fn holds_state(channel: &ChannelRecord) -> bool {
    !is_control(&channel.channel) && channel.value != ChannelValue::Empty
}

/// Decodes an item: a message if the index knows a type, else a plain value.
pub(crate) fn item_value(payload: PayloadRef<'_>) -> Result<Value, StoreError> {
    match item_message(payload)? {
        Some(message) => Ok(Value::Map(message.to_map())),
        None => plain_value(payload),
    }
}

/// Decodes an item if the index knows the type of a message.
pub(crate) fn item_message(payload: PayloadRef<'_>) -> Result<Option<Message>, StoreError> {
    let Some(index) = payload.index.filter(|index| index.kind.is_some()) else { return Ok(None) };
    Message::from_payload(payload).map(Some).map_err(|error| StoreError::Corrupt {
        place: format!("message {}", index.id.unwrap_or("without id")),
        reason: error.to_string(),
    })
}

/// Decodes the value of a write.
pub(crate) fn write_value(value: &WriteValue) -> Result<Value, StoreError> {
    match value {
        WriteValue::Null => Ok(Value::Null),
        WriteValue::One(payload) => plain_value(payload.as_ref()),
        WriteValue::Items(items) => {
            items.iter().map(|item| item_value(item.as_ref())).collect::<Result<_, _>>().map(Value::List)
        }
        WriteValue::Delta(delta) => delta_value(delta),
    }
}

/// Returns the content of a delta, not the list that it makes: the base list, the removed ranges, and the new items.
fn delta_value(delta: &ListDelta) -> Result<Value, StoreError> {
    let range = |range: &Range<u64>| Value::List(vec![range.start.into(), range.end.into()]);
    let item = |(position, item): (&u64, &Payload)| Ok((position.to_string(), item_value(item.as_ref())?));
    let items = delta.positions.iter().zip(&delta.items).map(item).collect::<Result<Map, StoreError>>()?;
    let members = [
        ("namespace", Value::from(delta.of.namespace.as_str())),
        ("checkpoint", Value::from(delta.of.checkpoint.to_string())),
        ("channel", Value::from(&*delta.of.channel)),
        ("removed", Value::List(delta.removed.iter().map(range).collect())),
        ("items", Value::Map(items)),
    ];
    let delta = members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Value::Map([("$delta".to_owned(), Value::Map(delta))].into_iter().collect()))
}

impl ItemRow<'_> {
    /// Returns the item as a dynamic value; a message is a map of its fields.
    ///
    /// # Errors
    /// [`StoreError::Codec`], [`StoreError::Corrupt`].
    pub fn to_value(&self) -> Result<Value, StoreError> {
        item_value(self.payload)
    }
}

impl WriteRecord {
    /// Returns the written value as a dynamic value. Of a list that is told by what differs from a stored one, it is a
    /// map with the member `$delta`: the list, the ranges of positions that are gone, and the items that are new, by
    /// position.
    ///
    /// # Errors
    /// [`StoreError::Codec`], [`StoreError::Corrupt`].
    pub fn to_value(&self) -> Result<Value, StoreError> {
        write_value(&self.value)
    }
}

impl MarkedWrite {
    /// Returns the written value as a dynamic value: [`WriteRecord::to_value`].
    ///
    /// # Errors
    /// [`StoreError::Codec`], [`StoreError::Corrupt`].
    pub fn to_value(&self) -> Result<Value, StoreError> {
        write_value(&self.value)
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.record.point == other.record.point
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("thread", &self.record.point.thread)
            .field("id", &self.record.point.checkpoint)
            .field("step", &self.record.step)
            .field("source", &self.record.source)
            .finish_non_exhaustive()
    }
}
