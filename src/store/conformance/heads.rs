//! Writers: conflicts, repeats, duplicates, and several writers at once.

use super::build::*;
use super::processes;

/// Returns a batch of two checkpoints that holds a little of everything.
fn rich(place: &CasePlace<'_>) -> Batch {
    let taken = writes(1, 1, vec![write(0, "x", "taken"), write_items(1, "list", &["a", "b"])]);
    let second = on(3, 2).value("y", 1, "y").seen("node", &[("x", 2)]);
    let first = on(2, 1).in_full().consumed(taken).value_of("x", 2, task(1), 0).by(0);
    place.batch(Some(1), [first.items("list", 1, vec![put(0, "a")]), second])
}

pub(super) fn repeat(backend: &dyn Log) {
    let [place, fork] = roots(backend, ["repeat", "fork"]);
    place.add(begin(1).tasks(&["node"]));
    let batch = rich(&place);
    commit(backend, &batch);
    commit(backend, &batch);
    let alterations: [fn(&mut Batch); 5] = [
        |batch| batch.checkpoints[1].step += 1,
        |batch| batch.checkpoints[1].changes[0].version += 1,
        |batch| batch.checkpoints[1].changes = begin(1).value("y", 1, "other").0.changes,
        |batch| batch.checkpoints[1].metadata = Some("{}".into()),
        |batch| batch.checkpoints[1].parents = [(Namespace::root(), id(9))].into(),
    ];
    for alter in alterations {
        let mut batch = rich(&place);
        alter(&mut batch);
        refuses(backend, [(batch, "duplicate 3")]);
    }
    fork.add(fork_of(4, place.point(2)));
    refuses(backend, [(fork.batch(None, [fork_of(4, place.point(3))]), "duplicate 4")]);
    place.add(on(4, 3));
    commit(backend, &batch);
    assert_eq!(place.head(), Some(4), "a late repeat does not move the head");
    // An id is above that of the newest checkpoint, wherever the head is.
    place.add(on(9, 4));
    let stale = |head| (place.batch(Some(head), [on(7, 4)]), "7 is below 9");
    refuses(backend, [stale(9)]);
    operate(backend, 10, vec![moves(&place, Some(9), Some(4))]);
    refuses(backend, [stale(4)]);
}

/// Writers of one thread, and of threads of their own.
pub(super) fn race(backend: &dyn Log) {
    at_once(8, |writer| processes::race(backend, writer));
    processes::race_ended(backend, 8);
}

pub(super) fn chain(backend: &dyn Log) {
    let ([place, other, third], run) = (roots(backend, ["chain", "same run", "another run"]), CommitChain::begin());
    let of_run = |batch: Batch| Batch { chain: Some(run.clone()), ..batch };
    commit(backend, &of_run(place.batch(None, [begin(1)])));
    // All are on their way before anybody knows that the first one is refused.
    let batches =
        [of_run(place.batch(None, [begin(2)])), of_run(other.batch(None, [begin(1)])), third.batch(None, [begin(1)])];
    let outcomes = batches.map(|batch| backend.submit(batch)).map(|handle| refusal(handle.wait()));
    let of_first = "chain/ is at 1, not none";
    assert_eq!(outcomes, [of_first, of_first, "accepted: ()"], "a chain has the error of its first one");
    assert_eq!((other.head(), third.head()), (None, Some(1)));
    let next = || place.batch(Some(1), [on(2, 1)]);
    refuses(backend, [(of_run(next()), of_first)]);
    commit(backend, &Batch { chain: Some(CommitChain::begin()), ..next() });
    assert_eq!(place.stored(), [2, 1]);
}

/// Returns the batch of a run that stores once, at its end: two turns of a subgraph with the interrupt of the second
/// one, then its own checkpoint. `root` is the head that it began on.
fn all_of(place: &CasePlace<'_>, root: Option<u64>) -> Batch {
    let child = place.inside("node");
    let turns = [
        child.batch(None, [begin(11).value("x", 1, "one").tasks(&["node"])]),
        child.pending(11, writes(11, 1, vec![write(0, "x", "of the node")])),
        child.batch(Some(11), [on(12, 11).value_of("x", 2, task(1), 0).tasks(&["node"])]),
        child.pending(12, writes(12, 1, vec![write(-3, "waits", "go on?")])),
    ];
    let turns = turns.map(|mut turn| {
        turn.expect.push(Expect::new(place.namespace.clone(), root.map(id)));
        turn
    });
    let own = root.map_or_else(|| begin(20), |root| on(20, root)).value("y", 20, "own").tasks(&["node"]);
    let asked = place.pending(20, writes(20, 1, vec![write(-4, "given", "yes")]));
    Batch::of_all(turns.into_iter().chain([place.batch(root, [own]), asked])).expect("there are some")
}

pub(super) fn together(backend: &dyn Log) {
    let [place, other] = roots(backend, ["together", "submitted"]);
    let (child, batch) = (place.inside("node"), all_of(&place, None));
    let all_there = |place: &CasePlace<'_>| {
        let child = place.inside("node");
        assert_eq!((child.stored(), place.stored()), (vec![12, 11], vec![20]));
        let value = child.channel(12, "x").map(|channel| channel.value);
        assert_eq!(value, Some(ChannelValue::Value(bytes("of the node"))), "a batch sees those before it");
        assert_eq!([child.writes(11), child.writes(12), place.writes(20)].map(|writes| writes.len()), [1, 1, 1]);
    };
    for _ in 0..2 {
        commit(backend, &batch);
        all_there(&place);
    }
    let handles = [all_of(&other, None), batch.clone()].map(|batch| backend.submit(batch));
    handles.iter().for_each(|handle| handle.wait().expect("a submitted batch takes others along, too"));
    all_there(&other);
    // A subgraph expects the head of its parent graph too.
    let expecting = |root: Option<u64>| {
        let mut batch = child.batch(Some(12), [on(13, 12)]);
        batch.expect.push(Expect::new(Namespace::root(), root.map(id)));
        batch
    };
    let late = [(expecting(Some(1)), "together/ is at 20, not 1"), (expecting(None), "together/ is at 20, not none")];
    refuses(backend, late);
    commit(backend, &expecting(Some(20)));
    commit(backend, &batch);
    assert_eq!(child.head(), Some(13), "a late repeat does not move a head");
    assert_eq!(child.writes(12).len(), 1);
}

pub(super) fn none_of_all(backend: &dyn Log) {
    let ([place, absent], run) = (roots(backend, ["none of all", "absent"]), CommitChain::begin());
    let child = place.inside("node");
    place.add(begin(1).tasks(&["node"]));
    let (seq, good) = (place.record(1).seq, all_of(&place, Some(1)));
    let with = |part: Batch| {
        let mut batch = all_of(&place, Some(1));
        batch.then.push(part);
        batch
    };
    let late = || with(place.batch(Some(1), [on(21, 1)]));
    let of_run = |batch: Batch| Batch { chain: Some(run.clone()), ..batch };
    let beside = |then: Batch| Batch { then: vec![then], ..absent.batch(None, [begin(1)]) };
    let within = of_run(place.batch(Some(1), [on(2, 1)]));
    let refused = [
        (late(), "none of all/ is at 20, not 1"),
        (all_of(&absent, Some(1)), "absent/ is at none, not 1"),
        (beside(late()), "batch.then"),
        (beside(within), "batch.then"),
        (beside(place.batch(Some(7), [on(8, 7)])), "none of all/ is at 1, not 7"),
    ];
    refuses(backend, refused);
    let missing = with(child.pending(12, writes(9, 1, vec![write(0, "x", "late")])));
    assert!(backend.commit(&missing).is_err(), "the writes of a checkpoint that is not stored");
    assert_eq!((place.stored(), child.stored()), (vec![1], vec![]), "nothing of them");
    assert_eq!((threads(backend).len(), place.namespaces().len()), (1, 1), "nor a thread or a namespace");
    // Beside others in one transaction, and before them in a chain.
    let after = of_run(root_of(backend, "after").batch(None, [begin(1)]));
    let handles = [good, of_run(late()), after].map(|batch| backend.submit(batch));
    let outcomes = handles.map(|handle| handle.wait().is_ok());
    assert_eq!(outcomes, [true, false, false], "the first one is for itself");
    let again = of_run(all_of(&root_of(backend, "again"), None));
    assert!(backend.commit(&again).is_err(), "it is one of the chain as well");
    assert_eq!((place.stored(), child.stored()), (vec![20, 1], vec![12, 11]));
    let seqs = [seq, child.record(11).seq, child.record(12).seq, place.record(20).seq];
    assert!(seqs.is_sorted_by(|before, after| before < after), "in the order of the batch: {seqs:?}");
}
