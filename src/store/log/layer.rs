//! A layer over a log: it changes some calls and passes on the others.

use std::fmt;

use super::{
    Capabilities, CommitHandle, Erase, Erasure, HeadParts, Log, NamespaceRef, RecordQuery, StateQuery, ThreadParts,
    ThreadRow, ThreadRows, TimerQuery, VisitState,
};
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::operation::{NewOperation, OperationQuery, OperationRecord};
use crate::store::record::{CheckpointRecord, CheckpointRef, StoredHead, TimerRecord, VersionRecord, WriteRecord};

/// A log over another one: a call that the layer does not change goes to the log below. A layer is a [`Log`].
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use annals::prelude::*;
/// use annals::store::log::{Layer, Log};
/// use annals::store::{MemoryBackend, OpenOptions, StoreError};
/// use annals::store::batch::Batch;
///
/// /// Counts the batches that callers wait for.
/// #[derive(Debug)]
/// struct CountedBatches(Arc<dyn Log>, AtomicU64);
///
/// impl Layer for CountedBatches {
///     fn below(&self) -> &dyn Log {
///         &*self.0
///     }
///
///     fn commit(&self, batch: &Batch) -> std::result::Result<(), StoreError> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.commit(batch)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let counted = Arc::new(CountedBatches(Arc::new(MemoryBackend::new()), AtomicU64::new(0)));
/// let store = Store::with_backend(Arc::clone(&counted) as Arc<dyn Log>, OpenOptions::new());
/// store.thread("trip")?.set("city", "Bern")?;
/// assert_eq!(counted.1.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
pub trait Layer: Send + Sync + fmt::Debug {
    /// Returns the log below.
    fn below(&self) -> &dyn Log;

    /// See [`Log::submit`].
    fn submit(&self, batch: Batch) -> CommitHandle {
        self.below().submit(batch)
    }

    /// See [`Log::commit`]. This implementation calls that of the log below, and not [`Layer::submit`].
    ///
    /// # Errors
    /// As [`Log::commit`].
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.below().commit(batch)
    }

    /// See [`Log::flush`].
    fn flush(&self) {
        self.below().flush();
    }

    /// See [`Log::operate`].
    ///
    /// # Errors
    /// As [`Log::operate`].
    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        self.below().operate(operation)
    }

    /// See [`Log::heads`].
    ///
    /// # Errors
    /// As [`Log::heads`].
    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        self.below().heads(of, parts)
    }

    /// See [`Log::records`].
    ///
    /// # Errors
    /// As [`Log::records`].
    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        self.below().records(query)
    }

    /// See [`Log::read`].
    ///
    /// # Errors
    /// As [`Log::read`].
    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        self.below().read(at, query, visit)
    }

    /// See [`Log::versions`].
    ///
    /// # Errors
    /// As [`Log::versions`].
    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.below().versions(at, channel, down_to, visit)
    }

    /// See [`Log::writes_of`].
    ///
    /// # Errors
    /// As [`Log::writes_of`].
    fn writes_of(&self, at: &[&CheckpointRef]) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        self.below().writes_of(at)
    }

    /// See [`Log::thread_rows`].
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        self.below().thread_rows(of, parts)
    }

    /// See [`Log::operations`].
    ///
    /// # Errors
    /// As [`Log::operations`].
    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        self.below().operations(query)
    }

    /// See [`Log::timer_rows`].
    ///
    /// # Errors
    /// As [`Log::timer_rows`].
    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        self.below().timer_rows(query)
    }

    /// See [`Log::erase`].
    ///
    /// # Errors
    /// As [`Log::erase`].
    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        self.below().erase(what)
    }

    /// See [`Log::capabilities`].
    fn capabilities(&self) -> Capabilities<'_> {
        self.below().capabilities()
    }
}

impl<L: Layer> Log for L {
    fn submit(&self, batch: Batch) -> CommitHandle {
        Layer::submit(self, batch)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        Layer::commit(self, batch)
    }

    fn flush(&self) {
        Layer::flush(self);
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        Layer::operate(self, operation)
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        Layer::heads(self, of, parts)
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        Layer::records(self, query)
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        Layer::read(self, at, query, visit)
    }

    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        Layer::versions(self, at, channel, down_to, visit)
    }

    fn writes_of(&self, at: &[&CheckpointRef]) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        Layer::writes_of(self, at)
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        Layer::thread_rows(self, of, parts)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        Layer::operations(self, query)
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        Layer::timer_rows(self, query)
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        Layer::erase(self, what)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Layer::capabilities(self)
    }
}
