//! Pruning in memory: a pruned checkpoint retains its record, and loses its state, its changes and its writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::stored::{
    Changed, ChangedItem, ChangedOp, ChangedValue, ChannelContent, CheckpointState, CheckpointWrites, Delta, MemoryLog,
    NamespaceVersion, StoredCheckpoint,
};
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::backend::pruned_metadata;
use crate::store::record::{CheckpointRecord, CheckpointRef};
use crate::store::{OperationChange, OperationField, OperationValue, PruneSpan, Pruned};

fn place(record: &CheckpointRecord) -> (u64, u64) {
    (record.branch, record.ordinal)
}

/// Returns the places of the checkpoints of a thread that cannot be pruned once the namespaces `without` are gone; of
/// these, the places on which something else rests, or which stay for another reason.
pub(super) fn unprunable(log: &MemoryLog, thread: &ThreadId, without: &[Namespace]) -> BTreeSet<(u64, u64)> {
    let mut found = BTreeSet::new();
    let Some(of) = log.threads.get(thread) else { return found };
    let without: BTreeSet<&Namespace> = without.iter().filter(|namespace| !namespace.is_root()).collect();
    let goes = |namespace: &Namespace| without.contains(namespace);
    for (namespace, space) in of.spaces.iter().filter(|(namespace, _)| goes(namespace)) {
        if is_needed(log, thread, namespace, space) {
            found.extend(stored_of(space).last().map(|stored| place(&stored.record)));
        }
    }
    // Branches leave checkpoints of this thread in all threads.
    let spaces =
        log.threads.iter().flat_map(|(id, of)| of.spaces.iter().map(move |(namespace, space)| (id, namespace, space)));
    let spaces = spaces.filter(|(id, namespace, _)| *id != thread || !goes(namespace));
    for stored in spaces.flat_map(|(.., space)| stored_of(space)) {
        if let Some(parent) = stored.record.parent_ref().filter(|parent| parent.thread == *thread)
            && let Some(parent) = log.stored(&parent).filter(|parent| parent.record.branch != stored.record.branch)
        {
            found.insert(place(&parent.record));
        }
    }
    let root = of.spaces.get(&Namespace::root());
    for value in
        of.fields.iter().filter(|(field, _)| matches!(field, OperationField::Branch(_))).map(|(_, value)| value)
    {
        if let OperationValue::Checkpoint(id) = value {
            found.extend(root.and_then(|root| root.checkpoints.get(id)).map(|stored| place(&stored.record)));
        }
    }
    for space in of.spaces.iter().filter(|(namespace, _)| !goes(namespace)).map(|(_, space)| space) {
        found.extend(space.head().map(|head| place(&head.record)));
        let mut newest_first = None;
        for (_, stored) in space.checkpoints.walk_down(None) {
            if newest_first.replace(stored.record.branch) != Some(stored.record.branch) {
                found.insert(place(&stored.record));
            }
            let lists = stored.state.channels.walk_up(None).filter_map(|(_, channel)| match &channel.value {
                ChannelContent::Items(list) => list.reference.as_ref().map(|reference| reference.of.clone()),
                ChannelContent::Empty | ChannelContent::Value(_) => None,
            });
            for of in lists {
                let at = CheckpointRef::new(thread.clone(), of.namespace, of.checkpoint);
                found.extend(log.stored(&at).map(|stored| place(&stored.record)));
            }
        }
    }
    found
}

/// Returns whether a namespace stays whatever a plan says: the thread begins with it, an operation names it, it begins
/// with a checkpoint of another namespace, or one of its checkpoints states what model calls used.
fn is_needed(log: &MemoryLog, thread: &ThreadId, namespace: &Namespace, space: &NamespaceVersion) -> bool {
    let first = |space: &NamespaceVersion| stored_of(space).next().map(|stored| stored.record.seq);
    let root = log.space(thread, &Namespace::root()).and_then(first);
    let names = |change: &OperationChange| change.thread == *thread && change.namespace == *namespace;
    root.is_none_or(|root| first(space).is_none_or(|first| root >= first))
        || log.operations.iter().any(|operation| operation.changes.iter().any(names))
        || stored_of(space).any(|stored| {
            let record = &stored.record;
            let from = record.forked_from.as_ref().filter(|from| from.thread == *thread);
            from.is_some_and(|from| from.namespace != *namespace)
                || record.pruned && record.metadata.is_some()
                || pruned_metadata(record.metadata.as_deref()).is_some()
        })
}

/// Returns the namespaces that still end with the given checkpoints, and on which nothing rests but one another.
pub(super) fn removable(
    log: &MemoryLog,
    thread: &ThreadId,
    namespaces: &[(Namespace, CheckpointId)],
) -> Vec<Namespace> {
    let last = |namespace: &Namespace| {
        log.space(thread, namespace)
            .and_then(|space| stored_of(space).last().map(|stored| stored.record.point.checkpoint))
    };
    let is_same =
        |(namespace, newest): &&(Namespace, CheckpointId)| !namespace.is_root() && last(namespace) == Some(*newest);
    let found: BTreeSet<&Namespace> = namespaces.iter().filter(is_same).map(|(namespace, _)| namespace).collect();
    let mut found: Vec<Namespace> = found.into_iter().cloned().collect();
    loop {
        let (held, before) = (unprunable(log, thread, &found), found.len());
        found.retain(|namespace| {
            let space = log.space(thread, namespace);
            !space.is_some_and(|space| stored_of(space).any(|stored| held.contains(&place(&stored.record))))
        });
        if found.len() == before {
            return found;
        }
    }
}

/// Returns the report of a removal of namespaces.
pub(super) fn sum_of_namespaces(log: &MemoryLog, thread: &ThreadId, namespaces: &[Namespace]) -> Pruned {
    let mut sum = Pruned::default();
    for space in namespaces.iter().filter_map(|namespace| log.space(thread, namespace)) {
        stored_of(space).for_each(|stored| sum.add(content(space, stored)));
        sum.checkpoints += stored_of(space).filter(|stored| !stored.record.pruned).count() as u64;
    }
    sum
}

/// Removes namespaces.
pub(super) fn remove_namespaces(
    log: &mut MemoryLog,
    thread: &ThreadId,
    namespaces: &[(Namespace, CheckpointId)],
) -> Pruned {
    let found = removable(log, thread, namespaces);
    let report = sum_of_namespaces(log, thread, &found);
    if let Some(of) = log.threads.get_mut(thread) {
        of.spaces.retain(|namespace, _| !found.contains(namespace));
    }
    report
}

fn stored_of(space: &NamespaceVersion) -> impl Iterator<Item = &Arc<StoredCheckpoint>> {
    space.checkpoints.walk_up(None).map(|(_, stored)| stored)
}

/// Returns the checkpoints of spans that can be pruned.
fn due(log: &MemoryLog, thread: &ThreadId, spans: &[PruneSpan]) -> Vec<(Namespace, CheckpointId)> {
    let (held, mut due) = (unprunable(log, thread, &[]), Vec::new());
    for (namespace, space) in log.threads.get(thread).iter().flat_map(|thread| &thread.spaces) {
        let goes = |stored: &&Arc<StoredCheckpoint>| {
            let at = place(&stored.record);
            !stored.record.pruned && !held.contains(&at) && spans.iter().any(|span| span.contains(at.0, at.1))
        };
        due.extend(stored_of(space).filter(goes).map(|stored| (namespace.clone(), stored.record.point.checkpoint)));
    }
    due
}

/// Prunes checkpoints.
pub(super) fn prune(log: &mut MemoryLog, thread: &ThreadId, spans: &[PruneSpan]) -> Pruned {
    let due = due(log, thread, spans);
    let mut report = Pruned::default();
    report.checkpoints = due.len() as u64;
    let spaces = log.threads.get_mut(thread).map(|thread| &mut thread.spaces);
    let Some(spaces) = spaces else { return report };
    let before = values(spaces);
    for (namespace, id) in due {
        let Some(space) = spaces.get_mut(&namespace) else { continue };
        let Some(stored) = space.checkpoints.get(&id).cloned() else { continue };
        let mut record = stored.record.clone();
        (record.pruned, record.parents) = (true, [].into());
        record.metadata = pruned_metadata(record.metadata.as_deref());
        let changes = stored.delta.changes.clone();
        let delta = Delta { consumed: Vec::new(), changes, seen: Vec::new() };
        let pruned = StoredCheckpoint { record, delta, state: CheckpointState::default() };
        space.checkpoints.put(id, Arc::new(pruned));
        space.timers.retain(|_, (checkpoint, _)| *checkpoint != id);
    }
    spaces.values_mut().for_each(retain_shown);
    let after = values(spaces);
    debug_assert!(after.values <= before.values && after.bytes <= before.bytes, "a pruning only removes values");
    report.values = before.values.saturating_sub(after.values);
    report.bytes = before.bytes.saturating_sub(after.bytes);
    report
}

/// Counts the values of namespaces.
fn values(spaces: &BTreeMap<Namespace, NamespaceVersion>) -> Pruned {
    let mut sum = Pruned::default();
    spaces.values().for_each(|space| stored_of(space).for_each(|stored| sum.add(content(space, stored))));
    sum
}

/// Reduces pruned checkpoints to the values that the next retained checkpoint of their branch shows.
fn retain_shown(space: &mut NamespaceVersion) {
    let (mut reduced, mut bare) = (Vec::new(), Vec::new());
    let (mut child, mut kept): (Option<Arc<StoredCheckpoint>>, Option<Arc<StoredCheckpoint>>) = (None, None);
    for (id, stored) in space.checkpoints.walk_down(None) {
        let child_is_pruned = child
            .replace(Arc::clone(stored))
            .is_some_and(|child| child.record.branch == stored.record.branch && child.record.pruned);
        if !stored.record.pruned {
            kept = Some(Arc::clone(stored));
            continue;
        }
        let mut record = stored.record.clone();
        // The writes that a kept child has consumed belong to it, and they name tasks.
        if child_is_pruned {
            record.tasks.clear();
            bare.push(*id);
        }
        let shown = kept.as_ref().filter(|kept| kept.record.branch == record.branch);
        let changes = stored.delta.changes.iter().filter_map(|change| shown_of(shown?, stored, change)).collect();
        let delta = Delta { consumed: Vec::new(), changes, seen: Vec::new() };
        reduced.push((*id, Arc::new(StoredCheckpoint { record, delta, state: CheckpointState::default() })));
    }
    reduced.into_iter().for_each(|(id, stored)| space.checkpoints.put(id, stored));
    bare.into_iter().for_each(|id| space.writes.put(id, CheckpointWrites::default()));
}

/// Returns the part of a change of a pruned checkpoint that a later checkpoint of its branch shows.
fn shown_of(kept: &StoredCheckpoint, pruned: &StoredCheckpoint, change: &Changed) -> Option<Changed> {
    let channel = kept.state.channels.get(&*change.channel)?;
    let value = match &change.value {
        ChangedValue::Items(items) => {
            let list = channel.value.items()?;
            let is_shown = |item: &&ChangedItem| {
                matches!(item.op, ChangedOp::Put(_))
                    && list.positions.get(&item.position).is_some_and(|shown| shown.seq == pruned.record.seq)
            };
            let shown: Vec<ChangedItem> = items.iter().filter(is_shown).cloned().collect();
            ChangedValue::Items(shown)
        }
        ChangedValue::Value(payload) if channel.ordinal == pruned.record.ordinal => {
            ChangedValue::Value(Arc::clone(payload))
        }
        ChangedValue::Empty | ChangedValue::Value(_) => return None,
    };
    Some(Changed { channel: Arc::clone(&change.channel), version: change.version, task: change.task, value })
}

/// Returns the number and the bytes of the values that a checkpoint wrote, and of the writes of its tasks.
fn content(space: &NamespaceVersion, stored: &StoredCheckpoint) -> Pruned {
    let mut report = Pruned::default();
    let mut add = |bytes: usize| {
        report.values += 1;
        report.bytes += bytes as u64;
    };
    for change in &stored.delta.changes {
        match &change.value {
            ChangedValue::Empty => {}
            ChangedValue::Value(payload) => add(payload.len()),
            ChangedValue::Items(items) => items.iter().for_each(|item| {
                if let ChangedOp::Put(payload) = &item.op {
                    add(payload.len());
                }
            }),
        }
    }
    let writes = space.writes_of(&stored.record.point.checkpoint);
    writes.walk_up(None).for_each(|(_, write)| write.payloads().iter().for_each(|payload| add(payload.len())));
    report
}

/// Estimates what would be pruned: values that kept checkpoints show are counted too.
pub(super) fn estimate(log: &MemoryLog, thread: &ThreadId, spans: &[PruneSpan]) -> Pruned {
    let due = due(log, thread, spans);
    let mut report = Pruned::default();
    report.checkpoints = due.len() as u64;
    for (namespace, id) in due {
        if let Some(space) = log.space(thread, &namespace)
            && let Some(stored) = space.checkpoints.get(&id)
        {
            report.add(content(space, stored));
        }
    }
    report
}
