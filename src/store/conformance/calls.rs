//! Bounds of the calls that a store makes of its log: on a network each is a round trip.
//!
//! The bounds hold for any number of channels, and however long the history is.

use super::build::*;
use crate::store::handle::Store;
use crate::store::options::OpenOptions;

/// A layer that notes the calls that reach its log.
#[derive(Debug)]
struct CountedCalls {
    below: Arc<dyn Log>,
    calls: Mutex<Vec<&'static str>>,
}

impl CountedCalls {
    /// Takes the calls since the last time.
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock())
    }
}

impl Layer for CountedCalls {
    fn below(&self) -> &dyn Log {
        &*self.below
    }

    fn before(&self, call: &'static str) {
        // Capabilities are known without a call.
        self.calls.lock().extend((call != "capabilities").then_some(call));
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { queues: Some(self), ..self.below.capabilities() }
    }
}

impl Queues for CountedCalls {
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        self.calls.lock().push("claim");
        self.below.claim(query)
    }
}

/// Bounds the calls that a store makes of an empty backend: appends, pages of the history, whole states, and claims.
///
/// # Panics
/// If a store makes other calls than the bounds allow.
pub fn run_calls(make: &dyn Fn() -> Arc<dyn Log>) {
    let counted = Arc::new(CountedCalls { below: make(), calls: Mutex::default() });
    let open = || Store::with_backend(Arc::clone(&counted) as Arc<dyn Log>, OpenOptions::new());
    let store = open();
    let thread = store.thread("t").expect("an id");
    for channels in [1, 2, 8] {
        let append = |store: &Store| {
            let thread = store.thread("t").expect("an id");
            let names = (0..channels).map(|n| format!("list {n}"));
            let write = names.fold(thread.write(), |write, name| write.append(&name, [Value::from("hi")]));
            write.commit().expect("it is written");
            counted.take()
        };
        append(&store);
        assert_eq!(append(&store), ["heads", "commit"], "a warm append of {channels} channels");
        assert_eq!(append(&open()), ["heads", "read", "commit"], "a cold append of {channels} channels");
    }
    let (mut last, mut history) = (None, thread.history().expect("a history"));
    for _ in 0..5 {
        last = history.next();
    }
    let snapshot = last.expect("five checkpoints").expect("it is read");
    assert_eq!(counted.take(), ["records"], "a page of the history");
    snapshot.values().expect("a state");
    assert_eq!(counted.take(), ["read"], "the state at one of them");
    let (now, until) = (Timestamp::from_micros(1), Timestamp::from_micros(9_000_000));
    let claim = NewLease::claim(LeaseOwner::new([7; 16]), now, until);
    store.commit(&Batch::of_lease(thread.id().clone(), claim)).expect("it is claimed");
    assert_eq!(counted.take(), ["commit"], "a claim of a thread");
    let owners = (0..9).map(|n| LeaseOwner::new([n; 16]));
    let query = ClaimQuery::new(owners, now, until).queue("work", []).queue("more", []);
    assert_eq!(store.backend().claim(&query).expect("nothing is queued").runs, []);
    assert_eq!(counted.take(), ["claim"], "a claim of runs of two queues");
    assert_eq!(store.threads_with(ThreadQuery::new()).expect("a listing").len(), 1);
    assert_eq!(counted.take(), ["thread_rows"], "a listing of threads");
}
