//! List channels: positions that are far apart, and the ranges that can be read.

use super::build::*;

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
    let far = i64::MAX.unsigned_abs() - 1;
    place.add(on(3, 2).items("list", 3, vec![put(far, "far"), put(1 << 40, "middle")]));
    place.add(on(4, 3).items("list", 4, vec![delete_range(4, far)]));
    place.add(on(5, 4).items("list", 5, vec![delete_range(0, far + 1), put(7, "7")]));
    let stop = |found: &mut Vec<u64>, at: &VersionRecord| see(found, at.channel.ordinal).map(|_| false);
    let visited = seen(|found| backend.versions(&place.point(2), None, 0, &mut |version| stop(found, version)));
    assert_eq!(visited, [1, 1], "the versions of a checkpoint are visited together");
}
