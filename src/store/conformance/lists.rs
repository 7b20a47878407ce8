//! List channels: the operations, and the ranges that can be read.

use super::build::*;

/// Operations on lists: each row is a history, in which checkpoint n makes the n-th change.
pub(super) fn operations(backend: &dyn Log) {
    let (far, all) = (i64::MAX.unsigned_abs() - 1, |positions: std::ops::Range<u64>| {
        positions.map(|n| put(n, n.to_string())).collect()
    });
    let histories: [Vec<Vec<ItemChange>>; 2] = [
        vec![vec![put(far, "far"), put(0, "near")], vec![put(1 << 40, "middle")], vec![delete_range(1, far)]],
        vec![
            all(0..6),
            vec![put(2, "new"), delete_range(1, 4)],
            vec![delete_range(0, 100), put(7, "7")],
            vec![delete_range(50, 60), put(8, "8")],
            vec![delete_range(0, 9), put(0, "all"), put(8, "eight"), put(9, "9")],
            vec![delete_range(0, 1), delete_range(8, 9)],
            vec![delete_range(0, i64::MAX.unsigned_abs())],
            vec![put(10, "10")],
        ],
    ];
    for (thread, changes) in ["far", "ranges"].into_iter().zip(histories) {
        let drafts = (1..).zip(changes).map(|(n, change)| next(n).items("list", n, change));
        root_of(backend, thread).add_all(drafts);
    }
}

pub(super) fn ranges(backend: &dyn Log) {
    let place = root_of(backend, "ranges");
    let index = *message("id", "").index.expect("an index");
    let item = |position| put_payload(position, bytes("x").with_index(index.clone()));
    place.add(begin(1).items("list", 1, [1, 3, 4, 8, 9].map(item).into()));
    let all = "1=x 3=x 4=x 8=x 9=x";
    for (range, expected) in [
        (ItemRange::Tail(0), ""),
        (ItemRange::Tail(2), "8=x 9=x"),
        (ItemRange::Tail(5), all),
        (ItemRange::Tail(usize::MAX), all),
        (ItemRange::Positions(3, 8), "3=x 4=x"),
        (ItemRange::Positions(0, u64::MAX), all),
        (ItemRange::Positions(5, 8), ""),
        (ItemRange::Positions(4, 4), ""),
        (ItemRange::Positions(9, 3), ""),
        (ItemRange::Positions(9, 10), "9=x"),
    ] {
        assert_eq!(place.range(1, range), expected, "{range:?}");
    }
    let mut visited = 0;
    let stopped = backend.items(&place.point(1), "list", ItemRange::All, &mut |row| {
        visited += 1;
        if row.position == 4 { Err(StoreError::ReadOnly) } else { Ok(()) }
    });
    assert_eq!((refusal(stopped), visited), ("of the visitor".into(), 3), "nothing is visited after it");
    let whole = backend.read_state(&place.point(1), &mut |_| Err(StoreError::ReadOnly));
    let found = backend.find_item(&place.point(1), "list", "id", &mut |_| Err(StoreError::ReadOnly));
    let versions = backend.versions(&place.point(1), None, 0, &mut |_| Err(StoreError::ReadOnly));
    assert_eq!([refusal(whole), refusal(found), refusal(versions)], ["of the visitor"; 3]);
    place.add(on(2, 1).value("a", 1, "").items("list", 2, vec![]));
    let mut visited = Vec::new();
    let stopped = backend.versions(&place.point(2), None, 0, &mut |version| {
        visited.push(version.channel.ordinal);
        Ok(false)
    });
    stopped.expect("reads versions");
    assert_eq!(visited, [1, 1], "the versions of a checkpoint are visited together");
}
