//! The law of batches: those of one backend, committed to an empty one, give the same batches.

use super::build::*;
use crate::store::memory::MemoryBackend;

fn batches(backend: &dyn Log, thread: &ThreadId) -> Vec<Batch> {
    seen(|found| backend.batches(thread, &mut |batch| see(found, batch).map(drop)))
}

/// Holds the law for a thread without pruned checkpoints and forks of other threads.
pub(super) fn law(backend: &dyn Log, thread: &ThreadId) {
    let (first, other) = (batches(backend, thread), MemoryBackend::new());
    first.iter().for_each(|batch| other.commit(batch).expect("an empty backend takes the batches"));
    assert_eq!(first, batches(&other, thread));
    let heads = |backend: &dyn Log| {
        let head = |space| backend.head_id(thread, &space).expect("a head is read").map(|id| (space, id));
        backend.namespaces(thread).expect("namespaces are read").into_iter().filter_map(head).collect::<Vec<_>>()
    };
    assert_eq!(heads(backend), heads(&other), "the heads are the same");
}
