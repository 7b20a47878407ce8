//! The runs that a worker has claimed and not begun, and the number of those that run.
//!
//! One thread claims at a time, for all threads that wait for a run: those that end together cost one claim. *Absent:*
//! reading the store, and the order and the limits of a claim, which are the store's.
//!
//! Invariant: no more runs are claimed than threads wait for.

use std::collections::{HashMap, VecDeque};

use parking_lot::{Condvar, Mutex, MutexGuard};

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
#[derive(Default)]
pub(super) struct WorkerClaims {
    state: Mutex<ClaimState>,
    changed: Condvar,
}

#[derive(Default)]
struct ClaimState {
    /// Runs that are claimed for threads that wait.
    ready: VecDeque<WorkerRun>,
    /// The number of runs that threads wait for.
    wanted: usize,
    running: usize,
    is_claiming: bool,
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
    /// The number of runs that have begun and not ended.
    pub(super) running: usize,
    /// True if another claim may find runs, or has not ended.
    pub(super) has_more: bool,
    /// True if runs are due that a limit refuses.
    pub(super) is_refused: bool,
    /// The first timestamp at which another run may be due.
    pub(super) next_at: Option<Timestamp>,
}

impl WorkerClaims {
    /// Takes runs, at most `wanted`, and counts them as running. Another thread may claim them meanwhile; `claim` is
    /// called for so many runs without a lock held.
    pub(super) fn take(
        &self,
        wanted: usize,
        claim: impl Fn(usize) -> Result<(Claims, Vec<WorkerRun>), StoreError>,
    ) -> Vec<WorkerRun> {
        let mut state = self.state.lock();
        state.wanted += wanted;
        while wanted > 0 && state.ready.is_empty() && (state.has_more || state.is_claiming) && !state.is_closed {
            if state.is_claiming {
                self.changed.wait(&mut state);
                continue;
            }
            (state.is_claiming, state.has_more) = (true, false);
            let count = state.wanted.min(CLAIM_RUNS_MAX);
            let found = MutexGuard::unlocked(&mut state, || claim(count));
            state.is_claiming = false;
            match found {
                Ok((claims, runs)) => {
                    state.has_more |= runs.len() == count;
                    (state.is_refused, state.next_at) = (claims.is_refused, claims.next_at);
                    state.ready.extend(runs);
                }
                Err(error) => state.fail(error.into()),
            }
            self.changed.notify_all();
        }
        state.wanted -= wanted;
        let taken = if state.is_closed { 0 } else { wanted.min(state.ready.len()) };
        state.running += taken;
        state.ready.drain(..taken).collect()
    }

    /// Counts a run as ended: it may have made room for others, or be due again.
    pub(super) fn end(&self, ended: Result<(), Error>) {
        let mut state = self.state.lock();
        debug_assert!(state.running > 0, "a run that ends was taken");
        state.running -= 1;
        state.has_more = true;
        if let Err(error) = ended {
            state.fail(error);
        }
    }

    /// Lets the next claim look for runs.
    pub(super) fn look_again(&self) {
        self.state.lock().has_more = true;
    }

    /// Begins no further run. Those that are claimed are dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        drop(ready);
        self.changed.notify_all();
    }

    /// Returns the first error, which ends the worker.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.state.lock().error.take()
    }

    pub(super) fn progress(&self) -> ClaimProgress {
        let state = self.state.lock();
        ClaimProgress {
            running: state.running,
            has_more: state.has_more || state.is_claiming || !state.ready.is_empty(),
            is_refused: state.is_refused,
            next_at: state.next_at,
        }
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
    fn a_claim_that_has_not_ended_may_find_runs() {
        let claims = WorkerClaims::default();
        assert!(claims.take(1, |_| panic!("nothing tells of runs")).is_empty());
        claims.look_again();
        let counted = |count| {
            assert_eq!(count, 3);
            assert!(claims.progress().has_more, "a worker must not end meanwhile");
            refused(count)
        };
        assert!(claims.take(3, counted).is_empty());
        let progress = claims.progress();
        assert_eq!((progress.has_more, progress.is_refused, progress.running), (false, true, 0));
    }

    #[test]
    fn threads_that_wait_meanwhile_are_claimed_for_at_once() {
        let (claims, counts) = (WorkerClaims::default(), Mutex::new(Vec::new()));
        claims.look_again();
        std::thread::scope(|scope| {
            let (claims, counts) = (&claims, &counts);
            let counted = move |count| {
                counts.lock().push(count);
                refused(count)
            };
            let first = |count| {
                if count == 1 {
                    scope.spawn(move || claims.take(2, counted));
                    scope.spawn(move || claims.take(3, counted));
                    while claims.state.lock().wanted < 6 {
                        std::thread::yield_now();
                    }
                    claims.look_again();
                }
                counted(count)
            };
            assert!(claims.take(1, first).is_empty());
        });
        assert_eq!(counts.into_inner(), [1, 6], "one of the threads claims for all");
    }

    #[test]
    fn an_error_ends_the_claims() {
        let claims = WorkerClaims::default();
        claims.look_again();
        assert!(claims.take(1, |_| Err(StoreError::ReadOnly)).is_empty());
        assert!(matches!(claims.take_error().as_ref().and_then(Error::as_store), Some(StoreError::ReadOnly)));
        claims.look_again();
        assert!(claims.take(1, |_| panic!("it is closed")).is_empty());
    }
}
