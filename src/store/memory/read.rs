//! Reads of one version of the log, so that a concurrent commit does not show.

use std::borrow::Cow;

use super::stored::*;
use crate::base::limits::PAGE_ROWS_MAX;

/// Returns the parts of a head that are wanted.
pub(super) fn head(log: &MemoryLog, (thread, namespace): NamespaceRef<'_>, parts: HeadParts) -> Option<StoredHead> {
    let space = log.space(thread, namespace)?;
    let head = space.head()?;
    let mut found = StoredHead::new(head.record.point.checkpoint, false, Vec::new());
    if parts.writes {
        (found.is_continued, found.writes) = (space.is_continued(&found.checkpoint), head.sorted_writes());
        let thread = log.threads.get(thread).filter(|_| namespace.is_root());
        found.lease = thread.and_then(|thread| thread.lease.clone());
    }
    found.record = parts.record.then(|| head.record.clone());
    Some(found)
}

/// Returns points and pages; `None` for the queries that follow from these.
pub(super) fn records(log: &MemoryLog, query: &RecordQuery<'_>) -> Option<Vec<Option<CheckpointRecord>>> {
    let record = |stored: &StoredCheckpoint| stored.record.clone();
    match query {
        RecordQuery::At(points) => Some(points.iter().map(|at| log.stored(at).map(record)).collect()),
        RecordQuery::Page(query) => Some(page(log, query).into_iter().map(|stored| Some(record(stored))).collect()),
        _ => None,
    }
}

/// Returns a page of checkpoints, the newest first.
fn page<'l>(log: &'l MemoryLog, query: &'l CheckpointQuery) -> Vec<&'l StoredCheckpoint> {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let mut found: Vec<&StoredCheckpoint> = Vec::new();
    for (_, namespace, space) in log.spaces(Some(&query.thread)) {
        if query.namespace.as_ref().is_none_or(|wanted| wanted == namespace) {
            let newest_first = space.checkpoints.below(query.before.as_ref()).map(|(_, stored)| &**stored);
            found.extend(newest_first.filter(|stored| !stored.record.pruned).take(limit));
        }
    }
    found.sort_by_key(|stored| std::cmp::Reverse((stored.record.point.checkpoint, stored.record.seq)));
    found.truncate(limit);
    found
}

/// Visits the parts of a state that a query asks for, if they do not follow from others.
pub(super) fn read(stored: &StoredCheckpoint, query: &StateQuery<'_>, visit: VisitState<'_>) -> MemoryResult<()> {
    match query {
        StateQuery::All => whole(stored, None, visit),
        StateQuery::Ends(lists) => whole(stored, Some(lists), visit),
        StateQuery::Items(channel, range) => stored.list(channel).map_or(Ok(()), |list| items(list, *range, visit)),
        StateQuery::Reference(channel) => {
            let reference = stored.list(channel).and_then(|list| list.reference.as_ref());
            reference.map_or(Ok(()), |reference| visit(StatePart::Reference(&reference.of)).map(|_| ()))
        }
        _ => Ok(()),
    }
}

fn items(list: &StoredList, range: ItemRange, visit: VisitState<'_>) -> MemoryResult<()> {
    let first = |count| list.positions.iter().rev().take(count).last().map_or(u64::MAX, |(first, _)| *first);
    let positions = match range {
        ItemRange::All => 0..u64::MAX,
        ItemRange::Positions(from, end) => from..end,
        ItemRange::Tail(count) => first(count)..u64::MAX,
    };
    list.in_range(positions).try_for_each(|(position, item)| {
        let (ordinal, task) = list.written_by(item);
        visit(StatePart::Item(ItemRow::new(*position, ordinal, task, item.payload.as_ref().as_ref()))).map(|_| ())
    })
}

/// Visits the record of a state, then its channels by name, each list with its items: all of them, or if there are
/// names of whole lists, the last one of any other list.
fn whole(stored: &StoredCheckpoint, lists: Option<&[&str]>, visit: VisitState<'_>) -> MemoryResult<()> {
    visit(StatePart::Record(Cow::Owned(state(stored))))?;
    for channel in stored.channels() {
        if visit(StatePart::Channel(&channel.record))?
            && let Some(list) = &channel.list
        {
            let is_whole = lists.is_none_or(|lists| lists.contains(&&*channel.record.channel));
            items(list, if is_whole { ItemRange::All } else { ItemRange::Tail(1) }, visit)?;
        }
    }
    Ok(())
}

fn state(stored: &StoredCheckpoint) -> StateRecord {
    let mut state = StateRecord::new(stored.record.clone());
    state.channels = stored.channels().map(|channel| ChannelRecord::clone(&channel.record)).collect();
    state.seen = stored.state.seen.iter().map(|(_, seen)| seen.clone()).collect();
    let updated = stored.written().map(|channel| &channel.record).filter(|of| of.value != ChannelValue::Empty);
    state.updated = updated.map(|of| of.channel.clone()).collect();
    state
}

/// Visits the versions that the checkpoints of a lineage wrote.
pub(super) fn versions(
    log: &MemoryLog,
    (at, channel, down_to): (&CheckpointRef, Option<&str>, u64),
    visit: VisitEach<'_, VersionRecord>,
) -> MemoryResult<()> {
    for stored in log.lineage(log.found(at)?).take_while(|stored| stored.record.ordinal >= down_to) {
        let mut goes_on = true;
        let wanted = stored.written().filter(|of| channel.is_none_or(|channel| channel == &*of.record.channel));
        for of in wanted.filter(|_| !stored.record.pruned) {
            let positions = of.list.as_ref().map(|list| list.written.clone());
            goes_on &= visit(&VersionRecord::new(ChannelRecord::clone(&of.record), positions))?;
        }
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Returns the tasks that sleep, by the timestamp at which they resume.
pub(super) fn timers(log: &MemoryLog, query: &TimerQuery<'_>) -> Vec<TimerRecord> {
    let (of, due_by, limit) = match query {
        TimerQuery::Due(due_by, limit) => (None, *due_by, *limit),
        TimerQuery::Of(place) => (Some(*place), None, usize::MAX),
    };
    let mut found = Vec::new();
    for (thread, namespace, space) in log.spaces(of.map(|(thread, _)| thread)) {
        let head = space.head_id().filter(|_| of.is_none_or(|(_, wanted)| wanted == namespace));
        for (task, (checkpoint, wake_at)) in space.timers.iter().filter(|(_, (of, _))| Some(*of) == head) {
            let point = CheckpointRef::new(thread.clone(), namespace.clone(), *checkpoint);
            found.push(TimerRecord::new(point, *task, *wake_at));
        }
    }
    found.retain(|timer| due_by.is_none_or(|by| timer.wake_at <= by));
    found.sort_by_key(|timer| timer.wake_at);
    found.truncate(limit);
    found
}

/// Returns the records after a position of the log, in its order. Each namespace is read from its end, so that the cost
/// is that of the new ones and of the namespaces.
pub(super) fn after(log: &MemoryLog, seq: u64, thread: Option<&ThreadId>, limit: usize) -> Vec<CheckpointRecord> {
    let newer = log
        .spaces(thread)
        .flat_map(|(.., space)| space.all().rev().map(|stored| &stored.record).take_while(|record| record.seq > seq));
    let mut found: Vec<_> = newer.filter(|record| !record.pruned).collect();
    found.sort_by_key(|record| record.seq);
    found.into_iter().take(limit).cloned().collect()
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
