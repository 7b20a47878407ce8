//! Tasks that sleep: listed by the timestamp at which they resume, until they have.

use super::build::*;
use crate::store::check::Invariant;
use crate::store::mark::WriteMark;

/// Returns a batch in which a task writes, and begins to sleep or does no longer.
fn timed(place: &CasePlace<'_>, head: u64, task: TaskId, wake_at: Option<u64>) -> Batch {
    let interrupt = writes(head, task, "p", vec![write(-3, "waits", "an interrupt")]);
    let timer = NewTimer::new(id(head), task, wake_at.map(moment));
    Batch { timers: vec![timer], ..place.pending(head, interrupt) }
}

/// Shows the timers in a line: thread, checkpoint and task.
fn shown(backend: &dyn Log, due_by: Option<u64>, limit: usize) -> String {
    let timers = backend.timers(due_by.map(moment), limit).expect("timers are listed");
    let lines = timers.iter().map(|timer| {
        let n = (1..20).find(|n| id(*n) == timer.point.checkpoint).expect("a checkpoint of the case");
        format!("{}{} {n}/{}", timer.point.thread, timer.point.namespace, timer.task.as_bytes()[0])
    });
    lines.collect::<Vec<_>>().join(", ")
}

pub(super) fn listed(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    for place in [&a, &b, &a.inside("in:1")] {
        place.add(begin(1).tasks(&["x", "y"]));
    }
    assert_eq!(shown(backend, None, 9), "");
    commit(backend, &timed(&a, 1, task(1), Some(7)));
    commit(backend, &timed(&a, 1, task(2), Some(5)));
    commit(backend, &timed(&b, 1, task(1), Some(6)));
    commit(backend, &timed(&a.inside("in:1"), 1, task(1), Some(5)));
    assert_eq!(shown(backend, None, 9), "a 1/2, ain:1 1/1, b 1/1, a 1/1", "by timestamp, thread and namespace");
    assert_eq!(shown(backend, None, 1), "a 1/2");
    assert_eq!(shown(backend, Some(4), 9), "");
    assert_eq!(shown(backend, Some(6), 9), "a 1/2, ain:1 1/1, b 1/1", "due at its timestamp");
    let first = backend.timers(None, 1).expect("timers are listed").remove(0);
    assert_eq!((first.point, first.task, first.wake_at), (a.point(1), task(2), moment(5)));
    commit(backend, &timed(&a, 1, task(2), Some(8)));
    assert_eq!(shown(backend, None, 9), "ain:1 1/1, b 1/1, a 1/1, a 1/2", "a task has one timer");
    commit(backend, &timed(&b, 1, task(1), None));
    commit(backend, &timed(&b, 1, task(2), None));
    assert_eq!(shown(backend, None, 9), "ain:1 1/1, a 1/1, a 1/2");
}

pub(super) fn passed(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).tasks(&["x"]));
    let inside = place.inside("in:1");
    inside.add(begin(1).tasks(&["x"]));
    commit(backend, &timed(&place, 1, task(1), Some(5)));
    commit(backend, &timed(&inside, 1, task(1), Some(5)));
    commit(backend, &place.pending(1, writes(1, task(2), "p", vec![write(0, "x", "")])));
    assert_eq!(shown(backend, None, 9), "a 1/1, ain:1 1/1", "writes of others leave them alone");
    let stale = place.batch(None, [begin(2)]);
    assert!(matches!(backend.commit(&stale), Err(StoreError::Conflict { .. })));
    assert_eq!(shown(backend, None, 9), "a 1/1, ain:1 1/1");
    place.add(on(2, 1).tasks(&["x"]));
    assert_eq!(shown(backend, None, 9), "ain:1 1/1", "they go with the superstep that passes them");
    let late = timed(&place, 1, task(1), Some(5));
    assert!(matches!(backend.commit(&late), Err(StoreError::Conflict { .. })));
    commit(backend, &timed(&place, 2, task(1), Some(6)));
    _ = backend.delete_threads(std::slice::from_ref(&place.thread)).expect("a thread is deleted");
    assert_eq!(shown(backend, None, 9), "", "they go with their thread");
}

pub(super) fn refused(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).tasks(&["x"]));
    let good = timed(&place, 1, task(1), Some(5));
    let mut alone = good.clone();
    alone.writes.clear();
    refused_for(backend, &alone, "batch");
    let mut of_another = good.clone();
    of_another.timers[0].checkpoint = id(2);
    refused_for(backend, &of_another, "batch.timers");
    let mut with_checkpoint = good;
    with_checkpoint.checkpoints.push(on(2, 1).0);
    refused_for(backend, &with_checkpoint, "batch.timers");
    assert_eq!(shown(backend, None, 9), "", "nothing was written");
}

/// The timers of one namespace are found without those of others, and go with its head.
pub(super) fn of_namespace(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    let inside = a.inside("in:1");
    let of = |place: &CasePlace<'_>| {
        let timers = backend.timers_of(&place.thread, &place.namespace).expect("the timers of a namespace");
        assert!(timers.iter().all(|timer| timer.point.thread == place.thread));
        let all = backend.timers(None, 99).expect("timers are listed");
        assert!(timers.iter().all(|timer| all.contains(timer)), "as they are listed with the others");
        timers.iter().map(|timer| (timer.task.as_bytes()[0], timer.wake_at)).collect::<Vec<_>>()
    };
    assert_eq!(of(&a), [], "the thread does not exist");
    for place in [&a, &b, &inside] {
        place.add(begin(1).tasks(&["x", "y", "z"]));
    }
    assert_eq!(of(&a), []);
    commit(backend, &timed(&a, 1, task(1), Some(7)));
    commit(backend, &timed(&a, 1, task(2), Some(5)));
    commit(backend, &timed(&a, 1, task(3), Some(5)));
    commit(backend, &timed(&b, 1, task(1), Some(6)));
    commit(backend, &timed(&inside, 1, task(2), Some(4)));
    assert_eq!(of(&a), [(2, moment(5)), (3, moment(5)), (1, moment(7))], "by timestamp, then by task");
    assert_eq!((of(&b), of(&inside)), (vec![(1, moment(6))], vec![(2, moment(4))]));
    assert_eq!(of(&a.inside("in:2")), [], "a namespace that does not exist");
    commit(backend, &timed(&a, 1, task(2), None));
    assert_eq!(of(&a), [(3, moment(5)), (1, moment(7))]);
    a.add(on(2, 1).tasks(&["x"]));
    assert_eq!((of(&a), of(&inside)), (vec![], vec![(2, moment(4))]));
    commit(backend, &timed(&a, 2, task(1), Some(9)));
    _ = backend.delete_threads(std::slice::from_ref(&a.thread)).expect("a thread is deleted");
    assert_eq!((of(&a), of(&inside), of(&b)), (vec![], vec![], vec![(1, moment(6))]));
}

/// A check finds a task that sleeps at the head of a thread and has no timer.
pub(super) fn missed(backend: &dyn Log) {
    let place = root_of(backend, "a");
    let inside = place.inside("in:1");
    for place in [&place, &inside] {
        place.add(begin(1).tasks(&["x", "y"]));
    }
    let interrupts = |n: u64, of: u8, wake_at: Option<i64>| {
        let mark = WriteMark::waiting([wake_at.map(Timestamp::from_micros)]);
        writes(n, task(of), "p", vec![write(-3, "waits", "for something").with_mark(mark)])
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
    let timer = |wake_at| NewTimer::new(id(1), task(1), wake_at);
    commit(backend, &Batch { timers: vec![timer(Some(moment(5)))], ..place.pending(1, interrupts(1, 1, Some(5))) });
    assert_eq!(missing(), 1);
    commit(backend, &Batch { timers: vec![timer(None)], ..place.pending(1, interrupts(1, 1, Some(5))) });
    assert_eq!(missing(), 2);
    commit(backend, &place.pending(1, writes(1, task(1), "p", vec![write(0, "x", "")])));
    let failed = write(-1, "error", "").with_mark(Some(WriteMark::Failed));
    commit(backend, &place.pending(1, writes(1, task(2), "p", vec![failed])));
    assert_eq!(missing(), 0, "one has ended, the other has failed");
    place.add(on(2, 1).tasks(&["x"]));
    commit(backend, &place.pending(2, interrupts(2, 1, Some(9))));
    assert_eq!(missing(), 1);
    place.add(on(3, 2));
    assert_eq!(missing(), 0, "the first child takes timers along");
}
