//! List channels: the operations, and the ranges that can be read.

use super::build::*;

/// Adds a chain in which checkpoint n makes the n-th change of the list, and compares the list at each of them.
fn changes(backend: &dyn Log, thread: &str, steps: Vec<(Vec<ItemChange>, &str)>) {
    let place = root_of(backend, thread);
    let (changes, lists): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
    place.add_all((1..).zip(changes).map(|(n, change)| next(n).items("list", n, change)));
    for (n, list) in (1..).zip(lists) {
        assert_eq!(place.list(n), list, "the list at checkpoint {n}");
        assert_eq!(place.list_len(n, "list"), list.split_whitespace().count() as u64, "the length at checkpoint {n}");
    }
}

pub(super) fn operations(backend: &dyn Log) {
    changes(
        backend,
        "operations",
        vec![
            (vec![], ""),
            (vec![put(0, "a"), put(1, "b")], "0=a 1=b"),
            (vec![put(2, "c")], "0=a 1=b 2=c"),
            (vec![put(1, "B"), put(3, "d")], "0=a 1=B 2=c 3=d"),
            (vec![remove(0)], "1=B 2=c 3=d"),
            (vec![remove(2), put(3, "D"), put(4, "e")], "1=B 3=D 4=e"),
            (vec![put(2, "again")], "1=B 2=again 3=D 4=e"),
            (vec![], "1=B 2=again 3=D 4=e"),
            (vec![delete_range(1, 4)], "4=e"),
        ],
    );
    let found = root_of(backend, "operations").items(7, "list", ItemRange::All);
    let ordinals: Vec<_> = found.iter().map(|(position, ordinal, ..)| (*position, *ordinal)).collect();
    assert_eq!(ordinals, [(1, 3), (2, 6), (3, 5), (4, 5)], "the ordinal is that of who wrote the item");
    let far = i64::MAX.unsigned_abs() - 1;
    let ends = format!("0=near {far}=far");
    changes(
        backend,
        "far positions",
        vec![
            (vec![put(far, "far"), put(0, "near")], &ends),
            (vec![put(1 << 40, "middle")], &format!("0=near {}=middle {far}=far", 1_u64 << 40)),
            (vec![delete_range(1, far)], &ends),
        ],
    );
}

pub(super) fn range_first(backend: &dyn Log) {
    changes(
        backend,
        "ranges first",
        vec![
            ((0..6).map(|position| put(position, position.to_string())).collect(), "0=0 1=1 2=2 3=3 4=4 5=5"),
            (vec![put(2, "new"), delete_range(1, 4)], "0=0 2=new 4=4 5=5"),
            (vec![delete_range(0, 100), put(7, "7")], "7=7"),
            (vec![delete_range(50, 60), put(8, "8")], "7=7 8=8"),
            (vec![delete_range(0, 9), put(0, "all"), put(8, "eight"), put(9, "9")], "0=all 8=eight 9=9"),
            (vec![delete_range(0, 1), delete_range(8, 9)], "9=9"),
            (vec![delete_range(0, i64::MAX.unsigned_abs())], ""),
            (vec![put(10, "10")], "10=10"),
        ],
    );
}

pub(super) fn ranges(backend: &dyn Log) {
    let place = root_of(backend, "ranges");
    place.add(begin(1).items("list", 1, [1, 3, 4, 8, 9].map(|position| put(position, "x")).into()));
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
    assert_eq!(refusal(whole), "of the visitor");
}

pub(super) fn kinds(backend: &dyn Log) {
    let place = root_of(backend, "kinds");
    place.add_all([
        begin(1).items("list", 1, vec![put(0, "a"), put(1, "b")]),
        on(2, 1).change("list", 2, ChangeValue::Empty),
        on(3, 2).items("list", 3, vec![put(1, "c")]),
        on(4, 3).value("list", 4, "value"),
        on(5, 4).items("list", 5, vec![]),
    ]);
    assert_eq!([1, 2, 3, 4, 5].map(|n| place.list(n)), ["0=a 1=b", "", "1=c", "", ""]);
    assert_eq!([1, 2, 3, 4, 5].map(|n| place.list_len(n, "list")), [2, 0, 1, 0, 0]);
    assert_eq!([2, 3, 4, 5].map(|n| place.text(n, "list")), ["(empty)", "(items)", "value", "(items)"]);
}
