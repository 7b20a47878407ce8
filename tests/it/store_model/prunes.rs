//! Prunings of the model: both backends prune the same checkpoints, and the states of the others stay the same.

use std::sync::Arc;

use annals::store::batch::Payload;
use annals::store::log::{Log, LogExt, PruneSpan, PruneTarget};
use annals::store::record::{StateRecord, WriteRecord};
use annals::store::{CheckpointRef, ItemRange, StoreError};
use proptest::prelude::*;

use super::{Pair, items};

/// The rows of a list: position, ordinal, task and content.
type ShownRows = Vec<(u64, u64, Option<u32>, Payload)>;

fn shown(backend: &dyn Log, at: &CheckpointRef) -> (StateRecord, Vec<ShownRows>, Vec<WriteRecord>) {
    let state = backend.state(at).unwrap();
    let lists = state.channels.iter().map(|channel| items(backend, at, channel, ItemRange::All)).collect();
    let writes = backend.writes(at).unwrap();
    (state, lists, writes)
}

/// Prunes checkpoints beside one another, of both backends.
pub(super) fn prune(pair: &mut Pair<'_>, place: usize, from: usize, count: u64) -> Result<(), TestCaseError> {
    let at = place % pair.places.len();
    let thread = pair.places[at].thread.clone();
    let Some(id) = pair.places[at].ids.get(from % pair.places[at].ids.len().max(1)) else { return Ok(()) };
    let first = pair.places[at].point(*id);
    let points: Vec<CheckpointRef> =
        pair.places.iter().flat_map(|place| place.ids.iter().map(move |id| place.point(*id))).collect();
    let model = Arc::clone(&pair.model) as Arc<dyn Log>;
    let mut pruned = Vec::new();
    for backend in [&model, &pair.file] {
        let before: Vec<_> = points.iter().map(|at| shown(&**backend, at)).collect();
        let record = backend.checkpoint(&first).unwrap().unwrap();
        let span = PruneSpan::new(record.branch, record.ordinal, record.ordinal + count - 1);
        let estimate = backend.prune_estimate(&thread, &[span]).unwrap();
        let report = backend.prune(&thread, &[span]).unwrap();
        prop_assert_eq!(report.checkpoints, estimate.checkpoints);
        let mut gone = Vec::new();
        for (at, before) in points.iter().zip(before) {
            let record = backend.checkpoint(at).unwrap().unwrap();
            if !record.pruned {
                prop_assert_eq!(shown(&**backend, at), before, "{:?} after {:?}", at, span);
                continue;
            }
            let refused = matches!(backend.state(at), Err(StoreError::CheckpointPruned { .. }));
            prop_assert!(refused);
            gone.push(at.clone());
        }
        prop_assert_eq!(report.checkpoints, gone.len() as u64);
        pruned.push(gone);
        let problems = backend.check().unwrap().problems;
        prop_assert!(problems.is_empty(), "after {:?}: {:?}", span, problems);
    }
    prop_assert_eq!(&pruned[0], &pruned[1]);
    for place in &mut pair.places {
        let is_kept = |id: &annals::base::CheckpointId| {
            !pruned[0].contains(&CheckpointRef {
                thread: place.thread.clone(),
                namespace: place.namespace.clone(),
                checkpoint: *id,
            })
        };
        let kept: Vec<_> = place.ids.iter().copied().filter(is_kept).collect();
        place.ids = kept;
    }
    Ok(())
}

/// Prunes namespaces as a whole, of both backends.
pub(super) fn prune_namespaces(pair: &mut Pair<'_>, of: &[usize], is_stale: bool) -> Result<(), TestCaseError> {
    let thread = pair.places[of[0] % pair.places.len()].thread.clone();
    let mut ends = Vec::new();
    for (at, place) in of.iter().map(|at| &pair.places[at % pair.places.len()]).enumerate() {
        let back = usize::from(is_stale && at == 0);
        let end = place.ids.len().checked_sub(1 + back).map(|at| place.ids[at]);
        ends.extend(end.filter(|_| place.thread == thread).map(|id| (place.namespace.clone(), id)));
    }
    let points: Vec<CheckpointRef> =
        pair.places.iter().flat_map(|place| place.ids.iter().map(move |id| place.point(*id))).collect();
    let model = Arc::clone(&pair.model) as Arc<dyn Log>;
    let mut left = Vec::new();
    for backend in [&model, &pair.file] {
        let before: Vec<_> = points.iter().map(|at| shown(&**backend, at)).collect();
        let estimate = backend.prune_estimate(&thread, PruneTarget::Namespaces(&ends)).unwrap();
        let report = backend.prune(&thread, PruneTarget::Namespaces(&ends)).unwrap();
        prop_assert_eq!(report.checkpoints, estimate.checkpoints);
        let mut gone = Vec::new();
        for (at, before) in points.iter().zip(before) {
            match backend.checkpoint(at).unwrap() {
                Some(_) => prop_assert_eq!(shown(&**backend, at), before, "{:?} after {:?}", at, ends),
                None => gone.push(at.clone()),
            }
        }
        prop_assert_eq!(report.checkpoints, gone.len() as u64);
        let problems = backend.check().unwrap().problems;
        prop_assert!(problems.is_empty(), "after {:?}: {:?}", ends, problems);
        left.push((gone, backend.namespaces(&thread).unwrap()));
    }
    prop_assert_eq!(&left[0], &left[1]);
    let is_left = |namespace: &annals::base::Namespace| left[0].1.contains(namespace);
    for place in pair.places.iter_mut().filter(|place| place.thread == thread && !is_left(&place.namespace)) {
        place.ids.clear();
    }
    pair.committed.retain(|batch| batch.thread != thread || is_left(&batch.namespace));
    Ok(())
}
