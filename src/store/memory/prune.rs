//! Pruning in memory: a pruned checkpoint retains its record, and of its state what a later one of its branch shows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::stored::{CheckpointState, MemoryLog, MemoryNamespace, StoredChannel, StoredCheckpoint, StoredList};
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::Pruned;
use crate::store::backend::pruned_metadata;
use crate::store::log::{PruneTarget, UnprunablePlaces};
use crate::store::operation::{OperationChange, OperationField, OperationValue};
use crate::store::record::{ChannelValue, CheckpointRecord, CheckpointRef};

/// Returns the places of the checkpoints of a thread that cannot be pruned once the namespaces `without` are gone; of
/// these, the places on which something else rests, or which stay for another reason.
pub(super) fn held(log: &MemoryLog, thread: &ThreadId, without: &[Namespace]) -> UnprunablePlaces {
    let without: BTreeSet<&Namespace> = without.iter().filter(|namespace| !namespace.is_root()).collect();
    let mut held = UnprunablePlaces::new();
    for (id, namespace, space) in log.spaces(None) {
        let is_own = id == thread;
        if is_own && without.contains(namespace) {
            held.extend(
                space.newest().filter(|_| is_needed(log, thread, namespace, space)).map(StoredCheckpoint::place),
            );
            continue;
        }
        held.extend(space.head().filter(|_| is_own).map(StoredCheckpoint::place));
        let mut branch = None;
        for stored in space.all().rev() {
            let parent = log.parent(&stored.record).filter(|parent| parent.record.branch != stored.record.branch);
            held.extend(parent.filter(|parent| parent.record.point.thread == *thread).map(StoredCheckpoint::place));
            if is_own && branch.replace(stored.record.branch) != Some(stored.record.branch) {
                held.insert(stored.place());
            }
            let lists = stored.channels().filter_map(|channel| channel.list.as_ref()).filter(|_| is_own);
            for of in lists.filter_map(|list| list.reference.as_ref()).map(|reference| &reference.of) {
                let at = CheckpointRef::new(thread.clone(), of.namespace.clone(), of.checkpoint);
                held.extend(log.stored(&at).map(StoredCheckpoint::place));
            }
        }
    }
    if let Some((of, root)) = log.threads.get(thread).and_then(|of| Some((of, of.root()?))) {
        let named = of.fields.iter().filter_map(|(field, value)| match (field, value) {
            (OperationField::Branch(_), OperationValue::Checkpoint(id)) => root.stored(id),
            _ => None,
        });
        held.extend(named.map(StoredCheckpoint::place));
    }
    held
}

/// Returns whether a namespace stays whatever a plan says: the thread begins with it, an operation names it, it begins
/// with a checkpoint of another namespace, or one of its checkpoints states what model calls used.
fn is_needed(log: &MemoryLog, thread: &ThreadId, namespace: &Namespace, space: &MemoryNamespace) -> bool {
    let first = |space: &MemoryNamespace| space.all().next().map(|stored| stored.record.seq);
    let root = log.space(thread, &Namespace::root()).and_then(first);
    let names = |change: &OperationChange| change.thread == *thread && change.namespace == *namespace;
    let states_or_forks = |record: &CheckpointRecord| {
        let from = record.forked_from.as_ref().filter(|from| from.thread == *thread);
        from.is_some_and(|from| from.namespace != *namespace)
            || record.pruned && record.metadata.is_some()
            || pruned_metadata(record.metadata.as_deref()).is_some()
    };
    root.is_none_or(|root| first(space).is_none_or(|first| root >= first))
        || log.operations.iter().any(|(_, operation)| operation.changes.iter().any(names))
        || space.all().any(|stored| states_or_forks(&stored.record))
}

/// Returns the namespaces that still end with the given checkpoints, and on which nothing rests but one another.
fn removable(log: &MemoryLog, thread: &ThreadId, namespaces: &[(Namespace, CheckpointId)]) -> Vec<Namespace> {
    let newest = |namespace: &Namespace| log.space(thread, namespace).and_then(MemoryNamespace::newest_id);
    let is_same =
        |(namespace, last): &&(Namespace, CheckpointId)| !namespace.is_root() && newest(namespace) == Some(*last);
    let found: BTreeSet<&Namespace> = namespaces.iter().filter(is_same).map(|(namespace, _)| namespace).collect();
    let mut found: Vec<Namespace> = found.into_iter().cloned().collect();
    loop {
        let (held, before) = (held(log, thread, &found), found.len());
        let is_held = |space: &MemoryNamespace| space.all().any(|stored| held.contains(&stored.place()));
        found.retain(|namespace| !log.space(thread, namespace).is_some_and(is_held));
        if found.len() == before {
            return found;
        }
    }
}

/// Returns the checkpoints that would go.
fn due<'l>(log: &'l MemoryLog, thread: &'l ThreadId, what: PruneTarget<'_>) -> Vec<&'l StoredCheckpoint> {
    let all = log.all(Some(thread));
    match what {
        PruneTarget::Spans(spans) => {
            let held = held(log, thread, &[]);
            let is_in = |(branch, ordinal)| spans.iter().any(|span| span.contains(branch, ordinal));
            let goes = |stored: &StoredCheckpoint| is_in(stored.place()) && !held.contains(&stored.place());
            all.filter(|stored| !stored.record.pruned && goes(stored)).collect()
        }
        PruneTarget::Namespaces(namespaces) => {
            let gone = removable(log, thread, namespaces);
            all.filter(|stored| gone.contains(&stored.record.point.namespace)).collect()
        }
    }
}

/// Sums checkpoints that are not pruned, and the values of all.
fn sum<'l>(all: impl IntoIterator<Item = &'l StoredCheckpoint>) -> Pruned {
    all.into_iter().fold(Pruned::default(), |mut sum, stored| {
        sum.add(stored.content());
        sum.checkpoints += u64::from(!stored.record.pruned);
        sum
    })
}

/// Estimates what would be pruned: values that kept checkpoints show are counted too.
pub(super) fn estimate(log: &MemoryLog, thread: &ThreadId, what: PruneTarget<'_>) -> Pruned {
    sum(due(log, thread, what))
}

/// Prunes checkpoints, or namespaces as a whole.
pub(super) fn prune(log: &mut MemoryLog, thread: &ThreadId, what: PruneTarget<'_>) -> Pruned {
    let before = sum(log.all(Some(thread)));
    let due: BTreeSet<_> = due(log, thread, what).iter().map(|stored| stored.place()).collect();
    let is_due = |stored: &StoredCheckpoint| due.contains(&stored.place());
    if let Some(of) = log.thread_mut(thread) {
        of.spaces.retain(None, |_, space| {
            let goes = matches!(what, PruneTarget::Namespaces(_)) && space.all().any(is_due);
            reduce(Arc::make_mut(space), is_due);
            !goes
        });
    }
    let after = sum(log.all(Some(thread)));
    let mut report = Pruned::default();
    report.checkpoints = before.checkpoints - after.checkpoints;
    (report.values, report.bytes) = (before.values - after.values, before.bytes - after.bytes);
    report
}

/// Reduces the checkpoints that are pruned, and those that are due, to their records and the values that the next
/// retained checkpoint of their branch shows.
fn reduce(space: &mut MemoryNamespace, is_due: impl Fn(&StoredCheckpoint) -> bool) {
    let mut child: Option<Arc<StoredCheckpoint>> = None;
    let mut kept: Option<Arc<StoredCheckpoint>> = None;
    let newest_first: Vec<Arc<StoredCheckpoint>> = space.checkpoints.iter().rev().map(|(_, of)| of.clone()).collect();
    for mut stored in newest_first {
        let is_of_branch = |other: &&Arc<StoredCheckpoint>| other.record.branch == stored.record.branch;
        let child_is_pruned = child.as_ref().filter(is_of_branch).is_some_and(|child| child.record.pruned);
        let shown = kept.as_ref().filter(is_of_branch).map(|kept| shown_of(&stored, kept)).unwrap_or_default();
        if stored.record.pruned || is_due(&stored) {
            let StoredCheckpoint { record, state, consumed, writes } = Arc::make_mut(&mut stored);
            (record.pruned, record.parents, *consumed, *state) = (true, [].into(), Vec::new(), shown);
            record.metadata = pruned_metadata(record.metadata.as_deref());
            // The writes that a kept child has consumed belong to it, and they name tasks.
            if child_is_pruned {
                (record.tasks, *writes) = (Vec::new(), Default::default());
            }
            let id = record.point.checkpoint;
            space.timers.retain(|_, (of, _)| *of != id);
            space.checkpoints.put(id, stored.clone());
        } else {
            kept = Some(stored.clone());
        }
        child = Some(stored);
    }
}

/// Returns the part of what a pruned checkpoint wrote that a later one of its branch shows.
fn shown_of(pruned: &StoredCheckpoint, kept: &StoredCheckpoint) -> CheckpointState {
    let mut state = CheckpointState::default();
    for StoredChannel { record, list } in pruned.written() {
        let Some(later) = kept.state.channels.get(&record.channel) else { continue };
        let list = match (list, &later.list) {
            (Some(list), Some(shown)) => {
                let mut left = StoredList { written: list.written.clone(), ..StoredList::default() };
                let is_shown = |at: &u64| shown.positions.get(at).is_some_and(|item| item.seq == pruned.record.seq);
                let items = list.put_by(pruned.record.seq).filter(|(at, _)| is_shown(at));
                items.for_each(|(at, item)| left.positions.put(*at, item.clone()));
                Some(Arc::new(left))
            }
            (None, _) if record.value != ChannelValue::Empty && later.record.ordinal == record.ordinal => None,
            _ => continue,
        };
        state.channels.put(record.channel.clone(), StoredChannel { record: Arc::clone(record), list });
    }
    state
}
