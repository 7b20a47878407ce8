//! Blocking calls of asynchronous programs: closures on threads of a store, awaited as futures.
//!
//! A store starts a thread when a closure finds none idle, up to [`UNBLOCK_THREADS_MAX`], and a thread without work
//! ends after [`POOL_IDLE`]. Invariants: a closure that has begun runs to its end, also if its future is dropped; one
//! that has not begun is dropped with its future. *Absent:* an asynchronous runtime, and a limit of the queue, which
//! holds one closure for each future.

use crate::base::debug_fields;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::base::limits::POOL_IDLE;
use crate::limits::UNBLOCK_THREADS_MAX;

use super::handle::Store;

thread_local! {
    /// True on the threads of all stores: one that waited for another could wait for itself.
    static IS_UNBLOCKING: Cell<bool> = const { Cell::new(false) };
}

impl Store {
    /// Runs a closure with this store on a thread that may block, and returns its result as a future, for any executor.
    /// A call of a store waits for the disk and for the write lock of the file; awaited in this way, it does not hold
    /// up the other tasks of the executor.
    ///
    /// The closure is queued when the future is first polled. If the future is dropped before the closure has begun,
    /// the closure does not run; one that has begun runs to its end, so what it has committed stays committed. A panic
    /// of the closure continues in the task that awaits it. A store has 256 threads for closures, which all its handles
    /// share; a closure on one of them that awaits another runs that in place.
    ///
    /// # Example: a handler of a Tokio service
    /// ```
    /// use annals::prelude::*;
    ///
    /// /// Stores the message of a user, without `spawn_blocking`, and returns the number of users.
    /// async fn say(store: &Store, user: &str, text: String) -> Result<usize> {
    ///     let thread = store.thread(user)?;
    ///     thread.unblock(move |thread| thread.append("messages", [Message::human(text)])).await?;
    ///     Ok(store.unblock(|store| store.threads()).await?.len())
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("chats.db");
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    /// let store = Store::open(path)?;
    /// runtime.block_on(async {
    ///     assert_eq!(say(&store, "ada", "hello".to_owned()).await?, 1);
    ///     assert_eq!(say(&store, "ben", "good morning".to_owned()).await?, 2);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[doc(alias("spawn_blocking", "async", "tokio"))]
    pub fn unblock<T, F>(&self, call: F) -> impl Future<Output = T> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> T + Send + 'static,
    {
        let store = self.clone();
        async move {
            if IS_UNBLOCKING.get() {
                return call(&store);
            }
            let threads = Arc::clone(store.blocking_threads());
            threads.run(Box::new(move || call(&store))).await
        }
    }
}

/// Awaits the result of a closure in the queue. Dropped before, it gives up the closure.
struct BlockingResult<T>(Arc<BlockingCall<T>>);

impl<T> Future for BlockingResult<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, waiting: &mut Context<'_>) -> Poll<T> {
        self.0.poll(waiting.waker())
    }
}

impl<T> Drop for BlockingResult<T> {
    fn drop(&mut self) {
        // Dropped outside the lock: it may hold the last handle of a store.
        drop(self.0.abandon());
    }
}

/// A closure in the queue, and its result.
struct BlockingCall<T> {
    state: Mutex<(BlockingState<T>, Option<Waker>)>,
}

enum BlockingState<T> {
    Queued(Box<dyn FnOnce() -> T + Send>),
    Running,
    Done(std::thread::Result<T>),
    /// Its result was taken, or its future was dropped.
    Over,
}

impl<T> BlockingCall<T> {
    fn poll(&self, waker: &Waker) -> Poll<T> {
        let mut state = self.state.lock();
        if !matches!(state.0, BlockingState::Done(_)) {
            state.1 = Some(waker.clone());
            return Poll::Pending;
        }
        let BlockingState::Done(result) = std::mem::replace(&mut state.0, BlockingState::Over) else {
            unreachable!("the state of a locked call does not change");
        };
        drop(state);
        Poll::Ready(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Gives up the call, and returns what it holds. A closure that runs goes on.
    fn abandon(&self) -> BlockingState<T> {
        let mut state = self.state.lock();
        state.1 = None;
        std::mem::replace(&mut state.0, BlockingState::Over)
    }
}

/// A call without the type of its result.
trait QueuedCall: Send + Sync {
    /// Runs the closure, unless its future was dropped, and wakes the task that awaits it.
    fn run(&self);
}

impl<T: Send> QueuedCall for BlockingCall<T> {
    fn run(&self) {
        let mut state = self.state.lock();
        if matches!(state.0, BlockingState::Over) {
            return;
        }
        let BlockingState::Queued(work) = std::mem::replace(&mut state.0, BlockingState::Running) else {
            unreachable!("a call is queued once");
        };
        drop(state);
        let result = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.state.lock();
        if matches!(state.0, BlockingState::Over) {
            drop(state);
            // The result of an abandoned call is dropped outside the lock as well.
            return drop(result);
        }
        state.0 = BlockingState::Done(result);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The threads of a store that run blocking calls.
#[derive(Default)]
pub(super) struct BlockingThreads {
    state: Mutex<ThreadsState>,
    work: Condvar,
}

#[derive(Default)]
struct ThreadsState {
    queue: VecDeque<Arc<dyn QueuedCall>>,
    threads: usize,
    idle: usize,
}

impl BlockingThreads {
    /// Queues a closure and returns the future of its result.
    fn run<T: Send + 'static>(self: &Arc<Self>, work: Box<dyn FnOnce() -> T + Send>) -> BlockingResult<T> {
        let call = Arc::new(BlockingCall { state: Mutex::new((BlockingState::Queued(work), None)) });
        self.queue(Arc::clone(&call) as Arc<dyn QueuedCall>);
        BlockingResult(call)
    }

    /// Queues a call for an idle thread, or for a new one. The caller's thread runs it if there is no thread and the
    /// system refuses to start one.
    fn queue(self: &Arc<Self>, call: Arc<dyn QueuedCall>) {
        let mut state = self.state.lock();
        state.queue.push_back(call);
        if state.queue.len() <= state.idle {
            drop(state);
            self.work.notify_one();
            return;
        }
        if state.threads == UNBLOCK_THREADS_MAX {
            return;
        }
        state.threads += 1;
        debug_assert!(state.threads <= UNBLOCK_THREADS_MAX, "a store has at most {UNBLOCK_THREADS_MAX} threads");
        drop(state);
        let threads = Arc::clone(self);
        let thread = std::thread::Builder::new().name("annals-unblock".into());
        if thread.spawn(move || threads.work_off()).is_err() {
            let mut state = self.state.lock();
            state.threads -= 1;
            let alone = if state.threads == 0 { state.queue.pop_back() } else { None };
            drop(state);
            alone.iter().for_each(|call| call.run());
        }
    }

    /// Runs calls on this thread until none has come for [`POOL_IDLE`].
    fn work_off(&self) {
        IS_UNBLOCKING.set(true);
        let mut state = self.state.lock();
        loop {
            if let Some(call) = state.queue.pop_front() {
                drop(state);
                call.run();
                drop(call);
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, POOL_IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

debug_fields!(BlockingThreads {});

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Polls a future once, so that its call is queued.
    fn queued<T>(call: impl Future<Output = T>) -> Pin<Box<impl Future<Output = T>>> {
        let mut call = Box::pin(call);
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        call
    }

    #[test]
    fn a_result_and_a_panic_reach_the_task_that_awaits_them() {
        let store = Store::memory();
        assert_eq!(wait(store.unblock(|store| store.threads().unwrap().len())), 0);
        let panicking = AssertUnwindSafe(|| wait(store.unblock(|_| panic!("the call panics"))));
        let panic = catch_unwind(panicking).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"the call panics"));
        assert_eq!(wait(store.unblock(|_| 1)), 1, "the thread of the panic serves others");
    }

    #[test]
    fn a_call_that_awaits_another_runs_it_in_place() {
        let here = |_: &Store| std::thread::current().id();
        let (outer, inner) = wait(Store::memory().unblock(move |store| (here(store), wait(store.unblock(here)))));
        assert_eq!(outer, inner);
        assert_ne!(outer, std::thread::current().id());
    }

    #[test]
    fn a_dropped_future_ends_a_call_that_waits_and_none_that_runs() {
        let store = Store::memory();
        let ((begun, begins), (ended, ends)) = (channel(), channel());
        let mut releases = Vec::new();
        let running: Vec<_> = (0..UNBLOCK_THREADS_MAX)
            .map(|_| {
                let ((release, released), begun, ended) = (channel::<()>(), begun.clone(), ended.clone());
                releases.push(release);
                queued(store.unblock(move |_| {
                    begun.send(()).unwrap();
                    assert!(released.recv().is_err());
                    ended.send(()).unwrap();
                }))
            })
            .collect();
        begins.iter().take(UNBLOCK_THREADS_MAX).for_each(drop);
        let ran = Arc::new(Mutex::new(Vec::new()));
        let [first, second] = ["first", "second"].map(|name| {
            let ran = Arc::clone(&ran);
            queued(store.unblock(move |_| ran.lock().push(name)))
        });
        drop((running, first, releases));
        assert_eq!(ends.iter().take(UNBLOCK_THREADS_MAX).count(), UNBLOCK_THREADS_MAX);
        wait(second);
        assert_eq!(*ran.lock(), ["second"]);
    }

    #[test]
    fn the_store_of_an_ended_call_is_released() {
        let store = Store::memory();
        let backend = Arc::downgrade(store.backend());
        wait(store.unblock(|_| ()));
        drop(store);
        assert!(backend.upgrade().is_none());
    }
}
