//! Mistakes of a caller that the backend in memory refuses. A backend on a disk need not look for them.

use super::on_memory;
use crate::store::conformance::build::*;

/// Returns a place whose checkpoints 1 and 5 hold a list and a value, and have two tasks with writes.
fn started(backend: &dyn Log) -> CasePlace<'_> {
    let place = root_of(backend, "strict");
    let first = begin(1).value("x", 3, "x").items("list", 3, vec![put(0, "a"), put(1, "b")]);
    place.add(first.tasks(&["a", "b"]));
    place.add(on(5, 1).value("x", 7, "y").tasks(&["a", "b"]));
    place
}

/// Checks that each checkpoint is refused on checkpoint 5 because of a field, and that nothing was written.
fn refuse(place: &CasePlace<'_>, field: &str, drafts: impl IntoIterator<Item = CheckpointDraft>) {
    let state = || (place.head(), place.writes(1), place.writes(5));
    let before = state();
    for draft in drafts {
        // A good checkpoint before it in the batch must not stay either.
        let good = on(6, 5).value("x", 8, "good").tasks(&["a", "b"]);
        refuses(place.backend, [(place.batch(Some(5), [good, draft]), field)]);
    }
    assert_eq!(state(), before);
}

#[test]
fn parents_exist_and_come_before() {
    on_memory(|backend| {
        let place = started(backend);
        refuse(&place, "checkpoint.parent", [3, 7, 8, 9].map(|parent| on(8, parent)));
        let missing =
            [root_of(backend, "nobody").point(1), place.inside("child:1").point(1), place.point(5), place.point(3)];
        refuse(&place, "checkpoint.parent", missing.map(|point| fork_of(8, point)));
    });
}

#[test]
fn ids_are_above_the_head() {
    on_memory(|backend| {
        let place = started(backend);
        for (drafts, stale) in [(vec![on(4, 1)], "4 is below 5"), (vec![on(2, 1), on(9, 5)], "2 is below 5")] {
            let count = drafts.len();
            let mut batch = place.batch(Some(5), drafts);
            assert_eq!(refusal(backend.commit(&batch)), stale);
            let raised = batch.remint_ids(&place.namespace, &id(5));
            assert!(raised.len() == count && raised.iter().all(|(_, new)| *new > id(5)), "{raised:?}");
            assert!(raised.is_sorted_by(|a, b| a.1 < b.1));
        }
    });
}

#[test]
fn channel_versions_go_up() {
    on_memory(|backend| {
        let place = started(backend);
        let below = [on(8, 6).value("x", 8, ""), on(8, 5).items("list", 3, vec![])];
        refuse(
            &place,
            "change.version",
            [1, 3, 7].map(|version| on(8, 5).value("x", version, "")).into_iter().chain(below),
        );
        place.add(on(8, 1).value("x", 4, "a version counts along the lineage only"));
    });
}

#[test]
fn items_are_removed_from_taken_positions() {
    on_memory(|backend| {
        let place = started(backend);
        let list = |items| on(8, 5).items("list", 4, items);
        let other = |channel, version| on(8, 5).items(channel, version, vec![remove(0)]);
        let free = [list(vec![remove(2)]), list(vec![delete_range(0, 2), remove(1)]), other("new", 1), other("x", 8)];
        refuse(&place, "item.remove", free);
        place.add(list(vec![remove(1)]));
        refuses(backend, [(place.batch(Some(8), [on(9, 8).items("list", 5, vec![remove(1)])]), "item.remove")]);
    });
}

#[test]
fn references_lead_to_writes() {
    on_memory(|backend| {
        let place = started(backend);
        let null = NewWrite::new(2, "x", WriteValue::Null);
        place.write(
            5,
            1,
            vec![write(0, "x", "one"), write_items(1, "list", &["a", "b"]), null, write_items(3, "list", &[])],
        );
        for (of, index, part) in [(2, 0, 0), (1, 4, 0), (1, -1, 0), (1, 0, 1), (1, 1, 2), (1, 2, 0), (1, 3, 0)] {
            let value = ChangeValue::Value(Data::OfWrite(WriteRef { task: task(of), index, part }));
            let item = put_of(5, task(of), index, part);
            refuse(&place, "data.of_write", [on(8, 5).change("x", 8, value), on(8, 5).items("list", 4, vec![item])]);
        }
        refuse(&place, "data.of_write", [on(8, 1), begin(8)].map(|draft| draft.value_of("x", 8, task(1), 0)));
        place.add(on(8, 5).value_of("x", 8, task(1), 0));
    });
}

#[test]
fn writes_are_of_the_right_checkpoint() {
    on_memory(|backend| {
        let place = started(backend);
        let new = |n| writes(n, 1, vec![write(0, "x", "lost")]);
        let with_its_own = Batch { writes: vec![new(8)], ..place.batch(Some(5), [on(8, 5)]) };
        refuses(backend, [(place.pending(5, new(3)), "writes.checkpoint"), (with_its_own, "writes.checkpoint")]);
        refuse(&place, "consumed.checkpoint", [1, 3, 8].map(|n| on(8, 5).consumed(new(n))));
        refuse(&place, "consumed.checkpoint", [begin(8).consumed(new(5))]);
        let fork = root_of(backend, "fork").batch(None, [fork_of(9, place.point(5)).consumed(new(5))]);
        refuses(backend, [(fork, "consumed.checkpoint")]);
        assert_eq!(place.head(), Some(5));
    });
}

#[test]
fn task_indexes_are_in_range() {
    on_memory(|backend| {
        let place = started(backend);
        refuse(&place, "change.task", [on(8, 5).value("x", 8, "").by(2), begin(8).value("x", 8, "").by(0)]);
        let mut draft = on(8, 5).items("list", 4, vec![put(2, "")]).by(2);
        draft.0.changes[0].task = Some(1);
        refuse(&place, "item.task", [draft]);
        place.add(on(8, 5).value("x", 8, "").by(1));
    });
}
