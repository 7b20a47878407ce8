//! Two processes with one key: one stores its run and ends it just after the other has looked for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals::store::Source;
use annals::store::log::Log;
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;

use super::disk::Disk;

/// The stores of two processes on one disk, and a workflow that counts its runs.
fn place() -> (Arc<Disk>, [Store; 2], CompiledGraph<Entry<i64, i64>>, Arc<AtomicUsize>) {
    let disk = Disk::new(None, Vec::new());
    let stores =
        [1, 2].map(|seed| Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, OpenOptions::new().id_seed(seed)));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let main = move |n: i64, _: &Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(n + 1)
    };
    (disk, stores, Entrypoint::new("main", main).compile().unwrap(), runs)
}

/// Returns the number of inputs that a thread has taken.
fn inputs(thread: &Thread) -> usize {
    thread.history().unwrap().filter(|snapshot| snapshot.as_ref().unwrap().source() == Source::Input).count()
}

#[test]
fn a_run_that_ends_after_a_look_for_it_is_not_run_again() {
    for (before, lease) in [(0, false), (1, false), (0, true), (1, true)] {
        let (disk, [here, there], flow, runs) = place();
        let run = move |flow: &CompiledGraph<Entry<i64, i64>>, thread: &Thread| {
            let run = flow.run(thread).idempotency_key("order-17");
            let run = if lease { run.lease(Duration::from_secs(30)) } else { run };
            run.invoke(16).map(|outcome| outcome.value().copied())
        };
        let (thread, other) = (here.thread("t").unwrap(), there.thread("t").unwrap());
        let their_flow = flow.clone();
        // The claim of a lease is committed with the input.
        disk.after_look(before, move || assert_eq!(run(&their_flow, &other).unwrap(), Some(17)));
        match run(&flow, &thread) {
            Ok(value) => assert_eq!((value, before), (Some(17), 0)),
            Err(error) => assert!(error.is_conflict() && before == 1, "{error}"),
        }
        assert_eq!((runs.load(Ordering::SeqCst), inputs(&thread)), (1, 1), "{before} {lease}");
        assert_eq!(run(&flow, &thread).unwrap(), Some(17));
        assert_eq!((runs.load(Ordering::SeqCst), inputs(&thread)), (1, 1), "{before} {lease}");
        assert!(thread.last_lease().unwrap().is_none_or(|lease| lease.expires_at.is_none()), "the thread is free");
    }
}

#[test]
fn an_enqueued_run_that_ends_after_a_look_for_it_is_not_enqueued_again() {
    for before in [0, 1] {
        let (disk, [here, there], flow, runs) = place();
        let their_flow = flow.clone();
        disk.after_look(before, move || {
            assert!(there.queue("main").dedup("order-17").enqueue("t", 16).unwrap().is_new);
            assert!(their_flow.invoke(&there.thread("t").unwrap(), Input::Continue).unwrap().is_done());
        });
        let queued = here.queue("main").dedup("order-17").enqueue("t", 16).unwrap();
        assert!(!queued.is_new);
        assert_eq!((runs.load(Ordering::SeqCst), inputs(&queued.thread)), (1, 1), "{before}");
    }
}
