//! Searches: every put of every item is compared. This is the model of an index.

use std::sync::Arc;

use super::read;
use super::stored::{ChangedOp, ChangedValue, MemoryLog, NamespaceVersion, StoredCheckpoint};
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::CheckpointRecord;
use crate::store::search::{HitPlace, NewestHits, Search, SearchHit, SearchPage};

/// Returns the page of hits of a search.
pub(super) fn page(log: &MemoryLog, search: &Search) -> Result<SearchPage, StoreError> {
    let mut newest = NewestHits::of(search);
    for space in log.threads.values().flat_map(|thread| thread.spaces.values()) {
        for (_, stored) in space.checkpoints.walk_down(None) {
            add_hits(log, space, stored, search, &mut newest)?;
        }
    }
    Ok(newest.page())
}

/// Adds the items that a checkpoint put.
fn add_hits(
    log: &MemoryLog,
    space: &NamespaceVersion,
    stored: &StoredCheckpoint,
    search: &Search,
    newest: &mut NewestHits,
) -> Result<(), StoreError> {
    let record = &stored.record;
    for change in stored.delta.changes.iter().filter(|change| search.reads(&change.channel)) {
        let ChangedValue::Items(items) = &change.value else { continue };
        for item in items {
            let ChangedOp::Put(payload) = &item.op else { continue };
            let payload = payload.as_ref().as_ref();
            let place = HitPlace { seq: record.seq, channel: Arc::clone(&change.channel), position: item.position };
            let Some(index) = payload.index.filter(|index| search.matches(index)) else { continue };
            if !search.shows(&place) || !newest.wants(&place) {
                continue;
            }
            let hit = SearchHit {
                point: record.point.clone(),
                seq: record.seq,
                created_at: record.created_at,
                channel: Arc::clone(&change.channel),
                position: item.position,
                role: index.kind.map(str::to_owned),
                id: index.id.map(str::to_owned),
                name: index.name.map(str::to_owned),
                node: item.task.and_then(|task| node(log, record, task)),
                on_head: is_on_head(log, space, record, &change.channel, item.position)?,
                snippet: search.snippet(&index),
            };
            if search.passes(&hit) {
                newest.add(place, hit);
            }
        }
    }
    Ok(())
}

/// Returns the node of a task of the parent of a checkpoint.
fn node(log: &MemoryLog, record: &CheckpointRecord, task: u32) -> Option<Arc<str>> {
    let parent = log.stored(&record.parent_ref()?)?;
    parent.record.tasks.get(task as usize).map(|task| Arc::clone(&task.name))
}

/// Returns whether an item is in its list at the head of its namespace, as its checkpoint put it.
fn is_on_head(
    log: &MemoryLog,
    space: &NamespaceVersion,
    record: &CheckpointRecord,
    channel: &str,
    position: u64,
) -> Result<bool, StoreError> {
    let Some(head) = space.head() else { return Ok(false) };
    let mut is_shown = false;
    read::items(head, channel, ItemRange::Positions(position, position.saturating_add(1)), &mut |row| {
        is_shown |= row.ordinal == record.ordinal;
        Ok(())
    })?;
    if !is_shown {
        return Ok(false);
    }
    let mut at = Some(head);
    while let Some(stored) = at.filter(|stored| stored.record.ordinal > record.ordinal) {
        at = stored.record.parent_ref().and_then(|parent| log.stored(&parent));
    }
    Ok(at.is_some_and(|stored| stored.record.point == record.point))
}
