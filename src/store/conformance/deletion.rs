//! Deleting threads, and finding the checkpoints of a run by its id.

use super::build::*;
use crate::base::limits::{DELETED_THREADS_MAX, FORKS_SHOWN_MAX};
use crate::store::log::Erasure;
use crate::store::operation::TRASHED;

fn delete(backend: &dyn Log, places: &[&CasePlace<'_>]) {
    let threads: Vec<ThreadId> = places.iter().map(|place| place.thread.clone()).collect();
    _ = backend.delete_threads(&threads).expect("threads are deleted");
    let erasure = backend.reclaim().expect("deleted threads are reclaimed");
    assert_eq!(erasure, Erasure::Erased, "no reader is in the way");
}

fn threads(backend: &dyn Log) -> Vec<String> {
    let found = backend.threads(None, 100).expect("threads are listed");
    found.iter().map(|thread| thread.id.to_string()).collect()
}

/// Fills a thread with every kind of row; its large texts are those of every other one.
fn fill(backend: &dyn Log, place: &CasePlace<'_>) {
    let large = "shared ".repeat(500);
    let first = begin(1).tasks(&["a", "b"]).value("x", 1, &large).items("list", 1, vec![put(0, &large)]);
    place.add_at(None, first);
    let pending = vec![write(0, "x", &large), write_items(1, "list", &["one", &large]), write(-4, "given", &large)];
    commit(backend, &place.pending(1, writes(1, task(1), "p", pending)));
    commit(backend, &place.pending(1, writes(1, task(9), "p", vec![write(-4, "given", "own text ".repeat(9))])));
    commit(backend, &place.pending(1, writes(1, task(9), "p", vec![write(-4, "given", "another text, too")])));
    place.add(on(2, 1).value_of("x", 2, task(1), 0).seen("a", &[("x", 1)]));
    place.add_at(Some(2), on(3, 1).items("list", 2, vec![put(1, "sibling")]));
    let inside = place.inside("a:1");
    inside.add(begin(4).value("y", 1, &large));
    for n in 5..75 {
        inside.add(on(n, n - 1).value("y", n, n.to_string()));
    }
}

pub(super) fn whole(backend: &dyn Log) {
    let (gone, stays) = (root_of(backend, "gone"), root_of(backend, "stays"));
    fill(backend, &gone);
    fill(backend, &stays);
    delete(backend, &[&gone]);
    assert_eq!(threads(backend), ["stays"]);
    assert_eq!(gone.head(), None);
    assert_eq!(gone.inside("a:1").head(), None);
    assert!(backend.namespaces(&gone.thread).expect("namespaces are listed").is_empty());
    assert!(matches!(backend.state(&gone.point(1)), Err(StoreError::CheckpointNotFound { .. })));
    assert!(matches!(backend.writes(&gone.point(1)), Err(StoreError::CheckpointNotFound { .. })));
    assert_eq!(stays.text(2, "x"), stays.text(1, "x"), "shared content stays");
    assert!(stays.list(3, ItemRange::All).ends_with("1=sibling"));
    clean(backend);
    // It can be made anew, from nothing, and with the same ids.
    gone.add(begin(1).value("x", 1, "new"));
    assert_eq!(gone.text(1, "x").as_deref(), Some("new"));
    assert_eq!(gone.text(1, "list"), None);
    assert!(gone.writes(1).is_empty());
    delete(backend, &[&gone, &stays, &gone]);
    assert!(threads(backend).is_empty());
}

pub(super) fn forks(backend: &dyn Log) {
    let (source, fork, third) = (root_of(backend, "source"), root_of(backend, "fork"), root_of(backend, "third"));
    fill(backend, &source);
    // The fork takes over bytes of a write of its source.
    let draft = fork_of(100, source.point(1)).value_of("x", 2, task(1), 0);
    fork.add_at(None, draft.items("list", 2, vec![put(7, "own")]));
    third.add(fork_of(101, fork.point(100)));
    let refused = |places: &[&CasePlace<'_>], thread: &CasePlace<'_>, forks: &[&CasePlace<'_>]| {
        let threads: Vec<ThreadId> = places.iter().map(|place| place.thread.clone()).collect();
        match backend.delete_threads(&threads) {
            Err(StoreError::ForkedOff { thread: of, forks: found, more: false }) => {
                let wanted: Vec<ThreadId> = forks.iter().map(|place| place.thread.clone()).collect();
                assert_eq!((of, found), (thread.thread.clone(), wanted), "the refusal names others");
            }
            other => panic!("expected a refusal, got {other:?}"),
        }
    };
    refused(&[&source], &source, &[&fork]);
    refused(&[&source, &fork], &fork, &[&third]);
    refused(&[&third, &source], &source, &[&fork]);
    assert_eq!(threads(backend), ["fork", "source", "third"], "nothing was deleted");
    clean(backend);
    delete(backend, &[&fork, &third]);
    assert_eq!(threads(backend), ["source"]);
    assert_eq!(source.text(2, "x"), source.text(1, "x"), "a fork leaves its source as it was");
    assert_eq!(source.writes(1).len(), 4);
    clean(backend);
    fork.add(fork_of(100, source.inside("a:1").point(4)));
    refused(&[&source], &source, &[&fork]);
    delete(backend, &[&fork, &source]);
}

/// The refusal names a bounded number of forks, the oldest first.
pub(super) fn many_forks(backend: &dyn Log) {
    let source = root_of(backend, "source");
    source.add(begin(1).value("x", 1, "shared"));
    let forks: Vec<CasePlace<'_>> = (0..40).map(|n| root_of(backend, &format!("fork {}", 99 - n))).collect();
    for (n, fork) in (100..).zip(&forks) {
        fork.add(fork_of(n, source.point(1)));
    }
    let refused = backend.delete_threads(std::slice::from_ref(&source.thread)).expect_err("it has forks");
    assert!(refused.to_string().len() < 500, "{refused}");
    assert!(refused.to_string().ends_with("and others were forked from it; nothing was deleted"), "{refused}");
    match refused {
        StoreError::ForkedOff { thread, forks: found, more: true } => {
            let first: Vec<ThreadId> = forks[..FORKS_SHOWN_MAX].iter().map(|fork| fork.thread.clone()).collect();
            assert_eq!((thread, found), (source.thread.clone(), first));
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    let all: Vec<&CasePlace<'_>> = forks.iter().chain([&source]).collect();
    delete(backend, &all);
}

/// A deletion hides a thread at once, whatever its size, and its id can be used again at once.
pub(super) fn hidden(backend: &dyn Log) {
    let (place, other) = (root_of(backend, "large"), root_of(backend, "other"));
    let drafts = |from: u64| {
        (from..from + 400).map(move |n| {
            let draft = next(n);
            draft.value("x", n, "a value that is not inline").items("list", n, vec![put(n, "an item of a list")])
        })
    };
    commit(backend, &place.batch(None, drafts(1)));
    commit(backend, &place.batch(Some(400), drafts(401)));
    place.inside("a:1").add(begin(1_000));
    other.add(begin(1).items("list", 1, vec![put(0, "stays")]));
    let last_seq = other.record(1).seq;
    _ = backend.delete_threads(std::slice::from_ref(&place.thread)).expect("a thread is deleted");
    assert_eq!(threads(backend), ["other"]);
    assert_eq!((place.head(), place.inside("a:1").head()), (None, None));
    assert!(backend.checkpoint(&place.point(3)).expect("reads").is_none());
    assert!(matches!(backend.state(&place.point(3)), Err(StoreError::CheckpointNotFound { .. })));
    let mut fork = other.batch(Some(1), [fork_of(2, place.point(3))]);
    fork.expect[0].head = Some(id(1));
    assert!(backend.commit(&fork).is_err(), "it cannot be forked");
    place.add(begin(1).items("list", 1, vec![put(0, "anew")]));
    assert_eq!(place.list(1, ItemRange::All), "0=anew");
    assert!(place.record(1).seq > last_seq, "a seq is used once");
    clean(backend);
    assert_eq!(backend.reclaim().expect("reclaims"), Erasure::Erased);
    clean(backend);
    assert_eq!(backend.check().expect("the check runs").erasing, 0);
    assert_eq!(place.list(1, ItemRange::All), "0=anew");
    assert_eq!(other.list(1, ItemRange::All), "0=stays");
}

/// A `seq` is used once, also when the newest checkpoints are deleted.
pub(super) fn seqs(backend: &dyn Log) {
    let (place, other) = (root_of(backend, "place"), root_of(backend, "other"));
    other.add(begin(1));
    place.add(begin(1));
    place.add(on(2, 1));
    let (seq, branch) = (place.record(2).seq, place.record(2).branch);
    delete(backend, &[&place]);
    other.add(on(2, 1));
    assert!(other.record(2).seq > seq);
    delete(backend, &[&other]);
    place.add(begin(1));
    assert!(place.record(1).seq > seq + 1 && place.record(1).branch > branch);
}

pub(super) fn nothing(backend: &dyn Log) {
    let (place, missing) = (root_of(backend, "place"), root_of(backend, "missing"));
    delete(backend, &[&missing]);
    place.add(begin(1));
    delete(backend, &[]);
    delete(backend, &[&missing]);
    assert_eq!(threads(backend), ["place"], "what is not there is passed over");
    let many = vec![place.thread.clone(); DELETED_THREADS_MAX + 1];
    assert!(matches!(backend.delete_threads(&many), Err(StoreError::Invalid { field: "deleted threads", .. })));
    delete(backend, &[&place, &missing]);
    assert!(threads(backend).is_empty());
}

pub(super) fn under_way(backend: &dyn Log) {
    let place = root_of(backend, "busy");
    place.add(begin(1).tasks(&["a"]));
    delete(backend, &[&place]);
    let next = place.batch(Some(1), [on(2, 1)]);
    assert!(matches!(backend.commit(&next), Err(StoreError::Conflict { found: None, .. })), "a run gets a conflict");
    let pending = place.pending(1, writes(1, task(1), "p", vec![write(0, "x", "late")]));
    assert!(matches!(backend.commit(&pending), Err(StoreError::Conflict { found: None, .. })));
    assert!(threads(backend).is_empty());
}

pub(super) fn of_run(backend: &dyn Log) {
    let (place, other) = (root_of(backend, "runs"), root_of(backend, "other"));
    let (first, second) = (RunId::from_key(&place.thread, "1"), RunId::from_key(&place.thread, "2"));
    let by = |mut draft: CheckpointDraft, run: RunId| {
        draft.0.run = Some(run);
        draft
    };
    let found = |place: &CasePlace<'_>, run: &RunId| {
        let record = backend.last_of_run(&place.thread, &place.namespace, run).expect("a run is looked for");
        record.map(|record| record.point)
    };
    assert_eq!(found(&place, &first), None);
    place.add_at(None, by(begin(1), first));
    place.add_at(Some(1), by(on(2, 1), first));
    place.add_at(Some(2), by(on(3, 2), second));
    place.inside("a:1").add_at(None, by(begin(4), first));
    other.add_at(None, by(begin(5), first));
    let points = |place: &CasePlace<'_>, n: u64| Some(place.point(n));
    assert_eq!(found(&place, &first), points(&place, 2), "the newest of the run, not of the thread");
    assert_eq!(found(&place, &second), points(&place, 3));
    assert_eq!(found(&place.inside("a:1"), &first), points(&place.inside("a:1"), 4));
    assert_eq!(found(&other, &first), points(&other, 5));
    assert_eq!(found(&other, &second), None);
    let random = RunId::from_bytes([0x44; 16]);
    place.add_at(Some(3), by(on(6, 3), random));
    assert_eq!(found(&place, &random), None, "only runs with a key are found");
    let root: CheckpointRef = place.point_of(id(3));
    assert_eq!(root.namespace, Namespace::root());
}

/// Sets the fact that a thread is in the trash, or removes it.
fn set_trashed(backend: &dyn Log, place: &CasePlace<'_>, before: Option<Timestamp>, after: Option<Timestamp>) {
    let value = |until: Option<Timestamp>| until.map(|until| OperationValue::Text(until.as_micros().to_string()));
    let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(1));
    let (thread, field) = (place.thread.clone(), OperationField::Fact(TRASHED.to_owned()));
    operation.changes.push(OperationChange::new(thread, Namespace::root(), field, value(before), value(after)));
    backend.operate(&operation).expect("a fact is stored");
}

pub(super) fn trash(backend: &dyn Log) {
    // Far in the future, so that a background of the backend leaves the threads alone.
    let until = |n: i64| Some(Timestamp::from_micros(9_000_000_000_000_000 + n));
    let places @ [soon, late, restored, source] =
        &["soon", "late", "restored", "source"].map(|name| root_of(backend, name));
    places.iter().for_each(|place| fill(backend, place));
    let fork = root_of(backend, "fork");
    fork.add(fork_of(1, source.point(1)));
    for (place, n) in [(soon, 5), (late, 9), (restored, 5), (source, 5)] {
        set_trashed(backend, place, None, until(n));
    }
    set_trashed(backend, restored, until(5), None);
    let erase = |n: i64| {
        _ = backend.erase_trash(until(n).expect("a timestamp")).expect("the trash is emptied");
        assert_eq!(backend.reclaim().expect("deleted threads are reclaimed"), Erasure::Erased);
    };
    erase(4);
    assert_eq!(threads(backend), ["fork", "late", "restored", "soon", "source"], "the time of no thread has ended");
    erase(5);
    assert_eq!(threads(backend), ["fork", "late", "restored", "source"], "a thread with a fork stays");
    set_trashed(backend, &fork, None, until(8));
    erase(8);
    assert_eq!(threads(backend), ["late", "restored"], "a thread and its fork are deleted together");
    set_trashed(backend, late, until(9), until(20));
    erase(19);
    assert_eq!(threads(backend), ["late", "restored"], "the new time counts");
    erase(20);
    assert_eq!(threads(backend), ["restored"]);
}
