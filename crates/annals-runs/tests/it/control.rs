//! Orders from outside to runs: read for many runs at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::base::ThreadId;
use annals::store::log::{Layer, Log};
use annals::store::{MemoryBackend, OpenOptions};
use annals_runs::ControlOrder;
use annals_runs::prelude::*;

/// Counts the calls that read heads and threads.
#[derive(Debug)]
struct CountedReads(MemoryBackend, AtomicU64);

impl Layer for CountedReads {
    fn below(&self) -> &dyn Log {
        &self.0
    }

    fn before(&self, call: &'static str) {
        self.1.fetch_add(u64::from(["heads", "thread_rows"].contains(&call)), Ordering::Relaxed);
    }
}

#[test]
fn the_orders_to_all_runs_of_a_store_take_two_reads() {
    let counted = Arc::new(CountedReads(MemoryBackend::new(), AtomicU64::new(0)));
    let store = Store::with_backend(Arc::clone(&counted) as Arc<dyn Log>, OpenOptions::new());
    let names = ["free", "cancelled", "paused", "cancelled before", "missing"];
    for name in &names[..4] {
        store.queue("flow").enqueue(*name, 1).unwrap();
    }
    assert!(store.thread("cancelled").unwrap().cancel("too late").unwrap());
    store.thread("paused").unwrap().pause().unwrap();
    assert!(store.thread("cancelled before").unwrap().cancel("an earlier run").unwrap());
    let before = store.thread("cancelled before").unwrap().head().unwrap().map(|head| head.point().checkpoint);
    let threads = names.map(|name| ThreadId::new(name).unwrap());
    let runs: Vec<_> = threads.iter().map(|thread| (thread, before)).collect();

    let reads = counted.1.load(Ordering::Relaxed);
    let orders = store.control_orders(&runs).unwrap();
    assert_eq!(counted.1.load(Ordering::Relaxed), reads + 2);
    let cancel = ControlOrder::Cancel("too late".into());
    assert_eq!(orders, [None, Some(cancel), Some(ControlOrder::Pause), None, None]);
}
