//! The checkpoints of a lineage by their ordinals, its versions, and searches of its lists.

use super::build::*;

/// A thread of four checkpoints, and a fork of its third one with two checkpoints more.
fn forked(backend: &dyn Log) -> [CasePlace<'_>; 2] {
    let [place, fork] = roots(backend, ["t", "forked"]);
    place.add(begin(1).value("a", 1, "1").items("list", 1, vec![put(0, "x"), put(1, "y")]));
    place.add(on(2, 1).items("list", 2, vec![put(2, "z")]).items("other", 1, vec![put(7, "o")]));
    place.add(on(3, 2).items("list", 3, vec![delete_range(0, 1)]).value("b", 1, "2"));
    place.add(on(4, 3).value("b", 2, "3"));
    fork.add(fork_of(5, place.point(3)));
    fork.add(on(6, 5).items("list", 4, vec![put(3, "w")]));
    [place, fork]
}

/// The checkpoints of a lineage are found by their ordinals, in any order; its versions come newest first, across a
/// fork, and name the positions that a list changed at.
pub(super) fn ordinals_and_versions(backend: &dyn Log) {
    let [place, fork] = &forked(backend);
    let found = backend.ancestors(&fork.point(6), &[4, 2, 4, u64::MAX]).expect("reads a lineage");
    let points: Vec<_> = found.into_iter().map(|record| record.map(|record| record.point)).collect();
    assert_eq!(points, [Some(fork.point(6)), Some(place.point(3)), Some(fork.point(6)), None]);
    assert!(backend.ancestors(&place.point(2), &[]).expect("reads a lineage").is_empty());
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

/// A search of a list finds each item that was ever put, and what became of it.
pub(super) fn list_search(backend: &dyn Log) {
    let [place, fork] = &forked(backend);
    let search = |place: &CasePlace<'_>, n: u64, channel: &str, text: &str| -> Vec<String> {
        let found = backend.search_list(&place.point(n), channel, text).expect("searches a list");
        let line = |StoredListChange { positions, ordinal, op, .. }| match op {
            ListChangeOp::Match(payload) => format!("{ordinal} {}={}", positions.start, text_of(&payload.data)),
            ListChangeOp::Other => format!("{ordinal} {}=", positions.start),
            ListChangeOp::Delete => format!("{ordinal} {}-", positions.start),
        };
        found.into_iter().map(line).collect()
    };
    assert_eq!(search(fork, 6, "list", "x"), ["0 0=x", "2 0-"]);
    assert_eq!(search(fork, 6, "list", "w"), ["4 3=w"]);
    assert_eq!(search(place, 4, "list", "w"), [""; 0], "another lineage has it");
    assert_eq!(search(place, 2, "list", "x"), ["0 0=x"], "a later delete does not show");
    assert_eq!(search(place, 4, "list", ""), ["0 0=x", "0 1=y", "1 2=z", "2 0-"], "an empty text is in all");
    assert_eq!(search(place, 4, "a", "1"), [""; 0], "it is not a list");
    place.add(on(7, 4).items("list", 4, vec![put(1, "x again"), remove(2)]));
    assert_eq!(search(place, 7, "list", "again"), ["0 1=", "4 1=x again"]);
    assert_eq!(search(place, 7, "list", "z"), ["1 2=z", "4 2-"]);
    place.add(on(8, 7).value("list", 5, "z"));
    place.add(on(9, 8).items("list", 6, vec![put(0, "z")]));
    let mut found = search(place, 9, "list", "z");
    found.retain(|line| line.contains('='));
    assert_eq!(found, ["0 0=", "1 2=z", "6 0=z"], "a list may become a value and a list again");
}

/// The item with an id is found at each checkpoint, whatever was done to its list.
pub(super) fn items_by_id(backend: &dyn Log) {
    let [place, fork] = &roots(backend, ["t", "forked"]);
    let item = |n: u64, id: &str, text: &str| put_payload(n, message(id, text));
    let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
    place.add(begin(1).items("list", 1, vec![item(0, "a", "0"), item(1, uuid, "1"), item(2, "c", "2")]));
    (2..=20).for_each(|n| place.add(on(n, n - 1).items("list", n, vec![item(n + 1, &n.to_string(), "")])));
    let changes = vec![item(1, uuid, "edited"), item(4, "renamed", ""), remove(5)];
    place.add(on(21, 20).items("list", 21, changes));
    fork.add(fork_of(30, place.point(10)));
    fork.add(on(31, 30).items("list", 22, vec![item(12, "forked", "")]));
    let find = |place: &CasePlace<'_>, n: u64, id: &str| {
        let mut found = None;
        let visited = backend.find_item(&place.point(n), "list", id, &mut |row| {
            let text = row.payload.index.and_then(|index| index.text).unwrap_or_default();
            found = Some(format!("{}={text}", row.position));
            Ok(())
        });
        assert_eq!(visited.expect("finds an item"), found.is_some());
        found.unwrap_or_default()
    };
    (2..=20).for_each(|n: u64| assert_eq!(find(place, 20, &n.to_string()), format!("{}=", n + 1)));
    for (place, n, id, found) in [
        (place, 20, uuid, "1=1"),
        (place, 21, uuid, "1=edited"),
        (place, 20, "a", "0=0"),
        (place, 20, "c", "2=2"),
        (place, 21, "3", ""),
        (place, 21, "renamed", "4="),
        (place, 20, "4", "5="),
        (place, 21, "4", ""),
        (place, 5, "20", ""),
        (place, 20, "none", ""),
        (fork, 31, "5", "6="),
        (fork, 31, "20", ""),
        (fork, 31, "forked", "12="),
        (place, 21, "forked", ""),
    ] {
        assert_eq!(find(place, n, id), found, "item {id} at checkpoint {n} of {}", place.thread);
    }
    let refused = backend.find_item(&place.point(21), "list", "c", &mut |_: ItemRow<'_>| Err(StoreError::ReadOnly));
    assert_eq!(refusal(refused), "of the visitor");
}
