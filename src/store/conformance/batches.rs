//! The law of batches: those of one backend, committed to an empty one, give the same batches.

use super::build::*;
use crate::store::memory::MemoryBackend;

fn batches(backend: &dyn Log, thread: &ThreadId) -> Vec<Batch> {
    let mut found = Vec::new();
    let read = backend.batches(thread, &mut |batch| {
        found.push(batch);
        Ok(())
    });
    read.expect("a thread is read as batches");
    found
}

/// Holds the law for a thread without pruned checkpoints and forks of other threads.
pub(super) fn law(backend: &dyn Log, thread: &ThreadId) {
    let (first, other) = (batches(backend, thread), MemoryBackend::new());
    first.iter().for_each(|batch| other.commit(batch).expect("an empty backend takes the batches"));
    let again = batches(&other, thread);
    for (n, (first, again)) in first.iter().zip(&again).enumerate() {
        assert_eq!(first, again, "batch {n}");
    }
    assert_eq!(first.len(), again.len());
    let heads = |backend: &dyn Log| {
        let spaces: Vec<Namespace> = backend.namespaces(thread).expect("namespaces are read");
        let head = |space| backend.head_id(thread, &space).expect("a head is read").map(|id| (space, id));
        spaces.into_iter().filter_map(head).collect::<Vec<_>>()
    };
    assert_eq!(heads(backend), heads(&other), "the heads are the same");
}

pub(super) fn of_a_thread(backend: &dyn Log) {
    let place = root_of(backend, "t");
    let inner = place.inside("node:1");
    let first = begin(1).value("x", 1, "a").items("list", 1, vec![put(0, "one"), put(3, "two")]);
    place.add(first.tasks(&["node"]));
    let second = on(2, 1).consumed(writes(1, 1, vec![write(0, "list", "three")])).seen("node", &[("x", 1)]);
    place.add(second.items("list", 2, vec![remove(0), put_of(4, task(1), 0, 0)]).tasks(&["node"]));
    inner.add(begin(5).value("y", 1, "inner"));
    inner.add(on(6, 5).items("list", 1, vec![put(0, "kept")]));
    place.add(on(7, 1).value("x", 2, "a branch").tasks(&["node"]));
    place.write(7, 2, vec![write(0, "x", "pending")]);
    law(backend, &place.thread);
}
