//! Reads: each comes from one version of a namespace, so that a concurrent commit does not show.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::operation;
use super::stored::{
    Changed, ChangedItem, ChangedOp, ChangedValue, ChannelContent, ChannelVersion, Item, MemoryLog, NamespaceVersion,
    StoredCheckpoint, StoredList,
};
use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{CheckpointId, Namespace, RunId, TaskId, ThreadId};
use crate::store::backend::without_timer;
use crate::store::batch::{ListRef, Payload, Seen};
use crate::store::log::{HeadParts, NamespaceRef, TimerQuery};
use crate::store::record::{
    ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, ItemRow, ListChangeOp, StatePart, StateRecord,
    StoredHead, StoredListChange, ThreadRecord, ThreadSize, TimerRecord, VersionRecord, WriteRecord,
};
use crate::store::{CheckReport, CheckpointQuery, Finding, Invariant, ItemRange, StoreError};

/// Returns the parts of a head that are wanted.
pub(super) fn head(log: &MemoryLog, (thread, namespace): NamespaceRef<'_>, parts: HeadParts) -> Option<StoredHead> {
    let space = log.space(thread, namespace)?;
    let id = space.head_id()?;
    let lease = log.threads.get(thread).filter(|_| namespace.is_root()).and_then(|thread| thread.lease.clone());
    let mut head = StoredHead::new(id, space.is_continued(&id), writes(space, &id)).with_lease(lease);
    head.record = space.head().filter(|_| parts.record).map(|stored| stored.record.clone());
    Some(head)
}

/// Returns the newest checkpoint of a namespace that a run with an idempotency key made.
pub(super) fn last_of_run(
    log: &MemoryLog,
    (thread, namespace): NamespaceRef<'_>,
    run: &RunId,
) -> Option<CheckpointRecord> {
    let space = log.space(thread, namespace).filter(|_| run.is_of_key())?;
    let mut newest_first = space.checkpoints.walk_down(None).map(|(_, stored)| &stored.record);
    newest_first.find(|record| record.run == Some(*run)).cloned()
}

/// Returns the checkpoints of a lineage that have these ordinals.
pub(super) fn ancestors(
    log: &MemoryLog,
    at: &CheckpointRef,
    ordinals: &[u64],
) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
    let mut found = vec![None; ordinals.len()];
    let lowest = ordinals.iter().min();
    let mut record = Some(log.stored(at).ok_or_else(|| not_found(at))?.record.clone());
    while let Some(current) = record.filter(|record| lowest.is_some_and(|lowest| record.ordinal >= *lowest)) {
        for (found, _) in found.iter_mut().zip(ordinals).filter(|(_, ordinal)| **ordinal == current.ordinal) {
            *found = Some(current.clone());
        }
        record = current.parent_ref().and_then(|parent| log.stored(&parent)).map(|stored| stored.record.clone());
    }
    Ok(found)
}

pub(super) fn by_prefix(log: &MemoryLog, thread: &ThreadId, prefix: &str, limit: usize) -> Vec<CheckpointRecord> {
    let prefix = prefix.to_ascii_lowercase();
    let Some((floor, digits)) = first_with(&prefix) else { return Vec::new() };
    let fits = |id: &CheckpointId| {
        let text = id.to_string();
        text.starts_with(&prefix) || (digits == prefix && text.replace('-', "").starts_with(&digits))
    };
    let mut found = Vec::new();
    for space in log.threads.get(thread).iter().flat_map(|thread| thread.spaces.values()) {
        let fitting = space.checkpoints.walk_up(Some(&floor)).take_while(|(id, _)| fits(id)).take(limit);
        found.extend(fitting.map(|(id, stored)| (*id, stored)));
    }
    // Each namespace is sorted; ids of two namespaces may come between each other.
    found.sort_by_key(|(id, _)| *id);
    found.into_iter().take(limit).map(|(_, stored)| stored.record.clone()).collect()
}

/// Returns the lowest id that can start with a prefix, and the digits of the prefix; `None` if no id can.
fn first_with(prefix: &str) -> Option<(CheckpointId, String)> {
    let digits = prefix.replace('-', "");
    if digits.len() > 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (at, digit) in digits.chars().enumerate() {
        let digit = u8::try_from(digit.to_digit(16)?).ok()?;
        bytes[at / 2] |= if at % 2 == 0 { digit << 4 } else { digit };
    }
    Some((CheckpointId::from_bytes(bytes), digits))
}

pub(super) fn list(log: &MemoryLog, query: &CheckpointQuery) -> Vec<CheckpointRecord> {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let mut found: Vec<&Arc<StoredCheckpoint>> = Vec::new();
    for (namespace, space) in log.threads.get(&query.thread).iter().flat_map(|thread| &thread.spaces) {
        if query.namespace.as_ref().is_none_or(|wanted| wanted == namespace) {
            let newest_first = space.checkpoints.walk_down(query.before.as_ref()).map(|(_, stored)| stored);
            found.extend(newest_first.filter(|stored| !stored.record.pruned).take(limit));
        }
    }
    found.sort_by_key(|stored| std::cmp::Reverse((stored.record.point.checkpoint, stored.record.seq)));
    found.into_iter().take(limit).map(|stored| stored.record.clone()).collect()
}

pub(super) fn threads(log: &MemoryLog, after: Option<&ThreadId>, limit: usize) -> Vec<ThreadRecord> {
    let root = crate::base::Namespace::root();
    let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let records = log.threads.range((from, std::ops::Bound::Unbounded)).filter_map(|(id, thread)| {
        let head = thread.spaces.get(&root).and_then(NamespaceVersion::head)?;
        Some(ThreadRecord::new(id.clone(), thread.created_at, head.record.clone()))
    });
    records.take(limit).collect()
}

/// Returns the threads that were forked from a thread, the first fork first.
pub(super) fn forks(log: &MemoryLog, thread: &ThreadId) -> Vec<ThreadId> {
    let mut found: Vec<(u64, &ThreadId)> = Vec::new();
    for (id, of) in log.threads.iter().filter(|(id, _)| *id != thread) {
        let checkpoints = of.spaces.values().flat_map(|space| space.checkpoints.walk_up(None));
        let is_fork = |record: &&CheckpointRecord| record.forked_from.as_ref().is_some_and(|at| at.thread == *thread);
        let forks = checkpoints.map(|(_, stored)| &stored.record).filter(is_fork);
        found.extend(forks.map(|record| record.seq).min().map(|seq| (seq, id)));
    }
    found.sort_unstable();
    found.into_iter().map(|(_, id)| id.clone()).collect()
}

pub(super) fn thread_size(log: &MemoryLog, thread: &ThreadId) -> ThreadSize {
    let spaces = || log.threads.get(thread).into_iter().flat_map(|thread| thread.spaces.values());
    let kept = |space: &NamespaceVersion| {
        space.checkpoints.walk_up(None).filter(|(_, stored)| !stored.record.pruned).count() as u64
    };
    let checkpoints = spaces().map(kept).sum();
    ThreadSize::new(checkpoints, spaces().map(|space| space.branches).sum())
}

pub(super) fn state(stored: &StoredCheckpoint) -> StateRecord {
    let channels = stored.state.channels.walk_up(None).map(|(name, channel)| channel_record(name, channel));
    let seen = stored.state.seen.walk_up(None);
    let filled = stored.delta.changes.iter().filter(|change| change.value != ChangedValue::Empty);
    let mut updated: Vec<Arc<str>> = filled.map(|change| Arc::clone(&change.channel)).collect();
    updated.sort_unstable();
    let mut state = StateRecord::new(stored.record.clone());
    (state.channels, state.updated) = (channels.collect(), updated);
    state.seen = seen.map(|(node, versions)| Seen::new(Arc::clone(node), versions.clone())).collect();
    state
}

fn channel_record(name: &Arc<str>, channel: &ChannelVersion) -> ChannelRecord {
    let value = match &channel.value {
        ChannelContent::Empty => ChannelValue::Empty,
        ChannelContent::Value(payload) => ChannelValue::Value(Payload::clone(payload)),
        ChannelContent::Items(_) => ChannelValue::Items,
    };
    let mut record = ChannelRecord::new(Arc::clone(name), channel.version, value, channel.ordinal);
    record.task = channel.task;
    record
}

/// Returns the versions that a checkpoint wrote: of one channel, or of all.
pub(super) fn versions(stored: &StoredCheckpoint, channel: Option<&str>) -> Vec<VersionRecord> {
    let wanted = stored.delta.changes.iter().filter(|change| channel.is_none_or(|name| name == &*change.channel));
    let version = |change: &Changed| {
        let (name, state) = (&change.channel, stored.state.channels.get(&*change.channel)?);
        let positions = match &change.value {
            ChangedValue::Items(items) => Some(written(items)),
            ChangedValue::Empty | ChangedValue::Value(_) => None,
        };
        Some(VersionRecord::new(channel_record(name, state), positions))
    };
    wanted.filter_map(version).collect()
}

/// Returns the changes of a list by a checkpoint: its items that are not those of the parent, and the positions that
/// are gone.
pub(super) fn list_changes(
    stored: &StoredCheckpoint,
    parent: Option<&StoredCheckpoint>,
    channel: &str,
    text: &str,
) -> Vec<StoredListChange> {
    let Some(change) = stored.delta.changes.iter().find(|change| &*change.channel == channel) else {
        return Vec::new();
    };
    let list = |of: &StoredCheckpoint| {
        let list = of.state.channels.get(channel).and_then(|channel| channel.value.items()).cloned();
        list.unwrap_or_default()
    };
    let (new, old) = (list(stored), parent.map(list).unwrap_or_default());
    let ordinal = stored.record.ordinal;
    let range = match &change.value {
        ChangedValue::Items(items) => written(items),
        ChangedValue::Empty | ChangedValue::Value(_) => 0..u64::MAX,
    };
    let inside = |list: &StoredList| -> Vec<(u64, Item)> {
        let items = list.positions.walk_up(Some(&range.start)).take_while(|(position, _)| range.contains(*position));
        items.map(|(position, item)| (*position, item.clone())).collect()
    };
    let gone = inside(&old).into_iter().filter(|(position, _)| new.positions.get(position).is_none());
    let gone = gone.map(|(at, _)| StoredListChange::new(at..at + 1, ordinal, change.task, ListChangeOp::Delete));
    let put = inside(&new).into_iter().filter_map(|(at, item)| {
        let (written, task) = new.written(&item);
        let op = ListChangeOp::of((*item.payload).as_ref(), text);
        (written == ordinal).then(|| StoredListChange::new(at..at + 1, ordinal, task, op))
    });
    gone.chain(put).collect()
}

/// Returns the range of the positions that the operations of a list concern.
fn written(items: &[ChangedItem]) -> Range<u64> {
    let each = items.iter().map(|item| match &item.op {
        ChangedOp::Put(_) | ChangedOp::Delete => (item.position, item.position.saturating_add(1)),
        ChangedOp::DeleteRange(end) => (item.position, *end),
        ChangedOp::Reference(..) => (0, u64::MAX),
    });
    let all = each.reduce(|(first, last), (other, end)| (first.min(other), last.max(end)));
    all.map_or(0..0, |(first, last)| first..last)
}

/// Visits the record of a state, then its channels by name, each list with its items: all of them, or if there are
/// names of whole lists, the last one of any other list.
pub(super) fn read_state(
    stored: &StoredCheckpoint,
    whole: Option<&[&str]>,
    visit: &mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let state = state(stored);
    visit(StatePart::Record(Cow::Borrowed(&state)))?;
    for (record, (_, channel)) in state.channels.iter().zip(stored.state.channels.walk_up(None)) {
        if visit(StatePart::Channel(record))?
            && let Some(items) = channel.value.items()
        {
            let mut each = |(position, item): (&u64, &Item)| visit(StatePart::Item(item_row(items, *position, item)));
            match whole.is_none_or(|whole| whole.contains(&&*record.channel)) {
                true => items.positions.walk_up(None).try_for_each(|entry| each(entry).map(|_| ()))?,
                false => items.positions.last().map_or(Ok(()), |entry| each(entry).map(|_| ()))?,
            }
        }
    }
    Ok(())
}

pub(super) fn items(
    stored: &StoredCheckpoint,
    channel: &str,
    range: ItemRange,
    visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let Some(items) = stored.state.channels.get(channel).and_then(|channel| channel.value.items()) else {
        return Ok(());
    };
    let mut visit = |(position, item): (&u64, &Item)| visit(item_row(items, *position, item));
    match range {
        ItemRange::All => items.positions.walk_up(None).try_for_each(&mut visit),
        ItemRange::Positions(from, end) => {
            items.positions.walk_up(Some(&from)).take_while(|(position, _)| **position < end).try_for_each(&mut visit)
        }
        ItemRange::Tail(count) => {
            let tail: Vec<_> = items.positions.walk_down(None).take(count).collect();
            tail.into_iter().rev().try_for_each(&mut visit)
        }
    }
}

/// Returns the number of items of a list.
pub(super) fn list_len(stored: &StoredCheckpoint, channel: &str) -> u64 {
    let items = stored.state.channels.get(channel).and_then(|channel| channel.value.items());
    items.map_or(0, |items| items.positions.len() as u64)
}

/// Returns the list that a list references.
pub(super) fn list_reference(stored: &StoredCheckpoint, channel: &str) -> Option<ListRef> {
    let items = stored.state.channels.get(channel)?.value.items()?;
    items.reference.as_ref().map(|reference| reference.of.clone())
}

fn item_row<'a>(items: &StoredList, position: u64, item: &'a Item) -> ItemRow<'a> {
    let payload = &*item.payload;
    let (ordinal, task) = items.written(item);
    ItemRow::new(position, ordinal, task, payload.as_ref())
}

pub(super) fn writes(space: &NamespaceVersion, checkpoint: &CheckpointId) -> Vec<WriteRecord> {
    let writes = space.writes_of(checkpoint);
    let mut found: Vec<_> = writes.walk_up(None).map(|(_, write)| write).collect();
    found.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
    found.into_iter().map(|write| write.to_record()).collect()
}

/// Returns the tasks that sleep, by the timestamp at which they resume.
pub(super) fn timers(log: &MemoryLog, query: &TimerQuery<'_>) -> Vec<TimerRecord> {
    let (of, due_by, limit) = match query {
        TimerQuery::Due(due_by, limit) => (None, *due_by, *limit),
        TimerQuery::Of(place) => (Some(*place), None, usize::MAX),
    };
    let mut found = Vec::new();
    for (thread, spaces) in log.threads.iter().filter(|(thread, _)| of.is_none_or(|of| of.0 == *thread)) {
        for (namespace, space) in spaces.spaces.iter().filter(|(namespace, _)| of.is_none_or(|of| of.1 == *namespace)) {
            let mut due = timers_of(space, thread, namespace);
            due.retain(|timer| due_by.is_none_or(|by| timer.wake_at <= by));
            found.append(&mut due);
        }
    }
    found.sort_by_key(|timer| timer.wake_at);
    found.truncate(limit);
    found
}

/// Returns the tasks that sleep at the head of a namespace, in the order of their ids.
fn timers_of(space: &NamespaceVersion, thread: &ThreadId, namespace: &Namespace) -> Vec<TimerRecord> {
    let head = space.head_id();
    let at_head = space.timers.iter().filter(|(_, (of, _))| Some(*of) == head);
    let records = at_head.map(|(task, (checkpoint, wake_at))| {
        TimerRecord::new(CheckpointRef::new(thread.clone(), namespace.clone(), *checkpoint), *task, *wake_at)
    });
    records.collect()
}

/// Returns the tasks that sleep at the head of a root namespace and have no timer.
fn missing_timers(space: &NamespaceVersion) -> Vec<TaskId> {
    let head = space.head_id().and_then(|head| space.checkpoints.get(&head));
    // The first child of a checkpoint deletes its timers, also if the head moves back to it.
    let Some(head) = head.filter(|head| !space.is_continued(&head.record.point.checkpoint)) else { return Vec::new() };
    let id = head.record.point.checkpoint;
    let has_timer = |task: TaskId| space.timers.get(&task).is_some_and(|(of, _)| *of == id);
    without_timer(&head.record, &writes(space, &id), has_timer).into_iter().map(|(task, _)| task).collect()
}

/// Counts everything, and replays every checkpoint onto its parent.
pub(super) fn check(log: &MemoryLog) -> CheckReport {
    let mut report = CheckReport::default();
    report.threads = log.threads.len() as u64;
    let spaces = log.threads.values().flat_map(|thread| thread.spaces.iter());
    for (namespace, space) in spaces {
        for task in if namespace.is_root() { missing_timers(space) } else { Vec::new() } {
            report.note(Finding::new(Invariant::Timers, format!("timer of task {task}"), "it is missing"));
        }
        // Every other state is compared with its replay, so looking at all the nodes of the newest is enough.
        let newest = space.checkpoints.last();
        let sound = newest.is_none_or(|(_, newest)| newest.state.is_sound());
        if let Err(error) = operation::check(space) {
            report.note(Finding::new(Invariant::Operations, "a namespace", error.to_string()));
        }
        if !sound || !space.checkpoints.is_sound() || !space.writes.is_sound() {
            report.note(Finding::new(Invariant::Ids, "a namespace", "its trees are out of order"));
        }
        for (id, stored) in space.checkpoints.walk_up(None) {
            report.checkpoints += u64::from(!stored.record.pruned);
            report.pruned += u64::from(stored.record.pruned);
            report.values += values_of(stored) + writes_of(space, id);
            if let Err((invariant, reason)) = check_checkpoint(log, space, stored) {
                report.note(Finding::new(invariant, format!("checkpoint {id}"), reason));
            }
        }
        for (id, writes) in space.writes.walk_up(None) {
            if !writes.is_sound() || space.checkpoints.get(id).is_none() {
                let place = format!("writes of checkpoint {id}");
                report.note(Finding::new(Invariant::Writes, place, "they are out of order, or of no checkpoint"));
            }
        }
    }
    report
}

fn values_of(stored: &StoredCheckpoint) -> u64 {
    let values = stored.delta.changes.iter().map(|change| match &change.value {
        ChangedValue::Empty => 0,
        ChangedValue::Value(_) => 1,
        ChangedValue::Items(items) => items.len(),
    });
    values.sum::<usize>() as u64
}

fn writes_of(space: &NamespaceVersion, checkpoint: &CheckpointId) -> u64 {
    let writes = space.writes_of(checkpoint);
    writes.walk_up(None).map(|(_, write)| write.payloads().len()).sum::<usize>() as u64
}

fn check_checkpoint(
    log: &MemoryLog,
    space: &NamespaceVersion,
    stored: &StoredCheckpoint,
) -> Result<(), (Invariant, String)> {
    let wrong = |reason: &str| (Invariant::Parents, reason.to_owned());
    let record = &stored.record;
    let parent = match (&record.parent, &record.forked_from) {
        (None, None) => None,
        (Some(id), None) => Some(space.checkpoints.get(id).ok_or_else(|| wrong("its parent is missing"))?),
        (None, Some(at)) => Some(log.stored(at).ok_or_else(|| wrong("the checkpoint it was forked from is missing"))?),
        (Some(_), Some(_)) => return Err(wrong("it has two parents")),
    };
    if record.ordinal != parent.map_or(0, |parent| parent.record.ordinal + 1) {
        return Err(wrong("its ordinal does not follow that of its parent"));
    }
    if record.seq > log.seq || record.branch > log.branch {
        return Err(wrong("its seq or branch is above the counters"));
    }
    // The state of a pruned parent is not stored, so that of its child cannot be compared.
    if record.pruned || parent.is_some_and(|parent| parent.record.pruned) {
        return Ok(());
    }
    let nothing = Default::default();
    let before = parent.map_or(&nothing, |parent| &parent.state);
    let after = before.after(&stored.delta, record.ordinal, record.seq);
    let after = after.map_err(|error| (Invariant::Checkpoints, error.to_string()))?;
    let differs = || (Invariant::Checkpoints, "its state is not that of its parent with its changes".to_owned());
    if after == stored.state { Ok(()) } else { Err(differs()) }
}

pub(super) fn not_found(at: &CheckpointRef) -> StoreError {
    StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() }
}

/// Returns the records after a position of the log, in its order. Each namespace is read from its end, so that the cost
/// is that of the new ones and of the namespaces.
pub(super) fn after(log: &MemoryLog, seq: u64, thread: Option<&ThreadId>, limit: usize) -> Vec<CheckpointRecord> {
    let threads = log.threads.iter().filter(|(id, _)| thread.is_none_or(|thread| thread == *id));
    let spaces = threads.flat_map(|(_, thread)| thread.spaces.values());
    let newer = |space: &NamespaceVersion| {
        let newest_first = space.checkpoints.walk_down(None).map(|(_, stored)| &stored.record);
        let newer = newest_first.take_while(|record| record.seq > seq);
        newer.filter(|record| !record.pruned).cloned().collect::<Vec<_>>()
    };
    let mut found: Vec<CheckpointRecord> = spaces.flat_map(newer).collect();
    found.sort_by_key(|record| record.seq);
    found.truncate(limit);
    found
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
