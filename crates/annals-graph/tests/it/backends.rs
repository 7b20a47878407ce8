//! The backends of the tests: a test under `#[apply(each_backend)]` is compiled once and run on each of them.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use annals::store::{MemoryBackend, OpenOptions};
use annals_graph::prelude::*;

/// Makes the tests `NAME::memory` and `NAME::file` of a function without arguments, which runs once on each backend:
/// `#[apply(each_backend)]` in the place of `#[test]`.
macro_rules! each_backend {
    ($(#[$attribute:meta])* fn $name:ident() $body:block) => {
        $(#[$attribute])*
        fn $name() $body

        mod $name {
            #[test]
            fn memory() {
                $crate::backends::run_on($crate::backends::Place::Memory, super::$name);
            }

            #[test]
            fn file() {
                $crate::backends::run_on($crate::backends::Place::File, super::$name);
            }
        }
    };
}

/// A backend that tests run on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    File,
}

thread_local! {
    /// The backend of the test that runs on this thread; tests of `#[test]` alone have none.
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
    /// The number of stores that the test has opened.
    static OPENED: Cell<u32> = const { Cell::new(0) };
    /// The folder of the test that runs on this thread, removed at the end of the test.
    static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

/// Runs a test on a backend. A test that opens no store would run twice for nothing, so it is refused.
pub(crate) fn run_on(place: Place, test: fn()) {
    PLACE.set(Some(place));
    OPENED.set(0);
    test();
    assert!(OPENED.get() > 0, "the test opens no store of its backend: mark it with #[test]");
}

/// Returns true if the test runs on a file.
pub(crate) fn in_a_file() -> bool {
    PLACE.get().expect("the backend of a test: mark it with #[apply(each_backend)]") == Place::File
}

/// A new store on the backend of the test.
pub(crate) fn place() -> Store {
    place_with(OpenOptions::new())
}

/// A new thread of such a store.
pub(crate) fn new_thread() -> Thread {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    place().thread(NEXT.fetch_add(1, Ordering::Relaxed).to_string()).unwrap()
}

/// Longer than any wait of a test that passes.
pub(crate) const GUARD: Duration = Duration::from_secs(300);

/// A store with options. A test has one file: opened again, the store holds the data of the first time. Its handles
/// wait for each other as long as it takes on a busy machine.
pub(crate) fn place_with(options: OpenOptions) -> Store {
    OPENED.set(OPENED.get() + 1);
    let options = options.busy_timeout_ms(GUARD.as_millis() as u64);
    if in_a_file() {
        FOLDER.with(|folder| {
            let folder = folder.get_or_init(|| tempfile::tempdir().unwrap());
            Store::open_with(folder.path().join("store.db"), options).unwrap()
        })
    } else {
        Store::with_backend(Arc::new(MemoryBackend::new()), options)
    }
}

/// Asserts that the cached state of a thread equals the state read from its store.
pub(crate) fn same_after_reload<S: Clone + Send + Sync + PartialEq + std::fmt::Debug + 'static>(
    graph: &CompiledGraph<S>,
    thread: &Thread,
) {
    let cached = graph.get_state(thread).unwrap();
    thread.store().clear_head_cache();
    let loaded = graph.get_state(thread).unwrap();
    assert_eq!((&cached.values, &cached.next, &cached.tasks), (&loaded.values, &loaded.next, &loaded.tasks));
    assert!(thread.store().check().unwrap().problems.is_empty());
}
