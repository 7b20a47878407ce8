//! The threads of the trash that are due.

use super::*;
use crate::base::{CheckpointId, IdSource, Namespace, Timestamp};
use crate::store::batch::{Batch, NewCheckpoint, Parent};
use crate::store::log::Log;
use crate::store::memory::MemoryBackend;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue, TRASHED};
use crate::store::record::{CheckpointRef, Source};

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn id(n: u64) -> CheckpointId {
    IdSource::from_seed(n).checkpoint(at(n.cast_signed()), 0, None)
}

fn thread(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

/// Makes a namespace of a thread with one checkpoint: a fork of the first one of another thread, or from nothing.
fn add(backend: &MemoryBackend, name: &str, namespace: Namespace, of: Option<&str>) {
    let from = of.map(|of| Parent::Fork(CheckpointRef::new(thread(of), Namespace::root(), id(1))));
    let mut batch = Batch::new(thread(name), namespace, None);
    batch.checkpoints = vec![NewCheckpoint::new(id(1), from, 0, Source::Fork, at(1))];
    backend.commit(&batch).unwrap();
}

fn trash(backend: &MemoryBackend, name: &str, until: i64) {
    let (field, until) = (OperationField::Fact(TRASHED.into()), at(until).as_micros().to_string());
    let mut operation = NewOperation::new(OperationKind::Facts, at(2));
    let until = Some(OperationValue::Text(until));
    operation.changes = vec![OperationChange::new(thread(name), Namespace::root(), field, None, until)];
    backend.operate(&operation).unwrap();
}

#[test]
fn a_thread_is_due_at_its_time_unless_a_fork_of_it_stays() {
    let backend = MemoryBackend::new();
    for (name, of) in [("alone", None), ("held", None), ("together", None), ("own", None), ("stays", Some("held"))] {
        add(&backend, name, Namespace::root(), of);
    }
    add(&backend, "fork", Namespace::root(), Some("together"));
    add(&backend, "own", Namespace::new("inside:1").unwrap(), Some("own"));
    for (name, until) in [("alone", 10), ("held", 10), ("together", 10), ("own", 10), ("fork", 11), ("stays", 12)] {
        trash(&backend, name, until);
    }
    let due = |second: i64| {
        let before = backend.now();
        let mut after = MemoryLog::clone(&before);
        _ = erase(&mut after, &Erase::Trash(at(second))).unwrap();
        let due = before.threads.iter().map(|(id, _)| id).filter(|id| after.threads.get(*id).is_none());
        due.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(due(9), "");
    assert_eq!(due(10), "alone own");
    assert_eq!(due(11), "alone fork own together");
    assert_eq!(due(12), "alone fork held own stays together");
}
