//! Followers of the log: its order, its end, and its signals.

use super::build::*;
use crate::base::limits::POSITION_BYTES_MAX;
use crate::store::log::ChangePage;
use std::time::Duration;

fn after(backend: &dyn Log, position: LogPosition, thread: Option<&ThreadId>, limit: usize) -> ChangePage {
    let page = backend.changes_after(&position, thread, limit).expect("the log is read");
    let last = page.records.last().map_or(position, |(position, _)| *position);
    assert!(!page.records.is_empty() || page.position == last, "an empty page stays where it is");
    page
}

fn ids(page: &ChangePage) -> Vec<CheckpointId> {
    page.records.iter().map(|(_, record)| record.point.checkpoint).collect()
}

fn end(backend: &dyn Log) -> LogPosition {
    backend.position(0).expect("the log is read")
}

pub(super) fn order(backend: &dyn Log) {
    let start = LogPosition::START;
    assert!(
        after(backend, start, None, 9).records.is_empty() && after(backend, end(backend), None, 9).records.is_empty()
    );
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    let inner = a.inside("node:1");
    b.add(begin(5));
    a.add(begin(1));
    inner.add(begin(3));
    commit(backend, &a.batch(Some(1), [on(2, 1), on(4, 2)]));
    b.add(on(6, 5));
    let all = after(backend, start, None, 9);
    assert_eq!(ids(&all), [5, 1, 3, 2, 4, 6].map(id), "as they were committed");
    let positions: Vec<LogPosition> = all.records.iter().map(|(position, _)| *position).collect();
    assert!(after(backend, all.position, None, 9).records.is_empty(), "the page ends where the log does");
    assert!(after(backend, end(backend), None, 9).records.is_empty());
    for (from, position) in positions.iter().enumerate() {
        let stored = LogPosition::from_bytes(position.as_bytes()).expect("a position survives its bytes");
        assert_eq!(position.to_string().parse::<LogPosition>().ok(), Some(stored), "and its text");
        let page = after(backend, stored, None, 2);
        assert_eq!(ids(&page), ids(&all)[from + 1..positions.len().min(from + 3)]);
        assert_eq!(ids(&after(backend, page.position, None, 9)), ids(&all)[positions.len().min(from + 3)..]);
    }
    let newest = backend.position(2).expect("the log is read");
    assert!(ids(&all).ends_with(&ids(&after(backend, newest, None, 9))), "the newest ones follow");
    assert_eq!(ids(&after(backend, start, Some(&a.thread), 9)), [1, 3, 2, 4].map(id), "of all namespaces");
    assert_eq!(ids(&after(backend, positions[1], Some(&a.thread), 2)), [3, 2].map(id));
    assert!(after(backend, start, Some(&root_of(backend, "none").thread), 9).records.is_empty());
    assert!(after(backend, start, None, 0).records.is_empty());
    assert_eq!(all.records[2].1, inner.record(3), "a record is whole");
    let foreign = LogPosition::from_bytes(&[7; POSITION_BYTES_MAX]).expect("it fits");
    backend.changes_after(&foreign, None, 9).expect_err("it is of another backend");
}

pub(super) fn deleted(backend: &dyn Log) {
    let (stays, goes, start) = (root_of(backend, "stays"), root_of(backend, "goes"), LogPosition::START);
    stays.add(begin(1));
    goes.add(begin(2));
    stays.add(on(3, 1));
    goes.add(on(4, 2));
    let before = after(backend, start, None, 9);
    _ = backend.delete_threads(std::slice::from_ref(&goes.thread)).expect("it is deleted");
    assert_eq!(ids(&after(backend, start, None, 9)), [1, 3].map(id));
    assert_eq!(ids(&after(backend, start, None, 2)), [1, 3].map(id), "a page is full of what is left");
    goes.add(begin(5));
    assert_eq!(ids(&after(backend, before.position, None, 9)), [5].map(id), "a position is used once");
}

pub(super) fn signals(backend: &dyn Log) {
    let mut watch = backend.watch_log().expect("the log can be followed");
    let place = root_of(backend, "watched");
    for n in 1..4 {
        let seen = watch.signal.count();
        if let Some(probe) = &mut watch.probe {
            probe.has_changed().expect("a look");
            assert!(!probe.has_changed().expect("a look"), "nothing was committed");
        }
        let draft = next(n);
        place.add_at((n > 1).then(|| n - 1), draft);
        let probed = watch.probe.as_mut().is_some_and(|probe| probe.has_changed().expect("a look"));
        assert!(watch.signal.wait(seen, Duration::ZERO) || probed, "a commit that was acknowledged is signalled");
    }
}
