//! Followers of the log: its order, its end, and its signals.

use super::build::*;

fn after(backend: &dyn Log, position: LogPosition, thread: Option<&CasePlace<'_>>, limit: usize) -> ChangePage {
    let page = followed(backend).changes_after(&position, thread.map(|place| &place.thread), limit).expect("reads");
    let last = page.records.last().map_or(position, |(position, _)| *position);
    assert!(!page.records.is_empty() || page.position == last, "an empty page stays where it is");
    page
}

/// Returns the checkpoints after a position, at most `limit`.
pub(super) fn follow(backend: &dyn Log, from: LogPosition, thread: Option<&CasePlace<'_>>, limit: usize) -> Vec<u64> {
    numbers(after(backend, from, thread, limit).records.iter().map(|(_, record)| record))
}

pub(super) fn order(backend: &dyn Log) {
    let position = |back| followed(backend).position(back).expect("the log is read");
    let (start, end) = (LogPosition::START, position(0));
    assert!(follow(backend, start, None, 9).is_empty() && follow(backend, end, None, 9).is_empty());
    let [a, b] = roots(backend, ["a", "b"]);
    let inner = a.inside("node:1");
    b.add(begin(5));
    a.add(begin(1));
    inner.add(begin(3));
    a.add_all([on(2, 1), on(4, 2)]);
    b.add(on(6, 5));
    let all = after(backend, start, None, 9);
    let (order, positions): (Vec<u64>, Vec<LogPosition>) =
        all.records.iter().map(|(position, record)| (number(record.point.checkpoint), *position)).unzip();
    assert_eq!(order, [5, 1, 3, 2, 4, 6], "as they were committed");
    assert!(follow(backend, all.position, None, 9).is_empty(), "the page ends where the log does");
    for (from, position) in (1..).zip(&positions) {
        let stored = LogPosition::from_bytes(position.as_bytes()).expect("a position survives its bytes");
        assert_eq!(position.to_string().parse::<LogPosition>().ok(), Some(stored), "and its text");
        let page = after(backend, stored, None, 2).position;
        assert_eq!(follow(backend, stored, None, 2), order[from..order.len().min(from + 2)]);
        assert_eq!(follow(backend, page, None, 9), order[order.len().min(from + 2)..]);
    }
    assert!(order.ends_with(&follow(backend, position(2), None, 9)), "the newest ones follow");
    assert_eq!(follow(backend, start, Some(&a), 9), [1, 3, 2, 4], "of all namespaces");
    assert_eq!(follow(backend, positions[1], Some(&a), 2), [3, 2]);
    assert!(follow(backend, start, Some(&root_of(backend, "none")), 9).is_empty());
    assert!(follow(backend, start, None, 0).is_empty());
    assert_eq!(all.records[2].1, inner.record(3), "a record is whole");
    let foreign = LogPosition::from_bytes(&[7; POSITION_BYTES_MAX]).expect("it fits");
    followed(backend).changes_after(&foreign, None, 9).expect_err("it is of another backend");
    // Deleted threads are passed over.
    b.delete();
    assert_eq!(follow(backend, start, None, 9), [1, 3, 2, 4]);
    assert_eq!(follow(backend, start, None, 2), [1, 3], "a page is full of what is left");
    b.add(begin(7));
    assert_eq!(follow(backend, all.position, None, 9), [7], "a position is used once");
}

pub(super) fn signals(backend: &dyn Log) {
    let mut watch = followed(backend).watch().expect("the log can be followed");
    let place = root_of(backend, "watched");
    for n in 1..4 {
        let seen = watch.signal.count();
        if let Some(probe) = &mut watch.probe {
            probe.has_changed().expect("a look");
            assert!(!probe.has_changed().expect("a look"), "nothing was committed");
        }
        place.add(next(n));
        let probed = watch.probe.as_mut().is_some_and(|probe| probe.has_changed().expect("a look"));
        assert!(watch.signal.wait(seen, Duration::ZERO) || probed, "a commit that was acknowledged is signalled");
    }
}
