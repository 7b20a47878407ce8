//! Reads of single checkpoints, and the histories of delta channels.
//!
//! *Absent:* listings.

use std::collections::{BTreeMap, HashSet};

use annals::store::batch::{Payload, WriteValue};
use annals::store::log::LogExt;
use annals::store::record::{ChannelValue, StoredHead, WriteRecord};
use annals::store::{CheckpointRef, ItemRange, StoreError};
use annals_base::Encoded;
use annals_base::limits::MAP_POSITION_MIN;

use crate::aside::{Aside, AsideIndex};
use crate::inner::{FoundPlace, SaverInner};
use crate::notes::{Notes, plain_id};
use crate::place::SaverPlace;
use crate::state::LoadedCheckpoint;
use crate::writes::pending;
use crate::{Config, DeltaHistory, ListQuery, Reread, Result, Saver, SaverWrite, StoredValue, Tuple, Typed};

/// The ancestors of which the writes of a channel are still collected.
struct Collected {
    history: DeltaHistory,
    /// The writes of each ancestor, the nearest first.
    nearest_first: Vec<Vec<SaverWrite>>,
    is_done: bool,
}

impl SaverInner {
    /// Stores what is buffered of a thread and waits for what is submitted, so that a read sees it.
    pub(crate) fn catch_up(&self, place: &SaverPlace) -> Result<()> {
        self.flush(Some(&place.thread))?;
        self.settle(Some(&place.thread));
        Ok(())
    }

    /// Returns the writes of a checkpoint, with those whole that a graph of annals tells by a stored list.
    fn writes(&self, at: &CheckpointRef) -> Result<Vec<WriteRecord>> {
        let mut records = self.backend().writes(at)?;
        for record in &mut records {
            let WriteValue::Delta(delta) = &record.value else { continue };
            let list = CheckpointRef::new(at.thread.clone(), delta.of.namespace.clone(), delta.of.checkpoint);
            let mut items: BTreeMap<u64, Payload> = BTreeMap::new();
            self.backend().items(&list, &delta.of.channel, ItemRange::All, &mut |row| {
                if !delta.removed.iter().any(|range| range.contains(&row.position)) {
                    items.insert(row.position, row.payload.to_payload());
                }
                Ok(())
            })?;
            items.extend(delta.positions.iter().copied().zip(delta.items.iter().cloned()));
            record.value = WriteValue::Items(items.into_values().collect());
        }
        Ok(records)
    }

    /// Makes a tuple of a checkpoint that was read. `place` and `id` are those that LangGraph knows.
    pub(crate) fn tuple(
        &self,
        config: Config,
        index: &AsideIndex,
        notes: Notes,
        loaded: LoadedCheckpoint,
    ) -> Result<Tuple> {
        let writes = pending(self.writes(&loaded.record.point)?)?;
        let is_kept = |parent: &String| index.find(&config.namespace, parent) != Aside::Pruned;
        let parent = notes.parent.filter(is_kept).map(|parent| config.at(parent));
        let LoadedCheckpoint { record, state, mut values, .. } = loaded;
        for (name, value) in &mut values {
            let slots = state.channels.get(name).map(|channel| channel.content.slots()).unwrap_or_default();
            if slots.last().is_some_and(|slot| slot.position >= MAP_POSITION_MIN) {
                // The map or the text of a graph of annals, whose items are its entries or parts.
                let thread = self.store.thread(&record.point.thread)?.with_namespace(record.point.namespace.clone());
                let whole = thread.at(record.point.checkpoint)?.get(name)?.unwrap_or_default();
                let encoded = Encoded::encode(&whole).map_err(StoreError::from)?;
                *value = StoredValue::Typed(Typed::msgpack(encoded.bytes));
            }
        }
        Ok(Tuple {
            v: notes.v,
            ts: notes.ts,
            versions: state.versions(notes.form),
            seen: state.seen(notes.form),
            updated: notes.updated,
            extra: notes.extra,
            values: values.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
            metadata: notes.metadata,
            parent,
            writes,
            config,
        })
    }

    /// Reads a checkpoint that was found.
    pub(crate) fn read(&self, config: Config, index: &AsideIndex, at: &CheckpointRef) -> Result<Option<Tuple>> {
        let Some(loaded) = self.load(at)? else { return Ok(None) };
        let notes = Notes::read(&loaded.record, || loaded.updated.clone())?;
        self.tuple(config, index, notes, loaded).map(Some)
    }
}

impl Saver {
    /// Returns the place of the newest checkpoint of a namespace, with its id.
    fn newest(
        &self,
        config: &Config,
        place: &SaverPlace,
        index: &AsideIndex,
        head: Option<&StoredHead>,
    ) -> Result<Option<(String, CheckpointRef)>> {
        if index.is_empty() {
            return Ok(head.map(|head| (head.checkpoint.to_string(), place.at(head.checkpoint))));
        }
        let mut query = ListQuery::of_namespace(&*config.thread, &*config.namespace);
        query.limit = Some(1);
        self.list(query)?.next_place()
    }

    /// Returns the checkpoint with the id of the config, or the newest one of the namespace if it has none: the one
    /// with the greatest id, unless an undo or a rewind moved the head. `None` if there is none.
    ///
    /// # Errors
    /// [`SaverError::Store`](crate::SaverError::Store); an error of earlier writes of the thread.
    pub fn tuple(&self, config: &Config) -> Result<Option<Tuple>> {
        // No checkpoint has an empty id, so none is the known one.
        match self.reread(config, "")? {
            Reread::Other(tuple) => Ok(Some(*tuple)),
            Reread::Absent | Reread::Known(_) => Ok(None),
        }
    }

    /// Reads a checkpoint as [`Saver::tuple`], unless it is the one with the id `known`, of which the pending writes
    /// alone are read: for a caller that caches the newest checkpoint.
    ///
    /// # Errors
    /// As [`Saver::tuple`].
    pub fn reread(&self, config: &Config, known: &str) -> Result<Reread> {
        let inner = self.inner();
        let place = SaverPlace::new(&config.thread, &config.namespace)?;
        inner.catch_up(&place)?;
        let (index, head) = inner.index_and_head(&place)?;
        let found = match config.checkpoint() {
            None => {
                let newest = self.newest(config, &place, &index, head.as_ref())?;
                inner.hand_out(&place, newest.as_ref().and_then(|(id, _)| plain_id(id)));
                newest
            }
            Some(id) => {
                inner.asked_for(&place, plain_id(id));
                match inner.find(&place, &index, id)? {
                    FoundPlace::At(at) => Some((id.to_owned(), at)),
                    FoundPlace::Nowhere | FoundPlace::Deleted => None,
                }
            }
        };
        let Some((id, at)) = found else { return Ok(Reread::Absent) };
        // A checkpoint that is stored aside may be another one under the same id.
        if id == known && at.namespace == place.namespace {
            return Ok(Reread::Known(pending(inner.writes_beside(&at, &place, head)?)?));
        }
        let tuple = inner.read(config.at(id), &index, &at)?;
        Ok(tuple.map_or(Reread::Absent, |tuple| Reread::Other(Box::new(tuple))))
    }

    /// Returns for each channel the writes of the ancestors of a checkpoint, back to the nearest one that holds a
    /// value of the channel. The writes of the checkpoint itself are not among them; a channel that is named twice
    /// counts once.
    ///
    /// # Errors
    /// As [`Saver::tuple`].
    pub fn delta_history(&self, config: &Config, channels: &[&str]) -> Result<Vec<DeltaHistory>> {
        let mut collected: Vec<Collected> = Vec::new();
        for channel in channels {
            if !collected.iter().any(|other| other.history.channel == *channel) {
                let history = DeltaHistory { channel: (*channel).to_owned(), ..DeltaHistory::default() };
                collected.push(Collected { history, nearest_first: Vec::new(), is_done: false });
            }
        }
        let inner = self.inner();
        let place = SaverPlace::new(&config.thread, &config.namespace)?;
        inner.catch_up(&place)?;
        let (index, head) = inner.index_and_head(&place)?;
        let target = match config.checkpoint() {
            Some(id) => match inner.find(&place, &index, id)? {
                FoundPlace::At(at) => Some((id.to_owned(), at)),
                FoundPlace::Nowhere | FoundPlace::Deleted => None,
            },
            None => self.newest(config, &place, &index, head.as_ref())?,
        };
        let (mut visited, mut next) = (HashSet::new(), None);
        if let Some((id, at)) = target {
            visited.insert(id);
            next = self.parent_of(&at)?;
        }
        while let Some(id) = next.filter(|id| visited.insert(id.clone())) {
            if collected.iter().all(|channel| channel.is_done) {
                break;
            }
            let FoundPlace::At(at) = inner.find(&place, &index, &id)? else { break };
            self.collect(&at, &mut collected)?;
            next = self.parent_of(&at)?;
        }
        let whole = |channel: Collected| DeltaHistory {
            writes: channel.nearest_first.into_iter().rev().flatten().collect(),
            ..channel.history
        };
        Ok(collected.into_iter().map(whole).collect())
    }

    /// Returns the id of the parent of a checkpoint, as LangGraph knows it.
    fn parent_of(&self, at: &CheckpointRef) -> Result<Option<String>> {
        match self.inner().backend().checkpoint(at)? {
            Some(record) if !record.pruned => Ok(Notes::read(&record, Vec::new)?.parent),
            _ => Ok(None),
        }
    }

    /// Adds the writes of an ancestor, and its values.
    fn collect(&self, at: &CheckpointRef, collected: &mut [Collected]) -> Result<()> {
        let backend = self.inner().backend();
        let writes = pending(self.inner().writes(at)?)?;
        let state = backend.state(at)?;
        let holds = |channel: &Collected| {
            let record = state.channels.iter().find(|record| *record.channel == *channel.history.channel);
            record.is_some_and(|record| record.value != ChannelValue::Empty)
        };
        let mut seeds = None;
        for channel in collected.iter_mut().filter(|channel| !channel.is_done) {
            let of_channel = writes.iter().filter(|write| *write.channel == *channel.history.channel);
            channel.nearest_first.push(of_channel.cloned().collect());
            if !holds(channel) {
                continue;
            }
            if seeds.is_none() {
                let loaded = self.inner().load(at)?;
                let missing =
                    || StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() };
                seeds = Some(loaded.ok_or_else(missing)?.values);
            }
            let seed = seeds.iter().flatten().find(|(name, _)| **name == *channel.history.channel);
            channel.history.seed = seed.map(|(_, value)| value.clone());
            channel.is_done = true;
        }
        Ok(())
    }
}
