//! Lets the index follow the log in the background, so that neither a commit nor a search pays for it.
//!
//! Commits count their checkpoints; past a number of them the background indexes the rest. It also does after an open
//! that finds a long rest. *Absent:* the contents of a step ([`index`](super::index)), and the thread
//! ([`worker`](crate::store::sqlite::writer::background)).

use super::index::SearchEntries;
use crate::limits::{FOLLOW_INTERVAL, SEARCH_TAIL_MAX};
use crate::store::error::StoreError;
use crate::store::sqlite::index::follow;
use crate::store::sqlite::index::projection::ProjectionStep;
use crate::store::sqlite::writer::background::{Background, Upkeep, UpkeepKind};
use crate::store::sqlite::writer::role::SqliteWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The indexer of a file that is open for writing.
#[derive(Debug)]
pub(crate) struct Indexer {
    worker: Background,
    /// True if the store is indexed, as far as this handle knows.
    is_on: AtomicBool,
    /// Checkpoints that were committed since the background was last woken.
    committed: AtomicU64,
}

impl Indexer {
    /// Makes an indexer that leaves its work to a background.
    pub(crate) fn new(worker: Background) -> Self {
        Self { worker, is_on: AtomicBool::new(false), committed: AtomicU64::new(0) }
    }

    /// Notes whether the store is indexed.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Notes that checkpoints are committed, or will be.
    pub(crate) fn note(&self, checkpoints: usize) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let before = self.committed.fetch_add(checkpoints as u64, Ordering::Relaxed);
        if before + checkpoints as u64 > SEARCH_TAIL_MAX {
            self.committed.store(0, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Lets the background index the rest, if the store is indexed.
    pub(crate) fn wake_if_on(&self) {
        if self.is_on.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Lets the background index the rest.
    pub(crate) fn wake(&self) {
        self.worker.wake(UpkeepKind::Index, Arc::new(IndexUpkeep));
    }
}

/// Indexes the rest of the log in the background.
struct IndexUpkeep;

impl Upkeep for IndexUpkeep {
    fn step(&self, writer: &SqliteWriter, _worker: &Background) -> Result<Option<Duration>, StoreError> {
        match follow::step(writer, &SearchEntries, ProjectionStep::Follow) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(FOLLOW_INTERVAL)),
            Err(error @ (StoreError::HandleClosed { .. } | StoreError::FileReplaced { .. })) => Err(error),
            // A later commit wakes the background again.
            Err(_) => Ok(None),
        }
    }
}
