//! Searches: every entry is compared. This is the model of an index.

use std::collections::HashMap;
use std::sync::Arc;

use super::read;
use super::stored::{ChangedOp, ChangedValue, MemoryLog, NamespaceVersion, StoredCheckpoint};
use crate::store::backend::{BegunWord, HitPlace, NewestHits, Search, SearchedEntry};
use crate::store::batch::Payload;
use crate::store::record::CheckpointRecord;
use crate::store::{ItemRange, SearchHit, SearchPage, StoreError};

/// Returns the page of hits of a search.
pub(super) fn page(log: &MemoryLog, search: &Search) -> Result<SearchPage, StoreError> {
    let mut newest = NewestHits::of(search);
    for space in log.threads.values().flat_map(|thread| thread.spaces.values()) {
        let mut firsts = HashMap::new();
        for (_, stored) in space.checkpoints.walk_up(None) {
            firsts.entry(stored.record.branch).or_insert(stored.record.ordinal);
        }
        for (_, stored) in space.checkpoints.walk_down(None) {
            let first = firsts.get(&stored.record.branch).copied().unwrap_or_default();
            SearchedCheckpoint { log, space, stored, first }.add_hits(search, &mut newest)?;
        }
    }
    Ok(newest.page())
}

/// A checkpoint that is searched.
struct SearchedCheckpoint<'a> {
    log: &'a MemoryLog,
    space: &'a NamespaceVersion,
    stored: &'a StoredCheckpoint,
    /// The ordinal of the first checkpoint of its branch.
    first: u64,
}

impl SearchedCheckpoint<'_> {
    /// Adds the items and values that the checkpoint put.
    fn add_hits(&self, search: &Search, newest: &mut NewestHits) -> Result<(), StoreError> {
        for change in self.stored.delta.changes.iter().filter(|change| search.reads(&change.channel)) {
            match &change.value {
                ChangedValue::Empty => {}
                ChangedValue::Value(payload) => {
                    self.add_hit(search, &change.channel, None, change.task, payload, newest)?;
                }
                ChangedValue::Items(items) => {
                    for item in items {
                        if let ChangedOp::Put(payload) = &item.op {
                            self.add_hit(search, &change.channel, Some(item.position), item.task, payload, newest)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds an entry if it is a hit of the page.
    fn add_hit(
        &self,
        search: &Search,
        channel: &Arc<str>,
        position: Option<u64>,
        task: Option<u32>,
        payload: &Payload,
        newest: &mut NewestHits,
    ) -> Result<(), StoreError> {
        let record = &self.stored.record;
        let place = HitPlace::new(record.seq, Arc::clone(channel), position.unwrap_or(0));
        if !search.shows(&place) || !newest.wants(&place) {
            return Ok(());
        }
        let begun = || Ok::<_, StoreError>(self.begun(channel, position.unwrap_or(0)));
        let entry = SearchedEntry::of(payload.as_ref(), position, begun)?;
        let Some(entry) = entry.filter(|entry| search.matches(entry)) else { return Ok(()) };
        let node = task.and_then(|task| node(self.log, record, task));
        let on_head = self.is_on_head(channel, position)?;
        let hit = SearchHit::of(record, channel, &entry, (node, on_head), search.snippet(&entry));
        if search.passes(&hit) {
            newest.add(place, hit);
        }
        Ok(())
    }

    /// Returns the word that the parts of a text before a position began on the branch of the checkpoint.
    fn begun(&self, channel: &str, position: u64) -> String {
        let mut word = BegunWord::at_end();
        // The next checkpoint of the branch that was not pruned has the state of a pruned one.
        let record = &self.stored.record;
        let is_shown = |at: &CheckpointRecord| at.branch == record.branch && at.seq > record.seq && !at.pruned;
        let later = || self.space.checkpoints.walk_up(None).map(|(_, later)| &**later).find(|at| is_shown(&at.record));
        let Some(stored) = (if record.pruned { later() } else { Some(self.stored) }) else { return word.finish() };
        if let Some(list) = stored.state.channels.get(channel).and_then(|channel| channel.value.items()) {
            let before = (0..position).rev().map_while(|position| list.positions.get(&position));
            let own = before.take_while(|item| item.ordinal >= self.first && !list.is_shared(item));
            let _ = own.take_while(|item| word.add(&(*item.payload).as_ref())).count();
        }
        word.finish()
    }

    /// Returns whether the channel still holds the entry of the checkpoint at the head of the namespace.
    fn is_on_head(&self, channel: &str, position: Option<u64>) -> Result<bool, StoreError> {
        let (record, Some(head)) = (&self.stored.record, self.space.head()) else { return Ok(false) };
        let mut is_shown = false;
        match position {
            Some(position) => {
                let range = ItemRange::Positions(position, position.saturating_add(1));
                read::items(head, channel, range, &mut |row| {
                    is_shown |= row.ordinal == record.ordinal;
                    Ok(())
                })?;
            }
            None => {
                let newest = head.state.channels.get(channel);
                is_shown = newest.is_some_and(|newest| newest.ordinal == record.ordinal);
            }
        }
        if !is_shown {
            return Ok(false);
        }
        let mut at = Some(head);
        while let Some(stored) = at.filter(|stored| stored.record.ordinal > record.ordinal) {
            at = stored.record.parent_ref().and_then(|parent| self.log.stored(&parent));
        }
        Ok(at.is_some_and(|stored| stored.record.point == record.point))
    }
}

/// Returns the node of a task of the parent of a checkpoint.
fn node(log: &MemoryLog, record: &CheckpointRecord, task: u32) -> Option<Arc<str>> {
    let parent = log.stored(&record.parent_ref()?)?;
    parent.record.tasks.get(task as usize).map(|task| Arc::clone(&task.name))
}
