//! Lists that begin as other ones, and writes that say what differs from one.

use super::build::*;
use crate::base::limits::LIST_REFERENCES_MAX;

/// Returns the list of a channel at checkpoint `n` of a place.
fn list_of(place: &CasePlace<'_>, n: u64, channel: &str) -> ListRef {
    ListRef::new(place.namespace.clone(), id(n), channel)
}

fn reference(place: &CasePlace<'_>, n: u64) -> ItemChange {
    ItemChange { position: 0, op: ItemOp::Reference(list_of(place, n, "list")), task: None }
}

/// Returns a place whose checkpoints 1 and 2 hold lists, and one inside it.
fn started(backend: &dyn Log) -> (CasePlace<'_>, CasePlace<'_>) {
    let place = root_of(backend, "reference");
    let first = begin(1).items("list", 1, (0..6).map(|position| put(position, position.to_string())).collect());
    place.add_at(None, first.tasks(&["a"]));
    place.add(on(2, 1).items("list", 2, vec![remove(1), put(6, "6")]).tasks(&["a"]));
    (place.clone(), place.inside("a:1"))
}

pub(super) fn operations(backend: &dyn Log) {
    let (place, inside) = started(backend);
    inside.add(begin(3).tasks(&["a"]));
    inside.add(on(4, 3).items("list", 1, vec![reference(&place, 2), put(7, "new")]).by(0));
    inside.add(on(5, 4).items("list", 2, vec![put(3, "three"), remove(6), put(8, "8")]));
    inside.add(on(6, 5).items("list", 3, vec![delete_range(0, 3), put(2, "again")]));
    let list = |n| inside.list(n, ItemRange::All);
    assert_eq!(list(4), "0=0 2=2 3=3 4=4 5=5 6=6 7=new");
    assert_eq!(list(5), "0=0 2=2 3=three 4=4 5=5 7=new 8=8");
    assert_eq!(list(6), "2=again 3=three 4=4 5=5 7=new 8=8");
    let tail = |n, count| inside.list(n, ItemRange::Tail(count));
    assert_eq!(tail(4, 2), "6=6 7=new");
    assert_eq!(tail(5, 4), "4=4 5=5 7=new 8=8");
    assert_eq!(tail(6, 5), "3=three 4=4 5=5 7=new 8=8");
    assert_eq!(tail(6, 100), list(6));
    assert_eq!(inside.list(5, ItemRange::Positions(2, 7)), "2=2 3=three 4=4 5=5");
    let ordinals: Vec<_> = items(backend, &inside.point(5), "list", ItemRange::All).into_iter().collect();
    let ordinals: Vec<_> = ordinals.iter().map(|(position, ordinal, _)| (*position, *ordinal)).collect();
    let expected = [(0, 1), (2, 1), (3, 2), (4, 1), (5, 1), (7, 1), (8, 2)];
    assert_eq!(ordinals, expected, "what is shared came with the checkpoint that reference it");
    let mut tasks = Vec::new();
    let visited = backend.items(&inside.point(4), "list", ItemRange::All, &mut |row| {
        tasks.push(row.task);
        Ok(())
    });
    visited.expect("reads items");
    assert_eq!(tasks, [Some(0); 7], "and of its task");
    // The list around goes its own way.
    place.add(on(7, 2).items("list", 3, vec![delete_range(0, 100), put(100, "other")]));
    assert_eq!(list(5), "0=0 2=2 3=three 4=4 5=5 7=new 8=8");
    assert_eq!(place.list(7, ItemRange::All), "100=other");
    let of = |n| backend.list_reference(&inside.point(n), "list").expect("reads a state");
    assert_eq!((of(3), of(6)), (None, Some(list_of(&place, 2, "list"))));
    assert_eq!(backend.list_reference(&place.point(2), "list").expect("reads a state"), None);
    assert_eq!(backend.list_reference(&inside.point(6), "nothing").expect("reads a state"), None);
}

pub(super) fn below_one_another(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let deep = inside.inside("a:1|b:2");
    inside.add(begin(3).items("list", 1, vec![reference(&place, 1), put(9, "own"), remove(0)]));
    deep.add(begin(4).items("list", 1, vec![reference(&inside, 3), put(4, "four")]));
    assert_eq!(deep.list(4, ItemRange::All), "1=1 2=2 3=3 4=four 5=5 9=own");
    assert_eq!(deep.list(4, ItemRange::Tail(3)), "4=four 5=5 9=own");
    let found = items(backend, &deep.point(4), "list", ItemRange::All);
    assert!(found.iter().all(|(_, ordinal, _)| *ordinal == 0), "{found:?}");
    // A fork inherits the references of its source.
    let elsewhere = root_of(backend, "elsewhere");
    elsewhere.add(fork_of(5, deep.point(4)).items("list", 2, vec![put(10, "ten"), remove(2)]));
    assert_eq!(elsewhere.list(5, ItemRange::All), "1=1 3=3 4=four 5=5 9=own 10=ten");
    // A list that became another value is not a list any more.
    deep.add(on(6, 4).value("list", 2, "value"));
    deep.add(on(7, 6).items("list", 3, vec![put(20, "new")]));
    assert_eq!(deep.list(7, ItemRange::All), "20=new");
    // A list that has been written can become another one.
    deep.add(on(8, 7).items("list", 4, vec![reference(&place, 2), put(20, "newer")]));
    assert_eq!(deep.list(8, ItemRange::All), "0=0 2=2 3=3 4=4 5=5 6=6 20=newer");
    // Of a channel that was never written there is nothing.
    let of = ItemOp::Reference(list_of(&place, 2, "never"));
    let change = vec![ItemChange::new(0, of, None)];
    deep.add(on(9, 8).items("other", 1, change));
    assert!(items(backend, &deep.point(9), "other", ItemRange::All).is_empty());
}

pub(super) fn repeated(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let draft = |of| begin(3).items("list", 1, vec![reference(&place, of), put(9, "own")]);
    commit(backend, &inside.batch(None, [draft(2)]));
    commit(backend, &inside.batch(None, [draft(2)]));
    let other = backend.commit(&inside.batch(None, [draft(1)]));
    assert!(matches!(other, Err(StoreError::Duplicate { .. })), "{other:?}");
    assert_eq!(inside.list(3, ItemRange::Tail(1)), "9=own");
}

pub(super) fn refused(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let two = vec![reference(&place, 2), reference(&place, 1)];
    let misplaced = ItemChange { position: 3, ..reference(&place, 2) };
    for changes in [vec![reference(&place, 2), delete_range(0, 3)], two, vec![misplaced]] {
        refused_for(backend, &inside.batch(None, [begin(3).items("list", 1, changes)]), "item.reference");
    }
    for of in [reference(&place, 9), reference(&inside, 2), reference(&inside.inside("nowhere"), 1)] {
        let missing = backend.commit(&inside.batch(None, [begin(3).items("list", 1, vec![of])]));
        assert!(matches!(missing, Err(StoreError::CheckpointNotFound { .. })), "{missing:?}");
    }
    assert_eq!(inside.head(), None);
    let mut last = (place.clone(), 2);
    for n in 0..LIST_REFERENCES_MAX as u64 {
        let next = place.inside(&format!("n:{n}"));
        next.add(begin(10 + n).items("list", 1, vec![reference(&last.0, last.1)]));
        last = (next, 10 + n);
    }
    assert_eq!(last.0.list(last.1, ItemRange::Tail(1)), "6=6");
    let change = vec![reference(&last.0, last.1)];
    refused_for(backend, &inside.batch(None, [begin(900).items("list", 1, change)]), "list.of");
}

pub(super) fn deltas(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let nothing = ListDelta::new(list_of(&place, 2, "list"));
    let mut delta = nothing.clone();
    delta.removed = vec![0..1, 3..6];
    delta.positions = vec![2, 7, 1 << 40];
    delta.items = ["two", "seven", "far"].map(bytes).into();
    let write = |index, delta: &ListDelta| {
        let value = WriteValue::Delta(Box::new(delta.clone()));
        NewWrite::new(index, "list", value)
    };
    let of_task = |new| writes(2, task(1), "p", new);
    commit(backend, &place.pending(2, of_task(vec![write(0, &delta), write(1, &nothing)])));
    let put_of = |position, part| put_of(position, task(1), 0, part);
    let draft = on(3, 2).items("list", 3, vec![put_of(2, 0), put_of(7, 1), put_of(8, 2)]);
    place.add_at(Some(2), draft);
    let value = |at: usize| place.writes(2)[at].value.clone();
    assert_eq!(value(0), WriteValue::Delta(Box::new(delta.clone())));
    assert_eq!(value(1), WriteValue::Delta(Box::new(nothing.clone())));
    assert_eq!(place.list(3, ItemRange::Tail(3)), "6=6 7=seven 8=far");
    assert_eq!(place.list(3, ItemRange::Positions(2, 3)), "2=two");
    // A delta in the batch of the checkpoint that takes it over, and in the batch before.
    inside.add(begin(4).tasks(&["a"]));
    let consumed = writes(4, task(1), "p", vec![write(0, &delta)]);
    inside.add(on(5, 4).consumed(consumed).items("list", 1, vec![put_of(0, 1)]));
    assert_eq!(inside.list(5, ItemRange::All), "0=seven");
    let bad = |change: fn(&mut ListDelta)| {
        let mut delta = delta.clone();
        change(&mut delta);
        refused_for(backend, &inside.pending(5, writes(5, task(1), "p", vec![write(0, &delta)])), "delta.positions");
    };
    bad(|delta| delta.positions = vec![2, 7]);
    bad(|delta| delta.positions = vec![7, 2, 9]);
    bad(|delta| delta.positions = vec![2, 7, u64::MAX]);
    bad(|delta| delta.removed = vec![3..5, 5..6]);
    refused_for(backend, &inside.pending(5, writes(5, task(1), "p", vec![write(-1, &delta)])), "write.delta");
    delta.of = list_of(&place, 77, "list");
    let missing = writes(5, task(1), "p", vec![write(0, &delta)]);
    let missing = backend.commit(&inside.pending(5, missing));
    assert!(matches!(missing, Err(StoreError::CheckpointNotFound { .. })), "{missing:?}");
}
