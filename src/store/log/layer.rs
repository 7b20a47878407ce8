//! A layer over a log: it changes or notes some calls and passes on the others.

use std::fmt;

use super::{
    Capabilities, CommitHandle, Erase, Erasure, HeadParts, Log, NamespaceRef, RecordQuery, StateQuery, ThreadParts,
    ThreadRow, ThreadRows, TimerQuery, VisitEach, VisitState,
};
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::operation::{NewOperation, OperationQuery, OperationRecord};
use crate::store::record::{CheckpointRecord, CheckpointRef, StoredHead, TimerRecord, VersionRecord, WriteRecord};

/// Declares the trait of layers: each call of a log goes to the log below, unless a layer changes it.
macro_rules! layer {
    (
        $(#[$trait_doc:meta])*
        pub trait Layer;
        $($(#[$doc:meta])* fn $call:ident(&self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*
    ) => {
        $(#[$trait_doc])*
        pub trait Layer: Send + Sync + fmt::Debug {
            /// Returns the log below.
            fn below(&self) -> &dyn Log;

            /// Runs before each call of the layer, with the name of the call: for counts and traces. This
            /// implementation does nothing.
            fn before(&self, _call: &'static str) {}

            $(
            #[doc = concat!("See [`Log::", stringify!($call), "`], also for its errors, if it has any.")]
            $(#[$doc])*
            fn $call(&self $(, $argument: $type)*) $(-> $result)? {
                self.below().$call($($argument),*)
            }
            )*
        }

        impl<L: Layer> Log for L {
            $(
            fn $call(&self $(, $argument: $type)*) $(-> $result)? {
                Layer::before(self, stringify!($call));
                Layer::$call(self $(, $argument)*)
            }
            )*
        }
    };
}

layer! {
    /// A log over another one: a call that the layer does not change goes to the log below. A layer is a [`Log`], and
    /// notes each call that it gets as one in [`Layer::before`].
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
    pub trait Layer;

    fn submit(&self, batch: Batch) -> CommitHandle;
    /// This implementation calls that of the log below, and not [`Layer::submit`].
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;
    fn flush(&self);
    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError>;
    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError>;
    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError>;
    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError>;
    fn versions(
        &self, at: &CheckpointRef, channel: Option<&str>, down_to: u64, visit: VisitEach<'_, VersionRecord>
    ) -> Result<(), StoreError>;
    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError>;
    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError>;
    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError>;
    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError>;
    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError>;
    fn capabilities(&self) -> Capabilities<'_>;
}
