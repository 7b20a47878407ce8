//! Reads of single checkpoints, and the histories of delta channels.
//!
//! *Absent:* listings.

use std::collections::HashSet;

use annals::store::{ChannelValue, CheckpointRef, StoreError};

use crate::aside::{Aside, Index};
use crate::inner::{Found, Inner};
use crate::notes::{Notes, plain_id};
use crate::place::Place;
use crate::state::{Loaded, load};
use crate::writes::pending;
use crate::{Config, DeltaHistory, ListQuery, PendingWrite, Reread, Result, Saver, Tuple};

/// The ancestors of which the writes of a channel are still collected.
struct Collected {
    history: DeltaHistory,
    /// The writes of each ancestor, the nearest first.
    nearest_first: Vec<Vec<PendingWrite>>,
    is_done: bool,
}

impl Inner {
    /// Stores what is buffered of a thread and waits for what is submitted, so that a read sees it.
    pub(crate) fn catch_up(&self, place: &Place) -> Result<()> {
        self.flush(Some(&place.thread))?;
        self.settle(Some(&place.thread));
        Ok(())
    }

    /// Makes a tuple of a checkpoint that was read. `place` and `id` are those that LangGraph knows.
    pub(crate) fn tuple(&self, config: Config, index: &Index, notes: Notes, loaded: Loaded) -> Result<Tuple> {
        let writes = pending(self.backend().writes(&loaded.record.point)?)?;
        let is_kept = |parent: &String| index.find(&config.namespace, parent) != Aside::Pruned;
        let parent = notes.parent.filter(is_kept).map(|parent| config.at(parent));
        let Loaded { state, values, .. } = loaded;
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
    pub(crate) fn read(&self, config: Config, index: &Index, at: &CheckpointRef) -> Result<Option<Tuple>> {
        let Some(loaded) = load(self.backend(), at)? else { return Ok(None) };
        let notes = Notes::read(&loaded.record, || loaded.updated.clone())?;
        self.tuple(config, index, notes, loaded).map(Some)
    }
}

impl Saver {
    /// Returns the place of the newest checkpoint of a namespace, with its id.
    fn newest(&self, config: &Config, place: &Place, index: &Index) -> Result<Option<(String, CheckpointRef)>> {
        let inner = self.inner();
        if index.is_empty() {
            let head = inner.stored_head(&place.thread, &place.namespace)?;
            return Ok(head.map(|head| (head.to_string(), place.at(head))));
        }
        let mut query = ListQuery::of_namespace(&*config.thread, &*config.namespace);
        query.limit = Some(1);
        self.list(query)?.next_place()
    }

    /// Returns the checkpoint with the id of the config, or the newest one of the namespace if it has none: the one with
    /// the greatest id, unless an undo or a rewind moved the head. `None` if there is none.
    ///
    /// # Errors
    /// [`SaverError::Store`](crate::SaverError::Store); an error of earlier writes of the thread.
    pub fn tuple(&self, config: &Config) -> Result<Option<Tuple>> {
        let inner = self.inner();
        let place = Place::new(&config.thread, &config.namespace)?;
        inner.catch_up(&place)?;
        let index = inner.index(&place.thread)?;
        let Some(id) = config.checkpoint() else {
            let newest = self.newest(config, &place, &index)?;
            inner.hand_out(&place, newest.as_ref().and_then(|(id, _)| plain_id(id)));
            let Some((id, at)) = newest else { return Ok(None) };
            return inner.read(config.at(id), &index, &at);
        };
        inner.asked_for(&place, plain_id(id));
        match inner.find(&place, &index, id)? {
            Found::At(at) => inner.read(config.clone(), &index, &at),
            Found::Nowhere | Found::Deleted => Ok(None),
        }
    }

    /// Reads a checkpoint as [`Saver::tuple`], unless it is the one with the id `known`, of which the pending writes alone
    /// are read: for a caller that caches the newest checkpoint.
    ///
    /// # Errors
    /// As [`Saver::tuple`].
    pub fn reread(&self, config: &Config, known: &str) -> Result<Reread> {
        let inner = self.inner();
        let place = Place::new(&config.thread, &config.namespace)?;
        inner.catch_up(&place)?;
        let index = inner.index(&place.thread)?;
        let found = match config.checkpoint() {
            None => {
                let newest = self.newest(config, &place, &index)?;
                inner.hand_out(&place, newest.as_ref().and_then(|(id, _)| plain_id(id)));
                newest
            }
            Some(id) => {
                inner.asked_for(&place, plain_id(id));
                match inner.find(&place, &index, id)? {
                    Found::At(at) => Some((id.to_owned(), at)),
                    Found::Nowhere | Found::Deleted => None,
                }
            }
        };
        let Some((id, at)) = found else { return Ok(Reread::Absent) };
        // A checkpoint that is stored aside may be another one under the same id.
        if id == known && at.namespace == place.namespace {
            return Ok(Reread::Known(pending(inner.backend().writes(&at)?)?));
        }
        let tuple = inner.read(config.at(id), &index, &at)?;
        Ok(tuple.map_or(Reread::Absent, |tuple| Reread::Other(Box::new(tuple))))
    }

    /// Returns for each channel the writes of the ancestors of a checkpoint, back to the nearest one that holds a value
    /// of the channel. The writes of the checkpoint itself are not among them; a channel that is named twice counts
    /// once.
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
        let place = Place::new(&config.thread, &config.namespace)?;
        inner.catch_up(&place)?;
        let index = inner.index(&place.thread)?;
        let target = match config.checkpoint() {
            Some(id) => match inner.find(&place, &index, id)? {
                Found::At(at) => Some((id.to_owned(), at)),
                Found::Nowhere | Found::Deleted => None,
            },
            None => self.newest(config, &place, &index)?,
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
            let Found::At(at) = inner.find(&place, &index, &id)? else { break };
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
        let writes = pending(backend.writes(at)?)?;
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
                let loaded = load(backend, at)?;
                let missing =
                    || StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() };
                seeds = Some(loaded.ok_or_else(missing)?.values);
            }
            let values = seeds.iter().flatten();
            let seed = values.filter(|(name, _)| **name == *channel.history.channel).map(|(_, value)| value.clone());
            channel.history.seed = seed.last();
            channel.is_done = true;
        }
        Ok(())
    }
}
