//! Blame: the checkpoint, step and task that wrote a value, a part of it, or an item of a list.
//!
//! The version of a channel and the row of an item name their checkpoint and task, so a blame reads two checkpoints
//! and no other state. *Absent:* values over time ([`Evolution`](crate::history::Evolution)).

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::{TaskId, Timestamp, Value};
use crate::channel::{ListShape, positions_of};
use crate::store::log::{LogExt, LogReads};
use crate::store::record::{CheckpointRecord, ListChangeOp};
use crate::store::{CheckpointRef, ItemRange, Source, StoreError};

use super::evolution::{Evolution, VersionPlace};
use super::patch::{member, pointer_steps};
use crate::history::read::entries::value_of_key;
use crate::history::read::snapshot::{Snapshot, holds_state, item_value};

/// The writer of a value: the checkpoint that stored it, and the task that wrote it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Blame {
    /// The checkpoint.
    pub point: CheckpointRef,
    /// The `ordinal` of the checkpoint: its distance from the first one of the lineage.
    pub ordinal: u64,
    /// The number of the superstep that made the checkpoint.
    pub step: i64,
    /// The source of the checkpoint.
    pub source: Source,
    /// The timestamp of the checkpoint.
    pub created_at: Timestamp,
    /// The task; `None` of an input or an update without a node.
    pub task: Option<TaskId>,
    /// The node of the task.
    pub node: Option<String>,
    /// The version of the channel; `None` of an item.
    pub version: Option<u64>,
    /// True if the checkpoint was pruned: its state cannot be read, and its task is not known any more.
    pub pruned: bool,
}

/// The place in the log at which a value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteOrigin {
    pub(crate) ordinal: u64,
    /// An index into the tasks of the parent of the checkpoint.
    pub(crate) task: Option<u32>,
    pub(crate) version: Option<u64>,
}

impl WriteOrigin {
    /// Returns the blame of each, in one read of the log.
    pub(crate) fn blames(at: &Snapshot, all: &[Self]) -> Result<Vec<Blame>, StoreError> {
        let mut ordinals: Vec<u64> =
            all.iter().flat_map(|written| [written.ordinal.saturating_sub(1), written.ordinal]).collect();
        ordinals.sort_unstable();
        ordinals.dedup();
        let records = at.store().backend().ancestors(at.point(), &ordinals)?;
        debug_assert_eq!(records.len(), ordinals.len(), "an ordinal has an answer");
        let records: HashMap<u64, CheckpointRecord> =
            ordinals.into_iter().zip(records).filter_map(|(ordinal, record)| Some((ordinal, record?))).collect();
        let blame = |written: &Self| {
            let record = records.get(&written.ordinal).ok_or_else(|| StoreError::Corrupt {
                place: format!("checkpoint {}", at.id()),
                reason: format!("its lineage has no checkpoint with the ordinal {}", written.ordinal),
            })?;
            // The tasks that wrote a version are those of the parent of its checkpoint.
            let parent = written.ordinal.checked_sub(1).and_then(|parent| records.get(&parent));
            let task = written.task.and_then(|task| parent?.tasks.get(task as usize));
            Ok(Blame {
                point: record.point.clone(),
                ordinal: written.ordinal,
                step: record.step,
                source: record.source,
                created_at: record.created_at,
                task: task.map(|task| task.id),
                node: task.map(|task| task.name.to_string()),
                version: written.version,
                pruned: record.pruned,
            })
        };
        all.iter().map(blame).collect()
    }

    fn blame(self, at: &Snapshot) -> Result<Option<Blame>, StoreError> {
        Ok(Self::blames(at, &[self])?.pop())
    }
}

/// The writers of a channel at a checkpoint, read on demand ([`Snapshot::blame`]).
#[derive(Clone, Copy, Debug)]
pub struct ChannelBlame<'s> {
    at: &'s Snapshot,
    channel: &'s str,
}

impl Snapshot {
    /// Returns the writer of the present value of each channel that holds something, without those that only trigger
    /// nodes.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn blames(&self) -> Result<Vec<(Arc<str>, Blame)>, StoreError> {
        let channels: Vec<_> = self.state_record()?.channels.into_iter().filter(holds_state).collect();
        let written = channels.iter().map(|channel| WriteOrigin {
            ordinal: channel.ordinal,
            task: channel.task,
            version: Some(channel.version),
        });
        let blames = WriteOrigin::blames(self, &written.collect::<Vec<_>>())?;
        Ok(channels.into_iter().map(|channel| channel.channel).zip(blames).collect())
    }

    /// Asks for the writers of a channel: of its value, of a part of it, or of an item.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use serde_json::json;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Order {
    /// #     #[channel(messages)]
    /// #     messages: Messages,
    /// #     receipt: Value,
    /// # }
    /// # fn main() -> Result<()> {
    /// let order = Store::memory().thread("order")?;
    /// let offer = Order::update().receipt(Value::from(json!({"price": 10, "paid": false})));
    /// order.update(offer.messages([Message::human("Two nights").with_id("1")]))?;
    /// let paid = Order::update().receipt(Value::from(json!({"price": 10, "paid": true})));
    /// order.update(paid.messages([Message::ai("Booked").with_id("2")]))?;
    ///
    /// let head = order.at("@")?;
    /// let step = |blame: Option<annals::history::Blame>| blame.expect("it was written").step;
    /// assert_eq!(step(head.blame("receipt").value()?), 1);
    /// assert_eq!(step(head.blame("receipt").path("/price")?), 0);
    /// assert_eq!(step(head.blame("messages").item("1")?), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn blame<'s>(&'s self, channel: &'s str) -> ChannelBlame<'s> {
        ChannelBlame { at: self, channel }
    }

    /// Returns the position of the item with an id in the index, as messages have; `None` if the list has none.
    pub(crate) fn position_of(&self, channel: &str, id: &str) -> Result<Option<u64>, StoreError> {
        let mut position = None;
        self.store().backend().find_item(self.point(), channel, id, &mut |row| {
            position = Some(row.position);
            Ok(())
        })?;
        Ok(position)
    }

    /// Returns the position at which an item with an id is, or was on the lineage of this checkpoint.
    pub(crate) fn past_position_of(&self, channel: &str, id: &str) -> Result<Option<u64>, StoreError> {
        if let Some(position) = self.position_of(channel, id)? {
            return Ok(Some(position));
        }
        let changes = self.store().backend().search_list(self.point(), channel, id)?;
        let has_id = |op: &ListChangeOp| match op {
            ListChangeOp::Match(payload) => payload.as_ref().index.is_some_and(|index| index.id == Some(id)),
            ListChangeOp::Other | ListChangeOp::Delete => false,
        };
        Ok(changes.iter().rev().find(|change| has_id(&change.op)).map(|change| change.positions.start))
    }
}

/// Ends a visit of items; it is never returned.
fn found_it() -> StoreError {
    StoreError::Read { reason: "the item is found".into(), source: None }
}

impl ChannelBlame<'_> {
    /// Returns the writer of the present value, or of the last change of the list; `None` if the channel holds nothing.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn value(&self) -> Result<Option<Blame>, StoreError> {
        let channels = self.at.state_record()?.channels;
        let channel = channels.into_iter().find(|channel| &*channel.channel == self.channel);
        let channel = channel.filter(|channel| channel.value != crate::store::record::ChannelValue::Empty);
        let written = |channel: crate::store::record::ChannelRecord| WriteOrigin {
            ordinal: channel.ordinal,
            task: channel.task,
            version: Some(channel.version),
        };
        channel.map(written).map_or(Ok(None), |written| written.blame(self.at))
    }

    /// Returns the writer of the present content of the item with an id, as messages have; `None` if the list has none.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn item(&self, id: &str) -> Result<Option<Blame>, StoreError> {
        let mut written = None;
        self.at.store().backend().find_item(self.at.point(), self.channel, id, &mut |row| {
            written = Some(WriteOrigin { ordinal: row.ordinal, task: row.task, version: None });
            Ok(())
        })?;
        written.map_or(Ok(None), |written| written.blame(self.at))
    }

    /// Returns the writer of the present value of a key of a map channel; `None` if the map does not have it.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    pub fn entry(&self, key: &str) -> Result<Option<Blame>, StoreError> {
        let (positions, mut written) = (positions_of(key), None);
        let range = ItemRange::Positions(positions.start, positions.end);
        self.at.visit_items(self.channel, range, |row| {
            if value_of_key(item_value(row.payload)?, key).is_some() {
                written = Some(WriteOrigin { ordinal: row.ordinal, task: row.task, version: None });
            }
            Ok(())
        })?;
        written.map_or(Ok(None), |written| written.blame(self.at))
    }

    /// Returns the writer of the item at a position of the list; `None` if it holds none. A position is the index of an
    /// item unless items before it were removed ([`ItemRow`](crate::store::record::ItemRow)).
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn position(&self, position: u64) -> Result<Option<Blame>, StoreError> {
        let mut written = None;
        let range = ItemRange::Positions(position, position.saturating_add(1));
        self.at.visit_items(self.channel, range, |row| {
            written = Some(WriteOrigin { ordinal: row.ordinal, task: row.task, version: None });
            Ok(())
        })?;
        written.map_or(Ok(None), |written| written.blame(self.at))
    }

    /// Returns the writer of the part of the value at a JSON Pointer (RFC 6901): the checkpoint from which on it has
    /// its present value; `None` if there is none. The first step into a list channel is the index of an item, and into
    /// a map channel a key.
    ///
    /// The values before are read up to that checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the path is not a JSON Pointer; as [`Snapshot::values`].
    pub fn path(&self, pointer: &str) -> Result<Option<Blame>, StoreError> {
        let wrong = |reason: &str| StoreError::Invalid { field: "path", reason: format!("{pointer:?}: {reason}") };
        let steps = pointer_steps(pointer).map_err(wrong)?;
        let (place, steps) = match (self.at.holds_list(self.channel)?, steps.split_first()) {
            (true, Some((step, rest))) => match self.at.shape(self.channel)? {
                ListShape::Map => (VersionPlace::Entry(step.to_string()), rest),
                ListShape::Text => return Ok(None),
                ListShape::List => match self.position_of_index(step)? {
                    Some(position) => (VersionPlace::Item(position), rest),
                    None => return Ok(None),
                },
            },
            (true, None) => return self.value(),
            (false, _) => (VersionPlace::Channel, &steps[..]),
        };
        let part = |value: &Option<Value>| -> Option<Value> {
            steps.iter().try_fold(value.as_ref()?, |value, step| member(value, step)).cloned()
        };
        let mut versions = Evolution::new(self.at, self.channel, place);
        let (mut present, mut writer) = (None, None);
        while let Some(version) = versions.next_version()? {
            let found = part(&version.value);
            if writer.is_some() && found != present {
                break;
            }
            if found.is_none() {
                return Ok(None);
            }
            present = found;
            writer = Some(version.written);
        }
        writer.map_or(Ok(None), |written| written.blame(self.at))
    }

    /// Returns the position of the item with an index.
    fn position_of_index(&self, index: &str) -> Result<Option<u64>, StoreError> {
        let Ok(index) = index.parse::<u64>() else { return Ok(None) };
        let len = self.at.len(self.channel)?;
        if index >= len {
            return Ok(None);
        }
        let mut position = None;
        let wanted = usize::try_from(len - index).unwrap_or(usize::MAX);
        let visited = self.at.visit_items(self.channel, ItemRange::Tail(wanted), |row| {
            position = Some(row.position);
            Err(found_it())
        });
        if position.is_none() {
            visited?;
        }
        Ok(position)
    }
}
