//! The limits: a value past a limit is refused with the name of the field, and nothing is written.

use super::build::*;
use crate::base::limits::{
    BATCH_CHECKPOINTS_MAX, CHANNELS_MAX, ITEM_ID_BYTES_MAX, NAME_BYTES_MAX, TASKS_MAX, VALUE_BYTES_MAX,
};
use crate::limits::{METADATA_BYTES_MAX, STEP_MAX, TASK_WRITES_MAX};

/// Refuses checkpoint 2 on checkpoint 1 because of a field.
fn refused(backend: &dyn Log, place: &CasePlace<'_>, draft: CheckpointDraft, field: &str) {
    refused_for(backend, &place.batch(Some(1), [draft]), field);
}

/// Returns a place with checkpoint 1.
fn started(backend: &dyn Log) -> CasePlace<'_> {
    let place = root_of(backend, "limits");
    place.add(begin(1).tasks(&["node"]));
    place
}

/// Checks that nothing came after checkpoint 1.
fn untouched(place: &CasePlace<'_>) {
    assert_eq!(place.head(), Some(id(1)), "nothing was written");
    assert!(place.writes(1).is_empty(), "nothing was written");
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("name {n}"))
}

pub(super) fn batch(backend: &dyn Log) {
    let place = started(backend);
    refused_for(backend, &place.batch(Some(1), []), "batch");
    let mut unexpected = place.batch(Some(1), [on(2, 1)]);
    unexpected.expect.clear();
    refused_for(backend, &unexpected, "batch.expect");
    unexpected.expect = place.inside("child:1").batch(None, []).expect;
    refused_for(backend, &unexpected, "batch.expect");
    let many = (2..).take(BATCH_CHECKPOINTS_MAX + 1).map(|n| on(n, n - 1));
    refused_for(backend, &place.batch(Some(1), many), "batch.checkpoints");
    refused_for(backend, &place.batch(Some(1), [on(3, 1), on(2, 1)]), "checkpoint.id");
    refused_for(backend, &place.batch(Some(1), [on(3, 1), on(3, 1)]), "checkpoint.id");
    untouched(&place);
}

pub(super) fn checkpoint(backend: &dyn Log) {
    let place = started(backend);
    let due = |name: &str| TaskRecord::new(task(1), name, TaskKind::Push { index: 0 });
    let mut draft = on(2, 1);
    draft.0.tasks = vec![due("node"); TASKS_MAX + 1];
    refused(backend, &place, draft, "checkpoint.tasks");
    for step in [STEP_MAX + 1, -STEP_MAX - 1, i64::MAX, i64::MIN] {
        let mut draft = on(2, 1);
        draft.0.step = step;
        refused(backend, &place, draft, "checkpoint.step");
    }
    let mut draft = on(2, 1);
    draft.0.metadata = Some(" ".repeat(METADATA_BYTES_MAX + 1));
    refused(backend, &place, draft, "checkpoint.metadata bytes");
    for name in ["", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
        let mut draft = on(2, 1);
        draft.0.tasks = vec![due("fine"), due(name)];
        refused(backend, &place, draft, "task.name");
        refused(backend, &place, on(2, 1).seen(name, &[]), "seen.node");
        refused(backend, &place, on(2, 1).value(name, 1, ""), "change.channel");
    }
    untouched(&place);
}

pub(super) fn changes(backend: &dyn Log) {
    let place = started(backend);
    let many = names(CHANNELS_MAX + 1).fold(on(2, 1), |draft, name| draft.value(&name, 1, ""));
    refused(backend, &place, many, "checkpoint.changes");
    refused(backend, &place, on(2, 1).value("x", 1, "").value("x", 2, ""), "checkpoint.changes");
    refused(backend, &place, on(2, 1).value("x", 0, ""), "change.version");
    refused(backend, &place, on(2, 1).value("x", 1 << 63, ""), "change.version");
    refused(backend, &place, on(2, 1).items("x", 1, vec![put(1 << 63, "")]), "item.position");
    for (from, end) in [(3, 3), (3, 2), (0, 0)] {
        refused(backend, &place, on(2, 1).items("x", 1, vec![delete_range(from, end)]), "item.range");
    }
    let large = || bytes(vec![0; VALUE_BYTES_MAX + 1]);
    refused(backend, &place, on(2, 1).value("x", 1, large().data), "value bytes");
    refused(backend, &place, on(2, 1).items("x", 1, vec![put_payload(0, large())]), "value bytes");
    let long = message(&"i".repeat(ITEM_ID_BYTES_MAX + 1), "");
    refused(backend, &place, on(2, 1).items("x", 1, vec![put_payload(0, long)]), "item id bytes");
    untouched(&place);
}

fn writes_refused(backend: &dyn Log, place: &CasePlace<'_>, new: Vec<NewWrite>, field: &str) {
    let new = writes(1, task(1), "p", new);
    refused_for(backend, &place.pending(1, new.clone()), field);
    refused(backend, place, on(2, 1).consumed(new), field);
}

pub(super) fn writes_of_tasks(backend: &dyn Log) {
    let place = started(backend);
    let many = (0..).take(TASK_WRITES_MAX + 1).map(|index| write(index, "x", ""));
    writes_refused(backend, &place, many.collect(), "task.writes");
    for name in ["", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
        writes_refused(backend, &place, vec![write(0, "fine", ""), write(1, name, "")], "write.channel");
    }
    let large = bytes(vec![0; VALUE_BYTES_MAX + 1]);
    let value = WriteValue::Items(vec![bytes(""), large]);
    writes_refused(backend, &place, vec![NewWrite::new(0, "x", value)], "value bytes");
    let value = WriteValue::One(message(&"i".repeat(ITEM_ID_BYTES_MAX + 1), ""));
    writes_refused(backend, &place, vec![NewWrite::new(0, "x", value)], "item id bytes");
    untouched(&place);
}

pub(super) fn at_the_limit(backend: &dyn Log) {
    let place = started(backend);
    let name = "x".repeat(NAME_BYTES_MAX);
    let top = i64::MAX.unsigned_abs();
    let item = message(&"i".repeat(ITEM_ID_BYTES_MAX), "");
    let mut draft = on(2, 1).value(&name, top, "").items("list", 1, vec![put_payload(top - 1, item)]);
    draft = draft.seen(&name, &[(&name, top)]);
    draft.0.step = STEP_MAX;
    draft.0.metadata = Some(format!("\"{}\"", "m".repeat(METADATA_BYTES_MAX - 2)));
    place.add_at(Some(1), draft);
    assert_eq!(place.channel(2, &name).map(|channel| channel.version), Some(top));
    let found = items(backend, &place.point(2), "list", ItemRange::All);
    assert_eq!((found.len(), found[0].0), (1, top - 1));
    let record = place.record(2);
    assert_eq!((record.step, record.metadata.map(|text| text.len())), (STEP_MAX, Some(METADATA_BYTES_MAX)));
    let many = (3..).take(BATCH_CHECKPOINTS_MAX).map(|n| on(n, n - 1));
    commit(backend, &place.batch(Some(2), many));
    let last = 2 + BATCH_CHECKPOINTS_MAX as u64;
    assert_eq!(place.record(last).ordinal, last - 1);
}
