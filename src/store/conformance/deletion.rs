//! Deleting threads.

use super::build::*;
use super::pruning;

/// Fills a thread with every kind of row; its large texts are those of every other one.
fn fill(place: &CasePlace<'_>) {
    pruning::fill(place, 1..=9);
    place.add(on(10, 1).items("list", 2, vec![put(1, "sibling")]));
    let inside = place.inside("a:1");
    inside.add(begin(4).value("y", 1, "shared ".repeat(500)));
    (5..75).for_each(|n| inside.add(on(n, n - 1).value("y", n, n.to_string())));
}

pub(super) fn whole(backend: &dyn Log) {
    let [gone, stays, missing] = roots(backend, ["gone", "stays", "missing"]);
    erase(backend, &[&missing]);
    [&gone, &stays].iter().for_each(|place| fill(place));
    erase(backend, &[]);
    erase(backend, &[&gone, &missing]);
    assert_eq!((gone.head(), gone.inside("a:1").head(), gone.namespaces()), (None, None, vec![]));
    let reads = [refusal(backend.state(&gone.point(1))), refusal(backend.writes(&gone.point(1)))];
    assert_eq!(reads, ["not found"; 2]);
    let conflict = "gone/ is at none, not 1";
    let pending = gone.pending(1, writes(1, 1, vec![write(0, "x", "late")]));
    refuses(backend, [(gone.batch(Some(1), [on(2, 1)]), conflict), (pending, conflict)]);
    let many = vec![stays.thread.clone(); DELETED_THREADS_MAX + 1];
    assert_eq!(refusal(backend.delete_threads(&many)), "deleted threads");
    // It can be made anew, from nothing, and with the same ids.
    gone.add(begin(1).value("x", 1, "new"));
    erase(backend, &[&gone, &stays, &gone]);
    assert!(threads(backend).is_empty());
}

pub(super) fn forks(backend: &dyn Log) {
    let places @ [source, fork, third] = &roots(backend, ["source", "fork", "third"]);
    let refuses = |places: &[&CasePlace<'_>], wanted: &str| {
        let threads: Vec<ThreadId> = places.iter().map(|place| place.thread.clone()).collect();
        assert_eq!(refusal(backend.delete_threads(&threads)), wanted);
    };
    fill(source);
    // The fork takes over bytes of a write of its source.
    let draft = fork_of(100, source.point(1)).value_of("x", 2, task(1), 0);
    fork.add(draft.items("list", 2, vec![put(7, "own")]));
    third.add(fork_of(101, fork.point(100)));
    let of = |thread: &str, fork: &CasePlace<'_>| format!("{thread} {:?} false", [&fork.thread]);
    refuses(&[source], &of("source", fork));
    refuses(&[source, fork], &of("fork", third));
    refuses(&[third, source], &of("source", fork));
    assert_eq!(threads(backend).len(), places.len(), "nothing was deleted");
    clean(backend);
    erase(backend, &[fork, third]);
    fork.add(fork_of(100, source.inside("a:1").point(4)));
    refuses(&[source], &of("source", fork));
    // The refusal names a bounded number of forks, the oldest first.
    let forks: Vec<CasePlace<'_>> = (0..40).map(|n| root_of(backend, &format!("fork {}", 99 - n))).collect();
    (200..).zip(&forks).for_each(|(n, fork)| fork.add(fork_of(n, source.point(1))));
    let refused = backend.delete_threads(std::slice::from_ref(&source.thread)).expect_err("it has forks");
    let text = refused.to_string();
    assert!(text.len() < 500 && text.ends_with("and others were forked from it; nothing was deleted"), "{text}");
    let StoreError::ForkedOff { forks: found, more: true, .. } = refused else { panic!("{refused:?}") };
    let first = std::iter::once(fork).chain(&forks).take(FORKS_SHOWN_MAX).map(|fork| fork.thread.clone());
    assert!(first.eq(found));
    erase(backend, &forks.iter().chain([fork, source]).collect::<Vec<_>>());
}

/// A deletion hides a thread at once, whatever its size, and its id can be used again at once.
pub(super) fn hidden(backend: &dyn Log) {
    let [place, other] = roots(backend, ["large", "other"]);
    let draft =
        |n| next(n).value("x", n, "a value that is not inline").items("list", n, vec![put(n, "an item of a list")]);
    other.add(begin(1).items("list", 1, vec![put(0, "stays")]));
    [1, 401].into_iter().for_each(|from| place.add_all((from..from + 400).map(draft)));
    place.inside("a:1").add(begin(1_000));
    let number = |record: CheckpointRecord| (record.seq, record.branch);
    let first = number(place.inside("a:1").record(1_000));
    place.delete();
    assert_eq!(threads(backend), ["other"]);
    assert_eq!((place.head(), place.inside("a:1").head(), place.found(3)), (None, None, None));
    assert_eq!(refusal(backend.state(&place.point(3))), "not found");
    let mut fork = other.batch(Some(1), [fork_of(2, place.point(3))]);
    fork.expect[0].head = Some(id(1));
    assert!(backend.commit(&fork).is_err(), "it cannot be forked");
    place.add(begin(1).items("list", 1, vec![put(0, "anew")]));
    assert_eq!(place.list(1), "0=anew");
    let second = number(place.record(1));
    clean(backend);
    reclaim(backend);
    clean(backend);
    assert_eq!(backend.check().expect("the check runs").erasing, 0);
    assert_eq!([place.list(1), other.list(1)], ["0=anew", "0=stays"]);
    erase(backend, &[&place]);
    place.add(begin(1));
    let third = number(place.record(1));
    assert!(first.0 < second.0 && second.0 < third.0, "a seq is used once");
    assert!(first.1 < second.1 && second.1 < third.1, "and so is the number of a branch");
}

pub(super) fn trash(backend: &dyn Log) {
    // Far in the future, so that a background of the backend leaves the threads alone.
    let until = |n: i64| Timestamp::from_micros(9_000_000_000_000_000 + n);
    let places @ [soon, late, restored, source] = &roots(backend, ["soon", "late", "restored", "source"]);
    places.iter().for_each(fill);
    let fork = root_of(backend, "fork");
    fork.add(fork_of(1, source.point(1)));
    let set = |place: &CasePlace<'_>, before: Option<i64>, after: Option<i64>| {
        let [before, after] = [before, after].map(|n| n.map(|n| until(n).as_micros().to_string()));
        operate(backend, 10, vec![fact(place, TRASHED, before.as_deref(), after.as_deref())]);
    };
    [(soon, 5), (late, 9), (restored, 5), (source, 5)].into_iter().for_each(|(place, n)| set(place, None, Some(n)));
    set(restored, Some(5), None);
    let left = |n: i64, expected: &[&str]| {
        _ = backend.erase(&Erase::Trash(until(n))).expect("the trash is emptied");
        reclaim(backend);
        assert_eq!(threads(backend), expected, "at {n}");
    };
    left(4, &["fork", "late", "restored", "soon", "source"]);
    // A thread with a fork stays, until both can be deleted together.
    left(5, &["fork", "late", "restored", "source"]);
    set(&fork, None, Some(8));
    left(8, &["late", "restored"]);
    set(late, Some(9), Some(20));
    left(19, &["late", "restored"]);
    left(20, &["restored"]);
}
