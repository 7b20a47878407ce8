//! Lists that begin as other ones, and writes that say what differs from one.

use super::build::*;

/// Returns a place whose checkpoints 1 and 2 hold lists, and one inside it.
fn started(backend: &dyn Log) -> (CasePlace<'_>, CasePlace<'_>) {
    let place = root_of(backend, "reference");
    let first = begin(1).items("list", 1, (0..6).map(|position| put(position, position.to_string())).collect());
    place.add(first.tasks(&["a"]));
    place.add(on(2, 1).items("list", 2, vec![remove(1), put(6, "6")]).tasks(&["a"]));
    (place.clone(), place.inside("a:1"))
}

pub(super) fn refused_references(backend: &dyn Log) {
    let (place, inside) = started(backend);
    let of = |changes| inside.batch(None, [begin(3).items("list", 1, changes)]);
    let refused = [
        (of(vec![place.reference(9)]), "not found"),
        (of(vec![inside.reference(2)]), "not found"),
        (of(vec![inside.inside("nowhere").reference(1)]), "not found"),
    ];
    refuses(backend, refused);
    assert_eq!(inside.head(), None);
    let good = |n| of(vec![place.reference(n), put(9, "own")]);
    commit(backend, &good(2));
    commit(backend, &good(2));
    refuses(backend, [(good(1), "duplicate 3")]);
    assert_eq!(inside.range(3, ItemRange::Tail(1)), "9=own", "repeating is safe");
    let mut last = (place.clone(), 2);
    for n in 0..LIST_REFERENCES_MAX as u64 {
        let next = place.inside(&format!("n:{n}"));
        next.add(begin(10 + n).items("list", 1, vec![last.0.reference(last.1)]));
        last = (next, 10 + n);
    }
    assert_eq!(last.0.range(last.1, ItemRange::Tail(1)), "6=6");
    let more = place.inside("more").batch(None, [begin(900).items("list", 1, vec![last.0.reference(last.1)])]);
    refuses(backend, [(more, "list.of")]);
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
    refuses(backend, [(inside.pending(5, writes(5, 1, vec![write(0, &delta)])), "not found")]);
}
