//! Tasks that sleep: listed by the timestamp at which they resume, until they have.

use super::build::*;
use super::operations::{moves, operate};
use crate::store::check::Invariant;
use crate::store::mark::WriteMark;

/// Returns a batch in which a task writes, and begins to sleep or does no longer.
fn timed(place: &CasePlace<'_>, head: u64, of: u8, wake_at: Option<u64>) -> Batch {
    let timer = NewTimer::new(id(head), task(of), wake_at.map(moment));
    let interrupt = writes(head, of, vec![write(-3, "waits", "an interrupt")]);
    Batch { timers: vec![timer], ..place.pending(head, interrupt) }
}

/// Lets tasks sleep: each with its checkpoint, its number, and the timestamp.
fn sleep(place: &CasePlace<'_>, timers: &[(u64, u8, Option<u64>)]) {
    timers.iter().for_each(|(head, of, wake_at)| commit(place.backend, &timed(place, *head, *of, *wake_at)));
}

/// Shows the timers in a line: thread, checkpoint and task.
fn shown(backend: &dyn Log, due_by: Option<u64>, limit: usize) -> String {
    let timers = backend.timers(due_by.map(moment), limit).expect("timers are listed");
    let lines = timers.iter().map(|timer| {
        let (point, of) = (&timer.point, timer.task.as_bytes()[0]);
        format!("{}{} {}/{of}", point.thread, point.namespace, number(point.checkpoint))
    });
    lines.collect::<Vec<_>>().join(", ")
}

/// Returns the timers of a namespace: task and timestamp.
fn of(place: &CasePlace<'_>) -> Vec<(u8, Timestamp)> {
    let timers = place.backend.timers_of(&place.thread, &place.namespace).expect("the timers of a namespace");
    let all = place.backend.timers(None, 99).expect("timers are listed");
    assert!(timers.iter().all(|timer| timer.point.thread == place.thread && all.contains(timer)));
    timers.iter().map(|timer| (timer.task.as_bytes()[0], timer.wake_at)).collect()
}

/// Returns two threads, and a namespace of the first one, each with a checkpoint that has three tasks.
fn places(backend: &dyn Log) -> [CasePlace<'_>; 3] {
    let [a, b] = roots(backend, ["a", "b"]);
    let inside = a.inside("in:1");
    [&a, &b, &inside].iter().for_each(|place| place.add(begin(1).tasks(&["x", "y", "z"])));
    [a, b, inside]
}

pub(super) fn listed(backend: &dyn Log) {
    assert_eq!(of(&root_of(backend, "a")), [], "the thread does not exist");
    let [a, b, inside] = places(backend);
    assert_eq!((shown(backend, None, 9), of(&a)), (String::new(), vec![]));
    sleep(&a, &[(1, 1, Some(7)), (1, 2, Some(5)), (1, 3, Some(5))]);
    sleep(&b, &[(1, 1, Some(6))]);
    sleep(&inside, &[(1, 1, Some(5))]);
    let all = "a 1/2, a 1/3, ain:1 1/1, b 1/1, a 1/1";
    assert_eq!(shown(backend, None, 9), all, "by timestamp, thread, namespace and task");
    assert_eq!([shown(backend, None, 1), shown(backend, Some(4), 9)], ["a 1/2", ""]);
    assert_eq!(shown(backend, Some(6), 9), all[..all.len() - 7], "due at its timestamp");
    assert_eq!(of(&a), [(2, moment(5)), (3, moment(5)), (1, moment(7))], "by timestamp, then by task");
    assert_eq!((of(&b), of(&inside)), (vec![(1, moment(6))], vec![(1, moment(5))]));
    assert_eq!(of(&a.inside("in:2")), [], "a namespace that does not exist");
    let first = backend.timers(None, 1).expect("timers are listed").remove(0);
    assert_eq!((first.point, first.task, first.wake_at), (a.point(1), task(2), moment(5)));
    sleep(&a, &[(1, 2, Some(8)), (1, 3, None)]);
    assert_eq!(shown(backend, None, 9), "ain:1 1/1, b 1/1, a 1/1, a 1/2", "a task has one timer");
    sleep(&b, &[(1, 1, None), (1, 2, None)]);
    assert_eq!(shown(backend, None, 9), "ain:1 1/1, a 1/1, a 1/2");
}

pub(super) fn passed(backend: &dyn Log) {
    let [place, other, inside] = places(backend);
    [&place, &other, &inside].iter().for_each(|place| sleep(place, &[(1, 1, Some(5))]));
    place.write(1, 2, vec![write(0, "x", "")]);
    backend.refuses([(place.batch(None, [begin(2)]), "a/ is at 1, not none")]);
    assert_eq!(shown(backend, None, 9), "a 1/1, ain:1 1/1, b 1/1", "writes of others leave them alone");
    place.add(on(2, 1).tasks(&["x"]));
    assert_eq!(shown(backend, None, 9), "ain:1 1/1, b 1/1", "they go with the superstep that passes them");
    backend.refuses([(timed(&place, 1, 1, Some(5)), "a/ is at 2, not 1")]);
    sleep(&place, &[(2, 1, Some(6))]);
    assert_eq!((of(&place), of(&inside)), (vec![(1, moment(6))], vec![(1, moment(5))]));
    place.delete();
    assert_eq!(shown(backend, None, 9), "b 1/1", "they go with their thread");
    assert_eq!((of(&place), of(&inside), of(&other).len()), (vec![], vec![], 1));
}

pub(super) fn of_moved_head(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1));
    place.add(on(2, 1).tasks(&["x"]));
    sleep(&place, &[(2, 1, Some(5))]);
    let sleeping = || (backend.timers(None, 9).expect("timers are listed").len(), of(&place).len());
    assert_eq!(sleeping(), (1, 1));
    operate(backend, 10, vec![moves(&place, Some(2), Some(1))]);
    assert_eq!(sleeping(), (0, 0), "only tasks of heads sleep");
    place.add(on(3, 1));
    assert_eq!(sleeping(), (0, 0));
    operate(backend, 11, vec![moves(&place, Some(3), Some(2))]);
    assert_eq!(sleeping(), (1, 1), "a task sleeps again when the head moves back to its checkpoint");
    place.add(on(4, 2));
    operate(backend, 12, vec![moves(&place, Some(4), Some(2))]);
    assert_eq!(sleeping(), (0, 0), "the superstep that passed the task removed its timer");
}

/// A check finds a task that sleeps at the head of a thread and has no timer.
pub(super) fn missed(backend: &dyn Log) {
    let [place, _, inside] = places(backend);
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
