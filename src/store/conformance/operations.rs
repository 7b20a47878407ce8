//! Operations: heads that move, names of branches, facts, and the listing of all.

use super::build::*;

fn listed(backend: &dyn Log, query: OperationQuery) -> Vec<u64> {
    backend.operations(&query).expect("operations are listed").iter().map(|record| record.id).collect()
}

/// Returns two threads with two checkpoints each.
fn two(backend: &dyn Log) -> [CasePlace<'_>; 2] {
    let places = roots(backend, ["a", "b"]);
    places.iter().for_each(|place| place.add_chain(1..=2));
    places
}

pub(super) fn batch_with_operation(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).value("x", 1, "1").tasks(&["node"]));
    place.add(on(2, 1).value("x", 2, "2"));
    let beside = |number: u64, name: &str, found: u64| {
        let changes = vec![moves(&place, Some(number), Some(found)), names(&place, name, None, Some(number))];
        let batch = place.batch(Some(found), [on(number, 1).value("x", 2, "beside")]);
        Batch { operation: Some(operation(10, changes)), ..batch }
    };
    let first = beside(3, "late", 2);
    for _ in 0..2 {
        commit(backend, &first);
        assert_eq!(place.head(), Some(2), "the head stays, also in a repeat");
    }
    assert_eq!(listed(backend, OperationQuery::default()).len(), 1);
    place.add(on(4, 2).value("x", 3, "4"));
    commit(backend, &first);
    assert_eq!(place.head(), Some(4), "a late repeat does not move the head");
    let pending = place.pending(4, writes(4, 1, vec![write(0, "x", "pending")]));
    let empty = Batch { operation: first.operation, ..pending };
    let taken = [(beside(5, "late", 4), "a field of a"), (beside(5, "later", 2), "a/ is at 4, not 2")];
    refuses(backend, taken.into_iter().chain([(empty, "batch.operation")]));
    assert_eq!((place.head(), place.found(5)), (Some(4), None), "nothing of them is stored");
    let later = beside(5, "later", 4);
    commit(backend, &later);
    assert_eq!(place.head(), Some(4));
    operate(backend, 11, vec![moves(&place, Some(4), Some(5)), names(&place, "later", Some(5), None)]);
    commit(backend, &later);
    assert_eq!(place.head(), Some(5), "an operation that was undone is not made again by a repeat of its batch");
}

pub(super) fn refused_whole(backend: &dyn Log) {
    let [a, b] = two(backend);
    let back = || moves(&a, Some(2), Some(1));
    let refused = [
        (operation(10, vec![back(), moves(&b, Some(1), Some(2))]), "b/ is at 2, not 1"),
        (operation(10, vec![moves(&a, Some(2), Some(7))]), "not found"),
        (operation(10, vec![moves(&root_of(backend, "absent"), None, Some(1))]), "no thread absent"),
        (operation(10, vec![names(&a, "", None, Some(1))]), "branch.name"),
        (operation(10, vec![names(&a, "x", Some(1), Some(2))]), "a field of a"),
        (operation(10, vec![fact(&a, "title", Some("v"), None)]), "a field of a"),
    ];
    refuses_operations(backend, refused);
    assert_eq!(a.head(), Some(2), "all changes of an operation are made, or none");
    assert!(listed(backend, OperationQuery::default()).is_empty(), "nothing was stored");
}

pub(super) fn listing(backend: &dyn Log) {
    let [a, b] = two(backend);
    let first = operate(backend, 10, vec![moves(&a, Some(2), Some(1))]);
    let mut both = operation(11, vec![moves(&b, Some(2), Some(1)), moves(&a, Some(1), Some(2))]);
    (both.kind, both.actor) = (OperationKind::Undo, Some("Zoë".into()));
    both.target = Some(OperationTarget::Operation(first));
    let second = backend.operate(&both).expect("a good operation");
    a.add(on(3, 2));
    let mut third = operation(12, vec![moves(&a, Some(3), Some(1))]);
    third.target = Some(OperationTarget::Commits(id(3)));
    let third = backend.operate(&third).expect("a good operation");
    let all = [third, second, first];
    for (of, before, limit, expected) in [
        (None, None, 0, &all[..]),
        (None, None, 1, &all[..1]),
        (None, Some(third), 1, &all[1..2]),
        (Some(&b), None, 0, &all[1..2]),
        (Some(&a), Some(second), 0, &all[2..]),
    ] {
        let mut query = OperationQuery::new(of.map(|place| place.thread.clone()), limit);
        query.before = before;
        assert_eq!(listed(backend, query), expected, "the newest first");
    }
    let query = OperationQuery::default();
    let records = backend.operations(&query).expect("operations are listed");
    assert!(records[1].seq < records[0].seq && records[0].seq == a.record(3).seq, "the place in the log");
    assert_eq!(records[0].target, Some(OperationTarget::Commits(id(3))));
    let stored = &records[1];
    assert_eq!((stored.kind, stored.at, stored.actor.as_deref()), (OperationKind::Undo, moment(11), Some("Zoë")));
    assert_eq!(stored.target, Some(OperationTarget::Operation(first)));
    assert_eq!(stored.changes, [moves(&a, Some(1), Some(2)), moves(&b, Some(2), Some(1))], "sorted by thread");

    a.delete();
    let left = backend.operations(&query).expect("operations are listed");
    assert_eq!(left.len(), 1, "operations go with their threads");
    assert_eq!(left[0].changes, [moves(&b, Some(2), Some(1))]);
    reclaim(backend);
    clean(backend);
    a.add(begin(1));
    assert!(listed(backend, OperationQuery::new(Some(a.thread.clone()), 0)).is_empty());
    a.add(on(2, 1));
    assert!(operate(backend, 13, vec![moves(&a, Some(2), Some(1))]) > third, "a number is used once");
}
