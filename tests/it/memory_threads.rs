//! Stored lists, in memory and in a file.

use annals::base::{CheckpointId, IdSource, Namespace, TaskId, ThreadId, Timestamp};
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemOp, ListRef, NewCheckpoint, Parent, Payload,
};
use annals::store::log::{Log, LogExt};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{CheckpointRef, ItemRange, MemoryBackend, OpenOptions, Source, SqliteBackend};

fn moment(n: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + n.cast_signed() * 1_000)
}

fn id(n: u64) -> CheckpointId {
    IdSource::from_seed(n).checkpoint(moment(n), 0, None)
}

/// Commits checkpoint `n` of a namespace, with two tasks and one change of the list `log`.
fn add(backend: &dyn Log, namespace: &str, n: u64, parent: Option<u64>, items: Vec<ItemChange>) -> CheckpointRef {
    let (thread, namespace) = (ThreadId::new("t").unwrap(), Namespace::new(namespace).unwrap());
    let mut new = NewCheckpoint::new(id(n), parent.map(|parent| Parent::Local(id(parent))), 0, Source::Loop, moment(n));
    let task = |n: u8| TaskRecord::new(TaskId::from_bytes([n; 16]), "node", TaskKind::Pull { triggers: Vec::new() });
    new.tasks = vec![task(1), task(2)];
    new.changes = vec![Change::new("log", n, ChangeValue::Items(items))];
    let mut batch = Batch::new(thread.clone(), namespace.clone(), parent.map(id));
    batch.checkpoints = vec![new];
    backend.commit(&batch).unwrap();
    CheckpointRef::new(thread, namespace, id(n))
}

fn put(position: u64, task: Option<u32>) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(Data::New(Payload::new(b"item".to_vec()))), task)
}

#[test]
fn an_item_that_came_with_a_reference_is_of_its_own_task_and_a_shared_one_of_that_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteBackend::open(&folder.path().join("x.db"), &OpenOptions::new()).unwrap();
    let backends: [&dyn Log; 2] = [&MemoryBackend::new(), &file];
    for backend in backends {
        let around = add(backend, "", 1, None, vec![put(0, None), put(1, None)]);
        add(backend, "a:1", 2, None, Vec::new());
        let of = ListRef::new(around.namespace.clone(), around.checkpoint, "log");
        let reference = ItemChange::new(0, ItemOp::Reference(of), Some(0));
        let point = add(backend, "a:1", 3, Some(2), vec![reference, put(1, Some(1)), put(2, Some(1))]);
        let mut rows = Vec::new();
        let mut row = |row: annals::store::record::ItemRow<'_>| {
            rows.push((row.position, row.ordinal, row.task));
            Ok(())
        };
        backend.items(&point, "log", ItemRange::All, &mut row).unwrap();
        assert_eq!(rows, [(0, 1, Some(0)), (1, 1, Some(1)), (2, 1, Some(1))]);
        assert_eq!(backend.check().unwrap().problems, []);
    }
}
