//! Drives erasures: hides threads at once, and reclaims their space in steps until the file and its log hold no byte.
//!
//! A call reclaims a few slices itself; a thread does the rest, with a pause after each slice, so that other writers get
//! the lock. It starts when there is something to reclaim, also after an open. *Absent:* which rows go ([`erase`]).
//!
//! [`erase`]: super::erase

use super::erase::{EraseJob, EraseStep, Tombstones};
use super::fault::is_full;
use super::job::JobRef;
use super::writer::SqliteWriter;
use crate::base::ThreadId;
use crate::base::limits::{RECLAIM_INTERVAL, RECLAIM_RETRY, RECLAIM_SLICES};
use crate::store::backend::Erasure;
use crate::store::error::StoreError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The eraser of a file that is open for writing.
#[derive(Debug)]
pub(super) struct Eraser(Arc<EraserInner>);

#[derive(Debug)]
struct EraserInner {
    writer: Arc<SqliteWriter>,
    state: Mutex<EraserState>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct EraserState {
    due: bool,
    stopping: bool,
}

impl Eraser {
    /// Makes an eraser whose thread does not run yet.
    pub(super) fn new(writer: Arc<SqliteWriter>) -> Self {
        let (state, wake, thread) = Default::default();
        Self(Arc::new(EraserInner { writer, state, wake, thread }))
    }

    /// Hides threads, and reclaims their rows if they are few.
    pub(super) fn delete(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        let left = match self.0.step(EraseStep::Hide(threads.to_vec())) {
            Err(error) if is_full(&error) => {
                // An emptied log has room for a few pages; if it cannot be emptied, its rest may have.
                _ = self.0.writer.checkpoint_wal();
                self.0.step(EraseStep::HideAlone(threads.to_vec())).map_err(|_| full(error))?
            }
            left => left?,
        };
        // From here on the threads are deleted: an error only delays the rest.
        let erasure = self.0.advance(left.clone(), RECLAIM_SLICES, Duration::ZERO);
        let erasure = erasure.unwrap_or(Erasure::ErasePending { threads: left.len() as u64 });
        if erasure != Erasure::Erased {
            self.wake();
        }
        Ok(erasure)
    }

    /// Reclaims until no deleted thread is left, or a reader holds the log.
    pub(super) fn reclaim(&self) -> Result<Erasure, StoreError> {
        let left = self.0.step(EraseStep::Reclaim)?;
        self.0.advance(left, usize::MAX, RECLAIM_INTERVAL)
    }

    /// Lets the thread reclaim the rest.
    pub(super) fn wake(&self) {
        self.0.state.lock().due = true;
        self.0.wake.notify_all();
        let mut thread = self.0.thread.lock();
        if thread.is_none() {
            let inner = Arc::clone(&self.0);
            // Without a thread, the next delete, reclaim or open continues.
            *thread = std::thread::Builder::new().name("annals-eraser".into()).spawn(move || inner.run()).ok();
        }
    }

    /// Ends the thread. An erasure under way continues at the next open.
    pub(super) fn stop(&self) {
        self.0.state.lock().stopping = true;
        self.0.wake.notify_all();
        let thread = self.0.thread.lock().take();
        // A thread that panicked leaves tombstones, which is safe.
        _ = thread.map(JoinHandle::join);
    }
}

impl EraserInner {
    fn step(&self, step: EraseStep) -> Result<Tombstones, StoreError> {
        let job = EraseJob { step, left: Arc::default() };
        self.writer.commit(JobRef::Erase(&job))?;
        let left = std::mem::take(&mut *job.left.lock());
        Ok(left)
    }

    /// Reclaims at most `slices` slices, with a pause before each, then empties the log if no rows are left.
    fn advance(&self, mut left: Tombstones, slices: usize, pause: Duration) -> Result<Erasure, StoreError> {
        for _ in 0..slices {
            if left.stored.is_empty() {
                break;
            }
            // A process that waits for the lock finds it free.
            std::thread::sleep(pause);
            left = self.step(EraseStep::Reclaim)?;
        }
        if left.stored.is_empty() && !left.logged.is_empty() {
            // The log still holds the pages as they were.
            match self.writer.checkpoint_wal() {
                Ok(()) => left = self.step(EraseStep::Forget(left.logged))?,
                Err(StoreError::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(match left.len() as u64 {
            0 => Erasure::Erased,
            threads => Erasure::ErasePending { threads },
        })
    }

    fn run(&self) {
        let mut pause = None;
        loop {
            let mut state = self.state.lock();
            match pause.take() {
                Some(pause) if !state.stopping => _ = self.wake.wait_for(&mut state, pause),
                _ => {
                    while !state.due && !state.stopping {
                        self.wake.wait(&mut state);
                    }
                }
            }
            if state.stopping {
                return;
            }
            state.due = false;
            drop(state);
            let advanced = self.step(EraseStep::Reclaim).and_then(|left| {
                let rows_are_left = !left.stored.is_empty();
                self.advance(left, 0, Duration::ZERO).map(|erasure| (erasure, rows_are_left))
            });
            pause = match advanced {
                Ok((Erasure::Erased, _)) => None,
                Ok((_, true)) => Some(RECLAIM_INTERVAL),
                Ok((_, false)) => Some(RECLAIM_RETRY),
                // A handle that accepts no writes never will.
                Err(StoreError::HandleClosed { .. } | StoreError::FileReplaced { .. }) => return,
                Err(_) => Some(RECLAIM_RETRY),
            };
        }
    }
}

/// Returns the error of a deletion for which the disk has no room.
fn full(error: StoreError) -> StoreError {
    let reason = "the disk is full: a deletion first needs about 64 KiB for the log beside the file (`-wal`); free that \
                  much on its file system, or end the reads that hold the log, and delete again";
    StoreError::Write { reason: reason.into(), source: Some(Box::new(error)) }
}
