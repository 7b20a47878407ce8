//! Where graphs are tested: on a store in memory and on a file. A module with graphs is compiled once for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use annals::store::{MemoryBackend, OpenOptions};
use annals_graph::prelude::*;

thread_local! {
    /// The folder of the test that runs on this thread; it goes when the test ends.
    static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// A new store: a file if the module is the one for files.
pub(crate) fn place(module: &str) -> Store {
    place_with(module, OpenOptions::new())
}

/// A new thread of such a store.
pub(crate) fn new_thread(module: &str) -> Thread {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    place(module).thread(NEXT.fetch_add(1, Ordering::Relaxed).to_string()).unwrap()
}

/// A store with options. A file is that of the test: opened again, it is the same.
pub(crate) fn place_with(module: &str, options: OpenOptions) -> Store {
    if module.ends_with("in_a_file") {
        FOLDER.with(|folder| Store::open_with(folder.path().join("store.db"), options).unwrap())
    } else {
        Store::with_backend(Arc::new(MemoryBackend::new()), options)
    }
}

/// What is kept in memory of a thread is what its store holds.
pub(crate) fn same_after_reload<S: Clone + Send + Sync + PartialEq + std::fmt::Debug + 'static>(
    graph: &CompiledGraph<S>,
    thread: &Thread,
) {
    let kept = graph.get_state(thread).unwrap();
    thread.store().clear_head_cache();
    let loaded = graph.get_state(thread).unwrap();
    assert_eq!((&kept.values, &kept.next, &kept.tasks), (&loaded.values, &loaded.next, &loaded.tasks));
    assert!(thread.store().check().unwrap().problems.is_empty());
}
