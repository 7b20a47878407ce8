//! Lists that begin as other ones, and writes that say what differs from one.

use super::build::*;
use crate::base::limits::LIST_REFERENCES_MAX;

/// Returns a place whose checkpoints 1 and 2 hold lists, and one inside it.
fn started(backend: &dyn Log) -> (CasePlace<'_>, CasePlace<'_>) {
    let place = root_of(backend, "reference");
    let first = begin(1).items("list", 1, (0..6).map(|position| put(position, position.to_string())).collect());
    place.add(first.tasks(&["a"]));
    place.add(on(2, 1).items("list", 2, vec![remove(1), put(6, "6")]).tasks(&["a"]));
    (place.clone(), place.inside("a:1"))
}

pub(super) fn operations(backend: &dyn Log) {
    let (place, inside) = started(backend);
    inside.add(begin(3).tasks(&["a"]));
    inside.add(on(4, 3).items("list", 1, vec![place.reference(2), put(7, "new")]).by(0));
    inside.add(on(5, 4).items("list", 2, vec![put(3, "three"), remove(6), put(8, "8")]));
    inside.add(on(6, 5).items("list", 3, vec![delete_range(0, 3), put(2, "again")]));
    let fifth = "0=0 2=2 3=three 4=4 5=5 7=new 8=8";
    let lists = ["0=0 2=2 3=3 4=4 5=5 6=6 7=new", fifth, "2=again 3=three 4=4 5=5 7=new 8=8"];
    assert_eq!([4, 5, 6].map(|n| inside.list(n)), lists);
    for (n, count, tail) in
        [(4, 2, "6=6 7=new"), (5, 4, "4=4 5=5 7=new 8=8"), (6, 5, &lists[2][8..]), (6, 100, lists[2])]
    {
        assert_eq!(inside.range(n, ItemRange::Tail(count)), tail, "the tail of {n}");
    }
    assert_eq!(inside.range(5, ItemRange::Positions(2, 7)), "2=2 3=three 4=4 5=5");
    let found = inside.items(5, "list", ItemRange::All);
    let ordinals: Vec<_> = found.iter().map(|(position, ordinal, ..)| (*position, *ordinal)).collect();
    let expected = [(0, 1), (2, 1), (3, 2), (4, 1), (5, 1), (7, 1), (8, 2)];
    assert_eq!(ordinals, expected, "what is shared came with the checkpoint that references it");
    let tasks = inside.items(4, "list", ItemRange::All);
    assert!(tasks.len() == 7 && tasks.iter().all(|(_, _, task, _)| *task == Some(0)), "and of its task");
    // The list around goes its own way.
    place.add(on(7, 2).items("list", 3, vec![delete_range(0, 100), put(100, "other")]));
    assert_eq!([inside.list(5), place.list(7)], [fifth, "100=other"]);
    let of =
        |place: &CasePlace<'_>, n, channel| backend.list_reference(&place.point(n), channel).expect("reads a list");
    assert_eq!([of(&inside, 3, "list"), of(&inside, 6, "list")], [None, Some(place.list_ref(2, "list"))]);
    assert_eq!([of(&place, 2, "list"), of(&inside, 6, "nothing")], [None, None]);
}

pub(super) fn below_one_another(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let (deep, elsewhere) = (inside.inside("a:1|b:2"), root_of(backend, "elsewhere"));
    inside.add(begin(3).items("list", 1, vec![place.reference(1), put(9, "own"), remove(0)]));
    deep.add(begin(4).items("list", 1, vec![inside.reference(3), put(4, "four")]));
    assert_eq!(deep.list(4), "1=1 2=2 3=3 4=four 5=5 9=own");
    assert_eq!(deep.range(4, ItemRange::Tail(3)), "4=four 5=5 9=own");
    assert!(deep.items(4, "list", ItemRange::All).iter().all(|(_, ordinal, ..)| *ordinal == 0));
    // A fork inherits the references of its source.
    elsewhere.add(fork_of(5, deep.point(4)).items("list", 2, vec![put(10, "ten"), remove(2)]));
    assert_eq!(elsewhere.list(5), "1=1 3=3 4=four 5=5 9=own 10=ten");
    // A list that became another value is not a list any more, and one that was written can become another one.
    deep.add(on(6, 4).value("list", 2, "value"));
    deep.add(on(7, 6).items("list", 3, vec![put(20, "new")]));
    deep.add(on(8, 7).items("list", 4, vec![place.reference(2), put(20, "newer")]));
    assert_eq!([deep.list(7), deep.list(8)], ["20=new", "0=0 2=2 3=3 4=4 5=5 6=6 20=newer"]);
    // Of a channel that was never written there is nothing.
    let never = ItemOp::Reference(place.list_ref(2, "never"));
    deep.add(on(9, 8).items("other", 1, vec![ItemChange::new(0, never, None)]));
    assert!(deep.items(9, "other", ItemRange::All).is_empty());
}

pub(super) fn refused_references(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let of = |changes| inside.batch(None, [begin(3).items("list", 1, changes)]);
    backend.refuses([
        (of(vec![place.reference(9)]), "not found"),
        (of(vec![inside.reference(2)]), "not found"),
        (of(vec![inside.inside("nowhere").reference(1)]), "not found"),
    ]);
    assert_eq!(inside.head(), None);
    let good = |n| of(vec![place.reference(n), put(9, "own")]);
    commit(backend, &good(2));
    commit(backend, &good(2));
    backend.refuses([(good(1), "duplicate 3")]);
    assert_eq!(inside.range(3, ItemRange::Tail(1)), "9=own", "repeating is safe");
    let mut last = (place.clone(), 2);
    for n in 0..LIST_REFERENCES_MAX as u64 {
        let next = place.inside(&format!("n:{n}"));
        next.add(begin(10 + n).items("list", 1, vec![last.0.reference(last.1)]));
        last = (next, 10 + n);
    }
    assert_eq!(last.0.range(last.1, ItemRange::Tail(1)), "6=6");
    let more = place.inside("more").batch(None, [begin(900).items("list", 1, vec![last.0.reference(last.1)])]);
    backend.refuses([(more, "list.of")]);
}

pub(super) fn deltas(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let nothing = ListDelta::new(place.list_ref(2, "list"));
    let mut delta = nothing.clone();
    (delta.removed, delta.positions) = (vec![0..1, 3..6], vec![2, 7, 1 << 40]);
    delta.items = ["two", "seven", "far"].map(bytes).into();
    let value = |delta: &ListDelta| WriteValue::Delta(Box::new(delta.clone()));
    let write = |index, delta: &ListDelta| NewWrite::new(index, "list", value(delta));
    place.write(2, 1, vec![write(0, &delta), write(1, &nothing)]);
    let put_of = |position, part| put_of(position, task(1), 0, part);
    place.add(on(3, 2).items("list", 3, vec![put_of(2, 0), put_of(7, 1), put_of(8, 2)]));
    let stored = place.writes(2).into_iter().map(|write| write.value);
    assert!(stored.eq([value(&delta), value(&nothing)]));
    assert_eq!(place.range(3, ItemRange::Tail(3)), "6=6 7=seven 8=far");
    assert_eq!(place.range(3, ItemRange::Positions(2, 3)), "2=two");
    // A delta in the batch of the checkpoint that takes it over, and in the batch before.
    inside.add(begin(4).tasks(&["a"]));
    let consumed = writes(4, 1, vec![write(0, &delta)]);
    inside.add(on(5, 4).consumed(consumed).items("list", 1, vec![put_of(0, 1)]));
    assert_eq!(inside.list(5), "0=seven");
    delta.of.checkpoint = id(77);
    backend.refuses([(inside.pending(5, writes(5, 1, vec![write(0, &delta)])), "not found")]);
}
