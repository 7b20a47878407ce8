//! Tasks that sleep: listed by the timestamp at which they resume, until they have.

use super::build::*;

/// Timers go with the superstep that passes their checkpoint, and stay while the head is elsewhere.
pub(super) fn of_moved_head(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1));
    place.add(on(2, 1).tasks(&["x"]));
    let timers = vec![NewTimer::new(id(2), task(1), Some(moment(5)))];
    let interrupt = writes(2, 1, vec![write(-3, "waits", "an interrupt")]);
    commit(backend, &Batch { timers, ..place.pending(2, interrupt) });
    operate(backend, 10, vec![moves(&place, Some(2), Some(1))]);
    place.add(on(3, 1));
    operate(backend, 11, vec![moves(&place, Some(3), Some(2))]);
    place.add(on(4, 2));
    operate(backend, 12, vec![moves(&place, Some(4), Some(2))]);
}

/// A check finds a task that sleeps at the head of a thread and has no timer.
pub(super) fn missed(backend: &dyn Log) {
    let place = root_of(backend, "a");
    let inside = place.inside("in:1");
    [&place, &inside].iter().for_each(|place| place.add(begin(1).tasks(&["x", "y", "z"])));
    let interrupts = |n: u64, of: u8, wake_at: Option<i64>| {
        let mark = WriteMark::waiting([wake_at.map(Timestamp::from_micros)]);
        writes(n, of, vec![write(-3, "waits", "for something").with_mark(mark)])
    };
    let missing = || {
        let problems = backend.check().expect("a check").problems;
        assert!(problems.iter().all(|finding| finding.invariant == Invariant::Timers), "{problems:?}");
        problems.len()
    };
    commit(backend, &inside.pending(1, interrupts(1, 1, Some(5))));
    commit(backend, &place.pending(1, interrupts(1, 1, None)));
    assert_eq!(missing(), 0, "a task that waits for an answer has none, and that of a subgraph wakes its thread");
    commit(backend, &place.pending(1, interrupts(1, 1, Some(5))));
    commit(backend, &place.pending(1, interrupts(1, 2, Some(6))));
    assert_eq!(missing(), 2);
    for (wake_at, count) in [(Some(moment(5)), 1), (None, 2)] {
        let timers = vec![NewTimer::new(id(1), task(1), wake_at)];
        commit(backend, &Batch { timers, ..place.pending(1, interrupts(1, 1, Some(5))) });
        assert_eq!(missing(), count);
    }
    place.write(1, 1, vec![write(0, "x", "")]);
    place.write(1, 2, vec![write(-1, "error", "").with_mark(Some(WriteMark::Failed))]);
    assert_eq!(missing(), 0, "one has ended, the other has failed");
    place.add(on(2, 1).tasks(&["x"]));
    commit(backend, &place.pending(2, interrupts(2, 1, Some(9))));
    assert_eq!(missing(), 1);
    place.add(on(3, 2));
    assert_eq!(missing(), 0, "the first child takes timers along");
}
