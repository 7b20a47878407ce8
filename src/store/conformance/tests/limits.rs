//! The limits of a batch: a value past one is refused with the name of the field, and nothing is written.

use super::on_memory;
use crate::base::limits::{BATCH_CHECKPOINTS_MAX, ITEM_ID_BYTES_MAX, NAME_BYTES_MAX, TASKS_MAX, VALUE_BYTES_MAX};
use crate::limits::{CHANNELS_MAX, METADATA_BYTES_MAX, STEP_MAX, TASK_WRITES_MAX};
use crate::store::conformance::build::*;

/// Refuses checkpoint 2 on checkpoint 1 because of a field, for each draft.
fn refuse<'f>(place: &CasePlace<'_>, drafts: impl IntoIterator<Item = (CheckpointDraft, &'f str)>) {
    refuses(place.backend, drafts.into_iter().map(|(draft, field)| (place.batch(Some(1), [draft]), field)));
}

/// Returns a place with checkpoint 1.
fn started(backend: &dyn Log) -> CasePlace<'_> {
    let place = root_of(backend, "limits");
    place.add(begin(1).tasks(&["node"]));
    place
}

/// Checks that nothing came after checkpoint 1.
fn untouched(place: &CasePlace<'_>) {
    assert_eq!((place.head(), place.writes(1).len()), (Some(1), 0), "nothing was written");
}

#[test]
fn limits_of_a_batch() {
    on_memory(|backend| {
        let place = started(backend);
        let expecting = |expect| Batch { expect, ..place.batch(Some(1), [on(2, 1)]) };
        let many = (2..).take(BATCH_CHECKPOINTS_MAX + 1).map(|n| on(n, n - 1));
        refuses(
            backend,
            [
                (place.batch(Some(1), []), "batch"),
                (expecting(Vec::new()), "batch.expect"),
                (expecting(place.inside("child:1").batch(None, []).expect), "batch.expect"),
                (place.batch(Some(1), many), "batch.checkpoints"),
                (place.batch(Some(1), [on(3, 1), on(2, 1)]), "checkpoint.id"),
                (place.batch(Some(1), [on(3, 1), on(3, 1)]), "checkpoint.id"),
            ],
        );
        untouched(&place);
    });
}

#[test]
fn limits_of_a_checkpoint() {
    on_memory(|backend| {
        let place = started(backend);
        let due = |name: &str| TaskRecord::new(task(1), name, TaskKind::Push { index: 0 });
        let with_tasks = |tasks| {
            let mut draft = on(2, 1);
            draft.0.tasks = tasks;
            draft
        };
        for step in [STEP_MAX + 1, -STEP_MAX - 1, i64::MAX, i64::MIN] {
            let mut draft = on(2, 1);
            draft.0.step = step;
            refuse(&place, [(draft, "checkpoint.step")]);
        }
        refuse(
            &place,
            [
                (with_tasks(vec![due("node"); TASKS_MAX + 1]), "checkpoint.tasks"),
                (on(2, 1).metadata(" ".repeat(METADATA_BYTES_MAX + 1)), "checkpoint.metadata bytes"),
                (on(2, 1).seen("node", &[("x", 1)]).seen("other", &[]).seen("node", &[("x", 2)]), "checkpoint.seen"),
            ],
        );
        for name in ["", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            refuse(
                &place,
                [
                    (with_tasks(vec![due("fine"), due(name)]), "task.name"),
                    (on(2, 1).seen(name, &[]), "seen.node"),
                    (on(2, 1).value(name, 1, ""), "change.channel"),
                ],
            );
        }
        untouched(&place);
    });
}

#[test]
fn limits_of_changes_and_items() {
    on_memory(|backend| {
        let place = started(backend);
        let many = (0..=CHANNELS_MAX).fold(on(2, 1), |draft, n| draft.value(&format!("name {n}"), 1, ""));
        let list = |items| on(2, 1).items("x", 1, items);
        let large = || bytes(vec![0; VALUE_BYTES_MAX + 1]);
        refuse(
            &place,
            [
                (many, "checkpoint.changes"),
                (on(2, 1).value("x", 1, "").value("x", 2, ""), "checkpoint.changes"),
                (on(2, 1).value("x", 0, ""), "change.version"),
                (on(2, 1).value("x", 1 << 63, ""), "change.version"),
                (list(vec![put(1 << 63, "")]), "item.position"),
                (list(vec![put(3, "1"), put(3, "2")]), "item.position"),
                (list(vec![put(4, ""), put(1, "1"), delete_range(0, 9), remove(1)]), "item.position"),
                (list(vec![delete_range(3, 3)]), "item.range"),
                (list(vec![delete_range(3, 2)]), "item.range"),
                (list(vec![delete_range(0, 0)]), "item.range"),
                (on(2, 1).payload("x", 1, large()), "value bytes"),
                (list(vec![put_payload(0, large())]), "value bytes"),
                (list(vec![put_payload(0, message(&"i".repeat(ITEM_ID_BYTES_MAX + 1), ""))]), "item id bytes"),
            ],
        );
        untouched(&place);
    });
}

#[test]
fn limits_of_writes() {
    on_memory(|backend| {
        let place = started(backend);
        let refuse = |new: Vec<NewWrite>, field| {
            let new = writes(1, 1, new);
            refuses(backend, [(place.pending(1, new.clone()), field)]);
            refuses(backend, [(place.batch(Some(1), [on(2, 1).consumed(new)]), field)]);
        };
        refuse((0..).take(TASK_WRITES_MAX + 1).map(|index| write(index, "x", "")).collect(), "task.writes");
        for name in ["", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            refuse(vec![write(0, "fine", ""), write(1, name, "")], "write.channel");
        }
        let large = WriteValue::Items(vec![bytes(""), bytes(vec![0; VALUE_BYTES_MAX + 1])]);
        refuse(vec![NewWrite::new(0, "x", large)], "value bytes");
        let long = WriteValue::One(message(&"i".repeat(ITEM_ID_BYTES_MAX + 1), ""));
        refuse(vec![NewWrite::new(0, "x", long)], "item id bytes");
        untouched(&place);
    });
}
