//! Writers: conflicts, repeats, duplicates, and several writers at once.

use super::build::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

fn stored(backend: &dyn Log, place: &CasePlace<'_>) -> Vec<crate::base::CheckpointId> {
    let query = CheckpointQuery::new(place.thread.clone(), place.namespace.clone());
    ids(&backend.checkpoints(&query).expect("lists"))
}

pub(super) fn own(backend: &dyn Log) {
    let place = root_of(backend, "moved");
    place.add(begin(1).value("x", 1, "1").tasks(&["node"]));
    place.add(on(2, 1).value("x", 2, "2"));
    let late = on(3, 1).value("x", 2, "late").consumed(writes(1, task(1), "p", vec![write(0, "x", "late")]));
    let mut batch = place.batch(Some(1), [late, on(4, 3)]);
    batch.writes = vec![writes(2, task(1), "p", vec![write(0, "x", "late")])];
    conflicts(backend, &batch, Some(2), &batch.expect[0]);
    assert_eq!(stored(backend, &place), id_list([2, 1]), "a conflict writes nothing");
    assert!(place.writes(1).is_empty() && place.writes(2).is_empty(), "nor any write");
    assert_eq!(place.text(2, "x").as_deref(), Some("2"));
    place.add(on(3, 2).value("x", 3, "3"));
}

pub(super) fn ancestor(backend: &dyn Log) {
    let root = root_of(backend, "ancestor");
    let child = root.inside("node:1");
    root.add(begin(1));
    let on_root = |head| Expect::new(root.namespace.clone(), head);
    let expecting = |mut batch: Batch, expect: Expect| {
        batch.expect.push(expect);
        batch
    };
    commit(backend, &expecting(child.batch(None, [begin(2)]), on_root(Some(id(1)))));
    root.add(on(3, 1));
    let late = expecting(child.batch(Some(2), [on(4, 2)]), on_root(Some(id(1))));
    conflicts(backend, &late, Some(3), &on_root(Some(id(1))));
    let none = expecting(child.batch(Some(2), [on(4, 2)]), on_root(None));
    conflicts(backend, &none, Some(3), &on_root(None));
    assert_eq!(child.head(), Some(id(2)), "a conflict writes nothing");
    commit(backend, &expecting(child.batch(Some(2), [on(4, 2)]), on_root(Some(id(3)))));
}

pub(super) fn none_expected(backend: &dyn Log) {
    let place = root_of(backend, "none");
    let early = place.batch(Some(7), [on(8, 7)]);
    conflicts(backend, &early, None, &early.expect[0]);
    assert!(backend.threads(None, 10).expect("lists").is_empty(), "a conflict makes no thread");
    assert!(backend.namespaces(&place.thread).expect("lists").is_empty());
    place.add(begin(1));
    let second = place.batch(None, [begin(2)]);
    conflicts(backend, &second, Some(1), &second.expect[0]);
    assert_eq!(stored(backend, &place), id_list([1]));
}

pub(super) fn pending(backend: &dyn Log) {
    let place = root_of(backend, "pending");
    place.add(begin(1).tasks(&["node"]));
    let resume = place.pending(1, writes(1, task(1), "p", vec![write(-4, "given", "yes")]));
    commit(backend, &resume);
    place.add(on(2, 1));
    let other = place.pending(1, writes(1, task(1), "p", vec![write(-4, "given", "no")]));
    conflicts(backend, &other, Some(2), &other.expect[0]);
    assert_eq!(place.writes(1).len(), 1);
    assert_eq!(place.writes(1)[0].value, resume.writes[0].writes[0].value);
}

/// Returns a batch of two checkpoints that holds a little of everything.
fn rich(place: &CasePlace<'_>) -> Batch {
    let taken = writes(1, task(1), "p", vec![write(0, "x", "taken"), write_items(1, "list", &["a", "b"])]);
    let second = on(3, 2).value("y", 1, "y").seen("node", &[("x", 2)]);
    let first = on(2, 1).in_full().consumed(taken).value_of("x", 2, task(1), 0).by(0);
    place.batch(Some(1), [first.items("list", 1, vec![put(0, "a")]), second])
}

pub(super) fn repeat(backend: &dyn Log) {
    let place = root_of(backend, "repeat");
    place.add(begin(1).tasks(&["node"]));
    let batch = rich(&place);
    commit(backend, &batch);
    let (before, writes) = (place.record(3), place.writes(1));
    commit(backend, &batch);
    backend.submit(batch.clone()).wait().expect("repeating a submitted batch is safe, too");
    assert_eq!(stored(backend, &place), id_list([3, 2, 1]));
    assert_eq!(place.record(3), before, "nothing was written");
    assert_eq!(place.writes(1), writes);
    place.add(on(4, 3));
    commit(backend, &batch);
    assert_eq!(place.head(), Some(id(4)), "a late repeat does not move the head");
    assert_eq!(place.list(4, ItemRange::All), "0=a");
}

pub(super) fn duplicate(backend: &dyn Log) {
    let place = root_of(backend, "duplicate");
    place.add(begin(1).tasks(&["node"]));
    commit(backend, &rich(&place));
    let alterations: [fn(&mut Batch); 5] = [
        |batch| batch.checkpoints[1].step += 1,
        |batch| batch.checkpoints[1].changes[0].version += 1,
        |batch| batch.checkpoints[1].changes = begin(1).value("y", 1, "other").0.changes,
        |batch| batch.checkpoints[1].metadata = Some("{}".into()),
        |batch| batch.checkpoints[1].parents = [(Namespace::root(), id(9))].into(),
    ];
    for (n, alter) in alterations.into_iter().enumerate() {
        let mut batch = rich(&place);
        alter(&mut batch);
        match backend.commit(&batch) {
            Err(StoreError::Duplicate { id: taken }) => assert_eq!(taken, id(3)),
            other => panic!("alteration {n}: expected a duplicate, got {other:?}"),
        }
    }
    assert_eq!(place.text(3, "y").as_deref(), Some("y"), "nothing was written");
    let fork = root_of(backend, "fork");
    fork.add(fork_of(4, place.point(2)));
    let other = backend.commit(&fork.batch(None, [fork_of(4, place.point(3))]));
    assert!(matches!(other, Err(StoreError::Duplicate { .. })), "forked off something else: {other:?}");
    assert_eq!(stored(backend, &place), id_list([3, 2, 1]));
}

const WRITERS: usize = 8;
const ROUNDS: u64 = 12;

pub(super) fn many_threads(backend: &dyn Log) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let place = root_of(backend, &format!("writer {writer}"));
                for n in 1..=ROUNDS {
                    let head = (n > 1).then(|| n - 1);
                    let draft = head.map_or_else(|| begin(n), |head| on(n, head));
                    place.add_at(head, draft.items("list", n, vec![put(n, format!("{writer}"))]));
                }
            });
        }
    });
    for writer in 0..WRITERS {
        let place = root_of(backend, &format!("writer {writer}"));
        let all: Vec<_> = (1..=ROUNDS).map(|n| format!("{n}={writer}")).collect();
        assert_eq!(place.list(ROUNDS, ItemRange::All), all.join(" "));
        assert_eq!(stored(backend, &place), id_list((1..=ROUNDS).rev()));
    }
}

pub(super) fn race(backend: &dyn Log) {
    let place = root_of(backend, "contended");
    place.add(begin(1));
    let mut head = 1;
    for round in 1..=ROUNDS {
        let (start, won) = (Barrier::new(WRITERS), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for writer in 1..=WRITERS as u64 {
                let (place, start, won) = (&place, &start, &won);
                scope.spawn(move || {
                    let n = round * 100 + writer;
                    let batch = place.batch(Some(head), [on(n, head).value("x", round, n.to_string())]);
                    start.wait();
                    match backend.commit(&batch) {
                        Ok(()) => _ = won.fetch_add(1, Ordering::Relaxed),
                        Err(StoreError::Conflict { expected, found, .. }) => {
                            assert!(expected == Some(id(head)) && found != expected, "{expected:?}, {found:?}");
                        }
                        Err(other) => panic!("expected a conflict, got {other}"),
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1, "round {round}: exactly one wins");
        let new = place.head().expect("it has a head");
        head = (1..=WRITERS as u64)
            .map(|writer| round * 100 + writer)
            .find(|n| id(*n) == new)
            .expect("the head is of this round");
        assert_eq!(place.text(head, "x"), Some(head.to_string()));
    }
    assert_eq!(stored(backend, &place).len() as u64, ROUNDS + 1, "who lost wrote nothing");
}

pub(super) fn chain(backend: &dyn Log) {
    let (place, other, third) =
        (root_of(backend, "chain"), root_of(backend, "same run"), root_of(backend, "another run"));
    let run = CommitChain::begin();
    let of_run = |batch: Batch| Batch { chain: Some(run.clone()), ..batch };
    commit(backend, &of_run(place.batch(None, [begin(1)])));
    // All are on their way before anybody knows that the first one is refused.
    let batches =
        [of_run(place.batch(None, [begin(2)])), of_run(other.batch(None, [begin(1)])), third.batch(None, [begin(1)])];
    let handles = batches.map(|batch| backend.submit(batch));
    let [first, second, third_outcome] = handles.map(|handle| handle.wait());
    assert!(matches!(first, Err(StoreError::Conflict { .. })), "{first:?}");
    assert!(matches!(second, Err(StoreError::Conflict { .. })), "its chain has the error of the first: {second:?}");
    third_outcome.expect("a batch of no chain is for itself");
    assert_eq!((other.head(), third.head()), (None, Some(id(1))));
    let late = backend.commit(&of_run(place.batch(Some(1), [on(2, 1)])));
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "the first error is told again: {late:?}");
    let again = Batch { chain: Some(CommitChain::begin()), ..place.batch(Some(1), [on(2, 1)]) };
    commit(backend, &again);
    assert_eq!(stored(backend, &place), id_list([2, 1]));
}

/// Returns the batch of a run that stores once, at its end: two turns of a subgraph with the interrupt of the second
/// one, then its own checkpoint. `root` is the head that it began on.
fn all_of(place: &CasePlace<'_>, root: Option<u64>, last: u64) -> Batch {
    let child = place.inside("node");
    let on_root = Expect::new(place.namespace.clone(), root.map(id));
    let turns = [
        child.batch(None, [begin(11).value("x", 1, "one").tasks(&["node"])]),
        child.pending(11, writes(11, task(1), "p", vec![write(0, "x", "of the node")])),
        child.batch(Some(11), [on(12, 11).value_of("x", 2, task(1), 0).tasks(&["node"])]),
        child.pending(12, writes(12, task(1), "p", vec![write(-3, "waits", "go on?")])),
    ];
    let turns = turns.map(|mut turn| {
        turn.expect.push(on_root.clone());
        turn
    });
    let own = root.map_or_else(|| begin(last), |root| on(last, root));
    let own = place.batch(root, [own.value("y", last, "own").tasks(&["node"])]);
    let asked = place.pending(last, writes(last, task(1), "p", vec![write(-4, "given", "yes")]));
    Batch::of_all(turns.into_iter().chain([own, asked])).expect("there are some")
}

pub(super) fn together(backend: &dyn Log) {
    let (place, other) = (root_of(backend, "together"), root_of(backend, "submitted"));
    let (child, batch) = (place.inside("node"), all_of(&place, None, 20));
    let all_there = |place: &CasePlace<'_>| {
        let child = place.inside("node");
        assert_eq!((stored(backend, &child), stored(backend, place)), (id_list([12, 11]), id_list([20])));
        assert_eq!(child.text(12, "x").as_deref(), Some("of the node"), "a batch sees those before it");
        let counts = [child.writes(11), child.writes(12), place.writes(20)];
        assert_eq!(counts.map(|writes| writes.len()), [1, 1, 1]);
    };
    commit(backend, &batch);
    all_there(&place);
    commit(backend, &batch);
    all_there(&place);
    let handles = [all_of(&other, None, 20), batch.clone()].map(|batch| backend.submit(batch));
    handles.iter().for_each(|handle| handle.wait().expect("a submitted batch takes others along, too"));
    all_there(&other);
    child.add(on(13, 12));
    commit(backend, &batch);
    assert_eq!(child.head(), Some(id(13)), "a late repeat does not move a head");
    assert_eq!(child.writes(12).len(), 1);
}

pub(super) fn none_of_all(backend: &dyn Log) {
    let (place, run) = (root_of(backend, "none of all"), CommitChain::begin());
    let (child, absent) = (place.inside("node"), root_of(backend, "absent"));
    place.add(begin(1).tasks(&["node"]));
    let (seq, good) = (place.record(1).seq, all_of(&place, Some(1), 20));
    let with = |part: Batch| {
        let mut batch = all_of(&place, Some(1), 20);
        batch.then.push(part);
        batch
    };
    let late = with(place.batch(Some(1), [on(21, 1)]));
    conflicts(backend, &late, Some(20), &late.then[5].expect[0]);
    let missing = with(child.pending(12, writes(9, task(1), "p", vec![write(0, "x", "late")])));
    assert!(backend.commit(&missing).is_err(), "the writes of a checkpoint that is not stored");
    let first = all_of(&absent, Some(1), 20);
    conflicts(backend, &first, None, &Expect::new(absent.namespace.clone(), Some(id(1))));
    let mut elsewhere = absent.batch(None, [begin(1)]);
    elsewhere.then = vec![late.clone()];
    assert!(matches!(backend.commit(&elsewhere), Err(StoreError::Invalid { .. })), "others within others");
    elsewhere.then = vec![Batch { chain: Some(run.clone()), ..place.batch(Some(1), [on(2, 1)]) }];
    assert!(matches!(backend.commit(&elsewhere), Err(StoreError::Invalid { .. })), "a chain within");
    elsewhere.then = vec![place.batch(Some(7), [on(8, 7)])];
    let refused = backend.commit(&elsewhere);
    assert!(matches!(refused, Err(StoreError::Conflict { ref thread, .. }) if *thread == place.thread), "{refused:?}");
    assert_eq!((stored(backend, &place), stored(backend, &child)), (id_list([1]), id_list([])), "nothing of them");
    assert_eq!(backend.threads(None, 10).expect("lists").len(), 1, "nor a thread");
    assert_eq!(backend.namespaces(&place.thread).expect("lists").len(), 1, "nor a namespace");
    // Beside others in one transaction, and before them in a chain.
    let after = Batch { chain: Some(run.clone()), ..root_of(backend, "after").batch(None, [begin(1)]) };
    let batches = [good.clone(), Batch { chain: Some(run.clone()), ..late }, after];
    let [good, late, after] = batches.map(|batch| backend.submit(batch)).map(|handle| handle.wait());
    good.expect("it is for itself");
    assert!(late.is_err() && after.is_err(), "{late:?} {after:?}");
    let again = Batch { chain: Some(run), ..all_of(&root_of(backend, "again"), None, 20) };
    assert!(backend.commit(&again).is_err(), "it is one of the chain as well");
    assert_eq!((stored(backend, &place), stored(backend, &child)), (id_list([20, 1]), id_list([12, 11])));
    let seqs = [child.record(11).seq, child.record(12).seq, place.record(20).seq];
    assert_eq!(seqs.map(|of| of - seq), [1, 2, 3], "what was refused took no number");
}
