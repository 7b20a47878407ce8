//! Threads for the tasks of a superstep: as many as are needed, up to a cap, kept for a while.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::base::limits::POOL_IDLE;
use crate::limits::NODE_THREADS_DEFAULT;
use crate::store::Store;

use super::runtime::CallerRuntime;

type PoolWork = Box<dyn FnOnce() + Send>;

thread_local! {
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs a task: a subgraph in it runs its own tasks on this thread, so that nesting never
/// waits for another one.
pub(in crate::drive) fn in_task() -> bool {
    IN_TASK.get()
}

/// Runs a task on this thread.
pub(in crate::drive) fn run_here<T>(work: impl FnOnce() -> T) -> T {
    let outer = IN_TASK.replace(true);
    let result = work();
    IN_TASK.set(outer);
    result
}

/// Waits on this thread.
pub(super) fn pause(after: Duration) {
    if !after.is_zero() {
        std::thread::sleep(after);
    }
}

/// Does work that calls a store, and returns its result. If the calls may wait for a disk or a lock, a thread of the
/// store does it, in the runtime of this one.
pub(in crate::drive) async fn unblock<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if store.backend().capabilities().reads_block { on_store_thread(store, work).await } else { work() }
}

/// Does work on a thread of a store, in the runtime of this one. A thread that runs a task does it right here.
pub(in crate::drive) async fn on_store_thread<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if in_task() {
        return work();
    }
    let runtime = CallerRuntime::here();
    store.unblock(move |_| runtime.enter(work)).await
}

/// Does the work of a task on a thread of the pool, and returns its result. A thread of the pool does it right here.
pub(in crate::drive) async fn on_node_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if in_task() {
        return work();
    }
    let done = Arc::new(Mutex::new((None, None::<Waker>)));
    let end = Arc::clone(&done);
    Pool::shared().spawn(Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let mut done = end.lock();
        done.0 = Some(result);
        if let Some(waker) = done.1.take() {
            waker.wake();
        }
    }));
    let result = poll_fn(|waiting| {
        let mut done = done.lock();
        match done.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                done.1 = Some(waiting.waker().clone());
                Poll::Pending
            }
        }
    });
    result.await.unwrap_or_else(|panic| resume_unwind(panic))
}

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<PoolWork>,
    threads: usize,
    idle: usize,
    /// True if a thread was called that has not arrived yet.
    called: bool,
}

/// An elastic pool, shared by all runs of the process.
pub(in crate::drive) struct Pool {
    shared: Arc<PoolShared>,
    threads_max: usize,
}

impl Pool {
    /// Returns the pool of the process.
    pub(in crate::drive) fn shared() -> &'static Self {
        static POOL: std::sync::OnceLock<Pool> = std::sync::OnceLock::new();
        POOL.get_or_init(|| Pool { shared: Arc::default(), threads_max: NODE_THREADS_DEFAULT })
    }

    /// Hands work to a thread, which does it in the runtime of this one. If none can be started, the work is done here.
    pub(in crate::drive) fn spawn(&self, work: PoolWork) {
        let runtime = CallerRuntime::here();
        let work: PoolWork = if runtime.is_known() { Box::new(move || runtime.enter(work)) } else { work };
        let mut state = self.shared.state.lock();
        state.queue.push_back(work);
        if !self.shared.call(state, self.threads_max) {
            let mut state = self.shared.state.lock();
            // With other threads at work the queue is served; without any, this caller serves it.
            let alone = if state.threads == 0 { state.queue.pop_back() } else { None };
            drop(state);
            if let Some(work) = alone {
                run_here(work);
            }
        }
    }
}

impl PoolShared {
    /// Calls one thread to the queue, unless one is on its way: it calls the next. To call a thread costs more than a
    /// small task, and a few threads may have emptied the queue before many would be awake. Returns whether there is a
    /// thread that comes.
    fn call(self: &Arc<Self>, mut state: MutexGuard<'_, PoolState>, threads_max: usize) -> bool {
        if state.called || state.queue.is_empty() {
            return true;
        }
        if state.idle > 0 {
            state.called = true;
            drop(state);
            self.work.notify_one();
            return true;
        }
        if state.threads >= threads_max {
            return true;
        }
        state.threads += 1;
        debug_assert!(state.threads <= threads_max, "a pool has at most {threads_max} threads");
        state.called = true;
        drop(state);
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("annals-node".into());
        let started = thread.spawn(move || work_off(&shared, threads_max)).is_ok();
        if !started {
            let mut state = self.state.lock();
            state.threads -= 1;
            state.called = false;
        }
        started
    }
}

fn work_off(shared: &Arc<PoolShared>, threads_max: usize) {
    let mut state = shared.state.lock();
    state.called = false;
    loop {
        if let Some(work) = state.queue.pop_front() {
            // If no thread can be started, this one comes back to the rest.
            _ = shared.call(state, threads_max);
            run_here(work);
            state = shared.state.lock();
            continue;
        }
        state.idle += 1;
        let timed_out = shared.work.wait_for(&mut state, POOL_IDLE).timed_out();
        state.idle -= 1;
        state.called = false;
        if timed_out && state.queue.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn work_runs_at_the_same_time_and_threads_are_reused() {
        let pool = Pool { shared: Arc::default(), threads_max: 4 };
        for _ in 0..3 {
            let (sender, receiver) = channel();
            let barrier = Arc::new(std::sync::Barrier::new(4));
            for i in 0..4 {
                let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
                pool.spawn(Box::new(move || {
                    // Passes only if all four run at once.
                    barrier.wait();
                    assert!(in_task());
                    _ = sender.send(i);
                }));
            }
            let mut done: Vec<i32> = receiver.iter().take(4).collect();
            done.sort_unstable();
            assert_eq!(done, [0, 1, 2, 3]);
        }
        assert!(pool.shared.state.lock().threads <= 4);
        assert!(!in_task());
    }
}
