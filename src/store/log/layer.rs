//! A layer over a log: it changes some calls and passes on the others.

/// Implements calls of a [`Log`](crate::store::log::Log) by those of the log in a field. A layer over a log names the
/// calls that it passes on and writes the others; the compiler finds one that is forgotten. The `commit` that is passed
/// on is that of the log below, and does not call the `submit` of the layer.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use annals::prelude::*;
/// use annals::store::log::Log;
/// use annals::store::{MemoryBackend, OpenOptions, StoreError};
/// use annals::store::batch::Batch;
///
/// /// Counts the batches that callers wait for.
/// #[derive(Debug)]
/// struct CountedBatches(Arc<dyn Log>, AtomicU64);
///
/// impl Log for CountedBatches {
///     fn commit(&self, batch: &Batch) -> std::result::Result<(), StoreError> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.commit(batch)
///     }
///
///     annals::pass_on!(0: submit, flush, operate, heads, records, read, versions, writes_of, thread_rows, operations,
///         timer_rows, erase, capabilities);
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
#[macro_export]
macro_rules! pass_on {
    (@submit $below:tt) => { $crate::pass_on!(@fn $below submit(batch: $crate::store::batch::Batch)
        -> $crate::store::log::CommitHandle); };
    (@commit $below:tt) => { $crate::pass_on!(@fn $below commit(batch: &$crate::store::batch::Batch) -> (@ ())); };
    (@flush $below:tt) => { $crate::pass_on!(@fn $below flush() -> ()); };
    (@operate $below:tt) => { $crate::pass_on!(@fn $below operate(operation: &$crate::store::operation::NewOperation)
        -> (@ u64)); };
    (@heads $below:tt) => { $crate::pass_on!(@fn $below heads(of: &[$crate::store::log::NamespaceRef<'_>],
        parts: $crate::store::log::HeadParts)
        -> (@ ::std::vec::Vec<::std::option::Option<$crate::store::record::StoredHead>>)); };
    (@records $below:tt) => { $crate::pass_on!(@fn $below records(query: &$crate::store::log::RecordQuery<'_>)
        -> (@ ::std::vec::Vec<::std::option::Option<$crate::store::record::CheckpointRecord>>)); };
    (@read $below:tt) => { $crate::pass_on!(@fn $below read(at: &$crate::store::CheckpointRef,
        query: &$crate::store::log::StateQuery<'_>, visit: $crate::store::log::VisitState<'_>) -> (@ ())); };
    (@versions $below:tt) => { $crate::pass_on!(@fn $below versions(at: &$crate::store::CheckpointRef,
        channel: ::std::option::Option<&str>, down_to: u64,
        visit: &mut dyn FnMut(&$crate::store::record::VersionRecord)
            -> ::std::result::Result<bool, $crate::store::StoreError>) -> (@ ())); };
    (@writes_of $below:tt) => { $crate::pass_on!(@fn $below writes_of(at: &[&$crate::store::CheckpointRef])
        -> (@ ::std::vec::Vec<::std::vec::Vec<$crate::store::record::WriteRecord>>)); };
    (@thread_rows $below:tt) => { $crate::pass_on!(@fn $below thread_rows(of: &$crate::store::log::ThreadRows<'_>,
        parts: $crate::store::log::ThreadParts<'_>) -> (@ ::std::vec::Vec<$crate::store::log::ThreadRow>)); };
    (@operations $below:tt) => { $crate::pass_on!(@fn $below operations(
        query: &$crate::store::operation::OperationQuery)
        -> (@ ::std::vec::Vec<$crate::store::operation::OperationRecord>)); };
    (@timer_rows $below:tt) => { $crate::pass_on!(@fn $below timer_rows(query: &$crate::store::log::TimerQuery<'_>)
        -> (@ ::std::vec::Vec<$crate::store::record::TimerRecord>)); };
    (@erase $below:tt) => { $crate::pass_on!(@fn $below erase(what: &$crate::store::log::Erase<'_>)
        -> (@ $crate::store::Erasure)); };
    (@capabilities $below:tt) => { $crate::pass_on!(@fn $below capabilities()
        -> $crate::store::log::Capabilities<'_>); };
    (@fn $below:tt $call:ident($($arg:ident: $type:ty),*) -> (@ $answer:ty)) => {
        $crate::pass_on!(@fn $below $call($($arg: $type),*)
            -> ::std::result::Result<$answer, $crate::store::StoreError>);
    };
    (@fn $below:tt $call:ident($($arg:ident: $type:ty),*) -> $answer:ty) => {
        fn $call(&self, $($arg: $type),*) -> $answer {
            self.$below.$call($($arg),*)
        }
    };
    ($below:tt: $($call:tt),+ $(,)?) => { $($crate::pass_on!(@$call $below);)+ };
}
