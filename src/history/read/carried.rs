//! Messages that a compaction carries on, as a search shows them.
//!
//! A compaction empties a list and puts a summary and the last messages into it, under the ids that they had.
//! Invariant: a message is one hit, at the checkpoint that put it first, however often it was carried on with the same
//! text. *Absent:* messages that are written again with another text: each text is a hit.

use std::collections::HashMap;

use crate::base::{Namespace, ThreadId};
use crate::store::log::{LogExt, LogReads};
use crate::store::record::CheckpointRecord;
use crate::store::search::SearchHit;
use crate::store::{CheckpointRef, ItemRange, SearchQuery, Store, StoreError};

use super::snapshot::Snapshot;

/// A list at the head of a namespace.
type HeadList = (ThreadId, Namespace, String);

/// Merges the hits of messages that were carried on. It remembers the ids of the lists that it has read.
pub(crate) struct CarriedHits<'a> {
    store: &'a Store,
    query: &'a SearchQuery,
    heads: HashMap<HeadList, Option<(Snapshot, HashMap<String, u64>)>>,
}

impl<'a> CarriedHits<'a> {
    pub(crate) fn new(store: &'a Store, query: &'a SearchQuery) -> Self {
        Self { store, query, heads: HashMap::new() }
    }

    /// Returns the hit as a page shows it; `None` if the message was carried here, and is a hit where it was first put.
    pub(crate) fn merge(&mut self, mut hit: SearchHit) -> Result<Option<SearchHit>, StoreError> {
        let Some(id) = hit.id.clone() else { return Ok(Some(hit)) };
        let Some(at) = self.snapshot(&hit.point)? else { return Ok(Some(hit)) };
        if let Some(before) = self.carried_from(&at, &hit.channel, &id)? {
            // The filter on heads leaves out the put that was the first.
            return if self.query.is_on_head() { self.first_hit(hit, before, &id) } else { Ok(None) };
        }
        if !hit.on_head
            && let Some((head, position)) = self.on_head(&hit, &id)?
            && position != hit.position
            && let Some(blame) = head.blame(&hit.channel).item(&id)?
            && let Some(carried) = self.snapshot(&blame.point)?
            && self.first(carried, &hit.channel, &id)?.point() == &hit.point
        {
            (hit.on_head, hit.carried) = (true, Some(blame.point));
        }
        Ok(Some(hit))
    }

    /// Returns the hit at the place where its message was put first; `None` if the filters leave it out there.
    fn first_hit(&self, hit: SearchHit, before: Snapshot, id: &str) -> Result<Option<SearchHit>, StoreError> {
        let first = self.first(before, &hit.channel, id)?;
        let Some(blame) = first.blame(&hit.channel).item(id)? else { return Ok(Some(hit)) };
        let position = first.position_of(&hit.channel, id)?.unwrap_or(hit.position);
        let carried = Some(hit.point);
        let (seq, created_at) = (first.record().seq, first.created_at());
        let (point, node) = (first.point().clone(), blame.node.map(Into::into));
        let hit = SearchHit { point, seq, created_at, position, node, carried, ..hit };
        Ok(self.query.fits(&hit)?.then_some(hit))
    }

    /// Returns the checkpoint that put the message first which a checkpoint put.
    fn first(&self, at: Snapshot, channel: &str, id: &str) -> Result<Snapshot, StoreError> {
        let mut first = at;
        while let Some(before) = self.carried_from(&first, channel, id)? {
            first = before;
        }
        Ok(first)
    }

    /// Returns the checkpoint that put a message, with the same text, before this one carried it on; `None` if there is
    /// none, or if it was pruned. A checkpoint that carries on has deleted the last item of the list before.
    fn carried_from(&self, at: &Snapshot, channel: &str, id: &str) -> Result<Option<Snapshot>, StoreError> {
        let parent = at.record().parent_ref().filter(|parent| parent.thread == at.point().thread);
        let Some(parent) = parent.map_or(Ok(None), |parent| self.snapshot(&parent))? else { return Ok(None) };
        let Some(last) = positions(&parent, channel, ItemRange::Tail(1))?.pop() else { return Ok(None) };
        if !positions(at, channel, ItemRange::Positions(last, last.saturating_add(1)))?.is_empty() {
            return Ok(None);
        }
        let before = text_of(&parent, channel, id)?;
        if before.is_none() || before != text_of(at, channel, id)? {
            return Ok(None);
        }
        let blame = parent.blame(channel).item(id)?.filter(|blame| blame.point.thread == at.point().thread);
        blame.map_or(Ok(None), |blame| self.snapshot(&blame.point))
    }

    /// Returns the head of the namespace of a hit, and the position of the item with an id there.
    fn on_head(&mut self, hit: &SearchHit, id: &str) -> Result<Option<(Snapshot, u64)>, StoreError> {
        let point = &hit.point;
        let list = (point.thread.clone(), point.namespace.clone(), hit.channel.to_string());
        if !self.heads.contains_key(&list) {
            let head = self.store.backend().head(&point.thread, &point.namespace)?;
            let read = match self.stored(head) {
                None => None,
                Some(head) => {
                    let mut ids = HashMap::new();
                    head.visit_items(&hit.channel, ItemRange::All, |row| {
                        let id = row.payload.index.and_then(|index| index.id);
                        ids.extend(id.map(|id| (id.to_owned(), row.position)));
                        Ok(())
                    })?;
                    Some((head, ids))
                }
            };
            self.heads.insert(list.clone(), read);
        }
        let head = self.heads.get(&list).and_then(Option::as_ref);
        Ok(head.and_then(|(head, ids)| Some((head.clone(), *ids.get(id)?))))
    }

    fn snapshot(&self, at: &CheckpointRef) -> Result<Option<Snapshot>, StoreError> {
        Ok(self.stored(self.store.backend().checkpoint(at)?))
    }

    /// Returns a checkpoint whose state can be read.
    fn stored(&self, record: Option<CheckpointRecord>) -> Option<Snapshot> {
        record.filter(|record| !record.pruned).map(|record| Snapshot::new(self.store.clone(), record))
    }
}

/// Returns the positions of items.
fn positions(at: &Snapshot, channel: &str, range: ItemRange) -> Result<Vec<u64>, StoreError> {
    let mut positions = Vec::new();
    at.visit_items(channel, range, |row| {
        positions.push(row.position);
        Ok(())
    })?;
    Ok(positions)
}

/// Returns the text of the item with an id.
fn text_of(at: &Snapshot, channel: &str, id: &str) -> Result<Option<String>, StoreError> {
    let mut text = None;
    at.store().backend().find_item(at.point(), channel, id, &mut |row| {
        text = row.payload.index.and_then(|index| index.text.map(ToOwned::to_owned));
        Ok(())
    })?;
    Ok(text)
}
