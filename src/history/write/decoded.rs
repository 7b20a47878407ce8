//! The decoded state of a checkpoint, and the changes that an update makes of it.
//!
//! Everything here works on a [`Layout`], so that nothing is compiled once per state type. Invariant: a head whose
//! update failed is dropped. *Absent:* commits, and the types of states.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{CheckpointId, Namespace, Payload};
use crate::channel::{ChannelEffect, ListChange, ListOp};
use crate::error::Error;
use crate::state::{BoxWrite, FieldKind, Layout, ListLoader, StateError, StateRef};
use crate::store::batch::{Change, ChangeValue, Data, ItemChange, ItemOp};
use crate::store::log::{LogExt, StateQuery};
use crate::store::record::{ChannelRecord, ChannelValue, CheckpointRecord, ItemRow, StatePart, TaskRecord};
use crate::store::{CheckpointRef, Store, StoreError};

/// The memory of a list item besides its bytes, roughly.
const ITEM_OVERHEAD_BYTES: usize = 256;

/// The stored content of a channel, as [`DecodedHead::read_ends`] meets it.
pub(crate) enum FoundContent<'a> {
    /// A value.
    Value,
    /// A list without items.
    NoItems,
    /// The first item that is read of a list.
    Item(&'a ItemRow<'a>),
}

/// The state of a checkpoint, decoded by one layout.
pub(crate) struct DecodedHead {
    /// The checkpoint; `None` on a new thread.
    pub(crate) checkpoint: Option<CheckpointId>,
    /// The step of the checkpoint, -2 on a new thread.
    pub(crate) step: i64,
    /// The tasks that are due after the checkpoint.
    pub(crate) tasks: Vec<TaskRecord>,
    /// The checkpoints of the parent graphs, outermost first.
    pub(crate) parents: Arc<[(Namespace, CheckpointId)]>,
    /// The state, an instance of the layout.
    pub(crate) state: StateRef,
    /// The approximate size of the state in memory.
    pub(crate) bytes: usize,
    /// For each field, whether its channel holds something.
    present: Vec<bool>,
    /// The list fields that are stored as one value, by a schema before: their first change stores all items.
    stored_whole: Vec<usize>,
    /// The greatest version of any channel, those included that the layout does not know.
    version_max: u64,
}

impl DecodedHead {
    /// Returns the head of a thread without checkpoints.
    pub(crate) fn empty(layout: &dyn Layout) -> Self {
        Self {
            checkpoint: None,
            step: -2,
            tasks: Vec::new(),
            parents: [].into(),
            state: layout.initial(),
            bytes: 0,
            present: (0..layout.len()).map(|field| layout.starts_present(field)).collect(),
            stored_whole: Vec::new(),
            version_max: 0,
        }
    }

    /// Reads and decodes the state of a checkpoint in one transaction. Channels that the layout does not know are not
    /// decoded.
    ///
    /// # Errors
    /// [`StateError`] if a stored value does not fit its field; as
    /// [`LogExt::read_state`](crate::store::log::LogExt::read_state).
    pub(crate) fn read(layout: &dyn Layout, store: &Store, record: &CheckpointRecord) -> Result<Self, Error> {
        let mut head = Self::of(layout, record);
        let (mut list, mut loader, mut failed) = (None, None, None);
        let visited = store.backend().read_state(&record.point, &mut |part| {
            let decoded = match part {
                StatePart::Channel(channel) => {
                    head.finish_list(loader.take());
                    head.read_channel(layout, channel).map(|field| list = field)
                }
                StatePart::Item(row) => list.map_or(Ok(()), |field| head.read_item(layout, field, &mut loader, row)),
                _ => Ok(()),
            };
            decoded.map_err(|error| end_visit(error, &mut failed))?;
            Ok(list.is_some())
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        visited?;
        head.finish_list(loader);
        debug_assert_eq!(head.present.len(), layout.len(), "each field has its flag after a load");
        Ok(head)
    }

    /// Reads the channels of a checkpoint that the layout knows, in one read: of the lists in `whole` all items, of the
    /// others the last one, behind which others are appended. `admit` sees the content of each channel before it is
    /// decoded.
    ///
    /// # Errors
    /// As [`DecodedHead::read`]; and what `admit` returns.
    pub(crate) fn read_ends(
        layout: &dyn Layout,
        store: &Store,
        at: &CheckpointRef,
        whole: &[&str],
        admit: &mut dyn FnMut(&str, FoundContent<'_>) -> Result<(), StoreError>,
    ) -> Result<Self, Error> {
        let mut head = Self::empty(layout);
        // The list that is read, and whether it has had an item.
        let mut list: Option<(Arc<str>, usize, bool)> = None;
        let (mut loader, mut failed) = (None, None);
        let visited = store.backend().read(at, &StateQuery::Ends(whole), &mut |part| {
            let decode = || -> Result<bool, Error> {
                match part {
                    StatePart::Record(record) => head.begin(&record.checkpoint),
                    StatePart::Channel(channel) => {
                        if let Some((name, ..)) = list.take().filter(|(.., has_items)| !has_items) {
                            admit(&name, FoundContent::NoItems)?;
                        }
                        head.finish_list(loader.take());
                        if matches!(channel.value, ChannelValue::Value(_)) {
                            admit(&channel.channel, FoundContent::Value)?;
                        }
                        let field = head.read_channel(layout, channel)?;
                        list = field.map(|field| (Arc::clone(&channel.channel), field, false));
                    }
                    StatePart::Item(row) => {
                        let Some((name, field, has_items)) = &mut list else { return Ok(false) };
                        if !std::mem::replace(has_items, true) {
                            admit(name, FoundContent::Item(&row))?;
                        }
                        head.read_item(layout, *field, &mut loader, row)?;
                    }
                    _ => {}
                }
                Ok(list.is_some())
            };
            decode().map_err(|error| {
                failed = Some(error);
                StoreError::Invalid { field: "state", reason: "it does not fit".into() }
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        visited?;
        if let Some((name, ..)) = list.filter(|(.., has_items)| !has_items) {
            admit(&name, FoundContent::NoItems)?;
        }
        head.finish_list(loader);
        Ok(head)
    }

    /// Returns the head at a checkpoint, before its channels are read.
    fn of(layout: &dyn Layout, record: &CheckpointRecord) -> Self {
        let mut head = Self::empty(layout);
        head.begin(record);
        head
    }

    /// Takes over what the record of the checkpoint says.
    fn begin(&mut self, record: &CheckpointRecord) {
        self.checkpoint = Some(record.point.checkpoint);
        (self.step, self.tasks, self.parents) = (record.step, record.tasks.clone(), Arc::clone(&record.parents));
    }

    /// Decodes a channel, and returns its field if its items are to follow.
    fn read_channel(&mut self, layout: &dyn Layout, channel: &ChannelRecord) -> Result<Option<usize>, StateError> {
        self.version_max = self.version_max.max(channel.version);
        let is_named = |field: &usize| **layout.name(*field) == *channel.channel;
        let is_stored = |field: &usize| !matches!(layout.kind(*field), FieldKind::Managed | FieldKind::Untracked);
        let Some(field) = (0..layout.len()).filter(is_stored).find(is_named) else { return Ok(None) };
        self.present[field] = channel.value != ChannelValue::Empty;
        match &channel.value {
            ChannelValue::Empty => Ok(None),
            ChannelValue::Items => Ok(Some(field)),
            ChannelValue::Value(payload) => {
                self.bytes += payload.len();
                if layout.kind(field) == FieldKind::List {
                    self.stored_whole.push(field);
                }
                layout.load(&mut self.state, field, payload.as_ref()).map(|()| None)
            }
        }
    }

    /// Decodes an item of a list; the first one makes the loader of the list.
    fn read_item<'a>(
        &mut self,
        layout: &'a dyn Layout,
        field: usize,
        loader: &mut Option<Box<dyn ListLoader + 'a>>,
        row: ItemRow<'_>,
    ) -> Result<(), StateError> {
        let text = row.payload.index.and_then(|index| index.text).map_or(0, str::len);
        self.bytes += row.payload.data.len() + text + ITEM_OVERHEAD_BYTES;
        let loader = match loader {
            Some(loader) => loader,
            None => loader.insert(layout.load_list(field)?),
        };
        loader.item(row.position, row.payload)
    }

    /// Adds the items of a list that was read to the state.
    fn finish_list(&mut self, loader: Option<Box<dyn ListLoader + '_>>) {
        if let Some(loader) = loader {
            loader.finish(&mut self.state);
        }
    }

    /// Applies writes as one superstep of a graph does, and returns the channels that changed.
    ///
    /// # Errors
    /// [`StateError`] if the writes break the rule of a channel, or a reducer fails. The head must then be dropped.
    pub(crate) fn apply(
        &mut self,
        layout: &dyn Layout,
        writes: Vec<(usize, BoxWrite)>,
    ) -> Result<Vec<Change>, StateError> {
        let mut by_field: BTreeMap<usize, Vec<BoxWrite>> = BTreeMap::new();
        for (field, write) in writes {
            by_field.entry(field).or_default().push(write);
        }
        let idle = (0..layout.len()).filter(|field| layout.may_idle(*field) && !by_field.contains_key(field));
        let idle: Vec<usize> = idle.collect();
        let version = self.version_max + 1;
        let mut changes = Vec::with_capacity(by_field.len());
        for (field, writes) in by_field {
            let effect = layout.update(&mut self.state, field, &mut self.present[field], writes)?;
            if let Some(value) = self.changed(layout, field, effect)? {
                changes.push(Change::new(Arc::clone(layout.name(field)), version, value));
            }
        }
        for field in idle {
            let effect = layout.idle(&mut self.state, field, &mut self.present[field]);
            if let Some(value) = self.changed(layout, field, effect)? {
                changes.push(Change::new(Arc::clone(layout.name(field)), version, value));
            }
        }
        debug_assert_eq!(self.present.len(), layout.len(), "each field has its flag");
        if !changes.is_empty() {
            self.version_max = version;
        }
        Ok(changes)
    }

    /// Returns the change to record for a field; `None` if it did not change or is not stored.
    fn changed(
        &mut self,
        layout: &dyn Layout,
        field: usize,
        effect: ChannelEffect,
    ) -> Result<Option<ChangeValue>, StateError> {
        if layout.kind(field) == FieldKind::Untracked {
            return Ok(None);
        }
        Ok(match effect {
            ChannelEffect::Unchanged => None,
            ChannelEffect::Cleared => Some(ChangeValue::Empty),
            ChannelEffect::TookWrite(_) | ChannelEffect::Computed => {
                let payload = layout.encode(&self.state, field)?;
                Some(ChangeValue::Value(Data::New(self.counted(payload, 0))))
            }
            ChannelEffect::Items(items) => {
                let whole = self.stored_whole.iter().position(|of| *of == field);
                let items = match whole.map(|at| self.stored_whole.swap_remove(at)) {
                    Some(_) => all_put(layout.positions(&self.state, field)),
                    None => items,
                };
                let items = items.into_iter().map(|change| self.item(layout, field, change));
                Some(ChangeValue::Items(items.collect::<Result<_, _>>()?))
            }
            ChannelEffect::Shared(_) => unreachable!("an update holds no list of another graph"),
        })
    }

    fn item(&mut self, layout: &dyn Layout, field: usize, change: ListChange) -> Result<ItemChange, StateError> {
        let op = match change.op {
            ListOp::Put { .. } => {
                let payload = layout.encode_item(&self.state, field, change.position)?;
                ItemOp::Put(Data::New(self.counted(payload, ITEM_OVERHEAD_BYTES)))
            }
            ListOp::Delete => ItemOp::Delete,
            ListOp::DeleteRange { end } => ItemOp::DeleteRange { end },
        };
        Ok(ItemChange::new(change.position, op, None))
    }

    fn counted(&mut self, payload: Payload, overhead: usize) -> Payload {
        self.bytes += payload.len() + overhead;
        payload
    }

    /// Empties the untracked channels: their values last for one update.
    pub(crate) fn reset_untracked(&mut self, layout: &dyn Layout) {
        for field in (0..layout.len()).filter(|field| layout.kind(*field) == FieldKind::Untracked) {
            if self.present[field] {
                layout.reset(&mut self.state, field);
                self.present[field] = layout.starts_present(field);
            }
        }
    }
}

/// Returns an error that ends a visit of rows; the caller returns the error itself, which is retained in `failed`.
fn end_visit(error: StateError, failed: &mut Option<StateError>) -> StoreError {
    let reason = error.to_string();
    *failed = Some(error);
    StoreError::Invalid { field: "state", reason }
}

/// Returns the changes that put an item at each position.
fn all_put(positions: Vec<u64>) -> Vec<ListChange> {
    debug_assert!(positions.is_sorted_by(|a, b| a < b), "an item has a position of its own");
    let put = |position| ListChange { position, op: ListOp::Put { write: 0, part: 0 } };
    positions.into_iter().map(put).collect()
}
