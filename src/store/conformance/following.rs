//! Followers of the log: its order, its end, and its signals.

use std::time::Duration;

use super::build::{CheckpointDraft, clean, commit, id, root_of};
use crate::base::{CheckpointId, ThreadId};
use crate::store::backend::Backend;
use crate::store::record::CheckpointRecord;

fn after(backend: &dyn Backend, seq: u64, thread: Option<&ThreadId>, limit: usize) -> Vec<CheckpointRecord> {
    backend.records_after(seq, thread, limit).expect("the log is read")
}

fn ids(records: &[CheckpointRecord]) -> Vec<CheckpointId> {
    assert!(records.is_sorted_by_key(|record| record.seq), "they come in the order of the log");
    records.iter().map(|record| record.point.checkpoint).collect()
}

fn end(backend: &dyn Backend) -> u64 {
    backend.last_seq().expect("the log is read")
}

pub(super) fn order(backend: &dyn Backend) {
    assert_eq!((end(backend), after(backend, 0, None, 9).len()), (0, 0));
    let (a, b) = (root_of("a"), root_of("b"));
    let inner = a.inside("node:1");
    b.add(backend, None, CheckpointDraft::root(5));
    a.add(backend, None, CheckpointDraft::root(1));
    inner.add(backend, None, CheckpointDraft::root(3));
    commit(backend, &a.batch(Some(1), [CheckpointDraft::on(2, 1), CheckpointDraft::on(4, 2)]));
    b.add(backend, Some(5), CheckpointDraft::on(6, 5));
    let all = after(backend, 0, None, 9);
    assert_eq!(ids(&all), [5, 1, 3, 2, 4, 6].map(id), "as they were committed");
    assert_eq!(all.last().map(|record| record.seq), Some(end(backend)));
    for from in 0..all.len() {
        assert_eq!(ids(&after(backend, all[from].seq, None, 2)), ids(&all[from + 1..all.len().min(from + 3)]));
    }
    assert_eq!(ids(&after(backend, 0, Some(&a.thread), 9)), [1, 3, 2, 4].map(id), "of all namespaces");
    assert_eq!(ids(&after(backend, all[1].seq, Some(&a.thread), 2)), [3, 2].map(id));
    assert!(after(backend, 0, Some(&root_of("none").thread), 9).is_empty());
    assert!(after(backend, u64::MAX, None, 9).is_empty() && after(backend, 0, None, 0).is_empty());
    assert_eq!(all[2], inner.record(backend, 3), "a record is whole");
    clean(backend);
}

pub(super) fn deleted(backend: &dyn Backend) {
    let (stays, goes) = (root_of("stays"), root_of("goes"));
    stays.add(backend, None, CheckpointDraft::root(1));
    goes.add(backend, None, CheckpointDraft::root(2));
    stays.add(backend, Some(1), CheckpointDraft::on(3, 1));
    goes.add(backend, Some(2), CheckpointDraft::on(4, 2));
    let before = after(backend, 0, None, 9);
    _ = backend.delete_threads(std::slice::from_ref(&goes.thread)).expect("it is deleted");
    assert_eq!(ids(&after(backend, 0, None, 9)), [1, 3].map(id));
    assert_eq!(ids(&after(backend, 0, None, 2)), [1, 3].map(id), "a page is full of what is left");
    goes.add(backend, None, CheckpointDraft::root(5));
    let again = after(backend, before[3].seq, None, 9);
    assert_eq!(ids(&again), [5].map(id), "a position is used once");
    clean(backend);
}

pub(super) fn signals(backend: &dyn Backend) {
    let mut watch = backend.watch_log().expect("the log can be followed");
    let place = root_of("watched");
    for n in 1..4 {
        let seen = watch.signal.count();
        if let Some(probe) = &mut watch.probe {
            probe.has_changed().expect("a look");
            assert!(!probe.has_changed().expect("a look"), "nothing was committed");
        }
        let draft = if n == 1 { CheckpointDraft::root(1) } else { CheckpointDraft::on(n, n - 1) };
        place.add(backend, (n > 1).then(|| n - 1), draft);
        let probed = watch.probe.as_mut().is_some_and(|probe| probe.has_changed().expect("a look"));
        assert!(watch.signal.wait(seen, Duration::ZERO) || probed, "a commit that was acknowledged is signalled");
    }
}
