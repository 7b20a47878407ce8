//! Drives erasures: hides threads at once, and reclaims their space in steps until the file and its log hold no byte.
//!
//! A call reclaims a few slices itself; the background does the rest, with a pause after each slice, and empties the trash. It
//! begins when there is something to reclaim, also after an open. *Absent:* which rows go ([`erase`]), and the thread of the
//! background ([`worker`]).
//!
//! [`erase`]: super::erase
//! [`worker`]: super::worker

use super::erase::{EraseJob, EraseStep, Tombstones};
use super::fault::is_full;
use super::job::JobRef;
use super::worker::{Upkeep, UpkeepKind, Worker};
use super::writer::SqliteWriter;
use crate::base::limits::{RECLAIM_INTERVAL, RECLAIM_RETRY, RECLAIM_SLICES, TRASH_INTERVAL};
use crate::base::{Clock, ThreadId, Timestamp};
use crate::store::backend::Erasure;
use crate::store::error::StoreError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The eraser of a file that is open for writing.
pub(super) struct Eraser {
    worker: Worker,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Eraser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eraser").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl Eraser {
    /// Makes an eraser that leaves the rest of its work to a background.
    pub(super) fn new(worker: Worker, clock: Arc<dyn Clock>) -> Self {
        Self { worker, clock }
    }

    /// Hides the threads whose time in the trash has ended, and reclaims their rows if they are few.
    pub(super) fn erase_trash(&self, now: Timestamp) -> Result<Erasure, StoreError> {
        let (left, _) = step(self.worker.writer(), EraseStep::HideTrash(now))?;
        self.reclaim_some(left)
    }

    /// Lets the background empty the trash: it deletes each thread when its time there has ended.
    pub(super) fn watch_trash(&self) {
        self.worker.wake(UpkeepKind::Trash, Arc::new(TrashUpkeep(Arc::clone(&self.clock))));
    }

    /// Hides threads, and reclaims their rows if they are few.
    pub(super) fn delete(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        let writer = self.worker.writer();
        let (left, _) = match step(writer, EraseStep::Hide(threads.to_vec())) {
            Err(error) if is_full(&error) => {
                // An emptied log has room for a few pages; if it cannot be emptied, its rest may have.
                _ = writer.checkpoint_wal();
                step(writer, EraseStep::HideAlone(threads.to_vec())).map_err(|_| full(error))?
            }
            left => left?,
        };
        self.reclaim_some(left)
    }

    /// Reclaims rows of threads that were hidden, if they are few. From here on the threads are deleted: an error only delays
    /// the rest.
    fn reclaim_some(&self, left: Tombstones) -> Result<Erasure, StoreError> {
        let erasure = advance(self.worker.writer(), left.clone(), RECLAIM_SLICES, Duration::ZERO);
        let erasure = erasure.unwrap_or(Erasure::ErasePending { threads: left.len() as u64 });
        if erasure != Erasure::Erased {
            self.wake();
        }
        Ok(erasure)
    }

    /// Reclaims until no deleted thread is left, or a reader holds the log.
    pub(super) fn reclaim(&self) -> Result<Erasure, StoreError> {
        let (left, _) = step(self.worker.writer(), EraseStep::Reclaim)?;
        advance(self.worker.writer(), left, usize::MAX, RECLAIM_INTERVAL)
    }

    /// Lets the background reclaim the rest.
    pub(super) fn wake(&self) {
        self.worker.wake(UpkeepKind::Reclaim, Arc::new(ReclaimUpkeep));
    }
}

/// Makes a step. Returns the tombstones after it, and when the time of the next thread in the trash ends.
fn step(writer: &SqliteWriter, step: EraseStep) -> Result<(Tombstones, Option<Timestamp>), StoreError> {
    let job = EraseJob { step, left: Arc::default(), next_trash: Arc::default() };
    writer.commit(JobRef::Erase(&job))?;
    let left = std::mem::take(&mut *job.left.lock());
    let next_trash = *job.next_trash.lock();
    Ok((left, next_trash))
}

/// Reclaims at most `slices` slices, with a pause before each, then empties the log if no rows are left.
fn advance(writer: &SqliteWriter, mut left: Tombstones, slices: usize, pause: Duration) -> Result<Erasure, StoreError> {
    for _ in 0..slices {
        if left.stored.is_empty() {
            break;
        }
        // A process that waits for the lock finds it free.
        std::thread::sleep(pause);
        (left, _) = step(writer, EraseStep::Reclaim)?;
    }
    if left.stored.is_empty() && !left.logged.is_empty() {
        // The log still holds the pages as they were.
        match writer.checkpoint_wal() {
            Ok(()) => (left, _) = step(writer, EraseStep::Forget(left.logged))?,
            Err(StoreError::Busy { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(match left.len() as u64 {
        0 => Erasure::Erased,
        threads => Erasure::ErasePending { threads },
    })
}

/// Reclaims the rows of deleted threads in the background, a slice in each step.
struct ReclaimUpkeep;

impl Upkeep for ReclaimUpkeep {
    fn step(&self, writer: &SqliteWriter, _worker: &Worker) -> Result<Option<Duration>, StoreError> {
        let (left, _) = step(writer, EraseStep::Reclaim)?;
        let rows_are_left = !left.stored.is_empty();
        Ok(match (advance(writer, left, 0, Duration::ZERO)?, rows_are_left) {
            (Erasure::Erased, _) => None,
            (_, true) => Some(RECLAIM_INTERVAL),
            (_, false) => Some(RECLAIM_RETRY),
        })
    }
}

/// Empties the trash in the background.
struct TrashUpkeep(Arc<dyn Clock>);

impl Upkeep for TrashUpkeep {
    fn step(&self, writer: &SqliteWriter, worker: &Worker) -> Result<Option<Duration>, StoreError> {
        let now = self.0.now();
        let (left, next) = match step(writer, EraseStep::HideTrash(now)) {
            // A check reports the damage, and nothing is deleted meanwhile.
            Err(StoreError::Corrupt { .. }) => return Ok(None),
            made => made?,
        };
        if left.len() > 0 {
            worker.wake(UpkeepKind::Reclaim, Arc::new(ReclaimUpkeep));
        }
        // The time of day may be set, and a thread from which others were forked waits for their deletion.
        Ok(next.map(|next| match u64::try_from(next.as_micros().saturating_sub(now.as_micros())) {
            Ok(micros @ 1..) => Duration::from_micros(micros).min(TRASH_INTERVAL),
            _ => TRASH_INTERVAL,
        }))
    }
}

/// Returns the error of a deletion for which the disk has no room.
fn full(error: StoreError) -> StoreError {
    let reason = "the disk is full: a deletion first needs about 64 KiB for the log beside the file (`-wal`); free that \
                  much on its file system, or end the reads that hold the log, and delete again";
    StoreError::Write { reason: reason.into(), source: Some(Box::new(error)) }
}
