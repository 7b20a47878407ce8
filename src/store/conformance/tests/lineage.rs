//! Lineages with lists that change in many ways, runs, branches and ids that begin alike.

use crate::store::conformance::build::*;

/// A thread of four checkpoints, and a fork of its third one with two checkpoints more.
pub(super) fn forked(backend: &dyn Log) -> [CasePlace<'_>; 2] {
    let [place, fork] = roots(backend, ["t", "forked"]);
    place.add(begin(1).value("a", 1, "1").items("list", 1, vec![put(0, "x"), put(1, "y")]));
    place.add(on(2, 1).items("list", 2, vec![put(2, "z")]).items("other", 1, vec![put(7, "o")]));
    place.add(on(3, 2).items("list", 3, vec![delete_range(0, 1)]).value("b", 1, "2"));
    place.add(on(4, 3).value("b", 2, "3"));
    fork.add(fork_of(5, place.point(3)));
    fork.add(on(6, 5).items("list", 4, vec![put(3, "w")]));
    [place, fork]
}

/// Adds to [`forked`]: items are replaced and removed, and the list becomes a value and a list again.
pub(super) fn searched(backend: &dyn Log) -> [CasePlace<'_>; 2] {
    let [place, fork] = forked(backend);
    place.add(on(7, 4).items("list", 4, vec![put(1, "x again"), remove(2)]));
    place.add(on(8, 7).value("list", 5, "z"));
    place.add(on(9, 8).items("list", 6, vec![put(0, "z")]));
    [place, fork]
}

/// Lists of items with ids, some of which change and go, and a fork of the tenth checkpoint.
pub(super) fn with_ids(backend: &dyn Log) -> [CasePlace<'_>; 2] {
    let [place, fork] = roots(backend, ["t", "forked"]);
    let item = |n: u64, id: &str, text: &str| put_payload(n, message(id, text));
    place.add(begin(1).items("list", 1, vec![item(0, "a", "0"), item(1, UUID, "1"), item(2, "c", "2")]));
    (2..=20).for_each(|n| place.add(on(n, n - 1).items("list", n, vec![item(n + 1, &n.to_string(), "")])));
    place.add(on(21, 20).items("list", 21, vec![item(1, UUID, "edited"), item(4, "renamed", ""), remove(5)]));
    fork.add(fork_of(30, place.point(10)));
    fork.add(on(31, 30).items("list", 22, vec![item(12, "forked", "")]));
    [place, fork]
}

/// Checkpoints of runs, two of which have keys, in two threads and in a namespace. Returns the runs.
pub(super) fn of_runs<'b>(backend: &'b dyn Log, place: &CasePlace<'b>) -> [RunId; 3] {
    let runs @ [first, second, random] =
        [RunId::from_key(&place.thread, "1"), RunId::from_key(&place.thread, "2"), RunId::from_bytes([0x44; 16])];
    let add = |place: &CasePlace<'_>, mut draft: CheckpointDraft, run| {
        draft.0.run = Some(run);
        place.add(draft);
    };
    [first, first, second, random].into_iter().zip(1..).for_each(|(run, n)| add(place, next(n), run));
    add(&place.inside("a:1"), begin(5), first);
    add(&root_of(backend, "other"), begin(6), first);
    runs
}

/// A thread with four branches, and a fork in another namespace.
pub(super) fn branched(backend: &dyn Log) -> CasePlace<'_> {
    let place = root_of(backend, "branched");
    place.add_chain(1..=40);
    [on(41, 20), on(42, 41), begin(43), on(44, 42)].into_iter().for_each(|draft| place.add(draft));
    place.inside("sub").add(fork_of(50, place.point(40)));
    place
}

/// An id that is stored as 16 bytes.
pub(super) const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// Adds checkpoints whose ids begin alike, in two namespaces and in another thread.
pub(super) fn prefixed(backend: &dyn Log) -> ([CasePlace<'_>; 2], [CheckpointId; 3]) {
    let named = [
        "1f0e3dad-9990-6345-8012-000000000001",
        "1f0e3dad-9990-6345-8012-a00000000002",
        "1f0e3dae-0000-6000-8000-000000000003",
    ];
    let (named, places) = (named.map(|text| text.parse().expect("an id")), roots(backend, ["prefixes", "elsewhere"]));
    let child = places[0].inside("child:1");
    for (place, id) in [(&places[0], named[0]), (&places[0], named[2]), (&child, named[1]), (&places[1], named[0])] {
        let mut draft = begin(1);
        draft.0.id = id;
        place.add(draft);
    }
    (places, named)
}
