//! The threads of a worker that have a run, or claim one.
//!
//! A thread whose run has ended claims the next one; the claims of several threads are written in one transaction, as
//! their commits are. *Absent:* reading the store, and the order and the limits of a claim, which are the store's.
//!
//! Invariant: no more runs are claimed than threads are free.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::limits::CLAIM_RUNS_MAX;
use crate::base::{ThreadId, Timestamp};
use crate::error::Error;
use crate::store::StoreError;
use crate::store::log::{ClaimedRun, Claims};

use super::lease::HeldLease;

/// A claimed run, with its lease, which is released if the run is dropped.
pub(super) struct WorkerRun {
    pub(super) claimed: ClaimedRun,
    pub(super) lease: HeldLease,
}

/// The claims of a worker.
pub(super) struct WorkerClaims {
    /// The number of threads that may have a run.
    threads: usize,
    state: Mutex<ClaimState>,
}

#[derive(Default)]
struct ClaimState {
    /// The threads that have a run, or claim one.
    busy: usize,
    /// True if another claim may find runs.
    has_more: bool,
    /// True if no further run begins.
    is_closed: bool,
    is_refused: bool,
    next_at: Option<Timestamp>,
    /// The number of failures of a thread that left its run as it was, and the error of the last one.
    failures: HashMap<ThreadId, (u64, String)>,
    error: Option<Error>,
}

/// The progress of a worker.
pub(super) struct ClaimProgress {
    /// The number of threads that have a run, or claim one.
    pub(super) busy: usize,
    /// True if another claim may find runs.
    pub(super) has_more: bool,
    /// True if runs are due that a limit refuses.
    pub(super) is_refused: bool,
    /// The first timestamp at which another run may be due.
    pub(super) next_at: Option<Timestamp>,
}

impl WorkerClaims {
    /// Begins with so many threads that are free.
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, state: Mutex::default() }
    }

    /// Claims runs for the threads that are free, if there may be any. They are busy from here on.
    pub(super) fn take(
        &self,
        claim: impl FnOnce(usize) -> Result<(Claims, Vec<WorkerRun>), StoreError>,
    ) -> Vec<WorkerRun> {
        let mut state = self.state.lock();
        let free = self.threads.saturating_sub(state.busy).min(CLAIM_RUNS_MAX);
        if free == 0 || !state.has_more {
            return Vec::new();
        }
        state.busy += free;
        drop(state);
        self.claim(free, claim)
    }

    /// Claims a run for a thread whose run has ended. The thread is free if there is none.
    pub(super) fn take_next(
        &self,
        claim: impl FnOnce(usize) -> Result<(Claims, Vec<WorkerRun>), StoreError>,
    ) -> Option<WorkerRun> {
        self.claim(1, claim).pop()
    }

    /// Claims runs for threads that are busy already.
    fn claim(
        &self,
        threads: usize,
        claim: impl FnOnce(usize) -> Result<(Claims, Vec<WorkerRun>), StoreError>,
    ) -> Vec<WorkerRun> {
        // News that come meanwhile are not lost.
        self.state.lock().has_more = false;
        let found = if self.state.lock().is_closed { Ok(Default::default()) } else { claim(threads) };
        let mut state = self.state.lock();
        let mut runs = match found {
            Ok((claims, runs)) => {
                debug_assert!(runs.len() <= threads, "no more runs are claimed than threads are free");
                state.has_more |= runs.len() == threads;
                (state.is_refused, state.next_at) = (claims.is_refused, claims.next_at);
                runs
            }
            Err(error) => {
                state.fail(error.into());
                Vec::new()
            }
        };
        let unbegun = if state.is_closed { std::mem::take(&mut runs) } else { Vec::new() };
        state.busy -= threads - runs.len();
        drop(state);
        // Their leases are released.
        drop(unbegun);
        runs
    }

    /// Frees a thread whose run has ended, and which claims no other one.
    pub(super) fn free(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.busy > 0, "a thread with a run is busy");
        state.busy -= 1;
    }

    /// Notes the end of a run: it may have made room for others, or be due again.
    pub(super) fn end(&self, ended: Result<(), Error>) {
        let mut state = self.state.lock();
        state.has_more = true;
        if let Err(error) = ended {
            state.fail(error);
        }
    }

    /// Lets the next claim look for runs.
    pub(super) fn look_again(&self) {
        self.state.lock().has_more = true;
    }

    /// Begins no further run.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Returns the first error, which ends the worker.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.state.lock().error.take()
    }

    pub(super) fn progress(&self) -> ClaimProgress {
        let ClaimState { busy, has_more, is_refused, next_at, .. } = *self.state.lock();
        ClaimProgress { busy, has_more, is_refused, next_at }
    }

    /// Counts a failure of a thread that left its run as it was.
    pub(super) fn note_failure(&self, thread: &ThreadId, error: String) {
        let mut state = self.state.lock();
        let (count, last) = state.failures.entry(thread.clone()).or_default();
        (*count, *last) = (*count + 1, error);
    }

    /// Returns the number of failures of a thread, and the error of the last one.
    pub(super) fn failures(&self, thread: &ThreadId) -> (u64, String) {
        self.state.lock().failures.get(thread).cloned().unwrap_or_default()
    }

    /// Forgets the failures of a thread.
    pub(super) fn forget_failures(&self, thread: &ThreadId) {
        self.state.lock().failures.remove(thread);
    }
}

impl ClaimState {
    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers a claim without runs, of which a limit refused some.
    fn refused(_: usize) -> Result<(Claims, Vec<WorkerRun>), StoreError> {
        let mut none = Claims::default();
        none.is_refused = true;
        Ok((none, Vec::new()))
    }

    #[test]
    fn a_thread_that_claims_is_busy() {
        let claims = WorkerClaims::new(3);
        assert!(claims.take(|_| panic!("nothing tells of runs")).is_empty());
        claims.look_again();
        let counted = |count| {
            assert_eq!((count, claims.progress().busy), (3, 3), "a worker must not end meanwhile");
            claims.look_again();
            assert!(claims.take(|_| panic!("no thread is free")).is_empty());
            refused(count)
        };
        assert!(claims.take(counted).is_empty());
        let progress = claims.progress();
        assert_eq!((progress.busy, progress.has_more, progress.is_refused), (0, true, true), "news came meanwhile");
        assert!(claims.take(refused).is_empty());
        assert!(!claims.progress().has_more);
    }

    #[test]
    fn an_error_ends_the_claims() {
        let claims = WorkerClaims::new(1);
        claims.look_again();
        assert!(claims.take(|_| Err(StoreError::ReadOnly)).is_empty());
        assert!(matches!(claims.take_error().as_ref().and_then(Error::as_store), Some(StoreError::ReadOnly)));
        claims.look_again();
        assert!(claims.take(|_| panic!("it is closed")).is_empty());
    }
}
