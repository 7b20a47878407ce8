//! Mistakes of a caller that a strict backend refuses. A backend on a disk need not look for them.

use super::Case;
use super::build::*;

/// Every strict case with its title.
pub(super) const CASES: &[(&str, Case)] = &[
    ("parents that do not exist or come out of order", parents),
    ("ids that are not above the head", ids_below),
    ("channel versions that do not go up", versions),
    ("items that are removed from free positions or change twice", positions),
    ("references to writes that do not exist", references),
    ("writes of other or unknown checkpoints", misplaced_writes),
    ("task indexes out of range", tasks),
    ("nodes that were seen twice", seen_twice),
];

/// Returns a place whose checkpoints 1 and 5 hold a list and a value, and have two tasks with writes.
fn started(backend: &dyn Log) -> CasePlace<'_> {
    let place = root_of(backend, "strict");
    let first = begin(1).value("x", 3, "x").items("list", 3, vec![put(0, "a"), put(1, "b")]);
    place.add_at(None, first.tasks(&["a", "b"]));
    place.add(on(5, 1).value("x", 7, "y").tasks(&["a", "b"]));
    place
}

/// Checks that a batch on checkpoint 5 is refused because of a field, and that nothing was written.
fn refuse(backend: &dyn Log, place: &CasePlace<'_>, batch: &Batch, field: &str) {
    let before = (place.head(), place.writes(1), place.writes(5));
    refused_for(backend, batch, field);
    assert_eq!((place.head(), place.writes(1), place.writes(5)), before);
}

fn refuse_draft(backend: &dyn Log, place: &CasePlace<'_>, draft: CheckpointDraft, field: &str) {
    // A good checkpoint before it in the batch must not stay either.
    let good = on(6, 5).value("x", 8, "good").tasks(&["a", "b"]);
    refuse(backend, place, &place.batch(Some(5), [good, draft]), field);
}

fn parents(backend: &dyn Log) {
    let place = started(backend);
    for parent in [3, 7, 8, 9] {
        refuse_draft(backend, &place, on(8, parent), "checkpoint.parent");
    }
    let missing =
        [root_of(backend, "nobody").point(1), place.inside("child:1").point(1), place.point(5), place.point(3)];
    for point in missing {
        refuse_draft(backend, &place, fork_of(8, point), "checkpoint.parent");
    }
}

fn ids_below(backend: &dyn Log) {
    let place = started(backend);
    for drafts in [vec![on(4, 1)], vec![on(2, 1), on(9, 5)]] {
        let (first, count) = (drafts[0].0.id, drafts.len());
        let mut batch = place.batch(Some(5), drafts);
        match backend.commit(&batch) {
            Err(StoreError::StaleId { id: stale, newest, .. }) => assert_eq!((stale, newest), (first, id(5))),
            other => panic!("expected a stale id, got {other:?}"),
        }
        let raised = batch.remint_ids(&place.namespace, &id(5));
        assert!(raised.len() == count && raised.iter().all(|(_, new)| *new > id(5)), "{raised:?}");
        assert!(raised.is_sorted_by(|a, b| a.1 < b.1));
    }
}

fn versions(backend: &dyn Log) {
    let place = started(backend);
    for version in [1, 3, 7] {
        refuse_draft(backend, &place, on(8, 5).value("x", version, ""), "change.version");
    }
    refuse_draft(backend, &place, on(8, 6).value("x", 8, ""), "change.version");
    refuse_draft(backend, &place, on(8, 5).items("list", 3, vec![]), "change.version");
    place.add_at(Some(5), on(8, 1).value("x", 4, "a version counts along the lineage only"));
}

fn positions(backend: &dyn Log) {
    let place = started(backend);
    let list = |items| on(8, 5).items("list", 4, items);
    refuse_draft(backend, &place, list(vec![remove(2)]), "item.remove");
    refuse_draft(backend, &place, list(vec![delete_range(0, 2), remove(1)]), "item.remove");
    refuse_draft(backend, &place, on(8, 5).items("new", 1, vec![remove(0)]), "item.remove");
    refuse_draft(backend, &place, on(8, 5).items("x", 8, vec![remove(0)]), "item.remove");
    refuse_draft(backend, &place, list(vec![put(3, "1"), put(3, "2")]), "item.position");
    refuse_draft(backend, &place, list(vec![remove(1), put(1, "2")]), "item.position");
    place.add(on(8, 5).items("list", 4, vec![remove(1)]));
    let again = place.batch(Some(8), [on(9, 8).items("list", 5, vec![remove(1)])]);
    refuse(backend, &place, &again, "item.remove");
}

fn references(backend: &dyn Log) {
    let place = started(backend);
    let null = NewWrite::new(2, "x", WriteValue::Null);
    let stored = vec![write(0, "x", "one"), write_items(1, "list", &["a", "b"]), null, write_items(3, "list", &[])];
    commit(backend, &place.pending(5, writes(5, task(1), "p", stored)));
    for (task_number, index, part) in [(2, 0, 0), (1, 4, 0), (1, -1, 0), (1, 0, 1), (1, 1, 2), (1, 2, 0), (1, 3, 0)] {
        let wanted = WriteRef { task: task(task_number), index, part };
        let value = ChangeValue::Value(Data::OfWrite(wanted));
        refuse_draft(backend, &place, on(8, 5).change("x", 8, value), "data.of_write");
        let item = put_of(5, task(task_number), index, part);
        refuse_draft(backend, &place, on(8, 5).items("list", 4, vec![item]), "data.of_write");
    }
    refuse_draft(backend, &place, on(8, 1).value_of("x", 8, task(1), 0), "data.of_write");
    refuse_draft(backend, &place, begin(8).value_of("x", 8, task(1), 0), "data.of_write");
    place.add(on(8, 5).value_of("x", 8, task(1), 0));
}

fn misplaced_writes(backend: &dyn Log) {
    let place = started(backend);
    let new = |n| writes(n, task(1), "p", vec![write(0, "x", "lost")]);
    refuse(backend, &place, &place.pending(5, new(3)), "writes.checkpoint");
    let mut with_its_own = place.batch(Some(5), [on(8, 5)]);
    with_its_own.writes = vec![new(8)];
    refuse(backend, &place, &with_its_own, "writes.checkpoint");
    for n in [1, 3, 8] {
        refuse_draft(backend, &place, on(8, 5).consumed(new(n)), "consumed.checkpoint");
    }
    refuse_draft(backend, &place, begin(8).consumed(new(5)), "consumed.checkpoint");
    let fork = root_of(backend, "fork").batch(None, [fork_of(9, place.point(5)).consumed(new(5))]);
    refuse(backend, &place, &fork, "consumed.checkpoint");
    assert_eq!(place.head(), Some(id(5)));
}

fn tasks(backend: &dyn Log) {
    let place = started(backend);
    refuse_draft(backend, &place, on(8, 5).value("x", 8, "").by(2), "change.task");
    refuse_draft(backend, &place, begin(8).value("x", 8, "").by(0), "change.task");
    let mut draft = on(8, 5).items("list", 4, vec![put(2, "")]).by(2);
    draft.0.changes[0].task = Some(1);
    refuse_draft(backend, &place, draft, "item.task");
    place.add(on(8, 5).value("x", 8, "").by(1));
}

fn seen_twice(backend: &dyn Log) {
    let place = started(backend);
    let draft = on(8, 5).seen("node", &[("x", 1)]).seen("other", &[]).seen("node", &[("x", 2)]);
    refuse_draft(backend, &place, draft, "checkpoint.seen");
}
