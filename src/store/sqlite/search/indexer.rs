//! Lets the index follow the log in the background, so that neither a commit nor a search pays for it.
//!
//! Commits count their checkpoints; past a number of them a thread indexes the rest, in the steps of [`advance`]. It starts with
//! the first such commit, or after an open that finds a long rest. *Absent:* the contents of a step ([`index`](super::index)).

use super::super::writer::SqliteWriter;
use super::index::advance_until;
use crate::base::limits::SEARCH_TAIL_MAX;
use crate::store::error::StoreError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The indexer of a file that is open for writing.
#[derive(Debug)]
pub(in super::super) struct Indexer {
    inner: Arc<IndexerInner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct IndexerInner {
    writer: Arc<SqliteWriter>,
    /// True if the store is indexed, as far as this handle knows.
    is_on: AtomicBool,
    /// Checkpoints that were committed since the thread was last woken.
    committed: AtomicU64,
    stopping: AtomicBool,
    due: Mutex<bool>,
    wake: Condvar,
}

impl Indexer {
    /// Makes an indexer whose thread does not run yet.
    pub(in super::super) fn new(writer: Arc<SqliteWriter>) -> Self {
        let inner = IndexerInner {
            writer,
            is_on: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            due: Mutex::new(false),
            wake: Condvar::new(),
        };
        Self { inner: Arc::new(inner), thread: Mutex::default() }
    }

    /// Notes whether the store is indexed.
    pub(in super::super) fn set_on(&self, is_on: bool) {
        self.inner.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Notes that checkpoints are committed, or will be.
    pub(in super::super) fn note(&self, checkpoints: usize) {
        if !self.inner.is_on.load(Ordering::Relaxed) {
            return;
        }
        let before = self.inner.committed.fetch_add(checkpoints as u64, Ordering::Relaxed);
        if before + checkpoints as u64 > SEARCH_TAIL_MAX {
            self.inner.committed.store(0, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Lets the thread index the rest.
    pub(in super::super) fn wake(&self) {
        *self.inner.due.lock() = true;
        self.inner.wake.notify_all();
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let inner = Arc::clone(&self.inner);
            // Without a thread, searches index the rest.
            *thread = std::thread::Builder::new().name("annals-indexer".into()).spawn(move || inner.run()).ok();
        }
    }

    /// Ends the thread. The rest is indexed after the next open.
    pub(in super::super) fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
        // Under the lock, or the thread between its check and its wait would miss the wake-up.
        *self.inner.due.lock() = true;
        self.inner.wake.notify_all();
        let thread = self.thread.lock().take();
        // A thread that panicked leaves a rest, which searches scan.
        _ = thread.map(JoinHandle::join);
    }
}

impl IndexerInner {
    fn run(&self) {
        loop {
            let mut due = self.due.lock();
            while !*due {
                self.wake.wait(&mut due);
            }
            *due = false;
            drop(due);
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            let advanced = advance_until(&self.writer, &|| self.stopping.load(Ordering::Relaxed));
            // A handle that accepts no writes never will. After any other error, a later commit wakes the thread again.
            if let Err(StoreError::HandleClosed { .. } | StoreError::FileReplaced { .. }) = advanced {
                return;
            }
        }
    }
}
