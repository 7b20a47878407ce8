//! The outcome of a submitted batch, and the progress of a deletion.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::limits::SPIN_BEFORE_PARK;
use crate::store::batch::CommitChain;
use crate::store::error::StoreError;
use crate::store::spin::spin_until;

/// The progress of erasing deleted threads. A deleted thread is hidden at once; its bytes go in steps.
#[must_use = "bytes of deleted threads may still be in the file or in its write-ahead log"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Erasure {
    /// No row of a deleted thread is in the file or in its write-ahead log, and its bytes are overwritten. SQLite may
    /// leave a copy of a row in the gap of a page that it rearranged earlier.
    Erased,
    /// Bytes of deleted threads are still stored: there are many rows, or a reader holds the write-ahead log. A handle
    /// that is open for writing continues in the background, and after an open;
    /// [`Store::reclaim`](crate::store::Store::reclaim) continues at once.
    ErasePending {
        /// The number of deleted threads with bytes.
        threads: u64,
    },
}

impl Erasure {
    /// Returns whether no byte of a deleted thread is left.
    pub fn is_erased(self) -> bool {
        self == Self::Erased
    }
}

/// The outcome of a submitted batch, once it is known: wait for it, or await it.
#[derive(Clone, Debug)]
pub struct CommitHandle(
    /// `None` if the batch was durable when the handle was made.
    Option<Arc<CommitState>>,
);

#[derive(Debug, Default)]
struct CommitState {
    progress: parking_lot::Mutex<CommitProgress>,
    done: parking_lot::Condvar,
    settled: AtomicBool,
    awaited: AtomicBool,
    /// True if callers park at once, without spinning first.
    parks: bool,
    wakers: parking_lot::Mutex<Vec<Waker>>,
}

#[derive(Debug, Default)]
struct CommitProgress {
    outcome: Option<Result<(), StoreError>>,
    /// The chain of a commit that waits for a lock, until a caller that waits has reported it.
    waits_for_lock: Option<CommitChain>,
}

impl CommitHandle {
    /// Makes an open handle and the end that settles it.
    pub fn open() -> (Self, CommitSettler) {
        Self::of(CommitState::default())
    }

    /// Makes an open handle of a backend on a server: callers park at once. Those of [`CommitHandle::open`] spin first,
    /// for less time than a round trip takes.
    pub fn open_remote() -> (Self, CommitSettler) {
        Self::of(CommitState { parks: true, ..CommitState::default() })
    }

    fn of(state: CommitState) -> (Self, CommitSettler) {
        let state = Arc::new(state);
        (Self(Some(Arc::clone(&state))), CommitSettler(Some(state)))
    }

    /// Makes a handle that is already settled.
    pub fn settled(outcome: Result<(), StoreError>) -> Self {
        if outcome.is_ok() {
            return Self(None);
        }
        let (handle, settle) = Self::open();
        settle.settle(outcome);
        handle
    }

    /// Returns whether the batch has been written or refused.
    pub fn is_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.is_settled())
    }

    /// Waits until the batch is durable or refused. The outcome is given once; later calls return `Ok`.
    ///
    /// # Errors
    /// As [`Log::submit`](super::Log::submit).
    pub fn wait(&self) -> Result<(), StoreError> {
        let Some(state) = &self.0 else { return Ok(()) };
        state.wait();
        state.progress.lock().outcome.take().unwrap_or(Ok(()))
    }

    /// Waits until the batch is durable or refused, and leaves the outcome to [`CommitHandle::wait`]. A backend that
    /// wraps another one uses it to keep batches in order.
    pub fn wait_until_settled(&self) {
        if let Some(state) = &self.0 {
            state.wait();
        }
    }
}

/// Awaits the outcome of [`CommitHandle::wait`].
impl Future for CommitHandle {
    type Output = Result<(), StoreError>;

    fn poll(self: Pin<&mut Self>, waiting: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(state) = &self.0 else { return Poll::Ready(Ok(())) };
        state.awaited.store(true, Ordering::Release);
        let mut progress = state.progress.lock();
        if state.is_settled() {
            return Poll::Ready(progress.outcome.take().unwrap_or(Ok(())));
        }
        let mut wakers = state.wakers.lock();
        wakers.retain(|waker| !waker.will_wake(waiting.waker()));
        wakers.push(waiting.waker().clone());
        drop(wakers);
        let waits = progress.waits_for_lock.take();
        drop(progress);
        waits.iter().for_each(CommitChain::report_lock_wait);
        Poll::Pending
    }
}

/// The end of a [`CommitHandle`] that a backend holds. Dropping it unsettled reports an unknown outcome.
#[derive(Debug)]
pub struct CommitSettler(Option<Arc<CommitState>>);

impl CommitSettler {
    /// Returns whether a caller waits for the outcome: a backend may delay a batch without one.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.awaited.load(Ordering::Acquire))
    }

    /// Lets a caller that waits report a lock wait to the chain of the batch
    /// ([`CommitChain::report_lock_wait`]).
    pub fn note_lock_wait(&self, chain: CommitChain) {
        if let Some(state) = &self.0 {
            state.progress.lock().waits_for_lock = Some(chain);
            state.done.notify_all();
            state.wakers.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Settles the handle and wakes the callers that wait.
    pub fn settle(mut self, outcome: Result<(), StoreError>) {
        if let Some(state) = self.0.take() {
            state.set(outcome);
        }
    }
}

impl CommitState {
    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    fn wait(&self) {
        self.awaited.store(true, Ordering::Release);
        if !self.parks {
            spin_until(SPIN_BEFORE_PARK, || self.is_settled());
        }
        let mut progress = self.progress.lock();
        while !self.is_settled() {
            match progress.waits_for_lock.take() {
                Some(chain) => parking_lot::MutexGuard::unlocked(&mut progress, || chain.report_lock_wait()),
                None => self.done.wait(&mut progress),
            }
        }
    }

    fn set(&self, outcome: Result<(), StoreError>) {
        let mut progress = self.progress.lock();
        debug_assert!(progress.outcome.is_none(), "a commit has one outcome");
        progress.outcome = Some(outcome);
        // Stored under the lock, or a caller between its check and its park would miss the wake-up.
        self.settled.store(true, Ordering::Release);
        self.done.notify_all();
        drop(progress);
        self.wakers.lock().drain(..).for_each(Waker::wake);
    }
}

impl Drop for CommitSettler {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.set(Err(StoreError::OutcomeUnknown { reason: "the writer ended".into() }));
        }
    }
}
