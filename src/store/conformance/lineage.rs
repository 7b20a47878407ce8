//! Lineages: their versions, and lists that change in many ways, whose short cuts are compared.

use super::build::*;

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

/// The versions of a lineage come newest first, across a fork, and name the positions that a list changed at.
pub(super) fn versions(backend: &dyn Log) {
    let [place, fork] = &forked(backend);
    let read = |place: &CasePlace<'_>, n: u64, channel: Option<&str>, down_to: u64| -> Vec<String> {
        let mut found: Vec<(u64, String)> = Vec::new();
        let read = backend.versions(&place.point(n), channel, down_to, &mut |version| {
            let of = &version.channel;
            let value = match &of.value {
                ChannelValue::Empty => String::new(),
                ChannelValue::Value(payload) => format!("={}", text_of(&payload.data)),
                ChannelValue::Items => "[]".into(),
            };
            assert_eq!(version.positions.is_some(), of.value == ChannelValue::Items, "a list has positions");
            assert!(found.last().is_none_or(|(last, _)| *last >= of.ordinal), "newest first");
            found.push((of.ordinal, format!("{} {}@{}{value}", of.ordinal, of.channel, of.version)));
            Ok(true)
        });
        read.expect("reads versions");
        found.sort_by_key(|(ordinal, line)| (std::cmp::Reverse(*ordinal), line.clone()));
        found.into_iter().map(|(_, line)| line).collect()
    };
    let all = ["4 list@4[]", "2 b@1=2", "2 list@3[]", "1 list@2[]", "1 other@1[]", "0 a@1=1", "0 list@1[]"];
    assert_eq!(read(fork, 6, None, 0), all);
    assert_eq!(read(fork, 6, None, 2), all[..3], "the lowest ordinal is visited too");
    assert_eq!(read(fork, 6, None, 5), [""; 0]);
    assert_eq!(read(fork, 6, Some("list"), 0), ["4 list@4[]", "2 list@3[]", "1 list@2[]", "0 list@1[]"]);
    assert_eq!(read(place, 4, Some("b"), 0), ["3 b@2=3", "2 b@1=2"]);
    assert_eq!(read(place, 4, Some("none"), 0), [""; 0]);
    let mut ranges = Vec::new();
    let visited = backend.versions(&fork.point(6), Some("list"), 0, &mut |version| {
        ranges.extend(version.positions.clone());
        Ok(true)
    });
    visited.expect("reads versions");
    let mut held = ranges.iter().zip([3..4, 0..1, 2..3, 0..2]);
    assert!(held.all(|(range, of)| range.start <= of.start && of.end <= range.end) && ranges.len() == 4, "{ranges:?}");
    let mut visited = Vec::new();
    let stopped = backend.versions(&fork.point(6), None, 0, &mut |version| {
        visited.push(version.channel.ordinal);
        Ok(visited.len() < 2)
    });
    stopped.expect("reads versions");
    assert_eq!(visited, [4, 2, 2], "the versions of a checkpoint are visited together");
    let refused = backend.versions(&place.point(4), None, 0, &mut |_| Err(StoreError::ReadOnly));
    assert_eq!(refusal(refused), "of the visitor");
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

pub(super) fn short_cuts(backend: &dyn Log) {
    let places = searched(backend);
    super::short_cuts::law(backend);
    delete(backend, &places.each_ref());
    let runs = root_of(backend, "runs");
    _ = of_runs(backend, &runs);
    _ = branched(backend);
    let [place, _] = with_ids(backend);
    let refused = backend.find_item(&place.point(21), "list", "c", &mut |_: ItemRow<'_>| Err(StoreError::ReadOnly));
    assert_eq!(refusal(refused), "of the visitor");
}
