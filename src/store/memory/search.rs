//! Searches: every entry is compared. This is the model of an index.

use super::stored::*;
use crate::store::backend::{BegunWord, HitPlace, NewestHits, Search, SearchedEntry};
use crate::store::search::{SearchHit, SearchPage};

/// Returns the page of hits of a search.
pub(super) fn page(log: &MemoryLog, search: &Search) -> MemoryResult<SearchPage> {
    let mut newest = NewestHits::of(search);
    for (.., space) in log.spaces(None) {
        for stored in space.all().rev() {
            for put @ (channel, position, task, payload) in
                space.puts(stored).filter(|(channel, ..)| search.reads(channel))
            {
                let record = &stored.record;
                let place = HitPlace::new(record.seq, channel.clone(), position.unwrap_or(0));
                if !search.shows(&place) || !newest.wants(&place) {
                    continue;
                }
                let begun = || Ok::<_, StoreError>(begun(space, stored, &put));
                let entry = SearchedEntry::of(payload.as_ref(), position, begun)?;
                let Some(entry) = entry.filter(|entry| search.matches(entry)) else { continue };
                let tasks = task.and_then(|task| log.parent(record)?.record.tasks.get(task as usize));
                let shown = (tasks.map(|task| task.name.clone()), is_on_head(log, space, stored, &put));
                let hit = SearchHit::of(record, channel, &entry, shown, search.snippet(&entry));
                if search.passes(&hit) {
                    newest.add(place, hit);
                }
            }
        }
    }
    Ok(newest.page())
}

/// Returns the word that the parts of a text before an entry began on its branch.
fn begun(space: &MemoryNamespace, stored: &StoredCheckpoint, (channel, position, ..): &PutEntry<'_>) -> String {
    let mut word = BegunWord::at_end();
    let mut branch = space.all().filter(|of| of.record.branch == stored.record.branch).peekable();
    let first = branch.peek().map_or(0, |first| first.record.ordinal);
    // The next checkpoint of the branch that was not pruned has the state of a pruned one.
    let is_shown = |at: &&StoredCheckpoint| at.record.seq >= stored.record.seq && !at.record.pruned;
    if let Some(list) = branch.find(is_shown).and_then(|shown| shown.list(channel)) {
        let before = (0..position.unwrap_or(0)).rev().map_while(|position| list.positions.get(&position));
        let own = before.take_while(|item| item.written.0 >= first && !list.is_shared(item));
        let _ = own.take_while(|item| word.add(&item.payload.as_ref().as_ref())).count();
    }
    word.finish()
}

/// Returns whether the channel still holds an entry of a checkpoint at the head of the namespace.
fn is_on_head(log: &MemoryLog, space: &MemoryNamespace, stored: &StoredCheckpoint, put: &PutEntry<'_>) -> bool {
    let (channel, position, ..) = put;
    let holds = |head: &&StoredCheckpoint| match (position, head.state.channels.get(*channel)) {
        (None, Some(channel)) => channel.record.ordinal == stored.record.ordinal,
        (Some(at), Some(StoredChannel { list: Some(list), .. })) => {
            list.positions.get(at).is_some_and(|item| item.seq == stored.record.seq && !list.is_shared(item))
        }
        _ => false,
    };
    let mut lineage = space.head().filter(holds).into_iter().flat_map(|head| log.lineage(head));
    let at = lineage.find(|of| of.record.ordinal <= stored.record.ordinal);
    at.is_some_and(|of| of.record.point == stored.record.point)
}
