//! List channels: the operations, and the ranges that can be read.

use super::build::*;

/// Makes a chain in which checkpoint n made the n-th change of the list.
fn chain(backend: &dyn Log, changes: Vec<Vec<ItemChange>>) -> CasePlace<'_> {
    let place = root_of(backend, "lists");
    let drafts = (1..).zip(changes).map(|(n, change)| {
        let draft = next(n);
        draft.items("list", n, change)
    });
    commit(backend, &place.batch(None, drafts));
    place
}

fn expect(backend: &dyn Log, place: &CasePlace<'_>, lists: &[&str]) {
    for (n, list) in (1..).zip(lists) {
        assert_eq!(place.list(n, ItemRange::All), *list, "the list at checkpoint {n}");
        let len = backend.list_len(&place.point(n), "list").expect("reads the length");
        assert_eq!(len, list.split_whitespace().count() as u64, "the length at checkpoint {n}");
    }
}

pub(super) fn operations(backend: &dyn Log) {
    let changes = vec![
        vec![],
        vec![put(0, "a"), put(1, "b")],
        vec![put(2, "c")],
        vec![put(1, "B"), put(3, "d")],
        vec![remove(0)],
        vec![remove(2), put(3, "D"), put(4, "e")],
        vec![put(2, "again")],
        vec![],
        vec![delete_range(1, 4)],
    ];
    let place = chain(backend, changes);
    let lists = [
        "",
        "0=a 1=b",
        "0=a 1=b 2=c",
        "0=a 1=B 2=c 3=d",
        "1=B 2=c 3=d",
        "1=B 3=D 4=e",
        "1=B 2=again 3=D 4=e",
        "1=B 2=again 3=D 4=e",
        "4=e",
    ];
    expect(backend, &place, &lists);
    let found = items(backend, &place.point(7), "list", ItemRange::All);
    let ordinals: Vec<_> = found.iter().map(|(position, ordinal, _)| (*position, *ordinal)).collect();
    assert_eq!(ordinals, [(1, 3), (2, 6), (3, 5), (4, 5)], "the ordinal is that of who wrote the item");
}

pub(super) fn range_first(backend: &dyn Log) {
    let changes = vec![
        (0..6).map(|position| put(position, position.to_string())).collect(),
        vec![put(2, "new"), delete_range(1, 4)],
        vec![delete_range(0, 100), put(7, "7")],
        vec![delete_range(50, 60), put(8, "8")],
        vec![delete_range(0, 9), put(0, "summary"), put(8, "eight"), put(9, "9")],
        vec![delete_range(0, 1), delete_range(8, 9)],
        vec![delete_range(0, i64::MAX.unsigned_abs())],
        vec![put(10, "10")],
    ];
    let place = chain(backend, changes);
    let lists =
        ["0=0 1=1 2=2 3=3 4=4 5=5", "0=0 2=new 4=4 5=5", "7=7", "7=7 8=8", "0=summary 8=eight 9=9", "9=9", "", "10=10"];
    expect(backend, &place, &lists);
}

pub(super) fn ranges(backend: &dyn Log) {
    let place = chain(backend, vec![[1, 3, 4, 8, 9].map(|position| put(position, "x")).into()]);
    let list = |range| place.list(1, range);
    assert_eq!(list(ItemRange::Tail(0)), "");
    assert_eq!(list(ItemRange::Tail(2)), "8=x 9=x", "the tail comes in the order of the list");
    assert_eq!(list(ItemRange::Tail(5)), list(ItemRange::All));
    assert_eq!(list(ItemRange::Tail(usize::MAX)), list(ItemRange::All));
    assert_eq!(list(ItemRange::Positions(3, 8)), "3=x 4=x");
    assert_eq!(list(ItemRange::Positions(0, u64::MAX)), list(ItemRange::All));
    assert_eq!(list(ItemRange::Positions(5, 8)), "");
    assert_eq!(list(ItemRange::Positions(4, 4)), "");
    assert_eq!(list(ItemRange::Positions(9, 3)), "", "a range that ends before it begins is empty");
    assert_eq!(list(ItemRange::Positions(9, 10)), "9=x");
}

pub(super) fn kinds(backend: &dyn Log) {
    let place = root_of(backend, "kinds");
    let drafts = [
        begin(1).items("list", 1, vec![put(0, "a"), put(1, "b")]),
        on(2, 1).change("list", 2, ChangeValue::Empty),
        on(3, 2).items("list", 3, vec![put(1, "c")]),
        on(4, 3).value("list", 4, "value"),
        on(5, 4).items("list", 5, vec![]),
    ];
    commit(backend, &place.batch(None, drafts));
    expect(backend, &place, &["0=a 1=b", "", "1=c", "", ""]);
    let shown = |n| place.text(n, "list").unwrap_or_default();
    assert_eq!([2, 3, 4, 5].map(shown), ["(empty)", "(items)", "value", "(items)"]);
}

pub(super) fn far_positions(backend: &dyn Log) {
    let far = i64::MAX.unsigned_abs() - 1;
    let changes = vec![vec![put(far, "far"), put(0, "near")], vec![put(1 << 40, "middle")], vec![delete_range(1, far)]];
    let place = chain(backend, changes);
    expect(
        backend,
        &place,
        &[
            &format!("0=near {far}=far"),
            &format!("0=near {}=middle {far}=far", 1u64 << 40),
            &format!("0=near {far}=far"),
        ],
    );
}

pub(super) fn visitor(backend: &dyn Log) {
    let place = chain(backend, vec![(0..10).map(|position| put(position, position.to_string())).collect()]);
    let mut visited = 0;
    let stopped = backend.items(&place.point(1), "list", ItemRange::All, &mut |row| {
        visited += 1;
        if row.position == 3 { Err(StoreError::ReadOnly) } else { Ok(()) }
    });
    assert!(matches!(stopped, Err(StoreError::ReadOnly)), "the error of the visitor comes back: {stopped:?}");
    assert_eq!(visited, 4, "nothing is visited after it");
}
