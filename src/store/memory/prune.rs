//! Pruning in memory: a pruned checkpoint retains its record. What it put is found in the next one of its branch.

use super::MemoryBackend;
use super::stored::*;
use crate::store::backend::{derived, pruned_metadata};

/// Returns the places of the checkpoints that would go, of a version of the log.
fn due(version: &MemoryBackend, thread: &ThreadId, what: PruneTarget<'_>) -> MemoryResult<BTreeSet<(u64, u64)>> {
    let log = version.now();
    let all = log.all(Some(thread));
    Ok(match what {
        PruneTarget::Spans(spans) => {
            let held = derived::unprunable(version, thread, &[])?;
            let is_in = |(branch, ordinal)| spans.iter().any(|span| span.contains(branch, ordinal));
            let places = all.filter(|stored| !stored.record.pruned).map(StoredCheckpoint::place);
            places.filter(|place| is_in(*place) && !held.contains(place)).collect()
        }
        PruneTarget::Namespaces(namespaces) => {
            let gone = derived::removable(version, thread, namespaces)?;
            all.filter(|stored| gone.contains(&stored.record.point.namespace)).map(StoredCheckpoint::place).collect()
        }
    })
}

/// Sums the checkpoints of a thread that are not pruned, and the values of all, as far as they are wanted.
fn sum(log: &MemoryLog, thread: &ThreadId, is_wanted: impl Fn(&StoredCheckpoint) -> bool) -> Pruned {
    let mut sum = Pruned::default();
    for (.., space) in log.spaces(Some(thread)) {
        for stored in space.all().filter(|stored| is_wanted(stored)) {
            sum.add(space.content(stored));
            sum.checkpoints += u64::from(!stored.record.pruned);
        }
    }
    sum
}

/// Estimates what would be pruned: values that kept checkpoints show are counted too.
pub(super) fn estimate(version: &MemoryBackend, thread: &ThreadId, what: PruneTarget<'_>) -> MemoryResult<Pruned> {
    let due = due(version, thread, what)?;
    Ok(sum(&version.now(), thread, |stored| due.contains(&stored.place())))
}

/// Prunes checkpoints, or namespaces as a whole.
pub(super) fn prune(log: &mut MemoryLog, thread: &ThreadId, what: PruneTarget<'_>) -> MemoryResult<Pruned> {
    let before = sum(log, thread, |_| true);
    let due = due(&MemoryBackend::of(Arc::new(log.clone())), thread, what)?;
    let is_due = |stored: &StoredCheckpoint| due.contains(&stored.place());
    if let Some(of) = log.thread_mut(thread) {
        of.spaces.retain(None, |_, space| {
            let goes = matches!(what, PruneTarget::Namespaces(_)) && space.all().any(is_due);
            reduce(Arc::make_mut(space), is_due);
            !goes
        });
    }
    let (mut report, after) = (Pruned::default(), sum(log, thread, |_| true));
    report.checkpoints = before.checkpoints - after.checkpoints;
    (report.values, report.bytes) = (before.values - after.values, before.bytes - after.bytes);
    Ok(report)
}

/// Reduces the checkpoints that are pruned, and those that are due, to their records.
fn reduce(space: &mut MemoryNamespace, is_due: impl Fn(&StoredCheckpoint) -> bool) {
    let mut child: Option<(u64, bool)> = None;
    let newest_first: Vec<Arc<StoredCheckpoint>> = space.checkpoints.iter().rev().map(|(_, of)| of.clone()).collect();
    for mut stored in newest_first {
        let (id, branch) = (stored.record.point.checkpoint, stored.record.branch);
        let goes = stored.record.pruned || is_due(&stored);
        if goes {
            let StoredCheckpoint { record, state, added, writes } = Arc::make_mut(&mut stored);
            (record.pruned, record.parents, *added, *state) = (true, [].into(), None, CheckpointState::default());
            record.metadata = pruned_metadata(record.metadata.as_deref());
            // The writes that a kept child has consumed belong to it, and they name tasks.
            if child == Some((branch, true)) {
                (record.tasks, *writes) = (Vec::new(), Default::default());
            }
            space.timers.retain(|_, (of, _)| *of != id);
            space.checkpoints.put(id, stored);
        }
        child = Some((branch, goes));
    }
}
